/* In which order values lie in memory: channels last for the values around convolutions with constant weights, where their kernels are the fastest
 * for it. A value keeps its logical shape; kn_value.order says how its elements follow each other, and programs of nodes are rewritten for that
 * (reorder.c), so that no operator knows of layouts. Values that others see (inputs, outputs, constants) lie as they are declared. Views pass an
 * order on where they can; in front of one that cannot, and of an output, a copy turns the value back. */
#include "graph/plan.h"
#include <string.h>

typedef struct layout {
    kiln_arena *a;
    const kn_hw *hw;
    const kn_graph *g;
    int *set;            /* of a value: the values that want one order, by their root */
    double *win;         /* of a root: microseconds that channels last save, predicted */
    int *spatial;        /* of a root: how many dimensions its convolutions slide over; 0: it has none */
    kn_program **programs;
} layout;

static int root(layout *l, int v)
{
    while (l->set[v] != v) v = l->set[v] = l->set[l->set[v]];
    return v;
}

static void join(layout *l, int v, int w)
{
    v = root(l, v), w = root(l, w);
    if (v == w || (l->spatial[v] && l->spatial[w] && l->spatial[v] != l->spatial[w])) return;
    l->set[w] = v;
    l->win[v] += l->win[w];
    if (!l->spatial[v]) l->spatial[v] = l->spatial[w];
}

static bool computed(const layout *l, int v) { return v >= 0 && !l->g->values[v].data; }

/* The load is a factor, of a dtype that lanes or an instruction of the device multiply. */
static bool factor(const layout *l, const kn_expr *e, int tensor)
{
    const kn_expr *x = kn_bare(e);
    return x->op == KN_OP_LOAD && x->u.tensor == tensor && (x == e || kn_hw_multiplies(l->hw, x->dtype));
}

/* Loads of constants among the factors of a sum of products: what prepack is for. */
static bool weighted(const layout *l, const kn_node *n, const kn_program *p)
{
    for (int i = 0, t = 0; i < n->ninputs; i++) {
        if (n->inputs[i] < 0) continue;
        bool constant = l->g->values[n->inputs[i]].data != NULL;
        const kn_expr *one[1];
        if (constant && l->g->values[n->inputs[i]].rank >= 3)
            for (int s = 0; s < p->nstmts; s++)
                if (p->stmts[s]->red == KN_RED_SUM && kn_loads(p->stmts[s]->body, one, 0) == 2 && p->stmts[s]->body->op == KN_OP_MUL)
                    for (int k = 0; k < 2; k++)
                        if (factor(l, p->stmts[s]->body->args[k], t)) return true;
        t++;
    }
    return false;
}

static double lanes_used(double n, double lanes)
{
    double vectors = (double)(int64_t)((n + lanes - 1) / lanes);
    return n / (vectors * lanes);
}

/* What a convolution gains: its lanes along channels are filled so far, at rates measured (docs/results) for either order. */
static void seed(layout *l, const kn_node *n, const kn_program *p)
{
    enum { LAST = 82, FIRST = 70 }; /* percent of the multiply-adds' peak */
    const kn_value *y = &l->g->values[n->outputs[0]];
    double flops, bytes, lanes = (double)l->hw->vector_bytes / kn_dtype_bytes(y->dtype), peak = kn_hw_peak_gflops(l->hw, y->dtype) * 1e3;
    if (y->rank < 3 || !weighted(l, n, p)) return;
    kiln_work(p, &flops, &bytes);
    int r = root(l, n->outputs[0]);
    double us = peak > 0 ? flops / peak : 0;
    l->win[r] += us * 100 / FIRST - us * 100 / LAST / lanes_used((double)y->shape[1], lanes);
    if (!l->spatial[r]) l->spatial[r] = y->rank - 2;
}

/* Every load of tensor t has the batch of what its statement writes in front, and no axis both among the spatial dimensions and before them. */
static bool keeps_places(const kn_program *p, int t, int spatial)
{
    const kn_expr *loads[64];
    for (int s = 0; s < p->nstmts; s++) {
        int n = kn_loads(p->stmts[s]->body, loads, 64);
        if (n > 64 || p->stmts[s]->scatter) return false;
        for (int k = 0; k < n; k++) {
            if (loads[k]->u.tensor != t) continue;
            uint32_t lead = 0, places = 0;
            int rank = loads[k]->nargs;
            for (int d = 0; d < rank; d++) *(d < rank - spatial ? &lead : &places) |= kn_axes_in(loads[k]->args[d]);
            if (lead & places) return false;
            int out = p->tensors[p->stmts[s]->out].rank;
            for (int d = out - spatial; d < out && out == rank; d++)
                if (p->stmts[s]->lhs[d]->op != KN_OP_AXIS || lead >> p->stmts[s]->lhs[d]->u.axis & 1) return false;
        }
    }
    return true;
}

static bool same_ends(const kn_value *x, const kn_value *y, int spatial)
{
    if (x->rank < spatial + 2 || y->rank < spatial + 2 || x->shape[0] != y->shape[0]) return false;
    for (int d = 1; d <= spatial; d++)
        if (x->shape[x->rank - d] != y->shape[y->rank - d]) return false;
    return true;
}

static void connect(layout *l, const kn_node *n, const kn_program *p)
{
    int y = n->outputs[0], t = -1;
    for (int i = 0; i < n->ninputs; i++) {
        int x = n->inputs[i];
        if (x < 0) continue;
        t++;
        if (!computed(l, x)) continue;
        int spatial = l->spatial[root(l, x)] ? l->spatial[root(l, x)] : l->spatial[root(l, y)];
        const kn_value *from = &l->g->values[x], *to = &l->g->values[y];
        if (!spatial || from->rank < spatial + 2 || to->rank < spatial + 2) continue;
        if (kn_node_is_view(n) ? same_ends(from, to, spatial) : from->rank == to->rank && keeps_places(p, t, spatial)) join(l, x, y);
    }
}

/* Concatenated channels lie side by side with the channels first, and have to be copied where they are last. */
static void charge(layout *l, const kn_node *n)
{
    const kn_value *y = &l->g->values[n->outputs[0]];
    const kn_hw_level *l3 = kn_hw_level_named(l->hw, "l3");
    double gbs = l3 ? l3->bandwidth_gbs : l->hw->levels[0].bandwidth_gbs;
    if (!kn_node_is_concat(n) || y->rank < 3 || y->shape[0] != 1 || gbs <= 0) return;
    l->win[root(l, n->outputs[0])] -= 2 * (double)kn_value_bytes(y) / (gbs * 1e3);
}

bool kn_order_is_plain(const kn_value *v)
{
    int last = -1;
    for (int i = 0; v->reordered && i < v->rank; i++) {
        if (v->shape[v->order[i]] == 1) continue;
        if (v->order[i] < last) return false;
        last = v->order[i];
    }
    return true;
}

static void channels_last(kn_value *v, int spatial)
{
    if (v->rank < spatial + 2) return;
    v->reordered = true;
    v->order[0] = 0;
    for (int i = 1; i < v->rank; i++) v->order[i] = (uint8_t)(i <= spatial ? v->rank - spatial + i - 1 : i - spatial);
    v->reordered = !kn_order_is_plain(v);
}

/* The order that the bytes of x have under the shape of y; false: they have none. Runs of dimensions with the same product are taken together. */
static bool carry(const kn_value *x, kn_value *y)
{
    int group[KILN_MAX_RANK], first[KILN_MAX_RANK + 1], last[KILN_MAX_RANK + 1], n = 0, i = 0, k = 0;
    while (i < x->rank || k < y->rank) {
        int64_t a = i < x->rank ? x->shape[i] : 1, b = k < y->rank ? y->shape[k] : 1;
        first[n] = k;
        if (i < x->rank) group[i++] = n;
        if (k < y->rank) k++;
        while (a != b) {
            if (a < b && i < x->rank) group[i] = n, a *= x->shape[i++];
            else if (b < a && k < y->rank) b *= y->shape[k++];
            else return false;
        }
        last[n++] = k;
    }
    int at = 0, before = -1;
    for (int m = 0; m < x->rank; m++) {
        int d = x->reordered ? x->order[m] : m;
        if (x->shape[d] == 1) continue;
        bool follows = before >= 0 && group[before] == group[d];
        for (int e = 0; e < d && !follows; e++)
            if (group[e] == group[d] && x->shape[e] != 1) return false; /* begins in the middle of its run */
        if (follows && before > d) return false;
        for (int e = before + 1; follows && e < d; e++)
            if (x->shape[e] != 1) return false;
        for (int j = first[group[d]]; j < last[group[d]] && !follows; j++)
            if (y->shape[j] != 1) y->order[at++] = (uint8_t)j;
        before = d;
    }
    for (int j = 0; j < y->rank; j++)
        if (y->shape[j] == 1) y->order[at++] = (uint8_t)j;
    y->reordered = at == y->rank;
    y->reordered = y->reordered && !kn_order_is_plain(y);
    return at == y->rank;
}

static int copy_of(kiln_arena *a, kn_graph *q, const kn_node *like, int from, int to)
{
    int *io = kn_array(a, int, 2);
    if (!io) return -1;
    io[0] = from;
    io[1] = to;
    kn_node n = *like;
    n.op = "Max"; /* of one: a copy with a program, which Identity, a view, has not */
    n.domain = "";
    n.ninputs = n.noutputs = 1;
    n.nattrs = 0;
    n.attrs = NULL;
    n.left = NULL;
    n.inputs = io;
    n.outputs = io + 1;
    return kn_graph_node(a, q, &n);
}

/* A second value of the same shape, with nothing but its place. */
static int twin(kiln_arena *a, kn_graph *q, int of)
{
    int v = kn_graph_value(a, q, "");
    if (v < 0) return -1;
    kn_value *x = &q->values[v];
    const char *name = x->name;
    *x = q->values[of];
    x->name = name;
    x->producer = -1;
    x->reordered = false;
    return v;
}

/* What is left to the caller reads values as they are declared. */
static bool emit_call(layout *l, kn_graph *q, const kn_node *n)
{
    kn_node copy = *n;
    int *io = kn_array(l->a, int, n->ninputs + 1);
    if (!io) return false;
    copy.inputs = io;
    for (int i = 0; i < n->ninputs; i++) {
        io[i] = n->inputs[i];
        if (!q->values[io[i]].reordered) continue;
        int plain = twin(l->a, q, io[i]);
        if (plain < 0 || copy_of(l->a, q, n, io[i], plain) < 0) return false;
        io[i] = plain;
    }
    return kn_graph_node(l->a, q, &copy) >= 0;
}

static bool emit(layout *l, kn_graph *q, const kn_node *n, const kn_program *p)
{
    if (n->left) return emit_call(l, q, n);
    kn_node copy = *n;
    int *io = kn_array(l->a, int, n->ninputs + 1), y = n->outputs[0];
    if (!io) return false;
    memcpy(io, n->inputs, sizeof *io * (size_t)n->ninputs);
    copy.inputs = io;
    copy.outputs = &n->outputs[0];
    bool part = p && kn_part_of(l->g, l->hw, n, p) >= 0;
    if (part || kn_node_is_view(n)) { /* in the memory of what it is read from, as that lies there */
        kn_value *from = &q->values[io[0]], *to = &q->values[y];
        bool carried = part || carry(from, to);
        if (part) {
            to->reordered = from->reordered;
            memcpy(to->order, from->order, sizeof to->order);
        }
        if (!carried || (to->reordered && kn_graph_is_output(q, y))) {
            int plain = twin(l->a, q, io[0]);
            if (plain < 0 || copy_of(l->a, q, n, io[0], plain) < 0) return false;
            io[0] = plain;
            q->values[y].reordered = false;
        }
        return kn_graph_node(l->a, q, &copy) >= 0;
    }
    int r = root(l, y);
    if (l->spatial[r] && l->win[r] > 0) channels_last(&q->values[y], l->spatial[r]);
    if (!q->values[y].reordered || !kn_graph_is_output(q, y)) return kn_graph_node(l->a, q, &copy) >= 0;
    int inner = twin(l->a, q, y);
    int *out = kn_new(l->a, int);
    if (inner < 0 || !out) return false;
    channels_last(&q->values[inner], l->spatial[r]);
    q->values[y].reordered = false;
    *out = inner;
    copy.outputs = out;
    return kn_graph_node(l->a, q, &copy) >= 0 && copy_of(l->a, q, n, inner, y) >= 0;
}

static bool look(layout *l, kiln_diag *d, kiln_status *s)
{
    for (int pass = 0; pass < 3; pass++)
        for (int i = 0; i < l->g->nnodes; i++) {
            const kn_node *n = &l->g->nodes[i];
            bool view = kn_node_is_view(n);
            if (n->left) continue;
            if (!pass && !view && (*s = kn_node_program(l->a, l->g, n, &l->programs[i], d)) != KILN_OK) return false;
            if (!pass && !view) seed(l, n, l->programs[i]);
            if (!pass) continue;
            connect(l, n, l->programs[i]); /* twice: what stands before the first convolution learns of it the second time */
            if (pass == 2) charge(l, n);
        }
    return true;
}

kiln_status kn_graph_layout(kiln_arena *a, const kn_graph *g, const kn_hw *hw, kn_graph **out, kiln_diag *d)
{
    layout l = {.a = a, .hw = hw, .g = g};
    kiln_status s = KILN_OK;
    kn_graph *q = kn_graph_bare(a, g);
    l.set = kn_array(a, int, g->nvalues + 1);
    l.win = kn_array(a, double, g->nvalues + 1);
    l.spatial = kn_array(a, int, g->nvalues + 1);
    l.programs = kn_array(a, kn_program *, g->nnodes + 1);
    if (!q || !l.set || !l.win || !l.spatial || !l.programs) return kn_fail(d, KILN_MEMORY, "out of memory");
    for (int v = 0; v < g->nvalues; v++) l.set[v] = v;
    if (!hw->gpu && !look(&l, d, &s)) return s;
    for (int i = 0; i < g->nnodes; i++)
        if (!emit(&l, q, &g->nodes[i], l.programs[i])) return kn_fail(d, KILN_MEMORY, "out of memory");
    *out = q;
    return KILN_OK;
}
