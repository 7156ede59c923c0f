/* double_buffer S I [N [async|bulk]]: the shared cache of load I has N copies, 2 unless said. While the block computes with one, its threads fill the
 * others for the next iterations of the loop that the cache is filled at, and one barrier an iteration is enough (TensorIR's double_buffer and
 * software_pipeline: a pipeline of N stages). */
#include "schedule/sched.h"
#include <string.h>

kiln_status kn_prim_double_buffer(kn_step *s)
{
    kn_stage *g = kn_step_stage(s, s->args[0]);
    int64_t load, copies = 2;
    if (!g || !kn_step_int(s, s->args[1], 0, KILN_MAX_TENSORS - 1, &load)) return KILN_TRACE;
    if (s->nargs > 2 && !kn_step_int(s, s->args[2], 2, 16, &copies)) return KILN_TRACE;
    bool bulk = s->nargs > 3 && !strcmp(s->args[3], "bulk");
    if (s->nargs > 3 && !bulk && strcmp(s->args[3], "async")) return kn_step_refuse(s, "'%s' is not async or bulk", s->args[3]);
    if (!s->hw->gpu) return kn_step_refuse(s, "double_buffer is for GPU targets: a core's caches prefetch by themselves");
    for (int i = 0; i < g->ncaches; i++) {
        kn_cache *c = &g->caches[i];
        const kn_loop *l = &g->loops[c->at];
        if (c->load != load) continue;
        if (c->copies) return kn_step_refuse(s, "the cache of load %lld has %d copies already", (long long)load, c->copies);
        if (c->region) return kn_step_refuse(s, "a region cache has one place at a time; name the loops of load %lld", (long long)load);
        if (l->kind != KN_SERIAL)
            return kn_step_refuse(s, "loop '%s' is %s: there is no next iteration to fill for", l->name, kn_loop_kind_text(l->kind));
        for (int k = 0; k < g->ncaches && s->nargs > 3; k++) {
            const kn_cache *o = &g->caches[k];
            if (o->async && o->at == c->at && o->copies != copies)
                return kn_step_refuse(s, "the asynchronous cache of load %d has %d copies; those of one loop have the same number", o->load,
                                      o->copies);
        }
        c->copies = (int)copies;
        c->async = s->nargs > 3;
        c->bulk = bulk;
        if (bulk) c->address = kn_bulk_address(s->a, s->t, g, (int)load);
        if (bulk && !c->address) c->window = kn_bulk_window(s->a, s->t, g, (int)load);
        if (!kn_cache_bytes(s->t, g, c)) return kn_step_refuse(s, "the cache of load %lld is too large", (long long)load);
        return KILN_OK;
    }
    return kn_step_refuse(s, "load %lld of '%s' has no cache", (long long)load, s->args[0]);
}
