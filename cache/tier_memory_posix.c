/* The memory tier: the latest record of a key, artifacts and "impossible" answers, bounded by bytes, with second-chance eviction. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cache/tier.h"

enum { SHARDS = 16, BUCKETS = 4096, RECORD_CHANCES = 3, BLOB_CHANCES = 1 };

typedef struct entry {
    struct entry *next;       /* of the bucket */
    struct entry *newer, *older; /* ring of the shard, for the clock hand */
    size_t bytes;
    atomic_int chances;       /* the hand takes one each time round; a hit gives them back */
    int chances_max;
    cache_record *record;     /* or */
    char *data;
    size_t ndata;
    char *id;                 /* behind the entry, in the same allocation */
} entry;

typedef struct shard {
    pthread_rwlock_t lock;
    entry *buckets[BUCKETS];
    entry ring;
    entry *hand;
} shard;

typedef struct memory_tier { cache_tier base; int64_t max; atomic_uint turn; shard shards[SHARDS]; } memory_tier;

static memory_tier *of(cache_tier *t) { return (memory_tier *)t; }
static shard *shard_of(memory_tier *m, uint64_t h) { return &m->shards[h % SHARDS]; }

static entry **find(shard *s, uint64_t h, const char *id)
{
    entry **at = &s->buckets[h / SHARDS % BUCKETS];
    while (*at && strcmp((*at)->id, id)) at = &(*at)->next;
    return at;
}

static void entry_free(entry *e)
{
    cache_release(e->record);
    free(e->data);
    free(e);
}

/* Under the shard's write lock. */
static void unlink_entry(memory_tier *m, shard *s, entry **at)
{
    entry *e = *at;
    *at = e->next;
    if (s->hand == e) s->hand = e->newer;
    e->newer->older = e->older;
    e->older->newer = e->newer;
    atomic_fetch_sub(&m->base.bytes, (long long)e->bytes);
    entry_free(e);
}

/* One step of the clock in one shard. False when the shard is empty. */
static bool evict_step(memory_tier *m, shard *s)
{
    pthread_rwlock_wrlock(&s->lock);
    entry *e = s->hand == &s->ring ? s->ring.newer : s->hand;
    bool some = e != &s->ring;
    if (some) {
        s->hand = e->newer;
        if (atomic_fetch_sub(&e->chances, 1) <= 0) {
            unlink_entry(m, s, find(s, cache_hash(e->id), e->id));
            atomic_fetch_add(&m->base.evict, 1);
        }
    }
    pthread_rwlock_unlock(&s->lock);
    return some;
}

/* Room is reserved before anything is stored, so the bound holds at every instant. */
static bool reserve(memory_tier *m, size_t bytes)
{
    if ((int64_t)bytes > m->max / 4) return false;
    long long used = atomic_fetch_add(&m->base.bytes, (long long)bytes) + (long long)bytes;
    for (int empty = 0; used > m->max && empty < SHARDS; used = atomic_load(&m->base.bytes))
        empty = evict_step(m, &m->shards[atomic_fetch_add(&m->turn, 1) % SHARDS]) ? 0 : empty + 1;
    if (used <= m->max) return true;
    atomic_fetch_sub(&m->base.bytes, (long long)bytes);
    return false;
}

/* Takes over record or data; an entry of the same id is replaced. */
static enum cache_status insert(memory_tier *m, const char *id, cache_record *record, char *data, size_t ndata)
{
    size_t bytes = sizeof(entry) + strlen(id) + 1 + (record ? cache_record_bytes(record) : ndata);
    entry *e = reserve(m, bytes) ? calloc(1, sizeof *e + strlen(id) + 1) : NULL;
    if (!e) {
        cache_release(record);
        free(data);
        return CACHE_MISS;
    }
    e->bytes = bytes;
    e->record = record;
    e->data = data;
    e->ndata = ndata;
    e->chances_max = record ? RECORD_CHANCES : BLOB_CHANCES;
    atomic_init(&e->chances, e->chances_max);
    e->id = (char *)(e + 1);
    memcpy(e->id, id, strlen(id) + 1);
    uint64_t h = cache_hash(id);
    shard *s = shard_of(m, h);
    pthread_rwlock_wrlock(&s->lock);
    entry **at = find(s, h, id);
    if (*at) unlink_entry(m, s, at);
    at = find(s, h, id);
    *at = e;
    e->newer = &s->ring; /* behind the hand's start: looked at last */
    e->older = s->ring.older;
    e->older->newer = e;
    s->ring.older = e;
    pthread_rwlock_unlock(&s->lock);
    return CACHE_OK;
}

static void drop(memory_tier *m, const char *id)
{
    uint64_t h = cache_hash(id);
    shard *s = shard_of(m, h);
    pthread_rwlock_wrlock(&s->lock);
    entry **at = find(s, h, id);
    if (*at) unlink_entry(m, s, at);
    pthread_rwlock_unlock(&s->lock);
}

/* A record (a reference) or a copy of data. */
static enum cache_status lookup(memory_tier *m, const char *id, cache_record **record, char **data, size_t *n)
{
    uint64_t h = cache_hash(id);
    shard *s = shard_of(m, h);
    enum cache_status st = CACHE_MISS;
    pthread_rwlock_rdlock(&s->lock);
    entry *e = *find(s, h, id);
    if (e) {
        if (atomic_load_explicit(&e->chances, memory_order_relaxed) != e->chances_max) atomic_store(&e->chances, e->chances_max);
        st = CACHE_OK;
        if (record) *record = cache_record_ref(e->record);
        else if ((*data = malloc(e->ndata + 1))) {
            memcpy(*data, e->data, e->ndata);
            (*data)[e->ndata] = 0;
            if (n) *n = e->ndata;
        } else st = CACHE_ERROR;
    }
    pthread_rwlock_unlock(&s->lock);
    return st;
}

static enum cache_status memory_open(const cache_config *cfg, cache_tier **out, cache_error *e)
{
    memory_tier *m = calloc(1, sizeof *m);
    if (!m) {
        snprintf(e->message, sizeof e->message, "out of memory");
        return CACHE_ERROR;
    }
    m->max = cfg->memory_bytes > 0 ? cfg->memory_bytes : INT64_C(256) << 20;
    for (int i = 0; i < SHARDS; i++) {
        shard *s = &m->shards[i];
        pthread_rwlock_init(&s->lock, NULL);
        s->ring.newer = s->ring.older = s->hand = &s->ring;
    }
    *out = &m->base;
    return CACHE_OK;
}

static void memory_close(cache_tier *t)
{
    for (int i = 0; i < SHARDS; i++) {
        shard *s = &of(t)->shards[i];
        for (entry *e = s->ring.newer, *next; e != &s->ring; e = next) {
            next = e->newer;
            entry_free(e);
        }
        pthread_rwlock_destroy(&s->lock);
    }
    free(t);
}

static void id_of(char *out, size_t size, char kind, const char *a, const char *b)
{
    snprintf(out, size, "%c:%s:%s", kind, a, b);
}

static enum cache_status memory_get(cache_tier *t, const char *key, int64_t version, cache_record **out)
{
    char id[160];
    id_of(id, sizeof id, 'k', key, "");
    cache_record *r;
    enum cache_status st = lookup(of(t), id, &r, NULL, NULL);
    if (st != CACHE_OK) return st;
    if (version && r->version != version) {
        cache_release(r);
        return CACHE_MISS;
    }
    *out = r;
    return CACHE_OK;
}

static enum cache_status memory_put_blob(cache_tier *t, const cache_blob *b)
{
    char id[160];
    id_of(id, sizeof id, 'b', b->digest, "");
    char *data = malloc(b->bytes.n + 1);
    if (!data) return CACHE_ERROR;
    if (b->bytes.n) memcpy(data, b->bytes.p, b->bytes.n);
    return insert(of(t), id, NULL, data, b->bytes.n);
}

static enum cache_status memory_put(cache_tier *t, cache_record *r, const cache_blob *blobs, int nblobs)
{
    char id[160];
    id_of(id, sizeof id, 'k', r->key, "");
    cache_record *copy = cache_record_copy(r);
    if (!copy) return CACHE_ERROR;
    for (int i = 0; i < nblobs; i++) memory_put_blob(t, &blobs[i]);
    return insert(of(t), id, copy, NULL, 0);
}

static void memory_forget(cache_tier *t, const char *key)
{
    char id[160];
    id_of(id, sizeof id, 'k', key, "");
    drop(of(t), id);
}

static enum cache_status memory_verdict(cache_tier *t, const char *key, int64_t version, enum cache_verification v, const char *json)
{
    cache_record *old, *now;
    enum cache_status st = memory_get(t, key, version, &old);
    if (st != CACHE_OK) return st;
    now = v == CACHE_FAILED ? NULL : cache_record_copy(old);
    cache_release(old);
    memory_forget(t, key);
    if (!now) return CACHE_OK;
    now->verification = v;
    snprintf(now->verdict, sizeof now->verdict, "%s", json ? json : "");
    char id[160];
    id_of(id, sizeof id, 'k', key, "");
    return insert(of(t), id, now, NULL, 0);
}

static enum cache_status memory_get_blob(cache_tier *t, const char *digest, char **bytes, size_t *n)
{
    char id[160];
    id_of(id, sizeof id, 'b', digest, "");
    return lookup(of(t), id, NULL, bytes, n);
}

static void memory_drop_blob(cache_tier *t, const char *digest)
{
    char id[160];
    id_of(id, sizeof id, 'b', digest, "");
    drop(of(t), id);
}

static enum cache_status memory_get_impossible(cache_tier *t, const char *key, const char *fingerprint, char **json)
{
    char id[160];
    id_of(id, sizeof id, 'i', key, fingerprint);
    return lookup(of(t), id, NULL, json, NULL);
}

static enum cache_status memory_put_impossible(cache_tier *t, const char *key, kiln_bytes canon, const char *fingerprint, const char *json)
{
    (void)canon;
    char id[160];
    id_of(id, sizeof id, 'i', key, fingerprint);
    char *data = strdup(json);
    return data ? insert(of(t), id, NULL, data, strlen(json)) : CACHE_ERROR;
}

const tier_ops cache_tier_memory = {
    .name = "memory", .kind = TIER_COPY, .trusted = true, .open = memory_open, .close = memory_close, .get = memory_get, .put = memory_put,
    .verdict = memory_verdict, .get_blob = memory_get_blob, .put_blob = memory_put_blob, .drop_blob = memory_drop_blob,
    .get_impossible = memory_get_impossible, .put_impossible = memory_put_impossible, .forget = memory_forget,
};
