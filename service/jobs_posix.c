/* Compiles under way: who waits for what, and results for /v1/jobs. One lock; a thread wakes those who waited long enough. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cache/clock_posix.h"
#include "jobs/jobs.h"
#include "service/service.h"

enum { TICK_MS = 20 };

struct service_jobs {
    service_app *app;
    pthread_mutex_t lock;
    pthread_cond_t stop;
    pthread_t ticker;
    bool stopping;
    service_job *list; /* newest first */
    int n;
    uint64_t serial;
};

static void release(service_job *job)
{
    if (--job->refs) return;
    service_ask_drop(job->ask);
    service_reply_drop(job->problem);
    free(job);
}

/* Forgets finished jobs that are old, or the oldest finished ones when the table is full. */
static void sweep(service_jobs *j)
{
    int64_t now = (int64_t)service_now_ms();
    for (service_job **p = &j->list; *p;) {
        service_job *job = *p;
        bool last = j->n >= SERVICE_JOBS && !job->next;
        if (job->settled && !job->waiters && (last || now - job->ended > SERVICE_JOB_KEEP_SECONDS * 1000ll)) {
            *p = job->next;
            j->n--;
            release(job);
        } else {
            p = &job->next;
        }
    }
}

static void wake(service_jobs *j, bool all)
{
    int64_t now = (int64_t)service_now_ms();
    for (service_job *job = j->list; job; job = job->next) {
        bool served = job->state >= SERVICE_SUCCEEDED;
        for (service_call **p = &job->waiters; *p;) {
            service_call *c = *p;
            bool done = job->settled || (served && (!c->verified || job->state == SERVICE_FAILED));
            if (!done && !all && c->wait_until > now) {
                p = &c->next_waiter;
                continue;
            }
            c->timed_out = !done;
            c->waiting = false;
            *p = c->next_waiter;
            service_resume(c);
        }
    }
}

static void *tick(void *arg)
{
    service_jobs *j = arg;
    pthread_mutex_lock(&j->lock);
    for (int turn = 0; !j->stopping; turn++) {
        struct timespec t = cache_after(TICK_MS);
        cache_cond_until(&j->stop, &j->lock, &t);
        wake(j, false);
        if (turn % 500 == 0) sweep(j);
    }
    pthread_mutex_unlock(&j->lock);
    return NULL;
}

service_jobs *service_jobs_open(service_app *app)
{
    service_jobs *j = calloc(1, sizeof *j);
    if (!j) return NULL;
    j->app = app;
    pthread_mutex_init(&j->lock, NULL);
    pthread_cond_init(&j->stop, NULL);
    if (pthread_create(&j->ticker, NULL, tick, j)) {
        free(j);
        return NULL;
    }
    return j;
}

void service_jobs_close(service_jobs *j)
{
    if (!j) return;
    pthread_mutex_lock(&j->lock);
    j->stopping = true;
    pthread_cond_signal(&j->stop);
    pthread_mutex_unlock(&j->lock);
    pthread_join(j->ticker, NULL);
    while (j->list) {
        service_job *next = j->list->next;
        release(j->list);
        j->list = next;
    }
    pthread_mutex_destroy(&j->lock);
    pthread_cond_destroy(&j->stop);
    free(j);
}

static service_job *make(service_jobs *j, service_ask *ask)
{
    sweep(j);
    service_job *job = j->n < SERVICE_JOBS ? calloc(1, sizeof *job) : NULL;
    if (!job) return NULL;
    job->app = j->app;
    job->refs = 2; /* the table's and the pool's */
    job->ask = ask;
    atomic_fetch_add(&ask->refs, 1);
    job->created_ms = service_unix_ms();
    job->deadline = (int64_t)service_now_ms() + j->app->config.deadline_ms;
    snprintf(job->key, sizeof job->key, "%s", ask->keys.kernel);
    if (!jobs_make_id(job->id))
        snprintf(job->id, sizeof job->id, "j%llx-%llx", (unsigned long long)job->created_ms, (unsigned long long)++j->serial);
    job->next = j->list;
    j->list = job;
    j->n++;
    return job;
}

service_job *service_jobs_join(service_jobs *j, service_call *c, bool *fresh)
{
    service_job *job = NULL;
    *fresh = false;
    pthread_mutex_lock(&j->lock);
    for (service_job *e = j->list; e && !job; e = e->next) {
        bool live = e->state < SERVICE_SUCCEEDED || (c->verified && !e->settled && e->state == SERVICE_SUCCEEDED);
        if (live && !strcmp(e->key, c->ask->keys.kernel)) job = e;
    }
    if (!job) {
        job = make(j, c->ask);
        *fresh = job != NULL;
        if (job) snprintf(job->tenant, sizeof job->tenant, "%s", c->who.tenant);
    }
    if (job) {
        job->refs++;
        c->job = job;
        c->collapsed = !*fresh;
        c->waiting = true;
        c->next_waiter = job->waiters;
        job->waiters = c;
        service_suspend(c);
    }
    pthread_mutex_unlock(&j->lock);
    return job;
}

static bool lives(const service_jobs *j, const char *key)
{
    for (const service_job *e = j->list; e; e = e->next)
        if (e->state < SERVICE_SUCCEEDED && !strcmp(e->key, key)) return true;
    return false;
}

bool service_jobs_attach(service_jobs *j, service_call *c, service_job *job)
{
    pthread_mutex_lock(&j->lock);
    bool live = job->state < SERVICE_SUCCEEDED;
    if (live) {
        c->job = job;
        c->waiting = true;
        c->next_waiter = job->waiters;
        job->waiters = c;
        service_suspend(c);
    }
    pthread_mutex_unlock(&j->lock);
    return live;
}

bool service_jobs_live(service_jobs *j, const char *key)
{
    pthread_mutex_lock(&j->lock);
    bool live = lives(j, key);
    pthread_mutex_unlock(&j->lock);
    return live;
}

service_job *service_jobs_start(service_jobs *j, service_ask *ask)
{
    pthread_mutex_lock(&j->lock);
    service_job *job = lives(j, ask->keys.kernel) ? NULL : make(j, ask);
    pthread_mutex_unlock(&j->lock);
    return job;
}

void service_jobs_rename(service_jobs *j, service_job *job, const char *id)
{
    pthread_mutex_lock(&j->lock);
    snprintf(job->id, sizeof job->id, "%s", id);
    pthread_mutex_unlock(&j->lock);
}

void service_jobs_running(service_jobs *j, service_job *job)
{
    pthread_mutex_lock(&j->lock);
    if (job->state == SERVICE_QUEUED) job->state = SERVICE_RUNNING;
    pthread_mutex_unlock(&j->lock);
}

void service_jobs_done(service_jobs *j, service_job *job, service_reply *problem, bool settled)
{
    pthread_mutex_lock(&j->lock);
    if (problem) {
        service_reply_drop(job->problem);
        job->problem = problem;
    }
    job->state = job->problem ? SERVICE_FAILED : SERVICE_SUCCEEDED;
    job->settled = settled;
    job->finished_ms = service_unix_ms();
    job->ended = (int64_t)service_now_ms();
    wake(j, false);
    pthread_mutex_unlock(&j->lock);
}

service_standing service_jobs_standing(service_jobs *j, const service_job *job)
{
    pthread_mutex_lock(&j->lock);
    service_standing s = {job->state, job->settled, job->cancelled, job->finished_ms, job->problem ? service_reply_ref(job->problem) : NULL};
    pthread_mutex_unlock(&j->lock);
    return s;
}

service_job *service_jobs_find(service_jobs *j, const char *id)
{
    service_job *job = NULL;
    pthread_mutex_lock(&j->lock);
    for (service_job *e = j->list; e && !job; e = e->next)
        if (!strcmp(e->id, id)) job = e;
    if (job) job->refs++;
    pthread_mutex_unlock(&j->lock);
    return job;
}

void service_job_drop(service_jobs *j, service_job *job)
{
    if (!job) return;
    pthread_mutex_lock(&j->lock);
    release(job);
    pthread_mutex_unlock(&j->lock);
}

void service_jobs_wake_all(service_jobs *j)
{
    pthread_mutex_lock(&j->lock);
    wake(j, true);
    pthread_mutex_unlock(&j->lock);
}

int service_jobs_count(service_jobs *j, enum service_state s)
{
    int n = 0;
    pthread_mutex_lock(&j->lock);
    for (service_job *e = j->list; e; e = e->next) n += e->state == s;
    pthread_mutex_unlock(&j->lock);
    return n;
}
