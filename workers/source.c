/* What a source text says of itself before it goes to a compiler: whether its preprocessor directives could name files, whether it calls libm. */
#include "workers/child.h"
#include <string.h>

/* Generated text needs no others. An allow list, as compilers keep adding ways to read files (#include_next, #import, #embed ...). */
static const char *const directives[] = {"define", "undef", "if", "ifdef", "ifndef", "elif", "else", "endif", "error", "pragma"};
/* What reads files, or asks about them, without a directive. */
static const char *const words[] = {"__has_include", "__has_include_next", "__has_embed", "incbin", "include_alias"};

/* Reads characters as the preprocessor's first phases do: escaped line ends vanish, a comment is one space, literals are opaque. */
typedef struct scanner {
    const char *p;
    size_t n, i;
    int line;
} scanner;

static void join(scanner *s)
{
    while (s->i + 1 < s->n && s->p[s->i] == '\\' && s->p[s->i + 1] == '\n') {
        s->i += 2;
        s->line++;
    }
}

static int peek(scanner *s)
{
    join(s);
    return s->i < s->n ? (unsigned char)s->p[s->i] : -1;
}

static int take(scanner *s)
{
    int c = peek(s);
    if (c >= 0) {
        s->i++;
        s->line += c == '\n';
    }
    return c;
}

static void skip_comment(scanner *s, bool block)
{
    int before = 0;
    for (int c = peek(s); c >= 0; c = peek(s)) {
        if (!block && c == '\n') { return; }
        take(s);
        if (block && before == '*' && c == '/') { return; }
        before = c;
    }
}

/* The next character, with a comment read as one space. */
static int next(scanner *s)
{
    int c = take(s);
    if (c == '/') {
        int d = peek(s);
        if (d == '/' || d == '*') {
            take(s);
            skip_comment(s, d == '*');
            return ' ';
        }
    }
    return c;
}

static bool word_char(int c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

static bool listed(const char *const *list, size_t n, const char *word)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(list[i], word) == 0) { return true; }
    }
    return false;
}

/* Compilers differ in what they make of control characters and of blanks between a backslash and the line's end. */
static bool plain(const char *p, size_t n, int *line)
{
    *line = 1;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        if ((c < ' ' && c != '\n' && c != '\t') || (c == '\\' && i + 1 < n && (p[i + 1] == ' ' || p[i + 1] == '\t'))) { return false; }
        *line += c == '\n';
    }
    return true;
}

static bool allowed(const char *word, bool directive)
{
    return directive ? word[0] == 0 || listed(directives, sizeof directives / sizeof *directives, word)
                     : !listed(words, sizeof words / sizeof *words, word);
}

/* Words inside literals count too (".incbin" stands in an asm string), but neither comments nor directives start there. Literals with a
 * prefix are refused: a raw string of C++ may hold quotes and comments that are none. */
bool workers_source_is_closed(const char *p, size_t n, int *line)
{
    scanner s = {p, n, 0, 1};
    char word[32];
    size_t w = 0;
    int quote = 0;
    bool fresh = true, directive = false; /* at the start of a line; between '#' and the end of its first word */
    if (!plain(p, n, line)) { return false; }
    for (;;) {
        *line = s.line;
        int c = quote ? take(&s) : next(&s);
        if (word_char(c)) {
            w += w < sizeof word - 1;
            word[w - 1] = (char)c;
            fresh = false;
            continue;
        }
        word[w] = 0;
        bool ended = w > 0 || (directive && c != ' ' && c != '\t');
        bool prefixed = w > 0 && !quote && (c == '"' || c == '\'');
        bool digraph = fresh && !quote && ((c == '%' && peek(&s) == ':') || (c == '?' && peek(&s) == '?'));
        if ((ended && !allowed(word, directive)) || prefixed || digraph) { return false; }
        if (c < 0) { return true; }
        directive = !quote && ((directive && !ended) || (fresh && c == '#'));
        w = 0;
        if (quote && c == '\\') {
            take(&s);
        } else if (quote) {
            quote = c == quote || c == '\n' ? 0 : quote;
        } else if (c == '"' || c == '\'') {
            quote = c;
        }
        fresh = c == '\n' || (fresh && (c == ' ' || c == '\t'));
    }
}

/* <math.h> of C, without the f and l of other types, and what C libraries have beside it. */
static const char *const of_math[] = {
    "acos", "asin", "atan", "atan2", "cos", "sin", "tan", "acosh", "asinh", "atanh", "cosh", "sinh", "tanh", "exp", "exp2", "exp10", "expm1", "frexp",
    "ilogb", "ldexp", "log", "log10", "log1p", "log2", "logb", "modf", "scalbn", "scalbln", "cbrt", "fabs", "hypot", "pow", "sqrt", "erf", "erfc",
    "lgamma", "tgamma", "ceil", "floor", "nearbyint", "rint", "lrint", "llrint", "round", "lround", "llround", "roundeven", "trunc", "fmod",
    "remainder", "remquo", "copysign", "nan", "nextafter", "nexttoward", "fdim", "fmax", "fmin", "fma", "sincos", "powi"};

static bool is_math(char *word)
{
    static const char builtin[] = "__builtin_";
    if (strncmp(word, builtin, sizeof builtin - 1) == 0) { word += sizeof builtin - 1; }
    size_t n = strlen(word);
    if (listed(of_math, sizeof of_math / sizeof *of_math, word)) { return true; }
    if (n == 0 || (word[n - 1] != 'f' && word[n - 1] != 'l')) { return false; }
    word[n - 1] = 0;
    return listed(of_math, sizeof of_math / sizeof *of_math, word);
}

/* Words of literals and comments count, but for the comment that a kernel begins with: it says in the words of the program what is computed. */
bool workers_source_names_math(const char *p, size_t n)
{
    char word[32];
    size_t w = 0, i = 0;
    bool comment = n > 4 && p[0] == '/' && p[1] == '*';
    while (comment && i + 1 < n && !(p[i] == '*' && p[i + 1] == '/' && i > 2)) { i++; }
    for (; i < n; i++) {
        if (word_char((unsigned char)p[i])) {
            w += w < sizeof word - 1;
            word[w - 1] = p[i];
            continue;
        }
        word[w] = 0;
        if (w > 0 && is_math(word)) { return true; }
        w = 0;
    }
    word[w] = 0;
    return w > 0 && is_math(word);
}
