/* Canonical programs: what must share a key does, what must not does not; simplification never changes a value. */
#include "tests/arena.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "te/te.h"

static kiln_arena *open_arena(void) { return kiln_arena_open(&(kiln_host){NULL, mem, NULL}); }
static kiln_bytes bytes(const char *s) { return (kiln_bytes){s, strlen(s)}; }

static kn_program *canon(kiln_arena *a, const char *inputs, const char *text, int *in, kiln_bytes *out)
{
    kn_program *p, *q = NULL;
    kiln_diag d;
    int outputs[KILN_MAX_TENSORS];
    if (kn_parse(a, bytes(text), bytes(inputs), &p, &d) != KILN_OK) fail_msg("%s\n%d:%d: %s", text, d.line, d.col, d.message);
    assert_int_equal(kn_canon(a, p, &q, in, outputs, &d), KILN_OK);
    assert_int_equal(kn_check(q, &d), KILN_OK);
    assert_int_equal(kn_canon_bytes(a, q, out), KILN_OK);
    return q;
}

static bool same(const char *i1, const char *t1, const char *i2, const char *t2)
{
    kiln_arena *a = open_arena();
    int in[KILN_MAX_TENSORS];
    kiln_bytes x, y;
    canon(a, i1, t1, in, &x);
    canon(a, i2, t2, in, &y);
    bool r = x.n == y.n && !memcmp(x.p, y.p, x.n);
    kiln_arena_close(a);
    return r;
}

#define AB "a=f32:64x64&b=f32:64x64"
static void one_key(void **s)
{
    (void)s;
    const char *mm = "c[M,N] +=! a[M,K]*b[K,N]";
    assert_true(same(AB, mm, AB, "zz[I,J] += b[Q,J]*a[I,Q]"));
    assert_true(same(AB, mm, "b=f32:64x64&a=f32:64x64", mm));
    assert_true(same(AB, mm, AB, "c[M,N] +=! b[M,K]*a[K,N]"));
    assert_true(same(AB, mm, AB, "c[M,N] +=! 1.0*a[M,K]*b[K,N]; dead[M,N] = c[M,N]; out c"));
    assert_true(same("x=f32:9&w=f32:3", "y[P] +=! x[P+R]*w[R]", "x=f32:9&w=f32:3", "y[A] +=! w[B]*x[B*1+A+2-2]"));
    assert_true(same("x=f32:100&w=f32:3", "y[P] +=! x[P+R*2+S*2]*w[S] where P in 5, R in 3", "x=f32:100&w=f32:3",
                     "y[P] +=! x[P+R*2+S*2]*w[R] where P in 5, S in 3"));
    assert_true(same("a=f32:8&b=f32:8", "s[N]=exp(a[N]); t[N]=tanh(b[N]); y[N]=s[N]-t[N]", "a=f32:8&b=f32:8",
                     "t[N]=tanh(b[N]); s[N]=exp(a[N]); y[N]=s[N]-t[N]"));
    assert_true(same("a=f32:8&b=f32:8&c=f32:8", "y[N]=(a[N]-b[N])*(b[N]-c[N])", "a=f32:8&b=f32:8&c=f32:8", "y[N]=(c[N]-a[N])*(b[N]-c[N])"));
    assert_true(same("x=f32:128", "y[A,B] = x[A*64+B] where A in 2, B in 64", "x=f32:128",
                     "y[A,B] = x[((A*64+B)//8)*8 + (A*64+B)%8] where A in 2, B in 64"));
    assert_true(same("x=f32:8", "y[N] = x[N]", "x=f32:8", "y[N] = pad(x, 5.0)[N] where N in 8"));
    assert_true(same("x=f32:8", "y[N] = x[N]", "x=f32:8", "y[N] = select(N < 8, x[N], 0.0)"));
}

static void other_key(void **s)
{
    (void)s;
    const char *mm = "c[M,N] +=! a[M,K]*b[K,N]";
    assert_false(same(AB, mm, AB, "c[M,N] +=! a[M,K]*b[N,K]"));
    assert_false(same(AB, mm, AB, "c[M,N] >=! a[M,K]*b[K,N]"));
    assert_false(same(AB, mm, AB, "c[M,N] +=! a[M,K]*b[K,N] : f16"));
    assert_false(same(AB, mm, "a=f32:64x32&b=f32:32x64", mm));
    assert_false(same(AB, mm, "a=f16:64x64&b=f16:64x64", mm));
    assert_false(same("x=f32:8", "y[N] = x[N] + 0.0", "x=f32:8", "y[N] = x[N]"));
    assert_false(same("a=f32:8&b=f32:8", "y[N]=a[N]-b[N]", "a=f32:8&b=f32:8", "y[N]=a[N]-a[N]"));
}

static void permutation(void **s)
{
    (void)s;
    kiln_arena *a = open_arena();
    int in[KILN_MAX_TENSORS];
    kiln_bytes b;
    kn_program *q = canon(a, "unused=f32:3&b=f32:5x2&a=f32:7x5", "c[M,N] +=! a[M,K]*b[K,N]", in, &b);
    assert_int_equal(in[2], 0);
    assert_string_equal(q->tensors[2].name, "in2");
    assert_int_equal(q->tensors[2].shape[0], 3);
    for (int i = 0; i < 2; i++) assert_int_equal(q->tensors[i].shape[0], in[i] == 2 ? 7 : 5);
    assert_string_equal(q->stmts[0]->axes[0].name, "S0");
    assert_string_equal(q->stmts[0]->axes[2].name, "R0");
    kiln_arena_close(a);
}

/* ---- simplification ---- */
#define AXES 4
static const int64_t extents[AXES] = {3, 8, 64, 1};

static uint64_t rnd(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

static void axis_range(void *user, const kn_expr *leaf, int64_t *lo, int64_t *hi)
{
    (void)user;
    *lo = 0;
    *hi = extents[leaf->u.axis] - 1;
}

static int64_t floordiv(int64_t x, int64_t y) { return (x % y + y) % y == x % y ? x / y : (x - ((x % y + y) % y)) / y; }

static int64_t eval(const kn_expr *e, const int64_t *axes)
{
    int64_t x = e->nargs > 0 ? eval(e->args[0], axes) : 0, y = e->nargs > 1 ? eval(e->args[1], axes) : 0;
    switch (e->op) {
    case KN_OP_CONST_I: return e->u.i;
    case KN_OP_AXIS: return axes[e->u.axis];
    case KN_OP_ADD: return x + y;
    case KN_OP_SUB: return x - y;
    case KN_OP_MUL: return x * y;
    case KN_OP_NEG: return -x;
    case KN_OP_FLOORDIV: return floordiv(x, y);
    case KN_OP_MOD: return x - floordiv(x, y) * y;
    case KN_OP_MIN: return x < y ? x : y;
    case KN_OP_MAX: return x > y ? x : y;
    case KN_OP_LT: return x < y;
    case KN_OP_LE: return x <= y;
    case KN_OP_EQ: return x == y;
    case KN_OP_NE: return x != y;
    case KN_OP_AND: return x && y;
    case KN_OP_OR: return x || y;
    case KN_OP_NOT: return !x;
    case KN_OP_SELECT: return x ? y : eval(e->args[2], axes);
    default: fail_msg("unexpected operator"); return 0;
    }
}

static kn_expr *random_bool(kiln_arena *a, uint64_t *seed, int depth);

static kn_expr *random_expr(kiln_arena *a, uint64_t *seed, int depth)
{
    static const enum kn_op ops[] = {KN_OP_ADD, KN_OP_SUB, KN_OP_MIN, KN_OP_MAX};
    static const int64_t divisors[] = {1, 2, 3, 4, 8, 16, 64};
    uint64_t r = rnd(seed) % 12;
    if (depth == 0 || r < 2) {
        return rnd(seed) % 3 ? kn_axis_ref(a, (int)(rnd(seed) % AXES)) : kn_const_i(a, KN_I64, (int64_t)(rnd(seed) % 20) - 6);
    }
    kn_expr *x = random_expr(a, seed, depth - 1), *c = kn_const_i(a, KN_I64, divisors[rnd(seed) % 7]);
    if (r < 5) return kn_bin(a, r == 2 ? KN_OP_MUL : r == 3 ? KN_OP_FLOORDIV : KN_OP_MOD, x, c);
    if (r == 5) return kn_un(a, KN_OP_NEG, x);
    if (r == 6) {
        kn_expr *of = rnd(seed) % 2 ? x : kn_bin(a, KN_OP_MOD, x, kn_const_i(a, KN_I64, c->u.i * (int64_t)(1 + rnd(seed) % 3)));
        return kn_bin(a, KN_OP_ADD, kn_bin(a, KN_OP_MUL, kn_bin(a, KN_OP_FLOORDIV, of, c), c), kn_bin(a, KN_OP_MOD, x, c));
    }
    kn_expr *y = random_expr(a, seed, depth - 1);
    if (r == 7) return kn_select(a, random_bool(a, seed, depth - 1), x, y);
    return kn_bin(a, ops[r % 4], x, y);
}

static kn_expr *random_bool(kiln_arena *a, uint64_t *seed, int depth)
{
    static const enum kn_op ops[] = {KN_OP_LT, KN_OP_LE, KN_OP_EQ, KN_OP_NE};
    uint64_t r = rnd(seed) % 8;
    if (r == 0 && depth > 0) return kn_un(a, KN_OP_NOT, random_bool(a, seed, depth - 1));
    if (r < 3 && depth > 0) return kn_bin(a, r == 1 ? KN_OP_AND : KN_OP_OR, random_bool(a, seed, depth - 1), random_bool(a, seed,
        depth - 1));
    return kn_bin(a, ops[rnd(seed) % 4], random_expr(a, seed, depth), random_expr(a, seed, depth));
}

static void simplify_keeps_values(void **s)
{
    (void)s;
    uint64_t seed = 88172645463325252u;
    for (int i = 0; i < 6000; i++) {
        kiln_arena *a = open_arena();
        kn_expr *e = i % 3 ? random_expr(a, &seed, 4) : random_bool(a, &seed, 3), *t = kn_simplify(a, e, axis_range, NULL);
        int64_t lo, hi;
        assert_non_null(t);
        assert_true(kn_expr_range(e, axis_range, NULL, &lo, &hi));
        for (int k = 0; k < 40; k++) {
            int64_t axes[AXES];
            for (int j = 0; j < AXES; j++) axes[j] = (int64_t)(rnd(&seed) % (uint64_t)extents[j]);
            int64_t v = eval(e, axes);
            if (v != eval(t, axes) || v < lo || v > hi) {
                kn_buf b;
                kn_buf_init(&b, a);
                kn_program *p = kn_program_new(a);
                kn_stmt st = {0};
                kn_print_expr(&b, p, &st, e);
                kn_put(&b, "  ->  ");
                kn_print_expr(&b, p, &st, t);
                fail_msg("%s at %lld %lld %lld: %lld, range %lld to %lld", kn_buf_take(&b).p, (long long)axes[0], (long long)axes[1],
                         (long long)axes[2], (long long)v, (long long)lo, (long long)hi);
            }
        }
        kiln_arena_close(a);
    }
}

static void rules(void **s)
{
    (void)s;
    static const struct { const char *index, *simple; } rows[] = {
        {"(N//8)*8 + N%8", "N"}, {"(N*8 + M)//8", "N"}, {"(N*8 + M)%8", "M"}, {"(N//4)//2", "N//8"}, {"(N%16)%8", "N%8"}, {"N - N", "0"},
        {"M%8", "M"}, {"M//8", "0"}, {"(N*16 + M*8 + 3)//8", "N*2 + M"}, {"((N*8 + M)//64)*64 + (N*8 + M)%64", "N*8 + M"},
        {"(N%32//8)*8 + N%8", "N%32"},
        {"min(M, 9)", "M"}, {"max(M - 9, 0)", "0"}, {"select(M < 8, N, M)", "N"}, {"select(N < M || 0 <= M, N, M)", "N"},
        {"((N//4)*4 + N%4)//8 + N*0", "N//8"}, {"((N%32)//8)*8 + N%8", "N%32"}, {"(N//32)*32 + ((N%32)//8)*8 + N%8", "N"},
        {"((N%32)//8)*8 + M%4", "M%4 + N%32//8*8"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kiln_arena *a = open_arena();
        kn_program *p;
        kiln_diag d;
        const char *text = kn_format(a, "y[N,M] = pad(x, 0.0)[%s] where N in 64, M in 8", rows[i].index);
        if (kn_parse(a, bytes(text), bytes("x=f32:100000"), &p, &d) != KILN_OK) fail_msg("%s: %s", text, d.message);
        kn_buf b;
        kn_buf_init(&b, a);
        int in[KILN_MAX_TENSORS], out[KILN_MAX_TENSORS];
        kn_program *q;
        assert_int_equal(kn_canon(a, p, &q, in, out, &d), KILN_OK);
        const kn_expr *e = q->stmts[0]->body->args[0];
        q->stmts[0]->axes[0].name = "N";
        q->stmts[0]->axes[1].name = "M";
        kn_print_expr(&b, q, q->stmts[0], e);
        assert_string_equal(kn_buf_take(&b).p, rows[i].simple);
        kiln_arena_close(a);
    }
}

/* Counts in floats that are the same everywhere are constants; not where they differ, are zero, whose sign would be lost, or are no whole numbers
 * that the type holds. */
static void whole_floats_are_constants(void **s)
{
    (void)s;
    static const struct { const char *count, *body; } rows[] = {
        {"min(cast(I,f32)+3.0,10.0)-max(cast(I,f32)-0.0,0.0)", "in0[S0]/3.0"},
        {"(min(cast(I,f32)*2.0+3.0,17.0)-cast(I,f32)*2.0)*(cast(I,f32)-cast(I,f32)+2.0)", "in0[S0]/6.0"},
        {"min(cast(I,f32)+3.0,9.0)-max(cast(I,f32)-0.0,0.0)", NULL},
        {"cast(I,f32)-cast(I,f32)", NULL},
        {"cast(I,f32)*0.5-cast(I,f32)*0.5+1.0", NULL},
        {"cast(I,f32)+16777215.0-cast(I,f32)", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kiln_arena *a = open_arena();
        int in[KILN_MAX_TENSORS];
        kiln_bytes bytes_of;
        kn_buf b;
        kn_buf_init(&b, a);
        kn_program *q = canon(a, "x=f32:8", kn_format(a, "y[I] = x[I]/(%s)", rows[i].count), in, &bytes_of);
        kn_print_expr(&b, q, q->stmts[0], q->stmts[0]->body);
        const char *text = kn_buf_take(&b).p;
        if (rows[i].body) assert_string_equal(text, rows[i].body);
        else if (!strstr(text, "cast(")) fail_msg("%s: %s", rows[i].count, text);
        kiln_arena_close(a);
    }
}

/* Operands stand in one order whatever the extents: a kernel's text reads alike at every size. */
static void extents_change_no_order(void **s)
{
    (void)s;
    static const struct { const char *inputs, *text, *body; } rows[] = {
        {"x=f32:%d", "y[I] = max(0.0, x[I])", "max(in0[S0], 0.0)"},
        {"x=f32:7x%d&b=f32:%d", "y[I,J] = max(0.0, b[J] + x[I,J]*2.0)", NULL},
        {"x=f32:%dx5&b=f32:%d", "t[I] +=! x[I,J]; y[I] = 1.0 + b[I]*t[I]", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kiln_arena *a = open_arena();
        const char *first = rows[i].body;
        for (int n = 2; n < 400; n += 7) {
            int in[KILN_MAX_TENSORS];
            kiln_bytes bytes_of;
            kn_buf b;
            kn_buf_init(&b, a);
            kn_program *q = canon(a, kn_format(a, rows[i].inputs, n, n), rows[i].text, in, &bytes_of);
            kn_print_expr(&b, q, q->stmts[q->nstmts - 1], q->stmts[q->nstmts - 1]->body);
            const char *text = kn_buf_take(&b).p;
            if (!first) first = text;
            assert_string_equal(text, first);
        }
        kiln_arena_close(a);
    }
}

/* A canonical program printed, read and made canonical again is itself: who sends its text gets its key. */
static void canonical_stays(void **s)
{
    (void)s;
    static const struct { const char *inputs, *text; } rows[] = {
        {"x=f32:1x14x17x27", "y[N,C,H,W] = x[N,H//3,W//3,C*9+H%3*3+W%3] where C in 3, H in 42, W in 51"},
        {"x=f32:4096", "y[A,B,C,D] = x[A//2*512 + B%4*64 + C//3*8 + D%2 + A%2 + 7] where A in 4, B in 8, C in 9, D in 6"},
        {"x=f32:4096", "y[A,B,C] = x[C%5 + B*10 + A*100 + B%3 - C//2 + 9] where A in 7, B in 8, C in 9"},
        {"x=f32:9x9&w=f32:3x3", "y[P,Q] +=! x[P+R, Q+S]*w[S, (R + Q%2 + P%2 + S%2)//2] where P in 7, Q in 7, R in 3, S in 3"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kiln_arena *a = open_arena();
        kiln_bytes x, y;
        kn_buf b;
        int in[KILN_MAX_TENSORS];
        kn_buf_init(&b, a);
        kn_print_program(&b, canon(a, rows[i].inputs, rows[i].text, in, &x));
        const char *once = kn_buf_take(&b).p;
        canon(a, "", once, in, &y);
        if (x.n != y.n || memcmp(x.p, y.p, x.n)) fail_msg("another program than\n%s", once);
        kiln_arena_close(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_key), cmocka_unit_test(other_key), cmocka_unit_test(permutation),
                                       cmocka_unit_test(simplify_keeps_values), cmocka_unit_test(rules),
                                       cmocka_unit_test(whole_floats_are_constants),
                                       cmocka_unit_test(extents_change_no_order), cmocka_unit_test(canonical_stays)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
