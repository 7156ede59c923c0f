/* reorder S L1 L2 | L3 ...: the order of all loops of S, cut into tiles by '|'. */
#include "schedule/sched.h"
#include <string.h>

kiln_status kn_prim_reorder(kn_step *s)
{
    kn_stage *g = kn_step_stage(s, s->args[0]);
    if (!g) return KILN_TRACE;
    if (!kn_step_nest_free(s, g)) return KILN_TRACE;
    kn_loop order[KILN_MAX_LOOPS];
    bool seen[KILN_MAX_LOOPS] = { false };
    int n = 0, tile = 0;
    for (int i = 1; i < s->nargs; i++) {
        if (!strcmp(s->args[i], "|")) {
            tile++;
            continue;
        }
        int l = kn_step_loop(s, g, s->args[i]);
        if (l < 0) return KILN_TRACE;
        if (seen[l]) return kn_step_refuse(s, "loop '%s' is named twice", s->args[i]);
        seen[l] = true;
        order[n] = g->loops[l];
        order[n++].tile = tile;
    }
    for (int i = 0; i < g->nloops; i++)
        if (!seen[i]) return kn_step_refuse(s, "loop '%s' is missing; all loops of '%s' must be named", g->loops[i].name, s->args[0]);
    memcpy(g->loops, order, sizeof(kn_loop) * (size_t)n);
    return KILN_OK;
}
