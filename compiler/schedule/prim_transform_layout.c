/* transform_layout T TERM ...: the temporary T gets another layout; TERM names a dimension of the old one: 1, or 1/16 and 1%16 for its quotient
 * and remainder, 1/16%4 for the remainder of its quotient, or 1:3 for dimensions 1 to 3 as one. Writers and readers of T follow (TensorIR's
 * transform_layout of a buffer). */
#include "schedule/sched.h"
#include <stdlib.h>
#include <string.h>

/* Digits by..by*count of dimension dim: index / by % count; count 0: all that are left. last: of a run of dimensions. */
typedef struct term { int dim, last; int64_t by, count; } term;
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
    *t = (term){ .dim = (int)dim, .last = (int)dim, .by = 1 };
    if (end == text || text[0] < '0' || text[0] > '9' || dim >= rank || (*end && *end != '/' && *end != '%' && *end != ':'))
        return kn_step_refuse(s, "'%s' is not a dimension below %d, alone or with /N, %%N, /N%%N or :LAST", text, rank), false;
    int64_t last;
    if (*end == ':' && !kn_step_int(s, end + 1, dim + 1, rank - 1, &last)) return false;
    if (*end == ':') t->last = (int)last;
    if (*end != '/') return *end != '%' || kn_step_int(s, end + 1, 2, KILN_MAX_EXTENT, &t->count);
    char by[24] = "";
    size_t n = strcspn(end + 1, "%");
    if (n < sizeof by) memcpy(by, end + 1, n);
    if (!kn_step_int(s, by, 2, KILN_MAX_EXTENT, &t->by)) return false;
    return !end[1 + n] || kn_step_int(s, end + 2 + n, 2, KILN_MAX_EXTENT, &t->count);
}

/* Elements along a term's dimensions. */
static bool extent_of(kn_step *s, const kn_tensor *x, const term *t, int64_t *extent)
{
    *extent = x->shape[t->dim];
    for (int d = t->dim + 1; d <= t->last; d++)
        if (!kn_mul_fits(*extent, x->shape[d], extent) || *extent > KILN_MAX_EXTENT)
            return kn_step_refuse(s, "'%s' would have too long a dimension", x->name), false;
    return true;
}

/* Every digit of every dimension stands there once. */
static kiln_status check_terms(kn_step *s, const kn_tensor *x, layout *l)
{
    for (int i = 0; i < l->n; i++) {
        const term *t = &l->t[i];
        int64_t extent, unit = t->count ? t->by * t->count : t->by;
        if (!extent_of(s, x, t, &extent)) return KILN_TRACE;
        if (t->count && (t->by > extent || t->count > extent)) unit = 0;
        if (!unit || extent % unit)
            return kn_step_refuse(s, "%lld does not divide the %lld of dimension %d", (long long)(t->count > 1 ? t->count : t->by), (long long)extent,
                                  t->dim);
        l->shape[i] = t->count ? t->count : extent / t->by;
    }
    for (int d = 0; d < x->rank; d++) {
        int64_t have = 1, all = 1, extent = x->shape[d];
        int parts = 0, chained = 0;
        for (int i = 0; i < l->n; i++) {
            if (d < l->t[i].dim || d > l->t[i].last) continue;
            parts++;
            if (!kn_mul_fits(all, l->shape[i], &all) || !extent_of(s, x, &l->t[i], &extent))
                return kn_step_refuse(s, "dimension %d stands there twice", d);
        }
        for (int i = 0; i < l->n && chained < parts;) { /* from the lowest digits on; of one element each is the lowest */
            bool next = d >= l->t[i].dim && d <= l->t[i].last && l->t[i].by == have && l->shape[i] > 1;
            if (next) have *= l->shape[i], chained++, i = 0;
            else i++;
        }
        if (all > extent) return kn_step_refuse(s, "dimension %d stands there twice", d);
        if (!parts || all != extent || have != extent)
            return kn_step_refuse(s, "dimension %d must stand there once, or as %d/N and %d%%N", d, d, d);
    }
    return KILN_OK;
}

static void new_indices(kiln_arena *a, const layout *l, const int64_t *shape, kn_expr *const *old, kn_expr **idx)
{
    for (int i = 0; i < l->n; i++) {
        idx[i] = old[l->t[i].dim];
        for (int d = l->t[i].dim + 1; d <= l->t[i].last; d++)
            idx[i] = kn_bin(a, KN_OP_ADD, kn_bin(a, KN_OP_MUL, idx[i], kn_const_i(a, KN_I64, shape[d])), old[d]);
        if (l->t[i].by > 1) idx[i] = kn_bin(a, KN_OP_FLOORDIV, idx[i], kn_const_i(a, KN_I64, l->t[i].by));
        if (l->t[i].count) idx[i] = kn_bin(a, KN_OP_MOD, idx[i], kn_const_i(a, KN_I64, l->t[i].count));
    }
}

/* Dimensions only change places, so that what is out of range stays so. */
static bool permutes(const layout *l)
{
    for (int i = 0; i < l->n; i++)
        if (l->t[i].last != l->t[i].dim || l->t[i].by > 1 || l->t[i].count) return false;
    return true;
}

static kn_expr *follow(void *user, kiln_arena *a, kn_expr *e)
{
    layout *l = user;
    kn_expr *idx[KILN_MAX_RANK];
    if (e->op != KN_OP_LOAD || e->u.tensor != l->tensor) return e;
    l->padded = l->padded || (e->padded && !permutes(l));
    new_indices(a, l, l->old, e->args, idx);
    return e->padded ? kn_load_padded(a, l->p, l->tensor, idx, e->pad_value) : kn_load(a, l->p, l->tensor, idx);
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
