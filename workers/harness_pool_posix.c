/* The parallel_for that kernels are verified and timed with: a few threads that take tasks from a counter, in scrambled order if asked. */
#include "workers/harness.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { SPINS = 20000, MOST_THREADS = 256 };

typedef struct member { harness_pool *pool; int32_t number; pthread_t thread; } member;
struct harness_pool {
    int nthreads, started;
    bool scramble, pin;
    cpu_set_t may;              /* processors this process may use, before anything is pinned: threads inherit what their maker is pinned to */
    atomic_int round, quit;     /* round counts calls; members wait for the next */
    atomic_int busy;            /* members still in the current call */
    atomic_llong next;
    int64_t ntasks, step, offset;
    void (*task)(void *closure, int64_t index, int32_t worker);
    void *closure;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    member members[MOST_THREADS];
};

double verify_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

double verify_work_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void work(harness_pool *p, int32_t worker)
{
    for (;;) {
        int64_t i = atomic_fetch_add(&p->next, 1);
        if (i >= p->ntasks) {
            return;
        }
        uint64_t jump = (uint64_t)(((unsigned __int128)i * (uint64_t)p->step + (uint64_t)p->offset) % (uint64_t)p->ntasks);
        p->task(p->closure, p->scramble ? (int64_t)jump : i, worker);
    }
}

/* Thread `number` to the number-th processor this process may use; a wish only. */
static void pin_to(const harness_pool *p, int number)
{
    cpu_set_t one;
    int count = 0;
    if (!p->pin || !CPU_COUNT(&p->may)) {
        return;
    }
    number %= CPU_COUNT(&p->may);
    CPU_ZERO(&one);
    for (int c = 0; c < CPU_SETSIZE; c++) {
        if (CPU_ISSET(c, &p->may) && count++ == number) {
            CPU_SET(c, &one);
        }
    }
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);
}

static void *member_main(void *arg)
{
    member *m = arg;
    harness_pool *p = m->pool;
    int seen = 0;
    pin_to(p, m->number);
    for (;;) {
        for (int i = 0; i < SPINS && atomic_load(&p->round) == seen; i++) {
            if (i % 64 == 63) {
                sched_yield();
            }
        }
        pthread_mutex_lock(&p->lock);
        while (atomic_load(&p->round) == seen) {
            pthread_cond_wait(&p->wake, &p->lock);
        }
        pthread_mutex_unlock(&p->lock);
        seen = atomic_load(&p->round);
        if (atomic_load(&p->quit)) {
            return NULL;
        }
        work(p, m->number);
        atomic_fetch_sub(&p->busy, 1);
    }
}

static void wake_all(harness_pool *p)
{
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->round, 1);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}

static void parallel_for(void *ctx, int64_t ntasks, void (*task)(void *closure, int64_t index, int32_t worker), void *closure)
{
    harness_pool *p = ctx;
    if (ntasks <= 0) {
        return;
    }
    p->ntasks = ntasks;
    p->task = task;
    p->closure = closure;
    p->offset = ntasks / 2;
    p->step = ntasks > 2 ? (ntasks * 5 / 8) | 1 : 1; /* coprime to ntasks: a permutation that is neither up nor down */
    while (gcd(p->step, ntasks) != 1) {
        p->step++;
    }
    atomic_store(&p->next, 0);
    atomic_store(&p->busy, p->started);
    wake_all(p);
    work(p, 0);
    while (atomic_load(&p->busy) > 0) {
        sched_yield();
    }
}

harness_pool *harness_pool_open(int threads, bool scramble, bool pin, kiln_pool *out)
{
    threads = threads < 1 ? 1 : threads > MOST_THREADS ? MOST_THREADS : threads;
    harness_pool *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return NULL;
    }
    p->nthreads = threads;
    p->scramble = scramble;
    p->pin = pin;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    if (sched_getaffinity(0, sizeof p->may, &p->may) != 0) {
        CPU_ZERO(&p->may);
    }
    pin_to(p, 0);
    for (int i = 1; i < threads; i++) {
        p->members[i] = (member){.pool = p, .number = i};
        if (pthread_create(&p->members[i].thread, NULL, member_main, &p->members[i]) != 0) {
            harness_pool_close(p);
            return NULL;
        }
        p->started++;
    }
    *out = (kiln_pool){p, threads, parallel_for};
    return p;
}

void harness_pool_close(harness_pool *p)
{
    atomic_store(&p->quit, 1);
    wake_all(p);
    for (int i = 1; i <= p->started; i++) {
        pthread_join(p->members[i].thread, NULL);
    }
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
