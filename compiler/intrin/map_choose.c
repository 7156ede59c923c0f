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

/* False: it cannot be computed. */
static bool consider(chooser *x, const kn_maps *m, const kn_mapping *mapping, kn_map_plan *p)
{
    kiln_diag why;
    if (kn_map_plan_of(m, mapping, p, &why)) return false;
    if (x->n == x->most && least_us(m, x->hw, p) >= x->best[x->n - 1].us) return true;
    kn_map_predict(m, mapping, x->hw, p);
    insert(x, (kn_map_choice){m, mapping, p->us, p->padding});
    return true;
}

int kn_map_choices(kiln_arena *a, const kn_maps *list, const kn_hw *hw, kn_map_choice *best, int n, int most)
{
    chooser x = {hw, best, n, most};
    for (const kn_maps *m = list; m; m = m->turned)
        for (int i = 0; i < m->nmaps && i < MOST; i++) {
            kn_map_plan p;
            kiln_diag why;
            if (kn_map_check(m, &m->maps[i], &why) || !consider(&x, m, &m->maps[i], &p)) continue;
            const kn_maps *all = a && p.padding > 1 ? kn_map_fewer(a, m, &m->maps[i], false) : NULL;
            const kn_maps *terms = all ? kn_map_fewer(a, m, &m->maps[i], true) : NULL;
            if (all) consider(&x, all, &m->maps[i], &p);
            if (terms && terms->it->points != all->it->points) consider(&x, terms, &m->maps[i], &p);
        }
    return x.n;
}
