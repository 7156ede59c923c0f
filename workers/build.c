/* Building a kernel: construct, generate, toolchain, verify, store; candidates in rank order until one is right. */
#include "workers/arena.h"
#include "workers/build.h"
#include <cjson/cJSON.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "workers/gate.h"
#include "workers/verify.h"

int64_t build_now_ms(void) { return (int64_t)verify_now_ms(); }

void build_id(const kiln_bytes *parts, int n, char out[72])
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

static double lap(double *from)
{
    double now = verify_now_ms(), ms = now - *from;
    *from = now;
    return ms;
}

static int left_ms(const build *b)
{
    int64_t left = b->order->deadline - build_now_ms();
    return left < 1 ? 1 : left > 1 << 30 ? 1 << 30 : (int)left;
}

static bool refuse(build *b, kiln_status s, const kiln_diag *d)
{
    b->result->end = BUILD_REFUSED;
    b->result->diag = *d;
    b->result->diag.status = s;
    b->result->lasting = s == KILN_NO_SCHEDULE || s == KILN_UNSUPPORTED;
    return false;
}

static bool fail(build *b, int http, const char *slug, const char *title, const char *detail)
{
    build_result *r = b->result;
    r->end = BUILD_FAILED;
    r->http = http;
    snprintf(r->slug, sizeof r->slug, "%s", slug);
    snprintf(r->title, sizeof r->title, "%s", title);
    snprintf(r->detail, sizeof r->detail, "%s", detail);
    return false;
}

static bool fail_worker(build *b, const worker_error *e)
{
    int http = !strcmp(e->slug, "compile-timeout") ? 504 : !strcmp(e->slug, "toolchain-missing") ? 503 : kiln_status_http(e->status);
    return fail(b, http < 400 ? 500 : http, *e->slug ? e->slug : "internal", "a step of the compile failed", e->message);
}

bool build_open(build *b, const build_order *o, build_result *r)
{
    memset(r, 0, sizeof *r);
    *b = (build){.order = o, .result = r, .arena = worker_arena(&o->deadline)};
    return b->arena || fail(b, 503, "out-of-memory", "out of memory", "");
}

static void forget_blobs(build *b)
{
    if (b->check) worker_check_end(b->check, NULL, NULL, NULL);
    b->check = NULL;
    for (int i = 0; i < 3; i++) free(b->blobs[i].p);
    memset(b->blobs, 0, sizeof b->blobs);
    free(b->manifest);
    b->manifest = NULL;
}

void build_close(build *b)
{
    forget_blobs(b);
    kiln_arena_close(b->arena);
}

void build_name(build *b, kiln_bytes trace)
{
    const build_order *o = b->order;
    const char *const *flags;
    char *joined = b->flags;
    *joined = 0;
    int n = kiln_hw_flags(o->hw, &flags);
    for (int i = 0; i < n; i++) {
        size_t at = strlen(joined);
        snprintf(joined + at, sizeof b->flags - at, "%s ", flags[i]);
    }
    const worker_tools *t = o->tools;
    const char *arch = kiln_hw_arch(o->hw);
    bool gpu = !strcmp(kiln_hw_kind(o->hw), "gpu"), ptx = gpu && !build_nvrtc_knows(t, arch) && worker_ptx_knows(t, arch);
    const char *tool = ptx ? t->clang_version : gpu ? t->nvrtc_version : t->cc_version;
    b->toolchain = tool;
    kiln_bytes parts[] = {o->keys->kernel_canon, {kiln_fingerprint(), strlen(kiln_fingerprint())}, {tool, strlen(tool)},
                          {joined, strlen(joined)}, trace};
    build_id(parts, 5, b->record.build);
}

/* Whether this build failed before: the records say so, and they are never rewritten. */
bool build_failed_before(build *b)
{
    for (int v = 1; v <= b->order->attempts; v++) {
        cache_record *r = NULL;
        enum cache_status s = cache_get_version(b->order->cache, b->order->keys->kernel, v, &r);
        if (s != CACHE_OK && s != CACHE_QUARANTINED) return false;
        bool same = r && !strcmp(r->build, b->record.build) && r->verification == CACHE_FAILED;
        if (r) cache_release(r);
        if (same) return true;
    }
    return false;
}

bool build_nvrtc_knows(const worker_tools *t, const char *arch)
{
    int n = !strncmp(arch, "sm_", 3) ? atoi(arch + 3) : 0;
    for (int i = 0; i < t->nnvrtc_archs; i++)
        if (t->nvrtc_archs[i] == n) return true;
    return false;
}

/* A table of ways to binaries: the first row that fits a kernel's language and device is taken; a kernel that none fits is source alone. */
static bool fits_c(const worker_tools *t, const char *arch)
{
    (void)arch;
    return *t->cc;
}

/* While the compiler runs, the reference is asked and a child for the check starts. */
static bool make_c(build *b, worker_error *e)
{
    const char *const *flags;
    int n = kiln_hw_flags(b->order->hw, &flags);
    worker_tools tools = *b->order->tools;
    if (b->order->runs_here) b->check = worker_check_begin(b->order->tools, b->order->request->program, b->kernel, b->order->verify_ms);
    if (b->check) tools.meanwhile = worker_check_meanwhile, tools.meanwhile_user = b->check;
    return worker_compile_c(&tools, b->kernel->source, flags, n, left_ms(b), &b->blobs[0], e);
}

/* The manifest's last member: what made the binary, and which driver loads it. A cubin wants a driver of its toolkit's major version (CUDA's minor
 * version compatibility), PTX one that knows its version. */
static void add_toolchain(build *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add_toolchain(build *b, const char *format, ...)
{
    kiln_bytes *m = &b->kernel->manifest;
    char member[256];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(member, sizeof member, format, ap);
    va_end(ap);
    char *text = n > 0 && n < (int)sizeof member && m->n > 1 ? malloc(m->n + (size_t)n + 32) : NULL;
    if (!text) return;
    int size = sprintf(text, "%.*s,\"toolchain\":%s}", (int)m->n - 1, m->p, member);
    free(b->manifest);
    b->manifest = text;
    *m = (kiln_bytes){text, (size_t)size};
}

static bool make_cuda(build *b, worker_error *e)
{
    char *log = NULL;
    const char *arch = kiln_hw_arch(b->order->hw);
    bool ok = worker_compile_cuda(b->order->tools, b->kernel->source, arch, true, true, left_ms(b), &b->blobs[1], &b->blobs[2], &log, e);
    if (ok && log) gate_read(log, b->kernel, &b->gate);
    free(log);
    int major = atoi(b->order->tools->nvrtc_version);
    if (ok) add_toolchain(b, "{\"nvrtc\":\"%.30s\",\"cubin_driver_cuda\":\"%d.0\"}", b->order->tools->nvrtc_version, major);
    return ok;
}

/* What clang cannot make, or says no to, stays source: the answer's notes say so. */
static bool make_ptx(build *b, worker_error *e)
{
    char version[16] = "";
    bool ok = worker_compile_ptx(b->order->tools, b->kernel->source, kiln_hw_arch(b->order->hw), left_ms(b), &b->blobs[1], e);
    const char *said = ok ? strstr(b->blobs[1].p, "\n.version ") : NULL;
    if (said) snprintf(version, sizeof version, "%.*s", (int)strspn(said + 10, "0123456789."), said + 10);
    if (ok) add_toolchain(b, "{\"ptx_by\":\"%.100s\",\"ptx_version\":\"%s\"}", b->order->tools->clang_version, version);
    return ok || !strcmp(e->slug, "compile-failed");
}

static const struct {
    const char *language;
    bool (*fits)(const worker_tools *t, const char *arch);
    bool (*make)(build *b, worker_error *e);
} toolchains[] = {
    {"c", fits_c, make_c},
    {"cuda", build_nvrtc_knows, make_cuda},
    {"cuda", worker_ptx_knows, make_ptx},
};

/* A launcher that does not compile is a defect, but the kernel is good without it. */
static void add_launcher(build *b)
{
    const worker_blob *image = b->blobs[2].p ? &b->blobs[2] : &b->blobs[1];
    worker_error e = {0};
    if (b->kernel->launcher.n && image->p && *b->order->tools->cc)
        worker_compile_launcher(b->order->tools, b->kernel->launcher, image, left_ms(b), &b->blobs[0], &e);
}

static bool toolchain(build *b)
{
    worker_error e = {0};
    bool ok = true;
    double began = verify_now_ms();
    for (size_t i = 0; i < sizeof toolchains / sizeof *toolchains; i++) {
        if (strcmp(toolchains[i].language, b->kernel->language) || !toolchains[i].fits(b->order->tools, kiln_hw_arch(b->order->hw))) continue;
        ok = toolchains[i].make(b, &e);
        break;
    }
    if (ok) add_launcher(b);
    b->result->times.toolchain += lap(&began);
    return ok || fail_worker(b, &e);
}

void build_verdict_text(const worker_verdict *v, char *json, size_t size)
{
    char error[40] = "null";
    if (isfinite(v->max_error)) snprintf(error, sizeof error, "%.4g", v->max_error);
    snprintf(json, size,
             "{\"how\":\"%s\",\"ok\":%s,\"max_error\":%s,\"rtol\":%.6g,\"atol\":%.6g,\"checked\":%lld,\"total\":%lld,\"all_written\":%s,"
             "\"seconds\":%.4f,"
             "\"detail\":\"%.180s\"}",
             v->how ? v->how : "", v->ok ? "true" : "false", error, v->rtol, v->atol, (long long)v->checked, (long long)v->total,
             v->all_written ? "true" : "false", v->seconds, v->detail);
}

/* Runs the kernel where it can run; false only when the check itself could not be made. A wrong kernel leaves CACHE_FAILED. */
static bool verify(build *b)
{
    worker_verdict v = {0};
    worker_error e = {0};
    double t = verify_now_ms();
    b->record.verification = CACHE_PENDING;
    snprintf(b->record.verdict, CACHE_SAID_BYTES, "{}");
    if (b->gate.functions) gate_text(&b->gate, b->record.verdict, CACHE_SAID_BYTES);
    if (!b->order->runs_here || !b->blobs[0].p) return true;
    double us[3];
    const worker_blob *image = b->blobs[2].p ? &b->blobs[2] : &b->blobs[1];
    bool gpu = !strcmp(kiln_hw_kind(b->order->hw), "gpu");
    if (gpu && !image->p) return true;
    bool ok = gpu ? worker_run_gpu(b->order->tools, b->order->request->program, b->kernel, image, 1, &v, us, &e)
           : b->check ? worker_check_end(b->check, &b->blobs[0], &v, &e)
                  : worker_verify_cpu(b->order->tools, b->order->request->program, b->kernel, &b->blobs[0], b->order->verify_ms, &v, &e);
    b->check = NULL;
    b->result->times.verify += lap(&t);
    if (!ok && strcmp(e.slug, "verify-failed")) return fail_worker(b, &e);
    if (!ok) {
        v.ok = false;
        v.how = "run";
        snprintf(v.detail, sizeof v.detail, "%.100s", strpbrk(e.message, "\"\\\n") ? "the check could not be finished" : e.message);
    }
    b->record.verification = v.ok ? CACHE_RUN : CACHE_FAILED;
    build_verdict_text(&v, b->record.verdict, CACHE_SAID_BYTES);
    return true;
}

bool build_make(build *b, kiln_bytes trace)
{
    kiln_diag d = {0};
    double t = verify_now_ms();
    forget_blobs(b);
    b->gate = (gate_report){0};
    kiln_status s = kiln_generate(b->arena, b->order->request->program, b->order->hw, trace, &b->kernel, &d);
    b->result->times.codegen += lap(&t);
    if (s != KILN_OK) return refuse(b, s, &d);
    return toolchain(b) && verify(b);
}

/* What the builder's statement says beyond the record; free(). */
static char *made(const build *b)
{
    cJSON *o = cJSON_CreateObject();
    if (b->order->job) {
        cJSON_AddStringToObject(o, "job", b->order->job);
        cJSON_AddNumberToObject(o, "epoch", (double)b->order->epoch);
    }
    if (b->toolchain) cJSON_AddStringToObject(o, "toolchain", b->toolchain);
    if (b->toolchain && *b->flags) cJSON_AddStringToObject(o, "flags", b->flags);
    char *text = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    return text;
}

bool build_store(build *b, const char *origin, double predicted_us, double measured_us)
{
    const build_order *o = b->order;
    cache_record *r = &b->record;
    cache_blob blobs[8] = {0};
    kiln_bytes name, bytes[6] = {b->kernel->source, b->kernel->header, b->kernel->launcher};
    static const char *const kinds[6] = {"source", "header", "launcher", "so", "ptx", "cubin"};
    for (int i = 0; i < 3; i++) bytes[3 + i] = (kiln_bytes){b->blobs[i].p, b->blobs[i].n};
    if (kiln_program_text(b->arena, o->request->program, &name) != KILN_OK) name = (kiln_bytes){"", 0};
    snprintf(r->key, sizeof r->key, "%s", o->keys->kernel);
    snprintf(r->workload, sizeof r->workload, "%s", o->keys->workload);
    snprintf(r->origin, sizeof r->origin, "%s", origin);
    snprintf(r->target, sizeof r->target, "%s", kiln_hw_id(o->hw));
    r->name = name.p;
    r->canon = o->keys->kernel_canon;
    r->trace = b->kernel->trace;
    r->manifest = b->kernel->manifest;
    r->predicted_us = predicted_us;
    r->measured_us = measured_us;
    r->nartifacts = 0;
    for (int i = 0; i < 6; i++) {
        if (!bytes[i].p || !bytes[i].n) continue;
        cache_artifact *x = &r->artifacts[r->nartifacts];
        *x = (cache_artifact){.bytes = (int64_t)bytes[i].n};
        snprintf(x->kind, sizeof x->kind, "%s", kinds[i]);
        blobs[r->nartifacts++].bytes = bytes[i]; /* cache_put fills the digests */
    }
    if (o->may_store && !o->may_store(o->user)) {
        b->result->end = BUILD_LOST;
        return false;
    }
    char *facts = made(b);
    if (facts) r->made = (kiln_bytes){facts, strlen(facts)};
    enum cache_status st = cache_put(o->cache, r, blobs, r->nartifacts, &b->result->stored);
    r->made = (kiln_bytes){0};
    free(facts);
    if (st == CACHE_FULL)
        return fail(b, 507, "store-full", "the store is full", "its disk has no room for the kernel; nothing of it was kept");
    if (st != CACHE_OK)
        return fail(b, 503, "store-unavailable", "the kernel could not be stored", "");
    b->result->version = r->version;
    b->result->verification = r->verification;
    memcpy(b->result->build, r->build, sizeof r->build);
    return true;
}

/* Candidates in their order. Most builds want the first alone, which is there long before the others are: these are constructed when it fails. What
 * an assembler does to one instruction it may do to all candidates that have it, hence some more than are asked for, unless it is one. */
typedef struct choice {
    kiln_candidates *found;
    int asked; /* how many construction was asked for last */
} choice;

/* Until candidate i is found, or there are no more. */
static kiln_status find(build *b, int i, choice *c, kiln_diag *d)
{
    enum { MORE = 3 };
    const build_order *o = b->order;
    int wanted = o->request->top_k, most = wanted == 1 ? 1 : wanted * MORE < KILN_MAX_CANDIDATES ? wanted * MORE : KILN_MAX_CANDIDATES;
    if (c->found && (i < c->found->n || c->asked == most)) return KILN_OK;
    double t = verify_now_ms();
    c->asked = !c->asked ? 1 : c->asked < wanted ? wanted : most;
    kiln_status s = kiln_construct_request(b->arena, o->request, o->hw, c->asked, &c->found, d);
    b->result->times.construct += lap(&t);
    return s;
}

static bool run(build *b)
{
    const build_order *o = b->order;
    choice list = {.found = NULL};
    kiln_diag d = {0};
    int tried = 0;
    for (int i = 0; tried < o->candidates; i++) {
        kiln_status s = find(b, i, &list, &d);
        if (s != KILN_OK) return refuse(b, s, &d);
        if (i >= list.found->n) break;
        const kiln_candidate *c = &list.found->c[i];
        build_name(b, c->trace);
        if (build_failed_before(b)) continue;
        if (!build_make(b, c->trace)) return false;
        bool spills = b->gate.spill_bytes > 0, refused = b->gate.why[0] != 0;
        tried += !refused || spills; /* what the assembler made of a schedule says nothing about the next one */
        if (refused && tried < o->candidates) {
            if ((s = find(b, i + 1, &list, &d)) != KILN_OK) return refuse(b, s, &d);
            if (i + 1 < list.found->n) continue;
        }
        if (refused && !spills) return fail(b, 500, "compile-failed", "the binary is not what it should be", b->gate.why);
        if (!build_store(b, o->request->trace.n ? "given" : "constructed", c->predicted_us, 0)) return false;
        if (b->record.verification != CACHE_FAILED) return true;
        b->result->wrong++;
    }
    return fail(b, 500, "verify-failed", "no candidate passed verification", b->record.verdict);
}

void build_kernel(const build_order *o, build_result *r)
{
    build b;
    if (build_open(&b, o, r)) run(&b);
    build_close(&b);
}
