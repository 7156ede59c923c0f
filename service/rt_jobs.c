/* /v1/jobs: lists, states with long polls, streams of events, and what a client may change. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "service/auth.h"
#include "service/body.h"
#include "service/spec.h"
#include "service/status.h"
#include "service/stream.h"
#include "workers/arena.h"

static jobs *jobs_of(service_call *c) { return service_fleet_jobs(c->app->fleet); }

static service_reply *none(service_call *c) { return service_problem(404, "not-found", "no such job", c->param, "results are remembered for a day"); }

static service_reply *away(void) { return service_problem(503, "store-unavailable", "the jobs cannot be asked", NULL, NULL); }

static void add_parsed(cJSON *o, const char *name, const char *text)
{
    cJSON *e = text && *text ? cJSON_Parse(text) : NULL;
    if (e) cJSON_AddItemToObject(o, name, e);
}

cJSON *service_job_json(service_app *app, const jobs_job *j)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "id", j->id);
    cJSON_AddStringToObject(o, "kind", jobs_kind_text(j->kind));
    cJSON_AddStringToObject(o, "state", jobs_state_text(j->state));
    cJSON_AddStringToObject(o, "key", j->key);
    cJSON_AddStringToObject(o, "class", j->class == JOBS_BACKGROUND ? "background" : "interactive");
    cJSON_AddNumberToObject(o, "priority", j->priority);
    cJSON_AddNumberToObject(o, "attempt", j->attempt);
    if (*j->want) cJSON_AddStringToObject(o, "want", j->want);
    if (*j->worker) cJSON_AddStringToObject(o, "worker", j->worker);
    cJSON_AddNumberToObject(o, "created_ms", (double)j->created_ms);
    if (j->started_ms) cJSON_AddNumberToObject(o, "started_ms", (double)j->started_ms);
    if (j->finished_ms) cJSON_AddNumberToObject(o, "finished_ms", (double)j->finished_ms);
    cJSON *b = cJSON_AddObjectToObject(o, "budget");
    cJSON_AddNumberToObject(b, "ms", (double)j->budget_ms);
    cJSON_AddNumberToObject(b, "spent_ms", (double)j->spent_ms);
    cJSON_AddNumberToObject(b, "trials", (double)j->budget_trials);
    cJSON_AddNumberToObject(b, "spent_trials", (double)j->trials);
    add_parsed(o, "progress", j->progress);
    if (j->state == JOBS_SUCCEEDED) {
        char href[100];
        snprintf(href, sizeof href, "/v1/kernels/%s", j->key);
        cJSON_AddStringToObject(o, "kernel", href);
        add_parsed(o, "result", j->result);
    } else {
        add_parsed(o, "problem", j->result);
    }
    if (j->error && *j->error) cJSON_AddStringToObject(o, "error", j->error);
    cJSON *curve = app->stream ? service_stream_curve(app->stream, j->id) : NULL;
    if (curve) cJSON_AddItemToObject(o, "curve", curve);
    return o;
}

/* Milliseconds of Prefer: wait, 0 without. */
static int64_t wait_of(const service_call *c)
{
    int ms = service_prefer_of(c->prefer).wait_ms;
    return ms < 0 ? 0 : ms;
}

static service_reply *state(service_call *c, const jobs_job *j)
{
    service_reply *r = service_reply_json(200, service_job_json(c->app, j));
    service_reply_header(r, "ETag", "\"%lld\"", (long long)j->seq);
    service_reply_header(r, "Cache-Control", "no-store");
    if (*c->prefer && wait_of(c)) service_reply_header(r, "Preference-Applied", "wait=%lld", (long long)(wait_of(c) / 1000));
    if (jobs_state_live(j->state)) service_reply_header(r, "Retry-After", "1");
    return r;
}

static service_reply *look(service_call *c);

static service_reply *again(service_call *c)
{
    if (c->timed_out) c->wait_until = 0;
    return look(c);
}

/* A live job is waited for: until it changes from the state whose ETag was given, else until it has ended. */
static service_reply *look(service_call *c)
{
    jobs_job j;
    char etag[32];
    enum jobs_status s = jobs_get(jobs_of(c), c->param, &j);
    if (s == JOBS_ERROR) return away();
    if (s != JOBS_OK) return none(c);
    if (!service_may_see(c, j.key)) {
        jobs_job_free(&j);
        return none(c);
    }
    snprintf(etag, sizeof etag, "\"%lld\"", (long long)j.seq);
    bool same = !*c->if_none_match || service_etag_matches(c->if_none_match, etag);
    if (jobs_state_live(j.state) && same && c->wait_until > (int64_t)service_now_ms()) {
        c->resume = again;
        bool waits = service_stream_wait(c->app->stream, c, c->param, j.seq);
        if (waits) {
            jobs_job_free(&j);
            return NULL;
        }
        c->resume = NULL;
    }
    service_reply *r = state(c, &j);
    jobs_job_free(&j);
    return r;
}

service_reply *rt_job(service_call *c)
{
    int64_t wait = wait_of(c);
    c->wait_until = wait ? (int64_t)service_now_ms() + wait : 0;
    service_reply *local;
    return service_local_job(c, &local) ? local : look(c);
}

/* How long a stream is wanted, in *seconds; -1: not said. */
static service_reply *how_long(const service_call *c, int *seconds)
{
    *seconds = -1;
    if (service_query_whole(c->query, "seconds", 0, 86400, seconds)) return NULL;
    return service_problem(422, "invalid-request", "a query member has a value that cannot be used", "seconds", "seconds=0 to 86400");
}

service_reply *rt_job_events(service_call *c)
{
    jobs_job j;
    int seconds;
    service_reply *problem = how_long(c, &seconds);
    if (problem) return problem;
    enum jobs_status s = jobs_get(jobs_of(c), c->param, &j);
    if (s == JOBS_ERROR) return away();
    bool seen = s == JOBS_OK && service_may_see(c, j.key);
    if (s == JOBS_OK) jobs_job_free(&j);
    if (!seen) return none(c);
    int64_t since = service_last_event(c->last_event);
    return service_stream_reply(c, c->param, since < 0 ? 0 : since, seconds);
}

service_reply *rt_events(service_call *c)
{
    int seconds;
    service_reply *problem = how_long(c, &seconds);
    return problem ? problem : service_stream_reply(c, "", service_last_event(c->last_event), seconds);
}

static bool filter_of(service_call *c, jobs_filter *f, char text[4][80])
{
    static const char *const names[] = {"state", "kind", "key", "before"};
    enum jobs_kind k;
    int found[4];
    for (int i = 0; i < 4; i++) {
        found[i] = service_query(c->query, names[i], text[i], 80);
        if (found[i] < 0) return false;
    }
    if (found[0]) {
        f->live = !strcmp(text[0], "live");
        for (int s = 0; s < JOBS_STATES && f->state < 0 && !f->live; s++)
            if (!strcmp(text[0], jobs_state_text((enum jobs_state)s))) f->state = s;
        if (f->state < 0 && !f->live) return false;
    }
    if (found[1]) {
        if (!jobs_kind_find(text[1], &k)) return false;
        f->kind = (int)k;
    }
    if (found[2]) f->key = text[2];
    if (found[3]) f->before = text[3];
    return service_query_whole(c->query, "limit", 1, SERVICE_LIST, &f->limit);
}

service_reply *rt_jobs(service_call *c)
{
    char text[4][80];
    jobs_filter f = {.state = -1, .kind = -1, .limit = 50};
    if (!filter_of(c, &f, text))
        return service_problem(422, "invalid-request", "a query member has a value that cannot be used", NULL,
                               "state=live or a state, kind=KIND, key=KEY, before=ID, limit=1 to 200");
    jobs_job *list = calloc((size_t)f.limit, sizeof *list);
    int n = list ? jobs_list(jobs_of(c), &f, list) : 0;
    cJSON *o = cJSON_CreateObject(), *a = cJSON_AddArrayToObject(o, "jobs");
    for (int i = 0; i < n; i++) {
        if (service_may_see(c, list[i].key)) cJSON_AddItemToArray(a, service_job_json(c->app, &list[i]));
        if (i == f.limit - 1) cJSON_AddStringToObject(o, "next", list[i].id);
        jobs_job_free(&list[i]);
    }
    free(list);
    if (n < 0) {
        cJSON_Delete(o);
        return away();
    }
    service_reply *r = service_reply_json(200, o);
    service_reply_header(r, "Cache-Control", "no-store");
    return r;
}

/* The job after a wish; 409 when its state has no such move. */
static service_reply *after(service_call *c, enum jobs_status s, int status)
{
    jobs_job j;
    if (s == JOBS_NONE) return none(c);
    if (s == JOBS_REFUSED) return service_problem(409, "conflict", "the job's state does not allow this", c->param, "GET it to see its state");
    if (s != JOBS_OK || jobs_get(jobs_of(c), c->param, &j) != JOBS_OK) return away();
    service_reply *r = state(c, &j);
    if (r) r->status = status;
    jobs_job_free(&j);
    return r;
}

/* Who may see a kernel sees its jobs; changing them is for those who asked for them. */
static service_reply *allowed(service_call *c, jobs_job *j)
{
    enum jobs_status s = jobs_get(jobs_of(c), c->param, j);
    if (s == JOBS_ERROR) return away();
    service_reply *bad = s == JOBS_OK && service_may_see(c, j->key) ? service_refuse_stranger(c, j->tenant) : none(c);
    if (bad && s == JOBS_OK) jobs_job_free(j);
    return bad;
}

service_reply *rt_job_cancel(service_call *c)
{
    jobs_job j;
    service_reply *bad = allowed(c, &j);
    if (bad) return bad;
    jobs_job_free(&j);
    return after(c, jobs_cancel(jobs_of(c), c->param), 202);
}

service_reply *rt_job_change(service_call *c)
{
    static const char *const names[] = {"priority", "paused", "budget_ms", "budget_trials", NULL};
    jobs_job j;
    char etag[32];
    service_reply *bad = allowed(c, &j);
    if (bad) return bad;
    snprintf(etag, sizeof etag, "\"%lld\"", (long long)j.seq);
    jobs_job_free(&j);
    if (!*c->if_match)
        return service_problem(428, "precondition-required", "a change names the state it is meant for", NULL, "If-Match: the ETag of GET");
    if (!service_etag_matches(c->if_match, etag)) return service_problem(412, "precondition-failed", "the job has changed meanwhile", c->param, etag);
    cJSON *o = service_body_json(c, &bad);
    if (!o) return bad;
    int priority = (int)service_body_int(o, "priority", 0, -100, 100, &bad);
    int64_t ms = service_body_int(o, "budget_ms", 0, 1, 604800000, &bad), trials = service_body_int(o, "budget_trials", 0, 1, 1000000000, &bad);
    if (!bad) service_body_only(o, names, &bad);
    const cJSON *paused = cJSON_GetObjectItemCaseSensitive(o, "paused");
    if (!bad && paused && !cJSON_IsBool(paused)) bad = service_body_wrong("/paused", "this member is no boolean", "true or false");
    bool has[] = {cJSON_HasObjectItem(o, "priority"), ms != 0, trials != 0};
    enum jobs_status s = JOBS_OK;
    if (!bad && (has[0] || has[1] || has[2]))
        s = jobs_change(jobs_of(c), c->param, has[0] ? &priority : NULL, has[1] ? &ms : NULL, has[2] ? &trials : NULL);
    if (!bad && s == JOBS_OK && paused) s = cJSON_IsTrue(paused) ? jobs_pause(jobs_of(c), c->param) : jobs_resume(jobs_of(c), c->param);
    cJSON_Delete(o);
    return bad ? bad : after(c, s, 200);
}

/* ---- new jobs ---- */
static char *payload_of(service_call *c, service_ask *a, int64_t version)
{
    char *hw = service_target_json(c->app->targets, a->target, NULL), *text = NULL;
    kiln_arena *arena = worker_arena(NULL);
    if (hw && arena) text = build_payload(arena, a->request, hw, version);
    kiln_arena_close(arena);
    free(hw);
    return text;
}

/* A builder does not check itself. */
static void not_by_its_builder(service_call *c, const service_ask *a, int64_t version, char needs[128])
{
    cache_record *r = NULL;
    const char *tier;
    enum cache_status s = version ? cache_get_version(c->app->cache, a->keys.kernel, version, &r)
                                  : cache_get(c->app->cache, a->keys.kernel, a->keys.kernel_canon, &r, &tier);
    size_t n = strlen(needs);
    if (s == CACHE_OK && *r->signer) snprintf(needs + n, 128 - n, "%s!by:%.16s", n ? " " : "", r->signer);
    if (s == CACHE_OK) cache_release(r);
}

/* The request that a record's key was made of: its program and target, by one of the policies. */
static service_ask *ask_of_key(service_call *c, const char *key, service_reply **bad)
{
    static const char *const policies[] = {"default", "roller"};
    cache_record *r = NULL;
    const char *tier;
    service_ask *a = NULL;
    if (!service_may_see(c, key) || cache_get(c->app->cache, key, (kiln_bytes){0}, &r, &tier) != CACHE_OK) {
        *bad = service_problem(404, "not-found", "no kernel has this key", key, "a key is kk1- and 64 hex digits");
        return NULL;
    }
    for (size_t i = 0; i < sizeof policies / sizeof *policies && !a; i++) {
        cJSON *o = cJSON_CreateObject();
        service_reply *problem = NULL;
        cJSON_AddStringToObject(o, "expr", r->name);
        cJSON_AddStringToObject(o, "target", r->target);
        cJSON_AddStringToObject(o, "policy", policies[i]);
        a = service_spec_ask(c->app, o, &problem);
        cJSON_Delete(o);
        service_reply_drop(problem);
        if (a && strcmp(a->keys.kernel, key)) service_ask_drop(a), a = NULL;
    }
    cache_release(r);
    if (!a) *bad = service_body_wrong("/key", "the kernel's request cannot be told from its key", "request: the body of its compile");
    return a;
}

/* The job that lives is answered when there is one of this kind and kernel. */
static service_reply *submit(service_call *c, service_ask *a, jobs_ask *j, int64_t version)
{
    char needs[128], *payload = payload_of(c, a, version);
    jobs_job out;
    bool fresh;
    if (!payload) return service_problem(503, "out-of-memory", "out of memory", NULL, NULL);
    build_needs(a->hw, true, needs);
    if (j->kind == JOBS_VERIFY) not_by_its_builder(c, a, version, needs);
    j->key = a->keys.kernel;
    j->tenant = c->who.tenant;
    j->needs = needs;
    j->payload = payload;
    j->live_max = service_auth_jobs(c->app->auth, c->who.tenant);
    service_grant(c, a->keys.kernel);
    enum jobs_status s = jobs_submit(jobs_of(c), j, &out, &fresh);
    free(payload);
    if (s == JOBS_FULL) return service_problem(429, "quota-exceeded", "the tenant has too many jobs", NULL, "wait for some to end, or cancel them");
    if (s != JOBS_OK) return away();
    service_reply *r = state(c, &out);
    if (r) r->status = 202;
    service_reply_header(r, "Location", "/v1/jobs/%s", out.id);
    jobs_job_free(&out);
    return r;
}

service_reply *rt_job_new(service_call *c)
{
    static const char *const names[] = {"kind", "request", "key", "version", "priority", "budget_ms", "budget_trials", NULL};
    service_reply *bad;
    cJSON *o = service_body_json(c, &bad);
    if (!o) return bad;
    jobs_ask j = {.class = -1};
    const char *kind = service_body_text(o, "kind", NULL, 15, &bad);
    int64_t version = service_body_int(o, "version", 0, 1, INT64_C(1) << 40, &bad);
    j.priority = (int)service_body_int(o, "priority", 0, -100, 100, &bad);
    j.budget_ms = service_body_int(o, "budget_ms", 0, 1, 604800000, &bad);
    j.budget_trials = service_body_int(o, "budget_trials", 0, 1, 1000000000, &bad);
    const cJSON *request = cJSON_GetObjectItemCaseSensitive(o, "request");
    if (!bad) service_body_only(o, names, &bad);
    if (!bad && (!jobs_kind_find(kind, &j.kind) || j.kind == JOBS_MODEL))
        bad = service_body_wrong("/kind", "no such kind of job", "compile, verify, measure or retune");
    const char *key = service_body_text(o, "key", "", 71, &bad);
    if (!bad && !cJSON_IsObject(request) == !*key)
        bad = service_body_wrong("/request", "a job is about one kernel", "request: the body of a compile; or key: of one that is known");
    service_ask *a = bad ? NULL : *key ? ask_of_key(c, key, &bad) : service_spec_ask(c->app, request, &bad);
    if (a) bad = submit(c, a, &j, version);
    service_ask_drop(a);
    cJSON_Delete(o);
    return bad;
}
