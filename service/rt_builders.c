/* /v1/builders: whose signature on a kernel counts. A builder is enrolled by who may work for the fleet; an API key that ends takes those along
 * that it enrolled. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "service/auth.h"
#include "service/body.h"
#include "service/sign.h"

enum { PAGE = 64, MOST = 4096 };

static bool public_ok(const char *text) { return strlen(text) == 64 && strspn(text, "0123456789abcdef") == 64; }

static bool name_ok(const char *text)
{
    size_t n = strlen(text);
    return n >= 1 && n <= 62 && strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:-") == n;
}

/* Calls back for every builder until it answers false; false: the store could not be asked. */
static bool every(service_app *app, bool (*one)(void *user, const char *public, const cJSON *o), void *user)
{
    cache_doc page[PAGE];
    char after[160] = "";
    bool go = true;
    for (int n = PAGE, seen = 0; n == PAGE && seen < MOST; seen += n) {
        n = cache_list_docs(app->cache, "builder", after, PAGE, page);
        if (n < 0) return false;
        for (int i = 0; i < n; i++) {
            cJSON *o = cJSON_Parse(page[i].json);
            if (o && go) go = one(user, page[i].id, o);
            memcpy(after, page[i].id, sizeof after);
            cJSON_Delete(o);
            free(page[i].json);
        }
    }
    return true;
}

static bool add(void *user, const char *public, const cJSON *o)
{
    cJSON *copy = cJSON_Duplicate(o, 1);
    (void)public;
    cJSON_DeleteItemFromObjectCaseSensitive(copy, "sig");
    cJSON_AddItemToArray(user, copy);
    return true;
}

service_reply *rt_builders(service_call *c)
{
    cJSON *o = cJSON_CreateObject();
    if (every(c->app, add, cJSON_AddArrayToObject(o, "builders"))) {
        service_reply *r = service_reply_json(200, o);
        service_reply_header(r, "Cache-Control", "no-store");
        return r;
    }
    cJSON_Delete(o);
    return service_store_away(CACHE_ERROR);
}

service_reply *rt_builder_new(service_call *c)
{
    static const char *const names[] = {"public", "name", "proof", "expires_seconds", NULL};
    service_reply *bad;
    cJSON *o = service_body_json(c, &bad);
    if (!o) return bad;
    const char *public = service_body_text(o, "public", NULL, 64, &bad), *name = service_body_text(o, "name", NULL, 62, &bad);
    const char *proof = service_body_text(o, "proof", NULL, 128, &bad);
    if (!bad) service_body_only(o, names, &bad);
    if (!bad && !public_ok(public))
        bad = service_body_wrong("/public", "this is no public key", "64 hex digits, as kiln-worker card prints");
    if (!bad && !name_ok(name))
        bad = service_body_wrong("/name", "this cannot be the name of a builder", "1 to 62 letters, digits, _ . : -");
    if (!bad && !seal_card_holds(public, name, proof))
        bad = service_body_wrong("/proof", "the proof is not the key's signature over the name", "the output of kiln-worker card, unchanged");
    int64_t seconds = bad ? 0 : service_body_int(o, "expires_seconds", 0, 1, 10ll * 366 * 86400, &bad);
    int64_t now = cache_store_ms(c->app->cache), ends = seconds ? now + seconds * 1000 : 0;
    char *text = bad ? NULL : seals_enrol(service_signer_seals(c->app->signer), public, name, c->who.key, now, ends);
    enum cache_status s = text ? cache_put_doc(c->app->cache, "builder", public, (kiln_bytes){text, strlen(text)}) : CACHE_ERROR;
    if (!bad && s != CACHE_OK) bad = service_store_away(s);
    if (!bad) service_audit(c, "builder-new", public, name);
    service_reply *r = bad;
    if (!bad) {
        cJSON *out = cJSON_CreateObject();
        cJSON_AddStringToObject(out, "public", public);
        cJSON_AddStringToObject(out, "name", name);
        if (ends) cJSON_AddNumberToObject(out, "ends_ms", (double)ends);
        r = service_reply_json(201, out);
        service_reply_header(r, "Location", "/v1/builders/%s", public);
    }
    free(text);
    cJSON_Delete(o);
    return r;
}

service_reply *rt_builder_drop(service_call *c)
{
    char *json = NULL;
    enum cache_status s = cache_get_doc(c->app->cache, "builder", c->param, &json);
    free(json);
    if (s == CACHE_OK) s = cache_put_doc(c->app->cache, "builder", c->param, (kiln_bytes){0});
    if (s == CACHE_MISS) return service_problem(404, "not-found", "no such builder", c->param, NULL);
    if (s != CACHE_OK) return service_store_away(s);
    service_audit(c, "builder-drop", c->param, NULL);
    return service_reply_text(204, "application/json", "");
}

typedef struct enrolled_by { service_call *c; const char *key; } enrolled_by;

static bool drop(void *user, const char *public, const cJSON *o)
{
    const enrolled_by *e = user;
    const char *by = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, "key"));
    if (by && !strcmp(by, e->key) && cache_put_doc(e->c->app->cache, "builder", public, (kiln_bytes){0}) == CACHE_OK)
        service_audit(e->c, "builder-drop", public, "with the key that enrolled it");
    return true;
}

bool service_builders_drop(service_call *c, const char *key) { return every(c->app, drop, &(enrolled_by){c, key}); }
