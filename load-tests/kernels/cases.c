/* Reads lists of operators: rows to parameters, what follows from them (pads, extents of the output), and Kiln's request. */
#include "load-tests/kernels/cases.h"
#include <ctype.h>
#include <stdlib.h>

enum { FLOPS = 0, BYTES = 1, ROUNDED = 0, EXACT = 1, CELLS = 48, LINE = 8192 };
typedef struct op_row {
    const char *op, *layout, *dtype, *family;
    int unit, exact;
    const char *request;
} op_row;
static const op_row rows[] = {
#define X(...) {__VA_ARGS__},
#include "load-tests/kernels/ops.def"
};
static const char *const columns[5][2] = {{"id", "id"}, {"operator", "op"}, {"params", "params"}, {"dtype", "dtype"}, {"layout", "layout"}};

/* Splits a CSV line in place; a cell may stand in double quotes. */
static int split(char *line, char **cell)
{
    int n = 0;
    for (char *p = line; n < CELLS; p++) {
        bool quoted = *p == '"';
        cell[n++] = p += quoted;
        p += strcspn(p, quoted ? "\"\n" : ",\r\n");
        if (quoted && *p == '"') { *p++ = 0; }
        if (*p != ',') {
            *p = 0;
            return n;
        }
        *p = 0;
    }
    return n;
}

bool cases_open(case_list *l, const char *path, char *why, size_t n)
{
    char line[LINE], *cell[CELLS];
    l->f = fopen(path, "r");
    l->requests = strlen(path) > 6 && !strcmp(path + strlen(path) - 6, ".jsonl");
    if (l->f && l->requests) { return true; }
    if (!l->f || !fgets(line, sizeof line, l->f)) {
        snprintf(why, n, "%s cannot be read", path);
        return false;
    }
    int have = split(line, cell);
    for (int k = 0; k < 5; k++) {
        l->column[k] = -1;
        for (int i = 0; i < have; i++) {
            if (!strcmp(cell[i], columns[k][0]) || !strcmp(cell[i], columns[k][1])) { l->column[k] = i; }
        }
        if (l->column[k] < 0) {
            snprintf(why, n, "%s has no column %s", path, columns[k][0]);
            return false;
        }
    }
    return true;
}

static void set(bench_case *c, const char *name, int64_t value)
{
    for (int i = 0; i < c->nparams; i++) {
        if (!strcmp(c->params[i].name, name)) {
            c->params[i].value = value;
            return;
        }
    }
    if (c->nparams == BENCH_PARAMS) { return; }
    snprintf(c->params[c->nparams].name, sizeof c->params->name, "%s", name);
    c->params[c->nparams++].value = value;
}

static bool has(const bench_case *c, const char *name)
{
    for (int i = 0; i < c->nparams; i++) {
        if (!strcmp(c->params[i].name, name)) { return true; }
    }
    return false;
}

static void otherwise(bench_case *c, const char *name, int64_t value)
{
    if (!has(c, name)) { set(c, name, value); }
}

/* One spatial dimension: TensorFlow's SAME and VALID, or a number for both sides; the input's extent follows from the output's or the
 * reverse. */
static void window(bench_case *c, const char *in, const char *out, const char *kernel, const char *low, const char *high, int64_t pad)
{
    int64_t s = bench_get(c, "stride"), reach = (bench_get(c, kernel) - 1) * bench_get(c, "dilation") + 1, size = bench_get(c, in);
    if (!size) { set(c, in, size = (bench_get(c, out) - 1) * s + reach - 2 * (pad > 0 ? pad : 0)); }
    int64_t o = pad < 0 ? (size + s - 1) / s : (size + 2 * pad - reach) / s + 1, all = pad < 0 ? (o - 1) * s + reach - size : 2 * pad;
    if (all < 0) { all = 0; }
    set(c, out, o);
    set(c, low, all / 2);
    set(c, high, all - all / 2);
}

static void derive(bench_case *c, int64_t pad)
{
    otherwise(c, "stride", 1);
    otherwise(c, "dilation", 1);
    otherwise(c, "axis", 1);
    otherwise(c, "outer", bench_get(c, "flat") ? 1 : 0);
    if (has(c, "NC")) { set(c, "C", bench_get(c, "NC")); }
    otherwise(c, "N", 1);
    if (!strstr(c->op, "2d")) { return; }
    if (has(c, "K")) { set(c, "KH", bench_get(c, "K")), set(c, "KW", bench_get(c, "K")); }
    if (strstr(c->op, "depthwise")) { set(c, "F", bench_get(c, "C")), set(c, "group", bench_get(c, "C")); }
    otherwise(c, "group", 1);
    set(c, "CG", bench_get(c, "C") / bench_get(c, "group"));
    set(c, "FG", bench_get(c, "F") / bench_get(c, "group"));
    window(c, "H", "HO", "KH", "PT", "PB", pad);
    window(c, "W", "WO", "KW", "PL", "PR", pad);
}

/* NAME=VALUE;... pad: SAME (-1), VALID (0) or a number. */
static int64_t parse(bench_case *c, char *text)
{
    int64_t pad = 0;
    for (char *save, *item = strtok_r(text, "; ", &save); item; item = strtok_r(NULL, "; ", &save)) {
        char *value = strchr(item, '=');
        if (!value) { continue; }
        *value++ = 0;
        if (!strcmp(item, "pad") || !strcmp(item, "padv")) {
            pad = !strcmp(value, "SAME") ? -1 : atoll(value);
        } else if (isdigit((unsigned char)*value) && !strpbrk(value, "x,")) {
            set(c, item, atoll(value));
        } else if (!strcmp(item, "axis")) {
            set(c, "axis", !strcmp(value, "inner"));
        }
    }
    return pad;
}

/* The leading extent that all of the work is proportional to is cut where a row of a list made for larger machines would not fit. */
static void fit(bench_case *c, int64_t most_bytes)
{
    const char *leading[] = {has(c, "NC") ? "C" : "N", "B", "M", "outer", "flat"};
    int64_t images = bench_get(c, "N") * bench_get(c, "C") * (bench_get(c, "H") * bench_get(c, "W")) +
                     bench_get(c, "N") * bench_get(c, "F") * (bench_get(c, "HO") * bench_get(c, "WO"));
    int64_t b = bench_get(c, "B") ? bench_get(c, "B") : 1, m = bench_get(c, "M");
    bool product = strstr(c->op, "matmul") != NULL;
    int64_t elems = product ? b * (m * bench_get(c, "K") + m * bench_get(c, "N")) : strstr(c->op, "2d") ? images : 0;
    if (!elems) { elems = 2 * (bench_get(c, "flat") ? bench_get(c, "flat") : bench_get(c, "outer") * bench_get(c, "inner")); }
    for (size_t i = product ? 1 : strstr(c->op, "2d") ? 0 : 3; elems * 4 > most_bytes && i < sizeof leading / sizeof *leading; i++) {
        int64_t v = bench_get(c, leading[i]), less = v * most_bytes / (elems * 4);
        if (v < 2) { continue; }
        set(c, leading[i], less > 1 ? less : 1);
        elems = elems / v * (less > 1 ? less : 1);
    }
}

/* The template with its parameters filled in; the name of the one that is missing, or NULL. */
static const char *fill(const bench_case *c, const char *t, char *out, size_t n)
{
    static char name[16];
    size_t used = 0;
    for (; *t && used + 32 < n; t++) {
        if (*t != '$') {
            out[used++] = *t == '\'' ? '"' : *t;
            continue;
        }
        size_t k = 0;
        while (isalpha((unsigned char)t[1]) && k + 1 < sizeof name) { name[k++] = *++t; }
        name[k] = 0;
        if (!strcmp(name, "T")) {
            used += (size_t)snprintf(out + used, n - used, "%s", c->dtype);
        } else if (!has(c, name)) {
            return name;
        } else {
            used += (size_t)snprintf(out + used, n - used, "%lld", (long long)bench_get(c, name));
        }
    }
    out[used] = 0;
    return NULL;
}

static const char *short_dtype(const char *d)
{
    static const char *const names[][2] = {{"float32", "f32"}, {"", "f32"}, {"float16", "f16"}, {"bfloat16", "bf16"}, {"int8", "i8"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!strcmp(d, names[i][0])) { return names[i][1]; }
    }
    return d;
}

/* Products with an extent of a few are bound by memory, not by multiplying: a family of their own. */
static bool skinny(const bench_case *c)
{
    return !strcmp(c->op, "matmul") && (bench_get(c, "M") <= 16 || bench_get(c, "N") <= 16 || bench_get(c, "K") <= 16);
}

/* A request as it stands, for which there are no peers but loops. */
static int request_next(case_list *l, bench_case *c, char *request, size_t n)
{
    do {
        if (!fgets(request, (int)n, l->f)) { return 0; }
    } while (*request != '{');
    request[strcspn(request, "\r\n")] = 0;
    memset(c, 0, sizeof *c);
    const char *op = strstr(request, "\"name\":\""), *plain = strstr(request, "\"op\":\""),
               *name = op      ? op + 8
                       : plain ? plain + 6
                               : "expression";
    snprintf(c->family, sizeof c->family, "%.*s", (int)strcspn(name, "\""), name);
    snprintf(c->id, sizeof c->id, "%s %d", c->family, ++l->row);
    return 1;
}

int cases_next(case_list *l, int64_t most_bytes, bench_case *c, char *request, size_t n)
{
    char line[LINE], *cell[CELLS];
    int have;
    if (l->requests) { return request_next(l, c, request, n); }
    do {
        if (!fgets(line, sizeof line, l->f)) { return 0; }
    } while ((have = split(line, cell)) < 2);
    memset(c, 0, sizeof *c);
    for (int k = 0; k < 5; k++) {
        if (l->column[k] >= have) { cell[l->column[k]] = line + strlen(line); }
    }
    snprintf(c->id, sizeof c->id, "%s", cell[l->column[0]]);
    snprintf(c->op, sizeof c->op, "%s", cell[l->column[1]]);
    snprintf(c->dtype, sizeof c->dtype, "%s", short_dtype(cell[l->column[3]]));
    snprintf(c->layout, sizeof c->layout, "%.4s", strstr(c->op, "2d") ? (!strncmp(cell[l->column[4]], "NHWC", 4) ? "NHWC" : "NCHW") : "");
    snprintf(c->family, sizeof c->family, "%s", c->op);
    char *plus = strchr(c->op, '+');
    if (plus) {
        snprintf(request, n, "operators with an epilogue (%s) have no peers here", plus);
        return -1;
    }
    derive(c, parse(c, cell[l->column[2]]));
    fit(c, most_bytes);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const op_row *r = &rows[i];
        if (strcmp(r->op, c->op) || (*r->layout && strcmp(r->layout, c->layout)) || (*r->dtype && strcmp(r->dtype, c->dtype))) { continue; }
        snprintf(c->family, sizeof c->family, "%s%s", r->family, skinny(c) ? " skinny" : "");
        c->exact = r->exact;
        c->by_bytes = r->unit;
        const char *missing = fill(c, r->request, request, n);
        if (missing) { snprintf(request, n, "no parameter %s", missing); }
        return missing ? -1 : 1;
    }
    snprintf(request, n, "no operator %s in ops.def", c->op);
    return -1;
}
