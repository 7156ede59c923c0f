/* The gradient by what a window goes over is a transposed convolution. As it is found, a term counts where a condition holds: that the places which
 * it reads exist. Of a product that is zeros around its factors. And where the window moves by steps, its weights are numbered by quotients and
 * remainders of a place: these become axes of their own, phases, in which it is a convolution; places then take theirs from them. */
#include "grad/parts.h"

/* ---- padding ---- */

enum { FACTORS = 2, COMPARED = 6 };

typedef struct masked {
    kiln_arena *a;
    const kn_program *q;
    const kn_stmt *ranges;
    uint32_t padded;      /* loads, by their order */
    int n;                /* factors that are loads */
    int loads;            /* them, and what selects between them and 0 compare */
    const kn_expr *load[FACTORS + COMPARED];
} masked;

static bool is_zero(const kn_expr *e) { return e->op == KN_OP_CONST_F && e->u.f == 0; }

/* The loads of a product of two, as such or converted, or of one that a condition chooses instead of 0. */
static bool factors(masked *m, const kn_expr *e)
{
    if (e->op == KN_OP_MUL) return factors(m, e->args[0]) && factors(m, e->args[1]);
    if (e->op == KN_OP_SELECT) return is_zero(e->args[2]) && factors(m, e->args[1]);
    if (e->op == KN_OP_CAST) return factors(m, e->args[0]);
    if (e->op != KN_OP_LOAD || m->n == FACTORS || (e->padded && e->pad_value != 0)) return false;
    m->load[m->n++] = e;
    return true;
}

/* Then those of the conditions: whatever they compare where a factor is 0, the result is. */
static bool compared(masked *m, const kn_expr *e, bool condition)
{
    if (e->op == KN_OP_LOAD) {
        if (!condition) return true;
        if (m->loads == FACTORS + COMPARED) return false;
        m->load[m->loads++] = e;
        for (int d = 0; d < e->nargs; d++)
            if (kn_loads(e->args[d], NULL, 0)) return false;
        return true;
    }
    for (int i = 0; i < e->nargs; i++)
        if (!compared(m, e->args[i], condition || (e->op == KN_OP_SELECT && i == 0))) return false;
    return true;
}

/* x - y, where that is a number. */
static bool apart(const masked *m, const kn_expr *x, const kn_expr *y, int64_t *by)
{
    kn_expr *d = kn_bin(m->a, KN_OP_SUB, (kn_expr *)(uintptr_t)x, (kn_expr *)(uintptr_t)y);
    d = d ? kn_simplify(m->a, d, kn_stmt_range, (void *)(uintptr_t)m->ranges) : NULL;
    if (!d || d->op != KN_OP_CONST_I) return false;
    *by = d->u.i;
    return true;
}

/* Where the condition does not hold some factor's index is outside of its tensor: then that is padded instead. */
static bool is_edge(masked *m, const kn_expr *c)
{
    bool low = c->op == KN_OP_LE && kn_is_int_const(c->args[0]), high = c->op == KN_OP_LT && kn_is_int_const(c->args[1]);
    if (!low && !high) return false;
    const kn_expr *x = low ? c->args[1] : c->args[0];
    for (int i = 0; i < m->n; i++)
        for (int d = 0; d < m->load[i]->nargs; d++) {
            int64_t by, dim = m->q->tensors[m->load[i]->u.tensor].shape[d];
            if (!apart(m, x, m->load[i]->args[d], &by)) continue;
            if (low ? c->args[0]->u.i - by > 0 : c->args[1]->u.i - by < dim) continue;
            m->padded |= 1u << i;
            return true;
        }
    return false;
}

/* What is left of the condition; NULL: nothing. */
static kn_expr *without_edges(masked *m, kn_expr *c)
{
    if (c->op != KN_OP_AND) return is_edge(m, c) || (kn_is_int_const(c) && c->u.i) ? NULL : c;
    kn_expr *x = without_edges(m, c->args[0]), *y = without_edges(m, c->args[1]);
    return x && y ? kn_bin(m->a, KN_OP_AND, x, y) : x ? x : y;
}

/* Loads that nothing keeps inside of their tensors but what was left out: where one of them is outside the product is 0 by another. */
static uint32_t strays(const masked *m)
{
    uint32_t set = 0;
    for (int i = 0; i < m->loads; i++)
        for (int d = 0; d < m->load[i]->nargs; d++) {
            int64_t lo, hi, dim = m->q->tensors[m->load[i]->u.tensor].shape[d];
            bool known = kn_expr_range(m->load[i]->args[d], kn_stmt_range, (void *)(uintptr_t)m->ranges, &lo, &hi);
            if (!known || lo < 0 || hi >= dim) set |= 1u << i;
        }
    return set;
}

static kn_expr *with_padding(masked *m, kn_expr *e)
{
    for (int i = 0; i < m->loads; i++)
        if (e == m->load[i]) return m->padded >> i & 1 && !e->padded ? kn_load_padded(m->a, m->q, e->u.tensor, e->args, 0) : e;
    kn_expr *args[3];
    for (int i = 0; i < e->nargs; i++)
        if (!(args[i] = with_padding(m, e->args[i]))) return NULL;
    return kn_rebuild(m->a, e, args);
}

kn_expr *kn_as_padded(kiln_arena *a, const kn_program *q, const kn_stmt *ranges, int rank, kn_expr *body, kn_expr **guard)
{
    masked m = {.a = a, .q = q, .ranges = ranges};
    if (!factors(&m, body)) return NULL;
    m.loads = m.n;
    if (!compared(&m, body, false) || m.loads < 2) return NULL;
    kn_expr *left = without_edges(&m, *guard);
    bool inner = left && kn_axes_in(left) >> rank;
    if (inner && m.loads == m.n) return NULL;
    *guard = inner ? NULL : left;
    m.padded |= strays(&m);
    body = with_padding(&m, body);
    return inner && body ? kn_select(a, left, body, kn_const_f(a, body->dtype, 0)) : body;
}

/* ---- phases ---- */

/* Of axis A: (A + from)//step and, if there is a rest, (A + from)%step; step 0: none seen. whole: A itself stands there too. */
typedef struct digits { int64_t from, step; bool rest, whole; } digits;

/* The axis that e is, times `sign` and plus a number. */
static int axis_in(const kn_expr *e, int sign, int64_t *from)
{
    kn_affine f;
    int found = -1;
    if (!kn_affine_of(e, &f)) return -1;
    for (int i = 0; i < KILN_MAX_AXES; i++) {
        if (!f.coef[i]) continue;
        if (found >= 0 || f.coef[i] != sign) return -1;
        found = i;
    }
    *from = f.offset;
    return found;
}

/* Rounded up, -(-A//step) is (A + step - 1)//step. */
static int digit_of(const kn_expr *e, digits *x)
{
    bool up = e->op == KN_OP_MUL && kn_is_int_const(e->args[1]) && e->args[1]->u.i == -1 && e->args[0]->op == KN_OP_FLOORDIV;
    if (up) e = e->args[0];
    bool digit = (e->op == KN_OP_FLOORDIV || e->op == KN_OP_MOD) && kn_is_int_const(e->args[1]);
    int axis = digit ? axis_in(e->args[0], up ? -1 : 1, &x->from) : -1;
    if (axis < 0) return -1;
    x->step = e->args[1]->u.i;
    x->rest = e->op == KN_OP_MOD;
    if (up) x->from = x->step - 1 - x->from;
    return axis;
}

/* Finds what digits the axes have; those that have several get a negative step. */
static void find_digits(const kn_expr *e, digits *of)
{
    digits x;
    int axis = digit_of(e, &x);
    if (axis >= 0) {
        bool same = !of[axis].step || (of[axis].step == x.step && of[axis].from == x.from);
        x.rest |= of[axis].rest;
        x.whole = of[axis].whole;
        of[axis] = same && x.step > 1 && x.from >= 0 && x.from < x.step ? x : (digits){.step = -1};
        return;
    }
    if (e->op == KN_OP_AXIS) of[e->u.axis].whole = true;
    for (int i = 0; i < e->nargs; i++) find_digits(e->args[i], of);
}

typedef struct renamed {
    kiln_arena *a;
    const kn_program *q;
    int rank;
    digits of[KILN_MAX_AXES];
    int whole[KILN_MAX_AXES], phase[KILN_MAX_AXES];
} renamed;

/* The axis itself, put together again: at either end of its digits it may lie outside. */
static kn_expr *whole_of(renamed *r, int axis)
{
    const digits *x = &r->of[axis];
    if (axis >= r->rank || x->step <= 1) return kn_axis_ref(r->a, r->whole[axis]);
    kn_expr *high = kn_bin(r->a, KN_OP_MUL, kn_axis_ref(r->a, r->whole[axis]), kn_const_i(r->a, KN_I64, x->step));
    return kn_bin(r->a, KN_OP_SUB, kn_bin(r->a, KN_OP_ADD, high, kn_axis_ref(r->a, r->phase[axis])), kn_const_i(r->a, KN_I64, x->from));
}

/* An index of the load has such an axis. */
static bool reads_whole(const renamed *r, const kn_expr *load)
{
    digits found[KILN_MAX_AXES] = {0};
    for (int d = 0; d < load->nargs; d++) find_digits(load->args[d], found);
    for (int k = 0; k < r->rank; k++)
        if (found[k].whole && r->of[k].step > 1) return true;
    return false;
}

static kn_expr *in_digits(renamed *r, kn_expr *e)
{
    digits x;
    kn_expr *args[KILN_MAX_RANK];
    int axis = digit_of(e, &x);
    if (axis >= 0 && axis < r->rank && r->of[axis].step > 1) return kn_axis_ref(r->a, x.rest ? r->phase[axis] : r->whole[axis]);
    if (e->op == KN_OP_AXIS) return whole_of(r, e->u.axis);
    for (int i = 0; i < e->nargs; i++)
        if (!(args[i] = in_digits(r, e->args[i]))) return NULL;
    if (e->op == KN_OP_LOAD && !e->padded && reads_whole(r, e)) return kn_load_padded(r->a, r->q, e->u.tensor, args, 0);
    return e->nargs ? kn_rebuild(r->a, e, args) : e;
}

bool kn_in_phases(kiln_arena *a, const kn_program *q, const kn_stmt *ranges, int rank, kn_expr *body, kn_phases *out)
{
    renamed r = {.a = a, .q = q, .rank = rank};
    int first = -1, phases = 0;
    bool many = false; /* places of a phase: else they are the window's, and what it goes over is summed */
    find_digits(body, r.of);
    for (int k = 0; k < rank; k++) r.of[k].rest |= r.of[k].whole;
    for (int k = rank - 1; k >= 0; k--) {
        if (r.of[k].step <= 1) continue;
        first = k;
        phases += r.of[k].rest;
        many |= ranges->axes[k].extent > r.of[k].step * r.of[k].step;
    }
    if (!many || rank + phases > KILN_MAX_RANK || ranges->naxes + phases > KILN_MAX_AXES) return false;
    *out = (kn_phases){.rank = rank + phases};
    for (int k = 0, n = first; k < rank; k++) {
        const digits *x = &r.of[k];
        kn_expr *at = kn_axis_ref(a, k), *last = kn_bin(a, KN_OP_ADD, at, kn_const_i(a, KN_I64, x->from)), *step = kn_const_i(a, KN_I64, x->step);
        r.whole[k] = k < first ? k : k + phases;
        out->read[r.whole[k]] = x->step > 1 ? kn_bin(a, KN_OP_FLOORDIV, last, step) : at;
        out->shape[r.whole[k]] = x->step > 1 ? (ranges->axes[k].extent - 1 + x->from) / x->step + 1 : ranges->axes[k].extent;
        if (x->step <= 1 || !x->rest) continue;
        r.phase[k] = n;
        out->read[n] = kn_bin(a, KN_OP_MOD, last, step);
        out->shape[n++] = x->step;
    }
    for (int k = rank; k < ranges->naxes; k++) r.whole[k] = k + phases;
    out->body = in_digits(&r, body);
    return out->body != NULL;
}
