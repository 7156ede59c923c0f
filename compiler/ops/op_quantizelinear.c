/* QuantizeLinear: round(x / scale) + zero point, kept in the range of the result's dtype; scale and zero point for all, by channel or by
 * block. */
#include "ops/ops.h"
#include <string.h>

static const kn_attr_spec attrs[] = {{"axis", 'i', "1", "axis that scales are of, where there are several"},
                                     {"block_size", 'i', "0", "elements along the axis that share a scale"},
                                     {"output_dtype", 's', "that of y_zero_point, or u8", "dtype of the result"},
                                     {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    enum kn_dtype t = KN_U8;
    const char *name = kn_attr_str(c, "output_dtype", ""), *at, *point = NULL, *all = kn_op_axes(c, "A", c->in[0].rank);
    if (c->in[2].present) t = c->in[2].dtype;
    if (*name && !kn_dtype_find(name, strlen(name), &t)) return kn_op_bad_attr(c, "output_dtype", "no dtype \"%.40s\"", name);
    bool real = kn_is_f8(t);
    if (!real && (!strchr("iu", kn_dtype_class(t)) || kn_dtype_bytes(t) > 2))
        return kn_op_bad_attr(c, "output_dtype", "u8, i8, i16, f8e4m3 or f8e5m2 is right");
    if (kn_dtype_class(c->in[1].dtype) == 'i' && c->in[1].dtype != KN_I32) return kn_op_bad_shape(c, 1, "a float or i32 is right");
    kiln_status s = kn_op_scale_index(c, 0, 1, &at);
    if (s == KILN_OK && c->in[2].present) s = kn_op_scale_index(c, 0, 2, &point);
    if (s != KILN_OK) return s;
    int bits = 8 * kn_dtype_bytes(t);
    bool sign = kn_dtype_class(t) == 'i';
    long long low = sign ? -(1LL << (bits - 1)) : 0, high = (1LL << (bits - sign)) - 1;
    bool whole = kn_dtype_class(c->in[0].dtype) != 'f';
    const char *x = whole ? kn_format(c->arena, "cast(x0[%s],f32)", all) : kn_op_read(c, 0, all);
    const char *as = kn_dtype_text(whole ? KN_F32 : kn_dtype_acc(c->in[0].dtype));
    kn_putf(&c->text, real ? "y[%s] = cast(%s / cast(x1[%s],%s)" : "y[%s] = cast(min(max(round(%s / cast(x1[%s],%s))", all, x, at, as);
    if (c->in[2].present) kn_putf(&c->text, " + cast(x2[%s],%s)", point, as);
    if (real) kn_putf(&c->text, ", %s)", kn_dtype_text(t)); /* which saturates */
    else kn_putf(&c->text, ", %lld.0), %lld.0), %s)", low, high, kn_dtype_text(t));
    return KILN_OK;
}

const kn_op_spec kn_op_quantizelinear = {.name = "QuantizeLinear",
                                         .min_inputs = 2,
                                         .max_inputs = 3,
                                         .input_names = {"x", "y_scale", "y_zero_point"},
                                         .dtypes = "fi",
                                         .input_dtypes = {NULL, "fi", "iuf"},
                                         .about = "round(x / scale) + zero point, kept in the range of the result",
                                         .attrs = attrs,
                                         .lower = lower};
