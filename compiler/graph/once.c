/* What depends on constants alone and was too large to be computed beforehand (weights that are standardised, dequantised, cast, multiplied): a
 * graph of its own, which runs once when the model is loaded. Its results are constants for the rest, so that convolutions order and pack them like
 * any other weight. What only moves or spreads constants, and costs its one reader nothing, stays with its reader. */
#include "graph/plan.h"
#include <string.h>

typedef struct split {
    kiln_arena *a;
    const kn_graph *g;
    kiln_diag *d;
    bool *fixed;   /* of a value: a constant, or made of constants alone */
    double *held;  /* of a value: bytes of the constants that it is made of */
    bool *wanted;  /* of a value: the rest reads it */
    bool *run, *load; /* of a node: done at each run; done once */
    int *frontier, nfrontier;
} split;

static bool look(split *s)
{
    bool any = false;
    for (int v = 0; v < s->g->nvalues; v++) {
        const kn_value *x = &s->g->values[v];
        s->fixed[v] = x->data != NULL;
        s->held[v] = !x->data ? 0 : x->data->splat ? (double)x->data->n : (double)kn_value_bytes(x);
    }
    for (int i = 0; i < s->g->nnodes; i++) {
        const kn_node *n = &s->g->nodes[i];
        bool fixed = !n->left && n->ninputs > 0;
        double held = 0;
        for (int k = 0; k < n->ninputs; k++) {
            if (n->inputs[k] < 0) continue;
            fixed &= s->fixed[n->inputs[k]];
            held += s->held[n->inputs[k]];
        }
        if (!fixed) continue;
        any = s->fixed[n->outputs[0]] = true;
        s->held[n->outputs[0]] = held;
    }
    return any;
}

static kiln_status kind_of(split *s, int node, enum kn_kind *kind, int *loads)
{
    const kn_node *n = &s->g->nodes[node];
    kn_program *p;
    *kind = n->left ? KN_CALL : KN_VIEW;
    *loads = 1;
    if (n->left || kn_node_is_view(n)) return KILN_OK;
    kiln_status status = kn_node_program(s->a, s->g, n, &p, s->d);
    if (status != KILN_OK) return status;
    *kind = kn_kind_of(p);
    *loads = p->ninputs;
    return KILN_OK;
}

/* The greatest kind among those of the rest that read v, through views, and how many there are. */
static kiln_status readers(split *s, int v, int from, enum kn_kind *most, int *count)
{
    kiln_status status = KILN_OK;
    if (kn_graph_is_output(s->g, v)) {
        *most = KN_CALL; /* it has to be there */
        ++*count;
    }
    for (int i = from; status == KILN_OK && i < s->g->nnodes; i++) {
        const kn_node *n = &s->g->nodes[i];
        bool reads = false;
        for (int k = 0; k < n->ninputs; k++) reads |= n->inputs[k] == v;
        if (!reads || !s->run[i]) continue;
        if (!n->left && kn_node_is_view(n)) {
            status = readers(s, n->outputs[0], i + 1, most, count);
            continue;
        }
        enum kn_kind kind;
        int loads;
        status = kind_of(s, i, &kind, &loads);
        if (kind > *most) *most = kind;
        ++*count;
    }
    return status;
}

/* Whether node i, whose result the rest reads, stays with its readers: a view; a turn of one constant that the packing of one product does anyway;
 * what makes much of little (a spread mask, a table of bytes that is looked up) for maps, which do it as they read. */
static kiln_status stays(split *s, int i, bool *out)
{
    const kn_node *n = &s->g->nodes[i];
    int y = n->outputs[0], loads, count = 0;
    enum kn_kind kind, most = KN_VIEW;
    *out = true;
    if (kn_node_is_view(n)) return KILN_OK;
    kiln_status status = kind_of(s, i, &kind, &loads);
    if (status == KILN_OK) status = readers(s, y, i + 1, &most, &count);
    bool plain = kind == KN_MOVE && loads == 1 && s->g->values[n->inputs[0]].data;
    bool grows = (double)kn_value_bytes(&s->g->values[y]) > s->held[y];
    *out = kind <= KN_MAP && (most == KN_CONTRACT ? plain && count == 1 : most < KN_CONTRACT && grows);
    return status;
}

static kiln_status divide(split *s)
{
    const kn_graph *g = s->g;
    for (int i = 0; i < g->noutputs; i++) s->wanted[g->outputs[i]] = true;
    for (int i = g->nnodes - 1; i >= 0; i--) {
        const kn_node *n = &g->nodes[i];
        int y = n->outputs[0];
        bool stay = true;
        if (!n->left && s->fixed[y]) {
            if (!s->wanted[y]) continue; /* only for what runs once */
            kiln_status status = stays(s, i, &stay);
            if (status != KILN_OK) return status;
        }
        s->run[i] = stay;
        if (!stay) s->frontier[s->nfrontier++] = y;
        for (int k = 0; stay && k < n->ninputs; k++)
            if (n->inputs[k] >= 0) s->wanted[n->inputs[k]] = true;
    }
    for (int i = g->nnodes - 1; i >= 0; i--) {
        const kn_node *n = &g->nodes[i];
        bool needed = false;
        for (int k = 0; k < s->nfrontier; k++) needed |= s->frontier[k] == n->outputs[0];
        if (needed) s->load[i] = true;
        for (int k = 0; s->load[i] && k < n->ninputs; k++)
            if (n->inputs[k] >= 0 && g->values[n->inputs[k]].producer >= 0) s->load[g->values[n->inputs[k]].producer] = true;
    }
    return KILN_OK;
}

/* The graph of the nodes in `which`. */
static kn_graph *part(split *s, const bool *which)
{
    kn_graph *q = kn_graph_bare(s->a, s->g);
    for (int v = 0; q && v < q->nvalues; v++) q->values[v].producer = -1;
    for (int i = 0; q && i < s->g->nnodes; i++)
        if (which[i] && kn_graph_node(s->a, q, &s->g->nodes[i]) < 0) return NULL;
    return q;
}

kiln_status kn_graph_once(kiln_arena *a, const kn_graph *g, const kn_hw *hw, kn_graph **once, kn_graph **rest, kiln_diag *d)
{
    split s = {.a = a, .g = g, .d = d};
    size_t nv = (size_t)g->nvalues + 1, nn = (size_t)g->nnodes + 1;
    *once = NULL;
    *rest = (kn_graph *)(uintptr_t)g;
    s.fixed = kn_array(a, bool, 2 * nv);
    s.held = kn_array(a, double, nv);
    s.run = kn_array(a, bool, 2 * nn);
    s.frontier = kn_array(a, int, nv);
    kn_data *data = kn_new(a, kn_data);
    if (!s.fixed || !s.held || !s.run || !s.frontier || !data) return kn_fail(d, KILN_MEMORY, "out of memory");
    s.wanted = s.fixed + nv;
    s.load = s.run + nn;
    if (hw->gpu || !look(&s)) return KILN_OK;
    kiln_status status = divide(&s);
    if (status != KILN_OK || !s.nfrontier) return status;
    *once = part(&s, s.load);
    *rest = part(&s, s.run);
    if (!*once || !*rest) return kn_fail(d, KILN_MEMORY, "out of memory");
    *data = (kn_data){.once = true};
    for (int i = 0; i < s.nfrontier; i++) (*rest)->values[s.frontier[i]].data = data;
    (*once)->ninputs = 0;
    (*once)->noutputs = s.nfrontier;
    (*once)->outputs = s.frontier;
    return KILN_OK;
}
