/* Predicted time of a mapping on a CPU, as kn_map_trace schedules it there: operands copied into tiles, the nest around a register tile, results
 * stored. The nest takes what is slowest of computing, reading from each level and writing (AMOS, ISCA'22, section 5.3); copies come before it.
 * Cycles beside the instruction's own are the hwspec's `costs`. */
#include "intrin/trace.h"
#include <string.h>

typedef struct nest {
    const kn_map_writer *w;
    const kn_hw *hw;
    const kn_map_plan *p;
    double calls, steps, tile; /* calls in all, in one result's sum, and of a register tile */
} nest;

static double soft_elems(const kn_maps *m, int o)
{
    const kn_tensor *t = &m->soft->tensors[m->op[o].soft];
    double n = 1;
    for (int k = 0; k < t->rank; k++) n *= (double)t->shape[k];
    return n;
}

static double bytes_of(const nest *n, int o, double elems) { return elems * kn_dtype_bytes(n->w->m->soft->tensors[n->w->m->op[o].soft].dtype); }

/* Cycles for one core to get one byte out of the level, the first of which is memory. */
static double cycles_from(const kn_hw *hw, int level)
{
    double rate = hw->levels[level].bandwidth_gbs / hw->units;
    return rate > 0 ? hw->clock_ghz / rate : 0;
}

/* The nearest level that holds so many bytes, and cycles for one core to get one byte out of it. */
static double cycles_a_byte(const nest *n, double bytes, int *level)
{
    const kn_hw *hw = n->hw;
    *level = 0;
    for (int l = 1; l < hw->nlevels - 1; l++)
        if (bytes <= (double)hw->levels[l].capacity_bytes) *level = l;
    return cycles_from(hw, *level);
}

/* The places of a window over operand o are flattened, its rows are copied once (prim_map.c); o 0: over any. */
static bool flat(const nest *n, int o)
{
    kn_map_window v;
    return kn_map_flattens(n->w->m, n->w->x, &v) && (!o || n->w->m->op[o].load == v.load);
}

/* The operand is a constant input that nothing else reads: its copies are made before the first call. */
static bool ahead(const kn_maps *m, int o)
{
    const kn_expr *loads[KILN_MAX_TENSORS];
    const kn_tensor *t = &m->soft->tensors[m->op[o].soft];
    int reads = 0;
    if (t->role != KN_INPUT || !t->constant) return false;
    for (int i = 0; i < m->soft->nstmts; i++) {
        int n = kn_loads(m->soft->stmts[i]->body, loads, KILN_MAX_TENSORS);
        for (int l = 0; l < n && l < KILN_MAX_TENSORS; l++) reads += loads[l]->u.tensor == m->op[o].soft;
    }
    return reads == 1;
}

/* Cycles to copy an element of lines of so many, in vectors. */
static double line_element(const nest *n, int o, int64_t line)
{
    int64_t lanes = n->hw->vector_bytes / kn_dtype_bytes(n->w->m->soft->tensors[n->w->m->op[o].soft].dtype);
    double vectors = (double)kn_ceil_div(line, lanes < 1 ? 1 : lanes);
    return n->hw->costs.copy_vector * vectors / (double)line;
}

/* Those of the loops that go anywhere. */
static uint32_t that_go(const kn_map_writer *w, uint32_t loops)
{
    for (int l = 0; l < w->m->stmt->naxes; l++)
        if (w->m->stmt->axes[l].extent == 1) loops &= ~(1u << l);
    return loops;
}

/* The operand's terms lie along memory, so that a unit loads its rows from a copy that keeps their order. */
static bool rows_of_terms(const kn_map_writer *w, int o)
{
    const kn_map_operand *op = &w->m->op[o];
    const kn_intrin_operand *hard = &w->m->it->operand[kn_intrin_operand_of(w->m->it, op->hard)];
    if (!w->unit || !hard->plain || hard->rank != 2 || hard->lone[1] < 0 || !op->nsoft) return false;
    const kn_expr *last = op->soft_index[op->nsoft - 1];
    return last->op == KN_OP_AXIS && that_go(w, w->x->loops[hard->lone[1]]) == that_go(w, 1u << last->u.axis);
}

/* Terms that lie beside each other in the operand, or in its copy, whose tiles are whole. */
static int64_t terms_a_place(const nest *n, int o)
{
    const kn_map_writer *w = n->w;
    kn_map_source s;
    int j = w->m->it->operand[kn_intrin_operand_of(w->m->it, w->m->op[o].hard)].lone[1];
    if (kn_map_source_of(w, n->p, o, &s)) return n->p->tiles[j] * w->m->intrin->axes[j].extent;
    return w->m->soft->tensors[w->m->op[o].soft].shape[w->m->op[o].nsoft - 1];
}

/* Rows of a unit's tile that are as far apart as pages take an entry of the address cache each, and crowd in the sets of L1: a twentieth more; of
 * several loops, and from memory, no prefetcher follows (8x14x14x1024 by 1024x256 by places: 0.6 of the time by rows of them). Rows of windows over
 * lines straddle two lines of the cache each: a seventh; rows that are no whole lines some of them, a tenth. */
static double far_rows(const nest *n)
{
    enum { PAGE = 4096 };
    const kn_map_writer *w = n->w;
    const kn_hw_level *l2 = kn_hw_level_named(n->hw, "l2");
    double more = 0;
    int64_t few;
    for (int o = 1; o < w->m->nops; o++) {
        kn_map_source x;
        bool flattened = w->unit && flat(n, o), lines = w->unit && !flattened && kn_map_source_of(w, n->p, o, &x) && kn_map_lines(w, &x, &few) >= 0;
        if (lines || (flattened && !rows_of_terms(w, o))) more += 0.15;
        kn_map_source s = {.op = &w->m->op[o], .hard = &w->m->it->operand[kn_intrin_operand_of(w->m->it, w->m->op[o].hard)]};
        int64_t step = 0;
        if (!rows_of_terms(w, o) || s.hard->lone[0] < 0) continue;
        bool several = kn_map_several(w->x->loops[s.hard->lone[0]]), far = l2 && bytes_of(n, o, soft_elems(w->m, o)) > (double)l2->capacity_bytes;
        double bytes = kn_map_one_run(w, &s, s.hard->lone[0], &step) ? bytes_of(n, o, (double)step) : PAGE;
        more += (several && far ? 0.3 : 0.05) * (bytes < PAGE ? bytes / PAGE : 1);
        if ((int64_t)bytes_of(n, o, (double)terms_a_place(n, o)) % KN_MAP_LINE) more += 0.1;
    }
    return 1 + more;
}

/* Of places that lie some elements apart, those with one remainder lie together in the plane: lines are read and taken apart for each remainder that
 * a window has, in both directions. */
static double apart(const nest *n, const kn_map_operand *op, int rows, int columns)
{
    double times = n->hw->costs.window_factor;
    bool any = false;
    for (int k = 0; k < op->nsoft; k++) {
        kn_affine f;
        int along = kn_axes_in(op->soft_index[k]) >> rows & 1 ? rows : columns;
        if (!(kn_axes_in(op->soft_index[k]) >> along & 1) || !kn_affine_of(op->soft_index[k], &f)) continue;
        int64_t step = f.coef[along], taps = 1;
        for (int l = 0; l < n->w->m->stmt->naxes; l++)
            if (l != along && f.coef[l]) taps *= n->w->m->stmt->axes[l].extent;
        times *= (double)(taps < step ? taps : step);
        any = any || step > 1;
    }
    return any ? times : 1;
}

/* Of what is read at flattened places: the plane, and, where several loops are a unit's terms, the tiles, which are cut out of it. */
static double flat_copy(const nest *n, int o, int64_t line)
{
    const kn_map_writer *w = n->w;
    const kn_hw_costs *c = &n->hw->costs;
    kn_map_window v;
    const kn_map_operand *op = &w->m->op[o];
    bool along = kn_map_flattens(w->m, w->x, &v) && (kn_axes_in(op->soft_index[op->nsoft - 1]) >> v.columns & 1); /* memory follows the places */
    double each = rows_of_terms(w, o) ? line_element(n, o, line) : along ? c->interleave_element : c->copy_element;
    if (along && !rows_of_terms(w, o)) each *= apart(n, op, v.rows, v.columns);
    double cycles = soft_elems(w->m, o) * each;
    for (int j = w->m->it->nspatial; j < w->m->intrin->naxes && w->unit; j++) {
        int several = 0;
        for (int l = 0; l < w->m->stmt->naxes; l++) several += (w->x->loops[j] >> l & 1) && w->m->stmt->axes[l].extent > 1;
        if (several > 1) cycles += (double)n->p->operand[o].elems * (c->read_lane + 16 * c->insert_lane) * c->window_factor;
    }
    return cycles;
}

/* Some axis of the operand has several loops that are no run: each element's place is found by divisions. */
static bool places_apart(const kn_map_writer *w, const kn_map_source *s)
{
    int64_t step;
    for (int k = 0; k < s->hard->rank; k++) {
        int j = s->hard->lone[k];
        if (j >= 0 && kn_map_several(w->x->loops[j]) && !kn_map_one_run(w, s, j, &step)) return true;
    }
    return false;
}

/* What the tiles of a unit take more that are picked from memory one by one, since columns do not lie side by side there, nor terms in one line:
 * bytes 4.5 times as long (measured: 1x1 windows in steps of 2, channels first; not a 3x3 window's weights). */
static double picked(const nest *n, int o, const kn_map_source *s)
{
    double more = n->hw->costs.window_factor * n->hw->costs.window_factor;
    const kn_map_writer *w = n->w;
    uint32_t in = 0;
    for (int k = 0; k < s->op->nsoft; k++) in |= kn_axes_in(s->op->soft_index[k]);
    for (int j = 0; j < w->m->intrin->naxes; j++) {
        int64_t step = 0, least = j < w->m->it->nspatial ? 2 : KN_MAP_LINE / (int64_t)bytes_of(n, o, 1);
        if ((that_go(w, w->x->loops[j]) & in) && (!kn_map_one_run(w, s, j, &step) || step < least)) return 1;
    }
    return more * 2 / bytes_of(n, o, 1);
}

/* Bytes of the copy that go to memory and back: none where tasks make their parts of it themselves (map_lead.c), each of which a near cache holds. */
static double far_copy(const nest *n, int o, const kn_map_source *s, double elems)
{
    const kn_hw_level *l2 = kn_hw_level_named(n->hw, "l2");
    double bytes = bytes_of(n, o, elems);
    for (int k = 0; k < s->hard->rank && l2 && n->w->unit; k++) {
        int j = s->hard->lone[k];
        bool parts = j >= 0 && j < n->w->m->it->nspatial && kn_map_tasks_enough(n->p->tiles[j] / 2, n->hw) && kn_map_is_anew(n->w, s);
        if (parts && 2 * bytes / (double)n->p->tiles[j] <= (double)l2->capacity_bytes / 2) return 0;
    }
    return bytes;
}

/* Cycles of the copies that operand o needs; 0: none. */
static double copy_cycles(const nest *n, int o)
{
    const kn_map_writer *w = n->w;
    const kn_hw_costs *c = &n->hw->costs;
    kn_map_source s;
    int64_t step = 0, lanes = 1, few, line = w->m->soft->tensors[w->m->op[o].soft].shape[w->m->op[o].nsoft - 1];
    int level;
    if (ahead(w->m, o)) return 0;
    if (flat(n, o)) return flat_copy(n, o, line);
    if (!kn_map_source_of(w, n->p, o, &s)) return 0;
    int j = s.hard->rank ? s.hard->lone[s.hard->rank - 1] : -1;
    double elems = s.box ? soft_elems(w->m, o) : (double)n->p->operand[o].elems, each = c->copy_element;
    if (j >= 0 && kn_map_cut(w, j) && !s.plain) lanes = w->m->intrin->axes[j].extent;
    bool run = j >= 0 && kn_map_one_run(w, &s, j, &step), whole = j < 0 || n->p->fused[j] % lanes == 0;
    if (lanes > 1) each = c->read_lane + c->insert_lane * (double)(lanes < 16 ? lanes : 16);
    if (lanes > 1 && w->unit) each = c->copy_element * (places_apart(w, &s) ? c->window_factor * c->window_factor : 1) * picked(n, o, &s);
    if (lanes > 1 && run && step == 1 && (whole || w->unit)) each = c->copy_vector / (double)lanes * (whole ? 1 : 2); /* a piece of it, the padding */
    if (lanes > 1 && lanes <= 4 && !run) each *= c->window_factor;
    if (lanes > 1 && lanes <= 4 && !whole) each *= c->window_factor;
    if (s.slides) each = c->copy_element;
    if (s.plain && rows_of_terms(w, o)) each = line_element(n, o, line);
    if (kn_map_zipped(w, &s) || kn_map_lines(w, &s, &few) >= 0 || kn_map_turned(w, &s) >= 0) each = c->interleave_element;
    if (kn_map_taps_move(w, &s)) each = 2 * c->interleave_element; /* terms first, then taps */
    /* of a turned line what is written as one vector may belong to two tiles */
    bool apart = kn_map_turned(w, &s) >= 0 && n->p->tiles[s.hard->lone[1]] > 1;
    if (apart && w->m->intrin->axes[s.hard->lone[1]].extent % KN_MAP_SQUARE) each = c->store_element;
    double cycles = elems * each, moved = bytes_of(n, o, soft_elems(w->m, o)) + far_copy(n, o, &s, elems);
    double least = moved * cycles_a_byte(n, moved, &level);
    if (least > cycles) cycles = least;
    if (s.padded && !s.box) cycles += soft_elems(w->m, o) * c->copy_element; /* the padding is filled in first */
    return cycles;
}

/* Results lie along the rows of their tile in memory, whose elements change places in registers on their way out. */
static bool stores_squares(const nest *n)
{
    const kn_intrin_operand *d = &n->w->m->it->operand[0];
    return n->w->unit && d->rank == 2 && kn_dtype_bytes(d->dtype) == 4 && kn_map_results_along(n->w, 0);
}

/* Results of tiles that are not whole, where only these are copied once more: those of the last rows in vectors, of the last columns one by one. */
static double ragged_store(const nest *n)
{
    const kn_maps *m = n->w->m;
    const kn_intrin_operand *h = &m->it->operand[0];
    double elems = soft_elems(m, 0), cycles = 0;
    for (int d = 0; d < h->rank; d++) {
        int j = h->lone[d];
        if (j < 0) continue;
        int64_t left = n->p->fused[j] % m->intrin->axes[j].extent;
        double each = kn_map_results_along(n->w, d) ? n->hw->costs.store_element : n->hw->costs.copy_vector / (double)h->shape[h->rank - 1];
        cycles += elems * (double)left / (double)n->p->fused[j] * each;
    }
    return cycles;
}

/* Results of a register tile that lie a page or more apart take an entry of the address cache each; more than it has are looked for each time
 * (halves, 464 channels of 123x123 places, channels first: 6.8 cycles each). */
static double pages_apart(const nest *n)
{
    enum { PAGE = 4096, ENTRIES = 64 };
    const double missed = 4;
    const kn_map_writer *w = n->w;
    kn_map_source s = {.op = &w->m->op[0], .hard = &w->m->it->operand[0]};
    int64_t pages = 1, step;
    for (int d = 0; d < s.hard->rank; d++) {
        int j = s.hard->lone[d];
        if (j < 0 || !kn_map_one_run(w, &s, j, &step) || bytes_of(n, 0, (double)step) < PAGE) continue;
        pages *= w->m->intrin->axes[j].extent;
        for (int i = 0; i < w->nouter; i++)
            if (w->outer[i].axis == j) pages *= w->outer[i].piece;
    }
    return pages > ENTRIES ? missed : 1;
}

static double store_cycles(const nest *n)
{
    const kn_maps *m = n->w->m;
    const kn_hw_costs *c = &n->hw->costs;
    double elems = soft_elems(m, 0), crop = c->copy_element;
    bool tail = false, flattened = flat(n, 0);
    for (int j = 0; j < m->it->nspatial; j++) tail = tail || (kn_map_cut(n->w, j) && n->p->fused[j] % m->intrin->axes[j].extent);
    int64_t lanes = m->it->operand[0].elems;
    bool vectors = lanes > 1 && kn_map_results_along(n->w, m->it->operand[0].rank - 1);
    double each = vectors ? c->copy_vector / (double)lanes : stores_squares(n) ? c->interleave_element : c->store_element * pages_apart(n);
    if (n->w->unit) crop = line_element(n, 0, m->soft->tensors[m->op[0].soft].shape[m->op[0].nsoft - 1]);
    if (flattened) { /* rows are taken out of a result that no near cache holds: its lines go there twice, and come back twice */
        double moved = 4 * bytes_of(n, 0, elems);
        int level;
        return elems * (each + 2 * crop) + (n->w->unit ? moved * cycles_a_byte(n, moved, &level) : 0);
    }
    if (tail && kn_map_is_block(n->w, n->hw)) return elems * each + ragged_store(n);
    return elems * each + (tail ? elems * n->p->padding * crop : 0); /* a padded result is copied once more */
}

double kn_intrin_call_cycles(const kn_intrin *it, const kn_hw *hw, double tile, double pieces, double steps)
{
    double latency = it->spec->latency > 0 ? it->spec->latency : hw->fma_latency, peak = kn_hw_peak_gflops(hw, it->operand[1].dtype) / hw->units;
    double interval = it->spec->interval > 0 ? it->spec->interval : 2 * (double)it->points / peak * hw->clock_ghz;
    bool unit = kn_intrin_unit(it, hw), stays = pieces > 0 || unit;
    double reads = stays ? 0.5 * (pieces > 1 ? pieces : 2) / tile : 1; /* two a cycle, of a unit's registers two rows */
    if (unit) reads *= (double)it->operand[1].shape[0];
    double each = interval > reads ? interval : reads;
    if (each < latency / tile) each = latency / tile;
    return each + (stays ? 0 : hw->costs.keep_result / tile) + hw->costs.turn_tile / steps / tile;
}

/* Cycles of all calls. */
static double call_cycles(const nest *n)
{
    double pieces = 0;
    for (int i = 0; i < n->w->nouter; i++) pieces += !n->w->outer[i].reduce && n->w->outer[i].piece > 1 ? (double)n->w->outer[i].piece : 0;
    double copies = 0; /* of what has to be near the unit */
    for (int o = 1; o < n->w->m->it->noperands; o++)
        if (n->w->m->it->operand[o].scope == KN_SCOPE_SHARED) copies += (double)n->w->m->it->operand[o].elems * n->hw->costs.copy_element;
    return n->calls * (copies + kn_intrin_call_cycles(n->w->m->it, n->hw, n->tile, n->w->unrolls ? pieces : 0, n->steps));
}

/* Cycles to read the sources: tiles of the operand that moves with the outermost spatial loop stay where they fit, the other one passes by again for
 * each of them. Sets *level to the one that feeds slowest. */
static double read_cycles(const nest *n, int *level)
{
    const kn_map_writer *w = n->w;
    double worst = 0, cycles = 0;
    for (int o = 1; o < w->m->nops; o++) {
        bool outside = true;
        double total = bytes_of(n, o, (double)n->p->operand[o].elems), again = 1, held = w->held[o];
        for (int i = 0; i < w->nouter && !w->outer[i].reduce; i++) {
            double times = (double)(w->outer[i].piece > 1 ? kn_ceil_div(w->outer[i].count, w->outer[i].piece) : w->outer[i].count);
            if (!(w->outer[i].moves >> o & 1)) {
                again *= times, outside = false;
            } else if (outside) {
                held /= times; /* this part of it is what the loops inside need again */
            }
        }
        int l, far;
        kn_map_source s;
        double t = total * again * cycles_a_byte(n, held, &l), all = bytes_of(n, o, soft_elems(w->m, o)), first = all * cycles_a_byte(n, all, &far);
        if (first > t && w->unit && !flat(n, o) && !kn_map_source_of(w, n->p, o, &s)) t = first, l = far; /* as it lies, where it lies */
        cycles += t;
        if (t > worst) worst = t, *level = l;
    }
    return cycles;
}

static nest nest_of(const kn_map_writer *w, const kn_hw *hw, const kn_map_plan *p)
{
    nest n = {w, hw, p, 1, 1, 1};
    for (int i = 0; i < w->nouter; i++) {
        const kn_map_outer *l = &w->outer[i];
        /* Thousands of tiles are asked for: no division by 1. */
        n.calls *= (double)(l->piece > 1 ? kn_ceil_div(l->count, l->piece) * l->piece : l->count);
        if (l->reduce) n.steps *= (double)l->count;
        else n.tile *= (double)l->piece;
    }
    return n;
}

void kn_map_holds(kn_map_writer *w, const kn_hw *hw, const kn_map_plan *p)
{
    nest n = {w, hw, p, 1, 1, 1};
    for (int o = 1; o < w->m->nops; o++) {
        kn_map_source s;
        bool meet = flat(&n, o) || (kn_map_source_of(w, p, o, &s) && s.box);
        w->held[o] = bytes_of(&n, o, meet ? soft_elems(w->m, o) : (double)p->operand[o].elems);
    }
}

double kn_map_nest_cycles(const kn_map_writer *w, const kn_hw *hw, const kn_map_plan *p, double most)
{
    nest n = nest_of(w, hw, p);
    int level;
    double compute = call_cycles(&n);
    if (compute > most) return compute;
    double read = read_cycles(&n, &level);
    return (compute > read ? compute : read) + 0.1 * (compute > read ? read : compute); /* of equals, what leaves the other part idle */
}

/* The loop whose iterations the cores share first; -1: none. */
static int shared_loop(const kn_map_writer *w)
{
    for (int i = 0; i < w->nouter && !w->outer[i].reduce; i++)
        if (w->outer[i].count > w->outer[i].piece) return i;
    return -1;
}

/* Loops of the statement that it is. */
static uint32_t loops_of(const kn_map_writer *w, const kn_map_outer *l)
{
    if (l->axis >= 0) return w->x->loops[l->axis];
    for (int i = 0; i < w->m->stmt->naxes; i++)
        if (w->m->stmt->axes[i].name == l->name) return 1u << i;
    return 0;
}

double kn_map_apart_cycles(const kn_map_writer *w, const kn_hw *hw, const kn_map_plan *p)
{
    nest n = {w, hw, p, 1, 1, 1};
    int at = shared_loop(w);
    double bytes = 0, others = hw->units - 1;
    for (int o = 1; o < w->m->nops; o++) {
        kn_map_source s;
        bool copy = kn_map_source_of(w, p, o, &s), moves = at >= 0 && (w->outer[at].moves >> o & 1);
        if (ahead(w->m, o) || (!copy && !flat(&n, o))) continue;
        if (!moves) bytes += w->held[o] * others;
        else if (!(kn_map_copy_leads(w, &s) & loops_of(w, &w->outer[at]))) bytes += w->held[o] * others / hw->units;
    }
    return bytes * cycles_from(hw, 0);
}

/* Iterations along axis j of the instruction: of a window's flattened places those between its rows count, too (prim_map.c). */
static int64_t extent_of(const kn_maps *m, const kn_mapping *x, int j)
{
    kn_map_window v;
    int64_t all = kn_map_extent(m, x, j), span = 0;
    if (!kn_map_flattens(m, x, &v) || !(x->loops[j] >> v.columns & 1)) return all;
    for (int o = 1; o < m->nops; o++)
        for (int k = 0; k < m->op[o].nsoft && m->op[o].load == v.load; k++) {
            kn_affine f;
            if (!(kn_axes_in(m->op[o].soft_index[k]) >> v.columns & 1) || !kn_affine_of(m->op[o].soft_index[k], &f)) continue;
            for (int l = 0; l < m->stmt->naxes; l++)
                if (l != v.columns) span += (f.coef[l] < 0 ? -f.coef[l] : f.coef[l]) * (m->stmt->axes[l].extent - 1);
            span /= f.coef[v.columns];
        }
    int64_t rows = m->stmt->axes[v.rows].extent, columns = m->stmt->axes[v.columns].extent;
    return all / (rows * columns) * ((rows - 1) * (columns + span) + columns);
}

void kn_map_predict_cpu(const kn_maps *m, const kn_mapping *x, const kn_hw *hw, kn_map_plan *plan)
{
    kn_map_writer w = {.m = m, .x = x, .unit = kn_intrin_unit(m->it, hw)};
    int level = 0;
    for (int j = 0; j < m->intrin->naxes; j++) w.extent[j] = kn_map_whole(&w, j, extent_of(m, x, j));
    kn_map_outer_loops(&w);
    kn_map_choose_tile(&w, hw, plan);
    nest n = nest_of(&w, hw, plan);
    double pack = 0, compute = call_cycles(&n), read = read_cycles(&n, &level), write = store_cycles(&n), us = 1 / (hw->clock_ghz * 1e3 * hw->units);
    double bytes;
    if (kn_map_block_bytes(&w, hw, &bytes)) read = bytes * cycles_from(hw, 0), level = 0;
    for (int o = 1; o < m->nops; o++) pack += copy_cycles(&n, o);
    double run = (compute > read ? compute : read) * far_rows(&n) + write;
    plan->bound = pack > run ? "pack" : write > compute && write > read ? "store" : read > compute ? hw->levels[level].name : "compute";
    plan->pack_us = pack * us;
    plan->us = (pack + run) * us + hw->launch_us;
}
