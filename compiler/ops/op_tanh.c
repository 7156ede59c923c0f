/* Tanh: hyperbolic tangent, element by element. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_unary(c, "tanh(%s)"); }

const kn_op_spec kn_op_tanh = {.name = "Tanh", .min_inputs = 1, .max_inputs = 1, .input_names = {"X"}, .dtypes = "f",
                               .about = "hyperbolic tangent, element by element", .lower = lower};
