/* TransposedBatchMatMul: q[B,S,H,D] by k[B,T,H,D] over D, heads brought forward: scores [B,H,S,T] (TensorIR's TBG). Not in ONNX. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c)
{
    const kn_operand *q = &c->in[0], *k = &c->in[1];
    for (int i = 0; i < 2; i++)
        if (c->in[i].rank != 4) return kn_op_bad_shape(c, i, "rank %d; [batch, sequence, head, dimension] is right", c->in[i].rank);
    if (q->shape[0] != k->shape[0] || q->shape[2] != k->shape[2] || q->shape[3] != k->shape[3])
        return kn_op_bad_shape(c, 1, "batch, heads and dimension must be those of Q: [%lld, T, %lld, %lld]", (long long)q->shape[0],
                               (long long)q->shape[2], (long long)q->shape[3]);
    kn_put(&c->text, "y[B,H,S,T] +=! ");
    kn_op_load(c, 0, "B,S,H,D");
    kn_put(&c->text, " * ");
    kn_op_load(c, 1, "B,T,H,D");
    kn_op_end(c);
    return KILN_OK;
}

const kn_op_spec kn_op_transposedbatchmatmul = {.name = "TransposedBatchMatMul", .min_inputs = 2, .max_inputs = 2, .input_names = {"Q", "K"},
                                                .dtypes = "f", .about = "scores of queries and keys, heads brought forward", .lower = lower};
