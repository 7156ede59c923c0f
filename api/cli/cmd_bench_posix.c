/* kiln bench: the time of a compiled model, whole and step by step, on random inputs. */
#include "api/cli/cli.h"
#include "api/cli/model.h"
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
    if (c->json) printf("]}\n");
    else
        printf("%.2f us median of %d runs, %d thread%s; the steps alone add up to %.2f us\n", whole, c->runs, c->threads,
               c->threads == 1 ? "" : "s", total);
}

int cmd_bench(struct cli *c)
{
    struct model_run r;
    kiln_client_error e = {0};
    if (c->nargs != 1 || !cli_is_folder(c->args[0])) return cli_fail(USAGE, "which model? A folder that `kiln compile FILE.onnx -o DIR` wrote");
    int status = model_open(c, &r);
    int n = status == OK ? kiln_model_steps(r.model) : 0, runs = c->runs < 1000 ? c->runs : 1000;
    double *whole = calloc((size_t)runs, sizeof *whole), *us = calloc((size_t)n * (size_t)(runs + 1) + 1, sizeof *us);
    double *column = calloc((size_t)runs, sizeof *column), *steps = calloc((size_t)n + 1, sizeof *steps);
    if (status == OK && (!whole || !us || !column || !steps)) status = cli_fail(SOFTWARE, "out of memory");
    for (int i = -1; status == OK && i < runs; i++) {
        double begin = model_now_us();
        if (kiln_model_run(r.model, r.inputs, r.outputs, r.pool, &e)) status = cli_fail(SOFTWARE, "%s", e.message);
        if (i >= 0) whole[i] = model_now_us() - begin;
        if (status == OK && kiln_model_profile(r.model, r.inputs, r.outputs, r.pool, us + (size_t)(i + 1) * (size_t)n, &e))
            status = cli_fail(SOFTWARE, "%s", e.message);
    }
    for (int k = 0; status == OK && k < n; k++) {
        for (int i = 0; i < runs; i++) column[i] = us[(size_t)(i + 1) * (size_t)n + (size_t)k];
        steps[k] = median(column, runs);
    }
    if (status == OK) report(c, r.model, median(whole, runs), steps);
    free(whole);
    free(us);
    free(column);
    free(steps);
    model_close(&r);
    return status;
}
