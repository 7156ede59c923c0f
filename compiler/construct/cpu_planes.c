/* Padded planes that one window reads are filled in under the window's own outer loops, a part of them at a time, so that they stay in L1 or L2
 * instead of going out to memory and coming back. Not a product's, unless its taps are the plane's own; what compares whole padded rows with
 * something else reads them as they lie (cpu_sums.c). */
#include "construct/cpu.h"

typedef struct plane {
    const kn_stage *p, *c;          /* the copy, and the window as its plan has cut it */
    const kn_expr *read;
    int64_t part[KILN_MAX_AXES];    /* of the copy's axis that one iteration takes, 0: all of it */
    int at;                         /* innermost loop of the window that the copy shares */
} plane;

/* The window's leading loops that walk an axis of the copy alone. */
static bool shared_loops(const kn_tree *t, plane *x)
{
    const kn_stmt *s = t->program->stmts[x->p->stmt];
    x->at = -1;
    for (int i = 0; i < x->c->nloops; i++) {
        const kn_loop *l = &x->c->loops[i];
        int axis = -1;
        for (int d = 0; d < x->read->nargs; d++)
            if (x->read->args[d]->op == KN_OP_AXIS && x->read->args[d]->u.axis == l->axis && s->lhs[d]->op == KN_OP_AXIS) axis = s->lhs[d]->u.axis;
        if (axis < 0) break;
        if (x->part[axis]) return false; /* cut more than once */
        x->part[axis] = l->stride;
        x->at = i;
    }
    return x->at >= 0;
}

/* Beside it L2 holds what else the window reads and writes, which is little beside a plane with taps of its own. */
static bool fits(const kn_tree *t, const kn_hw *hw, const plane *x, bool alone)
{
    const kn_stmt *s = t->program->stmts[x->p->stmt];
    const kn_hw_level *l2 = kn_hw_level_named(hw, "l2");
    double bytes = kn_dtype_bytes(s->body->dtype);
    for (int a = 0; a < s->naxes; a++) bytes *= (double)(x->part[a] ? x->part[a] : s->axes[a].extent);
    return l2 && bytes <= (double)l2->capacity_bytes / (alone ? 2 : 4);
}

static void put_copy(kn_buf *b, const kn_tree *t, const kn_hw *hw, const kn_site *v, const plane *x)
{
    const kn_stmt *s = v->s;
    int64_t n = s->axes[v->n].extent, lanes = kn_cpu_pow2(n, hw->vector_bytes / kn_dtype_bytes(s->body->dtype)), many = kn_ceil_div(n, lanes);
    kn_putf(b, "split %s %s %lld %lld\n", v->name, s->axes[v->n].name, (long long)(many <= KN_CPU_ROW ? many : 4), (long long)lanes);
    for (int a = 0; a < s->naxes; a++)
        if (x->part[a] > 1) kn_putf(b, "split %s %s %lld\n", v->name, s->axes[a].name, (long long)x->part[a]);
    kn_putf(b, "reorder %s", v->name);
    for (int i = 0; i <= x->at; i++)
        for (int d = 0; d < x->read->nargs; d++)
            if (x->read->args[d]->op == KN_OP_AXIS && x->read->args[d]->u.axis == x->c->loops[i].axis)
                kn_putf(b, " %s.0", s->axes[s->lhs[d]->u.axis].name);
    kn_put(b, " |");
    for (int a = 0; a < s->naxes; a++)
        if (x->part[a] != 1) kn_putf(b, " %s.%d", s->axes[a].name, x->part[a] > 1);
    kn_putf(b, " | %s.1 %s.2\nunroll %s %s.1\nvectorize %s %s.2\n", s->axes[v->n].name, s->axes[v->n].name, v->name, s->axes[v->n].name, v->name,
            s->axes[v->n].name);
    kn_putf(b, "compute_at %s %s %s\n", v->name, t->program->tensors[t->program->stmts[x->c->stmt]->out].name, x->c->loops[x->at].name);
}

bool kn_cpu_shares_planes(const kn_site *x, int a, int b)
{
    const kn_expr *loads[KN_SITE_LOADS];
    int n = kn_loads(x->s->body, loads, KN_SITE_LOADS), planes = 0;
    if (x->s->red == KN_RED_NONE || x->contraction || n > KN_SITE_LOADS) return false;
    for (int l = 0; l < n; l++) {
        const kn_stmt *copy = kn_padded_copy(x->t->program, loads[l]->u.tensor);
        bool alone[2] = {false, false};
        for (int d = 0; d + 1 < loads[l]->nargs && copy; d++)
            if (loads[l]->args[d]->op == KN_OP_AXIS)
                for (int k = 0; k < 2; k++) alone[k] |= loads[l]->args[d]->u.axis == (k ? b : a);
        planes += alone[0] && alone[1];
    }
    return planes > 1;
}

bool kn_cpu_plane(kiln_arena *a, const kn_tree *t, int window, int copy, kn_plans *p)
{
    kn_site v, w;
    const kn_expr *read = kn_site_only_read(t->program, t->stages[window]->stmt, t->program->stmts[t->stages[copy]->stmt]->out);
    if (!read) return false;
    kn_site_of(a, t, t->stages[copy], p->hw, &v);
    kn_site_of(a, t, t->stages[window], p->hw, &w);
    bool map = v.s->red == KN_RED_NONE && !v.s->scatter && v.n >= 0 && v.nloads == 1 && v.load[0].padded && t->stages[copy]->epilogue < 0;
    if (!map || kn_site_scheduled(t, t->stages[copy])) return false;
    bool taps = kn_cpu_is_taps(&w);
    if (w.s->red == KN_RED_NONE || ((w.s->body->op == KN_OP_MUL || w.contraction) && !taps)) return false;
    if (kn_cpu_taps_apart(&w)) return false; /* reads whole rows of memory */
    kn_plans q = *p;
    q.n = 0, q.left = p->n;
    for (int i = 0; i < p->n; i++) {
        kiln_diag d;
        kn_tree *cut;
        plane x = {.p = t->stages[copy], .read = read};
        if (kn_trace_step(a, t, p->hw, p->best[i].lines, &cut, &d)) continue;
        x.c = cut->stages[window];
        if (!shared_loops(t, &x) || x.part[v.n] || !fits(t, p->hw, &x, taps)) continue;
        kn_buf b;
        kn_buf_init(&b, a);
        kn_putn(&b, p->best[i].lines.p, p->best[i].lines.n);
        put_copy(&b, t, p->hw, &v, &x);
        kn_plans_try(&q, &b);
    }
    if (q.n) *p = q;
    return q.n > 0;
}
