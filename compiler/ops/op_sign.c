/* Sign: -1, 0 or 1, element by element. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c)
{
    const char *t = *kn_op_wide(c) ? "f32" : kn_dtype_text(c->in[0].dtype);
    if (kn_dtype_class(c->in[0].dtype) == 'u') return kn_op_unary(c, kn_format(c->arena, "cast(%%s > 0, %s)", t));
    return kn_op_unary(c, kn_format(c->arena, "select(%%s == %%s, cast(%%s > 0, %s) - cast(%%s < 0, %s), %%s)", t, t));
}

const kn_op_spec kn_op_sign = {.name = "Sign",
                               .min_inputs = 1,
                               .max_inputs = 1,
                               .input_names = {"input"},
                               .dtypes = "fiu",
                               .about = "-1, 0 or 1, element by element",
                               .lower = lower};
