/* store S bulk: finished tiles of S leave through shared memory: put together there in swizzled rows of 128 bytes, and brought to memory by the copy
 * engine while the next tile is computed. */
#include "schedule/sched.h"
#include <string.h>

kiln_status kn_prim_store(kn_step *s)
{
    kn_stage *g = kn_step_stage(s, s->args[0]);
    if (!g) return KILN_TRACE;
    if (strcmp(s->args[1], "bulk")) return kn_step_refuse(s, "'%s' is not bulk", s->args[1]);
    if (!kn_stage_bulk(g)) return kn_step_refuse(s, "'%s' has no cache that is filled by bulk copies", s->args[0]);
    g->bulk_store = true;
    return KILN_OK;
}
