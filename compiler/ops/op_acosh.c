/* Acosh: inverse hyperbolic cosine, element by element. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_unary(c, "log(%s + sqrt(%s * %s - 1.0))"); }

const kn_op_spec kn_op_acosh = {.name = "Acosh",
                                .min_inputs = 1,
                                .max_inputs = 1,
                                .input_names = {"X"},
                                .dtypes = "f",
                                .about = "inverse hyperbolic cosine, element by element",
                                .lower = lower};
