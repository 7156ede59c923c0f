/* The mappings that can be computed, by predicted time. */
#include "intrin/map.h"

enum { MOST = 256 }; /* mappings of one order of the operands that are looked at */

static int insert(kn_map_choice *best, int n, int most, kn_map_choice c)
{
    int at = n < most ? n++ : n;
    for (; at > 0 && best[at - 1].us > c.us; at--)
        if (at < n) best[at] = best[at - 1];
    if (at < n) best[at] = c;
    return n;
}

/* What all calls take at the least, one after the other on every unit of a CPU. */
static double least_us(const kn_maps *m, const kn_hw *hw, const kn_map_plan *p)
{
    double interval = m->it->spec->interval;
    return hw->gpu || interval <= 0 ? 0 : (double)p->calls * interval / (hw->clock_ghz * 1e3 * hw->units);
}

int kn_map_choices(const kn_maps *list, const kn_hw *hw, kn_map_choice *best, int n, int most)
{
    for (const kn_maps *m = list; m; m = m->turned)
        for (int i = 0; i < m->nmaps && i < MOST; i++) {
            kn_map_plan p;
            kiln_diag why;
            if (kn_map_check(m, &m->maps[i], &why) || kn_map_plan_of(m, &m->maps[i], &p, &why)) continue;
            if (n == most && least_us(m, hw, &p) >= best[n - 1].us) continue;
            kn_map_predict(m, &m->maps[i], hw, &p);
            n = insert(best, n, most, (kn_map_choice){m, &m->maps[i], p.us, p.padding});
        }
    return n;
}
