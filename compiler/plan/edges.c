/* What flows between the steps of a plan, and why a step and the one that reads it are not one kernel: for people. */
#include "plan/edges.h"
#include <string.h>

typedef struct tracer {
    kn_partition *p;
    const kiln_plan *plan;
    kiln_edge *edges;
    int n, cap;
} tracer;

static bool add(tracer *t, int from, int to, int v, const char *why, double gain)
{
    const kn_value *x = &t->p->g->values[v];
    for (int i = t->n - 1; i >= 0 && t->edges[i].to == to; i--)
        if (t->edges[i].from == from && !strcmp(t->edges[i].arg.name, x->name) && t->edges[i].arg.bytes == kn_value_bytes(x)) return true;
    if (t->n == t->cap) {
        kiln_edge *more = kn_array(t->p->a, kiln_edge, 2 * (size_t)t->cap + 64);
        if (!more) return false;
        if (t->n) memcpy(more, t->edges, sizeof *more * (size_t)t->n);
        t->edges = more;
        t->cap = 2 * t->cap + 64;
    }
    kiln_edge *e = &t->edges[t->n++];
    *e = (kiln_edge){.from = from, .to = to, .why = why, .gain_us = gain};
    e->arg = (kiln_arg){.name = x->name, .dtype = kn_dtype_text(x->dtype), .rank = x->rank, .elems = kn_value_elems(x), .bytes = kn_value_bytes(x)};
    memcpy(e->arg.shape, x->shape, sizeof e->arg.shape);
    return true;
}

/* Who makes v, through what moves nothing, for node n of group y (-1: an output of the model). */
static bool trace(tracer *t, int v, int to, int y, int n, bool through)
{
    kn_partition *p = t->p;
    const kn_value *x = &p->g->values[v];
    if (x->data) return true;
    if (x->producer < 0) return add(t, -1, to, v, "", 0);
    int group = p->group_of[x->producer];
    if (group >= 0) {
        if (group == y) return true;
        double gain = 0;
        const char *why = y < 0 ? "" : through ? "a view or a concatenation lies between" : kn_partition_why(p, group, y, n, v, &gain);
        return add(t, p->groups[group].order, to, v, why, gain);
    }
    const kn_node *view = &p->g->nodes[x->producer];
    for (int i = 0; i < view->ninputs; i++)
        if (view->inputs[i] >= 0 && !trace(t, view->inputs[i], to, y, n, true)) return false;
    return true;
}

kiln_status kn_plan_edges(kn_partition *p, const kiln_plan *plan, const kiln_edge **out, int *n, kiln_diag *d)
{
    tracer t = {.p = p, .plan = plan};
    bool ok = true;
    for (int s = 0; s < p->nsteps; s++) {
        const kn_group *g = &p->groups[p->steps[s]];
        for (int i = 0; ok && i < g->nnodes; i++) {
            const kn_node *node = &p->g->nodes[g->nodes[i]];
            for (int k = 0; ok && k < node->ninputs; k++)
                if (node->inputs[k] >= 0) ok = trace(&t, node->inputs[k], s, p->steps[s], g->nodes[i], false);
        }
    }
    for (int i = 0; ok && i < p->g->noutputs; i++) ok = trace(&t, p->g->outputs[i], plan->nsteps, -1, -1, false);
    *out = t.edges;
    *n = t.n;
    return ok ? KILN_OK : kn_fail(d, KILN_MEMORY, "out of memory");
}
