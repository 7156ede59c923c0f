/* inline T: the map statement that writes temporary T is computed where T is read (TensorIR's compute_inline). */
#include "schedule/sched.h"

typedef struct inliner { const kn_stmt *from; int rank; kiln_arena *a; kn_expr *const *idx; } inliner;

static kn_expr *put_index(void *user, kiln_arena *a, kn_expr *e)
{
    const inliner *in = user;
    if (e->op != KN_OP_AXIS) return e;
    for (int i = 0; i < in->rank; i++)
        if (in->from->lhs[i]->u.axis == e->u.axis) return in->idx[i];
    return kn_const_i(a, KN_I64, 0); /* an axis of one iteration that the tensor has no dimension for */
}

static kn_expr *put_body(void *user, kiln_arena *a, kn_expr *e)
{
    inliner *in = user;
    if (e->op != KN_OP_LOAD || e->u.tensor != in->from->out) return e;
    in->idx = e->args;
    return kn_rewrite(a, in->from->body, put_index, in);
}

static bool padded_read(const kn_expr *e, int tensor)
{
    if (e->op == KN_OP_LOAD && e->u.tensor == tensor && e->padded) return true;
    for (int i = 0; i < e->nargs; i++)
        if (padded_read(e->args[i], tensor)) return true;
    return false;
}

static kiln_status refuse_if_bound(kn_step *s, const kn_stage *g, const kn_stmt *st)
{
    const kn_tensor *x = &s->t->program->tensors[st->out];
    if (x->role != KN_TEMP) return kn_step_refuse(s, "'%s' is not a temporary: its value is asked for", x->name);
    if (st->red != KN_RED_NONE || st->scatter) return kn_step_refuse(s, "'%s' reduces or scatters; only map statements can be inlined",
        x->name);
    for (int i = 0; i < s->t->nstages; i++)
        if (s->t->stages[i]->at_stage == kn_stage_find(s->t, g)) return kn_step_refuse(s, "something is computed in '%s'", x->name);
    if (!kn_stage_untouched(g) || g->epilogue >= 0) return kn_step_refuse(s, "'%s' has schedule steps already", x->name);
    for (int i = 0; i < x->rank; i++)
        if (st->lhs[i]->op != KN_OP_AXIS) return kn_step_refuse(s, "'%s' is not written at plain axes", x->name);
    for (int a = 0, written; a < st->nspatial; a++) {
        written = st->axes[a].extent == 1;
        for (int i = 0; i < x->rank; i++) written |= st->lhs[i]->u.axis == a;
        if (!written) return kn_step_refuse(s, "'%s' is not written at axis '%s'", x->name, st->axes[a].name);
    }
    return KILN_OK;
}

kiln_status kn_prim_inline(kn_step *s)
{
    kn_program *p = s->t->program;
    kn_stage *g = kn_step_stage(s, s->args[0]);
    if (!g) return KILN_TRACE;
    kn_stmt *st = kn_stage_stmt(s->t, g);
    kiln_status bad = refuse_if_bound(s, g, st);
    if (bad) return bad;
    const kn_expr *one = NULL;
    for (int i = 0; i < p->nstmts; i++) {
        if (!kn_reads_of(p->stmts[i]->body, st->out, &one)) continue;
        if (padded_read(p->stmts[i]->body, st->out))
            return kn_step_refuse(s, "'%s' is read with padding by '%s'", s->args[0], p->tensors[p->stmts[i]->out].name);
        for (int k = 0; k < s->t->nstages; k++)
            if (s->t->stages[k]->stmt == i && s->t->stages[k]->ncaches)
                return kn_step_refuse(s, "inline must come before the caches of '%s'", p->tensors[p->stmts[i]->out].name);
    }
    inliner in = { .from = st, .rank = p->tensors[st->out].rank, .a = s->a };
    kn_expr *cast = st->body;
    if (cast->dtype != p->tensors[st->out].dtype) cast = kn_cast(s->a, p->tensors[st->out].dtype, cast);
    kn_stmt copy = *st;
    copy.body = cast;
    in.from = &copy;
    kn_expr *bodies[KILN_MAX_STMTS] = {NULL};
    for (int i = 0; i < p->nstmts; i++) {
        if (!kn_reads_of(p->stmts[i]->body, st->out, &one)) continue;
        bodies[i] = kn_rewrite(s->a, p->stmts[i]->body, put_body, &in);
        if (bodies[i] && kn_loads(bodies[i], NULL, 0) > KILN_MAX_TENSORS)
            return kn_step_refuse(s, "'%s' would have more than %d loads", p->tensors[p->stmts[i]->out].name, KILN_MAX_TENSORS);
    }
    for (int i = 0; i < p->nstmts; i++)
        if (kn_reads_of(p->stmts[i]->body, st->out, &one)) p->stmts[i]->body = bodies[i];
    int stmt = g->stmt;
    kn_tree_drop_stage(s->t, kn_stage_find(s->t, g));
    kn_program_drop_stmt(s->t, stmt);
    return KILN_OK;
}
