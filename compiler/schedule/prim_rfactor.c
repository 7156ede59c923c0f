/* rfactor S L: every iteration of a reduce loop keeps an accumulator of its own. */
#include "schedule/sched.h"

kiln_status kn_prim_rfactor(kn_step *s)
{
    kn_stage *g = kn_step_stage(s, s->args[0]);
    if (!g) return KILN_TRACE;
    int l = kn_step_loop(s, g, s->args[1]);
    if (l < 0 || !kn_step_own_loop(s, g, l)) return KILN_TRACE;
    if (!kn_is_reduce(s->t, g, l)) return kn_step_refuse(s, "loop '%s' does not reduce", s->args[1]);
    g->loops[l].rfactor = true;
    return KILN_OK;
}
