/* A stage on a CPU: called instructions or vectors of single operations, tasks for its cores, and what it waits for. */
#include "cost/cpu.h"
#include "intrin/intrin.h"
#include "te/expr.h"

/* Share of an instruction's own pace at which it is called. What it reads comes through the slots in which it starts, unless a unit of its own
 * has it in registers. */
static double called_share(const kn_stage_view *v)
{
    const kn_stage *g = v->g;
    double tile = 1, pieces = 0, steps = 1, loads = 0;
    for (int i = 0; i < g->tensor.at; i++) {
        double n = (double)g->loops[i].extent;
        if (v->s->axes[g->loops[i].axis].reduce) steps *= n;
        else if (i >= v->first_reg) tile *= n, pieces += n;
    }
    double inner = 1; /* turns of the loop right around the tile's calls */
    for (int i = v->first_reg - 1; i >= 0 && inner <= 1; i--) inner = (double)g->loops[i].extent;
    for (int i = 0; i + 1 < v->naccesses && !kn_intrin_unit(g->tensor.intrin, v->hw); i++) {
        double part = kn_footprint(v, &v->access[i], g->tensor.at, false), all = kn_footprint(v, &v->access[i], v->first_reg, false);
        loads += all / part * (part > 1 && kn_across_lines(v, &v->access[i]) ? 2 : 1);
    }
    double ideal = (double)g->tensor.intrin->points * v->flops / (kn_instruction_gflops(v) / v->hw->units) * v->hw->clock_ghz;
    return ideal / (kn_intrin_call_cycles(g->tensor.intrin, v->hw, tile, pieces, steps) + (KN_READ_SLOT * loads + kn_turn_cycles(v, inner)) / tile);
}

/* Share of the peak at which vectors of single operations compute the stage. */
static double vector_share(const kn_stage_view *v)
{
    enum { ONE_BY_ONE = 6 }; /* elements that are picked by conditions or computed alone take 2 to 3 cycles each, not a vector's part of one */
    const kn_hw *hw = v->hw;
    int bytes = kn_dtype_bytes(kn_stmt_acc(v->s));
    double full = (double)hw->vector_bytes / bytes, lanes = 1;
    const kn_stage *g = v->g;
    if (g->nloops && g->loops[g->nloops - 1].kind == KN_VECTOR) lanes = (double)g->loops[g->nloops - 1].extent;
    double eff = kn_at_most(lanes / full * kn_starts(v, lanes), 1);
    if (v->s->red != KN_RED_NONE) eff *= kn_sum_share(v, lanes, full) / (kn_stage_bare(v) ? 2 * kn_bare_terms(v) : 1);
    else eff /= kn_spilled(v);
    if (lanes > 1) eff *= kn_lanes_share(v, lanes, full);
    else if (v->s->red == KN_RED_NONE && v->s->body->op != KN_OP_LOAD) eff /= ONE_BY_ONE;
    return eff;
}

/* Some window slides over what the stage writes: its vectors begin between those that were stored. */
static bool slid_over(const kn_stage_view *v)
{
    const kn_program *p = v->t->program;
    bool found = false;
    for (int i = 0; i < p->nstmts && !found; i++) {
        const kn_expr *loads[KILN_MAX_TENSORS];
        uint32_t places = (1u << p->stmts[i]->nspatial) - 1;
        int n = kn_loads(p->stmts[i]->body, loads, KILN_MAX_TENSORS);
        for (int l = 0; l < n && l < KILN_MAX_TENSORS; l++)
            for (int d = 0; d < loads[l]->nargs && loads[l]->u.tensor == v->s->out; d++)
                found |= (kn_axes_in(loads[l]->args[d]) & places) && (kn_axes_in(loads[l]->args[d]) & ~places);
    }
    return found;
}

/* What is made for another stage a little at a time is read there while it is still on its way to L1: a vector that lies across two of those that
 * were stored waits for both. */
static double stalled_us(const kn_stage_view *v, double share)
{
    enum { ON_THE_WAY = 64, WAIT = 40 }; /* stores; cycles */
    double times = 1, each = 1;
    if (v->g->at_stage < 0 || !v->g->nloops || !slid_over(v) || kn_handed_over(v->t, v->g)) return 0;
    const kn_loop *last = &v->g->loops[v->g->nloops - 1];
    if (last->kind != KN_VECTOR) return 0;
    for (int i = 0; i < v->g->nloops; i++) {
        if (v->g->loops[i].shared_with >= 0) times *= (double)v->g->loops[i].extent;
        else if (!v->s->axes[v->g->loops[i].axis].reduce) each *= (double)v->g->loops[i].extent;
    }
    if (each / (double)last->extent >= ON_THE_WAY) return 0;
    return times * WAIT / (v->hw->clock_ghz * 1e3 * v->hw->units * share);
}

/* Cores write parts of the same lines, where what their tasks go along follows in memory and all of it is a line or two: each write waits then until
 * another core has let go of it (an image of 64 channels that is turned channel by channel: 18 times as long on two cores as on one). */
static double contended_us(const kn_stage_view *v)
{
    enum { LINE = 64 };
    const double wait = 0.01; /* us: twice as much for two cores, nothing for one, which the kernel may as well have */
    double writes = 1;
    int first = 0;
    while (first < v->g->nloops && (v->g->loops[first].kind != KN_PARALLEL || v->g->loops[first].extent == 1)) first++;
    if (v->hw->units < 2 || first == v->g->nloops || v->g->at_stage >= 0 || v->s->red != KN_RED_NONE) return 0;
    int axis = v->g->loops[first].axis;
    for (int a = 0; a < v->s->naxes; a++) writes *= (double)v->s->axes[a].extent;
    for (int i = 0; i < v->naccesses; i++) {
        const kn_access *x = &v->access[i];
        int last = x->rank - 1;
        while (last > 0 && x->shape[last] == 1) last--;
        if (!x->store || last < 0 || x->index[last]->op != KN_OP_AXIS || x->index[last]->u.axis != axis) continue;
        double row = (double)x->shape[last] * x->bytes;
        return writes / (double)v->g->loops[first].stride * kn_at_most(LINE / row, 1) * wait / v->hw->units;
    }
    return 0;
}

/* A kernel is called with a pool of all cores, or by one thread, beside others of its process or not, for which no core waits: the mean of what these
 * take, by what one that no core waits in would. */
static double threads_share(const kn_stage_view *v, double *waves) { return 2 / (1 + 1 / kn_wave_share(v->tasks, v->hw->units, waves)); }

void kn_cost_cpu(const kn_stage_view *v, kn_cost *c)
{
    const kn_hw *hw = v->hw;
    for (int i = 0; i + 1 < hw->nlevels; i++) kn_cpu_level(v, i, c);
    c->registers = (int)kn_register_need(v);
    double eff = v->g->tensor.intrin ? called_share(v) : kn_stage_moves(v) ? 1 : vector_share(v);
    double share = threads_share(v, &c->waves);
    c->grid = (int64_t)v->tasks;
    c->threads = 1;
    c->occupancy = kn_at_most(v->tasks / hw->units, 1);
    c->compute_us = kn_copy_us(v, share) + stalled_us(v, share) + contended_us(v);
    kn_cost_finish(v, c, eff * share, kn_at_least(share, 1.0 / hw->units));
}
