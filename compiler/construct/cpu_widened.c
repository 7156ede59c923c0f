/* A product whose rows' operand a map makes from what the program reads (halves that become floats): where the rows of a register tile go along all
 * panels at once, each group of them is made when its turn comes, and stays near, instead of going out to memory all together and coming back
 * (4096x64x512: 0.75 to 0.9 of the time). */
#include "construct/cpu.h"
#include "construct/rows.h"

typedef struct widened {
    kn_site y, x;  /* the product, and the map that it reads */
    int load;      /* of the product */
    int m, last;   /* the map's axes: along the rows, and the contiguous one */
} widened;

/* The map's one load is what the program reads; the product reads its results by an axis a dimension, and nothing else does. */
static bool reads_alone(const kn_program *p, widened *w)
{
    const kn_stmt *s = w->x.s;
    const kn_expr *loads[KN_SITE_LOADS];
    int found = 0, n = 0;
    for (int i = 0; i < p->nstmts; i++) {
        n = kn_loads(p->stmts[i]->body, loads, KN_SITE_LOADS);
        if (n > KN_SITE_LOADS) return false;
        for (int l = 0; l < n; l++) {
            if (loads[l]->u.tensor != s->out) continue;
            if (found++ || p->stmts[i] != w->y.s || loads[l]->padded) return false;
            w->load = l;
        }
    }
    if (!found || s->red != KN_RED_NONE || s->scatter || w->x.nloads != 1) return false;
    n = kn_loads(w->y.s->body, loads, KN_SITE_LOADS);
    const kn_expr *read = loads[w->load];
    w->m = w->last = -1;
    for (int d = 0; d < read->nargs; d++) {
        if (read->args[d]->op != KN_OP_AXIS || s->lhs[d]->op != KN_OP_AXIS) return false;
        if (read->args[d]->u.axis == w->y.m) w->m = s->lhs[d]->u.axis;
        w->last = s->lhs[d]->u.axis;
    }
    return n == 2 && w->m >= 0 && w->m != w->last && !(w->y.load[w->load].axes >> w->y.n & 1);
}

/* The loop over groups of rows: only tasks of rows stand around it. -1: it goes on in other loops, or the rows are copied. */
static int groups_of(const widened *w, const kn_stage *g)
{
    for (int c = 0; c < g->ncaches; c++) if (g->caches[c].load == w->load) return -1;
    for (int i = 0; i < g->nloops; i++) {
        const kn_loop *l = &g->loops[i];
        if (l->axis == w->y.m && l->kind == KN_SERIAL) return i;
        if (l->extent > 1 && (l->axis != w->y.m || l->kind != KN_PARALLEL)) return -1;
    }
    return -1;
}

/* Tiles end where rows do, and few rows are left for the last one: neither moves back over what others have made, they go element by element. */
static bool ends_with_tiles(const widened *w, const kn_stage *g, int at)
{
    enum { SLOW = 640 }; /* rows that take as long as ten times such a one */
    int64_t columns = 1, rows = kn_cpu_extent(&w->y, w->y.m);
    for (int i = at; i < g->nloops; i++)
        if (g->loops[i].axis == w->y.n && kn_is_register(g->loops[i].kind)) columns *= g->loops[i].extent;
    return kn_cpu_extent(&w->y, w->y.n) % columns == 0 && rows % g->loops[at].stride * SLOW <= rows;
}

static void put_map(kn_buf *b, const widened *w, const kn_stage *g, int at)
{
    const kn_site *x = &w->x;
    int64_t lanes = kn_cpu_pow2(kn_cpu_extent(x, w->last), x->hw->vector_bytes / kn_cpu_acc_bytes(x));
    int splits = 0;
    kn_putf(b, "split %s %s", x->name, kn_cpu_axis(x, w->m));
    for (int i = 0; i <= at; i++)
        if (g->loops[i].axis == w->y.m && splits++) kn_putf(b, " %lld", (long long)g->loops[i].extent);
    kn_putf(b, " %lld\nsplit %s %s %lld\nreorder %s", (long long)g->loops[at].stride, x->name, kn_cpu_axis(x, w->last), (long long)lanes, x->name);
    for (int i = 0; i < splits; i++) kn_putf(b, " %s.%d", kn_cpu_axis(x, w->m), i);
    kn_putf(b, " | %s.%d", kn_cpu_axis(x, w->m), splits);
    for (int i = 0; i < x->s->nspatial; i++)
        if (i != w->m) kn_putf(b, " %s.0", kn_cpu_axis(x, i));
    kn_putf(b, " | %s.1\nvectorize %s %s.1\n", kn_cpu_axis(x, w->last), x->name, kn_cpu_axis(x, w->last));
    kn_putf(b, "compute_at %s %s %s\n", x->name, w->y.name, g->loops[at].name);
}

/* The plans of the product alone, of which the first takes the map in; p is as it was if none does. */
static bool join(kiln_arena *a, const kn_tree *t, int y, const widened *w, kn_plans *p)
{
    const kn_hw_level *l2 = kn_hw_level_named(w->y.hw, "l2");
    kn_plans before = *p;
    kiln_diag d;
    kn_tree *planned;
    kn_buf b;
    kn_plan_cpu(&w->y, p);
    if (p->n && !kn_trace_step(a, t, w->y.hw, p->best[0].lines, &planned, &d)) {
        const kn_stage *g = planned->stages[y];
        int at = groups_of(w, g);
        if (at >= 0 && ends_with_tiles(w, g, at) && g->loops[at].stride * w->y.reduce_extent * kn_cpu_acc_bytes(&w->x) <= l2->capacity_bytes / 4) {
            kn_buf_init(&b, a);
            kn_putn(&b, p->best[0].lines.p, p->best[0].lines.n);
            put_map(&b, w, g, at);
            p->n = 0;
            p->left++;
            kn_plans_try(p, &b);
            if (p->n) return true;
        }
    }
    *p = before;
    return false;
}

/* Stage k makes rows of whole vectors, more than L2 holds, for stage y. A quarter of L2 holds the other operand of y, so that rows go along all of
 * it. */
static bool found(kiln_arena *a, const kn_tree *t, const kn_hw *hw, int k, int y, widened *w)
{
    const kn_hw_level *l2 = kn_hw_level_named(hw, "l2");
    const kn_stage *g = t->stages[k];
    if (hw->gpu || !l2 || g->epilogue >= 0 || g->ahead || g->at_stage >= 0 || kn_site_scheduled(t, g)) return false;
    const kn_tensor *rows = &t->program->tensors[t->program->stmts[g->stmt]->out];
    if (kn_cpu_bytes(rows) <= (double)l2->capacity_bytes) return false;
    kn_site_of(a, t, g, hw, &w->x);
    kn_site_of(a, t, t->stages[y], hw, &w->y);
    if (!w->y.contraction || w->y.m < 0 || w->y.s->scatter || !reads_alone(t->program, w)) return false;
    int64_t panels = kn_cpu_extent(&w->y, w->y.n) * w->y.reduce_extent * kn_cpu_acc_bytes(&w->y);
    bool whole = kn_cpu_extent(&w->y, w->y.n) * kn_cpu_acc_bytes(&w->y) % hw->vector_bytes == 0;
    whole = whole && kn_cpu_extent(&w->x, w->last) * kn_cpu_acc_bytes(&w->x) % hw->vector_bytes == 0;
    return whole && panels <= l2->capacity_bytes / 4;
}

bool kn_cpu_is_widened(kiln_arena *a, const kn_tree *t, const kn_hw *hw, const kn_stage *g)
{
    widened w;
    bool yes = false;
    for (int k = 0; k < t->nstages; k++)
        for (int y = k + 1; y < t->nstages && t->stages[k] == g; y++) yes = yes || found(a, t, hw, k, y, &w);
    return yes;
}

uint32_t kn_cpu_widened(kiln_arena *a, const kn_tree *t, const kn_hw *hw, int y, kn_plans *p)
{
    widened w;
    if (kn_site_scheduled(t, t->stages[y])) return 0;
    for (int k = 0; k < y; k++)
        if (found(a, t, hw, k, y, &w)) return join(a, t, y, &w, p) ? 1u << k | 1u << y : 0;
    return 0;
}
