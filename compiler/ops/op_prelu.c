/* PRelu: slope * x below zero, else x; the slope broadcasts to x. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c)
{
    int rank;
    int64_t shape[KILN_MAX_RANK];
    kiln_status s = kn_op_common_shape(c, 0, 2, shape, &rank);
    if (s != KILN_OK) return s;
    bool grows = rank != c->in[0].rank;
    for (int i = 0; !grows && i < rank; i++) grows = shape[i] != c->in[0].shape[i];
    if (grows) return kn_op_bad_shape(c, 1, "the slope must broadcast to the shape of X");
    const char *x = kn_op_read(c, 0, kn_op_axes(c, "A", rank)), *slope = kn_op_read(c, 1, kn_op_broadcast(c, 1, "A", rank));
    kn_putf(&c->text, "y[%s] = select(%s < 0, %s * %s, %s)", kn_op_axes(c, "A", rank), x, slope, x, x);
    kn_op_extents(c, "A", rank, shape);
    kn_op_end(c);
    return KILN_OK;
}

const kn_op_spec kn_op_prelu = {.name = "PRelu",
                                .min_inputs = 2,
                                .max_inputs = 2,
                                .input_names = {"X", "slope"},
                                .dtypes = "fi",
                                .about = "slope * x below zero, else x; the slope broadcasts to x",
                                .lower = lower};
