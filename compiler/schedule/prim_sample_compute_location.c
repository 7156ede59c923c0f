/* sample_compute_location NAME P S [: L]: $NAME is a loop of S, the reader of P, at which P may be computed; without a decision the outermost.
 * Whether P can be computed there is compute_at's to say. */
#include "schedule/sched.h"

kiln_status kn_prim_sample_compute_location(kn_step *s)
{
    kn_stage *p = kn_step_stage(s, s->args[1]), *c = p ? kn_step_stage(s, s->args[2]) : NULL;
    const kn_expr *one;
    int at = kn_step_decision(s);
    if (!c) return KILN_TRACE;
    if (!kn_reads_of(kn_stage_stmt(s->t, c)->body, kn_stage_stmt(s->t, p)->out, &one))
        return kn_step_refuse(s, "'%s' does not read '%s'", s->args[2], s->args[1]);
    if (at != 3 || (at < s->nargs && at + 2 != s->nargs)) return kn_step_refuse(s, "one loop stands after ':'");
    if (!c->nloops) return kn_step_refuse(s, "'%s' has no loops", s->args[2]);
    const char *loop = at < s->nargs ? s->args[at + 1] : c->loops[0].name;
    if (kn_step_loop(s, c, loop) < 0) return KILN_TRACE;
    s->decision = loop;
    return kn_step_define(s, s->args[0], -1, loop) ? KILN_OK : s->d->status;
}
