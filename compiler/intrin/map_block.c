/* The nest around an instruction whose operands and results are in registers of its own unit (AMX), for plain products: blocks of the one operand
 * that a core's L2 holds, slices of the other one that its L1 holds while all of a block passes by, and copies of both in the order in which their
 * tiles are loaded: made as a block begins, or ahead of the first call where the operand is constant.
 *
 *   for blocks of columns, for bands of rows: a task; the block is copied
 *     for loops that feed no axis and do not move the block, where there are tasks enough without them
 *     for rows of register tiles: their operand is copied, unless it can be loaded as it lies
 *       for register tiles of the block: products of all terms, results out
 *
 * Where a block's results are few, or its columns would be, slices of the terms go outside, results in and out for each: then only a slice of the
 * block has to be near, and the block may be wider. Not where columns are copied ahead and L2 holds all rows. */
#include "intrin/trace.h"

typedef struct blocks {
    kn_map_writer *w;
    const kn_hw *hw;
    int axis[3];             /* of the instruction: rows, columns, terms */
    int operand[2];          /* of the mapping: the one with the rows, the one with the columns */
    int64_t tiles[3];        /* the instruction's along each axis */
    int64_t piece[2];        /* of a register tile, rows and columns */
    int64_t block, band;     /* register tiles of a block of columns; of rows that are a task, 0: all */
    int64_t slice;           /* tiles of terms */
    int64_t pitch;           /* bytes from one of the rows to the next */
    bool outside, far;       /* slices go outside the rows; though no cache holds the results */
    bool stays;              /* a block is copied once for all iterations of the loops that feed no axis and do not move it */
    bool direct, ahead[2];   /* rows are loaded as they lie; copied before the first call */
    bool constant;           /* the rows' operand could be */
} blocks;

enum { ROWS, COLUMNS, TERMS };
enum { PAGE = 4096 }; /* rows as far apart fall into one set of L1 */

static const char *axis(const blocks *b, int x) { return b->w->axis[b->axis[x]]; }
static int64_t extent(const blocks *b, int x) { return b->w->m->intrin->axes[b->axis[x]].extent; }

/* The instruction's loop with which the operand moves and the other one does not. */
static int own_axis(const kn_intrin_operand *h, int terms)
{
    for (int k = 0; k < h->rank; k++)
        if (h->lone[k] >= 0 && h->lone[k] != terms) return h->lone[k];
    return -1;
}

/* Rows of terms, and groups of few terms interleaved with columns: the operands of a unit's product. */
static bool is_product(blocks *b)
{
    const kn_maps *m = b->w->m;
    if (m->intrin->naxes != 3 || m->it->nspatial != 2 || m->nops != 3) return false;
    b->axis[TERMS] = 2;
    b->operand[0] = b->operand[1] = -1;
    for (int o = 1; o < m->nops; o++) {
        const kn_intrin_operand *h = &m->it->operand[kn_intrin_operand_of(m->it, m->op[o].hard)];
        int own = own_axis(h, b->axis[TERMS]), which = h->plain ? ROWS : COLUMNS;
        if (h->rank != 2 || own < 0 || h->lone[h->plain ? 1 : 0] != b->axis[TERMS]) return false;
        if (!h->plain && (h->ndigits != 3 || h->digit[2].dim || h->digit[2].by != 1)) return false;
        b->axis[which] = own, b->operand[which] = o;
    }
    return b->operand[0] > 0 && b->operand[1] > 0;
}

/* Every axis of the instruction has loops, and there is no other reduction. Several loops are one axis by now. */
static bool all_loops(const blocks *b)
{
    const kn_map_writer *w = b->w;
    uint32_t taken = 0;
    for (int j = 0; j < 3; j++) {
        if (!w->x->loops[j] || w->m->intrin->axes[j].extent < 2) return false;
        taken |= w->x->loops[j];
    }
    for (int l = 0; l < w->m->stmt->naxes; l++)
        if (!(taken >> l & 1) && w->m->stmt->axes[l].reduce && w->m->stmt->axes[l].extent > 1) return false;
    return true;
}

/* The operand goes on through the loops that feed the axis in even steps, if several do. */
static bool even(const blocks *b, const kn_map_source *s, int x)
{
    int64_t step;
    return !kn_map_several(b->w->x->loops[b->axis[x]]) || kn_map_one_run(b->w, s, b->axis[x], &step);
}

static int loads_of(const kn_program *p, int tensor)
{
    const kn_expr *loads[KILN_MAX_TENSORS];
    int found = 0;
    for (int i = 0; i < p->nstmts; i++) {
        int n = kn_loads(p->stmts[i]->body, loads, KILN_MAX_TENSORS);
        for (int l = 0; l < n && l < KILN_MAX_TENSORS; l++) found += loads[l]->u.tensor == tensor;
    }
    return found;
}

/* How each operand comes to its tiles. False: some other way is better. */
static bool sources(blocks *b)
{
    kn_map_writer *w = b->w;
    const kn_expr *loads[KILN_MAX_TENSORS];
    for (int k = 0; k < 2; k++) {
        const kn_map_operand *op = &w->m->op[b->operand[k]];
        const kn_tensor *t = &w->m->soft->tensors[op->soft];
        kn_map_source s = {.op = op, .hard = &w->m->it->operand[kn_intrin_operand_of(w->m->it, op->hard)]};
        int64_t step = 0, rows = 0;
        if (op->load < 0 || op->load >= kn_loads(w->m->stmt->body, loads, KILN_MAX_TENSORS) || loads[op->load]->padded) return false;
        b->ahead[k] = t->role == KN_INPUT && t->constant && loads_of(w->m->soft, op->soft) == 1;
        if (!even(b, &s, k) || !even(b, &s, TERMS)) return false;
        bool runs = kn_map_one_run(w, &s, b->axis[TERMS], &step) && kn_map_one_run(w, &s, b->axis[ROWS], &rows);
        if (k == COLUMNS) continue;
        if (!b->ahead[k] && (!runs || step != 1)) return false;
        int64_t line = b->hw->levels[b->hw->nlevels - 1].transaction_bytes;
        b->pitch = rows *= kn_dtype_bytes(t->dtype);
        b->direct = runs && step == 1 && rows % line == 0;
        for (int x = ROWS; x <= TERMS; x += TERMS) b->direct = b->direct && w->extent[b->axis[x]] % extent(b, x) == 0;
        b->constant = b->ahead[k];
    }
    return true;
}

/* The register tile: as many calls for each load as the registers allow (Chimera HPCA'23, equation 3.4), few of them past the ends. */
static void register_tile(blocks *b)
{
    double least = 0;
    int64_t room = b->hw->tile_registers;
    for (int64_t r = 1; r <= b->tiles[ROWS] && r < room; r++)
        for (int64_t c = 1; c <= b->tiles[COLUMNS] && r * c + (r < c ? r : c) < room; c++) {
            double calls = (double)kn_round_up(b->tiles[ROWS], r) * (double)kn_round_up(b->tiles[COLUMNS], c);
            double cost = calls * (1 + (double)(r + c) / (double)(r * c));
            if (b->tiles[ROWS] % r || b->tiles[COLUMNS] % c) cost *= 1.1; /* what is ragged is copied with tests */
            if (least > 0 && cost >= least) continue;
            least = cost;
            b->piece[ROWS] = r, b->piece[COLUMNS] = c;
        }
}

/* Slices of at most so many tiles, all of one length where that makes them no shorter than half of it. */
static int64_t slice_of(int64_t tiles, int64_t most)
{
    int64_t n = kn_ceil_div(tiles, most < 1 ? 1 : most), even = n;
    while (tiles % even) even++;
    return 2 * (tiles / even) >= most ? tiles / even : kn_ceil_div(tiles, n);
}

/* Rows that are loaded as they lie are so far apart that more of them fall into one set of L1 than it has ways. */
static bool crowded(const blocks *b, const kn_hw_level *l1)
{
    int64_t apart = b->pitch & -b->pitch; /* the power of two in it */
    int64_t sets = apart < PAGE ? PAGE / apart : 1;
    return b->direct && b->piece[ROWS] * extent(b, ROWS) / sets > l1->capacity_bytes / PAGE;
}

/* Rows of a task; where they are loaded as they lie all of one number, if one up to twice as many divides them. */
static int64_t band_of(const blocks *b, int64_t rows, int64_t least)
{
    int64_t even = least;
    while (b->direct && even <= 2 * least && rows % even) even++;
    return even <= 2 * least && even < rows ? even : least;
}

/* How much of L2 is for a block: half, the other half is for what passes by it. A quarter of what is copied as it is met, where the rows are few: it
 * is written and read little more than once, between lines that come from memory, and what takes less room is found again more surely (16x768x3072
 * in halves: 1.27 times as fast; 16, 64 and 128 rows of 1024 terms: 1.1). Not where that makes the runs short that it is copied in. */
static int64_t room_for_block(const blocks *b, const kn_hw_level *l2, int64_t tile)
{
    enum { LINES = 4 };
    int64_t lanes = b->piece[COLUMNS] * extent(b, COLUMNS), quarter = l2->capacity_bytes / 4;
    int64_t run = quarter / (tile * b->piece[COLUMNS] * b->tiles[TERMS]) * lanes * kn_dtype_bytes(b->w->m->it->operand[1].dtype);
    bool few = tile * b->tiles[ROWS] * b->tiles[TERMS] <= l2->capacity_bytes / 8;
    bool brief = run < LINES * b->hw->levels[b->hw->nlevels - 1].transaction_bytes;
    return few && !brief && !b->ahead[COLUMNS] ? quarter : l2->capacity_bytes / 2;
}

/* Bytes of the instruction's tile of operand o. */
static int64_t tile_bytes(const blocks *b, int o)
{
    const kn_intrin_operand *h = &b->w->m->it->operand[o];
    return h->elems * kn_dtype_bytes(h->dtype);
}

/* Sums so long that a block of all terms is a few panels, and rows so many that no cache holds the results of more: slices of the terms go outside
 * all the same, of half as many more as L1 holds of the rows alone, and results come from memory again for each. They are read once for
 * many columns then, as the rows are, which come again for each block (4096x8192x4096 in halves 1.5 times as fast, 8192x8192x1024 2.0, 2048x8192x2048
 * 1.5, 4096x3072x4096 1.2; blocks of 256 columns, 2048x2048x2048, 0.93). *most: panels of a block; at most FAR bytes of results for each core. */
static void go_far(blocks *b, int64_t room, int64_t alone, int64_t *most, int64_t *bands)
{
    enum { NARROW = 8, FEW = 16, FAR = 1 << 24 }; /* panels; those whose results are near */
    int64_t slice = slice_of(b->tiles[TERMS], alone), panel = tile_bytes(b, 1) * b->piece[COLUMNS];
    int64_t panels = kn_ceil_div(b->tiles[COLUMNS], b->piece[COLUMNS]);
    if (*most >= (b->outside ? FEW : NARROW) || *most >= panels || slice >= b->tiles[TERMS]) return;
    b->slice = slice;
    b->outside = b->far = true;
    *most = room / (panel * slice);
    if (*most > panels) *most = panels;
    *bands = kn_ceil_div(b->tiles[ROWS] * tile_bytes(b, 0) * b->piece[COLUMNS] * *most, FAR);
}

/* Two thirds of L1 are for a slice of the rows and the panel of the block that passes by, else the panel drives the rows out; for the rows alone
 * where that is all of them, since results then never leave the registers, and where they do not stay in L1 anyway. *most: panels of a block. */
static bool slices(blocks *b, int64_t rows, int64_t *most, int64_t *bands)
{
    const kn_hw_level *l1 = kn_hw_level_named(b->hw, "l1"), *l2 = kn_hw_level_named(b->hw, "l2");
    if (!l1 || !l2) return false;
    int64_t tile = tile_bytes(b, 1), room = room_for_block(b, l2, tile), panel = tile * b->piece[COLUMNS];
    int64_t near = l1->capacity_bytes * 2 / 3 / tile, alone = near / b->piece[ROWS], both = near / (b->piece[ROWS] + b->piece[COLUMNS]);
    bool crowd = crowded(b, l1), held = tile * b->tiles[ROWS] * b->tiles[TERMS] <= l2->capacity_bytes / 2;
    *most = room / (panel * b->tiles[TERMS]);
    b->slice = slice_of(b->tiles[TERMS], b->tiles[TERMS] <= alone || crowd ? alone : both);
    int64_t wider = room / (panel * b->slice), results = rows * b->piece[ROWS] * b->piece[COLUMNS] * tile_bytes(b, 0);
    if (wider > l2->capacity_bytes / 4 / results) wider = l2->capacity_bytes / 4 / results;
    b->outside = b->slice < b->tiles[TERMS] && wider > *most;
    if (b->outside && rows > 1 && b->ahead[COLUMNS] && held) {
        *most = l2->capacity_bytes / 4 / (panel * b->tiles[TERMS]);
        b->outside = false;
    } else {
        if (b->outside) *most = wider;
        if (!held) go_far(b, room, alone + alone / 2, most, bands);
    }
    if (!b->outside) b->slice = b->tiles[TERMS];
    return true;
}

static bool sizes(blocks *b)
{
    int64_t units = b->hw->units, most, bands = 1;
    for (int x = ROWS; x <= TERMS; x++) b->tiles[x] = kn_ceil_div(b->w->extent[b->axis[x]], extent(b, x));
    register_tile(b);
    int64_t all = kn_ceil_div(b->tiles[COLUMNS], b->piece[COLUMNS]), rows = kn_ceil_div(b->tiles[ROWS], b->piece[ROWS]);
    if (!slices(b, rows, &most, &bands)) return false;
    int64_t n = kn_ceil_div(all, most < 1 ? 1 : most);
    bool wide = b->tiles[COLUMNS] >= b->tiles[ROWS]; /* cores share what is longer: each reads all of the other operand */
    if (all >= units && wide) n = kn_round_up(n, units);
    b->block = kn_ceil_div(all, n);
    n = kn_ceil_div(all, b->block);
    int64_t shares = b->ahead[COLUMNS] ? kn_ceil_div(4 * units, n) : n % units ? (wide ? kn_ceil_div(units, n) : units) : 1;
    if (bands < shares) bands = shares;
    b->band = bands > 1 ? band_of(b, rows, kn_ceil_div(rows, bands)) : 0;
    b->direct = b->direct && b->tiles[ROWS] % b->piece[ROWS] == 0 && b->tiles[TERMS] % b->slice == 0 && (!b->band || rows % b->band == 0);
    b->ahead[ROWS] = b->constant && !b->direct;
    b->stays = !b->ahead[COLUMNS] && !b->outside && n * (b->band ? kn_ceil_div(rows, b->band) : 1) % units == 0;
    return true;
}

static void splits(const blocks *b)
{
    kn_map_writer *w = b->w;
    kn_putf(w->b, "split %s %s", w->stmt, axis(b, ROWS));
    if (b->band) kn_putf(w->b, " %lld", (long long)b->band);
    kn_putf(w->b, " %lld %lld\n", (long long)b->piece[ROWS], (long long)extent(b, ROWS));
    kn_putf(w->b, "split %s %s %lld %lld %lld\n", w->stmt, axis(b, COLUMNS), (long long)b->block, (long long)b->piece[COLUMNS],
            (long long)extent(b, COLUMNS));
    kn_putf(w->b, "split %s %s %lld %lld\n", w->stmt, axis(b, TERMS), (long long)b->slice, (long long)extent(b, TERMS));
}

/* The loops that feed no axis of the instruction: spatial ones outermost, those of a reduction, which have one iteration, before the tiles of terms.
 * `which`: only those with which this operand moves; REST: with which the columns do not. */
enum { ALL = 2, REST };
static void others(const blocks *b, bool reduce, int which, const char *line)
{
    const kn_map_writer *w = b->w;
    for (int i = 0; i < w->nouter; i++) {
        if (w->outer[i].axis >= 0 || w->outer[i].reduce != reduce) continue;
        bool moves = which == ALL || (w->outer[i].moves >> b->operand[which == REST ? COLUMNS : which] & 1);
        if (moves != (which != REST)) continue;
        if (line) kn_putf(w->b, line, w->stmt, w->outer[i].name);
        else kn_putf(w->b, " %s.0", w->outer[i].name);
    }
}

static void order(const blocks *b)
{
    kn_map_writer *w = b->w;
    const char *i = axis(b, ROWS), *j = axis(b, COLUMNS), *r = axis(b, TERMS);
    int d = b->band > 0;
    kn_putf(w->b, "reorder %s", w->stmt);
    others(b, false, b->stays ? COLUMNS : ALL, NULL);
    kn_putf(w->b, " %s.0", j);
    if (d) kn_putf(w->b, " %s.0", i);
    if (b->stays) others(b, false, REST, NULL);
    if (b->outside) kn_putf(w->b, " | %s.0 %s.%d | %s.1", r, i, d, j);
    else kn_putf(w->b, " | %s.%d %s.1 | %s.0", i, d, j, r); /* results stay in the registers */
    others(b, true, ALL, NULL);
    kn_putf(w->b, " %s.1 %s.%d %s.2 | %s.%d %s.3 %s.2\n", r, i, d + 1, j, i, d + 2, j, r);
    if (kn_map_forks(w, b->hw)) {
        others(b, false, b->stays ? COLUMNS : ALL, "parallel %s %s.0\n");
        kn_putf(w->b, "parallel %s %s.0\n", w->stmt, j);
        if (d) kn_putf(w->b, "parallel %s %s.0\n", w->stmt, i);
    }
    if (b->piece[ROWS] * b->piece[COLUMNS] > 1) kn_putf(w->b, "unroll %s %s.%d\nunroll %s %s.2\n", w->stmt, i, d + 1, w->stmt, j);
}

static void copies(const blocks *b)
{
    kn_map_writer *w = b->w;
    const char *i = axis(b, ROWS), *j = axis(b, COLUMNS), *r = axis(b, TERMS);
    const kn_map_operand *rows = &w->m->op[b->operand[ROWS]], *columns = &w->m->op[b->operand[COLUMNS]];
    int64_t few = w->m->it->operand[kn_intrin_operand_of(w->m->it, columns->hard)].digit[2].count;
    int d = b->band > 0;
    if (b->ahead[COLUMNS]) {
        kn_putf(w->b, "prepack %s %d", w->stmt, columns->load);
        others(b, false, COLUMNS, NULL);
        kn_putf(w->b, " %s.0", j);
    } else {
        kn_putf(w->b, "cache_read %s %d scratch %s.0 loops", w->stmt, columns->load, b->outside ? r : d ? i : j);
    }
    kn_putf(w->b, " %s.1", j);
    others(b, true, COLUMNS, NULL);
    if (b->ahead[COLUMNS] || !b->outside) kn_putf(w->b, " %s.0", r);
    kn_putf(w->b, " %s.1 %s.2 %s.2/%lld %s.3 %s.2%%%lld\n", r, j, r, (long long)few, j, r, (long long)few);
    if (b->direct) return;
    if (b->ahead[ROWS]) {
        kn_putf(w->b, "prepack %s %d", w->stmt, rows->load);
        others(b, false, ROWS, NULL);
        if (d) kn_putf(w->b, " %s.0", i);
        kn_putf(w->b, " %s.%d", i, d);
    } else {
        kn_putf(w->b, "cache_read %s %d scratch %s.%d loops", w->stmt, rows->load, i, d);
    }
    others(b, true, ROWS, NULL);
    if (b->ahead[ROWS] || !b->outside) kn_putf(w->b, " %s.0", r);
    kn_putf(w->b, " %s.1 %s.%d %s.%d %s.2\n", r, i, d + 1, i, d + 2, r);
}

static bool planned(blocks *b) { return b->w->unit && is_product(b) && all_loops(b) && sources(b) && sizes(b); }

/* Bytes of the instruction's tiles of operand o along two of the axes. */
static double bytes_along(const blocks *b, int x, int y, int o) { return (double)(b->tiles[x] * b->tiles[y] * tile_bytes(b, o)); }

bool kn_map_is_block(const kn_map_writer *w, const kn_hw *hw)
{
    kn_map_writer own = *w;
    blocks b = {.w = &own, .hw = hw};
    return planned(&b);
}

bool kn_map_block_bytes(const kn_map_writer *w, const kn_hw *hw, double *bytes)
{
    kn_map_writer own = *w;
    blocks b = {.w = &own, .hw = hw};
    if (!planned(&b) || !b.far) return false;
    int64_t rows = kn_ceil_div(b.tiles[ROWS], b.piece[ROWS]), blocks_of = kn_ceil_div(kn_ceil_div(b.tiles[COLUMNS], b.piece[COLUMNS]), b.block);
    double bands = (double)(b.band ? kn_ceil_div(rows, b.band) : 1), in_and_out = 2 * (double)kn_ceil_div(b.tiles[TERMS], b.slice);
    *bytes = bytes_along(&b, ROWS, TERMS, 1) * (double)blocks_of + bytes_along(&b, COLUMNS, TERMS, 1) * bands +
             bytes_along(&b, ROWS, COLUMNS, 0) * in_and_out;
    return true;
}

bool kn_map_blocked(kn_map_writer *w, const kn_hw *hw)
{
    blocks b = {.w = w, .hw = hw};
    if (!planned(&b)) return false;
    splits(&b);
    order(&b);
    copies(&b);
    const kn_intrin *it = w->m->it;
    int last = 2 + (b.band > 0);
    kn_putf(w->b, "tensorize %s %s.%d %s", w->stmt, axis(&b, ROWS), last, it->name);
    for (int x = ROWS; x <= TERMS; x++)
        kn_putf(w->b, " %s=%s.%d", it->s->axes[b.axis[x]].name, axis(&b, x), x == ROWS ? last : x == COLUMNS ? 3 : 2);
    kn_put(w->b, "\n");
    return true;
}
