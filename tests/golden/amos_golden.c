/* Compares the mappings found with those of AMOS (ISCA'22): how many there are for its 15 operators on a Tensor Core and for a 3-D convolution on
 * its three invented units, and which ones its released A100 logs hold for every convolution layer.
 * usage: amos-golden COUNTS.csv MAPPINGS.csv; ends with a line of counts; status 0 only when all are equal. */
#include "intrin/map.h"
#include "tests/arena.h"
#include "tests/golden/ops_table.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct { const char *op, *text; } operators[] = {
#define X(op, text) {#op, text},
#include "tests/golden/amos_operators.def"
};
#define F16 "d=f32 a=f16 b=f16"
static const kn_hw_intrin units[] = {
    {.name = "", .dtypes = F16, .compute = "d[I,J] +=! cast(a[I,R],f32) * cast(b[R,J],f32) where I in 16, J in 16, R in 16"},
    {.name = "AXPY", .dtypes = F16, .compute = "d[I] +=! cast(a[I],f32) * cast(b[],f32) where I in 16"},
    {.name = "GEMV", .dtypes = F16, .compute = "d[I] +=! cast(a[I,R],f32) * cast(b[R],f32) where I in 16, R in 16"},
    {.name = "CONV", .dtypes = F16, .compute = "d[K,H,W] +=! cast(a[H,W,C],f32) * cast(b[K,C],f32) where K in 16, H in 4, W in 4, C in 16"},
};
/* the shape of the instruction that the logs were tuned with */
static const kn_hw_intrin logged = {.name = "wmma", .dtypes = F16,
                                    .compute = "d[I,J] +=! cast(a[I,R],f32) * cast(b[R,J],f32) where I in 8, J in 32, R in 16"};
#define COUNT(t) ((int)(sizeof(t) / sizeof *(t)))

static kn_program *program(kiln_arena *a, const char *text)
{
    kn_program *p = NULL;
    kiln_diag d = {0};
    if (kn_parse(a, (kiln_bytes){text, strlen(text)}, (kiln_bytes){0}, &p, &d)) printf("%s: %s\n", text, d.message);
    return p;
}

static kn_maps *mappings(kiln_arena *a, const char *op, const kn_hw_intrin *unit)
{
    kn_maps *m = NULL;
    const kn_intrin *u = NULL;
    kiln_diag d = {0};
    const kn_program *p = program(a, op);
    if (p && (kn_intrin_parse(a, unit, "", &u, &d) || kn_maps_of(a, p, 0, u, &m, &d))) printf("%s: %s\n", op, d.message);
    return m;
}

static int check_count(kiln_arena *a, const char *op, const char *want, const char *atoms)
{
    size_t n = strcspn(op, "@");
    const char *unit = op[n] ? op + n + 1 : "";
    for (int i = 0; i < COUNT(operators); i++)
        for (int k = 0; k < COUNT(units); k++) {
            if (strlen(operators[i].op) != n || strncmp(op, operators[i].op, n) || strcmp(unit, units[k].name)) continue;
            const kn_maps *m = mappings(a, operators[i].text, &units[k]);
            if (!m) return 1;
            bool known = *want >= '0' && *want <= '9', equal = !known || (m->nmaps == atoi(want) && (!*atoms || m->natoms == atoi(atoms)));
            printf("%-8s %3d mappings of %2d atoms%s%s\n", op, m->nmaps, m->natoms, equal ? "" : ", DIFFERENT: ", equal ? "" : want);
            if (!known) printf("%-8s no count to compare with: %s\n", op, want);
            return !equal;
        }
    printf("%s: no such operator or unit\n", op);
    return 1;
}

/* A convolution: what the first ten columns name. */
typedef struct layer { int n, c, h, w, k, r, s, stride, pad, dil; } layer;

static kn_maps *layer_mappings(kiln_arena *a, const layer *l)
{
    int p = (l->h + 2 * l->pad - l->dil * (l->r - 1) - 1) / l->stride + 1, q = (l->w + 2 * l->pad - l->dil * (l->s - 1) - 1) / l->stride + 1;
    char text[512];
    snprintf(text, sizeof text,
             "in x: f16[%d,%d,%d,%d], w: f16[%d,%d,%d,%d]; y[N,K,P,Q] +=! pad(x,0.0)[N,C,P*%d+R*%d-%d,Q*%d+S*%d-%d] * w[K,C,R,S]"
             " where P in %d, Q in %d", l->n, l->c, l->h, l->w, l->k, l->c, l->r, l->s, l->stride, l->dil, l->pad, l->stride, l->dil, l->pad, p, q);
    return mappings(a, text, &logged);
}

/* The loops of axis j as the logs spell them: "npq", "crs". */
static void letters(const kn_maps *m, const kn_mapping *x, int j, char *out)
{
    for (int l = 0; l < m->stmt->naxes; l++)
        if (x->loops[j] >> l & 1) *out++ = (char)(m->stmt->axes[l].name[0] | 32);
    *out = 0;
}

typedef struct row { layer l; char i[16], r[16]; bool met, read; } row;

static bool same_layer(const layer *x, const layer *y) { return !memcmp(x, y, sizeof *x); }

/* Loops as a set: which letters, not their order. */
static bool same_loops(const char *x, const char *y)
{
    for (const char *p = x; *p; p++)
        if (!strchr(y, *p)) return false;
    for (const char *p = y; *p; p++)
        if (!strchr(x, *p)) return false;
    return true;
}

/* All rows of one layer, wherever in the file they stand. */
static int check_layer(kiln_arena *a, const layer *l, row *rows, int n)
{
    const kn_maps *m = layer_mappings(a, l);
    int found = 0, bad = !m;
    for (int i = 0; m && i < m->nmaps; i++) {
        char i1[32], r1[32];
        bool met = false;
        if (!kn_map_fills(m, &m->maps[i])) continue;
        letters(m, &m->maps[i], 0, i1);
        letters(m, &m->maps[i], 2, r1);
        for (int k = 0; k < n && !met; k++)
            if (same_layer(&rows[k].l, l) && same_loops(rows[k].i, i1) && same_loops(rows[k].r, r1)) met = rows[k].met = true;
        if (!met) printf("  %s|%s is not in the logs\n", i1, r1);
        found++, bad += !met;
    }
    for (int k = 0; k < n; k++) {
        if (!same_layer(&rows[k].l, l)) continue;
        rows[k].read = true;
        if (!rows[k].met) printf("  %s|%s was not found\n", rows[k].i, rows[k].r), bad++;
    }
    printf("C=%-4d H=%-4d K=%-4d R=%d stride=%d: %2d feasible of %d, %s\n", l->c, l->h, l->k, l->r, l->stride, found, m ? m->nmaps : 0,
           bad ? "DIFFERENT" : "equal");
    return bad != 0;
}

static kiln_arena *fresh(kiln_arena *old)
{
    kiln_arena_close(old);
    return kiln_arena_open(&(kiln_host){.mem = mem});
}

static bool open_table(ops_table *t, const char *path, const char *const *columns, int n)
{
    if (ops_open(t, path)) return ops_has(t, columns, n);
    return printf("%s: cannot be read\n", path), false;
}

static int check_counts(const char *path, int *bad)
{
    static const char *const names[] = {"op", "rederived_count", "atoms"};
    ops_table t;
    int n = 0;
    kiln_arena *a = NULL;
    if (!open_table(&t, path, names, 2)) return ++*bad, 0;
    for (; ops_next(&t); n++) {
        a = fresh(a);
        *bad += check_count(a, ops_at(&t, names[0]), ops_at(&t, names[1]), ops_at(&t, names[2]));
    }
    kiln_arena_close(a);
    fclose(t.f);
    return n;
}

/* "n,p,q" or "QP" as letters of loops. */
static void only_letters(const char *text, char out[16])
{
    int n = 0;
    for (; *text && n < 15; text++)
        if ((*text | 32) >= 'a' && (*text | 32) <= 'z') out[n++] = (char)(*text | 32);
    out[n] = 0;
}

static const char *const layer_columns[] = {"N", "C", "H", "W", "K", "R", "S", "stride", "pad", "dil", "i1_loops", "r1_loops"};

static bool read_row(const ops_table *t, row *r)
{
    int v[10];
    for (int i = 0; i < 10; i++) {
        char *end;
        const char *text = ops_at(t, layer_columns[i]);
        v[i] = (int)strtol(text, &end, 10);
        if (end == text || *end) return false;
    }
    memset(r, 0, sizeof *r);
    r->l = (layer){v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9]};
    only_letters(ops_at(t, "i1_loops"), r->i);
    only_letters(ops_at(t, "r1_loops"), r->r);
    return v[7] > 0;
}

static int check_layers(const char *path, int *bad)
{
    enum { ROWS = 1 << 14 };
    static row rows[ROWS];
    int n = 0, count = 0;
    ops_table t;
    kiln_arena *a = NULL;
    if (!open_table(&t, path, layer_columns, COUNT(layer_columns))) return ++*bad, 0;
    for (int line = 2; n < ROWS && ops_next(&t); line++) {
        if (read_row(&t, &rows[n])) n++;
        else printf("%s: row %d cannot be read\n", path, line), ++*bad;
    }
    fclose(t.f);
    for (int k = 0; k < n; k++) {
        if (rows[k].read) continue;
        a = fresh(a);
        *bad += check_layer(a, &rows[k].l, rows, n);
        count++;
    }
    kiln_arena_close(a);
    return count;
}

int main(int argc, char **argv)
{
    if (argc != 3) return fprintf(stderr, "usage: amos-golden COUNTS.csv MAPPINGS.csv\n"), 2;
    int bad = 0, counts = check_counts(argv[1], &bad), layers = check_layers(argv[2], &bad);
    printf("amos-golden: %d counts, %d layers, %d different\n", counts, layers, bad);
    return bad != 0 || !counts || !layers;
}
