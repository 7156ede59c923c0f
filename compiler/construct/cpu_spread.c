/* Short sums over a window that steps along the lanes, for so many rows of results that these go out to memory (a first convolution of sounds): what
 * each place meets is copied once, term by term beside the places, so that every row of results is written from end to end. As it lies each task
 * would pick it apart for all rows, whose lines lie pages apart. So are patches of an image, all of whose places then are one axis. */
#include "construct/cpu.h"
#include "te/expr.h"

/* The lanes step through a dimension of the load that a reduction goes along too, and no other dimension is a window. */
static bool steps_along(const kn_site *x, const kn_expr *load)
{
    uint32_t spatial = (1u << x->s->nspatial) - 1;
    bool found = false;
    for (int d = 0; d < load->nargs; d++) {
        kn_affine f;
        uint32_t in = kn_axes_in(load->args[d]);
        if (!kn_affine_of(load->args[d], &f)) return false;
        if (!(in & spatial) || !(in & ~spatial)) continue;
        if (!(in >> x->n & 1) || f.coef[x->n] < 2) return false;
        found = true;
    }
    return found;
}

/* Vectors of so many places in a row, by the lanes that they fill: 1 and more. */
static double vectors_of(const kn_site *x, int64_t places)
{
    int64_t lanes = x->hw->vector_bytes / kn_cpu_acc_bytes(x);
    return kn_cpu_vectors(x, places, lanes) * (double)lanes / (double)places;
}

/* The axes of places of a window that steps along the lanes, whose taps no two places share in any direction (patches of an image), so that a copy
 * has none of them twice; where all rows of them together fill lanes that each row leaves idle (50 windows of 2x2 to 7x7: 1.06 times as fast, to
 * 1.4; where rows fill vectors, or all places do not, 0.73 to 0.96). 0: it is none. */
static uint32_t patches_of(const kn_site *x, const kn_expr *load)
{
    const double most = 1.12, clearly = 1.03;
    uint32_t found = 0;
    bool along = false;
    int64_t all = 1;
    for (int d = 0; d < load->nargs; d++) {
        kn_affine f;
        int64_t step = 0, reach = 0, places = 0;
        bool window = kn_axes_in(load->args[d]) >> x->s->nspatial;
        if (!kn_affine_of(load->args[d], &f)) return 0;
        for (int i = 0; i < x->s->naxes; i++) {
            if (i < x->s->nspatial && f.coef[i] && (f.coef[i] > 1 || window)) found |= 1u << i;
            if (!f.coef[i] || kn_cpu_extent(x, i) < 2) continue;
            if (f.coef[i] < 0) return 0;
            if (i < x->s->nspatial) step = f.coef[i], places++;
            else reach += f.coef[i] * (kn_cpu_extent(x, i) - 1);
        }
        if (places > 1 || (step && step <= reach)) return 0;
        along |= step > 1 && f.coef[x->n] == step;
    }
    for (int i = 0; i < x->s->nspatial; i++)
        if (found >> i & 1) all *= kn_cpu_extent(x, i);
    double together = vectors_of(x, all);
    return along && together < most && vectors_of(x, kn_cpu_extent(x, x->n)) > clearly * together ? found : 0;
}

/* Elements that places and terms meet, each as often as it is met. */
static int64_t met(const kn_site *x, int l)
{
    int64_t n = 1;
    for (int i = 0; i < x->s->naxes; i++)
        if (x->load[l].axes >> i & 1 && !kn_mul_fits(n, kn_cpu_extent(x, i), &n)) return INT64_MAX / 64;
    return n;
}

/* The copy by its axes: what it is met by first, then its terms, then the places of an image, which so become one axis. */
static void put_places_last(kn_buf *b, const kn_site *x, int l, uint32_t places, const char *copy)
{
    kn_putf(b, "reindex %s %d %s\ntransform_layout %s", x->name, l, copy, copy);
    for (int pass = 0; pass < 3; pass++) {
        int rank = 0;
        for (int i = 0; i < x->s->naxes; i++) {
            if (!(x->load[l].axes >> i & 1)) continue;
            int at = i >= x->s->nspatial ? 1 : places >> i & 1 ? 2 : 0;
            if (at == pass) kn_putf(b, " %d", rank);
            rank++;
        }
    }
    kn_put(b, "\n");
}

const char *kn_cpu_spread(kiln_arena *a, const kn_site *x, const char *copy)
{
    enum { TERMS = 32, ROWS = 64, PATCH = 1024 };
    const kn_expr *loads[2];
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    const kn_program *p = x->t->program;
    if (x->hw->gpu || !l2 || !x->contraction || x->s->red != KN_RED_SUM || x->s->scatter || x->n < 0 || x->m < 0 || x->nloads != 2) return NULL;
    if (kn_loads(x->s->body, loads, 2) != 2 || !x->store.linear || x->store.coef[x->n] != 1) return NULL;
    bool far = x->reduce_extent <= TERMS && kn_cpu_bytes(&p->tensors[x->s->out]) > (double)l2->capacity_bytes && kn_cpu_extent(x, x->m) >= ROWS;
    if (!far && x->reduce_extent > PATCH) return NULL;
    for (int l = 0; l < 2; l++) {
        const kn_site_access *v = &x->load[l], *w = &x->load[1 - l];
        if (!(v->axes >> x->n & 1) || v->axes >> x->m & 1 || w->axes >> x->n & 1 || v->padded || v->bytes < 4) continue;
        uint32_t patches = patches_of(x, loads[l]);
        if (!patches && !(far && steps_along(x, loads[l]))) continue;
        if (met(x, l) * v->bytes > l2->capacity_bytes * 2) continue;
        kn_buf b;
        kn_buf_init(&b, a);
        if (patches) put_places_last(&b, x, l, patches, copy);
        else kn_cpu_put_lanes_last(&b, x, l, copy);
        return kn_buf_take(&b).p;
    }
    return NULL;
}
