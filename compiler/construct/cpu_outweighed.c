/* Products of short sums, of an operand whose rows run along these, whose results go past the caches. Panel by panel, each as it is turned, all rows
 * would be written a line or two at a time, every one of them in another page, and what panels end in twice. So many panels as a quarter of L2 holds
 * are turned beside each other instead, and rows go along them (on a Zen 3 615x2701x2, x8, 1000x3000x8: 0.37 to 0.5 of the time; 1000x3000x24: 0.7;
 * 2000x2000x32: 0.93). Rows that lie across the sum too, lines of which panels fetch again, want that of longer sums (2039x3328x41, 2000x2000x64:
 * 0.6, 0.75; 1200x1200x128: 0.95). Results that L3 holds, or so short that several lie in a page, are better by panels (373x1584x6, 5000x400x20:
 * 1.2, 1.4 times as long so). */
#include "construct/cpu.h"

enum {
    TERMS = 32,   /* of a sum that is short beside a result's way out */
    ACROSS = 128, /* the same where rows lie across it */
    ROW = 3072,   /* bytes of a row of results */
    BYTES = 4     /* of an element */
};

/* One operand has the lanes and runs along the sum, the other one has the rows. */
static bool runs_along(const kn_site *x)
{
    bool turned = false;
    if (x->nloads != 2 || x->n < 0 || x->m < 0 || x->s->naxes != x->s->nspatial + 1 || kn_cpu_acc_bytes(x) != BYTES) return false;
    for (int l = 0; l < x->nloads; l++) {
        const kn_site_access *a = &x->load[l];
        bool lanes = a->axes >> x->n & 1;
        if (!a->linear || a->padded || a->bent || a->bytes != BYTES || lanes == (a->axes >> x->m & 1)) return false;
        turned = turned || (lanes && a->coef[x->s->nspatial] == 1 && a->coef[x->n] > 1 && !kn_cpu_rests(x, l));
    }
    return turned;
}

static bool rows_across(const kn_site *x)
{
    return kn_cpu_rows_across(x, 0, x->s->nspatial) || kn_cpu_rows_across(x, 1, x->s->nspatial);
}

/* The register tile, as panels come from L2 and rows stay in L1. */
static bool choose_tile(const kn_site *x, kn_cpu_tile *t)
{
    enum { MOST = 14, MORE = 2 }; /* rows; chains beyond those that cover the latency, as not every one starts in time */
    const double row = 0.25, vector = 0.3;
    double least = 0;
    for (int64_t nv = 2; nv <= 5; nv++)
        for (int64_t mr = 2; mr <= MOST && kn_cpu_fills_registers(x, mr, nv); mr++) {
            double time = kn_cpu_time_of_tiles(x, mr, nv, t->lanes, row, vector);
            if (mr * nv < x->hw->fma_latency * x->hw->fma_per_cycle + MORE || (least > 0 && time >= least)) continue;
            least = time;
            t->nv = nv;
            t->mr = mr;
        }
    return least > 0;
}

bool kn_cpu_outweighed(const kn_site *x, kn_plans *p)
{
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2"), *l3 = kn_hw_level_named(x->hw, "l3");
    if (!l2 || !l3 || !x->contraction || kn_cpu_other(x) >= 0 || !kn_cpu_short_vectors(x) || !runs_along(x)) return false;
    int64_t rows = kn_cpu_extent(x, x->m), n = kn_cpu_extent(x, x->n), units = x->hw->units;
    if (n * BYTES < ROW || (double)rows * (double)n * BYTES <= (double)l3->capacity_bytes) return false;
    if (x->reduce_extent > (rows_across(x) ? ACROSS : TERMS)) return false;
    kn_cpu_tile t = {.lanes = x->hw->vector_bytes / BYTES, .grain = 1, .kb = 1, .rlanes = 1, .runroll = 1, .blocked = x->s->nspatial,
                     .pack = true, .along = true};
    if (!choose_tile(x, &t)) return false;
    int64_t panel = t.nv * t.lanes, panels = kn_ceil_div(n, panel), most = l2->capacity_bytes / 4 / (panel * x->reduce_extent * BYTES);
    if (most < 2 || panels < 2 * units) return false;
    t.nc = kn_ceil_div(panels, kn_round_up(kn_ceil_div(panels, most), units));
    t.mc = kn_ceil_div(rows, t.mr);
    int before = p->n;
    kn_cpu_try(x, p, &t);
    return p->n > before;
}
