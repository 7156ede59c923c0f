/* Rows that stages computed at one loop read one after the other, as softmax reads them for their maximum and again for their exponentials: only the
 * first of these stages waits for memory, and memory waits for the others. The last of them asks for what the first will read in the next iteration;
 * not the stage whose loop it is, which has results to bring to memory meanwhile. */
#include "lower/lower.h"

static int reads_in(const kn_stmt *s, int tensor)
{
    const kn_expr *loads[KILN_MAX_TENSORS];
    int n = kn_loads(s->body, loads, KILN_MAX_TENSORS), times = 0;
    for (int i = 0; i < n && i < KILN_MAX_TENSORS; i++) times += loads[i]->u.tensor == tensor;
    return times;
}

static int reads_of(const kn_lw *w, const kn_stage *g, int tensor)
{
    int n = reads_in(w->p->program->stmts[g->stmt], tensor);
    return g->epilogue >= 0 ? n + reads_in(w->p->program->stmts[g->epilogue], tensor) : n;
}

/* Before stage k, or behind it, a stage computed at the same loop reads the tensor too. */
static bool read_beside(const kn_lw *w, int k, int consumer, int loop, int tensor, bool before)
{
    for (int i = 0; i < w->t->nstages; i++) {
        const kn_stage *g = w->t->stages[i];
        if (g->at_stage == consumer && g->at_loop == loop && (before ? i < k : i > k) && reads_of(w, g, tensor)) return true;
    }
    return false;
}

/* The first read of its tensor, of which all others are of the same element. */
static bool read_at_once(const kn_lw *w, const kn_sg *sg, int load)
{
    int same = 0;
    for (int i = 0; i < sg->nloads; i++) {
        if (sg->loads[i]->u.tensor != sg->loads[load]->u.tensor) continue;
        if (i < load || !kn_expr_equal(sg->loads[i], sg->loads[load])) return false;
        same++;
    }
    return same == reads_of(w, sg->g, sg->loads[load]->u.tensor);
}

/* Rows of some pages, each a run of its own, come by themselves where prefetchers follow runs and little is computed meanwhile (a Zen 4, without,
 * layer norm of 4096 to 30000 columns: 1.03 to 1.2 times as fast, of fewer 0.85 to 1.0; softmax 0.78 to 1.04). */
static bool come_by_themselves(const kn_lw *w, const kn_sg *sg, int load)
{
    enum { SOME = 16384 };
    int64_t bytes = kn_dtype_bytes(sg->loads[load]->dtype);
    for (int i = sg->s->nspatial; i < sg->s->naxes; i++) bytes *= sg->s->axes[i].extent;
    return w->hw->follows_runs && bytes >= SOME && !kn_lw_long_functions(sg->s->body);
}

void kn_lw_find_next_rows(const kn_lw *w, kn_sg *sg)
{
    int consumer = sg->g->at_stage, loop = sg->g->at_loop;
    sg->nexts = 0;
    for (int i = 0; i < sg->nloads && consumer >= 0 && !w->hw->gpu; i++) {
        int tensor = sg->loads[i]->u.tensor;
        if (w->box[tensor].on || sg->loads[i]->padded || !read_at_once(w, sg, i) || come_by_themselves(w, sg, i)) continue;
        if (!read_beside(w, sg->index, consumer, loop, tensor, true) || read_beside(w, sg->index, consumer, loop, tensor, false)) continue;
        sg->nexts |= 1u << i;
    }
}

/* Elements between what is read in this iteration of the innermost loop over rows that moves the load, and in the next one; 0: none moves it. */
static int64_t step_of(const kn_sg *sg, const kn_expr *at)
{
    const kn_sg *rows = sg->reader ? sg->reader : sg;
    for (int i = rows->g->nloops - 1; i >= 0; i--) {
        int64_t by;
        if (rows->g->loops[i].shared_with < 0 || !rows->val[i] || rows->val[i]->op != KN_OP_VAR) continue;
        if (!kn_lw_coefficient(at, rows->val[i]->u.var, &by)) return 0;
        if (by) return by;
    }
    return 0;
}

void kn_lw_next_row(kn_lw *w, const kn_sg *sg, int load, int buffer, kn_expr *at)
{
    int64_t by = sg->nexts >> load & 1 ? step_of(sg, at) : 0;
    if (by > 0) kn_lw_prefetch(w, buffer, kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, at, kn_lw_int(w, by))), false);
}
