/* /v1/admin: keys, tenants, quarantine, the book of changes, numbers. Every change is written to the book. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "service/auth.h"
#include "service/body.h"
#include "service/fleet.h"
#include "service/sign.h"

static service_reply *listed(const char *name, cJSON *list)
{
    if (!list) return service_store_away(CACHE_ERROR);
    cJSON *o = cJSON_CreateObject();
    cJSON_AddItemToObject(o, name, list);
    service_reply *r = service_reply_json(200, o);
    service_reply_header(r, "Cache-Control", "no-store");
    return r;
}

service_reply *rt_keys(service_call *c) { return listed("keys", service_keys_json(c->app->auth)); }

service_reply *rt_tenants(service_call *c) { return listed("tenants", service_tenants_json(c->app->auth)); }

/* The one time that the secret is shown. */
static service_reply *show(service_call *c, const char *action, const char *id, char *secret, const char *detail)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "id", id);
    cJSON_AddStringToObject(o, "key", secret);
    free(secret);
    service_audit(c, action, id, detail);
    service_reply *r = service_reply_json(201, o);
    service_reply_header(r, "Location", "/v1/admin/keys/%s", id);
    service_reply_header(r, "Cache-Control", "no-store");
    return r;
}

service_reply *rt_key_new(service_call *c)
{
    static const char *const names[] = {"tenant", "scopes", "expires_seconds", "label", NULL};
    service_reply *bad;
    char id[24], *secret = NULL;
    unsigned scopes;
    cJSON *o = service_body_json(c, &bad);
    if (!o) return bad;
    const char *tenant = service_body_text(o, "tenant", NULL, 62, &bad), *label = service_body_text(o, "label", "", 200, &bad);
    int64_t seconds = service_body_int(o, "expires_seconds", 0, 1, 10ll * 366 * 86400, &bad);
    if (!bad) service_body_only(o, names, &bad);
    if (!bad && !service_name_ok(tenant)) bad = service_body_wrong("/tenant", "this cannot be the name of a tenant", "[a-z0-9_][a-z0-9_.-]{0,61}");
    if (!bad && !service_scopes_parse(cJSON_GetObjectItemCaseSensitive(o, "scopes"), &scopes))
        bad = service_body_wrong("/scopes", "no list of scopes", "a list of read, compile, tune, work, admin");
    int64_t expires = seconds ? cache_store_ms(c->app->cache) + seconds * 1000 : 0;
    enum cache_status s = bad ? CACHE_OK : service_key_new(c->app->auth, tenant, scopes, expires, label, id, &secret);
    if (s != CACHE_OK) bad = service_store_away(s);
    service_reply *r = bad ? bad : show(c, "key-new", id, secret, tenant);
    if (bad) free(secret);
    cJSON_Delete(o);
    return r;
}

service_reply *rt_key_rotate(service_call *c)
{
    static const char *const names[] = {"grace_seconds", NULL};
    service_reply *bad;
    char fresh[24], *secret;
    cJSON *o = service_body_json(c, &bad);
    if (!o) return bad;
    int64_t grace = service_body_int(o, "grace_seconds", 3600, 0, 30 * 86400, &bad);
    if (!bad) service_body_only(o, names, &bad);
    cJSON_Delete(o);
    if (bad) return bad;
    enum cache_status s = service_key_rotate(c->app->auth, c->param, grace * 1000, fresh, &secret);
    if (s == CACHE_OK) return show(c, "key-rotate", fresh, secret, c->param);
    free(secret);
    return s == CACHE_MISS ? service_problem(404, "not-found", "no such key, or it is over", c->param, NULL) : service_store_away(s);
}

static service_reply *done(void) { return service_reply_text(204, "application/json", ""); }

service_reply *rt_key_drop(service_call *c)
{
    enum cache_status s = service_key_expire(c->app->auth, c->param, cache_store_ms(c->app->cache));
    if (s == CACHE_MISS) return service_problem(404, "not-found", "no such key", c->param, NULL);
    if (s != CACHE_OK) return service_store_away(s);
    service_audit(c, "key-expire", c->param, NULL);
    if (!service_builders_drop(c, c->param)) return service_store_away(CACHE_ERROR);
    return done();
}

service_reply *rt_tenant_put(service_call *c)
{
    static const char *const names[] = {"visibility", "rate", "compiles_per_day", "store_mib", "jobs", NULL};
    service_reply *bad;
    cJSON *o = service_body_json(c, &bad);
    if (!o) return bad;
    const char *v = service_body_text(o, "visibility", "private", 8, &bad);
    service_body_int(o, "rate", 0, 0, 1000000, &bad);
    service_body_int(o, "compiles_per_day", 0, 0, 1000000000, &bad);
    service_body_int(o, "store_mib", 0, 0, 1000000000, &bad);
    service_body_int(o, "jobs", 0, 0, 1000000, &bad);
    if (!bad) service_body_only(o, names, &bad);
    if (!bad && strcmp(v, "private") && strcmp(v, "public"))
        bad = service_body_wrong("/visibility", "who may see what this tenant makes", "private or public");
    if (!bad && !service_name_ok(c->param))
        bad = service_problem(422, "invalid-request", "this cannot be the name of a tenant", c->param, "[a-z0-9_][a-z0-9_.-]{0,61}");
    char *text = bad ? NULL : cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    if (bad) return bad;
    enum cache_status s = text ? cache_put_doc(c->app->cache, "tenant", c->param, (kiln_bytes){text, strlen(text)}) : CACHE_ERROR;
    if (s == CACHE_OK) service_auth_load(c->app->auth);
    if (s == CACHE_OK) service_audit(c, "tenant-put", c->param, text);
    free(text);
    return s == CACHE_OK ? done() : service_store_away(s);
}

service_reply *rt_quarantine(service_call *c)
{
    static const char *const names[] = {"key", "version", "reason", NULL};
    service_reply *bad;
    char verdict[400];
    cJSON *o = service_body_json(c, &bad), *v = cJSON_CreateObject();
    if (!o) {
        cJSON_Delete(v);
        return bad;
    }
    const char *key = service_body_text(o, "key", NULL, 71, &bad), *reason = service_body_text(o, "reason", NULL, 200, &bad);
    int64_t version = service_body_int(o, "version", 0, 1, INT64_C(1) << 40, &bad);
    if (!bad) service_body_only(o, names, &bad);
    cJSON_AddStringToObject(v, "how", "administrator");
    cJSON_AddStringToObject(v, "detail", reason);
    if (!cJSON_PrintPreallocated(v, verdict, sizeof verdict, 0)) snprintf(verdict, sizeof verdict, "{\"how\":\"administrator\"}");
    cJSON_Delete(v);
    cache_record *r = NULL;
    const char *tier;
    if (!bad && !version && cache_get(c->app->cache, key, (kiln_bytes){0}, &r, &tier) == CACHE_OK) version = r->version;
    cache_release(r);
    enum cache_status s = bad ? CACHE_ERROR : version ? cache_verdict(c->app->cache, key, version, CACHE_FAILED, verdict) : CACHE_MISS;
    if (!bad && s == CACHE_OK) {
        atomic_fetch_add(&c->app->quarantine_serial, 1);
        service_audit(c, "quarantine", key, reason);
    }
    cJSON_Delete(o);
    if (bad) return bad;
    if (s == CACHE_MISS) return service_problem(404, "not-found", "no such version of a kernel", NULL, NULL);
    return s == CACHE_OK ? done() : service_store_away(s);
}

/* What no answer needs any more. Kernels and their artifacts stay. */
service_reply *rt_gc(service_call *c)
{
    static const char *const names[] = {"keep_days", NULL};
    service_reply *bad;
    cJSON *o = service_body_json(c, &bad);
    if (!o) return bad;
    int64_t days = service_body_int(o, "keep_days", 90, 0, 36500, &bad);
    if (!bad) service_body_only(o, names, &bad);
    cJSON_Delete(o);
    if (bad) return bad;
    int64_t age = days * 86400000;
    int64_t audit = cache_forget_docs(c->app->cache, "audit", age);
    int64_t impossible = cache_forget_impossible(c->app->cache, kiln_fingerprint(), age);
    int jobs_gone = jobs_sweep(service_fleet_jobs(c->app->fleet), age);
    if (audit < 0 || impossible < 0 || jobs_gone < 0) return service_store_away(CACHE_ERROR);
    service_audit(c, "gc", "", NULL);
    o = cJSON_CreateObject();
    cJSON_AddNumberToObject(o, "audit", (double)audit);
    cJSON_AddNumberToObject(o, "impossible", (double)impossible);
    cJSON_AddNumberToObject(o, "jobs", jobs_gone);
    return service_reply_json(200, o);
}

service_reply *rt_audit(service_call *c)
{
    cache_doc page[100];
    char after[160] = "";
    if (service_query(c->query, "cursor", after, sizeof after) < 0)
        return service_problem(422, "invalid-request", "a query member has a value that cannot be used", NULL, "cursor=NEXT");
    int n = cache_list_docs(c->app->cache, "audit", after, 100, page);
    if (n < 0) return service_store_away(CACHE_ERROR);
    cJSON *o = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(o, "audit");
    for (int i = 0; i < n; i++) {
        cJSON *e = cJSON_Parse(page[i].json);
        if (e) cJSON_AddStringToObject(e, "id", page[i].id);
        if (e) cJSON_AddItemToArray(list, e);
        free(page[i].json);
    }
    if (n == 100) cJSON_AddStringToObject(o, "next", page[n - 1].id);
    service_reply *r = service_reply_json(200, o);
    service_reply_header(r, "Cache-Control", "no-store");
    return r;
}

static void add_number(void *user, const char *name, const char *tier, const char *result, int64_t value)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "name", name);
    if (tier && *tier) cJSON_AddStringToObject(o, "tier", tier);
    if (result && *result) cJSON_AddStringToObject(o, "result", result);
    cJSON_AddNumberToObject(o, "value", (double)value);
    cJSON_AddItemToArray(user, o);
}

service_reply *rt_stats(service_call *c)
{
    service_app *app = c->app;
    cJSON *o = cJSON_CreateObject();
    cJSON_AddNumberToObject(o, "up_seconds", (service_now_ms() - app->started) / 1000);
    cJSON_AddNumberToObject(o, "jobs_queued", service_jobs_count(app->jobs, SERVICE_QUEUED));
    cJSON_AddNumberToObject(o, "jobs_running", service_jobs_count(app->jobs, SERVICE_RUNNING));
    cJSON_AddNumberToObject(o, "keys_refused", (double)service_auth_failures(app->auth));
    cache_counters(app->cache, add_number, cJSON_AddArrayToObject(o, "cache"));
    return service_reply_json(200, o);
}
