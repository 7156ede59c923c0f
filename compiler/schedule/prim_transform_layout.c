/* transform_layout T TERM ...: the temporary T gets another layout; TERM names a dimension of the old one: 1, or 1/16 and 1%16 for its
 * quotient and remainder, or 1:3 for dimensions 1 to 3 as one. Writers and readers of T follow (TensorIR's transform_layout of a buffer). */
#include "schedule/sched.h"
#include <stdlib.h>
#include <string.h>

typedef struct term { int dim; char op; int64_t by; int last; } term; /* last: of a run of dimensions */
typedef struct layout {
    int tensor, n;
    term t[KILN_MAX_RANK];
    int64_t shape[KILN_MAX_RANK], old[KILN_MAX_RANK];
    const kn_program *p;
    bool padded;
} layout;

static bool read_term(kn_step *s, const char *text, int rank, term *t)
{
    char *end;
    long dim = strtol(text, &end, 10);
    *t = (term){ .dim = (int)dim, .op = *end, .by = 1, .last = (int)dim };
    if (end == text || text[0] < '0' || text[0] > '9' || dim >= rank || (*end && *end != '/' && *end != '%' && *end != ':'))
        return kn_step_refuse(s, "'%s' is not a dimension below %d, alone or with /N, %%N or :LAST", text, rank), false;
    int64_t last;
    if (*end == ':' && !kn_step_int(s, end + 1, dim + 1, rank - 1, &last)) return false;
    if (*end == ':') t->last = (int)last;
    if (*end == ':') return true;
    return !*end || kn_step_int(s, end + 1, 2, KILN_MAX_EXTENT, &t->by);
}

/* Each dimension stands there once, or as quotient and remainder of one number. */
static kiln_status check_terms(kn_step *s, const kn_tensor *x, layout *l)
{
    for (int d = 0; d < x->rank; d++) {
        int64_t quotient = 0, remainder = 0, whole = 0;
        for (int i = 0; i < l->n; i++) {
            if (d < l->t[i].dim || d > l->t[i].last) continue;
            int64_t *to = l->t[i].op == '/' ? &quotient : l->t[i].op == '%' ? &remainder : &whole;
            if (*to) return kn_step_refuse(s, "dimension %d stands there twice", d);
            *to = l->t[i].by;
        }
        if (!(whole && !quotient && !remainder) && !(quotient && quotient == remainder && !whole))
            return kn_step_refuse(s, "dimension %d must stand there once, or as %d/N and %d%%N", d, d, d);
    }
    for (int i = 0; i < l->n; i++) {
        int64_t extent = x->shape[l->t[i].dim], by = l->t[i].by;
        for (int d = l->t[i].dim + 1; d <= l->t[i].last; d++)
            if (!kn_mul_fits(extent, x->shape[d], &extent) || extent > KILN_MAX_EXTENT)
                return kn_step_refuse(s, "'%s' would have too long a dimension", x->name);
        if (extent % by) return kn_step_refuse(s, "%lld does not divide the %lld of dimension %d", (long long)by, (long long)extent, l->t[i].dim);
        l->shape[i] = l->t[i].op == '/' ? extent / by : l->t[i].op == '%' ? by : extent;
    }
    return KILN_OK;
}

static void new_indices(kiln_arena *a, const layout *l, const int64_t *shape, kn_expr *const *old, kn_expr **idx)
{
    for (int i = 0; i < l->n; i++) {
        idx[i] = old[l->t[i].dim];
        for (int d = l->t[i].dim + 1; d <= l->t[i].last; d++)
            idx[i] = kn_bin(a, KN_OP_ADD, kn_bin(a, KN_OP_MUL, idx[i], kn_const_i(a, KN_I64, shape[d])), old[d]);
        if (!l->t[i].op || l->t[i].op == ':') continue;
        idx[i] = kn_bin(a, l->t[i].op == '/' ? KN_OP_FLOORDIV : KN_OP_MOD, idx[i], kn_const_i(a, KN_I64, l->t[i].by));
    }
}

static kn_expr *follow(void *user, kiln_arena *a, kn_expr *e)
{
    layout *l = user;
    kn_expr *idx[KILN_MAX_RANK];
    if (e->op != KN_OP_LOAD || e->u.tensor != l->tensor) return e;
    l->padded = l->padded || e->padded;
    new_indices(a, l, l->old, e->args, idx);
    return kn_load(a, l->p, l->tensor, idx);
}

static kiln_status check_users(kn_step *s, int tensor)
{
    const kn_expr *one;
    for (int i = 0; i < s->t->nstages; i++) {
        const kn_stage *g = s->t->stages[i];
        const kn_stmt *st = kn_stage_stmt(s->t, g);
        const kn_stmt *e = g->epilogue >= 0 ? s->t->program->stmts[g->epilogue] : NULL;
        bool reads = kn_reads_of(st->body, tensor, &one), uses = reads || st->out == tensor;
        if (e && (kn_reads_of(e->body, tensor, &one) || e->out == tensor || st->out == tensor))
            return kn_step_refuse(s, "'%s' has an epilogue", kn_stage_name(s->t, g));
        if (uses && (g->at_stage >= 0 || (reads && g->ncaches)))
            return kn_step_refuse(s, "transform_layout must come before the caches and compute_at of '%s'", kn_stage_name(s->t, g));
    }
    return KILN_OK;
}

kiln_status kn_prim_transform_layout(kn_step *s)
{
    kn_stage *g = kn_step_stage(s, s->args[0]);
    if (!g) return KILN_TRACE;
    kn_program *p = s->t->program;
    kn_stmt *writer = kn_stage_stmt(s->t, g);
    kn_tensor *x = &p->tensors[writer->out];
    layout l = { .tensor = writer->out, .n = s->nargs - 1, .p = p };
    if (x->role != KN_TEMP) return kn_step_refuse(s, "'%s' is not a temporary: its layout is the caller's", x->name);
    if (l.n > KILN_MAX_RANK) return kn_step_refuse(s, "more than %d dimensions", KILN_MAX_RANK);
    for (int i = 0; i < l.n; i++)
        if (!read_term(s, s->args[1 + i], x->rank, &l.t[i])) return KILN_TRACE;
    kiln_status bad = check_terms(s, x, &l);
    if (!bad) bad = check_users(s, writer->out);
    if (bad) return bad;
    kn_expr *lhs[KILN_MAX_RANK];
    memcpy(l.old, x->shape, sizeof l.old);
    new_indices(s->a, &l, l.old, writer->lhs, lhs);
    x->rank = l.n; /* first, so that loads are built with the new rank */
    int64_t n = 1;
    for (int i = 0; i < l.n; i++) {
        x->shape[i] = l.shape[i];
        writer->lhs[i] = lhs[i];
        if (!kn_mul_fits(n, l.shape[i], &n) || n > KILN_MAX_ELEMENTS) return kn_step_refuse(s, "'%s' would have too many elements", x->name);
    }
    kn_stmt_simplify(s->a, writer, l.n);
    for (int i = 0; i < p->nstmts; i++) {
        const kn_expr *one;
        if (!kn_reads_of(p->stmts[i]->body, l.tensor, &one)) continue;
        p->stmts[i]->body = kn_rewrite(s->a, p->stmts[i]->body, follow, &l);
        if (l.padded) return kn_step_refuse(s, "'%s' is read with padding by '%s'", x->name, p->tensors[p->stmts[i]->out].name);
        if (kn_arena_dry(s->a)) return kn_fail(s->d, KILN_MEMORY, "out of memory while changing a layout");
        kn_stmt_simplify(s->a, p->stmts[i], p->tensors[p->stmts[i]->out].rank);
    }
    return KILN_OK;
}
