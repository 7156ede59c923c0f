/* sample_mapping NAME S INTRIN [: MAPPING]: $NAME is a mapping of the loops of S onto instruction INTRIN; without a decision the one of the first
 * MOST that is predicted to be the fastest. */
#include "intrin/map.h"
#include "schedule/sched.h"

enum { MOST = 256 };

static const char *fastest(kn_step *s, const kn_maps *list)
{
    const char *best = NULL;
    double us = 0;
    for (const kn_maps *m = list; m; m = m->turned)
        for (int i = 0; i < m->nmaps && i < MOST; i++) {
            kn_map_plan p;
            kiln_diag why;
            if (kn_map_check(m, &m->maps[i], &why) || kn_map_plan_of(m, &m->maps[i], &p, &why)) continue;
            kn_map_predict(m, &m->maps[i], s->hw, &p);
            if (best && p.us >= us) continue;
            best = kn_map_word(s->a, m, &m->maps[i]), us = p.us;
        }
    return best;
}

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
        s->decision = fastest(s, list);
        if (!s->decision && !kn_arena_dry(s->a))
            return kn_step_refuse(s, "no loops of '%s' can feed '%s'%s%s", s->args[1], s->args[2], list->nrefused ? ": " : "",
                                  list->nrefused ? list->refused[list->nrefused - 1].why : "");
    }
    if (!s->decision) return kn_fail(s->d, KILN_MEMORY, "out of memory while sampling");
    return kn_step_define(s, s->args[0], -1, s->decision) ? KILN_OK : s->d->status;
}
