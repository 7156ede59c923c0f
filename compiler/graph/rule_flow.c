/* Rules of operators with subgraphs. A branch that a constant chooses is inlined; one that data choose is computed both ways and selected
 * (branches have no effects); a loop whose number of turns is known is unrolled. */
#include "graph/settle.h"

static const kn_graph *subgraph(const kn_raw *r, const char *attr)
{
    const kn_gattr *a = kn_node_attr(r->n, attr);
    return a && a->kind == 'G' ? a->graph : NULL;
}

static bool alike(const kn_value *x, const kn_value *y)
{
    bool same = x->dtype == y->dtype && x->rank == y->rank;
    for (int i = 0; same && i < x->rank; i++) same = x->shape[i] == y->shape[i];
    return same;
}

kiln_status kn_rule_if(kn_raw *r)
{
    const kn_graph *yes = subgraph(r, "then_branch"), *no = subgraph(r, "else_branch");
    const kn_value *condition = kn_raw_in(r, 0);
    int n = r->n->noutputs, *a = kn_array(r->s->a, int, n + 1), *b = kn_array(r->s->a, int, n + 1);
    if (!a || !b) return kn_fail(r->s->d, KILN_MEMORY, "out of memory");
    if (!yes || !no || !condition || condition->dtype != KN_BOOL || kn_value_elems(condition) != 1)
        return kn_raw_bad(r, KILN_REQUEST, "a boolean of one element, then_branch and else_branch are right");
    if (yes->noutputs != n || no->noutputs != n)
        return kn_raw_bad(r, KILN_REQUEST, "branches of %d and %d outputs for %d", yes->noutputs, no->noutputs, n);
    if (kn_raw_known(r, 0)) return kn_settle_inline(r, kn_value_int(condition, 0) ? yes : no, 0, NULL, r->out);
    int rank = 0;
    int64_t none[1];
    int scalar = kn_emit_reshape(r->s, r->in[0], rank, none);
    kiln_status s = scalar < 0 ? r->s->d->status : kn_settle_inline(r, yes, 0, NULL, a);
    if (s == KILN_OK) s = kn_settle_inline(r, no, 0, NULL, b);
    for (int k = 0; s == KILN_OK && k < n; k++) {
        if (!alike(&r->s->g->values[a[k]], &r->s->g->values[b[k]]))
            return kn_raw_bad(r, KILN_UNSUPPORTED, "output %d has another shape or dtype in each branch, and data choose between them", k);
        int in[3] = {scalar, a[k], b[k]};
        s = kn_raw_out(r, k, a[k] == b[k] ? a[k] : kn_emit(r->s, "Where", 3, in, 0, NULL));
    }
    return s;
}

enum { MOST_TURNS = 1024 };

/* Elements that every turn hands out, stacked along a new first axis. */
static int stacked(kn_raw *r, int n, int *turns)
{
    for (int i = 0; i < n; i++) {
        const kn_value *v = &r->s->g->values[turns[i]];
        int64_t shape[KILN_MAX_RANK] = {1};
        if (v->rank == KILN_MAX_RANK) {
            kn_raw_bad(r, KILN_LIMIT, "more than %d dimensions", KILN_MAX_RANK);
            return -1;
        }
        for (int k = 0; k < v->rank; k++) shape[k + 1] = v->shape[k];
        if ((turns[i] = kn_emit_reshape(r->s, turns[i], v->rank + 1, shape)) < 0) return -1;
    }
    return kn_emit_concat(r->s, n, turns, 0);
}

kiln_status kn_rule_loop(kn_raw *r)
{
    const kn_graph *body = subgraph(r, "body");
    int state = r->nin - 2, scans;
    if (!body || state < 0 || body->noutputs < 1 + state)
        return kn_raw_bad(r, KILN_REQUEST, "a trip count, a condition and a body are right");
    scans = body->noutputs - 1 - state;
    int64_t trips = MOST_TURNS + 1;
    if (kn_raw_in(r, 0) && !kn_raw_known(r, 0)) return kn_raw_bad(r, KILN_UNSUPPORTED, "how often it turns depends on data");
    if (kn_raw_in(r, 0)) trips = kn_value_int(kn_raw_in(r, 0), 0);
    int *in = kn_array(r->s->a, int, state + 3), *out = kn_array(r->s->a, int, body->noutputs + 1);
    int **turns = kn_array(r->s->a, int *, scans + 1);
    for (int k = 0; turns && k < scans; k++)
        if (!(turns[k] = kn_array(r->s->a, int, MOST_TURNS + 1))) turns = NULL;
    if (!in || !out || !turns) return kn_fail(r->s->d, KILN_MEMORY, "out of memory");
    int condition = r->in[1], n = 0;
    for (int k = 0; k < state; k++) in[k + 2] = r->in[k + 2];
    for (; n < trips; n++) {
        const kn_value *c = condition < 0 ? NULL : &r->s->g->values[condition];
        if (c && (!c->data || !c->data->bytes))
            return kn_raw_bad(r, KILN_UNSUPPORTED, "whether it goes on after %d turns depends on data", n);
        if (c && !kn_value_int(c, 0)) break;
        if (n == MOST_TURNS) return kn_raw_bad(r, KILN_LIMIT, "more than %d turns", MOST_TURNS);
        in[0] = kn_emit_fill(r->s, KN_I64, 0, NULL, n);
        in[1] = condition < 0 ? kn_emit_fill(r->s, KN_BOOL, 0, NULL, 1) : condition;
        if (in[0] < 0 || in[1] < 0) return r->s->d->status;
        kiln_status s = kn_settle_inline(r, body, state + 2, in, out);
        if (s != KILN_OK) return s;
        condition = out[0];
        for (int k = 0; k < state; k++) in[k + 2] = out[k + 1];
        for (int k = 0; k < scans; k++) turns[k][n] = out[1 + state + k];
    }
    for (int k = 0; k < state && k < r->n->noutputs; k++) r->out[k] = in[k + 2];
    for (int k = 0; k < scans; k++) {
        if (!kn_raw_wants(r, state + k)) continue;
        if (!n) return kn_raw_bad(r, KILN_UNSUPPORTED, "it never turns, so output %d is empty", state + k);
        kiln_status s = kn_raw_out(r, state + k, stacked(r, n, turns[k]));
        if (s != KILN_OK) return s;
    }
    return KILN_OK;
}
