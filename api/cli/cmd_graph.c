/* kiln graph: what becomes one kernel and what that saves, the time of each, why the others stay apart, and a picture. No service is needed. */
#include "api/cli/graph_view.h"
#include "api/cli/peer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- times ---- */

/* What the model of the device says of every kernel. */
static int predict(struct cli *c, const kiln_plan *p, const kiln_hw *hw, double *us, const char **bound)
{
    double *of = calloc((size_t)p->nkernels + 1, sizeof *of);
    const char **by = calloc((size_t)p->nkernels + 1, sizeof *by);
    kiln_diag d = {0};
    int status = of && by ? OK : cli_fail(SOFTWARE, "out of memory");
    for (int i = 0; status == OK && i < p->nkernels; i++) {
        kiln_candidates *list;
        if (kiln_construct(c->arena, p->kernels[i], hw, "default", 1, &list, &d) != KILN_OK) status = cli_diag(&d);
        else if (list->n) of[i] = list->c[0].predicted_us, by[i] = list->c[0].bottleneck;
    }
    for (int i = 0; status == OK && i < p->nsteps; i++) {
        bound[i] = "";
        if (p->steps[i].kernel < 0) continue;
        us[i] = of[p->steps[i].kernel];
        bound[i] = by[p->steps[i].kernel] ? by[p->steps[i].kernel] : "";
    }
    free(of);
    free(by);
    return status;
}

static int by_value(const void *x, const void *y) { return (*(const double *)x > *(const double *)y) - (*(const double *)x < *(const double *)y); }

/* Medians of the compiled model's steps; *measured stays false where its plan is another one. */
static int measure(struct cli *c, const kiln_plan *p, double *us, bool *measured)
{
    struct model_run r;
    kiln_client_error e = {0};
    enum { RUNS = 9 };
    double *all = calloc((size_t)p->nsteps * RUNS + RUNS, sizeof *all), column[RUNS];
    int status = all ? model_open(c, &r) : cli_fail(SOFTWARE, "out of memory");
    if (!all) return status;
    bool same = status == OK && kiln_model_steps(r.model) == p->nsteps && !kiln_model_calls(r.model);
    for (int i = 0; same && i < p->nsteps; i++) {
        double flops, bytes;
        same = !strcmp(kiln_model_step(r.model, i, &flops, &bytes), p->steps[i].nodes);
    }
    for (int k = 0; same && k <= RUNS; k++) /* the first one warms up */
        if (kiln_model_profile(r.model, r.inputs, r.outputs, r.pool, all + (size_t)(k ? k - 1 : 0) * (size_t)p->nsteps, &e)) {
            status = cli_fail(SOFTWARE, "%s", e.message);
            break;
        }
    for (int i = 0; same && status == OK && i < p->nsteps; i++) {
        for (int k = 0; k < RUNS; k++) column[k] = all[(size_t)k * (size_t)p->nsteps + (size_t)i];
        qsort(column, RUNS, sizeof *column, by_value);
        us[i] = column[RUNS / 2];
    }
    *measured = same && status == OK;
    if (status == OK && !same) fprintf(stderr, "kiln: %s has other steps than this plan, so times are predicted\n", c->args[0]);
    model_close(&r);
    free(all);
    return status;
}

/* ---- the table ---- */
static void put_json(const struct graph_view *v)
{
    cJSON *o = cJSON_CreateObject(), *steps, *edges;
    cJSON_AddStringToObject(o, "model", v->title);
    cJSON_AddBoolToObject(o, "measured", v->measured);
    steps = cJSON_AddArrayToObject(o, "steps");
    for (int i = 0; i < v->plan->nsteps; i++) {
        const kiln_step *s = &v->plan->steps[i];
        cJSON *e = cJSON_CreateObject();
        cJSON_AddNumberToObject(e, "kernel", s->kernel);
        cJSON_AddStringToObject(e, "nodes", s->nodes);
        cJSON_AddNumberToObject(e, "us", v->us[i]);
        cJSON_AddStringToObject(e, "bound", v->bound[i]);
        cJSON_AddNumberToObject(e, "saves_us", s->gain_us);
        cJSON_AddItemToArray(steps, e);
    }
    edges = cJSON_AddArrayToObject(o, "edges");
    for (int i = 0; i < v->nedges; i++) {
        cJSON *e = cJSON_CreateObject();
        cJSON_AddNumberToObject(e, "from", v->edges[i].from);
        cJSON_AddNumberToObject(e, "to", v->edges[i].to);
        cJSON_AddStringToObject(e, "value", v->edges[i].arg.name);
        cJSON_AddNumberToObject(e, "bytes", (double)v->edges[i].arg.bytes);
        cJSON_AddStringToObject(e, "why_apart", v->edges[i].why);
        cJSON_AddNumberToObject(e, "gain_us", v->edges[i].gain_us);
        cJSON_AddItemToArray(edges, e);
    }
    char *text = cJSON_Print(o);
    if (text) puts(text);
    free(text);
    cJSON_Delete(o);
}

/* Reasons, each once, with how often and where first. */
static void put_reasons(const struct graph_view *v)
{
    bool any = false;
    for (int i = 0; i < v->nedges; i++) {
        const kiln_edge *e = &v->edges[i];
        int n = 0;
        bool first = *e->why != 0;
        for (int k = 0; k < v->nedges; k++) {
            if (strcmp(v->edges[k].why, e->why)) continue;
            first &= k >= i;
            n++;
        }
        if (!first) continue;
        if (!any) printf("\nnot one kernel, because\n");
        any = true;
        printf("  %-62s %4d times, first steps %d and %d", e->why, n, e->from + 1, e->to + 1);
        if (e->gain_us != 0) printf(" (%+.2f us)", e->gain_us);
        printf("\n");
    }
}

static void put_table(const struct graph_view *v)
{
    const kiln_plan *p = v->plan;
    double total = graph_total(v), gain = 0;
    printf("%s: %d kernels in %d steps\n\n%5s %10s %6s %-8s %6s %9s  nodes\n", v->title, p->nkernels, p->nsteps, "step",
           v->measured ? "us" : "us (pred)", "%", "bound", "nodes", "saves us");
    for (int i = 0; i < p->nsteps; i++) {
        const kiln_step *s = &p->steps[i];
        gain += s->gain_us;
        if (s->kernel < 0) printf("%5d %10s %6s %-8s %6s %9s  %s\n", i + 1, "", "", s->kernel < -1 ? "yours" : "copy", "", "", s->nodes);
        else
            printf("%5d %10.2f %6.1f %-8s %6d %9.2f  %s\n", i + 1, v->us[i], total > 0 ? 100 * v->us[i] / total : 0, v->bound[i], s->nnodes,
                   s->gain_us, s->nodes);
    }
    printf("\n%.1f us %s; without what was fused %.1f us more, by R = dT/Pd + dC/Pc + dK*Lstart (equation 4.10 of the thesis on FlexTensor)\n", total,
           v->measured ? "measured" : "predicted", gain);
    put_reasons(v);
    for (int i = 0; i < p->ncalls; i++) printf("left to you: %s (%s): %s\n", p->calls[i].op, p->calls[i].place, p->calls[i].why);
}

static int show(struct cli *c, const struct graph_view *v)
{
    size_t n = 0, stem = c->output ? strlen(c->output) : 0;
    if (c->json) put_json(v);
    else put_table(v);
    if (!c->output) return OK;
    bool dot = stem > 4 && !strcmp(c->output + stem - 4, ".dot");
    if (!dot && !(stem > 4 && !strcmp(c->output + stem - 4, ".svg")))
        return cli_fail(USAGE, "-o %s: a picture is F.svg, or F.dot for Graphviz", c->output);
    char *picture = dot ? graph_dot(v, &n) : graph_svg(v, &n);
    int status = picture ? cli_write(c, picture, n) : cli_fail(SOFTWARE, "out of memory");
    free(picture);
    return status;
}

static int view(struct cli *c, const kiln_graph *g, const char *folder, const char *title)
{
    kiln_diag d = {0};
    kiln_plan *p;
    struct graph_view v = {.title = title};
    kiln_hw *hw = cli_hw(c, c->target);
    if (!hw) return DATA;
    if (kiln_graph_explain(c->arena, g, hw, &p, &v.edges, &v.nedges, &d) != KILN_OK) return cli_diag(&d);
    double *us = calloc((size_t)p->nsteps + 1, sizeof *us);
    v.bound = calloc((size_t)p->nsteps + 1, sizeof *v.bound);
    v.plan = p;
    v.us = us;
    int status = us && v.bound ? predict(c, p, hw, us, v.bound) : cli_fail(SOFTWARE, "out of memory");
    const char *const of[] = {folder}, *const *args = c->args;
    if (status == OK && folder) {
        c->args = of;
        status = measure(c, p, us, &v.measured);
        c->args = args;
    }
    if (status == OK) status = show(c, &v);
    free(us);
    free(v.bound);
    return status;
}

/* The extents and the target that the folder was compiled for, as options. */
static char *open_folder(struct cli *c, int *status)
{
    char path[4096];
    size_t n;
    char *model = peer_model(c, status);
    snprintf(path, sizeof path, "%s/model.json", c->args[0]);
    char *text = model ? cli_read_file(c, path, &n) : NULL;
    cJSON *json = text ? cJSON_ParseWithLength(text, n) : NULL;
    const cJSON *source = cJSON_GetObjectItemCaseSensitive(json, "source"), *x;
    cJSON_ArrayForEach(x, cJSON_GetObjectItemCaseSensitive(source, "options"))
    {
        const char *t = cJSON_GetStringValue(x), *at = t && strlen(t) > 2 ? t + 2 : NULL;
        char *copy = at ? strdup(at) : NULL; /* lives as long as the process */
        if (copy && *t == 'd' && c->ndims < 32) c->dims[c->ndims++] = copy;
        else if (copy && *t == 'b' && c->nbinds < 32) c->binds[c->nbinds++] = copy;
        else if (copy && *t == 't') c->target = copy;
        else free(copy);
    }
    c->partial |= cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(source, "partial"));
    free(text);
    cJSON_Delete(json);
    return model;
}

int cmd_graph(struct cli *c)
{
    kiln_graph *g;
    kiln_bytes text;
    char *file = NULL, *model = NULL;
    const char *folder = c->nargs && cli_is_folder(c->args[0]) ? c->args[0] : NULL, *const *args = c->args;
    int status = OK, nargs = c->nargs;
    if (folder && !(model = open_folder(c, &status))) return status;
    const char *const of[] = {model};
    if (folder) {
        c->args = of;
        c->nargs = 1;
    }
    status = cli_graph(c, &g, &file);
    const char *title = c->nargs ? c->args[0] : "";
    if (status != OK) return status;
    if (!strcmp(c->as, "nodes"))
        status = kiln_graph_text(c->arena, g, &text) == KILN_OK ? cli_write(c, text.p, text.n) : cli_fail(SOFTWARE, "out of memory");
    else
        status = view(c, g, folder, strrchr(title, '/') ? strrchr(title, '/') + 1 : title);
    c->args = args;
    c->nargs = nargs;
    free(file);
    free(model);
    return status;
}
