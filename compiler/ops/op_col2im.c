/* Col2Im: columns of windows are summed where they lie in the image; the transpose of taking windows out of it. Every pixel looks for the windows
 * that it is in, so that nothing is scattered. */
#include "ops/ops.h"

enum { FEW = 16 }; /* terms that are written out */

/* One spatial dimension: extent, window, step, dilation, padding in front, and how many windows there are. */
typedef struct side { int64_t image, block, stride, dilation, pad, windows; } side;

static kiln_status sides(kn_op_call *c, int n, side *s)
{
    int64_t image[3], block[3], stride[3], dilation[3], pads[6];
    kiln_status status = kn_op_numbers(c, "image_shape", n, 1, 0, image);
    if (status == KILN_OK) status = kn_op_numbers(c, "block_shape", n, 1, 0, block);
    if (status == KILN_OK) status = kn_op_numbers(c, "strides", n, 1, 1, stride);
    if (status == KILN_OK) status = kn_op_numbers(c, "dilations", n, 1, 1, dilation);
    if (status == KILN_OK) status = kn_op_numbers(c, "pads", 2 * n, 0, 0, pads);
    for (int i = 0; status == KILN_OK && i < n; i++) {
        int64_t span, room;
        if (!kn_mul_fits(block[i] - 1, dilation[i], &span) || span > KILN_MAX_EXTENT || (room = image[i] + pads[i] + pads[n + i] - span - 1) < 0)
            return kn_op_bad_attr(c, "block_shape", "block_shape[%d] is larger than the padded image", i);
        s[i] = (side){image[i], block[i], stride[i], dilation[i], pads[i], room / stride[i] + 1};
    }
    return status;
}

/* Which window pixel P is in with its part R, where that is a whole number. */
static const char *window(kn_op_call *c, const side *s, int i, const char *divided)
{
    return kn_format(c->arena, "(P%d + %lld - R%d*%lld)%s%lld", i, (long long)s->pad, i, (long long)s->dilation, divided, (long long)s->stride);
}

static void conditions(kn_op_call *c, const side *s, int n)
{
    for (int i = 0; i < n; i++) {
        const char *at = window(c, &s[i], i, "//"), *rest = window(c, &s[i], i, "%");
        if (at && rest) kn_putf(&c->text, "%s%s == 0 && %s >= 0 && %s < %lld", i ? " && " : "select(", rest, at, at, (long long)s[i].windows);
    }
    kn_put(&c->text, ", ");
}

/* What any steps and dilations allow: columns as they lie, each read under a condition. */
static void in_columns(kn_op_call *c, const side *s, int n, int64_t area, int64_t windows)
{
    long long channels = c->in[0].shape[1] / area;
    kn_putf(&c->text, "y[N,C,%s] +=! ", kn_op_axes(c, "P", n));
    conditions(c, s, n);
    kn_putf(&c->text, "pad(x0,0)[N,C*%lld", (long long)area);
    for (int i = 0; i < n; i++) kn_putf(&c->text, " + R%d*%lld", i, (long long)(area /= s[i].block));
    kn_put(&c->text, ",");
    for (int i = 0; i < n; i++) kn_putf(&c->text, "%s%s*%lld", i ? " + " : "", window(c, &s[i], i, "//"), (long long)(windows /= s[i].windows));
    kn_putf(&c->text, "], 0) where C in %lld", channels);
    for (int i = 0; i < n; i++) kn_putf(&c->text, ", P%d in %lld, R%d in %lld", i, (long long)s[i].image, i, (long long)s[i].block);
}

/* What of t meets a pixel: term k of turns[0] * turns[1] * ..., or that of the axes J (k < 0). */
static void put_term(kn_op_call *c, const side *s, int n, const int64_t *turns, int64_t k)
{
    const char *j[3];
    for (int i = n - 1; i >= 0; i--) {
        j[i] = k < 0 ? kn_format(c->arena, "J%d", i) : kn_format(c->arena, "%lld", (long long)(k % turns[i]));
        if (k > 0) k /= turns[i];
    }
    kn_putf(&c->text, "%spad(t,0)[N,C", *kn_op_wide(c) ? "cast(" : "");
    for (int i = 0; i < n; i++)
        if (s[i].stride > 1)
            kn_putf(&c->text, ",(P%d + %lld)%%%lld + %s*%lld", i, (long long)s[i].pad, (long long)s[i].stride, j[i], (long long)s[i].stride);
        else
            kn_putf(&c->text, ",%s", j[i]);
    for (int i = 0; i < n; i++)
        if (s[i].stride > 1) kn_putf(&c->text, ",(P%d + %lld)//%lld - %s", i, (long long)s[i].pad, (long long)s[i].stride, j[i]);
        else kn_putf(&c->text, ",P%d + %lld - %s*%lld", i, (long long)s[i].pad, j[i], (long long)s[i].dilation);
    kn_putf(&c->text, "]%s", *kn_op_wide(c) ? ",f32)" : "");
}

/* The columns with a dimension for each side, t, are read like the padded input of a convolution: what pixel P is in no window of is padding. With a
 * step only every so many parts of windows meet a pixel; those are its terms, written out where they are few: each is a row of memory then, without
 * what a sum's loop would copy of all of them. */
static void in_parts(kn_op_call *c, const side *s, int n)
{
    const char *parts = kn_op_axes(c, "R", n), *places = kn_op_axes(c, "Q", n);
    long long area = 1, windows = 1;
    for (int i = 0; i < n; i++) area *= s[i].block, windows *= s[i].windows;
    long long channels = c->in[0].shape[1] / area;
    kn_putf(&c->text, "t[N,C,%s,%s] = x0[N,C*%lld", parts, places, area);
    for (int i = 0; i < n; i++) kn_putf(&c->text, " + R%d*%lld", i, area /= s[i].block);
    kn_put(&c->text, ",");
    for (int i = 0; i < n; i++) kn_putf(&c->text, "%sQ%d*%lld", i ? " + " : "", i, windows /= s[i].windows);
    kn_putf(&c->text, "] where C in %lld", channels);
    for (int i = 0; i < n; i++) kn_putf(&c->text, ", R%d in %lld, Q%d in %lld", i, (long long)s[i].block, i, (long long)s[i].windows);
    int64_t terms = 1, turns[3] = {0};
    for (int i = 0; i < n; i++) turns[i] = kn_ceil_div(s[i].block, s[i].stride), terms = terms > FEW ? terms : terms * turns[i];
    kn_putf(&c->text, terms > FEW ? "; y[N,C,%s] +=! " : "; y[N,C,%s] = ", kn_op_axes(c, "P", n));
    for (int64_t k = 0; k < (terms > FEW ? 1 : terms); k++) {
        kn_put(&c->text, k ? " + " : "");
        put_term(c, s, n, turns, terms > FEW ? -1 : k);
    }
    for (int i = 0; i < n; i++) {
        kn_putf(&c->text, "%s P%d in %lld", i ? "," : " where", i, (long long)s[i].image);
        if (terms > FEW) kn_putf(&c->text, ", J%d in %lld", i, (long long)turns[i]);
    }
    kn_op_end(c);
}

static kiln_status lower(kn_op_call *c)
{
    const kn_operand *x = &c->in[0];
    const kn_attr *image = kn_attr_get(c, "image_shape");
    int n = image ? image->n : 0;
    side s[3];
    if (n < 1 || n > 3) return kn_op_bad_attr(c, "image_shape", "one to three extents are right");
    kiln_status status = sides(c, n, s);
    if (status != KILN_OK) return status;
    int64_t area = 1, windows = 1;
    bool fits = true;
    for (int i = 0; i < n; i++) fits = fits && kn_mul_fits(area, s[i].block, &area) && kn_mul_fits(windows, s[i].windows, &windows);
    if (x->rank != 3 || !fits || x->shape[1] % area || x->shape[2] != windows)
        return kn_op_bad_shape(c, 0, "[N, C*%lld, %lld] is right: windows of %lld elements, %lld of them", (long long)area, (long long)windows,
                               (long long)area, (long long)windows);
    bool steps = false;
    for (int i = 0; i < n; i++) steps |= s[i].stride > 1 && s[i].dilation > 1;
    if (steps) in_columns(c, s, n, area, windows);
    else in_parts(c, s, n);
    return KILN_OK;
}

static const kn_attr_spec attrs[] = {{"image_shape", 'I', "mandatory", "spatial extents of the image"},
                                     {"block_shape", 'I', "mandatory", "extents of a window"},
                                     {"strides", 'I', "1...", "step of the window"},
                                     {"pads", 'I', "0...", "padding of the image: all begins, then all ends"},
                                     {"dilations", 'I', "1...", "step inside the window"},
                                     {NULL, 0, NULL, NULL}};

const kn_op_spec kn_op_col2im = {.name = "Col2Im", .min_inputs = 1, .max_inputs = 1, .input_names = {"input"}, .dtypes = "fiu",
                                 .about = "columns of windows summed where they lie in the image", .attrs = attrs, .lower = lower};
