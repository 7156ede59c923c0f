/* Sums along rows that memory has one behind the other, far away: a few rows at a time, as far apart as they can be, so that these are
 * as many runs of memory, each read from end to end. One run does not ask for enough at once. On a Zen 4, of the time of a row at a time, a core and
 * two: 65536x200 0.7, 0.83; 128x80000 0.79, 0.93; 300x50000 0.83, 0.97; 10000x1000, 1000x10000 0.87, 0.92; 300000x40 0.95, 1.0. From L3 0.85 to 1.15,
 * eight rows 0.8 to 1.1, four that follow each other 1.0; with AVX2 on a Zen 3 sums and maxima of 7 to 33 MB from L3 0.59 to 1.03, two cores 0.74 to
 * 1.02, of 0.5 to 4 MB 0.98 to 1.09. Products with a row that all share are better of rows that do (100000x100: 1.4). */
#include "construct/cpu.h"
#include "construct/nest.h"

enum { RUNS = 4 };

/* The only axis of its kind that has more than one iteration; -1: there is none, or another one. */
static int only(const kn_site *x, int from, int to)
{
    int found = -1;
    for (int i = from; i < to; i++) {
        if (kn_cpu_extent(x, i) == 1) continue;
        if (found >= 0) return -1;
        found = i;
    }
    return found;
}

/* The load goes along `rows`, of which each is a run of terms. */
static bool lies_in_rows(const kn_site *x, int rows)
{
    const kn_site_access *a = &x->load[0];
    bool plain = a->linear && !a->padded && !a->bent && a->bytes >= kn_cpu_acc_bytes(x);
    return plain && a->coef[x->r] == 1 && a->coef[rows] >= x->reduce_extent;
}

/* Rows of a task, of one of the runs: a number that divides them, near what leaves each core 32 tasks; 0: too little to begin a task. */
static int64_t rows_of_task(const kn_site *x, int64_t run)
{
    enum { TASKS = 32, LEAST = 16 };
    int64_t most = run / (TASKS * x->hw->units), least = kn_ceil_div(LEAST * KN_CPU_LINE, x->reduce_extent * kn_cpu_acc_bytes(x));
    for (int64_t rows = most < least ? least : most; rows >= least && rows >= 1; rows--)
        if (run % rows == 0) return rows;
    return 0;
}

typedef struct runs {
    int rows;      /* axis */
    int64_t task;  /* rows of each run in a task */
    int64_t each;  /* vectors of a row at a time */
} runs;

/* Beyond the caches; or well beyond L2 where vectors are short. */
static bool is_far(const kn_site *x, double bytes)
{
    enum { OF_L2 = 12 };
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    return kn_hw_past_caches(x->hw, bytes) || (l2 && kn_cpu_short_vectors(x) && bytes > OF_L2 * (double)l2->capacity_bytes);
}

static bool find(const kn_site *x, runs *r)
{
    enum { VECTORS = 4, LEAST = 2, SHARE = 2 };
    const char class = kn_dtype_class(kn_stmt_acc(x->s));
    int64_t lanes = x->hw->vector_bytes / kn_cpu_acc_bytes(x);
    *r = (runs){.rows = only(x, 0, x->s->nspatial), .each = VECTORS};
    if (x->hw->gpu || x->nloads != 1 || r->rows < 0 || x->r < 0 || x->r != only(x, x->s->nspatial, x->s->naxes) || x->s->scatter) return false;
    if (class == 'b' || x->s->red == KN_RED_ALL || x->s->red == KN_RED_ANY || x->s->red == KN_RED_NONE) return false;
    if (x->reduce_extent < LEAST * lanes || !lies_in_rows(x, r->rows)) return false;
    if (!is_far(x, (double)kn_cpu_extent(x, r->rows) * (double)x->reduce_extent * x->load[0].bytes)) return false;
    if (kn_cpu_extent(x, r->rows) % RUNS) return false;
    r->task = rows_of_task(x, kn_cpu_extent(x, r->rows) / RUNS);
    while (r->each > 1 && (r->each * RUNS > x->hw->vector_registers / SHARE || r->each * lanes > x->reduce_extent)) r->each /= 2;
    return r->task > 0;
}

bool kn_cpu_in_runs(const kn_site *x)
{
    runs r;
    return find(x, &r);
}

bool kn_cpu_runs(const kn_site *x, kn_plans *p)
{
    runs r;
    kn_nest w;
    if (!find(x, &r)) return false;
    int lanes = r.each > 1 ? 2 : 1; /* the loop of the sum that they are */
    kn_nest_begin(&w, x, p->a);
    kn_nest_split(&w, r.rows, (int64_t[KN_NEST_CUTS]){kn_cpu_extent(x, r.rows) / RUNS / r.task, r.task});
    kn_nest_split(&w, x->r, (int64_t[KN_NEST_CUTS]){r.each > 1 ? r.each : 0, x->hw->vector_bytes / kn_cpu_acc_bytes(x)});
    kn_nest_loop(&w, r.rows, 1);
    kn_nest_kind(&w, "parallel", r.rows, 1);
    kn_nest_bar(&w);
    kn_nest_loop(&w, r.rows, 2);
    kn_nest_loop(&w, x->r, 0);
    kn_nest_bar(&w);
    kn_nest_loop(&w, r.rows, 0);
    kn_nest_kind(&w, "unroll", r.rows, 0);
    for (int i = 1; i <= lanes; i++) kn_nest_loop(&w, x->r, i);
    if (lanes > 1) kn_nest_kind(&w, "unroll", x->r, 1);
    if (lanes > 1) kn_nest_kind(&w, "rfactor", x->r, 1);
    kn_nest_kind(&w, "vectorize", x->r, lanes);
    kn_nest_try(&w, p);
    return p->n > 0;
}
