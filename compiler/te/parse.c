/* The expression parser: operator precedence climbing over an untyped tree. */
#include "te/ast.h"
#include <string.h>

kn_ast *kn_ast_new(kn_parser *p, enum kn_ast_kind kind, const kn_token *at, int nargs, kn_ast *const *args)
{
    kn_ast *e = kn_new(p->a, kn_ast);
    if (e && nargs) e->args = kn_array(p->a, kn_ast *, nargs);
    if (!e || (nargs && !e->args)) {
        kn_refuse(p, KILN_MEMORY, at, "out of memory");
        return NULL;
    }
    e->kind = kind;
    e->line = at->line;
    e->col = at->col;
    e->nargs = nargs;
    e->depth = e->size = 1;
    for (int i = 0; i < nargs; i++) {
        if (!args[i]) return NULL;
        e->args[i] = args[i];
        e->size += args[i]->size;
        if (args[i]->depth >= e->depth) e->depth = args[i]->depth + 1;
    }
    if (e->depth > KILN_MAX_EXPR_DEPTH) {
        kn_refuse(p, KILN_LIMIT, at, "expression nested deeper than %d", KILN_MAX_EXPR_DEPTH);
        kn_hint(p->d, "split it into several statements");
        return NULL;
    }
    if (e->size > KILN_MAX_EXPR_NODES) {
        kn_refuse(p, KILN_LIMIT, at, "expression of more than %d nodes", KILN_MAX_EXPR_NODES);
        kn_hint(p->d, "split it into several statements");
        return NULL;
    }
    return e;
}

kn_ast *kn_ast_op(kn_parser *p, enum kn_op op, const kn_token *at, kn_ast *x, kn_ast *y)
{
    kn_ast *e = x ? kn_ast_new(p, KN_A_OP, at, y ? 2 : 1, (kn_ast *[]){x, y}) : NULL;
    if (e) e->op = op;
    return e;
}

/* Binding power of the binary operators; swap: the operands change places ('>' is LT). */
static const struct { const char *text; int power; enum kn_op op; bool swap; } binary[] = {
    {"||", 1, KN_OP_OR, false}, {"|", 1, KN_OP_OR, false},
    {"&&", 2, KN_OP_AND, false}, {"&", 2, KN_OP_AND, false},
    {"==", 3, KN_OP_EQ, false}, {"!=", 3, KN_OP_NE, false},
    {"<", 3, KN_OP_LT, false}, {"<=", 3, KN_OP_LE, false}, {">", 3, KN_OP_LT, true}, {">=", 3, KN_OP_LE, true},
    {"+", 4, KN_OP_ADD, false}, {"-", 4, KN_OP_SUB, false},
    {"*", 5, KN_OP_MUL, false}, {"/", 5, KN_OP_DIV, false}, {"//", 5, KN_OP_FLOORDIV, false}, {"%", 5, KN_OP_MOD, false},
};
#define POWER_UNARY 6

static kn_ast *climb(kn_parser *p, int power);

static bool enter(kn_parser *p)
{
    if (++p->nesting <= KILN_MAX_EXPR_DEPTH) return true;
    kn_refuse(p, KILN_LIMIT, &p->t, "expression nested deeper than %d", KILN_MAX_EXPR_DEPTH);
    kn_hint(p->d, "split it into several statements");
    return false;
}

static kn_ast *unary(kn_parser *p)
{
    kn_token at = p->t;
    bool minus = kn_is(p, "-"), not = kn_is(p, "!") || kn_is(p, "~");
    if (!minus && !not && !kn_is(p, "+")) return kn_parse_primary(p);
    if (!enter(p) || !kn_next(p)) return NULL;
    kn_ast *x = climb(p, POWER_UNARY);
    p->nesting--;
    if (!x || (!minus && !not)) return x;
    if (minus && x->kind == KN_A_INT && x->i >= 0) {
        x->i = -x->i;
        return x;
    }
    if (minus && x->kind == KN_A_FLOAT) {
        x->f = -x->f;
        return x;
    }
    return kn_ast_op(p, not ? KN_OP_NOT : KN_OP_NEG, &at, x, NULL);
}

static kn_ast *climb(kn_parser *p, int power)
{
    kn_ast *x = unary(p);
    while (x) {
        size_t k = 0, n = sizeof binary / sizeof *binary;
        while (k < n && !kn_is(p, binary[k].text)) k++;
        if (k == n || binary[k].power < power) break;
        kn_token at = p->t;
        if (!kn_next(p)) return NULL;
        kn_ast *y = climb(p, binary[k].power + 1);
        if (!y) return NULL;
        x = binary[k].swap ? kn_ast_op(p, binary[k].op, &at, y, x) : kn_ast_op(p, binary[k].op, &at, x, y);
    }
    return x;
}

kn_ast *kn_parse_expr(kn_parser *p)
{
    bool ternary;
    if (!enter(p)) return NULL;
    kn_ast *c = climb(p, 0);
    kn_token at = p->t;
    if (!c || !kn_accept(p, "?", &ternary)) return NULL;
    if (ternary) {
        kn_ast *x = kn_parse_expr(p), *y;
        if (!x || !kn_want(p, ":") || !(y = kn_parse_expr(p))) return NULL;
        c = kn_ast_new(p, KN_A_OP, &at, 3, (kn_ast *[]){c, x, y});
        if (c) c->op = KN_OP_SELECT;
    }
    p->nesting--;
    return c;
}

static bool constant(const kn_ast *e, int64_t *out)
{
    int64_t x, y;
    if (e->kind == KN_A_INT) {
        *out = e->i;
        return true;
    }
    if (e->kind != KN_A_OP || e->nargs > 2 || !constant(e->args[0], &x)) return false;
    if (e->op == KN_OP_NEG) return !__builtin_sub_overflow(0, x, out);
    if (e->nargs != 2 || !constant(e->args[1], &y)) return false;
    switch (e->op) {
    case KN_OP_ADD: return !__builtin_add_overflow(x, y, out);
    case KN_OP_SUB: return !__builtin_sub_overflow(x, y, out);
    case KN_OP_MUL: return !__builtin_mul_overflow(x, y, out);
    case KN_OP_DIV:
    case KN_OP_FLOORDIV:
        if (y <= 0) return false;
        *out = kn_floor_div(x, y);
        return true;
    default: return false;
    }
}

bool kn_parse_int(kn_parser *p, int64_t *out)
{
    kn_token at = p->t;
    kn_ast *e = kn_parse_expr(p);
    if (!e) return false;
    if (constant(e, out)) return true;
    kn_refuse(p, KILN_SYNTAX, &at, "expected a whole number");
    kn_hint(p->d, "extents are fixed numbers such as 128 or 4*32");
    return false;
}
