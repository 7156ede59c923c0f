/* The results of an instruction's calls on their way out: whole vectors where the destination's lanes follow each other in memory, squares that
 * change places in registers where another loop does, else element by element. */
#include "lower/called.h"

static kn_expr *sum(kn_lw *w, kn_expr *x, kn_expr *y)
{
    kn_expr *e = kn_bin(w->a, KN_OP_ADD, x, y);
    return e ? kn_lw_simp(w, e) : &w->dry;
}

kn_tile kn_called_one(kn_called *x)
{
    return (kn_tile){ .w = x->w, .sg = x->sg, .lane_var = -1, .lanes = 1, .vloop = -1, .acc = -1, .part = -1, .spill = -1 };
}

/* Loop `lanes` is the destination's last index, whose results lie side by side in its tile. */
static bool in_lanes(const kn_called *x, int lanes)
{
    const kn_intrin_operand *o = &x->it->operand[0];
    return !x->w->hw->gpu && o->rank > 0 && o->plain && x->x->loop[o->lone[o->rank - 1]] == lanes;
}

/* Lanes from `from` on of a vector of results, as many as a shorter one has. */
static void store_lanes(kn_called *x, int lanes, int64_t from, int n)
{
    kn_lw *w = x->w;
    kn_tile one = kn_called_one(x);
    int lane = n > 1 ? kn_lw_var(w, "lane", 0, n - 1) : -1;
    x->sg->val[lanes] = n > 1 ? sum(w, kn_lw_int(w, from), kn_lw_ref(w, lane)) : kn_lw_int(w, from);
    kn_expr *at = kn_called_result(x);
    if (n > 1) kn_tile_store_lanes(&one, kn_lw_read(w, x->buffer[0], kn_lw_at_lane(w, at, lane, kn_lw_int(w, 0)), n), lane);
    else kn_tile_store_value(&one, kn_lw_read(w, x->buffer[0], at, 1));
    x->sg->val[lanes] = NULL;
}

void kn_called_store_first(kn_called *x, int lanes, int n)
{
    int64_t size = x->sg->g->loops[lanes].extent / 2;
    for (int from = 0; size > 0; size /= 2) {
        if (from + size > n) continue;
        store_lanes(x, lanes, from, (int)size);
        from += (int)size;
    }
}

/* The last vector of an axis, of n lanes, holds fewer results: they go out in vectors of 8, 4 and 2. *other as of store_vector. */
static void store_last(kn_called *x, int lanes, int n, kn_ls ***other)
{
    kn_lw *w = x->w;
    kn_tile one = kn_called_one(x);
    const kn_loop *l = &x->sg->g->loops[lanes];
    int rest = (int)(x->sg->s->axes[l->axis].extent % n);
    if (l->stride != 1 || !rest) return;
    x->sg->val[lanes] = kn_lw_int(w, rest - 1);
    kn_expr *in = kn_tile_in_range(&one);
    x->sg->val[lanes] = NULL;
    if (in && kn_lw_never(in)) return;
    w->tail = *other;
    kn_ls *cond = in ? kn_lw_if(w, in) : NULL;
    if (cond) w->tail = &cond->body;
    kn_called_store_first(x, lanes, rest);
    *other = cond ? &cond->other : NULL;
}

/* A vector that is longer than its axis; false: nothing has been stored. */
static bool store_short(kn_called *x, int lanes, int n, kn_ls ***other)
{
    kn_lw *w = x->w;
    kn_ls **here = w->tail;
    *other = here;
    store_last(x, lanes, n, other);
    if (*other == here) return false;
    if (*other) w->tail = &(*here)->next;
    return true;
}

/* What is in range of a vector of results, loop `lanes` of the nest, goes out at once where all of it is and it is one run of memory. *other: where
 * the rest is to be stored element by element, NULL: there is none. */
static bool store_vector(kn_called *x, int lanes, kn_ls ***other)
{
    kn_lw *w = x->w;
    kn_sg *sg = x->sg;
    const kn_intrin_operand *o = &x->it->operand[0];
    kn_tile one = kn_called_one(x);
    int n = (int)sg->g->loops[lanes].extent, lane = kn_lw_var(w, "lane", 0, n - 1);
    *other = NULL;
    if (!in_lanes(x, lanes) || n > 64 || (n & (n - 1))) return false;
    sg->val[lanes] = kn_lw_ref(w, lane);
    if (!kn_tile_consecutive(&one, o->dtype, lane)) return false;
    sg->val[lanes] = kn_lw_int(w, n - 1);
    kn_expr *in = kn_tile_in_range(&one);
    sg->val[lanes] = NULL;
    if (in && kn_lw_never(in)) return store_short(x, lanes, n, other);
    kn_ls *cond = in ? kn_lw_if(w, in) : NULL, **after = w->tail;
    if (cond) w->tail = &cond->body;
    sg->val[lanes] = kn_lw_ref(w, lane);
    kn_tile_store_lanes(&one, kn_lw_read(w, x->buffer[0], kn_lw_at_lane(w, kn_called_result(x), lane, kn_lw_int(w, 0)), n), lane);
    sg->val[lanes] = NULL;
    if (!cond) return true;
    *other = &cond->other;
    store_last(x, lanes, n, other);
    w->tail = after;
    return true;
}

/* Results follow each other in memory along loop i, and no loop inside it moves along the same axis. */
static bool runs_along(kn_called *x, int i)
{
    kn_sg *sg = x->sg;
    const kn_loop *l = &sg->g->loops[i];
    kn_tile one = kn_called_one(x);
    for (int k = i + 1; k < sg->g->nloops; k++)
        if (sg->g->loops[k].axis == l->axis) return false;
    int var = kn_lw_var(x->w, l->name, 0, l->extent - 1);
    sg->val[i] = kn_lw_ref(x->w, var);
    bool runs = kn_tile_consecutive(&one, x->it->operand[0].dtype, var);
    sg->val[i] = NULL;
    return runs;
}

/* A loop whose iterations go on where those of the last one end comes right before it: both write the same lines. */
static void order_lines(const kn_sg *sg, int n, int *order)
{
    const kn_loop *last = &sg->g->loops[order[n - 1]];
    for (int i = 0; i < n - 2; i++) {
        const kn_loop *l = &sg->g->loops[order[i]];
        if (l->axis != last->axis || l->stride != last->stride * last->extent) continue;
        int loop = order[i];
        for (int k = i; k < n - 2; k++) order[k] = order[k + 1];
        order[n - 2] = loop;
        return;
    }
}

/* The spatial loops that results are stored in, from number `from` on: one along which they follow each other in memory is the last, so that a
 * line is written while it is near. */
static int store_order(kn_called *x, int from, int *order)
{
    const kn_sg *sg = x->sg;
    int n = 0, run = -1;
    for (int i = from; i < sg->g->nloops; i++)
        if (!kn_tile_reduces(sg, i) && sg->g->loops[i].kind != KN_THREAD) order[n++] = i;
    if (x->w->hw->gpu || n < 2) return n;
    if (runs_along(x, order[n - 1])) {
        order_lines(sg, n, order);
        return n;
    }
    for (int i = 0; i < n - 1; i++)
        if (sg->g->loops[order[i]].extent > 1 && runs_along(x, order[i])) run = i;
    for (int i = run; i >= 0 && i < n - 1; i++) {
        int loop = order[i];
        order[i] = order[i + 1], order[i + 1] = loop;
    }
    return n;
}

/* Side of the squares of results that may change places in registers on their way out: where the destination's lanes, loop `lanes`, are not what
 * follows in memory, but loop `run` is. Of 16, 8 and 4 the one that leaves the least of the run; 0: there are none. */
static int square(kn_called *x, int lanes, int run)
{
    const kn_sg *sg = x->sg;
    const kn_intrin_operand *o = &x->it->operand[0];
    int64_t n = sg->g->loops[lanes].extent, extent = sg->g->loops[run].extent, left = extent;
    int best = 0;
    if (!in_lanes(x, lanes) || kn_dtype_bytes(o->dtype) != 4) return 0;
    if (sg->g->loops[lanes].axis == sg->g->loops[run].axis || !runs_along(x, run)) return 0;
    for (int side = 16; side >= 4; side /= 2) {
        if (n % side || side * 4 > x->w->hw->vector_bytes || extent % side >= left) continue;
        left = extent % side;
        best = side;
    }
    return best;
}

/* One square from iteration `first` of loop `run` and lane `lane` on: read lane by lane, turned, stored run by run. */
static void store_square(kn_called *x, int lanes, int run, int side, kn_expr *first, int lane)
{
    kn_lw *w = x->w;
    kn_sg *sg = x->sg;
    enum kn_dtype t = x->it->operand[0].dtype;
    kn_tile one = kn_called_one(x);
    int at = kn_lw_buffer(w, "square", t, side, side, KN_REGISTER), along = kn_lw_var(w, "lane", 0, side - 1);
    for (int r = 0; r < side && !w->status; r++) {
        sg->val[run] = sum(w, first, kn_lw_int(w, r));
        sg->val[lanes] = kn_lw_int(w, lane);
        kn_lw_store(w, at, kn_lw_int(w, r), kn_lw_read(w, x->buffer[0], kn_lw_simp(w, kn_called_result(x)), side));
    }
    at = kn_lw_transpose(w, at, t, side, 1);
    for (int l = 0; l < side && !w->status; l++) {
        sg->val[run] = sum(w, first, kn_lw_ref(w, along));
        sg->val[lanes] = kn_lw_int(w, lane + l);
        kn_tile_store_lanes(&one, kn_lw_read(w, at, kn_lw_int(w, l), side), along);
    }
}

/* What is left of the run, element by element. */
static void store_rest(kn_called *x, int lanes, int run, int64_t from)
{
    kn_lw *w = x->w;
    kn_sg *sg = x->sg;
    int64_t extent = sg->g->loops[run].extent, n = sg->g->loops[lanes].extent;
    kn_tile one = kn_called_one(x);
    if (from == extent) return;
    int lane = kn_lw_var(w, "lane", 0, n - 1), at = kn_lw_var(w, "rest", from, extent - 1);
    kn_ls *outer = kn_lw_for(w, lane, kn_lw_int(w, 0), kn_lw_int(w, n)), **after = w->tail;
    if (!outer) return;
    w->tail = &outer->body;
    kn_ls *inner = kn_lw_for(w, at, kn_lw_int(w, from), kn_lw_int(w, extent));
    if (inner) w->tail = &inner->body;
    sg->val[lanes] = kn_lw_ref(w, lane);
    sg->val[run] = kn_lw_ref(w, at);
    kn_tile_store_value(&one, kn_lw_read(w, x->buffer[0], kn_called_result(x), 1));
    w->tail = after;
}

/* The two innermost loops in squares, where all of it is in range. *other as of store_vector. */
static bool store_turned(kn_called *x, int lanes, int run, kn_ls ***other)
{
    kn_lw *w = x->w;
    kn_sg *sg = x->sg;
    int side = square(x, lanes, run);
    int64_t extent = sg->g->loops[run].extent, n = sg->g->loops[lanes].extent, blocks = side ? extent / side : 0;
    kn_tile one = kn_called_one(x);
    *other = NULL;
    if (!blocks) return false;
    sg->val[lanes] = kn_lw_int(w, n - 1);
    sg->val[run] = kn_lw_int(w, extent - 1);
    kn_expr *in = kn_tile_in_range(&one);
    kn_ls *cond = in && !kn_lw_never(in) ? kn_lw_if(w, in) : NULL, **after = w->tail;
    sg->val[lanes] = sg->val[run] = NULL;
    if (in && !cond) return false;
    if (cond) w->tail = &cond->body;
    int var = kn_lw_var(w, "block", 0, blocks - 1);
    kn_ls *loop = blocks > 1 ? kn_lw_for(w, var, kn_lw_int(w, 0), kn_lw_int(w, blocks)) : NULL, **behind = w->tail;
    if (loop) w->tail = &loop->body;
    for (int lane = 0; lane < n && !w->status; lane += side)
        store_square(x, lanes, run, side, loop ? kn_bin(w->a, KN_OP_MUL, kn_lw_ref(w, var), kn_lw_int(w, side)) : kn_lw_int(w, 0), lane);
    if (loop) w->tail = behind;
    store_rest(x, lanes, run, blocks * side);
    sg->val[lanes] = sg->val[run] = NULL;
    if (!cond) return true;
    w->tail = after;
    *other = &cond->other;
    return true;
}

/* Where squares change places on their way out, their lanes' loop stands before the run's. */
static bool order_squares(kn_called *x, int n, int *order)
{
    const kn_intrin_operand *o = &x->it->operand[0];
    int lanes = n > 1 && o->rank > 0 && o->plain ? x->x->loop[o->lone[o->rank - 1]] : -1, at = 0;
    while (at < n - 1 && order[at] != lanes) at++;
    if (lanes < 0 || at == n - 1 || !square(x, lanes, order[n - 1])) return false;
    for (; at < n - 2; at++) order[at] = order[at + 1];
    order[n - 2] = lanes;
    return true;
}

/* Where the tile of results that the unrolled loops name begins in memory, its rows *row elements apart there; NULL: results lie otherwise. */
static kn_expr *tile_place(kn_called *x, int *buffer, int64_t *row)
{
    kn_lw *w = x->w;
    const kn_intrin_operand *o = &x->it->operand[0];
    kn_tile one = kn_called_one(x);
    if (o->rank != 2 || !o->plain) return NULL;
    int loop[2], var[2];
    for (int d = 0; d < 2; d++) {
        loop[d] = x->x->loop[o->lone[d]];
        if (loop[d] < 0) return NULL;
        var[d] = kn_lw_var(w, "t", 0, o->shape[d] - 1);
    }
    for (int d = 0; d < 2; d++) x->sg->val[loop[d]] = kn_lw_ref(w, var[d]);
    kn_expr *at = kn_tile_unchanged(&one, o->dtype, buffer);
    for (int d = 0; d < 2; d++) x->sg->val[loop[d]] = NULL;
    if (!at || !kn_lw_unit_stride(at, var[1]) || !kn_lw_coefficient(at, var[0], row) || *row < o->shape[1]) return NULL;
    return kn_lw_at_lane(w, kn_lw_at_lane(w, at, var[0], kn_lw_int(w, 0)), var[1], kn_lw_int(w, 0));
}

kn_expr *kn_called_all_in_range(kn_called *x)
{
    kn_sg *sg = x->sg;
    kn_tile one = kn_called_one(x);
    for (int i = sg->first_reduce; i < sg->g->nloops; i++)
        if (!kn_tile_reduces(sg, i)) sg->val[i] = kn_lw_int(x->w, sg->g->loops[i].extent - 1);
    kn_expr *in = kn_tile_in_range(&one);
    for (int i = sg->first_reduce; i < sg->g->nloops; i++)
        if (!kn_tile_reduces(sg, i)) sg->val[i] = NULL;
    return in;
}

bool kn_called_store_tiles(kn_called *x, kn_ls ***rest)
{
    kn_lw *w = x->w;
    kn_sg *sg = x->sg;
    kn_unit_step step[KN_UNIT_MOST];
    int64_t n = w->p->buffers[sg->results].elems;
    *rest = NULL;
    for (int64_t c = 0; c < n; c++) {
        kn_called_register(x, c);
        step[c] = (kn_unit_step){.what = KN_UNIT_STORE, .reg = sg->results, .number = c};
        step[c].at = tile_place(x, &step[c].buffer, &step[c].row);
        kn_called_register(x, -1);
        if (!step[c].at) return false;
    }
    kn_expr *in = kn_called_all_in_range(x);
    if (kn_lw_never(in)) return false;
    kn_ls *cond = in ? kn_lw_if(w, in) : NULL, **after = w->tail;
    if (cond) w->tail = &cond->body;
    for (int64_t c = 0; c < n; c++) kn_lw_unit(w, &step[c]);
    w->tail = cond ? after : w->tail;
    *rest = cond ? &cond->other : NULL;
    return true;
}

void kn_called_store(kn_called *x, int from)
{
    enum { WRITTEN_OUT = 16 };
    kn_lw *w = x->w;
    kn_sg *sg = x->sg;
    kn_ls **after = NULL;
    int order[KILN_MAX_LOOPS], n;
    sg->rolled = true;
    for (int i = from; i < sg->g->nloops; i++) /* a thread has its own results alone */
        if (sg->g->loops[i].kind != KN_THREAD) sg->val[i] = NULL;
    n = store_order(x, from, order);
    int innermost = n ? order[n - 1] : -1;
    bool squares = order_squares(x, n, order);
    for (int k = 0; k < n; k++) {
        int i = order[k];
        kn_ls **rest, **here = w->tail;
        if ((squares && k == n - 2 && store_turned(x, i, innermost, &rest)) || (i == innermost && store_vector(x, i, &rest))) {
            if (!after) after = rest ? &(*here)->next : w->tail;
            if (!rest) break;
            w->tail = rest;
        }
        kn_ls *loop = kn_lw_loop(w, sg, i);
        if (!loop) return;
        bool few = sg->g->loops[i].extent > 1 && sg->g->loops[i].extent <= WRITTEN_OUT;
        if (i == innermost && few && !w->hw->gpu) loop->unroll = (int)sg->g->loops[i].extent;
        if (!after) after = w->tail;
        w->tail = &loop->body;
    }
    if (!n || sg->val[innermost]) { /* n 0: one result, and no loop over it */
        kn_tile one = kn_called_one(x);
        kn_expr *in = kn_tile_in_range(&one);
        kn_ls *cond = in ? kn_lw_if(w, in) : NULL;
        if (cond && !after) after = w->tail;
        if (cond) w->tail = &cond->body;
        kn_tile_store_value(&one, kn_lw_read(w, x->buffer[0], kn_called_result(x), 1));
    }
    if (after) w->tail = after;
    sg->rolled = false;
}
