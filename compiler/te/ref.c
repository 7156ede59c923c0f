/* The reference interpreter: exact mathematics in double, element by element, temporaries on demand.
 *
 * Nothing is rounded to the dtype of a tensor but to floats of 8 bits, whose range belongs to what a program says. Integers of up to 32 bits keep
 * the bits that they have, at every step; a cast to one truncates.
 * Beside every value goes its scale, the natural unit of a kernel's rounding error to first order: |x| of inputs; the sum of scales for +, - and
 * sum reductions; their product for * and /, over y^2 (of factors beyond f32 no less than theirs); |f(x)| + |f'(x)| * scale(x) for functions (all
 * of them no less than what underflow loses); the scale of what was chosen for select, min and max. So scale >= |value|; it is NaN where
 * rounding decides whether there is a number at all. */
#include "te/ref.h"
#include "te/ref_code.h"
#include <float.h>
#include <math.h>
#include <string.h>

#define DENSE_LIMIT (INT64_C(1) << 22) /* elements remembered in an array; larger tensors use a hash table alone */
#define DENSE_FROM 8                   /* and an array once the table would have a place for every so many elements */
#define FULL_LIMIT (INT64_C(1) << 26)  /* elements of a tensor that is scattered into */
#define POLL 65536                     /* terms between two looks at the clock of the host */

typedef struct cell { int64_t index; double value, scale; } cell; /* index + 1; 0: free */
typedef struct memo {
    bool wanted, full;        /* full: complete array, made in one go (scatter) */
    int64_t elems;
    double *value, *scale;
    uint8_t *known;
    cell *cells;
    int64_t ncells, cap;
} memo;

struct kiln_ref {
    kiln_arena *a;
    const kn_program *p;
    kiln_ref_input read;
    void *user;
    kn_code code[KILN_MAX_STMTS];
    int writer[KILN_MAX_TENSORS];
    memo memo[KILN_MAX_TENSORS];
    kiln_status status; /* sticky */
    int64_t fuel;
};

static void value_of(kiln_ref *r, int tensor, int64_t index, double *value, double *scale);

static double safe(double numerator, double denominator) { return denominator != 0 ? numerator / denominator : 0; }

/* A result that a kernel may flush to zero, or that comes of an overflow (1/(1 + exp(90)) in f32), is off by up to 2^-126, whatever its size: as
 * a scale that is 2^-102, a unit of f32 of which is that. What multiplies the result multiplies this too. */
static double at_least(double scale) { return scale < 0x1p-102 ? 0x1p-102 : scale; }

/* A scale that has no end though what it is made of has: of products that leave doubles, not of an infinity among the inputs. */
static double ending(double scale, double sx, double sy) { return isinf(scale) && isfinite(sx) && isfinite(sy) ? DBL_MAX : scale; }

/* A factor that f32 cannot hold is infinite in a kernel, and what it multiplies is not finite, by 0 neither: the scale says so. A product of two
 * small ones may be flushed. */
static double scale_of_product(double sx, double sy)
{
    double more = sx > sy ? sx : sy, product = sx * sy;
    if (more > FLT_MAX && product < more) return more;
    return sx > 0 && sy > 0 ? at_least(ending(product, sx, sy)) : product;
}

/* A scale that is none though those that it came of are scales (of an infinity and a slope of 0): the value's own. */
static double settled(double scale, double sx, double sy, double value)
{
    return isnan(scale) && !isnan(sx) && !isnan(sy) ? at_least(fabs(value)) : scale;
}

/* v[0] * v[1]. An infinity times what rounding may have made of zero, or a zero of (1 + erf(-5.7)), is infinite here and no number there: no scale
 * says how far that is, and the scale says so by being none. */
static void multiply(double *v, double *s)
{
    double product = v[0] * v[1];
    int tiny = isinf(v[0]) ? 1 : 0;
    bool unsettled = isinf(product) && isinf(v[!tiny]) && !isinf(v[tiny]) && fabs(v[tiny]) <= 0x1p-20 * s[tiny];
    s[0] = unsettled ? NAN : scale_of_product(s[0], s[1]);
    v[0] = product;
}

/* |f'(x)| for the float functions of one operand; v = f(x). */
static double slope(int op, double x, double v)
{
    switch (op) {
    case KN_OP_EXP: return fabs(v);
    case KN_OP_LOG: return safe(1, fabs(x));
    case KN_OP_SQRT: return safe(0.5, fabs(v));
    case KN_OP_RSQRT: return safe(0.5 * fabs(v), fabs(x));
    case KN_OP_TANH: return 1 - v * v;
    case KN_OP_ERF: return 1.1283791670955126 * exp(-x * x);
    case KN_OP_SIN: return fabs(cos(x));
    case KN_OP_COS: return fabs(sin(x));
    default: return 0; /* floor, ceil, round: steps */
    }
}

/* Whether a computed x stands so near a step of floor, ceil or round that its rounding in f32 decides: the result may be another by one, which is
 * a scale of 2^24. */
static bool unsure(int op, double x, double scale)
{
    double away = fabs(x - rint(x));
    if (op != KN_OP_FLOOR && op != KN_OP_CEIL && op != KN_OP_ROUND) return false;
    return (op == KN_OP_ROUND ? fabs(away - 0.5) : away) <= 0x1p-20 * scale;
}

static double function(int op, double x)
{
    switch (op) {
    case KN_OP_EXP: return exp(x);
    case KN_OP_LOG: return log(x);
    case KN_OP_SQRT: return sqrt(x);
    case KN_OP_RSQRT: return 1 / sqrt(x);
    case KN_OP_TANH: return tanh(x);
    case KN_OP_ERF: return erf(x);
    case KN_OP_SIN: return sin(x);
    case KN_OP_COS: return cos(x);
    case KN_OP_FLOOR: return floor(x);
    case KN_OP_CEIL: return ceil(x);
    default: return rint(x);
    }
}

/* The low bits of a whole number that the integers of the dtype do not hold. */
static double low_bits(enum kn_dtype t, double x)
{
    double span = ldexp(1, 8 * kn_dtype_bytes(t)), low = kn_dtype_class(t) == 'i' ? -span / 2 : 0;
    return x >= low && x < low + span ? x : x - floor((x - low) / span) * span;
}

/* Narrow integers keep their low bits. What a float beyond 32 (64) bits or NaN becomes is open, as in C and ONNX: a scale without end says so. */
static void cast(const kn_instr *in, double *v, double *s)
{
    enum kn_dtype t = (enum kn_dtype)in->a;
    double x = v[0];
    if (kn_is_float(t)) {
        v[0] = kn_is_f8(t) ? kn_f8_round(t, x) : x;
        return;
    }
    v[0] = t == KN_BOOL ? x != 0 : trunc(x);
    if (t == KN_BOOL || t == KN_I64) {
        if (t == KN_I64 && !(fabs(x) < 0x1p63)) v[0] = 0, s[0] = INFINITY;
        return;
    }
    double low = low_bits(t, v[0]);
    if (low != v[0] && !in->integer && !(fabs(v[0]) < 0x1p31)) low = 0, s[0] = INFINITY;
    v[0] = low;
}

/* A whole number becomes one of the dtype; of what doubles do not hold the low bits are not known. */
static double within(enum kn_dtype t, double x, double *scale)
{
    double low = fabs(x) < 0x1p53 ? low_bits(t, x) : 0;
    *scale = fabs(x) < 0x1p53 ? fmax(*scale, fabs(low)) : INFINITY;
    return low;
}

static bool is_narrow(enum kn_dtype t) { return (kn_dtype_class(t) == 'i' || kn_dtype_class(t) == 'u') && kn_dtype_bytes(t) < 8; }

/* A result of integers narrower than what numbers places is one of these. */
static void cut(const kn_instr *in, double *v, double *s)
{
    if (in->integer && is_narrow((enum kn_dtype)in->a)) v[0] = within((enum kn_dtype)in->a, v[0], s);
}

static double stored_as(double x)
{
    union { float f; int32_t i; } b = {(float)x};
    return b.i;
}

static void unary(const kn_instr *in, double *v, double *s)
{
    double x = v[0], sx = s[0];
    switch (in->op) {
    case KN_OP_NEG: v[0] = -x; cut(in, v, s); return;
    case KN_OP_ABS: v[0] = fabs(x); cut(in, v, s); return;
    case KN_OP_NOT: v[0] = s[0] = x == 0; return;
    case KN_OP_CAST: cast(in, v, s); return;
    case KN_OP_BITS:
        v[0] = stored_as(x);
        s[0] = fabs(v[0]);
        return;
    default:
        v[0] = function(in->op, x);
        s[0] = settled(at_least(ending(fabs(v[0]) + slope(in->op, x, v[0]) * sx, sx, v[0])), sx, 0, v[0]);
        if (in->b && unsure(in->op, x, sx)) s[0] += 0x1p24;
    }
}

/* Doubles hold integers up to 2^53: bits beyond that of i64 are not told apart. */
static double of_bits(enum kn_op op, enum kn_dtype t, double x, double y)
{
    bool fits = fabs(x) < 0x1p63 && fabs(y) < 0x1p63;
    int64_t a = fits ? (int64_t)x : 0, b = fits ? (int64_t)y : 0;
    int bits = 8 * kn_dtype_bytes(t), by = (int)(b & (bits - 1));
    switch (op) {
    case KN_OP_BITAND: return (double)(a & b);
    case KN_OP_BITOR: return (double)(a | b);
    case KN_OP_BITXOR: return (double)(a ^ b);
    case KN_OP_SHR: return (double)(a >> by);
    default: return low_bits(t, ldexp((double)a, by));
    }
}

static void binary(const kn_instr *in, double *v, double *s)
{
    double x = v[0], y = v[1], sx = s[0], sy = s[1];
    switch (in->op) {
    case KN_OP_DIV:
        v[0] = x / y;
        s[0] = settled(at_least(y != 0 ? sx * sy / (y * y) : fabs(v[0])), sx, sy, v[0]);
        if (sx > FLT_MAX && sy > FLT_MAX) s[0] = sx; /* inf / inf */
        return;
    case KN_OP_FLOORDIV:
        v[0] = y == 0 && in->integer ? 0 : floor(x / y);
        s[0] = fabs(v[0]);
        return;
    case KN_OP_MOD:
        v[0] = y == 0 && in->integer ? 0 : x - floor(x / y) * y;
        s[0] = sx > fabs(v[0]) ? sx : fabs(v[0]);
        return;
    case KN_OP_MIN:
    case KN_OP_MAX:
        v[0] = x != x || (in->op == KN_OP_MIN ? x < y : x > y) ? x : y;
        s[0] = isnan(sx) || sx > sy ? sx : sy;
        return;
    case KN_OP_BITAND:
    case KN_OP_BITOR:
    case KN_OP_BITXOR:
    case KN_OP_SHL:
    case KN_OP_SHR:
        v[0] = of_bits((enum kn_op)in->op, (enum kn_dtype)in->a, x, y);
        s[0] = fabs(v[0]);
        return;
    case KN_OP_POW:
        v[0] = pow(x, y);
        s[0] = fabs(v[0]) * (1 + fabs(y) * safe(sx, fabs(x)) + (x != 0 ? fabs(log(fabs(x))) * sy : 0));
        s[0] = settled(s[0], sx, sy, v[0]);
        return;
    case KN_OP_LT: v[0] = x < y; break;
    case KN_OP_LE: v[0] = x <= y; break;
    case KN_OP_EQ: v[0] = x == y; break;
    case KN_OP_NE: v[0] = x != y; break;
    case KN_OP_AND: v[0] = x != 0 && y != 0; break;
    default: v[0] = x != 0 || y != 0; break;
    }
    s[0] = v[0];
}

/* A read with an index per dimension; outside of the tensor it is the pad value, or an error of the program. */
static void load(kiln_ref *r, const kn_code *c, const kn_instr *in, double *v, double *s)
{
    const kn_tensor *t = &r->p->tensors[in->b];
    int64_t at = 0;
    for (int i = 0; i < t->rank; i++) {
        int dim = c->dims[in->a + i];
        double real = dim < 0 ? c->value[-1 - dim] : 0;
        int64_t x = dim >= 0 ? c->at[dim] : real > -1e18 && real < 1e18 ? (int64_t)real : -1;
        if (x < 0 || x >= t->shape[i]) {
            if (!in->e->padded) r->status = KILN_SHAPE;
            *v = in->e->padded ? in->e->pad_value : 0;
            *s = fabs(*v);
            return;
        }
        at = at * t->shape[i] + x;
    }
    value_of(r, in->b, at, v, s);
}

/* Runs code[from .. to); the result is in register 0. */
static void run(kiln_ref *r, kn_code *c, int from, int to)
{
    for (int i = from; i < to; i++) {
        const kn_instr *in = &c->code[i];
        double *v = &c->value[in->dst], *s = &c->scale[in->dst];
        switch (in->op) {
        case KN_OP_CONST_F: *v = in->k; *s = fabs(in->k); break;
        case KN_R_SLOT: *v = (double)c->at[in->a]; *s = fabs(*v); break;
        case KN_R_INPUT:
            if ((uint64_t)c->at[in->a] >= (uint64_t)r->memo[in->b].elems) {
                r->status = KILN_SHAPE;
                return;
            }
            *v = r->read(r->user, in->b, c->at[in->a]);
            *s = fabs(*v);
            break;
        case KN_R_LINEAR:
            if ((uint64_t)c->at[in->a] >= (uint64_t)r->memo[in->b].elems) {
                r->status = KILN_SHAPE;
                return;
            }
            value_of(r, in->b, c->at[in->a], v, s);
            break;
        case KN_OP_LOAD: load(r, c, in, v, s); break;
        case KN_OP_ADD: v[0] += v[1]; s[0] = ending(s[0] + s[1], s[0], s[1]); cut(in, v, s); break;
        case KN_OP_SUB: v[0] -= v[1]; s[0] = ending(s[0] + s[1], s[0], s[1]); cut(in, v, s); break;
        case KN_OP_MUL: multiply(v, s); cut(in, v, s); break;
        case KN_R_JUMP_FALSE:
            if (*v == 0) i = in->a - 1;
            break;
        case KN_R_JUMP: i = in->a - 1; break;
        default:
            if (kn_op_arity((enum kn_op)in->op) == 1) unary(in, v, s);
            else binary(in, v, s);
        }
    }
}

static void place(kn_code *c, const int64_t *axes)
{
    for (int i = 0; i < c->nslots; i++) {
        int64_t v = c->slots[i].offset;
        for (int k = 0; k < c->s->naxes; k++) v += c->slots[i].coef[k] * axes[k];
        c->at[i] = v;
    }
}

static void combine(enum kn_reduce red, double v, double s, double *value, double *scale)
{
    switch (red) {
    case KN_RED_SUM: *value += v; *scale = ending(*scale + s, *scale, s); return;
    case KN_RED_PROD: *value *= v; *scale *= s; return;
    case KN_RED_MAX: *value = v != v || v > *value ? v : *value; break;
    case KN_RED_MIN: *value = v != v || v < *value ? v : *value; break;
    case KN_RED_ALL: *value = *value != 0 && v != 0; s = *value; break;
    case KN_RED_ANY: *value = *value != 0 || v != 0; s = *value; break;
    case KN_RED_NONE: *value = v; *scale = s; return;
    }
    if (s > *scale) *scale = s;
}

static inline void leaf(kiln_ref *r, const kn_code *c, const kn_instr *in, double *v, double *s)
{
    if (in->op == KN_OP_LOAD) {
        load(r, c, in, v, s);
        return;
    }
    uint64_t at = (uint64_t)c->at[in->a];
    *v = *s = 0;
    if (at >= (uint64_t)r->memo[in->b].elems) {
        r->status = KILN_SHAPE;
    } else if (in->op == KN_R_INPUT) {
        *v = r->read(r->user, in->b, (int64_t)at);
        *s = fabs(*v);
    } else {
        value_of(r, in->b, (int64_t)at, v, s);
    }
}

static bool is_leaf(int op) { return op == KN_R_INPUT || op == KN_R_LINEAR || op == KN_OP_LOAD; }

/* The bulk of all verification is sums of products of two reads: those run without the instruction loop. */
static bool is_product(const kn_code *c)
{
    const kn_instr *in = c->code + c->body;
    return c->s->red == KN_RED_SUM && c->n - c->body == 3 && in[2].op == KN_OP_MUL && is_leaf(in[0].op) && is_leaf(in[1].op);
}

/* n terms along the innermost axis, from where the slots stand. */
static void sum_products(kiln_ref *r, kn_code *c, int inner, int64_t n, double *value, double *scale)
{
    const kn_instr *in = c->code + c->body;
    double v = *value, s = *scale, x, y, sx, sy;
    for (int64_t i = 0; i < n; i++) {
        leaf(r, c, &in[0], &x, &sx);
        leaf(r, c, &in[1], &y, &sy);
        v += x * y;
        s += scale_of_product(sx, sy);
        for (int k = 0; k < c->nslots; k++) c->at[k] += c->slots[k].coef[inner];
    }
    *value = v;
    *scale = s;
}

static void sum_terms(kiln_ref *r, kn_code *c, int inner, int64_t n, double *value, double *scale)
{
    for (int64_t i = 0; i < n; i++) {
        run(r, c, c->body, c->n);
        combine(c->s->red, c->value[0], c->scale[0], value, scale);
        for (int k = 0; k < c->nslots; k++) c->at[k] += c->slots[k].coef[inner];
    }
}

static bool spent(kiln_ref *r, int64_t terms)
{
    if ((r->fuel -= terms) > 0) return false;
    r->fuel = POLL;
    if (r->status == KILN_OK && kn_stopped(r->a)) r->status = KILN_STOPPED;
    return r->status != KILN_OK;
}

/* The whole reduction at one point of the spatial axes; axes[nspatial..] are overwritten. */
static void reduce(kiln_ref *r, kn_code *c, int64_t *axes, double *value, double *scale)
{
    const kn_stmt *st = c->s;
    int inner = st->naxes - 1; /* the longest reduce axis runs innermost */
    for (int k = st->nspatial; k < st->naxes; k++)
        if (st->axes[k].extent > st->axes[inner].extent) inner = k;
    if (st->naxes == st->nspatial) {
        place(c, axes);
        run(r, c, c->body, c->n);
        *value = c->value[0];
        *scale = c->scale[0];
        spent(r, 1);
        return;
    }
    static const double begin[] = {[KN_RED_NONE] = 0, [KN_RED_SUM] = 0, [KN_RED_PROD] = 1, [KN_RED_MAX] = -INFINITY,
        [KN_RED_MIN] = INFINITY,
                                   [KN_RED_ALL] = 1, [KN_RED_ANY] = 0};
    bool product = is_product(c);
    double v = begin[st->red], s = st->red == KN_RED_PROD ? 1 : 0;
    for (int k = st->nspatial; k < st->naxes; k++) axes[k] = 0;
    for (;;) {
        place(c, axes);
        for (int64_t left = st->axes[inner].extent; left > 0 && !spent(r, left < 4096 ? left : 4096); left -= 4096)
            (product ? sum_products : sum_terms)(r, c, inner, left < 4096 ? left : 4096, &v, &s);
        int k = st->naxes - 1;
        while (k >= st->nspatial && (k == inner || ++axes[k] == st->axes[k].extent)) axes[k--] = 0;
        if (k < st->nspatial || r->status != KILN_OK) break;
    }
    *value = v;
    *scale = s;
}

/* Which point of the axes writes element `index`: the inverse of AXIS, AXIS // c, (AXIS // c) % m on the left side. */
static void point_of(const kn_program *p, const kn_stmt *s, int64_t index, int64_t *axes)
{
    const kn_tensor *t = &p->tensors[s->out];
    for (int k = 0; k < s->naxes; k++) axes[k] = 0;
    for (int i = t->rank - 1; i >= 0; i--) {
        int64_t x = index % t->shape[i], c = 1;
        index /= t->shape[i];
        const kn_expr *e = s->lhs[i];
        for (; e->op == KN_OP_MOD || e->op == KN_OP_FLOORDIV; e = e->args[0])
            if (e->op == KN_OP_FLOORDIV) c *= e->args[1]->u.i;
        if (e->op == KN_OP_AXIS) axes[e->u.axis] += x * c;
    }
}

static bool invertible(const kn_program *p, const kn_stmt *s)
{
    for (int i = 0; i < p->tensors[s->out].rank && !s->scatter; i++) {
        const kn_expr *e = s->lhs[i];
        while ((e->op == KN_OP_MOD || e->op == KN_OP_FLOORDIV) && kn_is_int_const(e->args[1]) && e->args[1]->u.i > 0) e = e->args[0];
        if (e->op != KN_OP_AXIS && !(e->op == KN_OP_CONST_I && p->tensors[s->out].shape[i] == 1)) return false;
    }
    return true;
}

/* What is of the dtype already keeps its infinities: only conversions saturate. */
static bool infinite_stays(const kiln_ref *r, int tensor)
{
    const kn_stmt *s = r->code[r->writer[tensor]].s;
    return s->red == KN_RED_NONE && s->body->dtype == r->p->tensors[tensor].dtype;
}

/* Integers narrower than what is summed, or multiplied, in keep its low bits; of numbers that doubles do not hold these are not known. */
static double stored(const kiln_ref *r, int tensor, double x, double *scale)
{
    enum kn_dtype t = r->p->tensors[tensor].dtype;
    if (is_narrow(t)) return within(t, x, scale);
    return kn_is_f8(t) && !(infinite_stays(r, tensor) && isinf(x)) ? kn_f8_round(t, x) : x;
}

static void compute(kiln_ref *r, int tensor, int64_t index, double *value, double *scale)
{
    int64_t axes[KILN_MAX_AXES];
    kn_code *c = &r->code[r->writer[tensor]];
    point_of(r->p, c->s, index, axes);
    reduce(r, c, axes, value, scale);
    *value = stored(r, tensor, *value, scale);
}

static cell *find(memo *m, int64_t index)
{
    uint64_t h = (uint64_t)index * UINT64_C(0x9e3779b97f4a7c15);
    for (int64_t i = (int64_t)(h >> 20) & (m->cap - 1);; i = (i + 1) & (m->cap - 1))
        if (m->cells[i].index == 0 || m->cells[i].index == index + 1) return &m->cells[i];
}

static bool dense(kiln_ref *r, memo *m)
{
    if (m->known) return true;
    m->value = kn_array(r->a, double, m->elems);
    m->scale = kn_array(r->a, double, m->elems);
    m->known = kn_array(r->a, uint8_t, m->elems);
    if (m->value && m->scale && m->known) return true;
    m->known = NULL;
    r->status = KILN_MEMORY;
    return false;
}

static void keep(memo *m, const cell *c)
{
    if (m->known) {
        m->value[c->index - 1] = c->value;
        m->scale[c->index - 1] = c->scale;
        m->known[c->index - 1] = 1;
    } else {
        *find(m, c->index - 1) = *c;
    }
}

/* A table for as long as few elements are wanted, then arrays of all: who checks a large result looks at some thousand elements, and arrays that hold
 * all would take longer to zero than these to compute. */
static bool make_room(kiln_ref *r, memo *m)
{
    if (m->known || m->ncells * 2 < m->cap) return true;
    memo old = *m;
    m->cap = m->cap ? 2 * m->cap : 1024;
    bool all = m->elems <= DENSE_LIMIT && m->cap > m->elems / DENSE_FROM;
    if (!all) m->cells = kn_array(r->a, cell, m->cap);
    if (all ? !dense(r, m) : !m->cells) {
        *m = old;
        r->status = KILN_MEMORY;
        return false;
    }
    for (int64_t i = 0; i < old.cap; i++)
        if (old.cells[i].index) keep(m, &old.cells[i]);
    return true;
}

/* One scatter statement over all its points; what falls outside of the tensor is dropped. */
static void scatter(kiln_ref *r, kn_code *c, memo *m)
{
    const kn_stmt *st = c->s;
    const kn_tensor *t = &r->p->tensors[st->out];
    int64_t axes[KILN_MAX_AXES] = {0};
    int k;
    do {
        bool inside = true;
        int64_t at = 0;
        place(c, axes);
        for (int i = 0; i < t->rank; i++) {
            run(r, c, i ? c->lhs_end[i - 1] : 0, c->lhs_end[i]);
            double x = c->value[0];
            inside &= x >= 0 && x < (double)t->shape[i];
            if (inside) at = at * t->shape[i] + (int64_t)x;
        }
        if (inside) {
            run(r, c, c->body, c->n);
            combine(st->red, c->value[0], c->scale[0], &m->value[at], &m->scale[at]);
            m->value[at] = stored(r, st->out, m->value[at], &m->scale[at]);
        }
        for (k = st->naxes - 1; k >= 0 && ++axes[k] == st->axes[k].extent; k--) axes[k] = 0;
    } while (k >= 0 && r->status == KILN_OK && !spent(r, 1));
}

static void fill(kiln_ref *r, int tensor)
{
    memo *m = &r->memo[tensor];
    if (m->elems > FULL_LIMIT) r->status = KILN_LIMIT;
    if (r->status != KILN_OK || !dense(r, m)) return;
    for (int64_t i = 0; i < m->elems && r->status == KILN_OK; i++) {
        compute(r, tensor, i, &m->value[i], &m->scale[i]);
        m->known[i] = 1;
    }
    for (int i = 0; i < r->p->nstmts && r->status == KILN_OK; i++)
        if (r->p->stmts[i]->out == tensor && r->p->stmts[i]->scatter) scatter(r, &r->code[i], m);
    m->full = false; /* complete: from now on an array like any other */
}

static void value_of(kiln_ref *r, int tensor, int64_t index, double *value, double *scale)
{
    memo *m = &r->memo[tensor];
    *value = *scale = 0;
    if (tensor < r->p->ninputs) {
        *value = r->read(r->user, tensor, index);
        *scale = fabs(*value);
        return;
    }
    if (r->status != KILN_OK) return;
    if (m->full) fill(r, tensor);
    if (!m->wanted) {
        compute(r, tensor, index, value, scale);
    } else if (m->known) {
        if (!m->known[index]) {
            compute(r, tensor, index, &m->value[index], &m->scale[index]);
            m->known[index] = 1;
        }
        *value = m->value[index];
        *scale = m->scale[index];
    } else {
        cell *found = m->cap ? find(m, index) : NULL;
        if (found && found->index) {
            *value = found->value;
            *scale = found->scale;
            return;
        }
        compute(r, tensor, index, value, scale);
        if (!make_room(r, m)) return;
        keep(m, &(cell){index + 1, *value, *scale});
        m->ncells++;
    }
}

kiln_status kiln_ref_open(kiln_arena *a, const kiln_program *p, kiln_ref_input read, void *user, kiln_ref **out, kiln_diag *d)
{
    kiln_ref *r = kn_new(a, kiln_ref);
    if (!r) return kn_fail(d, KILN_MEMORY, "out of memory");
    *r = (kiln_ref){.a = a, .p = p, .read = read, .user = user, .fuel = POLL};
    for (int t = 0; t < p->ntensors; t++) {
        r->writer[t] = kn_writer(p, t);
        if (!kn_elems(&p->tensors[t], &r->memo[t].elems)) return kn_fail(d, KILN_LIMIT, "%s has more than 2^40 elements",
            p->tensors[t].name);
        if (t >= p->ninputs && r->writer[t] < 0) return kn_fail(d, KILN_SHAPE, "%s is never written", p->tensors[t].name);
    }
    for (int i = 0; i < p->nstmts; i++) {
        const kn_stmt *s = p->stmts[i];
        if (!invertible(p, s)) return kn_fail(d, KILN_UNSUPPORTED, "the left side of statement %d cannot be inverted", i + 1);
        if (!kn_ref_compile(a, p, s, &r->code[i])) return kn_fail(d, KILN_MEMORY, "out of memory");
        if (s->scatter) r->memo[s->out].full = r->memo[s->out].wanted = true;
        for (int k = 0; k < r->code[i].n; k++) {
            const kn_instr *in = &r->code[i].code[k];
            if (in->op == KN_OP_LOAD || in->op == KN_R_LINEAR) r->memo[in->b].wanted = true;
        }
    }
    *out = r;
    return KILN_OK;
}

kiln_status kiln_ref_at(kiln_ref *r, int output, int64_t index, double *value, double *scale)
{
    int t = r->p->ninputs + output;
    if (output < 0 || output >= r->p->noutputs || index < 0 || index >= r->memo[t].elems) return KILN_SHAPE;
    value_of(r, t, index, value, scale);
    return r->status;
}

typedef struct arrays { double *const *t; } arrays;

static double read_array(void *user, int input, int64_t index) { return ((const arrays *)user)->t[input][index]; }

kiln_status kn_ref_all(kiln_arena *a, const kn_program *p, double *const *tensors, kiln_diag *d)
{
    arrays user = {tensors};
    kiln_ref *r = NULL;
    double scale;
    kiln_status s = kiln_ref_open(a, p, read_array, &user, &r, d);
    if (s != KILN_OK) return s;
    for (int t = p->ninputs; t < p->ntensors; t++)
        for (int64_t i = 0; i < r->memo[t].elems && r->status == KILN_OK; i++) value_of(r, t, i, &tensors[t][i], &scale);
    return r->status == KILN_OK ? KILN_OK : kn_fail(d, r->status, "%s", kiln_status_text(r->status));
}
