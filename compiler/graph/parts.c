/* A concatenation that reads another one reads that one's parts instead, where both are copied and what else reads the inner one are maps: each of
 * these then chooses among the parts as it reads them, and the inner concatenation is written nowhere (networks whose every layer reads what all
 * before it gave). After some parts one is written after all: a kernel has room for so many operands, and every vector asks which part it is of. */
#include "graph/plan.h"

enum { PARTS = 6 }; /* beside what a map has of its own, they leave room among the reads that a plan looks at */

typedef struct parts {
    kiln_arena *a;
    const kn_graph *g; /* nodes as they were */
    kn_graph *q;       /* the same with longer concatenations */
    kiln_diag *d;
} parts;

/* It computes each element from some of what it reads, so that it can read parts of that. */
static bool is_map(parts *s, const kn_node *n, kiln_status *status)
{
    kn_program *p;
    if (n->left || kn_node_is_view(n)) return false;
    *status = kn_node_program(s->a, s->g, n, &p, s->d);
    return *status == KILN_OK && kn_kind_of(p) == KN_MAP;
}

/* Value v as n reads it is itself such a concatenation, which nobody needs as a whole. */
static bool may_open(parts *s, const kn_node *n, int v, kiln_status *status)
{
    const kn_graph *g = s->g;
    int from = v < 0 ? -1 : g->values[v].producer;
    const kn_node *m = from < 0 ? NULL : &s->q->nodes[from];
    if (!m || !kn_node_is_concat(m) || kn_concat_axis(g, m) != kn_concat_axis(g, n) || kn_graph_is_output(g, v)) return false;
    if (kn_concat_in_ranges(g, m) || !kn_lie_alike(&g->values[v], &g->values[n->outputs[0]])) return false;
    for (int i = from + 1; i < g->nnodes; i++) {
        const kn_node *u = &g->nodes[i];
        for (int k = 0; k < u->ninputs; k++)
            if (u->inputs[k] == v && !(kn_node_is_concat(u) && kn_concat_axis(g, u) == kn_concat_axis(g, n)) && !is_map(s, u, status)) return false;
    }
    return true;
}

/* n with the parts of what it reads. */
static kiln_status open_up(parts *s, const kn_node *n, kn_node *copy)
{
    int *in = kn_array(s->a, int, PARTS), room = PARTS - n->ninputs, count = 0;
    kiln_status status = KILN_OK;
    if (!in) return KILN_MEMORY;
    *copy = *n;
    if (!kn_node_is_concat(n) || room < 1 || kn_concat_in_ranges(s->g, n)) return KILN_OK;
    for (int i = 0; i < n->ninputs && status == KILN_OK; i++) {
        const kn_node *m = may_open(s, n, n->inputs[i], &status) ? &s->q->nodes[s->g->values[n->inputs[i]].producer] : NULL;
        int more = m ? m->ninputs : 1;
        if (more - 1 > room) more = 1;
        room -= more - 1;
        if (more == 1) in[count++] = n->inputs[i];
        for (int k = 0; k < more && more > 1; k++) in[count++] = m->inputs[k];
    }
    copy->inputs = in;
    copy->ninputs = count;
    return status;
}

/* Without the concatenations that nobody reads any more. */
static kn_graph *without_unread(parts *s)
{
    kn_graph *q = kn_graph_bare(s->a, s->g);
    bool *read = kn_array(s->a, bool, s->g->nvalues + 1), *dropped = kn_array(s->a, bool, s->q->nnodes + 1);
    if (!q || !read || !dropped) return NULL;
    for (int i = 0; i < s->q->noutputs; i++) read[s->q->outputs[i]] = true;
    for (int i = s->q->nnodes - 1; i >= 0; i--) {
        const kn_node *n = &s->q->nodes[i];
        dropped[i] = kn_node_is_concat(n) && !read[n->outputs[0]];
        for (int k = 0; k < n->ninputs && !dropped[i]; k++)
            if (n->inputs[k] >= 0) read[n->inputs[k]] = true;
    }
    for (int i = 0; i < s->q->nnodes; i++) {
        if (dropped[i]) q->values[s->q->nodes[i].outputs[0]].producer = -1;
        else if (kn_graph_node(s->a, q, &s->q->nodes[i]) < 0) return NULL;
    }
    return q;
}

kiln_status kn_graph_parts(kiln_arena *a, const kn_graph *g, const kn_hw *hw, kn_graph **out, kiln_diag *d)
{
    parts s = {.a = a, .g = g, .d = d};
    *out = (kn_graph *)(uintptr_t)g;
    if (hw->gpu) return KILN_OK;
    s.q = kn_graph_bare(a, g);
    if (!s.q) return kn_fail(d, KILN_MEMORY, "out of memory");
    for (int i = 0; i < g->nnodes; i++) {
        kn_node copy;
        if (kn_stopped(a)) return kn_fail(d, KILN_STOPPED, "out of time at node %d of %d", i + 1, g->nnodes);
        kiln_status status = open_up(&s, &g->nodes[i], &copy);
        if (status == KILN_MEMORY || (status == KILN_OK && kn_graph_node(a, s.q, &copy) < 0)) return kn_fail(d, KILN_MEMORY, "out of memory");
        if (status != KILN_OK) return status;
    }
    *out = without_unread(&s);
    return *out ? KILN_OK : kn_fail(d, KILN_MEMORY, "out of memory");
}
