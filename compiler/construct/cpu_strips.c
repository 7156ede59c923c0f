/* Windows over planes (places contiguous, channels outside of them) whose sums are short and whose rows fill vectors: a strip of the image's rows
 * meets all results' channels while it is near, and a register tile is some channels by vectors of one row. What lies in the next rows' places is
 * then no part of a tile, so that results are written where they belong. shape_windows.c fills in padding and takes strides apart. Of long sums,
 * or short rows, places become one axis (flatten_window): its results have to be moved once more, but leave no lanes idle. Windows of one row of
 * taps are such, too; those of one column have one axis of places as they lie. A single row of places has its stride taken apart as well, whatever
 * its sums: packed with its taps, element by element, it takes longer than its products do (1D, 64 to 256 channels in 16 groups, 41 by 4: 0.29 of
 * the time; 128 to 128 in 4, 5 by 2: 0.35). */
#include "construct/cpu.h"
#include "te/expr.h"

typedef struct strip {
    const kn_site *x;
    int v, w;                   /* loads: the window, what it is multiplied by */
    int p;                      /* rows */
    int dim;                    /* of load v: that along which the places lie */
    int64_t step;               /* of the places there */
    int64_t lanes, mr, nv, band;
} strip;

static bool whole(const kn_site *x, int l, const kn_expr *load)
{
    return x->load[l].linear && x->load[l].bytes == kn_cpu_acc_bytes(x) && load->dtype == x->s->body->dtype;
}

/* The dimension of the load that n steps along, and by how much. */
static bool find_places(strip *k, const kn_expr *load)
{
    k->dim = -1;
    for (int d = 0; d < load->nargs; d++) {
        if (!(kn_axes_in(load->args[d]) >> k->x->n & 1)) continue;
        if (k->dim >= 0) return false;
        k->dim = d;
    }
    k->step = k->x->load[k->v].coef[k->x->n];
    return k->dim == load->nargs - 1 && k->step > 0;
}

/* Bytes of the access, of one image and group: of the window's those that one row of places meets, each once. */
static int64_t bytes_met(const strip *k, int l)
{
    const kn_site *x = k->x;
    const kn_expr *loads[2];
    int64_t n = x->load[l].bytes * (l == k->v ? k->step : 1);
    kn_loads(x->s->body, loads, 2);
    uint32_t axes = x->load[l].axes, along = l == k->v ? kn_axes_in(loads[l]->args[k->dim]) : 0;
    for (int i = 0; i < x->s->naxes; i++) {
        bool outside = i < x->s->nspatial && i != x->n && i != x->m; /* loops around a strip */
        bool met = (axes >> i & 1) && !outside && (i == x->n || !(along >> i & 1));
        if (met && !kn_mul_fits(n, kn_cpu_extent(x, i), &n)) return INT64_MAX / 64;
    }
    return n;
}

/* Axis i goes along the image's rows: the window slides along it too, or, where it has one row, along the columns right inside of it. */
static bool is_row(const kn_site *x, const kn_expr *load, int i)
{
    uint32_t reduced = (1u << x->s->naxes) - (1u << x->s->nspatial), column = 0;
    int at = load->nargs - 1;
    for (int d = 0; d < load->nargs; d++) {
        uint32_t in = kn_axes_in(load->args[d]);
        if ((in >> i & 1) && (in & reduced)) return true;
        if (!(in >> x->n & 1) || !(in & reduced)) continue;
        column = in;
        at = d - 1;
    }
    while (at >= 0 && !(kn_axes_in(load->args[at]) & ~column)) at--; /* the columns' phases */
    return column && at >= 0 && (kn_axes_in(load->args[at]) >> i & 1);
}

static bool strip_of(const kn_site *x, strip *k)
{
    const kn_expr *loads[2];
    *k = (strip){.x = x, .v = -1, .p = -1};
    if (x->hw->gpu || !x->contraction || x->s->red != KN_RED_SUM || x->s->scatter || x->n < 0 || x->m < 0 || x->nloads != 2) return false;
    if (x->s->body->op != KN_OP_MUL || kn_loads(x->s->body, loads, 2) != 2 || !x->store.linear || x->store.coef[x->n] != 1) return false;
    for (int l = 0; l < 2; l++) {
        if (!whole(x, l, loads[l])) return false;
        if (x->load[l].axes >> x->n & 1) k->v = l;
    }
    k->w = 1 - k->v;
    if (k->v < 0 || x->load[k->w].axes >> x->n & 1 || x->load[k->v].axes >> x->m & 1 || x->load[k->w].padded) return false;
    for (int i = 0; i < x->s->nspatial; i++)
        if (i != x->n && i != x->m && !(x->load[k->w].axes >> i & 1) && x->s->axes[i].extent > 1 && is_row(x, loads[k->v], i)) k->p = i;
    return find_places(k, loads[k->v]);
}

/* What the window reaches past the place itself, in places. */
static int64_t reach(const strip *k, const kn_expr *at)
{
    kn_affine f;
    int64_t n = 0;
    if (!kn_affine_of(at, &f)) return -1;
    for (int i = k->x->s->nspatial; i < k->x->s->naxes; i++) n += (f.coef[i] < 0 ? -f.coef[i] : f.coef[i]) * (kn_cpu_extent(k->x, i) - 1);
    return n / k->step;
}

/* The tile by the time of all tiles of rows of so many places, the least of which is returned; vectors of the window begin anywhere in a line. Of
 * short ones one register is left: where a tile wants all, what is written out reads its vectors again for each row (3 by 4: 1.2 times as long as
 * 2 by 6); and loads, some of which straddle two lines, take the time where they outnumber multiply-adds (8 by 1: 1.03 to 1.1 times 4 by 2). */
static double choose_tile(strip *k, int64_t places)
{
    enum { MOST = 14, WIDEST = 6 };
    const double row = 0.3, vector = 0.75, straddling = 1.5;
    const kn_site *x = k->x;
    double least = 0, best = 0;
    int64_t need = x->hw->fma_latency * x->hw->fma_per_cycle, registers = x->hw->vector_registers - kn_cpu_short_vectors(x);
    for (int64_t nv = 1; nv <= WIDEST && (nv - 1) * k->lanes < places; nv++) {
        for (int64_t mr = 1; mr <= MOST && mr <= kn_cpu_extent(x, x->m) && mr * nv + nv + 1 <= registers; mr++) {
            double time = kn_cpu_time_of_rows(x, places, mr, nv, k->lanes, row, vector), each = (double)mr + straddling * (double)nv;
            if (mr * nv < need) time *= (double)need / (double)(mr * nv);
            if (least <= 0 || time < least) least = time;
            if (kn_cpu_short_vectors(x) && each > (double)(mr * nv)) time *= each / (double)(mr * nv);
            if (best > 0 && time >= best) continue;
            best = time;
            k->nv = nv;
            k->mr = mr;
        }
    }
    return least;
}

int kn_cpu_strip(const kn_site *x)
{
    enum { MOVED = 8, SHORTEST = 8, LONGEST = 192, LONGEST_SHORT = 640 }; /* what moving a result once more takes, in terms; sums where that shows */
    const double before = 1 / 1.05, before_short = 1.04; /* of the other plan's time: 62 windows of 36 to 1176 terms on a Zen 3 break even there */
    strip k;
    const kn_expr *loads[2];
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    if (!l2 || !strip_of(x, &k)) return -1;
    bool thin = k.p >= 0 && kn_cpu_short_vectors(x);
    if (x->reduce_extent < SHORTEST || x->reduce_extent > (thin ? LONGEST_SHORT : LONGEST)) return -1;
    if (kn_loads(x->s->body, loads, 2) != 2) return -1;
    int64_t n = kn_cpu_extent(x, x->n), beyond = reach(&k, loads[k.v]->args[k.dim]);
    if (k.p < 0) return beyond > 0 && k.step > 1 ? k.v : -1;
    int64_t rows = kn_cpu_extent(x, k.p);
    if (beyond < 0 || (!beyond && k.step == 1 && !x->load[k.v].padded)) return -1; /* no window: its places are one axis as they are */
    if (bytes_met(&k, k.w) > l2->capacity_bytes / 4 || bytes_met(&k, k.v) > l2->capacity_bytes / 4) return -1;
    k.lanes = x->hw->vector_bytes / kn_cpu_acc_bytes(x);
    double strips = (double)x->reduce_extent * choose_tile(&k, n) * (double)rows;
    double moved = (double)(x->reduce_extent + MOVED) * choose_tile(&k, (n + beyond) * rows);
    return strips > 0 && strips < (thin ? before_short : before) * moved ? k.v : -1;
}

const char *kn_cpu_strip_steps(kiln_arena *a, const kn_site *x, int load, const char *plane)
{
    if (x->load[load].coef[x->n] > 1) return kn_format(a, "unstride %s %d %s %s", x->name, load, kn_cpu_axis(x, x->n), plane);
    return x->load[load].padded ? kn_format(a, "decompose_padding %s %d %s", x->name, load, plane) : "";
}

/* Rows of a task: what a quarter of L2 holds of the window's, but tasks enough for the cores. */
static int64_t band_of(const strip *k)
{
    enum { MOST = 8, TASKS = 8 };
    const kn_site *x = k->x;
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    int64_t rows = kn_cpu_extent(x, k->p), tasks = rows, met = bytes_met(k, k->v);
    for (int i = 0; i < x->s->nspatial; i++)
        if (i != x->n && i != x->m && i != k->p && !kn_mul_fits(tasks, kn_cpu_extent(x, i), &tasks)) tasks = INT64_MAX / 64;
    int64_t most = l2->capacity_bytes / 4 / met, band = tasks / (TASKS * (int64_t)x->hw->units);
    if (band > most) band = most;
    if (band > MOST) band = MOST;
    return band < 1 ? 1 : kn_ceil_div(rows, kn_ceil_div(rows, band));
}

bool kn_cpu_strips(const kn_site *x, kn_plans *plans)
{
    strip k;
    if (!kn_hw_level_named(x->hw, "l2") || !strip_of(x, &k) || k.p < 0 || k.step != 1 || x->load[k.v].padded) return false;
    int64_t full = x->hw->vector_bytes / kn_cpu_acc_bytes(x), n = kn_cpu_extent(x, x->n);
    for (k.lanes = full; k.lanes > n;) k.lanes /= 2;
    if (k.lanes < 4 || choose_tile(&k, n) <= 0) return false;
    k.band = band_of(&k);
    int last = x->s->naxes - 1;
    const char *nn = kn_cpu_axis(x, x->n), *m = kn_cpu_axis(x, x->m), *p = kn_cpu_axis(x, k.p);
    kn_buf b;
    kn_buf_init(&b, plans->a);
    kn_putn(&b, x->before.p ? x->before.p : "", x->before.n);
    kn_putf(&b, "split %s %s %lld %lld\nsplit %s %s %lld\n", x->name, nn, (long long)k.nv, (long long)k.lanes, x->name, m, (long long)k.mr);
    kn_putf(&b, "split %s %s %lld\nreorder %s", x->name, p, (long long)k.band, x->name);
    for (int i = 0; i < x->s->nspatial; i++)
        if (i != x->n && i != x->m && i != k.p) kn_putf(&b, " %s.0", kn_cpu_axis(x, i));
    kn_putf(&b, " %s.0 | %s.0 %s.1 %s.0", p, m, p, nn);
    for (int i = x->s->nspatial; i < x->s->naxes; i++) kn_putf(&b, " %s.0", kn_cpu_axis(x, i));
    kn_putf(&b, " | %s.1 %s.1 %s.2\n", m, nn, nn);
    for (int i = 0; i < x->s->nspatial; i++)
        if (i != x->n && i != x->m && i != k.p) kn_putf(&b, "parallel %s %s.0\n", x->name, kn_cpu_axis(x, i));
    kn_putf(&b, "parallel %s %s.0\nunroll %s %s.1\n", x->name, p, x->name, m);
    if (kn_cpu_extent(x, last) * k.mr * k.nv <= 2 * KN_CPU_UNROLLED) kn_cpu_put_unrolled(&b, x, last);
    kn_putf(&b, "unroll %s %s.1\nvectorize %s %s.2\n", x->name, nn, x->name, nn);
    kn_plans_try(plans, &b);
    return plans->n > 0;
}
