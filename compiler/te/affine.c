/* The affine view of indices, and walks over the loads and axes of an expression. */
#include "te/expr.h"

enum { ALL_AXES = -1 };

/* Parts that hold none of the axes are left out. */
static bool accumulate(const kn_expr *e, int64_t scale, int64_t axes, kn_affine *out)
{
    int64_t t;
    if (axes != ALL_AXES && !(kn_axes_in(e) & axes)) return true;
    switch (e->op) {
    case KN_OP_CONST_I:
        return !__builtin_mul_overflow(e->u.i, scale, &t) && !__builtin_add_overflow(out->offset, t, &out->offset);
    case KN_OP_AXIS: return !__builtin_add_overflow(out->coef[e->u.axis], scale, &out->coef[e->u.axis]);
    case KN_OP_NEG: return scale != INT64_MIN && accumulate(e->args[0], -scale, axes, out);
    case KN_OP_ADD: return accumulate(e->args[0], scale, axes, out) && accumulate(e->args[1], scale, axes, out);
    case KN_OP_SUB: return scale != INT64_MIN && accumulate(e->args[0], scale, axes, out) && accumulate(e->args[1], -scale, axes, out);
    case KN_OP_MUL:
        for (int i = 0; i < 2; i++)
            if (kn_is_int_const(e->args[i]) && !__builtin_mul_overflow(e->args[i]->u.i, scale, &t))
                return accumulate(e->args[1 - i], t, axes, out);
        return false;
    default: return false;
    }
}

bool kn_affine_of(const kn_expr *index, kn_affine *out)
{
    *out = (kn_affine){0};
    return index && !kn_is_float(index->dtype) && accumulate(index, 1, ALL_AXES, out);
}

bool kn_affine_in(const kn_expr *index, uint32_t axes, kn_affine *out)
{
    *out = (kn_affine){0};
    return index && !kn_is_float(index->dtype) && accumulate(index, 1, axes, out);
}

static int collect(const kn_expr *e, const kn_expr **out, int cap, int n)
{
    if (e->op == KN_OP_LOAD) {
        if (n < cap) out[n] = e;
        n++;
    }
    for (int i = 0; i < e->nargs; i++) n = collect(e->args[i], out, cap, n);
    return n;
}

bool kn_has_function(const kn_expr *e)
{
    bool yes = kn_is_function(e->op);
    for (int i = 0; i < e->nargs && e->op != KN_OP_LOAD && !yes; i++) yes = kn_has_function(e->args[i]);
    return yes;
}

int kn_loads(const kn_expr *body, const kn_expr **out, int cap) { return collect(body, out, cap, 0); }

uint32_t kn_axes_in(const kn_expr *e)
{
    uint32_t set = e->op == KN_OP_AXIS ? 1u << e->u.axis : 0;
    for (int i = 0; i < e->nargs; i++) set |= kn_axes_in(e->args[i]);
    return set;
}
