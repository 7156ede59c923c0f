/* Rows that stages computed at one loop read one after the other, as softmax reads them for their maximum and again for their exponentials: only the
 * first of these stages waits for memory, and memory waits for the others. The last one asks for what the first will read in the next iteration. */
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

/* Before stage k, or behind it, a stage computed at the same loop, or the one whose loop it is, reads the tensor too. */
static bool read_beside(const kn_lw *w, int k, int consumer, int loop, int tensor, bool before)
{
    for (int i = 0; i < w->t->nstages; i++) {
        const kn_stage *g = w->t->stages[i];
        bool here = i == consumer || (g->at_stage == consumer && g->at_loop == loop);
        if (i != k && here && (before ? i < k : i > k) && reads_of(w, g, tensor)) return true;
    }
    return false;
}

/* The loop of stages that stage k belongs to; -1: none is computed with it. */
static int loop_of(const kn_lw *w, int k, int *consumer)
{
    int loop = w->t->stages[k]->at_loop;
    *consumer = w->t->stages[k]->at_stage;
    if (*consumer >= 0) return loop;
    *consumer = k;
    loop = -1;
    for (int i = 0; i < w->t->nstages; i++) {
        if (w->t->stages[i]->at_stage != k) continue;
        if (loop >= 0 && w->t->stages[i]->at_loop != loop) return -1;
        loop = w->t->stages[i]->at_loop;
    }
    return loop;
}

void kn_lw_find_next_rows(const kn_lw *w, kn_sg *sg)
{
    int consumer, loop = w->hw->gpu ? -1 : loop_of(w, sg->index, &consumer);
    sg->nexts = 0;
    sg->attached = loop;
    for (int i = 0; i < sg->nloads && loop >= 0; i++) {
        int tensor = sg->loads[i]->u.tensor;
        if (w->box[tensor].on || sg->loads[i]->padded || reads_of(w, sg->g, tensor) != 1) continue;
        if (!read_beside(w, sg->index, consumer, loop, tensor, true) || read_beside(w, sg->index, consumer, loop, tensor, false)) continue;
        sg->nexts |= 1u << i;
    }
}

/* Elements between what is read in this iteration of the innermost loop over rows that moves the load, and in the next one; 0: none moves it. */
static int64_t step_of(const kn_sg *sg, const kn_expr *at)
{
    const kn_sg *rows = sg->reader ? sg->reader : sg;
    for (int i = rows->g->nloops - 1; i >= 0; i--) {
        bool row = rows->g->at_stage >= 0 ? rows->g->loops[i].shared_with >= 0 : i <= rows->attached;
        int64_t by;
        if (!row || !rows->val[i] || rows->val[i]->op != KN_OP_VAR) continue;
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
