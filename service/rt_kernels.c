/* GET /v1/kernels and /v1/kernels/{key}. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "service/auth.h"
#include "service/sign.h"

enum { PAGES = 20 };

static bool key_ok(const char *k) { return strlen(k) == 68 && !strncmp(k, "kk1-", 4) && strspn(k + 4, "0123456789abcdef") == 64; }

static service_reply *none(service_call *c, enum cache_status s)
{
    if (s == CACHE_QUARANTINED)
        return service_problem(410, "quarantined", "every version of this kernel failed verification", c->param, NULL);
    if (s == CACHE_ERROR) return service_problem(503, "store-unavailable", "the store cannot be asked", NULL, NULL);
    return service_problem(404, "not-found", "no kernel has this key", c->param, "a key is kk1- and 64 hex digits");
}

/* The version that has this build id. */
static enum cache_status pinned(service_call *c, const char *build, cache_record **out)
{
    for (int v = 1; v <= SERVICE_ATTEMPTS; v++) {
        cache_record *r = NULL;
        enum cache_status s = cache_get_version(c->app->cache, c->param, v, &r);
        if (s == CACHE_MISS || s == CACHE_ERROR) return s;
        bool same = r && !strcmp(r->build, build);
        if (same && s == CACHE_OK) *out = r;
        else cache_release(r);
        if (same) return s;
    }
    return CACHE_MISS;
}

static service_reply *get(service_call *c, cache_record **r, const char **tier)
{
    char pin[72];
    int p = service_query(c->query, "pin", pin, sizeof pin);
    if (p < 0) return service_problem(422, "invalid-request", "a query member has a value that cannot be used", NULL, "pin=BUILD");
    bool seen = key_ok(c->param) && service_may_see(c, c->param);
    *tier = "store";
    enum cache_status s = !seen ? CACHE_MISS : p ? pinned(c, pin, r) : cache_get(c->app->cache, c->param, (kiln_bytes){0}, r, tier);
    return s == CACHE_OK ? NULL : none(c, s);
}

service_reply *rt_kernel(service_call *c)
{
    cache_record *r = NULL;
    const char *tier;
    char status[64];
    service_reply *reply = get(c, &r, &tier);
    if (reply) return reply;
    snprintf(status, sizeof status, "kiln; hit; detail=%s", tier);
    service_answer how = {NULL, status, NULL};
    reply = service_answer_kernel(c, r, &how);
    if (reply && reply->status == 200) reply->keep = !strcmp(tier, "memory"); /* where the next one will come from, too */
    cache_release(r);
    return reply;
}

service_reply *rt_attestation(service_call *c)
{
    cache_record *r = NULL;
    const char *tier;
    service_reply *bad = get(c, &r, &tier);
    if (bad) return bad;
    bad = service_reply_json(200, service_attestation(c->app->signer, r));
    cache_release(r);
    return bad;
}

service_reply *rt_provenance(service_call *c)
{
    cache_record *r = NULL;
    const char *tier;
    service_reply *bad = get(c, &r, &tier);
    if (bad) return bad;
    bad = service_reply_json(200, service_provenance(c->app->signer, r));
    cache_release(r);
    return bad;
}

service_reply *rt_variants(service_call *c)
{
    bool seen = key_ok(c->param) && service_may_see(c, c->param), any = false;
    enum cache_status s = CACHE_OK;
    cJSON *o = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(o, "variants");
    for (int v = 1; seen && v <= SERVICE_ATTEMPTS && (s == CACHE_OK || s == CACHE_QUARANTINED); v++) {
        cache_record *r = NULL;
        s = cache_get_version(c->app->cache, c->param, v, &r);
        if (r) cJSON_AddItemToArray(list, service_kernel_summary(r));
        any |= s == CACHE_OK || s == CACHE_QUARANTINED;
        cache_release(r);
    }
    if (any) return service_reply_json(200, o);
    cJSON_Delete(o);
    return none(c, seen ? s : CACHE_MISS);
}

service_reply *rt_kernels(service_call *c)
{
    cache_record *list[SERVICE_LIST];
    char target[64], cursor[128] = "";
    int limit = 50;
    int t = service_query(c->query, "target", target, sizeof target), k = service_query(c->query, "cursor", cursor, sizeof cursor);
    if (t < 0 || k < 0 || !service_query_whole(c->query, "limit", 1, SERVICE_LIST, &limit))
        return service_problem(422, "invalid-request", "a query member has a value that cannot be used", NULL,
                               "target=ID, cursor=NEXT, limit=1 to 200");
    cJSON *o = cJSON_CreateObject(), *kernels = cJSON_AddArrayToObject(o, "kernels");
    for (int got = 0, pages = 0, n = limit; got < limit && n == limit && pages < PAGES; pages++) { /* what may not be seen is passed over */
        n = cache_list(c->app->cache, t ? target : "", cursor, limit, list);
        for (int i = 0; i < n; i++) {
            if (got < limit) snprintf(cursor, sizeof cursor, "%s:%lld", list[i]->key, (long long)list[i]->version);
            if (got < limit && service_may_see(c, list[i]->key) && cache_trusts(c->app->cache, list[i])) {
                cJSON_AddItemToArray(kernels, service_kernel_summary(list[i]));
                got++;
            }
            cache_release(list[i]);
        }
        cJSON_DeleteItemFromObjectCaseSensitive(o, "next");
        if (n == limit) cJSON_AddStringToObject(o, "next", cursor);
    }
    return service_reply_json(200, o);
}
