/* One group's candidates in one process: each checked, then all timed in turns, so that what the device does meanwhile meets them alike. */
#include "workers/gpu/gpu.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS_MAX = 32, FUNCTION_LOCAL = 3, FUNCTION_REGISTERS = 4, CAPTURED = 64, RELAXED = 2 };
typedef struct state {
    void *module;
    bool live; /* right, and to be timed */
    gpu_verdict verdict;
    int reps, captured; /* launches of a batch; of them in `graph`, 0: there is none */
    void *graph;
    double us[ROUNDS_MAX];
} state;

static void at(const gpu_options *o, const gpu_kernel *k, const char *phase)
{
    fprintf(o->say, "at %s %s\n", k->id, phase);
    fflush(o->say);
}

static void *load_file(const gpu_bundle *b, const char *file)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", b->dir, file);
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    long n = ftell(f);
    rewind(f);
    char *p = n >= 0 ? calloc(1, (size_t)n + 1) : NULL; /* a NUL behind: PTX is text */
    if (p && fread(p, 1, (size_t)n, f) != (size_t)n) {
        free(p);
        p = NULL;
    }
    fclose(f);
    return p;
}

static void put_head(const gpu_device *d, const gpu_options *o)
{
    fprintf(o->say,
            "line {\"runner\":1,\"device\":\"%s\",\"compute_capability\":\"%d.%d\",\"driver\":%d,\"units\":%d,\"l2_bytes\":%d,"
            "\"clock_khz\":%d,\"memory_clock_khz\":%d}\n",
            d->name, d->major, d->minor, d->driver, d->units, d->l2_bytes, d->clock_khz, d->memory_khz);
    fflush(o->say);
}

/* A result's common part: what it is of, on what, how it stands. The record is complete in itself, so that a file can be cut anywhere. */
static void put_open(const gpu_device *d, const gpu_group *g, const gpu_kernel *k, const gpu_options *o, const char *status)
{
    fprintf(o->say,
            "line {\"kernel\":\"%s\",\"group\":\"%s\",\"key\":\"%s\",\"target\":\"%s\",\"rank\":%d,\"status\":\"%s\",\"device\":\"%s\","
            "\"compute_capability\":\"%d.%d\",\"driver\":%d,\"clock_khz\":%d",
            k->id, g->id, g->key, g->target, k->rank, status, d->name, d->major, d->minor, d->driver, d->clock_khz);
}

static void put_failed(const gpu_device *d, const gpu_group *g, const gpu_kernel *k, const gpu_options *o, const char *status,
                       const char *detail)
{
    put_open(d, g, k, o, status);
    fputs(",\"detail\":", o->say);
    fprintf(o->say, "\"");
    for (const char *p = detail; *p; p++)
        if (*p >= 32 && *p != '"' && *p != '\\') fputc(*p, o->say);
    fputs("\"}\n", o->say);
    fflush(o->say);
}

static int by_value(const void *x, const void *y)
{
    return (*(const double *)x > *(const double *)y) - (*(const double *)x < *(const double *)y);
}

static void put_times(const gpu_device *d, const gpu_group *g, const gpu_kernel *k, const gpu_options *o, state *s)
{
    int registers = 0, local = 0;
    for (int i = 0; i < k->nsteps; i++) {
        int x = 0, y = 0;
        d->cu.FuncGetAttribute(&x, FUNCTION_REGISTERS, k->steps[i].function);
        d->cu.FuncGetAttribute(&y, FUNCTION_LOCAL, k->steps[i].function);
        if (x > registers) registers = x;
        if (y > local) local = y;
    }
    qsort(s->us, (size_t)o->rounds, sizeof *s->us, by_value);
    double median = s->us[o->rounds / 2];
    put_open(d, g, k, o, "ok");
    fprintf(o->say, ",\"us\":%.4f,\"us_min\":%.4f,\"us_max\":%.4f,\"rounds\":%d,\"reps\":%d,\"captured\":%d", median, s->us[0],
            s->us[o->rounds - 1], o->rounds, s->reps, s->captured);
    fprintf(o->say, ",\"sets\":%d,\"predicted_us\":%.4f", g->nbuffers ? g->buffers[0].nsets : 0, k->predicted_us);
    if (median > 0) fprintf(o->say, ",\"tflops\":%.3f,\"gbs\":%.1f", k->flops / median / 1e6, k->bytes / median / 1e3);
    fprintf(o->say, ",\"registers\":%d,\"local_bytes\":%d,\"checked\":%lld,\"max_error\":%.4g,\"deterministic\":%s,\"program\":", registers,
            local, (long long)s->verdict.checked, isfinite(s->verdict.max_error) ? s->verdict.max_error : 1e30,
            s->verdict.deterministic ? "true" : "false");
    gpu_put_json(o->say, g->program);
    fputs(",\"trace\":", o->say);
    gpu_put_json(o->say, k->trace);
    fputs("}\n", o->say);
    fflush(o->say);
}

/* Short launches are put into a graph, so that the device does not wait for the host between them: a call of the driver takes some microseconds.
 * Where the driver has no graphs, or refuses this one, they go one by one. */
static void capture(gpu_device *d, const gpu_group *g, const gpu_kernel *k, state *s)
{
    const gpu_driver *cu = &d->cu;
    void *graph = NULL;
    bool captures = cu->StreamBeginCapture && cu->StreamEndCapture;
    bool graphs = cu->GraphInstantiate && cu->GraphLaunch && cu->GraphDestroy && cu->GraphExecDestroy;
    if (!captures || !graphs || s->reps < CAPTURED || cu->StreamBeginCapture(d->stream, RELAXED)) return;
    int r = 0;
    for (int i = 0; i < CAPTURED && !r; i++) r = gpu_launch(d, g, k, i);
    if (cu->StreamEndCapture(d->stream, &graph) || r || cu->GraphInstantiate(&s->graph, graph, 0)) s->graph = NULL;
    if (graph) cu->GraphDestroy(graph);
    if (!s->graph) return;
    s->captured = CAPTURED;
    s->reps -= s->reps % CAPTURED;
}

/* Microseconds of one launch, over `reps` of them that walk through the sets. */
static int batch(gpu_device *d, const gpu_group *g, const gpu_kernel *k, const state *s, int reps, int from, double *us)
{
    float ms = 0;
    int r = d->cu.EventRecord(d->event[0], d->stream);
    for (int i = 0; i < reps && !r && s->graph; i += s->captured) r = d->cu.GraphLaunch(s->graph, d->stream);
    for (int i = 0; i < reps && !r && !s->graph; i++) r = gpu_launch(d, g, k, from + i);
    if (!r) r = d->cu.EventRecord(d->event[1], d->stream);
    if (!r) r = d->cu.EventSynchronize(d->event[1]);
    if (!r) r = d->cu.EventElapsedTime(&ms, d->event[0], d->event[1]);
    *us = (double)ms * 1e3 / reps;
    return r;
}

/* 0: go on (s->live says whether with this kernel), else the context is broken. */
static int prepare(const gpu_bundle *b, gpu_device *d, gpu_group *g, gpu_kernel *k, const gpu_options *o, state *s)
{
    char why[256] = "";
    at(o, k, "load");
    void *image = load_file(b, b->modules[k->module].file);
    int r = image ? d->cu.ModuleLoadData(&s->module, image) : -1;
    free(image);
    if (r) {
        s->module = NULL;
        put_failed(d, g, k, o, "load-failed", r < 0 ? "the module's file cannot be read" : gpu_error(d, r));
        return 0;
    }
    if (gpu_functions(d, k, s->module, why, sizeof why)) {
        put_failed(d, g, k, o, "load-failed", why);
        return 0;
    }
    at(o, k, "check");
    r = gpu_verify(d, g, k, &s->verdict);
    if (r)
        put_failed(d, g, k, o, "launch-failed", gpu_error(d, r));
    else if (!s->verdict.ok)
        put_failed(d, g, k, o, "wrong", s->verdict.detail);
    else
        s->live = true;
    return r;
}

static int time_all(gpu_device *d, gpu_group *g, const gpu_options *o, state *s)
{
    int r = 0;
    for (int round = -1; round < o->rounds && !r; round++) {
        for (int i = 0; i < g->nkernels && !r; i++) {
            if (!s[i].live) continue;
            double us;
            at(o, &g->kernels[i], round < 0 ? "warm" : "time");
            if (round >= 0) {
                r = batch(d, g, &g->kernels[i], &s[i], s[i].reps, round * s[i].reps, &s[i].us[round]);
            } else { /* how many fill a batch */
                r = batch(d, g, &g->kernels[i], &s[i], 2, 0, &us);
                if (!r) r = batch(d, g, &g->kernels[i], &s[i], 4, 0, &us);
                double n = us > 0 ? o->batch_ms * 1e3 / us : 2000;
                s[i].reps = n < 4 ? 4 : n > 2000 ? 2000 : (int)n;
                if (!r) capture(d, g, &g->kernels[i], &s[i]);
                if (!r && s[i].graph) r = batch(d, g, &g->kernels[i], &s[i], s[i].captured, 0, &us);
            }
            if (r) put_failed(d, g, &g->kernels[i], o, "launch-failed", gpu_error(d, r));
        }
    }
    return r;
}

static int run(const gpu_bundle *b, gpu_device *d, gpu_group *g, const gpu_options *o, state *s)
{
    int r = gpu_buffers_make(d, g);
    if (!r && g->nchecks) r = gpu_fill(d, g, &g->checks[0].source);
    for (int i = 0; i < g->nkernels && r; i++)
        if (!o->skip[i]) put_failed(d, g, &g->kernels[i], o, "no-memory", gpu_error(d, r));
    if (r) return 0; /* nothing of the group can run, and nothing is broken */
    for (int i = 0; i < g->nkernels && !r; i++)
        if (!o->skip[i]) r = prepare(b, d, g, &g->kernels[i], o, &s[i]);
    if (!r) r = time_all(d, g, o, s);
    for (int i = 0; i < g->nkernels && !r; i++)
        if (s[i].live) put_times(d, g, &g->kernels[i], o, &s[i]);
    return r;
}

int gpu_run_group(const gpu_bundle *b, gpu_group *g, const gpu_options *o)
{
    gpu_device d;
    char why[300];
    state *s = calloc((size_t)g->nkernels + 1, sizeof *s);
    if (!s || o->rounds < 1 || o->rounds > ROUNDS_MAX) {
        free(s);
        return 2;
    }
    if (!gpu_device_open(&d, why, sizeof why)) {
        fprintf(o->say, "no-device %s\n", why);
        free(s);
        return 3;
    }
    if (o->first) put_head(&d, o);
    int r = run(b, &d, g, o, s);
    if (!r) {
        gpu_buffers_free(&d, g);
        for (int i = 0; i < g->nkernels; i++) {
            if (s[i].graph) d.cu.GraphExecDestroy(s[i].graph);
            if (s[i].module) d.cu.ModuleUnload(s[i].module);
        }
        gpu_device_close(&d);
        fprintf(o->say, "done\n");
    }
    free(s);
    return r ? 4 : 0;
}
