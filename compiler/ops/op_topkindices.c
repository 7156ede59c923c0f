/* TopKIndices: where the k largest (smallest) elements along an axis stand, in order, the first of equal ones first. Models have it as TopK, with
 * the elements beside.
 *
 * A few are found one after the other: the extremum of what comes after the one before, and where it stands first, two passes over the axis each.
 * More have a rank, how many elements precede theirs: n comparisons an element, all independent of each other. Of long axes blocks are ranked first,
 * by their extrema: the first k elements lie in the first k blocks, since k elements precede all of any other; and so on with smaller blocks of
 * these. Where k is too many for blocks to leave much out, the first k are selected before they are ranked (select.c). */
#include "ops/ops.h"
#include <math.h>

enum { MOST = 16384, STEPS = 5, EASY = 4, LEVELS = 3 };
static const kn_attr_spec attrs[] = {{"k", 'i', "mandatory", "how many"},
                                     {"axis", 'i', "-1", "axis along which elements are compared"},
                                     {"largest", 'i', "1", "0: the smallest"},
                                     {"sorted", 'i', "1", "they always are"},
                                     {NULL, 0, NULL, NULL}};

/* lead and tail: the other axes, "A0,A1," and ",A3"; over: what precedes is over the others; last: what nothing comes after; count: integers
 * that count elements. block: sizes of blocks, each of which divides the one before. */
typedef struct topk { const char *lead, *tail, *rows, *over, *last, *count; int64_t n, k, block[LEVELS]; int levels; } topk;

/* The indices of an element whose place along the axis is called `name`. */
static const char *at(kn_op_call *c, const topk *t, const char *name)
{
    const char *s = kn_format(c->arena, "%s%s%s", t->lead, name, t->tail);
    return s ? s : "";
}

static const char *read_at(kn_op_call *c, const topk *t, const char *name) { return kn_op_read(c, 0, at(c, t, name)); }

/* The value after which there is none, of the dtype that is compared. */
static const char *extreme(kn_op_call *c, bool least)
{
    enum kn_dtype d = c->in[0].dtype;
    char class = kn_dtype_class(d);
    const char *type = *kn_op_wide(c) ? "f32" : kn_dtype_text(d);
    if (class == 'f') return kn_format(c->arena, "cast(%s,%s)", least ? "-inf" : "inf", type);
    if (class == 'u') return kn_format(c->arena, "cast(%s,%s)", least ? "0" : "-1", type);
    unsigned long long most = (UINT64_C(1) << (8 * kn_dtype_bytes(d) - 1)) - 1;
    return kn_format(c->arena, least ? "cast(-%llu - 1,%s)" : "cast(%llu,%s)", most, type);
}

/* Step J: m is the extremum of what comes after element i of the step before, and i where it stands first; NaN comes nowhere. */
static void step(kn_op_call *c, const topk *t, int j)
{
    const char *x = read_at(c, t, "I"), *r = t->rows, *assign = *t->over == '>' ? ">=!" : "<=!", *beyond = *t->over == '>' ? "<" : ">";
    kn_putf(&c->text, "m%d[%s] %s ", j, r, assign);
    if (j) {
        kn_putf(&c->text, "select(%s %s m%d[%s] || %s == m%d[%s] && cast(I,i32) > i%d[%s], %s, %s)", x, beyond, j - 1, r, x, j - 1, r,
                j - 1, r, x, t->last);
    } else {
        kn_put(&c->text, x);
    }
    kn_putf(&c->text, "%s; i%d[%s] <=! select(%s == m%d[%s]", kn_op_wide(c), j, r, x, j, r);
    if (j) kn_putf(&c->text, " && cast(I,i32) > select(m%d[%s] == m%d[%s], i%d[%s], cast(-1,i32))", j, r, j - 1, r, j - 1, r);
    kn_putf(&c->text, ", cast(I,i32), cast(%lld,i32)) where I in %lld : i32; ", (long long)(t->n - 1), (long long)t->n);
}

static void in_steps(kn_op_call *c, const topk *t)
{
    for (int j = 0; j < t->k; j++) step(c, t, j);
    kn_putf(&c->text, "y[%s] = cast(", at(c, t, "K"));
    for (int j = 0; j + 1 < t->k; j++) kn_putf(&c->text, "select(K == %d, i%d[%s], ", j, j, t->rows);
    kn_putf(&c->text, "i%d[%s]", (int)t->k - 1, t->rows);
    for (int j = 0; j + 1 < t->k; j++) kn_put(&c->text, ")");
    kn_putf(&c->text, ", i64) where K in %lld", (long long)t->k);
}

/* A sum of what precedes i: of every j that is over it, or equal and, by the condition `before`, earlier; as wide as the elements, which are as many
 * in a vector then. */
static void count(kn_op_call *c, const topk *t, const char *i, const char *j, const char *before)
{
    kn_putf(&c->text, " +=! select(%s %s %s || %s == %s && %s, cast(1,%s), cast(0,%s))", j, t->over, i, j, i, before, t->count, t->count);
}

static void by_rank(kn_op_call *c, const topk *t)
{
    kn_putf(&c->text, "g[%s]", at(c, t, "I"));
    count(c, t, read_at(c, t, "I"), read_at(c, t, "J"), "J < I");
    kn_putf(&c->text, " where I in %lld, J in %lld : %s; ", (long long)t->n, (long long)t->n, t->count);
    kn_putf(&c->text, "y[%s] +=! select(g[%s] == cast(K,%s), cast(I,i32), cast(0,i32)) where K in %lld, I in %lld : i64", at(c, t, "K"),
            at(c, t, "I"), t->count, (long long)t->k, (long long)t->n);
}

/* Element `at` of level l; level 0 is the input, filled up with what comes last. */
static const char *element(kn_op_call *c, const topk *t, int l, const char *name)
{
    const char *read = l ? kn_format(c->arena, "v%d[%s]", l, at(c, t, name)) : read_at(c, t, name);
    return read ? read : "";
}

/* Where element `name` of level l stands along the axis. */
static const char *place(kn_op_call *c, const topk *t, int l, const char *name)
{
    const char *read = l ? kn_format(c->arena, "p%d[%s]", l, at(c, t, name)) : name;
    return read ? read : "";
}

/* m: the extremum of each block of level l, f: where it begins, g: its rank, s: which blocks are the first k; v, p: their elements, and where these
 * stand. */
static void first_blocks(kn_op_call *c, const topk *t, int l, int64_t n)
{
    long long size = t->block[l], blocks = kn_ceil_div(n, size), k = t->k;
    const char *wide = kn_op_wide(c), *inner = kn_format(c->arena, "B*%lld + I", size);
    bool over = l == 0 && n % size;
    kn_putf(&c->text, "m%d[%s] %s ", l, at(c, t, "B"), *t->over == '>' ? ">=!" : "<=!");
    if (over)
        kn_putf(&c->text, "select(%s < %lld, %spad(x0,0)[%s]%s, %s)", inner, (long long)n, *wide ? "cast(" : "", at(c, t, inner),
                *wide ? ",f32)" : "", t->last);
    else
        kn_put(&c->text, element(c, t, l, inner));
    kn_putf(&c->text, " where B in %lld, I in %lld%s; ", blocks, size, wide);
    if (l) kn_putf(&c->text, "f%d[%s] <=! %s where B in %lld, I in %lld : i32; ", l, at(c, t, "B"), place(c, t, l, inner), blocks, size);
    kn_putf(&c->text, "g%d[%s]", l, at(c, t, "B"));
    count(c, t, kn_format(c->arena, "m%d[%s]", l, at(c, t, "B")), kn_format(c->arena, "m%d[%s]", l, at(c, t, "D")),
          l ? kn_format(c->arena, "f%d[%s] < f%d[%s]", l, at(c, t, "D"), l, at(c, t, "B")) : "D < B");
    kn_putf(&c->text, " where B in %lld, D in %lld : %s; ", blocks, blocks, t->count);
    kn_putf(&c->text, "s%d[%s] +=! select(g%d[%s] == cast(R,%s), cast(B,i32), cast(0,i32)) where R in %lld, B in %lld : i32; ", l, at(c, t, "R"), l,
            at(c, t, "B"), t->count, k, blocks);
    const char *from = kn_format(c->arena, "(cast(s%d[%sC//%lld%s],i64)*%lld + C%%%lld)", l, t->lead, size, t->tail, size, size);
    kn_putf(&c->text, "v%d[%s] = ", l + 1, at(c, t, "C"));
    kn_putf(&c->text, over ? "select(%s < %lld, %s, %s)" : "%s", over ? from : element(c, t, l, from), (long long)n, element(c, t, l, from), t->last);
    kn_putf(&c->text, " where C in %lld%s; p%d[%s] = ", k * size, wide, l + 1, at(c, t, "C"));
    kn_putf(&c->text, l ? "%s" : "cast(%s,i32)", place(c, t, l, from));
    kn_putf(&c->text, " where C in %lld : i32; ", k * size);
}

static void in_blocks(kn_op_call *c, const topk *t)
{
    int64_t n = t->n;
    for (int l = 0; l < t->levels; l++) {
        first_blocks(c, t, l, n);
        n = t->k * t->block[l];
    }
    int l = t->levels;
    kn_putf(&c->text, "h[%s]", at(c, t, "C"));
    count(c, t, element(c, t, l, "C"), element(c, t, l, "D"), kn_format(c->arena, "%s < %s", place(c, t, l, "D"), place(c, t, l, "C")));
    kn_putf(&c->text, " where C in %lld, D in %lld : %s; ", (long long)n, (long long)n, t->count);
    kn_putf(&c->text, "y[%s] +=! select(h[%s] == cast(K,%s), %s, cast(0,i32)) where K in %lld, C in %lld : i64", at(c, t, "K"), at(c, t, "C"),
            t->count, place(c, t, l, "C"), (long long)t->k, (long long)n);
}

/* Elements that are compared, those that are taken along counted as EACH. */
static double compared(const topk *t)
{
    enum { EACH = 16 };
    double all = 0, n = (double)t->n;
    for (int l = 0; l < t->levels; l++) {
        double blocks = (double)kn_ceil_div((int64_t)n, t->block[l]);
        all += blocks * (blocks + (double)t->k) + EACH * (double)(t->k * t->block[l]);
        n = (double)(t->k * t->block[l]);
    }
    return all + n * n;
}

/* The sizes of blocks, powers of two, of which fewest elements are compared. */
static void choose_blocks(topk *t)
{
    topk best = *t;
    for (int64_t a = 2; a * t->k < t->n; a *= 2)
        for (int64_t b = 1; b < a; b *= 2)
            for (int64_t e = 1; e < b || e == 1; e *= 2) {
                topk x = *t;
                x.levels = b == 1 ? 1 : e == 1 ? 2 : 3;
                x.block[0] = a, x.block[1] = b, x.block[2] = e;
                if (compared(&x) < compared(&best)) best = x;
            }
    *t = best;
}

static kiln_status lower(kn_op_call *c)
{
    const kn_operand *x = &c->in[0];
    topk t = {.k = kn_attr_int(c, "k", 0)};
    int axis;
    if (!x->rank) return kn_op_bad_shape(c, 0, "a rank from 1 on is right");
    if (!kn_op_axis(c, "axis", kn_attr_int(c, "axis", -1), x->rank, &axis)) return c->d->status;
    t.n = x->shape[axis];
    if (t.k < 1 || t.k > t.n) return kn_op_bad_attr(c, "k", "%lld of %lld elements", (long long)t.k, (long long)t.n);
    bool largest = kn_attr_int(c, "largest", 1) != 0;
    t.lead = kn_op_others(c, 0, axis, true);
    t.tail = kn_op_others(c, axis + 1, x->rank, false);
    t.rows = kn_op_axes_but(c, "A", x->rank, axis);
    t.over = largest ? ">" : "<";
    t.last = extreme(c, largest);
    t.count = kn_dtype_bytes(x->dtype) == 8 ? "i64" : "i32";
    choose_blocks(&t);
    if (t.k <= STEPS && t.k * EASY <= t.n && 2.0 * (double)t.n * (double)t.k < compared(&t)) {
        in_steps(c, &t);
        return KILN_OK;
    }
    double work = compared(&t), selected = kn_op_selects(x->dtype) ? kn_op_selection_work(x->dtype, t.n, t.k) : INFINITY;
    if (fmin(work, selected) > (double)MOST * MOST)
        return kn_op_bad_shape(c, 0, "%lld of %lld elements would be compared %g times; at most %g are supported", (long long)t.k, (long long)t.n,
                               fmin(work, selected), (double)MOST * MOST);
    if (selected < work) {
        kn_op_select(c, axis, t.k, largest);
        return KILN_OK;
    }
    if (t.levels) {
        in_blocks(c, &t);
        return KILN_OK;
    }
    by_rank(c, &t);
    return KILN_OK;
}

const kn_op_spec kn_op_topkindices = {.name = "TopKIndices", .min_inputs = 1, .max_inputs = 1, .input_names = {"X"}, .dtypes = "fiu",
                                      .about = "where the k largest elements along an axis stand", .attrs = attrs, .lower = lower};
