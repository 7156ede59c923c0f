/* The expression language: the operators of the conformance list, spellings, error positions, limits, and text that prints back. */
#include "tests/arena.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <cmocka.h>
#include "te/te.h"

static kiln_arena *open_arena(void) { return kiln_arena_open(&(kiln_host){NULL, mem, NULL}); }
static kiln_bytes bytes(const char *s) { return (kiln_bytes){s, strlen(s)}; }

static kn_program *parse(kiln_arena *a, const char *inputs, const char *text)
{
    kn_program *p = NULL;
    kiln_diag d;
    if (kn_parse(a, bytes(text), bytes(inputs), &p, &d) != KILN_OK) fail_msg("%s\n%d:%d: %s", text, d.line, d.col, d.message);
    return p;
}

static const char *print(kiln_arena *a, const kn_program *p)
{
    kiln_bytes t;
    assert_int_equal(kiln_program_text(a, p, &t), KILN_OK);
    return t.p;
}

static const struct { const char *inputs, *text, *shape; } corpus[] = {
    {"a=f32:512x256&b=f32:256x128", "c[M,N] +=! a[M,K]*b[K,N]", "f32 512 128"},
    {"q=f32[2,4,64,32]&k=f32[2,4,64,32]&v=f32[2,4,64,32]",
     "s[B,H,Q,S] +=! q[B,H,Q,D]*k[B,H,S,D] * 0.125; m[B,H,Q] >=! s[B,H,Q,S]; e[B,H,Q,S] = exp(s[B,H,Q,S]-m[B,H,Q]);"
     "z[B,H,Q] +=! e[B,H,Q,S]; o[B,H,Q,D] +=! e[B,H,Q,S]*v[B,H,S,D]/z[B,H,Q]", "f32 2 4 64 32"},
    {"x=f32:1x64x56x56&w=f32:32x64x3x3", "y[N,F,P,Q] +=! pad(x,0.0)[N,C,P*1+R-1,Q*1+S-1]*w[F,C,R,S] where P in 56, Q in 56",
        "f32 1 32 56 56"},
    {"x=f32:1x64x56x56&w=f32:64x3x3", "y[N,C,P,Q] +=! pad(x,0.0)[N,C,P+R-1,Q+S-1]*w[C,R,S] where P in 56, Q in 56", "f32 1 64 56 56"},
    {"x=f32:1x64x56x56", "y[N,C,P,Q] >=! x[N,C,P*2+R,Q*2+S] where P in 28, Q in 28, R in 2, S in 2", "f32 1 64 28 28"},
    {"x=f32:8x32&g=f32:32&b=f32:32",
     "u[N] +=! x[N,C]; t[N] +=! (x[N,C]-u[N]/extent(C))*(x[N,C]-u[N]/extent(C));"
     "y[N,C] = (x[N,C]-u[N]/extent(C))*rsqrt(t[N]/extent(C)+1e-5)*g[C]+b[C]", "f32 8 32"},
    {"table=f32:100x8&idx=i32:5", "y[I,C] = table[idx[I],C]", "f32 5 8"},
    {"idx=i32:5", "y[N,F] = select(idx[N]==F,1.0,0.0) where F in 128", "f32 5 128"},
    {"a=f32:3x128&b=f32:3x128", "y[N,F] = select(F<128, a[N,F], b[N,F-128]) where F in 256", "f32 3 256"},
    {"x=f32:3x2x64", "y[A,B] = x[A, B//64, B%64] where B in 128", "f32 3 128"},
    {"a=i8:4x6&b=i8:6x5", "c[M,N] +=! cast(a[M,K],i32)*cast(b[K,N],i32)", "i32 4 5"},
    {"acc=f32:100x8&idx=i32:5&upd=f32:5x8", "acc[idx[I],C] +=. upd[I,C]", "f32 100 8"},
    /* Antares spellings */
    {"{\"a\": {\"dtype\": \"float32\", \"shape\": [8, 4]}, \"b\": {\"dtype\": \"float32\", \"shape\": [4, 2]}}",
        "c[N, M] +=! a[N, K] * b[K, M]", "f32 8 2"},
    {"a=float32[N:8]", "c[N] = a[N].call(`exp`).cast(`float16`)", "f16 8"},
    {"a=f32:8", "c[N] = a[N].call(`max`, [const(0.0)])", "f32 8"},
    {"a=f32:8", "c[N] = a[N].when([N >= 1, N < 4], const(0.0), merge_op=`any`)", "f32 8"},
    {"a=f32:8", "c[N] = a[N + 1].when([N < 7], 0.0) where N in 8", "f32 8"},
    {"a=f32:8x3", "c[N] >=! a[N, K] / K.val()", "f32 8"},
    {"a=f32:8x3", "c[N] <=! a[N, K]", "f32 8"},
    {"a=f32:8x3", "c[0] max=! a[N, K]", "f32 1"},
    {"a=f32:8x3", "c[] += a[N, K]", "f32"},
    {"a=f32:8x3", "c[N] &=! (a[N, K] > 0.0) & ~(a[N, K] > 1.0)", "bool 8"},
    {"a=f16:8x3&b=f16:3x4", "c[M,N] +=! a[M,K]*b[K,N] : f32", "f32 8 4"},
    {"a=f16:8x3&b=f16:3x4", "c[M,N] +=! a[M,K]*b[K,N]", "f16 8 4"},
    {"", "in a: f32[8]; in s: f32[]; c[N] = a[N] * s + sigmoid(a[N]) - gelu(a[N]) + relu(a[N])", "f32 8"},
    {"x=f32:10&w=f32:3", "y[P] +=! x[P+R]*w[R]", "f32 8"},
    {"x=f32:10", "y[P] = P > 3 ? x[P] : -x[P]", "f32 10"},
    {"x=f16:10", "y[P] = x[P] * P + 1", "f16 10"},
    {"", "y[I] = I where I in 4", "i64 4"},
    {"a=i32:4&b=i32:4", "c[M] = a[M] // select(b[M] == 0, 1, b[M])", "i32 4"},
};

static void conformance(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof corpus / sizeof *corpus; i++) {
        kiln_arena *a = open_arena();
        kn_program *p = parse(a, corpus[i].inputs, corpus[i].text);
        const kn_tensor *t = &p->tensors[p->ninputs];
        char got[64];
        int n = snprintf(got, sizeof got, "%s", kn_dtype_text(t->dtype));
        for (int k = 0; k < t->rank; k++) n += snprintf(got + n, sizeof got - (size_t)n, " %lld", (long long)t->shape[k]);
        assert_string_equal(got, corpus[i].shape);
        const char *text = print(a, p);
        kn_program *again = parse(a, "", text);
        assert_string_equal(print(a, again), text);
        assert_int_equal(again->nstmts, p->nstmts);
        for (int k = 0; k < p->nstmts; k++) assert_true(kn_expr_equal(again->stmts[k]->body, p->stmts[k]->body));
        kiln_arena_close(a);
    }
}

static const struct { const char *inputs, *text; int line, col; kiln_status status; const char *message; } errors[] = {
    {"a=f32:512x512&b=f32:256x512", "c[M,N] +=! a[M,K]*b[K,N]", 1, 21, KILN_SHAPE,
     "axis K has two different extents: 512 (a dim 1) and 256 (b dim 0)"},
    {"a=f32:4", "c[M] = \n  a[M] + d[M]", 2, 10, KILN_SYNTAX, "no tensor named d"},
    {"a=f32:4", "c[M] = a[M] +", 1, 14, KILN_SYNTAX, "expected an expression before the end of the text"},
    {"a=f32:4", "c[M] = a[M,M]", 1, 8, KILN_SHAPE, "a has 1 dimension, 2 indices given"},
    {"a=f32:4x4", "c[M] = a[M,K]", 1, 1, KILN_SYNTAX, "axis K is on the right side only, but = does not reduce"},
    {"a=f32:4", "c[M] = a[M+1] where M in 4", 1, 11, KILN_SHAPE, "index 0 of a reaches from 1 to 4, outside of its 4 elements"},
    {"a=f32:4", "c[M] = 1.0", 1, 3, KILN_SHAPE, "the extent of axis M cannot be found"},
    {"a=f32:4", "a[M] = 1.0 where M in 4", 1, 1, KILN_SYNTAX, "a is an input and cannot be written"},
    {"a=f32:4", "c[M] = foo(a[M])", 1, 8, KILN_SYNTAX, "no function 'foo'"},
    {"a=f32:4&b=f16:4", "c[M] = a[M] + b[M]", 1, 13, KILN_DTYPE, "operands of dtypes f32 and f16"},
    {"a=i32:4", "c[M] = exp(a[M])", 1, 8, KILN_DTYPE, "a float function of dtype i32"},
    {"a=i32:4&b=i32:4", "c[M] = a[M] / b[M]", 1, 13, KILN_SHAPE, "integer division by what may be zero"},
    {"a=i32:4&b=i32:4", "c[M] = a[M] / select(a[M] == 0, 1, b[M])", 1, 13, KILN_SHAPE, "integer division by what may be zero"},
    {"a=i32:4&b=i32:4", "c[M] = a[M] % select(b[M] == 0, a[M], b[M])", 1, 13, KILN_SHAPE, "integer division by what may be zero"},
    {"a=i32:4&b=i32:4", "c[M] = a[M] / select(b[M] == 1, 1, b[M])", 1, 13, KILN_SHAPE, "integer division by what may be zero"},
    {"a=f32:4", "c[M] = a[M] $ 1", 1, 13, KILN_SYNTAX, "unexpected character '$'"},
    {"a=f32:4", "c[M] = a[M] where M in 0", 1, 24, KILN_SHAPE, "extent 0 of axis M; the least is 1"},
    {"a=f32:4", "c[M] = a[M] where M in -3", 1, 24, KILN_SHAPE, "extent -3 of axis M; the least is 1"},
    {"a=f32:4", "c[M] = a[M] where M in 9223372036854775807", 1, 24, KILN_LIMIT,
        "extent 9223372036854775807 of axis M; at most 2147483647"},
    {"a=f32:4", "c[M] = a[M] where M in 9223372036854775808", 1, 24, KILN_LIMIT, "integer 9223372036854775808 is larger than 2^63-1"},
    {"a=f32:0x4", "c[M] = 1", 1, 7, KILN_SHAPE, "in the declared inputs: dimension 0 is 0; the least is 1"},
    {"a=f32:4x-4", "c[M] = 1", 1, 8, KILN_SYNTAX, NULL},
    {"a=f32:2147483647x2147483647", "c[M] = 1", 1, 1, KILN_LIMIT, "in the declared inputs: a has more than 2^40 elements"},
    {"a=f33:4", "c[M] = 1", 1, 3, KILN_DTYPE, "in the declared inputs: no dtype 'f33'"},
    {"a=f32:4", "acc[I] +=. a[I]", 1, 1, KILN_SHAPE, "scatter into acc, which has no shape yet"},
    {"a=f32:4", "c[M+1] = a[M]", 1, 4, KILN_SYNTAX, "indices on the left side are plain axes"},
    {"a=f32:4", "", 1, 1, KILN_SYNTAX, "no statement"},
};

static void error_positions(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        kiln_arena *a = open_arena();
        kn_program *p = NULL;
        kiln_diag d;
        kiln_status s = kn_parse(a, bytes(errors[i].text), bytes(errors[i].inputs), &p, &d);
        if (s != errors[i].status || (errors[i].message && strcmp(d.message, errors[i].message)) || d.line != errors[i].line ||
            d.col != errors[i].col)
            fail_msg("%s\n%s at %d:%d: %s", errors[i].text, kiln_status_slug(s), d.line, d.col, d.message);
        assert_null(p);
        kiln_arena_close(a);
    }
}

static kiln_status status_of(const char *text, size_t n)
{
    kiln_arena *a = open_arena();
    kn_program *p;
    kiln_diag d;
    kiln_status s = kn_parse(a, (kiln_bytes){text, n}, bytes("a=f32:4"), &p, &d);
    kiln_arena_close(a);
    return s;
}

static void limits(void **state)
{
    (void)state;
    size_t cap = KILN_MAX_TEXT_BYTES + 1;
    char *t = malloc(cap);
    memset(t, '(', cap);
    memcpy(t, "c[M] = ", 7);
    assert_int_equal(status_of(t, cap - 1), KILN_LIMIT);
    assert_int_equal(status_of(t, cap), KILN_LIMIT);
    for (size_t i = 7; i + 1 < cap; i += 2) memcpy(t + i, "+1", 2);
    t[cap - 2] = '1';
    assert_int_equal(status_of(t, cap - 1), KILN_LIMIT);
    for (size_t i = 7; i < cap; i++) t[i] = '-';
    assert_int_equal(status_of(t, cap - 1), KILN_LIMIT);
    for (size_t i = 0; i < cap; i++) t[i] = ';';
    assert_int_equal(status_of(t, cap - 1), KILN_SYNTAX);
    char *q = t + sprintf(t, "c[M] = ");
    for (int i = 0; i < 40; i++) q += sprintf(q, "gelu(");
    q += sprintf(q, "a[M]");
    for (int i = 0; i < 40; i++) q += sprintf(q, ")");
    assert_int_equal(status_of(t, strlen(t)), KILN_LIMIT);
    q = t;
    for (int i = 0; i < 40; i++) q += sprintf(q, "c%d[M] = a[M];", i);
    assert_int_equal(status_of(t, strlen(t)), KILN_LIMIT);
    free(t);
}

static void every_prefix_is_refused_or_parses(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof corpus / sizeof *corpus; i++)
        for (size_t n = 0; n < strlen(corpus[i].text); n++) {
            kiln_arena *a = open_arena();
            kn_program *p;
            kiln_diag d;
            if (kn_parse(a, (kiln_bytes){corpus[i].text, n}, bytes(corpus[i].inputs), &p, &d) != KILN_OK) assert_true(d.message[0] &&
                d.line > 0);
            kiln_arena_close(a);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(conformance), cmocka_unit_test(error_positions), cmocka_unit_test(limits),
                                       cmocka_unit_test(every_prefix_is_refused_or_parses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
