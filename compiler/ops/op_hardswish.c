/* HardSwish: x * max(0, min(1, x/6 + 1/2)), element by element. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_unary(c, "%s * max(0.0, min(1.0, %s * 0.16666666666666666 + 0.5))"); }

const kn_op_spec kn_op_hardswish = {.name = "HardSwish",
                                    .min_inputs = 1,
                                    .max_inputs = 1,
                                    .input_names = {"X"},
                                    .dtypes = "f",
                                    .about = "x * max(0, min(1, x/6 + 1/2)), element by element",
                                    .lower = lower};
