/* divide S A OUTER INNER f: axis A becomes two axes, A = OUTER*f + INNER: the inverse of fuse. Indices with A//f and A%f become affine
 * (TensorIR's transform_block_layout with the map A -> A//f, A%f). */
#include "schedule/sched.h"
#include <string.h>

typedef struct divider { int axis; int64_t factor; } divider;

/* Axes behind the divided one move up by one; INNER stands right behind OUTER. */
static kn_expr *axis_divided(void *user, kiln_arena *a, kn_expr *e)
{
    const divider *v = user;
    if (e->op != KN_OP_AXIS || e->u.axis < v->axis) return e;
    if (e->u.axis > v->axis) return kn_axis_ref(a, e->u.axis + 1);
    kn_expr *outer = kn_bin(a, KN_OP_MUL, kn_axis_ref(a, v->axis), kn_const_i(a, KN_I64, v->factor));
    return kn_bin(a, KN_OP_ADD, outer, kn_axis_ref(a, v->axis + 1));
}

static kiln_status check_names(kn_step *s, const kn_stmt *st, int axis)
{
    for (int k = 2; k < 4; k++) {
        if (strlen(s->args[k]) >= KILN_MAX_NAME_BYTES) return kn_step_refuse(s, "the name '%s' is too long", s->args[k]);
        for (int i = 0; i < st->naxes; i++)
            if (i != axis && !strcmp(st->axes[i].name, s->args[k])) return kn_step_refuse(s, "there is an axis '%s' already", s->args[k]);
    }
    if (!strcmp(s->args[2], s->args[3])) return kn_step_refuse(s, "the new axes must have two names");
    return KILN_OK;
}

kiln_status kn_prim_divide(kn_step *s)
{
    kn_stage *g = kn_step_fresh(s, s->args[0]);
    int axis = g ? kn_step_axis(s, g, s->args[1]) : -1;
    if (axis < 0) return KILN_TRACE;
    kn_stmt *st = kn_stage_stmt(s->t, g);
    divider v = { .axis = axis };
    kiln_status bad = check_names(s, st, axis);
    if (bad) return bad;
    if (g->epilogue >= 0) return kn_step_refuse(s, "'%s' has an epilogue, which sees its axes as they are", s->args[0]);
    if (st->naxes == KILN_MAX_AXES) return kn_step_refuse(s, "more than %d axes", KILN_MAX_AXES);
    if (!kn_step_int(s, s->args[4], 2, KILN_MAX_EXTENT, &v.factor)) return KILN_TRACE;
    int64_t extent = st->axes[axis].extent;
    if (extent % v.factor) return kn_step_refuse(s, "%lld does not divide the %lld of axis '%s'", (long long)v.factor, (long long)extent,
        s->args[1]);
    for (int i = 0; i < s->t->program->tensors[st->out].rank; i++) st->lhs[i] = kn_rewrite(s->a, st->lhs[i], axis_divided, &v);
    st->body = kn_rewrite(s->a, st->body, axis_divided, &v);
    memmove(&st->axes[axis + 1], &st->axes[axis], sizeof *st->axes * (size_t)(st->naxes - axis));
    st->naxes++;
    st->nspatial += !st->axes[axis].reduce;
    st->axes[axis].name = kn_strdup(s->a, s->args[2]);
    st->axes[axis].extent = extent / v.factor;
    st->axes[axis + 1].name = kn_strdup(s->a, s->args[3]);
    st->axes[axis + 1].extent = v.factor;
    if (kn_arena_dry(s->a)) return kn_fail(s->d, KILN_MEMORY, "out of memory while dividing an axis");
    kn_stmt_simplify(s->a, st, s->t->program->tensors[st->out].rank);
    kn_stage_loops_init(g, st);
    return KILN_OK;
}
