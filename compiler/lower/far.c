/* Results that go to memory beyond the caches. Past these, where a description says that is better (`streaming_store_bytes`): whole lines of runs
 * and of turned squares (rows that are none: lines.c); of vectors that are half a line runs of whole lines alone, and no output in which a temporary
 * lies, of others lines of products too that lie apart, or that an instruction computed; the generated entry, or the task, waits for them. Elsewhere
 * their lines are asked for ahead: of runs, of what short sums write, and of what lies rows apart. */
#include "lower/tile.h"

/* Where element c goes of a tile that was moved back to end with its axis, had it not been. */
static kn_expr *place_unmoved(kn_tile *x, int64_t c)
{
    kn_expr *base[KILN_MAX_AXES];
    kn_tile_unmoved(x->sg, base);
    kn_expr *at = kn_tile_place(x, c);
    kn_tile_moved(x->sg, base);
    return at;
}

/* How much further the next tile's results lie, of which `at` is one; 0: there is no next one, or it is not known. */
static int64_t step_of(kn_tile *x, const kn_expr *at)
{
    const kn_sg *sg = x->sg;
    int last = sg->tile - 1;
    int64_t step;
    while (last >= 0 && (sg->g->loops[last].extent == 1 || kn_tile_reduces(sg, last))) last--;
    bool known = last >= 0 && sg->val[last] && sg->val[last]->op == KN_OP_VAR && kn_lw_coefficient(at, sg->val[last]->u.var, &step);
    return known ? step : 0;
}

/* The tile's elements are one run of the output, from *at on, and the next tile's follow: a line that is asked for ahead is written at the rate of
 * reads, one that is not waits for memory in the store buffer (measured: 1.5 times the rate of plain stores where nothing is read, 1.2 times
 * where as much is). */
static bool runs_on(kn_tile *x, kn_expr **at)
{
    kn_lw *w = x->w;
    int64_t run = x->ncombo * x->lanes;
    kn_expr *end = place_unmoved(x, x->ncombo - 1);
    *at = place_unmoved(x, 0);
    if (!*at || !end || step_of(x, *at) != run) return false;
    end = kn_lw_simp(w, kn_lw_node(w, KN_OP_SUB, KN_I64, 1, end, *at, NULL));
    return end->op == KN_OP_CONST_I && end->u.i == run - x->lanes;
}

static int output_of(const kn_tile *x)
{
    const kn_stage *g = x->sg->g;
    return g->epilogue < 0 ? x->sg->s->out : x->w->p->program->stmts[g->epilogue]->out;
}

static int64_t bytes_of(const kn_lw *w, int tensor)
{
    const kn_tensor *t = &w->p->program->tensors[tensor];
    return kn_lw_elems(t) * kn_dtype_bytes(t->dtype);
}

/* The last level of cache does not hold the tensor: what is worth writing in another way, or asking for before it is computed. */
static bool beyond_caches(const kn_lw *w, int tensor) { return bytes_of(w, tensor) > w->hw->levels[1].capacity_bytes; }

int64_t kn_lw_touched(const kn_lw *w)
{
    const kn_program *p = w->p->program;
    int64_t all = 0;
    for (int t = 0; t < p->ntensors; t++) {
        int64_t n = kn_dtype_bytes(p->tensors[t].dtype);
        for (int i = 0; i < p->tensors[t].rank && !w->box[t].on && !w->box[t].in_place; i++) n *= p->tensors[t].shape[i];
        all += n;
    }
    return all;
}

/* The last dimension is whole lines. */
static bool whole_lines(const kn_tensor *t)
{
    return (t->rank ? t->shape[t->rank - 1] : 1) * kn_dtype_bytes(t->dtype) % KN_LINE_BYTES == 0;
}

/* Where two vectors write a line, rows are whole lines. */
bool kn_lw_past_caches(const kn_lw *w, int out)
{
    const kn_tensor *t = &w->p->program->tensors[out];
    bool halves = w->hw->vector_bytes * 2 == KN_LINE_BYTES;
    if (halves ? t->rank > 1 && !whole_lines(t) : w->hw->vector_bytes < KN_LINE_BYTES) return false;
    if (w->hw->gpu || w->box[out].on || (halves && kn_lw_taken(w, out)) || kn_dtype_bytes(t->dtype) < 4) return false;
    return kn_hw_past_caches(w->hw, (double)kn_lw_touched(w));
}

/* What is computed takes longer than writing it does. */
bool kn_lw_long_functions(const kn_expr *e)
{
    static const uint8_t is[] = {KN_OP_EXP, KN_OP_LOG, KN_OP_TANH, KN_OP_ERF, KN_OP_SIN, KN_OP_COS, KN_OP_POW};
    for (size_t i = 0; i < sizeof is; i++)
        if (e->op == is[i]) return true;
    for (int i = 0; i < e->nargs && e->op != KN_OP_LOAD; i++)
        if (kn_lw_long_functions(e->args[i])) return true;
    return false;
}

/* The tile's vectors are lines of an output that alone is so large, however far apart, and the next tile's are elsewhere (1x1 windows with the
 * channels first, of 32x128x28x28 to 512 and 32x64x56x56 to 64: 1.1 and 1.25 times as fast; of 32x64x56x56 to 256, whose rows go on, 0.97; where all
 * that is touched is so large, but the output is not, 0.96 to 1.03). */
static bool of_lines(kn_tile *x, int out)
{
    kn_lw *w = x->w;
    const kn_tensor *t = &w->p->program->tensors[out];
    int64_t line = KN_LINE_BYTES / kn_dtype_bytes(t->dtype);
    if (t->role != KN_OUTPUT || x->lanes != line || x->part >= 0 || !kn_hw_past_caches(w->hw, (double)bytes_of(w, out))) return false;
    for (int64_t c = 0; c < x->ncombo; c++) {
        kn_expr *at = kn_tile_place(x, c);
        at = at ? kn_lw_simp(w, kn_bin(w->a, KN_OP_MOD, at, kn_lw_int(w, line))) : NULL;
        if (!at || at->op != KN_OP_CONST_I || at->u.i) return false;
    }
    kn_expr *first = place_unmoved(x, 0);
    return first && step_of(x, first) > x->ncombo * line;
}

/* The tile's vectors lie along rows that are no whole lines, and do not begin with these (lines.c): of a line that was written past the caches, and
 * is written to again by the next row or by what was moved back to end with its row, the rest comes from memory first (softmax of rows of 152: a
 * quarter of the rate of rows of 160). */
static bool shares_lines(const kn_tile *x, int out)
{
    const kn_program *p = x->w->p->program;
    const kn_tensor *t = &p->tensors[out];
    const kn_stmt *s = x->sg->g->epilogue < 0 ? x->sg->s : p->stmts[x->sg->g->epilogue];
    bool rows = t->rank > 1 && s->lhs[t->rank - 1]->op == KN_OP_AXIS;
    return rows && !whole_lines(t) && !x->sg->by_lines;
}

/* A map that does little but read runs and write one, of which the hardware brings all (1.6 to 2 million results, a Zen 4: 1.1 to 1.4 times as fast
 * as with lines that are asked for; what makes rows of results in several steps has time to ask, and is 0.8 times as fast if it does not). */
static bool streams(const kn_tile *x)
{
    const kn_stage *g = x->sg->g;
    bool alone = g->epilogue < 0 && !g->ncaches && x->sg->s->red == KN_RED_NONE;
    for (int i = 0; i < x->w->t->nstages; i++) alone = alone && x->w->t->stages[i]->at_stage != x->sg->index;
    for (int i = 0; i < x->sg->nloads; i++) alone = alone && x->sg->turned_of[i] < 0;
    return x->w->hw->follows_runs && alone;
}

/* Either is what makes an output of such a size fast; which of them, the hardware's description says. */
void kn_tile_write_far(kn_tile *x)
{
    enum { AHEAD = 2048 };
    kn_lw *w = x->w;
    const kn_sg *sg = x->sg;
    const kn_program *p = w->p->program;
    int out = output_of(x);
    int64_t bytes = kn_dtype_bytes(p->tensors[out].dtype);
    kn_expr *at = NULL;
    if (w->hw->gpu || x->lanes < 2 || x->reduce_lanes || sg->rolled || w->box[out].on || !beyond_caches(w, out)) return;
    bool run = runs_on(x, &at), past = kn_lw_past_caches(w, out) && !kn_lw_turns_near(w, sg, x->vloop) && !shares_lines(x, out);
    int64_t span = x->ncombo * x->lanes * bytes, lines = kn_ceil_div(span, KN_LINE_BYTES);
    if (w->hw->vector_bytes < KN_LINE_BYTES) { /* no line is left half written in between, nor while its other half is computed */
        const kn_expr *last = sg->g->epilogue < 0 ? sg->s->body : p->stmts[sg->g->epilogue]->body;
        past &= run && span % KN_LINE_BYTES == 0 && !kn_lw_long_functions(sg->s->body) && !kn_lw_long_functions(last);
    }
    if (past && (run || sg->s->red == KN_RED_NONE || of_lines(x, out))) w->streamed = kn_lw_tensor(w, out);
    if (!run || past || kn_lw_taken(w, out) || streams(x)) return; /* what it overwrites is there */
    at = kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, at, kn_lw_int(w, AHEAD / bytes)));
    kn_lw_prefetch_lines(w, kn_lw_tensor(w, out), at, lines, KN_LINE_BYTES / bytes, true);
}

void kn_tile_write_lines(kn_tile *x, int64_t lanes)
{
    kn_lw *w = x->w;
    int out = output_of(x);
    const kn_tensor *t = &w->p->program->tensors[out];
    if (lanes * kn_dtype_bytes(t->dtype) != KN_LINE_BYTES || !whole_lines(t) || t->role != KN_OUTPUT || !kn_lw_past_caches(w, out)) return;
    if (kn_hw_past_caches(w->hw, (double)bytes_of(w, out))) w->streamed = kn_lw_tensor(w, out);
}

/* Inputs that the epilogue reads element by element where it writes (what a residual adds), at most `most`. */
static int read_where_written(const kn_tile *x, int *tensors, int most)
{
    const kn_program *p = x->w->p->program;
    const kn_expr *loads[16];
    if (x->sg->g->epilogue < 0) return 0;
    const kn_stmt *s = p->stmts[x->sg->g->epilogue];
    const kn_tensor *out = &p->tensors[s->out];
    int count = kn_loads(s->body, loads, 16), n = 0;
    for (int l = 0; l < count && l < 16 && n < most; l++) {
        const kn_tensor *t = &p->tensors[loads[l]->u.tensor];
        bool same = t->role == KN_INPUT && t->rank == out->rank && !loads[l]->padded && t->dtype == out->dtype && !x->w->box[loads[l]->u.tensor].on;
        for (int d = 0; d < t->rank && same; d++)
            same = t->shape[d] == out->shape[d] && (t->shape[d] == 1 || kn_expr_equal(loads[l]->args[d], s->lhs[d]));
        if (same) tensors[n++] = loads[l]->u.tensor;
    }
    return n;
}

/* Rows of the tile's results, of which the first one begins at `first`, whose lines fall into one set of L1. */
static bool in_one_set(kn_tile *x, kn_expr *first)
{
    kn_lw *w = x->w;
    const kn_hw_level *l1 = kn_hw_level_named(w->hw, "l1");
    int64_t bytes = kn_dtype_bytes(x->acc_type);
    for (int64_t c = 1; c < x->ncombo; c++) {
        kn_expr *e = kn_tile_place(x, c);
        e = e ? kn_lw_simp(w, kn_lw_node(w, KN_OP_SUB, KN_I64, 1, e, first, NULL)) : NULL;
        if (e && e->op == KN_OP_CONST_I && e->u.i && kn_hw_in_one_set(l1, e->u.i * bytes)) return true;
    }
    return false;
}

/* Sums so short that their results leave faster than lines come, of vectors that are parts of lines: no prefetcher follows what a register tile
 * writes, some of each of its rows. Elements to the tile of the next turn of the innermost loop whose turns each take as long as a line does to
 * come; 0: what is computed takes so much longer that stores hide, the output is not as far away as memory (depthwise windows of L3: 0.92 to 1),
 * or no loop does. 3x150x150 by 2x2 to 128, channels last: 1.38 times as fast. Not rows that fall into one set of L1 (3x3 of 224x224, channels
 * first: 0.95). */
static int64_t lines_ahead(kn_tile *x, int out, int64_t terms)
{
    enum { HIDES = 8, RESTART = 10 }; /* times as long; cycles between two tiles */
    const kn_hw *hw = x->w->hw;
    kn_sg *sg = x->sg;
    const kn_tensor *t = &x->w->p->program->tensors[out];
    int64_t bytes = bytes_of(x->w, out), step = 0;
    const kn_hw_level *from = &hw->levels[0], *l2 = kn_hw_level_named(hw, "l2");
    double flops = 2, tiles = 1, cycles = (double)(x->ncombo * terms) / (hw->fma_per_cycle > 1 ? hw->fma_per_cycle : 1) + (double)x->ncombo + RESTART;
    for (int a = 0; a < sg->s->naxes; a++) flops *= (double)sg->s->axes[a].extent;
    double fetched = 2 * (double)bytes / from->bandwidth_gbs, computed = flops / kn_hw_peak_gflops(hw, x->acc_type);
    if (!beyond_caches(x->w, out) || x->part >= 0 || x->acc < 0) return 0;
    if (kn_lw_past_caches(x->w, out) || fetched * HIDES < computed) return 0;
    kn_expr *base[KILN_MAX_AXES];
    kn_tile_unmoved(sg, base);
    kn_expr *at = kn_tile_place(x, 0);
    bool crowded = at && in_one_set(x, at);
    kn_tile_moved(sg, base);
    if (crowded) return 0;
    for (int j = sg->tile - 1; j >= 0 && at; j--) {
        const kn_loop *l = &sg->g->loops[j];
        if (l->extent == 1) continue;
        bool known = (l->kind == KN_SERIAL || l->kind == KN_PARALLEL) && sg->val[j] && sg->val[j]->op == KN_OP_VAR;
        if (!known || !kn_lw_coefficient(at, sg->val[j]->u.var, &step) || step <= 0) return 0;
        if (tiles * cycles >= from->latency_ns * hw->clock_ghz) {
            double between = tiles * (double)(x->ncombo * x->lanes * kn_dtype_bytes(t->dtype));
            return between <= (double)(l2->capacity_bytes / 4) ? step : 0;
        }
        tiles *= (double)l->extent;
    }
    return 0;
}

/* The lines that a tile's sums go to, asked for before they are summed, and those of what is added to them: what is stored lies rows apart, and a
 * store that misses waits. */
void kn_tile_prefetch_out(kn_tile *x)
{
    enum { LEAST = 32, MOST = 64, BESIDE = 2 };
    kn_lw *w = x->w;
    const kn_sg *sg = x->sg;
    const kn_program *p = w->p->program;
    int beside[BESIDE], nbeside = read_where_written(x, beside, BESIDE);
    const kn_hw_level *l2 = kn_hw_level_named(w->hw, "l2");
    int out = output_of(x);
    int64_t bytes = kn_dtype_bytes(p->tensors[out].dtype), terms = 1;
    for (int i = sg->tile; i < sg->g->nloops; i++) if (kn_tile_reduces(sg, i)) terms *= sg->g->loops[i].extent;
    bool wide = x->lanes * bytes >= KN_LINE_BYTES, waits = wide || (nbeside && x->lanes > 1); /* parts of lines: only what is read is worth it */
    if (!l2 || bytes_of(w, out) <= l2->capacity_bytes || w->box[out].on || x->reduce_lanes || x->ncombo > MOST) return;
    if (wide && !nbeside && kn_lw_past_caches(w, out) && of_lines(x, out)) return;
    int64_t ahead = !waits && x->lanes > 1 ? lines_ahead(x, out, terms) : 0;
    if (!ahead && (!waits || terms < LEAST)) return;
    kn_expr *at = kn_tile_place(x, 0);
    if (!at) return;
    kn_ls *last = x->part >= 0 ? kn_lw_if(w, x->last) : NULL, **after = w->tail;
    if (last) w->tail = &last->body;
    kn_expr *base = kn_lw_let(w, "to", at);
    int64_t line = KN_LINE_BYTES / bytes, asked = -line; /* vectors of a row follow each other */
    for (int64_t c = 0; c < x->ncombo && !w->status; c++) {
        kn_expr *e = kn_tile_place(x, c);
        e = e ? kn_lw_simp(w, kn_lw_node(w, KN_OP_SUB, KN_I64, 1, e, at, NULL)) : NULL;
        if (!e || e->op != KN_OP_CONST_I || (e->u.i >= asked && e->u.i < asked + line)) continue;
        asked = e->u.i;
        kn_expr *to = kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, base, kn_lw_int(w, e->u.i + ahead)));
        kn_lw_prefetch(w, kn_lw_tensor(w, out), to, true);
        for (int b = 0; b < nbeside; b++) kn_lw_prefetch(w, kn_lw_tensor(w, beside[b]), kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, base, e)), false);
    }
    if (last) w->tail = after;
}
