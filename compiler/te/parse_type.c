/* Types and input declarations: f32[4,4], f32:4x4, float32[N:4096], and the list that stands beside an expression. */
#include "te/ast.h"
#include <string.h>

static bool add_dim(kn_parser *p, const kn_token *at, int64_t v, int *rank, int64_t *shape)
{
    if (*rank == KILN_MAX_RANK) return kn_refuse(p, KILN_LIMIT, at, "more than %d dimensions", KILN_MAX_RANK);
    if (v < 1) return kn_refuse(p, KILN_SHAPE, at, "dimension %d is %lld; the least is 1", *rank, (long long)v);
    if (v > KILN_MAX_EXTENT) return kn_refuse(p, KILN_LIMIT, at, "dimension %d is %lld; at most %d", *rank, (long long)v, KILN_MAX_EXTENT);
    shape[(*rank)++] = v;
    return true;
}

/* 4x8x3: the lexer reads 4 and then the word x8x3. */
static bool crossed(kn_parser *p, int *rank, int64_t *shape)
{
    kn_token at = p->t;
    int64_t v;
    if (!kn_is(p, "-") && at.kind != KN_T_INT) return kn_refuse(p, KILN_SYNTAX, &at, "expected extents such as 512x512");
    if (at.kind != KN_T_INT) return kn_refuse(p, KILN_SHAPE, &at, "dimension %d is negative; the least is 1", *rank);
    if (!add_dim(p, &at, at.i, rank, shape) || !kn_next(p)) return false;
    if (p->t.kind != KN_T_LOWER || *p->t.p != 'x' || p->t.p != at.p + at.n) return true;
    at = p->t;
    for (size_t i = 0; i < at.n;) {
        size_t first = ++i;
        if (at.p[i - 1] != 'x') return kn_refuse(p, KILN_SYNTAX, &at, "expected extents such as 512x512");
        for (v = 0; i < at.n && at.p[i] >= '0' && at.p[i] <= '9'; i++)
            v = v > KILN_MAX_EXTENT ? v : v * 10 + (at.p[i] - '0');
        if (i == first) return kn_refuse(p, KILN_SYNTAX, &at, "expected extents such as 512x512");
        if (!add_dim(p, &at, v, rank, shape)) return false;
    }
    return kn_next(p);
}

static bool bracketed(kn_parser *p, int *rank, int64_t *shape)
{
    bool done;
    if (!kn_accept(p, "]", &done)) return false;
    while (!done) {
        kn_token at = p->t;
        int64_t v;
        if (at.kind == KN_T_LOWER || at.kind == KN_T_UPPER) { /* a named dimension needs its number: N:4096 */
            if (!kn_next(p)) return false;
            if (!kn_is(p, ":")) {
                kn_refuse(p, KILN_UNSUPPORTED, &at, "symbolic dimensions are not supported yet");
                kn_hint(p->d, "give the number");
                return false;
            }
            if (!kn_next(p)) return false;
            at = p->t;
        }
        if (!kn_parse_int(p, &v) || !add_dim(p, &at, v, rank, shape) || !kn_accept(p, "]", &done)) return false;
        if (!done && !kn_want(p, ",")) return false;
    }
    return true;
}

bool kn_parse_type(kn_parser *p, enum kn_dtype *t, int *rank, int64_t *shape)
{
    bool bracket, colon = false;
    *rank = 0;
    if (!kn_parse_dtype(p, t) || !kn_accept(p, "[", &bracket)) return false;
    if (bracket) return bracketed(p, rank, shape);
    if (!kn_accept(p, ":", &colon)) return false;
    return !colon || crossed(p, rank, shape);
}

bool kn_parse_constant(kn_parser *p, bool *constant)
{
    bool colon;
    if (!kn_accept(p, ":", &colon)) return false;
    return colon ? (*constant = true, kn_want(p, "const")) : kn_accept(p, "const", constant);
}

bool kn_declare_input(kn_parser *p, const kn_token *name, enum kn_dtype t, int rank, const int64_t *shape, bool constant)
{
    const char *copy = kn_token_name(p, name);
    kn_tensor x = {.rank = rank};
    int64_t elems;
    if (!copy) return false;
    for (int i = 0; i < rank; i++) x.shape[i] = shape[i];
    if (!kn_elems(&x, &elems)) return kn_refuse(p, KILN_LIMIT, name, "%s has more than 2^40 elements", copy);
    if (kn_find_tensor(p->p, copy) >= 0) return kn_refuse(p, KILN_SYNTAX, name, "%s is declared a second time", copy);
    int n = kn_add_tensor(p->p, copy, t, KN_INPUT, rank, shape);
    if (n < 0) return kn_refuse(p, KILN_LIMIT, name, "more than %d tensors", KILN_MAX_TENSORS);
    p->p->tensors[n].constant = constant;
    return true;
}

/* {"a": {"dtype": "float32", "shape": [4, 4]}}, the quotes already gone; the current token is behind the inner '{'. */
static bool dictionary_type(kn_parser *p, enum kn_dtype *t, int *rank, int64_t *shape)
{
    bool typed = false, comma = true;
    *rank = 0;
    while (comma) {
        bool dtype = kn_is(p, "dtype");
        if (!dtype && !kn_is(p, "shape")) return kn_refuse(p, KILN_SYNTAX, &p->t, "expected dtype or shape");
        if (!kn_next(p) || !kn_want(p, ":")) return false;
        if (dtype ? !kn_parse_dtype(p, t) : !kn_want(p, "[") || !bracketed(p, rank, shape)) return false;
        typed |= dtype;
        if (!kn_accept(p, ",", &comma)) return false;
    }
    return typed ? kn_want(p, "}") : kn_refuse(p, KILN_SYNTAX, &p->t, "the dtype is missing");
}

static bool one_input(kn_parser *p)
{
    kn_token name = p->t;
    enum kn_dtype t;
    int rank;
    int64_t shape[KILN_MAX_RANK];
    bool equals, brace, constant = false;
    if (name.kind != KN_T_LOWER) return kn_refuse(p, KILN_SYNTAX, &name, "expected the name of an input (it starts in lower case)");
    if (!kn_next(p) || !kn_accept(p, "=", &equals) || (!equals && !kn_want(p, ":")) || !kn_accept(p, "{", &brace)) return false;
    if (!(brace ? dictionary_type(p, &t, &rank, shape) : kn_parse_type(p, &t, &rank, shape))) return false;
    return kn_parse_constant(p, &constant) && kn_declare_input(p, &name, t, rank, shape, constant);
}

static bool decls(kn_parser *p)
{
    bool brace, again;
    if (!kn_next(p) || !kn_accept(p, "{", &brace)) return false;
    for (;;) {
        do {
            if (!kn_accept(p, "&", &again) || (!again && !kn_accept(p, ",", &again)) || (!again && !kn_accept(p, ";", &again)))
                return false;
        } while (again);
        if (p->t.kind == KN_T_END) return !brace || kn_want(p, "}");
        if (brace && kn_is(p, "}")) return kn_next(p) && (p->t.kind == KN_T_END || kn_refuse(p, KILN_SYNTAX, &p->t,
            "text behind the inputs"));
        if (!one_input(p)) return false;
    }
}

bool kn_parse_decls(kn_parser *p, kiln_bytes inputs)
{
    if (!inputs.p || !inputs.n) return true;
    char *plain = kn_strndup(p->a, inputs.p, inputs.n);
    if (!plain) return kn_refuse(p, KILN_MEMORY, &p->t, "out of memory");
    for (size_t i = 0; i < inputs.n; i++)
        if (plain[i] == '"' || plain[i] == '\'' || plain[i] == '`') plain[i] = ' '; /* quotes carry no meaning here */
    kn_lex_start(p, (kiln_bytes){plain, inputs.n});
    if (decls(p)) return true;
    char why[sizeof p->d->message];
    memcpy(why, p->d->message, sizeof why);
    kn_token at = {.line = p->d->line, .col = p->d->col};
    kn_refuse(p, p->d->status, &at, "in the declared inputs: %.400s", why);
    if (!*p->d->hint) kn_hint(p->d, "a=f32:512x512&b=f32:512x512");
    return false;
}
