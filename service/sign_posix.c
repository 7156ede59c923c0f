/* The service's signatures: whose word counts for bundles and records (workers/seal.h), attestations, refusals in the book. */
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "service/auth.h"
#include "service/fleet.h"
#include "service/sign.h"

enum { TRUSTED = 64, TOLD = 256 };
struct service_signer {
    seals *seals;
    int ntrusted;
    uint8_t trusted[TRUSTED][32]; /* of services whose bundles are imported */
    pthread_mutex_t lock;
    uint64_t told[TOLD]; /* refusals that are in the book already, by key and version */
};

static bool leased(void *user, const char *job, int64_t epoch, const char *key)
{
    const service_app *app = user;
    return !app->fleet || jobs_had_lease(service_fleet_jobs(app->fleet), job, epoch, key);
}

/* Once a version and process: the record is met at every lookup. */
static void refused(void *user, const char *key, const cache_record *r, const char *why)
{
    service_app *app = user;
    service_signer *s = app->signer;
    char subject[120], detail[200];
    if (r) {
        snprintf(subject, sizeof subject, "%s:%lld", key, (long long)r->version);
        snprintf(detail, sizeof detail, "%s: signed by %s, build %s", why, *r->signer ? r->signer : "nobody", r->build);
    } else {
        snprintf(subject, sizeof subject, "%s", key);
        snprintf(detail, sizeof detail, "%s: a text in the store", why);
    }
    uint64_t h = 14695981039346656037u;
    for (const char *p = subject; *p; p++) h = (h ^ (unsigned char)*p) * 1099511628211u;
    for (const char *p = r ? "" : detail; *p; p++) h = (h ^ (unsigned char)*p) * 1099511628211u;
    pthread_mutex_lock(&s->lock);
    bool known = s->told[h % TOLD] == h;
    s->told[h % TOLD] = h;
    pthread_mutex_unlock(&s->lock);
    if (!known) service_audit_own(app, "record-refused", subject, detail);
}

service_signer *service_signer_open(service_app *app, char *why, size_t size)
{
    const service_config *c = &app->config;
    char path[1200], host[40] = "", name[64];
    service_signer *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    pthread_mutex_init(&s->lock, NULL);
    if (gethostname(host, sizeof host - 1)) snprintf(host, sizeof host, "host");
    snprintf(name, sizeof name, "kilnd-%s", host);
    snprintf(path, sizeof path, "%s/signing.key", c->data);
    seals_config sc = {.key_file = path, .roots = c->builder_keys, .name = name, .program = "kilnd", .required = c->sealed,
                       .user = app, .refused = refused, .leased = leased};
    s->seals = seals_open(&sc, why, size);
    s->ntrusted = s->seals && *c->trusted_keys ? seal_read_keys(c->trusted_keys, s->trusted, TRUSTED) : 0;
    if (s->ntrusted < 0) snprintf(why, size, "trusted_keys: cannot read %.300s", c->trusted_keys);
    if (s->seals && s->ntrusted >= 0) return s;
    service_signer_close(s);
    return NULL;
}

void service_signer_close(service_signer *s)
{
    if (!s) return;
    seals_close(s->seals);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

seals *service_signer_seals(service_signer *s) { return s->seals; }

const char *service_signer_public(const service_signer *s) { return seals_public(s->seals); }

void service_sign(const service_signer *s, const void *p, size_t n, uint8_t out[64]) { seals_sign(s->seals, p, n, out); }

bool service_signed(const service_signer *s, const char *signer, const uint8_t sig[64], const void *p, size_t n)
{
    bool counts = !strcmp(signer, seals_public(s->seals));
    char hex[65];
    for (int i = 0; i < s->ntrusted && !counts; i++) counts = !strcmp(sodium_bin2hex(hex, sizeof hex, s->trusted[i], 32), signer);
    return counts && seals_holds(signer, sig, p, n);
}

static char *base64(const void *p, size_t n)
{
    size_t room = sodium_base64_encoded_len(n, sodium_base64_VARIANT_ORIGINAL);
    char *out = malloc(room);
    return out ? sodium_bin2base64(out, room, p, n, sodium_base64_VARIANT_ORIGINAL) : NULL;
}

static cJSON *statement(const cache_record *r)
{
    cJSON *o = cJSON_CreateObject(), *subjects, *predicate;
    cJSON_AddStringToObject(o, "_type", "https://in-toto.io/Statement/v1");
    subjects = cJSON_AddArrayToObject(o, "subject");
    for (int i = 0; i < r->nartifacts; i++) {
        cJSON *e = cJSON_CreateObject();
        cJSON_AddStringToObject(e, "name", r->artifacts[i].kind);
        cJSON_AddStringToObject(cJSON_AddObjectToObject(e, "digest"), "sha256", r->artifacts[i].digest);
        cJSON_AddItemToArray(subjects, e);
    }
    cJSON_AddStringToObject(o, "predicateType", "https://kiln/attestation/kernel/v1");
    predicate = cJSON_AddObjectToObject(o, "predicate");
    uint8_t digest[32];
    char hex[65];
    kiln_sha256(r->canon.p, r->canon.n, digest);
    kiln_hex(digest, 32, hex);
    cJSON_AddStringToObject(predicate, "key", r->key);
    cJSON_AddStringToObject(predicate, "canonical_sha256", hex);
    cJSON_AddStringToObject(predicate, "build", r->build);
    cJSON_AddNumberToObject(predicate, "version", (double)r->version);
    cJSON_AddStringToObject(predicate, "target", r->target);
    cJSON_AddStringToObject(predicate, "origin", r->origin);
    cJSON_AddStringToObject(predicate, "verification", cache_verification_text(r->verification));
    cJSON_AddNumberToObject(predicate, "created_ms", (double)r->created_ms);
    cJSON_AddStringToObject(predicate, "service_fingerprint", kiln_fingerprint());
    return o;
}

static cJSON *envelope(const char *body, size_t n, const char *signer, const uint8_t sig[64])
{
    cJSON *o = cJSON_CreateObject(), *e = cJSON_CreateObject();
    char *payload = base64(body, n), *text = base64(sig, 64);
    cJSON_AddStringToObject(o, "payloadType", "application/vnd.in-toto+json");
    cJSON_AddStringToObject(o, "payload", payload ? payload : "");
    cJSON_AddStringToObject(e, "keyid", signer);
    cJSON_AddStringToObject(e, "sig", text ? text : "");
    cJSON_AddItemToArray(cJSON_AddArrayToObject(o, "signatures"), e);
    free(payload);
    free(text);
    return o;
}

cJSON *service_attestation(const service_signer *s, const cache_record *r)
{
    cJSON *st = statement(r), *o = NULL;
    char *body = cJSON_PrintUnformatted(st), *encoded;
    uint8_t sig[64] = {0};
    size_t n = 0;
    cJSON_Delete(st);
    encoded = body ? seal_encoding(body, strlen(body), &n) : NULL;
    if (encoded) service_sign(s, encoded, n, sig);
    if (body) o = envelope(body, strlen(body), service_signer_public(s), sig);
    free(encoded);
    free(body);
    return o;
}

/* Who said last what it is worth, for anybody to check: the signature is over "kiln-verdict/1 KEY RECORD_SHA256 STATE AT_MS", a line's end, the
 * text. */
static void add_verdict(cJSON *o, const cache_record *r)
{
    cache_sealed seal;
    if (!cache_sealed_parse(r->verdict, &seal)) return;
    cJSON *v = cJSON_AddObjectToObject(o, "verdict");
    char *plain = cache_sealed_plain(r->verdict);
    cJSON_AddNumberToObject(v, "state", (double)r->verification);
    cJSON_AddStringToObject(v, "text", plain ? plain : "");
    cJSON_AddStringToObject(v, "by", seal.by);
    cJSON_AddNumberToObject(v, "at_ms", (double)seal.at_ms);
    cJSON_AddStringToObject(v, "seal", seal.seal);
    free(plain);
}

cJSON *service_provenance(service_signer *s, const cache_record *r)
{
    static const char *const states[] = {"unsigned", "broken", "stranger", "enrolled"};
    char name[64];
    uint8_t sig[64] = {0};
    size_t n = 0;
    enum seal_state state = seals_state(s->seals, r, name);
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "key", r->key);
    cJSON_AddStringToObject(o, "build", r->build);
    cJSON_AddNumberToObject(o, "version", (double)r->version);
    cJSON_AddStringToObject(o, "verification", cache_verification_text(r->verification));
    cJSON_AddStringToObject(o, "signature", states[state]);
    add_verdict(o, r);
    if (state == SEAL_NONE) return o;
    cJSON_AddStringToObject(o, "signer", r->signer);
    if (*name) cJSON_AddStringToObject(o, "builder", name);
    cJSON *said = cJSON_ParseWithLength(r->statement.p, r->statement.n);
    if (said) cJSON_AddItemToObject(o, "statement", said);
    sodium_hex2bin(sig, sizeof sig, r->seal, strlen(r->seal), NULL, &n, NULL);
    cJSON_AddItemToObject(o, "envelope", envelope(r->statement.p, r->statement.n, r->signer, sig));
    return o;
}
