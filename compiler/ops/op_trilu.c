/* Trilu: the upper or the lower triangle of matrices, zero elsewhere. */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {{"upper", 'i', "1", "1: the upper triangle"},
                                     {"k", 'i', "0", "diagonal of the triangle; positive is above the main one"},
                                     {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    int rank = c->in[0].rank;
    int64_t k = kn_attr_int(c, "k", 0);
    if (rank < 2) return kn_op_bad_shape(c, 0, "rank %d; matrices are right", rank);
    k = k > KILN_MAX_EXTENT ? KILN_MAX_EXTENT : k < -KILN_MAX_EXTENT ? -KILN_MAX_EXTENT : k;
    const char *all = kn_op_axes(c, "A", rank), *t = kn_dtype_text(c->in[0].dtype);
    kn_putf(&c->text, "y[%s] = select(A%d %s A%d + (%lld), x0[%s], cast(0, %s))", all, rank - 1,
            kn_attr_int(c, "upper", 1) ? ">=" : "<=", rank - 2, (long long)k, all, t);
    return KILN_OK;
}

const kn_op_spec kn_op_trilu = {.name = "Trilu",
                                .min_inputs = 1,
                                .max_inputs = 1,
                                .input_names = {"input"},
                                .dtypes = "fiub",
                                .about = "the upper or the lower triangle of matrices, zero elsewhere",
                                .attrs = attrs,
                                .lower = lower};
