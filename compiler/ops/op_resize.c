/* Resize: another number of elements along some axes, by the nearest element, linearly between two
 * (bilinear, trilinear), or cubically between four (bicubic).
 *
 * Where an output element lies in the input is a fraction of integers, so the elements and their weights are exact. */
#include "ops/ops.h"
#include <math.h>
#include <string.h>

static const kn_attr_spec attrs[] = {
    {"sizes", 'I', "mandatory", "extents of the output, one an axis"},
    {"scales", 'F', "sizes / extents", "output elements an input element, where sizes are these rounded down"},
    {"mode", 's', "nearest", "nearest, linear or cubic"},
    {"cubic_coeff_a", 'f', "-0.75", "parameter of the cubic kernel"},
    {"exclude_outside", 'i', "0", "1: of cubic, only elements inside of the input count"},
    {"coordinate_transformation_mode", 's', "half_pixel",
     "half_pixel, half_pixel_symmetric, pytorch_half_pixel, asymmetric or align_corners"},
    {"nearest_mode", 's', "round_prefer_floor", "round_prefer_floor, round_prefer_ceil, floor or ceil"},
    {NULL, 0, NULL, NULL}};

/* Output element A lies at (A*scale + offset) / den of the input. */
typedef struct place {
    int64_t in, scale, offset, den;
    bool moved;
} place;

/* x as a fraction of small numbers, by continued fractions; a scale such as 0.6f is then the 3/5 that was meant. */
static void fraction(double x, int64_t *num, int64_t *den)
{
    int64_t p0 = 0, q0 = 1, p1 = 1, q1 = 0;
    for (double y = x; q1 < 10000;) {
        int64_t whole = (int64_t)floor(y), p = whole * p1 + p0, q = whole * q1 + q0;
        p0 = p1, q0 = q1, p1 = p, q1 = q;
        if (fabs((double)p1 / (double)q1 - x) <= 1e-7 * x || y - (double)whole < 1e-9) break;
        y = 1 / (y - (double)whole);
    }
    *num = p1;
    *den = q1;
}

/* in / out, or what the client says that it is: the input elements of num output elements are den. */
static kiln_status ratio(kn_op_call *c, int i, int64_t in, int64_t out, int64_t *num, int64_t *den)
{
    const kn_attr *scales = kn_attr_get(c, "scales");
    *num = out;
    *den = in;
    if (!scales) return KILN_OK;
    if (scales->n != c->in[0].rank) return kn_op_bad_attr(c, "scales", "\"scales\" must have %d numbers, one an axis", c->in[0].rank);
    double x = scales->floats[i];
    if (!(x >= 1e-6 && x <= 1e6)) return kn_op_bad_attr(c, "scales", "scales[%d] is not from 10^-6 to 10^6", i);
    if (fabs(x * (double)in - (double)out) > 1e-6 * (double)out) fraction(x, num, den);
    return KILN_OK;
}

static kiln_status places(kn_op_call *c, place *p)
{
    const kn_operand *x = &c->in[0];
    const kn_attr *sizes = kn_attr_get(c, "sizes");
    const char *how = kn_attr_str(c, "coordinate_transformation_mode", "half_pixel");
    bool torch = !strcmp(how, "pytorch_half_pixel"), half = torch || !strcmp(how, "half_pixel"), corners = !strcmp(how, "align_corners");
    bool symmetric = !strcmp(how, "half_pixel_symmetric");
    if (!half && !corners && !symmetric && strcmp(how, "asymmetric"))
        return kn_op_bad_attr(c, "coordinate_transformation_mode",
                              "\"%s\" is none of half_pixel, half_pixel_symmetric, pytorch_half_pixel, asymmetric, align_corners", how);
    if (!sizes || sizes->n != x->rank) return kn_op_bad_attr(c, "sizes", "\"sizes\" must have %d numbers, one an axis", x->rank);
    for (int i = 0; i < x->rank; i++) {
        int64_t in = x->shape[i], out = sizes->list[i];
        if (out < 1 || out > KILN_MAX_EXTENT) return kn_op_bad_attr(c, "sizes", "sizes[%d] is %lld; from 1 on is right", i, (long long)out);
        int64_t num, den;
        kiln_status s = ratio(c, i, in, out, &num, &den);
        if (s != KILN_OK) return s;
        bool moved = in != out || num != den;
        p[i] = (place){.in = in, .scale = den, .den = num, .moved = moved};
        if (half) p[i] = (place){.in = in, .scale = 2 * den, .offset = den - num, .den = 2 * num, .moved = moved};
        if (symmetric) /* as half_pixel, about the middle of what num / den times the input would be: + in/2 - out*den/(2*num) */
            p[i] = (place){.in = in, .scale = 2 * den, .offset = den - num + in * num - out * den, .den = 2 * num, .moved = moved};
        if ((corners || torch) && out == 1)
            p[i] = (place){.in = in, .den = 1, .moved = in != 1};
        else if (corners)
            p[i] = (place){.in = in, .scale = (in - 1) * den, .den = in * num - den, .moved = moved};
    }
    return KILN_OK;
}

/* "(A2*6 - 5)" */
static const char *numerator(kn_op_call *c, const place *p, int i)
{
    if (!p->scale) return "0";
    const char *sign = p->offset < 0 ? " - " : " + ";
    long long off = (long long)(p->offset < 0 ? -p->offset : p->offset);
    return off ? kn_format(c->arena, "(A%d*%lld%s%lld)", i, (long long)p->scale, sign, off)
               : kn_format(c->arena, "A%d*%lld", i, (long long)p->scale);
}

static kiln_status nearest(kn_op_call *c, const place *p)
{
    const char *how = kn_attr_str(c, "nearest_mode", "round_prefer_floor");
    static const struct {
        const char *name;
        int twice, whole, less;
    } rule[] = {{"round_prefer_floor", 2, 1, 1}, {"round_prefer_ceil", 2, 1, 0}, {"floor", 1, 0, 0}, {"ceil", 1, 1, 1}};
    int k = 0;
    while (k < 4 && strcmp(how, rule[k].name)) k++;
    if (k == 4) return kn_op_bad_attr(c, "nearest_mode", "\"%s\" is none of round_prefer_floor, round_prefer_ceil, floor, ceil", how);
    kn_putf(&c->text, "y[%s] = x0[", kn_op_axes(c, "A", c->in[0].rank));
    for (int i = 0; i < c->in[0].rank; i++) {
        if (i) kn_put(&c->text, ",");
        if (!p[i].moved)
            kn_putf(&c->text, "A%d", i);
        else
            kn_putf(&c->text, "min(max((%s*%d + %lld)//%lld, 0), %lld)", numerator(c, &p[i], i), rule[k].twice,
                    (long long)(rule[k].whole * p[i].den - rule[k].less), (long long)(rule[k].twice * p[i].den), (long long)(p[i].in - 1));
    }
    kn_put(&c->text, "]");
    return KILN_OK;
}

/* "A0,A1,min(max(A2*6//5 + 1, 0), 7),A3" */
static const char *around(kn_op_call *c, const place *p, int axis, int beside)
{
    kn_buf at;
    kn_buf_init(&at, c->arena);
    for (int i = 0; i < c->in[0].rank; i++) {
        if (i) kn_put(&at, ",");
        if (i != axis)
            kn_putf(&at, "A%d", i);
        else
            kn_putf(&at, "min(max(%s//%lld + %d, 0), %lld)", numerator(c, &p[i], i), (long long)p[i].den, beside, (long long)(p[i].in - 1));
    }
    kiln_bytes t = kn_buf_take(&at);
    return t.p ? t.p : "";
}

/* Behind "cast(round(", or "cast(min(max(round(" of what may reach out of the range of input 0: whole numbers are rounded. */
static void put_whole(kn_op_call *c, bool reaches)
{
    enum kn_dtype t = c->in[0].dtype;
    kn_put(&c->text, ")");
    if (reaches) kn_op_put_range(c, t);
    kn_putf(&c->text, ", %s)", kn_dtype_text(t));
}

/* Interpolates among so many elements around, of which the first is `from` beside where it lies, along one axis after the other, the outermost one
 * first, so that all but the last keep rows in vectors: "t0[...] = x0[...]*w + x0[...]*w; y[...] = t0[...]*w + t0[...]*w". */
static void by_axes(kn_op_call *c, const place *p, int taps, int from)
{
    const kn_attr *sizes = kn_attr_get(c, "sizes");
    int rank = c->in[0].rank, last = rank - 1, k = 0;
    bool whole = kn_dtype_class(c->in[0].dtype) != 'f';
    while (last >= 0 && !p[last].moved) last--;
    for (int i = 0; i <= last; i++) {
        if (!p[i].moved) continue;
        if (i == last) kn_putf(&c->text, "y[%s] = %s", kn_op_axes(c, "A", rank), whole ? taps > 2 ? "cast(min(max(round(" : "cast(round(" : "");
        else kn_putf(&c->text, "t%d[%s] = ", k, kn_op_axes(c, "A", rank));
        for (int tap = 0; tap < taps; tap++) {
            const char *at = around(c, p, i, from + tap);
            if (tap) kn_put(&c->text, " + ");
            if (k) kn_putf(&c->text, "t%d[%s]", k - 1, at);
            else kn_put(&c->text, kn_op_read_fraction(c, 0, at));
            kn_putf(&c->text, "*w%d_%d[A%d]", k, tap, i);
        }
        if (i == last && whole) put_whole(c, taps > 2);
        for (int j = 0; j < rank && i < last; j++)
            kn_putf(&c->text, "%sA%d in %lld", j ? ", " : " where ", j, (long long)(j <= i ? sizes->list[j] : c->in[0].shape[j]));
        if (i < last) kn_putf(&c->text, "%s; ", kn_op_wide(c));
        k++;
    }
    if (last >= 0) return;
    kn_putf(&c->text, "y[%s] = ", kn_op_axes(c, "A", rank));
    kn_op_load(c, 0, kn_op_axes(c, "A", rank));
}

/* How near the two elements around lie: "wK_0[Ai]" and "wK_1[Ai]" for the K-th axis that changes, once for all that lie along the others. */
static void linear_weights(kn_op_call *c, const place *p, int k, int i, int64_t out)
{
    const char *wide = kn_op_fraction(c), *num = numerator(c, p, i);
    long long den = (long long)p->den;
    for (int tap = 0; tap < 2; tap++) {
        kn_putf(&c->text, "w%d_%d[A%d] = cast(", k, tap, i);
        if (!tap) kn_putf(&c->text, "%lld - ", den);
        kn_putf(&c->text, "%s%%%lld,%s)/%lld.0 where A%d in %lld%s; ", num, den, wide, den, i, (long long)out, kn_op_wide(c));
    }
}

static kiln_status linear(kn_op_call *c, const place *p)
{
    const kn_attr *sizes = kn_attr_get(c, "sizes");
    for (int i = 0, k = 0; i < c->in[0].rank; i++)
        if (p[i].moved) linear_weights(c, &p[i], k++, i, sizes->list[i]);
    by_axes(c, p, 2, 0);
    return KILN_OK;
}

/* Weights of the four elements around, by Keys's kernel with parameter a: "wK_0[Ai]" to "wK_3[Ai]" for the K-th axis that changes. Without
 * those outside of the input (exclude_outside) the rest is scaled to a sum of one. */
static void cubic_weights(kn_op_call *c, const place *p, int k, int i, int64_t out, bool inside)
{
    const char *wide = kn_op_fraction(c), *num = numerator(c, p, i);
    const char *t = kn_format(c->arena, "(cast(%s%%%lld,%s)/%lld.0)", num, (long long)p->den, wide, (long long)p->den);
    double a = kn_attr_float(c, "cubic_coeff_a", -0.75);
    const double near[] = {a + 2, -(a + 3), 0, 1}, far[] = {a, -5 * a, 8 * a, -4 * a};
    for (int tap = 0; tap < 4 && t; tap++) {
        const char *d = tap == 1 ? t : kn_format(c->arena, "(%s %s)", tap == 0 ? "1.0 +" : tap == 2 ? "1.0 -" : "2.0 -", t);
        const double *poly = tap == 1 || tap == 2 ? near : far;
        kn_putf(&c->text, "%c%d_%d[A%d] = ", inside ? 'v' : 'w', k, tap, i);
        if (inside)
            kn_putf(&c->text, "select(%s//%lld + %d >= 0 && %s//%lld + %d < %lld, ", num, (long long)p->den, tap - 1, num,
                    (long long)p->den, tap - 1, (long long)p->in);
        kn_put(&c->text, "(((");
        kn_put_double(&c->text, poly[0]);
        for (int e = 1; e < 4; e++) {
            kn_putf(&c->text, ")*%s + (", d ? d : "");
            kn_put_double(&c->text, poly[e]);
            kn_put(&c->text, ")");
        }
        kn_putf(&c->text, "%s where A%d in %lld%s; ", inside ? ", 0.0)" : "", i, (long long)out, kn_op_wide(c));
    }
    for (int tap = 0; inside && tap < 4; tap++)
        kn_putf(&c->text, "w%d_%d[A%d] = v%d_%d[A%d] / (v%d_0[A%d] + v%d_1[A%d] + v%d_2[A%d] + v%d_3[A%d])%s; ", k, tap, i, k, tap, i, k, i,
                k, i, k, i, k, i, kn_op_wide(c));
}

static kiln_status cubic(kn_op_call *c, const place *p)
{
    const kn_attr *sizes = kn_attr_get(c, "sizes");
    bool inside = kn_attr_int(c, "exclude_outside", 0) != 0;
    for (int i = 0, k = 0; i < c->in[0].rank; i++)
        if (p[i].moved) cubic_weights(c, &p[i], k++, i, sizes->list[i], inside);
    by_axes(c, p, 4, -1);
    return KILN_OK;
}

static kiln_status lower(kn_op_call *c)
{
    place p[KILN_MAX_RANK];
    static const struct {
        const char *mode;
        kiln_status (*write)(kn_op_call *, const place *);
    } modes[] = {{"nearest", nearest}, {"linear", linear}, {"cubic", cubic}};
    const char *mode = kn_attr_str(c, "mode", "nearest");
    int m = 0;
    while (m < 3 && strcmp(modes[m].mode, mode)) m++;
    if (m && c->in[0].dtype == KN_BOOL) return kn_op_bad_attr(c, "mode", "only nearest is right for bool");
    if (m == 3) return kn_op_bad_attr(c, "mode", "\"%s\" is none of nearest, linear, cubic", mode);
    if (m != 2 && kn_attr_int(c, "exclude_outside", 0)) return kn_op_bad_attr(c, "exclude_outside", "only with mode cubic");
    kiln_status s = places(c, p);
    if (s == KILN_OK) s = modes[m].write(c, p);
    if (s != KILN_OK) return s;
    const kn_attr *sizes = kn_attr_get(c, "sizes");
    for (int i = 0; i < c->in[0].rank; i++) kn_putf(&c->text, "%sA%d in %lld", i ? ", " : " where ", i, (long long)sizes->list[i]);
    if (m) kn_op_end(c);
    return KILN_OK;
}

const kn_op_spec kn_op_resize = {.name = "Resize",
                                 .min_inputs = 1,
                                 .max_inputs = 1,
                                 .input_names = {"X"},
                                 .dtypes = "fiub",
                                 .about = "other extents, by the nearest element, linearly or cubically",
                                 .attrs = attrs,
                                 .lower = lower};
