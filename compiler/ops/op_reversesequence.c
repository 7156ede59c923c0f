/* ReverseSequence: the first sequence_lens[b] elements of every sequence turned round, the others where they are. */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {{"time_axis", 'i', "0", "axis along which sequences run"},
                                     {"batch_axis", 'i', "1", "axis that numbers them"},
                                     {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    const kn_operand *x = &c->in[0], *n = &c->in[1];
    int64_t time = kn_attr_int(c, "time_axis", 0), batch = kn_attr_int(c, "batch_axis", 1);
    if (x->rank < 2) return kn_op_bad_shape(c, 0, "a rank from 2 on is right");
    if (time < 0 || time > 1) return kn_op_bad_attr(c, "time_axis", "%lld; 0 or 1 is right", (long long)time);
    if (batch != 1 - time) return kn_op_bad_attr(c, "batch_axis", "%lld; the other one of 0 and 1 is right", (long long)batch);
    if (n->rank != 1 || n->shape[0] != x->shape[batch]) return kn_op_bad_shape(c, 1, "must be [%lld]", (long long)x->shape[batch]);
    kn_putf(&c->text, "y[%s] = x0[", kn_op_axes(c, "A", x->rank));
    for (int i = 0; i < x->rank; i++) {
        kn_put(&c->text, i ? "," : "");
        if (i != time) kn_putf(&c->text, "A%d", i);
        else kn_putf(&c->text, "select(A%d < x1[A%d], x1[A%d] - 1 - A%d, A%d)", i, (int)batch, (int)batch, i, i);
    }
    kn_put(&c->text, "]");
    kn_op_extents(c, "A", x->rank, x->shape);
    return KILN_OK;
}

const kn_op_spec kn_op_reversesequence = {.name = "ReverseSequence", .min_inputs = 2, .max_inputs = 2, .input_names = {"input", "sequence_lens"},
                                          .dtypes = "fiub", .input_dtypes = {NULL, "i"},
                                          .about = "the first elements of every sequence turned round", .attrs = attrs, .lower = lower};
