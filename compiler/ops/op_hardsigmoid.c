/* HardSigmoid: max(0, min(1, alpha * x + beta)), element by element. */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {{"alpha", 'f', "0.2", "slope"}, {"beta", 'f', "0.5", "value at zero"}, {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    kn_buf b;
    kn_buf_init(&b, c->arena);
    kn_put(&b, "max(0.0, min(1.0, ");
    kn_put_double(&b, kn_attr_float(c, "alpha", 0.2));
    kn_put(&b, " * %s + ");
    kn_put_double(&b, kn_attr_float(c, "beta", 0.5));
    kn_put(&b, "))");
    kiln_bytes body = kn_buf_take(&b);
    return body.p ? kn_op_unary(c, body.p) : kn_fail(c->d, KILN_MEMORY, "out of memory");
}

const kn_op_spec kn_op_hardsigmoid = {.name = "HardSigmoid",
                                      .min_inputs = 1,
                                      .max_inputs = 1,
                                      .input_names = {"X"},
                                      .dtypes = "f",
                                      .about = "max(0, min(1, alpha * x + beta)), element by element",
                                      .attrs = attrs,
                                      .lower = lower};
