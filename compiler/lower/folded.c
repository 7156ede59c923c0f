/* Fills of packed copies whose lanes are rows of the source that run along several of the copy's other dimensions, one after the other (a window's
 * weights: channels and taps): as many rows as there are lanes are read in vectors and change places with their elements in registers. Rows along one
 * dimension that do not come out even are left to squares.c. The terms of a lane that an instruction sums change places together; where they do not
 * follow each other in the row (but behind all taps of a window), they are brought together behind that, in the copy. Where a statement would do
 * nothing but to write such a copy to its result, that is where they are brought. */
#include "lower/cache.h"
#include <string.h>

enum { LANES = 16, TERMS = 4 };

typedef struct squares {
    kn_lw *w;
    kn_sg *sg;
    int cache, n, lane, lanes;      /* lane: the dimension of the lanes */
    int64_t terms, taps;            /* of a lane, behind each other in the copy; elements of a row from one term to the next */
    int64_t size[KILN_MAX_LOOPS], step[KILN_MAX_LOOPS]; /* of the dimensions: iterations, elements of the source from one to the next */
    uint32_t run;                   /* dimensions that the rows run along, but for that of the terms */
    int cut;                        /* the outermost of them */
    int64_t length, pitch;          /* elements of a row; from one lane's terms to what follows them in the row, in the copy */
    kn_expr *k[KILN_MAX_LOOPS];
    kn_expr *row[LANES];            /* from the first lane's row to each */
    enum kn_dtype dtype;
} squares;

static const kn_loop *loop_of(const squares *f, int dim) { return &f->sg->g->loops[f->sg->g->caches[f->cache].loops[dim]]; }

static int64_t extent_of(const squares *f, int dim) { return f->sg->s->axes[loop_of(f, dim)->axis].extent; }

/* Elements of the copy from one of the dimension to the next. */
static int64_t pitch_of(const squares *f, int dim)
{
    int64_t pitch = 1;
    for (int i = dim + 1; i < f->n; i++) pitch *= f->size[i];
    return pitch;
}

/* The steps of all dimensions in the source; false: it is not affine. The variables are for that alone. */
static bool find_steps(squares *f)
{
    bool affine = true;
    kn_expr *k[KILN_MAX_LOOPS] = { NULL };
    int first = f->w->p->nvars;
    for (int i = 0; i < f->n; i++) kn_lw_var(f->w, "k", 0, f->size[i] - 1);
    for (int i = 0; i < f->n; i++) k[i] = kn_lw_ref(f->w, first + i);
    kn_expr *at = kn_cache_source(f->w, f->sg, f->cache, k).at;
    for (int i = 0; i < f->n; i++) affine = kn_lw_coefficient(at, first + i, &f->step[i]) && affine;
    f->w->p->nvars = first;
    return affine && !f->w->status;
}

/* Adds the dimension that follows so many elements of the row, in the copy too. */
static bool goes_on(squares *f)
{
    for (int i = 0; i < f->lane; i++) {
        bool summed = f->sg->s->red == KN_RED_NONE || loop_of(f, i)->axis >= f->sg->s->nspatial;
        if (f->run >> i & 1 || f->step[i] != f->length || f->size[i] < 2 || !summed) continue;
        int64_t before = f->run || f->taps > 1 ? f->length / f->terms : 1;
        if (f->run && pitch_of(f, i) != f->pitch * (f->length < f->taps ? f->length : before)) continue;
        if (!f->run) f->pitch = pitch_of(f, i);
        f->run |= 1u << i;
        f->cut = i;
        f->length *= f->size[i];
        return true;
    }
    return false;
}

/* The rows, from their nearest elements on: up to the next term, the terms, and what lies behind these. */
static bool find_run(squares *f)
{
    f->length = 1;
    f->taps = f->terms > 1 ? f->step[f->n - 1] : 1;
    while (f->length < f->taps && goes_on(f)) {}
    if (f->length != f->taps || f->taps > KN_INTRIN_TAPS) return false;
    f->length *= f->terms;
    while (goes_on(f)) {}
    return f->run && f->length >= f->lanes * f->terms;
}

/* The axis that is cut off at the end of the rows leaves whole terms, and no fewer of them than a square has. */
static bool ends_well(const squares *f)
{
    const kn_loop *cut = loop_of(f, f->cut);
    int64_t extent = extent_of(f, f->cut), left = extent / cut->stride % f->size[f->cut], span = f->size[f->cut] * cut->stride;
    for (int i = 0; i < f->sg->g->nloops; i++) {
        const kn_loop *l = &f->sg->g->loops[i];
        if (l->axis == cut->axis && l != cut && l->stride >= cut->stride && l->stride % span) return false;
    }
    return extent % cut->stride == 0 && (!left || left * (f->length / f->size[f->cut]) >= f->lanes * f->terms);
}

/* All that the copy holds is there but for lanes and rows past their end. */
static bool is_there(squares *f)
{
    kn_expr *k[KILN_MAX_LOOPS], *av[KILN_MAX_AXES];
    const kn_expr *load = f->sg->loads[f->sg->g->caches[f->cache].load];
    for (int i = 0; i < f->n; i++) k[i] = kn_lw_int(f->w, f->size[i] - 1);
    kn_cache_axes(f->w, f->sg, f->cache, k, av);
    for (int a = 0; a < f->sg->s->naxes; a++) {
        if (!(kn_axes_in(load) >> a & 1) || a == loop_of(f, f->lane)->axis || a == loop_of(f, f->cut)->axis) continue;
        if (kn_lw_below(f->w, kn_lw_simp(f->w, av[a]), f->sg->s->axes[a].extent)) return false;
    }
    return true;
}

static bool squares_of(kn_lw *w, kn_sg *sg, int cache, squares *f)
{
    const kn_cache *c = &sg->g->caches[cache];
    const kn_expr *load = sg->loads[c->load];
    int bytes = kn_dtype_bytes(load->dtype);
    if (w->hw->gpu || c->region || c->at < 0 || c->pad || c->swizzle || c->copies || load->padded || load->dtype == KN_BOOL) return false;
    *f = (squares){ .w = w, .sg = sg, .cache = cache, .dtype = load->dtype, .terms = 1 };
    f->n = kn_cache_dims(sg, c, cache, f->size);
    f->lane = f->n - 1;
    if (bytes < 4 && f->n > 1) f->terms = f->size[f->lane--];
    for (int i = 0; i < f->n; i++)
        if (c->by[i] || c->count[i]) return false;
    if (f->lane < 1 || f->terms > TERMS || (bytes < 4 && f->terms * bytes != 4)) return false;
    int64_t lanes = f->size[f->lane];
    bool fits = lanes >= 4 && lanes <= LANES && !(lanes & (lanes - 1)) && lanes * f->terms * bytes <= w->hw->vector_bytes;
    if (!fits || loop_of(f, f->lane)->axis >= sg->s->nspatial || loop_of(f, f->lane)->stride != 1) return false;
    f->lanes = (int)lanes;
    return !kn_lw_strays(w, sg, load, UINT32_MAX) && find_steps(f) && f->step[f->lane] > 1 && find_run(f) && ends_well(f) && is_there(f);
}

/* Opens a loop of n iterations, behind which *after is; its variable. NULL: no memory. */
static kn_expr *each(squares *f, const char *name, kn_expr *n, int64_t most, kn_ls ***after)
{
    int var = kn_lw_var(f->w, name, 0, most > 0 ? most - 1 : 0);
    kn_ls *loop = kn_lw_for(f->w, var, kn_lw_int(f->w, 0), n);
    if (!loop) return NULL;
    *after = f->w->tail;
    f->w->tail = &loop->body;
    return kn_lw_ref(f->w, var);
}

static kn_expr *sum(squares *f, kn_expr *x, kn_expr *n, int64_t by)
{
    return kn_lw_simp(f->w, kn_bin(f->w->a, KN_OP_ADD, x, kn_bin(f->w->a, KN_OP_MUL, n, kn_lw_int(f->w, by))));
}

/* Element of a row that rows so long are asked ahead for: those of the next block, which follow, where memory is far; 0: it is near. */
static int64_t asked_ahead(const squares *f)
{
    return kn_lw_beyond_l2(f->w, f->sg->loads[f->sg->g->caches[f->cache].load]->u.tensor) ? f->length : 0;
}

/* The square of each lane's terms number `at` and those behind them. */
static void square(squares *f, const kn_source *from, kn_expr *to, kn_expr *at)
{
    kn_lw *w = f->w;
    int buffer = f->sg->cache_buffer[f->cache], vector = f->lanes * (int)f->terms;
    int regs = kn_lw_buffer(w, "turn", f->dtype, vector, f->lanes, KN_REGISTER);
    int64_t ahead = asked_ahead(f);
    for (int l = 0; l < f->lanes && !w->status; l++) {
        kn_expr *begin = sum(f, kn_bin(w->a, KN_OP_ADD, from->at, f->row[l]), at, f->terms);
        kn_lw_store(w, regs, kn_lw_int(w, l), kn_lw_read(w, from->buffer, begin, vector));
        if (ahead) kn_lw_prefetch(w, from->buffer, sum(f, begin, kn_lw_int(w, ahead), 1), false);
    }
    regs = kn_lw_transpose(w, regs, f->dtype, f->lanes, (int)f->terms);
    for (int l = 0; l < f->lanes && !w->status; l++)
        kn_lw_store(w, buffer, sum(f, sum(f, to, at, f->pitch), kn_lw_int(w, l), f->pitch), kn_lw_read(w, regs, kn_lw_int(w, l), vector));
}

/* Where the statement's result is at position k of the copy. */
static kn_expr *result_at(squares *f, kn_expr *const *k)
{
    kn_sg *sg = f->sg;
    kn_expr *keep[KILN_MAX_LOOPS];
    memcpy(keep, sg->val, sizeof keep);
    for (int i = 0; i < f->n; i++) sg->val[sg->g->caches[f->cache].loops[i]] = k[i];
    kn_expr *at = kn_lw_simp(f->w, kn_lw_result(f->w, sg));
    memcpy(sg->val, keep, sizeof keep);
    return at;
}

/* The statement does nothing but to write all of the copy to its result, where the lanes and their terms lie as they do in the copy. */
static bool moves(squares *f)
{
    kn_lw *w = f->w;
    const kn_sg *sg = f->sg;
    const kn_cache *c = &sg->g->caches[f->cache];
    kn_expr *k[KILN_MAX_LOOPS];
    int64_t step, first = w->p->nvars;
    bool yes = f->taps > 1 && sg->s->red == KN_RED_NONE && sg->s->body == sg->loads[c->load] && sg->nloads == 1 && sg->g->ncaches == 1;
    for (int l = c->at + 1; l < sg->g->nloops && yes; l++) {
        const kn_loop *loop = &sg->g->loops[l];
        bool copied = loop->extent == 1;
        for (int i = 0; i < f->n; i++) copied = copied || c->loops[i] == l;
        yes = copied && kn_sg_axis_cover(sg, loop->axis) == sg->s->axes[loop->axis].extent;
    }
    if (!yes) return false;
    for (int i = 0; i < f->n; i++) kn_lw_var(w, "k", 0, f->size[i] - 1);
    for (int i = 0; i < f->n; i++) k[i] = kn_lw_ref(w, (int)first + i);
    kn_expr *at = result_at(f, k);
    for (int i = f->lane; i < f->n; i++) yes = kn_lw_coefficient(at, (int)first + i, &step) && step == pitch_of(f, i) && yes;
    w->p->nvars = (int)first;
    return yes && !w->status;
}

/* Where in the statement's result the vector of tap t and terms number b is. */
static kn_expr *moved_to(squares *f, int64_t t, kn_expr *b)
{
    kn_lw *w = f->w;
    kn_expr *k[KILN_MAX_LOOPS];
    for (int i = 0; i < f->n; i++) {
        int64_t by = f->step[i] / (f->taps * f->terms);
        k[i] = kn_lw_int(w, 0);
        if (!(f->run >> i & 1)) continue;
        if (f->step[i] < f->taps) k[i] = kn_lw_int(w, t / f->step[i] % f->size[i]);
        else k[i] = kn_lw_simp(w, kn_bin(w->a, KN_OP_MOD, kn_bin(w->a, KN_OP_FLOORDIV, b, kn_lw_int(w, by)), kn_lw_int(w, f->size[i])));
    }
    return result_at(f, k);
}

/* Of all taps in a row those of one lane's terms: each vector takes its terms from as many others. */
static void bring_together(squares *f, kn_expr *to, kn_expr *terms)
{
    kn_lw *w = f->w;
    kn_ls **after;
    int buffer = f->sg->cache_buffer[f->cache], vector = f->lanes * (int)f->terms;
    int regs = kn_lw_buffer(w, "taps", f->dtype, vector, f->taps, KN_REGISTER);
    int result = f->sg->moved ? kn_lw_tensor(w, f->sg->s->out) : buffer;
    kn_expr *b = each(f, "b", kn_lw_simp(w, kn_bin(w->a, KN_OP_FLOORDIV, terms, kn_lw_int(w, f->taps))), f->length / f->terms / f->taps, &after);
    if (!b) return;
    to = kn_lw_let(w, "taps", sum(f, to, b, f->taps * f->pitch));
    for (int t = 0; t < f->taps && !w->status; t++)
        kn_lw_store(w, regs, kn_lw_int(w, t), kn_lw_read(w, buffer, sum(f, to, kn_lw_int(w, t), f->pitch), vector));
    for (int t = 0; t < f->taps && !w->status; t++) {
        kn_expr *from[TERMS];
        int number[LANES * TERMS], n = 0;
        for (int j = 0; j < f->terms; j++) {
            int at = j * (int)f->taps + t, v = at / (int)f->terms;
            bool again = j && (at - (int)f->taps) / (int)f->terms == v;
            if (!again) from[n++] = kn_lw_read(w, regs, kn_lw_int(w, v), vector);
            for (int l = 0; l < f->lanes; l++) number[l * f->terms + j] = (n - 1) * vector + l * (int)f->terms + at % (int)f->terms;
        }
        kn_expr *at = f->sg->moved ? moved_to(f, t, b) : sum(f, to, kn_lw_int(w, t), f->pitch);
        kn_lw_store(w, result, at, kn_lw_pick(w, vector, n, from, number));
    }
    w->tail = after;
}

/* What the copy has room for behind the rows' end. */
static void fill_end(squares *f, kn_expr *to, kn_expr *terms)
{
    kn_lw *w = f->w;
    kn_ls **after;
    int64_t most = f->length / f->terms;
    kn_expr *n = kn_lw_simp(w, kn_bin(w->a, KN_OP_SUB, kn_lw_int(w, most), terms));
    if (n->op == KN_OP_CONST_I && n->u.i <= 0) return;
    kn_expr *x = each(f, "x", n, most, &after);
    if (!x) return;
    kn_lw_store(w, f->sg->cache_buffer[f->cache], sum(f, to, kn_bin(w->a, KN_OP_ADD, terms, x), f->pitch),
                kn_lw_splat(w, kn_lw_zero(w, f->dtype, 0), f->lanes * (int)f->terms));
    w->tail = after;
}

/* Rows in squares; the last one ends where they do. */
static void fill_rows(squares *f, const kn_source *from, kn_expr *to, kn_expr *terms)
{
    kn_lw *w = f->w;
    kn_expr *lanes = kn_lw_int(w, f->lanes), *n = kn_lw_simp(w, kn_bin(w->a, KN_OP_FLOORDIV, terms, lanes));
    kn_ls **after;
    kn_expr *i = each(f, "square", n, f->length / f->terms / f->lanes, &after);
    if (!i) return;
    square(f, from, to, kn_lw_simp(w, kn_bin(w->a, KN_OP_MUL, i, lanes)));
    w->tail = after;
    if (terms->op != KN_OP_CONST_I || terms->u.i % f->lanes) square(f, from, to, kn_lw_simp(w, kn_bin(w->a, KN_OP_SUB, terms, lanes)));
}

/* Terms of a row that are there; the row may begin at any of the elements that a step of the loop which is cut off goes over. */
static kn_expr *find_terms(squares *f, kn_expr *const *av)
{
    kn_lw *w = f->w;
    const kn_loop *cut = loop_of(f, f->cut);
    int64_t all = f->size[f->cut];
    kn_expr *left = kn_bin(w->a, KN_OP_SUB, kn_lw_int(w, extent_of(f, f->cut) + cut->stride - 1), av[cut->axis]);
    left = kn_bin(w->a, KN_OP_FLOORDIV, left, kn_lw_int(w, cut->stride));
    left = kn_bin(w->a, KN_OP_MUL, kn_bin(w->a, KN_OP_MIN, kn_lw_int(w, all), left), kn_lw_int(w, f->length / f->terms / all));
    return kn_lw_let(w, "terms", kn_lw_simp(w, left));
}

/* Where lanes' rows begin. Past the end of their axis they are its last one once more: results of these are stored nowhere. */
static void find_rows(squares *f, kn_expr *first, bool whole)
{
    kn_lw *w = f->w;
    kn_expr *last = kn_bin(w->a, KN_OP_SUB, kn_lw_int(w, extent_of(f, f->lane) - 1), first), *step = kn_lw_int(w, f->step[f->lane]);
    for (int l = 0; l < f->lanes && !w->status; l++) {
        kn_expr *at = kn_lw_int(w, l);
        if (!whole) at = kn_bin(w->a, KN_OP_MIN, at, last);
        f->row[l] = kn_lw_simp(w, kn_bin(w->a, KN_OP_MUL, at, step));
        if (!whole) f->row[l] = kn_lw_let(w, "row", f->row[l]);
    }
}

static void fill(squares *f)
{
    kn_lw *w = f->w;
    kn_expr *av[KILN_MAX_AXES], *whole;
    kn_source from = kn_cache_source(w, f->sg, f->cache, f->k);
    kn_cache_axes(w, f->sg, f->cache, f->k, av);
    if (w->status) return;
    from.at = kn_lw_let(w, "from", from.at);
    f->sg->moved = moves(f);
    kn_expr *to = kn_lw_let(w, "to", kn_cache_slot(w, &f->sg->g->caches[f->cache], f->n, f->size, f->k));
    kn_expr *terms = find_terms(f, av), *first = kn_lw_simp(w, av[loop_of(f, f->lane)->axis]);
    whole = kn_lw_below(w, kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, first, kn_lw_int(w, f->lanes - 1))), extent_of(f, f->lane));
    kn_ls *cond = whole && !kn_lw_never(whole) ? kn_lw_if(w, whole) : NULL, **after = w->tail;
    if (cond) {
        w->tail = &cond->body;
        find_rows(f, first, true);
        fill_rows(f, &from, to, terms);
        w->tail = &cond->other;
    }
    find_rows(f, first, !whole);
    fill_rows(f, &from, to, terms);
    if (cond) w->tail = after;
    if (f->taps > 1) bring_together(f, to, terms);
    fill_end(f, to, terms);
}

bool kn_lw_fill_folded(kn_lw *w, kn_sg *sg, int cache)
{
    squares f;
    if (!squares_of(w, sg, cache, &f)) return false;
    kn_ls **end = NULL, **after = NULL;
    for (int i = 0; i < f.n && !w->status; i++) {
        bool walked = i >= f.lane || f.run >> i & 1 || f.size[i] < 2;
        f.k[i] = walked ? kn_lw_int(w, 0) : each(&f, "k", kn_lw_int(w, f.size[i]), f.size[i], &after);
        if (!end) end = after;
    }
    if (!w->status) fill(&f);
    if (end) w->tail = end;
    return true;
}
