/* parallel S L: iterations of a spatial loop are tasks of the CPU's pool. */
#include "schedule/sched.h"

kiln_status kn_prim_parallel(kn_step *s)
{
    kn_stage *g = kn_step_stage(s, s->args[0]);
    if (!g) return KILN_TRACE;
    int l = kn_step_loop(s, g, s->args[1]);
    if (l < 0 || !kn_step_own_loop(s, g, l)) return KILN_TRACE;
    if (s->hw->gpu) return kn_step_refuse(s, "parallel is for CPU targets; bind the loop to the grid");
    if (kn_is_reduce(s->t, g, l)) return kn_step_refuse(s, "loop '%s' reduces; its iterations cannot be tasks", s->args[1]);
    if (g->at_stage >= 0) return kn_step_refuse(s, "'%s' is computed inside another stage", s->args[0]);
    if (g->loops[l].kind != KN_SERIAL)
        return kn_step_refuse(s, "loop '%s' is already %s", s->args[1], kn_loop_kind_text(g->loops[l].kind));
    g->loops[l].kind = KN_PARALLEL;
    return KILN_OK;
}
