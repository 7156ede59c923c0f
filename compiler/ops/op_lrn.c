/* LRN: x / (bias + alpha / size * sum of squares over `size` channels around) ^ beta. */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {{"size", 'i', "mandatory", "channels in the sum"},
                                     {"alpha", 'f', "1e-4", "factor of the sum"},
                                     {"beta", 'f', "0.75", "exponent"},
                                     {"bias", 'f', "1", "added to the sum"},
                                     {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    const kn_operand *x = &c->in[0];
    int64_t size = kn_attr_int(c, "size", 0);
    if (x->rank < 2) return kn_op_bad_shape(c, 0, "rank %d; [N, C, ...] is right", x->rank);
    if (size < 1 || size > KILN_MAX_EXTENT) return kn_op_bad_attr(c, "size", "%lld; from 1 on is right", (long long)size);
    bool half = *kn_op_wide(c) != 0;
    const char *all = kn_op_axes(c, "A", x->rank);
    kn_buf b;
    kn_buf_init(&b, c->arena);
    kn_putf(&b, "%spad(x0,0.0)[A0,A1 + R - %lld", half ? "cast(" : "", (long long)((size - 1) / 2));
    for (int i = 2; i < x->rank; i++) kn_putf(&b, ",A%d", i);
    kn_put(&b, half ? "],f32)" : "]");
    const char *in = kn_buf_take(&b).p;
    if (!in) return kn_fail(c->d, KILN_MEMORY, "out of memory");
    kn_putf(&c->text, "s[%s] +=! %s * %s where R in %lld, A1 in %lld%s; y[%s] = %s * pow(", all, in, in, (long long)size,
            (long long)x->shape[1], kn_op_wide(c), all, kn_op_read(c, 0, all));
    kn_put_double(&c->text, kn_attr_float(c, "bias", 1));
    kn_put(&c->text, " + ");
    kn_put_double(&c->text, kn_attr_float(c, "alpha", 1e-4) / (double)size);
    kn_putf(&c->text, " * s[%s], -(", all);
    kn_put_double(&c->text, kn_attr_float(c, "beta", 0.75));
    kn_put(&c->text, "))");
    kn_op_end(c);
    return KILN_OK;
}

const kn_op_spec kn_op_lrn = {.name = "LRN",
                              .min_inputs = 1,
                              .max_inputs = 1,
                              .input_names = {"X"},
                              .dtypes = "f",
                              .about = "normalisation by the squares of the channels around",
                              .attrs = attrs,
                              .lower = lower};
