/* blockize S L: loop L and those inside it become a tile of their own, the part that an instruction or a micro-kernel may stand for. */
#include "schedule/sched.h"

kiln_status kn_prim_blockize(kn_step *s)
{
    kn_stage *g = kn_step_stage(s, s->args[0]);
    int l = g ? kn_step_loop(s, g, s->args[1]) : -1;
    if (l < 0) return KILN_TRACE;
    if (l > 0 && g->loops[l].tile != g->loops[l - 1].tile) return kn_step_refuse(s, "loop '%s' begins a tile already", s->args[1]);
    if (l == 0) return kn_step_refuse(s, "loop '%s' is the outermost: the whole nest is one block", s->args[1]);
    for (int i = l; i < g->nloops; i++) g->loops[i].tile++;
    return KILN_OK;
}
