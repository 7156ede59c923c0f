/* Tiles of reductions on a CPU core: the register tile by the micro-kernel rule (accumulators, a row of vectors and broadcasts fit the register file,
 * with chains enough to cover the latency of a multiply-add; Chimera, HPCA'23, equation 3.4), blocks sized to L1 and L2, tasks for the cores. */
#include "construct/cpu.h"

enum {
    FEW = 32,   /* terms of a sum so short that writing its results is what takes time */
    COPIED = 8, /* rows that are worth a copy of a narrow operand */
    SHORT_ROW = 256 /* terms of a row that is no task for itself */
};

/* Elements of a window's panel for one iteration of the blocked axis, each counted once; 0: not known. */
static int64_t window_span(const kn_site *x, const kn_cpu_tile *t)
{
    int64_t most = 0;
    for (int l = 0; l < x->nloads; l++) {
        const kn_site_access *a = &x->load[l];
        int64_t span = t->nv * t->lanes;
        if (!(a->axes >> x->n & 1)) continue;
        if (!a->linear || a->bent || a->coef[x->n] != 1) return 0;
        for (int i = x->s->nspatial; i < x->s->naxes; i++)
            if (i != t->blocked) span += (a->coef[i] < 0 ? -a->coef[i] : a->coef[i]) * (kn_cpu_extent(x, i) - 1);
        if (span > most) most = span;
    }
    return most;
}

/* At most so much of the axis: near a divisor of it, so that no block is a small one. */
int64_t kn_cpu_block_of(int64_t all, int64_t most)
{
    for (int64_t d = most; 2 * d > most; d--) if (all % d == 0) return d;
    return kn_ceil_div(all, kn_ceil_div(all, most));
}

/* How much of the reduction is summed at a time (Goto and van de Geijn's kc): a packed panel streams from L2 and takes an eighth of it; a window's
 * taps are read where they lie and stay in L1. Weights that L2 does not hold come in long runs: then what lies in L1 is counted once an element, not
 * once a tap. */
static int64_t reduce_block(const kn_site *x, const kn_cpu_tile *t, bool window)
{
    const kn_hw_level *near = kn_hw_level_named(x->hw, window ? "l1" : "l2");
    if (!near || x->m < 0 || !x->contraction) return 1;
    int64_t room = near->capacity_bytes * (window ? 6 : 1) / 8 / (t->nv * t->lanes * kn_cpu_acc_bytes(x));
    int64_t all = kn_cpu_extent(x, t->blocked), inner = x->reduce_extent / all;
    int64_t most = room / inner, span = window ? window_span(x, t) : 0;
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    bool far = l2 && kn_cpu_extent(x, x->m) * x->reduce_extent * kn_cpu_acc_bytes(x) > l2->capacity_bytes;
    if (span && far && span < t->nv * t->lanes * inner) most = near->capacity_bytes * 6 / 8 / (span * kn_cpu_acc_bytes(x));
    return most < 2 || all <= most + most / 2 ? 1 : kn_cpu_block_of(all, most);
}

/* Rows of a task: half of L2 for the blocked operand, but enough tasks for the cores. */
int64_t kn_cpu_row_groups(const kn_site *x, const kn_cpu_tile *t, int other)
{
    if (x->m < 0) return 1;
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    int64_t room = (l2 ? l2->capacity_bytes : 262144) / 2;
    int64_t row = (t->kb > 1 ? x->reduce_extent / kn_cpu_extent(x, t->blocked) * t->kb : x->reduce_extent) * kn_cpu_acc_bytes(x);
    int64_t all = kn_ceil_div(kn_cpu_extent(x, x->m), t->mr), most = room / (row > 0 ? row : 1) / t->mr;
    int64_t groups = most < 1 ? 1 : most > all ? all : most;
    int64_t tasks = kn_ceil_div(kn_cpu_extent(x, x->n), t->nv * t->lanes) * kn_cpu_extent(x, other);
    while (groups > 1 && tasks * kn_ceil_div(all, groups) < 2 * x->hw->units) groups = kn_ceil_div(groups, 2);
    return kn_ceil_div(all, kn_ceil_div(all, groups)); /* tasks of one size */
}

/* Panels of a task: as many as leave the cores tasks enough, since they share the blocks of the other operand; their partial sums take at most a
 * quarter of L2. */
static int64_t panels_of_task(const kn_site *x, const kn_cpu_tile *t, int other)
{
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    if (t->kb <= 1 || !l2) return 1;
    int64_t panel = t->nv * t->lanes, panels = kn_ceil_div(kn_cpu_extent(x, x->n), panel), rows = kn_ceil_div(kn_cpu_extent(x, x->m), t->mc * t->mr);
    int64_t nc = panels * rows * kn_cpu_extent(x, other) / (4 * (int64_t)x->hw->units);
    int64_t most = l2->capacity_bytes / 4 / (t->mc * t->mr * panel * kn_cpu_acc_bytes(x));
    if (nc > most) nc = most;
    if (nc > panels) nc = panels;
    return nc < 2 ? 1 : kn_ceil_div(panels, kn_ceil_div(panels, nc));
}

/* Tiles of a task where there is but one axis of results: a call takes as long as the sums of one vector of a few terms (200000 rows of 4: 0.64 of
 * the time, 1000003 of 3: 0.85). */
static int64_t short_tiles_of_task(const kn_site *x, const kn_cpu_tile *t)
{
    enum { TASKS = 32, TERMS = 16 }; /* a core; more are no short task */
    int64_t tiles = kn_ceil_div(kn_cpu_extent(x, x->n), t->nv * t->lanes), nc = tiles / (TASKS * (int64_t)x->hw->units);
    return nc < 2 || x->reduce_extent > TERMS ? 1 : nc;
}

/* Taps of a window lie among the places beside it, in the same line or some rows on: packed panels would hold every element several times. */
static bool taps(const kn_site *x, const kn_site_access *a)
{
    for (int i = x->s->nspatial; i < x->s->naxes; i++) {
        int64_t step = a->coef[i] < 0 ? -a->coef[i] : a->coef[i]; /* backwards too: transposed convolutions, gradients */
        bool near = (a->bent >> i & 1) || (step > 0 && step < kn_cpu_extent(x, x->n));
        if (x->s->axes[i].extent > 1 && a->linear && a->coef[x->n] == 1 && near) return true;
    }
    return false;
}

/* How the operands that hold n are read: what decides on packing. step: the widest one between lanes of a vector, INT64_MAX: not affine. */
typedef struct reading { bool strided, padded, window; int64_t step; } reading;

static reading reading_of(const kn_site *x)
{
    reading r = {.step = 1};
    const kn_expr *loads[KN_SITE_LOADS];
    int n = kn_loads(x->s->body, loads, KN_SITE_LOADS);
    for (int l = 0; l < x->nloads; l++) {
        const kn_site_access *a = &x->load[l];
        if (x->n < 0 || !(a->axes >> x->n & 1)) continue;
        r.strided |= !kn_cpu_read_once(x, a) && (!a->linear || a->coef[x->n] != 1);
        int64_t step = !a->linear || a->coef[x->n] < 0 ? INT64_MAX : a->coef[x->n];
        if (r.step < step) r.step = step;
        r.padded |= a->padded && n <= KN_SITE_LOADS && !kn_site_lanes_agree(x, loads[l]);
        r.window |= taps(x, a);
    }
    return r;
}

/* Tasks along rows, then along n: one a core or several, since each packs what it reads for itself. */
static void block_tasks(const kn_site *x, kn_cpu_tile *t, int64_t tiles, int64_t most)
{
    int64_t panels = kn_ceil_div(kn_cpu_extent(x, x->n), t->nv * t->lanes), units = x->hw->units;
    int64_t rows = most < 1 ? tiles : (tiles + most / 2) / most, columns = 1;
    if (rows < 1) rows = 1;
    if (rows < units) columns = kn_ceil_div(units, rows);
    else if (rows < 4 * units) rows = kn_round_up(rows, units);
    t->mc = kn_ceil_div(tiles, rows);
    t->nc = kn_ceil_div(panels, columns);
}

/* A large operand that is met by many rows: blocks of the reduction whose panel stays in L1, rows of the other operand that fill half of L2, all
 * panels of a task one after the other (Goto and van de Geijn's loops). Where rows are few, packing reads memory once for little work: a block is
 * packed as it lies, row by row, for all panels. Rows of the other operand that lie some thousand bytes apart fall into few sets of
 * the caches and many pages: their segments are copied beside each other. */
static bool blocks_by(const kn_site *x, const reading *r, kn_cpu_tile *t)
{
    enum { FEW_TILES = 24, FEW_ROWS = 144, ENOUGH_ROWS = 24, LEAST = 32 };
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1"), *l2 = kn_hw_level_named(x->hw, "l2");
    if (!l1 || !l2 || x->m < 0 || !x->contraction || r->strided || r->padded || r->window || kn_cpu_other(x) >= 0) return false;
    int64_t bytes = kn_cpu_acc_bytes(x), all = kn_cpu_extent(x, t->blocked), inner = x->reduce_extent / all, panel = t->nv * t->lanes;
    int64_t n = kn_cpu_extent(x, x->n), tiles = kn_ceil_div(kn_cpu_extent(x, x->m), t->mr);
    if (n * x->reduce_extent * bytes < l2->capacity_bytes || n < 4 * panel || kn_cpu_extent(x, x->m) < ENOUGH_ROWS) return false;
    bool few = kn_hw_few_registers(x->hw); /* of which tiles have few rows */
    t->wide = tiles <= FEW_TILES || (few && kn_cpu_extent(x, x->m) <= FEW_ROWS);
    int64_t kb = l1->capacity_bytes * (t->wide ? 2 : 3) / 4 / (panel * bytes * inner); /* the rest: rows on their way through */
    if (kb < 8 || all < 2 * kb) return false;
    int64_t near = l2->capacity_bytes / 4 / (n * bytes * inner); /* terms of all panels, which come from L2 for each group of rows */
    if (t->wide && few && near < kb) kb = near < LEAST ? LEAST : near;
    t->kb = kn_ceil_div(all, kn_ceil_div(all, kb));
    block_tasks(x, t, tiles, l2->capacity_bytes / 2 / (t->mr * t->kb * inner * bytes));
    t->pack = true;
    for (int l = 0; l < x->nloads; l++)
        t->pack_rows |= x->load[l].linear && !(x->load[l].axes >> x->n & 1) && x->load[l].coef[x->m] * x->load[l].bytes > KN_CPU_APART;
    return true;
}

/* The operands with n stay in L1 whole: nothing is gained by packing them. */
bool kn_cpu_in_l1(const kn_site *x)
{
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1");
    return l1 && kn_cpu_extent(x, x->n) * x->reduce_extent * kn_cpu_acc_bytes(x) <= l1->capacity_bytes * 3 / 4;
}

/* Sums of columns alone, of many rows: so many of these are written out one after the other, as reading them a row an iteration takes 1.2 to 1.6
 * times as long (measured where L2 or L3 holds them); 1: no such number divides them. */
static int64_t rows_written_out(const kn_site *x, const kn_cpu_tile *t)
{
    enum { FEWEST = 4 };
    const kn_site_access *a = &x->load[0];
    bool columns = x->m < 0 && x->n >= 0 && x->nloads == 1 && x->s->naxes == x->s->nspatial + 1 && !a->padded && a->linear && a->coef[x->n] == 1;
    int64_t all = x->reduce_extent, rows = t->nv > 1 ? KN_CPU_UNROLLED / t->nv : KN_MOST_UNROLLED;
    if (!columns || (all <= KN_MOST_UNROLLED && all * t->nv <= KN_CPU_UNROLLED) || t->nv > KN_CPU_ROW) return 1;
    while (rows >= FEWEST && all % rows) rows--;
    return rows < FEWEST ? 1 : rows;
}

/* What has n has rows of it, from end to end, and no less than half as many as there are lanes: what lies behind a row is the next one, which may be
 * read with it (lower/over.c). */
static bool rows_end_to_end(const kn_site *x, int64_t lanes)
{
    const kn_expr *loads[KN_SITE_LOADS];
    int n = kn_loads(x->s->body, loads, KN_SITE_LOADS);
    for (int l = 0; l < n; l++) {
        if (n > KN_SITE_LOADS || !(kn_axes_in(loads[l]) >> x->n & 1)) continue;
        const kn_tensor *t = &x->t->program->tensors[loads[l]->u.tensor];
        const kn_expr *row = loads[l]->args[loads[l]->nargs - 1];
        if (loads[l]->padded || row->op != KN_OP_AXIS || row->u.axis != x->n || t->shape[t->rank - 1] != kn_cpu_extent(x, x->n)) return false;
        for (int d = 0; d + 1 < loads[l]->nargs; d++)
            if (kn_axes_in(loads[l]->args[d]) >> x->n & 1) return false;
    }
    return n <= KN_SITE_LOADS && 2 * kn_cpu_extent(x, x->n) >= lanes;
}

/* The vectors of a whole padded row, whose elements are picked from them (lower/edge.c) where a few taps compare them with something else: a copy
 * that is read at once, across what was stored, takes 1.5 to 2 times as long (3x3 by 2 of 56 columns). 0: it is no such sum, or too long. */
static int64_t held_row(const kn_site *x, const reading *r, int64_t lanes)
{
    if (x->n < 0) return 0;
    int64_t n = kn_cpu_extent(x, x->n), nv = kn_ceil_div(n, lanes);
    int compared = 0;
    for (int l = 0; l < x->nloads; l++) {
        const kn_site_access *a = &x->load[l];
        if (!(a->axes >> x->n & 1)) continue;
        if (!kn_cpu_read_once(x, a) || a->bytes < 4) return 0;
        compared++;
    }
    bool fits = lanes <= n && nv <= KN_CPU_ROW / 2 && x->reduce_extent * nv <= KN_CPU_UNROLLED;
    return r->padded && !x->contraction && x->s->naxes > x->s->nspatial && compared > 1 && fits ? nv : 0;
}

/* One panel is all of the operand, as it lies, and L2 holds it beside rows on their way through: neither a copy nor blocks of the sum are any better
 * (512x24x1536: 0.8 of the time of these; of two thirds of L2, 64 to 1000 rows of 2800 to 9000 terms, 0.6 to 0.98; of three quarters 1.4). */
static bool lies_as_panel(const kn_site *x, int64_t panel)
{
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    int64_t n = kn_cpu_extent(x, x->n);
    if (!l2 || !x->contraction || n != panel || n * x->reduce_extent * kn_cpu_acc_bytes(x) > l2->capacity_bytes / 16 * 11) return false;
    for (int l = 0; l < x->nloads; l++) {
        const kn_site_access *a = &x->load[l];
        if ((a->axes >> x->n & 1) && (!a->linear || a->padded || a->coef[x->n] != 1 || a->coef[kn_cpu_longest_reduce(x)] != n)) return false;
    }
    return true;
}

/* One panel has all of the operand's columns, ends inside of a vector, and half of L2 holds it with what fills it up: it is copied whole, and sums
 * leave the registers once, as blocks' partial rows would go out and come back a few elements at a time (678x13x3193, 1000x20x1500, 300x15x4000,
 * 1000x23x2500 on a Zen 3: 0.7 to 0.96 of the time of blocks). Rows that lie across the sum want blocks, of which L1 holds their lines (400x20x1800
 * with the left operand transposed: 0.88). */
static bool copied_as_panel(const kn_site *x, const reading *r, int64_t panel, int64_t lanes)
{
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    int64_t n = kn_cpu_extent(x, x->n);
    if (!l2 || !x->contraction || x->m < 0 || kn_cpu_other(x) >= 0 || r->strided || r->padded || r->window) return false;
    if (!kn_cpu_short_vectors(x)) return false; /* others store a part of one as they store all of it */
    for (int l = 0; l < x->nloads; l++)
        if (kn_cpu_rows_across(x, l, kn_cpu_longest_reduce(x))) return false;
    return n <= panel && n + lanes > panel && n % lanes && panel * x->reduce_extent * kn_cpu_acc_bytes(x) <= l2->capacity_bytes / 2;
}

/* One register tile of that many vectors holds all rows: it reads the other operand once, for which no copy is worth making. */
static bool in_one_tile(const kn_site *x, int64_t nv) { return (kn_cpu_extent(x, x->m) + 1) * nv + 1 <= x->hw->vector_registers; }

/* Tries mr rows by nv vectors of `lanes` lanes, with blocks and packing as they follow from that. */
static void spatial_tile(const kn_site *x, kn_plans *p, const reading *r, int64_t mr, int64_t nv, int64_t lanes)
{
    int other = kn_cpu_other(x);
    int64_t n = kn_cpu_extent(x, x->n), held = held_row(x, r, lanes);
    kn_cpu_tile t = {.lanes = lanes, .nv = nv, .mr = mr, .grain = kn_cpu_grain(x, other), .kb = 1, .rlanes = 1, .runroll = 1};
    if (held && nv != held) return;
    t.blocked = kn_cpu_longest_reduce(x);
    kn_cpu_tile blocks = t;
    if (blocks_by(x, r, &blocks)) {
        kn_cpu_try(x, p, &blocks);
        return;
    }
    t.kb = t.nc = 1;
    if (!r->padded) t.kb = reduce_block(x, &t, r->window);
    t.mc = kn_cpu_row_groups(x, &t, other);
    bool lies = lies_as_panel(x, nv * lanes);
    if (t.mc < 4 || lies || in_one_tile(x, nv)) t.kb = 1;
    if (t.kb > 1 && copied_as_panel(x, r, nv * lanes, lanes)) t.kb = 1, t.mc = kn_ceil_div(kn_ceil_div(kn_cpu_extent(x, x->m), mr), x->hw->units);
    t.nc = r->window ? 1 : x->m < 0 && other < 0 ? short_tiles_of_task(x, &t) : panels_of_task(x, &t, other);
    if (!r->strided && !r->padded && x->reduce_extent <= FEW) t.mc = 1; /* nothing to pack, little to reuse: rows are written from end to end */
    /* a panel of few rows is in L1 as it lies */
    bool again = x->contraction && t.mc >= 4 && !r->window && !lies && !in_one_tile(x, nv) && !kn_cpu_in_l1(x);
    /* few rows: what is picked from a few vectors, or gathered, is so where it is wanted */
    bool strided = r->strided && !(r->step <= 4 && kn_cpu_extent(x, x->m) <= 16) && !(r->step <= 16 && kn_cpu_extent(x, x->m) <= 2);
    t.pack = x->s->naxes > x->s->nspatial && (strided || (r->padded && !held) || again);
    if (!t.pack && lanes > n) { /* what fills in lanes past the end is a copy, which is small and met by every row, or what lies there */
        kn_cpu_tile copied = t;
        copied.pack = true;
        copied.mc = kn_cpu_row_groups(x, &t, other); /* as many of them in a task as leave the cores tasks enough, each of which makes its copy */
        if (x->contraction && !r->window && kn_cpu_extent(x, x->m) >= COPIED && nv == 1) kn_cpu_try(x, p, &copied);
        if (nv == 1 && rows_end_to_end(x, lanes)) kn_cpu_try(x, p, &t);
        t.lanes = kn_cpu_pow2(n, lanes);
    }
    if (!t.pack && nv > 1 && (nv - 1) * t.lanes >= n) return;
    if (!t.pack && t.kb == 1 && t.nc == 1) t.kb = rows_written_out(x, &t);
    kn_cpu_try(x, p, &t);
    bool bare = t.pack && strided && !r->padded && !again;
    t.pack = false;
    if (bare) kn_cpu_try(x, p, &t);
}

double kn_cpu_time_of_rows(const kn_site *x, int64_t n, int64_t mr, int64_t nv, int64_t lanes, double row, double vector)
{
    int64_t vectors = kn_ceil_div(n, lanes), rest = vectors % nv;
    double need = x->hw->fma_latency * x->hw->fma_per_cycle, half = (double)(mr * vectors) - (double)mr * kn_cpu_vectors(x, n, lanes);
    double last = (double)(mr * rest) - (rest ? half : 0), rows = row * (double)mr;
    if (last < need) last = need;
    double all = (double)(vectors / nv) * ((double)(mr * nv) + vector * (double)nv + rows) + (rest ? last + vector * (double)rest + rows : -half);
    return all * (double)kn_ceil_div(kn_cpu_extent(x, x->m), mr);
}

double kn_cpu_time_of_tiles(const kn_site *x, int64_t mr, int64_t nv, int64_t lanes, double row, double vector)
{
    return kn_cpu_time_of_rows(x, kn_cpu_extent(x, x->n), mr, nv, lanes, row, vector);
}

/* Long sums over many rows, which are read as they lie: the panels are packed. */
static bool deep_tiles(const kn_site *x, kn_plans *p, const reading *r, int64_t lanes)
{
    int other = kn_cpu_other(x), before = p->n;
    kn_cpu_tile t = {.lanes = lanes, .grain = kn_cpu_grain(x, other), .rlanes = 1, .runroll = 1, .pack = true, .lies = !r->strided,
                     .along = true};
    if (r->padded || r->window || !kn_cpu_deep(x, &t)) return false;
    kn_cpu_try(x, p, &t);
    return p->n > before;
}

/* Rows of a tile whose lines fall into one set of L1: as many as it has ways. */
static int64_t most_rows(const kn_site *x)
{
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1");
    return l1 && x->contraction && kn_cpu_in_one_set(x) ? l1->capacity_bytes / kn_hw_way_bytes(l1) : INT64_MAX;
}

/* A window without padding that slides beside the lanes, not along them: what each place of a tile reads is runs of its own. So many side by side
 * come slower from what does not fit L2 with ease than one place after the other (128 of 28x28, 2x2: 7.2 and 4.5 us); in padding each place has its
 * own tests. */
static bool place_by_place(const kn_site *x)
{
    const kn_expr *loads[1];
    if (x->contraction || x->s->naxes == x->s->nspatial || kn_loads(x->s->body, loads, 1) != 1 || loads[0]->padded) return false;
    const kn_tensor *t = &x->t->program->tensors[loads[0]->u.tensor];
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    double bytes = kn_dtype_bytes(t->dtype);
    for (int d = 0; d < t->rank; d++) bytes *= (double)t->shape[d];
    if (!l2 || bytes <= (double)l2->capacity_bytes / 4) return false;
    const kn_expr *last = loads[0]->args[loads[0]->nargs - 1];
    return last->op == KN_OP_AXIS && last->u.axis == x->n && kn_stands_beside(x->s, x->m);
}

static void spatial_tiles(const kn_site *x, kn_plans *p)
{
    enum { TEN = 10 };
    static const int64_t rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, widths[] = {1, 2, 3, 4, 5, 6, 8, 12, 16};
    int64_t full = x->hw->vector_bytes / kn_cpu_acc_bytes(x), n = kn_cpu_extent(x, x->n), lanes = kn_cpu_pow2(n, full);
    if (lanes < full && (lanes * 4 < n * 3 || (x->contraction && lanes < n))) lanes *= 2; /* 7 of 8 lanes beat 4 of 4 and a tail */
    int need = x->hw->fma_latency * x->hw->fma_per_cycle, broadcasts = x->m >= 0 ? 2 : 0;
    int64_t most = most_rows(x);
    reading r = reading_of(x);
    if (x->m >= 0 && x->reduce_extent <= FEW && (place_by_place(x) || kn_cpu_places_alone(x))) most = 1;
    bool plain = !r.padded && !r.window;
    if (kn_cpu_near_operand(x, p) || kn_cpu_blocks(x, p) || (plain && kn_cpu_along(x, p, lanes, r.strided))) return;
    if (deep_tiles(x, p, &r, lanes)) return;
    for (int pass = 0; pass < 2; pass++) { /* first tiles that hide the latency, then all that fit */
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            for (size_t k = 0; k < sizeof widths / sizeof *widths; k++) {
                int64_t mr = rows[i], nv = widths[k], acc = mr * nv;
                bool whole = x->contraction && nv > 1 && nv * lanes >= n && kn_cpu_fills_registers(x, mr, nv); /* rows are read once */
                if ((acc + nv + broadcasts > x->hw->vector_registers && !whole) || (acc >= need) != (pass == 0)) continue;
                if (mr > TEN && mr % 2 && kn_cpu_extent(x, x->m < 0 ? x->n : x->m) > 2 * mr) continue; /* where one tile or two are all rows */
                if ((x->m < 0 && mr > 1) || mr > most || (mr > 1 && mr > kn_cpu_extent(x, x->m)) || (nv > 1 && (nv - 1) * lanes >= n)) continue;
                if (pass == 0 && x->m >= 0 && nv > 5) continue;
                if (nv > 8 && (x->m >= 0 || r.padded || r.strided)) continue; /* columns alone: long runs of memory */
                bool taps_shared = !x->contraction && x->m >= 0 && x->reduce_extent <= FEW; /* by rows, where they are written out */
                if (taps_shared && x->reduce_extent * acc > KN_CPU_UNROLLED && acc > 1) continue;
                spatial_tile(x, p, &r, mr, nv, lanes);
            }
        }
    }
}

/* Terms beside each other, so that so many chains of sums hide the latency of a multiply-add; as many as divide the sum. 1: there are enough. */
static int64_t chains_of(const kn_site *x, int64_t sums)
{
    enum { LEAST = 8 }; /* terms of each chain */
    int64_t need = x->hw->fma_latency * x->hw->fma_per_cycle, chains = kn_ceil_div(need, sums), all = x->reduce_extent;
    if (2 * sums > need) return 1;
    for (int64_t more = chains; more < 2 * chains; more++)
        if (all % more == 0 && all >= LEAST * more) return more;
    while (chains > 1 && (all % chains || all < LEAST * chains)) chains--;
    return chains;
}

/* Results so few that their chains of sums leave units idle, over an operand that is near: several terms at a time, each with sums of its own. */
bool kn_cpu_chained(const kn_site *x, kn_plans *p)
{
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    int64_t lanes = x->hw->vector_bytes / kn_cpu_acc_bytes(x), n = x->n < 0 ? 0 : kn_cpu_extent(x, x->n), mr = kn_cpu_extent(x, x->m);
    if (!l2 || n < 1 || x->nloads != 2 || kn_cpu_other(x) >= 0 || x->s->naxes != x->s->nspatial + 1) return false;
    kn_cpu_tile t = {.lanes = lanes, .nv = kn_ceil_div(n, lanes), .mr = mr, .mc = 1, .nc = 1, .kb = 1, .grain = 1, .rlanes = 1, .runroll = 1,
                     .blocked = x->s->nspatial};
    t.chains = chains_of(x, t.nv * mr);
    reading r = reading_of(x);
    bool near = x->contraction ? kn_cpu_in_l1(x) : x->m < 0 && n * x->reduce_extent * kn_cpu_acc_bytes(x) <= l2->capacity_bytes / 2;
    if (t.chains < 2 || !near || r.strided || r.padded || r.window || (n < lanes && !rows_end_to_end(x, lanes))) return false;
    kn_cpu_try(x, p, &t);
    return p->n > 0;
}

/* Sums of columns of bytes: vectors of sums that are whole vectors of what is read, as parts of it come no faster (4608 rows of 512: 170 us a quarter
 * at a time, 60 so). */
bool kn_cpu_byte_columns(const kn_site *x, kn_plans *p)
{
    enum { WIDEST = 4, ROWS = 4 };
    const kn_site_access *a = &x->load[0];
    bool one = x->n >= 0 && x->m < 0 && x->nloads == 1 && x->s->red == KN_RED_SUM && x->s->naxes == x->s->nspatial + 1 && x->r < 0;
    if (!one || a->bytes != 1 || kn_cpu_acc_bytes(x) != 4 || kn_dtype_class(x->s->body->dtype) == 'f' || !a->linear || a->padded) return false;
    int64_t lanes = x->hw->vector_bytes, whole = kn_cpu_extent(x, x->n) / lanes, rows = ROWS;
    if (a->coef[x->n] != 1 || whole < 1 || lanes > 64 || kn_cpu_other(x) >= 0) return false;
    while (x->reduce_extent % rows) rows--;
    kn_cpu_tile t = {.lanes = lanes, .nv = whole < WIDEST ? whole : WIDEST, .mr = 1, .mc = 1, .nc = 1, .kb = rows, .grain = 1, .rlanes = 1,
                     .runroll = 1, .blocked = x->s->nspatial};
    kn_cpu_try(x, p, &t);
    return p->n > 0;
}

/* Runs of a vector or two do not give chains enough: results side by side do, which share what they have in common. */
static bool shares_short_runs(const kn_site *x, int64_t lanes)
{
    bool shares = false;
    for (int l = 0; l < x->nloads && x->n >= 0; l++) shares |= x->load[l].linear && !(x->load[l].axes >> x->n & 1) && (x->load[l].axes >> x->r & 1);
    return shares && kn_cpu_extent(x, x->r) <= 2 * lanes;
}

/* Few registers are full of these sums, the vectors of the factor that has fewer, and one of the other's: products of 3 rows by 4 columns and of 4
 * by 3, which take 0.6 to 0.9 of the time of 2 by 4. Rows and columns enough are worth turning (24x200x300, 21x509x153: 0.85 to 0.93 so). */
static bool fills_with_sums(const kn_site *x, int64_t mr, int64_t nr)
{
    enum { ROWS = 20, COLUMNS = 32 };
    if (kn_cpu_extent(x, x->m) > ROWS && kn_cpu_extent(x, x->n) > COLUMNS) return false;
    int64_t fewer = mr < nr ? mr : nr, need = mr * nr + fewer + 1;
    return x->contraction && kn_hw_few_registers(x->hw) && mr <= kn_cpu_extent(x, x->m) && need == x->hw->vector_registers;
}

/* Lanes along the reduction, where that is what lies contiguous in memory; rows and unrolled vectors give the chains. */
static void reduce_tiles(const kn_site *x, kn_plans *p)
{
    kn_site y = *x;
    if (x->m < 0 && x->n >= 0 && kn_cpu_other(x) < 0 && x->reduce_extent <= SHORT_ROW) y.m = x->n, y.n = -1, x = &y; /* a task takes several rows */
    char class = kn_dtype_class(kn_stmt_acc(x->s));
    if (x->r < 0 || class == 'b' || x->s->red == KN_RED_ALL || x->s->red == KN_RED_ANY) return;
    int other = kn_cpu_other(x);
    int64_t full = x->hw->vector_bytes / kn_cpu_acc_bytes(x), lanes = kn_cpu_pow2(kn_cpu_extent(x, x->r), full);
    bool columns = x->m >= 0 || shares_short_runs(x, lanes);
    if (lanes < 2 || (lanes * 4 < full && kn_cpu_extent(x, x->n) >= lanes)) return; /* a few lanes, where the output has as many */
    for (int64_t mr = 1; mr <= 4; mr++) {
        for (int64_t nr = 1; nr <= 4; nr++) {
            bool full_of_sums = fills_with_sums(x, mr, nr);
            if ((mr == 3 || nr == 3) && !full_of_sums) continue;
            for (int64_t u = 1; u <= (full_of_sums ? 1 : 8); u *= 2) {
                if ((x->m < 0 && mr > 1) || (nr > 1 && (nr > kn_cpu_extent(x, x->n) || !columns))) continue;
                if ((!full_of_sums && mr * nr * u > x->hw->vector_registers / 2) || (u > 1 && lanes * u > kn_cpu_extent(x, x->r))) continue;
                kn_cpu_tile t = {.lanes = 1, .nv = nr, .mr = mr, .mc = 1, .grain = kn_cpu_grain(x, other), .rlanes = lanes, .runroll = u};
                t.mc = kn_cpu_row_groups(x, &t, other);
                kn_cpu_try(x, p, &t);
            }
        }
    }
}

bool kn_cpu_only_along_r(const kn_site *x)
{
    bool along_n = x->n < 0 || x->r < 0, along_r = false;
    for (int l = 0; l < x->nloads && !along_n; l++) {
        const kn_site_access *a = &x->load[l];
        bool has_n = a->axes >> x->n & 1, runs = a->coef[x->r] == 1;
        along_n = !a->linear || a->coef[x->n] == 1 || (!has_n && (a->axes >> x->r & 1) && !runs);
        along_r |= has_n && runs;
    }
    return !along_n && along_r && kn_cpu_extent(x, x->r) * kn_cpu_acc_bytes(x) * 2 >= x->hw->vector_bytes;
}

/* Rows of results that are a few elements: lanes along the rows instead, whose vectors are put together as they are stored. What holds the rows must
 * lie along them, or so near that a vector's lanes are picked from a few. */
bool kn_cpu_upright(const kn_site *x, kn_plans *p)
{
    int64_t few = kn_cpu_extent(x, x->n), full = x->hw->vector_bytes / kn_cpu_acc_bytes(x);
    if (x->m < 0 || few < 2 || few > 4 || 2 * few > full || !x->store.linear || x->store.coef[x->m] != few || x->g->epilogue >= 0) return false;
    for (int l = 0; l < x->nloads; l++) {
        const kn_site_access *a = &x->load[l];
        if (!a->linear || a->padded || a->coef[x->m] < 0 || a->coef[x->m] > 4) return false;
    }
    kn_site y = *x;
    y.n = x->m;
    y.m = x->n;
    int64_t lanes = kn_cpu_pow2(kn_cpu_extent(&y, y.n), full);
    if (lanes < 4 || kn_dtype_bytes(x->s->body->dtype) < 4) return false;
    kn_cpu_tile t = {.lanes = lanes, .nv = 1, .mr = few, .mc = 1, .grain = kn_cpu_grain(&y, kn_cpu_other(&y)), .nc = 1, .kb = 1,
                     .rlanes = 1, .runroll = 1};
    kn_cpu_try(&y, p, &t);
    return p->n > 0;
}

/* Rows of a task that writes past the caches: it waits for its last lines before it is done (a row of 4 KiB a task: 3.2 ms for 64 MiB on two cores,
 * 2.9 on one). */
static int64_t rows_written(const kn_site *x, int64_t row)
{
    enum { WRITTEN = 65536, TASKS = 4 };
    int64_t rows = kn_ceil_div(WRITTEN, row), all = kn_cpu_extent(x, x->m), most = all * kn_cpu_extent(x, kn_cpu_other(x)) / (TASKS * x->hw->units);
    return rows < most ? rows : most < 1 ? 1 : most;
}

/* Sums of a few terms over whole rows of the other operand, whose results go out to memory: writing these is what takes time, so they are written row
 * by row, in order. Nearer ones leave time for what is loaded beside: there rows share it (2000x700x4: 145 us row by row, 77 of four). */
bool kn_cpu_written(const kn_site *x, kn_plans *p)
{
    enum { TERMS = 4 };
    int64_t bytes = kn_cpu_acc_bytes(x), lanes = x->hw->vector_bytes / bytes, n = kn_cpu_extent(x, x->n);
    double results = (double)bytes;
    for (int i = 0; i < x->s->nspatial; i++) results *= (double)kn_cpu_extent(x, i);
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    double near = x->reduce_extent > 1 || !l2 ? x->hw->streaming_store_bytes / 2.0 : (double)l2->capacity_bytes; /* of one term little is shared */
    if (!x->contraction || x->m < 0 || x->reduce_extent > TERMS || n < 4 * lanes || results <= near) return false;
    for (int l = 0; l < x->nloads; l++) {
        const kn_site_access *a = &x->load[l];
        if (!a->linear || a->padded || a->bent || ((a->axes >> x->n & 1) && a->coef[x->n] != 1)) return false;
    }
    if (n % lanes && lanes * bytes > KN_CPU_NARROW) lanes = KN_CPU_NARROW / bytes; /* rows begin anywhere in a line */
    int64_t vectors = kn_ceil_div(n, lanes), nv = kn_cpu_written_out(vectors);
    kn_cpu_tile t = {.lanes = lanes, .nv = nv, .mr = 1, .mc = rows_written(x, n * bytes), .nc = kn_ceil_div(vectors, nv), .kb = 1,
                     .grain = kn_cpu_grain(x, kn_cpu_other(x)), .rlanes = 1, .runroll = 1, .along = true};
    kn_cpu_try(x, p, &t);
    return p->n > 0;
}

/* Rows of the one load follow each other without a gap and end within vectors, so that all of them are read line after line (lower/joined.c). */
static bool joins(const kn_site *x, int64_t r, int64_t full)
{
    const kn_site_access *a = &x->load[0];
    bool bare = x->nloads == 1 && x->s->body->op == KN_OP_LOAD && a->linear && !a->padded;
    return bare && r > full && r % full && a->coef[x->r] == 1 && a->coef[x->n] == r;
}

bool kn_cpu_stands_up(const kn_site *x)
{
    enum { VECTORS = 8, JOINED = 12, LONG = 6 };
    char class = kn_dtype_class(kn_stmt_acc(x->s));
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    int64_t bytes = kn_cpu_acc_bytes(x), full = x->hw->vector_bytes / bytes, n = x->n < 0 ? 0 : kn_cpu_extent(x, x->n);
    if (x->s->scatter || x->s->naxes != x->s->nspatial + 1 || x->m >= 0 || !kn_cpu_only_along_r(x)) return false;
    int64_t r = kn_cpu_extent(x, x->r), lanes = kn_cpu_pow2(r, full), vectors = kn_ceil_div(r, lanes);
    bool joined = n > 0 && joins(x, r, full);
    double all = (double)bytes;
    for (int i = 0; i < x->s->naxes; i++) all *= (double)kn_cpu_extent(x, i);
    if (class == 'b' || bytes < 4 || full > 16 || !l2) return false;
    /* what lies beyond L2 had better be read line after line; there short rows wait for what combines them, unless it also finishes them together */
    if (all > (double)l2->capacity_bytes / 2 && !(joined && (x->g->epilogue >= 0 || vectors >= LONG))) return false;
    if (x->s->red == KN_RED_NONE || x->s->red == KN_RED_ALL || x->s->red == KN_RED_ANY) return false;
    return lanes >= 4 && n >= lanes && vectors <= (joined ? JOINED : VECTORS);
}

/* Several rows at once, whose vectors of partial results are combined by interleaving. */
bool kn_cpu_stood_up(const kn_site *x, kn_plans *p)
{
    if (!kn_cpu_stands_up(x)) return false;
    int64_t lanes = kn_cpu_pow2(kn_cpu_extent(x, x->r), x->hw->vector_bytes / kn_cpu_acc_bytes(x));
    kn_cpu_tile t = {.lanes = 1, .nv = lanes, .mr = 1, .mc = 1, .nc = 1, .kb = 1, .grain = kn_cpu_grain(x, kn_cpu_other(x)), .rlanes = lanes,
                     .runroll = 1, .upright = true};
    kn_cpu_try(x, p, &t);
    return p->n > 0;
}

bool kn_cpu_sums(const kn_site *x, kn_plans *p)
{
    if (kn_cpu_packs_few(x) && (kn_cpu_few_along(x, p) || kn_cpu_blocks(x, p))) return true; /* lanes along the sum are no match for it */
    reduce_tiles(x, p);
    if (!p->n || x->contraction || !kn_cpu_only_along_r(x)) spatial_tiles(x, p);
    return true;
}
