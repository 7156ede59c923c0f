/* A statement seen through its affine maps; the roles of its axes come from the maps alone, never from an operator's name. */
#include "construct/site.h"
#include <string.h>

static void axis_range(void *user, const kn_expr *leaf, int64_t *lo, int64_t *hi)
{
    const kn_stmt *s = user;
    *lo = 0;
    *hi = leaf->op == KN_OP_AXIS && leaf->u.axis < s->naxes ? s->axes[leaf->u.axis].extent - 1 : 0;
}

/* Adds the terms of e, times k, to f; quotients and remainders of reduce axes alone go to *bent. */
static bool add_terms(const kn_stmt *s, const kn_expr *e, int64_t k, kn_affine *f, uint32_t *bent)
{
    kn_affine one;
    if (kn_affine_of(e, &one)) {
        for (int i = 0; i < s->naxes; i++) f->coef[i] += k * one.coef[i];
        return true;
    }
    bool product = e->op == KN_OP_MUL && e->args[1]->op == KN_OP_CONST_I;
    if (e->op == KN_OP_ADD) return add_terms(s, e->args[0], k, f, bent) && add_terms(s, e->args[1], k, f, bent);
    if (product) return add_terms(s, e->args[0], k * e->args[1]->u.i, f, bent);
    uint32_t in = kn_axes_in(e);
    for (int i = 0; i < s->nspatial; i++) if (in >> i & 1) return false;
    *bent |= in;
    return in != 0;
}

/* The place of an element whose indices are all sums of axes, which most are: the sum of theirs, times the strides; an axis of one step moves
 * nothing. Simplifying the flat sum, which finds quotients and remainders that belong together, would take half of the time of a construction. */
static bool flat_sum(const kn_stmt *s, const kn_tensor *x, kn_expr *const *idx, kn_affine *f)
{
    int64_t stride = 1;
    for (int i = x->rank - 1; i >= 0; i--) {
        kn_affine one;
        if (!kn_affine_of(idx[i], &one)) return false;
        for (int k = 0; k < s->naxes; k++) f->coef[k] += s->axes[k].extent > 1 ? stride * one.coef[k] : 0;
        stride *= x->shape[i];
    }
    return true;
}

void kn_site_access_of(kiln_arena *a, const kn_program *p, const kn_stmt *s, int tensor, kn_expr *const *idx, bool padded,
                       kn_site_access *out)
{
    const kn_tensor *x = &p->tensors[tensor];
    memset(out, 0, sizeof *out);
    out->padded = padded;
    out->bytes = kn_dtype_bytes(x->dtype);
    bool data = false; /* where it is depends on what is read */
    for (int i = 0; i < x->rank; i++) {
        out->axes |= kn_axes_in(idx[i]);
        data = data || kn_loads(idx[i], NULL, 0);
    }
    if (data) return;
    kn_affine f = {.offset = 0};
    if (flat_sum(s, x, idx, &f)) {
        out->linear = true;
        memcpy(out->coef, f.coef, sizeof out->coef);
        return;
    }
    f = (kn_affine){.offset = 0};
    kn_expr *sum = kn_const_i(a, KN_I64, 0);
    for (int i = 0; i < x->rank; i++) sum = kn_bin(a, KN_OP_ADD, kn_bin(a, KN_OP_MUL, sum, kn_const_i(a, KN_I64, x->shape[i])), idx[i]);
    kn_expr *flat = sum ? kn_simplify(a, sum, axis_range, (void *)(uintptr_t)s) : NULL;
    out->linear = flat && add_terms(s, flat, 1, &f, &out->bent);
    if (out->linear) memcpy(out->coef, f.coef, sizeof out->coef);
}

static bool multiplies(const kn_expr *e)
{
    while (e->op == KN_OP_CAST) e = e->args[0];
    return e->op == KN_OP_MUL;
}

/* Places beside each other along the axis read elements in common, as the window is longer along r than the step from one to the next; vectors where
 * lanes lie beside each other, or the step is a single one. */
static bool overlaps(const kn_site *x, int l, int axis, int r)
{
    const kn_site_access *a = &x->load[l];
    if (!a->linear || (a->bent >> r & 1) || x->s->axes[r].extent < 2 || a->coef[axis] < 1 || a->coef[r] < 1) return false;
    if (a->coef[axis] != a->coef[r] && a->coef[x->n] != 1) return false;
    if (a->coef[r] > a->coef[axis]) return a->coef[r] % a->coef[axis] == 0 && a->coef[r] / a->coef[axis] < x->s->axes[axis].extent; /* dilated */
    return a->coef[axis] % a->coef[r] == 0 && a->coef[axis] / a->coef[r] < x->s->axes[r].extent;
}

/* The innermost axis but n along which a window slides by less than its length. -1: none. */
static int window_axis(const kn_site *x)
{
    for (int i = x->s->nspatial - 1; i >= 0; i--) {
        if (i == x->n || x->s->axes[i].extent < 2) continue;
        for (int l = 0; l < x->nloads; l++)
            for (int r = x->s->nspatial; r < x->s->naxes; r++)
                if (overlaps(x, l, i, r)) return i;
    }
    return -1;
}

/* As many as the axes that it has give, a window's again and again. */
static double elements_of(const kn_stmt *s, const kn_site_access *a)
{
    double n = 1;
    for (int i = 0; i < s->naxes; i++) if (a->axes >> i & 1) n *= (double)s->axes[i].extent;
    return n;
}

static void find_roles(kn_site *x)
{
    const kn_stmt *s = x->s;
    double most = 0; /* elements of what goes along r */
    x->n = x->m = x->r = -1;
    x->reduce_extent = 1;
    for (int i = 0; i < s->naxes; i++) {
        if (s->axes[i].reduce) {
            x->reduce_extent *= s->axes[i].extent;
            double along = 0;
            for (int l = 0; l < x->nloads; l++) {
                bool runs = x->load[l].linear && !(x->load[l].bent >> i & 1) && x->load[l].coef[i] == 1;
                if (runs && elements_of(s, &x->load[l]) > along) along = elements_of(s, &x->load[l]);
            }
            if (along <= 0 || along < most || (along <= most && s->axes[i].extent <= s->axes[x->r].extent)) continue;
            most = along;
            x->r = i;
        } else if (x->store.linear && x->store.coef[i] > 0 && s->axes[i].extent > 1) {
            if (x->n < 0 || x->store.coef[i] < x->store.coef[x->n]) x->n = i;
        }
    }
    if (x->n < 0) x->n = s->nspatial - 1;
    for (int i = 0; i < s->nspatial; i++) {
        if (i == x->n || s->axes[i].extent < 2) continue;
        bool apart = false;
        for (int l = 0; l < x->nloads; l++) apart = apart || ((x->load[l].axes >> i & 1) && !(x->load[l].axes >> x->n & 1));
        bool alone = false;
        for (int l = 0; l < x->nloads; l++) alone = alone || (!(x->load[l].axes >> i & 1) && (x->load[l].axes >> x->n & 1));
        if (apart && alone && (x->m < 0 || s->axes[i].extent > s->axes[x->m].extent)) x->m = i;
    }
    x->contraction = x->m >= 0 && s->red == KN_RED_SUM && multiplies(s->body);
    if (x->m < 0 && s->naxes > s->nspatial) x->m = window_axis(x);
}

/* Some index of the load leaves its tensor for some values of the axes, which are added to *axes: only then does padding matter. */
static bool strays(const kn_program *p, const kn_stmt *s, const kn_expr *load, uint32_t *axes)
{
    bool yes = false;
    for (int d = 0; d < load->nargs; d++) {
        int64_t lo, hi;
        bool known = kn_expr_range(load->args[d], axis_range, (void *)(uintptr_t)s, &lo, &hi);
        if (known && lo >= 0 && hi < p->tensors[load->u.tensor].shape[d]) continue;
        *axes |= kn_axes_in(load->args[d]);
        yes = true;
    }
    return yes;
}

void kn_site_of(kiln_arena *a, const kn_tree *t, const kn_stage *g, const kn_hw *hw, kn_site *x)
{
    memset(x, 0, sizeof *x);
    x->t = t, x->g = g, x->hw = hw, x->s = t->program->stmts[g->stmt];
    x->name = g->name ? g->name : t->program->tensors[x->s->out].name;
    const kn_expr *loads[KN_SITE_LOADS];
    int n = kn_loads(x->s->body, loads, KN_SITE_LOADS);
    x->nloads = n < KN_SITE_LOADS ? n : KN_SITE_LOADS;
    for (int i = 0; i < x->nloads; i++) {
        uint32_t straying = 0;
        bool padded = loads[i]->padded && strays(t->program, x->s, loads[i], &straying);
        kn_site_access_of(a, t->program, x->s, loads[i]->u.tensor, loads[i]->args, padded, &x->load[i]);
        x->load[i].straying = straying;
    }
    kn_site_access_of(a, t->program, x->s, x->s->out, x->s->lhs, false, &x->store);
    find_roles(x);
}

bool kn_site_lanes_agree(const kn_site *x, const kn_expr *load)
{
    for (int d = 0; d < load->nargs && x->n >= 0 && !x->contraction; d++)
        if (load->args[d]->op == KN_OP_AXIS && load->args[d]->u.axis == x->n) return true;
    return false;
}

bool kn_site_scheduled(const kn_tree *t, const kn_stage *g)
{
    bool fresh = g->nloops == t->program->stmts[g->stmt]->naxes && !g->ncaches;
    for (int i = 0; i < g->nloops; i++) fresh = fresh && g->loops[i].kind == KN_SERIAL;
    return !fresh;
}

/* Axes whose numbers e is computed from, other than as places in memory. */
static uint32_t counted_axes(const kn_expr *e)
{
    uint32_t axes = e->op == KN_OP_AXIS ? UINT32_C(1) << e->u.axis : 0;
    for (int i = 0; i < e->nargs && e->op != KN_OP_LOAD; i++) axes |= counted_axes(e->args[i]);
    return axes;
}

bool kn_decides(const kn_expr *e, int axis)
{
    bool reads = e->op == KN_OP_SELECT && (kn_loads(e->args[1], NULL, 0) || kn_loads(e->args[2], NULL, 0));
    if (reads && counted_axes(e->args[0]) >> axis & 1) return true;
    for (int i = 0; i < e->nargs && e->op != KN_OP_LOAD; i++)
        if (kn_decides(e->args[i], axis)) return true;
    return false;
}

int kn_site_followers(const kn_site *x, int axis)
{
    int n = 0;
    for (int l = 0; l < x->nloads; l++) n += x->load[l].axes >> axis & 1;
    return n;
}

const kn_expr *kn_site_only_read(const kn_program *p, int stmt, int tensor)
{
    const kn_expr *one = NULL, *loads[KN_SITE_LOADS];
    for (int i = 0; i < p->nstmts; i++) {
        int n = kn_loads(p->stmts[i]->body, loads, KN_SITE_LOADS);
        if (n > KN_SITE_LOADS) return NULL;
        for (int l = 0; l < n; l++) {
            if (loads[l]->u.tensor != tensor) continue;
            if (one || i != stmt || loads[l]->padded) return NULL;
            one = loads[l];
        }
    }
    return one;
}

bool kn_site_evenly(int64_t n, int64_t units)
{
    enum { WAITS = 8 };
    return kn_round_up(n, units) * (WAITS - 1) <= n * WAITS;
}
