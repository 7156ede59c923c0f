/* AveragePool: mean over a sliding window, counting padding or not. */
#include "ops/ops.h"

/* How many elements of dimension i the window at Pi covers: constant inside, fewer at the edges. In floats: positions are exact in them
 * (checked by the caller), and vectors of floats are twice as many as of 64-bit integers. */
static void count(kn_op_call *c, const kn_window *w, int i, bool with_pad, const char *dtype)
{
    long long s = w->stride[i], p = w->pad[i], k = w->kernel[i], low = with_pad ? -p : 0;
    long long high = w->in[i] + (with_pad ? w->pad_end[i] : 0);
    kn_putf(&c->text, "(min(cast(P%d,%s)*%lld+%lld, %lld) - max(cast(P%d,%s)*%lld-%lld, %lld))", i, dtype, s, k - p, high, i, dtype, s, p, low);
}

static kiln_status lower(kn_op_call *c)
{
    kn_window win;
    bool with_pad = kn_attr_int(c, "count_include_pad", 0) != 0, even = true;
    kiln_status s = kn_op_window(c, c->in[0].rank - 2, NULL, &win);
    if (s != KILN_OK) return s;
    double all = 1;
    for (int i = 0; i < win.n; i++) {
        int64_t last = (win.out[i] - 1) * win.stride[i] - win.pad[i] + (win.kernel[i] - 1) * win.dilation[i] + 1;
        bool fits = last <= win.in[i] + (with_pad ? win.pad_end[i] : 0) && (with_pad || !win.pad[i]);
        even = even && fits;
        all *= (double)win.kernel[i];
        if (!fits && last >= 1 << 23) return kn_op_bad_shape(c, 0, "padded pooling is limited to 2^23 elements a dimension");
        if (!fits && win.dilation[i] != 1) return kn_op_bad_attr(c, "dilations", "dilated windows that reach into padding are not supported");
    }
    const char *out = kn_op_axes(c, "P", win.n);
    bool wide = *kn_op_wide(c) != 0;
    kn_putf(&c->text, "t[N,C,%s] +=! %s%s[N,C", out, wide ? "cast(" : "", win.reaches_out ? "pad(x0,0.0)" : "x0");
    kn_op_window_index(c, &win);
    kn_put(&c->text, wide ? "],f32)" : "]");
    kn_op_window_where(c, &win, true);
    kn_putf(&c->text, "%s; y[N,C,%s] = t[N,C,%s] %s ", kn_op_wide(c), out, out, even ? "/" : "*");
    if (even) kn_put_double(&c->text, all);
    for (int i = 0; !even && i < win.n; i++) { /* a reciprocal for each dimension: those of a row's elements and of a column's are few */
        kn_put(&c->text, i ? "*(1/" : "((1/");
        count(c, &win, i, with_pad, wide ? "f32" : kn_dtype_text(c->in[0].dtype));
        kn_put(&c->text, ")");
    }
    if (!even) kn_put(&c->text, ")");
    kn_op_end(c);
    return KILN_OK;
}

const kn_op_spec kn_op_averagepool = {.name = "AveragePool", .min_inputs = 1, .max_inputs = 1, .input_names = {"X"}, .dtypes = "f",
                                      .about = "mean over a sliding window", .attrs = kn_pool_attrs, .lower = lower};
