/* Printing in the expression language, so that the text parses back to an equal program. */
#include "te/expr.h"
#include <math.h>
#include <string.h>

static bool word(const char *s, bool upper)
{
    size_t n = s ? strlen(s) : 0;
    if (!n || n >= KILN_MAX_NAME_BYTES || !strcmp(s, "where")) return false;
    for (size_t i = 0; i < n; i++) {
        bool big = s[i] >= 'A' && s[i] <= 'Z', small = (s[i] >= 'a' && s[i] <= 'z') || s[i] == '_', digit = s[i] >= '0' && s[i] <= '9';
        if (i == 0 ? (upper ? !big : !small) : !big && !small && !digit) return false;
    }
    return true;
}

/* Names from outside may be no words of the language, or used twice: those are printed by number. */
static void tensor_name(kn_buf *b, const kn_program *p, int t)
{
    const char *name = p->tensors[t].name;
    bool fine = word(name, false);
    for (int i = 0; i < t && fine; i++) fine = !p->tensors[i].name || strcmp(p->tensors[i].name, name);
    if (fine) {
        kn_put(b, name);
        return;
    }
    char own[40] = "v";
    size_t n = 1;
    if (t >= 10) own[n++] = (char)('0' + t / 10);
    own[n++] = (char)('0' + t % 10);
    for (bool taken = true; taken && n < 36; own[n++] = '_') {
        own[n] = 0;
        taken = false;
        for (int i = 0; i < p->ntensors; i++) taken |= p->tensors[i].name && !strcmp(p->tensors[i].name, own);
        if (!taken) break;
    }
    own[n] = 0;
    kn_put(b, own);
}

static bool axis_fine(const kn_stmt *s, int x)
{
    if (!word(s->axes[x].name, true)) return false;
    for (int i = 0; i < x; i++)
        if (s->axes[i].name && !strcmp(s->axes[i].name, s->axes[x].name)) return false;
    return true;
}

static void axis_name(kn_buf *b, const kn_stmt *s, int x)
{
    if (x >= s->naxes) kn_putf(b, "X%d", x);
    else if (axis_fine(s, x)) kn_put(b, s->axes[x].name);
    else kn_putf(b, "Kn_axis%d", x);
}

static void print_float(kn_buf *b, double x)
{
    kn_buf t;
    kn_buf_init(&t, b->a);
    kn_put_double(&t, x);
    kiln_bytes s = kn_buf_take(&t);
    kn_put(b, s.p ? s.p : "");
    if (s.p && !strpbrk(s.p, ".en")) kn_put(b, ".0"); /* "inf" and "nan" have an n */
}

static int power_of(const kn_expr *e)
{
    switch (e->op) {
    case KN_OP_OR: return 1;
    case KN_OP_AND: return 2;
    case KN_OP_LT:
    case KN_OP_LE:
    case KN_OP_EQ:
    case KN_OP_NE: return 3;
    case KN_OP_ADD:
    case KN_OP_SUB: return 4;
    case KN_OP_MUL:
    case KN_OP_DIV:
    case KN_OP_FLOORDIV:
    case KN_OP_MOD: return 5;
    case KN_OP_NEG:
    case KN_OP_NOT: return 6;
    default: return 7;
    }
}

static void expr(kn_buf *b, const kn_program *p, const kn_stmt *s, const kn_expr *e, int least);

static void arguments(kn_buf *b, const kn_program *p, const kn_stmt *s, const kn_expr *e, const char *open, const char *close)
{
    kn_put(b, open);
    for (int i = 0; i < e->nargs; i++) {
        if (i) kn_put(b, ", ");
        expr(b, p, s, e->args[i], 0);
    }
    kn_put(b, close);
}

/* Literals are f32 and i64 as they stand; others say their dtype. */
static void constant(kn_buf *b, const kn_expr *e)
{
    bool plain = e->dtype == KN_F32 || e->dtype == KN_I64 || e->dtype == KN_BOOL;
    if (!plain) kn_put(b, "cast(");
    if (e->op == KN_OP_CONST_F) print_float(b, e->u.f);
    else if (e->dtype == KN_BOOL) kn_put(b, e->u.i ? "true" : "false");
    else if (e->u.i == INT64_MIN) kn_put(b, "(-9223372036854775807 - 1)");
    else kn_putf(b, "%lld", (long long)e->u.i);
    if (!plain) kn_putf(b, ", %s)", kn_dtype_text(e->dtype));
}

static void load(kn_buf *b, const kn_program *p, const kn_stmt *s, const kn_expr *e)
{
    if (e->padded) kn_put(b, "pad(");
    tensor_name(b, p, e->u.tensor);
    if (e->padded) {
        kn_put(b, ", ");
        print_float(b, e->pad_value);
        kn_put(b, ")");
    }
    arguments(b, p, s, e, "[", "]");
}

static void expr(kn_buf *b, const kn_program *p, const kn_stmt *s, const kn_expr *e, int least)
{
    int power = power_of(e);
    if (power < least) kn_put(b, "(");
    if (e->op == KN_OP_CONST_F || e->op == KN_OP_CONST_I) constant(b, e);
    else if (e->op == KN_OP_AXIS) axis_name(b, s, e->u.axis);
    else if (e->op == KN_OP_VAR) kn_putf(b, "v%d", e->u.var);
    else if (e->op == KN_OP_LOAD) load(b, p, s, e);
    else if (e->op == KN_OP_CAST) {
        kn_put(b, "cast(");
        expr(b, p, s, e->args[0], 0);
        kn_putf(b, ", %s)", kn_dtype_text(e->dtype));
    } else if (power == 6) {
        kn_put(b, e->op == KN_OP_NEG ? "-" : "!");
        expr(b, p, s, e->args[0], e->op == KN_OP_NEG && kn_is_const(e->args[0]) ? 8 : 6);
    } else if (power < 6) {
        expr(b, p, s, e->args[0], power);
        kn_putf(b, power >= 5 ? "%s" : " %s ", kn_op_text(e->op));
        expr(b, p, s, e->args[1], power + 1);
    } else {
        kn_put(b, kn_op_text(e->op));
        arguments(b, p, s, e, "(", ")");
    }
    if (power < least) kn_put(b, ")");
}

void kn_print_expr(kn_buf *b, const kn_program *p, const kn_stmt *s, const kn_expr *e) { expr(b, p, s, e, 0); }

/* Would the parser find this extent by itself, from axes that stand bare in plain reads or, without any, in padded ones? */
typedef struct found { bool agree[2], conflict[2]; } found; /* [padded] */

static void bare_uses(const kn_program *p, const kn_expr *e, int axis, int64_t extent, found *f)
{
    for (int i = 0; i < e->nargs; i++) {
        const kn_expr *x = e->args[i];
        if (e->op == KN_OP_LOAD && x->op == KN_OP_AXIS && x->u.axis == axis) {
            bool same = p->tensors[e->u.tensor].shape[i] == extent;
            f->agree[e->padded] |= same;
            f->conflict[e->padded] |= !same;
        }
        bare_uses(p, x, axis, extent, f);
    }
}

static bool needs_range(const kn_program *p, const kn_stmt *s, int axis)
{
    found f = {{false}, {false}};
    bare_uses(p, s->body, axis, s->axes[axis].extent, &f);
    bool plain = f.agree[0] || f.conflict[0];
    return s->scatter || (plain ? f.conflict[0] : !f.agree[1] || f.conflict[1]);
}

static void print_ranges(kn_buf *b, const kn_program *p, const kn_stmt *s)
{
    const char *before = " where ";
    for (int x = 0; x < s->naxes; x++) {
        if (!needs_range(p, s, x)) continue;
        kn_put(b, before);
        axis_name(b, s, x);
        kn_putf(b, " in %lld", (long long)s->axes[x].extent);
        before = ", ";
    }
}

void kn_print_stmt(kn_buf *b, const kn_program *p, const kn_stmt *s)
{
    static const char *const assign[] = {[KN_RED_NONE] = "=", [KN_RED_SUM] = "+=!", [KN_RED_PROD] = "*=!", [KN_RED_MAX] = ">=!",
                                         [KN_RED_MIN] = "<=!", [KN_RED_ALL] = "&=!", [KN_RED_ANY] = "|=!"};
    static const char *const scatter[] = {[KN_RED_NONE] = "=.", [KN_RED_SUM] = "+=.", [KN_RED_PROD] = "*=.", [KN_RED_MAX] = ">=.",
                                          [KN_RED_MIN] = "<=.", [KN_RED_ALL] = "&=.", [KN_RED_ANY] = "|=."};
    const kn_tensor *t = &p->tensors[s->out];
    tensor_name(b, p, s->out);
    kn_put(b, "[");
    for (int i = 0; i < t->rank; i++) {
        if (i) kn_put(b, ", ");
        expr(b, p, s, s->lhs[i], 0);
    }
    kn_putf(b, "] %s ", s->scatter ? scatter[s->red] : assign[s->red]);
    expr(b, p, s, s->body, 0);
    print_ranges(b, p, s);
    if (!s->scatter && t->dtype != s->body->dtype) kn_putf(b, " : %s", kn_dtype_text(t->dtype));
}

void kn_print_program(kn_buf *b, const kn_program *p)
{
    int place[KILN_MAX_TENSORS];
    bool usual = true;
    for (int i = 0; i < p->ninputs; i++) {
        kn_put(b, "in ");
        tensor_name(b, p, i);
        kn_putf(b, ": %s[", kn_dtype_text(p->tensors[i].dtype));
        for (int k = 0; k < p->tensors[i].rank; k++) kn_putf(b, "%s%lld", k ? "," : "", (long long)p->tensors[i].shape[k]);
        kn_putf(b, "]%s;\n", p->tensors[i].constant ? " const" : "");
    }
    kn_default_outputs(p, place);
    for (int i = p->ninputs; i < p->ntensors; i++) usual &= place[i] == (p->tensors[i].role == KN_OUTPUT ? i - p->ninputs : -1);
    if (!usual) {
        for (int i = 0; i < p->noutputs; i++) {
            kn_put(b, i ? ", " : "out ");
            tensor_name(b, p, p->ninputs + i);
        }
        kn_put(b, ";\n");
    }
    for (int i = 0; i < p->nstmts; i++) {
        kn_print_stmt(b, p, p->stmts[i]);
        kn_put(b, ";\n");
    }
}
