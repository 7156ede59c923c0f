/* Shrink: x moved towards zero by bias, zero between -lambd and lambd, element by element. */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {
    {"bias", 'f', "0", "how far"}, {"lambd", 'f', "0.5", "half of the width of zero"}, {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    enum kn_dtype t = c->in[0].dtype; /* whole numbers are moved as fractions, and cut off */
    const char *x = kn_dtype_class(t) == 'f' ? "%s" : kn_format(c->arena, "cast(%%s,%s)", kn_op_fraction(c));
    if (!x) return kn_fail(c->d, KILN_MEMORY, "out of memory");
    kn_buf b;
    kn_buf_init(&b, c->arena);
    kn_putf(&b, "%sselect(%s < -(", *x == 'c' ? "cast(" : "", x);
    kn_put_double(&b, kn_attr_float(c, "lambd", 0.5));
    kn_putf(&b, "), %s + ", x);
    kn_put_double(&b, kn_attr_float(c, "bias", 0));
    kn_putf(&b, ", select(%s > ", x);
    kn_put_double(&b, kn_attr_float(c, "lambd", 0.5));
    kn_putf(&b, ", %s - ", x);
    kn_put_double(&b, kn_attr_float(c, "bias", 0));
    kn_put(&b, ", 0.0))");
    if (*x == 'c') kn_putf(&b, ",%s)", kn_dtype_text(t));
    kiln_bytes body = kn_buf_take(&b);
    return body.p ? kn_op_unary(c, body.p) : kn_fail(c->d, KILN_MEMORY, "out of memory");
}

const kn_op_spec kn_op_shrink = {.name = "Shrink",
                                 .min_inputs = 1,
                                 .max_inputs = 1,
                                 .input_names = {"X"},
                                 .dtypes = "fiu",
                                 .about = "x moved towards zero by bias, zero between -lambd and lambd, element by element",
                                 .attrs = attrs,
                                 .lower = lower};
