/* OneHot: values[1] at the index, values[0] elsewhere, along a new axis. */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {{"depth", 'i', "mandatory", "extent of the new axis"},
                                     {"axis", 'i', "-1", "where the new axis stands in the result"},
                                     {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    const kn_operand *at = &c->in[0];
    int64_t depth = kn_attr_int(c, "depth", 0), shape[KILN_MAX_RANK];
    int rank = at->rank + 1, axis;
    if (rank > KILN_MAX_RANK) return kn_op_bad_shape(c, 0, "the result has rank %d; at most %d is supported", rank, KILN_MAX_RANK);
    if (depth < 1 || depth > KILN_MAX_EXTENT) return kn_op_bad_attr(c, "depth", "%lld; from 1 on is right", (long long)depth);
    if (!kn_op_axis(c, "axis", kn_attr_int(c, "axis", -1), rank, &axis)) return c->d->status;
    if (c->in[1].rank != 1 || c->in[1].shape[0] != 2)
        return kn_op_bad_shape(c, 1, "must be [2]: the value elsewhere and that at the index");
    for (int i = 0; i < rank; i++) shape[i] = i == axis ? depth : at->shape[i < axis ? i : i - 1];
    const char *x = kn_format(c->arena, "cast(x0[%s], i64)", kn_op_axes_but(c, "A", rank, axis));
    /* where an index stands is a number of 32 bits, one that is nowhere is none */
    kn_putf(&c->text, "y[%s] = select(cast(A%d,i32) == cast(select(%s < %lld && %s >= -%lld, select(%s < 0, %s + %lld, %s), -1),i32), x1[1], x1[0])",
            kn_op_axes(c, "A", rank), axis, x, (long long)depth, x, (long long)depth, x, x, (long long)depth, x);
    kn_op_extents(c, "A", rank, shape);
    return KILN_OK;
}

const kn_op_spec kn_op_onehot = {.name = "OneHot",
                                 .min_inputs = 2,
                                 .max_inputs = 2,
                                 .input_names = {"indices", "values"},
                                 .dtypes = "fiu",
                                 .input_dtypes = {NULL, "fiub"},
                                 .about = "values[1] at the index, values[0] elsewhere, along a new axis",
                                 .attrs = attrs,
                                 .lower = lower};
