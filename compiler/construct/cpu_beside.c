/* Windows that slide beside the lanes, along two axes (channels last, each with a window of its own): a register tile of places in both directions
 * reads what its windows share once, and rows of tiles that go along the places before they go on with the lanes find it in L1. With few registers
 * larger windows write a row of taps out over as many places as registers hold with what these read, and go down the image, or a copy of it where
 * its columns fall into few sets of L1. */
#include "construct/beside.h"

bool kn_beside_along(const kn_site *x, const kn_expr *load, int axis, along *w)
{
    *w = (along){.axis = axis};
    for (int d = 0; d < load->nargs && !w->step; d++) {
        kn_affine f;
        if (!(kn_axes_in(load->args[d]) >> axis & 1)) continue;
        if (!kn_affine_of(load->args[d], &f) || f.coef[axis] < 1) return false;
        w->step = f.coef[axis];
        for (int r = x->s->nspatial; r < x->s->naxes; r++) {
            int64_t apart = f.coef[r] < 0 ? -f.coef[r] : f.coef[r];
            w->reach += apart * (kn_cpu_extent(x, r) - 1);
            if (apart && kn_cpu_extent(x, r) > 1 && (!w->apart || apart < w->apart)) w->apart = apart;
        }
    }
    return w->step > 0;
}

/* The load's windows overlap along the axis. */
static bool overlaps(const kn_site *x, const kn_expr *load, int axis, along *w)
{
    return kn_beside_along(x, load, axis, w) && w->step <= w->reach;
}

/* The load whose windows overlap along m and along another axis; NULL: there is none. */
static const kn_expr *both_ways(const kn_site *x, const kn_expr *const *loads, int n, along *m, along *o)
{
    for (int l = 0; l < n && l < KN_SITE_LOADS; l++) {
        if (!overlaps(x, loads[l], x->m, m)) continue;
        for (int i = 0; i < x->s->nspatial; i++)
            if (i != x->m && i != x->n && kn_cpu_extent(x, i) > 1 && overlaps(x, loads[l], i, o)) return loads[l];
    }
    return NULL;
}

/* What a tile's windows hold of all lanes, which the next tile finds again if L1 has it; else tiles go along the places first. */
static bool sweeps_l1(const kn_site *x, const along *m, int64_t mr, const along *o, int64_t mo)
{
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1");
    int64_t places = ((mr - 1) * m->step + m->reach + 1) * ((mo - 1) * o->step + o->reach + 1);
    return l1 && places * kn_cpu_extent(x, x->n) * kn_cpu_acc_bytes(x) > l1->capacity_bytes;
}

/* Of the operand that has most of it. */
static int64_t image_bytes(const kn_site *x, const along *o)
{
    int64_t image = 0;
    for (int l = 0; l < x->nloads; l++) {
        int64_t bytes = x->load[l].coef[o->axis] * x->load[l].bytes * kn_cpu_extent(x, o->axis);
        if (bytes > image) image = bytes;
    }
    return image;
}

/* It, and the results. */
static int64_t touched_bytes(const kn_site *x, const along *o)
{
    return x->store.coef[o->axis] * x->store.bytes * kn_cpu_extent(x, o->axis) + image_bytes(x, o);
}

/* Tiles along a row of places with one vector of them each touch another page at almost every place and come back to it only when the row is done,
 * and the caches do not hold the image meanwhile: what memory is to bring is not foreseen. Neighbours have half of what they read in common. */
static bool strides_pages(const kn_site *x, const along *m, const along *o)
{
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1"), *l2 = kn_hw_level_named(x->hw, "l2");
    int64_t column = 0;
    for (int l = 0; l < x->nloads; l++) {
        int64_t bytes = x->load[l].linear ? x->load[l].coef[m->axis] * x->load[l].bytes / m->step : 0;
        if (bytes > column) column = bytes;
    }
    return l2 && m->step * 2 <= m->reach + 1 && column > kn_hw_way_bytes(l1) / 8 * 5 && touched_bytes(x, o) > l2->capacity_bytes;
}

/* Some number of places that tiles of up to `most` may have divides them. */
static bool divides(int64_t places, int64_t most)
{
    for (int64_t d = 2; d <= most; d++) if (places % d == 0) return true;
    return false;
}

static bool find(const kn_site *x, along *m, along *o)
{
    const kn_expr *loads[KN_SITE_LOADS];
    int n = kn_loads(x->s->body, loads, KN_SITE_LOADS);
    if (x->contraction || x->m < 0 || x->n < 0 || kn_cpu_extent(x, x->n) < x->hw->vector_bytes / kn_cpu_acc_bytes(x)) return false;
    if (!kn_hw_level_named(x->hw, "l1")) return false; /* by which all of these are told apart */
    return both_ways(x, loads, n, m, o);
}

/* The only reduce axis along the window's row, whose taps step by one place of what it goes over; -1: there is none. */
static int taps_of_row(const kn_site *x, const along *m)
{
    const kn_expr *loads[KN_SITE_LOADS];
    int n = kn_loads(x->s->body, loads, KN_SITE_LOADS), found = -1;
    for (int l = 0; l < n && l < KN_SITE_LOADS; l++)
        for (int d = 0; d < loads[l]->nargs; d++) {
            kn_affine f;
            if (!(kn_axes_in(loads[l]->args[d]) >> m->axis & 1) || !kn_affine_of(loads[l]->args[d], &f)) continue;
            for (int r = x->s->nspatial; r < x->s->naxes; r++) {
                if (!f.coef[r] || kn_cpu_extent(x, r) < 2) continue;
                if (found >= 0 && found != r) return -1;
                found = r;
            }
        }
    return found;
}

/* Places of a tile: what they read stays in registers from tap to tap where windows overlap in all but one place. Each tap takes a multiply-add a
 * place, or as long as the chains of the places before, and brings its factor and what no place has read yet. */
static int64_t places_of_row(const kn_site *x, const along *m)
{
    enum { OWN = 2 };
    int64_t columns = kn_cpu_extent(x, m->axis), best = 0, most = m->step == 1 ? (x->hw->vector_registers - 2) / 2 : x->hw->vector_registers - 4;
    double least = 0, chains = x->hw->fma_latency * x->hw->fma_per_cycle * 3 / 4;
    for (int64_t mr = most < columns ? most : columns; mr > 1; mr--) {
        double time = (double)kn_ceil_div(columns, mr) * (((double)mr < chains ? chains : (double)mr) + OWN);
        if (best && time >= least) continue;
        least = time;
        best = mr;
    }
    return best;
}

/* An image far from the caches, of which vector after vector of the lanes would go down all: what a line has of the next one is gone again, and more
 * pages are touched than a TLB knows. Bands of as many rows as a window has meet all lanes instead (7x7, with AVX2 on a Zen 3: 100x112x112 twice, of
 * two samples 0.46 of the time, 1000x35x35 0.57, 400x56x56 0.76, 200x75x75 of two 0.73, 50x112x112 of two 0.93; 96x112x112 0.87 to 1.09, of half as
 * many bytes 1.0 to 1.06). */
static int64_t band_of(const kn_site *x, const along *o)
{
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    return l2 && image_bytes(x, o) > 4 * l2->capacity_bytes ? o->reach + 1 : 0;
}

/* Rows of a task: all of them, unless the vectors of channels are too few for the cores. */
int64_t kn_beside_rows_of_task(const kn_site *x, int64_t lanes, int o)
{
    int64_t tasks = 1, want = 4 * (int64_t)x->hw->units, rows = kn_cpu_extent(x, o);
    for (int i = 0; i < x->s->nspatial; i++)
        if (i != x->m && i != o) tasks *= i == x->n ? kn_ceil_div(kn_cpu_extent(x, i), lanes) : kn_cpu_extent(x, i);
    return tasks >= want ? rows : kn_ceil_div(rows, kn_ceil_div(want, tasks) < rows ? kn_ceil_div(want, tasks) : rows);
}

static void fit_l1(const kn_site *x, along_rows *r)
{
    int64_t columns = kn_cpu_extent(x, r->m.axis), most = kn_beside_lines_held(x, &x->load[r->load], &r->m) * 3 / 4, rows = r->o.reach + 1;
    r->narrow = rows * ((columns - 1) * r->m.step + r->m.reach + 1) <= most;
    bool fits = rows * ((r->mr - 1) * r->m.step + r->m.reach + 1) <= most;
    r->copied = !fits && r->m.step == 1 && kn_cpu_extent(x, x->n) % r->lanes == 0; /* what is read again and again; in whole vectors */
    r->vectors = r->copied && kn_cpu_extent(x, x->n) % (2 * r->lanes) == 0 ? 2 : 1; /* of a line */
}

bool kn_beside_rows_of(const kn_site *x, along_rows *r)
{
    const kn_expr *loads[KN_SITE_LOADS];
    int n = kn_loads(x->s->body, loads, KN_SITE_LOADS);
    along m;
    r->lanes = x->hw->vector_bytes / kn_cpu_acc_bytes(x);
    r->mr = places_of_row(x, &r->m);
    r->taps = taps_of_row(x, &r->m);
    r->load = -1;
    for (int l = 0; l < n && l < KN_SITE_LOADS; l++) {
        if ((x->load[l].axes >> x->n & 1) && (!x->load[l].linear || x->load[l].coef[x->n] != 1)) return false;
        if (r->load < 0 && overlaps(x, loads[l], x->m, &m)) r->load = l;
    }
    if (r->load < 0 || r->taps < 0 || r->mr < 2 || r->mr * kn_cpu_extent(x, r->taps) > KN_CPU_UNROLLED) return false;
    fit_l1(x, r);
    r->rows = kn_beside_rows_of_task(x, r->lanes * r->vectors, r->o.axis);
    return true;
}

/* The loops that tasks are made of; parts: of the rows, too. */
void kn_beside_put_tasks(kn_nest *w, const along_rows *r, bool parts)
{
    for (int i = 0; i < w->x->s->nspatial; i++)
        if (i != r->m.axis && i != r->o.axis && i != w->x->n) kn_nest_task(w, i);
    if (r->bands) kn_nest_task(w, r->o.axis);
    kn_nest_task(w, w->x->n);
    if (parts && !r->bands) kn_nest_task(w, r->o.axis);
    kn_nest_bar(w);
}

/* The reduction, whose taps are written out; the others as well: `all`. */
void kn_beside_put_taps(kn_nest *w, const along_rows *r, bool all)
{
    for (int i = w->x->s->nspatial; i < w->x->s->naxes; i++) {
        if (i == r->taps) continue;
        kn_nest_loop(w, i, 0);
        if (all) kn_nest_kind(w, "unroll", i, 0);
    }
    kn_nest_loop(w, r->taps, 0);
    kn_nest_kind(w, "unroll", r->taps, 0);
    kn_nest_bar(w);
}

/* Larger windows: a row of taps is written out over places along a row, in a loop over the rows of the window; places go down the image with one
 * vector of channels, so that L1 has what rows share. */
static bool try_rows(const kn_site *x, kn_plans *p, along_rows *r)
{
    if (!kn_hw_level_named(x->hw, "l1") || !kn_beside_rows_of(x, r)) return false;
    int n = x->n, m = r->m.axis, o = r->o.axis, before = p->n;
    int64_t band = r->copied ? 0 : band_of(x, &r->o);
    r->bands = band && band < r->rows;
    if (r->bands) r->rows = band;
    bool parts = r->rows < kn_cpu_extent(x, o), pair = r->vectors > 1;
    kn_nest w;
    kn_nest_begin(&w, x, p->a);
    kn_nest_split(&w, n, (int64_t[KN_NEST_CUTS]){pair ? 2 : 0, r->lanes});
    kn_nest_split(&w, m, (int64_t[KN_NEST_CUTS]){r->mr});
    kn_nest_split(&w, o, (int64_t[KN_NEST_CUTS]){parts ? r->rows : 0});
    kn_beside_put_tasks(&w, r, parts);
    if (pair) kn_nest_loop(&w, n, 1);
    if (!r->narrow) kn_nest_loop(&w, m, 0);
    kn_nest_loop(&w, o, parts);
    if (r->narrow) kn_nest_loop(&w, m, 0);
    kn_beside_put_taps(&w, r, false);
    kn_nest_loop(&w, m, 1);
    kn_nest_loop(&w, n, 1 + pair);
    kn_nest_kind(&w, "unroll", m, 1);
    kn_nest_kind(&w, "vectorize", n, 1 + pair);
    if (r->copied) kn_putf(&w.copies, "cache_read %s %d scratch %s.0 region\n", x->name, r->load, kn_cpu_axis(x, parts ? o : n));
    kn_nest_try(&w, p);
    return p->n > before;
}

/* Squares would hold fewer places than a row does. Windows that step, or whose places are short, take squares nevertheless, unless all lanes of the
 * image stay in L2 while vector after vector of them goes down it (5x5 of 672x14x14: squares 150 us, rows 89; by 2 of 83x112x112 squares 0.76 to 0.88
 * of rows; by 1 rows 0.76 to 0.95 of squares, of places shorter than 512 bytes 0.97 to 1.2); windows too large for squares go by rows wherever the
 * image is. */
bool kn_beside_by_rows(const kn_site *x, const along *m, const along *o)
{
    enum { LONG = 512 }; /* bytes of a place */
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    /* with more registers cpu_sums.c has tiles of rows as large */
    if (!kn_hw_few_registers(x->hw) || KN_CPU_SQUARE >= x->reduce_extent * places_of_row(x, m)) return false;
    bool near = l2 && image_bytes(x, o) <= l2->capacity_bytes, steps = m->step > 1 || o->step > 1;
    bool lasts = kn_cpu_extent(x, x->n) * kn_cpu_acc_bytes(x) >= LONG;
    return KN_BESIDE_SIDE * KN_BESIDE_SIDE * x->reduce_extent > KN_CPU_SQUARE || near || (lasts && !steps);
}

/* What a tile of places reads of a dilated window falls into so few sets of L1 that it throws itself out before places that share it come, or comes
 * from beyond the caches, where long runs of lanes come faster (taps 2 apart: 320x65x65 970 and 1360 us). Of the former whole lines are copied, where
 * they can be. */
bool kn_cpu_places_alone(const kn_site *x)
{
    along m, o;
    if (!find(x, &m, &o) || m.apart <= m.step || kn_beside_by_rows(x, &m, &o)) return false;
    const kn_hw_level *last = kn_hw_level_named(x->hw, "l3") ? kn_hw_level_named(x->hw, "l3") : kn_hw_level_named(x->hw, "l2");
    return kn_beside_tile_crowds(x, &m) || (last && image_bytes(x, &o) > last->capacity_bytes);
}

bool kn_cpu_is_beside(const kn_site *x)
{
    along m, o;
    if (!find(x, &m, &o) || KN_BESIDE_SIDE * KN_BESIDE_SIDE * x->reduce_extent > KN_CPU_SQUARE) return false;
    return kn_cpu_extent(x, x->m) >= KN_BESIDE_SIDE && kn_cpu_extent(x, o.axis) >= 2 * KN_BESIDE_SIDE;
}

/* Panels of which half of L1 holds all that a tile touches. */
static int64_t panels_in_l1(const kn_site *x, const along *m, const along *o, const kn_cpu_tile *t)
{
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1");
    int64_t columns = ((t->mr - 1) * m->step + m->reach + 1) * ((t->mo - 1) * o->step + o->reach + 1) + x->reduce_extent + t->mr * t->mo;
    return l1->capacity_bytes / 2 / (columns * t->nv * t->lanes * kn_cpu_acc_bytes(x));
}

/* Tiles go along the row with a block of that many panels of lanes, and down the image with it. */
static void try_block(const kn_site *x, kn_plans *p, const along *m, const along *o, const kn_cpu_tile *t, int64_t block)
{
    int64_t panel = t->nv * t->lanes;
    along_rows r = {.m = *m, .o = *o};
    r.rows = kn_beside_rows_of_task(x, block * panel, o->axis);
    bool parts = r.rows < kn_cpu_extent(x, o->axis), square = t->mo > 1;
    kn_nest w;
    kn_nest_begin(&w, x, p->a);
    kn_nest_split(&w, x->n, (int64_t[KN_NEST_CUTS]){block, t->nv, t->lanes});
    kn_nest_split(&w, m->axis, (int64_t[KN_NEST_CUTS]){t->mr});
    kn_nest_split(&w, o->axis, (int64_t[KN_NEST_CUTS]){parts ? kn_ceil_div(r.rows, square ? t->mo : 1) : 0, square ? t->mo : 0});
    kn_beside_put_tasks(&w, &r, parts);
    kn_nest_loop(&w, o->axis, parts);
    kn_nest_loop(&w, m->axis, 0);
    kn_nest_loop(&w, x->n, 1);
    for (int i = x->s->nspatial; i < x->s->naxes; i++) kn_nest_loop(&w, i, 0);
    kn_nest_bar(&w);
    if (square) kn_nest_loop(&w, o->axis, 1 + parts);
    kn_nest_loop(&w, m->axis, 1);
    kn_nest_loop(&w, x->n, 2);
    kn_nest_loop(&w, x->n, 3);
    if (square) kn_nest_kind(&w, "unroll", o->axis, 1 + parts);
    kn_nest_kind(&w, "unroll", m->axis, 1);
    for (int i = x->s->nspatial; i < x->s->naxes; i++) kn_nest_kind(&w, "unroll", i, 0);
    kn_nest_kind(&w, "unroll", x->n, 2);
    kn_nest_kind(&w, "vectorize", x->n, 3);
    kn_nest_try(&w, p);
}

/* A block all of which, with what else its tiles touch, stays in half of L1 from one tile to the next (3x3, the rate of runs of lanes over that of
 * whole rows of places: 960x24x24 1.2 to 1.4, 1152x14x14 1.7, 1000x40x40 1.1 to 1.4, 728x19x19 1.3, 672x17x17 1.1; 576x28x28 0.9 to 1.0, 200x75x75
 * 0.9; by 2: 728x37x37 0.85, 576x49x12 0.8 to 1.0). */
static void try_blocks(const kn_site *x, kn_plans *p, const along *m, const along *o, const kn_cpu_tile *t)
{
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1");
    int64_t panel = t->nv * t->lanes, panels = kn_ceil_div(kn_cpu_extent(x, x->n), panel), most = panels_in_l1(x, m, o, t);
    int64_t blocks = kn_ceil_div(panels, most > 1 ? most : 1), block = kn_ceil_div(panels, blocks);
    int64_t line = l1->transaction_bytes / (panel * kn_cpu_acc_bytes(x)); /* panels of one */
    try_block(x, p, m, o, t, line > 1 ? kn_round_up(block, line) : block);
}

/* What falls into few sets of L1 and comes from beyond the caches: lines of it that are copied one by one each take a page of their own, so runs of
 * some lines come as they lie, and a square of places takes each from the caches once (3x3 of 2048x32x32 1.26 times as fast, of 1024x56x56 1.3, their
 * means and greatest 1.4 to 3.2; smaller ones, and by 2, 0.5 to 1.2; with AVX2 convolutions 1.1 to 1.4, the greatest 0.6 to 1.2). */
static bool try_far(const kn_site *x, kn_plans *p, const along *m, const along *o)
{
    enum { RUN = 2048, LONG = 4 }; /* bytes; places of a tile along the row */
    kn_cpu_tile t = {.lanes = x->hw->vector_bytes / kn_cpu_acc_bytes(x), .nv = 1, .mr = LONG, .mo = KN_BESIDE_SIDE};
    bool far = kn_hw_past_caches(x->hw, (double)touched_bytes(x, o) + 1); /* filling them leaves no room for another row */
    if (m->step > 1 || m->apart > 1 || !far) return false;
    if (kn_cpu_extent(x, x->n) % t.lanes || (x->nloads < 2 && kn_hw_few_registers(x->hw))) return false;
    if (t.mo * t.mr * x->reduce_extent > KN_CPU_SQUARE || kn_cpu_extent(x, o->axis) < 2 * t.mo) return false;
    int before = p->n;
    try_block(x, p, m, o, &t, RUN / x->hw->vector_bytes);
    return p->n > before;
}

/* From beyond the caches places take all of their lanes, in squares, where L2 holds the rows that a square's windows reach over: memory is read from
 * end to end, not in a run of a few lines from every place (3x3 on a Zen 4, a core and two, greatest, mean and convolution: 6x1072x41x41 1.7 to 1.95
 * times as fast, 12x1000x30x30 1.4 to 1.6, 5x96x150x150 1.4 to 1.6, 7x128x112x112 1.2 to 1.3, 4x496x71x71 1.2 to 1.4, 2x128x94x94 0.91; of rows that
 * L2 has less room for 0.6 to 1.4, from L3 0.7 to 1.5, 5x5 0.77 to 1.0). */
static bool try_long(const kn_site *x, kn_plans *p, const along *m, const along *o)
{
    enum { TAPS = 9 };
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2"), *l3 = kn_hw_level_named(x->hw, "l3");
    kn_cpu_tile t = {.lanes = x->hw->vector_bytes / kn_cpu_acc_bytes(x), .nv = 1, .mr = KN_BESIDE_SIDE, .mo = KN_BESIDE_SIDE};
    int64_t row = (kn_cpu_extent(x, m->axis) + m->reach) * kn_cpu_extent(x, x->n) * kn_cpu_acc_bytes(x);
    if (!l2 || !l3 || touched_bytes(x, o) <= l3->capacity_bytes || m->step > 1 || o->step > 1 || m->apart > 1 || o->apart > 1) return false;
    if (!kn_hw_past_caches(x->hw, kn_cpu_touched(x))) return false;
    if (x->reduce_extent > TAPS || kn_cpu_extent(x, o->axis) < 2 * t.mo || kn_cpu_extent(x, m->axis) < 2 * t.mr) return false;
    if ((o->reach + t.mo) * row > l2->capacity_bytes / 8 * (strides_pages(x, m, o) ? 6 : 5)) return false;
    int before = p->n;
    try_block(x, p, m, o, &t, kn_ceil_div(kn_cpu_extent(x, x->n), t.lanes));
    return p->n > before;
}

/* Blocks shorter than some lines come from each page at the rate at which pages are found: there places take all of their lanes, one tile of them
 * after the other along the row (5x5 by 2 of 1355x56x56: 0.47 of the time of blocks of two lines). */
static void try_pages(const kn_site *x, kn_plans *p, const along *m, const along *o, kn_cpu_tile *t)
{
    enum { SHORT = 256 };
    if (panels_in_l1(x, m, o, t) * t->nv * t->lanes * kn_cpu_acc_bytes(x) >= SHORT) {
        try_blocks(x, p, m, o, t);
        return;
    }
    t->mc = 1;
    if (t->mo == 1 && t->nv == 1) kn_cpu_try(x, p, t);
}

bool kn_cpu_beside(const kn_site *x, kn_plans *p)
{
    bool square = false;
    along m, o;
    if (!find(x, &m, &o)) return false;
    if (kn_beside_crowds(x, &m, &o) && try_far(x, p, &m, &o)) return true;
    if (kn_beside_crowded(x, p, &m, &o)) return true;
    if (!kn_beside_crowds(x, &m, &o) && try_long(x, p, &m, &o)) return true;
    if (kn_cpu_places_alone(x)) return false;
    if (kn_beside_by_rows(x, &m, &o) && try_rows(x, p, &(along_rows){.m = m, .o = o})) return true;
    int64_t lanes = x->hw->vector_bytes / kn_cpu_acc_bytes(x), columns = kn_cpu_extent(x, x->m);
    for (int64_t mo = 1; mo <= KN_BESIDE_SIDE; mo++) {
        if (mo > 1 && kn_cpu_extent(x, o.axis) < 2 * mo) continue;
        for (int64_t mr = mo; mr <= KN_BESIDE_LONGEST && mr <= columns; mr++) {
            if (columns % mr && divides(columns, KN_BESIDE_LONGEST)) continue;
            for (int64_t nv = 1; nv <= 2 && (nv - 1) * lanes < kn_cpu_extent(x, x->n); nv++) {
                if (mo * mr * nv * x->reduce_extent > KN_CPU_SQUARE || (mo > 1 && !kn_beside_holds_square(x, &m, mr, &o, mo))) continue;
                kn_cpu_tile t = {.lanes = lanes, .nv = nv, .mr = mr, .mc = 1, .grain = 1, .nc = 1, .kb = 1, .rlanes = 1, .runroll = 1,
                                 .mo = mo, .o = o.axis};
                bool sweeps = sweeps_l1(x, &m, mr, &o, mo);
                if (sweeps) t.mc = kn_ceil_div(columns, mr);
                if (sweeps && strides_pages(x, &m, &o)) try_pages(x, p, &m, &o, &t);
                else if (sweeps || mo > 1) kn_cpu_try(x, p, &t);
                square |= mo > 1 && mr > 1;
            }
        }
    }
    return square && p->n > 0;
}
