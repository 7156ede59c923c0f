/* Conv: convolution over one to three spatial dimensions, with groups, strides, pads, dilations and bias. */
#include "ops/ops.h"

static kiln_status check(kn_op_call *c, int64_t group)
{
    const kn_operand *x = &c->in[0], *w = &c->in[1], *b = &c->in[2];
    if (w->rank != x->rank) return kn_op_bad_shape(c, 1, "W has rank %d but X has rank %d", w->rank, x->rank);
    if (group < 1 || x->shape[1] % group || w->shape[0] % group)
        return kn_op_bad_attr(c, "group", "%lld does not divide %lld input and %lld output channels", (long long)group,
                              (long long)x->shape[1], (long long)w->shape[0]);
    if (w->shape[1] != x->shape[1] / group)
        return kn_op_bad_shape(c, 1, "W has %lld input channels a group; X has %lld channels in %lld groups", (long long)w->shape[1],
                               (long long)x->shape[1], (long long)group);
    if (b->present && (b->rank != 1 || b->shape[0] != w->shape[0]))
        return kn_op_bad_shape(c, 2, "B must be [%lld], one number an output channel", (long long)w->shape[0]);
    return KILN_OK;
}

static void operands(kn_op_call *c, const kn_window *win, int64_t group)
{
    int64_t cg = c->in[1].shape[1], fg = c->in[1].shape[0] / group;
    kn_buf b;
    kn_buf_init(&b, c->arena);
    kn_put(&b, "N,");
    kn_op_channel(&b, group, cg, fg);
    kiln_bytes lead = kn_buf_take(&b);
    kn_op_window_load(c, win, lead.p ? lead.p : "", "");
    kn_put(&c->text, " * ");
    kn_op_kernel_load(c, win, cg == 1 && group > 1 ? "F,0" : "F,C", "");
}

static kiln_status lower(kn_op_call *c)
{
    int64_t group = kn_attr_int(c, "group", 1);
    kn_window win;
    if (c->in[0].rank < 3 || c->in[0].rank > 5) return kn_op_bad_shape(c, 0, "rank %d; [N, C, D1 ...] with one to three D is right", c->in[0].rank);
    kiln_status s = check(c, group);
    if (s == KILN_OK) s = kn_op_window(c, &c->in[1].shape[2], &win);
    if (s != KILN_OK) return s;
    bool bias = c->in[2].present;
    const char *out = kn_op_axes(c, "P", win.n);
    kn_putf(&c->text, "%s[N,F,%s] +=! ", bias ? "t" : "y", out);
    operands(c, &win, group);
    kn_op_window_where(c, &win, false);
    if (bias) {
        kn_putf(&c->text, "%s; y[N,F,%s] = t[N,F,%s] + ", kn_op_wide(c), out, out);
        kn_op_load(c, 2, "F");
    }
    kn_op_end(c);
    return KILN_OK;
}

const kn_op_spec kn_op_conv = {.name = "Conv", .min_inputs = 2, .max_inputs = 3, .input_names = {"X", "W", "B"}, .dtypes = "f",
                               .about = "convolution over one to three spatial dimensions (NCHW, OIHW)", .attrs = kn_window_attrs,
                               .lower = lower};
