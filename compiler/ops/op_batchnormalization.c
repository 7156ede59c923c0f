/* BatchNormalization, inference: (X - mean) / sqrt(variance + epsilon) * scale + B, one number a channel each. */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {{"epsilon", 'f', "1e-5", "added to the variance"},
                                     {"momentum", 'f', "0.9", "of training; has no effect here"},
                                     {"training_mode", 'i', "0", "must be 0"},
                                     {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    const kn_operand *x = &c->in[0];
    if (kn_attr_int(c, "training_mode", 0)) return kn_op_bad_attr(c, "training_mode", "only 0 (inference) is supported");
    if (x->rank < 2) return kn_op_bad_shape(c, 0, "rank %d; [N, C, ...] is right", x->rank);
    for (int i = 1; i < 5; i++)
        if (c->in[i].rank != 1 || c->in[i].shape[0] != x->shape[1])
            return kn_op_bad_shape(c, i, "must be [%lld], one number a channel", (long long)x->shape[1]);
    kn_put(&c->text, "a[A1] = rsqrt(");
    kn_put(&c->text, kn_op_read_fraction(c, 4, "A1"));
    kn_put(&c->text, " + ");
    kn_put_double(&c->text, kn_attr_float(c, "epsilon", 1e-5));
    kn_put(&c->text, ") * ");
    kn_put(&c->text, kn_op_read_fraction(c, 1, "A1"));
    const char *all = kn_op_axes(c, "A", x->rank);
    kn_putf(&c->text, "%s; y[%s] = (", kn_op_wide(c), all);
    kn_put(&c->text, kn_op_read_fraction(c, 0, all));
    kn_put(&c->text, " - ");
    kn_put(&c->text, kn_op_read_fraction(c, 3, "A1"));
    kn_put(&c->text, ") * a[A1] + ");
    kn_put(&c->text, kn_op_read_fraction(c, 2, "A1"));
    kn_op_end(c);
    return KILN_OK;
}

const kn_op_spec kn_op_batchnormalization = {.name = "BatchNormalization", .min_inputs = 5, .max_inputs = 5,
                                             .input_names = {"X", "scale", "B", "input_mean", "input_var"}, .dtypes = "f",
                                             .input_dtypes = {NULL, "f", "f", "f", "f"},
                                             .about = "normalisation by given means and variances (inference, first output only)",
                                             .attrs = attrs, .lower = lower};
