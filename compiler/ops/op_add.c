/* Add: sum of two tensors, with NumPy broadcasting. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_binary(c, "+"); }

const kn_op_spec kn_op_add = {.name = "Add", .min_inputs = 2, .max_inputs = 2, .input_names = {"A", "B"}, .dtypes = "fiu",
                             .about = "sum of two tensors, with NumPy broadcasting", .lower = lower};
