/* Histogram boosting: features are cut into bins of equal share once; every tree grows level by level on sums of residuals a bin. */
#include "cost/trees.h"
#include <stdlib.h>
#include <string.h>

/* Node k has children 2k+1 and 2k+2. A leaf has feature -1. */
typedef struct node { int feature; double below, value; } node;
struct kn_trees { double base; int n, nodes; node *tree; /* n trees of `nodes` each */ };

typedef struct bin { double sum; int count; } bin;

typedef struct fitter {
    int n, f, nodes;
    const kn_trees_options *o;
    const double *x;
    double *residual;
    int *at;                    /* node of every row; -1: not in this tree's sample */
    uint8_t *bins;              /* n x f */
    double *edge;               /* f x KN_TREES_BINS: bin b holds values below edge[b] and not below edge[b-1] */
    int *nedges;
    bin *hist;                  /* of one level: nodes x f x KN_TREES_BINS */
    bool *seen;                 /* features of this tree */
    uint64_t seed;
} fitter;

static double draw(fitter *t) /* [0, 1) */
{
    t->seed = t->seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(t->seed >> 40) / 16777216.0;
}

static int ascending(const void *p, const void *q)
{
    double x = *(const double *)p, y = *(const double *)q;
    return (x > y) - (x < y);
}

static void cut_feature(fitter *t, int k, double *column)
{
    double *edge = &t->edge[k * KN_TREES_BINS];
    for (int i = 0; i < t->n; i++) column[i] = t->x[(size_t)i * (size_t)t->f + (size_t)k];
    qsort(column, (size_t)t->n, sizeof *column, ascending);
    for (int b = 1; b < KN_TREES_BINS; b++) {
        double v = column[(int64_t)t->n * b / KN_TREES_BINS];
        if (v > column[0] && (!t->nedges[k] || v > edge[t->nedges[k] - 1])) edge[t->nedges[k]++] = v;
    }
    for (int i = 0; i < t->n; i++) {
        int b = 0;
        while (b < t->nedges[k] && t->x[(size_t)i * (size_t)t->f + (size_t)k] >= edge[b]) b++;
        t->bins[(size_t)i * (size_t)t->f + (size_t)k] = (uint8_t)b;
    }
}

static double gain(const fitter *t, double sum, int count) { return sum * sum / (count + t->o->lambda); }

/* The best cut of a node from its histogram; false: none is worth it. */
static bool best_cut(const fitter *t, const bin *hist, node *to)
{
    double best = 1e-12;
    bool found = false;
    for (int k = 0; k < t->f; k++) {
        const bin *h = &hist[k * KN_TREES_BINS];
        double sum = 0, left = 0;
        int count = 0, rows = 0;
        if (!t->seen[k]) continue;
        for (int b = 0; b <= t->nedges[k]; b++) sum += h[b].sum, count += h[b].count;
        for (int b = 0; b < t->nedges[k]; b++) {
            left += h[b].sum, rows += h[b].count;
            if (rows < t->o->min_rows || count - rows < t->o->min_rows) continue;
            double g = gain(t, left, rows) + gain(t, sum - left, count - rows) - gain(t, sum, count);
            if (g <= best) continue;
            best = g;
            to->feature = k;
            to->below = t->edge[k * KN_TREES_BINS + b];
            found = true;
        }
    }
    return found;
}

/* Splits the nodes of one level, first .. 2*first. */
static void grow_level(fitter *t, node *tree, int first)
{
    size_t width = (size_t)t->f * KN_TREES_BINS;
    memset(t->hist, 0, sizeof *t->hist * width * (size_t)(first + 1));
    for (int i = 0; i < t->n; i++) {
        if (t->at[i] < first) continue;
        bin *h = &t->hist[width * (size_t)(t->at[i] - first)];
        const uint8_t *b = &t->bins[(size_t)i * (size_t)t->f];
        for (int k = 0; k < t->f; k++) {
            bin *c = &h[k * KN_TREES_BINS + b[k]];
            c->sum += t->residual[i], c->count++;
        }
    }
    for (int v = first; v <= 2 * first; v++) best_cut(t, &t->hist[width * (size_t)(v - first)], &tree[v]);
    for (int i = 0; i < t->n; i++) {
        if (t->at[i] < first || tree[t->at[i]].feature < 0) continue;
        const node *v = &tree[t->at[i]];
        t->at[i] = 2 * t->at[i] + 1 + (t->x[(size_t)i * (size_t)t->f + (size_t)v->feature] >= v->below);
    }
}

static double walk(const node *tree, const double *row)
{
    int v = 0;
    while (tree[v].feature >= 0) v = 2 * v + 1 + (row[tree[v].feature] >= tree[v].below);
    return tree[v].value;
}

static void grow_tree(fitter *t, node *tree)
{
    for (int v = 0; v < t->nodes; v++) tree[v] = (node){.feature = -1};
    for (int i = 0; i < t->n; i++) t->at[i] = draw(t) < t->o->rows ? 0 : -1;
    for (int k = 0; k < t->f; k++) t->seen[k] = draw(t) < t->o->features;
    for (int first = 0; 2 * first + 2 < t->nodes; first = 2 * first + 1) grow_level(t, tree, first);
    bin *leaf = t->hist;
    memset(leaf, 0, sizeof *leaf * (size_t)t->nodes);
    for (int i = 0; i < t->n; i++)
        if (t->at[i] >= 0) leaf[t->at[i]].sum += t->residual[i], leaf[t->at[i]].count++;
    for (int v = 0; v < t->nodes; v++) tree[v].value = t->o->rate * leaf[v].sum / (leaf[v].count + t->o->lambda);
    for (int i = 0; i < t->n; i++) t->residual[i] -= walk(tree, &t->x[(size_t)i * (size_t)t->f]);
}

static bool fits_range(const kn_trees_options *o, int n, int f)
{
    return n > 0 && f > 0 && o->trees > 0 && o->trees <= 10000 && o->depth > 0 && o->depth <= KN_TREES_DEPTH && o->lambda > 0 && o->rows > 0 &&
           o->features > 0;
}

kiln_status kn_trees_fit(kiln_arena *a, const double *x, int n, int f, const double *y, const kn_trees_options *o, kn_trees **out, kiln_diag *d)
{
    if (!fits_range(o, n, f)) return kn_fail(d, KILN_REQUEST, "options of the model are out of range");
    fitter t = {.n = n, .f = f, .nodes = (2 << o->depth) - 1, .o = o, .x = x, .seed = 1};
    kn_trees *m = kn_new(a, kn_trees);
    double *column = kn_array(a, double, n);
    t.residual = kn_array(a, double, n);
    t.at = kn_array(a, int, n);
    t.bins = kn_array(a, uint8_t, (size_t)n * (size_t)f);
    t.edge = kn_array(a, double, f * KN_TREES_BINS);
    t.nedges = kn_array(a, int, f);
    t.seen = kn_array(a, bool, f);
    t.hist = kn_array(a, bin, ((size_t)f * KN_TREES_BINS + 4) << o->depth);
    if (m) *m = (kn_trees){.n = o->trees, .nodes = t.nodes, .tree = kn_array(a, node, (size_t)o->trees * (size_t)t.nodes)};
    if (kn_arena_dry(a)) return kn_fail(d, KILN_MEMORY, "out of memory while learning");
    for (int k = 0; k < f; k++) cut_feature(&t, k, column);
    for (int i = 0; i < n; i++) m->base += y[i] / n;
    for (int i = 0; i < n; i++) t.residual[i] = y[i] - m->base;
    for (int i = 0; i < m->n; i++) {
        if (kn_stopped(a)) return kn_fail(d, KILN_STOPPED, "stopped while learning");
        grow_tree(&t, &m->tree[(size_t)i * (size_t)t.nodes]);
    }
    *out = m;
    return KILN_OK;
}

double kn_trees_predict(const kn_trees *t, const double *row)
{
    double y = t->base;
    for (int i = 0; i < t->n; i++) y += walk(&t->tree[(size_t)i * (size_t)t->nodes], row);
    return y;
}
