/* Understanding a compile request: media type, body, target, keys. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "service/service.h"
#include "workers/arena.h"

void service_ask_drop(service_ask *a)
{
    if (!a || atomic_fetch_sub(&a->refs, 1) != 1) return;
    kiln_arena_close(a->arena);
    free(a);
}

static const char *const reserved[] = {"target", "quality", "policy", "grad", "top_k", "wait_ms", "intrinsic"};

static bool is_reserved(const char *p, size_t n)
{
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (strlen(reserved[i]) == n && !memcmp(reserved[i], p, n)) return true;
    return false;
}

/* The query members that name inputs, decoded and joined by '&'. */
static bool inputs_of(const char *query, char *out, size_t size)
{
    size_t at = 0;
    *out = 0;
    for (const char *p = query; *p;) {
        size_t n = strcspn(p, "&"), name = 0;
        while (name < n && p[name] != '=') name++;
        if (n && !is_reserved(p, name)) {
            if (at + 2 > size) return false;
            if (at) out[at++] = '&';
            if (!service_unescape(p, n, out + at, size - at) || strchr(out + at, '&')) return false;
            at += strlen(out + at);
        }
        p += n + (p[n] == '&');
    }
    return true;
}

static bool one_of(const char *v, const char *const *choices)
{
    for (; *choices; choices++)
        if (!strcmp(v, *choices)) return true;
    return false;
}

/* Query members of the text form that are not inputs. */
static kiln_status options_of(service_call *c, kiln_request *r, char *target, size_t size, kiln_diag *d)
{
    static const char *const qualities[] = {"any", "constructed", "verified", "tuned", NULL}, *const policies[] = {"default", "roller",
                                                                                                                   NULL};
    char text[64];
    int t = service_query(c->query, "target", target, size), q, p;
    if (t == 0) snprintf(target, size, "%s", *r->target ? r->target : "host");
    q = service_query(c->query, "quality", text, sizeof text);
    if (q == 1 && one_of(text, qualities))
        for (int i = 0; qualities[i]; i++)
            if (!strcmp(text, qualities[i])) r->quality = qualities[i];
    if (q < 0 || (q && strcmp(r->quality, text))) t = -2;
    p = service_query(c->query, "policy", text, sizeof text);
    if (p == 1 && one_of(text, policies))
        for (int i = 0; policies[i]; i++)
            if (!strcmp(text, policies[i])) r->policy = policies[i];
    if (p < 0 || (p && strcmp(r->policy, text))) t = -3;
    if (t >= 0) return KILN_OK;
    const char *const wrong[] = {"target", "quality", "policy"};
    const char *const right[] = {"the id of a target, once", "any, constructed, verified or tuned", "default or roller"};
    *d = (kiln_diag){.status = KILN_REQUEST};
    snprintf(d->pointer, sizeof d->pointer, "?%s", wrong[-1 - t]);
    snprintf(d->message, sizeof d->message, "the query member %s has a value that cannot be used", wrong[-1 - t]);
    snprintf(d->hint, sizeof d->hint, "%s", right[-1 - t]);
    return KILN_REQUEST;
}

static kiln_status parse_text(service_call *c, service_ask *a, kiln_diag *d)
{
    char inputs[SERVICE_URI_BYTES];
    if (!inputs_of(c->query, inputs, sizeof inputs)) {
        *d = (kiln_diag){
            .status = KILN_REQUEST, .pointer = "?", .message = "the query cannot be decoded", .hint = "name=dtype:SHAPE, as a=f32:512x512"};
        return KILN_REQUEST;
    }
    char grad[256] = "";
    if (service_query(c->query, "grad", grad, sizeof grad) < 0) {
        *d = (kiln_diag){.status = KILN_REQUEST, .pointer = "?grad", .message = "the query member grad has a value that cannot be used",
                         .hint = "names of inputs, once: grad=a,b"};
        return KILN_REQUEST;
    }
    size_t n = c->n;
    while (n && strchr("\r\n\t ", c->body[n - 1])) n--;
    kiln_status s = kiln_request_text(a->arena, (kiln_bytes){c->body, n}, (kiln_bytes){inputs, strlen(inputs)}, grad, &a->request, d);
    return s == KILN_OK ? options_of(c, a->request, a->target, sizeof a->target, d) : s;
}

static kiln_status parse_json(service_call *c, service_ask *a, kiln_diag *d)
{
    kiln_status s = kiln_json_check((kiln_bytes){c->body, c->n}, d);
    if (s == KILN_OK) s = kiln_request_json(a->arena, (kiln_bytes){c->body, c->n}, &a->request, d);
    if (s != KILN_OK) return s;
    return options_of(c, a->request, a->target, sizeof a->target, d);
}

static kiln_status resolve(service_call *c, service_ask *a, kiln_diag *d)
{
    char *json = service_target_json(c->app->targets, a->target, NULL);
    if (!json) {
        *d = (kiln_diag){.status = KILN_TARGET, .pointer = "/target", .hint = "an id that GET /v1/targets lists, or \"host\""};
        snprintf(d->message, sizeof d->message, "no target \"%s\"", a->target);
        return KILN_TARGET;
    }
    kiln_status s = kiln_hw_parse(a->arena, (kiln_bytes){json, strlen(json)}, &a->hw, d);
    free(json);
    return s;
}

service_ask *service_ask_parse(service_call *c, service_reply **problem)
{
    bool json = service_media_is(c->content_type, "application/json");
    bool text = service_media_is(c->content_type, "text/plain") || service_media_is(c->content_type, "text/x-kex");
    if (!*c->content_type || service_media_is(c->content_type, "application/x-www-form-urlencoded")) {
        size_t at = 0;
        while (at < c->n && strchr(" \t\r\n", c->body[at])) at++;
        json = at < c->n && c->body[at] == '{';
        text = !json;
    }
    if (!json && !text) {
        *problem = service_problem(415, "unsupported-media-type", "the body has a type that is not read here", c->content_type,
                                   "application/json, text/x-kex or text/plain");
        service_reply_header(*problem, "Accept-Post", "application/json, text/x-kex, text/plain");
        return NULL;
    }
    service_ask *a = calloc(1, sizeof *a);
    kiln_diag d = {.status = KILN_MEMORY};
    double began = service_now_ms();
    kiln_status s = KILN_MEMORY;
    if (a) {
        atomic_init(&a->refs, 1);
        a->arena = worker_arena(NULL);
        if (a->arena) s = json ? parse_json(c, a, &d) : parse_text(c, a, &d);
        if (s == KILN_OK) s = resolve(c, a, &d);
        const char *policy = s == KILN_OK ? kiln_request_policy(a->arena, a->request) : NULL;
        if (s == KILN_OK) s = policy ? kiln_keys_of(a->arena, a->request->program, a->hw, policy, &a->keys, &d) : KILN_MEMORY;
        a->times.canon = service_now_ms() - began;
    }
    if (s == KILN_OK) return a;
    d.status = s;
    *problem = service_problem_diag(&d);
    service_ask_drop(a);
    return NULL;
}
