/* POST /v1/lookup, /v1/key and /v1/explain: what is known, under which key, and why not. Nothing is compiled. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "service/auth.h"
#include "service/body.h"
#include "service/spec.h"

enum { NEIGHBOURS = 5, LOOKED_AT = 2000, PAGE = 200 };

/* Fills what is known about a key that the caller may see. */
static void state_of(service_call *c, const char *key, kiln_bytes canon, bool seen, cJSON *o)
{
    cache_record *r = NULL;
    const char *tier = "", *state = "miss";
    char *problem = NULL;
    enum cache_status s = seen ? cache_get(c->app->cache, key, canon, &r, &tier) : CACHE_MISS;
    cJSON_AddStringToObject(o, "key", key);
    if (s == CACHE_OK) {
        state = "hit";
        cJSON_AddStringToObject(o, "build", r->build);
        cJSON_AddNumberToObject(o, "version", (double)r->version);
        cJSON_AddStringToObject(o, "verification", cache_verification_text(r->verification));
        cJSON_AddStringToObject(o, "tier", tier);
        cache_release(r);
    } else if (s == CACHE_QUARANTINED) {
        state = "quarantined";
    } else if (seen && cache_get_impossible(c->app->cache, key, kiln_fingerprint(), &problem) == CACHE_IMPOSSIBLE) {
        state = "impossible";
        cJSON_AddItemToObject(o, "problem", cJSON_Parse(problem));
        free(problem);
    } else if (seen && service_jobs_live(c->app->jobs, key)) {
        state = "in_flight";
    } else if (s == CACHE_ERROR) {
        state = "unknown";
    }
    cJSON_AddStringToObject(o, "state", state);
}

static cJSON *look_up(service_call *c, const cJSON *item)
{
    cJSON *o = cJSON_CreateObject();
    const cJSON *key = cJSON_GetObjectItemCaseSensitive(item, "key");
    service_reply *bad = NULL;
    if (cJSON_IsString(key) && strlen(key->valuestring) < 72) {
        state_of(c, key->valuestring, (kiln_bytes){0}, service_may_see(c, key->valuestring), o);
        return o;
    }
    service_ask *a = cJSON_IsObject(item) && !key ? service_spec_ask(c->app, item, &bad) : NULL;
    if (a) {
        state_of(c, a->keys.kernel, a->keys.kernel_canon, service_may_see(c, a->keys.kernel), o);
    } else {
        cJSON_AddStringToObject(o, "state", "invalid");
        if (!bad) bad = service_body_wrong("", "no item that can be looked up", "{\"key\": \"kk1-...\"} or the body of a compile");
        if (bad) cJSON_AddItemToObject(o, "problem", cJSON_Parse(bad->body));
    }
    service_reply_drop(bad);
    service_ask_drop(a);
    return o;
}

service_reply *rt_lookup(service_call *c)
{
    service_reply *bad;
    static const char *const names[] = {"items", NULL};
    cJSON *o = service_body_json(c, &bad);
    if (!o) return bad;
    const cJSON *items = cJSON_GetObjectItemCaseSensitive(o, "items");
    service_body_only(o, names, &bad);
    if (!bad && !cJSON_IsArray(items)) bad = service_body_wrong("/items", "no list of items", "keys or bodies of compiles");
    if (!bad && cJSON_GetArraySize(items) > SERVICE_BATCH)
        bad = service_problem_limit(413, "batch", SERVICE_BATCH, "too many items at once");
    if (bad) {
        cJSON_Delete(o);
        return bad;
    }
    cJSON *answer = cJSON_CreateObject(), *results = cJSON_AddArrayToObject(answer, "results");
    for (const cJSON *e = items->child; e; e = e->next) cJSON_AddItemToArray(results, look_up(c, e));
    cJSON_Delete(o);
    service_reply *r = service_reply_json(200, answer);
    service_reply_header(r, "Cache-Control", "no-store");
    return r;
}

static cJSON *key_json(service_ask *a, const service_parts *parts)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "key", a->keys.kernel);
    cJSON_AddStringToObject(o, "workload", a->keys.workload);
    cJSON_AddStringToObject(o, "target", kiln_hw_id(a->hw));
    cJSON_AddItemToObject(o, "components", service_parts_json(parts));
    return o;
}

service_reply *rt_key(service_call *c)
{
    service_reply *r = NULL;
    service_parts parts;
    service_ask *a = service_ask_parse(c, &r);
    if (!a) return r;
    if (service_parts_ask(a, &parts)) {
        r = service_reply_json(200, key_json(a, &parts));
        service_parts_free(&parts);
    }
    service_ask_drop(a);
    return r;
}

typedef struct neighbour {
    int distance;
    cache_record *record;
} neighbour;

/* Keeps the nearest ones in order. */
static void consider(neighbour *list, cache_record *r, const service_parts *own, const char *key)
{
    service_parts parts;
    if (!strcmp(r->key, key) || !service_parts_record(r, &parts)) {
        cache_release(r);
        return;
    }
    neighbour n = {service_parts_distance(own, &parts), r};
    service_parts_free(&parts);
    for (int i = 0; i < NEIGHBOURS && n.record; i++) {
        if (list[i].record && list[i].distance <= n.distance) continue;
        neighbour old = list[i];
        list[i] = n;
        n = old;
    }
    cache_release(n.record);
}

static cJSON *neighbours(service_call *c, const service_parts *own, const char *key)
{
    neighbour best[NEIGHBOURS] = {{0}};
    cache_record *page[PAGE];
    char cursor[128] = "";
    int n = PAGE;
    for (int seen = 0; seen < LOOKED_AT && n == PAGE; seen += n) {
        n = cache_list(c->app->cache, "", cursor, PAGE, page);
        for (int i = 0; i < n; i++) {
            snprintf(cursor, sizeof cursor, "%s:%lld", page[i]->key, (long long)page[i]->version);
            if (service_may_see(c, page[i]->key))
                consider(best, page[i], own, key);
            else
                cache_release(page[i]);
        }
    }
    cJSON *list = cJSON_CreateArray();
    for (int i = 0; i < NEIGHBOURS && best[i].record; i++) {
        service_parts parts;
        cJSON *e = service_kernel_summary(best[i].record);
        cJSON_AddNumberToObject(e, "distance", best[i].distance);
        if (service_parts_record(best[i].record, &parts)) {
            cJSON_AddItemToObject(e, "differs", service_parts_diff(own, &parts));
            service_parts_free(&parts);
        }
        cJSON_AddItemToArray(list, e);
        cache_release(best[i].record);
    }
    return list;
}

/* "other": a key or another request; the answer says in what they differ. */
static service_reply *add_other(service_call *c, const cJSON *other, const service_parts *own, cJSON *o)
{
    service_reply *bad = NULL;
    service_parts parts = {0};
    cache_record *r = NULL;
    const char *tier;
    service_ask *a = NULL;
    bool ok = false;
    if (cJSON_IsString(other)) {
        if (service_may_see(c, other->valuestring)) cache_get(c->app->cache, other->valuestring, (kiln_bytes){0}, &r, &tier);
        if (!r) return service_body_wrong("/other", "no kernel has this key", "the key of a kernel, or the body of a compile");
        ok = service_parts_record(r, &parts);
    } else {
        a = service_spec_ask(c->app, other, &bad);
        ok = a && service_parts_ask(a, &parts);
    }
    if (ok) {
        cJSON *e = cJSON_AddObjectToObject(o, "other");
        cJSON_AddStringToObject(e, "key", r ? r->key : a->keys.kernel);
        cJSON_AddItemToObject(e, "differs", service_parts_diff(own, &parts));
        service_parts_free(&parts);
    }
    cache_release(r);
    service_ask_drop(a);
    return bad;
}

service_reply *rt_explain(service_call *c)
{
    static const char *const names[] = {"request", "other", NULL};
    service_reply *bad;
    service_parts own;
    cJSON *o = service_body_json(c, &bad), *answer = NULL;
    if (!o) return bad;
    service_body_only(o, names, &bad);
    const cJSON *request = cJSON_GetObjectItemCaseSensitive(o, "request"), *other = cJSON_GetObjectItemCaseSensitive(o, "other");
    if (!bad && !cJSON_IsObject(request)) bad = service_body_wrong("/request", "no request to explain", "the body of a compile");
    service_ask *a = bad ? NULL : service_spec_ask(c->app, request, &bad);
    if (a && service_parts_ask(a, &own)) {
        answer = key_json(a, &own);
        cJSON_DeleteItemFromObjectCaseSensitive(answer, "key");
        state_of(c, a->keys.kernel, a->keys.kernel_canon, service_may_see(c, a->keys.kernel), answer);
        if (other) bad = add_other(c, other, &own, answer);
        if (!bad) cJSON_AddItemToObject(answer, "neighbours", neighbours(c, &own, a->keys.kernel));
        service_parts_free(&own);
    }
    service_ask_drop(a);
    cJSON_Delete(o);
    if (!bad && answer) return service_reply_json(200, answer);
    cJSON_Delete(answer);
    return bad;
}
