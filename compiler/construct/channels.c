/* Windows over images with the channels first, on a GPU whose copy engine brings windows of channels that lie side by side (im2col tensor maps): both
 * factors are copied with the channels last, results go back from there. What three kernels of it are worth, beside one that gathers its elements one
 * by one, says the cost model. */
#include "construct/site.h"
#include "te/expr.h"

/* The dimension of a load that is the axis and nothing else; -1: none. */
static int dim_of(const kn_expr *load, int axis)
{
    for (int d = 0; d < load->nargs; d++)
        if (load->args[d]->op == KN_OP_AXIS && load->args[d]->u.axis == axis) return d;
    return -1;
}

static bool is_window(const kn_expr *load)
{
    uint32_t axes = kn_axes_in(load->args[load->nargs - 1]);
    return load->padded || (axes & (axes - 1));
}

static void put_last(kn_buf *b, const char *name, int rank, int last)
{
    kn_putf(b, "transform_layout %s", name);
    for (int d = 0; d < rank; d++)
        if (d != last) kn_putf(b, " %d", d);
    kn_putf(b, " %d\n", last);
}

/* Channels that are summed over, a whole number of the copy engine's rows of 128 bytes; -1: none. */
static int channels_of(const kn_site *x, const kn_expr *window, const kn_expr *weights)
{
    enum { ROW_BYTES = 128 };
    for (int i = x->s->nspatial; i < x->s->naxes; i++) {
        int d = dim_of(window, i);
        bool whole = x->s->axes[i].extent * kn_dtype_bytes(window->dtype) % ROW_BYTES == 0;
        if (d >= 0 && d < window->nargs - 1 && whole && dim_of(weights, i) >= 0) return i;
    }
    return -1;
}

/* The output's dimension of what only the weights have. */
static int filters_of(const kn_site *x, const kn_expr *window, const kn_expr *weights)
{
    for (int d = 0; d + 1 < x->s->nspatial; d++) {
        const kn_expr *at = x->s->lhs[d];
        if (at->op == KN_OP_AXIS && dim_of(weights, at->u.axis) >= 0 && !(kn_axes_in(window) >> at->u.axis & 1)) return d;
    }
    return -1;
}

const char *kn_channels_steps(kiln_arena *a, const kn_site *x)
{
    const kn_expr *loads[2];
    if (x->s->scatter || !x->contraction || x->nloads != 2 || kn_loads(x->s->body, loads, 2) != 2) return NULL;
    for (int w = 0; w < 2; w++) {
        const kn_expr *window = loads[w], *weights = loads[1 - w];
        if (kn_dtype_bytes(window->dtype) > 2 || !is_window(window) || is_window(weights)) continue;
        int c = channels_of(x, window, weights), f = filters_of(x, window, weights);
        if (c < 0 || f < 0) continue;
        kn_buf b;
        kn_buf_init(&b, a);
        kn_putf(&b, "copy %s %d " KN_CHANNELS_IMAGE "\ncopy %s %d " KN_CHANNELS_WEIGHTS "\n", x->name, w, x->name, 1 - w);
        kn_putf(&b, "cache_write %s " KN_CHANNELS_PLACES "\n", x->name);
        put_last(&b, KN_CHANNELS_IMAGE, window->nargs, dim_of(window, c));
        if (dim_of(weights, c) < weights->nargs - 1) put_last(&b, KN_CHANNELS_WEIGHTS, weights->nargs, dim_of(weights, c));
        put_last(&b, KN_CHANNELS_PLACES, x->s->nspatial, f);
        return kn_buf_take(&b).p;
    }
    return NULL;
}
