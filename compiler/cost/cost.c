/* The whole program's prediction: its stages one after another. */
#include "cost/model.h"
#include <string.h>

/* Stages inside a kernel that keeps its row compute while other blocks of the unit read and write theirs: what all of them compute takes time of its
 * own only where it takes longer than what the memory needs; a share of it is not hidden, as everywhere. */
static void add_inside(double inside, kn_cost *c)
{
    double longest = c->compute_us, busy = inside + c->compute_us;
    for (int i = 0; i < c->nlevels; i++) if (c->levels[i].us > longest) longest = c->levels[i].us;
    c->us += 0.1 * inside + (busy > longest ? 0.9 * (busy - longest) : 0);
}

kiln_status kn_cost_stage(const kn_tree *t, int k, const kn_hw *hw, kn_cost *c, kiln_diag *d)
{
    kn_stage_view v;
    *c = (kn_cost){0};
    kn_stage_view_of(t, t->stages[k], hw, &v);
    if (kn_stage_bulk(t->stages[k])) kn_cost_bulk(&v, c);
    else if (hw->gpu) kn_cost_gpu(&v, c);
    else kn_cost_cpu(&v, c);
    return c->us >= 0 ? KILN_OK : kn_fail(d, KILN_INTERNAL, "the cost model has no prediction for stage %d", k);
}

kiln_status kn_cost_of(const kn_tree *t, const kn_hw *hw, kn_cost *out, kiln_diag *d)
{
    kn_cost total = {.bottleneck = "compute", .nlevels = hw->nlevels};
    double worst = -1, lost_waves = 0, inside = 0;
    for (int i = 0; i < hw->nlevels; i++) total.levels[i].name = hw->levels[i].name;
    for (int k = 0; k < t->nstages; k++) {
        if (t->stages[k]->ahead) continue; /* no call computes it */
        kn_cost c;
        kiln_status s = kn_cost_stage(t, k, hw, &c, d);
        if (s) return s;
        const kn_stage *g = t->stages[k];
        if (hw->gpu && g->at_stage >= 0 && t->stages[g->at_stage]->kept) inside += c.us, c.us = 0;
        else if (hw->gpu && g->kept) add_inside(inside, &c), inside = 0;
        total.us += c.us;
        total.compute_us += c.compute_us;
        total.flops += c.flops;
        for (int i = 0; i < c.nlevels; i++) total.levels[i].bytes += c.levels[i].bytes, total.levels[i].us += c.levels[i].us;
        if (c.us <= worst) continue;
        worst = c.us; /* what describes one launch is taken from the slowest */
        lost_waves = c.waves;
        total.occupancy = c.occupancy, total.threads = c.threads, total.registers = c.registers;
        total.grid = c.grid, total.shared_bytes = c.shared_bytes, total.bottleneck = c.bottleneck;
        for (int i = 0; i < c.nlevels; i++) total.levels[i].tile_bytes = c.levels[i].tile_bytes;
    }
    total.waves = lost_waves;
    *out = total;
    return KILN_OK;
}
