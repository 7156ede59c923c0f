/* What the files that turn a tile tree into blocks share. Private to compiler/block. */
#ifndef KN_BLOCK_MAKE_H
#define KN_BLOCK_MAKE_H
#include "block/block.h"

typedef struct kn_mk {
    kiln_arena *a;
    const kn_tree *t;
    const kn_hw *hw;
    kn_blocks *b;
    kiln_diag *d;
    kiln_status status;
    int buffer[KILN_MAX_TENSORS];               /* of a tensor, -1: none yet */
    bool boxed[KILN_MAX_TENSORS][KILN_MAX_RANK]; /* compute_at: the buffer holds only what one iteration wants of this dimension */
} kn_mk;

/* A stage while its nest is made. */
typedef struct kn_ms {
    int index;
    const kn_stage *g;
    const kn_stmt *s;
    const struct kn_ms *consumer;
    kn_expr *val[KILN_MAX_LOOPS];               /* open loops: their variables */
    int nloads, cache[KILN_MAX_TENSORS];        /* load -> buffer of its cache, -1 */
    const kn_expr *loads[KILN_MAX_TENSORS];
    kn_block *proto;                            /* iterators of the statement: ranges for kn_simplify */
} kn_ms;

kn_expr *kn_mk_int(kn_mk *m, int64_t x);
void kn_mk_fail(kn_mk *m, kiln_status s, const char *what, const char *name);
const char *kn_mk_loop_name(kn_mk *m, const char *name); /* printable */
int kn_mk_buffer(kn_mk *m, const char *name, enum kn_dtype t, enum kn_scope scope, int rank, const int64_t *shape);
/* Adds an iterator; returns its number, -1 after failing. */
int kn_mk_iter(kn_mk *m, kn_block *k, const char *name, int64_t extent, bool reduce, kn_expr *bind);
void kn_mk_where(kn_mk *m, kn_block *k, int iter, int64_t below);
/* Declares what the statement touches, as the body and the left side say. */
void kn_mk_regions(kn_mk *m, kn_block *k);
kn_bnode *kn_mk_block(kn_mk *m, kn_bnode *parent, kn_block *k);
/* The part of an axis that the loops in `inside` make, over the iterators of the statement; and how far it reaches. */
kn_expr *kn_mk_part(kn_mk *m, const kn_ms *s, int axis, uint64_t inside);
int64_t kn_mk_span(const kn_ms *s, int axis, uint64_t inside);
/* Loop `l` as a digit of its axis: (A // stride) % extent. */
kn_expr *kn_mk_digit(kn_mk *m, const kn_ms *s, int l);
uint64_t kn_mk_inside(const kn_stage *g, const kn_cache *c);
/* fill.c */
int kn_mk_cache(kn_mk *m, const kn_ms *s, const kn_cache *c);
void kn_mk_fill(kn_mk *m, kn_ms *s, const kn_cache *c, kn_bnode *parent);
/* Indices of the cache's buffer where the statement reads it. */
void kn_mk_cached_index(kn_mk *m, const kn_ms *s, const kn_cache *c, kn_expr **idx);
#endif
