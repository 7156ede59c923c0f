/* unfold S I B R C V T: spatial axis B and reduce axis R of S slide together along one dimension of load I, reduce axis C is another dimension by
 * itself. The load reads the new temporary T instead, in which every window along B has its elements side by side, padding filled in, and both
 * reduce axes become one axis V:
 *
 *   T[..., B, ..., V] = what load I reads at B * stride + R * dilation + offset, and at C
 *   S reads T[..., B, ..., V]; V = R * extent(C) + C where C lies inside the window's dimension, else C * extent(R) + R
 *
 * The other dimensions of the load are boxes, which windows along them share. It is what im2col does, along rows alone: terms of few channels
 * become as many as the window is wide. */
#include "schedule/sched.h"
#include <string.h>

typedef struct unfolding {
    const kn_expr *load;
    int b, r, c;                 /* axes of S */
    int window, channel;         /* dimensions of the load */
    int64_t first, second;       /* extents of the digits of V, the slower one first */
    bool inside;                 /* C is the faster one */
    kn_stmt t;
    int rank;
    int64_t shape[KILN_MAX_RANK];
    kn_expr *from[KILN_MAX_RANK], *at[KILN_MAX_RANK]; /* what T is filled from, and where S reads it */
} unfolding;

static kiln_status find(kn_step *s, const kn_stmt *st, unfolding *x)
{
    kn_affine f;
    uint32_t wanted = 1u << x->b | 1u << x->r;
    x->window = x->channel = -1;
    if (st->axes[x->b].reduce) return kn_step_refuse(s, "'%s' is not a spatial axis", s->args[2]);
    for (int k = 0; k < 2; k++)
        if (!st->axes[k ? x->c : x->r].reduce) return kn_step_refuse(s, "'%s' is not a reduce axis", s->args[3 + k]);
    if (x->c == x->r) return kn_step_refuse(s, "'%s' is one axis, two are wanted", s->args[3]);
    for (int i = 0; i < x->load->nargs; i++) {
        const kn_expr *at = x->load->args[i];
        uint32_t in = kn_axes_in(at);
        if (in == wanted && x->window < 0 && kn_affine_of(at, &f) && f.coef[x->b] > 0 && f.coef[x->r] > 0) x->window = i;
        else if (at->op == KN_OP_AXIS && at->u.axis == x->c && x->channel < 0) x->channel = i;
        else if (in & (wanted | 1u << x->c))
            return kn_step_refuse(s, "index %d of load %s is neither a window of '%s' and '%s' nor '%s' by itself", i, s->args[1], s->args[2],
                                  s->args[3], s->args[4]);
    }
    if (x->window < 0) return kn_step_refuse(s, "load %s slides along no dimension with '%s' and '%s'", s->args[1], s->args[2], s->args[3]);
    if (x->channel < 0) return kn_step_refuse(s, "load %s has no dimension that is '%s'", s->args[1], s->args[4]);
    x->inside = x->channel > x->window;
    x->first = st->axes[x->inside ? x->r : x->c].extent;
    x->second = st->axes[x->inside ? x->c : x->r].extent;
    return KILN_OK;
}

static kn_expr *new_axis(kn_step *s, unfolding *x, const char *name, int64_t extent)
{
    x->t.axes[x->t.naxes] = (kn_axis){name, extent, false};
    x->shape[x->rank] = extent;
    return x->t.lhs[x->rank++] = kn_axis_ref(s->a, x->t.naxes++);
}

static kn_expr *digit(kn_step *s, kn_expr *v, const unfolding *x, bool slower)
{
    return kn_bin(s->a, slower ? KN_OP_FLOORDIV : KN_OP_MOD, v, kn_const_i(s->a, KN_I64, x->second));
}

/* T's dimensions in the order of the load's, without the channels; V is the last one. */
static bool dimensions(kn_step *s, const kn_stmt *st, unfolding *x, kn_expr *v)
{
    kn_affine f;
    for (int i = 0; i < x->load->nargs; i++) {
        int64_t lo, hi;
        kn_expr *at = x->load->args[i];
        if (i == x->channel) continue;
        if (i == x->window) {
            x->at[x->rank] = kn_axis_ref(s->a, x->b);
            x->from[i] = new_axis(s, x, st->axes[x->b].name, st->axes[x->b].extent);
            continue;
        }
        if (!kn_expr_range(at, kn_sched_range, (void *)(uintptr_t)st, &lo, &hi) || hi - lo >= KILN_MAX_EXTENT)
            return kn_step_refuse(s, "index %d of load %s has no known range", i, s->args[1]), false;
        x->at[x->rank] = kn_bin(s->a, KN_OP_SUB, at, kn_const_i(s->a, KN_I64, lo));
        x->from[i] = kn_bin(s->a, KN_OP_ADD, new_axis(s, x, kn_format(s->a, "X%d", i), hi - lo + 1), kn_const_i(s->a, KN_I64, lo));
    }
    x->at[x->rank] = v;
    kn_expr *own = new_axis(s, x, s->args[5], x->first * x->second);
    if (!kn_affine_of(x->load->args[x->window], &f)) return kn_step_refuse(s, "index %d of load %s is not affine", x->window, s->args[1]), false;
    kn_expr *along = kn_bin(s->a, KN_OP_MUL, x->from[x->window], kn_const_i(s->a, KN_I64, f.coef[x->b]));
    kn_expr *tap = kn_bin(s->a, KN_OP_MUL, digit(s, own, x, x->inside), kn_const_i(s->a, KN_I64, f.coef[x->r]));
    x->from[x->window] = kn_bin(s->a, KN_OP_ADD, kn_bin(s->a, KN_OP_ADD, along, tap), kn_const_i(s->a, KN_I64, f.offset));
    x->from[x->channel] = digit(s, own, x, !x->inside);
    return true;
}

typedef struct renumber { int map[KILN_MAX_AXES]; int r, c; kn_expr *tap, *channel; } renumber;

static kn_expr *moved(void *user, kiln_arena *a, kn_expr *e)
{
    const renumber *n = user;
    if (e->op != KN_OP_AXIS) return e;
    if (e->u.axis == n->r) return n->tap;
    return e->u.axis == n->c ? n->channel : kn_axis_ref(a, n->map[e->u.axis]);
}

/* V stands where the earlier of the two axes stood. */
static kiln_status rewrite_statement(kn_step *s, kn_stage *g, const unfolding *x)
{
    kn_stmt *st = kn_stage_stmt(s->t, g);
    renumber n = {.r = x->r, .c = x->c};
    int kept = 0, place = x->r < x->c ? x->r : x->c, gone = x->r < x->c ? x->c : x->r;
    for (int i = 0; i < st->naxes; i++) n.map[i] = i == gone ? place : kept++;
    kn_expr *v = kn_axis_ref(s->a, n.map[place]);
    n.tap = digit(s, v, x, x->inside);
    n.channel = digit(s, v, x, !x->inside);
    int rank = s->t->program->tensors[st->out].rank;
    for (int i = 0; i < rank; i++) st->lhs[i] = kn_rewrite(s->a, st->lhs[i], moved, &n);
    st->body = kn_rewrite(s->a, st->body, moved, &n);
    st->axes[place] = (kn_axis){kn_strdup(s->a, s->args[5]), x->first * x->second, true};
    memmove(&st->axes[gone], &st->axes[gone + 1], sizeof *st->axes * (size_t)(st->naxes - gone - 1));
    st->naxes--;
    if (!st->body || kn_arena_dry(s->a)) return kn_fail(s->d, KILN_MEMORY, "out of memory while unfolding a window");
    kn_stmt_simplify(s->a, st, rank);
    kn_stage_loops_init(g, st);
    return KILN_OK;
}

static kiln_status check(kn_step *s, const kn_stage *g, const kn_stmt *st, const unfolding *x)
{
    int64_t elems = 1;
    if (g->epilogue >= 0 || st->scatter) return kn_step_refuse(s, "'%s' is not a plain statement", s->args[0]);
    if (strlen(s->args[5]) >= KILN_MAX_NAME_BYTES) return kn_step_refuse(s, "the name '%s' is too long", s->args[5]);
    for (int i = 0; i < st->naxes; i++)
        if (!strcmp(st->axes[i].name, s->args[5]) && i != x->r && i != x->c) return kn_step_refuse(s, "there is an axis '%s' already", s->args[5]);
    for (int i = 0; i < x->rank; i++)
        if (!kn_mul_fits(elems, x->shape[i], &elems) || elems > KILN_MAX_ELEMENTS)
            return kn_step_refuse(s, "'%s' would have too many elements", s->args[6]);
    return KILN_OK;
}

kiln_status kn_prim_unfold(kn_step *s)
{
    kn_stage *g = kn_step_fresh(s, s->args[0]);
    unfolding x = {.load = g ? kn_step_load(s, g, s->args[1]) : NULL, .t = {.red = KN_RED_NONE}};
    if (!x.load) return s->d->status;
    kn_stmt *st = kn_stage_stmt(s->t, g);
    if ((x.b = kn_step_axis(s, g, s->args[2])) < 0 || (x.r = kn_step_axis(s, g, s->args[3])) < 0 || (x.c = kn_step_axis(s, g, s->args[4])) < 0)
        return s->d->status;
    kiln_status bad = find(s, st, &x);
    if (bad) return bad;
    kn_expr *r = kn_axis_ref(s->a, x.r), *c = kn_axis_ref(s->a, x.c); /* S's old axes, which rewrite_statement replaces */
    kn_expr *v = kn_bin(s->a, KN_OP_ADD, kn_bin(s->a, KN_OP_MUL, x.inside ? r : c, kn_const_i(s->a, KN_I64, x.second)), x.inside ? c : r);
    if (!dimensions(s, st, &x, v)) return s->d->status;
    if ((bad = check(s, g, st, &x))) return bad;
    x.t.nspatial = x.t.naxes;
    x.t.out = kn_step_temp(s, s->args[6], x.load->dtype, x.rank, x.shape);
    if (x.t.out < 0) return s->d->status;
    kn_program *p = s->t->program;
    x.t.body = kn_load_padded(s->a, p, x.load->u.tensor, x.from, x.load->padded ? x.load->pad_value : 0);
    kn_expr *read = x.t.body ? kn_load(s->a, p, x.t.out, x.at) : NULL;
    if (!read || kn_arena_dry(s->a)) return kn_fail(s->d, KILN_MEMORY, "out of memory while unfolding a window");
    kn_stmt_simplify(s->a, &x.t, x.rank);
    if (!x.load->padded && kn_inside(p, &x.t, x.t.body)) x.t.body = kn_load(s->a, p, x.load->u.tensor, x.t.body->args);
    if (!x.t.body || !kn_step_insert(s, g, &x.t, false)) return s->d->status ? s->d->status : KILN_MEMORY;
    kn_stmt_replace(s->a, kn_stage_stmt(s->t, g), x.load, read);
    return rewrite_statement(s, g, &x);
}
