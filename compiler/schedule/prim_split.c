/* split S A f1 [f2 ...] [exact]: axis A becomes loops A.0 .. A.n; what reaches past the axis is guarded, unless `exact` rules it out. */
#include "schedule/sched.h"
#include <stdio.h>
#include <string.h>

kiln_status kn_prim_split(kn_step *s)
{
    kn_stage *g = kn_step_stage(s, s->args[0]);
    if (!g) return KILN_TRACE;
    int axis = kn_step_axis(s, g, s->args[1]);
    if (axis < 0) return KILN_TRACE;
    bool exact = !strcmp(s->args[s->nargs - 1], "exact");
    int n = s->nargs - 2 - exact, at = -1, found = 0;
    if (n < 1) return kn_step_refuse(s, "no factors");
    for (int i = 0; i < g->nloops; i++)
        if (g->loops[i].axis == axis) {
            at = i;
            found++;
        }
    if (found != 1) return kn_step_refuse(s, "axis '%s' is already split; give all factors in one step", s->args[1]);
    if (!kn_step_nest_free(s, g)) return KILN_TRACE;
    if (g->loops[at].kind != KN_SERIAL || g->loops[at].unroll || g->loops[at].rfactor)
        return kn_step_refuse(s, "split must come before the annotations of loop '%s'", g->loops[at].name);
    if (g->nloops + n > KILN_MAX_LOOPS) return kn_step_refuse(s, "more than %d loops", KILN_MAX_LOOPS);
    int64_t factor[KN_STEP_ARGS], prod = 1;
    for (int i = 0; i < n; i++) {
        if (!kn_step_int(s, s->args[2 + i], 1, KILN_MAX_EXTENT, &factor[i])) return KILN_TRACE;
        if (!kn_mul_fits(prod, factor[i], &prod) || prod > KILN_MAX_EXTENT)
            return kn_step_refuse(s, "the factors of axis '%s' multiply to more than %d", s->args[1], KILN_MAX_EXTENT);
    }
    const kn_axis *x = &kn_stage_stmt(s->t, g)->axes[axis];
    if (exact && x->extent % prod)
        return kn_step_refuse(s, "%lld does not divide the %lld of axis '%s'", (long long)prod, (long long)x->extent, s->args[1]);
    memmove(&g->loops[at + 1 + n], &g->loops[at + 1], sizeof(kn_loop) * (size_t)(g->nloops - at - 1));
    g->nloops += n;
    int64_t stride = 1;
    for (int i = n; i >= 0; i--) {
        kn_loop *l = &g->loops[at + i];
        *l = g->loops[at];
        snprintf(l->name, sizeof l->name, "%.63s.%d", x->name, i & 63);
        l->extent = i ? factor[i - 1] : kn_ceil_div(x->extent, prod);
        l->stride = stride;
        if (i) stride *= factor[i - 1];
    }
    return KILN_OK;
}
