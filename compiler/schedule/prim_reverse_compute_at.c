/* reverse_compute_at C P L: the map statement C, which reads P at its own axes, is computed behind the part of P that loop L's body makes. The
 * loops of P up to L become C's, with what is left of its axes inside, and P is attached there (TensorIR's dual of compute_at). */
#include "schedule/sched.h"
#include <stdio.h>
#include <string.h>

/* C's axis for P's axis through the identity read, -1. */
static int axis_of(const kn_stmt *p, const kn_expr *read, int axis)
{
    for (int k = 0; k < read->nargs; k++)
        if (p->lhs[k]->op == KN_OP_AXIS && p->lhs[k]->u.axis == axis && read->args[k]->op == KN_OP_AXIS) return read->args[k]->u.axis;
    return -1;
}

static const kn_expr *only_read(kn_step *s, const kn_stage *c, int tensor)
{
    const kn_expr *read = NULL, *one;
    for (int i = 0; i < s->t->program->nstmts; i++) {
        int n = kn_reads_of(s->t->program->stmts[i]->body, tensor, &one);
        if (n && (i != c->stmt || n > 1)) return kn_step_refuse(s, "'%s' is read elsewhere too", s->args[1]), NULL;
        if (n) read = one;
    }
    if (!read) return kn_step_refuse(s, "'%s' does not read '%s'", s->args[0], s->args[1]), NULL;
    uint32_t seen = 0;
    for (int k = 0; k < read->nargs; k++) {
        if (read->args[k]->op != KN_OP_AXIS || seen >> read->args[k]->u.axis & 1 || read->padded)
            return kn_step_refuse(s, "'%s' does not read '%s' at its own axes", s->args[0], s->args[1]), NULL;
        seen |= 1u << read->args[k]->u.axis;
    }
    return read;
}

static void put_loop(kn_stage *c, const kn_stmt *cs, int axis, int number, int64_t extent, int64_t stride, enum kn_loop_kind kind)
{
    kn_loop *l = &c->loops[c->nloops++];
    memset(l, 0, sizeof *l);
    snprintf(l->name, sizeof l->name, "%.63s.%d", cs->axes[axis].name, number & 63);
    *l = (kn_loop){ .axis = axis, .extent = extent, .stride = stride, .kind = kind, .shared_with = -1 };
    snprintf(l->name, sizeof l->name, "%.63s.%d", cs->axes[axis].name, number & 63);
}

/* C's loops: copies of P's up to `at`, then one loop for what is left of each axis. */
static kiln_status take_loops(kn_step *s, kn_stage *c, const kn_stage *p, int at, const kn_expr *read)
{
    const kn_stmt *cs = kn_stage_stmt(s->t, c), *ps = kn_stage_stmt(s->t, p);
    int64_t left[KILN_MAX_AXES];
    int count[KILN_MAX_AXES] = { 0 };
    for (int i = 0; i < cs->naxes; i++) left[i] = cs->axes[i].extent;
    c->nloops = 0;
    for (int i = 0; i <= at; i++) {
        const kn_loop *l = &p->loops[i];
        int axis = axis_of(ps, read, l->axis);
        if (ps->axes[l->axis].reduce) return kn_step_refuse(s, "loop '%s' reduces", l->name);
        if (axis < 0 || cs->axes[axis].extent != ps->axes[l->axis].extent)
            return kn_step_refuse(s, "loop '%s' has no counterpart in '%s'", l->name, s->args[0]);
        if (kn_ceil_div(left[axis], l->stride) != l->extent && left[axis] != l->extent * l->stride)
            return kn_step_refuse(s, "loop '%s' is not the outermost of its axis", l->name);
        if (l->kind != KN_SERIAL && l->kind != KN_PARALLEL) return kn_step_refuse(s, "loop '%s' is %s", l->name, kn_loop_kind_text(l->kind));
        if (l->stride < left[axis]) left[axis] = l->stride;
        put_loop(c, cs, axis, count[axis]++, l->extent, l->stride, l->kind);
    }
    for (int x = 0; x < cs->naxes; x++) {
        if (left[x] == 1 && count[x]) continue;
        if (c->nloops == KILN_MAX_LOOPS) return kn_step_refuse(s, "more than %d loops", KILN_MAX_LOOPS);
        put_loop(c, cs, x, count[x], left[x], 1, KN_SERIAL);
    }
    return KILN_OK;
}

kiln_status kn_prim_reverse_compute_at(kn_step *s)
{
    kn_tree *t = s->t;
    kn_stage *c = kn_step_fresh(s, s->args[0]);
    kn_stage *p = c ? kn_step_stage(s, s->args[1]) : NULL;
    int at = p ? kn_step_loop(s, p, s->args[2]) : -1;
    if (at < 0) return KILN_TRACE;
    const kn_stmt *ps = kn_stage_stmt(t, p), *cs = kn_stage_stmt(t, c);
    if (s->hw->gpu) return kn_step_refuse(s, "reverse_compute_at is for CPU targets");
    if (cs->red != KN_RED_NONE || c->epilogue >= 0) return kn_step_refuse(s, "'%s' is not a map statement without epilogue", s->args[0]);
    if (p->epilogue >= 0 || p->at_stage >= 0) return kn_step_refuse(s, "'%s' has an epilogue or is attached already", s->args[1]);
    if (t->program->tensors[ps->out].role != KN_TEMP) return kn_step_refuse(s, "'%s' is not a temporary: its value is asked for", s->args[1]);
    for (int i = 0; i < t->nstages; i++)
        if (t->stages[i]->at_stage == kn_stage_find(t, p)) return kn_step_refuse(s, "something is computed in '%s'", s->args[1]);
    const kn_expr *read = only_read(s, c, ps->out);
    if (!read) return KILN_TRACE;
    kiln_status bad = take_loops(s, c, p, at, read);
    if (bad) return bad;
    for (int i = at + 1; i < p->nloops; i++)
        if (p->loops[i].kind == KN_PARALLEL) return kn_step_refuse(s, "parallel loop '%s' stands inside '%s'", p->loops[i].name, s->args[2]);
    for (int i = 0; i <= at; i++) {
        p->loops[i].kind = KN_SERIAL;
        p->loops[i].shared_with = i;
    }
    p->at_stage = kn_stage_find(t, c);
    p->at_loop = at;
    return KILN_OK;
}
