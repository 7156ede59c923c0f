/* Relu: max(x, 0), element by element. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_unary(c, "max(%s, 0)"); }

const kn_op_spec kn_op_relu = {.name = "Relu", .min_inputs = 1, .max_inputs = 1, .input_names = {"X"}, .dtypes = "fi",
                               .about = "max(x, 0), element by element", .lower = lower};
