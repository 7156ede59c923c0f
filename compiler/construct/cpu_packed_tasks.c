/* What a sum of products with a packed factor makes tasks of: panels of the factor, bands of the rows, or shares of these; and how many of each a
 * core takes. */
#include "construct/packed.h"

/* A spatial axis but n and the rows, along which the packed factor stays the same. */
static bool is_image(const packed *k, int i) { return i < k->x->s->nspatial && i != k->x->n && i != k->q && i != k->p && !has(k, k->w, i); }

/* Places along all of these for one of the rows; phases that do not have all of the terms are none of them. */
int64_t kn_packed_images(const packed *k)
{
    int64_t n = 1;
    if (k->uneven) return 1;
    for (int i = 0; i < k->x->s->nspatial; i++)
        if (is_image(k, i) && !kn_mul_fits(n, extent(k, i), &n)) return INT64_MAX / 64;
    return n;
}

/* A panel's partial sums of so many places, which come back with every block, stay in a quarter of L2. */
bool kn_packed_sums_stay(const packed *k, int64_t places)
{
    const kn_hw_level *l2 = kn_hw_level_named(k->x->hw, "l2");
    return l2 && places <= l2->capacity_bytes / 4 / (k->nv * k->lanes * kn_cpu_acc_bytes(k->x));
}

/* All along the axis meets a block that has been turned, or packed, before the next one is. */
bool kn_packed_meets_block(const packed *k, int i)
{
    if (!k->panels || !is_image(k, i)) return false;
    if (k->turns) return true;
    if (!k->copied || k->p < 0 || k->dots || k->uneven || extent(k, i) < 2) return false;
    return kn_packed_sums_stay(k, kn_packed_images(k) * extent(k, k->p) * extent(k, k->q));
}

bool kn_packed_in_groups(const packed *k)
{
    for (int i = 0; i < k->x->s->nspatial; i++) if (has(k, k->w, i) && i != k->x->n && extent(k, i) > 1) return true;
    return false;
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
bool kn_packed_is_other(const packed *k, int i, bool beside)
{
    const kn_site *x = k->x;
    if (kn_packed_meets_block(k, i)) return false;
    bool near = has(k, k->w, i) && x->store.coef[i] > 0 && x->store.coef[i] < x->store.coef[k->q] && !(k->boxed && among_results(k, i));
    return i != x->n && i != k->q && i != k->p && (near && !k->panels) == beside;
}

static int64_t tasks_of(const packed *k)
{
    int64_t n = k->panels && !k->shares ? kn_ceil_div(extent(k, k->x->n), k->nv * k->lanes) : 1;
    for (int i = 0; i < k->x->s->nspatial; i++)
        if (kn_packed_is_other(k, i, false) && !kn_mul_fits(n, extent(k, i), &n)) return INT64_MAX / 64;
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
    return l2 && k->copied && kn_packed_in_groups(k) && k->x->reduce_extent * extent(k, k->x->n) * kn_packed_bytes(k) <= l2->capacity_bytes / 2;
}

/* The same of what lies in no layers, where vectors are short, L2 holds a panel of all terms and places enough meet it (12 windows without padding,
 * plain: 1.09 times as fast as blocks; 192x73x73 by 2 to 192 1.24, 480x54x8 of 1x5 to 88 1.3; 360x10x10 to 192 0.95). */
bool kn_packed_at_once(const packed *k)
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
int64_t kn_packed_band(const packed *k)
{
    if (k->p < 0 && k->panels && !k->shares) return 1;
    if (k->p >= 0 && k->panels && (k->turns || (k->layer && k->copied))) {
        int64_t panels = kn_ceil_div(extent(k, k->x->n), k->nv * k->lanes), bands = kn_ceil_div(k->x->hw->units, panels);
        return kn_round_up(kn_ceil_div(extent(k, k->p), k->turns ? 1 : bands), k->mp);
    }
    if (k->p >= 0 && k->panels && kn_packed_at_once(k)) { /* few, as each packs a panel */
        int64_t rows = extent(k, k->p), bands = kn_ceil_div(k->x->hw->units, tasks_of(k));
        return kn_round_up(even(k, rows, kn_ceil_div(rows, bands), rows), k->mp);
    }
    const kn_hw_level *l2 = kn_hw_level_named(k->x->hw, "l2");
    if (k->layer) return band_of_layers(k, l2 ? l2->capacity_bytes : 262144);
    const kn_site_access *a = &k->x->load[k->v];
    int axis = k->p < 0 ? k->q : k->p;
    int64_t tile = k->p < 0 ? k->mr : 1, all = kn_ceil_div(extent(k, axis), tile), want = 4 * (int64_t)k->x->hw->units;
    int64_t row = tile * a->bytes * (a->linear && a->coef[axis] > 0 ? a->coef[axis] : 1);
    int64_t met = kn_packed_met(k, a) / kn_ceil_div(extent(k, axis), tile);
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
int64_t kn_packed_group(const packed *k)
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

/* So few vectors of columns that cores' shares of them leave a register tile one vector wide, and so many places that packing all for each band of
 * them takes less than that. */
static bool few_panels(const packed *k)
{
    enum { PLACES = 32 };
    int64_t places = (k->p < 0 ? 1 : extent(k, k->p)) * extent(k, k->q), units = k->x->hw->units;
    return extent(k, k->x->n) <= k->lanes * (2 * units - 1) && places >= PLACES * units;
}

/* L2 holds all of the packed factor beside the rows of a band; or most of L2 does, of a factor that results outweigh by far: these had better go out
 * to memory from end to end than in a panel's pieces of each place's (17 windows, channels last, of 16 times the weights or more, with AVX2 on a
 * Zen 3: plain 0.65 to 1.04 of the time, two cores 0.61 to 1.06, packed 0.85 to 1.07; of 3 to 16 times plain up to 1.5). */
bool kn_packed_near(const packed *k)
{
    enum { OUTWEIGHED = 16 };
    const kn_hw_level *l2 = kn_hw_level_named(k->x->hw, "l2");
    int64_t room = l2 ? l2->capacity_bytes : 0, all = kn_packed_all(k);
    return all <= room / 2 || (all <= room / 8 * 7 && kn_packed_met(k, &k->x->store) / OUTWEIGHED >= all);
}

bool kn_packed_in_panels(const packed *k)
{
    if (!kn_packed_near(k)) return true;
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
bool kn_packed_in_shares(packed *k)
{
    const kn_site *x = k->x;
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2"), *l3 = kn_hw_level_named(x->hw, "l3");
    k->shares = false;
    int64_t tiles = kn_ceil_div(extent(k, k->q), k->mr), units = x->hw->units, panels = tasks_of(k);
    double gbs = (l3 ? l3 : &x->hw->levels[0])->bandwidth_gbs, gflops = kn_hw_peak_gflops(x->hw, x->t->program->tensors[x->s->out].dtype);
    if (k->p >= 0 || k->padded || units < 2 || tiles < 4 * units || !l2 || gbs <= 0 || gflops <= 0) return false;
    double points = 2, w = (double)kn_packed_all(k), rows = (double)kn_packed_met(k, &x->load[k->v]), out = (double)kn_packed_met(k, &x->store);
    for (int i = 0; i < x->s->naxes; i++) points *= (double)x->s->axes[i].extent;
    double others = 1 - 1 / (double)units; /* of what is shared */
    double near = (double)l2->capacity_bytes, bands = rows / (near / 4); /* of rows that stay near while all panels pass by */
    double again = rows > near / 2 ? (double)panels : others * (double)units, passes = w > near / 2 && bands > (double)units ? bands : (double)units;
    double by_panels = points / gflops * uneven(k, panels) + (w + rows * again + out * others) / gbs;
    double by_rows = points / gflops * uneven(k, tiles < 8 * units ? tiles : 8 * units) + w * passes / gbs;
    return by_rows < by_panels;
}

/* A constant that L2 does not hold, met by a few tiles of rows: fetching it takes as long as the products or longer. A single run from end to end
 * comes slower than several side by side, each in pages of its own, as prefetchers begin anew at every page (4x4096x1024: 0.6 of the time on an Ice
 * Lake). */
bool kn_packed_in_streams(const packed *k)
{
    enum { FEW_TILES = 4 };
    const kn_hw_level *l2 = kn_hw_level_named(k->x->hw, "l2");
    if (!l2 || k->copied || k->lies || k->beside || k->padded || k->p >= 0 || k->nv < 2 || kn_packed_all(k) <= l2->capacity_bytes) return false;
    return kn_ceil_div(extent(k, k->q), k->mr) <= FEW_TILES;
}
