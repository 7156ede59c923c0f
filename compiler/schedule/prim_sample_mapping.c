/* sample_mapping NAME S INTRIN [: MAPPING]: $NAME is a mapping of the loops of S onto instruction INTRIN; without a decision the one
 * that is predicted to be the fastest. */
#include "intrin/map.h"
#include "schedule/sched.h"

kiln_status kn_prim_sample_mapping(kn_step *s)
{
    kn_maps *list;
    const kn_maps *m;
    kn_mapping chosen;
    kiln_diag why = { 0 };
    int at = kn_step_decision(s);
    if (at != 3 || (at < s->nargs && at + 2 != s->nargs)) return kn_step_refuse(s, "a name, a statement, an instruction and one mapping are wanted");
    if (!kn_step_maps(s, s->args[1], s->args[2], &list)) return s->d->status;
    if (at < s->nargs) {
        if (kn_map_find(list, s->args[at + 1], &m, &chosen, &why)) return kn_step_refuse(s, "%s", why.message);
        s->decision = kn_map_word(s->a, m, &chosen);
    } else {
        kn_map_choice best;
        s->decision = kn_map_choices(NULL, list, s->hw, &best, 0, 1) ? kn_map_word(s->a, best.m, best.x) : NULL;
        if (!s->decision && !kn_arena_dry(s->a))
            return kn_step_refuse(s, "no loops of '%s' can feed '%s'%s%s", s->args[1], s->args[2], list->nrefused ? ": " : "",
                                  list->nrefused ? list->refused[list->nrefused - 1].why : "");
    }
    if (!s->decision) return kn_fail(s->d, KILN_MEMORY, "out of memory while sampling");
    return kn_step_define(s, s->args[0], -1, s->decision) ? KILN_OK : s->d->status;
}
