/* Where the first k along an axis stand, by selection, for elements that 32 bits hold.
 *
 * Keys are integers in the order of the elements: a float's bits, those of negative ones turned. The k-th key is found digit by digit, by counting
 * how many keys are no less than each value of the digit. What lies above it goes to the first places in the order of the axis, as many of its
 * equals as are needed to those behind: by two prefix sums, of which one word holds both, over blocks and blocks of these. Only what has a place
 * is ranked, by comparing each with all, block by block. So work grows with n and k*k, and the number of statements with neither. */
#include "ops/ops.h"

enum { DIGIT = 4, BLOCK = 8, SHORT = 256, NARROW = 15, WIDE = 31, MANY = 256, GROUP = 64 };

/* rows: the other axes, "A0,A1,A3"; row: the same in front of a place along the axis; lead, tail: those before it and behind it, where an element
 * of the input or output is named; least: the least key, of `bits` bits; count: integers of which a word holds two counts, the second from bit `half`
 * on. */
typedef struct selection { const char *row, *rows, *lead, *tail, *count; int64_t n, k, least; int bits, half; bool largest; } selection;

/* Bits of a key that tell elements apart: of halves, which f32 holds, the lower ones of an f32 are alike. 0: more than 32. */
static int key_bits(enum kn_dtype t)
{
    int bytes = kn_dtype_bytes(t);
    if (kn_dtype_class(t) != 'f') return bytes <= 4 ? 8 * bytes : 0;
    return t == KN_F32 ? 32 : t == KN_F16 ? 20 : t == KN_BF16 ? 16 : kn_is_f8(t) ? 12 : 0;
}

bool kn_op_selects(enum kn_dtype t) { return key_bits(t) > 0; }

double kn_op_selection_work(enum kn_dtype t, int64_t n, int64_t k)
{
    enum { COUNT = (1 << DIGIT) - 1, AT_ONCE = 6, PLACE = 35, ROW = 4000 }; /* comparisons worth one with a digit, a place, what rows have to begin */
    return (double)n * (key_bits(t) / DIGIT * COUNT / AT_ONCE + PLACE) + (double)k * (double)k / 2 + ROW;
}

/* e: the keys. Zeros of both signs are equal. */
static void keys(kn_op_call *c, const selection *s, enum kn_dtype t)
{
    const char *x = kn_op_read(c, 0, kn_format(c->arena, "%sI%s", s->lead, s->tail)), *turn = s->largest ? "" : t == KN_U8 ? "255 - " : "-1 - ";
    kn_putf(&c->text, "e[%sI] = ", s->row);
    if (kn_dtype_class(t) != 'f')
        kn_putf(&c->text, "%scast(%s,i32)", turn, x);
    else
        kn_putf(&c->text, "shr(%sselect(%s == 0, cast(0,i32), select(%s < 0, bitxor(bits(%s),2147483647), bits(%s))), %d)", turn, x, x, x, x,
                32 - s->bits);
    kn_put(&c->text, " : i32; ");
}

/* u: the k-th key as far as digit d, n: how many keys are no less than with each value of the digit. */
static void next_digit(kn_op_call *c, const selection *s, int d)
{
    const char *from = d ? kn_format(c->arena, "u%d[%s]", d - 1, s->rows) : kn_format(c->arena, "cast(%lld,i32)", (long long)s->least);
    const char *value = kn_format(c->arena, "%s + (cast(T,i32) + 1)*%d", from, 1 << (s->bits - (d + 1) * DIGIT));
    int values = (1 << DIGIT) - 1;
    kn_putf(&c->text, "n%d[%sT] +=! select(e[%sI] >= %s, cast(1,i32), cast(0,i32)) where T in %d : i32; ", d, s->row, s->row, value, values);
    kn_putf(&c->text, "u%d[%s] >=! select(n%d[%sT] >= %lld, %s, %s) : i32; ", d, s->rows, d, s->row, (long long)s->k, value, from);
}

/* Element `at` of a level of n elements, in blocks of `block`; none beyond the end. */
static const char *element(kn_op_call *c, const selection *s, const char *name, int64_t n, int64_t block, const char *at)
{
    const char *read = kn_format(c->arena, n % block ? "pad(%s,0)[%s%s]" : "%s[%s%s]", name, s->row, at);
    return read ? read : "";
}

/* The counts in front of the block of f that element I is in, of so many blocks. */
static const char *in_front(kn_op_call *c, const selection *s, int64_t blocks)
{
    double least = 0;
    int64_t of = 1;
    for (int64_t b = 1; b < blocks; b *= 2) {
        double groups = (double)kn_ceil_div(blocks, b), work = groups * groups + (b > 1 ? (double)blocks * (double)b : 0);
        if (b == 1 && blocks <= SHORT) break;
        if (b > 1 && (of == 1 || work < least)) least = work, of = b;
    }
    long long groups = kn_ceil_div(blocks, of), n = blocks;
    if (of == 1) {
        kn_putf(&c->text, "r[%sB] +=! select(D < B, b[%sD], 0) where B in %lld, D in %lld : %s; ", s->row, s->row, n, n, s->count);
        return kn_format(c->arena, "r[%sI//%d]", s->row, BLOCK);
    }
    kn_putf(&c->text, "g[%sG] +=! %s where G in %lld, D in %lld : %s; ", s->row,
            element(c, s, "b", n, of, kn_format(c->arena, "G*%lld + D", (long long)of)), groups, (long long)of, s->count);
    kn_putf(&c->text, "h[%sG] +=! select(D < G, g[%sD], 0) where G in %lld, D in %lld : %s; ", s->row, s->row, groups, groups, s->count);
    kn_putf(&c->text, "i[%sB] +=! select(D < B%%%lld, %s, 0) where B in %lld, D in %lld : %s; ", s->row, (long long)of,
            element(c, s, "b", n, of, kn_format(c->arena, "B//%lld*%lld + D", (long long)of, (long long)of)), n, (long long)of, s->count);
    return kn_format(c->arena, "i[%sI//%d] + h[%sI//%lld]", s->row, BLOCK, s->row, (long long)of * BLOCK);
}

/* p: the place that each element has among those that are ranked; k: none. f: 1 above the k-th key, u, one of the second count where it is equal. */
static void places(kn_op_call *c, const selection *s, const char *u)
{
    long long n = s->n, blocks = kn_ceil_div(s->n, BLOCK);
    const char *t = s->count, *row = s->row;
    kn_putf(&c->text, "a[%s] +=! select(e[%sI] > %s, cast(1,%s), cast(0,%s)) : %s; ", s->rows, row, u, t, t, t);
    kn_putf(&c->text, "f[%sI] = cast(e[%sI] > %s,%s) + cast(e[%sI] == %s,%s)*%lld : %s; ", row, row, u, t, row, u, t, 1LL << s->half, t);
    kn_putf(&c->text, "b[%sB] +=! %s where B in %lld, D in %d : %s; ", row,
            element(c, s, "f", n, BLOCK, kn_format(c->arena, "B*%d + D", BLOCK)), blocks, BLOCK, t);
    const char *front = in_front(c, s, blocks);
    kn_putf(&c->text, "q[%sI] +=! select(D < I%%%d, %s, 0) where I in %lld, D in %d : %s; ", row, BLOCK,
            element(c, s, "f", n, BLOCK, kn_format(c->arena, "I//%d*%d + D", BLOCK, BLOCK)), n, BLOCK, t);
    const char *both = front ? kn_format(c->arena, "(q[%sI] + %s)", row, front) : "";
    kn_putf(&c->text, "p[%sI] = select(f[%sI] == 1, bitand(%s,%lld), select(f[%sI] == 0, cast(%lld,%s), shr(%s,%d) + a[%s])) : %s; ", row, row, both,
            (1LL << s->half) - 1, row, (long long)s->k, t, both, s->half, s->rows, t);
}

/* The other axes' extents. */
static void put_rows(kn_op_call *c, int axis)
{
    for (int i = 0; i < c->in[0].rank; i++)
        if (i != axis) kn_putf(&c->text, ", A%d in %lld", i, (long long)c->in[0].shape[i]);
}

/* The rank of each of the k, whose keys are v. Of equal ones the first comes first: where blocks are compared with blocks, o, that is the same for
 * all of a block; the equals in its own block are counted beside, w. */
static const char *ranks(kn_op_call *c, const selection *s)
{
    const char *row = s->row, *one = "cast(1,i32), cast(0,i32)";
    long long k = s->k, blocks = kn_ceil_div(k, GROUP);
    if (k < MANY) {
        kn_putf(&c->text, "v[%sC] = e[%scast(z[%sC],i64)] : i32; ", row, row, row);
        kn_putf(&c->text, "o[%sC] +=! select(v[%sD] > v[%sC] || v[%sD] == v[%sC] && D < C, %s) where D in %lld : i32; ", row, row, row, row, row, one,
                k);
        return kn_format(c->arena, "o[%sC]", row);
    }
    const char *mine = kn_format(c->arena, "v[%sB*%d + I]", row, GROUP), *other = kn_format(c->arena, "v[%sE*%d + D]", row, GROUP);
    kn_putf(&c->text, "v[%sC] = select(C < %lld, e[%scast(z[%smin(C,%lld)],i64)], cast(%lld,i32)) where C in %lld : i32; ", row, k, row, row, k - 1,
            (long long)s->least, blocks * GROUP);
    kn_putf(&c->text, "w[%sB,I] +=! select(v[%sB*%d + D] == %s && D < I, %s) where B in %lld, I in %d, D in %d : i32; ", row, row, GROUP, mine, one,
            blocks, GROUP, GROUP);
    kn_putf(&c->text, "o[%sB,I] +=! select(E < B, select(%s >= %s, %s), select(%s > %s, %s))", row, other, mine, one, other, mine, one);
    kn_putf(&c->text, " where B in %lld, I in %d, E in %lld, D in %d : i32; ", blocks, GROUP, blocks, GROUP);
    return kn_format(c->arena, "o[%sC//%d,C%%%d] + w[%sC//%d,C%%%d]", row, GROUP, GROUP, row, GROUP, GROUP);
}

void kn_op_select(kn_op_call *c, int axis, int64_t k, bool largest)
{
    const kn_operand *x = &c->in[0];
    enum kn_dtype t = x->dtype;
    selection s = {.rows = kn_op_axes_but(c, "A", x->rank, axis), .lead = kn_op_others(c, 0, axis, true), .n = x->shape[axis], .k = k,
                   .tail = kn_op_others(c, axis + 1, x->rank, false), .bits = key_bits(t), .largest = largest, .half = NARROW, .count = "i32"};
    s.row = *s.rows ? kn_format(c->arena, "%s,", s.rows) : "";
    s.least = t == KN_U8 ? 0 : -(INT64_C(1) << (s.bits - 1));
    if (s.n >> NARROW) s.half = WIDE, s.count = "i64";
    int digits = s.bits / DIGIT;
    const char *row = s.row, *u = kn_format(c->arena, "u%d[%s]", digits - 1, s.rows);
    keys(c, &s, t);
    for (int d = 0; d < digits; d++) next_digit(c, &s, d);
    places(c, &s, u ? u : "");
    kn_putf(&c->text, "z[%sC] = cast(0,i32) where C in %lld", row, (long long)k);
    put_rows(c, axis);
    kn_putf(&c->text, "; z[%scast(p[%sI],i64)] =. cast(I,i32); ", row, row);
    const char *rank = ranks(c, &s);
    kn_putf(&c->text, "y[%sK%s] = cast(0,i64) where K in %lld", s.lead, s.tail, (long long)k);
    put_rows(c, axis);
    kn_putf(&c->text, "; y[%scast(%s,i64)%s] =. cast(z[%sC],i64)", s.lead, rank ? rank : "", s.tail, row);
}
