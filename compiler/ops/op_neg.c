/* Neg: the negative, element by element. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_unary(c, "-%s"); }

const kn_op_spec kn_op_neg = {.name = "Neg",
                              .min_inputs = 1,
                              .max_inputs = 1,
                              .input_names = {"X"},
                              .dtypes = "fi",
                              .about = "the negative, element by element",
                              .lower = lower};
