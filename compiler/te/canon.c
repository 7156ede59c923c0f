/* The canonical program: the same maths, however named, ordered or spelled, gives the same program.
 *
 * Dead statements go, indices are simplified, commutative operands are sorted by their structure, statements are put in the
 * order of a depth-first walk from the outputs, and tensors and axes are numbered by first use. The hash knows no names: spatial axes
 * count by position, reduce axes and inputs by a colour. Colours start from extents, dtypes and shapes and are refined by where each is
 * used (as in colour refinement of graphs). A tie that is left can only cost a cache hit, never correctness. */
#include "te/expr.h"
#include <string.h>

#define ROUNDS 3
enum { TERMS = 32 }; /* of a sum of indices: as many as simplification looks at */

typedef struct canon {
    kiln_arena *a;
    kn_program *p;                                     /* a private clone */
    bool live[KILN_MAX_STMTS];
    uint64_t tcolour[KILN_MAX_TENSORS], tuse[KILN_MAX_TENSORS];
    uint64_t acolour[KILN_MAX_STMTS][KILN_MAX_AXES], ause[KILN_MAX_STMTS][KILN_MAX_AXES];
    int stmt;                                          /* the one being hashed */
    int order[KILN_MAX_STMTS], norder;
    int visited[KILN_MAX_TENSORS];
    int tnew[KILN_MAX_TENSORS];
    int anew[KILN_MAX_AXES];
} canon;

static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * UINT64_C(0x9e3779b97f4a7c15);
    h = (h ^ h >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return h ^ h >> 29;
}

static uint64_t bits(double x)
{
    uint64_t u;
    if (x != x) return UINT64_C(0x7ff8000000000000);
    memcpy(&u, &x, sizeof u);
    return u;
}

/* Words, not enum values: a new row in a table changes no order, hence no key. */
static uint64_t word(const char *s)
{
    uint64_t h = 0;
    for (; *s; s++) h = mix(h, (unsigned char)*s);
    return h;
}

static uint64_t axis_hash(const canon *c, int axis)
{
    const kn_stmt *s = c->p->stmts[c->stmt];
    return axis < s->nspatial ? mix(1, (uint64_t)axis) : mix(2, c->acolour[c->stmt][axis]);
}

static bool as_affine(const kn_expr *e, kn_affine *f) { return e->dtype == KN_I64 && kn_affine_of(e, f); }

/* Terms of a sum of indices, in their order; integers have no order of addition, and simplification knows of none. 0: it is none of more than two. */
static int add_terms(const kn_expr *e, const kn_expr **terms, int n)
{
    if (e->op != KN_OP_ADD) {
        if (n < TERMS) terms[n] = e;
        return n + 1;
    }
    return add_terms(e->args[1], terms, add_terms(e->args[0], terms, n));
}

static int terms_of(const kn_expr *e, const kn_expr **terms)
{
    int n = e->op == KN_OP_ADD && e->dtype == KN_I64 ? add_terms(e, terms, 0) : 0;
    return n > 2 && n <= TERMS ? n : 0;
}

static uint64_t hash(const canon *c, const kn_expr *e)
{
    kn_affine f;
    const kn_expr *terms[TERMS];
    uint64_t h = mix(word(kn_op_name(e->op)), word(kn_dtype_text(e->dtype))), x, y;
    if (as_affine(e, &f)) {
        h = mix(4, (uint64_t)f.offset);
        for (int i = 0; i < KILN_MAX_AXES; i++)
            if (f.coef[i]) h += mix(axis_hash(c, i), (uint64_t)f.coef[i]);
        return h;
    }
    int n = terms_of(e, terms);
    for (int i = 0; i < n; i++) h += mix(5, hash(c, terms[i]));
    if (n) return h;
    if (e->op == KN_OP_CONST_F) return mix(h, bits(e->u.f));
    if (e->op == KN_OP_CONST_I) return mix(h, (uint64_t)e->u.i);
    if (e->op == KN_OP_LOAD) h = mix(mix(h, c->tcolour[e->u.tensor]), e->padded ? bits(e->pad_value) : 1);
    if (kn_op_commutes(e->op)) {
        x = hash(c, e->args[0]);
        y = hash(c, e->args[1]);
        return x < y ? mix(mix(h, x), y) : mix(mix(h, y), x);
    }
    for (int i = 0; i < e->nargs; i++) h = mix(h, hash(c, e->args[i]));
    return h;
}

static uint64_t stmt_hash(canon *c, int i)
{
    const kn_stmt *s = c->p->stmts[i];
    const kn_tensor *t = &c->p->tensors[s->out];
    c->stmt = i;
    uint64_t h = mix((uint64_t)s->red * 2 + s->scatter, word(kn_dtype_text(t->dtype))), sum = 0;
    for (int k = 0; k < s->nspatial; k++) h = mix(h, (uint64_t)s->axes[k].extent);
    for (int k = s->nspatial; k < s->naxes; k++) sum += axis_hash(c, k);
    for (int k = 0; k < t->rank; k++) h = mix(h, hash(c, s->lhs[k]));
    return mix(mix(h, sum), hash(c, s->body));
}

/* Adds to every tensor and axis below e the way that leads to it. */
static void uses(canon *c, const kn_expr *e, uint64_t path)
{
    kn_affine f;
    if (as_affine(e, &f)) {
        for (int i = 0; i < KILN_MAX_AXES; i++)
            if (f.coef[i]) c->ause[c->stmt][i] += mix(path, (uint64_t)f.coef[i]);
        return;
    }
    if (e->op == KN_OP_LOAD) {
        uint64_t h = path;
        for (int i = 0; i < e->nargs; i++) h = mix(h, hash(c, e->args[i]));
        c->tuse[e->u.tensor] += h;
        path = mix(path, c->tcolour[e->u.tensor]);
    }
    const kn_expr *terms[TERMS];
    int n = terms_of(e, terms);
    for (int i = 0; i < n; i++) uses(c, terms[i], mix(path, word(kn_op_name(e->op))));
    if (n) return;
    for (int i = 0; i < e->nargs; i++)
        uses(c, e->args[i], mix(path, word(kn_op_name(e->op)) + (kn_op_commutes(e->op) ? 0 : (uint64_t)i + 1)));
}

static void start_colours(canon *c)
{
    for (int t = 0; t < c->p->ninputs; t++) {
        const kn_tensor *x = &c->p->tensors[t];
        c->tcolour[t] = mix(word(kn_dtype_text(x->dtype)), (uint64_t)x->rank);
        for (int i = 0; i < x->rank; i++) c->tcolour[t] = mix(c->tcolour[t], (uint64_t)x->shape[i]);
        if (x->constant) c->tcolour[t] = mix(c->tcolour[t], 8);
    }
    for (int i = 0; i < c->p->nstmts; i++)
        for (int k = 0; k < c->p->stmts[i]->naxes; k++) c->acolour[i][k] = mix(6, (uint64_t)c->p->stmts[i]->axes[k].extent);
}

static void colour_stmts(canon *c, uint64_t *stmts)
{
    for (int t = c->p->ninputs; t < c->p->ntensors; t++) c->tcolour[t] = 7;
    for (int i = 0; i < c->p->nstmts; i++) {
        if (!c->live[i]) continue;
        stmts[i] = stmt_hash(c, i);
        int out = c->p->stmts[i]->out;
        c->tcolour[out] = mix(c->tcolour[out], stmts[i]);
    }
}

static void refine(canon *c)
{
    uint64_t stmts[KILN_MAX_STMTS] = {0};
    colour_stmts(c, stmts);
    memset(c->tuse, 0, sizeof c->tuse);
    memset(c->ause, 0, sizeof c->ause);
    for (int i = 0; i < c->p->nstmts; i++) {
        if (!c->live[i]) continue;
        c->stmt = i;
        uses(c, c->p->stmts[i]->body, stmts[i]);
        for (int k = 0; k < c->p->tensors[c->p->stmts[i]->out].rank; k++) uses(c, c->p->stmts[i]->lhs[k], mix(stmts[i], (uint64_t)k + 1));
    }
    for (int t = 0; t < c->p->ninputs; t++) c->tcolour[t] = mix(c->tcolour[t], c->tuse[t]);
    for (int i = 0; i < c->p->nstmts; i++)
        for (int k = 0; k < KILN_MAX_AXES; k++) c->acolour[i][k] = mix(c->acolour[i][k], c->ause[i][k]);
    colour_stmts(c, stmts);
}

/* The structure alone: no extent, no shape and no other use of what is read enters, so that programs that differ in those are sorted alike. */
static uint64_t form(const canon *c, const kn_expr *e)
{
    kn_affine f;
    const kn_expr *terms[TERMS];
    uint64_t h = mix(word(kn_op_name(e->op)), word(kn_dtype_text(e->dtype))), x, y;
    if (as_affine(e, &f)) return 4;
    int n = terms_of(e, terms);
    for (int i = 0; i < n; i++) h += mix(5, form(c, terms[i]));
    if (n) return h;
    if (e->op == KN_OP_CONST_F) return mix(h, bits(e->u.f));
    if (e->op == KN_OP_CONST_I) return mix(h, (uint64_t)e->u.i);
    if (e->op == KN_OP_LOAD) h = mix(mix(h, e->u.tensor < c->p->ninputs), e->padded);
    if (kn_op_commutes(e->op)) {
        x = form(c, e->args[0]);
        y = form(c, e->args[1]);
        return x < y ? mix(mix(h, x), y) : mix(mix(h, y), x);
    }
    for (int i = 0; i < e->nargs; i++) h = mix(h, form(c, e->args[i]));
    return h;
}

static bool is_constant(const kn_expr *e) { return e->op == KN_OP_CONST_F || e->op == KN_OP_CONST_I; }

/* Operands of a commutative operation: constants last, then by structure; what is alike in that, by what the hash tells apart. */
static bool in_order(const canon *c, const kn_expr *a, const kn_expr *b)
{
    if (is_constant(a) != is_constant(b)) return is_constant(b);
    uint64_t x = form(c, a), y = form(c, b);
    return x != y ? x < y : hash(c, a) <= hash(c, b);
}

static kn_expr *sorted(canon *c, kn_expr *e);

/* A sum of indices, its n terms in order from left to right: so that the canonical program, simplified and sorted again, is itself. */
static kn_expr *sorted_sum(canon *c, const kn_expr **terms, int n)
{
    kn_expr *e = NULL;
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && !in_order(c, terms[k - 1], terms[k]); k--) {
            const kn_expr *t = terms[k];
            terms[k] = terms[k - 1];
            terms[k - 1] = t;
        }
    for (int i = 0; i < n; i++) {
        kn_expr *t = sorted(c, (kn_expr *)(uintptr_t)terms[i]);
        if (!(e = !t || !e ? t : kn_bin(c->a, KN_OP_ADD, e, t))) return NULL;
    }
    return e;
}

static kn_expr *sorted(canon *c, kn_expr *e)
{
    if (!e || !e->nargs) return e;
    const kn_expr *terms[TERMS];
    kn_affine f;
    int n = as_affine(e, &f) ? 0 : terms_of(e, terms);
    if (n) return sorted_sum(c, terms, n);
    kn_expr **args = kn_array(c->a, kn_expr *, e->nargs);
    if (!args) return NULL;
    for (int i = 0; i < e->nargs; i++)
        if (!(args[i] = sorted(c, e->args[i]))) return NULL;
    if (kn_op_commutes(e->op) && !in_order(c, args[0], args[1])) {
        kn_expr *t = args[0];
        args[0] = args[1];
        args[1] = t;
    }
    return kn_rebuild(c->a, e, args);
}

static void mark(const kn_expr *e, bool *live)
{
    if (e->op == KN_OP_LOAD) live[e->u.tensor] = true;
    for (int i = 0; i < e->nargs; i++) mark(e->args[i], live);
}

static void find_live(canon *c)
{
    bool tensors[KILN_MAX_TENSORS] = {false};
    for (int t = c->p->ninputs; t < c->p->ninputs + c->p->noutputs; t++) tensors[t] = true;
    for (int i = c->p->nstmts - 1; i >= 0; i--) {
        const kn_stmt *s = c->p->stmts[i];
        if (!(c->live[i] = tensors[s->out])) continue;
        mark(s->body, tensors);
        for (int k = 0; k < c->p->tensors[s->out].rank; k++) mark(s->lhs[k], tensors);
    }
}

/* A padded read that never leaves its tensor is a plain one. */
static kn_expr *unpad(void *user, kiln_arena *a, kn_expr *e)
{
    const canon *c = user;
    int64_t lo, hi;
    if (e->op != KN_OP_LOAD || !e->padded) return e;
    for (int i = 0; i < e->nargs; i++) {
        kn_expr_range(e->args[i], kn_stmt_range, c->p->stmts[c->stmt], &lo, &hi);
        if (lo < 0 || hi >= c->p->tensors[e->u.tensor].shape[i]) return e;
    }
    return kn_load(a, c->p, e->u.tensor, e->args);
}

/* Depth-first from the outputs: a statement comes behind all that it reads. */
static void visit(canon *c, int tensor);

static void visit_reads(canon *c, const kn_expr *e)
{
    if (e->op == KN_OP_LOAD) visit(c, e->u.tensor);
    for (int i = 0; i < e->nargs; i++) visit_reads(c, e->args[i]);
}

static void visit(canon *c, int tensor)
{
    if (tensor < c->p->ninputs || c->visited[tensor]) return;
    c->visited[tensor] = 1;
    for (int i = 0; i < c->p->nstmts; i++) {
        const kn_stmt *s = c->p->stmts[i];
        if (s->out != tensor) continue;
        visit_reads(c, s->body);
        for (int k = 0; k < c->p->tensors[tensor].rank; k++) visit_reads(c, s->lhs[k]);
        c->order[c->norder++] = i;
    }
}

/* Numbers inputs in order of first use; those never read follow, sorted by colour. */
static void number_reads(canon *c, const kn_expr *e, int *n)
{
    if (e->op == KN_OP_LOAD && e->u.tensor < c->p->ninputs && c->tnew[e->u.tensor] < 0) c->tnew[e->u.tensor] = (*n)++;
    for (int i = 0; i < e->nargs; i++) number_reads(c, e->args[i], n);
}

static void number_tensors(canon *c)
{
    const kn_program *p = c->p;
    int n = 0;
    for (int t = 0; t < p->ntensors; t++) c->tnew[t] = -1;
    for (int i = 0; i < c->norder; i++) {
        const kn_stmt *s = p->stmts[c->order[i]];
        number_reads(c, s->body, &n);
        for (int k = 0; k < p->tensors[s->out].rank; k++) number_reads(c, s->lhs[k], &n);
    }
    while (n < p->ninputs) {
        int best = -1;
        for (int t = 0; t < p->ninputs; t++)
            if (c->tnew[t] < 0 && (best < 0 || c->tcolour[t] < c->tcolour[best])) best = t;
        c->tnew[best] = n++;
    }
    for (int t = 0; t < p->noutputs; t++) c->tnew[p->ninputs + t] = n++;
    for (int i = 0; i < c->norder; i++) {
        int out = p->stmts[c->order[i]]->out;
        if (c->tnew[out] < 0) c->tnew[out] = n++;
    }
}

/* Numbers the unnumbered axes of `set` (as coefficients) by colour, then by coefficient. */
static void number_set(canon *c, const kn_affine *set, int *n)
{
    const uint64_t *colour = c->acolour[c->stmt];
    for (;;) {
        int best = -1;
        for (int i = 0; i < c->p->stmts[c->stmt]->naxes; i++) {
            if (!set->coef[i] || c->anew[i] >= 0) continue;
            if (best < 0 || colour[i] < colour[best] || (colour[i] == colour[best] && set->coef[i] > set->coef[best])) best = i;
        }
        if (best < 0) return;
        c->anew[best] = (*n)++;
    }
}

static void number_axes(canon *c, const kn_expr *e, int *n)
{
    kn_affine f;
    if (as_affine(e, &f)) {
        number_set(c, &f, n);
        return;
    }
    for (int i = 0; i < e->nargs; i++) number_axes(c, e->args[i], n);
}

static kn_expr *from_affine(canon *c, const kn_affine *f)
{
    kn_expr *e = NULL;
    int64_t coef[KILN_MAX_AXES] = {0};
    for (int i = 0; i < c->p->stmts[c->stmt]->naxes; i++) coef[c->anew[i]] = f->coef[i];
    for (int i = 0; i < KILN_MAX_AXES; i++) {
        if (!coef[i]) continue;
        bool minus = e && coef[i] < 0 && coef[i] > INT64_MIN;
        kn_expr *t = kn_bin(c->a, KN_OP_MUL, kn_axis_ref(c->a, i), kn_const_i(c->a, KN_I64, minus ? -coef[i] : coef[i]));
        if (!(e = !e ? t : kn_bin(c->a, minus ? KN_OP_SUB : KN_OP_ADD, e, t))) return NULL;
    }
    int64_t o = f->offset;
    if (!e) return kn_const_i(c->a, KN_I64, o);
    if (o < 0 && o > INT64_MIN) return kn_bin(c->a, KN_OP_SUB, e, kn_const_i(c->a, KN_I64, -o));
    return kn_bin(c->a, KN_OP_ADD, e, kn_const_i(c->a, KN_I64, o));
}

static kn_expr *renamed(canon *c, const kn_program *to, kn_expr *e)
{
    kn_affine f;
    if (as_affine(e, &f)) return from_affine(c, &f);
    if (!e->nargs && e->op != KN_OP_LOAD) return e;
    kn_expr **args = kn_array(c->a, kn_expr *, e->nargs + 1);
    if (!args) return NULL;
    for (int i = 0; i < e->nargs; i++)
        if (!(args[i] = renamed(c, to, e->args[i]))) return NULL;
    kn_expr *r = kn_rebuild(c->a, e, args);
    if (r && r->op == KN_OP_LOAD) r->u.tensor = c->tnew[e->u.tensor];
    return r;
}

static kn_stmt *rename_stmt(canon *c, const kn_program *to, int i)
{
    const kn_stmt *s = c->p->stmts[i];
    kn_stmt *r = kn_new(c->a, kn_stmt);
    int rank = c->p->tensors[s->out].rank, n = s->nspatial;
    if (!r) return NULL;
    *r = *s;
    c->stmt = i;
    for (int k = 0; k < KILN_MAX_AXES; k++) c->anew[k] = k < s->nspatial ? k : -1;
    number_axes(c, s->body, &n);
    kn_affine rest = {0};
    for (int k = 0; k < s->naxes; k++) rest.coef[k] = 1;
    number_set(c, &rest, &n); /* reduce axes that the body does not use */
    r->out = c->tnew[s->out];
    for (int k = 0; k < rank; k++)
        if (!(r->lhs[k] = renamed(c, to, s->lhs[k]))) return NULL;
    if (!(r->body = renamed(c, to, s->body))) return NULL;
    for (int k = 0; k < s->naxes; k++) {
        int at = c->anew[k];
        r->axes[at] = s->axes[k];
        r->axes[at].reduce = at >= s->nspatial;
        r->axes[at].name = kn_format(c->a, at < s->nspatial ? "S%d" : "R%d", at < s->nspatial ? at : at - s->nspatial);
    }
    return r;
}

static kn_program *renamed_program(canon *c)
{
    kn_program *q = kn_program_new(c->a);
    if (!q) return NULL;
    q->ninputs = c->p->ninputs;
    q->noutputs = c->p->noutputs;
    for (int t = 0; t < c->p->ntensors; t++) {
        int to = c->tnew[t];
        if (to < 0) continue;
        q->tensors[to] = c->p->tensors[t];
        int base = to < q->ninputs ? 0 : to < q->ninputs + q->noutputs ? q->ninputs : q->ninputs + q->noutputs;
        q->tensors[to].name = kn_format(c->a, to < q->ninputs ? "in%d" : base == q->ninputs ? "out%d" : "t%d", to - base);
        q->ntensors++;
    }
    for (int i = 0; i < c->norder; i++)
        if (!(q->stmts[q->nstmts++] = rename_stmt(c, q, c->order[i]))) return NULL;
    return q;
}

static bool normalise(canon *c)
{
    for (int i = 0; i < c->p->nstmts; i++) {
        kn_stmt *s = c->p->stmts[i];
        c->stmt = i;
        for (int k = 0; k < c->p->tensors[s->out].rank; k++)
            if (!(s->lhs[k] = kn_simplify(c->a, s->lhs[k], kn_stmt_range, s))) return false;
        if (!(s->body = kn_simplify(c->a, s->body, kn_stmt_range, s))) return false;
        if (!(s->body = kn_rewrite(c->a, s->body, unpad, c))) return false;
    }
    find_live(c);
    start_colours(c);
    for (int i = 0; i < ROUNDS; i++) refine(c);
    for (int i = 0; i < c->p->nstmts; i++) {
        kn_stmt *s = c->p->stmts[i];
        c->stmt = i;
        if (!(s->body = sorted(c, s->body))) return false;
        for (int k = 0; k < c->p->tensors[s->out].rank; k++)
            if (!(s->lhs[k] = sorted(c, s->lhs[k]))) return false;
    }
    return true;
}

kiln_status kn_canon(kiln_arena *a, const kn_program *p, kn_program **out, int *in_perm, int *out_perm, kiln_diag *d)
{
    canon *c = kn_new(a, canon);
    kn_program *q = NULL;
    if (c) {
        c->a = a;
        if ((c->p = kn_program_clone(a, p)) && normalise(c)) {
            for (int t = 0; t < p->noutputs; t++) visit(c, p->ninputs + t);
            number_tensors(c);
            q = renamed_program(c);
        }
    }
    if (!q || kn_arena_dry(a)) return kn_fail(d, KILN_MEMORY, "out of memory");
    for (int t = 0; t < p->ninputs; t++) in_perm[c->tnew[t]] = t;
    for (int t = 0; t < p->noutputs; t++) out_perm[t] = t;
    *out = q;
    return KILN_OK;
}
