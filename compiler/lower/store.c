/* Finished values of a register tile go to memory: whole, or what of them is in range. What a description says had better be written past the
 * caches (`streaming_store_bytes`) goes there: whole lines of runs and of turned squares (rows that are none: lines.c); of vectors that are half a
 * line runs of whole lines alone, and no output in which a temporary lies. The generated entry, or the task, waits for them. */
#include "lower/tile.h"

/* A body that traps on zero-filled operands must not be computed out of range. */
bool kn_tile_traps(const kn_expr *e)
{
    if ((e->op == KN_OP_FLOORDIV || e->op == KN_OP_MOD) && e->dtype != KN_I64 && e->args[1]->op != KN_OP_CONST_I) return true;
    for (int i = 0; i < e->nargs; i++)
        if (kn_tile_traps(e->args[i])) return true;
    return false;
}

/* The value that the stage's statement, or its epilogue, stores for the finished `value`, in the dtype it is stored in; where it goes:
 * tensor *out at idx. *safe: computing it reads nothing out of range, even for elements that are. */
static kn_expr *final_value(kn_tile *x, kn_expr *value, int lane_var, int *out, kn_expr **idx, bool *safe)
{
    kn_lw *w = x->w;
    const kn_sg *sg = x->sg;
    const kn_program *p = w->p->program;
    int lanes = value->lanes;
    kn_env v = { .w = w, .s = sg->s, .lane_var = lane_var, .lanes = lanes, .repl_tensor = -1 };
    kn_env_axes(w, sg, v.av);
    *safe = true;
    *out = sg->s->out;
    value = kn_tile_cast(w, value, p->tensors[*out].dtype);
    for (int i = 0; i < p->tensors[*out].rank; i++) idx[i] = kn_lw_simp(w, kn_env_scalar(&v, sg->s->lhs[i]));
    if (sg->g->epilogue < 0) return value;
    const kn_stmt *e = p->stmts[sg->g->epilogue];
    kn_env u = { .w = w, .s = e, .lane_var = lane_var, .lanes = lanes, .repl_tensor = *out, .repl = value };
    const kn_expr *loads[KILN_MAX_TENSORS];
    int n = kn_loads(e->body, loads, KILN_MAX_TENSORS);
    for (int i = 0; i < n && i < KILN_MAX_TENSORS; i++)
        if (loads[i]->u.tensor == *out)
            for (int k = 0; k < loads[i]->nargs; k++) u.av[loads[i]->args[k]->u.axis] = idx[k];
    *safe = !kn_tile_traps(e->body) && n <= KILN_MAX_TENSORS;
    for (int i = 0; i < n && *safe; i++)
        for (int a = 0; a < e->naxes && loads[i]->u.tensor != *out; a++)
            if ((kn_axes_in(loads[i]) >> a & 1) && kn_lw_below(w, u.av[a], e->axes[a].extent)) *safe = false;
    value = kn_env_vector(&u, e->body);
    *out = e->out;
    for (int i = 0; i < p->tensors[*out].rank; i++) idx[i] = kn_lw_simp(w, kn_env_scalar(&u, e->lhs[i]));
    return kn_tile_cast(w, value, p->tensors[*out].dtype);
}

/* The element of the output that the present values of the axes name. */
static kn_expr *output_address(kn_tile *x, int out, int lane_var, kn_expr *const *idx)
{
    kn_lw *w = x->w;
    const kn_sg *sg = x->sg;
    if (!sg->flat_out || out != sg->s->out || w->box[out].on) return kn_lw_address(w, out, idx);
    kn_env v = { .w = w, .s = sg->s, .lane_var = lane_var, .repl_tensor = -1 };
    kn_env_axes(w, sg, v.av);
    return kn_lw_simp(w, kn_env_scalar(&v, sg->flat_out));
}

/* Of a vector that reaches back over elements which were overwritten already, these as they are. */
static kn_expr *kept(kn_tile *x, kn_expr *value, int lane_var, int buffer, kn_expr *at)
{
    kn_lw *w = x->w;
    const kn_sg *sg = x->sg;
    int n = value->lanes;
    kn_expr *av[KILN_MAX_AXES];
    kn_env_axes(w, sg, av);
    kn_expr *begin = kn_lw_at_lane(w, av[sg->kept_axis - 1], lane_var, kn_lw_int(w, 0));
    kn_expr *first = kn_lw_simp(w, kn_lw_node(w, KN_OP_SUB, KN_I64, 1, kn_lw_int(w, sg->kept), begin, NULL));
    if (first->op == KN_OP_CONST_I && first->u.i <= 0) return value;
    first = kn_lw_splat(w, kn_lw_node(w, KN_OP_CAST, KN_F32, 1, first, NULL, NULL), n);
    kn_expr *lane = kn_lw_lanes(w, kn_lw_node(w, KN_OP_CAST, KN_F32, 1, kn_lw_ref(w, lane_var), NULL, NULL), lane_var, n);
    kn_expr *old = kn_lw_read(w, buffer, kn_lw_at_lane(w, at, lane_var, kn_lw_int(w, 0)), n);
    return kn_lw_node(w, KN_OP_SELECT, value->dtype, n, kn_lw_node(w, KN_OP_LE, KN_BOOL, n, first, lane, NULL), value, old);
}

/* is_final: value is what final_value made of it already. */
static void store_output(kn_tile *x, kn_expr *value, int lane_var, bool is_final)
{
    kn_lw *w = x->w;
    int out, lanes = value->lanes;
    bool safe;
    kn_expr *idx[KILN_MAX_RANK] = { NULL }, *made = final_value(x, value, lane_var, &out, idx, &safe);
    if (!is_final) value = made;
    if (x->staged) {
        kn_lw_store(w, x->stage, x->stage_at, value);
        return;
    }
    kn_expr *at = output_address(x, out, lane_var, idx);
    int buffer = kn_lw_tensor(w, out);
    if (lanes <= 1) {
        kn_lw_store(w, buffer, at, value);
    } else if (kn_lw_unit_stride(at, lane_var)) {
        if (x->sg->kept_axis) value = kept(x, value, lane_var, buffer, at);
        kn_lw_store_line(w, buffer, kn_lw_at_lane(w, at, lane_var, kn_lw_int(w, 0)), value, kn_env_line(w, x->sg));
    } else { /* strided: through a line of scratch, element by element */
        int64_t keep = w->scratch;
        int line = kn_lw_buffer(w, "line", value->dtype, 1, lanes, KN_SCRATCH);
        w->scratch = keep;
        kn_lw_store(w, line, kn_lw_int(w, 0), value);
        int var = kn_lw_var(w, "l", 0, lanes - 1);
        kn_ls *loop = kn_lw_for(w, var, kn_lw_int(w, 0), kn_lw_int(w, lanes));
        if (!loop) return;
        kn_ls **after = w->tail;
        w->tail = &loop->body;
        kn_lw_store(w, buffer, kn_lw_at_lane(w, at, lane_var, kn_lw_ref(w, var)), kn_lw_read(w, line, kn_lw_ref(w, var), 1));
        w->tail = after;
    }
}

bool kn_tile_consecutive(kn_tile *x, enum kn_dtype t, int lane_var)
{
    kn_lw *w = x->w;
    int out;
    bool safe;
    kn_expr *idx[KILN_MAX_RANK] = { NULL };
    final_value(x, kn_lw_zero(w, t, 0), lane_var, &out, idx, &safe);
    return kn_lw_unit_stride(output_address(x, out, lane_var, idx), lane_var);
}

bool kn_tile_safe(kn_tile *x, enum kn_dtype t)
{
    int out;
    bool safe;
    kn_expr *idx[KILN_MAX_RANK] = { NULL };
    final_value(x, kn_lw_zero(x->w, t, 0), -1, &out, idx, &safe);
    return safe;
}

void kn_tile_store_lanes(kn_tile *x, kn_expr *value, int lane_var) { store_output(x, value, lane_var, false); }

void kn_tile_store_value(kn_tile *x, kn_expr *value) { store_output(x, value, -1, false); }

/* Condition that the current element is in range on every spatial axis. */
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
    store_output(x, kn_lw_read(w, x->spill, at, x->lanes), x->lane_var, is_final);
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
    store_output(&scalar, kn_lw_read(w, x->spill, kn_lw_simp(w, at), 1), -1, is_final);
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
        kn_lw_store(w, line, kn_lw_int(w, 0), value);
        w->scratch = keep;
    }
    for (int at = 0; at < n && !w->status;) {
        if (copies(x) && n - at < x->lanes && at >= x->lanes && ends_known(x, n - x->lanes)) at = n - x->lanes;
        kn_tile piece = next_piece(x, at, n - at);
        kn_expr *value = line < 0 ? kn_tile_value(&piece, c) : kn_lw_read(w, line, kn_lw_int(w, at), piece.lanes);
        store_output(&piece, value, piece.lane_var, false);
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

/* The element of the output where lane 0 of element c of the tile goes. */
static kn_expr *place_of(kn_tile *x, int64_t c)
{
    kn_lw *w = x->w;
    int out;
    bool safe;
    kn_expr *idx[KILN_MAX_RANK] = { NULL };
    kn_tile_set(x, c);
    enum kn_dtype t = x->acc >= 0 ? x->acc_type : x->sg->s->body->dtype;
    final_value(x, kn_lw_splat(w, kn_lw_zero(w, t, 0), x->lanes), x->lane_var, &out, idx, &safe);
    kn_expr *at = output_address(x, out, x->lane_var, idx);
    return kn_lw_unit_stride(at, x->lane_var) ? kn_lw_at_lane(w, at, x->lane_var, kn_lw_int(w, 0)) : NULL;
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
        final_value(x, kn_lw_splat(w, kn_lw_zero(w, x->acc_type, 0), x->lanes), x->lane_var, &out, idx, &safe);
        kn_expr *next = safe ? place_of(x, c) : NULL;
        kn_expr *step = at && next ? kn_lw_simp(w, kn_lw_node(w, KN_OP_SUB, KN_I64, 1, next, at, NULL)) : NULL;
        if (!next || (c && (here != n || !step || step->op != KN_OP_CONST_I || step->u.i != n))) return 0;
        n = here;
        at = next;
    }
    return n;
}

/* The tile's place is known: what is in range goes out in vectors as long as they can be, and nothing is asked. */
static bool store_fixed(kn_tile *x, int lane_var)
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
        if (n && vectors && (x->ncombo - c) * row < x->lanes) store_pieces(x, c, n);
        else if (n) store_output(x, kn_tile_value(x, c), lane_var, false);
    }
    return true;
}

/* Stores a tile that reaches out of range: all of it to scratch, finished where that is safe, then what is in range element by element. */
static void spill_tile(kn_tile *x, int lane_var)
{
    kn_lw *w = x->w;
    int out, width = x->reduce_lanes || x->lanes <= 1 ? 1 : x->lanes;
    bool safe = true, one = true;
    kn_expr *idx[KILN_MAX_RANK];
    int64_t keep = w->scratch;
    for (int64_t c = 0; c < x->ncombo && safe; c++) {
        kn_tile_set(x, c);
        final_value(x, kn_tile_value(x, c), lane_var, &out, idx, &one);
        safe = safe && one;
    }
    enum kn_dtype t = w->p->program->tensors[safe ? out : x->sg->s->out].dtype;
    x->spill = kn_lw_buffer(w, "spill", t, 1, x->ncombo * width, KN_SCRATCH);
    for (int64_t c = 0; c < x->ncombo && !w->status; c++) {
        kn_tile_set(x, c);
        kn_expr *value = kn_tile_value(x, c);
        value = safe ? final_value(x, value, lane_var, &out, idx, &one) : kn_tile_cast(w, value, t);
        kn_lw_store(w, x->spill, kn_lw_int(w, c * width), value);
    }
    store_spilled(x, safe);
    w->scratch = keep;
}

/* The unrolled loop whose elements lie between those of the lanes, so that together they are one run of memory. */
static bool interleaves(kn_tile *x)
{
    kn_lw *w = x->w;
    const kn_sg *sg = x->sg;
    kn_env v = { .w = w, .s = sg->s, .lane_var = -1, .repl_tensor = -1 };
    kn_expr *idx[KILN_MAX_RANK];
    int u = -1, out = sg->s->out;
    if (w->hw->gpu || x->lanes < 4 || x->reduce_lanes || x->ncombo < 2 || x->ncombo > 4 || sg->g->epilogue >= 0) return false;
    if (kn_dtype_bytes(w->p->program->tensors[out].dtype) < 4 && x->ncombo == 3) return false;
    for (int i = sg->tile; i < sg->g->nloops; i++)
        if (kn_tile_spatial(sg, i) && i != x->vloop && kn_tile_extent(sg, i) == x->ncombo) u = i;
    if (u < 0) return false;
    int row = kn_lw_var(w, "row", 0, x->ncombo - 1);
    kn_tile_set(x, 0);
    x->sg->val[u] = kn_lw_ref(w, row);
    kn_env_axes(w, sg, v.av);
    for (int i = 0; i < w->p->program->tensors[out].rank; i++) idx[i] = kn_lw_simp(w, kn_env_scalar(&v, sg->s->lhs[i]));
    kn_expr *at = kn_lw_address(w, out, idx), *next = kn_lw_at_lane(w, at, x->lane_var, kn_lw_int(w, 1));
    kn_expr *step = kn_lw_simp(w, kn_bin(w->a, KN_OP_SUB, next, kn_lw_at_lane(w, at, x->lane_var, kn_lw_int(w, 0))));
    return kn_lw_unit_stride(at, row) && step->op == KN_OP_CONST_I && step->u.i == x->ncombo;
}

static void store_interleaved(kn_tile *x)
{
    kn_lw *w = x->w;
    int n = (int)x->ncombo, out, rows = kn_lw_buffer(w, "rows", w->p->program->tensors[x->sg->s->out].dtype, x->lanes, n, KN_REGISTER);
    kn_expr *idx[KILN_MAX_RANK], *args[4];
    bool safe, narrow = kn_dtype_bytes(w->p->program->tensors[x->sg->s->out].dtype) < 4; /* no single instruction picks from four vectors of those */
    for (int c = 0; c < n && !w->status; c++) {
        kn_tile_set(x, c);
        kn_expr *value = final_value(x, kn_tile_value(x, c), x->lane_var, &out, idx, &safe);
        kn_lw_store(w, rows, kn_lw_int(w, c), value);
        args[c] = kn_lw_read(w, rows, kn_lw_int(w, c), x->lanes);
    }
    kn_tile_set(x, 0);
    kn_env v = kn_tile_env(x);
    for (int i = 0; i < w->p->program->tensors[out].rank; i++) idx[i] = kn_lw_simp(w, kn_env_scalar(&v, x->sg->s->lhs[i]));
    kn_expr *at = kn_lw_at_lane(w, kn_lw_address(w, out, idx), x->lane_var, kn_lw_int(w, 0));
    if (narrow)
        for (int i = 1; i < n; i *= 2) rows = kn_lw_zip_round(w, rows, w->p->program->tensors[out].dtype, x->lanes, n, 0);
    for (int c = 0; c < n && !w->status; c++)
        kn_lw_store(w, kn_lw_tensor(w, out), kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, at, kn_lw_int(w, c * x->lanes))),
                    narrow ? kn_lw_read(w, rows, kn_lw_int(w, c), x->lanes) : kn_lw_zip(w, KN_OP_ZIP, n, args, c));
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

/* GPU: element c where it is in range; of a vector that is not wholly there the lanes that are, each computed for itself. */
static void store_in_range(kn_tile *x, int64_t c, int lane_var)
{
    kn_lw *w = x->w;
    kn_expr *in = kn_tile_in_range(x);
    if (in && lane_var >= 0) in = kn_lw_at_lane(w, in, lane_var, kn_lw_int(w, x->lanes - 1));
    kn_ls *all = in ? kn_lw_if(w, in) : NULL, **after = w->tail;
    if (all) w->tail = &all->body;
    store_output(x, kn_tile_value(x, c), lane_var, false);
    if (!all) return;
    if (lane_var >= 0 && !kn_tile_whole_vectors(x)) {
        kn_tile one = *x;
        one.lanes = 1;
        one.lane_var = -1;
        w->tail = &all->other;
        for (int l = 0; l < x->lanes - 1 && !w->status; l++) {
            x->sg->val[x->vloop] = kn_lw_int(w, l);
            kn_expr *there = kn_tile_in_range(&one);
            kn_ls *cond = there ? kn_lw_if(w, there) : NULL, **here = w->tail;
            if (cond) w->tail = &cond->body;
            store_output(&one, kn_tile_value(&one, c), -1, false);
            if (cond) w->tail = here;
        }
        x->sg->val[x->vloop] = kn_lw_ref(w, x->lane_var);
    }
    w->tail = after;
}

/* Where element c goes of a tile that was moved back to end with its axis, had it not been. */
static kn_expr *place_unmoved(kn_tile *x, int64_t c)
{
    kn_expr *base[KILN_MAX_AXES];
    kn_tile_unmoved(x->sg, base);
    kn_expr *at = place_of(x, c);
    kn_tile_moved(x->sg, base);
    return at;
}

/* The tile's elements are one run of the output, from *at on, and the next tile's follow: a line that is asked for ahead is written at the rate of
 * reads, one that is not waits for memory in the store buffer (measured: 1.5 times the rate of plain stores where nothing is read, 1.2 times
 * where as much is). */
static bool runs_on(kn_tile *x, kn_expr **at)
{
    kn_lw *w = x->w;
    const kn_sg *sg = x->sg;
    int last = sg->tile - 1;
    int64_t step, run = x->ncombo * x->lanes;
    while (last >= 0 && (sg->g->loops[last].extent == 1 || kn_tile_reduces(sg, last))) last--;
    if (last < 0 || !sg->val[last] || sg->val[last]->op != KN_OP_VAR) return false;
    kn_expr *end = place_unmoved(x, x->ncombo - 1);
    *at = place_unmoved(x, 0);
    if (!*at || !end || !kn_lw_coefficient(*at, sg->val[last]->u.var, &step) || step != run) return false;
    end = kn_lw_simp(w, kn_lw_node(w, KN_OP_SUB, KN_I64, 1, end, *at, NULL));
    return end->op == KN_OP_CONST_I && end->u.i == run - x->lanes;
}

/* Of all that lies in memory. */
static int64_t touched(const kn_lw *w)
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

/* Where two vectors write a line, rows are whole lines. */
bool kn_lw_past_caches(const kn_lw *w, int out)
{
    const kn_tensor *t = &w->p->program->tensors[out];
    bool halves = w->hw->vector_bytes * 2 == KN_LINE_BYTES;
    if (halves ? t->rank > 1 && t->shape[t->rank - 1] * kn_dtype_bytes(t->dtype) % KN_LINE_BYTES : w->hw->vector_bytes < KN_LINE_BYTES) return false;
    if (w->hw->gpu || w->box[out].on || (halves && kn_lw_taken(w, out)) || kn_dtype_bytes(t->dtype) < 4) return false;
    return w->hw->streaming_store_bytes && touched(w) > w->hw->streaming_store_bytes;
}

/* What is computed takes longer than writing it does. */
static bool long_functions(const kn_expr *e)
{
    static const uint8_t is[] = {KN_OP_EXP, KN_OP_LOG, KN_OP_TANH, KN_OP_ERF, KN_OP_SIN, KN_OP_COS, KN_OP_POW};
    for (size_t i = 0; i < sizeof is; i++)
        if (e->op == is[i]) return true;
    for (int i = 0; i < e->nargs && e->op != KN_OP_LOAD; i++)
        if (long_functions(e->args[i])) return true;
    return false;
}

/* Either is what makes an output of such a size fast; which of them, the hardware's description says. */
static void write_far(kn_tile *x)
{
    enum { AHEAD = 2048 };
    kn_lw *w = x->w;
    const kn_sg *sg = x->sg;
    const kn_program *p = w->p->program;
    int out = sg->g->epilogue < 0 ? sg->s->out : p->stmts[sg->g->epilogue]->out;
    int64_t bytes = kn_dtype_bytes(p->tensors[out].dtype), all = kn_lw_elems(&p->tensors[out]) * bytes;
    kn_expr *at = NULL;
    if (w->hw->gpu || x->lanes < 2 || x->reduce_lanes || sg->rolled || w->box[out].on || all <= w->hw->levels[1].capacity_bytes) return;
    bool run = runs_on(x, &at), past = kn_lw_past_caches(w, out);
    int64_t span = x->ncombo * x->lanes * bytes, lines = kn_ceil_div(span, KN_LINE_BYTES);
    if (w->hw->vector_bytes < KN_LINE_BYTES) { /* no line is left half written in between, nor while its other half is computed */
        const kn_expr *last = sg->g->epilogue < 0 ? sg->s->body : p->stmts[sg->g->epilogue]->body;
        past &= run && span % KN_LINE_BYTES == 0 && !long_functions(sg->s->body) && !long_functions(last);
    }
    if (past && (run || sg->s->red == KN_RED_NONE)) w->streamed = kn_lw_tensor(w, out);
    if (!run || past || kn_lw_taken(w, out)) return; /* what it overwrites is there */
    at = kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, at, kn_lw_int(w, AHEAD / bytes)));
    kn_lw_prefetch_lines(w, kn_lw_tensor(w, out), at, lines, KN_LINE_BYTES / bytes, true);
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
    int64_t bytes = kn_dtype_bytes(x->acc_type), way = l1 ? kn_hw_way_bytes(l1) : INT64_MAX;
    for (int64_t c = 1; c < x->ncombo; c++) {
        kn_expr *e = place_of(x, c);
        e = e ? kn_lw_simp(w, kn_lw_node(w, KN_OP_SUB, KN_I64, 1, e, first, NULL)) : NULL;
        if (e && e->op == KN_OP_CONST_I && e->u.i && e->u.i * bytes % way == 0) return true;
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
    int64_t bytes = kn_lw_elems(t) * kn_dtype_bytes(t->dtype), step = 0;
    const kn_hw_level *from = &hw->levels[0], *l2 = kn_hw_level_named(hw, "l2"), *l3 = kn_hw_level_named(hw, "l3");
    double flops = 2, tiles = 1, cycles = (double)(x->ncombo * terms) / (hw->fma_per_cycle > 1 ? hw->fma_per_cycle : 1) + (double)x->ncombo + RESTART;
    for (int a = 0; a < sg->s->naxes; a++) flops *= (double)sg->s->axes[a].extent;
    double fetched = 2 * (double)bytes / from->bandwidth_gbs, computed = flops / kn_hw_peak_gflops(hw, x->acc_type);
    if (l3 && bytes <= l3->capacity_bytes) return 0;
    if (x->part >= 0 || x->acc < 0 || kn_lw_past_caches(x->w, out) || fetched * HIDES < computed) return 0;
    kn_expr *base[KILN_MAX_AXES];
    kn_tile_unmoved(sg, base);
    kn_expr *at = place_of(x, 0);
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
    int out = sg->g->epilogue < 0 ? sg->s->out : p->stmts[sg->g->epilogue]->out;
    int64_t bytes = kn_dtype_bytes(p->tensors[out].dtype), all = bytes, terms = 1;
    for (int i = 0; i < p->tensors[out].rank; i++) all *= p->tensors[out].shape[i];
    for (int i = sg->tile; i < sg->g->nloops; i++) if (kn_tile_reduces(sg, i)) terms *= sg->g->loops[i].extent;
    bool wide = x->lanes * bytes >= KN_LINE_BYTES, waits = wide || (nbeside && x->lanes > 1); /* parts of lines: only what is read is worth it */
    if (!l2 || all <= l2->capacity_bytes || w->box[out].on || x->reduce_lanes || x->ncombo > MOST) return;
    int64_t ahead = !waits && x->lanes > 1 ? lines_ahead(x, out, terms) : 0;
    if (!ahead && (!waits || terms < LEAST)) return;
    kn_expr *at = place_of(x, 0);
    if (!at) return;
    kn_ls *last = x->part >= 0 ? kn_lw_if(w, x->last) : NULL, **after = w->tail;
    if (last) w->tail = &last->body;
    kn_expr *base = kn_lw_let(w, "to", at);
    int64_t line = KN_LINE_BYTES / bytes, asked = -line; /* vectors of a row follow each other */
    for (int64_t c = 0; c < x->ncombo && !w->status; c++) {
        kn_expr *e = place_of(x, c);
        e = e ? kn_lw_simp(w, kn_lw_node(w, KN_OP_SUB, KN_I64, 1, e, at, NULL)) : NULL;
        if (!e || e->op != KN_OP_CONST_I || (e->u.i >= asked && e->u.i < asked + line)) continue;
        asked = e->u.i;
        kn_expr *to = kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, base, kn_lw_int(w, e->u.i + ahead)));
        kn_lw_prefetch(w, kn_lw_tensor(w, out), to, true);
        for (int b = 0; b < nbeside; b++) kn_lw_prefetch(w, kn_lw_tensor(w, beside[b]), kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, base, e)), false);
    }
    if (last) w->tail = after;
}

/* The tile leaves its axes with whole rows alone: those in range can be stored as they are. */
static bool leaves_by_rows(kn_tile *x)
{
    enum { MOST = 32 };
    bool rows = x->lanes > 1 && !x->reduce_lanes && x->ncombo <= MOST && x->ncombo > 1;
    for (int64_t c = 0; c < x->ncombo && rows; c++) {
        kn_tile_set(x, c);
        kn_expr *in = kn_tile_in_range(x);
        rows = !in || !kn_lw_uses(in, x->lane_var);
    }
    return rows;
}

static void store_rows(kn_tile *x, int lane_var)
{
    kn_lw *w = x->w;
    for (int64_t c = 0; c < x->ncombo && !w->status; c++) {
        kn_tile_set(x, c);
        kn_expr *in = kn_tile_in_range(x);
        kn_ls *cond = in ? kn_lw_if(w, in) : NULL, **after = w->tail;
        if (cond) w->tail = &cond->body;
        store_output(x, kn_tile_value(x, c), lane_var, false);
        if (cond) w->tail = after;
    }
}

/* What the thread itself goes on with: to registers, also what is out of range, so that nothing is read that was not written. */
static void store_own(kn_tile *x, const kn_own *own, int lane_var)
{
    kn_lw *w = x->w;
    for (int64_t c = 0; c < x->ncombo && !w->status; c++) {
        int out;
        bool safe;
        kn_expr *idx[KILN_MAX_RANK];
        kn_tile_set(x, c);
        kn_expr *in = kn_tile_in_range(x), *at = kn_lw_int(w, c), *zero = kn_lw_zero(w, w->p->buffers[own->buffer].dtype, 0);
        if (in && lane_var >= 0) in = kn_lw_at_lane(w, in, lane_var, kn_lw_int(w, x->lanes - 1));
        if (in) kn_lw_store(w, own->buffer, at, kn_lw_splat(w, zero, own->lanes));
        kn_ls *cond = in ? kn_lw_if(w, in) : NULL, **after = w->tail;
        if (cond) w->tail = &cond->body;
        kn_lw_store(w, own->buffer, at, final_value(x, kn_tile_value(x, c), lane_var, &out, idx, &safe));
        if (cond) w->tail = after;
    }
}

/* Stores the finished tile: whole, or element by element where it reaches out of range. */
static void store_tile(kn_tile *x)
{
    kn_lw *w = x->w;
    kn_ls **after = w->tail, *cond = NULL;
    int lane_var = x->reduce_lanes ? -1 : x->lane_var;
    const kn_own *own = kn_lw_own_of(w, kn_stage_out(w->t, x->sg->g));
    if (own) {
        store_own(x, own, lane_var);
        return;
    }
    if (x->row) {
        store_fixed(x, lane_var);
        return;
    }
    if (x->full && !x->store_full && !w->hw->gpu && !x->sg->rolled) {
        kn_expr *full = kn_lw_simp(w, x->full);
        if (full->op == KN_OP_CONST_I && !full->u.i) { /* the tile is wider than the axis: it never is whole */
            if (x->sg->past) store_rows(x, lane_var);
            else if (!store_fixed(x, lane_var)) spill_tile(x, lane_var);
            return;
        }
        cond = kn_lw_if(w, x->full);
        if (!cond) return;
        after = w->tail;
        w->tail = &cond->body;
    }
    bool interleaved = interleaves(x);
    if (interleaved) store_interleaved(x);
    for (int64_t c = 0; c < x->ncombo && !interleaved && !w->status; c++) {
        kn_tile_set(x, c);
        if (w->hw->gpu) store_in_range(x, c, lane_var);
        else store_output(x, kn_tile_value(x, c), lane_var, false);
    }
    if (cond) {
        w->tail = &cond->other;
        if (leaves_by_rows(x)) store_rows(x, lane_var);
        else spill_tile(x, lane_var);
        w->tail = after;
    }
}

void kn_tile_store(kn_tile *x)
{
    write_far(x);
    store_tile(x);
    x->w->streamed = -1;
}
