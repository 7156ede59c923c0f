/* The integer solution of an index system: which points of a statement's axes read element i of a tensor.
 *
 * Every quotient u // c and remainder u % c becomes two unknowns q, r with u = c*q + r and 0 <= r < c (a partner that the program lacks is a new
 * free loop), so that what is left is linear with boxes: sum of coef * unknown + rest = 0, rest being known from i and from free axes. An
 * equation is then solved over the integers step by step, as in the Euclidean algorithm and so as in the Hermite form of its matrix: an
 * unknown w whose coefficient is prime to the divisor m of all others is fixed modulo m, w = w0 + m*t, which leaves a loop m times shorter. */
#include "grad/parts.h"

enum { UNKNOWNS = 48, EQUATIONS = 48 };

typedef struct equation { int64_t coef[UNKNOWNS]; kn_expr *rest; bool done; } equation;

/* An unknown u = lo + u', 0 <= u' < extent. It may come to be a linear form of others (form.rest its known part). */
typedef struct unknown {
    int64_t lo, extent;
    enum { OPEN, LINEAR, FREE } state;
    equation form;
    kn_expr *value;     /* of u' */
    bool boxed;         /* its range must be guarded */
} unknown;

typedef struct atom { const kn_expr *u; int64_t c; int q, r; } atom;

typedef struct solver {
    kiln_arena *a;
    const kn_program *p;
    const kn_stmt *s;
    int rank, nu, ne, natoms;
    unknown u[UNKNOWNS];
    equation e[EQUATIONS];
    atom atoms[UNKNOWNS / 2];
    kn_expr *guard;
    kn_solution *out;
    const int64_t *shape;
    bool full;          /* an array or an integer overflowed */
} solver;

static kn_expr *integer(solver *v, int64_t x) { return kn_const_i(v->a, KN_I64, x); }
static kn_expr *plus(solver *v, kn_expr *x, kn_expr *y) { return kn_bin(v->a, KN_OP_ADD, x, y); }
static kn_expr *times(solver *v, kn_expr *x, int64_t c) { return kn_bin(v->a, KN_OP_MUL, x, integer(v, c)); }

static void new_range(void *user, const kn_expr *leaf, int64_t *lo, int64_t *hi)
{
    const solver *v = user;
    *lo = 0;
    *hi = INT64_MAX;
    if (leaf->op != KN_OP_AXIS) return;
    *hi = (leaf->u.axis < v->rank ? v->shape[leaf->u.axis] : v->out->extent[leaf->u.axis - v->rank]) - 1;
}

static kn_expr *simple(solver *v, kn_expr *e) { return e ? kn_simplify(v->a, e, new_range, v) : NULL; }

static void demand(solver *v, kn_expr *c)
{
    c = simple(v, c);
    if (c) v->guard = v->guard ? kn_bin(v->a, KN_OP_AND, v->guard, c) : c;
}

static int add_unknown(solver *v, int64_t lo, int64_t extent, bool boxed)
{
    if (v->nu == UNKNOWNS || extent < 1) {
        v->full = true;
        return 0;
    }
    v->u[v->nu] = (unknown){.lo = lo, .extent = extent, .boxed = boxed};
    return v->nu++;
}

/* to += scale * from */
static void combine(solver *v, equation *to, const equation *from, int64_t scale)
{
    for (int i = 0; i < v->nu; i++) {
        int64_t t;
        v->full |= __builtin_mul_overflow(from->coef[i], scale, &t) || __builtin_add_overflow(to->coef[i], t, &to->coef[i]);
    }
    to->rest = plus(v, to->rest, times(v, from->rest, scale));
}

static void add_unknown_to(solver *v, equation *to, int u, int64_t scale)
{
    equation one = {.rest = integer(v, v->u[u].lo)};
    one.coef[u] = 1;
    combine(v, to, &one, scale);
}

static bool linear(solver *v, const kn_expr *e, int64_t scale, equation *to);

/* The pair of u // c and u % c. */
static atom *pair(solver *v, const kn_expr *u, int64_t c)
{
    int64_t lo, hi;
    for (int i = 0; i < v->natoms; i++)
        if (v->atoms[i].c == c && kn_expr_equal(v->atoms[i].u, u)) return &v->atoms[i];
    equation e = {.rest = integer(v, 0)};
    if (!linear(v, u, 1, &e) || !kn_expr_range(u, kn_stmt_range, (void *)v->s, &lo, &hi)) return NULL;
    if (lo < -KILN_MAX_ELEMENTS || hi > KILN_MAX_ELEMENTS || v->ne == EQUATIONS || v->natoms == UNKNOWNS / 2) return NULL;
    atom *x = &v->atoms[v->natoms++];
    int64_t first = kn_floor_div(lo, c);
    *x = (atom){u, c, add_unknown(v, first, kn_floor_div(hi, c) - first + 1, false), add_unknown(v, 0, c, true)};
    add_unknown_to(v, &e, x->q, -c);
    add_unknown_to(v, &e, x->r, -1);
    v->e[v->ne++] = e;
    return x;
}

/* to += scale * e; false when e is not quasi-affine in the axes. */
static bool linear(solver *v, const kn_expr *e, int64_t scale, equation *to)
{
    int64_t t;
    if (v->full || e->dtype != KN_I64) return false;
    switch (e->op) {
    case KN_OP_CONST_I:
        if (__builtin_mul_overflow(e->u.i, scale, &t)) return false;
        to->rest = plus(v, to->rest, integer(v, t));
        return true;
    case KN_OP_AXIS: add_unknown_to(v, to, e->u.axis, scale); return true;
    case KN_OP_NEG: return scale != INT64_MIN && linear(v, e->args[0], -scale, to);
    case KN_OP_ADD: return linear(v, e->args[0], scale, to) && linear(v, e->args[1], scale, to);
    case KN_OP_SUB: return scale != INT64_MIN && linear(v, e->args[0], scale, to) && linear(v, e->args[1], -scale, to);
    case KN_OP_MUL:
        for (int i = 0; i < 2; i++)
            if (kn_is_int_const(e->args[i]) && !__builtin_mul_overflow(e->args[i]->u.i, scale, &t)) return linear(v, e->args[1 - i], t, to);
        return false;
    case KN_OP_FLOORDIV:
    case KN_OP_MOD: {
        const kn_expr *c = e->args[1];
        atom *x = kn_is_int_const(c) && c->u.i > 0 && c->u.i <= KILN_MAX_EXTENT ? pair(v, e->args[0], c->u.i) : NULL;
        if (x) add_unknown_to(v, to, e->op == KN_OP_MOD ? x->r : x->q, scale);
        return x != NULL;
    }
    default: return false;
    }
}

/* Puts a linear form in the place of an unknown everywhere. */
static void settle(solver *v, int u, const equation *form)
{
    v->u[u].state = LINEAR;
    v->u[u].form = *form;
    for (int i = 0; i < v->ne; i++) {
        int64_t c = v->e[i].coef[u];
        if (v->e[i].done || !c) continue;
        v->e[i].coef[u] = 0;
        combine(v, &v->e[i], form, c);
    }
    for (int i = 0; i < v->nu; i++) {
        int64_t c = v->u[i].state == LINEAR && i != u ? v->u[i].form.coef[u] : 0;
        if (!c) continue;
        v->u[i].form.coef[u] = 0;
        combine(v, &v->u[i].form, form, c);
    }
}

/* The unknown becomes a loop of the new statement. */
static void set_free(solver *v, int u)
{
    equation form = {0};
    if (v->rank + v->out->nfree == KILN_MAX_AXES) {
        v->full = true;
        form.rest = integer(v, 0);
    } else {
        v->out->extent[v->out->nfree] = v->u[u].extent;
        form.rest = kn_axis_ref(v->a, v->rank + v->out->nfree++);
    }
    settle(v, u, &form);
    v->u[u].state = FREE;
    v->u[u].boxed = false;
}

static int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }

/* Greatest common divisor of the coefficients but that of `but`. */
static int64_t divisor(const solver *v, const equation *e, int but)
{
    int64_t g = 0;
    for (int i = 0; i < v->nu; i++)
        if (i != but && e->coef[i]) g = g ? kn_gcd(g, magnitude(e->coef[i])) : magnitude(e->coef[i]);
    return g;
}

/* Divides an equation by what divides all coefficients; the rest must be divisible too. Without unknowns the rest must be 0. */
static void reduce(solver *v, equation *e)
{
    int64_t g = divisor(v, e, -1);
    e->rest = simple(v, e->rest);
    if (g == 1 || !e->rest) return;
    if (g == 0) {
        demand(v, kn_bin(v->a, KN_OP_EQ, e->rest, integer(v, 0)));
        e->done = true;
        return;
    }
    demand(v, kn_bin(v->a, KN_OP_EQ, kn_bin(v->a, KN_OP_MOD, e->rest, integer(v, g)), integer(v, 0)));
    for (int i = 0; i < v->nu; i++) e->coef[i] /= g;
    e->rest = simple(v, kn_bin(v->a, KN_OP_FLOORDIV, e->rest, integer(v, g)));
}

/* x with c * x = 1 modulo m; c and m are coprime, m > 1. */
static int64_t inverse(int64_t c, int64_t m)
{
    int64_t r0 = m, r1 = kn_floor_mod(c, m), t0 = 0, t1 = 1;
    while (r1) {
        int64_t q = r0 / r1, r = r0 - q * r1, t = t0 - q * t1;
        r0 = r1, r1 = r, t0 = t1, t1 = t;
    }
    return kn_floor_mod(t0, m);
}

/* w = w0 + m*t where m divides all other coefficients (the equation is reduced, so w's is prime to m). The equation goes on divided by m. */
static void by_residue(solver *v, equation *e, int w, int64_t m)
{
    int64_t c = e->coef[w], inv = inverse(c, m);
    unknown *x = &v->u[w];
    bool boxed = x->boxed;
    equation form = {0};
    kn_expr *minus = simple(v, kn_un(v->a, KN_OP_NEG, e->rest));
    form.rest = c == 1 ? minus : c == -1 ? e->rest : times(v, e->rest, m - inv);
    form.rest = simple(v, kn_bin(v->a, KN_OP_MOD, form.rest, integer(v, m)));
    if (c == 1) e->rest = kn_un(v->a, KN_OP_NEG, kn_bin(v->a, KN_OP_FLOORDIV, minus, integer(v, m)));
    else if (c == -1) e->rest = kn_bin(v->a, KN_OP_FLOORDIV, e->rest, integer(v, m));
    else e->rest = kn_bin(v->a, KN_OP_FLOORDIV, plus(v, e->rest, times(v, form.rest, c)), integer(v, m));
    e->rest = simple(v, e->rest);
    e->coef[w] = 0;
    for (int i = 0; i < v->nu; i++) e->coef[i] /= m;
    x->boxed = boxed && x->extent % m != 0;
    if (x->extent > m) {
        int t = add_unknown(v, 0, kn_ceil_div(x->extent, m), boxed);
        form.coef[t] = m;
        e->coef[t] = c;
    }
    settle(v, w, &form);
}

static void by_pivot(solver *v, equation *e, int u)
{
    equation form = {.rest = integer(v, 0)};
    int64_t c = e->coef[u];
    e->coef[u] = 0;
    e->done = true;
    combine(v, &form, e, -c); /* c is 1 or -1 */
    settle(v, u, &form);
}

/* The next step, best first: unknowns that the equation determines, pivots that leave hardly an idle iteration, residues, any pivot. */
typedef struct move { int kind, eq, u; int64_t m; double cost; } move;

static void consider(const solver *v, int eq, int u, move *best)
{
    const equation *e = &v->e[eq];
    int64_t c = magnitude(e->coef[u]), m = divisor(v, e, u);
    double others = 0, extent = (double)v->u[u].extent;
    for (int i = 0; i < v->nu; i++)
        if (i != u) others += (double)magnitude(e->coef[i]) * (double)(v->u[i].extent - 1);
    move x = {4, eq, u, m, extent};
    if (m > 1 && v->u[u].extent <= m) x.kind = 0;
    else if (c == 1 && others <= 2 * extent) x = (move){1, eq, u, 1, -extent};
    else if (m > 1) x = (move){2, eq, u, m, extent / (double)m};
    else if (c == 1) x = (move){3, eq, u, 1, -extent};
    if (x.kind < best->kind || (x.kind == best->kind && x.cost < best->cost)) *best = x;
}

static void eliminate(solver *v)
{
    const equation zero = {.rest = integer(v, 0)};
    for (int u = 0; u < v->nu && zero.rest; u++)
        if (v->u[u].extent == 1) settle(v, u, &zero);
    for (;;) {
        move best = {9, 0, 0, 0, 0};
        for (int i = 0; i < v->ne && !v->full; i++) {
            if (!v->e[i].done) reduce(v, &v->e[i]);
            for (int u = 0; u < v->nu && !v->e[i].done; u++)
                if (v->e[i].coef[u]) consider(v, i, u, &best);
        }
        if (best.kind == 9 || v->full || kn_arena_dry(v->a)) return;
        if (best.kind == 0 || best.kind == 2) by_residue(v, &v->e[best.eq], best.u, best.m);
        else if (best.kind == 4) set_free(v, best.u);
        else by_pivot(v, &v->e[best.eq], best.u);
    }
}

static kn_expr *in_new_axes(void *user, kiln_arena *a, kn_expr *e)
{
    (void)a;
    return e->op == KN_OP_AXIS ? ((const kn_solution *)user)->value[e->u.axis] : e;
}

/* What is still open becomes a loop; then the boxes of all others are guarded. */
static void finish(solver *v)
{
    for (int u = 0; u < v->nu; u++)
        if (v->u[u].state == OPEN) set_free(v, u);
    for (int u = 0; u < v->nu && !v->full; u++) {
        unknown *x = &v->u[u];
        x->value = simple(v, x->form.rest);
        if (u < v->s->naxes) v->out->value[u] = x->value;
        if (!x->boxed) continue;
        demand(v, kn_bin(v->a, KN_OP_LE, integer(v, 0), x->value));
        demand(v, kn_bin(v->a, KN_OP_LT, x->value, integer(v, x->extent)));
    }
}

/* Conditions of the form x == y that must hold where the factor is not zero. */
static void equalities(solver *v, const kn_expr *c)
{
    if (c->op == KN_OP_AND) {
        equalities(v, c->args[0]);
        equalities(v, c->args[1]);
    }
    if (c->op != KN_OP_EQ || v->ne >= EQUATIONS - 4 || v->nu >= UNKNOWNS - 8) return;
    equation e = {.rest = integer(v, 0)};
    kn_expr *x = kn_simplify(v->a, c->args[0], kn_stmt_range, (void *)v->s), *y = kn_simplify(v->a, c->args[1], kn_stmt_range, (void *)v->s);
    if (x && y && linear(v, x, 1, &e) && linear(v, y, -1, &e) && v->ne < EQUATIONS) v->e[v->ne++] = e;
}

static void conditions(solver *v, const kn_expr *f)
{
    if (f->op == KN_OP_MUL)
        for (int i = 0; i < 2; i++) conditions(v, f->args[i]);
    if (f->op == KN_OP_NEG || f->op == KN_OP_CAST) conditions(v, f->args[0]);
    if (f->op != KN_OP_SELECT || f->args[2]->op != KN_OP_CONST_F || f->args[2]->u.f != 0) return;
    equalities(v, f->args[0]);
    conditions(v, f->args[1]);
}

kiln_status kn_solve(kiln_arena *a, const kn_program *p, const kn_stmt *s, const kn_expr *load, const kn_expr *factor, kn_solution *out,
                     kiln_diag *d)
{
    solver *v = kn_new(a, solver);
    bool apart[KILN_MAX_RANK] = {false}; /* dimensions whose index is not quasi-affine: compared, at every point of the axes it holds */
    if (!v) return kn_fail(d, KILN_MEMORY, "out of memory");
    *v = (solver){.a = a, .p = p, .s = s, .rank = load->nargs, .out = out, .shape = p->tensors[load->u.tensor].shape};
    *out = (kn_solution){0};
    for (int k = 0; k < s->naxes; k++) add_unknown(v, 0, s->axes[k].extent, true);
    for (int k = 0; k < load->nargs; k++) {
        equation e = {.rest = kn_un(a, KN_OP_NEG, kn_axis_ref(a, k))};
        kn_expr *index = kn_simplify(a, load->args[k], kn_stmt_range, (void *)s);
        if (!index) return kn_fail(d, KILN_MEMORY, "out of memory");
        apart[k] = !linear(v, index, 1, &e) || v->ne == EQUATIONS;
        if (!apart[k]) v->e[v->ne++] = e;
    }
    conditions(v, factor);
    eliminate(v);
    finish(v);
    for (int k = 0; k < load->nargs && !v->full; k++)
        if (apart[k]) demand(v, kn_bin(a, KN_OP_EQ, kn_rewrite(a, load->args[k], in_new_axes, out), kn_axis_ref(a, k)));
    if (kn_arena_dry(a)) return kn_fail(d, KILN_MEMORY, "out of memory");
    if (v->full) return kn_fail(d, KILN_UNSUPPORTED, "the gradient by %s needs more than %d axes", p->tensors[load->u.tensor].name, KILN_MAX_AXES);
    out->guard = v->guard ? v->guard : kn_const_i(a, KN_BOOL, 1);
    return KILN_OK;
}
