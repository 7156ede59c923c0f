/* Less: whether A is less than B, with NumPy broadcasting. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_compare(c, "<"); }

const kn_op_spec kn_op_less = {.name = "Less",
                               .min_inputs = 2,
                               .max_inputs = 2,
                               .input_names = {"A", "B"},
                               .dtypes = "fiu",
                               .about = "whether A is less than B, with NumPy broadcasting",
                               .lower = lower};
