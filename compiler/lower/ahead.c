/* Operands on their way from memory. Packed constants: while a chunk of them is used again and again, the chunk that comes next is asked for, line by
 * line over all of those uses. In a model every kernel finds its weights far away, because those of the others have been read since; fetched at first
 * use they come no faster than one core can ask, and nothing is computed meanwhile. Those that are used once are asked for a fixed way ahead.
 * Operands as they lie, of which a tile reads a short run of every row: runs of other rows lie in other pages, so hardware prefetchers begin anew at
 * each of them. While a block of rows is used, the runs beside it are asked for, and at the rows' end those that the next block begins with.
 * Rows whose elements meet vectors: where few of these are met, the next tile's rows are asked for, since each of them begins anew as well.
 * Nothing is asked for that the hardware brings by itself (`follows_runs`) while little is computed. */
#include "lower/tile.h"

enum { MOST_LINES = 4, MOST_OF_RUN = 6 };  /* an iteration: more are a stream, which the processor follows by itself */
enum { WORTH = 32, STREAM = 4 }; /* fetching takes more than this part of the time of computing; of that of fetching a stream computing does */

typedef struct chunk {
    int buffer;
    kn_expr *at;          /* of the first element that this iteration of the innermost loop reads */
    kn_expr *begins;      /* the same in the first iteration */
    int64_t elems, step;  /* of the chunk; of one iteration */
    int64_t uses;         /* times that the loops outside the tile go through the chunk */
    kn_expr *use;         /* which of these it is */
    int64_t next;         /* elements from the chunk to the one that the loop around these times brings; 0: none does */
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

/* Loops that do not move the chunk use it again; the one outside them brings the next. A thread takes tasks that follow each other. */
static void find_uses(kn_tile *x, chunk *c)
{
    const kn_sg *sg = x->sg;
    c->uses = 1;
    c->use = kn_lw_int(x->w, 0);
    c->next = 0;
    for (int j = sg->tile - 1; j >= 0; j--) {
        if (sg->g->loops[j].extent == 1) continue;
        enum kn_loop_kind kind = sg->g->loops[j].kind;
        if ((kind != KN_SERIAL && kind != KN_PARALLEL) || !moves(sg, j, c->at, &c->next) || c->next) return;
        c->use = plus(x->w, c->use, sg->val[j], c->uses);
        c->uses *= sg->g->loops[j].extent;
    }
}

/* Reduce loop j of the tile is written out around the loops that read the chunk. */
static bool written_out(const kn_sg *sg, int j)
{
    const kn_loop *l = &sg->g->loops[j];
    return kn_tile_has(sg, j) && kn_tile_reduces(sg, j) && l->kind == KN_UNROLL && l->extent > 1;
}

/* By how much a loop that is written out moves the load. */
static bool moves_written_out(kn_tile *x, int i, int j, int load, int64_t *c)
{
    int buffer, var = kn_lw_var(x->w, "k", 0, x->sg->g->loops[j].extent - 1);
    kn_expr *was = x->sg->val[j];
    x->sg->val[j] = kn_lw_ref(x->w, var);
    kn_expr *at = place(x, i, load, &buffer);
    x->sg->val[j] = was;
    return at && kn_lw_coefficient(at, var, c);
}

/* The chunk is what the tile's own loops read, from end to end. */
static bool find_chunk(kn_tile *x, int i, int load, chunk *c)
{
    kn_lw *w = x->w;
    const kn_sg *sg = x->sg;
    int64_t by;
    if (!moves(sg, i, c->at, &c->step) || c->step < 1) return false;
    c->elems = c->step * sg->g->loops[i].extent;
    c->begins = plus(w, c->at, sg->val[i], -c->step);
    for (int j = i - 1; j >= sg->tile; j--) {
        bool out = written_out(sg, j);
        if (!out && !serial_reduce(sg, j)) continue;
        if (!(out ? moves_written_out(x, i, j, load, &by) : moves(sg, j, c->at, &by)) || by != c->elems) return false;
        c->begins = plus(w, c->begins, sg->val[j], -by);
        c->elems *= sg->g->loops[j].extent;
    }
    find_uses(x, c);
    if (c->next != c->elems) return false;
    c->ahead = plus(w, kn_lw_int(w, c->elems), c->use, kn_ceil_div(c->elems, c->uses));
    for (int64_t each = c->step, j = i; j >= sg->tile; j--) {
        if (!serial_reduce(sg, (int)j) && !written_out(sg, (int)j)) continue;
        c->ahead = plus(w, c->ahead, sg->val[j], kn_ceil_div(each, c->uses));
        each *= sg->g->loops[j].extent;
    }
    return true;
}

/* Operations of the stage. */
static double products(const kn_tile *x)
{
    double points = 2;
    for (int a = 0; a < x->sg->s->naxes; a++) points *= (double)x->sg->s->axes[a].extent;
    return points;
}

/* Bringing the buffer takes a part of the computing's time that is worth an instruction an iteration. What is used once is a stream, which the
 * processor follows by itself where little is computed between its lines, or it is near. */
static bool worth(const kn_tile *x, int buffer, bool once)
{
    const kn_buffer *b = &x->w->p->buffers[buffer];
    const kn_hw *hw = x->w->hw;
    double bytes = (double)b->elems * kn_dtype_bytes(b->dtype), fetched = bytes / hw->levels[0].bandwidth_gbs;
    double computed = products(x) / kn_hw_peak_gflops(hw, x->acc_type);
    if (once && (computed * STREAM < fetched || bytes <= (double)kn_hw_level_named(hw, "l2")->capacity_bytes)) return false;
    return fetched * WORTH > computed;
}

/* The tensor takes some times longer to come than the stage to compute, from a memory whose runs the hardware follows: asking for lines is more work
 * for what is busy already (weights of 50 to 150 MB on a Zen 4, without: packed 2 rows 1.4 to 1.7 times as fast, 4 rows 1.0 to 1.5, 8 rows 1.07 to
 * 1.35, 16 rows 0.8 to 1.07; as they lie 2 rows 1.0 to 1.3, 4 rows 0.93 to 1.17, 8 rows 0.76 to 1.16). From the last level of cache it does not come
 * so: twice of what that holds is certainly memory's (4 rows by 17 MB, packed: 0.64). */
static bool comes_by_itself(const kn_tile *x, int load, bool packed)
{
    const double times = packed ? 2 : 5;
    const kn_hw *hw = x->w->hw;
    const kn_tensor *t = &x->w->p->program->tensors[x->sg->loads[load]->u.tensor];
    double bytes = (double)kn_lw_elems(t) * kn_dtype_bytes(t->dtype);
    if (!hw->follows_runs || !kn_hw_past_caches(hw, bytes / 2)) return false;
    return times * products(x) / kn_hw_peak_gflops(hw, x->acc_type) < bytes / hw->levels[0].bandwidth_gbs;
}

/* Bytes that memory brings in the meantime: as many as it could bring while it brings one line, and some, since it is not only asked for these. */
static int64_t far_ahead(const kn_hw *hw)
{
    enum { SOME = 6 };
    const kn_hw_level *far = &hw->levels[0];
    return (int64_t)(SOME * far->latency_ns * far->bandwidth_gbs);
}

/* Each of the tile's vectors goes along a run of its own. */
typedef struct streams {
    int64_t n, apart;     /* how many; elements from one to the next */
} streams;

static bool moves_row(kn_tile *x, int j, int load, int64_t *c);

static bool find_streams(kn_tile *x, int load, int64_t step, streams *s)
{
    const kn_sg *sg = x->sg;
    int64_t by;
    *s = (streams){ .n = 1 };
    for (int j = sg->tile; j < sg->g->nloops && x->lane_var >= 0 && !x->reduce_lanes; j++) {
        if (!kn_tile_spatial(sg, j) || j == x->vloop || kn_tile_extent(sg, j) == 1) continue;
        if (!moves_row(x, j, load, &by) || (by > step && s->n > 1)) return false;
        if (by > step) *s = (streams){ .n = kn_tile_extent(sg, j), .apart = by };
    }
    return s->n > 1;
}

/* All of them lie in pages of their own, and are asked for as far ahead as together bring enough; where the vectors are used again, each of these
 * times asks for some of the streams. */
static void ask_streams(kn_tile *x, int i, chunk *c, const streams *s)
{
    kn_lw *w = x->w;
    int64_t bytes = kn_dtype_bytes(w->p->buffers[c->buffer].dtype), line = KN_LINE_BYTES / bytes;
    if (!moves(x->sg, i, c->at, &c->step) || c->step < 1 || c->step > line || !worth(x, c->buffer, false)) return;
    find_uses(x, c);
    bool again = c->uses > 1 && c->next > 0;
    int64_t each = again ? kn_ceil_div(s->n, c->uses) : s->n, ahead = again ? c->next : kn_round_up(far_ahead(w->hw) / bytes / s->n, line);
    kn_expr *from = plus(w, c->at, kn_lw_int(w, ahead), 1);
    for (int64_t k = 0; k < each; k++) {
        kn_expr *number = again ? plus(w, kn_lw_int(w, k), c->use, each) : kn_lw_int(w, k);
        if (again && each * c->uses > s->n) number = kn_bin(w->a, KN_OP_MIN, number, kn_lw_int(w, s->n - 1));
        kn_lw_prefetch(w, c->buffer, kn_lw_simp(w, plus(w, from, number, s->apart)), false);
    }
}

static void ask(kn_tile *x, int i, int load, const kn_hw_level *l1, const kn_hw_level *l2)
{
    kn_lw *w = x->w;
    chunk c = { .buffer = -1 };
    streams s;
    c.at = place(x, i, load, &c.buffer);
    if (!c.at || w->status) return;
    if (moves(x->sg, i, c.at, &c.step) && find_streams(x, load, c.step, &s)) {
        ask_streams(x, i, &c, &s);
        return;
    }
    if (!find_chunk(x, i, load, &c)) return;
    const kn_buffer *b = &w->p->buffers[c.buffer];
    int64_t bytes = kn_dtype_bytes(b->dtype), line = l1->transaction_bytes / bytes, lines = line ? kn_ceil_div(c.step, c.uses * line) : 0;
    if (lines < 1 || lines > MOST_LINES || c.elems * bytes > l2->capacity_bytes / 2 || !worth(x, c.buffer, c.uses == 1)) return;
    kn_expr *from = c.uses > 1 ? kn_bin(w->a, KN_OP_ADD, c.begins, c.ahead) : plus(w, c.at, kn_lw_int(w, far_ahead(w->hw) / bytes), 1);
    from = from ? kn_lw_simp(w, from) : &w->dry;
    for (int64_t k = 0; k < lines; k++) kn_lw_prefetch(w, c.buffer, kn_lw_simp(w, plus(w, from, kn_lw_int(w, k), line)), false);
}

/* A block of runs, one a row: the tile's reduce loop goes from row to row. */
typedef struct runs {
    kn_expr *at;          /* of the run that this iteration reads */
    int64_t elems;        /* of a run */
    int64_t uses;         /* times that the block is read */
    kn_expr *use;         /* which of these it is */
    int beside, below;    /* loops to the runs beside these, and to the rows below, -1: none */
    int64_t down;         /* elements from block to block of rows */
} runs;

/* Loops that leave the runs alone read them again; the next one goes to the runs that follow them in memory, one further out to other rows. */
static bool find_beside(kn_tile *x, runs *r)
{
    const kn_sg *sg = x->sg;
    int64_t by;
    r->uses = 1;
    r->use = kn_lw_int(x->w, 0);
    r->beside = r->below = -1;
    for (int j = sg->tile - 1; j >= 0 && r->below < 0; j--) {
        const kn_loop *l = &sg->g->loops[j];
        if (l->extent == 1) continue;
        if (l->kind != KN_SERIAL) return r->beside >= 0;
        if (!moves(sg, j, r->at, &by)) return false;
        if (r->beside >= 0) {
            r->below = by > 0 ? j : -1;
            r->down = by;
        } else if (by) {
            if (by != r->elems) return false;
            r->beside = j;
        } else {
            r->use = plus(x->w, r->use, sg->val[j], r->uses);
            r->uses *= l->extent;
        }
    }
    return r->beside >= 0;
}

static bool find_runs(kn_tile *x, int i, runs *r)
{
    const kn_sg *sg = x->sg;
    int64_t step;
    if (!moves(sg, i, r->at, &step)) return false;
    r->elems = x->lanes;
    for (int j = sg->tile; j < sg->g->nloops; j++)
        if (kn_tile_spatial(sg, j) && j != x->vloop && sg->g->loops[j].axis == sg->g->loops[x->vloop].axis) r->elems *= sg->g->loops[j].extent;
    return step > r->elems && find_beside(x, r);
}

/* How many runs further on those lie that memory brings in the meantime. */
static int64_t runs_ahead(const kn_hw *hw, int64_t block_bytes) { return kn_ceil_div(far_ahead(hw), block_bytes); }

/* How many runs the task has of a row: the last task may have fewer. */
static kn_expr *runs_of_row(kn_tile *x, const runs *r)
{
    kn_lw *w = x->w;
    const kn_sg *sg = x->sg;
    const kn_loop *l = &sg->g->loops[r->beside];
    int64_t extent = sg->s->axes[l->axis].extent;
    kn_expr *rest = kn_lw_int(w, extent + l->stride - 1);
    if (extent % (l->extent * l->stride) == 0) return kn_lw_int(w, l->extent);
    for (int j = 0; j < r->beside; j++)
        if (sg->g->loops[j].axis == l->axis && sg->val[j]) rest = plus(w, rest, sg->val[j], -sg->g->loops[j].stride);
    return kn_bin(w->a, KN_OP_MIN, kn_lw_int(w, l->extent), kn_bin(w->a, KN_OP_FLOORDIV, rest, kn_lw_int(w, l->stride)));
}

/* What is to be added where the runs ahead are past the rows' end, so that they are those which the next block begins with; 0 elsewhere. */
static kn_expr *rows_end(kn_tile *x, const runs *r, int64_t ahead)
{
    kiln_arena *a = x->w->a;
    kn_expr *n = runs_of_row(x, r), *past = plus(x->w, kn_lw_int(x->w, ahead + 1), x->sg->val[r->beside], 1);
    past = kn_bin(a, KN_OP_SUB, past, n);
    past = kn_bin(a, KN_OP_MIN, kn_bin(a, KN_OP_MAX, past, kn_lw_int(x->w, 0)), kn_lw_int(x->w, 1));
    return kn_bin(a, KN_OP_MUL, past, plus(x->w, kn_lw_int(x->w, r->down), n, -r->elems));
}

/* Where the tile would read that was moved back to end with its axis: the runs that follow are counted from there. */
static kn_expr *place_unmoved(kn_tile *x, int i, int load, int *buffer)
{
    kn_expr *base[KILN_MAX_AXES];
    kn_tile_unmoved(x->sg, base);
    kn_expr *at = place(x, i, load, buffer);
    kn_tile_moved(x->sg, base);
    return at;
}

/* The load is of a tensor that L2 does not hold, along the tile's lanes. */
static bool far_along(const kn_tile *x, const kn_expr *load)
{
    const kn_sg *sg = x->sg;
    bool lanes = x->vloop >= 0 && !x->reduce_lanes && (kn_axes_in(load) >> sg->g->loops[x->vloop].axis & 1);
    return lanes && !load->padded && kn_lw_beyond_l2(x->w, load->u.tensor);
}

/* The uses share the lines of a run. Of each line the end is asked for: what lies before the run in its first line has come with the run before. */
static void ask_beside(kn_tile *x, int i, int load, const kn_hw_level *l1, const kn_hw_level *l2)
{
    kn_lw *w = x->w;
    const kn_sg *sg = x->sg;
    runs r = { .below = -1 };
    int buffer = -1;
    if (!far_along(x, sg->loads[load])) return;
    r.at = place_unmoved(x, i, load, &buffer);
    if (!r.at || w->status || w->p->buffers[buffer].scope != KN_GLOBAL || !find_runs(x, i, &r)) return;
    const kn_buffer *b = &w->p->buffers[buffer];
    int64_t bytes = kn_dtype_bytes(b->dtype), line = l1->transaction_bytes / bytes, block = sg->g->loops[i].extent * r.elems * bytes;
    if (line < 1 || block > l2->capacity_bytes / 2) return;
    int64_t lines = kn_ceil_div(r.elems, line), each = kn_ceil_div(lines, r.uses), ahead = runs_ahead(w->hw, block);
    int64_t below = r.below >= 0 ? ahead / sg->g->loops[r.beside].extent : 0; /* blocks, of rows that end before */
    if (each > MOST_OF_RUN) return;
    ahead -= below * sg->g->loops[r.beside].extent;
    kn_expr *from = plus(w, r.at, kn_lw_int(w, ahead * r.elems + below * r.down), 1), *first = r.use;
    if (r.below >= 0) from = kn_bin(w->a, KN_OP_ADD, from, rows_end(x, &r, ahead));
    if (each == 1) first = kn_bin(w->a, KN_OP_FLOORDIV, plus(w, kn_lw_int(w, 0), r.use, lines), kn_lw_int(w, r.uses));
    from = plus(w, from, first, each * line);
    for (int64_t k = 1; k <= each; k++) kn_lw_prefetch(w, buffer, kn_lw_simp(w, plus(w, from, kn_lw_int(w, k * line - 1), 1)), false);
}

/* Rows of a tile, which the reduce loop goes along. */
typedef struct rows {
    kn_expr *begin;       /* of the first one */
    int64_t n, down, run; /* how many; elements from one to the next, and of each */
    int64_t step;         /* elements of each that an iteration reads */
    int64_t uses;         /* times that the tile's rows are read */
    kn_expr *use;         /* which of these it is */
    int64_t next;         /* elements to the next tile's */
} rows;

/* By how much register loop j moves the load. */
static bool moves_row(kn_tile *x, int j, int load, int64_t *c)
{
    int buffer;
    kn_expr *at;
    kn_tile_set(x, 0);
    if (x->reduce_lanes) x->sg->val[x->vloop] = kn_lw_int(x->w, 0);
    x->sg->val[j] = kn_lw_ref(x->w, x->lane_var);
    kn_env v = kn_tile_env(x);
    bool plain = kn_env_place(&v, x->sg->loads[load], &buffer, &at);
    kn_tile_set(x, 0);
    return plain && kn_lw_coefficient(at, x->lane_var, c);
}

static bool find_tile_rows(kn_tile *x, int load, rows *r)
{
    const kn_sg *sg = x->sg;
    int64_t c;
    r->n = 1;
    for (int j = sg->tile; j < sg->g->nloops; j++) {
        if (!kn_tile_spatial(sg, j) || j == x->vloop || kn_tile_extent(sg, j) == 1) continue;
        if (!moves_row(x, j, load, &c) || (c && r->n > 1)) return false;
        if (!c) continue;
        r->n = kn_tile_extent(sg, j);
        r->down = c;
    }
    return r->n > 1 && r->down > 0;
}

/* The loop to the next rows, the reduction's own alone inside the tile. */
static bool find_rows(kn_tile *x, int i, int load, rows *r, kn_expr *at)
{
    const kn_sg *sg = x->sg;
    for (int j = sg->tile; j < i; j++)
        if (serial_reduce(sg, j)) return false;
    if (!moves(sg, i, at, &r->step) || r->step != (x->reduce_lanes ? x->lanes : 1) || !find_tile_rows(x, load, r)) return false;
    r->run = sg->g->loops[i].extent * r->step;
    r->begin = plus(x->w, at, sg->val[i], -r->step);
    r->uses = 1;
    r->use = kn_lw_int(x->w, 0);
    r->next = 0;
    for (int j = sg->tile - 1; j >= 0 && !r->next; j--) {
        const kn_loop *l = &sg->g->loops[j];
        if (l->extent == 1) continue;
        if ((l->kind != KN_SERIAL && l->kind != KN_PARALLEL) || !moves(sg, j, at, &r->next)) return false;
        if (r->next) return r->next >= r->n * r->down;
        r->use = plus(x->w, r->use, sg->val[j], r->uses);
        r->uses *= l->extent;
    }
    return false;
}

/* The tensor is read by elements, none of which the lanes move, or by lanes along the sum. */
static bool far_across(const kn_tile *x, const kn_expr *load)
{
    if (!kn_lw_beyond_l2(x->w, load->u.tensor) || load->padded || x->vloop < 0 || x->lane_var < 0) return false;
    return (kn_axes_in(load) >> x->sg->g->loops[x->vloop].axis & 1) == x->reduce_lanes;
}

/* The next tile's rows, in the order in which they lie, a part at each of the iterations. */
static void ask_rows(kn_tile *x, int i, int load, const kn_hw_level *l1, const kn_hw_level *l2)
{
    enum { AGAIN = 4 }; /* times that a line may be asked for, because an iteration's part is less */
    kn_lw *w = x->w;
    rows r = { .n = 1 };
    int buffer = -1;
    if (!far_across(x, x->sg->loads[load])) return;
    kn_expr *at = place_unmoved(x, i, load, &buffer);
    if (!at || w->status || w->p->buffers[buffer].scope != KN_GLOBAL || !find_rows(x, i, load, &r, at)) return;
    int64_t bytes = kn_dtype_bytes(w->p->buffers[buffer].dtype), line = l1->transaction_bytes / bytes;
    int64_t part = kn_ceil_div(r.n, r.uses), lines = kn_ceil_div(part * r.step, line);
    if (r.down * bytes < KN_ROWS_APART || r.n * r.run * bytes > l2->capacity_bytes / 2) return;
    if (part * r.step * AGAIN < line || lines > MOST_LINES || !worth(x, buffer, false)) return;
    kn_expr *done = plus(w, plus(w, kn_lw_int(w, 0), x->sg->val[i], r.step), r.use, r.run), *gone = plus(w, kn_lw_int(w, 0), done, part);
    kn_expr *from = plus(w, kn_bin(w->a, KN_OP_ADD, r.begin, kn_lw_int(w, r.next)), gone, 1);
    if (r.down != r.run) from = plus(w, from, kn_bin(w->a, KN_OP_FLOORDIV, gone, kn_lw_int(w, r.run)), r.down - r.run);
    for (int64_t k = 0; k < lines; k++) kn_lw_prefetch(w, buffer, kn_lw_simp(w, plus(w, from, kn_lw_int(w, k), line)), false);
}

/* Loop i, of the reduction, is the innermost around the tile's registers. */
static bool innermost(const kn_tile *x, int i)
{
    const kn_sg *sg = x->sg;
    const kn_hw *hw = x->w->hw;
    if (hw->gpu || sg->rolled || !kn_hw_level_named(hw, "l1") || !kn_hw_level_named(hw, "l2") || !serial_reduce(sg, i)) return false;
    for (int j = i + 1; j < sg->g->nloops; j++)
        if (serial_reduce(sg, j)) return false;
    return true;
}

void kn_tile_ahead_at_once(kn_tile *x, int i)
{
    if (innermost(x, i)) kn_lw_next_copies_at_once(x->w, x->sg, i);
}

void kn_tile_ahead(kn_tile *x, int i)
{
    const kn_sg *sg = x->sg;
    const kn_hw_level *l1 = kn_hw_level_named(x->w->hw, "l1"), *l2 = kn_hw_level_named(x->w->hw, "l2");
    if (!innermost(x, i)) return;
    kn_lw_next_copies(x->w, x->sg, i);
    for (int k = 0; k < sg->nloads; k++) {
        bool packed = kn_sg_cached(sg, k) && sg->g->caches[sg->cache_of[k]].scope == KN_PACKED;
        if (comes_by_itself(x, k, packed)) continue;
        if (!kn_sg_cached(sg, k)) ask_beside(x, i, k, l1, l2), ask_rows(x, i, k, l1, l2);
        else if (packed) ask(x, i, k, l1, l2);
    }
}
