/* compute_at P S L: producer P of a temporary is computed at the start of loop L's body of S. Its readers are S and what is attached to S there. */
#include "schedule/sched.h"

/* x, of axis i, is to it what y is to axis k. */
static bool alike(const kn_expr *x, int i, const kn_expr *y, int k)
{
    if (x->op != y->op || x->nargs != y->nargs) return false;
    if (x->op == KN_OP_AXIS) return x->u.axis == i && y->u.axis == k;
    if (x->op == KN_OP_CONST_I) return x->u.i == y->u.i;
    for (int a = 0; a < x->nargs; a++)
        if (!alike(x->args[a], i, y->args[a], k)) return false;
    return x->nargs > 0;
}

static bool has(const kn_expr *index, int axis) { return kn_axes_in(index) >> axis & 1; }

/* Axis x lays out what is read along axis y, in tiles or otherwise: every index that has the one has the other, and is alike. */
static bool lays_out(const kn_stmt *made, int x, const kn_expr *read, int y)
{
    for (int k = 0; k < read->nargs; k++) {
        if (has(made->lhs[k], x) != has(read->args[k], y)) return false;
        if (has(made->lhs[k], x) && !alike(made->lhs[k], x, read->args[k], y)) return false;
    }
    return true;
}

/* The axis of P that does so; -1: none. */
static int laid_out_by(const kn_tree *t, const kn_stage *p, const kn_expr *read, int y)
{
    const kn_stmt *made = t->program->stmts[p->stmt];
    for (int x = 0; x < made->nspatial && p->epilogue < 0 && has(read, y); x++)
        if (lays_out(made, x, read, y)) return x;
    return -1;
}

/* Axis of P that loop `i` of S walks, through R's read of P: R is S itself or attached to it. -1: none. */
static int walked(const kn_step *s, const kn_stage *p, const kn_stage *c, int i, const kn_stage *r, int stmt, const kn_expr *read)
{
    const kn_tree *t = s->t;
    int axis = r == c ? c->loops[i].axis : -1;
    for (int j = 0; j < r->nloops && r != c; j++)
        if (r->loops[j].shared_with == i) axis = r->loops[j].axis;
    for (int k = 0; k < read->nargs && axis >= 0; k++)
        if (read->args[k]->op == KN_OP_AXIS && kn_stage_axis_of(t, r, stmt, read->args[k]->u.axis) == axis && kn_stage_out_axis(t, p, k) >= 0)
            return kn_stage_out_axis(t, p, k);
    const kn_loop *l = &c->loops[i]; /* no turn of it is moved back into a tile */
    bool whole = kn_stage_stmt(t, c)->axes[l->axis].extent % (l->extent * l->stride) == 0;
    return axis >= 0 && whole && stmt == r->stmt && !s->hw->gpu ? laid_out_by(t, p, read, axis) : -1;
}

/* P's leading loops become S's loops up to L: the same axis through the reads of P, of the same extent and stride. */
static kiln_status mirror(kn_step *s, kn_stage *p, const kn_stage *c, int at, const int *axis)
{
    int next = 0;
    for (int i = 0; i <= at; i++) {
        const kn_loop *l = &c->loops[i];
        if (axis[i] < 0) continue; /* P does not depend on this loop: it is computed again in each iteration, or only once above it */
        if (next >= p->nloops) return kn_step_refuse(s, "'%s' has no loop to mirror '%s'", s->args[0], l->name);
        kn_loop *m = &p->loops[next++];
        if (m->axis != axis[i] || m->extent != l->extent || m->stride != l->stride)
            return kn_step_refuse(s, "loop '%s' of '%s' does not mirror '%s' of '%s' (axis, extent %lld, stride %lld)", m->name,
                s->args[0], l->name,
                             s->args[1], (long long)l->extent, (long long)l->stride);
        if (m->kind != KN_SERIAL) return kn_step_refuse(s, "loop '%s' coincides with '%s' and cannot be %s", m->name, l->name,
            kn_loop_kind_text(m->kind));
        m->shared_with = i;
    }
    return KILN_OK;
}

/* One read of P: by S, or by a stage that is attached to S where P is or inside of it, and of the element that S's loops name, like those before. */
static kiln_status check_read(kn_step *s, const kn_stage *p, const kn_stage *c, int at, int stmt, const kn_expr *read, bool first, int *axis)
{
    const kn_tree *t = s->t;
    const kn_stage *r = NULL;
    for (int k = 0; k < t->nstages; k++)
        if (t->stages[k]->stmt == stmt || t->stages[k]->epilogue == stmt) r = t->stages[k];
    bool inside = r && r != c && r->at_stage == kn_stage_find(t, c) && r->at_loop >= at;
    if (!r || (r != c && !inside)) return kn_step_refuse(s, "'%s' is read by another statement too", s->args[0]);
    if (kn_stage_find(t, p) > kn_stage_find(t, r)) return kn_step_refuse(s, "'%s' comes before '%s'", kn_stage_name(t, r), s->args[0]);
    for (int i = 0; i <= at; i++) {
        int x = walked(s, p, c, i, r, stmt, read);
        if (!first && x != axis[i])
            return kn_step_refuse(s, "'%s' is read at different elements in one iteration of '%s'", s->args[0], c->loops[i].name);
        axis[i] = x;
    }
    for (int i = 0; i < c->ncaches && r == c; i++)
        if (kn_stage_load(t, c, c->caches[i].load) == read && c->caches[i].at >= 0)
            return kn_step_refuse(s, "'%s' is cached at '%s' already", s->args[0], c->loops[c->caches[i].at].name);
    return KILN_OK;
}

static kiln_status check_reads(kn_step *s, const kn_stage *p, const kn_stage *c, int at, int *axis)
{
    const kn_program *q = s->t->program;
    int out = kn_stage_out(s->t, p);
    bool any = false;
    for (int i = 0; i < q->nstmts; i++) {
        const kn_expr *loads[KILN_MAX_TENSORS];
        int n = kn_loads(q->stmts[i]->body, loads, KILN_MAX_TENSORS);
        if (n > KILN_MAX_TENSORS) return kn_step_refuse(s, "a statement has more than %d loads", KILN_MAX_TENSORS);
        for (int k = 0; k < n; k++) {
            if (loads[k]->u.tensor != out) continue;
            kiln_status bad = check_read(s, p, c, at, i, loads[k], !any, axis);
            if (bad) return bad;
            any = true;
        }
    }
    return any ? KILN_OK : kn_step_refuse(s, "'%s' does not read '%s'", s->args[1], s->args[0]);
}

kiln_status kn_prim_compute_at(kn_step *s)
{
    kn_tree *t = s->t;
    kn_stage *p = kn_step_stage(s, s->args[0]);
    kn_stage *c = p ? kn_step_stage(s, s->args[1]) : NULL;
    int at = c ? kn_step_loop(s, c, s->args[2]) : -1;
    if (at < 0) return KILN_TRACE;
    int axis[KILN_MAX_LOOPS];
    if (s->hw->gpu && c->loops[at].kind != KN_GRID && c->loops[at].kind != KN_THREAD)
        return kn_step_refuse(s, "on a GPU a stage is computed at a grid or thread loop, '%s' is %s", s->args[2],
                              kn_loop_kind_text(c->loops[at].kind));
    if (t->program->tensors[kn_stage_out(t, p)].role != KN_TEMP)
        return kn_step_refuse(s, "'%s' is not a temporary: its value is asked for", s->args[0]);
    if (p->at_stage >= 0) return kn_step_refuse(s, "'%s' is attached already", s->args[0]);
    kiln_status bad = check_reads(s, p, c, at, axis);
    if (bad) return bad;
    for (int i = 0; i < p->nloops; i++)
        if (p->loops[i].kind == KN_PARALLEL || p->loops[i].kind == KN_GRID) 
            return kn_step_refuse(s, "loop '%s' is %s inside another stage", p->loops[i].name, kn_loop_kind_text(p->loops[i].kind));
    for (int i = at + 1; i < c->nloops; i++)
        if (c->loops[i].kind == KN_PARALLEL) return kn_step_refuse(s, "parallel loop '%s' stands inside '%s'", c->loops[i].name,
            s->args[2]);
    bad = mirror(s, p, c, at, axis);
    if (bad) return bad;
    p->at_stage = kn_stage_find(t, c);
    p->at_loop = at;
    return KILN_OK;
}
