/* POST /v1/warmups and GET /v1/warmups/{name}: many kernels made ahead of need, and a marker that says exactly which ones there are. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "service/auth.h"
#include "service/body.h"
#include "service/spec.h"

typedef struct warmup {
    service_app *app;
    char id[160], name[64];
    int n, done, hits, failed, patience;
    double written_ms;
    char coverage[72];
    service_ask *asks[SERVICE_BATCH];
    cJSON *failures;
} warmup;

static int by_key(const void *a, const void *b)
{
    return strcmp((*(service_ask *const *)a)->keys.kernel, (*(service_ask *const *)b)->keys.kernel);
}

/* Sorted without repeats; the digest of the keys is what the marker covers. */
static bool cover(warmup *w)
{
    int n = 0;
    uint8_t digest[32];
    qsort(w->asks, (size_t)w->n, sizeof *w->asks, by_key);
    for (int i = 0; i < w->n; i++) {
        if (n && !strcmp(w->asks[n - 1]->keys.kernel, w->asks[i]->keys.kernel))
            service_ask_drop(w->asks[i]);
        else
            w->asks[n++] = w->asks[i];
    }
    w->n = n;
    char *all = malloc((size_t)n * 69 + 1);
    for (int i = 0; all && i < n; i++) snprintf(all + 69 * (size_t)i, 70, "%.68s\n", w->asks[i]->keys.kernel);
    if (!all) return false;
    kiln_sha256(all, (size_t)n * 69, digest);
    memcpy(w->coverage, "kc1-", 4);
    kiln_hex(digest, 32, w->coverage + 4);
    free(all);
    return true;
}

static cJSON *marker(const warmup *w, const char *state)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "name", w->name);
    cJSON_AddStringToObject(o, "state", state);
    cJSON_AddStringToObject(o, "coverage", w->coverage);
    cJSON_AddNumberToObject(o, "total", w->n);
    cJSON_AddNumberToObject(o, "done", w->done);
    cJSON_AddNumberToObject(o, "hits", w->hits);
    cJSON_AddNumberToObject(o, "failed", w->failed);
    cJSON_AddStringToObject(o, "fingerprint", kiln_fingerprint());
    cJSON_AddNumberToObject(o, "at_ms", (double)service_unix_ms());
    cJSON_AddItemToObject(o, "failures", w->failures ? cJSON_Duplicate(w->failures, 1) : cJSON_CreateArray());
    return o;
}

static enum cache_status write_marker(const warmup *w, const char *state)
{
    cJSON *o = marker(w, state);
    char *text = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    enum cache_status s = text ? cache_put_doc(w->app->cache, "marker", w->id, (kiln_bytes){text, strlen(text)}) : CACHE_ERROR;
    free(text);
    return s;
}

static void free_warmup(warmup *w)
{
    for (int i = 0; i < w->n; i++) service_ask_drop(w->asks[i]);
    cJSON_Delete(w->failures);
    free(w);
}

/* false: another builds it just now, ask again. */
static bool make(warmup *w, service_ask *a)
{
    cache_record *r = NULL;
    const char *tier;
    service_reply *problem = NULL;
    if (cache_get(w->app->cache, a->keys.kernel, a->keys.kernel_canon, &r, &tier) == CACHE_OK) {
        cache_release(r);
        w->hits++;
        return true;
    }
    if (service_compile_now(w->app, a, &problem)) return true;
    if (!problem && w->patience-- > 0) return false;
    cJSON *e = cJSON_CreateObject();
    cJSON_AddStringToObject(e, "key", a->keys.kernel);
    if (problem) cJSON_AddItemToObject(e, "problem", cJSON_Parse(problem->body));
    cJSON_AddItemToArray(w->failures, e);
    w->failed++;
    service_reply_drop(problem);
    return true;
}

/* On the pool, in the background, one kernel a turn, so that requests never wait for more than one. The marker is written every two seconds. */
static void run(void *arg)
{
    warmup *w = arg;
    bool more = true;
    while (more && !atomic_load(&w->app->draining)) {
        if (make(w, w->asks[w->done])) {
            w->done++;
        } else { /* the last one in its place */
            service_ask *a = w->asks[w->done];
            w->asks[w->done] = w->asks[w->n - 1];
            w->asks[w->n - 1] = a;
        }
        more = w->done < w->n;
        if (more && service_now_ms() - w->written_ms > 2000) {
            write_marker(w, "running");
            w->written_ms = service_now_ms();
        }
        if (more && worker_pool_submit(w->app->pool, run, w, true)) return;
    }
    write_marker(w, w->done < w->n ? "interrupted" : w->failed ? "incomplete" : "complete");
    service_log("info", "warm-up", "%s: %d kernels, %d were there, %d failed", w->name, w->n, w->hits, w->failed);
    free_warmup(w);
}

/* Sets the member at a JSON pointer of arrays and objects; false: there is no such place. */
static bool set_at(cJSON *o, const char *pointer, const cJSON *value)
{
    char name[64];
    while (*pointer == '/') {
        size_t n = strcspn(++pointer, "/");
        if (n >= sizeof name) return false;
        snprintf(name, sizeof name, "%.*s", (int)n, pointer);
        pointer += n;
        bool array = cJSON_IsArray(o), number = *name && strspn(name, "0123456789") == n && n < 6;
        cJSON *next = array && number ? cJSON_GetArrayItem(o, atoi(name)) : cJSON_GetObjectItemCaseSensitive(o, name);
        if (!next) return false;
        if (*pointer) {
            o = next;
            continue;
        }
        cJSON *copy = cJSON_Duplicate(value, 1);
        return copy && (array ? cJSON_ReplaceItemInArray(o, atoi(name), copy) : cJSON_ReplaceItemInObjectCaseSensitive(o, name, copy));
    }
    return false;
}

/* Every combination of the values of the grid, each put into its places of the template. */
static service_reply *expand(const cJSON *grid, cJSON *items)
{
    const cJSON *template = cJSON_GetObjectItemCaseSensitive(grid, "template"), *vary = cJSON_GetObjectItemCaseSensitive(grid, "vary");
    long long total = 1;
    if (!cJSON_IsObject(template) || !cJSON_IsArray(vary))
        return service_body_wrong("/grid", "no grid",
                                  "{\"template\": a compile's body, \"vary\": [{\"at\": [\"/inputs/0/shape/0\"], \"values\": [1, 2]}]}");
    for (const cJSON *v = vary->child; v && total <= SERVICE_BATCH; v = v->next) {
        const cJSON *at = cJSON_GetObjectItemCaseSensitive(v, "at"), *values = cJSON_GetObjectItemCaseSensitive(v, "values");
        if (!cJSON_IsArray(at) || !cJSON_IsArray(values) || !values->child)
            return service_body_wrong("/grid/vary", "no places or no values", "{\"at\": [JSON pointers into the template], \"values\": [...]}");
        total *= cJSON_GetArraySize(values);
    }
    if (total > SERVICE_BATCH) return service_problem_limit(413, "batch", SERVICE_BATCH, "the grid has too many points");
    for (long long i = 0; i < total; i++) {
        cJSON *item = cJSON_Duplicate(template, 1);
        long long rest = i;
        for (const cJSON *v = vary->child; v; v = v->next) {
            const cJSON *values = cJSON_GetObjectItemCaseSensitive(v, "values");
            int n = cJSON_GetArraySize(values);
            for (const cJSON *p = cJSON_GetObjectItemCaseSensitive(v, "at")->child; p; p = p->next) {
                if (cJSON_IsString(p) && set_at(item, p->valuestring, cJSON_GetArrayItem(values, (int)(rest % n)))) continue;
                cJSON_Delete(item);
                return service_body_wrong("/grid/vary", "a pointer does not lead to a member of the template", p->valuestring ? p->valuestring : "");
            }
            rest /= n;
        }
        cJSON_AddItemToArray(items, item);
    }
    return NULL;
}

static service_reply *collect(service_call *c, const cJSON *items, warmup *w)
{
    int at = 0;
    for (const cJSON *e = items->child; e; e = e->next, at++) {
        service_reply *bad = NULL;
        if (w->n == SERVICE_BATCH) return service_problem_limit(413, "batch", SERVICE_BATCH, "too many items at once");
        service_ask *a = cJSON_IsObject(e) ? service_spec_ask(c->app, e, &bad) : NULL;
        if (!a) {
            char pointer[40];
            snprintf(pointer, sizeof pointer, "/items/%d", at);
            cJSON *why = bad ? cJSON_Parse(bad->body) : NULL;
            const char *detail = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(why, "detail"));
            service_reply *r = service_body_wrong(pointer, detail ? detail : "no body of a compile", "every item as POST /v1/compile takes it");
            cJSON_Delete(why);
            service_reply_drop(bad);
            return r;
        }
        w->asks[w->n++] = a;
    }
    return w->n ? NULL : service_body_wrong("/items", "nothing to warm up", "items or a grid");
}

static service_reply *begin(service_call *c, warmup *w)
{
    for (int i = 0; i < w->n; i++) service_grant(c, w->asks[i]->keys.kernel);
    char href[120], *id = strdup(w->id);
    cJSON *o = marker(w, "running");
    snprintf(href, sizeof href, "/v1/warmups/%s", w->name);
    cJSON_AddStringToObject(o, "href", href);
    enum cache_status marked = write_marker(w, "running");
    bool stored = marked == CACHE_OK, started = stored && worker_pool_submit(c->app->pool, run, w, true);
    if (!started) {
        if (stored) cache_put_doc(c->app->cache, "marker", id, (kiln_bytes){0});
        free_warmup(w);
        cJSON_Delete(o);
    }
    free(id);
    if (!stored) return service_store_away(marked);
    if (!started) return service_problem_limit(503, "queue", c->app->config.queue, "the queue is full");
    service_reply *r = service_reply_json(202, o);
    service_reply_header(r, "Location", "%s", href);
    return r;
}

service_reply *rt_warmup_new(service_call *c)
{
    static const char *const names[] = {"name", "items", "grid", NULL};
    service_reply *bad;
    cJSON *o = service_body_json(c, &bad);
    if (!o) return bad;
    const char *name = service_body_text(o, "name", NULL, 62, &bad);
    cJSON *given = cJSON_GetObjectItemCaseSensitive(o, "items"), *grid = cJSON_GetObjectItemCaseSensitive(o, "grid"), *made = cJSON_CreateArray();
    warmup *w = calloc(1, sizeof *w);
    if (!bad) service_body_only(o, names, &bad);
    if (!bad && !service_name_ok(name)) bad = service_body_wrong("/name", "this cannot be the name of a warm-up", "[a-z0-9_][a-z0-9_.-]{0,61}");
    if (!bad && !grid == !given) bad = service_body_wrong("", "items or a grid, one of them", "items: [...] or grid: {...}");
    if (!bad && given && !cJSON_IsArray(given)) bad = service_body_wrong("/items", "no list of items", "bodies of compiles");
    if (!bad && grid) bad = expand(grid, made);
    if (!bad && w) bad = collect(c, grid ? made : given, w);
    if (!bad && w && cover(w)) {
        w->app = c->app;
        w->failures = cJSON_CreateArray();
        w->patience = 100 * SERVICE_BATCH;
        w->written_ms = service_now_ms();
        snprintf(w->name, sizeof w->name, "%s", name);
        snprintf(w->id, sizeof w->id, "%s/%s", c->who.tenant, name);
        bad = begin(c, w);
        w = NULL;
    }
    if (w) free_warmup(w);
    cJSON_Delete(made);
    cJSON_Delete(o);
    return bad;
}

service_reply *rt_warmup(service_call *c)
{
    char id[400], *json = NULL;
    snprintf(id, sizeof id, "%s/%s", c->who.tenant, c->param);
    enum cache_status s = strlen(id) < 160 ? cache_get_doc(c->app->cache, "marker", id, &json) : CACHE_MISS;
    if (s == CACHE_ERROR) return service_problem(503, "store-unavailable", "the store cannot be asked", NULL, NULL);
    if (s != CACHE_OK) return service_problem(404, "not-found", "no such warm-up", c->param, NULL);
    service_reply *r = service_reply_new(200, "application/json", json, strlen(json));
    service_reply_header(r, "Cache-Control", "no-store");
    return r;
}
