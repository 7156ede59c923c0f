/* Registers that stages computed in one GPU block hand over to each other (schedule/own.c): what an attached stage makes, and rows that are read once
 * for all of them. An element is found again by its distance from where the thread's share begins, which is a constant after unrolling. */
#include "lower/tile.h"

static bool lies_in_registers(const kn_sg *sg, int i, uint32_t axes)
{
    return kn_tile_spatial(sg, i) && (axes >> sg->g->loops[i].axis & 1);
}

/* Values for the register loops that `axes` have: element c of them, lane 0; others 0. */
static void set_element(kn_lw *w, kn_sg *sg, uint32_t axes, int64_t c)
{
    for (int i = sg->g->nloops - 1; i >= sg->tile; i--) {
        const kn_loop *l = &sg->g->loops[i];
        if (!kn_tile_spatial(sg, i)) continue;
        bool counted = lies_in_registers(sg, i, axes) && l->kind != KN_VECTOR;
        sg->val[i] = kn_lw_int(w, counted ? c % l->extent : 0);
        if (counted) c /= l->extent;
    }
}

/* Where the thread's share begins, and how far from there its elements are: idx are the indices as expressions of the stage's axes. */
static kn_own *describe(kn_lw *w, kn_sg *sg, int tensor, uint32_t axes, kn_expr *const *idx)
{
    if (w->nowns == KN_LW_OWNS) {
        kn_lw_fail(w, KILN_LIMIT, "a kernel keeps at most %d tensors in registers", KN_LW_OWNS);
        return NULL;
    }
    kn_own *o = &w->own[w->nowns];
    const kn_tensor *x = &w->p->program->tensors[tensor];
    *o = (kn_own){.tensor = tensor, .lanes = 1, .n = 1};
    for (int i = sg->tile; i < sg->g->nloops; i++) {
        if (!lies_in_registers(sg, i, axes)) continue;
        if (sg->g->loops[i].kind == KN_VECTOR) o->lanes = (int)sg->g->loops[i].extent;
        else o->n *= (int)sg->g->loops[i].extent;
    }
    o->delta = kn_array(w->a, kn_delta, o->n);
    for (int c = 0; c < o->n && o->delta && !w->status; c++) {
        kn_env v = {.w = w, .s = sg->s, .lane_var = -1, .repl_tensor = -1};
        set_element(w, sg, axes, c);
        kn_env_axes(w, sg, v.av);
        for (int d = 0; d < x->rank; d++) {
            kn_expr *at = kn_lw_simp(w, kn_env_scalar(&v, idx[d]));
            if (!c) o->base[d] = at;
            kn_expr *from = c ? kn_lw_simp(w, kn_lw_node(w, KN_OP_SUB, KN_I64, 1, at, o->base[d], NULL)) : kn_lw_int(w, 0);
            if (from->op != KN_OP_CONST_I)
                kn_lw_fail(w, KILN_UNSUPPORTED, "the elements of '%s' that a thread holds lie at no fixed distance", x->name);
            o->delta[c].by[d] = from->u.i;
        }
    }
    for (int i = sg->tile; i < sg->g->nloops; i++)
        if (kn_tile_spatial(sg, i)) sg->val[i] = NULL;
    if (!o->delta) kn_lw_fail(w, KILN_MEMORY, "out of memory in lowering");
    w->nowns++;
    return w->status ? NULL : o;
}

void kn_lw_own(kn_lw *w, kn_sg *sg)
{
    int out = kn_stage_out(w->t, sg->g), axis[KILN_MAX_RANK];
    const kn_tensor *x = &w->p->program->tensors[out];
    uint32_t axes = 0;
    kn_expr *idx[KILN_MAX_RANK];
    for (int d = 0; d < x->rank; d++) {
        axis[d] = kn_stage_out_axis(w->t, sg->g, d);
        if (axis[d] >= 0) axes |= 1u << axis[d];
        idx[d] = kn_lw_node(w, KN_OP_AXIS, KN_I64, 1, NULL, NULL, NULL);
        if (!w->status) idx[d]->u.axis = axis[d] < 0 ? 0 : axis[d];
        if (axis[d] < 0) kn_lw_fail(w, KILN_UNSUPPORTED, "dimension %d of '%s' is no axis of the statement that makes it", d, x->name);
    }
    kn_own *o = w->status ? NULL : describe(w, sg, out, axes, idx);
    if (!o) return;
    o->temp = true;
    o->buffer = kn_lw_buffer(w, "own", x->dtype, o->lanes, o->n, KN_REGISTER);
}

/* Condition that vector c of the share is in range, NULL: it is; of a vector all lanes agree (schedule/own.c). */
static kn_expr *in_range(kn_lw *w, kn_sg *sg, uint32_t axes)
{
    kn_expr *av[KILN_MAX_AXES], *in = NULL;
    kn_env_axes(w, sg, av);
    for (int a = 0; a < sg->s->naxes; a++)
        if (axes >> a & 1) in = kn_lw_and(w, in, kn_lw_below(w, av[a], sg->s->axes[a].extent));
    return in;
}

static void keep(kn_lw *w, kn_sg *sg, const kn_expr *load)
{
    int tensor = load->u.tensor, memory = kn_lw_tensor(w, tensor);
    const kn_tensor *x = &w->p->program->tensors[tensor];
    uint32_t axes = kn_axes_in(load);
    kn_own *o = describe(w, sg, tensor, axes, load->args);
    if (!o) return;
    o->buffer = kn_lw_buffer(w, "kept", x->dtype, o->lanes, o->n, KN_REGISTER);
    for (int c = 0; c < o->n && !w->status; c++) {
        kn_expr *idx[KILN_MAX_RANK];
        for (int d = 0; d < x->rank; d++)
            idx[d] = kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, o->base[d], kn_lw_int(w, o->delta[c].by[d])));
        set_element(w, sg, axes, c);
        kn_expr *in = in_range(w, sg, axes), *at = kn_lw_address(w, tensor, idx), *zero = kn_lw_splat(w, kn_lw_zero(w, x->dtype, 0), o->lanes);
        if (in) kn_lw_store(w, o->buffer, kn_lw_int(w, c), zero);
        kn_ls *cond = in ? kn_lw_if(w, in) : NULL, **after = w->tail;
        if (cond) w->tail = &cond->body;
        kn_lw_store(w, o->buffer, kn_lw_int(w, c), kn_lw_read(w, memory, at, o->lanes));
        if (cond) w->tail = after;
    }
    for (int i = sg->tile; i < sg->g->nloops; i++)
        if (kn_tile_spatial(sg, i)) sg->val[i] = NULL;
}

/* The lanes lie along the last dimension one after the other. */
static bool runs_along(const kn_stage *g, const kn_expr *load)
{
    kn_affine f;
    int axis = g->loops[g->nloops - 1].axis;
    if (g->loops[g->nloops - 1].kind != KN_VECTOR || !(kn_axes_in(load) >> axis & 1)) return true;
    for (int d = 0; d + 1 < load->nargs; d++) if (kn_axes_in(load->args[d]) >> axis & 1) return false;
    return kn_affine_of(load->args[load->nargs - 1], &f) && f.coef[axis] == 1;
}

void kn_lw_keep(kn_lw *w, kn_sg *sg)
{
    for (int i = 0; i < sg->nloads && !w->status; i++) {
        bool wanted = sg->g->kept >> i & 1 && runs_along(sg->g, sg->loads[i]);
        for (int k = 0; k < i; k++) wanted &= sg->loads[k] != sg->loads[i] && !(sg->g->kept >> k & 1 && kn_expr_equal(sg->loads[k], sg->loads[i]));
        if (wanted) keep(w, sg, sg->loads[i]);
    }
}

kn_own *kn_lw_own_of(kn_lw *w, int tensor)
{
    for (int i = 0; i < w->nowns; i++)
        if (w->own[i].temp && w->own[i].tensor == tensor) return &w->own[i];
    return NULL;
}

/* The distance of an index from where the share begins, at lane 0; false: it is no constant, or the lanes are not neighbours. */
static bool distance(kn_lw *w, kn_expr *at, kn_expr *base, int lane_var, int64_t lane, int64_t *out)
{
    int64_t c = 0;
    if (lane_var >= 0 && (!kn_lw_coefficient(at, lane_var, &c) || c != lane)) return false;
    if (lane_var >= 0 && c) at = kn_lw_at_lane(w, at, lane_var, kn_lw_int(w, 0));
    kn_expr *from = kn_lw_simp(w, kn_lw_node(w, KN_OP_SUB, KN_I64, 1, at, base, NULL));
    return from->op == KN_OP_CONST_I && (*out = from->u.i, true);
}

bool kn_lw_own_at(kn_lw *w, int tensor, kn_expr *const *idx, int lane_var, int lanes, int *buffer, int64_t *c)
{
    int rank = w->p->program->tensors[tensor].rank;
    for (int i = 0; i < w->nowns; i++) {
        const kn_own *o = &w->own[i];
        int64_t at[KILN_MAX_RANK];
        bool here = o->tensor == tensor && o->lanes == lanes;
        for (int d = 0; d < rank && here; d++) here = distance(w, idx[d], o->base[d], lane_var, d == rank - 1 && lanes > 1, &at[d]);
        for (*c = 0; here && *c < o->n; ++*c) {
            bool same = true;
            for (int d = 0; d < rank; d++) same &= o->delta[*c].by[d] == at[d];
            if (same) return *buffer = o->buffer, true;
        }
    }
    return false;
}
