/* Scalar values as C text. The same text serves C and CUDA; what differs is the spelling of library functions. */
#include "codegen/gen.h"
#include <string.h>

void kn_gen_refuse(kn_gen *g, kiln_status s, const char *what)
{
    if (g->status != KILN_OK) return;
    g->status = kn_fail(g->d, s, "code generation: %s", what);
}

const char *kn_math_name(enum kn_op op)
{
    switch (op) {
    case KN_OP_EXP: return "exp";
    case KN_OP_LOG: return "log";
    case KN_OP_SQRT: return "sqrt";
    case KN_OP_TANH: return "tanh";
    case KN_OP_ERF: return "erf";
    case KN_OP_SIN: return "sin";
    case KN_OP_COS: return "cos";
    case KN_OP_POW: return "pow";
    case KN_OP_FLOOR: return "floor";
    case KN_OP_CEIL: return "ceil";
    case KN_OP_ROUND: return "rint";
    case KN_OP_ABS: return "fabs";
    default: return NULL;
    }
}

void kn_put_number(kn_gen *g, enum kn_dtype t, double x)
{
    bool wide = t == KN_F64, rounded = kn_is_small_float(t) && !kn_is_f8(t); /* those of 8 bits are constants of their dtype */
    if (rounded) {
        kn_put_helper(g, KN_SN_ROUND, "round", t, 1);
        kn_put(&g->out, "(");
    }
    if (!wide) x = (double)(float)x;
    if (x != x || x - x != 0) {
        unsigned long long bits = x != x ? 0x7ff8000000000000 : x > 0 ? 0x7ff0000000000000 : 0xfff0000000000000;
        kn_put_helper(g, KN_SN_FROM_BITS, "from_bits", wide ? KN_F64 : KN_F32, 1);
        if (wide)
            kn_putf(&g->out, "(0x%llxull)", bits);
        else
            kn_putf(&g->out, "(0x%llxu)", x != x ? 0x7fc00000ull : x > 0 ? 0x7f800000ull : 0xff800000ull);
    } else {
        kn_buf digits;
        kn_buf_init(&digits, g->a);
        kn_put_double(&digits, x);
        kiln_bytes s = kn_buf_take(&digits);
        if (s.p) kn_putf(&g->out, "(%s%s%s)", s.p, strpbrk(s.p, ".e") ? "" : ".0", wide ? "" : "f");
    }
    if (rounded) kn_put(&g->out, ")");
}

void kn_put_integer(kn_gen *g, enum kn_dtype t, int64_t x)
{
    bool wide = t == KN_I64 && !(g->narrow && g->in_index);
    if (x == INT64_MIN)
        kn_put(&g->out, "(-9223372036854775807LL - 1)");
    else if (wide && (x > 2147483647 || x < -2147483647))
        kn_putf(&g->out, x < 0 ? "(%lldLL)" : "%lldLL", (long long)x);
    else if (wide && !g->in_index)
        kn_putf(&g->out, "(i64)%s%lld%s", x < 0 ? "(" : "", (long long)x, x < 0 ? ")" : "");
    else
        kn_putf(&g->out, x < 0 ? "(%lld)" : "%lld", (long long)x);
}

/* True when e is surely >= 0: index expressions of loop variables, which need no floor correction. */
bool kn_nonneg(const kn_gen *g, const kn_expr *e)
{
    switch (e->op) {
    case KN_OP_CONST_I: return e->u.i >= 0;
    case KN_OP_VAR: return g->bound[e->u.var] || g->nonneg[e->u.var];
    case KN_OP_ADD:
    case KN_OP_MUL:
    case KN_OP_XOR:
    case KN_OP_FLOORDIV:
    case KN_OP_MIN: return e->dtype == KN_I64 && kn_nonneg(g, e->args[0]) && kn_nonneg(g, e->args[1]);
    case KN_OP_MAX: return kn_nonneg(g, e->args[0]) || kn_nonneg(g, e->args[1]);
    case KN_OP_MOD: return e->args[1]->op == KN_OP_CONST_I && e->args[1]->u.i > 0;
    case KN_OP_SELECT: return kn_nonneg(g, e->args[1]) && kn_nonneg(g, e->args[2]);
    default: return false;
    }
}

static void put_var_value(kn_gen *g, const kn_expr *e)
{
    if (g->bound[e->u.var]) {
        kn_put_integer(g, KN_I64, g->value[e->u.var]);
        return;
    }
    if (g->narrow && !g->in_index) kn_put(&g->out, "(i64)");
    kn_put_var(g, e->u.var);
}

static void binary(kn_gen *g, const kn_expr *e, const char *op)
{
    kn_put(&g->out, "(");
    kn_put_scalar(g, e->args[0]);
    kn_putf(&g->out, " %s ", op);
    kn_put_scalar(g, e->args[1]);
    kn_put(&g->out, ")");
}

static void call(kn_gen *g, const kn_expr *e)
{
    kn_put(&g->out, "(");
    for (int i = 0; i < e->nargs; i++) {
        if (i) kn_put(&g->out, ", ");
        kn_put_scalar(g, e->args[i]);
    }
    kn_put(&g->out, ")");
}

/* + - * and unary minus. C promotes narrow integers, so results are cut back; I32 goes through unsigned, where wrapping is defined. */
static void arithmetic(kn_gen *g, const kn_expr *e)
{
    const char *op = e->op == KN_OP_ADD ? "+" : e->op == KN_OP_MUL ? "*" : "-";
    enum kn_dtype t = e->dtype;
    bool cut = !kn_is_float(t) && t != KN_I64;
    if (kn_is_small_float(t)) kn_put_helper(g, KN_SN_ROUND, "round", t, 1);
    kn_put(&g->out, "(");
    if (cut) kn_putf(&g->out, "(%s)(", kn_value_type(t));
    if (e->nargs == 1) {
        kn_put(&g->out, t == KN_I32 ? "0u - (u32)" : "-");
        kn_put_scalar(g, e->args[0]);
    } else {
        if (t == KN_I32) kn_put(&g->out, "(u32)");
        kn_put_scalar(g, e->args[0]);
        kn_putf(&g->out, " %s ", op);
        kn_put_scalar(g, e->args[1]);
    }
    if (cut) kn_put(&g->out, ")");
    kn_put(&g->out, ")");
}

const char *kn_bits_sign(enum kn_op op)
{
    return op == KN_OP_BITAND ? "&" : op == KN_OP_BITOR ? "|" : op == KN_OP_BITXOR ? "^" : op == KN_OP_SHL ? "<<" : ">>";
}

/* Bits: narrow operands are promoted, so results are cut back; shifts to the left go through unsigned, where what leaves is lost. */
static void bits(kn_gen *g, const kn_expr *e)
{
    bool shift = e->op == KN_OP_SHL || e->op == KN_OP_SHR, left = e->op == KN_OP_SHL;
    kn_putf(&g->out, "((%s)(", kn_value_type(e->dtype));
    if (left) kn_put(&g->out, e->dtype == KN_I64 ? "(u64)" : "(u32)");
    kn_put_scalar(g, e->args[0]);
    kn_putf(&g->out, " %s ", kn_bits_sign(e->op));
    if (shift) kn_put(&g->out, "(");
    kn_put_scalar(g, e->args[1]);
    if (shift) kn_putf(&g->out, " & %d)", 8 * kn_dtype_bytes(e->dtype) - 1);
    kn_put(&g->out, "))");
}

/* FLOORDIV, MOD, MIN, MAX, and ABS of integers: helpers, or the bare operator where the signs allow it. */
static void helper_op(kn_gen *g, const kn_expr *e)
{
    enum kn_dtype t = kn_is_small_float(e->dtype) ? KN_F32 : e->dtype;
    const kn_expr *y = e->nargs > 1 ? e->args[1] : NULL;
    bool division = e->op == KN_OP_FLOORDIV || e->op == KN_OP_MOD;
    if (division && kn_nonneg(g, e->args[0]) && y->op == KN_OP_CONST_I && y->u.i > 0) {
        binary(g, e, e->op == KN_OP_MOD ? "%" : "/");
        return;
    }
    switch (e->op) {
    case KN_OP_FLOORDIV: kn_put_helper(g, KN_SN_DIV, "div", t, 1); break;
    case KN_OP_MOD: kn_put_helper(g, KN_SN_MOD, "mod", t, 1); break;
    case KN_OP_MIN: kn_put_helper(g, kn_is_float(t) ? KN_SN_FMIN : KN_SN_IMIN, "min", t, 1); break;
    case KN_OP_MAX: kn_put_helper(g, kn_is_float(t) ? KN_SN_FMAX : KN_SN_IMAX, "max", t, 1); break;
    default: kn_put_helper(g, KN_SN_IABS, "abs", t, 1); break;
    }
    call(g, e);
}

static void math(kn_gen *g, const kn_expr *e)
{
    bool wide = e->dtype == KN_F64;
    if (kn_is_small_float(e->dtype)) kn_put_helper(g, KN_SN_ROUND, "round", e->dtype, 1);
    kn_put(&g->out, "(");
    if (e->op == KN_OP_DIV && e->dtype == KN_F32 && !g->cuda && e->args[1]->op == KN_OP_CONST_F) {
        kn_put_helper(g, KN_SN_QUOTIENT, "quotient", KN_F32, 1); /* as in vectors: equal elements give equal results wherever they stand */
        call(g, e);
    } else if (e->op == KN_OP_DIV) {
        binary(g, e, "/");
    } else {
        bool inverse = e->op == KN_OP_RSQRT;
        if (inverse) kn_put(&g->out, wide ? "1.0 / " : "1.0f / ");
        kn_putf(&g->out, "%s%s%s", g->cuda ? "" : "__builtin_", kn_math_name(inverse ? KN_OP_SQRT : e->op), wide ? "" : "f");
        call(g, e);
    }
    kn_put(&g->out, ")");
}

static void cast(kn_gen *g, const kn_expr *e)
{
    enum kn_dtype to = e->dtype, from = e->args[0]->dtype;
    if (to == KN_BOOL) {
        kn_put(&g->out, "(");
        kn_put_scalar(g, e->args[0]);
        kn_put(&g->out, " != 0)");
        return;
    }
    if (kn_is_small_float(to)) kn_put_helper(g, KN_SN_ROUND, "round", to, 1);
    kn_put(&g->out, "(");
    if (!(to == KN_F32 && kn_is_small_float(from))) kn_putf(&g->out, "(%s)", kn_value_type(to));
    bool outer = g->in_index;
    g->in_index = outer && to == KN_I64;
    kn_put_scalar(g, e->args[0]);
    g->in_index = outer;
    kn_put(&g->out, ")");
}

static bool fold(const kn_gen *g, const kn_expr *e, int64_t *out)
{
    int64_t x, y;
    if (e->op == KN_OP_CONST_I) return *out = e->u.i, true;
    if (e->op == KN_OP_VAR && g->bound[e->u.var]) return *out = g->value[e->u.var], true;
    if (e->nargs != 2 || !fold(g, e->args[0], &x) || !fold(g, e->args[1], &y)) return false;
    if (e->op == KN_OP_ADD) return !__builtin_add_overflow(x, y, out);
    if (e->op == KN_OP_SUB) return !__builtin_sub_overflow(x, y, out);
    if (e->op == KN_OP_MUL) return !__builtin_mul_overflow(x, y, out);
    return false;
}

void kn_put_register(kn_gen *g, int buffer, const kn_expr *index)
{
    int64_t k;
    if (!fold(g, index, &k) || k < 0 || k >= g->p->buffers[buffer].elems) {
        kn_gen_refuse(g, KILN_INTERNAL, "a register array is indexed by something that is not a constant inside it");
        return;
    }
    kn_put_buffer(g, buffer);
    kn_putf(&g->out, "_%lld", (long long)k);
}

void kn_put_index(kn_gen *g, const kn_expr *e)
{
    bool outer = g->in_index;
    int lane = g->lane;
    g->in_index = true;
    g->lane = -1;
    kn_put_scalar(g, e);
    g->in_index = outer;
    g->lane = lane;
}

/* CUDA: number of the local that already holds this vector read; -1. */
static int loaded(const kn_gen *g, const kn_expr *e)
{
    for (int i = 0; i < g->nloads; i++)
        if (g->loads[i] == e) return i;
    return -1;
}

void kn_put_bits(kn_gen *g, const kn_expr *e)
{
    const kn_buffer *b = &g->p->buffers[e->u.buffer];
    bool lane = e->lanes > 1;
    int local = loaded(g, e);
    if (lane && local >= 0) {
        kn_putf(&g->out, "k_r%d.v[%d]", local, g->lane);
    } else if (b->scope == KN_REGISTER) {
        kn_put_register(g, e->u.buffer, e->args[0]);
        if (lane && g->cuda)
            kn_putf(&g->out, ".v[%d]", g->lane);
        else if (lane)
            kn_putf(&g->out, "[%d]", g->lane);
    } else {
        kn_put_buffer(g, e->u.buffer);
        kn_put(&g->out, "[");
        kn_put_index(g, e->args[0]);
        if (lane && g->lane) kn_putf(&g->out, " + %d", g->lane);
        kn_put(&g->out, "]");
    }
}

static void read(kn_gen *g, const kn_expr *e)
{
    bool half = kn_is_small_float(g->p->buffers[e->u.buffer].dtype) && !g->bits;
    if (half) {
        kn_put_helper(g, KN_SN_WIDEN, "widen", g->p->buffers[e->u.buffer].dtype, 1);
        kn_put(&g->out, "(");
    }
    kn_put_bits(g, e);
    if (half) kn_put(&g->out, ")");
}

static bool is_comparison(enum kn_op op) { return op == KN_OP_LT || op == KN_OP_LE || op == KN_OP_EQ || op == KN_OP_NE; }
static const char *c_operator(enum kn_op op)
{
    return op == KN_OP_LT ? "<" : op == KN_OP_LE ? "<=" : op == KN_OP_EQ ? "==" : op == KN_OP_NE ? "!=" : op == KN_OP_AND ? "&&" : "||";
}

/* Computed from variables and constants alone; what divides is a constant. */
static bool is_index(const kn_expr *e)
{
    if (e->op == KN_OP_VAR || e->op == KN_OP_CONST_I) return true;
    if ((e->op == KN_OP_FLOORDIV || e->op == KN_OP_MOD) && (e->args[1]->op != KN_OP_CONST_I || e->args[1]->u.i <= 0)) return false;
    for (int i = 0; i < e->nargs; i++)
        if (!is_index(e->args[i])) return false;
    return e->nargs > 0 && (e->dtype == KN_I64 || e->dtype == KN_I32);
}

/* Comparisons of indices: a GPU answers all of them sooner than it branches, and what is read where they hold need not wait for a branch either. */
static bool of_indices(const kn_expr *e)
{
    if (e->op == KN_OP_AND) return of_indices(e->args[0]) && of_indices(e->args[1]);
    return is_comparison(e->op) && is_index(e->args[0]) && is_index(e->args[1]);
}

/* Sums of variables and of their multiples: such integers stay within small factors of the extents. */
static bool linear(const kn_expr *e)
{
    if (e->op == KN_OP_MUL && e->args[0]->op != KN_OP_CONST_I && e->args[1]->op != KN_OP_CONST_I) return false;
    for (int i = 0; i < e->nargs; i++)
        if (!linear(e->args[i])) return false;
    return true;
}

/* A single comparison is printed bare: compilers warn of doubled parentheses around one. */
void kn_put_condition(kn_gen *g, const kn_expr *e)
{
    bool outer = g->in_index;
    g->in_index = linear(e);
    if (is_comparison(e->op)) {
        kn_put_scalar(g, e->args[0]);
        kn_putf(&g->out, " %s ", c_operator(e->op));
        kn_put_scalar(g, e->args[1]);
    } else {
        kn_put_scalar(g, e);
    }
    g->in_index = outer;
}

static void select_value(kn_gen *g, const kn_expr *e)
{
    kn_put(&g->out, "(");
    kn_put_condition(g, e->args[0]);
    kn_put(&g->out, " ? ");
    kn_put_scalar(g, e->args[1]);
    kn_put(&g->out, " : ");
    kn_put_scalar(g, e->args[2]);
    kn_put(&g->out, ")");
}

static void peer(kn_gen *g, const kn_expr *e)
{
    kn_put_helper(g, KN_SN_PEER, "peer", e->dtype, 1);
    kn_put(&g->out, "(");
    kn_put_scalar(g, e->args[0]);
    kn_putf(&g->out, ", %lld)", (long long)e->u.i);
}

/* The lane of another vector that the present one is. */
static void picked(kn_gen *g, const kn_expr *e)
{
    int lane = g->lane, width = e->args[0]->lanes, at = (int)e->args[e->u.i + lane]->u.i;
    g->lane = at % width;
    kn_put_scalar(g, e->args[at / width]);
    g->lane = lane;
}

static void special(kn_gen *g, const kn_expr *e)
{
    switch (e->op) {
    case KN_OP_CONST_F:
        if (g->bits) kn_put(&g->out, "0");
        else kn_put_number(g, e->dtype, e->u.f);
        break;
    case KN_OP_CONST_I: kn_put_integer(g, e->dtype, e->u.i); break;
    case KN_OP_VAR: put_var_value(g, e); break;
    case KN_OP_READ: read(g, e); break;
    case KN_OP_SPLAT: kn_put_scalar(g, e->args[0]); break;
    case KN_OP_XOR: binary(g, e, "^"); break;
    case KN_OP_LANES:
        g->bound[e->var] = true;
        g->value[e->var] = g->lane;
        kn_put_scalar(g, e->args[0]);
        g->bound[e->var] = false;
        break;
    case KN_OP_PICK: picked(g, e); break;
    case KN_OP_PEER: peer(g, e); break;
    case KN_OP_HSUM: kn_put_hsum(g, e); break;
    case KN_OP_SELECT: select_value(g, e); break;
    case KN_OP_CAST: cast(g, e); break;
    case KN_OP_BITS:
        kn_put_helper(g, KN_SN_BITS, "bits", KN_F32, 1);
        call(g, e);
        break;
    default: kn_gen_refuse(g, KILN_INTERNAL, "an expression that lowering should have removed"); break;
    }
}

void kn_put_scalar(kn_gen *g, const kn_expr *e)
{
    if (g->status != KILN_OK) return;
    if (++g->nodes > KN_MAX_TEXT_NODES) {
        kn_gen_refuse(g, KILN_LIMIT, "the expanded expressions are too long");
        return;
    }
    if (e->lanes > 1 && g->lane < 0) {
        kn_gen_refuse(g, KILN_INTERNAL, "a vector where a scalar is needed");
        return;
    }
    switch (e->op) {
    case KN_OP_ADD:
    case KN_OP_SUB:
    case KN_OP_MUL:
    case KN_OP_NEG: arithmetic(g, e); break;
    case KN_OP_BITAND:
    case KN_OP_BITOR:
    case KN_OP_BITXOR:
    case KN_OP_SHL:
    case KN_OP_SHR: bits(g, e); break;
    case KN_OP_FLOORDIV:
    case KN_OP_MOD:
    case KN_OP_MIN:
    case KN_OP_MAX: helper_op(g, e); break;
    case KN_OP_ABS:
        if (kn_is_float(e->dtype))
            math(g, e);
        else
            helper_op(g, e);
        break;
    case KN_OP_NOT:
        kn_put(&g->out, "(!");
        kn_put_scalar(g, e->args[0]);
        kn_put(&g->out, ")");
        break;
    case KN_OP_DIV:
    case KN_OP_RSQRT: math(g, e); break;
    default:
        if (is_comparison(e->op) || e->op == KN_OP_AND || e->op == KN_OP_OR)
            binary(g, e, g->cuda && e->op == KN_OP_AND && of_indices(e) ? "&" : c_operator(e->op));
        else if (kn_math_name(e->op))
            math(g, e);
        else
            special(g, e);
    }
}

const kn_expr *kn_store_value(const kn_expr *e)
{
    enum kn_dtype from = e->op == KN_OP_CAST ? e->args[0]->dtype : e->dtype;
    return from != e->dtype && kn_is_small_float(e->dtype) && (from == KN_F32 || kn_is_small_float(from)) ? e->args[0] : e;
}
