/* The lexer: tokens with their places. Words that start in upper case are axes, all others are tensors, functions and keywords. */
#include "te/ast.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void kn_lex_start(kn_parser *p, kiln_bytes text)
{
    p->text = p->at = p->line_start = text.p;
    p->end = text.p + text.n;
    p->line = 1;
}

bool kn_refuse(kn_parser *p, kiln_status s, const kn_token *at, const char *fmt, ...)
{
    *p->d = (kiln_diag){.status = s, .line = at->line, .col = at->col};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(p->d->message, sizeof p->d->message, fmt, ap);
    va_end(ap);
    return false;
}

static bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool digit(char c) { return c >= '0' && c <= '9'; }

static void skip_blank(kn_parser *p)
{
    for (; p->at < p->end; p->at++) {
        char c = *p->at;
        if (c == '#' || (c == '/' && p->end - p->at > 2 && p->at[1] == '/' && p->at[2] == '/')) {
            while (p->at < p->end && *p->at != '\n') p->at++;
            if (p->at == p->end) return;
            c = '\n';
        }
        if (c == '\n') {
            p->line++;
            p->line_start = p->at + 1;
        } else if (c != ' ' && c != '\t' && c != '\r') {
            return;
        }
    }
}

static bool number(kn_parser *p, kn_token *t)
{
    const char *s = p->at, *q = s;
    bool real = false;
    while (q < p->end && digit(*q)) q++;
    if (q < p->end && *q == '.' && !(q + 1 < p->end && letter(q[1]) && q[1] != 'e' && q[1] != 'E')) {
        real = true;
        for (q++; q < p->end && digit(*q);) q++;
    }
    if (q < p->end && (*q == 'e' || *q == 'E')) {
        const char *e = q + 1;
        if (e < p->end && (*e == '+' || *e == '-')) e++;
        if (e < p->end && digit(*e)) {
            real = true;
            for (q = e; q < p->end && digit(*q);) q++;
        }
    }
    char copy[64];
    size_t n = (size_t)(q - s);
    t->n = n;
    p->at = q;
    if (n >= sizeof copy) return kn_refuse(p, KILN_SYNTAX, t, "number with more than %d digits", (int)sizeof copy - 1);
    memcpy(copy, s, n);
    copy[n] = 0;
    t->kind = real ? KN_T_FLOAT : KN_T_INT;
    if (real) {
        t->f = strtod(copy, NULL);
        if (t->f - t->f != 0) return kn_refuse(p, KILN_SYNTAX, t, "number %s is out of range", copy);
        return true;
    }
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t dg = (uint64_t)(copy[i] - '0');
        if (v > ((uint64_t)INT64_MAX - dg) / 10) return kn_refuse(p, KILN_LIMIT, t, "integer %s is larger than 2^63-1", copy);
        v = v * 10 + dg;
    }
    t->i = (int64_t)v;
    return true;
}

/* Longest first; statement operators with '!' and '.' are tokens of their own so that "x[N] +=! y" is never read as "+= !y". */
static const char *const puncts[] = {
    "+=!", "*=!", ">=!", "<=!", "&=!", "|=!", "+=.", "*=.", ">=.", "<=.",
    "+=", "*=", "&=", "|=", "==", "!=", "<=", ">=", "&&", "||", "//", "..", "=.",
    "=", "+", "-", "*", "/", "%", "<", ">", "!", "~", "&", "|", "?", ":", ";", ",", "(", ")", "[", "]", ".", "{", "}", NULL};

/* "=." scatters, but "=.5" is a number behind '='; the same for the other scatter marks. */
static bool is_dot_number(const kn_parser *p, const char *w, size_t n)
{
    return w[n - 1] == '.' && n > 1 && w[n - 2] != '.' && p->at + n < p->end && digit(p->at[n]);
}

bool kn_next(kn_parser *p)
{
    skip_blank(p);
    kn_token *t = &p->t;
    *t = (kn_token){.kind = KN_T_END, .p = p->at, .line = p->line, .col = (int)(p->at - p->line_start) + 1};
    if (p->at >= p->end) return true;
    char c = *p->at;
    if (digit(c) || (c == '.' && p->at + 1 < p->end && digit(p->at[1]))) return number(p, t);
    if (letter(c)) {
        const char *q = p->at;
        while (q < p->end && (letter(*q) || digit(*q))) q++;
        t->kind = c >= 'A' && c <= 'Z' ? KN_T_UPPER : KN_T_LOWER;
        t->n = (size_t)(q - p->at);
        p->at = q;
        return true;
    }
    if (c == '`' || c == '"' || c == '\'') {
        const char *q = p->at + 1;
        while (q < p->end && *q != c && *q != '\n') q++;
        if (q >= p->end || *q != c) return kn_refuse(p, KILN_SYNTAX, t, "the quote %c is never closed", c);
        *t = (kn_token){.kind = KN_T_STRING, .p = p->at + 1, .n = (size_t)(q - p->at - 1), .line = t->line, .col = t->col};
        p->at = q + 1;
        return true;
    }
    for (int i = 0; puncts[i]; i++) {
        size_t n = strlen(puncts[i]);
        if ((size_t)(p->end - p->at) < n || memcmp(p->at, puncts[i], n) || is_dot_number(p, puncts[i], n)) continue;
        t->kind = KN_T_PUNCT;
        t->n = n;
        p->at += n;
        return true;
    }
    if (c > 32 && c < 127) return kn_refuse(p, KILN_SYNTAX, t, "unexpected character '%c'", c);
    return kn_refuse(p, KILN_SYNTAX, t, "unexpected byte 0x%02x", (unsigned char)c);
}

bool kn_is(const kn_parser *p, const char *punct)
{
    const kn_token *t = &p->t;
    return (t->kind == KN_T_PUNCT || t->kind == KN_T_LOWER) && strlen(punct) == t->n && !memcmp(punct, t->p, t->n);
}

bool kn_accept(kn_parser *p, const char *punct, bool *found)
{
    *found = kn_is(p, punct);
    return !*found || kn_next(p);
}

bool kn_want(kn_parser *p, const char *punct)
{
    if (kn_is(p, punct)) return kn_next(p);
    if (p->t.kind == KN_T_END) return kn_refuse(p, KILN_SYNTAX, &p->t, "expected '%s' before the end of the text", punct);
    int n = p->t.n > 40 ? 40 : (int)p->t.n;
    return kn_refuse(p, KILN_SYNTAX, &p->t, "expected '%s', found '%.*s'", punct, n, p->t.p);
}

const char *kn_token_name(kn_parser *p, const kn_token *t)
{
    if (t->n >= KILN_MAX_NAME_BYTES) {
        kn_refuse(p, KILN_LIMIT, t, "name of %zu bytes; at most %d", t->n, KILN_MAX_NAME_BYTES - 1);
        return NULL;
    }
    const char *s = kn_strndup(p->a, t->p, t->n);
    if (!s) kn_refuse(p, KILN_MEMORY, t, "out of memory");
    return s;
}
