/* ArgMin: where along an axis the least element stands, the first or the last of equal ones. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_arg(c, "<=!"); }

const kn_op_spec kn_op_argmin = {.name = "ArgMin",
                                 .min_inputs = 1,
                                 .max_inputs = 1,
                                 .input_names = {"data"},
                                 .dtypes = "fiu",
                                 .about = "where along an axis the least element stands (i64)",
                                 .attrs = kn_arg_attrs,
                                 .lower = lower};
