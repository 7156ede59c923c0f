/* BatchConv: convolution in which every sample of the batch has weights of its own (dynamic and conditional convolutions). Not in ONNX. */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {KN_WINDOW_ATTRS, {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    const kn_operand *x = &c->in[0], *w = &c->in[1];
    if (x->rank < 3 || x->rank > 5) return kn_op_bad_shape(c, 0, "rank %d; [N, C, D1 ...] with one to three D is right", x->rank);
    if (w->rank != x->rank + 1) return kn_op_bad_shape(c, 1, "rank %d; [N, F, C, K1 ...], rank %d, is right", w->rank, x->rank + 1);
    if (w->shape[0] != x->shape[0] || w->shape[2] != x->shape[1])
        return kn_op_bad_shape(c, 1, "must be [%lld, F, %lld, K1 ...], with the samples and channels of X", (long long)x->shape[0],
                               (long long)x->shape[1]);
    kn_window win;
    kiln_status s = kn_op_window(c, x->rank - 2, &w->shape[3], &win);
    if (s != KILN_OK) return s;
    kn_putf(&c->text, "y[N,F,%s] +=! ", kn_op_axes(c, "P", win.n));
    kn_op_window_load(c, &win, "N,C", "");
    kn_put(&c->text, " * ");
    kn_op_kernel_load(c, &win, "N,F,C", "");
    kn_op_window_where(c, &win, false);
    kn_op_end(c);
    return KILN_OK;
}

const kn_op_spec kn_op_batchconv = {.name = "BatchConv", .min_inputs = 2, .max_inputs = 2, .input_names = {"X", "W"}, .dtypes = "f",
                                    .about = "convolution with weights of its own for every sample (NCHW, NOIHW)", .attrs = attrs,
                                    .lower = lower};
