/* CapsuleConv: convolution of capsules, in two forms told apart by the rank of W. Not in ONNX.
 *   matrix capsules: X [N, C, D1 ..., I, K], W [F, C, K1 ..., K, J]: every pixel is a matrix, multiplied by the window's matrices (TensorIR's CAP)
 *   one filter a capsule: X [N, C, D1 ...], W [F, C, K1 ..., J] (AMOS's CAP); Y [N, F, P1 ..., J] */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {KN_WINDOW_ATTRS, {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    const kn_operand *x = &c->in[0], *w = &c->in[1];
    bool matrix = w->rank == x->rank;
    int n = matrix ? x->rank - 4 : x->rank - 2;
    if (!matrix && w->rank != x->rank + 1)
        return kn_op_bad_shape(c, 1, "rank %d; %d (one filter a capsule) or %d (matrix capsules) is right", w->rank, x->rank + 1, x->rank);
    if (n < 1 || n > 3) return kn_op_bad_shape(c, 0, "rank %d; one to three spatial dimensions are right", x->rank);
    if (w->shape[1] != x->shape[1])
        return kn_op_bad_shape(c, 1, "W has %lld input channels but X has %lld", (long long)w->shape[1], (long long)x->shape[1]);
    if (matrix && w->shape[n + 2] != x->shape[n + 3])
        return kn_op_bad_shape(c, 1, "capsules of %lld columns by matrices of %lld rows", (long long)x->shape[n + 3], (long long)w->shape[n + 2]);
    kn_window win;
    kiln_status s = kn_op_window(c, n, &w->shape[2], &win);
    if (s != KILN_OK) return s;
    kn_putf(&c->text, "y[N,F,%s%s,J] +=! ", kn_op_axes(c, "P", n), matrix ? ",I" : "");
    kn_op_window_load(c, &win, "N,C", matrix ? ",I,K" : "");
    kn_put(&c->text, " * ");
    kn_op_kernel_load(c, &win, "F,C", matrix ? ",K,J" : ",J");
    kn_op_window_where(c, &win, false);
    kn_op_end(c);
    return KILN_OK;
}

const kn_op_spec kn_op_capsuleconv = {.name = "CapsuleConv", .min_inputs = 2, .max_inputs = 2, .input_names = {"X", "W"}, .dtypes = "f",
                                      .about = "convolution of capsules: matrices for pixels, or one filter a capsule", .attrs = attrs,
                                      .lower = lower};
