/* Growing text in an arena, and numbers as text that never depend on the locale. */
#include "base/base.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void kn_buf_init(kn_buf *b, kiln_arena *a) { *b = (kn_buf){.a = a}; }

static bool reserve(kn_buf *b, size_t more)
{
    if (b->failed) return false;
    if (b->cap - b->n > more) return true;
    size_t cap = b->cap ? b->cap : 256;
    while (cap - b->n <= more) cap *= 2;
    char *p = kn_alloc(b->a, cap);
    if (!p) {
        b->failed = true;
        return false;
    }
    if (b->n) memcpy(p, b->p, b->n);
    b->p = p;
    b->cap = cap;
    return true;
}

void kn_putn(kn_buf *b, const char *s, size_t n)
{
    if (!reserve(b, n)) return;
    if (n) memcpy(b->p + b->n, s, n);
    b->n += n;
    b->p[b->n] = 0;
}

void kn_put(kn_buf *b, const char *s) { kn_putn(b, s, strlen(s)); }

/* Digits of x before `end`; where they begin. */
static char *digits(char *end, unsigned long long x)
{
    do *--end = (char)('0' + x % 10);
    while (x /= 10);
    return end;
}

/* The conversions that nearly all texts are made of, for which vsnprintf is slow: %s %d %lld %c %%. False, and nothing put: there is another. */
static bool put_plain(kn_buf *b, const char *fmt, va_list ap)
{
    for (const char *f = strchr(fmt, '%'); f; f = strchr(f + 1, '%')) {
        f++;
        if (f[0] == 'l' && f[1] == 'l') f += 2, f -= *f != 'd';
        if (*f != 's' && *f != 'd' && *f != 'c' && *f != '%') return false;
    }
    for (const char *f; (f = strchr(fmt, '%')); fmt = f + 1) {
        char text[24], *end = text + sizeof text, *at = end;
        kn_putn(b, fmt, (size_t)(f - fmt));
        bool wide = *++f == 'l';
        if (wide) f += 2;
        if (*f == 's') kn_put(b, va_arg(ap, const char *));
        else if (*f == '%') *--at = '%';
        else if (*f == 'c') *--at = (char)va_arg(ap, int);
        else {
            long long x = wide ? va_arg(ap, long long) : va_arg(ap, int);
            at = digits(end, x < 0 ? 0 - (unsigned long long)x : (unsigned long long)x);
            if (x < 0) *--at = '-';
        }
        kn_putn(b, at, (size_t)(end - at));
    }
    kn_put(b, fmt);
    return true;
}

void kn_putf(kn_buf *b, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    if (!put_plain(b, fmt, ap)) {
        va_list third;
        va_copy(third, again);
        int n = vsnprintf(NULL, 0, fmt, third);
        va_end(third);
        if (n >= 0 && reserve(b, (size_t)n)) {
            vsnprintf(b->p + b->n, (size_t)n + 1, fmt, again);
            b->n += (size_t)n;
        }
    }
    va_end(again);
    va_end(ap);
}

void kn_put_double(kn_buf *b, double x)
{
    char t[40];
    if (x != x) { kn_put(b, "nan"); return; }
    if (x - x != 0) { kn_put(b, x > 0 ? "inf" : "-inf"); return; }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(t, sizeof t, "%.*g", digits, x);
        if (strtod(t, NULL) == x) break;
    }
    for (char *c = t; *c; c++)
        if (*c == ',') *c = '.'; /* an embedder may have set a locale */
    kn_put(b, t);
}

void kn_put_json_string(kn_buf *b, const char *s)
{
    kn_put(b, "\"");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') kn_putf(b, "\\%c", c);
        else if (c == '\n') kn_put(b, "\\n");
        else if (c == '\t') kn_put(b, "\\t");
        else if (c < 0x20) kn_putf(b, "\\u%04x", c);
        else kn_putn(b, s, 1);
    }
    kn_put(b, "\"");
}

kiln_bytes kn_buf_take(kn_buf *b)
{
    if (!b->failed && !b->p) kn_putn(b, "", 0);
    return b->failed ? (kiln_bytes){NULL, 0} : (kiln_bytes){b->p, b->n};
}
