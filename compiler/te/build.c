/* Builders of expressions: every node is made here, with exact identities and constants folded. */
#include "te/expr.h"
#include <math.h>

static kn_expr *node(kiln_arena *a, enum kn_op op, enum kn_dtype t, int nargs, kn_expr **args)
{
    kn_expr *e = kn_new(a, kn_expr);
    if (!e) return NULL;
    e->op = op;
    e->dtype = t;
    e->nargs = nargs;
    if (!nargs) return e;
    e->args = kn_array(a, kn_expr *, nargs);
    if (!e->args) return NULL;
    for (int i = 0; i < nargs; i++) {
        if (!args[i]) return NULL;
        e->args[i] = args[i];
        if (args[i]->lanes > e->lanes) e->lanes = args[i]->lanes;
    }
    return e;
}

kn_expr *kn_const_f(kiln_arena *a, enum kn_dtype t, double x)
{
    if (!kn_is_float(t)) return kn_const_i(a, t, x > -9e18 && x < 9e18 ? (int64_t)x : 0);
    kn_expr *e = node(a, KN_OP_CONST_F, t, 0, NULL);
    if (e) e->u.f = kn_is_f8(t) && x - x == 0 ? kn_f8_round(t, x) : x;
    return e;
}

kn_expr *kn_const_i(kiln_arena *a, enum kn_dtype t, int64_t x)
{
    if (kn_is_float(t)) return kn_const_f(a, t, (double)x);
    kn_expr *e = node(a, KN_OP_CONST_I, t, 0, NULL);
    if (e) e->u.i = x;
    return e;
}

kn_expr *kn_axis_ref(kiln_arena *a, int axis)
{
    kn_expr *e = node(a, KN_OP_AXIS, KN_I64, 0, NULL);
    if (e) e->u.axis = axis;
    return e;
}

kn_expr *kn_load(kiln_arena *a, const kn_program *p, int tensor, kn_expr **idx)
{
    kn_expr *e = node(a, KN_OP_LOAD, p->tensors[tensor].dtype, p->tensors[tensor].rank, idx);
    if (e) e->u.tensor = tensor;
    return e;
}

kn_expr *kn_load_padded(kiln_arena *a, const kn_program *p, int tensor, kn_expr **idx, double pad)
{
    kn_expr *e = kn_load(a, p, tensor, idx);
    if (!e) return NULL;
    e->padded = true;
    e->pad_value = pad;
    return e;
}

/* Shifts are by an amount modulo the bits of the dtype; the result is cut to it. */
static int64_t fold_bits(enum kn_op op, enum kn_dtype t, int64_t x, int64_t y)
{
    int bits = kn_dtype_bytes(t) * 8, by = (int)(y & (bits - 1));
    if (op == KN_OP_BITAND) return x & y;
    if (op == KN_OP_BITOR) return x | y;
    if (op == KN_OP_BITXOR) return x ^ y;
    if (op == KN_OP_SHR) return x >> by;
    uint64_t left = (uint64_t)x << by, low = bits == 64 ? left : left & ((UINT64_C(1) << bits) - 1);
    bool minus = kn_dtype_class(t) == 'i' && bits < 64 && low >> (bits - 1);
    return (int64_t)(minus ? low | ~((UINT64_C(1) << bits) - 1) : low);
}

/* Integer arithmetic that neither overflows int64 nor leaves the dtype; false: leave it to run time. */
static bool fold_int(enum kn_op op, enum kn_dtype t, int64_t x, int64_t y, int64_t *out)
{
    int64_t r = 0, lo, hi;
    bool over = false;
    switch (op) {
    case KN_OP_ADD: over = __builtin_add_overflow(x, y, &r); break;
    case KN_OP_SUB: over = __builtin_sub_overflow(x, y, &r); break;
    case KN_OP_MUL: over = __builtin_mul_overflow(x, y, &r); break;
    case KN_OP_MIN: r = x < y ? x : y; break;
    case KN_OP_MAX: r = x > y ? x : y; break;
    case KN_OP_FLOORDIV:
    case KN_OP_MOD:
        if (y == 0 || (y == -1 && x == INT64_MIN)) return false;
        r = op == KN_OP_MOD ? kn_floor_mod(x, y) : kn_floor_div(x, y);
        break;
    case KN_OP_BITAND:
    case KN_OP_BITOR:
    case KN_OP_BITXOR:
    case KN_OP_SHL:
    case KN_OP_SHR: r = fold_bits(op, t, x, y); break;
    default: return false;
    }
    if (over || !kn_dtype_range(t, &lo, &hi) || r < lo || r > hi) return false;
    *out = r;
    return true;
}

/* Only operations that IEEE 754 rounds correctly are folded, so that no key depends on a mathematics library. */
static bool fold_float(enum kn_op op, double x, double y, double *out)
{
    switch (op) {
    case KN_OP_ADD: *out = x + y; return true;
    case KN_OP_SUB: *out = x - y; return true;
    case KN_OP_MUL: *out = x * y; return true;
    case KN_OP_DIV: *out = x / y; return true;
    case KN_OP_MIN: *out = x != x || x < y ? x : y; return true;
    case KN_OP_MAX: *out = x != x || x > y ? x : y; return true;
    default: return false;
    }
}

static bool fold_compare(enum kn_op op, const kn_expr *x, const kn_expr *y)
{
    bool f = x->op == KN_OP_CONST_F;
    switch (op) {
    case KN_OP_LT: return f ? x->u.f < y->u.f : x->u.i < y->u.i;
    case KN_OP_LE: return f ? x->u.f <= y->u.f : x->u.i <= y->u.i;
    case KN_OP_EQ: return f ? x->u.f == y->u.f : x->u.i == y->u.i;
    default: return f ? x->u.f != y->u.f : x->u.i != y->u.i;
    }
}

static bool is_value(const kn_expr *e, int64_t v)
{
    return e->op == KN_OP_CONST_I ? e->u.i == v : e->op == KN_OP_CONST_F && v != 0 && e->u.f == (double)v;
}

/* x*1, x/1 and, for integers, what holds without rounding: x+0, x-0, x*0, x//1, x%1. x+0.0 is not exact at -0.0 and stays. */
static kn_expr *identity(kiln_arena *a, enum kn_op op, kn_expr *x, kn_expr *y)
{
    bool integer = !kn_is_float(x->dtype);
    if (op == KN_OP_MUL && is_value(y, 1)) return x;
    if (op == KN_OP_MUL && is_value(x, 1)) return y;
    if (op == KN_OP_DIV && is_value(y, 1)) return x;
    if (!integer) return NULL;
    if ((op == KN_OP_ADD || op == KN_OP_SUB) && is_value(y, 0)) return x;
    if (op == KN_OP_ADD && is_value(x, 0)) return y;
    if (op == KN_OP_MUL && (is_value(x, 0) || is_value(y, 0))) return kn_const_i(a, x->dtype, 0);
    if (op == KN_OP_FLOORDIV && is_value(y, 1)) return x;
    if (op == KN_OP_MOD && (is_value(y, 1) || is_value(y, -1))) return kn_const_i(a, x->dtype, 0);
    return NULL;
}

static kn_expr *fold_logic(enum kn_op op, kn_expr *x, kn_expr *y)
{
    bool stop = op == KN_OP_OR; /* the value that decides alone */
    if (kn_is_int_const(x)) return (x->u.i != 0) == stop ? x : y;
    if (kn_is_int_const(y)) return (y->u.i != 0) == stop ? y : x;
    return NULL;
}

kn_expr *kn_bin(kiln_arena *a, enum kn_op op, kn_expr *x, kn_expr *y)
{
    if (!x || !y) return NULL;
    char class = kn_op_class(op);
    kn_expr *e = NULL;
    bool alike = x->dtype == y->dtype && x->lanes <= 1 && y->lanes <= 1;
    if (class == 'l' && alike) {
        if ((e = fold_logic(op, x, y))) return e;
    } else if (alike) {
        if (x->op == y->op && kn_is_const(x)) {
            int64_t i;
            double f;
            if (class == 'c') return kn_const_i(a, KN_BOOL, fold_compare(op, x, y));
            if (kn_is_int_const(x) && fold_int(op, x->dtype, x->u.i, y->u.i, &i)) return kn_const_i(a, x->dtype, i);
            if (x->op == KN_OP_CONST_F && fold_float(op, x->u.f, y->u.f, &f)) return kn_const_f(a, x->dtype, f);
        }
        if (class != 'c' && (e = identity(a, op, x, y))) return e;
    }
    return node(a, op, class == 'c' || class == 'l' ? KN_BOOL : x->dtype, 2, (kn_expr *[]){x, y});
}

kn_expr *kn_un(kiln_arena *a, enum kn_op op, kn_expr *x)
{
    if (!x) return NULL;
    if (x->op == KN_OP_CONST_F) {
        if (op == KN_OP_NEG) return kn_const_f(a, x->dtype, -x->u.f);
        if (op == KN_OP_ABS) return kn_const_f(a, x->dtype, fabs(x->u.f));
        if (op == KN_OP_SQRT) return kn_const_f(a, x->dtype, sqrt(x->u.f));
    }
    if (kn_is_int_const(x)) {
        if (op == KN_OP_NOT) return kn_const_i(a, KN_BOOL, x->u.i == 0);
        if (op == KN_OP_NEG && kn_dtype_class(x->dtype) == 'i' && x->u.i > INT64_MIN) {
            int64_t r;
            if (fold_int(KN_OP_SUB, x->dtype, 0, x->u.i, &r)) return kn_const_i(a, x->dtype, r);
        }
        if (op == KN_OP_ABS && x->u.i >= 0) return x;
    }
    return node(a, op, op == KN_OP_NOT ? KN_BOOL : x->dtype, 1, &x);
}

kn_expr *kn_select(kiln_arena *a, kn_expr *c, kn_expr *x, kn_expr *y)
{
    if (!c || !x || !y) return NULL;
    if (kn_is_int_const(c)) return c->u.i ? x : y;
    return node(a, KN_OP_SELECT, x->dtype, 3, (kn_expr *[]){c, x, y});
}

kn_expr *kn_cast(kiln_arena *a, enum kn_dtype t, kn_expr *x)
{
    if (!x || x->dtype == t) return x;
    if (x->lanes <= 1 && kn_is_int_const(x)) {
        int64_t lo, hi;
        if (kn_is_float(t)) return kn_const_f(a, t, (double)x->u.i);
        if (t == KN_BOOL) return kn_const_i(a, t, x->u.i != 0);
        if (kn_dtype_range(t, &lo, &hi) && x->u.i >= lo && x->u.i <= hi) return kn_const_i(a, t, x->u.i);
    }
    /* A float constant is kept as written and rounded once, where it is used. */
    if (x->op == KN_OP_CONST_F && x->lanes <= 1 && kn_is_float(t)) return kn_const_f(a, t, kn_is_f8(t) ? kn_f8_round(t, x->u.f) : x->u.f);
    return node(a, KN_OP_CAST, t, 1, &x);
}

kn_expr *kn_bits(kiln_arena *a, kn_expr *x) { return x ? node(a, KN_OP_BITS, KN_I32, 1, &x) : NULL; }

kn_expr *kn_rebuild(kiln_arena *a, const kn_expr *e, kn_expr **args)
{
    kn_expr *r;
    char class = kn_op_class(e->op);
    if (class != 's' && e->nargs == 2) r = kn_bin(a, e->op, args[0], args[1]);
    else if (class != 's' && e->nargs == 1) r = kn_un(a, e->op, args[0]);
    else if (e->op == KN_OP_SELECT) r = kn_select(a, args[0], args[1], args[2]);
    else if (e->op == KN_OP_CAST) r = kn_cast(a, e->dtype, args[0]);
    else if ((r = node(a, e->op, e->dtype, e->nargs, args))) {
        r->u = e->u;
        r->var = e->var;
        r->lanes = e->lanes;
        r->padded = e->padded;
        r->pad_value = e->pad_value;
    }
    if (r && !r->line) {
        r->line = e->line;
        r->col = e->col;
    }
    return r;
}

/* Whether a node that was rebuilt folded to one of its operands, or to an operand of that: x*1, -(-x). */
static bool folded(const kn_expr *e, kn_expr *const *args, int n)
{
    for (int i = 0; i < n; i++) {
        if (e == args[i]) return true;
        for (int k = 0; k < args[i]->nargs; k++)
            if (e == args[i]->args[k]) return true;
    }
    return false;
}

kn_expr *kn_rewrite(kiln_arena *a, kn_expr *e, kn_rewrite_fn f, void *user)
{
    if (!e) return NULL;
    bool changed = false;
    kn_expr **args = e->nargs ? kn_array(a, kn_expr *, e->nargs) : NULL;
    if (e->nargs && !args) return NULL;
    for (int i = 0; i < e->nargs; i++) {
        if (!(args[i] = kn_rewrite(a, e->args[i], f, user))) return NULL;
        changed |= args[i] != e->args[i];
    }
    int nargs = e->nargs;
    if (changed && !(e = kn_rebuild(a, e, args))) return NULL;
    return changed && folded(e, args, nargs) ? e : f(user, a, e); /* an operand has been through f: twice is wrong where f renumbers */
}

bool kn_expr_equal(const kn_expr *x, const kn_expr *y)
{
    if (x == y) return true;
    if (!x || !y || x->op != y->op || x->dtype != y->dtype || x->nargs != y->nargs) return false;
    if ((x->lanes > 1 ? x->lanes : 1) != (y->lanes > 1 ? y->lanes : 1) || x->var != y->var || x->unit != y->unit) return false;
    if (x->padded != y->padded) return false;
    if (x->padded && x->pad_value != y->pad_value && (x->pad_value == x->pad_value || y->pad_value == y->pad_value)) return false;
    switch (x->op) {
    case KN_OP_CONST_F:
        if (x->u.f != y->u.f ? x->u.f == x->u.f || y->u.f == y->u.f : signbit(x->u.f) != signbit(y->u.f)) return false;
        break;
    case KN_OP_CONST_I:
    case KN_OP_ZIP:
    case KN_OP_UNZIP:
    case KN_OP_SPREAD:
    case KN_OP_PICK:
    case KN_OP_PEER:
    case KN_OP_HSUM: if (x->u.i != y->u.i) return false; break;
    case KN_OP_AXIS: if (x->u.axis != y->u.axis) return false; break;
    case KN_OP_LOAD: if (x->u.tensor != y->u.tensor) return false; break;
    case KN_OP_VAR: if (x->u.var != y->u.var) return false; break;
    case KN_OP_READ: if (x->u.buffer != y->u.buffer) return false; break;
    default: break;
    }
    for (int i = 0; i < x->nargs; i++)
        if (!kn_expr_equal(x->args[i], y->args[i])) return false;
    return true;
}
