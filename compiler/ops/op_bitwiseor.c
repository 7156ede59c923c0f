/* BitwiseOr: bit by bit, with NumPy broadcasting. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_bits(c, "bitor(#, @)"); }

const kn_op_spec kn_op_bitwiseor = {.name = "BitwiseOr", .min_inputs = 2, .max_inputs = 2, .input_names = {"A", "B"}, .dtypes = "iu",
                                    .about = "bits that one has or both, with NumPy broadcasting", .lower = lower};
