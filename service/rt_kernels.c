/* GET /v1/kernels and /v1/kernels/{key}. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "service/auth.h"

enum { PAGES = 20 };

static bool key_ok(const char *k) { return strlen(k) == 68 && !strncmp(k, "kk1-", 4) && strspn(k + 4, "0123456789abcdef") == 64; }

service_reply *rt_kernel(service_call *c)
{
    cache_record *r = NULL;
    const char *tier = "";
    char status[64];
    bool seen = key_ok(c->param) && service_may_see(c, c->param);
    enum cache_status s = seen ? cache_get(c->app->cache, c->param, (kiln_bytes){0}, &r, &tier) : CACHE_MISS;
    if (s == CACHE_QUARANTINED)
        return service_problem(410, "quarantined", "every version of this kernel failed verification", c->param, NULL);
    if (s == CACHE_ERROR) return service_problem(503, "store-unavailable", "the store cannot be asked", NULL, NULL);
    if (s != CACHE_OK) return service_problem(404, "not-found", "no kernel has this key", c->param, "a key is kk1- and 64 hex digits");
    snprintf(status, sizeof status, "kiln; hit; detail=%s", tier);
    service_answer how = {NULL, status, NULL};
    service_reply *reply = service_answer_kernel(c, r, &how);
    if (reply && reply->status == 200) reply->keep = true;
    cache_release(r);
    return reply;
}

service_reply *rt_kernels(service_call *c)
{
    cache_record *list[SERVICE_LIST];
    char target[64], cursor[128] = "", text[32] = "50";
    int t = service_query(c->query, "target", target, sizeof target), k = service_query(c->query, "cursor", cursor, sizeof cursor);
    int l = service_query(c->query, "limit", text, sizeof text), limit = atoi(text);
    if (t < 0 || k < 0 || l < 0 || limit < 1 || limit > SERVICE_LIST)
        return service_problem(422, "invalid-request", "a query member has a value that cannot be used", NULL,
                               "target=ID, cursor=NEXT, limit=1 to 200");
    cJSON *o = cJSON_CreateObject(), *kernels = cJSON_AddArrayToObject(o, "kernels");
    for (int got = 0, pages = 0, n = limit; got < limit && n == limit && pages < PAGES; pages++) { /* what may not be seen is passed over */
        n = cache_list(c->app->cache, t ? target : "", cursor, limit, list);
        for (int i = 0; i < n; i++) {
            if (got < limit) snprintf(cursor, sizeof cursor, "%s:%lld", list[i]->key, (long long)list[i]->version);
            if (got < limit && service_may_see(c, list[i]->key)) {
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
