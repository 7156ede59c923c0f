/* Gradient-boosted regression trees over histograms: a cost model that is learned from measurements. Deterministic, memory from the arena. */
#ifndef KN_TREES_H
#define KN_TREES_H
#include "base/base.h"

typedef struct kn_trees_options {
    int trees, depth;      /* depth at most KN_TREES_DEPTH */
    int min_rows;          /* of a leaf */
    double rate, lambda;   /* shrinkage of each tree; added to a leaf's count of rows */
    double rows, features; /* share of them that each tree sees */
} kn_trees_options;

enum { KN_TREES_DEPTH = 10, KN_TREES_BINS = 64 };
typedef struct kn_trees kn_trees;
/* x: n rows of f numbers each, finite; y: what to predict, squared error. KILN_MEMORY, or KILN_REQUEST for options out of range. */
kiln_status kn_trees_fit(kiln_arena *a, const double *x, int n, int f, const double *y, const kn_trees_options *o, kn_trees **out, kiln_diag *d);
double kn_trees_predict(const kn_trees *t, const double *row);
#endif
