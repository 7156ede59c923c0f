/* GreaterOrEqual: whether A is greater than B or equal, with NumPy broadcasting. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_compare(c, ">="); }

const kn_op_spec kn_op_greaterorequal = {.name = "GreaterOrEqual",
                                         .min_inputs = 2,
                                         .max_inputs = 2,
                                         .input_names = {"A", "B"},
                                         .dtypes = "fiu",
                                         .about = "whether A is greater than B or equal, with NumPy broadcasting",
                                         .lower = lower};
