/* Abs: absolute value, element by element. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_unary(c, kn_dtype_class(c->in[0].dtype) == 'u' ? "%s" : "abs(%s)"); }

const kn_op_spec kn_op_abs = {.name = "Abs",
                              .min_inputs = 1,
                              .max_inputs = 1,
                              .input_names = {"X"},
                              .dtypes = "fiu",
                              .about = "absolute value, element by element",
                              .lower = lower};
