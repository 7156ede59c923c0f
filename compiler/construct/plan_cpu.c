/* rTiles of a CPU core: register tile by the micro-kernel rule (accumulators + one row of vectors + broadcasts fit the register file,
 * enough independent chains to cover the FMA latency; Chimera, HPCA'23, equation 3.4), panels sized to L2, then tasks for the cores. */
#include "construct/site.h"
#include "te/expr.h"
#include <string.h>

/* One schedule: n is cut into n.0 | n.1 unrolled vectors | n.2 lanes, m into tasks, rows of a task, unrolled rows. */
typedef struct cpu_tile {
    int64_t lanes, nv, mr, mc;  /* vector width, vectors, rows in registers, row groups of a task */
    int64_t grain;              /* iterations of the outermost other axis in one task */
    int64_t nc;                 /* panels of n that a task goes through for every block of the reduction, 1: one panel is one task */
    int64_t kb;                 /* of the outermost reduce axis that are summed before the next rows are begun, 1: all */
    int64_t rlanes, runroll;    /* reduce axis r as vector and accumulators, 1: not */
    bool pack;
} cpu_tile;

static const char *axis(const kn_site *x, int i) { return x->s->axes[i].name; }
static int64_t extent(const kn_site *x, int i) { return i < 0 ? 1 : x->s->axes[i].extent; }

static int64_t pow2_below(int64_t n, int64_t most)
{
    int64_t p = 1;
    while (p * 2 <= n && p * 2 <= most) p *= 2;
    return p;
}

static int acc_bytes(const kn_site *x)
{
    int b = kn_dtype_bytes(kn_dtype_acc(x->s->body->dtype));
    return b < 1 ? 1 : b;
}

/* The first spatial axis that is neither n nor m and has something to iterate: tasks are cut from it. */
static int first_other(const kn_site *x)
{
    for (int i = 0; i < x->s->nspatial; i++) if (i != x->n && i != x->m && x->s->axes[i].extent > 1) return i;
    return -1;
}

static void put_splits(kn_buf *b, const kn_site *x, const cpu_tile *t, int other)
{
    if (x->n >= 0 && (t->nv > 1 || t->lanes > 1)) {
        kn_putf(b, "split %s %s", x->name, axis(x, x->n));
        if (t->nc > 1) kn_putf(b, " %lld", (long long)t->nc);
        kn_putf(b, " %lld", (long long)t->nv);
        if (t->lanes > 1) kn_putf(b, " %lld", (long long)t->lanes);
        kn_put(b, "\n");
    }
    if (x->m >= 0) kn_putf(b, "split %s %s %lld %lld\n", x->name, axis(x, x->m), (long long)t->mc, (long long)t->mr);
    if (other >= 0 && t->grain > 1) kn_putf(b, "split %s %s %lld\n", x->name, axis(x, other), (long long)t->grain);
    if (t->kb > 1) kn_putf(b, "split %s %s %lld\n", x->name, axis(x, x->s->nspatial), (long long)t->kb);
    if (x->r >= 0 && t->rlanes > 1) kn_putf(b, "split %s %s %lld %lld\n", x->name, axis(x, x->r), (long long)t->runroll, (long long)t->rlanes);
}

/* A map that reads along n as it writes: rows are walked whole, so that memory is streamed. */
static bool streams(const kn_site *x)
{
    if (x->n < 0 || x->s->naxes > x->s->nspatial) return false;
    for (int l = 0; l < x->nloads; l++)
        if ((x->load[l].axes >> x->n & 1) && (!x->load[l].linear || x->load[l].coef[x->n] != 1)) return false;
    return true;
}

/* Order: other axes, rows' tasks, n's tasks | other's grain, row groups, reduction | rows, vectors, lanes. Returns the task loops in par[]. */
static int put_order(kn_buf *b, const kn_site *x, const cpu_tile *t, int other, const char *par[], int64_t times[])
{
    int n = 0;
    bool ntile = x->n >= 0 && (t->nv > 1 || t->lanes > 1), map = x->s->red == KN_RED_NONE;
    for (int i = 0; i < x->s->nspatial; i++) {
        if (i == x->n || i == x->m) continue;
        kn_putf(b, " %s.0", axis(x, i));
        if (i == other && t->grain > 1 && map) kn_putf(b, " %s.1", axis(x, i)); /* what is written is written in order */
        times[n] = i == other ? kn_ceil_div(extent(x, i), t->grain) : extent(x, i);
        par[n++] = axis(x, i);
    }
    if (x->m >= 0) {
        kn_putf(b, " %s.0", axis(x, x->m));
        times[n] = kn_ceil_div(extent(x, x->m), t->mc * t->mr);
        par[n++] = axis(x, x->m);
    }
    bool rows_first = streams(x) && other >= 0 && t->grain > 1; /* then n.0 is no task loop: the others give tasks enough */
    if (x->n >= 0 && !rows_first) {
        kn_putf(b, " %s.0", axis(x, x->n));
        times[n] = kn_ceil_div(extent(x, x->n), ntile ? t->nv * t->lanes * (t->nc > 1 ? t->nc : 1) : 1);
        par[n++] = axis(x, x->n);
    }
    if (n) kn_put(b, " |");
    if (other >= 0 && t->grain > 1 && !map) kn_putf(b, " %s.1", axis(x, other));
    if (x->n >= 0 && rows_first) kn_putf(b, " %s.0", axis(x, x->n));
    int first = x->s->nspatial;
    if (t->kb > 1) kn_putf(b, " %s.0", axis(x, first));
    if (t->nc > 1) kn_putf(b, " %s.1", axis(x, x->n));
    if (x->m >= 0) kn_putf(b, " %s.1", axis(x, x->m));
    for (int i = first; i < x->s->naxes; i++) kn_putf(b, " %s.%d", axis(x, i), i == first && t->kb > 1);
    kn_put(b, " |");
    bool serial = t->nv > 8; /* more vectors than are unrolled: a loop outside the register tile */
    int inner = t->nc > 1 ? 2 : 1; /* n's loop of vectors; that of lanes follows */
    if (ntile && serial) kn_putf(b, " %s.%d", axis(x, x->n), inner);
    if (x->m >= 0) kn_putf(b, " %s.2", axis(x, x->m));
    if (ntile && !serial) kn_putf(b, " %s.%d", axis(x, x->n), inner);
    if (t->rlanes > 1) kn_putf(b, " %s.1 %s.2", axis(x, x->r), axis(x, x->r));
    if (ntile && t->lanes > 1) kn_putf(b, " %s.%d", axis(x, x->n), inner + 1);
    kn_put(b, "\n");
    return n;
}

/* Tasks that keep every core busy to the end, but none so short that calling it shows. Below some ten thousand iterations a core is done
 * before another one has started (launch_us of a hwspec is the time of a fork): none. */
static int64_t tasks_wanted(const kn_site *x)
{
    int64_t n = 1, most = 8 * (int64_t)x->hw->units;
    for (int i = 0; i < x->s->naxes; i++)
        if (!kn_mul_fits(n, extent(x, i), &n)) return most;
    return n < 16384 ? 0 : n / 4096 < most ? n / 4096 : most;
}

enum { UNROLLED = 64 }; /* operations of a register tile whose sum is written out term by term */

static void put_kinds(kn_buf *b, const kn_site *x, const cpu_tile *t, const char *const par[], const int64_t times[], int npar)
{
    int64_t tasks = 1, want = tasks_wanted(x);
    for (int i = 0; i < npar && tasks < want; i++) { /* task loops must lead the order, so stop at the first that is not needed */
        kn_putf(b, "parallel %s %s.0\n", x->name, par[i]);
        if (!kn_mul_fits(tasks, times[i], &tasks)) tasks = want;
    }
    if (x->m >= 0 && t->mr > 1) kn_putf(b, "unroll %s %s.2\n", x->name, axis(x, x->m));
    if (t->rlanes > 1) {
        if (x->n >= 0 && t->nv > 1) kn_putf(b, "unroll %s %s.1\n", x->name, axis(x, x->n));
        if (t->runroll > 1) kn_putf(b, "unroll %s %s.1\nrfactor %s %s.1\n", x->name, axis(x, x->r), x->name, axis(x, x->r));
        kn_putf(b, "vectorize %s %s.2\n", x->name, axis(x, x->r));
        return;
    }
    if (!t->pack && x->s->naxes > x->s->nspatial && x->reduce_extent * t->mr * t->nv <= UNROLLED)
        for (int i = x->s->nspatial; i < x->s->naxes; i++) kn_putf(b, "unroll %s %s.0\n", x->name, axis(x, i));
    if (x->n < 0) return;
    int inner = t->nc > 1 ? 2 : 1;
    if (t->lanes > 1 && t->nv <= 8) kn_putf(b, "unroll %s %s.%d\n", x->name, axis(x, x->n), inner);
    if (t->lanes > 1) kn_putf(b, "vectorize %s %s.%d\n", x->name, axis(x, x->n), inner + 1);
}

/* Elements that load l's bounding box would have with n at one tile and every reduce axis whole. */
static int64_t panel_elems(const kn_site *x, int l, const cpu_tile *t)
{
    int64_t e = t->nv * t->lanes;
    for (int i = x->s->nspatial; i < x->s->naxes; i++)
        if ((x->load[l].axes >> i & 1) && !kn_mul_fits(e, x->s->axes[i].extent, &e)) return INT64_MAX / 2;
    return e;
}

/* A load that no rows read again and whose lanes are near each other: packing would not pay. */
static bool read_once(const kn_site *x, const kn_site_access *a)
{
    return x->m < 0 && a->linear && a->coef[x->n] > 0 && a->coef[x->n] <= 4;
}

/* Loads that hold n and are read again for every row: a panel of them is copied once a task, contiguous, with its padding filled in. */
static void put_caches(kn_buf *b, const kn_site *x, const cpu_tile *t)
{
    if (!t->pack || x->n < 0) return;
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    int64_t room = l2 ? l2->capacity_bytes : 262144;
    int first = x->s->nspatial;
    for (int l = 0; l < x->nloads; l++) {
        const kn_site_access *a = &x->load[l];
        if (!(a->axes >> x->n & 1) || (x->m >= 0 && (a->axes >> x->m & 1)) || first == x->s->naxes) continue;
        bool single = read_once(x, a);
        if (single && !a->padded) continue;
        if (a->linear && a->padded && (a->coef[x->n] == 1 || single)) {
            bool fits = panel_elems(x, l, t) * a->bytes <= room;
            kn_putf(b, "cache_read %s %d scratch %s.0 region\n", x->name, l, axis(x, fits ? x->n : first));
            continue;
        }
        if (panel_elems(x, l, t) * a->bytes > 4 * room) continue;
        int inner = t->nc > 1 ? 2 : 1;
        kn_putf(b, "cache_read %s %d scratch %s.%d loops", x->name, l, axis(x, t->kb > 1 && t->nc <= 1 ? first : x->n), t->nc > 1);
        for (int i = first; i < x->s->naxes; i++)
            if (a->axes >> i & 1) kn_putf(b, " %s.%d", axis(x, i), i == first && t->kb > 1);
        kn_putf(b, " %s.%d %s.%d\n", axis(x, x->n), inner, axis(x, x->n), inner + 1);
    }
}

static void try_tile(const kn_site *x, kn_plans *p, const cpu_tile *t)
{
    kn_buf b;
    const char *par[KILN_MAX_AXES];
    int64_t times[KILN_MAX_AXES];
    kn_buf_init(&b, p->a);
    int other = first_other(x);
    put_splits(&b, x, t, other);
    kn_putf(&b, "reorder %s", x->name);
    int npar = put_order(&b, x, t, other, par, times);
    put_kinds(&b, x, t, par, times, npar);
    put_caches(&b, x, t);
    kn_plans_try(p, &b);
}

enum { FEW = 32 }; /* terms of a sum so short that writing its results is what takes time */

/* How much of the reduction is summed at a time (Goto and van de Geijn's kc): a packed panel streams from L2 and takes an eighth of it; a window's
 * taps are read where they lie and stay in L1. Near a divisor of the axis, so that no block is a small one. */
static int64_t reduce_block(const kn_site *x, const cpu_tile *t, bool window)
{
    const kn_hw_level *near = kn_hw_level_named(x->hw, window ? "l1" : "l2");
    int first = x->s->nspatial;
    if (!near || x->m < 0 || !x->contraction) return 1;
    int64_t room = near->capacity_bytes * (window ? 6 : 1) / 8 / (t->nv * t->lanes * acc_bytes(x));
    int64_t all = extent(x, first), inner = x->reduce_extent / all;
    int64_t most = room / inner;
    if (most < 2 || all <= most + most / 2) return 1;
    for (int64_t d = most; 2 * d > most; d--) if (all % d == 0) return d;
    return kn_ceil_div(all, kn_ceil_div(all, most));
}

/* Rows of a task: half of L2 for the blocked operand, but enough tasks for the cores. */
static int64_t row_groups(const kn_site *x, const cpu_tile *t, int other)
{
    if (x->m < 0) return 1;
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    int64_t room = (l2 ? l2->capacity_bytes : 262144) / 2;
    int64_t row = (t->kb > 1 ? x->reduce_extent / extent(x, x->s->nspatial) * t->kb : x->reduce_extent) * acc_bytes(x);
    int64_t all = kn_ceil_div(extent(x, x->m), t->mr), most = room / (row > 0 ? row : 1) / t->mr;
    int64_t groups = most < 1 ? 1 : most > all ? all : most;
    int64_t tasks = kn_ceil_div(extent(x, x->n), t->nv * t->lanes) * extent(x, other);
    while (groups > 1 && tasks * kn_ceil_div(all, groups) < 2 * x->hw->units) groups = kn_ceil_div(groups, 2);
    return kn_ceil_div(all, kn_ceil_div(all, groups)); /* tasks of one size */
}

/* Panels of a task: as many as leave the cores tasks enough, since they share the blocks of the other operand; their partial sums take at most a
 * quarter of L2. */
static int64_t panels_of_task(const kn_site *x, const cpu_tile *t, int other)
{
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    if (t->kb <= 1 || !l2) return 1;
    int64_t panel = t->nv * t->lanes, panels = kn_ceil_div(extent(x, x->n), panel), rows = kn_ceil_div(extent(x, x->m), t->mc * t->mr);
    int64_t nc = panels * rows * extent(x, other) / (4 * (int64_t)x->hw->units);
    int64_t most = l2->capacity_bytes / 4 / (t->mc * t->mr * panel * acc_bytes(x));
    if (nc > most) nc = most;
    if (nc > panels) nc = panels;
    return nc < 2 ? 1 : kn_ceil_div(panels, kn_ceil_div(panels, nc));
}

/* Taps of a window lie in the lines of their neighbours: a packed panel would hold every element several times. */
static bool taps(const kn_site *x, const kn_site_access *a)
{
    for (int i = x->s->nspatial; i < x->s->naxes; i++)
        if (x->s->axes[i].extent > 1 && a->linear && a->coef[x->n] == 1 && ((a->bent >> i & 1) || (a->coef[i] > 0 && a->coef[i] < 16))) return true;
    return false;
}

/* Tasks of about 1/64 of the work of a core: fewer cost balance, more cost forks. */
static int64_t grain_of(const kn_site *x, int other)
{
    int64_t g = other < 0 ? 1 : extent(x, other) / (32 * (int64_t)x->hw->units);
    return g < 1 ? 1 : g;
}

static void spatial_tiles(const kn_site *x, kn_plans *p)
{
    static const int64_t rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16}, widths[] = {1, 2, 3, 4, 5, 6, 8};
    int other = first_other(x);
    int64_t full = x->hw->vector_bytes / acc_bytes(x), n = extent(x, x->n);
    int64_t lanes = pow2_below(n, full);
    if (lanes < full && lanes * 4 < n * 3) lanes *= 2; /* 7 of 8 lanes beat 4 of 4 and a tail */
    int need = x->hw->fma_latency * x->hw->fma_per_cycle;
    for (int pass = 0; pass < 2; pass++) { /* first tiles that hide the latency, then all that fit */
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            for (size_t k = 0; k < sizeof widths / sizeof *widths; k++) {
                int64_t mr = rows[i], nv = widths[k], acc = mr * nv;
                int64_t bcast = x->m >= 0 ? 2 : 0;
                if (acc + nv + bcast > x->hw->vector_registers || (acc >= need) != (pass == 0)) continue;
                if ((x->m < 0 && mr > 1) || (mr > 1 && mr > extent(x, x->m)) || (nv > 1 && (nv - 1) * lanes >= n)) continue;
                if (pass == 0 && x->m >= 0 && nv > 5) continue;
                cpu_tile t = {.lanes = lanes, .nv = nv, .mr = mr, .grain = grain_of(x, other), .kb = 1, .rlanes = 1, .runroll = 1};
                bool strided = false, padded = false, window = false;
                for (int l = 0; l < x->nloads; l++) {
                    if (x->n < 0 || !(x->load[l].axes >> x->n & 1)) continue;
                    bool once = read_once(x, &x->load[l]);
                    strided = strided || (!once && (!x->load[l].linear || x->load[l].coef[x->n] != 1));
                    padded = padded || x->load[l].padded;
                    window = window || taps(x, &x->load[l]);
                }
                if (!padded) t.kb = reduce_block(x, &t, window);
                t.mc = row_groups(x, &t, other);
                if (t.mc < 4) t.kb = 1;
                t.nc = window ? 1 : panels_of_task(x, &t, other);
                if (!strided && !padded && x->reduce_extent <= FEW) t.mc = 1; /* nothing to pack, little to reuse: rows are written from end to end */
                bool again = x->contraction && t.mc >= 4 && !window; /* a panel of few rows is in L1 as it lies */
                t.pack = x->s->naxes > x->s->nspatial && (strided || padded || again);
                if (!t.pack && lanes > n) t.lanes = pow2_below(n, full); /* nothing fills in lanes past the end */
                if (!t.pack && nv > 1 && (nv - 1) * t.lanes >= n) continue;
                try_tile(x, p, &t);
                if (t.pack && !padded && !again) t.pack = false, try_tile(x, p, &t);
            }
        }
    }
}

/* Few rows, so that the other operand is read once: it streams from memory in rows as long as they can be, a few of them at a time, into
 * partial sums that stay near. */
static bool streamed_tiles(const kn_site *x, kn_plans *p)
{
    int first = x->s->nspatial;
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    int64_t full = x->hw->vector_bytes / acc_bytes(x), rows = extent(x, x->m), n = extent(x, x->n);
    if (!l2 || n * extent(x, first) * acc_bytes(x) < l2->capacity_bytes) return false; /* it stays where it is read */
    if (x->s->naxes != first + 1 || first_other(x) >= 0 || rows > 16 || n < 4 * full || extent(x, first) < 64) return false;
    for (int l = 0; l < x->nloads; l++)
        if ((x->load[l].axes >> x->n & 1) && (!x->load[l].linear || x->load[l].padded || x->load[l].coef[x->n] != 1)) return false;
    int64_t nv = rows > 6 ? 1 : rows > 3 ? 4 : rows > 1 ? 6 : 8, panels = kn_ceil_div(n, nv * full);
    cpu_tile t = {.lanes = full, .nv = nv, .mr = rows, .mc = 1, .grain = 1, .kb = 16, .rlanes = 1, .runroll = 1};
    t.nc = kn_ceil_div(panels, x->hw->units);
    if (t.nc > 1) try_tile(x, p, &t);
    return p->n > 0;
}

/* Lanes along the reduction, where that is what lies contiguous in memory; rows and unrolled vectors give the chains. */
static void reduce_tiles(const kn_site *x, kn_plans *p)
{
    char class = kn_dtype_class(kn_dtype_acc(x->s->body->dtype));
    if (x->r < 0 || class == 'b' || x->s->red == KN_RED_ALL || x->s->red == KN_RED_ANY) return;
    int other = first_other(x);
    int64_t full = x->hw->vector_bytes / acc_bytes(x), lanes = pow2_below(extent(x, x->r), full);
    if (lanes < 2 || (lanes * 4 < full && extent(x, x->n) >= lanes)) return; /* a few lanes, where the output has as many */
    for (int64_t mr = 1; mr <= 4; mr *= 2) {
        for (int64_t nr = 1; nr <= 4; nr *= 2) {
            for (int64_t u = 1; u <= 8; u *= 2) {
                if ((x->m < 0 && mr > 1) || (nr > 1 && (nr > extent(x, x->n) || x->m < 0))) continue;
                if (mr * nr * u > x->hw->vector_registers / 2 || (u > 1 && lanes * u > extent(x, x->r))) continue;
                cpu_tile t = {.lanes = 1, .nv = nr, .mr = mr, .mc = 1, .grain = grain_of(x, other), .rlanes = lanes, .runroll = u};
                t.mc = row_groups(x, &t, other);
                try_tile(x, p, &t);
            }
        }
    }
}

/* Operations on one element; a function of the library counts as several. */
static int work_of(const kn_expr *e)
{
    char class = kn_op_class(e->op);
    int n = class == 'f' ? 8 : class == 'a' || class == 'c';
    for (int i = 0; i < e->nargs && e->op != KN_OP_LOAD; i++) n += work_of(e->args[i]);
    return n;
}

static double bytes_of(const kn_tensor *t)
{
    double n = kn_dtype_bytes(t->dtype);
    for (int i = 0; i < t->rank; i++) n *= (double)t->shape[i];
    return n;
}

/* Vectors of a map: narrow where its operands lie beyond every cache and it does little with them. There the memory sets the pace, and
 * shorter accesses let it overlap more of them. */
static int64_t map_vector_bytes(const kn_site *x)
{
    const kn_program *p = x->t->program;
    const kn_expr *loads[KN_SITE_LOADS];
    const kn_hw_level *far = kn_hw_level_named(x->hw, "l3");
    double bytes = bytes_of(&p->tensors[x->s->out]);
    int n = kn_loads(x->s->body, loads, KN_SITE_LOADS);
    for (int i = 0; i < n && i < KN_SITE_LOADS; i++) bytes += bytes_of(&p->tensors[loads[i]->u.tensor]);
    bool streams = far && work_of(x->s->body) <= 4 && bytes > (double)far->capacity_bytes;
    return streams ? x->hw->streaming_vector_bytes : x->hw->vector_bytes;
}

/* A map: one long axis in vectors. Where it is the only one, a task is a run of it of some thousand elements, but not fewer tasks than keep
 * the cores busy. */
static void map_tiles(const kn_site *x, kn_plans *p)
{
    int other = first_other(x);
    int64_t full = map_vector_bytes(x) / kn_dtype_bytes(x->s->body->dtype), lanes = pow2_below(extent(x, x->n), full);
    bool ragged = other >= 0 && extent(x, x->n) % lanes != 0; /* rows begin anywhere in a cache line: a shorter vector straddles two less often */
    if (ragged && lanes * kn_dtype_bytes(x->s->body->dtype) > 32) lanes /= 2;
    int64_t vectors = kn_ceil_div(extent(x, x->n), lanes), run = vectors / (16 * (int64_t)x->hw->units);
    if (run > 4096) run = 4096;
    if (vectors <= 8) run = vectors; /* a whole row, its last vector moved back */
    const int64_t widths[] = {run, 4, 1};
    for (int i = vectors <= 8 || (other < 0 && run > 8) ? 0 : 1; i < 3; i++) {
        cpu_tile t = {.lanes = lanes, .nv = widths[i], .mr = 1, .mc = 1, .grain = grain_of(x, other), .rlanes = 1, .runroll = 1};
        try_tile(x, p, &t);
        if (i == 0 && p->n) break; /* short tasks would only pay more forks */
    }
}

/* The axis along which some load is contiguous that steps over memory along n: rows of it are turned into lanes in registers. */
static int turned_axis(const kn_site *x)
{
    for (int l = 0; l < x->nloads && x->n >= 0; l++) {
        const kn_site_access *a = &x->load[l];
        if (!a->linear || a->padded || a->bytes < 4 || !a->coef[x->n] || a->coef[x->n] == 1) continue;
        for (int i = 0; i < x->s->nspatial; i++) if (i != x->n && a->coef[i] == 1) return i;
    }
    return -1;
}

/* Squares along n in one task: one where the other axes give tasks enough, else as many as leave the cores that. */
static int64_t squares_of_task(const kn_site *x, int64_t lanes, int64_t rows)
{
    int64_t tasks = kn_ceil_div(extent(x, x->m), rows), want = 8 * (int64_t)x->hw->units, squares = kn_ceil_div(extent(x, x->n), lanes);
    for (int i = 0; i < x->s->nspatial; i++)
        if (i != x->n && i != x->m && !kn_mul_fits(tasks, extent(x, i), &tasks)) tasks = want;
    int64_t run = tasks >= want ? 1 : squares * tasks / want;
    return run > 8 ? run : squares > 8 && tasks < want ? 9 : 1;
}

/* A map that transposes: squares of as many rows as a vector has lanes, walked along the lines that are written. */
static bool turned_tiles(const kn_site *x, kn_plans *p)
{
    int64_t lanes = x->hw->vector_bytes / kn_dtype_bytes(x->s->body->dtype), shorter = extent(x, x->n);
    if (shorter > extent(x, x->m)) shorter = extent(x, x->m);
    lanes = pow2_below(shorter, lanes < 16 ? lanes : 16);
    if (lanes < 4) return false;
    int other = first_other(x);
    int64_t rows = extent(x, x->m) < 8 && extent(x, x->m) % lanes ? extent(x, x->m) : lanes; /* moving a square back would do most of it twice */
    int64_t run = squares_of_task(x, lanes, rows);
    cpu_tile t = {.lanes = lanes, .nv = run, .mr = rows, .mc = 1, .grain = grain_of(x, other), .rlanes = 1, .runroll = 1};
    try_tile(x, p, &t);
    return p->n > 0;
}

/* A map whose innermost axis is a handful of elements: lanes along the next one out, whose vectors are interleaved as they are stored. */
static bool interleaved_tiles(const kn_site *x, kn_plans *p)
{
    int64_t few = extent(x, x->n), lanes = x->hw->vector_bytes / kn_dtype_bytes(x->s->body->dtype);
    if (few < 2 || few > 4 || kn_dtype_bytes(x->s->body->dtype) < 4 || !x->store.linear) return false;
    kn_site y = *x;
    y.m = x->n, y.n = -1;
    for (int i = 0; i < x->s->nspatial; i++) if (x->store.coef[i] == few && extent(x, i) >= 4) y.n = i;
    if (y.n < 0) return false;
    int other = first_other(&y);
    lanes = pow2_below(extent(x, y.n), lanes);
    cpu_tile t = {.lanes = lanes, .nv = squares_of_task(&y, lanes, few), .mr = few, .mc = 1, .grain = grain_of(&y, other), .rlanes = 1, .runroll = 1};
    try_tile(&y, p, &t);
    return p->n > 0;
}

void kn_plan_cpu(const kn_site *x, kn_plans *p)
{
    if (!x->s->scatter) {
        kn_site y = *x;
        if (x->s->red == KN_RED_NONE) {
            y.m = turned_axis(x);
            bool done = y.m >= 0 && turned_tiles(&y, p);
            y.m = -1;
            done = done || interleaved_tiles(&y, p);
            if (!done) map_tiles(&y, p); /* lanes gathered one by one are no match */
        }
        else if (!streamed_tiles(x, p)) reduce_tiles(x, p), spatial_tiles(x, p);
    }
    kn_buf none;
    kn_buf_init(&none, p->a);
    if (!p->n) {
        p->left++;
        kn_put(&none, "# as written\n");
        kn_plans_try(p, &none);
    }
}
