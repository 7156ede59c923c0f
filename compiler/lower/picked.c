/* Elements that are copied one by one from where they lie apart (a window's weights on their way into an instruction's tiles): to count the loop
 * takes longer than the copies themselves, so that the toolchain is asked to write its steps out (3x3 windows of 256 channels in halves: 1.4 times
 * as fast where the weights are packed as part of the call). */
#include "lower/lower.h"

enum { STEPS = 16 };

/* The loop goes on in steps of one on both sides: what copies runs is not slow. */
static bool in_runs(const kn_ls *loop, const kn_ls *s)
{
    return kn_lw_unit_stride(s->index, loop->var) && kn_lw_unit_stride(s->value->args[0], loop->var);
}

static bool picks(const kn_ls *loop)
{
    const kn_ls *s = loop->body;
    return s && !s->next && s->kind == KN_LS_STORE && s->value->op == KN_OP_READ && s->value->lanes <= 1 && !in_runs(loop, s);
}

void kn_lw_picked(kn_lw *w, kn_ls **list)
{
    for (kn_ls *s = *list; s && !w->status; s = s->next) {
        kn_lw_picked(w, &s->body);
        kn_lw_picked(w, &s->other);
        if (s->kind != KN_LS_FOR || s->unroll || s->hi->op != KN_OP_CONST_I || s->lo->op != KN_OP_CONST_I || !picks(s)) continue;
        int64_t steps = s->hi->u.i - s->lo->u.i;
        if (steps > 1) s->unroll = (int)(steps < STEPS ? steps : STEPS);
    }
}
