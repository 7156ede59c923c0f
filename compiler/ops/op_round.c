/* Round: the nearest whole number, halves to even, element by element. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_unary(c, "round(%s)"); }

const kn_op_spec kn_op_round = {.name = "Round",
                                .min_inputs = 1,
                                .max_inputs = 1,
                                .input_names = {"X"},
                                .dtypes = "f",
                                .about = "the nearest whole number, halves to even, element by element",
                                .lower = lower};
