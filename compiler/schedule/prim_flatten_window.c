/* flatten_window S I A B V T W: spatial axes A and B of S slide a window over two dimensions of load I. They become one axis V that runs over whole
 * rows of that window's plane, so that neighbours along V are neighbours in memory, whatever the window's place, stride and padding:
 *
 *   T[..., a, b, U, ...] = what load I reads at row U // P * stride + g * a, column U % P * stride + h * b, padding filled in; P is the row pitch
 *   W[..., V] red= S's body, reading T[..., i % strideA // g, j % strideB // h, V + i // strideA * P + j // strideB, ...]
 *   what S wrote = W[..., A * P + B]
 *
 * where i and j are what the load's indices add to A * strideA and B * strideB; g and h divide them, and the strides. The P - extent(B) values of V
 * between two rows are computed for nothing. It is the lowering of a convolution to a matrix product without copying the window (im2col) for every
 * tap. */
#include "schedule/sched.h"
#include <string.h>

typedef struct window_dim {
    int axis, dim;          /* spatial axis, dimension of the load */
    int64_t extent, stride; /* of the axis; coefficient of the axis in the index */
    int64_t lo, span;       /* least value of the rest of the index; its greatest value above that */
    int64_t apart, phases;  /* remainders of the rest by the stride that occur: multiples of `apart`, so many of them (an upper bound) */
    int64_t lines;          /* values of axis + rest // stride */
    kn_expr *rest;          /* the rest of the index, from 0 */
} window_dim;

typedef struct flat {
    window_dim w[2];
    const kn_expr *load;
    int64_t pitch, extent;  /* of V */
    int rank, at;           /* of T; its dimension U, in the place of the later of the two */
    int64_t shape[KILN_MAX_RANK];
} flat;

static kn_expr *without_axis(void *user, kiln_arena *a, kn_expr *e)
{
    const int *axis = user;
    return e->op == KN_OP_AXIS && e->u.axis == *axis ? kn_const_i(a, KN_I64, 0) : e;
}

/* What divides all that a window's dilated taps add, and the stride. */
static int64_t steps_of(const kn_expr *rest, const kn_stmt *st, int64_t stride)
{
    kn_affine f;
    if (!kn_affine_of(rest, &f)) return 1;
    int64_t g = kn_gcd(stride, f.offset);
    for (int i = 0; i < st->naxes; i++)
        if (st->axes[i].extent > 1) g = kn_gcd(g, f.coef[i]);
    return g;
}

static bool find_dim(kn_step *s, const kn_stage *g, flat *f, int which, const char *name)
{
    const kn_stmt *st = kn_stage_stmt(s->t, g);
    window_dim *w = &f->w[which];
    w->axis = kn_step_axis(s, g, name);
    if (w->axis < 0) return false;
    w->extent = st->axes[w->axis].extent;
    w->dim = -1;
    if (st->axes[w->axis].reduce) return kn_step_refuse(s, "'%s' is not a spatial axis", name), false;
    for (int i = 0; i < f->load->nargs; i++) {
        if (!(kn_axes_in(f->load->args[i]) >> w->axis & 1)) continue;
        kn_affine at;
        if (w->dim >= 0 || !kn_affine_of(f->load->args[i], &at) || at.coef[w->axis] < 1)
            return kn_step_refuse(s, "load %s does not step forward along one dimension with '%s'", s->args[1], name), false;
        w->dim = i;
        w->stride = at.coef[w->axis];
    }
    if (w->dim < 0) return kn_step_refuse(s, "load %s does not depend on '%s'", s->args[1], name), false;
    kn_expr *rest = kn_rewrite(s->a, f->load->args[w->dim], without_axis, &w->axis);
    int64_t hi;
    if (!rest || !kn_expr_range(rest, kn_sched_range, (void *)(uintptr_t)st, &w->lo, &hi) || hi - w->lo >= KILN_MAX_EXTENT)
        return kn_step_refuse(s, "index %d of load %s has no known range", w->dim, s->args[1]), false;
    w->span = hi - w->lo;
    w->lines = w->extent + w->span / w->stride;
    w->rest = kn_bin(s->a, KN_OP_SUB, rest, kn_const_i(s->a, KN_I64, w->lo));
    w->apart = steps_of(w->rest, st, w->stride);
    w->phases = (w->span < w->stride ? w->span : w->stride - 1) / w->apart + 1;
    return true;
}

static kiln_status check(kn_step *s, const kn_stage *g, const flat *f)
{
    const kn_stmt *st = kn_stage_stmt(s->t, g);
    const kn_expr *loads[KILN_MAX_TENSORS];
    uint32_t both = 1u << f->w[0].axis | 1u << f->w[1].axis, outside = 0;
    if (f->w[0].axis == f->w[1].axis || f->w[0].dim == f->w[1].dim) return kn_step_refuse(s, "two axes of two dimensions are wanted");
    if (g->epilogue >= 0 || st->scatter) return kn_step_refuse(s, "'%s' is not a plain statement", s->args[0]);
    int n = kn_loads(st->body, loads, KILN_MAX_TENSORS);
    for (int i = 0; i < n && i < KILN_MAX_TENSORS; i++)
        if (loads[i] != f->load) outside |= kn_axes_in(loads[i]);
    for (int i = 0; i < f->load->nargs; i++)
        if (i != f->w[0].dim && i != f->w[1].dim) outside |= kn_axes_in(f->load->args[i]);
    kn_expr *blank = kn_const_i(s->a, KN_I64, 0);
    kn_stmt rest = *st;
    kn_stmt_replace(s->a, &rest, f->load, blank); /* what else the body does with the axes */
    if (rest.body) outside |= kn_axes_in(rest.body);
    if (outside & both) return kn_step_refuse(s, "'%s' or '%s' is used outside its dimension of load %s", s->args[2], s->args[3], s->args[1]);
    for (int k = 0, found = 0; k < s->t->program->tensors[st->out].rank; k++) {
        bool plain = st->lhs[k]->op == KN_OP_AXIS;
        if (kn_axes_in(st->lhs[k]) & both) found += plain ? 1 : 3;
        if (found > 2) return kn_step_refuse(s, "'%s' is not written at the axes themselves", s->args[0]);
    }
    return KILN_OK;
}

typedef struct plane { kn_stmt t; kn_expr *from[KILN_MAX_RANK]; } plane;

static kn_expr *new_axis(kn_step *s, plane *x, const char *name, int64_t extent)
{
    x->t.axes[x->t.naxes] = (kn_axis){ name, extent, false };
    return kn_axis_ref(s->a, x->t.naxes++);
}

/* A dimension of T that the window does not slide along. */
static bool other_dim(kn_step *s, const kn_stmt *st, flat *f, plane *x, int i, kn_expr **idx)
{
    int64_t lo, hi;
    kn_expr *at = f->load->args[i];
    if (!kn_expr_range(at, kn_sched_range, (void *)(uintptr_t)st, &lo, &hi) || hi - lo >= KILN_MAX_EXTENT)
        return kn_step_refuse(s, "index %d of load %s has no known range", i, s->args[1]), false;
    x->t.lhs[f->rank] = new_axis(s, x, kn_format(s->a, "X%d", i), hi - lo + 1);
    x->from[i] = kn_bin(s->a, KN_OP_ADD, x->t.lhs[f->rank], kn_const_i(s->a, KN_I64, lo));
    idx[f->rank] = kn_bin(s->a, KN_OP_SUB, at, kn_const_i(s->a, KN_I64, lo));
    f->shape[f->rank++] = hi - lo + 1;
    return true;
}

/* The phases of the strides, then U: its rows are written in order, one axis for the lines and one for the columns. */
static bool plane_dims(kn_step *s, flat *f, plane *x, kn_expr **idx)
{
    kn_expr *phase[2], *line[2];
    for (int k = 0; k < 2; k++) {
        window_dim *w = &f->w[k];
        phase[k] = kn_const_i(s->a, KN_I64, w->lo);
        if (w->phases < 2) continue;
        x->t.lhs[f->rank] = new_axis(s, x, k ? "Z1" : "Z0", w->phases);
        kn_expr *apart = kn_const_i(s->a, KN_I64, w->apart);
        phase[k] = kn_bin(s->a, KN_OP_ADD, kn_bin(s->a, KN_OP_MUL, x->t.lhs[f->rank], apart), phase[k]);
        idx[f->rank] = kn_bin(s->a, KN_OP_FLOORDIV, kn_bin(s->a, KN_OP_MOD, w->rest, kn_const_i(s->a, KN_I64, w->stride)), apart);
        f->shape[f->rank++] = w->phases;
    }
    for (int k = 0; k < 2; k++) {
        line[k] = new_axis(s, x, k ? "X" : "Y", f->w[k].lines);
        kn_expr *at = kn_bin(s->a, KN_OP_MUL, line[k], kn_const_i(s->a, KN_I64, f->w[k].stride));
        x->from[f->w[k].dim] = kn_bin(s->a, KN_OP_ADD, at, phase[k]);
    }
    f->at = f->rank;
    x->t.lhs[f->rank] = kn_bin(s->a, KN_OP_ADD, kn_bin(s->a, KN_OP_MUL, line[0], kn_const_i(s->a, KN_I64, f->pitch)), line[1]);
    return kn_mul_fits(f->w[0].lines, f->pitch, &f->shape[f->rank++]) ||
           (kn_step_refuse(s, "'%s' would have too many elements", s->args[5]), false);
}

static bool make_plane(kn_step *s, kn_stage *g, flat *f, int *out, kn_expr **idx)
{
    const kn_expr *load = f->load;
    plane x = { .t = { .red = KN_RED_NONE } };
    for (int i = 0, met = 0; i < load->nargs; i++) {
        bool window = i == f->w[0].dim || i == f->w[1].dim;
        if (!window && !other_dim(s, kn_stage_stmt(s->t, g), f, &x, i, idx)) return false;
        if (window && ++met == 2 && !plane_dims(s, f, &x, idx)) return false;
    }
    x.t.nspatial = x.t.naxes;
    *out = x.t.out = kn_step_temp(s, s->args[5], load->dtype, f->rank, f->shape);
    if (x.t.out < 0) return false;
    x.t.body = kn_load_padded(s->a, s->t->program, load->u.tensor, x.from, load->padded ? load->pad_value : 0);
    if (!x.t.body || kn_arena_dry(s->a)) return kn_fail(s->d, KILN_MEMORY, "out of memory while flattening a window"), false;
    kn_stmt_simplify(s->a, &x.t, f->rank);
    const kn_expr *read = x.t.body;
    if (!load->padded && kn_inside(s->t->program, &x.t, read)) x.t.body = kn_load(s->a, s->t->program, load->u.tensor, read->args);
    return x.t.body && kn_step_insert(s, g, &x.t, false);
}

typedef struct renumber { int map[KILN_MAX_AXES]; } renumber;

static kn_expr *moved(void *user, kiln_arena *a, kn_expr *e)
{
    const renumber *r = user;
    return e->op == KN_OP_AXIS ? kn_axis_ref(a, r->map[e->u.axis]) : e;
}

/* S over V in the place of B, without A; idx: T's leading indices in S's old axes. */
static kiln_status rewrite_statement(kn_step *s, kn_stage *g, const flat *f, int plane, kn_expr **idx)
{
    kn_stmt *st = kn_stage_stmt(s->t, g);
    kn_program *p = s->t->program;
    renumber r;
    int n = 0, a = f->w[0].axis, b = f->w[1].axis;
    for (int i = 0; i < st->naxes; i++) r.map[i] = i == a ? 0 : n++;
    kn_expr *v = kn_axis_ref(s->a, b); /* still in the old numbers */
    for (int k = 0; k < 2; k++) {
        kn_expr *q = kn_bin(s->a, KN_OP_FLOORDIV, f->w[k].rest, kn_const_i(s->a, KN_I64, f->w[k].stride));
        v = kn_bin(s->a, KN_OP_ADD, v, kn_bin(s->a, KN_OP_MUL, q, kn_const_i(s->a, KN_I64, k ? 1 : f->pitch)));
    }
    idx[f->at] = v;
    kn_expr *read = kn_load(s->a, p, plane, idx);
    if (!read) return kn_fail(s->d, KILN_MEMORY, "out of memory while flattening a window");
    kn_stmt_replace(s->a, st, f->load, read);
    kn_tensor *out = &p->tensors[st->out];
    for (int i = 0, k = 0; i < out->rank; i++) {
        if (st->lhs[i]->op == KN_OP_AXIS && st->lhs[i]->u.axis == a) continue;
        st->lhs[k++] = kn_rewrite(s->a, st->lhs[i], moved, &r);
    }
    out->rank--;
    st->body = kn_rewrite(s->a, st->body, moved, &r);
    st->axes[b] = (kn_axis){ kn_strdup(s->a, s->args[4]), f->extent, false };
    memmove(&st->axes[a], &st->axes[a + 1], sizeof *st->axes * (size_t)(st->naxes - a - 1));
    st->naxes--, st->nspatial--;
    if (!st->body || kn_arena_dry(s->a)) return kn_fail(s->d, KILN_MEMORY, "out of memory while flattening a window");
    kn_stmt_simplify(s->a, st, out->rank);
    kn_stage_loops_init(g, st);
    return KILN_OK;
}

/* The result in its rows: what S wrote, copied from W. Afterwards S writes W, whose shape still has the dimension of A. */
static kiln_status copy_out(kn_step *s, kn_stage *g, const flat *f)
{
    kn_stmt *st = kn_stage_stmt(s->t, g);
    kn_program *p = s->t->program;
    int64_t shape[KILN_MAX_RANK];
    kn_expr *idx[KILN_MAX_RANK];
    int rank = p->tensors[st->out].rank, rows = -1, columns = -1, n = 0;
    for (int i = 0; i < rank; i++) {
        shape[i] = p->tensors[st->out].shape[i];
        if (st->lhs[i]->op != KN_OP_AXIS) continue;
        if (st->lhs[i]->u.axis == f->w[0].axis) rows = i;
        if (st->lhs[i]->u.axis == f->w[1].axis) columns = i;
    }
    if (rows < 0 || columns < 0) return kn_step_refuse(s, "'%s' is not written at the axes themselves", s->args[0]);
    kiln_status bad = kn_step_divert(s, g, s->args[6], shape);
    if (bad) return bad;
    kn_tensor *w = &p->tensors[kn_stage_stmt(s->t, g)->out];
    kn_stmt *copy = kn_stage_stmt(s->t, s->t->stages[kn_stage_find(s->t, g) + 1]);
    kn_expr *flat_at = kn_bin(s->a, KN_OP_ADD, kn_bin(s->a, KN_OP_MUL, copy->lhs[rows], kn_const_i(s->a, KN_I64, f->pitch)), copy->lhs[columns]);
    for (int i = 0; i < rank; i++) {
        if (i == rows) continue;
        w->shape[n] = i == columns ? f->extent : shape[i];
        idx[n++] = i == columns ? flat_at : copy->lhs[i];
    }
    w->rank--; /* for the load; the statement that writes it follows */
    copy->body = kn_load(s->a, p, kn_stage_stmt(s->t, g)->out, idx);
    w->rank++;
    return copy->body ? KILN_OK : kn_fail(s->d, KILN_MEMORY, "out of memory while flattening a window");
}

kiln_status kn_prim_flatten_window(kn_step *s)
{
    kn_stage *g = kn_step_fresh(s, s->args[0]);
    flat f = { .load = g ? kn_step_load(s, g, s->args[1]) : NULL };
    if (!f.load || !find_dim(s, g, &f, 0, s->args[2]) || !find_dim(s, g, &f, 1, s->args[3]))
        return s->d->status ? s->d->status : KILN_TRACE;
    kiln_status bad = check(s, g, &f);
    if (bad) return bad;
    const kn_stmt *st = kn_stage_stmt(s->t, g);
    for (int i = 0; i < st->naxes; i++)
        if (!strcmp(st->axes[i].name, s->args[4]) && i != f.w[0].axis && i != f.w[1].axis)
            return kn_step_refuse(s, "there is an axis '%s' already", s->args[4]);
    if (strlen(s->args[4]) >= KILN_MAX_NAME_BYTES) return kn_step_refuse(s, "the name '%s' is too long", s->args[4]);
    f.pitch = f.w[1].lines;
    if (!kn_mul_fits(f.w[0].extent - 1, f.pitch, &f.extent) || (f.extent += f.w[1].extent) > KILN_MAX_EXTENT)
        return kn_step_refuse(s, "the flat axis would be longer than %d", KILN_MAX_EXTENT);
    int plane;
    kn_expr *idx[KILN_MAX_RANK];
    if (f.load->nargs + 1 > KILN_MAX_RANK || f.load->nargs + 2 > KILN_MAX_AXES)
        return kn_step_refuse(s, "load %s has too many dimensions", s->args[1]);
    if (!make_plane(s, g, &f, &plane, idx)) return s->d->status;
    bad = copy_out(s, g, &f);
    return bad ? bad : rewrite_statement(s, g, &f, plane, idx);
}
