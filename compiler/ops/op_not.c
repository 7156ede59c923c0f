/* Not: the opposite of a boolean, element by element. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_unary(c, "!%s"); }

const kn_op_spec kn_op_not = {.name = "Not",
                              .min_inputs = 1,
                              .max_inputs = 1,
                              .input_names = {"X"},
                              .dtypes = "b",
                              .about = "the opposite of a boolean, element by element",
                              .lower = lower};
