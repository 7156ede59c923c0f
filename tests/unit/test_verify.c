/* The CPU verifier: a right kernel passes, every planted defect is caught with a sensible reason; inputs are what they should be. */
#include "tests/arena.h"
#include "workers/child.h"
#include "workers/room_posix.h"
#include "workers/verify.h"
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

static worker_tools tools;

/* y[m] = sum_k a[m,k], 33 rows of 40, one task a row; a row is copied to the worker's scratch first. */
static const char kernel_text[] =
    "#pragma GCC visibility push(default)\n"
    "typedef __INT32_TYPE__ int32_t; typedef __INT64_TYPE__ int64_t;\n"
    "typedef struct kiln_pool { void *ctx; int32_t nthreads; void (*parallel_for)(void *, int64_t, void (*)(void *, int64_t, int32_t),\n"
    "    void *); } kiln_pool;\n"
    "const char kiln_entry[] = \"kiln_test\";\n"
    "int32_t kiln_abi_version(void) { return 1; }\n"
    "int64_t kiln_test_workspace(int32_t n) { return (int64_t)n * 192; }\n"
    "struct closure { const float *a; float *y; char *ws; };\n"
    "static void task(void *p, int64_t m, int32_t w) {\n"
    "    struct closure *c = p; float *row = (float *)(c->ws + 192 * w); float s = 0;\n"
    "    for (int k = 0; k < 40; k++) row[k] = c->a[m * 40 + k];\n"
    "    for (int k = 0; k < 40; k++) s += row[k];\n"
    "    c->y[m] = s;\n"
    "}\n"
    "int32_t kiln_test(const void *const *in, void *const *out, void *ws, const kiln_pool *pool) {\n"
    "    struct closure c = {in[0], out[0], ws};\n"
    "    if (!ws) return 1;\n"
    "    if (pool) pool->parallel_for(pool->ctx, 33, task, &c);\n"
    "    else for (int64_t m = 0; m < 33; m++) task(&c, m, 0);\n"
    "    return 0;\n"
    "}\n";

typedef struct mutant { const char *find, *put, *says; } mutant;
static const mutant mutants[] = {
    {"k < 40; k++) s", "k < 39; k++) s", "the reference says"},
    {"c->a[m * 40 + k]", "c->a[m * 40 + k + 1]", "past the end of input 0"},
    {"c->a[m * 40 + k]", "c->a[m * 40 + k - 1]", "before the start of input 0"},
    {"c->a[m * 40 + k]", "c->a[m * 40 + k % 39]", "the reference says"},
    {"m < 33; m++", "m < 32; m++", "(parallel"},
    {"c->y[m] = s;", "if (m < 32) c->y[m] = s;", "element 32 is never written"},
    {"c->y[m] = s;", "c->y[m] = s; c->y[m + 1] = s;", "past the end of output 0"},
    {"c->y[m] = s;", "c->y[m] = s; if (m == 0) c->y[-1] = s;", "before the start of output 0"},
    {"c->y[m] = s;", "c->y[m] = s * 1.0001f;", "the reference says"},
    {"c->y[m] = s;", "c->y[m] = s; ((float *)c->a)[m] = 0;", "read-only"},
    {"float s = 0;", "float s = row[47];", ""},
    {"float s = 0;", "float s = c->y[m];", ""},
    {"float s = 0;", "float s = 0; for (;;) __asm__ volatile (\"\");", "did not end"},
    {"float s = 0;", "float s = 0; extern void _exit(int); _exit(0);", "ended the process"},
    {"float s = 0;", "float s = 0; __builtin_trap();", "illegal instruction"},
    {"float s = 0;", "float s = 0; extern void abort(void); abort();", "abort"},
    {"return (int64_t)n * 192", "return (int64_t)n * 192 - 64", "the workspace"},
    {"return (int64_t)n * 192", "return -1", "the workspace"},
    {"192 * w);", "192 * w); static int calls; if (w) row[40]++;\n    if (w == 0 && m && calls++ > 33) c->y[0] += 1;", ""},
    {"pool->ctx, 33,", "pool->ctx, 32,", "serial and the parallel"},
    {"parallel_for(pool->ctx, 33, task, &c)", "parallel_for(pool->ctx, 33, task, &c), c.y[5] += 1", "serial and the parallel"},
    {"    return 0;\n", "    return 7;\n", "returned 7"},
    {"(void) { return 1; }", "(void) { return 2; }", "kiln_abi_version() is 2"},
    {"\"kiln_test\"", "\"kiln_other\"", "kiln_entry"},
    {"int64_t kiln_test_workspace", "static int64_t kiln_test_workspace", "exports no kiln_test_workspace"},
    {"float s = 0;", "float s = 0; extern int no_such_function(void); s += no_such_function();", "cannot be loaded"},
};

static bool (*stop)(void *user);
static bool early, alone; /* the check begins before the compiler does; and is not asked meanwhile */

/* False: no verdict, and e says why. */
static bool judged(const char *text, int budget_ms, worker_verdict *v, worker_error *e)
{
    static const char expr[] = "y[M] +=! a[M,K]", inputs[] = "a=f32:33x40";
    static const char *const flags[] = {"-O1"};
    kiln_host host = {.mem = mem};
    kiln_arena *a = kiln_arena_open(&host);
    kiln_request *r = NULL;
    kiln_diag d = {0};
    worker_blob so;
    assert_int_equal(kiln_request_text(a, (kiln_bytes){expr, strlen(expr)}, (kiln_bytes){inputs, strlen(inputs)}, NULL, &r,
                                       &d), KILN_OK);
    kiln_kernel k = {.language = "c", .entry = "kiln_test", .source = {text, strlen(text)}};
    worker_tools stoppable = tools, busy = tools;
    stoppable.stop = stop;
    worker_check *check = early ? worker_check_begin(&stoppable, r->program, &k, budget_ms) : NULL;
    if (check && !alone) {
        busy.meanwhile = worker_check_meanwhile;
        busy.meanwhile_user = check;
    }
    bool compiled = worker_compile_c(&busy, k.source, flags, 1, 20000, &so, e);
    if (!compiled) {
        print_error("%s\n", e->message);
    }
    assert_true(compiled);
    bool ran = check ? worker_check_end(check, &so, v, e) : worker_verify_cpu(&stoppable, r->program, &k, &so, budget_ms, v, e);
    if (ran && v->ok) {
        double us[3] = {0};
        assert_true(worker_time_cpu(&tools, r->program, &k, &so, 2, 3, &us[0], &us[1], &us[2], e));
        assert_true(us[1] <= us[0] && us[0] <= us[2] && us[0] > 0);
    }
    free(so.p);
    kiln_arena_close(a);
    return ran;
}

static bool verify(const char *text, int budget_ms, worker_verdict *v)
{
    worker_error e;
    bool ran = judged(text, budget_ms, v, &e);
    if (!ran) {
        print_error("%s\n", e.message);
    }
    assert_true(ran);
    return v->ok;
}

/* Begun early or late, a check says the same; and one whose binary never comes ends with its child. */
static void early_checks_say_the_same(void **state)
{
    static const char expr[] = "y[M] +=! a[M,K]", inputs[] = "a=f32:33x40", wrong[] = "void kiln_test(void) {}";
    worker_verdict late, soon;
    kiln_request *r = NULL;
    kiln_diag d = {0};
    (void)state;
    assert_true(verify(kernel_text, 50, &late));
    early = true;
    assert_true(verify(kernel_text, 50, &soon));
    assert_false(verify(wrong, 50, &soon));
    assert_non_null(strstr(soon.detail, "kiln_abi_version"));
    alone = true;
    assert_true(verify(kernel_text, 50, &soon) && late.checked == soon.checked && soon.all_written);
    alone = false;
    assert_true(verify(kernel_text, 50, &soon));
    early = false;
    assert_true(late.checked == soon.checked && late.total == soon.total && late.max_error == soon.max_error && soon.all_written);
    kiln_arena *a = kiln_arena_open(&(kiln_host){.mem = mem});
    assert_int_equal(kiln_request_text(a, (kiln_bytes){expr, strlen(expr)}, (kiln_bytes){inputs, strlen(inputs)}, NULL, &r, &d), KILN_OK);
    worker_check *c = worker_check_begin(&tools, r->program, &(kiln_kernel){.language = "c", .entry = "kiln_test"}, 50);
    assert_non_null(c);
    worker_check_meanwhile(c);
    assert_true(worker_check_end(c, NULL, NULL, NULL));
    kiln_arena_close(a);
}

static bool at_once(void *user) { return user == NULL; }

typedef struct asker {
    worker_room *room;
    int64_t bytes;
    pthread_t thread;
    atomic_bool got;
} asker;

static void *ask(void *arg)
{
    asker *a = arg;
    if (worker_room_take(a->room, a->bytes, 60000, NULL, NULL)) { atomic_store(&a->got, true); }
    return NULL;
}

static void wait_in_line(asker *a, int place)
{
    struct timespec t = {0, 1000000};
    assert_int_equal(pthread_create(&a->thread, NULL, ask, a), 0);
    for (bool there = false; !there; nanosleep(&t, NULL)) {
        pthread_mutex_lock(&a->room->lock);
        there = worker_room_waiting(a->room) == place;
        pthread_mutex_unlock(&a->room->lock);
    }
}

/* Checks take turns for memory: a small one does not pass a large one that waits, one alone gets in however large, who is stopped leaves the line. */
static void memory_goes_round(void **state)
{
    worker_room r = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER, .most = 100};
    asker large = {.room = &r, .bytes = 80}, small = {.room = &r, .bytes = 10};
    (void)state;
    assert_true(worker_room_take(&r, 60, 0, NULL, NULL));
    assert_false(worker_room_take(&r, 50, 0, NULL, NULL));
    assert_false(worker_room_take(&r, 50, 60000, at_once, NULL));
    wait_in_line(&large, 1);
    wait_in_line(&small, 2);
    assert_false(worker_room_take(&r, 1, 0, NULL, NULL));
    assert_false(atomic_load(&large.got) || atomic_load(&small.got));
    worker_room_give(&r, 60);
    pthread_join(large.thread, NULL);
    pthread_join(small.thread, NULL);
    assert_true(atomic_load(&large.got) && atomic_load(&small.got) && r.taken == 90);
    worker_room_give(&r, 90);
    assert_true(worker_room_take(&r, 1000, 0, NULL, NULL));
    assert_false(worker_room_take(&r, 1, 0, NULL, NULL));
}

/* With all memory taken no check begins early; the late one waits, and is stopped without a verdict or gets its turn. */
static void checks_wait_for_memory(void **state)
{
    worker_room *r = worker_room_here();
    worker_verdict v;
    worker_error e;
    (void)state;
    assert_true(r->most > 0 && worker_room_take(r, r->most, 0, NULL, NULL));
    early = true;
    stop = at_once;
    assert_false(judged(kernel_text, 50, &v, &e));
    assert_int_equal(e.status, KILN_STOPPED);
    assert_non_null(strstr(e.message, "memory"));
    early = false;
    stop = NULL;
    asker late = {.room = r, .bytes = r->most};
    wait_in_line(&late, 1);
    worker_room_give(r, r->most);
    pthread_join(late.thread, NULL);
    worker_room_give(r, r->most);
    assert_true(verify(kernel_text, 50, &v) && r->taken == 0);
}

/* Who stops a verification gets no verdict: the kernel is not to blame. */
static void stopping_blames_nobody(void **state)
{
    worker_verdict v;
    worker_error e;
    (void)state;
    stop = at_once;
    bool ran = judged(kernel_text, 50, &v, &e);
    stop = NULL;
    assert_false(ran);
    assert_int_equal(e.status, KILN_STOPPED);
}

static void right_one_passes(void **state)
{
    worker_verdict v;
    (void)state;
    if (!verify(kernel_text, 50, &v)) {
        print_error("%s\n", v.detail);
    }
    assert_true(v.ok);
    assert_string_equal(v.how, "run");
    assert_true(v.all_written);
    assert_int_equal(v.total, 33);
    assert_int_equal(v.checked, 33);
    assert_true(v.max_error <= 1);
}

static void mutants_are_caught(void **state)
{
    int missed = 0;
    (void)state;
    for (size_t i = 0; i < sizeof mutants / sizeof *mutants; i++) {
        const mutant *m = &mutants[i];
        worker_verdict v;
        char bad[4096];
        const char *at = strstr(kernel_text, m->find);
        assert_non_null(at);
        snprintf(bad, sizeof bad, "%.*s%s%s", (int)(at - kernel_text), kernel_text, m->put, at + strlen(m->find));
        if (verify(bad, 10, &v) || !strstr(v.detail, m->says)) {
            print_error("\"%s\" -> \"%s\": %s \"%s\"\n", m->find, m->put, v.ok ? "passed" : "says", v.detail);
            missed++;
        }
    }
    assert_int_equal(missed, 0);
}

static void filled_as_read(verify_dtype t, int kind, int nonfinite)
{
    enum { N = 8192 };
    static double array[N];
    verify_source s = {.seed = 7, .kind = kind, .nonfinite = nonfinite};
    bool real = verify_dtype_is_float(t), edge = kind == VERIFY_EDGE && real;
    int seen = 0;
    verify_fill(&s, t, 3, N, array);
    for (int i = 0; i < N; i++) {
        double want = verify_input(&s, t, 3, i, &seen), got = verify_load(t, array, i);
        assert_true((isnan(want) && isnan(got)) || (want == got && (!real || !signbit(want) == !signbit(got))));
        assert_true(kind == VERIFY_EDGE || fabs(want) <= 8);
    }
    assert_int_equal(seen, edge ? VERIFY_BIG | VERIFY_EXTREME | (nonfinite ? VERIFY_NONFINITE : 0) : 0);
}

static void filled_arrays_hold_what_the_reference_reads(void **state)
{
    (void)state;
    for (int t = 0; t < VERIFY_DTYPES; t++) {
        for (int kind = 0; kind < VERIFY_KINDS; kind++) {
            filled_as_read((verify_dtype)t, kind, 0);
            filled_as_read((verify_dtype)t, kind, 1);
        }
    }
}

static void half_precision_is_exact_both_ways(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 0x7c00; bits++) {
        uint16_t in = (uint16_t)bits, out;
        verify_store(VERIFY_F16, &out, 0, verify_load(VERIFY_F16, &in, 0));
        assert_int_equal(in, out);
    }
}

static void points_begin_with_corners_and_stay_inside(void **state)
{
    kiln_arg big = {.rank = 3, .shape = {5, 700, 33}, .elems = INT64_C(5) * 700 * 33};
    kiln_arg small = {.rank = 2, .shape = {33, 40}, .elems = 1320};
    verify_points p;
    int64_t at;
    char seen[1320] = {0};
    (void)state;
    verify_points_open(&p, &big, 1);
    for (int i = 0; i < 1000; i++) {
        assert_true(verify_points_next(&p, &at));
        assert_true(at >= 0 && at < big.elems);
        assert_true(i != 0 || at == 0);
        assert_true(i != 1 || at == big.elems - 1);
    }
    verify_points_open(&p, &small, 1);
    for (int i = 0; i < 1320; i++) {
        assert_true(verify_points_next(&p, &at));
        assert_int_equal(seen[at]++, 0);
    }
    assert_false(verify_points_next(&p, &at));
}

static void texts_are_judged(void **state)
{
    (void)state;
    assert_true(verify_text_is_exact("out0[M, N] +=! in0[M, K] * in1[K, N]"));
    assert_true(verify_text_is_exact("out0[M] = max(in0[M], 0.0)"));
    assert_false(verify_text_is_exact("out0[M] = in0[M] * 0.5"));
    assert_false(verify_text_is_exact("out0[M] = in0[M] / in1[M]"));
    assert_false(verify_text_is_exact("out0[M] = exp(in0[M])"));
    assert_true(verify_text_is_elementwise("out0[M] = in0[M] * 0.5"));
    assert_false(verify_text_is_elementwise("out0[M] max=! in0[M, K]"));
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "child") == 0) {
        return child_main(argc, argv);
    }
    workers_find_tools("build", &tools);
    snprintf(tools.worker, sizeof tools.worker, "%s", argv[0]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_one_passes),
        cmocka_unit_test(early_checks_say_the_same),
        cmocka_unit_test(memory_goes_round),
        cmocka_unit_test(checks_wait_for_memory),
        cmocka_unit_test(stopping_blames_nobody),
        cmocka_unit_test(mutants_are_caught),
        cmocka_unit_test(filled_arrays_hold_what_the_reference_reads),
        cmocka_unit_test(half_precision_is_exact_both_ways),
        cmocka_unit_test(points_begin_with_corners_and_stay_inside),
        cmocka_unit_test(texts_are_judged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
