/* Div: quotient of two tensors, with NumPy broadcasting. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_binary(c, "/"); }

const kn_op_spec kn_op_div = {.name = "Div", .min_inputs = 2, .max_inputs = 2, .input_names = {"A", "B"}, .dtypes = "f",
                             .about = "quotient of two tensors, with NumPy broadcasting", .lower = lower};
