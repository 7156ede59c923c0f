/* Results of an instruction's calls that are vectors in registers go from there to where they belong, where their lanes follow each other there and
 * no other axis ends inside of the tile: vectors that are whole at once, of the one that the lanes' axis ends in the lanes that it has. What is left
 * goes through memory (called_store.c). */
#include "lower/called.h"
#include <string.h>

/* The destination's only loop of lanes, a vector of which is what a register holds, -1: it holds something else, or loops go over it. */
static int lanes_of(const kn_called *x)
{
    enum { MOST = 64 };
    const kn_sg *sg = x->sg;
    const kn_intrin_operand *o = &x->it->operand[0];
    int lanes = o->rank > 0 && o->plain ? x->x->loop[o->lone[o->rank - 1]] : -1;
    int64_t n = lanes < 0 ? 0 : sg->g->loops[lanes].extent;
    if (x->w->hw->gpu || n < 2 || n != o->elems || n > MOST || (n & (n - 1))) return -1;
    for (int i = sg->first_reduce; i < sg->g->nloops; i++) {
        const kn_loop *l = &sg->g->loops[i];
        if (i != lanes && l->extent > 1 && !kn_tile_reduces(sg, i) && (i >= sg->tile || l->kind != KN_UNROLL)) return -1;
    }
    return lanes;
}

/* Condition that the tile is in range on the other axes, as far as that is not known; NULL: it is. */
static kn_expr *others_in_range(kn_called *x, int axis)
{
    bool clipped = x->sg->clipped[axis];
    x->sg->clipped[axis] = true;
    kn_expr *in = kn_called_all_in_range(x);
    x->sg->clipped[axis] = clipped;
    return in ? kn_lw_simp(x->w, in) : NULL;
}

/* Lane n - 1 of the registers that now have their values is in range; NULL: it is known to be. */
static kn_expr *lane_in_range(kn_called *x, int lanes, int64_t n)
{
    kn_sg *sg = x->sg;
    kn_tile one = kn_called_one(x);
    bool clipped[KILN_MAX_AXES];
    memcpy(clipped, sg->clipped, sizeof clipped);
    for (int a = 0; a < sg->s->naxes; a++) sg->clipped[a] |= a != sg->g->loops[lanes].axis;
    sg->val[lanes] = kn_lw_int(x->w, n - 1);
    kn_expr *in = kn_tile_in_range(&one);
    sg->val[lanes] = NULL;
    memcpy(sg->clipped, clipped, sizeof clipped);
    return in ? kn_lw_simp(x->w, in) : NULL;
}

/* Where register c begins along the lanes' axis, in elements from the tile's own beginning. */
static int64_t place_of(kn_called *x, int lanes, int64_t c)
{
    int64_t at = 0;
    kn_called_register(x, c);
    for (int i = x->sg->first_reduce; i < x->sg->tile; i++) {
        const kn_loop *l = &x->sg->g->loops[i];
        if (l->kind == KN_UNROLL && l->axis == x->sg->g->loops[lanes].axis) at += x->sg->val[i]->u.i * l->stride;
    }
    return at;
}

/* Calls that each result is summed in, one after the other. */
static int64_t steps_of(const kn_called *x)
{
    const kn_sg *sg = x->sg;
    int64_t steps = 1;
    for (int i = 0; i < sg->tile; i++)
        if (kn_tile_reduces(sg, i) && !kn_mul_fits(steps, sg->g->loops[i].extent, &steps)) return INT64_MAX;
    return steps;
}

/* The vector of register c, as it is: past the caches, if that is better and the sums do not take longer (bytes, 4096 each way: of 16 terms 1.24
 * times as fast, of 64 0.84). */
static void store_one(kn_called *x, int lanes, int64_t c)
{
    enum { PAST = 4 };
    kn_lw *w = x->w;
    kn_tile one = kn_called_one(x);
    int n = (int)x->sg->g->loops[lanes].extent, lane = kn_lw_var(w, "lane", 0, n - 1);
    x->sg->val[lanes] = kn_lw_ref(w, lane);
    if (steps_of(x) <= PAST) kn_tile_write_lines(&one, n);
    kn_tile_store_lanes(&one, kn_lw_read(w, x->sg->results, kn_lw_int(w, c), n), lane);
    w->streamed = -1;
    x->sg->val[lanes] = NULL;
}

/* Of the registers that begin where `first` does and now lie in memory the first n lanes, in loops over them: written out, compilers would take
 * these from the registers, and keep sums where such parts can be taken from. */
static void store_parts(kn_called *x, int lanes, int64_t first, int64_t n)
{
    kn_lw *w = x->w;
    kn_sg *sg = x->sg;
    kn_ls **after = NULL;
    place_of(x, lanes, first);
    for (int i = sg->first_reduce; i < sg->tile; i++) {
        const kn_loop *l = &sg->g->loops[i];
        if (l->kind != KN_UNROLL || l->axis == sg->g->loops[lanes].axis) continue;
        kn_ls *loop = kn_lw_loop(w, sg, i);
        if (!loop) return;
        if (!after) after = w->tail;
        w->tail = &loop->body;
    }
    kn_called_store_first(x, lanes, (int)n);
    if (after) w->tail = after;
}

/* All registers that begin where `first` does, n lanes of each. */
static void store_column(kn_called *x, int lanes, int64_t first, int64_t n)
{
    kn_lw *w = x->w;
    int64_t all = w->p->buffers[x->sg->results].elems, at = place_of(x, lanes, first), vector = x->sg->g->loops[lanes].extent;
    for (int64_t c = first; c < all && !w->status; c++) {
        if (place_of(x, lanes, c) != at) continue;
        if (n == vector) store_one(x, lanes, c);
        else kn_lw_store(w, x->sg->part, kn_lw_int(w, c * vector), kn_lw_read(w, x->sg->results, kn_lw_int(w, c), (int)vector));
    }
    if (n < vector) store_parts(x, lanes, first, n);
}

/* The same of those that are whole, else of the lanes that the last vector has. */
static void store_columns(kn_called *x, int lanes, int64_t first)
{
    kn_lw *w = x->w;
    const kn_loop *l = &x->sg->g->loops[lanes];
    int64_t rest = x->sg->s->axes[l->axis].extent % l->extent, n[2] = {l->extent, rest};
    kn_ls **after = NULL;
    for (int part = 0; part < 2 && n[part]; part++) {
        place_of(x, lanes, first);
        kn_expr *in = lane_in_range(x, lanes, n[part]);
        if (in && kn_lw_never(in)) continue;
        kn_ls *cond = in ? kn_lw_if(w, in) : NULL;
        if (cond) w->tail = &cond->body;
        store_column(x, lanes, first, n[part]);
        if (!cond) break;
        if (!after) after = &cond->next;
        w->tail = &cond->other;
    }
    if (after) w->tail = after;
}

/* No register before it begins where this one does. */
static bool is_first(kn_called *x, int lanes, int64_t c)
{
    int64_t at = place_of(x, lanes, c);
    for (int64_t k = 0; k < c; k++)
        if (place_of(x, lanes, k) == at) return false;
    return true;
}

/* The lanes of register 0 follow each other where they go. */
static bool follows(kn_called *x, int lanes)
{
    kn_tile one = kn_called_one(x);
    int lane = kn_lw_var(x->w, "lane", 0, x->sg->g->loops[lanes].extent - 1);
    kn_called_register(x, 0);
    x->sg->val[lanes] = kn_lw_ref(x->w, lane);
    bool yes = kn_tile_consecutive(&one, x->it->operand[0].dtype, lane);
    x->sg->val[lanes] = NULL;
    kn_called_register(x, -1);
    return yes && x->sg->g->loops[lanes].stride == 1;
}

/* Compilers keep sums in memory for what comes behind the loop, if that is more than a loop, where these take most of the registers: which only sums
 * of a few steps are short enough for, and gain by (bytes with AVX2, 3 by 3 vectors: 560x3417x224 1.4 times as long, 40x456x16 0.6; halves, 8 by 3
 * vectors: 16x328x324 1.27 times, 1096x128x16 0.83). */
static bool crowds(const kn_called *x)
{
    enum { STEPS = 64, FEW_REGISTERS = 12 };
    return steps_of(x) > (kn_hw_few_registers(x->w->hw) ? FEW_REGISTERS : STEPS);
}

bool kn_called_store_registers(kn_called *x, kn_ls ***rest)
{
    kn_lw *w = x->w;
    kn_sg *sg = x->sg;
    int lanes = lanes_of(x);
    *rest = NULL;
    if (lanes < 0 || crowds(x)) return false;
    sg->rolled = true;
    int64_t n = w->p->buffers[sg->results].elems, all = sg->g->loops[lanes].extent;
    int axis = sg->g->loops[lanes].axis;
    bool can = follows(x, lanes);
    kn_expr *others = can ? others_in_range(x, axis) : NULL;
    can = can && !(others && kn_lw_never(others));
    kn_ls *cond = can && others ? kn_lw_if(w, others) : NULL, **after = w->tail;
    if (cond) w->tail = &cond->body;
    if (can && !sg->clipped[axis] && sg->s->axes[axis].extent % all) kn_called_parts(x);
    x->buffer[0] = sg->part;
    for (int64_t c = 0; can && c < n && !w->status; c++)
        if (is_first(x, lanes, c)) store_columns(x, lanes, c);
    kn_called_register(x, -1);
    if (cond) w->tail = after;
    *rest = cond ? &cond->other : NULL;
    sg->rolled = false;
    return can;
}
