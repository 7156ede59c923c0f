/* Which stages may go under the row loop of another one: producers of temporaries that everything which reads them is there for. From how statements
 * read each other; operators have no names here. */
#include "construct/rows.h"
#include "te/expr.h"

const kn_stmt *kn_rows_stmt(const kn_rows *r, int k) { return r->t->program->stmts[r->t->stages[k]->stmt]; }

const char *kn_rows_tensor(const kn_rows *r, int k) { return r->t->program->tensors[kn_rows_stmt(r, k)->out].name; }

static bool in_rows(const kn_rows *r, int k)
{
    for (int i = 0; i < r->n; i++) if (r->stage[i] == k) return true;
    return false;
}

static int stage_of(const kn_rows *r, int stmt)
{
    for (int k = 0; k < r->t->nstages; k++)
        if (r->t->stages[k]->stmt == stmt || r->t->stages[k]->epilogue == stmt) return k;
    return -1;
}

/* Axes of stage k as axes of the last one, through one read of what k stores; what two reads disagree on is none. */
static void map_axes(kn_rows *r, int k, int reader, int stmt, const kn_expr *read, bool first)
{
    const kn_stage *g = r->t->stages[k];
    int now[KILN_MAX_AXES];
    for (int x = 0; x < KILN_MAX_AXES; x++) now[x] = -1;
    for (int d = 0; d < read->nargs; d++) {
        int x = kn_stage_out_axis(r->t, g, d);
        int y = read->args[d]->op == KN_OP_AXIS && !read->padded ? kn_stage_axis_of(r->t, r->t->stages[reader], stmt, read->args[d]->u.axis) : -1;
        if (x >= 0 && y >= 0) now[x] = r->of[reader][y];
    }
    for (int x = 0; x < KILN_MAX_AXES; x++)
        if (first || r->of[k][x] != now[x]) r->of[k][x] = first ? now[x] : -1;
}

/* A window slides: some index has an axis of the output and one of the reduction. Its tile is another one (cpu_sums.c). */
bool kn_rows_slides(const kn_stmt *s)
{
    const kn_expr *loads[KN_SITE_LOADS];
    uint32_t out = (1u << s->nspatial) - 1;
    int n = kn_loads(s->body, loads, KN_SITE_LOADS);
    for (int i = 0; i < n && i < KN_SITE_LOADS; i++)
        for (int d = 0; d < loads[i]->nargs; d++)
            if ((kn_axes_in(loads[i]->args[d]) & out) && (kn_axes_in(loads[i]->args[d]) & ~out)) return true;
    return n > KN_SITE_LOADS;
}

/* No element is one of two rows: what looks like a window is an axis that was made of several. */
static bool apart(const kn_site *x)
{
    bool yes = true;
    for (int l = 0; l < x->nloads && yes; l++) {
        const kn_site_access *a = &x->load[l];
        for (int i = 0; i < x->s->nspatial && a->linear; i++)
            for (int r = x->s->nspatial; r < x->s->naxes; r++)
                if (a->coef[i] && a->coef[r]) yes &= a->coef[i] >= a->coef[r] * x->s->axes[r].extent;
        yes &= a->linear;
    }
    return yes;
}

/* All that read k are here already, and k is one of those that can stand inside a loop. */
bool kn_rows_join(kn_rows *r, int k)
{
    const kn_stage *g = r->t->stages[k];
    const kn_program *p = r->t->program;
    int out = kn_stage_out(r->t, g);
    bool first = true, slides = kn_rows_slides(kn_rows_stmt(r, k)) && !r->slide;
    kn_site x;
    if (p->tensors[out].role != KN_TEMP || kn_pinned(p, out) || kn_site_scheduled(r->t, g) || (slides && !r->hw->gpu)) return false;
    for (int i = 0; i < p->nstmts; i++) {
        const kn_expr *loads[KN_SITE_LOADS];
        int n = kn_loads(p->stmts[i]->body, loads, KN_SITE_LOADS), reader = stage_of(r, i);
        if (n > KN_SITE_LOADS) return false;
        for (int l = 0; l < n; l++) {
            if (loads[l]->u.tensor != out) continue;
            if (reader < 0 || !in_rows(r, reader)) return false;
            map_axes(r, k, reader, i, loads[l], first);
            first = false;
        }
    }
    if (first) return false;
    kn_site_of(r->a, r->t, g, r->hw, &x);
    if (x.contraction || (slides && !apart(&x))) return false;
    uint32_t have = 0;
    for (int a = 0; a < x.s->nspatial; a++) if (r->of[k][a] >= 0) have |= 1u << r->of[k][a];
    if (!(r->shared & have)) return false;
    r->shared &= have;
    return true;
}
