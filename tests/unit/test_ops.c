/* Operators against values computed outside of Kiln (tests/data/make_ops_golden.py): every row of the table has cases, shapes and values agree. */
#include "tests/arena.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ops/ops.h"

struct inputs { kiln_request *r; double *by_name[8]; };

/* Canonical input -> the client's input "iK". */
static double read_input(void *user, int input, int64_t index)
{
    struct inputs *in = user;
    return in->by_name[atoi(in->r->input_names[input] + 1)][index];
}

static double *numbers(char *p, int64_t *n)
{
    *n = strtoll(p, &p, 10);
    double *x = calloc((size_t)*n + 1, sizeof *x);
    for (int64_t i = 0; i < *n; i++) x[i] = strtod(p, &p);
    return x;
}

static void check_output(struct inputs *in, const char *body, char *line, kiln_arena *a)
{
    kiln_arg out;
    char shape[128] = "";
    kiln_program_output(in->r->program, 0, &out);
    for (int i = 0; i < out.rank; i++) snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%lld", i ? "x" : "", (long long)out.shape[i]);
    char *values = strchr(line, ' ');
    *values++ = 0;
    if (strcmp(*shape ? shape : "scalar", line)) fail_msg("%s: shape %s, %s expected", body, shape, line);
    int64_t n;
    double *want = numbers(values, &n), got, scale;
    kiln_ref *ref;
    kiln_diag d = {0};
    assert_int_equal(kiln_ref_open(a, in->r->program, read_input, in, &ref, &d), KILN_OK);
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(kiln_ref_at(ref, 0, i, &got, &scale), KILN_OK);
        if (!(fabs(got - want[i]) <= 1e-9 * (1 + fabs(want[i]))))
            fail_msg("%s: element %lld is %.12g, %.12g expected", body, (long long)i, got, want[i]);
        if (!(scale >= fabs(got) * (1 - 1e-12))) fail_msg("%s: element %lld is %.12g, its scale %.12g", body, (long long)i, got, scale);
    }
    free(want);
}

static void golden(void **state)
{
    (void)state;
    FILE *f = fopen("tests/data/ops_golden.txt", "r");
    assert_non_null(f);
    char *line = NULL, body[2048] = "";
    size_t cap = 0;
    bool seen[512] = {false};
    int nin = 0, cases = 0;
    struct inputs in = {0};
    kiln_arena *a = NULL;
    while (getline(&line, &cap, f) > 0) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, "case ", 5)) {
            kiln_diag d = {0};
            snprintf(body, sizeof body, "%s", line + 5);
            a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
            if (kiln_request_json(a, (kiln_bytes){body, strlen(body)}, &in.r, &d) != KILN_OK) fail_msg("%s: %s %s", body, d.pointer, d.message);
            for (int i = 0; i < kn_ops_count() && i < (int)(sizeof seen / sizeof *seen); i++) {
                char name[80];
                snprintf(name, sizeof name, "\"name\":\"%s\"", kn_ops_at(i)->name);
                if (strstr(body, name)) seen[i] = true;
            }
            nin = 0;
        } else if (!strncmp(line, "input ", 6)) {
            int64_t n;
            in.by_name[nin++] = numbers(line + 6, &n);
        } else if (!strncmp(line, "output ", 7)) {
            check_output(&in, body, line + 7, a);
            for (int i = 0; i < nin; i++) free(in.by_name[i]);
            kiln_arena_close(a);
            cases++;
        }
    }
    free(line);
    fclose(f);
    assert_true(cases >= 40);
    assert_true(kn_ops_count() <= (int)(sizeof seen / sizeof *seen));
    for (int i = 0; i < kn_ops_count(); i++)
        if (!seen[i]) fail_msg("operator %s has no case in tests/data/make_ops_golden.py", kn_ops_at(i)->name);
}

static void refused(void **state)
{
    (void)state;
#define D(name, dtype, shape) "{\"name\":\"" name "\",\"dtype\":\"" dtype "\",\"shape\":" shape "}"
#define T(name, shape) D(name, "f32", shape)
#define RELIES(member) "{\"op\":\"MatMul\"," member ",\"inputs\":[" D("a", "f16", "[2,3]") "," D("b", "f16", "[3,4]") "]}"
#define OP(name, attrs, inputs) "{\"op\":{\"name\":\"" name "\",\"attrs\":{" attrs "}},\"inputs\":[" inputs "]}"
    static const struct { const char *body, *pointer; kiln_status status;
    } rows[] = {
        {"[]", "", KILN_REQUEST},
        {"{}", "", KILN_REQUEST},
        {"{\"op\":\"Matmul\",\"inputs\":[]}", "/op", KILN_UNKNOWN_OP},
        {"{\"op\":{\"name\":\"Nope\"},\"inputs\":[]}", "/op/name", KILN_UNKNOWN_OP},
        {"{\"op\":\"MatMul\",\"inputs\":[" T("a", "[2,3]") "]}", "/inputs", KILN_REQUEST},
        {"{\"op\":\"MatMul\",\"inputs\":[" T("a", "[2,3]") "," T("b", "[4,5]") "]}", "/inputs/1/shape", KILN_SHAPE},
        {"{\"op\":\"MatMul\",\"inputs\":[" T("a", "[2,0]") "," T("b", "[4,5]") "]}", "/inputs/0/shape/1", KILN_REQUEST},
        {"{\"op\":\"MatMul\",\"inputs\":[" T("a", "[2,-3]") "," T("b", "[4,5]") "]}", "/inputs/0/shape/1", KILN_REQUEST},
        {"{\"op\":\"MatMul\",\"inputs\":[" T("a", "[2,3.5]") "," T("b", "[4,5]") "]}", "/inputs/0/shape/1", KILN_REQUEST},
        {"{\"op\":\"MatMul\",\"inputs\":[" T("a", "[9223372036854775808,3]") "," T("b", "[4,5]") "]}", "/inputs/0/shape/0", KILN_JSON},
        {"{\"op\":\"Relu\",\"inputs\":[" T("a", "[2147483647,2147483647]") "]}", "/inputs/0/shape/1", KILN_LIMIT},
        {"{\"op\":\"Relu\",\"inputs\":[{\"name\":\"x\",\"dtype\":\"f33\",\"shape\":[1]}]}", "/inputs/0/dtype", KILN_DTYPE},
        {"{\"op\":\"Relu\",\"attrs\":{\"alpha\":1},\"inputs\":[" T("a", "[2]") "]}", "/op/attrs/alpha", KILN_REQUEST},
        {"{\"op\":\"Softmax\",\"attrs\":{\"axis\":2},\"inputs\":[" T("a", "[2,3]") "]}", "/op/attrs/axis", KILN_REQUEST},
        {"{\"op\":\"Softmax\",\"attrs\":{\"axis\":\"x\"},\"inputs\":[" T("a", "[2,3]") "]}", "/op/attrs/axis", KILN_REQUEST},
        {"{\"op\":\"Conv\",\"inputs\":[" T("x", "[1,3,8,8]") "," T("w", "[4,3,9,9]") "]}", "/inputs/0/shape", KILN_SHAPE},
        {"{\"op\":\"Conv\",\"attrs\":{\"group\":2},\"inputs\":[" T("x", "[1,3,8,8]") "," T("w", "[4,3,3,3]") "]}", "/op/attrs/group",
         KILN_REQUEST},
        {"{\"op\":\"Conv\",\"attrs\":{\"strides\":[0,1]},\"inputs\":[" T("x", "[1,3,8,8]") "," T("w", "[4,3,3,3]") "]}",
         "/op/attrs/strides", KILN_REQUEST},
        {OP("ConvTranspose", "", T("x", "[1,3,8,8]") "," T("w", "[4,3,3,3]")), "/inputs/1/shape", KILN_SHAPE},
        {OP("ConvTranspose", "\"group\":2", T("x", "[1,3,8,8]") "," T("w", "[3,3,3,3]")), "/op/attrs/group", KILN_REQUEST},
        {OP("ConvTranspose", "\"pads\":[9,9,9,9]", T("x", "[1,3,8,8]") "," T("w", "[3,3,3,3]")), "/op/attrs/pads", KILN_REQUEST},
        {OP("ConvTranspose", "\"output_padding\":[2,0],\"strides\":[2,2]",
            T("x", "[1,3,8,8]") "," T("w", "[3,3,3,3]")), "/op/attrs/output_padding", KILN_REQUEST},
        {OP("ConvTranspose", "\"output_shape\":[9,9],\"pads\":[0,0,0,0]",
            T("x", "[1,3,8,8]") "," T("w", "[3,3,3,3]")), "/op/attrs/pads", KILN_REQUEST},
        {OP("DepthToSpace", "", T("x", "[1,12,2,2]")), "/op/attrs/blocksize", KILN_REQUEST},
        {OP("DepthToSpace", "\"blocksize\":3", T("x", "[1,12,2,2]")), "/op/attrs/blocksize", KILN_REQUEST},
        {OP("DepthToSpace", "\"blocksize\":3037000500", T("x", "[1,12,2,2]")), "/op/attrs/blocksize", KILN_REQUEST},
        {OP("SpaceToDepth", "\"blocksize\":2", T("x", "[1,1,3,4]")), "/op/attrs/blocksize", KILN_REQUEST},
        {OP("CumSum", "", T("x", "[3,4]")), "/op/attrs/axis", KILN_REQUEST},
        {OP("CumSum", "\"axis\":2", T("x", "[3,4]")), "/op/attrs/axis", KILN_REQUEST},
        {OP("Resize", "\"sizes\":[3]", T("x", "[3,4]")), "/op/attrs/sizes", KILN_REQUEST},
        {OP("Resize", "\"sizes\":[3,0]", T("x", "[3,4]")), "/op/attrs/sizes", KILN_REQUEST},
        {OP("Resize", "\"sizes\":[3,3],\"mode\":\"lanczos\"", T("x", "[3,4]")), "/op/attrs/mode", KILN_REQUEST},
        {OP("BatchNormalization", "",
            T("x", "[2,3,4]") "," T("s", "[3]") "," T("b", "[3]") "," T("m", "[3]") "," T("v", "[4]")), "/inputs/4/shape", KILN_SHAPE},
        {OP("ReduceVariance", "\"correction\":12", T("x", "[3,4]")), "/op/attrs/correction", KILN_REQUEST},
        {OP("CapsuleConv", "", T("x", "[1,3,8,8,4,4]") "," T("w", "[2,3,3,3,5,4]")), "/inputs/1/shape", KILN_SHAPE},
        {OP("BatchConv", "", T("x", "[2,3,8,8]") "," T("w", "[3,4,3,3,3]")), "/inputs/1/shape", KILN_SHAPE},
        {OP("GroupedLinear", "\"group\":5", T("x", "[2,12]") "," T("w", "[8,3]")), "/op/attrs/group", KILN_REQUEST},
        {OP("Bilinear", "", T("x", "[2,3]") "," T("z", "[3,4]") "," T("w", "[5,3,4]")), "/inputs/1/shape", KILN_SHAPE},
        {OP("BlockCirculantMatMul", "", T("x", "[2,12]") "," T("w", "[2,2,4]")), "/inputs/1/shape", KILN_SHAPE},
        {OP("BlockCirculantProjection", "\"block\":5", T("x", "[4,12]")), "/op/attrs/block", KILN_REQUEST},
        {OP("Shift", "", T("x", "[1,4,5,5]") "," D("i", "i32", "[5]")), "/inputs/1/shape", KILN_SHAPE},
        {OP("Shift", "", T("x", "[1,4,5,5]") "," T("i", "[4]")), "/inputs/1/dtype", KILN_DTYPE},
        {OP("FusedConv", "\"activation\":\"Swish\"", T("x", "[1,3,8,8]") "," T("w", "[3,3,3,3]")), "/op/attrs/activation", KILN_REQUEST},
        {OP("TransposedBatchMatMul", "", T("q", "[1,2,3,4]") "," T("k", "[1,2,4,4]")), "/inputs/1/shape", KILN_SHAPE},
        {OP("MatMulInteger", "", D("a", "i32", "[2,3]") "," D("b", "i8", "[3,4]")), "/inputs/0/dtype", KILN_DTYPE},
        {OP("MatMulInteger", "", D("a", "u8", "[2,3]") "," D("b", "i8", "[3,4]") "," D("z", "i8", "[]")), "/inputs/2/dtype", KILN_DTYPE},
        {OP("ConvInteger", "",
            D("x", "u8", "[1,3,8,8]") "," D("w", "i8", "[4,3,3,3]") "," D("z", "u8", "[3]")), "/inputs/2/shape", KILN_SHAPE},
        {"{\"op\":\"Relu\",\"bogus\":1,\"inputs\":[" T("a", "[2]") "]}", "/bogus", KILN_REQUEST},
        {"{\"op\":\"Relu\",\"policy\":\"magic\",\"inputs\":[" T("a", "[2]") "]}", "/policy", KILN_REQUEST},
        {"{\"op\":\"Relu\",\"expr\":\"y[A]=a[A]\",\"inputs\":[" T("a", "[2]") "]}", "", KILN_REQUEST},
        {"{\"expr\":\"y[A] = a[A\",\"inputs\":{\"a\":\"f32[2]\"}}", "/expr", KILN_SYNTAX},
        {RELIES("\"numerics\":\"fast\""), "/numerics", KILN_UNSUPPORTED},
        {RELIES("\"numerics\":\"exact\""), "/numerics", KILN_REQUEST},
        {RELIES("\"numerics\":3"), "/numerics", KILN_REQUEST},
        {RELIES("\"numerics\":{\"mode\":\"strict\"}"), "/numerics/mode", KILN_UNSUPPORTED},
        {RELIES("\"numerics\":{\"rtol\":1e-3}"), "/numerics/rtol", KILN_UNSUPPORTED},
        {RELIES("\"numerics\":{\"deterministic\":1}"), "/numerics/deterministic", KILN_REQUEST},
        {RELIES("\"accumulate\":\"f64\""), "/accumulate", KILN_UNSUPPORTED},
        {RELIES("\"accumulate\":\"f16\""), "/accumulate", KILN_UNSUPPORTED},
        {RELIES("\"accumulate\":\"float\""), "/accumulate", KILN_DTYPE},
        {RELIES("\"accumulate\":[]"), "/accumulate", KILN_REQUEST},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kiln_request *r;
        kiln_diag d = {0};
        kiln_status s = kiln_request_json(a, (kiln_bytes){rows[i].body, strlen(rows[i].body)}, &r, &d);
        if (s != rows[i].status || strcmp(d.pointer, rows[i].pointer) || !*d.message)
            fail_msg("%s\n  status %s at \"%s\": %s", rows[i].body, kiln_status_slug(s), d.pointer, d.message);
        kiln_arena_close(a);
    }
}

/* The key does not depend on names, on the order of factors, or on how the program was written. */
static void one_key(void **state)
{
    (void)state;
    static const char *const same[] = {
        "{\"op\":\"MatMul\",\"inputs\":[" T("a", "[8,4]") "," T("b", "[4,6]") "]}",
        "{\"expr\":\"c[M,N] +=! a[M,K]*b[K,N]\",\"inputs\":{\"a\":\"f32[8,4]\",\"b\":\"f32[4,6]\"}}",
        "{\"expr\":\"out[I,J] +=! w[R,J]*x[I,R]\",\"inputs\":{\"w\":\"f32[4,6]\",\"x\":\"f32[8,4]\"},\"target\":\"nvidia-h200\"}",
        "{\"op\":{\"name\":\"Gemm\"},\"inputs\":[" T("p", "[8,4]") "," T("q", "[4,6]") "]}",
        "{\"op\":\"MatMul\",\"numerics\":{\"mode\":\"reassoc\",\"deterministic\":true},\"accumulate\":\"f32\",\"inputs\":[" T("p", "[8,4]") ","
        T("q", "[4,6]") "]}",
    };
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    kiln_bytes first = {NULL, 0};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        kiln_request *r;
        kiln_diag d = {0};
        kiln_bytes canon;
        if (kiln_request_json(a, (kiln_bytes){same[i], strlen(same[i])}, &r, &d) != KILN_OK) fail_msg("%s: %s", same[i], d.message);
        assert_int_equal(kn_canon_bytes(a, r->program, &canon), KILN_OK);
        if (!i) first = canon;
        assert_int_equal(canon.n, first.n);
        assert_memory_equal(canon.p, first.p, canon.n);
        assert_int_equal(r->ninputs, 2);
        const char *left[] = {"a", "a", "x", "p", "p"}; /* the client's names follow the canonical order */
        assert_string_equal(r->input_names[0], left[i]);
    }
    kiln_arena_close(a);
}

static bool loses_digits(const kn_expr *e)
{
    if (e->op == KN_OP_CONST_F && e->dtype == KN_F32 && (double)(float)e->u.f != e->u.f) return true;
    for (int i = 0; i < e->nargs; i++)
        if (loses_digits(e->args[i])) return true;
    return false;
}

/* No constant of an operator on f64 is an f32, which a choice among bare constants would be. */
static void constants_are_wide(void **state)
{
    static const char *const ops[] = {"Acos", "Asin", "Atan", "Gelu", "Selu", "HardSwish"};
    (void)state;
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        kiln_request *r;
        kiln_diag d = {0};
        const char *text = kn_format(a, "{\"op\":\"%s\",\"inputs\":[{\"dtype\":\"f64\",\"shape\":[8]}]}", ops[i]);
        if (kiln_request_json(a, (kiln_bytes){text, strlen(text)}, &r, &d) != KILN_OK) fail_msg("%s: %s", text, d.message);
        for (int k = 0; k < r->program->nstmts; k++)
            if (loses_digits(r->program->stmts[k]->body)) fail_msg("%s: a constant is rounded", ops[i]);
    }
    kiln_arena_close(a);
}

/* Blocks of a prefix sum divide its axis where they can: what is filled up is computed element by element. */
static void blocks_divide_axes(void **state)
{
    (void)state;
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    for (int n = 18; n <= 200; n += 2) {
        kiln_request *r;
        kiln_diag d = {0};
        kiln_bytes canon;
        const char *text = kn_format(a, "{\"op\":{\"name\":\"CumSum\",\"attrs\":{\"axis\":1}},"
                                    "\"inputs\":[{\"dtype\":\"f32\",\"shape\":[4,%d,64]}]}", n);
        if (kiln_request_json(a, (kiln_bytes){text, strlen(text)}, &r, &d) != KILN_OK) fail_msg("%s: %s", text, d.message);
        assert_int_equal(kiln_program_text(a, r->program, &canon), KILN_OK);
        bool divides = false;
        for (int k = 8; k <= 16; k++) divides |= n % k == 0 && n / k <= 16; /* one level */
        if (divides && strstr(canon.p, "pad(")) fail_msg("%d: %s", n, canon.p);
    }
    kiln_arena_close(a);
}

/* What no blocks divide has prefixes of whole blocks, unless one element is over: rows that a block lacks would go element by element. */
static void blocks_are_whole(void **state)
{
    static const struct { int n; const char *rows; } one[] = {{197, "in 197, R0 in 14"}, {23, "in 23, R0 in 11"}, {47, "in 48, R0 in 16"},
                                                              {59, "in 64, R0 in 16"},   {95, "in 96, R0 in 16"}, {96, "in 96, R0 in 16"}};
    (void)state;
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_request *r;
        kiln_diag d = {0};
        kiln_bytes canon;
        const char *text = kn_format(a, "{\"op\":{\"name\":\"CumSum\",\"attrs\":{\"axis\":1}},"
                                    "\"inputs\":[{\"dtype\":\"f32\",\"shape\":[4,%d,64]}]}", one[i].n);
        if (kiln_request_json(a, (kiln_bytes){text, strlen(text)}, &r, &d) != KILN_OK) fail_msg("%s: %s", text, d.message);
        assert_int_equal(kiln_program_text(a, r->program, &canon), KILN_OK);
        if (!strstr(canon.p, one[i].rows)) fail_msg("%d: %s", one[i].n, canon.p);
    }
    kiln_arena_close(a);
}

/* The first of a long axis are found in the first blocks: a small part of what comparing all elements with each other takes. */
static void first_blocks_are_few(void **state)
{
    (void)state;
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    static const struct { int n, k; } one[] = {{8192, 100}, {1000, 20}, {8400, 300}};
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_request *r;
        kiln_diag d = {0};
        double flops, bytes;
        const char *text = kn_format(a, "{\"op\":{\"name\":\"TopKIndices\",\"attrs\":{\"k\":%d}},"
                                    "\"inputs\":[{\"dtype\":\"f32\",\"shape\":[%d]}]}", one[i].k, one[i].n);
        if (kiln_request_json(a, (kiln_bytes){text, strlen(text)}, &r, &d) != KILN_OK) fail_msg("%s: %s", text, d.message);
        kiln_work(r->program, &flops, &bytes);
        if (flops > (double)one[i].n * one[i].n / 3) fail_msg("%d of %d: %g operations", one[i].k, one[i].n, flops);
    }
    kiln_arena_close(a);
}

/* Many of a long axis are selected before they are ranked: work grows with the axis and the square of what is asked for. */
static void the_first_are_selected(void **state)
{
    (void)state;
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    static const struct { const char *dtype; int n, k; } one[] = {{"f32", 10000, 1000}, {"bf16", 10000, 1000},
                                                                  {"i32", 100000, 3000}, {"u8", 1000000, 2000}};
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_request *r;
        kiln_diag d = {0};
        double flops, bytes, n = one[i].n, k = one[i].k;
        const char *text = kn_format(a, "{\"op\":{\"name\":\"TopKIndices\",\"attrs\":{\"k\":%d}},"
                                    "\"inputs\":[{\"dtype\":\"%s\",\"shape\":[%d]}]}", one[i].k, one[i].dtype, one[i].n);
        if (kiln_request_json(a, (kiln_bytes){text, strlen(text)}, &r, &d) != KILN_OK) fail_msg("%s: %s", text, d.message);
        kiln_work(r->program, &flops, &bytes);
        if (flops > 1000 * n + 3 * k * k) fail_msg("%d of %d: %g operations", one[i].k, one[i].n, flops);
    }
    kiln_arena_close(a);
}

static void table_describes_itself(void **state)
{
    (void)state;
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    kiln_bytes t;
    kiln_diag d;
    assert_int_equal(kiln_operators_json(a, &t), KILN_OK);
    assert_int_equal(kn_json_check(t, 1 << 16, &d), KILN_OK); /* an answer, which may be longer than a request */
    for (int i = 0; i < kn_ops_count(); i++) assert_non_null(strstr(t.p, kn_ops_at(i)->name));
    kiln_arena_close(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(golden), cmocka_unit_test(refused), cmocka_unit_test(one_key),
                                       cmocka_unit_test(constants_are_wide),
                                       cmocka_unit_test(blocks_divide_axes), cmocka_unit_test(blocks_are_whole),
                                       cmocka_unit_test(first_blocks_are_few),
                                       cmocka_unit_test(the_first_are_selected),
                                       cmocka_unit_test(table_describes_itself)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
