/* Measuring a machine: the loops' text through the compiler, a child that runs them, and what it says. */
#include "workers/measure.h"
#include "workers/child.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool fail(worker_error *e, const char *message)
{
    e->status = KILN_INTERNAL;
    snprintf(e->slug, sizeof e->slug, "measure-failed");
    snprintf(e->message, sizeof e->message, "%.2000s", message);
    return false;
}

/* The fastest way of multiplying a dtype is its peak. */
static void peak(worker_machine *m, const char *dtype, double gflops)
{
    int i = 0;
    while (i < m->npeaks && strcmp(m->peaks[i].dtype, dtype)) { i++; }
    if (i == MEASURE_ROWS || (i < m->npeaks && m->peaks[i].gflops >= gflops)) { return; }
    if (i == m->npeaks) { m->npeaks++; }
    snprintf(m->peaks[i].dtype, sizeof m->peaks[i].dtype, "%s", dtype);
    m->peaks[i].gflops = gflops;
}

/* One line of the child. */
static void take(worker_machine *m, const char *line)
{
    char name[8];
    double x, y;
    long long bytes;
    int ways = 0;
    if (sscanf(line, "peak %7s %lf", name, &x) == 2) {
        peak(m, name, x);
    } else if (sscanf(line, "level %7s %lld %lf %lf %d", name, &bytes, &x, &y, &ways) >= 4 && m->nlevels < MEASURE_LEVELS) {
        measure_level *l = &m->levels[m->nlevels++];
        snprintf(l->name, sizeof l->name, "%s", name);
        l->capacity_bytes = bytes, l->bandwidth_gbs = x, l->latency_ns = y, l->ways = ways > 0 ? ways : 0;
    }
    int row;
    if (sscanf(line, "step %d %lf %lf", &row, &x, &y) == 3 && row >= 0 && row < measure_nrows) {
        m->rows[row].interval = x, m->rows[row].latency = y;
    }
    sscanf(line, "clock %lf %d %d", &m->clock_ghz, &m->fma_per_cycle, &m->fma_latency);
    sscanf(line, "noise %lf", &m->noise);
    if (sscanf(line, "streams %lld", &bytes) == 1) { m->streaming_store_bytes = bytes; }
    sscanf(line, "vector %d", &m->vector_bytes);
}

static bool judge(const child_result *r, worker_machine *out, worker_error *e)
{
    const char *failed = strstr(r->out, "fail ");
    if (r->timed_out) { return fail(e, "measuring took too long"); }
    if (failed || r->exit_code != 0 || !strstr(r->out, "\ndone")) {
        return fail(e, failed ? failed : *r->err ? r->err : "the measuring child ended early");
    }
    for (const char *line = r->out; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        take(out, line);
    }
    return (out->npeaks && out->nlevels > 2 && out->clock_ghz > 0) || fail(e, "the measuring child left something out");
}

bool worker_measure(const worker_tools *t, const char *const *flags, int nflags, int units, worker_machine *out, worker_error *e)
{
    static const int deadline_ms = 60000;
    char dir[CHILD_DIR_BYTES], why[256] = "cannot write to the private directory", number[16], *source = malloc(1 << 17);
    const char *const *features;
    int n = worker_host_features(&features);
    worker_blob so = {{0}, NULL, 0};
    child_result r;
    child_limits limits = {.deadline_ms = deadline_ms, .cpu_seconds = deadline_ms / 1000 * units};
    size_t bytes = source ? measure_text(features, n, source, 1 << 17) : 0;
    *e = (worker_error){0};
    *out = (worker_machine){.units = units};
    bool ok =
        bytes ? worker_compile_c(t, (kiln_bytes){source, bytes}, flags, nflags, deadline_ms, &so, e) : fail(e, "no room for the text");
    free(source);
    if (!ok) { return false; }
    if (!child_dir_make(t, dir, why, sizeof why)) {
        free(so.p);
        return fail(e, why);
    }
    snprintf(number, sizeof number, "%d", units);
    ok = child_dir_put(dir, "kernel.so", so.p, so.n) || fail(e, why);
    if (ok) {
        ok = child_run(t, dir, (const char *const[]){"measure", number, NULL}, &limits, &r) ? judge(&r, out, e) : fail(e, r.why);
        child_result_free(&r);
    }
    free(so.p);
    child_dir_remove(dir);
    return ok;
}
