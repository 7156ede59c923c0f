/* Conv: convolution over one to three spatial dimensions, with groups, strides, pads, dilations and bias. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c)
{
    kn_window win = {0};
    bool bias = c->in[2].present;
    kiln_status s = kn_op_convolve(c, bias ? "t" : "y", &win);
    if (s == KILN_OK) s = kn_op_per_channel(c, 2, c->in[1].shape[0]);
    if (s != KILN_OK) return s;
    if (bias) {
        const char *out = kn_op_axes(c, "P", win.n);
        kn_putf(&c->text, "%s; y[N,F,%s] = t[N,F,%s] + ", kn_op_wide(c), out, out);
        kn_op_load(c, 2, "F");
    }
    kn_op_end(c);
    return KILN_OK;
}

const kn_op_spec kn_op_conv = {.name = "Conv", .min_inputs = 2, .max_inputs = 3, .input_names = {"X", "W", "B"}, .dtypes = "f",
                               .about = "convolution over one to three spatial dimensions (NCHW, OIHW)", .attrs = kn_window_attrs,
                               .lower = lower};
