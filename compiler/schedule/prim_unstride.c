/* unstride S I B T: spatial axis B of S steps over a dimension of load I by a stride. The load reads the new temporary T instead, the box that it
 * touches with the padding filled in, in which this dimension stands as two, so that neighbours along B are neighbours in memory:
 *
 *   T[..., a, X, ...] = what load I reads where that index is X * stride + a
 *   S reads T[..., j % stride, B + j // stride, ...]
 *
 * where j is what the load's index adds to B * stride, from 0. */
#include "schedule/sched.h"

typedef struct strided {
    const kn_expr *load;
    int axis, dim;
    int64_t stride, lo, phases, columns;
    kn_expr *rest;          /* what the index adds to the axis, from 0 */
    kn_stmt t;
    int rank;
    int64_t shape[KILN_MAX_RANK];
    kn_expr *from[KILN_MAX_RANK], *at[KILN_MAX_RANK]; /* what T is filled from, and where S reads it */
} strided;

static kn_expr *without_axis(void *user, kiln_arena *a, kn_expr *e)
{
    const int *axis = user;
    return e->op == KN_OP_AXIS && e->u.axis == *axis ? kn_const_i(a, KN_I64, 0) : e;
}

static kiln_status find(kn_step *s, const kn_stmt *st, strided *x)
{
    kn_affine f;
    int64_t hi;
    if (st->axes[x->axis].reduce) return kn_step_refuse(s, "'%s' is not a spatial axis", s->args[2]);
    for (int i = 0; i < x->load->nargs; i++) {
        if (!(kn_axes_in(x->load->args[i]) >> x->axis & 1)) continue;
        if (x->dim >= 0 || !kn_affine_of(x->load->args[i], &f) || f.coef[x->axis] < 2)
            return kn_step_refuse(s, "load %s does not step over one dimension with '%s'", s->args[1], s->args[2]);
        x->dim = i;
        x->stride = f.coef[x->axis];
    }
    if (x->dim < 0) return kn_step_refuse(s, "load %s does not depend on '%s'", s->args[1], s->args[2]);
    kn_expr *rest = kn_rewrite(s->a, x->load->args[x->dim], without_axis, &x->axis);
    if (!rest || !kn_expr_range(rest, kn_sched_range, (void *)(uintptr_t)st, &x->lo, &hi) || hi - x->lo >= KILN_MAX_EXTENT)
        return kn_step_refuse(s, "index %d of load %s has no known range", x->dim, s->args[1]);
    x->phases = hi - x->lo < x->stride ? hi - x->lo + 1 : x->stride;
    x->columns = st->axes[x->axis].extent + (hi - x->lo) / x->stride;
    x->rest = kn_bin(s->a, KN_OP_SUB, rest, kn_const_i(s->a, KN_I64, x->lo));
    return KILN_OK;
}

static kn_expr *put_dim(kn_step *s, strided *x, const char *name, int64_t extent, kn_expr *at)
{
    x->t.axes[x->t.naxes] = (kn_axis){ name, extent, false };
    x->shape[x->rank] = extent;
    x->at[x->rank] = at;
    return x->t.lhs[x->rank++] = kn_axis_ref(s->a, x->t.naxes++);
}

static kiln_status put_dims(kn_step *s, const kn_stmt *st, strided *x)
{
    for (int i = 0; i < x->load->nargs; i++) {
        int64_t lo, hi;
        kn_expr *at = x->load->args[i], *stride = kn_const_i(s->a, KN_I64, x->stride);
        if (i == x->dim) {
            kn_expr *phase = put_dim(s, x, "Z", x->phases, kn_bin(s->a, KN_OP_MOD, x->rest, stride));
            kn_expr *to = kn_bin(s->a, KN_OP_ADD, kn_axis_ref(s->a, x->axis), kn_bin(s->a, KN_OP_FLOORDIV, x->rest, stride));
            kn_expr *column = kn_bin(s->a, KN_OP_MUL, put_dim(s, x, "X", x->columns, to), stride);
            x->from[i] = kn_bin(s->a, KN_OP_ADD, kn_bin(s->a, KN_OP_ADD, column, phase), kn_const_i(s->a, KN_I64, x->lo));
            continue;
        }
        if (!kn_expr_range(at, kn_sched_range, (void *)(uintptr_t)st, &lo, &hi) || hi - lo >= KILN_MAX_EXTENT)
            return kn_step_refuse(s, "index %d of load %s has no known range", i, s->args[1]);
        kn_expr *low = kn_const_i(s->a, KN_I64, lo);
        x->from[i] = kn_bin(s->a, KN_OP_ADD, put_dim(s, x, kn_format(s->a, "X%d", i), hi - lo + 1, kn_bin(s->a, KN_OP_SUB, at, low)), low);
    }
    return KILN_OK;
}

kiln_status kn_prim_unstride(kn_step *s)
{
    kn_stage *g = kn_step_fresh(s, s->args[0]);
    strided x = { .dim = -1, .t = { .red = KN_RED_NONE } };
    x.load = g ? kn_step_load(s, g, s->args[1]) : NULL;
    x.axis = x.load ? kn_step_axis(s, g, s->args[2]) : -1;
    if (x.axis < 0) return s->d->status;
    kn_program *p = s->t->program;
    kn_stmt *st = kn_stage_stmt(s->t, g);
    kiln_status bad = find(s, st, &x);
    if (bad) return bad;
    if (x.load->nargs + 1 > KILN_MAX_RANK) return kn_step_refuse(s, "load %s has too many dimensions", s->args[1]);
    if ((bad = put_dims(s, st, &x))) return bad;
    x.t.nspatial = x.t.naxes;
    x.t.out = kn_step_temp(s, s->args[3], x.load->dtype, x.rank, x.shape);
    if (x.t.out < 0) return KILN_TRACE;
    x.t.body = kn_load_padded(s->a, p, x.load->u.tensor, x.from, x.load->padded ? x.load->pad_value : 0);
    kn_expr *read = kn_load(s->a, p, x.t.out, x.at);
    if (!read || !x.t.body || kn_arena_dry(s->a)) return kn_fail(s->d, KILN_MEMORY, "out of memory while taking a stride apart");
    kn_stmt_replace(s->a, st, x.load, read);
    kn_stmt_simplify(s->a, st, p->tensors[st->out].rank);
    kn_stmt_simplify(s->a, &x.t, x.rank);
    const kn_expr *filled = x.t.body;
    if (!x.load->padded && kn_inside(p, &x.t, filled)) x.t.body = kn_load(s->a, p, x.load->u.tensor, filled->args);
    return x.t.body && kn_step_insert(s, g, &x.t, false) ? KILN_OK : s->d->status;
}
