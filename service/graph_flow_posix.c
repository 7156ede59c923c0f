/* The compile of a whole model: plan; ask for every kernel as any client does, as many at a time as keep the pool busy; link. A thread a model. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "cache/clock_posix.h"
#include "service/graph_flow.h"
#include "service/graph_job.h"
#include "workers/arena.h"

typedef struct graph {
    struct graph *next;
    service_graphs *all;
    service_graph_ask ask;
    enum service_graph_state state;
    bool cancel, over;       /* over: the thread may be joined */
    graph_job job;
    pthread_t thread;
    service_reply *problem;
    int nkernels, done, worst; /* worst: the first of the kernels that failed: its problem is told, in whatever order they end */
    graph_kernel *kernels;
    service_call *waiters; /* of GET with Prefer: wait, until it is over */
    int64_t created_ms, finished_ms;
} graph;

struct service_graphs {
    service_app *app;
    pthread_mutex_t lock;    /* taken inside the lock of the jobs (woken), never around it */
    pthread_cond_t changed;
    graph *list;             /* newest first */
    bool closing;
    pthread_t finder;        /* goes on with what a process left that ended */
};

/* One kernel that is waited for: a call like a client's, without a connection. */
typedef struct flight {
    service_call call;       /* first: woken() gets its address */
    graph *g;
    int kernel;
    bool busy, awake;
    char query[96];
} flight;

enum { FLIGHTS = 64 };

static void woken(service_call *c)
{
    flight *f = (flight *)c;
    service_graphs *s = f->g->all;
    pthread_mutex_lock(&s->lock);
    f->awake = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void set_state(graph *g, enum service_graph_state state)
{
    pthread_mutex_lock(&g->all->lock);
    g->state = state;
    pthread_mutex_unlock(&g->all->lock);
}

/* By a call to this process, by a wish that its row has, or because another has the row. */
static bool cancelled(graph *g)
{
    pthread_mutex_lock(&g->all->lock);
    bool c = g->cancel;
    pthread_mutex_unlock(&g->all->lock);
    return c || graph_job_stop(g->all->app, &g->job) != GRAPH_GO_ON;
}

static cJSON *describe(const graph *g);

/* Answers who waits: all of them, or those whose time is up. Under the lock. */
static void wake(graph *g, bool all)
{
    int64_t now = (int64_t)service_now_ms();
    for (service_call **p = &g->waiters; *p;) {
        service_call *c = *p;
        if (!all && c->wait_until > now) {
            p = &c->next_waiter;
            continue;
        }
        *p = c->next_waiter;
        c->waiting = false;
        service_resume(c);
    }
}

/* Progress of the row: kernels done of all. */
static void note(graph *g)
{
    pthread_mutex_lock(&g->all->lock);
    cJSON *o = describe(g);
    pthread_mutex_unlock(&g->all->lock);
    graph_job_note(g->all->app, &g->job, o);
    cJSON_Delete(o);
}

/* ---- plan ---- */
typedef struct plan_of {
    kiln_arena *arena;
    kiln_hw *hw;
    kiln_plan *plan;
    int64_t deadline;
} plan_of;

static service_reply *make_plan(graph *g, plan_of *p)
{
    const service_graph_ask *a = &g->ask;
    kiln_diag d = {.status = KILN_MEMORY};
    kiln_graph_options o = {0};
    kiln_graph *model = NULL;
    p->deadline = (int64_t)service_now_ms() + g->all->app->config.deadline_ms;
    p->arena = worker_arena(&p->deadline);
    if (!p->arena) return service_problem(503, "out-of-memory", "out of memory", NULL, NULL);
    kiln_bytes body = {a->body, a->n};
    kiln_status s = kiln_hw_parse(p->arena, (kiln_bytes){a->target_json, strlen(a->target_json)}, &p->hw, &d);
    if (s == KILN_OK) s = kiln_graph_options_read(p->arena, a->dims, a->binds, &o, &d);
    o.partial = a->partial;
    o.bytes = s == KILN_OK && kiln_hw_multiplies_bytes(p->hw);
    if (s == KILN_OK) s = a->onnx ? kiln_graph_onnx(p->arena, body, &o, &model, &d) : kiln_graph_json(p->arena, body, &o, &model, &d);
    if (s == KILN_OK) s = kiln_graph_plan(p->arena, model, p->hw, &p->plan, &d);
    if (s == KILN_OK) return NULL;
    d.status = s;
    return service_problem_diag(&d);
}

/* ---- kernels ---- */
static void end_call(flight *f)
{
    service_job_drop(f->call.app->jobs, f->call.job);
    service_ask_drop(f->call.ask);
    free(f->call.body);
    f->busy = false;
}

static const char *header_of(const service_reply *r, const char *name)
{
    for (int i = 0; i < r->nheaders; i++)
        if (!strcmp(r->headers[i].name, name)) return r->headers[i].value;
    return "";
}

/* Asks for a kernel; the answer when there is one at once. */
static service_reply *begin_call(flight *f, graph *g, const plan_of *p, int kernel)
{
    kiln_bytes text;
    if (kiln_program_text(p->arena, p->plan->kernels[kernel], &text) != KILN_OK) return NULL;
    snprintf(f->query, sizeof f->query, "target=%s", g->ask.target);
    f->g = g;
    f->kernel = kernel;
    f->busy = true;
    f->awake = false;
    f->call = (service_call){.app = g->all->app, .query = f->query, .content_type = "text/x-kex", .accept = "application/json",
                             .if_none_match = "", .prefer = "wait=60", .cache_control = "", .range = "", .if_range = "", .traceparent = "",
                             .who = g->ask.who, .n = text.n, .body = malloc(text.n + 1), .woken = woken, .began_ms = service_now_ms()};
    snprintf(f->call.method, sizeof f->call.method, "POST");
    if (!f->call.body) return service_problem(503, "out-of-memory", "out of memory", NULL, NULL);
    memcpy(f->call.body, text.p, text.n + 1);
    return service_compile(&f->call);
}

/* The problem of a kernel, with the step and the nodes that want it: their names, and the first one's place in the model. */
static service_reply *problem_of(const graph *g, const kiln_plan *p, int kernel, service_reply *r)
{
    cJSON *o = cJSON_Parse(r->body);
    const kiln_step *s = NULL;
    bool once = false;
    char text[600], clean[601];
    int at = 0;
    for (int i = 0; i < p->nsteps + p->nonce && !s; i++) {
        const kiln_step *x = i < p->nsteps ? &p->steps[i] : &p->once[i - p->nsteps];
        if (x->kernel == kernel) s = x, at = i < p->nsteps ? i : i - p->nsteps, once = i >= p->nsteps;
    }
    if (!cJSON_IsObject(o) || !s) {
        cJSON_Delete(o);
        return service_reply_ref(r);
    }
    const char *detail = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, "detail")), *nodes = s->nodes ? s->nodes : "";
    snprintf(text, sizeof text, "kernel %d of %d, step %d%s (%.200s): %.300s", kernel, g->nkernels, at, once ? " of what is done once" : "", nodes,
             detail ? detail : "");
    cJSON_DeleteItemFromObjectCaseSensitive(o, "detail");
    cJSON_DeleteItemFromObjectCaseSensitive(o, "pointer");
    cJSON_AddStringToObject(o, "detail", service_clean(text, clean, sizeof clean));
    if (s->place) cJSON_AddStringToObject(o, "pointer", s->place);
    cJSON_AddStringToObject(o, "nodes", nodes);
    cJSON_AddNumberToObject(o, "step", at);
    cJSON_AddStringToObject(o, "kernel", g->kernels[kernel].key);
    service_reply *named = service_problem_json(r->status, o);
    return named ? named : service_reply_ref(r);
}

/* true: this kernel is over, well or not. */
static bool take_answer(graph *g, const kiln_plan *p, flight *f, service_reply *r)
{
    graph_kernel *k = &g->kernels[f->kernel];
    if (r->status == 202 || r->status == 503 || r->status == 429) return false;
    pthread_mutex_lock(&g->all->lock);
    if (r->status == 200 && strcmp(header_of(r, "Kiln-Key"), k->key)) {
        service_reply_drop(g->problem);
        g->problem = service_problem(500, "internal", "a kernel came back under another key", k->key, NULL);
    } else if (r->status != 200 && (!g->problem || f->kernel < g->worst)) {
        service_reply_drop(g->problem);
        g->problem = problem_of(g, p, f->kernel, r);
        g->worst = f->kernel;
    } else if (r->status == 200) {
        snprintf(k->cache_status, sizeof k->cache_status, "%s", header_of(r, "Cache-Status"));
        snprintf(k->verification, sizeof k->verification, "%s", header_of(r, "Kiln-Verification"));
        const char *predicted = strstr(r->body, "\"predicted_us\":");
        k->predicted_us = predicted ? strtod(predicted + 15, NULL) : 0;
        k->ms = service_now_ms() - k->began_ms;
        k->done = true;
        g->done++;
    }
    pthread_mutex_unlock(&g->all->lock);
    return true;
}

/* Waits for a change, 200 ms at most; the number of a flight that has an answer, or -1. */
static int wait_any(graph *g, flight *flights, int n)
{
    struct timespec t = cache_after(200);
    int found = -1;
    pthread_mutex_lock(&g->all->lock);
    for (int turn = 0; turn < 2 && found < 0; turn++) {
        for (int i = 0; i < n && found < 0; i++)
            if (flights[i].busy && flights[i].awake) found = i;
        if (found < 0 && !turn) cache_cond_until(&g->all->changed, &g->all->lock, &t);
    }
    pthread_mutex_unlock(&g->all->lock);
    return found;
}

static void compile_kernels(graph *g, const plan_of *p)
{
    service_app *app = g->all->app;
    int n = app->cpus * 2 < FLIGHTS ? app->cpus * 2 : FLIGHTS, next = 0, flying = 0, nagain = 0;
    int again[FLIGHTS]; /* kernels whose wait ended without an answer */
    flight *flights = calloc((size_t)n, sizeof *flights);
    if (!flights) {
        g->problem = service_problem(503, "out-of-memory", "out of memory", NULL, NULL);
        return;
    }
    for (;;) {
        int slot = -1;
        bool more = (next < g->nkernels || nagain) && !g->problem && !cancelled(g);
        if (!more && !flying) break;
        for (int i = 0; more && i < n; i++)
            if (!flights[i].busy) slot = i;
        service_reply *r = NULL;
        if (slot >= 0) {
            int kernel = nagain ? again[--nagain] : next++;
            if (g->kernels[kernel].began_ms == 0) g->kernels[kernel].began_ms = service_now_ms();
            r = begin_call(&flights[slot], g, p, kernel);
            flying++;
            if (!r) continue; /* it waits */
        } else {
            slot = wait_any(g, flights, n);
            if (slot < 0) continue;
            r = service_compile_resume(&flights[slot].call);
        }
        if (!r) r = service_problem(503, "out-of-memory", "out of memory", NULL, NULL);
        if (take_answer(g, p->plan, &flights[slot], r)) {
            note(g);
        } else {
            again[nagain++] = flights[slot].kernel;
            if (r->status != 202) nanosleep(&(struct timespec){0, 100000000}, NULL);
        }
        service_reply_drop(r);
        end_call(&flights[slot]);
        flying--;
    }
    free(flights);
}

/* ---- the thread ---- */
static void *run(void *arg)
{
    graph *g = arg;
    plan_of p = {0};
    graph_entry *entry = NULL;
    service_reply *problem = make_plan(g, &p);
    pthread_mutex_lock(&g->all->lock);
    if (!problem && p.plan->nkernels) {
        g->kernels = calloc((size_t)p.plan->nkernels, sizeof *g->kernels);
        g->nkernels = g->kernels ? p.plan->nkernels : 0;
        for (int i = 0; i < g->nkernels; i++) snprintf(g->kernels[i].key, sizeof g->kernels[i].key, "%s", p.plan->keys[i].kernel);
        if (!g->kernels) problem = service_problem(503, "out-of-memory", "out of memory", NULL, NULL);
    }
    g->problem = problem;
    g->state = SERVICE_GRAPH_COMPILING;
    pthread_mutex_unlock(&g->all->lock);
    note(g);
    if (!g->problem && strcmp(kiln_hw_language(p.hw), "cuda")) entry = graph_entry_begin(g->all->app, p.plan->source);
    if (!g->problem) compile_kernels(g, &p);
    bool stopped = cancelled(g);
    if (!g->problem && !stopped) {
        set_state(g, SERVICE_GRAPH_LINKING);
        problem = graph_link(g->all->app, &g->ask, p.plan, p.hw, g->kernels, entry);
    } else {
        problem = NULL;
    }
    graph_entry_drop(entry);
    kiln_arena_close(p.arena);
    pthread_mutex_lock(&g->all->lock);
    if (problem) g->problem = problem;
    enum service_graph_state before = g->state, end = g->problem ? SERVICE_GRAPH_FAILED : stopped ? SERVICE_GRAPH_CANCELLED : SERVICE_GRAPH_SUCCEEDED;
    g->state = end;
    g->finished_ms = service_unix_ms();
    cJSON *last = describe(g);
    g->state = before; /* until its row says so too */
    bool closing = g->all->closing;
    pthread_mutex_unlock(&g->all->lock);
    graph_job_end(g->all->app, &g->job, g->ask.key, last, closing && stopped);
    cJSON_Delete(last);
    pthread_mutex_lock(&g->all->lock);
    g->state = end;
    g->over = true;
    free(g->ask.body);
    free(g->ask.target_json);
    g->ask.body = g->ask.target_json = NULL;
    wake(g, true);
    pthread_cond_broadcast(&g->all->changed);
    pthread_mutex_unlock(&g->all->lock);
    return NULL;
}

static cJSON *describe(const graph *g)
{
    static const char *const states[] = {"planning", "compiling", "linking", "succeeded", "failed", "cancelled"};
    char text[100];
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "key", g->ask.key);
    cJSON_AddStringToObject(o, "state", states[g->state]);
    snprintf(text, sizeof text, "/v1/graphs/%s", g->ask.key);
    cJSON_AddStringToObject(o, "href", text);
    if (*g->job.id) cJSON_AddStringToObject(o, "job", g->job.id);
    snprintf(text, sizeof text, "/v1/kernels/%s", g->ask.key);
    if (g->state == SERVICE_GRAPH_SUCCEEDED) cJSON_AddStringToObject(o, "kernel", text);
    cJSON_AddNumberToObject(o, "created_ms", (double)g->created_ms);
    if (g->finished_ms) cJSON_AddNumberToObject(o, "finished_ms", (double)g->finished_ms);
    cJSON_AddNumberToObject(o, "total", g->nkernels);
    cJSON_AddNumberToObject(o, "done", g->done);
    cJSON *list = cJSON_AddArrayToObject(o, "kernels");
    for (int i = 0; i < g->nkernels; i++) {
        const graph_kernel *k = &g->kernels[i];
        cJSON *e = cJSON_CreateObject();
        cJSON_AddItemToArray(list, e);
        cJSON_AddStringToObject(e, "key", k->key);
        if (!k->done) continue;
        cJSON_AddStringToObject(e, "cache_status", k->cache_status);
        cJSON_AddStringToObject(e, "verification", k->verification);
        cJSON_AddNumberToObject(e, "ms", (double)(int64_t)(k->ms * 1000) / 1000);
    }
    if (g->problem && g->state == SERVICE_GRAPH_FAILED) cJSON_AddItemToObject(o, "problem", cJSON_Parse(g->problem->body));
    return o;
}

/* ---- the table ---- */
static void forget(graph *g)
{
    pthread_join(g->thread, NULL);
    service_reply_drop(g->problem);
    free(g->kernels);
    free(g);
}

static graph *find(service_graphs *s, const char *key)
{
    for (graph *g = s->list; g; g = g->next)
        if (!strcmp(g->ask.key, key)) return g;
    return NULL;
}

/* Takes out the one of that key that is over, and the oldest of those that are when there are many. */
static graph *sweep(service_graphs *s, const char *key)
{
    int n = 0;
    graph **last = NULL;
    for (graph **p = &s->list; *p; p = &(*p)->next, n++) {
        if (!(*p)->over) continue;
        last = p;
        if (strcmp((*p)->ask.key, key)) continue;
        n = SERVICE_GRAPHS_KEPT;
        break;
    }
    if (n < SERVICE_GRAPHS_KEPT || !last) return NULL;
    graph *g = *last;
    *last = g->next;
    return g;
}

static int live(const service_graphs *s)
{
    int n = 0;
    for (const graph *g = s->list; g; g = g->next) n += !g->over;
    return n;
}

static void unlink_graph(service_graphs *s, graph *g)
{
    for (graph **p = &s->list; *p; p = &(*p)->next) {
        if (*p != g) continue;
        *p = g->next;
        wake(g, true); /* another process has it */
        return;
    }
}

/* A graph of that ask in the list, without its thread; NULL: there is no room. Under the lock. */
static graph *enlist(service_graphs *s, const service_graph_ask *ask)
{
    graph *g = live(s) < SERVICE_GRAPHS && !s->closing ? calloc(1, sizeof *g) : NULL;
    if (!g) return NULL;
    *g = (graph){.next = s->list, .all = s, .ask = *ask, .created_ms = service_unix_ms()};
    return s->list = g;
}

/* Its thread starts; false: it is out of the list again, and what it owned is gone. */
static bool launch(service_graphs *s, graph *g)
{
    pthread_mutex_lock(&s->lock);
    bool ok = !s->closing && !pthread_create(&g->thread, NULL, run, g);
    if (!ok) unlink_graph(s, g);
    pthread_mutex_unlock(&s->lock);
    if (ok) return true;
    cJSON *last = describe(g);
    graph_job_end(s->app, &g->job, g->ask.key, last, true);
    cJSON_Delete(last);
    free(g->ask.body);
    free(g->ask.target_json);
    free(g);
    return false;
}

bool service_graphs_start(service_graphs *s, service_graph_ask *ask)
{
    pthread_mutex_lock(&s->lock);
    graph *old = sweep(s, ask->key), *g = find(s, ask->key);
    bool joins = g != NULL;
    if (!joins) g = enlist(s, ask);
    pthread_mutex_unlock(&s->lock);
    if (old) forget(old);
    if (!g) return false;
    bool follows = !joins && graph_job_lead(s->app, ask, &g->job) == SERVICE_FOLLOW; /* the row answers for another process */
    if (follows) {
        pthread_mutex_lock(&s->lock);
        unlink_graph(s, g);
        pthread_mutex_unlock(&s->lock);
        free(g);
    }
    if (!joins && !follows && !launch(s, g)) ask->body = ask->target_json = NULL;
    else if (!joins && !follows) return true;
    free(ask->body);
    free(ask->target_json);
    ask->body = ask->target_json = NULL;
    return joins || follows;
}

bool service_graphs_asker(service_graphs *s, const char *key, char tenant[64])
{
    pthread_mutex_lock(&s->lock);
    const graph *g = find(s, key);
    if (g) snprintf(tenant, 64, "%s", g->ask.who.tenant);
    pthread_mutex_unlock(&s->lock);
    return g || graph_job_asker(s->app, key, tenant);
}

bool service_graphs_cancel(service_graphs *s, const char *key)
{
    bool row = graph_job_cancel(s->app, key);
    pthread_mutex_lock(&s->lock);
    graph *g = find(s, key);
    if (g) g->cancel = true;
    pthread_mutex_unlock(&s->lock);
    return g || row;
}

bool service_graphs_wait(service_graphs *s, service_call *c, const char *key)
{
    pthread_mutex_lock(&s->lock);
    graph *g = find(s, key);
    bool waits = g && !g->over && !atomic_load(&s->app->draining);
    if (waits) {
        c->waiting = true;
        c->next_waiter = g->waiters;
        g->waiters = c;
        service_suspend(c);
    }
    pthread_mutex_unlock(&s->lock);
    return waits;
}

void service_graphs_wake_all(service_graphs *s)
{
    pthread_mutex_lock(&s->lock);
    for (graph *g = s->list; g; g = g->next) wake(g, true);
    pthread_mutex_unlock(&s->lock);
}

/* Looks once a second for models whose process ended before they were done, and for waits that are over. */
static void *find_left(void *arg)
{
    service_graphs *s = arg;
    struct timespec t;
    service_graph_ask ask;
    graph_job job;
    pthread_mutex_lock(&s->lock);
    while (!s->closing) {
        t = cache_after(1000);
        while (!s->closing && !cache_cond_until(&s->changed, &s->lock, &t)) {}
        for (graph *g = s->list; g; g = g->next) wake(g, false);
        bool room = atomic_load(&s->app->ready) && !s->closing && live(s) < SERVICE_GRAPHS && !atomic_load(&s->app->draining);
        pthread_mutex_unlock(&s->lock);
        bool found = room && graph_job_next(s->app, &ask, &job);
        pthread_mutex_lock(&s->lock);
        if (!found) continue;
        graph *old = sweep(s, ask.key), *g = enlist(s, &ask);
        if (g) g->job = job;
        pthread_mutex_unlock(&s->lock);
        if (old) forget(old);
        if (g && launch(s, g)) service_log("info", "model", "%s goes on", g->job.id);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

service_graphs *service_graphs_open(service_app *app)
{
    service_graphs *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->app = app;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    if (!pthread_create(&s->finder, NULL, find_left, s)) return s;
    free(s);
    return NULL;
}

void service_graphs_close(service_graphs *s)
{
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    for (graph *g = s->list; g; g = g->next) g->cancel = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->finder, NULL);
    while (s->list) {
        graph *g = s->list;
        s->list = g->next;
        forget(g);
    }
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    free(s);
}

cJSON *service_graphs_json(service_graphs *s, const char *key)
{
    pthread_mutex_lock(&s->lock);
    const graph *g = find(s, key);
    bool over = !g || g->over; /* another process may have it by now */
    cJSON *here = g ? describe(g) : NULL;
    pthread_mutex_unlock(&s->lock);
    cJSON *row = over ? graph_job_json(s->app, key) : NULL;
    if (row) cJSON_Delete(here);
    return row ? row : here;
}
