/* A group of nodes as one tensor-expression program in canonical form, and the order in which the groups run. */
#include "graph/plan.h"
#include <stdio.h>
#include <string.h>

typedef struct joiner {
    kn_partition *p;
    kn_group *g;
    int group;
    kn_program *out;
    int nvalues, values[KILN_MAX_TENSORS]; /* values[t]: the value that tensor t of `out` is; -1: a temporary of a node */
    int to[KILN_MAX_TENSORS];              /* of the node being joined: its tensor -> tensor of `out`; -2 - v: the literal of value v */
} joiner;

static int tensor_of(const joiner *j, int v)
{
    for (int t = 0; t < j->out->ntensors; t++)
        if (j->values[t] == v) return t;
    return -1;
}

static int add(joiner *j, int v, enum kn_dtype t, enum kn_role role, int rank, const int64_t *shape)
{
    const char *name = kn_format(j->p->a, "v%d", j->out->ntensors);
    int n = name ? kn_add_tensor(j->out, name, t, role, rank, shape) : -1;
    if (n >= 0) j->values[n] = v;
    return n;
}

static int add_value(joiner *j, int v, enum kn_role role)
{
    const kn_value *x = &j->p->g->values[v];
    int64_t shape[KILN_MAX_RANK];
    kn_value_stored(x, shape);
    int t = add(j, v, x->dtype, role, x->rank, shape);
    if (t >= 0) j->out->tensors[t].constant = role == KN_INPUT && x->data && j->g->kind == KN_CONTRACT && !j->p->hw->gpu && !j->p->once;
    return t;
}

static bool inside(const joiner *j, int v)
{
    int n = j->p->g->values[v].producer;
    return n >= 0 && j->p->group_of[n] == j->group;
}

static bool is_literal(const kn_value *v) { return v->data && v->data->bytes && kn_value_elems(v) == 1; }

static bool needed_outside(const joiner *j, int v)
{
    const kn_graph *g = j->p->g;
    if (kn_graph_is_output(g, v) || j->p->places[v].base != v) return true;
    for (int i = g->values[v].producer + 1; i < g->nnodes; i++)
        for (int k = 0; k < g->nodes[i].ninputs; k++)
            if (g->nodes[i].inputs[k] == v && j->p->group_of[i] != j->group) return true;
    return false;
}

/* Inputs first, then outputs: the order that programs have. Constants of one element become literals of the expression. */
static bool declare(joiner *j)
{
    const kn_graph *g = j->p->g;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < j->g->nnodes; i++) {
            const kn_node *n = &g->nodes[j->g->nodes[i]];
            for (int k = 0; !pass && k < n->ninputs; k++) {
                int v = n->inputs[k];
                if (v < 0 || inside(j, v) || tensor_of(j, v) >= 0 || is_literal(&g->values[v])) continue;
                if (add_value(j, v, KN_INPUT) < 0) return false;
            }
            if (pass && needed_outside(j, n->outputs[0]) && add_value(j, n->outputs[0], KN_OUTPUT) < 0) return false;
        }
    return true;
}

static kn_expr *literal(joiner *j, const kn_value *v)
{
    kiln_arena *a = j->p->a;
    return kn_dtype_class(v->dtype) == 'f' ? kn_const_f(a, v->dtype, kn_value_double(v, 0)) : kn_const_i(a, v->dtype, kn_value_int(v, 0));
}

/* Loads of a node's program become loads of the joint one, or literals. */
static kn_expr *reload(void *user, kiln_arena *a, kn_expr *e)
{
    joiner *j = user;
    if (e->op != KN_OP_LOAD) return e;
    int t = j->to[e->u.tensor];
    if (t <= -2) return literal(j, &j->p->g->values[-2 - t]);
    kn_expr *r = kn_new(a, kn_expr);
    if (!r) return NULL;
    *r = *e;
    r->u.tensor = t;
    return r;
}

/* The tensors of node n's program as tensors of the joint one. */
static bool number(joiner *j, const kn_node *n, const kn_program *q)
{
    int x = 0, *to = j->to;
    for (int k = 0; k < n->ninputs; k++) {
        int v = n->inputs[k];
        if (v < 0) continue;
        to[x] = !inside(j, v) && is_literal(&j->p->g->values[v]) ? -2 - v : tensor_of(j, v);
        if (to[x++] == -1) return false;
    }
    to[x] = tensor_of(j, n->outputs[0]);
    if (to[x] < 0 && (to[x] = add_value(j, n->outputs[0], KN_TEMP)) < 0) return false;
    for (int t = x + 1; t < q->ntensors; t++)
        if ((to[t] = add(j, -1, q->tensors[t].dtype, KN_TEMP, q->tensors[t].rank, q->tensors[t].shape)) < 0) return false;
    return true;
}

static bool join_node(joiner *j, int node)
{
    const kn_program *q = j->p->programs[node];
    if (!number(j, &j->p->g->nodes[node], q)) return false;
    for (int i = 0; i < q->nstmts; i++) {
        kn_stmt *s = kn_new(j->p->a, kn_stmt);
        if (!s || j->out->nstmts == KILN_MAX_STMTS) return false;
        *s = *q->stmts[i];
        s->out = j->to[s->out];
        if (!(s->body = kn_rewrite(j->p->a, s->body, reload, j))) return false;
        for (int k = 0; k < q->tensors[q->stmts[i]->out].rank; k++) /* a scatter reads there, too */
            if (!(s->lhs[k] = kn_rewrite(j->p->a, s->lhs[k], reload, j))) return false;
        j->out->stmts[j->out->nstmts++] = s;
    }
    return true;
}

/* A call takes and gives its node's values as they are. */
static kiln_status join_call(kn_partition *p, kn_group *g, kiln_diag *d)
{
    const kn_node *n = &p->g->nodes[g->nodes[0]];
    g->nin = n->ninputs;
    g->nout = n->noutputs;
    g->in = kn_array(p->a, int, g->nin + 1);
    g->out = kn_array(p->a, int, g->nout + 1);
    if (!g->in || !g->out) return kn_fail(d, KILN_MEMORY, "out of memory");
    for (int i = 0; i < g->nin; i++) g->in[i] = n->inputs[i];
    for (int i = 0; i < g->nout; i++) g->out[i] = n->outputs[i];
    return KILN_OK;
}

static kiln_status join_group(kn_partition *p, int group, kiln_diag *d)
{
    kn_group *g = &p->groups[group];
    joiner *j = kn_new(p->a, joiner);
    const char *place = p->g->nodes[g->nodes[0]].place;
    int in[KILN_MAX_TENSORS], out[KILN_MAX_TENSORS];
    if (g->kind == KN_CALL) return join_call(p, g, d);
    if (!j) return kn_fail(d, KILN_MEMORY, "out of memory");
    *j = (joiner){.p = p, .g = g, .group = group, .out = kn_program_new(p->a)};
    bool ok = j->out && declare(j);
    for (int i = 0; ok && i < g->nnodes; i++) ok = join_node(j, g->nodes[i]);
    if (kn_arena_dry(p->a)) return kn_fail(d, KILN_MEMORY, "out of memory");
    if (!ok) return kn_fail_at(d, KILN_LIMIT, place, "the kernel with this node would have more than %d tensors", KILN_MAX_TENSORS);
    kiln_status s = kn_check(j->out, d);
    if (s == KILN_OK) s = kn_canon(p->a, j->out, &g->program, in, out, d);
    if (s != KILN_OK) {
        snprintf(d->pointer, sizeof d->pointer, "%s", place);
        return s;
    }
    g->nin = j->out->ninputs;
    g->nout = j->out->noutputs;
    g->in = kn_array(p->a, int, g->nin + 1);
    g->out = kn_array(p->a, int, g->nout + 1);
    if (!g->in || !g->out) return kn_fail(d, KILN_MEMORY, "out of memory");
    for (int i = 0; i < g->nin; i++) g->in[i] = j->values[in[i]];
    for (int i = 0; i < g->nout; i++) g->out[i] = j->values[g->nin + out[i]];
    return KILN_OK;
}

/* Whether all that node n reads has been made; views and concatenations are made with what they are made of. */
static bool made(const kn_partition *p, int v, int group, const bool *done)
{
    int n = p->g->values[v].producer;
    if (n < 0) return true;
    if (p->group_of[n] >= 0) return p->group_of[n] == group || done[p->group_of[n]];
    for (int i = 0; i < p->g->nodes[n].ninputs; i++)
        if (p->g->nodes[n].inputs[i] >= 0 && !made(p, p->g->nodes[n].inputs[i], group, done)) return false;
    return true;
}

/* The ready group whose last node comes first, again and again: close to the client's order. */
static kiln_status order(kn_partition *p, kiln_diag *d)
{
    int n = p->ngroups;
    bool *done = kn_array(p->a, bool, n + 1);
    p->steps = kn_array(p->a, int, n + 1);
    if (!done || !p->steps) return kn_fail(d, KILN_MEMORY, "out of memory");
    for (;;) {
        int best = -1, last = 0;
        for (int x = 0; x < n; x++) {
            const kn_group *g = &p->groups[x];
            if (!g->nnodes || done[x] || (best >= 0 && g->nodes[g->nnodes - 1] > last)) continue;
            bool ready = true;
            for (int i = 0; ready && i < g->nnodes; i++)
                for (int k = 0; ready && k < p->g->nodes[g->nodes[i]].ninputs; k++) {
                    int v = p->g->nodes[g->nodes[i]].inputs[k];
                    ready = v < 0 || made(p, v, x, done);
                }
            if (!ready) continue;
            best = x;
            last = g->nodes[g->nnodes - 1];
        }
        if (best < 0) break;
        done[best] = true;
        p->groups[best].order = p->nsteps;
        p->steps[p->nsteps++] = best;
    }
    for (int x = 0; x < n; x++)
        if (p->groups[x].nnodes && !done[x]) return kn_fail(d, KILN_INTERNAL, "the groups of the graph cannot be put in an order");
    return KILN_OK;
}

kiln_status kn_partition_join(kn_partition *p, kiln_diag *d)
{
    kiln_status s = order(p, d);
    for (int i = 0; s == KILN_OK && i < p->nsteps; i++) {
        if (kn_stopped(p->a)) return kn_fail(d, KILN_STOPPED, "out of time at kernel %d of %d", i + 1, p->nsteps);
        s = join_group(p, p->steps[i], d);
    }
    return s;
}
