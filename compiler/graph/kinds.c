/* What every node is to the partitioner, and which values lie in others' memory: views, and parts of concatenations. */
#include "graph/plan.h"
#include <string.h>

int64_t kn_value_bytes(const kn_value *v) { return kn_value_elems(v) * kn_dtype_bytes(v->dtype); }

/* Operations on data in an expression; what stands in an index is not one. */
static int operations(const kn_expr *e)
{
    if (e->op == KN_OP_LOAD || e->op == KN_OP_SELECT) {
        int n = 0;
        if (e->op == KN_OP_SELECT)
            for (int i = 1; i < e->nargs; i++) n += operations(e->args[i]);
        return n;
    }
    int n = e->nargs > 0;
    for (int i = 0; i < e->nargs; i++) n += operations(e->args[i]);
    return n;
}

/* A sum whose terms read two inputs along the reduction. */
static bool contracts(const kn_program *p, const kn_stmt *s)
{
    const kn_expr *loads[8];
    int n = kn_loads(s->body, loads, 8), first = -1;
    uint32_t reduce = 0;
    if (s->red != KN_RED_SUM) return false;
    for (int i = s->nspatial; i < s->naxes; i++) reduce |= UINT32_C(1) << i;
    for (int i = 0; i < n && i < 8; i++) {
        uint32_t axes = 0;
        for (int k = 0; k < loads[i]->nargs; k++) axes |= kn_axes_in(loads[i]->args[k]);
        if (!(axes & reduce) || p->tensors[loads[i]->u.tensor].role != KN_INPUT) continue;
        if (first >= 0 && loads[i]->u.tensor != first) return true;
        first = loads[i]->u.tensor;
    }
    return false;
}

enum kn_kind kn_kind_of(const kn_program *p)
{
    enum kn_kind k = KN_MOVE;
    for (int i = 0; i < p->nstmts; i++) {
        const kn_stmt *s = p->stmts[i];
        if (contracts(p, s)) return KN_CONTRACT;
        if (s->red != KN_RED_NONE || s->scatter) k = KN_REDUCE;
        else if (k < KN_MAP && operations(s->body)) k = KN_MAP;
    }
    return k;
}

/* The value whose memory v's bytes are, all of them, if a kernel writes it and nobody has claimed it yet; else -1. */
static int claimable(const kn_partition *p, int v)
{
    const kn_graph *g = p->g;
    int root = v;
    while (p->places[root].base != root) {
        if (p->places[root].offset) return -1;
        root = p->places[root].base;
    }
    int n = g->values[root].producer;
    if (n < 0 || kn_value_bytes(&g->values[root]) != kn_value_bytes(&g->values[v])) return -1;
    return p->kinds[n] == KN_VIEW || kn_graph_is_output(g, root) ? -1 : root;
}

bool kn_node_is_concat(const kn_node *n) { return !n->left && !strcmp(n->op, "Concat") && !*n->domain; }

int64_t kn_concat_axis(const kn_graph *g, const kn_node *n)
{
    const kn_gattr *at = kn_node_attr(n, "axis");
    int64_t axis = at ? at->i : 0;
    return axis < 0 ? axis + g->values[n->outputs[0]].rank : axis;
}

bool kn_concat_in_ranges(const kn_graph *g, const kn_node *n)
{
    const kn_value *y = &g->values[n->outputs[0]];
    int64_t axis = kn_concat_axis(g, n);
    for (int i = 0; i < y->rank && (y->reordered ? y->order[i] : i) != axis; i++)
        if (y->shape[y->reordered ? y->order[i] : i] != 1) return false;
    return true;
}

bool kn_lie_alike(const kn_value *x, const kn_value *y)
{
    return x->rank == y->rank && x->reordered == y->reordered && (!y->reordered || !memcmp(x->order, y->order, (size_t)y->rank));
}

/* A concatenation along the first dimension that is not one: its inputs are consecutive ranges of it. Each must be a kernel's own result, once. */
static bool side_by_side(kn_partition *p, const kn_node *n)
{
    const kn_graph *g = p->g;
    const kn_value *y = &g->values[n->outputs[0]];
    int64_t offset = 0;
    if (!kn_node_is_concat(n) || !kn_concat_in_ranges(g, n)) return false;
    for (int i = 0; i < n->ninputs; i++)
        if (n->inputs[i] >= 0 && !kn_lie_alike(&g->values[n->inputs[i]], y)) return false;
    for (int i = 0; i < n->ninputs; i++) {
        if (n->inputs[i] < 0 || claimable(p, n->inputs[i]) < 0) return false;
        for (int k = 0; k < i; k++)
            if (claimable(p, n->inputs[k]) == claimable(p, n->inputs[i])) return false;
        /* vectors of a GPU's kernel may want more than an element's alignment */
        if (p->hw->gpu && kn_value_bytes(&g->values[n->inputs[i]]) % 64 && i + 1 < n->ninputs) return false;
    }
    for (int i = 0; i < n->ninputs; i++) {
        int root = claimable(p, n->inputs[i]);
        p->places[root] = (kn_place){n->outputs[0], offset};
        offset += kn_value_bytes(&g->values[n->inputs[i]]);
    }
    return true;
}

int64_t kn_part_of(const kn_graph *g, const kn_hw *hw, const kn_node *n, const kn_program *q)
{
    const kn_stmt *s = q->stmts[0];
    const kn_expr *load = q->nstmts == 1 && q->ninputs == 1 && s->red == KN_RED_NONE && !s->scatter ? s->body : NULL;
    const kn_tensor *from = &q->tensors[0], *to = &q->tensors[1];
    if (!load || load->op != KN_OP_LOAD || load->padded || !from->rank || from->rank != to->rank || g->values[n->inputs[0]].data) return -1;
    if (g->values[n->inputs[0]].producer >= 0 && kn_graph_users(g, n->inputs[0], NULL, 0) < 2) return -1;
    int64_t offset = 0, row = kn_dtype_bytes(from->dtype);
    for (int i = 0; i < from->rank; i++) {
        kn_affine at;
        if (s->lhs[i]->op != KN_OP_AXIS || !kn_affine_of(load->args[i], &at)) return -1;
        for (int k = 0; k < s->naxes; k++)
            if (at.coef[k] != (k == s->lhs[i]->u.axis)) return -1;
        if (!i) offset = at.offset;
        else if (at.offset || to->shape[i] != from->shape[i]) return -1;
        else row *= from->shape[i];
    }
    return hw->gpu && offset * row % 64 ? -1 : offset * row;
}

/* Every value straight to the one that owns its memory. */
static void flatten(kn_partition *p)
{
    for (int v = 0; v < p->g->nvalues; v++) {
        int64_t offset = 0;
        int root = v;
        while (p->places[root].base != root) {
            offset += p->places[root].offset;
            root = p->places[root].base;
        }
        p->places[v] = (kn_place){root, offset};
    }
}

kiln_status kn_partition_open(kiln_arena *a, const kn_graph *g, const kn_hw *hw, kn_partition **out, kiln_diag *d)
{
    kn_partition *p = kn_new(a, kn_partition);
    if (!p) return kn_fail(d, KILN_MEMORY, "out of memory");
    *p = (kn_partition){.a = a, .g = g, .hw = hw};
    p->programs = kn_array(a, kn_program *, g->nnodes + 1);
    p->kinds = kn_array(a, enum kn_kind, g->nnodes + 1);
    p->places = kn_array(a, kn_place, g->nvalues + 1);
    if (!p->programs || !p->kinds || !p->places) return kn_fail(d, KILN_MEMORY, "out of memory");
    for (int v = 0; v < g->nvalues; v++) p->places[v] = (kn_place){v, 0};
    for (int i = 0; i < g->nnodes; i++) {
        const kn_node *n = &g->nodes[i];
        if (kn_stopped(a)) return kn_fail(d, KILN_STOPPED, "out of time at node %d of %d", i + 1, g->nnodes);
        if (n->left) {
            p->kinds[i] = KN_CALL;
            continue;
        }
        if (kn_node_is_view(n)) {
            p->kinds[i] = KN_VIEW;
            p->places[n->outputs[0]] = (kn_place){n->inputs[0], 0};
            continue;
        }
        if (side_by_side(p, n)) {
            p->kinds[i] = KN_CONCAT;
            continue;
        }
        kiln_status s = kn_node_program(a, g, n, &p->programs[i], d);
        if (s != KILN_OK) return s;
        if (!kn_reorder(a, g, n, p->programs[i])) return kn_fail(d, KILN_MEMORY, "out of memory");
        p->kinds[i] = kn_kind_of(p->programs[i]);
        int64_t at = p->kinds[i] == KN_MOVE ? kn_part_of(g, hw, n, p->programs[i]) : -1;
        if (at < 0) continue;
        p->kinds[i] = KN_VIEW;
        p->places[n->outputs[0]] = (kn_place){n->inputs[0], at};
    }
    flatten(p);
    if (kn_arena_dry(a)) return kn_fail(d, KILN_MEMORY, "out of memory");
    *out = p;
    return KILN_OK;
}
