/* Fills of packed copies whose lanes lie rows apart in memory, while another of their dimensions goes along the rows (weights that are stored the
 * other way round): as many rows as there are lanes are read in vectors and change places with their elements in registers. Where the last dimension
 * is an instruction's 2 or 4 terms, which follow each other in memory, these stay together. */
#include "lower/cache.h"

enum { SQUARE_ROWS = 16 };

/* A square: `rows` lanes, and as many steps of the run, each of `unit` elements. */
typedef struct squares {
    kn_lw *w;
    kn_sg *sg;
    int cache, n;
    const int64_t *size;
    kn_expr **k;
    const kn_square_dims *d;
} squares;

/* Steps of the run whose elements the tensor has: all of them where nothing strays. An axis that was filled up to whole terms may do so behind the
 * dimension that it has for itself, if the run is all of it. 0: it strays otherwise. */
static int64_t steps_there(kn_lw *w, const kn_sg *sg, const kn_cache *c, const int64_t *size, const kn_square_dims *d)
{
    const kn_expr *load = sg->loads[c->load];
    int axis = sg->g->loops[c->loops[d->run]].axis;
    int64_t steps = size[d->run];
    for (int i = 0; i < load->nargs; i++) {
        if (!kn_lw_index_strays(w, sg, load, i)) continue;
        bool alone = load->args[i]->op == KN_OP_AXIS && load->args[i]->u.axis == axis, all = size[d->run] * d->unit >= sg->s->axes[axis].extent;
        if (!alone || !all) return 0;
        steps = w->p->program->tensors[load->u.tensor].shape[i] / d->unit;
    }
    return steps;
}

bool kn_lw_squares(kn_lw *w, kn_sg *sg, int cache, int n, const int64_t *size, const int64_t *step, kn_square_dims *d)
{
    const kn_cache *c = &sg->g->caches[cache];
    const kn_expr *load = sg->loads[c->load];
    *d = (kn_square_dims){ .run = -1, .unit = 1 };
    if (w->hw->gpu || c->region || c->pad || n < 2 || load->dtype == KN_BOOL) return false;
    bool terms = n > 2 && (size[n - 1] == 2 || size[n - 1] == 4) && step[n - 1] == 1;
    d->lane = terms ? n - 2 : n - 1;
    d->unit = terms ? (int)size[n - 1] : 1;
    int64_t rows = size[d->lane], apart = step[d->lane];
    bool results = sg->s->red != KN_RED_NONE && sg->g->loops[c->loops[d->lane]].axis < sg->s->nspatial; /* past their end nothing is stored */
    bool fits = rows >= 4 && rows <= SQUARE_ROWS && !(rows & (rows - 1)) && rows * d->unit * kn_dtype_bytes(load->dtype) <= w->hw->vector_bytes;
    if (!results || !fits || apart == 0 || apart == d->unit) return false;
    for (int i = 0; i < d->lane; i++) {
        bool one = sg->g->loops[c->loops[i]].axis == sg->g->loops[c->loops[d->lane]].axis; /* whose end would cut off both */
        if (!one && step[i] == d->unit && size[i] >= rows && (d->run < 0 || size[i] > size[d->run])) d->run = i;
    }
    d->steps = d->run < 0 ? 0 : steps_there(w, sg, c, size, d);
    return d->steps >= rows;
}

/* Goes to lane `lane` and step `step` of the run. */
static void go_to(squares *f, int64_t lane, kn_expr *step)
{
    if (f->d->unit > 1) f->k[f->n - 1] = kn_lw_int(f->w, 0);
    f->k[f->d->lane] = kn_lw_int(f->w, lane);
    f->k[f->d->run] = step;
}

/* some: rows that are not there are read at the first one's place instead, which is: what is computed of them is stored nowhere. */
static void square(squares *f, kn_expr *from, bool some)
{
    kn_lw *w = f->w;
    int rows = (int)f->size[f->d->lane], lanes = rows * f->d->unit, buffer = f->sg->cache_buffer[f->cache];
    enum kn_dtype t = w->p->buffers[buffer].dtype;
    int at = kn_lw_buffer(w, "turn", t, lanes, rows, KN_REGISTER);
    go_to(f, 0, from);
    kn_expr *first = kn_cache_source(w, f->sg, f->cache, f->k).at;
    for (int l = 0; l < rows && !w->status; l++) {
        go_to(f, l, from);
        kn_source s = kn_cache_source(w, f->sg, f->cache, f->k);
        if (some && s.cond && l) s.at = kn_lw_let(w, "row", kn_lw_node(w, KN_OP_SELECT, KN_I64, 1, s.cond, s.at, first));
        kn_lw_store(w, at, kn_lw_int(w, l), kn_lw_read(w, s.buffer, s.at, lanes));
    }
    at = kn_lw_transpose(w, at, t, rows, f->d->unit);
    for (int i = 0; i < rows && !w->status; i++) {
        go_to(f, 0, kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, from, kn_lw_int(w, i))));
        kn_lw_store(w, buffer, kn_cache_slot(w, &f->sg->g->caches[f->cache], f->n, f->size, f->k), kn_lw_read(w, at, kn_lw_int(w, i), lanes));
    }
}

/* Opens a loop of n iterations, behind which *after is, NULL: nobody asks; its variable. */
static kn_expr *each(kn_lw *w, const char *name, int64_t n, kn_ls ***after)
{
    int var = kn_lw_var(w, name, 0, n - 1);
    kn_ls *loop = kn_lw_for(w, var, kn_lw_int(w, 0), kn_lw_int(w, n));
    if (!loop) return &w->dry;
    if (after) *after = w->tail;
    w->tail = &loop->body;
    return kn_lw_ref(w, var);
}

/* Steps from `from` on, so many. */
static void element_by_element(squares *f, kn_expr *from, int64_t steps)
{
    kn_lw *w = f->w;
    kn_ls **after;
    kn_expr *step = each(w, "x", steps, &after);
    f->k[f->d->run] = kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, from, step));
    f->k[f->d->lane] = each(w, "k", f->size[f->d->lane], NULL);
    if (f->d->unit > 1) f->k[f->n - 1] = each(w, "k", f->d->unit, NULL);
    if (w->status) return;
    kn_source s = kn_cache_source(w, f->sg, f->cache, f->k);
    kn_lw_store(w, f->sg->cache_buffer[f->cache], kn_cache_slot(w, &f->sg->g->caches[f->cache], f->n, f->size, f->k), kn_source_value(w, &s));
    w->tail = after;
}

/* Where the last of a square's steps is there in the lane; NULL: always. */
static kn_expr *there(squares *f, kn_expr *from, int64_t lane)
{
    go_to(f, lane, kn_lw_simp(f->w, kn_bin(f->w->a, KN_OP_ADD, from, kn_lw_int(f->w, f->size[f->d->lane] - 1))));
    if (f->d->unit > 1) f->k[f->n - 1] = kn_lw_int(f->w, f->d->unit - 1);
    return kn_cache_source(f->w, f->sg, f->cache, f->k).cond;
}

/* The square from step `from` on, or what there is of it: upper bounds of axes are all there is to ask. */
static void fill_some(squares *f, kn_expr *from)
{
    kn_lw *w = f->w;
    kn_expr *first = there(f, from, 0);
    kn_ls *cond = first ? kn_lw_if(w, first) : NULL, **after = w->tail;
    if (cond) w->tail = &cond->body;
    square(f, from, true);
    if (!cond) return;
    w->tail = &cond->other;
    element_by_element(f, from, f->size[f->d->lane]);
    w->tail = after;
}

/* The same. Where tasks of which all is there have no code of their own, each square has. */
static void fill_from(squares *f, kn_expr *from, bool whole)
{
    kn_lw *w = f->w;
    bool each_asks = !whole && f->d->steps < f->size[f->d->run];
    kn_expr *all = each_asks ? there(f, from, f->size[f->d->lane] - 1) : NULL;
    kn_ls *cond = all ? kn_lw_if(w, all) : NULL, **after = w->tail;
    if (cond) w->tail = &cond->body;
    if (whole || each_asks) square(f, from, false);
    else fill_some(f, from);
    if (!cond) return;
    w->tail = &cond->other;
    fill_some(f, from);
    w->tail = after;
}

/* order: the dimensions but `inner`, outermost first. */
void kn_lw_fill_squares(kn_lw *w, kn_sg *sg, int cache, int n, const int64_t *size, const int *order, int inner, const kn_square_dims *d, bool whole)
{
    kn_expr *k[KILN_MAX_LOOPS] = { NULL };
    squares f = { .w = w, .sg = sg, .cache = cache, .n = n, .size = size, .k = k, .d = d };
    int64_t rows = size[d->lane], all = d->steps;
    kn_ls **after = w->tail, **outside = NULL;
    for (int m = 0; m < n && !w->status; m++) {
        int i = m + 1 < n ? order[m] : inner;
        if (i == d->lane || i == d->run || (d->unit > 1 && i == n - 1)) continue;
        k[i] = each(w, "k", size[i], outside ? NULL : &outside);
    }
    kn_expr *s = each(w, "square", all / rows, &after);
    fill_from(&f, kn_bin(w->a, KN_OP_MUL, s, kn_lw_int(w, rows)), whole);
    w->tail = after;
    if (all % rows) fill_from(&f, kn_lw_int(w, all - rows), whole); /* it goes over some of the last one's steps again */
    if (all < size[d->run]) element_by_element(&f, kn_lw_int(w, all), size[d->run] - all);
    if (outside) w->tail = outside;
}
