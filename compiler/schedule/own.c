/* Stages computed in the blocks of another one on a GPU (compute_at at a grid or thread loop): what a thread makes stays in its registers, so every
 * element must be read by the thread that made it, or have been combined by all that read it. Softmax and normalisations are such chains: sums over
 * the row that a block or warp holds, and maps between them, whatever the operator is called. */
#include "schedule/sched.h"

enum { OWN_MOST = 256 }; /* registers that one stage may fill */

static kiln_status bad(const kn_tree *t, const kn_stage *g, kiln_diag *d, const char *what)
{
    return kn_fail(d, KILN_TRACE, "after the last step: statement '%s', computed in the blocks of '%s': %s", kn_stage_name(t, g),
                   kn_stage_name(t, t->stages[g->at_stage]), what);
}

/* Thread loop number n of stage c inside loop `at`, -1. */
static int thread_inside(const kn_stage *c, int at, int n)
{
    for (int i = at + 1; i < c->nloops; i++)
        if (c->loops[i].kind == KN_THREAD && n-- == 0) return i;
    return -1;
}

int kn_own_thread(const kn_tree *t, const kn_stage *g, int i)
{
    int n = 0;
    if (g->at_stage < 0 || g->loops[i].kind != KN_THREAD) return -1;
    for (int k = 0; k < i; k++) n += g->loops[k].kind == KN_THREAD;
    return thread_inside(t->stages[g->at_stage], g->at_loop, n);
}

/* Loop number n of axis x that the stage does not share with its consumer; of the consumer itself one inside `at`. -1: no more. */
static int own_loop(const kn_stage *g, int at, int x, int n)
{
    for (int i = at + 1; i < g->nloops; i++)
        if (g->loops[i].axis == x && g->loops[i].shared_with < 0 && n-- == 0) return i;
    return -1;
}

/* Axis y of reader r is walked by the same threads and registers as axis x of p. */
static bool same_loops(const kn_tree *t, const kn_stage *p, int x, const kn_stage *r, int y)
{
    const kn_stage *c = t->stages[p->at_stage];
    for (int n = 0;; n++) {
        int i = own_loop(p, -1, x, n), k = own_loop(r, r == c ? p->at_loop : -1, y, n);
        if (i < 0 || k < 0) return i < 0 && k < 0;
        const kn_loop *a = &p->loops[i], *b = &r->loops[k];
        if (a->extent != b->extent || a->stride != b->stride) return false;
        if ((a->kind == KN_THREAD) != (b->kind == KN_THREAD) || (a->kind == KN_VECTOR) != (b->kind == KN_VECTOR)) return false;
        if (a->kind != KN_THREAD && (!kn_is_register(a->kind) || !kn_is_register(b->kind))) return false;
        if (a->kind == KN_THREAD && kn_own_thread(t, p, i) != (r == c ? k : kn_own_thread(t, r, k))) return false;
    }
}

static bool reads_own(const kn_tree *t, const kn_stage *p)
{
    int out = kn_stage_out(t, p);
    for (int i = 0; i < t->program->nstmts; i++) {
        const kn_expr *loads[KILN_MAX_TENSORS];
        const kn_stage *r = NULL;
        int n = kn_loads(t->program->stmts[i]->body, loads, KILN_MAX_TENSORS);
        for (int k = 0; k < t->nstages; k++)
            if (t->stages[k]->stmt == i || t->stages[k]->epilogue == i) r = t->stages[k];
        for (int l = 0; l < n && l < KILN_MAX_TENSORS; l++)
            for (int k = 0; loads[l]->u.tensor == out && k < loads[l]->nargs; k++) {
                int x = kn_stage_out_axis(t, p, k);
                int y = r && loads[l]->args[k]->op == KN_OP_AXIS && !loads[l]->padded ? kn_stage_axis_of(t, r, i, loads[l]->args[k]->u.axis) : -1;
                if (x < 0 || y < 0 || !same_loops(t, p, x, r, y)) return false;
            }
    }
    return true;
}

/* Vectors that end past their axis are taken apart lane by lane, which registers cannot be. */
static bool whole_vectors(const kn_tree *t, const kn_stage *g)
{
    const kn_loop *l = &g->loops[g->nloops - 1];
    bool whole = !g->nloops || l->kind != KN_VECTOR || (l->stride == 1 && kn_stage_stmt(t, g)->axes[l->axis].extent % l->extent == 0);
    for (int i = 0; i + 1 < g->nloops; i++)
        whole &= l->kind != KN_VECTOR || g->loops[i].axis != l->axis || g->loops[i].stride % l->extent == 0;
    return whole;
}

/* Its threads are the consumer's inside the loop; those along its sum, the fastest of them, can combine by shuffles and all have the result. */
static const char *threads_fit(const kn_tree *t, const kn_stage *p, const kn_hw *hw)
{
    const kn_stage *c = t->stages[p->at_stage];
    int threads = 0, reducing = 0;
    bool own = false;
    for (int i = 0; i < p->nloops; i++) {
        const kn_loop *l = &p->loops[i];
        int k = kn_own_thread(t, p, i);
        own |= l->shared_with < 0;
        if (l->kind != KN_THREAD) {
            if (l->shared_with < 0 && !kn_is_reduce(t, p, i) && !kn_is_register(l->kind)) return "a loop of its own is neither threads nor registers";
            continue;
        }
        if (k < 0 || c->loops[k].extent != l->extent) return "its thread loops are not those of the stage that it is computed in";
        threads++;
        if (!kn_is_reduce(t, p, i)) continue;
        reducing++;
        if (thread_inside(c, p->at_loop, threads) >= 0 || (l->extent & (l->extent - 1)))
            return "threads along the sum must be the fastest ones, and a power of two of them";
    }
    if (own && thread_inside(c, p->at_loop, threads) >= 0) return "its thread loops are not those of the stage that it is computed in";
    enum kn_dtype acc = kn_stmt_acc(kn_stage_stmt(t, p));
    bool words = kn_dtype_bytes(acc) >= 4 && kn_dtype_class(acc) != 'b';
    if (reducing > 1 || (reducing && (!words || hw->lanes != 32 || kn_stage_threads(c, hw) % 32))) return "its threads cannot combine by shuffles";
    return NULL;
}

static kiln_status check_kept(const kn_tree *t, const kn_stage *g, kiln_diag *d)
{
    for (int l = 0; l < KILN_MAX_TENSORS && l < 32; l++) {
        const kn_expr *e = g->kept >> l & 1 ? kn_stage_load(t, g, l) : NULL;
        if (!(g->kept >> l & 1)) continue;
        bool written = !e || e->u.tensor == kn_stage_out(t, g);
        for (int k = 0; k < t->nstages && e; k++)
            written |= t->stages[k]->at_stage == kn_stage_find(t, g) && kn_stage_out(t, t->stages[k]) == e->u.tensor;
        int64_t regs = 1;
        bool serial = g->tensor.intrin || kn_stage_bulk(g) || g->ncaches > 0;
        for (int i = g->kept_at + 1; i < g->nloops && e; i++) {
            const kn_loop *m = &g->loops[i];
            if (!(kn_axes_in(e) >> m->axis & 1) || m->kind == KN_THREAD) continue;
            serial |= !kn_is_register(m->kind);
            if (!kn_mul_fits(regs, m->extent, &regs)) regs = OWN_MOST + 1;
        }
        if (!written && !serial && regs <= OWN_MOST && whole_vectors(t, g)) continue;
        const char *why = written ? "it is written here" : serial ? "a loop inside that it depends on is not in registers" : "it is too much";
        return kn_fail(d, KILN_TRACE, "after the last step: statement '%s': load %d cannot be kept: %s", kn_stage_name(t, g), l, why);
    }
    return KILN_OK;
}

kiln_status kn_own_check(const kn_tree *t, const kn_stage *g, const kn_hw *hw, kiln_diag *d)
{
    if (g->kept) {
        kiln_status st = check_kept(t, g, d);
        if (st) return st;
    }
    if (g->at_stage < 0) return KILN_OK;
    const kn_stage *c = t->stages[g->at_stage];
    int64_t elems = 1;
    for (int i = 0; i <= g->at_loop; i++)
        if (c->loops[i].kind != KN_GRID && c->loops[i].kind != KN_THREAD) return bad(t, g, d, "a loop outside is neither grid nor threads");
    for (int i = 0; i < g->nloops; i++) {
        const kn_loop *l = &g->loops[i];
        bool held = l->shared_with < 0 && kn_is_register(l->kind) && !kn_is_reduce(t, g, i);
        if (held && !kn_mul_fits(elems, l->extent, &elems)) elems = OWN_MOST + 1;
    }
    bool alone = c->tensor.intrin || kn_stage_bulk(c) || c->ncaches || c->at_stage >= 0;
    if (alone || g->tensor.intrin || g->ncaches || g->kept || kn_stage_stmt(t, g)->scatter)
        return bad(t, g, d, "stages with caches, instructions or stages of their own stand alone");
    const char *why = threads_fit(t, g, hw);
    if (why) return bad(t, g, d, why);
    if (!whole_vectors(t, g) || !whole_vectors(t, c)) return bad(t, g, d, "a vector ends past its axis");
    if (elems > OWN_MOST) return bad(t, g, d, "a thread would hold too much of it");
    return reads_own(t, g) ? KILN_OK : bad(t, g, d, "a thread reads elements that another one made");
}
