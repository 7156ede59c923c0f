/* A trace as a candidate: applied, judged by the cost model, and summarised. */
#include "construct/construct.h"

static kiln_bytes summary(kiln_arena *a, const kn_tree *t, const kn_cost *c)
{
    kn_buf b;
    kn_buf_init(&b, a);
    kn_put(&b, "{\"tiles\":[");
    for (int k = 0; k < t->nstages; k++) {
        const kn_stage *g = t->stages[k];
        kn_putf(&b, "%s{\"stage\":", k ? "," : "");
        kn_put_json_string(&b, t->program->tensors[t->program->stmts[g->stmt]->out].name);
        kn_put(&b, ",\"loops\":[");
        for (int i = 0; i < g->nloops; i++)
            kn_putf(&b, "%s%lld", !i ? "[" : g->loops[i].tile != g->loops[i - 1].tile ? "],[" : ",", (long long)g->loops[i].extent);
        kn_put(&b, g->nloops ? "]]}" : "]}");
    }
    kn_putf(&b, "],\"threads\":%d,\"grid\":%lld,\"shared_bytes\":%lld,\"registers\":%d}", c->threads, (long long)c->grid, (long long)c->shared_bytes,
            c->registers);
    return kn_buf_take(&b);
}

kiln_status kn_candidate_of(kiln_arena *a, const kn_program *p, const kn_hw *hw, kiln_bytes trace, int rank, kiln_candidate *out,
                            kiln_diag *d)
{
    kn_tree *t;
    kn_cost c;
    kiln_status s = kn_trace_apply(a, p, hw, trace, &t, d);
    if (!s) s = kn_cost_of(t, hw, &c, d);
    if (s) return s;
    *out = (kiln_candidate){.rank = rank, .trace = trace, .predicted_us = c.us, .bottleneck = c.bottleneck, .summary = summary(a, t, &c)};
    return out->summary.p ? KILN_OK : kn_fail(d, KILN_MEMORY, "out of memory");
}
