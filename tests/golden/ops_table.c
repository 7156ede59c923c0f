/* CSV tables by the names of their columns; of the published artifact's operators (tests/data/roller_ops.csv) the requests that a client sends. */
#include "tests/golden/ops_table.h"
#include "base/base.h"
#include <stdlib.h>
#include <string.h>

/* Cells without the blanks and quotes around them. */
static int split(char *line, char **cell)
{
    int n = 0;
    line[strcspn(line, "\r\n")] = 0;
    for (char *p = line, *next; p && n < OPS_TABLE_COLUMNS; p = next) {
        p += strspn(p, " \t");
        char *end = *p == '"' ? strchr(++p, '"') : p + strcspn(p, ",");
        if (!end) end = p + strlen(p);
        next = strchr(end, ',');
        while (*end != '"' && end > p && strchr(" \t", end[-1])) end--;
        if (next) *next++ = 0;
        *end = 0;
        cell[n++] = p;
    }
    return n;
}

bool ops_open(ops_table *t, const char *path)
{
    t->f = fopen(path, "r");
    if (!t->f || !fgets(t->head, sizeof t->head, t->f)) return false;
    t->n = split(strncmp(t->head, "\xef\xbb\xbf", 3) ? t->head : t->head + 3, t->name);
    return true;
}

bool ops_has(const ops_table *t, const char *const *names, int n)
{
    for (int i = 0; i < n; i++) {
        bool found = false;
        for (int k = 0; k < t->n && !found; k++) found = !strcmp(t->name[k], names[i]);
        if (!found) return printf("the table has no column %s\n", names[i]), false;
    }
    return true;
}

bool ops_next(ops_table *t)
{
    do {
        if (!fgets(t->line, sizeof t->line, t->f)) return false;
    } while (!t->line[strspn(t->line, " \t\r\n")]);
    int n = split(t->line, t->cell);
    while (n < OPS_TABLE_COLUMNS) t->cell[n++] = "";
    return true;
}

const char *ops_at(const ops_table *t, const char *name)
{
    for (int i = 0; i < t->n; i++)
        if (!strcmp(t->name[i], name)) return t->cell[i];
    return "";
}

static int param(const char *params, const char *name, int fallback)
{
    size_t n = strlen(name);
    for (const char *p = params; p && *p; p = strchr(p, ';') ? strchr(p, ';') + 1 : NULL)
        if (!strncmp(p, name, n) && p[n] == '=') return atoi(p + n + 1);
    return fallback;
}

/* The request that a client would send; padding and strides come from the name of the artifact's expression (..._S2D1P0). */
bool ops_request(const ops_table *ops, char *out, size_t cap)
{
    const char *op = ops_at(ops, "op"), *params = ops_at(ops, "params"), *expr = ops_at(ops, "artifact_expr"), *tail = strrchr(expr, '_');
    int s = 1, dil = 1, pad = 0, x[8] = {0}, n = 0;
    for (const char *p = ops_at(ops, "artifact_shape"); *p && n < 8; p += strcspn(p, " "), p += *p == ' ') x[n++] = atoi(p);
    if (tail && sscanf(tail, "_S%dD%dP%d", &s, &dil, &pad) != 3) sscanf(tail, "_S%dP%d", &s, &pad);
#define IN(o, k) ((x[o] - 1) * s + (x[k] - 1) * dil + 1 - 2 * pad)
#define IMAGE "{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[%d,%d,%d,%d]}"
#define WINDOW "\"strides\":[%d,%d],\"pads\":[%d,%d,%d,%d]"
    if (!strcmp(op, "matmul"))
        snprintf(out, cap, "{\"op\":\"MatMul\",\"inputs\":[{\"dtype\":\"f32\",\"shape\":[%d,%d]},{\"dtype\":\"f32\",\"shape\":[%d,%d]}]}",
                 param(params, "M", 0), param(params, "K", 0), param(params, "K", 0), param(params, "N", 0));
    else if (!strcmp(op, "relu"))
        snprintf(out, cap, "{\"op\":\"Relu\",\"inputs\":[{\"dtype\":\"f32\",\"shape\":[%d]}]}", x[0]);
    else if (!strcmp(op, "reduce_sum"))
        snprintf(out, cap,
                 "{\"op\":\"ReduceSum\",\"attrs\":{\"axes\":[1],\"keepdims\":0},\"inputs\":[{\"dtype\":\"f32\",\"shape\":[%d,%d]}]}", x[0],
                 x[1]);
    else if (!strcmp(op, "conv2d"))
        snprintf(out, cap, "{\"op\":\"Conv\",\"attrs\":{" WINDOW "},\"inputs\":[" IMAGE ",{\"dtype\":\"f32\",\"shape\":[%d,%d,%d,%d]}]}", s, s, pad,
                 pad, pad, pad, x[0], x[4], IN(2, 5), IN(3, 6), x[1], x[4], x[5], x[6]);
    else if (!strcmp(op, "depthwise_conv2d"))
        snprintf(out, cap,
                 "{\"op\":\"Conv\",\"attrs\":{\"group\":%d," WINDOW "},\"inputs\":[" IMAGE ",{\"dtype\":\"f32\",\"shape\":[%d,1,%d,%d]}]}",
                 x[1], s, s, pad, pad, pad, pad, x[0], x[1], IN(2, 4), IN(3, 5), x[1], x[4], x[5]);
    else if (!strcmp(op, "avg_pool2d"))
        snprintf(out, cap, "{\"op\":\"AveragePool\",\"attrs\":{\"kernel_shape\":[%d,%d]," WINDOW "},\"inputs\":[" IMAGE "]}", x[3], x[4], s,
                 s, pad, pad, pad, pad, 1, x[0], IN(1, 3), IN(2, 4));
    else
        return false;
    return true;
}

kn_hw *ops_device(kiln_arena *a, const char *arch)
{
    static const char *const names[][2] = {{"K80", "nvidia-k80"}, {"V100", "nvidia-v100"}, {"MI50", "amd-mi50"}};
    char path[128] = "";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i][0], arch)) snprintf(path, sizeof path, "hwspecs/%s.json", names[i][1]);
    if (!*path) snprintf(path, sizeof path, "hwspecs/%.90s.json", arch);
    FILE *f = fopen(path, "rb");
    if (!f) return fprintf(stderr, "%s: cannot be read\n", path), NULL;
    char *text = kn_alloc(a, 1 << 18);
    size_t n = fread(text, 1, (1 << 18) - 1, f);
    fclose(f);
    kn_hw *hw = NULL;
    kiln_diag d = {0};
    if (kiln_hw_parse(a, (kiln_bytes){text, n}, &hw, &d) != KILN_OK) fprintf(stderr, "%s: %s %s\n", path, d.pointer, d.message);
    return hw;
}

