/* Windows of a tensor's elements over several dimensions: what combining their rows first, for all places that share them, saves. */
#include "construct/cpu.h"

/* Instructions for one term of a reduction on vectors: a maximum that keeps what is not a number takes three. */
static int term_cost(const kn_stmt *st) { return st->red == KN_RED_MAX || st->red == KN_RED_MIN ? 3 : 1; }

/* Columns that a place adds to those it has in common with the ones beside it; how far apart the lanes' lie. */
static double columns_of(const kn_site *v, const kn_expr *read, int axis, double *apart)
{
    double s = (double)v->reduce_extent / (double)v->s->axes[axis].extent, step = 1;
    *apart = 1;
    for (int d = 0; d < read->nargs; d++) {
        kn_affine f;
        uint32_t in = kn_axes_in(read->args[d]);
        if ((in >> axis & 1) || !(in >> v->s->nspatial) || !kn_affine_of(read->args[d], &f)) continue;
        for (int i = 0; i < v->s->nspatial; i++) {
            double places = (double)v->s->axes[i].extent;
            if (!(in >> i & 1)) continue;
            step *= ((places - 1) * (double)f.coef[i] + s) / places;
            if (i == v->n) *apart = (double)f.coef[i];
        }
    }
    return step;
}

/* How many times as many terms are combined when every place of a window combines all of them, as when its rows are combined for all places that
 * share them; a term along lanes that lie apart is picked from two vectors. */
static double saved_by(const kn_site *v, const kn_expr *read, int axis)
{
    enum { PICKED = 2, KEPT = 2 };
    double r = (double)v->s->axes[axis].extent, s = (double)v->reduce_extent / r, apart, term = term_cost(v->s);
    double step = columns_of(v, read, axis, &apart), picked = apart > 1 ? PICKED : 0;
    return r * s * (term + picked) / (r * term * step + KEPT * step + s * (term + picked));
}

/* The same where registers hold the rows: half an operation for what is loaded, the first term is nothing else, and a term is picked from as many
 * vectors as its lanes lie apart and one more. */
static double saved_held(const kn_site *v, const kn_expr *read, int axis)
{
    const double load = 0.5;
    double r = (double)v->s->axes[axis].extent, s = (double)v->reduce_extent / r, apart, term = term_cost(v->s);
    double step = columns_of(v, read, axis, &apart);
    double all = (r * s - 1) * term + r * s * (apart - 1 + load * apart), rows = (r - 1) * term * step + r * step * load;
    return all / (rows + (s - 1) * term + s * apart);
}

/* Tiles of its places in both directions read so much less that combining rows first must save half of the terms: measured, 3x3 sums 28 to 34 us
 * beside 46, maxima 60 beside 74; 5x5 sums with a mean behind 34 beside 20, maxima 88 beside 44. Windows that step by more than one place have less
 * to share: 5x5 by 2, of which a third of the terms is saved, take 0.6 to 0.75 of the time with maxima, sums 0.73 to 0.93; 4x4 by 2 0.6 to 0.9. */
static bool better_in_squares(const kn_site *v, const kn_expr *read, int axis)
{
    const double half = 1.5, some = 1.1, next = 1.5;
    double apart, step = columns_of(v, read, axis, &apart);
    return kn_cpu_is_beside(v) && saved_by(v, read, axis) < (step > next ? some : half);
}

bool kn_cpu_separates(const kn_site *x, const kn_expr *read, int axis, bool held)
{
    enum { WORTH = 11, TESTED = 8, OF = 10 }; /* where each place of the window would ask what lies in padding, little lost is worth it too */
    if (better_in_squares(x, read, axis)) return false;
    return (held ? saved_held : saved_by)(x, read, axis) * OF >= (held && read->padded ? TESTED : WORTH);
}
