/* Tiles at the borders of what a window slides over: where a row of its taps is written out inside of a loop over its rows, each place and tap would
 * ask in every iteration whether it lies in padding. The few tiles that reach into it get code of their own, at known places, whose taps in padding
 * are left out; all others are known to be inside. */
#include "lower/tile.h"

enum { COPIES = 4 }; /* of the tile's code */

/* Tiles of the axis, `span` places each and the last one moved back: those before `first` and from `last` on reach into padding. */
typedef struct borders { int axis; int64_t span, tiles, first, last; } borders;

/* Loops of the axis: those in the tile are written out, those around it walked through by one task. */
static bool walked_in_tiles(const kn_sg *sg, int axis)
{
    for (int i = 0; i < sg->g->nloops; i++) {
        const kn_loop *l = &sg->g->loops[i];
        if (l->axis != axis || l->extent == 1) continue;
        if (l->shared_with >= 0 || (i < sg->tile ? l->kind != KN_SERIAL || !sg->val[i] : l->kind != KN_UNROLL)) return false;
    }
    return !sg->clipped[axis] && !sg->base[axis];
}

/* The axis is one of a reduction all of whose loops are written out in the tile. */
static bool written_out(const kn_sg *sg, int axis)
{
    for (int i = 0; i < sg->g->nloops; i++)
        if (sg->g->loops[i].axis == axis && sg->g->loops[i].extent > 1 && (i < sg->tile || sg->g->loops[i].kind != KN_UNROLL)) return false;
    return sg->s->axes[axis].reduce;
}

/* A loop over terms is left in the tile, and all of these are the window's own. */
static bool goes_round(const kn_sg *sg)
{
    bool yes = false;
    for (int i = 0; i < sg->g->nloops; i++) {
        const kn_loop *l = &sg->g->loops[i];
        bool own = false;
        if (!sg->s->axes[l->axis].reduce || l->extent == 1) continue;
        for (int d = 0; d < sg->npadded; d++) own |= sg->padded[d].at.coef[l->axis] != 0;
        if (!own || i < sg->tile) return false;
        yes |= l->kind == KN_SERIAL;
    }
    return yes;
}

static bool borders_of(const kn_sg *sg, const kn_padded_dim *x, borders *b)
{
    int64_t lo = x->at.offset, hi = lo, step = 0;
    *b = (borders){.axis = -1, .span = 1};
    for (int a = 0; a < sg->s->naxes; a++) {
        int64_t c = x->at.coef[a], most = c * (sg->s->axes[a].extent - 1);
        if (!c || sg->s->axes[a].extent < 2) continue;
        bool places = !sg->s->axes[a].reduce && b->axis < 0 && c > 0 && walked_in_tiles(sg, a);
        if (!places && !written_out(sg, a)) return false;
        if (places) b->axis = a, step = c;
        else *(c < 0 ? &lo : &hi) += most;
    }
    if (b->axis < 0) return false;
    for (int i = sg->tile; i < sg->g->nloops; i++)
        if (sg->g->loops[i].axis == b->axis) b->span += (sg->g->loops[i].extent - 1) * sg->g->loops[i].stride;
    int64_t all = sg->s->axes[b->axis].extent;
    b->tiles = kn_ceil_div(all, b->span);
    if (b->span < 2 || b->span > all) return false;
    b->last = b->tiles;
    for (int64_t t = 0; t < b->tiles; t++) {
        int64_t from = t * b->span < all - b->span ? t * b->span : all - b->span;
        if (lo + step * from < 0) b->first = t + 1;
        if (hi + step * (from + b->span - 1) >= x->extent && t < b->last) b->last = t;
    }
    if (b->last < b->first) b->last = b->first;
    return b->first + (b->first < b->last) + b->tiles - b->last <= COPIES && (b->first || b->last < b->tiles);
}

/* What caches hold has been copied before the axis is walked through: wherever its tiles begin. */
static bool cached_before(const kn_sg *sg, int axis)
{
    for (int i = 0; i < sg->g->ncaches; i++) {
        const kn_cache *c = &sg->g->caches[i];
        for (int l = 0; l <= c->at && c->scope != KN_PACKED; l++)
            if (sg->g->loops[l].axis == axis && sg->g->loops[l].extent > 1) return false;
        if (c->copies || (c->scope != KN_PACKED && !c->region)) return false;
    }
    return true;
}

static bool find(const kn_lw *w, const kn_sg *sg, borders *b)
{
    bool held = w->hw->gpu || w->hw->vector_registers >= KN_LW_MANY || sg->s->red == KN_RED_NONE || sg->g->at_stage >= 0 || !goes_round(sg);
    for (int k = 0; k < w->t->nstages; k++) held |= w->t->stages[k]->at_stage == sg->index;
    for (int i = 0; i < sg->npadded && !held; i++)
        if (borders_of(sg, &sg->padded[i], b) && cached_before(sg, b->axis)) return true;
    return false;
}

/* The tiles from number t on; those between the borders have one text, in which the place is known to be between them. */
static void tiles_from(kn_lw *w, kn_sg *sg, const borders *b, kn_expr *begin, int64_t t, kn_tile_fn tile)
{
    int64_t next = t < b->first || t >= b->last ? t + 1 : b->last, last = sg->s->axes[b->axis].extent - b->span;
    kn_ls *cond = next < b->tiles ? kn_lw_if(w, kn_lw_below(w, begin, next * b->span)) : NULL, **after = w->tail;
    if (next < b->tiles && !cond) return;
    if (cond) w->tail = &cond->body;
    kn_expr *at = next > t + 1 ? kn_lw_let(w, "inside", begin) : kn_lw_int(w, t * b->span < last ? t * b->span : last);
    if (next > t + 1 && at->op == KN_OP_VAR) {
        w->var_lo[at->u.var] = t * b->span;
        w->var_hi[at->u.var] = (next - 1) * b->span;
    }
    sg->base[b->axis] = at;
    tile(w, sg);
    sg->base[b->axis] = NULL;
    if (cond) {
        w->tail = &cond->other;
        tiles_from(w, sg, b, begin, next, tile);
        w->tail = after;
    }
}

bool kn_tile_borders(kn_lw *w, kn_sg *sg, kn_tile_fn tile)
{
    borders b;
    kn_expr *av[KILN_MAX_AXES];
    if (!find(w, sg, &b)) return false;
    kn_env_axes(w, sg, av);
    sg->drawn_in = true;
    tiles_from(w, sg, &b, av[b.axis], 0, tile);
    sg->drawn_in = false;
    return true;
}
