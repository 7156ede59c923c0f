/* Softplus: log(1 + exp(x)), element by element. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_unary(c, "max(%s, 0.0) + log(1.0 + exp(-abs(%s)))"); }

const kn_op_spec kn_op_softplus = {.name = "Softplus",
                                   .min_inputs = 1,
                                   .max_inputs = 1,
                                   .input_names = {"X"},
                                   .dtypes = "f",
                                   .about = "log(1 + exp(x)), element by element",
                                   .lower = lower};
