/* The cache: kernel records (append-only) and artifacts (immutable, by SHA-256), in tiers behind one interface. Thread-safe.
 *
 * Tiers are asked in the order of cache/tiers.def (memory, redis, postgres, sqlite); a hit in a farther tier fills the copies before it.
 * Redis and PostgreSQL may be down, at the start too: README.md says what then happens.
 * An error of a tier is never a miss: it is counted, and the next tier is asked. Every artifact read is checked against its digest; one that does not
 * match is quarantined and counted as missing. Canonical bytes are compared on every hit. */
#ifndef KILN_CACHE_H
#define KILN_CACHE_H
#include "kiln.h"

void cache_sha256(const void *p, size_t n, uint8_t out[32]); /* the quickest there is */

typedef struct cache cache;
typedef struct cache_config {
    const char *data_dir;        /* SQLite database and blobs live here */
    int64_t memory_bytes;        /* bound of the memory tier, default 256 MiB */
    const char *redis_url;       /* NULL: tier absent */
    const char *postgres_url;    /* NULL: tier absent */
    const char *process;         /* filled by cache_open for the tiers */
} cache_config;

enum cache_verification { CACHE_PENDING, CACHE_EMULATED, CACHE_RUN, CACHE_MEASURED, CACHE_FAILED };
const char *cache_verification_text(enum cache_verification v); /* "pending" ... */

enum { CACHE_SAID_BYTES = 768, CACHE_VERDICT_BYTES = 1024 }; /* of a verdict's text; with its seal */
/* kind: "source" "header" "launcher" "so" "ptx" "cubin" */
typedef struct cache_artifact { char kind[16]; char digest[65]; int64_t bytes; } cache_artifact;

/* One version of a kernel. Strings are NUL-terminated, owned by the record; records are reference counted and immutable. */
typedef struct cache_record {
    char key[72], workload[72], build[72];
    int64_t version;             /* 1, 2, ...; assigned by cache_put; from 2^30: provisional, PostgreSQL was away */
    char origin[16];             /* "constructed", "given" (a client's own trace), "tuned", "imported" */
    char target[KILN_MAX_NAME_BYTES];
    const char *name;            /* of the workload, for people: program text */
    kiln_bytes canon;            /* kernel canonical bytes */
    kiln_bytes trace;
    kiln_bytes manifest;         /* JSON as generated; immutable */
    double predicted_us, measured_us; /* 0: not measured */
    enum cache_verification verification; /* current: the last verdict appended */
    char verdict[CACHE_VERDICT_BYTES]; /* JSON: error found, tolerance, inputs, or why it failed; its author's seal behind (cache_sealed) */
    int64_t created_ms;          /* unix time */
    int nartifacts;
    cache_artifact artifacts[8];
    /* Who built it, of what: an in-toto statement and the builder's signature over it; empty: nobody signed. It names cache_record_sum. */
    kiln_bytes statement;
    char signer[65], seal[129];  /* public key and signature, lower-case hex */
    kiln_bytes made;             /* of a record to be put: what its builder adds to the statement, members of a JSON object; not kept */
} cache_record;

typedef struct cache_blob { char digest[65]; kiln_bytes bytes; } cache_blob; /* digest may be "" on put: computed */

enum cache_status { CACHE_OK, CACHE_MISS, CACHE_IMPOSSIBLE, CACHE_QUARANTINED, CACHE_ERROR, CACHE_FULL };
typedef struct cache_error { char message[256]; } cache_error;

/* Opens all tiers; creates and migrates the store. NULL with *e filled when the embedded store cannot be used. */
cache *cache_open(const cache_config *cfg, cache_error *e);
void cache_close(cache *c);
/* Name of this open cache, drawn by chance: the "worker" of what it writes to the log, by which it knows its own news. */
const char *cache_process(const cache *c);

/* Latest version that is not quarantined; CACHE_QUARANTINED when there are only such. CACHE_ERROR: a store could not be asked, so that it may exist.
 * canon.p NULL: not compared. tier: text of the tier that answered ("memory"). Release with cache_release. */
enum cache_status cache_get(cache *c, const char *key, kiln_bytes canon, cache_record **out, const char **tier);
enum cache_status cache_get_version(cache *c, const char *key, int64_t version, cache_record **out);
void cache_release(cache_record *r);
/* The latest good version of each key, newest first, after `cursor` ("" = start, else "KEY" or better "KEY:VERSION" of the last one received);
 * target "" or NULL: all. Returns count. */
int cache_list(cache *c, const char *target, const char *cursor, int limit, cache_record **out);

/* Appends a version with its artifacts in one transaction: after a crash all of it is there or none. Fills version, created_ms (when 0) and
 * artifact digests: blobs[i] are the bytes of r->artifacts[i]; artifacts beyond nblobs name digests stored before. CACHE_ERROR: bad arguments.
 * stored=false in the return through *stored when no durable tier took it (still served from memory). CACHE_FULL: no store has room on its disk, and
 * nothing was written. */
enum cache_status cache_put(cache *c, cache_record *r, const cache_blob *blobs, int nblobs, bool *stored);
bool cache_is_full(const cache *c); /* a put was refused so within the last second, and none went through since */
/* Appends a verdict; CACHE_FAILED quarantines the version. */
enum cache_status cache_verdict(cache *c, const char *key, int64_t version, enum cache_verification v, const char *verdict_json);
/* "Impossible" is cached (with the compiler's fingerprint), "timed out" is not. problem: the JSON answer to repeat.
 * The getter answers CACHE_IMPOSSIBLE when there is one, else CACHE_MISS or CACHE_ERROR. */
enum cache_status cache_put_impossible(cache *c, const char *key, kiln_bytes canon, const char *fingerprint, const char *problem_json);
enum cache_status cache_get_impossible(cache *c, const char *key, const char *fingerprint, char **problem_json /* free() */);

/* Bytes of an artifact, checked, with a NUL behind; free() them. CACHE_QUARANTINED: the bytes were wrong and are gone. */
enum cache_status cache_get_blob(cache *c, const char *digest, char **bytes, size_t *n);

/* Who signs what is put here, and whose word counts for what is read from places that others write to. Called without locks held.
 * sign: fills statement (*text, free()d by the cache), signer, seal of a record that has none; false: it stays without. NULL: nothing is signed.
 * judge: of a record that was answered for `key`; truth: it came from a store, which may be asked more. False: as if the tier did not have it.
 * NULL: all count. */
typedef struct cache_seals {
    void *user;
    bool (*sign)(void *user, cache_record *r, char **text);
    bool (*judge)(void *user, const char *key, const cache_record *r, bool truth);
    /* Verdicts and answers of "impossible", JSON objects. sign_text: the text with its seal (cache_sealed_text), over the context and the text;
     * free(); NULL: it stays without. judge_text: whether one whose word counts sealed it for that context. */
    char *(*sign_text)(void *user, const char *context, const char *json);
    bool (*judge_text)(void *user, const char *key, const char *context, const char *sealed);
} cache_seals;
/* Who said a text and when, as the last members of the JSON object that it is: "by", "at_ms", "seal". n: bytes before them. */
typedef struct cache_sealed { char by[65], seal[129]; int64_t at_ms; size_t n; } cache_sealed;
bool cache_sealed_parse(const char *text, cache_sealed *out); /* false: there is no seal */
char *cache_sealed_plain(const char *text);                   /* without the seal; free() */
char *cache_sealed_text(const char *plain, const cache_sealed *s); /* free(); NULL: no JSON object, no memory */
void cache_set_seals(cache *c, const cache_seals *s); /* once, before anything is put or asked for; s is copied */
bool cache_trusts(cache *c, const cache_record *r);   /* of a record that cache_list gave */
/* SHA-256 of the immutable part without statement and seal, as hex; false: out of memory. */
bool cache_record_sum(const cache_record *r, char out[65]);

/* Records outside of a store. */
/* The immutable part as bytes, with a version of the format and a SHA-256 of itself; no verdict. malloc'd. */
char *cache_record_encode(const cache_record *r, size_t *n);
/* NULL when the bytes are not what encode wrote. Verification and verdict as given. */
cache_record *cache_record_decode(const void *p, size_t n, int64_t version, enum cache_verification v, const char *verdict);
/* Another process wrote something about the key: what this one has in memory is asked for again. */
void cache_changed(cache *c, const char *key);
/* The key is gone from the stores: no copy keeps it. */
void cache_forget(cache *c, const char *key);

/* How long calls of this thread wait for a store behind a network, each; 0: as long as the stores themselves do (seconds). For threads that many
 * requests share. What it costs is a CACHE_ERROR where somebody with more time may get an answer. */
void cache_patience(int ms);

/* Generation of a key: changes whenever a get of it could answer differently; lets a front end keep prepared answers. Lock-free read. */
uint64_t cache_generation(const cache *c);

/* One compile per key in flight. begin: true = caller leads and must call end; false = somebody else led and has finished (or deadline passed).
 * deadline_ms: from now. A leader that ends without cache_put or cache_put_impossible of the key hands the lead to the next waiter. */
typedef struct cache_flight cache_flight;
bool cache_flight_begin(cache *c, const char *key, int64_t deadline_ms, bool *collapsed, bool *timed_out);
void cache_flight_end(cache *c, const char *key);

/* Counters for /metrics: calls back once a counter, tier may be "". */
void cache_counters(cache *c, void (*emit)(void *user, const char *name, const char *tier, const char *result, int64_t value), void *user);

/* Small documents by kind and id, durable in every store: who may what (service/auth.c). json.p NULL removes one. The truth must take a put; what it
 * took is kept by the store behind it as well, which answers while the truth is away. */
typedef struct cache_doc { char id[160]; char *json; int64_t at_ms; } cache_doc; /* free(json) */
enum cache_status cache_put_doc(cache *c, const char *kind, const char *id, kiln_bytes json);
enum cache_status cache_get_doc(cache *c, const char *kind, const char *id, char **json /* free() */);
int cache_list_docs(cache *c, const char *kind, const char *after, int limit, cache_doc *out); /* by id; -1: could not be asked */

/* Forgets documents of a kind and answers of "impossible" by another compiler that are older than that by the
 * store's clock. Count, -1: could not be asked. */
int64_t cache_forget_docs(cache *c, const char *kind, int64_t older_ms);
int64_t cache_forget_impossible(cache *c, const char *fingerprint, int64_t older_ms);

/* Unix time by the clock of the truth, as last learned by cache_learn_clock and carried on by the monotonic clock: the same in every process of a
 * fleet, whatever the wall clocks of their machines say. Before it was learned: this machine's. */
int64_t cache_store_ms(const cache *c);
void cache_learn_clock(cache *c);

/* Named hardware descriptions put by clients (PUT /v1/targets/{id}), durable. */
enum cache_status cache_put_target(cache *c, const char *id, kiln_bytes json);
int cache_list_targets(cache *c, char ***ids, char ***jsons); /* free() all */
#endif
