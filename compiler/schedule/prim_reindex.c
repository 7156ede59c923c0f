/* reindex S I T: load I of S goes through a temporary T whose indices are exactly the axes that the load uses (TensorIR's ReIndex, which
 * makes an operand fit an instruction whatever its address was). reindex S out T: S writes T at its spatial axes, a copy behind it writes what S
 * wrote; S is named T from then on. */
#include "schedule/sched.h"
#include <string.h>

typedef struct mover { int to[KILN_MAX_AXES]; } mover;

static kn_expr *moved(void *user, kiln_arena *a, kn_expr *e)
{
    const mover *m = user;
    return e->op == KN_OP_AXIS ? kn_axis_ref(a, m->to[e->u.axis]) : e;
}

static kiln_status reindex_output(kn_step *s, kn_stage *g)
{
    kn_program *p = s->t->program;
    kn_stmt *st = kn_stage_stmt(s->t, g), copy = { .red = KN_RED_NONE, .out = st->out, .naxes = st->nspatial, .nspatial = st->nspatial };
    int64_t shape[KILN_MAX_RANK];
    kn_expr *idx[KILN_MAX_RANK];
    if (st->scatter || g->epilogue >= 0) return kn_step_refuse(s, "'%s' scatters or has an epilogue", s->args[0]);
    if (st->nspatial > KILN_MAX_RANK) return kn_step_refuse(s, "'%s' has more than %d spatial axes", s->args[0], KILN_MAX_RANK);
    for (int i = 0; i < st->nspatial; i++) {
        shape[i] = st->axes[i].extent;
        copy.axes[i] = st->axes[i];
        idx[i] = kn_axis_ref(s->a, i);
    }
    memcpy(copy.lhs, st->lhs, sizeof copy.lhs);
    int id = kn_step_temp(s, s->args[2], p->tensors[st->out].dtype, st->nspatial, shape);
    if (id < 0) return KILN_TRACE;
    copy.body = kn_load(s->a, p, id, idx);
    if (!copy.body || kn_arena_dry(s->a)) return kn_fail(s->d, KILN_MEMORY, "out of memory while indexing a result anew");
    st->out = id;
    memcpy(st->lhs, idx, sizeof(kn_expr *) * (size_t)st->nspatial);
    return kn_step_insert(s, g, &copy, true) ? KILN_OK : s->d->status;
}

kiln_status kn_prim_reindex(kn_step *s)
{
    kn_stage *g = kn_step_fresh(s, s->args[0]);
    if (g && !strcmp(s->args[1], "out")) return reindex_output(s, g);
    const kn_expr *load = g ? kn_step_load(s, g, s->args[1]) : NULL;
    if (!load) return s->d->status;
    kn_program *p = s->t->program;
    kn_stmt *st = kn_stage_stmt(s->t, g), t = { .red = KN_RED_NONE };
    uint32_t axes = kn_axes_in(load);
    if (!load->padded && !kn_inside(p, st, load))
        return kn_step_refuse(s, "load %s is in range only under the condition it is read under", s->args[1]);
    int64_t shape[KILN_MAX_RANK];
    kn_expr *idx[KILN_MAX_RANK];
    mover m;
    for (int i = 0; i < st->naxes; i++) {
        if (!(axes >> i & 1)) continue;
        if (t.naxes == KILN_MAX_RANK) return kn_step_refuse(s, "load %s uses more than %d axes", s->args[1], KILN_MAX_RANK);
        shape[t.naxes] = st->axes[i].extent;
        idx[t.naxes] = kn_axis_ref(s->a, i);
        t.lhs[t.naxes] = kn_axis_ref(s->a, t.naxes);
        t.axes[t.naxes] = st->axes[i];
        t.axes[t.naxes].reduce = false;
        m.to[i] = t.naxes++;
    }
    t.nspatial = t.naxes;
    t.out = kn_step_temp(s, s->args[2], load->dtype, t.naxes, shape);
    if (t.out < 0) return KILN_TRACE;
    t.body = kn_rewrite(s->a, (kn_expr *)(uintptr_t)load, moved, &m);
    kn_expr *read = kn_load(s->a, p, t.out, idx);
    if (!read || !t.body) return kn_fail(s->d, KILN_MEMORY, "out of memory while indexing a load anew");
    kn_stmt_replace(s->a, st, load, read);
    return kn_step_insert(s, g, &t, false) ? KILN_OK : s->d->status;
}
