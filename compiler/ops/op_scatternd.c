/* ScatterND: data with updates put at computed places; the last axis of indices holds the place. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c)
{
    const kn_operand *x = &c->in[0], *at = &c->in[1], *u = &c->in[2];
    if (!x->rank || !at->rank) return kn_op_bad_shape(c, at->rank ? 0 : 1, "a rank from 1 on is right");
    int64_t most = at->shape[at->rank - 1];
    if (most < 1 || most > x->rank) return kn_op_bad_shape(c, 1, "its last dimension names %lld axes; data has %d", (long long)most, x->rank);
    int depth = (int)most, lead = at->rank - 1, rank = lead + x->rank - depth;
    if (u->rank != rank) return kn_op_bad_shape(c, 2, "rank %d; %d is right", u->rank, rank);
    kn_buf to, from, where;
    kn_buf_init(&to, c->arena);
    kn_buf_init(&from, c->arena);
    kn_buf_init(&where, c->arena);
    const char *places = kn_op_axes(c, "I", lead);
    for (int i = 0; i < x->rank; i++) {
        const char *v = i < depth ? kn_format(c->arena, "x1[%s%s%d]", places, lead ? "," : "", i) : kn_format(c->arena, "S%d", i);
        if (!v) return KILN_MEMORY;
        kn_putf(&to, "%s%s", i ? "," : "", i < depth ? kn_op_scatter_index(c, v, x->shape[i]) : v);
    }
    for (int i = 0; i < rank; i++) {
        int64_t want = i < lead ? at->shape[i] : x->shape[depth + i - lead];
        const char *axis = kn_format(c->arena, i < lead ? "I%d" : "S%d", i < lead ? i : depth + i - lead);
        if (!axis) return KILN_MEMORY;
        if (u->shape[i] != want) return kn_op_bad_shape(c, 2, "dimension %d must be %lld", i, (long long)want);
        kn_putf(&from, "%s%s", i ? "," : "", axis);
        kn_putf(&where, "%s%s in %lld", i ? ", " : " where ", axis, (long long)want);
    }
    const char *left = kn_buf_take(&to).p, *right = kn_buf_take(&from).p, *extents = kn_buf_take(&where).p;
    return left ? kn_op_scatter(c, left, right ? right : "", extents ? extents : "") : KILN_MEMORY;
}

const kn_op_spec kn_op_scatternd = {.name = "ScatterND", .min_inputs = 3, .max_inputs = 3, .input_names = {"data", "indices", "updates"},
                                    .dtypes = "fiub", .input_dtypes = {NULL, "i", NULL}, .about = "data with updates put at computed places",
                                    .attrs = kn_scatter_attrs + 1, .lower = lower};
