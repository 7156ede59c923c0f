/* double_buffer S I: the shared cache of load I has two halves. While the block computes with one, its threads fill the other for the next
 * iteration of the loop that the cache is filled at, and one barrier an iteration is enough (TensorIR's double_buffer; a pipeline of two stages). */
#include "schedule/sched.h"

kiln_status kn_prim_double_buffer(kn_step *s)
{
    kn_stage *g = kn_step_stage(s, s->args[0]);
    int64_t load;
    if (!g || !kn_step_int(s, s->args[1], 0, KILN_MAX_TENSORS - 1, &load)) return KILN_TRACE;
    if (!s->hw->gpu) return kn_step_refuse(s, "double_buffer is for GPU targets: a core's caches prefetch by themselves");
    for (int i = 0; i < g->ncaches; i++) {
        kn_cache *c = &g->caches[i];
        const kn_loop *l = &g->loops[c->at];
        if (c->load != load) continue;
        if (c->twice) return kn_step_refuse(s, "the cache of load %lld has two halves already", (long long)load);
        if (c->region) return kn_step_refuse(s, "a region cache has one place at a time; name the loops of load %lld", (long long)load);
        if (l->kind != KN_SERIAL)
            return kn_step_refuse(s, "loop '%s' is %s: there is no next iteration to fill for", l->name, kn_loop_kind_text(l->kind));
        c->twice = true;
        if (!kn_cache_bytes(s->t, g, c)) return kn_step_refuse(s, "the cache of load %lld is too large", (long long)load);
        return KILN_OK;
    }
    return kn_step_refuse(s, "load %lld of '%s' has no cache", (long long)load, s->args[0]);
}
