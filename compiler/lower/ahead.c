/* Packed constants on their way from memory: while a chunk of them is used again and again, the chunk that comes next is asked for, line by line
 * over all of those uses. In a model every kernel finds its weights far away, because those of the others have been read since; fetched at first
 * use they come no faster than one core can ask, and nothing is computed meanwhile. */
#include "lower/tile.h"

enum { MOST_LINES = 4 };  /* an iteration: more are a stream, which the processor follows by itself */
enum { WORTH = 32 };      /* fetching takes more than this part of the time of computing */

typedef struct chunk {
    int buffer;
    kn_expr *at;          /* of the first element that this iteration of the innermost loop reads */
    kn_expr *begins;      /* the same in the first iteration */
    int64_t elems, step;  /* of the chunk; of one iteration */
    int64_t uses;         /* times that the loops outside the tile go through the chunk */
    kn_expr *use;         /* which of these it is */
    kn_expr *ahead;       /* what is asked for, from the next chunk's beginning: as far as the iterations are, by uses */
} chunk;

static bool serial_reduce(const kn_sg *sg, int i)
{
    const kn_loop *l = &sg->g->loops[i];
    return kn_tile_has(sg, i) && kn_tile_reduces(sg, i) && !kn_is_register(l->kind) && l->extent > 1;
}

/* Loop i moves `at` by *c elements an iteration; 0 where it has one iteration or none of its own. */
static bool moves(const kn_sg *sg, int i, const kn_expr *at, int64_t *c)
{
    const kn_expr *v = sg->val[i];
    *c = 0;
    if (sg->g->loops[i].extent == 1 || !v) return true;
    return v->op == KN_OP_VAR && kn_lw_coefficient(at, v->u.var, c);
}

/* Where load `load` reads in this iteration of loop i, the innermost of the tile's that is not unrolled. */
static kn_expr *place(kn_tile *x, int i, int load, int *buffer)
{
    kn_sg *sg = x->sg;
    kn_expr *at = NULL, *was[KILN_MAX_LOOPS];
    for (int j = i + 1; j < sg->g->nloops; j++) {
        was[j] = sg->val[j];
        if (kn_tile_has(sg, j) && kn_tile_reduces(sg, j)) sg->val[j] = kn_lw_int(x->w, 0);
    }
    kn_tile_set(x, 0);
    kn_env v = kn_tile_env(x);
    bool plain = kn_env_place(&v, sg->loads[load], buffer, &at);
    if (plain && x->lane_var >= 0) at = kn_lw_at_lane(x->w, at, x->lane_var, kn_lw_int(x->w, 0));
    for (int j = i + 1; j < sg->g->nloops; j++) sg->val[j] = was[j];
    return plain ? kn_lw_simp(x->w, at) : NULL;
}

static kn_expr *plus(kn_lw *w, kn_expr *e, kn_expr *by, int64_t times)
{
    return times ? kn_bin(w->a, KN_OP_ADD, e, kn_bin(w->a, KN_OP_MUL, by, kn_lw_int(w, times))) : e;
}

/* Loops that do not move the chunk use it again; the one outside them must bring the next. A thread takes tasks that follow each other. */
static bool find_uses(kn_tile *x, chunk *c)
{
    const kn_sg *sg = x->sg;
    int64_t by;
    c->uses = 1;
    c->use = kn_lw_int(x->w, 0);
    for (int j = sg->tile - 1; j >= 0; j--) {
        if (sg->g->loops[j].extent == 1) continue;
        enum kn_loop_kind kind = sg->g->loops[j].kind;
        if ((kind != KN_SERIAL && kind != KN_PARALLEL) || !moves(sg, j, c->at, &by)) return false;
        if (by) return by == c->elems && c->uses > 1;
        c->use = plus(x->w, c->use, sg->val[j], c->uses);
        c->uses *= sg->g->loops[j].extent;
    }
    return false;
}

/* The chunk is what the tile's own loops read, from end to end. */
static bool find_chunk(kn_tile *x, int i, chunk *c)
{
    kn_lw *w = x->w;
    const kn_sg *sg = x->sg;
    int64_t by;
    if (!moves(sg, i, c->at, &c->step) || c->step < 1) return false;
    c->elems = c->step * sg->g->loops[i].extent;
    c->begins = plus(w, c->at, sg->val[i], -c->step);
    for (int j = i - 1; j >= sg->tile; j--) {
        if (!serial_reduce(sg, j)) continue;
        if (!moves(sg, j, c->at, &by) || by != c->elems) return false;
        c->begins = plus(w, c->begins, sg->val[j], -by);
        c->elems *= sg->g->loops[j].extent;
    }
    if (!find_uses(x, c)) return false;
    c->ahead = plus(w, kn_lw_int(w, c->elems), c->use, kn_ceil_div(c->elems, c->uses));
    for (int64_t each = c->step, j = i; j >= sg->tile; j--) {
        if (!serial_reduce(sg, (int)j)) continue;
        c->ahead = plus(w, c->ahead, sg->val[j], kn_ceil_div(each, c->uses));
        each *= sg->g->loops[j].extent;
    }
    return true;
}

/* Bringing the constants takes a part of the computing's time that is worth an instruction an iteration. */
static bool worth(const kn_tile *x, const kn_buffer *b)
{
    const kn_hw *hw = x->w->hw;
    const kn_stmt *s = x->sg->s;
    double points = 2;
    for (int a = 0; a < s->naxes; a++) points *= (double)s->axes[a].extent;
    double fetched = (double)b->elems * kn_dtype_bytes(b->dtype) / hw->levels[0].bandwidth_gbs;
    return fetched * WORTH > points / kn_hw_peak_gflops(hw, x->acc_type);
}

static void ask(kn_tile *x, int i, int load, const kn_hw_level *l1, const kn_hw_level *l2)
{
    kn_lw *w = x->w;
    chunk c = { .buffer = -1 };
    c.at = place(x, i, load, &c.buffer);
    if (!c.at || w->status || !find_chunk(x, i, &c)) return;
    const kn_buffer *b = &w->p->buffers[c.buffer];
    int64_t bytes = kn_dtype_bytes(b->dtype), line = l1->transaction_bytes / bytes, lines = line ? kn_ceil_div(c.step, c.uses * line) : 0;
    if (lines < 1 || lines > MOST_LINES || c.elems * bytes > l2->capacity_bytes / 2 || !worth(x, b)) return;
    kn_expr *from = kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, c.begins, c.ahead));
    for (int64_t k = 0; k < lines; k++) kn_lw_prefetch(w, c.buffer, kn_lw_simp(w, plus(w, from, kn_lw_int(w, k), line)), false);
}

void kn_tile_ahead(kn_tile *x, int i)
{
    const kn_sg *sg = x->sg;
    const kn_hw_level *l1 = kn_hw_level_named(x->w->hw, "l1"), *l2 = kn_hw_level_named(x->w->hw, "l2");
    if (x->w->hw->gpu || sg->rolled || !l1 || !l2 || !serial_reduce(sg, i)) return;
    for (int j = i + 1; j < sg->g->nloops; j++)
        if (serial_reduce(sg, j)) return;
    for (int k = 0; k < sg->nloads; k++)
        if (sg->cache_of[k] >= 0 && sg->g->caches[sg->cache_of[k]].scope == KN_PACKED) ask(x, i, k, l1, l2);
}
