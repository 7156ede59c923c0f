/* Reductions whose results alone cannot fill a GPU, or the cores of a CPU (products with a long sum and a small result, sums over everything): the
 * sum is cut into parts, a kernel of their own, and a second small kernel combines them in order (split-K). Which number of parts is worth its
 * traffic says the cost model. */
#include "construct/cpu.h"

static double points(const kn_stmt *s, bool reduce)
{
    double n = 1;
    for (int i = 0; i < s->naxes; i++) if (s->axes[i].reduce == reduce) n *= (double)s->axes[i].extent;
    return n;
}

/* What is read most lies along the reduction. */
static bool reads_rows(const kn_site *x)
{
    double most = 0;
    bool rows = false;
    for (int l = 0; l < x->nloads; l++) {
        double elems = 1;
        bool along = false;
        for (int i = 0; i < x->s->naxes; i++) {
            if (!(x->load[l].axes >> i & 1)) continue;
            elems *= (double)x->s->axes[i].extent;
            along |= x->s->axes[i].reduce && x->load[l].linear && x->load[l].coef[i] == 1;
        }
        if (elems > most) most = elems, rows = along;
    }
    return rows;
}

/* What a rule wants of a reduction. */
typedef struct parts {
    double fill;         /* parts that keep the device busy; at most 1: the results alone do */
    int64_t least;       /* terms that a part is worth its combination with */
    int64_t shared;      /* cores that are to have as many parts each, 1: any number is good */
    bool whole;          /* one part a core, and no other number */
} parts;

static double fill_of(const kn_site *x, double blocks) { return (double)x->hw->units / (blocks < 1 ? 1 : blocks); }

/* A GPU's blocks of the results: tiles of products, threads of column sums, or one block a row. */
static bool of_gpu(const kn_site *x, parts *want)
{
    enum { TILE = 64 * 64, COLUMNS = 1024, PRODUCTS = 128, FROM_COLUMNS = 64, FROM_ROWS = 512 }; /* threads that keep a unit busy with a load each */
    if (!x->hw->gpu) return false;
    double results = points(x->s, false), blocks = x->contraction ? results / TILE : reads_rows(x) ? results / 2 : results / COLUMNS;
    want->fill = fill_of(x, blocks);
    want->least = x->contraction ? PRODUCTS : blocks * 2 < results ? FROM_COLUMNS : FROM_ROWS;
    return true;
}

/* Bytes of an element of what is read. */
static int widest(const kn_site *x)
{
    int bytes = 0;
    for (int l = 0; l < x->nloads; l++) bytes = x->load[l].bytes > bytes ? x->load[l].bytes : bytes;
    return bytes;
}

/* Terms that a CPU's part is worth its combination with; of what a unit of its own may multiply (AMX) more. */
static int64_t least_of_core(const kn_site *x)
{
    enum { WORK = 16384, TERMS = 128, UNIT = 8 }; /* multiply-adds of a core in the time in which another one starts */
    double results = points(x->s, false);
    int64_t faster = x->hw->tile_registers && x->contraction && widest(x) <= 2 ? UNIT : 1;
    return faster * (results < WORK / TERMS ? (int64_t)(WORK / results) : TERMS);
}

/* Rows that cores would share, each of which packs all of a few panels for its own (cpu_blocks.c): in parts none is packed twice, if half of L2
 * holds their results (77x49x4096, 120x151x3570 on one core of a Zen 3: 0.73, 0.88 of the time). */
static bool packs_once(const kn_site *x, parts *want)
{
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    if (x->hw->gpu || !l2 || x->hw->units < 2 || kn_cpu_other(x) >= 0 || !kn_cpu_packs_few(x)) return false;
    if (points(x->s, false) * kn_dtype_bytes(kn_stmt_acc(x->s)) * x->hw->units > (double)l2->capacity_bytes / 2) return false;
    *want = (parts){.fill = fill_of(x, 1), .least = least_of_core(x), .shared = 1, .whole = true};
    return true;
}

/* Sums of columns, or of their products with a few rows, from beyond L2 that cores would share by columns: each would read runs of a few pages, and
 * processors ask for what follows within a page alone. In parts rows are read from end to end (cpu_few.c). Shares of 2, 4, 8 and 16 KB take 1.2 to
 * 1.4, 1.1 to 1.2, 1.1 to 1.2 and 1.0 to 1.05 times as long as the parts (measured on a Zen 3; where a vector is a line 1.1 to 1.5, on two cores
 * 1.3 to 1.9, of shares of 600 bytes to 4 KB, 1.0 to 1.1 of 8 KB). What a part writes is read again from near, a few hundredths of what it reads from
 * afar. Products of 2 to 10 rows with 2048x1000 to 4096x4096 1.0 to 1.27 times as fast so, on two cores up to 1.44; of 12 and 16 rows 0.6 to 1.1.
 * Where a vector is a line, products of 2 to 4 rows also take runs of up to twice as much so: with 4096x11008 and 4096x14336 one core 1.5 to 1.8
 * times as fast, two 1.0 to 1.15. */
static bool cuts_rows(const kn_site *x, parts *want)
{
    enum { RUN = 16384, LEAST_ROWS = 32 };
    double rows = (double)kn_cpu_extent(x, x->m), row = (double)kn_cpu_extent(x, x->n) * widest(x);
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    bool columns = x->n >= 0 && points(x->s, false) == (double)x->s->axes[x->n].extent * rows && kn_site_followers(x, x->n) == 1;
    if (x->hw->gpu || !l2 || x->hw->units < 2 || rows > KN_COST_PARTED || !columns || reads_rows(x)) return false;
    double most = RUN * (kn_cpu_wide_rows(x) ? 2 : 1);
    if (row >= most * x->hw->units || row * points(x->s, true) <= (double)l2->capacity_bytes * x->hw->units) return false;
    *want = (parts){.fill = fill_of(x, 1), .least = LEAST_ROWS, .shared = x->hw->units};
    return true;
}

/* Tiles of a CPU, of which each core wants a few: rows, a few vectors of columns, or products that fill the register file. */
static bool of_tiles(const kn_site *x, parts *want)
{
    enum { COLUMNS = 4, FEW = 4 };
    double results = points(x->s, false), lanes = (double)x->hw->vector_bytes / kn_dtype_bytes(kn_stmt_acc(x->s));
    double tile = x->contraction ? lanes * x->hw->vector_registers : reads_rows(x) ? 1 : lanes * COLUMNS;
    *want = (parts){.fill = fill_of(x, results / tile / FEW), .least = least_of_core(x), .shared = 1};
    return true;
}

/* The first one that knows the reduction. */
static bool (*const rules[])(const kn_site *x, parts *want) = {of_gpu, packs_once, cuts_rows, of_tiles};

/* A divisor of the axis, or any number where terms may be left over, that makes about `want` parts of at least `least` terms, those of whole
 * transactions first, shared evenly where `units` share them; 1: there is none. */
static int64_t parts_near(int64_t extent, double want, int64_t least, int64_t units, bool leaves)
{
    int64_t best = 1;
    double far = 1e30;
    for (int64_t n = 2; n <= 1024 && extent / n >= least; n++) {
        if ((extent % n && !leaves) || !kn_site_evenly(n, units)) continue;
        double off = (double)n > want ? (double)n / want : want / (double)n;
        if (extent / n % 32) off *= 1.5;
        if (off < far) far = off, best = n;
    }
    return best;
}

/* The program's largest reduction; false: it has none. */
static bool largest(kiln_arena *a, const kn_tree *t, const kn_hw *hw, kn_site *best)
{
    double most = 0;
    for (int i = 0; i < t->nstages; i++) {
        const kn_stmt *s = t->program->stmts[t->stages[i]->stmt];
        double all = points(s, false) * points(s, true);
        if (s->red == KN_RED_NONE || s->scatter || all <= most) continue;
        kn_site_of(a, t, t->stages[i], hw, best);
        most = all;
    }
    return most > 0;
}

int kn_part_steps(kiln_arena *a, const kn_program *p, const kn_hw *hw, kiln_bytes *start)
{
    kn_tree *t;
    kiln_diag d;
    kn_site x;
    parts want = {.shared = 1};
    int count = 0;
    if (kn_trace_apply(a, p, hw, (kiln_bytes){"", 0}, &t, &d) || !largest(a, t, hw, &x)) return 0;
    for (size_t r = 0; r < sizeof rules / sizeof *rules && !rules[r](&x, &want); r++) {}
    if (want.fill <= 1) return 0;
    const int axis = kn_cpu_longest_reduce(&x);
    const int64_t all = x.s->axes[axis].extent, others = (int64_t)(points(x.s, true) / (double)all), least = kn_ceil_div(want.least, others);
    const bool leaves = !x.contraction && x.s->naxes == x.s->nspatial + 1;
    for (int64_t waves = 1, last = 1; waves <= (want.whole ? 1 : 2); waves++) {
        const double about = want.fill * (double)waves;
        const int64_t enough = least < 4 ? 4 : least;
        int64_t n = parts_near(all, about, enough, want.shared, false);
        bool uneven = n == 1 || (!hw->gpu && !kn_site_evenly(n, hw->units)); /* 2049 rows, for two cores */
        if (uneven && leaves) n = parts_near(all, about, enough, want.shared, true);
        if (n == last || (want.whole && n != hw->units)) continue;
        last = n;
        const char *line = kn_format(a, "part %s %s KP %lld parts\n", x.name, x.s->axes[axis].name, (long long)n);
        size_t bytes = 0;
        while (line && line[bytes]) bytes++;
        if (line) start[count++] = (kiln_bytes){line, bytes};
    }
    return count;
}
