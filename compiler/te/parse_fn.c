/* Primaries of expressions: literals, axes, tensor reads, functions, and the methods of the Antares spelling. */
#include "te/ast.h"
#include <math.h>
#include <string.h>

static const struct { const char *name; enum kn_op op; } functions[] = {
    {"exp", KN_OP_EXP}, {"log", KN_OP_LOG}, {"sqrt", KN_OP_SQRT}, {"rsqrt", KN_OP_RSQRT}, {"tanh", KN_OP_TANH}, {"erf", KN_OP_ERF},
    {"sin", KN_OP_SIN}, {"cos", KN_OP_COS}, {"pow", KN_OP_POW}, {"floor", KN_OP_FLOOR}, {"ceil", KN_OP_CEIL}, {"round", KN_OP_ROUND},
    {"min", KN_OP_MIN}, {"max", KN_OP_MAX}, {"abs", KN_OP_ABS}, {"select", KN_OP_SELECT},
    {"bitand", KN_OP_BITAND}, {"bitor", KN_OP_BITOR}, {"bitxor", KN_OP_BITXOR}, {"shl", KN_OP_SHL}, {"shr", KN_OP_SHR},
    {"bits", KN_OP_BITS},
};
#define NAMES \
    "exp, log, sqrt, rsqrt, tanh, erf, sin, cos, pow, floor, ceil, round, min, max, abs, " \
    "select, cast, pad, extent, bitand, bitor, bitxor, shl, shr, bits, sigmoid, gelu, relu"

static kn_ast *number(kn_parser *p, const kn_token *at, double f)
{
    kn_ast *e = kn_ast_new(p, KN_A_FLOAT, at, 0, NULL);
    if (e) e->f = f;
    return e;
}

static kn_ast *composite(kn_parser *p, const kn_token *at, char which, kn_ast *x)
{
    kn_ast *one = number(p, at, 1);
    if (which == 'r') {
        kn_ast *zero = number(p, at, 0);
        return kn_ast_op(p, KN_OP_MAX, at, x, zero);
    }
    if (which == 's') {
        kn_ast *e = kn_ast_op(p, KN_OP_EXP, at, kn_ast_op(p, KN_OP_NEG, at, x, NULL), NULL);
        return e ? kn_ast_op(p, KN_OP_DIV, at, one, kn_ast_op(p, KN_OP_ADD, at, one, e)) : NULL;
    }
    kn_ast *half = number(p, at, 0.5), *root = number(p, at, 0.70710678118654752440);
    kn_ast *e = kn_ast_op(p, KN_OP_ERF, at, kn_ast_op(p, KN_OP_MUL, at, x, root), NULL);
    if (!e || !(e = kn_ast_op(p, KN_OP_ADD, at, one, e)) || !half) return NULL;
    kn_ast *scaled = kn_ast_op(p, KN_OP_MUL, at, half, x);
    return scaled ? kn_ast_op(p, KN_OP_MUL, at, scaled, e) : NULL;
}

static bool same(const char *fn, size_t n, const char *name) { return strlen(name) == n && !memcmp(fn, name, n); }

static kn_ast *arity(kn_parser *p, const kn_token *at, int want, int got)
{
    int n = at->n > 40 ? 40 : (int)at->n;
    kn_refuse(p, KILN_SYNTAX, at, "%.*s takes %d operand%s, not %d", n, at->p, want, want == 1 ? "" : "s", got);
    return NULL;
}

kn_ast *kn_ast_call(kn_parser *p, const kn_token *at, const char *fn, size_t n, int nargs, kn_ast **args)
{
    for (int i = 0; i < nargs; i++)
        if (!args[i]) return NULL;
    static const char *const sugar[] = {"sigmoid", "gelu", "relu"};
    for (int i = 0; i < 3; i++)
        if (same(fn, n, sugar[i])) return nargs == 1 ? composite(p, at, sugar[i][0], args[0]) : arity(p, at, 1, nargs);
    if (same(fn, n, "const")) return nargs == 1 ? args[0] : arity(p, at, 1, nargs);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (!same(fn, n, functions[i].name)) continue;
        int want = kn_op_arity(functions[i].op);
        if ((functions[i].op == KN_OP_MIN || functions[i].op == KN_OP_MAX) && nargs > 2) { /* max(a,b,c) nests to the left */
            kn_ast *e = args[0];
            for (int k = 1; e && k < nargs; k++) e = kn_ast_op(p, functions[i].op, at, e, args[k]);
            return e;
        }
        if (want != nargs) return arity(p, at, want, nargs);
        kn_ast *e = kn_ast_new(p, KN_A_OP, at, nargs, args);
        if (e) e->op = functions[i].op;
        return e;
    }
    int len = n > 40 ? 40 : (int)n;
    kn_refuse(p, KILN_SYNTAX, at, "no function '%.*s'", len, fn);
    kn_hint(p->d, "one of " NAMES);
    return NULL;
}

bool kn_parse_dtype(kn_parser *p, enum kn_dtype *out)
{
    if (p->t.kind != KN_T_LOWER && p->t.kind != KN_T_STRING) return kn_refuse(p, KILN_SYNTAX, &p->t, "expected a dtype");
    if (kn_dtype_find(p->t.p, p->t.n, out)) return kn_next(p);
    int n = p->t.n > 40 ? 40 : (int)p->t.n;
    kn_refuse(p, KILN_DTYPE, &p->t, "no dtype '%.*s'", n, p->t.p);
    kn_hint(p->d, "one of f32, f64, f16, bf16, i64, i32, i16, i8, u8, bool");
    return false;
}

static bool list(kn_parser *p, const char *close, int cap, kn_ast **out, int *n)
{
    bool done;
    *n = 0;
    if (!kn_accept(p, close, &done)) return false;
    while (!done) {
        if (*n == cap) return kn_refuse(p, KILN_LIMIT, &p->t, "more than %d operands", cap);
        if (!(out[(*n)++] = kn_parse_expr(p))) return false;
        if (!kn_accept(p, close, &done)) return false;
        if (!done && !kn_want(p, ",")) return false;
    }
    return true;
}

static kn_ast *load(kn_parser *p, const kn_token *at, const char *name, bool bracket)
{
    kn_ast *idx[KILN_MAX_RANK];
    int n = 0;
    if (bracket && (!kn_next(p) || !list(p, "]", KILN_MAX_RANK, idx, &n))) return NULL;
    kn_ast *e = kn_ast_new(p, KN_A_LOAD, at, n, idx);
    if (e) e->name = name;
    return e;
}

/* pad(x, v)[indices]: v is a constant, 0 when absent. */
static kn_ast *pad(kn_parser *p, const kn_token *at)
{
    double value = 0;
    bool comma;
    if (p->t.kind != KN_T_LOWER) {
        kn_refuse(p, KILN_SYNTAX, &p->t, "expected the name of a tensor in pad()");
        return NULL;
    }
    const char *name = kn_token_name(p, &p->t);
    if (!name || !kn_next(p) || !kn_accept(p, ",", &comma)) return NULL;
    if (comma) {
        kn_token where = p->t;
        kn_ast *v = kn_parse_expr(p);
        if (!v) return NULL;
        if (v->kind == KN_A_INT) value = (double)v->i;
        else if (v->kind == KN_A_FLOAT) value = v->f;
        else if (v->kind == KN_A_BOOL) value = (double)v->i;
        else {
            kn_refuse(p, KILN_SYNTAX, &where, "the pad value must be a number");
            return NULL;
        }
    }
    if (!kn_want(p, ")")) return NULL;
    if (!kn_is(p, "[")) {
        kn_want(p, "[");
        kn_hint(p->d, "pad(x, 0.0)[N, H-1]");
        return NULL;
    }
    kn_ast *e = load(p, at, name, true);
    if (!e) return NULL;
    e->padded = true;
    e->f = value;
    return e;
}

static kn_ast *cast(kn_parser *p, const kn_token *at, kn_ast *x)
{
    enum kn_dtype t;
    if (!kn_parse_dtype(p, &t) || !kn_want(p, ")")) return NULL;
    kn_ast *e = kn_ast_new(p, KN_A_CAST, at, 1, &x);
    if (e) e->dtype = t;
    return e;
}

static kn_ast *call(kn_parser *p, const kn_token *at)
{
    kn_ast *args[8], *x;
    int n;
    if (!kn_next(p)) return NULL; /* the '(' */
    if (same(at->p, at->n, "pad")) return pad(p, at);
    if (same(at->p, at->n, "cast")) return (x = kn_parse_expr(p)) && kn_want(p, ",") ? cast(p, at, x) : NULL;
    if (same(at->p, at->n, "extent")) {
        if (p->t.kind != KN_T_UPPER) {
            kn_refuse(p, KILN_SYNTAX, &p->t, "extent() takes an axis");
            return NULL;
        }
        if (!(x = kn_ast_new(p, KN_A_EXTENT, at, 0, NULL)) || !(x->name = kn_token_name(p, &p->t))) return NULL;
        return kn_next(p) && kn_want(p, ")") ? x : NULL;
    }
    return list(p, ")", 8, args, &n) ? kn_ast_call(p, at, at->p, at->n, n, args) : NULL;
}

/* x.when([c1, c2], y, merge_op=`any`): x where all (any) conditions hold, else y. */
static kn_ast *method_when(kn_parser *p, const kn_token *at, kn_ast *x)
{
    kn_ast *conds[16], *y;
    int n = 1;
    bool bracket, comma, any = false;
    if (!kn_accept(p, "[", &bracket)) return NULL;
    if (bracket ? !list(p, "]", 16, conds, &n) : !(conds[0] = kn_parse_expr(p))) return NULL;
    if (n == 0) {
        kn_refuse(p, KILN_SYNTAX, at, "when() without a condition");
        return NULL;
    }
    if (!kn_want(p, ",") || !(y = kn_parse_expr(p)) || !kn_accept(p, ",", &comma)) return NULL;
    if (comma) {
        if (kn_is(p, "merge_op") && (!kn_next(p) || !kn_want(p, "="))) return NULL;
        any = p->t.kind == KN_T_STRING && same(p->t.p, p->t.n, "any");
        if (!any && !(p->t.kind == KN_T_STRING && same(p->t.p, p->t.n, "all"))) {
            kn_refuse(p, KILN_SYNTAX, &p->t, "merge_op is `all` or `any`");
            return NULL;
        }
        if (!kn_next(p)) return NULL;
    }
    if (!kn_want(p, ")")) return NULL;
    kn_ast *c = conds[0];
    for (int i = 1; c && i < n; i++) c = kn_ast_op(p, any ? KN_OP_OR : KN_OP_AND, at, c, conds[i]);
    kn_ast *e = c ? kn_ast_new(p, KN_A_OP, at, 3, (kn_ast *[]){c, x, y}) : NULL;
    if (e) e->op = KN_OP_SELECT;
    return e;
}

/* x.call(`fn`, [more operands], dtype) */
static kn_ast *method_call(kn_parser *p, kn_ast *x)
{
    kn_ast *args[9] = {x};
    int n = 0;
    bool comma, bracket;
    kn_token fn = p->t;
    if (fn.kind != KN_T_STRING) {
        kn_refuse(p, KILN_SYNTAX, &fn, "call() takes a function's name in quotes");
        return NULL;
    }
    if (!kn_next(p) || !kn_accept(p, ",", &comma)) return NULL;
    if (comma) {
        if (!kn_accept(p, "[", &bracket)) return NULL;
        if (bracket && (!list(p, "]", 8, args + 1, &n) || !kn_accept(p, ",", &comma))) return NULL;
    }
    kn_ast *e = kn_ast_call(p, &fn, fn.p, fn.n, n + 1, args);
    if (!e) return NULL;
    if (comma && !kn_is(p, ")")) return cast(p, &fn, e);
    return kn_want(p, ")") ? e : NULL;
}

static kn_ast *postfix(kn_parser *p, kn_ast *x)
{
    bool dot;
    while (x && kn_accept(p, ".", &dot) && dot) {
        kn_token name = p->t;
        if (name.kind != KN_T_LOWER) {
            kn_refuse(p, KILN_SYNTAX, &name, "expected call, cast, when or val after '.'");
            return NULL;
        }
        if (!kn_next(p) || !kn_want(p, "(")) return NULL;
        if (same(name.p, name.n, "call")) x = method_call(p, x);
        else if (same(name.p, name.n, "cast")) x = cast(p, &name, x);
        else if (same(name.p, name.n, "when")) x = method_when(p, &name, x);
        else if (same(name.p, name.n, "val") && x->kind == KN_A_AXIS) {
            x->kind = KN_A_EXTENT;
            if (!kn_want(p, ")")) return NULL;
        } else {
            int n = name.n > 40 ? 40 : (int)name.n;
            kn_refuse(p, KILN_SYNTAX, &name, "no method '%.*s'", n, name.p);
            kn_hint(p->d, "x.call(`exp`), x.cast(`f32`), x.when([c], y), AXIS.val()");
            return NULL;
        }
    }
    return p->d->status == KILN_OK ? x : NULL;
}

static kn_ast *word(kn_parser *p)
{
    static const struct { const char *name; enum kn_ast_kind kind; double f; } literals[] = {
        {"true", KN_A_BOOL, 1}, {"false", KN_A_BOOL, 0}, {"inf", KN_A_FLOAT, INFINITY}, {"nan", KN_A_FLOAT, NAN}};
    kn_token at = p->t;
    if (!kn_next(p)) return NULL;
    if (kn_is(p, "(")) return call(p, &at);
    for (size_t i = 0; i < 4 && !kn_is(p, "["); i++) {
        if (!same(at.p, at.n, literals[i].name)) continue;
        kn_ast *e = kn_ast_new(p, literals[i].kind, &at, 0, NULL);
        if (!e) return NULL;
        e->f = literals[i].f;
        e->i = literals[i].kind == KN_A_BOOL && literals[i].f != 0;
        return e;
    }
    const char *name = kn_token_name(p, &at);
    return name ? load(p, &at, name, kn_is(p, "[")) : NULL;
}

kn_ast *kn_parse_primary(kn_parser *p)
{
    kn_token at = p->t;
    kn_ast *e = NULL;
    bool open;
    if (!kn_accept(p, "(", &open)) return NULL;
    if (open) {
        if (!(e = kn_parse_expr(p)) || !kn_want(p, ")")) return NULL;
    } else if (at.kind == KN_T_INT || at.kind == KN_T_FLOAT) {
        if (!(e = kn_ast_new(p, at.kind == KN_T_INT ? KN_A_INT : KN_A_FLOAT, &at, 0, NULL)) || !kn_next(p)) return NULL;
        e->i = at.i;
        e->f = at.f;
    } else if (at.kind == KN_T_UPPER) {
        if (!(e = kn_ast_new(p, KN_A_AXIS, &at, 0, NULL)) || !(e->name = kn_token_name(p, &at)) || !kn_next(p)) return NULL;
    } else if (at.kind == KN_T_LOWER && !kn_is(p, "where")) {
        if (!(e = word(p))) return NULL;
    } else if (at.kind == KN_T_END) {
        kn_refuse(p, KILN_SYNTAX, &at, "expected an expression before the end of the text");
    } else {
        int n = at.n > 40 ? 40 : (int)at.n;
        kn_refuse(p, KILN_SYNTAX, &at, "expected an expression, found '%.*s'", n, at.p);
    }
    return postfix(p, e);
}
