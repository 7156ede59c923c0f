/* Fills of shared memory: a block's threads copy a flat range together, in runs of up to 16 bytes where source and place are contiguous and
 * aligned and a run is there as a whole or not at all, else element by element. */
#include "lower/cache.h"

typedef struct fill {
    kn_lw *w;
    kn_sg *sg;
    const kn_cache *c;
    int cache, n;
    int64_t size[KILN_MAX_LOOPS], total;
    int run, lane;                     /* elements that are copied at once; the variable of an element in a run, -1: runs of one */
    kn_expr *k[KILN_MAX_LOOPS];
} fill;

/* Largest power of two up to 64 that surely divides e; a variable counts for nothing but the factors it stands with. */
static int64_t factor(const kn_expr *e)
{
    int64_t x, y;
    if (e->op == KN_OP_CONST_I) return e->u.i == 0 || e->u.i % 64 == 0 ? 64 : e->u.i & -e->u.i;
    if (e->nargs != 2) return 1;
    x = factor(e->args[0]), y = factor(e->args[1]);
    if (e->op == KN_OP_MUL) return x * y < 64 ? x * y : 64;
    if (e->op == KN_OP_ADD || e->op == KN_OP_SUB || e->op == KN_OP_MOD) return x < y ? x : y;
    return 1;
}

/* The condition says the same of all elements of a run: bounds are multiples of its length where what is compared begins at one. */
static bool alike(fill *f, const kn_expr *e)
{
    if (!kn_lw_uses(e, f->lane)) return true;
    if (e->op == KN_OP_AND) return alike(f, e->args[0]) && alike(f, e->args[1]);
    const kn_expr *x = e->op == KN_OP_LT ? e->args[0] : e->op == KN_OP_LE ? e->args[1] : NULL;
    const kn_expr *limit = e->op == KN_OP_LT ? e->args[1] : e->op == KN_OP_LE ? e->args[0] : NULL;
    if (!x || limit->op != KN_OP_CONST_I || limit->u.i % f->run || !kn_lw_unit_stride(x, f->lane)) return false;
    return factor(kn_lw_at_lane(f->w, (kn_expr *)x, f->lane, kn_lw_int(f->w, 0))) % f->run == 0;
}

/* A run of f->run elements can be copied at once. */
static bool runs(fill *f)
{
    kn_lw *w = f->w;
    kn_expr *k[KILN_MAX_LOOPS] = { NULL };
    int last = f->n - 1;
    kn_swizzle z;
    if (f->size[last] % f->run || f->c->region || f->c->pad % f->run) return false;
    if (f->c->swizzle && (!kn_swizzle_of(w->t, f->sg->g, f->c, &z) || z.run % f->run)) return false;
    f->lane = kn_lw_var(w, "lane", 0, f->run - 1);
    for (int i = 0; i < f->n; i++) k[i] = kn_lw_ref(w, kn_lw_var(w, "k", 0, f->size[i] / (i == last ? f->run : 1) - 1));
    k[last] = kn_bin(w->a, KN_OP_ADD, kn_bin(w->a, KN_OP_MUL, k[last], kn_lw_int(w, f->run)), kn_lw_ref(w, f->lane));
    if (!k[last]) return false;
    kn_source s = kn_cache_source(w, f->sg, f->cache, k);
    if (!kn_lw_unit_stride(s.at, f->lane) || (s.cond && !alike(f, s.cond))) return false;
    return factor(kn_lw_at_lane(w, s.at, f->lane, kn_lw_int(w, 0))) % f->run == 0;
}

/* Longest runs; asynchronous copies are of 4, 8 or 16 bytes and fill with zeros only. */
static bool find_run(fill *f)
{
    const kn_expr *load = f->sg->loads[f->c->load];
    int bytes = kn_dtype_bytes(load->dtype);
    bool zeros = !load->padded || load->pad_value == 0;
    for (f->run = f->n ? 16 / bytes : 1; f->run > 1 && !f->w->status; f->run /= 2)
        if (runs(f)) return f->c->async && zeros && f->run * bytes >= 4;
    f->lane = -1;
    f->run = 1;
    return f->c->async && zeros && bytes >= 4 && bytes <= 16;
}

/* The position of this thread's run in this round: digits of its number, the last one in runs. */
static kn_expr *position(fill *f, kn_expr *flat)
{
    kn_lw *w = f->w;
    int64_t below = 1;
    flat = kn_lw_let(w, "flat", flat);
    for (int i = f->n - 1; i >= 0; i--) {
        int64_t size = i == f->n - 1 ? f->size[i] / f->run : f->size[i];
        kn_expr *q = below > 1 ? kn_bin(w->a, KN_OP_FLOORDIV, flat, kn_lw_int(w, below)) : flat;
        below *= size;
        f->k[i] = kn_lw_let(w, "k", i ? kn_bin(w->a, KN_OP_MOD, q, kn_lw_int(w, size)) : q);
        if (i == f->n - 1) f->k[i] = kn_lw_simp(w, kn_bin(w->a, KN_OP_MUL, f->k[i], kn_lw_int(w, f->run)));
    }
    return flat;
}

static void copy(fill *f, kn_expr *flat, bool async)
{
    kn_lw *w = f->w;
    int buffer = f->sg->cache_buffer[f->cache];
    kn_source s = kn_cache_source(w, f->sg, f->cache, f->k);
    kn_expr *at = f->c->pad || f->run > 1 ? kn_cache_slot(w, f->c, f->n, f->size, f->k) : flat;
    at = kn_lw_half(w, f->sg, f->cache, at);
    if (f->run == 1 && !async) {
        kn_lw_store(w, buffer, at, kn_source_value(w, &s));
        return;
    }
    kn_expr *run = kn_lw_read(w, s.buffer, s.at, f->run), *pad = kn_lw_splat(w, s.pad, f->run);
    if (async) {
        kn_expr *value = s.cond ? kn_lw_node(w, KN_OP_SELECT, run->dtype, f->run, s.cond, run, pad) : run;
        kn_lw_store_async(w, buffer, at, value);
        return;
    }
    kn_ls *cond = s.cond ? kn_lw_if(w, s.cond) : NULL, **after = w->tail;
    if (cond) w->tail = &cond->body;
    kn_lw_store(w, buffer, at, run);
    if (!cond) return;
    w->tail = &cond->other;
    kn_lw_store(w, buffer, at, pad);
    w->tail = after;
}

void kn_lw_fill_shared(kn_lw *w, kn_sg *sg, int cache)
{
    fill f = { .w = w, .sg = sg, .c = &sg->g->caches[cache], .cache = cache, .total = 1, .lane = -1 };
    f.n = kn_cache_dims(sg, f.c, cache, f.size);
    for (int i = 0; i < f.n; i++) f.total *= f.size[i];
    bool async = find_run(&f);
    int64_t chunks = f.total / f.run, rounds = kn_ceil_div(chunks, w->threads);
    int var = kn_lw_var(w, "fill", 0, rounds - 1);
    kn_ls *loop = kn_lw_for(w, var, kn_lw_int(w, 0), kn_lw_int(w, rounds));
    if (!loop) return;
    bool once = sg->filling[cache] && sg->filling[cache]->op == KN_OP_CONST_I; /* ahead of the loop: its text would only take time to assemble */
    if (async && rounds <= 16) loop->unroll = once ? 1 : (int)rounds;
    kn_ls **after = w->tail;
    w->tail = &loop->body;
    kn_expr *flat = kn_bin(w->a, KN_OP_ADD, kn_bin(w->a, KN_OP_MUL, kn_lw_ref(w, var), kn_lw_int(w, w->threads)), w->thread);
    flat = kn_lw_let(w, "flat", flat);
    kn_expr *more = chunks % w->threads ? kn_lw_below(w, flat, chunks) : NULL;
    kn_ls *cond = more ? kn_lw_if(w, more) : NULL;
    if (cond) w->tail = &cond->body;
    copy(&f, position(&f, flat), async); /* the last element bounds the outermost digit: under the condition flat < chunks */
    w->tail = after;
}
