/* Leases kept while their work is done: a thread that beats for each, often enough, and soon when there is something to tell. */
#include "workers/keeper.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "workers/build.h"

enum { TICK_MS = 200, SOON_MS = 400, HEARD_MS = 1000 }; /* HEARD: after news, which may be a wish */

struct kept {
    kept *next;
    jobs_lease lease;
    atomic_int todo;
    atomic_bool lost;
    atomic_llong held_from, beaten; /* of the last beat that went through, and the last one tried: when it was sent */
    char *progress, *checkpoint;    /* to be sent; under the keeper's lock, as are these: */
    int64_t trials;
    int users;                      /* a beat is under way: not freed before it is over */
    bool dropped;
};

struct keeper {
    jobs *jobs;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t idle;
    kept *first;
    atomic_bool stop;
};

static bool due(const keeper *k, const kept *x, bool heard, int64_t now)
{
    int64_t since = now - atomic_load(&((kept *)(uintptr_t)x)->beaten);
    return since >= jobs_beat_ms(k->jobs) || (heard && since >= HEARD_MS) || ((x->progress || x->checkpoint || x->trials) && since >= SOON_MS);
}

/* Called with the lock held and x in use; the lock is let go while the database is asked. */
static void beat(keeper *k, kept *x)
{
    int64_t now = build_now_ms();
    enum jobs_todo todo;
    jobs_beat b = {.progress = x->progress, .checkpoint = x->checkpoint, .trials = x->trials, .spent_ms = now - atomic_load(&x->beaten)};
    x->progress = x->checkpoint = NULL;
    x->trials = 0;
    atomic_store(&x->beaten, now);
    pthread_mutex_unlock(&k->lock);
    enum jobs_status st = jobs_heartbeat(k->jobs, &x->lease, &b, &todo);
    pthread_mutex_lock(&k->lock);
    if (st == JOBS_OK) {
        atomic_store(&x->held_from, now);
        if (todo != JOBS_GO_ON || atomic_load(&x->todo) == JOBS_GIVE_WAY) atomic_store(&x->todo, todo);
    } else if (st == JOBS_LOST) atomic_store(&x->lost, true);
    else { /* told again, unless there is news already */
        if (!x->progress) x->progress = (char *)(uintptr_t)b.progress, b.progress = NULL;
        if (!x->checkpoint) x->checkpoint = (char *)(uintptr_t)b.checkpoint, b.checkpoint = NULL;
        x->trials += b.trials;
    }
    free((char *)(uintptr_t)b.progress);
    free((char *)(uintptr_t)b.checkpoint);
}

/* Some lease was too young to be beaten again for the news: later. */
static bool unheard(const keeper *k)
{
    int64_t now = build_now_ms();
    for (const kept *x = k->first; x; x = x->next)
        if (now - atomic_load(&((kept *)(uintptr_t)x)->beaten) >= SOON_MS) return true;
    return false;
}

static void *keep(void *arg)
{
    keeper *k = arg;
    uint64_t turn = jobs_turn(k->jobs);
    bool heard = false;
    while (!atomic_load(&k->stop)) {
        uint64_t before = turn;
        turn = jobs_wait(k->jobs, turn, TICK_MS);
        heard |= turn != before;
        pthread_mutex_lock(&k->lock);
        kept *x;
        do { /* from the start each time: the list may be another one after a beat */
            for (x = k->first; x; x = x->next)
                if (!x->dropped && !x->users && !atomic_load(&x->lost) && due(k, x, heard, build_now_ms())) break;
            if (!x) break;
            x->users++;
            beat(k, x);
            x->users--;
            pthread_cond_broadcast(&k->idle);
        } while (!atomic_load(&k->stop));
        heard = heard && unheard(k);
        pthread_mutex_unlock(&k->lock);
    }
    return NULL;
}

keeper *keeper_open(jobs *j)
{
    keeper *k = calloc(1, sizeof *k);
    if (!k) return NULL;
    k->jobs = j;
    pthread_mutex_init(&k->lock, NULL);
    pthread_cond_init(&k->idle, NULL);
    if (pthread_create(&k->thread, NULL, keep, k) == 0) return k;
    free(k);
    return NULL;
}

void keeper_close(keeper *k)
{
    if (!k) return;
    atomic_store(&k->stop, true);
    pthread_join(k->thread, NULL);
    pthread_mutex_destroy(&k->lock);
    pthread_cond_destroy(&k->idle);
    free(k);
}

kept *keeper_add(keeper *k, const jobs_lease *l)
{
    kept *x = calloc(1, sizeof *x);
    if (!x) return NULL;
    x->lease = *l;
    atomic_init(&x->held_from, build_now_ms());
    atomic_init(&x->beaten, build_now_ms());
    pthread_mutex_lock(&k->lock);
    x->next = k->first;
    k->first = x;
    pthread_mutex_unlock(&k->lock);
    return x;
}

void keeper_drop(keeper *k, kept *x)
{
    if (!x) return;
    pthread_mutex_lock(&k->lock);
    x->dropped = true;
    while (x->users) pthread_cond_wait(&k->idle, &k->lock);
    kept **at = &k->first;
    while (*at != x) at = &(*at)->next;
    *at = x->next;
    pthread_mutex_unlock(&k->lock);
    free(x->progress);
    free(x->checkpoint);
    free(x);
}

const jobs_lease *keeper_lease(const kept *x) { return &x->lease; }

void keeper_note(keeper *k, kept *x, const char *progress, const char *checkpoint, int64_t trials)
{
    pthread_mutex_lock(&k->lock);
    if (progress) {
        free(x->progress);
        x->progress = strdup(progress);
    }
    if (checkpoint) {
        free(x->checkpoint);
        x->checkpoint = strdup(checkpoint);
    }
    x->trials += trials;
    pthread_mutex_unlock(&k->lock);
}

enum jobs_todo keeper_todo(kept *x) { return (enum jobs_todo)atomic_load(&x->todo); }

bool keeper_holds(const keeper *k, kept *x)
{
    return !atomic_load(&x->lost) && build_now_ms() - atomic_load(&x->held_from) < jobs_lease_ms(k->jobs);
}

bool keeper_asks(keeper *k, kept *x)
{
    pthread_mutex_lock(&k->lock);
    while (x->users) pthread_cond_wait(&k->idle, &k->lock);
    x->users++;
    beat(k, x);
    x->users--;
    pthread_cond_broadcast(&k->idle);
    pthread_mutex_unlock(&k->lock);
    return keeper_holds(k, x);
}
