/* set_scope S I SCOPE: the memory that the cache of load I lies in: scratch on a CPU, shared on a GPU (TensorIR). */
#include "schedule/sched.h"
#include <string.h>

kiln_status kn_prim_set_scope(kn_step *s)
{
    kn_stage *g = kn_step_stage(s, s->args[0]);
    int64_t load;
    if (!g || !kn_step_int(s, s->args[1], 0, KILN_MAX_TENSORS - 1, &load)) return KILN_TRACE;
    bool scratch = !strcmp(s->args[2], "scratch");
    if (!scratch && strcmp(s->args[2], "shared")) return kn_step_refuse(s, "'%s' is neither scratch nor shared", s->args[2]);
    if (scratch == s->hw->gpu) return kn_step_refuse(s, "%s targets have %s", s->hw->gpu ? "GPU" : "CPU", s->hw->gpu ? "shared" : "scratch");
    for (int i = 0; i < g->ncaches; i++) {
        if (g->caches[i].load != load || g->caches[i].scope == KN_PACKED) continue;
        g->caches[i].scope = scratch ? KN_SCRATCH : KN_SHARED;
        return KILN_OK;
    }
    return kn_step_refuse(s, "load %lld of '%s' has no cache", (long long)load, s->args[0]);
}
