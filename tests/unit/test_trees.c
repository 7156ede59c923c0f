/* The learned cost model: it finds a function of several features, the same one every time, and refuses options that make no sense. */
#include "cost/trees.h"
#include "tests/arena.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <math.h>
#include <cmocka.h>

enum { ROWS = 2000, F = 4 };
static double x[ROWS * F], y[ROWS];
static const kn_trees_options good = {.trees = 100, .depth = 5, .min_rows = 5, .rate = 0.1, .lambda = 1, .rows = 0.8, .features = 1};

/* A step, a product and a slope; the last feature is noise. */
static double truth(const double *r) { return (r[0] > 0.5 ? 2 : 0) + r[0] * r[1] * 3 - r[2]; }

static void fill(void)
{
    unsigned seed = 7;
    for (int i = 0; i < ROWS * F; i++) {
        seed = seed * 1103515245u + 12345u;
        x[i] = (double)(seed >> 8 & 0xffff) / 65536;
    }
    for (int i = 0; i < ROWS; i++) y[i] = truth(&x[i * F]);
}

static double error_of(const kn_trees *t, int from, int to)
{
    double sum = 0;
    for (int i = from; i < to; i++) sum += fabs(kn_trees_predict(t, &x[i * F]) - y[i]);
    return sum / (to - from);
}

static void learns_and_repeats(void **state)
{
    (void)state;
    kiln_arena *a = kiln_arena_open(&(kiln_host){.mem = mem});
    kiln_diag d = {0};
    kn_trees *one, *two;
    fill();
    assert_int_equal(kn_trees_fit(a, x, 1500, F, y, &good, &one, &d), KILN_OK);
    assert_int_equal(kn_trees_fit(a, x, 1500, F, y, &good, &two, &d), KILN_OK);
    assert_true(error_of(one, 0, 1500) < 0.1);
    assert_true(error_of(one, 1500, ROWS) < 0.15); /* a constant misses by about 1 */
    for (int i = 0; i < ROWS; i++) assert_true(kn_trees_predict(one, &x[i * F]) == kn_trees_predict(two, &x[i * F]));
    for (int i = 0; i < ROWS; i++) y[i] = 3;
    assert_int_equal(kn_trees_fit(a, x, ROWS, F, y, &good, &one, &d), KILN_OK);
    assert_true(fabs(kn_trees_predict(one, x) - 3) < 1e-9);
    kiln_arena_close(a);
}

static void refuses_options(void **state)
{
    (void)state;
    kiln_arena *a = kiln_arena_open(&(kiln_host){.mem = mem});
    kiln_diag d = {0};
    kn_trees *t;
    kn_trees_options deep = good, none = good;
    deep.depth = KN_TREES_DEPTH + 1;
    none.trees = 0;
    assert_int_equal(kn_trees_fit(a, x, ROWS, F, y, &deep, &t, &d), KILN_REQUEST);
    assert_int_equal(kn_trees_fit(a, x, ROWS, F, y, &none, &t, &d), KILN_REQUEST);
    assert_int_equal(kn_trees_fit(a, x, 0, F, y, &good, &t, &d), KILN_REQUEST);
    kiln_arena_close(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(learns_and_repeats), cmocka_unit_test(refuses_options)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
