/* The program of a node for values that do not lie as their shapes say: dimensions of its arguments change places, where read and where written. */
#include "graph/plan.h"
#include <string.h>

typedef struct reorder {
    const kn_value *of[KILN_MAX_TENSORS]; /* of a tensor: the value that it is, where that one is reordered; else NULL */
    int axis[KILN_MAX_AXES];
} reorder;

void kn_value_stored(const kn_value *v, int64_t *shape)
{
    for (int i = 0; i < v->rank; i++) shape[i] = v->shape[v->reordered ? v->order[i] : i];
}

static kn_expr *turn(void *user, kiln_arena *a, kn_expr *e)
{
    const reorder *r = user;
    if (e->op == KN_OP_AXIS) return r->axis[e->u.axis] == e->u.axis ? e : kn_axis_ref(a, r->axis[e->u.axis]);
    const kn_value *v = e->op == KN_OP_LOAD ? r->of[e->u.tensor] : NULL;
    if (!v) return e;
    kn_expr *x = kn_new(a, kn_expr), **args = kn_array(a, kn_expr *, v->rank + 1);
    if (!x || !args) return NULL;
    *x = *e;
    x->args = args;
    for (int i = 0; i < v->rank; i++) args[i] = e->args[v->order[i]];
    return x;
}

/* The spatial axes of a statement follow the order of what it writes. */
static bool turn_stmt(kiln_arena *a, reorder *r, kn_stmt *s)
{
    const kn_value *v = r->of[s->out];
    kn_stmt old = *s;
    for (int i = 0; i < s->naxes; i++) r->axis[i] = i;
    for (int i = 0; v && i < v->rank; i++) {
        int from = old.lhs[v->order[i]]->u.axis;
        r->axis[from] = i;
        s->axes[i] = old.axes[from];
    }
    for (int i = 0; v && i < v->rank; i++)
        if (!(s->lhs[i] = kn_axis_ref(a, i))) return false;
    return (s->body = kn_rewrite(a, s->body, turn, r)) != NULL;
}

bool kn_reorder(kiln_arena *a, const kn_graph *g, const kn_node *n, kn_program *p)
{
    reorder r = {.of = {NULL}};
    int t = 0;
    bool any = false;
    for (int i = 0; i < n->ninputs; i++)
        if (n->inputs[i] >= 0) r.of[t++] = &g->values[n->inputs[i]];
    const kn_value *y = &g->values[n->outputs[0]];
    r.of[t++] = y;
    for (; t < p->ntensors; t++) /* what is of the output's shape becomes the output */
        if (p->tensors[t].rank == y->rank && !memcmp(p->tensors[t].shape, y->shape, sizeof *y->shape * (size_t)y->rank)) r.of[t] = y;
    for (int i = 0; i < t; i++) {
        if (!r.of[i]) continue;
        if (!r.of[i]->reordered) r.of[i] = NULL;
        if (r.of[i]) kn_value_stored(r.of[i], p->tensors[i].shape);
        any |= r.of[i] != NULL;
    }
    for (int i = 0; any && i < p->nstmts; i++)
        if (!turn_stmt(a, &r, p->stmts[i])) return false;
    return true;
}
