/* The pool: threads that wait for a generation of tasks and take indices from a shared counter. */
#include "api/cli/pool.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

struct pool {
    struct kiln_pool face;
    pthread_mutex_t lock;
    pthread_cond_t work, idle;
    uint64_t generation;
    int busy, started;
    bool stop;
    _Atomic int64_t next;
    int64_t ntasks;
    void (*task)(void *, int64_t, int32_t);
    void *closure;
    pthread_t threads[256];
};

struct seat { struct pool *p; int32_t worker; };

static void drain(struct pool *p, int32_t worker)
{
    for (int64_t i; (i = atomic_fetch_add(&p->next, 1)) < p->ntasks;) p->task(p->closure, i, worker);
}

static void *loop(void *arg)
{
    struct seat s = *(struct seat *)arg;
    uint64_t seen = 0;
    free(arg);
    pthread_mutex_lock(&s.p->lock);
    for (;;) {
        while (s.p->generation == seen && !s.p->stop) pthread_cond_wait(&s.p->work, &s.p->lock);
        if (s.p->stop) break;
        seen = s.p->generation;
        pthread_mutex_unlock(&s.p->lock);
        drain(s.p, s.worker);
        pthread_mutex_lock(&s.p->lock);
        if (--s.p->busy == 0) pthread_cond_signal(&s.p->idle);
    }
    pthread_mutex_unlock(&s.p->lock);
    return NULL;
}

static void parallel_for(void *ctx, int64_t ntasks, void (*task)(void *, int64_t, int32_t), void *closure)
{
    struct pool *p = ctx;
    pthread_mutex_lock(&p->lock);
    p->task = task;
    p->closure = closure;
    p->ntasks = ntasks;
    atomic_store(&p->next, 0);
    p->busy = p->started;
    p->generation++;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    drain(p, 0);
    pthread_mutex_lock(&p->lock);
    while (p->busy) pthread_cond_wait(&p->idle, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

struct kiln_pool *pool_open(int threads)
{
    struct pool *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    if (threads > 256) threads = 256;
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
    p->stop = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->started; i++) pthread_join(p->threads[i], NULL);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->work);
    pthread_cond_destroy(&p->idle);
    free(p);
}
