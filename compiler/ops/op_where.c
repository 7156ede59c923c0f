/* Where: X where the condition holds, else Y, with NumPy broadcasting. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c)
{
    int rank;
    int64_t shape[KILN_MAX_RANK];
    if (c->in[1].dtype != c->in[2].dtype)
        return kn_fail_at(c->d, KILN_DTYPE, "/inputs/2/dtype", "X is %s but Y is %s", kn_dtype_text(c->in[1].dtype),
                          kn_dtype_text(c->in[2].dtype));
    kiln_status s = kn_op_common_shape(c, 0, 3, shape, &rank);
    if (s != KILN_OK) return s;
    kn_putf(&c->text, "y[%s] = select(x0[%s], ", kn_op_axes(c, "A", rank), kn_op_broadcast(c, 0, "A", rank));
    kn_putf(&c->text, "x1[%s], ", kn_op_broadcast(c, 1, "A", rank));
    kn_putf(&c->text, "x2[%s])", kn_op_broadcast(c, 2, "A", rank));
    kn_op_extents(c, "A", rank, shape);
    return KILN_OK;
}

const kn_op_spec kn_op_where = {.name = "Where",
                                .min_inputs = 3,
                                .max_inputs = 3,
                                .input_names = {"condition", "X", "Y"},
                                .dtypes = "b",
                                .input_dtypes = {NULL, "fiub", "fiub"},
                                .about = "X where the condition holds, else Y, with NumPy broadcasting",
                                .lower = lower};
