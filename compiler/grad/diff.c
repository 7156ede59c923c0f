/* The derivative of an expression by one of its reads, rule by rule; zero is NULL so that nothing is built for what does not depend. */
#include "grad/parts.h"

typedef struct differ { kiln_arena *a; const kn_expr *load; kiln_diag *d; kiln_status status; } differ;

static kn_expr *number(differ *x, const kn_expr *like, double v) { return kn_const_f(x->a, like->dtype, v); }
static kn_expr *mul(differ *x, kn_expr *p, kn_expr *q) { return p && q ? kn_bin(x->a, KN_OP_MUL, p, q) : NULL; }
static kn_expr *over(differ *x, kn_expr *p, kn_expr *q) { return p ? kn_bin(x->a, KN_OP_DIV, p, q) : NULL; }
static kn_expr *negated(differ *x, kn_expr *p) { return p ? kn_un(x->a, KN_OP_NEG, p) : NULL; }

static kn_expr *sum(differ *x, kn_expr *p, kn_expr *q) { return !p ? q : !q ? p : kn_bin(x->a, KN_OP_ADD, p, q); }

static kn_expr *choose(differ *x, kn_expr *c, const kn_expr *like, kn_expr *p, kn_expr *q)
{
    if (!p && !q) return NULL;
    return kn_select(x->a, c, p ? p : number(x, like, 0), q ? q : number(x, like, 0));
}

/* The slope of a function of one operand u, whose value is e itself. */
static kn_expr *slope(differ *x, const kn_expr *e)
{
    kiln_arena *a = x->a;
    kn_expr *u = e->args[0], *self = (kn_expr *)e, *one = number(x, e, 1), *zero = number(x, e, 0);
    switch (e->op) {
    case KN_OP_NEG: return number(x, e, -1);
    case KN_OP_ABS: /* 0 at 0 */
        return kn_select(a, kn_bin(a, KN_OP_LT, u, zero), number(x, e, -1), kn_select(a, kn_bin(a, KN_OP_LT, zero, u), one, zero));
    case KN_OP_EXP: return self;
    case KN_OP_LOG: return over(x, one, u);
    case KN_OP_SQRT: return over(x, number(x, e, 0.5), self);
    case KN_OP_RSQRT: return over(x, mul(x, number(x, e, -0.5), self), u);
    case KN_OP_TANH: return kn_bin(a, KN_OP_SUB, one, mul(x, self, self));
    case KN_OP_ERF: /* 2 / sqrt(pi) * exp(-u*u) */
        return mul(x, number(x, e, 1.1283791670955126), kn_un(a, KN_OP_EXP, negated(x, mul(x, u, u))));
    case KN_OP_SIN: return kn_un(a, KN_OP_COS, u);
    case KN_OP_COS: return negated(x, kn_un(a, KN_OP_SIN, u));
    default: return NULL; /* FLOOR, CEIL, ROUND: flat wherever they have a derivative */
    }
}

static kn_expr *diff(differ *x, const kn_expr *e);

/* x^y: y * x^(y-1) dx + x^y * log(x) dy, the second 0 where x is not positive. */
static kn_expr *power(differ *x, const kn_expr *e, kn_expr *dx, kn_expr *dy)
{
    kiln_arena *a = x->a;
    kn_expr *u = e->args[0], *v = e->args[1], *zero = number(x, e, 0), *first = NULL, *second = NULL;
    if (dx) first = mul(x, mul(x, v, kn_bin(a, KN_OP_POW, u, kn_bin(a, KN_OP_SUB, v, number(x, e, 1)))), dx);
    if (dy) second = kn_select(a, kn_bin(a, KN_OP_LT, zero, u), mul(x, mul(x, (kn_expr *)e, kn_un(a, KN_OP_LOG, u)), dy), zero);
    return sum(x, first, second);
}

/* dv/v where v is c + exp(g): exp(g)/v is 1 - c/v, which stays finite where exp(g) overflows, long before the logistic function or its
 * integral has no slope left. NULL: v is something else. */
static kn_expr *relative_slope(differ *x, const kn_expr *v)
{
    for (int i = 0; i < 2 && v->op == KN_OP_ADD; i++) {
        kn_expr *c = v->args[i], *g = v->args[1 - i];
        if (c->op != KN_OP_CONST_F || g->op != KN_OP_EXP) continue;
        kn_expr *share = kn_bin(x->a, KN_OP_SUB, number(x, v, 1), over(x, c, (kn_expr *)v));
        return mul(x, share, diff(x, g->args[0]));
    }
    return NULL;
}

/* What u/v changes by its divisor. */
static kn_expr *quotient_slope(differ *x, const kn_expr *e, kn_expr *dv)
{
    kn_expr *relative = dv ? relative_slope(x, e->args[1]) : NULL;
    return relative ? mul(x, (kn_expr *)e, relative) : mul(x, over(x, (kn_expr *)e, e->args[1]), dv);
}

static kn_expr *two(differ *x, const kn_expr *e)
{
    kiln_arena *a = x->a;
    kn_expr *u = e->args[0], *v = e->args[1], *du = diff(x, u), *dv = diff(x, v);
    if (!du && !dv) return NULL;
    switch (e->op) {
    case KN_OP_ADD: return sum(x, du, dv);
    case KN_OP_SUB: return sum(x, du, negated(x, dv));
    case KN_OP_MUL: return sum(x, mul(x, du, v), mul(x, dv, u));
    case KN_OP_DIV: return sum(x, over(x, du, v), negated(x, quotient_slope(x, e, dv)));
    case KN_OP_POW: return power(x, e, du, dv);
    case KN_OP_FLOORDIV: return NULL;
    case KN_OP_MOD: /* u - floor(u/v) * v */
        return sum(x, du, dv ? negated(x, mul(x, kn_un(a, KN_OP_FLOOR, over(x, u, v)), dv)) : NULL);
    case KN_OP_MIN:
    case KN_OP_MAX: { /* at a tie the operand that is a constant, else the second, has the slope: relu'(0) is 0 */
        if (!du) return choose(x, kn_bin(a, KN_OP_LT, e->op == KN_OP_MIN ? v : u, e->op == KN_OP_MIN ? u : v), e, dv, NULL);
        return choose(x, kn_bin(a, KN_OP_LT, e->op == KN_OP_MIN ? u : v, e->op == KN_OP_MIN ? v : u), e, du, dv);
    }
    default: return NULL;
    }
}

static bool depends(const kn_expr *e, const kn_expr *load)
{
    if (e->op == KN_OP_LOAD) return kn_expr_equal(e, load);
    for (int i = 0; i < e->nargs; i++)
        if (depends(e->args[i], load)) return true;
    return false;
}

static kn_expr *cast(differ *x, const kn_expr *e)
{
    if (!kn_is_float(e->dtype)) {
        if (depends(e->args[0], x->load)) {
            x->status = e->line ? kn_fail_text(x->d, KILN_UNSUPPORTED, e->line, e->col, "a cast to %s has no gradient", kn_dtype_text(e->dtype))
                                : kn_fail(x->d, KILN_UNSUPPORTED, "a cast to %s has no gradient", kn_dtype_text(e->dtype));
            kn_hint(x->d, "floor(x) stays a float, and has the gradient 0");
        }
        return NULL;
    }
    kn_expr *inner = diff(x, e->args[0]);
    return inner ? kn_cast(x->a, e->dtype, inner) : NULL;
}

static kn_expr *diff(differ *x, const kn_expr *e)
{
    if (x->status != KILN_OK) return NULL;
    if (e->op == KN_OP_CAST) return cast(x, e);
    if (!kn_is_float(e->dtype)) return NULL;
    switch (e->op) {
    case KN_OP_LOAD: return kn_expr_equal(e, x->load) ? number(x, e, 1) : NULL;
    case KN_OP_SELECT: return choose(x, e->args[0], e, diff(x, e->args[1]), diff(x, e->args[2]));
    default: break;
    }
    if (e->nargs == 2) return two(x, e);
    if (e->nargs != 1) return NULL;
    kn_expr *inner = diff(x, e->args[0]), *relative = inner && e->op == KN_OP_LOG ? relative_slope(x, e->args[0]) : NULL;
    return relative ? relative : inner ? mul(x, slope(x, e), inner) : NULL;
}

kiln_status kn_diff(kiln_arena *a, const kn_expr *body, const kn_expr *load, kn_expr **out, kiln_diag *d)
{
    differ x = {a, load, d, KILN_OK};
    kn_expr *e = diff(&x, body);
    if (x.status != KILN_OK) return x.status;
    if (kn_arena_dry(a)) return kn_fail(d, KILN_MEMORY, "out of memory");
    *out = e;
    return KILN_OK;
}
