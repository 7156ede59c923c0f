/* ReduceVariance: mean of the squared distances from the mean over the named axes, in two passes. Not in ONNX; as NumPy's var. */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {{"axes", 'I', "all axes", "axes to reduce; negative counts from the end"},
                                     {"keepdims", 'i', "1", "1 keeps reduced dimensions with size 1"},
                                     {"correction", 'i', "0", "taken off the number of elements; 1 gives the unbiased estimate"},
                                     {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    kn_reduction r;
    kiln_status s = kn_op_reduce_axes(c, &r);
    if (s != KILN_OK) return s;
    double count = kn_op_reduce_count(c, &r), rest = count - (double)kn_attr_int(c, "correction", 0);
    if (rest < 1) return kn_op_bad_attr(c, "correction", "leaves nothing of %.0f elements to divide by", count);
    const char *all = kn_op_axes(c, "A", c->in[0].rank), *wide = kn_op_wide(c);
    kn_op_reduce_left(c, "s", &r, false);
    kn_put(&c->text, " +=! ");
    kn_op_load(c, 0, all);
    kn_putf(&c->text, "%s; ", wide);
    kn_op_reduce_left(c, "u", &r, false);
    kn_put(&c->text, " = ");
    kn_op_reduce_left(c, "s", &r, false);
    kn_put(&c->text, " / ");
    kn_put_double(&c->text, count);
    kn_putf(&c->text, "%s; ", wide);
    kn_op_reduce_left(c, "q", &r, false);
    kn_put(&c->text, " +=! ");
    for (int i = 0; i < 2; i++) {
        kn_put(&c->text, i ? " * (" : "(");
        kn_op_load(c, 0, all);
        kn_put(&c->text, " - ");
        kn_op_reduce_left(c, "u", &r, false);
        kn_put(&c->text, ")");
    }
    kn_putf(&c->text, "%s; ", wide);
    kn_op_reduce_left(c, "y", &r, r.keepdims);
    kn_put(&c->text, " = ");
    kn_op_reduce_left(c, "q", &r, false);
    kn_put(&c->text, " / ");
    kn_put_double(&c->text, rest);
    kn_op_reduce_where(c, &r, r.keepdims);
    kn_op_end(c);
    return KILN_OK;
}

const kn_op_spec kn_op_reducevariance = {.name = "ReduceVariance", .min_inputs = 1, .max_inputs = 1, .input_names = {"data"},
                                         .dtypes = "f", .about = "variance over the named axes", .attrs = attrs, .lower = lower};
