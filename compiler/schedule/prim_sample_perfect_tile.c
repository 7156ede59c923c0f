/* sample_perfect_tile NAME S A n most [: f1 ... fn]: n factors whose product is the extent of axis A, the innermost at most `most`; they are
 * $NAME.0 .. $NAME.(n-1), outer to inner. Without a decision: all but the innermost stay 1 inside, the innermost is the largest that fits. */
#include "schedule/sched.h"

kiln_status kn_prim_sample_perfect_tile(kn_step *s)
{
    kn_stage *g = kn_step_stage(s, s->args[1]);
    int axis = g ? kn_step_axis(s, g, s->args[2]) : -1, at = kn_step_decision(s);
    int64_t n, most, f[16], product = 1;
    if (axis < 0 || !kn_step_int(s, s->args[3], 2, 16, &n) || !kn_step_int(s, s->args[4], 1, KILN_MAX_EXTENT, &most)) return KILN_TRACE;
    int64_t extent = kn_stage_stmt(s->t, g)->axes[axis].extent;
    if (at != 5 || (at < s->nargs && s->nargs - at - 1 != n)) return kn_step_refuse(s, "after ':' stand %lld factors", (long long)n);
    for (int i = 0; i < n; i++) {
        f[i] = 1;
        if (at < s->nargs && !kn_step_int(s, s->args[at + 1 + i], 1, KILN_MAX_EXTENT, &f[i])) return KILN_TRACE;
        if (!kn_mul_fits(product, f[i], &product)) return kn_step_refuse(s, "the factors overflow");
    }
    if (at == s->nargs) {
        int64_t inner = most < extent ? most : extent;
        while (extent % inner) inner--;
        f[n - 1] = inner;
        f[0] = extent / inner;
        product = extent;
    }
    if (product != extent) return kn_step_refuse(s, "the factors multiply to %lld, axis '%s' has %lld", (long long)product, s->args[2],
        (long long)extent);
    if (f[n - 1] > most) return kn_step_refuse(s, "the innermost factor %lld is more than %lld", (long long)f[n - 1], (long long)most);
    s->decision = "";
    for (int i = 0; i < n; i++) {
        const char *text = kn_format(s->a, "%lld", (long long)f[i]);
        s->decision = kn_format(s->a, i ? "%s %lld" : "%s%lld", s->decision ? s->decision : "", (long long)f[i]);
        if (!text || !kn_step_define(s, s->args[0], i, text)) return s->d->status ? s->d->status : KILN_MEMORY;
    }
    return KILN_OK;
}
