/* decompose_padding S I T: the padded load I of S reads a temporary T instead, the box it touches with the padding filled in by a statement
 * of its own, so that S itself asks no conditions. */
#include "schedule/sched.h"

kiln_status kn_prim_decompose_padding(kn_step *s)
{
    kn_stage *g = kn_step_fresh(s, s->args[0]);
    const kn_expr *load = g ? kn_step_load(s, g, s->args[1]) : NULL;
    if (!load) return s->d->status;
    if (!load->padded) return kn_step_refuse(s, "load %s is not padded", s->args[1]);
    kn_program *p = s->t->program;
    kn_stmt *st = kn_stage_stmt(s->t, g), t = { .red = KN_RED_NONE, .naxes = load->nargs, .nspatial = load->nargs };
    int64_t shape[KILN_MAX_RANK];
    kn_expr *from[KILN_MAX_RANK], *idx[KILN_MAX_RANK];
    for (int i = 0; i < load->nargs; i++) {
        int64_t lo, hi;
        const kn_expr *inner[1];
        if (kn_loads(load->args[i], inner, 1) || !kn_expr_range(load->args[i], kn_sched_range, st, &lo, &hi) || hi - lo >= KILN_MAX_EXTENT)
            return kn_step_refuse(s, "index %d of load %s has no known range", i, s->args[1]);
        shape[i] = hi - lo + 1;
        t.axes[i] = (kn_axis){ kn_format(s->a, "X%d", i), shape[i], false };
        t.lhs[i] = kn_axis_ref(s->a, i);
        from[i] = kn_bin(s->a, KN_OP_ADD, t.lhs[i], kn_const_i(s->a, KN_I64, lo));
        idx[i] = kn_bin(s->a, KN_OP_SUB, load->args[i], kn_const_i(s->a, KN_I64, lo));
    }
    t.out = kn_step_temp(s, s->args[2], load->dtype, load->nargs, shape);
    if (t.out < 0) return KILN_TRACE;
    t.body = kn_load_padded(s->a, p, load->u.tensor, from, load->pad_value);
    kn_expr *read = kn_load(s->a, p, t.out, idx);
    if (!read || !t.body || kn_arena_dry(s->a)) return kn_fail(s->d, KILN_MEMORY, "out of memory while taking padding apart");
    kn_stmt_replace(s->a, st, load, read);
    kn_stmt_simplify(s->a, st, p->tensors[st->out].rank);
    return kn_step_insert(s, g, &t, false) ? KILN_OK : s->d->status;
}
