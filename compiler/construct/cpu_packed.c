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
int64_t kn_packed_met(const packed *k, const kn_site_access *a)
{
    int64_t n = a->bytes;
    for (int i = 0; i < k->x->s->naxes; i++)
        if (a->axes >> i & 1 && !kn_mul_fits(n, kn_cpu_extent(k->x, i), &n)) return INT64_MAX / 4;
    return n;
}

/* Of an element of the copy, which is of sums' dtype but for dots. */
int64_t kn_packed_bytes(const packed *k) { return k->dots ? k->x->load[k->w].bytes : kn_cpu_acc_bytes(k->x); }

int64_t kn_packed_all(const packed *k) { return kn_packed_met(k, &k->x->load[k->w]); }

/* A factor that is no constant, of rows in one axis: so small that tiles of rows meet all of it from near, one after the other, where results
 * outweigh rows, go out to memory and had better be written from end to end. */
static bool worth_passing(const packed *k, int64_t l2)
{
    enum { TERMS = 32, ROWS = 512 };
    const kn_site *x = k->x;
    int64_t out = kn_packed_met(k, &x->store);
    if (x->reduce_extent < TERMS || extent(k, x->n) % k->lanes || kn_packed_all(k) > l2 / 16) return false;
    return out > l2 && out >= 2 * kn_packed_met(k, &x->load[k->v]) && extent(k, k->q) >= ROWS * (int64_t)x->hw->units;
}

static bool in_copied_blocks(const packed *k);

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

/* So few columns, which cores would share as panels a vector wide: where registers are few, tiles of 3 by 4 sums along both factors take less than
 * that (131x9x4096, 70x12x3028, 73x13x4093, 100x15x2048, 200x11x1000: 0.42 to 0.66 of the time; 131x16x1000: 1; 500x10x64: 1.18). */
static bool few_columns(const packed *k, int64_t rows)
{
    enum { VECTORS = 2, ROWS = 112 };
    return kn_hw_few_registers(k->x->hw) && extent(k, k->x->n) <= VECTORS * k->lanes && rows < ROWS * (int64_t)k->x->hw->units;
}

/* A factor that is no constant: a task's share of the rows is worth a copy of it. */
static bool worth_copies(const packed *k)
{
    enum { FEW_ROWS = 32 };
    int64_t rows = rows_of_other(k);
    const kn_hw_level *l2 = kn_hw_level_named(k->x->hw, "l2");
    if (k->q < 0 || !l2) return false;
    if (kn_packed_in_groups(k) && (k->p < 0 || k->turns || k->dots || k->uneven)) return false;
    if (k->turns) return k->dots || !along_both(k) || (rows >= FEW_ROWS && !few_columns(k, rows));
    if (k->p < 0) return worth_passing(k, l2->capacity_bytes);
    if (!kn_packed_near(k)) return in_copied_blocks(k);
    return many_places(k);
}

/* Results of each place go along the factor's groups: all of a place's are written before the next one's (512 to 576 channels of 69x69 places in 32
 * groups: 0.7 of the time by groups). */
static bool along_groups(const packed *k)
{
    for (int i = 0; i < k->x->s->nspatial; i++)
        if (i != k->x->n && has(k, k->w, i) && has(k, k->v, i) && extent(k, i) > 1 && k->x->store.coef[i] < k->x->store.coef[k->q]) return true;
    return false;
}

/* A factor that is no constant, of a window or of groups, which stays near, in rows that are vectors as they lie: a copy would be no better. */
static bool lies_well(const packed *k)
{
    const kn_site_access *a = &k->x->load[k->w];
    const kn_hw_level *l2 = kn_hw_level_named(k->x->hw, "l2");
    int64_t row = extent(k, k->x->n) * a->bytes;
    if (k->q < 0 || (k->p < 0 && !along_groups(k))) return false;
    if (!l2 || !a->linear || a->coef[k->x->n] != 1 || extent(k, k->x->n) < k->lanes || row > KN_CPU_APART) return false;
    return kn_packed_all(k) <= l2->capacity_bytes / 2 && !(k->uneven && kn_packed_in_groups(k));
}

/* L1 holds far from all of that factor, and so many places of a band meet a panel of it that packing all of it for each takes less than short runs
 * from L2 do. */
static bool bands_meet_copies(const packed *k)
{
    enum { PLACES = 200 };
    const kn_hw_level *l1 = kn_hw_level_named(k->x->hw, "l1");
    packed c = *k;
    c.copied = true;
    if (!l1 || !kn_hw_few_registers(k->x->hw) || kn_packed_all(k) <= l1->capacity_bytes + l1->capacity_bytes / 4) return false;
    if (!worth_copies(&c) || !kn_packed_choose(&c, false) || c.nv * c.lanes >= extent(k, k->x->n)) return false; /* such a row is a panel's */
    return kn_packed_band(&c) * extent(&c, c.q) >= PLACES;
}

/* A constant of long rows that are met in a few terms, and results that L1 does not hold: writing these takes as long as all else, and the rows are
 * as good as they lie (cpu_sums.c). */
static bool outweighed(const packed *k)
{
    enum { TERMS = 16, VECTORS = 8 };
    const kn_site_access *a = &k->x->load[k->w];
    const kn_hw_level *l1 = kn_hw_level_named(k->x->hw, "l1");
    if (!l1 || k->padded || k->beside || k->p >= 0 || !a->linear || a->coef[k->x->n] != 1 || !k->x->load[k->v].linear) return false;
    return k->x->reduce_extent < TERMS && extent(k, k->x->n) >= VECTORS * k->lanes && kn_packed_met(k, &k->x->store) > l1->capacity_bytes;
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
    /* channels last: 9 to 11 results in vectors of 16 1.05 to 1.9 times as fast as otherwise, in groups 0.7 to 1.2, 5 in half a vector 0.7 */
    int64_t quarters = k->lanes < full || kn_packed_in_groups(k) ? 3 : 2;
    if (extent(k, x->n) * 4 < k->lanes * quarters || (!k->copied && outweighed(k))) return false;
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
    int64_t places = extent(k, k->p) * extent(k, k->q), images = kn_packed_images(k), units = k->x->hw->units;
    if (!kn_packed_choose(&c, false)) return false;
    int64_t met = kn_packed_sums_stay(&c, images * places) ? images * places : places;
    if (met < ROWS) return false;
    int64_t panels = kn_ceil_div(extent(k, k->x->n), c.nv * c.lanes);
    for (int i = 0; i < k->x->s->nspatial; i++) if (has(k, k->w, i) && i != k->x->n) panels *= extent(k, i);
    return panels >= units || places >= MANY * units;
}

/* Of short vectors a panel of all terms comes from L2 as fast as tiles want it, in longer runs than blocks, and without partial sums (196x256x1024:
 * 0.73 of the time of blocks, 49x2048x1024: 0.94; 131x24x1500 0.74, 400x24x2048 0.65); of long ones a tile's rows stay in L1 for a block. A single
 * panel is met by each row once, from end to end, and has no blocks either (4096x1024x16, 1000x2048x16, 1000x3000x48: 1.5, 1.25, 1.15 times as fast;
 * 200x1024x16, 300x1024x48: 1.0, 1.04). */
bool kn_cpu_packed(const kn_site *x, kn_plans *plans)
{
    packed k;
    if (!packed_of(x, &k) || k.q < 0 || (k.beside && k.padded) || !kn_packed_choose(&k, true)) return false;
    if (!k.copied && !k.dots && !k.lies && kn_packed_far(&k, plans)) return true;
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    k.kb = k.layer;
    if (k.layer) kn_packed_try(&k, plans);
    if (plans->n) return true;
    if (k.layer && !kn_packed_choose(&k, false)) return false;
    bool single = k.p < 0 && !k.padded && extent(&k, x->n) <= k.nv * k.lanes;
    k.kb = kn_cpu_short_vectors(x) || single || k.copied || k.dots || k.lies || k.beside ? 0 : kn_packed_block(&k, true);
    int64_t block = k.beside ? 0 : kn_packed_block(&k, false);
    bool far = l2 && k.nv * k.lanes * x->reduce_extent * kn_packed_bytes(&k) > l2->capacity_bytes / 2; /* the next panel has no room beside one */
    bool copied = k.copied && kn_packed_in_panels(&k) && !kn_packed_at_once(&k);
    if (copied && !block) block = extent(&k, k.blocked);
    if (!block || (!far && !copied)) kn_packed_try(&k, plans);
    k.kb = block;
    if (block && (far || copied || !(single || k.dots || kn_cpu_short_vectors(x)))) kn_packed_try(&k, plans);
    return plans->n > 0;
}
