/* Element types and operators as tables, and the arithmetic that belongs to them. */
#include "te/expr.h"
#include <stdio.h>
#include <string.h>

static const struct { const char *text, *alias; int bytes; char class; enum kn_dtype acc; } dtypes[] = {
#define X(name, text, alias, bytes, class, acc) [KN_##name] = {text, alias, bytes, class, KN_##acc},
#include "te/dtypes.def"
#undef X
};
static const struct { const char *name, *text; int arity; char class; } ops[] = {
#define X(name, text, arity, class) [KN_OP_##name] = {#name, text, arity, class},
#include "te/exprs.def"
#undef X
};

const char *kn_dtype_text(enum kn_dtype t) { return dtypes[t].text; }
int kn_dtype_bytes(enum kn_dtype t) { return dtypes[t].bytes; }
char kn_dtype_class(enum kn_dtype t) { return dtypes[t].class; }
enum kn_dtype kn_dtype_acc(enum kn_dtype t) { return dtypes[t].acc; }

enum kn_dtype kn_stmt_acc(const kn_stmt *s)
{
    enum kn_dtype t = s->body->dtype;
    bool extremum = s->red == KN_RED_MAX || s->red == KN_RED_MIN;
    return extremum && !kn_is_float(t) && t != KN_BOOL ? t : kn_dtype_acc(t);
}

bool kn_dtype_holds(enum kn_dtype x, enum kn_dtype y)
{
    int64_t xl, xh, yl, yh;
    bool floats = kn_is_float(x);
    if (x == y) return true;
    if (floats && !kn_is_float(y)) return kn_dtype_bytes(y) * 2 <= kn_dtype_bytes(x) && kn_dtype_class(y) != 'b';
    if (kn_is_float(y)) return floats && kn_dtype_bytes(y) < kn_dtype_bytes(x);
    return kn_dtype_range(y, &yl, &yh) && kn_dtype_range(x, &xl, &xh) && xl <= yl && yh <= xh;
}

int kn_dtype_significand(enum kn_dtype t)
{
    static const int bits[KN_DTYPE_COUNT] = {[KN_F32] = 24, [KN_F64] = 53, [KN_F16] = 11, [KN_BF16] = 8, [KN_F8E4M3] = 4, [KN_F8E5M2] = 3};
    return bits[t];
}

const kn_expr *kn_bare(const kn_expr *e)
{
    while (e->op == KN_OP_CAST && kn_dtype_holds(e->dtype, e->args[0]->dtype)) e = e->args[0];
    return e;
}

bool kn_dtype_find(const char *s, size_t n, enum kn_dtype *out)
{
    for (int t = 0; t < KN_DTYPE_COUNT; t++) {
        const char *names[2] = {dtypes[t].text, dtypes[t].alias};
        for (int k = 0; k < 2; k++) {
            if (strlen(names[k]) != n || memcmp(names[k], s, n)) continue;
            *out = (enum kn_dtype)t;
            return true;
        }
    }
    return false;
}

const char *kn_op_name(enum kn_op op) { return ops[op].name; }
const char *kn_op_text(enum kn_op op) { return ops[op].text; }
int kn_op_arity(enum kn_op op) { return ops[op].arity; }
char kn_op_class(enum kn_op op) { return ops[op].class; }

enum kn_op kn_combines(enum kn_reduce r)
{
    static const enum kn_op ops[] = {KN_OP_ADD, KN_OP_ADD, KN_OP_MUL, KN_OP_MAX, KN_OP_MIN, KN_OP_AND, KN_OP_OR};
    return ops[r];
}

bool kn_op_commutes(enum kn_op op)
{
    return op == KN_OP_ADD || op == KN_OP_MUL || op == KN_OP_MIN || op == KN_OP_MAX || op == KN_OP_EQ || op == KN_OP_NE || op == KN_OP_AND ||
           op == KN_OP_OR || op == KN_OP_BITAND || op == KN_OP_BITOR || op == KN_OP_BITXOR;
}

bool kn_dtype_range(enum kn_dtype t, int64_t *lo, int64_t *hi)
{
    char c = kn_dtype_class(t);
    int bits = kn_dtype_bytes(t) * 8;
    if (c == 'f') return false;
    if (bits == 64) {
        *lo = INT64_MIN;
        *hi = INT64_MAX;
        return true;
    }
    *lo = c == 'i' ? -(INT64_C(1) << (bits - 1)) : 0;
    *hi = c == 'b' ? 1 : c == 'u' ? (INT64_C(1) << bits) - 1 : -(*lo + 1);
    return true;
}

int64_t kn_floor_div(int64_t a, int64_t b)
{
    int64_t q = a / b;
    return a % b != 0 && (a % b < 0) != (b < 0) ? q - 1 : q;
}

int64_t kn_floor_mod(int64_t a, int64_t b)
{
    int64_t r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

bool kn_elems(const kn_tensor *t, int64_t *out)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        if (!kn_mul_fits(n, t->shape[i], &n) || n > KILN_MAX_ELEMENTS) return false;
    *out = n;
    return true;
}

kiln_status kn_fail_text(kiln_diag *d, kiln_status s, int line, int col, const char *fmt, ...)
{
    *d = (kiln_diag){.status = s, .line = line, .col = col};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(d->message, sizeof d->message, fmt, ap);
    va_end(ap);
    return s;
}
