/* Div: quotient of two tensors, with NumPy broadcasting. Integers truncate towards zero; by zero they give the dividend. */
#include "ops/ops.h"

static kiln_status whole(kn_op_call *c)
{
    int rank;
    int64_t shape[KILN_MAX_RANK];
    kiln_status s = kn_op_common_shape(c, 0, 2, shape, &rank);
    if (s != KILN_OK) return s;
    const char *x = kn_op_read(c, 0, kn_op_broadcast(c, 0, "A", rank)), *y = kn_op_read(c, 1, kn_op_broadcast(c, 1, "A", rank));
    const char *by = kn_format(c->arena, "select(%s == 0, 1, %s)", y, y), *q = by ? kn_format(c->arena, "%s // %s", x, by) : NULL;
    if (!q) return kn_fail(c->d, KILN_MEMORY, "out of memory");
    kn_putf(&c->text, "y[%s] = ", kn_op_axes(c, "A", rank));
    if (kn_dtype_class(c->in[0].dtype) == 'u') kn_putf(&c->text, "%s // max(%s, 1)", x, y);
    else kn_putf(&c->text, "select(%s * %s != %s, select(%s < 0, %s + 1, %s), %s)", q, by, x, q, q, q, q);
    kn_op_extents(c, "A", rank, shape);
    return KILN_OK;
}

static kiln_status lower(kn_op_call *c) { return kn_dtype_class(c->in[0].dtype) == 'f' ? kn_op_binary(c, "/") : whole(c); }

const kn_op_spec kn_op_div = {.name = "Div", .min_inputs = 2, .max_inputs = 2, .input_names = {"A", "B"}, .dtypes = "fiu",
                             .about = "quotient of two tensors, with NumPy broadcasting", .lower = lower};
