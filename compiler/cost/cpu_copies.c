/* What copies into scratch cost a CPU: a vector at a time, turned in registers, also on their way out, or element by element. */
#include "cost/cpu.h"

/* Elements of the access's tensor that L2 does not hold come from the level beyond it, and a copy that turns them, a band at a time, does nothing
 * else meanwhile: cycles for one of them. */
static double waited(const kn_stage_view *v, const kn_access *x)
{
    const kn_hw_level *l2 = kn_hw_level_named(v->hw, "l2"), *far = kn_hw_level_named(v->hw, "l3");
    if (!l2 || !far || !(far->bandwidth_gbs > 0) || kn_access_bytes(x) <= (double)l2->capacity_bytes) return 0;
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
    bool sums = v->s->red != KN_RED_NONE;
    if (v->hw->gpu || k->region || k->last || lane < 1 || v->g->loops[k->loops[lane]].axis >= v->s->nspatial) return false;
    while (i >= 0 && ((sums && v->g->loops[k->loops[i]].axis < v->s->nspatial) || v->g->loops[k->loops[i]].extent == 1)) i--;
    bool rows = i >= 0 && v->g->loops[k->loops[i]].axis == x->unit_axis;
    return rows && kn_run_bytes(v, x, k->at + 1) >= (double)v->hw->vector_bytes;
}

bool kn_stage_moves(const kn_stage_view *v)
{
    const kn_stage *g = v->g;
    if (v->hw->gpu || v->s->red != KN_RED_NONE || v->s->body->op != KN_OP_LOAD || g->ncaches != 1 || g->caches[0].at < 0) return false;
    for (int i = 0; i < v->naccesses; i++)
        if (v->access[i].cache == 0) return v->access[i].bytes < 4 && is_folded(v, &v->access[i], &g->caches[0]);
    return false;
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

/* Lines that come through a copy of theirs and are turned in registers, square by square, however much of a square there is (images for a unit, which
 * lie with the channels first): 80 to 125 cycles for one of 16 by 16, halves or bytes, more where a line is one. */
static double turned_squares(const kn_stage_view *v)
{
    const double square = 120;
    const kn_stage *g = v->g;
    int n = g->nloops;
    double squares = 1;
    if (v->s->red != KN_RED_NONE || v->s->body->op != KN_OP_LOAD || g->ncaches != 1 || !g->caches[0].region || n < 2) return 0;
    if (g->loops[n - 1].kind != KN_VECTOR || g->loops[n - 2].kind != KN_UNROLL) return 0;
    for (int i = 0; i < v->naccesses; i++)
        if (v->access[i].cache == 0 && (v->access[i].unit_axis != g->loops[n - 2].axis || v->access[i].bytes > 2)) return 0;
    for (int i = 0; i < n - 2; i++) squares *= (double)g->loops[i].extent;
    return squares * square;
}

/* Copies into scratch, and what is turned on its way out of them. */
double kn_copy_us(const kn_stage_view *v, double share)
{
    double cycles = turned_squares(v);
    for (int i = 0; i < v->naccesses; i++) {
        const kn_access *x = &v->access[i];
        if (x->cache < 0 || v->g->caches[x->cache].at < 0) continue; /* packed ahead: copied before the first call */
        const kn_cache *k = &v->g->caches[x->cache];
        double n = kn_read_of(v, x, k->at + 1) * kn_fills(v, x, k->at + 1, false);
        if (k->last) { /* whole vectors of rows are turned, also where the last one has fewer */
            double rows = (double)x->shape[k->last - 1], lanes = (double)v->g->loops[v->g->nloops - 1].extent;
            n *= lanes * (double)(int64_t)((rows + lanes - 1) / lanes) / rows;
        }
        cycles += n * (copied(v, x, k) + (k->last ? waited(v, x) : 0));
    }
    return cycles / (v->hw->clock_ghz * 1e3 * v->hw->units * share);
}
