/* Rows of a large output that are no whole lines, written past the caches by a map: vectors that straddle two lines would each be brought in
 * before they are written. The vectors of a row begin with lines, the first of them up to a vector before the row. What begins before it or ends
 * behind it is computed of the row's first or last vector, and of that only the lanes are written that are the line's: a line that was written
 * past the caches comes back from memory when it is written to again (softmax of rows of 1267, 333 and 199 elements: 0.49, 0.26 and 0.19 of the
 * time of tiles moved back whole, 0.8 to 0.9 of that of plain stores, on a Zen 4). */
#include "lower/lower.h"

/* The serial loop over the row's tiles, which alone stands around them on the row's axis; -1. */
static int tiles_of(const kn_sg *sg, int axis)
{
    int found = -1;
    for (int i = 0; i < sg->tile; i++) {
        const kn_loop *l = &sg->g->loops[i];
        if (l->axis != axis) continue;
        if (found >= 0 || l->kind != KN_SERIAL) return -1;
        found = i;
    }
    return found;
}

/* Everything read along the row is read in vectors wherever these begin. */
static bool any_place(const kn_sg *sg, int axis)
{
    for (int i = 0; i < sg->nloads; i++) {
        const kn_expr *e = sg->loads[i];
        if (e->padded && (kn_axes_in(e) >> axis & 1)) return false;
        for (int d = 0; d < e->nargs; d++)
            if ((kn_axes_in(e->args[d]) >> axis & 1) && (d < e->nargs - 1 || e->args[d]->op != KN_OP_AXIS)) return false;
    }
    return true;
}

int kn_lw_by_lines(const kn_lw *w, const kn_sg *sg, int64_t *vector, int64_t *span)
{
    const kn_tensor *out = &w->p->program->tensors[sg->s->out];
    const kn_expr *row = out->rank ? sg->s->lhs[out->rank - 1] : NULL;
    if (w->hw->gpu || !row || row->op != KN_OP_AXIS || sg->s->red != KN_RED_NONE || sg->s->scatter) return -1;
    if (sg->g->epilogue >= 0 || sg->g->ncaches) return -1;
    int a = row->u.axis, loop = tiles_of(sg, a);
    int64_t extent = sg->s->axes[a].extent;
    *vector = KN_LINE_BYTES / kn_dtype_bytes(out->dtype);
    if (loop < 0 || out->rank < 2 || out->shape[out->rank - 1] != extent || extent % *vector == 0 || !kn_lw_past_caches(w, sg->s->out)) return -1;
    *span = 1;
    bool lanes = false;
    for (int i = sg->tile; i < sg->g->nloops; i++) {
        const kn_loop *l = &sg->g->loops[i];
        if (l->axis != a || (l->kind != KN_UNROLL && l->kind != KN_VECTOR)) return -1;
        lanes |= l->kind == KN_VECTOR && l->extent == *vector && l->stride == 1;
        *span *= l->extent;
    }
    int64_t all = extent + *vector, tiles = kn_ceil_div(all - 1, *span); /* what they compute for nothing is a third at most */
    bool whole = lanes && *span == sg->g->loops[loop].stride && extent >= *span && 3 * tiles * *span <= 4 * all;
    return whole && any_place(sg, a) ? loop : -1;
}

int64_t kn_lw_line_tiles(const kn_lw *w, const kn_sg *sg, int loop)
{
    int64_t vector, span;
    if (kn_lw_by_lines(w, sg, &vector, &span) != loop) return 0;
    return kn_ceil_div(sg->s->axes[sg->g->loops[loop].axis].extent + vector - 1, span);
}

kn_expr *kn_lw_line_begin(kn_lw *w, kn_sg *sg, int axis, kn_expr *base)
{
    int64_t vector, span;
    int loop = kn_lw_by_lines(w, sg, &vector, &span);
    if (loop < 0 || sg->g->loops[loop].axis != axis) return base;
    kn_expr *av[KILN_MAX_AXES], *idx[KILN_MAX_RANK];
    kn_env_axes(w, sg, av);
    av[axis] = kn_lw_int(w, 0);
    kn_env v = {.w = w, .s = sg->s, .lane_var = -1, .lanes = 1, .repl_tensor = -1};
    for (int x = 0; x < sg->s->naxes; x++) v.av[x] = av[x];
    int rank = w->p->program->tensors[sg->s->out].rank;
    for (int d = 0; d < rank; d++) idx[d] = kn_lw_simp(w, kn_env_scalar(&v, sg->s->lhs[d]));
    kn_expr *row = kn_lw_address(w, sg->s->out, idx), *past = kn_bin(w->a, KN_OP_MOD, row, kn_lw_int(w, vector));
    int64_t beyond = 2 * sg->s->axes[axis].extent - 1; /* the next row's end: two rows share the line there, which stays in the caches */
    kn_lw_prefetch(w, kn_lw_tensor(w, sg->s->out), kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, row, kn_lw_int(w, beyond))), true);
    sg->by_lines = axis + 1;
    sg->inside[axis] = kn_lw_int(w, sg->s->axes[axis].extent - vector);
    return kn_lw_node(w, KN_OP_SUB, KN_I64, 1, base, kn_lw_let(w, "past", past), NULL);
}
