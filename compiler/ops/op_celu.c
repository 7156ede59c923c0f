/* Celu: max(0, x) + min(0, alpha * (exp(x / alpha) - 1)), element by element. */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {{"alpha", 'f', "1", "width of the exponential"}, {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    kn_buf b;
    kn_buf_init(&b, c->arena);
    kn_put(&b, "max(0.0, %s) + min(0.0, ");
    kn_put_double(&b, kn_attr_float(c, "alpha", 1));
    kn_put(&b, " * (exp(%s / ");
    kn_put_double(&b, kn_attr_float(c, "alpha", 1));
    kn_put(&b, ") - 1.0))");
    kiln_bytes body = kn_buf_take(&b);
    return body.p ? kn_op_unary(c, body.p) : kn_fail(c->d, KILN_MEMORY, "out of memory");
}

const kn_op_spec kn_op_celu = {.name = "Celu",
                               .min_inputs = 1,
                               .max_inputs = 1,
                               .input_names = {"X"},
                               .dtypes = "f",
                               .about = "max(0, x) + min(0, alpha * (exp(x / alpha) - 1)), element by element",
                               .attrs = attrs,
                               .lower = lower};
