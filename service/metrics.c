/* Counters of the service and of the cache as Prometheus text (version 0.0.4). */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "service/service.h"

enum { ROUTES = 96, CLASSES = 6 };
struct service_metrics {
    atomic_ullong counters[SERVICE_COUNTERS];
    atomic_ullong requests[ROUTES + 1][CLASSES]; /* by class of status; the last row: no route */
    atomic_ullong microseconds[ROUTES + 1];
};
static const char *const names[SERVICE_COUNTERS] = {
    "kiln_hits_total",     "kiln_prepared_hits_total",    "kiln_misses_total",          "kiln_collapsed_total",
    "kiln_compiles_total", "kiln_compile_failures_total", "kiln_verify_failures_total", "kiln_emulations_total",
    "kiln_refused_total",
};

const char *service_counter_text(enum service_counter k) { return names[k]; }

unsigned long long service_counter_value(const service_metrics *m, enum service_counter k)
{
    return atomic_load(&((service_metrics *)(uintptr_t)m)->counters[k]);
}

service_metrics *service_metrics_open(void) { return calloc(1, sizeof(service_metrics)); }

void service_metrics_close(service_metrics *m) { free(m); }

void service_count(service_metrics *m, enum service_counter k) { atomic_fetch_add_explicit(&m->counters[k], 1, memory_order_relaxed); }

void service_count_request(service_metrics *m, const service_route *r, int status, double ms)
{
    int row = r ? (int)(r - service_routes) : ROUTES;
    atomic_fetch_add_explicit(&m->requests[row][status / 100 % CLASSES], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&m->microseconds[row], (unsigned long long)(ms * 1e3), memory_order_relaxed);
}

typedef struct text {
    char *p;
    size_t n, cap;
} text;
static void put(text *t, const char *format, ...)
{
    char line[512];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(line, sizeof line, format, ap);
    va_end(ap);
    if (n < 0 || n >= (int)sizeof line) return;
    if (t->n + (size_t)n + 1 > t->cap) {
        size_t cap = (t->cap + (size_t)n + 1) * 2;
        char *p = realloc(t->p, cap);
        if (!p) return;
        t->p = p;
        t->cap = cap;
    }
    memcpy(t->p + t->n, line, (size_t)n + 1);
    t->n += (size_t)n;
}

static void cache_line(void *user, const char *name, const char *tier, const char *result, int64_t value)
{
    put(user, "kiln_cache{counter=\"%s\",tier=\"%s\",result=\"%s\"} %lld\n", name, tier, result ? result : "", (long long)value);
}

char *service_metrics_text(service_app *app)
{
    service_metrics *m = app->metrics;
    text t = {0};
    for (int i = 0; i < SERVICE_COUNTERS; i++)
        put(&t, "# TYPE %s counter\n%s %llu\n", names[i], names[i], (unsigned long long)atomic_load(&m->counters[i]));
    put(&t, "# TYPE kiln_requests_total counter\n");
    for (int r = 0; r <= ROUTES; r++)
        for (int k = 1; k < CLASSES; k++) {
            unsigned long long v = atomic_load(&m->requests[r][k]);
            if (v && (r < service_nroutes || r == ROUTES))
                put(&t, "kiln_requests_total{route=\"%s\",code=\"%dxx\"} %llu\n", r < ROUTES ? service_routes[r].path : "none", k, v);
        }
    put(&t, "# TYPE kiln_request_seconds_total counter\n");
    for (int r = 0; r < service_nroutes; r++)
        put(&t, "kiln_request_seconds_total{route=\"%s\"} %.6f\n", service_routes[r].path, (double)atomic_load(&m->microseconds[r]) / 1e6);
    static const char *const states[] = {"queued", "running", "succeeded", "failed"};
    put(&t, "# TYPE kiln_jobs gauge\n");
    for (int s = 0; s < 4; s++) put(&t, "kiln_jobs{state=\"%s\"} %d\n", states[s], service_jobs_count(app->jobs, (enum service_state)s));
    put(&t, "# TYPE kiln_queue_depth gauge\nkiln_queue_depth{class=\"interactive\"} %d\nkiln_queue_depth{class=\"background\"} %d\n",
        worker_pool_depth(app->pool, false), worker_pool_depth(app->pool, true));
    put(&t, "# TYPE kiln_cache untyped\n");
    if (app->cache) cache_counters(app->cache, cache_line, &t);
    return t.p;
}
