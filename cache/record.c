/* Kernel records: one allocation each, reference counted, and their bytes in a store. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cache/tier.h"

typedef struct counted { atomic_int refs; size_t bytes; cache_record r; } counted;

static counted *counted_of(const cache_record *r)
{
    return (counted *)((char *)(uintptr_t)r - offsetof(counted, r));
}

const char *cache_verification_text(enum cache_verification v)
{
    static const char *const text[] = {"pending", "emulated", "run", "measured", "failed"};
    return (unsigned)v < sizeof text / sizeof *text ? text[v] : "unknown";
}

static kiln_bytes take(char **at, kiln_bytes b)
{
    kiln_bytes to = {*at, b.n};
    if (b.n) memcpy(*at, b.p, b.n);
    (*at)[b.n] = 0;
    *at += b.n + 1;
    return to;
}

cache_record *cache_record_copy(const cache_record *r)
{
    kiln_bytes name = {r->name ? r->name : "", r->name ? strlen(r->name) : 0};
    size_t bytes = sizeof(counted) + name.n + r->canon.n + r->trace.n + r->manifest.n + r->statement.n + 5;
    counted *c = malloc(bytes);
    if (!c) return NULL;
    atomic_init(&c->refs, 1);
    c->bytes = bytes;
    c->r = *r;
    char *at = (char *)(c + 1);
    c->r.name = take(&at, name).p;
    c->r.canon = take(&at, r->canon);
    c->r.trace = take(&at, r->trace);
    c->r.manifest = take(&at, r->manifest);
    c->r.statement = take(&at, r->statement);
    c->r.made = (kiln_bytes){0};
    return &c->r;
}

cache_record *cache_record_ref(cache_record *r)
{
    atomic_fetch_add_explicit(&counted_of(r)->refs, 1, memory_order_relaxed);
    return r;
}

void cache_release(cache_record *r)
{
    if (r && atomic_fetch_sub_explicit(&counted_of(r)->refs, 1, memory_order_acq_rel) == 1) free(counted_of(r));
}

size_t cache_record_bytes(const cache_record *r)
{
    return counted_of(r)->bytes;
}

/* ---- bytes: "KR1\n", fields in the order of put_all, each a little-endian length and its bytes; then SHA-256 of all before. "KR2\n" is the same
 * with statement, signer and seal behind ---- */
#define MAGIC "KR1\n"
#define MAGIC_SIGNED "KR2\n"
enum { DIGEST = 32, MAX_FIELD = 64 << 20 };

typedef struct writer { char *p; size_t n; } writer; /* p NULL: only counts */

static void put_bytes(writer *w, const void *p, size_t n)
{
    if (w->p) {
        for (int i = 0; i < 4; i++) w->p[w->n + (size_t)i] = (char)(n >> (8 * i));
        if (n) memcpy(w->p + w->n + 4, p, n);
    }
    w->n += 4 + n;
}

static void put_text(writer *w, const char *s)
{
    put_bytes(w, s, strlen(s));
}

static void put_int(writer *w, int64_t x)
{
    char b[8];
    for (int i = 0; i < 8; i++) b[i] = (char)((uint64_t)x >> (8 * i));
    put_bytes(w, b, sizeof b);
}

static void put_double(writer *w, double x)
{
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    put_int(w, bits);
}

static void put_all(writer *w, const cache_record *r, bool sealed)
{
    if (w->p) memcpy(w->p, sealed ? MAGIC_SIGNED : MAGIC, 4);
    w->n = 4;
    put_text(w, r->key);
    put_text(w, r->workload);
    put_text(w, r->build);
    put_text(w, r->origin);
    put_text(w, r->target);
    put_text(w, r->name ? r->name : "");
    put_bytes(w, r->canon.p, r->canon.n);
    put_bytes(w, r->trace.p, r->trace.n);
    put_bytes(w, r->manifest.p, r->manifest.n);
    put_double(w, r->predicted_us);
    put_double(w, r->measured_us);
    put_int(w, r->created_ms);
    put_int(w, r->nartifacts);
    for (int i = 0; i < r->nartifacts; i++) {
        put_text(w, r->artifacts[i].kind);
        put_text(w, r->artifacts[i].digest);
        put_int(w, r->artifacts[i].bytes);
    }
    if (!sealed) return;
    put_bytes(w, r->statement.p, r->statement.n);
    put_text(w, r->signer);
    put_text(w, r->seal);
}

bool cache_record_sum(const cache_record *r, char out[65])
{
    writer w = {NULL, 0};
    put_all(&w, r, false);
    w.p = malloc(w.n);
    if (!w.p) return false;
    put_all(&w, r, false);
    cache_digest(w.p, w.n, out);
    free(w.p);
    return true;
}

char *cache_record_encode(const cache_record *r, size_t *n)
{
    writer w = {NULL, 0};
    bool sealed = r->statement.n > 0;
    put_all(&w, r, sealed);
    w.p = malloc(w.n + DIGEST);
    if (!w.p) return NULL;
    put_all(&w, r, sealed);
    uint8_t sum[DIGEST];
    cache_sha256(w.p, w.n, sum);
    memcpy(w.p + w.n, sum, DIGEST);
    *n = w.n + DIGEST;
    return w.p;
}

typedef struct reader { const unsigned char *p; size_t n, at; bool bad; } reader;

static kiln_bytes get_bytes(reader *r)
{
    if (r->bad || r->n - r->at < 4) {
        r->bad = true;
        return (kiln_bytes){"", 0};
    }
    size_t n = 0;
    for (int i = 0; i < 4; i++) n |= (size_t)r->p[r->at + (size_t)i] << (8 * i);
    r->at += 4;
    if (n > MAX_FIELD || n > r->n - r->at) {
        r->bad = true;
        return (kiln_bytes){"", 0};
    }
    kiln_bytes b = {(const char *)r->p + r->at, n};
    r->at += n;
    return b;
}

/* A text ends where it is said to: with a zero inside it would be written back shorter, and one record have two forms. */
static kiln_bytes get_zeroless(reader *r)
{
    kiln_bytes b = get_bytes(r);
    if (memchr(b.p, 0, b.n)) r->bad = true;
    return b;
}

static void get_text(reader *r, char *out, size_t size)
{
    kiln_bytes b = get_zeroless(r);
    if (b.n >= size) r->bad = true;
    else memcpy(out, b.p, b.n);
}

static int64_t get_int(reader *r)
{
    kiln_bytes b = get_bytes(r);
    uint64_t x = 0;
    if (b.n != 8) r->bad = true;
    else
        for (int i = 0; i < 8; i++) x |= (uint64_t)(unsigned char)b.p[i] << (8 * i);
    return (int64_t)x;
}

static double get_double(reader *r)
{
    int64_t bits = get_int(r);
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static char *get_name(reader *r)
{
    kiln_bytes b = get_zeroless(r);
    char *s = malloc(b.n + 1);
    if (!s) {
        r->bad = true;
        return NULL;
    }
    memcpy(s, b.p, b.n);
    s[b.n] = 0;
    return s;
}

cache_record *cache_record_decode(const void *p, size_t n, int64_t version, enum cache_verification v, const char *verdict)
{
    if (!p || n < 4 + DIGEST || (memcmp(p, MAGIC, 4) && memcmp(p, MAGIC_SIGNED, 4))) return NULL;
    bool sealed = !memcmp(p, MAGIC_SIGNED, 4);
    uint8_t sum[DIGEST];
    cache_sha256(p, n - DIGEST, sum);
    if (memcmp(sum, (const char *)p + n - DIGEST, DIGEST)) return NULL;
    reader in = {p, n - DIGEST, 4, false};
    cache_record r;
    memset(&r, 0, sizeof r);
    r.version = version;
    r.verification = v;
    if (verdict) strncpy(r.verdict, verdict, sizeof r.verdict - 1);
    get_text(&in, r.key, sizeof r.key);
    get_text(&in, r.workload, sizeof r.workload);
    get_text(&in, r.build, sizeof r.build);
    get_text(&in, r.origin, sizeof r.origin);
    get_text(&in, r.target, sizeof r.target);
    char *name = get_name(&in);
    r.name = name;
    r.canon = get_bytes(&in);
    r.trace = get_bytes(&in);
    r.manifest = get_bytes(&in);
    r.predicted_us = get_double(&in);
    r.measured_us = get_double(&in);
    r.created_ms = get_int(&in);
    int64_t count = get_int(&in);
    if (count < 0 || count > (int64_t)(sizeof r.artifacts / sizeof *r.artifacts)) in.bad = true;
    for (int i = 0; !in.bad && i < count; i++) {
        cache_artifact *a = &r.artifacts[r.nartifacts++];
        get_text(&in, a->kind, sizeof a->kind);
        get_text(&in, a->digest, sizeof a->digest);
        a->bytes = get_int(&in);
    }
    if (sealed) {
        r.statement = get_bytes(&in);
        get_text(&in, r.signer, sizeof r.signer);
        get_text(&in, r.seal, sizeof r.seal);
        in.bad |= r.statement.n == 0;
    }
    cache_record *out = in.bad || in.at != in.n ? NULL : cache_record_copy(&r);
    free(name);
    return out;
}

uint64_t cache_hash(const char *s)
{
    uint64_t h = UINT64_C(14695981039346656037); /* FNV-1a; keys are hex of SHA-256 already, so this need not be strong */
    for (; *s; s++) h = (h ^ (unsigned char)*s) * UINT64_C(1099511628211);
    return h ^ h >> 29;
}

void cache_event_put(const cache_record *r, char data[CACHE_EVENT_BYTES])
{
    snprintf(data, CACHE_EVENT_BYTES, "{\"origin\":\"%s\",\"build\":\"%s\",\"verification\":\"%s\"}", r->origin, r->build,
             cache_verification_text(r->verification));
}

const char *cache_event_verdict(enum cache_verification v, char data[CACHE_EVENT_BYTES])
{
    snprintf(data, CACHE_EVENT_BYTES, "{\"verification\":\"%s\"}", cache_verification_text(v));
    return v == CACHE_FAILED ? "quarantine" : "verdict";
}

int64_t cache_record_room(const cache_record *r, size_t body)
{
    int64_t n = (int64_t)body;
    for (int i = 0; i < r->nartifacts; i++) n += r->artifacts[i].bytes;
    return n;
}
