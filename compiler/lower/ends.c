/* Tiles that reach out of range, and what of them is stored: vectors as long as they can be where that is known now, rows that are in range, and
 * else by way of scratch, in rolled loops. */
#include "lower/tile.h"

kn_expr *kn_tile_in_range(kn_tile *x)
{
    kn_env v = kn_tile_env(x);
    kn_expr *c = NULL;
    for (int a = 0; a < x->sg->s->naxes; a++)
        if (!x->sg->s->axes[a].reduce && !x->sg->clipped[a]) c = kn_lw_and(x->w, c, kn_lw_below(x->w, v.av[a], x->sg->s->axes[a].extent));
    return c;
}

/* A spilled vector that is wholly in range goes out at once; the tail is in the other branch, which the caller fills. */
static kn_ls *store_spilled_vector(kn_tile *x, kn_expr *at, bool is_final)
{
    kn_lw *w = x->w;
    kn_sg *sg = x->sg;
    sg->val[x->vloop] = kn_lw_int(w, x->lanes - 1);
    kn_expr *in = kn_tile_in_range(x);
    kn_ls *whole = in ? kn_lw_if(w, in) : NULL;
    if (!whole) return NULL;
    w->tail = &whole->body;
    sg->val[x->vloop] = kn_lw_ref(w, x->lane_var);
    at = kn_lw_simp(w, kn_bin(w->a, KN_OP_MUL, at, kn_lw_int(w, x->lanes)));
    kn_tile_store_output(x, kn_lw_read(w, x->spill, at, x->lanes), x->lane_var, is_final);
    w->tail = &whole->other;
    return whole;
}

/* Lanes of the current vector until its axis ends; the other loops' values are set. NULL: the axis is not what they count. */
static kn_expr *lanes_left(kn_tile *x)
{
    kn_lw *w = x->w;
    int axis = x->sg->g->loops[x->vloop].axis;
    kn_expr *av[KILN_MAX_AXES];
    if (x->sg->g->loops[x->vloop].stride != 1) return NULL;
    x->sg->val[x->vloop] = kn_lw_int(w, 0);
    kn_env_axes(w, x->sg, av);
    kn_expr *left = kn_bin(w->a, KN_OP_SUB, kn_lw_int(w, x->sg->s->axes[axis].extent), av[axis]);
    return kn_lw_simp(w, kn_bin(w->a, KN_OP_MIN, kn_lw_int(w, x->lanes), left));
}

/* Stores the spilled tile with rolled loops: vectors that are in range, then elements that are. */
static void store_spilled(kn_tile *x, bool is_final)
{
    kn_lw *w = x->w;
    kn_sg *sg = x->sg;
    kn_ls **after = w->tail;
    bool opened = false;
    kn_expr *at = kn_lw_int(w, 0);
    for (int i = sg->tile; i < sg->g->nloops; i++) {
        if (!kn_tile_spatial(sg, i)) continue;
        const kn_loop *l = &sg->g->loops[i];
        if (i == x->vloop && x->lanes > 1 && !x->reduce_lanes) {
            kn_ls **here = w->tail;
            if (store_spilled_vector(x, at, is_final) && !opened) after = &(*here)->next, opened = true;
        }
        int64_t extent = kn_tile_extent(sg, i);
        int var = kn_lw_var(w, l->name, 0, extent - 1);
        kn_expr *end = i == x->vloop && !x->reduce_lanes ? lanes_left(x) : NULL;
        kn_ls *loop = kn_lw_for(w, var, kn_lw_int(w, 0), end ? end : kn_lw_int(w, extent));
        if (!loop) return;
        if (!opened) after = w->tail;
        opened = true;
        w->tail = &loop->body;
        sg->val[i] = kn_lw_ref(w, var);
        at = kn_bin(w->a, KN_OP_ADD, kn_bin(w->a, KN_OP_MUL, at, kn_lw_int(w, extent)), sg->val[i]);
    }
    kn_expr *in = kn_tile_in_range(x);
    kn_ls *cond = in ? kn_lw_if(w, in) : NULL;
    if (cond) w->tail = &cond->body;
    kn_tile scalar = *x;
    scalar.lane_var = -1;
    kn_tile_store_output(&scalar, kn_lw_read(w, x->spill, kn_lw_simp(w, at), 1), -1, is_final);
    if (opened) w->tail = after;
}

/* How many lanes of the current element of a tile of fixed place are in range; -1: that depends on where the tile is. */
static int lanes_in_range(kn_tile *x)
{
    kn_sg *sg = x->sg;
    int n = 0, width = x->lanes > 1 && !x->reduce_lanes ? x->lanes : 1;
    for (; n < width; n++) {
        if (width > 1) sg->val[x->vloop] = kn_lw_int(x->w, n);
        kn_expr *in = kn_tile_in_range(x);
        if (in) in = kn_lw_simp(x->w, in);
        if (in && in->op != KN_OP_CONST_I) return -1;
        if (in && !in->u.i) break;
    }
    if (width > 1) sg->val[x->vloop] = kn_lw_ref(x->w, x->lane_var);
    return n;
}

bool kn_tile_fixed(kn_tile *x)
{
    for (int64_t c = 0; c < x->ncombo; c++) {
        kn_tile_set(x, c);
        if (lanes_in_range(x) < 0) return false;
    }
    return true;
}

/* Names `lanes` lanes of the current element from lane `at` on. */
static kn_tile piece_at(kn_tile *x, int at, int lanes)
{
    kn_tile piece = *x;
    kn_lw *w = x->w;
    piece.lanes = lanes;
    piece.lane_var = lanes > 1 ? kn_lw_var(w, "lane", 0, lanes - 1) : -1;
    kn_expr *lane = kn_lw_int(w, at);
    if (lanes > 1) lane = kn_lw_node(w, KN_OP_ADD, KN_I64, 1, kn_lw_ref(w, piece.lane_var), lane, NULL);
    x->sg->val[x->vloop] = lane;
    return piece;
}

/* The longest vector of at most n lanes from lane `at` on in which padding does not begin or end. */
static kn_tile next_piece(kn_tile *x, int at, int n)
{
    int lanes = x->lanes;
    while (lanes > n) lanes /= 2;
    for (;; lanes /= 2) {
        kn_tile piece = piece_at(x, at, lanes);
        kn_env v = kn_tile_env(&piece);
        v.lane_var = piece.lane_var;
        if (lanes == 1 || x->acc >= 0 || kn_env_lanes_alike(&v)) return piece;
    }
}

/* Padding does not begin or end in a whole vector from lane `at` on, or is known lane by lane. */
static bool ends_known(kn_tile *x, int at)
{
    kn_tile piece = piece_at(x, at, x->lanes);
    kn_env v = kn_tile_env(&piece);
    v.lane_var = piece.lane_var;
    return kn_env_lanes_alike(&v);
}

/* A padded copy: its last vector may as well end where the row does, over what the one before it has written. */
static bool copies(const kn_tile *x)
{
    const kn_expr *e = x->sg->s->body;
    return x->acc < 0 && x->sg->s->red == KN_RED_NONE && x->sg->g->epilogue < 0 && e->op == KN_OP_LOAD && e->padded && kn_dtype_bytes(e->dtype) >= 4;
}

/* The first n lanes of element c, in vectors of all, half, a quarter ... of the lanes: what is written is written in order and once. */
static void store_pieces(kn_tile *x, int64_t c, int n)
{
    kn_lw *w = x->w;
    int line = -1;
    if (x->acc >= 0 && n < x->lanes) { /* the lanes are there already */
        int64_t keep = w->scratch;
        kn_expr *value = kn_tile_value(x, c);
        line = kn_lw_buffer(w, "line", value->dtype, 1, x->lanes, KN_SCRATCH);
        kn_ls *s = kn_lw_store_line(w, line, kn_lw_int(w, 0), value, NULL);
        if (s) s->idle = n - x->lanes;
        w->scratch = keep;
    }
    for (int at = 0; at < n && !w->status;) {
        if (copies(x) && n - at < x->lanes && at >= x->lanes && ends_known(x, n - x->lanes)) at = n - x->lanes;
        kn_tile piece = next_piece(x, at, n - at);
        kn_expr *value = line < 0 ? kn_tile_value(&piece, c) : kn_lw_read(w, line, kn_lw_int(w, at), piece.lanes);
        kn_tile_store_output(&piece, value, piece.lane_var, false);
        at += piece.lanes;
    }
}

/* Every register loop is of the axis of the lanes, so that its elements are one row. */
static bool one_axis(const kn_tile *x)
{
    const kn_loop *loops = x->sg->g->loops;
    for (int i = x->sg->tile; i < x->sg->g->nloops; i++)
        if (kn_tile_spatial(x->sg, i) && loops[i].axis != loops[x->vloop].axis) return false;
    return loops[x->vloop].stride == 1;
}

/* Rows of a sum's tile that follow each other in memory and are shorter than a vector: a whole vector may be stored whose end the next rows
 * overwrite. The elements of a row, which begins where the one before ends; 0: they do not lie so, or finishing them would read out of range. */
static int overwritten_rows(kn_tile *x)
{
    kn_lw *w = x->w;
    kn_expr *at = NULL, *idx[KILN_MAX_RANK];
    int n = 0, out;
    if (x->acc < 0 || x->ncombo < 2 || x->reduce_lanes) return 0;
    for (int64_t c = 0; c < x->ncombo; c++) {
        bool safe;
        kn_tile_set(x, c);
        int here = lanes_in_range(x);
        kn_tile_final(x, kn_lw_splat(w, kn_lw_zero(w, x->acc_type, 0), x->lanes), x->lane_var, &out, idx, &safe);
        kn_expr *next = safe ? kn_tile_place(x, c) : NULL;
        kn_expr *step = at && next ? kn_lw_simp(w, kn_lw_node(w, KN_OP_SUB, KN_I64, 1, next, at, NULL)) : NULL;
        if (!next || (c && (here != n || !step || step->op != KN_OP_CONST_I || step->u.i != n))) return 0;
        n = here;
        at = next;
    }
    return n;
}

/* The tile's place is known: what is in range goes out in vectors as long as they can be, and nothing is asked. */
bool kn_tile_store_known(kn_tile *x, int lane_var)
{
    kn_lw *w = x->w;
    bool vectors = x->lanes > 1 && !x->reduce_lanes;
    if (!x->row && !kn_tile_fixed(x)) return false;
    if (x->row && one_axis(x)) {
        int n = 0;
        for (int64_t c = 0; c < x->ncombo; c++) {
            kn_tile_set(x, c);
            n += lanes_in_range(x);
        }
        kn_tile_set(x, 0);
        store_pieces(x, 0, n);
        return true;
    }
    int row = vectors ? overwritten_rows(x) : 0;
    for (int64_t c = 0; c < x->ncombo && !w->status; c++) {
        kn_tile_set(x, c);
        int n = lanes_in_range(x);
        bool ends = vectors && (x->ncombo - c) * row < x->lanes;
        if (n && ends) store_pieces(x, c, n);
        x->idle = row ? n - x->lanes : 0;
        if (n && !ends) kn_tile_store_output(x, kn_tile_value(x, c), lane_var, false);
        x->idle = 0;
    }
    return true;
}

/* Stores a tile that reaches out of range: all of it to scratch, finished where that is safe, then what is in range element by element. */
void kn_tile_spill(kn_tile *x, int lane_var)
{
    kn_lw *w = x->w;
    int out, width = x->reduce_lanes || x->lanes <= 1 ? 1 : x->lanes;
    bool safe = true, one = true;
    kn_expr *idx[KILN_MAX_RANK];
    int64_t keep = w->scratch;
    for (int64_t c = 0; c < x->ncombo && safe; c++) {
        kn_tile_set(x, c);
        kn_tile_final(x, kn_tile_value(x, c), lane_var, &out, idx, &one);
        safe = safe && one;
    }
    enum kn_dtype t = w->p->program->tensors[safe ? out : x->sg->s->out].dtype;
    x->spill = kn_lw_buffer(w, "spill", t, 1, x->ncombo * width, KN_SCRATCH);
    for (int64_t c = 0; c < x->ncombo && !w->status; c++) {
        kn_tile_set(x, c);
        kn_expr *value = kn_tile_value(x, c);
        value = safe ? kn_tile_final(x, value, lane_var, &out, idx, &one) : kn_tile_cast(w, value, t);
        kn_ls *s = kn_lw_store_line(w, x->spill, kn_lw_int(w, c * width), value, NULL);
        if (s && width > 1) s->idle = kn_tile_idle(x);
    }
    store_spilled(x, safe);
    w->scratch = keep;
}

/* The axis of the vector loop ends with a whole vector, and every vector begins at a multiple of its lanes: none is in range in part. */
bool kn_tile_whole_vectors(const kn_tile *x)
{
    const kn_stage *g = x->sg->g;
    int axis = g->loops[x->vloop].axis;
    bool whole = g->loops[x->vloop].stride == 1 && x->sg->s->axes[axis].extent % x->lanes == 0;
    for (int i = 0; i < g->nloops; i++) whole &= g->loops[i].axis != axis || i == x->vloop || g->loops[i].stride % x->lanes == 0;
    return whole;
}

/* The tile leaves its axes with whole rows alone: those in range can be stored as they are. */
bool kn_tile_leaves_by_rows(kn_tile *x)
{
    bool rows = x->lanes > 1 && !x->reduce_lanes && x->ncombo <= KN_TILE_ROWS && x->ncombo > 1;
    for (int64_t c = 0; c < x->ncombo && rows; c++) {
        kn_tile_set(x, c);
        kn_expr *in = kn_tile_in_range(x);
        rows = !in || !kn_lw_uses(in, x->lane_var);
    }
    return rows;
}

void kn_tile_store_rows(kn_tile *x, int lane_var)
{
    kn_lw *w = x->w;
    for (int64_t c = 0; c < x->ncombo && !w->status; c++) {
        kn_tile_set(x, c);
        kn_expr *in = kn_tile_in_range(x);
        kn_ls *cond = in ? kn_lw_if(w, in) : NULL, **after = w->tail;
        if (cond) w->tail = &cond->body;
        x->idle = lane_var >= 0 ? kn_tile_idle(x) : 0;
        kn_tile_store_output(x, kn_tile_value(x, c), lane_var, false);
        x->idle = 0;
        if (cond) w->tail = after;
    }
}
