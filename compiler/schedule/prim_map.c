/* map S INTRIN MAPPING: S is computed by instruction INTRIN through a mapping of its loops, "I=S0,S2;J=S1;R=R0": the loops of every axis of the
 * instruction are fused and cut at its extent, those around it become tasks or blocks, and what is inside is tensorized. On a CPU the operands
 * are packed first, where the program has room for that. */
#include "intrin/map.h"
#include "schedule/sched.h"

kn_stage *kn_step_maps(kn_step *s, const char *name, const char *instruction, kn_maps **out)
{
    kiln_diag why = { 0 };
    kn_stage *g = kn_step_fresh(s, name);
    const kn_intrin *it = g ? kn_intrin_find(s->hw, instruction) : NULL;
    if (!g) return NULL;
    if (!it) return kn_step_refuse(s, "the target has no instruction '%s'", instruction), NULL;
    kiln_status bad = kn_maps_of(s->a, s->t->program, g->stmt, it, out, &why);
    if (bad == KILN_MEMORY || bad == KILN_STOPPED) return *s->d = why, NULL;
    if (bad) return kn_step_refuse(s, "%s", why.message), NULL;
    return g;
}

kiln_status kn_prim_map(kn_step *s)
{
    kn_maps *list;
    const kn_maps *m;
    kn_mapping x;
    kiln_diag why = { 0 };
    if (!kn_step_maps(s, s->args[0], s->args[1], &list)) return s->d->status;
    if (kn_map_find(list, s->args[2], &m, &x, &why)) return kn_step_refuse(s, "%s", why.message);
    kn_tree *t;
    for (int how = s->hw->gpu ? KN_MAP_GATHERED : KN_MAP_TILED; how >= KN_MAP_GATHERED; how--) {
        kiln_bytes steps = kn_map_trace(s->a, m, &x, s->hw, (enum kn_map_packing)how);
        if (!steps.p) return kn_fail(s->d, KILN_MEMORY, "out of memory while mapping loops");
        if (how == KN_MAP_GATHERED) return kn_step_run(s, steps);
        kiln_status bad = kn_trace_step(s->a, s->t, s->hw, steps, &t, &why);
        if (bad == KILN_MEMORY || bad == KILN_STOPPED) return *s->d = why, bad;
        if (!bad) break;
    }
    *s->t = *t;
    return KILN_OK;
}
