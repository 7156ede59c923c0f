/* prepack S I L1 L2 ...: a load of a constant input is read from a copy in the order of these loops, made once before the first call. */
#include "schedule/sched.h"

kiln_status kn_prim_prepack(kn_step *s)
{
    kn_stage *g = kn_step_stage(s, s->args[0]);
    if (!g) return KILN_TRACE;
    if (s->hw->gpu) return kn_step_refuse(s, "prepack is for CPU targets");
    if (g->ncaches == KN_CACHES) return kn_step_refuse(s, "too many caches");
    kn_cache c = {.scope = KN_PACKED, .at = -1};
    int64_t number;
    if (!kn_step_int(s, s->args[1], 0, KILN_MAX_TENSORS - 1, &number)) return KILN_TRACE;
    c.load = (int)number;
    const kn_expr *load = kn_stage_load(s->t, g, c.load);
    if (!load) return kn_step_refuse(s, "the body of '%s' has no load %d", s->args[0], c.load);
    const kn_tensor *x = &s->t->program->tensors[load->u.tensor];
    if (x->role != KN_INPUT || !x->constant) return kn_step_refuse(s, "'%s' is no constant input", x->name);
    /* the kernel is given the copy in its place */
    if (kn_loads_in_calls(s->t, load->u.tensor) != 1) return kn_step_refuse(s, "'%s' is read by other loads too", x->name);
    for (int i = 0; i < g->ncaches; i++)
        if (g->caches[i].load == c.load) return kn_step_refuse(s, "load %d has a cache already", c.load);
    int arg = 2;
    kiln_status bad = kn_cache_loops(s, g, &c, &arg);
    if (bad) return bad;
    if (arg < s->nargs) return kn_step_refuse(s, "'%s' is no loop", s->args[arg]);
    bad = kn_cache_fits(s, g, &c, load);
    if (bad) return bad;
    if (!kn_cache_bytes(s->t, g, &c)) return kn_step_refuse(s, "the copy of '%s' is too large", x->name);
    return kn_stage_add_cache(s->a, g, &c) ? KILN_OK : kn_fail(s->d, KILN_MEMORY, "out of memory while adding a cache");
}
