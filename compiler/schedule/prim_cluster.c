/* cluster S L N: N neighbouring blocks of grid loop L run together. Of a cache that does not depend on L each of them fetches an N-th, for all. */
#include "schedule/sched.h"

kiln_status kn_prim_cluster(kn_step *s)
{
    kn_stage *g = kn_step_stage(s, s->args[0]);
    int l = g ? kn_step_loop(s, g, s->args[1]) : -1;
    int64_t n;
    if (l < 0 || !kn_step_int(s, s->args[2], 2, 8, &n)) return KILN_TRACE;
    if (n & (n - 1)) return kn_step_refuse(s, "a cluster has 2, 4 or 8 blocks, not %lld", (long long)n);
    if (!kn_stage_bulk(g)) return kn_step_refuse(s, "'%s' has no cache that is filled by bulk copies", s->args[0]);
    if (g->cluster) return kn_step_refuse(s, "'%s' has clusters already", s->args[0]);
    if (g->loops[l].kind != KN_GRID) return kn_step_refuse(s, "loop '%s' is %s, not bound to grid", s->args[1], kn_loop_kind_text(g->loops[l].kind));
    g->cluster = (int)n;
    g->cluster_loop = l;
    return KILN_OK;
}
