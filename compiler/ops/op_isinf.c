/* IsInf: whether an element is infinite, of either sign or of one. */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {{"detect_negative", 'i', "1", "1: negative infinity counts"},
                                     {"detect_positive", 'i', "1", "1: positive infinity counts"},
                                     {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    bool low = kn_attr_int(c, "detect_negative", 1) != 0, high = kn_attr_int(c, "detect_positive", 1) != 0;
    return kn_op_test(c, low && high ? "abs(%s) == inf" : low ? "%s == -inf" : high ? "%s == inf" : "%s != %s && %s == %s");
}

const kn_op_spec kn_op_isinf = {.name = "IsInf",
                                .min_inputs = 1,
                                .max_inputs = 1,
                                .input_names = {"X"},
                                .dtypes = "f",
                                .about = "whether an element is infinite",
                                .attrs = attrs,
                                .lower = lower};
