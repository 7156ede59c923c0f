/* GET /livez, /readyz, /metrics, /version and /openapi.json. */
#include <stdlib.h>
#include <string.h>
#include "service/assets.h"
#include "service/sign.h"

service_reply *rt_livez(service_call *c)
{
    (void)c;
    return service_reply_text(200, "application/json", "{\"live\":true}");
}

service_reply *rt_readyz(service_call *c)
{
    if (atomic_load(&c->app->draining)) return service_problem(503, "draining", "the service is ending", NULL, NULL);
    if (!atomic_load(&c->app->ready)) return service_problem(503, "starting", "the service is starting", NULL, NULL);
    return service_reply_text(200, "application/json", "{\"ready\":true}");
}

service_reply *rt_metrics(service_call *c)
{
    char *t = service_metrics_text(c->app, &c->who);
    return service_reply_new(200, "text/plain; version=0.0.4", t, t ? strlen(t) : 0);
}

service_reply *rt_version(service_call *c)
{
    const worker_tools *t = &c->app->tools;
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "version", SERVICE_VERSION);
    cJSON_AddStringToObject(o, "fingerprint", kiln_fingerprint());
    cJSON_AddStringToObject(o, "cc", t->cc_version);
    cJSON_AddStringToObject(o, "nvrtc", t->nvrtc_version);
    if (!*t->nvrtc) cJSON_AddStringToObject(o, "nvrtc_why", t->nvrtc_why);
    cJSON *archs = cJSON_AddArrayToObject(o, "nvrtc_archs");
    for (int i = 0; i < t->nnvrtc_archs; i++) cJSON_AddItemToArray(archs, cJSON_CreateNumber(t->nvrtc_archs[i]));
    if (c->app->signer) cJSON_AddStringToObject(o, "signer", service_signer_public(c->app->signer));
    cJSON_AddNumberToObject(o, "cpus", c->app->cpus);
    return service_reply_json(200, o);
}

service_reply *rt_openapi(service_call *c)
{
    (void)c;
    char *t = service_openapi();
    return service_reply_new(200, "application/json", t, t ? strlen(t) : 0);
}

service_reply *rt_page(service_call *c)
{
    (void)c;
    size_t n = (size_t)(service_asset_page_end - service_asset_page);
    char *copy = malloc(n + 1);
    if (copy) memcpy(copy, service_asset_page, n);
    service_reply *r = service_reply_new(200, "text/html; charset=utf-8", copy, n);
    service_reply_header(r, "ETag", "\"%s-%zu\"", SERVICE_VERSION, n);
    service_reply_header(r, "Cache-Control", "no-cache");
    service_reply_header(r, "Content-Security-Policy",
                         "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:");
    service_reply_header(r, "X-Content-Type-Options", "nosniff");
    return r;
}
