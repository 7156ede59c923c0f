/* Transposition in registers: where a map reads along an unrolled loop what it writes along its lanes, whole vectors are read along the
 * unrolled loop and their elements change places in log2(lanes) rounds of interleaving, instead of being gathered one by one. */
#include "lower/lower.h"

enum {
    TURN_LANES = 16, /* more rows than this do not fit the register file */
    PARTS = 4
};

/* The unrolled spatial loop of so many rows (0: any number), if no other loop of the tile is unrolled; -1. */
static int rows_loop(const kn_sg *sg, int vloop, int rows)
{
    int found = -1;
    for (int i = sg->tile; i < sg->g->nloops; i++) {
        const kn_loop *l = &sg->g->loops[i];
        if (i == vloop || l->extent == 1) continue;
        if (l->kind != KN_UNROLL || found >= 0 || (rows && l->extent != rows) || l->axis == sg->g->loops[vloop].axis) return -1;
        found = i;
    }
    return found;
}

/* Where a load is read that a cache holds in rows, padding filled in; *buffer: the cache's. NULL: not without a condition. */
static kn_expr *place_in_cache(kn_lw *w, kn_sg *sg, int load, int *buffer)
{
    kn_expr *at;
    kn_env v = { .w = w, .sg = sg, .s = sg->s, .lane_var = -1, .repl_tensor = -1 };
    kn_env_axes(w, sg, v.av);
    return kn_env_place(&v, sg->loads[load], buffer, &at) ? kn_lw_simp(w, at) : NULL;
}

static bool in_rows(const kn_sg *sg, int load)
{
    return sg->cache_of[load] >= 0 && sg->g->caches[sg->cache_of[load]].region && !sg->g->caches[sg->cache_of[load]].copies;
}

/* Address of a load in row `row` (a variable or a constant) and lane `lane`, in *buffer. */
static kn_expr *address_at(kn_lw *w, kn_sg *sg, int load, int vloop, kn_expr *row, kn_expr *lane, int *buffer)
{
    kn_expr *idx[KILN_MAX_RANK], *keep_row = sg->val[sg->turn_loop], *keep_lane = sg->val[vloop];
    const kn_expr *e = sg->loads[load];
    sg->val[sg->turn_loop] = row;
    sg->val[vloop] = lane;
    kn_env v = { .w = w, .sg = sg, .s = sg->s, .lane_var = -1, .repl_tensor = -1 };
    kn_env_axes(w, sg, v.av);
    kn_expr *at = kn_sg_cached(sg, load) ? place_in_cache(w, sg, load, buffer) : NULL;
    for (int i = 0; i < e->nargs && !at; i++) idx[i] = kn_lw_simp(w, kn_env_scalar(&v, e->args[i]));
    sg->val[sg->turn_loop] = keep_row;
    sg->val[vloop] = keep_lane;
    if (at || kn_sg_cached(sg, load)) return at;
    *buffer = kn_lw_tensor(w, e->u.tensor);
    return kn_lw_address(w, e->u.tensor, idx);
}

/* The load stands in a branch of a choice: where that branch is not taken it may be out of range. */
static bool chosen(const kn_expr *body, const kn_expr *load, bool branch)
{
    if (body == load) return branch;
    bool found = false;
    for (int i = 0; i < body->nargs && body->op != KN_OP_LOAD && !found; i++)
        found = chosen(body->args[i], load, branch || (body->op == KN_OP_SELECT && i > 0));
    return found;
}

static bool turns(kn_lw *w, kn_sg *sg, int load, int vloop, int lanes)
{
    const kn_expr *e = sg->loads[load];
    bool cached = kn_sg_cached(sg, load);
    int buffer;
    if ((cached && !in_rows(sg, load)) || (e->padded && !cached)) return false;
    if (e->dtype == KN_BOOL || (!cached && chosen(sg->s->body, e, false))) return false; /* vectors of truths are masks */
    for (int a = 0; a < sg->s->naxes && !cached; a++)
        if ((sg->past & kn_axes_in(e)) >> a & 1 && !kn_sg_room(w, sg, e, a)) return false;
    int row = kn_lw_var(w, "row", 0, lanes - 1), lane = kn_lw_var(w, "lane", 0, lanes - 1);
    kn_expr *at = address_at(w, sg, load, vloop, kn_lw_ref(w, row), kn_lw_ref(w, lane), &buffer);
    return at && kn_lw_uses(at, lane) && kn_lw_unit_stride(at, row);
}

kn_expr *kn_lw_zip(kn_lw *w, enum kn_op op, int n, kn_expr *const *args, int part)
{
    kn_expr *e = kn_lw_node(w, op, args[0]->dtype, args[0]->lanes, args[0], NULL, NULL), **list = kn_array(w->a, kn_expr *, n);
    if (w->status) return e;
    if (!list) {
        kn_lw_fail(w, KILN_MEMORY, "out of memory in lowering");
        return e;
    }
    for (int i = 0; i < n; i++) list[i] = args[i];
    e->nargs = n;
    e->args = list;
    e->u.i = part;
    return e;
}

kn_expr *kn_lw_pick(kn_lw *w, int lanes, int n, kn_expr *const *from, const int *number)
{
    kn_expr *e = kn_lw_node(w, KN_OP_PICK, from[0]->dtype, lanes, NULL, NULL, NULL), **args = kn_array(w->a, kn_expr *, n + lanes);
    if (w->status || !args) return &w->dry;
    for (int i = 0; i < n; i++) args[i] = from[i];
    for (int l = 0; l < lanes; l++) args[n + l] = kn_lw_int(w, number[l]);
    e->args = args;
    e->nargs = n + lanes;
    e->u.i = n;
    return e;
}

/* Rounds of a transposition: `rows` vectors of as many units of `unit` lanes, `block` units in a block. */
typedef struct square { enum kn_dtype t; int rows, unit, block; } square;

static void mix(kn_lw *w, const square *q, int from, int x, int y, int to, int at, enum kn_op op, int part)
{
    int lanes = q->rows * q->unit;
    kn_expr *pair[] = { kn_lw_read(w, from, kn_lw_int(w, x), lanes), kn_lw_read(w, from, kn_lw_int(w, y), lanes) };
    kn_expr *e = kn_lw_zip(w, op, 2, pair, part);
    if (w->status) return;
    e->var = q->block * q->unit;
    e->unit = op == KN_OP_ZIP && q->unit > 1 ? q->unit : 0;
    kn_lw_store(w, to, kn_lw_int(w, at), e);
}

/* In every run of as many rows as a block has units: one round of interleaving its first half with its second, block by block. */
static int turn_blocks(kn_lw *w, const square *q, int from)
{
    int to = kn_lw_buffer(w, "turn", q->t, q->rows * q->unit, q->rows, KN_REGISTER);
    for (int g = 0; g < q->rows; g += q->block)
        for (int i = 0; i < q->block && !w->status; i++) mix(w, q, from, g + i / 2, g + i / 2 + q->block / 2, to, g + i, KN_OP_ZIP, i % 2);
    return to;
}

/* Blocks change places with the runs of rows: one round of taking the even ones of two rows together, and the odd ones. */
static int turn_runs(kn_lw *w, const square *q, int from)
{
    int to = kn_lw_buffer(w, "turn", q->t, q->rows * q->unit, q->rows, KN_REGISTER), half = q->rows / 2;
    for (int i = 0; i < q->rows && !w->status; i++) {
        int row = i % half / q->block * 2 * q->block + i % q->block;
        mix(w, q, from, row, row + q->block, to, i, KN_OP_UNZIP, i >= half);
    }
    return to;
}

/* Blocks of 16 bytes: shuffles inside of them and of whole ones are half as dear as those of single elements from anywhere (measured: a square of 16
 * floats in 5.6 ns and in 12.7). */
int kn_lw_transpose(kn_lw *w, int from, enum kn_dtype t, int rows, int unit)
{
    enum { BLOCK = 16 };
    square q = {.t = t, .rows = rows, .unit = unit, .block = BLOCK / (kn_dtype_bytes(t) * unit)};
    if (q.block > rows) q.block = rows;
    for (int n = q.block; n > 1; n /= 2) from = turn_blocks(w, &q, from);
    for (int n = rows / q.block; n > 1; n /= 2) from = turn_runs(w, &q, from);
    return from;
}

/* Read and written in squares beyond what L2 holds: neither these lines nor those follow each other, so no hardware prefetcher sees them come. */
static bool wants_prefetch(const kn_lw *w, const kn_sg *sg, int load)
{
    return sg->g->epilogue < 0 && kn_lw_beyond_l2(w, sg->loads[load]->u.tensor) && kn_lw_beyond_l2(w, sg->s->out);
}

/* Rows of results that are short, and no whole lines: their ends come twice, and lines that two of them share in parts, which memory puts together
 * where they are written past the caches (48 images of 672x11x11 and 336x21x21, windows of each plane: 1.7 to 1.85 times as fast through them). */
static bool short_rows(const kn_lw *w, const kn_sg *sg, int vloop)
{
    enum { SHORT = 4096 };
    int64_t bytes = sg->s->axes[sg->g->loops[vloop].axis].extent * kn_dtype_bytes(w->p->program->tensors[sg->s->out].dtype);
    return bytes % KN_LINE_BYTES && bytes < SHORT;
}

/* The caches nearly hold what squares are read from and written to. */
static bool nearly_fits(const kn_lw *w) { return !kn_hw_squares_past_caches(w->hw, (double)kn_lw_touched(w)); }

bool kn_lw_turns_near(const kn_lw *w, const kn_sg *sg, int vloop)
{
    bool turned = false;
    for (int i = 0; i < sg->nloads; i++) turned |= sg->turned_of[i] >= 0;
    return vloop >= 0 && sg->s->red == KN_RED_NONE && turned && (short_rows(w, sg, vloop) || nearly_fits(w));
}

/* Where the result of a row and a lane of the square is stored. */
static kn_expr *stored_at(kn_lw *w, kn_sg *sg, int vloop, kn_expr *row, int64_t lane)
{
    kn_expr *keep_row = sg->val[sg->turn_loop], *keep_lane = sg->val[vloop];
    sg->val[sg->turn_loop] = row;
    sg->val[vloop] = kn_lw_int(w, lane);
    kn_expr *at = kn_lw_result(w, sg);
    sg->val[sg->turn_loop] = keep_row;
    sg->val[vloop] = keep_lane;
    return at;
}

/* What the squares are read from has just been made, and L2 holds with ease where the rows behind these will be stored: those places are asked for;
 * there, as what has been made and is to be made needs L1 (windows of each plane, 32 images of 672x11x11, 64 of 256x14x14 and 1024x7x7: 1.14 to 1.4
 * times as fast). */
static bool asks_for_rows(kn_lw *w, kn_sg *sg, int load, kn_expr *to, int row)
{
    const kn_hw_level *l2 = kn_hw_level_named(w->hw, "l2");
    int64_t pitch, bytes = kn_dtype_bytes(w->p->program->tensors[sg->s->out].dtype), rows = sg->g->loops[sg->turn_loop].extent;
    if (!l2 || !w->box[sg->loads[load]->u.tensor].on || !kn_lw_coefficient(to, row, &pitch)) return false;
    return pitch > 0 && pitch * bytes * rows <= l2->capacity_bytes / 4;
}

/* The next square's rows, and the places where the one after it will be stored, or the same columns of the rows behind these. */
static void prefetch_next(kn_lw *w, kn_sg *sg, int load, int vloop, int lanes)
{
    int row = kn_lw_var(w, "row", 0, lanes - 1), out = sg->s->out, buffer;
    kn_expr *r = kn_lw_ref(w, row), *ahead = kn_lw_node(w, KN_OP_ADD, KN_I64, 1, r, kn_lw_int(w, lanes), NULL);
    kn_expr *from = address_at(w, sg, load, vloop, kn_lw_int(w, 0), ahead, &buffer), *to = stored_at(w, sg, vloop, r, 2 * lanes);
    bool rows = asks_for_rows(w, sg, load, to, row);
    kn_ls *loop = kn_lw_for(w, row, kn_lw_int(w, 0), kn_lw_int(w, lanes));
    if (!loop) return;
    kn_ls **after = w->tail;
    w->tail = &loop->body;
    bool past = w->hw->vector_bytes >= KN_LINE_BYTES && kn_lw_past_caches(w, out) && !short_rows(w, sg, vloop) && !nearly_fits(w);
    if (!rows) kn_lw_prefetch(w, kn_lw_tensor(w, sg->loads[load]->u.tensor), from, false);
    if (rows && !past) kn_lw_prefetch_to_l2(w, kn_lw_tensor(w, out), stored_at(w, sg, vloop, ahead, 0));
    else if (!past) kn_lw_prefetch(w, kn_lw_tensor(w, out), to, true);
    w->tail = after;
}

/* The load's rows lie one element beside the other and its lanes follow each other behind all of them: together one run of memory. */
static bool parts(kn_lw *w, kn_sg *sg, int load, int vloop, int lanes, int rows)
{
    const kn_expr *e = sg->loads[load];
    int64_t step;
    if (kn_sg_cached(sg, load) || e->padded || e->dtype == KN_BOOL || chosen(sg->s->body, e, false)) return false;
    int row = kn_lw_var(w, "row", 0, rows - 1), lane = kn_lw_var(w, "lane", 0, lanes - 1);
    int buffer;
    kn_expr *at = address_at(w, sg, load, vloop, kn_lw_ref(w, row), kn_lw_ref(w, lane), &buffer);
    return kn_lw_unit_stride(at, row) && kn_lw_coefficient(at, lane, &step) && step == rows;
}

/* One round: of every `of` vectors in a row, the first takes their lanes 0, of, 2 of .., the next 1, of + 1 ..; the first of all rows come first. */
static int unzip(kn_lw *w, int from, enum kn_dtype t, int lanes, int n, int of)
{
    int to = kn_lw_buffer(w, "part", t, lanes, n, KN_REGISTER);
    kn_expr *args[PARTS];
    for (int i = 0; i < n / of && !w->status; i++) {
        for (int k = 0; k < of; k++) args[k] = kn_lw_read(w, from, kn_lw_int(w, i * of + k), lanes);
        for (int k = 0; k < of && !w->status; k++) kn_lw_store(w, to, kn_lw_int(w, k * (n / of) + i), kn_lw_zip(w, KN_OP_UNZIP, of, args, k));
    }
    return to;
}

/* Rows that lie element by element beside each other: the run is read in whole vectors and taken apart, four parts in
 * two rounds of two. */
static void part_rows(kn_lw *w, kn_sg *sg, int vloop, int lanes)
{
    sg->turn_loop = rows_loop(sg, vloop, 0);
    int n = sg->turn_loop < 0 ? 0 : (int)sg->g->loops[sg->turn_loop].extent;
    if (n < 2 || n > PARTS || lanes < 4) return;
    for (int i = 0; i < sg->nloads && !w->status; i++) {
        if (!parts(w, sg, i, vloop, lanes, n)) continue;
        enum kn_dtype t = sg->loads[i]->dtype;
        int at = kn_lw_buffer(w, "run", t, lanes, n, KN_REGISTER);
        int buffer;
        kn_expr *base = address_at(w, sg, i, vloop, kn_lw_int(w, 0), kn_lw_int(w, 0), &buffer);
        for (int l = 0; l < n && !w->status; l++)
            kn_lw_store(w, at, kn_lw_int(w, l),
                        kn_lw_read(w, buffer, kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, base, kn_lw_int(w, l * lanes))), lanes));
        if (n == 4) at = unzip(w, unzip(w, at, t, lanes, n, 2), t, lanes, n, 2);
        else at = unzip(w, at, t, lanes, n, n);
        sg->turned_of[i] = at;
    }
}

void kn_lw_turn(kn_lw *w, kn_sg *sg, int vloop, int lanes)
{
    for (int i = 0; i < sg->nloads; i++) sg->turned_of[i] = -1;
    if (vloop < 0 || lanes > TURN_LANES || w->hw->gpu || sg->rolled || sg->s->red != KN_RED_NONE) return;
    sg->turn_loop = rows_loop(sg, vloop, lanes);
    if (sg->turn_loop < 0) {
        part_rows(w, sg, vloop, lanes);
        return;
    }
    for (int i = 0; i < sg->nloads && !w->status; i++) {
        if (!turns(w, sg, i, vloop, lanes)) continue;
        enum kn_dtype t = sg->loads[i]->dtype;
        if (!kn_sg_cached(sg, i) && wants_prefetch(w, sg, i)) prefetch_next(w, sg, i, vloop, lanes);
        int at = kn_lw_buffer(w, "turn", t, lanes, lanes, KN_REGISTER), buffer;
        for (int l = 0; l < lanes && !w->status; l++) {
            kn_expr *from = address_at(w, sg, i, vloop, kn_lw_int(w, 0), kn_lw_int(w, l), &buffer);
            kn_lw_store(w, at, kn_lw_int(w, l), kn_lw_read(w, buffer, from, lanes));
        }
        sg->turned_of[i] = kn_lw_transpose(w, at, t, lanes, 1);
    }
}
