/* Share of a CPU's peak that a register tile of a sum reaches: chains of accumulators against the latency, what is read beside them, and what the
 * ends of short loops cost (thesis 3.4.1.2, equation 3.4). */
#include "cost/cpu.h"
#include <math.h>

/* Share of a stage's operations that are its sum's, not what finishes its results. */
double kn_summing(const kn_stage_view *v)
{
    double points = 1, all = v->iterations * v->flops;
    for (int i = 0; i < v->s->nspatial; i++) points *= (double)v->s->axes[i].extent;
    return all / (all + points * v->epilogue_flops);
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

/* Instructions for a term: one, as the peak counts them with two operations each; a maximum that keeps what is not a number takes three, or two
 * where vectors are so wide (AVX-512, codegen/prelude.def). */
double kn_instructions(const kn_stage_view *v)
{
    enum { WIDE = 64 };
    bool floats = kn_dtype_class(v->s->body->dtype) == 'f';
    return floats && (v->s->red == KN_RED_MAX || v->s->red == KN_RED_MIN) ? (v->hw->vector_bytes < WIDE ? 3 : 2) : 1;
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
    return kn_stage_bare(v) && !t.loop ? kn_at_least(SEEN / (t.all * vectors * kn_instructions(v)), 1) : 1;
}

/* The tile's rows of results follow each other in memory, so that the end of a vector is overwritten by the next one. */
static bool rows_follow(const kn_stage_view *v)
{
    const kn_access *x = &v->access[v->naccesses - 1];
    for (int i = v->first_reg; x->rank > 1 && i < v->g->nloops - 1; i++)
        if (v->g->loops[i].extent > 1 && (x->in[x->rank - 2] >> v->g->loops[i].axis & 1)) return true;
    return false;
}

double kn_starts(const kn_stage_view *v, double lanes)
{
    bool half = 2 * lanes * kn_dtype_bytes(kn_stmt_acc(v->s)) == v->hw->vector_bytes;
    return v->hw->halves_vectors && half && !kn_stage_bare(v) ? 2 : 1;
}

double kn_beside(const kn_hw *hw) { return kn_at_most(hw->fma_per_cycle / 2.0, 1); }

/* Cycles for each turn of a loop of so many: most of what it takes goes beside its terms, some more at its end. Where registers are few, four turns
 * are written out behind each other. */
double kn_turn_cycles(const kn_stage_view *v, double turns)
{
    enum { STEPS = KN_HW_WRITTEN_STEPS };
    bool written_out = kn_hw_few_registers(v->hw) && turns >= 2 * STEPS;
    return turns > 1 ? (written_out ? 0.25 / STEPS : 0.25) * kn_beside(v->hw) + 2 / turns : 0;
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
    if (kn_handed_over(v->t, v->g)) stores = 0;
    double cycles = t.all * vectors * kn_instructions(v) / issue;
    double turns = t.loop > 1 ? t.all / t.written * kn_turn_cycles(v, t.loop) : 0;
    return cycles / (cycles + turns + stores + RESTART / in_flight(v, vectors) * kn_beside(v->hw));
}

/* How many instructions the terms of a window take, each with one operation: the first one of those that are written out is but read. */
double kn_bare_terms(const kn_stage_view *v)
{
    terms t = terms_of(v);
    double each = kn_instructions(v);
    return t.loop || t.part ? each : ((t.all - 1) * each + 1) / t.all;
}

/* Spills: a store and a load for a multiply-add, which takes one operand from memory. */
double kn_spilled(const kn_stage_view *v) { return (int)kn_register_need(v) > v->hw->vector_registers + 1 ? 2 : 1; }

/* How many times as long a window over planes takes that goes along the lanes, whose vectors begin anywhere in lines of which they are parts: what it
 * is measured to take beside the same one with its results as lanes, where these fill vectors (48 windows on a Zen 3). */
static double beside_taps(const kn_stage_view *v, double full)
{
    const double STRADDLING = 1.08;
    double results = 1;
    uint32_t over = 0, by = 0; /* axes of what the window goes over, and of what it is multiplied by */
    for (int i = 0; i + 1 < v->naccesses; i++) {
        const kn_access *x = &v->access[i];
        bool vector = x->axes >> v->g->loops[v->g->nloops - 1].axis & 1;
        if (!vector) by |= x->axes;
        else if (kn_slides(v, x)) over |= x->axes;
    }
    for (int a = 0; a < v->s->nspatial; a++) results *= by & ~over & 1u << a ? (double)v->s->axes[a].extent : 1;
    return over && results > 1 && fmod(results, full) == 0 ? STRADDLING : 1;
}

/* Share of the multiply-adds' peak that a register tile of a sum reaches which has `part` of the tile's vectors: each accumulator can start one
 * multiply-add a latency; vectors and broadcasts compete with the multiply-adds for issue slots. A window's taps are read while its sums wait
 * (depthwise ones of 5, 6, 7 and 8 vectors take as long for a term); products of few sums take more than the longer of both, and are best told apart
 * by what the two make together, and all of theirs wait for loads where vectors are parts of lines and there are fewer multiply-adds than loads.
 * While a vector is put together from elements that lie apart no sum has to wait for its last term. */
static double tile_share(const kn_stage_view *v, double lanes, double full, double part)
{
    enum { GATHERED = 60, /* loads that take as long as one vector of elements picked one by one: 12 to 14 cycles, measured */
           LATE = 2, /* chains more than cover the latency, as both factors' vectors come late at times (2 rows by 4 against 3 by 4: 1.4) */
           LANES_SUMMED = 3 }; /* cycles to add up the lanes of one of several vectors */
    const kn_hw *hw = v->hw;
    double chains = kn_at_least(part * kn_register_values(v) / kn_at_least(kn_at_most(lanes, full), 1), 1), eff = 1, loads = 0, gathers = 0;
    bool rows = false; /* of elements that meet the vectors: each of both is loaded once a term */
    double slots = kn_stage_bare(v) ? 1 : kn_at_least(v->flops / 2, 1); /* of a term: what makes it waits for no sum */
    bool window = false, multiply_adds = !kn_stage_bare(v) && slots <= 1;
    bool along = multiply_adds && v->s->axes[v->g->loops[v->g->nloops - 1].axis].reduce && kn_hw_few_registers(hw);
    double issue = hw->fma_per_cycle * kn_starts(v, lanes), need = hw->fma_latency * issue + (along ? LATE : 0);
    double idle = kn_at_least(need / (chains * in_flight(v, chains) * slots), 1); /* slots for one that sums leave */
    for (int i = 0; i + 1 < v->naccesses; i++) {
        if (kn_collides(v, &v->access[i])) eff /= 1.35; /* measured: 16 rows of 4096 bytes against 8 */
        bool vector = lanes > 1 && (v->access[i].axes >> v->g->loops[v->g->nloops - 1].axis & 1);
        double runs = kn_footprint(v, &v->access[i], v->first_point, false) / (vector ? lanes / part : 1);
        window |= multiply_adds && kn_slides(v, &v->access[i]);
        if (kn_in_registers(v, &v->access[i])) continue;
        rows |= lanes > 1 && !vector && runs > 1;
        if (vector && kn_lanes_apart(v, &v->access[i])) gathers += runs * GATHERED * kn_lines_lost(v, &v->access[i]);
        else loads += vector && kn_across_lines(v, &v->access[i]) ? 2 * runs : runs;
    }
    double each = kn_stage_bare(v) ? 0.125 : KN_READ_SLOT * kn_beside(hw); /* of a slot; what is but added comes from memory as it is */
    each *= issue / (chains * kn_instructions(v));
    bool narrow = hw->vector_bytes < hw->levels[hw->nlevels - 2].transaction_bytes;
    double outnumbered = narrow && rows ? kn_at_least(loads / chains, 1) : 1; /* measured: 8 rows by a vector 1.25 times as long as 4 by 2 */
    double reads = 1 + each * loads, picks = 1 + each * (loads + gathers), waits = window ? kn_at_least(reads, idle) : reads * idle * outnumbered;
    if (narrow && rows && window) waits *= beside_taps(v, full);
    double sums = waits * kn_spilled(v) / inner_share(v, chains, issue);
    if (gathers > 0) picks += LANES_SUMMED * hw->fma_per_cycle / terms_of(v).all;
    return eff / (sums > picks ? sums : picks);
}

/* The same for all tiles of the vector axis, the last of which may be a short one. */
double kn_sum_share(const kn_stage_view *v, double lanes, double full)
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
