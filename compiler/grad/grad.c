/* Reverse accumulation over the statements of a program: every read adds a gather of its statement's gradient to its tensor's. */
#include "grad/parts.h"
#include <string.h>

enum { READS = 128 };

/* The work program q holds p's tensors under their numbers (and the split statements' extra ones), then everything new; what the result does
 * not need is dropped at the end. */
typedef struct builder {
    kiln_arena *a;
    const kn_program *p;
    kn_program *q;
    kiln_diag *d;
    bool active[KILN_MAX_TENSORS];       /* depends on an input to differentiate by */
    kn_expr *gradient[KILN_MAX_TENSORS]; /* sum of what came so far, over axes 0..rank-1; NULL: 0 */
    int place[KILN_MAX_TENSORS];         /* number among the outputs, or -1 */
    bool pad;                            /* reads in branches of selects that no range proves are padded */
} builder;

static kiln_status dry(builder *b) { return kn_fail(b->d, KILN_MEMORY, "out of memory"); }
static enum kn_dtype wide(enum kn_dtype t) { return kn_is_float(t) ? kn_dtype_acc(t) : t; }
static kn_expr *number(builder *b, enum kn_dtype t, double x) { return kn_const_f(b->a, t, x); }

static bool taken(const kn_program *q, const char *name)
{
    for (int i = 0; i < q->ntensors; i++)
        if (!strcmp(q->tensors[i].name, name)) return true;
    return false;
}

static int shaped_tensor(builder *b, const char *name, enum kn_dtype t, enum kn_role role, int rank, const int64_t *shape)
{
    while (name && taken(b->q, name)) name = kn_format(b->a, "%s_", name);
    int n = name ? kn_add_tensor(b->q, name, t, role, rank, shape) : -1;
    if (n >= 0) b->place[n] = -1;
    return n;
}

/* A tensor like number `like`, named prefix + its name. */
static int new_tensor(builder *b, const char *prefix, int like, enum kn_dtype t, enum kn_role role)
{
    const kn_tensor *x = &b->q->tensors[like];
    return shaped_tensor(b, kn_format(b->a, "%s%s", prefix, x->name), t, role, x->rank, x->shape);
}

static kiln_status full(builder *b)
{
    if (kn_arena_dry(b->a)) return dry(b);
    return kn_fail(b->d, KILN_LIMIT, "the gradient has more than %d tensors or %d statements", KILN_MAX_TENSORS, KILN_MAX_STMTS);
}

static kn_stmt *new_stmt(builder *b, int out)
{
    kn_stmt *s = out >= 0 && b->q->nstmts < KILN_MAX_STMTS ? kn_new(b->a, kn_stmt) : NULL;
    if (s) b->q->stmts[b->q->nstmts++] = s;
    if (s) s->out = out;
    return s;
}

/* A statement that writes every element of its tensor: axes 0..rank-1, then `nfree` loops. */
static kn_stmt *whole_stmt(builder *b, int out, int nfree, const int64_t *extent, kn_expr *body)
{
    kn_stmt *s = body ? new_stmt(b, out) : NULL;
    if (!s) return NULL;
    const kn_tensor *t = &b->q->tensors[out];
    s->nspatial = t->rank;
    s->naxes = t->rank + nfree;
    s->red = nfree ? KN_RED_SUM : KN_RED_NONE;
    s->body = body;
    for (int i = 0; i < s->naxes; i++) {
        bool loop = i >= t->rank;
        s->axes[i] = (kn_axis){kn_format(b->a, loop ? "R%d" : "I%d", loop ? i - t->rank : i), loop ? extent[i - t->rank] : t->shape[i], loop};
        if (!loop) s->lhs[i] = kn_axis_ref(b->a, i);
    }
    return s;
}

static kn_expr *own_element(builder *b, int tensor)
{
    kn_expr *idx[KILN_MAX_RANK];
    for (int i = 0; i < b->q->tensors[tensor].rank; i++) idx[i] = kn_axis_ref(b->a, i);
    return kn_load(b->a, b->q, tensor, idx);
}

static bool whole_read(const kn_expr *e)
{
    bool plain = e->op == KN_OP_LOAD && !e->padded;
    for (int i = 0; plain && i < e->nargs; i++) plain = e->args[i]->op == KN_OP_AXIS && e->args[i]->u.axis == i;
    return plain;
}

static void add_gradient(builder *b, int tensor, kn_expr *e)
{
    kn_expr *g = b->gradient[tensor];
    e = kn_cast(b->a, wide(b->q->tensors[tensor].dtype), e);
    b->gradient[tensor] = g ? kn_bin(b->a, KN_OP_ADD, g, e) : e;
}

/* ---- the forward part ---- */

static bool rounds(const kn_expr *e)
{
    char class = kn_op_class(e->op);
    bool exact = e->op == KN_OP_MIN || e->op == KN_OP_MAX || e->op == KN_OP_NEG || e->op == KN_OP_ABS;
    if (kn_is_float(e->dtype) && (class == 'a' || class == 'f') && !exact) return true;
    for (int i = 0; i < e->nargs && e->op != KN_OP_LOAD; i++)
        if (rounds(e->args[i])) return true;
    return false;
}

static bool reads_active(const builder *b, const kn_expr *e)
{
    if (e->op == KN_OP_LOAD) return b->active[e->u.tensor];
    for (int i = 0; i < e->nargs; i++)
        if (reads_active(b, e->args[i])) return true;
    return false;
}

/* Which terms were the extremum, or zero, is found by comparing them again: terms that round are stored first, so that both times they are
 * the same number, and the result is kept in their dtype. */
static kiln_status split(builder *b, kn_stmt *s)
{
    if (rounds(s->body)) {
        int64_t shape[KILN_MAX_RANK];
        kn_expr *idx[KILN_MAX_RANK];
        if (s->naxes > KILN_MAX_RANK)
            return kn_fail(b->d, KILN_UNSUPPORTED, "the gradient through a computed maximum, minimum or product of more than %d axes", KILN_MAX_RANK);
        for (int i = 0; i < s->naxes; i++) shape[i] = s->axes[i].extent, idx[i] = kn_axis_ref(b->a, i);
        const char *name = kn_format(b->a, "terms_%s", b->q->tensors[s->out].name);
        int t = name ? kn_add_tensor(b->q, name, s->body->dtype, KN_TEMP, s->naxes, shape) : -1;
        if (!whole_stmt(b, t, 0, NULL, s->body)) return full(b);
        b->active[t] = true;
        b->place[t] = -1;
        s->body = kn_load(b->a, b->q, t, idx);
    }
    kn_stmt *narrow = NULL;
    if (b->q->tensors[s->out].dtype != s->body->dtype && s->red != KN_RED_PROD) {
        int out = s->out, t = new_tensor(b, "exact_", out, s->body->dtype, KN_TEMP);
        kn_stmt *keep = new_stmt(b, t);
        if (!keep || !(narrow = whole_stmt(b, out, 0, NULL, own_element(b, t)))) return full(b);
        *keep = *s;
        keep->out = t;
        b->active[t] = true;
        return KILN_OK;
    }
    kn_stmt *same = new_stmt(b, s->out);
    if (!same) return full(b);
    *same = *s;
    return KILN_OK;
}

static kiln_status lost(builder *b, const kn_stmt *s)
{
    const kn_expr *loads[READS];
    int n = kn_loads(s->body, loads, READS);
    for (int i = 0; i < n && i < READS; i++) {
        kn_expr *factor = NULL;
        kiln_status st = b->active[loads[i]->u.tensor] ? kn_diff(b->a, s->body, loads[i], &factor, b->d) : KILN_OK;
        if (st != KILN_OK) return st;
    }
    return KILN_OK;
}

static bool reads_value(const kn_expr *e, int tensor)
{
    if (e->op == KN_OP_LOAD) return e->u.tensor == tensor;
    for (int i = e->op == KN_OP_SELECT; i < e->nargs; i++)
        if (reads_value(e->args[i], tensor)) return true;
    return false;
}

/* Says where elements are, or which of two it is, and is no value itself: that has no gradient, computed there or before. */
static bool only_places(const builder *b, int tensor)
{
    if (b->p->tensors[tensor].role != KN_TEMP) return false;
    for (int i = 0; i < b->p->nstmts; i++)
        if (reads_value(b->p->stmts[i]->body, tensor)) return false;
    return true;
}

/* ---- short functions of the axes ---- */

static int operations(const kn_expr *e)
{
    int n = kn_is_function(e->op) ? 16 : e->op >= KN_OP_ADD;
    for (int i = 0; i < e->nargs && n < 1000; i++) n += operations(e->args[i]);
    return n;
}

/* The statement that makes a table of what follows from its axes alone, in a few operations: what it becomes at the places of a gradient is often a
 * number or two (weights of an interpolation by a whole factor). NULL: none does. */
static const kn_stmt *table_of(const builder *b, int tensor)
{
    enum { FEW = 8 };
    const kn_expr *loads[1];
    const kn_stmt *made = NULL;
    for (int i = 0; i < b->p->nstmts; i++) {
        if (b->p->stmts[i]->out != tensor) continue;
        if (made) return NULL;
        made = b->p->stmts[i];
    }
    bool map = made && made->red == KN_RED_NONE && !made->scatter && b->p->tensors[tensor].role == KN_TEMP;
    if (!map || made->naxes != b->p->tensors[tensor].rank || kn_loads(made->body, loads, 1) || operations(made->body) > FEW) return NULL;
    for (int d = 0; d < made->naxes; d++)
        if (made->lhs[d]->op != KN_OP_AXIS || made->lhs[d]->u.axis != d) return NULL;
    return made->body->dtype == b->p->tensors[tensor].dtype ? made : NULL;
}

static kn_expr *at_index(void *user, kiln_arena *a, kn_expr *e)
{
    (void)a;
    return e->op == KN_OP_AXIS ? ((kn_expr *const *)user)[e->u.axis] : e;
}

static kn_expr *without_tables(void *user, kiln_arena *a, kn_expr *e)
{
    const kn_stmt *table = e->op == KN_OP_LOAD && !e->padded ? table_of(user, e->u.tensor) : NULL;
    return table ? kn_rewrite(a, table->body, at_index, e->args) : e;
}

static kiln_status forward(builder *b)
{
    for (int i = 0; i < b->p->nstmts; i++) {
        kn_stmt s = *b->p->stmts[i], *c;
        if (!(s.body = kn_rewrite(b->a, s.body, without_tables, b))) return dry(b);
        bool depends = reads_active(b, s.body) || (s.scatter && b->active[s.out]);
        if (depends && s.scatter)
            return kn_fail(b->d, KILN_UNSUPPORTED, "statement %d scatters; its gradient is not supported", i + 1);
        if (depends && !kn_is_float(b->q->tensors[s.out].dtype) && !only_places(b, s.out)) {
            kiln_status st = lost(b, &s); /* says where a value is rounded to an integer; comparisons may be */
            if (st != KILN_OK) return st;
            depends = false;
        }
        bool extremum = s.red == KN_RED_MAX || s.red == KN_RED_MIN;
        if (depends && extremum && kn_only_shifts(b->a, b->p, s.out)) depends = false;
        b->active[s.out] |= depends;
        bool compares = extremum || s.red == KN_RED_PROD;
        if (depends && compares) {
            kiln_status st = split(b, &s);
            if (st != KILN_OK) return st;
            continue;
        }
        if (!(c = new_stmt(b, s.out))) return full(b);
        *c = s;
    }
    return KILN_OK;
}

/* ---- one statement backward ---- */

/* A tensor with the shape of s's result that holds a reduction of `term` over the same axes. */
static kn_expr *reduced(builder *b, const kn_stmt *s, const char *prefix, enum kn_reduce red, kn_expr *term)
{
    int t = term ? new_tensor(b, prefix, s->out, term->dtype, KN_TEMP) : -1;
    kn_stmt *c = new_stmt(b, t);
    if (!c) return NULL;
    *c = *s;
    c->out = t;
    c->red = red;
    c->body = term;
    return kn_load(b->a, b->q, t, (kn_expr **)s->lhs);
}

/* What each element of s's result hands to every one of its extrema, which is read where those are. */
static kn_expr *shared_out(builder *b, const kn_stmt *s, kn_expr *share)
{
    int t = share ? new_tensor(b, "share_", s->out, share->dtype, KN_TEMP) : -1;
    kn_stmt *c = new_stmt(b, t);
    if (!c) return NULL;
    *c = *s;
    c->out = t;
    c->red = KN_RED_NONE;
    c->naxes = s->nspatial;
    c->body = share;
    return kn_load(b->a, b->q, t, (kn_expr **)s->lhs);
}

/* d result / d term of a reduction at a point of the statement, times the gradient of the result. Equal extrema share it evenly; a product
 * is that of the other terms, which zeros among them do not spoil. */
static kn_expr *through_reduction(builder *b, const kn_stmt *s, kn_expr *dout)
{
    kiln_arena *a = b->a;
    enum kn_dtype t = s->body->dtype;
    kn_expr *one = number(b, t, 1), *zero = number(b, t, 0);
    if (s->red == KN_RED_MAX || s->red == KN_RED_MIN) {
        kn_expr *hit = kn_bin(a, KN_OP_EQ, s->body, kn_load(a, b->q, s->out, (kn_expr **)s->lhs));
        kn_expr *count = reduced(b, s, "ties_", KN_RED_SUM, kn_select(a, hit, one, zero));
        return kn_select(a, hit, shared_out(b, s, kn_bin(a, KN_OP_DIV, dout, count)), zero);
    }
    if (s->red == KN_RED_PROD) {
        kn_expr *null = kn_bin(a, KN_OP_EQ, s->body, zero);
        kn_expr *others = reduced(b, s, "others_", KN_RED_PROD, kn_select(a, null, one, s->body));
        kn_expr *zeros = reduced(b, s, "zeros_", KN_RED_SUM, kn_select(a, null, one, zero));
        kn_expr *alone = kn_select(a, kn_bin(a, KN_OP_EQ, zeros, one), others, zero);
        kn_expr *rest = kn_select(a, kn_bin(a, KN_OP_EQ, zeros, zero), kn_bin(a, KN_OP_DIV, others, s->body), zero);
        return kn_bin(a, KN_OP_MUL, dout, kn_select(a, null, alone, rest));
    }
    return dout;
}

typedef struct gather {
    builder *b;
    const kn_expr *load;
    const kn_solution *solution;
    kn_stmt *ranges; /* extents of the new axes */
    kn_expr *guard;
} gather;

/* An expression of the forward statement in the new axes; the read that is differentiated by becomes element i itself. */
static kn_expr *moved(gather *g, const kn_expr *e)
{
    kn_expr **args = NULL;
    if (e->op == KN_OP_AXIS) return g->solution->value[e->u.axis];
    if (e->op == KN_OP_LOAD && kn_expr_equal(e, g->load)) return own_element(g->b, e->u.tensor);
    if (!e->nargs) return (kn_expr *)e;
    if (!(args = kn_array(g->b->a, kn_expr *, e->nargs))) return NULL;
    for (int i = 0; i < e->nargs; i++)
        if (!(args[i] = moved(g, e->args[i]))) return NULL;
    return kn_rebuild(g->b->a, e, args);
}

static bool asked(const kn_expr *all, const kn_expr *c)
{
    if (kn_expr_equal(all, c)) return true;
    return all->op == KN_OP_AND && (asked(all->args[0], c) || asked(all->args[1], c));
}

static void require(gather *g, kn_expr *c)
{
    if (c && g->guard && !asked(g->guard, c)) g->guard = kn_bin(g->b->a, KN_OP_AND, g->guard, c);
}

/* Says of every read what the checker cannot see from the ranges alone: that its indices stay inside wherever the guard holds. Reads in the
 * branches of a select have its condition, and when that is not enough they are padded. */
static kn_expr *safe(gather *g, kn_expr *e, bool branch)
{
    kiln_arena *a = g->b->a;
    kn_expr **args = e && e->nargs ? kn_array(a, kn_expr *, e->nargs) : NULL;
    bool changed = false;
    if (!args) return e;
    for (int i = 0; i < e->nargs; i++) {
        if (!(args[i] = safe(g, e->args[i], branch || (e->op == KN_OP_SELECT && i > 0)))) return NULL;
        changed |= args[i] != e->args[i];
    }
    if (changed) e = kn_rebuild(a, e, args);
    if (!e || e->op != KN_OP_LOAD || e->padded) return e;
    bool unproved = false;
    for (int i = 0; i < e->nargs; i++) {
        int64_t lo, hi, dim = g->b->q->tensors[e->u.tensor].shape[i];
        if (kn_expr_range(e->args[i], kn_stmt_range, g->ranges, &lo, &hi) && lo >= 0 && hi < dim) continue;
        unproved = true;
        if (branch) continue;
        if (lo < 0) require(g, kn_bin(a, KN_OP_LE, kn_const_i(a, KN_I64, 0), e->args[i]));
        if (hi >= dim) require(g, kn_bin(a, KN_OP_LT, e->args[i], kn_const_i(a, KN_I64, dim)));
    }
    return unproved && branch && g->b->pad ? kn_load_padded(a, g->b->q, e->u.tensor, e->args, 0.0) : e;
}

/* seed * factor, inside of the selects that make the factor 0. */
static kn_expr *product(kiln_arena *a, kn_expr *seed, kn_expr *factor)
{
    if (!seed || !factor) return NULL;
    bool masks = factor->op == KN_OP_SELECT && factor->args[2]->op == KN_OP_CONST_F && factor->args[2]->u.f == 0;
    return masks ? kn_select(a, factor->args[0], product(a, seed, factor->args[1]), factor->args[2]) : kn_bin(a, KN_OP_MUL, seed, factor);
}

static bool reads_data(const kn_expr *e)
{
    bool yes = e->op == KN_OP_LOAD;
    for (int i = 0; i < e->nargs && !yes; i++) yes = reads_data(e->args[i]);
    return yes;
}

/* Axes as the language numbers them: in the order of the left side, then the others. */
static void number_axes(const kn_expr *e, int *to, int *n)
{
    if (e->op == KN_OP_AXIS && to[e->u.axis] < 0) to[e->u.axis] = (*n)++;
    for (int i = 0; i < e->nargs; i++) number_axes(e->args[i], to, n);
}

static kn_expr *numbered(void *user, kiln_arena *a, kn_expr *e)
{
    return e->op == KN_OP_AXIS ? kn_axis_ref(a, ((const int *)user)[e->u.axis]) : e;
}

/* A read at places that data name gives its gradient back to these places: what is read outside of the tensor (padding) gets none. */
static kiln_status send_back(builder *b, const kn_stmt *s, const kn_expr *load, kn_expr *body)
{
    int t = load->u.tensor, to[KILN_MAX_AXES], n = 0;
    int part = new_tensor(b, "part_", t, wide(b->q->tensors[t].dtype), KN_TEMP);
    if (part < 0 || !body || !whole_stmt(b, part, 0, NULL, number(b, b->q->tensors[part].dtype, 0))) return full(b);
    kn_stmt *x = new_stmt(b, part);
    if (!x) return full(b);
    for (int i = 0; i < s->naxes; i++) to[i] = -1;
    for (int i = 0; i < load->nargs; i++) number_axes(load->args[i], to, &n);
    x->nspatial = n;
    for (int i = 0; i < s->naxes; i++)
        if (to[i] < 0) to[i] = n++;
    x->scatter = true;
    x->red = KN_RED_SUM;
    x->naxes = s->naxes;
    for (int i = 0; i < s->naxes; i++) x->axes[to[i]] = (kn_axis){kn_format(b->a, "S%d", to[i]), s->axes[i].extent, to[i] >= x->nspatial};
    for (int i = 0; i < load->nargs; i++)
        if (!(x->lhs[i] = kn_rewrite(b->a, load->args[i], numbered, to))) return dry(b);
    if (!(x->body = kn_rewrite(b->a, kn_cast(b->a, b->q->tensors[part].dtype, body), numbered, to))) return dry(b);
    add_gradient(b, t, own_element(b, part));
    return KILN_OK;
}

static kiln_status contribute(builder *b, const kn_stmt *s, const kn_expr *load, kn_expr *seed, kn_expr *factor);

static kiln_status by_ends(builder *b, const kn_stmt *s, const kn_clamped *c, kn_expr *seed, kn_expr *factor)
{
    kiln_status st = contribute(b, s, c->inside, seed, factor);
    return st == KILN_OK && c->points ? contribute(b, &c->ends, c->border, c->seed, c->factor) : st;
}

/* A sum, by phases, if it has any; guard: NULL, or where it counts. */
static kiln_status add_sum(builder *b, int t, const kn_stmt *ranges, const kn_solution *solution, kn_expr *body, kn_expr *guard)
{
    kn_phases f;
    int rank = b->q->tensors[t].rank;
    if (!kn_in_phases(b->a, b->q, ranges, rank, body, &f)) {
        f = (kn_phases){.rank = rank, .body = body};
        for (int i = 0; i < rank; i++) f.shape[i] = b->q->tensors[t].shape[i], f.read[i] = kn_axis_ref(b->a, i);
    }
    int part = shaped_tensor(b, kn_format(b->a, "part_%s", b->q->tensors[t].name), wide(b->q->tensors[t].dtype), KN_TEMP, f.rank, f.shape);
    if (!whole_stmt(b, part, solution->nfree, solution->extent, f.body)) return full(b);
    kn_expr *e = kn_load(b->a, b->q, part, f.read);
    if (!e) return dry(b);
    add_gradient(b, t, guard ? kn_select(b->a, guard, e, number(b, e->dtype, 0)) : e);
    return KILN_OK;
}

static kiln_status contribute(builder *b, const kn_stmt *s, const kn_expr *load, kn_expr *seed, kn_expr *factor)
{
    kn_clamped clamped;
    if (kn_unclamped(b->a, b->q, s, load, seed, factor, &clamped)) return by_ends(b, s, &clamped, seed, factor);
    kn_solution solution;
    kn_stmt ranges = {0};
    int t = load->u.tensor, rank = load->nargs;
    for (int i = 0; i < rank; i++)
        if (reads_data(load->args[i])) return send_back(b, s, load, product(b->a, seed, factor));
    kiln_status st = kn_solve(b->a, b->q, s, load, factor, &solution, b->d);
    if (st != KILN_OK) return st;
    ranges.naxes = rank + solution.nfree;
    for (int i = 0; i < ranges.naxes; i++) ranges.axes[i].extent = i < rank ? b->q->tensors[t].shape[i] : solution.extent[i - rank];
    gather g = {b, load, &solution, &ranges, solution.guard};
    kn_expr *body = product(b->a, seed, factor);
    if (!body || !(body = moved(&g, body)) || !(body = kn_simplify(b->a, body, kn_stmt_range, &ranges)) || !(body = safe(&g, body, false)))
        return dry(b);
    kn_expr *left = g.guard, *padded = solution.nfree ? kn_as_padded(b->a, b->q, &ranges, rank, body, &left) : NULL;
    if (padded) return add_sum(b, t, &ranges, &solution, padded, left);
    body = kn_select(b->a, g.guard, body, number(b, body->dtype, 0));
    if (!solution.nfree) {
        add_gradient(b, t, body);
        return KILN_OK;
    }
    return add_sum(b, t, &ranges, &solution, body, NULL);
}

/* What a map has computed and stored is read again: an exponential is its own slope. */
static kn_expr *from_result(builder *b, const kn_stmt *s, kn_expr *e)
{
    kn_expr **args = NULL;
    bool changed = false;
    if (kn_expr_equal(e, s->body)) return kn_load(b->a, b->q, s->out, (kn_expr **)s->lhs);
    if (!e->nargs || e->op == KN_OP_LOAD) return e;
    if (!(args = kn_array(b->a, kn_expr *, e->nargs))) return NULL;
    for (int i = 0; i < e->nargs; i++) {
        if (!(args[i] = from_result(b, s, e->args[i]))) return NULL;
        changed |= args[i] != e->args[i];
    }
    return changed ? kn_rebuild(b->a, e, args) : e;
}

static kiln_status backward(builder *b, const kn_stmt *s)
{
    const kn_expr *loads[READS];
    int n = kn_loads(s->body, loads, READS);
    if (n > READS) return kn_fail(b->d, KILN_LIMIT, "the gradient of a statement with more than %d reads", READS);
    kn_expr *g = b->gradient[s->out], *seed = NULL;
    int d = g->u.tensor;
    if (!whole_read(g)) {
        d = new_tensor(b, "d", s->out, wide(b->q->tensors[s->out].dtype), KN_TEMP);
        if (!whole_stmt(b, d, 0, NULL, g)) return full(b);
    }
    for (int i = 0; i < n; i++) {
        kn_expr *factor = NULL;
        bool again = !b->active[loads[i]->u.tensor];
        for (int k = 0; k < i && !again; k++) again = kn_expr_equal(loads[k], loads[i]);
        if (again) continue;
        kiln_status st = kn_diff(b->a, s->body, loads[i], &factor, b->d);
        if (st != KILN_OK) return st;
        if (!factor) continue;
        bool stored = s->red == KN_RED_NONE && !s->scatter && b->q->tensors[s->out].dtype == s->body->dtype && kn_is_function(s->body->op);
        if (stored && !(factor = from_result(b, s, factor))) return dry(b);
        if (!seed) seed = through_reduction(b, s, kn_cast(b->a, s->body->dtype, kn_load(b->a, b->q, d, (kn_expr **)s->lhs)));
        if (!seed) return full(b);
        if ((st = contribute(b, s, loads[i], seed, factor)) != KILN_OK) return st;
    }
    return KILN_OK;
}

/* ---- the result ---- */

/* The tensor with the whole gradient of input t, as output number k. */
static kiln_status deliver(builder *b, int t, int k)
{
    kn_program *q = b->q;
    kn_expr *g = b->gradient[t];
    enum kn_dtype dtype = q->tensors[t].dtype;
    int out;
    if (g && whole_read(g) && q->tensors[g->u.tensor].role == KN_TEMP && b->place[g->u.tensor] < 0 &&
        q->tensors[g->u.tensor].dtype == dtype) {
        out = g->u.tensor;
    } else {
        out = new_tensor(b, "d", t, dtype, KN_TEMP);
        if (!g) g = number(b, dtype, 0);
        if (!whole_stmt(b, out, 0, NULL, kn_cast(b->a, dtype, g))) return full(b);
    }
    b->place[out] = k;
    const char *name = kn_format(b->a, "d%s", q->tensors[t].name);
    if (name && strcmp(name, q->tensors[out].name) && !taken(q, name)) q->tensors[out].name = name;
    return KILN_OK;
}

static void reads(const kn_expr *e, bool *set)
{
    if (e->op == KN_OP_LOAD) set[e->u.tensor] = true;
    for (int i = 0; i < e->nargs; i++) reads(e->args[i], set);
}

static kn_expr *renumber(void *user, kiln_arena *a, kn_expr *e)
{
    kn_expr *r = e->op == KN_OP_LOAD ? kn_rebuild(a, e, e->args) : e;
    if (r && r != e) r->u.tensor = ((const int *)user)[e->u.tensor];
    return r;
}

/* Drops statements and tensors that the outputs do not need. */
static kn_program *pruned(builder *b)
{
    bool needed[KILN_MAX_TENSORS] = {false};
    int to[KILN_MAX_TENSORS], place[KILN_MAX_TENSORS];
    const kn_program *q = b->q;
    kn_program *r = kn_program_new(b->a);
    for (int t = 0; t < q->ntensors; t++) needed[t] = b->place[t] >= 0;
    for (int i = q->nstmts - 1; i >= 0; i--) {
        if (!needed[q->stmts[i]->out]) continue;
        reads(q->stmts[i]->body, needed);
        for (int k = 0; k < q->tensors[q->stmts[i]->out].rank; k++) reads(q->stmts[i]->lhs[k], needed);
    }
    for (int t = 0; r && t < q->ntensors; t++) {
        const kn_tensor *x = &q->tensors[t];
        if (!needed[t]) continue;
        to[t] = kn_add_tensor(r, x->name, x->dtype, x->role, x->rank, x->shape);
        place[to[t]] = b->place[t];
    }
    for (int i = 0; r && i < q->nstmts; i++) {
        kn_stmt *s = needed[q->stmts[i]->out] ? kn_new(b->a, kn_stmt) : NULL;
        if (!s) continue;
        *s = *q->stmts[i];
        for (int k = 0; k < q->tensors[s->out].rank; k++) s->lhs[k] = kn_rewrite(b->a, s->lhs[k], renumber, to);
        s->out = to[s->out];
        s->body = kn_rewrite(b->a, s->body, renumber, to);
        r->stmts[r->nstmts++] = s;
    }
    if (kn_arena_dry(b->a)) return NULL;
    kn_order_tensors(b->a, r, place);
    return r;
}

static kiln_status check_inputs(const builder *b, const int *inputs, int n)
{
    for (int i = 0; i < n; i++) {
        char at[32] = "/grad/";
        at[6] = (char)('0' + i / 10), at[7] = (char)('0' + i % 10); /* at most KILN_MAX_TENSORS inputs */
        if (i < 10) at[6] = at[7], at[7] = 0;
        const kn_tensor *t = &b->p->tensors[inputs[i]];
        if (!kn_is_float(t->dtype))
            return kn_fail_at(b->d, KILN_DTYPE, at, "%s is %s; only floats have a gradient", t->name, kn_dtype_text(t->dtype));
    }
    return KILN_OK;
}

/* The incoming gradients; refuses what no output depends on. */
static kiln_status incoming(builder *b)
{
    bool any = false;
    for (int i = 0; i < b->p->noutputs; i++) {
        int t = b->p->ninputs + i;
        if (!b->active[t]) continue;
        int d = new_tensor(b, "d", t, b->q->tensors[t].dtype, KN_INPUT);
        if (d < 0) return full(b);
        any = true;
        add_gradient(b, t, own_element(b, d));
    }
    if (any) return KILN_OK;
    const kn_tensor *y = &b->p->tensors[b->p->ninputs];
    return kn_is_float(y->dtype) ? kn_fail_at(b->d, KILN_REQUEST, "/grad", "no output depends on these inputs in a way that has a gradient")
                                 : kn_fail_at(b->d, KILN_DTYPE, "/grad", "the output %s is %s; only floats have a gradient", y->name,
                                              kn_dtype_text(y->dtype));
}

static kiln_status build(builder *b, const int *inputs, int n)
{
    kiln_status st;
    if (!(b->q = kn_program_new(b->a))) return dry(b);
    for (int t = 0; t < b->p->ntensors; t++) {
        const kn_tensor *x = &b->p->tensors[t];
        kn_add_tensor(b->q, x->name, x->dtype, x->role == KN_INPUT ? KN_INPUT : KN_TEMP, x->rank, x->shape);
        b->place[t] = -1;
    }
    for (int i = 0; i < n; i++) b->active[inputs[i]] = true;
    if ((st = forward(b)) != KILN_OK || (st = incoming(b)) != KILN_OK) return st;
    for (int i = b->q->nstmts - 1; i >= 0; i--) {
        const kn_stmt *s = b->q->stmts[i];
        if (b->active[s->out] && b->gradient[s->out] && (st = backward(b, s)) != KILN_OK) return st;
    }
    for (int i = 0; i < n; i++)
        if ((st = deliver(b, inputs[i], i)) != KILN_OK) return st;
    return KILN_OK;
}

kiln_status kn_grad(kiln_arena *a, const kn_program *p, const int *inputs, int n, kn_program **out, kiln_diag *d)
{
    kiln_status st = KILN_OK;
    for (int pad = 0; pad < 2; pad++) {
        builder *b = kn_new(a, builder);
        if (!b) return kn_fail(d, KILN_MEMORY, "out of memory");
        *b = (builder){.a = a, .p = p, .d = d, .pad = pad};
        if ((st = check_inputs(b, inputs, n)) != KILN_OK || (st = build(b, inputs, n)) != KILN_OK) return st;
        kn_program *r = pruned(b);
        if (!r) return dry(b);
        if ((st = kn_check(r, d)) == KILN_OK) {
            *out = r;
            return KILN_OK;
        }
        if (st != KILN_SHAPE) return st;
    }
    return st;
}
