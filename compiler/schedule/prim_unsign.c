/* unsign S I T U W: load I of a sum of products of integers, an i8, becomes a u8 that is 128 more, for instructions that multiply unsigned by signed:
 * x*y = (x+128)*y - 128*y. T holds x+128, U the sum of the other factor, W what S computes now; a copy behind S takes W - 128*U to where S wrote
 * before. S is named W from then on. All of it is in the integer in which S accumulates, so sums wrap as they did. */
#include "schedule/sched.h"

enum { OFFSET = 128 };

/* The factor that casts the load to what the products are in, NULL: the body is no product of two such loads. *other: the other one. */
static const kn_expr *factor_of(const kn_expr *body, const kn_expr *load, const kn_expr **other)
{
    if (body->op != KN_OP_MUL) return NULL;
    for (int i = 0; i < 2; i++) {
        const kn_expr *x = body->args[i], *y = body->args[1 - i];
        if (x->op != KN_OP_CAST || y->op != KN_OP_CAST || x->args[0] != load || y->args[0]->op != KN_OP_LOAD || y->args[0] == load) continue;
        *other = y;
        return x;
    }
    return NULL;
}

/* T: the tensor that is read, 128 more. */
static int add_offset(kn_step *s, kn_stage *g, const kn_expr *load, enum kn_dtype wide)
{
    kn_stmt t;
    kn_expr *x = kn_step_each(s, load, s->args[2], KN_U8, &t), *value = x ? kn_cast(s->a, wide, x) : NULL;
    if (!x) return -1;
    t.body = kn_cast(s->a, KN_U8, kn_bin(s->a, KN_OP_ADD, value, kn_const_i(s->a, wide, OFFSET)));
    return t.body && kn_step_insert(s, g, &t, false) ? t.out : -1;
}

static kn_expr *renumber(void *user, kiln_arena *a, kn_expr *e)
{
    const int *to = user;
    return e->op == KN_OP_AXIS ? kn_axis_ref(a, to[e->u.axis]) : e;
}

/* U: the sum of the other factor over the reduce axes, at the spatial axes that it has; idx: U's indices by the result's dimensions. */
static int add_sum(kn_step *s, kn_stage *g, const kn_expr *other, kn_expr **idx, int *rank)
{
    kn_program *p = s->t->program;
    const kn_stmt *st = kn_stage_stmt(s->t, g);
    kn_stmt u = *st;
    int64_t shape[KILN_MAX_RANK] = { 0 };
    *rank = 0;
    for (int d = 0; d < p->tensors[st->out].rank; d++) {
        int a = st->lhs[d]->u.axis;
        if (!(kn_axes_in(other) >> a & 1)) continue;
        shape[*rank] = st->axes[a].extent;
        u.lhs[*rank] = st->lhs[d];
        idx[(*rank)++] = kn_axis_ref(s->a, d);
    }
    u.out = kn_step_temp(s, s->args[3], other->dtype, *rank, shape);
    if (u.out < 0) return -1;
    int to[KILN_MAX_AXES] = { 0 };
    u.naxes = u.nspatial = 0;
    for (int a = 0; a < st->naxes; a++) {
        if (!st->axes[a].reduce && !(kn_axes_in(other) >> a & 1)) continue;
        to[a] = u.naxes;
        u.axes[u.naxes++] = st->axes[a];
        u.nspatial += !st->axes[a].reduce;
    }
    u.body = kn_rewrite(s->a, (kn_expr *)(uintptr_t)other, renumber, to);
    for (int i = 0; i < *rank; i++) u.lhs[i] = kn_rewrite(s->a, u.lhs[i], renumber, to);
    return u.body && !kn_arena_dry(s->a) && kn_step_insert(s, g, &u, false) ? u.out : -1;
}

kiln_status kn_prim_unsign(kn_step *s)
{
    kn_stage *g = kn_step_fresh(s, s->args[0]);
    const kn_expr *load = g ? kn_step_load(s, g, s->args[1]) : NULL, *other = NULL;
    if (!load) return s->d->status;
    kn_program *p = s->t->program;
    kn_stmt *st = kn_stage_stmt(s->t, g);
    const kn_expr *cast = factor_of(st->body, load, &other);
    kn_expr *idx[KILN_MAX_RANK] = { NULL };
    int rank;
    if (st->red != KN_RED_SUM || !cast || load->dtype != KN_I8 || kn_dtype_class(cast->dtype) != 'i' || kn_dtype_bytes(cast->dtype) < 4)
        return kn_step_refuse(s, "load %s is no i8 that a sum of products of integers casts to i32 or i64", s->args[1]);
    if (st->scatter || g->epilogue >= 0) return kn_step_refuse(s, "'%s' scatters or has an epilogue", s->args[0]);
    for (int d = 0; d < p->tensors[st->out].rank; d++)
        if (st->lhs[d]->op != KN_OP_AXIS) return kn_step_refuse(s, "'%s' is not written at its own axes", s->args[0]);
    int sum = add_sum(s, g, other, idx, &rank), more = sum < 0 ? -1 : add_offset(s, g, load, cast->dtype);
    if (more < 0) return s->d->status ? s->d->status : kn_fail(s->d, KILN_MEMORY, "out of memory while unsigning a load");
    st = kn_stage_stmt(s->t, g);
    kn_expr *read = load->padded ? kn_load_padded(s->a, p, more, load->args, load->pad_value + OFFSET) : kn_load(s->a, p, more, load->args);
    if (!read) return kn_fail(s->d, KILN_MEMORY, "out of memory while unsigning a load");
    kn_stmt_replace(s->a, st, cast, kn_cast(s->a, cast->dtype, read));
    kiln_status bad = kn_step_divert(s, g, s->args[4], p->tensors[st->out].shape);
    if (bad) return bad;
    kn_stmt *copy = p->stmts[g->stmt + 1];
    kn_expr *less = kn_bin(s->a, KN_OP_MUL, kn_load(s->a, p, sum, idx), kn_const_i(s->a, cast->dtype, OFFSET));
    if (less && less->dtype != copy->body->dtype) less = kn_cast(s->a, copy->body->dtype, less);
    copy->body = less ? kn_bin(s->a, KN_OP_SUB, copy->body, less) : NULL;
    return copy->body && !kn_arena_dry(s->a) ? KILN_OK : kn_fail(s->d, KILN_MEMORY, "out of memory while unsigning a load");
}
