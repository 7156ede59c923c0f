/* Instructions of hwspecs: the compute text read into loops and operands, and what is wrong with it named by its member. */
#include "tests/arena.h"
#include "intrin/intrin.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static kiln_arena *open_arena(void) { return kiln_arena_open(&(kiln_host){ NULL, mem, NULL }); }

static const struct {
    const char *compute, *dtypes, *operands; /* operands: NAME DTYPE SHAPE (LONE LOOPS), '*' for an index that is a sum */
    int nspatial, nloops;
} right[] = {
    { "d[I,J] +=! cast(a[I,R],f32) * cast(b[R,J],f32) where I in 16, J in 8, R in 32", "d=f32 a=bf16 b=bf16",
      "d f32 16I 8J; a bf16 16I 32R; b bf16 32R 8J; ", 2, 3 },
    { "d[I] +=! cast(a[I,R],i32) * cast(b[I,R],i32) where I in 16, R in 4", "a=u8, b=i8, d=i32", "d i32 16I; a u8 16I 4R; b i8 16I 4R; ", 1, 2 },
    { "d[I] +=! a[] * b[I] where I in 8", "d=f32 a=f32 b=f32", "d f32 8I; a f32; b f32 8I; ", 1, 1 },
    { "d[K,P] +=! a[C,P*2+R] * b[K,C,R] where K in 2, P in 4, C in 3, R in 3", "d=f32 a=f32 b=f32",
      "d f32 2K 4P; a f32 3C 9*; b f32 2K 3C 3R; ", 2, 4 },
    { "d[I,J] +=! a[I] * b[J] where I in 4, J in 4", "d=f32 b=f32 a=f32", "d f32 4I 4J; a f32 4I; b f32 4J; ", 2, 2 },
    { "d[I] = max(a[I], 0.0) where I in 4", "d=f32 a=f32", "d f32 4I; a f32 4I; ", 1, 1 },
    { "d[] +=! a[R] * a[R] where R in 4", "d=f32 a=f32", "d f32; a f32 4R; ", 0, 1 },
};

static void put_operands(const kn_intrin *it, char *out, size_t cap)
{
    size_t n = 0;
    out[0] = 0;
    for (int i = 0; i < it->noperands; i++) {
        const kn_intrin_operand *o = &it->operand[i];
        n += (size_t)snprintf(out + n, cap - n, "%s %s", o->name, kn_dtype_text(o->dtype));
        for (int k = 0; k < o->rank; k++)
            n += (size_t)snprintf(out + n, cap - n, " %lld%s", (long long)o->shape[k], o->lone[k] < 0 ? "*" : it->s->axes[o->lone[k]].name);
        n += (size_t)snprintf(out + n, cap - n, "; ");
    }
}

static void reads_what_is_right(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        kiln_arena *a = open_arena();
        kn_hw_intrin spec = { .name = "x", .compute = right[i].compute, .dtypes = right[i].dtypes };
        const kn_intrin *it = NULL;
        kiln_diag d = { 0 };
        char got[400];
        if (kn_intrin_parse(a, &spec, "/intrinsics/0", &it, &d)) fail_msg("%s: %s", spec.compute, d.message);
        put_operands(it, got, sizeof got);
        assert_string_equal(got, right[i].operands);
        assert_int_equal(it->nspatial, right[i].nspatial);
        assert_int_equal(it->nloops, right[i].nloops);
        assert_int_equal(it->red, strstr(spec.compute, "+=") ? KN_RED_SUM : KN_RED_NONE);
        assert_int_equal(kn_intrin_operand_of(it, it->s->out), 0);
        kiln_arena_close(a);
    }
}

#define GEMM "d[I,J] +=! a[I,R] * b[R,J] where I in 4, J in 4, R in 4"
static const struct { const char *compute, *dtypes, *pointer, *says; } wrong[] = {
    { "d[I,J +=! a", "d=f32 a=f32", "compute", "1:" },
    { GEMM, "d=f32 a=f32", "compute", "b" },
    { GEMM, "d=f32 a=f32 b=f33", "dtypes", "NAME=DTYPE" },
    { GEMM, "d=f32 a=f32 b", "dtypes", "NAME=DTYPE" },
    { GEMM, "a=f32 b=f32", "dtypes", "destination has no dtype" },
    { GEMM, "d=f32 a=f32 b=f32 c=f32", "dtypes", "c is no operand" },
    { GEMM, "d=f16 a=f32 b=f32", "dtypes", "what is computed is f32" },
    { GEMM, "d=f32 a=f32 b=f16", "compute", "f16" },
    { "d[I] +=! a[I,R] where I in 4", "d=f32 a=f32", "compute", "R has no extent" },
    { "d[I] +=! a[R] * b[I,R] where I in 4", "d=f32 a=f32 b=f32", "compute", "R has no extent" },
    { "d[I] +=! a[I,R]", "d=f32 a=f32", "compute", "has no extent" },
    { "d[I] +=! a[I,R] where I in 4096, R in 4096", "d=f32 a=f32", "compute", "2^20" },
    { "d[I] = a[I,I//2] where I in 4", "d=f32 a=f32", "compute", "no sum of multiples" },
    { "d[I] = a[I] + a[I+1] where I in 4", "d=f32 a=f32", "compute", "two places" },
    { "d[I] = pad(a,0.0)[I-1] where I in 4", "d=f32 a=f32", "compute", "" },
    { "t[I] = a[I] + 1.0 where I in 4; d[I] = t[I]", "t=f32 a=f32", "compute", "" },
    { "d[I,J] +=! a[I,A,B,C,D,E,F,G] where I in 2, J in 2, A in 2, B in 2, C in 2, D in 2, E in 2, F in 2, G in 2", "d=f32 a=f32", "compute",
      "too many loops" },
};

static void refuses_what_is_wrong(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        kiln_arena *a = open_arena();
        kn_hw_intrin spec = { .name = "x", .compute = wrong[i].compute, .dtypes = wrong[i].dtypes };
        const kn_intrin *it = NULL;
        kiln_diag d = { 0 };
        char pointer[64];
        snprintf(pointer, sizeof pointer, "/intrinsics/3/%s", wrong[i].pointer);
        kiln_status s = kn_intrin_parse(a, &spec, "/intrinsics/3", &it, &d);
        if (s != KILN_HWSPEC || strcmp(d.pointer, pointer) || !strstr(d.message, wrong[i].says) || !d.hint[0] || it)
            fail_msg("%s (%s): status %d at %s: %s", spec.compute, spec.dtypes, s, d.pointer, d.message);
        kiln_arena_close(a);
    }
}

/* GEMM's operands elsewhere and in another order. */
static const struct { const char *memory, *says; } laid[] = { /* says NULL: it is right */
    { "b[R,J] = tile[R//2,J,R%2]", NULL },
    { "a[I,R]=register[ R , I ] ;d[I,J] = lane[J%2*4+I,J//2]; b[R,J] = shared[J*4+R]", NULL },
    { "a[I,R] = shared[I,(R+I)%4]", NULL }, /* no parts of indices */
    { "a[I,R] = tile[I,R", "the place has no ']'" },
    { "a[I,R] = tile[I,R+]", "operand a: 1:" },
    { "c[I,R] = tile[I,R]", "\"c\" is no operand" },
    { "a[I,R] = til[I,R]", "\"til\" is no scope; there are global" },
    { "a[I,R] = tile[I,R]; a[I,R] = tile[R,I]", "stands there twice" },
    { "b[J,R] = tile[J,R]", "index 0 is J on the left, and R in compute" },
    { "b[R] = tile[R]", "other indices than the 2" },
    { "b[R,J] = tile[R,K]", "operand b: 1:" },
    { "b[R,J] = tile[R//2,J]", "no place for R%2 of its index 0" },
    { "b[R,J] = tile[R//2,J,R]", "R stands there twice" },
    { "b[R,J] = tile[R,J//2]", "no place for J%2 of its index 1" },
    { "b[R,J] = tile[R*8+J]", "the factor of R is 8, 4 would be right" },
    { "b[R,J] = tile[R//3,J,R%3]", "24 places for 16 elements" },
    { "b[R,J] = tile[(R+J)%4,R//2,R%2]", NULL },
    { "b[R,J] = tile[(R+J)%4,R//2,J//2]", "stand at the same place" },
    { "b[R,J] = tile[(R+J)%4,R,J]", "places for 16 elements" },
    { "b[R,J] = tile[R-1,J]", "operand b: 1:" },
    { "b[R,J] +=! tile[R,J]", "operand b" },
    { "b[R,J] = tile[R,J] * 2.0", "the right side is one place" },
    { "nonsense", "is no operand" },
};

static void places_are_checked(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof laid / sizeof *laid; i++) {
        kiln_arena *a = open_arena();
        kn_hw_intrin spec = { .name = "x", .compute = GEMM, .dtypes = "d=f32 a=f32 b=f32", .memory = laid[i].memory };
        const kn_intrin *it = NULL;
        kiln_diag d = { 0 };
        kiln_status s = kn_intrin_parse(a, &spec, "/intrinsics/3", &it, &d);
        if (!laid[i].says && s) fail_msg("%s: %s", laid[i].memory, d.message);
        if (laid[i].says && (s != KILN_HWSPEC || strcmp(d.pointer, "/intrinsics/3/memory") || !strstr(d.message, laid[i].says) || !d.hint[0]))
            fail_msg("%s: status %d at %s: %s", laid[i].memory, s, d.pointer, d.message);
        kiln_arena_close(a);
    }
    kiln_arena *a = open_arena();
    kn_hw_intrin spec = { .name = "x", .compute = GEMM, .dtypes = "d=f32 a=f32 b=f32", .memory = laid[1].memory };
    const kn_intrin *it = NULL;
    kiln_diag d = { 0 };
    assert_int_equal(kn_intrin_parse(a, &spec, "", &it, &d), KILN_OK);
    assert_int_equal(it->operand[0].scope, KN_SCOPE_LANE);
    assert_int_equal(it->operand[1].scope, KN_SCOPE_REGISTER);
    assert_int_equal(it->operand[2].scope, KN_SCOPE_SHARED);
    assert_int_equal(it->operand[0].ndigits, 3); /* J%2, I, J//2 */
    assert_int_equal(it->operand[0].digit[2].by, 2);
    assert_false(it->operand[1].plain);
    kiln_arena_close(a);
}

static void names_differ(void **state)
{
    (void)state;
    kiln_arena *a = open_arena();
    kn_hw hw = { .nintrins = 2, .intrins = { { .name = "x", .compute = GEMM, .dtypes = "d=f32 a=f32 b=f32" },
                                             { .name = "x", .compute = GEMM, .dtypes = "d=f32 a=f32 b=f32" } } };
    kiln_diag d = { 0 };
    assert_int_equal(kn_intrins_parse(a, &hw, &d), KILN_HWSPEC);
    assert_string_equal(d.pointer, "/intrinsics/1/name");
    hw.intrins[1].name = "y";
    assert_int_equal(kn_intrins_parse(a, &hw, &d), KILN_OK);
    assert_ptr_equal(kn_intrin_find(a, &hw, "y"), hw.intrins[1].parsed);
    assert_null(kn_intrin_find(a, &hw, "z"));
    kiln_arena_close(a);
}

/* Loops that a call may have fewer iterations of. */
static const struct { const char *fewer, *says; } listed[] = { /* says NULL: it is right */
    { "I, R by 2", NULL }, { "R by 4,J by 1", NULL }, { "", NULL }, { "K", "\"K\" is none of its loops" },
    { "I I", "no comma and no \"by\" behind I" },
    { "I, J, I by 2", "I is listed twice" }, { "R by 3", "the 4 iterations of R are no multiple of that" }, { "R by", "no comma" },
    { "R by x", "no comma and no" }, { "R by 0", "no multiple" }, { "R by 99999999999999999999", "no comma" }, { "(R)", "\"\" is none of its loops" },
};

static void fewer_iterations(void **state)
{
    (void)state;
    kiln_arena *a = open_arena();
    kiln_diag d = { 0 };
    for (size_t i = 0; i < sizeof listed / sizeof *listed; i++) {
        kn_hw_intrin spec = { .name = "x", .compute = GEMM, .dtypes = "d=f32 a=f32 b=f32", .fewer = listed[i].fewer };
        const kn_intrin *it = NULL;
        kiln_status s = kn_intrin_parse(a, &spec, "/intrinsics/3", &it, &d);
        if (!listed[i].says && s) fail_msg("%s: %s", listed[i].fewer, d.message);
        if (listed[i].says && (s != KILN_HWSPEC || strcmp(d.pointer, "/intrinsics/3/fewer") || !strstr(d.message, listed[i].says) || !d.hint[0]))
            fail_msg("%s: status %d at %s: %s", listed[i].fewer, s, d.pointer, d.message);
    }
    kn_hw hw = { .nintrins = 2, .intrins = { { .name = "x", .compute = GEMM, .dtypes = "d=f32 a=f32 b=f32", .fewer = "I, R by 2", .interval = 16,
                                               .memory = "b[R,J] = tile[R//2,J,R%2]" },
                                             { .name = "x_I1", .compute = GEMM, .dtypes = "d=f32 a=f32 b=f32" } } };
    assert_int_equal(kn_intrins_parse(a, &hw, &d), KILN_OK);
    const kn_intrin *it = kn_intrin_find(a, &hw, "x_I3_R2"), *entry = hw.intrins[0].parsed;
    char got[400];
    assert_non_null(it);
    put_operands(it, got, sizeof got);
    assert_string_equal(got, "d f32 3I 4J; a f32 3I 2R; b f32 2R 4J; ");
    assert_string_equal(it->name, "x_I3_R2");
    assert_int_equal(it->points, 24);
    assert_int_equal(it->operand[2].place_shape[0], 1);
    assert_true(it->spec->interval < 16 && it->spec->interval > 12); /* three rows of four; terms take what they take */
    assert_true(kn_intrin_find(a, &hw, "x_R2")->spec->interval == 16);
    assert_ptr_equal(kn_intrin_find(a, &hw, "x"), entry);
    assert_ptr_equal(kn_intrin_find(a, &hw, "x_I1"), hw.intrins[1].parsed); /* an entry's own name comes first */
    static const char *const none[] = {"x_", "x_I", "x_I0", "x_I4", "x_I5", "x_R3", "x_R2_I3", "x_I2_I3", "x_J2", "x_I2x", "x_I02", "y_I2",
                                       "x_I1_R2_", "x_I1_J2"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (kn_intrin_find(a, &hw, none[i])) fail_msg("%s is an instruction", none[i]);
    kiln_arena_close(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(reads_what_is_right), cmocka_unit_test(refuses_what_is_wrong),
                                        cmocka_unit_test(places_are_checked), cmocka_unit_test(fewer_iterations), cmocka_unit_test(names_differ) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
