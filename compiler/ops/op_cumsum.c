/* CumSum: sums of all elements up to each, along one axis. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_scan(c, false); }

const kn_op_spec kn_op_cumsum = {.name = "CumSum", .min_inputs = 1, .max_inputs = 1, .input_names = {"x"}, .dtypes = "fi",
                                 .about = "prefix sums along one axis", .attrs = kn_scan_attrs, .lower = lower};
