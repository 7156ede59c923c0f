/* Rows of a sum's operand that are shorter than a vector, or end within one, are read in whole ones: what follows a row in memory is the next one,
 * and what such lanes sum is stored nowhere, or left out where they run along the sum. The tensor's last row is picked from the vector that ends with
 * it. Places of a window that are fewer than lanes, over rows that are longer, go past the end of their axis too: their columns are known, and those
 * past the row are padding (edge.c). */
#include "lower/tile.h"

/* The load's rows are those of the axis, from end to end, and no less than half a vector. */
bool kn_lw_has_rows(const kn_lw *w, const kn_expr *load, int axis, int64_t lanes)
{
    const kn_tensor *t = &w->p->program->tensors[load->u.tensor];
    int last = load->nargs - 1;
    int64_t n = 1;
    const kn_expr *row = last < 0 ? NULL : load->args[last];
    if (load->padded || !row || row->op != KN_OP_AXIS || row->u.axis != axis || w->box[load->u.tensor].on) return false;
    for (int d = 0; d < last; d++)
        if ((kn_axes_in(load->args[d]) >> axis & 1) || kn_loads(load->args[d], NULL, 0)) return false;
    for (int d = 0; d <= last; d++) n *= t->shape[d];
    return t->rank == load->nargs && 2 * t->shape[last] >= lanes && n >= lanes;
}

/* The columns that the lanes read of a row are known, a few apart at most. */
static bool has_columns(const kn_lw *w, const kn_sg *sg, const kn_expr *load, int axis, int64_t lanes)
{
    const kn_tensor *t = &w->p->program->tensors[load->u.tensor];
    int last = load->nargs - 1;
    kn_affine f;
    if (last < 0 || w->box[load->u.tensor].on || t->rank != load->nargs || t->shape[last] < lanes) return false;
    if (!kn_affine_of(load->args[last], &f)) return false;
    for (int d = 0; d < last; d++) if (kn_axes_in(load->args[d]) >> axis & 1) return false;
    for (int i = 0; i < sg->g->nloops; i++) {
        const kn_loop *l = &sg->g->loops[i];
        if (f.coef[l->axis] && l->axis != axis && l->extent > 1 && l->kind != KN_UNROLL) return false;
    }
    return f.coef[axis] >= 1 && kn_lw_picks_apart(f.coef[axis]) && kn_dtype_bytes(t->dtype) >= 4 && t->dtype != KN_BOOL;
}

uint32_t kn_lw_over(const kn_lw *w, const kn_sg *sg)
{
    int lanes = sg->g->nloops - 1, axis;
    if (w->hw->gpu || sg->s->red == KN_RED_NONE || lanes < 0 || lanes < sg->tile) return 0;
    const kn_loop *l = &sg->g->loops[lanes];
    if (l->kind != KN_VECTOR || l->stride != 1 || w->nowns) return 0;
    axis = l->axis;
    if (sg->s->axes[axis].reduce || l->extent <= sg->s->axes[axis].extent) return 0;
    for (int i = 0; i < lanes; i++)
        if (sg->g->loops[i].axis == axis && sg->g->loops[i].extent > 1) return 0;
    for (int i = 0; i < sg->nloads; i++)
        if (!kn_sg_cached(sg, i) && (kn_axes_in(sg->loads[i]) >> axis & 1) && !kn_lw_has_rows(w, sg->loads[i], axis, l->extent) &&
            !has_columns(w, sg, sg->loads[i], axis, l->extent)) return 0;
    return 1u << axis;
}

kn_expr *kn_lw_read_over(kn_lw *w, int buffer, const kn_expr *load, kn_expr *at, int lanes)
{
    enum { LANES = 64 };
    const kn_tensor *t = &w->p->program->tensors[load->u.tensor];
    int64_t n = t->shape[t->rank - 1], all = 1, lo, hi;
    int number[LANES];
    for (int d = 0; d < t->rank; d++) all *= t->shape[d];
    if (n > lanes) n %= lanes; /* of the row's last vector */
    kn_expr *run = kn_lw_read(w, buffer, at, lanes);
    kn_lw_range(w, at, &lo, &hi);
    if (hi <= all - lanes || lanes > LANES) return run;
    for (int i = 0; i < lanes; i++) number[i] = i < n ? (int)(lanes - n) + i : lanes - 1;
    kn_expr *end = kn_lw_read(w, buffer, kn_lw_int(w, all - lanes), lanes), *last = kn_lw_pick(w, lanes, 1, &end, number);
    if (lo > all - lanes) return last;
    kn_expr *inside = kn_lw_below(w, at, all - lanes + 1);
    return inside ? kn_lw_node(w, KN_OP_SELECT, run->dtype, lanes, inside, run, last) : run;
}
