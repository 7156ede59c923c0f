/* Nodes that cannot be compiled, left to the caller: what they read and give stays a part of the graph. What they give and the model declares with
 * a static shape is a value like any other; what else they give is held by the caller, and whoever reads it is left as well. */
#include "graph/settle.h"
#include <string.h>

enum { MOST = KILN_MAX_GRAPH_ARGS };

typedef struct leaving {
    kn_settle *s;
    kn_frame *f;
    const kn_node *n;
    int nin, *in; /* raw values of the model, each once */
    bool many;
} leaving;

static void add_input(leaving *l, int v)
{
    for (int i = 0; i < l->nin; i++)
        if (l->in[i] == v) return;
    l->many |= l->nin == MOST;
    if (!l->many) l->in[l->nin++] = v;
}

/* What a subgraph reads of the graph around it, for itself and for those inside it. */
static void add_captured(leaving *l, const kn_graph *sub)
{
    for (int i = 0; i < sub->nvalues; i++)
        if (sub->values[i].outer >= 0) add_input(l, sub->values[i].outer);
}

/* What a raw output is here: known to the model, or a placeholder. -1: out of memory. */
static int new_output(leaving *l, const kn_value *raw)
{
    kn_settle *s = l->s;
    int v = kn_graph_value(s->a, s->g, raw->name);
    if (v < 0) return -1;
    kn_value x = *raw;
    int64_t elems = 1;
    x.held = !x.typed || !x.shaped;
    for (int k = 0; k < x.rank && !x.held; k++) {
        x.shape[k] = kn_settle_extent(s, l->f->g, raw, k);
        x.held = x.shape[k] < 1 || x.shape[k] > KILN_MAX_EXTENT || !kn_mul_fits(elems, x.shape[k], &elems) || elems > KILN_MAX_ELEMENTS;
    }
    if (x.held) {
        x.rank = 0;
        x.dtype = KN_U8;
    }
    x.typed = x.shaped = true;
    x.place = l->n->place;
    x.producer = x.outer = -1;
    s->g->values[v] = x;
    return v;
}

static kiln_status emit(leaving *l, const char *why)
{
    kn_settle *s = l->s;
    const kn_node *n = l->n;
    kn_node call = {.op = "Call", .domain = "", .name = n->name, .place = n->place, .ninputs = l->nin};
    kn_left *left = kn_new(s->a, kn_left);
    int *io = kn_array(s->a, int, l->nin + n->noutputs + 1);
    const char **names = kn_array(s->a, const char *, l->nin + n->noutputs + 1);
    if (!left || !io || !names || !why) return kn_fail(s->d, KILN_MEMORY, "out of memory");
    for (int i = 0; i < l->nin; i++) {
        kiln_status status = kn_settle_value(s, l->f, l->in[i], n->place, &io[i]);
        if (status != KILN_OK) return status;
        names[i] = l->f->g->values[l->in[i]].name;
    }
    call.inputs = io;
    call.outputs = io + l->nin;
    for (int i = 0; i < n->noutputs; i++) {
        if (n->outputs[i] < 0) continue;
        const kn_value *raw = &l->f->g->values[n->outputs[i]];
        int v = new_output(l, raw);
        if (v < 0) return kn_fail(s->d, KILN_MEMORY, "out of memory");
        l->f->map[n->outputs[i]] = io[l->nin + call.noutputs] = v;
        names[l->nin + call.noutputs++] = raw->name;
    }
    *left = (kn_left){.op = n->op, .domain = n->domain, .why = why, .names = names};
    call.left = left;
    return kn_graph_node(s->a, s->g, &call) < 0 ? kn_fail(s->d, KILN_MEMORY, "out of memory") : KILN_OK;
}

kiln_status kn_settle_leave(kn_settle *s, kn_frame *f, const kn_node *n)
{
    leaving l = {.s = s, .f = f, .n = n, .in = kn_array(s->a, int, MOST)};
    const char *why = kn_strndup(s->a, s->d->message, strlen(s->d->message));
    if (!l.in || !why) return kn_fail(s->d, KILN_MEMORY, "out of memory");
    for (int i = 0; i < n->ninputs; i++)
        if (n->inputs[i] >= 0) add_input(&l, n->inputs[i]);
    for (int i = 0; i < n->nattrs; i++)
        if (n->attrs[i].kind == 'G') add_captured(&l, n->attrs[i].graph);
    if (l.many) return kn_fail_at(s->d, KILN_LIMIT, n->place, "more than %d values are read by this node and its subgraphs", MOST);
    *s->d = (kiln_diag){0};
    s->depth = 0;
    s->now = n;
    s->takes_held = true;
    kiln_status status = emit(&l, why);
    s->takes_held = false;
    return status;
}
