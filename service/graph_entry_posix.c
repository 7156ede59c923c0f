/* The model's function through the C compiler in a thread of its own: beside the kernels, not behind the last of them. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include "service/graph_flow.h"

struct graph_entry {
    service_app *app;
    kiln_bytes text;
    bool ok, runs; /* runs: the thread is to be joined */
    _Atomic bool unwanted;
    pthread_t thread;
    worker_blob so;
    worker_error error;
};

static bool unwanted(void *arg) { return atomic_load(&((graph_entry *)arg)->unwanted); }

static void *compile(void *arg)
{
    graph_entry *e = arg;
    worker_tools tools = e->app->tools;
    tools.stop = unwanted;
    tools.stop_user = e;
    e->ok = worker_compile_c(&tools, e->text, NULL, 0, (int)e->app->config.deadline_ms, &e->so, &e->error);
    return NULL;
}

graph_entry *graph_entry_begin(service_app *app, kiln_bytes text)
{
    graph_entry *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    e->app = app;
    e->text = text;
    e->ok = true;
    if (!*app->tools.cc) return e;
    e->runs = !pthread_create(&e->thread, NULL, compile, e);
    if (!e->runs) compile(e);
    return e;
}

bool graph_entry_end(graph_entry *e, worker_blob *so, worker_error *error)
{
    if (e->runs) pthread_join(e->thread, NULL);
    e->runs = false;
    *so = e->so;
    e->so = (worker_blob){0};
    *error = e->error;
    return e->ok;
}

void graph_entry_drop(graph_entry *e)
{
    worker_blob so;
    worker_error error;
    if (!e) return;
    atomic_store(&e->unwanted, true);
    graph_entry_end(e, &so, &error);
    free(so.p);
    free(e);
}
