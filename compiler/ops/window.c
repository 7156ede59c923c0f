/* The sliding window of convolutions and pooling, in ONNX's attributes. */
#include "ops/ops.h"
#include <string.h>

const kn_attr_spec kn_window_attrs[] = {KN_WINDOW_ATTRS, {"group", 'i', "1", "groups of channels"}, {NULL, 0, NULL, NULL}};
const kn_attr_spec kn_pool_attrs[] = {KN_WINDOW_ATTRS,
                                      {"ceil_mode", 'i', "0", "1 rounds the output extent up"},
                                      {"count_include_pad", 'i', "0", "AveragePool: 1 counts padding"},
                                      {"storage_order", 'i', "0", "MaxPool: must be 0"},
                                      {NULL, 0, NULL, NULL}};

kiln_status kn_op_numbers(kn_op_call *c, const char *name, int n, int64_t least, int64_t fallback, int64_t *out)
{
    const kn_attr *a = kn_attr_get(c, name);
    for (int i = 0; i < n; i++) out[i] = fallback;
    if (!a) return KILN_OK;
    if (a->n != n) return kn_op_bad_attr(c, name, "\"%s\" must have %d numbers, got %d", name, n, a->n);
    for (int i = 0; i < n; i++) {
        if (a->list[i] < least || a->list[i] > KILN_MAX_EXTENT / 4)
            return kn_op_bad_attr(c, name, "\"%s\"[%d] is %lld; from %lld on is right", name, i, (long long)a->list[i], (long long)least);
        out[i] = a->list[i];
    }
    return KILN_OK;
}

static kiln_status set_pads(kn_op_call *c, kn_window *w)
{
    const char *mode = kn_attr_str(c, "auto_pad", "NOTSET");
    int64_t pads[6];
    kiln_status s = kn_op_numbers(c, "pads", 2 * w->n, 0, 0, pads);
    if (s != KILN_OK) return s;
    bool upper = !strcmp(mode, "SAME_UPPER"), lower = !strcmp(mode, "SAME_LOWER");
    if (!upper && !lower && strcmp(mode, "VALID") && strcmp(mode, "NOTSET"))
        return kn_op_bad_attr(c, "auto_pad", "\"%s\" is none of NOTSET, SAME_UPPER, SAME_LOWER, VALID", mode);
    if (strcmp(mode, "NOTSET") && kn_attr_get(c, "pads"))
        return kn_op_bad_attr(c, "pads", "\"pads\" and \"auto_pad\": \"%s\" exclude each other", mode);
    for (int i = 0; i < w->n; i++) {
        w->pad[i] = pads[i];
        w->pad_end[i] = pads[w->n + i];
        if (!upper && !lower) continue;
        int64_t span = (w->kernel[i] - 1) * w->dilation[i] + 1;
        int64_t all = (kn_ceil_div(w->in[i], w->stride[i]) - 1) * w->stride[i] + span - w->in[i];
        if (all < 0) all = 0;
        w->pad[i] = upper ? all / 2 : all - all / 2;
        w->pad_end[i] = all - w->pad[i];
    }
    return KILN_OK;
}

kiln_status kn_op_window(kn_op_call *c, int n, const int64_t *kernel, kn_window *w)
{
    *w = (kn_window){.n = n, .pool = !kernel, .from = "x0", .as = *kn_op_wide(c) ? "f32" : "", .less = ""};
    if (w->n < 1 || w->n > 3) return kn_op_bad_shape(c, 0, "rank %d; N, C and one to three spatial dimensions are right", c->in[0].rank);
    kiln_status s = kn_op_numbers(c, "kernel_shape", w->n, 1, 0, w->kernel);
    if (s == KILN_OK) s = kn_op_numbers(c, "strides", w->n, 1, 1, w->stride);
    if (s == KILN_OK) s = kn_op_numbers(c, "dilations", w->n, 1, 1, w->dilation);
    if (s != KILN_OK) return s;
    for (int i = 0; i < w->n; i++) {
        w->in[i] = c->in[0].shape[i + 2];
        if (kernel && w->kernel[i] && w->kernel[i] != kernel[i])
            return kn_op_bad_attr(c, "kernel_shape", "kernel_shape[%d] is %lld but W has %lld", i, (long long)w->kernel[i],
                                  (long long)kernel[i]);
        if (kernel) w->kernel[i] = kernel[i];
        if (!w->kernel[i]) return kn_op_bad_attr(c, "kernel_shape", "\"kernel_shape\" is mandatory");
    }
    if ((s = set_pads(c, w)) != KILN_OK) return s;
    bool up = kn_attr_int(c, "ceil_mode", 0) != 0;
    for (int i = 0; i < w->n; i++) {
        int64_t span = (w->kernel[i] - 1) * w->dilation[i] + 1, room = w->in[i] + w->pad[i] + w->pad_end[i] - span;
        if (room < 0)
            return kn_op_bad_shape(c, 0, "spatial dimension %d: the window spans %lld but only %lld elements are there, padding included", i,
                                   (long long)span, (long long)(room + span));
        w->out[i] = (up ? kn_ceil_div(room, w->stride[i]) : room / w->stride[i]) + 1;
        if (up && (w->out[i] - 1) * w->stride[i] >= w->in[i] + w->pad[i]) w->out[i]--; /* a window must start inside */
        if (w->pad[i] || (w->out[i] - 1) * w->stride[i] + span - w->pad[i] > w->in[i]) w->reaches_out = true;
    }
    return KILN_OK;
}

void kn_op_window_index(kn_op_call *c, const kn_window *w)
{
    for (int i = 0; i < w->n; i++) {
        kn_putf(&c->text, ",P%d", i);
        if (w->stride[i] != 1) kn_putf(&c->text, "*%lld", (long long)w->stride[i]);
        if (w->kernel[i] != 1 || w->pool) {
            kn_putf(&c->text, "+R%d", i);
            if (w->dilation[i] != 1) kn_putf(&c->text, "*%lld", (long long)w->dilation[i]);
        }
        if (w->pad[i]) kn_putf(&c->text, "-%lld", (long long)w->pad[i]);
    }
}

void kn_op_window_where(kn_op_call *c, const kn_window *w, bool with_kernel)
{
    for (int i = 0; i < w->n; i++) kn_putf(&c->text, "%sP%d in %lld", i ? ", " : " where ", i, (long long)w->out[i]);
    for (int i = 0; with_kernel && i < w->n; i++)
        if (w->kernel[i] != 1 || w->pool) kn_putf(&c->text, ", R%d in %lld", i, (long long)w->kernel[i]);
}

void kn_op_channel(kn_buf *b, int64_t group, int64_t cg, int64_t fg)
{
    if (group == 1) kn_put(b, "C");
    else if (fg == 1 && cg == 1) kn_put(b, "F");
    else if (fg == 1) kn_putf(b, "F*%lld+C", (long long)cg);
    else if (cg == 1) kn_putf(b, "F//%lld", (long long)fg);
    else kn_putf(b, "F//%lld*%lld+C", (long long)fg, (long long)cg);
}

void kn_op_window_load(kn_op_call *c, const kn_window *w, const char *lead, const char *tail)
{
    kn_put(&c->text, *w->as ? "cast(" : "");
    if (w->reaches_out) kn_putf(&c->text, "pad(%s,%lld)[%s", w->from, (long long)w->outside, lead);
    else kn_putf(&c->text, "%s[%s", w->from, lead);
    kn_op_window_index(c, w);
    kn_putf(&c->text, "%s]", tail);
    if (*w->as) kn_putf(&c->text, ",%s)", w->as);
}

void kn_op_kernel_load(kn_op_call *c, const kn_window *w, const char *lead, const char *tail)
{
    kn_putf(&c->text, "%s%sx1[%s", *w->less ? "(" : "", *w->as ? "cast(" : "", lead);
    for (int i = 0; i < w->n; i++) {
        if (w->kernel[i] != 1) kn_putf(&c->text, ",R%d", i);
        if (w->kernel[i] == 1 || w->first[i]) kn_putf(&c->text, w->kernel[i] == 1 ? ",%lld" : "+%lld", (long long)w->first[i]);
    }
    kn_putf(&c->text, "%s]", tail);
    if (*w->as) kn_putf(&c->text, ",%s)", w->as);
    if (*w->less) kn_putf(&c->text, " - %s)", w->less);
}

static kiln_status check_conv(kn_op_call *c, int64_t group)
{
    const kn_operand *x = &c->in[0], *w = &c->in[1];
    if (x->rank < 3 || x->rank > 5) return kn_op_bad_shape(c, 0, "rank %d; [N, C, D1 ...] with one to three D is right", x->rank);
    if (w->rank != x->rank) return kn_op_bad_shape(c, 1, "W has rank %d but X has rank %d", w->rank, x->rank);
    if (group < 1 || x->shape[1] % group || w->shape[0] % group)
        return kn_op_bad_attr(c, "group", "%lld does not divide %lld input and %lld output channels", (long long)group,
                              (long long)x->shape[1], (long long)w->shape[0]);
    if (w->shape[1] != x->shape[1] / group)
        return kn_op_bad_shape(c, 1, "W has %lld input channels a group; X has %lld channels in %lld groups", (long long)w->shape[1],
                               (long long)x->shape[1], (long long)group);
    return KILN_OK;
}

/* Element r of the kernel meets the input at some place of the output. */
static bool meets(const kn_window *w, int i, int64_t r)
{
    int64_t from = r * w->dilation[i] - w->pad[i], at = from < 0 ? kn_ceil_div(-from, w->stride[i]) : 0;
    return at < w->out[i] && from + at * w->stride[i] < w->in[i];
}

/* A kernel dilated beyond the input meets padding with its outer elements wherever it stands: they add nothing. Whether there were such. */
static bool trim(kn_window *w)
{
    bool any = false;
    w->reaches_out = false;
    for (int i = 0; i < w->n; i++) {
        int64_t first = 0, last = w->kernel[i] - 1;
        while (first < last && !meets(w, i, first) && (first + 1) * w->dilation[i] <= w->pad[i]) first++;
        while (last > first && !meets(w, i, last)) last--;
        any |= last - first + 1 < w->kernel[i];
        w->first[i] = first;
        w->kernel[i] = last - first + 1;
        w->pad[i] -= first * w->dilation[i];
        if (w->pad[i] || (w->out[i] - 1) * w->stride[i] + (w->kernel[i] - 1) * w->dilation[i] + 1 - w->pad[i] > w->in[i]) w->reaches_out = true;
    }
    return any;
}

kiln_status kn_op_convolve(kn_op_call *c, const char *to, kn_window *w)
{
    int64_t group = kn_attr_int(c, "group", 1);
    kn_window given = *w;
    kiln_status s = check_conv(c, group);
    if (s == KILN_OK) s = kn_op_window(c, c->in[0].rank - 2, &c->in[1].shape[2], w);
    if (s != KILN_OK) return s;
    if (given.from) w->from = given.from;
    if (given.as) w->as = given.as;
    if (given.less) w->less = given.less;
    w->outside = given.outside;
    bool trimmed = !w->outside && trim(w);
    int64_t cg = c->in[1].shape[1], fg = c->in[1].shape[0] / group;
    kn_buf b;
    kn_buf_init(&b, c->arena);
    kn_put(&b, "N,");
    kn_op_channel(&b, group, cg, fg);
    kiln_bytes lead = kn_buf_take(&b);
    kn_putf(&c->text, "%s[N,F,%s] +=! ", to, kn_op_axes(c, "P", w->n));
    kn_op_window_load(c, w, lead.p ? lead.p : "", "");
    kn_put(&c->text, " * ");
    kn_op_kernel_load(c, w, cg == 1 && group > 1 ? "F,0" : "F,C", "");
    kn_op_window_where(c, w, trimmed);
    return KILN_OK;
}

kiln_status kn_op_per_channel(kn_op_call *c, int b, int64_t channels)
{
    if (!c->in[b].present || (c->in[b].rank == 1 && c->in[b].shape[0] == channels)) return KILN_OK;
    return kn_op_bad_shape(c, b, "must be [%lld], one number an output channel", (long long)channels);
}
