/* Rows that some factor does not follow: normalisations of groups, whose scale is of the channel and not of the group. Their axes are no
 * neighbours in every access, so that the shaping leaves them apart and every sum becomes a kernel of its own. Here rows are made one axis and what
 * lies along a row another, in all statements; the factor is read at a quotient. What one kernel of it (gpu_rows.c) is worth says the cost model. */
#include "construct/site.h"
#include "te/expr.h"
#include <string.h>

typedef struct groups {
    kiln_arena *a;
    const kn_tree *t;
    int rows, inner; /* axes of a row's number, axes along it */
} groups;

static const kn_stmt *stmt_of(const groups *g, int k) { return g->t->program->stmts[g->t->stages[k]->stmt]; }

/* Every temporary is read at the row's axes, in their order. */
static bool reads_by_row(groups *g, const kn_stmt *s)
{
    const kn_expr *loads[KN_SITE_LOADS];
    int n = kn_loads(s->body, loads, KN_SITE_LOADS);
    for (int l = 0; l < n && n <= KN_SITE_LOADS; l++) {
        if (g->t->program->tensors[loads[l]->u.tensor].role != KN_TEMP) continue;
        if (g->rows && g->rows != loads[l]->nargs) return false;
        g->rows = loads[l]->nargs;
        for (int d = 0; d < loads[l]->nargs; d++)
            if (loads[l]->padded || loads[l]->args[d]->op != KN_OP_AXIS || loads[l]->args[d]->u.axis != d) return false;
    }
    return n <= KN_SITE_LOADS;
}

/* A sum along rows with a result for each, whose extents are those of the last statement's axes. */
static bool sums_rows(groups *g, const kn_stmt *s, const kn_stmt *last)
{
    const kn_tensor *out = &g->t->program->tensors[s->out];
    if (out->role != KN_TEMP || s->red == KN_RED_NONE || s->scatter || s->nspatial != g->rows || s->naxes != g->rows + g->inner) return false;
    for (int i = 0; i < s->naxes; i++) if (s->axes[i].extent != last->axes[i].extent) return false;
    for (int d = 0; d < s->nspatial; d++) if (s->lhs[d]->op != KN_OP_AXIS || s->lhs[d]->u.axis != d) return false;
    return reads_by_row(g, s);
}

static bool gather(groups *g)
{
    int n = g->t->nstages;
    const kn_stmt *last = n > 1 ? stmt_of(g, n - 1) : NULL;
    if (!last || last->red != KN_RED_NONE || last->scatter || !reads_by_row(g, last)) return false;
    g->inner = last->nspatial - g->rows;
    if (g->rows < 1 || g->inner < 1 || (g->rows == 1 && g->inner == 1)) return false;
    for (int k = 0; k < n; k++)
        if (g->t->stages[k]->epilogue >= 0 || (k < n - 1 && !sums_rows(g, stmt_of(g, k), last))) return false;
    return true;
}

static void put_fuse(kn_buf *b, const kn_stmt *s, const char *tensor, const char *name, int from, int to)
{
    if (to - from < 2) return;
    kn_putf(b, "fuse %s %s", tensor, name);
    for (int i = from; i < to; i++) kn_putf(b, " %s", s->axes[i].name);
    kn_put(b, "\n");
}

/* What the shaping did but for its own fusing; maps of sums are made where they are read. */
static void put_shaping(kn_buf *b, kiln_bytes head)
{
    for (size_t at = 0, n; at < head.n; at += n) {
        const char *line = head.p + at, *end = memchr(line, '\n', head.n - at);
        n = end ? (size_t)(end - line) + 1 : head.n - at;
        if (strncmp(line, "fuse ", 5) && strncmp(line, "transform_layout ", 17) && strncmp(line, "epilogue ", 9)) kn_putn(b, line, n);
    }
}

/* The tree of these steps, and of them with all maps but the last one inlined. */
static kn_tree *inlined(kiln_arena *a, const kn_program *p, const kn_hw *hw, kn_buf *b)
{
    kn_tree *t;
    kiln_diag none = {0};
    for (int pass = 0; pass < 2; pass++) {
        if (!b->n && pass) return t;
        if (kn_trace_apply(a, p, hw, (kiln_bytes){b->p ? b->p : "", b->n}, &t, &none)) return NULL;
        for (int k = 0; k + 1 < t->nstages && !pass; k++) {
            const kn_stmt *s = t->program->stmts[t->stages[k]->stmt];
            if (s->red == KN_RED_NONE) kn_putf(b, "inline %s\n", t->program->tensors[s->out].name);
        }
    }
    return t;
}

bool kn_group_steps(kiln_arena *a, const kn_program *p, const kn_hw *hw, kiln_bytes head, kiln_bytes *start)
{
    groups g = {.a = a};
    kn_buf b;
    kn_buf_init(&b, a);
    put_shaping(&b, head);
    kn_tree *t = inlined(a, p, hw, &b);
    g.t = t;
    if (!t || !gather(&g)) return false;
    for (int k = 0; k < t->nstages; k++) {
        const kn_stmt *s = stmt_of(&g, k);
        put_fuse(&b, s, t->program->tensors[s->out].name, "ROW", 0, g.rows);
        put_fuse(&b, s, t->program->tensors[s->out].name, "ALONG", g.rows, g.rows + g.inner);
    }
    for (int k = 0; k + 1 < t->nstages && g.rows > 1; k++)
        kn_putf(&b, "transform_layout %s 0:%d\n", t->program->tensors[stmt_of(&g, k)->out].name, g.rows - 1);
    *start = kn_buf_take(&b);
    return start->p != NULL;
}
