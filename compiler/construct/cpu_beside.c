/* Windows that slide beside the lanes, along two axes (channels last, each with a window of its own): a register tile of places in both directions
 * reads what its windows share once, and rows of tiles that go along the places before they go on with the lanes find it in L1. */
#include "construct/cpu.h"
#include "te/expr.h"

/* A window along a spatial axis: `step` from one place to the next, `reach` from its first element to its last one. */
typedef struct along { int axis; int64_t step, reach; } along;

/* The load's windows overlap along the axis. */
static bool overlaps(const kn_site *x, const kn_expr *load, int axis, along *w)
{
    *w = (along){.axis = axis};
    for (int d = 0; d < load->nargs && !w->step; d++) {
        kn_affine f;
        if (!(kn_axes_in(load->args[d]) >> axis & 1)) continue;
        if (!kn_affine_of(load->args[d], &f) || f.coef[axis] < 1) return false;
        w->step = f.coef[axis];
        for (int r = x->s->nspatial; r < x->s->naxes; r++) w->reach += (f.coef[r] < 0 ? -f.coef[r] : f.coef[r]) * (kn_cpu_extent(x, r) - 1);
    }
    return w->step && w->step <= w->reach;
}

/* The load whose windows overlap along m and along another axis; NULL: there is none. */
static const kn_expr *both_ways(const kn_site *x, const kn_expr *const *loads, int n, along *m, along *o)
{
    for (int l = 0; l < n && l < KN_SITE_LOADS; l++) {
        if (!overlaps(x, loads[l], x->m, m)) continue;
        for (int i = 0; i < x->s->nspatial; i++)
            if (i != x->m && i != x->n && kn_cpu_extent(x, i) > 1 && overlaps(x, loads[l], i, o)) return loads[l];
    }
    return NULL;
}

/* What a tile's windows hold of all lanes, which the next tile finds again if L1 has it; else tiles go along the places first. */
static bool sweeps_l1(const kn_site *x, const along *m, int64_t mr, const along *o, int64_t mo)
{
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1");
    int64_t places = ((mr - 1) * m->step + m->reach + 1) * ((mo - 1) * o->step + o->reach + 1);
    return l1 && places * kn_cpu_extent(x, x->n) * kn_cpu_acc_bytes(x) > l1->capacity_bytes;
}

/* Some number of places that tiles of up to `most` may have divides them. */
static bool divides(int64_t places, int64_t most)
{
    for (int64_t d = 2; d <= most; d++) if (places % d == 0) return true;
    return false;
}

enum { MOST = 2, LONGEST = 6 };

static bool find(const kn_site *x, along *m, along *o)
{
    const kn_expr *loads[KN_SITE_LOADS];
    int n = kn_loads(x->s->body, loads, KN_SITE_LOADS);
    if (x->contraction || x->m < 0 || x->n < 0 || kn_cpu_extent(x, x->n) < x->hw->vector_bytes / kn_cpu_acc_bytes(x)) return false;
    return both_ways(x, loads, n, m, o);
}

bool kn_cpu_is_beside(const kn_site *x)
{
    along m, o;
    if (!find(x, &m, &o) || MOST * MOST * x->reduce_extent > KN_CPU_SQUARE) return false;
    return kn_cpu_extent(x, x->m) >= MOST && kn_cpu_extent(x, o.axis) >= 2 * MOST;
}

bool kn_cpu_beside(const kn_site *x, kn_plans *p)
{
    bool square = false;
    along m, o;
    if (!find(x, &m, &o)) return false;
    int64_t lanes = x->hw->vector_bytes / kn_cpu_acc_bytes(x), columns = kn_cpu_extent(x, x->m);
    for (int64_t mo = 1; mo <= MOST; mo++) {
        if (mo > 1 && kn_cpu_extent(x, o.axis) < 2 * mo) continue;
        for (int64_t mr = mo; mr <= LONGEST && mr <= columns; mr++) {
            if (columns % mr && divides(columns, LONGEST)) continue;
            for (int64_t nv = 1; nv <= 2 && (nv - 1) * lanes < kn_cpu_extent(x, x->n); nv++) {
                if (mo * mr * nv * x->reduce_extent > KN_CPU_SQUARE) continue;
                kn_cpu_tile t = {.lanes = lanes, .nv = nv, .mr = mr, .mc = 1, .grain = 1, .nc = 1, .kb = 1, .rlanes = 1, .runroll = 1,
                                 .mo = mo, .o = o.axis};
                bool sweeps = sweeps_l1(x, &m, mr, &o, mo);
                if (sweeps) t.mc = kn_ceil_div(columns, mr);
                if (sweeps || mo > 1) kn_cpu_try(x, p, &t);
                square |= mo > 1 && mr > 1;
            }
        }
    }
    return square && p->n > 0;
}
