/* Axis fusion for policy "roller": what the artifact's authors wrote by hand (implicit GEMM) and the paper's adjacency rule (section 3.4). */
#include "construct/roller.h"
#include <string.h>

/* The product's two loads, through casts; false when the body is anything else. */
static bool two_factors(const kn_expr *e, const kn_expr **x, const kn_expr **y)
{
    while (e->op == KN_OP_CAST) e = e->args[0];
    if (e->op != KN_OP_MUL) return false;
    *x = e->args[0];
    *y = e->args[1];
    while ((*x)->op == KN_OP_CAST) *x = (*x)->args[0];
    while ((*y)->op == KN_OP_CAST) *y = (*y)->args[0];
    return (*x)->op == KN_OP_LOAD && (*y)->op == KN_OP_LOAD;
}

bool kn_roller_gemm_groups(const kn_stmt *s, int *group)
{
    const kn_expr *x, *y;
    bool any[2] = {false, false};
    if (s->red != KN_RED_SUM || !s->nspatial || !two_factors(s->body, &x, &y)) return false;
    uint32_t in_x = kn_axes_in(x), in_y = kn_axes_in(y);
    bool last_in_x = in_x >> (s->nspatial - 1) & 1;
    for (int i = 0; i < s->naxes; i++) {
        bool a = in_x >> i & 1, b = in_y >> i & 1;
        if (i >= s->nspatial) {
            if (!a || !b) return false;
            group[i] = 2;
            continue;
        }
        if (a == b) return false; /* a batch axis, or one that no operand has: no plain GEMM */
        group[i] = a == last_in_x;
        any[group[i]] = true;
    }
    return any[0] && any[1];
}

/* Axis i is dimension k of the access and nothing else stands there. */
static bool plain_at(const kn_expr *load, int k, int axis)
{
    return load->args[k]->op == KN_OP_AXIS && load->args[k]->u.axis == axis;
}

/* In every access both axes stand side by side, bare, and nowhere else; or both are absent. Spatial axes are in the order of the output. */
static bool may_fuse(const kn_stmt *s, const kn_expr *const *loads, int n, int x, int y)
{
    if ((x < s->nspatial) != (y < s->nspatial)) return false;
    for (int i = 0; i < n; i++) {
        uint32_t has = kn_axes_in(loads[i]);
        bool found = !(has >> x & 1) && !(has >> y & 1);
        for (int k = 0; k + 1 < loads[i]->nargs && !found; k++) {
            uint32_t rest = 0;
            for (int j = 0; j < loads[i]->nargs; j++)
                if (j != k && j != k + 1) rest |= kn_axes_in(loads[i]->args[j]);
            found = plain_at(loads[i], k, x) && plain_at(loads[i], k + 1, y) && !(rest >> x & 1) && !(rest >> y & 1);
        }
        if (!found) return false;
    }
    return true;
}

int kn_roller_fuse_groups(const kn_stmt *s, int *fused)
{
    const kn_expr *loads[KN_ROLLER_OPERANDS];
    int n = kn_loads(s->body, loads, KN_ROLLER_OPERANDS), groups = 0;
    if (n > KN_ROLLER_OPERANDS) n = KN_ROLLER_OPERANDS;
    for (int i = 0; i < s->naxes; i++) {
        if (i && may_fuse(s, loads, n, i - 1, i)) fused[i] = groups - 1;
        else fused[i] = groups++;
    }
    return groups;
}
