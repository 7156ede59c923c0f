/* One thread reads the log of jobs and keeps its end in memory; streams (SSE) and waits are served from there. A client that was away longer than
 * the memory reaches gets what it missed from the log itself, once. */
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "service/auth.h"
#include "service/http.h"
#include "service/status.h"
#include "service/stream.h"

enum { RING = 2048, BATCH = 256, PING_MS = 15000, TURN_MS = 1000, FRESH_MS = 500, TRIM_MS = 10000, CURVES = 64, POINTS = 256 };
typedef struct note {
    int64_t seq, at_ms;
    char job[40], key[72], kind[16];
    bool last; /* of its job */
    char *text; /* as sent */
} note;
typedef struct curve {
    char job[40];
    int n;
    int64_t began_ms;
    double at[POINTS], us[POINTS];
} curve;
typedef struct listener {
    service_stream *s;
    service_call who; /* app and who alone */
    char job[40];
    int64_t seq, pinged, until; /* until: it ends then; -1: with its job, or never */
    struct MHD_Connection *connection;
    bool asleep, over;
    char *text;
    size_t n, at;
    struct listener *next;
} listener;
typedef struct waiter {
    service_call *c;
    char job[40];
    int64_t since;
    struct waiter *next;
} waiter;
struct service_stream {
    service_app *app;
    pthread_mutex_t lock;
    pthread_t thread;
    bool running, ended;
    atomic_bool stop;
    note ring[RING];
    int64_t first, last; /* numbers in the ring: first..last; last < first: none */
    listener *listeners;
    waiter *waiters;
    curve curves[CURVES];
    int ncurves;
    bool dirty; /* of the thread alone, as what follows */
    int64_t looked, trimmed;
    uint64_t generation;
};

static bool is_last(const char *kind)
{
    for (int s = 0; s < JOBS_STATES; s++)
        if (!strcmp(kind, jobs_state_text((enum jobs_state)s))) return !jobs_state_live((enum jobs_state)s);
    return false;
}

static char *text_of(const jobs_event *e)
{
    cJSON *o = cJSON_CreateObject(), *data = e->data && *e->data ? cJSON_Parse(e->data) : NULL;
    char *body, *text = NULL;
    cJSON_AddNumberToObject(o, "seq", (double)e->seq);
    cJSON_AddNumberToObject(o, "at_ms", (double)e->at_ms);
    if (*e->job) cJSON_AddStringToObject(o, "job", e->job);
    cJSON_AddStringToObject(o, "kind", e->kind);
    if (*e->key) cJSON_AddStringToObject(o, "key", e->key);
    if (e->version) cJSON_AddNumberToObject(o, "version", (double)e->version);
    if (data) cJSON_AddItemToObject(o, "data", data);
    body = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    if (body && asprintf(&text, "id: %lld\nevent: %s\ndata: %s\n\n", (long long)e->seq, e->kind, body) < 0) text = NULL;
    free(body);
    return text;
}

/* A progress with a best time is a point of its job's curve. */
static void add_point(service_stream *s, const jobs_event *e)
{
    cJSON *o = e->data && *e->data ? cJSON_Parse(e->data) : NULL;
    const cJSON *best = cJSON_GetObjectItemCaseSensitive(o, "best_us");
    curve *c = NULL;
    for (int i = 0; cJSON_IsNumber(best) && i < CURVES && i < s->ncurves && !c; i++)
        if (!strcmp(s->curves[i].job, e->job)) c = &s->curves[i];
    if (cJSON_IsNumber(best) && !c) {
        c = &s->curves[s->ncurves++ % CURVES];
        *c = (curve){.began_ms = e->at_ms};
        snprintf(c->job, sizeof c->job, "%s", e->job);
    }
    if (c && c->n < POINTS && (!c->n || best->valuedouble < c->us[c->n - 1])) {
        c->at[c->n] = (double)(e->at_ms - c->began_ms);
        c->us[c->n++] = best->valuedouble;
    }
    cJSON_Delete(o);
}

/* What the log says in numbers. */
static void count(service_stream *s, const jobs_event *e)
{
    service_metrics *m = s->app->metrics;
    if (!strcmp(e->kind, jobs_state_text(JOBS_LEASED))) {
        if (e->epoch > 1) service_count(m, SERVICE_TAKEOVERS);
        for (int64_t q = s->last; q >= s->first; q--) {
            const note *n = &s->ring[q % RING];
            if (strcmp(n->job, e->job) || strcmp(n->kind, jobs_state_text(JOBS_QUEUED))) continue;
            service_observe(m, SERVICE_JOB_WAIT, (double)(e->at_ms - n->at_ms) / 1e3);
            break;
        }
    }
    cJSON *o = e->data && *e->data ? cJSON_Parse(e->data) : NULL;
    const cJSON *ratio = cJSON_GetObjectItemCaseSensitive(o, "speedup");
    if (cJSON_HasObjectItem(o, "lapsed")) service_count(m, SERVICE_LEASES_EXPIRED);
    if (cJSON_IsNumber(ratio)) service_observe(m, SERVICE_SPEEDUP, ratio->valuedouble);
    cJSON_Delete(o);
}

static void keep(service_stream *s, const jobs_event *e)
{
    note *n = &s->ring[e->seq % RING];
    free(n->text);
    *n = (note){.seq = e->seq, .last = is_last(e->kind), .text = text_of(e)};
    n->at_ms = e->at_ms;
    snprintf(n->job, sizeof n->job, "%s", e->job);
    snprintf(n->key, sizeof n->key, "%s", e->key);
    snprintf(n->kind, sizeof n->kind, "%s", e->kind);
    count(s, e);
    if (s->last < s->first || e->seq != s->last + 1) s->first = e->seq;
    s->last = e->seq;
    if (s->last - s->first >= RING) s->first = s->last - RING + 1;
    add_point(s, e);
}

static void wake(service_stream *s, bool news)
{
    int64_t now = (int64_t)service_now_ms();
    for (listener *l = s->listeners; l; l = l->next) {
        bool due = now - l->pinged >= PING_MS || (l->until >= 0 && now >= l->until);
        if (!l->asleep || (!news && !s->ended && !due)) continue;
        l->asleep = false;
        http_resume(l->connection);
    }
    for (waiter **p = &s->waiters; *p;) {
        waiter *w = *p;
        bool due = s->ended || w->c->wait_until <= now;
        for (int64_t q = w->since + 1 > s->first ? w->since + 1 : s->first; q <= s->last && !due; q++) due = !strcmp(s->ring[q % RING].job, w->job);
        if (!due) {
            p = &w->next;
            continue;
        }
        *p = w->next;
        w->c->timed_out = w->c->wait_until <= now || s->ended;
        w->c->waiting = false;
        service_resume(w->c);
        free(w);
    }
}

/* A new snapshot when there is news, and now and then for the workers' signs of life. */
static void look(service_stream *s, bool news)
{
    int64_t now = (int64_t)service_now_ms();
    s->dirty |= news || s->generation != cache_generation(s->app->cache);
    if (now - s->looked < (s->dirty ? FRESH_MS : PING_MS) && s->looked) return;
    if (now - s->trimmed > TRIM_MS) { /* what closed connections held goes back to the system */
        malloc_trim(0);
        s->trimmed = now;
    }
    s->generation = cache_generation(s->app->cache);
    s->dirty = false;
    s->looked = now;
    service_status_refresh(s->app);
}

static void *listen_to(void *arg)
{
    service_stream *s = arg;
    jobs *j = service_fleet_jobs(s->app->fleet);
    static jobs_event batch[BATCH];
    uint64_t turn = 0;
    int64_t seen = -1;
    while (!atomic_load(&s->stop)) {
        if (seen < 0) seen = jobs_last(j);
        turn = jobs_wait(j, turn, TURN_MS);
        int n = seen < 0 || atomic_load(&s->stop) ? 0 : jobs_events(j, NULL, seen, BATCH, batch);
        pthread_mutex_lock(&s->lock);
        if (s->last < s->first && seen >= 0) {
            s->first = seen + 1;
            s->last = seen;
        }
        for (int i = 0; i < n; i++) {
            keep(s, &batch[i]);
            seen = batch[i].seq;
            jobs_event_free(&batch[i]);
        }
        wake(s, n > 0);
        pthread_mutex_unlock(&s->lock);
        look(s, n > 0);
    }
    return NULL;
}

service_stream *service_stream_open(service_app *app)
{
    service_stream *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->app = app;
    s->first = 1;
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

void service_stream_start(service_stream *s) { s->running = pthread_create(&s->thread, NULL, listen_to, s) == 0; }

void service_stream_end(service_stream *s)
{
    pthread_mutex_lock(&s->lock);
    s->ended = true;
    wake(s, true);
    pthread_mutex_unlock(&s->lock);
}

void service_stream_close(service_stream *s)
{
    if (!s) return;
    atomic_store(&s->stop, true);
    if (s->running) {
        jobs_tell(service_fleet_jobs(s->app->fleet));
        pthread_join(s->thread, NULL);
    }
    for (int i = 0; i < RING; i++) free(s->ring[i].text);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

int64_t service_stream_last(service_stream *s)
{
    pthread_mutex_lock(&s->lock);
    int64_t last = s->last;
    pthread_mutex_unlock(&s->lock);
    return last;
}

cJSON *service_stream_curve(service_stream *s, const char *job)
{
    cJSON *list = NULL;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < CURVES && i < s->ncurves && !list; i++) {
        const curve *c = &s->curves[i];
        if (strcmp(c->job, job)) continue;
        list = cJSON_CreateArray();
        for (int k = 0; k < c->n; k++) {
            cJSON *p = cJSON_CreateArray();
            cJSON_AddItemToArray(p, cJSON_CreateNumber(c->at[k]));
            cJSON_AddItemToArray(p, cJSON_CreateNumber(c->us[k]));
            cJSON_AddItemToArray(list, p);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return list;
}

/* ---- streams ---- */
static bool wanted(listener *l, const char *job, const char *key)
{
    if (*l->job) return !strcmp(l->job, job);
    return l->who.who.sees_all || (*key && service_may_see(&l->who, key));
}

static void append(listener *l, const char *text)
{
    size_t n = strlen(text);
    char *p = realloc(l->text, l->n + n + 1);
    if (!p) return;
    memcpy(p + l->n, text, n + 1);
    l->text = p;
    l->n += n;
}

/* What the memory has no more. Without the lock: it asks the database. */
static void catch_up(listener *l, int64_t first)
{
    jobs *j = service_fleet_jobs(l->s->app->fleet);
    jobs_event batch[32];
    int n = jobs_events(j, *l->job ? l->job : NULL, l->seq, 32, batch);
    for (int i = 0; i < n; i++) {
        char *text = batch[i].seq < first ? text_of(&batch[i]) : NULL;
        if (text && wanted(l, batch[i].job, batch[i].key)) {
            append(l, text);
            l->over = *l->job && is_last(batch[i].kind);
        }
        if (batch[i].seq < first) l->seq = batch[i].seq;
        free(text);
        jobs_event_free(&batch[i]);
    }
    if (n < 32 && l->seq < first - 1) l->seq = first - 1;
}

/* With the lock: from the ring. The key of a note may need the store to judge it, so notes are copied in short runs. */
static int take(service_stream *s, listener *l, note out[8])
{
    int n = 0;
    for (int64_t q = l->seq + 1; q <= s->last && n < 8; q++) {
        out[n] = s->ring[q % RING];
        out[n].text = out[n].text ? strdup(out[n].text) : NULL;
        n++;
    }
    return n;
}

static void fill(listener *l)
{
    service_stream *s = l->s;
    note run[8];
    l->n = l->at = 0;
    pthread_mutex_lock(&s->lock);
    int64_t first = s->first;
    int n = l->seq + 1 >= first ? take(s, l, run) : -1;
    pthread_mutex_unlock(&s->lock);
    if (n < 0) catch_up(l, first);
    for (int i = 0; i < n; i++) {
        if (run[i].text && !l->over && wanted(l, run[i].job, run[i].key)) {
            append(l, run[i].text);
            l->over = *l->job && run[i].last;
        }
        l->seq = run[i].seq;
        free(run[i].text);
    }
}

static ssize_t give(void *state, uint64_t pos, char *to, size_t max)
{
    listener *l = state;
    service_stream *s = l->s;
    (void)pos;
    while (l->at == l->n) {
        int64_t before = l->seq, now = (int64_t)service_now_ms();
        if (l->over) return MHD_CONTENT_READER_END_OF_STREAM;
        fill(l);
        if (l->n || l->seq != before) continue;
        if (l->until >= 0 && now >= l->until) return MHD_CONTENT_READER_END_OF_STREAM;
        if (now - l->pinged >= PING_MS) {
            append(l, ": ping\n\n");
            l->pinged = now;
            continue;
        }
        pthread_mutex_lock(&s->lock);
        bool ended = s->ended, sleep = !ended && l->seq >= s->last;
        if (sleep) {
            l->asleep = true;
            MHD_suspend_connection(l->connection);
        }
        pthread_mutex_unlock(&s->lock);
        if (ended) return MHD_CONTENT_READER_END_OF_STREAM;
        if (sleep) return 0;
    }
    size_t n = l->n - l->at < max ? l->n - l->at : max;
    memcpy(to, l->text + l->at, n);
    l->at += n;
    l->pinged = (int64_t)service_now_ms();
    return (ssize_t)n;
}

static void drop(void *state)
{
    listener *l = state;
    pthread_mutex_lock(&l->s->lock);
    for (listener **p = &l->s->listeners; *p; p = &(*p)->next)
        if (*p == l) {
            *p = l->next;
            break;
        }
    pthread_mutex_unlock(&l->s->lock);
    free(l->text);
    free(l);
}

service_reply *service_stream_reply(service_call *c, const char *job, int64_t since, int seconds)
{
    service_stream *s = c->app->stream;
    listener *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    l->s = s;
    l->who.app = c->app;
    l->who.who = c->who;
    l->connection = c->connection;
    l->pinged = (int64_t)service_now_ms();
    l->until = seconds < 0 ? -1 : l->pinged + (int64_t)seconds * 1000;
    snprintf(l->job, sizeof l->job, "%s", job);
    append(l, "retry: 1000\n\n");
    pthread_mutex_lock(&s->lock);
    l->seq = since < 0 || since > s->last ? s->last : since;
    l->next = s->listeners;
    s->listeners = l;
    pthread_mutex_unlock(&s->lock);
    MHD_set_connection_option(c->connection, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    return service_reply_stream("text/event-stream", give, l, drop);
}

bool service_stream_wait(service_stream *s, service_call *c, const char *job, int64_t since)
{
    waiter *w = calloc(1, sizeof *w);
    if (!w) return false;
    w->c = c;
    w->since = since;
    snprintf(w->job, sizeof w->job, "%s", job);
    pthread_mutex_lock(&s->lock);
    bool may = !s->ended;
    if (may) {
        w->next = s->waiters;
        s->waiters = w;
        c->waiting = true;
        service_suspend(c);
        wake(s, false);
    } else {
        free(w);
    }
    pthread_mutex_unlock(&s->lock);
    return may;
}
