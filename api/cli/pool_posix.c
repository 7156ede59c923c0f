/* The pool: threads that take indices from shared counters. They look out for work for some microseconds before they sleep, so that kernels that
 * follow each other find them awake, and who forks waits for none that has not begun. Each has a share of the indices that follow each other, the
 * same part of all in every fork, and takes from those of the others when its own is done: kernels whose tasks are in the order of memory find what
 * the one before wrote in the caches of their own core, whereas lines that another core holds come from there, and have to be asked back. */
#include "api/cli/pool.h"
#include "api/cli/pool_spread_posix.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

enum { MOST = SPREAD_MOST, AWAKE_NS = 50000, LOOKS = 32 };

/* `generation` says that there is something new, `open` that its tasks may be taken. A thread counts itself in `active` before it looks at `open`,
 * and who forks closes it before it looks at `active`: either sees the other, so that nobody reads the fields of a fork while they change. */
struct share { _Alignas(64) _Atomic int64_t next; int64_t end; };

struct pool {
    struct kiln_pool face;
    pthread_mutex_t lock;
    pthread_cond_t work, idle;
    _Atomic uint64_t generation;
    _Atomic bool open, stop, waiting;
    _Atomic int active, asleep;
    void (*task)(void *, int64_t, int32_t);
    void *closure;
    int started;
    pthread_t threads[MOST];
    struct spread spread;
    struct share shares[MOST + 1]; /* of a worker */
};

struct seat { struct pool *p; int32_t worker; };

static void relax(void)
{
#if defined __x86_64__ || defined __i386__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("yield");
#endif
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static bool is_new(struct pool *p, uint64_t seen) { return atomic_load(&p->generation) != seen || atomic_load(&p->stop); }

static bool is_idle(struct pool *p, uint64_t unused) { return (void)unused, atomic_load(&p->active) == 0; }

/* Until it is so, at most AWAKE_NS: whether it is. */
static bool watch(struct pool *p, bool (*so)(struct pool *, uint64_t), uint64_t seen)
{
    int64_t end = now_ns() + AWAKE_NS;
    do {
        for (int i = 0; i < LOOKS; i++) {
            if (so(p, seen)) return true;
            relax();
        }
    } while (now_ns() < end);
    return so(p, seen);
}

static void drain(struct pool *p, int32_t worker)
{
    for (int k = 0, n = p->started + 1; k < n; k++) {
        struct share *s = &p->shares[(worker + k) % n];
        for (int64_t i; (i = atomic_fetch_add(&s->next, 1)) < s->end;) p->task(p->closure, i, worker);
    }
}

static void sleep_until_new(struct pool *p, uint64_t seen)
{
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->asleep, 1);
    while (!is_new(p, seen)) pthread_cond_wait(&p->work, &p->lock);
    atomic_fetch_sub(&p->asleep, 1);
    pthread_mutex_unlock(&p->lock);
}

static void *loop(void *arg)
{
    struct seat s = *(struct seat *)arg;
    struct pool *p = s.p;
    uint64_t seen = 0;
    free(arg);
    while (!atomic_load(&p->stop)) {
        if (!watch(p, is_new, seen)) sleep_until_new(p, seen);
        spread_seen(&p->spread, s.worker - 1);
        seen = atomic_load(&p->generation);
        atomic_fetch_add(&p->active, 1);
        if (atomic_load(&p->open)) drain(p, s.worker);
        if (atomic_fetch_sub(&p->active, 1) > 1 || !atomic_load(&p->waiting)) continue;
        pthread_mutex_lock(&p->lock);
        pthread_cond_signal(&p->idle);
        pthread_mutex_unlock(&p->lock);
    }
    return NULL;
}

static void wake(struct pool *p)
{
    if (!atomic_load(&p->asleep)) return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
}

static void join(struct pool *p)
{
    atomic_store(&p->open, false);
    if (watch(p, is_idle, 0)) return;
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->waiting, true);
    while (!is_idle(p, 0)) pthread_cond_wait(&p->idle, &p->lock);
    atomic_store(&p->waiting, false);
    pthread_mutex_unlock(&p->lock);
}

static void deal(struct pool *p, int64_t ntasks)
{
    int64_t n = p->started + 1, each = ntasks / n, more = ntasks % n;
    for (int64_t i = 0, at = 0; i < n; i++) {
        atomic_store_explicit(&p->shares[i].next, at, memory_order_relaxed);
        p->shares[i].end = at += each + (i < more);
    }
}

static void parallel_for(void *ctx, int64_t ntasks, void (*task)(void *, int64_t, int32_t), void *closure)
{
    struct pool *p = ctx;
    if (ntasks < 2) { /* nothing to share */
        for (int64_t i = 0; i < ntasks; i++) task(closure, i, 0);
        return;
    }
    spread_out(&p->spread, p->threads, p->started, now_ns);
    p->task = task;
    p->closure = closure;
    deal(p, ntasks);
    atomic_store(&p->open, true);
    atomic_fetch_add(&p->generation, 1);
    wake(p);
    drain(p, 0);
    join(p);
}

struct kiln_pool *pool_open(int threads)
{
    struct pool *p = aligned_alloc(64, (sizeof *p + 63) / 64 * 64);
    if (!p) return NULL;
    *p = (struct pool){.started = 0};
    if (threads > MOST) threads = MOST;
    spread_begin(&p->spread);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->idle, NULL);
    for (int i = 1; i < threads; i++) {
        struct seat *s = malloc(sizeof *s);
        if (!s) break;
        *s = (struct seat){p, p->started + 1};
        if (pthread_create(&p->threads[p->started], NULL, loop, s)) {
            free(s);
            break;
        }
        p->started++;
    }
    p->face = (struct kiln_pool){p, p->started + 1, parallel_for};
    return &p->face;
}

void pool_close(struct kiln_pool *face)
{
    if (!face) return;
    struct pool *p = face->ctx;
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->stop, true);
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->started; i++) pthread_join(p->threads[i], NULL);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->work);
    pthread_cond_destroy(&p->idle);
    free(p);
}
