/* The front of the cache: asks the tiers in order, checks what they answer, fills the nearer ones, and keeps them agreed after a write. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include "cache/tier.h"

static const tier_ops *const table[] = {
#define X(name, ops) &ops,
#include "cache/tiers.def"
#undef X
};
enum { TIERS = sizeof table / sizeof *table, STRIPES = 64, DENIED_MAX = 256, FLOORS = 1024, FULL_MS = 1000 };

/* A fill of a copy races with a write of the same key: it is done only when no write came in between, which the epoch tells. */
typedef struct stripe { pthread_mutex_t lock; uint64_t epoch; } stripe;

struct cache {
    int n;
    cache_tier *tiers[TIERS];     /* in the order they are asked */
    cache_tier *writes[TIERS];    /* in the order they are written: the truth, other stores, then copies, nearest last */
    cache_tier *truth, *keeper;   /* the first store; the one behind it that keeps what the truth cannot take, or NULL */
    cache_replay *replay;         /* only with a keeper */
    char process[24];
    cache_seals seals;
    cache_flights *flights;
    atomic_ullong generation;
    atomic_llong full_until;      /* by the monotonic clock */
    atomic_llong ahead;           /* of the truth's clock before this machine's monotonic one; 0: not known */
    stripe stripes[STRIPES];
    /* Versions that failed while no store could write it down: not served by this process at least. */
    pthread_mutex_t denied_lock;
    atomic_int ndenied;
    struct { char key[72]; int64_t version; } denied[DENIED_MAX];
    /* The last versions that the truth is known to have, by the key's hash: what one older than that is told by while the truth is away. */
    struct { uint64_t hash; int64_t version; } floors[FLOORS];
};

#define COUNT(t, field) atomic_fetch_add_explicit(&(t)->field, 1, memory_order_relaxed)

static void written(cache *c, const char *key);
static void deny(cache *c, const char *key, int64_t version);

static void after_replay(void *user, const char *key) { written(user, key); }

/* Orders the tiers for writing; what is owed from before is refused where it says so, and sent as soon as the truth answers. */
static bool arrange(cache *c)
{
    int n = 0;
    cache_owed o = {0};
    for (int i = 0; i < c->n; i++) {
        cache_tier *t = c->tiers[i];
        if (t->ops->kind != TIER_STORE) continue;
        if (!c->truth) c->truth = t;
        else if (!c->keeper && t->ops->owe) c->keeper = t;
        c->writes[n++] = t;
    }
    for (int i = c->n - 1; i >= 0; i--)
        if (c->tiers[i]->ops->kind != TIER_STORE) c->writes[n++] = c->tiers[i];
    if (!c->keeper) return true;
    while (c->keeper->ops->owed_next(c->keeper, o.id, &o) == CACHE_OK)
        if (o.kind == 'v' && o.state == CACHE_FAILED) deny(c, o.key, o.version);
    c->replay = cache_replay_open(c->truth, c->keeper, after_replay, c);
    return c->replay != NULL;
}

cache *cache_open(const cache_config *cfg, cache_error *e)
{
    e->message[0] = 0;
    cache *c = calloc(1, sizeof *c);
    if (!c || !(c->flights = cache_flights_open())) {
        snprintf(e->message, sizeof e->message, "out of memory");
        free(c);
        return NULL;
    }
    cache_digest_open();
    for (int i = 0; i < STRIPES; i++) pthread_mutex_init(&c->stripes[i].lock, NULL);
    pthread_mutex_init(&c->denied_lock, NULL);
    atomic_init(&c->generation, 1);
    cache_config named = *cfg;
    uint64_t drawn = 0;
    if (getrandom(&drawn, sizeof drawn, 0) != (ssize_t)sizeof drawn) drawn = (uint64_t)cache_mono_ms();
    snprintf(c->process, sizeof c->process, "p%016llx", (unsigned long long)drawn);
    named.process = c->process;
    for (int i = 0; i < TIERS; i++) {
        enum cache_status st = table[i]->open(&named, &c->tiers[c->n], e);
        if (st == CACHE_ERROR) {
            cache_close(c);
            return NULL;
        }
        if (st == CACHE_OK) c->tiers[c->n++]->ops = table[i];
    }
    if (arrange(c)) return c;
    snprintf(e->message, sizeof e->message, "out of memory or threads");
    cache_close(c);
    return NULL;
}

const char *cache_process(const cache *c) { return c->process; }

void cache_close(cache *c)
{
    if (!c) return;
    cache_replay_close(c->replay);
    for (int i = 0; i < c->n; i++) c->tiers[i]->ops->close(c->tiers[i]);
    cache_flights_close(c->flights);
    for (int i = 0; i < STRIPES; i++) pthread_mutex_destroy(&c->stripes[i].lock);
    pthread_mutex_destroy(&c->denied_lock);
    free(c);
}

uint64_t cache_generation(const cache *c)
{
    return atomic_load_explicit(&((cache *)(uintptr_t)c)->generation, memory_order_acquire);
}

static stripe *stripe_of(cache *c, const char *key) { return &c->stripes[cache_hash(key) % STRIPES]; }

static uint64_t epoch_of(cache *c, const char *key)
{
    stripe *s = stripe_of(c, key);
    pthread_mutex_lock(&s->lock);
    uint64_t epoch = s->epoch;
    pthread_mutex_unlock(&s->lock);
    return epoch;
}

/* After a write: copies forget the key, late fills are void, prepared answers are old. */
static void written(cache *c, const char *key)
{
    stripe *s = stripe_of(c, key);
    pthread_mutex_lock(&s->lock);
    s->epoch++;
    for (int i = 0; i < c->n; i++)
        if (c->tiers[i]->ops->forget) c->tiers[i]->ops->forget(c->tiers[i], key);
    pthread_mutex_unlock(&s->lock);
    atomic_fetch_add(&c->generation, 1);
}

/* Only what this process alone has: the copies it shares were told by the writer. */
void cache_changed(cache *c, const char *key)
{
    stripe *s = stripe_of(c, key);
    pthread_mutex_lock(&s->lock);
    s->epoch++;
    for (int i = 0; i < c->n; i++)
        if (c->tiers[i]->ops->forget && c->tiers[i]->ops->trusted) c->tiers[i]->ops->forget(c->tiers[i], key);
    pthread_mutex_unlock(&s->lock);
    atomic_fetch_add(&c->generation, 1);
}

void cache_forget(cache *c, const char *key) { written(c, key); }

static bool is_denied(cache *c, const char *key, int64_t version)
{
    if (!atomic_load(&c->ndenied)) return false;
    bool found = false;
    pthread_mutex_lock(&c->denied_lock);
    for (int i = 0; i < atomic_load(&c->ndenied) && !found; i++)
        found = c->denied[i].version == version && !strcmp(c->denied[i].key, key);
    pthread_mutex_unlock(&c->denied_lock);
    return found;
}

static void deny(cache *c, const char *key, int64_t version)
{
    pthread_mutex_lock(&c->denied_lock);
    int n = atomic_load(&c->ndenied);
    if (n < DENIED_MAX && strlen(key) < sizeof c->denied[n].key) {
        memcpy(c->denied[n].key, key, strlen(key) + 1);
        c->denied[n].version = version;
        atomic_store(&c->ndenied, n + 1);
    }
    pthread_mutex_unlock(&c->denied_lock);
}

static int64_t floor_of(cache *c, const char *key, int64_t version)
{
    uint64_t hash = cache_hash(key);
    pthread_mutex_lock(&c->denied_lock);
    int64_t known = c->floors[hash % FLOORS].hash == hash ? c->floors[hash % FLOORS].version : 0;
    if (version > known && version < CACHE_PROVISIONAL) {
        c->floors[hash % FLOORS].hash = hash;
        c->floors[hash % FLOORS].version = version;
    }
    pthread_mutex_unlock(&c->denied_lock);
    return known;
}

static enum cache_status look(cache *c, cache_tier *t, const char *key, int64_t version, cache_record **out)
{
    int64_t began = t->ops->answer_ms ? cache_mono_ms() : 0;
    bool judged = c->seals.judge && t->ops->history;
    enum cache_status st = judged ? cache_judged(&c->seals, t, key, version, out) : t->ops->get(t, key, version, out);
    if (judged && st == CACHE_OK && !version) floor_of(c, key, (*out)->version);
    if (st == CACHE_OK) COUNT(t, hit);
    else if (st == CACHE_MISS) COUNT(t, miss);
    else if (st == CACHE_QUARANTINED) COUNT(t, quarantined);
    else if (t->ops->answer_ms && cache_mono_ms() - began >= t->ops->answer_ms) COUNT(t, timeout);
    else COUNT(t, error);
    return st;
}

static bool same(kiln_bytes a, kiln_bytes b) { return a.n == b.n && (a.n == 0 || !memcmp(a.p, b.p, a.n)); }

static void fill(cache *c, int found, cache_record *r, uint64_t epoch)
{
    stripe *s = stripe_of(c, r->key);
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < found && s->epoch == epoch; i++) {
        if (c->tiers[i]->ops->kind != TIER_COPY) continue;
        if (c->tiers[i]->ops->put(c->tiers[i], r, NULL, 0) == CACHE_OK) COUNT(c->tiers[i], fill);
    }
    pthread_mutex_unlock(&s->lock);
}

void cache_set_seals(cache *c, const cache_seals *s) { c->seals = *s; }

bool cache_trusts(cache *c, const cache_record *r)
{
    return !c->truth->ops->shared || !c->seals.judge ||
           (c->seals.judge(c->seals.user, r->key, r, true) && cache_verdict_counts(&c->seals, r, r->verification, r->verdict));
}

/* What one tier knows of a key, without what nobody whose word counts has signed; a copy that others write to must be the truth's last version. */
static enum cache_status look_trusted(cache *c, cache_tier *t, const char *key, int64_t version, cache_record **out)
{
    enum cache_status st = look(c, t, key, version, out);
    if (st != CACHE_OK || t->ops->kind == TIER_STORE || !t->ops->shared || !c->seals.judge) return st;
    bool counts = cache_copy_counts(&c->seals, t, key, *out);
    if (counts && !cache_copy_is_old(c->truth, c->keeper, *out, floor_of(c, key, 0))) return CACHE_OK;
    if (counts) COUNT(t, refused);
    cache_release(*out);
    *out = NULL;
    return CACHE_MISS;
}

enum cache_status cache_get(cache *c, const char *key, kiln_bytes canon, cache_record **out, const char **tier)
{
    bool error = false, quarantined = false;
    uint64_t epoch = epoch_of(c, key);
    for (int i = 0; i < c->n; i++) {
        cache_tier *t = c->tiers[i];
        cache_record *r = NULL;
        enum cache_status st = look_trusted(c, t, key, 0, &r);
        error |= st == CACHE_ERROR && t->ops->kind == TIER_STORE;
        quarantined |= st == CACHE_QUARANTINED;
        if (st == CACHE_QUARANTINED && t == c->truth && c->keeper) break; /* what is kept behind it may not know yet */
        if (st != CACHE_OK) continue;
        bool denied = is_denied(c, key, r->version);
        quarantined |= denied;
        if (canon.p && !same(canon, r->canon)) COUNT(t, canon_mismatch);
        else if (!denied) {
            fill(c, i, r, epoch);
            *out = r;
            if (tier) *tier = t->ops->name;
            return CACHE_OK;
        }
        cache_release(r);
    }
    return quarantined ? CACHE_QUARANTINED : error ? CACHE_ERROR : CACHE_MISS;
}

/* A provisional version may have got its number meanwhile. */
static int64_t settled(cache *c, const char *key, int64_t version)
{
    return c->keeper && version >= CACHE_PROVISIONAL ? c->keeper->ops->number(c->keeper, key, version) : version;
}

enum cache_status cache_get_version(cache *c, const char *key, int64_t version, cache_record **out)
{
    if (version <= 0) return CACHE_MISS;
    bool error = false;
    version = settled(c, key, version);
    for (int i = 0; i < c->n; i++) {
        cache_tier *t = c->tiers[i];
        cache_record *r = NULL;
        enum cache_status st = look_trusted(c, t, key, version, &r);
        if (st == CACHE_OK && is_denied(c, key, version)) st = CACHE_QUARANTINED;
        if (st == CACHE_OK) *out = r;
        else cache_release(r);
        if (st == CACHE_OK || st == CACHE_QUARANTINED) return st;
        error |= st == CACHE_ERROR && t->ops->kind == TIER_STORE;
    }
    return error ? CACHE_ERROR : CACHE_MISS;
}

int cache_list(cache *c, const char *target, const char *cursor, int limit, cache_record **out)
{
    for (int i = 0; i < c->n && limit > 0; i++) {
        if (!c->tiers[i]->ops->list) continue;
        int n = c->tiers[i]->ops->list(c->tiers[i], target ? target : "", cursor ? cursor : "", limit, out);
        if (n >= 0) return n;
        COUNT(c->tiers[i], error);
    }
    return 0;
}

/* Digests of the blobs and of the artifacts they are; false when they contradict each other or an artifact has no bytes anywhere. */
static bool seal(cache_record *r, cache_blob *blobs, int nblobs)
{
    const int max = (int)(sizeof r->artifacts / sizeof *r->artifacts);
    if (!r->key[0] || r->nartifacts < 0 || r->nartifacts > max || nblobs < 0 || nblobs > r->nartifacts) return false;
    for (int i = 0; i < r->nartifacts; i++) {
        cache_artifact *a = &r->artifacts[i];
        if (i >= nblobs) {
            if (strlen(a->digest) != 64) return false;
            continue;
        }
        char digest[65];
        cache_digest(blobs[i].bytes.p, blobs[i].bytes.n, digest);
        if (blobs[i].digest[0] && strcmp(blobs[i].digest, digest)) return false;
        memcpy(blobs[i].digest, digest, sizeof digest);
        memcpy(a->digest, digest, sizeof digest);
        a->bytes = (int64_t)blobs[i].bytes.n;
    }
    if (r->created_ms == 0) r->created_ms = cache_unix_ms();
    return true;
}

/* No store took it: memory still serves it, as the version after the one it knows. */
static enum cache_status put_copies_only(cache *c, cache_record *r)
{
    enum cache_status status = CACHE_ERROR;
    for (int i = 0; i < c->n; i++) {
        cache_tier *t = c->tiers[i];
        cache_record *old;
        if (t->ops->kind != TIER_COPY) continue;
        r->version = 1;
        if (t->ops->get(t, r->key, 0, &old) == CACHE_OK) {
            r->version = old->version + 1;
            cache_release(old);
        }
        written(c, r->key);
        if (t->ops->put(t, r, NULL, 0) == CACHE_OK) status = CACHE_OK;
    }
    return status;
}

enum cache_status cache_put(cache *c, cache_record *r, const cache_blob *blobs, int nblobs, bool *stored)
{
    cache_blob sealed[sizeof r->artifacts / sizeof *r->artifacts];
    *stored = false;
    if (nblobs < 0 || nblobs > (int)(sizeof sealed / sizeof *sealed)) return CACHE_ERROR;
    if (nblobs) memcpy(sealed, blobs, sizeof *blobs * (size_t)nblobs);
    if (!seal(r, sealed, nblobs)) return CACHE_ERROR;
    r->version = 0;
    char *text = NULL, plain[CACHE_VERDICT_BYTES];
    bool full = false, signs = !r->statement.n && c->seals.sign && c->seals.sign(c->seals.user, r, &text);
    char *said = r->verification != CACHE_PENDING || *r->verdict ? cache_seal_verdict(&c->seals, r, r->verification, r->verdict) : NULL;
    memcpy(plain, r->verdict, sizeof plain);
    if (said) snprintf(r->verdict, sizeof r->verdict, "%s", said);
    free(said);
    for (int i = 0; i < c->n; i++) { /* the first store that takes it assigns the version */
        cache_tier *t = c->writes[i];
        bool ok = true;
        if (t->ops->kind == TIER_STORE) {
            enum cache_status put = t->ops->put(t, r, sealed, nblobs);
            ok = put == CACHE_OK;
            full |= put == CACHE_FULL;
            *stored |= ok;
            if (ok && t == c->keeper && r->version >= CACHE_PROVISIONAL) cache_replay_wake(c->replay);
        } else
            for (int j = 0; j < nblobs; j++) t->ops->put_blob(t, &sealed[j]);
        if (ok) COUNT(t, write);
        else COUNT(t, write_error);
    }
    enum cache_status st = CACHE_OK;
    if (!*stored) st = full ? CACHE_FULL : put_copies_only(c, r);
    else written(c, r->key);
    atomic_store(&c->full_until, !*stored && full ? cache_mono_ms() + FULL_MS : 0);
    if (st == CACHE_OK) cache_flights_stored(c->flights, r->key);
    if (*stored && c->seals.judge) floor_of(c, r->key, r->version);
    memcpy(r->verdict, plain, sizeof plain);
    if (signs) { /* the text is the caller's no longer than this call */
        r->statement = (kiln_bytes){0};
        *r->signer = *r->seal = 0;
        free(text);
    }
    return st;
}

bool cache_is_full(const cache *c) { return atomic_load(&((cache *)(uintptr_t)c)->full_until) > cache_mono_ms(); }

/* The verdict is kept for a truth that could not take it, and counts in the keeper at once. */
static enum cache_status owe_verdict(cache *c, const char *key, int64_t version, enum cache_verification v, const char *json)
{
    cache_owed o = {.kind = 'v', .version = version, .state = v};
    snprintf(o.key, sizeof o.key, "%s", key);
    snprintf(o.json, sizeof o.json, "%s", json ? json : "");
    enum cache_status st = c->keeper->ops->owe(c->keeper, &o);
    cache_replay_wake(c->replay);
    return st;
}

enum cache_status cache_verdict(cache *c, const char *key, int64_t version, enum cache_verification v, const char *json)
{
    bool known = false, error = false, durable = false, owed = false;
    version = settled(c, key, version);
    char *said = cache_seal_verdict_of(c, &c->seals, key, version, v, json);
    if (said) json = said;
    for (int i = 0; i < c->n; i++) {
        cache_tier *t = c->writes[i];
        enum cache_status st;
        if (t == c->truth && c->keeper && version >= CACHE_PROVISIONAL) { /* it does not have that version yet */
            owed = true;
            continue;
        }
        st = t == c->keeper && owed ? owe_verdict(c, key, version, v, json) : t->ops->verdict(t, key, version, v, json);
        owed |= st == CACHE_ERROR && t == c->truth && c->keeper;
        known |= st == CACHE_OK;
        durable |= st == CACHE_OK && t->ops->kind == TIER_STORE;
        error |= st == CACHE_ERROR && t->ops->kind == TIER_STORE;
        if (st == CACHE_ERROR) COUNT(t, write_error);
    }
    free(said);
    if (v == CACHE_FAILED && (owed || !durable) && (known || error)) deny(c, key, version);
    if (durable) written(c, key);
    else atomic_fetch_add(&c->generation, 1);
    return known ? CACHE_OK : error ? CACHE_ERROR : CACHE_MISS;
}

enum cache_status cache_put_impossible(cache *c, const char *key, kiln_bytes canon, const char *fingerprint, const char *json)
{
    enum cache_status status = CACHE_ERROR;
    char *said = cache_seal_impossible(&c->seals, key, fingerprint, json);
    for (int i = 0; i < c->n; i++)
        if (c->writes[i]->ops->put_impossible(c->writes[i], key, canon, fingerprint, said ? said : json) == CACHE_OK) status = CACHE_OK;
    free(said);
    atomic_fetch_add(&c->generation, 1);
    if (status == CACHE_OK) cache_flights_stored(c->flights, key);
    return status;
}

enum cache_status cache_get_impossible(cache *c, const char *key, const char *fingerprint, char **json)
{
    bool error = false;
    for (int i = 0; i < c->n; i++) {
        char *said = NULL;
        enum cache_status st = c->tiers[i]->ops->get_impossible(c->tiers[i], key, fingerprint, &said);
        if (st == CACHE_OK && cache_impossible_counts(&c->seals, c->tiers[i], key, fingerprint, said)) {
            for (int j = 0; j < i; j++)
                if (c->tiers[j]->ops->kind == TIER_COPY)
                    c->tiers[j]->ops->put_impossible(c->tiers[j], key, (kiln_bytes){"", 0}, fingerprint, said);
            *json = cache_sealed_plain(said);
            free(said);
            return *json ? CACHE_IMPOSSIBLE : CACHE_ERROR;
        }
        free(said);
        error |= st == CACHE_ERROR && c->tiers[i]->ops->kind == TIER_STORE;
    }
    return error ? CACHE_ERROR : CACHE_MISS;
}

enum cache_status cache_get_blob(cache *c, const char *digest, char **bytes, size_t *n)
{
    bool error = false, mismatch = false, lacks[TIERS] = {false};
    for (int i = 0; i < c->n; i++) {
        cache_tier *t = c->tiers[i];
        char *p = NULL, actual[65];
        size_t size = 0;
        enum cache_status st = t->ops->get_blob(t, digest, &p, &size);
        if (st == CACHE_OK && !t->ops->trusted) {
            cache_digest(p, size, actual);
            if (strcmp(actual, digest)) {
                free(p);
                t->ops->drop_blob(t, digest);
                COUNT(t, blob_mismatch);
                atomic_fetch_add(&c->generation, 1);
                mismatch = lacks[i] = true;
                continue;
            }
        }
        lacks[i] = st == CACHE_MISS;
        if (lacks[i]) COUNT(t, blob_miss);
        if (st == CACHE_ERROR) COUNT(t, blob_error);
        error |= st == CACHE_ERROR && t->ops->kind == TIER_STORE;
        if (st != CACHE_OK) continue;
        COUNT(t, blob_hit);
        cache_blob b = {"", {p, size}};
        snprintf(b.digest, sizeof b.digest, "%s", digest);
        for (int j = 0; j < i; j++)
            if (lacks[j]) c->tiers[j]->ops->put_blob(c->tiers[j], &b);
        *bytes = p;
        *n = size;
        return CACHE_OK;
    }
    return mismatch ? CACHE_QUARANTINED : error ? CACHE_ERROR : CACHE_MISS;
}

bool cache_flight_begin(cache *c, const char *key, int64_t deadline_ms, bool *collapsed, bool *timed_out)
{
    return cache_flights_begin(c->flights, key, deadline_ms, collapsed, timed_out);
}

void cache_flight_end(cache *c, const char *key)
{
    cache_flights_end(c->flights, key);
}

void cache_counters(cache *c, void (*emit)(void *user, const char *name, const char *tier, const char *result, int64_t value), void *user)
{
    for (int i = 0; i < c->n; i++) {
        cache_tier *t = c->tiers[i];
#define X(field, metric, label) /* who counts no bytes says nothing of them */ \
    if (&t->field != &t->bytes || atomic_load(&t->bytes)) emit(user, metric, t->ops->name, label, atomic_load(&t->field));
        TIER_COUNTERS(X)
#undef X
        if (t->ops->resting) emit(user, "kiln_breaker_open", t->ops->name, "", t->ops->resting(t));
    }
    cache_flights_counters(c->flights, emit, user);
}

enum cache_status cache_put_target(cache *c, const char *id, kiln_bytes json)
{
    enum cache_status status = CACHE_ERROR;
    bool owed = false;
    for (int i = 0; i < c->n; i++) {
        cache_tier *t = c->writes[i];
        if (!t->ops->put_target) continue;
        enum cache_status st = t->ops->put_target(t, id, json);
        if (st == CACHE_FULL && status != CACHE_OK) status = st;
        owed |= st == CACHE_ERROR && t == c->truth && c->keeper;
        if (st == CACHE_OK && t == c->keeper && owed) {
            cache_owed o = {.kind = 't'};
            snprintf(o.key, sizeof o.key, "%s", id);
            st = t->ops->owe(t, &o);
            cache_replay_wake(c->replay);
        }
        if (st == CACHE_OK) status = CACHE_OK;
    }
    atomic_fetch_add(&c->generation, 1);
    return status;
}

int cache_list_targets(cache *c, char ***ids, char ***jsons)
{
    *ids = *jsons = NULL;
    for (int i = 0; i < c->n; i++) {
        if (!c->tiers[i]->ops->list_targets) continue;
        int n = c->tiers[i]->ops->list_targets(c->tiers[i], ids, jsons);
        if (n >= 0) return n;
        free(*ids);
        free(*jsons);
        *ids = *jsons = NULL;
    }
    return 0;
}

enum cache_status cache_put_doc(cache *c, const char *kind, const char *id, kiln_bytes json)
{
    enum cache_status status = c->truth->ops->put_doc(c->truth, kind, id, json);
    if (status == CACHE_OK && c->keeper) c->keeper->ops->put_doc(c->keeper, kind, id, json);
    return status;
}

enum cache_status cache_get_doc(cache *c, const char *kind, const char *id, char **json)
{
    enum cache_status status = c->truth->ops->get_doc(c->truth, kind, id, json);
    return status == CACHE_ERROR && c->keeper ? c->keeper->ops->get_doc(c->keeper, kind, id, json) : status;
}

int cache_list_docs(cache *c, const char *kind, const char *after, int limit, cache_doc *out)
{
    int n = c->truth->ops->list_docs(c->truth, kind, after, limit, out);
    return n < 0 && c->keeper ? c->keeper->ops->list_docs(c->keeper, kind, after, limit, out) : n;
}

int64_t cache_forget_docs(cache *c, const char *kind, int64_t older_ms)
{
    int64_t n = c->truth->ops->forget_docs(c->truth, kind, older_ms);
    if (n >= 0 && c->keeper) c->keeper->ops->forget_docs(c->keeper, kind, older_ms);
    return n;
}

int64_t cache_forget_impossible(cache *c, const char *fingerprint, int64_t older_ms)
{
    int64_t n = c->truth->ops->forget_impossible(c->truth, fingerprint, older_ms);
    if (n >= 0 && c->keeper) c->keeper->ops->forget_impossible(c->keeper, fingerprint, older_ms);
    return n;
}

int64_t cache_store_ms(const cache *c)
{
    long long ahead = atomic_load(&((cache *)(uintptr_t)c)->ahead);
    return ahead ? ahead + cache_mono_ms() : cache_unix_ms();
}

void cache_learn_clock(cache *c)
{
    int64_t before = cache_mono_ms(), now = c->truth->ops->now(c->truth), after = cache_mono_ms();
    if (now) atomic_store(&c->ahead, now - (before + after) / 2);
}
