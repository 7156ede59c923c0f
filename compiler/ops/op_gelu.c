/* Gelu: x * Phi(x), by erf or by the tanh approximation. */
#include "ops/ops.h"
#include <string.h>

static const kn_attr_spec attrs[] = {{"approximate", 's', "none", "none (erf) or tanh"}, {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    const char *how = kn_attr_str(c, "approximate", "none");
    if (!strcmp(how, "none")) return kn_op_unary(c, "0.5 * %s * (1.0 + erf(%s * 0.7071067811865476))");
    if (!strcmp(how, "tanh")) return kn_op_unary(c, "0.5 * %s * (1.0 + tanh(0.7978845608028654 * (%s + 0.044715 * %s * %s * %s)))");
    return kn_op_bad_attr(c, "approximate", "\"%s\" is neither none nor tanh", how);
}

const kn_op_spec kn_op_gelu = {.name = "Gelu", .min_inputs = 1, .max_inputs = 1, .input_names = {"X"}, .dtypes = "f",
                               .about = "Gaussian error linear unit, element by element", .attrs = attrs, .lower = lower};
