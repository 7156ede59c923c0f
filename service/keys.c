/* Making, rotating and listing keys and tenants, for administrators. */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "service/auth.h"

enum { PAGE = 128 };

static void secret_hash(const char *secret, char hex[65])
{
    uint8_t h[32];
    crypto_generichash(h, 32, (const uint8_t *)secret, strlen(secret), (const uint8_t *)"kiln api key 1..", 16);
    sodium_bin2hex(hex, 65, h, 32);
}

static enum cache_status put(service_auth *a, const char *kind, const char *id, cJSON *o)
{
    char *text = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    enum cache_status s = text ? cache_put_doc(service_auth_cache(a), kind, id, (kiln_bytes){text, strlen(text)}) : CACHE_ERROR;
    free(text);
    if (s == CACHE_OK && !service_auth_load(a)) s = CACHE_ERROR;
    return s;
}

enum cache_status service_key_new(service_auth *a, const char *tenant, unsigned scopes, int64_t expires_ms, const char *label, char id[24],
                                  char **secret)
{
    uint8_t raw[6], random[32];
    char text[44], hash[65];
    *secret = NULL;
    randombytes_buf(raw, sizeof raw);
    randombytes_buf(random, sizeof random);
    sodium_bin2hex(id, 24, raw, sizeof raw);
    sodium_bin2base64(text, sizeof text, random, sizeof random, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    if (asprintf(secret, "kiln_%s_%s", id, text) < 0) return CACHE_ERROR;
    secret_hash(*secret, hash);
    cJSON *o = cJSON_CreateObject(), *list;
    cJSON_AddStringToObject(o, "tenant", tenant);
    list = cJSON_AddArrayToObject(o, "scopes");
    for (int s = SERVICE_READ; s < SERVICE_SCOPES; s++)
        if (scopes >> s & 1) cJSON_AddItemToArray(list, cJSON_CreateString(service_scope_text((enum service_scope)s)));
    cJSON_AddStringToObject(o, "hash", hash);
    cJSON_AddStringToObject(o, "label", label ? label : "");
    cJSON_AddNumberToObject(o, "created_ms", (double)cache_store_ms(service_auth_cache(a)));
    cJSON_AddNumberToObject(o, "expires_ms", (double)expires_ms);
    return put(a, "key", id, o);
}

enum cache_status service_key_expire(service_auth *a, const char *id, int64_t at_ms)
{
    char *json;
    enum cache_status s = cache_get_doc(service_auth_cache(a), "key", id, &json);
    if (s != CACHE_OK) return s;
    cJSON *o = cJSON_Parse(json), *e = cJSON_GetObjectItemCaseSensitive(o, "expires_ms");
    free(json);
    if (!cJSON_IsNumber(e) || !e->valuedouble || e->valuedouble > (double)at_ms)
        cJSON_ReplaceItemInObjectCaseSensitive(o, "expires_ms", cJSON_CreateNumber((double)at_ms));
    return put(a, "key", id, o);
}

enum cache_status service_key_rotate(service_auth *a, const char *id, int64_t grace_ms, char fresh[24], char **secret)
{
    char *json;
    unsigned scopes;
    *secret = NULL;
    enum cache_status s = cache_get_doc(service_auth_cache(a), "key", id, &json);
    if (s != CACHE_OK) return s;
    cJSON *o = cJSON_Parse(json), *e = cJSON_GetObjectItemCaseSensitive(o, "expires_ms");
    free(json);
    const char *tenant = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, "tenant"));
    const char *label = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, "label"));
    int64_t expires = cJSON_IsNumber(e) ? (int64_t)e->valuedouble : 0;
    bool ok = tenant && service_scopes_parse(cJSON_GetObjectItemCaseSensitive(o, "scopes"), &scopes);
    bool live = !expires || expires > cache_store_ms(service_auth_cache(a));
    s = !ok ? CACHE_ERROR : !live ? CACHE_MISS : service_key_new(a, tenant, scopes, expires, label, fresh, secret);
    cJSON_Delete(o);
    return s == CACHE_OK ? service_key_expire(a, id, cache_store_ms(service_auth_cache(a)) + grace_ms) : s;
}

/* Every document of a kind, the secret's hash left out. */
static cJSON *all(service_auth *a, const char *kind, const char *name)
{
    cache_doc page[PAGE];
    cJSON *list = cJSON_CreateArray();
    int n = PAGE;
    for (char after[160] = ""; n == PAGE;) {
        n = cache_list_docs(service_auth_cache(a), kind, after, PAGE, page);
        for (int i = 0; i < n; i++) {
            cJSON *o = cJSON_Parse(page[i].json);
            cJSON_DeleteItemFromObjectCaseSensitive(o, "hash");
            if (o) cJSON_AddStringToObject(o, name, page[i].id);
            cJSON_AddItemToArray(list, o);
            memcpy(after, page[i].id, sizeof after);
            free(page[i].json);
        }
    }
    if (n >= 0) return list;
    cJSON_Delete(list);
    return NULL;
}

cJSON *service_keys_json(service_auth *a) { return all(a, "key", "id"); }

cJSON *service_tenants_json(service_auth *a) { return all(a, "tenant", "name"); }
