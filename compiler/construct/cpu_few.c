/* Products of few rows with a large operand that lies along the results, and sums of its columns alone. Packing it would cost as much as a part of
 * its product, so it is read where it lies, a block of its rows at a time: a panel of the block stays in L1 while all rows go by, and the panel
 * beside it is on its way there meanwhile (lower/ahead.c). Partial sums of the task's panels stay in L2. The rows of a block follow each other, or
 * lie as far apart as they can, whichever memory brings sooner; each of many products has an operand of its own, which is read so from afar.
 * An operand that L2 holds is read there by however many rows, each of many products by its own. */
#include "construct/cpu.h"

enum {
    FEW_ROWS = 320,  /* with more of them packing costs little: cpu_deep.c */
    FEW_OF_SHORT = 95, /* the same of short vectors: 96 to 256 rows take 0.8 to 1.0 of the time packed */
    TERMS = 64,
    PANELS = 2,      /* at least: one is read while the other comes; of one the rows are what takes time to read */
    PAGES = 128,     /* that rows are read in side by side: a TLB of the first level has about as many */
    STREAMS = 8,     /* rows of the operand that memory brings side by side in one go */
    FEW_GROUPS = 4,  /* of rows, with which fetching takes as long as the products or longer */
    WIDEST = 6,      /* vectors of a tile */
    LEAST_VECTORS = 4, /* of a row; if one row meets them, one */
    STREAMED = 2     /* rows of which reading the operand is the whole time */
};

/* Row after row of the operand, each as long as the results' or longer, so that no window goes by. */
static bool in_rows(const kn_site *x, const kn_site_access *a)
{
    bool yes = a->linear && !a->padded && !a->bent && a->coef[x->n] == 1;
    for (int i = x->s->nspatial; i < x->s->naxes; i++) {
        bool down = a->axes >> i & 1 && kn_cpu_extent(x, i) > 1; /* a window of one tap has none */
        yes = yes && (!down || a->coef[i] >= kn_cpu_extent(x, x->n));
    }
    return yes;
}

static int64_t operand_bytes(const kn_site *x) { return kn_cpu_extent(x, x->n) * x->reduce_extent * kn_cpu_acc_bytes(x); }

/* Of all batches, or of all parts of a sum. */
static int64_t whole_operand_bytes(const kn_site *x) { return operand_bytes(x) * kn_cpu_extent(x, kn_cpu_other(x)); }

static bool lies_along(const kn_site *x)
{
    int64_t vectors = kn_cpu_extent(x, x->m) == 1 ? 1 : LEAST_VECTORS;
    if (kn_cpu_extent(x, x->n) * kn_cpu_acc_bytes(x) < vectors * x->hw->vector_bytes || x->reduce_extent < TERMS) return false;
    for (int l = 0; l < x->nloads; l++)
        if ((x->load[l].axes >> x->n & 1) && !in_rows(x, &x->load[l])) return false;
    return true;
}

/* The step of the operand's rows, by which their lines share sets of L1: as many bytes of it as the row has are then taken by each. */
static int64_t bytes_of_sets(const kn_site *x)
{
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1");
    int64_t most = 0;
    for (int l = 0; l < x->nloads; l++)
        for (int i = x->s->nspatial; i < x->s->naxes; i++) {
            bool down = (x->load[l].axes >> x->n & 1) && x->load[l].coef[i];
            int64_t step = down ? x->load[l].coef[i] * x->load[l].bytes : 0, same = step & -step; /* the power of two in it */
            if (l1 && same > kn_hw_way_bytes(l1)) same = kn_hw_way_bytes(l1);
            if (same > most) most = same;
        }
    return most;
}

/* Rows so many bytes apart, of which L1's sets hold a panel's lines but for one in eight, though three quarters of L1 would do for all; at most
 * `most`. A step near a multiple of a part of the way moves from set to set too slowly: 4093 floats are 12 bytes less than 4 ways of 4096 (48, 80
 * and 72 rows of 4093x688, 1021x1013, 4093x688 on a Zen 3: 1.25 to 1.4 times as long as from a copy; 20x2045x1500 1.2 in blocks of too many). */
int64_t kn_cpu_rows_of_step(const kn_site *x, int64_t step, int64_t most)
{
    enum { SETS = 256, OUT = 8, LINES = 2 }; /* of a panel's row */
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1");
    if (!l1) return most;
    int64_t held[SETS] = {0}, way = kn_hw_way_bytes(l1), line = l1->transaction_bytes, sets = way / line, out = 0, all = 0;
    if (sets < 1 || sets > SETS) return most;
    for (int64_t row = 0; row < most && all * line <= l1->capacity_bytes * 3 / 4; row++) {
        int64_t first = row * (step % way) % way, past = first + LINES * line;
        for (int64_t at = first / line; at * line < past; at++, all++) out += ++held[at % sets] > l1->ways;
        if (OUT * out > all) return row;
    }
    return most;
}

/* Rows of a panel for which L1 has sets. */
static int64_t of_sets(const kn_site *x)
{
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1");
    int64_t same = bytes_of_sets(x);
    if (!kn_cpu_short_vectors(x) || !same) return INT64_MAX;
    int64_t rows = l1->capacity_bytes / same, most = rows < x->reduce_extent ? rows : x->reduce_extent;
    for (int l = 0; l < x->nloads; l++)
        for (int i = x->s->nspatial; i < x->s->naxes; i++) {
            bool down = (x->load[l].axes >> x->n & 1) && x->load[l].coef[i] > 0;
            int64_t fit = down ? kn_cpu_rows_of_step(x, x->load[l].coef[i] * x->load[l].bytes, most) : most;
            if (fit < most) rows = most = fit;
        }
    return rows;
}

/* Rows that lie so that the lines of a panel, of `terms` of them, do not find room in their sets of L1 and come from L2 for each group of rows; or
 * that begin inside of vectors, half of which then are of two lines, unless the sums are too long for panels (cpu_deep.c; 32 and 64 rows of
 * 1003x4099: 1.3 and 1.1 times as long). Where vectors are parts of a line that takes longer than the products; more rows than these are worth a
 * copy. */
static bool worth_a_copy(const kn_site *x, int64_t terms)
{
    enum { FEWEST = 24, OF_NEAR = 64 }; /* what L2 holds comes soon enough for more of them */
    int64_t rows = kn_cpu_extent(x, x->m);
    bool near = operand_bytes(x) <= kn_hw_level_named(x->hw, "l2")->capacity_bytes, crowded = terms > of_sets(x);
    bool straddles = bytes_of_sets(x) % x->hw->vector_bytes != 0 && kn_cpu_in_panels(x) && rows > (near ? OF_NEAR : FEWEST);
    return kn_cpu_short_vectors(x) && rows > FEWEST && (crowded || straddles || kn_cpu_packs_few(x));
}

/* The operand's rows begin with lines, so that no vector straddles two. */
static bool begins_with_lines(const kn_site *x)
{
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1");
    for (int l = 0; l < x->nloads; l++)
        for (int i = 0; i < x->s->naxes && x->load[l].axes >> x->n & 1; i++)
            if (i != x->n && x->load[l].coef[i] * x->load[l].bytes % l1->transaction_bytes) return false;
    return true;
}

/* What loading a vector of the operand takes, in multiply-adds: two accesses where it begins anywhere in a line, one from L2 where L1 does not hold
 * the panel. Measured on an Ice Lake: of a panel in L1 tiles of 4 vectors and 5 or 6 rows take 0.93 of the time of 3 by 8, of one in L2 1.05 to 1.1,
 * across lines 1.02 to 1.1. On a Granite Rapids 3 by 8 take 0.9 to 0.93 of the time of 4 by 6 and 5 by 5 in either, which its description says, but
 * of sums of 64 terms, whose rows of results had better be long (1.05). */
static double time_of_vector(const kn_site *x, int64_t panel, bool lines)
{
    const double across = 1.8, from_l1 = kn_cpu_short_vectors(x) ? 0.2 : 0.5, from_l2 = 1.0;
    bool near = panel * x->reduce_extent * kn_cpu_acc_bytes(x) <= kn_hw_level_named(x->hw, "l1")->capacity_bytes * 3 / 4;
    if (lines && x->hw->costs.panel_vector > 0 && x->reduce_extent >= 2 * TERMS) return x->hw->costs.panel_vector * x->hw->fma_per_cycle;
    return !lines ? across : near ? from_l1 : from_l2;
}

/* The register tile by the time of all tiles: loads beside the multiply-adds, a row's element and an operand's vector, and the loop itself. */
static bool few_tile(const kn_site *x, kn_cpu_tile *t, int64_t widest, bool lines)
{
    enum { MOST = 14, OF_ONE_SET = 6 };
    const bool parts = kn_cpu_short_vectors(x);
    const double element = parts && lines ? 0.5 : 0.8, loop = 1.5, less = parts ? 1 : 0.99; /* of tiles that take about the same, the first */
    double least = 0;
    int64_t most = parts && kn_cpu_in_one_set(x) ? OF_ONE_SET : MOST;
    if (most > kn_cpu_extent(x, x->m)) most = kn_cpu_extent(x, x->m);
    int64_t need = x->hw->fma_latency * x->hw->fma_per_cycle; /* and one more, since not every one starts in time */
    for (int64_t nv = 1; nv <= widest && (nv - 1) * t->lanes < kn_cpu_extent(x, x->n); nv++) {
        double vector = time_of_vector(x, t->along ? kn_cpu_extent(x, x->n) : nv * t->lanes, lines);
        for (int64_t mr = 1; mr <= most && mr * nv + nv + 1 <= x->hw->vector_registers; mr++) {
            double time = kn_cpu_time_of_tiles(x, mr, nv, t->lanes, element + loop / (double)mr, vector);
            if (mr * nv <= need || (least > 0 && time >= less * least)) continue;
            least = time;
            t->nv = nv;
            t->mr = mr;
        }
    }
    return least > 0;
}

/* Parts of a sum of columns alone, or of their products with one row, that keep the cores busy, so that each reads whole rows (parts.c). */
static bool parted_columns(const kn_site *x)
{
    int other = kn_cpu_other(x);
    if (other < 0 || kn_cpu_extent(x, x->m) > KN_COST_PARTED) return false;
    for (int i = 0; i < x->s->nspatial; i++)
        if (i != x->n && i != x->m && i != other && kn_cpu_extent(x, i) > 1) return false;
    return kn_site_followers(x, x->n) == 1 && kn_site_evenly(kn_cpu_extent(x, other), x->hw->units);
}

/* Where a vector is a part of a line, a line of each of a block's rows is read at a time, by a loop over these that is written out: what counts it
 * and asks for lines ahead takes longer than the processor's own streams (4096x4096: 0.8 of the time on a Zen 3). But what L3 still holds some of had
 * better be asked for (1024x4096 so: 1.3 times as long). What it holds all of a row goes along in two lines of half as many rows, if it meets them
 * from end to end (1024x1024: 0.85 of the time). Rows that are read so and as far apart as possible are as many runs of memory (0.92 to 0.97). */
static void streamed_tile(const kn_site *x, kn_cpu_tile *t)
{
    enum { FAR = 8, NEAR_LINES = 2 };
    const kn_hw_level *l3 = kn_hw_level_named(x->hw, "l3");
    int64_t bytes = whole_operand_bytes(x);
    bool far = l3 && bytes / FAR >= l3->capacity_bytes, near = l3 && bytes <= l3->capacity_bytes && parted_columns(x) && x->nloads > 1;
    if (kn_cpu_short_vectors(x) && (far || near)) {
        t->mr = kn_cpu_extent(x, x->m);
        t->nv = (far ? 1 : NEAR_LINES) * kn_hw_level_named(x->hw, "l1")->transaction_bytes / x->hw->vector_bytes;
        t->written = true;
        return;
    }
    t->mr = kn_cpu_extent(x, x->m);
    t->nv = t->mr > 1 ? 6 : 8;
    int64_t most = (x->hw->vector_registers - 7) / t->mr, row = kn_ceil_div(kn_cpu_extent(x, x->n), t->lanes);
    if (t->nv > most) t->nv = most < 1 ? 1 : most;
    if (t->nv > row) t->nv = row;
}

/* Tasks along the columns, a core's share each or less, so that its partial sums fill half of L2 at most. */
static void column_tasks(const kn_site *x, kn_cpu_tile *t)
{
    int64_t panel = t->nv * t->lanes, panels = kn_ceil_div(kn_cpu_extent(x, x->n), panel), units = x->hw->units;
    int64_t most = kn_hw_level_named(x->hw, "l2")->capacity_bytes / 2 / (t->mc * t->mr * panel * kn_cpu_acc_bytes(x));
    int64_t columns = most < 1 ? panels : kn_ceil_div(panels, most);
    if (kn_cpu_other(x) < 0) columns = kn_round_up(columns, units);
    t->nc = kn_ceil_div(panels, columns);
}

bool kn_cpu_wide_rows(const kn_site *x)
{
    enum { FEWEST = 2, MOST = 4 };
    int64_t rows = kn_cpu_extent(x, x->m);
    return rows >= FEWEST && rows <= MOST && !kn_cpu_short_vectors(x);
}

/* Rows of the operand in a block. Fewer streams come faster from memory, more take fewer turns over the partial sums, which each group of rows pays
 * for: of products with 4, 8, 12, 24 rows blocks of 8, 8, 16, 24 take 0.6, 0.57, 0.76, 0.92 of the time of 32, which 32 rows want; 48 rows take 1.05
 * times as long with 32 as with PAGES (measured on a Zen 4; on an Ice Lake 8 to 32 rows took 1.15 to 1.6 times as long with PAGES). What L3 may still
 * hold comes soon enough: of 4 to 8 MB 5 to 7 rows want 16 or more (0.82 to 0.89 of the time of 8), 23 rows 32 or more, of 10 to 14 MB of 16 so do 5
 * to 12 (0.85 to 0.95). Where it may not, 16 take longer than 8 for a few rows: 3 to 6 rows by 20 to 28 MB 1.4 to 1.7 times as long, 2 to 4 rows by
 * 17 to 180 MB in rows of 12 to 44 KB 1.2 to 1.9 times, where a Xeon with AMX took 0.6 of it (`row_streams`). */
static int64_t side_by_side(const kn_site *x, const kn_cpu_tile *t)
{
    enum { OF_ONE_L3 = 6 }; /* rows */
    const kn_hw_level *l3 = kn_hw_level_named(x->hw, "l3");
    int64_t groups = kn_ceil_div(kn_cpu_extent(x, x->m), t->mr);
    int64_t rows = kn_cpu_extent(x, x->m), held = l3 ? l3->capacity_bytes * (rows > OF_ONE_L3 ? 2 : 1) : 0;
    bool near = whole_operand_bytes(x) < held && rows > STREAMED;
    if (t->written) return STREAMS * kn_hw_level_named(x->hw, "l1")->transaction_bytes / (t->nv * x->hw->vector_bytes);
    int64_t sums = rows * kn_cpu_extent(x, x->n) * kn_cpu_acc_bytes(x);
    bool wide = kn_cpu_wide_rows(x) && kn_cpu_other(x) >= 0 && groups == 1 && sums > kn_hw_level_named(x->hw, "l1")->capacity_bytes;
    if (wide && !near && x->hw->row_streams) return x->hw->row_streams;
    return groups > FEW_GROUPS ? PAGES : near ? 2 * STREAMS * groups : STREAMS * groups;
}

/* Many products, each with an operand of its own that is read once, from memory: block after block it comes from end to end, where panels of the
 * whole sum take a short run of each row (20 to 45 MB on a Zen 4, 12 to 64 rows of 136 to 1001 columns, 0.55 to 1.0 of the time, 424 x 429 to 1.1).
 * Of short sums of long rows the partial sums would be gone over for nothing (1001 x 101: 1.1); short rows are few panels, which are near one run
 * as it is (64 to 112 columns: 1.0 to 1.8, 128: 0.8 to 1.3). Of operands that L2 does not hold long sums of more rows come so too, as if each stood
 * alone (2 images of 512x50x50, 1000x46x46, 2000x39x39 to 256, 200, 200: 0.89, 0.84, 0.84 of the time of panels of all terms; of 168 and 256 terms
 * 1.02 to 1.05). */
static bool of_many(const kn_site *x, int other)
{
    enum { ROWS = 64, VECTORS = 8, LEAST = 3, LONG = 400 }; /* terms are to be this part of the columns or more; of a long sum */
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2"), *l3 = kn_hw_level_named(x->hw, "l3");
    int64_t columns = kn_cpu_extent(x, x->n);
    for (int l = 0; l < x->nloads; l++)
        if (other < 0 || ((x->load[l].axes >> x->n & 1) && !(x->load[l].axes >> other & 1))) return false;
    if (l2 && operand_bytes(x) > l2->capacity_bytes && x->reduce_extent >= LONG && !kn_cpu_short_vectors(x)) return true;
    if (!l3 || kn_cpu_extent(x, x->m) > ROWS || LEAST * x->reduce_extent < columns) return false;
    return columns * kn_cpu_acc_bytes(x) > VECTORS * x->hw->vector_bytes && whole_operand_bytes(x) > l3->capacity_bytes;
}

/* Terms of a sum beside each other are as far apart as they can be, so that they are as many runs of memory, each read from end to end: prefetchers
 * take rows that follow each other, shorter than a page or two, for many streams that end at once (a Zen 4: sums of 24 to 420 columns of 0.6 MB 0.5
 * to 1.0 of the time, of 4 MB 0.7 to 1.0, of 40 MB 0.17 to 1.0; of 700 and 1500 columns of 40 MB 0.43 and 0.6; one row by as much 0.46 to 1.0, 2 to 4
 * rows 0.5 to 1.0, but from L3 1.1 to 1.6). Rows of 13 KB: 0.65 to 1.0 on one core, 1.15 on two. */
static bool runs_apart(const kn_site *x, const kn_cpu_tile *t)
{
    enum { PAGES_OF_FAR = 2, ROWS = 4 };
    const kn_hw_level *l3 = kn_hw_level_named(x->hw, "l3");
    int64_t rows = kn_cpu_extent(x, x->m), row = kn_cpu_extent(x, x->n) * kn_cpu_acc_bytes(x), bytes = whole_operand_bytes(x);
    bool far = l3 && bytes > l3->capacity_bytes;
    if (t->written || rows > ROWS || row >= KN_CPU_PAGE * (far ? PAGES_OF_FAR : 1)) return false;
    return rows == 1 || (kn_hw_past_caches(x->hw, (double)bytes) && kn_cpu_other(x) >= 0);
}

/* Blocks of the sum, and whether their terms lie apart; false: panels want a copy, or there are too few of them. */
static bool few_blocks(const kn_site *x, kn_cpu_tile *t)
{
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1");
    int64_t all = kn_cpu_extent(x, t->blocked), inner = x->reduce_extent / all, rows = kn_cpu_extent(x, x->m), n = kn_cpu_extent(x, x->n);
    int64_t panel = t->nv * t->lanes, near = l1->capacity_bytes * 3 / 4 / (panel * kn_cpu_acc_bytes(x));
    bool apart = inner == 1 && runs_apart(x, t);
    int64_t pages = apart ? STREAMS : side_by_side(x, t), most = (near < pages ? near : pages) / inner, sets = of_sets(x) / inner;
    if (worth_a_copy(x, most < all ? most * inner : x->reduce_extent)) return false;
    if (sets < most && rows > STREAMED) most = sets;
    if (most < 2 || (rows > STREAMED && n < PANELS * panel)) return false;
    t->kb = apart ? STREAMS : all <= most ? 1 : kn_ceil_div(all, kn_ceil_div(all, most));
    t->mc = kn_ceil_div(rows, t->mr);
    column_tasks(x, t);
    bool whole_rows = t->nc * panel >= n, ends_well = x->nloads == 1 || all % t->kb == 0; /* terms left over cost a sum little */
    t->apart = apart || (t->written && whole_rows && ends_well);
    return true;
}

bool kn_cpu_few_rows(const kn_site *x, kn_plans *p)
{
    int64_t full = x->hw->vector_bytes / kn_cpu_acc_bytes(x), rows = kn_cpu_extent(x, x->m);
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1"), *l2 = kn_hw_level_named(x->hw, "l2");
    const int other = kn_cpu_other(x);
    const bool many = of_many(x, other);
    if (!l1 || !l2 || !lies_along(x) || (other >= 0 && !parted_columns(x) && !many)) return false;
    if (whole_operand_bytes(x) <= (rows == 1 ? l1 : l2)->capacity_bytes) return false;
    if (rows > (kn_cpu_short_vectors(x) ? FEW_OF_SHORT : FEW_ROWS)) return false;
    kn_cpu_tile t = {.lanes = full, .grain = many ? kn_cpu_grain(x, other) : 1, .blocked = kn_cpu_longest_reduce(x), .rlanes = 1, .runroll = 1};
    if (rows <= STREAMED) streamed_tile(x, &t);
    else if (!few_tile(x, &t, WIDEST, false)) return false; /* it is waited for besides */
    if (few_blocks(x, &t) && (t.nc > 1 || t.apart)) kn_cpu_try(x, p, &t);
    return p->n > 0;
}

/* Measured from memory, times of the instruction over these: halves, 1 to 6 rows of 4096x1024: 1.1 to 1.5, from L3 as well; bytes: 1.35 of one row,
 * but 0.85 from L3. */
bool kn_cpu_streams_narrow(const kn_site *x)
{
    enum { HALVES = 6, BYTES = 1 };
    const kn_expr *loads[KN_SITE_LOADS];
    int n = kn_loads(x->s->body, loads, KN_SITE_LOADS);
    bool real = kn_dtype_class(x->s->body->dtype) == 'f';
    const kn_hw_level *far = kn_hw_level_named(x->hw, real ? "l2" : "l3");
    if (x->hw->gpu || !far || n != 2 || x->n < 0 || kn_cpu_extent(x, x->m) > (real ? HALVES : BYTES) || kn_cpu_other(x) >= 0) return false;
    if (!lies_along(x)) return false;
    for (int l = 0; l < n; l++) {
        const kn_tensor *t = &x->t->program->tensors[loads[l]->u.tensor];
        if ((x->load[l].axes >> x->n & 1) && !t->constant && kn_cpu_bytes(t) > (double)far->capacity_bytes) return true;
    }
    return false;
}

/* Writing the results is what takes time: rows go along all panels (cpu_sums.c). */
static bool outweighed(const kn_site *x, const kn_hw_level *l2)
{
    double results = (double)kn_cpu_extent(x, x->m) * (double)kn_cpu_extent(x, x->n) * kn_cpu_acc_bytes(x);
    return x->reduce_extent < 2 * TERMS && results > 0.75 * (double)l2->capacity_bytes; /* 12 of 512x64x512: 0.9 of the time, of 384x64x384 1.01 */
}

/* Each tile takes a part of lines that the one before it had, and all of them are fetched again for every panel. Tile by tile beside each other they
 * are read from end to end (49x436x213, 128x512x256, 20x300x250 with the first operand transposed, on a Zen 3: 0.6 to 0.87 of the time;
 * 100x200x100, 300x256x128: 1.1). */
bool kn_cpu_copies_across(const kn_site *x)
{
    enum { LEAST_ROWS = 16, LEAST_VECTORS = 36 }; /* which a copy is worth that every core makes */
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1");
    int64_t rows = kn_cpu_extent(x, x->m), terms = x->reduce_extent, bytes = kn_cpu_acc_bytes(x);
    bool across = false;
    if (kn_cpu_extent(x, x->n) * bytes < LEAST_VECTORS * x->hw->vector_bytes) return false;
    for (int l = 0; l < x->nloads; l++) across = across || kn_cpu_rows_across(x, l, kn_cpu_longest_reduce(x));
    if (!kn_cpu_short_vectors(x) || !across || rows < LEAST_ROWS) return false;
    return rows * terms * bytes > l1->capacity_bytes / 2 && terms * l1->transaction_bytes >= l1->capacity_bytes / 4;
}

static int64_t panel_bytes(const kn_site *x, const kn_cpu_tile *t) { return t->nv * t->lanes * x->reduce_extent * kn_cpu_acc_bytes(x); }

/* Panels that come from L2 for each group of rows, each row of them from a place of its own, which no prefetcher of L1 sees coming: of so many rows a
 * copy, which is one run, takes 0.72 to 1.0 of the time on a Sapphire Rapids (256x2000x250 0.72, 336x336x441 0.81, 256x1024x196 0.85, 96x1024x196
 * 0.95, 1000x500x200 1; 64x1024x196 1.03, 128x128x784, whose panels L1 holds, 1.07). Of many products, whose operands nothing else brings near, so do
 * those that L1 holds where their rows begin anywhere in lines, and of those that begin with lines none (16 images of 1024x14x14 to 256 0.87,
 * 336x21x21 0.8, 168x42x42 0.87; 512x28x28, in lines, 1.0 to 1.03). Short vectors: worth_a_copy. */
static bool far_panels(const kn_site *x, const kn_cpu_tile *t, bool lines)
{
    enum { ROWS = 88, ROWS_OF_MANY = 64 };
    bool many = kn_cpu_other(x) >= 0;
    int64_t rows = t->mc * t->mr < kn_cpu_extent(x, x->m) ? t->mc * t->mr : kn_cpu_extent(x, x->m);
    if (kn_cpu_short_vectors(x) || t->pack_rows || (many && lines) || rows < (many ? ROWS_OF_MANY : ROWS)) return false;
    return many || panel_bytes(x, t) > kn_hw_level_named(x->hw, "l1")->capacity_bytes;
}

/* Of many products, rows that L2 does not hold: tasks of those that it holds would each read the panels again, or copy them. Panels that all rows go
 * along take their place (cpu_deep.c). */
static bool far_rows(const kn_site *x)
{
    int64_t rows = kn_cpu_extent(x, x->m) * x->reduce_extent * kn_cpu_acc_bytes(x);
    return !kn_cpu_short_vectors(x) && rows > kn_hw_level_named(x->hw, "l2")->capacity_bytes;
}

/* Where panels end inside of lines of results, and the operand is near, rows go along all panels, so that a line is written while it is there. */
bool kn_cpu_near_operand(const kn_site *x, kn_plans *p)
{
    int64_t full = x->hw->vector_bytes / kn_cpu_acc_bytes(x), rows = kn_cpu_extent(x, x->m), operand = operand_bytes(x);
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1"), *l2 = kn_hw_level_named(x->hw, "l2");
    if (!l1 || !l2 || x->m < 0 || !x->contraction || operand > l2->capacity_bytes) return false;
    if (operand <= l1->capacity_bytes * 3 / 4 && !kn_cpu_short_vectors(x)) return false;
    int other = kn_cpu_other(x); /* of many products each is small: a tile leaves room for two, or its rows are read as a panel is */
    bool lines = begins_with_lines(x), whole = other >= 0 && lines;
    int64_t widest = other < 0 || whole ? WIDEST : kn_cpu_extent(x, x->n) / (PANELS * full);
    kn_cpu_tile t = {.lanes = full, .grain = kn_cpu_grain(x, other), .nc = 1, .kb = 1, .blocked = x->s->nspatial, .rlanes = 1, .runroll = 1};
    if (!lies_along(x) || outweighed(x, l2) || worth_a_copy(x, x->reduce_extent)) return false;
    t.along = kn_cpu_short_vectors(x) && operand <= l2->capacity_bytes / 4 && x->reduce_extent <= of_sets(x);
    if (!few_tile(x, &t, widest < WIDEST ? widest : WIDEST, lines)) return false;
    if (!whole && kn_cpu_extent(x, x->n) < PANELS * t.nv * full) return false;
    int64_t groups = kn_ceil_div(rows, t.mr), panels = kn_ceil_div(kn_cpu_extent(x, x->n), t.nv * full);
    int64_t most = l2->capacity_bytes / 2 / (t.mr * x->reduce_extent * kn_cpu_acc_bytes(x)), tasks = kn_ceil_div(groups, most < 1 ? 1 : most);
    if (other >= 0 && far_rows(x)) return false;
    if (t.along) t.nc = panels;
    t.pack_rows = other < 0 && panels >= 2 * x->hw->units && kn_cpu_copies_across(x); /* of which every core takes its own copy */
    if (t.pack_rows) t.blocked = kn_cpu_longest_reduce(x), t.nc = kn_ceil_div(panels, x->hw->units), t.along = false;
    while (!t.pack_rows && tasks < groups && tasks * (t.along ? 1 : panels) * kn_cpu_extent(x, other) < 2 * x->hw->units) tasks *= 2;
    t.mc = kn_ceil_div(groups, tasks);
    t.pack = far_panels(x, &t, lines);
    if (t.pack && panels > 1 && panel_bytes(x, &t) <= l1->capacity_bytes) t.along = true, t.nc = 2; /* of many products */
    if (!t.along) kn_cpu_even(x, &t, 1);
    kn_cpu_try(x, p, &t);
    return p->n > 0;
}
