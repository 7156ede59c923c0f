/* The strict JSON scan (RFC 8259) that comes before any parser: cJSON accepts duplicate members, bad UTF-8, control characters, NUL
 * escapes, malformed and inexact numbers and trailing text; nothing behind this scan ever sees them. */
#include "base/base.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct member { uint64_t hash; size_t at; } member; /* at: first byte of the name behind its quote */
typedef struct level { bool array; int first_member; int index; size_t name; } level;

typedef struct scan {
    const char *p;
    size_t n, i;
    kiln_diag *d;
    int depth, nmembers, count, most; /* nmembers: live names on the stack; count: members and elements in all; most: of them */
    level levels[KILN_MAX_JSON_DEPTH + 1];
    member members[KILN_MAX_JSON_MEMBERS];
} scan;

/* One code point of a string starting at *i (inside the quotes); false on malformed escapes or UTF-8. */
static bool decode(const char *p, size_t n, size_t *i, uint32_t *out)
{
    unsigned char c = (unsigned char)p[*i];
    if (c < 0x80) {
        *out = c;
        ++*i;
        return true;
    }
    int more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : 1;
    if (c < 0xc2 || c > 0xf4 || *i + (size_t)more >= n) return false;
    uint32_t x = c & (0x3fu >> more);
    for (int k = 1; k <= more; k++) {
        unsigned char t = (unsigned char)p[*i + (size_t)k];
        if ((t & 0xc0) != 0x80) return false;
        x = x << 6 | (t & 0x3f);
    }
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    if (x < least[more] || x > 0x10ffff || (x >= 0xd800 && x < 0xe000)) return false;
    *i += (size_t)more + 1;
    *out = x;
    return true;
}

static bool hex4(const char *p, size_t n, size_t i, uint32_t *out)
{
    if (i + 4 > n) return false;
    uint32_t x = 0;
    for (size_t k = i; k < i + 4; k++) {
        char c = p[k];
        int v = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (v < 0) return false;
        x = x << 4 | (uint32_t)v;
    }
    *out = x;
    return true;
}

/* One character of a string, escapes resolved; 0 in *end when the closing quote was reached. */
static const char *string_char(const char *p, size_t n, size_t *i, uint32_t *out, bool *end)
{
    *end = false;
    if (*i >= n) return "string without end";
    unsigned char c = (unsigned char)p[*i];
    if (c == '"') {
        *end = true;
        ++*i;
        return NULL;
    }
    if (c < 0x20) return "control character in a string";
    if (c != '\\') return decode(p, n, i, out) ? NULL : "invalid UTF-8";
    if (*i + 1 >= n) return "string without end";
    char e = p[*i + 1];
    const char *simple = strchr("\"\\/bfnrt", e);
    if (e && simple) {
        *out = (unsigned char)"\"\\/\b\f\n\r\t"[simple - "\"\\/bfnrt"];
        *i += 2;
        return NULL;
    }
    uint32_t low;
    if (e != 'u' || !hex4(p, n, *i + 2, out)) return "invalid escape";
    *i += 6;
    if (*out == 0) return "NUL escape in a string";
    if (*out >= 0xdc00 && *out < 0xe000) return "lone surrogate";
    if (*out < 0xd800 || *out >= 0xe000) return NULL;
    if (*i + 1 >= n || p[*i] != '\\' || p[*i + 1] != 'u' || !hex4(p, n, *i + 2, &low) || low < 0xdc00 || low >= 0xe000) return "lone surrogate";
    *out = 0x10000 + ((*out - 0xd800) << 10) + (low - 0xdc00);
    *i += 6;
    return NULL;
}

/* The JSON pointer of the place being scanned, cut when it does not fit. */
static void pointer_to(const scan *s, char *out, size_t cap)
{
    size_t used = 0;
    out[0] = 0;
    for (int k = 1; k <= s->depth; k++) {
        const level *l = &s->levels[k];
        char part[80] = "";
        if (l->array) {
            snprintf(part, sizeof part, "%d", l->index);
        } else if (l->name) {
            size_t i = l->name, w = 0;
            uint32_t c = 0;
            for (bool end = false; w + 8 < sizeof part && !string_char(s->p, s->n, &i, &c, &end) && !end;)
                w += (size_t)snprintf(part + w, sizeof part - w, c == '~' ? "~0" : c == '/' ? "~1" : c < 0x20 || c > 0x7e ? "?" : "%c", (int)c);
        } else {
            break;
        }
        int w = snprintf(out + used, cap - used, "/%s", part);
        if (w < 0 || used + (size_t)w >= cap) break;
        used += (size_t)w;
    }
}

static bool refuse(scan *s, kiln_status status, const char *why)
{
    int line = 1, col = 1;
    for (size_t k = 0; k < s->i && k < s->n; k++) {
        if (s->p[k] == '\n') {
            line++;
            col = 1;
        } else {
            col++;
        }
    }
    kn_fail(s->d, status, "%s at line %d, column %d", why, line, col);
    s->d->line = line;
    s->d->col = col;
    pointer_to(s, s->d->pointer, sizeof s->d->pointer);
    return false;
}

static void blank(scan *s)
{
    while (s->i < s->n && (s->p[s->i] == ' ' || s->p[s->i] == '\t' || s->p[s->i] == '\n' || s->p[s->i] == '\r')) s->i++;
}

static bool string(scan *s, uint64_t *hash)
{
    s->i++;
    *hash = 1469598103934665603u;
    for (;;) {
        uint32_t c = 0;
        bool end;
        const char *why = string_char(s->p, s->n, &s->i, &c, &end);
        if (why) return refuse(s, KILN_JSON, why);
        if (end) return true;
        *hash = (*hash ^ c) * 1099511628211u;
    }
}

static size_t digits(const scan *s, size_t i)
{
    while (i < s->n && s->p[i] >= '0' && s->p[i] <= '9') i++;
    return i;
}

/* Numbers must survive a double: integers below 2^53 (2^53 + 1 would read as 2^53), everything else finite. */
static bool number(scan *s)
{
    size_t start = s->i, i = s->i + (s->p[s->i] == '-'), whole = digits(s, i);
    bool exact = true;
    if (whole == i) return refuse(s, KILN_JSON, "malformed number");
    if (whole - i > 1 && s->p[i] == '0') return refuse(s, KILN_JSON, "number with a leading zero");
    i = whole;
    if (i < s->n && s->p[i] == '.') {
        size_t f = digits(s, i + 1);
        if (f == i + 1) return refuse(s, KILN_JSON, "malformed number");
        i = f;
        exact = false;
    }
    if (i < s->n && (s->p[i] == 'e' || s->p[i] == 'E')) {
        size_t e = i + 1;
        if (e < s->n && (s->p[e] == '+' || s->p[e] == '-')) e++;
        i = digits(s, e);
        if (i == e) return refuse(s, KILN_JSON, "malformed number");
        exact = false;
    }
    char text[64];
    if (i - start >= sizeof text) return refuse(s, KILN_JSON, "number with too many digits");
    memcpy(text, s->p + start, i - start);
    text[i - start] = 0;
    double x = strtod(text, NULL);
    if (x - x != 0) return refuse(s, KILN_JSON, "number out of range");
    if (exact && (x >= 9007199254740992.0 || x <= -9007199254740992.0)) return refuse(s, KILN_JSON, "integer beyond 2^53");
    s->i = i;
    return true;
}

static bool same_name(const scan *s, size_t x, size_t y)
{
    for (;;) {
        uint32_t cx = 0, cy = 0;
        bool ex, ey;
        if (string_char(s->p, s->n, &x, &cx, &ex) || string_char(s->p, s->n, &y, &cy, &ey)) return false;
        if (ex || ey) return ex && ey;
        if (cx != cy) return false;
    }
}

static bool member_name(scan *s)
{
    level *l = &s->levels[s->depth];
    size_t at = s->i + 1, begin = s->i;
    uint64_t hash;
    if (s->i >= s->n || s->p[s->i] != '"') return refuse(s, KILN_JSON, "expected a member name in quotes");
    if (!string(s, &hash)) return false;
    l->name = at;
    for (int k = l->first_member; k < s->nmembers; k++) {
        if (s->members[k].hash != hash || !same_name(s, s->members[k].at, at)) continue;
        s->i = begin;
        return refuse(s, KILN_JSON, "duplicate member");
    }
    if (s->nmembers == KILN_MAX_JSON_MEMBERS) return refuse(s, KILN_LIMIT, "more than 4096 members in the open objects");
    s->members[s->nmembers++] = (member){hash, at};
    blank(s);
    if (s->i >= s->n || s->p[s->i] != ':') return refuse(s, KILN_JSON, "expected ':'");
    s->i++;
    blank(s);
    return true;
}

static bool word(scan *s, const char *w)
{
    size_t n = strlen(w);
    if (s->n - s->i < n || memcmp(s->p + s->i, w, n)) return refuse(s, KILN_JSON, "expected a JSON value");
    s->i += n;
    return true;
}

static bool open_level(scan *s, bool array)
{
    if (s->depth == KILN_MAX_JSON_DEPTH) return refuse(s, KILN_JSON, "nested deeper than 32 levels");
    s->levels[++s->depth] = (level){.array = array, .first_member = s->nmembers, .index = 0};
    s->i++;
    blank(s);
    return true;
}

static bool scalar(scan *s)
{
    uint64_t hash;
    char c = s->i < s->n ? s->p[s->i] : 0;
    if (c == '"') return string(s, &hash);
    if (c == '-' || (c >= '0' && c <= '9')) return number(s);
    return word(s, c == 't' ? "true" : c == 'f' ? "false" : "null");
}

/* Closes what ends here; then expects ',' and the next member's name or element, unless everything is closed. */
static bool after_value(scan *s)
{
    while (s->depth) {
        level *l = &s->levels[s->depth];
        blank(s);
        char c = s->i < s->n ? s->p[s->i] : 0;
        if (c == (l->array ? ']' : '}')) {
            s->nmembers = l->first_member;
            s->depth--;
            s->i++;
            continue;
        }
        if (c != ',') return refuse(s, KILN_JSON, s->i < s->n ? "expected ',' or the end of the list" : "unexpected end");
        s->i++;
        blank(s);
        l->index++;
        return l->array || member_name(s);
    }
    return true;
}

static bool document(scan *s)
{
    blank(s);
    do {
        if (++s->count > s->most) {
            char why[64];
            snprintf(why, sizeof why, "more than %d members and elements", s->most);
            return refuse(s, KILN_LIMIT, why);
        }
        char c = s->i < s->n ? s->p[s->i] : 0;
        if (c == '{' || c == '[') {
            if (!open_level(s, c == '[')) return false;
            bool empty = s->i < s->n && s->p[s->i] == (c == '[' ? ']' : '}');
            if (!empty) {
                if (c == '{' && !member_name(s)) return false;
                continue;
            }
        } else if (s->i >= s->n) {
            return refuse(s, KILN_JSON, "unexpected end");
        } else if (!scalar(s)) {
            return false;
        }
        if (!after_value(s)) return false;
    } while (s->depth);
    blank(s);
    return s->i == s->n ? true : refuse(s, KILN_JSON, "text behind the JSON value");
}

kiln_status kn_json_check(kiln_bytes text, int most, kiln_diag *d)
{
    scan s = {.p = text.p, .n = text.n, .d = d, .most = most};
    return document(&s) ? KILN_OK : d->status;
}

kiln_status kiln_json_check(kiln_bytes text, kiln_diag *d) { return kn_json_check(text, KILN_MAX_JSON_MEMBERS, d); }
