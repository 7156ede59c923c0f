/* Reciprocal: one divided by x, element by element. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_unary(c, "1.0 / %s"); }

const kn_op_spec kn_op_reciprocal = {.name = "Reciprocal",
                                     .min_inputs = 1,
                                     .max_inputs = 1,
                                     .input_names = {"X"},
                                     .dtypes = "f",
                                     .about = "one divided by x, element by element",
                                     .lower = lower};
