/* What must hold when a trace is done: order of loop kinds, coverage, and the limits of the target. */
#include "schedule/sched.h"

static kiln_status bad(const kn_tree *t, const kn_stage *g, kiln_diag *d, const char *what, const char *loop)
{
    return kn_fail(d, KILN_TRACE, "after the last step: statement '%s', loop '%s': %s", kn_stage_name(t, g), loop, what);
}

static bool threads_reduce(const kn_tree *t, const kn_stage *g)
{
    for (int i = 0; i < g->nloops; i++)
        if (g->loops[i].kind == KN_THREAD && g->loops[i].extent > 1 && kn_is_reduce(t, g, i)) return true;
    return false;
}

/* Task and grid loops first, then threads; nothing of them deeper. */
static kiln_status check_order(const kn_tree *t, const kn_stage *g, const kn_hw *hw, kiln_diag *d)
{
    int phase = 0;
    int64_t threads = kn_stage_warps(g) ? kn_stage_lanes(g, hw) : 1, unrolled = 1, grid = 1;
    int64_t most = hw->max_threads_per_block - (kn_stage_bulk(g) ? KN_BULK_THREADS : 0);
    for (int i = 0; i < g->nloops; i++) {
        const kn_loop *l = &g->loops[i];
        bool outer = l->kind == KN_PARALLEL || l->kind == KN_GRID;
        if (outer && phase > 0) return bad(t, g, d, "parallel and grid loops must come first", l->name);
        if (outer && (!kn_mul_fits(grid, l->extent, &grid) || grid > KILN_MAX_EXTENT)) return bad(t, g, d, "too many tasks or blocks",
            l->name);
        if (l->kind == KN_THREAD && (!kn_mul_fits(threads, l->extent, &threads) || threads > most))
            return bad(t, g, d, "more threads than a block may have", l->name);
        bool reg = l->kind == KN_UNROLL || l->kind == KN_VTHREAD || l->kind == KN_VECTOR;
        if (reg && (!kn_mul_fits(unrolled, l->extent, &unrolled) || unrolled > 4096))
            return bad(t, g, d, "more than 4096 iterations would be written out", l->name);
        if (l->kind == KN_VECTOR && i != g->nloops - 1) return bad(t, g, d, "the vector loop must be the innermost", l->name);
        if (kn_is_reduce(t, g, i) && l->kind == KN_THREAD && !l->rfactor) return bad(t, g, d,
            "a reduce loop bound to threads needs rfactor", l->name);
        if (hw->gpu && l->kind == KN_VECTOR && !kn_is_reduce(t, g, i) && threads_reduce(t, g))
            return bad(t, g, d, "threads along the reduction combine single results, not vectors", l->name);
        if (l->rfactor && l->kind == KN_SERIAL) return bad(t, g, d, "an rfactor loop must be unrolled, vectorised or bound to threads",
            l->name);
        if (!outer) phase = 1;
    }
    return KILN_OK;
}

/* What is computed at a loop is computed in one task: no task loop may stand inside. */
static kiln_status check_attached(const kn_tree *t, const kn_stage *g, kiln_diag *d)
{
    if (g->at_stage < 0) return KILN_OK;
    const kn_stage *c = t->stages[g->at_stage];
    for (int i = g->at_loop + 1; i < c->nloops; i++)
        if (c->loops[i].kind == KN_PARALLEL)
            return bad(t, c, d, "a parallel loop stands inside one at which something is computed", c->loops[i].name);
    for (int i = 0; i < g->nloops; i++)
        if (g->loops[i].kind == KN_PARALLEL) return bad(t, g, d, "a parallel loop stands inside another stage", g->loops[i].name);
    return KILN_OK;
}

/* The kernel is given the copy of a packed constant, and the constant no more. */
static kiln_status check_given(const kn_tree *t, const kn_stage *g, kiln_diag *d)
{
    for (int k = 0; k < g->ncaches; k++) {
        const kn_expr *load = g->caches[k].scope == KN_PACKED ? kn_stage_load(t, g, g->caches[k].load) : NULL;
        if (load && kn_loads_in_calls(t, load->u.tensor) != 1)
            return kn_fail(d, KILN_TRACE, "after the last step: '%s', which '%s' reads packed, is read by other loads too",
                           t->program->tensors[load->u.tensor].name, kn_stage_name(t, g));
    }
    return KILN_OK;
}

/* A register loop runs inside every loop of its tile: a cache filled at one of them must not stand inside a register loop it depends on. */
static kiln_status check_caches(const kn_tree *t, const kn_stage *g, kiln_diag *d)
{
    int tile = kn_stage_register_tile(kn_stage_stmt(t, g), g);
    for (int k = 0; k < g->ncaches; k++) {
        const kn_expr *load = kn_stage_load(t, g, g->caches[k].load);
        for (int i = tile; i < g->caches[k].at && load; i++)
            if (kn_is_register(g->loops[i].kind) && (kn_axes_in(load) >> g->loops[i].axis & 1))
                return bad(t, g, d, "a register loop stands outside the one at which a load that depends on it is cached", g->loops[i].name);
    }
    return KILN_OK;
}

/* What the data may send to one place is walked in the order that the statement says: by axes as they are numbered, each from its beginning. Lanes
 * are of the last dimension, and of no other index on the left. */
static kiln_status check_scatter(const kn_tree *t, const kn_stage *g, kiln_diag *d)
{
    const kn_stmt *s = kn_stage_stmt(t, g);
    uint32_t owned = kn_scatter_owned(t->program, s);
    int rank = t->program->tensors[s->out].rank, axis = 0;
    int64_t stride = INT64_MAX;
    for (int i = 0; i < g->nloops; i++) {
        const kn_loop *l = &g->loops[i];
        bool own = owned >> l->axis & 1;
        if (l->kind == KN_VECTOR) {
            for (int k = 0; k < rank - 1; k++) own &= !(kn_axes_in(s->lhs[k]) >> l->axis & 1);
            if (!own || l->stride != 1 || s->lhs[rank - 1]->op != KN_OP_AXIS)
                return bad(t, g, d, "lanes of a scatter lie along the last dimension, whose index is their axis alone", l->name);
        }
        if (own) continue;
        if (l->kind != KN_SERIAL) return bad(t, g, d, "the data say where this loop goes: its iterations come one after the other", l->name);
        if (l->axis < axis || (l->axis == axis && l->stride >= stride))
            return bad(t, g, d, "loops whose places the data say come in the order of their axes", l->name);
        axis = l->axis;
        stride = l->stride;
    }
    return KILN_OK;
}

static kiln_status check_cover(const kn_tree *t, const kn_stage *g, kiln_diag *d)
{
    const kn_stmt *s = kn_stage_stmt(t, g);
    for (int x = 0; x < s->naxes; x++) {
        int64_t n = 1;
        for (int i = 0; i < g->nloops; i++)
            if (g->loops[i].axis == x) n *= g->loops[i].extent;
        if (n < s->axes[x].extent) return bad(t, g, d, "the loops do not cover the axis", s->axes[x].name);
    }
    return KILN_OK;
}

/* Steps after tensorize may have changed the body or what hangs on the loops. */
static kiln_status check_tensor(const kn_tree *t, const kn_stage *g, const kn_hw *hw, kiln_diag *d)
{
    char why[400];
    bool bulk = kn_stage_bulk(g);
    if (!g->tensor.intrin && !kn_stage_warps(g) && !bulk) return KILN_OK;
    if ((kn_stage_warps(g) && !kn_warp_fits(t, g, hw, why, sizeof why)) || (bulk && !kn_bulk_fits(t, g, hw, why, sizeof why)))
        return kn_fail(d, KILN_TRACE, "after the last step: statement '%s': %s", kn_stage_name(t, g), why);
    if (kn_tensor_nest(t, g, &g->tensor, why, sizeof why) && kn_tensor_registers(t, g, hw, why, sizeof why) &&
        kn_tensor_sources(t, g, &g->tensor, NULL, why, sizeof why))
        return KILN_OK;
    return kn_fail(d, KILN_TRACE, "after the last step: statement '%s', instruction '%s': %s", kn_stage_name(t, g), g->tensor.intrin->name, why);
}

kiln_status kn_tree_check(kn_tree *t, const kn_hw *hw, kiln_diag *d)
{
    for (int i = 0; i < t->nstages; i++) {
        const kn_stage *g = t->stages[i];
        kiln_status st = check_order(t, g, hw, d);
        if (!st) st = check_attached(t, g, d);
        if (!st && hw->gpu) st = kn_own_check(t, g, hw, d);
        if (!st) st = check_caches(t, g, d);
        if (!st) st = check_given(t, g, d);
        if (!st) st = check_cover(t, g, d);
        if (!st && kn_stage_stmt(t, g)->scatter) st = check_scatter(t, g, d);
        if (!st) st = check_tensor(t, g, hw, d);
        if (st) return st;
        int64_t shared = kn_stage_bulk_bytes(g, hw);
        for (int k = 0; k < g->ncaches; k++) shared += kn_cache_bytes(t, g, &g->caches[k]);
        if (hw->gpu && shared > hw->max_shared_per_block)
            return kn_fail(d, KILN_TRACE, "after the last step: statement '%s' wants %lld bytes of shared memory, a block has %lld",
                           kn_stage_name(t, g), (long long)shared, (long long)hw->max_shared_per_block);
    }
    return KILN_OK;
}
