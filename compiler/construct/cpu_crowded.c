/* Windows that slide beside the lanes, whose places lie so many bytes apart that what they read falls into few sets of L1 (channels that are a power
 * of two): whole lines of the lanes that are copied beside each other, or runs of some lines that come as they lie. */
#include "construct/beside.h"

/* Columns of so many bytes that L1 has room for. */
int64_t kn_beside_lines_held(const kn_site *x, const kn_site_access *a, const along *m)
{
    return kn_hw_lines_held(kn_hw_level_named(x->hw, "l1"), a->coef[m->axis] * a->bytes / m->step);
}

/* L1 has room for the columns that places in both directions read of the widest operand. */
bool kn_beside_holds_square(const kn_site *x, const along *m, int64_t mr, const along *o, int64_t mo)
{
    int64_t columns = ((mr - 1) * m->step + m->reach + 1) * ((mo - 1) * o->step + o->reach + 1);
    for (int l = 0; l < x->nloads; l++)
        if ((x->load[l].axes >> m->axis & 1) && (x->load[l].axes >> x->n & 1) && columns > kn_beside_lines_held(x, &x->load[l], m)) return false;
    return true;
}

/* The part of L1 that the factors of all taps take, each of which has its lanes somewhere else. */
static double part_of_taps(const kn_site *x)
{
    for (int l = 0; l < x->nloads; l++) {
        const kn_site_access *a = &x->load[l];
        int64_t apart = 0;
        if (!(a->axes >> x->n & 1) || a->axes >> x->m & 1 || !a->linear) continue;
        for (int r = x->s->nspatial; r < x->s->naxes; r++)
            if (a->coef[r] > 0 && (!apart || a->coef[r] < apart)) apart = a->coef[r];
        if (apart) return (double)x->reduce_extent / (double)kn_hw_lines_held(kn_hw_level_named(x->hw, "l1"), apart * a->bytes);
    }
    return 0;
}

/* A square's columns, what they are multiplied by and its results want `most` times L1, and its places do not fill rows and columns: tiles that reach
 * past these have tests of their own beside (3x3, of 1.5 times L1: 512x7x7 0.66 of the time, 1536x7x7 0.54, 512x33x33 0.67 to 0.87; with even places
 * 512x28x28 1.35 times, 512x14x14 1.1). */
static bool crowds(const kn_site *x, const along *m, const along *o, double most)
{
    const int64_t side = KN_BESIDE_SIDE;
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1");
    int64_t columns = ((side - 1) * m->step + m->reach + 1) * ((side - 1) * o->step + o->reach + 1);
    double beside = part_of_taps(x) + (double)(side * side) / (double)kn_hw_lines_held(l1, x->store.coef[m->axis] * x->store.bytes);
    if (kn_cpu_extent(x, m->axis) % side == 0 && kn_cpu_extent(x, o->axis) % side == 0) return false;
    for (int l = 0; l < x->nloads; l++) {
        const kn_site_access *a = &x->load[l];
        bool columns_of = (a->axes >> m->axis & 1) && (a->axes >> x->n & 1);
        if (columns_of && (double)columns / (double)kn_beside_lines_held(x, a, m) + beside > most) return true;
    }
    return false;
}

static bool has_room(const kn_site *x, const along_rows *r, double most)
{
    return kn_beside_holds_square(x, &r->m, KN_BESIDE_SIDE, &r->o, KN_BESIDE_SIDE) && !crowds(x, &r->m, &r->o, most);
}

bool kn_beside_crowds(const kn_site *x, const along *m, const along *o) { return !has_room(x, &(along_rows){.m = *m, .o = *o}, 1.5); }

/* What a tile of places reads of a dilated window falls into too few sets of L1. */
bool kn_beside_tile_crowds(const kn_site *x, const along *m)
{
    int64_t columns = kn_cpu_extent(x, m->axis), rows = 1, places = columns < KN_BESIDE_LONGEST ? columns : KN_BESIDE_LONGEST;
    for (int r = x->s->nspatial; r < x->s->naxes; r++) rows *= kn_cpu_extent(x, r);
    rows = kn_ceil_div(rows, m->reach / m->apart + 1); /* of taps */
    int64_t read = rows * ((places - 1) * m->step + m->reach + 1);
    for (int l = 0; l < x->nloads; l++) {
        const kn_site_access *a = &x->load[l];
        if ((a->axes >> m->axis & 1) && (a->axes >> x->n & 1) && read > kn_beside_lines_held(x, a, m)) return true;
    }
    return false;
}

/* Of `least` to `most` places, those whose tiles reach past the row's end by the fewest: a tile that does has tests of its own (3x3, 1024x7x7: of 4
 * places 60 us, of 7 33; 7x7 by 2, 1024x14x14: 258 and 152). */
static int64_t even_places(int64_t columns, int64_t least, int64_t most)
{
    int64_t best = least;
    for (int64_t mr = least + 1; mr <= most && mr <= columns; mr++)
        if (kn_round_up(columns, mr) < kn_round_up(columns, best)) best = mr;
    return best;
}

/* Tiles of mr places along a row by nv vectors, which fill the lanes, down the image; a task's part of load `copied` (-1: of none) lies beside each
 * other. */
static bool try_places(const kn_site *x, kn_plans *p, along_rows *r, int64_t nv, int64_t mr, int copied)
{
    int n = x->n, m = r->m.axis, o = r->o.axis, before = p->n;
    if (mr > kn_cpu_extent(x, m) || nv * mr * kn_cpu_extent(x, r->taps) > KN_CPU_SQUARE || kn_cpu_extent(x, n) % (nv * r->lanes)) return false;
    r->rows = kn_beside_rows_of_task(x, r->lanes * nv, o);
    bool parts = r->rows < kn_cpu_extent(x, o);
    kn_nest w;
    kn_nest_begin(&w, x, p->a);
    kn_nest_split(&w, n, (int64_t[KN_NEST_CUTS]){nv, r->lanes});
    kn_nest_split(&w, m, (int64_t[KN_NEST_CUTS]){mr});
    kn_nest_split(&w, o, (int64_t[KN_NEST_CUTS]){parts ? r->rows : 0});
    kn_beside_put_tasks(&w, r, parts);
    kn_nest_loop(&w, o, parts);
    kn_nest_loop(&w, m, 0);
    kn_beside_put_taps(&w, r, nv * mr * x->reduce_extent <= KN_CPU_SQUARE);
    kn_nest_loop(&w, m, 1);
    kn_nest_loop(&w, n, 1);
    kn_nest_loop(&w, n, 2);
    kn_nest_kind(&w, "unroll", m, 1);
    kn_nest_kind(&w, "unroll", n, 1);
    kn_nest_kind(&w, "vectorize", n, 2);
    if (copied >= 0) kn_putf(&w.copies, "cache_read %s %d scratch %s.0 region\n", x->name, copied, kn_cpu_axis(x, parts ? o : n));
    kn_nest_try(&w, p);
    return p->n > before;
}

/* What the smallest square of places reads falls into so few sets of L1 that it throws itself out: the columns of some whole lines of the lanes are
 * copied beside each other, and places along a row, as many as hide the latency of a multiply-add, take all vectors of a line together (3x3 by 2,
 * 512x14x14: 0.45 of the time; 3x3, 1024x7x7: 0.55; 5x5, 256x28x28: 0.3; 7x7 by 2, 512x28x28: 0.4; taps 2 apart: 512x28x28 0.63, 1024x14x14 0.63 of
 * what places one at a time take). */
static bool try_lines(const kn_site *x, kn_plans *p, along_rows *r)
{
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1");
    bool dilated = r->m.apart > r->m.step;
    if (!l1 || (dilated && kn_beside_by_rows(x, &r->m, &r->o)) || !kn_beside_rows_of(x, r)) return false;
    int64_t line = l1->transaction_bytes / kn_cpu_acc_bytes(x), nv = line < r->lanes ? 1 : line / r->lanes;
    int64_t need = x->hw->fma_latency * x->hw->fma_per_cycle;
    int64_t columns = kn_cpu_extent(x, r->m.axis), mr = even_places(columns, kn_ceil_div(need, nv), (x->hw->vector_registers - 2) / nv);
    bool room = dilated ? !kn_beside_tile_crowds(x, &r->m) : has_room(x, r, 1.5);
    return !room && try_places(x, p, r, nv, mr, r->load);
}

/* The load that has the lanes and no places, whose taps lie apart; -1: none. */
static int factors_of(const kn_site *x, const along_rows *r)
{
    for (int l = 0; l < x->nloads; l++)
        if (l != r->load && (x->load[l].axes >> x->n & 1) && !(x->load[l].axes & (1u << r->m.axis | 1u << r->o.axis))) return l;
    return -1;
}

/* The same where no line of them is met often: some lines of each place together, of a pair of places, are asked for in the order in which they lie.
 * What they are multiplied by, whose taps fall into the same sets, is copied beside each other. On a Zen 4, over the columns above: 3x3 by 2 of
 * 1024x7x7 2.4 times as fast, 1024x14x14 2.0, 512x28x28 1.9, 5x5 by 2 of 1024x13x13 3.2, 3x3 of 1024x7x7 1.6; the greatest and the mean of 3x3 by 2
 * 1.3 to 2.3, by 1 0.8; with AVX2 by 2 1.1 to 2.7, by 1 0.8 to 1.4. */
static bool try_runs(const kn_site *x, kn_plans *p, along_rows *r)
{
    enum { RUN = 512 };
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1");
    if (!l1 || r->m.apart > r->m.step || !kn_beside_rows_of(x, r)) return false;
    int64_t nv = RUN / (r->lanes * kn_cpu_acc_bytes(x)), mr = x->hw->vector_registers / 2 / nv;
    bool room = has_room(x, r, kn_cpu_short_vectors(x) ? 1.1 : 1.5);
    return !room && nv > 1 && try_places(x, p, r, nv, mr < 1 ? 1 : mr, factors_of(x, r));
}

/* What falls into few sets of L1, in runs or in copied lines. Lines are better where each is met often, by the taps less what steps skip (5x5 of
 * 512x28x28 0.86, 7x7 0.6 of their rate in runs), runs again where a row is too short for them (5x5 of 1024x7x7: 3.4 times as fast as in squares). */
bool kn_beside_crowded(const kn_site *x, kn_plans *p, const along *m, const along *o)
{
    enum { MEETS = 9 };
    int64_t meets = x->reduce_extent / (m->step * o->step), steps = m->step > 1;
    bool factors = x->nloads > 1, squares = KN_BESIDE_SIDE * KN_BESIDE_SIDE * x->reduce_extent <= KN_CPU_SQUARE, few = kn_hw_few_registers(x->hw);
    if (meets <= MEETS && (steps || (factors && !few)) && try_runs(x, p, &(along_rows){.m = *m, .o = *o})) return true;
    if (try_lines(x, p, &(along_rows){.m = *m, .o = *o})) return true;
    return factors && squares && !few && try_runs(x, p, &(along_rows){.m = *m, .o = *o});
}
