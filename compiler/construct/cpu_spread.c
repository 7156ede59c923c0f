/* Short sums over a window that steps along the lanes, for so many rows of results that these go out to memory (a first convolution of sounds): what
 * each place meets is copied once, term by term beside the places, so that every row of results is written from end to end. As it lies each task
 * would pick it apart for all rows, whose lines lie pages apart. */
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

/* Elements that places and terms meet, each as often as it is met. */
static int64_t met(const kn_site *x, int l)
{
    int64_t n = 1;
    for (int i = 0; i < x->s->naxes; i++)
        if (x->load[l].axes >> i & 1 && !kn_mul_fits(n, kn_cpu_extent(x, i), &n)) return INT64_MAX / 64;
    return n;
}

const char *kn_cpu_spread(kiln_arena *a, const kn_site *x, const char *copy)
{
    enum { TERMS = 32, ROWS = 64 };
    const kn_expr *loads[2];
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    const kn_program *p = x->t->program;
    if (x->hw->gpu || !l2 || !x->contraction || x->s->red != KN_RED_SUM || x->s->scatter || x->n < 0 || x->m < 0 || x->nloads != 2) return NULL;
    if (kn_loads(x->s->body, loads, 2) != 2 || !x->store.linear || x->store.coef[x->n] != 1 || x->reduce_extent > TERMS) return NULL;
    if (kn_cpu_bytes(&p->tensors[x->s->out]) <= (double)l2->capacity_bytes || kn_cpu_extent(x, x->m) < ROWS) return NULL;
    for (int l = 0; l < 2; l++) {
        const kn_site_access *v = &x->load[l], *w = &x->load[1 - l];
        if (!(v->axes >> x->n & 1) || v->axes >> x->m & 1 || w->axes >> x->n & 1 || v->padded || v->bytes < 4) continue;
        if (!steps_along(x, loads[l]) || met(x, l) * v->bytes > l2->capacity_bytes / 2) continue;
        kn_buf b;
        kn_buf_init(&b, a);
        kn_cpu_put_lanes_last(&b, x, l, copy);
        return kn_buf_take(&b).p;
    }
    return NULL;
}
