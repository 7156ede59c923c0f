/* The loops that measure a machine: every instruction of the table is text that compiles, and only those of the features asked for. */
#include "workers/harness.h"
#include "workers/measure.h"
#include "tests/unit/workers_fixture.h"
#include <sched.h>
#include <stdatomic.h>

static char source[1 << 17];

static bool compiles(size_t n)
{
    worker_blob so = {{0}, NULL, 0};
    worker_error e;
    const char *const *flags = NULL;
    bool ok = worker_compile_c(&tools, (kiln_bytes){source, n}, flags, 0, 20000, &so, &e);
    if (!ok) { print_error("%s\n", e.message); }
    free(so.p);
    return ok;
}

/* Instructions this host cannot run are compiled all the same: assemblers know them. */
static void every_row_compiles(void **state)
{
    const char *features[64] = {0};
    char name[32];
    int n = 0;
    (void)state;
    for (int i = 0; i < measure_nrows; i++) { features[n++] = measure_rows[i].feature; }
    size_t bytes = measure_text(features, n, source, sizeof source);
    assert_int_not_equal(bytes, 0);
    for (int i = 0; i < measure_nrows; i++) {
        snprintf(name, sizeof name, "kiln_peak_%d(", i);
        assert_non_null(strstr(source, name));
    }
    assert_non_null(strstr(source, "vfmadd231ps %%zmm0, %%zmm1, %%zmm15"));
    assert_non_null(strstr(source, "tdpbf16ps %%tmm6, %%tmm4, %%tmm3"));
    assert_null(strstr(source, "addq $")); /* some CPUs make several of those in a cycle */
    assert_true(compiles(bytes));
}

static void only_what_is_there(void **state)
{
    static const char *const features[] = {"avx", "fma"};
    (void)state;
    size_t bytes = measure_text(features, 2, source, sizeof source);
    assert_non_null(strstr(source, "%%ymm15"));
    assert_non_null(strstr(source, "vector_size(32)"));
    assert_null(strstr(source, "zmm"));
    assert_null(strstr(source, "tmm"));
    assert_true(compiles(bytes));
    bytes = measure_text(NULL, 0, source, sizeof source);
    assert_null(strstr(source, "kiln_peak_"));
    assert_non_null(strstr(source, "vector_size(16)"));
    assert_true(compiles(bytes));
}

static void too_long(void **state)
{
    (void)state;
    size_t bytes = measure_text(NULL, 0, source, sizeof source);
    assert_int_equal(measure_text(NULL, 0, source, bytes), 0); /* no room for the terminator */
    assert_int_equal(measure_text(NULL, 0, source, bytes + 1), bytes);
}

static void no_compiler(void **state)
{
    worker_tools none = tools;
    worker_machine m;
    worker_error e;
    (void)state;
    none.cc[0] = 0;
    assert_false(worker_measure(&none, NULL, 0, 1, &m, &e));
    assert_string_equal(e.slug, "toolchain-missing");
}

typedef struct meeting { atomic_int there; int cpu[2]; } meeting;

/* A task that waits for the other one, so that two threads take one each. */
static void meet(void *closure, int64_t i, int32_t worker)
{
    meeting *m = closure;
    (void)worker;
    m->cpu[i] = sched_getcpu();
    atomic_fetch_add(&m->there, 1);
    while (atomic_load(&m->there) < 2) sched_yield();
}

/* Rates of all units together want each on a processor of its own, although a thread inherits what its maker is pinned to. */
static void units_run_apart(void **state)
{
    cpu_set_t before;
    meeting m = {0};
    kiln_pool pool;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    if (CPU_COUNT(&before) < 2) skip();
    harness_pool *p = harness_pool_open(2, false, true, &pool);
    assert_non_null(p);
    pool.parallel_for(pool.ctx, 2, meet, &m);
    harness_pool_close(p);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_not_equal(m.cpu[0], m.cpu[1]);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "child") == 0) { return child_main(argc, argv); }
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_row_compiles), cmocka_unit_test(only_what_is_there),
                                       cmocka_unit_test(too_long), cmocka_unit_test(no_compiler), cmocka_unit_test(units_run_apart)};
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
