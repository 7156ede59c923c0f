/* Sinh: hyperbolic sine, element by element. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_unary(c, "0.5 * (exp(%s) - exp(-%s))"); }

const kn_op_spec kn_op_sinh = {.name = "Sinh",
                               .min_inputs = 1,
                               .max_inputs = 1,
                               .input_names = {"X"},
                               .dtypes = "f",
                               .about = "hyperbolic sine, element by element",
                               .lower = lower};
