/* Sin: sine, element by element. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_unary(c, "sin(%s)"); }

const kn_op_spec kn_op_sin = {.name = "Sin",
                              .min_inputs = 1,
                              .max_inputs = 1,
                              .input_names = {"X"},
                              .dtypes = "f",
                              .about = "sine, element by element",
                              .lower = lower};
