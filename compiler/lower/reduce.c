/* Reductions of a register tile: accumulating, combining lanes, accumulators and threads, and partial results between outer iterations. Lanes of
 * as many rows as a vector has are combined together, by interleaving; a few steps of a sum are written out where registers are few. */
#include "lower/tile.h"
#include "te/expr.h"
#include <math.h>

kn_expr *kn_tile_identity(kn_lw *w, enum kn_reduce r, enum kn_dtype t)
{
    bool f = kn_dtype_class(t) == 'f', big = t == KN_I64;
    double least = f ? -INFINITY : kn_dtype_class(t) != 'i' ? 0 : big ? -9223372036854775808.0 : -ldexp(1, kn_dtype_bytes(t) * 8 - 1);
    double most = f ? INFINITY : kn_dtype_class(t) == 'b' ? 1 : big ? 9223372036854775807.0 : ldexp(1, kn_dtype_bytes(t) * 8 - 1) - 1;
    switch (r) {
    case KN_RED_PROD: case KN_RED_ALL: return kn_lw_zero(w, t, 1);
    case KN_RED_MAX: return kn_lw_zero(w, t, least);
    case KN_RED_MIN: return kn_lw_zero(w, t, most);
    default: return kn_lw_zero(w, t, 0);
    }
}

/* A term for an accumulator of type t. Of halves the products are not rounded to halves before they are summed, as units that multiply halves do not
 * round them either: many terms in f32 would keep errors that f32 does not have. */
static kn_expr *term_of(kn_lw *w, kn_expr *e, enum kn_dtype t)
{
    bool half = e->dtype == KN_F16 || e->dtype == KN_BF16, exact = e->op == KN_OP_MUL || e->op == KN_OP_ADD || e->op == KN_OP_SUB;
    if (!half || !exact || (t != KN_F32 && t != KN_F64)) return kn_tile_cast(w, e, t);
    return kn_lw_node(w, e->op, t, e->lanes, term_of(w, e->args[0], t), term_of(w, e->args[1], t), NULL);
}

static kn_expr *combine(kn_tile *x, kn_expr *a, kn_expr *b)
{
    return kn_lw_node(x->w, kn_combines(x->sg->s->red), a->dtype, a->lanes, a, b, NULL);
}

/* The number of the lane, for each of them: floats, which are exact here, as a comparison of integers is taken for one that guards its reads. */
static kn_expr *lane_numbers(kn_tile *x)
{
    kn_lw *w = x->w;
    return kn_lw_lanes(w, kn_lw_node(w, KN_OP_CAST, KN_F32, 1, kn_lw_ref(w, x->lane_var), NULL, NULL), x->lane_var, x->lanes);
}

/* Some operand that the lanes run along lies in a cache. */
static bool some_cached(const kn_tile *x, int axis)
{
    for (int i = 0; i < x->sg->nloads; i++)
        if ((kn_axes_in(x->sg->loads[i]) >> axis & 1) && kn_sg_cached(x->sg, i)) return true;
    return false;
}

/* Where one does, whose tiles are whole: the others can be read past their rows. */
static bool reads_over(const kn_tile *x, int axis)
{
    const kn_sg *sg = x->sg;
    for (int i = 0; i < sg->nloads; i++) {
        const kn_cache *c = kn_sg_cached(sg, i) ? &sg->g->caches[sg->cache_of[i]] : NULL;
        bool has = kn_axes_in(sg->loads[i]) >> axis & 1;
        if (has && (c ? c->region : !kn_lw_has_rows(x->w, sg->loads[i], axis, x->lanes))) return false;
    }
    for (int i = 0; i < sg->g->nloops; i++) /* vectors begin at multiples of their lanes */
        if (sg->g->loops[i].axis == axis && i != x->vloop && sg->g->loops[i].stride % x->lanes) return false;
    return !x->w->nowns && !sg->base[axis];
}

/* Lanes along a reduction that end past it may be those of the vector that ends where the axis does, or be read past it; not where the axis is
 * shorter, or something else depends on the lanes. `begins`: where the vector would begin. */
static bool last_moves(kn_tile *x, kn_env *v, kn_expr **begins)
{
    kn_lw *w = x->w;
    const kn_sg *sg = x->sg;
    int axis = sg->g->loops[x->vloop].axis;
    *begins = kn_lw_at_lane(w, v->av[axis], x->lane_var, kn_lw_int(w, 0));
    if (sg->s->axes[axis].extent < x->lanes || w->hw->gpu || !kn_lw_unit_stride(v->av[axis], x->lane_var)) return false;
    for (int a = 0; a < sg->s->naxes; a++)
        if (a != axis && sg->s->axes[a].reduce && !sg->clipped[a] && kn_lw_below(w, v->av[a], sg->s->axes[a].extent)) return false;
    return !some_cached(x, axis) || reads_over(x, axis);
}

/* The lanes of `term` for which `there` holds; the others add nothing. */
static kn_expr *lanes_where(kn_tile *x, kn_expr *there, kn_expr *term)
{
    kn_expr *none = kn_lw_splat(x->w, kn_tile_identity(x->w, x->sg->s->red, x->acc_type), x->lanes);
    return kn_lw_node(x->w, KN_OP_SELECT, x->acc_type, x->lanes, there, kn_lw_splat(x->w, term, x->lanes), none);
}

/* What the lanes past the end give is left out. */
static kn_expr *vector_over(kn_tile *x, const kn_env *v, int axis)
{
    kn_lw *w = x->w;
    kn_sg *sg = x->sg;
    kn_env over = *v;
    uint32_t was = sg->over;
    over.memo = NULL;
    sg->over |= 1u << axis;
    kn_expr *term = term_of(w, kn_env_vector(&over, sg->s->body), x->acc_type);
    sg->over = was;
    kn_expr *end = kn_lw_splat(w, kn_lw_zero(w, KN_F32, (double)(sg->s->axes[axis].extent % x->lanes)), x->lanes);
    return lanes_where(x, kn_lw_node(w, KN_OP_LT, KN_BOOL, x->lanes, lane_numbers(x), end, NULL), term);
}

/* The vector that ends where the axis does, without its lanes that have been counted, if that makes a difference. */
static kn_expr *last_vector(kn_tile *x, const kn_env *v, kn_expr *begins)
{
    kn_lw *w = x->w;
    const kn_sg *sg = x->sg;
    int axis = sg->g->loops[x->vloop].axis;
    int64_t from = sg->s->axes[axis].extent - x->lanes;
    if (some_cached(x, axis)) return vector_over(x, v, axis);
    kn_env moved = *v;
    moved.memo = NULL; /* it holds what is read where the vector would have been */
    moved.av[axis] = kn_lw_simp(w, kn_lw_node(w, KN_OP_ADD, KN_I64, 1, kn_lw_ref(w, x->lane_var), kn_lw_int(w, from), NULL));
    kn_expr *term = term_of(w, kn_env_vector(&moved, sg->s->body), x->acc_type);
    if (sg->s->red != KN_RED_SUM && sg->s->red != KN_RED_PROD) return term;
    kn_expr *first = kn_lw_node(w, KN_OP_SUB, KN_I64, 1, begins, kn_lw_int(w, from), NULL);
    first = kn_lw_node(w, KN_OP_CAST, KN_F32, 1, kn_lw_simp(w, first), NULL, NULL);
    return lanes_where(x, kn_lw_node(w, KN_OP_LE, KN_BOOL, x->lanes, kn_lw_splat(w, first, x->lanes), lane_numbers(x), NULL), term);
}

/* Adds the lanes that are in range of a vector that may end past its axis. */
static void accumulate_tail(kn_tile *x, kn_env *v, kn_expr *in, kn_expr *at, kn_expr *old)
{
    kn_lw *w = x->w;
    kn_expr *begins;
    if (!last_moves(x, v, &begins)) {
        kn_expr *one = term_of(w, kn_env_scalar(v, x->sg->s->body), x->acc_type);
        one = kn_lw_node(w, KN_OP_SELECT, one->dtype, 1, in, one, kn_tile_identity(w, x->sg->s->red, x->acc_type));
        kn_lw_store(w, x->acc, at, combine(x, old, kn_lw_lanes(w, one, x->lane_var, x->lanes)));
        return;
    }
    kn_expr *some = kn_lw_below(w, begins, x->sg->s->axes[x->sg->g->loops[x->vloop].axis].extent);
    kn_ls *cond = some && !kn_lw_never(some) ? kn_lw_if(w, some) : NULL, **after = w->tail;
    if (some && !cond) return; /* wholly past the end */
    if (cond) w->tail = &cond->body;
    kn_lw_store(w, x->acc, at, combine(x, old, last_vector(x, v, begins)));
    if (cond) w->tail = after;
}

/* No loop is left around the terms of the tile, and each accumulator has a bit. */
bool kn_tile_written_out(const kn_tile *x)
{
    const kn_sg *sg = x->sg;
    bool all = !x->w->hw->gpu && !sg->rolled && x->nparts <= 64;
    for (int i = sg->tile; i < sg->g->nloops; i++)
        if (kn_tile_has(sg, i) && kn_tile_reduces(sg, i)) all = all && (kn_is_register(sg->g->loops[i].kind) || sg->g->loops[i].extent == 1);
    return all;
}

/* Of a sum or product whose terms count under a condition on the axes, the term at their present values: NULL where it is known not to hold. */
static const kn_expr *counted(kn_tile *x, kn_env *v)
{
    const kn_expr *e = x->sg->s->body;
    double none = x->sg->s->red == KN_RED_PROD ? 1 : 0;
    bool adds = x->sg->s->red == KN_RED_SUM || x->sg->s->red == KN_RED_PROD;
    while (adds && x->lane_var >= 0 && !x->w->hw->gpu && e->op == KN_OP_SELECT && kn_is_const(e->args[2]) &&
           !kn_loads(e->args[0], NULL, 0)) {
        bool same = e->args[2]->op == KN_OP_CONST_F ? e->args[2]->u.f == none : (double)e->args[2]->u.i == none;
        kn_expr *holds = kn_lw_simp(x->w, kn_env_scalar(v, e->args[0]));
        if (!same || holds->op != KN_OP_CONST_I) break;
        if (!holds->u.i) return NULL;
        e = e->args[1];
    }
    return e;
}

static void accumulate(kn_tile *x, int64_t part)
{
    kn_lw *w = x->w;
    bool first = x->written_out && !(x->begun >> part & 1);
    kn_memo *memo = kn_memo_open(w, x->sg, x->ncombo);
    kn_tile_leave_copy(x);
    for (int64_t c = 0; c < x->ncombo && !w->status; c++) {
        kn_tile_set(x, c);
        kn_env v = kn_tile_env(x);
        kn_expr *in = NULL;
        const kn_expr *body = kn_lw_skipped(w, x->sg, v.av) ? NULL : counted(x, &v);
        if (!body) continue;
        v.memo = memo;
        int lane = x->lane_var;
        for (int a = 0; a < x->sg->s->naxes; a++)
            if (x->sg->s->axes[a].reduce && !x->sg->clipped[a]) in = kn_lw_and(w, in, kn_lw_below(w, v.av[a], x->sg->s->axes[a].extent));
        kn_expr *at = kn_lw_int(w, c * x->nparts + part), *old = kn_lw_read(w, x->acc, at, x->lanes);
        kn_ls **after = w->tail, *cond = NULL;
        if (in && kn_lw_never(in) && !w->hw->gpu) continue;
        if (in) {
            kn_expr *all = lane >= 0 && kn_lw_uses(in, lane) ? kn_lw_at_lane(w, in, lane, kn_lw_int(w, x->lanes - 1)) : in;
            if (all->op != KN_OP_CONST_I) all = kn_lw_simp(w, all);
            bool whole = w->hw->gpu && lane >= 0 && kn_tile_whole_vectors(x);
            if (whole && kn_lw_never(all)) continue;
            if (kn_lw_never(all) && lane >= 0 && kn_lw_uses(in, lane)) {
                accumulate_tail(x, &v, in, at, old);
                continue;
            }
            cond = kn_lw_if(w, all);
            if (!cond) return;
            after = w->tail;
            w->tail = &cond->body;
        }
        kn_expr *term = term_of(w, kn_env_vector(&v, body), x->acc_type);
        term = kn_lw_splat(w, term, x->lanes);
        kn_lw_store(w, x->acc, at, first && !in ? term : combine(x, old, term));
        if (cond && lane >= 0 && kn_lw_uses(in, lane) && !(w->hw->gpu && kn_tile_whole_vectors(x))) {
            w->tail = &cond->other;
            accumulate_tail(x, &v, in, at, old);
        }
        if (cond) w->tail = after;
    }
    if (x->written_out) x->begun |= UINT64_C(1) << part;
}

/* Iterations of reduce loop i before the one that reaches past its axis, which is written out by itself: what is in range there is known, and the
 * others ask nothing. 0: all are alike, or something is filled or computed in them. */
static int64_t whole_iterations(const kn_tile *x, int i)
{
    const kn_sg *sg = x->sg;
    const kn_loop *l = &sg->g->loops[i];
    int64_t extent = sg->s->axes[l->axis].extent, inside = 1;
    if (x->w->hw->gpu || sg->rolled || sg->clipped[l->axis] || sg->nskips || l->extent < 2 || extent / l->stride != l->extent - 1) return 0;
    for (int k = 0; k < sg->g->nloops; k++) {
        if (k == i || sg->g->loops[k].axis != l->axis) continue;
        if (k < i || !kn_is_register(sg->g->loops[k].kind)) return 0;
        inside *= sg->g->loops[k].extent;
    }
    for (int k = 0; k < sg->g->ncaches; k++)
        if (sg->g->caches[k].at >= i) return 0;
    for (int k = 0; k < x->w->t->nstages; k++)
        if (x->w->t->stages[k]->at_stage == sg->index && x->w->t->stages[k]->at_loop >= i) return 0;
    return inside == l->stride && extent % l->stride ? l->extent - 1 : 0;
}

int kn_lw_written_out(const kn_lw *w, int64_t steps, int64_t sums)
{
    enum { LEAST = 4 };
    bool short_steps = kn_hw_few_registers(w->hw) && sums >= LEAST && sums < w->hw->vector_registers;
    return short_steps && steps >= 2 * KN_HW_WRITTEN_STEPS ? KN_HW_WRITTEN_STEPS : 0;
}

/* The same of loop i, where it is the last one of the reduction. */
static int written_out(const kn_tile *x, int i)
{
    const kn_sg *sg = x->sg;
    bool last = x->lanes > 1 && !sg->rolled && !sg->nskips;
    for (int j = i + 1; j < sg->g->nloops; j++)
        last = last && !(kn_tile_has(sg, j) && kn_tile_reduces(sg, j) && sg->g->loops[j].extent > 1);
    return last ? kn_lw_written_out(x->w, sg->g->loops[i].extent, x->ncombo) : 0;
}

/* The tile's reduce loops from loop i inward, accumulating into part `part`. */
static void nest(kn_tile *x, int i, int64_t part)
{
    kn_lw *w = x->w;
    kn_sg *sg = x->sg;
    for (; i < sg->g->nloops; i++)
        if (kn_tile_has(sg, i) && kn_tile_reduces(sg, i) && (i != x->vloop || sg->rolled)) break;
    if (i == sg->g->nloops) {
        accumulate(x, part);
        return;
    }
    const kn_loop *l = &sg->g->loops[i];
    bool was = sg->clipped[l->axis];
    if (kn_is_register(l->kind) && !sg->rolled && !x->looped) {
        for (int64_t k = 0; k < l->extent && !w->status; k++) {
            sg->val[i] = kn_lw_int(w, k);
            kn_lw_open(w, sg, i, NULL);
            nest(x, i + 1, l->rfactor ? part * l->extent + k : part);
        }
    } else {
        kn_lw_before(w, sg, i);
        kn_tile_ahead_at_once(x, i);
        kn_ls *loop = kn_lw_loop(w, sg, i);
        if (!loop) return;
        kn_ls **after = w->tail;
        if (!loop->unroll && !x->looped) loop->unroll = written_out(x, i);
        int64_t whole = x->looped ? 0 : whole_iterations(x, i);
        if (whole) {
            loop->hi = kn_lw_int(w, whole);
            w->var_hi[loop->var] = whole - 1;
        }
        w->tail = &loop->body;
        kn_lw_open(w, sg, i, loop);
        kn_tile_ahead(x, i);
        kn_tile_first_use_ahead(x, i);
        nest(x, i + 1, part);
        w->tail = after;
        if (whole) {
            sg->val[i] = kn_lw_int(w, whole);
            nest(x, i + 1, part);
        }
    }
    sg->clipped[l->axis] = was;
    sg->val[i] = NULL;
}

/* Condition that all terms written out in the tile are in range, of which loops around it decide; NULL: they are, or something is filled or computed
 * between them. */
static kn_expr *terms_full(kn_tile *x, bool *axes)
{
    kn_lw *w = x->w;
    kn_sg *sg = x->sg;
    kn_expr *av[KILN_MAX_AXES], *full = NULL;
    if (!x->written_out || sg->nskips || (x->vloop >= 0 && kn_tile_reduces(sg, x->vloop))) return NULL;
    for (int k = 0; k < sg->g->ncaches; k++)
        if (sg->g->caches[k].at >= sg->tile) return NULL;
    for (int k = 0; k < w->t->nstages; k++)
        if (w->t->stages[k]->at_stage == sg->index && w->t->stages[k]->at_loop >= sg->tile) return NULL;
    kn_tile_set(x, 0);
    for (int i = sg->tile; i < sg->g->nloops; i++)
        if (kn_tile_has(sg, i) && kn_tile_reduces(sg, i)) sg->val[i] = kn_lw_int(w, sg->g->loops[i].extent - 1);
    kn_env_axes(w, sg, av);
    for (int a = 0; a < sg->s->naxes; a++) {
        kn_expr *c = sg->s->axes[a].reduce && !sg->clipped[a] ? kn_lw_below(w, av[a], sg->s->axes[a].extent) : NULL;
        axes[a] = c != NULL;
        full = kn_lw_and(w, full, c);
    }
    for (int i = sg->tile; i < sg->g->nloops; i++)
        if (kn_tile_has(sg, i) && kn_tile_reduces(sg, i)) sg->val[i] = NULL;
    return full && kn_lw_never(kn_lw_simp(w, full)) ? NULL : full;
}

void kn_tile_terms(kn_tile *x)
{
    kn_lw *w = x->w;
    kn_sg *sg = x->sg;
    bool axes[KILN_MAX_AXES];
    kn_expr *full = terms_full(x, axes);
    kn_ls *cond = full ? kn_lw_if(w, full) : NULL, **after = w->tail;
    if (!cond) {
        nest(x, sg->tile, 0);
        return;
    }
    w->tail = &cond->body;
    for (int a = 0; a < sg->s->naxes; a++) sg->clipped[a] |= axes[a];
    nest(x, sg->tile, 0);
    for (int a = 0; a < sg->s->naxes; a++)
        if (axes[a]) sg->clipped[a] = false;
    w->tail = &cond->other;
    x->written_out = false;
    x->looped = true;
    nest(x, sg->tile, 0);
    x->looped = false;
    w->tail = after;
}

static kn_expr *finished(kn_tile *x, int64_t c);

/* What a thread holds of each result, in lanes and accumulators, becomes one. */
static void fold(kn_tile *x)
{
    if (x->nparts == 1 && !x->reduce_lanes) return;
    int one = kn_lw_buffer(x->w, "sum", x->acc_type, x->reduce_lanes ? 1 : x->lanes, x->ncombo, KN_REGISTER);
    for (int64_t c = 0; c < x->ncombo && !x->w->status; c++) kn_lw_store(x->w, one, kn_lw_int(x->w, c), finished(x, c));
    x->acc = one;
    x->nparts = 1;
    if (!x->reduce_lanes) return;
    x->reduce_lanes = false;
    x->lanes = 1;
    x->lane_var = x->vloop = -1;
}

/* The thread's value of each result becomes that of the 2, 4 .. n threads that differ in the low bits of their numbers, in all of these: bit by bit
 * within warps, so that every thread adds the same in the same order. */
static void butterfly(kn_tile *x, int64_t n)
{
    kn_lw *w = x->w;
    for (int64_t bit = 1; bit < n && !w->status; bit *= 2)
        for (int64_t c = 0; c < x->ncombo; c++) {
            kn_expr *mine = kn_lw_read(w, x->acc, kn_lw_int(w, c), 1);
            kn_expr *other = kn_lw_node(w, KN_OP_PEER, x->acc_type, 1, mine, NULL, NULL);
            if (!w->status) other->u.i = bit;
            kn_lw_store(w, x->acc, kn_lw_int(w, c), combine(x, mine, other));
        }
}

static bool power_of_two(int64_t n) { return (n & (n - 1)) == 0; }

/* The fastest n threads hold parts of the same results, and whole warps of them can talk without memory. */
static bool by_warps(const kn_tile *x, int64_t n, int64_t stride)
{
    const kn_hw *hw = x->w->hw;
    return hw->lanes == 32 && stride == 1 && power_of_two(n) && x->w->threads % hw->lanes == 0 && n <= 32 * 32 &&
           kn_dtype_class(x->acc_type) != 'b' && kn_dtype_bytes(x->acc_type) >= 4;
}

/* Some loop around the tile comes round again: what the last round left may still be read. */
static bool comes_again(const kn_sg *sg)
{
    bool again = false;
    for (int i = 0; i < sg->tile; i++) again |= sg->g->loops[i].kind == KN_SERIAL && sg->g->loops[i].extent > 1 && sg->g->loops[i].shared_with < 0;
    return again;
}

/* Within warps, then across them: each warp's result goes to shared memory, and every warp combines all of its row's. */
static void combine_warps(kn_tile *x, int64_t n)
{
    kn_lw *w = x->w;
    int64_t lanes = w->hw->lanes, warps = w->threads / lanes, row = n / lanes;
    butterfly(x, n < lanes ? n : lanes);
    if (n <= lanes) return;
    int sh = kn_lw_buffer(w, "part", x->acc_type, 1, x->ncombo * warps, KN_SHARED);
    kn_expr *warp = kn_lw_let(w, "warp", kn_bin(w->a, KN_OP_FLOORDIV, w->thread, kn_lw_int(w, lanes)));
    kn_expr *lane = kn_lw_let(w, "lane", kn_bin(w->a, KN_OP_MOD, w->thread, kn_lw_int(w, lanes)));
    if (comes_again(x->sg)) kn_lw_barrier(w);
    kn_ls *first = kn_lw_if(w, kn_lw_node(w, KN_OP_EQ, KN_BOOL, 1, lane, kn_lw_int(w, 0), NULL)), **after = w->tail;
    if (!first) return;
    w->tail = &first->body;
    for (int64_t c = 0; c < x->ncombo; c++)
        kn_lw_store(w, sh, kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, warp, kn_lw_int(w, c * warps))), kn_lw_read(w, x->acc, kn_lw_int(w, c), 1));
    w->tail = after;
    kn_lw_barrier(w);
    kn_expr *from = kn_bin(w->a, KN_OP_MUL, kn_bin(w->a, KN_OP_FLOORDIV, w->thread, kn_lw_int(w, n)), kn_lw_int(w, row));
    from = kn_lw_let(w, "parts", kn_bin(w->a, KN_OP_ADD, from, kn_bin(w->a, KN_OP_MOD, w->thread, kn_lw_int(w, row))));
    for (int64_t c = 0; c < x->ncombo; c++)
        kn_lw_store(w, x->acc, kn_lw_int(w, c), kn_lw_read(w, sh, kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, from, kn_lw_int(w, c * warps))), 1));
    butterfly(x, row);
}

/* Combines across the threads of rfactor loops; true when only some threads hold the result (condition in *owner). */
void kn_tile_combine_threads(kn_tile *x, kn_expr **owner)
{
    kn_lw *w = x->w;
    kn_sg *sg = x->sg;
    *owner = NULL;
    for (int i = 0; i < sg->g->nloops; i++) {
        const kn_loop *l = &sg->g->loops[i];
        if (l->kind != KN_THREAD || !kn_tile_reduces(sg, i) || l->extent == 1) continue;
        fold(x);
        int64_t stride = 1;
        for (int k = i + 1; k < sg->g->nloops; k++)
            if (sg->g->loops[k].kind == KN_THREAD) stride *= sg->g->loops[k].extent;
        if (by_warps(x, l->extent, stride)) {
            combine_warps(x, l->extent);
            if (kn_lw_own_of(w, kn_stage_out(w->t, sg->g))) continue; /* each goes on with it */
            *owner = kn_lw_and(w, *owner, kn_lw_node(w, KN_OP_EQ, KN_BOOL, 1, sg->val[i], kn_lw_int(w, 0), NULL));
            continue;
        }
        int sh = kn_lw_buffer(w, "part", x->acc_type, 1, x->ncombo * w->threads, KN_SHARED);
        for (int64_t c = 0; c < x->ncombo; c++)
            kn_lw_store(w, sh, kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, kn_lw_int(w, c * w->threads), w->thread)),
                        kn_lw_read(w, x->acc, kn_lw_int(w, c), 1));
        for (int64_t n = l->extent; n > 1 && !w->status;) {
            int64_t half = (n + 1) / 2;
            kn_lw_barrier(w);
            kn_ls *cond = kn_lw_if(w, kn_lw_node(w, KN_OP_LT, KN_BOOL, 1, sg->val[i], kn_lw_int(w, n - half), NULL));
            if (!cond) return;
            kn_ls **after = w->tail;
            w->tail = &cond->body;
            for (int64_t c = 0; c < x->ncombo; c++) {
                kn_expr *at = kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, kn_lw_int(w, c * w->threads), w->thread));
                kn_expr *other = kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, kn_lw_int(w, c * w->threads + half * stride), w->thread));
                kn_lw_store(w, sh, at, combine(x, kn_lw_read(w, sh, at, 1), kn_lw_read(w, sh, other, 1)));
            }
            w->tail = after;
            n = half;
        }
        for (int64_t c = 0; c < x->ncombo; c++)
            kn_lw_store(w, x->acc, kn_lw_int(w, c),
                        kn_lw_read(w, sh, kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, kn_lw_int(w, c * w->threads), w->thread)), 1));
        *owner = kn_lw_and(w, *owner, kn_lw_node(w, KN_OP_EQ, KN_BOOL, 1, sg->val[i], kn_lw_int(w, 0), NULL));
    }
}

/* The accumulators of element c as one vector, its lanes still apart. */
static kn_expr *lanes_of(kn_tile *x, int64_t c)
{
    kn_expr *v = NULL;
    for (int64_t k = 0; k < x->nparts; k++) {
        kn_expr *r = kn_lw_read(x->w, x->acc, kn_lw_int(x->w, c * x->nparts + k), x->lanes);
        v = v ? combine(x, v, r) : r;
    }
    return v;
}

int kn_tile_rows_of_lanes(const kn_tile *x)
{
    const kn_sg *sg = x->sg;
    int last = -1;
    for (int i = sg->tile; i < sg->g->nloops; i++)
        if (kn_tile_spatial(sg, i) && sg->g->loops[i].extent > 1) last = i;
    bool fits = x->lanes >= 4 && x->lanes <= 16 && (x->lanes & (x->lanes - 1)) == 0 && kn_dtype_bytes(x->acc_type) >= 4;
    bool rows = last >= 0 && !sg->few[last] && sg->g->loops[last].extent == x->lanes && sg->g->loops[last].stride == 1;
    return fits && rows && kn_dtype_class(x->acc_type) != 'b' ? last : -1;
}

/* Half `part` of two rows interleaved in blocks of `block` lanes, as ZIP does it, where rows begin in other lanes. */
static kn_expr *turned_zip(kn_tile *x, kn_expr *const *pair, const int *turned, int part, int block)
{
    int number[64], n = x->lanes;
    for (int l = 0; l < n; l++) {
        int at = part * block + l % block;
        number[l] = at % 2 * n + (l / block * block + at / 2 + turned[at % 2]) % n;
    }
    return kn_lw_pick(x->w, x->lanes, 2, pair, number);
}

/* Row by row of two that begin in these lanes: interleaved and combined, in the place of the first. */
static void combine_turned(kn_tile *x, int at, int a, int b, const int *turned, int block)
{
    kn_lw *w = x->w;
    kn_expr *pair[] = { kn_lw_read(w, at, kn_lw_int(w, a), x->lanes), kn_lw_read(w, at, kn_lw_int(w, b), x->lanes) };
    int lanes[] = {turned[a], turned[b]};
    kn_lw_store(w, at, kn_lw_int(w, a), combine(x, turned_zip(x, pair, lanes, 0, block), turned_zip(x, pair, lanes, 1, block)));
}

/* Rows x and y of `at`, mixed in both ways and combined, in the place of row `to`. */
static void combine_rows(kn_tile *x, int at, int a, int b, int to, enum kn_op op, int var)
{
    kn_lw *w = x->w;
    kn_expr *pair[] = { kn_lw_read(w, at, kn_lw_int(w, a), x->lanes), kn_lw_read(w, at, kn_lw_int(w, b), x->lanes) };
    kn_expr *low = kn_lw_zip(w, op, 2, pair, 0), *high = kn_lw_zip(w, op, 2, pair, 1);
    if (w->status) return;
    low->var = high->var = var;
    kn_lw_store(w, at, kn_lw_int(w, to), combine(x, low, high));
}

/* As many rows as a vector has lanes, each of which has a vector of partial results: two and two are interleaved and combined, until one vector has a
 * row's result in every lane. Two shuffles and one operation a row, instead of log2(lanes) of each; first inside of blocks of 16 bytes, then whole
 * blocks, as in kn_lw_transpose. */
void kn_tile_stand_up(kn_tile *x)
{
    kn_lw *w = x->w;
    int rows = x->reduce_lanes && !w->hw->gpu && !x->sg->rolled ? kn_tile_rows_of_lanes(x) : -1;
    if (rows < 0) return;
    int64_t groups = x->ncombo / x->lanes;
    int block = 16 / kn_dtype_bytes(x->acc_type);
    if (block > x->lanes) block = x->lanes;
    int sum = kn_lw_buffer(w, "sum", x->acc_type, x->lanes, groups, KN_REGISTER);
    for (int64_t g = 0; g < groups && !w->status; g++) {
        int at = kn_lw_buffer(w, "rows", x->acc_type, x->lanes, x->lanes, KN_REGISTER);
        for (int i = 0; i < x->lanes; i++) kn_lw_store(w, at, kn_lw_int(w, i), lanes_of(x, g * x->lanes + i));
        for (int n = block; n > 1 && !w->status; n /= 2)
            for (int i = 0; i < x->lanes && !w->status; i++)
                if (i % block < n / 2 && n == block && x->turned) combine_turned(x, at, i, i + n / 2, x->turned + g * x->lanes, block);
                else if (i % block < n / 2) combine_rows(x, at, i, i + n / 2, i, KN_OP_ZIP, block);
        for (int n = block; n < x->lanes && !w->status; n *= 2)
            for (int i = 0; i < x->lanes; i += 2 * n) combine_rows(x, at, i, i + n, i, KN_OP_UNZIP, block);
        kn_lw_store(w, sum, kn_lw_int(w, g), kn_lw_read(w, at, kn_lw_int(w, 0), x->lanes));
    }
    x->acc = sum;
    x->ncombo = groups;
    x->nparts = 1;
    x->reduce_lanes = false;
    x->vloop = rows;
    x->lane_var = kn_lw_var(w, "lane", 0, x->lanes - 1);
}

static kn_expr *finished(kn_tile *x, int64_t c)
{
    kn_lw *w = x->w;
    kn_expr *v = lanes_of(x, c);
    if (x->reduce_lanes) {
        v = kn_lw_node(w, KN_OP_HSUM, v->dtype, 1, v, NULL, NULL);
        if (!w->status) v->u.i = x->sg->s->red;
    }
    return v;
}

/* Element of the partial tile: the spatial loops inside the outermost reduce loop, in order. */
static kn_expr *part_index(kn_tile *x)
{
    kn_lw *w = x->w;
    const kn_sg *sg = x->sg;
    kn_expr *at = kn_lw_int(w, 0);
    for (int i = sg->first_reduce; i < sg->g->nloops; i++)
        if (!kn_tile_reduces(sg, i)) at = kn_bin(w->a, KN_OP_ADD, kn_bin(w->a, KN_OP_MUL, at, kn_lw_int(w, sg->g->loops[i].extent)), sg->val[i]);
    at = kn_lw_simp(w, at);
    return x->lane_var >= 0 ? kn_lw_at_lane(w, at, x->lane_var, kn_lw_int(w, 0)) : at;
}

kn_expr *kn_tile_value(kn_tile *x, int64_t c)
{
    kn_lw *w = x->w;
    if (x->acc < 0) {
        kn_env v = kn_tile_env(x);
        return kn_lw_splat(w, kn_env_vector(&v, x->sg->s->body), x->lanes);
    }
    kn_expr *v = finished(x, c);
    return x->part >= 0 ? combine(x, kn_lw_read(w, x->part, part_index(x), v->lanes), v) : v;
}

/* Partial results that L1 does not hold are asked for before the sum that is added to them, and are there when it is done. */
void kn_tile_prefetch_part(kn_tile *x)
{
    kn_lw *w = x->w;
    const kn_hw_level *l1 = kn_hw_level_named(w->hw, "l1");
    const kn_buffer *b = x->part < 0 ? NULL : &w->p->buffers[x->part];
    int64_t line = l1 ? l1->transaction_bytes / kn_dtype_bytes(x->acc_type) : 0, lanes = x->reduce_lanes ? 1 : x->lanes;
    if (!b || line < 1 || b->elems * kn_dtype_bytes(b->dtype) <= l1->capacity_bytes) return;
    int64_t all = lanes; /* elements of the tile, of a short one too: they lie as those of a whole one */
    for (int i = x->sg->tile; i < x->sg->g->nloops; i++)
        if (kn_tile_spatial(x->sg, i) && i != x->vloop) all *= x->sg->g->loops[i].extent;
    kn_tile_set(x, 0);
    kn_lw_prefetch_lines(w, x->part, part_index(x), kn_ceil_div(all, line), line, true);
}

void kn_tile_store_part(kn_tile *x, bool first)
{
    for (int64_t c = 0; c < x->ncombo && !x->w->status; c++) {
        kn_tile_set(x, c);
        kn_expr *v = first ? finished(x, c) : kn_tile_value(x, c);
        kn_ls *s = kn_lw_store_line(x->w, x->part, part_index(x), v, NULL);
        if (s) s->idle = kn_tile_idle(x);
    }
}

/* Iterations of the reduce loops outside the tile, and the elements of the partial results that they share. */
static int64_t outer_reduction(const kn_sg *sg, int64_t *elems)
{
    int64_t outer = 1;
    *elems = 1;
    for (int i = 0; i < sg->tile; i++)
        if (kn_tile_reduces(sg, i) && sg->g->loops[i].kind != KN_THREAD) outer *= sg->g->loops[i].extent;
    for (int i = sg->first_reduce; i < sg->g->nloops; i++)
        if (!kn_tile_reduces(sg, i) && !kn_mul_fits(*elems, sg->g->loops[i].extent, elems)) *elems = INT64_MAX;
    return outer;
}

static int part_buffer(kn_lw *w, const kn_sg *sg, int64_t elems)
{
    if (w->hw->gpu || elems > KILN_MAX_EXTENT) {
        kn_lw_fail(w, KILN_UNSUPPORTED,
            "statement '%s': serial spatial loops inside a reduce loop need a partial tile that the target cannot hold",
                   w->p->program->tensors[sg->s->out].name);
        kn_hint(w->d, "unroll the spatial loops inside the reduce loops, or bind them as vthread");
        return -1;
    }
    return kn_lw_buffer(w, "part", kn_stmt_acc(sg->s), 1, elems, KN_SCRATCH);
}

void kn_lw_init_part(kn_lw *w, kn_sg *sg)
{
    int64_t elems;
    if (outer_reduction(sg, &elems) == 1) return;
    sg->part = part_buffer(w, sg, elems);
    if (sg->part < 0) return;
    int var = kn_lw_var(w, "i", 0, elems - 1);
    kn_ls *loop = kn_lw_for(w, var, kn_lw_int(w, 0), kn_lw_int(w, elems)), **after = w->tail;
    if (!loop) return;
    w->tail = &loop->body;
    kn_lw_store(w, sg->part, kn_lw_ref(w, var), kn_tile_identity(w, sg->s->red, kn_stmt_acc(sg->s)));
    w->tail = after;
}

/* Partial results between iterations of reduce loops outside the tile; *first is NULL where they are set to the identity before. */
int kn_tile_part(kn_lw *w, kn_sg *sg, kn_expr **first, kn_expr **last)
{
    int64_t elems, outer = outer_reduction(sg, &elems);
    if (outer == 1) return -1;
    for (int i = 0; i < sg->tile; i++) {
        const kn_loop *l = &sg->g->loops[i];
        if (!kn_tile_reduces(sg, i) || l->kind == KN_THREAD || l->extent == 1) continue;
        if (sg->part < 0) *first = kn_lw_and(w, *first, kn_lw_node(w, KN_OP_EQ, KN_BOOL, 1, sg->val[i], kn_lw_skip_end(w, sg, i, false), NULL));
        *last = kn_lw_and(w, *last, kn_lw_node(w, KN_OP_EQ, KN_BOOL, 1, sg->val[i], kn_lw_skip_end(w, sg, i, true), NULL));
    }
    if (sg->part >= 0) return sg->part;
    if (sg->sums < 0) sg->sums = part_buffer(w, sg, elems); /* the last tile of an axis may be a copy of its own */
    return sg->sums;
}
