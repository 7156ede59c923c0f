/* Atanh: inverse hyperbolic tangent, element by element. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_unary(c, "0.5 * log((1.0 + %s) / (1.0 - %s))"); }

const kn_op_spec kn_op_atanh = {.name = "Atanh",
                                .min_inputs = 1,
                                .max_inputs = 1,
                                .input_names = {"X"},
                                .dtypes = "f",
                                .about = "inverse hyperbolic tangent, element by element",
                                .lower = lower};
