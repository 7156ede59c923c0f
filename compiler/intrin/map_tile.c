/* The loops around a mapped instruction on a CPU: which of them gives up a piece to the register tile inside the reduction, and their order. */
#include "intrin/trace.h"

enum { MOST = 64 }; /* results that `unroll` keeps in registers */

static uint32_t moved_by_loop(const kn_maps *m, int loop)
{
    uint32_t moves = 0;
    for (int o = 0; o < m->nops; o++)
        for (int k = 0; k < m->op[o].nsoft; k++)
            if (kn_axes_in(m->op[o].soft_index[k]) >> loop & 1) moves |= 1u << o;
    return moves;
}

static uint32_t moved_by_axis(const kn_maps *m, int j)
{
    uint32_t moves = 0;
    for (int o = 0; o < m->nops; o++)
        if (m->it->operand[kn_intrin_operand_of(m->it, m->op[o].hard)].loops >> j & 1) moves |= 1u << o;
    return moves;
}

void kn_map_outer_loops(kn_map_writer *w)
{
    const kn_maps *m = w->m;
    uint32_t taken = 0;
    w->nouter = 0;
    for (int j = 0; j < m->intrin->naxes; j++) taken |= w->x->loops[j];
    for (int pass = 0; pass < 2; pass++)
        for (int l = 0; l < m->stmt->naxes; l++) {
            const kn_axis *axis = &m->stmt->axes[l];
            if (axis->reduce != pass) continue;
            if (!(taken >> l & 1)) w->outer[w->nouter++] = (kn_map_outer){axis->name, -1, axis->reduce, axis->extent, 1, moved_by_loop(m, l)};
            for (int j = 0; j < m->intrin->naxes; j++)
                if (w->x->loops[j] && __builtin_ctz(w->x->loops[j]) == l)
                    w->outer[w->nouter++] = (kn_map_outer){w->axis[j], j, axis->reduce, kn_ceil_div(w->extent[j], m->intrin->axes[j].extent), 1,
                                                           moved_by_axis(m, j)};
        }
}

/* How much work one result of a register tile takes: products past the end, operands read beside the products, waiting for the last result.
 * (Chimera HPCA'23, equation 3.4, as for tiles without an instruction.) */
static double tile_cost(const kn_map_writer *w, const kn_hw *hw, int x, int64_t rows, int y, int64_t columns)
{
    const kn_hw_intrin *spec = w->m->it->spec;
    double need = spec->latency > 0 && spec->interval > 0 ? spec->latency / spec->interval : (double)hw->fma_latency * hw->fma_per_cycle;
    double tile = (double)(rows * columns), done = 1;
    if (x >= 0) done *= (double)kn_round_up(w->outer[x].count, rows) / (double)w->outer[x].count;
    if (y >= 0) done *= (double)kn_round_up(w->outer[y].count, columns) / (double)w->outer[y].count;
    if (done > 1) done *= 1.1; /* the tiles at the end are written out once more */
    return done * (1 + 0.5 * (double)(rows + columns) / tile) / (tile < need ? tile / need : 1);
}

typedef struct best { double cost; int x, y; int64_t rows, columns; } best;

static void try_pair(const kn_map_writer *w, const kn_hw *hw, int x, int y, int64_t width, best *b)
{
    for (int64_t rows = 1; rows <= (x < 0 ? 1 : w->outer[x].count) && rows <= MOST; rows++)
        for (int64_t columns = 1; columns <= (y < 0 ? 1 : w->outer[y].count) && rows * columns <= MOST; columns++) {
            int64_t few = rows < columns ? rows : columns;
            if (rows * columns > 1 && (rows * columns + few) * width + 1 > hw->vector_registers) break;
            double cost = tile_cost(w, hw, x, rows, y, columns);
            bool known = b->x == x && b->y == y; /* of equals the inner loops, whose results lie together */
            if (b->cost > 0 && (cost > b->cost || (known && cost == b->cost))) continue;
            *b = (best){cost, x, y, rows, columns};
        }
}

/* Registers that one result takes; 0: it is no vector that may stay in one. */
static int64_t result_width(const kn_map_writer *w, const kn_hw *hw)
{
    int64_t n = w->m->it->operand[0].elems, bytes = n * kn_dtype_bytes(w->m->it->operand[0].dtype);
    return n >= 2 && n <= MOST && !(n & (n - 1)) && hw->vector_bytes > 0 ? kn_ceil_div(bytes, hw->vector_bytes) : 0;
}

/* Two loops that move different operands: each value of one meets all values of the other in registers. */
static void register_tile(kn_map_writer *w, const kn_hw *hw, int64_t width)
{
    best b = {0, -1, -1, 1, 1};
    try_pair(w, hw, -1, -1, width, &b);
    for (int x = 0; x < w->nouter && !w->outer[x].reduce; x++) {
        try_pair(w, hw, x, -1, width, &b);
        for (int y = x + 1; y < w->nouter && !w->outer[y].reduce; y++)
            if (!(w->outer[x].moves & w->outer[y].moves & ~1u)) try_pair(w, hw, x, y, width, &b);
    }
    if (b.x >= 0) w->outer[b.x].piece = b.rows;
    if (b.y >= 0) w->outer[b.y].piece = b.columns;
    w->unrolls = b.rows * b.columns > 1;
}

/* Results in memory: up to eight tiles take turns, so that none waits for its own last result. */
static void turns(kn_map_writer *w)
{
    for (int i = w->nouter - 1; i >= 0; i--) {
        if (w->outer[i].reduce || w->outer[i].axis >= 0) continue;
        for (int64_t n = 8; n > 1; n--) {
            if (w->outer[i].count % n) continue;
            w->outer[i].piece = n;
            return;
        }
    }
}

static double bytes_moved(const kn_map_writer *w, const kn_map_plan *p, const kn_map_outer *l)
{
    double most = 0;
    for (int o = 1; o < w->m->nops; o++) {
        double bytes = (double)p->operand[o].elems * kn_dtype_bytes(w->m->soft->tensors[w->m->op[o].soft].dtype);
        if ((l->moves >> o & 1) && bytes > most) most = bytes;
    }
    return most;
}

/* Spatial loops over the larger operand go outside: it is read once, and the smaller one again and again from a near memory. */
static void larger_outside(kn_map_writer *w, const kn_map_plan *p)
{
    for (int i = 1; i < w->nouter && !w->outer[i].reduce; i++)
        for (int k = i; k > 0 && bytes_moved(w, p, &w->outer[k]) > bytes_moved(w, p, &w->outer[k - 1]); k--) {
            kn_map_outer l = w->outer[k];
            w->outer[k] = w->outer[k - 1];
            w->outer[k - 1] = l;
        }
}

void kn_map_choose_tile(kn_map_writer *w, const kn_hw *hw, const kn_map_plan *p)
{
    int64_t width = result_width(w, hw);
    bool reduces = w->nouter && w->outer[w->nouter - 1].reduce;
    larger_outside(w, p);
    if (width && reduces) register_tile(w, hw, width);
    else turns(w);
}
