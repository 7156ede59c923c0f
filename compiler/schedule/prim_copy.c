/* copy S I T: the tensor that load I of S reads is copied whole to the new temporary T, whose layout may then be changed; S reads T. */
#include "schedule/sched.h"

kiln_status kn_prim_copy(kn_step *s)
{
    kn_stage *g = kn_step_fresh(s, s->args[0]);
    const kn_expr *load = g ? kn_step_load(s, g, s->args[1]) : NULL;
    if (!load) return s->d->status;
    kn_stmt t;
    kn_expr *x = kn_step_each(s, load, s->args[2], load->dtype, &t);
    if (!x) return s->d->status;
    kn_stmt *st = kn_stage_stmt(s->t, g);
    kn_program *p = s->t->program;
    kn_expr *read = load->padded ? kn_load_padded(s->a, p, t.out, load->args, load->pad_value) : kn_load(s->a, p, t.out, load->args);
    if (!read) return kn_fail(s->d, KILN_MEMORY, "out of memory while copying what a load reads");
    t.body = x;
    kn_stmt_replace(s->a, st, load, read);
    return kn_step_insert(s, g, &t, false) ? KILN_OK : s->d->status;
}
