/* Time of a stage whose tiles the copy engine brings: steps of the sum at the pace of the slowest of tensor cores, shared memory and L2; what results
 * take to leave, which only the next tile's first copies overlap; whole waves of tiles; and memory underneath. The terms were fitted to 38 published
 * times of such kernels on Hopper (cuBLAS, DeepGEMM, TileLang, fast.cu), the constants then to what Kiln's own take on an H200 (docs/results). */
#include "cost/model.h"
#include <string.h>

#define SUSTAINED 0.84     /* of the clock, under dense products: power caps it */
#define STORE_CLOCK 16.0   /* bytes of results a unit stores a clock, from registers */
#define BULK_CLOCK 48.0    /* and by the copy engine */
#define TILE_CLOCKS 600.0  /* from a tile to the next */
#define EXPOSED 0.91       /* of that time, not overlapped */
#define WRITE_SHARE 0.75    /* of shared memory's time for a byte that is read, what one takes that arrives */
#define LATENCY_US 0.5     /* from the first request to the first step */
#define CLUSTER_COST 1.01  /* a pair waits for its slower half */
#define CLUSTER_CLOCKS 90.0 /* in each step, where products do not cover it */
#define LINE_BYTES 128     /* of L2 */

typedef struct tile { double rows, columns, steps, depth, instructions; } tile;

/* Loops of the cut: what a block makes at once, and over how many steps of what depth it sums. */
static tile tile_of(const kn_stage_view *v)
{
    const kn_stage *g = v->g;
    const kn_intrin *it = g->tensor.intrin;
    tile t = {1, 1, 1, 1, 0};
    for (int i = 0; i < g->nloops; i++) {
        const kn_loop *l = &g->loops[i];
        double n = (double)l->extent;
        if (l->kind == KN_GRID) continue;
        if (v->s->axes[l->axis].reduce) *(i <= g->caches[0].at ? &t.steps : &t.depth) *= n;
        else if (l->axis == g->loops[g->tensor.loop[0]].axis) t.rows *= n;
        else t.columns *= n;
    }
    t.instructions = t.rows * t.columns * t.depth / (double)it->points;
    return t;
}

static double bytes_of(const kn_stage_view *v, int cache)
{
    const kn_cache *c = &v->g->caches[cache];
    return (double)kn_cache_bytes(v->t, v->g, c) / c->copies;
}

/* Lines of L2 for one that is wanted: rows of 128 bytes that begin at no multiple of that lie in two. */
static double lines_of(const kn_stage_view *v, int cache)
{
    for (int i = 0; i + 1 < v->naccesses; i++) {
        const kn_access *x = &v->access[i];
        if (x->cache == cache && x->rank > 1) return x->shape[x->rank - 1] * x->bytes % LINE_BYTES ? 2 : 1;
    }
    return 1;
}

/* What all blocks take from L2, and memory's share of it: blocks that run at once are a square of tiles. */
static void traffic(const kn_stage_view *v, const tile *t, double tiles, double fresh, kn_cost *c)
{
    const kn_hw *hw = v->hw;
    const kn_access *out = &v->access[v->naccesses - 1];
    double stored = kn_footprint(v, out, 0, true) * out->bytes, l2 = tiles * t->steps * fresh, compulsory = 0, reuse = 1;
    while ((reuse + 1) * (reuse + 1) <= hw->units) reuse++;
    for (int i = 0; i + 1 < v->naccesses; i++) compulsory += kn_footprint(v, &v->access[i], 0, true) * v->access[i].bytes;
    double dram = compulsory <= 0.5 * (double)hw->levels[1].capacity_bytes || l2 / reuse < compulsory ? compulsory : l2 / reuse;
    for (int i = 0; i < hw->nlevels; i++) {
        bool shared = !strcmp(hw->levels[i].name, "shared");
        c->levels[i].bytes = i == 0 ? dram + stored : shared ? tiles * t->steps * fresh : i == hw->nlevels - 1 ? 0 : l2 + stored;
        c->levels[i].tile_bytes = shared ? c->shared_bytes : i == hw->nlevels - 1 ? (int64_t)c->registers * 4 : 0;
    }
}

void kn_cost_bulk(const kn_stage_view *v, kn_cost *c)
{
    const kn_hw *hw = v->hw;
    const kn_stage *g = v->g;
    const kn_intrin *it = g->tensor.intrin;
    const kn_access *out = &v->access[v->naccesses - 1];
    const kn_hw_level *shared = kn_hw_level_named(hw, "shared"), *l2 = kn_hw_level_named(hw, "l2");
    c->shared_bytes = kn_stage_bulk_bytes(g, hw);
    double clock = hw->clock_ghz * 1e3 * SUSTAINED, held = 0, fresh = 0, lines = 0; /* clocks a microsecond */
    tile t = tile_of(v);
    int n = g->cluster > 1 ? g->cluster : 1;
    for (int i = 0; i < g->ncaches; i++) {
        held += bytes_of(v, i);
        double own = bytes_of(v, i) / (kn_cache_multicast(v->t, g, &g->caches[i]) ? n : 1);
        fresh += own;
        lines += own * lines_of(v, i);
        c->shared_bytes += kn_cache_bytes(v->t, g, &g->caches[i]);
    }
    double reads = (double)(it->operand[1].elems + it->operand[2].elems) * kn_dtype_bytes(it->operand[1].dtype) * t.instructions;
    double step[3] = {t.instructions * it->spec->interval, 0, 0};
    if (shared) step[1] = (reads + WRITE_SHARE * held) / (double)shared->transaction_bytes + (n > 1 ? CLUSTER_CLOCKS : 0);
    if (l2) step[2] = lines / (l2->bandwidth_gbs * 1e-3 / hw->units * 1e6) * clock;
    int slow = step[1] > step[0];
    if (step[2] > step[slow]) slow = 2;
    double sectors = !g->bulk_store && out->bytes < 4 ? 2 : 1; /* eight rows of 16 bytes at a time are halves of them */
    double store = sectors * t.rows * t.columns * out->bytes / (g->bulk_store ? BULK_CLOCK : STORE_CLOCK) * EXPOSED;
    double tiles = v->tasks, places = (double)(hw->units / n * n);
    c->waves = (double)(int64_t)((tiles + places - 1) / places);
    c->threads = (int)v->threads;
    c->grid = kn_stage_blocks(g, hw);
    c->registers = (int)kn_register_need(v);
    c->occupancy = (double)c->threads / hw->max_threads_per_unit;
    c->nlevels = hw->nlevels;
    traffic(v, &t, tiles, fresh, c);
    for (int i = 0; i < c->nlevels; i++) {
        c->levels[i].name = hw->levels[i].name;
        if (hw->levels[i].bandwidth_gbs > 0) c->levels[i].us = c->levels[i].bytes / (hw->levels[i].bandwidth_gbs * 1e3);
    }
    double points = t.rows * t.columns;
    c->flops = v->iterations * v->flops + tiles * points * v->epilogue_flops;
    c->compute_us = c->waves * (t.steps * step[slow] + store + TILE_CLOCKS) / clock * (n > 1 ? CLUSTER_COST : 1);
    c->bottleneck = slow == 0 ? "compute" : slow == 1 ? "shared" : "l2";
    c->us = c->compute_us + LATENCY_US;
    if (c->levels[0].us > c->us) c->us = c->levels[0].us, c->bottleneck = hw->levels[0].name;
    c->us += hw->launch_us;
}
