/* Weights that are numbered by a spatial axis and by the steps of a reduction together (phases of a strided transposed convolution), like digits:
 * no window slides there. A copy in the order of the axes, made ahead where they are constant, has a result's weights beside each other. Where some
 * phases have fewer weights than others, the last ones lie in padding, and lowering leaves their terms out (lower/skip.c) if the phases are loops of
 * their own and the reduction's steps stand around the rest of its terms. */
#include "construct/cpu.h"
#include "te/expr.h"

enum {
    SPARED = 8,  /* at least one term of so many */
    MOST = 4096  /* pairs that are looked at */
};

bool kn_cpu_is_digit(const kn_site *x, const kn_affine *f, int axis)
{
    bool beside = false;
    for (int i = x->s->nspatial; i < x->s->naxes; i++) {
        if (!f->coef[i] || kn_cpu_extent(x, i) < 2) continue;
        if (f->coef[axis] < 1 || f->coef[i] <= f->coef[axis] * (kn_cpu_extent(x, axis) - 1)) return false;
        beside = true;
    }
    return beside && kn_cpu_extent(x, axis) > 1;
}

/* The spatial axis and the reduction's of an index that has these two alone. */
static bool two_digits(const kn_site *x, const kn_affine *f, int *spatial, int *reduce)
{
    *spatial = *reduce = -1;
    for (int i = 0; i < x->s->naxes; i++) {
        int *axis = x->s->axes[i].reduce ? reduce : spatial;
        if (!f->coef[i] || kn_cpu_extent(x, i) < 2) continue;
        if (*axis >= 0) return false;
        *axis = i;
    }
    return *spatial >= 0 && *reduce >= 0 && kn_cpu_is_digit(x, f, *spatial);
}

/* The part of the terms that lies inside of the dimension; 1: not enough lies outside, or all that a phase has. */
static double inside_of(const kn_site *x, const kn_affine *f, int64_t extent, int spatial, int reduce)
{
    int64_t phases = kn_cpu_extent(x, spatial), turns = kn_cpu_extent(x, reduce), outside = 0;
    if (phases * turns > MOST) return 1;
    for (int64_t p = 0; p < phases; p++) {
        int64_t inside = 0;
        for (int64_t j = 0; j < turns; j++) {
            int64_t at = f->offset + p * f->coef[spatial] + j * f->coef[reduce];
            inside += at >= 0 && at < extent;
        }
        if (!inside) return 1;
        outside += turns - inside;
    }
    return outside * SPARED < phases * turns ? 1 : 1 - (double)outside / (double)(phases * turns);
}

uint32_t kn_cpu_uneven(const kn_site *x, double *share)
{
    const kn_program *p = x->t->program;
    const kn_expr *loads[KN_SITE_LOADS];
    int n = kn_loads(x->s->body, loads, KN_SITE_LOADS);
    uint32_t axes = 0;
    *share = 1;
    if (x->hw->gpu || !x->contraction || x->s->scatter || n > KN_SITE_LOADS) return 0;
    for (int l = 0; l < n; l++) {
        const kn_stmt *copy = loads[l]->padded ? NULL : kn_padded_copy(p, loads[l]->u.tensor);
        const kn_expr *from = copy ? copy->body : loads[l];
        for (int d = 0; from->padded && d < from->nargs; d++) {
            kn_affine f;
            int spatial, reduce;
            if (!kn_padded_index(loads[l], copy, d, &f) || !two_digits(x, &f, &spatial, &reduce) || spatial == x->n || spatial == x->m) continue;
            double inside = inside_of(x, &f, p->tensors[from->u.tensor].shape[d], spatial, reduce);
            if (inside < 1) axes |= 1u << spatial | 1u << reduce;
            *share *= inside;
        }
    }
    return axes;
}

/* The copy's dimensions: those of results, of reductions whose terms are left out for some of them, of the others. */
static const char *in_order(kiln_arena *a, const kn_site *x, int l, const char *copy)
{
    kn_buf b;
    double share;
    uint32_t uneven = kn_cpu_uneven(x, &share), results = (1u << x->s->nspatial) - 1;
    const uint32_t groups[] = {results, uneven & ~results, ~uneven & ~results};
    kn_buf_init(&b, a);
    kn_putf(&b, "reindex %s %d %s", x->name, l, copy);
    if (uneven) kn_putf(&b, "\ntransform_layout %s", copy);
    for (int k = 0; k < 3 && uneven; k++)
        for (int i = 0, at = 0; i < x->s->naxes; i++) {
            if (!(x->load[l].axes >> i & 1)) continue;
            if (groups[k] >> i & 1) kn_putf(&b, " %d", at);
            at++;
        }
    return kn_buf_take(&b).p;
}

const char *kn_cpu_digits(kiln_arena *a, const kn_site *x, const char *copy)
{
    enum { OFTEN = 8 }; /* places that meet the copy */
    const kn_expr *loads[KN_SITE_LOADS];
    int n = kn_loads(x->s->body, loads, KN_SITE_LOADS);
    if (x->hw->gpu || !x->contraction || x->s->scatter || n > KN_SITE_LOADS || kn_cpu_is_packed(x)) return NULL;
    for (int l = 0; l < n; l++) {
        bool digits = false;
        int64_t places = 1;
        for (int i = 0; i < x->s->nspatial; i++) {
            kn_affine f;
            if (!(x->load[l].axes >> i & 1) && !kn_mul_fits(places, kn_cpu_extent(x, i), &places)) places = OFTEN;
            for (int d = 0; d < loads[l]->nargs; d++) digits |= kn_affine_of(loads[l]->args[d], &f) && f.coef[i] && kn_cpu_is_digit(x, &f, i);
        }
        if (digits && places >= OFTEN && !(x->load[l].axes >> x->n & 1)) return in_order(a, x, l, copy);
    }
    return NULL;
}
