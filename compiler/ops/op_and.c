/* And: whether both are true, with NumPy broadcasting. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_compare(c, "&&"); }

const kn_op_spec kn_op_and = {.name = "And",
                              .min_inputs = 2,
                              .max_inputs = 2,
                              .input_names = {"A", "B"},
                              .dtypes = "b",
                              .about = "whether both are true, with NumPy broadcasting",
                              .lower = lower};
