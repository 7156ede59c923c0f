/* ReduceLogSumExp: logarithm of the sum of exponentials over the named axes, computed from the greatest element so that nothing overflows.
 */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c)
{
    kn_reduction r;
    kiln_status s = kn_op_reduce_axes(c, &r);
    if (s != KILN_OK) return s;
    if (!r.gone) return kn_op_unary(c, "%s");
    const char *x = kn_op_read(c, 0, kn_op_axes(c, "A", c->in[0].rank)), *wide = kn_op_wide(c);
    kn_op_reduce_left(c, "m", &r, false);
    kn_putf(&c->text, " >=! %s%s; ", x, wide);
    kn_op_reduce_left(c, "t", &r, false);
    kn_putf(&c->text, " +=! exp(%s - ", x);
    kn_op_reduce_left(c, "m", &r, false);
    kn_putf(&c->text, ")%s; ", wide);
    kn_op_reduce_left(c, "y", &r, r.keepdims);
    kn_put(&c->text, " = ");
    kn_op_reduce_left(c, "m", &r, false);
    kn_put(&c->text, " + log(");
    kn_op_reduce_left(c, "t", &r, false);
    kn_put(&c->text, ")");
    kn_op_reduce_where(c, &r, r.keepdims);
    kn_op_end(c);
    return KILN_OK;
}

const kn_op_spec kn_op_reducelogsumexp = {.name = "ReduceLogSumExp",
                                          .min_inputs = 1,
                                          .max_inputs = 1,
                                          .input_names = {"data"},
                                          .dtypes = "f",
                                          .about = "logarithm of the sum of exponentials over the named axes",
                                          .attrs = kn_reduce_attrs,
                                          .lower = lower};
