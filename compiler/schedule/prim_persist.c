/* persist S N: as many blocks as run at once walk over the tiles of S, N rows of tiles at a time and column by column in them, so that tiles that are
 * computed together share rows and columns in L2 (grouped order), and the first copies for the next tile are under way while this one is stored. */
#include "schedule/sched.h"

kiln_status kn_prim_persist(kn_step *s)
{
    kn_stage *g = kn_step_stage(s, s->args[0]);
    int64_t rows;
    if (!g || !kn_step_int(s, s->args[1], 1, 1024, &rows)) return KILN_TRACE;
    if (!kn_stage_bulk(g)) return kn_step_refuse(s, "'%s' has no cache that is filled by bulk copies", s->args[0]);
    if (g->persist) return kn_step_refuse(s, "'%s' is persistent already", s->args[0]);
    g->persist = (int)rows;
    return KILN_OK;
}
