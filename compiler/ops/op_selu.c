/* Selu: gamma * (alpha * exp(x) - alpha) below zero, else gamma * x, element by element. */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {{"alpha", 'f', "1.67326319217681884765625", "depth below zero"},
                                     {"gamma", 'f', "1.05070102214813232421875", "factor of all"},
                                     {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    kn_buf b;
    kn_buf_init(&b, c->arena);
    kn_put_double(&b, kn_attr_float(c, "gamma", 1.05070102214813232421875));
    kn_put(&b, " * select(%s <= 0.0, ");
    kn_put_double(&b, kn_attr_float(c, "alpha", 1.67326319217681884765625));
    kn_put(&b, " * exp(%s) - ");
    kn_put_double(&b, kn_attr_float(c, "alpha", 1.67326319217681884765625));
    kn_put(&b, ", %s)");
    kiln_bytes body = kn_buf_take(&b);
    return body.p ? kn_op_unary(c, body.p) : kn_fail(c->d, KILN_MEMORY, "out of memory");
}

const kn_op_spec kn_op_selu = {.name = "Selu",
                               .min_inputs = 1,
                               .max_inputs = 1,
                               .input_names = {"X"},
                               .dtypes = "f",
                               .about = "gamma * (alpha * exp(x) - alpha) below zero, else gamma * x, element by element",
                               .attrs = attrs,
                               .lower = lower};
