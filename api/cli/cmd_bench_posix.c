/* kiln bench: the time of a compiled model, whole and step by step, on random inputs; with --against, another runtime's in turns. */
#include "api/cli/peer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void *x, const void *y) { return (*(const double *)x > *(const double *)y) - (*(const double *)x < *(const double *)y); }

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_value);
    return x[n / 2];
}

static void report(const struct cli *c, const kiln_model *m, double whole, const double *steps)
{
    double flops, bytes, total = 0;
    int n = kiln_model_steps(m);
    for (int i = 0; i < n; i++) total += steps[i];
    if (c->json) printf("{\"threads\":%d,\"median_us\":%.2f,\"steps_us\":[", c->threads, whole);
    else printf("%5s %10s %6s %9s %8s  nodes\n", "step", "us", "%", "GFLOP/s", "GB/s");
    for (int i = 0; i < n; i++) {
        const char *nodes = kiln_model_step(m, i, &flops, &bytes);
        double us = steps[i] > 0.001 ? steps[i] : 0.001;
        if (c->json) printf("%s%.2f", i ? "," : "", steps[i]);
        else
            printf("%5d %10.2f %6.1f %9.2f %8.2f  %s\n", i + 1, steps[i], 100 * steps[i] / (total > 0 ? total : 1), flops / us / 1e3,
                   bytes / us / 1e3, nodes);
    }
    if (c->json) printf("]");
    else
        printf("%.2f us median of %d runs, %d thread%s; the steps alone add up to %.2f us\n", whole, c->runs, c->threads,
               c->threads == 1 ? "" : "s", total);
}

static void report_peer(const struct cli *c, const struct peer *p, double whole, double other)
{
    if (c->json) {
        printf(",\"against\":{\"name\":\"%s\",\"version\":\"%s\",\"median_us\":%.2f,\"ratio\":%.4f", c->against, p->version, other, other / whole);
        if (p->difference < 1e300) printf(",\"difference\":%.3g", p->difference);
        printf("}");
    } else {
        printf("%.2f us median of %s %s in turns with it: %.2f times as long\nlargest difference of an output: %.2g of the largest magnitude\n",
               other, c->against, p->version, other / whole, p->difference);
    }
}

struct bench {
    int n, runs;
    double *whole, *other, *us, *column, *steps; /* us: a row of steps a run */
};

static int run_all(struct bench *b, struct model_run *r, struct peer *p)
{
    kiln_client_error e = {0};
    int status = OK;
    for (int i = 0; status == OK && i < b->runs; i++) {
        if (p->pid && kiln_model_run(r->model, r->inputs, r->outputs, r->pool, &e)) return cli_fail(SOFTWARE, "%s", e.message);
        double begin = model_now_us();
        if (kiln_model_run(r->model, r->inputs, r->outputs, r->pool, &e)) return cli_fail(SOFTWARE, "%s", e.message);
        b->whole[i] = model_now_us() - begin;
        if (p->pid) status = peer_time(p, &b->other[i]);
        if (kiln_model_profile(r->model, r->inputs, r->outputs, r->pool, b->us + (size_t)i * (size_t)b->n, &e))
            return cli_fail(SOFTWARE, "%s", e.message);
    }
    return status;
}

/* Once before anything is timed: outputs for the other runtime to compare with, pages and caches for all. */
static int warm_up(struct cli *c, struct model_run *r, struct bench *b, struct peer *p)
{
    kiln_client_error e = {0};
    int status = OK;
    if (kiln_model_run(r->model, r->inputs, r->outputs, r->pool, &e)) return cli_fail(SOFTWARE, "%s", e.message);
    if (kiln_model_profile(r->model, r->inputs, r->outputs, r->pool, b->us, &e)) return cli_fail(SOFTWARE, "%s", e.message);
    char *model = c->against ? peer_model(c, &status) : NULL;
    if (model) status = peer_open(c, r, model, p);
    free(model);
    return status;
}

int cmd_bench(struct cli *c)
{
    struct model_run r;
    struct peer p = {0};
    if (c->nargs < 1 || c->nargs > (c->against ? 2 : 1) || !cli_is_folder(c->args[0]))
        return cli_fail(USAGE, "which model? A folder that `kiln compile FILE.onnx -o DIR` wrote");
    int status = model_open(c, &r);
    struct bench b = {.n = status == OK ? kiln_model_steps(r.model) : 0, .runs = c->runs = c->runs < 1000 ? c->runs : 1000};
    size_t n = (size_t)b.n, runs = (size_t)b.runs;
    double *all = calloc(3 * runs + n * runs + n + 1, sizeof *all);
    if (status == OK && !all) status = cli_fail(SOFTWARE, "out of memory");
    if (all) {
        b.whole = all;
        b.other = all + runs;
        b.column = b.other + runs;
        b.steps = b.column + runs;
        b.us = b.steps + n;
    }
    if (status == OK) status = warm_up(c, &r, &b, &p);
    if (status == OK) status = run_all(&b, &r, &p);
    for (size_t k = 0; status == OK && k < n; k++) {
        for (size_t i = 0; i < runs; i++) b.column[i] = b.us[i * n + k];
        b.steps[k] = median(b.column, b.runs);
    }
    if (status == OK) {
        double whole = median(b.whole, b.runs);
        report(c, r.model, whole, b.steps);
        if (p.pid) report_peer(c, &p, whole, median(b.other, b.runs));
        if (c->json) printf("}\n");
    }
    peer_close(&p);
    free(all);
    model_close(&r);
    return status;
}
