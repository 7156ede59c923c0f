/* Windows of a few taps that step in both directions beside the lanes and have one operand (channels last, pooling): an element is met by two or
 * three places, so that tiles of these save little, and go from page to page. A place at a time takes all of its channels, as they lie. */
#include "construct/beside.h"

/* The load's window steps along the axis. */
static bool steps_along(const kn_site *x, const kn_expr *load, int axis, along *w)
{
    return kn_beside_along(x, load, axis, w) && w->step > 1 && w->reach > 0 && w->apart == 1;
}

/* It steps along two axes, the inner one of which is m, if places are to be shared at all. */
static bool find(const kn_site *x, along *m)
{
    const kn_expr *load;
    along w;
    int n = 0;
    if (x->s->red == KN_RED_NONE || x->nloads != 1 || x->n < 0 || kn_loads(x->s->body, &load, 1) != 1) return false;
    if (!(x->load[0].axes >> x->n & 1) || x->load[0].coef[x->n] != 1) return false;
    for (int i = 0; i < x->s->nspatial; i++)
        if (i != x->n && kn_cpu_extent(x, i) > 1 && steps_along(x, load, i, &w)) *m = w, n++;
    return n == 2 && (x->m < 0 || steps_along(x, load, x->m, &w));
}

/* On a Zen 4, over squares of places and runs of 16 vectors: 3x3 by 2 of 512x40x40 1.3 times as fast, 1100x60x60 1.7, 304x75x75 1.1, 192x112x112
 * 1.03 to 1.18, of 32 to 96 channels 0.86 to 1.2; 3x3 by 3 1.0 to 1.3; 2x2 by 2 0.96 to 1.04. Of more taps 0.4 to 1.3. */
bool kn_cpu_steps(const kn_site *x, kn_plans *p)
{
    enum { TAPS = 9, VECTORS = 2, LONG = 512 }; /* bytes of a place's sums, which the loop over its channels is worth */
    along m;
    int64_t lanes = x->hw->vector_bytes / kn_cpu_acc_bytes(x), channels = x->n < 0 ? 0 : kn_cpu_extent(x, x->n);
    if (!find(x, &m) || x->reduce_extent > TAPS || channels * kn_cpu_acc_bytes(x) < LONG) return false;
    if (!kn_hw_level_named(x->hw, "l1") || x->reduce_extent > kn_beside_lines_held(x, &x->load[0], &m)) return false;
    kn_site alone = *x;
    alone.m = -1; /* no places side by side */
    int before = p->n;
    kn_cpu_tile t = {.lanes = lanes, .nv = VECTORS, .mr = 1, .mc = 1, .grain = 1, .kb = 1, .rlanes = 1, .runroll = 1};
    t.nc = kn_ceil_div(channels, VECTORS * lanes);
    kn_cpu_try(&alone, p, &t);
    return p->n > before;
}
