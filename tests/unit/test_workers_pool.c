/* The pool of threads and the features of the host. */
#include "workers/workers.h"
#include "workers/features.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

/* A gate that jobs wait at, and the order in which they passed. */
typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open;
    int waiting, passed, order[256];
} gate;
typedef struct item {
    gate *g;
    int id;
    bool waits;
} item;

static void gate_init(gate *g)
{
    memset(g, 0, sizeof *g);
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
}

static void pass(void *arg)
{
    item *i = arg;
    pthread_mutex_lock(&i->g->lock);
    i->g->waiting++;
    pthread_cond_broadcast(&i->g->changed);
    while (i->waits && !i->g->open) { pthread_cond_wait(&i->g->changed, &i->g->lock); }
    i->g->order[i->g->passed++] = i->id;
    pthread_cond_broadcast(&i->g->changed);
    pthread_mutex_unlock(&i->g->lock);
}

static void await(gate *g, const int *what, int n)
{
    pthread_mutex_lock(&g->lock);
    while (*what < n) { pthread_cond_wait(&g->changed, &g->lock); }
    pthread_mutex_unlock(&g->lock);
}

static void release(gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->open = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

static void interactive_first(void **state)
{
    gate g;
    (void)state;
    gate_init(&g);
    worker_pool *p = worker_pool_open(1, 8);
    item first = {&g, 0, true}, b1 = {&g, 1, false}, b2 = {&g, 2, false}, i1 = {&g, 3, false};
    assert_true(worker_pool_submit(p, pass, &first, false));
    await(&g, &g.waiting, 1);
    assert_true(worker_pool_submit(p, pass, &b1, true));
    assert_true(worker_pool_submit(p, pass, &b2, true));
    assert_true(worker_pool_submit(p, pass, &i1, false));
    assert_int_equal(worker_pool_depth(p, true), 2);
    assert_int_equal(worker_pool_depth(p, false), 1);
    release(&g);
    worker_pool_close(p, true);
    const int want[] = {0, 3, 1, 2};
    assert_int_equal(g.passed, 4);
    assert_memory_equal(g.order, want, sizeof want);
}

static void bounded(void **state)
{
    gate g;
    (void)state;
    gate_init(&g);
    worker_pool *p = worker_pool_open(1, 2);
    item hold = {&g, 0, true}, more = {&g, 1, false};
    assert_true(worker_pool_submit(p, pass, &hold, false));
    await(&g, &g.waiting, 1);
    assert_true(worker_pool_submit(p, pass, &more, false));
    assert_true(worker_pool_submit(p, pass, &more, false));
    assert_false(worker_pool_submit(p, pass, &more, false));
    assert_true(worker_pool_submit(p, pass, &more, true)); /* a full queue is no reason to refuse the other */
    release(&g);
    worker_pool_close(p, true);
    assert_int_equal(g.passed, 4);
}

static void background_leaves_a_thread(void **state)
{
    gate g;
    (void)state;
    gate_init(&g);
    worker_pool *p = worker_pool_open(2, 8);
    item slow = {&g, 0, true}, quick = {&g, 7, false};
    for (int i = 0; i < 4; i++) { assert_true(worker_pool_submit(p, pass, &slow, true)); }
    await(&g, &g.waiting, 1);
    assert_true(worker_pool_submit(p, pass, &quick, false));
    await(&g, &g.passed, 1); /* though every background job is stuck */
    assert_int_equal(g.order[0], 7);
    assert_int_equal(worker_pool_depth(p, true), 3);
    release(&g);
    worker_pool_close(p, true);
    assert_int_equal(g.passed, 5);
}

static void close_without_drain(void **state)
{
    gate g;
    (void)state;
    gate_init(&g);
    worker_pool *p = worker_pool_open(1, 8);
    item hold = {&g, 0, true}, never = {&g, 1, false};
    assert_true(worker_pool_submit(p, pass, &hold, false));
    await(&g, &g.waiting, 1);
    assert_true(worker_pool_submit(p, pass, &never, false));
    pthread_t t;
    pthread_create(&t, NULL, (void *(*)(void *))(void *)release, &g);
    worker_pool_close(p, true);
    pthread_join(t, NULL);
    assert_int_equal(g.passed, 2);
    p = worker_pool_open(3, 8);
    worker_pool_close(p, false);
    worker_pool_close(NULL, true);
    assert_null(worker_pool_open(0, 1));
    assert_null(worker_pool_open(1, 0));
}

static void count_up(void *arg) { __atomic_add_fetch((int *)arg, 1, __ATOMIC_RELAXED); }

static void many(void **state)
{
    int n = 0, sent = 0;
    (void)state;
    worker_pool *p = worker_pool_open(4, 64);
    for (int i = 0; i < 5000; i++) { sent += worker_pool_submit(p, count_up, &n, i % 3 == 0); }
    worker_pool_close(p, true);
    assert_true(sent >= 64);
    assert_int_equal(n, sent);
}

static void features(void **state)
{
    const char *const *names, *raw[FEATURES_MAX];
    (void)state;
    int n = worker_host_features(&names), without = features_scan(raw, false), with = features_scan(raw, true);
    assert_true(n == without || n == with);
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < i; k++) { assert_string_not_equal(names[i], names[k]); }
    }
#if defined(__x86_64__)
    static const char *const known[] = {"avx2", "fma", "avx512f", "avx512bw", "avx512vl"};
    __builtin_cpu_init();
    const int compiler[] = {__builtin_cpu_supports("avx2"), __builtin_cpu_supports("fma"), __builtin_cpu_supports("avx512f"),
                            __builtin_cpu_supports("avx512bw"), __builtin_cpu_supports("avx512vl")};
    for (int i = 0; i < 5; i++) {
        bool has = false;
        for (int k = 0; k < n; k++) { has = has || strcmp(names[k], known[i]) == 0; }
        assert_int_equal(has, compiler[i] != 0);
    }
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(interactive_first),   cmocka_unit_test(bounded), cmocka_unit_test(background_leaves_a_thread),
        cmocka_unit_test(close_without_drain), cmocka_unit_test(many),    cmocka_unit_test(features)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
