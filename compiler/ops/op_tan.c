/* Tan: tangent, element by element. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_unary(c, "sin(%s) / cos(%s)"); }

const kn_op_spec kn_op_tan = {.name = "Tan",
                              .min_inputs = 1,
                              .max_inputs = 1,
                              .input_names = {"X"},
                              .dtypes = "f",
                              .about = "tangent, element by element",
                              .lower = lower};
