/* InstanceNormalization: (x - mean) / sqrt(variance + epsilon) * scale + B, mean and variance of every channel of every sample. */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {{"epsilon", 'f', "1e-5", "added to the variance"}, {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    const kn_operand *x = &c->in[0];
    if (x->rank < 3) return kn_op_bad_shape(c, 0, "rank %d; [N, C, D1, ...] is right", x->rank);
    for (int k = 1; k < 3; k++)
        if (c->in[k].rank != 1 || c->in[k].shape[0] != x->shape[1])
            return kn_op_bad_shape(c, k, "must be [%lld], one number a channel", (long long)x->shape[1]);
    double count = 1;
    for (int i = 2; i < x->rank; i++) count *= (double)x->shape[i];
    const char *all = kn_op_axes(c, "A", x->rank), *rows = "A0,A1";
    return kn_op_normalise(c, all, rows, rows, count, "A1", "A1");
}

const kn_op_spec kn_op_instancenormalization = {.name = "InstanceNormalization",
                                                .min_inputs = 3,
                                                .max_inputs = 3,
                                                .input_names = {"input", "scale", "B"},
                                                .dtypes = "f",
                                                .about = "normalisation of every channel of every sample",
                                                .attrs = attrs,
                                                .lower = lower};
