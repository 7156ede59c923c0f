/* Fills of boxes whose rows have a few elements (the channels of an image): all rows of one step of the dimensions around them follow each other in
 * memory and are one run. Where the box has room for more elements than a row has (the terms of an instruction), the run is spread in registers. */
#include "lower/cache.h"

enum { SHORT = 64, SPREAD = 16 }; /* bytes: rows of more are copied for themselves; a vector that shuffles take in one step */

typedef struct narrow {
    kn_lw *w;
    kn_sg *sg;
    int cache, n, at;               /* dimensions, the one that steps from row to row */
    int64_t size[KILN_MAX_LOOPS], row, room; /* elements that a row has, and that it has room for */
    int bytes;
    const kn_tensor *x;
    kn_expr *k[KILN_MAX_LOOPS];     /* position in the box */
    kn_expr *lo, *hi;               /* rows of the run that are there */
} narrow;

static bool narrow_of(kn_lw *w, kn_sg *sg, int cache, narrow *f)
{
    const kn_cache *c = &sg->g->caches[cache];
    *f = (narrow){.w = w, .sg = sg, .cache = cache};
    if (!c->region || c->pad || c->last || w->hw->gpu) return false;
    const kn_expr *load = sg->loads[c->load];
    f->x = &w->p->program->tensors[load->u.tensor];
    f->n = kn_cache_dims(sg, c, cache, f->size);
    f->at = f->n - 2;
    f->bytes = kn_dtype_bytes(f->x->dtype);
    if (f->n < 2 || f->size[f->at] < 2) return false;
    const kn_expr *base = sg->cache_base[cache][f->n - 1];
    f->row = f->x->shape[f->n - 1], f->room = f->size[f->n - 1];
    if (base->op != KN_OP_CONST_I || base->u.i || f->row > f->room) return false;
    if (f->row == f->room) return f->room * f->bytes < SHORT;
    bool zero = !load->padded || load->pad_value == 0 || kn_dtype_class(f->x->dtype) != 'f';
    return zero && 2 * f->room * f->bytes <= SPREAD && !(f->room & (f->room - 1)) && f->x->dtype != KN_BOOL;
}

static kn_expr *plus(narrow *f, kn_expr *x, kn_expr *y)
{
    kn_expr *e = kn_bin(f->w->a, KN_OP_ADD, x, y);
    return e ? kn_lw_simp(f->w, e) : &f->w->dry;
}

static kn_expr *times(narrow *f, kn_expr *x, int64_t n)
{
    kn_expr *e = kn_bin(f->w->a, KN_OP_MUL, x, kn_lw_int(f->w, n));
    return e ? kn_lw_simp(f->w, e) : &f->w->dry;
}

static kn_expr *minus(narrow *f, kn_expr *x, kn_expr *y)
{
    kn_expr *e = kn_bin(f->w->a, KN_OP_SUB, x, y);
    return e ? kn_lw_simp(f->w, e) : &f->w->dry;
}

/* Element `x` behind row `r` of the run: in the tensor, and in the box. */
static kn_source source(narrow *f, kn_expr *r, kn_expr *x)
{
    f->k[f->at] = r, f->k[f->n - 1] = kn_lw_int(f->w, 0);
    kn_source s = kn_cache_source(f->w, f->sg, f->cache, f->k);
    s.at = plus(f, s.at, x);
    return s;
}

static kn_expr *slot(narrow *f, kn_expr *r, kn_expr *x)
{
    f->k[f->at] = r, f->k[f->n - 1] = kn_lw_int(f->w, 0);
    return plus(f, kn_cache_slot(f->w, &f->sg->g->caches[f->cache], f->n, f->size, f->k), x);
}

static int buffer(const narrow *f) { return f->sg->cache_buffer[f->cache]; }

/* Opens a loop from lo to hi, behind which *after is; its variable. NULL: there is nothing to do, or no memory. */
static kn_expr *each(narrow *f, const char *name, kn_expr *lo, kn_expr *hi, int64_t most, kn_ls ***after)
{
    if (lo->op == KN_OP_CONST_I && hi->op == KN_OP_CONST_I && lo->u.i >= hi->u.i) return NULL;
    int var = kn_lw_var(f->w, name, 0, most);
    kn_ls *loop = kn_lw_for(f->w, var, lo, hi);
    if (!loop) return NULL;
    *after = f->w->tail;
    f->w->tail = &loop->body;
    return kn_lw_ref(f->w, var);
}

static void fill_padding(narrow *f, kn_expr *lo, kn_expr *hi)
{
    const kn_expr *load = f->sg->loads[f->sg->g->caches[f->cache].load];
    kn_expr *pad = kn_lw_zero(f->w, f->x->dtype, load->padded ? load->pad_value : 0);
    kn_ls **after;
    kn_expr *i = each(f, "x", times(f, lo, f->room), times(f, hi, f->room), f->size[f->at] * f->room - 1, &after);
    if (!i) return;
    kn_lw_store(f->w, buffer(f), slot(f, kn_lw_int(f->w, 0), i), pad);
    f->w->tail = after;
}

static void copy_vector(narrow *f, kn_expr *i, int lanes)
{
    kn_source s = source(f, f->lo, i);
    kn_lw_store(f->w, buffer(f), slot(f, f->lo, i), kn_lw_read(f->w, s.buffer, s.at, lanes));
}

/* Rows as they lie, in vectors, the last of which moves back to end with the run; a run that is shorter than one, element by element. */
static void copy_run(narrow *f)
{
    kn_lw *w = f->w;
    int64_t all = f->size[f->at] * f->room;
    int lanes = w->hw->vector_bytes / f->bytes;
    kn_expr *len = kn_lw_let(w, "len", times(f, minus(f, f->hi, f->lo), f->room)), *zero = kn_lw_int(w, 0);
    if (len->op == KN_OP_CONST_I) all = len->u.i;
    while (lanes > all || lanes > 64) lanes /= 2;
    kn_ls **after = w->tail, **loop;
    if (lanes >= 2) {
        kn_expr *fits = kn_lw_simp(w, kn_lw_node(w, KN_OP_LE, KN_BOOL, 1, kn_lw_int(w, lanes), len, NULL));
        kn_ls *cond = fits->op == KN_OP_CONST_I ? NULL : kn_lw_if(w, fits);
        after = w->tail;
        if (cond) w->tail = &cond->body;
        kn_expr *v = each(f, "v", zero, kn_lw_simp(w, kn_bin(w->a, KN_OP_FLOORDIV, len, kn_lw_int(w, lanes))), all / lanes - 1, &loop);
        if (!v) return;
        copy_vector(f, times(f, v, lanes), lanes);
        w->tail = loop;
        copy_vector(f, minus(f, len, kn_lw_int(w, lanes)), lanes);
        if (!cond) return;
        w->tail = &cond->other;
    }
    kn_expr *i = each(f, "x", zero, len, all - 1, &loop);
    if (i) copy_vector(f, i, 1);
    w->tail = after;
}

/* Rows one at a time: what a vector of them would read past the end of the run's last one may be nobody's. */
static void spread_rest(narrow *f, kn_expr *from)
{
    kn_lw *w = f->w;
    kn_ls **after;
    kn_expr *r = each(f, "x", from, f->hi, f->size[f->at] - 1, &after);
    if (!r) return;
    for (int64_t i = 0; i < f->room && !w->status; i++) {
        kn_source s = source(f, r, kn_lw_int(w, i));
        kn_lw_store(w, buffer(f), slot(f, r, kn_lw_int(w, i)), i < f->row ? kn_lw_read(w, s.buffer, s.at, 1) : s.pad);
    }
    w->tail = after;
}

/* A vector's worth of rows with room: fewer elements are read into it than it has, the rest is whatever comes behind them. */
static void spread_run(narrow *f)
{
    kn_lw *w = f->w;
    int lanes = SPREAD / f->bytes;
    int64_t rows = lanes / f->room, over = kn_ceil_div(lanes - rows * f->row, f->row), most = f->size[f->at] / rows;
    kn_expr *zero = kn_lw_int(w, 0), *len = minus(f, minus(f, f->hi, f->lo), kn_lw_int(w, over));
    len = kn_bin(w->a, KN_OP_FLOORDIV, kn_bin(w->a, KN_OP_MAX, zero, len), kn_lw_int(w, rows));
    if (!len) return;
    len = kn_lw_let(w, "len", kn_lw_simp(w, len));
    kn_ls **after;
    kn_expr *v = each(f, "v", zero, len, most > 0 ? most - 1 : 0, &after);
    if (v) {
        kn_expr *r = plus(f, f->lo, times(f, v, rows));
        kn_source s = source(f, r, zero);
        kn_expr *run = kn_lw_node(w, KN_OP_SPREAD, f->x->dtype, lanes, kn_lw_read(w, s.buffer, s.at, lanes), kn_lw_splat(w, s.pad, lanes), NULL);
        if (w->status) return;
        run->u.i = f->row, run->var = (int)f->room;
        kn_lw_store(w, buffer(f), slot(f, r, zero), run);
        w->tail = after;
    }
    spread_rest(f, plus(f, f->lo, times(f, len, rows)));
}

/* Condition that the run is there, but for rows outside of lo .. hi; NULL: it is. */
static kn_expr *find_ends(narrow *f)
{
    kn_lw *w = f->w;
    kn_expr *ok = NULL, *base = f->sg->cache_base[f->cache][f->at], *len = kn_lw_int(w, f->size[f->at]), *zero = kn_lw_int(w, 0);
    for (int i = 0; i < f->at; i++)
        ok = kn_lw_and(w, ok, kn_lw_in_dim(w, plus(f, f->sg->cache_base[f->cache][i], f->k[i]), f->x->shape[i]));
    kn_expr *lo = kn_bin(w->a, KN_OP_MIN, len, kn_bin(w->a, KN_OP_MAX, zero, minus(f, zero, base)));
    lo = lo ? kn_lw_simp(w, lo) : &w->dry;
    kn_expr *hi = kn_bin(w->a, KN_OP_MAX, lo, kn_bin(w->a, KN_OP_MIN, len, minus(f, kn_lw_int(w, f->x->shape[f->at]), base)));
    f->lo = kn_lw_let(w, "lo", lo);
    f->hi = kn_lw_let(w, "hi", hi ? kn_lw_simp(w, hi) : &w->dry);
    return ok;
}

bool kn_lw_fill_narrow(kn_lw *w, kn_sg *sg, int cache)
{
    narrow f;
    kn_ls **end = NULL, **after;
    if (!narrow_of(w, sg, cache, &f)) return false;
    for (int i = 0; i < f.at && !w->status; i++) {
        f.k[i] = each(&f, "k", kn_lw_int(w, 0), kn_lw_int(w, f.size[i]), f.size[i] - 1, &after);
        if (!f.k[i]) return true;
        if (!end) end = after;
    }
    kn_expr *ok = find_ends(&f), *zero = kn_lw_int(w, 0), *len = kn_lw_int(w, f.size[f.at]);
    kn_ls *cond = ok ? kn_lw_if(w, ok) : NULL;
    if (ok && !cond) return true;
    after = w->tail;
    if (cond) w->tail = &cond->body;
    fill_padding(&f, zero, f.lo);
    if (f.row == f.room) copy_run(&f);
    else spread_run(&f);
    fill_padding(&f, f.hi, len);
    if (cond) {
        w->tail = &cond->other;
        fill_padding(&f, zero, len);
        w->tail = after;
    }
    if (end) w->tail = end;
    return true;
}
