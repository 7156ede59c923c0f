/* Keeps the best plans of one stage: every one is applied to the shaped program, as it would be replayed, and judged by the cost model. */
#include "construct/site.h"
#include <string.h>

bool kn_plans_begin(kn_plans *p, kiln_bytes lines)
{
    kiln_diag d;
    kn_tree *t = NULL;
    p->first = lines;
    if (lines.p && kn_trace_step(p->a, p->t, p->hw, lines, &t, &d)) p->first.p = NULL;
    p->begun = t;
    return !lines.p || p->first.p;
}

void kn_plans_try(kn_plans *p, kn_buf *lines)
{
    kiln_bytes text = kn_buf_take(lines);
    if (p->stopped || p->left <= 0 || !text.p) return;
    p->left--;
    for (int i = 0; i < p->n; i++)
        if (p->best[i].lines.n == text.n && !memcmp(p->best[i].lines.p, text.p, text.n)) return;
    if (kn_stopped(p->a)) {
        p->stopped = KILN_STOPPED;
        return;
    }
    kiln_diag d;
    kn_tree *t;
    double us;
    kn_mark before = kn_mark_of(p->a);
    bool begun = p->first.p && text.n >= p->first.n && !memcmp(text.p, p->first.p, p->first.n);
    kiln_bytes rest = begun ? (kiln_bytes){text.p + p->first.n, text.n - p->first.n} : text;
    bool fits = !kn_trace_step(p->a, begun ? p->begun : p->t, p->hw, rest, &t, &d) && !kn_trace_end(t, p->hw, &d) &&
                !kn_cost_since(t, p->hw, p->costs, &us, &d);
    kn_release(p->a, before);
    if (!fits) return;
    int at = p->n < KILN_MAX_CANDIDATES ? p->n++ : KILN_MAX_CANDIDATES - 1;
    if (at == KILN_MAX_CANDIDATES - 1 && p->best[at].lines.p && p->best[at].us <= us) return;
    for (; at > 0 && p->best[at - 1].us > us; at--) p->best[at] = p->best[at - 1];
    p->best[at] = (kn_plan){text, us};
}
