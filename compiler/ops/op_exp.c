/* Exp: exponential, element by element. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_unary(c, "exp(%s)"); }

const kn_op_spec kn_op_exp = {.name = "Exp", .min_inputs = 1, .max_inputs = 1, .input_names = {"X"}, .dtypes = "f",
                               .about = "exponential, element by element", .lower = lower};
