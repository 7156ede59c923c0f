/* How well a model that learned from some layers ranks the schedules of others: the A100 logs that AMOS released (ISCA'22), columns as in
 * tests/data/amos_a100_conv2d_records.csv. Within each layer held out: the share of pairs that the model puts in the right order, and the share of
 * the fastest 40% of schedules that are among the model's fastest 40%. Beside it AMOS's analytic model.
 * usage: amos-rank TRAIN.csv TEST.csv; the same file twice: three folds by layer. Status 0 when both shares are at least 0.86. */
#include "cost/trees.h"
#include "tests/arena.h"
#include "tests/golden/ops_table.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AXES = 6, FEATURES = 64, LAYERS = 64 };
#define GOAL 0.86
#define SHARE 0.4

typedef struct record {
    char layer[96];
    int n, c, h, w, k, r, s, stride, pad, dil;
    char bits[16];
    int inlined, vector, nspatial, nreduce, spatial[AXES][4], reduce[AXES][3], last[3], unroll[2];
    double us;
} record;

typedef struct table { record *r; double *x, *y; int n, f, nlayers, layer[1 << 16], first[LAYERS]; } table;

/* "2x1x4|1x1x1" as groups of `width` factors; returns how many groups. */
static int factors(const char *text, int width, int (*out)[4])
{
    int n = 0;
    for (const char *p = text; *p && n < AXES; n++) {
        for (int i = 0; i < width; i++) {
            char *end;
            out[n][i] = (int)strtol(p, &end, 10);
            p = end + (*end == 'x' || *end == '|');
        }
    }
    return n;
}

static const char *const columns[] = {"layer", "vmap_bits", "inline", "vectorize", "spatial_factors", "reduce_factors", "last_factors",
                                      "output_unroll", "last_unroll", "time_us"};

static bool read_record(const ops_table *t, record *r)
{
    int red[AXES][4] = {{0}}, last[AXES][4] = {{0}};
    memset(r, 0, sizeof *r);
    snprintf(r->layer, sizeof r->layer, "%s", ops_at(t, "layer"));
    if (sscanf(r->layer, "%d;%d;%d;%d;%d;%d;%d;%d;%d;%d", &r->n, &r->c, &r->h, &r->w, &r->k, &r->r, &r->s, &r->stride, &r->pad, &r->dil) != 10)
        return false;
    snprintf(r->bits, sizeof r->bits, "%s", ops_at(t, "vmap_bits"));
    r->inlined = atoi(ops_at(t, "inline")), r->vector = atoi(ops_at(t, "vectorize"));
    r->nspatial = factors(ops_at(t, "spatial_factors"), 4, r->spatial);
    r->nreduce = factors(ops_at(t, "reduce_factors"), 3, red);
    factors(ops_at(t, "last_factors"), 3, last);
    for (int i = 0; i < AXES; i++)
        for (int k = 0; k < 3; k++) r->reduce[i][k] = red[i][k];
    memcpy(r->last, last[0], sizeof r->last);
    r->unroll[0] = atoi(ops_at(t, "output_unroll")), r->unroll[1] = atoi(ops_at(t, "last_unroll"));
    r->us = atof(ops_at(t, "time_us"));
    return strlen(r->bits) == 7 && r->us > 0 && r->nspatial > 1 && r->nreduce > 0 && r->stride > 0;
}

/* Which loops the mapping's seven bits fuse: atoms (n,c) (n,r) (n,s) (p,c) (p,s) (q,c) (q,r), each with k on the other axis. */
enum { N, P, Q, C, R, S, LOOPS };
static void fused(const record *x, bool *in)
{
    static const int atom[7][2] = {{N, C}, {N, R}, {N, S}, {P, C}, {P, S}, {Q, C}, {Q, R}};
    for (int i = 0; i < LOOPS; i++) in[i] = false;
    for (int i = 0; i < 7; i++)
        if (x->bits[i] == '1') in[atom[i][0]] = in[atom[i][1]] = true;
}

typedef struct shape { /* what follows from mapping and factors */
    double ext[LOOPS], i1, r1, outer_s, outer_r, macs, padding;
    double level[4], block_i, block_k, block_calls, grid, warps, chunk, steps, packed;
} shape;

static void shape_of(const record *x, shape *s)
{
    bool in[LOOPS];
    int p = (x->h + 2 * x->pad - x->dil * (x->r - 1) - 1) / x->stride + 1, q = (x->w + 2 * x->pad - x->dil * (x->s - 1) - 1) / x->stride + 1;
    *s = (shape){.ext = {x->n, p, q, x->c, x->r, x->s}, .i1 = 1, .r1 = 1, .outer_s = 1, .outer_r = 1, .level = {1, 1, 1, 1}, .chunk = 1, .steps = 1};
    fused(x, in);
    s->macs = x->k;
    for (int i = 0; i < LOOPS; i++) {
        double *to = i < C ? (in[i] ? &s->i1 : &s->outer_s) : (in[i] ? &s->r1 : &s->outer_r);
        *to *= s->ext[i];
        s->macs *= s->ext[i];
    }
    double calls = ceil(s->i1 / 8) * ceil(x->k / 32.0) * ceil(s->r1 / 16) * s->outer_s * s->outer_r;
    s->padding = calls * 8 * 32 * 16 / s->macs;
    for (int a = 0; a < x->nspatial; a++)
        for (int f = 0; f < 4; f++) s->level[f] *= x->spatial[a][f];
    s->block_i = 8.0 * x->spatial[0][1] * x->spatial[0][2] * x->spatial[0][3];
    s->block_k = 32.0 * x->spatial[1][1] * x->spatial[1][2] * x->spatial[1][3];
    s->grid = s->level[0];
    s->block_calls = s->level[1] * s->level[2] * s->level[3];
    for (int a = 0; a < x->nreduce; a++) {
        s->steps *= x->reduce[a][0];
        s->chunk *= x->reduce[a][1] * x->reduce[a][2];
    }
    s->warps = s->level[1] * s->level[2];
    s->packed = s->i1 * s->r1 * s->outer_s * s->outer_r;
}

/* AMOS's analytic model with its own constants for this device: latency 64 of an instruction, 84 units of 4 cores, bandwidths 16 and 10. */
static double analytic(const record *x)
{
    shape s;
    shape_of(x, &s);
    double call = 64, bytes = 2 * (8 * 16 + 16 * 32);
    double inner = s.level[3] * s.chunk, serial = ceil(s.warps / 4);
    double core_compute = inner * call, core_memory = inner * bytes / 16;
    double core = (inner - 1) * fmax(core_compute, core_memory) / inner + (core_compute + core_memory) / inner;
    double tile = (s.block_i + s.block_k) * 16 * s.chunk * 2 * (s.block_calls * 256 / (s.block_i * s.block_k));
    double block_memory = tile / 10, block_compute = core * serial;
    double block = (s.steps - 1) * fmax(block_compute, block_memory) + block_compute + block_memory;
    return ceil(s.grid / 84) * block;
}

static void put(double *row, int *n, double v) { row[(*n)++] = v; }
static double lg(double v) { return log2(v > 0 ? v : 1e-9); }

static int features(const record *x, double *row)
{
    shape s;
    int n = 0;
    shape_of(x, &s);
    double rest[4] = {1, 1, 1, 1}, reads_a, reads_b;
    for (int a = 2; a < x->nspatial; a++)
        for (int f = 0; f < 4; f++) rest[f] *= x->spatial[a][f];
    for (int f = 0; f < 4; f++) put(row, &n, lg(s.level[f]));
    for (int f = 0; f < 4; f++) put(row, &n, lg(x->spatial[0][f]));
    for (int f = 0; f < 4; f++) put(row, &n, lg(x->spatial[1][f]));
    for (int f = 0; f < 4; f++) put(row, &n, lg(rest[f]));
    for (int f = 0; f < 3; f++) put(row, &n, lg(x->reduce[0][f]));
    put(row, &n, lg(s.steps));
    put(row, &n, lg(s.chunk));
    for (int f = 0; f < 3; f++) put(row, &n, lg(x->last[f]));
    put(row, &n, x->inlined);
    put(row, &n, x->vector);
    put(row, &n, lg(x->unroll[0]));
    put(row, &n, lg(x->unroll[1]));
    put(row, &n, lg(s.i1)), put(row, &n, lg(s.r1));
    put(row, &n, lg(s.outer_s)), put(row, &n, lg(s.outer_r));
    put(row, &n, lg(s.padding));
    put(row, &n, lg(s.packed / (x->c * (double)x->h * x->w)));
    put(row, &n, lg(s.packed));
    put(row, &n, lg(s.grid * s.block_calls / 108));
    put(row, &n, ceil(s.grid / 108) * 108 / s.grid);
    put(row, &n, lg(s.grid * s.warps));
    put(row, &n, lg(s.block_calls));
    reads_a = s.grid * s.block_i * s.r1 * s.outer_r * (s.block_calls * 256 / (s.block_i * s.block_k));
    reads_b = s.grid * s.block_k * s.r1 * s.outer_r;
    put(row, &n, lg(reads_a)), put(row, &n, lg(reads_b)), put(row, &n, lg(reads_a + reads_b));
    put(row, &n, lg((s.block_i * s.block_calls * 256 / (s.block_i * s.block_k) + s.block_k) * 16 * s.chunk)); /* elements staged a block */
    put(row, &n, lg(s.level[3] * s.chunk));
    put(row, &n, lg(s.level[3] * s.chunk * s.steps * ceil(s.warps / 4) * ceil(s.grid / 108)));
    put(row, &n, lg(s.macs));
    put(row, &n, lg(x->k));
    put(row, &n, lg(analytic(x)));
    return n;
}

static bool load(kiln_arena *a, const char *path, table *t)
{
    int cap = (int)(sizeof t->layer / sizeof *t->layer), left_out = 0;
    ops_table f;
    if (!ops_open(&f, path)) return fprintf(stderr, "%s: cannot be read\n", path), false;
    if (!ops_has(&f, columns, sizeof columns / sizeof *columns)) return false;
    t->r = kn_array(a, record, cap);
    t->x = kn_array(a, double, (size_t)cap * FEATURES);
    t->y = kn_array(a, double, cap);
    while (t->r && t->x && t->y && t->n < cap && ops_next(&f)) {
        record *r = &t->r[t->n];
        double row[FEATURES];
        int k = 0;
        bool good = read_record(&f, r);
        while (good && k < t->nlayers && strcmp(t->r[t->first[k]].layer, r->layer)) k++;
        left_out += !good || k == LAYERS;
        if (!good || k == LAYERS) continue;
        if (k == t->nlayers) t->first[t->nlayers++] = t->n;
        t->layer[t->n] = k;
        t->f = features(r, row);
        memcpy(&t->x[(size_t)t->n * (size_t)t->f], row, sizeof(double) * (size_t)t->f);
        t->y[t->n++] = log(r->us);
    }
    fclose(f.f);
    if (left_out) printf("%s: %d rows left out\n", path, left_out);
    return t->n > 0;
}

/* Logarithms of time less their layer's mean: only the order within a layer is learned. */
static void centre(table *t)
{
    for (int k = 0; k < t->nlayers; k++) {
        double sum = 0;
        int n = 0;
        for (int i = 0; i < t->n; i++)
            if (t->layer[i] == k) sum += t->y[i], n++;
        for (int i = 0; i < t->n; i++)
            if (t->layer[i] == k) t->y[i] -= sum / n;
    }
}

typedef struct score { double pairs, right, recall; int layers; } score;
typedef struct pair { double truth, guess; } pair;

static int by_truth(const void *p, const void *q)
{
    double x = ((const pair *)p)->truth, y = ((const pair *)q)->truth;
    return (x > y) - (x < y);
}

static int by_guess(const void *p, const void *q)
{
    double x = ((const pair *)p)->guess, y = ((const pair *)q)->guess;
    return (x > y) - (x < y);
}

static void judge(pair *v, int n, score *s)
{
    int top = (int)(n * SHARE), hit = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++) {
            if (v[i].truth == v[k].truth) continue;
            s->pairs++;
            s->right += v[i].guess == v[k].guess ? 0.5 : (v[i].truth < v[k].truth) == (v[i].guess < v[k].guess);
        }
    qsort(v, (size_t)n, sizeof *v, by_truth);
    double limit = top ? v[top - 1].truth : 0;
    qsort(v, (size_t)n, sizeof *v, by_guess);
    for (int i = 0; i < top; i++) hit += v[i].truth <= limit;
    if (top) s->recall += (double)hit / top, s->layers++;
}

/* Learns from the rows of `train` whose layer is not among those tested, and judges both models on layer k of `test`. */
static bool learn(kiln_arena *a, const table *train, const bool *held, kn_trees **model)
{
    static const kn_trees_options options = {.trees = 400, .depth = 6, .min_rows = 8, .rate = 0.06, .lambda = 2, .rows = 0.7, .features = 0.5};
    double *x = kn_array(a, double, (size_t)train->n * (size_t)train->f), *y = kn_array(a, double, train->n);
    kiln_diag d = {0};
    int n = 0;
    for (int i = 0; x && y && i < train->n; i++) {
        if (held[train->layer[i]]) continue;
        memcpy(&x[(size_t)n * (size_t)train->f], &train->x[(size_t)i * (size_t)train->f], sizeof(double) * (size_t)train->f);
        y[n++] = train->y[i];
    }
    if (x && y && !kn_trees_fit(a, x, n, train->f, y, &options, model, &d)) return true;
    return fprintf(stderr, "amos-rank: %s\n", d.message), false;
}

static void judge_layer(kiln_arena *a, const table *test, int k, const kn_trees *model, score *learned, score *plain)
{
    pair *v = kn_array(a, pair, test->n), *w = kn_array(a, pair, test->n);
    int n = 0;
    for (int i = 0; v && w && i < test->n; i++) {
        if (test->layer[i] != k) continue;
        v[n] = (pair){test->y[i], kn_trees_predict(model, &test->x[(size_t)i * (size_t)test->f])};
        w[n++] = (pair){test->y[i], analytic(&test->r[i])};
    }
    score here = {0}, there = {0};
    if (!v || !w || n < 2) return;
    judge(v, n, &here);
    judge(w, n, &there);
    printf("%-32s %5d schedules  pairs %.3f  top %.3f   analytic %.3f %.3f\n", test->r[test->first[k]].layer, n, here.right / here.pairs, here.recall,
           there.right / there.pairs, there.recall);
    learned->pairs += here.pairs, learned->right += here.right, learned->recall += here.recall, learned->layers++;
    plain->pairs += there.pairs, plain->right += there.right, plain->recall += there.recall, plain->layers++;
}

int main(int argc, char **argv)
{
    static table train, test;
    kiln_arena *a = kiln_arena_open(&(kiln_host){.mem = mem});
    score learned = {0}, plain = {0};
    if (argc != 3) return fprintf(stderr, "usage: amos-rank TRAIN.csv TEST.csv\n"), 2;
    if (!load(a, argv[1], &train) || !load(a, argv[2], &test)) return 1;
    centre(&train);
    centre(&test);
    bool folded = false, held[LAYERS];
    for (int k = 0; k < test.nlayers; k++)
        for (int i = 0; i < train.nlayers; i++) folded |= !strcmp(test.r[test.first[k]].layer, train.r[train.first[i]].layer);
    for (int fold = 0; fold < (folded ? 3 : 1); fold++) {
        kn_trees *model = NULL;
        for (int i = 0; i < train.nlayers; i++) { /* layers of this fold are not learned from */
            held[i] = false;
            for (int k = fold; k < test.nlayers && folded; k += 3)
                held[i] |= !strcmp(test.r[test.first[k]].layer, train.r[train.first[i]].layer);
        }
        if (!learn(a, &train, held, &model)) return 1;
        for (int k = fold; k < test.nlayers; k += folded ? 3 : 1) judge_layer(a, &test, k, model, &learned, &plain);
    }
    double pairs = learned.right / learned.pairs, top = learned.recall / learned.layers;
    printf("amos-rank: %d layers held out: pairs %.3f, top-40%% recall %.3f; analytic model: pairs %.3f, recall %.3f\n", learned.layers, pairs, top,
           plain.right / plain.pairs, plain.recall / plain.layers);
    kiln_arena_close(a);
    return !(pairs >= GOAL && top >= GOAL);
}
