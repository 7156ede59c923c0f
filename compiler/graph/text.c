/* A graph for people: inputs, constants, nodes and outputs with their types, one a line. */
#include "graph/graph.h"
#include <string.h>

static void put_type(kn_buf *b, const kn_value *v)
{
    if (v->held) {
        kn_put(b, "of no static shape");
        return;
    }
    kn_putf(b, "%s[", kn_dtype_text(v->dtype));
    for (int i = 0; i < v->rank; i++) kn_putf(b, "%s%lld", i ? "," : "", (long long)v->shape[i]);
    kn_put(b, "]");
}

static void put_name(kn_buf *b, const kn_graph *g, int v)
{
    if (v < 0)
        kn_put(b, "-");
    else if (*g->values[v].name)
        kn_put(b, g->values[v].name);
    else
        kn_putf(b, "%%%d", v);
}

static void put_attr(kn_buf *b, const kn_gattr *a)
{
    kn_putf(b, " %s=", a->name);
    if (a->kind == 'i')
        kn_putf(b, "%lld", (long long)a->i);
    else if (a->kind == 'f')
        kn_put_double(b, a->f);
    else if (a->kind == 's')
        kn_put(b, a->s);
    for (int i = 0; i < a->n; i++) {
        if (i) kn_put(b, ",");
        if (a->kind == 'I')
            kn_putf(b, "%lld", (long long)a->ints[i]);
        else if (a->kind == 'F')
            kn_put_double(b, a->floats[i]);
    }
}

static void put_node(kn_buf *b, const kn_graph *g, const kn_node *n)
{
    for (int i = 0; i < n->noutputs; i++) {
        if (i) kn_put(b, ", ");
        put_name(b, g, n->outputs[i]);
        kn_put(b, " ");
        put_type(b, &g->values[n->outputs[i]]);
    }
    kn_putf(b, " = %s%s(", n->left ? "left to the caller: " : "", n->left ? n->left->op : n->op);
    for (int i = 0; i < n->ninputs; i++) {
        if (i) kn_put(b, ", ");
        put_name(b, g, n->inputs[i]);
    }
    kn_put(b, ")");
    for (int i = 0; i < n->nattrs; i++) put_attr(b, &n->attrs[i]);
    kn_put(b, "\n");
}

static void put_values(kn_buf *b, const kn_graph *g, const char *word, const int *list, int n)
{
    for (int i = 0; i < n; i++) {
        kn_putf(b, "%s ", word);
        put_name(b, g, list[i]);
        kn_put(b, " ");
        put_type(b, &g->values[list[i]]);
        kn_put(b, "\n");
    }
}

kiln_status kiln_graph_text(kiln_arena *a, const kiln_graph *g, kiln_bytes *out)
{
    kn_buf b;
    int constants = 0;
    int64_t held = 0, full = 0;
    kn_buf_init(&b, a);
    put_values(&b, g, "in ", g->inputs, g->ninputs);
    for (int i = 0; i < g->nvalues; i++) {
        const kn_value *v = &g->values[i];
        if (!v->data) continue;
        constants++;
        held += (int64_t)v->data->n;
        full += kn_value_elems(v) * kn_dtype_bytes(v->dtype);
    }
    kn_putf(&b, "%d constants of %lld bytes, %lld of them in the model\n", constants, (long long)full, (long long)held);
    for (int i = 0; i < g->nnodes; i++) put_node(&b, g, &g->nodes[i]);
    put_values(&b, g, "out", g->outputs, g->noutputs);
    kiln_bytes t = kn_buf_take(&b);
    if (!t.p) return KILN_MEMORY;
    *out = t;
    return KILN_OK;
}
