/* XNNPACK: channels last, weights packed when an operator is made. What differs from the case's layout is moved outside of the timed part.
 */
#include "load-tests/kernels/bench.h"
#include <math.h>
#include <pthreadpool.h>
#include <stdlib.h>
#include <xnnpack.h>

typedef struct state {
    const bench_case *c;
    xnn_operator_t op;
    pthreadpool_t threads;
    float *in, *out, *weights;
} state;

static float *room(int64_t elems) { return calloc((size_t)elems + 2 * XNN_EXTRA_BYTES, sizeof(float)); }

/* Images between the case's layout and channels last. */
static void images(const float *from, float *to, int64_t n, int64_t channels, int64_t pixels, bool first, bool back)
{
    for (int64_t i = 0; i < n; i++) {
        for (int64_t c = 0; c < channels; c++) {
            for (int64_t p = 0; p < pixels; p++) {
                int64_t last = (i * pixels + p) * channels + c, own = first ? (i * channels + c) * pixels + p : last;
                to[back ? own : last] = from[back ? last : own];
            }
        }
    }
}

static bool is_image(const bench_case *c) { return strstr(c->op, "2d") != NULL; }
static bool first(const bench_case *c) { return !strcmp(c->layout, "NCHW"); }

static void call(void *p)
{
    state *s = p;
    xnn_run_operator(s->op, s->threads);
}

static void fetch(void *p, void *out)
{
    state *s = p;
    const bench_case *c = s->c;
    int64_t channels = bench_get(c, strstr(c->op, "conv") ? "F" : "C");
    if (is_image(c)) {
        images(s->out, out, bench_get(c, "N"), channels, bench_get(c, "HO") * bench_get(c, "WO"), first(c), true);
    } else {
        memcpy(out, s->out, (size_t)c->out_bytes);
    }
}

static void drop(void *p)
{
    state *s = p;
    if (s->op) { xnn_delete_operator(s->op); }
    if (s->threads) { pthreadpool_destroy(s->threads); }
    free(s->in);
    free(s->out);
    free(s->weights);
    free(s);
}

static bool conv(state *s)
{
    const bench_case *c = s->c;
    int64_t f = bench_get(c, "F"), cg = bench_get(c, "CG"), kh = bench_get(c, "KH"), kw = bench_get(c, "KW"), g = bench_get(c, "group"),
            ch = bench_get(c, "C");
    uint32_t st = (uint32_t)bench_get(c, "stride"), dil = (uint32_t)bench_get(c, "dilation");
    const float *w = c->in[1];
    s->weights = room(f * cg * kh * kw);
    for (int64_t o = 0; o < f; o++) { /* to output, row, column, input */
        for (int64_t i = 0; i < cg; i++) {
            for (int64_t r = 0; r < kh * kw; r++) {
                s->weights[(o * kh * kw + r) * cg + i] = w[first(c) ? (o * cg + i) * kh * kw + r : (r * cg + i) * f + o];
            }
        }
    }
    return !xnn_create_convolution2d_nhwc_f32((uint32_t)bench_get(c, "PT"), (uint32_t)bench_get(c, "PR"), (uint32_t)bench_get(c, "PB"),
                                              (uint32_t)bench_get(c, "PL"), (uint32_t)kh, (uint32_t)kw, st, st, dil, dil, (uint32_t)g,
                                              (size_t)cg, (size_t)(f / g), (size_t)ch, (size_t)f, s->weights, NULL, -INFINITY, INFINITY, 0,
                                              &s->op) &&
           !xnn_setup_convolution2d_nhwc_f32(s->op, (size_t)bench_get(c, "N"), (size_t)bench_get(c, "H"), (size_t)bench_get(c, "W"), s->in,
                                             s->out, s->threads);
}

static bool pool(state *s)
{
    const bench_case *c = s->c;
    size_t ch = (size_t)bench_get(c, "C"), n = (size_t)bench_get(c, "N"), h = (size_t)bench_get(c, "H"), w = (size_t)bench_get(c, "W");
    uint32_t top = (uint32_t)bench_get(c, "PT"), right = (uint32_t)bench_get(c, "PR"), bottom = (uint32_t)bench_get(c, "PB");
    uint32_t left = (uint32_t)bench_get(c, "PL"), kh = (uint32_t)bench_get(c, "KH"), kw = (uint32_t)bench_get(c, "KW"),
             st = (uint32_t)bench_get(c, "stride");
    if (!strcmp(c->op, "max_pool2d")) {
        return !xnn_create_max_pooling2d_nhwc_f32(top, right, bottom, left, kh, kw, st, st, 1, 1, ch, ch, ch, -INFINITY, INFINITY, 0,
                                                  &s->op) &&
               !xnn_setup_max_pooling2d_nhwc_f32(s->op, n, h, w, s->in, s->out, s->threads);
    }
    if (kh == h && kw == w) {
        return !xnn_create_global_average_pooling_nwc_f32(ch, ch, ch, -INFINITY, INFINITY, 0, &s->op) &&
               !xnn_setup_global_average_pooling_nwc_f32(s->op, n, h * w, s->in, s->out, s->threads);
    }
    return !xnn_create_average_pooling2d_nhwc_f32(top, right, bottom, left, kh, kw, st, st, ch, ch, ch, -INFINITY, INFINITY, 0, &s->op) &&
           !xnn_setup_average_pooling2d_nhwc_f32(s->op, n, h, w, s->in, s->out, s->threads);
}

static bool matmul(state *s)
{
    const bench_case *c = s->c;
    size_t m = (size_t)bench_get(c, "M"), n = (size_t)bench_get(c, "N"), k = (size_t)bench_get(c, "K");
    return !xnn_create_fully_connected_nc_f32(k, n, k, n, c->in[1], NULL, -INFINITY, INFINITY, XNN_FLAG_TRANSPOSE_WEIGHTS, &s->op) &&
           !xnn_setup_fully_connected_nc_f32(s->op, m, s->in, s->out, s->threads);
}

static bool relu(state *s)
{
    return !xnn_create_clamp_nc_f32(1, 1, 1, 0, INFINITY, 0, &s->op) &&
           !xnn_setup_clamp_nc_f32(s->op, (size_t)bench_get(s->c, "flat"), s->in, s->out, s->threads);
}

static bool softmax(state *s)
{
    size_t n = (size_t)bench_get(s->c, "inner");
    return !xnn_create_softmax_nc_f32(n, n, n, 0, &s->op) &&
           !xnn_setup_softmax_nc_f32(s->op, (size_t)bench_get(s->c, "outer"), s->in, s->out, s->threads);
}

static bool open_form(const bench_case *c, bench_run *run)
{
    static const struct {
        const char *op;
        bool (*make)(state *);
    } ops[] = {{"matmul", matmul},   {"conv2d", conv}, {"depthwise_conv2d", conv}, {"grouped_conv2d", conv}, {"max_pool2d", pool},
               {"avg_pool2d", pool}, {"relu", relu},   {"softmax", softmax}};
    size_t i = 0;
    while (i < sizeof ops / sizeof *ops && strcmp(ops[i].op, c->op)) { i++; }
    if (i == sizeof ops / sizeof *ops || strcmp(c->dtype, "f32") || xnn_initialize(NULL)) { return false; }
    state *s = calloc(1, sizeof *s);
    s->c = c;
    s->in = room(c->in_elems[0]);
    s->out = room(c->out_elems);
    s->threads = c->threads > 1 ? pthreadpool_create((size_t)c->threads) : NULL;
    if (is_image(c)) {
        images(c->in[0], s->in, bench_get(c, "N"), bench_get(c, "C"), bench_get(c, "H") * bench_get(c, "W"), first(c), false);
    } else {
        memcpy(s->in, c->in[0], (size_t)c->in_bytes[0]);
    }
    *run = (bench_run){s, call, fetch, drop};
    if (ops[i].make(s)) { return true; }
    drop(s);
    return false;
}

const bench_form *bench_forms(void)
{
    static const bench_form forms[] = {{"packed nhwc", open_form}, {NULL, NULL}};
    return forms;
}
