/* kiln probe: measures this machine and writes its hardware description: that of the hwspecs folder which fits its features, with what was
 * measured in the place of what was assumed. */
#include "api/cli/cli.h"
#include "api/cli/pool.h"
#include "workers/measure.h"
#include "workers/workers.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct meeting { _Atomic int arrived; int wanted; } meeting;

/* Every thread takes a task and waits for the others to have theirs. */
static void meet(void *closure, int64_t index, int32_t worker)
{
    meeting *m = closure;
    (void)index, (void)worker;
    m->arrived++;
    while (m->arrived < m->wanted) {}
}

/* Microseconds of one fork and join of the pool that kernels get from `kiln run`: the best of nine runs of many. */
static double fork_join_us(int units)
{
    enum { ROUNDS = 9, CALLS = 500 };
    struct kiln_pool *p = pool_open(units);
    double best = 1e9;
    for (int r = 0; p && r < ROUNDS; r++) {
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        for (int i = 0; i < CALLS; i++) {
            meeting m = {.wanted = p->nthreads};
            p->parallel_for(p->ctx, p->nthreads, meet, &m);
        }
        clock_gettime(CLOCK_MONOTONIC, &b);
        double us = ((double)(b.tv_sec - a.tv_sec) * 1e6 + (double)(b.tv_nsec - a.tv_nsec) / 1e3) / CALLS;
        if (us < best) best = us;
    }
    pool_close(p);
    return p && best > 0.01 ? best : 0.01;
}

static void number(cJSON *o, const char *name, double value)
{
    cJSON_DeleteItemFromObjectCaseSensitive(o, name);
    char text[32];
    snprintf(text, sizeof text, value == (double)(int64_t)value ? "%.0f" : "%.4g", value); /* four digits: more were not measured */
    cJSON_AddItemToObject(o, name, cJSON_CreateRaw(text));
}

static void text(cJSON *o, const char *name, const char *value)
{
    cJSON_DeleteItemFromObjectCaseSensitive(o, name);
    cJSON_AddStringToObject(o, name, value);
}

static cJSON *levels(const worker_machine *m, int registers)
{
    cJSON *list = cJSON_CreateArray();
    for (int i = m->nlevels - 1; i >= 0; i--) { /* far to near */
        const measure_level *l = &m->levels[i];
        cJSON *o = cJSON_CreateObject();
        text(o, "name", l->name);
        number(o, "capacity_bytes", (double)l->capacity_bytes);
        number(o, "bandwidth_gbs", l->bandwidth_gbs);
        number(o, "transaction_bytes", 64);
        if (!strcmp(l->name, "l3")) number(o, "shared_by_units", m->units);
        if (!strcmp(l->name, "dram")) number(o, "shared_by_units", 65536);
        number(o, "latency_ns", l->latency_ns);
        if (l->ways) number(o, "ways", l->ways);
        cJSON_AddItemToArray(list, o);
    }
    cJSON *reg = cJSON_CreateObject();
    text(reg, "name", "reg");
    number(reg, "capacity_bytes", (double)registers * m->vector_bytes);
    number(reg, "bandwidth_gbs", 0);
    number(reg, "transaction_bytes", m->vector_bytes);
    cJSON_AddItemToArray(list, reg);
    return list;
}

/* A narrow dtype that is multiplied no faster than f32 is widened instead, so it has no peak of its own. */
static cJSON *peaks(const worker_machine *m)
{
    cJSON *o = cJSON_CreateObject();
    double f32 = 0;
    for (int i = 0; i < m->npeaks; i++) {
        if (!strcmp(m->peaks[i].dtype, "f32")) f32 = m->peaks[i].gflops;
    }
    for (int i = 0; i < m->npeaks; i++) {
        bool wide = !strcmp(m->peaks[i].dtype, "f32") || !strcmp(m->peaks[i].dtype, "f64");
        if (wide || m->peaks[i].gflops > f32) number(o, m->peaks[i].dtype, m->peaks[i].gflops);
    }
    return o;
}

/* Instructions that were measured have the pace and the latency they have here. */
static void instructions(cJSON *list, const worker_machine *m)
{
    cJSON *x;
    cJSON_ArrayForEach(x, list) {
        const char *spelling = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(x, "spelling"));
        for (int i = 0; i < measure_nrows && spelling; i++) {
            if (strcmp(measure_rows[i].spelling, spelling) || m->rows[i].interval <= 0) continue;
            number(x, "interval", m->rows[i].interval);
            number(x, "latency", m->rows[i].latency);
        }
    }
}

/* The same multiply-add over half a vector starts about twice as often, as the units are half as wide. */
static bool halves_vectors(const worker_machine *m)
{
    const double twice = 1.6;
    double whole = 0, half = 0; /* cycles from start to start */
    for (int i = 0; i < measure_nrows; i++) {
        if (strcmp(measure_rows[i].dtype, "f32")) continue;
        if (!strcmp(measure_rows[i].registers, "zmm")) whole = m->rows[i].interval;
        if (!strcmp(measure_rows[i].registers, "ymm")) half = m->rows[i].interval;
    }
    return half > 0 && whole > twice * half;
}

static void describe(cJSON *o, const char *id, const worker_machine *m, double fork_us)
{
    const char *const *features;
    int n = worker_host_features(&features), registers = cJSON_GetObjectItemCaseSensitive(o, "vector_registers")->valueint;
    text(o, "id", id);
    text(o, "name", "measured by kiln probe");
    number(o, "clock_ghz", m->clock_ghz);
    number(o, "units", m->units);
    number(o, "rates_for_units", m->units);
    number(o, "fma_latency", m->fma_latency);
    number(o, "fma_per_cycle", m->fma_per_cycle);
    number(o, "launch_us", fork_us);
    cJSON_DeleteItemFromObjectCaseSensitive(o, "streaming_store_bytes");
    if (m->streaming_store_bytes) number(o, "streaming_store_bytes", (double)m->streaming_store_bytes);
    number(o, "halves_vectors", halves_vectors(m));
    cJSON_DeleteItemFromObjectCaseSensitive(o, "levels");
    cJSON_AddItemToObject(o, "levels", levels(m, registers));
    cJSON_DeleteItemFromObjectCaseSensitive(o, "peaks");
    cJSON_AddItemToObject(o, "peaks", peaks(m));
    instructions(cJSON_GetObjectItemCaseSensitive(o, "intrinsics"), m);
    cJSON_AddItemToObject(o, "x-cpuid", cJSON_CreateStringArray(features, n)); /* all that was found, needed by the code or not */
}

static int write_description(struct cli *c, cJSON *o)
{
    kiln_hw *hw;
    kiln_diag d = {0};
    char *out = cJSON_Print(o);
    if (!out) return cli_fail(SOFTWARE, "out of memory");
    int status = kiln_hw_parse(c->arena, (kiln_bytes){out, strlen(out)}, &hw, &d) ? cli_diag(&d) : OK;
    size_t n = strlen(out);
    out[n] = '\n'; /* in the place of the terminator: cli_write takes a length */
    if (status == OK) status = cli_write(c, out, n + 1);
    free(out);
    return status;
}

int cmd_probe(struct cli *c)
{
    worker_tools t;
    worker_machine m;
    worker_error e;
    size_t n;
    const char *const *flags;
    const char *id = c->nargs ? c->args[0] : "this-machine";
    long units = sysconf(_SC_NPROCESSORS_ONLN);
    if (c->nargs > 1) return cli_fail(USAGE, "usage: kiln probe [ID] [-o FILE]");
    kiln_hw *hw = cli_hw(c, "host");
    char *base = hw ? cli_hw_text(c, hw, &n) : NULL;
    if (!base) return DATA;
    workers_find_tools(c->exe_dir, &t);
    int nflags = kiln_hw_flags(hw, &flags);
    if (!worker_measure(&t, flags, nflags, units > 0 ? (int)units : 1, &m, &e)) {
        free(base);
        return cli_fail(UNAVAILABLE, "%s", e.message);
    }
    if (m.noise > 1.1)
        fprintf(stderr, "kiln: rounds differed by %.0f%%: something else runs here, measure again when it does not\n", (m.noise - 1) * 100);
    cJSON *o = cJSON_ParseWithLength(base, n);
    free(base);
    if (!o) return cli_fail(DATA, "%s cannot be read", kiln_hw_id(hw));
    describe(o, id, &m, fork_join_us(m.units));
    int status = write_description(c, o);
    cJSON_Delete(o);
    return status;
}
