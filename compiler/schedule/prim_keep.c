/* keep S I L: GPU; what load I of S reads is read once, at the start of block or thread loop L, into registers of the threads. S and what is computed
 * at L take from there what they read of it in the same thread. */
#include "schedule/sched.h"

kiln_status kn_prim_keep(kn_step *s)
{
    kn_stage *g = kn_step_stage(s, s->args[0]);
    int64_t load;
    if (!g || !kn_step_int(s, s->args[1], 0, KILN_MAX_TENSORS - 1, &load)) return KILN_TRACE;
    int at = kn_step_loop(s, g, s->args[2]);
    if (at < 0) return KILN_TRACE;
    const kn_expr *e = kn_stage_load(s->t, g, (int)load), *inner[2];
    if (!e) return kn_step_refuse(s, "the body of '%s' has no load %lld", s->args[0], (long long)load);
    if (!s->hw->gpu) return kn_step_refuse(s, "keep is for GPU targets");
    if (e->padded || kn_loads(e, inner, 2) > 1) return kn_step_refuse(s, "load %lld is padded, or at an index read from data", (long long)load);
    if (g->loops[at].kind != KN_GRID && g->loops[at].kind != KN_THREAD)
        return kn_step_refuse(s, "loop '%s' is bound to neither grid nor thread", s->args[2]);
    if (g->kept && g->kept_at != at) return kn_step_refuse(s, "another load is kept at '%s'", g->loops[g->kept_at].name);
    for (int i = 0; i < g->ncaches; i++)
        if (g->caches[i].load == load) return kn_step_refuse(s, "load %lld has a cache already", (long long)load);
    g->kept |= 1u << load;
    g->kept_at = at;
    return KILN_OK;
}
