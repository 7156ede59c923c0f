/* tabulate S T: a part of map S that reads no tensor and follows only some of S's axes (how much of a window lies inside of its tensor) is computed
 * once for these, in the temporary T; S reads T. Parts of parts that follow fewer axes come first, so that tables stay short. `read`: a part that
 * reads tensors and computes a function of them (the logarithm of a sum, the root of a variance). */
#include "schedule/sched.h"
#include "te/expr.h"
#include <string.h>

enum { LEAST = 4 }; /* operations that are worth a load */

typedef struct mover { int to[KILN_MAX_AXES]; } mover;

static int operations(const kn_expr *e)
{
    int n = e->op != KN_OP_AXIS && e->op != KN_OP_CONST_F && e->op != KN_OP_CONST_I;
    for (int i = 0; i < e->nargs; i++) n += operations(e->args[i]);
    return n;
}

static bool calls(const kn_expr *e)
{
    bool yes = kn_is_function(e->op);
    for (int i = 0; i < e->nargs && !yes && e->op != KN_OP_LOAD; i++) yes = calls(e->args[i]);
    return yes;
}

/* The first part of e that calls a function and follows some of `all` axes alone, as large as it can be; NULL. What a condition chooses is not looked
 * into: it may be out of range where it is not chosen. */
static const kn_expr *read_part(const kn_expr *e, uint32_t all)
{
    const kn_expr *found = NULL;
    uint32_t axes = kn_axes_in(e) & all;
    if (e->op == KN_OP_LOAD || !calls(e)) return NULL;
    if (axes && axes != all) return kn_dtype_class(e->dtype) == 'f' ? e : NULL;
    for (int i = 0; i < e->nargs && !found && e->op != KN_OP_SELECT; i++) found = read_part(e->args[i], all);
    return found;
}

/* The first part of e that reads nothing, of axes that take more than one value; NULL. */
static const kn_expr *part_of(const kn_expr *e, uint32_t all)
{
    const kn_expr *loads[1], *found = NULL;
    if (e->op == KN_OP_LOAD) return NULL;
    uint32_t axes = kn_axes_in(e) & all;
    bool reads = kn_loads(e, loads, 1) > 0, apart = true;
    for (int i = 0; i < e->nargs; i++) apart = apart && (kn_axes_in(e->args[i]) & all) != axes;
    for (int i = 0; i < e->nargs && !found && (reads || apart || axes == all); i++) found = part_of(e->args[i], all);
    if (found || reads || !axes || axes == all || kn_dtype_class(e->dtype) != 'f' || operations(e) < LEAST) return found;
    return e;
}

static kn_expr *moved(void *user, kiln_arena *a, kn_expr *e)
{
    const mover *m = user;
    return e->op == KN_OP_AXIS ? kn_axis_ref(a, m->to[e->u.axis]) : e;
}

kiln_status kn_prim_tabulate(kn_step *s)
{
    kn_stage *g = kn_step_fresh(s, s->args[0]);
    if (!g) return s->d->status;
    kn_program *p = s->t->program;
    kn_stmt *st = kn_stage_stmt(s->t, g), t = { .red = KN_RED_NONE };
    if (st->red != KN_RED_NONE || st->scatter) return kn_step_refuse(s, "'%s' is no map", s->args[0]);
    uint32_t moving = 0;
    for (int i = 0; i < st->naxes; i++) moving |= st->axes[i].extent > 1 ? 1u << i : 0;
    bool read = s->nargs > 2;
    if (read && strcmp(s->args[2], "read")) return kn_step_refuse(s, "'%s' is not the word 'read'", s->args[2]);
    const kn_expr *part = (read ? read_part : part_of)(st->body, moving);
    if (!part)
        return kn_step_refuse(s, "no part of '%s' follows some of its axes alone, %s", s->args[0],
                              read ? "calling a function" : "without reading anything");
    uint32_t axes = kn_axes_in(part);
    int64_t shape[KILN_MAX_RANK];
    kn_expr *idx[KILN_MAX_RANK];
    mover m;
    for (int i = 0; i < st->naxes; i++) {
        if (!(axes >> i & 1)) continue;
        if (t.naxes == KILN_MAX_RANK) return kn_step_refuse(s, "that part of '%s' follows more than %d axes", s->args[0], KILN_MAX_RANK);
        shape[t.naxes] = st->axes[i].extent;
        idx[t.naxes] = kn_axis_ref(s->a, i);
        t.lhs[t.naxes] = kn_axis_ref(s->a, t.naxes);
        t.axes[t.naxes] = st->axes[i];
        m.to[i] = t.naxes++;
    }
    t.nspatial = t.naxes;
    t.out = kn_step_temp(s, s->args[1], part->dtype, t.naxes, shape);
    if (t.out < 0) return KILN_TRACE;
    t.body = kn_rewrite(s->a, (kn_expr *)(uintptr_t)part, moved, &m);
    kn_expr *entry = kn_load(s->a, p, t.out, idx);
    if (!entry || !t.body) return kn_fail(s->d, KILN_MEMORY, "out of memory while making a table");
    kn_stmt_replace(s->a, st, part, entry);
    return kn_step_insert(s, g, &t, false) ? KILN_OK : s->d->status;
}
