/* LpNormalization: x / norm along an axis; 0 where the norm is 0. */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {{"axis", 'i', "-1", "axis of the norm"}, {"p", 'i', "2", "1 or 2"}, {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    int rank = c->in[0].rank, axis;
    int64_t p = kn_attr_int(c, "p", 2);
    if (!rank) return kn_op_bad_shape(c, 0, "a scalar has no axis; rank 1 or more is right");
    if (!kn_op_axis(c, "axis", kn_attr_int(c, "axis", -1), rank, &axis)) return c->d->status;
    if (p != 1 && p != 2) return kn_op_bad_attr(c, "p", "%lld is neither 1 nor 2", (long long)p);
    const char *rows = kn_op_axes_but(c, "A", rank, axis), *all = kn_op_axes(c, "A", rank), *x = kn_op_read(c, 0, all),
               *wide = kn_op_wide(c);
    if (p == 1)
        kn_putf(&c->text, "n[%s] +=! abs(%s)%s; ", rows, x, wide);
    else
        kn_putf(&c->text, "s[%s] +=! %s * %s%s; n[%s] = sqrt(s[%s])%s; ", rows, x, x, wide, rows, rows, wide);
    kn_putf(&c->text, "y[%s] = select(n[%s] == 0, 0, %s / n[%s])", all, rows, x, rows);
    kn_op_end(c);
    return KILN_OK;
}

const kn_op_spec kn_op_lpnormalization = {.name = "LpNormalization",
                                          .min_inputs = 1,
                                          .max_inputs = 1,
                                          .input_names = {"input"},
                                          .dtypes = "f",
                                          .about = "x / norm along an axis",
                                          .attrs = attrs,
                                          .lower = lower};
