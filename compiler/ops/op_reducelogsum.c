/* ReduceLogSum: logarithm of the sum over the named axes. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_reduce(c, "+=!", "%s", KN_FINISH_LOG); }

const kn_op_spec kn_op_reducelogsum = {.name = "ReduceLogSum",
                                       .min_inputs = 1,
                                       .max_inputs = 1,
                                       .input_names = {"data"},
                                       .dtypes = "fi",
                                       .about = "logarithm of the sum over the named axes",
                                       .attrs = kn_reduce_attrs,
                                       .lower = lower};
