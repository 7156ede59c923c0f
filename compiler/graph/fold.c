/* Batch normalisations by constants become a product and a sum: two numbers a channel instead of five, and maps that any kernel takes. */
#include "graph/plan.h"
#include <math.h>
#include <string.h>

static const kn_value *known(const kn_graph *g, const kn_node *n, int i)
{
    const kn_value *v = i < n->ninputs && n->inputs[i] >= 0 ? &g->values[n->inputs[i]] : NULL;
    return v && v->data && v->data->bytes ? v : NULL;
}

static bool foldable(const kn_graph *g, const kn_node *n)
{
    if (strcmp(n->op, "BatchNormalization") || *n->domain || n->ninputs != 5) return false;
    for (int i = 1; i < 5; i++)
        if (!known(g, n, i)) return false;
    const kn_value *x = &g->values[n->inputs[0]];
    return x->rank >= 2 && kn_dtype_class(x->dtype) == 'f';
}

/* A new constant with one number a channel, shaped to broadcast along the second dimension of `like`. */
static int channels(kiln_arena *a, kn_graph *g, const kn_value *like, uint8_t *bytes, bool splat)
{
    int v = kn_graph_value(a, g, "");
    kn_data *data = kn_new(a, kn_data);
    if (v < 0 || !data) return -1;
    kn_value *x = &g->values[v];
    int64_t n = like->shape[1];
    *data = (kn_data){.bytes = bytes, .n = (size_t)(splat ? 1 : n) * (size_t)kn_dtype_bytes(like->dtype), .splat = splat};
    x->typed = x->shaped = true;
    x->dtype = like->dtype;
    x->rank = like->rank - 1;
    for (int i = 0; i < x->rank; i++) x->shape[i] = i ? 1 : n;
    x->data = data;
    return v;
}

static int add_node(kiln_arena *a, kn_graph *g, const kn_node *like, const char *op, int x, int c, int y)
{
    int *in = kn_array(a, int, 2), *out = kn_new(a, int);
    if (!in || !out) return -1;
    in[0] = x;
    in[1] = c;
    *out = y;
    kn_node n = *like;
    n.op = op;
    n.ninputs = 2;
    n.noutputs = 1;
    n.nattrs = 0;
    n.inputs = in;
    n.outputs = out;
    n.attrs = NULL;
    return kn_graph_node(a, g, &n);
}

/* y = x * (scale / sqrt(variance + epsilon)) + (B - mean * that). */
static bool fold(kiln_arena *a, kn_graph *g, const kn_node *n)
{
    const kn_value like = g->values[n->inputs[0]];
    const kn_value *in[5];
    const kn_gattr *e = kn_node_attr(n, "epsilon");
    double eps = e ? (e->kind == 'i' ? (double)e->i : e->f) : 1e-5;
    bool splat = true;
    for (int i = 1; i < 5; i++) {
        in[i] = &g->values[n->inputs[i]];
        splat &= in[i]->data->splat;
    }
    int64_t count = splat ? 1 : like.shape[1], size = kn_dtype_bytes(like.dtype);
    uint8_t *s = kn_alloc(a, (size_t)(count * size)), *t = kn_alloc(a, (size_t)(count * size));
    if (!s || !t) return false;
    for (int64_t c = 0; c < count; c++) {
        double k = kn_value_double(in[1], c) / sqrt(kn_value_double(in[4], c) + eps);
        kn_element_store(like.dtype, s + c * size, k);
        kn_element_store(like.dtype, t + c * size, kn_value_double(in[2], c) - kn_value_double(in[3], c) * k);
    }
    int scale = channels(a, g, &like, s, splat), shift = channels(a, g, &like, t, splat), mid = kn_graph_value(a, g, "");
    if (scale < 0 || shift < 0 || mid < 0) return false;
    kn_value *m = &g->values[mid];
    m->place = n->place;
    m->typed = m->shaped = true;
    m->dtype = like.dtype;
    m->rank = like.rank;
    memcpy(m->shape, like.shape, sizeof m->shape);
    return add_node(a, g, n, "Mul", n->inputs[0], scale, mid) >= 0 && add_node(a, g, n, "Add", mid, shift, n->outputs[0]) >= 0;
}

kiln_status kn_graph_fold(kiln_arena *a, const kn_graph *g, kn_graph **out, kiln_diag *d)
{
    kn_graph *q = kn_graph_bare(a, g);
    if (!q) return kn_fail(d, KILN_MEMORY, "out of memory");
    for (int i = 0; i < g->nnodes; i++)
        if (foldable(g, &g->nodes[i]) ? !fold(a, q, &g->nodes[i]) : kn_graph_node(a, q, &g->nodes[i]) < 0)
            return kn_fail(d, KILN_MEMORY, "out of memory");
    *out = q;
    return KILN_OK;
}
