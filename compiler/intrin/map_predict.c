/* Predicted time of a mapping, after AMOS (ISCA'22), section 5.3: L(0) = calls * cycles, L(l) = steps * max(L(l-1), read(l), write(l)).
 * Blocks of output tiles grow at every memory level as far as it holds them; reduce tiles stream through. */
#include "intrin/trace.h"
#include <math.h>

/* What can be done in any order: the tiles along a spatial axis of the instruction, or a spatial loop around it. */
typedef struct side {
    int64_t extent, block;    /* steps in all, and of the block */
    int64_t weight;           /* elements of one step */
    uint32_t operands;        /* bit o: operand o moves with it */
} side;

typedef struct model {
    const kn_maps *m;
    const kn_hw *hw;
    kn_map_plan *p;
    int nsides;
    side side[2 * KILN_MAX_AXES];
    double steps;             /* reduce tiles, outer reduce loops with them: all that one block goes through */
    int group;                /* units that work on one block together, because they share the memory it stands in */
} model;

/* Bytes of operand o that one step of the block touches. */
static double block_bytes(const model *x, int o)
{
    double bytes = (double)x->p->operand[o].tile_bytes;
    for (int i = 0; i < x->nsides; i++)
        if (x->side[i].operands >> o & 1) bytes *= (double)x->side[i].block;
    return bytes;
}

static double footprint(const model *x)
{
    double bytes = 0;
    for (int o = 0; o < x->m->nops; o++) bytes += block_bytes(x, o);
    return bytes;
}

static double calls_in(const model *x)
{
    double n = 1;
    for (int i = 0; i < x->nsides; i++) n *= (double)x->side[i].block;
    return n;
}

static double blocks(const model *x)
{
    double n = 1;
    for (int i = 0; i < x->nsides; i++) n *= (double)kn_ceil_div(x->side[i].extent, x->side[i].block);
    return n;
}

/* Doubles the block's shortest side while the level holds it and every group of units still has a block. */
static void grow(model *x, double capacity)
{
    uint32_t stuck = 0;
    for (;;) {
        side *best = NULL;
        for (int i = 0; i < x->nsides; i++) {
            side *s = &x->side[i];
            if ((stuck >> i & 1) || s->block >= s->extent) continue;
            if (!best || s->block * s->weight < best->block * best->weight) best = s;
        }
        if (!best) return;
        int64_t before = best->block;
        best->block = 2 * before < best->extent ? 2 * before : best->extent;
        if (footprint(x) <= capacity && blocks(x) * x->group >= x->hw->units) continue;
        best->block = before;
        stuck |= 1u << (best - x->side);
    }
}

static double call_ns(const model *x)
{
    const kn_hw_intrin *spec = x->m->it->spec;
    if (spec->interval > 0) return spec->interval / x->hw->clock_ghz;
    double peak = kn_hw_peak_gflops(x->hw, x->m->it->operand[1].dtype) / x->hw->units;
    return 2 * (double)x->m->it->points / peak;
}

static double soft_bytes(const kn_maps *m, int o)
{
    const kn_tensor *t = &m->soft->tensors[m->op[o].soft];
    double n = kn_dtype_bytes(t->dtype);
    for (int k = 0; k < t->rank; k++) n *= (double)t->shape[k];
    return n;
}

/* A packed operand is read once and written once more, at the speed of the farthest memory. */
static double pack_ns(const model *x)
{
    double bytes = 0;
    for (int o = 0; o < x->m->nops; o++) {
        const kn_map_layout *y = &x->p->operand[o];
        if (!y->direct) bytes += soft_bytes(x->m, o) + (double)y->elems * kn_dtype_bytes(x->m->soft->tensors[x->m->op[o].soft].dtype);
    }
    return bytes / x->hw->levels[0].bandwidth_gbs;
}

/* One step of the block at level v, which the next farther level feeds; returns the slower of the two. */
static double feed(model *x, int v, double inner)
{
    double rate = x->hw->levels[v - 1].bandwidth_gbs / x->hw->units * x->group, in = 0, out = block_bytes(x, 0) / x->steps / rate;
    for (int o = 1; o < x->m->nops; o++) in += block_bytes(x, o) / rate;
    double slow = in > out ? in : out;
    if (slow <= inner) return inner;
    x->p->bound = x->hw->levels[v - 1].name;
    return slow;
}

static void measure(model *x)
{
    const kn_maps *m = x->m;
    for (int j = 0; j < m->it->nloops; j++) {
        if (j >= m->it->nspatial) {
            x->steps *= (double)x->p->tiles[j];
            continue;
        }
        side *s = &x->side[x->nsides++];
        *s = (side){x->p->tiles[j], 1, m->intrin->axes[j].extent, 0};
        for (int o = 0; o < m->nops; o++)
            if (m->it->operand[kn_intrin_operand_of(m->it, m->op[o].hard)].loops >> j & 1) s->operands |= 1u << o;
    }
    for (int l = 0; l < m->stmt->naxes; l++) {
        if (!(x->p->outer >> l & 1)) continue;
        if (m->stmt->axes[l].reduce) {
            x->steps *= (double)m->stmt->axes[l].extent;
            continue;
        }
        side *s = &x->side[x->nsides++];
        *s = (side){m->stmt->axes[l].extent, 1, 1, 0};
        for (int o = 0; o < m->nops; o++)
            for (int k = 0; k < m->op[o].nsoft; k++)
                if (kn_axes_in(m->op[o].soft_index[k]) >> l & 1) s->operands |= 1u << o;
    }
}

void kn_map_predict(const kn_maps *m, const kn_mapping *mapping, const kn_hw *hw, kn_map_plan *plan)
{
    if (!hw->gpu) {
        kn_map_predict_cpu(m, mapping, hw, plan);
        return;
    }
    model x = {.m = m, .hw = hw, .p = plan, .steps = 1, .group = 1};
    measure(&x);
    double t = call_ns(&x), latency = m->it->spec->latency / hw->clock_ghz;
    plan->bound = "compute";
    for (int v = hw->nlevels - 1; v > 0; v--) {
        int sharers = hw->levels[v].shared_by_units < hw->units ? hw->levels[v].shared_by_units : hw->units, alone = x.group;
        double before = calls_in(&x);
        x.group = sharers > alone ? sharers : alone;
        grow(&x, (double)hw->levels[v].capacity_bytes * x.group / sharers);
        t *= ceil(calls_in(&x) / before * alone / x.group);
        if (v == hw->nlevels - 1 && t < latency) t = latency, plan->bound = "latency"; /* a tile waits for its own last result */
        t = feed(&x, v, t);
    }
    double run = ceil(blocks(&x) * x.group / hw->units) * x.steps * t, pack = pack_ns(&x);
    if (pack > run) plan->bound = "pack";
    plan->pack_us = pack / 1e3;
    plan->us = (run + pack) / 1e3 + hw->launch_us;
}
