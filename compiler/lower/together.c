/* Stages that share an axis whose turns do not come out even (the columns of a softmax along an outer axis): the last turn of all is moved back
 * together, so that it ends where the axis ends. It computes some columns a second time, to the same bits, instead of going element by element. */
#include "lower/lower.h"

/* Elements of the axis that the loops go over which are not the consumer's; 0: some of them are no part of the register tile, or leave gaps. */
static int64_t own_span(const kn_sg *sg, const kn_stage *g, int tile, int axis)
{
    int64_t n = 1;
    for (int i = g->nloops - 1; i >= 0; i--) {
        const kn_loop *l = &g->loops[i];
        bool outer = g == sg->g ? i < sg->tile : l->shared_with >= 0;
        if (l->axis != axis || outer) continue;
        if (i < tile || l->stride != n) return 0;
        n *= l->extent;
    }
    return n;
}

/* The axis of attached stage p that all outer loops of the axis belong to; -1: there is none. */
static int axis_of(const kn_sg *sg, const kn_stage *p, int axis)
{
    int found = -1;
    for (int i = 0; i < sg->tile; i++) {
        int at = -1;
        if (sg->g->loops[i].axis != axis) continue;
        for (int k = 0; k < p->nloops; k++)
            if (p->loops[k].shared_with == i) at = p->loops[k].axis;
        if (at < 0 || (found >= 0 && at != found)) return -1;
        found = at;
    }
    return found;
}

static bool pads(const kn_stmt *s)
{
    const kn_expr *loads[KILN_MAX_TENSORS];
    int n = kn_loads(s->body, loads, KILN_MAX_TENSORS);
    for (int i = 0; i < n && i < KILN_MAX_TENSORS; i++)
        if (loads[i]->padded) return true;
    return n > KILN_MAX_TENSORS;
}

/* Nothing in it depends on where a turn begins; what finishes the results of an attached one does not either. */
static bool is_plain(const kn_lw *w, const kn_stage *g)
{
    const kn_stmt *s = w->p->program->stmts[g->stmt];
    bool finished = g->epilogue < 0 || (g->at_stage >= 0 && !pads(w->p->program->stmts[g->epilogue]));
    return !g->ncaches && !g->tensor.intrin && finished && !s->scatter && !pads(s);
}

/* An attached stage goes over as much of the axis in each turn. */
static bool follows(const kn_lw *w, const kn_sg *sg, const kn_stage *p, int axis, int64_t span)
{
    const kn_stmt *s = w->p->program->stmts[p->stmt];
    int own = axis_of(sg, p, axis);
    return own >= 0 && s->axes[own].extent == sg->s->axes[axis].extent && is_plain(w, p) &&
           own_span(sg, p, kn_stage_register_tile(s, p), own) == span;
}

void kn_lw_move_back(kn_lw *w, kn_sg *sg, int loop)
{
    int axis = sg->g->loops[loop].axis;
    bool some = false;
    if (w->hw->gpu || sg->s->red != KN_RED_NONE || kn_sg_axis_cover(sg, axis) == sg->s->axes[axis].extent || !is_plain(w, sg->g)) return;
    for (int i = loop + 1; i < sg->tile; i++)
        if (sg->g->loops[i].axis == axis) return;
    int64_t span = own_span(sg, sg->g, sg->tile, axis);
    if (span < 2 || span > sg->s->axes[axis].extent) return;
    for (int k = 0; k < w->t->nstages; k++) {
        const kn_stage *p = w->t->stages[k];
        bool deeper = p->at_stage >= 0 && p->at_stage != sg->index && w->t->stages[p->at_stage]->at_stage == sg->index;
        if (deeper) return; /* attached to what is attached */
        if (p->at_stage != sg->index) continue;
        some = true;
        if (p->at_loop < loop || !follows(w, sg, p, axis, span)) return;
    }
    if (!some) return;
    kn_expr *begin = kn_lw_int(w, 0);
    for (int i = 0; i <= loop; i++) {
        const kn_loop *l = &sg->g->loops[i];
        if (l->axis == axis) begin = kn_bin(w->a, KN_OP_ADD, begin, kn_bin(w->a, KN_OP_MUL, sg->val[i], kn_lw_int(w, l->stride)));
    }
    sg->base[axis] = kn_lw_let(w, "from", kn_bin(w->a, KN_OP_MIN, begin, kn_lw_int(w, sg->s->axes[axis].extent - span)));
    sg->clipped[axis] = true;
}
