/* POST /v1/measurements: what kernels took on devices that are not here (kiln import-results). A measured schedule that is better than what
 * is known becomes a version of its kernel, built here from its trace, with the device, its driver and its clock in the record. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "service/auth.h"
#include "service/body.h"
#include "service/spec.h"
#include "workers/build.h"

enum { MOST = 32 };

/* One result of the runner (workers/gpu/README.md), as far as a record wants it. */
typedef struct measured {
    const char *key, *target, *program, *trace, *device;
    double us, us_min, us_max, max_error, predicted_us;
    int64_t driver, clock_khz, checked;
} measured;

static double number(const cJSON *o, const char *name, bool must, service_reply **bad)
{
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(o, name);
    if (cJSON_IsNumber(x) && x->valuedouble >= 0 && x->valuedouble < 1e15) return x->valuedouble;
    if ((must || x) && !*bad) {
        char pointer[64];
        snprintf(pointer, sizeof pointer, "/%s", name);
        *bad = service_body_wrong(pointer, "a number that is not negative is expected", "a line of kiln-gpu-run's results");
    }
    return 0;
}

static bool read_result(const cJSON *o, measured *m, service_reply **bad)
{
    if (strcmp(service_body_text(o, "status", NULL, 32, bad), "ok") && !*bad)
        *bad = service_body_wrong("/status", "only kernels that were right have a time", "status \"ok\"");
    m->key = service_body_text(o, "key", NULL, 71, bad);
    m->target = service_body_text(o, "target", NULL, KILN_MAX_NAME_BYTES - 1, bad);
    m->program = service_body_text(o, "program", NULL, 1 << 16, bad);
    m->trace = service_body_text(o, "trace", NULL, 1 << 16, bad);
    m->device = service_body_text(o, "device", NULL, 127, bad);
    m->us = number(o, "us", true, bad), m->us_min = number(o, "us_min", false, bad), m->us_max = number(o, "us_max", false, bad);
    m->max_error = number(o, "max_error", false, bad), m->predicted_us = number(o, "predicted_us", false, bad);
    m->driver = (int64_t)number(o, "driver", true, bad), m->clock_khz = (int64_t)number(o, "clock_khz", true, bad);
    m->checked = (int64_t)number(o, "checked", false, bad);
    if (!*bad && !(m->us > 0)) *bad = service_body_wrong("/us", "no kernel takes no time", "microseconds");
    for (const char *p = m->device; !*bad && *p; p++)
        if (*p < 32 || *p == '"' || *p == '\\')
            *bad = service_body_wrong("/device", "a name of plain characters is expected", "as the driver says it");
    return !*bad;
}

/* The request that the key was made of. */
static service_ask *ask_of(service_call *c, const measured *m, service_reply **bad)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "expr", m->program);
    cJSON_AddStringToObject(o, "target", m->target);
    service_ask *a = service_spec_ask(c->app, o, bad);
    cJSON_Delete(o);
    if (!a || !strcmp(a->keys.kernel, m->key)) return a;
    service_ask_drop(a);
    *bad = service_body_wrong("/key", "program and target have another key here",
                              "results of a bundle that was made with the same version and hardware description, by the default policy");
    return NULL;
}

static bool better_known(service_call *c, const measured *m)
{
    cache_record *r = NULL;
    const char *tier;
    bool known = cache_get(c->app->cache, m->key, (kiln_bytes){0}, &r, &tier) == CACHE_OK && r->measured_us > 0 && r->measured_us <= m->us;
    if (r) cache_release(r);
    return known;
}

static void write_verdict(const measured *m, char *json, size_t size)
{
    snprintf(json, size,
             "{\"how\":\"measured\",\"ok\":true,\"max_error\":%.4g,\"checked\":%lld,\"us\":%.4f,\"us_min\":%.4f,\"us_max\":%.4f,"
             "\"device\":\"%s\",\"driver\":%lld,\"clock_khz\":%lld}",
             m->max_error, (long long)m->checked, m->us, m->us_min, m->us_max, m->device, (long long)m->driver, (long long)m->clock_khz);
}

static service_reply *problem_of(const build_result *r)
{
    return r->end == BUILD_REFUSED ? service_problem_diag(&r->diag) : service_problem(r->http, r->slug, r->title, r->detail, NULL);
}

/* "stored", with the version; "kept": what is known is as fast; or "refused", with a problem. */
static cJSON *take(service_call *c, const cJSON *item)
{
    measured m = {0};
    service_reply *bad = NULL;
    cJSON *o = cJSON_CreateObject();
    const char *state = "refused";
    service_ask *a = cJSON_IsObject(item) && read_result(item, &m, &bad) ? ask_of(c, &m, &bad) : NULL;
    if (a && better_known(c, &m)) {
        state = "kept";
    } else if (a) {
        build b;
        build_result r;
        build_order order = {.tools = &c->app->tools,
                             .cache = c->app->cache,
                             .request = a->request,
                             .hw = a->hw,
                             .keys = &a->keys,
                             .candidates = 1,
                             .attempts = SERVICE_ATTEMPTS,
                             .verify_ms = c->app->config.verify_ms,
                             .runs_here = service_runs_here(a->hw), /* then it is not taken at its word */
                             .deadline = build_now_ms() + c->app->config.deadline_ms};
        kiln_bytes trace = {m.trace, strlen(m.trace)};
        bool ok = build_open(&b, &order, &r);
        if (ok) build_name(&b, trace);
        ok = ok && build_make(&b, trace);
        bool wrong = ok && b.record.verification == CACHE_FAILED;
        if (ok && !wrong) {
            b.record.verification = CACHE_MEASURED;
            write_verdict(&m, b.record.verdict, CACHE_SAID_BYTES);
            ok = build_store(&b, "imported", m.predicted_us, m.us);
        }
        if (ok && !wrong) {
            state = "stored";
            cJSON_AddNumberToObject(o, "version", (double)r.version);
        } else {
            bad = wrong ? service_problem(422, "verify-failed", "the kernel computes wrong values here", b.record.verdict, NULL) : problem_of(&r);
        }
        build_close(&b);
    } else if (!bad) {
        bad = service_body_wrong("", "no result", "a line of kiln-gpu-run's results");
    }
    cJSON_AddStringToObject(o, "key", m.key ? m.key : "");
    cJSON_AddStringToObject(o, "state", state);
    if (bad) cJSON_AddItemToObject(o, "problem", cJSON_Parse(bad->body));
    service_reply_drop(bad);
    service_ask_drop(a);
    return o;
}

service_reply *rt_measurements(service_call *c)
{
    service_reply *bad;
    static const char *const names[] = {"results", NULL};
    cJSON *o = service_body_json(c, &bad);
    if (!o) return bad;
    const cJSON *items = cJSON_GetObjectItemCaseSensitive(o, "results");
    service_body_only(o, names, &bad);
    if (!bad && !cJSON_IsArray(items)) bad = service_body_wrong("/results", "no list of results", "lines of kiln-gpu-run's results");
    if (!bad && cJSON_GetArraySize(items) > MOST) bad = service_problem_limit(413, "measurements", MOST, "too many results at once");
    cJSON *answer = bad ? NULL : cJSON_CreateObject(), *list = cJSON_AddArrayToObject(answer, "results");
    for (const cJSON *e = bad ? NULL : items->child; e; e = e->next) cJSON_AddItemToArray(list, take(c, e));
    cJSON_Delete(o);
    return bad ? bad : service_reply_json(200, answer);
}
