/* The register tile: the loops inside the last serial spatial loop. Its spatial loops are registers and lanes, its reduce loops run
 * over them; values are finished, guarded and stored here. */
#include "lower/lower.h"
#include <math.h>

typedef struct tile {
    kn_lw *w;
    kn_sg *sg;
    int lanes, lane_var;      /* vector loop of the tile; 0, -1: none */
    int vloop;                /* its loop, -1 */
    bool reduce_lanes;        /* the vector loop reduces */
    int64_t ncombo, nparts;   /* spatial register elements; accumulators of each (rfactor) */
    int acc;                  /* REGISTER buffer, -1 when nothing is reduced */
    enum kn_dtype acc_type;
    int part;                 /* SCRATCH partial sums, -1 */
    kn_expr *first, *last;    /* of the outer reduce loops */
    int spill;                /* SCRATCH copy of the tile for guarded stores, -1 */
    kn_expr *full;            /* whole tile in range; NULL: certain */
    bool store_full;          /* under `full` already */
} tile;

static bool reduces(const kn_sg *sg, int i) { return sg->s->axes[sg->g->loops[i].axis].reduce; }
static bool in_tile(const kn_sg *sg, int i) { return i >= sg->tile && sg->g->loops[i].kind != KN_THREAD; }
static bool spatial_register(const kn_sg *sg, int i) { return in_tile(sg, i) && !reduces(sg, i) && kn_is_register(sg->g->loops[i].kind); }

static enum kn_op combine_op(enum kn_reduce r)
{
    static const enum kn_op ops[] = { KN_OP_ADD, KN_OP_ADD, KN_OP_MUL, KN_OP_MAX, KN_OP_MIN, KN_OP_AND, KN_OP_OR };
    return ops[r];
}

static kn_expr *identity(kn_lw *w, enum kn_reduce r, enum kn_dtype t)
{
    bool f = kn_dtype_class(t) == 'f', big = t == KN_I64;
    double least = f ? -INFINITY : kn_dtype_class(t) != 'i' ? 0 : big ? -9223372036854775808.0 : -ldexp(1, kn_dtype_bytes(t) * 8 - 1);
    double most = f ? INFINITY : kn_dtype_class(t) == 'b' ? 1 : big ? 9223372036854775807.0 : ldexp(1, kn_dtype_bytes(t) * 8 - 1) - 1;
    switch (r) {
    case KN_RED_PROD: case KN_RED_ALL: return kn_lw_zero(w, t, 1);
    case KN_RED_MAX: return kn_lw_zero(w, t, least);
    case KN_RED_MIN: return kn_lw_zero(w, t, most);
    default: return kn_lw_zero(w, t, 0);
    }
}

static kn_expr *combine(tile *x, kn_expr *a, kn_expr *b)
{
    return kn_lw_node(x->w, combine_op(x->sg->s->red), a->dtype, a->lanes, a, b, NULL);
}

static kn_expr *cast_to(kn_lw *w, kn_expr *e, enum kn_dtype t)
{
    return e->dtype == t ? e : kn_lw_node(w, KN_OP_CAST, t, e->lanes, e, NULL, NULL);
}

/* Gives the tile's spatial register loops the values of element c (mixed radix, innermost fastest). */
static void set_combo(tile *x, int64_t c)
{
    kn_sg *sg = x->sg;
    for (int i = sg->g->nloops - 1; i >= sg->tile; i--) {
        if (!spatial_register(sg, i) || i == x->vloop) continue;
        if (sg->rolled) continue;
        sg->val[i] = kn_lw_int(x->w, c % sg->g->loops[i].extent);
        c /= sg->g->loops[i].extent;
    }
    if (x->vloop >= 0) sg->val[x->vloop] = kn_lw_ref(x->w, x->lane_var);
}

static kn_env env_of(tile *x)
{
    kn_env v = { .w = x->w, .sg = x->sg, .s = x->sg->s, .lane_var = x->lane_var, .lanes = x->lanes, .repl_tensor = -1,
                 .guard_axes = x->sg->guarded };
    kn_env_axes(x->w, x->sg, v.av);
    return v;
}

/* ---- storing a finished value ---- */

/* A body that traps on zero-filled operands must not be computed out of range. */
static bool traps(const kn_expr *e)
{
    if ((e->op == KN_OP_FLOORDIV || e->op == KN_OP_MOD) && e->dtype != KN_I64 && e->args[1]->op != KN_OP_CONST_I) return true;
    for (int i = 0; i < e->nargs; i++)
        if (traps(e->args[i])) return true;
    return false;
}

/* The value that the stage's statement, or its epilogue, stores for the finished `value`, in the dtype it is stored in; where it goes:
 * tensor *out at idx. *safe: computing it reads nothing out of range, even for elements that are. */
static kn_expr *final_value(tile *x, kn_expr *value, int lane_var, int *out, kn_expr **idx, bool *safe)
{
    kn_lw *w = x->w;
    const kn_sg *sg = x->sg;
    const kn_program *p = w->p->program;
    int lanes = value->lanes;
    kn_env v = { .w = w, .s = sg->s, .lane_var = lane_var, .lanes = lanes, .repl_tensor = -1 };
    kn_env_axes(w, sg, v.av);
    *safe = true;
    *out = sg->s->out;
    value = cast_to(w, value, p->tensors[*out].dtype);
    for (int i = 0; i < p->tensors[*out].rank; i++) idx[i] = kn_lw_simp(w, kn_env_scalar(&v, sg->s->lhs[i]));
    if (sg->g->epilogue < 0) return value;
    const kn_stmt *e = p->stmts[sg->g->epilogue];
    kn_env u = { .w = w, .s = e, .lane_var = lane_var, .lanes = lanes, .repl_tensor = *out, .repl = value };
    const kn_expr *loads[KILN_MAX_TENSORS];
    int n = kn_loads(e->body, loads, KILN_MAX_TENSORS);
    for (int i = 0; i < n && i < KILN_MAX_TENSORS; i++)
        if (loads[i]->u.tensor == *out)
            for (int k = 0; k < loads[i]->nargs; k++) u.av[loads[i]->args[k]->u.axis] = idx[k];
    *safe = !traps(e->body) && n <= KILN_MAX_TENSORS;
    for (int i = 0; i < n && *safe; i++)
        for (int a = 0; a < e->naxes && loads[i]->u.tensor != *out; a++)
            if ((kn_axes_in(loads[i]) >> a & 1) && kn_lw_below(w, u.av[a], e->axes[a].extent)) *safe = false;
    value = kn_env_vector(&u, e->body);
    *out = e->out;
    for (int i = 0; i < p->tensors[*out].rank; i++) idx[i] = kn_lw_simp(w, kn_env_scalar(&u, e->lhs[i]));
    return cast_to(w, value, p->tensors[*out].dtype);
}

/* is_final: value is what final_value made of it already. */
static void store_output(tile *x, kn_expr *value, int lane_var, bool is_final)
{
    kn_lw *w = x->w;
    int out, lanes = value->lanes;
    bool safe;
    kn_expr *idx[KILN_MAX_RANK] = { NULL }, *made = final_value(x, value, lane_var, &out, idx, &safe);
    if (!is_final) value = made;
    kn_expr *at = kn_lw_address(w, out, idx);
    int buffer = kn_lw_tensor(w, out);
    if (lanes <= 1) {
        kn_lw_store(w, buffer, at, value);
    } else if (kn_lw_unit_stride(at, lane_var)) {
        kn_lw_store(w, buffer, kn_lw_at_lane(w, at, lane_var, kn_lw_int(w, 0)), value);
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

/* Condition that the current element is in range on every spatial axis. */
static kn_expr *element_in_range(tile *x)
{
    kn_env v = env_of(x);
    kn_expr *c = NULL;
    for (int a = 0; a < x->sg->s->naxes; a++)
        if (!x->sg->s->axes[a].reduce && !x->sg->clipped[a]) c = kn_lw_and(x->w, c, kn_lw_below(x->w, v.av[a], x->sg->s->axes[a].extent));
    return c;
}

/* A spilled vector that is wholly in range goes out at once; the tail is in the other branch, which the caller fills. */
static kn_ls *store_spilled_vector(tile *x, kn_expr *at, bool is_final)
{
    kn_lw *w = x->w;
    kn_sg *sg = x->sg;
    sg->val[x->vloop] = kn_lw_int(w, x->lanes - 1);
    kn_expr *in = element_in_range(x);
    kn_ls *whole = in ? kn_lw_if(w, in) : NULL;
    if (!whole) return NULL;
    w->tail = &whole->body;
    sg->val[x->vloop] = kn_lw_ref(w, x->lane_var);
    at = kn_lw_simp(w, kn_bin(w->a, KN_OP_MUL, at, kn_lw_int(w, x->lanes)));
    store_output(x, kn_lw_read(w, x->spill, at, x->lanes), x->lane_var, is_final);
    w->tail = &whole->other;
    return whole;
}

/* Stores the spilled tile with rolled loops: vectors that are in range, then elements that are. */
static void store_spilled(tile *x, bool is_final)
{
    kn_lw *w = x->w;
    kn_sg *sg = x->sg;
    kn_ls **after = w->tail;
    bool opened = false;
    kn_expr *at = kn_lw_int(w, 0);
    for (int i = sg->tile; i < sg->g->nloops; i++) {
        if (!spatial_register(sg, i)) continue;
        const kn_loop *l = &sg->g->loops[i];
        if (i == x->vloop && x->lanes > 1 && !x->reduce_lanes) {
            kn_ls **here = w->tail;
            if (store_spilled_vector(x, at, is_final) && !opened) after = &(*here)->next, opened = true;
        }
        int var = kn_lw_var(w, l->name, 0, l->extent - 1);
        kn_ls *loop = kn_lw_for(w, var, kn_lw_int(w, 0), kn_lw_int(w, l->extent));
        if (!loop) return;
        if (!opened) after = w->tail;
        opened = true;
        w->tail = &loop->body;
        sg->val[i] = kn_lw_ref(w, var);
        at = kn_bin(w->a, KN_OP_ADD, kn_bin(w->a, KN_OP_MUL, at, kn_lw_int(w, l->extent)), sg->val[i]);
    }
    kn_expr *in = element_in_range(x);
    kn_ls *cond = in ? kn_lw_if(w, in) : NULL;
    if (cond) w->tail = &cond->body;
    tile scalar = *x;
    scalar.lane_var = -1;
    store_output(&scalar, kn_lw_read(w, x->spill, kn_lw_simp(w, at), 1), -1, is_final);
    if (opened) w->tail = after;
}

/* ---- accumulating ---- */

static void accumulate(tile *x, int64_t part)
{
    kn_lw *w = x->w;
    for (int64_t c = 0; c < x->ncombo && !w->status; c++) {
        set_combo(x, c);
        kn_env v = env_of(x);
        kn_expr *in = NULL;
        int lane = x->lane_var;
        for (int a = 0; a < x->sg->s->naxes; a++)
            if (x->sg->s->axes[a].reduce && !x->sg->clipped[a]) in = kn_lw_and(w, in, kn_lw_below(w, v.av[a], x->sg->s->axes[a].extent));
        kn_expr *at = kn_lw_int(w, c * x->nparts + part), *old = kn_lw_read(w, x->acc, at, x->lanes);
        kn_ls **after = w->tail, *cond = NULL;
        if (in) {
            kn_expr *all = lane >= 0 && kn_lw_uses(in, lane) ? kn_lw_at_lane(w, in, lane, kn_lw_int(w, x->lanes - 1)) : in;
            cond = kn_lw_if(w, all);
            if (!cond) return;
            after = w->tail;
            w->tail = &cond->body;
        }
        kn_expr *term = cast_to(w, kn_env_vector(&v, x->sg->s->body), x->acc_type);
        kn_lw_store(w, x->acc, at, combine(x, old, kn_lw_splat(w, term, x->lanes)));
        if (cond && lane >= 0 && kn_lw_uses(in, lane)) {
            w->tail = &cond->other;
            kn_expr *one = cast_to(w, kn_env_scalar(&v, x->sg->s->body), x->acc_type);
            one = kn_lw_node(w, KN_OP_SELECT, one->dtype, 1, in, one, identity(w, x->sg->s->red, x->acc_type));
            kn_lw_store(w, x->acc, at, combine(x, old, kn_lw_lanes(w, one, lane, x->lanes)));
        }
        if (cond) w->tail = after;
    }
}

static void nest(tile *x, int i, int64_t part)
{
    kn_lw *w = x->w;
    kn_sg *sg = x->sg;
    for (; i < sg->g->nloops; i++)
        if (in_tile(sg, i) && reduces(sg, i) && (i != x->vloop || sg->rolled)) break;
    if (i == sg->g->nloops) {
        accumulate(x, part);
        return;
    }
    const kn_loop *l = &sg->g->loops[i];
    bool was = sg->clipped[l->axis];
    if (kn_is_register(l->kind) && !sg->rolled) {
        for (int64_t k = 0; k < l->extent && !w->status; k++) {
            sg->val[i] = kn_lw_int(w, k);
            kn_lw_open(w, sg, i, NULL);
            nest(x, i + 1, l->rfactor ? part * l->extent + k : part);
        }
    } else {
        kn_lw_before(w, sg, i);
        kn_ls *loop = kn_lw_loop(w, sg, i);
        if (!loop) return;
        kn_ls **after = w->tail;
        w->tail = &loop->body;
        kn_lw_open(w, sg, i, loop);
        nest(x, i + 1, part);
        w->tail = after;
    }
    sg->clipped[l->axis] = was;
    sg->val[i] = NULL;
}

/* ---- finishing ---- */

/* Combines across the threads of rfactor loops; true when only some threads hold the result (condition in *owner). */
static void combine_threads(tile *x, kn_expr **owner)
{
    kn_lw *w = x->w;
    kn_sg *sg = x->sg;
    *owner = NULL;
    for (int i = 0; i < sg->g->nloops; i++) {
        const kn_loop *l = &sg->g->loops[i];
        if (l->kind != KN_THREAD || !reduces(sg, i) || l->extent == 1) continue;
        int64_t stride = 1;
        for (int k = i + 1; k < sg->g->nloops; k++)
            if (sg->g->loops[k].kind == KN_THREAD) stride *= sg->g->loops[k].extent;
        int sh = kn_lw_buffer(w, "part", x->acc_type, 1, x->ncombo * w->threads, KN_SHARED);
        for (int64_t c = 0; c < x->ncombo; c++)
            kn_lw_store(w, sh, kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, kn_lw_int(w, c * w->threads), w->thread)),
                        kn_lw_read(w, x->acc, kn_lw_int(w, c), 1));
        for (int64_t n = l->extent; n > 1 && !w->status;) {
            int64_t half = (n + 1) / 2;
            kn_lw_barrier(w);
            kn_ls *cond = kn_lw_if(w, kn_lw_node(w, KN_OP_LT, KN_BOOL, 1, sg->val[i], kn_lw_int(w, n - half), NULL));
            if (!cond) return;
            kn_ls **after = w->tail;
            w->tail = &cond->body;
            for (int64_t c = 0; c < x->ncombo; c++) {
                kn_expr *at = kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, kn_lw_int(w, c * w->threads), w->thread));
                kn_expr *other = kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, kn_lw_int(w, c * w->threads + half * stride), w->thread));
                kn_lw_store(w, sh, at, combine(x, kn_lw_read(w, sh, at, 1), kn_lw_read(w, sh, other, 1)));
            }
            w->tail = after;
            n = half;
        }
        for (int64_t c = 0; c < x->ncombo; c++)
            kn_lw_store(w, x->acc, kn_lw_int(w, c),
                        kn_lw_read(w, sh, kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, kn_lw_int(w, c * w->threads), w->thread)), 1));
        *owner = kn_lw_and(w, *owner, kn_lw_node(w, KN_OP_EQ, KN_BOOL, 1, sg->val[i], kn_lw_int(w, 0), NULL));
    }
}

static kn_expr *finished(tile *x, int64_t c)
{
    kn_lw *w = x->w;
    kn_expr *v = NULL;
    for (int64_t k = 0; k < x->nparts; k++) {
        kn_expr *r = kn_lw_read(w, x->acc, kn_lw_int(w, c * x->nparts + k), x->lanes);
        v = v ? combine(x, v, r) : r;
    }
    if (x->reduce_lanes) {
        v = kn_lw_node(w, KN_OP_HSUM, v->dtype, 1, v, NULL, NULL);
        if (!w->status) v->u.i = x->sg->s->red;
    }
    return v;
}

/* Element of the partial tile: the spatial loops inside the outermost reduce loop, in order. */
static kn_expr *part_index(tile *x)
{
    kn_lw *w = x->w;
    const kn_sg *sg = x->sg;
    kn_expr *at = kn_lw_int(w, 0);
    for (int i = sg->first_reduce; i < sg->g->nloops; i++)
        if (!reduces(sg, i)) at = kn_bin(w->a, KN_OP_ADD, kn_bin(w->a, KN_OP_MUL, at, kn_lw_int(w, sg->g->loops[i].extent)), sg->val[i]);
    at = kn_lw_simp(w, at);
    return x->lane_var >= 0 ? kn_lw_at_lane(w, at, x->lane_var, kn_lw_int(w, 0)) : at;
}

static kn_expr *value_of(tile *x, int64_t c)
{
    kn_lw *w = x->w;
    if (x->acc < 0) {
        kn_env v = env_of(x);
        return kn_lw_splat(w, kn_env_vector(&v, x->sg->s->body), x->lanes);
    }
    kn_expr *v = finished(x, c);
    return x->part >= 0 ? combine(x, kn_lw_read(w, x->part, part_index(x), v->lanes), v) : v;
}

/* How many lanes of the current element of a tile of fixed place are in range; -1: that depends on where the tile is. */
static int lanes_in_range(tile *x)
{
    kn_sg *sg = x->sg;
    int n = 0, width = x->lanes > 1 && !x->reduce_lanes ? x->lanes : 1;
    for (; n < width; n++) {
        if (width > 1) sg->val[x->vloop] = kn_lw_int(x->w, n);
        kn_expr *in = element_in_range(x);
        if (in) in = kn_lw_simp(x->w, in);
        if (in && in->op != KN_OP_CONST_I) return -1;
        if (in && !in->u.i) break;
    }
    if (width > 1) sg->val[x->vloop] = kn_lw_ref(x->w, x->lane_var);
    return n;
}

/* The tile's place is known: whole vectors go out at once, what is left of the others by the element, and nothing else is asked. */
static bool store_fixed(tile *x, int lane_var)
{
    kn_lw *w = x->w;
    int width = x->lanes > 1 && !x->reduce_lanes ? x->lanes : 1;
    for (int64_t c = 0; c < x->ncombo; c++) {
        set_combo(x, c);
        if (lanes_in_range(x) < 0) return false;
    }
    for (int64_t c = 0; c < x->ncombo && !w->status; c++) {
        set_combo(x, c);
        int n = lanes_in_range(x);
        if (!n) continue;
        kn_expr *value = value_of(x, c);
        if (n == width) {
            store_output(x, value, lane_var, false);
            continue;
        }
        int64_t keep = w->scratch;
        int line = kn_lw_buffer(w, "line", value->dtype, 1, width, KN_SCRATCH), var = kn_lw_var(w, "l", 0, n - 1);
        w->scratch = keep;
        kn_lw_store(w, line, kn_lw_int(w, 0), value);
        kn_ls *loop = kn_lw_for(w, var, kn_lw_int(w, 0), kn_lw_int(w, n));
        if (!loop) return true;
        kn_ls **after = w->tail;
        w->tail = &loop->body;
        x->sg->val[x->vloop] = kn_lw_ref(w, var);
        tile scalar = *x;
        scalar.lane_var = -1;
        store_output(&scalar, kn_lw_read(w, line, kn_lw_ref(w, var), 1), -1, false);
        w->tail = after;
    }
    return true;
}

/* Stores a tile that reaches out of range: all of it to scratch, finished where that is safe, then what is in range element by element. */
static void spill_tile(tile *x, int lane_var)
{
    kn_lw *w = x->w;
    int out, width = x->reduce_lanes || x->lanes <= 1 ? 1 : x->lanes;
    bool safe = true, one = true;
    kn_expr *idx[KILN_MAX_RANK];
    int64_t keep = w->scratch;
    for (int64_t c = 0; c < x->ncombo && safe; c++) {
        set_combo(x, c);
        final_value(x, value_of(x, c), lane_var, &out, idx, &one);
        safe = safe && one;
    }
    enum kn_dtype t = w->p->program->tensors[safe ? out : x->sg->s->out].dtype;
    x->spill = kn_lw_buffer(w, "spill", t, 1, x->ncombo * width, KN_SCRATCH);
    for (int64_t c = 0; c < x->ncombo && !w->status; c++) {
        set_combo(x, c);
        kn_expr *value = value_of(x, c);
        value = safe ? final_value(x, value, lane_var, &out, idx, &one) : cast_to(w, value, t);
        kn_lw_store(w, x->spill, kn_lw_int(w, c * width), value);
    }
    store_spilled(x, safe);
    w->scratch = keep;
}

/* The unrolled loop whose elements lie between those of the lanes, so that together they are one run of memory. */
static bool interleaves(tile *x)
{
    kn_lw *w = x->w;
    const kn_sg *sg = x->sg;
    kn_env v = { .w = w, .s = sg->s, .lane_var = -1, .repl_tensor = -1 };
    kn_expr *idx[KILN_MAX_RANK];
    int u = -1, out = sg->s->out;
    if (w->hw->gpu || x->lanes < 4 || x->reduce_lanes || x->ncombo < 2 || x->ncombo > 4 || sg->g->epilogue >= 0) return false;
    if (kn_dtype_bytes(w->p->program->tensors[out].dtype) < 4) return false;
    for (int i = sg->tile; i < sg->g->nloops; i++)
        if (spatial_register(sg, i) && i != x->vloop && sg->g->loops[i].extent == x->ncombo) u = i;
    if (u < 0) return false;
    int row = kn_lw_var(w, "row", 0, x->ncombo - 1);
    set_combo(x, 0);
    x->sg->val[u] = kn_lw_ref(w, row);
    kn_env_axes(w, sg, v.av);
    for (int i = 0; i < w->p->program->tensors[out].rank; i++) idx[i] = kn_lw_simp(w, kn_env_scalar(&v, sg->s->lhs[i]));
    kn_expr *at = kn_lw_address(w, out, idx), *next = kn_lw_at_lane(w, at, x->lane_var, kn_lw_int(w, 1));
    kn_expr *step = kn_lw_simp(w, kn_bin(w->a, KN_OP_SUB, next, kn_lw_at_lane(w, at, x->lane_var, kn_lw_int(w, 0))));
    return kn_lw_unit_stride(at, row) && step->op == KN_OP_CONST_I && step->u.i == x->ncombo;
}

static void store_interleaved(tile *x)
{
    kn_lw *w = x->w;
    int n = (int)x->ncombo, out, rows = kn_lw_buffer(w, "rows", w->p->program->tensors[x->sg->s->out].dtype, x->lanes, n, KN_REGISTER);
    kn_expr *idx[KILN_MAX_RANK], *args[4];
    bool safe;
    for (int c = 0; c < n && !w->status; c++) {
        set_combo(x, c);
        kn_expr *value = final_value(x, value_of(x, c), x->lane_var, &out, idx, &safe);
        kn_lw_store(w, rows, kn_lw_int(w, c), value);
        args[c] = kn_lw_read(w, rows, kn_lw_int(w, c), x->lanes);
    }
    set_combo(x, 0);
    kn_env v = env_of(x);
    for (int i = 0; i < w->p->program->tensors[out].rank; i++) idx[i] = kn_lw_simp(w, kn_env_scalar(&v, x->sg->s->lhs[i]));
    kn_expr *at = kn_lw_at_lane(w, kn_lw_address(w, out, idx), x->lane_var, kn_lw_int(w, 0));
    for (int c = 0; c < n && !w->status; c++)
        kn_lw_store(w, kn_lw_tensor(w, out), kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, at, kn_lw_int(w, c * x->lanes))), kn_lw_zip(w, n, args, c));
}

/* Stores the finished tile: whole, or element by element where it reaches out of range. */
static void store_tile(tile *x)
{
    kn_lw *w = x->w;
    kn_ls **after = w->tail, *cond = NULL;
    int lane_var = x->reduce_lanes ? -1 : x->lane_var;
    if (x->full && !x->store_full && !w->hw->gpu && !x->sg->rolled) {
        kn_expr *full = kn_lw_simp(w, x->full);
        if (full->op == KN_OP_CONST_I && !full->u.i) { /* the tile is wider than the axis: it never is whole */
            if (!store_fixed(x, lane_var)) spill_tile(x, lane_var);
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
        set_combo(x, c);
        kn_expr *in = w->hw->gpu ? element_in_range(x) : NULL;
        kn_ls **here = w->tail;
        kn_ls *one = in ? kn_lw_if(w, in) : NULL;
        if (one) {
            here = w->tail;
            w->tail = &one->body;
        }
        store_output(x, value_of(x, c), lane_var, false);
        if (one) w->tail = here;
    }
    if (cond) {
        w->tail = &cond->other;
        spill_tile(x, lane_var);
        w->tail = after;
    }
}

static void store_part(tile *x, bool first)
{
    for (int64_t c = 0; c < x->ncombo && !x->w->status; c++) {
        set_combo(x, c);
        kn_expr *v = first ? finished(x, c) : value_of(x, c);
        kn_lw_store(x->w, x->part, part_index(x), v);
    }
}

static void finish(tile *x)
{
    kn_lw *w = x->w;
    kn_expr *owner = NULL;
    if (x->acc >= 0 && w->hw->gpu) combine_threads(x, &owner);
    kn_ls **after = w->tail;
    kn_ls *cond = owner ? kn_lw_if(w, owner) : NULL;
    if (cond) {
        after = w->tail;
        w->tail = &cond->body;
    }
    if (x->part < 0) {
        store_tile(x);
        if (cond) w->tail = after;
        return;
    }
    kn_ls *first = x->first ? kn_lw_if(w, x->first) : NULL;
    if (x->first && !first) return;
    if (first) {
        after = w->tail;
        w->tail = &first->body;
        store_part(x, true);
        w->tail = &first->other;
    }
    kn_ls *last = kn_lw_if(w, x->last);
    if (!last) return;
    if (!first) after = w->tail;
    w->tail = &last->body;
    store_tile(x);
    w->tail = &last->other;
    store_part(x, false);
    w->tail = after;
}

/* ---- the tile as a whole ---- */

static void measure(tile *x)
{
    kn_sg *sg = x->sg;
    x->ncombo = x->nparts = 1;
    x->lanes = 1;
    x->lane_var = x->vloop = x->spill = -1;
    if (sg->rolled) return;
    for (int i = sg->tile; i < sg->g->nloops; i++) {
        const kn_loop *l = &sg->g->loops[i];
        if (!kn_is_register(l->kind)) continue;
        if (l->kind == KN_VECTOR) {
            x->vloop = i;
            x->lanes = (int)l->extent;
            x->lane_var = kn_lw_var(x->w, "lane", 0, l->extent - 1);
            x->reduce_lanes = reduces(sg, i);
            sg->val[i] = kn_lw_ref(x->w, x->lane_var);
        } else if (!reduces(sg, i)) {
            x->ncombo *= l->extent;
        } else if (l->rfactor) {
            x->nparts *= l->extent;
        }
    }
}

static void emit(kn_lw *w, kn_sg *sg, int part, kn_expr *first, kn_expr *last, kn_expr *full, bool store_full)
{
    tile x = { .w = w, .sg = sg, .acc = -1, .part = part, .first = first, .last = last, .full = full, .store_full = store_full };
    measure(&x);
    if (sg->s->red != KN_RED_NONE) {
        x.acc_type = kn_dtype_acc(sg->s->body->dtype);
        x.acc = kn_lw_buffer(w, "acc", x.acc_type, x.lanes, x.ncombo * x.nparts, KN_REGISTER);
        for (int64_t c = 0; c < x.ncombo * x.nparts && !w->status; c++)
            kn_lw_store(w, x.acc, kn_lw_int(w, c), kn_lw_splat(w, identity(w, sg->s->red, x.acc_type), x.lanes));
        nest(&x, sg->tile, 0);
    }
    if (store_full || !full) kn_lw_turn(w, sg, x.vloop, x.lanes);
    finish(&x);
    for (int i = 0; i < sg->nloads; i++) sg->turned_of[i] = -1;
    for (int i = sg->tile; i < sg->g->nloops; i++)
        if (in_tile(sg, i) && !sg->rolled) sg->val[i] = NULL;
}

/* Condition that the whole tile is in range, NULL when certain; axes that may leave it are in *tail. */
static kn_expr *tile_full(kn_lw *w, kn_sg *sg, uint32_t *tail)
{
    kn_expr *av[KILN_MAX_AXES], *full = NULL;
    for (int i = sg->tile; i < sg->g->nloops; i++)
        if (spatial_register(sg, i)) sg->val[i] = kn_lw_int(w, sg->g->loops[i].extent - 1);
    kn_env_axes(w, sg, av);
    *tail = 0;
    for (int a = 0; a < sg->s->naxes; a++) {
        kn_expr *c = sg->s->axes[a].reduce || sg->clipped[a] ? NULL : kn_lw_below(w, av[a], sg->s->axes[a].extent);
        if (c) *tail |= 1u << a;
        full = kn_lw_and(w, full, c);
    }
    for (int i = sg->tile; i < sg->g->nloops; i++)
        if (spatial_register(sg, i)) sg->val[i] = NULL;
    return full;
}

static void emit_rolled(kn_lw *w, kn_sg *sg, int part, kn_expr *first, kn_expr *last)
{
    kn_ls **after = w->tail;
    bool opened = false;
    sg->rolled = true;
    bool was[KILN_MAX_AXES];
    for (int a = 0; a < KILN_MAX_AXES; a++) was[a] = sg->clipped[a];
    for (int i = sg->tile; i < sg->g->nloops; i++) {
        if (!spatial_register(sg, i)) continue;
        kn_ls *loop = kn_lw_loop(w, sg, i);
        if (!loop) return;
        if (!opened) after = w->tail;
        opened = true;
        w->tail = &loop->body;
    }
    tile x = { .w = w, .sg = sg, .lane_var = -1 };
    kn_expr *in = element_in_range(&x);
    kn_ls *cond = in ? kn_lw_if(w, in) : NULL;
    if (cond) {
        if (!opened) after = w->tail;
        opened = true;
        w->tail = &cond->body;
    }
    emit(w, sg, part, first, last, NULL, true);
    if (opened) w->tail = after;
    sg->rolled = false;
    for (int a = 0; a < KILN_MAX_AXES; a++) sg->clipped[a] = was[a];
    for (int i = sg->tile; i < sg->g->nloops; i++)
        if (in_tile(sg, i)) sg->val[i] = NULL;
}

/* Iterations of the reduce loops outside the tile, and the elements of the partial results that they share. */
static int64_t outer_reduction(const kn_sg *sg, int64_t *elems)
{
    int64_t outer = 1;
    *elems = 1;
    for (int i = 0; i < sg->tile; i++)
        if (reduces(sg, i) && sg->g->loops[i].kind != KN_THREAD) outer *= sg->g->loops[i].extent;
    for (int i = sg->first_reduce; i < sg->g->nloops; i++)
        if (!reduces(sg, i) && !kn_mul_fits(*elems, sg->g->loops[i].extent, elems)) *elems = INT64_MAX;
    return outer;
}

static int part_buffer(kn_lw *w, const kn_sg *sg, int64_t elems)
{
    if (w->hw->gpu || elems > KILN_MAX_EXTENT) {
        kn_lw_fail(w, KILN_UNSUPPORTED,
            "statement '%s': serial spatial loops inside a reduce loop need a partial tile that the target cannot hold",
                   w->p->program->tensors[sg->s->out].name);
        kn_hint(w->d, "unroll the spatial loops inside the reduce loops, or bind them as vthread");
        return -1;
    }
    return kn_lw_buffer(w, "part", kn_dtype_acc(sg->s->body->dtype), 1, elems, KN_SCRATCH);
}

void kn_lw_init_part(kn_lw *w, kn_sg *sg)
{
    int64_t elems;
    if (outer_reduction(sg, &elems) == 1) return;
    sg->part = part_buffer(w, sg, elems);
    if (sg->part < 0) return;
    int var = kn_lw_var(w, "i", 0, elems - 1);
    kn_ls *loop = kn_lw_for(w, var, kn_lw_int(w, 0), kn_lw_int(w, elems)), **after = w->tail;
    if (!loop) return;
    w->tail = &loop->body;
    kn_lw_store(w, sg->part, kn_lw_ref(w, var), identity(w, sg->s->red, kn_dtype_acc(sg->s->body->dtype)));
    w->tail = after;
}

/* Partial results between iterations of reduce loops outside the tile; *first is NULL where they are set to the identity before. */
static int partial_tile(kn_lw *w, kn_sg *sg, kn_expr **first, kn_expr **last)
{
    int64_t elems, outer = outer_reduction(sg, &elems);
    if (outer == 1) return -1;
    for (int i = 0; i < sg->tile; i++) {
        const kn_loop *l = &sg->g->loops[i];
        if (!reduces(sg, i) || l->kind == KN_THREAD || l->extent == 1) continue;
        if (sg->part < 0) *first = kn_lw_and(w, *first, kn_lw_node(w, KN_OP_EQ, KN_BOOL, 1, sg->val[i], kn_lw_int(w, 0), NULL));
        *last = kn_lw_and(w, *last, kn_lw_node(w, KN_OP_EQ, KN_BOOL, 1, sg->val[i], kn_lw_int(w, l->extent - 1), NULL));
    }
    return sg->part >= 0 ? sg->part : part_buffer(w, sg, elems);
}

/* Elements of axis a that a register tile spans, 0 when its loops there are not all registers or leave holes between them. */
static int64_t tile_span(const kn_sg *sg, int a)
{
    int64_t span = 1, points = 1;
    for (int i = sg->tile; i < sg->g->nloops; i++) {
        if (sg->g->loops[i].axis != a) continue;
        if (!spatial_register(sg, i)) return 0;
        span += (sg->g->loops[i].extent - 1) * sg->g->loops[i].stride;
        points *= sg->g->loops[i].extent;
    }
    return points == span ? span : 0;
}

/* Moves the last register tile of an axis back, so that it ends where the axis ends: it computes some elements a second time, to the same
 * bits, instead of going element by element. Not where a cache holds the axis: it was filled for where the tile would have been. */
static void overlap_tails(kn_lw *w, kn_sg *sg)
{
    uint32_t tail, held = 0;
    if (w->hw->gpu || sg->g->at_stage >= 0) return;
    for (int k = 0; k < w->t->nstages; k++)
        if (w->t->stages[k]->at_stage == sg->index) return;
    tile_full(w, sg, &tail);
    for (int i = 0; i < sg->nloads; i++)
        if (kn_sg_cached(sg, i)) held |= kn_axes_in(sg->loads[i]);
    for (int a = 0; a < sg->s->naxes && !w->status; a++) {
        int64_t span = (tail & ~held) >> a & 1 ? tile_span(sg, a) : 0, last = sg->s->axes[a].extent - span;
        if (span < 1 || last < 0) continue;
        kn_expr *base = kn_lw_int(w, 0);
        for (int i = 0; i < sg->tile; i++) {
            const kn_loop *l = &sg->g->loops[i];
            if (l->axis != a || !sg->val[i]) continue;
            base = kn_lw_node(w, KN_OP_ADD, KN_I64, 1, base, kn_lw_node(w, KN_OP_MUL, KN_I64, 1, sg->val[i], kn_lw_int(w, l->stride), NULL), NULL);
        }
        sg->base[a] = kn_lw_let(w, "from", kn_lw_node(w, KN_OP_MIN, KN_I64, 1, base, kn_lw_int(w, last), NULL));
    }
}

void kn_lw_tile(kn_lw *w, kn_sg *sg)
{
    kn_expr *first = NULL, *last = NULL;
    overlap_tails(w, sg);
    int part = sg->s->red == KN_RED_NONE ? -1 : partial_tile(w, sg, &first, &last);
    uint32_t tail, unsafe = 0;
    kn_expr *full = tile_full(w, sg, &tail);
    bool trap = traps(sg->s->body), inner = false;
    for (int i = 0; i < sg->nloads; i++)
        if (!kn_sg_cached(sg, i)) unsafe |= kn_axes_in(sg->loads[i]) & tail;
    for (int k = 0; k < sg->g->ncaches; k++) inner |= sg->g->caches[k].at >= sg->tile;
    for (int k = 0; k < w->t->nstages; k++) inner |= w->t->stages[k]->at_stage == sg->index && w->t->stages[k]->at_loop >= sg->tile;
    if (w->hw->gpu) {
        sg->guarded = unsafe != 0 && sg->s->red != KN_RED_NONE;
        emit(w, sg, part, first, last, full, false);
    } else if (full && (unsafe || trap || sg->s->red == KN_RED_NONE) && !inner) {
        kn_ls *cond = kn_lw_if(w, full);
        if (!cond) return;
        kn_ls **after = w->tail;
        w->tail = &cond->body;
        emit(w, sg, part, first, last, full, true);
        w->tail = &cond->other;
        emit_rolled(w, sg, part, first, last);
        w->tail = after;
    } else {
        sg->guarded = unsafe != 0;
        emit(w, sg, part, first, last, full, false);
    }
    sg->guarded = false;
    for (int a = 0; a < sg->s->naxes; a++) sg->base[a] = NULL;
}
