/* Running sums and products: the terms up to each place of a block, a condition that compares an axis of the reduction with a place's number. All
 * places of a block are rows of one register tile that is written out, of which each has the terms that count (lower/reduce.c): what neighbours have
 * in common is then one chain of sums, as compilers find, and every element is read and added once. Lanes lie along another axis; else they are
 * places. */
#include "construct/cpu.h"
#include "te/expr.h"

enum { PLACES = 16 }; /* rows of a tile, and terms of a block, at most */

/* The axis that e counts places of, by blocks of `terms` of it or as a whole; -1. */
static int places_of(const kn_site *x, kiln_arena *a, kn_expr *e, int64_t terms)
{
    e = kn_simplify(a, e, kn_stmt_range, (void *)(uintptr_t)x->s);
    if (!e) return -1;
    bool block = e->op == KN_OP_MOD && e->args[1]->op == KN_OP_CONST_I && e->args[1]->u.i == terms;
    const kn_expr *axis = block ? e->args[0] : e;
    bool whole = axis->op == KN_OP_AXIS && axis->u.axis < x->s->nspatial;
    return whole && (block || x->s->axes[axis->u.axis].extent == terms) ? axis->u.axis : -1;
}

int kn_cpu_places(const kn_site *x, kiln_arena *a)
{
    const kn_stmt *s = x->s;
    const kn_expr *e = s->body, *loads[2];
    bool sum = (s->red == KN_RED_SUM || s->red == KN_RED_PROD) && s->naxes == s->nspatial + 1 && x->n >= 0 && kn_loads(e, loads, 2) == 1;
    if (!sum || e->op != KN_OP_SELECT || kn_bare(e->args[1])->op != KN_OP_LOAD || !kn_is_const(e->args[2])) return -1;
    const kn_expr *c = e->args[0];
    int64_t terms = s->axes[s->nspatial].extent;
    const kn_expr *row = loads[0]->nargs ? loads[0]->args[loads[0]->nargs - 1] : NULL;
    if (!row) return -1;
    if ((c->op != KN_OP_LT && c->op != KN_OP_LE) || terms < 2 || terms > PLACES) return -1;
    for (int i = 0; i < 2; i++) {
        if (c->args[i]->op != KN_OP_AXIS || c->args[i]->u.axis != s->nspatial) continue;
        int axis = places_of(x, a, c->args[1 - i], terms);
        bool has_n = row->op == KN_OP_AXIS && row->u.axis == x->n, beside = axis >= 0 && axis != x->n && has_n;
        return beside || (axis == x->n && !has_n && !loads[0]->padded) ? axis : -1;
    }
    return -1;
}

/* Places are the lanes: all of a block are a row of vectors, to which each term is added where it counts, by masks that are known, from one element
 * that all lanes read. Sums along the lanes would end with a sum of these for every place. */
static bool along(const kn_site *x, kn_plans *p)
{
    enum { SHORTER = 4 };
    int64_t terms = x->s->axes[x->s->nspatial].extent, lanes = kn_cpu_pow2(kn_cpu_extent(x, x->n), x->hw->vector_bytes / kn_cpu_acc_bytes(x));
    if (kn_cpu_extent(x, x->n) > terms && terms % lanes) lanes = kn_cpu_pow2(terms, lanes); /* a block is a vector, if not the widest */
    int64_t block = kn_cpu_extent(x, x->n) > terms ? terms : kn_cpu_extent(x, x->n);
    if (lanes < SHORTER || (kn_cpu_extent(x, x->n) > terms && terms % lanes)) return false;
    kn_cpu_tile t = {.lanes = lanes, .nv = kn_ceil_div(block, lanes), .mr = 1, .mc = 1, .nc = 1, .kb = 1, .rlanes = 1, .runroll = 1,
                     .grain = kn_cpu_grain(x, kn_cpu_other(x)), .terms = true};
    kn_cpu_try(x, p, &t);
    return p->n > 0;
}

bool kn_cpu_is_running(const kn_site *x, kiln_arena *a) { return kn_cpu_places(x, a) >= 0; }

bool kn_cpu_running(const kn_site *x, kn_plans *p)
{
    int axis = kn_cpu_places(x, p->a);
    if (axis < 0) return false;
    if (axis == x->n) return along(x, p);
    kn_site y = *x;
    y.m = axis;
    int64_t lanes = kn_cpu_pow2(kn_cpu_extent(&y, y.n), y.hw->vector_bytes / kn_cpu_acc_bytes(&y));
    if (lanes < 4) return false;
    kn_cpu_tile t = {.lanes = lanes, .nv = 1, .mr = y.s->axes[y.s->nspatial].extent, .mc = 1, .nc = 1, .kb = 1, .rlanes = 1, .runroll = 1,
                     .grain = kn_cpu_grain(&y, kn_cpu_other(&y)), .terms = true};
    kn_cpu_try(&y, p, &t);
    return p->n > 0;
}
