/* BitwiseNot: every bit turned. In two's complement that is -1 - x, of unsigned bytes 255 - x. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_unary(c, kn_dtype_class(c->in[0].dtype) == 'u' ? "255 - %s" : "-1 - %s"); }

const kn_op_spec kn_op_bitwisenot = {.name = "BitwiseNot", .min_inputs = 1, .max_inputs = 1, .input_names = {"X"}, .dtypes = "iu",
                                     .about = "every bit turned", .lower = lower};
