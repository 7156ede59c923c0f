/* ScatterElements: data with updates put along one axis at the places that indices name. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c)
{
    const kn_operand *x = &c->in[0], *at = &c->in[1], *u = &c->in[2];
    int axis;
    if (!x->rank || at->rank != x->rank) return kn_op_bad_shape(c, 1, "rank %d; that of data, %d, is right", at->rank, x->rank);
    if (u->rank != at->rank) return kn_op_bad_shape(c, 2, "rank %d; that of indices, %d, is right", u->rank, at->rank);
    if (!kn_op_axis(c, "axis", kn_attr_int(c, "axis", 0), x->rank, &axis)) return c->d->status;
    const char *here = kn_op_axes(c, "I", x->rank);
    const char *index = kn_format(c->arena, "x1[%s]", here);
    kn_buf to, where;
    kn_buf_init(&to, c->arena);
    kn_buf_init(&where, c->arena);
    for (int i = 0; i < x->rank && index; i++) {
        if (u->shape[i] != at->shape[i]) return kn_op_bad_shape(c, 2, "dimension %d must be that of indices, %lld", i, (long long)at->shape[i]);
        if (i != axis && at->shape[i] > x->shape[i])
            return kn_op_bad_shape(c, 1, "dimension %d is %lld but data has %lld", i, (long long)at->shape[i], (long long)x->shape[i]);
        if (i == axis) kn_putf(&to, "%s%s", i ? "," : "", kn_op_scatter_index(c, index, x->shape[i]));
        else kn_putf(&to, "%sI%d", i ? "," : "", i);
        kn_putf(&where, "%sI%d in %lld", i ? ", " : " where ", i, (long long)at->shape[i]);
    }
    const char *left = kn_buf_take(&to).p, *extents = kn_buf_take(&where).p;
    return index && left && extents ? kn_op_scatter(c, left, here, extents) : KILN_MEMORY;
}

const kn_op_spec kn_op_scatterelements = {.name = "ScatterElements", .min_inputs = 3, .max_inputs = 3,
                                          .input_names = {"data", "indices", "updates"}, .dtypes = "fiub", .input_dtypes = {NULL, "i", NULL},
                                          .about = "data with updates put along one axis at the places that indices name",
                                          .attrs = kn_scatter_attrs, .lower = lower};
