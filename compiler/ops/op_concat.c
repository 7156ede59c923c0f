/* Concat: tensors one behind the other along an axis. */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {{"axis", 'i', "mandatory", "axis along which they stand; negative counts from the end"},
                                     {NULL, 0, NULL, NULL}};

static kiln_status check(kn_op_call *c, int axis)
{
    const kn_operand *x = &c->in[0];
    for (int k = 1; k < c->ninputs; k++) {
        if (!c->in[k].present || c->in[k].rank != x->rank) return kn_op_bad_shape(c, k, "must have rank %d like the first", x->rank);
        for (int i = 0; i < x->rank; i++)
            if (i != axis && c->in[k].shape[i] != x->shape[i])
                return kn_op_bad_shape(c, k, "dimension %d is %lld but %lld of the first", i, (long long)c->in[k].shape[i],
                                       (long long)x->shape[i]);
    }
    return KILN_OK;
}

/* "xk[A0,A1-off,A2]" */
static void part(kn_op_call *c, int k, int axis, int64_t off)
{
    kn_putf(&c->text, "x%d[", k);
    for (int i = 0; i < c->in[k].rank; i++) {
        kn_putf(&c->text, "%sA%d", i ? "," : "", i);
        if (i == axis && off) kn_putf(&c->text, "-%lld", (long long)off);
    }
    kn_put(&c->text, "]");
}

static kiln_status lower(kn_op_call *c)
{
    int rank = c->in[0].rank, axis;
    if (!kn_attr_get(c, "axis")) return kn_op_bad_attr(c, "axis", "\"axis\" is mandatory");
    if (!kn_op_axis(c, "axis", kn_attr_int(c, "axis", 0), rank, &axis)) return c->d->status;
    kiln_status s = check(c, axis);
    if (s != KILN_OK) return s;
    int64_t off = 0, shape[KILN_MAX_RANK];
    kn_putf(&c->text, "y[%s] = ", kn_op_axes(c, "A", rank));
    for (int k = 0; k < c->ninputs; k++) {
        bool last = k == c->ninputs - 1;
        if (!last) kn_putf(&c->text, "select(A%d < %lld, ", axis, (long long)(off + c->in[k].shape[axis]));
        part(c, k, axis, off);
        kn_put(&c->text, last ? "" : ", ");
        off += c->in[k].shape[axis];
    }
    for (int k = 1; k < c->ninputs; k++) kn_put(&c->text, ")");
    for (int i = 0; i < rank; i++) shape[i] = i == axis ? off : c->in[0].shape[i];
    kn_op_extents(c, "A", rank, shape);
    return KILN_OK;
}

const kn_op_spec kn_op_concat = {.name = "Concat",
                                 .min_inputs = 1,
                                 .max_inputs = KN_OP_INPUTS,
                                 .input_names = {"inputs"},
                                 .dtypes = "fiub",
                                 .about = "tensors one behind the other along an axis",
                                 .attrs = attrs,
                                 .lower = lower};
