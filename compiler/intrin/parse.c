/* Reads the compute abstraction of an instruction: one statement of the expression language; its indices give the operands' shapes. */
#include "intrin/intrin.h"
#include <string.h>

typedef struct reader {
    kiln_arena *a;
    const kn_hw_intrin *spec;
    const char *at;
    kiln_diag *d;
} reader;

static kiln_status refuse(reader *r, const char *member, const char *text, const char *what)
{
    const char *place = kn_format(r->a, "%s/%s", r->at, member);
    kn_fail_at(r->d, KILN_HWSPEC, place ? place : r->at, "instruction \"%s\": %s%s", r->spec->name, text ? text : "", what ? what : "");
    kn_hint(r->d, "compute: one statement over operands, every loop with its extent: \"d[I,J] +=! a[I,R] * b[R,J] where I in 16, J in 16, R in "
                  "16\"; dtypes: every operand once: \"d=f32 a=f32 b=f32\"");
    return KILN_HWSPEC;
}

int kn_intrin_rank_in(const char *text, const char *name, size_t n)
{
    for (const char *p = text; (p = strstr(p, name)); p++) {
        if ((p > text && kn_intrin_word(p[-1])) || kn_intrin_word(p[n])) continue;
        const char *q = p + n + strspn(p + n, " \t");
        if (*q != '[') return 0;
        int depth = 0, rank = 0;
        bool any = false;
        for (q++; *q && !(*q == ']' && depth == 0); q++) {
            depth += (*q == '[' || *q == '(') - (*q == ']' || *q == ')');
            rank += *q == ',' && depth == 0;
            any |= *q != ' ';
        }
        return any ? rank + 1 : 0;
    }
    return -1;
}

/* The destination is the name the text begins with. */
static size_t destination(const char *text, const char **name)
{
    size_t n = 0;
    *name = text + strspn(text, " \t");
    while (kn_intrin_word((*name)[n])) n++;
    return n;
}

/* The operator behind the left side: the expression language calls a reduction over no axis a map, an instruction accumulates all the same. */
static enum kn_reduce operator_in(const char *text)
{
    static const struct { const char *text; enum kn_reduce red; } ops[] = {
        { "+=", KN_RED_SUM }, { "*=", KN_RED_PROD }, { ">=", KN_RED_MAX }, { "max=", KN_RED_MAX }, { "<=", KN_RED_MIN },
        { "min=", KN_RED_MIN }, { "&=", KN_RED_ALL }, { "|=", KN_RED_ANY },
    };
    const char *p, *close;
    size_t n = destination(text, &p);
    p += n;
    p += strspn(p, " \t");
    if (*p == '[' && (close = strchr(p, ']'))) p = close + 1;
    p += strspn(p, " \t");
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (!strncmp(p, ops[i].text, strlen(ops[i].text))) return ops[i].red;
    return KN_RED_NONE;
}

/* Extent that stands for "not known yet" in every dimension of an operand of this rank; the tensor stays within the limit of elements. */
static int64_t open_extent(int rank) { return (int64_t)1 << (rank == 0 ? 0 : 40 / rank < 30 ? 40 / rank : 30); }

/* Declares the sources, with open extents, for the parser of expressions; the destination's dtype goes to *out. */
static kiln_status declare(reader *r, kn_buf *b, enum kn_dtype *out)
{
    const char *dest, *p = r->spec->dtypes;
    size_t ndest = destination(r->spec->compute, &dest), n;
    bool found = false;
    for (int sources = 0; *(p += strspn(p, " ,")); p += n) {
        n = strcspn(p, " ,");
        size_t eq = strcspn(p, "=");
        enum kn_dtype t;
        const char *name = eq && eq < n ? kn_strndup(r->a, p, eq) : NULL;
        if (!name || !kn_dtype_find(p + eq + 1, n - eq - 1, &t)) return refuse(r, "dtypes", "", "not a list of NAME=DTYPE");
        int rank = kn_intrin_rank_in(r->spec->compute, name, eq);
        if (rank < 0) return refuse(r, "dtypes", name, " is no operand of its compute text");
        if (eq == ndest && !memcmp(name, dest, eq)) {
            *out = t;
            found = true;
            continue;
        }
        if (rank > KILN_MAX_RANK || ++sources >= KN_INTRIN_OPERANDS) return refuse(r, "compute", "", "too many operands or dimensions");
        kn_putf(b, "%s%s=%s[", b->n ? "&" : "", name, kn_dtype_text(t));
        for (int i = 0; i < rank; i++) kn_putf(b, "%s%lld", i ? "," : "", (long long)open_extent(rank));
        kn_put(b, "]");
    }
    return found ? KILN_OK : refuse(r, "dtypes", "", "the destination has no dtype");
}

static void loop_range(void *user, const kn_expr *leaf, int64_t *lo, int64_t *hi)
{
    const kn_stmt *s = user;
    *lo = 0;
    *hi = leaf->op == KN_OP_AXIS ? s->axes[leaf->u.axis].extent - 1 : 0;
}

/* Shape and access of an operand from its indices. */
static kiln_status measure(reader *r, kn_intrin *it, kn_intrin_operand *o, int tensor, kn_expr *const *idx)
{
    kn_tensor *x = (kn_tensor *)&it->program->tensors[tensor];
    *o = (kn_intrin_operand){ .name = x->name, .dtype = x->dtype, .rank = x->rank, .elems = 1 };
    for (int d = 0; d < x->rank; d++) {
        int64_t lo, hi;
        int used = 0;
        if (!kn_affine_of(idx[d], &o->index[d]) || !kn_expr_range(idx[d], loop_range, (void *)(uintptr_t)it->s, &lo, &hi) || lo < 0)
            return refuse(r, "compute", x->name, ": an index is no sum of multiples of loops");
        x->shape[d] = o->shape[d] = hi + 1;
        o->lone[d] = -1;
        for (int l = 0; l < it->nloops; l++) {
            if (!o->index[d].coef[l]) continue;
            o->loops |= 1u << l;
            o->lone[d] = used++ == 0 && o->index[d].coef[l] == 1 && !o->index[d].offset ? l : -1;
        }
        if (!kn_mul_fits(o->elems, o->shape[d], &o->elems) || o->elems > KN_INTRIN_POINTS)
            return refuse(r, "compute", x->name, ": the operand is too large");
    }
    return KILN_OK;
}

static kiln_status sources(reader *r, kn_intrin *it)
{
    const kn_expr *loads[KILN_MAX_TENSORS], *seen[KN_INTRIN_OPERANDS] = { NULL };
    int n = kn_loads(it->s->body, loads, KILN_MAX_TENSORS);
    if (n > KILN_MAX_TENSORS) return refuse(r, "compute", "", "too many operands");
    for (int i = 0; i < n; i++) {
        const char *name = it->program->tensors[loads[i]->u.tensor].name;
        int k = 1;
        while (k < it->noperands && seen[k]->u.tensor != loads[i]->u.tensor) k++;
        if (loads[i]->padded) return refuse(r, "compute", name, ": an operand has no padding");
        if (k < it->noperands && !kn_expr_equal(seen[k], loads[i])) return refuse(r, "compute", name, ": read at two places");
        if (k < it->noperands) continue;
        seen[it->noperands++] = loads[i];
        kiln_status st = measure(r, it, &it->operand[k], loads[i]->u.tensor, loads[i]->args);
        if (st) return st;
    }
    return it->noperands - 1 == it->program->ninputs ? KILN_OK : refuse(r, "dtypes", "", "an operand is listed that is never read");
}

static kiln_status loops(reader *r, kn_intrin *it)
{
    const char *where = strstr(r->spec->compute, "where");
    it->nloops = it->s->naxes;
    it->nspatial = it->s->nspatial;
    it->points = 1;
    if (it->nloops > KN_INTRIN_LOOPS) return refuse(r, "compute", "", "too many loops");
    for (int l = 0; l < it->nloops; l++) {
        const kn_axis *x = &it->s->axes[l];
        if (!where || kn_intrin_rank_in(where, x->name, strlen(x->name)) < 0) return refuse(r, "compute", x->name, " has no extent");
        if (!kn_mul_fits(it->points, x->extent, &it->points) || it->points > KN_INTRIN_POINTS)
            return refuse(r, "compute", x->name, ": more than 2^20 iterations");
    }
    return KILN_OK;
}

/* Every loop has an extent of its own: one that is taken from the operands, whose shapes are not known, would be anything. */
static kiln_status extents(reader *r)
{
    const char *where = strstr(r->spec->compute, " where");
    for (const char *p = r->spec->compute; where && p != where;) {
        size_t n = 0;
        while (kn_intrin_word(p[n])) n++;
        const char *name = n && *p >= 'A' && *p <= 'Z' ? kn_strndup(r->a, p, n) : NULL;
        if (name && kn_intrin_rank_in(where, name, n) < 0) return refuse(r, "compute", name, " has no extent");
        p += n ? n : 1;
    }
    return KILN_OK;
}

kiln_status kn_intrin_parse(kiln_arena *a, const kn_hw_intrin *spec, const char *at, const kn_intrin **out, kiln_diag *d)
{
    reader r = { a, spec, at, d };
    kn_intrin *it = kn_new(a, kn_intrin);
    kn_program *p;
    kn_buf b;
    enum kn_dtype dest = KN_F32;
    if (!it) return kn_fail(d, KILN_MEMORY, "out of memory");
    kn_buf_init(&b, a);
    kiln_status st = declare(&r, &b, &dest);
    if (!st) st = extents(&r);
    if (st) return st;
    kiln_bytes inputs = kn_buf_take(&b);
    if (!inputs.p) return kn_fail(d, KILN_MEMORY, "out of memory");
    st = kn_parse(a, (kiln_bytes){ spec->compute, strlen(spec->compute) }, inputs, &p, d);
    if (st == KILN_MEMORY || st == KILN_STOPPED) return st;
    if (st) return refuse(&r, "compute", "", kn_format(a, "%d:%d: %s", d->line, d->col, d->message));
    if (p->nstmts != 1 || p->stmts[0]->scatter) return refuse(&r, "compute", "", "one statement without scattering is wanted");
    *it = (kn_intrin){ .name = spec->name, .spec = spec, .warp = kn_warp_find(spec), .program = p, .s = p->stmts[0], .noperands = 1 };
    it->red = operator_in(spec->compute);
    if (p->tensors[it->s->out].dtype != dest) {
        const char *is = kn_dtype_text(p->tensors[it->s->out].dtype);
        return refuse(&r, "dtypes", kn_format(a, "what is computed is %s, ", is), "not the destination's dtype");
    }
    st = loops(&r, it);
    if (!st) st = measure(&r, it, &it->operand[0], it->s->out, it->s->lhs);
    if (!st) st = sources(&r, it);
    if (!st) st = kn_intrin_memory(a, it, at, d);
    if (!st) st = kn_intrin_read_fewer(a, it, at, d);
    if (!st) *out = it;
    return st;
}

kiln_status kn_intrins_parse(kiln_arena *a, kn_hw *hw, kiln_diag *d)
{
    for (int i = 0; i < hw->nintrins; i++) {
        const char *at = kn_format(a, "/intrinsics/%d", i);
        if (!at) return kn_fail(d, KILN_MEMORY, "out of memory");
        for (int k = 0; k < i; k++) {
            if (strcmp(hw->intrins[k].name, hw->intrins[i].name)) continue;
            kn_fail_at(d, KILN_HWSPEC, kn_format(a, "%s/name", at), "two instructions are named \"%s\"", hw->intrins[i].name);
            kn_hint(d, "another name");
            return KILN_HWSPEC;
        }
        kiln_status st = kn_intrin_parse(a, &hw->intrins[i], at, &hw->intrins[i].parsed, d);
        if (kn_arena_dry(a)) return kn_fail(d, KILN_MEMORY, "out of memory"); /* and no fault of the text */
        if (st) return st;
    }
    return KILN_OK;
}

int kn_intrin_axis(const kn_stmt *s, const char *name, size_t n)
{
    for (int i = 0; i < s->naxes; i++)
        if (strlen(s->axes[i].name) == n && !memcmp(s->axes[i].name, name, n)) return i;
    return -1;
}

int kn_intrin_operand_of(const kn_intrin *it, int tensor)
{
    for (int i = 0; i < it->noperands; i++)
        if (!strcmp(it->operand[i].name, it->program->tensors[tensor].name)) return i;
    return -1;
}

bool kn_intrin_brief(const kn_intrin *it)
{
    return it->spec->sum_bits && it->spec->sum_bits < kn_dtype_significand(it->operand[0].dtype);
}
