/* ReduceL1: sum of absolute values over the named axes. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_reduce(c, "+=!", "abs(%s)", KN_FINISH_NONE); }

const kn_op_spec kn_op_reducel1 = {.name = "ReduceL1", .min_inputs = 1, .max_inputs = 1, .input_names = {"data"}, .dtypes = "fi",
                                   .about = "sum of absolute values over the named axes", .attrs = kn_reduce_attrs, .lower = lower};
