/* Fills of cached loads: packed copies indexed by loops, or boxes in the tensor's own dimension order. The source is walked from end to end, long
 * runs in vectors; ragged panels in vectors that reach over the end of a spatial axis, whose results past the end are stored nowhere. Runs that
 * come from a page and more apart are asked for ahead. */
#include "lower/cache.h"
#include <stdlib.h>
#include <string.h>

static bool inside(const kn_sg *sg, const kn_cache *c, int loop)
{
    return loop > c->at || (c->scope == KN_SHARED && sg->g->loops[loop].kind == KN_THREAD);
}

/* Base and size of a region cache's box: the least index over the loops inside, and the footprint. */
static void region_box(kn_lw *w, kn_sg *sg, int cache)
{
    const kn_cache *c = &sg->g->caches[cache];
    const kn_expr *load = sg->loads[c->load];
    for (int d = 0; d < load->nargs; d++) {
        kn_affine f;
        if (!kn_affine_of(load->args[d], &f)) {
            kn_lw_fail(w, KILN_TRACE, "region cache of a load that is not affine");
            return;
        }
        kn_expr *base = kn_lw_int(w, f.offset);
        int64_t size = 1;
        for (int i = 0; i < sg->g->nloops; i++) {
            const kn_loop *l = &sg->g->loops[i];
            int64_t k = f.coef[l->axis] * l->stride;
            if (!k) continue;
            if (inside(sg, c, i)) {
                size += (k < 0 ? -k : k) * (l->extent - 1);
                if (k < 0) base = kn_bin(w->a, KN_OP_ADD, base, kn_lw_int(w, k * (l->extent - 1)));
            } else if (sg->val[i]) {
                base = kn_bin(w->a, KN_OP_ADD, base, kn_bin(w->a, KN_OP_MUL, sg->val[i], kn_lw_int(w, k)));
            }
        }
        sg->cache_size[cache][d] = size;
        sg->cache_base[cache][d] = base ? kn_lw_let(w, "base", base) : &w->dry;
    }
}

int kn_cache_dim_of(const kn_cache *c, int loop)
{
    for (int d = 0; d < c->nloops; d++)
        if (c->loops[d] == loop) return d;
    return -1;
}

int kn_cache_dims(const kn_sg *sg, const kn_cache *c, int cache, int64_t *size)
{
    int n = c->region ? sg->loads[c->load]->nargs : c->nloops;
    for (int i = 0; i < n; i++) size[i] = c->region ? sg->cache_size[cache][i] : kn_cache_dim(sg->g, c, i);
    return n;
}

kn_expr *kn_cache_slot(kn_lw *w, const kn_cache *c, int n, const int64_t *size, kn_expr *const *k)
{
    kn_expr *at = kn_lw_int(w, 0);
    for (int j = 0; j < n; j++) {
        int i = kn_cache_order(c, n, j);
        at = kn_bin(w->a, KN_OP_MUL, at, kn_lw_int(w, size[i] + (j == n - 1 ? c->pad : 0)));
        at = kn_bin(w->a, KN_OP_ADD, at, k[i]);
    }
    return at ? kn_lw_simp(w, at) : &w->dry;
}

static void axis_span(void *user, const kn_expr *leaf, int64_t *lo, int64_t *hi)
{
    const kn_stmt *s = user;
    *lo = leaf->op == KN_OP_AXIS ? 0 : INT32_MIN;
    *hi = leaf->op == KN_OP_AXIS ? s->axes[leaf->u.axis].extent - 1 : INT32_MAX;
}

bool kn_lw_index_strays(const kn_lw *w, const kn_sg *sg, const kn_expr *load, int d)
{
    int64_t lo, hi;
    bool known = kn_expr_range(load->args[d], axis_span, (void *)sg->s, &lo, &hi);
    return !known || lo < 0 || hi >= w->p->program->tensors[load->u.tensor].shape[d];
}

bool kn_lw_strays(const kn_lw *w, const kn_sg *sg, const kn_expr *load, uint32_t along)
{
    for (int d = 0; d < load->nargs; d++) {
        if (!(kn_axes_in(load->args[d]) & along) && along != UINT32_MAX) continue;
        if (kn_lw_index_strays(w, sg, load, d)) return true;
    }
    return false;
}

/* Where the copy begins that belongs to value `k` of the cache's loop. */
kn_expr *kn_lw_copy_of(kn_lw *w, const kn_sg *sg, int cache, kn_expr *k)
{
    const kn_cache *c = &sg->g->caches[cache];
    int64_t elems = kn_cache_bytes(w->t, sg->g, c) / c->copies / kn_dtype_bytes(sg->loads[c->load]->dtype);
    if (sg->slot) k = sg->slot;
    return kn_bin(w->a, KN_OP_MUL, kn_bin(w->a, KN_OP_MOD, k, kn_lw_int(w, c->copies)), kn_lw_int(w, elems));
}

kn_expr *kn_lw_swizzled(kn_lw *w, const kn_sg *sg, int cache, kn_expr *at)
{
    kn_swizzle z;
    if (!kn_swizzle_of(w->t, sg->g, &sg->g->caches[cache], &z)) return at;
    if (sg->g->caches[cache].panels) { /* element (row, column) goes to panel column / unit, row by row */
        kn_expr *column = kn_bin(w->a, KN_OP_MOD, at, kn_lw_int(w, z.row)), *down = kn_bin(w->a, KN_OP_FLOORDIV, at, kn_lw_int(w, z.row));
        kn_expr *panel = kn_bin(w->a, KN_OP_MUL, kn_bin(w->a, KN_OP_FLOORDIV, column, kn_lw_int(w, z.unit)), kn_lw_int(w, z.rows * z.unit));
        column = kn_bin(w->a, KN_OP_MOD, column, kn_lw_int(w, z.unit));
        at = kn_bin(w->a, KN_OP_ADD, panel, kn_bin(w->a, KN_OP_ADD, kn_bin(w->a, KN_OP_MUL, down, kn_lw_int(w, z.unit)), column));
        at = at ? kn_lw_simp(w, at) : &w->dry;
    }
    kn_expr *row = kn_bin(w->a, KN_OP_MOD, kn_bin(w->a, KN_OP_FLOORDIV, at, kn_lw_int(w, z.unit)), kn_lw_int(w, z.runs));
    row = row ? kn_lw_simp(w, kn_bin(w->a, KN_OP_MUL, row, kn_lw_int(w, z.run))) : &w->dry;
    if (row->op == KN_OP_CONST_I && !row->u.i) return at;
    return kn_lw_node(w, KN_OP_XOR, KN_I64, 1, at, row, NULL);
}

kn_expr *kn_lw_half(kn_lw *w, const kn_sg *sg, int cache, kn_expr *at)
{
    const kn_cache *c = &sg->g->caches[cache];
    if (c->swizzle) at = kn_lw_swizzled(w, sg, cache, at);
    if (!c->copies) return at;
    kn_expr *k = sg->filling[cache] ? sg->filling[cache] : sg->val[c->at];
    return kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, at, kn_lw_copy_of(w, sg, cache, k)));
}

void kn_cache_axes(kn_lw *w, kn_sg *sg, int cache, kn_expr *const *k, kn_expr **av)
{
    const kn_cache *c = &sg->g->caches[cache];
    kn_expr *saved[KILN_MAX_LOOPS];
    memcpy(saved, sg->val, sizeof saved);
    for (int i = 0; i < c->nloops; i++) sg->val[c->loops[i]] = NULL;
    for (int i = 0; i < c->nloops; i++) {
        kn_expr **v = &sg->val[c->loops[i]], *part = c->by[i] ? kn_bin(w->a, KN_OP_MUL, k[i], kn_lw_int(w, c->by[i])) : k[i];
        *v = *v ? kn_bin(w->a, KN_OP_ADD, *v, part) : part;
    }
    kn_env_axes(w, sg, av);
    memcpy(sg->val, saved, sizeof saved);
}

kn_source kn_cache_source(kn_lw *w, kn_sg *sg, int cache, kn_expr *const *k)
{
    const kn_cache *c = &sg->g->caches[cache];
    const kn_expr *load = sg->loads[c->load];
    const kn_tensor *x = &w->p->program->tensors[load->u.tensor];
    kn_expr *idx[KILN_MAX_RANK] = { NULL };
    kn_source s = { .buffer = kn_lw_tensor(w, load->u.tensor), .pad = kn_lw_zero(w, x->dtype, load->padded ? load->pad_value : 0) };
    if (c->region) {
        for (int d = 0; d < load->nargs; d++) {
            idx[d] = kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, sg->cache_base[cache][d], k[d]));
            s.cond = kn_lw_and(w, s.cond, kn_lw_in_dim(w, idx[d], x->shape[d]));
        }
    } else {
        kn_env v = { .w = w, .s = sg->s, .lane_var = -1, .repl_tensor = -1 };
        kn_cache_axes(w, sg, cache, k, v.av);
        for (int a = 0; a < sg->s->naxes; a++)
            if (kn_axes_in(load) >> a & 1) s.cond = kn_lw_and(w, s.cond, kn_lw_below(w, v.av[a], sg->s->axes[a].extent));
        for (int d = 0; d < load->nargs; d++) {
            idx[d] = kn_lw_simp(w, kn_env_scalar(&v, load->args[d]));
            if (kn_lw_index_strays(w, sg, load, d)) s.cond = kn_lw_and(w, s.cond, kn_lw_in_dim(w, idx[d], x->shape[d]));
        }
        /* digits of an axis that are its elements' numbers no longer join once loops stand for the axis */
        kn_expr *flat = w->box[load->u.tensor].on ? NULL : sg->flat[c->load];
        if (flat) s.at = kn_lw_simp(w, kn_env_scalar(&v, flat));
    }
    if (!s.at) s.at = kn_lw_address(w, load->u.tensor, idx);
    return s;
}

kn_expr *kn_source_value(kn_lw *w, const kn_source *s)
{
    kn_expr *e = kn_lw_read(w, s->buffer, s->at, 1);
    return s->cond ? kn_lw_node(w, KN_OP_SELECT, e->dtype, 1, s->cond, e, s->pad) : e;
}

/* The dimension that a box's rows run along: the last one of those that are more than one element long. */
static int row_dim(const kn_lw *w, const kn_sg *sg, int cache, int n, const int64_t *size)
{
    const kn_tensor *x = &w->p->program->tensors[sg->loads[sg->g->caches[cache].load]->u.tensor];
    int d = n - 1;
    while (d > 0 && size[d] == 1 && x->shape[d] == 1 && !sg->g->caches[cache].pad) d--;
    return d;
}

/* Copies elements `at` + 0 .. lanes - 1 of a row. */
static void copy_vector(kn_lw *w, kn_sg *sg, int cache, int n, const int64_t *size, kn_expr **k, kn_expr *at, int lanes)
{
    k[row_dim(w, sg, cache, n, size)] = kn_lw_simp(w, at);
    kn_source s = kn_cache_source(w, sg, cache, k);
    kn_lw_store(w, sg->cache_buffer[cache], kn_cache_slot(w, &sg->g->caches[cache], n, size, k), kn_lw_read(w, s.buffer, s.at, lanes));
}

/* Elements lo .. hi - 1 of a row in vectors, the last of which moves back to end with the row. The statement whose `other` branch is to take the
 * rows too short for that; NULL: there are none, *done, or vectors do not fit at all. */
static kn_ls *copy_vectors(kn_lw *w, kn_sg *sg, int cache, int n, const int64_t *size, kn_expr **k, kn_expr *lo, kn_expr *hi, bool *done)
{
    int64_t row = size[row_dim(w, sg, cache, n, size)];
    int lanes = w->hw->vector_bytes / kn_dtype_bytes(w->p->buffers[sg->cache_buffer[cache]].dtype);
    *done = false;
    if (w->hw->gpu || lanes > 64) return NULL;
    kn_expr *len = kn_lw_let(w, "len", kn_bin(w->a, KN_OP_SUB, hi, lo));
    while (lanes > (len->op == KN_OP_CONST_I ? len->u.i : row)) lanes /= 2;
    if (lanes < 4) return NULL;
    kn_expr *fits = kn_lw_simp(w, kn_lw_node(w, KN_OP_LE, KN_BOOL, 1, kn_lw_int(w, lanes), len, NULL));
    if (fits->op == KN_OP_CONST_I && !fits->u.i) return NULL;
    kn_ls *cond = fits->op == KN_OP_CONST_I ? NULL : kn_lw_if(w, fits), **after = w->tail;
    if (cond) w->tail = &cond->body;
    int var = kn_lw_var(w, "v", 0, row / lanes - 1);
    kn_ls *loop = kn_lw_for(w, var, kn_lw_int(w, 0), kn_lw_simp(w, kn_bin(w->a, KN_OP_FLOORDIV, len, kn_lw_int(w, lanes))));
    if (!loop) return NULL;
    kn_ls **here = w->tail;
    w->tail = &loop->body;
    copy_vector(w, sg, cache, n, size, k, kn_bin(w->a, KN_OP_ADD, lo, kn_bin(w->a, KN_OP_MUL, kn_lw_ref(w, var), kn_lw_int(w, lanes))), lanes);
    w->tail = here;
    if (len->op != KN_OP_CONST_I || len->u.i % lanes) copy_vector(w, sg, cache, n, size, k, kn_bin(w->a, KN_OP_SUB, hi, kn_lw_int(w, lanes)), lanes);
    if (cond) w->tail = after;
    *done = !cond;
    return cond;
}

/* The padding's value at elements from .. to - 1 of a row, in few vectors; false: they would be many, or how many there are is not known. */
static bool pad_vectors(kn_lw *w, kn_sg *sg, int cache, int n, const int64_t *size, kn_expr **k, const kn_expr *from, const kn_expr *to)
{
    enum { MANY = 4, LEAST = 4 };
    const kn_cache *c = &sg->g->caches[cache];
    int64_t lanes = w->hw->vector_bytes / kn_dtype_bytes(w->p->buffers[sg->cache_buffer[cache]].dtype);
    if (w->hw->gpu || from->op != KN_OP_CONST_I || to->op != KN_OP_CONST_I || to->u.i - from->u.i < LEAST || lanes > 64) return false;
    if (to->u.i - from->u.i > MANY * lanes) return false;
    for (int64_t at = from->u.i; at < to->u.i; at += lanes) {
        while (lanes > to->u.i - at) lanes /= 2;
        k[row_dim(w, sg, cache, n, size)] = kn_lw_int(w, at);
        kn_source s = kn_cache_source(w, sg, cache, k);
        kn_lw_store(w, sg->cache_buffer[cache], kn_cache_slot(w, c, n, size, k), lanes > 1 ? kn_lw_splat(w, s.pad, (int)lanes) : s.pad);
    }
    return true;
}

/* Where what a row holds begins and ends is not known, but to a few elements: padding is written up to the last place where it may begin, and from
 * the first one where it may end, and what it holds over that. */
static bool pads_first(kn_lw *w, kn_expr **lo, kn_expr **hi)
{
    enum { FEW = 8 };
    int64_t first, begin, end, last;
    if (w->hw->gpu || ((*lo)->op == KN_OP_CONST_I && (*hi)->op == KN_OP_CONST_I)) return false;
    kn_lw_range(w, *lo, &first, &begin);
    kn_lw_range(w, *hi, &end, &last);
    if (begin - first > FEW || last - end > FEW || begin > end) return false;
    *lo = kn_lw_int(w, begin);
    *hi = kn_lw_int(w, end);
    return true;
}

/* Row-wise fill of a box: the test of the outer dimensions is made once a row, the row is zero, copy, zero. */
static void fill_row(kn_lw *w, kn_sg *sg, int cache, int n, const int64_t *size, kn_expr **k)
{
    const kn_cache *c = &sg->g->caches[cache];
    const kn_expr *load = sg->loads[c->load];
    const kn_tensor *x = &w->p->program->tensors[load->u.tensor];
    int d = row_dim(w, sg, cache, n, size);
    for (int i = d; i < n; i++) k[i] = kn_lw_int(w, 0);
    kn_expr *ok = NULL;
    for (int i = 0; i < n; i++)
        if (i != d) ok = kn_lw_and(w, ok, kn_lw_in_dim(w, kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, sg->cache_base[cache][i], k[i])), x->shape[i]));
    kn_expr *base = sg->cache_base[cache][d], *len = kn_lw_int(w, size[d]), *zero = kn_lw_int(w, 0);
    kn_expr *lo = kn_lw_simp(w, kn_bin(w->a, KN_OP_MIN, len, kn_bin(w->a, KN_OP_MAX, zero, kn_bin(w->a, KN_OP_SUB, zero, base))));
    kn_expr *hi = kn_bin(w->a, KN_OP_MIN, len, kn_bin(w->a, KN_OP_SUB, kn_lw_int(w, x->shape[d]), base));
    hi = kn_lw_simp(w, kn_bin(w->a, KN_OP_MAX, lo, hi));
    lo = kn_lw_let(w, "lo", lo);
    hi = kn_lw_let(w, "hi", hi);
    kn_ls *cond = ok ? kn_lw_if(w, ok) : NULL;
    kn_ls **after = w->tail;
    if (ok && !cond) return;
    if (cond) w->tail = &cond->body;
    static const int in_order[] = { 0, 1, 2, 3 }, padding_first[] = { 0, 2, 1, 3 };
    kn_expr *begins = lo, *ends = hi;
    const int *order = pads_first(w, &begins, &ends) ? padding_first : in_order;
    for (int i = 0; i < (ok ? 4 : 3); i++) {
        int part = order[i];
        kn_expr *from = part == 1 ? lo : part == 2 ? ends : zero, *to = part == 0 ? begins : part == 1 ? hi : len;
        if (from->op == KN_OP_CONST_I && to->op == KN_OP_CONST_I && from->u.i >= to->u.i) continue;
        if (cond && part == 3) w->tail = &cond->other;
        bool done = part != 1 && pad_vectors(w, sg, cache, n, size, k, from, to);
        if (done) continue;
        kn_ls *vectors = part == 1 ? copy_vectors(w, sg, cache, n, size, k, from, to, &done) : NULL, **here = w->tail;
        if (done) continue;
        if (vectors) w->tail = &vectors->other;
        int var = kn_lw_var(w, "x", 0, size[d] - 1);
        kn_ls *loop = kn_lw_for(w, var, from, to);
        if (!loop) return;
        if (!vectors) here = w->tail;
        w->tail = &loop->body;
        k[d] = kn_lw_ref(w, var);
        kn_source s = kn_cache_source(w, sg, cache, k);
        kn_lw_store(w, sg->cache_buffer[cache], kn_cache_slot(w, c, n, size, k), part == 1 ? kn_lw_read(w, s.buffer, s.at, 1) : s.pad);
        w->tail = here;
    }
    if (cond) w->tail = after;
}

/* x // c for every x // c and x % c in e that varies with var: where none of them changes along a run, e is affine in var there. */
static kn_expr *same_digits(kn_lw *w, const kn_expr *e, int var, int64_t last, kn_expr *so_far)
{
    if (!kn_lw_uses(e, var)) return so_far;
    for (int i = 0; i < e->nargs; i++) so_far = same_digits(w, e->args[i], var, last, so_far);
    if (e->op != KN_OP_FLOORDIV && e->op != KN_OP_MOD) return so_far;
    kn_expr *q = kn_bin(w->a, KN_OP_FLOORDIV, e->args[0], e->args[1]);
    if (!q) return so_far;
    kn_expr *x = kn_lw_at_lane(w, q, var, kn_lw_int(w, 0)), *y = kn_lw_at_lane(w, q, var, kn_lw_int(w, last));
    return kn_expr_equal(x, y) ? so_far : kn_lw_and(w, so_far, kn_lw_node(w, KN_OP_EQ, KN_BOOL, 1, x, y, NULL));
}

/* The run goes along a spatial axis, which nothing but the axis's end cuts off: what stands behind it in memory may be copied too, since results
 * past the end are stored nowhere. */
static bool runs_over(const kn_lw *w, const kn_sg *sg, int cache, int inner)
{
    const kn_cache *c = &sg->g->caches[cache];
    const kn_expr *load = sg->loads[c->load];
    int axis = c->region ? -1 : sg->g->loops[c->loops[inner]].axis;
    return axis >= 0 && axis < sg->s->nspatial && !load->padded && !kn_lw_strays(w, sg, load, UINT32_MAX) && sg->s->red != KN_RED_NONE;
}

/* A run of many elements in vectors, the last of which moves back to end with it. */
static void fill_vectors(kn_lw *w, kn_sg *sg, int cache, int n, const int64_t *size, kn_expr **k, int inner, int lanes)
{
    const kn_cache *c = &sg->g->caches[cache];
    int64_t m = size[inner], whole = m / lanes;
    int var = kn_lw_var(w, "v", 0, whole - 1);
    for (int part = 0; part < 1 + (m % lanes > 0); part++) {
        bool alone = part || whole == 1;
        kn_ls *loop = alone ? NULL : kn_lw_for(w, var, kn_lw_int(w, 0), kn_lw_int(w, whole)), **after = w->tail;
        if (!alone && !loop) return;
        if (loop) w->tail = &loop->body;
        k[inner] = alone ? kn_lw_int(w, part ? m - lanes : 0) : kn_bin(w->a, KN_OP_MUL, kn_lw_ref(w, var), kn_lw_int(w, lanes));
        kn_source s = kn_cache_source(w, sg, cache, k);
        kn_lw_store(w, sg->cache_buffer[cache], kn_cache_slot(w, c, n, size, k), kn_lw_read(w, s.buffer, s.at, lanes));
        if (loop) w->tail = after;
    }
}

/* The same where it lies from end to end in the source, and all of it is there; else element by element. A run shorter than a vector (the rows of a
 * register tile) takes two of a half or a quarter of its lanes. false: it is too short for these, or does not lie so. */
static bool fill_long_run(kn_lw *w, kn_sg *sg, int cache, int n, const int64_t *size, kn_expr **k, int inner, const kn_source *s, int var)
{
    enum { SHORTEST = 16 }; /* bytes of a vector */
    int bytes = kn_dtype_bytes(w->p->buffers[sg->cache_buffer[cache]].dtype), lanes = w->hw->vector_bytes / bytes;
    int64_t m = size[inner];
    while (lanes > m) lanes /= 2;
    if (w->hw->gpu || inner != n - 1 || lanes < 2 || lanes * bytes < SHORTEST || m == lanes || !kn_lw_unit_stride(s->at, var)) return false;
    kn_expr *all = NULL;
    if (s->cond) all = kn_lw_and(w, kn_lw_at_lane(w, s->cond, var, kn_lw_int(w, 0)), kn_lw_at_lane(w, s->cond, var, kn_lw_int(w, m - 1)));
    if (s->cond) all = same_digits(w, s->cond, var, m - 1, all);
    kn_ls *cond = all ? kn_lw_if(w, all) : NULL, **after = w->tail;
    if (all && !cond) return true;
    if (cond) w->tail = &cond->body;
    fill_vectors(w, sg, cache, n, size, k, inner, lanes);
    if (!cond) return true;
    w->tail = &cond->other;
    kn_ls *loop = kn_lw_for(w, var, kn_lw_int(w, 0), kn_lw_int(w, m));
    if (!loop) return true;
    w->tail = &loop->body;
    k[inner] = kn_lw_ref(w, var);
    kn_lw_store(w, sg->cache_buffer[cache], kn_cache_slot(w, &sg->g->caches[cache], n, size, k), kn_source_value(w, s));
    w->tail = after;
    return true;
}

/* Elements of a run along an axis, in pieces of all that are of one length, that are there of the axis's last piece; 0: none, or not known. */
static int64_t left_over(const kn_sg *sg, const kn_cache *c, int inner, int64_t m)
{
    if (c->region || sg->loads[c->load]->padded) return 0;
    return sg->s->axes[sg->g->loops[c->loops[inner]].axis].extent % m;
}

/* Elements from..to of the run in vectors, halves of vectors and so on: as they are in the source, or what stands for those that are not. */
static void fill_pieces(kn_lw *w, kn_sg *sg, int cache, int n, const int64_t *size, kn_expr **k, int inner, int64_t from, int64_t to, bool there)
{
    for (int64_t x = from, lanes; x < to; x += lanes) {
        for (lanes = 64; lanes > to - x; lanes /= 2) {}
        k[inner] = kn_lw_int(w, x);
        kn_source s = kn_cache_source(w, sg, cache, k);
        kn_expr *value = !there ? kn_lw_splat(w, s.pad, (int)lanes) : kn_lw_read(w, s.buffer, s.at, (int)lanes);
        kn_lw_store(w, sg->cache_buffer[cache], kn_cache_slot(w, &sg->g->caches[cache], n, size, k), value);
    }
}

/* A run of m elements whose source is an axis's last piece, which has `some` of them (where `left`), or lies past its end (begins is false): neither
 * is copied element by element, with a test for each (an AMX product of 3136x24 by 24x144 bytes: three quarters of its time). False: it is some
 * other run. */
static bool fill_last(kn_lw *w, kn_sg *sg, int cache, int n, const int64_t *size, kn_expr **k, int inner, kn_expr *begins,
                      kn_expr *left, int64_t some)
{
    int64_t m = size[inner];
    if (!left) return false;
    kn_ls *first = begins ? kn_lw_if(w, begins) : NULL;
    if (first) {
        w->tail = &first->other;
        fill_pieces(w, sg, cache, n, size, k, inner, 0, m, false);
        w->tail = &first->body;
    }
    kn_ls *last = kn_lw_if(w, left);
    if (!last) return true;
    w->tail = &last->body;
    fill_pieces(w, sg, cache, n, size, k, inner, 0, some, true);
    fill_pieces(w, sg, cache, n, size, k, inner, some, m, false);
    w->tail = &last->other;
    return true;
}

/* Copies of one innermost run: a vector where the source is contiguous and wholly there, else element by element. */
static void fill_run(kn_lw *w, kn_sg *sg, int cache, int n, const int64_t *size, kn_expr **k, int inner, bool whole)
{
    const kn_cache *c = &sg->g->caches[cache];
    int64_t m = size[inner];
    int var = kn_lw_var(w, "x", 0, m - 1);
    k[inner] = kn_lw_ref(w, var);
    kn_source s = kn_cache_source(w, sg, cache, k);
    if (whole) s.cond = NULL;
    int buffer = sg->cache_buffer[cache];
    bool vector = inner == n - 1 && m >= 2 && m <= 64 && !(m & (m - 1)) && kn_lw_unit_stride(s.at, var);
    if (!vector && fill_long_run(w, sg, cache, n, size, k, inner, &s, var)) return;
    kn_ls **after = w->tail;
    if (vector) {
        kn_expr *first = kn_lw_int(w, 0), *last = kn_lw_int(w, m - 1), *all = NULL, *from = kn_lw_at_lane(w, s.at, var, first);
        bool over = s.cond && runs_over(w, sg, cache, inner);
        kn_expr *begins = s.cond ? kn_lw_at_lane(w, s.cond, var, first) : NULL; /* the run does */
        if (begins && begins->op == KN_OP_CONST_I && begins->u.i) begins = NULL;
        all = begins;
        if (over) all = kn_lw_and(w, all, kn_lw_below(w, kn_lw_at_lane(w, s.at, var, last), w->p->buffers[s.buffer].elems));
        else if (s.cond) all = same_digits(w, s.cond, var, m - 1, kn_lw_and(w, all, kn_lw_at_lane(w, s.cond, var, last)));
        kn_ls *cond = all ? kn_lw_if(w, all) : NULL;
        if (all && !cond) return;
        after = w->tail;
        if (cond) w->tail = &cond->body;
        k[inner] = first;
        kn_expr *slot = kn_cache_slot(w, c, n, size, k);
        kn_lw_store(w, buffer, slot, kn_lw_read(w, s.buffer, from, (int)m));
        if (!cond) return;
        w->tail = &cond->other;
        bool digits = same_digits(w, s.cond, var, m - 1, NULL) != NULL; /* then a run may break elsewhere, too */
        int64_t part = over || digits ? 0 : left_over(sg, c, inner, m);
        kn_expr *left = part ? kn_lw_at_lane(w, s.cond, var, kn_lw_int(w, part - 1)) : NULL;
        bool done = fill_last(w, sg, cache, n, size, k, inner, begins, left, part);
        kn_ls *some = !done && over && begins ? kn_lw_if(w, begins) : NULL;
        if (some) {
            w->tail = &some->other;
            kn_lw_store(w, buffer, slot, kn_lw_splat(w, s.pad, (int)m));
            w->tail = &some->body;
        }
        k[inner] = kn_lw_ref(w, var);
    }
    kn_ls *loop = kn_lw_for(w, var, kn_lw_int(w, 0), kn_lw_int(w, m));
    if (!loop) return;
    if (!vector) after = w->tail;
    w->tail = &loop->body;
    kn_lw_store(w, buffer, kn_cache_slot(w, c, n, size, k), kn_source_value(w, &s));
    w->tail = after;
}

/* The dimension to copy along: the buffer's last, unless the source is contiguous along another one only. The others, outermost first, as the
 * source is walked from end to end: memory is read in long runs, and what is written is near. step: elements of the source from one position of a
 * dimension to the next, 0: not known. */
static int nest_order(kn_lw *w, kn_sg *sg, int cache, int n, const int64_t *size, int *order, int64_t *step)
{
    kn_expr *k[KILN_MAX_LOOPS] = { NULL };
    int first = w->p->nvars, best = n - 1, m = 0;
    for (int i = 0; i < n; i++) kn_lw_var(w, "k", 0, size[i] - 1);
    for (int i = 0; i < n; i++) k[i] = kn_lw_ref(w, first + i);
    kn_expr *at = kn_cache_source(w, sg, cache, k).at;
    bool affine = true;
    for (int i = 0; i < n; i++) {
        if (!kn_lw_coefficient(at, first + i, &step[i])) step[i] = 0, affine = false;
        if (size[i] > size[best] && kn_lw_unit_stride(at, first + i) && !kn_lw_unit_stride(at, first + n - 1)) best = i;
    }
    for (int i = 0; i < n; i++) {
        if (i == best) continue;
        int p = m++;
        for (; affine && p > 0 && llabs(step[order[p - 1]]) < llabs(step[i]); p--) order[p] = order[p - 1];
        order[p] = i;
    }
    return best;
}

/* Runs of the source that lie some thousand bytes apart, in a tensor that L2 does not hold: no hardware prefetcher follows them from page to page.
 * The dimension along which they lie apart, the innermost such, and the elements of a run; -1: memory is read in order, or is near. */
static int rows_apart(kn_lw *w, kn_sg *sg, int cache, int n, const int64_t *size, const int *order, int inner, int64_t *run)
{
    const kn_hw_level *l2 = kn_hw_level_named(w->hw, "l2");
    const kn_tensor *x = &w->p->program->tensors[sg->loads[sg->g->caches[cache].load]->u.tensor];
    kn_expr *k[KILN_MAX_LOOPS] = { NULL };
    int first = w->p->nvars, bytes = kn_dtype_bytes(x->dtype);
    int64_t all = bytes, step;
    for (int i = 0; i < x->rank; i++) all *= x->shape[i];
    if (!l2 || all <= l2->capacity_bytes || n < 2) return -1;
    for (int i = 0; i < n; i++) kn_lw_var(w, "k", 0, size[i] - 1);
    for (int i = 0; i < n; i++) k[i] = kn_lw_ref(w, first + i);
    kn_expr *at = kn_cache_source(w, sg, cache, k).at;
    if (!kn_lw_unit_stride(at, first + inner)) return -1;
    *run = size[inner];
    for (int m = n - 2; m >= 0; m--) {
        if (order[m] == inner) continue;
        if (!kn_lw_coefficient(at, first + order[m], &step)) return -1;
        if (step == *run) *run *= size[order[m]];
        else return step * bytes >= KN_ROWS_APART && *run * bytes < KN_PAGE_BYTES && size[order[m]] > 4 ? order[m] : -1;
    }
    return -1;
}

/* The run that a few steps of dimension `row` further on will be copied. */
static void prefetch_run(kn_lw *w, kn_sg *sg, int cache, int n, kn_expr *const *k, int row, int64_t run)
{
    enum { LEAST = 4, MOST = 8, BYTES = 2048, LINE = 64 };
    kn_expr *at[KILN_MAX_LOOPS];
    int64_t bytes = kn_dtype_bytes(sg->loads[sg->g->caches[cache].load]->dtype), ahead = BYTES / (run * bytes);
    ahead = ahead < LEAST ? LEAST : ahead > MOST ? MOST : ahead;
    for (int i = 0; i < n; i++) at[i] = k[i] ? k[i] : kn_lw_int(w, 0);
    at[row] = kn_bin(w->a, KN_OP_ADD, at[row], kn_lw_int(w, ahead));
    kn_source s = kn_cache_source(w, sg, cache, at);
    kn_lw_prefetch_lines(w, s.buffer, s.at, kn_ceil_div(run * bytes, LINE), LINE / bytes, false);
}

static void fill_nest(kn_lw *w, kn_sg *sg, int cache, bool whole)
{
    enum { WRITTEN_OUT = 4 };
    const kn_cache *c = &sg->g->caches[cache];
    int64_t size[KILN_MAX_LOOPS], step[KILN_MAX_LOOPS] = { 0 }, run = 0;
    int n = kn_cache_dims(sg, c, cache, size);
    kn_expr *k[KILN_MAX_LOOPS] = { NULL };
    kn_ls **after = NULL;
    int order[KILN_MAX_LOOPS] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    int inner = !c->region ? nest_order(w, sg, cache, n, size, order, step) : n ? row_dim(w, sg, cache, n, size) : -1;
    int64_t joined = 1;
    kn_square_dims square;
    if (kn_lw_squares(w, sg, cache, n, size, step, &square)) {
        kn_lw_fill_squares(w, sg, cache, n, size, order, inner, &square, whole);
        return;
    }
    int join = n - 3;
    bool zipped = !c->region && kn_lw_zips(w, sg, cache, n, size, inner, &joined, &join);
    bool row_at_once = zipped && n == 3 && order[1] == 0 && size[0] > joined && size[0] <= WRITTEN_OUT * joined &&
                       !kn_lw_strays(w, sg, sg->loads[c->load], UINT32_MAX);
    int row = w->hw->gpu || zipped ? -1 : rows_apart(w, sg, cache, n, size, order, inner, &run);
    for (int m = 0; m + 1 < n; m++) {
        int i = c->region ? m : order[m];
        if ((zipped && i == n - 1) || (c->region && i >= inner) || (row_at_once && i == 0)) continue;
        int64_t by = zipped && i == join ? joined : 1;
        int var = kn_lw_var(w, "k", 0, size[i] / by - 1);
        kn_ls *loop = kn_lw_for(w, var, kn_lw_int(w, 0), kn_lw_int(w, size[i] / by));
        if (!loop) return;
        if (!after) after = w->tail;
        w->tail = &loop->body;
        k[i] = by > 1 ? kn_bin(w->a, KN_OP_MUL, kn_lw_ref(w, var), kn_lw_int(w, by)) : kn_lw_ref(w, var);
        if (i == row) prefetch_run(w, sg, cache, n, k, row, run);
    }
    if (!n) {
        kn_source s = kn_cache_source(w, sg, cache, k);
        kn_lw_store(w, sg->cache_buffer[cache], kn_lw_int(w, 0), kn_source_value(w, &s));
    } else if (row_at_once) {
        kn_lw_fill_zipped_row(w, sg, cache, size, k, joined, whole);
    } else if (zipped) {
        kn_lw_fill_zipped(w, sg, cache, n, size, k, joined, join, whole);
    } else if (c->region) {
        fill_row(w, sg, cache, n, size, k);
    } else {
        fill_run(w, sg, cache, n, size, k, inner, whole);
    }
    if (after) w->tail = after;
}

kn_expr *kn_cache_whole(kn_lw *w, kn_sg *sg, int cache)
{
    const kn_cache *c = &sg->g->caches[cache];
    kn_expr *k[KILN_MAX_LOOPS] = { NULL };
    for (int i = 0; i < c->nloops; i++) k[i] = kn_lw_int(w, kn_cache_dim(sg->g, c, i) - 1);
    return kn_cache_source(w, sg, cache, k).cond;
}

static void fill_scratch(kn_lw *w, kn_sg *sg, int cache)
{
    const kn_cache *c = &sg->g->caches[cache];
    if (c->region || kn_lw_strays(w, sg, sg->loads[c->load], UINT32_MAX)) {
        fill_nest(w, sg, cache, false);
        return;
    }
    kn_expr *whole = kn_cache_whole(w, sg, cache);
    kn_ls *cond = whole ? kn_lw_if(w, whole) : NULL;
    kn_ls **after = w->tail;
    if (cond) w->tail = &cond->body;
    fill_nest(w, sg, cache, true);
    if (!cond) return;
    w->tail = &cond->other;
    fill_nest(w, sg, cache, false);
    w->tail = after;
}

void kn_lw_fill_part(kn_lw *w, kn_sg *sg, int cache) { fill_nest(w, sg, cache, false); }

void kn_lw_fill(kn_lw *w, kn_sg *sg, int cache)
{
    const kn_cache *c = &sg->g->caches[cache];
    if (c->region) region_box(w, sg, cache);
    if (w->status) return;
    if (c->last) kn_lw_fill_turned(w, sg, cache);
    else if (c->scope == KN_SHARED) kn_lw_fill_shared(w, sg, cache);
    else if (!kn_lw_fill_folded(w, sg, cache) && !kn_lw_fill_narrow(w, sg, cache)) fill_scratch(w, sg, cache);
}
