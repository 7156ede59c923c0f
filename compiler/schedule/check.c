/* What must hold when a trace is done: order of loop kinds, coverage, and the limits of the target. */
#include "schedule/sched.h"

static kiln_status bad(const kn_tree *t, const kn_stage *g, kiln_diag *d, const char *what, const char *loop)
{
    return kn_fail(d, KILN_TRACE, "after the last step: statement '%s', loop '%s': %s", kn_stage_name(t, g), loop, what);
}

/* Task and grid loops first, then threads; nothing of them deeper. */
static kiln_status check_order(const kn_tree *t, const kn_stage *g, const kn_hw *hw, kiln_diag *d)
{
    int phase = 0;
    int64_t threads = 1, unrolled = 1, grid = 1;
    for (int i = 0; i < g->nloops; i++) {
        const kn_loop *l = &g->loops[i];
        bool outer = l->kind == KN_PARALLEL || l->kind == KN_GRID;
        if (outer && phase > 0) return bad(t, g, d, "parallel and grid loops must come first", l->name);
        if (outer && (!kn_mul_fits(grid, l->extent, &grid) || grid > KILN_MAX_EXTENT)) return bad(t, g, d, "too many tasks or blocks",
            l->name);
        if (l->kind == KN_THREAD && (!kn_mul_fits(threads, l->extent, &threads) || threads > hw->max_threads_per_block))
            return bad(t, g, d, "more threads than a block may have", l->name);
        bool reg = l->kind == KN_UNROLL || l->kind == KN_VTHREAD || l->kind == KN_VECTOR;
        if (reg && (!kn_mul_fits(unrolled, l->extent, &unrolled) || unrolled > 4096))
            return bad(t, g, d, "more than 4096 iterations would be written out", l->name);
        if (l->kind == KN_VECTOR && i != g->nloops - 1) return bad(t, g, d, "the vector loop must be the innermost", l->name);
        if (kn_is_reduce(t, g, i) && l->kind == KN_THREAD && !l->rfactor) return bad(t, g, d,
            "a reduce loop bound to threads needs rfactor", l->name);
        if (l->rfactor && l->kind == KN_SERIAL) return bad(t, g, d, "an rfactor loop must be unrolled, vectorised or bound to threads",
            l->name);
        if (!outer) phase = 1;
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

kiln_status kn_tree_check(kn_tree *t, const kn_hw *hw, kiln_diag *d)
{
    for (int i = 0; i < t->nstages; i++) {
        const kn_stage *g = t->stages[i];
        kiln_status st = check_order(t, g, hw, d);
        if (!st) st = check_cover(t, g, d);
        if (st) return st;
        int64_t shared = 0;
        for (int k = 0; k < g->ncaches; k++) shared += kn_cache_bytes(t, g, &g->caches[k]);
        if (hw->gpu && shared > hw->max_shared_per_block)
            return kn_fail(d, KILN_TRACE, "after the last step: statement '%s' wants %lld bytes of shared memory, a block has %lld",
                           kn_stage_name(t, g), (long long)shared, (long long)hw->max_shared_per_block);
    }
    return KILN_OK;
}
