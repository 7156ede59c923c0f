/* The compile flow as a list of steps: lookup, wait, construct, generate, toolchain, verify, store, emulate. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "service/auth.h"
#include "service/fleet.h"
#include "workers/arena.h"

enum { ANSWERED = 2 };

/* ---- on the HTTP thread ---- */
static int64_t wait_of(service_call *c, bool *given)
{
    service_prefer p = service_prefer_of(c->prefer);
    *given = p.async || p.wait_ms >= 0;
    return p.async ? 0 : p.wait_ms >= 0 ? p.wait_ms : c->app->config.wait_ms;
}

static service_reply *repeat_impossible(const char *json)
{
    cJSON *o = cJSON_Parse(json), *s = cJSON_GetObjectItemCaseSensitive(o, "status");
    int status = cJSON_IsNumber(s) ? s->valueint : 422;
    cJSON_Delete(o);
    service_reply *r = service_reply_text(status, "application/problem+json", json);
    service_reply_header(r, "Cache-Status", "kiln; hit; detail=impossible");
    return r;
}

/* A known answer, or NULL on a miss (also when only quarantined versions are known: the job then looks for another candidate). */
static service_reply *look_up(service_call *c)
{
    service_app *app = c->app;
    cache_record *r = NULL;
    const char *tier = "";
    char *problem = NULL, status[64];
    double began = service_now_ms();
    enum cache_status s = cache_get(app->cache, c->ask->keys.kernel, c->ask->keys.kernel_canon, &r, &tier);
    c->ask->times.lookup = service_now_ms() - began;
    if (s == CACHE_IMPOSSIBLE || s == CACHE_MISS) {
        if (cache_get_impossible(app->cache, c->ask->keys.kernel, kiln_fingerprint(), &problem) == CACHE_IMPOSSIBLE) {
            service_reply *reply = repeat_impossible(problem);
            free(problem);
            return reply;
        }
    }
    if (s != CACHE_OK) return NULL;
    if (c->verified && r->verification == CACHE_PENDING) {
        cache_release(r);
        return NULL;
    }
    service_count(app->metrics, SERVICE_HITS);
    service_fleet_hit(app->fleet, c->ask->keys.kernel);
    snprintf(status, sizeof status, "kiln; hit; detail=%s", tier);
    service_answer how = {c->ask, status, &c->ask->times};
    service_reply *reply = service_answer_kernel(c, r, &how);
    if (reply && reply->status == 200) reply->keep = !strcmp(tier, "memory"); /* where the next one will come from, too */
    cache_release(r);
    return reply;
}

service_reply *service_compile(service_call *c)
{
    service_reply *problem = NULL;
    bool fresh, given;
    if (service_negotiate(c->accept, (1u << SERVICE_FORMS) - 1) < 0)
        return service_problem(
            406, "not-acceptable", "none of the forms asked for can be made", c->accept,
            "application/json, text/x-c, text/x-cuda, text/x-ptx, application/x-cubin, application/x-sharedlib, application/zip");
    c->ask = service_ask_parse(c, &problem);
    if (!c->ask) return problem;
    c->verified = !strcmp(c->ask->request->quality, "verified");
    if (!strcmp(c->ask->request->quality, "tuned"))
        return service_problem(501, "not-implemented", "tuned kernels are not made yet", "quality \"tuned\" needs measurements",
                               "any, constructed or verified");
    service_reply *known = look_up(c);
    if (known) return known;
    if (strstr(c->cache_control, "only-if-cached")) {
        service_count(c->app->metrics, SERVICE_NOT_CACHED);
        return service_problem(504, "not-cached", "the kernel is not in the cache and only-if-cached was asked", NULL, NULL);
    }
    service_count(c->app->metrics, SERVICE_MISSES);
    c->wait_until = (int64_t)c->began_ms + wait_of(c, &given); /* the look into the stores is part of the wait */
    if (atomic_load(&c->app->draining)) return service_problem(503, "draining", "the service is ending", NULL, NULL);
    problem = service_auth_compile(c);
    if (problem) return problem;
    service_grant(c, c->ask->keys.kernel); /* and with it the job */
    service_job *job = service_jobs_join(c->app->jobs, c, &fresh);
    if (!job) return service_problem_limit(503, "jobs", SERVICE_JOBS, "too many jobs are under way");
    if (!fresh) {
        service_count(c->app->metrics, SERVICE_COLLAPSED);
        return NULL;
    }
    service_pool_job(c->app, job);
    return NULL;
}

service_reply *service_compile_resume(service_call *c)
{
    service_job *job = c->job;
    service_reply *reply;
    bool given;
    wait_of(c, &given);
    if (c->timed_out) {
        cJSON *o = cJSON_CreateObject();
        char href[80];
        snprintf(href, sizeof href, "/v1/jobs/%s", job->id);
        cJSON_AddStringToObject(o, "job", job->id);
        cJSON_AddStringToObject(o, "state", "running");
        cJSON_AddStringToObject(o, "key", job->key);
        cJSON_AddStringToObject(o, "href", href);
        reply = service_reply_json(202, o);
        service_reply_header(reply, "Location", "%s", href);
        service_reply_header(reply, "Retry-After", "1");
    } else if (job->problem) {
        return service_reply_ref(job->problem);
    } else {
        cache_record *r = NULL;
        const char *tier;
        char status[64];
        if (cache_get(c->app->cache, c->ask->keys.kernel, c->ask->keys.kernel_canon, &r, &tier) != CACHE_OK)
            return service_problem(500, "verify-failed", "the kernel did not pass verification",
                                   "it computed wrong values and is quarantined", NULL);
        snprintf(status, sizeof status, "kiln; fwd=miss; %s", c->collapsed || job->followed ? "collapsed" : "stored");
        service_times t = job->times;
        t.canon = c->ask->times.canon;
        t.lookup = c->ask->times.lookup;
        service_answer how = {c->ask, status, &t};
        reply = service_answer_kernel(c, r, &how);
        cache_release(r);
    }
    if (given) service_reply_header(reply, "Preference-Applied", "%s", service_prefer_of(c->prefer).async ? "respond-async" : "wait");
    return reply;
}

/* ---- on the pool ---- */
/* The pool's reference to the job goes to the pool again. */
void service_pool_job(service_app *app, service_job *job)
{
    if (worker_pool_submit(app->pool, service_compile_job, job, false)) return;
    service_count(app->metrics, SERVICE_REFUSED);
    service_jobs_done(app->jobs, job, service_problem_limit(503, "queue", app->config.queue, "the queue of compiles is full"), true);
    service_job_drop(app->jobs, job);
}

/* After the answer: emulate what could not be run. The pool's reference to the job goes on to that job. */
static void after(service_app *app, service_job *job, bool pending)
{
    if (pending && worker_pool_submit(app->pool, service_emulate_job, job, true)) return;
    service_jobs_done(app->jobs, job, NULL, true);
    service_job_drop(app->jobs, job);
}

static bool known(service_app *app, service_job *job, bool *pending)
{
    cache_record *r = NULL;
    const char *tier;
    if (cache_get(app->cache, job->key, job->ask->keys.kernel_canon, &r, &tier) != CACHE_OK) return false;
    *pending = r->verification == CACHE_PENDING;
    cache_release(r);
    return true;
}

/* A refusal that will be the same next time is remembered. */
static service_reply *problem_of(service_app *app, const service_job *job, const build_result *r)
{
    if (r->end == BUILD_OK) return NULL;
    service_reply *p = r->end == BUILD_REFUSED ? service_problem_diag(&r->diag) : service_problem(r->http, r->slug, r->title, r->detail, NULL);
    if (p && r->end == BUILD_REFUSED && r->lasting)
        cache_put_impossible(app->cache, job->key, job->ask->keys.kernel_canon, kiln_fingerprint(), p->body);
    return p;
}

static void build_here(service_app *app, service_job *job, kept *lease, build_result *result, service_reply **problem, bool *pending)
{
    build_result r;
    service_hold hold = {app->fleet, lease};
    worker_tools tools = app->tools;
    if (lease) tools.stop = service_fleet_unwanted, tools.stop_user = &hold;
    build_order o = {.tools = &tools, .cache = app->cache, .request = job->ask->request, .hw = job->ask->hw, .keys = &job->ask->keys,
                     .candidates = SERVICE_CANDIDATES, .attempts = SERVICE_ATTEMPTS, .verify_ms = app->config.verify_ms,
                     .runs_here = service_runs_here(job->ask->hw), .deadline = job->deadline, .may_store = service_fleet_may_store, .user = &hold};
    if (lease) o.job = keeper_lease(lease)->id, o.epoch = keeper_lease(lease)->epoch;
    service_count(app->metrics, SERVICE_COMPILES);
    build_kernel(&o, &r);
    if (lease && r.end != BUILD_OK && service_fleet_unwanted(&hold)) r.end = BUILD_LOST; /* its child was ended, that is no failure */
    job->times.construct = r.times.construct;
    job->times.codegen = r.times.codegen;
    job->times.toolchain = r.times.toolchain;
    job->times.verify = r.times.verify;
    const double ms[] = {r.times.construct, r.times.codegen, r.times.toolchain, r.times.verify};
    for (int i = 0; i < 4; i++)
        if (ms[i] > 0) service_observe(app->metrics, (enum service_timer)(SERVICE_STAGE_CONSTRUCT + i), ms[i] / 1e3);
    bool failed = r.end != BUILD_OK && r.end != BUILD_LOST;
    if (failed && !strcmp(r.slug, "compile-timeout")) service_count(app->metrics, SERVICE_KILLED_TIME);
    if (failed && !strcmp(r.slug, "sandbox")) service_count(app->metrics, SERVICE_KILLED_RULES);
    for (int i = 0; i < r.wrong; i++) service_count(app->metrics, SERVICE_VERIFY_FAILURES);
    if (r.wrong) service_log("error", "verify-failed", "%s: %d candidates", job->key, r.wrong);
    if (r.end == BUILD_OK && !r.stored) service_log("warning", "not-stored", "%s is served from memory only", job->key);
    if (failed) service_count(app->metrics, SERVICE_COMPILE_FAILURES);
    if (r.end == BUILD_FAILED) service_log("warning", "compile-failed", "%s: %s: %.300s", job->key, r.slug, r.detail);
    *pending = r.end == BUILD_OK && r.verification == CACHE_PENDING;
    *problem = r.end == BUILD_LOST ? NULL : problem_of(app, job, &r);
    *result = r;
}

static void end_with(service_job *job, service_reply *problem)
{
    service_app *app = job->app;
    service_jobs_done(app->jobs, job, problem, true);
    service_job_drop(app->jobs, job);
}

void service_compile_job(void *arg)
{
    service_job *job = arg;
    service_app *app = job->app;
    service_reply *problem = NULL;
    kept *lease = NULL;
    bool collapsed, timed_out, pending = false;
    service_jobs_running(app->jobs, job);
    if (known(app, job, &pending)) {
        service_jobs_done(app->jobs, job, NULL, !pending);
        after(app, job, pending);
        return;
    }
    bool room = service_fleet_room(app->fleet, job->tenant);
    if (!room || cache_is_full(app->cache)) {
        problem = service_problem(507, "store-full", "the store is full", room ? "its disk has no room for another kernel"
                                                                               : "nothing in it may go: all of it is in use, or of others", NULL);
        end_with(job, problem);
        return;
    }
    /* Others say they have built it, but there is nothing that counts: no signature that is known here. */
    bool alone = job->answered >= ANSWERED;
    if (alone && !app->config.compile_here) {
        end_with(job, service_problem(502, "worker-failed", "what the workers built is not accepted",
                                      "no enrolled builder has signed it; the book of changes says more", "POST /v1/builders"));
        return;
    }
    enum service_lead lead = alone ? SERVICE_ALONE : service_fleet_lead(app->fleet, job, &lease);
    if (lead == SERVICE_TOO_MANY) {
        problem = service_problem(429, "quota-exceeded", "the tenant has too many jobs under way", job->tenant, "wait for some of them to end");
        service_reply_header(problem, "Retry-After", "1");
        end_with(job, problem);
        return;
    }
    if (lead == SERVICE_FOLLOW) {
        job->followed = true;
        service_fleet_park(app->fleet, job);
        return;
    }
    bool flies = cache_flight_begin(app->cache, job->key, job->deadline - build_now_ms(), &collapsed, &timed_out);
    build_result r = {.end = BUILD_OK};
    if (!known(app, job, &pending)) build_here(app, job, lease, &r, &problem, &pending); /* else the one that led before has stored it */
    if (flies) cache_flight_end(app->cache, job->key);
    bool ours = r.end != BUILD_LOST; /* else somebody else has the lease now */
    if (ours) service_jobs_done(app->jobs, job, problem, !pending); /* who asked has no part in what the fleet notes down */
    service_fleet_end(app->fleet, job, lease, &r, problem ? problem->body : NULL);
    if (ours) after(app, job, pending);
    else service_fleet_park(app->fleet, job);
}

void service_emulate_job(void *arg)
{
    service_job *job = arg;
    service_app *app = job->app;
    cache_record *r = NULL, verdict = {0};
    kiln_kernel *k;
    kiln_diag d = {0};
    worker_verdict v = {0};
    worker_error e = {0};
    const char *tier;
    const service_ask *a = job->ask;
    kiln_arena *arena = worker_arena(NULL);
    service_count(app->metrics, SERVICE_EMULATIONS);
    if (arena && !atomic_load(&app->draining) && cache_get(app->cache, job->key, a->keys.kernel_canon, &r, &tier) == CACHE_OK &&
        r->verification == CACHE_PENDING && kiln_generate(arena, a->request->program, a->hw, r->trace, &k, &d) == KILN_OK) {
        bool made = worker_emulate(&app->tools, a->request->program, k, app->config.emulate_ms, &v, &e);
        made = made && (v.ok || v.total > 0); /* a kernel that was never compared is not a wrong one: it stays pending */
        if (made) {
            build_verdict_text(&v, verdict.verdict, sizeof verdict.verdict);
            cache_verdict(app->cache, r->key, r->version, v.ok ? CACHE_EMULATED : CACHE_FAILED, verdict.verdict);
            jobs_tell(service_fleet_jobs(app->fleet));
        }
        if (made && !v.ok) service_count(app->metrics, SERVICE_VERIFY_FAILURES);
        if (!made || !v.ok) service_log("error", "emulation", "%s: %s", job->key, made ? verdict.verdict : *e.message ? e.message : v.detail);
    }
    if (r) cache_release(r);
    kiln_arena_close(arena);
    after(app, job, false);
}

bool service_compile_now(service_app *app, service_ask *ask, service_reply **problem)
{
    service_job *job = service_jobs_start(app->jobs, ask), *kept;
    bool collapsed, timed_out;
    cache_record *r = NULL;
    const char *tier;
    *problem = NULL;
    if (job) {
        kept = service_jobs_find(app->jobs, job->id);
        service_compile_job(job);
        uint64_t turn = 0;
        while (kept && kept->state < SERVICE_SUCCEEDED && (int64_t)service_now_ms() < kept->deadline) /* another process leads it */
            turn = jobs_wait(service_fleet_jobs(app->fleet), turn, 100);
        if (kept && kept->problem) *problem = service_reply_ref(kept->problem);
        service_job_drop(app->jobs, kept);
    } else if (cache_flight_begin(app->cache, ask->keys.kernel, app->config.deadline_ms, &collapsed, &timed_out)) {
        cache_flight_end(app->cache, ask->keys.kernel);
    }
    bool ok = cache_get(app->cache, ask->keys.kernel, ask->keys.kernel_canon, &r, &tier) == CACHE_OK;
    cache_release(r);
    return ok;
}
