/* Reads the memory abstraction of an instruction (AMOS, ISCA'22, section 4.2): for each operand one statement of the expression language that says
 * in which scope it is and at which place of a dense tile there each element stands, "b[R,J] = tile[R//2,J,R%2]". */
#include "intrin/intrin.h"
#include "te/expr.h"
#include <string.h>

enum { COUNTED = 1 << 16 }; /* elements of an operand whose places are looked at one by one */

static const struct { const char *name, *about; } scopes[] = {
#define X(name, member, about) {name, about},
#include "intrin/scopes.def"
#undef X
};
enum { SCOPES = sizeof scopes / sizeof *scopes };

typedef struct reader {
    kiln_arena *a;
    const kn_hw_intrin *spec;
    kn_intrin *it;
    const char *at;
    kiln_diag *d;
} reader;

static kiln_status refuse(reader *r, const char *operand, const char *what)
{
    const char *place = kn_format(r->a, "%s/memory", r->at);
    kn_fail_at(r->d, KILN_HWSPEC, place ? place : r->at, "instruction \"%s\": %s%s%s", r->spec->name, operand ? "operand " : "",
               operand ? operand : "", what ? what : "");
    kn_hint(r->d, "one statement an operand, its indices as in compute, every element at a place of its own and no place left empty: \"a[I,R] = "
                  "register[I,R]; b[R,J] = tile[R//2,J,R%%2]\"");
    return KILN_HWSPEC;
}

const char *kn_intrin_scope_text(enum kn_intrin_scope s) { return scopes[s].name; }

static int scope_named(const char *name)
{
    for (int i = 0; i < SCOPES; i++)
        if (!strcmp(scopes[i].name, name)) return i;
    return -1;
}

static const char *word_at(kiln_arena *a, const char *p)
{
    size_t n = 0;
    while (kn_intrin_word(p[n])) n++;
    return kn_strndup(a, p, n);
}

/* ---- places ---- */

/* Digits of an index of the place, each with the factor before it: what the index is the sum of. False: it is no such sum. */
typedef struct sum { int n; kn_intrin_digit digit[KN_INTRIN_DIGITS]; int64_t coef[KN_INTRIN_DIGITS]; } sum;

static bool sum_of(const kn_intrin_operand *o, const kn_expr *e, sum *s)
{
    sum y;
    if (e->op == KN_OP_CONST_I) return s->n = 0, e->u.i == 0;
    if (e->op == KN_OP_AXIS) {
        *s = (sum){.n = o->shape[e->u.axis] > 1, .digit = {{e->u.axis, 1, o->shape[e->u.axis]}}, .coef = {1}};
        return true;
    }
    if (e->nargs != 2 || !sum_of(o, e->args[0], s)) return false;
    if (e->op == KN_OP_ADD) {
        if (!sum_of(o, e->args[1], &y) || s->n + y.n > KN_INTRIN_DIGITS) return false;
        for (int i = 0; i < y.n; i++, s->n++) s->digit[s->n] = y.digit[i], s->coef[s->n] = y.coef[i];
        return true;
    }
    if (e->args[1]->op != KN_OP_CONST_I || e->args[1]->u.i <= 0 || e->args[1]->u.i > KN_INTRIN_POINTS) return false;
    int64_t by = e->args[1]->u.i;
    for (int i = 0; i < s->n && e->op == KN_OP_MUL; i++)
        if (!kn_mul_fits(s->coef[i], by, &s->coef[i])) return false;
    if (e->op == KN_OP_MUL || !s->n) return e->op == KN_OP_MUL || e->op == KN_OP_FLOORDIV || e->op == KN_OP_MOD;
    kn_intrin_digit *g = &s->digit[0];
    if (s->n != 1 || s->coef[0] != 1 || (g->count > by && g->count % by)) return false;
    if (e->op == KN_OP_MOD) g->count = g->count < by ? g->count : by;
    else if (e->op == KN_OP_FLOORDIV) s->n = g->count > by, g->by *= by, g->count /= by;
    else return false;
    return true;
}

/* The largest factor first. */
static void sort(sum *s)
{
    for (int i = 1; i < s->n; i++)
        for (int k = i; k > 0 && s->coef[k] > s->coef[k - 1]; k--) {
            kn_intrin_digit g = s->digit[k];
            int64_t c = s->coef[k];
            s->digit[k] = s->digit[k - 1], s->coef[k] = s->coef[k - 1];
            s->digit[k - 1] = g, s->coef[k - 1] = c;
        }
}

static const char *digit_text(reader *r, const kn_intrin_operand *o, const char *const *axis, kn_intrin_digit g)
{
    const char *by = g.by > 1 ? kn_format(r->a, "//%lld", (long long)g.by) : "";
    const char *mod = g.by * g.count < o->shape[g.dim] ? kn_format(r->a, "%%%lld", (long long)g.count) : "";
    return kn_format(r->a, "%s%s%s", axis[g.dim], by ? by : "", mod ? mod : "");
}

/* The digits of every index of the operand are there, once each. */
static kiln_status check_digits(reader *r, const kn_intrin_operand *o, const char *const *axis)
{
    for (int d = 0; d < o->rank; d++) {
        int64_t have = 1;
        for (int i = 0; i < o->ndigits;) { /* those of dimension d, from the lowest on */
            if (o->digit[i].dim != d || o->digit[i].by != have) i++;
            else have *= o->digit[i].count, i = 0;
        }
        int64_t next = o->shape[d]; /* the lowest digit that is there above those */
        for (int i = 0; i < o->ndigits; i++)
            if (o->digit[i].dim == d && o->digit[i].by > have && o->digit[i].by < next) next = o->digit[i].by;
        if (have < o->shape[d])
            return refuse(r, o->name, kn_format(r->a, ": no place for %s of its index %d: elements would stand on each other",
                                                digit_text(r, o, axis, (kn_intrin_digit){d, have, next / have}), d));
    }
    int64_t all = 1;
    for (int i = 0; i < o->ndigits; i++)
        if (!kn_mul_fits(all, o->digit[i].count, &all) || all > o->elems)
            return refuse(r, o->name, kn_format(r->a, ": %s stands there twice: places would be left empty", digit_text(r, o, axis, o->digit[i])));
    return KILN_OK;
}

/* All places as digits in row-major order. *form: they are that. */
static kiln_status read_digits(reader *r, kn_intrin_operand *o, const char *const *axis, bool *form)
{
    o->ndigits = 0;
    for (int k = 0; k < o->nplace; k++) {
        sum s;
        int64_t want = 1;
        *form = sum_of(o, o->place[k], &s) && o->ndigits + s.n <= KN_INTRIN_DIGITS;
        if (!*form) return KILN_OK;
        sort(&s);
        for (int i = s.n - 1; i >= 0; i--) {
            if (s.coef[i] != want)
                return refuse(r, o->name, kn_format(r->a, ": index %d of %s is not dense: the factor of %s is %lld, %lld would be right", k,
                                                    scopes[o->scope].name, digit_text(r, o, axis, s.digit[i]), (long long)s.coef[i],
                                                    (long long)want));
            if (!kn_mul_fits(want, s.digit[i].count, &want)) return refuse(r, o->name, ": too many places");
        }
        for (int i = 0; i < s.n; i++) o->digit[o->ndigits++] = s.digit[i];
    }
    return check_digits(r, o, axis);
}

/* ---- any other layout: its places one by one ---- */

static bool value_of(const kn_expr *e, const int64_t *idx, int64_t *out)
{
    int64_t x, y;
    if (e->op == KN_OP_CONST_I) return *out = e->u.i, true;
    if (e->op == KN_OP_AXIS) return *out = idx[e->u.axis], true;
    if (e->nargs != 2 || !value_of(e->args[0], idx, &x) || !value_of(e->args[1], idx, &y)) return false;
    switch (e->op) {
    case KN_OP_ADD: return !__builtin_add_overflow(x, y, out);
    case KN_OP_SUB: return !__builtin_sub_overflow(x, y, out);
    case KN_OP_MUL: return !__builtin_mul_overflow(x, y, out);
    case KN_OP_FLOORDIV: return y > 0 && (*out = kn_floor_div(x, y), true);
    case KN_OP_MOD: return y > 0 && (*out = kn_floor_mod(x, y), true);
    case KN_OP_MIN: return *out = x < y ? x : y, true;
    case KN_OP_MAX: return *out = x > y ? x : y, true;
    default: return false;
    }
}

static const char *element_text(reader *r, const kn_intrin_operand *o, int64_t number)
{
    const char *text = "";
    for (int d = o->rank - 1; d >= 0; d--) {
        text = kn_format(r->a, "%lld%s%s", (long long)(number % o->shape[d]), *text ? "," : "", text);
        number /= o->shape[d];
        if (!text) return "";
    }
    return text;
}

/* The place of element `number`; -1: it has none. */
static int64_t place_of(const kn_intrin_operand *o, int64_t number)
{
    int64_t idx[KILN_MAX_RANK] = {0}, at = 0, x;
    for (int d = o->rank - 1; d >= 0; d--) idx[d] = number % o->shape[d], number /= o->shape[d];
    for (int k = 0; k < o->nplace; k++) {
        if (!value_of(o->place[k], idx, &x) || x < 0 || x >= o->place_shape[k]) return -1;
        at = at * o->place_shape[k] + x;
    }
    return at;
}

static kiln_status count_places(reader *r, const kn_intrin_operand *o)
{
    int64_t places = 1;
    for (int k = 0; k < o->nplace; k++)
        if (!kn_mul_fits(places, o->place_shape[k], &places) || places > COUNTED)
            return refuse(r, o->name, ": too many places to be looked at one by one");
    if (o->elems > places) return refuse(r, o->name, kn_format(r->a, ": %lld places for %lld elements", (long long)places, (long long)o->elems));
    int32_t *owner = kn_array(r->a, int32_t, places);
    if (!owner) return kn_fail(r->d, KILN_MEMORY, "out of memory");
    for (int64_t i = 0; i < o->elems; i++) {
        int64_t at = place_of(o, i);
        if (at < 0) return refuse(r, o->name, ": a place is made of indices, numbers, + - * // % min and max");
        if (owner[at])
            return refuse(r, o->name, kn_format(r->a, ": elements [%s] and [%s] stand at the same place", element_text(r, o, owner[at] - 1),
                                                element_text(r, o, i)));
        owner[at] = (int32_t)i + 1;
    }
    if (places > o->elems) return refuse(r, o->name, kn_format(r->a, ": %lld places for %lld elements", (long long)places, (long long)o->elems));
    return KILN_OK;
}

/* ---- statements ---- */

static kn_expr *by_dimension(void *user, kiln_arena *a, kn_expr *e)
{
    const int *dim = user;
    if (e->op != KN_OP_AXIS) return e;
    kn_expr *x = kn_new(a, kn_expr);
    if (!x) return e;
    *x = *e;
    x->u.axis = dim[e->u.axis];
    return x;
}

static void place_range(void *user, const kn_expr *leaf, int64_t *lo, int64_t *hi)
{
    const kn_intrin_operand *o = user;
    *lo = 0;
    *hi = leaf->op == KN_OP_AXIS ? o->shape[leaf->u.axis] - 1 : 0;
}

/* The left side: the operand's indices as compute has them, by the names there. */
static kiln_status check_left(reader *r, const kn_intrin_operand *o, const kn_stmt *s, int *dim, const char **axis)
{
    for (int d = 0; d < o->rank; d++) {
        const kn_axis *x = s->lhs[d]->op == KN_OP_AXIS ? &s->axes[s->lhs[d]->u.axis] : NULL;
        if (!x) return refuse(r, o->name, kn_format(r->a, ": index %d on the left is no name of an index", d));
        const char *want = o->lone[d] < 0 ? NULL : r->it->s->axes[o->lone[d]].name;
        if (want && strcmp(want, x->name))
            return refuse(r, o->name, kn_format(r->a, ": index %d is %s on the left, and %s in compute", d, x->name, want));
        dim[s->lhs[d]->u.axis] = d;
        axis[d] = x->name;
    }
    return KILN_OK;
}

/* Everything in its order, in the scope where it is: for that no statement is needed. */
static bool usual(const kn_intrin_operand *o)
{
    int64_t left = 1;
    int d = 0;
    for (int i = 0; i < o->ndigits; i++) {
        while (left == 1 && d < o->rank && o->shape[d] == 1) d++;
        if (left == 1) left = o->shape[d];
        if (o->digit[i].dim != d || o->digit[i].by * o->digit[i].count != left) return false;
        left = o->digit[i].by;
        d += left == 1;
    }
    return true;
}

static kiln_status read_place(reader *r, kn_intrin_operand *o, const kn_program *p, int scope)
{
    const kn_stmt *s = p->stmts[0];
    const char *axis[KILN_MAX_RANK] = {NULL};
    int dim[KILN_MAX_AXES] = {0};
    bool form = true;
    kiln_status bad = check_left(r, o, s, dim, axis);
    if (bad) return bad;
    if (s->body->op != KN_OP_LOAD || s->body->padded || s->naxes > o->rank)
        return refuse(r, o->name, ": the right side is one place, SCOPE[INDICES]");
    o->scope = (enum kn_intrin_scope)scope;
    o->nplace = s->body->nargs;
    for (int k = 0; k < o->nplace; k++) {
        int64_t lo, hi;
        o->place[k] = kn_rewrite(r->a, s->body->args[k], by_dimension, dim);
        if (kn_arena_dry(r->a)) return kn_fail(r->d, KILN_MEMORY, "out of memory");
        if (!kn_expr_range(o->place[k], place_range, o, &lo, &hi) || lo < 0 || hi >= KN_INTRIN_POINTS)
            return refuse(r, o->name, kn_format(r->a, ": index %d of %s has no known range", k, scopes[scope].name));
        o->place_shape[k] = hi + 1;
    }
    bad = read_digits(r, o, axis, &form);
    if (!form) o->ndigits = 0, bad = count_places(r, o);
    o->plain = form && usual(o);
    return bad;
}

/* Statement `text`, at column `col` of the member. */
static kiln_status read_statement(reader *r, const char *text, int col, uint32_t *seen)
{
    const char *name = word_at(r->a, text), *equals = strchr(text, '='), *left = strchr(text, '[');
    const char *from = equals ? equals + 1 + strspn(equals + 1, " \t") : "";
    const char *scope = word_at(r->a, from);
    kn_program *p;
    kn_buf b;
    int o = 0;
    if (!name || !scope) return kn_fail(r->d, KILN_MEMORY, "out of memory");
    while (o < r->it->noperands && strcmp(r->it->operand[o].name, name)) o++;
    if (o == r->it->noperands) return refuse(r, NULL, kn_format(r->a, "\"%s\" is no operand of compute", *name ? name : text));
    if (*seen >> o & 1) return refuse(r, name, ": stands there twice");
    *seen |= 1u << o;
    kn_intrin_operand *op = &r->it->operand[o];
    int rank = kn_intrin_rank_in(from, scope, strlen(scope)), s = scope_named(scope);
    if (s < 0 || rank < 0 || rank > KILN_MAX_RANK) {
        kn_buf_init(&b, r->a);
        for (int i = 0; i < SCOPES; i++) kn_putf(&b, "%s%s", i ? ", " : "", scopes[i].name);
        return refuse(r, name, kn_format(r->a, ": \"%s\" is no scope; there are %s", scope, kn_buf_take(&b).p));
    }
    if (strchr(from, '[') && !strchr(from, ']')) return refuse(r, name, ": the place has no ']'");
    if (kn_intrin_rank_in(text, name, strlen(name)) != op->rank || (left && equals && left > equals && op->rank))
        return refuse(r, name, kn_format(r->a, ": the left side has other indices than the %d in compute", op->rank));
    kn_buf_init(&b, r->a);
    for (int i = 1; i < col; i++) kn_put(&b, " "); /* errors have the column of the member */
    kn_put(&b, text);
    const char *q = left ? left + 1 : "";
    for (int d = 0; d < op->rank; d++) {
        q += strspn(q, " \t,");
        const char *axis = word_at(r->a, q);
        kn_putf(&b, "%s%s in %lld", d ? ", " : " where ", axis ? axis : "", (long long)op->shape[d]);
        q += strcspn(q, ",]");
    }
    kiln_bytes whole = kn_buf_take(&b);
    kn_buf_init(&b, r->a);
    kn_putf(&b, "%s=%s[", scope, kn_dtype_text(op->dtype));
    for (int i = 0; i < rank; i++) kn_putf(&b, "%s%lld", i ? "," : "", (long long)((int64_t)1 << (40 / rank < 30 ? 40 / rank : 30)));
    kn_put(&b, "]");
    kiln_bytes inputs = kn_buf_take(&b);
    if (!whole.p || !inputs.p) return kn_fail(r->d, KILN_MEMORY, "out of memory");
    kiln_status bad = kn_parse(r->a, whole, inputs, &p, r->d);
    if (bad == KILN_MEMORY || bad == KILN_STOPPED) return bad;
    if (bad) return refuse(r, name, kn_format(r->a, ": %d:%d: %s", r->d->line, r->d->col, r->d->message));
    if (p->nstmts != 1 || p->stmts[0]->scatter || p->stmts[0]->red != KN_RED_NONE) return refuse(r, name, ": one statement with \"=\" is wanted");
    return read_place(r, op, p, s);
}

kiln_status kn_intrin_memory(kiln_arena *a, kn_intrin *it, const char *at, kiln_diag *d)
{
    reader r = {a, it->spec, it, at, d};
    uint32_t seen = 0;
    for (int o = 0; o < it->noperands; o++) it->operand[o].plain = true, it->operand[o].scope = o ? KN_SCOPE_GLOBAL : KN_SCOPE_REGISTER;
    for (const char *p = it->spec->memory; p && *(p += strspn(p, " \t;"));) {
        size_t n = strcspn(p, ";");
        const char *text = kn_strndup(a, p, n);
        if (!text) return kn_fail(d, KILN_MEMORY, "out of memory");
        kiln_status bad = read_statement(&r, text, (int)(p - it->spec->memory) + 1, &seen);
        if (bad) return bad;
        p += n;
    }
    return KILN_OK;
}
