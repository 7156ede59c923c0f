/* GlobalMaxPool: maximum over all spatial dimensions, which stay with extent 1. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c)
{
    int rank = c->in[0].rank;
    if (rank < 3) return kn_op_bad_shape(c, 0, "rank %d; [N, C, D1 ...] is right", rank);
    kn_reduction r = {.gone = ((1u << rank) - 1) & ~3u, .keepdims = true};
    kn_op_reduce_over(c, &r, ">=!", "%s", KN_FINISH_NONE);
    return KILN_OK;
}

const kn_op_spec kn_op_globalmaxpool = {.name = "GlobalMaxPool", .min_inputs = 1, .max_inputs = 1, .input_names = {"X"}, .dtypes = "f",
                                            .about = "maximum over all spatial dimensions", .lower = lower};
