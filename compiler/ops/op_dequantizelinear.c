/* DequantizeLinear: (x - zero point) * scale; scale and zero point for all, by channel or by block. */
#include "ops/ops.h"
#include <string.h>

static const kn_attr_spec attrs[] = {{"axis", 'i', "1", "axis that scales are of, where there are several"},
                                     {"block_size", 'i', "0", "elements along the axis that share a scale"},
                                     {"output_dtype", 's', "that of x_scale", "dtype of the result, a float"},
                                     {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    const char *at, *point = NULL, *all = kn_op_axes(c, "A", c->in[0].rank);
    const char *name = kn_attr_str(c, "output_dtype", "");
    enum kn_dtype t = c->in[1].dtype, as;
    if (*name && (!kn_dtype_find(name, strlen(name), &t) || kn_dtype_class(t) != 'f'))
        return kn_op_bad_attr(c, "output_dtype", "\"%.40s\" is no float", name);
    as = kn_dtype_acc(t);
    if (kn_dtype_class(c->in[0].dtype) == 'f' && !kn_is_f8(c->in[0].dtype))
        return kn_fail_at(c->d, KILN_DTYPE, "/inputs/0/dtype", "an integer or a float of 8 bits is right");
    kiln_status s = kn_op_scale_index(c, 0, 1, &at);
    if (s == KILN_OK && c->in[2].present) s = kn_op_scale_index(c, 0, 2, &point);
    if (s != KILN_OK) return s;
    if (c->in[2].present && c->in[2].dtype != c->in[0].dtype)
        return kn_fail_at(c->d, KILN_DTYPE, "/inputs/2/dtype", "the dtype of x is right");
    kn_putf(&c->text, "y[%s] = (cast(x0[%s],%s)", all, all, kn_dtype_text(as));
    if (c->in[2].present) kn_putf(&c->text, " - cast(x2[%s],%s)", point, kn_dtype_text(as));
    kn_putf(&c->text, ") * cast(x1[%s],%s) : %s", at, kn_dtype_text(as), kn_dtype_text(t));
    return KILN_OK;
}

const kn_op_spec kn_op_dequantizelinear = {.name = "DequantizeLinear",
                                           .min_inputs = 2,
                                           .max_inputs = 3,
                                           .input_names = {"x", "x_scale", "x_zero_point"},
                                           .dtypes = "iuf",
                                           .input_dtypes = {NULL, "f", "iuf"},
                                           .about = "(x - zero point) * scale",
                                           .attrs = attrs,
                                           .lower = lower};
