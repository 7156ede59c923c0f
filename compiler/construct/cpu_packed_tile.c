/* The register tile of a sum of products with a packed factor: vectors of the factor by places of the other, by what they take. */
#include "construct/packed.h"

/* Of few registers: those of the sums, of all elements or all vectors that a term brings, whichever are fewer, and of one of the others. */
static bool fits(const packed *k, int64_t nv, int64_t places)
{
    return nv * places + (nv < places ? nv : places) + 1 <= k->x->hw->vector_registers;
}

bool kn_packed_by_vectors(const packed *k) { return !k->dots && !k->beside && kn_hw_few_registers(k->x->hw) && k->mr * k->mp < k->nv; }

/* Rows of a tile that is nv vectors wide and takes mp rows of the image, of one size all over the axis. */
static int64_t rows_of(const packed *k, int64_t nv, int64_t mp)
{
    int64_t rows = extent(k, k->q), most = (k->x->hw->vector_registers - nv) / nv;
    if (k->beside) most = 14 / nv; /* so that the taps of a small window can be written out */
    else while (!k->dots && kn_hw_few_registers(k->x->hw) && fits(k, nv, most + 1)) most++;
    most /= mp;
    if (most < 1) return 0;
    /* 2048x1024 by 32 columns: 1.7 times as fast as 13 rows */
    if (k->p < 0 && k->q == k->x->m && kn_cpu_in_one_set(k->x) && most > KN_CPU_OF_ONE_SET) most = KN_CPU_OF_ONE_SET;
    return kn_ceil_div(rows, kn_ceil_div(rows, most > 14 ? 14 : most));
}

/* Partial sums that come and go once a block of the reduction, whose panel half of L1 holds, for each term: in multiply-adds. */
static double time_of_blocks(const packed *k, int64_t nv)
{
    enum { COME_AND_GO = 16 };
    const kn_hw_level *l1 = kn_hw_level_named(k->x->hw, "l1");
    if (!l1 || k->beside || k->p < 0 || !kn_packed_in_panels(k)) return 0;
    return COME_AND_GO * (double)(nv * k->lanes * kn_packed_bytes(k)) / (double)k->terms / ((double)l1->capacity_bytes / 2);
}

/* Tiles of more vectors than elements lose a little to the others; more where the vectors are short runs of rows, from L2, of which each serves few
 * places. */
static double of_vectors(const packed *k, int64_t nv) { return k->lies && nv * k->lanes < extent(k, k->x->n) ? 1.3 : 1.06; }

/* What a tile of nv vectors takes for each of its vectors and rows: a multiply-add, and the loads beside it; short of chains, the latency of a
 * multiply-add. */
static double time_of_each(const packed *k, int64_t nv, int64_t mr)
{
    enum { WITH_BROADCASTS = 32 }; /* registers of instructions that broadcast as they multiply */
    const double broadcast = 0.7;  /* of a vector's load, whose line often comes from L2: windows of 28 and 56 columns take 0.9 of the time with 14 by
                                    * 2 of that with 6 by 4, one element of whose rows in 15 is past the end */
    bool few = kn_hw_few_registers(k->x->hw) && !k->beside;
    double chains = (double)(nv * mr), need = k->x->hw->fma_latency * k->x->hw->fma_per_cycle + (few ? 0.25 : 0); /* loads come late at times */
    bool full = nv * mr + nv >= k->x->hw->vector_registers && !k->beside; /* no register is left for what is broadcast */
    bool apart = k->x->hw->vector_registers < WITH_BROADCASTS; /* elements are broadcast by instructions of their own */
    double loads = k->beside ? (double)(nv * mr + nv) : (double)nv + (apart ? 1 : broadcast) * (double)mr;
    double spilled = !full ? 1 : apart ? 1.3 : 1.1;
    if (few) spilled = !fits(k, nv, mr) ? k->taps >= 0 ? 1.3 : 2 : nv > mr ? of_vectors(k, nv) : 1;
    double slowed = apart || k->beside ? 1 + (apart ? 0.6 : 0.3) * loads / chains : kn_cpu_slowed_by_loads(k->x, k->lanes, loads, chains);
    double each = slowed + time_of_blocks(k, nv);
    return each * (chains < need ? need / chains : 1) * spilled;
}

/* What each task packs is interleaved whole lines of its rows at a time, or parts of them, which take as long each: for each place, in the time of
 * one of the instructions. */
static double time_of_parts(const packed *k, int64_t nv)
{
    enum { PART = 12 };
    const kn_site_access *a = &k->x->load[k->w];
    int64_t line = k->x->hw->vector_bytes / (k->lanes * a->bytes);
    if (!k->copied || k->p < 0 || a->coef[k->x->n] != 1 || nv % line == 0) return 0;
    return PART / (double)(extent(k, k->p) * extent(k, k->q));
}

/* What the tiles of that width take, what is computed beyond the ends among it. The last one of a row has as many vectors as are left, in code of its
 * own, which is worth it only where it saves something. */
static double time_of(const packed *k, int64_t nv, int64_t mr, int64_t mp)
{
    enum { FEW = 16, MANY = 32 }; /* terms of sums of which all tiles are whole; vectors of which one tile more or less is little */
    const double own = 0.25;      /* of a vector */
    int64_t rows = kn_round_up(extent(k, k->q), mr), n = extent(k, k->x->n), vectors = kn_ceil_div(n, k->lanes), left = vectors % nv;
    double each = k->dots ? kn_cpu_time_of_dots(k->x, &k->dot, mr, nv, k->turns) + time_of_parts(k, nv) : 0;
    if (k->dots) return (double)(kn_round_up(vectors, nv) * k->lanes * rows) * each;
    if (left && (k->x->reduce_extent < FEW || vectors >= MANY)) vectors = kn_round_up(vectors, nv), left = 0;
    double whole = (double)(vectors - left) * time_of_each(k, nv, mr * mp), last = left ? (double)left * time_of_each(k, left, mr * mp) + own : 0;
    double half = (double)kn_ceil_div(n, k->lanes) - kn_cpu_vectors(k->x, n, k->lanes); /* that is saved */
    return (double)(rows * k->lanes) * (whole + last - half * time_of_each(k, left ? left : nv, mr * mp));
}

/* Panels that cores share, of which the last one may be narrower: what the core with most of them has to do, by what it would be if all had the
 * same; a quarter more is worth a better tile. */
static double of_shares(const packed *k, int64_t nv)
{
    double worth = kn_packed_layer(k, nv) ? 1.1 : 1.25; /* tiles in two directions are good of any width */
    int64_t vectors = kn_ceil_div(extent(k, k->x->n), k->lanes), panels = kn_ceil_div(vectors, nv), units = k->x->hw->units;
    if (!k->turns || !kn_packed_in_panels(k)) return 1;
    int64_t most = kn_ceil_div(panels, units) * nv;
    if ((panels - 1) % units == 0) most -= panels * nv - vectors;
    double longest = (double)(most * units) / (double)vectors;
    return longest > worth ? longest / worth : 1;
}

/* Tiles of mp rows of the image by nv vectors, if they take less than *least. */
static void choose_places(packed *k, int64_t mp, int64_t nv, bool whole, double *least)
{
    const double less = 1 - 1e-9; /* of tiles that take the same, the first */
    int64_t most = rows_of(k, nv, mp);
    for (int64_t mr = most; mr > 0 && 3 * mr >= 2 * most; mr--) { /* fewer rows may leave none beyond the end */
        double t = time_of(k, nv, mr, mp) * of_shares(k, nv);
        if ((*least > 0 && t >= less * *least) || (whole && mr != extent(k, k->q))) continue;
        *least = t;
        k->nv = nv;
        k->mr = mr;
        k->mp = mp;
    }
}

/* whole: all rows of the axis in one tile. layers: places of several rows of the image where the other factor is read in layers. Returns the time, 0:
 * there is none. */
static double choose(packed *k, bool whole, bool layers)
{
    enum { ROWS = 3 };
    double least = 0;
    for (int64_t nv = 1; nv <= 8; nv++) {
        if (nv > 1 && (nv - 1) * k->lanes >= extent(k, k->x->n)) break;
        if (k->beside && extent(k, k->x->n) % (nv * k->lanes)) continue; /* nothing fills in lanes past the end of what it reads */
        choose_places(k, 1, nv, whole, &least);
        for (int64_t mp = 2; mp <= ROWS && layers && !whole && kn_packed_layer(k, nv); mp++)
            if (extent(k, k->p) % mp == 0) choose_places(k, mp, nv, false, &least);
    }
    return least;
}

/* The part of the terms that tap and column together put into padding; 0: the index goes along others too. */
static double idle(const packed *k, const kn_affine *at, int64_t extent_inside, int *taps)
{
    int64_t none = 0, q = extent(k, k->q);
    *taps = -1;
    for (int i = 0; i < k->x->s->naxes; i++) {
        if (!at->coef[i] || i == k->q || extent(k, i) < 2) continue;
        if (*taps >= 0 || !k->x->s->axes[i].reduce || i == k->blocked) return 0;
        *taps = i;
    }
    if (*taps < 0 || !at->coef[k->q]) return 0;
    for (int64_t c = 0; c < q; c++)
        for (int64_t t = 0; t < extent(k, *taps); t++) {
            int64_t x = at->offset + at->coef[k->q] * c + at->coef[*taps] * t;
            none += x < 0 || x >= extent_inside;
        }
    return (double)none / (double)(q * extent(k, *taps));
}

/* Tiles that take a whole row of a small image know for each tap which of their columns are in padding: where leaving these out saves more than such
 * a tile costs, the taps are written out, each around a loop of its own. */
static bool write_taps_out(packed *k, double least)
{
    enum { ROW = 14, TAPS = 7 };
    const kn_expr *loads[2];
    const kn_program *p = k->x->t->program;
    packed whole = *k;
    if (k->p < 0 || k->dots || k->beside || extent(k, k->q) > ROW || kn_loads(k->x->s->body, loads, 2) != 2) return false;
    const kn_expr *load = loads[k->v];
    const kn_stmt *copy = load->padded ? NULL : kn_padded_copy(p, load->u.tensor);
    const kn_expr *from = copy ? copy->body : load;
    if (!from->padded || from->pad_value != 0) return false;
    double most = 0;
    for (int d = 0; d < from->nargs; d++) {
        kn_affine at;
        int taps;
        if (!kn_padded_index(load, copy, d, &at)) continue;
        double share = idle(k, &at, p->tensors[from->u.tensor].shape[d], &taps);
        if (share <= most || extent(k, taps) > TAPS || (k->uneven >> taps & 1)) continue;
        most = share;
        whole.taps = taps;
    }
    double t = most > 0 ? choose(&whole, true, false) : 0;
    if (t <= 0 || t * (1 - most) >= least) return false;
    *k = whole;
    return true;
}

bool kn_packed_choose(packed *k, bool layers)
{
    double least = choose(k, false, layers);
    if (least > 0) write_taps_out(k, least);
    k->layer = least > 0 && layers ? kn_packed_layer(k, k->nv) : 0;
    return least > 0;
}
