/* fuse S NAME A B [C ...]: several axes, outer to inner, become one; indices are rewritten with // and % and simplified. */
#include "schedule/sched.h"
#include <string.h>

typedef struct fuser {
    kn_stmt *s;
    int map[KILN_MAX_AXES];              /* old axis -> new axis */
    int64_t below[KILN_MAX_AXES];        /* product of the extents of the fused axes inside this one; 0: not fused */
    int64_t extent[KILN_MAX_AXES];
    bool outermost[KILN_MAX_AXES];
} fuser;

static kn_expr *axis_in_fused(void *user, kiln_arena *a, kn_expr *e)
{
    const fuser *f = user;
    if (e->op != KN_OP_AXIS) return e;
    int x = e->u.axis;
    kn_expr *v = kn_axis_ref(a, f->map[x]);
    if (!f->below[x]) return v;
    if (f->below[x] > 1) v = kn_bin(a, KN_OP_FLOORDIV, v, kn_const_i(a, KN_I64, f->below[x]));
    if (!f->outermost[x]) v = kn_bin(a, KN_OP_MOD, v, kn_const_i(a, KN_I64, f->extent[x]));
    return v;
}

static kiln_status plan(kn_step *s, const kn_stage *g, fuser *f, int *first, int64_t *total)
{
    const kn_stmt *st = f->s;
    int axis[KILN_MAX_AXES] = { 0 }, n = s->nargs - 2;
    if (n > KILN_MAX_AXES) return kn_step_refuse(s, "more axes than a statement has");
    for (int i = 0; i < st->naxes; i++) f->extent[i] = st->axes[i].extent;
    *total = 1;
    for (int i = n - 1; i >= 0; i--) {
        int x = axis[i] = kn_step_axis(s, g, s->args[2 + i]);
        if (x < 0) return KILN_TRACE;
        if (f->below[x]) return kn_step_refuse(s, "axis '%s' is named twice", s->args[2 + i]);
        if (st->axes[x].reduce != st->axes[axis[n - 1]].reduce) return kn_step_refuse(s, "spatial and reduce axes cannot be fused");
        f->below[x] = *total;
        if (!kn_mul_fits(*total, st->axes[x].extent, total) || *total > KILN_MAX_EXTENT)
            return kn_step_refuse(s, "the fused axis would be longer than %d", KILN_MAX_EXTENT);
        f->outermost[x] = i == 0;
    }
    *first = axis[0];
    for (int i = 1; i < n; i++)
        if (axis[i] < *first) *first = axis[i];
    for (int i = 0; i < st->naxes; i++)
        if (!f->below[i] && !strcmp(st->axes[i].name, s->args[1])) return kn_step_refuse(s, "there is an axis '%s' already", s->args[1]);
    return KILN_OK;
}

kiln_status kn_prim_fuse(kn_step *s)
{
    kn_stage *g = kn_step_fresh(s, s->args[0]);
    if (!g) return KILN_TRACE;
    if (strlen(s->args[1]) >= KILN_MAX_NAME_BYTES) return kn_step_refuse(s, "the name '%s' is too long", s->args[1]);
    kn_stmt *st = kn_stage_stmt(s->t, g);
    fuser f = { .s = st };
    int first = 0;
    int64_t total = 1;
    kiln_status bad = plan(s, g, &f, &first, &total);
    if (bad) return bad;
    kn_axis axes[KILN_MAX_AXES];
    int n = 0, nspatial = 0, fused = -1;
    for (int i = 0; i < st->naxes; i++) {
        if (f.below[i] && i != first) continue;
        if (i == first) fused = n;
        axes[n] = st->axes[i];
        nspatial += !axes[n].reduce;
        f.map[i] = n++;
    }
    for (int i = 0; i < st->naxes; i++)
        if (f.below[i]) f.map[i] = fused;
    axes[fused].name = kn_strdup(s->a, s->args[1]);
    axes[fused].extent = total;
    kn_expr *body = kn_rewrite(s->a, st->body, axis_in_fused, &f);
    int rank = s->t->program->tensors[st->out].rank;
    for (int i = 0; i < rank; i++) st->lhs[i] = kn_rewrite(s->a, st->lhs[i], axis_in_fused, &f);
    memcpy(st->axes, axes, sizeof axes);
    st->naxes = n;
    st->nspatial = nspatial;
    if (kn_arena_dry(s->a)) return kn_fail(s->d, KILN_MEMORY, "out of memory while fusing axes");
    st->body = body;
    kn_stmt_simplify(s->a, st, rank);
    kn_stage_loops_init(g, st);
    return KILN_OK;
}
