/* bind S L grid|thread|warp|vthread: a loop becomes part of the block number, the number of the thread or of the warp, or a thread's registers. */
#include "schedule/sched.h"
#include <string.h>

kiln_status kn_prim_bind(kn_step *s)
{
    static const struct { const char *name; enum kn_loop_kind kind; } kinds[] = {
        { "grid", KN_GRID }, { "thread", KN_THREAD }, { "vthread", KN_VTHREAD }, { "warp", KN_THREAD },
    };
    kn_stage *g = kn_step_stage(s, s->args[0]);
    if (!g) return KILN_TRACE;
    int l = kn_step_loop(s, g, s->args[1]);
    if (l < 0 || !kn_step_own_loop(s, g, l)) return KILN_TRACE;
    kn_loop *p = &g->loops[l];
    if (!s->hw->gpu) return kn_step_refuse(s, "bind is for GPU targets; use parallel, unroll and vectorize");
    if (g->ncaches) return kn_step_refuse(s, "bind must come before the caches of '%s': threads fill them together", s->args[0]);
    if (p->kind != KN_SERIAL) return kn_step_refuse(s, "loop '%s' is already %s", p->name, kn_loop_kind_text(p->kind));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].name, s->args[2])) continue;
        if (kn_is_reduce(s->t, g, l) && kinds[i].kind != KN_THREAD)
            return kn_step_refuse(s, "loop '%s' reduces; it can only be bound to threads, with rfactor", p->name);
        if (kinds[i].kind == KN_VTHREAD && p->extent > 64)
            return kn_step_refuse(s, "loop '%s' has extent %lld; at most 64 vthreads", p->name, (long long)p->extent);
        p->kind = kinds[i].kind;
        p->warp = i == 3;
        if (p->warp && kn_is_reduce(s->t, g, l)) return kn_step_refuse(s, "loop '%s' reduces; a warp keeps its own results", p->name);
        return KILN_OK;
    }
    return kn_step_refuse(s, "'%s' is none of grid, thread, warp, vthread", s->args[2]);
}
