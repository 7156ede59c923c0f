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

/* Blocks that the statement would make of its results: tiles of products, threads of column sums, or one block a row. */
static double blocks_of(const kn_site *x)
{
    double results = points(x->s, false);
    if (x->contraction) return results / (64 * 64);
    enum { COLUMNS = 1024 }; /* threads that keep a unit busy with a load each */
    return reads_rows(x) ? results / 2 : results / COLUMNS;
}

/* A CPU's, of which each core wants a few: rows, a few vectors of columns, or products that fill the register file. */
static double tiles_of(const kn_site *x)
{
    enum { COLUMNS = 4 };
    double results = points(x->s, false), lanes = (double)x->hw->vector_bytes / kn_dtype_bytes(kn_stmt_acc(x->s));
    if (x->contraction) return results / (lanes * x->hw->vector_registers) / 4;
    return reads_rows(x) ? results / 4 : results / (lanes * COLUMNS) / 4;
}

/* Sums of columns, or of their products with one row, from beyond L2 that cores would share by columns: each would read runs of a few pages, and
 * processors ask for what follows within a page alone. In parts rows are read from end to end (cpu_few.c). Shares of 2, 4, 8 and 16 KB take 1.2 to
 * 1.4, 1.1 to 1.2, 1.1 to 1.2 and 1.0 to 1.05 times as long as the parts (measured on a Zen 3, where a vector is half a line). */
static bool cuts_rows(const kn_site *x)
{
    enum { RUN = 16384, LINE = 64 };
    double row = points(x->s, false) * kn_dtype_bytes(x->s->body->dtype);
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    bool columns = x->n >= 0 && points(x->s, false) == (double)x->s->axes[x->n].extent && kn_site_followers(x, x->n) == 1;
    if (x->hw->gpu || !l2 || x->hw->units < 2 || x->hw->vector_bytes >= LINE || x->contraction || !columns) return false;
    return !reads_rows(x) && row < RUN * x->hw->units && row * points(x->s, true) > (double)l2->capacity_bytes * x->hw->units;
}

/* Rows that cores would share, each of which packs all of a few panels for its own (cpu_blocks.c): in parts none is packed twice, if half of L2
 * holds their results (77x49x4096, 120x151x3570 on one core of a Zen 3: 0.73, 0.88 of the time). */
static bool packs_once(const kn_site *x)
{
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    if (x->hw->gpu || !l2 || x->hw->units < 2 || kn_cpu_other(x) >= 0 || !kn_cpu_packs_few(x)) return false;
    return points(x->s, false) * kn_dtype_bytes(kn_stmt_acc(x->s)) * x->hw->units <= (double)l2->capacity_bytes / 2;
}

/* Terms that a part is worth its combination with. */
static int64_t least_terms(const kn_site *x, double blocks)
{
    enum { WORK = 16384 }; /* multiply-adds of a core in the time in which another one starts */
    double results = points(x->s, false);
    if (!x->hw->gpu) return results < WORK / 128 ? (int64_t)(WORK / results) : 128;
    return x->contraction ? 128 : blocks * 2 < results ? 64 : 512; /* of columns, of rows */
}

/* Rows of a part that is cut for the sake of its rows: what it writes is read again from near, a few hundredths of what it reads from afar. */
enum { LEAST_ROWS = 32 };

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

int kn_part_steps(kiln_arena *a, const kn_program *p, const kn_hw *hw, kiln_bytes *start)
{
    kn_tree *t;
    kiln_diag d;
    kn_site x, best = {.s = NULL};
    int count = 0;
    if (kn_trace_apply(a, p, hw, (kiln_bytes){"", 0}, &t, &d)) return 0;
    for (int i = 0; i < t->nstages; i++) {
        const kn_stmt *s = p->stmts[t->stages[i]->stmt];
        if (s->red == KN_RED_NONE || s->scatter) continue;
        kn_site_of(a, t, t->stages[i], hw, &x);
        if (!best.s || points(s, false) * points(s, true) > points(best.s, false) * points(best.s, true)) best = x;
    }
    if (!best.s) return 0;
    int axis = best.s->nspatial;
    for (int i = axis; i < best.s->naxes; i++) if (best.s->axes[i].extent > best.s->axes[axis].extent) axis = i;
    bool once = packs_once(&best), rows = cuts_rows(&best);
    double blocks = hw->gpu ? blocks_of(&best) : once || rows ? 1 : tiles_of(&best), fill = (double)hw->units / (blocks < 1 ? 1 : blocks);
    int64_t others = (int64_t)(points(best.s, true) / (double)best.s->axes[axis].extent);
    int64_t least = rows ? LEAST_ROWS : least_terms(&best, blocks);
    bool leaves = !best.contraction && best.s->naxes == best.s->nspatial + 1;
    if (fill <= 1) return 0;
    least = kn_ceil_div(least, others);
    for (int64_t waves = 1, last = 1; waves <= (once ? 1 : 2); waves++) {
        int64_t extent = best.s->axes[axis].extent, enough = least < 4 ? 4 : least, units = rows ? hw->units : 1;
        int64_t n = parts_near(extent, fill * (double)waves, enough, units, false);
        bool uneven = n == 1 || (!hw->gpu && !kn_site_evenly(n, hw->units)); /* 2049 rows, for two cores */
        if (uneven && leaves) n = parts_near(extent, fill * (double)waves, enough, units, true);
        if (n == last || (once && n != hw->units)) continue;
        last = n;
        const char *line = kn_format(a, "part %s %s KP %lld parts\n", best.name, best.s->axes[axis].name, (long long)n);
        size_t bytes = 0;
        while (line && line[bytes]) bytes++;
        if (line) start[count++] = (kiln_bytes){line, bytes};
    }
    return count;
}
