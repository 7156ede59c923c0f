/* BitwiseAnd: bit by bit, with NumPy broadcasting. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_bits(c, "bitand(#, @)"); }

const kn_op_spec kn_op_bitwiseand = {.name = "BitwiseAnd", .min_inputs = 2, .max_inputs = 2, .input_names = {"A", "B"}, .dtypes = "iu",
                                     .about = "bits that both have, with NumPy broadcasting", .lower = lower};
