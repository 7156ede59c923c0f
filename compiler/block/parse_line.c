/* Reading lines, words and expressions of block programs. */
#include "block/parse.h"
#include <stdio.h>
#include <string.h>

bool kn_bp_fail(kn_bp *p, const char *fmt, ...)
{
    *p->d = (kiln_diag){ .status = KILN_SYNTAX, .line = p->line, .col = (int)(p->at - p->line_start) + 1 };
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(p->d->message, sizeof p->d->message, fmt, ap);
    va_end(ap);
    return false;
}

bool kn_bp_line(kn_bp *p, const char *from)
{
    for (;;) {
        p->done = from >= p->end;
        p->line_start = p->at = from;
        p->line++;
        if (p->done) return true;
        const char *nl = memchr(from, '\n', (size_t)(p->end - from));
        p->line_end = nl ? nl : p->end;
        while (p->at < p->line_end && *p->at == ' ') p->at++;
        const char *last = p->line_end;
        while (last > p->at && (last[-1] == ' ' || last[-1] == '\r')) last--;
        if (p->at < last && *p->at != '#') {
            p->line_end = last;
            break;
        }
        from = nl ? nl + 1 : p->end;
    }
    if ((p->at - p->line_start) % 2) return kn_bp_fail(p, "lines are indented by two spaces a level");
    p->depth = (int)(p->at - p->line_start) / 2;
    return p->depth <= KN_BLOCK_DEPTH ? true : kn_bp_fail(p, "nested deeper than %d", KN_BLOCK_DEPTH);
}

static bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool digit(char c) { return c >= '0' && c <= '9'; }

static void blank(kn_bp *p)
{
    while (p->at < p->line_end && (*p->at == ' ' || *p->at == '\t')) p->at++;
}

static size_t name_length(const kn_bp *p, bool dots)
{
    const char *q = p->at;
    if (q < p->line_end && !letter(*q)) return 0;
    while (q < p->line_end && (letter(*q) || digit(*q) || (dots && *q == '.'))) q++;
    return (size_t)(q - p->at);
}

bool kn_bp_word(kn_bp *p, const char *word)
{
    blank(p);
    size_t n = name_length(p, true);
    if (n != strlen(word) || memcmp(p->at, word, n)) return false;
    p->at += n;
    return true;
}

bool kn_bp_mark(kn_bp *p, const char *mark)
{
    size_t n = strlen(mark);
    blank(p);
    if ((size_t)(p->line_end - p->at) < n || memcmp(p->at, mark, n)) return false;
    p->at += n;
    return true;
}

bool kn_bp_want(kn_bp *p, const char *mark)
{
    bool word = letter(mark[0]);
    return (word ? kn_bp_word(p, mark) : kn_bp_mark(p, mark)) ? true : kn_bp_fail(p, "expected '%s'", mark);
}

const char *kn_bp_name(kn_bp *p, bool dots, const char *what)
{
    blank(p);
    size_t n = name_length(p, dots);
    if (!n || n >= KILN_MAX_NAME_BYTES + 8) {
        kn_bp_fail(p, n ? "the name of %s is too long" : "expected the name of %s", what);
        return NULL;
    }
    const char *s = kn_strndup(p->a, p->at, n);
    p->at += n;
    if (!s) kn_fail(p->d, KILN_MEMORY, "out of memory");
    return s;
}

bool kn_bp_int(kn_bp *p, int64_t *out)
{
    blank(p);
    const char *s = p->at;
    int64_t v = 0;
    for (; p->at < p->line_end && digit(*p->at); p->at++) {
        if (v > (INT64_MAX - 9) / 10) return kn_bp_fail(p, "a number larger than 2^63-1");
        v = v * 10 + (*p->at - '0');
    }
    if (p->at == s) return kn_bp_fail(p, "expected a whole number");
    *out = v;
    return true;
}

bool kn_bp_end(kn_bp *p)
{
    blank(p);
    return p->at == p->line_end ? true : kn_bp_fail(p, "'%.*s' after the end", p->line_end - p->at > 40 ? 40 : (int)(p->line_end - p->at),
                                                    p->at);
}

kiln_bytes kn_bp_span(kn_bp *p, const char *stops)
{
    int open = 0;
    blank(p);
    kiln_bytes t = { p->at, 0 };
    for (; p->at < p->line_end; p->at++) {
        char c = *p->at;
        if (!open && strchr(stops, c)) break;
        open += (c == '(' || c == '[') - (c == ')' || c == ']');
    }
    t.n = (size_t)(p->at - t.p);
    return t;
}

kn_expr *kn_bp_expr(kn_bp *p, const kn_stmt *iters, const char *stops)
{
    kn_expr *e = NULL;
    kiln_bytes t = kn_bp_span(p, stops);
    kiln_diag d = { 0 };
    kiln_status st = kn_parse_part(p->a, t, p->line, (int)(t.p - p->line_start) + 1, p->b->tensors, iters, &e, &d);
    if (!st) return e;
    *p->d = d;
    if (st != KILN_SHAPE || strncmp(d.message, "no ", 3)) return NULL;
    snprintf(p->d->message, sizeof p->d->message, "%s: %.200s", kn_fault_word(KN_FAULT_NAME), d.message);
    p->d->status = KILN_TRACE;
    return NULL;
}

static kn_expr *sum(kn_bp *p, const kn_bnode *at, int depth);

static kn_expr *loop_ref(kn_bp *p, const kn_bnode *at)
{
    const char *start = p->at, *name = kn_bp_name(p, true, "a loop");
    if (!name) return NULL;
    for (; at; at = at->parent)
        if (at->kind == KN_BN_LOOP && !strcmp(at->name, name)) return kn_var_ref(p->a, at->var);
    p->at = start;
    kn_bp_fail(p, "%s: no loop '%s' around this", kn_fault_word(KN_FAULT_NAME), name);
    p->d->status = KILN_TRACE;
    return NULL;
}

static kn_expr *factor(kn_bp *p, const kn_bnode *at, int depth)
{
    int64_t v;
    kn_expr *e;
    blank(p);
    if (depth > KILN_MAX_EXPR_DEPTH) {
        kn_bp_fail(p, "a binding nested deeper than %d", KILN_MAX_EXPR_DEPTH);
        return NULL;
    }
    if (kn_bp_mark(p, "(")) return (e = sum(p, at, depth + 1)) && kn_bp_want(p, ")") ? e : NULL;
    if (kn_bp_mark(p, "-")) return kn_bp_int(p, &v) ? kn_const_i(p->a, KN_I64, -v) : NULL;
    if (p->at < p->line_end && digit(*p->at)) return kn_bp_int(p, &v) ? kn_const_i(p->a, KN_I64, v) : NULL;
    return loop_ref(p, at);
}

static kn_expr *product(kn_bp *p, const kn_bnode *at, int depth)
{
    kn_expr *e = factor(p, at, depth);
    for (int n = 0; e; n++) {
        enum kn_op op = kn_bp_mark(p, "//") ? KN_OP_FLOORDIV : kn_bp_mark(p, "*") ? KN_OP_MUL : kn_bp_mark(p, "%") ? KN_OP_MOD : KN_OP_ADD;
        if (op == KN_OP_ADD) return e;
        kn_expr *y = n < KILN_MAX_EXPR_DEPTH ? factor(p, at, depth) : NULL;
        if (!y) return p->d->status ? NULL : (kn_bp_fail(p, "a binding of too many factors"), NULL);
        bool constant = y->op == KN_OP_CONST_I;
        if (op != KN_OP_MUL && (!constant || y->u.i < 1)) {
            kn_bp_fail(p, "divide by a positive whole number");
            return NULL;
        }
        e = kn_bin(p->a, op, e, y);
    }
    return e;
}

static kn_expr *sum(kn_bp *p, const kn_bnode *at, int depth)
{
    kn_expr *e = product(p, at, depth);
    for (int n = 0; e; n++) {
        bool plus = kn_bp_mark(p, "+"), minus = !plus && kn_bp_mark(p, "-");
        if (!plus && !minus) return e;
        kn_expr *y = n < KILN_MAX_EXPR_DEPTH ? product(p, at, depth) : NULL;
        if (!y) return p->d->status ? NULL : (kn_bp_fail(p, "a binding of too many terms"), NULL);
        e = kn_bin(p->a, plus ? KN_OP_ADD : KN_OP_SUB, e, y);
    }
    return e;
}

kn_expr *kn_bp_binding(kn_bp *p, const kn_bnode *at)
{
    kn_expr *e = sum(p, at, 0);
    if (!e && !p->d->status) kn_fail(p->d, KILN_MEMORY, "out of memory");
    return e;
}
