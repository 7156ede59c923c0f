/* Acos: arcus cosine, element by element. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_arc(c, "sqrt((1.0 - %s) / select(1.0 + %s == 0.0, 1e-37, 1.0 + %s))", 2.0); }

const kn_op_spec kn_op_acos = {.name = "Acos", .min_inputs = 1, .max_inputs = 1, .input_names = {"X"}, .dtypes = "f",
                               .about = "arcus cosine, element by element", .lower = lower};
