/* Which part of which loop an expression takes: sums of digits of loops, and of dense sums of loops. Private to compiler/block. */
#ifndef KN_BLOCK_ITERMAP_H
#define KN_BLOCK_ITERMAP_H
#include "block/block.h"

#define KN_IM_LINES 128
#define KN_IM_TERMS 24

/* scale * ((line // lower) % extent); a line is a loop, or a dense sum of such terms. */
typedef struct kn_im_term { int line; int64_t lower, extent, scale; } kn_im_term;
typedef struct kn_im_sum { int n; kn_im_term t[KN_IM_TERMS]; int64_t constant; } kn_im_sum;
typedef struct kn_im {
    const kn_blocks *b;
    int nlines;
    struct { int var; int64_t extent; kn_im_sum parts; } line[KN_IM_LINES]; /* var -1: the sum `parts` */
} kn_im;

bool kn_im_sum_of(kn_im *m, const kn_expr *e, kn_im_sum *out); /* false: not quasi-affine */
/* 1: takes every value from constant to constant + *extent - 1 once; 0: leaves gaps; -1: takes values twice. Sorts the terms. */
int kn_im_dense(kn_im_sum *s, int64_t *extent);
/* No two terms of the sums take the same part of a loop; *line: the one that is taken twice. */
bool kn_im_independent(const kn_im *m, const kn_im_sum *sums, int n, int *line);
/* Values of a term that come with every value of the others: fewer than its extent where its line ends in the middle of a digit. */
int64_t kn_im_full(const kn_im *m, const kn_im_sum *sums, int n, const kn_im_term *t);
#endif
