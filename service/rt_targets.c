/* GET /v1/operators, /v1/targets, /v1/targets/{id} and PUT /v1/targets/{id}. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "service/service.h"
#include "workers/arena.h"

service_reply *rt_operators(service_call *c)
{
    (void)c;
    kiln_arena *a = worker_arena(NULL);
    kiln_bytes b;
    service_reply *r = NULL;
    if (a && kiln_operators_json(a, &b) == KILN_OK) {
        char *text = malloc(b.n + 1);
        if (text) memcpy(text, b.p, b.n);
        r = service_reply_new(200, "application/json", text, b.n);
    }
    kiln_arena_close(a);
    return r;
}

service_reply *rt_targets(service_call *c)
{
    char *text = service_targets_list(c->app->targets, &c->app->tools);
    return service_reply_new(200, "application/json", text, text ? strlen(text) : 0);
}

service_reply *rt_target(service_call *c)
{
    char *text = service_target_json(c->app->targets, c->param, NULL);
    if (!text) return service_problem(404, "not-found", "no such target", c->param, "GET /v1/targets lists them");
    return service_reply_new(200, "application/json", text, strlen(text));
}

static service_reply *judge(service_call *c)
{
    kiln_arena *a = worker_arena(NULL);
    kiln_hw *hw;
    kiln_diag d = {.status = KILN_MEMORY};
    kiln_status s = KILN_MEMORY;
    if (a) s = kiln_json_check((kiln_bytes){c->body, c->n}, &d);
    if (s == KILN_OK) s = kiln_hw_parse(a, (kiln_bytes){c->body, c->n}, &hw, &d);
    if (s == KILN_OK && strcmp(kiln_hw_id(hw), c->param)) {
        s = KILN_HWSPEC;
        d = (kiln_diag){.pointer = "/id", .message = "the id differs from the one in the path"};
        snprintf(d.hint, sizeof d.hint, "\"%.60s\"", c->param);
    }
    d.status = s;
    kiln_arena_close(a);
    return s == KILN_OK ? NULL : service_problem_diag(&d);
}

service_reply *rt_target_put(service_call *c)
{
    bool builtin = false;
    if (!service_target_id_ok(c->param))
        return service_problem(422, "invalid-request", "this cannot be the id of a target", c->param, "[a-z0-9][a-z0-9._-]{0,62}");
    if (*c->content_type && !service_media_is(c->content_type, "application/json") &&
        !service_media_is(c->content_type, "application/x-www-form-urlencoded"))
        return service_problem(415, "unsupported-media-type", "a hardware description is JSON", c->content_type, "application/json");
    free(service_target_json(c->app->targets, c->param, &builtin));
    if (!builtin && strcmp(c->param, "host")) {
        service_reply *bad = judge(c);
        if (bad) return bad;
    }
    switch (service_target_put(c->app->targets, c->app->cache, c->param, (kiln_bytes){c->body, c->n})) {
    case SERVICE_PUT_BUILTIN:
        return service_problem(409, "target-is-built-in", "a built-in target cannot be replaced", c->param, "choose another id");
    case SERVICE_PUT_FULL: return service_problem_limit(507, "targets", SERVICE_TARGETS, "no room for another target");
    case SERVICE_PUT_NO_ROOM: return service_store_away(CACHE_FULL);
    case SERVICE_PUT_STORE: return service_problem(503, "store-unavailable", "the target could not be stored", NULL, NULL);
    case SERVICE_PUT_SAME: atomic_fetch_add(&c->app->target_serial, 1); return rt_target(c);
    case SERVICE_PUT_NEW: break;
    }
    atomic_fetch_add(&c->app->target_serial, 1);
    service_reply *r = rt_target(c);
    if (r) r->status = 201;
    service_reply_header(r, "Location", "/v1/targets/%s", c->param);
    return r;
}
