/* The mappings that can be computed, by predicted time. */
#include "intrin/map.h"

enum { MOST = 256 }; /* mappings of one order of the operands that are looked at */

typedef struct chooser { const kn_hw *hw; kn_map_choice *best; int n, most; } chooser;

static void insert(chooser *x, kn_map_choice c)
{
    int at = x->n < x->most ? x->n++ : x->n;
    for (; at > 0 && x->best[at - 1].us > c.us; at--)
        if (at < x->n) x->best[at] = x->best[at - 1];
    if (at < x->n) x->best[at] = c;
}

/* What all calls take at the least, one after the other on every unit of a CPU. */
static double least_us(const kn_maps *m, const kn_hw *hw, const kn_map_plan *p)
{
    double interval = m->it->spec->interval;
    return hw->gpu || interval <= 0 ? 0 : (double)p->calls * interval / (hw->clock_ghz * 1e3 * hw->units);
}

/* False: it cannot be computed. handicap: its time but for the call counts so many times. */
static bool consider(chooser *x, const kn_maps *m, const kn_mapping *mapping, double handicap, kn_map_plan *p)
{
    kiln_diag why;
    if (kn_map_plan_of(m, mapping, p, &why)) return false;
    if (x->n == x->most && handicap * least_us(m, x->hw, p) >= x->best[x->n - 1].us) return true;
    kn_map_predict(m, mapping, x->hw, p);
    insert(x, (kn_map_choice){m, mapping, p->us + (handicap - 1) * (p->us - x->hw->launch_us), p->padding});
    return true;
}

/* Several tiles with fewer terms each are for what is much better so: the instruction as it is loads whole lines of the cache, and a prediction errs
 * by more than a seventh (docs/results/kernels-2026-11-27f.md: one tile of 8, 16, 24 or 32 terms 1.1 to 2.1 times as fast, two of 20, 28, 40 or 56
 * 0.4 to 1.5). One tile, for what is predicted alike: neither copies nor loads fill it up. */
static double handicap(const kn_maps *few, const kn_maps *m, const kn_mapping *mapping)
{
    double alike = 1;
    for (int j = m->it->nspatial; j < m->it->nloops; j++) {
        int64_t terms = few->intrin->axes[j].extent;
        if (terms < m->intrin->axes[j].extent && kn_map_extent(m, mapping, j) > terms) return 1.15;
        if (terms < m->intrin->axes[j].extent) alike = 0.99;
    }
    return alike;
}

/* The mapping onto the instruction with fewer iterations of all loops that allow it, and of those alone that reduce. */
static void consider_fewer(kiln_arena *a, chooser *x, const kn_maps *m, const kn_mapping *mapping)
{
    kn_map_plan p;
    const kn_maps *all = kn_map_fewer(a, m, mapping, false), *terms = all ? kn_map_fewer(a, m, mapping, true) : NULL;
    if (all) consider(x, all, mapping, handicap(all, m, mapping), &p);
    if (terms && terms->it->points != all->it->points) consider(x, terms, mapping, handicap(terms, m, mapping), &p);
}

int kn_map_choices(kiln_arena *a, const kn_maps *list, const kn_hw *hw, kn_map_choice *best, int n, int most)
{
    chooser x = {hw, best, n, most};
    for (const kn_maps *m = list; m; m = m->turned)
        for (int i = 0; i < m->nmaps && i < MOST; i++) {
            kn_map_plan p;
            kiln_diag why;
            if (kn_map_check(m, &m->maps[i], &why) || !consider(&x, m, &m->maps[i], 1, &p)) continue;
            if (a && p.padding > 1) consider_fewer(a, &x, m, &m->maps[i]);
        }
    return x.n;
}
