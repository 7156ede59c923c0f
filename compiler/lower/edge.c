/* Lanes along a row of a tensor whose columns are known, as where a tile is as long as the row: which of them lie in padding is known too, and so is
 * which elements they have in common with others. Whole vectors of the row are read, the last one so that it ends where the row does, and lanes are
 * picked from these and from padding. Where they lie some columns apart, each stretch of the row is first taken apart into what lies so far apart,
 * the same way whoever asks, so that all taps of a window read it and take it apart once. Column by column, the ends of a short row would take
 * longer than all the rest of it. Narrow lanes a few elements apart that lie anywhere are picked the same way. */
#include "lower/lower.h"

enum { STEP = 4, LANES = 64 };

bool kn_lw_picks_apart(int64_t step) { return step >= 1 && step <= STEP; }

static kn_expr *vector_at(kn_lw *w, const kn_lane_row *r, int64_t column, int lanes)
{
    kn_expr *at = kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, r->begin, kn_lw_int(w, column))), *read = kn_lw_read(w, r->buffer, at, lanes);
    return r->cond ? kn_lw_node(w, KN_OP_SELECT, read->dtype, lanes, r->cond, read, kn_lw_splat(w, r->other, lanes)) : read;
}

static int64_t within(int64_t x, int64_t most) { return x < 0 ? 0 : x < most ? x : most; }

/* Columns first, first + step .. of the stretch from `from` on, as many as a vector has lanes; those past the end of the row are anything. */
static kn_expr *apart(kn_lw *w, const kn_lane_row *r, int64_t from, int64_t first, int lanes)
{
    kn_expr *part[STEP];
    int number[LANES], n = 0;
    for (int64_t at = from; n < r->step && at < r->extent; at += lanes) part[n++] = vector_at(w, r, within(at, r->extent - lanes), lanes);
    for (int l = 0; l < lanes; l++) {
        int64_t column = from + first + l * r->step, k = (column - from) / lanes;
        number[l] = column < r->extent ? (int)(k * lanes + column - within(from + k * lanes, r->extent - lanes)) : 0;
    }
    return kn_lw_pick(w, lanes, n, part, number);
}

kn_expr *kn_lw_few_apart(kn_lw *w, int buffer, kn_expr *begin, int64_t step, int lanes)
{
    const kn_lane_row r = {.buffer = buffer, .begin = begin, .step = step, .extent = (lanes - 1) * step + 1};
    return lanes <= LANES && kn_lw_picks_apart(step) ? apart(w, &r, 0, 0, lanes) : NULL;
}

/* Lanes of the vectors x and y (NULL: there is no other one), and of padding. */
static kn_expr *mixed(kn_lw *w, const kn_lane_row *r, kn_expr *x, kn_expr *y, bool padded, const int *number, int lanes)
{
    kn_expr *from[3] = {x, y};
    int n = y ? 2 : 1;
    bool same = n == 1;
    for (int l = 0; l < lanes && same; l++) same = number[l] == l;
    if (same) return x;
    if (padded) from[n++] = kn_lw_splat(w, r->other, lanes);
    return kn_lw_pick(w, lanes, n, from, number);
}

static kn_expr *neighbours(kn_lw *w, const kn_lane_row *r, int lo, int hi, int lanes)
{
    int64_t begin = within(r->column, r->extent - lanes);
    int number[LANES];
    for (int l = 0; l < lanes; l++) number[l] = l < lo || l > hi ? lanes + l : (int)(r->column + l - begin);
    return mixed(w, r, vector_at(w, r, begin, lanes), NULL, true, number, lanes);
}

/* Lanes two columns apart, of two vectors that begin at an even column: each has half of them, in the order of a shuffle inside of halves, to which
 * padding is added; the quarters in the middle are exchanged last, so that sums of them may be (middle.c). */
static kn_expr *two_apart(kn_lw *w, const kn_lane_row *r, int lo, int hi, int lanes)
{
    int64_t base = r->column - (r->column & 1), at[2] = {within(base, r->extent - lanes), within(base + lanes, r->extent - lanes)};
    kn_expr *part[2] = {vector_at(w, r, at[0], lanes), vector_at(w, r, at[1], lanes)}, *mixed_with[2];
    int number[LANES], padded[LANES];
    for (int l = 0; l < lanes; l++) {
        int to = kn_ls_middle(l), half = l / (lanes / 2);
        int64_t column = r->column + within(l, hi) * 2;
        if (l < lo) column = r->column + lo * 2;
        number[to] = half * lanes + (int)within(column - at[half], lanes - 1);
        padded[to] = l < lo || l > hi ? lanes + to : to;
    }
    mixed_with[0] = kn_lw_pick(w, lanes, 2, part, number);
    mixed_with[1] = kn_lw_splat(w, r->other, lanes);
    return kn_lw_exchange(w, lo > 0 || hi < lanes - 1 ? kn_lw_pick(w, lanes, 2, mixed_with, padded) : mixed_with[0]);
}

kn_expr *kn_lw_row_lanes(kn_lw *w, const kn_lane_row *r, int lanes)
{
    enum kn_dtype t = w->p->buffers[r->buffer].dtype;
    int lo = 0, hi = lanes - 1, number[LANES];
    if (w->hw->gpu || !r->begin || lanes < 2 || lanes > LANES || r->extent < lanes || !kn_lw_picks_apart(r->step)) return NULL;
    if (t == KN_BOOL || kn_dtype_bytes(t) < 4) return NULL;
    while (lo < lanes && r->column + lo * r->step < 0) lo++;
    while (hi >= 0 && r->column + hi * r->step >= r->extent) hi--;
    if (hi < lo) return kn_lw_splat(w, r->other, lanes);
    bool padded = lo > 0 || hi < lanes - 1;
    if (r->step == 1) return padded ? neighbours(w, r, lo, hi, lanes) : NULL;
    if (r->step == 2 && kn_lw_halves_apart(w, t, lanes)) return two_apart(w, r, lo, hi, lanes);
    int64_t stretch = lanes * r->step, first = (r->column + lo * r->step) / stretch * stretch, remainder = (r->column + lo * r->step) % r->step;
    bool two = r->column + hi * r->step >= first + stretch;
    for (int l = 0; l < lanes; l++) number[l] = l < lo || l > hi ? (1 + two) * lanes + l : (int)((r->column + l * r->step - first) / r->step);
    return mixed(w, r, apart(w, r, first, remainder, lanes), two ? apart(w, r, first + stretch, remainder, lanes) : NULL, padded, number, lanes);
}
