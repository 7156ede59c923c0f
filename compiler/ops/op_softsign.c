/* Softsign: x / (1 + |x|), element by element. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_unary(c, "%s / (1.0 + abs(%s))"); }

const kn_op_spec kn_op_softsign = {.name = "Softsign",
                                   .min_inputs = 1,
                                   .max_inputs = 1,
                                   .input_names = {"X"},
                                   .dtypes = "f",
                                   .about = "x / (1 + |x|), element by element",
                                   .lower = lower};
