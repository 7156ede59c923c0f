/* Prepared answers: request bytes to reply, valid while the cache does not change. Keys are compared in full; bounded by bytes,
 * direct-mapped buckets of four. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "service/service.h"

enum { WAYS = 4, BUCKETS = 1024 };
typedef struct entry {
    char *key;
    size_t nkey;
    uint64_t generation, used;
    service_reply *reply;
} entry;
struct service_memo {
    pthread_mutex_t lock;
    int64_t bytes, most;
    uint64_t clock;
    entry entries[BUCKETS][WAYS];
};

typedef struct part {
    const char *p;
    size_t n;
} part;
enum { PARTS = 7 };
static void parts_of(const service_call *c, part out[PARTS])
{
    out[0] = (part){c->method, strlen(c->method) + 1};
    out[1] = (part){c->uri, strlen(c->uri) + 1};
    out[2] = (part){c->accept, strlen(c->accept) + 1};
    out[3] = (part){c->content_type, strlen(c->content_type) + 1};
    out[4] = (part){service_coding_text(c->coding), 5};
    out[5] = (part){c->who.sees_all ? "" : c->who.tenant, c->who.sees_all ? 1 : strlen(c->who.tenant) + 1};
    out[6] = (part){c->body, c->n};
}

/* FNV-1a over eight bytes at a time; only a bucket number, never trusted. */
static uint64_t hash_of(const part *p)
{
    uint64_t h = 1469598103934665603u;
    for (int i = 0; i < PARTS; i++) {
        size_t k = 0;
        for (; k + 8 <= p[i].n; k += 8) {
            uint64_t v;
            memcpy(&v, p[i].p + k, 8);
            h = (h ^ v) * 1099511628211u;
            h ^= h >> 29;
        }
        for (; k < p[i].n; k++) h = (h ^ (uint8_t)p[i].p[k]) * 1099511628211u;
    }
    return h ^ h >> 32;
}

static bool same(const entry *e, const part *p)
{
    size_t at = 0;
    for (int i = 0; i < PARTS; at += p[i++].n)
        if (e->nkey - at < p[i].n || (p[i].n && memcmp(e->key + at, p[i].p, p[i].n))) return false;
    return at == e->nkey;
}

static void empty(service_memo *m, entry *e)
{
    if (!e->key) return;
    m->bytes -= (int64_t)(e->nkey + e->reply->n);
    free(e->key);
    service_reply_drop(e->reply);
    *e = (entry){0};
}

service_memo *service_memo_open(int64_t bytes)
{
    service_memo *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    pthread_mutex_init(&m->lock, NULL);
    m->most = bytes;
    return m;
}

void service_memo_close(service_memo *m)
{
    if (!m) return;
    for (int b = 0; b < BUCKETS; b++)
        for (int w = 0; w < WAYS; w++) empty(m, &m->entries[b][w]);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

service_reply *service_memo_get(service_memo *m, const service_call *c, uint64_t generation)
{
    part p[PARTS];
    service_reply *r = NULL;
    parts_of(c, p);
    entry *bucket = m->entries[hash_of(p) % BUCKETS];
    pthread_mutex_lock(&m->lock);
    for (int w = 0; w < WAYS && !r; w++) {
        if (!bucket[w].key || bucket[w].generation != generation || !same(&bucket[w], p)) continue;
        bucket[w].used = ++m->clock;
        r = service_reply_ref(bucket[w].reply);
    }
    pthread_mutex_unlock(&m->lock);
    return r;
}

void service_memo_put(service_memo *m, const service_call *c, uint64_t generation, service_reply *r)
{
    part p[PARTS];
    size_t n = 0, at = 0;
    parts_of(c, p);
    for (int i = 0; i < PARTS; i++) n += p[i].n;
    char *key = (int64_t)(n + r->n) <= m->most / 4 ? malloc(n) : NULL;
    if (!key) return;
    for (int i = 0; i < PARTS; at += p[i++].n)
        if (p[i].n) memcpy(key + at, p[i].p, p[i].n);
    entry *bucket = m->entries[hash_of(p) % BUCKETS], *e = &bucket[0];
    pthread_mutex_lock(&m->lock);
    for (int w = 0; w < WAYS; w++) {
        if (bucket[w].key && same(&bucket[w], p)) {
            e = &bucket[w];
            break;
        }
        if (bucket[w].used < e->used) e = &bucket[w];
    }
    empty(m, e);
    for (int b = 0; b < BUCKETS && m->bytes + (int64_t)(n + r->n) > m->most; b++) /* full: stale ones go first, then all */
        for (int w = 0; w < WAYS; w++)
            if (m->entries[b][w].generation != generation || b > BUCKETS / 2) empty(m, &m->entries[b][w]);
    if (m->bytes + (int64_t)(n + r->n) <= m->most) {
        *e = (entry){key, n, generation, ++m->clock, service_reply_ref(r)};
        m->bytes += (int64_t)(n + r->n);
    } else {
        free(key);
    }
    pthread_mutex_unlock(&m->lock);
}
