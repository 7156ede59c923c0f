/* swizzle S I [panels]: runs of 16 bytes of the shared cache of load I change places inside their rows, so that a column of a tile and a row of
 * it are both free of bank conflicts without padding; panels: of rows that are first cut at 128 bytes. */
#include "schedule/sched.h"
#include <string.h>

kiln_status kn_prim_swizzle(kn_step *s)
{
    kn_stage *g = kn_step_stage(s, s->args[0]);
    int64_t load;
    if (!g || !kn_step_int(s, s->args[1], 0, KILN_MAX_TENSORS - 1, &load)) return KILN_TRACE;
    if (s->nargs > 2 && strcmp(s->args[2], "panels")) return kn_step_refuse(s, "'%s' is not panels", s->args[2]);
    if (!s->hw->gpu) return kn_step_refuse(s, "swizzle is for GPU targets");
    for (int i = 0; i < g->ncaches; i++) {
        kn_cache *c = &g->caches[i];
        kn_swizzle w;
        if (c->load != load) continue;
        if (c->swizzle) return kn_step_refuse(s, "the cache of load %lld is swizzled already", (long long)load);
        if (c->pad || c->region) return kn_step_refuse(s, "the cache of load %lld is %s; only whole rows can be swizzled", (long long)load,
                                                       c->pad ? "padded" : "a region");
        c->panels = s->nargs > 2;
        if (!kn_swizzle_of(s->t, g, c, &w))
            return kn_step_refuse(s, "rows of the cache of load %lld are of no 64, 128, 256, ... bytes that its loops end at", (long long)load);
        c->swizzle = true;
        return KILN_OK;
    }
    return kn_step_refuse(s, "load %lld of '%s' has no cache", (long long)load, s->args[0]);
}
