/* Sends to the truth what a store behind it kept while the truth was away. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cache/tier.h"

enum { ERRORS_MAX = 3, PAUSE_MS = 1000 };

struct cache_replay {
    cache_tier *truth, *keeper;
    void (*sent)(void *user, const char *key);
    void *user;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool work, stop;
};

static bool stopping(cache_replay *p)
{
    pthread_mutex_lock(&p->lock);
    bool stop = p->stop;
    pthread_mutex_unlock(&p->lock);
    return stop;
}

/* The artifacts of a record that are here and whole; one that is lost here may be there already. */
static int collect(cache_replay *p, const cache_record *r, cache_blob *blobs)
{
    int n = 0;
    for (int i = 0; i < r->nartifacts; i++) {
        char *bytes, digest[65];
        size_t size;
        if (p->keeper->ops->get_blob(p->keeper, r->artifacts[i].digest, &bytes, &size) != CACHE_OK) continue;
        cache_digest(bytes, size, digest);
        memcpy(blobs[n].digest, digest, sizeof digest);
        blobs[n].bytes = (kiln_bytes){bytes, size};
        if (!strcmp(digest, r->artifacts[i].digest)) n++;
        else free(bytes);
    }
    return n;
}

static enum cache_status send_record(cache_replay *p, const cache_owed *o, int64_t *version)
{
    cache_record *r = NULL;
    enum cache_status st = p->keeper->ops->get(p->keeper, o->key, o->version, &r);
    if (!r) return st == CACHE_ERROR ? CACHE_ERROR : CACHE_MISS;
    cache_blob blobs[sizeof r->artifacts / sizeof *r->artifacts];
    int n = collect(p, r, blobs);
    r->version = 0;
    st = p->truth->ops->put(p->truth, r, blobs, n);
    if (st == CACHE_OK) *version = r->version;
    for (int i = 0; i < n; i++) free((char *)(uintptr_t)blobs[i].bytes.p);
    cache_release(r);
    return st;
}

static enum cache_status send_target(cache_replay *p, const cache_owed *o)
{
    char **ids = NULL, **jsons = NULL;
    enum cache_status st = CACHE_MISS;
    int n = p->keeper->ops->list_targets(p->keeper, &ids, &jsons);
    for (int i = 0; i < n; i++) {
        if (!strcmp(ids[i], o->key)) st = p->truth->ops->put_target(p->truth, o->key, (kiln_bytes){jsons[i], strlen(jsons[i])});
        free(ids[i]);
        free(jsons[i]);
    }
    free(ids);
    free(jsons);
    return n < 0 ? CACHE_ERROR : st;
}

/* CACHE_MISS: there is nothing to send any more, or the truth does not know the version. */
static enum cache_status send_one(cache_replay *p, const cache_owed *o, int64_t *version)
{
    if (o->kind == 'r') return send_record(p, o, version);
    if (o->kind == 't') return send_target(p, o);
    cache_record *r = NULL;
    if (o->version >= CACHE_PROVISIONAL && p->keeper->ops->get(p->keeper, o->key, o->version, &r) != CACHE_MISS) {
        cache_release(r);
        return CACHE_ERROR; /* its record goes first */
    }
    return p->truth->ops->verdict(p->truth, o->key, o->version, o->state, o->json);
}

/* True when nothing is left. */
static bool round_of(cache_replay *p)
{
    cache_owed o = {0};
    int errors = 0;
    enum cache_status st = CACHE_MISS;
    while (!stopping(p) && (st = p->keeper->ops->owed_next(p->keeper, o.id, &o)) == CACHE_OK) {
        int64_t version = o.version;
        if (send_one(p, &o, &version) == CACHE_ERROR) {
            if (++errors == ERRORS_MAX) return false;
            continue;
        }
        if (p->keeper->ops->owed_paid(p->keeper, &o, version) != CACHE_OK) return false;
        atomic_fetch_add(&p->truth->replayed, 1);
        p->sent(p->user, o.key);
    }
    return st == CACHE_MISS && errors == 0;
}

static void *replay(void *arg)
{
    cache_replay *p = arg;
    pthread_mutex_lock(&p->lock);
    while (!p->stop) {
        if (!p->work) {
            pthread_cond_wait(&p->changed, &p->lock);
            continue;
        }
        p->work = false;
        pthread_mutex_unlock(&p->lock);
        bool clear = round_of(p);
        pthread_mutex_lock(&p->lock);
        if (clear || p->stop) continue;
        p->work = true;
        struct timespec until = cache_after(PAUSE_MS);
        cache_cond_until(&p->changed, &p->lock, &until);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

cache_replay *cache_replay_open(cache_tier *truth, cache_tier *keeper, void (*sent)(void *user, const char *key), void *user)
{
    cache_replay *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    *p = (cache_replay){.truth = truth, .keeper = keeper, .sent = sent, .user = user};
    cache_owed o = {0};
    p->work = keeper->ops->owed_next(keeper, 0, &o) != CACHE_MISS;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    if (pthread_create(&p->thread, NULL, replay, p) == 0) return p;
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->changed);
    free(p);
    return NULL;
}

void cache_replay_wake(cache_replay *p)
{
    pthread_mutex_lock(&p->lock);
    p->work = true;
    pthread_mutex_unlock(&p->lock);
    pthread_cond_signal(&p->changed);
}

void cache_replay_close(cache_replay *p)
{
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->changed);
    free(p);
}
