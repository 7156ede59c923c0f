/* GatherElements: for every element of indices, the element of data there along one axis; negative ones count from the end. */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {{"axis", 'i', "0", "axis of data that indices name"}, {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    const kn_operand *x = &c->in[0], *at = &c->in[1];
    int axis;
    if (!x->rank || at->rank != x->rank) return kn_op_bad_shape(c, 1, "rank %d; that of data, %d, is right", at->rank, x->rank);
    if (!kn_op_axis(c, "axis", kn_attr_int(c, "axis", 0), x->rank, &axis)) return c->d->status;
    for (int i = 0; i < x->rank; i++)
        if (i != axis && at->shape[i] > x->shape[i])
            return kn_op_bad_shape(c, 1, "dimension %d is %lld but data has %lld", i, (long long)at->shape[i], (long long)x->shape[i]);
    const char *all = kn_op_axes(c, "A", x->rank);
    kn_putf(&c->text, "y[%s] = x0[", all);
    for (int i = 0; i < x->rank; i++) {
        if (i) kn_put(&c->text, ",");
        if (i == axis)
            kn_putf(&c->text, "select(x1[%s] < 0, x1[%s] + %lld, x1[%s])", all, all, (long long)x->shape[i], all);
        else
            kn_putf(&c->text, "A%d", i);
    }
    kn_put(&c->text, "]");
    kn_op_extents(c, "A", x->rank, at->shape);
    return KILN_OK;
}

const kn_op_spec kn_op_gatherelements = {.name = "GatherElements",
                                         .min_inputs = 2,
                                         .max_inputs = 2,
                                         .input_names = {"data", "indices"},
                                         .dtypes = "fiub",
                                         .input_dtypes = {NULL, "i"},
                                         .about = "for every element of indices, the element of data there along one axis",
                                         .attrs = attrs,
                                         .lower = lower};
