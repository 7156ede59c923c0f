/* Sampling: primitives that record a decision under a name, which later steps use as $NAME or $NAME.k, so that a search can change it. */
#include "schedule/sched.h"
#include <string.h>

bool kn_step_define(kn_step *s, const char *name, int part, const char *value)
{
    if (s->t->nsampled == KN_SAMPLED) return kn_step_refuse(s, "more than %d sampled values", KN_SAMPLED), false;
    const char *full = part < 0 ? kn_strdup(s->a, name) : kn_format(s->a, "%s.%d", name, part);
    for (int i = 0; i < s->t->nsampled; i++)
        if (full && !strcmp(s->t->sampled[i].name, full)) return kn_step_refuse(s, "'%s' is sampled twice", name), false;
    s->t->sampled[s->t->nsampled].name = full;
    s->t->sampled[s->t->nsampled++].value = kn_strdup(s->a, value);
    if (kn_arena_dry(s->a)) return kn_fail(s->d, KILN_MEMORY, "out of memory while sampling"), false;
    return true;
}

bool kn_step_substitute(kn_step *s)
{
    for (int i = 0; i < s->nargs; i++) {
        if (s->args[i][0] != '$') continue;
        const char *value = NULL;
        for (int k = 0; k < s->t->nsampled; k++)
            if (!strcmp(s->t->sampled[k].name, s->args[i] + 1)) value = s->t->sampled[k].value;
        if (!value) return kn_step_refuse(s, "nothing is sampled under '%s'", s->args[i] + 1), false;
        s->args[i] = value;
    }
    return true;
}

int kn_step_decision(const kn_step *s)
{
    for (int i = 0; i < s->nargs; i++)
        if (!strcmp(s->args[i], ":")) return i;
    return s->nargs;
}
