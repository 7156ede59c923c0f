/* part S A K n T: the reduction of S along A is cut into n parts. The new temporary T has the results of the parts, at K and S's spatial axes; S
 * combines them, in order (TensorIR's rfactor on the reduction's outer part, which split-K products are). Of terms that n does not divide all parts
 * have as many, and the K-th of those left over, which are fewer than parts, goes with the K-th part as S combines it. */
#include "schedule/sched.h"
#include <string.h>

typedef struct parter { int axis; int64_t chunk, n; const kn_program *p; int first; } parter;

/* In T the parts' axis stands in front of all others. */
static kn_expr *axis_parted(void *user, kiln_arena *a, kn_expr *e)
{
    const parter *p = user;
    if (e->op != KN_OP_AXIS) return e;
    kn_expr *own = kn_axis_ref(a, e->u.axis + 1);
    if (e->u.axis != p->axis) return own;
    return kn_bin(a, KN_OP_ADD, kn_bin(a, KN_OP_MUL, kn_axis_ref(a, 0), kn_const_i(a, KN_I64, p->chunk)), own);
}

/* In S, whose axis behind the spatial ones counts parts: what is left over begins behind the last of them, and ends before the last part's does. */
static kn_expr *left_over(void *user, kiln_arena *a, kn_expr *e)
{
    const parter *p = user;
    if (e->op == KN_OP_LOAD && !e->padded && (kn_axes_in(e) >> p->first & 1)) return kn_load_padded(a, p->p, e->u.tensor, e->args, 0);
    if (e->op != KN_OP_AXIS || e->u.axis != p->axis) return e;
    return kn_bin(a, KN_OP_ADD, kn_axis_ref(a, p->first), kn_const_i(a, KN_I64, p->n * p->chunk));
}

static kiln_status check(kn_step *s, const kn_stage *g, const kn_stmt *st, int axis, int64_t n)
{
    if (!st->axes[axis].reduce) return kn_step_refuse(s, "axis '%s' does not reduce", s->args[1]);
    if (st->scatter || g->epilogue >= 0) return kn_step_refuse(s, "'%s' scatters or has an epilogue", s->args[0]);
    if (st->axes[axis].extent < n || (st->axes[axis].extent % n && st->naxes > st->nspatial + 1))
        return kn_step_refuse(s, "%lld does not divide the %lld of axis '%s'%s", (long long)n, (long long)st->axes[axis].extent, s->args[1],
                              st->axes[axis].extent < n ? "" : ", and others reduce too");
    if (st->naxes == KILN_MAX_AXES) return kn_step_refuse(s, "more than %d axes", KILN_MAX_AXES);
    if (st->nspatial >= KILN_MAX_RANK) return kn_step_refuse(s, "'%s' would have more than %d dimensions", s->args[4], KILN_MAX_RANK);
    if (strlen(s->args[2]) >= KILN_MAX_NAME_BYTES) return kn_step_refuse(s, "the name '%s' is too long", s->args[2]);
    for (int i = 0; i < st->naxes; i++)
        if (!strcmp(st->axes[i].name, s->args[2])) return kn_step_refuse(s, "there is an axis '%s' already", s->args[2]);
    return KILN_OK;
}

/* What S is from now on: the parts' results, combined; where terms are left over, with these. */
static bool combine(kn_step *s, kn_stmt *st, int parts, const parter *p)
{
    kn_expr *idx[KILN_MAX_RANK];
    int64_t over = st->axes[p->axis].extent % p->n;
    idx[0] = kn_axis_ref(s->a, st->nspatial);
    for (int i = 0; i < st->nspatial; i++) idx[i + 1] = kn_axis_ref(s->a, i);
    kn_expr *part = kn_load(s->a, s->t->program, parts, idx), *both = part;
    if (over) {
        kn_expr *term = kn_cast(s->a, kn_stmt_acc(st), kn_rewrite(s->a, st->body, left_over, (void *)p));
        kn_expr *some = kn_bin(s->a, KN_OP_LT, idx[0], kn_const_i(s->a, KN_I64, over));
        both = kn_select(s->a, some, kn_bin(s->a, kn_combines(st->red), part, term), part);
    }
    st->body = both;
    st->axes[st->nspatial] = (kn_axis){ kn_strdup(s->a, s->args[2]), p->n, true };
    st->naxes = st->nspatial + 1;
    return st->body && !kn_arena_dry(s->a);
}

kiln_status kn_prim_part(kn_step *s)
{
    kn_stage *g = kn_step_fresh(s, s->args[0]);
    int axis = g ? kn_step_axis(s, g, s->args[1]) : -1;
    int64_t n, shape[KILN_MAX_RANK];
    if (axis < 0 || !kn_step_int(s, s->args[3], 2, KILN_MAX_EXTENT, &n)) return KILN_TRACE;
    kn_stmt *st = kn_stage_stmt(s->t, g), t = *st;
    kiln_status bad = check(s, g, st, axis, n);
    if (bad) return bad;
    parter p = { .axis = axis, .chunk = st->axes[axis].extent / n, .n = n, .p = s->t->program, .first = st->nspatial };
    memmove(&t.axes[1], &t.axes[0], sizeof *t.axes * (size_t)st->naxes);
    t.axes[0] = (kn_axis){ kn_strdup(s->a, s->args[2]), n, false };
    t.axes[axis + 1].extent = p.chunk;
    t.naxes++;
    t.nspatial++;
    for (int i = 0; i < t.nspatial; i++) {
        shape[i] = t.axes[i].extent;
        t.lhs[i] = kn_axis_ref(s->a, i);
    }
    t.body = kn_rewrite(s->a, st->body, axis_parted, &p);
    t.out = kn_step_temp(s, s->args[4], kn_stmt_acc(st), t.nspatial, shape);
    if (t.out < 0) return KILN_TRACE;
    if (!t.body || !combine(s, st, t.out, &p)) return kn_fail(s->d, KILN_MEMORY, "out of memory while parting a reduction");
    kn_stmt_simplify(s->a, &t, t.nspatial);
    kn_stage_loops_init(g, st);
    return kn_step_insert(s, g, &t, false) ? KILN_OK : s->d->status;
}
