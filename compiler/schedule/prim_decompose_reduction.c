/* decompose_reduction S L: the partial results of S are set to the reduction's identity at the start of loop L's body, by a nest of their own,
 * instead of by the first tile of the reduction (TensorIR). Where a tile keeps its accumulators in registers it does so anyway. */
#include "schedule/sched.h"

kiln_status kn_prim_decompose_reduction(kn_step *s)
{
    kn_stage *g = kn_step_stage(s, s->args[0]);
    int l = g ? kn_step_loop(s, g, s->args[1]) : -1;
    if (l < 0) return KILN_TRACE;
    if (kn_stage_stmt(s->t, g)->red == KN_RED_NONE) return kn_step_refuse(s, "'%s' reduces nothing", s->args[0]);
    if (s->hw->gpu) return kn_step_refuse(s, "partial results of a GPU kernel live in registers, which every tile sets itself");
    if (g->init_at >= 0) return kn_step_refuse(s, "'%s' is decomposed already", s->args[0]);
    for (int i = 0; i <= l; i++)
        if (kn_is_reduce(s->t, g, i)) return kn_step_refuse(s, "reduce loop '%s' is not inside '%s'", g->loops[i].name, s->args[1]);
    if (l + 1 < g->nloops && !kn_is_reduce(s->t, g, l + 1))
        return kn_step_refuse(s, "loop '%s' stands between '%s' and the reduction", g->loops[l + 1].name, s->args[1]);
    g->init_at = l;
    return KILN_OK;
}
