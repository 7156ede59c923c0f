/* What a tier is: the private contract between the front (cache_posix.c) and one kind of store.
 *
 * A STORE is a source of truth: it assigns versions, lists, and its "not there" counts. A COPY may forget anything at any time and never assigns.
 * Every call is thread-safe. CACHE_ERROR means "could not find out"; the front counts it and asks the next tier. */
#ifndef CACHE_TIER_H
#define CACHE_TIER_H
#include <stdatomic.h>
#include "cache/cache.h"
#include "cache/clock_posix.h"

enum tier_kind { TIER_COPY, TIER_STORE };
/* Counters of every tier: X(field, metric name, result label). */
#define TIER_COUNTERS(X) \
    X(hit, "kiln_cache_lookups_total", "hit") \
    X(miss, "kiln_cache_lookups_total", "miss") \
    X(error, "kiln_cache_lookups_total", "error") \
    X(timeout, "kiln_cache_lookups_total", "timeout") \
    X(quarantined, "kiln_cache_lookups_total", "quarantined") \
    X(blob_hit, "kiln_cache_blob_reads_total", "hit") \
    X(blob_miss, "kiln_cache_blob_reads_total", "miss") \
    X(blob_error, "kiln_cache_blob_reads_total", "error") \
    X(blob_mismatch, "kiln_cache_blob_reads_total", "mismatch") \
    X(canon_mismatch, "kiln_cache_canon_mismatch_total", "") \
    X(refused, "kiln_cache_refused_total", "") \
    X(bad_record, "kiln_cache_bad_records_total", "") \
    X(write, "kiln_cache_writes_total", "ok") \
    X(write_error, "kiln_cache_writes_total", "error") \
    X(fill, "kiln_cache_fills_total", "") \
    X(evict, "kiln_cache_evictions_total", "") \
    X(skipped, "kiln_cache_skipped_total", "") \
    X(replayed, "kiln_cache_replayed_total", "") \
    X(bytes, "kiln_store_bytes", "") \
    X(corrupt_database, "kiln_cache_corrupt_databases_total", "")

/* Versions from here on were assigned by this process's own store while the truth was away; they get another number when it takes them. */
#define CACHE_PROVISIONAL (INT64_C(1) << 30)
/* Something the truth has not taken yet. kind: 'r' a record, 'v' a verdict, 't' a hardware description (key is its id, the rest unused). */
typedef struct cache_owed {
    int64_t id;
    char kind, key[KILN_MAX_NAME_BYTES + 8];
    int64_t version;
    enum cache_verification state;
    char json[CACHE_VERDICT_BYTES];
} cache_owed;

typedef struct cache_said { enum cache_verification state; char text[CACHE_VERDICT_BYTES]; } cache_said; /* a verdict */
struct tier_ops;
/* First member of every tier's own structure. */
typedef struct cache_tier {
    const struct tier_ops *ops;
#define X(field, metric, label) atomic_llong field;
    TIER_COUNTERS(X)
#undef X
} cache_tier;

typedef struct tier_ops {
    const char *name;
    enum tier_kind kind;
    int answer_ms; /* a lookup that failed after so long ran out of time; 0: it has no such bound */
    bool shared;  /* others write to it by the network: signatures are looked at */
    bool trusted; /* bytes cannot change behind its back: digests were checked on the way in */
    /* CACHE_MISS: not configured. CACHE_ERROR with *e: cannot be used. A remote tier that is down opens all the same. */
    enum cache_status (*open)(const cache_config *cfg, cache_tier **out, cache_error *e);
    void (*close)(cache_tier *t);
    /* version 0: the latest not quarantined; CACHE_QUARANTINED when there are only such. A given version: CACHE_QUARANTINED fills *out too. */
    enum cache_status (*get)(cache_tier *t, const char *key, int64_t version, cache_record **out);
    /* All or nothing, with its blobs (blobs[i].digest filled). r->version 0: assigned, latest + 1; else kept, and an existing version wins. */
    enum cache_status (*put)(cache_tier *t, cache_record *r, const cache_blob *blobs, int nblobs);
    enum cache_status (*verdict)(cache_tier *t, const char *key, int64_t version, enum cache_verification v, const char *json);
    enum cache_status (*get_blob)(cache_tier *t, const char *digest, char **bytes, size_t *n); /* not checked yet */
    enum cache_status (*put_blob)(cache_tier *t, const cache_blob *b);
    void (*drop_blob)(cache_tier *t, const char *digest);
    enum cache_status (*get_impossible)(cache_tier *t, const char *key, const char *fingerprint, char **json);
    enum cache_status (*put_impossible)(cache_tier *t, const char *key, kiln_bytes canon, const char *fingerprint, const char *json);
    bool (*resting)(cache_tier *t); /* its breaker is open; NULL: it has none */
    /* Stores that others write to: the version before `below`, whatever is said of it, and all that is, oldest first; *said: free(). */
    enum cache_status (*history)(cache_tier *t, const char *key, int64_t below, cache_record **out, cache_said **said, int *n);
    /* Stores: what get of version 0 would answer, without its bytes. NULL: it cannot say. */
    enum cache_status (*newest)(cache_tier *t, const char *key, int64_t *version, enum cache_verification *v);
    /* Copies only. */
    void (*forget)(cache_tier *t, const char *key);
    /* Stores only. */
    int (*list)(cache_tier *t, const char *target, const char *cursor, int limit, cache_record **out); /* -1: error */
    enum cache_status (*put_target)(cache_tier *t, const char *id, kiln_bytes json);
    int (*list_targets)(cache_tier *t, char ***ids, char ***jsons); /* -1: error */
    enum cache_status (*put_doc)(cache_tier *t, const char *kind, const char *id, kiln_bytes json); /* json.p NULL: removes */
    enum cache_status (*get_doc)(cache_tier *t, const char *kind, const char *id, char **json);
    int64_t (*forget_docs)(cache_tier *t, const char *kind, int64_t older_ms); /* count; -1: error */
    int64_t (*forget_impossible)(cache_tier *t, const char *fingerprint, int64_t older_ms);
    int64_t (*now)(cache_tier *t); /* unix ms by its clock; 0: error */
    int (*list_docs)(cache_tier *t, const char *kind, const char *after, int limit, cache_doc *out); /* -1: error */
    /* Stores that keep what the truth could not take. A put of version 0 to one that is behind a truth is owed by itself.
     * owe: durable when it returns CACHE_OK; a verdict counts here at once. next: the first with an id above `after`; CACHE_MISS: none.
     * paid: the truth took it, a record as `version`. number: the version that a provisional one has got, itself when none yet. */
    enum cache_status (*owe)(cache_tier *t, const cache_owed *o);
    enum cache_status (*owed_next)(cache_tier *t, int64_t after, cache_owed *o);
    enum cache_status (*owed_paid)(cache_tier *t, const cache_owed *o, int64_t version);
    int64_t (*number)(cache_tier *t, const char *key, int64_t version);
} tier_ops;

#define X(name, ops) extern const tier_ops ops;
#include "cache/tiers.def"
#undef X

/* ---- records (record.c) ---- */
cache_record *cache_record_copy(const cache_record *r); /* one allocation, one reference; NULL when out of memory */
cache_record *cache_record_ref(cache_record *r);        /* only for records made by cache_record_copy or _decode */
size_t cache_record_bytes(const cache_record *r);       /* memory it takes */
/* What a store writes to the log (kiln_event) about a put and about a verdict: the data, and for a verdict the kind. */
enum { CACHE_EVENT_BYTES = 200 };
void cache_event_put(const cache_record *r, char data[CACHE_EVENT_BYTES]);
const char *cache_event_verdict(enum cache_verification v, char data[CACHE_EVENT_BYTES]);
enum { CACHE_EVICT_LOCK = 0x6b696c65 };
int64_t cache_record_room(const cache_record *r, size_t body); /* bytes it takes in a store, with its artifacts */
void cache_digest_open(void); /* what the first digest would wait for: OpenSSL reads its configuration, which takes as long as three puts */
void cache_digest(const void *p, size_t n, char out[65]); /* cache_sha256 as hex */
uint64_t cache_hash(const char *s);

/* ---- what counts (sealed.c): s has a judge where records are judged ---- */
char *cache_seal_verdict(const cache_seals *s, const cache_record *r, enum cache_verification v, const char *json); /* NULL: it stays as it is */
/* Over the record's bytes, since its version may get another number; NULL too when the record is not known. */
char *cache_seal_verdict_of(cache *c, const cache_seals *s, const char *key, int64_t version, enum cache_verification v, const char *json);
char *cache_seal_impossible(const cache_seals *s, const char *key, const char *fingerprint, const char *json);
bool cache_verdict_counts(const cache_seals *s, const cache_record *r, enum cache_verification v, const char *text);
bool cache_impossible_counts(const cache_seals *s, cache_tier *t, const char *key, const char *fingerprint, const char *json);
/* As get of a store with a history, of versions and verdicts that count. */
enum cache_status cache_judged(const cache_seals *s, cache_tier *t, const char *key, int64_t version, cache_record **out);
bool cache_copy_counts(const cache_seals *s, cache_tier *t, const char *key, const cache_record *r);
/* The truth has another version or verdict; while it does not answer, the keeper or this process (floor) has seen a later one. */
bool cache_copy_is_old(cache_tier *truth, cache_tier *keeper, const cache_record *r, int64_t floor);

/* ---- replay (replay_posix.c): a thread that sends what the keeper owes, from the start and whenever woken, until nothing is left ---- */
typedef struct cache_replay cache_replay;
/* sent: after a record got its number. NULL: no memory or no thread. */
cache_replay *cache_replay_open(cache_tier *truth, cache_tier *keeper, void (*sent)(void *user, const char *key), void *user);
void cache_replay_wake(cache_replay *r);
void cache_replay_close(cache_replay *r);

/* ---- flights (flight_posix.c) ---- */
typedef struct cache_flights cache_flights;
cache_flights *cache_flights_open(void);
void cache_flights_close(cache_flights *f);
bool cache_flights_begin(cache_flights *f, const char *key, int64_t deadline_ms, bool *collapsed, bool *timed_out);
void cache_flights_stored(cache_flights *f, const char *key); /* the leader has stored its answer */
void cache_flights_end(cache_flights *f, const char *key);
void cache_flights_counters(cache_flights *f, void (*emit)(void *, const char *, const char *, const char *, int64_t), void *user);
#endif
