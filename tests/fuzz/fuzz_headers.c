/* Fuzz target: the head of a request: method, path, query, and the headers that this service takes apart (Range, If-Range, If-None-Match, Prefer,
 * Accept-Encoding, traceparent, Content-Type, Accept), one a line; then the body of the reply that they are applied to. */
#include "tests/fuzz/app.h"

static service_reply *reply_of(const char *body, size_t n, bool ranges)
{
    char *copy = malloc(n + 1);
    memcpy(copy, body, n);
    service_reply *r = service_reply_new(200, "application/json", copy, n);
    service_reply_header(r, "ETag", "\"kb1-0\"");
    r->ranges = ranges;
    r->digest = true;
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { LINES = 11 };
    const char *p = (const char *)data;
    char *l[LINES], path[512], value[64];
    for (int i = 0; i < LINES; i++) l[i] = cut_line(&p, &size);
    service_call c = call_of(*l[0] == 'H' ? "HEAD" : *l[0] == 'P' ? "POST" : "GET", NULL, 0);
    service_reply *problem = NULL;
    if (service_unescape(l[1], strlen(l[1]), path, sizeof path)) c.route = service_route_find(c.method, path, c.param, sizeof c.param, &problem);
    service_reply_drop(problem);
    service_query(l[2], "target", value, sizeof value);
    service_query(l[2], "dim.batch", value, sizeof value);
    c.range = l[3], c.if_range = l[4], c.if_none_match = l[5], c.prefer = l[6], c.traceparent = l[8], c.content_type = l[9], c.accept = l[10];
    c.coding = service_coding_of(l[7]);
    c.began_ms = service_now_ms();
    service_media_is(l[9], "application/json");
    service_negotiate(l[10], 0x7f);
    service_reply *r = service_finish(&c, reply_of(p, size, *l[0] != 'h'));
    if (!r || (r->status == 206 && r->n > size) || (r->status == 304 && r->n)) abort();
    service_reply_drop(r);
    if (service_etag_matches(l[5], "\"kb1-0\"") && !*l[5]) abort();
    if ((strlen(l[8]) < 55 || (l[8][54] - '0') & 1) && c.route) service_log_call(&c, 200);
    for (int i = 0; i < LINES; i++) free(l[i]);
    return 0;
}
