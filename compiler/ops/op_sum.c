/* Sum: the sum of any number of tensors, with NumPy broadcasting. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_variadic(c, NULL, false); }

const kn_op_spec kn_op_sum = {.name = "Sum",
                              .min_inputs = 1,
                              .max_inputs = KN_OP_INPUTS,
                              .input_names = {"data_0"},
                              .dtypes = "fi",
                              .about = "the sum of any number of tensors, with NumPy broadcasting",
                              .lower = lower};
