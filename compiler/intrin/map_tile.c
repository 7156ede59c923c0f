/* The loops around a mapped instruction on a CPU: which of them gives up a piece to the register tile inside the reduction, and their order. */
#include "intrin/trace.h"
#include <math.h>

enum { MOST = 64 }; /* results that `unroll` keeps in registers */
#define WAITS 1.2   /* a unit's operands that share registers are loaded only behind products that still read them */

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
            if (!(taken >> l & 1)) w->outer[w->nouter++] = (kn_map_outer){axis->name, -1, axis->reduce, axis->extent, 1, moved_by_loop(m, l), 0};
            for (int j = 0; j < m->intrin->naxes; j++)
                if (w->x->loops[j] && __builtin_ctz(w->x->loops[j]) == l)
                    w->outer[w->nouter++] = (kn_map_outer){w->axis[j], j, axis->reduce, kn_ceil_div(w->extent[j], m->intrin->axes[j].extent), 1,
                                                           moved_by_axis(m, j), 0};
        }
}

/* Two loops and their pieces; columns 1 with y -1, rows 1 with x -1. */
typedef struct best { double cost; int x, y; int64_t rows, columns; } best;

static void set_pieces(kn_map_writer *w, int x, int64_t rows, int y, int64_t columns)
{
    for (int i = 0; i < w->nouter; i++) w->outer[i].piece = 1;
    if (x >= 0) w->outer[x].piece = rows;
    if (y >= 0) w->outer[y].piece = columns;
    w->unrolls = rows * columns > 1;
}

/* Tiles that leave a tail are written out twice; few of them are worth it. */
static double waste(const kn_map_writer *w, int x, int64_t piece)
{
    if (x < 0 || w->outer[x].count % piece == 0) return 1;
    return 1.1 * (double)kn_round_up(w->outer[x].count, piece) / (double)w->outer[x].count;
}

/* Pieces of the two loops that fit the registers, each value of one meeting all values of the other there (Chimera HPCA'23, equation 3.4, as for
 * tiles without an instruction); what is read again for each tile counts as well. */
static void try_pair(kn_map_writer *w, const kn_hw *hw, const kn_map_plan *p, int x, int y, int64_t width, best *b)
{
    int64_t room = w->unit ? hw->tile_registers : hw->vector_registers;
    for (int64_t rows = 1; rows <= (x < 0 ? 1 : w->outer[x].count) && rows <= MOST; rows++)
        for (int64_t columns = 1; columns <= (y < 0 ? 1 : w->outer[y].count) && rows * columns <= MOST; columns++) {
            int64_t few = rows < columns ? rows : columns;
            double more = waste(w, x, rows) * waste(w, y, columns);
            if (rows * columns > 1 && (rows * columns + few) * width + 1 > room) break;
            if (more > 1.3) continue;
            if (w->unit && rows * columns + rows + columns > room) more *= WAITS;
            set_pieces(w, x, rows, y, columns);
            double cost = more * kn_map_nest_cycles(w, hw, p, b->cost > 0 ? b->cost / more * (1 + 1e-9) : INFINITY);
            bool known = b->x == x && b->y == y; /* of equals the inner loops, whose results lie together */
            if (b->cost > 0 && (cost > b->cost || (known && cost == b->cost))) continue;
            *b = (best){cost, x, y, rows, columns};
        }
}

/* Registers that one result takes; 0: it is no vector that may stay in one, or the instruction has it elsewhere. */
static int64_t result_width(const kn_map_writer *w, const kn_hw *hw)
{
    if (w->unit) return 1;
    if (w->m->it->operand[0].scope != KN_SCOPE_REGISTER) return 0;
    int64_t n = w->m->it->operand[0].elems, bytes = n * kn_dtype_bytes(w->m->it->operand[0].dtype);
    return n >= 2 && n <= MOST && !(n & (n - 1)) && hw->vector_bytes > 0 ? kn_ceil_div(bytes, hw->vector_bytes) : 0;
}

/* Two loops that move different operands, or one. */
static best register_tile(kn_map_writer *w, const kn_hw *hw, const kn_map_plan *p, int64_t width)
{
    best b = {0, -1, -1, 1, 1};
    try_pair(w, hw, p, -1, -1, width, &b);
    for (int x = 0; x < w->nouter && !w->outer[x].reduce; x++) {
        try_pair(w, hw, p, x, -1, width, &b);
        for (int y = x + 1; y < w->nouter && !w->outer[y].reduce; y++)
            if (!(w->outer[x].moves & w->outer[y].moves & ~1u)) try_pair(w, hw, p, x, y, width, &b);
    }
    set_pieces(w, b.x, b.rows, b.y, b.columns);
    return b;
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

/* The spatial loops that move operand o go outside, the others keep their order. */
static void outside(kn_map_writer *w, int o)
{
    for (int i = 1; i < w->nouter && !w->outer[i].reduce; i++)
        for (int k = i; k > 0 && (w->outer[k].moves >> o & 1) > (w->outer[k - 1].moves >> o & 1); k--) {
            kn_map_outer l = w->outer[k];
            w->outer[k] = w->outer[k - 1];
            w->outer[k - 1] = l;
        }
}

void kn_map_choose_tile(kn_map_writer *w, const kn_hw *hw, const kn_map_plan *p)
{
    int64_t width = result_width(w, hw);
    bool reduces = w->nouter && w->outer[w->nouter - 1].reduce;
    kn_map_writer first = *w, tried;
    double least = 0;
    kn_map_holds(&first, hw, p);
    for (int o = 1; o < w->m->nops; o++) { /* whose tiles stay while the other operands' pass by */
        tried = first;
        outside(&tried, o);
        double cost = 0;
        if (width && reduces) {
            cost = register_tile(&tried, hw, p, width).cost;
        } else {
            turns(&tried);
            cost = kn_map_nest_cycles(&tried, hw, p, INFINITY);
        }
        cost += kn_map_apart_cycles(&tried, hw, p);
        if (o > 1 && cost >= least) continue;
        *w = tried, least = cost;
    }
}
