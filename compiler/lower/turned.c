/* Fills of boxes whose innermost dimension is not the one along which rows of the tensor run (planes of channels that become lanes): as many rows as
 * there are lanes are read in vectors, change places with their elements in registers, and are written as vectors of lanes. */
#include "lower/cache.h"

enum { TURN_LANES = 16, AHEAD = 7 }; /* squares */

/* A run: `steps` of dimension `at` and all of the dimensions behind it, whose boxes are whole, of `unit` elements each step. */
typedef struct turned {
    kn_lw *w;
    kn_sg *sg;
    int cache, n, lane, at, lanes;  /* lane: the dimension that becomes the lanes */
    int64_t size[KILN_MAX_LOOPS], unit;
    const kn_tensor *x;
    kn_expr *k[KILN_MAX_LOOPS];     /* position of the run in the box */
    kn_expr *row[TURN_LANES];       /* index of each lane in its dimension, kept inside */
} turned;

static kn_expr *base_of(const turned *f, int d) { return f->sg->cache_base[f->cache][d]; }

/* Rows past the end of their dimension are the last one once more: what is computed of them is stored nowhere. */
static void find_rows(turned *f)
{
    kn_lw *w = f->w;
    for (int l = 0; l < f->lanes && !w->status; l++) {
        kn_expr *i = kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, base_of(f, f->lane), kn_lw_int(w, l)));
        if (kn_lw_below(w, i, f->x->shape[f->lane]))
            i = kn_lw_let(w, "row", kn_lw_simp(w, kn_bin(w->a, KN_OP_MIN, i, kn_lw_int(w, f->x->shape[f->lane] - 1))));
        f->row[l] = i;
    }
}

static void find_run(turned *f)
{
    f->unit = 1;
    f->at = f->n - 1;
    while (f->at > 0 && f->at - 1 != f->lane) {
        kn_expr *base = base_of(f, f->at);
        if (f->size[f->at] != f->x->shape[f->at] || base->op != KN_OP_CONST_I || base->u.i) break;
        f->unit *= f->size[f->at--];
    }
}

/* Element of the tensor `x` elements behind the run's begin in lane l, and where in the box its lanes begin. */
static kn_expr *source(turned *f, int l, kn_expr *x)
{
    kn_expr *idx[KILN_MAX_RANK];
    for (int d = 0; d < f->n; d++) {
        idx[d] = d == f->lane ? f->row[l] : base_of(f, d);
        if (d != f->lane && d < f->at) idx[d] = kn_bin(f->w->a, KN_OP_ADD, idx[d], f->k[d]);
        if (!idx[d]) return &f->w->dry;
    }
    return kn_lw_simp(f->w, kn_bin(f->w->a, KN_OP_ADD, kn_lw_address(f->w, f->sg->loads[f->sg->g->caches[f->cache].load]->u.tensor, idx), x));
}

static kn_expr *slot(turned *f, kn_expr *x)
{
    const kn_cache *c = &f->sg->g->caches[f->cache];
    kn_expr *begin = kn_cache_slot(f->w, c, f->n, f->size, f->k);
    return kn_lw_simp(f->w, kn_bin(f->w->a, KN_OP_ADD, begin, kn_bin(f->w->a, KN_OP_MUL, x, kn_lw_int(f->w, f->lanes + c->pad))));
}

/* Opens a loop from lo to hi, behind which *after is; its variable. NULL: there is nothing to do, or no memory. */
static kn_expr *each(turned *f, const char *name, kn_expr *lo, kn_expr *hi, int64_t most, kn_ls ***after)
{
    if (lo->op == KN_OP_CONST_I && hi->op == KN_OP_CONST_I && lo->u.i >= hi->u.i) return NULL;
    int var = kn_lw_var(f->w, name, 0, most < 0 ? 0 : most);
    kn_ls *loop = kn_lw_for(f->w, var, lo, hi);
    if (!loop) return NULL;
    *after = f->w->tail;
    f->w->tail = &loop->body;
    return kn_lw_ref(f->w, var);
}

static int64_t longest(const turned *f) { return f->size[f->at] * f->unit; }

static void fill_padding(turned *f, kn_expr *lo, kn_expr *hi)
{
    kn_lw *w = f->w;
    const kn_expr *load = f->sg->loads[f->sg->g->caches[f->cache].load];
    kn_ls **after;
    kn_expr *x = each(f, "x", lo, hi, longest(f) - 1, &after);
    if (!x) return;
    kn_expr *pad = kn_lw_splat(w, kn_lw_zero(w, f->x->dtype, load->padded ? load->pad_value : 0), f->lanes);
    kn_lw_store(w, f->sg->cache_buffer[f->cache], slot(f, x), pad);
    w->tail = after;
}

/* The rows lie so far apart that half of L2 does not hold what is between the first and the last: the hardware's prefetchers lose such runs. */
static bool wants_prefetch(const turned *f)
{
    const kn_hw_level *l2 = kn_hw_level_named(f->w->hw, "l2");
    int64_t bytes = f->lanes * kn_dtype_bytes(f->x->dtype);
    for (int d = f->lane + 1; d < f->x->rank; d++) bytes *= f->x->shape[d];
    return l2 && bytes > l2->capacity_bytes / 2;
}

/* The square whose first column is element `from` of the run; `columns` of its columns are kept. */
static void square(turned *f, kn_expr *from, int64_t columns)
{
    kn_lw *w = f->w;
    const kn_cache *c = &f->sg->g->caches[f->cache];
    bool ahead = wants_prefetch(f);
    int tensor = kn_lw_tensor(w, f->sg->loads[c->load]->u.tensor), at = kn_lw_buffer(w, "turn", f->x->dtype, f->lanes, f->lanes, KN_REGISTER);
    for (int l = 0; l < f->lanes && !w->status; l++) {
        kn_expr *begin = source(f, l, from);
        kn_lw_store(w, at, kn_lw_int(w, l), kn_lw_read(w, tensor, begin, f->lanes));
        if (ahead) kn_lw_prefetch(w, tensor, kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, begin, kn_lw_int(w, AHEAD * f->lanes))), false);
    }
    at = kn_lw_transpose(w, at, f->x->dtype, f->lanes);
    for (int64_t i = 0; i < columns && !w->status; i++)
        kn_lw_store(w, f->sg->cache_buffer[f->cache], slot(f, kn_bin(w->a, KN_OP_ADD, from, kn_lw_int(w, i))),
                    kn_lw_read(w, at, kn_lw_int(w, i), f->lanes));
}

static void element_by_element(turned *f, kn_expr *lo, kn_expr *hi)
{
    kn_lw *w = f->w;
    int tensor = kn_lw_tensor(w, f->sg->loads[f->sg->g->caches[f->cache].load]->u.tensor);
    kn_ls **after;
    kn_expr *x = each(f, "x", lo, hi, longest(f) - 1, &after);
    if (!x) return;
    for (int l = 0; l < f->lanes && !w->status; l++)
        kn_lw_store(w, f->sg->cache_buffer[f->cache], kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, slot(f, x), kn_lw_int(w, l))),
                    kn_lw_read(w, tensor, source(f, l, x), 1));
    w->tail = after;
}

/* Fewer elements than lanes: a square that reads on behind them, where the tensor does. */
static void fill_short(turned *f, kn_expr *lo, kn_expr *hi)
{
    kn_lw *w = f->w;
    const kn_expr *load = f->sg->loads[f->sg->g->caches[f->cache].load];
    bool known = lo->op == KN_OP_CONST_I && hi->op == KN_OP_CONST_I;
    int64_t elems = w->p->buffers[kn_lw_tensor(w, load->u.tensor)].elems;
    if (!known) {
        element_by_element(f, lo, hi);
        return;
    }
    kn_expr *end = kn_bin(w->a, KN_OP_ADD, source(f, f->lanes - 1, lo), kn_lw_int(w, f->lanes - 1));
    kn_expr *there = end ? kn_lw_below(w, kn_lw_simp(w, end), elems) : NULL;
    kn_ls *cond = there ? kn_lw_if(w, there) : NULL, **after = w->tail;
    if (cond) w->tail = &cond->body;
    square(f, lo, hi->u.i - lo->u.i);
    if (!cond) return;
    w->tail = &cond->other;
    element_by_element(f, lo, hi);
    w->tail = after;
}

/* Elements lo .. hi - 1 of the run, squares of them and a last one that ends where they do. */
static void fill_elements(turned *f, kn_expr *lo, kn_expr *hi)
{
    kn_lw *w = f->w;
    kn_expr *len = kn_lw_let(w, "len", kn_lw_simp(w, kn_bin(w->a, KN_OP_SUB, hi, lo))), *lanes = kn_lw_int(w, f->lanes);
    kn_expr *few = kn_lw_simp(w, kn_lw_node(w, KN_OP_LT, KN_BOOL, 1, len, lanes, NULL));
    bool known = few->op == KN_OP_CONST_I;
    if (known && few->u.i) {
        fill_short(f, lo, hi);
        return;
    }
    kn_ls *cond = known ? NULL : kn_lw_if(w, few), **after = w->tail;
    if (cond) {
        w->tail = &cond->body;
        element_by_element(f, lo, hi);
        w->tail = &cond->other;
    }
    kn_ls **here;
    kn_expr *squares = kn_lw_simp(w, kn_bin(w->a, KN_OP_FLOORDIV, len, lanes));
    kn_expr *b = each(f, "square", kn_lw_int(w, 0), squares, longest(f) / f->lanes - 1, &here);
    if (b) square(f, kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, lo, kn_bin(w->a, KN_OP_MUL, b, lanes))), f->lanes);
    if (b) w->tail = here;
    if (len->op != KN_OP_CONST_I || len->u.i % f->lanes) square(f, kn_lw_simp(w, kn_bin(w->a, KN_OP_SUB, hi, lanes)), f->lanes);
    if (cond) w->tail = after;
}

/* The run at position k: padding, elements, padding, or padding alone where another index is out of range. */
static void fill_run(turned *f)
{
    kn_lw *w = f->w;
    kn_expr *in = NULL, *zero = kn_lw_int(w, 0), *all = kn_lw_int(w, longest(f)), *size = kn_lw_int(w, f->size[f->at]), *unit = kn_lw_int(w, f->unit);
    for (int d = 0; d < f->at; d++)
        if (d != f->lane) in = kn_lw_and(w, in, kn_lw_in_dim(w, kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, base_of(f, d), f->k[d])), f->x->shape[d]));
    kn_expr *base = base_of(f, f->at), *left = kn_bin(w->a, KN_OP_SUB, kn_lw_int(w, f->x->shape[f->at]), base);
    kn_expr *lo = kn_bin(w->a, KN_OP_MIN, size, kn_bin(w->a, KN_OP_MAX, zero, kn_bin(w->a, KN_OP_SUB, zero, base)));
    kn_expr *hi = kn_bin(w->a, KN_OP_MAX, lo, kn_bin(w->a, KN_OP_MIN, size, left));
    lo = kn_lw_let(w, "lo", kn_lw_simp(w, kn_bin(w->a, KN_OP_MUL, lo, unit)));
    hi = kn_lw_let(w, "hi", kn_lw_simp(w, kn_bin(w->a, KN_OP_MUL, hi, unit)));
    kn_ls *cond = in ? kn_lw_if(w, in) : NULL, **after = w->tail;
    if (cond) w->tail = &cond->body;
    fill_padding(f, zero, lo);
    fill_elements(f, lo, hi);
    fill_padding(f, hi, all);
    if (!cond) return;
    w->tail = &cond->other;
    fill_padding(f, zero, all);
    w->tail = after;
}

void kn_lw_fill_turned(kn_lw *w, kn_sg *sg, int cache)
{
    turned *f = kn_new(w->a, turned);
    const kn_cache *c = &sg->g->caches[cache];
    if (!f) {
        kn_lw_fail(w, KILN_MEMORY, "out of memory in lowering");
        return;
    }
    *f = (turned){.w = w, .sg = sg, .cache = cache, .lane = c->last - 1, .x = &w->p->program->tensors[sg->loads[c->load]->u.tensor]};
    f->n = kn_cache_dims(sg, c, cache, f->size);
    f->lanes = (int)f->size[f->lane];
    for (int d = 0; d < f->n; d++) f->k[d] = kn_lw_int(w, 0);
    find_rows(f);
    find_run(f);
    kn_ls **after = NULL;
    for (int d = 0; d < f->at && !w->status; d++) {
        if (d == f->lane) continue;
        int var = kn_lw_var(w, "k", 0, f->size[d] - 1);
        kn_ls *loop = kn_lw_for(w, var, kn_lw_int(w, 0), kn_lw_int(w, f->size[d]));
        if (!loop) return;
        if (!after) after = w->tail;
        w->tail = &loop->body;
        f->k[d] = kn_lw_ref(w, var);
    }
    if (!w->status) fill_run(f);
    if (after) w->tail = after;
}
