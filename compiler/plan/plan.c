/* The driver for whole models: graph to plan, as a straight list of calls; then slots and distinct kernels. */
#include "plan/text.h"
#include "graph/plan.h"
#include "plan/edges.h"
#include <stdio.h>
#include <string.h>

typedef struct planner {
    kiln_arena *a;
    const kn_graph *g;
    const kn_hw *hw;
    kn_partition *part;
    kiln_plan *plan;
    kiln_diag *d;
    bool *fixed;
    int64_t *offsets;
    int *feed, *weight, *result; /* of a value: its number there, or -1 */
    kiln_step *steps;
    const kiln_program **kernels;
    kiln_keys *keys;
    kiln_weight *weights;
    kiln_call *calls;
    int nsteps;          /* in steps so far */
    struct planner *of;  /* this one plans what runs once for that one; NULL: it plans what runs each time */
} planner;

static kiln_status dry(planner *q) { return kn_fail(q->d, KILN_MEMORY, "out of memory"); }

static void describe(const kn_value *v, const char *name, kiln_arg *out)
{
    *out = (kiln_arg){.name = name, .dtype = kn_dtype_text(v->dtype), .rank = v->rank, .elems = kn_value_elems(v), .bytes = kn_value_bytes(v)};
    memcpy(out->shape, v->shape, sizeof out->shape);
}

static bool open_tables(planner *q)
{
    int nv = q->g->nvalues;
    q->fixed = kn_array(q->a, bool, nv + 1);
    q->offsets = kn_array(q->a, int64_t, nv + 1);
    int *all = kn_array(q->a, int, 3 * (size_t)nv + 3);
    if (!q->fixed || !q->offsets || !all) return false;
    for (int i = 0; i < 3 * nv; i++) all[i] = -1;
    q->feed = all;
    q->weight = all + nv;
    q->result = all + 2 * nv;
    return true;
}

/* Graph inputs, and values whose memory is the caller's array of an output: the first output that is a kernel's whole result. */
static kiln_status ends(planner *q)
{
    const kn_graph *g = q->g;
    kiln_arg *in = kn_array(q->a, kiln_arg, g->ninputs + 1), *out = kn_array(q->a, kiln_arg, g->noutputs + 1);
    bool *held = kn_array(q->a, bool, g->noutputs + 1);
    if (!in || !out || !held) return dry(q);
    for (int i = 0; i < g->ninputs; i++) {
        const kn_value *v = &g->values[g->inputs[i]];
        describe(v, v->name, &in[i]);
        if (q->feed[g->inputs[i]] < 0) q->feed[g->inputs[i]] = i;
        q->fixed[g->inputs[i]] = true;
    }
    for (int i = 0; i < g->noutputs; i++) {
        int v = g->outputs[i], r = kn_source(q->part, v);
        describe(&g->values[v], g->values[v].name, &out[i]);
        held[i] = g->values[v].held;
        if (g->values[r].producer < 0 || q->result[r] >= 0 || q->part->places[v].offset) continue;
        if (kn_value_bytes(&g->values[r]) != out[i].bytes) continue;
        q->result[r] = i;
        q->fixed[r] = true;
    }
    for (int v = 0; v < g->nvalues; v++) q->fixed[v] |= g->values[v].data != NULL;
    if (q->of) return KILN_OK; /* its ends are weights */
    q->plan->ninputs = g->ninputs;
    q->plan->noutputs = g->noutputs;
    q->plan->inputs = in;
    q->plan->outputs = out;
    q->plan->held = held;
    return KILN_OK;
}

static int add_weight(planner *q, int v)
{
    const kn_value *x = &q->g->values[v];
    if (q->weight[v] >= 0) return q->weight[v];
    kiln_weight *w = &q->weights[q->plan->nweights];
    uint8_t digest[32];
    describe(x, *x->name ? x->name : kn_format(q->a, "constant%d", q->plan->nweights), &w->arg);
    w->data = (const char *)x->data->bytes;
    w->n = x->data->n;
    w->splat = x->data->splat;
    if (x->data->by_digest) kiln_hex(x->data->digest, 32, w->sha256);
    else if (w->data && !w->splat) {
        kiln_sha256(w->data, w->n, digest);
        kiln_hex(digest, 32, w->sha256);
    }
    w->once = x->data->once;
    w->of = -1;
    w->offset = w->splat || !w->data ? -1 : q->plan->weights_bytes;
    if (w->offset >= 0) q->plan->weights_bytes = kn_round_up(w->offset + w->arg.bytes, 64);
    return q->weight[v] = q->plan->nweights++;
}

/* Result i; of what runs once it is a weight of the rest. */
static kiln_slot result_slot(planner *q, int i, int64_t offset)
{
    if (!q->of) return (kiln_slot){KILN_RESULT, i, offset};
    return (kiln_slot){KILN_WEIGHT, add_weight(q->of, q->g->outputs[i]), offset};
}

static kiln_slot slot_of(planner *q, int v)
{
    int r = kn_source(q->part, v);
    int64_t offset = q->part->places[v].offset;
    if (q->result[r] >= 0) return result_slot(q, q->result[r], offset);
    if (q->feed[r] >= 0) return (kiln_slot){KILN_FEED, q->feed[r], offset};
    if (q->g->values[r].data) return (kiln_slot){KILN_WEIGHT, add_weight(q->of ? q->of : q, r), offset};
    return (kiln_slot){KILN_ARENA, 0, q->offsets[r] + offset};
}

/* A weight that a kernel may want in an order of its own: one entry for every way in which it is read. */
static kiln_slot packed_slot(planner *q, const kiln_slot *plain, int kernel, int input)
{
    if (plain->place != KILN_WEIGHT || plain->offset || !q->kernels[kernel]->tensors[input].constant) return *plain;
    for (int i = 0; i < q->plan->nweights; i++) {
        const kiln_weight *w = &q->weights[i];
        if (w->of == plain->index && w->kernel == kernel && w->input == input) return (kiln_slot){KILN_WEIGHT, i, 0};
    }
    kiln_weight *w = &q->weights[q->plan->nweights];
    *w = (kiln_weight){.arg = q->weights[plain->index].arg, .offset = -1, .of = plain->index, .kernel = kernel, .input = input};
    return (kiln_slot){KILN_WEIGHT, q->plan->nweights++, 0};
}

/* The number of the group's kernel among the distinct ones. */
static kiln_status kernel_of(planner *q, const kn_group *g, int *out)
{
    kiln_keys *k = &q->keys[q->plan->nkernels];
    kiln_status s = kiln_keys_of(q->a, g->program, q->hw, "default", k, q->d);
    if (s != KILN_OK) return s;
    for (int i = 0; i < q->plan->nkernels; i++)
        if (!strcmp(q->keys[i].kernel, k->kernel)) {
            *out = i;
            return KILN_OK;
        }
    q->kernels[q->plan->nkernels] = g->program;
    *out = q->plan->nkernels++;
    return KILN_OK;
}

/* A node that is left to the caller, under the names that the model has. */
static kiln_status call_of(planner *q, const kn_node *n, int *out)
{
    int count = n->ninputs + n->noutputs;
    kiln_call_value *values = kn_array(q->a, kiln_call_value, count + 1);
    if (!values) return dry(q);
    for (int i = 0; i < count; i++) {
        const kn_value *v = &q->g->values[i < n->ninputs ? n->inputs[i] : n->outputs[i - n->ninputs]];
        describe(v, n->left->names[i], &values[i].arg);
        values[i].held = v->held;
    }
    *out = -2 - q->plan->ncalls;
    q->calls[q->plan->ncalls++] = (kiln_call){.place = n->place, .op = n->left->op, .domain = n->left->domain, .name = n->name,
                                              .why = n->left->why, .nin = n->ninputs, .nout = n->noutputs, .values = values};
    return KILN_OK;
}

static const char *names_of(planner *q, const kn_group *g)
{
    kn_buf b;
    kn_buf_init(&b, q->a);
    for (int i = 0; i < g->nnodes; i++) {
        const kn_node *n = &q->g->nodes[g->nodes[i]];
        kn_putf(&b, "%s%s%s%s", i ? ", " : "", n->left ? n->left->op : n->op, *n->name ? " " : "", n->name);
    }
    kiln_bytes t = kn_buf_take(&b);
    return t.p ? t.p : "";
}

static kiln_status kernel_step(planner *q, const kn_group *g)
{
    kiln_step *s = &q->steps[q->nsteps++];
    kiln_slot *args = kn_array(q->a, kiln_slot, g->nin + g->nout + 1);
    if (!args) return dry(q);
    kiln_status status = g->program ? kernel_of(q, g, &s->kernel) : call_of(q, &q->g->nodes[g->nodes[0]], &s->kernel);
    if (status != KILN_OK) return status;
    for (int i = 0; i < g->nin; i++) {
        kiln_slot plain = slot_of(q, g->in[i]);
        args[i] = g->program ? packed_slot(q, &plain, s->kernel, i) : plain;
    }
    for (int i = 0; i < g->nout; i++) args[g->nin + i] = slot_of(q, g->out[i]);
    s->nargs = g->nin + g->nout;
    s->args = args;
    s->nodes = names_of(q, g);
    s->nnodes = g->nnodes;
    s->place = q->g->nodes[g->nodes[0]].place;
    s->gain_us = g->gain_us;
    if (g->program) kiln_work(g->program, &s->flops, &s->traffic);
    return KILN_OK;
}

/* Outputs that are inputs, constants, parts or second names of something. */
static kiln_status copies(planner *q)
{
    for (int i = 0; i < q->g->noutputs; i++) {
        int v = q->g->outputs[i];
        if (q->result[kn_source(q->part, v)] == i) continue;
        kiln_step *s = &q->steps[q->nsteps++];
        kiln_slot *args = kn_array(q->a, kiln_slot, 2);
        int64_t bytes = kn_value_bytes(&q->g->values[v]);
        if (!args) return dry(q);
        args[0] = slot_of(q, v);
        args[1] = result_slot(q, i, 0);
        *s = (kiln_step){.kernel = -1, .nargs = 2, .args = args, .bytes = bytes, .nodes = "copy", .traffic = 2.0 * (double)bytes};
    }
    return KILN_OK;
}

/* A plan of calls alone would be the caller's own runtime with a detour. */
static kiln_status nothing_left(planner *q)
{
    const kiln_call *c = &q->calls[0];
    kn_fail_at(q->d, KILN_UNSUPPORTED, c->place, "no node of the model can be compiled: %.380s", c->why);
    kn_hint(q->d, "a model after shape inference says what its nodes give; ?dims=NAME:1x2x3 says it of a value that has a dtype");
    return q->d->status;
}

static bool open_lists(planner *q, int nsteps, int nargs)
{
    q->kernels = kn_array(q->a, const kiln_program *, nsteps + 1);
    q->keys = kn_array(q->a, kiln_keys, nsteps + 1);
    q->calls = kn_array(q->a, kiln_call, nsteps + 1);
    q->weights = kn_array(q->a, kiln_weight, q->g->nvalues + nargs + 1); /* each input of each step may be a weight in an order of its own */
    q->plan->kernels = q->kernels;
    q->plan->keys = q->keys;
    q->plan->weights = q->weights;
    q->plan->calls = q->calls;
    return q->kernels && q->keys && q->weights && q->calls;
}

/* The steps of q's graph; the lists of the plan are shared with those that run once. */
static kiln_status steps(planner *q)
{
    q->steps = kn_array(q->a, kiln_step, q->part->nsteps + q->g->noutputs + 1);
    if (!q->steps) return dry(q);
    kiln_status s = KILN_OK;
    for (int i = 0; s == KILN_OK && i < q->part->nsteps; i++) s = kernel_step(q, &q->part->groups[q->part->steps[i]]);
    return s == KILN_OK ? copies(q) : s;
}

static int inputs_of(const planner *q)
{
    int n = 0;
    for (int i = 0; i < q->part->nsteps; i++) n += q->part->groups[q->part->steps[i]].nin;
    return n;
}

/* Both lists of steps: those of each run first, so that their weights come first, too. */
static kiln_status both(planner *q, planner *once)
{
    kiln_plan *p = q->plan;
    if (!open_lists(q, q->part->nsteps + (once ? once->part->nsteps : 0), inputs_of(q))) return dry(q);
    kiln_status s = steps(q);
    p->steps = q->steps;
    p->nsteps = q->nsteps;
    if (s == KILN_OK && once) {
        once->kernels = q->kernels;
        once->keys = q->keys;
        once->weights = q->weights;
        s = steps(once);
        p->once = once->steps;
        p->nonce = once->nsteps;
    }
    if (s == KILN_OK && p->ncalls && !p->nkernels) s = nothing_left(q);
    return s;
}

/* From a graph to its groups, and where their values lie. */
static kiln_status divide(planner *q, const kn_graph *g, int64_t *arena_bytes)
{
    kn_graph *ordered, *laid;
    kiln_status s = kn_graph_layout(q->a, g, q->hw, &ordered, q->d);
    if (s == KILN_OK) s = kn_graph_parts(q->a, ordered, q->hw, &laid, q->d);
    if (s != KILN_OK) return s;
    q->g = laid;
    if (!open_tables(q)) return dry(q);
    s = kn_partition_open(q->a, laid, q->hw, &q->part, q->d);
    if (s == KILN_OK) q->part->once = q->of != NULL;
    if (s == KILN_OK) s = kn_partition_group(q->part, q->d);
    if (s == KILN_OK) s = kn_partition_join(q->part, q->d);
    if (s == KILN_OK) s = ends(q);
    return s == KILN_OK ? kn_partition_memory(q->part, q->fixed, q->offsets, arena_bytes, q->d) : s;
}

kiln_status kiln_graph_plan(kiln_arena *a, const kiln_graph *g, const kiln_hw *hw, kiln_plan **out, kiln_diag *d)
{
    return kiln_graph_explain(a, g, hw, out, NULL, NULL, d);
}

kiln_status kiln_graph_explain(kiln_arena *a, const kiln_graph *g, const kiln_hw *hw, kiln_plan **out, const kiln_edge **edges, int *nedges,
                               kiln_diag *d)
{
    planner *q = kn_new(a, planner), *once = kn_new(a, planner);
    kiln_plan *plan = kn_new(a, kiln_plan);
    kn_graph *folded, *single, *before, *rest, *parts;
    if (!q || !once || !plan) return kn_fail(d, KILN_MEMORY, "out of memory");
    *q = (planner){.a = a, .hw = hw, .plan = plan, .d = d};
    *once = (planner){.a = a, .hw = hw, .plan = plan, .d = d, .of = q};
    if (!g->settled) return kn_fail(d, KILN_INTERNAL, "the graph is not settled");
    kiln_status s = kn_graph_fold(a, g, &folded, d);
    if (s == KILN_OK) s = kn_graph_same(a, folded, &single, d);
    if (s == KILN_OK) s = kn_graph_once(a, single, hw, &before, &rest, d);
    if (s == KILN_OK) s = kn_graph_batch(a, rest, hw, &parts, d);
    if (s == KILN_OK) s = divide(q, parts, &plan->arena_bytes);
    if (s == KILN_OK && before) s = divide(once, before, &plan->once_bytes);
    if (s == KILN_OK) s = both(q, before ? once : NULL);
    if (s == KILN_OK && edges) s = kn_plan_edges(q->part, plan, edges, nedges, d);
    if (s == KILN_OK && kn_plan_source(a, plan, &plan->source) != KILN_OK) s = dry(q);
    if (s == KILN_OK && kn_plan_manifest(a, plan, hw, NULL, &plan->manifest) != KILN_OK) s = dry(q);
    if (s == KILN_OK && kn_arena_dry(a)) s = dry(q);
    if (s == KILN_OK) *out = plan;
    return s;
}

kiln_status kiln_plan_request(kiln_arena *a, const kiln_plan *p, int kernel, kiln_request **out)
{
    const kiln_program *q = p->kernels[kernel];
    kiln_request *r = kn_new(a, kiln_request);
    const char **names = kn_array(a, const char *, q->ninputs + q->noutputs + 1);
    if (!r || !names) return KILN_MEMORY;
    for (int i = 0; i < q->ninputs + q->noutputs; i++) names[i] = q->tensors[i].name;
    *r = (kiln_request){.program = (kiln_program *)(uintptr_t)q, .target = "", .policy = "default", .quality = "any", .top_k = 10,
                        .ninputs = q->ninputs, .noutputs = q->noutputs, .input_names = names, .output_names = names + q->ninputs};
    r->trace.p = "";
    *out = r;
    return KILN_OK;
}
