/* tensorize S L INTRIN [I=LOOP ...]: loop L and those inside it become one call of an instruction of the target. */
#include "schedule/sched.h"
#include <string.h>

static kiln_status no_such(kn_step *s)
{
    kn_buf b;
    kn_buf_init(&b, s->a);
    for (int i = 0; i < s->hw->nintrins; i++) kn_putf(&b, "%s%s", i ? ", " : "", s->hw->intrins[i].name);
    kiln_bytes names = kn_buf_take(&b);
    kn_step_refuse(s, "the target has no instruction '%s'", s->args[2]);
    kn_hint(s->d, "%s", names.p && names.n ? names.p : "its hwspec lists none");
    return KILN_TRACE;
}

/* "I=M.1": the instruction's loop I is loop M.1 of the statement. */
static kiln_status name_loop(kn_step *s, const kn_stage *g, kn_tensor_tile *x, const char *arg)
{
    const kn_stmt *is = x->intrin->s;
    size_t n = strcspn(arg, "=");
    int l = 0;
    while (l < x->intrin->nloops && (strlen(is->axes[l].name) != n || memcmp(is->axes[l].name, arg, n))) l++;
    if (!arg[n] || l == x->intrin->nloops) return kn_step_refuse(s, "'%s' does not name a loop of '%s' as in I=M.1", arg, x->intrin->name);
    int i = kn_step_loop(s, g, arg + n + 1);
    if (i < 0) return KILN_TRACE;
    const kn_loop *loop = &g->loops[i];
    if (x->loop[l] >= 0) return kn_step_refuse(s, "loop %s of '%s' is named twice", is->axes[l].name, x->intrin->name);
    for (int k = 0; k < x->intrin->nloops; k++)
        if (x->loop[k] == i) return kn_step_refuse(s, "loop '%s' is named twice", loop->name);
    if (i < x->at) return kn_step_refuse(s, "loop '%s' is not inside '%s'", loop->name, s->args[1]);
    if (loop->extent != is->axes[l].extent)
        return kn_step_refuse(s, "loop '%s' has %lld iterations, loop %s of '%s' has %lld", loop->name, (long long)loop->extent,
                              is->axes[l].name, x->intrin->name, (long long)is->axes[l].extent);
    if (kn_is_reduce(s->t, g, i) != is->axes[l].reduce)
        return kn_step_refuse(s, "of loop '%s' and loop %s of '%s' only one reduces", loop->name, is->axes[l].name, x->intrin->name);
    x->loop[l] = i;
    return KILN_OK;
}

kiln_status kn_prim_tensorize(kn_step *s)
{
    kn_stage *g = kn_step_stage(s, s->args[0]);
    int at = g ? kn_step_loop(s, g, s->args[1]) : -1;
    char why[300];
    if (at < 0) return KILN_TRACE;
    kn_tensor_tile x = { .intrin = kn_intrin_find(s->a, s->hw, s->args[2]), .at = at };
    if (!x.intrin) return no_such(s);
    if (g->tensor.intrin) return kn_step_refuse(s, "'%s' is computed by '%s' already", s->args[0], g->tensor.intrin->name);
    for (int l = 0; l < KN_INTRIN_LOOPS; l++) x.loop[l] = -1;
    for (int i = 3; i < s->nargs; i++) {
        kiln_status bad = name_loop(s, g, &x, s->args[i]);
        if (bad) return bad;
    }
    bool found = kn_tensor_nest(s->t, g, &x, why, sizeof why);
    if (found) found = s->nargs > 3 ? kn_tensor_sources(s->t, g, &x, NULL, why, sizeof why) : kn_tensor_find(s->t, g, &x, why, sizeof why);
    if (!found) return kn_step_refuse(s, "%s", why);
    g->tensor = x;
    if (at > 0 && g->loops[at].tile == g->loops[at - 1].tile)
        for (int i = at; i < g->nloops; i++) g->loops[i].tile++;
    return KILN_OK;
}
