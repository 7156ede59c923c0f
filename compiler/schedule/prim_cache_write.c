/* cache_write S T: S writes a temporary T, which a new statement copies to where S wrote before; S is named T from then on. With `epilogue T`
 * the copy happens as each tile is finished; with steps of its own it may have another order than the computation. */
#include "schedule/sched.h"

kiln_status kn_prim_cache_write(kn_step *s)
{
    kn_stage *g = kn_step_fresh(s, s->args[0]);
    if (!g) return KILN_TRACE;
    kn_program *p = s->t->program;
    kn_stmt *st = kn_stage_stmt(s->t, g), copy = { .red = KN_RED_NONE, .out = st->out };
    if (st->scatter || g->epilogue >= 0) return kn_step_refuse(s, "'%s' scatters or has an epilogue", s->args[0]);
    const kn_tensor *x = &p->tensors[st->out];
    int id = kn_step_temp(s, s->args[1], x->dtype, x->rank, x->shape);
    if (id < 0) return KILN_TRACE;
    kn_expr *idx[KILN_MAX_RANK];
    copy.naxes = copy.nspatial = x->rank;
    for (int i = 0; i < x->rank; i++) {
        copy.axes[i] = (kn_axis){ kn_format(s->a, "W%d", i), x->shape[i], false };
        copy.lhs[i] = idx[i] = kn_axis_ref(s->a, i);
    }
    copy.body = kn_load(s->a, p, id, idx);
    if (!copy.body || kn_arena_dry(s->a)) return kn_fail(s->d, KILN_MEMORY, "out of memory while adding a copy");
    st->out = id;
    return kn_step_insert(s, g, &copy, true) ? KILN_OK : s->d->status;
}
