/* kiln_ask: which candidate a search should measure next, by a model learned from those that it has measured (AMOS, ISCA'22, section 5.4: a learned
 * ranking beside the analytic one). Features are read from the tile tree and from the cost model; nothing here knows an operator. */
#include "cost/cost.h"
#include "cost/trees.h"
#include <string.h>

enum { FIRST = 4, CHANCE = 4, STAGES = 2, OF_STAGE = 8, FEATURES = 10 + STAGES * OF_STAGE }; /* each CHANCE-th is drawn, once FIRST are measured */
static const kn_trees_options options = {.trees = 80, .depth = 3, .min_rows = 2, .rate = 0.15, .lambda = 0.5, .rows = 1, .features = 1};

/* About the logarithm to base 2, without a library: exact at powers of two, straight between them. */
static double log2_of(double x)
{
    double n = 0;
    for (; x >= 2 && n < 200; n++) x /= 2;
    for (; x < 1 && n > -200; n--) x *= 2;
    return n + x - 1;
}

static double points(const kn_stage *g)
{
    double n = 1;
    for (int i = 0; i < g->nloops; i++) n *= (double)g->loops[i].extent;
    return n;
}

static void stage_features(const kn_tree *t, const kn_stage *g, double *f)
{
    double tasks = 1, unrolled = 1, inner = 1, reduced = 1;
    const kn_stmt *s = t->program->stmts[g->stmt];
    for (int i = 0; i < g->nloops; i++) {
        const kn_loop *l = &g->loops[i];
        double n = (double)l->extent;
        if (l->kind == KN_PARALLEL || l->kind == KN_GRID) tasks *= n;
        if (l->kind == KN_UNROLL) unrolled *= n;
        if (l->kind == KN_VECTOR || l->kind == KN_THREAD) inner *= n;
        if (s->axes[l->axis].reduce && l->kind != KN_UNROLL) reduced *= n;
    }
    const double all[OF_STAGE] = {log2_of(points(g)), log2_of(tasks), log2_of(unrolled), log2_of(inner), log2_of(reduced), g->ncaches, g->nloops,
                                  g->tensor.intrin ? 1 + log2_of((double)g->tensor.intrin->points) : 0};
    memcpy(f, all, sizeof all);
}

/* The stages of most iterations, and what the cost model says. */
static bool features(kiln_arena *a, const kn_program *p, const kn_hw *hw, const kiln_candidate *c, double *f)
{
    kn_tree *t;
    kn_cost cost;
    kiln_diag d;
    uint64_t taken = 0;
    memset(f, 0, FEATURES * sizeof *f);
    if (kn_trace_apply(a, p, hw, c->trace, &t, &d) || kn_cost_of(t, hw, &cost, &d)) return false;
    const double whole[10] = {log2_of(cost.us + 1e-3), log2_of(cost.compute_us + 1e-3), log2_of(cost.levels[0].us + 1e-3),
                              log2_of(cost.levels[1].us + 1e-3), log2_of(cost.levels[cost.nlevels > 2 ? cost.nlevels - 2 : 0].us + 1e-3),
                              cost.occupancy, cost.registers, log2_of((double)cost.grid + 1), log2_of((double)cost.shared_bytes + 1), t->nstages};
    memcpy(f, whole, sizeof whole);
    for (int k = 0; k < STAGES; k++) {
        int most = -1;
        for (int i = 0; i < t->nstages && i < 64; i++)
            if (!(taken >> i & 1) && (most < 0 || points(t->stages[i]) > points(t->stages[most]))) most = i;
        if (most < 0) break;
        taken |= UINT64_C(1) << most;
        stage_features(t, t->stages[most], f + 10 + k * OF_STAGE);
    }
    return true;
}

/* The n-th candidate that is not measured yet. */
static int nth_left(const kiln_candidates *c, const double *us, int n)
{
    for (int i = 0; i < c->n; i++)
        if (us[i] == 0 && n-- == 0) return i;
    return -1;
}

/* A candidate that failed is as slow as four times the slowest. */
static double target(const kiln_candidates *c, const double *us, int i)
{
    double slowest = 1e-3;
    for (int k = 0; k < c->n; k++)
        if (us[k] > slowest) slowest = us[k];
    return log2_of(us[i] > 0 ? us[i] : 4 * slowest);
}

static kiln_status learned(kiln_arena *a, const kn_program *p, const kn_hw *hw, const kiln_candidates *c, const double *us, int *next, kiln_diag *d)
{
    double *x = kn_array(a, double, (size_t)c->n * FEATURES), *y = kn_array(a, double, c->n), row[FEATURES], best = 0;
    kn_trees *model;
    int n = 0;
    if (!x || !y) return kn_fail(d, KILN_MEMORY, "out of memory while ranking candidates");
    for (int i = 0; i < c->n; i++) {
        kn_mark before = kn_mark_of(a);
        bool known = us[i] != 0 && features(a, p, hw, &c->c[i], x + (size_t)n * FEATURES);
        kn_release(a, before);
        if (known) y[n++] = target(c, us, i);
    }
    if (!n) return KILN_OK;
    kiln_status s = kn_trees_fit(a, x, n, FEATURES, y, &options, &model, d);
    if (s) return s;
    *next = -1;
    for (int i = 0; i < c->n; i++) {
        kn_mark before = kn_mark_of(a);
        double t = us[i] == 0 && features(a, p, hw, &c->c[i], row) ? kn_trees_predict(model, row) : 0;
        kn_release(a, before);
        if (us[i] == 0 && (*next < 0 || t < best)) *next = i, best = t;
    }
    return kn_arena_dry(a) ? kn_fail(d, KILN_MEMORY, "out of memory while ranking candidates") : KILN_OK;
}

kiln_status kiln_ask(kiln_arena *a, const kiln_program *p, const kiln_hw *hw, const kiln_candidates *c, const double *us, uint64_t draw, int *next,
                     kiln_diag *d)
{
    int left = 0;
    for (int i = 0; i < c->n; i++) left += us[i] == 0;
    int measured = c->n - left;
    *next = measured < FIRST ? nth_left(c, us, 0) : nth_left(c, us, left ? (int)(draw % (uint64_t)left) : 0);
    return left < 2 || measured < FIRST || measured % CHANCE == 0 ? KILN_OK : learned(a, p, hw, c, us, next, d);
}
