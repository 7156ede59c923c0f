/* Which nodes become one kernel: producers and epilogues go into their consumers where equation 4.10 of the thesis (4.6.2) sees a profit,
 *     R = dT / Pd + dC / Pc + dK * Lstart
 * with dT the bytes that are not moved any more, dC the operations saved (negative: done again), dK the kernels saved, and Pd, Pc, Lstart the
 * target's own bandwidth, peak and cost of a launch. It is an optimist: what it refuses would lose even at peak performance. */
#include "graph/plan.h"
#include <string.h>

enum { GROUP_STMTS = KILN_MAX_STMTS - 4, GROUP_TENSORS = KILN_MAX_TENSORS - 8 };

/* Whether every read of value v by node n is at the element that is being written. */
static bool reads_in_place(const kn_partition *p, const kn_node *n, int node, int v)
{
    const kn_program *q = p->programs[node];
    const kn_expr *loads[64];
    int x = 0;
    for (int i = 0; i < n->ninputs; i++) {
        if (n->inputs[i] < 0) continue;
        int tensor = x++;
        if (n->inputs[i] != v) continue;
        for (int s = 0; s < q->nstmts; s++) {
            const kn_stmt *st = q->stmts[s];
            int count = kn_loads(st->body, loads, 64);
            if (count > 64 || st->red != KN_RED_NONE || st->scatter) return false;
            for (int k = 0; k < count; k++) {
                if (loads[k]->u.tensor != tensor) continue;
                if (loads[k]->nargs != q->tensors[st->out].rank || loads[k]->padded) return false;
                for (int e = 0; e < loads[k]->nargs; e++) {
                    const kn_expr *at = loads[k]->args[e], *to = st->lhs[e];
                    if (q->tensors[tensor].shape[e] != q->tensors[st->out].shape[e]) return false;
                    if (q->tensors[tensor].shape[e] != 1 && !kn_expr_equal(at, to)) return false;
                }
            }
        }
    }
    return true;
}

/* How often node n reads the elements of v, all together. */
static double reads(const kn_partition *p, const kn_node *n, int node, int v)
{
    const kn_program *q = p->programs[node];
    const kn_expr *loads[64];
    double total = 0;
    int x = 0;
    for (int i = 0; i < n->ninputs; i++) {
        if (n->inputs[i] < 0) continue;
        int tensor = x++;
        for (int s = 0; n->inputs[i] == v && s < q->nstmts; s++) {
            double points = 1;
            int count = kn_loads(q->stmts[s]->body, loads, 64);
            for (int k = 0; k < q->stmts[s]->naxes; k++) points *= (double)q->stmts[s]->axes[k].extent;
            for (int k = 0; k < count && k < 64; k++) total += loads[k]->u.tensor == tensor ? points : 0;
        }
    }
    return total;
}

/* Whether somebody outside of groups x and y needs v in memory. */
static bool needed_outside(const kn_partition *p, int v, int x, int y)
{
    const kn_graph *g = p->g;
    if (kn_graph_is_output(g, v) || p->places[v].base != v) return true;
    for (int i = g->values[v].producer + 1; i < g->nnodes; i++)
        for (int k = 0; k < g->nodes[i].ninputs; k++)
            if (g->nodes[i].inputs[k] == v && (p->group_of[i] < 0 || (p->group_of[i] != x && p->group_of[i] != y))) return true;
    return false;
}

/* Pushes the groups whose results (through views and concatenations) node n reads. */
static void push_inputs(kn_partition *p, const kn_node *n, int *top)
{
    for (int i = 0; i < n->ninputs; i++) {
        if (n->inputs[i] < 0) continue;
        int from = p->g->values[n->inputs[i]].producer;
        if (from < 0) continue;
        int mark = p->group_of[from] >= 0 ? p->group_of[from] : p->g->nnodes + from;
        if (p->seen[mark] == p->turn) continue;
        p->seen[mark] = p->turn;
        p->stack[(*top)++] = mark;
    }
}

/* Whether a way leads from the inputs of groups x and y, through others, back to one of them. */
static bool makes_cycle(kn_partition *p, int x, int y)
{
    int n = p->g->nnodes, top = 0;
    const kn_group *both[2] = {&p->groups[x], &p->groups[y]};
    p->turn++;
    p->seen[x] = p->seen[y] = p->turn; /* edges between the two are no way through others */
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < both[b]->nnodes; i++) push_inputs(p, &p->g->nodes[both[b]->nodes[i]], &top);
    p->seen[x] = p->seen[y] = 0;
    while (top) {
        int m = p->stack[--top];
        if (m == x || m == y) return true;
        if (m >= n) {
            push_inputs(p, &p->g->nodes[m - n], &top);
            continue;
        }
        for (int i = 0; i < p->groups[m].nnodes; i++) push_inputs(p, &p->g->nodes[p->groups[m].nodes[i]], &top);
    }
    return false;
}

static const kn_node *node(const kn_partition *p, int i) { return &p->g->nodes[i]; }

/* What forbids that group x, which makes v, and group y with node n, which reads it, are one kernel; NULL: nothing. */
static const char *forbids(const kn_partition *p, int x, int y, int n, int v)
{
    const kn_group *gx = &p->groups[x], *gy = &p->groups[y];
    if (gx->kind == KN_CALL || gy->kind == KN_CALL) return "one of them is left to the caller";
    if (gx->nstmts + gy->nstmts > GROUP_STMTS || gx->ntensors + gy->ntensors > GROUP_TENSORS)
        return "the kernel would have too many statements or tensors";
    if (gx->kind == KN_CONTRACT && gy->kind > KN_MAP) return "chains of products and reductions are no kernel yet";
    if (gx->kind == KN_MOVE && gx->ntensors > 2 && gy->kind > KN_MAP) return "a sum would choose among the parts at every term";
    if (gx->kind != KN_CONTRACT && gx->kind != KN_MOVE && gy->kind == KN_CONTRACT) return "it would be computed again for every term of the product";
    bool contracts = gx->kind == KN_CONTRACT || gy->kind == KN_CONTRACT;
    if (contracts && needed_outside(p, v, x, y)) return "the value is needed elsewhere, too";
    if (gx->kind == KN_CONTRACT && !reads_in_place(p, node(p, n), n, v)) return "the product is not read element by element"; /* no epilogue */
    if (gx->kind == KN_REDUCE && gy->kind == KN_REDUCE && gx->nstmts + gy->nstmts > 12) return "the kernel would have too many reductions";
    return NULL;
}

/* Equation 4.10, in microseconds. */
static double profit(const kn_partition *p, int x, int y, int n, int v)
{
    const kn_hw *hw = p->hw;
    const kn_group *gx = &p->groups[x];
    const kn_value *value = &p->g->values[v];
    double bytes = (double)kn_value_bytes(value), moved = bytes * (needed_outside(p, v, x, y) ? 1 : 2);
    double again = gx->kind <= KN_MAP ? (reads(p, node(p, n), n, v) - (double)kn_value_elems(value)) * gx->flops : 0;
    double bandwidth = hw->levels[0].bandwidth_gbs * 1e3, peak = kn_hw_peak_gflops(hw, value->dtype) * 1e3; /* bytes, operations a us */
    return (bandwidth > 0 ? moved / bandwidth : 0) - (again > 0 && peak > 0 ? again / peak : 0) + hw->launch_us;
}

static bool merge(kn_partition *p, int x, int y, double gain)
{
    kn_group *gx = &p->groups[x], *gy = &p->groups[y];
    int *nodes = kn_array(p->a, int, gx->nnodes + gy->nnodes), i = 0, k = 0, n = 0;
    if (!nodes) return false;
    while (i < gx->nnodes || k < gy->nnodes)
        nodes[n++] = k == gy->nnodes || (i < gx->nnodes && gx->nodes[i] < gy->nodes[k]) ? gx->nodes[i++] : gy->nodes[k++];
    for (int j = 0; j < gx->nnodes; j++) p->group_of[gx->nodes[j]] = y;
    gy->nodes = nodes;
    gy->nnodes = n;
    if (gx->kind > gy->kind) gy->kind = gx->kind;
    gy->nstmts += gx->nstmts;
    gy->ntensors += gx->ntensors;
    gy->flops += gx->flops;
    gy->gain_us += gx->gain_us + gain;
    gx->nnodes = 0;
    return true;
}

/* The best producer of node n to become one kernel with; false: none. */
static bool merge_best(kn_partition *p, int n)
{
    int y = p->group_of[n], best = -1;
    double most = 0;
    for (int i = 0; i < node(p, n)->ninputs; i++) {
        int v = node(p, n)->inputs[i], from = v < 0 ? -1 : p->g->values[v].producer, x = from < 0 ? -1 : p->group_of[from];
        if (x < 0 || x == y || forbids(p, x, y, n, v)) continue;
        double gain = profit(p, x, y, n, v);
        if (gain > most && !makes_cycle(p, x, y)) {
            most = gain;
            best = x;
        }
    }
    return best >= 0 && merge(p, best, y, most);
}

const char *kn_partition_why(kn_partition *p, int x, int y, int n, int v, double *gain)
{
    const char *why = forbids(p, x, y, n, v);
    *gain = why ? 0 : profit(p, x, y, n, v);
    if (why) return why;
    if (*gain <= 0) return "computing it again at every read costs more than moving it";
    return makes_cycle(p, x, y) ? "another kernel lies between" : "each has grown since";
}

static double flops_an_element(const kn_program *q)
{
    double flops, bytes, elems = 1;
    const kn_tensor *out = &q->tensors[q->ninputs];
    kiln_work(q, &flops, &bytes);
    for (int i = 0; i < out->rank; i++) elems *= (double)out->shape[i];
    return flops / (elems > 0 ? elems : 1);
}

kiln_status kn_partition_group(kn_partition *p, kiln_diag *d)
{
    int n = p->g->nnodes;
    p->group_of = kn_array(p->a, int, n + 1);
    p->groups = kn_array(p->a, kn_group, n + 1);
    p->seen = kn_array(p->a, int, 2 * (size_t)n + 1);
    p->stack = kn_array(p->a, int, 2 * (size_t)n + 1);
    if (!p->group_of || !p->groups || !p->seen || !p->stack) return kn_fail(d, KILN_MEMORY, "out of memory");
    p->ngroups = n;
    for (int i = 0; i < n; i++) {
        p->group_of[i] = p->kinds[i] >= KN_MOVE ? i : -1;
        p->groups[i].order = -1;
        if (p->group_of[i] < 0) continue;
        int *own = kn_new(p->a, int);
        if (!own) return kn_fail(d, KILN_MEMORY, "out of memory");
        *own = i;
        p->groups[i] = (kn_group){.nnodes = 1, .nodes = own, .kind = p->kinds[i], .order = -1};
        if (!p->programs[i]) continue;
        p->groups[i].nstmts = p->programs[i]->nstmts;
        p->groups[i].ntensors = p->programs[i]->ntensors;
        p->groups[i].flops = flops_an_element(p->programs[i]);
    }
    for (int i = 0; i < n; i++) {
        if (kn_stopped(p->a)) return kn_fail(d, KILN_STOPPED, "out of time at node %d of %d", i + 1, n);
        while (p->group_of[i] >= 0 && merge_best(p, i)) {}
    }
    return kn_arena_dry(p->a) ? kn_fail(d, KILN_MEMORY, "out of memory") : KILN_OK;
}
