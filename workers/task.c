/* What the kinds of jobs share: ends, stops, the record in question; and the two kinds that rebuild: compile and verify. */
#include "workers/seal.h"
#include "workers/task.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum task_end task_says(task *t, enum task_end end, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    if (end == TASK_DONE) vsnprintf(t->result, sizeof t->result, format, ap);
    else vsnprintf(t->error, sizeof t->error, format, ap);
    va_end(ap);
    return end;
}

/* {"status","slug"...}: the service makes the same problem of it as of a compile of its own. */
static void write_problem(task *t, int http, const char *slug, const char *title, const char *detail, const char *pointer, const char *hint)
{
    char *text = build_problem(http, slug, title, detail, pointer, hint);
    snprintf(t->result, sizeof t->result, "%s", text && strlen(text) < sizeof t->result ? text : "");
    build_problem_free(text);
    snprintf(t->error, sizeof t->error, "%.500s", detail);
}

enum task_end task_end_of(task *t, const build_result *r)
{
    if (r->end == BUILD_LOST) return TASK_LOST;
    if (r->end == BUILD_OK)
        return task_says(t, TASK_DONE, "{\"version\":%lld,\"build\":\"%s\",\"verification\":\"%s\"}", (long long)r->version, r->build,
                         cache_verification_text(r->verification));
    if (r->end == BUILD_REFUSED) {
        write_problem(t, kiln_status_http(r->diag.status), kiln_status_slug(r->diag.status), kiln_status_text(r->diag.status), r->diag.message,
                      r->diag.pointer, r->diag.hint);
        return TASK_FAILED;
    }
    bool trouble = r->http == 503 || r->http == 504 || r->http == 507; /* of this machine: another may do better */
    write_problem(t, r->http, r->slug, r->title, r->detail, "", "");
    return trouble ? TASK_RETRY : TASK_FAILED;
}

bool task_must_stop(task *t, enum task_end *end)
{
    *end = TASK_STOPPED;
    if (!keeper_holds(t->keeper, t->lease)) *end = TASK_LOST;
    else if (keeper_todo(t->lease) == JOBS_GO_ON && !(t->job->class == JOBS_BACKGROUND && t->draining())) return false;
    return true;
}

cache_record *task_record(task *t, enum task_end *end)
{
    cache_record *r = NULL;
    const char *tier;
    enum cache_status st = t->asked.version ? cache_get_version(t->cache, t->asked.keys.kernel, t->asked.version, &r)
                                            : cache_get(t->cache, t->asked.keys.kernel, t->asked.keys.kernel_canon, &r, &tier);
    if (r) return r;
    *end = st == CACHE_ERROR ? task_says(t, TASK_RETRY, "the store cannot be asked") : task_says(t, TASK_FAILED, "no such version of the kernel");
    return NULL;
}

enum task_end task_compile(task *t)
{
    build_result r = {.end = BUILD_OK};
    cache_record *have = NULL;
    const char *tier;
    if (cache_get(t->cache, t->asked.keys.kernel, t->asked.keys.kernel_canon, &have, &tier) == CACHE_OK) { /* its last worker died after storing */
        r.version = have->version;
        r.verification = have->verification;
        memcpy(r.build, have->build, sizeof r.build);
        cache_release(have);
    } else build_kernel(&t->order, &r);
    return task_end_of(t, &r);
}

static bool same_artifacts(const build *b, const cache_record *r)
{
    const kiln_bytes now[] = {b->kernel->source, {b->blobs[0].p, b->blobs[0].n}, {b->blobs[1].p, b->blobs[1].n}, {b->blobs[2].p, b->blobs[2].n}};
    static const char *const kinds[] = {"source", "so", "ptx", "cubin"};
    for (int i = 0; i < r->nartifacts; i++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            uint8_t digest[32];
            char hex[65];
            if (strcmp(kinds[k], r->artifacts[i].kind)) continue;
            kiln_sha256(now[k].p ? now[k].p : "", now[k].n, digest);
            kiln_hex(digest, 32, hex);
            if (strcmp(hex, r->artifacts[i].digest)) return false;
        }
    return true;
}

/* Appends members to a verdict while they fit. */
static void say_more(char *verdict, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void say_more(char *verdict, size_t size, const char *format, ...)
{
    char more[160];
    va_list ap;
    va_start(ap, format);
    int k = vsnprintf(more, sizeof more, format, ap);
    va_end(ap);
    size_t n = strlen(verdict);
    if (n >= 2 && k > 0 && k < (int)sizeof more && n + (size_t)k + 2 < size)
        snprintf(verdict + n - 1, size - n + 1, "%s%s}", n > 2 ? "," : "", more);
}

/* With the tools that the build id names, other bytes are another kernel: who built it, or who rebuilds it, is not honest or not sound. */
static enum task_end compare(task *t, build *b, const cache_record *r, bool same_tools)
{
    bool same = same_artifacts(b, r), right = b->record.verification != CACHE_FAILED, differs = same_tools && !same;
    const char *by = t->seals ? seals_public(t->seals) : "";
    enum cache_verification v = right && !differs ? CACHE_RUN : CACHE_FAILED;
    if (differs)
        snprintf(b->record.verdict, CACHE_SAID_BYTES, "{\"how\":\"rebuilt\",\"ok\":false,"
                 "\"detail\":\"the same tools give other bytes than the builder %.16s stored\"}", r->signer);
    say_more(b->record.verdict, CACHE_SAID_BYTES, "\"rebuilt_by\":\"%.16s\",\"same_tools\":%s,\"reproduced\":%s", by,
             same_tools ? "true" : "false", same ? "true" : "false");
    if ((t->order.runs_here || differs) && keeper_asks(t->keeper, t->lease))
        cache_verdict(t->cache, r->key, r->version, v, b->record.verdict);
    return task_says(t, TASK_DONE,
                     "{\"version\":%lld,\"same_tools\":%s,\"reproduced\":%s,\"verification\":\"%s\",\"quarantined\":%s,\"builder\":\"%s\","
                     "\"rebuilt_by\":\"%s\"}",
                     (long long)r->version, same_tools ? "true" : "false", same ? "true" : "false",
                     cache_verification_text(b->record.verification), v == CACHE_FAILED ? "true" : "false", r->signer, by);
}

/* Rebuilds a version from its trace, compares the bytes, and verifies what was rebuilt. */
enum task_end task_verify(task *t)
{
    enum task_end end;
    build_result result;
    build b;
    cache_record *r = task_record(t, &end);
    if (!r) return end;
    bool made = build_open(&b, &t->order, &result);
    if (made) build_name(&b, r->trace);
    bool same_tools = made && !strcmp(b.record.build, r->build);
    made = made && build_make(&b, r->trace);
    if (!made) end = task_end_of(t, &result);
    else end = compare(t, &b, r, same_tools);
    build_close(&b);
    cache_release(r);
    return end;
}
