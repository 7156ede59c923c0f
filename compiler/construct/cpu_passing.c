/* Windows of few places, channels last, by weights that are no constant and that L2 does not hold: packing them takes longer than all products, and
 * places made one axis would have those between two steps beside them. The weights lie in rows of results: some rows of them at a time go by all
 * places, whose partial sums stay near. With AVX2 on a Zen 3 over places as one axis, plain: 192x14x14 by 2 to 256 of 7x7 0.39 of the time,
 * 256x8x8 by 2 to 512 0.85, 1024x8x8 by 2 to 200 of 2x2 0.29, 512x7x7 by 2 to 512 0.41, ten others 0.38 to 0.94; of 49 places and more copies take
 * 0.75 to 1.0 of the time that this takes. */
#include "construct/cpu.h"
#include "construct/nest.h"
#include "te/expr.h"

enum {
    PLACES = 32, /* fewer than these */
    WIDEST = 6,  /* vectors of a tile */
    VECTORS = 4, /* a row of weights has, at least */
    ROWS = 16    /* of the weights in a block */
};

typedef struct passing {
    const kn_site *x;
    int w;       /* load: the weights */
    int q;       /* places along the results' rows */
    int blocked; /* the reduction's axis whose steps are the weights' rows */
} passing;

static bool has(const passing *k, int load, int axis) { return k->x->load[load].axes >> axis & 1; }

/* Rows of results, not short ones, of a factor that comes from afar in every call. */
static bool lies_far(const passing *k)
{
    const kn_site *x = k->x;
    const kn_site_access *a = &x->load[k->w];
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    const kn_expr *loads[2];
    kn_loads(x->s->body, loads, 2);
    for (int i = 0; i < x->s->nspatial; i++)
        if (has(k, k->w, i) && i != x->n && kn_cpu_extent(x, i) > 1) return false;
    if (!a->linear || a->padded || a->coef[x->n] != 1 || kn_cpu_rests(x, k->w)) return false;
    if (!l2 || kn_cpu_bytes(&x->t->program->tensors[loads[k->w]->u.tensor]) <= (double)l2->capacity_bytes / 2) return false;
    return kn_cpu_extent(x, x->n) * kn_cpu_acc_bytes(x) >= VECTORS * x->hw->vector_bytes;
}

/* A few places along two axes of the other factor, at least. */
static bool few_places(passing *k)
{
    const kn_site *x = k->x;
    int64_t places = 1, axes = 0;
    k->q = -1;
    for (int i = 0; i < x->s->nspatial; i++) {
        if (i == x->n || kn_cpu_extent(x, i) < 2) continue;
        if (!has(k, 1 - k->w, i) || !kn_mul_fits(places, kn_cpu_extent(x, i), &places)) return false;
        if (k->q < 0 || x->store.coef[i] < x->store.coef[k->q]) k->q = i;
        axes++;
    }
    return axes > 1 && places < PLACES;
}

static bool find(const kn_site *x, passing *k)
{
    *k = (passing){.x = x, .w = -1};
    if (x->hw->gpu || !x->contraction || x->s->scatter || x->nloads != 2 || x->n < 0) return false;
    if (kn_dtype_bytes(x->s->body->dtype) != 4 || !x->store.linear || x->store.coef[x->n] != 1) return false;
    for (int l = 0; l < 2; l++) {
        if (x->load[l].bytes != 4) return false;
        if (has(k, l, x->n)) k->w = k->w < 0 ? l : 2;
    }
    if (k->w < 0 || k->w > 1 || !few_places(k) || !lies_far(k)) return false;
    k->blocked = x->s->nspatial;
    for (int i = k->blocked; i < x->s->naxes; i++) {
        if (!has(k, k->w, i)) return false;
        bool first = kn_cpu_extent(x, k->blocked) == 1;
        if (kn_cpu_extent(x, i) > 1 && (first || x->load[k->w].coef[i] < x->load[k->w].coef[k->blocked])) k->blocked = i;
    }
    return true;
}

bool kn_cpu_is_passing(const kn_site *x)
{
    passing k;
    return find(x, &k);
}

/* Its padding is filled in once, ahead: each block of the weights would find it again. */
int kn_cpu_passing_pads(const kn_site *x)
{
    passing k;
    return find(x, &k) && x->load[1 - k.w].padded ? 1 - k.w : -1;
}

/* The register tile by the time of all tiles; false: none has chains enough. */
static bool choose(const passing *k, kn_cpu_tile *t)
{
    const double element = 0.5, vector = 0.5, loop = 1.5;
    kn_site rows = *k->x;
    rows.m = k->q;
    int64_t need = k->x->hw->fma_latency * k->x->hw->fma_per_cycle;
    double least = 0;
    for (int64_t nv = 1; nv <= WIDEST; nv++)
        for (int64_t mr = 1; mr <= kn_cpu_extent(k->x, k->q) && mr * nv + nv + 1 <= k->x->hw->vector_registers; mr++) {
            double time = kn_cpu_time_of_tiles(&rows, mr, nv, t->lanes, element + loop / (double)mr, vector);
            if (mr * nv < need || (least > 0 && time >= least)) continue;
            least = time;
            t->nv = nv;
            t->mr = mr;
        }
    return least > 0;
}

/* Rows of the weights in a block, as many as L1 has sets for. */
static int64_t block(const passing *k)
{
    const kn_site_access *a = &k->x->load[k->w];
    int64_t all = kn_cpu_extent(k->x, k->blocked), most = kn_cpu_rows_of_step(k->x, a->coef[k->blocked] * a->bytes, ROWS);
    return all <= most ? 0 : kn_cpu_block_of(all, most < 2 ? 2 : most);
}

/* All axes of the reduction but the blocked one, the longest steps of the weights first. */
static void put_outer(kn_nest *w, const passing *k)
{
    const kn_site *x = k->x;
    uint32_t done = 1u << k->blocked;
    for (int r = x->s->nspatial + 1; r < x->s->naxes; r++) {
        int far = -1;
        for (int i = x->s->nspatial; i < x->s->naxes; i++)
            if (!(done >> i & 1) && (far < 0 || x->load[k->w].coef[i] > x->load[k->w].coef[far])) far = i;
        kn_nest_loop(w, far, 0);
        done |= 1u << far;
    }
}

bool kn_cpu_passing(const kn_site *x, kn_plans *p)
{
    passing k;
    kn_cpu_tile t = {.lanes = x->hw->vector_bytes / kn_cpu_acc_bytes(x)};
    if (!find(x, &k) || !choose(&k, &t)) return false;
    int64_t kb = block(&k), panels = kn_ceil_div(kn_cpu_extent(x, x->n), t.nv * t.lanes), before = p->n;
    kn_nest w;
    kn_nest_begin(&w, x, p->a);
    kn_nest_split(&w, x->n, (int64_t[KN_NEST_CUTS]){kn_ceil_div(panels, x->hw->units), t.nv, t.lanes});
    kn_nest_split(&w, k.q, (int64_t[KN_NEST_CUTS]){t.mr});
    kn_nest_split(&w, k.blocked, (int64_t[KN_NEST_CUTS]){kb});
    kn_nest_task(&w, x->n);
    kn_nest_bar(&w);
    put_outer(&w, &k);
    if (kb) kn_nest_loop(&w, k.blocked, 0);
    kn_nest_loop(&w, x->n, 1);
    for (int i = 0; i < x->s->nspatial; i++)
        if (i != x->n && i != k.q) kn_nest_loop(&w, i, 0);
    kn_nest_loop(&w, k.q, 0);
    kn_nest_loop(&w, k.blocked, kb > 0);
    kn_nest_bar(&w);
    kn_nest_loop(&w, k.q, 1);
    kn_nest_loop(&w, x->n, 2);
    kn_nest_loop(&w, x->n, 3);
    kn_nest_kind(&w, "unroll", k.q, 1);
    kn_nest_kind(&w, "unroll", x->n, 2);
    kn_nest_kind(&w, "vectorize", x->n, 3);
    kn_nest_try(&w, p);
    return p->n > before;
}
