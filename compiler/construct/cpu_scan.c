/* Sums up to each place in blocks (ops/scan.c): sums of blocks, sums of these up to each block, and what of its own block is before each place. The
 * stages read their tensor twice and, where blocks leave some places over, hand each other as much as they read: one after the other they are bound
 * by what L3 brings. Here all of them go under the loops of the last one over a few columns, of which L2 holds what there is between the stages; not
 * where what they hand on is little (1000x256 in blocks of 10: 0.4 to 0.95). Sums of blocks have all their terms written out, those up to each place
 * the tile of cpu_running.c. 8x59x200 takes 0.55 to 0.65 of the time on a Zen 3. */
#include "construct/cpu.h"
#include "construct/rows.h"

enum {
    VECTORS = 8,  /* of columns at once, at most: a few lines of each row */
    WRITTEN = 16  /* terms that are written out, at most */
};

typedef struct scan {
    kn_rows g;
    int n;             /* the axis of the columns, one of the last stage */
    int64_t nv, lanes;
} scan;

/* Axis `axis` of the last stage in stage k; -1. */
static int axis_in(const scan *r, int k, int axis)
{
    const kn_stmt *s = kn_rows_stmt(&r->g, k);
    for (int x = 0; x < s->nspatial; x++) if (r->g.of[k][x] == axis) return x;
    return -1;
}

static bool is_shared(const scan *r, int k, int x)
{
    int y = r->g.of[k][x];
    return y >= 0 && (r->g.shared >> y & 1);
}

/* Windows that slide along rows have no rows of their own. False: more is read than is looked at. */
static bool leave_windows(scan *r, int k)
{
    const kn_stmt *s = kn_rows_stmt(&r->g, k);
    const kn_expr *loads[KN_SITE_LOADS];
    int n = kn_loads(s->body, loads, KN_SITE_LOADS);
    if (n > KN_SITE_LOADS) return false;
    for (int l = 0; l < n; l++)
        for (int d = 0; d < loads[l]->nargs; d++) {
            uint32_t axes = kn_axes_in(loads[l]->args[d]);
            for (int x = 0; x < s->nspatial && axes >> s->nspatial; x++)
                if ((axes >> x & 1) && is_shared(r, k, x)) r->g.shared &= ~(1u << r->g.of[k][x]);
        }
    return true;
}

static double elements(const scan *r, int k)
{
    const kn_stmt *s = kn_rows_stmt(&r->g, k);
    double n = 1;
    for (int x = 0; x < s->nspatial; x++) n *= is_shared(r, k, x) ? 1 : (double)s->axes[x].extent;
    return n;
}

/* Elements of a column that stages hand each other. */
static double between(const scan *r)
{
    double sum = 0;
    for (int i = 1; i < r->g.n; i++) sum += elements(r, r->g.stage[i]);
    return sum;
}

/* Vectors of columns at once: as many as half of L2 and the number of tasks allow, and of half as many and more those that leave least to the last,
 * which are moved back. False: too few. */
static bool columns_at_once(scan *r)
{
    const kn_hw_level *l2 = kn_hw_level_named(r->g.hw, "l2");
    const kn_stmt *s = kn_rows_stmt(&r->g, r->g.last);
    int64_t vectors = kn_ceil_div(s->axes[r->n].extent, r->lanes), rows = 1, most = vectors < VECTORS ? vectors : VECTORS;
    if (!l2) return false;
    for (int i = 0; i < s->nspatial; i++) if (i != r->n && (r->g.shared >> i & 1)) rows *= s->axes[i].extent;
    double bytes = (between(r) + elements(r, r->g.last)) * kn_dtype_bytes(kn_stmt_acc(s)); /* and what is read twice */
    while (most > 1 && bytes * (double)(most * r->lanes) > (double)l2->capacity_bytes / 2) most--;
    while (most > 1 && rows * kn_ceil_div(vectors, most) < r->g.hw->units) most--;
    if (most * r->lanes * kn_dtype_bytes(kn_stmt_acc(s)) < KN_CPU_LINE || rows * kn_ceil_div(vectors, most) < r->g.hw->units) return false;
    r->nv = most;
    for (int64_t nv = most; nv * 2 >= most; nv--)
        if (kn_round_up(vectors, nv) < kn_round_up(vectors, r->nv)) r->nv = nv;
    return true;
}

/* The stages, some of which sums up to each place, whose lanes are the same columns; false: they are not so. */
static bool gather(scan *r)
{
    const kn_program *p = r->g.t->program;
    bool some = p->tensors[kn_stage_out(r->g.t, r->g.t->stages[r->g.last])].role == KN_OUTPUT, sums = false;
    kn_site x, y;
    for (int i = 0; i < p->nstmts && some; i++) sums = sums || (p->stmts[i]->red != KN_RED_NONE && p->stmts[i]->body->op == KN_OP_SELECT);
    if (!sums) return false;
    some = false;
    kn_site_of(r->g.a, r->g.t, r->g.t->stages[r->g.last], r->g.hw, &x);
    if (x.s->scatter || x.contraction || x.n < 0 || kn_site_scheduled(r->g.t, r->g.t->stages[r->g.last])) return false;
    r->g.n = 1, r->g.stage[0] = r->g.last, r->n = x.n;
    r->g.shared = (1u << x.s->nspatial) - 1;
    for (int i = 0; i < KILN_MAX_AXES; i++) r->g.of[r->g.last][i] = i < x.s->nspatial ? i : -1;
    for (int k = r->g.last - 1; k >= 0; k--) if (kn_rows_join(&r->g, k)) r->g.stage[r->g.n++] = k;
    for (int i = 0; i < r->g.n; i++) if (!leave_windows(r, r->g.stage[i])) return false;
    if (r->g.n < 2 || !(r->g.shared >> r->n & 1)) return false;
    r->lanes = kn_cpu_pow2(x.s->axes[x.n].extent, r->g.hw->vector_bytes / kn_cpu_acc_bytes(&x));
    for (int i = 0; i < r->g.n; i++) {
        kn_site_of(r->g.a, r->g.t, r->g.t->stages[r->g.stage[i]], r->g.hw, &y);
        int places = kn_cpu_places(&y, r->g.a);
        if (y.n < 0 || r->g.of[r->g.stage[i]][y.n] != r->n || kn_cpu_acc_bytes(&y) != kn_cpu_acc_bytes(&x)) return false;
        if (places >= 0 && (places == y.n || is_shared(r, r->g.stage[i], places))) return false;
        some = some || (places >= 0 && kn_cpu_extent(&y, places) == y.reduce_extent && kn_rows_slides(y.s));
    }
    return some && r->lanes >= 4 && between(r) >= elements(r, r->g.last) && columns_at_once(r);
}

/* The loops over rows and columns that all stages have outside; returns the innermost one. */
static const char *put_outer(kn_buf *b, const scan *r, int k)
{
    const kn_stmt *s = kn_rows_stmt(&r->g, k);
    for (int i = 0; i < kn_rows_stmt(&r->g, r->g.last)->nspatial; i++)
        if (i != r->n && (r->g.shared >> i & 1)) kn_putf(b, " %s.0", s->axes[axis_in(r, k, i)].name);
    const char *columns = s->axes[axis_in(r, k, r->n)].name;
    kn_putf(b, " %s.0", columns);
    return columns;
}

static const char *put_stage(kn_buf *b, const scan *r, int k)
{
    kn_site x;
    kn_site_of(r->g.a, r->g.t, r->g.t->stages[k], r->g.hw, &x);
    int places = kn_cpu_places(&x, r->g.a);
    const char *n = x.s->axes[axis_in(r, k, r->n)].name, *bar = " |";
    kn_putf(b, "split %s %s %lld%s %lld\n", x.name, n, (long long)r->nv, places < 0 ? "" : " 1", (long long)r->lanes);
    if (places >= 0) kn_putf(b, "split %s %s 1 %lld\n", x.name, kn_cpu_axis(&x, places), (long long)kn_cpu_extent(&x, places));
    kn_putf(b, "reorder %s", x.name);
    put_outer(b, r, k);
    for (int i = 0; i < x.s->nspatial; i++) {
        if (is_shared(r, k, i)) continue;
        kn_putf(b, "%s %s.0", bar, x.s->axes[i].name);
        bar = "";
    }
    if (places >= 0) kn_putf(b, " %s.1 | %s.1", n, kn_cpu_axis(&x, places));
    else if (x.s->naxes > x.s->nspatial) kn_put(b, " |");
    for (int i = x.s->nspatial; i < x.s->naxes; i++) kn_putf(b, " %s.0", x.s->axes[i].name);
    if (places >= 0) kn_putf(b, " | %s.2 %s.2 %s.3\nunroll %s %s.2\n", kn_cpu_axis(&x, places), n, n, x.name, kn_cpu_axis(&x, places));
    else kn_putf(b, " | %s.1 %s.2\n", n, n);
    if (k == r->g.last) {
        for (int i = 0; i < x.s->nspatial; i++) if (i != r->n && (r->g.shared >> i & 1)) kn_putf(b, "parallel %s %s.0\n", x.name, x.s->axes[i].name);
        kn_putf(b, "parallel %s %s.0\n", x.name, n);
    }
    for (int i = x.s->nspatial; i < x.s->naxes && x.reduce_extent <= WRITTEN; i++) kn_putf(b, "unroll %s %s.0\n", x.name, x.s->axes[i].name);
    kn_putf(b, "unroll %s %s.%d\nvectorize %s %s.%d\n", x.name, n, places < 0 ? 1 : 2, x.name, n, places < 0 ? 2 : 3);
    return n;
}

uint32_t kn_cpu_scan(kiln_arena *a, const kn_tree *t, const kn_hw *hw, int last, kn_plans *p)
{
    scan r = {.g = {.a = a, .t = t, .hw = hw, .last = last, .slide = true}};
    if (!gather(&r)) return 0;
    uint32_t set = 0;
    kn_buf b;
    kn_buf_init(&b, a);
    for (int i = 0; i < r.g.n; i++) {
        set |= 1u << r.g.stage[i];
        put_stage(&b, &r, r.g.stage[i]);
    }
    const char *columns = kn_rows_stmt(&r.g, last)->axes[r.n].name;
    for (int i = 1; i < r.g.n; i++) /* readers before what they read */
        kn_putf(&b, "compute_at %s %s %s.0\n", kn_rows_tensor(&r.g, r.g.stage[i]), kn_rows_tensor(&r.g, last), columns);
    kn_plans_try(p, &b);
    return p->n ? set : 0;
}
