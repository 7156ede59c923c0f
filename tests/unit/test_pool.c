/* The pool that kernels get from `kiln run` and from the client library: every task once, by a worker that is there, whatever sleeps or is late. */
#include "api/cli/pool_spread_posix.h"
#include "api/cli/pool.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include <time.h>

enum { TASKS = 37, THREADS = 4 };

typedef struct count {
    _Atomic int done[TASKS], busy[THREADS], wrong;
    int fork; /* plain: what the forks say must be seen by all */
} count;

static void task(void *closure, int64_t index, int32_t worker)
{
    count *c = closure;
    if (worker < 0 || worker >= THREADS || index < 0 || index >= TASKS) {
        atomic_fetch_add(&c->wrong, 1);
        return;
    }
    if (atomic_fetch_add(&c->busy[worker], 1)) atomic_fetch_add(&c->wrong, 1); /* a worker's scratch is its own */
    atomic_fetch_add(&c->done[index], c->fork);
    atomic_fetch_sub(&c->busy[worker], 1);
}

static void pause_us(int us) { nanosleep(&(struct timespec){.tv_nsec = us * 1000L}, NULL); }

static void test_every_task_once(void **state)
{
    (void)state;
    struct kiln_pool *p = pool_open(THREADS);
    assert_non_null(p);
    assert_int_equal(p->nthreads, THREADS);
    for (int i = 0; i < 2000; i++) {
        count c = {.fork = i + 1};
        int n = i % (TASKS + 1);
        p->parallel_for(p->ctx, n, task, &c);
        for (int t = 0; t < TASKS; t++) assert_int_equal(c.done[t], t < n ? i + 1 : 0);
        assert_int_equal(c.wrong, 0);
        if (i % 400 == 0) pause_us(200); /* they have fallen asleep */
    }
    pool_close(p);
}

static void slow(void *closure, int64_t index, int32_t worker)
{
    (void)worker;
    pause_us(300);
    atomic_fetch_add(&((count *)closure)->done[index], 1);
}

static void test_waits_for_those_that_have_begun(void **state)
{
    (void)state;
    struct kiln_pool *p = pool_open(THREADS);
    assert_non_null(p);
    for (int i = 0; i < 50; i++) {
        count c = {.fork = 0};
        p->parallel_for(p->ctx, THREADS, slow, &c);
        for (int t = 0; t < THREADS; t++) assert_int_equal(c.done[t], 1);
    }
    pool_close(p);
}

static void whose(void *closure, int64_t index, int32_t worker)
{
    pause_us(300);
    ((int32_t *)closure)[index] = worker;
}

/* Each worker has a share of tasks that follow each other, unless another has waited for it. */
static void test_shares(void **state)
{
    (void)state;
    enum { EACH = 3 };
    struct kiln_pool *p = pool_open(THREADS);
    assert_non_null(p);
    int whole = 0;
    for (int i = 0; i < 300 && !whole; i++) {
        int32_t by[EACH * THREADS];
        p->parallel_for(p->ctx, EACH * THREADS, whose, by);
        whole = 1;
        for (int t = 0; t < EACH * THREADS; t++) whole &= by[t] == t / EACH;
    }
    assert_true(whole);
    pool_close(p);
}

static void test_opens_and_closes(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) pool_close(pool_open(i % 5));
    pool_close(NULL);
    struct kiln_pool *one = pool_open(1);
    assert_int_equal(one->nthreads, 1);
    count c = {.fork = 1};
    one->parallel_for(one->ctx, TASKS, task, &c);
    for (int t = 0; t < TASKS; t++) assert_int_equal(c.done[t], 1);
    pool_close(one);
}

static int64_t a_second_later(void) { return 1000000000; }

typedef struct { struct spread spread; atomic_int step; int before, after; cpu_set_t mask; } moved;

static void *sits_still(void *arg)
{
    moved *m = arg;
    spread_seen(&m->spread, 0);
    m->before = atomic_load(&m->spread.at[0]);
    atomic_store(&m->step, 1);
    while (atomic_load(&m->step) == 1) pause_us(50);
    m->after = sched_getcpu();
    spread_seen(&m->spread, 0);
    pthread_getaffinity_np(pthread_self(), sizeof m->mask, &m->mask);
    return NULL;
}

/* A thread on the processor of the one that has work for it is sent to another, from where it may go wherever it might before. */
static void test_threads_are_kept_apart(void **state)
{
    (void)state;
    static moved m;
    pthread_t thread;
    cpu_set_t here;
    spread_begin(&m.spread);
    if (CPU_COUNT(&m.spread.may) < 2) skip();
    CPU_ZERO(&here);
    CPU_SET(sched_getcpu(), &here);
    assert_int_equal(pthread_setaffinity_np(pthread_self(), sizeof here, &here), 0);
    assert_int_equal(pthread_create(&thread, NULL, sits_still, &m), 0); /* it may run nowhere else either */
    while (atomic_load(&m.step) == 0) pause_us(50);
    spread_out(&m.spread, &thread, 1, a_second_later);
    atomic_store(&m.step, 2);
    pthread_join(thread, NULL);
    assert_true(CPU_ISSET(m.before, &here));
    assert_false(CPU_ISSET(m.after, &here));
    assert_true(CPU_EQUAL(&m.mask, &m.spread.may));
    assert_int_equal(pthread_setaffinity_np(pthread_self(), sizeof m.spread.may, &m.spread.may), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_task_once),
        cmocka_unit_test(test_waits_for_those_that_have_begun),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_threads_are_kept_apart),
        cmocka_unit_test(test_opens_and_closes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
