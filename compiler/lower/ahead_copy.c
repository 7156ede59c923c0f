/* A block of an operand that is copied before tiles use it: while they do, the block that is copied next is asked for, line by line over all their
 * iterations. Its runs lie pages apart, where hardware prefetchers begin anew, and the copy itself has no time to wait for them. */
#include "lower/cache.h"
#include "lower/tile.h"

enum { MOST_LINES = 4, AGAIN = 8 }; /* that an iteration asks for; times that a line may be asked for, where iterations outnumber the lines */

/* The block that is copied next: `rows` runs, `down` elements apart. */
typedef struct block {
    int buffer;
    kn_expr *at;
    int64_t run, rows, down;
} block;

typedef struct dim { int64_t size, step; } dim;

/* Dimensions of more than one element by how far apart these are, nearest first; -1: not affine. */
static int dims_of(kn_lw *w, kn_sg *sg, int cache, dim *d, block *b)
{
    const kn_cache *c = &sg->g->caches[cache];
    int64_t size[KILN_MAX_LOOPS];
    kn_expr *k[KILN_MAX_LOOPS], *zero[KILN_MAX_LOOPS];
    int n = kn_cache_dims(sg, c, cache, size), first = w->p->nvars, m = 0;
    for (int i = 0; i < n; i++) kn_lw_var(w, "k", 0, size[i] - 1);
    for (int i = 0; i < n; i++) k[i] = kn_lw_ref(w, first + i), zero[i] = kn_lw_int(w, 0);
    kn_source s = kn_cache_source(w, sg, cache, zero);
    kn_expr *at = kn_cache_source(w, sg, cache, k).at;
    b->buffer = s.buffer;
    b->at = s.at;
    for (int i = 0; i < n; i++) {
        dim x = {.size = size[i]};
        int p = m;
        if (!kn_lw_coefficient(at, first + i, &x.step) || x.step < 0) return -1;
        if (x.size == 1) continue;
        for (; p > 0 && d[p - 1].step > x.step; p--) d[p] = d[p - 1];
        d[p] = x;
        m++;
    }
    return m;
}

/* Runs of several dimensions that lie one behind the other are one; then rows of these. */
static bool find_block(kn_lw *w, kn_sg *sg, int cache, block *b)
{
    dim d[KILN_MAX_LOOPS];
    int n = dims_of(w, sg, cache, d, b), i = 0;
    b->run = b->rows = 1;
    for (; i < n && d[i].step == b->run; i++) b->run *= d[i].size;
    if (i == 0 || i == n) return false;
    b->down = d[i].step;
    for (; i < n && d[i].step == b->rows * b->down; i++) b->rows *= d[i].size;
    return i == n && b->down > b->run;
}

/* The loop from `from` outward that moves the block, by *by elements; -1: none does. */
static int mover(const kn_sg *sg, int from, const block *b, int64_t *by)
{
    for (int j = from; j >= 0; j--) {
        const kn_loop *l = &sg->g->loops[j];
        const kn_expr *v = sg->val[j];
        if (l->extent == 1 || !v || v->op == KN_OP_CONST_I) continue;
        if ((l->kind != KN_SERIAL && l->kind != KN_PARALLEL) || v->op != KN_OP_VAR || !kn_lw_coefficient(b->at, v->u.var, by)) return -1;
        if (*by) return j;
    }
    return -1;
}

/* To the block that the loop of the copies goes to next; at its end to that which it begins with next. */
static bool go_on(kn_lw *w, const kn_sg *sg, int at, block *b)
{
    int64_t by, out;
    int j = mover(sg, at, b, &by), outer = j < 0 ? -1 : mover(sg, j - 1, b, &out);
    if (j < 0 || by < 0) return false;
    kn_expr *next = kn_bin(w->a, KN_OP_ADD, b->at, kn_lw_int(w, by));
    if (outer >= 0) {
        int64_t n = sg->g->loops[j].extent;
        kn_expr *past = kn_bin(w->a, KN_OP_FLOORDIV, kn_bin(w->a, KN_OP_ADD, sg->val[j], kn_lw_int(w, 1)), kn_lw_int(w, n));
        next = kn_bin(w->a, KN_OP_ADD, next, kn_bin(w->a, KN_OP_MUL, past, kn_lw_int(w, out - n * by)));
    }
    b->at = next;
    return true;
}

/* Iterations of the loops from the copy's to loop `last`, and which of them it is. */
static bool find_iterations(kn_lw *w, const kn_sg *sg, int at, int last, int64_t *n, kn_expr **which)
{
    *n = 1;
    *which = kn_lw_int(w, 0);
    for (int j = at + 1; j <= last; j++) {
        const kn_loop *l = &sg->g->loops[j];
        if (l->extent == 1 || kn_is_register(l->kind)) continue;
        if (l->kind != KN_SERIAL || !sg->val[j] || sg->val[j]->op != KN_OP_VAR || !kn_mul_fits(*n, l->extent, n)) return false;
        *which = kn_bin(w->a, KN_OP_ADD, kn_bin(w->a, KN_OP_MUL, *which, kn_lw_int(w, l->extent)), sg->val[j]);
    }
    return *n > 1;
}

/* A tensor that L2 does not hold, none of whose elements the copy fills in. */
static bool is_far(const kn_lw *w, const kn_expr *load, const kn_hw_level *l2)
{
    const kn_tensor *t = &w->p->program->tensors[load->u.tensor];
    int64_t bytes = kn_dtype_bytes(t->dtype);
    for (int d = 0; d < t->rank; d++) bytes *= t->shape[d];
    return bytes > l2->capacity_bytes && !load->padded;
}

void kn_tile_ahead_copy(kn_tile *x, int i, int load, const kn_hw_level *l1, const kn_hw_level *l2)
{
    kn_lw *w = x->w;
    kn_sg *sg = x->sg;
    const kn_cache *c = &sg->g->caches[sg->cache_of[load]];
    block b;
    int64_t n;
    kn_expr *which;
    if (c->scope != KN_SCRATCH || c->region || c->copies || c->at < 0 || c->at >= sg->tile || !is_far(w, sg->loads[load], l2)) return;
    if (!find_block(w, sg, sg->cache_of[load], &b) || w->status || w->p->buffers[b.buffer].scope != KN_GLOBAL) return;
    if (!go_on(w, sg, c->at, &b) || !find_iterations(w, sg, c->at, i, &n, &which)) return;
    int64_t bytes = kn_dtype_bytes(w->p->buffers[b.buffer].dtype), line = l1->transaction_bytes / bytes;
    int64_t lines = kn_ceil_div(b.run, line), all = lines * b.rows, each = kn_ceil_div(all, n);
    if (each > MOST_LINES || n > all * AGAIN || all * line * bytes > l2->capacity_bytes / 2 || !kn_tile_worth_asking(x, b.buffer)) return;
    for (int64_t k = 0; k < each; k++) {
        kn_expr *at = kn_bin(w->a, KN_OP_FLOORDIV, kn_bin(w->a, KN_OP_MUL, which, kn_lw_int(w, all)), kn_lw_int(w, n));
        if (k) at = kn_bin(w->a, KN_OP_ADD, at, kn_lw_int(w, k));
        kn_expr *row = kn_bin(w->a, KN_OP_FLOORDIV, at, kn_lw_int(w, lines));
        kn_expr *begin = kn_bin(w->a, KN_OP_MUL, row, kn_lw_int(w, b.down - lines * line));
        at = kn_bin(w->a, KN_OP_ADD, begin, kn_bin(w->a, KN_OP_MUL, at, kn_lw_int(w, line)));
        kn_lw_prefetch(w, b.buffer, kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, b.at, at)), false);
    }
}
