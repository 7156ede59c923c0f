/* Rows of products that go along panels which lie side by side: each group of rows meets all panels of a task before the next group does, so that
 * rows are read once. Panels of whole sums where these are short, or L2 holds a few of them; of blocks of long ones. */
#include "construct/cpu.h"

enum {
    SHORT = 32, /* terms of a sum so short that writing its results is what takes time */
    A_FEW = 4   /* panels */
};

/* Half of L2 holds all panels, and rows from beyond it go along them once: tasks of rows that L2 holds would pack each panel again (49x2048x1024,
 * vectors of half a line: 0.88 of the time). */
static bool meets_far_rows(const kn_site *x, int64_t panels, int64_t few)
{
    double rows = (double)kn_cpu_extent(x, x->m) * (double)x->reduce_extent * kn_cpu_acc_bytes(x);
    return kn_cpu_short_vectors(x) && panels <= few && panels == A_FEW && rows > (double)kn_hw_level_named(x->hw, "l2")->capacity_bytes;
}

/* Panels that are packed beside each other: what an eighth of L2 holds, or a few that half of it holds where the rows fit the other half. */
static int64_t most_along(const kn_site *x, const kn_cpu_tile *t)
{
    int64_t panel = t->nv * t->lanes, panels = kn_ceil_div(kn_cpu_extent(x, x->n), panel), sum = x->reduce_extent * kn_cpu_acc_bytes(x);
    int64_t l2 = kn_hw_level_named(x->hw, "l2")->capacity_bytes, most = l2 / 8 / (panel * sum), few = l2 / 2 / (panel * sum);
    if (most < A_FEW && (kn_cpu_extent(x, x->m) * sum <= l2 / 2 || meets_far_rows(x, panels, few))) most = few < A_FEW ? few : A_FEW;
    return most;
}

/* So many of them that the cores have enough tasks. */
static int64_t panels_along(const kn_site *x, const kn_cpu_tile *t, int64_t most)
{
    int64_t panels = kn_ceil_div(kn_cpu_extent(x, x->n), t->nv * t->lanes);
    int64_t tasks = kn_ceil_div(kn_cpu_extent(x, x->m), t->mc * t->mr) * kn_cpu_extent(x, kn_cpu_other(x));
    while (most > 1 && tasks * kn_ceil_div(panels, most) < 2 * x->hw->units) most = kn_ceil_div(most, 2);
    return most < 2 || panels < 2 ? 1 : kn_ceil_div(panels, kn_ceil_div(panels, most));
}

/* What the core that has most to do has, in groups of rows times panels: its tasks follow each other, those of a band of rows first. Packing a panel
 * takes as long as two groups do. */
static int64_t longest(const kn_site *x, int64_t groups, int64_t panels, int64_t mc, int64_t nc, bool packs)
{
    const int64_t packing = packs ? 2 : 0;
    int64_t columns = kn_ceil_div(panels, nc), tasks = kn_ceil_div(groups, mc) * columns, units = x->hw->units, most = 0, i = 0;
    for (int64_t core = 0; core < units; core++) {
        int64_t work = 0;
        for (int64_t end = i + tasks / units + (core < tasks % units); i < end; i++) {
            int64_t rows = groups - i / columns * mc, wide = panels - i % columns * nc;
            work += ((rows < mc ? rows : mc) + packing) * (wide < nc ? wide : nc);
        }
        if (work > most) most = work;
    }
    return most;
}

void kn_cpu_even(const kn_site *x, kn_cpu_tile *t, int64_t most)
{
    enum { FEW = 8 }; /* tasks for a core */
    const double worth = 0.97;
    int64_t groups = kn_ceil_div(kn_cpu_extent(x, x->m), t->mr), panels = kn_ceil_div(kn_cpu_extent(x, x->n), t->nv * t->lanes);
    int64_t bands = kn_ceil_div(groups, t->mc), tasks = bands * kn_ceil_div(panels, t->nc), units = x->hw->units;
    int64_t mc = t->mc, nc = t->nc, fewest = nc > 1 ? 2 : 1;
    if (units < 2 || tasks >= FEW * units || t->pack_rows || kn_cpu_extent(x, kn_cpu_other(x)) > 1) return;
    double least = worth * (double)longest(x, groups, panels, mc, nc, t->pack);
    for (int64_t b = bands; b <= bands * units && b <= groups; b++)
        for (int64_t c = most < panels ? most : panels; c >= fewest; c--) {
            if (b * kn_ceil_div(panels, c) > FEW * units) break;
            double time = (double)longest(x, groups, panels, kn_ceil_div(groups, b), c, t->pack);
            if (time >= least) continue;
            least = time;
            mc = kn_ceil_div(groups, b);
            nc = c;
        }
    t->mc = mc;
    t->nc = nc;
}

/* The register tile of rows that go along several panels; `whole`: it may fill the registers. */
static bool tile_along(const kn_site *x, kn_cpu_tile *t, bool whole)
{
    bool few = kn_hw_few_registers(x->hw); /* vectors so short that loads hide behind the multiply-adds, but not from L2 */
    double least = 0, row = few ? 0.2 : 0.6, vector = few ? 0.5 : 0.6;
    for (int64_t nv = 2; nv <= 5; nv++) {
        for (int64_t mr = 2; mr <= 14 && (mr * nv + nv + 2 < x->hw->vector_registers || (whole && kn_cpu_fills_registers(x, mr, nv))); mr++) {
            double time = kn_cpu_time_of_tiles(x, mr, nv, t->lanes, row, vector);
            if (least > 0 && time >= least) continue;
            least = time;
            t->nv = nv;
            t->mr = mr;
        }
    }
    return least > 0;
}

/* Sums so short that reading an operand and writing results, from and to memory, is what tiles wait for: several panels are packed together, in
 * long runs of memory, and a group of rows is written along all of them before the next one. Where both operands stay near, nothing is gained. */
static bool short_sums(const kn_site *x, kn_plans *p, int64_t lanes)
{
    enum { MET = 48 }; /* rows that save no more than packing takes what L2 holds half of, from one call to the next */
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1"), *l2 = kn_hw_level_named(x->hw, "l2");
    int other = kn_cpu_other(x);
    int64_t sum = x->reduce_extent * kn_cpu_acc_bytes(x), n = kn_cpu_extent(x, x->n), m = kn_cpu_extent(x, x->m);
    if (!l1 || !l2 || x->m < 0 || !x->contraction || x->reduce_extent <= SHORT || kn_cpu_in_l1(x)) return false;
    if (n * sum <= l2->capacity_bytes && m * sum <= l1->capacity_bytes) return false;
    if (m < MET && other < 0 && n * sum <= 2 * l2->capacity_bytes) return false;
    kn_cpu_tile t = {.lanes = lanes, .grain = kn_cpu_grain(x, other), .nc = 1, .kb = 1, .rlanes = 1, .runroll = 1, .pack = true, .along = true};
    if (!tile_along(x, &t, true)) return false;
    t.mc = kn_cpu_row_groups(x, &t, other);
    if (t.mc < 2 || t.mr * sum > l1->capacity_bytes) return false;
    const int64_t most = most_along(x, &t);
    t.nc = panels_along(x, &t, most);
    bool crowded = kn_hw_in_one_set(l1, t.mr * sum); /* what lies side by side would be copied to tiles in one set of L1 */
    t.pack_rows = t.nc > 1 && other < 0 && !crowded && kn_cpu_copies_across(x);
    if (t.pack_rows) t.blocked = kn_cpu_longest_reduce(x);
    int64_t panels = kn_ceil_div(n, t.nv * lanes), groups = kn_ceil_div(m, t.mr), tasks = A_FEW * (int64_t)x->hw->units;
    if (t.nc == panels && meets_far_rows(x, panels, panels) && t.mc < groups / tasks) t.mc = kn_ceil_div(groups, tasks);
    kn_cpu_even(x, &t, most);
    int before = p->n;
    bool narrow = kn_hw_few_registers(x->hw) && t.nc < A_FEW; /* each group of rows is read again for as little: cpu_deep.c */
    if (t.nc > 1 && !narrow) kn_cpu_try(x, p, &t);
    return p->n > before;
}

/* A few panels of a long sum, met by rows that L2 has no room for: blocks of the sum whose panels L2 holds side by side, one of them with a group of
 * rows in L1, and each group goes along all panels of a block before the next one, so that rows are read once (2 to 4 panels, 64 to 1000 rows of 1500
 * to 4096 terms on a Zen 3: 0.65 to 1 of the time of panels that are tasks; with twice the registers 100x10000x100, 1000x4000x100: 0.85, 0.95, on
 * two cores 0.8 and 0.9). Shorter or fewer rows, and a single panel, gain nothing. */
bool kn_cpu_blocks_along(const kn_site *x, kn_cpu_tile *t)
{
    enum { ROWS = 64, VECTORS = 9, MANY_VECTORS = 14, BLOCKS = 4 };
    const int64_t widest = kn_hw_few_registers(x->hw) ? VECTORS : MANY_VECTORS;
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1"), *l2 = kn_hw_level_named(x->hw, "l2");
    if (!l1 || !l2 || x->m < 0 || !x->contraction || kn_cpu_other(x) >= 0) return false;
    int64_t m = kn_cpu_extent(x, x->m), bytes = kn_cpu_acc_bytes(x), all = kn_cpu_extent(x, t->blocked), inner = x->reduce_extent / all, most = 0;
    if (m < ROWS || m * x->reduce_extent * bytes <= l2->capacity_bytes / 2 || kn_cpu_in_l1(x)) return false;
    for (int whole = 1; whole >= 0; whole--) { /* around a block that ends early gcc moves sums of a tile that fills the registers to memory */
        if (!tile_along(x, t, whole)) return false;
        most = l1->capacity_bytes * 7 / 8 / ((t->nv * t->lanes + t->mr) * bytes * inner);
        if (most < 8 || all < BLOCKS * most) return false;
        t->kb = kn_cpu_block_of(all, most);
        if (all % t->kb == 0) break;
    }
    t->nc = kn_ceil_div(kn_cpu_extent(x, x->n), t->nv * t->lanes);
    if (t->nc < 2 || kn_cpu_extent(x, x->n) > widest * t->lanes) return false;
    t->mc = kn_ceil_div(kn_ceil_div(m, t->mr), x->hw->units);
    return true;
}

/* The same as a plan, whose tasks pack the panels. */
static bool long_sums(const kn_site *x, kn_plans *p, int64_t lanes)
{
    int before = p->n;
    kn_cpu_tile t = {.lanes = lanes, .grain = 1, .rlanes = 1, .runroll = 1, .pack = true, .along = true, .blocked = kn_cpu_longest_reduce(x)};
    if (!kn_cpu_blocks_along(x, &t)) return false;
    kn_cpu_try(x, p, &t);
    return p->n > before;
}

bool kn_cpu_along(const kn_site *x, kn_plans *p, int64_t lanes, bool strided)
{
    return short_sums(x, p, lanes) || (!strided && long_sums(x, p, lanes));
}

/* Of what kn_cpu_packs_few names, operands that L2 holds with ease and rows of two pages at the most: all panels lie side by side, and rows go along
 * them as they lie (75 to 200 rows of 550 to 2000 terms, 28 to 120 columns on a Zen 3: 0.75 to 0.99 of the time of blocks and copied rows). */
bool kn_cpu_few_along(const kn_site *x, kn_plans *p)
{
    enum { ROWS = 64, APART = 8192 };
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    int64_t m = kn_cpu_extent(x, x->m), n = kn_cpu_extent(x, x->n), sum = x->reduce_extent * kn_cpu_acc_bytes(x);
    kn_cpu_tile t = {.lanes = x->hw->vector_bytes / kn_cpu_acc_bytes(x), .grain = 1, .kb = 1, .rlanes = 1, .runroll = 1, .pack = true, .along = true,
                     .blocked = kn_cpu_longest_reduce(x)};
    if (!l2 || kn_cpu_other(x) >= 0 || m < ROWS || sum > APART || 8 * n * sum > 5 * l2->capacity_bytes || !tile_along(x, &t, true)) return false;
    for (int l = 0; l < x->nloads; l++)
        if (kn_cpu_rows_across(x, l, t.blocked)) return false;
    int before = p->n;
    t.nc = kn_ceil_div(n, t.nv * t.lanes);
    t.mc = kn_ceil_div(kn_ceil_div(m, t.mr), x->hw->units);
    if (t.nc > 1) kn_cpu_try(x, p, &t);
    return p->n > before;
}
