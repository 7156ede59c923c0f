/* Sums and products of all elements up to each, along one axis.
 *
 * A statement cannot read what it writes, so a prefix is a reduction under a condition: n*n/2 additions over an axis of n. Longer axes are
 * cut into blocks of RADIX: sums of blocks (again in blocks, until they are few), prefixes of those, and prefixes inside each block on top;
 * every level costs RADIX additions an element, about 2*RADIX in all, and rounds less than adding from left to right does. A few less than RADIX
 * are better where they divide the axis: the last block of another one is filled up, and what it lacks of rows would be computed one by one, which
 * takes as long as 20 of a block; so that block's prefixes are made of all its rows, and those behind the end not used. Along the last axis the
 * places of a block are lanes: ALONG of them have half as many terms, and divide more axes, so that there is no padding to fill in. */
#include "ops/ops.h"

enum { RADIX = 16, LEAST = 8, ALONG = 8, SHORT = 16, LEVELS = 11 };

const kn_attr_spec kn_scan_attrs[] = {{"axis", 'i', "mandatory", "axis to go along; negative counts from the end"},
                                      {"exclusive", 'i', "0", "1: without the element itself"},
                                      {"reverse", 'i', "0", "1: from the end"},
                                      {NULL, 0, NULL, NULL}};

/* lead and tail: the other axes, "A0,A1," and ",A3". fold, join: of blocks, and of two of them; none: what adds nothing; before: how what is
 * summed stands to the place, also itself: with. n: elements of the axis at each level; full: prefixes of whole blocks. */
typedef struct scan {
    const char *lead, *tail, *wide, *fold, *join, *none, *before, *with;
    int levels, radix;
    int64_t n[LEVELS];
    bool full;
} scan;

/* Element `at` of a level; level 0 is the input. at < n + RADIX; zero from n on. */
static void element(kn_op_call *c, const scan *s, int level, const char *at)
{
    bool out = s->n[level] % s->radix != 0;
    const char *pad = out ? "pad(" : "", *close = out ? kn_format(c->arena, ",%s)", s->none) : "";
    if (level) kn_putf(&c->text, "%ss%d%s[%s%s%s]", pad, level, close, s->lead, at, s->tail);
    else kn_putf(&c->text, "%s%sx0%s[%s%s%s]%s", *s->wide ? "cast(" : "", pad, close, s->lead, at, s->tail, *s->wide ? ",f32)" : "");
}

static void in_one(kn_op_call *c, const scan *s)
{
    kn_putf(&c->text, "y[%sS%s] %s select(I %s S, ", s->lead, s->tail, s->fold, s->with);
    kn_op_load(c, 0, kn_format(c->arena, "%sI%s", s->lead, s->tail));
    kn_putf(&c->text, ", %s) where S in %lld", s->none, (long long)s->n[0]);
}

static void in_blocks(kn_op_call *c, const scan *s)
{
    int top = s->levels - 1;
    for (int k = 1; k <= top; k++) {
        kn_putf(&c->text, "s%d[%sS%s] %s ", k, s->lead, s->tail, s->fold);
        element(c, s, k - 1, kn_format(c->arena, "S*%d + I", s->radix));
        kn_putf(&c->text, " where S in %lld, I in %d%s; ", (long long)s->n[k], s->radix, s->wide);
    }
    kn_putf(&c->text, "p%d[%sS%s] %s select(I %s S, s%d[%sI%s], %s) where S in %lld%s; ", top, s->lead, s->tail, s->fold, s->before, top, s->lead,
            s->tail, s->none, (long long)s->n[top], s->wide);
    for (int k = top - 1; k >= 0; k--) {
        kn_putf(&c->text, "q%d[%sS%s] %s select(I %s S%%%d, ", k, s->lead, s->tail, s->fold, k ? s->before : s->with, s->radix);
        element(c, s, k, kn_format(c->arena, "S//%d*%d + I", s->radix, s->radix));
        kn_putf(&c->text, ", %s) where S in %lld, I in %d%s; ", s->none, (long long)(s->full ? s->n[k + 1] * s->radix : s->n[k]), s->radix, s->wide);
        if (k) kn_putf(&c->text, "p%d", k);
        else kn_put(&c->text, "y");
        kn_putf(&c->text, "[%sS%s] = q%d[%sS%s] %s p%d[%sS//%d%s]", s->lead, s->tail, k, s->lead, s->tail, s->join, k + 1, s->lead, s->radix,
                s->tail);
        if (s->full) kn_putf(&c->text, " where S in %lld", (long long)s->n[k]);
        if (k) kn_putf(&c->text, "%s; ", s->wide);
    }
}

/* The most elements of a block that leave none over, or one; RADIX where each leaves more. */
static int divisor(int64_t n)
{
    for (int rest = 0; rest < 2; rest++)
        for (int radix = RADIX; radix >= LEAST; radix--)
            if (n % radix == rest) return radix;
    return RADIX;
}

kiln_status kn_op_scan(kn_op_call *c, bool product)
{
    int rank = c->in[0].rank, axis;
    if (!rank) return kn_op_bad_shape(c, 0, "a scalar has no axis; rank 1 or more is right");
    if (!kn_attr_get(c, "axis")) return kn_op_bad_attr(c, "axis", "\"axis\" is mandatory");
    if (!kn_op_axis(c, "axis", kn_attr_int(c, "axis", 0), rank, &axis)) return c->d->status;
    bool reverse = kn_attr_int(c, "reverse", 0) != 0;
    scan s = {.lead = kn_op_others(c, 0, axis, true), .tail = kn_op_others(c, axis + 1, rank, false), .wide = kn_op_wide(c),
              .fold = product ? "*=!" : "+=!", .join = product ? "*" : "+", .none = product ? "1" : "0",
              .before = reverse ? ">" : "<", .levels = 1, .n = {c->in[0].shape[axis]}};
    s.with = kn_attr_int(c, "exclusive", 0) ? s.before : reverse ? ">=" : "<=";
    s.radix = axis == rank - 1 ? ALONG : divisor(s.n[0]);
    s.full = axis != rank - 1 && s.n[0] % s.radix > 1;
    for (int k = 0; s.n[k] > SHORT; k++) s.n[k + 1] = kn_ceil_div(s.n[k], s.radix), s.levels++; /* 2^31 elements: 11 */
    if (s.levels == 1) in_one(c, &s);
    else in_blocks(c, &s);
    kn_op_end(c);
    return KILN_OK;
}
