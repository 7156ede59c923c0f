/* How a CPU's vectors come to their elements: from registers, from one row, across lines and sets, or put together one by one. */
#include "cost/cpu.h"
#include "te/expr.h"
#include <math.h>

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
bool kn_handed_over(const kn_tree *t, const kn_stage *p)
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
bool kn_in_registers(const kn_stage_view *v, const kn_access *x)
{
    for (int i = 0; i < v->t->nstages && !x->store; i++)
        if (kn_stage_out(v->t, v->t->stages[i]) == x->tensor && v->t->stages[i] != v->g) return kn_handed_over(v->t, v->t->stages[i]);
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
    return 1 + kn_at_most(ends / vectors, 1) * (lanes / 2 - 1);
}

/* The same of a row that registers hold: a step for every two of the vectors that its elements lie in, one if it is one. */
static double picked(const kn_access *x, int axis, double lanes, double full, double instructions)
{
    kn_affine f;
    double step = kn_affine_of(x->index[x->rank - 1], &f) ? (double)f.coef[axis] : lanes;
    return 1 + kn_at_least(step * lanes / full - 1, 1) / instructions;
}

/* Lanes along a sum whose elements lie apart: rows of the tile share the vector once it is put together. */
bool kn_lanes_apart(const kn_stage_view *v, const kn_access *x)
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

/* Rows that a register tile reads side by side, so many of whose lines fall into one set of L1 that they throw each other out before their elements
 * are used. Rows that stay in L2 come back in time, and so do a few more than there are ways where a vector is a line (4096x1024x32 by 14 rows in
 * 12 ways: 1.0 of the time of rows that lie otherwise). */
bool kn_collides(const kn_stage_view *v, const kn_access *x)
{
    enum { LINE = 64 };
    const kn_hw_level *l1 = &v->hw->levels[v->hw->nlevels - 2];
    const kn_hw_level *l2 = kn_hw_level_named(v->hw, "l2");
    int64_t room = l1->capacity_bytes + (v->hw->vector_bytes < LINE ? 0 : l1->capacity_bytes / 4);
    if (x->cache >= 0 || x->store || (l2 && kn_access_bytes(x) <= (double)l2->capacity_bytes)) return false;
    for (int i = v->first_reg; i < v->g->nloops; i++) {
        const kn_loop *l = &v->g->loops[i];
        int64_t step = l->kind == KN_UNROLL && l->axis < v->s->nspatial ? step_bytes(x, l) : 0;
        if (step >= LINE && l->extent * kn_hw_sets_apart(l1, step) > room) return true;
    }
    return false;
}

/* How many times as long a vector takes whose elements lie in as many lines, when L1 does not hold the lines of the whole sum until it begins anew:
 * each then comes from L2, for all of the elements beside each other that the tile reads of it. Measured: 40 to 60 cycles for 16 lines. */
double kn_lines_lost(const kn_stage_view *v, const kn_access *x)
{
    enum { LINE = 64, FROM_L2 = 4 };
    const kn_hw_level *l1 = &v->hw->levels[v->hw->nlevels - 2];
    const kn_loop *l = &v->g->loops[v->g->nloops - 1];
    int64_t step = step_bytes(x, l);
    double beside = 1;
    if (step < LINE) return 1;
    if ((double)v->s->axes[l->axis].extent * (double)kn_hw_sets_apart(l1, step) <= (double)l1->capacity_bytes) return 1;
    for (int i = v->first_reg; i < v->g->nloops; i++)
        if (v->g->loops[i].axis == x->unit_axis) beside *= (double)v->g->loops[i].extent;
    return kn_at_least(FROM_L2 / beside, 1);
}

/* Its vectors begin anywhere in a line: of a window, or of rows shorter than they are. */
bool kn_across_lines(const kn_stage_view *v, const kn_access *x)
{
    const kn_loop *last = &v->g->loops[v->g->nloops - 1];
    return kn_slides(v, x) || (x->cache < 0 && last->extent > v->s->axes[last->axis].extent);
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

double kn_lanes_share(const kn_stage_view *v, double lanes, double full)
{
    const kn_stage *g = v->g;
    int axis = g->loops[g->nloops - 1].axis;
    double share = 1;
    for (int i = 0; i + 1 < v->naccesses; i++) {
        const kn_access *x = &v->access[i];
        if (!(x->axes >> axis & 1) || !in_place(v, x) || kn_lanes_apart(v, x)) continue;
        if (kn_in_registers(v, x)) share /= x->unit_axis == axis ? 1 : 1 + (picked(x, axis, lanes, full, kn_instructions(v)) - 1) * kn_summing(v);
        else if (x->unit_axis == axis) share /= at_ends(v, x, axis, lanes);
        else share /= turned(g, x->unit_axis, lanes) ? 2 : 1 + (gathered(x, axis, lanes, kn_instructions(v)) - 1) / sharing(v, x);
    }
    return share;
}
