/* What fills of caches share. Private to compiler/lower. */
#ifndef KN_LOWER_CACHE_H
#define KN_LOWER_CACHE_H
#include "lower/lower.h"

/* What goes to one position of a cache: the source element and the condition under which it exists (NULL: always), else `pad`. */
typedef struct kn_source { kn_expr *at, *cond; int buffer; kn_expr *pad; } kn_source;

/* Dimensions of the cache's buffer; returns how many. */
int kn_cache_dims(const kn_sg *sg, const kn_cache *c, int cache, int64_t *size);
/* Of a cache indexed by loops the dimension that a loop is, -1: none. */
int kn_cache_dim_of(const kn_cache *c, int loop);
/* Of a load that does not stray: all of what the copy holds is there, NULL: always. The only guards are upper bounds of axes, which grow with every
 * loop, so that the last element decides for all. */
kn_expr *kn_cache_whole(kn_lw *w, kn_sg *sg, int cache);
/* Element of the buffer at position k, the source of that element, and its value. */
kn_expr *kn_cache_slot(kn_lw *w, const kn_cache *c, int n, const int64_t *size, kn_expr *const *k);
kn_source kn_cache_source(kn_lw *w, kn_sg *sg, int cache, kn_expr *const *k);
kn_expr *kn_source_value(kn_lw *w, const kn_source *s);
/* Some element the load names may be outside of its tensor, along a dimension that some of these axes index: under padding, or under a select that
 * keeps it from being read. A copy is made ahead of either, so it must look for itself. UINT32_MAX: along any. */
bool kn_lw_strays(const kn_lw *w, const kn_sg *sg, const kn_expr *load, uint32_t along);
bool kn_lw_index_strays(const kn_lw *w, const kn_sg *sg, const kn_expr *load, int d); /* along dimension d */
/* zipped.c: runs whose elements are interleaved; *joined: iterations of dimension *join that are taken together, where there are some. */
bool kn_lw_zips(kn_lw *w, kn_sg *sg, int cache, int n, const int64_t *size, int inner, int64_t *joined, int *join);
void kn_lw_fill_zipped(kn_lw *w, kn_sg *sg, int cache, int n, const int64_t *size, kn_expr **k, int64_t joined, int join, bool whole);
/* The same of a copy of one row of blocks, of a load that does not stray: one after the other where all of them are there. */
void kn_lw_fill_zipped_row(kn_lw *w, kn_sg *sg, int cache, const int64_t *size, kn_expr **k, int64_t joined, bool whole);
/* squares.c: lanes that lie rows apart, by `step` elements in each dimension, and the dimension that goes along the rows; terms of an
 * instruction behind the lanes stay together. */
typedef struct kn_square_dims { int lane, run, unit; int64_t steps; } kn_square_dims; /* steps: of the run that the tensor has */
bool kn_lw_squares(kn_lw *w, kn_sg *sg, int cache, int n, const int64_t *size, const int64_t *step, kn_square_dims *d);
void kn_lw_fill_squares(kn_lw *w, kn_sg *sg, int cache, int n, const int64_t *size, const int *order, int inner, const kn_square_dims *d, bool whole);
/* Fills a plain copy, not all of whose source is there. */
void kn_lw_fill_part(kn_lw *w, kn_sg *sg, int cache);
/* What the axes are at that position of a copy that is indexed by loops. */
void kn_cache_axes(kn_lw *w, kn_sg *sg, int cache, kn_expr *const *k, kn_expr **av);
/* folded.c: a packed copy whose lanes are rows of the source, along which several of its other dimensions run; false: it is no such copy. */
bool kn_lw_fill_folded(kn_lw *w, kn_sg *sg, int cache);
/* turned.c: a box whose lanes are another dimension than that along which the tensor's rows run. */
void kn_lw_fill_turned(kn_lw *w, kn_sg *sg, int cache);
/* narrow.c: a box of rows of a few elements, which are copied many at a time; false: it is no such box. */
bool kn_lw_fill_narrow(kn_lw *w, kn_sg *sg, int cache);
/* shared.c: all threads of a block together; the caller sets the barriers around all fills of one loop. */
void kn_lw_fill_shared(kn_lw *w, kn_sg *sg, int cache);
#endif
