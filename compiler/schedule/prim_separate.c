/* separate S A T: the reduction of S along A is made first, in the new temporary T, and S reduces what is left of it: a window's rows, then its
 * columns. S's terms are those of one load, in which A stands in one dimension with nothing but axes of the output. T is indexed like that load: by
 * these axes in the place of that dimension, by the box that S reads in the others, with what is padded there reduced too. Neighbouring places of
 * the window then share the sums of its rows. `inside`: T has no places in padding, which S makes the reduction's identity of instead. */
#include "schedule/sched.h"
#include <math.h>
#include <string.h>

typedef struct apart {
    const kn_expr *load;
    int axis, dim;                /* A, and where it stands in the load */
    kn_stmt t;
    kn_expr *from[KILN_MAX_RANK]; /* the load's indices in T */
    kn_expr *idx[KILN_MAX_RANK];  /* S's indices of T */
    int64_t shape[KILN_MAX_RANK];
    int rank;
    bool inside;                  /* padding in the other dimensions is left to S */
    int map[KILN_MAX_AXES];       /* an axis of S in T: of those that stand beside A, and A itself */
} apart;

static kn_expr *renamed(void *user, kiln_arena *a, kn_expr *e)
{
    const apart *x = user;
    return e->op == KN_OP_AXIS ? kn_axis_ref(a, x->map[e->u.axis]) : e;
}

/* S without A: the axes behind it move up. */
static kn_expr *closed_up(void *user, kiln_arena *a, kn_expr *e)
{
    const apart *x = user;
    return e->op == KN_OP_AXIS && e->u.axis > x->axis ? kn_axis_ref(a, e->u.axis - 1) : e;
}

/* The only load of the body, outside of which no axis stands; A stands in one of its dimensions, whose other axes are the output's and stand
 * nowhere else. */
static kiln_status check(kn_step *s, const kn_stage *g, apart *x)
{
    const kn_stmt *st = kn_stage_stmt(s->t, g);
    const kn_expr *loads[2];
    uint32_t beside = 0, others = 0, out = (1u << st->nspatial) - 1;
    if (!st->axes[x->axis].reduce) return kn_step_refuse(s, "axis '%s' does not reduce", s->args[1]);
    if (st->naxes - st->nspatial < 2) return kn_step_refuse(s, "'%s' reduces nothing but '%s'", s->args[0], s->args[1]);
    if (st->scatter || g->epilogue >= 0) return kn_step_refuse(s, "'%s' scatters or has an epilogue", s->args[0]);
    if (kn_loads(st->body, loads, 2) != 1) return kn_step_refuse(s, "the terms of '%s' are not those of one load", s->args[0]);
    kn_stmt rest = *st;
    x->load = loads[0];
    x->dim = -1;
    kn_stmt_replace(s->a, &rest, x->load, kn_const_i(s->a, KN_I64, 0));
    if (!rest.body || kn_axes_in(rest.body)) return kn_step_refuse(s, "the terms of '%s' hold numbers of axes", s->args[0]);
    for (int i = 0; i < x->load->nargs; i++) {
        const kn_expr *inner[1];
        uint32_t in = kn_axes_in(x->load->args[i]);
        if (kn_loads(x->load->args[i], inner, 1)) return kn_step_refuse(s, "index %d of '%s' is read from a tensor", i, s->args[0]);
        if (!(in >> x->axis & 1)) others |= in;
        else if (x->dim >= 0) return kn_step_refuse(s, "'%s' stands in two dimensions of the load", s->args[1]);
        else x->dim = i, beside = in & ~(1u << x->axis);
    }
    if (x->dim < 0) return kn_step_refuse(s, "the load does not depend on '%s'", s->args[1]);
    if ((beside & ~out) || (beside & others))
        return kn_step_refuse(s, "what stands beside '%s' reduces too, or stands in another dimension", s->args[1]);
    return KILN_OK;
}

/* What is padded is what the reduction begins with, so that it makes no difference whether it is reduced. */
static bool padded_with_identity(const kn_stmt *st, const kn_expr *load)
{
    double pad = load->pad_value;
    const kn_expr *body = st->body->op == KN_OP_CAST ? st->body->args[0] : st->body;
    if (!load->padded || body != load || kn_dtype_class(load->dtype) != 'f' || kn_dtype_class(st->body->dtype) != 'f') return false;
    return st->red == KN_RED_SUM ? pad == 0 && !signbit(pad) : st->red == KN_RED_MAX ? pad == -INFINITY : st->red == KN_RED_MIN && pad == INFINITY;
}

/* A dimension of T, its own axis, and what S reads there. */
static kn_expr *dimension(kn_step *s, apart *x, const char *name, int64_t extent, kn_expr *read)
{
    x->t.axes[x->t.naxes] = (kn_axis){ name, extent, false };
    x->shape[x->rank] = extent;
    x->idx[x->rank] = read;
    x->rank++;
    return kn_axis_ref(s->a, x->t.naxes++);
}

static kiln_status dimensions(kn_step *s, const kn_stmt *st, apart *x)
{
    uint32_t beside = kn_axes_in(x->load->args[x->dim]) & ~(1u << x->axis);
    int more = x->load->nargs - 1;
    for (int a = 0; a < st->nspatial; a++) more += beside >> a & 1;
    if (more >= KILN_MAX_RANK || more >= KILN_MAX_AXES) return kn_step_refuse(s, "'%s' would have too many dimensions", s->args[2]);
    for (int i = 0; i < x->load->nargs; i++) {
        int64_t lo, hi;
        for (int a = 0; a < st->nspatial && i == x->dim; a++)
            if (beside >> a & 1) x->map[a] = dimension(s, x, st->axes[a].name, st->axes[a].extent, kn_axis_ref(s->a, a))->u.axis;
        if (i == x->dim) continue;
        if (!kn_expr_range(x->load->args[i], kn_sched_range, (void *)(uintptr_t)st, &lo, &hi) || hi - lo >= KILN_MAX_EXTENT)
            return kn_step_refuse(s, "index %d of the load has no known range", i);
        int64_t end = s->t->program->tensors[x->load->u.tensor].shape[i] - 1;
        if (x->inside && lo < 0) lo = 0;
        if (x->inside && hi > end) hi = end;
        if (hi < lo) return kn_step_refuse(s, "the load is all padding");
        kn_expr *read = kn_bin(s->a, KN_OP_SUB, x->load->args[i], kn_const_i(s->a, KN_I64, lo));
        kn_expr *own = dimension(s, x, kn_format(s->a, "X%d", i), hi - lo + 1, read);
        x->from[i] = kn_bin(s->a, KN_OP_ADD, own, kn_const_i(s->a, KN_I64, lo));
    }
    x->t.nspatial = x->t.naxes;
    x->map[x->axis] = x->t.naxes;
    x->t.axes[x->t.naxes++] = st->axes[x->axis];
    for (int i = 0; i < x->rank; i++) x->t.lhs[i] = kn_axis_ref(s->a, i);
    x->from[x->dim] = kn_rewrite(s->a, x->load->args[x->dim], renamed, x);
    return x->from[x->dim] ? KILN_OK : kn_fail(s->d, KILN_MEMORY, "out of memory while separating a reduction");
}

/* What S is from now on: its other axes over T. */
static bool left(kn_step *s, kn_stage *g, apart *x)
{
    kn_stmt *st = kn_stage_stmt(s->t, g);
    const kn_tensor *out = &s->t->program->tensors[st->out];
    st->body = x->inside ? kn_load_padded(s->a, s->t->program, x->t.out, x->idx, x->load->pad_value) : kn_load(s->a, s->t->program, x->t.out, x->idx);
    if (!st->body) return false;
    st->body = kn_rewrite(s->a, st->body, closed_up, x);
    for (int i = 0; i < out->rank; i++) st->lhs[i] = kn_rewrite(s->a, st->lhs[i], closed_up, x);
    for (int i = x->axis; i + 1 < st->naxes; i++) st->axes[i] = st->axes[i + 1];
    st->naxes--;
    if (!st->body || kn_arena_dry(s->a)) return false;
    kn_stmt_simplify(s->a, st, out->rank);
    kn_stage_loops_init(g, st);
    return true;
}

kiln_status kn_prim_separate(kn_step *s)
{
    kn_stage *g = kn_step_fresh(s, s->args[0]);
    apart x = { .axis = g ? kn_step_axis(s, g, s->args[1]) : -1, .inside = s->nargs > 3 };
    if (x.axis < 0) return KILN_TRACE;
    if (x.inside && strcmp(s->args[3], "inside")) return kn_step_refuse(s, "'%s' is not 'inside'", s->args[3]);
    kn_program *p = s->t->program;
    kn_stmt *st = kn_stage_stmt(s->t, g);
    kiln_status bad = check(s, g, &x);
    if (!bad && x.inside && !padded_with_identity(st, x.load))
        bad = kn_step_refuse(s, "the padding of '%s' is not what its reduction begins with", s->args[0]);
    if (!bad) bad = dimensions(s, st, &x);
    if (bad) return bad;
    x.t.red = st->red;
    x.t.out = kn_step_temp(s, s->args[2], kn_stmt_acc(st), x.rank, x.shape);
    if (x.t.out < 0) return KILN_TRACE;
    int tensor = x.load->u.tensor;
    kn_expr *load = x.load->padded ? kn_load_padded(s->a, p, tensor, x.from, x.load->pad_value) : kn_load(s->a, p, tensor, x.from);
    x.t.body = st->body;
    if (load) kn_stmt_replace(s->a, &x.t, x.load, load);
    if (!load || !x.t.body || !left(s, g, &x)) return kn_fail(s->d, KILN_MEMORY, "out of memory while separating a reduction");
    kn_stmt_simplify(s->a, &x.t, x.rank);
    return kn_step_insert(s, g, &x.t, false) ? KILN_OK : s->d->status;
}
