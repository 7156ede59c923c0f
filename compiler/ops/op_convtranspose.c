/* ConvTranspose: transposed convolution over one to three spatial dimensions. Every output gathers what reaches it: of the window's
 * positions only those whose step lands on an input element are walked, so a stride of s costs no products with inserted zeros. */
#include "ops/ops.h"
#include <string.h>

/* One spatial dimension. Output P takes weight R from input x where P + pad = x*stride + R*dilation. With g = gcd(stride, dilation) that
 * wants g | P + pad; then, over step = stride/g, R is (q*inverse) mod step for q = (P + pad)/g, plus step*J. */
typedef struct gather { int64_t in, out, kernel, pad, gcd, step, dilation, inverse, turns; } gather;

static int64_t gcd(int64_t x, int64_t y) { return y ? gcd(y, x % y) : x; }

static int64_t inverse(int64_t x, int64_t m)
{
    int64_t a = x % m, b = m, u = 1, v = 0;
    while (b) {
        int64_t q = a / b, t = a - q * b;
        a = b, b = t;
        t = u - q * v;
        u = v, v = t;
    }
    return m == 1 ? 0 : (u % m + m) % m;
}

static kiln_status extents(kn_op_call *c, int n, gather *g)
{
    const kn_operand *x = &c->in[0], *w = &c->in[1];
    int64_t stride[3], dilation[3], pads[6], more[3], kernel[3], shape[3];
    const char *mode = kn_attr_str(c, "auto_pad", "NOTSET");
    kiln_status s = kn_op_numbers(c, "strides", n, 1, 1, stride);
    if (s == KILN_OK) s = kn_op_numbers(c, "dilations", n, 1, 1, dilation);
    if (s == KILN_OK) s = kn_op_numbers(c, "pads", 2 * n, 0, 0, pads);
    if (s == KILN_OK) s = kn_op_numbers(c, "output_padding", n, 0, 0, more);
    if (s == KILN_OK) s = kn_op_numbers(c, "kernel_shape", n, 1, 0, kernel);
    if (s == KILN_OK) s = kn_op_numbers(c, "output_shape", n, 1, 0, shape);
    if (s != KILN_OK) return s;
    bool upper = !strcmp(mode, "SAME_UPPER"), same = upper || !strcmp(mode, "SAME_LOWER");
    if (!same && strcmp(mode, "VALID") && strcmp(mode, "NOTSET"))
        return kn_op_bad_attr(c, "auto_pad", "\"%s\" is none of NOTSET, SAME_UPPER, SAME_LOWER, VALID", mode);
    if (kn_attr_get(c, "pads") && (strcmp(mode, "NOTSET") || kn_attr_get(c, "output_shape")))
        return kn_op_bad_attr(c, "pads", "\"pads\" and \"%s\" exclude each other", strcmp(mode, "NOTSET") ? "auto_pad" : "output_shape");
    for (int i = 0; i < n; i++) {
        int64_t k = w->shape[i + 2], span = (k - 1) * dilation[i] + 1, full = (x->shape[i + 2] - 1) * stride[i] + span + more[i];
        if (kernel[i] && kernel[i] != k)
            return kn_op_bad_attr(c, "kernel_shape", "kernel_shape[%d] is %lld but W has %lld", i, (long long)kernel[i], (long long)k);
        if (more[i] >= stride[i] && more[i] >= dilation[i])
            return kn_op_bad_attr(c, "output_padding", "output_padding[%d] must be smaller than the stride or the dilation", i);
        int64_t out = shape[i] ? shape[i] : same ? x->shape[i + 2] * stride[i] : full - pads[i] - pads[n + i];
        int64_t all = full > out ? full - out : 0, pad = !shape[i] && !same ? pads[i] : upper ? all / 2 : all - all / 2;
        if (out < 1) return kn_op_bad_attr(c, "pads", "padding leaves nothing of spatial dimension %d, which has %lld elements", i, (long long)full);
        int64_t common = gcd(stride[i], dilation[i]), step = stride[i] / common;
        g[i] = (gather){.in = x->shape[i + 2], .out = out, .kernel = k, .pad = pad, .gcd = common, .step = step,
                        .dilation = dilation[i] / common, .inverse = inverse(dilation[i] / common, step), .turns = kn_ceil_div(k, step)};
    }
    return KILN_OK;
}

static kiln_status check(kn_op_call *c, int64_t group)
{
    const kn_operand *x = &c->in[0], *w = &c->in[1];
    if (x->rank < 3 || x->rank > 5) return kn_op_bad_shape(c, 0, "rank %d; [N, C, D1 ...] with one to three D is right", x->rank);
    if (w->rank != x->rank) return kn_op_bad_shape(c, 1, "W has rank %d but X has rank %d", w->rank, x->rank);
    if (group < 1 || x->shape[1] % group)
        return kn_op_bad_attr(c, "group", "%lld does not divide %lld input channels", (long long)group, (long long)x->shape[1]);
    if (w->shape[0] != x->shape[1])
        return kn_op_bad_shape(c, 1, "W has %lld input channels but X has %lld", (long long)w->shape[0], (long long)x->shape[1]);
    int64_t f;
    if (!kn_mul_fits(w->shape[1], group, &f)) return kn_op_bad_shape(c, 1, "too many output channels");
    return kn_op_per_channel(c, 2, f);
}

/* "P0+1", or its quotient by the common divisor. */
static const char *position(kn_op_call *c, const gather *g, int i)
{
    const char *p = g->pad ? kn_format(c->arena, "(P%d+%lld)", i, (long long)g->pad) : kn_format(c->arena, "P%d", i);
    return g->gcd == 1 || !p ? p : kn_format(c->arena, "(%s//%lld)", p, (long long)g->gcd);
}

static const char *weight(kn_op_call *c, const gather *g, int i)
{
    const char *q = position(c, g, i), *first = NULL;
    if (g->step > 1 && g->inverse == 1) first = kn_format(c->arena, "%s%%%lld", q, (long long)g->step);
    else if (g->step > 1) first = kn_format(c->arena, "%s*%lld%%%lld", q, (long long)g->inverse, (long long)g->step);
    if (g->turns == 1) return first ? first : "0";
    return kn_format(c->arena, "%s%sJ%d*%lld", first ? first : "", first ? "+" : "", i, (long long)g->step);
}

static const char *source(kn_op_call *c, const gather *g, int i)
{
    const char *q = position(c, g, i);
    if (g->step > 1 && g->dilation == 1) return kn_format(c->arena, g->turns > 1 ? "%s//%lld-J%d" : "%s//%lld", q, (long long)g->step, i);
    if (g->step == 1 && g->turns == 1) return q;
    if (g->step == 1) return kn_format(c->arena, "%s-J%d*%lld", q, i, (long long)g->dilation);
    return kn_format(c->arena, "(%s-(%s)*%lld)//%lld", q, weight(c, g, i), (long long)g->dilation, (long long)g->step);
}

/* "select(... && ..., " where some turn of the window has no weight or some position no element; true: to be closed by ", 0.0)". */
static bool guard(kn_op_call *c, const gather *g, int n)
{
    bool any = false;
    for (int i = 0; i < n; i++) {
        const char *at = kn_format(c->arena, "P%d+%lld", i, (long long)g[i].pad);
        if (g[i].gcd > 1) kn_putf(&c->text, "%s(%s)%%%lld == 0", any ? " && " : "select(", at ? at : "", (long long)g[i].gcd);
        any |= g[i].gcd > 1;
        if (g[i].kernel % g[i].step == 0) continue;
        kn_putf(&c->text, "%s%s < %lld", any ? " && " : "select(", weight(c, &g[i], i), (long long)g[i].kernel);
        any = true;
    }
    if (any) kn_put(&c->text, ", ");
    return any;
}

static void products(kn_op_call *c, const gather *g, int n, int64_t group)
{
    int64_t fg = c->in[1].shape[1], cg = c->in[0].shape[1] / group;
    kn_buf channel, at;
    kn_buf_init(&channel, c->arena);
    kn_op_channel(&channel, group, cg, fg);
    kiln_bytes t = kn_buf_take(&channel);
    const char *ch = t.p ? t.p : "";
    bool wide = *kn_op_wide(c) != 0, some = guard(c, g, n);
    kn_putf(&c->text, "%spad(x0,0.0)[N,%s", wide ? "cast(" : "", ch);
    for (int i = 0; i < n; i++) kn_putf(&c->text, ",%s", source(c, &g[i], i));
    kn_put(&c->text, wide ? "],f32) * " : "] * ");
    kn_buf_init(&at, c->arena);
    kn_putf(&at, "%s,", ch);
    kn_putf(&at, group == 1 ? "F" : fg == 1 ? "0" : "F%%%lld", (long long)fg);
    for (int i = 0; i < n; i++) kn_putf(&at, ",%s", weight(c, &g[i], i));
    t = kn_buf_take(&at);
    kn_op_load(c, 1, t.p ? t.p : "");
    if (some) kn_put(&c->text, ", 0.0)");
    kn_putf(&c->text, " where F in %lld", (long long)(fg * group));
    if (group == 1 || cg > 1) kn_putf(&c->text, ", C in %lld", (long long)cg);
    for (int i = 0; i < n; i++) {
        kn_putf(&c->text, ", P%d in %lld", i, (long long)g[i].out);
        if (g[i].turns > 1) kn_putf(&c->text, ", J%d in %lld", i, (long long)g[i].turns);
    }
}

static kiln_status lower(kn_op_call *c)
{
    gather g[3];
    int64_t group = kn_attr_int(c, "group", 1);
    int n = c->in[0].rank - 2;
    kiln_status s = check(c, group);
    if (s == KILN_OK) s = extents(c, n, g);
    if (s != KILN_OK) return s;
    bool bias = c->in[2].present;
    const char *out = kn_op_axes(c, "P", n);
    kn_putf(&c->text, "%s[N,F,%s] +=! ", bias ? "t" : "y", out);
    products(c, g, n, group);
    if (bias) {
        kn_putf(&c->text, "%s; y[N,F,%s] = t[N,F,%s] + ", kn_op_wide(c), out, out);
        kn_op_load(c, 2, "F");
    }
    kn_op_end(c);
    return KILN_OK;
}

static const kn_attr_spec attrs[] = {KN_WINDOW_ATTRS,
                                     {"group", 'i', "1", "groups of channels"},
                                     {"output_padding", 'I', "0...", "elements added at the end of each output dimension"},
                                     {"output_shape", 'I', "computed", "extents of the output; padding follows from them"},
                                     {NULL, 0, NULL, NULL}};

const kn_op_spec kn_op_convtranspose = {.name = "ConvTranspose", .min_inputs = 2, .max_inputs = 3, .input_names = {"X", "W", "B"},
                                        .dtypes = "f", .about = "transposed convolution over one to three spatial dimensions (NCHW, IOHW)",
                                        .attrs = attrs, .lower = lower};
