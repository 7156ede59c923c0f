/* Time of one stage: compute with its efficiency, traffic out of every level, the largest of them and a share of the others (ROLLER 3.3; waves as in
 * Welder, OSDI'23). Levels are read from the hwspec; nothing here knows a device. What is asked for is in cpu.c, gpu.c and bulk.c. */
#include "cost/model.h"

/* Share of the slots of all waves that have work: a last partial wave costs a whole one. */
double kn_wave_share(double tasks, double slots, double *waves)
{
    double w = tasks / slots, full = (double)(int64_t)w;
    *waves = full < w ? full + 1 : kn_at_least(full, 1);
    return tasks / (*waves * slots);
}

/* Rate of the stage's instruction: one is started every `interval` cycles of a unit. */
double kn_instruction_gflops(const kn_stage_view *v)
{
    const kn_intrin *it = v->g->tensor.intrin;
    double flops = v->flops * (double)it->points, interval = it->spec->interval;
    return interval > 0 ? flops / interval * v->hw->clock_ghz * v->hw->units : kn_hw_peak_gflops(v->hw, it->operand[1].dtype);
}

/* Copies that turn planes are an end in themselves, as stages that make copies are: what is computed from them comes behind. */
static bool turns(const kn_stage *g)
{
    for (int i = 0; i < g->ncaches; i++)
        if (g->caches[i].last) return true;
    return false;
}

double kn_access_bytes(const kn_access *x)
{
    double n = x->bytes;
    for (int d = 0; d < x->rank; d++) n *= (double)x->shape[d];
    return n;
}

/* What a core's caches hold was made there a moment ago, or used by the last call. Where much is computed with each byte of it, and the more the
 * farther away it is, nothing has to come from memory meanwhile; where little is, and in windows, whose plans differ in what they copy, they are told
 * apart by what they move, wherever it lies. */
static bool warm(const kn_stage_view *v)
{
    enum { MUCH = 4, FAR = 8 }; /* operations for a byte, in L2 and in the core's share of L3 */
    const kn_hw_level *l2 = kn_hw_level_named(v->hw, "l2"), *l3 = kn_hw_level_named(v->hw, "l3");
    double bytes = 0, work = v->flops;
    if (v->hw->gpu || !l2 || turns(v->g)) return false;
    for (int i = 0; i < v->naccesses; i++) {
        if (kn_slides(v, &v->access[i])) return false;
        bytes += kn_access_bytes(&v->access[i]);
    }
    for (int i = 0; i < v->s->naxes; i++) work *= (double)v->s->axes[i].extent;
    double share = l3 ? (double)l3->capacity_bytes / kn_at_least(kn_at_most(l3->shared_by_units, v->hw->units), 1) : 0;
    return (bytes <= (double)l2->capacity_bytes && work >= MUCH * bytes) || (bytes <= share && work >= FAR * bytes);
}

/* Some index of a load goes along places and terms: a window, read where it lies or from a copy. */
static bool is_window(const kn_stage_view *v)
{
    uint32_t places = (1u << v->s->nspatial) - 1;
    for (int i = 0; i < v->naccesses; i++)
        for (int d = 0; d < v->access[i].rank; d++) {
            uint32_t in = v->access[i].in[d];
            if ((in & places) && (in & ~places)) return true;
        }
    return false;
}

/* What comes out of L2 into L1 takes a share of its own beside multiply-adds, the larger one where a vector is a part of a line: L1 takes it in
 * between the reads, of which each line has several, and half of both caches may belong to a neighbour on the core. Measured with vectors of half a
 * line: windows that read all weights anew for each tile of places take 1.1 to 1.25 times as long as those that keep a panel in L1, and where what
 * they read so takes more than a third of the time of the products, 1.3 times. */
static double filling(const kn_stage_view *v, const kn_cost *c)
{
    const kn_cost_level *fill = &c->levels[c->nlevels - 3];
    bool parts = v->hw->vector_bytes < v->hw->levels[c->nlevels - 2].transaction_bytes, memory = c->compute_us < c->us;
    if (v->hw->gpu || !parts || memory) return 0;
    return fill->us + (is_window(v) ? 2 * kn_at_least(fill->us - c->compute_us / 3, 0) : 0);
}

/* What a level's traffic counts beside the longest time. Sums for which one multiply-add starts in a cycle have their operands from L1 in the slots
 * that are left idle, and most lines come out of L2 meanwhile, as long as that takes half of the time of computing at most (38 products and windows
 * with 60 plans each on a Zen 4: of the pairs 0.86 are put in order so, 0.84 with all of L2 and 0.82 with all of both). */
static double beside_longest(const kn_stage_view *v, const kn_cost *c, int level)
{
    double us = c->levels[level].us;
    bool idle = !v->hw->gpu && v->s->red != KN_RED_NONE && v->hw->fma_per_cycle < 2;
    if (!idle || level < v->hw->nlevels - 3) return us;
    return level == v->hw->nlevels - 3 ? kn_at_least(us - c->compute_us / 2, us / 4) : 0;
}

void kn_cost_finish(const kn_stage_view *v, kn_cost *c, double compute_eff, double memory_eff)
{
    bool called = kn_stage_warps(v->g) || (v->g->tensor.intrin && !v->hw->gpu);
    double gflops = called ? kn_instruction_gflops(v) : kn_hw_peak_gflops(v->hw, kn_stmt_acc(v->s));
    double points = 1;
    for (int i = 0; i < v->s->nspatial; i++) points *= (double)v->s->axes[i].extent;
    c->flops = v->iterations * v->flops + points * v->epilogue_flops;
    double copies = c->compute_us, behind = turns(v->g) ? c->flops / (gflops * 1e3 * compute_eff) : 0;
    c->compute_us += c->flops / (gflops * 1e3 * compute_eff);
    c->us = turns(v->g) ? copies : c->compute_us;
    double all = c->us;
    bool cold = !warm(v);
    c->bottleneck = "compute";
    c->nlevels = v->hw->nlevels;
    for (int i = 0; i < c->nlevels; i++) {
        const kn_hw_level *l = &v->hw->levels[i];
        c->levels[i].name = l->name;
        if (!(l->bandwidth_gbs > 0)) continue;
        c->levels[i].us = i || cold ? c->levels[i].bytes / (l->bandwidth_gbs * 1e3 * memory_eff) : 0;
        all += beside_longest(v, c, i);
        if (c->levels[i].us > c->us) c->us = c->levels[i].us, c->bottleneck = l->name;
    }
    all += filling(v, c);
    c->us += (v->hw->gpu ? 0.1 : 0.25) * (all - c->us); /* overlap is never perfect; it also orders plans that share a bottleneck */
    c->us += behind;
    if (v->g->at_stage < 0) c->us += v->hw->launch_us;
}
