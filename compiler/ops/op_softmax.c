/* Softmax: exp(x - max) / sum along one axis (opset 13 on: the axis alone, not a flattened tail). */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {{"axis", 'i', "-1", "the axis that sums to one"}, {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    int rank = c->in[0].rank, axis;
    if (!rank) return kn_op_bad_shape(c, 0, "a scalar has no axis; rank 1 or more is right");
    if (!kn_op_axis(c, "axis", kn_attr_int(c, "axis", -1), rank, &axis)) return c->d->status;
    kn_buf kept;
    kn_buf_init(&kept, c->arena);
    for (int i = 0; i < rank; i++)
        if (i != axis) kn_putf(&kept, "%sA%d", kept.n ? "," : "", i);
    kiln_bytes k = kn_buf_take(&kept);
    const char *all = kn_op_axes(c, "A", rank), *rows = k.p ? k.p : "", *wide = kn_op_wide(c);
    kn_putf(&c->text, "m[%s] >=! ", rows);
    kn_op_load(c, 0, all);
    kn_putf(&c->text, "%s; e[%s] = exp(", wide, all);
    kn_op_load(c, 0, all);
    kn_putf(&c->text, " - m[%s])%s; s[%s] +=! e[%s]%s; y[%s] = e[%s] / s[%s]", rows, wide, rows, all, wide, all, all, rows);
    kn_op_end(c);
    return KILN_OK;
}

const kn_op_spec kn_op_softmax = {.name = "Softmax", .min_inputs = 1, .max_inputs = 1, .input_names = {"input"}, .dtypes = "f",
                                  .about = "exponentials normalised along one axis", .attrs = attrs, .lower = lower};
