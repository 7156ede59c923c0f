/* Groups of a convolution: the results' channels number one factor, and by their quotient the other one, whose index is no affine one until
 * shape_axes.c has made two axes of them. Not where registers of a unit of its own take the sum: a group leaves these empty. */
#include "construct/site.h"

/* The axis stands in e as its quotient by a constant alone. */
static bool only_divided(const kn_expr *e, int x)
{
    if (e->op == KN_OP_AXIS) return e->u.axis != x;
    if (e->op == KN_OP_FLOORDIV && e->args[0]->op == KN_OP_AXIS && e->args[1]->op == KN_OP_CONST_I) return true;
    for (int i = 0; i < e->nargs; i++)
        if (!only_divided(e->args[i], x)) return false;
    return true;
}

bool kn_numbers_groups(const kn_stmt *st, int x)
{
    const kn_expr *loads[2];
    bool whole = false, divided = false;
    if (st->red == KN_RED_NONE || st->scatter || kn_loads(st->body, loads, 2) != 2) return false;
    for (int l = 0; l < 2; l++) {
        for (int d = 0; d < loads[l]->nargs; d++) {
            const kn_expr *e = loads[l]->args[d];
            if (!(kn_axes_in(e) >> x & 1)) continue;
            if (e->op == KN_OP_AXIS) whole = true;
            else if (only_divided(e, x)) divided = true;
            else return false;
        }
    }
    return whole && divided;
}
