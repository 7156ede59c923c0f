/* Counters and times as Prometheus text (version 0.0.4). */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "service/auth.h"
#include "service/status.h"

enum { ROUTES = 96, CODES = 28, BUCKETS = 12, CACHE_LINES = 256 };
static const double bounds[BUCKETS] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5, 30}; /* seconds, or ratios */
static const int codes[CODES] = {200, 201, 202, 204, 206, 304, 400, 401, 403, 404, 405, 406, 409, 410,
                                 412, 413, 414, 415, 416, 422, 428, 429, 431, 500, 501, 503, 504, 507};
typedef struct histogram {
    atomic_ullong buckets[BUCKETS + 1], micro;
} histogram;
struct service_metrics {
    atomic_ullong counters[SERVICE_COUNTERS];
    histogram timers[SERVICE_TIMERS];
    histogram requests[ROUTES + 1]; /* the last: no route */
    atomic_ullong codes[ROUTES + 1][CODES + 1];
};
typedef struct row {
    const char *metric, *labels, *help;
} row;
static const row counters[SERVICE_COUNTERS] = {
#define COUNTER(name, metric, labels, help) {metric, labels, help},
#include "service/metrics.def"
};
static const row timers[SERVICE_TIMERS] = {
#define TIMER(name, metric, labels, help) {metric, labels, help},
#include "service/metrics.def"
};

const char *service_counter_text(enum service_counter k) { return counters[k].metric; }

static unsigned long long value_of(const service_metrics *m, int k) { return atomic_load(&((service_metrics *)(uintptr_t)m)->counters[k]); }

double service_counter_value(const service_metrics *m, enum service_counter k)
{
    return (double)value_of(m, (int)k) / (k == SERVICE_SAVED_MS ? 1000 : 1);
}

service_metrics *service_metrics_open(void) { return calloc(1, sizeof(service_metrics)); }

void service_metrics_close(service_metrics *m) { free(m); }

static void add(atomic_ullong *to, unsigned long long n) { atomic_fetch_add_explicit(to, n, memory_order_relaxed); }

static void observe(histogram *h, double value)
{
    int i = 0;
    while (i < BUCKETS && value > bounds[i]) i++;
    add(&h->buckets[i], 1);
    add(&h->micro, value > 0 ? (unsigned long long)(value * 1e6) : 0);
}

/* A hit saves what a build takes: the mean of those of this process. */
static void count_saved(service_metrics *m)
{
    unsigned long long builds = value_of(m, SERVICE_COMPILES), micro = 0;
    for (int i = SERVICE_STAGE_CONSTRUCT; i <= SERVICE_STAGE_VERIFY; i++) micro += atomic_load(&m->timers[i].micro);
    if (builds) add(&m->counters[SERVICE_SAVED_MS], micro / 1000 / builds);
}

void service_count(service_metrics *m, enum service_counter k)
{
    add(&m->counters[k], 1);
    if (k == SERVICE_HITS || k == SERVICE_MEMO_HITS) count_saved(m);
}

void service_observe(service_metrics *m, enum service_timer t, double value) { observe(&m->timers[t], value); }

void service_count_request(service_metrics *m, const service_route *r, int status, double ms)
{
    int at = r && r - service_routes < ROUTES ? (int)(r - service_routes) : ROUTES, k = 0;
    while (k < CODES && codes[k] != status) k++;
    add(&m->codes[at][k], 1);
    observe(&m->requests[at], ms / 1e3);
}

typedef struct text {
    char *p;
    size_t n, cap;
    const char *metric; /* of the last head */
    const service_who *who;
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

static void head(text *t, const char *metric, const char *type, const char *help)
{
    if (t->metric && !strcmp(t->metric, metric)) return;
    t->metric = metric;
    put(t, "# HELP %s %s\n# TYPE %s %s\n", metric, help, metric, type);
}

static void put_histogram(text *t, const char *metric, const char *labels, const histogram *h)
{
    unsigned long long sum = 0;
    const char *comma = *labels ? "," : "";
    histogram *x = (histogram *)(uintptr_t)h;
    for (int i = 0; i <= BUCKETS; i++) {
        char le[24] = "+Inf";
        if (i < BUCKETS) snprintf(le, sizeof le, "%g", bounds[i]);
        sum += atomic_load(&x->buckets[i]);
        put(t, "%s_bucket{%s%sle=\"%s\"} %llu\n", metric, labels, comma, le, sum);
    }
    put(t, "%s_sum%s%s%s %.6f\n", metric, *labels ? "{" : "", labels, *labels ? "}" : "", (double)atomic_load(&x->micro) / 1e6);
    put(t, "%s_count%s%s%s %llu\n", metric, *labels ? "{" : "", labels, *labels ? "}" : "", sum);
}

static void put_requests(text *t, service_metrics *m)
{
    char labels[120];
    for (int r = 0; r <= ROUTES; r++)
        for (int k = 0; k <= CODES; k++) {
            unsigned long long v = atomic_load(&m->codes[r][k]);
            if (!v) continue;
            head(t, "kiln_requests_total", "counter", "answers by route and status; code 0: any other");
            put(t, "kiln_requests_total{route=\"%s\",method=\"%s\",code=\"%d\"} %llu\n", r < service_nroutes ? service_routes[r].path : "none",
                r < service_nroutes ? service_routes[r].method : "", k < CODES ? codes[k] : 0, v);
        }
    for (int r = 0; r < service_nroutes; r++) {
        bool any = false;
        for (int i = 0; i <= BUCKETS; i++) any |= atomic_load(&m->requests[r].buckets[i]) != 0;
        if (!any) continue;
        head(t, "kiln_request_seconds", "histogram", "time from the head of a request to its answer");
        snprintf(labels, sizeof labels, "route=\"%s\",method=\"%s\"", service_routes[r].path, service_routes[r].method);
        put_histogram(t, "kiln_request_seconds", labels, &m->requests[r]);
    }
}

/* ---- the cache: lines of one metric must stand together, the cache tells them tier by tier ---- */
typedef struct cache_line {
    char name[48], labels[64];
    int64_t value;
    int at;
} cache_line;
typedef struct cache_lines {
    cache_line list[CACHE_LINES];
    int n;
} cache_lines;

static void take_line(void *user, const char *name, const char *tier, const char *result, int64_t value)
{
    cache_lines *l = user;
    if (l->n == CACHE_LINES) return;
    cache_line *x = &l->list[l->n];
    x->at = l->n++;
    x->value = value;
    snprintf(x->name, sizeof x->name, "%s", name);
    snprintf(x->labels, sizeof x->labels, "%s%s%s%s%s%s%s", *tier ? "tier=\"" : "", tier, *tier ? "\"" : "", *tier && result && *result ? "," : "",
             result && *result ? "result=\"" : "", result ? result : "", result && *result ? "\"" : "");
}

static int by_name(const void *a, const void *b)
{
    const cache_line *x = a, *y = b;
    int c = strcmp(x->name, y->name);
    return c ? c : x->at - y->at;
}

static void put_cache(text *t, service_app *app)
{
    cache_lines *l = calloc(1, sizeof *l);
    if (!l) return;
    cache_counters(app->cache, take_line, l);
    if (app->status) take_line(l, "kiln_store_bytes", *app->config.postgres ? "postgres" : "sqlite", "", service_status_bytes(app));
    qsort(l->list, (size_t)l->n, sizeof *l->list, by_name);
    for (int i = 0; i < l->n; i++) {
        const cache_line *x = &l->list[i];
        size_t n = strlen(x->name);
        bool total = n > 6 && !strcmp(x->name + n - 6, "_total");
        if (!i || strcmp(l->list[i - 1].name, x->name)) t->metric = NULL;
        head(t, x->name, total ? "counter" : "gauge", "of the cache's tiers");
        put(t, "%s{%s} %lld\n", x->name, x->labels, (long long)x->value);
    }
    free(l);
    t->metric = NULL;
}

/* Of another tenant than the caller's: its name is nobody's business either. */
static bool is_others(const service_who *who, const char *labels)
{
    const char *tenant = strstr(labels, "tenant=\"");
    if (who->sees_all || !tenant || tenant[8] == '"') return false;
    size_t n = strlen(who->tenant);
    return strncmp(tenant + 8, who->tenant, n) || tenant[8 + n] != '"';
}

static void put_gauge(void *user, const char *name, const char *labels, double value)
{
    text *t = user;
    if (is_others(t->who, labels)) return;
    head(t, name, "gauge", "as of the last look at the fleet");
    put(t, "%s{%s} %g\n", name, labels, value);
}

char *service_metrics_text(service_app *app, const service_who *who)
{
    service_metrics *m = app->metrics;
    text t = {.who = who};
    for (int i = 0; i < SERVICE_COUNTERS; i++) {
        head(&t, counters[i].metric, "counter", counters[i].help);
        put(&t, *counters[i].labels ? "%s{%s} %.15g\n" : "%s%s %.15g\n", counters[i].metric, counters[i].labels,
            service_counter_value(m, (enum service_counter)i));
    }
    for (int i = 0; i < SERVICE_TIMERS; i++) {
        head(&t, timers[i].metric, "histogram", timers[i].help);
        put_histogram(&t, timers[i].metric, timers[i].labels, &m->timers[i]);
    }
    put_requests(&t, m);
    if (app->status) service_status_gauges(app, put_gauge, &t);
    head(&t, "kiln_queue_depth", "gauge", "jobs that wait for a thread of this process");
    put(&t, "kiln_queue_depth{class=\"interactive\"} %d\nkiln_queue_depth{class=\"background\"} %d\n", worker_pool_depth(app->pool, false),
        worker_pool_depth(app->pool, true));
    if (app->auth) {
        head(&t, "kiln_keys_refused_total", "counter", "calls with a key that is not valid");
        put(&t, "kiln_keys_refused_total %llu\n", service_auth_failures(app->auth));
    }
    head(&t, "kiln_build_info", "gauge", "1, with the version as labels");
    put(&t, "kiln_build_info{version=\"%s\",fingerprint=\"%s\"} 1\n", SERVICE_VERSION, kiln_fingerprint());
    if (app->cache) put_cache(&t, app);
    return t.p;
}
