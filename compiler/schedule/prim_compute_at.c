/* compute_at P S L: producer P of a temporary is computed at the start of loop L's body of its one reader S. */
#include "schedule/sched.h"

/* P's leading loops become S's loops up to L: the same axis through S's identity read of P, of the same extent and stride. */
static kiln_status mirror(kn_step *s, kn_stage *p, const kn_stage *c, int at, const kn_expr *read)
{
    const kn_stmt *ps = kn_stage_stmt(s->t, p);
    int next = 0;
    for (int i = 0; i <= at; i++) {
        const kn_loop *l = &c->loops[i];
        int axis = -1;
        for (int k = 0; k < read->nargs; k++)
            if (read->args[k]->op == KN_OP_AXIS && read->args[k]->u.axis == l->axis &&
                ps->lhs[k]->op == KN_OP_AXIS) axis = ps->lhs[k]->u.axis;
        if (axis < 0) continue; /* P does not depend on this loop: it is computed again in each iteration, or only once above it */
        if (next >= p->nloops) return kn_step_refuse(s, "'%s' has no loop to mirror '%s'", s->args[0], l->name);
        kn_loop *m = &p->loops[next++];
        if (m->axis != axis || m->extent != l->extent || m->stride != l->stride)
            return kn_step_refuse(s, "loop '%s' of '%s' does not mirror '%s' of '%s' (axis, extent %lld, stride %lld)", m->name,
                s->args[0], l->name,
                             s->args[1], (long long)l->extent, (long long)l->stride);
        if (m->kind != KN_SERIAL) return kn_step_refuse(s, "loop '%s' coincides with '%s' and cannot be %s", m->name, l->name,
            kn_loop_kind_text(m->kind));
        m->shared_with = i;
    }
    return KILN_OK;
}

kiln_status kn_prim_compute_at(kn_step *s)
{
    kn_tree *t = s->t;
    kn_stage *p = kn_step_stage(s, s->args[0]);
    kn_stage *c = p ? kn_step_stage(s, s->args[1]) : NULL;
    int at = c ? kn_step_loop(s, c, s->args[2]) : -1;
    if (at < 0) return KILN_TRACE;
    const kn_stmt *ps = kn_stage_stmt(t, p);
    int out = p->epilogue >= 0 ? t->program->stmts[p->epilogue]->out : ps->out;
    if (s->hw->gpu) return kn_step_refuse(s, "compute_at is for CPU targets");
    if (p->epilogue >= 0) return kn_step_refuse(s, "'%s' has an epilogue; attach it without one", s->args[0]);
    if (t->program->tensors[out].role != KN_TEMP) return kn_step_refuse(s, "'%s' is not a temporary: its value is asked for", s->args[0]);
    if (p->at_stage >= 0) return kn_step_refuse(s, "'%s' is attached already", s->args[0]);
    const kn_expr *read = NULL, *other = NULL;
    for (int i = 0; i < t->program->nstmts; i++) {
        int n = kn_reads_of(t->program->stmts[i]->body, out, &other);
        if (n && i != c->stmt) return kn_step_refuse(s, "'%s' is read by another statement too", s->args[0]);
        if (n > 1) return kn_step_refuse(s, "'%s' is read more than once by '%s'", s->args[0], s->args[1]);
        if (n) read = other;
    }
    if (!read) return kn_step_refuse(s, "'%s' does not read '%s'", s->args[1], s->args[0]);
    if (kn_stage_find(t, p) > kn_stage_find(t, c)) return kn_step_refuse(s, "'%s' comes before '%s'", s->args[1], s->args[0]);
    for (int i = 0; i < p->nloops; i++)
        if (p->loops[i].kind == KN_PARALLEL) return kn_step_refuse(s, "loop '%s' is parallel inside another stage", p->loops[i].name);
    for (int i = at + 1; i < c->nloops; i++)
        if (c->loops[i].kind == KN_PARALLEL) return kn_step_refuse(s, "parallel loop '%s' stands inside '%s'", c->loops[i].name,
            s->args[2]);
    for (int i = 0; i < c->ncaches; i++)
        if (kn_stage_load(t, c, c->caches[i].load) == read)
            return kn_step_refuse(s, "'%s' is cached at '%s' already", s->args[0], c->loops[c->caches[i].at].name);
    kiln_status bad = mirror(s, p, c, at, read);
    if (bad) return bad;
    p->at_stage = kn_stage_find(t, c);
    p->at_loop = at;
    return KILN_OK;
}
