/* Rule of Scan (opset 9 on), unrolled: the body takes the state and one slice of every scanned input, and gives the state and one slice of
 * every scanned output. */
#include "graph/settle.h"

enum { MOST_TURNS = 1024 };

typedef struct scan {
    kn_raw *r;
    const kn_graph *body;
    int state, scanned, collected;
    int64_t turns;
    int axes[KILN_MAX_GRAPH_ARGS];
} scan;

/* Entry k of an attribute that lists one number for each; 0 where it is left out. */
static int64_t entry(const scan *c, const char *attr, int k)
{
    const kn_gattr *a = kn_node_attr(c->r->n, attr);
    return a && a->kind == 'I' && k < a->n ? a->ints[k] : 0;
}

static kiln_status check(scan *c)
{
    kn_raw *r = c->r;
    const kn_gattr *body = kn_node_attr(r->n, "body");
    if (r->opset < 9) return kn_raw_bad(r, KILN_UNSUPPORTED, "the form before opset 9 is not supported");
    c->scanned = (int)kn_raw_int(r, "num_scan_inputs", 0);
    if (!body || body->kind != 'G' || c->scanned < 1 || c->scanned > r->nin)
        return kn_raw_bad(r, KILN_REQUEST, "a body and num_scan_inputs are right");
    c->body = body->graph;
    c->state = r->nin - c->scanned;
    c->collected = c->body->noutputs - c->state;
    if (c->collected < 0 || c->body->ninputs != r->nin)
        return kn_raw_bad(r, KILN_REQUEST, "the body takes %d inputs, not %d", c->body->ninputs, r->nin);
    for (int k = 0; k < c->scanned; k++) {
        const kn_value *x = kn_raw_in(r, c->state + k);
        if (!x || !x->rank) return kn_raw_bad(r, KILN_SHAPE, "scanned input %d has no axis", k);
        kiln_status s = kn_raw_axis(r, entry(c, "scan_input_axes", k), x->rank, &c->axes[k]);
        if (s != KILN_OK) return s;
        if (k && x->shape[c->axes[k]] != c->turns) return kn_raw_bad(r, KILN_SHAPE, "scanned inputs of different lengths");
        c->turns = x->shape[c->axes[k]];
    }
    return c->turns <= MOST_TURNS ? KILN_OK
                                  : kn_raw_bad(r, KILN_LIMIT, "%lld turns; at most %d are unrolled", (long long)c->turns, MOST_TURNS);
}

/* Slice t of scanned input k, its axis gone. */
static int slice(scan *c, int k, int64_t t)
{
    kn_settle *s = c->r->s;
    int v = c->r->in[c->state + k], axis = c->axes[k], rank = 0;
    int64_t at = entry(c, "scan_input_directions", k) ? c->turns - 1 - t : t, shape[KILN_MAX_RANK];
    for (int i = 0; i < s->g->values[v].rank; i++)
        if (i != axis) shape[rank++] = s->g->values[v].shape[i];
    return kn_emit_reshape(s, kn_emit_slice(s, v, axis, at, at + 1, 1), rank, shape);
}

/* Slices of output k along an axis of their own. */
static int collect(scan *c, int k, int *parts)
{
    kn_settle *s = c->r->s;
    bool reverse = entry(c, "scan_output_directions", k) != 0;
    int axis = 0, rank = s->g->values[parts[0]].rank;
    if (kn_raw_axis(c->r, entry(c, "scan_output_axes", k), rank + 1, &axis) != KILN_OK) return -1;
    if (rank == KILN_MAX_RANK) {
        kn_raw_bad(c->r, KILN_LIMIT, "more than %d dimensions", KILN_MAX_RANK);
        return -1;
    }
    for (int64_t t = 0; t < c->turns; t++) {
        int64_t shape[KILN_MAX_RANK];
        if (s->g->values[parts[t]].rank != rank) {
            kn_raw_bad(c->r, KILN_SHAPE, "output %d of the body changes its rank", c->state + k);
            return -1;
        }
        for (int i = 0, from = 0; i <= rank; i++) shape[i] = i == axis ? 1 : s->g->values[parts[t]].shape[from++];
        if ((parts[t] = kn_emit_reshape(s, parts[t], rank + 1, shape)) < 0) return -1;
    }
    for (int64_t i = 0, j = c->turns - 1; reverse && i < j; i++, j--) {
        int x = parts[i];
        parts[i] = parts[j];
        parts[j] = x;
    }
    return kn_emit_concat(s, (int)c->turns, parts, axis);
}

kiln_status kn_rule_scan(kn_raw *r)
{
    scan *c = kn_new(r->s->a, scan);
    if (!c) return kn_fail(r->s->d, KILN_MEMORY, "out of memory");
    c->r = r;
    kiln_status s = check(c);
    if (s != KILN_OK) return s;
    int *in = kn_array(r->s->a, int, r->nin + 1), *out = kn_array(r->s->a, int, c->body->noutputs + 1);
    int *parts = kn_array(r->s->a, int, (int64_t)(c->collected + 1) * c->turns);
    if (!in || !out || !parts) return kn_fail(r->s->d, KILN_MEMORY, "out of memory");
    for (int k = 0; k < c->state; k++) in[k] = r->in[k];
    for (int64_t t = 0; t < c->turns; t++) {
        for (int k = 0; k < c->scanned; k++)
            if ((in[c->state + k] = slice(c, k, t)) < 0) return r->s->d->status;
        if ((s = kn_settle_inline(r, c->body, r->nin, in, out)) != KILN_OK) return s;
        for (int k = 0; k < c->state; k++) in[k] = out[k];
        for (int k = 0; k < c->collected; k++) parts[k * c->turns + t] = out[c->state + k];
    }
    for (int k = 0; k < c->state && k < r->n->noutputs; k++) r->out[k] = in[k];
    for (int k = 0; s == KILN_OK && k < c->collected; k++)
        if (kn_raw_wants(r, c->state + k)) s = kn_raw_out(r, c->state + k, collect(c, k, parts + k * c->turns));
    return s;
}
