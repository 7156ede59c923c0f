/* What the status page shows: a snapshot, made once for all who look, after something has happened. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "jobs/room.h"
#include "service/auth.h"
#include "service/status.h"

enum { SHOWN = 40, WORKERS = 64, TALLIES = 256, GAUGES = TALLIES + 2 * JOBS_STATES + 3 * WORKERS };
typedef struct gauge {
    const char *name;
    char labels[160];
    double value;
} gauge;
struct service_status {
    pthread_mutex_t lock;
    char *text; /* JSON */
    gauge gauges[GAUGES]; /* rows of one name stand together */
    int ngauges;
    uint64_t generation;
    atomic_llong bytes; /* that the kernels take in the store */
    cJSON *kernels;
};
static const char *const worker_states[] = {"working", "draining", "braked"};

service_status *service_status_open(void)
{
    service_status *s = calloc(1, sizeof *s);
    if (s) pthread_mutex_init(&s->lock, NULL);
    return s;
}

void service_status_close(service_status *s)
{
    if (!s) return;
    cJSON_Delete(s->kernels);
    free(s->text);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* The kernels change with the generation of the cache; until then those of the last time are shown. */
static cJSON *kernels_of(service_app *app, service_status *s)
{
    uint64_t now = cache_generation(app->cache);
    if (s->kernels && now == s->generation) return s->kernels;
    cache_record *list[SHOWN];
    int64_t keys, bytes;
    int n = cache_list(app->cache, "", "", SHOWN, list);
    cJSON *a = cJSON_CreateArray();
    for (int i = 0; i < n; i++) {
        cJSON_AddItemToArray(a, service_kernel_summary(list[i]));
        cache_release(list[i]);
    }
    cJSON_Delete(s->kernels);
    s->kernels = a;
    s->generation = now;
    if (room_total(service_fleet_jobs(app->fleet), &bytes, &keys) == JOBS_OK) atomic_store(&s->bytes, bytes);
    return a;
}

/* Adds to the row of that name and those labels, or makes it. */
static void add_gauge(gauge *list, int *n, const char *name, const char *labels, double value)
{
    for (int i = 0; i < *n; i++)
        if (list[i].name == name && !strcmp(list[i].labels, labels)) {
            list[i].value += value;
            return;
        }
    if (*n == GAUGES) return;
    list[*n] = (gauge){.name = name, .value = value};
    snprintf(list[(*n)++].labels, sizeof list->labels, "%s", labels);
}

/* What a worker makes kernels for: the architecture of its device, else "cpu". */
static void target_of(const char *words, char out[24])
{
    const char *sm = strstr(words, "sm_");
    snprintf(out, 24, "%.*s", sm ? (int)strcspn(sm, " ") : 3, sm ? sm : "cpu");
}

static cJSON *workers_of(service_app *app, gauge *gauges, int *ngauges)
{
    static const char name[] = "kiln_workers";
    char labels[80], target[24];
    for (size_t k = 0; k < sizeof worker_states / sizeof *worker_states; k++) {
        snprintf(labels, sizeof labels, "target=\"cpu\",state=\"%s\"", worker_states[k]);
        add_gauge(gauges, ngauges, name, labels, 0);
    }
    static jobs_worker list[WORKERS]; /* one thread makes snapshots */
    int n = jobs_workers(service_fleet_jobs(app->fleet), list, WORKERS);
    cJSON *a = cJSON_CreateArray();
    for (int i = 0; i < n; i++) {
        cJSON *o = cJSON_CreateObject(), *device = *list[i].device ? cJSON_Parse(list[i].device) : NULL;
        cJSON_AddStringToObject(o, "name", list[i].name);
        cJSON_AddStringToObject(o, "host", list[i].host);
        cJSON_AddStringToObject(o, "offers", list[i].words);
        cJSON_AddStringToObject(o, "state", list[i].state);
        cJSON_AddNumberToObject(o, "slots", list[i].slots);
        cJSON_AddNumberToObject(o, "started_ms", (double)list[i].started_ms);
        cJSON_AddNumberToObject(o, "seen_ms", (double)list[i].seen_ms);
        cJSON_AddNumberToObject(o, "done", (double)list[i].done);
        cJSON_AddNumberToObject(o, "failed", (double)list[i].failed);
        if (device) cJSON_AddItemToObject(o, "device", device);
        cJSON_AddItemToArray(a, o);
        target_of(list[i].words, target);
        snprintf(labels, sizeof labels, "target=\"%s\",state=\"%.11s\"", target, list[i].state);
        add_gauge(gauges, ngauges, name, labels, 1);
    }
    return a;
}

static cJSON *jobs_list_of(service_app *app)
{
    static jobs_job list[SHOWN];
    jobs_filter f = {.state = -1, .kind = -1, .limit = SHOWN};
    int n = jobs_list(service_fleet_jobs(app->fleet), &f, list);
    cJSON *a = cJSON_CreateArray();
    for (int i = 0; i < n; i++) {
        cJSON_AddItemToArray(a, service_job_json(app, &list[i]));
        jobs_job_free(&list[i]);
    }
    return a;
}

typedef struct tiers {
    cJSON *list;
} tiers;
static void add_tier(void *user, const char *name, const char *tier, const char *result, int64_t value)
{
    tiers *t = user;
    if (strcmp(name, "kiln_cache_lookups_total") && strcmp(name, "kiln_store_bytes")) return;
    cJSON *o = NULL;
    for (cJSON *e = t->list->child; e && !o; e = e->next)
        if (!strcmp(cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(e, "tier")), tier)) o = e;
    if (!o) {
        cJSON_AddItemToArray(t->list, o = cJSON_CreateObject());
        cJSON_AddStringToObject(o, "tier", tier);
    }
    cJSON_AddNumberToObject(o, result && *result ? result : "bytes", (double)value);
}

static void job_gauge(gauge *gauges, int *ngauges, int state, bool background, const char *tenant, int64_t n)
{
    char labels[160];
    snprintf(labels, sizeof labels, "state=\"%s\",class=\"%s\",tenant=\"%s\"", jobs_state_text((enum jobs_state)state),
             background ? "background" : "interactive", tenant);
    add_gauge(gauges, ngauges, "kiln_jobs", labels, (double)n);
}

/* By state, for the page; by state, class and tenant, for /metrics. What belongs to no tenant is always there. */
static cJSON *tallies_of(service_app *app, gauge *gauges, int *ngauges)
{
    static jobs_tally list[TALLIES];
    int64_t sums[JOBS_STATES] = {0};
    int n = jobs_counts(service_fleet_jobs(app->fleet), list, TALLIES);
    cJSON *o = cJSON_CreateObject();
    for (int s = 0; s < 2 * JOBS_STATES; s++) job_gauge(gauges, ngauges, s / 2, s % 2, "", 0);
    for (int i = 0; i < n; i++) {
        if (list[i].state < 0 || list[i].state >= JOBS_STATES) continue;
        sums[list[i].state] += list[i].n;
        job_gauge(gauges, ngauges, list[i].state, list[i].background, list[i].tenant, list[i].n);
    }
    for (int s = 0; s < JOBS_STATES; s++) cJSON_AddNumberToObject(o, jobs_state_text((enum jobs_state)s), (double)sums[s]);
    return o;
}

void service_status_refresh(service_app *app)
{
    service_status *s = app->status;
    static gauge gauges[GAUGES];
    int ngauges = 0;
    double sum = 0;
    cJSON *o = cJSON_CreateObject(), *c = cJSON_AddObjectToObject(o, "counters");
    tiers t = {cJSON_CreateArray()};
    cJSON_AddNumberToObject(o, "at_ms", (double)service_unix_ms());
    cJSON_AddNumberToObject(o, "started_ms", (double)app->started_ms);
    cJSON_AddStringToObject(o, "version", SERVICE_VERSION);
    cJSON_AddStringToObject(o, "fingerprint", kiln_fingerprint());
    for (int i = 0; i < SERVICE_COUNTERS; i++) { /* rows of one metric stand together, and are one sum here */
        const char *name = service_counter_text((enum service_counter)i);
        bool again = i && !strcmp(name, service_counter_text((enum service_counter)(i - 1)));
        sum = service_counter_value(app->metrics, (enum service_counter)i) + (again ? sum : 0);
        if (again) cJSON_DeleteItemFromObjectCaseSensitive(c, name);
        cJSON_AddNumberToObject(c, name, sum);
    }
    cache_counters(app->cache, add_tier, &t);
    cJSON_AddItemToObject(o, "tiers", t.list);
    cJSON_AddItemToObject(o, "job_states", tallies_of(app, gauges, &ngauges));
    cJSON_AddItemToObject(o, "jobs", jobs_list_of(app));
    cJSON_AddItemToObject(o, "workers", workers_of(app, gauges, &ngauges));
    cJSON_AddItemReferenceToObject(o, "kernels", kernels_of(app, s));
    char *text = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    pthread_mutex_lock(&s->lock);
    if (text) {
        free(s->text);
        s->text = text;
    }
    memcpy(s->gauges, gauges, sizeof gauges);
    s->ngauges = ngauges;
    pthread_mutex_unlock(&s->lock);
}

char *service_status_text(service_app *app)
{
    pthread_mutex_lock(&app->status->lock);
    char *text = app->status->text ? strdup(app->status->text) : NULL;
    pthread_mutex_unlock(&app->status->lock);
    return text;
}

long long service_status_bytes(service_app *app) { return atomic_load(&app->status->bytes); }

void service_status_gauges(service_app *app, void (*emit)(void *user, const char *name, const char *labels, double value), void *user)
{
    service_status *s = app->status;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->ngauges; i++) emit(user, s->gauges[i].name, s->gauges[i].labels, s->gauges[i].value);
    pthread_mutex_unlock(&s->lock);
}

static void leave_seen(service_call *c, cJSON *list)
{
    for (cJSON *e = list ? list->child : NULL, *next; e; e = next) {
        next = e->next;
        const char *key = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(e, "key"));
        if (!key || !service_may_see(c, key)) cJSON_Delete(cJSON_DetachItemViaPointer(list, e));
    }
}

service_reply *rt_status(service_call *c)
{
    char *text = service_status_text(c->app);
    service_reply *r;
    if (c->who.sees_all) {
        r = service_reply_new(200, "application/json", text, text ? strlen(text) : 0);
    } else { /* a tenant: what it may see of it, and nobody's machines */
        cJSON *o = cJSON_Parse(text);
        free(text);
        leave_seen(c, cJSON_GetObjectItemCaseSensitive(o, "kernels"));
        leave_seen(c, cJSON_GetObjectItemCaseSensitive(o, "jobs"));
        cJSON_DeleteItemFromObjectCaseSensitive(o, "workers");
        cJSON_AddArrayToObject(o, "workers");
        r = service_reply_json(200, o);
    }
    service_reply_header(r, "Cache-Control", "no-store");
    return r;
}
