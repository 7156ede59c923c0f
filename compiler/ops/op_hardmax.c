/* Hardmax: one at the first greatest element along an axis, else zero. */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {{"axis", 'i', "-1", "axis with a single one"}, {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    int rank = c->in[0].rank, axis;
    if (!rank) return kn_op_bad_shape(c, 0, "a scalar has no axis; rank 1 or more is right");
    if (!kn_op_axis(c, "axis", kn_attr_int(c, "axis", -1), rank, &axis)) return c->d->status;
    const char *rows = kn_op_axes_but(c, "A", rank, axis), *all = kn_op_axes(c, "A", rank), *wide = kn_op_wide(c);
    const char *t = *wide ? "f32" : kn_dtype_text(c->in[0].dtype), *x = kn_op_read(c, 0, all);
    kn_putf(&c->text, "m[%s] >=! %s%s; i[%s] <=! select(%s == m[%s], cast(A%d,i32), cast(%lld,i32)); y[%s] = cast(cast(A%d,i32) == i[%s], %s)", rows,
            x, wide, rows, x, rows, axis, (long long)c->in[0].shape[axis], all, axis, rows, t);
    kn_op_extents(c, "A", rank, c->in[0].shape);
    kn_op_end(c);
    return KILN_OK;
}

const kn_op_spec kn_op_hardmax = {.name = "Hardmax",
                                  .min_inputs = 1,
                                  .max_inputs = 1,
                                  .input_names = {"input"},
                                  .dtypes = "f",
                                  .about = "one at the first greatest element along an axis, else zero",
                                  .attrs = attrs,
                                  .lower = lower};
