/* Rows that follow each other without a gap, as many as fill vectors, summed along lanes: whole vectors are read from the first row to the last, each
 * once and as aligned as what goes in, and one in which two rows meet gives its lanes to both. Row by row, each one's vectors would straddle lines,
 * and its last one begin before its turn. Lanes are turned back to where they would be if each row began with a vector, so that equal rows have equal
 * sums. As many rows behind these are asked for meanwhile, unless the device's prefetchers follow runs, of which this is one (a Zen 4, without, 4096
 * to 70000 rows of 121 and 85: 1.13 to 1.3 times as fast). */
#include "lower/tile.h"

enum { VECTORS = 192, MEET = 32, LANES = 64 };

typedef struct joined {
    kn_tile *x;
    int buffer;
    kn_expr *at;          /* where the first row begins */
    int64_t row, rows;    /* elements of one; how many */
} joined;

/* The only load is the term itself, as it is. */
static bool bare(const kn_tile *x)
{
    const kn_sg *sg = x->sg;
    return sg->nloads == 1 && sg->s->body == sg->loads[0] && !sg->loads[0]->padded && !kn_sg_cached(sg, 0) && sg->loads[0]->dtype == x->acc_type &&
           x->acc_type != KN_BOOL;
}

/* All of the reduction, along one axis, lies in this tile, which is in range as a whole wherever it is: all rows are summed in the same order. */
static bool whole(const kn_tile *x, int64_t *row)
{
    const kn_sg *sg = x->sg;
    int axis = -1;
    for (int a = sg->s->nspatial; a < sg->s->naxes; a++) {
        if (sg->s->axes[a].extent > 1 && axis >= 0) return false;
        if (sg->s->axes[a].extent > 1) axis = a;
    }
    for (int i = 0; i < sg->tile; i++)
        if (kn_tile_reduces(sg, i) && sg->g->loops[i].extent > 1) return false;
    *row = axis >= 0 ? sg->s->axes[axis].extent : 0;
    return axis >= 0 && axis == sg->g->loops[x->vloop].axis && !x->full && x->part < 0;
}

/* Where lane 0 of the first vector of row c is read. */
static kn_expr *begins(joined *j, int64_t c, int64_t lane)
{
    kn_tile *x = j->x;
    kn_sg *sg = x->sg;
    kn_expr *at;
    for (int i = sg->tile; i < sg->g->nloops; i++)
        if (kn_tile_has(sg, i) && kn_tile_reduces(sg, i)) sg->val[i] = kn_lw_int(x->w, i == x->vloop ? lane : 0);
    kn_tile_set(x, c);
    sg->val[x->vloop] = kn_lw_int(x->w, lane);
    kn_env v = kn_tile_env(x);
    v.lane_var = -1;
    return kn_env_place(&v, sg->loads[0], &j->buffer, &at) ? at : NULL;
}

static bool apart(kn_lw *w, kn_expr *from, kn_expr *to, int64_t by)
{
    kn_expr *d = from && to ? kn_bin(w->a, KN_OP_SUB, to, from) : NULL;
    d = d ? kn_lw_simp(w, d) : NULL;
    return d && d->op == KN_OP_CONST_I && d->u.i == by;
}

static bool follow(joined *j)
{
    kn_lw *w = j->x->w;
    j->at = begins(j, 0, 0);
    bool yes = j->at && apart(w, j->at, begins(j, 0, 1), 1);
    for (int64_t c = 1; c < j->rows && yes; c++) yes = apart(w, j->at, begins(j, c, 0), c * j->row);
    for (int i = j->x->sg->tile; i < j->x->sg->g->nloops; i++)
        if (kn_tile_has(j->x->sg, i) && kn_tile_reduces(j->x->sg, i)) j->x->sg->val[i] = NULL;
    return yes;
}

/* Lanes from..to-1 of the vector, the others what the reduction begins with. */
static kn_expr *part_of(joined *j, kn_expr *vector, int64_t from, int64_t to)
{
    kn_tile *x = j->x;
    kn_lw *w = x->w;
    int n = x->lanes;
    if (from <= 0 && to >= n) return vector;
    kn_expr *lane = kn_lw_lanes(w, kn_lw_node(w, KN_OP_CAST, KN_F32, 1, kn_lw_ref(w, x->lane_var), NULL, NULL), x->lane_var, n);
    kn_expr *none = kn_lw_splat(w, kn_tile_identity(w, x->sg->s->red, x->acc_type), n), *value = vector;
    if (from > 0) {
        kn_expr *first = kn_lw_splat(w, kn_lw_zero(w, KN_F32, (double)from), n);
        value = kn_lw_node(w, KN_OP_SELECT, x->acc_type, n, kn_lw_node(w, KN_OP_LE, KN_BOOL, n, first, lane, NULL), value, none);
    }
    if (to >= n) return value;
    kn_expr *end = kn_lw_splat(w, kn_lw_zero(w, KN_F32, (double)to), n);
    return kn_lw_node(w, KN_OP_SELECT, x->acc_type, n, kn_lw_node(w, KN_OP_LT, KN_BOOL, n, lane, end, NULL), value, none);
}

static void add(joined *j, int64_t k, kn_expr *vector)
{
    kn_tile *x = j->x;
    kn_lw *w = x->w;
    int64_t begin = k * x->lanes, end = begin + x->lanes;
    for (int64_t r = begin / j->row; r < j->rows && r * j->row < end && !w->status; r++) {
        kn_expr *term = part_of(j, vector, r * j->row - begin, (r + 1) * j->row - begin), *at = kn_lw_int(w, r);
        bool first = r * j->row >= begin;
        if (!first) term = kn_lw_node(w, kn_combines(x->sg->s->red), x->acc_type, x->lanes, kn_lw_read(w, x->acc, at, x->lanes), term, NULL);
        kn_lw_store(w, x->acc, at, term);
    }
}

/* Rows that begin within a vector have their first elements in other lanes: as rows stand up these are found where they are, else turned back. */
static void turn_back(joined *j)
{
    kn_tile *x = j->x;
    int n = x->lanes, number[LANES], *turned = kn_array(x->w->a, int, j->rows);
    if (x->sg->s->red != KN_RED_SUM || kn_dtype_class(x->acc_type) != 'f' || !turned) return;
    for (int64_t r = 0; r < j->rows; r++) turned[r] = (int)(r * j->row % n);
    if (kn_tile_rows_of_lanes(x) >= 0) {
        x->turned = turned;
        return;
    }
    for (int64_t r = 0; r < j->rows && !x->w->status; r++) {
        kn_expr *at = kn_lw_int(x->w, r), *row = kn_lw_read(x->w, x->acc, at, n);
        for (int l = 0; l < n; l++) number[l] = (l + turned[r]) % n;
        if (turned[r]) kn_lw_store(x->w, x->acc, at, kn_lw_pick(x->w, x->lanes, 1, &row, number));
    }
}

bool kn_tile_joined(kn_tile *x)
{
    kn_lw *w = x->w;
    joined j = {.x = x, .rows = x->ncombo};
    bool sums = x->sg->s->red == KN_RED_SUM || x->sg->s->red == KN_RED_MAX || x->sg->s->red == KN_RED_MIN;
    if (w->hw->gpu || x->sg->maker || !x->reduce_lanes || !x->written_out || x->nparts != 1 || !sums || !bare(x) || !whole(x, &j.row)) return false;
    int64_t all = j.row * j.rows, meet = 0;
    bool fits = j.rows > 1 && j.row > x->lanes && x->lanes <= LANES && j.row % x->lanes && all % x->lanes == 0 && all <= VECTORS * x->lanes;
    if (!fits || !follow(&j)) return false;
    for (int64_t r = 1; r < j.rows; r++) meet += r * j.row % x->lanes != 0;
    int shared = meet && meet <= MEET ? kn_lw_buffer(w, "meet", x->acc_type, x->lanes, meet, KN_REGISTER) : -1;
    if (shared < 0) return false;
    bool asks = w->p->buffers[j.buffer].scope == KN_GLOBAL && !w->hw->follows_runs; /* no scratch; one run, from end to end */
    for (int64_t k = 0, used = 0; k < all / x->lanes && !w->status; k++) {
        kn_expr *index = kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, j.at, kn_lw_int(w, k * x->lanes)));
        kn_expr *vector = kn_lw_read(w, j.buffer, index, x->lanes);
        if (asks) kn_lw_prefetch(w, j.buffer, kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, index, kn_lw_int(w, all))), false);
        if (k * x->lanes / j.row != ((k + 1) * x->lanes - 1) / j.row) { /* two rows want it */
            kn_lw_store(w, shared, kn_lw_int(w, used), vector);
            vector = kn_lw_read(w, shared, kn_lw_int(w, used++), x->lanes);
        }
        add(&j, k, vector);
    }
    turn_back(&j);
    return true;
}
