/* rTiles of a CPU core as traces: a tile's numbers become splits, an order, kinds of loops and caches. cpu_sums.c and cpu_maps.c choose the
 * numbers. */
#include "construct/cpu.h"
#include "construct/nest.h"
#include <math.h>

double kn_cpu_slowed_by_loads(const kn_site *x, int64_t lanes, double loads, double chains)
{
    const kn_hw *hw = x->hw;
    const kn_hw_level *l1 = kn_hw_level_named(hw, "l1");
    if (!l1 || l1->bandwidth_gbs <= 0 || hw->fma_per_cycle <= 0) return 1;
    double a_cycle = l1->bandwidth_gbs / (hw->clock_ghz * (double)hw->units);
    double loading = loads * (double)(lanes * kn_cpu_acc_bytes(x)) / a_cycle, computing = chains / hw->fma_per_cycle;
    return sqrt(computing * computing + loading * loading) / computing;
}

int64_t kn_cpu_pow2(int64_t n, int64_t most)
{
    int64_t p = 1;
    while (p * 2 <= n && p * 2 <= most) p *= 2;
    return p;
}

double kn_cpu_bytes(const kn_tensor *t)
{
    double n = kn_dtype_bytes(t->dtype);
    for (int i = 0; i < t->rank; i++) n *= (double)t->shape[i];
    return n;
}

double kn_cpu_vectors(const kn_site *x, int64_t n, int64_t lanes) { return kn_hw_vectors(x->hw, n, lanes, kn_cpu_acc_bytes(x)); }

double kn_cpu_idle(const kn_site *x, int64_t n, int64_t lanes) { return kn_cpu_vectors(x, n, lanes) * (double)lanes / (double)n - 1; }

double kn_cpu_groups(const kn_site *x)
{
    double groups = 1;
    for (int i = 0; i < x->s->nspatial; i++)
        if ((x->load[0].axes & x->load[1].axes) >> i & 1) groups *= (double)kn_cpu_extent(x, i);
    return groups;
}

int kn_cpu_acc_bytes(const kn_site *x)
{
    int b = kn_dtype_bytes(kn_stmt_acc(x->s));
    return b < 1 ? 1 : b;
}

void kn_cpu_put_unrolled(kn_buf *b, const kn_site *x, int axis)
{
    if (kn_cpu_extent(x, axis) <= KN_MOST_UNROLLED) kn_putf(b, "unroll %s %s.0\n", x->name, kn_cpu_axis(x, axis));
}

void kn_cpu_put_lanes_last(kn_buf *b, const kn_site *x, int load, const char *copy)
{
    int rank = 0, last = 0;
    kn_putf(b, "reindex %s %d %s\ntransform_layout %s", x->name, load, copy, copy);
    for (int i = 0; i < x->s->naxes; i++) {
        if (!(x->load[load].axes >> i & 1)) continue;
        if (i == x->n) last = rank;
        else kn_putf(b, " %d", rank);
        rank++;
    }
    kn_putf(b, " %d\n", last);
}

/* Tasks that keep every core busy to the end, but none so short that calling it shows. Below some ten thousand iterations, or a hundred thousand
 * products, of which it does a vector at a time, a core is done before another one has started (launch_us of a hwspec is that time): none. */
static int64_t tasks_wanted(const kn_site *x)
{
    enum { VECTORS = 8 };
    int64_t n = 1, most = 8 * (int64_t)x->hw->units, least = x->contraction ? VECTORS * KN_CPU_FORKED : KN_CPU_FORKED;
    for (int i = 0; i < x->s->naxes; i++)
        if (!kn_mul_fits(n, kn_cpu_extent(x, i), &n)) return most;
    return n < least ? 0 : n / 4096 < most ? n / 4096 : most;
}

/* A map that goes along what it writes, not across it. */
static bool is_map(const kn_site *x) { return x->s->red == KN_RED_NONE && x->m < 0; }

/* Axis k by how far its steps lie apart in what is written; one that has none goes around all. */
static int by_steps(const kn_site *x, int k)
{
    int64_t step[KILN_MAX_AXES] = {0};
    for (int i = 0; i < x->s->nspatial; i++) step[i] = kn_cpu_extent(x, i) > 1 ? x->store.coef[i] : INT64_MAX;
    for (int i = 0; i < x->s->nspatial; i++) {
        int before = 0; /* so many go around this one */
        for (int j = 0; j < x->s->nspatial; j++) before += step[j] > step[i] || (step[j] == step[i] && j < i);
        if (before == k) return i;
    }
    return k;
}

int kn_cpu_in_order(const kn_site *x, int k)
{
    int ones = 0, first = -1; /* axes of one iteration, which go around all; the statement's first of several */
    for (int i = 0; i < x->s->nspatial; i++) {
        if (kn_cpu_extent(x, i) == 1) ones++;
        else if (first < 0) first = i;
    }
    bool sorted = is_map(x) && x->store.linear && first >= 0 && by_steps(x, ones) == first;
    return sorted ? by_steps(x, k) : k;
}

int kn_cpu_other(const kn_site *x)
{
    int found = -1;
    bool map = is_map(x);
    int64_t tasks = 1, want = tasks_wanted(x);
    for (int k = 0; k < x->s->nspatial; k++) {
        int i = kn_cpu_in_order(x, k);
        if (i == x->n || i == x->m || x->s->axes[i].extent == 1) continue;
        found = i;
        if (!map || !kn_mul_fits(tasks, kn_cpu_extent(x, i), &tasks) || tasks >= want) break;
    }
    return found;
}

int64_t kn_cpu_grain(const kn_site *x, int other)
{
    int64_t g = other < 0 ? 1 : kn_cpu_extent(x, other) / (32 * (int64_t)x->hw->units);
    return g < 1 ? 1 : g;
}

/* n's loop of vectors, by its number; that of lanes follows. */
static int vectors_of(const kn_cpu_tile *t) { return t->group > 1 ? 3 : t->nc > 1 ? 2 : 1; }

static void put_splits(kn_nest *w, const kn_cpu_tile *t, int other)
{
    const kn_site *x = w->x;
    bool grouped = t->group > 1;
    int64_t panels = grouped ? t->nc / t->group : t->nc > 1 ? t->nc : 0, lanes = t->lanes > 1 ? t->lanes : 0;
    if (x->n >= 0 && (t->nv > 1 || lanes)) kn_nest_split(w, x->n, (int64_t[KN_NEST_CUTS]){panels, grouped ? t->group : 0, t->nv, lanes});
    if (x->m >= 0) kn_nest_split(w, x->m, (int64_t[KN_NEST_CUTS]){t->mc, t->mr});
    if (other >= 0 && t->grain > 1) kn_nest_split(w, other, (int64_t[KN_NEST_CUTS]){t->grain});
    if (t->mo > 1) kn_nest_split(w, t->o, (int64_t[KN_NEST_CUTS]){t->mo});
    int64_t terms = t->apart ? kn_ceil_div(kn_cpu_extent(x, t->blocked), t->kb) : t->kb;
    if (t->kb > 1) kn_nest_split(w, t->blocked, (int64_t[KN_NEST_CUTS]){terms});
    if (t->chains) kn_nest_split(w, t->blocked, (int64_t[KN_NEST_CUTS]){t->chains});
    if (x->r >= 0 && t->rlanes > 1) kn_nest_split(w, x->r, (int64_t[KN_NEST_CUTS]){t->runroll, t->rlanes});
}

/* A map that reads along n as it writes: rows are walked whole, so that memory is streamed. */
static bool streams(const kn_site *x)
{
    if (x->n < 0 || x->s->naxes > x->s->nspatial) return false;
    for (int l = 0; l < x->nloads; l++)
        if ((x->load[l].axes >> x->n & 1) && (!x->load[l].linear || x->load[l].coef[x->n] != 1)) return false;
    return true;
}

/* What is written is written in order; and what is read once is read so, but for a few planes at a time, which come sooner beside each other (14 of
 * 168x83x83, every other row of each: 1.9 to 3 times as fast in order; 2 planes 0.92). A panel is of one product of a batch: several of them at a
 * time leave runs of a few lines (372x469x24x32 0.55 of the time in order, 1613x131x19x20 0.42, 306x29x216x59 0.6; of 90 batches 42 differ, 0.9 on
 * average). */
static bool in_their_order(const kn_site *x, const kn_cpu_tile *t, int other)
{
    enum { BESIDE = 8 };
    bool own = false;
    for (int l = 0; l < x->nloads && (t->pack || x->contraction) && other >= 0 && x->n >= 0; l++)
        own |= x->load[l].axes >> x->n & 1 && x->load[l].axes >> other & 1;
    return x->s->red == KN_RED_NONE || own || (!x->contraction && t->grain > BESIDE);
}

/* Iterations of an axis' outermost loop that is neither n's nor m's. */
static int64_t times_of(const kn_site *x, const kn_cpu_tile *t, int other, int i)
{
    return kn_ceil_div(kn_cpu_extent(x, i), i == t->o && t->mo > 1 ? t->mo : i == other ? t->grain : 1);
}

/* Order: other axes, rows' tasks, n's tasks | other's grain, row groups, reduction | rows, vectors, lanes. Returns the task loops in par[]. */
static int put_order(kn_nest *w, const kn_cpu_tile *t, int other, int par[], int64_t times[])
{
    const kn_site *x = w->x;
    int k = 0, n = x->n, m = x->m;
    bool ntile = n >= 0 && (t->nv > 1 || t->lanes > 1), in_order = in_their_order(x, t, other);
    for (int at = 0; at < x->s->nspatial; at++) {
        int i = kn_cpu_in_order(x, at);
        if (i == n || i == m) continue;
        kn_nest_loop(w, i, 0);
        if (i == other && t->grain > 1 && in_order) kn_nest_loop(w, i, 1); /* what is read once is read, and written, in order */
        times[k] = times_of(x, t, other, i);
        par[k++] = i;
    }
    if (m >= 0) {
        kn_nest_loop(w, m, 0);
        times[k] = kn_ceil_div(kn_cpu_extent(x, m), t->mc * t->mr);
        par[k++] = m;
    }
    bool rows_first = streams(x) && other >= 0 && t->grain > 1; /* then n.0 is no task loop: the others give tasks enough */
    if (n >= 0 && !rows_first) {
        kn_nest_loop(w, n, 0);
        times[k] = kn_ceil_div(kn_cpu_extent(x, n), ntile ? t->nv * t->lanes * (t->nc > 1 ? t->nc : 1) : 1);
        par[k++] = n;
    }
    if (k) kn_nest_bar(w);
    if (other >= 0 && t->grain > 1 && !in_order) kn_nest_loop(w, other, 1);
    if (n >= 0 && rows_first) kn_nest_loop(w, n, 0);
    if (t->kb > 1) kn_nest_loop(w, t->blocked, t->apart);
    if (t->nc > 1 && !t->along) kn_nest_loop(w, n, 1);
    if (t->group > 1) kn_nest_loop(w, n, 2);
    if (m >= 0) kn_nest_loop(w, m, 1);
    if (t->along) kn_nest_loop(w, n, 1);
    double share;
    uint32_t uneven = kn_cpu_uneven(x, &share);
    for (int first = 1; first >= 0; first--)
        for (int i = x->s->nspatial; i < x->s->naxes; i++)
            if ((int)(uneven >> i & 1) == first) kn_nest_loop(w, i, i == t->blocked && t->kb > 1 && !t->apart);
    kn_nest_bar(w);
    bool serial = t->nv > KN_CPU_ROW; /* more vectors than are unrolled: a loop outside the register tile */
    int inner = vectors_of(t);
    if (ntile && serial) kn_nest_loop(w, n, inner);
    if (t->mo > 1) kn_nest_loop(w, t->o, 1);
    /* of two factors with lanes along the sum the vectors of the inner one are held, which have to be the fewer where registers are full */
    bool columns = t->rlanes > 1 && ntile && !serial && m >= 0 && t->mr < t->nv && t->mr * t->nv + t->nv >= x->hw->vector_registers;
    if (columns) kn_nest_loop(w, n, inner);
    if (m >= 0) kn_nest_loop(w, m, 2);
    if (ntile && !serial && !columns) kn_nest_loop(w, n, inner);
    for (int level = 1; level <= 2 && t->rlanes > 1; level++) kn_nest_loop(w, x->r, level);
    if (t->chains) kn_nest_loop(w, t->blocked, 1);
    if (ntile && t->lanes > 1) kn_nest_loop(w, n, inner + 1);
    return k;
}

/* Rows of padded windows that tiles do not divide: tasks along them would leave the last tile to be computed element by element (tile.c of lower). */
static bool parts_padding(const kn_site *x, const kn_cpu_tile *t)
{
    bool padded = false;
    for (int l = 0; l < x->nloads; l++) padded |= x->load[l].padded && x->m >= 0 && (x->load[l].axes >> x->m & 1);
    return padded && x->s->red != KN_RED_NONE && kn_cpu_extent(x, x->m) % t->mr;
}

/* Registers for what all terms of the innermost loop read along the lanes, beside the sums of mr rows of nv vectors: where the loop is written out,
 * gcc reads it first, and moves sums to memory for it if it must (50x14x14, 54 of 3x3: 66 us, 51 with the loop). Not of taps that have no lines in
 * common, rows of the window (116x28x28, 40 of 7x1: 0.75 of the time written out), nor of such as the address is a quotient of (7x7 by 2: 0.6). */
static bool taps_fit(const kn_site *x, int64_t mr, int64_t nv)
{
    int last = x->s->naxes - 1;
    int64_t lanes = x->hw->vector_bytes / kn_cpu_acc_bytes(x);
    bool beside = false;
    for (int l = 0; l < x->nloads; l++) {
        int64_t step = x->load[l].coef[last] < 0 ? -x->load[l].coef[last] : x->load[l].coef[last];
        bool lines = x->load[l].axes >> x->n & 1 && x->load[l].axes >> last & 1;
        beside = beside || (x->n >= 0 && lines && !(x->load[l].bent >> last & 1) && step < lanes);
    }
    return !beside || (mr + kn_cpu_extent(x, last)) * nv <= x->hw->vector_registers;
}

/* Task loops lead the order, as many as give tasks enough. */
static void put_parallel(kn_nest *w, const kn_cpu_tile *t, const int par[], const int64_t times[], int npar)
{
    int64_t tasks = 1, want = tasks_wanted(w->x);
    for (int i = 0; i < npar && tasks < want; i++) {
        if (par[i] == w->x->m && tasks >= w->x->hw->units && parts_padding(w->x, t)) break;
        kn_nest_kind(w, "parallel", par[i], 0);
        if (!kn_mul_fits(tasks, times[i], &tasks)) tasks = want;
    }
}

/* The axis' second part has sums of its own. */
static void put_chains(kn_nest *w, int axis)
{
    kn_nest_kind(w, "unroll", axis, 1);
    kn_nest_kind(w, "rfactor", axis, 1);
}

/* Lanes along the reduction. */
static void put_along_sum(kn_nest *w, const kn_cpu_tile *t)
{
    const kn_site *x = w->x;
    if (x->n >= 0 && t->nv > 1) kn_nest_kind(w, "unroll", x->n, 1);
    if (t->runroll > 1) put_chains(w, x->r);
    if (t->upright) kn_nest_kind(w, "unroll", x->r, 0);
    for (int i = x->s->nspatial; i < x->s->naxes; i++) { /* digits of an axis: halves of a byte */
        bool digit = i != x->r && kn_cpu_extent(x, i) > 1 && kn_cpu_extent(x, i) <= KN_CPU_DIGITS;
        if (digit) kn_nest_kind(w, "unroll", i, 0);
    }
    kn_nest_kind(w, "vectorize", x->r, 2);
}

/* All of the axis' outermost loop is written out, unless it is too long for that. */
static void put_whole(kn_nest *w, const kn_cpu_tile *t, int axis)
{
    int64_t extent = kn_cpu_extent(w->x, axis);
    if ((axis == t->blocked && t->kb > 1 ? kn_ceil_div(extent, t->kb) : extent) <= KN_MOST_UNROLLED) kn_nest_kind(w, "unroll", axis, 0);
}

/* Of the reduction what is written out: a few taps, since a loop that short ends before its multiply-adds do. */
static void put_written(kn_nest *w, const kn_cpu_tile *t)
{
    const kn_site *x = w->x;
    double share;
    uint32_t uneven = kn_cpu_uneven(x, &share);
    int last = x->s->naxes - 1;
    int64_t tile = t->mr * t->nv;
    bool square = t->mo > 1 && x->reduce_extent * t->mo * tile <= KN_CPU_SQUARE, bare = !t->pack && !t->chains && t->mo <= 1;
    bool row = x->contraction && !uneven && last > x->s->nspatial && last != t->blocked;
    if (square || t->terms || (bare && last >= x->s->nspatial && x->reduce_extent * tile <= KN_CPU_UNROLLED))
        for (int i = x->s->nspatial; i < x->s->naxes; i++) put_whole(w, t, i);
    else if (row && kn_cpu_extent(x, last) * tile <= KN_CPU_UNROLLED && taps_fit(x, t->mr, t->nv)) put_whole(w, t, last);
    else if (t->kb > 1 && (t->written || (x->m < 0 && x->nloads == 1 && !t->pack && t->kb * t->nv <= KN_CPU_UNROLLED)))
        kn_nest_kind(w, "unroll", t->blocked, !t->apart);
}

static void put_kinds(kn_nest *w, const kn_cpu_tile *t)
{
    if (t->mo > 1) kn_nest_kind(w, "unroll", t->o, 1);
    if (w->x->m >= 0) kn_nest_kind(w, "unroll", w->x->m, 2);
    if (t->rlanes > 1) {
        put_along_sum(w, t);
        return;
    }
    if (t->chains) put_chains(w, t->blocked);
    put_written(w, t);
    if (w->x->n < 0 || t->lanes <= 1) return;
    if (t->nv <= KN_CPU_ROW) kn_nest_kind(w, "unroll", w->x->n, vectors_of(t));
    kn_nest_kind(w, "vectorize", w->x->n, vectors_of(t) + 1);
}

/* Elements that load l's bounding box would have with n at one tile and every reduce axis whole; block: but of the blocked one a block. */
static int64_t panel_elems(const kn_site *x, int l, const kn_cpu_tile *t, bool block)
{
    int64_t e = t->nv * t->lanes;
    for (int i = x->s->nspatial; i < x->s->naxes; i++) {
        int64_t terms = block && t->kb > 1 && i == t->blocked ? t->kb : x->s->axes[i].extent;
        if ((x->load[l].axes >> i & 1) && !kn_mul_fits(e, terms, &e)) return INT64_MAX / 2;
    }
    return e;
}

bool kn_cpu_read_once(const kn_site *x, const kn_site_access *a)
{
    return x->m < 0 && a->linear && a->coef[x->n] > 0 && a->coef[x->n] <= 4;
}

/* Loads that hold n and are read again for every row: a panel of them is copied once a task, contiguous, with its padding filled in. */
static void put_caches(kn_buf *b, const kn_site *x, const kn_cpu_tile *t)
{
    if (!t->pack || x->n < 0) return;
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    int64_t room = l2 ? l2->capacity_bytes : 262144;
    int first = x->s->nspatial;
    for (int l = 0; l < x->nloads; l++) {
        const kn_site_access *a = &x->load[l];
        if (!(a->axes >> x->n & 1) || (x->m >= 0 && (a->axes >> x->m & 1)) || first == x->s->naxes) continue;
        bool single = kn_cpu_read_once(x, a);
        if (single && !a->padded) continue;
        if (a->linear && a->padded && (a->coef[x->n] == 1 || single)) {
            bool fits = panel_elems(x, l, t, false) * a->bytes <= room;
            kn_putf(b, "cache_read %s %d scratch %s.0 region\n", x->name, l, kn_cpu_axis(x, fits ? x->n : first));
            continue;
        }
        int inner = vectors_of(t);
        if (t->wide || t->along) {
            const char *at = kn_cpu_axis(x, t->kb > 1 ? t->blocked : x->n);
            kn_putf(b, "cache_read %s %d scratch %s.0 loops %s.1", x->name, l, at, kn_cpu_axis(x, x->n));
        } else {
            if (panel_elems(x, l, t, true) * a->bytes > 4 * room) continue;
            kn_putf(b, "cache_read %s %d scratch %s.%d loops", x->name, l, kn_cpu_axis(x, t->kb > 1 && t->nc <= 1 ? t->blocked : x->n), t->nc > 1);
            if (t->group > 1) kn_putf(b, " %s.2", kn_cpu_axis(x, x->n));
        }
        for (int i = first; i < x->s->naxes; i++)
            if (a->axes >> i & 1) kn_putf(b, " %s.%d", kn_cpu_axis(x, i), i == t->blocked && t->kb > 1);
        kn_putf(b, " %s.%d %s.%d\n", kn_cpu_axis(x, x->n), inner, kn_cpu_axis(x, x->n), inner + 1);
    }
}

/* Every index of the load is a sum of axes, so that what a block reads is a box. */
static bool is_box(const kn_expr *load)
{
    bool yes = true;
    for (int d = 0; d < load->nargs && yes; d++) {
        kn_affine f;
        yes = kn_affine_of(load->args[d], &f);
    }
    return yes;
}

/* A block's rows are a box, and along the axis they follow each other in the last dimension (but for the plans of cpu_sums.c any box does). */
static bool in_box(const kn_site *x, int load, int axis, bool any)
{
    const kn_expr *loads[KN_SITE_LOADS];
    if (kn_loads(x->s->body, loads, KN_SITE_LOADS) > KN_SITE_LOADS || !is_box(loads[load])) return false;
    const kn_expr *last = loads[load]->args[loads[load]->nargs - 1];
    return any || (last->op == KN_OP_AXIS && last->u.axis == axis);
}

/* Segments of rows that a block of the reduction needs: a line more apart than they are long, so that they fall into different sets, or beside each
 * other as the loops go. Where there are no blocks, all of a task's rows. */
void kn_cpu_put_row_caches(kn_buf *b, const kn_site *x, const kn_cpu_tile *t)
{
    int64_t line = x->hw->levels[x->hw->nlevels - 1].transaction_bytes;
    for (int l = 0; l < x->nloads && t->pack_rows; l++) {
        const kn_site_access *a = &x->load[l];
        if (!a->linear || a->padded || (a->axes >> x->n & 1) || !(a->axes >> x->m & 1)) continue;
        kn_putf(b, "cache_read %s %d scratch %s.0", x->name, l, kn_cpu_axis(x, t->kb > 1 ? t->blocked : x->n));
        bool across = (t->group || t->kb <= 1) && kn_cpu_rows_across(x, l, t->blocked);
        if (!across && in_box(x, l, t->blocked, !t->group)) {
            kn_putf(b, " region pad %lld\n", (long long)(line / a->bytes));
            continue;
        }
        kn_putf(b, " loops %s.1", kn_cpu_axis(x, x->m));
        if (!across) kn_putf(b, " %s.2", kn_cpu_axis(x, x->m));
        for (int i = x->s->nspatial; i < x->s->naxes; i++)
            if (a->axes >> i & 1 && i != t->blocked) kn_putf(b, " %s.0", kn_cpu_axis(x, i));
        kn_putf(b, " %s.%d", kn_cpu_axis(x, t->blocked), t->kb > 1);
        if (across) kn_putf(b, " %s.2", kn_cpu_axis(x, x->m));
        kn_put(b, "\n");
    }
}

/* Panels of n in a task, where one of each would make so many that calling them shows, as long as the rest of the work. */
static void join_panels(const kn_site *x, kn_cpu_tile *t, int other)
{
    enum { MANY = 32 }; /* tasks of a core */
    if (!x->contraction || x->n < 0 || t->nc > 1 || t->along || t->group || t->lanes < 2) return;
    int64_t panels = kn_ceil_div(kn_cpu_extent(x, x->n), t->nv * t->lanes), before = kn_ceil_div(kn_cpu_extent(x, x->m), t->mc * t->mr);
    for (int i = 0; i < x->s->nspatial; i++)
        if (i != x->n && i != x->m && !kn_mul_fits(before, times_of(x, t, other, i), &before)) return;
    int64_t want = tasks_wanted(x), each = before < want ? panels * before / (MANY * (int64_t)x->hw->units) : 1;
    if (each > 1) t->nc = kn_ceil_div(panels, kn_ceil_div(panels, each));
}

void kn_cpu_try(const kn_site *x, kn_plans *p, const kn_cpu_tile *tile)
{
    kn_nest w;
    kn_cpu_tile joined = *tile, *t = &joined;
    int par[KILN_MAX_AXES], other = kn_cpu_other(x);
    int64_t times[KILN_MAX_AXES];
    join_panels(x, t, other);
    kn_nest_begin(&w, x, p->a);
    put_splits(&w, t, other);
    int npar = put_order(&w, t, other, par, times);
    put_parallel(&w, t, par, times, npar);
    put_kinds(&w, t);
    put_caches(&w.copies, x, t);
    kn_cpu_put_row_caches(&w.copies, x, t);
    kn_nest_try(&w, p);
}

void kn_plan_cpu(const kn_site *x, kn_plans *p)
{
    static bool (*const rows[])(const kn_site *, kn_plans *) = {
#define CPU(plan) plan,
#include "construct/plans.def"
    };
    bool planned = false;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && !planned; i++) planned = rows[i](x, p);
    kn_buf none;
    kn_buf_init(&none, p->a);
    if (!p->n) {
        p->left++;
        kn_put(&none, "# as written\n");
        kn_plans_try(p, &none);
    }
}
