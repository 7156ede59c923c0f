/* Sums of products with a constant factor whose own axis the lanes run along: the factor is packed ahead in the order in which register tiles read
 * it (prepack), so that its layout, its padding to whole tiles and its distance from memory's pages do not matter. The other factor's places are
 * the rows: those of a window are taken row by row of the image, with the padding of a band of them filled in beside (cache_read region). A
 * window's factor that is no constant, but small, goes the same way: it is read as it lies, or each band packs it for itself, or the task of a panel
 * in a group does (44 windows in groups, channels last, plain: 1.35 times as fast as places of a copy as one axis; 128x62x62 by 2 to 1024 in 32
 * groups 2.7, 256x56x56 in 32 1.7, 64x18x18 in 4 of 7x7 1.5). Windows of bytes or halves go this way where the core has a dot instruction for them,
 * whose terms are the innermost loop. Depthwise windows without padding whose channels are no whole vectors, and padded ones, are left to cpu_sums.c,
 * with their taps along the lanes (shape_copies.c): bands copied with their padding take 1.3 to 2.2 times as long. Cores share panels or rows,
 * whichever brings less of what they share; bands are as many as leave no core waiting. */
#include "construct/packed.h"
#include "intrin/intrin.h"

static int64_t apart(const packed *k, int axis)
{
    int64_t c = k->x->load[k->v].coef[axis];
    return c < 0 ? -c : c;
}

/* Reduce axis i is walked outside of axis j: steps of the inner one are the shorter ones, whichever way they go. */
static bool outside(const packed *k, int i, int j)
{
    if ((k->uneven >> i ^ k->uneven >> j) & 1) return k->uneven >> i & 1;
    return apart(k, i) > apart(k, j);
}

/* The rows: places of the other factor alone, nearest in the output first. */
static void find_rows(packed *k)
{
    const kn_site *x = k->x;
    k->q = k->p = k->taps = -1;
    for (int i = 0; i < x->s->nspatial; i++) {
        if (i == x->n || extent(k, i) < 2 || has(k, k->w, i) || !has(k, k->v, i)) continue;
        if (k->q < 0 || x->store.coef[i] < x->store.coef[k->q]) k->p = k->q, k->q = i;
        else if (k->p < 0 || x->store.coef[i] < x->store.coef[k->p]) k->p = i;
    }
    for (int i = x->s->nspatial, n = 0; i < x->s->naxes; i++) {
        int at = n++;
        for (; at > 0 && outside(k, i, k->order[at - 1]); at--) k->order[at] = k->order[at - 1];
        k->order[at] = i;
    }
    k->blocked = x->s->nspatial;
    for (int i = k->blocked; i < x->s->naxes; i++)
        if (has(k, k->w, i) && !(k->uneven >> i & 1) && (k->uneven >> k->blocked & 1 || extent(k, i) >= extent(k, k->blocked))) k->blocked = i;
}

/* Of what the statement reads or writes there, each place as often as it is met by different axes. */
static int64_t bytes_of(const packed *k, const kn_site_access *a)
{
    int64_t n = a->bytes;
    for (int i = 0; i < k->x->s->naxes; i++)
        if (a->axes >> i & 1 && !kn_mul_fits(n, kn_cpu_extent(k->x, i), &n)) return INT64_MAX / 4;
    return n;
}

/* Of an element of the copy, which is of sums' dtype but for dots. */
int64_t kn_packed_bytes(const packed *k) { return k->dots ? k->x->load[k->w].bytes : kn_cpu_acc_bytes(k->x); }

static int64_t bytes_of_constant(const packed *k) { return bytes_of(k, &k->x->load[k->w]); }

/* A factor that is no constant, of rows in one axis: so small that tiles of rows meet all of it from near, one after the other, where results
 * outweigh rows, go out to memory and had better be written from end to end. */
static bool worth_passing(const packed *k, int64_t l2)
{
    enum { TERMS = 32, ROWS = 512 };
    const kn_site *x = k->x;
    int64_t out = bytes_of(k, &x->store);
    if (x->reduce_extent < TERMS || extent(k, x->n) % k->lanes || bytes_of_constant(k) > l2 / 16) return false;
    return out > l2 && out >= 2 * bytes_of(k, &x->load[k->v]) && extent(k, k->q) >= ROWS * (int64_t)x->hw->units;
}

static bool in_copied_blocks(const packed *k);
static int64_t band_of(const packed *k);

/* Bands of them are worth a copy each of all of the other factor. */
static bool many_places(const packed *k)
{
    enum { ROWS = 128, DOTS = 48 };
    return (k->p < 0 ? 1 : extent(k, k->p)) * extent(k, k->q) >= (k->dots ? DOTS : ROWS) * (int64_t)k->x->hw->units;
}

/* Rows of both factors run along the same axis of the sum, so that lanes could too, without a copy. */
static bool along_both(const packed *k)
{
    const kn_site_access *w = &k->x->load[k->w], *v = &k->x->load[k->v];
    for (int i = k->x->s->nspatial; i < k->x->s->naxes; i++)
        if (extent(k, i) >= k->lanes && v->linear && w->coef[i] == 1 && v->coef[i] == 1) return true;
    return false;
}

static int64_t rows_of_other(const packed *k)
{
    int64_t rows = 1;
    for (int i = 0; i < k->x->s->nspatial; i++)
        if (!has(k, k->w, i) && !kn_mul_fits(rows, extent(k, i), &rows)) return INT64_MAX;
    return rows;
}

/* The packed factor has axes of results beside that of the lanes. */
static bool in_groups(const packed *k)
{
    for (int i = 0; i < k->x->s->nspatial; i++) if (has(k, k->w, i) && i != k->x->n && extent(k, i) > 1) return true;
    return false;
}

/* A factor that is no constant: a task's share of the rows is worth a copy of it. */
static bool worth_copies(const packed *k)
{
    enum { FEW_ROWS = 32 };
    const kn_hw_level *l2 = kn_hw_level_named(k->x->hw, "l2");
    if (k->q < 0 || !l2) return false;
    if (in_groups(k) && (k->p < 0 || k->turns || k->dots || k->uneven)) return false;
    if (k->turns) return k->dots || !along_both(k) || rows_of_other(k) >= FEW_ROWS;
    if (k->p < 0) return worth_passing(k, l2->capacity_bytes);
    if (bytes_of_constant(k) > l2->capacity_bytes / 2) return in_copied_blocks(k);
    return many_places(k);
}

/* A window's factor that is no constant, which stays near, in rows that are vectors as they lie: a copy would be no better. */
static bool lies_well(const packed *k)
{
    enum { APART = 2048 };
    const kn_site_access *a = &k->x->load[k->w];
    const kn_hw_level *l2 = kn_hw_level_named(k->x->hw, "l2");
    int64_t row = extent(k, k->x->n) * a->bytes;
    if (k->p < 0 || !l2 || !a->linear || a->coef[k->x->n] != 1 || extent(k, k->x->n) < k->lanes || row > APART) return false;
    return bytes_of_constant(k) <= l2->capacity_bytes / 2 && !(k->uneven && in_groups(k));
}

/* L1 holds far from all of that factor, and so many places of a band meet a panel of it that packing all of it for each takes less than short runs
 * from L2 do. */
static bool bands_meet_copies(const packed *k)
{
    enum { PLACES = 200 };
    const kn_hw_level *l1 = kn_hw_level_named(k->x->hw, "l1");
    packed c = *k;
    c.copied = true;
    if (!l1 || !kn_hw_few_registers(k->x->hw) || bytes_of_constant(k) <= l1->capacity_bytes + l1->capacity_bytes / 4) return false;
    if (!worth_copies(&c) || !kn_packed_choose(&c, false) || c.nv * c.lanes >= extent(k, k->x->n)) return false; /* such a row is a panel's */
    return band_of(&c) * extent(&c, c.q) >= PLACES;
}

/* A constant of long rows that are met in a few terms, and results that L1 does not hold: writing these takes as long as all else, and the rows are
 * as good as they lie (cpu_sums.c). */
static bool outweighed(const packed *k)
{
    enum { TERMS = 16, VECTORS = 8 };
    const kn_site_access *a = &k->x->load[k->w];
    const kn_hw_level *l1 = kn_hw_level_named(k->x->hw, "l1");
    if (!l1 || k->padded || k->beside || k->p >= 0 || !a->linear || a->coef[k->x->n] != 1 || !k->x->load[k->v].linear) return false;
    return k->x->reduce_extent < TERMS && extent(k, k->x->n) >= VECTORS * k->lanes && bytes_of(k, &k->x->store) > l1->capacity_bytes;
}

/* What the run's last terms lack may stand in a band's copy: anything among integers, since the constant has zeros there; of floats zeros, with
 * which a copy fills up what is a dimension of its own from end to end. */
static bool may_end(const packed *k, int run)
{
    const kn_expr *loads[2];
    kn_loads(k->x->s->body, loads, 2);
    return kn_dtype_class(k->x->s->body->dtype) != 'f' || kn_cpu_whole_dim(k->x, loads[k->v], run);
}

/* A window whose products an instruction sums a few at a time: they follow each other where the other factor is read. */
static bool dotted(packed *k, const kn_cpu_dot *d)
{
    enum { LEAST_TERMS = 16, LONG = 64 };
    int n = k->x->s->naxes - k->x->s->nspatial, last = k->order[n - 1];
    while (n > 1 && last != d->run && extent(k, last) == 1) last = k->order[--n - 1];
    if (d->turn >= 0) return false;
    k->dot = *d;
    k->lanes = d->it->s->axes[0].extent;
    k->terms = d->it->s->axes[1].extent;
    bool ends = extent(k, last) % k->terms == 0;
    if (ends && k->p < 0 && !k->padded) return false; /* rows that are read where they lie: cpu_dots.c */
    if (!ends && k->x->reduce_extent == extent(k, last) && extent(k, last) >= LONG && !k->padded) return false; /* padded once, they are as well */
    k->boxed |= !ends;
    k->turns = k->copied && k->blocked == d->run && kn_cpu_turns_squares(k->x, k->w, k->blocked, k->lanes, k->terms);
    k->dots = d->b == k->w && d->run == last && (ends || (may_end(k, last) && k->x->reduce_extent >= LEAST_TERMS));
    return k->dots && (!k->copied || worth_copies(k));
}

/* dots: NULL, or what the sum is known to be. */
static bool packed_with(const kn_site *x, packed *k, const kn_cpu_dot *dots)
{
    const kn_expr *loads[2];
    const kn_program *p = x->t->program;
    kn_cpu_dot d;
    double share;
    *k = (packed){.x = x, .w = -1, .uneven = kn_cpu_uneven(x, &share)};
    if (x->hw->gpu || x->s->red != KN_RED_SUM || x->s->scatter || x->nloads != 2 || kn_loads(x->s->body, loads, 2) != 2 || x->n < 0) return false;
    if (kn_bare(x->s->body)->op != KN_OP_MUL || !x->store.linear || x->store.coef[x->n] != 1) return false;
    for (int l = 0; l < 2; l++) {
        const kn_tensor *t = &p->tensors[loads[l]->u.tensor];
        bool beside = has(k, 1 - l, x->n), along = x->load[1 - l].linear && x->load[1 - l].coef[x->n] == 1;
        bool constant = t->role == KN_INPUT && t->constant && kn_loads_in_calls(x->t, loads[l]->u.tensor) == 1;
        if (!has(k, l, x->n) || (loads[l]->padded && !(constant && k->uneven)) || (beside && !along)) continue;
        if (!constant && (beside || !x->load[l].linear || k->w >= 0)) continue;
        k->w = l;
        k->beside = beside;
        k->copied = !constant;
    }
    if (k->w < 0) return false;
    k->v = 1 - k->w;
    k->padded = k->boxed = x->load[k->v].padded;
    for (int d = 0; d < loads[k->v]->nargs && k->padded; d++) {
        kn_affine f;
        if (!kn_affine_of(loads[k->v]->args[d], &f)) return false;
    }
    find_rows(k);
    k->terms = 1;
    if (kn_dtype_bytes(loads[k->w]->dtype) < 4) return dots ? dotted(k, dots) : kn_cpu_dot_of(x, &d) && !d.recast && dotted(k, &d);
    int64_t full = x->hw->vector_bytes / kn_cpu_acc_bytes(x);
    k->lanes = full;
    while (k->lanes > 4 && k->lanes / 2 >= extent(k, x->n)) k->lanes /= 2;
    if (extent(k, x->n) * 4 < k->lanes * 3 || (!k->copied && outweighed(k))) return false;
    if (!k->copied) return true;
    k->lies = lies_well(k) && !bands_meet_copies(k);
    k->copied = !k->lies;
    k->turns = k->copied && kn_cpu_turns_squares(x, k->w, k->blocked, k->lanes, 1);
    return k->lies || worth_copies(k);
}

static bool packed_of(const kn_site *x, packed *k) { return packed_with(x, k, NULL); }

bool kn_cpu_boxes_run(const kn_site *x, const kn_cpu_dot *d)
{
    packed k;
    return packed_with(x, &k, d) && k.q >= 0 && !k.beside;
}

bool kn_cpu_is_packed(const kn_site *x)
{
    packed k;
    return packed_of(x, &k) && k.q >= 0 && !k.beside;
}

bool kn_cpu_is_squares(const kn_site *x)
{
    packed k;
    kn_cpu_dot d;
    bool is = packed_of(x, &k) || (kn_cpu_dot_of(x, &d) && !d.flip && packed_with(x, &k, &d)); /* signed bytes become unsigned first */
    return is && k.q >= 0 && k.turns;
}

int kn_cpu_layered(const kn_site *x)
{
    packed k;
    return packed_of(x, &k) && k.q >= 0 && !(k.beside && k.padded) && kn_packed_choose(&k, true) && k.layer ? k.blocked : -1;
}

bool kn_cpu_is_boxed(const kn_site *x)
{
    packed k;
    return packed_of(x, &k) && k.q >= 0 && k.boxed && !k.beside;
}

/* A spatial axis but n and the rows, along which the packed factor stays the same. */
static bool is_image(const packed *k, int i) { return i < k->x->s->nspatial && i != k->x->n && i != k->q && i != k->p && !has(k, k->w, i); }

/* Places along all of these for one of the rows; phases that do not have all of the terms are none of them. */
static int64_t images_of(const packed *k)
{
    int64_t n = 1;
    if (k->uneven) return 1;
    for (int i = 0; i < k->x->s->nspatial; i++)
        if (is_image(k, i) && !kn_mul_fits(n, extent(k, i), &n)) return INT64_MAX / 64;
    return n;
}

/* A panel's partial sums of so many places, which come back with every block, stay in a quarter of L2. */
static bool sums_stay(const packed *k, int64_t places)
{
    const kn_hw_level *l2 = kn_hw_level_named(k->x->hw, "l2");
    return l2 && places <= l2->capacity_bytes / 4 / (k->nv * k->lanes * kn_cpu_acc_bytes(k->x));
}

/* All along the axis meets a block that has been turned, or packed, before the next one is. */
static bool meets_block(const packed *k, int i)
{
    if (!k->panels || !is_image(k, i)) return false;
    if (k->turns) return true;
    if (!k->copied || k->p < 0 || k->dots || k->uneven || extent(k, i) < 2) return false;
    return sums_stay(k, images_of(k) * extent(k, k->p) * extent(k, k->q));
}

/* The other factor numbers elements by the axis and by another one of the results: a box of it for all of the axis has what nothing reads. */
static bool among_results(const packed *k, int axis)
{
    const kn_expr *loads[2];
    if (kn_loads(k->x->s->body, loads, 2) != 2) return false;
    uint32_t results = (1u << k->x->s->nspatial) - 1;
    for (int d = 0; d < loads[k->v]->nargs; d++) {
        uint32_t in = kn_axes_in(loads[k->v]->args[d]) & results;
        if ((in >> axis & 1) && in != 1u << axis) return true;
    }
    return false;
}

/* Spatial axes but n and the rows, each a loop. beside: those by which results lie nearer than rows do (groups of channels), so that rows are
 * written from end to end where bands of them are tasks; else the others. */
static bool is_other(const packed *k, int i, bool beside)
{
    const kn_site *x = k->x;
    if (meets_block(k, i)) return false;
    bool near = has(k, k->w, i) && x->store.coef[i] > 0 && x->store.coef[i] < x->store.coef[k->q] && !(k->boxed && among_results(k, i));
    return i != x->n && i != k->q && i != k->p && (near && !k->panels) == beside;
}

static void put_others(kn_buf *b, const packed *k, bool beside, const char *before)
{
    for (int i = 0; i < k->x->s->nspatial; i++)
        if (is_other(k, i, beside)) kn_putf(b, before, name(k, i));
}

/* The reduce axis is walked around blocks of the blocked one: all others but one that is written out; none
 * where blocks are turned, or are layers. */
static bool around(const packed *k, int axis)
{
    return k->kb > 0 && !k->turns && !k->layer && axis != k->taps;
}

static void put_reduction(kn_buf *b, const packed *k, bool outer)
{
    for (int r = 0; r < k->x->s->naxes - k->x->s->nspatial; r++) {
        int i = k->order[r];
        bool cut = k->kb && i == k->blocked;
        if (outer == around(k, i) && !cut) kn_putf(b, " %s.0", name(k, i));
        if (cut) kn_putf(b, " %s.%d", name(k, i), !outer);
    }
}

static int64_t tasks_of(const packed *k)
{
    int64_t n = k->panels && !k->shares ? kn_ceil_div(extent(k, k->x->n), k->nv * k->lanes) : 1;
    for (int i = 0; i < k->x->s->nspatial; i++)
        if (is_other(k, i, false) && !kn_mul_fits(n, extent(k, i), &n)) return INT64_MAX / 64;
    return n;
}

/* Of bands between `band` / 2 and `most`, of `all`: those with which the longest that a core has to do is short, the smallest of them. What a band's
 * padding costs, is as much as a quarter of a row; a copy of what is no constant, as much as some places. */
static int64_t even(const packed *k, int64_t all, int64_t band, int64_t most)
{
    enum { PLACES = 12 };
    int64_t best = band, tasks = tasks_of(k);
    double least = 0, beside = k->padded ? 0.25 : 0;
    if (k->copied) beside += PLACES / (double)(k->p < 0 ? k->mr : extent(k, k->q));
    for (int64_t b = k->shares ? band - band / 4 : kn_ceil_div(band, 2); b <= most && b <= all; b++) {
        double longest = (double)kn_ceil_div(tasks * kn_ceil_div(all, b), k->x->hw->units) * ((double)b + beside);
        if (least > 0 && longest >= 0.97 * least) continue;
        least = longest;
        best = b;
    }
    return best;
}

/* Partial sums of a panel that come back for every layer: a quarter of L2 holds them. */
static int64_t band_of_layers(const packed *k, int64_t l2)
{
    int64_t rows = extent(k, k->p), row = extent(k, k->q) * k->nv * k->lanes * kn_cpu_acc_bytes(k->x), most = l2 / 4 / row;
    return kn_round_up(kn_ceil_div(rows, kn_ceil_div(rows, most < k->mp ? k->mp : most)), k->mp);
}

/* Rows of the packed factor, along the lanes, are so long that a panel's part of each is in another page. */
static bool pages_apart(const packed *k)
{
    enum { APART = 1024 };
    const kn_site_access *w = &k->x->load[k->w];
    return w->linear && w->coef[k->x->n] == 1 && w->coef[k->blocked] * w->bytes >= APART;
}

/* Each panel's task packs all terms at once, and has no partial sums: of a group of them L2 holds all that is to be packed. */
bool kn_packed_whole(const packed *k)
{
    const kn_hw_level *l2 = kn_hw_level_named(k->x->hw, "l2");
    return l2 && k->copied && in_groups(k) && k->x->reduce_extent * extent(k, k->x->n) * kn_packed_bytes(k) <= l2->capacity_bytes / 2;
}

/* The same of what lies in no layers, where vectors are short, L2 holds a panel of all terms and places enough meet it (12 windows without padding,
 * plain: 1.09 times as fast as blocks; 192x73x73 by 2 to 192 1.24, 480x54x8 of 1x5 to 88 1.3; 360x10x10 to 192 0.95). */
static bool at_once(const packed *k)
{
    enum { PLACES = 128 };
    const kn_hw_level *l2 = kn_hw_level_named(k->x->hw, "l2");
    if (kn_packed_whole(k)) return true;
    if (!l2 || !k->copied || k->layer || k->turns || k->dots || k->p < 0 || !kn_cpu_short_vectors(k->x) || pages_apart(k)) return false;
    if (extent(k, k->p) * extent(k, k->q) < PLACES) return false;
    return k->x->reduce_extent * k->nv * k->lanes * kn_packed_bytes(k) <= l2->capacity_bytes / 2;
}

/* A band of rows of the image, or of tiles where the rows are one axis: as many as leave every core tasks enough, and as a quarter of L2 holds of
 * the other factor. */
static int64_t band_of(const packed *k)
{
    if (k->p < 0 && k->panels && !k->shares) return 1;
    if (k->p >= 0 && k->panels && (k->turns || (k->layer && k->copied))) {
        int64_t panels = kn_ceil_div(extent(k, k->x->n), k->nv * k->lanes), bands = kn_ceil_div(k->x->hw->units, panels);
        return kn_round_up(kn_ceil_div(extent(k, k->p), k->turns ? 1 : bands), k->mp);
    }
    if (k->p >= 0 && k->panels && at_once(k)) { /* few, as each packs a panel */
        int64_t rows = extent(k, k->p), bands = kn_ceil_div(k->x->hw->units, tasks_of(k));
        return kn_round_up(even(k, rows, kn_ceil_div(rows, bands), rows), k->mp);
    }
    const kn_hw_level *l2 = kn_hw_level_named(k->x->hw, "l2");
    if (k->layer) return band_of_layers(k, l2 ? l2->capacity_bytes : 262144);
    const kn_site_access *a = &k->x->load[k->v];
    int axis = k->p < 0 ? k->q : k->p;
    int64_t tile = k->p < 0 ? k->mr : 1, all = kn_ceil_div(extent(k, axis), tile), want = 4 * (int64_t)k->x->hw->units;
    int64_t row = tile * a->bytes * (a->linear && a->coef[axis] > 0 ? a->coef[axis] : 1), met = bytes_of(k, a) / kn_ceil_div(extent(k, axis), tile);
    if (row > met) row = met; /* not what lies between */
    if (k->shares || k->copied) want = k->x->hw->units;
    int64_t bands = kn_ceil_div(want, tasks_of(k)), part = k->copied && kn_cpu_short_vectors(k->x) ? 2 : 4; /* each packs what is no constant */
    int64_t most = (l2 ? l2->capacity_bytes : 262144) / part / (row > 0 ? row : 1), band = kn_ceil_div(all, bands < 1 ? 1 : bands);
    if (band > most) band = most < 1 ? 1 : most;
    return even(k, all, kn_ceil_div(all, kn_ceil_div(all, band)), most < 1 ? 1 : most);
}

/* What is no constant and has its rows pages apart comes in short runs, each of another page, for which panels of short vectors are no whole lines:
 * several of them in runs of as many lines (3x3x512x512 on 7x7 places: 0.86 of the time). They share the block's time in L1, their partial sums and
 * themselves are a quarter of L2 at most, and every core has some of these tasks. */
static int64_t group_of(const packed *k)
{
    enum { MOST = 4, TASKS = 2 };
    const kn_site *x = k->x;
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    if (!k->copied || !k->panels || k->turns || k->layer || k->dots || !k->kb || k->p < 0 || !l2 || !kn_cpu_short_vectors(x)) return 1;
    if (!pages_apart(k)) return 1;
    int64_t panel = k->nv * k->lanes, panels = kn_ceil_div(extent(k, x->n), panel), block = k->kb * panel * kn_packed_bytes(k), g = MOST;
    if (k->taps >= 0) block *= extent(k, k->taps);
    int64_t sums = extent(k, k->p) * extent(k, k->q) * panel * kn_cpu_acc_bytes(x);
    while (g > 1 && (g * (block + sums) > l2->capacity_bytes / 4 || kn_ceil_div(panels, g) < TASKS * (int64_t)x->hw->units)) g--;
    return g;
}

/* The rows' own axis is cut into bands. */
static bool banded(const packed *k) { return k->p < 0 && k->band > 1; }

static void put_splits(kn_buf *b, const packed *k)
{
    const kn_site *x = k->x;
    kn_putf(b, "split %s %s", x->name, name(k, x->n));
    if (k->group > 1) kn_putf(b, " %lld", (long long)k->group);
    kn_putf(b, " %lld %lld\n", (long long)k->nv, (long long)k->lanes);
    if (banded(k)) kn_putf(b, "split %s %s %lld %lld\n", x->name, name(k, k->q), (long long)k->band, (long long)k->mr);
    else kn_putf(b, "split %s %s %lld\n", x->name, name(k, k->q), (long long)k->mr);
    if (k->mp > 1) kn_putf(b, "split %s %s %lld %lld\n", x->name, name(k, k->p), (long long)(k->band / k->mp), (long long)k->mp);
    else if (k->p >= 0) kn_putf(b, "split %s %s %lld\n", x->name, name(k, k->p), (long long)k->band);
    if (k->kb && k->dots && k->blocked == k->dot.run)
        kn_putf(b, "split %s %s %lld %lld\n", x->name, name(k, k->blocked), (long long)(k->kb / k->terms), (long long)k->terms);
    else if (k->kb) kn_putf(b, "split %s %s %lld\n", x->name, name(k, k->blocked), (long long)k->kb);
    if (k->dots && (!k->kb || k->blocked != k->dot.run)) kn_putf(b, "split %s %s %lld\n", x->name, name(k, k->dot.run), (long long)k->terms);
}

/* The loop of the terms that an instruction sums. */
static void put_terms(kn_buf *b, const packed *k)
{
    if (k->dots) kn_putf(b, " %s.%d", name(k, k->dot.run), k->kb && k->blocked == k->dot.run ? 2 : 1);
}

/* Loops of a few iterations are written out, from the innermost one on; but not around a tile that fills the registers, where what is loaded for
 * the next terms would drive sums out of them. */
static void put_unrolled(kn_buf *b, const packed *k)
{
    enum { MOST = KN_CPU_UNROLLED };
    int64_t body = k->mr * k->nv;
    if (k->taps >= 0) kn_putf(b, "unroll %s %s.0\n", k->x->name, name(k, k->taps));
    if (k->taps >= 0 || k->dots || (!k->beside && 2 * body > k->x->hw->vector_registers)) return;
    for (int r = k->x->s->naxes - k->x->s->nspatial - 1; r >= 0; r--) {
        int i = k->order[r];
        bool cut = k->kb && i == k->blocked;
        if (extent(k, i) < 2) continue;
        if (k->uneven >> i & 1) return;
        if (cut || (k->kb && !cut) || !kn_mul_fits(body, extent(k, i), &body) || body > MOST) return;
        kn_putf(b, "unroll %s %s.0\n", k->x->name, name(k, i));
    }
}

/* So few vectors of columns that cores' shares of them leave a register tile one vector wide, and so many places that packing all for each band of
 * them takes less than that. */
static bool few_panels(const packed *k)
{
    enum { PLACES = 32 };
    int64_t places = (k->p < 0 ? 1 : extent(k, k->p)) * extent(k, k->q), units = k->x->hw->units;
    return extent(k, k->x->n) <= k->lanes * (2 * units - 1) && places >= PLACES * units;
}

bool kn_packed_in_panels(const packed *k)
{
    const kn_hw_level *l2 = kn_hw_level_named(k->x->hw, "l2");
    if (!l2 || bytes_of_constant(k) > l2->capacity_bytes / 2) return true;
    if (k->turns && !few_panels(k) && extent(k, k->x->n) > k->lanes * (k->x->hw->units - 1)) return true; /* each is packed once */
    return k->p < 0 && extent(k, k->q) < 8 * 14 * (int64_t)k->x->hw->units; /* too few tiles for bands */
}

/* The longest that one of so many tasks' cores has to do, by what it would be if all had the same. */
static double uneven(const packed *k, int64_t tasks)
{
    int64_t units = k->x->hw->units;
    return (double)(kn_ceil_div(tasks, units) * units) / (double)tasks;
}

/* Rows in one axis that meet panels: the cores share the rows, and each reads all of the constant, or they share the panels, and each reads all rows,
 * most of which others have written, and writes between what others write. What takes less, computed and brought from what the cores share. */
static bool in_shares(packed *k)
{
    const kn_site *x = k->x;
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2"), *l3 = kn_hw_level_named(x->hw, "l3");
    k->shares = false;
    int64_t tiles = kn_ceil_div(extent(k, k->q), k->mr), units = x->hw->units, panels = tasks_of(k);
    double gbs = (l3 ? l3 : &x->hw->levels[0])->bandwidth_gbs, gflops = kn_hw_peak_gflops(x->hw, x->t->program->tensors[x->s->out].dtype);
    if (k->p >= 0 || k->padded || units < 2 || tiles < 4 * units || !l2 || gbs <= 0 || gflops <= 0) return false;
    double points = 2, w = (double)bytes_of_constant(k), rows = (double)bytes_of(k, &x->load[k->v]), out = (double)bytes_of(k, &x->store);
    for (int i = 0; i < x->s->naxes; i++) points *= (double)x->s->axes[i].extent;
    double others = 1 - 1 / (double)units; /* of what is shared */
    double near = (double)l2->capacity_bytes, bands = rows / (near / 4); /* of rows that stay near while all panels pass by */
    double again = rows > near / 2 ? (double)panels : others * (double)units, passes = w > near / 2 && bands > (double)units ? bands : (double)units;
    double by_panels = points / gflops * uneven(k, panels) + (w + rows * again + out * others) / gbs;
    double by_rows = points / gflops * uneven(k, tiles < 8 * units ? tiles : 8 * units) + w * passes / gbs;
    return by_rows < by_panels;
}

int kn_cpu_taps(const kn_site *x)
{
    packed k;
    return packed_of(x, &k) && k.q >= 0 && k.beside && k.padded && !(x->load[k.w].linear && x->load[k.w].coef[x->n] == 1) ? k.w : -1;
}

/* Its padding is filled in once, ahead: every panel would fill it in again. */
int kn_cpu_packed_pads(const kn_site *x)
{
    packed k;
    return packed_of(x, &k) && k.q >= 0 && k.padded && kn_packed_in_panels(&k) && !k.beside ? k.v : -1;
}

/* The constant's copy before the first call, or one that a task makes: `blocks`: of one panel, each packed when its turn comes. */
static void put_packed(kn_buf *b, const packed *k, bool blocks, const char *rows)
{
    const kn_site *x = k->x;
    const char *n = name(k, x->n), *at = blocks ? name(k, k->order[x->s->naxes - x->s->nspatial - 1]) : rows;
    int in = k->group > 1; /* which part of n is that of panels in a group, if there are groups; then a panel's vectors */
    bool own = k->copied && k->panels; /* a task has one panel of one group */
    if (blocks && k->turns) at = name(k, k->blocked);
    if (k->copied) kn_putf(b, "cache_read %s %d scratch %s.0 loops", x->name, k->w, at);
    else kn_putf(b, "prepack %s %d", x->name, k->w);
    for (int i = 0; i < x->s->nspatial; i++)
        if (has(k, k->w, i) && i != x->n && (!k->copied || is_other(k, i, true))) kn_putf(b, " %s.0", name(k, i));
    if (!own) kn_putf(b, " %s.0", n);
    if (in) kn_putf(b, " %s.1", n);
    if (k->streams) kn_putf(b, " %s.1", n);
    if (k->kb && !blocks) put_reduction(b, k, true);
    if (k->turns) kn_cpu_put_run(b, x, k->w, k->blocked, k->kb > 0);
    else put_reduction(b, k, false);
    if (!k->streams) kn_putf(b, " %s.%d", n, in + 1);
    kn_putf(b, " %s.%d", n, in + 2);
    put_terms(b, k);
    kn_put(b, "\n");
}

/* A constant that L2 does not hold, met by a few tiles of rows: fetching it takes as long as the products or longer. A single run from end to end
 * comes slower than several side by side, each in pages of its own, as prefetchers begin anew at every page (4x4096x1024: 0.6 of the time on an Ice
 * Lake). */
static bool in_streams(const packed *k)
{
    enum { FEW_TILES = 4 };
    const kn_hw_level *l2 = kn_hw_level_named(k->x->hw, "l2");
    if (!l2 || k->copied || k->lies || k->beside || k->padded || k->p >= 0 || k->nv < 2 || bytes_of_constant(k) <= l2->capacity_bytes) return false;
    return kn_ceil_div(extent(k, k->q), k->mr) <= FEW_TILES;
}

/* The register tile's loops: places, vectors and lanes, the first two in the order in which registers hold what they read. */
static void put_tile(kn_buf *b, const packed *k, int cut, int in)
{
    const char *n = name(k, k->x->n), *q = name(k, k->q);
    bool vectors = kn_packed_by_vectors(k);
    kn_put(b, " |");
    if (vectors) kn_putf(b, " %s.%d", n, in + 1);
    if (k->mp > 1) kn_putf(b, " %s.2", name(k, k->p));
    kn_putf(b, " %s.%d", q, cut + 1);
    if (!vectors) kn_putf(b, " %s.%d", n, in + 1);
    kn_putf(b, " %s.%d", n, in + 2);
}

static void try_tile(packed *k, kn_plans *plans)
{
    const kn_site *x = k->x;
    k->streams = in_streams(k);
    bool panels = k->panels = kn_packed_in_panels(k), shares = k->shares = panels && !k->turns && in_shares(k);
    const char *n = name(k, x->n), *q = name(k, k->q), *p = k->p >= 0 ? name(k, k->p) : NULL;
    k->band = band_of(k);
    k->group = group_of(k);
    int in = k->group > 1;
    bool cut = banded(k);
    if (k->copied && !p && !cut && !(k->turns && panels)) return;
    kn_buf b;
    kn_buf_init(&b, plans->a);
    kn_putn(&b, x->before.p ? x->before.p : "", x->before.n);
    if (k->layer) kn_packed_put_layers(&b, k);
    put_splits(&b, k);
    kn_putf(&b, "reorder %s", x->name);
    put_others(&b, k, false, " %s.0");
    if (panels && !shares) kn_putf(&b, " %s.0", n);
    if (p || cut) kn_putf(&b, " %s.0", p ? p : q);
    kn_put(&b, " |");
    if (shares) kn_putf(&b, " %s.0", n);
    if (k->kb) put_reduction(&b, k, true);
    if (in) kn_putf(&b, " %s.1", n);
    for (int i = 0; i < x->s->nspatial; i++)
        if (meets_block(k, i)) kn_putf(&b, " %s.0", name(k, i));
    if (p) kn_putf(&b, " %s.1", p);
    kn_putf(&b, " %s.%d", q, cut);
    put_others(&b, k, true, " %s.0");
    if (!panels) kn_putf(&b, " %s.0", n); /* results are written from end to end; the constant stays in L2 */
    put_reduction(&b, k, false);
    put_tile(&b, k, cut, in);
    put_terms(&b, k);
    kn_put(&b, "\n");
    for (int i = 0; i < x->s->nspatial; i++)
        if (is_other(k, i, false)) kn_putf(&b, "parallel %s %s.0\n", x->name, name(k, i));
    if (panels && !shares) kn_putf(&b, "parallel %s %s.0\n", x->name, n);
    if (p || cut) kn_putf(&b, "parallel %s %s.0\n", x->name, p ? p : q);
    put_unrolled(&b, k);
    if (k->mp > 1) kn_putf(&b, "unroll %s %s.2\n", x->name, p);
    kn_putf(&b, "unroll %s %s.%d\nunroll %s %s.%d\n", x->name, q, cut + 1, x->name, n, in + 1);
    if (k->dots) kn_putf(&b, "tensorize %s %s.2 %s\n", x->name, n, k->dot.it->name);
    else kn_putf(&b, "vectorize %s %s.%d\n", x->name, n, in + 2);
    bool blocks = k->copied && panels && !at_once(k);
    if (!k->lies) put_packed(&b, k, blocks, p ? p : q);
    if (k->boxed) kn_putf(&b, "cache_read %s %d scratch %s.0 region\n", x->name, k->v, p ? p : panels ? n : q);
    kn_plans_try(plans, &b);
}

/* Blocks of the reduction, near a divisor of the axis: of the constant what leaves half of L1 to the rows; or (strips) so long that the tile's rows
 * take three eighths of L1, past which the constant streams from L2. Longer blocks begin tiles, and move partial sums, less often. With few
 * registers all are of one length, if that takes no more than half as many again: compilers write out steps of loops whose ends they know. */
static int64_t block_of(const packed *k, bool strips)
{
    if (k->turns) return kn_cpu_squares_block(k->x, k->w, k->blocked, k->nv * k->lanes * kn_packed_bytes(k), k->lanes, k->terms);
    const kn_hw_level *l1 = kn_hw_level_named(k->x->hw, "l1");
    int64_t line = strips ? k->mr * k->x->load[k->v].bytes : k->nv * k->lanes * kn_packed_bytes(k), all = extent(k, k->blocked);
    if (k->taps >= 0) line *= extent(k, k->taps);
    int64_t room = l1 ? l1->capacity_bytes / 8 * (strips ? 3 : 4) / line : 0;
    bool few = kn_hw_few_registers(k->x->hw);
    if (room < 8 || 2 * all < (strips ? 3 : 4) * room) return 0;
    int64_t block = kn_ceil_div(all, kn_ceil_div(all, room));
    for (int64_t n = block; !strips && few && 3 * n >= 2 * block; n--)
        if (all % n == 0 && n % k->terms == 0) return n;
    return kn_round_up(block, k->terms);
}

/* Of a large constant: tasks are what L2 is to hold, of few rows a core's share of the columns, else a block of rows that meets all panels. Each goes
 * through the reduction block by block: the rows of a tile stay in L1 while a panel's block streams past them, partial sums wait near. Many rows only
 * where they lie so far apart that they fall into few sets of the caches, and their segments are copied beside each other: others stream. */
static bool try_blocks(packed *k, kn_plans *plans)
{
    enum { FEW_TILES = 24, APART = 2048, SET = 1024 };
    const kn_site *x = k->x;
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    const kn_site_access *a = &x->load[k->v];
    int64_t tiles = kn_ceil_div(extent(k, k->q), k->mr), panels = kn_ceil_div(extent(k, x->n), k->nv * k->lanes);
    k->kb = k->beside ? 0 : block_of(k, true);
    if (!l2 || k->p >= 0 || k->padded || !a->linear || !k->kb || bytes_of_constant(k) <= l2->capacity_bytes / 2) return false;
    int64_t most = l2->capacity_bytes / 4 / (k->mr * k->kb * a->bytes), blocks = kn_ceil_div(tiles, most < 1 ? 1 : most);
    int64_t step = a->coef[k->q] * a->bytes;
    int few = tiles <= FEW_TILES, cut = !few; /* n is cut into tasks, or the rows are */
    if (cut && (step <= APART || step % SET)) return false;
    int64_t per = few ? kn_ceil_div(panels, x->hw->units) : kn_ceil_div(tiles, kn_round_up(blocks, x->hw->units));
    const char *n = name(k, x->n), *q = name(k, k->q), *task = few ? n : q;
    bool streams = in_streams(k);
    kn_buf b;
    kn_buf_init(&b, plans->a);
    k->panels = true;
    kn_putn(&b, x->before.p ? x->before.p : "", x->before.n);
    kn_putf(&b, "split %s %s", x->name, n);
    if (few) kn_putf(&b, " %lld", (long long)per);
    kn_putf(&b, " %lld %lld\nsplit %s %s", (long long)k->nv, (long long)k->lanes, x->name, q);
    if (cut) kn_putf(&b, " %lld", (long long)per);
    kn_putf(&b, " %lld\nsplit %s %s %lld\nreorder %s", (long long)k->mr, x->name, name(k, k->blocked), (long long)k->kb, x->name);
    put_others(&b, k, false, " %s.0");
    kn_putf(&b, " %s.0 |", task);
    put_reduction(&b, k, true);
    kn_putf(&b, " %s.%d %s.%d", n, few, q, cut);
    put_reduction(&b, k, false);
    put_tile(&b, k, cut, few);
    kn_put(&b, "\n");
    for (int i = 0; i < x->s->nspatial; i++)
        if (is_other(k, i, false)) kn_putf(&b, "parallel %s %s.0\n", x->name, name(k, i));
    kn_putf(&b, "parallel %s %s.0\nunroll %s %s.%d\nunroll %s %s.%d\n", x->name, task, x->name, q, cut + 1, x->name, n, few + 1);
    kn_putf(&b, "vectorize %s %s.%d\nprepack %s %d", x->name, n, few + 2, x->name, k->w);
    for (int i = 0; i < x->s->nspatial; i++)
        if (has(k, k->w, i) && i != x->n) kn_putf(&b, " %s.0", name(k, i));
    if (few) kn_putf(&b, " %s.0", n);
    put_reduction(&b, k, true);
    kn_putf(&b, " %s.%d", n, few);
    if (streams) kn_putf(&b, " %s.%d", n, few + 1);
    put_reduction(&b, k, false);
    if (!streams) kn_putf(&b, " %s.%d", n, few + 1);
    kn_putf(&b, " %s.%d\n", n, few + 2);
    int64_t line = x->hw->levels[x->hw->nlevels - 1].transaction_bytes;
    if (cut)
        kn_putf(&b, "cache_read %s %d scratch %s.0 region pad %lld\n", x->name, k->v, name(k, k->blocked), (long long)(line / a->bytes));
    kn_plans_try(plans, &b);
    return plans->n > 0;
}

/* Rows that go along panels of long sums, which stay in L2 meanwhile; fewer rows leave no time to bring the next panels, which had better stream.
 * Blocks only where the sums are longer than L2 allows. */
static bool try_deep(packed *k, kn_plans *plans)
{
    enum { ROWS = 512 };
    const kn_site *x = k->x;
    kn_cpu_tile t = {.lanes = k->lanes};
    if (k->beside || k->p >= 0 || k->padded || k->q != x->m || extent(k, k->q) < ROWS || !x->load[k->v].linear) return false;
    bool blocks = kn_cpu_in_one_set(x) && kn_cpu_blocks_of(x, &t); /* a panel's block meets all rows of a task, which are copied */
    if (!blocks) t = (kn_cpu_tile){.lanes = k->lanes};
    if (!blocks && !kn_cpu_deep(x, &t)) return false;
    if (t.kb > 1 && t.blocked != k->blocked) return false;
    const char *n = name(k, x->n), *q = name(k, k->q);
    kn_buf b;
    kn_buf_init(&b, plans->a);
    k->panels = true;
    k->kb = t.kb > 1 ? t.kb : 0;
    kn_putn(&b, x->before.p ? x->before.p : "", x->before.n);
    kn_putf(&b, "split %s %s %lld %lld %lld\n", x->name, n, (long long)t.nc, (long long)t.nv, (long long)t.lanes);
    kn_putf(&b, "split %s %s %lld %lld\n", x->name, q, (long long)t.mc, (long long)t.mr);
    if (k->kb) kn_putf(&b, "split %s %s %lld\n", x->name, name(k, k->blocked), (long long)k->kb);
    kn_putf(&b, "reorder %s", x->name);
    put_others(&b, k, false, " %s.0");
    kn_putf(&b, " %s.0 %s.0 |", q, n);
    if (k->kb) put_reduction(&b, k, true);
    kn_putf(&b, " %s.1 %s.1", blocks ? n : q, blocks ? q : n);
    put_reduction(&b, k, false);
    kn_putf(&b, " | %s.2 %s.2 %s.3\n", q, n, n);
    for (int i = 0; i < x->s->nspatial; i++)
        if (is_other(k, i, false)) kn_putf(&b, "parallel %s %s.0\n", x->name, name(k, i));
    kn_putf(&b, "parallel %s %s.0\nparallel %s %s.0\nunroll %s %s.2\nunroll %s %s.2\n", x->name, q, x->name, n, x->name, q, x->name, n);
    kn_putf(&b, "vectorize %s %s.3\nprepack %s %d", x->name, n, x->name, k->w);
    for (int i = 0; i < x->s->nspatial; i++)
        if (has(k, k->w, i) && i != x->n) kn_putf(&b, " %s.0", name(k, i));
    kn_putf(&b, " %s.0", n);
    if (k->kb) put_reduction(&b, k, true);
    kn_putf(&b, " %s.1", n);
    put_reduction(&b, k, false);
    kn_putf(&b, " %s.2 %s.3\n", n, n);
    if (blocks) kn_cpu_put_row_caches(&b, x, &t);
    kn_plans_try(plans, &b);
    return plans->n > 0;
}

int64_t kn_cpu_packed_rows(const kn_site *x, int *q, int *p)
{
    packed k;
    if (!packed_of(x, &k) || k.q < 0 || k.p < 0 || k.dots || k.beside || k.padded || !kn_packed_choose(&k, false)) return 0;
    *q = k.q, *p = k.p;
    return k.mr;
}

int kn_cpu_written_taps(const kn_site *x)
{
    packed k;
    return packed_of(x, &k) && k.q >= 0 && !(k.beside && k.padded) && kn_packed_choose(&k, false) ? k.taps : -1;
}

/* What L2 does not hold, that is no constant: each panel's task packs it block by block, once for all rows of a band of the image, or of all images,
 * whose partial sums stay near. Of fewer panels than cores each packs what its band of many rows meets. */
static bool in_copied_blocks(const packed *k)
{
    enum { ROWS = 32, MANY = 128 };
    packed c = *k;
    int64_t places = extent(k, k->p) * extent(k, k->q), images = images_of(k), units = k->x->hw->units;
    if (!kn_packed_choose(&c, false)) return false;
    int64_t met = sums_stay(&c, images * places) ? images * places : places;
    if (met < ROWS) return false;
    int64_t panels = kn_ceil_div(extent(k, k->x->n), c.nv * c.lanes);
    for (int i = 0; i < k->x->s->nspatial; i++) if (has(k, k->w, i) && i != k->x->n) panels *= extent(k, i);
    return panels >= units || places >= MANY * units;
}

/* Of short vectors a panel of all terms comes from L2 as fast as tiles want it, in longer runs than blocks, and without partial sums (196x256x1024:
 * 0.73 of the time of blocks, 49x2048x1024: 0.94). */
bool kn_cpu_packed(const kn_site *x, kn_plans *plans)
{
    packed k;
    if (!packed_of(x, &k) || k.q < 0 || (k.beside && k.padded) || !kn_packed_choose(&k, true)) return false;
    if (!k.copied && !k.dots && !k.lies && (try_deep(&k, plans) || try_blocks(&k, plans))) return true;
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    if (k.layer) k.kb = k.layer, try_tile(&k, plans);
    if (plans->n) return true;
    if (k.layer && !kn_packed_choose(&k, false)) return false;
    int64_t block = k.beside ? 0 : block_of(&k, false);
    bool far = l2 && k.nv * k.lanes * x->reduce_extent * kn_packed_bytes(&k) > l2->capacity_bytes / 2; /* the next panel has no room beside one */
    bool copied = k.copied && kn_packed_in_panels(&k) && !at_once(&k);
    if (copied && !block) block = extent(&k, k.blocked);
    if (!block || (!far && !copied)) try_tile(&k, plans);
    k.kb = block;
    if (block && (far || copied || !(k.dots || kn_cpu_short_vectors(x)))) try_tile(&k, plans);
    return plans->n > 0;
}
