/* GroupNormalization: (x - mean) / sqrt(variance + epsilon) * scale + bias, mean and variance of every group of channels of every sample.
 */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {{"num_groups", 'i', "mandatory", "groups that share the channels"},
                                     {"epsilon", 'f', "1e-5", "added to the variance"},
                                     {"stash_type", 'i', "1", "1: computed in f32"},
                                     {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    const kn_operand *x = &c->in[0];
    int64_t groups = kn_attr_int(c, "num_groups", 0);
    if (x->rank < 2) return kn_op_bad_shape(c, 0, "rank %d; [N, C, ...] is right", x->rank);
    if (groups < 1 || x->shape[1] % groups)
        return kn_op_bad_attr(c, "num_groups", "%lld groups of %lld channels", (long long)groups, (long long)x->shape[1]);
    for (int k = 1; k < 3; k++)
        if (c->in[k].rank != 1 || c->in[k].shape[0] != x->shape[1])
            return kn_op_bad_shape(c, k, "must be [%lld], one number a channel", (long long)x->shape[1]);
    long long each = (long long)(x->shape[1] / groups);
    double count = (double)each;
    kn_buf tail;
    kn_buf_init(&tail, c->arena);
    for (int i = 2; i < x->rank; i++) {
        count *= (double)x->shape[i];
        kn_putf(&tail, ",A%d", i);
    }
    kiln_bytes t = kn_buf_take(&tail);
    const char *rest = t.p ? t.p : "", *wide = kn_op_wide(c), *in = kn_op_read(c, 0, kn_format(c->arena, "A0,G*%lld + C%s", each, rest));
    const char *all = kn_op_axes(c, "A", x->rank), *rows = kn_format(c->arena, "A0,A1 // %lld", each);
    kn_putf(&c->text, "s[A0,G] +=! %s where G in %lld, C in %lld%s; u[A0,G] = s[A0,G] / ", in, (long long)groups, each, wide);
    kn_put_double(&c->text, count);
    kn_putf(&c->text, "%s; q[A0,G] +=! (%s - u[A0,G]) * (%s - u[A0,G]) where G in %lld, C in %lld%s; ", wide, in, in, (long long)groups,
            each, wide);
    return kn_op_normalised(c, all, "A0,G", rows, count, "A1", "A1");
}

const kn_op_spec kn_op_groupnormalization = {.name = "GroupNormalization",
                                             .min_inputs = 3,
                                             .max_inputs = 3,
                                             .input_names = {"X", "scale", "bias"},
                                             .dtypes = "f",
                                             .about = "normalisation of every group of channels of every sample",
                                             .attrs = attrs,
                                             .lower = lower};
