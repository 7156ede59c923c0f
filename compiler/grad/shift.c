/* Values that a program only shifts by. Softmax subtracts the maximum of a row so that no exponential overflows, and divides by the sum of what it
 * has: whatever it had subtracted, the result is the same, and so nothing flows back through the maximum. Here that is found of any tensor: each of
 * its elements becomes m + c, with a c of its own, and statement by statement it is followed what that makes of the others. A value stays as it is,
 * is shifted by j*c or scaled by exp(j*c); exponentials make the first of these the second, logarithms the other way round. Where some output
 * changes, or something has none of these forms, the tensor matters, as far as is known here. */
#include "grad/parts.h"
#include <math.h>
#include <string.h>

enum kind { SAME, SHIFTED, SCALED, OTHER };

/* By which element of c: its indices, over the axes of a statement, or, of a tensor, over its own dimensions. */
typedef struct change {
    enum kind kind;
    bool zero;          /* a constant 0, which any factor leaves as it is */
    double j;           /* a multiple of a 256th below 256, so that no sum or product of two is rounded */
    kn_expr *at[KILN_MAX_RANK];
} change;

typedef struct follower {
    kiln_arena *a;
    const kn_program *p;
    const kn_stmt *s;
    int rank;           /* of the tensor that is shifted */
    change *tensor;
} follower;

static const change same = {.kind = SAME}, other = {.kind = OTHER};

static change by(change x, double j)
{
    enum { PART = 256, MOST = 256 };
    if (!(fabs(j) < MOST) || floor(j * PART) != j * PART) return other;
    if (j == 0) return same;
    x.j = j;
    return x;
}

static change of_kind(change x, enum kind kind)
{
    x.kind = x.kind == SAME ? SAME : kind;
    return x;
}

static bool changes(const change *x) { return x->kind != SAME; }

/* Both are changed by the same element of c. */
static bool together(const follower *f, const change *x, const change *y)
{
    for (int d = 0; d < f->rank; d++)
        if (!kn_expr_equal(x->at[d], y->at[d])) return false;
    return true;
}

/* Sum or difference: shifts add up, where one has none it is 0. */
static change shifts(const follower *f, change x, change y, double sign)
{
    if ((x.kind != SAME && x.kind != SHIFTED) || (y.kind != SAME && y.kind != SHIFTED)) return other;
    if (!changes(&y)) return x;
    if (!changes(&x)) return by(y, sign * y.j);
    return together(f, &x, &y) ? by(x, x.j + sign * y.j) : other;
}

/* Product or quotient: so do factors' exponents. */
static change scales(const follower *f, change x, change y, double sign)
{
    if ((x.kind != SAME && x.kind != SCALED) || (y.kind != SAME && y.kind != SCALED)) return other;
    if (!changes(&y)) return x;
    if (!changes(&x)) return by(y, sign * y.j);
    return together(f, &x, &y) ? by(x, x.j + sign * y.j) : other;
}

/* What is one of the two, or both plus each other. */
static change alike(const follower *f, change x, change y)
{
    if (x.zero && y.kind == SCALED) return y;
    if (y.zero && x.kind == SCALED) return x;
    if (x.kind != y.kind || x.kind == OTHER) return other;
    if (x.kind == SAME) return same;
    return x.j == y.j && together(f, &x, &y) ? x : other;
}

static change sum(const follower *f, change x, change y, double sign)
{
    change scaled = alike(f, x, y);
    return scaled.kind == SCALED ? scaled : shifts(f, x, y, sign);
}

static bool is_number(const kn_expr *e) { return e->op == KN_OP_CONST_F && isfinite(e->u.f); }

static change product(const follower *f, const kn_expr *e, change x, change y)
{
    if (x.kind == SHIFTED && is_number(e->args[1])) return by(x, x.j * e->args[1]->u.f);
    if (y.kind == SHIFTED && is_number(e->args[0])) return by(y, y.j * e->args[0]->u.f);
    return scales(f, x, y, 1);
}

static change quotient(const follower *f, const kn_expr *e, change x, change y)
{
    if (x.kind != SHIFTED || !is_number(e->args[1]) || e->args[1]->u.f == 0) return scales(f, x, y, -1);
    double j = x.j / e->args[1]->u.f;
    change z = by(x, j);
    return z.kind == SHIFTED && j * e->args[1]->u.f == x.j ? z : other;
}

static change power(const kn_expr *e, change x, change y)
{
    if (x.kind == SCALED && is_number(e->args[1])) return e->args[1]->u.f == 0 ? other : by(x, x.j * e->args[1]->u.f);
    return changes(&x) || changes(&y) ? other : same;
}

static kn_expr *at_index(void *user, kiln_arena *a, kn_expr *e)
{
    (void)a;
    return e->op == KN_OP_AXIS ? ((kn_expr *const *)user)[e->u.axis] : e;
}

static change change_of(follower *f, const kn_expr *e);

static change read(follower *f, const kn_expr *e)
{
    change x = f->tensor[e->u.tensor];
    for (int d = 0; d < e->nargs; d++) {
        change index = change_of(f, e->args[d]);
        if (changes(&index) || (changes(&x) && kn_loads(e->args[d], NULL, 0))) return other;
    }
    if (changes(&x) && e->padded && !(x.kind == SCALED && e->pad_value == 0)) return other;
    for (int d = 0; d < f->rank && changes(&x) && x.kind != OTHER; d++) {
        kn_expr *at = kn_rewrite(f->a, x.at[d], at_index, e->args);
        x.at[d] = at ? kn_simplify(f->a, at, kn_stmt_range, (void *)(uintptr_t)f->s) : NULL;
        if (!x.at[d]) return other;
    }
    return x;
}

/* Which of the two is less, and whether they are equal, stays as it is where both change alike. */
static change comparison(const follower *f, change x, change y)
{
    change both = alike(f, x, y);
    return both.kind == OTHER ? other : same;
}

static change change_of(follower *f, const kn_expr *e)
{
    if (e->op == KN_OP_LOAD) return read(f, e);
    if (e->op == KN_OP_CONST_F) return (change){.kind = SAME, .zero = e->u.f == 0};
    change x[3] = {same, same, same};
    bool any = false;
    for (int i = 0; i < e->nargs && i < 3; i++) {
        x[i] = change_of(f, e->args[i]);
        if (x[i].kind == OTHER) return other;
        any |= changes(&x[i]);
    }
    if (!any) return (change){.kind = SAME, .zero = e->op == KN_OP_CAST && kn_is_float(e->dtype) && x[0].zero};
    switch (e->op) {
    case KN_OP_CAST: return kn_is_float(e->dtype) ? x[0] : other;
    case KN_OP_NEG: return x[0].kind == SHIFTED ? by(x[0], -x[0].j) : x[0];
    case KN_OP_ABS: return x[0].kind == SCALED ? x[0] : other;
    case KN_OP_EXP: return x[0].kind == SHIFTED ? of_kind(x[0], SCALED) : other;
    case KN_OP_LOG: return x[0].kind == SCALED ? of_kind(x[0], SHIFTED) : other;
    case KN_OP_SQRT: return x[0].kind == SCALED ? by(x[0], x[0].j * 0.5) : other;
    case KN_OP_RSQRT: return x[0].kind == SCALED ? by(x[0], x[0].j * -0.5) : other;
    case KN_OP_ADD: return sum(f, x[0], x[1], 1);
    case KN_OP_SUB: return sum(f, x[0], x[1], -1);
    case KN_OP_MUL: return product(f, e, x[0], x[1]);
    case KN_OP_DIV: return quotient(f, e, x[0], x[1]);
    case KN_OP_POW: return power(e, x[0], x[1]);
    case KN_OP_MIN:
    case KN_OP_MAX: return alike(f, x[0], x[1]);
    case KN_OP_LT:
    case KN_OP_LE:
    case KN_OP_EQ:
    case KN_OP_NE: return comparison(f, x[0], x[1]);
    case KN_OP_SELECT: return changes(&x[0]) ? other : alike(f, x[1], x[2]);
    default: return other;
    }
}

/* Over so many terms, all of which change alike. */
static change reduced(const kn_stmt *s, change x)
{
    double terms = 1;
    for (int i = s->nspatial; i < s->naxes; i++) terms *= (double)s->axes[i].extent;
    switch (s->red) {
    case KN_RED_NONE:
    case KN_RED_MAX:
    case KN_RED_MIN: return x;
    case KN_RED_SUM: return x.kind == SHIFTED ? by(x, x.j * terms) : x;
    case KN_RED_PROD: return x.kind == SCALED ? by(x, x.j * terms) : other;
    default: return other;
    }
}

/* The statement's result, as its tensor's elements are read. */
static change result(follower *f, const kn_stmt *s)
{
    f->s = s;
    change x = change_of(f, s->body), before = f->tensor[s->out];
    kn_expr *dim[KILN_MAX_AXES] = {NULL};
    uint32_t known = 0;
    int rank = f->p->tensors[s->out].rank;
    for (int d = 0; d < rank; d++) {
        change at = change_of(f, s->lhs[d]);
        if (changes(&at)) return other;
        if (s->lhs[d]->op != KN_OP_AXIS) continue;
        dim[s->lhs[d]->u.axis] = kn_axis_ref(f->a, d);
        known |= 1u << s->lhs[d]->u.axis;
    }
    if (!changes(&x)) return changes(&before) ? other : same;
    if (s->scatter || x.kind == OTHER) return other;
    for (int d = 0; d < f->rank; d++)
        if (kn_axes_in(x.at[d]) & ~known) return other;
    x = reduced(s, x);
    for (int d = 0; d < f->rank && changes(&x); d++)
        if (!(x.at[d] = kn_rewrite(f->a, x.at[d], at_index, dim))) return other;
    return x;
}

bool kn_only_shifts(kiln_arena *a, const kn_program *p, int tensor)
{
    follower f = {.a = a, .p = p, .rank = p->tensors[tensor].rank, .tensor = kn_array(a, change, p->ntensors)};
    bool made = false;
    if (!f.tensor) return false;
    for (int t = 0; t < p->ntensors; t++) f.tensor[t] = same;
    for (int i = 0; i < p->nstmts; i++) {
        const kn_stmt *s = p->stmts[i];
        if (s->out != tensor) {
            f.tensor[s->out] = result(&f, s);
            continue;
        }
        if (made || s->scatter) return false;
        made = true;
        change own = {.kind = SHIFTED, .j = 1};
        for (int d = 0; d < f.rank; d++) own.at[d] = kn_axis_ref(a, d);
        f.tensor[tensor] = own;
    }
    for (int t = p->ninputs; t < p->ninputs + p->noutputs; t++)
        if (kn_is_float(p->tensors[t].dtype) && changes(&f.tensor[t])) return false;
    return made && !kn_arena_dry(a);
}
