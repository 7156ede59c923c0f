/* Log: natural logarithm, element by element. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_unary(c, "log(%s)"); }

const kn_op_spec kn_op_log = {.name = "Log",
                              .min_inputs = 1,
                              .max_inputs = 1,
                              .input_names = {"X"},
                              .dtypes = "f",
                              .about = "natural logarithm, element by element",
                              .lower = lower};
