/* widen S I T [DTYPE]: what S's body casts load I to is made once, in a temporary T of the shape of the tensor that is read; S reads T. An operand of
 * a sum of products is read as often as the other one is long, and converted as often where it is not widened before. DTYPE, between the two: T is of
 * that, and S casts it (an instruction multiplies words that are wider than bytes and narrower than what they are summed in). */
#include "schedule/sched.h"
#include <string.h>

/* The cast right above the load, NULL: there is none. */
static const kn_expr *cast_of(const kn_expr *e, const kn_expr *load)
{
    if (e->op == KN_OP_CAST && e->args[0] == load) return e;
    for (int i = 0; i < e->nargs; i++) {
        const kn_expr *found = cast_of(e->args[i], load);
        if (found) return found;
    }
    return NULL;
}

/* A sum's product of halves that are not cast becomes one of what the sum accumulates in: it loses no more than before. Its first factor that is the
 * load, NULL: it is no such product. */
static const kn_expr *cast_factors(kn_step *s, kn_stmt *st, const kn_expr *load)
{
    enum kn_dtype acc = kn_dtype_acc(st->body->dtype);
    const kn_expr *x = st->body->op == KN_OP_MUL ? st->body->args[0] : NULL, *y = x ? st->body->args[1] : NULL;
    bool halves = x && kn_dtype_class(st->body->dtype) == 'f' && acc != st->body->dtype && x->op == KN_OP_LOAD && y->op == KN_OP_LOAD;
    if (!halves || st->red != KN_RED_SUM || (x != load && y != load)) return NULL;
    st->body = kn_bin(s->a, KN_OP_MUL, kn_cast(s->a, acc, (kn_expr *)(uintptr_t)x), kn_cast(s->a, acc, (kn_expr *)(uintptr_t)y));
    return st->body ? cast_of(st->body, load) : NULL;
}

/* What T is made of; KN_DTYPE_COUNT: refused. */
static enum kn_dtype wide_of(kn_step *s, const kn_expr *cast, const kn_expr *load)
{
    enum kn_dtype t = cast->dtype;
    if (s->nargs < 4) return t;
    if (!kn_dtype_find(s->args[3], strlen(s->args[3]), &t)) {
        kn_step_refuse(s, "'%s' is no dtype", s->args[3]);
    } else if (t == load->dtype || !kn_dtype_holds(t, load->dtype) || !kn_dtype_holds(cast->dtype, t)) {
        kn_step_refuse(s, "%s does not stand between %s and %s", s->args[3], kn_dtype_text(load->dtype), kn_dtype_text(cast->dtype));
    } else {
        return t;
    }
    return KN_DTYPE_COUNT;
}

kiln_status kn_prim_widen(kn_step *s)
{
    kn_stage *g = kn_step_fresh(s, s->args[0]);
    const kn_expr *load = g ? kn_step_load(s, g, s->args[1]) : NULL;
    if (!load) return s->d->status;
    kn_program *p = s->t->program;
    kn_stmt *st = kn_stage_stmt(s->t, g), t;
    const kn_expr *cast = cast_of(st->body, load);
    if (!cast) cast = cast_factors(s, st, load);
    if (!cast) return kn_step_refuse(s, "load %s is not cast where it is read", s->args[1]);
    enum kn_dtype wide = wide_of(s, cast, load);
    kn_expr *x = wide == KN_DTYPE_COUNT ? NULL : kn_step_each(s, load, s->args[2], wide, &t);
    if (!x) return s->d->status;
    t.body = kn_cast(s->a, wide, x);
    kn_expr *read = load->padded ? kn_load_padded(s->a, p, t.out, load->args, load->pad_value) : kn_load(s->a, p, t.out, load->args);
    if (read && wide != cast->dtype) read = kn_cast(s->a, cast->dtype, read);
    if (!read || !t.body) return kn_fail(s->d, KILN_MEMORY, "out of memory while widening a load");
    kn_stmt_replace(s->a, st, cast, read);
    return kn_step_insert(s, g, &t, false) ? KILN_OK : s->d->status;
}
