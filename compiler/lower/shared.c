/* Fills of shared memory: a block's threads copy a flat range together, in runs of up to 16 bytes where source and place are contiguous and
 * aligned and a run is there as a whole or not at all, else element by element. */
#include "lower/cache.h"

/* A round's number: `of_turns` times `turn` and `in_turn`. */
typedef struct rounds { int64_t turn; kn_expr *of_turns, *in_turn; } rounds;

enum { IN_FLIGHT = 8 }; /* reads of a thread that its stores do not wait for one by one */

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

static int64_t in_runs(const fill *f, int i) { return i == f->n - 1 ? f->size[i] / f->run : f->size[i]; }

/* `below` of some number, `size` of them. */
static kn_expr *digit(kn_lw *w, kn_expr *number, int64_t below, int64_t size)
{
    kn_expr *q = below > 1 ? kn_bin(w->a, KN_OP_FLOORDIV, number, kn_lw_int(w, below)) : number;
    return size ? kn_bin(w->a, KN_OP_MOD, q, kn_lw_int(w, size)) : q;
}

/* Whether every digit of a run's number is one of the thread's number, one of the round's, or made of one of each. */
static bool apart(const fill *f)
{
    int64_t threads = f->w->threads, below = 1;
    if (f->total / f->run % threads) return false;
    for (int i = f->n - 1; i >= 0; below *= in_runs(f, i--)) {
        int64_t above = below * in_runs(f, i);
        bool of_thread = threads % above == 0, of_round = below % threads == 0;
        if (!of_thread && !of_round && (threads % below || above % threads)) return false;
    }
    return true;
}

/* Rounds in which the threads get through the innermost dimensions once: the digits of these are the same the next time. */
static int64_t turn(const fill *f)
{
    int64_t threads = f->w->threads, below = 1;
    for (int i = f->n - 1; i >= 0 && below % threads; i--) below *= in_runs(f, i);
    return below % threads ? 1 : below / threads;
}

/* That digit: what the thread's number says of it is the same in every round, and so is all that is computed from it. */
static kn_expr *digit_apart(fill *f, const rounds *r, int64_t below, int64_t size)
{
    kn_lw *w = f->w;
    int64_t threads = w->threads, above = below * size, turned = threads * r->turn;
    bool outer = r->turn == 1 || below >= turned;
    kn_expr *round = outer ? r->of_turns : r->in_turn;
    int64_t whole = outer ? f->total / f->run : turned, first = outer ? turned : threads;
    if (threads % above == 0) return digit(w, w->thread, below, threads > above ? size : 0);
    if (below % threads == 0) return digit(w, round, below / first, whole > above ? size : 0);
    kn_expr *high = digit(w, round, 1, whole > above ? above / threads : 0);
    return kn_bin(w->a, KN_OP_ADD, kn_bin(w->a, KN_OP_MUL, high, kn_lw_int(w, threads / below)), digit(w, w->thread, below, 0));
}

/* The position of this thread's run in this round: digits of its number, the last one in runs. */
static void position(fill *f, const rounds *r, kn_expr *flat)
{
    kn_lw *w = f->w;
    int64_t below = 1;
    bool parts = apart(f);
    for (int i = f->n - 1; i >= 0; below *= in_runs(f, i--)) {
        kn_expr *k = parts ? digit_apart(f, r, below, in_runs(f, i)) : digit(w, flat, below, i ? in_runs(f, i) : 0);
        f->k[i] = kn_lw_let(w, "k", k);
        if (i == f->n - 1) f->k[i] = kn_lw_simp(w, kn_bin(w->a, KN_OP_MUL, f->k[i], kn_lw_int(w, f->run)));
    }
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

/* A loop over so many rounds, what follows being its body. */
static kn_expr *begin_rounds(kn_lw *w, int64_t n, int64_t unroll, kn_ls ***after)
{
    int var = kn_lw_var(w, "fill", 0, n - 1);
    kn_ls *loop = kn_lw_for(w, var, kn_lw_int(w, 0), kn_lw_int(w, n));
    if (!loop) return NULL;
    loop->unroll = (int)unroll;
    *after = w->tail;
    w->tail = &loop->body;
    return kn_lw_ref(w, var);
}

void kn_lw_fill_shared(kn_lw *w, kn_sg *sg, int cache)
{
    fill f = { .w = w, .sg = sg, .c = &sg->g->caches[cache], .cache = cache, .total = 1, .lane = -1 };
    f.n = kn_cache_dims(sg, f.c, cache, f.size);
    for (int i = 0; i < f.n; i++) f.total *= f.size[i];
    bool async = find_run(&f);
    int64_t chunks = f.total / f.run, n = kn_ceil_div(chunks, w->threads), unroll = n < IN_FLIGHT ? n : IN_FLIGHT;
    bool once = sg->filling[cache] && sg->filling[cache]->op == KN_OP_CONST_I; /* ahead of the loop: its text would only take time to assemble */
    rounds r = { .turn = async || !apart(&f) ? 1 : turn(&f), .in_turn = kn_lw_int(w, 0) };
    if (r.turn > IN_FLIGHT) r.turn = 1;
    if (async) unroll = n > 16 ? 0 : once ? 1 : n;
    kn_ls **after, **inner;
    if (!(r.of_turns = begin_rounds(w, n / r.turn, async ? unroll : kn_ceil_div(unroll, r.turn), &after))) return;
    if (r.turn > 1 && !(r.in_turn = begin_rounds(w, r.turn, r.turn, &inner))) return;
    kn_expr *round = kn_bin(w->a, KN_OP_ADD, kn_bin(w->a, KN_OP_MUL, r.of_turns, kn_lw_int(w, r.turn)), r.in_turn);
    kn_expr *flat = kn_bin(w->a, KN_OP_ADD, kn_bin(w->a, KN_OP_MUL, round, kn_lw_int(w, w->threads)), w->thread);
    if (!apart(&f)) flat = kn_lw_let(w, "flat", flat);
    kn_expr *more = chunks % w->threads ? kn_lw_below(w, flat, chunks) : NULL;
    kn_ls *cond = more ? kn_lw_if(w, more) : NULL;
    if (cond) w->tail = &cond->body;
    position(&f, &r, flat); /* the last element bounds the outermost digit: under the condition flat < chunks */
    copy(&f, flat, async);
    w->tail = after;
}
