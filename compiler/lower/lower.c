/* Tile tree -> loop program: launches, stages, their outer loops and what hangs on them. `clip` keeps serial loops inside their axis, also those
 * of panels of vectors, of which the last task may have fewer. */
#include "lower/lower.h"
#include "te/expr.h"
#include <string.h>

static bool is_task(enum kn_loop_kind k) { return k == KN_PARALLEL || k == KN_GRID; }

int64_t kn_sg_axis_cover(const kn_sg *sg, int axis)
{
    int64_t n = 1;
    for (int i = 0; i < sg->g->nloops; i++)
        if (sg->g->loops[i].axis == axis) n *= sg->g->loops[i].extent;
    return n;
}

bool kn_sg_cached(const kn_sg *sg, int load)
{
    for (int i = 0; i < sg->nloads; i++)
        if (sg->loads[i] == sg->loads[load] && sg->cache_of[i] >= 0) return true;
    return false;
}

static const kn_stage *attached_maker(const kn_tree *t, int tensor)
{
    for (int k = 0; k < t->nstages; k++)
        if (t->stages[k]->at_stage >= 0 && kn_stage_out(t, t->stages[k]) == tensor) return t->stages[k];
    return NULL;
}

bool kn_sg_room(const kn_lw *w, const kn_sg *sg, const kn_expr *load, int axis)
{
    const kn_box *box = &w->box[load->u.tensor];
    const kn_stage *p = box->on ? attached_maker(w->t, load->u.tensor) : NULL;
    if (!p || load->padded || (sg->g->at_stage >= 0 && sg->g->at_loop != p->at_loop)) return false;
    for (int d = 0; d < load->nargs; d++) {
        if (!(kn_axes_in(load->args[d]) >> axis & 1)) continue;
        int64_t n = 1;
        for (int i = 0; i < sg->g->nloops; i++) {
            const kn_loop *l = &sg->g->loops[i];
            bool outside = sg->g->at_stage >= 0 ? l->shared_with >= 0 : i <= p->at_loop;
            if (l->axis == axis && !outside) n += (l->extent - 1) * l->stride;
        }
        if (load->args[d]->op != KN_OP_AXIS || !box->base[d] || box->size[d] < n) return false;
    }
    return true;
}

static void find_tile(kn_sg *sg)
{
    sg->tile = kn_stage_register_tile(sg->s, sg->g);
    sg->first_reduce = sg->g->nloops;
    for (int i = sg->g->nloops - 1; i >= 0; i--)
        if (sg->s->axes[sg->g->loops[i].axis].reduce && sg->g->loops[i].kind != KN_THREAD) sg->first_reduce = i;
}

static bool may_fill_at(const kn_sg *sg, int loop)
{
    const kn_loop *l = &sg->g->loops[loop];
    if (loop < sg->tile) return true;
    if (sg->g->tensor.intrin) return false;
    return sg->s->axes[l->axis].reduce && l->kind != KN_VECTOR && l->kind != KN_THREAD;
}

/* Every index of the last dimension is affine where the temporary is written and read, so that its rows need not follow each other. */
static bool rows_apart(const kn_lw *w, const kn_stage *g, int out, int last)
{
    const kn_program *p = w->p->program;
    const kn_expr *loads[KILN_MAX_TENSORS];
    kn_affine f;
    if (last < 1 || kn_stage_out_axis(w->t, g, last) < 0) return false;
    for (int i = 0; i < p->nstmts; i++) {
        int n = kn_loads(p->stmts[i]->body, loads, KILN_MAX_TENSORS);
        if (n > KILN_MAX_TENSORS) return false;
        for (int l = 0; l < n; l++)
            if (loads[l]->u.tensor == out && !kn_affine_of(loads[l]->args[last], &f)) return false;
    }
    return true;
}

/* Rows of some vectors begin with a line: what is read or written along them straddles two lines less often. */
static int64_t row_of_box(const kn_lw *w, const kn_stage *g, int out, int last, int64_t n)
{
    enum { LINE = 64 };
    int64_t line = LINE / kn_dtype_bytes(w->p->program->tensors[out].dtype);
    return n > line && rows_apart(w, g, out, last) ? kn_round_up(n, line) : n;
}

/* The loop is one that the stage's consumer has open where the stage is computed; those of its register tile are written out inside. */
static bool is_open_outside(const kn_lw *w, const kn_stage *g, const kn_loop *l)
{
    if (l->shared_with < 0) return false;
    const kn_stage *consumer = w->t->stages[g->at_stage];
    bool tile = l->shared_with >= kn_stage_register_tile(w->p->program->stmts[consumer->stmt], consumer);
    return !(tile && kn_is_register(consumer->loops[l->shared_with].kind));
}

static void box_init(kn_lw *w, const kn_stage *g)
{
    if (w->hw->gpu) return; /* own.c */
    int out = kn_stage_out(w->t, g);
    const kn_tensor *x = &w->p->program->tensors[out];
    kn_box *box = &w->box[out];
    int64_t elems = 1;
    for (int d = 0; d < x->rank; d++) {
        int64_t n = 1, by;
        int axis = kn_stage_out_part(w->t, g, d, &by);
        bool shared = false, whole = false;
        for (int i = 0; i < g->nloops && axis >= 0; i++) {
            const kn_loop *l = &g->loops[i];
            if (l->axis != axis) continue;
            if (is_open_outside(w, g, l)) shared = true, whole |= l->stride % by;
            else n += (l->extent - 1) * l->stride;
        }
        box->size[d] = shared && !whole ? kn_ceil_div(n, by) : x->shape[d];
        if (d == x->rank - 1) box->size[d] = row_of_box(w, g, out, d, box->size[d]);
        box->base[d] = NULL;
        if (!kn_mul_fits(elems, box->size[d], &elems) || elems > KILN_MAX_EXTENT) {
            kn_lw_fail(w, KILN_LIMIT, "the scratch region of '%s' is too large", x->name);
            return;
        }
    }
    box->on = true; /* until an output is found for it: what is attached is not counted among what the kernel touches */
    int place = kn_lw_in_place(w, g);
    box->on = place < 0;
    box->in_place = place >= 0;
    w->tensor_buffer[out] = box->on ? kn_lw_buffer(w, "region", x->dtype, 1, elems, KN_SCRATCH) : kn_lw_tensor(w, place);
}

/* Where the box lies for the consumer's present iteration. */
static void box_place(kn_lw *w, const kn_sg *consumer, const kn_stage *g)
{
    if (w->hw->gpu) return;
    int out = kn_stage_out(w->t, g);
    kn_box *box = &w->box[out];
    for (int d = 0; d < w->p->program->tensors[out].rank; d++) {
        int64_t by;
        int axis = kn_stage_out_part(w->t, g, d, &by);
        kn_expr *base = NULL;
        for (int i = 0; i < g->nloops && axis >= 0; i++) {
            const kn_loop *l = &g->loops[i];
            if (l->axis != axis || !is_open_outside(w, g, l)) continue;
            if (l->stride % by) break; /* all of it is there */
            kn_expr *v = kn_bin(w->a, KN_OP_MUL, consumer->val[l->shared_with], kn_lw_int(w, l->stride));
            kn_expr *moved = consumer->base[consumer->g->loops[l->shared_with].axis];
            base = moved ? moved : base ? kn_bin(w->a, KN_OP_ADD, base, v) : v;
        }
        if (base && by > 1) base = kn_bin(w->a, KN_OP_FLOORDIV, base, kn_lw_int(w, by));
        box->base[d] = base ? kn_lw_let(w, "box", base) : NULL;
    }
}

/* Caches that run `ahead` iterations of their loop in front of it are filled for iteration `k`. */
static void fill_ahead(kn_lw *w, kn_sg *sg, int loop, int ahead, kn_expr *k)
{
    kn_expr *was = sg->val[loop];
    sg->val[loop] = k;
    for (int i = 0; i < sg->g->ncaches && !w->status; i++) {
        if (sg->g->caches[i].at != loop || !sg->g->caches[i].copies || kn_cache_ahead(sg->g, &sg->g->caches[i]) != ahead) continue;
        sg->filling[i] = k;
        kn_lw_fill(w, sg, i);
        sg->filling[i] = NULL;
    }
    sg->val[loop] = was;
}

/* The least number of iterations above `than` that some cache filled at this loop runs ahead; 0: none does. */
static int next_ahead(const kn_sg *sg, int loop, int than)
{
    int least = 0;
    for (int i = 0; i < sg->g->ncaches; i++) {
        int ahead = sg->g->caches[i].copies ? kn_cache_ahead(sg->g, &sg->g->caches[i]) : -1;
        if (sg->g->caches[i].at == loop && ahead > than && (!least || ahead < least)) least = ahead;
    }
    return least;
}

/* Iterations that the caches are filled ahead which are filled asynchronously at this loop, all the same number; 0: none is. */
static int async_ahead(const kn_sg *sg, int loop)
{
    for (int i = 0; i < sg->g->ncaches; i++)
        if (sg->g->caches[i].at == loop && sg->g->caches[i].async) return kn_cache_ahead(sg->g, &sg->g->caches[i]);
    return 0;
}

/* Asynchronous fills are a group an iteration, with or without anything in it: in iteration k all groups but the ahead - 1 last are wanted. */
void kn_lw_before(kn_lw *w, kn_sg *sg, int loop)
{
    int async = async_ahead(sg, loop);
    if (!next_ahead(sg, loop, 0)) return;
    kn_lw_barrier(w); /* nobody still reads what the loop left the last time */
    for (int n = next_ahead(sg, loop, 0); n; n = next_ahead(sg, loop, n)) {
        for (int64_t k = 0; k < n; k++) {
            if (k < sg->g->loops[loop].extent) fill_ahead(w, sg, loop, n, kn_lw_int(w, k));
            if (n == async) kn_lw_commit(w);
        }
    }
}

/* A variable that is known to be no iteration beyond the last. */
static kn_expr *iteration(kn_lw *w, kn_expr *value, int64_t lo, int64_t hi)
{
    kn_expr *e = kn_lw_let(w, "next", value);
    if (e->op == KN_OP_VAR && e != value && lo <= hi) {
        w->var_lo[e->u.var] = lo;
        w->var_hi[e->u.var] = hi;
    }
    return e;
}

static int next_attached(const kn_lw *w, const kn_sg *sg, int loop, int from)
{
    while (from < w->t->nstages && (w->t->stages[from]->at_stage != sg->index || w->t->stages[from]->at_loop != loop)) from++;
    return from;
}

/* What is computed at the loop, in order; a map that the next stage makes as it reads it has no loops of its own. */
static void open_attached(kn_lw *w, kn_sg *sg, int loop)
{
    int maker = -1;
    for (int i = next_attached(w, sg, loop, 0), next; i < w->t->nstages && !w->status; i = next) {
        next = next_attached(w, sg, loop, i + 1);
        box_place(w, sg, w->t->stages[i]);
        bool made = maker < 0 && next < w->t->nstages && kn_lw_makes(w, i, next);
        if (!made) kn_lw_stage(w, i, sg, maker);
        maker = made ? i : -1;
    }
}

void kn_lw_open(kn_lw *w, kn_sg *sg, int loop, const kn_ls *of)
{
    if (sg->g->kept && sg->g->kept_at == loop) kn_lw_keep(w, sg);
    open_attached(w, sg, loop);
    if (sg->g->init_at == loop && !sg->g->tensor.intrin) kn_lw_init_part(w, sg);
    bool shared = false, ahead = next_ahead(sg, loop, 0) > 0;
    for (int i = 0; i < sg->g->ncaches; i++) {
        const kn_cache *c = &sg->g->caches[i];
        shared |= c->at == loop && c->scope == KN_SHARED && !c->copies;
    }
    int async = async_ahead(sg, loop);
    if (async) kn_lw_wait(w, async - 1);
    if (sg->lane && kn_stage_lanes(sg->g, w->hw) > w->hw->lanes && (shared || ahead)) kn_lw_group(w, KN_GROUP_SEEN);
    if (shared || ahead) kn_lw_barrier(w); /* nobody still reads the last fill; what was filled for this iteration is there */
    int used = kn_lw_first_use(w, sg, loop);
    for (int i = 0; i < sg->g->ncaches && !w->status; i++)
        if (sg->g->caches[i].at == loop && !sg->g->caches[i].copies && i != used) kn_lw_fill(w, sg, i);
    if (used >= 0) kn_lw_fill_at_first_use(w, sg, used);
    if (shared) kn_lw_barrier(w);
    for (int n = next_ahead(sg, loop, 0); n && of && !w->status; n = next_ahead(sg, loop, n)) {
        kn_expr *next = kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, sg->val[loop], kn_lw_int(w, n)));
        kn_ls *more = kn_lw_if(w, kn_lw_node(w, KN_OP_LT, KN_BOOL, 1, next, of->hi, NULL)), **after = w->tail;
        if (!more) return;
        w->tail = &more->body;
        next = iteration(w, next, n, sg->g->loops[loop].extent - 1);
        fill_ahead(w, sg, loop, n, next);
        w->tail = after;
        if (n == async) kn_lw_commit(w);
    }
}

/* The axis ends where an iteration of the loop does: what is inside one takes no step out of it, and the tasks around it begin with iterations. */
static bool whole_tiles(const kn_sg *sg, int loop)
{
    const kn_loop *l = &sg->g->loops[loop];
    int64_t inside = 1;
    for (int i = 0; i < sg->g->nloops; i++) {
        const kn_loop *m = &sg->g->loops[i];
        if (i == loop || m->axis != l->axis) continue;
        if (sg->val[i] ? m->extent > 1 && m->stride % l->stride != 0 : m->kind == KN_SERIAL && m->extent > 1) return false;
        if (!sg->val[i]) inside += (m->extent - 1) * m->stride;
    }
    return inside <= l->stride && sg->s->axes[l->axis].extent % l->stride == 0 && !sg->base[l->axis];
}

/* Nothing is read by the axis, so that no load can tell what is past its end. */
static bool is_unread(const kn_sg *sg, int axis)
{
    for (int i = 0; i < sg->nloads; i++)
        if (kn_axes_in(sg->loads[i]) >> axis & 1) return false;
    return true;
}

/* Upper bound of a loop that may reach past its axis: clipped where no barrier can come to depend on it. */
static kn_expr *clip(kn_lw *w, kn_sg *sg, int loop)
{
    const kn_loop *l = &sg->g->loops[loop];
    bool reduce = sg->s->axes[l->axis].reduce, inner = false;
    bool alone = !w->hw->gpu || is_unread(sg, l->axis);
    bool exact = sg->g->tensor.intrin && alone && sg->s->axes[l->axis].extent % l->stride == 0; /* what is inside ends with the axis */
    kn_expr *whole = kn_lw_int(w, l->extent);
    if (kn_sg_axis_cover(sg, l->axis) == sg->s->axes[l->axis].extent) return whole;
    if ((reduce && loop < sg->tile && !exact) || (w->hw->gpu && !reduce)) return whole;
    for (int i = 0; i < sg->g->nloops; i++) {
        const kn_loop *m = &sg->g->loops[i];
        if (i == loop || m->axis != l->axis) continue;
        if (w->hw->gpu && m->kind == KN_THREAD) return whole;
        bool lanes_inside = m->kind == KN_VECTOR && loop < sg->tile && m->stride < l->stride; /* iterations without any lane in range are left out */
        if (m->kind == KN_VECTOR && !sg->rolled && !lanes_inside) return whole; /* lanes differ in where they end */
        bool open = sg->val[i] != NULL;
        if (!open && m->stride >= l->stride && m->extent > 1) return whole;
        if (!open && m->extent > 1) inner = true;
        if (open && m->stride < l->stride && m->extent > 1) return whole;
    }
    kn_expr *av[KILN_MAX_AXES];
    kn_env_axes(w, sg, av);
    kn_expr *left = kn_bin(w->a, KN_OP_SUB, kn_lw_int(w, sg->s->axes[l->axis].extent + l->stride - 1), av[l->axis]);
    if (l->stride > 1) left = kn_bin(w->a, KN_OP_FLOORDIV, left, kn_lw_int(w, l->stride));
    sg->clipped[l->axis] = !inner || (reduce ? exact : whole_tiles(sg, loop));
    return kn_lw_simp(w, kn_bin(w->a, KN_OP_MIN, whole, left));
}

kn_ls *kn_lw_loop(kn_lw *w, kn_sg *sg, int loop)
{
    const kn_loop *l = &sg->g->loops[loop];
    sg->val[loop] = NULL;
    kn_expr *lo = kn_lw_int(w, 0), *hi = clip(w, sg, loop);
    if (l->extent == 1 && hi->op == KN_OP_CONST_I) { /* a loop of one iteration still wants a body to hang statements on */
        kn_ls *s = kn_lw_for(w, kn_lw_var(w, l->name, 0, 0), kn_lw_int(w, 0), hi);
        sg->val[loop] = kn_lw_int(w, 0);
        return s;
    }
    kn_lw_skip(w, sg, loop, &lo, &hi);
    if (loop == sg->again) lo = sg->begun;
    int64_t by_lines = kn_lw_line_tiles(w, sg, loop), most = by_lines ? by_lines : l->extent;
    if (by_lines) hi = kn_lw_int(w, by_lines), sg->clipped[l->axis] = false;
    int var = kn_lw_var(w, l->name, 0, most - 1);
    kn_ls *s = kn_lw_for(w, var, lo, hi);
    bool groups = sg->lane && kn_stage_lanes(sg->g, w->hw) > w->hw->lanes && sg->s->axes[l->axis].reduce;
    if (s) s->unroll = groups ? 1 : l->unroll; /* unrolled by the toolchain, results that instructions still write change registers: serialised */
    sg->val[loop] = kn_lw_ref(w, var);
    return s;
}

/* Loop values from a task or thread number, outer to inner. */
void kn_lw_decode(kn_lw *w, kn_sg *sg, kn_expr *number, bool task)
{
    int64_t below = 1;
    for (int i = sg->g->nloops - 1; i >= 0; i--) {
        const kn_loop *l = &sg->g->loops[i];
        if (task ? !is_task(l->kind) : l->kind != KN_THREAD) continue;
        bool outermost = true;
        for (int k = 0; k < i; k++) outermost &= task ? !is_task(sg->g->loops[k].kind) : sg->g->loops[k].kind != KN_THREAD;
        kn_expr *v = below > 1 ? kn_bin(w->a, KN_OP_FLOORDIV, number, kn_lw_int(w, below)) : number;
        if (!outermost) v = kn_bin(w->a, KN_OP_MOD, v, kn_lw_int(w, l->extent));
        sg->val[i] = l->extent == 1 ? kn_lw_int(w, 0) : kn_lw_let(w, l->name, v);
        below *= l->extent;
    }
}

kn_expr *kn_lw_flat(kn_lw *w, const kn_stmt *s, int tensor, kn_expr *const *idx)
{
    const kn_tensor *x = &w->p->program->tensors[tensor];
    kn_expr *at = kn_lw_int(w, 0);
    kn_affine f;
    for (int i = 0; i < x->rank; i++) at = kn_bin(w->a, KN_OP_ADD, kn_bin(w->a, KN_OP_MUL, at, kn_lw_int(w, x->shape[i])), idx[i]);
    at = at ? kn_simplify(w->a, at, kn_stmt_range, (void *)(uintptr_t)s) : NULL;
    return at && kn_affine_of(at, &f) ? at : NULL;
}

/* Digits of an axis that make up the axis again are seen over the axes; after tiling each digit is simplified for itself. */
static kn_expr *flat_of(kn_lw *w, const kn_stmt *s, int tensor, kn_expr *const *idx)
{
    kn_affine f;
    bool affine = true;
    for (int i = 0; i < w->p->program->tensors[tensor].rank; i++) affine = affine && kn_affine_of(idx[i], &f);
    return affine ? NULL : kn_lw_flat(w, s, tensor, idx);
}

bool kn_lw_stage_init(kn_lw *w, kn_sg *sg, int stage, bool packs)
{
    sg->index = stage;
    sg->g = w->t->stages[stage];
    sg->s = w->p->program->stmts[sg->g->stmt];
    const char *name = w->p->program->tensors[sg->s->out].name;
    sg->nloads = kn_loads(sg->s->body, sg->loads, KILN_MAX_TENSORS);
    if (sg->nloads > KILN_MAX_TENSORS) return kn_lw_fail(w, KILN_LIMIT, "statement '%s' has more than %d loads", name,
        KILN_MAX_TENSORS) == KILN_OK;
    sg->flat_out = flat_of(w, sg->s, sg->s->out, sg->s->lhs);
    for (int i = 0; i < sg->nloads; i++) {
        sg->cache_of[i] = sg->turned_of[i] = -1;
        sg->flat[i] = flat_of(w, sg->s, sg->loads[i]->u.tensor, sg->loads[i]->args);
    }
    find_tile(sg);
    sg->part = sg->results = sg->sums = sg->made = sg->first_use = sg->again = -1;
    for (int k = 0; k < sg->g->ncaches; k++) {
        const kn_cache *c = &sg->g->caches[k];
        enum kn_dtype t = w->p->program->tensors[sg->loads[c->load]->u.tensor].dtype;
        sg->cache_of[c->load] = k;
        if (c->scope == KN_PACKED) {
            sg->cache_buffer[k] = kn_lw_packed(w, sg->loads[c->load]->u.tensor, kn_cache_bytes(w->t, sg->g, c) / kn_dtype_bytes(t));
            continue;
        }
        if (packs) continue;
        if (!may_fill_at(sg, c->at))
            return kn_lw_fail(w, KILN_UNSUPPORTED, "statement '%s': loop '%s' is held in registers; a cache cannot be filled there", name,
                              sg->g->loops[c->at].name) == KILN_OK;
        sg->cache_buffer[k] = kn_lw_buffer(w, c->scope == KN_SHARED ? "sh" : "pack", t, 1, kn_cache_bytes(w->t, sg->g,
            c) / kn_dtype_bytes(t), c->scope);
    }
    for (int k = 0; k < w->t->nstages; k++) {
        const kn_stage *p = w->t->stages[k];
        if (p->at_stage != stage || packs) continue;
        if (!may_fill_at(sg, p->at_loop))
            return kn_lw_fail(w, KILN_UNSUPPORTED, "statement '%s': loop '%s' is held in registers; nothing can be computed there", name,
                              sg->g->loops[p->at_loop].name) == KILN_OK;
        box_init(w, p);
    }
    if (!packs) kn_lw_find_skips(w, sg);
    return !w->status;
}

/* Loops that are the consumer's have its values; an axis of which it has all loops stays in range where the consumer's does, and one whose last turn
 * is moved back is so for both. */
static void share_loops(const kn_tree *t, kn_sg *sg, const kn_sg *consumer)
{
    for (int i = 0; i < sg->g->nloops; i++) {
        const kn_loop *l = &sg->g->loops[i];
        if (l->shared_with < 0) continue;
        bool all = true;
        for (int k = 0; k < sg->g->nloops; k++) all &= sg->g->loops[k].axis != l->axis || sg->g->loops[k].shared_with >= 0;
        sg->val[i] = consumer->val[l->shared_with];
        int of = consumer->g->loops[l->shared_with].axis;
        sg->clipped[l->axis] |= (all || consumer->base[of]) && consumer->clipped[of];
        sg->base[l->axis] = consumer->base[of];
    }
    for (int i = 0; i < sg->g->nloops; i++)
        if (sg->g->loops[i].kind == KN_THREAD) sg->val[i] = consumer->val[kn_own_thread(t, sg->g, i)];
}

void kn_lw_stage(kn_lw *w, int stage, const kn_sg *consumer, int maker)
{
    kn_sg *sg = kn_new(w->a, kn_sg), *by = maker >= 0 ? kn_new(w->a, kn_sg) : NULL;
    if (!sg || (maker >= 0 && !by)) {
        kn_lw_fail(w, KILN_MEMORY, "out of memory in lowering");
        return;
    }
    if (!kn_lw_stage_init(w, sg, stage, false) || (by && !kn_lw_stage_init(w, by, maker, false))) return;
    sg->maker = by;
    if (by) by->reader = sg;
    kn_lw_find_next_rows(w, sg);
    if (by) kn_lw_find_next_rows(w, by);
    if (kn_stage_bulk(sg->g)) {
        kn_lw_bulk(w, sg);
        return;
    }
    if (consumer) {
        share_loops(w->t, sg, consumer);
        if (w->hw->gpu) kn_lw_own(w, sg);
    } else {
        kn_lw_decode(w, sg, kn_lw_ref(w, w->fn->var_grid), true);
        kn_expr *number = w->thread;
        if (number && kn_stage_warps(sg->g)) {
            kn_expr *lanes = kn_lw_int(w, kn_stage_lanes(sg->g, w->hw));
            sg->lane = kn_lw_let(w, "lane", kn_bin(w->a, KN_OP_MOD, number, lanes));
            number = kn_lw_let(w, "warp", kn_bin(w->a, KN_OP_FLOORDIV, number, lanes));
        }
        if (number) kn_lw_decode(w, sg, number, false);
    }
    if (sg->s->scatter) {
        kn_lw_scatter(w, sg);
        return;
    }
    kn_ls **after = NULL, **reduced = NULL, **inner = NULL, *nearest = NULL;
    int blocked = kn_lw_blocked(w, sg), innermost = -1;
    for (int i = 0; i < sg->tile && !w->status && !sg->moved; i++) {
        kn_ls *loop = NULL;
        if (sg->g->tensor.intrin && sg->g->loops[i].kind == KN_UNROLL) continue; /* written out at the tile */
        if (!sg->val[i]) {
            if (i == sg->first_reduce && sg->g->tensor.intrin) kn_lw_instruction_begin(w, sg);
            if (i == blocked) kn_lw_block_begin(w, sg);
            kn_lw_before(w, sg, i);
            loop = kn_lw_loop(w, sg, i);
            if (!loop) return;
            if (i == sg->first_reduce) reduced = w->tail;
            if (i == blocked) inner = w->tail;
            if (!after) after = w->tail;
            w->tail = &loop->body;
        }
        if (!consumer) kn_lw_move_back(w, sg, i);
        kn_lw_open(w, sg, i, loop);
        if (loop) innermost = i, nearest = loop;
    }
    if (innermost >= 0 && sg->g->tensor.intrin && !w->status) kn_lw_next_copies(w, sg, innermost);
    if (nearest && !w->status) kn_lw_instruction_steps(w, sg, innermost, nearest);
    if (!w->status && !consumer) kn_lw_ask_bands(w, sg);
    if (!w->status && !sg->moved) kn_lw_tile(w, sg);
    if (inner && !w->status) {
        w->tail = inner;
        kn_lw_block_end(w, sg);
    }
    if (reduced && sg->g->tensor.intrin && !w->status) {
        w->tail = reduced;
        kn_lw_instruction_end(w, sg);
        if (after == reduced) return; /* the reduction is the outermost loop */
    }
    if (after) w->tail = after;
}

static void note_slot(const kn_lprog *p, bool *used, int buffer)
{
    if (p->buffers[buffer].scope == KN_GLOBAL || p->buffers[buffer].scope == KN_PACKED) used[p->buffers[buffer].slot] = true;
}

static void slots_in(const kn_lprog *p, bool *used, const kn_expr *e)
{
    if (!e) return;
    if (e->op == KN_OP_READ) note_slot(p, used, e->u.buffer);
    for (int i = 0; i < e->nargs; i++) slots_in(p, used, e->args[i]);
}

static void slots_of(const kn_lprog *p, bool *used, const kn_ls *s)
{
    for (; s; s = s->next) {
        slots_in(p, used, s->value);
        slots_in(p, used, s->index);
        slots_in(p, used, s->lo);
        slots_in(p, used, s->hi);
        if (s->kind == KN_LS_STORE || s->kind == KN_LS_PREFETCH) note_slot(p, used, s->buffer);
        if (s->kind == KN_LS_UNIT && s->unit->at) {
            slots_in(p, used, s->unit->at);
            note_slot(p, used, s->unit->buffer);
        }
        if (s->kind == KN_LS_FRAGMENT) continue; /* of shared memory */
        if (s->kind == KN_LS_PIPE && (s->pipe->step == KN_PIPE_LOAD || s->pipe->step == KN_PIPE_STORE)) used[s->pipe->tensor] = true;
        for (int o = 0; s->kind == KN_LS_CALL && o < p->calls[s->call->fn].intrin->noperands; o++) {
            slots_in(p, used, s->call->at[o]);
            note_slot(p, used, s->call->buffer[o]);
        }
        slots_of(p, used, s->body);
        slots_of(p, used, s->other);
    }
}

/* What goes over a function's statements once they are all there, in order; on a GPU only what says so. */
static const struct {
    void (*over)(kn_lw *w, kn_ls **list);
    bool gpu;
} passes[] = {
    {kn_lw_halves, false}, {kn_lw_forward, false}, {kn_lw_behind, false}, {kn_lw_hoist, false}, {kn_lw_unswitch, false}, {kn_lw_collapse, false},
    {kn_lw_picked, false}, {kn_lw_passing, false}, {kn_lw_arriving, false}, {kn_lw_awake, false}, {kn_lw_spread, false}, {kn_lw_middle, false},
    {kn_lw_opened, false}, {kn_lw_share, true}, {kn_lw_anew, false},
};

void kn_lw_finish_fn(kn_lw *w, kn_fn *fn, int *count)
{
    for (size_t i = 0; i < sizeof passes / sizeof passes[0]; i++)
        if (!w->status && (passes[i].gpu || !w->hw->gpu)) passes[i].over(w, &fn->body);
    if (w->status) return;
    bool used[KILN_MAX_TENSORS] = { false };
    slots_of(w->p, used, fn->body);
    for (int i = 0; i < KILN_MAX_TENSORS; i++)
        if (used[i]) fn->args[fn->nargs++] = i;
    ++*count;
}

void kn_lw_fn(kn_lw *w, kn_fn *fn, int *count, int stage)
{
    const kn_stage *g = w->t->stages[stage];
    w->fn = fn;
    fn->stage = stage;
    fn->threads = 1;
    fn->grid = kn_stage_blocks(g, w->hw);
    fn->cluster = g->cluster;
    if (kn_stage_bulk(g)) fn->asking = kn_stage_registers(g, w->hw, true), fn->computing = kn_stage_registers(g, w->hw, false);
    if (w->hw->gpu) fn->threads = kn_stage_threads(g, w->hw);
    fn->warps = w->hw->gpu && kn_stage_warps(g);
    w->scratch = w->shared = w->nowns = 0;
    w->shared_align = kn_stage_warps(g) && kn_stage_lanes(g, w->hw) > w->hw->lanes ? 1024 : 0; /* what swizzled rows begin at */
    w->threads = fn->threads;
    fn->var_grid = kn_lw_var(w, w->hw->gpu ? "block" : "task", 0, fn->grid - 1);
    fn->var_thread = w->hw->gpu ? kn_lw_var(w, "thread", 0, fn->threads - 1) : -1;
    w->thread = w->hw->gpu ? kn_lw_ref(w, fn->var_thread) : NULL;
    w->tail = &fn->body;
    kn_lw_stage(w, stage, NULL, -1);
    fn->shared_bytes = w->shared;
    if (!w->status && fn->shared_bytes > w->hw->max_shared_per_block && w->hw->gpu)
        kn_lw_fail(w, KILN_TRACE, "statement '%s' wants %lld bytes of shared memory with its partial results, a block has %lld",
                   w->p->program->tensors[w->p->program->stmts[g->stmt]->out].name, (long long)fn->shared_bytes,
                   (long long)w->hw->max_shared_per_block);
    kn_lw_finish_fn(w, fn, count);
    if (!w->status && kn_stage_bulk(g)) fn->maps = kn_lw_bulk_maps(w, g, fn);
}

kiln_status kn_lower(kiln_arena *a, const kn_tree *t, const kn_hw *hw, kn_lprog **out, kiln_diag *d)
{
    kn_lw *w = kn_new(a, kn_lw);
    kn_lprog *p = kn_new(a, kn_lprog);
    if (p) {
        p->buffers = kn_array(a, kn_buffer, KN_LW_BUFFERS);
        p->fns = kn_array(a, kn_fn, t->nstages ? t->nstages : 1);
        p->packs = kn_array(a, kn_fn, 2 * KILN_MAX_TENSORS);
        p->calls = kn_array(a, kn_emulated, hw->nintrins + 1);
    }
    if (!w || !p || !p->buffers || !p->fns || !p->packs || !p->calls) return kn_fail(d, KILN_MEMORY, "out of memory in lowering");
    p->program = t->program;
    p->hw = hw;
    *w = (kn_lw){ .a = a, .t = t, .hw = hw, .d = d, .p = p };
    w->dry = (kn_expr){ .op = KN_OP_CONST_I, .dtype = KN_I64, .lanes = 1 };
    for (int i = 0; i < KILN_MAX_TENSORS; i++) w->tensor_buffer[i] = w->packed_buffer[i] = -1;
    w->streamed = -1;
    kn_lw_ahead(w);
    for (int i = 0; i < t->nstages && !w->status; i++) {
        if (kn_stopped(a)) return kn_fail(d, KILN_STOPPED, "stopped while lowering");
        if (t->stages[i]->at_stage < 0 && !t->stages[i]->ahead) kn_lw_fn(w, &p->fns[p->nfns], &p->nfns, i);
        if (!w->status) kn_lw_packs(w, i);
    }
    kn_lw_place_packed(w);
    if (!w->status && kn_arena_dry(a)) kn_lw_fail(w, KILN_MEMORY, "out of memory in lowering");
    if (!w->status) *out = p;
    return w->status;
}
