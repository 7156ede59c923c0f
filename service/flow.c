/* The compile flow as a list of steps: lookup, wait, construct, generate, toolchain, verify, store, emulate. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "service/auth.h"

void service_build_id(const kiln_bytes *parts, int n, char out[72])
{
    size_t size = 0, at = 0;
    uint8_t digest[32];
    for (int i = 0; i < n; i++) size += parts[i].n + 8;
    char *all = malloc(size + 1);
    for (int i = 0; all && i < n; i++) { /* length before each part, so that parts cannot run into one another */
        for (int k = 0; k < 8; k++) all[at++] = (char)(parts[i].n >> 8 * k);
        if (parts[i].n) memcpy(all + at, parts[i].p, parts[i].n);
        at += parts[i].n;
    }
    *out = 0;
    if (!all) return;
    kiln_sha256(all, at, digest);
    free(all);
    memcpy(out, "kb1-", 4);
    kiln_hex(digest, 32, out + 4);
}

/* ---- on the HTTP thread ---- */
static int64_t wait_of(service_call *c, bool *given)
{
    int64_t wait = c->app->config.wait_ms;
    const char *p = strstr(c->prefer, "wait=");
    *given = false;
    if (strstr(c->prefer, "respond-async")) wait = 0, *given = true;
    if (p) {
        long s = strtol(p + 5, NULL, 10);
        int64_t ms = s < 0 ? 0 : s > 60 ? 60000 : s * 1000;
        if (ms < wait || !*given) wait = ms;
        *given = true;
    }
    return wait;
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
    snprintf(status, sizeof status, "kiln; hit; detail=%s", tier);
    service_answer how = {c->ask, status, &c->ask->times};
    service_reply *reply = service_answer_kernel(c, r, &how);
    if (reply && reply->status == 200) reply->keep = true;
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
    if (strstr(c->cache_control, "only-if-cached"))
        return service_problem(504, "not-cached", "the kernel is not in the cache and only-if-cached was asked", NULL, NULL);
    service_count(c->app->metrics, SERVICE_MISSES);
    c->wait_until = (int64_t)service_now_ms() + wait_of(c, &given);
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
    if (!worker_pool_submit(c->app->pool, service_compile_job, job, false)) {
        service_count(c->app->metrics, SERVICE_REFUSED);
        service_jobs_done(c->app->jobs, job, service_problem_limit(503, "queue", c->app->config.queue, "the queue of compiles is full"),
                          true);
        service_job_drop(c->app->jobs, job);
    }
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
        snprintf(status, sizeof status, "kiln; fwd=miss; %s", c->collapsed ? "collapsed" : "stored");
        service_times t = job->times;
        t.canon = c->ask->times.canon;
        t.lookup = c->ask->times.lookup;
        service_answer how = {c->ask, status, &t};
        reply = service_answer_kernel(c, r, &how);
        cache_release(r);
    }
    if (given) service_reply_header(reply, "Preference-Applied", "%s", strstr(c->prefer, "respond-async") ? "respond-async" : "wait");
    return reply;
}

/* ---- on the pool ---- */
typedef struct work {
    service_app *app;
    service_job *job;
    kiln_arena *arena;
    kiln_candidates *candidates;
    kiln_kernel *kernel;
    worker_blob blobs[3]; /* so, ptx, cubin */
    cache_record record;
    service_reply *problem;
    bool runs_here;
} work;

static double lap(double *from)
{
    double now = service_now_ms(), ms = now - *from;
    *from = now;
    return ms;
}

static int left_ms(const work *w)
{
    int64_t left = w->job->deadline - (int64_t)service_now_ms();
    return left < 1 ? 1 : (int)left;
}

/* A refusal that will be the same next time is remembered. */
static bool refuse(work *w, kiln_status s, kiln_diag *d)
{
    d->status = s;
    w->problem = service_problem_diag(d);
    if (w->problem && (s == KILN_NO_SCHEDULE || s == KILN_UNSUPPORTED))
        cache_put_impossible(w->app->cache, w->job->key, w->job->ask->keys.kernel_canon, kiln_fingerprint(), w->problem->body);
    return false;
}

static bool refuse_worker(work *w, const worker_error *e)
{
    int http = !strcmp(e->slug, "compile-timeout") ? 504 : !strcmp(e->slug, "toolchain-missing") ? 503 : kiln_status_http(e->status);
    if (http < 400) http = 500;
    w->problem = service_problem(http, *e->slug ? e->slug : "internal", "a step of the compile failed", e->message, NULL);
    return false;
}

static bool construct(work *w)
{
    kiln_diag d = {0};
    double t = service_now_ms();
    const kiln_request *r = w->job->ask->request;
    const kiln_hw *hw = w->job->ask->hw;
    kiln_status s = kiln_construct_request(w->arena, r, hw, r->top_k, &w->candidates, &d);
    w->job->times.construct += lap(&t);
    return s == KILN_OK || refuse(w, s, &d);
}

static void identify(work *w, const kiln_candidate *c)
{
    const service_ask *a = w->job->ask;
    const worker_tools *t = &w->app->tools;
    const char *const *flags;
    bool gpu = !strcmp(kiln_hw_kind(a->hw), "gpu");
    char joined[1024] = "";
    int n = kiln_hw_flags(a->hw, &flags);
    for (int i = 0; i < n; i++) {
        size_t at = strlen(joined);
        snprintf(joined + at, sizeof joined - at, "%s ", flags[i]);
    }
    const char *tool = gpu ? t->nvrtc_version : t->cc_version;
    kiln_bytes parts[] = {
        a->keys.kernel_canon, {kiln_fingerprint(), strlen(kiln_fingerprint())}, {tool, strlen(tool)}, {joined, strlen(joined)}, c->trace};
    service_build_id(parts, 5, w->record.build);
}

/* Whether this build failed before: the records say so, and they are never rewritten. */
static bool failed_before(work *w)
{
    for (int v = 1; v <= SERVICE_ATTEMPTS; v++) {
        cache_record *r = NULL;
        enum cache_status s = cache_get_version(w->app->cache, w->job->key, v, &r);
        if (s != CACHE_OK && s != CACHE_QUARANTINED) return false;
        bool same = r && !strcmp(r->build, w->record.build) && r->verification == CACHE_FAILED;
        if (r) cache_release(r);
        if (same) return true;
    }
    return false;
}

static bool generate(work *w, const kiln_candidate *c)
{
    kiln_diag d = {0};
    double t = service_now_ms();
    kiln_status s = kiln_generate(w->arena, w->job->ask->request->program, w->job->ask->hw, c->trace, &w->kernel, &d);
    w->job->times.codegen += lap(&t);
    return s == KILN_OK || refuse(w, s, &d);
}

bool service_nvrtc_knows(const worker_tools *t, const char *arch)
{
    int n = !strncmp(arch, "sm_", 3) ? atoi(arch + 3) : 0;
    for (int i = 0; i < t->nnvrtc_archs; i++)
        if (t->nvrtc_archs[i] == n) return true;
    return false;
}

static bool toolchain(work *w)
{
    const worker_tools *t = &w->app->tools;
    const kiln_hw *hw = w->job->ask->hw;
    worker_error e = {0};
    bool ok = true;
    double began = service_now_ms();
    if (!strcmp(w->kernel->language, "c") && *t->cc) {
        const char *const *flags;
        int n = kiln_hw_flags(hw, &flags);
        ok = worker_compile_c(t, w->kernel->source, flags, n, left_ms(w), &w->blobs[0], &e);
    } else if (!strcmp(w->kernel->language, "cuda") && service_nvrtc_knows(t, kiln_hw_arch(hw))) {
        char *log = NULL;
        ok = worker_compile_cuda(t, w->kernel->source, kiln_hw_arch(hw), true, true, left_ms(w), &w->blobs[1], &w->blobs[2], &log, &e);
        free(log);
    }
    w->job->times.toolchain += lap(&began);
    return ok || refuse_worker(w, &e);
}

static void write_verdict(cache_record *r, const worker_verdict *v)
{
    char error[40] = "null";
    if (isfinite(v->max_error)) snprintf(error, sizeof error, "%.4g", v->max_error);
    snprintf(r->verdict, sizeof r->verdict,
             "{\"how\":\"%s\",\"ok\":%s,\"max_error\":%s,\"rtol\":%.6g,\"atol\":%.6g,\"checked\":%lld,\"total\":%lld,\"all_written\":%s,"
             "\"seconds\":%.4f,"
             "\"detail\":\"%.180s\"}",
             v->how ? v->how : "", v->ok ? "true" : "false", error, v->rtol, v->atol, (long long)v->checked, (long long)v->total,
             v->all_written ? "true" : "false", v->seconds, v->detail);
}

/* Runs the kernel where it can run; false only when the check itself could not be made. A wrong kernel leaves CACHE_FAILED. */
static bool verify(work *w)
{
    worker_verdict v = {0};
    worker_error e = {0};
    double t = service_now_ms();
    w->record.verification = CACHE_PENDING;
    snprintf(w->record.verdict, sizeof w->record.verdict, "{}");
    if (!w->runs_here || !w->blobs[0].p) return true;
    bool ok = worker_verify_cpu(&w->app->tools, w->job->ask->request->program, w->kernel, &w->blobs[0], w->app->config.verify_ms, &v, &e);
    w->job->times.verify += lap(&t);
    if (!ok && strcmp(e.slug, "verify-failed")) return refuse_worker(w, &e);
    if (!ok) {
        v.ok = false;
        v.how = "run";
        snprintf(v.detail, sizeof v.detail, "%.100s", strpbrk(e.message, "\"\\\n") ? "the check could not be finished" : e.message);
    }
    w->record.verification = v.ok ? CACHE_RUN : CACHE_FAILED;
    write_verdict(&w->record, &v);
    return true;
}

static bool store(work *w, const kiln_candidate *c)
{
    const service_ask *a = w->job->ask;
    cache_record *r = &w->record;
    cache_blob blobs[8] = {0};
    kiln_bytes name, bytes[5] = {w->kernel->source, w->kernel->header};
    static const char *const kinds[5] = {"source", "header", "so", "ptx", "cubin"};
    for (int i = 0; i < 3; i++) bytes[2 + i] = (kiln_bytes){w->blobs[i].p, w->blobs[i].n};
    if (kiln_program_text(w->arena, a->request->program, &name) != KILN_OK) name = (kiln_bytes){"", 0};
    snprintf(r->key, sizeof r->key, "%s", a->keys.kernel);
    snprintf(r->workload, sizeof r->workload, "%s", a->keys.workload);
    snprintf(r->origin, sizeof r->origin, a->request->trace.n ? "given" : "constructed");
    snprintf(r->target, sizeof r->target, "%s", kiln_hw_id(a->hw));
    r->name = name.p;
    r->canon = a->keys.kernel_canon;
    r->trace = w->kernel->trace;
    r->manifest = w->kernel->manifest;
    r->predicted_us = c->predicted_us;
    r->nartifacts = 0;
    for (int i = 0; i < 5; i++) {
        if (!bytes[i].p || !bytes[i].n) continue;
        uint8_t digest[32];
        cache_artifact *x = &r->artifacts[r->nartifacts];
        *x = (cache_artifact){.bytes = (int64_t)bytes[i].n};
        snprintf(x->kind, sizeof x->kind, "%s", kinds[i]);
        kiln_sha256(bytes[i].p, bytes[i].n, digest);
        kiln_hex(digest, 32, x->digest);
        memcpy(blobs[r->nartifacts].digest, x->digest, 65);
        blobs[r->nartifacts++].bytes = bytes[i];
    }
    bool stored = false;
    if (cache_put(w->app->cache, r, blobs, r->nartifacts, &stored) != CACHE_OK) {
        w->problem = service_problem(503, "store-unavailable", "the kernel could not be stored", NULL, NULL);
        return false;
    }
    if (!stored) service_log("warning", "not-stored", "%s is served from memory only", r->key);
    return true;
}

static void forget_blobs(work *w)
{
    for (int i = 0; i < 3; i++) free(w->blobs[i].p);
    memset(w->blobs, 0, sizeof w->blobs);
}

/* Candidates in rank order until one is right. */
static bool build(work *w)
{
    int tried = 0;
    if (!construct(w)) return false;
    for (int i = 0; i < w->candidates->n && tried < SERVICE_CANDIDATES; i++) {
        const kiln_candidate *c = &w->candidates->c[i];
        identify(w, c);
        if (failed_before(w)) continue;
        tried++;
        forget_blobs(w);
        service_reply_drop(w->problem);
        w->problem = NULL;
        if (!generate(w, c) || !toolchain(w) || !verify(w)) return false;
        if (!store(w, c)) return false;
        if (w->record.verification != CACHE_FAILED) return true;
        service_count(w->app->metrics, SERVICE_VERIFY_FAILURES);
        service_log("error", "verify-failed", "%s build %s: %s", w->record.key, w->record.build, w->record.verdict);
    }
    w->problem = service_problem(500, "verify-failed", "no candidate passed verification", w->record.verdict, NULL);
    return false;
}

/* After the answer: emulate what could not be run. The pool's reference to the job goes on to that job. */
static void after(service_app *app, service_job *job, bool pending)
{
    if (pending && worker_pool_submit(app->pool, service_emulate_job, job, true)) return;
    service_jobs_done(app->jobs, job, NULL, true);
    service_job_drop(app->jobs, job);
}

void service_compile_job(void *arg)
{
    service_job *job = arg;
    service_app *app = job->app;
    work w = {.app = app, .job = job};
    bool collapsed, timed_out, ok, pending = false;
    cache_record *r = NULL;
    const char *tier;
    service_jobs_running(app->jobs, job);
    bool lead = cache_flight_begin(app->cache, job->key, left_ms(&w), &collapsed, &timed_out);
    if (cache_get(app->cache, job->key, job->ask->keys.kernel_canon, &r, &tier) == CACHE_OK) {
        ok = true;
        pending = r->verification == CACHE_PENDING;
        cache_release(r);
    } else {
        w.arena = service_arena(&job->deadline);
        w.runs_here = service_runs_here(job->ask->hw);
        service_count(app->metrics, SERVICE_COMPILES);
        ok = w.arena && build(&w);
        pending = ok && w.record.verification == CACHE_PENDING;
        if (!ok) service_count(app->metrics, SERVICE_COMPILE_FAILURES);
        if (!ok && !w.problem) w.problem = service_problem(503, "out-of-memory", "out of memory", NULL, NULL);
    }
    if (lead) cache_flight_end(app->cache, job->key);
    forget_blobs(&w);
    kiln_arena_close(w.arena);
    service_jobs_done(app->jobs, job, ok ? NULL : w.problem, !pending);
    after(app, job, pending);
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
    kiln_arena *arena = service_arena(NULL);
    service_count(app->metrics, SERVICE_EMULATIONS);
    if (arena && !atomic_load(&app->draining) && cache_get(app->cache, job->key, a->keys.kernel_canon, &r, &tier) == CACHE_OK &&
        r->verification == CACHE_PENDING && kiln_generate(arena, a->request->program, a->hw, r->trace, &k, &d) == KILN_OK) {
        bool made = worker_emulate(&app->tools, a->request->program, k, app->config.emulate_ms, &v, &e);
        made = made && (v.ok || v.total > 0); /* a kernel that was never compared is not a wrong one: it stays pending */
        if (made) {
            write_verdict(&verdict, &v);
            cache_verdict(app->cache, r->key, r->version, v.ok ? CACHE_EMULATED : CACHE_FAILED, verdict.verdict);
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
        if (kept && kept->problem) *problem = service_reply_ref(kept->problem);
        service_job_drop(app->jobs, kept);
    } else if (cache_flight_begin(app->cache, ask->keys.kernel, app->config.deadline_ms, &collapsed, &timed_out)) {
        cache_flight_end(app->cache, ask->keys.kernel);
    }
    bool ok = cache_get(app->cache, ask->keys.kernel, ask->keys.kernel_canon, &r, &tier) == CACHE_OK;
    cache_release(r);
    return ok;
}
