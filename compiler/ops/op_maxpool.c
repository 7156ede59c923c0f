/* MaxPool: maximum over a sliding window; padding never wins. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c)
{
    kn_window win;
    if (kn_attr_int(c, "storage_order", 0)) return kn_op_bad_attr(c, "storage_order", "only 0 (row major) is supported");
    if (kn_dtype_class(c->in[0].dtype) == 'i' && kn_dtype_bytes(c->in[0].dtype) > 1)
        return kn_fail_at(c->d, KILN_DTYPE, "/inputs/0/dtype", "a float, i8 or u8 is right");
    kiln_status s = kn_op_window(c, c->in[0].rank - 2, NULL, &win);
    if (s != KILN_OK) return s;
    for (int i = 0; i < win.n; i++)
        if (win.pad[i] >= win.kernel[i] || win.pad_end[i] >= win.kernel[i])
            return kn_op_bad_attr(c, "pads", "padding %d must be smaller than the window", i);
    enum kn_dtype t = c->in[0].dtype;
    const char *least = kn_dtype_class(t) == 'f' ? "-inf" : kn_dtype_class(t) == 'u' ? "0" : "-128";
    kn_putf(&c->text, "y[N,C,%s] >=! ", kn_op_axes(c, "P", win.n));
    kn_putf(&c->text, win.reaches_out ? "pad(x0,%s)[N,C" : "x0[N,C", least);
    kn_op_window_index(c, &win);
    kn_put(&c->text, "]");
    kn_op_window_where(c, &win, true);
    kn_op_end(c);
    return KILN_OK;
}

const kn_op_spec kn_op_maxpool = {.name = "MaxPool", .min_inputs = 1, .max_inputs = 1, .input_names = {"X"}, .dtypes = "fiu",
                                  .about = "maximum over a sliding window (first output only)", .attrs = kn_pool_attrs, .lower = lower};
