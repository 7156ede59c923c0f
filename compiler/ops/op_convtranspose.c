/* ConvTranspose: transposed convolution over one to three spatial dimensions. Outputs are computed by phase, their remainder by the stride:
 * within one phase a transposed convolution is a convolution with every step-th weight, so inserted zeros are never multiplied. Of phases that have
 * fewer weights than others the rest are padding, which what lowers reductions leaves out. */
#include "ops/ops.h"
#include <string.h>

/* One spatial dimension. Output P takes weight R from input x where P + pad = x*stride + R*dilation. Of pad only the remainder by the stride makes
 * phases; the rest moves what is read. With g = gcd(stride, dilation) that wants g | P + pad; then, for step = stride/g, phase G and quotient A of
 * (P + pad)/g by step, R is G*inverse mod step, plus step*J. Where weights can be numbered from `first` on instead, phases are those of P itself, so
 * that none has a place that no output takes. */
typedef struct gather { int64_t out, kernel, pad, moved, first, stride, gcd, step, dilation, inverse, turns; } gather;

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

/* Phases of P itself, if that takes no more turns: the first weight of phase 0 is pad, the one before it stands in front of them for the others. */
static void number_weights(gather *g)
{
    if (g->stride == 1 || !g->pad || g->gcd > 1 || g->dilation > 1) return;
    if ((g->kernel - 1 - g->pad + g->step) / g->step + 1 > g->turns) return;
    g->first = g->pad - g->step;
    g->moved++;
    g->pad = 0;
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
        int64_t phase = stride[i] > 1 ? pad % stride[i] : 0;
        g[i] = (gather){.out = out, .kernel = k, .pad = phase, .moved = (pad - phase) / stride[i], .stride = stride[i], .gcd = common, .step = step,
                        .dilation = dilation[i] / common, .inverse = inverse(dilation[i] / common, step), .turns = kn_ceil_div(k, step)};
        number_weights(&g[i]);
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

/* Weight of turn J: its phase's first, plus step*J. */
static const char *weight(kn_op_call *c, const gather *g, int i)
{
    const char *first = NULL;
    if (g->step > 1 && g->inverse == 1) first = kn_format(c->arena, "G%d", i);
    else if (g->step > 1) first = kn_format(c->arena, "G%d*%lld%%%lld", i, (long long)g->inverse, (long long)g->step);
    if (g->first) first = kn_format(c->arena, "G%d - %lld", i, (long long)-g->first);
    if (g->turns == 1) return first ? first : "0";
    return kn_format(c->arena, "%s%sJ%d*%lld", first ? first : "", first ? " + " : "", i, (long long)g->step);
}

/* Input element of turn J at quotient A, or at output P where the stride is 1. */
static const char *source(kn_op_call *c, const gather *g, int i)
{
    kn_buf b;
    kn_buf_init(&b, c->arena);
    kn_putf(&b, "%c%d", g->stride > 1 ? 'A' : 'P', i);
    if (g->moved) kn_putf(&b, " + %lld", (long long)g->moved);
    if (g->step > 1 && g->dilation > 1)
        kn_putf(&b, " + (G%d - G%d*%lld%%%lld*%lld)//%lld", i, i, (long long)g->inverse, (long long)g->step, (long long)g->dilation,
                (long long)g->step);
    if (g->turns > 1) kn_putf(&b, " - J%d*%lld", i, (long long)g->dilation);
    kiln_bytes t = kn_buf_take(&b);
    return t.p ? t.p : "";
}

static void products(kn_op_call *c, const gather *g, int n, int64_t group)
{
    int64_t fg = c->in[1].shape[1], cg = c->in[0].shape[1] / group;
    kn_buf channel, at;
    kn_buf_init(&channel, c->arena);
    kn_op_channel(&channel, group, cg, fg);
    kiln_bytes t = kn_buf_take(&channel);
    const char *ch = t.p ? t.p : "";
    bool wide = *kn_op_wide(c) != 0, some = false;
    for (int i = 0; i < n; i++) some |= g[i].first || g[i].kernel % g[i].step; /* a turn has no weight in every phase */
    kn_putf(&c->text, "%spad(x0,0)[N,%s", wide ? "cast(" : "", ch);
    for (int i = 0; i < n; i++) kn_putf(&c->text, ",%s", source(c, &g[i], i));
    kn_put(&c->text, wide ? "],f32) * " : "] * ");
    kn_buf_init(&at, c->arena);
    kn_putf(&at, "%s,", ch);
    kn_putf(&at, group == 1 ? "F" : fg == 1 ? "0" : "F%%%lld", (long long)fg);
    for (int i = 0; i < n; i++) kn_putf(&at, ",%s", weight(c, &g[i], i));
    t = kn_buf_take(&at);
    kn_putf(&c->text, "%s%s[%s]%s", wide ? "cast(" : "", some ? "pad(x1,0)" : "x1", t.p ? t.p : "", wide ? ",f32)" : "");
    kn_putf(&c->text, " where F in %lld", (long long)(fg * group));
    if (group == 1 || cg > 1) kn_putf(&c->text, ", C in %lld", (long long)cg);
    for (int i = 0; i < n; i++) {
        if (g[i].stride == 1) kn_putf(&c->text, ", P%d in %lld", i, (long long)g[i].out);
        else kn_putf(&c->text, ", A%d in %lld", i, (long long)((g[i].out - 1 + g[i].pad) / g[i].stride + 1));
        if (g[i].step > 1) kn_putf(&c->text, ", G%d in %lld", i, (long long)g[i].step);
        if (g[i].turns > 1) kn_putf(&c->text, ", J%d in %lld", i, (long long)g[i].turns);
    }
}

/* "[N,F,phases,quotients]": the axes of the products, or where output P finds them. */
static void phases(kn_op_call *c, const gather *g, int n, bool at_output)
{
    kn_put(&c->text, "[N,F");
    for (int i = 0; i < n; i++) {
        if (g[i].step == 1) continue;
        if (!at_output) kn_putf(&c->text, ",G%d", i);
        else kn_putf(&c->text, ",(P%d + %lld)//%lld%%%lld", i, (long long)g[i].pad, (long long)g[i].gcd, (long long)g[i].step);
    }
    for (int i = 0; i < n; i++) {
        if (g[i].stride == 1 || !at_output) kn_putf(&c->text, ",%c%d", g[i].stride == 1 ? 'P' : 'A', i);
        else kn_putf(&c->text, ",(P%d + %lld)//%lld", i, (long long)g[i].pad, (long long)g[i].stride);
    }
    kn_put(&c->text, "]");
}

/* Outputs that a common divisor of stride and dilation keeps every weight from are zero. */
static bool select_reached(kn_op_call *c, const gather *g, int n)
{
    bool some = false;
    for (int i = 0; i < n; i++) {
        if (g[i].gcd == 1) continue;
        kn_putf(&c->text, "%s(P%d + %lld)%%%lld == 0", some ? " && " : "select(", i, (long long)g[i].pad, (long long)g[i].gcd);
        some = true;
    }
    if (some) kn_put(&c->text, ", ");
    return some;
}

static kiln_status lower(kn_op_call *c)
{
    gather g[3];
    int64_t group = kn_attr_int(c, "group", 1);
    int n = c->in[0].rank - 2;
    kiln_status s = check(c, group);
    if (s == KILN_OK) s = extents(c, n, g);
    if (s != KILN_OK) return s;
    bool bias = c->in[2].present, strided = false;
    const char *out = kn_op_axes(c, "P", n);
    for (int i = 0; i < n; i++) strided |= g[i].stride > 1;
    kn_put(&c->text, bias || strided ? "t" : "y");
    phases(c, g, n, false);
    kn_put(&c->text, " +=! ");
    products(c, g, n, group);
    if (bias || strided) {
        kn_putf(&c->text, "%s; y[N,F,%s] = ", kn_op_wide(c), out);
        bool some = select_reached(c, g, n);
        kn_put(&c->text, "t");
        phases(c, g, n, true);
        if (some) kn_put(&c->text, ", 0.0)");
        if (bias) kn_put(&c->text, " + ");
        if (bias) kn_op_load(c, 2, "F");
        for (int i = 0; i < n; i++) kn_putf(&c->text, "%sP%d in %lld", i ? ", " : " where ", i, (long long)g[i].out);
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
