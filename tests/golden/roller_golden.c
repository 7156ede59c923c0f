/* Compares policy "roller" with recorded tiles of the published artifact: for every operator of a golden file (columns as in
 * tests/data/roller_golden_k80.csv), rank by rank: block tile, reduce step, thread tile, threads, grid, shared memory, registers.
 * usage: roller-golden GOLDEN.csv [OPERATORS.csv]; ends with a line of counts; status 0 only when all are equal. */
#include "tests/arena.h"
#include "construct/roller.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 32 };
typedef struct table { char *text; char *cell[COLUMNS]; FILE *f; char line[4096]; char head[4096]; char *name[COLUMNS]; int n; } table;

static int split(char *line, char **cell)
{
    int n = 0;
    line[strcspn(line, "\r\n")] = 0;
    for (char *p = line; n < COLUMNS; p++) {
        cell[n++] = p;
        p = strchr(p, ',');
        if (!p) break;
        *p = 0;
    }
    return n;
}

static bool table_open(table *t, const char *path)
{
    t->f = fopen(path, "r");
    if (!t->f || !fgets(t->head, sizeof t->head, t->f)) return false;
    t->n = split(t->head, t->name);
    return true;
}

static bool table_next(table *t)
{
    if (!fgets(t->line, sizeof t->line, t->f)) return false;
    int n = split(t->line, t->cell);
    while (n < COLUMNS) t->cell[n++] = "";
    return true;
}

static const char *at(const table *t, const char *name)
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
static bool request_of(const table *ops, char *out, size_t cap)
{
    const char *op = at(ops, "op"), *params = at(ops, "params"), *expr = at(ops, "artifact_expr"), *tail = strrchr(expr, '_');
    int s = 1, dil = 1, pad = 0, x[8] = {0}, n = 0;
    for (const char *p = at(ops, "artifact_shape"); *p && n < 8; p += strcspn(p, " "), p += *p == ' ') x[n++] = atoi(p);
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

static void join(char *out, size_t cap, const int64_t *x, int n)
{
    size_t used = 0;
    *out = 0;
    for (int i = 0; i < n; i++) used += (size_t)snprintf(out + used, cap - used, "%s%lld", i ? "x" : "", (long long)x[i]);
}

/* One golden row against one tile; prints the difference. */
static bool row_equal(const table *g, const kn_rtile *t)
{
    char block[96], step[96], thread[96], got[400], want[400];
    join(block, sizeof block, t->block, t->nspatial);
    join(step, sizeof step, t->rstep, t->nreduce);
    join(thread, sizeof thread, t->thread, t->nspatial);
    snprintf(got, sizeof got, "%s,%s,%s,%lld,%lld,%lld,%.2f", block, step, thread, (long long)t->threads, (long long)t->grid,
             (long long)t->smem_bytes, t->regs);
    snprintf(want, sizeof want, "%s,%s,%s,%s,%s,%s,%.2f", at(g, "block_tile"), at(g, "reduce_step"), at(g, "thread_tile"), at(g, "threads"),
             at(g, "grid"), at(g, "smem_bytes"), atof(at(g, "regs_per_thread")));
    if (!strcmp(got, want)) return true;
    printf("%s rank %s\n  want %s\n  got  %s\n", at(g, "op_id"), at(g, "rank"), want, got);
    return false;
}

static kn_hw *device(kiln_arena *a, const char *arch)
{
    static const char *const names[][2] = {{"K80", "nvidia-k80"}, {"V100", "nvidia-v100"}, {"MI50", "amd-mi50"}};
    char path[128] = "";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i][0], arch)) snprintf(path, sizeof path, "hwspecs/%s.json", names[i][1]);
    if (!*path) snprintf(path, sizeof path, "hwspecs/%.90s.json", arch);
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    char *text = kn_alloc(a, 1 << 18);
    size_t n = fread(text, 1, (1 << 18) - 1, f);
    fclose(f);
    kn_hw *hw = NULL;
    kiln_diag d = {0};
    if (kiln_hw_parse(a, (kiln_bytes){text, n}, &hw, &d) != KILN_OK) fprintf(stderr, "%s: %s %s\n", path, d.pointer, d.message);
    return hw;
}

/* Tiles of one operator, or NULL with the reason printed. */
static kn_rtile *construct(kiln_arena *a, const char *ops_path, const char *id, const char *arch, int *n)
{
    table ops = {0};
    char body[1024];
    kiln_request *r;
    kiln_diag d = {0};
    bool found = false;
    if (!table_open(&ops, ops_path)) return NULL;
    while (!found && table_next(&ops)) found = !strcmp(at(&ops, "id"), id);
    if (ops.f) fclose(ops.f);
    kn_hw *hw = device(a, arch);
    if (!found || !hw || !request_of(&ops, body, sizeof body)) {
        printf("%s: %s\n", id, !found ? "not in the operator table" : !hw ? "no such device" : "operator not known");
        return NULL;
    }
    kn_roller_view v;
    int group[KILN_MAX_AXES];
    kn_rtile *tiles = NULL;
    const char *used;
    double eps;
    if (kiln_request_json(a, (kiln_bytes){body, strlen(body)}, &r, &d) != KILN_OK || kn_roller_view_of(r->program, 0, &v, group, &d) != KILN_OK ||
        kn_roller_tiles(a, &v, hw, 10, &tiles, n, &used, &eps, &d) != KILN_OK) {
        printf("%s: %s %s\n  %s\n", id, d.pointer, d.message, body);
        return NULL;
    }
    return tiles;
}

int main(int argc, char **argv)
{
    table g = {0};
    const char *ops = argc > 2 ? argv[2] : "tests/data/roller_ops.csv";
    if (argc < 2 || !table_open(&g, argv[1])) {
        fprintf(stderr, "usage: roller-golden GOLDEN.csv [OPERATORS.csv]\n");
        return 64;
    }
    int passed = 0, failed = 0, n = 0, row = 0;
    char id[64] = "", arch[64] = "";
    bool equal = true;
    kiln_arena *a = NULL;
    kn_rtile *tiles = NULL;
    for (bool more = table_next(&g);; more = table_next(&g)) {
        if (!more || strcmp(id, at(&g, "op_id")) || strcmp(arch, at(&g, "arch"))) {
            if (*id && tiles && row != n) printf("%s: %d candidates, %d expected\n", id, n, row);
            if (*id) *(tiles && equal && row == n ? &passed : &failed) += 1;
            kiln_arena_close(a);
            a = NULL;
            if (!more) break;
            a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
            snprintf(id, sizeof id, "%s", at(&g, "op_id"));
            snprintf(arch, sizeof arch, "%s", at(&g, "arch"));
            n = row = 0;
            equal = true;
            tiles = construct(a, ops, id, arch, &n);
        }
        if (tiles && row < n && !row_equal(&g, &tiles[row])) equal = false;
        row++;
    }
    fclose(g.f);
    printf("roller-golden: %d passed, %d failed\n", passed, failed);
    return failed != 0;
}
