/* Gather: slices of data along an axis, at computed indices; negative ones count from the end. */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {{"axis", 'i', "0", "axis of data that indices name"}, {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    const kn_operand *x = &c->in[0], *at = &c->in[1];
    int axis, rank = x->rank + at->rank - 1;
    int64_t shape[KILN_MAX_RANK];
    if (!x->rank) return kn_op_bad_shape(c, 0, "a scalar has no axis; rank 1 or more is right");
    if (!kn_op_axis(c, "axis", kn_attr_int(c, "axis", 0), x->rank, &axis)) return c->d->status;
    if (rank > KILN_MAX_RANK) return kn_op_bad_shape(c, 1, "the result has rank %d; at most %d is supported", rank, KILN_MAX_RANK);
    kn_buf b;
    kn_buf_init(&b, c->arena);
    for (int i = 0; i < at->rank; i++) kn_putf(&b, "%sA%d", i ? "," : "", axis + i);
    const char *index = kn_buf_take(&b).p;
    if (!index) return kn_fail(c->d, KILN_MEMORY, "out of memory");
    kn_putf(&c->text, "y[%s] = x0[", kn_op_axes(c, "A", rank));
    for (int i = 0; i < x->rank; i++) {
        if (i) kn_put(&c->text, ",");
        if (i == axis)
            kn_putf(&c->text, "select(x1[%s] < 0, x1[%s] + %lld, x1[%s])", index, index, (long long)x->shape[i], index);
        else
            kn_putf(&c->text, "A%d", i < axis ? i : i + at->rank - 1);
    }
    kn_put(&c->text, "]");
    for (int i = 0; i < rank; i++)
        shape[i] = i < axis ? x->shape[i] : i < axis + at->rank ? at->shape[i - axis] : x->shape[i - at->rank + 1];
    kn_op_extents(c, "A", rank, shape);
    return KILN_OK;
}

const kn_op_spec kn_op_gather = {.name = "Gather",
                                 .min_inputs = 2,
                                 .max_inputs = 2,
                                 .input_names = {"data", "indices"},
                                 .dtypes = "fiub",
                                 .input_dtypes = {NULL, "i"},
                                 .about = "slices of data along an axis, at computed indices",
                                 .attrs = attrs,
                                 .lower = lower};
