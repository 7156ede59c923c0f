/* Asinh: inverse hyperbolic sine, element by element. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_unary(c, "select(%s < 0.0, -1.0, 1.0) * log(abs(%s) + sqrt(%s * %s + 1.0))"); }

const kn_op_spec kn_op_asinh = {.name = "Asinh",
                                .min_inputs = 1,
                                .max_inputs = 1,
                                .input_names = {"X"},
                                .dtypes = "f",
                                .about = "inverse hyperbolic sine, element by element",
                                .lower = lower};
