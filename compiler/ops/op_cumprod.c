/* CumProd: products of all elements up to each, along one axis. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_scan(c, true); }

const kn_op_spec kn_op_cumprod = {.name = "CumProd", .min_inputs = 1, .max_inputs = 1, .input_names = {"x"}, .dtypes = "fi",
                                  .about = "prefix products along one axis", .attrs = kn_scan_attrs, .lower = lower};
