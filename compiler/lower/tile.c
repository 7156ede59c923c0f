/* The register tile: the loops inside the last serial spatial loop. Its spatial loops are registers and lanes, its reduce loops run over them;
 * values are finished, guarded and stored here. Tails: the last iteration of a reduce loop that reaches past the axis stands behind the loop; the
 * whole tile is computed and its store guarded when every load is safe out of range; else a scalar copy of the tile with a test an element; else
 * (caches inside) guarded loads. The last tile of a sum's vector axis has no more vectors than hold something. */
#include "lower/tile.h"
#include "te/expr.h"
#include <string.h>

kn_expr *kn_tile_cast(kn_lw *w, kn_expr *e, enum kn_dtype t)
{
    return e->dtype == t ? e : kn_lw_node(w, KN_OP_CAST, t, e->lanes, e, NULL, NULL);
}

/* Gives the tile's spatial register loops the values of element c (mixed radix, innermost fastest). */
void kn_tile_set(kn_tile *x, int64_t c)
{
    kn_sg *sg = x->sg;
    for (int i = sg->g->nloops - 1; i >= sg->tile; i--) {
        if (!kn_tile_spatial(sg, i) || i == x->vloop) continue;
        if (sg->rolled) continue;
        sg->val[i] = kn_lw_int(x->w, c % kn_tile_extent(sg, i));
        c /= kn_tile_extent(sg, i);
    }
    if (x->vloop >= 0) sg->val[x->vloop] = kn_lw_ref(x->w, x->lane_var);
}

kn_env kn_tile_env(kn_tile *x)
{
    kn_env v = { .w = x->w, .sg = x->sg, .s = x->sg->s, .lane_var = x->lane_var, .lanes = x->lanes, .repl_tensor = -1,
                 .guard_axes = x->sg->guarded };
    kn_env_axes(x->w, x->sg, v.av);
    return v;
}

static void finish(kn_tile *x)
{
    kn_lw *w = x->w;
    kn_expr *owner = NULL;
    if (x->acc >= 0 && w->hw->gpu) kn_tile_combine_threads(x, &owner);
    if (x->acc >= 0) kn_tile_stand_up(x);
    kn_ls **after = w->tail;
    kn_ls *cond = owner ? kn_lw_if(w, owner) : NULL;
    if (cond) {
        after = w->tail;
        w->tail = &cond->body;
    }
    if (x->part < 0) {
        kn_tile_store(x);
        if (cond) w->tail = after;
        return;
    }
    kn_ls *first = x->first ? kn_lw_if(w, x->first) : NULL;
    if (x->first && !first) return;
    if (first) {
        after = w->tail;
        w->tail = &first->body;
        kn_tile_store_part(x, true);
        w->tail = &first->other;
    }
    kn_ls *last = kn_lw_if(w, x->last);
    if (!last) return;
    if (!first) after = w->tail;
    w->tail = &last->body;
    kn_tile_store(x);
    w->tail = &last->other;
    kn_tile_store_part(x, false);
    w->tail = after;
}

static void measure(kn_tile *x)
{
    kn_sg *sg = x->sg;
    x->ncombo = x->nparts = 1;
    x->lanes = 1;
    x->lane_var = x->vloop = x->spill = -1;
    if (sg->rolled) return;
    for (int i = sg->tile; i < sg->g->nloops; i++) {
        const kn_loop *l = &sg->g->loops[i];
        if (!kn_is_register(l->kind)) continue;
        if (l->kind == KN_VECTOR) {
            x->vloop = i;
            x->lanes = (int)l->extent;
            x->lane_var = kn_lw_var(x->w, "lane", 0, l->extent - 1);
            x->reduce_lanes = kn_tile_reduces(sg, i);
            sg->val[i] = kn_lw_ref(x->w, x->lane_var);
        } else if (!kn_tile_reduces(sg, i)) {
            x->ncombo *= kn_tile_extent(sg, i);
        } else if (l->rfactor) {
            x->nparts *= l->extent;
        }
    }
}

static void leave(kn_sg *sg)
{
    for (int i = sg->tile; i < sg->g->nloops; i++)
        if (kn_tile_has(sg, i) && !sg->rolled) sg->val[i] = NULL;
}

/* A map's tile whose place along its axes is known: one that always reaches past them the same way, or whose rows meet padding. */
static bool is_row(kn_lw *w, kn_sg *sg, kn_expr *full)
{
    bool padded = false, known = false;
    if (sg->s->red != KN_RED_NONE || w->hw->gpu) return false;
    for (int i = 0; i < sg->nloads; i++) padded |= sg->loads[i]->padded && !kn_sg_cached(sg, i);
    if (full) known = kn_lw_never(kn_lw_simp(w, full));
    if (full ? !known : !padded) return false;
    kn_tile x = { .w = w, .sg = sg, .acc = -1 };
    measure(&x);
    bool fixed = x.vloop >= 0 && kn_tile_fixed(&x);
    if (fixed && !full) { /* where padding begins is known only where the row does */
        kn_expr *av[KILN_MAX_AXES];
        kn_tile_set(&x, 0);
        sg->val[x.vloop] = kn_lw_int(w, 0);
        kn_env_axes(w, sg, av);
        fixed = av[sg->g->loops[x.vloop].axis]->op == KN_OP_CONST_I;
    }
    leave(sg);
    return fixed;
}

static void emit(kn_lw *w, kn_sg *sg, int part, kn_expr *first, kn_expr *last, kn_expr *full, bool store_full)
{
    kn_tile x = { .w = w, .sg = sg, .acc = -1, .part = part, .first = first, .last = last, .full = full, .store_full = store_full };
    x.row = sg->row && !sg->rolled;
    measure(&x);
    if (sg->s->red != KN_RED_NONE) {
        x.acc_type = kn_stmt_acc(sg->s);
        x.acc = kn_lw_buffer(w, "acc", x.acc_type, x.lanes, x.ncombo * x.nparts, KN_REGISTER);
        for (int64_t c = 0; c < x.ncombo * x.nparts && !w->status; c++)
            kn_lw_store(w, x.acc, kn_lw_int(w, c), kn_lw_splat(w, kn_tile_identity(w, sg->s->red, x.acc_type), x.lanes));
        if (!w->hw->gpu && !sg->rolled) {
            kn_tile_prefetch_part(&x);
            kn_tile_prefetch_out(&x);
        }
        x.written_out = kn_tile_written_out(&x);
        if (!kn_tile_joined(&x)) kn_tile_terms(&x);
    }
    if (store_full || !full || sg->past) kn_lw_turn(w, sg, x.vloop, x.lanes);
    finish(&x);
    for (int i = 0; i < sg->nloads; i++) sg->turned_of[i] = -1;
    leave(sg);
}

/* Condition that the whole tile is in range, NULL when certain; axes that may leave it are in *tail. */
static kn_expr *tile_full(kn_lw *w, kn_sg *sg, uint32_t *tail)
{
    kn_expr *av[KILN_MAX_AXES], *full = NULL;
    for (int i = sg->tile; i < sg->g->nloops; i++)
        if (kn_tile_spatial(sg, i)) sg->val[i] = kn_lw_int(w, kn_tile_extent(sg, i) - 1);
    kn_env_axes(w, sg, av);
    *tail = 0;
    for (int a = 0; a < sg->s->naxes; a++) {
        kn_expr *c = sg->s->axes[a].reduce || sg->clipped[a] ? NULL : kn_lw_below(w, av[a], sg->s->axes[a].extent);
        if (c) *tail |= 1u << a;
        full = kn_lw_and(w, full, c);
    }
    for (int i = sg->tile; i < sg->g->nloops; i++)
        if (kn_tile_spatial(sg, i)) sg->val[i] = NULL;
    return full;
}

static void emit_rolled(kn_lw *w, kn_sg *sg, int part, kn_expr *first, kn_expr *last)
{
    kn_ls **after = w->tail;
    bool opened = false;
    sg->rolled = true;
    bool was[KILN_MAX_AXES];
    for (int a = 0; a < KILN_MAX_AXES; a++) was[a] = sg->clipped[a];
    for (int i = sg->tile; i < sg->g->nloops; i++) {
        if (!kn_tile_spatial(sg, i)) continue;
        kn_ls *loop = kn_lw_loop(w, sg, i);
        if (!loop) return;
        if (!opened) after = w->tail;
        opened = true;
        w->tail = &loop->body;
    }
    kn_tile x = { .w = w, .sg = sg, .lane_var = -1 };
    kn_expr *in = kn_tile_in_range(&x);
    kn_ls *cond = in ? kn_lw_if(w, in) : NULL;
    if (cond) {
        if (!opened) after = w->tail;
        opened = true;
        w->tail = &cond->body;
    }
    emit(w, sg, part, first, last, NULL, true);
    if (opened) w->tail = after;
    sg->rolled = false;
    for (int a = 0; a < KILN_MAX_AXES; a++) sg->clipped[a] = was[a];
    for (int i = sg->tile; i < sg->g->nloops; i++)
        if (kn_tile_has(sg, i)) sg->val[i] = NULL;
}

/* Elements of axis a that a register tile spans, 0 when its loops there are not all registers or leave holes between them. */
static int64_t tile_span(const kn_sg *sg, int a)
{
    int64_t span = 1, points = 1;
    for (int i = sg->tile; i < sg->g->nloops; i++) {
        if (sg->g->loops[i].axis != a) continue;
        if (!kn_tile_spatial(sg, i)) return 0;
        span += (kn_tile_extent(sg, i) - 1) * sg->g->loops[i].stride;
        points *= kn_tile_extent(sg, i);
    }
    return points == span ? span : 0;
}

static int64_t lanes_of(const kn_sg *sg, int a)
{
    int64_t lanes = 1;
    for (int i = sg->tile; i < sg->g->nloops; i++)
        if (sg->g->loops[i].axis == a && sg->g->loops[i].kind == KN_VECTOR) lanes = sg->g->loops[i].extent;
    return lanes;
}

/* Where the last vector of an axis begins, NULL when it has more lanes than the axis elements. */
static kn_expr *lanes_fit(kn_lw *w, const kn_sg *sg, int a)
{
    int64_t lanes = lanes_of(sg, a);
    return lanes > sg->s->axes[a].extent ? NULL : kn_lw_int(w, sg->s->axes[a].extent - lanes);
}

/* Axes some of whose loops are those of a stage that this one is attached to, or are loops of one attached to it. */
static uint32_t attached_axes(const kn_lw *w, const kn_sg *sg)
{
    uint32_t held = 0;
    for (int i = 0; i < sg->g->nloops; i++)
        if (sg->g->loops[i].shared_with >= 0) held |= 1u << sg->g->loops[i].axis;
    for (int k = 0; k < w->t->nstages; k++) {
        const kn_stage *p = w->t->stages[k];
        for (int i = 0; i < p->nloops && p->at_stage == sg->index; i++)
            if (p->loops[i].shared_with >= 0) held |= 1u << sg->g->loops[p->loops[i].shared_with].axis;
    }
    return held;
}

/* Two tasks would compute elements of the axis at different places of a tile, where padding is asked for in different ways and the toolchain may join
 * other products and sums: their bits would depend on which task comes last. */
static bool differs_by_task(const kn_lw *w, const kn_sg *sg, int a)
{
    bool tasks = false, padded = false;
    for (int i = 0; i < sg->tile; i++) tasks |= sg->g->loops[i].axis == a && sg->g->loops[i].kind == KN_PARALLEL && sg->g->loops[i].extent > 1;
    for (int i = 0; i < sg->nloads; i++)
        for (int d = 0; d < sg->loads[i]->nargs && sg->loads[i]->padded && !kn_sg_cached(sg, i); d++) {
            const kn_expr *at = sg->loads[i]->args[d];
            bool inside = at->op == KN_OP_AXIS && sg->s->axes[a].extent <= w->p->program->tensors[sg->loads[i]->u.tensor].shape[d];
            padded |= (kn_axes_in(at) >> a & 1) && !inside;
        }
    return tasks && padded && kn_dtype_class(sg->s->body->dtype) == 'f' && sg->s->red == KN_RED_SUM;
}

/* Tiles that begin at multiples of what the axis is divided by in a condition know what each lane chooses; moved back they would not. */
static bool keeps_digits(const kn_expr *e, int a, int64_t span, bool decides)
{
    bool digit = (e->op == KN_OP_FLOORDIV || e->op == KN_OP_MOD) && kn_is_int_const(e->args[1]) && kn_axes_in(e->args[0]) >> a & 1;
    if (decides && digit && e->args[1]->u.i > 1 && span % e->args[1]->u.i == 0) return true;
    for (int i = 0; i < e->nargs; i++)
        if (keeps_digits(e->args[i], a, span, decides || (e->op == KN_OP_SELECT && i == 0))) return true;
    return false;
}

/* Axes that what finishes the results follows in what else it reads; all where it must not be computed of what is none. */
static uint32_t followed(const kn_lw *w, const kn_sg *sg)
{
    const kn_stmt *e = sg->g->epilogue >= 0 ? w->p->program->stmts[sg->g->epilogue] : NULL;
    const kn_expr *loads[KILN_MAX_TENSORS];
    int n = e ? kn_loads(e->body, loads, KILN_MAX_TENSORS) : 0;
    uint32_t axes = 0;
    if (n > KILN_MAX_TENSORS || (e && kn_tile_traps(e->body))) return UINT32_MAX;
    for (int i = 0; i < n; i++)
        for (int a = 0; a < e->naxes && loads[i]->u.tensor != sg->s->out; a++)
            if (kn_axes_in(loads[i]) >> a & 1) axes |= 1u << kn_stage_axis_of(w->t, sg->g, sg->g->epilogue, a);
    return axes;
}

/* Axes that boxes alone hold, which are filled in front of the tile, wherever in them its lanes then read. */
static uint32_t boxed_axes(const kn_sg *sg, uint32_t held)
{
    for (int i = 0; i < sg->nloads; i++) {
        const kn_cache *c = kn_sg_cached(sg, i) && sg->cache_of[i] >= 0 ? &sg->g->caches[sg->cache_of[i]] : NULL;
        if (kn_sg_cached(sg, i) && !(c && c->region && c->at < sg->tile && !c->copies)) held &= ~kn_axes_in(sg->loads[i]);
    }
    return held;
}

/* Of these axes those of which every box that has them was filled with all at once, before their first loop. */
static uint32_t whole_in_boxes(const kn_sg *sg, uint32_t axes)
{
    for (int i = 0; i < sg->nloads; i++) {
        const kn_cache *c = kn_sg_cached(sg, i) && sg->cache_of[i] >= 0 ? &sg->g->caches[sg->cache_of[i]] : NULL;
        if (kn_sg_cached(sg, i) && !(c && c->region && !c->last && c->at < sg->tile && !c->copies)) axes &= ~kn_axes_in(sg->loads[i]);
        for (int k = 0; c && k <= c->at; k++)
            if (kn_axes_in(sg->loads[i]) >> sg->g->loops[k].axis & 1) axes &= ~(1u << sg->g->loops[k].axis);
    }
    return axes;
}

/* What a tile longer than its axis leaves over of its last vector is better computed twice in a whole one than in vectors half as long and half as
 * long again: of a sum, a function, what has to be widened or narrowed, and more than one such vector. */
static bool worth_twice(const kn_sg *sg, int a, int64_t span)
{
    const kn_expr *loads[KILN_MAX_TENSORS], *e = sg->s->body;
    if (sg->s->red != KN_RED_NONE || kn_has_function(e)) return true;
    int64_t lanes = lanes_of(sg, a), over = sg->s->axes[a].extent % lanes;
    int n = kn_loads(e, loads, KILN_MAX_TENSORS), pieces = 0;
    bool narrow = kn_dtype_bytes(e->dtype) < 4, plain = n <= KILN_MAX_TENSORS && span - sg->s->axes[a].extent < lanes;
    for (int i = 0; i < n && plain; i++) narrow |= kn_dtype_bytes(loads[i]->dtype) < 4, plain = !loads[i]->padded;
    for (int64_t left = over; left; left /= 2) pieces += left % 2;
    return plain && (pieces > 1 || (narrow && over > 1));
}

/* Moves the last register tile of an axis back, so that it ends where the axis ends: it computes some elements a second time, to the same
 * bits, instead of going element by element; of a tile longer than the axis the last vectors move, of a sum or of functions (twice in a
 * vector costs less than once for itself). Not where a cache or the region of an attached stage holds the axis: it was filled for where the
 * tile would have been. But a box may have all of an axis; and something else than a box may not be read past its end. */
static void overlap_tails(kn_lw *w, kn_sg *sg)
{
    uint32_t tail, held = attached_axes(w, sg), cached = 0, beside = followed(w, sg);
    if (w->hw->gpu) return;
    tile_full(w, sg, &tail);
    for (int i = 0; i < sg->nloads; i++) *(kn_sg_cached(sg, i) ? &cached : &beside) |= kn_axes_in(sg->loads[i]);
    uint32_t boxed = boxed_axes(sg, cached) & beside & ~held;
    held |= cached & ~(sg->s->red == KN_RED_NONE ? whole_in_boxes(sg, cached & ~beside) : 0); /* sums have a text for what is left over */
    for (int a = 0; a < sg->s->naxes && !w->status; a++) {
        int64_t span = (tail & (~held | boxed)) >> a & 1 ? tile_span(sg, a) : 0, last = sg->s->axes[a].extent - span;
        if (boxed >> a & 1 && last >= 0) continue;
        if (span > 0 && last < 0 && worth_twice(sg, a, span)) sg->inside[a] = lanes_fit(w, sg, a);
        if (span < 1 || last < 0 || differs_by_task(w, sg, a) || keeps_digits(sg->s->body, a, span, false)) continue;
        kn_expr *base = kn_lw_int(w, 0);
        for (int i = 0; i < sg->tile; i++) {
            const kn_loop *l = &sg->g->loops[i];
            if (l->axis != a || !sg->val[i]) continue;
            base = kn_lw_node(w, KN_OP_ADD, KN_I64, 1, base, kn_lw_node(w, KN_OP_MUL, KN_I64, 1, sg->val[i], kn_lw_int(w, l->stride), NULL), NULL);
        }
        base = kn_lw_line_begin(w, sg, a, base);
        if (sg->by_lines != a + 1) base = kn_lw_node(w, KN_OP_MIN, KN_I64, 1, base, kn_lw_int(w, last), NULL);
        sg->base[a] = kn_lw_let(w, "from", base);
    }
}

/* Axes past whose end results may be stored: scratch of an attached stage, which has room for whole tiles, and whose readers leave them alone. */
static uint32_t roomy_axes(const kn_lw *w, const kn_sg *sg)
{
    uint32_t roomy = 0;
    int out = kn_stage_out(w->t, sg->g);
    if (w->hw->gpu || !w->box[out].on) return 0;
    for (int d = 0; d < w->p->program->tensors[out].rank; d++) {
        int axis = kn_stage_out_axis(w->t, sg->g, d);
        for (int i = 0; i < sg->g->nloops && axis >= 0; i++)
            if (sg->g->loops[i].axis == axis && sg->g->loops[i].shared_with >= 0) roomy |= 1u << axis;
    }
    return roomy & ~followed(w, sg);
}

/* A map's tile that may leave `tail` with whole rows alone, of which some load has all in scratch: the rows are turned as ever, and those in range
 * stored. */
static bool by_rows(const kn_lw *w, const kn_sg *sg, uint32_t tail)
{
    bool some = false, lanes = false;
    int64_t rows = 1;
    if (w->hw->gpu || sg->s->red != KN_RED_NONE || kn_tile_traps(sg->s->body)) return false;
    for (int i = sg->tile; i < sg->g->nloops; i++) {
        lanes |= sg->g->loops[i].kind == KN_VECTOR;
        if (sg->g->loops[i].kind == KN_UNROLL) rows *= kn_tile_extent(sg, i);
        if ((tail >> sg->g->loops[i].axis & 1) && sg->g->loops[i].kind != KN_UNROLL) return false;
    }
    if (!lanes || rows < 2 || rows > KN_TILE_ROWS) return false; /* they would not leave row by row (ends.c) */
    for (int i = 0; i < sg->nloads && !some; i++) {
        some = kn_axes_in(sg->loads[i]) & tail;
        for (int a = 0; a < sg->s->naxes && some; a++)
            if ((tail & kn_axes_in(sg->loads[i])) >> a & 1) some = kn_sg_room(w, sg, sg->loads[i], a);
    }
    return some;
}

static void tile_at(kn_lw *w, kn_sg *sg)
{
    kn_expr *first = NULL, *last = NULL, *base[KILN_MAX_AXES];
    memcpy(base, sg->base, sizeof base);
    overlap_tails(w, sg);
    int part = sg->s->red == KN_RED_NONE ? -1 : kn_tile_part(w, sg, &first, &last);
    uint32_t tail, unsafe = 0;
    kn_expr *full = tile_full(w, sg, &tail);
    bool trap = kn_tile_traps(sg->s->body), inner = false;
    for (int i = 0; i < sg->nloads; i++)
        if (!kn_sg_cached(sg, i)) unsafe |= kn_axes_in(sg->loads[i]) & tail;
    sg->over = trap ? 0 : kn_lw_over(w, sg);
    unsafe &= ~sg->over;
    for (int k = 0; k < sg->g->ncaches; k++) inner |= sg->g->caches[k].at >= sg->tile;
    for (int k = 0; k < w->t->nstages; k++) inner |= w->t->stages[k]->at_stage == sg->index && w->t->stages[k]->at_loop >= sg->tile;
    uint32_t roomy = trap ? 0 : roomy_axes(w, sg) & tail & ~unsafe;
    for (int a = 0; a < sg->s->naxes; a++) sg->clipped[a] |= roomy >> a & 1;
    if (roomy) full = tile_full(w, sg, &tail);
    sg->row = !inner && is_row(w, sg, full);
    sg->past = full && !inner && !sg->row && by_rows(w, sg, tail) ? tail : 0;
    if (w->hw->gpu) {
        sg->guarded = unsafe != 0 && sg->s->red != KN_RED_NONE;
        emit(w, sg, part, first, last, full, false);
    } else if (full && (unsafe || trap || sg->s->red == KN_RED_NONE) && !inner && !sg->row && !sg->past) {
        kn_ls *cond = kn_lw_if(w, full);
        if (!cond) return;
        kn_ls **after = w->tail;
        w->tail = &cond->body;
        for (int a = 0; a < sg->s->naxes; a++) sg->clipped[a] |= tail >> a & 1;
        emit(w, sg, part, first, last, full, true);
        for (int a = 0; a < sg->s->naxes; a++)
            if (tail >> a & 1) sg->clipped[a] = false;
        w->tail = &cond->other;
        emit_rolled(w, sg, part, first, last);
        w->tail = after;
    } else {
        sg->guarded = unsafe != 0 && !sg->row && !sg->past;
        emit(w, sg, part, first, last, full, false);
    }
    sg->guarded = sg->row = false;
    sg->past = sg->over = sg->by_lines = 0;
    memcpy(sg->base, base, sizeof base);
    for (int a = 0; a < sg->s->naxes; a++) {
        sg->inside[a] = NULL;
        if (roomy >> a & 1) sg->clipped[a] = false;
    }
}

/* Something is filled or computed inside the register tile. */
static bool filled_inside(const kn_lw *w, const kn_sg *sg)
{
    bool yes = false;
    for (int k = 0; k < sg->g->ncaches; k++) yes |= sg->g->caches[k].at >= sg->tile;
    for (int k = 0; k < w->t->nstages; k++) yes |= w->t->stages[k]->at_stage == sg->index && w->t->stages[k]->at_loop >= sg->tile;
    return yes;
}

static kn_expr *tile_begin(kn_lw *w, const kn_sg *sg, int a)
{
    kn_expr *av[KILN_MAX_AXES];
    kn_env_axes(w, sg, av);
    return av[a];
}

/* The last tile of a sum's vector axis, which begins at a known place, with no more vectors than hold something; moved back to end where the axis
 * does, unless a cache or an attached stage holds the axis. */
static void short_tile(kn_lw *w, kn_sg *sg, const kn_short_tile *t)
{
    uint32_t held = attached_axes(w, sg);
    const kn_loop *l = &sg->g->loops[t->loop];
    int64_t extent = sg->s->axes[l->axis].extent, moved = extent - t->vectors * l->stride;
    for (int i = 0; i < sg->nloads; i++)
        if (kn_sg_cached(sg, i)) held |= kn_axes_in(sg->loads[i]);
    sg->base[l->axis] = kn_lw_int(w, (held >> l->axis & 1) || moved < 0 ? t->from : moved);
    sg->few[t->loop] = t->vectors;
    sg->kept_axis = kn_lw_overwrites(w, sg) ? l->axis + 1 : 0;
    sg->kept = t->from;
    sg->had_axis = l->axis + 1;
    tile_at(w, sg);
    sg->kept_axis = sg->had_axis = 0;
    sg->few[t->loop] = 0;
    sg->base[l->axis] = NULL;
}

/* The variable of the loop that alone walks the axis, a tile a turn, and so comes to the last tile in its last turn; -1. */
static int last_turn_of(const kn_sg *sg, const kn_short_tile *t)
{
    const kn_loop *l = &sg->g->loops[t->loop];
    int found = -1;
    for (int i = 0; i < sg->tile; i++) {
        const kn_loop *o = &sg->g->loops[i];
        if (o->axis != l->axis || o->extent == 1) continue;
        if (found >= 0 || o->kind != KN_SERIAL || o->stride != l->extent * l->stride) return -1;
        found = i;
    }
    return found >= 0 && sg->val[found] && sg->val[found]->op == KN_OP_VAR ? sg->val[found]->u.var : -1;
}

typedef void (*short_fn)(kn_lw *w, kn_sg *sg, const kn_short_tile *t);

/* The variable that alone says where a tile begins, -1 if there is none; *most: its largest value where that is below `limit`. */
static int begins_by(kn_lw *w, const kn_expr *begin, int64_t limit, int64_t *most)
{
    int64_t step, lo, hi, var_lo, var_hi;
    kn_lw_range(w, begin, &lo, &hi);
    for (int v = 0; v < w->p->nvars; v++) {
        if (!kn_lw_uses(begin, v)) continue;
        if (!kn_lw_coefficient(begin, v, &step) || step < 1) return -1;
        kn_lw_range(w, kn_lw_ref(w, v), &var_lo, &var_hi);
        int64_t first = lo - step * var_lo;
        *most = (limit - 1 - first) / step;
        return hi - step * var_hi == first && limit > first && *most >= var_lo && *most < var_hi ? v : -1;
    }
    return -1;
}

/* The tile where it is whole, and a copy of its own of the one that t->loop's axis ends with; false: it always ends with a whole one. */
static bool whole_and_short(kn_lw *w, kn_sg *sg, const kn_short_tile *t, kn_tile_fn whole_tile, short_fn last_tile)
{
    int a = sg->g->loops[t->loop].axis;
    kn_expr *begin = tile_begin(w, sg, a), *whole = kn_lw_below(w, begin, t->from), *some = kn_lw_below(w, begin, sg->s->axes[a].extent);
    if (sg->clipped[a] || !whole) return false;
    kn_ls *cond = kn_lw_never(whole) ? NULL : kn_lw_if(w, whole), **after = w->tail;
    if (cond) {
        int64_t most = 0;
        int var = begins_by(w, begin, t->from, &most);
        int64_t all = var < 0 ? 0 : w->var_hi[var];
        if (var >= 0) w->var_hi[var] = most; /* nothing asks again whether something is in range */
        w->tail = &cond->body;
        sg->clipped[a] = true;
        whole_tile(w, sg);
        sg->clipped[a] = false;
        if (var >= 0) w->var_hi[var] = all;
        w->tail = &cond->other;
        cond->var = kn_lw_overwrites(w, sg) ? last_turn_of(sg, t) : -1;
        cond->last = cond->var >= 0;
    }
    kn_ls *there = some ? kn_lw_if(w, some) : NULL;
    if (!cond) after = w->tail;
    if (there) w->tail = &there->body;
    last_tile(w, sg, t);
    if (cond || there) w->tail = after;
    return true;
}

/* A long sum's last tile has as many vectors, but half of the last one is enough (halves.c). */
static bool ends_with_half(const kn_lw *w, const kn_sg *sg, kn_short_tile *t)
{
    enum { TERMS = 16 };
    int64_t lanes = sg->g->nloops ? sg->g->loops[sg->g->nloops - 1].extent : 0, terms = 1;
    bool some = sg->s->red != KN_RED_NONE && kn_stage_last_tile(sg->s, sg->g, t) && t->from > 0 && kn_lw_takes_halves(w, kn_stmt_acc(sg->s), lanes);
    if (!some) return false;
    for (int i = sg->s->nspatial; i < sg->s->naxes && terms < TERMS; i++) terms *= sg->s->axes[i].extent;
    int64_t over = (sg->s->axes[sg->g->loops[t->loop].axis].extent - t->from) % lanes;
    return terms >= TERMS && over > 0 && over <= lanes / 2;
}

/* Where the vector axis of a sum does not end with a whole tile, the last one has fewer vectors; that of a map which overwrites what it reads
 * has code of its own too. */
static void tile_by_vectors(kn_lw *w, kn_sg *sg)
{
    kn_short_tile t;
    bool some = !w->hw->gpu && !filled_inside(w, sg) &&
                (kn_stage_short_tile(sg->s, sg->g, &t) || (kn_lw_overwrites(w, sg) && kn_stage_last_tile(sg->s, sg->g, &t)) ||
                 ends_with_half(w, sg, &t));
    if (!some || !whole_and_short(w, sg, &t, tile_at, short_tile)) tile_at(w, sg);
}

static void fewer_rows(kn_lw *w, kn_sg *sg, const kn_short_tile *t)
{
    int a = sg->g->loops[t->loop].axis;
    sg->base[a] = kn_lw_int(w, t->from);
    sg->few[t->loop] = t->vectors;
    tile_by_vectors(w, sg);
    sg->few[t->loop] = 0;
    sg->base[a] = NULL;
}

/* Loop i is all that the register tile has of its axis, beside the lanes, and tasks cut the axis into such tiles, the last of which has fewer rows
 * and may not be moved back. */
static bool ends_with_fewer(const kn_lw *w, const kn_sg *sg, int i, kn_short_tile *t)
{
    const kn_loop *l = &sg->g->loops[i];
    int64_t all = sg->s->axes[l->axis].extent, rest = all % l->extent;
    if (l->kind != KN_UNROLL || !kn_tile_spatial(sg, i) || l->stride != 1 || !rest || all < l->extent || sg->clipped[l->axis]) return false;
    for (int j = 0; j < sg->g->nloops; j++)
        if (j != i && sg->g->loops[j].axis == l->axis && (j >= sg->tile || sg->g->loops[j].stride % l->extent)) return false;
    *t = (kn_short_tile){i, rest, all - rest};
    return differs_by_task(w, sg, l->axis);
}

void kn_lw_tile(kn_lw *w, kn_sg *sg)
{
    kn_short_tile t;
    bool rows = false;
    if (sg->g->tensor.intrin) {
        kn_lw_instruction(w, sg);
        return;
    }
    if (kn_tile_borders(w, sg, tile_by_vectors)) return;
    for (int i = sg->tile; i < sg->g->nloops && !rows && !w->hw->gpu && !filled_inside(w, sg); i++) rows = ends_with_fewer(w, sg, i, &t);
    if (!rows || !whole_and_short(w, sg, &t, tile_by_vectors, fewer_rows)) tile_by_vectors(w, sg);
}
