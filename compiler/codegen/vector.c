/* Vector values as C text with the compilers' vector types (masks: mask.c). */
#include "codegen/gen.h"

void kn_put_type_of(kn_gen *g, const kn_expr *e)
{
    kn_put_vector_type(g, g->bits ? kn_storage_type(e->dtype) : kn_value_type(e->dtype), e->lanes);
}

/* {e at lane 0, e at lane 1, ...}: for whatever has no vector form. */
void kn_put_lane_list(kn_gen *g, const kn_expr *e)
{
    int outer = g->lane;
    kn_put(&g->out, "((");
    kn_put_type_of(g, e);
    kn_put(&g->out, "){");
    for (int l = 0; l < e->lanes; l++) {
        if (l) kn_put(&g->out, ", ");
        g->lane = l;
        kn_put_scalar(g, e);
    }
    g->lane = outer;
    kn_put(&g->out, "})");
}

void kn_put_operand(kn_gen *g, const kn_expr *e, int lanes)
{
    if (e->lanes > 1) {
        kn_put_vector(g, e);
        return;
    }
    bool narrow = !g->bits && !kn_is_float(e->dtype) && kn_dtype_bytes(e->dtype) < 4 && e->op == KN_OP_SELECT; /* an int, to C */
    kn_put(&g->out, "((");
    if (narrow) kn_putf(&g->out, "(%s)(", kn_value_type(e->dtype));
    kn_put_scalar(g, e);
    kn_putf(&g->out, "%s) - (", narrow ? ")" : "");
    kn_put_vector_type(g, g->bits ? kn_storage_type(e->dtype) : kn_value_type(e->dtype), lanes);
    kn_put(&g->out, "){0})");
}

void kn_put_infix(kn_gen *g, const kn_expr *e, const char *op, int lanes)
{
    kn_put(&g->out, "(");
    kn_put_operand(g, e->args[0], lanes);
    kn_putf(&g->out, " %s ", op);
    kn_put_operand(g, e->args[1], lanes);
    kn_put(&g->out, ")");
}

static void vcall(kn_gen *g, const kn_expr *e)
{
    kn_put(&g->out, "(");
    for (int i = 0; i < e->nargs; i++) {
        if (i) kn_put(&g->out, ", ");
        kn_put_operand(g, e->args[i], e->lanes);
    }
    kn_put(&g->out, ")");
}

void kn_put_vector_read(kn_gen *g, const kn_expr *e)
{
    const kn_buffer *b = &g->p->buffers[e->u.buffer];
    bool widens = kn_is_small_float(b->dtype) && !g->bits;
    if (widens) {
        kn_put_helper(g, KN_SN_WIDEN, "widen", b->dtype, e->lanes);
        kn_put(&g->out, "(");
    }
    if (b->scope == KN_REGISTER) {
        kn_put_register(g, e->u.buffer, e->args[0]);
    } else {
        kn_put(&g->out, "*(const ");
        kn_put_vector_type(g, kn_storage_type(b->dtype), e->lanes);
        kn_put(&g->out, "u *)(");
        kn_put_buffer(g, e->u.buffer);
        kn_put(&g->out, " + ");
        kn_put_index(g, e->args[0]);
        kn_put(&g->out, ")");
    }
    if (widens) kn_put(&g->out, ")");
}

/* e cannot be had without `read`. */
static bool needs(const kn_expr *e, const kn_expr *read)
{
    if (kn_expr_equal(e, read)) return true;
    bool first = e->op == KN_OP_SELECT || e->op == KN_OP_AND || e->op == KN_OP_OR; /* the others may be left out */
    for (int i = 0; i < e->nargs && (!first || !i); i++)
        if (needs(e->args[i], read)) return true;
    return false;
}

/* `read` has happened in every lane for which the condition c came out as `is`: conditions ask no more than they have to. */
static bool has_happened(const kn_expr *c, bool is, const kn_expr *read)
{
    bool both = c->op == KN_OP_AND, either = c->op == KN_OP_OR;
    if (c->op == KN_OP_NOT) return has_happened(c->args[0], !is, read);
    if (both || either) { /* one side that came out as `is` alone, or both */
        bool first = has_happened(c->args[0], is, read), second = has_happened(c->args[1], is, read);
        return is == both ? first || second : first && (second || has_happened(c->args[0], !is, read));
    }
    return needs(c, read);
}

/* e reads something; with a condition, what has not happened where that is `came`, the opposite of when e is wanted. */
static bool has_read(const kn_expr *e, const kn_expr *unless, bool came)
{
    bool one = e->op == KN_OP_READ && e->args[0]->op == KN_OP_CONST_I; /* an element that no place guards */
    if (e->op == KN_OP_READ) return !unless || (!one && !has_happened(unless, came, e));
    for (int i = 0; i < e->nargs; i++)
        if (has_read(e->args[i], unless, came)) return true;
    return false;
}

static bool has_integer_test(const kn_expr *e)
{
    for (int i = 0; i < e->nargs; i++)
        if (has_integer_test(e->args[i])) return true;
    return e->nargs == 2 && e->dtype == KN_BOOL && (e->args[0]->dtype == KN_I64 || e->args[0]->dtype == KN_I32);
}

/* A read whose place depends on what is read. */
static bool gathers(const kn_expr *e)
{
    for (int i = 0; i < e->nargs; i++)
        if (gathers(e->args[i]) || (e->op == KN_OP_READ && has_read(e->args[i], NULL, false))) return true;
    return false;
}

/* Depends on where the lanes are, not only on what is read there. */
static bool of_place(const kn_expr *e)
{
    if (e->op == KN_OP_READ) return false;
    for (int i = 0; i < e->nargs; i++)
        if (of_place(e->args[i])) return true;
    return e->op == KN_OP_VAR;
}

/* A condition on places may guard a read that is out of bounds in other lanes, one on integers that are read those that are places: then each lane
 * evaluates only its own side. A read that the condition compares itself has happened anyway. */
bool kn_guards(const kn_expr *e)
{
    const kn_expr *c = e->args[0], *x = e->args[1], *y = e->args[2];
    bool guards = c->lanes > 1 && has_integer_test(c) && (of_place(c) || gathers(x) || gathers(y));
    return guards && (has_read(x, c, false) || has_read(y, c, true));
}

/* Small floats that are only moved: their bits, by a mask as wide. */
static void select_bits(kn_gen *g, const kn_expr *e)
{
    enum kn_dtype t = kn_dtype_bytes(e->dtype) == 1 ? KN_I8 : KN_I16;
    kn_put(&g->out, "(");
    kn_put_type_of(g, e);
    kn_put(&g->out, ")");
    kn_put_helper(g, KN_SN_SELECT, "select", t, e->lanes);
    kn_put(&g->out, "(");
    g->bits = false;
    kn_put_mask(g, e->args[0], kn_value_bits(t), e->lanes);
    g->bits = true;
    for (int i = 1; i < 3; i++) {
        kn_put(&g->out, ", (");
        kn_put_vector_type(g, kn_value_type(t), e->lanes);
        kn_put(&g->out, ")");
        kn_put_operand(g, e->args[i], e->lanes);
    }
    kn_put(&g->out, ")");
}

static void vselect(kn_gen *g, const kn_expr *e)
{
    const kn_expr *c = e->args[0];
    if (kn_guards(e)) {
        kn_put_lane_list(g, e);
        return;
    }
    if (g->bits && c->lanes > 1) {
        select_bits(g, e);
        return;
    }
    if (c->lanes <= 1) { /* the casts take away alignment, which C sees as another type */
        bool moved = g->bits;
        kn_put(&g->out, "(");
        g->bits = false; /* what is compared is a number */
        kn_put_scalar(g, c);
        g->bits = moved;
        for (int i = 1; i < 3; i++) {
            kn_put(&g->out, i == 1 ? " ? (" : " : (");
            kn_put_type_of(g, e);
            kn_put(&g->out, ")");
            kn_put_operand(g, e->args[i], e->lanes);
        }
        kn_put(&g->out, ")");
        return;
    }
    enum kn_dtype t = kn_is_small_float(e->dtype) ? KN_F32 : e->dtype;
    kn_put_helper(g, KN_SN_SELECT, "select", t, e->lanes);
    kn_put(&g->out, "(");
    kn_put_mask(g, c, kn_value_bits(t), e->lanes);
    kn_put(&g->out, ", ");
    kn_put_operand(g, e->args[1], e->lanes);
    kn_put(&g->out, ", ");
    kn_put_operand(g, e->args[2], e->lanes);
    kn_put(&g->out, ")");
}

/* The conversions between `from` and `to`, the last one first; from words to bytes by way of 16 bits, which compilers take apart otherwise, as they
 * do those from floats, of 32 bits or 64, to 16 bits. */
static int steps_between(enum kn_dtype from, enum kn_dtype to, enum kn_dtype *step)
{
    int n = 0;
    bool narrows = (kn_dtype_bytes(from) == 4 || from == KN_F64) && kn_dtype_bytes(to) < 4 && to != KN_BOOL;
    if (narrows && kn_is_float(from)) step[n++] = KN_I32;
    if (narrows && kn_dtype_bytes(to) == 1) step[n++] = KN_I16;
    step[n++] = to;
    return n;
}

/* e converted to `to`, which C holds in another type than e's. */
static void converted(kn_gen *g, const kn_expr *e, enum kn_dtype to)
{
    enum kn_dtype step[3], from = kn_is_small_float(e->dtype) ? KN_F32 : e->dtype;
    bool wide = kn_dtype_bytes(from) == 1 && kn_dtype_bytes(to) == 4; /* bytes become words first */
    int n = wide && to == KN_I32 ? 0 : steps_between(wide ? KN_I32 : from, to, step);
    for (int i = 0; i < n; i++) kn_put(&g->out, "__builtin_convertvector(");
    if (wide) kn_put_helper(g, KN_SN_WIDE, "wide", from, e->lanes);
    if (wide) kn_put(&g->out, "(");
    kn_put_operand(g, e, e->lanes);
    if (wide) kn_put(&g->out, ")");
    for (int i = 0; i < n; i++) {
        kn_put(&g->out, ", ");
        kn_put_vector_type(g, kn_value_type(step[i]), e->lanes);
        kn_put(&g->out, ")");
    }
}

static void vcast(kn_gen *g, const kn_expr *e)
{
    enum kn_dtype to = e->dtype, from = e->args[0]->dtype;
    if (kn_is_small_float(to)) kn_put_helper(g, KN_SN_ROUND, "round", to, e->lanes);
    kn_put(&g->out, "(");
    if (from == KN_BOOL) {
        kn_put(&g->out, "__builtin_convertvector(");
        kn_put_mask(g, e->args[0], kn_value_bits(to), e->lanes);
        kn_put(&g->out, " & 1, ");
        kn_put_type_of(g, e);
        kn_put(&g->out, ")");
    } else if (kn_value_type(to) == kn_value_type(from)) {
        kn_put_operand(g, e->args[0], e->lanes);
    } else {
        converted(g, e->args[0], kn_is_small_float(to) ? KN_F32 : to);
    }
    kn_put(&g->out, ")");
}

static bool quiet_constant(const kn_expr *e)
{
    while (e->op == KN_OP_SPLAT) e = e->args[0];
    return e->op == KN_OP_CONST_F && e->u.f == e->u.f;
}

/* a < b ? a : b gives b for unordered operands: with a constant in a's place that is the NaN, and one comparison does. */
static void vminmax(kn_gen *g, const kn_expr *e)
{
    enum kn_dtype t = kn_is_small_float(e->dtype) ? KN_F32 : e->dtype;
    bool max = e->op == KN_OP_MAX, real = kn_is_float(t), second = quiet_constant(e->args[1]);
    if (!real)
        kn_put_helper(g, max ? KN_SN_IMAX : KN_SN_IMIN, max ? "max" : "min", t, e->lanes);
    else if (second || quiet_constant(e->args[0]))
        kn_put_helper(g, max ? KN_SN_CMAX : KN_SN_CMIN, max ? "cmax" : "cmin", t, e->lanes);
    else
        kn_put_helper(g, max ? KN_SN_FMAX : KN_SN_FMIN, max ? "max" : "min", t, e->lanes);
    kn_put(&g->out, "(");
    kn_put_operand(g, e->args[second ? 1 : 0], e->lanes);
    kn_put(&g->out, ", ");
    kn_put_operand(g, e->args[second ? 0 : 1], e->lanes);
    kn_put(&g->out, ")");
}

/* Vector functions are the prelude's own, of f32 (half values too) and of f64. */
static enum kn_snippet own_math(enum kn_op op, bool wide)
{
    switch (op) {
    case KN_OP_EXP: return wide ? KN_SN_EXP64 : KN_SN_EXP;
    case KN_OP_LOG: return wide ? KN_SN_LOG64 : KN_SN_LOG;
    case KN_OP_TANH: return wide ? KN_SN_TANH64 : KN_SN_TANH;
    case KN_OP_ERF: return wide ? KN_SN_ERF64 : KN_SN_ERF;
    case KN_OP_FLOOR: return wide ? KN_SN_FLOOR64 : KN_SN_FLOOR;
    case KN_OP_CEIL: return wide ? KN_SN_CEIL64 : KN_SN_CEIL;
    case KN_OP_ROUND: return wide ? KN_SN_RINT64 : KN_SN_RINT;
    case KN_OP_ABS: return wide ? KN_SN_FABS64 : KN_SN_FABS;
    case KN_OP_SIN: return wide ? KN_SN_SIN64 : KN_SN_SIN;
    case KN_OP_COS: return wide ? KN_SN_COS64 : KN_SN_COS;
    case KN_OP_POW: return wide ? KN_SN_POW64 : KN_SN_POW;
    default: return KN_SN_SQRT;
    }
}

/* The scalar that all lanes of e are; NULL. */
static const kn_expr *alike(const kn_expr *e)
{
    while (e->op == KN_OP_SPLAT) e = e->args[0];
    return e->lanes <= 1 ? e : NULL;
}

/* (e's first operand in lanes, the scalar that its second one is in all of them) */
static void by_scalar(kn_gen *g, const kn_expr *e)
{
    kn_put(&g->out, "(");
    kn_put_operand(g, e->args[0], e->lanes);
    kn_put(&g->out, ", ");
    kn_put_scalar(g, alike(e->args[1]));
    kn_put(&g->out, ")");
}

static void vmath(kn_gen *g, const kn_expr *e)
{
    bool inverse = e->op == KN_OP_RSQRT;
    enum kn_dtype t = kn_is_small_float(e->dtype) ? KN_F32 : e->dtype;
    enum kn_op op = inverse ? KN_OP_SQRT : e->op;
    if (kn_is_small_float(e->dtype)) kn_put_helper(g, KN_SN_ROUND, "round", e->dtype, e->lanes);
    kn_put(&g->out, inverse ? (t == KN_F64 ? "(1.0 / " : "(1.0f / ") : "(");
    if (op == KN_OP_POW && alike(e->args[1])) {
        kn_put_helper(g, t == KN_F64 ? KN_SN_POWER64 : KN_SN_POWER, "power", t, e->lanes);
        by_scalar(g, e);
    } else {
        kn_put_helper(g, own_math(op, t == KN_F64), kn_math_name(op), t, e->lanes);
        vcall(g, e);
    }
    kn_put(&g->out, ")");
}

static void varithmetic(kn_gen *g, const kn_expr *e)
{
    if (kn_is_small_float(e->dtype)) kn_put_helper(g, KN_SN_ROUND, "round", e->dtype, e->lanes);
    if (e->op == KN_OP_NEG) {
        kn_put(&g->out, "(-");
        kn_put_operand(g, e->args[0], e->lanes);
        kn_put(&g->out, ")");
        return;
    }
    if (e->op == KN_OP_DIV && e->dtype == KN_F32 && alike(e->args[1])) {
        kn_put_helper(g, KN_SN_QUOTIENT, "quotient", e->dtype, e->lanes);
        by_scalar(g, e);
        return;
    }
    bool bytes = e->op == KN_OP_MUL && kn_dtype_bytes(e->dtype) == 1 && !kn_is_float(e->dtype) && e->lanes < 16;
    if (bytes) kn_put_helper(g, KN_SN_PRODUCT, "product", e->dtype, e->lanes), vcall(g, e);
    else
        kn_put_infix(g, e, e->op == KN_OP_ADD ? "+" : e->op == KN_OP_SUB ? "-" : e->op == KN_OP_MUL ? "*" : "/", e->lanes);
}

static bool by_constant(const kn_expr *e)
{
    const kn_expr *by = e->nargs > 1 ? alike(e->args[1]) : NULL;
    return by && by->op == KN_OP_CONST_I && by->u.i > 0;
}

/* Lanes' places on an axis, as lowering counts them: an i32, since no axis has 2^31 of them. */
static bool is_place(const kn_gen *g, const kn_expr *e)
{
    const kn_expr *from = e->op == KN_OP_ADD ? e->args[0] : NULL, *lanes = from ? e->args[1] : e;
    const kn_expr *lane = lanes->op == KN_OP_LANES ? lanes->args[0] : NULL;
    while (from && (from->op == KN_OP_SPLAT || from->op == KN_OP_CAST)) from = from->args[0];
    while (lane && lane->op == KN_OP_CAST) lane = lane->args[0];
    if (from && (from->dtype != KN_I64 || !kn_nonneg(g, from))) return false;
    return e->dtype == KN_I32 && lane && lane->op == KN_OP_VAR && lane->u.var == lanes->var;
}

/* Surely >= 0, lane by lane: places, their digits, what is computed in i64 of these. */
static bool vector_nonneg(const kn_gen *g, const kn_expr *e)
{
    const kn_expr *x = e->nargs ? e->args[0] : NULL;
    bool digit = (e->op == KN_OP_MOD || e->op == KN_OP_FLOORDIV) && by_constant(e);
    if (e->dtype == KN_I32) return is_place(g, e) || (digit && vector_nonneg(g, x));
    if (e->dtype != KN_I64) return false;
    switch (e->op) {
    case KN_OP_SPLAT: return vector_nonneg(g, x);
    case KN_OP_CAST: return x->dtype == KN_I32 && vector_nonneg(g, x);
    case KN_OP_ADD:
    case KN_OP_MUL: return vector_nonneg(g, x) && vector_nonneg(g, e->args[1]);
    case KN_OP_MOD: return by_constant(e);
    case KN_OP_FLOORDIV: return by_constant(e) && vector_nonneg(g, x);
    default: return e->lanes <= 1 && kn_nonneg(g, e);
    }
}

/* Floor division, or its remainder: by a positive constant or in floats, as wide as the dtype asks for. */
static void put_division(kn_gen *g, const kn_expr *e)
{
    bool mod = e->op == KN_OP_MOD, constant = by_constant(e);
    int bits = kn_value_bits(e->dtype);
    enum kn_snippet s = constant ? (bits == 8 ? KN_SN_DIVC8 : KN_SN_DIVC) : bits == 64 ? KN_SN_DIV64 : bits == 32 ? KN_SN_DIV32 : KN_SN_DIV16;
    if (constant && bits == 64) s = KN_SN_DIV64, constant = false; /* has no products of twice the width */
    kn_put_helper(g, mod ? (enum kn_snippet)(s + 1) : s, constant ? (mod ? "modc" : "divc") : mod ? "mod" : "div", e->dtype, e->lanes);
}

/* By a constant, the bare operator: the compiler divides by no number then, and not at all where the lanes are known. */
static void vinteger(kn_gen *g, const kn_expr *e)
{
    if (e->op != KN_OP_ABS && by_constant(e) && vector_nonneg(g, e->args[0])) {
        kn_put_infix(g, e, e->op == KN_OP_MOD ? "%" : "/", e->lanes);
        return;
    }
    if (e->op == KN_OP_ABS) kn_put_helper(g, KN_SN_IABS, "abs", e->dtype, e->lanes);
    else put_division(g, e);
    vcall(g, e);
}

static void vshift(kn_gen *g, const kn_expr *e)
{
    bool left = e->op == KN_OP_SHL, byte = kn_dtype_bytes(e->dtype) == 1, narrow = kn_dtype_bytes(e->dtype) < 4 && !alike(e->args[1]) && !g->bits;
    enum kn_snippet s = left ? (byte ? KN_SN_SHL : KN_SN_SHL_16) : byte ? KN_SN_SHR : KN_SN_SHR_16;
    if (narrow) kn_put_helper(g, s, left ? "shl" : "shr", e->dtype, e->lanes);
    kn_put(&g->out, "(");
    kn_put_operand(g, e->args[0], e->lanes);
    kn_putf(&g->out, "%s (", narrow ? "," : left ? " <<" : " >>");
    kn_put_operand(g, e->args[1], e->lanes);
    kn_putf(&g->out, " & %d))", 8 * kn_dtype_bytes(e->dtype) - 1);
}

void kn_put_vector(kn_gen *g, const kn_expr *e)
{
    if (g->status != KILN_OK) return;
    if (++g->nodes > KN_MAX_TEXT_NODES) {
        kn_gen_refuse(g, KILN_LIMIT, "the expanded expressions are too long");
        return;
    }
    if (e->dtype == KN_BOOL && e->op != KN_OP_READ && e->op != KN_OP_LANES) {
        kn_put(&g->out, "((");
        kn_put_type_of(g, e);
        kn_put(&g->out, ")(");
        kn_put_mask(g, e, 8, e->lanes);
        kn_put(&g->out, " & 1))");
        return;
    }
    switch (e->op) {
    case KN_OP_ADD:
    case KN_OP_SUB:
    case KN_OP_MUL:
    case KN_OP_NEG:
    case KN_OP_DIV: varithmetic(g, e); break;
    case KN_OP_MIN:
    case KN_OP_MAX: vminmax(g, e); break;
    case KN_OP_BITAND:
    case KN_OP_BITOR:
    case KN_OP_BITXOR: kn_put_infix(g, e, kn_bits_sign(e->op), e->lanes); break;
    case KN_OP_SHL:
    case KN_OP_SHR: vshift(g, e); break;
    case KN_OP_FLOORDIV:
    case KN_OP_MOD: vinteger(g, e); break;
    case KN_OP_READ: kn_put_vector_read(g, e); break;
    case KN_OP_LANES:
        if (!kn_put_strided(g, e)) kn_put_lane_list(g, e);
        break;
    case KN_OP_SPLAT: kn_put_operand(g, e->args[0], e->lanes); break;
    case KN_OP_ZIP:
    case KN_OP_UNZIP: kn_put_zip(g, e); break;
    case KN_OP_SPREAD: kn_put_spread(g, e); break;
    case KN_OP_PICK: kn_put_pick(g, e); break;
    case KN_OP_SELECT: vselect(g, e); break;
    case KN_OP_CAST: vcast(g, e); break;
    case KN_OP_BITS:
        kn_put(&g->out, "((");
        kn_put_type_of(g, e);
        kn_put(&g->out, ")");
        kn_put_operand(g, e->args[0], e->lanes);
        kn_put(&g->out, ")");
        break;
    case KN_OP_ABS: (kn_is_float(e->dtype) ? vmath : vinteger)(g, e); break;
    default:
        if (e->op == KN_OP_RSQRT || kn_math_name(e->op))
            vmath(g, e);
        else
            kn_gen_refuse(g, KILN_INTERNAL, "an expression that has no vector form");
    }
}

/* CUDA has no vector values: the lanes are combined one after the other. */
static void fold_lanes(kn_gen *g, const kn_expr *e)
{
    const kn_expr *x = e->args[0];
    enum kn_dtype t = kn_is_small_float(e->dtype) ? KN_F32 : e->dtype;
    int red = (int)e->u.i, outer = g->lane;
    bool max = red == KN_RED_MAX, call = max || red == KN_RED_MIN;
    for (int l = 1; l < x->lanes; l++) {
        if (call)
            kn_put_helper(g, kn_is_float(t) ? (max ? KN_SN_FMAX : KN_SN_FMIN) : max ? KN_SN_IMAX : KN_SN_IMIN, max ? "max" : "min", t, 1);
        kn_put(&g->out, "(");
    }
    for (int l = 0; l < x->lanes; l++) {
        g->lane = l;
        if (l) kn_put(&g->out, call ? ", " : red == KN_RED_PROD ? " * " : red == KN_RED_ALL ? " && " : red == KN_RED_ANY ? " || " : " + ");
        kn_put_scalar(g, x);
        if (l) kn_put(&g->out, ")");
    }
    g->lane = outer;
}

void kn_put_hsum(kn_gen *g, const kn_expr *e)
{
    const kn_expr *x = e->args[0];
    enum kn_dtype t = kn_is_small_float(e->dtype) ? KN_F32 : e->dtype;
    int red = (int)e->u.i;
    if (kn_is_small_float(e->dtype)) kn_put_helper(g, KN_SN_ROUND, "round", e->dtype, 1);
    kn_put(&g->out, "(");
    if (x->lanes <= 1) {
        kn_put_scalar(g, x);
    } else if (g->cuda) {
        fold_lanes(g, e);
    } else {
        bool max = red == KN_RED_MAX || red == KN_RED_ANY, any = red == KN_RED_ALL || red == KN_RED_ANY;
        int outer = g->lane;
        g->lane = -1;
        if (red == KN_RED_SUM)
            kn_put_helper(g, KN_SN_HSUM, "hsum", t, x->lanes);
        else if (red == KN_RED_PROD)
            kn_put_helper(g, KN_SN_HPROD, "hprod", t, x->lanes);
        else if (any)
            kn_put_helper(g, max ? KN_SN_HIMAX : KN_SN_HIMIN, max ? "hmax" : "hmin", KN_U8, x->lanes);
        else if (kn_is_float(t))
            kn_put_helper(g, max ? KN_SN_HFMAX : KN_SN_HFMIN, max ? "hmax" : "hmin", t, x->lanes);
        else
            kn_put_helper(g, max ? KN_SN_HIMAX : KN_SN_HIMIN, max ? "hmax" : "hmin", t, x->lanes);
        kn_put(&g->out, "(");
        kn_put_vector(g, x);
        kn_put(&g->out, ")");
        g->lane = outer;
    }
    kn_put(&g->out, ")");
}
