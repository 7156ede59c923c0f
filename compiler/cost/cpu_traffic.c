/* Bytes that go out of every level of a CPU: which box of loops a level holds, how often it changes, and what short runs, cut rows and shared caches
 * make of it (ROLLER 3.3). */
#include "cost/cpu.h"

/* Bytes that the box of the loops from `from` on takes of a cache. Rows that lie a multiple of many lines apart fall into a part of L1's sets: where
 * these have fewer ways than it has rows, the first ones are lost when the last ones come, as if all of the cache were full. Caches behind L1 spread
 * lines over all of their sets; what a register tile reads side by side is `collides`. */
static double held_bytes(const kn_stage_view *v, const kn_access *x, int from, const kn_hw_level *near)
{
    double bytes = kn_footprint(v, x, from, false) * x->bytes, run;
    bool l1 = near == &v->hw->levels[v->hw->nlevels - 2];
    if (!l1 || x->store || x->cache >= 0 || from >= v->first_reg || bytes > (double)near->capacity_bytes) return bytes;
    double apart = kn_apart(v, x, from, (double)kn_hw_way_bytes(near), &run);
    return apart > run && bytes / run * apart > (double)near->capacity_bytes ? bytes / run * apart : bytes;
}

/* How many of the boxes of the loops from `from` on that cores work on at once, `cores` of them on tasks that follow each other, are not the same. */
static double boxes_apart(const kn_stage_view *v, const kn_access *x, int from, double cores)
{
    double tasks = 1, apart = 1;
    for (int i = v->g->nloops - 1; i >= 0 && tasks < cores; i--) {
        const kn_loop *l = &v->g->loops[i];
        if (l->kind != KN_PARALLEL) continue;
        double n = kn_at_most((double)l->extent, cores / tasks);
        if (i < from && (x->axes >> l->axis & 1)) apart *= n;
        tasks *= n;
    }
    return apart;
}

/* Outermost loop position whose tile, all accesses together, fits; 3/4 because nothing places data perfectly. What all cores that share the level
 * read lies there once. */
static int resident_from(const kn_stage_view *v, const kn_hw_level *near, double cores, double *bytes)
{
    for (int from = 0; from <= v->g->nloops; from++) {
        double sum = 0, all = 0;
        for (int i = 0; i < v->naccesses; i++) {
            double held = held_bytes(v, &v->access[i], from, near);
            sum += held;
            all += held * boxes_apart(v, &v->access[i], from, cores);
        }
        *bytes = sum;
        if (all <= 0.75 * (double)near->capacity_bytes || from == v->g->nloops) return from;
    }
    return v->g->nloops;
}

/* Bytes of the access that follow each other in the box of the loops from `from` on. */
double kn_run_bytes(const kn_stage_view *v, const kn_access *x, int from)
{
    const double huge = 1e15;
    return huge / kn_rounding(v, x, from, false, huge);
}

/* The box is one run of memory, or most of one: what the next one is taken from follows it. */
static bool one_run(const kn_stage_view *v, const kn_access *x, int from)
{
    if (kn_stretch(v, x, from) <= 2 * kn_footprint(v, x, from, false)) return true;
    return kn_footprint(v, x, from, false) * x->bytes <= 1.01 * kn_run_bytes(v, x, from);
}

/* Rows each of whose elements meets a few results, once, and that tasks cut into runs shorter than a page: 1.35 times as long as from end to end,
 * of few pages 1.15 times. Runs of whole lines do not mind if one core's L2 holds all of them. */
static double cut_rows(const kn_stage_view *v, const kn_access *x)
{
    enum { LINE = 64, PAGE = 4096, FEW_PAGES = 4 * PAGE };
    int from = 0;
    double terms = 1;
    bool windows = false;
    while (from < v->g->nloops && v->g->loops[from].kind == KN_PARALLEL) from++;
    for (int i = 0; i < v->s->naxes; i++) terms *= (double)v->s->axes[i].extent;
    for (int d = 0; d < x->rank; d++) windows |= (x->in[d] & (x->in[d] - 1)) != 0;
    bool once = v->s->red != KN_RED_NONE && !windows && !x->store && x->cache < 0 && KN_COST_PARTED * kn_footprint(v, x, 0, false) >= terms;
    const kn_hw_level *l2 = kn_hw_level_named(v->hw, "l2");
    double run = once ? kn_run_bytes(v, x, from) : FEW_PAGES;
    if (l2 && run >= LINE && kn_footprint(v, x, 0, false) * x->bytes < (double)l2->capacity_bytes) return 1;
    if (run >= FEW_PAGES || kn_footprint(v, x, from, false) * x->bytes <= 1.01 * run) return 1;
    return run < PAGE ? 1.35 : 1.15;
}

/* Elements of the access that a core reads while its loops from `from` on run. */
double kn_read_of(const kn_stage_view *v, const kn_access *x, int from)
{
    bool box = x->cache >= 0 && v->g->caches[x->cache].at >= 0 && v->g->caches[x->cache].region;
    return box ? kn_whole_box(v, x, from) : kn_footprint(v, x, from, false);
}

/* Traffic out of level `i`: what level i + 1 has to be filled with. A packed access is filled once, at its cache's loop, and then contiguous. */
void kn_cpu_level(const kn_stage_view *v, int i, kn_cost *c)
{
    const kn_hw *hw = v->hw;
    bool last = i == hw->nlevels - 2;
    const kn_hw_level *near = &hw->levels[i + 1];
    double held = 0;
    int share = near->shared_by_units < hw->units ? near->shared_by_units : hw->units;
    int from = last ? v->first_reg : resident_from(v, near, share, &held);
    double sum = 0;
    bool outside = i + 3 < hw->nlevels; /* a level beyond the L2 of a core */
    for (int k = 0; k < v->naccesses; k++) {
        const kn_access *x = &v->access[k];
        if (x->near && outside) continue;
        double bytes = kn_read_of(v, x, from) * kn_fills(v, x, from, false) * x->bytes;
        bool packed = x->cache >= 0, ahead = packed && v->g->caches[x->cache].at < 0; /* in the order in which it is read */
        /* the next loop out walks along lines that are still there, so its run counts */
        if (!last && !packed) bytes *= kn_line_rounding(v, x, from > 0 ? from - 1 : 0, (double)near->transaction_bytes);
        int at = packed ? v->g->caches[x->cache].at + 1 : from;
        if (packed && !ahead && i == 0) bytes = kn_at_most(bytes, kn_read_of(v, x, at) * kn_fills(v, x, at, false) * x->bytes);
        /* short runs far apart, over and over: prefetchers lose them and they collide in few sets, which is why panels are packed */
        bool far = !x->store && !ahead && kn_fills(v, x, at, false) > 16 * v->tasks && kn_rounding(v, x, at, false, 4096) > 1.5;
        far = far && !one_run(v, x, at);
        double lost = i ? 1.3 : 1 + 4 * kn_rounding(v, x, at, false, 4096) * (double)near->transaction_bytes / 4096;
        if (!last && (!packed || i == 0) && far) bytes *= lost;
        if (outside) bytes *= cut_rows(v, x);
        sum += x->store && i == 0 ? 2 * bytes : bytes; /* a store reads its line first */
    }
    c->levels[i].bytes = sum;
    if (last) held = kn_register_need(v) * hw->vector_bytes;
    c->levels[i + 1].tile_bytes = (int64_t)held;
}
