/* Indices that are kept inside of a tensor (resizing, padding by the border): min and max are not solved, but what is read inside is, and only a few
 * points at either end read the border. A read x[max(f, 0)] is x[f] where f >= 0, and x[0] at the points before: two reads, the second over these
 * points alone. */
#include "grad/parts.h"

/* An index max(f, 0) or min(f, n - 1) of a dimension of n elements; at_end: the latter. */
typedef struct clamp { kn_expr *f; bool at_end; } clamp;

static bool clamp_of(const kn_expr *index, int64_t n, clamp *c)
{
    if (index->op != KN_OP_MAX && index->op != KN_OP_MIN) return false;
    bool at_end = index->op == KN_OP_MIN;
    for (int i = 0; i < 2; i++)
        if (kn_is_int_const(index->args[i]) && index->args[i]->u.i == (at_end ? n - 1 : 0)) {
            *c = (clamp){index->args[1 - i], at_end};
            return true;
        }
    return false;
}

typedef struct point { int axis; int64_t at; } point;

static void at_point(void *user, const kn_expr *leaf, int64_t *lo, int64_t *hi)
{
    const point *p = user;
    *lo = *hi = leaf->op == KN_OP_AXIS && leaf->u.axis == p->axis ? p->at : 0;
}

/* The points of the axis at which f leaves the tensor: from *first on, *n of them at one end of the axis. False: they are not so. */
static bool outside(const kn_stmt *s, const clamp *c, int axis, int64_t last, int64_t *first, int64_t *n)
{
    int64_t extent = s->axes[axis].extent, lo, hi, before = 0;
    *n = 0;
    for (int64_t k = 0; k < extent; k++) { /* those at the wanted end, and whether they follow each other up to it */
        point p = {axis, c->at_end ? extent - 1 - k : k};
        if (!kn_expr_range(c->f, at_point, &p, &lo, &hi) || lo != hi || (k && (c->at_end ? lo > before : lo < before))) return false;
        before = lo;
        if (c->at_end ? lo > last : lo < 0) (*n)++;
    }
    *first = c->at_end ? extent - *n : 0;
    return true;
}

static int only_axis(const kn_expr *e)
{
    uint32_t in = kn_axes_in(e);
    int axis = 0;
    if (!in || (in & (in - 1))) return -1;
    while (!(in >> axis & 1)) axis++;
    return axis;
}

static kn_expr *with_index(kiln_arena *a, const kn_program *q, const kn_expr *load, int d, kn_expr *index)
{
    kn_expr *idx[KILN_MAX_RANK];
    for (int i = 0; i < load->nargs; i++) idx[i] = i == d ? index : load->args[i];
    return kn_load(a, q, load->u.tensor, idx);
}

typedef struct shift { int axis; int64_t by; } shift;

static kn_expr *shifted(void *user, kiln_arena *a, kn_expr *e)
{
    const shift *x = user;
    bool it = x->by && e->op == KN_OP_AXIS && e->u.axis == x->axis;
    return it ? kn_bin(a, KN_OP_ADD, e, kn_const_i(a, KN_I64, x->by)) : e;
}

bool kn_unclamped(kiln_arena *a, const kn_program *q, const kn_stmt *s, const kn_expr *load, kn_expr *seed, kn_expr *factor, kn_clamped *out)
{
    enum { MOST = 1 << 20 }; /* points that are looked at */
    for (int d = 0; d < load->nargs && !load->padded; d++) {
        clamp c;
        int64_t dim = q->tensors[load->u.tensor].shape[d], first, n;
        kn_expr *index = kn_simplify(a, load->args[d], kn_stmt_range, (void *)(uintptr_t)s);
        if (!index || !clamp_of(index, dim, &c)) continue;
        int axis = only_axis(c.f);
        if (axis < 0 || s->axes[axis].extent > MOST || !outside(s, &c, axis, dim - 1, &first, &n)) continue;
        shift by = {axis, first};
        *out = (kn_clamped){.inside = with_index(a, q, load, d, c.f), .points = n};
        out->ends = *s;
        if (n) out->ends.axes[axis].extent = n;
        out->border = kn_rewrite(a, with_index(a, q, load, d, kn_const_i(a, KN_I64, c.at_end ? dim - 1 : 0)), shifted, &by);
        out->seed = kn_rewrite(a, seed, shifted, &by);
        out->factor = kn_rewrite(a, factor, shifted, &by);
        return out->inside && out->border && out->seed && out->factor;
    }
    return false;
}
