/* rTiles of a GPU: thread tile (cyclic vthreads), block tile in shared memory, reduce step, grid (ROLLER 3.1 to 3.3). A block's threads are whole
 * warps, its innermost run whole transactions, shared rows of even length get one element of padding so that a column is free of bank conflicts. */
#include "construct/site.h"
#include "te/expr.h"
#include <string.h>

/* Threads and vthreads of the two blocked axes, reduce step, threads along the reduction; lanes of vectors along it, 0: none; across: neighbouring
 * threads lie along n, not along the reduction. */
typedef struct gpu_tile { int64_t tm, tn, vm, vn, step, tr, lanes; bool shared, across; } gpu_tile;

static const char *axis(const kn_site *x, int i) { return x->s->axes[i].name; }
static int64_t extent(const kn_site *x, int i) { return i < 0 ? 1 : x->s->axes[i].extent; }

static int64_t pow2_above(int64_t n, int64_t most)
{
    int64_t p = 1;
    while (p < n && p < most) p *= 2;
    return p;
}

static void put_grid(kn_buf *b, const kn_site *x)
{
    for (int i = 0; i < x->s->nspatial; i++) kn_putf(b, " %s.0", axis(x, i));
    if (x->s->nspatial) kn_put(b, " |");
}

static void put_pair(kn_buf *b, const kn_site *x, const char *m, const char *n)
{
    if (x->m >= 0) kn_putf(b, " %s%s", axis(x, x->m), m);
    if (x->n >= 0) kn_putf(b, " %s%s", axis(x, x->n), n);
}

static void put_lines(kn_buf *b, const kn_site *x, const gpu_tile *t, int stepped)
{
    int ns = x->s->nspatial;
    if (x->m >= 0) kn_putf(b, "split %s %s %lld %lld\n", x->name, axis(x, x->m), (long long)t->vm, (long long)t->tm);
    if (x->n >= 0) kn_putf(b, "split %s %s %lld %lld\n", x->name, axis(x, x->n), (long long)t->vn, (long long)t->tn);
    if (stepped >= 0) kn_putf(b, "split %s %s %lld", x->name, axis(x, stepped), (long long)(t->tr > 1 ? t->tr : t->step));
    if (stepped >= 0 && t->lanes) kn_putf(b, " %lld", (long long)t->lanes);
    if (stepped >= 0) kn_put(b, "\n");
    kn_putf(b, "reorder %s", x->name);
    put_grid(b, x);
    if (stepped >= 0 && t->tr > 1 && t->across) kn_putf(b, " %s.1", axis(x, stepped));
    put_pair(b, x, ".2", ".2");
    if (stepped >= 0 && t->tr > 1 && !t->across) kn_putf(b, " %s.1", axis(x, stepped));
    kn_put(b, " |");
    for (int i = ns; i < x->s->naxes; i++) if (i != stepped) kn_putf(b, " %s.0", axis(x, i));
    if (stepped >= 0) kn_putf(b, " %s.0", axis(x, stepped));
    if (stepped >= 0 && t->tr <= 1) kn_putf(b, " | %s.1", axis(x, stepped));
    put_pair(b, x, ".1", ".1");
    if (stepped >= 0 && t->lanes) kn_putf(b, " %s.2", axis(x, stepped));
    kn_put(b, "\n");
    for (int i = 0; i < ns; i++) kn_putf(b, "bind %s %s.0 grid\n", x->name, axis(x, i));
    for (int i = 0; i < ns; i++) {
        if (i != x->m && i != x->n) continue;
        kn_putf(b, "bind %s %s.2 thread\nbind %s %s.1 vthread\n", x->name, axis(x, i), x->name, axis(x, i));
    }
    if (stepped >= 0 && t->tr > 1) kn_putf(b, "rfactor %s %s.1\nbind %s %s.1 thread\n", x->name, axis(x, stepped), x->name, axis(x, stepped));
    if (stepped >= 0 && t->lanes) kn_putf(b, "vectorize %s %s.2\n", x->name, axis(x, stepped));
}

/* A load's loops inside the step, from its slowest dimension to its fastest, so that neighbouring threads fetch neighbouring elements. */
static void put_shared(kn_buf *b, const kn_site *x, const gpu_tile *t, int stepped)
{
    const char *at = axis(x, stepped >= 0 ? stepped : x->s->nspatial - 1);
    for (int l = 0; l < x->nloads; l++) {
        const kn_site_access *a = &x->load[l];
        struct { int axis; int64_t coef; } in[3] = {{-1, 0}, {-1, 0}, {-1, 0}};
        const int roles[3] = {x->m, x->n, stepped};
        int n = 0;
        for (int i = 0; i < 3; i++) {
            if (roles[i] < 0 || !(a->axes >> roles[i] & 1)) continue;
            int64_t c = a->linear ? a->coef[roles[i]] : i == 2 ? 1 : 2;
            int at = n++;
            for (; at > 0 && in[at - 1].coef < c; at--) in[at] = in[at - 1];
            in[at].axis = roles[i], in[at].coef = c;
        }
        if (!n) continue;
        if (stepped < 0 && (!a->linear || n < 2 || a->coef[x->n] == 1)) continue; /* read along n already */
        kn_putf(b, "cache_read %s %d shared %s.0 loops", x->name, l, at);
        for (int i = 0; i < n; i++) {
            if (stepped >= 0 && in[i].axis == stepped) kn_putf(b, " %s.1", axis(x, stepped));
            else kn_putf(b, " %s.1 %s.2", axis(x, in[i].axis), axis(x, in[i].axis));
        }
        bool column = stepped < 0 || (in[n - 1].axis == stepped && t->step % 2 == 0); /* rows of a power of two words would hit one bank */
        kn_put(b, column ? " pad 1\n" : "\n");
    }
}

static void put_note(kn_buf *b, const kn_plans *p)
{
    if (p->note) kn_putf(b, "# no tensor cores: %s\n", p->note);
}

static void try_tile(const kn_site *x, kn_plans *p, const gpu_tile *t, int stepped)
{
    kn_buf b;
    kn_buf_init(&b, p->a);
    put_note(&b, p);
    put_lines(&b, x, t, stepped);
    if (t->shared) put_shared(&b, x, t, stepped);
    kn_plans_try(p, &b);
}

/* Contractions: thread tiles by falling reuse, block shapes of whole warps; the reduce axis that is longest is stepped. */
static void contraction_tiles(const kn_site *x, kn_plans *p)
{
    static const int64_t regs[][2] = {{8, 8}, {8, 4}, {4, 8}, {4, 4}, {2, 4}, {4, 2}, {2, 2}, {1, 4}, {1, 1}};
    static const int64_t blocks[][2] = {{16, 16}, {8, 16}, {8, 8}, {8, 32}, {4, 32}, {32, 8}, {1, 64}};
    int stepped = x->s->nspatial;
    for (int i = stepped; i < x->s->naxes; i++) if (extent(x, i) > extent(x, stepped)) stepped = i;
    for (int eps = 0; eps < 2; eps++) { /* tiles that waste little first (ROLLER's shape rule), then any */
        for (size_t i = 0; i < sizeof regs / sizeof *regs; i++) {
            for (size_t k = 0; k < sizeof blocks / sizeof *blocks; k++) {
                gpu_tile t = {.tm = blocks[k][0], .tn = blocks[k][1], .vm = regs[i][0], .vn = regs[i][1], .tr = 1, .shared = true};
                int64_t sm = t.tm * t.vm, sn = t.tn * t.vn, M = extent(x, x->m), N = extent(x, x->n);
                double waste = (double)kn_round_up(M, sm) * (double)kn_round_up(N, sn) / ((double)M * (double)N);
                if ((waste <= 1.25) != (eps == 0) || (eps == 1 && waste > 8 && p->n)) continue;
                for (int64_t step = 8; step <= 32; step *= 4) {
                    if (step > 8 && step > extent(x, stepped)) break;
                    t.step = step < extent(x, stepped) ? step : pow2_above(extent(x, stepped), step);
                    try_tile(x, p, &t, stepped);
                }
            }
        }
    }
}

static void put_vectors(kn_buf *b, const kn_site *x, int64_t vectors, int64_t v, int64_t threads, int64_t u)
{
    int64_t tn = pow2_above(vectors, threads), tm = pow2_above(extent(x, x->m), threads / tn);
    const char *n = axis(x, x->n), *m = x->m >= 0 ? axis(x, x->m) : NULL;
    if (m) kn_putf(b, "split %s %s %lld\n", x->name, m, (long long)tm);
    kn_putf(b, "split %s %s %lld %lld %lld\nreorder %s", x->name, n, (long long)u, (long long)tn, (long long)v, x->name);
    put_grid(b, x);
    if (m) kn_putf(b, " %s.1", m);
    kn_putf(b, " %s.2 |", n);
    for (int i = x->s->nspatial; i < x->s->naxes; i++) kn_putf(b, " %s.0", axis(x, i));
    kn_putf(b, " %s.1 %s.3\n", n, n);
    for (int i = 0; i < x->s->nspatial; i++) kn_putf(b, "bind %s %s.0 grid\n", x->name, axis(x, i));
    if (m) kn_putf(b, "bind %s %s.1 thread\n", x->name, m);
    kn_putf(b, "bind %s %s.2 thread\nbind %s %s.1 vthread\nvectorize %s %s.3\n", x->name, n, x->name, n, x->name, n);
}

/* The widest step between what neighbouring results read. */
static int64_t step_of(const kn_site *x)
{
    int64_t most = 1;
    for (int l = 0; l < x->nloads; l++) {
        int64_t c = x->load[l].linear ? x->load[l].coef[x->n] : 1;
        if (c < 0) c = -c;
        if (c > most) most = c;
    }
    return most;
}

/* Maps, and sums over what lies apart, in vectors of up to 16 bytes of what is widest, consecutive threads on consecutive vectors, and on 16 bytes of
 * what they read at most (of a window with steps of 2 vectors of 4 results take twice as long as of 2); rows must not begin between vectors. */
static void vector_tiles(const kn_site *x, kn_plans *p)
{
    kn_site y = *x;
    int bytes = kn_dtype_bytes(x->t->program->tensors[x->s->out].dtype);
    bool reduces = x->s->red != KN_RED_NONE;
    if (x->n < 0 || !x->store.linear || x->store.coef[x->n] != 1 || x->g->epilogue >= 0) return;
    y.m = -1;
    for (int i = 0; i < x->s->nspatial; i++) if (i != x->n && (y.m < 0 || extent(x, i) >= extent(x, y.m))) y.m = i;
    for (int l = 0; l < x->nloads; l++) if (x->load[l].bytes > bytes) bytes = x->load[l].bytes;
    for (int64_t v = 16 / bytes / step_of(x); v > 1; v /= 2) {
        int64_t vectors = kn_ceil_div(extent(x, x->n), v);
        bool even = vectors * v == extent(x, x->n);
        for (int i = 0; i < x->s->nspatial; i++) even &= i == x->n || x->store.coef[i] % v == 0 || extent(x, i) == 1;
        if (!even && (x->s->nspatial > 1 || reduces)) continue;
        for (int64_t threads = 128; threads <= 256; threads *= 2) {
            for (int64_t u = 1; u <= 4; u *= 2) {
                kn_buf b;
                if (u > 1 && pow2_above(vectors, threads) * u >= 2 * vectors) break;
                kn_buf_init(&b, p->a);
                put_note(&b, p);
                put_vectors(&b, &y, vectors, v, threads, u);
                kn_plans_try(p, &b);
            }
        }
    }
}

/* One thread an output, or several; for maps, windows and column sums. n gets the threads first, then the axis beside it. */
static void pointwise_tiles(const kn_site *x, kn_plans *p)
{
    kn_site y = *x;
    y.m = -1;
    for (int i = 0; i < x->s->nspatial; i++) if (i != x->n && (y.m < 0 || extent(x, i) >= extent(x, y.m))) y.m = i;
    for (int64_t threads = 64; threads <= 256; threads *= 2) {
        if (threads > x->hw->max_threads_per_block) break;
        for (int64_t v = 1; v <= 4; v *= 2) {
            gpu_tile t = {.tn = pow2_above(extent(&y, y.n), threads), .vm = 1, .vn = v, .step = 1, .tr = 1};
            if (v > 1 && t.tn * v >= 2 * extent(&y, y.n)) break;
            t.tm = pow2_above(extent(&y, y.m), threads / t.tn);
            try_tile(&y, p, &t, -1);
        }
    }
}

/* Maps that read along another axis than they write: a square goes through shared memory, so that both sides move whole transactions. */
static void transposing_tiles(const kn_site *x, kn_plans *p)
{
    for (int l = 0; l < x->nloads; l++) {
        kn_site y = *x;
        y.m = -1;
        for (int i = 0; i < x->s->nspatial; i++) if (i != x->n && x->load[l].linear && x->load[l].coef[i] == 1) y.m = i;
        if (y.m < 0) continue;
        for (int64_t rows = 8; rows <= 32; rows *= 2) {
            gpu_tile t = {.tm = rows, .tn = 32, .vm = 32 / rows, .vn = 1, .step = 1, .tr = 1, .shared = true};
            try_tile(&y, p, &t, -1);
        }
    }
}

/* Lanes of the vectors of 16 bytes in which the threads read a row that they reduce; 0: rows do not begin at such vectors, or are too short. */
static int64_t row_lanes(const kn_site *x, int r, int64_t threads)
{
    int64_t v = 16;
    for (int l = 0; l < x->nloads; l++) {
        const kn_site_access *a = &x->load[l];
        if (!(a->axes >> r & 1)) continue;
        if (!a->linear || a->padded || a->coef[r] != 1 || a->bytes > 8) return 0;
        if (16 / a->bytes < v) v = 16 / a->bytes;
    }
    for (int l = 0; l < x->nloads; l++)
        for (int i = 0; i < x->s->naxes && (x->load[l].axes >> r & 1); i++)
            if (i != r && x->load[l].coef[i] % v && extent(x, i) > 1) return 0;
    return v > 1 && extent(x, r) >= v * threads / 2 ? v : 0;
}

/* Threads that sum a row for several results keep what these share: a vector that every row of a matrix is multiplied by. */
static void shared_rows(const kn_site *y, kn_plans *p, gpu_tile t, int stepped)
{
    bool again = false;
    for (int l = 0; l < y->nloads && y->n >= 0; l++) again |= (y->load[l].axes >> stepped & 1) && !(y->load[l].axes >> y->n & 1);
    for (t.vn = 2; t.vn <= 4 && again && y->s->red == KN_RED_SUM && extent(y, y->n) % t.vn == 0; t.vn *= 2) try_tile(y, p, &t, stepped);
}

/* Threads along the reduction, combined through shared memory: for reductions whose outputs alone cannot fill the device. */
static void reduction_tiles(const kn_site *x, kn_plans *p)
{
    int stepped = x->r >= 0 ? x->r : x->s->nspatial;
    char class = kn_dtype_class(kn_stmt_acc(x->s));
    if (class == 'b') return;
    kn_site y = *x;
    y.m = -1;
    for (int64_t tr = x->hw->lanes; tr <= 512 && tr <= x->hw->max_threads_per_block; tr *= 2) {
        if (tr > x->hw->lanes && tr >= 2 * extent(x, stepped)) break;
        gpu_tile t = {.tm = 1, .tn = 1, .vm = 1, .vn = 1, .step = 1, .tr = tr};
        t.lanes = row_lanes(x, stepped, tr);
        try_tile(&y, p, &t, stepped);
        if (!t.lanes) continue;
        shared_rows(&y, p, t, stepped);
        t.lanes = 0;
        try_tile(&y, p, &t, stepped);
    }
}

/* Sums over what lies apart: some threads along the sum, warps along the results. */
static void column_tiles(const kn_site *x, kn_plans *p)
{
    int stepped = x->s->nspatial;
    bool apart = false;
    kn_site y = *x;
    y.m = -1;
    for (int i = stepped; i < x->s->naxes; i++) if (extent(x, i) > extent(x, stepped)) stepped = i;
    for (int l = 0; l < x->nloads; l++) apart |= x->n >= 0 && x->load[l].linear && x->load[l].coef[x->n] == 1 && (x->load[l].axes >> stepped & 1);
    for (int64_t tr = 4; tr <= 32 && apart && tr <= extent(x, stepped); tr *= 2) {
        gpu_tile t = {.tm = 1, .tn = 32, .vm = 1, .vn = 1, .step = 1, .tr = tr, .across = true};
        if (x->hw->lanes == 32) try_tile(&y, p, &t, stepped);
    }
}

static bool multiplies(const kn_expr *e)
{
    if (e->op == KN_OP_LOAD) return false;
    if (e->op == KN_OP_MUL && kn_bare(e->args[0])->op == KN_OP_LOAD && kn_bare(e->args[1])->op == KN_OP_LOAD) return true;
    bool found = false;
    for (int i = 0; i < e->nargs && !found; i++) found = multiplies(e->args[i]);
    return found;
}

/* Sums of products go to instructions that warps compute together, where the device has any; why this one does not, NULL: it does, or is no such
 * sum. */
static const char *on_warps(const kn_site *x, kn_plans *p)
{
    bool any = false;
    for (int k = 0; k < x->hw->nintrins && !any; k++) any = kn_warp_of(&x->hw->intrins[k]) != NULL;
    if (!any || x->s->red != KN_RED_SUM || !multiplies(x->s->body)) return NULL;
    if (x->nloads != 2) return "it is no product of two tensors";
    if (kn_bare(x->s->body)->op == KN_OP_SELECT) return "the products stand under a condition: zeros in their place would make infinities NaN";
    if (!x->contraction) return "one factor has no axis of its own: its elements are not used again";
    return kn_plan_warps(x, p);
}

void kn_plan_gpu(const kn_site *x, kn_plans *p)
{
    if (!kn_plan_scatter(x, p)) {
        p->note = on_warps(x, p);
        if (p->n) return;
        if (x->contraction) contraction_tiles(x, p);
        if (x->s->red != KN_RED_NONE) {
            column_tiles(x, p);
            reduction_tiles(x, p);
        } else {
            transposing_tiles(x, p);
        }
        vector_tiles(x, p);
        if (!p->n || !x->contraction) pointwise_tiles(x, p);
    }
    if (p->n) return;
    kn_buf none;
    kn_buf_init(&none, p->a);
    p->left++;
    put_note(&none, p);
    kn_put(&none, "# as written, one thread\n");
    kn_plans_try(p, &none);
}
