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

kiln_status kn_op_window(kn_op_call *c, const int64_t *kernel, kn_window *w)
{
    *w = (kn_window){.n = c->in[0].rank - 2, .pool = !kernel};
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
    bool wide = *kn_op_wide(c) != 0;
    kn_putf(&c->text, "%s%s[%s", wide ? "cast(" : "", w->reaches_out ? "pad(x0,0.0)" : "x0", lead);
    kn_op_window_index(c, w);
    kn_putf(&c->text, "%s]%s", tail, wide ? ",f32)" : "");
}

void kn_op_kernel_load(kn_op_call *c, const kn_window *w, const char *lead, const char *tail)
{
    kn_buf b;
    kn_buf_init(&b, c->arena);
    kn_put(&b, lead);
    for (int i = 0; i < w->n; i++) kn_putf(&b, w->kernel[i] == 1 ? ",0" : ",R%d", i);
    kn_put(&b, tail);
    kiln_bytes index = kn_buf_take(&b);
    kn_op_load(c, 1, index.p ? index.p : "");
}
