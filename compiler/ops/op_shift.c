/* Shift: every channel moves by its own step inside a small window, zeros come in (Shift, CVPR'18; FlexTensor's SHO). Not in ONNX. */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {{"kernel_shape", 'I', "3...", "window of the steps; its middle is no step"},
                                     {"dilations", 'I', "1...", "elements of one step"},
                                     {"strides", 'I', "1...", "step of the output"},
                                     {NULL, 0, NULL, NULL}};

/* Position of channel C in the window, row-major. Without Index, channels share the positions evenly and those left over do not move. */
static const char *position(kn_op_call *c, int64_t area)
{
    if (c->in[1].present) return "x1[C]";
    int64_t channels = c->in[0].shape[1], share = channels / area > 0 ? channels / area : 1;
    if (share * area >= channels) return share == 1 ? "C" : kn_format(c->arena, "C//%lld", (long long)share);
    return kn_format(c->arena, "select(C < %lld, C//%lld, %lld)", (long long)(share * area), (long long)share, (long long)(area / 2));
}

static kiln_status lower(kn_op_call *c)
{
    const kn_operand *x = &c->in[0];
    int n = x->rank - 2;
    int64_t kernel[3], dilation[3], stride[3], area = 1;
    if (n < 1 || n > 3) return kn_op_bad_shape(c, 0, "rank %d; [N, C, D1 ...] with one to three D is right", x->rank);
    kiln_status s = kn_op_numbers(c, "kernel_shape", n, 1, 3, kernel);
    if (s == KILN_OK) s = kn_op_numbers(c, "dilations", n, 1, 1, dilation);
    if (s == KILN_OK) s = kn_op_numbers(c, "strides", n, 1, 1, stride);
    if (s == KILN_OK) s = kn_op_per_channel(c, 1, x->shape[1]);
    if (s != KILN_OK) return s;
    for (int i = 0; i < n; i++)
        if (!kn_mul_fits(area, kernel[i], &area)) return kn_op_bad_attr(c, "kernel_shape", "the window is too large");
    const char *at = position(c, area);
    kn_putf(&c->text, "y[N,C,%s] = pad(x0,0)[N,C", kn_op_axes(c, "P", n));
    for (int i = 0; i < n; i++) {
        area /= kernel[i];
        kn_putf(&c->text, ",P%d*%lld + (%s)//%lld%%%lld*%lld - %lld", i, (long long)stride[i], at, (long long)area, (long long)kernel[i],
                (long long)dilation[i], (long long)(kernel[i] / 2 * dilation[i]));
    }
    kn_put(&c->text, "] where ");
    for (int i = 0; i < n; i++) kn_putf(&c->text, "%sP%d in %lld", i ? ", " : "", i, (long long)kn_ceil_div(x->shape[i + 2], stride[i]));
    return KILN_OK;
}

const kn_op_spec kn_op_shift = {.name = "Shift", .min_inputs = 1, .max_inputs = 2, .input_names = {"X", "Index"}, .dtypes = "fiu",
                                .input_dtypes = {NULL, "i"}, .about = "every channel moved by its own step in a window, zeros come in",
                                .attrs = attrs, .lower = lower};
