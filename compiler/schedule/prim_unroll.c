/* unroll S L: the loop is written out with constants. */
#include "schedule/sched.h"

kiln_status kn_prim_unroll(kn_step *s)
{
    kn_stage *g = kn_step_stage(s, s->args[0]);
    if (!g) return KILN_TRACE;
    int l = kn_step_loop(s, g, s->args[1]);
    if (l < 0 || !kn_step_own_loop(s, g, l)) return KILN_TRACE;
    if (g->loops[l].extent > KN_MOST_UNROLLED)
        return kn_step_refuse(s, "loop '%s' has extent %lld; at most %d iterations are written out", s->args[1], (long long)g->loops[l].extent,
                              KN_MOST_UNROLLED);
    for (int i = 0; i < g->ncaches; i++)
        if (g->caches[i].at == l && g->caches[i].copies) return kn_step_refuse(s, "a cache with copies is filled at '%s'", s->args[1]);
    if (g->loops[l].kind != KN_SERIAL)
        return kn_step_refuse(s, "loop '%s' is already %s", s->args[1], kn_loop_kind_text(g->loops[l].kind));
    g->loops[l].kind = KN_UNROLL;
    return KILN_OK;
}
