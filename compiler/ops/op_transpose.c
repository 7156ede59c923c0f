/* Transpose: a permutation of the axes. */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {{"perm", 'I', "reversed", "perm[i]: input axis that becomes output axis i"}, {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    int rank = c->in[0].rank, perm[KILN_MAX_RANK];
    const kn_attr *a = kn_attr_get(c, "perm");
    if (a && a->n != rank) return kn_op_bad_attr(c, "perm", "\"perm\" has %d numbers but the tensor has rank %d", a->n, rank);
    uint32_t seen = 0;
    for (int i = 0; i < rank; i++) {
        if (!a) perm[i] = rank - 1 - i;
        else if (!kn_op_axis(c, "perm", a->list[i], rank, &perm[i])) return c->d->status;
        if (seen >> perm[i] & 1) return kn_op_bad_attr(c, "perm", "axis %d stands twice in \"perm\"", perm[i]);
        seen |= 1u << perm[i];
    }
    kn_put(&c->text, "y[");
    for (int i = 0; i < rank; i++) kn_putf(&c->text, "%sA%d", i ? "," : "", perm[i]);
    kn_putf(&c->text, "] = x0[%s]", kn_op_axes(c, "A", rank));
    return KILN_OK;
}

const kn_op_spec kn_op_transpose = {.name = "Transpose", .min_inputs = 1, .max_inputs = 1, .input_names = {"data"}, .dtypes = "fiub",
                                    .about = "permutation of the axes", .attrs = attrs, .lower = lower};
