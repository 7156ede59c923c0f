/* GatherND: slices of data at computed places; the last axis of indices holds the place, batch_dims leading axes are shared. */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {{"batch_dims", 'i', "0", "leading axes that data and indices share"}, {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    const kn_operand *x = &c->in[0], *at = &c->in[1];
    int64_t batch = kn_attr_int(c, "batch_dims", 0), shape[KILN_MAX_RANK];
    if (batch < 0 || batch >= at->rank || batch >= x->rank) return kn_op_bad_attr(c, "batch_dims", "%lld", (long long)batch);
    for (int i = 0; i < batch; i++)
        if (x->shape[i] != at->shape[i]) return kn_op_bad_shape(c, 1, "dimension %d must be that of data, %lld", i, (long long)x->shape[i]);
    int64_t depth = at->shape[at->rank - 1];
    if (depth > x->rank - batch) return kn_op_bad_shape(c, 1, "its last dimension names %lld axes; data has %d", (long long)depth, x->rank);
    int rank = at->rank - 1 + x->rank - (int)batch - (int)depth, first = (int)batch + (int)depth;
    if (rank > KILN_MAX_RANK) return kn_op_bad_shape(c, 1, "the result has rank %d; at most %d is supported", rank, KILN_MAX_RANK);
    const char *lead = kn_op_axes(c, "A", at->rank - 1), *comma = at->rank > 1 ? "," : "";
    kn_putf(&c->text, "y[%s] = x0[", kn_op_axes(c, "A", rank));
    for (int i = 0; i < x->rank; i++) {
        const char *index = kn_format(c->arena, "x1[%s%s%d]", lead, comma, i - (int)batch);
        if (i) kn_put(&c->text, ",");
        if (i < batch)
            kn_putf(&c->text, "A%d", i);
        else if (i < first)
            kn_putf(&c->text, "select(%s < 0, %s + %lld, %s)", index, index, (long long)x->shape[i], index);
        else
            kn_putf(&c->text, "A%d", at->rank - 1 + i - first);
    }
    kn_put(&c->text, "]");
    for (int i = 0; i < rank; i++) shape[i] = i < at->rank - 1 ? at->shape[i] : x->shape[first + i - (at->rank - 1)];
    kn_op_extents(c, "A", rank, shape);
    return KILN_OK;
}

const kn_op_spec kn_op_gathernd = {.name = "GatherND",
                                   .min_inputs = 2,
                                   .max_inputs = 2,
                                   .input_names = {"data", "indices"},
                                   .dtypes = "fiub",
                                   .input_dtypes = {NULL, "i"},
                                   .about = "slices of data at computed places",
                                   .attrs = attrs,
                                   .lower = lower};
