/* vectorize S L: the innermost loop becomes the lanes of a vector. */
#include "schedule/sched.h"

kiln_status kn_prim_vectorize(kn_step *s)
{
    kn_stage *g = kn_step_stage(s, s->args[0]);
    if (!g) return KILN_TRACE;
    int l = kn_step_loop(s, g, s->args[1]);
    if (l < 0 || !kn_step_own_loop(s, g, l)) return KILN_TRACE;
    if (l != g->nloops - 1) return kn_step_refuse(s, "loop '%s' is not the innermost", s->args[1]);
    int64_t n = g->loops[l].extent;
    const kn_stmt *st = kn_stage_stmt(s->t, g);
    if (s->hw->gpu && st->red != KN_RED_NONE && !kn_is_reduce(s->t, g, l) && st->axes[g->loops[l].axis].extent % n)
        return kn_step_refuse(s, "'%s' reduces, and %lld does not divide the %lld of axis '%s': on a GPU its results move in whole vectors",
                              s->args[0], (long long)n, (long long)st->axes[g->loops[l].axis].extent, st->axes[g->loops[l].axis].name);
    if (n < 2 || n > 64 || (n & (n - 1)))
        return kn_step_refuse(s, "loop '%s' has extent %lld; a vector has 2, 4, ... 64 lanes", s->args[1], (long long)n);
    for (int i = 0; i < g->ncaches; i++)
        if (g->caches[i].at == l && g->caches[i].copies) return kn_step_refuse(s, "a cache with copies is filled at '%s'", s->args[1]);
    if (g->loops[l].kind != KN_SERIAL)
        return kn_step_refuse(s, "loop '%s' is already %s", s->args[1], kn_loop_kind_text(g->loops[l].kind));
    g->loops[l].kind = KN_VECTOR;
    g->loops[l].rfactor = kn_is_reduce(s->t, g, l);
    return KILN_OK;
}
