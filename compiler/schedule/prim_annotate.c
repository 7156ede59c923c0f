/* annotate S L KEY VALUE: a hint for the toolchain. unroll N: N iterations of the serial loop L are unrolled. */
#include "schedule/sched.h"
#include <string.h>

kiln_status kn_prim_annotate(kn_step *s)
{
    kn_stage *g = kn_step_stage(s, s->args[0]);
    int l = g ? kn_step_loop(s, g, s->args[1]) : -1;
    int64_t n;
    if (l < 0) return KILN_TRACE;
    if (strcmp(s->args[2], "unroll")) {
        kn_step_refuse(s, "no annotation '%s'", s->args[2]);
        kn_hint(s->d, "unroll N");
        return KILN_TRACE;
    }
    if (!kn_step_int(s, s->args[3], 1, 64, &n)) return KILN_TRACE;
    if (!kn_step_own_loop(s, g, l)) return KILN_TRACE;
    if (g->loops[l].kind != KN_SERIAL)
        return kn_step_refuse(s, "loop '%s' is %s, not serial", s->args[1], kn_loop_kind_text(g->loops[l].kind));
    g->loops[l].unroll = (int)n;
    return KILN_OK;
}
