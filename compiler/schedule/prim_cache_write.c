/* cache_write S T: S writes a temporary T, which a new statement copies to where S wrote before; S is named T from then on. With `epilogue T`
 * the copy happens as each tile is finished; with steps of its own it may have another order than the computation. */
#include "schedule/sched.h"

kiln_status kn_prim_cache_write(kn_step *s)
{
    kn_stage *g = kn_step_fresh(s, s->args[0]);
    if (!g) return KILN_TRACE;
    const kn_stmt *st = kn_stage_stmt(s->t, g);
    if (st->scatter || g->epilogue >= 0) return kn_step_refuse(s, "'%s' scatters or has an epilogue", s->args[0]);
    return kn_step_divert(s, g, s->args[1], s->t->program->tensors[st->out].shape);
}
