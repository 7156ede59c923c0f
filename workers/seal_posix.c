/* The signing key in its file, statements and signatures of records, the builders that count. */
#include "workers/seal.h"
#include <cjson/cJSON.h>
#include <fcntl.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cache/clock_posix.h"

enum { ROOTS = 256, KNOWN = 256, KNOWN_MS = 5000, CARD = 300 };
static const char type[] = "application/vnd.in-toto+json";

/* What was last found out of a key; until_ms: by the monotonic clock, when to ask again; ends_ms: by the store's clock, 0: never. */
typedef struct known { char public[65], name[64]; bool counts; int64_t until_ms, ends_ms; } known;
struct seals {
    seals_config c;
    char name[64], hex[65];
    uint8_t public[32], secret[64];
    char roots[ROOTS][65]; /* the own first, then those of the file */
    int nroots, nknown;
    cache *cache;
    pthread_mutex_t lock;
    known known[KNOWN];
};

/* ---- keys ---- */
static bool unhex(const char *text, uint8_t *out, size_t bytes)
{
    size_t n = 0;
    return text && strlen(text) == 2 * bytes && strspn(text, "0123456789abcdef") == 2 * bytes && /* one spelling of each */
           sodium_hex2bin(out, bytes, text, 2 * bytes, NULL, &n, NULL) == 0 && n == bytes;
}

int seal_read_keys(const char *file, uint8_t (*out)[32], int max)
{
    char line[256];
    int count = 0;
    FILE *f = fopen(file, "re");
    if (!f) return -1;
    while (count < max && fgets(line, sizeof line, f)) {
        size_t n = 0;
        if (strspn(line, "0123456789abcdefABCDEF") != 64) continue;
        count += sodium_hex2bin(out[count], 32, line, 64, NULL, &n, NULL) == 0 && n == 32;
    }
    fclose(f);
    return count;
}

/* The file is whole or not there: one that a kill or a full disk left in halves would keep this program from ever starting again. */
static bool make_key(const char *path, uint8_t seed[32])
{
    char hex[66], part[1024];
    if (snprintf(part, sizeof part, "%s.%d", path, (int)getpid()) >= (int)sizeof part) return false;
    unlink(part);
    randombytes_buf(seed, 32);
    sodium_bin2hex(hex, 65, seed, 32);
    hex[64] = '\n';
    int fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && write(fd, hex, 65) == 65 && fsync(fd) == 0;
    if (fd >= 0) close(fd);
    ok = ok && link(part, path) == 0; /* fails when somebody has made one meanwhile */
    unlink(part);
    sodium_memzero(hex, sizeof hex);
    return ok;
}

static bool load(seals *s, char *why, size_t size)
{
    uint8_t seed[1][32], found[ROOTS - 1][32];
    int have = seal_read_keys(s->c.key_file, seed, 1);
    if (have != 1 && (have == 0 || !make_key(s->c.key_file, seed[0]))) {
        snprintf(why, size, "%.300s holds no key of 64 hex digits, or cannot be written", s->c.key_file);
        return false;
    }
    crypto_sign_seed_keypair(s->public, s->secret, seed[0]);
    sodium_memzero(seed, sizeof seed);
    sodium_bin2hex(s->hex, sizeof s->hex, s->public, 32);
    memcpy(s->roots[s->nroots++], s->hex, 65);
    int n = s->c.roots && *s->c.roots ? seal_read_keys(s->c.roots, found, ROOTS - 1) : 0;
    if (n < 0) snprintf(why, size, "builder_keys: cannot read %.300s", s->c.roots);
    for (int i = 0; i < n; i++) sodium_bin2hex(s->roots[s->nroots++], 65, found[i], 32);
    return n >= 0;
}

seals *seals_open(const seals_config *c, char *why, size_t size)
{
    seals *s = sodium_init() < 0 ? NULL : calloc(1, sizeof *s);
    snprintf(why, size, "out of memory");
    if (!s) return NULL;
    s->c = *c;
    snprintf(s->name, sizeof s->name, "%s", c->name);
    pthread_mutex_init(&s->lock, NULL);
    if (load(s, why, size)) return s;
    seals_close(s);
    return NULL;
}

void seals_close(seals *s)
{
    if (!s) return;
    pthread_mutex_destroy(&s->lock);
    sodium_memzero(s, sizeof *s);
    free(s);
}

const char *seals_public(const seals *s) { return s->hex; }
const char *seals_name(const seals *s) { return s->name; }
void seals_sign(const seals *s, const void *p, size_t n, uint8_t out[64]) { crypto_sign_detached(out, NULL, p, n, s->secret); }

bool seals_holds(const char *signer, const uint8_t sig[64], const void *p, size_t n)
{
    uint8_t key[32];
    return unhex(signer, key, 32) && crypto_sign_verify_detached(sig, p, n, key) == 0;
}

char *seal_encoding(const void *body, size_t n, size_t *size)
{
    char *out = malloc(n + sizeof type + 64);
    if (!out) return NULL;
    int head = sprintf(out, "DSSEv1 %zu %s %zu ", sizeof type - 1, type, n);
    memcpy(out + head, body, n);
    *size = (size_t)head + n;
    return out;
}

/* ---- statements ---- */
static void add_subjects(cJSON *o, const cache_record *r)
{
    cJSON *list = cJSON_AddArrayToObject(o, "subject");
    for (int i = 0; i < r->nartifacts; i++) {
        cJSON *e = cJSON_CreateObject();
        cJSON_AddStringToObject(e, "name", r->artifacts[i].kind);
        cJSON_AddStringToObject(cJSON_AddObjectToObject(e, "digest"), "sha256", r->artifacts[i].digest);
        cJSON_AddItemToArray(list, e);
    }
}

static void add_digest(cJSON *o, const char *name, kiln_bytes b)
{
    uint8_t digest[32];
    char hex[65];
    kiln_sha256(b.p ? b.p : "", b.n, digest);
    kiln_hex(digest, 32, hex);
    cJSON_AddStringToObject(o, name, hex);
}

static char *statement(const seals *s, const cache_record *r, const char *sum)
{
    cJSON *o = cJSON_CreateObject(), *p, *b, *made;
    cJSON_AddStringToObject(o, "_type", "https://in-toto.io/Statement/v1");
    add_subjects(o, r);
    cJSON_AddStringToObject(o, "predicateType", "https://kiln/provenance/kernel/v1");
    p = cJSON_AddObjectToObject(o, "predicate");
    cJSON_AddStringToObject(p, "key", r->key);
    cJSON_AddStringToObject(p, "workload", r->workload);
    cJSON_AddStringToObject(p, "build", r->build);
    cJSON_AddStringToObject(p, "target", r->target);
    cJSON_AddStringToObject(p, "origin", r->origin);
    cJSON_AddStringToObject(p, "record_sha256", sum);
    add_digest(p, "canonical_sha256", r->canon);
    add_digest(p, "trace_sha256", r->trace);
    add_digest(p, "manifest_sha256", r->manifest);
    cJSON_AddStringToObject(p, "compiler", kiln_fingerprint());
    cJSON_AddStringToObject(p, "verification", cache_verification_text(r->verification));
    cJSON_AddNumberToObject(p, "created_ms", (double)r->created_ms);
    b = cJSON_AddObjectToObject(p, "builder");
    cJSON_AddStringToObject(b, "name", s->name);
    cJSON_AddStringToObject(b, "program", s->c.program);
    cJSON_AddStringToObject(b, "keyid", s->hex);
    made = r->made.n ? cJSON_ParseWithLength(r->made.p, r->made.n) : NULL;
    for (cJSON *e; made && (e = made->child);) {
        cJSON_DetachItemViaPointer(made, e);
        if (!cJSON_GetObjectItemCaseSensitive(p, e->string)) cJSON_AddItemToObject(p, e->string, e);
        else cJSON_Delete(e);
    }
    cJSON_Delete(made);
    char *text = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    return text;
}

static bool sign(void *user, cache_record *r, char **text)
{
    const seals *s = user;
    char sum[65], *encoded;
    uint8_t sig[64];
    size_t n = 0;
    if (!cache_record_sum(r, sum)) return false;
    char *body = statement(s, r, sum);
    encoded = body ? seal_encoding(body, strlen(body), &n) : NULL;
    if (!encoded) {
        free(body);
        return false;
    }
    seals_sign(s, encoded, n, sig);
    free(encoded);
    sodium_bin2hex(r->seal, sizeof r->seal, sig, sizeof sig);
    memcpy(r->signer, s->hex, sizeof r->signer);
    r->statement = (kiln_bytes){body, strlen(body)};
    *text = body;
    return true;
}

/* The statement's predicate when the signature holds and it is about this record; cJSON_Delete(*held). */
static const cJSON *checked(const cache_record *r, cJSON **held)
{
    char sum[65];
    uint8_t sig[64];
    size_t n = 0;
    *held = NULL;
    if (!r->statement.n || !unhex(r->seal, sig, sizeof sig) || !cache_record_sum(r, sum)) return NULL;
    char *encoded = seal_encoding(r->statement.p, r->statement.n, &n);
    bool ok = encoded && seals_holds(r->signer, sig, encoded, n);
    free(encoded);
    if (ok) *held = cJSON_ParseWithLength(r->statement.p, r->statement.n);
    const cJSON *p = cJSON_GetObjectItemCaseSensitive(*held, "predicate");
    const char *said = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(p, "record_sha256"));
    const char *key = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(p, "key"));
    return said && key && !strcmp(said, sum) && !strcmp(key, r->key) ? p : NULL;
}

/* ---- who counts ---- */
static int card(char out[CARD], const char *public, const char *name, const char *by, int64_t at_ms, int64_t ends_ms)
{
    if (ends_ms < 0) return snprintf(out, CARD, "kiln-builder/1 %.64s %.63s %.24s %lld", public, name, by, (long long)at_ms);
    return snprintf(out, CARD, "kiln-builder/2 %.64s %.63s %.24s %lld %lld", public, name, by, (long long)at_ms, (long long)ends_ms);
}

static bool is_root(const seals *s, const char *public)
{
    for (int i = 0; i < s->nroots; i++)
        if (!strcmp(s->roots[i], public)) return true;
    return false;
}

/* A document that a root has signed for this key; those of before enrolments had an end have no ends_ms. */
static bool enrolled(const seals *s, const char *public, const char *json, known *k)
{
    char text[CARD];
    uint8_t sig[64];
    cJSON *o = cJSON_Parse(json);
    const char *called = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, "name"));
    const char *by = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, "key"));
    const char *root = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, "root"));
    const char *seal = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, "sig"));
    const cJSON *at = cJSON_GetObjectItemCaseSensitive(o, "at_ms"), *ends = cJSON_GetObjectItemCaseSensitive(o, "ends_ms");
    int64_t until = cJSON_IsNumber(ends) ? (int64_t)ends->valuedouble : -1;
    bool ok = called && by && root && cJSON_IsNumber(at) && unhex(seal, sig, sizeof sig) && is_root(s, root);
    int n = ok ? card(text, public, called, by, (int64_t)at->valuedouble, until) : 0;
    ok = ok && n > 0 && n < CARD && seals_holds(root, sig, text, (size_t)n);
    if (ok) snprintf(k->name, sizeof k->name, "%s", called);
    k->ends_ms = until > 0 ? until : 0;
    cJSON_Delete(o);
    return ok;
}

static known *place_of(seals *s, const char *public)
{
    for (int i = 0; i < s->nknown; i++)
        if (!strcmp(s->known[i].public, public)) return &s->known[i];
    return NULL;
}

/* Asked of the store at most every five seconds a key; while it is away, what was known stays. */
static bool looked_up(seals *s, const char *public, char name[64])
{
    int64_t now = cache_mono_ms();
    known fresh = {.until_ms = now + KNOWN_MS}, *at;
    char *json = NULL;
    pthread_mutex_lock(&s->lock);
    at = place_of(s, public);
    known old = at ? *at : (known){.counts = false};
    pthread_mutex_unlock(&s->lock);
    if (old.until_ms <= now) {
        enum cache_status st = s->cache ? cache_get_doc(s->cache, "builder", public, &json) : CACHE_MISS;
        snprintf(fresh.public, sizeof fresh.public, "%s", public);
        if (st == CACHE_ERROR) fresh.counts = old.counts, fresh.ends_ms = old.ends_ms, memcpy(fresh.name, old.name, sizeof fresh.name);
        else fresh.counts = st == CACHE_OK && enrolled(s, public, json, &fresh);
        free(json);
        pthread_mutex_lock(&s->lock);
        at = place_of(s, public);
        if (!at) at = s->nknown < KNOWN ? &s->known[s->nknown++] : &s->known[randombytes_uniform(KNOWN)];
        *at = old = fresh;
        pthread_mutex_unlock(&s->lock);
    }
    bool counts = old.counts && (!old.ends_ms || seals_now(s) < old.ends_ms);
    if (counts) memcpy(name, old.name, 64);
    return counts;
}

bool seals_counts(seals *s, const char *public, char name[64])
{
    *name = 0;
    if (!strcmp(public, s->hex)) snprintf(name, 64, "%s", s->name);
    return is_root(s, public) || looked_up(s, public, name);
}

void seals_refuse(seals *s, const char *key, const char *why)
{
    if (s->c.refused) s->c.refused(s->c.user, key, NULL, why);
}

int64_t seals_now(const seals *s) { return s->cache ? cache_store_ms(s->cache) : cache_unix_ms(); }

bool seals_enrolled(seals *s)
{
    char name[64];
    for (int i = 1; i < s->nroots; i++)
        if (!strcmp(s->roots[i], s->hex)) return true;
    return looked_up(s, s->hex, name);
}

enum seal_state seals_state(seals *s, const cache_record *r, char name[64])
{
    cJSON *held;
    *name = 0;
    if (!r->statement.n) return SEAL_NONE;
    bool ok = checked(r, &held) != NULL;
    cJSON_Delete(held);
    return !ok ? SEAL_BROKEN : seals_counts(s, r->signer, name) ? SEAL_COUNTS : SEAL_STRANGER;
}

static bool judge(void *user, const char *key, const cache_record *r, bool truth)
{
    seals *s = user;
    cJSON *held = NULL;
    char name[64];
    const cJSON *p = r->statement.n ? checked(r, &held) : NULL;
    const char *why = !r->statement.n ? "unsigned" : !p ? "forged" : NULL;
    if (!why && !seals_counts(s, r->signer, name)) why = "stranger";
    if (!why && strcmp(key, r->key)) why = "replayed";
    const cJSON *job = cJSON_GetObjectItemCaseSensitive(p, "job"), *epoch = cJSON_GetObjectItemCaseSensitive(p, "epoch");
    if (!why && truth && s->c.leased && cJSON_IsString(job) && cJSON_IsNumber(epoch) &&
        !s->c.leased(s->c.user, job->valuestring, (int64_t)epoch->valuedouble, r->key))
        why = "replayed";
    cJSON_Delete(held);
    if (why && s->c.refused) s->c.refused(s->c.user, key, r, why);
    return !why;
}

void seals_watch(seals *s, cache *c)
{
    s->cache = c;
    cache_set_seals(c, &(cache_seals){s, sign, s->c.required ? judge : NULL, seals_say, s->c.required ? seals_believe : NULL});
}

/* ---- enrolment ---- */
static int claim(char out[CARD], const char *name) { return snprintf(out, CARD, "kiln-builder-name/1 %.63s", name); }

char *seals_card(const seals *s)
{
    char text[CARD], hex[129];
    uint8_t sig[64];
    seals_sign(s, text, (size_t)claim(text, s->name), sig);
    sodium_bin2hex(hex, sizeof hex, sig, sizeof sig);
    char *out = NULL;
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "public", s->hex);
    cJSON_AddStringToObject(o, "name", s->name);
    cJSON_AddStringToObject(o, "proof", hex);
    out = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    return out;
}

bool seal_card_holds(const char *public, const char *name, const char *proof)
{
    char text[CARD];
    uint8_t sig[64];
    return unhex(proof, sig, sizeof sig) && seals_holds(public, sig, text, (size_t)claim(text, name));
}

char *seals_enrol(const seals *s, const char *public, const char *name, const char *by, int64_t at_ms, int64_t ends_ms)
{
    char text[CARD], hex[129];
    uint8_t sig[64];
    seals_sign(s, text, (size_t)card(text, public, name, by, at_ms, ends_ms), sig);
    sodium_bin2hex(hex, sizeof hex, sig, sizeof sig);
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "public", public);
    cJSON_AddStringToObject(o, "name", name);
    cJSON_AddStringToObject(o, "key", by);
    cJSON_AddNumberToObject(o, "at_ms", (double)at_ms);
    cJSON_AddNumberToObject(o, "ends_ms", (double)ends_ms);
    cJSON_AddStringToObject(o, "root", s->hex);
    cJSON_AddStringToObject(o, "sig", hex);
    char *out = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    return out;
}
