/* The checker: everything later stages take for granted about a program, so that none of them has to look again. */
#include "te/expr.h"

#define FACTS 32

/* What is known where an expression stands: the axes' ranges and the affine forms that its guards make non-negative. */
typedef struct guards {
    int64_t lo[KILN_MAX_AXES], hi[KILN_MAX_AXES];
    int nfacts;
    kn_affine facts[FACTS];
    int nbounds;                                   /* the same for indices that are not affine: e >= lo or e <= hi */
    struct { const kn_expr *e; bool upper; int64_t limit; } bounds[FACTS];
    bool never;                                    /* the guards exclude each other */
} guards;

typedef struct check { const kn_program *p; const kn_stmt *s; int stmt; kiln_diag *d; int nodes; } check;

static kiln_status bad(check *c, const kn_expr *e, kiln_status s, const char *what)
{
    if (e && e->line) return kn_fail_text(c->d, s, e->line, e->col, "%s", what);
    return kn_fail(c->d, s, "statement %d (%s): %s", c->stmt + 1, c->p->tensors[c->s->out].name, what);
}

static void axis_span(void *user, const kn_expr *leaf, int64_t *lo, int64_t *hi)
{
    const guards *g = user;
    *lo = leaf->op == KN_OP_AXIS ? g->lo[leaf->u.axis] : 0;
    *hi = leaf->op == KN_OP_AXIS ? g->hi[leaf->u.axis] : INT64_MAX;
}

/* Least value of an affine form within the axes' ranges; false on overflow. */
static bool least(const guards *g, const kn_affine *f, int64_t *out)
{
    int64_t t;
    *out = f->offset;
    for (int i = 0; i < KILN_MAX_AXES; i++) {
        if (!f->coef[i]) continue;
        if (__builtin_mul_overflow(f->coef[i], f->coef[i] > 0 ? g->lo[i] : g->hi[i], &t) || __builtin_add_overflow(*out, t, out))
            return false;
    }
    return true;
}

static bool minus(const kn_affine *x, const kn_affine *y, kn_affine *out)
{
    for (int i = 0; i < KILN_MAX_AXES; i++)
        if (__builtin_sub_overflow(x->coef[i], y->coef[i], &out->coef[i])) return false;
    return !__builtin_sub_overflow(x->offset, y->offset, &out->offset);
}

/* A fact about one axis alone narrows its range. */
static void narrow(guards *g, const kn_affine *f)
{
    int only = -1;
    for (int i = 0; i < KILN_MAX_AXES; i++) {
        if (!f->coef[i]) continue;
        if (only >= 0) return;
        only = i;
    }
    if (only < 0) {
        g->never |= f->offset < 0;
        return;
    }
    int64_t c = f->coef[only], o = f->offset;
    if (o == INT64_MIN || c == INT64_MIN) return;
    if (c > 0 && -kn_floor_div(o, c) > g->lo[only]) g->lo[only] = -kn_floor_div(o, c);   /* c*x + o >= 0: x >= ceil(-o/c) */
    if (c < 0 && kn_floor_div(o, -c) < g->hi[only]) g->hi[only] = kn_floor_div(o, -c);
    g->never |= g->lo[only] > g->hi[only];
}

/* Learns x <= y (strict: x < y). */
static void learn(guards *g, const kn_expr *x, const kn_expr *y, bool strict)
{
    kn_affine ax, ay, f;
    if (x->dtype != KN_I64) return;
    bool affine_x = kn_affine_of(x, &ax), affine_y = kn_affine_of(y, &ay);
    if (affine_x && affine_y && minus(&ay, &ax, &f) && g->nfacts < FACTS && !__builtin_sub_overflow(f.offset, strict, &f.offset)) {
        g->facts[g->nfacts++] = f;
        narrow(g, &f);
        return;
    }
    if (g->nbounds == FACTS) return;
    if (kn_is_int_const(y) && y->u.i > INT64_MIN) {
        g->bounds[g->nbounds].e = x;
        g->bounds[g->nbounds].upper = true;
        g->bounds[g->nbounds++].limit = y->u.i - strict;
    } else if (kn_is_int_const(x) && x->u.i < INT64_MAX) {
        g->bounds[g->nbounds].e = y;
        g->bounds[g->nbounds].upper = false;
        g->bounds[g->nbounds++].limit = x->u.i + strict;
    }
}

/* Adds what follows from the condition being true (or false). */
static void assume(guards *g, const kn_expr *c, bool holds)
{
    switch (c->op) {
    case KN_OP_AND:
    case KN_OP_OR:
        if ((c->op == KN_OP_AND) != holds) return;
        assume(g, c->args[0], holds);
        assume(g, c->args[1], holds);
        return;
    case KN_OP_NOT: assume(g, c->args[0], !holds); return;
    case KN_OP_LT: holds ? learn(g, c->args[0], c->args[1], true) : learn(g, c->args[1], c->args[0], false); return;
    case KN_OP_LE: holds ? learn(g, c->args[0], c->args[1], false) : learn(g, c->args[1], c->args[0], true); return;
    case KN_OP_EQ:
    case KN_OP_NE:
        if ((c->op == KN_OP_EQ) != holds) return;
        learn(g, c->args[0], c->args[1], false);
        learn(g, c->args[1], c->args[0], false);
        return;
    default: return;
    }
}

/* Can value (>= 0 wanted) be shown from the ranges, or from one fact that it exceeds? */
static bool shown(const guards *g, const kn_affine *f)
{
    int64_t v;
    kn_affine rest;
    if (least(g, f, &v) && v >= 0) return true;
    for (int i = 0; i < g->nfacts; i++)
        if (minus(f, &g->facts[i], &rest) && least(g, &rest, &v) && v >= 0) return true;
    return false;
}

static bool within(const guards *g, const kn_expr *e, int64_t dim)
{
    int64_t lo = INT64_MIN, hi = INT64_MAX;
    kn_affine f, top;
    if (g->never) return true;
    if (kn_expr_range(e, axis_span, (void *)g, &lo, &hi) && lo >= 0 && hi < dim) return true;
    if (kn_affine_of(e, &f)) {
        top = (kn_affine){.offset = dim - 1};
        return minus(&top, &f, &top) && shown(g, &f) && shown(g, &top);
    }
    for (int i = 0; i < g->nbounds; i++) {
        if (!kn_expr_equal(g->bounds[i].e, e)) continue;
        if (g->bounds[i].upper && g->bounds[i].limit < hi) hi = g->bounds[i].limit;
        if (!g->bounds[i].upper && g->bounds[i].limit > lo) lo = g->bounds[i].limit;
    }
    return lo >= 0 && hi < dim;
}

static kiln_status load(check *c, const kn_expr *e, const guards *g)
{
    const kn_expr *inner[1];
    if (e->u.tensor < 0 || e->u.tensor >= c->p->ntensors) return bad(c, e, KILN_INTERNAL, "read of an unknown tensor");
    const kn_tensor *t = &c->p->tensors[e->u.tensor];
    if (e->nargs != t->rank || e->dtype != t->dtype) return bad(c, e, KILN_SHAPE, "read with a wrong number of indices or dtype");
    for (int i = 0; i < e->nargs; i++) {
        int64_t lo, hi;
        const kn_expr *x = e->args[i];
        if (x->dtype != KN_I64) return bad(c, x, KILN_DTYPE, "an index that is not i64");
        kn_expr_range(x, axis_span, (void *)g, &lo, &hi);
        bool data = kn_loads(x, inner, 1) > 0;
        if (!data && !g->never && (lo < -KILN_MAX_ELEMENTS || hi > KILN_MAX_ELEMENTS)) return bad(c, x, KILN_LIMIT, "an index beyond 2^40");
        if (e->padded || within(g, x, t->shape[i])) continue;
        kiln_status s = KILN_SHAPE;
        if (x->line) kn_fail_text(c->d, s, x->line, x->col, "index %d of %s reaches from %lld to %lld, outside of its %lld elements", i,
            t->name,
                                  (long long)lo, (long long)hi, (long long)t->shape[i]);
        else kn_fail(c->d, s, "statement %d (%s): index %d of %s reaches from %lld to %lld, outside of its %lld elements", c->stmt + 1,
                     c->p->tensors[c->s->out].name, i, t->name, (long long)lo, (long long)hi, (long long)t->shape[i]);
        kn_hint(c->d, "read through pad(%s, 0.0)[...], or guard the read with select()", t->name);
        return s;
    }
    return KILN_OK;
}

static bool spans_zero(const kn_expr *e, const guards *g)
{
    int64_t lo, hi;
    kn_expr_range(e, axis_span, (void *)(uintptr_t)g, &lo, &hi);
    return lo <= 0 && hi >= 0;
}

/* select(x == 0, y, x) is zero only if y may be. */
static bool replaces_zero(const kn_expr *e, const guards *g)
{
    const kn_expr *is = e->op == KN_OP_SELECT ? e->args[0] : NULL;
    if (!is || is->op != KN_OP_EQ || spans_zero(e->args[1], g)) return false;
    for (int i = 0; i < 2; i++)
        if (kn_is_int_const(is->args[i]) && !is->args[i]->u.i && kn_expr_equal(is->args[1 - i], e->args[2])) return true;
    return false;
}

static kiln_status types(check *c, const kn_expr *e, const guards *g)
{
    char class = kn_op_class(e->op);
    enum kn_dtype t = e->nargs ? e->args[0]->dtype : e->dtype;
    for (int i = 0; i < e->nargs && class != 's'; i++)
        if (e->args[i]->dtype != t) return bad(c, e, KILN_DTYPE, "operands of two dtypes");
    switch (class) {
    case 'a':
    case 'f':
        if (t == KN_BOOL || (class == 'f' && !kn_is_float(t)) || e->dtype != t) return bad(c, e, KILN_DTYPE, "arithmetic on a wrong dtype");
        break;
    case 'i':
        if (t == KN_BOOL || kn_is_float(t) || e->dtype != t) return bad(c, e, KILN_DTYPE, "bits of a wrong dtype");
        break;
    case 'c':
    case 'l':
        if (e->dtype != KN_BOOL || (class == 'l' && t != KN_BOOL)) return bad(c, e, KILN_DTYPE, "a condition that is not bool");
        break;
    default:
        if (e->op == KN_OP_CONST_F && !kn_is_float(e->dtype)) return bad(c, e, KILN_DTYPE, "a float constant of integer dtype");
        if (e->op == KN_OP_CONST_I && kn_is_float(e->dtype)) return bad(c, e, KILN_DTYPE, "an integer constant of float dtype");
        if (e->op == KN_OP_SELECT && (t != KN_BOOL || e->args[1]->dtype != e->dtype || e->args[2]->dtype != e->dtype))
            return bad(c, e, KILN_DTYPE, "select() of wrong dtypes");
        if (e->op == KN_OP_AXIS && (e->u.axis < 0 || e->u.axis >= c->s->naxes)) return bad(c, e, KILN_INTERNAL, "an unknown axis");
    }
    bool divides = (e->op == KN_OP_FLOORDIV || e->op == KN_OP_MOD) && !kn_is_float(t);
    if (divides && spans_zero(e->args[1], g) && !replaces_zero(e->args[1], g)) {
        bad(c, e, KILN_SHAPE, kn_is_int_const(e->args[1]) ? "integer division by zero" : "integer division by what may be zero");
        kn_hint(c->d, "divide by max(x, 1), by select(x == 0, 1, x), or in a float dtype");
        return c->d->status;
    }
    return KILN_OK;
}

static kiln_status expr(check *c, const kn_expr *e, const guards *g, int depth)
{
    if (!e) return bad(c, NULL, KILN_MEMORY, "out of memory");
    if (depth > KILN_MAX_EXPR_DEPTH) return bad(c, e, KILN_LIMIT, "an expression nested deeper than 128");
    if (++c->nodes > KILN_MAX_EXPR_NODES) return bad(c, e, KILN_LIMIT, "an expression of more than 4096 nodes");
    if (e->op == KN_OP_VAR || e->op == KN_OP_READ || e->op == KN_OP_LANES || e->op == KN_OP_SPLAT || e->op == KN_OP_HSUM ||
        e->op == KN_OP_ZIP || e->op == KN_OP_UNZIP || e->op == KN_OP_SPREAD || e->op == KN_OP_PICK || e->op == KN_OP_PEER || e->lanes > 1)
        return bad(c, e, KILN_INTERNAL, "a node of loop programs");
    if (kn_op_arity(e->op) >= 0 && e->nargs != kn_op_arity(e->op)) return bad(c, e, KILN_INTERNAL, "a wrong number of operands");
    for (int i = 0; i < e->nargs; i++) {
        kiln_status s;
        if (e->op == KN_OP_SELECT && i > 0) {
            guards inner = *g;
            assume(&inner, e->args[0], i == 1);
            s = expr(c, e->args[i], &inner, depth + 1);
        } else {
            s = expr(c, e->args[i], g, depth + 1);
        }
        if (s != KILN_OK) return s;
    }
    kiln_status s = types(c, e, g);
    return s == KILN_OK && e->op == KN_OP_LOAD ? load(c, e, g) : s;
}

static kiln_status left_side(check *c, const guards *g)
{
    const kn_stmt *s = c->s;
    const kn_tensor *t = &c->p->tensors[s->out];
    uint32_t seen = 0;
    for (int i = 0; i < t->rank; i++) {
        const kn_expr *e = s->lhs[i];
        int64_t lo, hi;
        kiln_status st = expr(c, e, g, 0);
        if (st != KILN_OK) return st;
        if (e->dtype != KN_I64) return bad(c, e, KILN_DTYPE, "an index that is not i64");
        if (s->scatter) continue;
        uint32_t axes = kn_axes_in(e), spatial = (1u << s->nspatial) - 1;
        if (axes & ~spatial) return bad(c, e, KILN_SHAPE, "a reduce axis on the left side");
        if (e->op == KN_OP_AXIS) {
            if (seen & axes) return bad(c, e, KILN_SHAPE, "an axis twice on the left side");
            if (s->axes[e->u.axis].extent != t->shape[i]) return bad(c, e, KILN_SHAPE, "an axis of another extent than its dimension");
        } else if (!kn_expr_range(e, axis_span, (void *)g, &lo, &hi) || lo < 0 || hi >= t->shape[i]) {
            return bad(c, e, KILN_SHAPE, "an index of the left side outside of its dimension");
        }
        seen |= axes;
    }
    return KILN_OK;
}

static kiln_status axes(check *c, guards *g)
{
    const kn_stmt *s = c->s;
    *g = (guards){0};
    if (s->naxes < 0 || s->naxes > KILN_MAX_AXES || s->nspatial > s->naxes) return bad(c, NULL, KILN_LIMIT, "more than 16 axes");
    if (s->red == KN_RED_NONE && s->nspatial < s->naxes && !s->scatter) return bad(c, NULL, KILN_SHAPE, "reduce axes but no reduction");
    double points = 1;
    for (int i = 0; i < s->naxes; i++) {
        int64_t n = s->axes[i].extent;
        if (n < 1 || n > KILN_MAX_EXTENT) return bad(c, NULL, n < 1 ? KILN_SHAPE : KILN_LIMIT, "an extent that is not from 1 to 2^31-1");
        g->hi[i] = n - 1;
        points *= (double)n;
    }
    if (points > 1e18) return bad(c, NULL, KILN_LIMIT, "more than 10^18 points in one statement");
    return KILN_OK;
}

static void reads(const kn_expr *e, bool *set)
{
    if (e->op == KN_OP_LOAD) set[e->u.tensor] = true;
    for (int i = 0; i < e->nargs; i++) reads(e->args[i], set);
}

static kiln_status statement(check *c, const bool *written, bool *read)
{
    const kn_stmt *s = c->s;
    bool used[KILN_MAX_TENSORS] = {false};
    guards g;
    if (written[s->out] != s->scatter) return bad(c, NULL, KILN_SHAPE,
        s->scatter ? "a scatter before the tensor is written" : "a tensor written twice");
    if (s->scatter && read[s->out]) return bad(c, NULL, KILN_SHAPE, "a scatter into a tensor that was read before");
    kiln_status st = axes(c, &g);
    if (st == KILN_OK) st = left_side(c, &g);
    if (st != KILN_OK) return st;
    c->nodes = 0;
    if ((st = expr(c, s->body, &g, 0)) != KILN_OK) return st;
    bool logic = s->red == KN_RED_ALL || s->red == KN_RED_ANY;
    if (s->red != KN_RED_NONE && logic != (s->body->dtype == KN_BOOL)) return bad(c, s->body, KILN_DTYPE, "a reduction of a wrong dtype");
    reads(s->body, used);
    for (int k = 0; k < c->p->tensors[s->out].rank; k++) reads(s->lhs[k], used);
    for (int t = 0; t < c->p->ntensors; t++)
        if (used[t] && !written[t] && c->p->tensors[t].role != KN_INPUT) return bad(c, s->body, KILN_SHAPE,
            "a tensor read before it is written");
    for (int t = 0; t < c->p->ntensors; t++) read[t] |= used[t];
    if (used[s->out]) return bad(c, s->body, KILN_SHAPE, "a statement that reads the tensor it writes");
    return KILN_OK;
}

static kiln_status tensors(const kn_program *p, kiln_diag *d)
{
    for (int i = 0; i < p->ntensors; i++) {
        const kn_tensor *t = &p->tensors[i];
        int64_t n;
        enum kn_role role = i < p->ninputs ? KN_INPUT : i < p->ninputs + p->noutputs ? KN_OUTPUT : KN_TEMP;
        if (t->role != role) return kn_fail(d, KILN_INTERNAL, "tensors are not in the order inputs, outputs, temporaries");
        if (t->rank < 0 || t->rank > KILN_MAX_RANK) return kn_fail(d, KILN_LIMIT, "%s has rank %d; at most %d", t->name, t->rank,
            KILN_MAX_RANK);
        for (int k = 0; k < t->rank; k++) {
            if (t->shape[k] < 1) return kn_fail(d, KILN_SHAPE, "dimension %d of %s is %lld; the least is 1", k, t->name,
                (long long)t->shape[k]);
            if (t->shape[k] > KILN_MAX_EXTENT) return kn_fail(d, KILN_LIMIT, "dimension %d of %s is larger than 2^31-1", k, t->name);
        }
        if (!kn_elems(t, &n)) return kn_fail(d, KILN_LIMIT, "%s has more than 2^40 elements", t->name);
    }
    return KILN_OK;
}

kiln_status kn_check(const kn_program *p, kiln_diag *d)
{
    bool written[KILN_MAX_TENSORS] = {false}, read[KILN_MAX_TENSORS] = {false};
    kiln_status st = tensors(p, d);
    if (st != KILN_OK) return st;
    if (p->nstmts < 1 || p->noutputs < 1) return kn_fail(d, KILN_SHAPE, "a program without statements or outputs");
    for (int i = 0; i < p->nstmts; i++) {
        check c = {.p = p, .s = p->stmts[i], .stmt = i, .d = d};
        if (c.s->out < p->ninputs || c.s->out >= p->ntensors) return kn_fail(d, KILN_SHAPE, "statement %d writes an input", i + 1);
        if ((st = statement(&c, written, read)) != KILN_OK) return st;
        written[c.s->out] = true;
    }
    for (int t = p->ninputs; t < p->ntensors; t++)
        if (!written[t]) return kn_fail(d, KILN_SHAPE, "%s is never written", p->tensors[t].name);
    return KILN_OK;
}
