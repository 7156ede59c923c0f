/* Time of one stage on a CPU or a GPU: compute with its efficiency, traffic into every level, the larger of them (ROLLER 3.3; waves and
 * coalescing as in Welder, OSDI'23). Levels are read from the hwspec; nothing here knows a device. */
#include "cost/model.h"
#include "intrin/intrin.h"
#include "te/expr.h"
#include <math.h>
#include <string.h>

static double at_least(double x, double lo) { return x < lo ? lo : x; }
static double at_most(double x, double hi) { return x > hi ? hi : x; }

/* Share of the slots of all waves that have work: a last partial wave costs a whole one. */
static double wave_share(double tasks, double slots, double *waves)
{
    double w = tasks / slots, full = (double)(int64_t)w;
    *waves = full < w ? full + 1 : at_least(full, 1);
    return tasks / (*waves * slots);
}

/* Rate of the stage's instruction: one is started every `interval` cycles of a unit. */
static double instruction_gflops(const kn_stage_view *v)
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

static double bytes_of(const kn_access *x)
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
        bytes += bytes_of(&v->access[i]);
    }
    for (int i = 0; i < v->s->naxes; i++) work *= (double)v->s->axes[i].extent;
    double share = l3 ? (double)l3->capacity_bytes / at_least(at_most(l3->shared_by_units, v->hw->units), 1) : 0;
    return (bytes <= (double)l2->capacity_bytes && work >= MUCH * bytes) || (bytes <= share && work >= FAR * bytes);
}

/* Some index of a load goes along places and terms: a window, read where it lies or from a copy. */
static bool is_window(const kn_stage_view *v)
{
    uint32_t places = (1u << v->s->nspatial) - 1;
    for (int i = 0; i < v->naccesses; i++)
        for (int d = 0; d < v->access[i].rank; d++) {
            uint32_t in = kn_axes_in(v->access[i].index[d]);
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
    return fill->us + (is_window(v) ? 2 * at_least(fill->us - c->compute_us / 3, 0) : 0);
}

void kn_cost_finish(const kn_stage_view *v, kn_cost *c, double compute_eff, double memory_eff)
{
    bool called = kn_stage_warps(v->g) || (v->g->tensor.intrin && !v->hw->gpu);
    double gflops = called ? instruction_gflops(v) : kn_hw_peak_gflops(v->hw, kn_stmt_acc(v->s));
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
        all += c->levels[i].us;
        if (c->levels[i].us > c->us) c->us = c->levels[i].us, c->bottleneck = l->name;
    }
    all += filling(v, c);
    c->us += (v->hw->gpu ? 0.1 : 0.25) * (all - c->us); /* overlap is never perfect; it also orders plans that share a bottleneck */
    c->us += behind;
    if (v->g->at_stage < 0) c->us += v->hw->launch_us;
}

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
        double n = at_most((double)l->extent, cores / tasks);
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
static double run_bytes(const kn_stage_view *v, const kn_access *x, int from)
{
    const double huge = 1e15;
    return huge / kn_rounding(v, x, from, false, huge);
}

/* The box is one run of memory, or most of one: what the next one is taken from follows it. */
static bool one_run(const kn_stage_view *v, const kn_access *x, int from)
{
    if (kn_stretch(v, x, from) <= 2 * kn_footprint(v, x, from, false)) return true;
    return kn_footprint(v, x, from, false) * x->bytes <= 1.01 * run_bytes(v, x, from);
}

/* Rows each of whose elements meets one sum, once, and that tasks cut into runs shorter than a page: 1.35 times as long as from end to end, of few
 * pages 1.15 times (measured where a vector is half a line). */
static double cut_rows(const kn_stage_view *v, const kn_access *x)
{
    enum { PAGE = 4096, FEW_PAGES = 4 * PAGE };
    int from = 0;
    double terms = 1;
    while (from < v->g->nloops && v->g->loops[from].kind == KN_PARALLEL) from++;
    for (int i = 0; i < v->s->naxes; i++) terms *= (double)v->s->axes[i].extent;
    bool once = v->s->red == KN_RED_SUM && !x->store && x->cache < 0 && kn_footprint(v, x, 0, false) >= terms;
    double run = once && v->hw->vector_bytes < PAGE / 64 ? run_bytes(v, x, from) : FEW_PAGES;
    if (run >= FEW_PAGES || kn_footprint(v, x, from, false) * x->bytes <= 1.01 * run) return 1;
    return run < PAGE ? 1.35 : 1.15;
}

/* Elements of the access that a core reads while its loops from `from` on run. */
static double read_of(const kn_stage_view *v, const kn_access *x, int from)
{
    bool box = x->cache >= 0 && v->g->caches[x->cache].at >= 0 && v->g->caches[x->cache].region;
    return box ? kn_whole_box(v, x, from) : kn_footprint(v, x, from, false);
}

/* Traffic out of level `i`: what level i + 1 has to be filled with. A packed access is filled once, at its cache's loop, and then contiguous. */
static void cpu_level(const kn_stage_view *v, int i, kn_cost *c)
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
        double bytes = read_of(v, x, from) * kn_fills(v, x, from, false) * x->bytes;
        bool packed = x->cache >= 0, ahead = packed && v->g->caches[x->cache].at < 0; /* in the order in which it is read */
        /* the next loop out walks along lines that are still there, so its run counts */
        if (!last && !packed) bytes *= kn_line_rounding(v, x, from > 0 ? from - 1 : 0, (double)near->transaction_bytes);
        int at = packed ? v->g->caches[x->cache].at + 1 : from;
        if (packed && !ahead && i == 0) bytes = at_most(bytes, read_of(v, x, at) * kn_fills(v, x, at, false) * x->bytes);
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

/* Elements of the access's tensor that L2 does not hold come from the level beyond it, and a copy that turns them, a band at a time, does nothing
 * else meanwhile: cycles for one of them. */
static double waited(const kn_stage_view *v, const kn_access *x)
{
    const kn_hw_level *l2 = kn_hw_level_named(v->hw, "l2"), *far = kn_hw_level_named(v->hw, "l3");
    if (!l2 || !far || !(far->bandwidth_gbs > 0) || bytes_of(x) <= (double)l2->capacity_bytes) return 0;
    return x->bytes / far->bandwidth_gbs * v->hw->clock_ghz * v->hw->units;
}

/* Squares change places in registers (lower/squares.c): the copy's lanes, in front of an instruction's terms, lie rows apart, and another of its
 * loops goes along the rows. Bytes that stay together; 0: it is filled otherwise. */
static double squares_of(const kn_stage_view *v, const kn_access *x, const kn_cache *k)
{
    enum { LEAST = 4, MOST = 16 };
    double unit = x->bytes;
    int lanes = k->region ? -1 : k->nloops - 1;
    if (lanes > 1 && v->g->loops[k->loops[lanes]].axis == x->unit_axis) unit *= (double)v->g->loops[k->loops[lanes--]].extent;
    if (lanes < 1 || v->s->red == KN_RED_NONE) return 0;
    const kn_loop *l = &v->g->loops[k->loops[lanes]];
    if (l->axis == x->unit_axis || l->axis >= v->s->nspatial || l->extent < LEAST || l->extent > MOST || (l->extent & (l->extent - 1))) return 0;
    for (int i = 0; i < lanes; i++)
        if (v->g->loops[k->loops[i]].axis == x->unit_axis && v->g->loops[k->loops[i]].extent >= l->extent) return unit;
    return 0;
}

/* Rows of the source that run along the sum become lanes in registers (lower/folded.c), those of narrow elements with their terms behind them: the
 * copy has what lies nearest in a row right outside of the lanes. */
static bool is_folded(const kn_stage_view *v, const kn_access *x, const kn_cache *k)
{
    int lane = k->nloops - (x->bytes < 4 ? 2 : 1), i = lane - 1;
    if (v->hw->gpu || k->region || lane < 1 || v->g->loops[k->loops[lane]].axis >= v->s->nspatial) return false;
    while (i >= 0 && (v->g->loops[k->loops[i]].axis < v->s->nspatial || v->g->loops[k->loops[i]].extent == 1)) i--;
    bool rows = i >= 0 && v->g->loops[k->loops[i]].axis == x->unit_axis;
    return rows && run_bytes(v, x, k->at + 1) >= (double)v->hw->vector_bytes;
}

/* Runs of narrow elements along the lanes are interleaved to terms of them (lower/zipped.c). */
static bool is_zipped(const kn_stage_view *v, const kn_access *x, const kn_cache *k)
{
    return x->bytes < 4 && k->nloops > 1 && v->g->loops[k->loops[k->nloops - 2]].axis == x->unit_axis;
}

/* Cycles for an element that is copied: a vector at a time, squares of narrow ones in vectors that are not full, else an element at a time. */
static double copied(const kn_stage_view *v, const kn_access *x, const kn_cache *k)
{
    const double run = 0.25, alone = 1.5, word = 4;
    double unit = squares_of(v, x, k);
    if (unit > 0) return unit < word ? run * word / unit : run;
    bool along = k->nloops && v->g->loops[k->loops[k->nloops - 1]].axis == x->unit_axis;
    return k->region || along || is_folded(v, x, k) || is_zipped(v, x, k) ? run : alone;
}

/* Copies into scratch. */
static double copy_us(const kn_stage_view *v, double share)
{
    double cycles = 0;
    for (int i = 0; i < v->naccesses; i++) {
        const kn_access *x = &v->access[i];
        if (x->cache < 0 || v->g->caches[x->cache].at < 0) continue; /* packed ahead: copied before the first call */
        const kn_cache *k = &v->g->caches[x->cache];
        double n = read_of(v, x, k->at + 1) * kn_fills(v, x, k->at + 1, false);
        if (k->last) { /* whole vectors of rows are turned, also where the last one has fewer */
            double rows = (double)x->shape[k->last - 1], lanes = (double)v->g->loops[v->g->nloops - 1].extent;
            n *= lanes * (double)(int64_t)((rows + lanes - 1) / lanes) / rows;
        }
        cycles += n * (copied(v, x, k) + (k->last ? waited(v, x) : 0));
    }
    return cycles / (v->hw->clock_ghz * 1e3 * v->hw->units * share);
}

/* Rows of as many elements as there are lanes change places with them in registers (lower/turn.c). */
static bool turned(const kn_stage *g, int axis, double lanes)
{
    for (int i = 0; i < g->nloops; i++)
        if (axis >= 0 && g->loops[i].axis == axis && g->loops[i].kind == KN_UNROLL) return (double)g->loops[i].extent == lanes;
    return false;
}

/* How many times as long a vector takes that is put together from elements along `axis`: few that lie a few apart are picked from as many vectors
 * (codegen), beside what is done with them; others one by one. */
static double gathered(const kn_access *x, int axis, double lanes, double instructions)
{
    enum { PICKED = 4 };
    kn_affine f;
    int last = x->rank - 1;
    while (last > 0 && x->shape[last] == 1) last--;
    double step = last >= 0 && kn_affine_of(x->index[last], &f) ? (double)f.coef[axis] : 0;
    return step > 1 && step <= PICKED && step < lanes / 2 ? 1 + (step - 1) / instructions : lanes / 2;
}

/* Nothing repeats inside of the loops that the stage shares with its reader: all that is handed over is written out behind each other, and stays in
 * registers (lower/forward.c). */
static bool handed_over(const kn_tree *t, const kn_stage *p)
{
    const kn_stage *reader = p->at_stage >= 0 ? t->stages[p->at_stage] : NULL;
    if (!reader) return false;
    for (int k = 0; k < 2; k++) {
        const kn_stage *g = k ? reader : p;
        for (int i = 0; i < g->nloops; i++) {
            const kn_loop *l = &g->loops[i];
            bool outside = k ? i <= p->at_loop : l->shared_with >= 0 || t->program->stmts[g->stmt]->axes[l->axis].reduce;
            if (!outside && l->extent > 1 && l->kind != KN_UNROLL && l->kind != KN_VECTOR) return false;
        }
    }
    return true;
}

/* What is read is in registers, where another stage has left it. */
static bool in_registers(const kn_stage_view *v, const kn_access *x)
{
    for (int i = 0; i < v->t->nstages && !x->store; i++)
        if (kn_stage_out(v->t, v->t->stages[i]) == x->tensor && v->t->stages[i] != v->g) return handed_over(v->t, v->t->stages[i]);
    return false;
}

/* How many times as long the vectors of a row take of which padding takes a part at one end or both: there each element is asked for by itself,
 * where terms are not written out. */
static double at_ends(const kn_stage_view *v, const kn_access *x, int axis, double lanes)
{
    int64_t lo, hi;
    int last = x->rank - 1;
    while (last > 0 && x->shape[last] == 1) last--;
    if (x->store || x->cache >= 0 || !kn_expr_range(x->index[last], kn_stmt_range, (void *)v->s, &lo, &hi)) return 1;
    double ends = (lo < 0) + (hi >= x->shape[last]), vectors = ceil((double)v->s->axes[axis].extent / lanes);
    return 1 + at_most(ends / vectors, 1) * (lanes / 2 - 1);
}

/* The same of a row that registers hold: a step for every two of the vectors that its elements lie in, one if it is one. */
static double picked(const kn_access *x, int axis, double lanes, double full, double instructions)
{
    kn_affine f;
    double step = kn_affine_of(x->index[x->rank - 1], &f) ? (double)f.coef[axis] : lanes;
    return 1 + at_least(step * lanes / full - 1, 1) / instructions;
}

/* Share of a stage's operations that are its sum's, not what finishes its results. */
static double summing(const kn_stage_view *v)
{
    double points = 1, all = v->iterations * v->flops;
    for (int i = 0; i < v->s->nspatial; i++) points *= (double)v->s->axes[i].extent;
    return all / (all + points * v->epilogue_flops);
}

/* Lanes along a sum whose elements lie apart: rows of the tile share the vector once it is put together. */
static bool apart(const kn_stage_view *v, const kn_access *x)
{
    const kn_loop *l = &v->g->loops[v->g->nloops - 1];
    return l->kind == KN_VECTOR && v->s->axes[l->axis].reduce && x->cache < 0 && (x->axes >> l->axis & 1) && x->unit_axis != l->axis &&
           gathered(x, l->axis, (double)l->extent, 1) >= (double)l->extent / 2;
}

/* Bytes from one step of a loop to the next in an access; 0: not affine. */
static int64_t step_bytes(const kn_access *x, const kn_loop *l)
{
    int64_t step = 0, row = x->bytes;
    for (int d = x->rank - 1; d >= 0; d--) {
        kn_affine f;
        if (!kn_affine_of(x->index[d], &f)) return 0;
        step += f.coef[l->axis] * row;
        row *= x->shape[d];
    }
    return step < 0 ? -step * l->stride : step * l->stride;
}

/* Bytes between two of the sets of L1 that lines a step apart fall into. */
static int64_t sets_apart(const kn_hw_level *l1, int64_t step)
{
    int64_t apart = kn_hw_way_bytes(l1);
    while (step % apart && apart > l1->transaction_bytes) apart /= 2;
    return apart;
}

/* Rows that a register tile reads side by side, so many of whose lines fall into one set of L1 that they throw each other out before their elements
 * are used. Rows that stay in L2 come back in time. */
static bool collides(const kn_stage_view *v, const kn_access *x)
{
    enum { LINE = 64 };
    const kn_hw_level *l1 = &v->hw->levels[v->hw->nlevels - 2];
    const kn_hw_level *l2 = kn_hw_level_named(v->hw, "l2");
    if (x->cache >= 0 || x->store || (l2 && bytes_of(x) <= (double)l2->capacity_bytes)) return false;
    for (int i = v->first_reg; i < v->g->nloops; i++) {
        const kn_loop *l = &v->g->loops[i];
        int64_t step = l->kind == KN_UNROLL && l->axis < v->s->nspatial ? step_bytes(x, l) : 0;
        if (step >= LINE && l->extent * sets_apart(l1, step) > l1->capacity_bytes) return true;
    }
    return false;
}

/* How many times as long a vector takes whose elements lie in as many lines, when L1 does not hold the lines of the whole sum until it begins anew:
 * each then comes from L2, for all of the elements beside each other that the tile reads of it. Measured: 40 to 60 cycles for 16 lines. */
static double lines_lost(const kn_stage_view *v, const kn_access *x)
{
    enum { LINE = 64, FROM_L2 = 4 };
    const kn_hw_level *l1 = &v->hw->levels[v->hw->nlevels - 2];
    const kn_loop *l = &v->g->loops[v->g->nloops - 1];
    int64_t step = step_bytes(x, l);
    double beside = 1;
    if (step < LINE) return 1;
    if ((double)v->s->axes[l->axis].extent * (double)sets_apart(l1, step) <= (double)l1->capacity_bytes) return 1;
    for (int i = v->first_reg; i < v->g->nloops; i++)
        if (v->g->loops[i].axis == x->unit_axis) beside *= (double)v->g->loops[i].extent;
    return at_least(FROM_L2 / beside, 1);
}

/* Windows of a few taps whose tiles end inside a row: the next tile goes back some rows up, among the lines that have just been written. Measured
 * on depthwise windows and pooling of 42 to 56 columns: 1.1 to 1.2 times the time of whole rows. */
static bool parts_of_rows(const kn_stage_view *v)
{
    enum { FEW = 32 };
    const kn_stage *g = v->g;
    int64_t terms = 1;
    bool window = false, part = false;
    for (int i = 0; i < g->nloops; i++) {
        const kn_loop *l = &g->loops[i];
        if (v->s->axes[l->axis].reduce) terms *= l->extent;
        else if (i < v->first_reg && l->axis == g->loops[g->nloops - 1].axis) part |= l->extent > 1;
    }
    for (int i = 0; i + 1 < v->naccesses; i++) window |= kn_slides(v, &v->access[i]);
    return window && part && terms <= FEW;
}

/* Instructions for a term: one, as the peak counts them with two operations each; a maximum that keeps what is not a number takes three. */
static double instructions(const kn_stage_view *v)
{
    bool floats = kn_dtype_class(v->s->body->dtype) == 'f';
    return floats && (v->s->red == KN_RED_MAX || v->s->red == KN_RED_MIN) ? 3 : 1;
}

/* A register tile's terms: in all, those written out behind each other, and the iterations of the innermost loop around these; 0: there is none. They
 * may be a part of the sum, to which others come when the tile's turn comes again. */
typedef struct terms { double all, written, loop; bool part; } terms;

static terms terms_of(const kn_stage_view *v)
{
    terms t = {1, 1, 0, false};
    bool outside = false;
    for (int i = v->g->nloops - 1; i >= 0; i--) {
        const kn_loop *l = &v->g->loops[i];
        bool reduces = v->s->axes[l->axis].reduce;
        outside |= !reduces && i < v->first_reg;
        t.part |= outside && reduces && l->extent > 1;
        if (outside) continue;
        if (!reduces || l->kind == KN_VECTOR || l->rfactor) continue;
        t.all *= (double)l->extent;
        if (l->kind == KN_UNROLL && !t.loop) t.written *= (double)l->extent;
        else if (!t.loop && l->extent > 1) t.loop = (double)l->extent;
    }
    return t;
}

/* How many tiles of so many vectors a core works on at once: of a window whose terms are written out nothing has to be foreseen, and the next tiles'
 * instructions are there before this one's sums are ready. */
static double in_flight(const kn_stage_view *v, double vectors)
{
    enum { SEEN = 192 }; /* instructions that a core looks ahead, with what addresses and stores take of them left out */
    terms t = terms_of(v);
    return kn_stage_bare(v) && !t.loop ? at_least(SEEN / (t.all * vectors * instructions(v)), 1) : 1;
}

/* The tile's rows of results follow each other in memory, so that the end of a vector is overwritten by the next one. */
static bool rows_follow(const kn_stage_view *v)
{
    const kn_access *x = &v->access[v->naccesses - 1];
    for (int i = v->first_reg; x->rank > 1 && i < v->g->nloops - 1; i++)
        if (v->g->loops[i].extent > 1 && (kn_axes_in(x->index[x->rank - 2]) >> v->g->loops[i].axis & 1)) return true;
    return false;
}

/* Cycles for each turn of a loop of so many: most of what it takes goes beside its terms, some more at its end. Where registers are few, four turns
 * are written out behind each other. */
static double turn_cycles(const kn_stage_view *v, double turns)
{
    enum { STEPS = 4 };
    bool written_out = kn_hw_few_registers(v->hw) && turns >= 2 * STEPS;
    return turns > 1 ? (written_out ? 0.25 / STEPS : 0.25) + 2 / turns : 0;
}

/* Share of a sum's time that goes into its terms, of which `issue` start each cycle: when its registers are done they are loaded, added to and
 * stored, and the next ones begin anew, which costs the length of the pipeline once more. */
static double inner_share(const kn_stage_view *v, double vectors, double issue)
{
    enum { RESTART = 10, PIECES = 6 }; /* cycles that no work of other tiles fills, at the end of a loop; to store some lanes of a vector */
    double stores = vectors;
    const kn_loop *last = &v->g->loops[v->g->nloops - 1];
    if (last->kind == KN_VECTOR && last->axis < v->s->nspatial && v->s->axes[last->axis].extent < last->extent)
        stores = rows_follow(v) ? vectors - 1 + PIECES : vectors * PIECES;
    terms t = terms_of(v);
    if (t.part) stores *= 3; /* what was there is read and added to */
    if (handed_over(v->t, v->g)) stores = 0;
    double cycles = t.all * vectors * instructions(v) / issue;
    double turns = t.loop > 1 ? t.all / t.written * turn_cycles(v, t.loop) : 0;
    return cycles / (cycles + turns + stores + RESTART / in_flight(v, vectors));
}

/* Its vectors begin anywhere in a line: of a window, or of rows shorter than they are. */
static bool across_lines(const kn_stage_view *v, const kn_access *x)
{
    const kn_loop *last = &v->g->loops[v->g->nloops - 1];
    return kn_slides(v, x) || (x->cache < 0 && last->extent > v->s->axes[last->axis].extent);
}

/* Slots of an instruction's start that reading one vector or broadcast of a register tile takes beside those that are free. */
static const double read_slot = 0.225;

/* Share of an instruction's own pace at which it is called. What it reads comes through the slots in which it starts, unless a unit of its own
 * has it in registers. */
static double called_share(const kn_stage_view *v)
{
    const kn_stage *g = v->g;
    double tile = 1, pieces = 0, steps = 1, loads = 0;
    for (int i = 0; i < g->tensor.at; i++) {
        double n = (double)g->loops[i].extent;
        if (v->s->axes[g->loops[i].axis].reduce) steps *= n;
        else if (i >= v->first_reg) tile *= n, pieces += n;
    }
    double inner = 1; /* turns of the loop right around the tile's calls */
    for (int i = v->first_reg - 1; i >= 0 && inner <= 1; i--) inner = (double)g->loops[i].extent;
    for (int i = 0; i + 1 < v->naccesses && !kn_intrin_unit(g->tensor.intrin, v->hw); i++) {
        double part = kn_footprint(v, &v->access[i], g->tensor.at, false), all = kn_footprint(v, &v->access[i], v->first_reg, false);
        loads += all / part * (part > 1 && across_lines(v, &v->access[i]) ? 2 : 1);
    }
    double ideal = (double)g->tensor.intrin->points * v->flops / (instruction_gflops(v) / v->hw->units) * v->hw->clock_ghz;
    return ideal / (kn_intrin_call_cycles(g->tensor.intrin, v->hw, tile, pieces, steps) + (read_slot * loads + turn_cycles(v, inner)) / tile);
}

/* How many instructions the terms of a window take, each with one operation: the first one of those that are written out is but read. */
static double bare_terms(const kn_stage_view *v)
{
    terms t = terms_of(v);
    double each = instructions(v);
    return t.loop || t.part ? each : ((t.all - 1) * each + 1) / t.all;
}

/* Spills: a store and a load for a multiply-add, which takes one operand from memory. */
static double spilled(const kn_stage_view *v) { return (int)kn_register_need(v) > v->hw->vector_registers + 1 ? 2 : 1; }

/* Share of the multiply-adds' peak that a register tile of a sum reaches which has `part` of the tile's vectors: each accumulator can start one
 * multiply-add a latency; vectors and broadcasts compete with the multiply-adds for issue slots. A window's taps are read while its sums wait
 * (depthwise ones of 5, 6, 7 and 8 vectors take as long for a term); products of few sums take more than the longer of both, and are best told apart
 * by what the two make together, and all of theirs wait for loads where vectors are parts of lines and there are fewer multiply-adds than loads.
 * While a vector is put together from elements that lie apart no sum has to wait for its last term. */
static double tile_share(const kn_stage_view *v, double lanes, double full, double part)
{
    enum { GATHERED = 60, /* loads that take as long as one vector of elements picked one by one: 12 to 14 cycles, measured */
           LANES_SUMMED = 3 }; /* cycles to add up the lanes of one of several vectors */
    const kn_hw *hw = v->hw;
    double chains = at_least(part * kn_register_values(v) / at_least(at_most(lanes, full), 1), 1), eff = 1, loads = 0, gathers = 0;
    bool rows = false; /* of elements that meet the vectors: each of both is loaded once a term */
    double slots = kn_stage_bare(v) ? 1 : at_least(v->flops / 2, 1); /* of a term: what makes it waits for no sum */
    double idle = at_least(hw->fma_latency * hw->fma_per_cycle / (chains * in_flight(v, chains) * slots), 1); /* slots for one that sums leave */
    bool window = false, multiply_adds = !kn_stage_bare(v) && slots <= 1;
    for (int i = 0; i + 1 < v->naccesses; i++) {
        if (collides(v, &v->access[i])) eff /= 1.35; /* measured: 16 rows of 4096 bytes against 8 */
        bool vector = lanes > 1 && (v->access[i].axes >> v->g->loops[v->g->nloops - 1].axis & 1);
        double runs = kn_footprint(v, &v->access[i], v->first_point, false) / (vector ? lanes / part : 1);
        window |= multiply_adds && kn_slides(v, &v->access[i]);
        if (in_registers(v, &v->access[i])) continue;
        rows |= lanes > 1 && !vector && runs > 1;
        if (vector && apart(v, &v->access[i])) gathers += runs * GATHERED * lines_lost(v, &v->access[i]);
        else loads += vector && across_lines(v, &v->access[i]) ? 2 * runs : runs;
    }
    double each = (kn_stage_bare(v) ? 0.125 : read_slot) * hw->fma_per_cycle; /* of a slot; what is but added comes from memory as it is */
    each /= chains * instructions(v);
    bool narrow = hw->vector_bytes < hw->levels[hw->nlevels - 2].transaction_bytes;
    double outnumbered = narrow && rows ? at_least(loads / chains, 1) : 1; /* measured: 8 rows by a vector 1.25 times as long as 4 by 2 */
    double reads = 1 + each * loads, picks = 1 + each * (loads + gathers), waits = window ? at_least(reads, idle) : reads * idle * outnumbered;
    double sums = waits * spilled(v) / inner_share(v, chains, hw->fma_per_cycle);
    if (gathers > 0) picks += LANES_SUMMED * hw->fma_per_cycle / terms_of(v).all;
    return eff / (sums > picks ? sums : picks);
}

/* The same for all tiles of the vector axis, the last of which may be a short one. */
static double sum_share(const kn_stage_view *v, double lanes, double full)
{
    const double copy = 1.01; /* code of its own, met by all rows anew */
    kn_short_tile last;
    double eff = tile_share(v, lanes, full, 1);
    if (kn_stage_short_tile(v->s, v->g, &last)) {
        const kn_loop *l = &v->g->loops[last.loop];
        double whole = (double)last.from, rest = (double)(last.vectors * l->stride);
        eff = (whole + rest) / copy / (whole / eff + rest / tile_share(v, lanes, full, (double)last.vectors / (double)l->extent));
    }
    return lanes > 1 && parts_of_rows(v) ? eff / 1.15 : eff;
}

/* It lies as the tensor itself does: not copied at all, or only with its padding. */
static bool in_place(const kn_stage_view *v, const kn_access *x)
{
    const kn_cache *k = x->cache >= 0 ? &v->g->caches[x->cache] : NULL;
    return !k || (k->region && !k->last);
}

/* Results of the tile that share what it reads of the access along its sum. */
static double sharing(const kn_stage_view *v, const kn_access *x)
{
    double n = 1;
    if (!v->s->axes[v->g->loops[v->g->nloops - 1].axis].reduce) return 1;
    for (int i = v->first_reg; i < v->g->nloops; i++)
        if (!v->s->axes[v->g->loops[i].axis].reduce && !(x->axes >> v->g->loops[i].axis & 1)) n *= (double)v->g->loops[i].extent;
    return n;
}

/* Share of the peak at which vectors of single operations compute the stage. */
static double vector_share(const kn_stage_view *v)
{
    const kn_hw *hw = v->hw;
    int bytes = kn_dtype_bytes(kn_stmt_acc(v->s));
    double full = (double)hw->vector_bytes / bytes, lanes = 1;
    const kn_stage *g = v->g;
    if (g->nloops && g->loops[g->nloops - 1].kind == KN_VECTOR) lanes = (double)g->loops[g->nloops - 1].extent;
    double eff = at_most(lanes / full, 1);
    if (v->s->red != KN_RED_NONE) eff *= sum_share(v, lanes, full) / (kn_stage_bare(v) ? 2 * bare_terms(v) : 1);
    else eff /= spilled(v);
    if (lanes > 1) { /* gathers: a vector of strided elements is put together one by one */
        int axis = g->loops[g->nloops - 1].axis;
        for (int i = 0; i + 1 < v->naccesses; i++) {
            const kn_access *x = &v->access[i];
            if (!(x->axes >> axis & 1) || !in_place(v, x) || apart(v, x)) continue;
            if (in_registers(v, x)) eff /= x->unit_axis == axis ? 1 : 1 + (picked(x, axis, lanes, full, instructions(v)) - 1) * summing(v);
            else if (x->unit_axis == axis) eff /= at_ends(v, x, axis, lanes);
            else eff /= turned(g, x->unit_axis, lanes) ? 2 : 1 + (gathered(x, axis, lanes, instructions(v)) - 1) / sharing(v, x);
        }
    }
    return eff;
}

/* Some window slides over what the stage writes: its vectors begin between those that were stored. */
static bool slid_over(const kn_stage_view *v)
{
    const kn_program *p = v->t->program;
    bool found = false;
    for (int i = 0; i < p->nstmts && !found; i++) {
        const kn_expr *loads[KILN_MAX_TENSORS];
        uint32_t places = (1u << p->stmts[i]->nspatial) - 1;
        int n = kn_loads(p->stmts[i]->body, loads, KILN_MAX_TENSORS);
        for (int l = 0; l < n && l < KILN_MAX_TENSORS; l++)
            for (int d = 0; d < loads[l]->nargs && loads[l]->u.tensor == v->s->out; d++)
                found |= (kn_axes_in(loads[l]->args[d]) & places) && (kn_axes_in(loads[l]->args[d]) & ~places);
    }
    return found;
}

/* What is made for another stage a little at a time is read there while it is still on its way to L1: a vector that lies across two of those that
 * were stored waits for both. */
static double stalled_us(const kn_stage_view *v, double share)
{
    enum { ON_THE_WAY = 64, WAIT = 40 }; /* stores; cycles */
    double times = 1, each = 1;
    if (v->g->at_stage < 0 || !v->g->nloops || !slid_over(v) || handed_over(v->t, v->g)) return 0;
    const kn_loop *last = &v->g->loops[v->g->nloops - 1];
    if (last->kind != KN_VECTOR) return 0;
    for (int i = 0; i < v->g->nloops; i++) {
        if (v->g->loops[i].shared_with >= 0) times *= (double)v->g->loops[i].extent;
        else if (!v->s->axes[v->g->loops[i].axis].reduce) each *= (double)v->g->loops[i].extent;
    }
    if (each / (double)last->extent >= ON_THE_WAY) return 0;
    return times * WAIT / (v->hw->clock_ghz * 1e3 * v->hw->units * share);
}

/* A kernel is called with a pool of all cores, or by one thread, beside others of its process or not, for which no core waits: the mean of what these
 * take, by what one that no core waits in would. */
static double threads_share(const kn_stage_view *v, double *waves) { return 2 / (1 + 1 / wave_share(v->tasks, v->hw->units, waves)); }

void kn_cost_cpu(const kn_stage_view *v, kn_cost *c)
{
    const kn_hw *hw = v->hw;
    for (int i = 0; i + 1 < hw->nlevels; i++) cpu_level(v, i, c);
    c->registers = (int)kn_register_need(v);
    double eff = v->g->tensor.intrin ? called_share(v) : vector_share(v);
    double share = threads_share(v, &c->waves);
    c->grid = (int64_t)v->tasks;
    c->threads = 1;
    c->occupancy = at_most(v->tasks / hw->units, 1);
    c->compute_us = copy_us(v, share) + stalled_us(v, share);
    kn_cost_finish(v, c, eff * share, at_least(share, 1.0 / hw->units));
}

static double blocks_per_unit(const kn_stage_view *v, const kn_cost *c)
{
    const kn_hw *hw = v->hw;
    double n = hw->max_blocks_per_unit;
    n = at_most(n, (double)(hw->max_threads_per_unit / c->threads));
    if (c->shared_bytes) n = at_most(n, (double)(hw->max_shared_per_unit / c->shared_bytes));
    double regs = (c->registers + (v->g->kept ? 0.0 : 24.0)) * c->threads; /* addresses and loop counters take about that many */
    n = at_most(n, (double)(int64_t)(hw->registers_per_unit / regs));
    return at_least(n, 1);
}

/* Loads of one block from L2, and of its threads from shared memory. */
static void gpu_traffic(const kn_stage_view *v, double in_flight, kn_cost *c)
{
    double l2 = 0, shared = 0, compulsory = 0;
    const kn_hw *hw = v->hw;
    double tx = (double)hw->levels[0].transaction_bytes;
    for (int i = 0; i < v->naccesses; i++) {
        const kn_access *x = &v->access[i];
        if (x->own) continue;
        int from = x->cache >= 0 ? v->g->caches[x->cache].at + 1 : x->store ? v->first_inner : v->first_reg;
        double bytes = kn_footprint(v, x, from, true) * kn_fills(v, x, from, true) * x->bytes;
        l2 += bytes * kn_rounding(v, x, from, true, tx);
        compulsory += kn_footprint(v, x, 0, true) * x->bytes;
        if (x->cache >= 0) shared += kn_footprint(v, x, v->first_reg, false) * kn_fills(v, x, v->first_reg, false) * x->bytes + bytes;
    }
    /* Blocks of one wave share rows and columns of the operands in L2: a square of them reads each panel once. */
    double reuse = 1;
    while ((reuse + 1) * (reuse + 1) <= in_flight) reuse++;
    double dram = compulsory <= 0.5 * (double)hw->levels[1].capacity_bytes ? compulsory : at_least(l2 / reuse, compulsory);
    for (int i = 0; i < hw->nlevels; i++) {
        bool sh = !strcmp(hw->levels[i].name, "shared");
        c->levels[i].bytes = i == 0 ? at_most(dram, l2) : sh ? shared : i == hw->nlevels - 1 ? 0 : l2;
        c->levels[i].tile_bytes = sh ? c->shared_bytes : i == hw->nlevels - 1 ? (int64_t)c->registers * 4 : 0;
    }
}

/* Share of the bandwidth that blocks reach which read their rows, meet, and write them: what all threads of a unit have on the way against what the
 * unit could move in the meantime (Little's law). Blocks of a unit drift apart, so that some read while others meet: hence the root of squares. With
 * it six published times of RMSNorm on an H200 (cuDNN 9.19 and torch.compile, bf16, 2^26 elements: 64 to 76 us) are met (tests/unit/test_cost.c). */
static double kept_share(const kn_stage_view *v, double threads)
{
    enum { LATENCY_NS = 1000 }; /* first byte to last result: DRAM, combining, arithmetic */
    double moved = kn_kept_bytes(v) + kn_register_values(v) * v->access[v->naccesses - 1].bytes;
    double meanwhile = v->hw->levels[0].bandwidth_gbs * LATENCY_NS / v->hw->units;
    return 1 / sqrt(1 + meanwhile / (threads * moved) * (meanwhile / (threads * moved)));
}

/* Stages that threads of one block go through one after the other: as fast as the units issue, but no faster than a thread's own operations follow
 * each other, once a wave; those on different elements do not wait for each other. */
static double chain(const kn_stage_view *v, double used, kn_cost *c)
{
    enum { CYCLES = 4 }; /* of an operation that waits for the last one */
    double apart = at_most(at_least(kn_register_values(v), 1), CYCLES);
    double gflops = kn_hw_peak_gflops(v->hw, kn_stmt_acc(v->s));
    double issue = v->iterations * v->flops / (gflops * 1e3 * used);
    double waits = c->waves * v->iterations / (v->tasks * v->threads) * v->flops * CYCLES / apart / (v->hw->clock_ghz * 1e3);
    c->compute_us = waits > issue ? waits - issue : 0;
    return used;
}

void kn_cost_gpu(const kn_stage_view *v, kn_cost *c)
{
    const kn_hw *hw = v->hw;
    for (int i = 0; i < v->g->ncaches; i++) c->shared_bytes += kn_cache_bytes(v->t, v->g, &v->g->caches[i]);
    c->threads = (int)v->threads;
    c->grid = (int64_t)v->tasks;
    double need = kn_register_need(v);
    c->registers = need < 1e6 ? (int)need : 1000000;
    double blocks = blocks_per_unit(v, c);
    double warps = (double)kn_ceil_div(c->threads, hw->lanes);
    double active = at_most(v->tasks / hw->units, blocks) * warps; /* warps of one unit, on average */
    double share = wave_share(v->tasks, (double)hw->units * at_most(blocks, at_least(v->tasks / hw->units, 1)), &c->waves);
    c->occupancy = at_most(active * hw->lanes / hw->max_threads_per_unit, 1);
    bool products = kn_stage_warps(v->g); /* independent instructions of a warp, instead of operations of a thread */
    double ilp = at_most(products ? kn_register_values(v) / (double)v->g->tensor.intrin->operand[0].elems : kn_register_values(v), 8);
    if (products) active *= kn_stage_lanes(v->g, hw) > hw->lanes ? 16 : 4; /* its instruction keeps a tensor core busy that many times longer */
    double eff = at_most(active * ilp / (16.0 * hw->partitions), 1); /* 8 warps of 8 independent chains fill four schedulers (ROLLER's table) */
    eff *= v->threads / (warps * hw->lanes) * share;
    if (c->registers > hw->registers_per_thread) eff *= 0.25;
    bool spills = v->g->kept && (double)c->registers * c->threads > (double)hw->registers_per_unit;
    gpu_traffic(v, at_most(v->tasks, blocks * hw->units), c);
    double in_flight = at_most(active * ilp / 32, 1); /* 32 warps with one load each saturate a unit's share of DRAM */
    if (v->g->kept || v->g->at_stage >= 0) eff = chain(v, v->threads / (warps * hw->lanes), c);
    if (spills) eff *= 0.05; /* the row does not fit */
    if (v->g->kept) in_flight = kept_share(v, at_most(v->tasks / hw->units, blocks) * c->threads);
    kn_cost_finish(v, c, at_least(eff, 1e-4), at_least(in_flight, 1e-3));
}
