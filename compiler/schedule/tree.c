/* The tile tree's queries and small edits that the primitives share. */
#include "schedule/sched.h"
#include <stdio.h>
#include <string.h>

kn_stmt *kn_stage_stmt(const kn_tree *t, const kn_stage *g) { return t->program->stmts[g->stmt]; }

const char *kn_stage_name(const kn_tree *t, const kn_stage *g)
{
    return g->name ? g->name : t->program->tensors[kn_stage_stmt(t, g)->out].name;
}

static const char *scatter_name(kiln_arena *a, const kn_program *p, int stmt)
{
    int n = 0, out = p->stmts[stmt]->out;
    for (int i = 0; i <= stmt; i++) n += p->stmts[i]->out == out && p->stmts[i]->scatter;
    return kn_format(a, "%s.%d", p->tensors[out].name, n);
}

int kn_stage_out(const kn_tree *t, const kn_stage *g) { return t->program->stmts[g->epilogue >= 0 ? g->epilogue : g->stmt]->out; }

int kn_stage_axis_of(const kn_tree *t, const kn_stage *g, int stmt, int axis)
{
    if (stmt == g->stmt) return axis;
    const kn_stmt *e = t->program->stmts[stmt], *s = kn_stage_stmt(t, g);
    const kn_expr *one = NULL;
    if (!kn_reads_of(e->body, s->out, &one)) return -1;
    for (int k = 0; k < one->nargs; k++)
        if (one->args[k]->op == KN_OP_AXIS && one->args[k]->u.axis == axis) return s->lhs[k]->op == KN_OP_AXIS ? s->lhs[k]->u.axis : -1;
    return -1;
}

const kn_stmt *kn_stage_wanted(kiln_arena *a, const kn_tree *t, const kn_stage *g)
{
    const kn_stmt *s = kn_stage_stmt(t, g), *e = g->epilogue >= 0 ? t->program->stmts[g->epilogue] : NULL;
    kn_stmt *part = NULL;
    for (int i = 0; e && i < e->naxes; i++) {
        int axis = kn_stage_axis_of(t, g, g->epilogue, i);
        if (axis < 0 || s->axes[axis].extent <= e->axes[i].extent) continue;
        if (!part && (part = kn_new(a, kn_stmt))) *part = *s;
        if (!part) return NULL;
        part->axes[axis].extent = e->axes[i].extent;
    }
    return part ? part : s;
}

int kn_stage_out_axis(const kn_tree *t, const kn_stage *g, int dim)
{
    int stmt = g->epilogue >= 0 ? g->epilogue : g->stmt;
    const kn_expr *at = t->program->stmts[stmt]->lhs[dim];
    return at->op == KN_OP_AXIS ? kn_stage_axis_of(t, g, stmt, at->u.axis) : -1;
}

int kn_stage_out_part(const kn_tree *t, const kn_stage *g, int dim, int64_t *by)
{
    const kn_expr *at = t->program->stmts[g->stmt]->lhs[dim];
    bool part = g->epilogue < 0 && at->op == KN_OP_FLOORDIV && at->args[0]->op == KN_OP_AXIS && at->args[1]->op == KN_OP_CONST_I;
    *by = part ? at->args[1]->u.i : 1;
    return part ? at->args[0]->u.axis : kn_stage_out_axis(t, g, dim);
}

int kn_stage_find(const kn_tree *t, const kn_stage *g)
{
    for (int i = 0; i < t->nstages; i++)
        if (t->stages[i] == g) return i;
    return -1;
}

bool kn_is_reduce(const kn_tree *t, const kn_stage *g, int loop) { return kn_stage_stmt(t, g)->axes[g->loops[loop].axis].reduce; }

void kn_stage_loops_init(kn_stage *g, const kn_stmt *s)
{
    g->nloops = 0;
    for (int i = 0; i < s->naxes; i++) {
        kn_loop *l = &g->loops[g->nloops++];
        memset(l, 0, sizeof *l);
        snprintf(l->name, sizeof l->name, "%.63s.0", s->axes[i].name);
        l->axis = i;
        l->extent = s->axes[i].extent;
        l->stride = 1;
        l->shared_with = -1;
    }
}

kn_tree *kn_tree_new(kiln_arena *a, const kn_program *p)
{
    kn_tree *t = kn_new(a, kn_tree);
    kn_program *q = kn_program_clone(a, p);
    if (!t || !q) return NULL;
    t->program = q;
    for (int i = 0; i < q->nstmts; i++) {
        kn_stage *g = kn_new(a, kn_stage);
        if (!g) return NULL;
        g->stmt = i;
        g->epilogue = g->at_stage = g->at_loop = g->init_at = -1;
        if (q->stmts[i]->scatter && !(g->name = scatter_name(a, q, i))) return NULL;
        kn_stage_loops_init(g, q->stmts[i]);
        t->stages[t->nstages++] = g;
    }
    return t;
}

kn_tree *kn_tree_clone(kiln_arena *a, const kn_tree *t)
{
    kn_tree *c = kn_copy(a, t, sizeof *t);
    kn_program *p = kn_program_clone(a, t->program);
    if (!c || !p) return NULL;
    c->program = p;
    for (int i = 0; i < t->nstages; i++) {
        kn_stage *g = c->stages[i] = kn_copy(a, t->stages[i], sizeof *t->stages[i]);
        if (!g || (g->ncaches && !(g->caches = kn_copy(a, g->caches, sizeof *g->caches * (size_t)g->ncaches)))) return NULL;
    }
    return c;
}

bool kn_stage_add_cache(kiln_arena *a, kn_stage *g, const kn_cache *c)
{
    kn_cache *all = kn_array(a, kn_cache, g->ncaches + 1);
    if (!all) return false;
    if (g->ncaches) memcpy(all, g->caches, sizeof *all * (size_t)g->ncaches);
    all[g->ncaches++] = *c;
    g->caches = all;
    return true;
}

int kn_stage_register_tile(const kn_stmt *s, const kn_stage *g)
{
    bool prefix = true;
    int tile = 0;
    if (g->tensor.intrin) return g->tensor.at;
    for (int i = 0; i < g->nloops; i++) {
        const kn_loop *l = &g->loops[i];
        bool task = l->kind == KN_PARALLEL || l->kind == KN_GRID || l->kind == KN_THREAD;
        prefix &= task || l->shared_with >= 0;
        if (prefix || (!s->axes[l->axis].reduce && !kn_is_register(l->kind) && l->kind != KN_THREAD)) tile = i + 1;
    }
    return tile;
}

bool kn_stage_last_tile(const kn_stmt *s, const kn_stage *g, kn_short_tile *out)
{
    int tile = kn_stage_register_tile(s, g), lanes = g->nloops - 1, u = -1, inside = 0;
    if (g->tensor.intrin || lanes < tile || g->loops[lanes].kind != KN_VECTOR || g->loops[lanes].stride != 1) return false;
    int axis = g->loops[lanes].axis;
    if (s->axes[axis].reduce) return false;
    for (int i = tile; i < lanes; i++)
        if (g->loops[i].axis == axis) u = i, inside++;
    if (inside != 1 || g->loops[u].kind != KN_UNROLL || g->loops[u].stride != g->loops[lanes].extent) return false;
    int64_t span = g->loops[u].extent * g->loops[u].stride, rest = s->axes[axis].extent % span;
    for (int i = 0; i < tile; i++)
        if (g->loops[i].axis == axis && g->loops[i].stride % span) return false;
    *out = (kn_short_tile){u, kn_ceil_div(rest, g->loops[u].stride), s->axes[axis].extent - rest};
    return rest;
}

bool kn_stage_short_tile(const kn_stmt *s, const kn_stage *g, kn_short_tile *out)
{
    enum { FEW = 16 }; /* terms of a sum so short that a second copy of its tile costs more than what it saves */
    int64_t terms = 1;
    for (int i = s->nspatial; i < s->naxes; i++)
        if (!kn_mul_fits(terms, s->axes[i].extent, &terms)) terms = FEW;
    return terms >= FEW && s->red != KN_RED_NONE && kn_stage_last_tile(s, g, out) && out->vectors < g->loops[out->loop].extent;
}

bool kn_stage_untouched(const kn_stage *g)
{
    for (int i = 0; i < g->nloops; i++) {
        const kn_loop *l = &g->loops[i];
        if (l->axis != i || l->kind != KN_SERIAL || l->rfactor || l->tile || l->stride != 1) return false;
    }
    return !g->ncaches && g->at_stage < 0 && !g->tensor.intrin;
}

/* Stage numbers held by compute_at follow the move. */
static void renumber_stages(kn_tree *t, int gone)
{
    for (int i = 0; i < t->nstages; i++)
        if (t->stages[i]->at_stage > gone) t->stages[i]->at_stage--;
}

void kn_tree_drop_stage(kn_tree *t, int stage)
{
    for (int i = stage; i + 1 < t->nstages; i++) t->stages[i] = t->stages[i + 1];
    t->nstages--;
    renumber_stages(t, stage);
}

void kn_program_drop_stmt(kn_tree *t, int stmt)
{
    kn_program *p = t->program;
    for (int i = stmt; i + 1 < p->nstmts; i++) p->stmts[i] = p->stmts[i + 1];
    p->nstmts--;
    for (int i = 0; i < t->nstages; i++) {
        if (t->stages[i]->stmt > stmt) t->stages[i]->stmt--;
        if (t->stages[i]->epilogue > stmt) t->stages[i]->epilogue--;
    }
}

const kn_expr *kn_stage_load(const kn_tree *t, const kn_stage *g, int i)
{
    const kn_expr *loads[KILN_MAX_TENSORS];
    int n = kn_loads(kn_stage_stmt(t, g)->body, loads, KILN_MAX_TENSORS);
    return i >= 0 && i < n && i < KILN_MAX_TENSORS ? loads[i] : NULL;
}

int kn_reads_of(const kn_expr *e, int tensor, const kn_expr **one)
{
    int n = 0;
    if (e->op == KN_OP_LOAD && e->u.tensor == tensor) {
        n = 1;
        *one = e;
    }
    for (int i = 0; i < e->nargs; i++) n += kn_reads_of(e->args[i], tensor, one);
    return n;
}

void kn_sched_range(void *user, const kn_expr *leaf, int64_t *lo, int64_t *hi)
{
    const kn_stmt *s = user;
    *lo = 0;
    *hi = leaf->op == KN_OP_AXIS && leaf->u.axis < s->naxes ? s->axes[leaf->u.axis].extent - 1 : 0;
}

static kn_expr *simplify_index(void *user, kiln_arena *a, kn_expr *e)
{
    if (e->op != KN_OP_LOAD) return e;
    kn_expr *idx[KILN_MAX_RANK], *copy = kn_new(a, kn_expr);
    for (int i = 0; i < e->nargs; i++) idx[i] = kn_simplify(a, e->args[i], kn_sched_range, user);
    if (!copy) return NULL;
    *copy = *e;
    copy->args = kn_array(a, kn_expr *, e->nargs ? e->nargs : 1);
    if (copy->args) memcpy(copy->args, idx, sizeof *idx * (size_t)e->nargs);
    return copy;
}

void kn_stmt_simplify(kiln_arena *a, kn_stmt *s, int rank)
{
    for (int i = 0; i < rank; i++) s->lhs[i] = kn_simplify(a, s->lhs[i], kn_sched_range, s);
    s->body = kn_rewrite(a, s->body, simplify_index, s);
}

const char *kn_loop_kind_text(enum kn_loop_kind k)
{
    static const char *const text[] = { "serial", "parallel", "grid", "thread", "vthread", "unroll", "vector" };
    return text[k];
}

const char *kn_scope_text(enum kn_scope s)
{
    static const char *const text[] = { "global", "scratch", "shared", "register", "fragments", "operand", "packed" };
    return text[s];
}
