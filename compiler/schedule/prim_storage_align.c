/* storage_align S I f o: the rows of the cache of load I start o elements behind a multiple of f, against bank conflicts (TensorIR). */
#include "schedule/sched.h"

kiln_status kn_prim_storage_align(kn_step *s)
{
    kn_stage *g = kn_step_stage(s, s->args[0]);
    int64_t load, factor, offset;
    if (!g || !kn_step_int(s, s->args[1], 0, KILN_MAX_TENSORS - 1, &load) || !kn_step_int(s, s->args[2], 1, 4096, &factor) ||
        !kn_step_int(s, s->args[3], 0, factor - 1, &offset))
        return KILN_TRACE;
    for (int i = 0; i < g->ncaches; i++) {
        kn_cache *c = &g->caches[i];
        if (c->load != load || c->scope == KN_PACKED) continue;
        int64_t row = kn_cache_row(s->t, g, c);
        c->pad = ((offset - row) % factor + factor) % factor;
        if (!row || !kn_cache_bytes(s->t, g, c)) return kn_step_refuse(s, "the cache of load %lld is too large", (long long)load);
        return KILN_OK;
    }
    return kn_step_refuse(s, "load %lld of '%s' has no cache", (long long)load, s->args[0]);
}
