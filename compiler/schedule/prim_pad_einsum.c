/* pad_einsum S A n: axis A of the sum of products S grows to a multiple of n. Operands that have the axis are read from zero-filled copies T_pad_A,
 * but a temporary that a map writes for this load alone grows itself, also where the axis steps forward beside others (a window); a spatial axis also
 * makes S write the larger S_pad_A, of which the old part is copied out (TensorIR's pad_einsum). */
#include "schedule/sched.h"
#include <string.h>

/* A product of loads, casts allowed: a zero factor makes the term zero, since every factor is padded along a reduce axis. */
static bool product(const kn_expr *e)
{
    while (e->op == KN_OP_CAST) e = e->args[0];
    if (e->op == KN_OP_MUL) return product(e->args[0]) && product(e->args[1]);
    return e->op == KN_OP_LOAD && !e->padded;
}

/* The one dimension of the load that is the axis itself, -1: none; -2: the axis stands there in another way. */
static int plain_dim(const kn_expr *const *idx, int n, int axis)
{
    int found = -1;
    for (int i = 0; i < n; i++) {
        if (idx[i]->op == KN_OP_AXIS && idx[i]->u.axis == axis) found = found == -1 ? i : -2;
        else if (kn_axes_in(idx[i]) >> axis & 1) return -2;
    }
    return found;
}

/* Dimension dim of what the map writes is one axis, or the whole rows of two: the axis that grows with it; *row: elements that one of its steps
 * gives, 0: it is neither. */
static int growing_axis(const kn_program *p, const kn_stmt *st, int dim, int64_t *row)
{
    kn_affine at;
    int64_t shape = p->tensors[st->out].shape[dim];
    *row = 0;
    if (st->lhs[dim]->op == KN_OP_AXIS) {
        *row = st->axes[st->lhs[dim]->u.axis].extent == shape;
        return st->lhs[dim]->u.axis;
    }
    if (!kn_affine_of(st->lhs[dim], &at) || at.offset) return 0;
    int rows = -1, columns = -1;
    for (int i = 0; i < st->naxes; i++) {
        if (at.coef[i] == 1 && columns < 0) columns = i;
        else if (at.coef[i] && (at.coef[i] < 2 || rows >= 0)) return 0;
        else if (at.coef[i]) rows = i;
    }
    if (rows < 0 || columns < 0 || st->axes[columns].extent != at.coef[rows] || st->axes[rows].extent * at.coef[rows] != shape) return 0;
    *row = at.coef[rows];
    return rows;
}

/* The stage of the map that writes the load's temporary for it alone, at an axis of its own in dimension dim; NULL: there is none. */
static kn_stage *own_writer(kn_step *s, const kn_expr *load, int dim)
{
    const kn_program *p = s->t->program;
    int reads = 0;
    const kn_expr *one;
    kn_stage *writer = NULL;
    for (int i = 0; i < p->nstmts; i++) reads += kn_reads_of(p->stmts[i]->body, load->u.tensor, &one);
    for (int i = 0; i < s->t->nstages; i++)
        if (kn_stage_stmt(s->t, s->t->stages[i])->out == load->u.tensor) writer = s->t->stages[i];
    if (p->tensors[load->u.tensor].role != KN_TEMP || reads != 1 || !writer || !kn_stage_untouched(writer) || writer->epilogue >= 0) return NULL;
    const kn_stmt *st = kn_stage_stmt(s->t, writer);
    int64_t row;
    int axis = growing_axis(p, st, dim, &row);
    bool plain = st->red == KN_RED_NONE && !st->scatter && row && (row == 1 || st->body->op == KN_OP_LOAD);
    for (int i = 0; i < load->nargs && plain; i++)
        plain = i == dim || !(kn_axes_in(st->lhs[i]) >> axis & 1);
    return plain ? writer : NULL;
}

/* The temporary gets zeros behind what it holds; `any`: whatever the load has there that knows its own bounds. */
static void grow(kn_step *s, kn_stage *writer, int dim, int64_t extent, bool any)
{
    kn_stmt *st = kn_stage_stmt(s->t, writer);
    kn_program *p = s->t->program;
    int64_t row;
    int axis = growing_axis(p, st, dim, &row);
    any = any && st->body->op == KN_OP_LOAD;
    enum kn_dtype t = st->body->dtype;
    if (any && !st->body->padded) st->body = kn_load_padded(s->a, p, st->body->u.tensor, st->body->args, 0);
    if (!st->body) return; /* the arena is dry */
    kn_expr *old = kn_const_i(s->a, KN_I64, st->axes[axis].extent), *in = any ? NULL : kn_bin(s->a, KN_OP_LT, kn_axis_ref(s->a, axis), old);
    kn_expr *zero = kn_dtype_class(t) == 'f' ? kn_const_f(s->a, t, 0) : kn_const_i(s->a, t, 0);
    kn_expr *body = any ? st->body : kn_select(s->a, in, st->body, zero);
    if (!body) return;
    st->body = body;
    st->axes[axis].extent = kn_ceil_div(extent, row);
    p->tensors[st->out].shape[dim] = st->axes[axis].extent * row;
    kn_stage_loops_init(writer, st);
}

/* The one dimension along which a spatial axis steps forward beside others, of a temporary that can grow with it; *step: by how much. -1: none. */
static int window_dim(kn_step *s, const kn_stmt *st, const kn_expr *load, int axis, int64_t *step)
{
    int found = -1;
    for (int i = 0; i < load->nargs; i++) {
        kn_affine at;
        if (!(kn_axes_in(load->args[i]) >> axis & 1)) continue;
        if (found >= 0 || st->axes[axis].reduce || !kn_affine_in(load->args[i], 1u << axis, &at) || at.coef[axis] < 1) return -1;
        found = i, *step = at.coef[axis];
    }
    return found >= 0 && own_writer(s, load, found) ? found : -1;
}

static kn_stage *padded_copy(kn_step *s, kn_stage *g, const kn_expr *load, int dim, int64_t extent)
{
    kn_program *p = s->t->program;
    kn_stage *own = own_writer(s, load, dim);
    if (own) return grow(s, own, dim, extent, false), own;
    kn_stmt t = { .red = KN_RED_NONE, .naxes = load->nargs, .nspatial = load->nargs };
    const kn_tensor *x = &p->tensors[load->u.tensor];
    int64_t shape[KILN_MAX_RANK];
    for (int i = 0; i < load->nargs; i++) {
        shape[i] = i == dim ? extent : x->shape[i];
        t.axes[i] = (kn_axis){ kn_format(s->a, "X%d", i), shape[i], false };
        t.lhs[i] = kn_axis_ref(s->a, i);
    }
    const char *name = kn_format(s->a, "%s_pad_%s", x->name, s->args[1]);
    t.out = name ? kn_step_temp(s, name, x->dtype, load->nargs, shape) : -1;
    if (t.out < 0) return NULL;
    t.body = kn_load_padded(s->a, p, load->u.tensor, t.lhs, 0);
    kn_expr *read = kn_load(s->a, p, t.out, load->args);
    if (!read || !t.body) return kn_fail(s->d, KILN_MEMORY, "out of memory while padding"), NULL;
    kn_stmt_replace(s->a, kn_stage_stmt(s->t, g), load, read);
    return kn_step_insert(s, g, &t, false);
}

/* A temporary of which copies take what they want grows itself, and is named as if it were another. */
static bool grows_itself(kn_step *s, const kn_tensor *x)
{
    kn_program *p = s->t->program;
    const kn_expr *one;
    int reads = 0, copies = 0;
    for (int i = 0; i < p->nstmts; i++) {
        int n = kn_reads_of(p->stmts[i]->body, (int)(x - p->tensors), &one);
        reads += n;
        copies += n && p->stmts[i]->body == one && p->stmts[i]->red == KN_RED_NONE && !one->padded;
    }
    return x->role == KN_TEMP && reads == 1 && copies == 1;
}

static kiln_status cropped_output(kn_step *s, kn_stage *g, int dim, int64_t extent)
{
    kn_tensor *x = &s->t->program->tensors[kn_stage_stmt(s->t, g)->out];
    int64_t shape[KILN_MAX_RANK];
    for (int i = 0; i < x->rank; i++) shape[i] = i == dim ? extent : x->shape[i];
    const char *name = kn_format(s->a, "%s_pad_%s", x->name, s->args[1]);
    if (name && grows_itself(s, x)) {
        for (int i = 0; i < s->t->program->ntensors; i++)
            if (!strcmp(s->t->program->tensors[i].name, name)) return kn_step_refuse(s, "there is a tensor '%s' already", name);
        x->name = name;
        x->shape[dim] = extent;
        return KILN_OK;
    }
    return name ? kn_step_divert(s, g, name, shape) : kn_fail(s->d, KILN_MEMORY, "out of memory while padding");
}

kiln_status kn_prim_pad_einsum(kn_step *s)
{
    kn_stage *g = kn_step_fresh(s, s->args[0]);
    int axis = g ? kn_step_axis(s, g, s->args[1]) : -1, n;
    int64_t multiple, step;
    if (axis < 0 || !kn_step_int(s, s->args[2], 2, KILN_MAX_EXTENT, &multiple)) return KILN_TRACE;
    kn_program *p = s->t->program;
    kn_stmt *st = kn_stage_stmt(s->t, g);
    bool reduce = st->axes[axis].reduce;
    int64_t extent = kn_ceil_div(st->axes[axis].extent, multiple) * multiple;
    if (st->red != KN_RED_SUM || st->scatter || g->epilogue >= 0 || !product(st->body))
        return kn_step_refuse(s, "'%s' is not a plain sum of products", s->args[0]);
    if (extent == st->axes[axis].extent) return kn_step_refuse(s, "axis '%s' is a multiple of %s already", s->args[1], s->args[2]);
    int out = plain_dim((const kn_expr *const *)st->lhs, p->tensors[st->out].rank, axis);
    if (!reduce && out < 0) return kn_step_refuse(s, "'%s' is not written at '%s' itself", s->args[0], s->args[1]);
    const kn_expr *loads[KILN_MAX_TENSORS];
    n = kn_loads(st->body, loads, KILN_MAX_TENSORS);
    for (int i = 0; i < n; i++) {
        int dim = plain_dim((const kn_expr *const *)loads[i]->args, loads[i]->nargs, axis);
        if (dim == -2 && window_dim(s, st, loads[i], axis, &step) >= 0) continue;
        if (dim == -2) return kn_step_refuse(s, "load %d does not index by '%s' itself", i, s->args[1]);
        if (dim >= 0 && p->tensors[loads[i]->u.tensor].shape[dim] != st->axes[axis].extent)
            return kn_step_refuse(s, "load %d reads only a part of '%s'", i, p->tensors[loads[i]->u.tensor].name);
        if (reduce && dim < 0) return kn_step_refuse(s, "load %d has no axis '%s', so that zeros cannot stand for it", i, s->args[1]);
    }
    for (int i = 0; i < n; i++) {
        const kn_expr *load = kn_stage_load(s->t, g, i); /* found anew: replacing one rebuilds those above it */
        int dim = load ? plain_dim((const kn_expr *const *)load->args, load->nargs, axis) : -1;
        bool padded = load && dim >= 0 && p->tensors[load->u.tensor].shape[dim] >= extent;
        if (dim == -2) {
            dim = window_dim(s, st, load, axis, &step);
            grow(s, own_writer(s, load, dim), dim, p->tensors[load->u.tensor].shape[dim] + step * (extent - st->axes[axis].extent), true);
            continue;
        }
        if (dim >= 0 && !padded && !padded_copy(s, g, load, dim, extent)) return s->d->status;
    }
    if (!reduce) {
        kiln_status bad = cropped_output(s, g, out, extent);
        if (bad) return bad;
    }
    kn_stage_stmt(s->t, g)->axes[axis].extent = extent;
    kn_stage_loops_init(g, kn_stage_stmt(s->t, g));
    return KILN_OK;
}
