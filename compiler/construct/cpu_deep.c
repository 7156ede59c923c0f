/* Long sums of products over many rows: panels of all terms lie beside each other in half of L2, rows go along them as they lie, and results leave
 * the registers once. Only of sums so long that not two panels fit are there blocks, with partial sums. cpu_sums.c packs the panels in each task;
 * of a constant (cpu_packed.c) they are packed ahead. */
#include "construct/cpu.h"

enum {
    MANY_ROWS = 192, /* that are worth a copy of a large operand, for each of their tasks */
    PANEL = 64       /* columns */
};

/* Where vectors are parts of a line, and the operand lies along them, fewer are: what comes here of these is what is read worse as it lies. */
static int64_t fewest_rows(const kn_site *x, const kn_cpu_tile *t)
{
    enum { FEWEST = 25 };
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1");
    return t->pack && t->lies && x->hw->vector_bytes < l1->transaction_bytes ? FEWEST : MANY_ROWS;
}

int kn_cpu_longest_reduce(const kn_site *x)
{
    int longest = x->s->nspatial;
    for (int i = longest; i < x->s->naxes; i++) if (kn_cpu_extent(x, i) > kn_cpu_extent(x, longest)) longest = i;
    return longest;
}

bool kn_cpu_in_one_set(const kn_site *x)
{
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1");
    for (int l = 0; l < x->nloads; l++)
        if (x->load[l].linear && !(x->load[l].axes >> x->n & 1) && kn_hw_in_one_set(l1, x->load[l].coef[x->m] * x->load[l].bytes)) return true;
    return false;
}

/* Tasks: of columns, as few of one size as keep the cores busy; then of rows too, each of which packs the panels for itself. Returns what the core
 * with most of them has to do, over an even share. */
static double tasks_deep(const kn_site *x, kn_cpu_tile *t, int64_t most)
{
    int64_t units = x->hw->units, groups = kn_ceil_div(kn_cpu_extent(x, x->m), t->mr);
    int64_t panels = kn_ceil_div(kn_cpu_extent(x, x->n), t->nv * t->lanes);
    int64_t columns = kn_ceil_div(panels, most), rows = 1, others = kn_cpu_extent(x, kn_cpu_other(x));
    if (columns < 16 * units && others < units) columns = kn_round_up(columns, units);
    if (columns > panels) columns = panels;
    while (columns * others * rows < units && groups * t->mr >= 2 * rows * MANY_ROWS) rows *= 2;
    t->nc = kn_ceil_div(panels, columns);
    t->mc = kn_ceil_div(groups, rows);
    double each = (double)kn_ceil_div(columns * others * rows, units) * (double)t->nc, all = (double)panels * (double)others * (double)rows;
    return (each < all ? each : all) * (double)units / all;
}

/* Register tile and tasks of sums of `terms` terms whose panels stream from L2, as do the rows that L1 does not hold: what comes from there is waited
 * for more than loads are. Wide tiles want less of it; but no more rows than half of a set's ways where they share one. */
static bool tile_deep(const kn_site *x, kn_cpu_tile *t, int64_t terms, int64_t room)
{
    enum { HALF_OF_WAYS = 6 };
    double least = 0, line = 0.5, load = 0.1; /* their times, in multiply-adds */
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1");
    int64_t bytes = kn_cpu_acc_bytes(x), most = kn_cpu_in_one_set(x) ? HALF_OF_WAYS : 14;
    double vector = load + line * (double)(t->lanes * bytes) / l1->transaction_bytes;
    for (int64_t nv = 2; nv <= 5; nv++) {
        for (int64_t mr = 2; mr <= most && (mr * nv + nv + 2 <= x->hw->vector_registers || kn_cpu_fills_registers(x, mr, nv)); mr++) {
            int64_t beside = room / (nv * t->lanes * terms);
            kn_cpu_tile c = *t;
            if (beside < 2) continue;
            bool far = mr * terms * bytes > l1->capacity_bytes * 3 / 4;
            double row = load + (far ? line * (double)bytes / l1->transaction_bytes : 0);
            c.nv = nv;
            c.mr = mr;
            double time = tasks_deep(x, &c, beside) * kn_cpu_time_of_tiles(x, mr, nv, t->lanes, row, vector);
            if (least > 0 && time >= least) continue;
            least = time;
            *t = c;
        }
    }
    return least > 0 && t->nc > 1;
}

/* Elements of L2 for panels: half of it, but where it may hold all rows, which each column of tasks meets again, what these leave (16 of
 * 336x1764x1008: 0.77 of the time). */
static int64_t room_beside_rows(const kn_site *x)
{
    int64_t l2 = kn_hw_level_named(x->hw, "l2")->capacity_bytes / kn_cpu_acc_bytes(x), rows = kn_cpu_extent(x, x->m) * x->reduce_extent;
    int64_t left = l2 / 8 * 7 - rows;
    return left >= l2 / 8 && left < l2 / 2 ? left : l2 / 2;
}

static bool all_terms(const kn_site *x)
{
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    return l2 && l2->capacity_bytes / 2 / kn_cpu_acc_bytes(x) / x->reduce_extent >= 2 * PANEL;
}

bool kn_cpu_in_panels(const kn_site *x) { return all_terms(x) || kn_cpu_extent(x, x->m) >= MANY_ROWS; }

bool kn_cpu_deep(const kn_site *x, kn_cpu_tile *t)
{
    enum { PANELS = 4 }; /* of a block */
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1"), *l2 = kn_hw_level_named(x->hw, "l2");
    if (!l1 || !l2 || x->m < 0 || !x->contraction || kn_cpu_extent(x, x->m) < fewest_rows(x, t)) return false;
    if (l2->capacity_bytes / 2 / kn_cpu_acc_bytes(x) < PANELS * PANEL) return false;
    t->kb = 1;
    t->blocked = kn_cpu_longest_reduce(x);
    int64_t half = l2->capacity_bytes / 2 / kn_cpu_acc_bytes(x), all = kn_cpu_extent(x, t->blocked), inner = x->reduce_extent / all;
    if (kn_cpu_extent(x, x->n) * x->reduce_extent < half) return false;
    if (!all_terms(x)) {
        t->kb = kn_ceil_div(all, kn_ceil_div(x->reduce_extent, half / (PANELS * PANEL)));
        if (t->kb < 8 || kn_cpu_extent(x, x->m) < MANY_ROWS) return false;
    }
    int64_t terms = t->kb > 1 ? t->kb * inner : x->reduce_extent;
    return tile_deep(x, t, terms, t->kb > 1 ? half : room_beside_rows(x));
}
