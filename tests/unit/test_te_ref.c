/* The reference interpreter against sums written out here; tolerance and work of known programs. */
#include "tests/arena.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "te/ref.h"

static kiln_arena *open_arena(void) { return kiln_arena_open(&(kiln_host){NULL, mem, NULL}); }
static kiln_bytes bytes(const char *s) { return (kiln_bytes){s, strlen(s)}; }

static kn_program *parse(kiln_arena *a, const char *inputs, const char *text)
{
    kn_program *p = NULL;
    kiln_diag d;
    if (kn_parse(a, bytes(text), bytes(inputs), &p, &d) != KILN_OK) fail_msg("%s\n%d:%d: %s", text, d.line, d.col, d.message);
    return p;
}

/* Element i of input k. */
static double in(int k, int64_t i) { return (double)((i * 7 + k * 3) % 11) - 5; }
static double read_in(void *user, int k, int64_t i)
{
    (void)user;
    return in(k, i);
}

static kiln_ref *open_ref(kiln_arena *a, const char *inputs, const char *text)
{
    kiln_ref *r = NULL;
    kiln_diag d;
    if (kiln_ref_open(a, parse(a, inputs, text), read_in, NULL, &r, &d) != KILN_OK) fail_msg("%s", d.message);
    return r;
}

static double at(kiln_ref *r, int64_t i)
{
    double v, s;
    assert_int_equal(kiln_ref_at(r, 0, i, &v, &s), KILN_OK);
    assert_true(s >= fabs(v));
    return v;
}

static void matmul(void **state)
{
    (void)state;
    kiln_arena *a = open_arena();
    kiln_ref *r = open_ref(a, "a=f32:5x9000&b=f32:9000x4", "c[M,N] +=! a[M,K]*b[K,N]");
    for (int m = 0; m < 5; m++)
        for (int n = 0; n < 4; n++) {
            double v = 0, s = 0, got, scale;
            for (int k = 0; k < 9000; k++) {
                v += in(0, m * 9000 + k) * in(1, k * 4 + n);
                s += fabs(in(0, m * 9000 + k) * in(1, k * 4 + n));
            }
            assert_int_equal(kiln_ref_at(r, 0, m * 4 + n, &got, &scale), KILN_OK);
            assert_true(got == v && scale == s);
        }
    double v, s;
    assert_int_equal(kiln_ref_at(r, 0, 20, &v, &s), KILN_SHAPE);
    assert_int_equal(kiln_ref_at(r, 1, 0, &v, &s), KILN_SHAPE);
    kiln_arena_close(a);
}

/* A factor that f32 cannot hold is infinite in a kernel: times 0 it is no number there, and the scale tells who compares. */
static void overflow_on_the_way(void **state)
{
    (void)state;
    static const char *const texts[] = {"y[I] = exp(x[I]*0.0 + 192.0)*(x[I]*0.0)", "y[I] +=! exp(x[I]*0.0 + 192.0)*(x[I]*0.0) where J in 3",
                                        "e[I] = exp(x[I]*0.0 + 192.0); z[I] = x[I]*0.0; y[I] +=! e[I]*z[I] where J in 3",
                                        "y[I] = exp(x[I]*0.0 + 192.0)/exp(x[I]*0.0 + 192.0)",
                                        /* beyond doubles, too: no infinity was among the inputs, so the scale is none */
                                        "z[I] = exp(x[I]*0.0 + 700.0)*(x[I]*0.0); y[I] = z[I]*exp(x[I]*0.0 + 700.0) + z[I]"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        kiln_arena *a = open_arena();
        double v, s;
        assert_int_equal(kiln_ref_at(open_ref(a, "x=f32:4", texts[i]), 0, 1, &v, &s), KILN_OK);
        assert_true(v == (i == 3) && s > 3.5e38 && isfinite(s));
        kiln_arena_close(a);
    }
}

/* A product that f32 cannot hold exactly, being tiny, is off by what underflow loses, and what multiplies it multiplies that; by 0 it is exact. */
static void underflow_on_the_way(void **state)
{
    (void)state;
    static const char *const texts[] = {"z[I] = (x[I]*1e-30)*(x[I]*1e-15); y[I] = z[I]*1e30", "z[I] +=! (x[I]*1e-30)*(x[J]*1e-15); y[I] = z[I]*1e30",
                                        "z[I] = (x[I]*1e-30)*0.0; y[I] = z[I]*1e30"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        kiln_arena *a = open_arena();
        double v, s;
        assert_int_equal(kiln_ref_at(open_ref(a, "x=f32:4", texts[i]), 0, 1, &v, &s), KILN_OK);
        assert_true(fabs(v) < 1e-9 && (i < 2 ? s > 0.1 && s < 10 : s == 0));
        kiln_arena_close(a);
    }
}

/* In f32 erf(-5.7) is -1 and an infinity times that, plus 1, no number; what is plainly not zero keeps its scale. */
static void rounding_decides_about_infinities(void **state)
{
    (void)state;
    static const char *const texts[] = {"y[I] = (erf(x[I]*0.0-5.7)+1.0)*exp(x[I]*0.0+1000.0)", "y[I] = exp(x[I]*0.0+1000.0)*(erf(x[I]*0.0-5.7)+1.0)",
                                        "y[I] = exp(x[I]*0.0+1000.0)*(erf(x[I]*0.0-1.0)+1.0)"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        kiln_arena *a = open_arena();
        double v, s;
        assert_int_equal(kiln_ref_at(open_ref(a, "x=f32:4", texts[i]), 0, 1, &v, &s), KILN_OK);
        assert_true(isinf(v) && (i < 2 ? isnan(s) : isinf(s)));
        kiln_arena_close(a);
    }
    static const char through[] = "y[I] = max(tanh(exp(x[I]*0.0+1000.0)*(erf(x[I]*0.0-5.7)+1.0)), 0.5)";
    static const char *const plain[] = {"y[I] = tanh(exp(x[I]*0.0+1000.0))", "y[I] = 1.0/exp(x[I]*0.0+1000.0)",
                                        "y[I] = exp(0.0-exp(x[I]*0.0+1000.0))"};
    double v, s;
    kiln_arena *a = open_arena();
    assert_int_equal(kiln_ref_at(open_ref(a, "x=f32:4", through), 0, 1, &v, &s), KILN_OK);
    assert_true(isnan(s)); /* and what is made of it is nothing to judge by either */
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        assert_int_equal(kiln_ref_at(open_ref(a, "x=f32:4", plain[i]), 0, 1, &v, &s), KILN_OK);
        assert_true(isfinite(v) && isfinite(s) && s >= fabs(v));
    }
    kiln_arena_close(a);
}

/* Narrow integers keep their low bits; what NaN becomes is open; a step that rounding decides may be off by one. */
static void casts_and_steps(void **state)
{
    (void)state;
    kiln_arena *a = open_arena();
    double v, s;
    assert_true(in(0, 0) == -5 && in(0, 8) == -4 && in(0, 5) == -3);
    assert_true(at(open_ref(a, "x=f32:9", "y[I] = cast(cast(x[I]*100.0,i8),f32)"), 0) == 12);
    assert_true(at(open_ref(a, "x=f32:9", "y[I] = cast(cast(x[I]*100.0,u8),f32)"), 8) == 112);
    assert_true(at(open_ref(a, "x=i32:9", "y[I] = cast(cast(x[I]*77,i8),i32)"), 8) == -52);
    assert_true(at(open_ref(a, "x=i8:9", "y[I] = x[I]*x[I]*x[I]"), 0) == -125 && at(open_ref(a, "x=i8:9", "y[I] = x[I]*x[I]*x[I]*x[I]"), 0) == 113);
    assert_true(at(open_ref(a, "x=u8:9", "y[I] = x[I]-x[I]*2"), 4) == 255 && at(open_ref(a, "x=i8:9", "y[] *=! x[I]*0-3"), 0) == 29);
    assert_true(at(open_ref(a, "x=i8:9", "y[I] = max(x[I]*30, x[I])"), 0) == 106 && at(open_ref(a, "x=u8:9", "y[I] = (x[I]-100)//2"), 4) == 78);
    assert_int_equal(kiln_ref_at(open_ref(a, "x=i32:99", "y[] *=! x[I]*0-3"), 0, 0, &v, &s), KILN_OK);
    assert_true(v == 0 && isinf(s)); /* doubles do not hold the low bits of 3^99 */
    assert_int_equal(kiln_ref_at(open_ref(a, "x=f32:9", "y[I] = cast(cast(x[I]*0.0/(x[I]*0.0),u8),f32)"), 0, 0, &v, &s), KILN_OK);
    assert_true(v == 0 && isinf(s));
    assert_int_equal(kiln_ref_at(open_ref(a, "x=f32:9", "y[I] = round(x[I]/2.0)"), 0, 5, &v, &s), KILN_OK);
    assert_true(v == -2 && s >= 0x1p24);
    assert_int_equal(kiln_ref_at(open_ref(a, "x=f32:9", "y[I] = round(x[I]/2.0)"), 0, 8, &v, &s), KILN_OK);
    assert_true(v == -2 && s < 3);
    assert_int_equal(kiln_ref_at(open_ref(a, "x=f32:9", "y[I] = floor(x[I])"), 0, 8, &v, &s), KILN_OK);
    assert_true(v == -4 && s < 5);
    assert_true(at(open_ref(a, "x=f32:9", "y[I] = bits(x[I])"), 0) == (double)(int32_t)0xc0a00000 && in(0, 4) == 1);
    assert_true(at(open_ref(a, "x=f32:9", "y[I] = shr(bits(x[I]),23)"), 4) == 127);
    kiln_arena_close(a);
}

static void convolution(void **state)
{
    (void)state;
    kiln_arena *a = open_arena();
    kiln_ref *r = open_ref(a, "x=f32:2x3x6x5&w=f32:4x3x3x3",
                           "y[N,F,P,Q] +=! pad(x,0.0)[N,C,P*2+R-1,Q+S-1]*w[F,C,R,S] where P in 3, Q in 5");
    for (int o = 0; o < 2 * 4 * 3 * 5; o++) {
        int n = o / 60, f = o / 15 % 4, p = o / 5 % 3, q = o % 5;
        double v = 0;
        for (int c = 0; c < 3; c++)
            for (int k = 0; k < 3; k++)
                for (int l = 0; l < 3; l++) {
                    int h = p * 2 + k - 1, w = q + l - 1;
                    if (h >= 0 && h < 6 && w >= 0 && w < 5) v += in(0, ((n * 3 + c) * 6 + h) * 5 + w) * in(1,
                        ((f * 3 + c) * 3 + k) * 3 + l);
                }
        assert_true(at(r, o) == v);
    }
    kiln_arena_close(a);
}

static void softmax(void **state)
{
    (void)state;
    kiln_arena *a = open_arena();
    kiln_ref *r = open_ref(a, "x=f32:3x7", "m[A] >=! x[A,B]; e[A,B]=exp(x[A,B]-m[A]); z[A] +=! e[A,B]; y[A,B]=e[A,B]/z[A]");
    for (int i = 0; i < 3; i++) {
        double m = -INFINITY, z = 0;
        for (int k = 0; k < 7; k++) m = fmax(m, in(0, i * 7 + k));
        for (int k = 0; k < 7; k++) z += exp(in(0, i * 7 + k) - m);
        for (int k = 0; k < 7; k++) assert_true(fabs(at(r, i * 7 + k) - exp(in(0, i * 7 + k) - m) / z) < 1e-15);
    }
    kiln_arena_close(a);
}

static void indices(void **state)
{
    (void)state;
    kiln_arena *a = open_arena();
    kiln_ref *r = open_ref(a, "t=f32:4x3&idx=i32:9", "y[I,C] = t[idx[I],C]"); /* clamped: -5 reads row 0 */
    for (int i = 0; i < 9; i++)
        for (int c = 0; c < 3; c++) {
            double x = in(1, i) < 0 ? 0 : in(1, i) > 3 ? 3 : in(1, i);
            assert_true(at(r, i * 3 + c) == in(0, (int64_t)x * 3 + c));
        }
    r = open_ref(a, "a=f32:2x4&b=f32:2x4", "y[N,F] = select(F<4, a[N,F], b[N,F-4]) where F in 8");
    for (int i = 0; i < 16; i++) assert_true(at(r, i) == (i % 8 < 4 ? in(0, i / 8 * 4 + i % 8) : in(1, i / 8 * 4 + i % 8 - 4)));
    r = open_ref(a, "x=i32:8", "y[N] = x[N] // 3 + x[N] % 4 - (0 - N) // 2");
    for (int i = 0; i < 8; i++) {
        double x = in(0, i);
        assert_true(at(r, i) == floor(x / 3) + x - floor(x / 4) * 4 - floor(-i / 2.0));
    }
    r = open_ref(a, "x=f32:8", "y[N] = cast(x[N] * 0.5, i32)");
    for (int i = 0; i < 8; i++) assert_true(at(r, i) == trunc(in(0, i) * 0.5));
    kiln_arena_close(a);
}

static void scatter(void **state)
{
    (void)state;
    kiln_arena *a = open_arena();
    kiln_ref *r = open_ref(a, "acc=f32:4x2&idx=i32:9&upd=f32:9x2", "acc[idx[I],C] +=. upd[I,C]");
    double want[8];
    for (int i = 0; i < 8; i++) want[i] = in(0, i);
    for (int i = 0; i < 9; i++)
        for (int c = 0; c < 2; c++)
            if (in(1, i) >= 0 && in(1, i) < 4) want[(int)in(1, i) * 2 + c] += in(2, i * 2 + c);
    for (int i = 0; i < 8; i++) assert_true(at(r, i) == want[i]);
    kiln_arena_close(a);
}

static void large_temporaries(void **state)
{
    (void)state;
    kiln_arena *a = open_arena();
    kiln_ref *r = open_ref(a, "x=f32:100000x100000", "t[A,B] = x[A,B] * 2.0; y[A,B] = t[A,B] + t[B,A]");
    for (int64_t i = 0; i < 3000; i++)
        assert_true(at(r, i * 100001 + 7) == 2 * (in(0, i * 100001 + 7) + in(0,
            ((i * 100001 + 7) % 100000) * 100000 + (i * 100001 + 7) / 100000)));
    kiln_arena_close(a);
}

/* Bytes asked for so far. */
static void *counting(void *user, void *p, size_t old_size, size_t size)
{
    *(size_t *)user += size;
    return mem(NULL, p, old_size, size);
}

/* What is remembered goes with what was asked for, from a few elements to all. */
static void remembers_what_is_asked(void **state)
{
    (void)state;
    size_t taken = 0;
    kiln_arena *a = kiln_arena_open(&(kiln_host){&taken, counting, NULL});
    kiln_ref *r = open_ref(a, "x=f32:1000x1000", "t[A,B] = x[A,B] * 2.0; y[A,B] = t[A,B] + t[B,A]");
    size_t before = taken;
    for (int64_t i = 0; i < 500; i++) assert_true(at(r, i * 1001 + 7) == 2 * (in(0, i * 1001 + 7) + in(0, (i + 7) * 1000 + i)));
    assert_true(taken - before < 1000000);
    r = open_ref(a, "x=f32:200x200", "t[A,B] = x[A,B] * 2.0; y[A,B] = t[A,B] + t[B,A]");
    for (int again = 0; again < 2; again++)
        for (int i = 0; i < 40000; i++) assert_true(at(r, i) == 2 * (in(0, i) + in(0, i % 200 * 200 + i / 200)));
    kiln_arena_close(a);
}

static void all_tensors(void **state)
{
    (void)state;
    kiln_arena *a = open_arena();
    kiln_diag d;
    double x[6] = {1, 2, 3, 4, 5, 6}, y[2], t[2];
    kn_program *p = parse(a, "x=f32:2x3", "t[N] *=! x[N,K]; y[N] = t[N] + 1.0");
    double *arrays[3] = {x, y, t};
    assert_int_equal(kn_ref_all(a, p, arrays, &d), KILN_OK);
    assert_true(t[0] == 6 && t[1] == 120 && y[0] == 7 && y[1] == 121);
    kiln_arena_close(a);
}

static int stop_now(void *user)
{
    (void)user;
    return 1;
}

static void stops(void **state)
{
    (void)state;
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, stop_now});
    kiln_ref *r = open_ref(a, "x=f32:1000000x1000", "y[] +=! x[A,B]");
    double v, s;
    assert_int_equal(kiln_ref_at(r, 0, 0, &v, &s), KILN_STOPPED);
    kiln_arena_close(a);
}

static void tolerance_and_work(void **state)
{
    (void)state;
    kiln_arena *a = open_arena();
    double rtol, atol, flops, moved;
    kn_program *p = parse(a, "a=f32:32x1024&b=f32:1024x16&unused=f32:99", "c[M,N] +=! a[M,K]*b[K,N]");
    kiln_work(p, &flops, &moved);
    assert_true(flops == 2.0 * 32 * 16 * 1024);
    assert_true(moved == 4.0 * (32 * 1024 + 1024 * 16 + 32 * 16));
    kiln_tolerance(p, 0, &rtol, &atol);
    assert_true(rtol > 4 * 32 * 0x1p-24 && rtol < 2e-5 && atol < 1e-37);
    kiln_tolerance(parse(a, "a=f16:32x1024&b=f16:1024x16", "c[M,N] +=! a[M,K]*b[K,N]"), 0, &rtol, &atol);
    assert_true(rtol > 0x1p-11 && rtol < 2e-3);
    kiln_tolerance(parse(a, "a=i8:4x4&b=i8:4x4", "c[M,N] +=! cast(a[M,K],i32)*cast(b[K,N],i32)"), 0, &rtol, &atol);
    assert_true(rtol == 0 && atol == 0);
    kiln_arena_close(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(matmul), cmocka_unit_test(overflow_on_the_way),
                                       cmocka_unit_test(underflow_on_the_way), cmocka_unit_test(rounding_decides_about_infinities),
                                       cmocka_unit_test(convolution), cmocka_unit_test(casts_and_steps), cmocka_unit_test(softmax),
                                       cmocka_unit_test(indices), cmocka_unit_test(scatter), cmocka_unit_test(large_temporaries),
                                       cmocka_unit_test(remembers_what_is_asked),
                                       cmocka_unit_test(all_tensors), cmocka_unit_test(stops), cmocka_unit_test(tolerance_and_work)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
