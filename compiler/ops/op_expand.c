/* Expand: a tensor broadcast to a shape, by NumPy's rules in both directions. */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {{"shape", 'I', "mandatory", "shape to broadcast with"}, {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    const kn_operand *x = &c->in[0];
    const kn_attr *to = kn_attr_get(c, "shape");
    if (!to || to->n > KILN_MAX_RANK) return kn_op_bad_attr(c, "shape", "up to %d extents are right", KILN_MAX_RANK);
    int rank = to->n > x->rank ? to->n : x->rank;
    int64_t shape[KILN_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        int64_t a = i < rank - x->rank ? 1 : x->shape[i - (rank - x->rank)], b = i < rank - to->n ? 1 : to->list[i - (rank - to->n)];
        if (b < 1 || b > KILN_MAX_EXTENT || (a != b && a != 1 && b != 1))
            return kn_op_bad_attr(c, "shape", "%lld does not go with dimension %lld of the input", (long long)b, (long long)a);
        shape[i] = a == 1 ? b : a;
    }
    kn_putf(&c->text, "y[%s] = x0[%s]", kn_op_axes(c, "A", rank), kn_op_broadcast(c, 0, "A", rank));
    kn_op_extents(c, "A", rank, shape);
    return KILN_OK;
}

const kn_op_spec kn_op_expand = {.name = "Expand",
                                 .min_inputs = 1,
                                 .max_inputs = 1,
                                 .input_names = {"input"},
                                 .dtypes = "fiub",
                                 .about = "a tensor broadcast to a shape",
                                 .attrs = attrs,
                                 .lower = lower};
