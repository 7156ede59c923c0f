/* A bounded pool of threads over two queues. Interactive jobs go first, and one thread is kept from background jobs, so that a
 * question never waits for a long background job to end. */
#include "workers/workers.h"
#include <pthread.h>
#include <stdlib.h>

typedef struct job {
    worker_job fn;
    void *arg;
} job;
typedef struct queue {
    job *ring;
    int head, n;
} queue; /* capacity: the pool's queue_max */

struct worker_pool {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    queue q[2]; /* [0] interactive, [1] background */
    int queue_max, nthreads, background_now;
    bool closing, drain;
    pthread_t threads[];
};

static bool may_background(const worker_pool *p) { return p->nthreads == 1 || p->closing || p->background_now < p->nthreads - 1; }

/* Which queue to take from now, or -1. */
static int choose(const worker_pool *p)
{
    if (p->closing && !p->drain) { return -1; }
    return p->q[0].n > 0 ? 0 : p->q[1].n > 0 && may_background(p) ? 1 : -1;
}

static void *work(void *user)
{
    worker_pool *p = user;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        int which = choose(p);
        if (which < 0) {
            if (p->closing) { break; }
            pthread_cond_wait(&p->changed, &p->lock);
            continue;
        }
        queue *q = &p->q[which];
        job j = q->ring[q->head];
        q->head = (q->head + 1) % p->queue_max;
        q->n--;
        p->background_now += which;
        pthread_mutex_unlock(&p->lock);
        j.fn(j.arg);
        pthread_mutex_lock(&p->lock);
        p->background_now -= which;
        if (which == 1) { pthread_cond_signal(&p->changed); /* a place for a background job is free */ }
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

worker_pool *worker_pool_open(int threads, int queue_max)
{
    if (threads < 1 || threads > 1024 || queue_max < 1 || queue_max > 1 << 20) { return NULL; }
    worker_pool *p = calloc(1, sizeof *p + (size_t)threads * sizeof(pthread_t));
    if (p == NULL) { return NULL; }
    p->q[0].ring = calloc((size_t)queue_max, sizeof(job));
    p->q[1].ring = calloc((size_t)queue_max, sizeof(job));
    p->queue_max = queue_max;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    pthread_mutex_lock(&p->lock);
    int started = 0;
    while (p->q[0].ring != NULL && p->q[1].ring != NULL && started < threads && pthread_create(&p->threads[started], NULL, work, p) == 0) {
        started++;
    }
    p->nthreads = started;
    pthread_mutex_unlock(&p->lock);
    if (started == 0) {
        worker_pool_close(p, false);
        return NULL;
    }
    return p;
}

bool worker_pool_submit(worker_pool *p, worker_job fn, void *arg, bool background)
{
    pthread_mutex_lock(&p->lock);
    queue *q = &p->q[background];
    bool ok = !p->closing && q->n < p->queue_max;
    if (ok) {
        q->ring[(q->head + q->n++) % p->queue_max] = (job){fn, arg};
        pthread_cond_signal(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
    return ok;
}

int worker_pool_depth(const worker_pool *p, bool background)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&p->lock; /* const is about the queue's content */
    pthread_mutex_lock(lock);
    int n = p->q[background].n;
    pthread_mutex_unlock(lock);
    return n;
}

void worker_pool_close(worker_pool *p, bool drain)
{
    if (p == NULL) { return; }
    pthread_mutex_lock(&p->lock);
    p->closing = true;
    p->drain = drain;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->nthreads; i++) { pthread_join(p->threads[i], NULL); }
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    free(p->q[0].ring);
    free(p->q[1].ring);
    free(p);
}
