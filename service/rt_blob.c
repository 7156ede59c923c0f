/* GET /v1/blobs/sha256/{hex}. */
#include <string.h>
#include "service/auth.h"

service_reply *rt_blob(service_call *c)
{
    char *bytes;
    size_t n;
    bool ok = strlen(c->param) == 64 && strspn(c->param, "0123456789abcdef") == 64 && service_may_see(c, c->param);
    enum cache_status s = ok ? cache_get_blob(c->app->cache, c->param, &bytes, &n) : CACHE_MISS;
    if (s == CACHE_ERROR) return service_problem(503, "store-unavailable", "the store cannot be asked", NULL, NULL);
    if (s == CACHE_QUARANTINED)
        return service_problem(410, "quarantined", "the stored bytes did not match their digest and were removed", c->param, NULL);
    if (s != CACHE_OK) return service_problem(404, "not-found", "no artifact has this digest", c->param, "64 lower-case hex digits");
    service_reply *r = service_reply_new(200, "application/octet-stream", bytes, n);
    if (r) r->keep = r->ranges = true;
    service_reply_digest(r);
    service_reply_header(r, "ETag", "\"%s\"", c->param);
    service_reply_header(r, "Cache-Control", "%s",
                         c->app->config.auth ? "private, max-age=31536000, immutable" : "public, max-age=31536000, immutable");
    return r;
}
