/* POST /v1/graphs; GET and DELETE /v1/graphs/{key}. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "service/auth.h"
#include "service/graphs.h"
#include "workers/arena.h"

static bool key_ok(const char *k) { return strlen(k) == 68 && !strncmp(k, "kk1-", 4) && strspn(k + 4, "0123456789abcdef") == 64; }

static service_reply *answer(int status, cJSON *o, const char *key)
{
    service_reply *r = service_reply_json(status, o);
    service_reply_header(r, "Cache-Control", "no-store");
    if (status == 202) {
        service_reply_header(r, "Location", "/v1/graphs/%s", key);
        service_reply_header(r, "Retry-After", "1");
    }
    return r;
}

static void digest_of(const void *p, size_t n, char out[65])
{
    uint8_t d[32];
    cache_sha256(p, n, d);
    kiln_hex(d, 32, out);
}

/* Key and canonical bytes: what the client sent, for what, with which extents, and who plans it: another compiler makes another plan. */
static void identify(service_graph_ask *a)
{
    char body[65], target[65], key[65];
    digest_of(a->body, a->n, body);
    digest_of(a->target_json, strlen(a->target_json), target);
    char open[sizeof a->dims + sizeof a->binds + 20];
    snprintf(open, sizeof open, "%s%s%s%s", a->dims, *a->binds ? ";bind:" : "", a->binds, a->partial ? ";partial" : "");
    digest_of(open, strlen(open), key);
    snprintf(a->canon, sizeof a->canon, "kiln.graph;%s:%s;target:%s;dims:%.16s;compiler:%.32s", a->onnx ? "onnx" : "json", body, target, key,
             kiln_fingerprint());
    digest_of(a->canon, strlen(a->canon), key);
    snprintf(a->key, sizeof a->key, "kk1-%s", key);
}

/* The target: of the query, else of the body, else "host". What stands around a graph in JSON is judged here, before anything is accepted. */
static service_reply *read_target(service_call *c, service_graph_ask *a, bool given)
{
    kiln_diag d = {.status = KILN_MEMORY};
    const char *target = "";
    kiln_arena *arena = a->onnx ? NULL : worker_arena(NULL);
    kiln_status s = a->onnx ? KILN_OK : KILN_MEMORY;
    if (arena) s = kiln_graph_target(arena, (kiln_bytes){c->body ? c->body : "", c->n}, &target, &d);
    if (s == KILN_OK && strlen(target) >= sizeof a->target) {
        d = (kiln_diag){.status = s = KILN_TARGET, .pointer = "/target", .message = "no target has so long an id"};
        snprintf(d.hint, sizeof d.hint, "an id that GET /v1/targets lists, or \"host\"");
    }
    if (s == KILN_OK && !given) snprintf(a->target, sizeof a->target, "%s", *target ? target : "host");
    kiln_arena_close(arena);
    if (s == KILN_OK) a->target_json = service_target_json(c->app->targets, a->target, NULL);
    if (s == KILN_OK && !a->target_json) {
        d = (kiln_diag){.status = s = KILN_TARGET, .hint = "an id that GET /v1/targets lists, or \"host\""};
        snprintf(d.pointer, sizeof d.pointer, "%s", given ? "?target" : "/target");
        snprintf(d.message, sizeof d.message, "no target \"%s\"", a->target);
    }
    d.status = s;
    return s == KILN_OK ? NULL : service_problem_diag(&d);
}

/* Extents and numbers are judged before anything is accepted. */
static service_reply *read_open(const service_graph_ask *a)
{
    kiln_diag d = {.status = KILN_MEMORY};
    kiln_graph_options o;
    kiln_arena *arena = worker_arena(NULL);
    kiln_status s = arena ? kiln_graph_options_read(arena, a->dims, a->binds, &o, &d) : KILN_MEMORY;
    kiln_arena_close(arena);
    d.status = s;
    return s == KILN_OK ? NULL : service_problem_diag(&d);
}

/* NULL: *problem. */
static bool read_ask(service_call *c, service_graph_ask *a, service_reply **problem)
{
    bool json = service_media_is(c->content_type, "application/json");
    a->onnx = service_media_is(c->content_type, "application/onnx") || service_media_is(c->content_type, "application/octet-stream") ||
              service_media_is(c->content_type, "application/x-protobuf");
    if (!json && !a->onnx) {
        *problem = service_problem(415, "unsupported-media-type", "the body has a type that is not read here", c->content_type,
                                   "application/onnx or application/json");
        service_reply_header(*problem, "Accept-Post", "application/onnx, application/json");
        return false;
    }
    int t = service_query(c->query, "target", a->target, sizeof a->target), d = service_query(c->query, "dims", a->dims, sizeof a->dims);
    int b = service_query(c->query, "bind", a->binds, sizeof a->binds);
    char partial[8] = "";
    int p = service_query(c->query, "partial", partial, sizeof partial);
    a->partial = p > 0 && !strcmp(partial, "true");
    if (p > 0 && !a->partial && strcmp(partial, "false")) p = -1;
    if (!d) *a->dims = 0;
    if (!b) *a->binds = 0;
    if (t < 0 || d < 0 || b < 0 || p < 0) {
        *problem = service_problem(422, "invalid-request", "a query member has a value that cannot be used", NULL,
                                   "target=ID, dims=NAME:EXTENT,..., bind=INPUT:NUMBER,..., partial=true");
        return false;
    }
    *problem = read_open(a);
    if (!*problem) *problem = read_target(c, a, t > 0);
    if (*problem) return false;
    a->body = c->body ? c->body : strdup("");
    a->n = c->n;
    c->body = NULL;
    a->who = c->who;
    return a->body != NULL;
}

service_reply *rt_graphs(service_call *c)
{
    service_graph_ask a = {0};
    service_reply *problem = NULL;
    cache_record *r = NULL;
    const char *tier = "";
    char status[64];
    if (!read_ask(c, &a, &problem)) {
        free(a.target_json);
        return problem;
    }
    identify(&a);
    service_grant(c, a.key);
    kiln_bytes canon = {a.canon, strlen(a.canon)};
    if (cache_get(c->app->cache, a.key, canon, &r, &tier) == CACHE_OK) {
        free(a.body);
        free(a.target_json);
        snprintf(status, sizeof status, "kiln; hit; detail=%s", tier);
        service_answer how = {NULL, status, NULL};
        service_reply *reply = service_answer_kernel(c, r, &how);
        cache_release(r);
        return reply;
    }
    if (atomic_load(&c->app->draining) || !service_graphs_start(c->app->graphs, &a)) {
        free(a.body);
        free(a.target_json);
        return service_problem_limit(503, "graphs", SERVICE_GRAPHS, "as many models as may be are being compiled");
    }
    cJSON *o = service_graphs_json(c->app->graphs, a.key);
    return o ? answer(202, o, a.key) : NULL;
}

static service_reply *unknown(service_call *c)
{
    return service_problem(404, "not-found", "no compile of a model has this key", c->param, "POST /v1/graphs gives one");
}

static service_reply *look(service_call *c)
{
    cJSON *o = service_graphs_json(c->app->graphs, c->param);
    service_reply *r = o ? answer(200, o, c->param) : unknown(c);
    if (o && c->wait_until) service_reply_header(r, "Preference-Applied", "wait");
    return r;
}

service_reply *rt_graph(service_call *c)
{
    if (!key_ok(c->param) || !service_may_see(c, c->param)) return unknown(c);
    int wait = service_prefer_of(c->prefer).wait_ms;
    c->wait_until = wait > 0 ? (int64_t)service_now_ms() + wait : 0;
    c->resume = look;
    if (wait > 0 && service_graphs_wait(c->app->graphs, c, c->param)) return NULL;
    c->resume = NULL;
    c->wait_until = 0; /* not applied: another process has it, or it is over */
    return look(c);
}

service_reply *rt_graph_drop(service_call *c)
{
    char tenant[64];
    if (!key_ok(c->param) || !service_may_see(c, c->param) || !service_graphs_asker(c->app->graphs, c->param, tenant)) return unknown(c);
    service_reply *bad = service_refuse_stranger(c, tenant);
    if (bad) return bad;
    if (!service_graphs_cancel(c->app->graphs, c->param)) return unknown(c);
    cJSON *o = service_graphs_json(c->app->graphs, c->param);
    return o ? answer(202, o, c->param) : unknown(c);
}
