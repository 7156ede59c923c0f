/* Copies that are made block by block of an operand far away: each has a short run of every row, which lies in a page of its own, so that no
 * hardware prefetcher brings the next one. While the tiles of the present block are computed, the runs of the next are asked for, a few lines in
 * every iteration: all that its rows' terms need, shared by the times that the block is gone through. Where these are more than an iteration has
 * lines, a tile asks for its share before it begins, for each line once: an iteration that asks for the same lines again and again goes over as many
 * pages as the block has rows, more than a TLB of the first level holds (1024x1024x4096 took 1.5 times as long on an Ice Lake). Of a block that L2
 * does not hold beside the present one the lines are gone again before they are asked for again (512x1024x8192, 548x1024x30522: 2.0 and 2.5 times as
 * long on a Granite Rapids); smaller ones had better be asked for bit by bit than in long bursts (196 to 441 columns: 0.93 to 1.0). A task asks for
 * the copy that the next one makes where few tiles go through it (1x1 windows, channels first, of images that L2 does not hold to 16 to 96: 1.03 to
 * 1.3 times as fast; to 168 and more 0.93 to 1.0 if all of them asked). */
#include "lower/cache.h"
#include <string.h>

enum { MOST_LINES = 8, SOME = 6 };

typedef struct next {
    kn_lw *w;
    kn_sg *sg;
    int cache, n, i;             /* i: the innermost loop around the tile */
    int64_t size[KILN_MAX_LOOPS];
    int64_t run, rows;           /* elements that follow each other; rows of them in an iteration */
    int row;                     /* the dimension along which these lie apart, -1: one */
    int64_t uses;                /* times that the block is gone through */
    kn_expr *use;                /* which of these it is */
    int64_t line, lines;         /* elements of a line; lines that an iteration's runs have */
    int64_t block;               /* bytes of the copy */
    int64_t blocks;              /* how many blocks further those lie that are asked for */
} next;

static const kn_cache *cache_of(const next *f) { return &f->sg->g->caches[f->cache]; }

static bool serial(const kn_sg *sg, int i) { return sg->g->loops[i].kind == KN_SERIAL && sg->val[i]; }

/* A serial loop, or the innermost one of tasks, of which a core has some that follow each other. */
static bool goes_on(const kn_sg *sg, int i)
{
    return serial(sg, i) || (sg->g->loops[i].kind == KN_PARALLEL && sg->val[i] && sg->g->loops[i].extent > 1 &&
                             (i + 1 >= sg->g->nloops || sg->g->loops[i + 1].kind != KN_PARALLEL));
}

/* Dimensions that the loops inside of the tile and those in registers are: runs, and rows of them. */
static bool find_runs(next *f)
{
    kn_lw *w = f->w;
    kn_expr *k[KILN_MAX_LOOPS] = { NULL };
    int first = w->p->nvars;
    bool taken[KILN_MAX_LOOPS] = { false };
    int64_t step;
    for (int d = 0; d < f->n; d++) kn_lw_var(w, "k", 0, f->size[d] - 1);
    for (int d = 0; d < f->n; d++) k[d] = kn_lw_ref(w, first + d);
    kn_expr *at = kn_cache_source(w, f->sg, f->cache, k).at;
    f->run = 1;
    for (int pass = 0; pass < f->n; pass++)
        for (int d = 0; d < f->n; d++) {
            bool held = cache_of(f)->loops[d] > f->i;
            if (!held || taken[d] || !kn_lw_coefficient(at, first + d, &step) || step != f->run) continue;
            taken[d] = true;
            f->run *= f->size[d];
        }
    f->row = -1;
    f->rows = 1;
    for (int d = 0; d < f->n; d++) {
        if (taken[d] || cache_of(f)->loops[d] <= f->i || f->size[d] == 1) continue;
        if (f->row >= 0) return false;
        f->row = d;
        f->rows = f->size[d];
    }
    return f->run > 1;
}

/* Serial loops over results between the copy and the tile go through it again. */
static bool find_uses(next *f)
{
    kn_lw *w = f->w;
    f->uses = 1;
    f->use = kn_lw_int(w, 0);
    for (int j = f->i - 1; j > cache_of(f)->at; j--) {
        const kn_loop *l = &f->sg->g->loops[j];
        if (l->extent == 1 || kn_cache_dim_of(cache_of(f), j) >= 0) continue;
        if (!serial(f->sg, j)) return false;
        f->use = kn_bin(w->a, KN_OP_ADD, f->use, kn_bin(w->a, KN_OP_MUL, f->sg->val[j], kn_lw_int(w, f->uses)));
        f->uses *= l->extent;
    }
    return true;
}

/* The loop that makes the copies goes `blocks` further, past its end on to the next iteration of the loop around it. */
static void go_on(next *f, int64_t blocks)
{
    kn_lw *w = f->w;
    kn_sg *sg = f->sg;
    int at = cache_of(f)->at, out = at - 1;
    kn_expr *then = kn_bin(w->a, KN_OP_ADD, sg->val[at], kn_lw_int(w, blocks));
    while (out >= 0 && sg->g->loops[out].extent == 1) out--;
    if (out >= 0 && serial(sg, out)) {
        kn_expr *n = kn_lw_int(w, sg->g->loops[at].extent);
        sg->val[out] = kn_bin(w->a, KN_OP_ADD, sg->val[out], kn_bin(w->a, KN_OP_FLOORDIV, then, n));
        then = kn_bin(w->a, KN_OP_MOD, then, n);
    }
    sg->val[at] = then;
}

/* Where run `r` of iteration `now` of loop i begins in the block after the next few. */
static kn_source begins(next *f, kn_expr *now, kn_expr *r)
{
    kn_sg *sg = f->sg;
    kn_expr *saved[KILN_MAX_LOOPS], *k[KILN_MAX_LOOPS];
    memcpy(saved, sg->val, sizeof saved);
    for (int d = 0; d < f->n; d++) {
        int l = cache_of(f)->loops[d];
        k[d] = d == f->row ? r : l == f->i ? now : l < f->i && sg->val[l] ? sg->val[l] : kn_lw_int(f->w, 0);
    }
    go_on(f, f->blocks);
    kn_source s = kn_cache_source(f->w, sg, f->cache, k);
    memcpy(sg->val, saved, sizeof saved);
    return s;
}

/* The loop that makes the copies moves what they are of, which lies further away than L2. */
static bool is_far(const next *f)
{
    const kn_expr *load = f->sg->loads[cache_of(f)->load];
    return kn_lw_beyond_l2(f->w, load->u.tensor) && (kn_axes_in(load) >> f->sg->g->loops[cache_of(f)->at].axis & 1);
}

static void count_lines(next *f)
{
    const kn_hw_level *l1 = kn_hw_level_named(f->w->hw, "l1"), *far = &f->w->hw->levels[0];
    int64_t bytes = kn_dtype_bytes(f->sg->loads[cache_of(f)->load]->dtype);
    f->block = bytes;
    for (int d = 0; d < f->n; d++) f->block *= f->size[d];
    f->line = l1->transaction_bytes / bytes;
    f->lines = kn_ceil_div(f->run, f->line) * f->rows;
    f->blocks = kn_ceil_div((int64_t)(SOME * far->latency_ns * far->bandwidth_gbs), f->block);
}

/* Line `number` of the runs of iteration `now` of loop i. */
static void ask_line(next *f, kn_expr *now, kn_expr *number)
{
    kn_lw *w = f->w;
    kn_expr *each_run = kn_lw_int(w, kn_ceil_div(f->run, f->line));
    kn_expr *row = kn_bin(w->a, KN_OP_FLOORDIV, number, each_run);
    kn_expr *in_run = kn_bin(w->a, KN_OP_MUL, kn_bin(w->a, KN_OP_MOD, number, each_run), kn_lw_int(w, f->line));
    if (!row || !in_run) return;
    kn_source s = begins(f, now, kn_lw_simp(w, row));
    kn_expr *from = kn_bin(w->a, KN_OP_ADD, s.at, in_run);
    if (from) kn_lw_prefetch(w, s.buffer, kn_lw_simp(w, from), false);
}

/* In every iteration of loop i: its runs' lines, shared by the uses. */
static void ask(next *f)
{
    kn_lw *w = f->w;
    enum { OFTEN = 4 }; /* times that a line of the next task's is asked for: what it takes is a larger part of a task than what it saves */
    int64_t each = kn_ceil_div(f->lines, f->uses);
    bool task = f->sg->g->loops[cache_of(f)->at].kind == KN_PARALLEL;
    if (each > MOST_LINES || (task && f->uses > OFTEN * f->lines)) return;
    kn_expr *first = kn_bin(w->a, KN_OP_FLOORDIV, kn_bin(w->a, KN_OP_MUL, f->use, kn_lw_int(w, f->lines)), kn_lw_int(w, f->uses));
    for (int64_t k = 0; k < each && !w->status; k++) ask_line(f, f->sg->val[f->i], kn_bin(w->a, KN_OP_ADD, first, kn_lw_int(w, k)));
}

/* Of all iterations' lines a use's share; 0 where each iteration asks for its own, as around instructions always. */
static int64_t at_once(const next *f)
{
    enum { BURST = 32, LONG_BURST = 256 };
    const kn_hw_level *l2 = kn_hw_level_named(f->w->hw, "l2");
    bool stays = !l2 || f->block <= l2->capacity_bytes / 4;
    if (f->sg->g->tensor.intrin) return 0;
    int64_t share = kn_ceil_div(f->lines * f->sg->g->loops[f->i].extent, f->uses);
    return f->uses >= 2 * f->lines && share <= (stays ? BURST : LONG_BURST) ? share : 0;
}

/* Before loop i begins. */
static void ask_at_once(next *f, int64_t share)
{
    kn_lw *w = f->w;
    int var = kn_lw_var(w, "line", 0, share - 1);
    kn_ls *loop = kn_lw_for(w, var, kn_lw_int(w, 0), kn_lw_int(w, share)), **after = w->tail;
    if (!loop) return;
    w->tail = &loop->body;
    kn_expr *number = kn_bin(w->a, KN_OP_ADD, kn_bin(w->a, KN_OP_MUL, f->use, kn_lw_int(w, share)), kn_lw_ref(w, var));
    kn_expr *lines = kn_lw_int(w, f->lines), *now = kn_bin(w->a, KN_OP_FLOORDIV, number, lines), *line = kn_bin(w->a, KN_OP_MOD, number, lines);
    if (now && line) ask_line(f, kn_lw_simp(w, now), kn_lw_simp(w, line));
    w->tail = after;
}

/* begun: loop i is open; else its iterations are about to begin. */
static void next_copies(kn_lw *w, kn_sg *sg, int i, bool begun)
{
    if (w->hw->gpu || !kn_hw_level_named(w->hw, "l1") || sg->g->loops[i].kind != KN_SERIAL || (begun && !sg->val[i])) return;
    for (int c = 0; c < sg->g->ncaches && !w->status; c++) {
        next f = { .w = w, .sg = sg, .cache = c, .i = i };
        const kn_cache *cache = cache_of(&f);
        if (cache->region || cache->scope != KN_SCRATCH || cache->copies || cache->at < 0 || cache->at >= i || !goes_on(sg, cache->at)) continue;
        f.n = kn_cache_dims(sg, cache, c, f.size);
        if (kn_cache_dim_of(cache, i) < 0 || !is_far(&f) || !find_runs(&f) || !find_uses(&f)) continue;
        count_lines(&f);
        int64_t share = at_once(&f);
        if (!begun && share) ask_at_once(&f, share);
        else if (begun && !share) ask(&f);
    }
}

void kn_lw_next_copies(kn_lw *w, kn_sg *sg, int i) { next_copies(w, sg, i, true); }

void kn_lw_next_copies_at_once(kn_lw *w, kn_sg *sg, int i) { next_copies(w, sg, i, false); }
