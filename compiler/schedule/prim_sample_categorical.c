/* sample_categorical NAME c0 c1 ... [: k]: $NAME is candidate number k; without a decision the first. */
#include "schedule/sched.h"

kiln_status kn_prim_sample_categorical(kn_step *s)
{
    int at = kn_step_decision(s);
    int64_t k = 0;
    if (at < 2) return kn_step_refuse(s, "no candidates");
    if (at < s->nargs && at + 2 != s->nargs) return kn_step_refuse(s, "one number stands after ':'");
    if (at < s->nargs && !kn_step_int(s, s->args[at + 1], 0, at - 2, &k)) return KILN_TRACE;
    s->decision = kn_format(s->a, "%lld", (long long)k);
    return kn_step_define(s, s->args[0], -1, s->args[1 + k]) ? KILN_OK : s->d->status;
}
