/* Copies that are made at their first use. Where a block of an operand is copied because some tiles go through it one after the other, the first of
 * them reads the operand itself, and leaves in the copy what it has in registers anyway: a core loads and stores beside its products, and comes to
 * them in the order in which memory brings what they want, where a copy made ahead keeps it from computing. (1x1 windows, channels first, on a Zen 4:
 * 96x83x83 to 42 1.17 times as fast, 168x83x83 to 84 1.05 to 1.14, 256x56x56 to 64 1.06; of many results 1.0 to 1.03.) */
#include "lower/cache.h"
#include "lower/tile.h"
#include <string.h>

/* The loop between the copy's and the tile that goes through the copy again, around those that go over it; -1: there is none, or another one. */
static int again_of(const kn_sg *sg, const kn_cache *c)
{
    int again = -1;
    bool over = false;
    for (int i = c->at + 1; i < sg->tile; i++) {
        const kn_loop *l = &sg->g->loops[i];
        bool own = kn_cache_dim_of(c, i) >= 0;
        over |= own;
        if (own || l->extent == 1) continue;
        if (again >= 0 || over || l->kind != KN_SERIAL || sg->s->axes[l->axis].reduce) return -1;
        again = i;
    }
    return again;
}

/* Nothing else is filled, computed or begun between the copy and its tiles, nor asked in them. */
static bool alone(const kn_lw *w, const kn_sg *sg, const kn_cache *c)
{
    for (int i = 0; i < sg->g->ncaches; i++)
        if (&sg->g->caches[i] != c && sg->g->caches[i].at > c->at) return false;
    for (int k = 0; k < w->t->nstages; k++)
        if (w->t->stages[k]->at_stage == sg->index && w->t->stages[k]->at_loop > c->at) return false;
    for (int i = 0; i < sg->nloads; i++)
        if (sg->loads[i]->padded) return false;
    for (int i = c->at + 1; i < sg->g->nloops; i++)
        if (sg->g->loops[i].rfactor) return false;
    return sg->g->init_at <= c->at && sg->g->at_stage < 0 && !sg->g->tensor.intrin && !sg->nskips && !w->nowns && sg->s->red != KN_RED_NONE;
}

/* The first iteration of the loop has whole tiles, whatever tasks are around it. */
static bool begins_whole(const kn_sg *sg, int loop)
{
    int axis = sg->g->loops[loop].axis;
    int64_t last = 0;
    for (int i = 0; i < sg->g->nloops; i++)
        if (i != loop && sg->g->loops[i].axis == axis) last += (sg->g->loops[i].extent - 1) * sg->g->loops[i].stride;
    return last < sg->s->axes[axis].extent;
}

/* Tiles beside each other would each go over rows that lie apart: in runs of two lines, or in more pages than a TLB finds in time, that takes longer
 * than copying all of a row at once (1008x42x42 to 336 1.09 of the time, 1344x21x21 to 336 1.02). */
static bool comes_in_pieces(const kn_sg *sg, const kn_cache *c, int n, const int64_t *size, const int64_t *step)
{
    enum { MANY = 384, LEAST = 2 * KN_LINE_BYTES };
    int64_t rows = 1, tiles = 1, run = 1, bytes = kn_dtype_bytes(sg->loads[c->load]->dtype);
    for (int d = 0; d < n; d++) {
        bool spatial = sg->g->loops[c->loops[d]].axis < sg->s->nspatial;
        if (c->loops[d] < sg->tile) tiles *= size[d];
        else if (spatial) run *= size[d];
        else if (step[d] * bytes >= KN_ROWS_APART) rows *= size[d];
    }
    return tiles > 1 && (rows > MANY || run * bytes <= LEAST);
}

/* The copy is a plain one, whose vectors are the tensor's. */
static bool takes_vectors(kn_lw *w, kn_sg *sg, int cache)
{
    const kn_cache *c = &sg->g->caches[cache];
    const kn_expr *load = sg->loads[c->load];
    int vector = sg->g->nloops - 1, lane = kn_cache_dim_of(c, vector), first = w->p->nvars;
    int64_t size[KILN_MAX_LOOPS], step[KILN_MAX_LOOPS];
    kn_expr *k[KILN_MAX_LOOPS] = {NULL};
    bool plain = c->scope == KN_SCRATCH && !c->region && !c->copies && !c->swizzle && !c->panels && !c->last && !c->pad;
    for (int d = 0; d < c->nloops; d++) plain &= !c->by[d] && !c->count[d];
    if (!plain || lane < 0 || sg->g->loops[vector].kind != KN_VECTOR || sg->s->axes[sg->g->loops[vector].axis].reduce) return false;
    if (kn_lw_strays(w, sg, load, UINT32_MAX)) return false;
    int n = kn_cache_dims(sg, c, cache, size);
    for (int d = 0; d < n; d++) k[d] = kn_lw_ref(w, kn_lw_var(w, "k", 0, size[d] - 1));
    kn_expr *at = kn_cache_source(w, sg, cache, k).at;
    for (int d = 0; d < n; d++)
        if (!kn_lw_coefficient(at, first + d, &step[d])) return false;
    return step[lane] == 1 && kn_lw_unit_stride(kn_cache_slot(w, c, n, size, k), first + lane) && !comes_in_pieces(sg, c, n, size, step);
}

int kn_lw_first_use(kn_lw *w, kn_sg *sg, int loop)
{
    enum { MOST = 64 }; /* uses: of more the copy is no part */
    for (int i = 0; i < sg->g->ncaches && !w->hw->gpu; i++) {
        const kn_cache *c = &sg->g->caches[i];
        int again = c->at == loop && alone(w, sg, c) ? again_of(sg, c) : -1;
        if (again >= 0 && sg->g->loops[again].extent <= MOST && begins_whole(sg, again) && takes_vectors(w, sg, i)) return i;
    }
    return -1;
}

/* The tiles of the first iteration of loop `again`. */
static void first_tiles(kn_lw *w, kn_sg *sg, int cache, int again)
{
    int at = sg->g->caches[cache].at;
    bool clipped[KILN_MAX_AXES];
    kn_ls **after = NULL;
    memcpy(clipped, sg->clipped, sizeof clipped);
    for (int a = 0; a < sg->s->naxes; a++) /* all of the copy is there, and of the tiles' rows */
        sg->clipped[a] |= (kn_axes_in(sg->loads[sg->g->caches[cache].load]) >> a & 1) || a == sg->g->loops[again].axis;
    for (int i = at + 1; i < sg->tile && !w->status; i++) {
        if (sg->g->loops[i].extent > 1 && i != again) {
            int var = kn_lw_var(w, sg->g->loops[i].name, 0, sg->g->loops[i].extent - 1);
            kn_ls *loop = kn_lw_for(w, var, kn_lw_int(w, 0), kn_lw_int(w, sg->g->loops[i].extent));
            if (!loop) return;
            if (!after) after = w->tail;
            w->tail = &loop->body;
            sg->val[i] = kn_lw_ref(w, var);
        } else {
            sg->val[i] = kn_lw_int(w, 0);
        }
    }
    sg->first_use = cache;
    kn_lw_tile(w, sg);
    sg->first_use = -1;
    for (int i = at + 1; i < sg->tile; i++) sg->val[i] = NULL;
    memcpy(sg->clipped, clipped, sizeof clipped);
    if (after) w->tail = after;
}

void kn_lw_fill_at_first_use(kn_lw *w, kn_sg *sg, int cache)
{
    const kn_cache *c = &sg->g->caches[cache];
    kn_expr *whole = kn_cache_whole(w, sg, cache);
    kn_ls *cond = whole ? kn_lw_if(w, whole) : NULL, **after = w->tail;
    if (whole && !cond) return;
    if (cond) w->tail = &cond->body;
    sg->again = again_of(sg, c);
    first_tiles(w, sg, cache, sg->again);
    sg->begun = kn_lw_int(w, 1);
    if (!cond || w->status) return;
    w->tail = &cond->other;
    kn_lw_fill_part(w, sg, cache);
    w->tail = after;
    sg->begun = kn_lw_node(w, KN_OP_SELECT, KN_I64, 1, whole, sg->begun, kn_lw_int(w, 0));
}

/* Element of the copy at the loops' present values. */
static kn_expr *slot_of(kn_lw *w, kn_sg *sg)
{
    const kn_cache *c = &sg->g->caches[sg->first_use];
    kn_expr *k[KILN_MAX_LOOPS] = {NULL};
    int64_t size[KILN_MAX_LOOPS];
    int n = kn_cache_dims(sg, c, sg->first_use, size);
    for (int d = 0; d < n; d++) k[d] = sg->val[c->loops[d]];
    return kn_cache_slot(w, c, n, size, k);
}

/* A row beside the first, which reads the same. */
static bool other_row(const kn_tile *x, const kn_cache *c)
{
    const kn_sg *sg = x->sg;
    for (int i = sg->tile; i < sg->g->nloops; i++)
        if (kn_tile_spatial(sg, i) && i != x->vloop && kn_cache_dim_of(c, i) < 0 && (sg->val[i]->op != KN_OP_CONST_I || sg->val[i]->u.i)) return true;
    return false;
}

void kn_tile_leave_copy(kn_tile *x)
{
    kn_lw *w = x->w;
    kn_sg *sg = x->sg;
    const kn_cache *c = sg->first_use < 0 ? NULL : &sg->g->caches[sg->first_use];
    for (int64_t e = 0; c && e < x->ncombo && !w->status; e++) {
        int buffer;
        kn_expr *at, *zero = kn_lw_int(w, 0);
        kn_tile_set(x, e);
        if (other_row(x, c)) continue;
        kn_env v = kn_tile_env(x);
        kn_env_place(&v, sg->loads[c->load], &buffer, &at);
        kn_expr *run = kn_lw_read(w, buffer, kn_lw_at_lane(w, at, x->lane_var, zero), x->lanes);
        kn_ls *store = kn_lw_store_line(w, sg->cache_buffer[sg->first_use], kn_lw_at_lane(w, slot_of(w, sg), x->lane_var, zero), run, NULL);
        if (store) store->aside = true;
    }
}

/* In loop i, along which the tensor's rows lie apart: the tile's run of a few rows further on. */
void kn_tile_first_use_ahead(kn_tile *x, int i)
{
    enum { AHEAD = 8 };
    kn_lw *w = x->w;
    kn_sg *sg = x->sg;
    const kn_cache *c = sg->first_use < 0 ? NULL : &sg->g->caches[sg->first_use];
    int64_t step, span = 1;
    int buffer;
    kn_expr *at;
    if (!c || kn_cache_dim_of(c, i) < 0 || !sg->val[i] || sg->val[i]->op != KN_OP_VAR) return;
    const kn_expr *load = sg->loads[c->load];
    int bytes = kn_dtype_bytes(load->dtype);
    for (int l = sg->tile; l < sg->g->nloops; l++)
        if (kn_tile_spatial(sg, l) && kn_cache_dim_of(c, l) >= 0) span += (kn_tile_extent(sg, l) - 1) * sg->g->loops[l].stride;
    kn_tile_set(x, 0);
    kn_env v = kn_tile_env(x);
    kn_env_place(&v, load, &buffer, &at);
    at = kn_lw_at_lane(w, at, x->lane_var, kn_lw_int(w, 0));
    if (!kn_lw_beyond_l2(w, load->u.tensor) || !kn_lw_coefficient(at, sg->val[i]->u.var, &step)) return;
    if (step * bytes < KN_ROWS_APART || span * bytes >= KN_PAGE_BYTES) return;
    kn_expr *from = kn_bin(w->a, KN_OP_ADD, at, kn_lw_int(w, AHEAD * step));
    if (from) kn_lw_prefetch_lines(w, buffer, kn_lw_simp(w, from), kn_ceil_div(span * bytes, KN_LINE_BYTES), KN_LINE_BYTES / bytes, false);
}
