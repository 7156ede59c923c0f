/* Finished values of a register tile go to memory: whole, or what of them is in range (ends.c). How they had better be written where memory is far:
 * far.c. */
#include "lower/tile.h"

/* On zero-filled operands. */
bool kn_tile_traps(const kn_expr *e)
{
    if ((e->op == KN_OP_FLOORDIV || e->op == KN_OP_MOD) && e->dtype != KN_I64 && e->args[1]->op != KN_OP_CONST_I) return true;
    for (int i = 0; i < e->nargs; i++)
        if (kn_tile_traps(e->args[i])) return true;
    return false;
}

kn_expr *kn_tile_final(kn_tile *x, kn_expr *value, int lane_var, int *out, kn_expr **idx, bool *safe)
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

void kn_tile_store_output(kn_tile *x, kn_expr *value, int lane_var, bool is_final)
{
    kn_lw *w = x->w;
    int out, lanes = value->lanes;
    bool safe;
    kn_expr *idx[KILN_MAX_RANK] = { NULL }, *made = kn_tile_final(x, value, lane_var, &out, idx, &safe);
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
        kn_ls *s = kn_lw_store_line(w, buffer, kn_lw_at_lane(w, at, lane_var, kn_lw_int(w, 0)), value, kn_env_line(w, x->sg));
        if (s && w->p->buffers[buffer].scope == KN_GLOBAL) s->idle = x->idle;
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
    kn_tile_final(x, kn_lw_zero(w, t, 0), lane_var, &out, idx, &safe);
    return kn_lw_unit_stride(output_address(x, out, lane_var, idx), lane_var);
}

kn_expr *kn_tile_unchanged(kn_tile *x, enum kn_dtype t, int *buffer)
{
    int out;
    bool safe;
    kn_expr *idx[KILN_MAX_RANK] = { NULL };
    if (x->sg->kept_axis) return NULL;
    kn_expr *any = kn_lw_zero(x->w, t, 0);
    if (kn_tile_final(x, any, -1, &out, idx, &safe) != any) return NULL;
    *buffer = kn_lw_tensor(x->w, out);
    return output_address(x, out, -1, idx);
}

bool kn_tile_safe(kn_tile *x, enum kn_dtype t)
{
    int out;
    bool safe;
    kn_expr *idx[KILN_MAX_RANK] = { NULL };
    kn_tile_final(x, kn_lw_zero(x->w, t, 0), -1, &out, idx, &safe);
    return safe;
}

void kn_tile_store_lanes(kn_tile *x, kn_expr *value, int lane_var) { kn_tile_store_output(x, value, lane_var, false); }

void kn_tile_store_value(kn_tile *x, kn_expr *value) { kn_tile_store_output(x, value, -1, false); }

kn_expr *kn_tile_place(kn_tile *x, int64_t c)
{
    kn_lw *w = x->w;
    int out;
    bool safe;
    kn_expr *idx[KILN_MAX_RANK] = { NULL };
    kn_tile_set(x, c);
    enum kn_dtype t = x->acc >= 0 ? x->acc_type : x->sg->s->body->dtype;
    kn_tile_final(x, kn_lw_splat(w, kn_lw_zero(w, t, 0), x->lanes), x->lane_var, &out, idx, &safe);
    kn_expr *at = output_address(x, out, x->lane_var, idx);
    return kn_lw_unit_stride(at, x->lane_var) ? kn_lw_at_lane(w, at, x->lane_var, kn_lw_int(w, 0)) : NULL;
}

/* The unrolled loop whose elements lie between those of the lanes, so that together they are one run of memory. */
static bool interleaves(kn_tile *x)
{
    kn_lw *w = x->w;
    const kn_sg *sg = x->sg;
    int u = -1;
    if (w->hw->gpu || x->lanes < 4 || x->reduce_lanes || x->ncombo < 2 || x->ncombo > 4 || sg->g->epilogue >= 0) return false;
    for (int i = sg->tile; i < sg->g->nloops; i++)
        if (kn_tile_spatial(sg, i) && i != x->vloop && kn_tile_extent(sg, i) == x->ncombo) u = i;
    if (u < 0) return false;
    int row = kn_lw_var(w, "row", 0, x->ncombo - 1);
    kn_tile_set(x, 0);
    x->sg->val[u] = kn_lw_ref(w, row);
    kn_expr *at = kn_lw_result(w, sg), *next = kn_lw_at_lane(w, at, x->lane_var, kn_lw_int(w, 1));
    kn_expr *step = kn_lw_simp(w, kn_bin(w->a, KN_OP_SUB, next, kn_lw_at_lane(w, at, x->lane_var, kn_lw_int(w, 0))));
    return kn_lw_unit_stride(at, row) && step->op == KN_OP_CONST_I && step->u.i == x->ncombo;
}

static void store_interleaved(kn_tile *x)
{
    kn_lw *w = x->w;
    int n = (int)x->ncombo, out, rows = kn_lw_buffer(w, "rows", w->p->program->tensors[x->sg->s->out].dtype, x->lanes, n, KN_REGISTER);
    kn_expr *idx[KILN_MAX_RANK], *args[4];
    bool safe, narrow = n != 3 && kn_dtype_bytes(w->p->program->tensors[x->sg->s->out].dtype) < 4; /* nothing picks from four of those at once */
    for (int c = 0; c < n && !w->status; c++) {
        kn_tile_set(x, c);
        kn_expr *value = kn_tile_final(x, kn_tile_value(x, c), x->lane_var, &out, idx, &safe);
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

/* GPU: element c where it is in range; of a vector that is not wholly there the lanes that are, each computed for itself. */
static void store_in_range(kn_tile *x, int64_t c, int lane_var)
{
    kn_lw *w = x->w;
    kn_expr *in = kn_tile_in_range(x);
    if (in && lane_var >= 0) in = kn_lw_at_lane(w, in, lane_var, kn_lw_int(w, x->lanes - 1));
    kn_ls *all = in ? kn_lw_if(w, in) : NULL, **after = w->tail;
    if (all) w->tail = &all->body;
    kn_tile_store_output(x, kn_tile_value(x, c), lane_var, false);
    if (!all) return;
    if (lane_var >= 0 && !kn_tile_whole_vectors(x)) {
        if (x->acc >= 0) {
            kn_lw_fail(w, KILN_UNSUPPORTED, "statement '%s': a vector of sums of which some lanes are out of range",
                       w->p->program->tensors[x->sg->s->out].name);
            kn_hint(w->d, "vectorize a loop whose vectors end where their axis does");
            return;
        }
        kn_tile one = *x;
        one.lanes = 1;
        one.lane_var = -1;
        w->tail = &all->other;
        for (int l = 0; l < x->lanes - 1 && !w->status; l++) {
            x->sg->val[x->vloop] = kn_lw_int(w, l);
            kn_expr *there = kn_tile_in_range(&one);
            kn_ls *cond = there ? kn_lw_if(w, there) : NULL, **here = w->tail;
            if (cond) w->tail = &cond->body;
            kn_tile_store_output(&one, kn_tile_value(&one, c), -1, false);
            if (cond) w->tail = here;
        }
        x->sg->val[x->vloop] = kn_lw_ref(w, x->lane_var);
    }
    w->tail = after;
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
        kn_lw_store(w, own->buffer, at, kn_tile_final(x, kn_tile_value(x, c), lane_var, &out, idx, &safe));
        if (cond) w->tail = after;
    }
}

int kn_tile_idle(kn_tile *x)
{
    kn_lw *w = x->w;
    kn_sg *sg = x->sg;
    kn_expr *av[KILN_MAX_AXES];
    if (w->hw->gpu || x->vloop < 0 || x->reduce_lanes || sg->rolled || sg->by_lines) return 0;
    int a = sg->g->loops[x->vloop].axis;
    kn_env_axes(w, sg, av);
    kn_expr *at = kn_lw_at_lane(w, av[a], x->lane_var, kn_lw_int(w, 0)), *inside = sg->inside[a];
    if (at->op != KN_OP_CONST_I) return 0;
    int64_t meant = at->u.i, left = sg->s->axes[a].extent - at->u.i;
    if (sg->had_axis == a + 1) meant = sg->kept;
    if (inside) {
        sg->inside[a] = NULL;
        kn_env_axes(w, sg, av);
        sg->inside[a] = inside;
        kn_expr *alone = kn_lw_at_lane(w, av[a], x->lane_var, kn_lw_int(w, 0));
        if (alone->op == KN_OP_CONST_I) meant = alone->u.i;
    }
    if (meant > at->u.i) return meant - at->u.i < x->lanes ? (int)(meant - at->u.i) : 0;
    return left > 0 && left < x->lanes ? (int)left - x->lanes : 0;
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
        kn_tile_store_known(x, lane_var);
        return;
    }
    if (x->full && !x->store_full && !w->hw->gpu && !x->sg->rolled) {
        kn_expr *full = kn_lw_simp(w, x->full);
        if (full->op == KN_OP_CONST_I && !full->u.i) { /* the tile is wider than the axis: it never is whole */
            if (x->sg->past) kn_tile_store_rows(x, lane_var);
            else if (!kn_tile_store_known(x, lane_var)) kn_tile_spill(x, lane_var);
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
        x->idle = lane_var >= 0 ? kn_tile_idle(x) : 0;
        if (w->hw->gpu) store_in_range(x, c, lane_var);
        else kn_tile_store_output(x, kn_tile_value(x, c), lane_var, false);
        x->idle = 0;
    }
    if (cond) {
        w->tail = &cond->other;
        if (kn_tile_leaves_by_rows(x)) kn_tile_store_rows(x, lane_var);
        else kn_tile_spill(x, lane_var);
        w->tail = after;
    }
}

void kn_tile_store(kn_tile *x)
{
    kn_tile_write_far(x);
    store_tile(x);
    x->w->streamed = -1;
}
