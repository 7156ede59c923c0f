/* Products of many rows with a large operand where vectors are parts of a line and registers are few, so that tiles are small: blocks of the
 * reduction whose panel fills half of L1 and meets all rows of a task, which fill half of L2 (Goto and van de Geijn's loops). Rows that lie some
 * thousand bytes apart are copied beside each other first; panels are packed a few at a time, in runs of whole lines. */
#include "construct/cpu.h"

enum {
    ENOUGH_ROWS = 36, /* that are worth packing the operand by groups */
    ACROSS_ROWS = 24, /* the same where rows are copied, too, as they lie across the sum: once for all columns of a core instead of once for a few
                       * panels (33x1500x400 0.69 of the time, 200x1000x300 0.85, 700x1000x250 0.86, eight others 0.9 to 1) */
    FEWEST = 48,      /* vectors of panels that are worth a copy of the rows */
    MOST_OF_GROUP = 6 /* of them packed beside each other */
};

bool kn_cpu_rows_apart(const kn_site *x)
{
    bool apart = false;
    for (int l = 0; l < x->nloads; l++)
        apart |= x->load[l].linear && !(x->load[l].axes >> x->n & 1) && x->load[l].coef[x->m] * x->load[l].bytes >= KN_CPU_APART;
    return apart;
}

/* The operand lies along the lanes, and no load goes over a window or into padding. */
static bool lies_plainly(const kn_site *x)
{
    for (int l = 0; l < x->nloads; l++) {
        const kn_site_access *a = &x->load[l];
        if (!a->linear || a->padded || a->bent) return false;
        for (int i = x->s->nspatial; i < x->s->naxes && a->axes >> x->n & 1; i++)
            if (a->coef[x->n] != 1 || (a->axes >> i & 1 && kn_cpu_extent(x, i) > 1 && a->coef[i] < kn_cpu_extent(x, x->n))) return false;
    }
    return true;
}

/* Nothing but rows and columns makes tasks, or parts of the sum do, one for each core (parts.c). */
static bool one_each(const kn_site *x)
{
    int other = kn_cpu_other(x);
    return other < 0 || kn_cpu_extent(x, other) == x->hw->units;
}

enum { COPIED = 64 }; /* rows that meet a few panels, and are worth a copy themselves */

/* A few panels of an operand whose rows begin inside of vectors, met by rows far apart: as they lie, every vector of the one is two accesses, and the
 * others' lines fall into few sets of the caches, to be fetched again for each panel (on a Zen 3, of operands in pages of 2 MB: 77x49x4096 and
 * 80x170x2000 take 1.3 to 1.6 times as long so, 36x61x1630, 50x63x2000 and 70x45x3000 1.3 to 1.4; of fewer or more rows some 0.85 to 1.1 times, as
 * of fewer than SOME_ROWS that do not meet one group of panels, nearly all of it). */
static bool few_panels(const kn_site *x)
{
    enum { LEAST_ROWS = 32, SOME_ROWS = 72, MOST_ROWS = 200, NARROWEST = 3, WIDEST = 22, NEARLY = 7, MOST_OF_IT = 5, GROUP = 8 }; /* vectors */
    int64_t rows = kn_cpu_extent(x, x->m), vectors = kn_cpu_extent(x, x->n) * kn_cpu_acc_bytes(x) / x->hw->vector_bytes;
    bool straddles = false;
    if (rows < LEAST_ROWS || rows > MOST_ROWS || vectors < NARROWEST || vectors >= WIDEST || !kn_cpu_rows_apart(x)) return false;
    if (rows < SOME_ROWS && (vectors < (rows < COPIED ? NEARLY : MOST_OF_IT) || vectors >= GROUP)) return false;
    for (int l = 0; l < x->nloads; l++)
        for (int i = x->s->nspatial; i < x->s->naxes && x->load[l].axes >> x->n & 1; i++)
            straddles = straddles || x->load[l].coef[i] * x->load[l].bytes % x->hw->vector_bytes;
    return straddles && one_each(x);
}

static bool copies_rows(const kn_site *x)
{
    return kn_cpu_rows_apart(x) && !(few_panels(x) && kn_cpu_extent(x, x->m) < COPIED);
}

/* Rows that lie across the sum, a step of which is a line of its own: each term takes a few elements from another one, and they fall into few sets of
 * the caches. Beside each other, tile by tile, they take 0.7 to 0.9 of the time (1024x1024x1024, 256x1000x600, 64x1024x2048 on a Zen 3). */
bool kn_cpu_rows_across(const kn_site *x, int l, int blocked)
{
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1");
    const kn_site_access *a = &x->load[l];
    bool rows = a->linear && !a->padded && x->n >= 0 && !(a->axes >> x->n & 1) && x->m >= 0 && (a->axes >> x->m & 1);
    return l1 && rows && a->coef[x->m] == 1 && a->coef[blocked] * a->bytes >= l1->transaction_bytes;
}

static bool rows_across(const kn_site *x)
{
    bool some = false;
    for (int l = 0; l < x->nloads; l++) some = some || kn_cpu_rows_across(x, l, kn_cpu_longest_reduce(x));
    return some;
}

/* Such rows of a product near enough to be read as it lies, but so many that a tile of them takes lines which half of L1 does not hold: these come
 * from L2 for each panel (50x100x700, 128x256x512, 120x200x600 on a Zen 3: 1.2 to 1.5 times as long as from a copy; 200x64x2000, 64x96x512: 0.9).
 * From memory fewer columns do (2291x44x2682, 2000x64x1000: 1.4; 3000x24x800: 0.8). */
static bool rows_thin(const kn_site *x)
{
    enum { LEAST_VECTORS = 12, OF_FAR = 4 };
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1"), *l2 = kn_hw_level_named(x->hw, "l2"), *l3 = kn_hw_level_named(x->hw, "l3");
    if (!l1 || !l2) return false;
    int64_t bytes = kn_cpu_acc_bytes(x), rows = kn_cpu_extent(x, x->m) * x->reduce_extent * bytes;
    bool far = l3 && rows > l3->capacity_bytes; /* of which every line is waited for */
    bool wide = kn_cpu_extent(x, x->n) * bytes >= (far ? OF_FAR : LEAST_VECTORS) * x->hw->vector_bytes;
    return wide && rows > l2->capacity_bytes / 4 && x->reduce_extent * l1->transaction_bytes >= l1->capacity_bytes / 2 && rows_across(x) &&
           one_each(x);
}

/* A divisor of the axis, so that no block is a small one; where there is none near enough, blocks of about the same size. */
static int64_t block_of(int64_t all, int64_t most)
{
    for (int64_t d = most; 3 * d > 2 * most; d--)
        if (all % d == 0) return d;
    return kn_ceil_div(all, kn_ceil_div(all, most));
}

/* The register tile: loads beside the multiply-adds, from L1, mostly hide. A few chains of sums more than cover their latency, since not every one
 * starts in time. full: what tiles take that leave no register beside these, which loops that are written out in part like to have. */
static bool choose_tile(const kn_site *x, kn_cpu_tile *t, double full)
{
    enum { LEAST = 3, MOST = 14, MORE = 2 }; /* rows: 2 of 5 vectors take 1.01 to 1.14 times as long as the next best, 9 products of 37 to 62 rows */
    const double load = 0.25;
    int64_t need = x->hw->fma_latency * x->hw->fma_per_cycle + MORE;
    double least = 0;
    for (int64_t nv = 2; nv <= 5; nv++)
        for (int64_t mr = LEAST; mr <= MOST && mr * nv + nv + 1 <= x->hw->vector_registers; mr++) {
            double time = kn_cpu_time_of_tiles(x, mr, nv, t->lanes, load, load);
            if (mr * nv + nv + 1 == x->hw->vector_registers) time *= full;
            if (mr * nv < need || (least > 0 && time >= least)) continue;
            least = time;
            t->nv = nv;
            t->mr = mr;
        }
    return least > 0;
}

/* Panels of a group: longer runs of memory come a little faster, but no panel is to be left out in the last one. */
static int64_t group_of(int64_t panels)
{
    const double run = 0.04; /* of the time, where each panel is packed by itself */
    double least = 0;
    int64_t best = 1;
    for (int64_t g = 1; g <= MOST_OF_GROUP && g <= panels; g++) {
        double time = (double)kn_round_up(panels, g) * (1 + run / (double)g);
        if (least > 0 && time >= least) continue;
        least = time;
        best = g;
    }
    return best;
}

/* Tasks of rows that half of L2 holds, and of columns whose partial sums a quarter of L3 does; at least one for each core. */
static void cut_tasks(const kn_site *x, kn_cpu_tile *t, int64_t row, int64_t l2)
{
    enum { TILES = 3 }; /* that many times as long a copy of rows tile by tile takes as a panel's */
    const kn_hw_level *l3 = kn_hw_level_named(x->hw, "l3");
    int64_t units = x->hw->units, bytes = kn_cpu_acc_bytes(x), panel = t->nv * t->lanes, panels = kn_ceil_div(kn_cpu_extent(x, x->n), panel);
    int64_t tiles = kn_ceil_div(kn_cpu_extent(x, x->m), t->mr), most = l2 / 2 / (t->mr * row), rows = most < 1 ? tiles : (tiles + most / 2) / most;
    if (rows < 1) rows = 1;
    bool few_columns = rows_thin(x) && kn_cpu_extent(x, x->n) < TILES * kn_cpu_extent(x, x->m); /* to be shared */
    if (few_panels(x) && copies_rows(x)) few_columns = true;
    if (few_columns && kn_cpu_other(x) < 0) rows = kn_round_up(rows, units);
    if (rows >= units && rows < 4 * units && kn_cpu_other(x) < 0) rows = kn_round_up(rows, units);
    t->mc = kn_ceil_div(tiles, rows);
    int64_t near = l3 ? l3->capacity_bytes / 4 / (t->mc * t->mr * panel * bytes) : panels, columns = kn_ceil_div(panels, near < 1 ? 1 : near);
    int64_t others = kn_cpu_extent(x, kn_cpu_other(x));
    if (rows * others < units) columns = kn_round_up(columns, kn_ceil_div(units, rows * others));
    t->nc = kn_ceil_div(panels, columns);
    t->group = group_of(t->nc);
    t->nc = kn_round_up(t->nc, t->group);
}

/* A product whose rows blocks may meet, and what its tile has whatever its numbers are. */
static bool begin_tile(const kn_site *x, kn_cpu_tile *t, int64_t rows)
{
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1"), *l2 = kn_hw_level_named(x->hw, "l2");
    if (!l1 || !l2 || x->m < 0 || !x->contraction || kn_cpu_extent(x, x->m) < rows) return false;
    if (!kn_cpu_short_vectors(x) || !kn_hw_few_registers(x->hw)) return false;
    *t = (kn_cpu_tile){.lanes = x->hw->vector_bytes / kn_cpu_acc_bytes(x), .grain = 1, .rlanes = 1, .runroll = 1, .pack = true,
                       .blocked = kn_cpu_longest_reduce(x), .pack_rows = copies_rows(x) || rows_across(x)};
    return true;
}

bool kn_cpu_blocks_of(const kn_site *x, kn_cpu_tile *t)
{
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1"), *l2 = kn_hw_level_named(x->hw, "l2");
    int64_t bytes = kn_cpu_acc_bytes(x), n = x->n < 0 ? 1 : kn_cpu_extent(x, x->n);
    const double full = 1.03; /* 128x1000x2048 takes 0.94 with 4 rows of 3 vectors of the time with 5 of 2; 96x800x900 1.06 of that with 6 of 2 */
    bool across = rows_across(x) && kn_cpu_copies_across(x);
    if (!begin_tile(x, t, few_panels(x) ? 1 : across ? ACROSS_ROWS : ENOUGH_ROWS)) return false;
    bool few = few_panels(x) || rows_thin(x);
    if (n * x->reduce_extent * bytes <= l2->capacity_bytes && !few) return false;
    if (!choose_tile(x, t, full)) return false;
    int64_t all = kn_cpu_extent(x, t->blocked), inner = x->reduce_extent / all, panel = t->nv * t->lanes;
    int64_t most = l1->capacity_bytes / 2 / (panel * bytes * inner);
    int64_t least = l1->capacity_bytes / (2 * t->lanes * bytes * inner); /* terms, of shorter sums half of L2 holds panels: 128x2000x400 0.92 */
    if ((n < FEWEST * t->lanes && !few) || most < 2 || (all < least && !across)) return false;
    t->kb = block_of(all, most);
    cut_tasks(x, t, t->kb * inner * bytes, l2->capacity_bytes);
    return true;
}

bool kn_cpu_packs_few(const kn_site *x)
{
    kn_cpu_tile t;
    return x->contraction && x->m >= 0 && (few_panels(x) || rows_thin(x)) && lies_plainly(x) && kn_cpu_blocks_of(x, &t);
}

bool kn_cpu_blocks(const kn_site *x, kn_plans *p)
{
    kn_cpu_tile t;
    int before = p->n;
    if (!kn_cpu_blocks_of(x, &t) || !lies_plainly(x)) return false; /* what is no product may have no n */
    kn_cpu_try(x, p, &t);
    return p->n > before;
}

bool kn_cpu_rests(const kn_site *x, int l)
{
    const kn_expr *loads[KN_SITE_LOADS];
    const kn_tree *t = x->t;
    if (kn_loads(x->s->body, loads, KN_SITE_LOADS) > KN_SITE_LOADS) return false;
    int tensor = loads[l]->u.tensor;
    bool made = t->program->tensors[tensor].constant;
    for (int i = 0; i < t->nstages; i++) made = made || (t->stages[i]->ahead && kn_stage_out(t, t->stages[i]) == tensor);
    return made;
}

/* Blocks of an operand whose rows run along the sum: each is turned once for all rows of a task, of which the other operand's segments lie beside
 * each other meanwhile. Panel after panel with all of its blocks, rows that L2 does not hold would be fetched again for each (600x100x600,
 * 151x116x3231, 2000x128x512 on a Zen 3: 1.4 times as long; 1024x1024x1024: 1.16; 200x200x2000: 0.93). */
bool kn_cpu_turned_blocks(const kn_site *x, kn_plans *p)
{
    enum { LEAST = 2, BYTES = 4 }; /* panels, and blocks; of an element */
    kn_cpu_tile t;
    const kn_expr *loads[KN_SITE_LOADS];
    int before = p->n, n = kn_loads(x->s->body, loads, KN_SITE_LOADS);
    if (n > KN_SITE_LOADS || x->n < 0 || kn_cpu_acc_bytes(x) != BYTES || !begin_tile(x, &t, ENOUGH_ROWS)) return false;
    if (!kn_cpu_rows_apart(x) || kn_cpu_other(x) >= 0) return false;
    for (int l = 0; l < n; l++) {
        const kn_site_access *a = &x->load[l];
        if (!a->linear || a->padded || a->bent || a->bytes != BYTES) return false;
        bool turns = a->axes >> x->n & 1;
        if (kn_cpu_rests(x, l)) return false;
        if (turns ? !kn_cpu_turns_squares(x, l, t.blocked, t.lanes, 1) : kn_cpu_rows_across(x, l, t.blocked)) return false;
    }
    if (!choose_tile(x, &t, 1)) return false;
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1"), *l2 = kn_hw_level_named(x->hw, "l2");
    int64_t all = kn_cpu_extent(x, t.blocked), inner = x->reduce_extent / all, panel = t.nv * t.lanes;
    int64_t most = l1->capacity_bytes / 2 / (panel * BYTES * inner);
    bool near = kn_cpu_extent(x, x->m) * x->reduce_extent * BYTES <= l2->capacity_bytes / 2;
    if (near || kn_cpu_extent(x, x->n) < LEAST * panel || most < t.lanes || all < LEAST * most) return false;
    t.kb = block_of(all, most);
    cut_tasks(x, &t, t.kb * inner * BYTES, l2->capacity_bytes);
    t.group = 1;
    kn_cpu_try(x, p, &t);
    return p->n > before;
}
