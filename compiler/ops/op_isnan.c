/* IsNaN: whether an element is no number. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c) { return kn_op_test(c, "%s != %s"); }

const kn_op_spec kn_op_isnan = {.name = "IsNaN",
                                .min_inputs = 1,
                                .max_inputs = 1,
                                .input_names = {"X"},
                                .dtypes = "f",
                                .about = "whether an element is no number",
                                .lower = lower};
