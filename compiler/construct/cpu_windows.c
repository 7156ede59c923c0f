/* Windows in two steps: the rows of a window are combined first, for all of its places that share them, then the columns of what came of that.
 * Which statements are such a pair follows from how they read each other; both go, with a padded copy that the first one reads, under the loops
 * over what they share, so that the rows stay in L1 or L2 (Chimera, HPCA'23: the tile of every stage of a chain in a cache at once). A row that
 * registers hold beside the results stays there (lower/forward.c): then one row of results is made after the other, and its columns in padding are
 * left to the second step. Shaping asks for it where it saves a tenth of the terms; rows wider than registers go in bands that stay in L2. */
#include "construct/cpu.h"
#include "construct/rows.h"

enum {
    ACCUMULATORS = 8, TASKS = 32, COPIES = 16, FEW = 8,
    TAPS = 3,         /* that narrow results, some apart, are picked for: with more, or padding among them, turned planes take less */
    HELD = 3, OF = 4, /* registers for a row and its results, beside what is read and what picks lanes */
    STEP = 8          /* between the columns of neighbouring results: more vectors would each give a few lanes */
};

/* y reads rows reads copy (-1: none). */
typedef struct windows {
    kiln_arena *a;
    const kn_tree *t;
    const kn_hw *hw;
    int stage[3];
    kn_site site[3];
    int of[3][KILN_MAX_AXES];       /* axis x of y in each of them */
    uint32_t shared;                /* axes of y whose loops are everybody's */
    int64_t grain[KILN_MAX_AXES];   /* iterations in one task; 0: no task loop */
    int upright;                    /* y's axis along which the window of rows slides */
    bool held;                      /* a row stays in registers */
    int64_t band;                   /* so many of y's rows are made from rows of the first step that are still in L1; 0: all at once */
} windows;

static int producer_of(const kn_tree *t, int tensor)
{
    for (int k = 0; k < t->nstages && t->program->tensors[tensor].role == KN_TEMP; k++)
        if (kn_stage_out(t, t->stages[k]) == tensor && !kn_site_scheduled(t, t->stages[k])) return k;
    return -1;
}

/* The only read of the tensor in the whole program, by stage k's statement. */
static bool only_reader(const kn_tree *t, int k, int tensor, bool padded)
{
    int n = 0;
    for (int i = 0; i < t->program->nstmts; i++) {
        const kn_expr *one = NULL, *loads[KN_SITE_LOADS];
        int count = kn_loads(t->program->stmts[i]->body, loads, KN_SITE_LOADS);
        if (count > KN_SITE_LOADS) return false;
        for (int l = 0; l < count; l++) if (loads[l]->u.tensor == tensor) one = loads[l], n += i == t->stages[k]->stmt ? 1 : 2;
        if (one && one->padded && !padded) return false;
    }
    return n == 1;
}

/* The one load of a statement that reduces a window or copies; NULL. */
static const kn_expr *read_of(const kn_site *x)
{
    const kn_expr *loads[2];
    return kn_loads(x->s->body, loads, 2) == 1 && !x->s->scatter ? loads[0] : NULL;
}

/* The axis of the output that stands beside a reduce axis in the load; -1: none, or several. */
static int slides_along(const kn_site *x, const kn_expr *read)
{
    int found = -1;
    uint32_t out = (1u << x->s->nspatial) - 1;
    for (int d = 0; d < read->nargs; d++) {
        uint32_t in = kn_axes_in(read->args[d]);
        for (int i = 0; i < x->s->nspatial && (in & ~out); i++)
            if (in >> i & 1) found = found < 0 || found == i ? i : KILN_MAX_AXES;
    }
    return found < KILN_MAX_AXES ? found : -1;
}

/* Axes of y as axes of the stage that `from` reads. */
static void map_axes(windows *w, int from, const kn_expr *read)
{
    const kn_stmt *p = w->site[from + 1].s;
    for (int x = 0; x < KILN_MAX_AXES; x++) {
        w->of[from + 1][x] = -1;
        int here = from ? w->of[from][x] : x;
        for (int d = 0; d < read->nargs && here >= 0; d++) {
            bool same = read->args[d]->op == KN_OP_AXIS && read->args[d]->u.axis == here && p->lhs[d]->op == KN_OP_AXIS;
            if (same) w->of[from + 1][x] = p->lhs[d]->u.axis;
        }
    }
}

/* Finds rows and copy behind y. */
static bool chain(windows *w, int y)
{
    w->stage[0] = y;
    w->stage[1] = w->stage[2] = -1;
    for (int i = 0; i < 2; i++) {
        kn_site_of(w->a, w->t, w->t->stages[w->stage[i]], w->hw, &w->site[i]);
        const kn_expr *read = read_of(&w->site[i]);
        if (!read || w->site[i].s->red == KN_RED_NONE || slides_along(&w->site[i], read) < 0) return false;
        int p = producer_of(w->t, read->u.tensor);
        if (p < 0 || !only_reader(w->t, w->stage[i], read->u.tensor, i == 0)) return i == 1;
        kn_site_of(w->a, w->t, w->t->stages[p], w->hw, &w->site[i + 1]);
        const kn_site *x = &w->site[i + 1];
        bool map = x->s->red == KN_RED_NONE && !x->s->scatter && x->nloads == 1 && x->load[0].padded;
        if (w->t->stages[p]->epilogue >= 0 || (i == 0 ? x->s->red != w->site[0].s->red : !map)) return i == 1;
        w->stage[i + 1] = p;
        map_axes(w, i, read);
    }
    return true;
}

/* Neighbouring taps of the columns lie in one vector: what was just stored would be read across two stores. */
static bool near(const kn_site *y)
{
    int64_t step = y->load[0].linear ? y->load[0].coef[y->s->nspatial] : 0;
    return step * kn_dtype_bytes(y->s->body->dtype) < y->hw->vector_bytes;
}

static int64_t lanes_of(const windows *w, int k)
{
    const kn_site *x = &w->site[k];
    int64_t lanes = kn_cpu_pow2(kn_cpu_extent(x, x->n), w->hw->vector_bytes / (k < 2 ? kn_cpu_acc_bytes(x) : kn_dtype_bytes(x->s->body->dtype)));
    return k == 0 && w->held && lanes_of(w, 1) < lanes ? lanes_of(w, 1) : lanes;
}

static bool is_shared(const windows *w, int k, int axis)
{
    for (int x = 0; x < w->site[0].s->nspatial; x++) if ((w->shared >> x & 1) && w->of[k][x] == axis) return true;
    return false;
}

/* Vectors of a row and its results. What few registers do not hold of them waits on the stack in whole vectors, which come back as such: a row of
 * 112 columns with 56 results takes two thirds of the time of bands in L1, one of 250 with 125 four fifths. */
static int64_t most_held(const kn_hw *hw)
{
    enum { SPILLED = 48 };
    return kn_hw_few_registers(hw) ? SPILLED : hw->vector_registers * HELD / OF;
}

/* All but the columns is shared, and registers hold a whole row of the first step with what is made of it, written out term by term. Rows of results
 * that do not fill half a vector leave most lanes idle: a quarter is enough where few taps are picked for them. */
static bool held(windows *w, int along)
{
    const kn_site *y = &w->site[0], *rows = &w->site[1];
    enum kn_dtype t = w->t->program->tensors[rows->s->out].dtype;
    if (w->stage[2] >= 0 || w->upright < 0 || y->n < 0 || rows->n < 0 || along != y->n || t == KN_BOOL || kn_dtype_bytes(t) < 4) return false;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < w->site[k].s->nspatial; i++)
            if (i != w->site[k].n && !is_shared(w, k, i)) return false;
    kn_affine f;
    const kn_expr *read = read_of(y);
    if (!kn_affine_of(read->args[read->nargs - 1], &f) || f.coef[y->n] < 1 || f.coef[y->n] > STEP || rows->load[0].coef[rows->n] != 1) return false;
    w->held = true;
    bool few = y->reduce_extent <= f.coef[y->n] || (y->reduce_extent <= TAPS && f.coef[y->n] > 1 && !read->padded);
    int64_t row = kn_ceil_div(kn_cpu_extent(rows, rows->n), lanes_of(w, 1)), results = kn_ceil_div(kn_cpu_extent(y, y->n), lanes_of(w, 0));
    return lanes_of(w, 0) * kn_cpu_acc_bytes(y) * (few ? 4 : 2) >= w->hw->vector_bytes && row + results <= most_held(w->hw) &&
           y->reduce_extent * results <= KN_CPU_UNROLLED;
}

/* Axes of the output that all of them have, but not those along which a window slides, unless it is the rows' own, nothing is copied first and
 * taps lie apart: then one row of results is made after the other. */
static bool share(windows *w)
{
    const kn_site *y = &w->site[0];
    int along = slides_along(y, read_of(y)), own = slides_along(&w->site[1], read_of(&w->site[1]));
    w->shared = 0;
    w->upright = -1;
    for (int x = 0; x < y->s->nspatial; x++) {
        if (w->of[1][x] == own && own >= 0) w->upright = x;
        bool all = w->of[1][x] >= 0 && (w->stage[2] < 0 || w->of[2][x] >= 0) && x != along && x != y->n;
        if (all) w->shared |= 1u << x;
    }
    w->held = held(w, along);
    if (read_of(y)->padded && !w->held) return false;
    if (w->upright >= 0 && !w->held && (near(y) || w->stage[2] >= 0)) w->shared &= ~(1u << w->upright);
    return w->upright >= 0 && along >= 0 && y->n >= 0 && w->shared;
}

/* What one iteration of the shared loops makes fits L2. */
static bool fits(const windows *w)
{
    const kn_hw_level *l2 = kn_hw_level_named(w->hw, "l2");
    double sum = 0;
    for (int k = 1; k < 3 && w->stage[k] >= 0; k++) {
        const kn_stmt *s = w->site[k].s;
        double bytes = kn_dtype_bytes(s->body->dtype);
        for (int i = 0; i < s->nspatial; i++) bytes *= (double)s->axes[i].extent;
        for (int x = 0; x < w->site[0].s->nspatial; x++)
            if (w->shared >> x & 1) bytes /= (double)w->site[0].s->axes[x].extent;
        sum += bytes;
    }
    return l2 && sum <= (double)l2->capacity_bytes / 4;
}

/* Task loops: outer shared axes until there are enough, the last one in runs. */
static void tasks(windows *w)
{
    const kn_stmt *s = w->site[0].s;
    int64_t count = 1, want = TASKS * (int64_t)w->hw->units;
    double points = 0;
    for (int k = 0; k < 2; k++) {
        double terms = (double)w->site[k].reduce_extent;
        for (int x = 0; x < w->site[k].s->nspatial; x++) terms *= (double)w->site[k].s->axes[x].extent;
        points += terms;
    }
    for (int x = 0; x < s->nspatial; x++) {
        w->grain[x] = 0;
        if (!(w->shared >> x & 1) || count >= want || points < KN_CPU_FORKED) continue;
        int64_t n = s->axes[x].extent, grain = n * count / want;
        if (w->held && x == w->upright) { /* rows of one task read the same rows of what goes in, and end where the axis does */
            if (count >= FEW * (int64_t)w->hw->units) continue;
            w->grain[x] = kn_ceil_div(n, kn_ceil_div(want, count) < n / FEW ? kn_ceil_div(want, count) : n / FEW + 1);
            return;
        }
        while (grain > 1 && n % grain) grain--; /* what reaches past the end would be guarded */
        w->grain[x] = grain < 1 ? 1 : grain;
        count *= kn_ceil_div(n, w->grain[x]);
    }
}

/* The shared loops of stage k, the tasks first; the name of the innermost one. */
static const char *put_shared(kn_buf *b, const windows *w, int k)
{
    const char *at = "";
    for (int inner = 0; inner < 2; inner++)
        for (int x = 0; x < w->site[0].s->nspatial; x++) {
            int cut = w->grain[x] > 1 && inner;
            if (!(w->shared >> x & 1) || (inner ? w->grain[x] && !cut : !w->grain[x])) continue;
            kn_putf(b, " %s.%d", kn_cpu_axis(&w->site[k], w->of[k][x]), cut);
            at = kn_format(w->a, "%s.%d", kn_cpu_axis(&w->site[k], w->of[k][x]), cut);
        }
    return at;
}

/* Vectors along n, rows of the axis that shares taps or else of another one. */
typedef struct block { int n, u; int64_t lanes, nv, mr; } block;

static block block_of(const windows *w, int k)
{
    const kn_site *x = &w->site[k];
    const kn_stmt *s = x->s;
    block c = {.n = x->n, .u = -1, .mr = 1};
    int64_t extent = s->axes[c.n].extent;
    c.lanes = lanes_of(w, k);
    c.nv = kn_ceil_div(extent, c.lanes);
    if (w->held) return c;
    int64_t most = k == 2 ? COPIES : ACCUMULATORS;
    if (c.nv > most) c.nv = k == 2 ? 4 : kn_cpu_written_out(c.nv);
    if (k == 2) return c;
    int along = slides_along(x, read_of(x));
    for (int i = 0; i < s->nspatial; i++)
        if (i != c.n && s->axes[i].extent > 1 && !is_shared(w, k, i) && (c.u < 0 || i == along)) c.u = i;
    if (c.u < 0) return c;
    c.mr = ACCUMULATORS / c.nv;
    if (c.mr > s->axes[c.u].extent) c.mr = s->axes[c.u].extent;
    return c;
}

/* Where wide rows of the first step are no longer in L1 when all of them have been made: bands of them that take a quarter of it. Not so few that
 * what was just stored would be read across two stores. */
static int64_t band_of(const windows *w)
{
    enum { STORES = 64 };
    const kn_hw_level *l1 = kn_hw_level_named(w->hw, "l1");
    const kn_site *x = &w->site[1];
    block y = block_of(w, 0), rows = block_of(w, 1);
    int axis = w->of[1][w->upright];
    if (!l1 || axis < 0 || w->held || (w->shared >> w->upright & 1) || y.mr > 1 || rows.mr > 1) return 0;
    int64_t row = kn_dtype_bytes(x->s->body->dtype), extent = kn_cpu_extent(x, axis);
    int64_t vectors = kn_ceil_div(kn_cpu_extent(x, rows.n), rows.lanes);
    for (int i = 0; i < x->s->nspatial; i++)
        if (i != axis && !is_shared(w, 1, i)) row *= kn_cpu_extent(x, i);
    int64_t most = l1->capacity_bytes / 4 / row, bands = most > 0 ? kn_ceil_div(extent, most) : extent, band = kn_ceil_div(extent, bands);
    return bands > 2 && band * vectors >= STORES ? band : 0;
}

static const char *put_stage(kn_buf *b, const windows *w, int k)
{
    const kn_site *x = &w->site[k];
    block c = block_of(w, k);
    int banded = w->band && k < 2 ? w->of[k][w->upright] : -1;
    if (banded >= 0) kn_putf(b, "split %s %s %lld\n", x->name, kn_cpu_axis(x, banded), (long long)w->band);
    for (int i = 0; i < w->site[0].s->nspatial; i++)
        if ((w->shared >> i & 1) && w->grain[i] > 1)
            kn_putf(b, "split %s %s %lld\n", x->name, kn_cpu_axis(x, w->of[k][i]), (long long)w->grain[i]);
    kn_putf(b, "split %s %s %lld %lld\n", x->name, kn_cpu_axis(x, c.n), (long long)c.nv, (long long)c.lanes);
    if (c.mr > 1) kn_putf(b, "split %s %s %lld\n", x->name, kn_cpu_axis(x, c.u), (long long)c.mr);
    kn_putf(b, "reorder %s", x->name);
    const char *at = put_shared(b, w, k);
    if (banded >= 0) kn_putf(b, " %s.0", kn_cpu_axis(x, banded));
    kn_put(b, " |");
    for (int i = 0; i < x->s->naxes; i++)
        if (!is_shared(w, k, i)) kn_putf(b, " %s.%d", kn_cpu_axis(x, i), i == banded);
    kn_put(b, " |");
    if (c.mr > 1) kn_putf(b, " %s.1", kn_cpu_axis(x, c.u));
    kn_putf(b, " %s.1 %s.2\n", kn_cpu_axis(x, c.n), kn_cpu_axis(x, c.n));
    for (int i = 0; i < x->s->nspatial && k == 0; i++)
        if ((w->shared >> i & 1) && w->grain[i]) kn_putf(b, "parallel %s %s.0\n", x->name, kn_cpu_axis(x, i));
    for (int i = x->s->nspatial; i < x->s->naxes; i++)
        if (x->reduce_extent * c.mr * c.nv <= KN_CPU_UNROLLED) kn_cpu_put_unrolled(b, x, i);
    if (c.mr > 1) kn_putf(b, "unroll %s %s.1\n", x->name, kn_cpu_axis(x, c.u));
    kn_putf(b, "unroll %s %s.1\nvectorize %s %s.2\n", x->name, kn_cpu_axis(x, c.n), x->name, kn_cpu_axis(x, c.n));
    return at;
}

static bool found(windows *w, int y)
{
    for (int x = 0; x < KILN_MAX_AXES; x++) w->of[0][x] = x;
    return chain(w, y) && w->stage[1] >= 0 && share(w) && fits(w);
}

bool kn_cpu_window_fits(kiln_arena *a, const kn_tree *t, const kn_hw *hw, int y)
{
    windows *w = kn_new(a, windows);
    if (!w) return false;
    *w = (windows){.a = a, .t = t, .hw = hw};
    return found(w, y);
}

bool kn_cpu_window_held(kiln_arena *a, const kn_tree *t, const kn_hw *hw, int y)
{
    windows *w = kn_new(a, windows);
    if (!w) return false;
    *w = (windows){.a = a, .t = t, .hw = hw};
    return found(w, y) && w->held;
}

uint32_t kn_cpu_window(kiln_arena *a, const kn_tree *t, const kn_hw *hw, int y, kn_plans *p)
{
    windows *w = kn_new(a, windows);
    if (!w) return 0;
    *w = (windows){.a = a, .t = t, .hw = hw};
    if (!found(w, y)) return 0;
    uint32_t set = 0;
    kn_buf b;
    const char *at = "";
    kn_buf_init(&b, a);
    tasks(w);
    w->band = band_of(w);
    for (int k = 0; k < 3 && w->stage[k] >= 0; k++) {
        set |= 1u << w->stage[k];
        const char *innermost = put_stage(&b, w, k);
        if (!k) at = innermost;
    }
    const char *band = w->band ? kn_format(a, "%s.0", kn_cpu_axis(&w->site[0], w->upright)) : at;
    for (int k = 1; k < 3 && w->stage[k] >= 0; k++)
        kn_putf(&b, "compute_at %s %s %s\n", w->site[k].name, w->site[0].name, k == 1 && band ? band : at);
    kn_plans_try(p, &b);
    return p->n ? set : 0;
}
