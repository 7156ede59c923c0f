/* The signing key in its file (signing.key in the folder of the store, mode 0600), trusted keys, attestations. */
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "service/sign.h"

enum { TRUSTED = 64 };
struct service_signer {
    uint8_t public[32], secret[64], trusted[TRUSTED][32];
    char hex[65];
    int ntrusted;
};

static bool read_line(FILE *f, uint8_t out[32])
{
    char line[256];
    size_t n = 0;
    while (f && fgets(line, sizeof line, f)) {
        size_t k = strspn(line, "0123456789abcdefABCDEF");
        if (k == 64 && sodium_hex2bin(out, 32, line, 64, NULL, &n, NULL) == 0 && n == 32) return true;
    }
    return false;
}

static bool make_key(const char *path, uint8_t seed[32])
{
    char hex[66];
    randombytes_buf(seed, 32);
    sodium_bin2hex(hex, 65, seed, 32);
    hex[64] = '\n';
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && write(fd, hex, 65) == 65 && fsync(fd) == 0;
    if (fd >= 0) close(fd);
    sodium_memzero(hex, sizeof hex);
    return ok;
}

service_signer *service_signer_open(const service_config *c, char *why, size_t size)
{
    char path[1200];
    uint8_t seed[32];
    service_signer *s = sodium_init() < 0 ? NULL : calloc(1, sizeof *s);
    if (!s) return NULL;
    snprintf(path, sizeof path, "%s/signing.key", c->data);
    FILE *f = fopen(path, "r");
    bool ok = f ? read_line(f, seed) : make_key(path, seed);
    if (f) fclose(f);
    if (!ok) snprintf(why, size, "%.300s holds no key of 64 hex digits, or cannot be written", path);
    if (ok) crypto_sign_seed_keypair(s->public, s->secret, seed);
    sodium_memzero(seed, sizeof seed);
    sodium_bin2hex(s->hex, sizeof s->hex, s->public, 32);
    memcpy(s->trusted[s->ntrusted++], s->public, 32);
    f = ok && *c->trusted_keys ? fopen(c->trusted_keys, "r") : NULL;
    if (ok && *c->trusted_keys && !f) {
        snprintf(why, size, "trusted_keys: cannot read %.300s", c->trusted_keys);
        ok = false;
    }
    while (f && s->ntrusted < TRUSTED && read_line(f, s->trusted[s->ntrusted])) s->ntrusted++;
    if (f) fclose(f);
    if (ok) return s;
    free(s);
    return NULL;
}

void service_signer_close(service_signer *s)
{
    if (s) sodium_memzero(s, sizeof *s);
    free(s);
}

const char *service_signer_public(const service_signer *s) { return s->hex; }

void service_sign(const service_signer *s, const void *p, size_t n, uint8_t out[64]) { crypto_sign_detached(out, NULL, p, n, s->secret); }

bool service_signed(const service_signer *s, const char *signer, const uint8_t sig[64], const void *p, size_t n)
{
    uint8_t key[32];
    size_t k = 0;
    if (strlen(signer) != 64 || sodium_hex2bin(key, 32, signer, 64, NULL, &k, NULL) || k != 32) return false;
    for (int i = 0; i < s->ntrusted; i++)
        if (!memcmp(s->trusted[i], key, 32)) return crypto_sign_verify_detached(sig, p, n, key) == 0;
    return false;
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

/* DSSE v1: the signature is over "DSSEv1 LEN TYPE LEN BODY". */
cJSON *service_attestation(const service_signer *s, const cache_record *r)
{
    static const char type[] = "application/vnd.in-toto+json";
    cJSON *o = cJSON_CreateObject(), *st = statement(r), *e = cJSON_CreateObject();
    char *body = cJSON_PrintUnformatted(st), *pae = NULL, *payload = body ? base64(body, strlen(body)) : NULL, *text = NULL;
    uint8_t sig[64];
    cJSON_Delete(st);
    int n = body ? asprintf(&pae, "DSSEv1 %zu %s %zu %s", sizeof type - 1, type, strlen(body), body) : -1;
    if (n > 0) {
        service_sign(s, pae, (size_t)n, sig);
        text = base64(sig, sizeof sig);
    }
    cJSON_AddStringToObject(o, "payloadType", type);
    cJSON_AddStringToObject(o, "payload", payload ? payload : "");
    cJSON_AddStringToObject(e, "keyid", s->hex);
    cJSON_AddStringToObject(e, "sig", text ? text : "");
    cJSON_AddItemToArray(cJSON_AddArrayToObject(o, "signatures"), e);
    free(body);
    free(payload);
    free(text);
    if (n > 0) free(pae);
    return o;
}
