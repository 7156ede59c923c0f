/* MaxPool: maximum over a sliding window; padding never wins. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c)
{
    kn_window win;
    if (kn_attr_int(c, "storage_order", 0)) return kn_op_bad_attr(c, "storage_order", "only 0 (row major) is supported");
    kiln_status s = kn_op_window(c, c->in[0].rank - 2, NULL, &win);
    if (s != KILN_OK) return s;
    for (int i = 0; i < win.n; i++)
        if (win.pad[i] >= win.kernel[i] || win.pad_end[i] >= win.kernel[i])
            return kn_op_bad_attr(c, "pads", "padding %d must be smaller than the window", i);
    kn_putf(&c->text, "y[N,C,%s] >=! %s[N,C", kn_op_axes(c, "P", win.n), win.reaches_out ? "pad(x0,-inf)" : "x0");
    kn_op_window_index(c, &win);
    kn_put(&c->text, "]");
    kn_op_window_where(c, &win, true);
    kn_op_end(c);
    return KILN_OK;
}

const kn_op_spec kn_op_maxpool = {.name = "MaxPool", .min_inputs = 1, .max_inputs = 1, .input_names = {"X"}, .dtypes = "f",
                                  .about = "maximum over a sliding window (first output only)", .attrs = kn_pool_attrs, .lower = lower};
