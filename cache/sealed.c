/* What is believed of a record and said of it where others write too: verdicts and answers of "impossible" that carry a seal, versions whose
 * verdicts count, copies that are not older than what the truth has. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cache/tier.h"

enum { CONTEXT = 400, REFUSED_MAX = 16 };
#define COUNT(t, field) atomic_fetch_add_explicit(&(t)->field, 1, memory_order_relaxed)

/* ---- sealed texts: the members by, at_ms and seal behind those of a JSON object ---- */
bool cache_sealed_parse(const char *text, cache_sealed *out)
{
    const char *at = NULL;
    int used = 0;
    memset(out, 0, sizeof *out);
    out->n = strlen(text);
    for (const char *p = text; (p = strstr(p, "\"by\":\"")); p++) at = p;
    if (!at || at == text || (at[-1] != ',' && at[-1] != '{')) return false;
    if (sscanf(at, "\"by\":\"%64[0-9a-f]\",\"at_ms\":%" SCNd64 ",\"seal\":\"%128[0-9a-f]\"}%n", out->by, &out->at_ms, out->seal, &used) != 3 ||
        used == 0 || at[used] || strlen(out->by) != 64 || strlen(out->seal) != 128) {
        *out->by = *out->seal = 0;
        return false;
    }
    out->n = (size_t)(at - text) - (at[-1] == ',');
    return true;
}

char *cache_sealed_plain(const char *text)
{
    cache_sealed s;
    bool sealed = cache_sealed_parse(text, &s);
    char *out = malloc(s.n + 2);
    if (!out) return NULL;
    memcpy(out, text, s.n);
    if (sealed) out[s.n++] = '}';
    out[s.n] = 0;
    return out;
}

char *cache_sealed_text(const char *plain, const cache_sealed *s)
{
    size_t n = strlen(plain);
    char *out = NULL;
    if (n < 2 || *plain != '{' || plain[n - 1] != '}') return NULL;
    int k = asprintf(&out, "%.*s%s\"by\":\"%s\",\"at_ms\":%" PRId64 ",\"seal\":\"%s\"}", (int)n - 1, plain, n > 2 ? "," : "", s->by,
                     s->at_ms, s->seal);
    return k < 0 ? NULL : out;
}

static bool verdict_context(char out[CONTEXT], const cache_record *r, enum cache_verification v)
{
    char sum[65];
    return cache_record_sum(r, sum) && snprintf(out, CONTEXT, "kiln-verdict/1 %s %s %d", r->key, sum, (int)v) < CONTEXT;
}

static bool impossible_context(char out[CONTEXT], const char *key, const char *fingerprint)
{
    return snprintf(out, CONTEXT, "kiln-impossible/1 %s %s", key, fingerprint) < CONTEXT;
}

static char *sealed(const cache_seals *s, const char *context, const char *json)
{
    char *plain = cache_sealed_plain(json && *json ? json : "{}"), *out = plain ? s->sign_text(s->user, context, plain) : NULL;
    free(plain);
    return out;
}

char *cache_seal_verdict(const cache_seals *s, const cache_record *r, enum cache_verification v, const char *json)
{
    char context[CONTEXT];
    char *out = s->sign_text && verdict_context(context, r, v) ? sealed(s, context, json) : NULL;
    if (!out || strlen(out) < CACHE_VERDICT_BYTES) return out;
    free(out);
    return NULL;
}

char *cache_seal_verdict_of(cache *c, const cache_seals *s, const char *key, int64_t version, enum cache_verification v, const char *json)
{
    cache_record *r = NULL;
    if (!s->sign_text || cache_get_version(c, key, version, &r) != CACHE_OK) return NULL;
    char *said = cache_seal_verdict(s, r, v, json);
    cache_release(r);
    return said;
}

char *cache_seal_impossible(const cache_seals *s, const char *key, const char *fingerprint, const char *json)
{
    char context[CONTEXT];
    return s->sign_text && impossible_context(context, key, fingerprint) ? sealed(s, context, json) : NULL;
}

bool cache_verdict_counts(const cache_seals *s, const cache_record *r, enum cache_verification v, const char *text)
{
    char context[CONTEXT];
    if (!s->judge_text || (v == CACHE_PENDING && !*text)) return true;
    return verdict_context(context, r, v) && s->judge_text(s->user, r->key, context, text);
}

bool cache_impossible_counts(const cache_seals *s, cache_tier *t, const char *key, const char *fingerprint, const char *json)
{
    char context[CONTEXT];
    if (!s->judge_text || !t->ops->shared) return true;
    if (impossible_context(context, key, fingerprint) && s->judge_text(s->user, key, context, json)) return true;
    COUNT(t, refused);
    return false;
}

/* ---- records ---- */
/* Of the verdicts that count a failure, else the last by the time that its author signed: who can write rows can write old ones again. */
static void settle(const cache_seals *s, cache_tier *t, cache_record *r, const cache_said *said, int n)
{
    int64_t last = INT64_MIN;
    r->verification = CACHE_PENDING;
    *r->verdict = 0;
    for (int i = 0; i < n; i++) {
        cache_sealed seal;
        if (!cache_verdict_counts(s, r, said[i].state, said[i].text)) {
            COUNT(t, refused);
            continue;
        }
        cache_sealed_parse(said[i].text, &seal);
        if (r->verification == CACHE_FAILED || (said[i].state != CACHE_FAILED && seal.at_ms < last)) continue;
        last = seal.at_ms;
        r->verification = said[i].state;
        snprintf(r->verdict, sizeof r->verdict, "%s", said[i].text);
    }
}

enum cache_status cache_judged(const cache_seals *s, cache_tier *t, const char *key, int64_t version, cache_record **out)
{
    int64_t below = version ? version + 1 : INT64_MAX;
    bool quarantined = false;
    for (int i = 0; i < REFUSED_MAX; i++) {
        cache_record *r = NULL;
        cache_said *said = NULL;
        int n = 0;
        enum cache_status st = t->ops->history(t, key, below, &r, &said, &n);
        if (st == CACHE_OK) below = r->version;
        bool asked = st == CACHE_OK && (!version || r->version == version);
        bool counts = asked && s->judge(s->user, key, r, true);
        if (asked && !counts) COUNT(t, refused);
        if (counts) settle(s, t, r, said, n);
        free(said);
        bool failed = counts && r->verification == CACHE_FAILED;
        quarantined |= failed || (version && asked && !counts);
        if (counts && (!failed || version)) {
            *out = r;
            return failed ? CACHE_QUARANTINED : CACHE_OK;
        }
        cache_release(r);
        if (st == CACHE_ERROR) return st;
        if (st != CACHE_OK || version) break;
    }
    return quarantined ? CACHE_QUARANTINED : CACHE_MISS;
}

bool cache_copy_counts(const cache_seals *s, cache_tier *t, const char *key, const cache_record *r)
{
    if (s->judge(s->user, key, r, false) && cache_verdict_counts(s, r, r->verification, r->verdict)) return true;
    COUNT(t, refused);
    return false;
}

bool cache_copy_is_old(cache_tier *truth, cache_tier *keeper, const cache_record *r, int64_t floor)
{
    int64_t version = 0;
    enum cache_verification v = CACHE_PENDING;
    enum cache_status st = truth->ops->newest ? truth->ops->newest(truth, r->key, &version, &v) : CACHE_OK;
    if (st != CACHE_ERROR) return truth->ops->newest && (st != CACHE_OK || version != r->version || v != r->verification);
    bool kept = keeper && keeper->ops->newest && keeper->ops->newest(keeper, r->key, &version, &v) == CACHE_OK;
    if (kept && version < CACHE_PROVISIONAL && version > floor) floor = version;
    return r->version < floor;
}
