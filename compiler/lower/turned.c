/* Fills of boxes whose innermost dimension is not the one along which rows of the tensor run (planes of channels that become lanes): as many rows
 * as there are lanes are read in vectors, change places with their elements in registers, and are written as vectors of lanes. Rows of the tensor
 * that are no whole vectors are joined: squares are cut from all of them at once, and each column of a square finds its row in the box; what such
 * lanes hold past the end of their axis is stored nowhere but in scratch that has room for it. The planes that are turned next are asked for. */
#include "lower/cache.h"

enum { TURN_LANES = 16, AHEAD = 7 }; /* squares */

/* A run: `steps` of dimension `at` and all of the dimensions behind it, whose boxes are whole, of `unit` elements each step. */
typedef struct turned {
    kn_lw *w;
    kn_sg *sg;
    int cache, n, lane, at, lanes;  /* lane: the dimension that becomes the lanes */
    int64_t size[KILN_MAX_LOOPS], unit;
    int64_t begin, pitch, more;     /* rows joined: from where on the run has elements, those of a row of the tensor, and how many more the box has */
    int64_t rows;                   /* 1: the run is one of them */
    const kn_tensor *x;
    kn_expr *k[KILN_MAX_LOOPS];     /* position of the run in the box */
    kn_expr *row[TURN_LANES];       /* index of each lane in its dimension, kept inside */
} turned;

static kn_expr *base_of(const turned *f, int d) { return f->sg->cache_base[f->cache][d]; }

/* Rows past the end of their dimension are the last one once more: what is computed of them is stored nowhere. */
static void find_rows(turned *f, bool whole)
{
    kn_lw *w = f->w;
    for (int l = 0; l < f->lanes && !w->status; l++) {
        kn_expr *i = kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, base_of(f, f->lane), kn_lw_int(w, l)));
        if (!whole && kn_lw_below(w, i, f->x->shape[f->lane]))
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

/* Where the box has element x of the run. */
static kn_expr *slot(turned *f, kn_expr *x)
{
    const kn_cache *c = &f->sg->g->caches[f->cache];
    if (f->rows > 1) {
        kn_expr *row = kn_bin(f->w->a, KN_OP_FLOORDIV, kn_bin(f->w->a, KN_OP_SUB, x, kn_lw_int(f->w, f->begin)), kn_lw_int(f->w, f->pitch));
        x = kn_bin(f->w->a, KN_OP_ADD, x, kn_bin(f->w->a, KN_OP_MUL, row, kn_lw_int(f->w, f->more)));
    }
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

static int64_t longest(const turned *f) { return f->rows > 1 ? f->begin + f->rows * f->pitch : f->size[f->at] * f->unit; }

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

/* Elements from a plane to the one that becomes the same lane of the next vector. */
static int64_t planes_apart(const turned *f)
{
    int64_t n = f->lanes;
    for (int d = f->lane + 1; d < f->x->rank; d++) n *= f->x->shape[d];
    return n;
}

/* The rows lie so far apart that half of L2 does not hold what is between the first and the last: the hardware's prefetchers lose such runs, so each
 * is asked for some squares ahead. */
static bool loses_runs(const turned *f)
{
    const kn_hw_level *l2 = kn_hw_level_named(f->w->hw, "l2");
    return l2 && planes_apart(f) * kn_dtype_bytes(f->x->dtype) > l2->capacity_bytes / 2;
}

/* The planes that are turned next are asked for: those from far away that L2 holds with ease (depthwise windows, 16 to 32 images: 1.05 to 1.65 times
 * as fast), or nearer, where nothing else is read and they take half of L1 at most, since what becomes of these leaves memory time. */
static bool asks_for_planes(const turned *f)
{
    const kn_hw_level *l1 = kn_hw_level_named(f->w->hw, "l1"), *l2 = kn_hw_level_named(f->w->hw, "l2");
    int64_t bytes = planes_apart(f) * kn_dtype_bytes(f->x->dtype);
    bool far = kn_lw_beyond_l2(f->w, f->sg->loads[f->sg->g->caches[f->cache].load]->u.tensor);
    return (l2 && far && bytes <= l2->capacity_bytes / 4) || (l1 && f->sg->nloads == 1 && bytes <= l1->capacity_bytes / 2);
}

/* Where the box has the columns of a square. A division for each would take as long as what is done in registers: where the rows that the square
 * meets begin is found once, and a column compares itself with that. */
static void find_columns(turned *f, kn_expr *from, int64_t columns, kn_expr **at)
{
    kn_lw *w = f->w;
    kn_expr *begin = slot(f, from), *end[TURN_LANES], *first[TURN_LANES + 1];
    int64_t size = f->lanes + f->sg->g->caches[f->cache].pad;
    int n = 0;
    if (f->rows > 1) {
        kn_expr *past = kn_lw_simp(w, kn_bin(w->a, KN_OP_MOD, kn_bin(w->a, KN_OP_SUB, from, kn_lw_int(w, f->begin)), kn_lw_int(w, f->pitch)));
        first[0] = begin = kn_lw_let(w, "first", begin);
        for (int64_t row = f->pitch; row < columns + f->pitch - 1 && n < TURN_LANES; row += f->pitch, n++) {
            kn_expr *met = n ? kn_bin(w->a, KN_OP_SUB, kn_lw_int(w, f->pitch), end[0]) : past; /* of the first row, before the square */
            end[n] = kn_lw_let(w, "end", kn_bin(w->a, KN_OP_SUB, kn_lw_int(w, row), met));
            first[n + 1] = kn_lw_let(w, "first", kn_bin(w->a, KN_OP_ADD, begin, kn_lw_int(w, (n + 1) * f->more * size)));
        }
    }
    for (int64_t i = 0; i < columns && !w->status; i++) {
        int rows = i ? (int)((i - 1) / f->pitch) + 1 : 0;
        if (rows > n) rows = n;
        kn_expr *to = rows ? first[rows] : begin;
        for (int r = rows - 1; r >= 0; r--)
            to = kn_lw_node(w, KN_OP_SELECT, KN_I64, 1, kn_lw_node(w, KN_OP_LT, KN_BOOL, 1, kn_lw_int(w, i), end[r], NULL), first[r], to);
        at[i] = kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, to, kn_lw_int(w, i * size)));
    }
}

/* Where the plane of the first lane begins. */
static kn_expr *plane(turned *f)
{
    kn_expr *idx[KILN_MAX_RANK];
    for (int d = 0; d < f->n; d++) {
        idx[d] = d > f->lane ? kn_lw_int(f->w, 0) : d == f->lane ? f->row[0] : kn_bin(f->w->a, KN_OP_ADD, base_of(f, d), f->k[d]);
        if (!idx[d]) return &f->w->dry;
    }
    return kn_lw_address(f->w, f->sg->loads[f->sg->g->caches[f->cache].load]->u.tensor, idx);
}

/* As many lines as a square has of the planes that are turned next, one behind the other: those that lie where it would if they were not turned. */
static void ask_for_planes(turned *f, kn_expr *from)
{
    kn_lw *w = f->w;
    int tensor = f->sg->loads[f->sg->g->caches[f->cache].load]->u.tensor, buffer = kn_lw_tensor(w, tensor);
    int64_t line = KN_LINE_BYTES / kn_dtype_bytes(f->x->dtype);
    kn_expr *begin = plane(f), *in = kn_bin(w->a, KN_OP_SUB, source(f, 0, from), begin);
    kn_expr *at = in ? kn_bin(w->a, KN_OP_ADD, begin, kn_bin(w->a, KN_OP_MUL, in, kn_lw_int(w, f->lanes))) : NULL;
    if (!at) return;
    at = kn_lw_let(w, "next", kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, at, kn_lw_int(w, planes_apart(f)))));
    for (int64_t e = 0; e < f->lanes * f->lanes && !w->status; e += line) {
        kn_expr *to = kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, at, kn_lw_int(w, e)));
        if (kn_lw_beyond_l2(w, tensor)) kn_lw_prefetch_to_l2(w, buffer, to);
        else kn_lw_prefetch(w, buffer, to, false);
    }
}

/* The square whose first column is element `from` of the run; `columns` of its columns are kept. */
static void square(turned *f, kn_expr *from, int64_t columns)
{
    kn_lw *w = f->w;
    kn_expr *to[TURN_LANES];
    const kn_cache *c = &f->sg->g->caches[f->cache];
    bool lost = loses_runs(f);
    int tensor = kn_lw_tensor(w, f->sg->loads[c->load]->u.tensor), at = kn_lw_buffer(w, "turn", f->x->dtype, f->lanes, f->lanes, KN_REGISTER);
    for (int l = 0; l < f->lanes && !w->status; l++) {
        kn_expr *begin = source(f, l, from);
        kn_lw_store(w, at, kn_lw_int(w, l), kn_lw_read(w, tensor, begin, f->lanes));
        if (lost) kn_lw_prefetch(w, tensor, kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, begin, kn_lw_int(w, AHEAD * f->lanes))), false);
    }
    if (!lost && asks_for_planes(f)) ask_for_planes(f, from);
    at = kn_lw_transpose(w, at, f->x->dtype, f->lanes, 1);
    find_columns(f, from, columns, to);
    for (int64_t i = 0; i < columns && !w->status; i++)
        kn_lw_store(w, f->sg->cache_buffer[f->cache], to[i], kn_lw_read(w, at, kn_lw_int(w, i), f->lanes));
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

/* The indices of the dimensions outside of `end` are in range; NULL: always. */
static kn_expr *outside_in(turned *f, int end)
{
    kn_lw *w = f->w;
    kn_expr *in = NULL;
    for (int d = 0; d < end; d++)
        if (d != f->lane) in = kn_lw_and(w, in, kn_lw_in_dim(w, kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, base_of(f, d), f->k[d])), f->x->shape[d]));
    return in;
}

/* Those positions of the box along the dimension whose elements the tensor has. */
static void in_range(turned *f, int d, kn_expr **lo, kn_expr **hi)
{
    kn_lw *w = f->w;
    kn_expr *base = base_of(f, d), *zero = kn_lw_int(w, 0), *size = kn_lw_int(w, f->size[d]);
    *lo = kn_bin(w->a, KN_OP_MIN, size, kn_bin(w->a, KN_OP_MAX, zero, kn_bin(w->a, KN_OP_SUB, zero, base)));
    *hi = kn_bin(w->a, KN_OP_MAX, *lo, kn_bin(w->a, KN_OP_MIN, size, kn_bin(w->a, KN_OP_SUB, kn_lw_int(w, f->x->shape[d]), base)));
}

static int64_t clamp(int64_t x, int64_t lo, int64_t hi) { return x < lo ? lo : x > hi ? hi : x; }

/* The runs of the tensor's rows follow each other with nothing between them but what the box leaves out. Joined they are cut into squares with no
 * regard to where a row ends, if those are fewer: each element goes to the place in the box that its row gives it. What is left out lands where the
 * next row's elements or padding come later, which a row of the box has to have room for. */
static bool joins_rows(turned *f)
{
    int row = f->at - 1;
    if (row <= f->lane || f->size[row] < 2) return false;
    const kn_expr *base = base_of(f, f->at);
    if (base->op != KN_OP_CONST_I) return false;
    int64_t whole = f->x->shape[f->at], all = f->size[f->at], left = clamp(-base->u.i, 0, all), last = clamp(whole - base->u.i, left, all);
    int64_t used = (last - left) * f->unit, n = f->size[row];
    f->begin = left * f->unit;
    f->pitch = whole * f->unit;
    f->more = all * f->unit - f->pitch;
    if (used < 1 || f->begin + f->pitch > 2 * all * f->unit) return false;
    return kn_ceil_div((n - 1) * f->pitch + used, f->lanes) < n * kn_ceil_div(used, f->lanes);
}

/* The padding of the row at position k, on both sides. */
static void fill_sides(turned *f, kn_expr *lo, kn_expr *hi)
{
    kn_expr *unit = kn_lw_int(f->w, f->unit);
    fill_padding(f, kn_lw_int(f->w, 0), kn_lw_simp(f->w, kn_bin(f->w->a, KN_OP_MUL, lo, unit)));
    fill_padding(f, kn_lw_simp(f->w, kn_bin(f->w->a, KN_OP_MUL, hi, unit)), kn_lw_int(f->w, longest(f)));
}

/* Rows `from` to `to` - 1 of the box: their sides, or all of them. */
static void pad_rows(turned *f, kn_expr *from, kn_expr *to, kn_expr *lo, kn_expr *hi)
{
    kn_ls **after;
    kn_expr *r = each(f, "row", from, to, f->size[f->at - 1] - 1, &after);
    if (!r) return;
    f->k[f->at - 1] = r;
    fill_sides(f, lo, hi);
    f->w->tail = after;
}

/* All rows of the box at position k. */
static void fill_rows(turned *f)
{
    kn_lw *w = f->w;
    int row = f->at - 1;
    kn_expr *lo, *hi, *first, *last, *zero = kn_lw_int(w, 0), *all = kn_lw_int(w, f->size[f->at]), *in = outside_in(f, row);
    in_range(f, row, &first, &last);
    in_range(f, f->at, &lo, &hi);
    first = kn_lw_let(w, "first", kn_lw_simp(w, first));
    last = kn_lw_let(w, "last", kn_lw_simp(w, last));
    lo = kn_lw_simp(w, lo);
    hi = kn_lw_simp(w, hi);
    kn_ls *cond = in ? kn_lw_if(w, in) : NULL, **after = w->tail;
    if (cond) w->tail = &cond->body;
    kn_expr *rows = kn_bin(w->a, KN_OP_MUL, kn_bin(w->a, KN_OP_SUB, last, first), kn_lw_int(w, f->pitch));
    int64_t used = hi->op == KN_OP_CONST_I && lo->op == KN_OP_CONST_I ? (hi->u.i - lo->u.i) * f->unit : f->pitch;
    f->k[row] = first;
    f->rows = f->size[row];
    fill_elements(f, kn_lw_int(w, f->begin), kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, rows, kn_lw_int(w, f->begin + used - f->pitch))));
    f->rows = 1;
    pad_rows(f, zero, first, all, all);
    pad_rows(f, first, last, lo, hi);
    pad_rows(f, last, kn_lw_int(w, f->size[row]), all, all);
    if (cond) w->tail = &cond->other, pad_rows(f, zero, kn_lw_int(w, f->size[row]), all, all);
    w->tail = cond ? after : w->tail;
}

/* The run at position k: padding, elements, padding, or padding alone where another index is out of range. */
static void fill_run(turned *f)
{
    kn_lw *w = f->w;
    kn_expr *in = outside_in(f, f->at), *zero = kn_lw_int(w, 0), *all = kn_lw_int(w, longest(f)), *unit = kn_lw_int(w, f->unit), *lo, *hi;
    in_range(f, f->at, &lo, &hi);
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

static void fill(turned *f, bool whole)
{
    kn_lw *w = f->w;
    for (int d = 0; d < f->n; d++) f->k[d] = kn_lw_int(w, 0);
    find_rows(f, whole);
    find_run(f);
    bool joined = joins_rows(f);
    kn_ls **after = NULL;
    for (int d = 0; d < f->at - joined && !w->status; d++) {
        if (d == f->lane) continue;
        int var = kn_lw_var(w, "k", 0, f->size[d] - 1);
        kn_ls *loop = kn_lw_for(w, var, kn_lw_int(w, 0), kn_lw_int(w, f->size[d]));
        if (!loop) return;
        if (!after) after = w->tail;
        w->tail = &loop->body;
        f->k[d] = kn_lw_ref(w, var);
    }
    if (!w->status && joined) fill_rows(f);
    else if (!w->status) fill_run(f);
    if (after) w->tail = after;
}

/* Where some lanes of the last task have no row, the others' have code of their own: their rows lie evenly. */
void kn_lw_fill_turned(kn_lw *w, kn_sg *sg, int cache)
{
    turned *f = kn_new(w->a, turned);
    const kn_cache *c = &sg->g->caches[cache];
    if (!f) {
        kn_lw_fail(w, KILN_MEMORY, "out of memory in lowering");
        return;
    }
    *f = (turned){.w = w, .sg = sg, .cache = cache, .lane = c->last - 1, .rows = 1, .pitch = 1};
    f->x = &w->p->program->tensors[sg->loads[c->load]->u.tensor];
    f->n = kn_cache_dims(sg, c, cache, f->size);
    f->lanes = (int)f->size[f->lane];
    kn_expr *last = kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, base_of(f, f->lane), kn_lw_int(w, f->lanes - 1)));
    kn_expr *whole = kn_lw_below(w, last, f->x->shape[f->lane]);
    kn_ls *cond = whole && !kn_lw_never(whole) ? kn_lw_if(w, whole) : NULL, **after = w->tail;
    if (cond) {
        w->tail = &cond->body;
        fill(f, true);
        w->tail = &cond->other;
    }
    fill(f, false);
    if (cond) w->tail = after;
}
