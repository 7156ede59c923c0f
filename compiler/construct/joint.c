/* Axes that are adjacent in every statement that has them become one in all of them, and the dimensions of the temporaries between them too, so that
 * statements that share their outer axes go on sharing them (ROLLER 3.4's axis fusion, for a program instead of an operator). */
#include "construct/cpu.h"

/* Axes pair[n] and pair[n] + 1 of statement n become one; -1: none. dim[t]: so do dimensions dim[t] and dim[t] + 1 of temporary t. */
typedef struct joint {
    kiln_arena *a;
    const kn_tree *t;
    const kn_hw *hw;
    int pair[KILN_MAX_STMTS], dim[KILN_MAX_TENSORS];
    int todo[KILN_MAX_STMTS], ntodo;
} joint;

bool kn_site_continues(const kn_site_access *c, int x, int y, int64_t extent)
{
    if (!(c->axes >> x & 1) && !(c->axes >> y & 1)) return true;
    if ((c->bent >> x & 1) || (c->bent >> y & 1)) return false;
    if (c->padded && (c->coef[y] != 1 || ((c->straying >> x | c->straying >> y) & 1))) return false;
    return c->linear && c->coef[x] == c->coef[y] * extent && c->coef[y] != 0;
}

static bool wants(joint *j, int stmt, int x)
{
    if (j->pair[stmt] == x) return true;
    if (j->pair[stmt] >= 0) return false;
    j->pair[stmt] = x;
    j->todo[j->ntodo++] = stmt;
    return true;
}

/* An access of statement n to `tensor` at dimensions d and d + 1: by a pair of axes, which then is the one. */
static bool by_pair(joint *j, int n, kn_expr *const *idx, int d)
{
    const kn_stmt *s = j->t->program->stmts[n];
    if (idx[d]->op != KN_OP_AXIS || idx[d + 1]->op != KN_OP_AXIS) return false;
    int x = idx[d]->u.axis;
    return idx[d + 1]->u.axis == x + 1 && s->axes[x].reduce == s->axes[x + 1].reduce && wants(j, n, x);
}

/* Dimensions d and d + 1 of a temporary are one in everything that has to do with it. */
static bool join_tensor(joint *j, int tensor, int d)
{
    const kn_program *p = j->t->program;
    if (j->dim[tensor] >= 0) return j->dim[tensor] == d;
    j->dim[tensor] = d;
    for (int n = 0; n < p->nstmts; n++) {
        const kn_expr *loads[KN_SITE_LOADS];
        int count = kn_loads(p->stmts[n]->body, loads, KN_SITE_LOADS);
        if (count > KN_SITE_LOADS) return false;
        if (p->stmts[n]->out == tensor && !by_pair(j, n, p->stmts[n]->lhs, d)) return false;
        for (int l = 0; l < count; l++)
            if (loads[l]->u.tensor == tensor && (loads[l]->padded || !by_pair(j, n, loads[l]->args, d))) return false;
    }
    return true;
}

/* An axis whose number is a value of the body. */
static bool is_value(const kn_expr *e, int axis)
{
    if (e->op == KN_OP_LOAD) return false;
    bool yes = e->op == KN_OP_AXIS && e->u.axis == axis;
    for (int i = 0; i < e->nargs && !yes; i++) yes = is_value(e->args[i], axis);
    return yes;
}

bool kn_stands_beside(const kn_stmt *s, int axis)
{
    const kn_expr *loads[KN_SITE_LOADS];
    int n = kn_loads(s->body, loads, KN_SITE_LOADS);
    for (int l = 0; l < n && l < KN_SITE_LOADS; l++)
        for (int d = 0; d < loads[l]->nargs; d++)
            if ((kn_axes_in(loads[l]->args[d]) >> axis & 1) && loads[l]->args[d]->op != KN_OP_AXIS) return true;
    return false;
}

/* Every access of statement n goes on from one axis of its pair into the other; temporaries at both of them follow. */
static bool join_stmt(joint *j, int n)
{
    const kn_program *p = j->t->program;
    const kn_stage *g = NULL;
    const kn_expr *loads[KN_SITE_LOADS];
    int x = j->pair[n];
    for (int k = 0; k < j->t->nstages; k++) if (j->t->stages[k]->stmt == n && j->t->stages[k]->epilogue < 0) g = j->t->stages[k];
    if (!g || kn_pinned(p, p->stmts[n]->out) || kn_site_scheduled(j->t, g)) return false;
    kn_site v;
    kn_site_of(j->a, j->t, g, j->hw, &v);
    int count = kn_loads(v.s->body, loads, KN_SITE_LOADS);
    int64_t extent = v.s->axes[x + 1].extent;
    if (count > KN_SITE_LOADS || is_value(v.s->body, x) || is_value(v.s->body, x + 1)) return false;
    if ((kn_stands_beside(v.s, x) || kn_stands_beside(v.s, x + 1)) && kn_cpu_is_boxed(&v)) return false;
    if (x + 1 == v.n && !j->hw->gpu && kn_cpu_is_alone(&v)) return false;
    if (!j->hw->gpu && (kn_decides(v.s->body, x) || kn_decides(v.s->body, x + 1))) return false;
    for (int l = 0; l <= count; l++) {
        const kn_site_access *c = l < count ? &v.load[l] : &v.store;
        int tensor = l < count ? loads[l]->u.tensor : v.s->out;
        kn_expr *const *idx = l < count ? loads[l]->args : v.s->lhs;
        if (!kn_site_continues(c, x, x + 1, extent)) return false;
        for (int d = 0; d + 1 < p->tensors[tensor].rank && p->tensors[tensor].role == KN_TEMP; d++)
            if (idx[d]->op == KN_OP_AXIS && idx[d]->u.axis == x && !join_tensor(j, tensor, d)) return false;
    }
    return true;
}

static const char *lines_of(const joint *j, int serial)
{
    const kn_program *p = j->t->program;
    kn_buf b;
    kn_buf_init(&b, j->a);
    for (int n = 0; n < p->nstmts; n++) {
        if (j->pair[n] < 0) continue;
        const kn_axis *x = &p->stmts[n]->axes[j->pair[n]];
        kn_putf(&b, "fuse %s J%d %s %s\n", p->tensors[p->stmts[n]->out].name, serial, x[0].name, x[1].name);
    }
    for (int i = 0; i < p->ntensors; i++) {
        if (j->dim[i] < 0) continue;
        kn_putf(&b, "transform_layout %s", p->tensors[i].name);
        for (int d = 0; d < p->tensors[i].rank; d++) {
            kn_putf(&b, d == j->dim[i] ? " %d:%d" : " %d", d, d + 1);
            d += d == j->dim[i];
        }
        kn_put(&b, "\n");
    }
    kiln_bytes text = kn_buf_take(&b);
    if (text.p && text.n) ((char *)(uintptr_t)text.p)[text.n - 1] = 0; /* a step comes without its last newline */
    return text.p;
}

const char *kn_joint_fuse(kiln_arena *a, const kn_tree *t, const kn_hw *hw, int stage, int x, int serial)
{
    joint *j = kn_new(a, joint);
    int temps = 0, stmt = t->stages[stage]->stmt;
    const kn_stmt *s = t->program->stmts[stmt];
    if (!j || x + 1 >= s->naxes || s->axes[x].reduce != s->axes[x + 1].reduce) return NULL;
    *j = (joint){.a = a, .t = t, .hw = hw};
    for (int i = 0; i < KILN_MAX_STMTS; i++) j->pair[i] = -1;
    for (int i = 0; i < KILN_MAX_TENSORS; i++) j->dim[i] = -1;
    wants(j, stmt, x);
    for (int i = 0; i < j->ntodo; i++) if (!join_stmt(j, j->todo[i])) return NULL;
    for (int i = 0; i < KILN_MAX_TENSORS; i++) temps += j->dim[i] >= 0;
    return temps ? lines_of(j, serial) : NULL;
}
