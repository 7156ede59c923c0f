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
    bool whole = kn_dtype_class(c->in[0].dtype) == 'i'; /* computed in f64, and cut off */
    kn_op_reduce_left(c, "m", &r, false);
    kn_putf(&c->text, " >=! %s%s; ", x, wide);
    kn_op_reduce_left(c, "t", &r, false);
    kn_putf(&c->text, " +=! exp(%s%s - ", whole ? "cast(" : "", x);
    kn_op_reduce_left(c, "m", &r, false);
    kn_putf(&c->text, "%s)%s; ", whole ? ",f64)" : "", wide);
    kn_op_reduce_left(c, "y", &r, r.keepdims);
    kn_put(&c->text, whole ? " = cast(cast(" : " = ");
    kn_op_reduce_left(c, "m", &r, false);
    kn_put(&c->text, whole ? ",f64) + log(" : " + log(");
    kn_op_reduce_left(c, "t", &r, false);
    kn_put(&c->text, ")");
    if (whole) kn_putf(&c->text, ",%s)", kn_dtype_text(c->in[0].dtype));
    kn_op_reduce_where(c, &r, r.keepdims);
    kn_op_end(c);
    return KILN_OK;
}

const kn_op_spec kn_op_reducelogsumexp = {.name = "ReduceLogSumExp",
                                          .min_inputs = 1,
                                          .max_inputs = 1,
                                          .input_names = {"data"},
                                          .dtypes = "fi",
                                          .about = "logarithm of the sum of exponentials over the named axes",
                                          .attrs = kn_reduce_attrs,
                                          .lower = lower};
