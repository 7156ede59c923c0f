/* A model of many samples as parts of it one after the other, a few samples at a time: what flows between its nodes then stays in a near cache, and
 * what is paid for it is that weights are read again for every part. One run of nodes is cut, the one for which the target's bandwidths say that it
 * pays most; large weights behind it still serve all samples at once. A cut graph is a graph like any other: rows of the values that enter are read
 * through slices, which are views, those that leave are concatenated, which moves nothing; all parts have the same kernels. */
#include "graph/plan.h"
#include "graph/settle.h"
#include <string.h>

enum { PARTS = 16, NODES = 4096, WORTH = 50 }; /* WORTH: what is saved is one part of so many of what computing takes, at least */
enum does { WHOLE, ROWS, MIXED }; /* what a node reads: no samples; samples, each for itself; samples together */

typedef struct batch {
    kiln_arena *a;
    const kn_graph *g;
    const kn_hw *hw;
    kiln_diag *d;
    int64_t samples;
    bool *rows;            /* of a value: its rows are those of the samples, one after the other */
    enum does *does;       /* of a node */
    enum kn_kind *kinds;
    kn_program **programs; /* of a node that is no view */
    int *base;             /* of a value: the one whose memory it lies in */
    bool *stored;          /* of a base: it has to be in memory between two kernels, as far as can be said before nodes are grouped */
    double *gains;         /* of a node: microseconds */
    int *names;            /* of a value, while a part is written: what it is there; -1 */
} batch;

typedef struct cut { int from, to, parts; double gain; } cut;

static bool open_tables(batch *b)
{
    size_t nv = (size_t)b->g->nvalues + 1, nn = (size_t)b->g->nnodes + 1;
    b->rows = kn_array(b->a, bool, 2 * nv);
    b->base = kn_array(b->a, int, 2 * nv);
    b->does = kn_array(b->a, enum does, nn);
    b->kinds = kn_array(b->a, enum kn_kind, nn);
    b->programs = kn_array(b->a, kn_program *, nn);
    b->gains = kn_array(b->a, double, nn);
    if (!b->rows || !b->base || !b->does || !b->kinds || !b->programs || !b->gains) return false;
    b->stored = b->rows + nv;
    b->names = b->base + nv;
    for (int v = 0; v < b->g->nvalues; v++) b->base[v] = v;
    return true;
}

/* The extent that the first inputs' first dimension has; 0: there is none that could be cut. */
static int64_t samples_of(const kn_graph *g)
{
    for (int i = 0; i < g->ninputs; i++) {
        const kn_value *v = &g->values[g->inputs[i]];
        if (v->rank && v->shape[0] > 1) return v->shape[0];
    }
    return 0;
}

static kiln_status look_at(batch *b, int i)
{
    const kn_graph *g = b->g;
    const kn_node *n = &g->nodes[i];
    const kn_value *y = &g->values[n->outputs[0]];
    bool rows[KILN_MAX_TENSORS] = {false}, any = false;
    int t = 0;
    for (int k = 0; k < n->ninputs; k++)
        if (n->inputs[k] >= 0) {
            bool r = b->rows[n->inputs[k]];
            if (t < KILN_MAX_TENSORS) rows[t++] = r;
            any |= r;
        }
    b->kinds[i] = n->left ? KN_CALL : KN_VIEW;
    b->does[i] = n->left ? MIXED : any ? ROWS : WHOLE;
    if (n->left) return KILN_OK;
    if (kn_node_is_view(n)) {
        b->base[n->outputs[0]] = b->base[n->inputs[0]];
        if (any && (!y->rank || y->shape[0] % b->samples)) b->does[i] = MIXED;
    } else {
        kiln_status s = kn_node_program(b->a, g, n, &b->programs[i], b->d);
        if (s != KILN_OK) return s;
        b->kinds[i] = kn_kind_of(b->programs[i]);
        if (any && !kn_rows_apart(b->programs[i], rows)) b->does[i] = MIXED;
    }
    b->rows[n->outputs[0]] = b->does[i] == ROWS;
    return KILN_OK;
}

/* What is read by anything but maps, which join the kernel that makes it, has to be stored. */
static kiln_status look(batch *b)
{
    const kn_graph *g = b->g;
    for (int i = 0; i < g->ninputs; i++) {
        const kn_value *v = &g->values[g->inputs[i]];
        b->rows[g->inputs[i]] = v->rank && v->shape[0] == b->samples && !v->held;
    }
    for (int i = 0; i < g->nnodes; i++) {
        if (kn_stopped(b->a)) return kn_fail(b->d, KILN_STOPPED, "out of time at node %d of %d", i + 1, g->nnodes);
        kiln_status s = look_at(b, i);
        if (s != KILN_OK) return s;
        for (int k = 0; k < g->nodes[i].ninputs; k++)
            if (g->nodes[i].inputs[k] >= 0 && b->kinds[i] > KN_MAP) b->stored[b->base[g->nodes[i].inputs[k]]] = true;
    }
    for (int i = 0; i < g->noutputs; i++) b->stored[b->base[g->outputs[i]]] = true;
    return KILN_OK;
}

/* Bytes a microsecond that flow from where so many of them stay: the nearest level with room for them. */
static double rate(const kn_hw *hw, double bytes)
{
    double best = hw->levels[0].bandwidth_gbs;
    for (int i = 1; i < hw->nlevels && hw->levels[i].bandwidth_gbs > 0; i++) {
        int shared = hw->levels[i].shared_by_units > 0 ? hw->levels[i].shared_by_units : 1;
        double instances = shared < hw->units ? (double)hw->units / shared : 1;
        if (bytes <= (double)hw->levels[i].capacity_bytes * instances) best = hw->levels[i].bandwidth_gbs;
    }
    return best * 1e3;
}

/* How many bytes of input t the program touches, when it does one part of so many. */
static double touched(const kn_program *p, int t, double bytes, int parts)
{
    const kn_expr *loads[64];
    double n = 0;
    for (int s = 0; s < p->nstmts; s++) {
        double points = kn_dtype_bytes(p->tensors[t].dtype);
        int count = kn_loads(p->stmts[s]->body, loads, 64);
        for (int i = 0; i < p->stmts[s]->naxes; i++) points *= (double)p->stmts[s]->axes[i].extent;
        for (int i = 0; i < count && i < 64; i++) n += loads[i]->u.tensor == t ? points / parts : 0;
    }
    return n < bytes ? n : bytes;
}

/* What cutting node i saves: its samples come from nearer; what it reads beside them is read again, from `again` bytes a microsecond. */
static double gain_of(const batch *b, int i, int parts, double again)
{
    const kn_node *n = &b->g->nodes[i];
    double gain = 0;
    int t = 0;
    for (int k = 0; k <= n->ninputs; k++) {
        int v = k < n->ninputs ? n->inputs[k] : n->outputs[0];
        if (v < 0) continue;
        double bytes = (double)kn_value_bytes(&b->g->values[v]);
        if (!b->rows[v]) gain -= (parts * touched(b->programs[i], t, bytes, parts) - touched(b->programs[i], t, bytes, 1)) / again;
        else if (b->stored[b->base[v]]) gain += bytes / rate(b->hw, bytes) - bytes / rate(b->hw, bytes / parts);
        t++;
    }
    bool kernel = b->kinds[i] > KN_MAP || b->stored[b->base[n->outputs[0]]];
    return kernel ? gain - (parts - 1) * b->hw->launch_us : gain;
}

/* The run of nodes with the greatest sum of gains, none of which takes samples together. */
static cut best_run(const batch *b, int parts)
{
    cut best = {0, 0, parts, 0}, run = {0, 0, parts, 0};
    for (int i = 0; i < b->g->nnodes; i++) {
        run.gain += b->gains[i];
        run.to = i + 1;
        if (b->does[i] == MIXED || run.gain <= 0) run = (cut){i + 1, i + 1, parts, 0};
        if (run.gain > best.gain) best = run;
    }
    return best;
}

/* Bytes that every part of a run reads beside its samples. */
static double weights(const batch *b, const cut *c)
{
    double bytes = 0;
    for (int i = c->from; i < c->to; i++)
        for (int k = 0; b->does[i] == ROWS && k < b->g->nodes[i].ninputs; k++) {
            int v = b->g->nodes[i].inputs[k];
            if (v >= 0 && !b->rows[v]) bytes += (double)kn_value_bytes(&b->g->values[v]);
        }
    return bytes;
}

static bool inside(const batch *b, const cut *c, int node) { return node >= c->from && node < c->to && b->does[node] == ROWS; }

/* Whether value v, which the run makes, is read behind it. */
static bool leaves(const batch *b, const cut *c, int v)
{
    if (kn_graph_is_output(b->g, v)) return true;
    for (int i = c->to; i < b->g->nnodes; i++)
        for (int k = 0; k < b->g->nodes[i].ninputs; k++)
            if (b->g->nodes[i].inputs[k] == v) return true;
    return false;
}

/* The best cut into so many parts; near: what is read again comes from the caches. */
static cut try_parts(batch *b, int parts, bool near)
{
    const kn_hw_level *l = b->hw->nlevels > 1 ? &b->hw->levels[1] : &b->hw->levels[0];
    double again = (near ? l->bandwidth_gbs : b->hw->levels[0].bandwidth_gbs) * 1e3;
    for (int i = 0; i < b->g->nnodes; i++)
        b->gains[i] = b->does[i] == ROWS && b->kinds[i] > KN_VIEW && again > 0 ? gain_of(b, i, parts, again) : 0;
    cut c = best_run(b, parts);
    bool fits = !near || weights(b, &c) <= (double)l->capacity_bytes;
    if (!fits || b->g->nnodes + (c.to - c.from) * (int64_t)(parts - 1) > NODES) c.gain = 0;
    return c;
}

static cut choose(batch *b)
{
    cut best = {0, 0, 1, 0};
    double computing = 0;
    for (int parts = 2; parts <= PARTS && parts <= b->samples; parts++)
        for (int near = 0; near < 2 && b->samples % parts == 0; near++) {
            cut c = try_parts(b, parts, near);
            if (c.gain > best.gain) best = c;
        }
    for (int i = 0; i < b->g->nnodes; i++) {
        if (!b->programs[i]) continue;
        double flops, bytes, peak = kn_hw_peak_gflops(b->hw, b->g->values[b->g->nodes[i].outputs[0]].dtype) * 1e3;
        kiln_work(b->programs[i], &flops, &bytes);
        computing += peak > 0 ? flops / peak : 0;
    }
    if (best.gain * WORTH < computing) best.parts = 1;
    return best;
}

/* ---- the cut graph ---- */

static int part_of_value(batch *b, kn_graph *q, int v, int parts)
{
    int w = kn_graph_value(b->a, q, "");
    if (w < 0) return -1;
    const char *name = q->values[w].name;
    q->values[w] = q->values[v];
    q->values[w].name = name;
    q->values[w].producer = -1;
    q->values[w].shape[0] /= parts;
    return w;
}

static int add_node(batch *b, kn_graph *q, const kn_node *like, const char *op, int nin, const int *in, int out, int nattrs, const kn_gattr *attrs)
{
    int *io = kn_array(b->a, int, nin + 1);
    kn_gattr *copies = kn_array(b->a, kn_gattr, nattrs + 1);
    if (!io || !copies) return -1;
    memcpy(io, in, sizeof *io * (size_t)nin);
    io[nin] = out;
    if (nattrs) memcpy(copies, attrs, sizeof *copies * (size_t)nattrs);
    kn_node n = {.op = op, .domain = "", .name = like->name, .place = like->place, .ninputs = nin, .noutputs = 1, .nattrs = nattrs,
                 .inputs = io, .outputs = io + nin, .attrs = copies};
    return kn_graph_node(b->a, q, &n);
}

/* Rows of v, which is made before the run, for a part of it. */
static int entering(batch *b, kn_graph *q, const kn_node *n, int v, const cut *c, int part)
{
    int w = part_of_value(b, q, v, c->parts);
    if (w < 0) return -1;
    int64_t rows = q->values[w].shape[0], from = part * rows, to = from + rows, axis = 0;
    kn_gattr attrs[3] = {kn_gattr_ints(b->a, "starts", 1, &from), kn_gattr_ints(b->a, "ends", 1, &to), kn_gattr_ints(b->a, "axes", 1, &axis)};
    return add_node(b, q, n, "Slice", 1, &v, w, 3, attrs) < 0 ? -1 : w;
}

/* Whether the operator, asked about fewer samples, makes of them what the part is to hold. */
static kiln_status as_expected(batch *b, const kn_graph *q, const kn_node *n, bool *expected)
{
    kn_program *p;
    kiln_diag d = {0};
    const kn_value *y = &q->values[n->outputs[0]];
    *expected = true;
    if (kn_node_is_view(n)) return KILN_OK;
    kiln_status s = kn_node_program(b->a, q, n, &p, &d);
    if (s == KILN_MEMORY) return kn_fail(b->d, s, "out of memory");
    const kn_tensor *t = s == KILN_OK ? &p->tensors[p->ninputs] : NULL;
    *expected = t && t->rank == y->rank && !memcmp(t->shape, y->shape, sizeof *t->shape * (size_t)t->rank);
    return KILN_OK;
}

/* *blame: node i, where it cannot be cut. */
static kiln_status write_node(batch *b, kn_graph *q, int i, const cut *c, int part, int *blame)
{
    const kn_node *n = &b->g->nodes[i];
    int *in = kn_array(b->a, int, n->ninputs + 1), node = -1;
    bool ok = in != NULL, expected = true;
    for (int k = 0; ok && k < n->ninputs; k++) {
        int v = in[k] = n->inputs[k];
        if (v < 0 || !b->rows[v]) continue;
        if (b->names[v] < 0) b->names[v] = entering(b, q, n, v, c, part);
        ok = (in[k] = b->names[v]) >= 0;
    }
    int y = ok ? b->names[n->outputs[0]] = part_of_value(b, q, n->outputs[0], c->parts) : -1;
    if (y >= 0) node = add_node(b, q, n, n->op, n->ninputs, in, y, n->nattrs, n->attrs);
    if (node < 0) return kn_fail(b->d, KILN_MEMORY, "out of memory");
    kiln_status s = part ? KILN_OK : as_expected(b, q, &q->nodes[node], &expected);
    if (!expected) *blame = i;
    return s;
}

/* All parts of the run, node by node in each; then what leaves, in one piece. *blame: a node that cannot be cut. */
static kiln_status write_parts(batch *b, kn_graph *q, const cut *c, int *blame)
{
    int **made = kn_array(b->a, int *, c->to - c->from + 1);
    if (!made) return kn_fail(b->d, KILN_MEMORY, "out of memory");
    for (int part = 0; part < c->parts; part++) {
        for (int v = 0; v < b->g->nvalues; v++) b->names[v] = -1;
        for (int i = c->from; i < c->to; i++) {
            if (!inside(b, c, i)) continue;
            if (!made[i - c->from] && !(made[i - c->from] = kn_array(b->a, int, c->parts))) return kn_fail(b->d, KILN_MEMORY, "out of memory");
            kiln_status s = write_node(b, q, i, c, part, blame);
            if (s != KILN_OK || *blame >= 0) return s;
            made[i - c->from][part] = b->names[b->g->nodes[i].outputs[0]];
        }
    }
    for (int i = c->from; i < c->to; i++) {
        const kn_node *n = &b->g->nodes[i];
        if (!inside(b, c, i) || !leaves(b, c, n->outputs[0])) continue;
        kn_gattr axis = kn_gattr_int("axis", 0);
        if (add_node(b, q, n, "Concat", c->parts, made[i - c->from], n->outputs[0], 1, &axis) < 0) return kn_fail(b->d, KILN_MEMORY, "out of memory");
    }
    return KILN_OK;
}

static kiln_status write(batch *b, const cut *c, kn_graph **out, int *blame)
{
    kn_graph *q = kn_graph_bare(b->a, b->g);
    kiln_status s = KILN_OK;
    bool ok = q != NULL;
    for (int i = 0; ok && i < c->to; i++)
        if (!inside(b, c, i)) ok = kn_graph_node(b->a, q, &b->g->nodes[i]) >= 0;
    if (ok) s = write_parts(b, q, c, blame);
    for (int i = c->to; ok && s == KILN_OK && *blame < 0 && i < b->g->nnodes; i++) ok = kn_graph_node(b->a, q, &b->g->nodes[i]) >= 0;
    *out = q;
    return !ok || kn_arena_dry(b->a) ? kn_fail(b->d, KILN_MEMORY, "out of memory") : s;
}

kiln_status kn_graph_batch(kiln_arena *a, const kn_graph *g, const kn_hw *hw, kn_graph **out, kiln_diag *d)
{
    batch b = {.a = a, .g = g, .hw = hw, .d = d, .samples = hw->gpu ? 0 : samples_of(g)};
    *out = (kn_graph *)(uintptr_t)g;
    if (!b.samples) return KILN_OK;
    if (!open_tables(&b)) return kn_fail(d, KILN_MEMORY, "out of memory");
    kiln_status s = look(&b);
    while (s == KILN_OK) {
        cut c = choose(&b);
        int blame = -1;
        kn_graph *q;
        if (c.parts < 2) break;
        s = write(&b, &c, &q, &blame);
        if (s == KILN_OK && blame < 0) return *out = q, KILN_OK;
        if (s == KILN_OK) b.does[blame] = MIXED;
    }
    return s;
}
