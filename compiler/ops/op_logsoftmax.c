/* LogSoftmax: logarithm of Softmax along one axis, x - max - log(sum(exp(x - max))). */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {{"axis", 'i', "-1", "the axis whose exponentials sum to one"}, {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    int rank = c->in[0].rank, axis;
    if (!rank) return kn_op_bad_shape(c, 0, "a scalar has no axis; rank 1 or more is right");
    if (!kn_op_axis(c, "axis", kn_attr_int(c, "axis", -1), rank, &axis)) return c->d->status;
    const char *rows = kn_op_axes_but(c, "A", rank, axis), *all = kn_op_axes(c, "A", rank), *wide = kn_op_wide(c),
               *x = kn_op_read(c, 0, all);
    kn_putf(&c->text, "m[%s] >=! %s%s; s[%s] +=! exp(%s - m[%s])%s; y[%s] = %s - m[%s] - log(s[%s])", rows, x, wide, rows, x, rows, wide,
            all, x, rows, rows);
    kn_op_end(c);
    return KILN_OK;
}

const kn_op_spec kn_op_logsoftmax = {.name = "LogSoftmax",
                                     .min_inputs = 1,
                                     .max_inputs = 1,
                                     .input_names = {"input"},
                                     .dtypes = "f",
                                     .about = "logarithm of Softmax along one axis",
                                     .attrs = attrs,
                                     .lower = lower};
