/* Ranges and simplification of integer index expressions. Index arithmetic is over the integers: it is assumed not to overflow int64,
 * which kn_check makes sure of for indices. */
#include "te/expr.h"

typedef struct span { int64_t lo, hi; } span;
static const span whole = {INT64_MIN, INT64_MAX};

static span corners(const int64_t *c, const bool *bad)
{
    span s = {c[0], c[0]};
    for (int i = 0; i < 4; i++) {
        if (bad[i]) return whole;
        if (c[i] < s.lo) s.lo = c[i];
        if (c[i] > s.hi) s.hi = c[i];
    }
    return s;
}

static span product(span x, span y)
{
    int64_t c[4];
    bool bad[4] = {__builtin_mul_overflow(x.lo, y.lo, &c[0]), __builtin_mul_overflow(x.lo, y.hi, &c[1]),
                   __builtin_mul_overflow(x.hi, y.lo, &c[2]), __builtin_mul_overflow(x.hi, y.hi, &c[3])};
    return corners(c, bad);
}

static span quotient(span x, span y)
{
    if (x.lo > x.hi || y.lo > y.hi) return whole; /* under guards that exclude each other */
    if (y.lo <= 0 && y.hi >= 0) return whole;
    if (x.lo == INT64_MIN && y.lo <= -1 && y.hi >= -1) return whole;
    int64_t c[4] = {kn_floor_div(x.lo, y.lo), kn_floor_div(x.lo, y.hi), kn_floor_div(x.hi, y.lo), kn_floor_div(x.hi, y.hi)};
    return corners(c, (bool[4]){false});
}

static span remainder_of(span x, span y)
{
    if (y.lo <= 0) return y.hi < 0 && y.lo > INT64_MIN ? (span){y.lo + 1, 0} : whole;
    if (x.lo >= 0 && x.hi < y.lo) return x;
    if (y.lo == y.hi && x.lo != INT64_MIN && kn_floor_div(x.lo, y.lo) == kn_floor_div(x.hi, y.lo))
        return (span){kn_floor_mod(x.lo, y.lo), kn_floor_mod(x.hi, y.lo)};
    return (span){0, y.hi - 1};
}

static span compare(enum kn_op op, span x, span y)
{
    static const span yes = {1, 1}, no = {0, 0}, either = {0, 1};
    bool apart = x.hi < y.lo || y.hi < x.lo, one = x.lo == x.hi && y.lo == y.hi && x.lo == y.lo;
    switch (op) {
    case KN_OP_LT: return x.hi < y.lo ? yes : x.lo >= y.hi ? no : either;
    case KN_OP_LE: return x.hi <= y.lo ? yes : x.lo > y.hi ? no : either;
    case KN_OP_EQ: return one ? yes : apart ? no : either;
    default: return one ? no : apart ? yes : either;
    }
}

static span two(enum kn_op op, span x, span y)
{
    span s;
    switch (op) {
    case KN_OP_ADD: return __builtin_add_overflow(x.lo, y.lo, &s.lo) || __builtin_add_overflow(x.hi, y.hi, &s.hi) ? whole : s;
    case KN_OP_SUB: return __builtin_sub_overflow(x.lo, y.hi, &s.lo) || __builtin_sub_overflow(x.hi, y.lo, &s.hi) ? whole : s;
    case KN_OP_MUL: return product(x, y);
    case KN_OP_FLOORDIV: return quotient(x, y);
    case KN_OP_MOD: return remainder_of(x, y);
    case KN_OP_MIN: return (span){x.lo < y.lo ? x.lo : y.lo, x.hi < y.hi ? x.hi : y.hi};
    case KN_OP_MAX: return (span){x.lo > y.lo ? x.lo : y.lo, x.hi > y.hi ? x.hi : y.hi};
    case KN_OP_AND: return (span){x.lo && y.lo, x.hi && y.hi};
    case KN_OP_OR: return (span){x.lo || y.lo, x.hi || y.hi};
    default: return compare(op, x, y);
    }
}

static span range_of(const kn_expr *e, kn_range_fn range, void *user);

static span inner(const kn_expr *e, kn_range_fn range, void *user)
{
    span s = whole, t;
    switch (e->op) {
    case KN_OP_CONST_I: return (span){e->u.i, e->u.i};
    case KN_OP_AXIS:
    case KN_OP_VAR: range(user, e, &s.lo, &s.hi); return s;
    case KN_OP_NEG: return two(KN_OP_SUB, (span){0, 0}, range_of(e->args[0], range, user));
    case KN_OP_ABS:
        s = range_of(e->args[0], range, user);
        if (s.lo == INT64_MIN) return whole;
        t = (span){-s.hi, -s.lo};
        return (span){s.lo > 0 ? s.lo : t.lo > 0 ? t.lo : 0, s.hi > t.hi ? s.hi : t.hi};
    case KN_OP_NOT: s = range_of(e->args[0], range, user); return (span){!s.hi, !s.lo};
    case KN_OP_SELECT:
        s = range_of(e->args[0], range, user);
        if (s.lo == 1) return range_of(e->args[1], range, user);
        if (s.hi == 0) return range_of(e->args[2], range, user);
        s = range_of(e->args[1], range, user);
        t = range_of(e->args[2], range, user);
        return (span){s.lo < t.lo ? s.lo : t.lo, s.hi > t.hi ? s.hi : t.hi};
    case KN_OP_CAST: return kn_is_float(e->args[0]->dtype) || e->dtype == KN_BOOL ? whole : range_of(e->args[0], range, user);
    default:
        if (e->nargs == 2 && kn_op_class(e->op) != 's' && kn_op_class(e->op) != 'i' && !kn_is_float(e->args[0]->dtype))
            return two(e->op, range_of(e->args[0], range, user), range_of(e->args[1], range, user));
        return whole;
    }
}

/* Within the dtype; a result that may leave it may wrap, so nothing is known about it. */
static span range_of(const kn_expr *e, kn_range_fn range, void *user)
{
    span d = whole, s = inner(e, range, user);
    kn_dtype_range(e->dtype, &d.lo, &d.hi);
    return s.lo < d.lo || s.hi > d.hi ? d : s;
}

bool kn_expr_range(const kn_expr *e, kn_range_fn range, void *user, int64_t *lo, int64_t *hi)
{
    if (kn_is_float(e->dtype)) return false;
    span s = range_of(e, range, user);
    *lo = s.lo;
    *hi = s.hi;
    return true;
}

/* ---- sums: an I64 expression as constant + sum of coefficient * term, terms being anything that is no sum ---- */

#define TERMS 32
typedef struct sum { int n; int64_t offset; kn_expr *term[TERMS]; int64_t coef[TERMS]; } sum;
typedef struct simplifier { kiln_arena *a; kn_range_fn range; void *user; } simplifier;

static bool add_term(sum *s, kn_expr *t, int64_t c)
{
    for (int i = 0; i < s->n; i++)
        if (kn_expr_equal(s->term[i], t)) return !__builtin_add_overflow(s->coef[i], c, &s->coef[i]);
    if (s->n == TERMS) return false;
    s->term[s->n] = t;
    s->coef[s->n++] = c;
    return true;
}

static bool add_sum(sum *s, kn_expr *e, int64_t scale)
{
    int64_t c;
    if (kn_is_int_const(e)) return !__builtin_mul_overflow(e->u.i, scale, &c) && !__builtin_add_overflow(s->offset, c, &s->offset);
    if (scale == INT64_MIN) return false;
    if (e->op == KN_OP_ADD) return add_sum(s, e->args[0], scale) && add_sum(s, e->args[1], scale);
    if (e->op == KN_OP_SUB) return add_sum(s, e->args[0], scale) && add_sum(s, e->args[1], -scale);
    if (e->op == KN_OP_NEG) return add_sum(s, e->args[0], -scale);
    for (int i = 0; i < 2 && e->op == KN_OP_MUL; i++)
        if (kn_is_int_const(e->args[i])) return !__builtin_mul_overflow(e->args[i]->u.i, scale, &c) && add_sum(s, e->args[1 - i], c);
    return add_term(s, e, scale);
}

static void drop_zeros(sum *s)
{
    int n = 0;
    for (int i = 0; i < s->n; i++) {
        if (s->coef[i] == 0) continue;
        s->term[n] = s->term[i];
        s->coef[n++] = s->coef[i];
    }
    s->n = n;
}

/* q is x//c, or, where x is itself y//b, y//(b*c). */
static bool quotient_by(const kn_expr *q, const kn_expr *x, const kn_expr *c)
{
    int64_t bc;
    if (q->op != KN_OP_FLOORDIV) return false;
    if (kn_expr_equal(q->args[1], c) && kn_expr_equal(q->args[0], x)) return true;
    return x->op == KN_OP_FLOORDIV && kn_is_int_const(x->args[1]) && x->args[1]->u.i > 0 && c->u.i > 0 && kn_is_int_const(q->args[1]) &&
           kn_mul_fits(x->args[1]->u.i, c->u.i, &bc) && bc == q->args[1]->u.i && kn_expr_equal(q->args[0], x->args[0]);
}

/* Where q is (x%b)//c, of a b that c divides: x%b, whose remainder by c is x's; else NULL. */
static kn_expr *remainder_over(const kn_expr *q, const kn_expr *x, const kn_expr *c)
{
    if (q->op != KN_OP_FLOORDIV || !kn_expr_equal(q->args[1], c) || c->u.i < 1) return NULL;
    kn_expr *r = q->args[0];
    if (r->op != KN_OP_MOD || !kn_is_int_const(r->args[1]) || r->args[1]->u.i < 1 || r->args[1]->u.i % c->u.i) return NULL;
    return kn_expr_equal(r->args[0], x) ? r : NULL;
}

/* (x//c)*(c*k) + (x%c)*k is x*k, and ((x%b)//c)*(c*k) + (x%c)*k is (x%b)*k. */
static void join_div_mod(sum *s)
{
    for (int i = 0; i < s->n; i++) {
        const kn_expr *m = s->term[i];
        if (m->op != KN_OP_MOD || !kn_is_int_const(m->args[1]) || s->coef[i] == 0) continue;
        for (int k = 0; k < s->n; k++) {
            const kn_expr *q = s->term[k];
            int64_t c;
            kn_expr *x = quotient_by(q, m->args[0], m->args[1]) ? m->args[0] : remainder_over(q, m->args[0], m->args[1]);
            if (!x) continue;
            if (__builtin_mul_overflow(s->coef[i], m->args[1]->u.i, &c) || c != s->coef[k]) continue;
            sum t = *s;
            t.coef[k] = 0;
            t.coef[i] = 0;
            if (!add_sum(&t, x, s->coef[i])) continue;
            *s = t;
            i = -1; /* the joined x may be a quotient or remainder itself */
            break;
        }
        if (i < 0) drop_zeros(s);
    }
    drop_zeros(s);
}

static kn_expr *scaled(simplifier *x, kn_expr *t, int64_t c)
{
    return c == 1 ? t : kn_bin(x->a, KN_OP_MUL, t, kn_const_i(x->a, KN_I64, c));
}

static kn_expr *from_sum(simplifier *x, const sum *s)
{
    kn_expr *e = NULL;
    for (int pass = 0; pass < 2; pass++) { /* positive terms first, so that a difference needs no negation */
        for (int i = 0; i < s->n; i++) {
            bool minus = s->coef[i] < 0 && s->coef[i] > INT64_MIN;
            if (s->coef[i] == 0 || minus != (pass == 1)) continue;
            kn_expr *t = scaled(x, s->term[i], minus && e ? -s->coef[i] : s->coef[i]);
            e = !e ? t : kn_bin(x->a, minus ? KN_OP_SUB : KN_OP_ADD, e, t);
            if (!e) return NULL;
        }
    }
    if (!e) return kn_const_i(x->a, KN_I64, s->offset);
    if (s->offset < 0 && s->offset > INT64_MIN) return kn_bin(x->a, KN_OP_SUB, e, kn_const_i(x->a, KN_I64, -s->offset));
    return s->offset ? kn_bin(x->a, KN_OP_ADD, e, kn_const_i(x->a, KN_I64, s->offset)) : e;
}

/* Splits s into c*high + low, low being what c does not divide. */
static void split(const sum *s, int64_t c, sum *high, sum *low)
{
    *high = *low = (sum){0};
    for (int i = 0; i < s->n; i++) {
        sum *to = s->coef[i] % c == 0 ? high : low;
        to->term[to->n] = s->term[i];
        to->coef[to->n++] = to == high ? s->coef[i] / c : s->coef[i];
    }
    high->offset = kn_floor_div(s->offset, c);
    low->offset = kn_floor_mod(s->offset, c);
}

static bool sum_range(simplifier *x, const sum *s, int64_t *lo, int64_t *hi)
{
    kn_expr *e = from_sum(x, s);
    return e && kn_expr_range(e, x->range, x->user, lo, hi);
}

/* x = g*high + low with 0 <= low < g, where g divides c: x//c is high//(c/g), x%c is high%(c/g)*g + low. NULL: there is no such g. */
static kn_expr *by_factor(simplifier *x, bool div, const sum *s, int64_t c)
{
    for (int i = 0; i < s->n; i++) {
        int64_t g = s->coef[i] < 0 ? -s->coef[i] : s->coef[i], lo, hi;
        for (int64_t b = c; b;) {
            int64_t t = g % b;
            g = b;
            b = t;
        }
        sum high, low;
        if (g < 2 || g >= c) continue;
        split(s, g, &high, &low);
        if (!low.n || !sum_range(x, &low, &lo, &hi) || lo < 0 || hi >= g) continue;
        kn_expr *e = kn_bin(x->a, div ? KN_OP_FLOORDIV : KN_OP_MOD, from_sum(x, &high), kn_const_i(x->a, KN_I64, c / g));
        if (!div && e && !add_sum(&low, e, g)) return NULL;
        return div ? e : e ? from_sum(x, &low) : NULL;
    }
    return NULL;
}

/* x//c and x%c for a constant c > 0: what c divides leaves the bracket; the rest vanishes where its range lies in one period. */
static kn_expr *div_mod(simplifier *x, kn_expr *e)
{
    int64_t c = e->args[1]->u.i, lo, hi, cc;
    sum s = {0}, high, low;
    bool div = e->op == KN_OP_FLOORDIV;
    if (!add_sum(&s, e->args[0], 1)) return e;
    drop_zeros(&s);
    split(&s, c, &high, &low);
    kn_expr *rest = from_sum(x, &low);
    if (!rest || !sum_range(x, &low, &lo, &hi)) return e;
    bool bounded = lo != INT64_MIN && hi != INT64_MAX;
    if (bounded && kn_floor_div(lo, c) == kn_floor_div(hi, c)) { /* one period */
        int64_t q = kn_floor_div(lo, c);
        if (div) return __builtin_add_overflow(high.offset, q, &high.offset) ? e : from_sum(x, &high);
        return __builtin_mul_overflow(q, c, &cc) || __builtin_sub_overflow(low.offset, cc, &low.offset) ? e : from_sum(x, &low);
    }
    kn_expr *smaller = by_factor(x, div, &low, c);
    if (smaller) return div ? (add_sum(&high, smaller, 1) ? from_sum(x, &high) : e) : smaller;
    if (!div) {
        if (rest->op == KN_OP_MOD && kn_is_int_const(rest->args[1]) && rest->args[1]->u.i > 0 && rest->args[1]->u.i % c == 0)
            return div_mod(x, kn_bin(x->a, KN_OP_MOD, rest->args[0], e->args[1])); /* (y % (c*k)) % c */
        return kn_bin(x->a, KN_OP_MOD, rest, e->args[1]);
    }
    kn_expr *q = NULL;
    if (rest->op == KN_OP_FLOORDIV && kn_is_int_const(rest->args[1]) && rest->args[1]->u.i > 0 &&
        !__builtin_mul_overflow(rest->args[1]->u.i, c, &cc))
        q = kn_bin(x->a, KN_OP_FLOORDIV, rest->args[0], kn_const_i(x->a, KN_I64, cc)); /* (y // k) // c */
    if (!q) q = kn_bin(x->a, KN_OP_FLOORDIV, rest, e->args[1]);
    if (!q) return NULL;
    if (q->op == KN_OP_FLOORDIV && kn_is_int_const(q->args[1]) && !kn_expr_equal(q, e) && q->args[1]->u.i != c) q = div_mod(x, q);
    return q && add_sum(&high, q, 1) ? from_sum(x, &high) : e;
}

static kn_expr *simplify_sum(simplifier *x, kn_expr *e)
{
    sum s = {0};
    if (!add_sum(&s, e, 1)) return e;
    drop_zeros(&s);
    join_div_mod(&s);
    return from_sum(x, &s);
}

/* A comparison of sums: common terms cancel, then ranges may decide. */
static kn_expr *simplify_compare(simplifier *x, kn_expr *e)
{
    int64_t lo, hi;
    sum s = {0};
    if (!add_sum(&s, e->args[0], 1) || !add_sum(&s, e->args[1], -1)) return e;
    drop_zeros(&s);
    join_div_mod(&s);
    if (!sum_range(x, &s, &lo, &hi) || lo == INT64_MIN || hi == INT64_MAX) return e;
    span r = compare(e->op, (span){lo, hi}, (span){0, 0});
    return r.lo == r.hi ? kn_const_i(x->a, KN_BOOL, r.lo) : e;
}

/* ---- whole numbers in floats: counts of what a window covers, say, that are the same everywhere ---- */

/* Whole numbers up to this are exact in the dtype, and so are sums and products within; 0: unknown. */
static int64_t exact_to(enum kn_dtype t)
{
    return t == KN_F64 ? (int64_t)1 << 53 : t == KN_F32 ? 1 << 24 : t == KN_F16 ? 1 << 11 : t == KN_BF16 ? 1 << 8 : 0;
}

/* The same number as a float expression of axes and whole constants is, all of whose steps are exact; NULL: it is no such expression. */
static kn_expr *as_whole(simplifier *x, const kn_expr *e)
{
    int64_t lo, hi, most = exact_to(e->dtype);
    kn_expr *r = NULL, *args[2] = {NULL, NULL};
    if (e->lanes > 1 || !most) return NULL;
    switch (e->op) {
    case KN_OP_CONST_F:
        if (e->u.f < -(double)most || e->u.f > (double)most || e->u.f != (double)(int64_t)e->u.f) return NULL;
        return kn_const_i(x->a, KN_I64, (int64_t)e->u.f);
    case KN_OP_CAST: r = e->args[0]->dtype == KN_I64 ? e->args[0] : NULL; break;
    case KN_OP_ADD:
    case KN_OP_SUB:
    case KN_OP_MUL:
    case KN_OP_MIN:
    case KN_OP_MAX:
        for (int i = 0; i < 2; i++)
            if (!(args[i] = as_whole(x, e->args[i]))) return NULL;
        r = kn_bin(x->a, e->op, args[0], args[1]);
        break;
    default: return NULL;
    }
    return r && kn_expr_range(r, x->range, x->user, &lo, &hi) && lo >= -most && hi <= most ? r : NULL;
}

/* A constant but zero, which has two signs. */
static kn_expr *simplify_float(simplifier *x, kn_expr *e)
{
    kn_expr *n = e->nargs == 2 ? as_whole(x, e) : NULL;
    if (n) n = kn_simplify(x->a, n, x->range, x->user);
    return n && n->op == KN_OP_CONST_I && n->u.i ? kn_const_f(x->a, e->dtype, (double)n->u.i) : e;
}

static kn_expr *step(void *user, kiln_arena *a, kn_expr *e)
{
    simplifier *x = user;
    int64_t lo, hi;
    if (e->lanes <= 1 && kn_is_float(e->dtype)) return simplify_float(x, e);
    if (e->lanes > 1 || kn_is_float(e->dtype) || !e->nargs) return e;
    if (e->op == KN_OP_LOAD || e->op == KN_OP_READ || e->op == KN_OP_CAST) return e;
    if (kn_expr_range(e, x->range, x->user, &lo, &hi) && lo == hi) return kn_const_i(a, e->dtype, lo);
    if (e->op == KN_OP_SELECT && kn_expr_equal(e->args[1], e->args[2])) return e->args[1];
    if (kn_op_class(e->op) == 'c') return e->args[0]->dtype == KN_I64 && e->args[0]->lanes <= 1 ? simplify_compare(x, e) : e;
    if (e->dtype != KN_I64) return e;
    span l, r;
    switch (e->op) {
    case KN_OP_ADD:
    case KN_OP_SUB:
    case KN_OP_NEG:
    case KN_OP_MUL: return simplify_sum(x, e);
    case KN_OP_FLOORDIV:
    case KN_OP_MOD: return kn_is_int_const(e->args[1]) && e->args[1]->u.i > 0 ? div_mod(x, e) : e;
    case KN_OP_MIN:
    case KN_OP_MAX:
        l = range_of(e->args[0], x->range, x->user);
        r = range_of(e->args[1], x->range, x->user);
        if (l.hi <= r.lo) return e->args[e->op == KN_OP_MIN ? 0 : 1];
        if (r.hi <= l.lo) return e->args[e->op == KN_OP_MIN ? 1 : 0];
        return e;
    default: return e;
    }
}

kn_expr *kn_simplify(kiln_arena *a, kn_expr *e, kn_range_fn range, void *user)
{
    simplifier x = {a, range, user};
    return kn_rewrite(a, e, step, &x);
}
