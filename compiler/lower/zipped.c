/* Fills of packed copies whose last dimension is 2 or 4 narrow elements from as many runs of the source, while the dimension before it goes along
 * these (what instructions over pairs and quadruples read): vectors of the runs are interleaved in registers. Where another dimension goes on along
 * the runs, so many of its iterations are taken together as a vector holds: of the one before it the result lies together, of others each vector of
 * it goes to the iteration that it belongs to. */
#include "lower/cache.h"
#include <string.h>

enum { BLOCK = 16 }; /* bytes: shuffles of bytes inside of these are one instruction each, of bytes from anywhere several */

typedef struct zipped {
    kn_lw *w;
    kn_sg *sg;
    int cache, n;
    const int64_t *size;
    kn_expr **k, *first;   /* the position, of which the last two are the block's; first: of the iterations that are joined */
    int64_t joined;
    int join;              /* the dimension of these */
} zipped;

/* Indices of the load that may leave the tensor are affine, so that a block of which all corners are in range is in range. */
static bool corners_decide(kn_lw *w, const kn_sg *sg, const kn_expr *load)
{
    kn_affine f;
    for (int d = 0; d < load->nargs; d++)
        if (kn_lw_index_strays(w, sg, load, d) && !kn_affine_of(load->args[d], &f)) return false;
    return true;
}

/* Iterations of dimension `dim` that follow the run in memory, as many as a vector holds and divide it; where they do not lie together in the copy,
 * no more than leave each vector of the result in one of them. */
static int64_t joined_of(kn_lw *w, kn_sg *sg, int cache, int n, const int64_t *size, int dim)
{
    enum { MANY = 8 };
    const kn_cache *c = &sg->g->caches[cache];
    kn_expr *k[KILN_MAX_LOOPS] = { NULL };
    int first = w->p->nvars, bytes = kn_dtype_bytes(sg->loads[c->load]->dtype);
    int64_t step, joined = 1;
    if (sg->g->loops[c->loops[dim]].axis != sg->g->loops[c->loops[n - 2]].axis) return 1;
    for (int i = 0; i < n; i++) kn_lw_var(w, "k", 0, size[i] - 1);
    for (int i = 0; i < n; i++) k[i] = kn_lw_ref(w, first + i);
    kn_expr *at = kn_cache_source(w, sg, cache, k).at;
    bool goes_on = kn_lw_unit_stride(at, first + n - 2) && kn_lw_coefficient(at, first + dim, &step) && step == size[n - 2];
    w->p->nvars = first;
    if (!goes_on) return 1;
    int64_t extent = sg->s->axes[sg->g->loops[c->loops[dim]].axis].extent;
    for (int64_t more = 2; size[dim] % more == 0 && more * size[n - 2] * bytes <= w->hw->vector_bytes; more *= 2) {
        bool ends = extent % (more * size[n - 2]) != 0 && extent < MANY * more * size[n - 2]; /* what is there of the last block goes one by one */
        if (dim != n - 3 && (more > size[n - 1] || ends)) break;
        joined = more;
    }
    return joined;
}

bool kn_lw_zips(kn_lw *w, kn_sg *sg, int cache, int n, const int64_t *size, int inner, int64_t *joined, int *join)
{
    int64_t m = n > 1 ? size[n - 2] : 0, q = n > 1 ? size[n - 1] : 0;
    const kn_cache *c = &sg->g->caches[cache];
    const kn_expr *load = sg->loads[c->load];
    bool zips = !w->hw->gpu && n > 1 && inner == n - 2 && (q == 2 || q == 4) && m >= 4 && m <= 64 && !(m & (m - 1)) &&
                kn_dtype_bytes(load->dtype) <= 2 && !c->pad && corners_decide(w, sg, load);
    zips = zips && sg->g->loops[c->loops[n - 1]].axis != sg->g->loops[c->loops[n - 2]].axis; /* the end of one says nothing of the other's */
    *joined = 1;
    *join = n - 3;
    for (int i = n - 3; i >= 0 && zips && *joined == 1; i--) *joined = joined_of(w, sg, cache, n, size, *join = i);
    return zips;
}

/* Goes to element `column` of run `row` of the block. */
static void go_to(zipped *f, int64_t column, kn_expr *row)
{
    kn_lw *w = f->w;
    int64_t m = f->size[f->n - 2];
    f->k[f->n - 1] = row;
    f->k[f->n - 2] = kn_lw_int(w, column % m);
    if (f->joined > 1) f->k[f->join] = kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, f->first, kn_lw_int(w, column / m)));
}

static kn_source source(zipped *f, int64_t column, int64_t row)
{
    go_to(f, column, kn_lw_int(f->w, row));
    return kn_cache_source(f->w, f->sg, f->cache, f->k);
}

/* The runs go along a spatial axis, which nothing but its end cuts off: what stands behind it in memory may be copied too, since results past the end
 * are stored nowhere. */
static bool runs_over(const zipped *f)
{
    const kn_cache *c = &f->sg->g->caches[f->cache];
    int axis = f->sg->g->loops[c->loops[f->n - 2]].axis;
    const kn_expr *load = f->sg->loads[c->load];
    return axis < f->sg->s->nspatial && f->sg->s->red != KN_RED_NONE && !kn_lw_strays(f->w, f->sg, load, 1u << axis);
}

/* Indices that leave the tensor grow with every loop, from within it on: what the axes allow is not cut off before where they begin. */
static bool grows(kn_lw *w, const kn_sg *sg, const kn_expr *load)
{
    kn_affine f;
    for (int d = 0; d < load->nargs; d++) {
        if (!kn_lw_index_strays(w, sg, load, d)) continue;
        if (!kn_affine_of(load->args[d], &f) || f.offset < 0) return false;
        for (int i = 0; i < KILN_MAX_AXES; i++)
            if (f.coef[i] < 0) return false;
    }
    return true;
}

/* Where the element of the block is there as far as some axes go: all but that of the runs, or that one alone. */
static kn_expr *there(zipped *f, int64_t column, int64_t row, bool across)
{
    kn_sg *sg = f->sg;
    const kn_cache *c = &sg->g->caches[f->cache];
    int axis = sg->g->loops[c->loops[f->n - 2]].axis;
    kn_expr *saved[KILN_MAX_LOOPS], *was[KILN_MAX_LOOPS];
    memcpy(saved, sg->val, sizeof saved);
    memcpy(was, f->k, (size_t)f->n * sizeof *was);
    go_to(f, column, kn_lw_int(f->w, row));
    for (int i = 0; i < sg->g->nloops; i++)
        if ((sg->g->loops[i].axis == axis) == across) sg->val[i] = NULL;
    for (int i = 0; i < f->n; i++)
        if ((sg->g->loops[c->loops[i]].axis == axis) == across) f->k[i] = kn_lw_int(f->w, 0);
    kn_expr *cond = kn_cache_source(f->w, sg, f->cache, f->k).cond;
    memcpy(f->k, was, (size_t)f->n * sizeof *was);
    memcpy(sg->val, saved, sizeof saved);
    return cond;
}

/* Where all of the block is there, or may be read. What strays may do so at any corner; else there are but upper bounds of axes, and the last
 * element decides. */
static kn_expr *block_there(zipped *f)
{
    kn_lw *w = f->w;
    int64_t rows = f->size[f->n - 1], columns = f->joined * f->size[f->n - 2];
    bool any = kn_lw_strays(w, f->sg, f->sg->loads[f->sg->g->caches[f->cache].load], UINT32_MAX), over = runs_over(f);
    kn_expr *all = NULL;
    for (int corner = any ? 0 : 3; corner < 4 && !over; corner++)
        all = kn_lw_and(w, all, source(f, corner & 1 ? columns - 1 : 0, corner & 2 ? rows - 1 : 0).cond);
    if (!over) return all;
    for (int64_t row = any ? 0 : rows - 1; row < rows; row += rows - 1)
        all = kn_lw_and(w, all, there(f, 0, row, true));
    kn_source last = source(f, 0, rows - 1);
    kn_expr *end = kn_bin(w->a, KN_OP_ADD, last.at, kn_lw_int(w, columns - 1));
    return kn_lw_and(w, all, kn_lw_below(w, end ? kn_lw_simp(w, end) : &w->dry, w->p->buffers[last.buffer].elems));
}

int kn_lw_zip_round(kn_lw *w, int from, enum kn_dtype t, int lanes, int q, int block)
{
    int to = kn_lw_buffer(w, "zip", t, lanes, q, KN_REGISTER);
    for (int i = 0; i < q / 2; i++)
        for (int high = 0; high < 2 && !w->status; high++) {
            kn_expr *pair[] = { kn_lw_read(w, from, kn_lw_int(w, i), lanes), kn_lw_read(w, from, kn_lw_int(w, i + q / 2), lanes) };
            kn_expr *e = kn_lw_zip(w, KN_OP_ZIP, 2, pair, high);
            if (!w->status) e->var = block;
            kn_lw_store(w, to, kn_lw_int(w, 2 * i + high), e);
        }
    return to;
}

/* Of the q vectors as a run of blocks, the even ones of each pair of vectors first, then the odd ones. */
static int even_blocks_first(kn_lw *w, int from, enum kn_dtype t, int lanes, int q, int block)
{
    int to = kn_lw_buffer(w, "zip", t, lanes, q, KN_REGISTER);
    for (int i = 0; i < q / 2; i++)
        for (int odd = 0; odd < 2 && !w->status; odd++) {
            kn_expr *pair[] = { kn_lw_read(w, from, kn_lw_int(w, 2 * i), lanes), kn_lw_read(w, from, kn_lw_int(w, 2 * i + 1), lanes) };
            kn_expr *e = kn_lw_zip(w, KN_OP_UNZIP, 2, pair, odd);
            if (!w->status) e->var = block;
            kn_lw_store(w, to, kn_lw_int(w, odd * q / 2 + i), e);
        }
    return to;
}

/* Bytes are interleaved inside of blocks, which then change places; halves of whole vectors by an instruction each. */
static int interleave(kn_lw *w, int from, enum kn_dtype t, int lanes, int q)
{
    int block = kn_dtype_bytes(t) == 1 && lanes > BLOCK ? BLOCK : 0;
    for (int i = 1; i < q; i *= 2) from = kn_lw_zip_round(w, from, t, lanes, q, block);
    for (int i = block; i && i < lanes; i *= 2) from = even_blocks_first(w, from, t, lanes, q, block);
    return from;
}

/* Run `row` of the block in a register; each: where it is there, else padding. */
static void read_run(zipped *f, int to, int row, int lanes, bool each)
{
    kn_lw *w = f->w;
    kn_expr *in = each ? there(f, 0, row, true) : NULL;
    kn_ls *cond = in ? kn_lw_if(w, in) : NULL, **after = w->tail;
    kn_source s = source(f, 0, row);
    if (cond) w->tail = &cond->body;
    kn_ls **run = w->tail;
    kn_lw_store(w, to, kn_lw_int(w, row), kn_lw_read(w, s.buffer, s.at, lanes));
    if (!w->status) (*run)->holds = kn_dtype_bytes(w->p->buffers[to].dtype) == 1 && lanes == w->hw->vector_bytes; /* two operations want it */
    if (!cond) return;
    w->tail = &cond->other;
    kn_lw_store(w, to, kn_lw_int(w, row), kn_lw_splat(w, s.pad, lanes));
    w->tail = after;
}

/* Where vector i of the interleaved runs begins in the copy. */
static kn_expr *result_at(zipped *f, int64_t i)
{
    int64_t lanes = f->joined * f->size[f->n - 2];
    bool together = f->join == f->n - 3 || f->joined == 1;
    go_to(f, together ? 0 : i * lanes / f->size[f->n - 1], kn_lw_int(f->w, 0));
    kn_expr *at = kn_cache_slot(f->w, &f->sg->g->caches[f->cache], f->n, f->size, f->k);
    return together ? kn_lw_simp(f->w, kn_bin(f->w->a, KN_OP_ADD, at, kn_lw_int(f->w, i * lanes))) : kn_lw_simp(f->w, at);
}

static void interleaved(zipped *f, bool each)
{
    kn_lw *w = f->w;
    int lanes = (int)(f->joined * f->size[f->n - 2]), q = (int)f->size[f->n - 1], buffer = f->sg->cache_buffer[f->cache];
    enum kn_dtype t = w->p->buffers[buffer].dtype;
    int from = kn_lw_buffer(w, "run", t, lanes, q, KN_REGISTER);
    for (int i = 0; i < q && !w->status; i++) read_run(f, from, i, lanes, each);
    from = interleave(w, from, t, lanes, q);
    for (int i = 0; i < q && !w->status; i++) kn_lw_store(w, buffer, result_at(f, i), kn_lw_read(w, from, kn_lw_int(w, i), lanes));
}

/* Opens a loop of n iterations; its variable, NULL: no memory. */
static kn_expr *each(kn_lw *w, const char *name, int64_t n)
{
    int var = kn_lw_var(w, name, 0, n - 1);
    kn_ls *loop = kn_lw_for(w, var, kn_lw_int(w, 0), kn_lw_int(w, n));
    if (!loop) return NULL;
    w->tail = &loop->body;
    return kn_lw_ref(w, var);
}

static void element_by_element(zipped *f)
{
    kn_lw *w = f->w;
    int n = f->n;
    if (f->joined > 1) {
        kn_expr *j = each(w, "k", f->joined);
        if (j) f->k[f->join] = kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, f->first, j));
    }
    f->k[n - 2] = each(w, "x", f->size[n - 2]);
    f->k[n - 1] = each(w, "k", f->size[n - 1]);
    if (w->status) return;
    kn_source s = kn_cache_source(w, f->sg, f->cache, f->k);
    kn_lw_store(w, f->sg->cache_buffer[f->cache], kn_cache_slot(w, &f->sg->g->caches[f->cache], n, f->size, f->k), kn_source_value(w, &s));
}

/* What stands for a block of which nothing is there. */
static void all_padding(zipped *f)
{
    kn_lw *w = f->w;
    int lanes = (int)(f->joined * f->size[f->n - 2]);
    kn_expr *pad = source(f, 0, 0).pad;
    for (int64_t i = 0; i < f->size[f->n - 1] && !w->status; i++)
        kn_lw_store(w, f->sg->cache_buffer[f->cache], result_at(f, i), kn_lw_splat(w, pad, lanes));
}

/* Where runs are missing that the reduction has ended before, the block is padding, or partly; elsewhere it ends with the tensor. */
static void rest(zipped *f)
{
    kn_lw *w = f->w;
    int64_t last = f->joined * f->size[f->n - 2] - 1;
    const kn_expr *load = f->sg->loads[f->sg->g->caches[f->cache].load];
    if (runs_over(f) && grows(w, f->sg, load)) {
        kn_expr *wide = there(f, last, 0, false);
        kn_ls *cond = wide ? kn_lw_if(w, wide) : NULL;
        if (cond) w->tail = &cond->body;
        interleaved(f, true);
        if (!cond) return;
        w->tail = &cond->other;
    }
    kn_expr *begins = load->padded ? NULL : source(f, 0, 0).cond; /* else something may be there behind what is not */
    kn_ls *cond = begins ? kn_lw_if(w, begins) : NULL;
    if (cond) {
        w->tail = &cond->other;
        all_padding(f);
        w->tail = &cond->body;
    }
    element_by_element(f);
}

void kn_lw_fill_zipped(kn_lw *w, kn_sg *sg, int cache, int n, const int64_t *size, kn_expr **k, int64_t joined, int join, bool whole)
{
    zipped f = { .w = w, .sg = sg, .cache = cache, .n = n, .size = size, .k = k, .joined = joined, .join = join };
    f.first = join >= 0 ? k[join] : NULL;
    kn_expr *all = whole ? NULL : block_there(&f);
    kn_ls *cond = all ? kn_lw_if(w, all) : NULL, **after = w->tail;
    if (all && !cond) return;
    if (cond) w->tail = &cond->body;
    interleaved(&f, false);
    if (!cond) return;
    w->tail = &cond->other;
    rest(&f);
    w->tail = after;
}

void kn_lw_fill_zipped_row(kn_lw *w, kn_sg *sg, int cache, const int64_t *size, kn_expr **k, int64_t joined, bool whole)
{
    int64_t blocks = size[0] / joined;
    zipped f = { .w = w, .sg = sg, .cache = cache, .n = 3, .size = size, .k = k, .joined = joined, .join = 0 };
    f.first = k[0] = kn_lw_int(w, (blocks - 1) * joined);
    kn_expr *all = whole ? NULL : block_there(&f); /* it lies furthest on */
    kn_ls *cond = all ? kn_lw_if(w, all) : NULL, **after = w->tail;
    if (cond) w->tail = &cond->body;
    for (int64_t b = 0; b < blocks && !w->status; b++) {
        f.first = k[0] = kn_lw_int(w, b * joined);
        interleaved(&f, false);
    }
    if (!cond) return;
    w->tail = &cond->other;
    kn_expr *block = each(w, "k", blocks);
    if (!block) return;
    k[0] = kn_lw_simp(w, kn_bin(w->a, KN_OP_MUL, block, kn_lw_int(w, joined)));
    kn_lw_fill_zipped(w, sg, cache, 3, size, k, joined, 0, false);
    w->tail = after;
}
