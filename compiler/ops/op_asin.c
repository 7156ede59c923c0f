/* Asin: arcus sine, element by element. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_arc(c, "%s / (1.0 + sqrt((1.0 - %s) * (1.0 + %s)))", 2.0); }

const kn_op_spec kn_op_asin = {.name = "Asin", .min_inputs = 1, .max_inputs = 1, .input_names = {"X"}, .dtypes = "f",
                               .about = "arcus sine, element by element", .lower = lower};
