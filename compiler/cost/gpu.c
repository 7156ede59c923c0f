/* A stage on a GPU: occupancy and waves, traffic with coalescing, chains of operations in a thread (ROLLER 3.3; Welder, OSDI'23). */
#include "cost/model.h"
#include "intrin/intrin.h"
#include <math.h>
#include <string.h>

static double blocks_per_unit(const kn_stage_view *v, const kn_cost *c)
{
    const kn_hw *hw = v->hw;
    double n = hw->max_blocks_per_unit;
    n = kn_at_most(n, (double)(hw->max_threads_per_unit / c->threads));
    if (c->shared_bytes) n = kn_at_most(n, (double)(hw->max_shared_per_unit / c->shared_bytes));
    double regs = (c->registers + (v->g->kept ? 0.0 : 24.0)) * c->threads; /* addresses and loop counters take about that many */
    n = kn_at_most(n, (double)(int64_t)(hw->registers_per_unit / regs));
    return kn_at_least(n, 1);
}

/* Loads of one block from L2, and of its threads from shared memory. */
static void gpu_traffic(const kn_stage_view *v, double in_flight, kn_cost *c)
{
    double l2 = 0, shared = 0, compulsory = 0;
    const kn_hw *hw = v->hw;
    double tx = (double)hw->levels[0].transaction_bytes;
    for (int i = 0; i < v->naccesses; i++) {
        const kn_access *x = &v->access[i];
        if (x->own) continue;
        int from = x->cache >= 0 ? v->g->caches[x->cache].at + 1 : x->store ? v->first_inner : v->first_reg;
        double bytes = kn_footprint(v, x, from, true) * kn_fills(v, x, from, true) * x->bytes;
        l2 += bytes * kn_rounding(v, x, from, true, tx);
        compulsory += kn_footprint(v, x, 0, true) * x->bytes;
        if (x->cache >= 0) shared += kn_footprint(v, x, v->first_reg, false) * kn_fills(v, x, v->first_reg, false) * x->bytes + bytes;
    }
    /* Blocks of one wave share rows and columns of the operands in L2: a square of them reads each panel once. */
    double reuse = 1;
    while ((reuse + 1) * (reuse + 1) <= in_flight) reuse++;
    double dram = compulsory <= 0.5 * (double)hw->levels[1].capacity_bytes ? compulsory : kn_at_least(l2 / reuse, compulsory);
    for (int i = 0; i < hw->nlevels; i++) {
        bool sh = !strcmp(hw->levels[i].name, "shared");
        c->levels[i].bytes = i == 0 ? kn_at_most(dram, l2) : sh ? shared : i == hw->nlevels - 1 ? 0 : l2;
        c->levels[i].tile_bytes = sh ? c->shared_bytes : i == hw->nlevels - 1 ? (int64_t)c->registers * 4 : 0;
    }
}

/* Elements of an access that a thread copies to shared memory at once: 16 bytes of them where rows begin at multiples of that and no window slides
 * along. */
static double copied_at_once(const kn_access *x)
{
    int last = x->rank - 1, run = 16 / x->bytes;
    uint32_t axes = last >= 0 ? kn_axes_in(x->index[last]) : 0;
    if (last < 0 || (axes & (axes - 1))) return 1;
    while (run > 1 && x->shape[last] % run) run /= 2;
    return run;
}

/* Time that the units take to fill shared memory element by element: addresses, comparisons, a load, a store, of so many blocks at once. Runs go by
 * themselves. */
static double copying(const kn_stage_view *v, double share)
{
    enum { PLAIN = 25, WINDOW = 75 }; /* turns of a scheduler an element, by times on an H200; instructions are 14 and 36 */
    double n = 0;
    for (int i = 0; i < v->naccesses; i++) {
        const kn_access *x = &v->access[i];
        if (x->own || x->cache < 0 || copied_at_once(x) > 1) continue;
        const kn_cache *c = &v->g->caches[x->cache];
        uint32_t axes = kn_axes_in(x->index[x->rank - 1]);
        double elements = (double)kn_cache_bytes(v->t, v->g, c) / (c->copies ? c->copies : 1) / x->bytes;
        n += elements * kn_fills(v, x, c->at + 1, true) * (axes & (axes - 1) ? WINDOW : PLAIN);
    }
    return n / (v->hw->clock_ghz * 1e3 * v->hw->units * v->hw->partitions * v->hw->lanes * share);
}

/* Tiles that asynchronous copies bring: what a step of the sum waits beside its products, and a block's beginning and end, where no other block of
 * the unit computes meanwhile. By products of 512 and 1024 cubed on an H200. */
static double meeting(const kn_stage_view *v, double blocks, const kn_cost *c)
{
    const double STEP_US = kn_stage_lanes(v->g, v->hw) > v->hw->lanes ? 0.3 : 0.2, ENDS_US = 0.5;
    const double STORE_CLOCK = 16; /* bytes a unit stores a cycle; rows of 16 bytes are halves of sectors */
    const kn_access *out = &v->access[v->naccesses - 1];
    double steps = 1, stored = kn_footprint(v, out, 0, true) / v->tasks * out->bytes * (out->bytes < 4 ? 2 : 1);
    for (int i = 0; i < v->g->nloops; i++)
        if (v->g->ncaches && i <= v->g->caches[0].at && v->s->axes[v->g->loops[i].axis].reduce) steps *= (double)v->g->loops[i].extent;
    double ends = ENDS_US + stored / STORE_CLOCK / (v->hw->clock_ghz * 1e3);
    return c->waves * (steps * STEP_US / kn_at_least(kn_at_most(blocks, v->tasks / v->hw->units), 1) + ends);
}

/* Share of memory's bandwidth that reads reach: what the threads of a unit have on the way against what the unit could take in the meantime (Little's
 * law). Terms of a sum are asked for a few at a time. */
static double reading(const kn_stage_view *v, double threads)
{
    enum { AHEAD = 4 };
    const double LATENCY_NS = 650;
    double flying = 0, reads = 0, all = 0, terms = 1, points = 1;
    for (int i = v->first_inner; i < v->first_reg; i++)
        if (v->s->axes[v->g->loops[i].axis].reduce) terms *= (double)v->g->loops[i].extent;
    for (int i = v->first_reg; i < v->g->nloops; i++) points *= (double)v->g->loops[i].extent;
    for (int i = 0; i < v->naccesses; i++) {
        const kn_access *x = &v->access[i];
        double bytes = kn_footprint(v, x, 0, true) * x->bytes;
        if (x->own) continue;
        all += bytes;
        if (x->store) continue;
        reads += bytes;
        double copied = x->cache < 0 ? 0 : kn_footprint(v, x, v->g->caches[x->cache].at + 1, true) / v->threads;
        if (x->cache >= 0) flying += copied * x->bytes / (v->tasks > v->hw->units ? 2 : 1); /* half of the time, where blocks follow each other */
        else flying += kn_at_most(kn_footprint(v, x, v->first_reg, false), points) * x->bytes * kn_at_most(terms, AHEAD); /* not a box of digits */
    }
    double meanwhile = v->hw->levels[0].bandwidth_gbs * LATENCY_NS / v->hw->units * (all > 0 ? reads / all : 0);
    return meanwhile > 0 ? kn_at_most(threads * flying / meanwhile, 1) : 1;
}

/* Share of the bandwidth that blocks reach which read their rows, meet, and write them: what all threads of a unit have on the way against what the
 * unit could move in the meantime (Little's law). Blocks of a unit drift apart, so that some read while others meet: hence the root of squares. With
 * it six published times of RMSNorm on an H200 (cuDNN 9.19 and torch.compile, bf16, 2^26 elements: 64 to 76 us) are met (tests/unit/test_cost.c). */
static double kept_share(const kn_stage_view *v, double threads)
{
    enum { LATENCY_NS = 1000 }; /* first byte to last result: DRAM, combining, arithmetic */
    double moved = kn_kept_bytes(v) + kn_register_values(v) * v->access[v->naccesses - 1].bytes;
    double meanwhile = v->hw->levels[0].bandwidth_gbs * LATENCY_NS / v->hw->units;
    return 1 / sqrt(1 + meanwhile / (threads * moved) * (meanwhile / (threads * moved)));
}

/* Stages that threads of one block go through one after the other: as fast as the units issue, but no faster than a thread's own operations follow
 * each other, once a wave; those on different elements do not wait for each other. */
static double chain(const kn_stage_view *v, double used, kn_cost *c)
{
    enum { CYCLES = 4 }; /* of an operation that waits for the last one */
    double apart = kn_at_most(kn_at_least(kn_register_values(v), 1), CYCLES);
    double gflops = kn_hw_peak_gflops(v->hw, kn_stmt_acc(v->s));
    double issue = v->iterations * v->flops / (gflops * 1e3 * used);
    double waits = c->waves * v->iterations / (v->tasks * v->threads) * v->flops * CYCLES / apart / (v->hw->clock_ghz * 1e3);
    c->compute_us = waits > issue ? waits - issue : 0;
    return used;
}

/* Time that units spend on taking factors apart of which an instruction multiplies parts: every warp does so with what it reads of them. */
static double splitting(const kn_stage_view *v, double share)
{
    enum { SPLIT = 6 }; /* turns of a scheduler a factor: two operations of half the rate, two of the whole (codegen/warps.c) */
    const kn_warp *w = v->g->tensor.intrin ? kn_warp_of(v->g->tensor.intrin->spec) : NULL;
    double n = 0;
    for (int i = 0; w && w->ways > 1 && i + 1 < v->naccesses; i++)
        n += kn_footprint(v, &v->access[i], v->first_reg, false) * kn_fills(v, &v->access[i], v->first_reg, false);
    return n * SPLIT / (v->hw->clock_ghz * 1e3 * v->hw->units * v->hw->partitions * v->hw->lanes * share);
}

void kn_cost_gpu(const kn_stage_view *v, kn_cost *c)
{
    const kn_hw *hw = v->hw;
    for (int i = 0; i < v->g->ncaches; i++) c->shared_bytes += kn_cache_bytes(v->t, v->g, &v->g->caches[i]);
    c->threads = (int)v->threads;
    c->grid = (int64_t)v->tasks;
    double need = kn_register_need(v);
    c->registers = need < 1e6 ? (int)need : 1000000;
    double blocks = blocks_per_unit(v, c);
    double warps = (double)kn_ceil_div(c->threads, hw->lanes);
    double active = kn_at_most(v->tasks / hw->units, blocks) * warps; /* warps of one unit, on average */
    double share = kn_wave_share(v->tasks, (double)hw->units * kn_at_most(blocks, kn_at_least(v->tasks / hw->units, 1)), &c->waves);
    c->occupancy = kn_at_most(active * hw->lanes / hw->max_threads_per_unit, 1);
    bool products = kn_stage_warps(v->g); /* independent instructions of a warp, instead of operations of a thread */
    if (products) c->compute_us += splitting(v, kn_at_most(v->tasks / hw->units, 1));
    double ilp = kn_at_most(products ? kn_register_values(v) / (double)v->g->tensor.intrin->operand[0].elems : kn_register_values(v), 8);
    if (products) active *= kn_stage_lanes(v->g, hw) > hw->lanes ? 16 : 4; /* its instruction keeps a tensor core busy that many times longer */
    double eff = kn_at_most(active * ilp / (16.0 * hw->partitions), 1); /* 8 warps of 8 independent chains fill four schedulers (ROLLER's table) */
    eff *= v->threads / (warps * hw->lanes) * share;
    if (c->registers > hw->registers_per_thread) eff *= 0.25;
    bool spills = v->g->kept && (double)c->registers * c->threads > (double)hw->registers_per_unit;
    gpu_traffic(v, kn_at_most(v->tasks, blocks * hw->units), c);
    double in_flight = kn_at_most(active * ilp / 32, 1); /* 32 warps with one load each saturate a unit's share of DRAM */
    if (v->g->kept || v->g->at_stage >= 0) eff = chain(v, v->threads / (warps * hw->lanes), c);
    if (spills) eff *= 0.05; /* the row does not fit */
    if (v->g->kept) in_flight = kept_share(v, kn_at_most(v->tasks / hw->units, blocks) * c->threads);
    enum { FILLING = 256 }; /* threads of a unit that keep its memory busy with eight reads each */
    double at_once = kn_at_most(blocks, v->tasks / hw->units);
    if (products) c->compute_us += copying(v, kn_at_most(at_once * c->threads / FILLING, 1)) + meeting(v, blocks, c);
    else if (!v->g->kept) in_flight = kn_at_most(in_flight, reading(v, at_once * c->threads));
    kn_cost_finish(v, c, kn_at_least(eff, 1e-4), kn_at_least(in_flight, 1e-3));
    double started = (double)c->grid / (hw->clock_ghz * 1e3); /* blocks start one a cycle, all over the device: 0.6 ns each on an H200 */
    c->us += 0.02 * started; /* never quite for nothing */
    if (v->g->at_stage < 0 && c->us < started + hw->launch_us) c->us = started + hw->launch_us, c->bottleneck = "blocks";
}
