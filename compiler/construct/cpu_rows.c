/* Stages of one row on a CPU core: a statement and the producers of its temporaries that have its outer axes too, so that what one iteration of
 * these makes stays in L1 or L2 (Chimera, HPCA'23, fuses chains by the same rule: the tile of every stage in a cache at once). Reductions, the
 * maps between them and the map behind them go under one loop over rows; which stages those are follows from how they read each other, and from
 * the hwspec. What a row touches has to fit L2 (a core's share of L3 where temporaries are as long as the row); short rows go in blocks that L1
 * holds. */
#include "construct/cpu.h"
#include "construct/rows.h"
#include "te/expr.h"

enum {
    CHUNK = 8,   /* most vectors of a row in registers */
    PICKED = 32, /* of one whose lanes lie at places that have to be known */
    FEW = 4,     /* of columns, below which their runs of memory are too short */
    CHAINS = 8,  /* accumulators of a sum along lanes */
    DEAR = 4,    /* of a sum of what takes some dozen instructions each: more only make the text longer (a third of a softmax's compile time) */
    TOGETHER = 16, /* most rows that a stage goes through before the next one: what one wrote need not be read at once */
    TASKS_FROM = 16384 /* elements from which on a result is worth several tasks */
};

/* Stages stage[0] < stage[1] < ... < the last one, whose loops over the row axes become everybody's. */
typedef struct rows {
    kn_rows g;
    int chunked;                           /* the row axis along which lanes lie, -1: lanes lie inside a row */
    int64_t grain[KILN_MAX_AXES];          /* iterations of a row axis in one task */
    bool task[KILN_MAX_AXES];              /* its outermost loop is a task loop */
    int64_t nv, lanes;                     /* of `chunked` */
    int blocked;                           /* the row axis of which every stage takes `block` at a time, -1: none */
    int64_t block;
} rows;

/* Bytes that one iteration of the row axes touches, `chunk` of the axis along lanes at once. */
static double row_bytes(const rows *r, uint32_t shared, int64_t chunk)
{
    double of[KILN_MAX_TENSORS] = {0}, sum = 0;
    for (int i = 0; i < r->g.n; i++) {
        const kn_stmt *s = kn_rows_stmt(&r->g, r->g.stage[i]);
        const kn_expr *loads[KN_SITE_LOADS + 1];
        int n = kn_loads(s->body, loads, KN_SITE_LOADS);
        if (n > KN_SITE_LOADS) n = KN_SITE_LOADS;
        for (int l = 0; l <= n; l++) {
            int tensor = l < n ? loads[l]->u.tensor : kn_stage_out(r->g.t, r->g.t->stages[r->g.stage[i]]);
            uint32_t axes = 0;
            double bytes = kn_dtype_bytes(r->g.t->program->tensors[tensor].dtype);
            if (l < n) axes = kn_axes_in(loads[l]);
            else axes = (1u << s->nspatial) - 1;
            for (int x = 0; x < s->naxes; x++) {
                int y = r->g.of[r->g.stage[i]][x];
                if (!(axes >> x & 1) || (y >= 0 && (shared >> y & 1) && y != r->chunked)) continue;
                bytes *= y >= 0 && y == r->chunked && chunk < s->axes[x].extent ? (double)chunk : (double)s->axes[x].extent;
            }
            if (bytes > of[tensor]) of[tensor] = bytes;
        }
    }
    for (int i = 0; i < KILN_MAX_TENSORS; i++) sum += of[i];
    return sum;
}

/* Lanes along a row axis: runs of memory as long as L2 has room for, of which the last one, moved back, repeats as little as can be. False: no cut of
 * it fits. */
static bool chunk_of(rows *r, int64_t full)
{
    const kn_hw_level *l2 = kn_hw_level_named(r->g.hw, "l2");
    int64_t extent = kn_rows_stmt(&r->g, r->g.last)->axes[r->chunked].extent, best = 1;
    if (extent < 2 * full) { /* such a row is taken whole */
        r->g.shared &= ~(1u << r->chunked);
        r->chunked = -1;
        return r->g.shared != 0 && row_bytes(r, r->g.shared, 0) <= (double)l2->capacity_bytes / 2;
    }
    r->lanes = full;
    for (int64_t nv = 1; nv <= CHUNK && nv * full <= extent; nv++) {
        if (row_bytes(r, r->g.shared, nv * full) > (double)l2->capacity_bytes / 2) break;
        if (nv <= FEW || kn_round_up(extent, nv * full) <= kn_round_up(extent, best * full)) best = nv;
    }
    r->nv = best;
    return row_bytes(r, r->g.shared, best * full) <= (double)l2->capacity_bytes / 2;
}

/* Rows of a block that leave every core some blocks. */
static int64_t blocks_most(const rows *r)
{
    enum { EACH = 4 };
    const kn_stmt *s = kn_rows_stmt(&r->g, r->g.last);
    double all = 1, points = 1;
    for (int i = 0; i < s->naxes; i++) points *= (double)s->axes[i].extent;
    for (int i = 0; i < s->nspatial; i++) all *= r->g.shared >> i & 1 ? (double)s->axes[i].extent : 1;
    int64_t most = s->axes[r->blocked].extent, each = (int64_t)(all / (EACH * (double)r->g.hw->units));
    return points >= TASKS_FROM && each < most ? each : most;
}

/* Most rows of a block that the rows are whole blocks of, if that is half as many as may be at least; else those that the last block lacks
 * least of. */
static int64_t even_block(int64_t rows, int64_t most)
{
    int64_t best = most;
    for (int64_t n = most; n > 1 && 2 * n >= most; n--) {
        if (rows % n == 0) return n;
        if (kn_round_up(rows, n) < kn_round_up(rows, best)) best = n;
    }
    return best;
}

/* Short rows: as many as L1 holds, so that one row's chain of stages does not wait for its own stores. */
static void block_of(rows *r)
{
    const kn_hw_level *l1 = kn_hw_level_named(r->g.hw, "l1");
    const kn_stmt *s = kn_rows_stmt(&r->g, r->g.last);
    for (int i = 0; i < s->nspatial; i++) if (r->g.shared >> i & 1) r->blocked = i;
    double rows = l1 ? (double)l1->capacity_bytes / row_bytes(r, r->g.shared, 0) : 0;
    r->block = rows < TOGETHER ? (int64_t)rows : TOGETHER;
    if (r->block > blocks_most(r)) r->block = blocks_most(r);
    r->block = even_block(s->axes[r->blocked].extent, r->block);
    if (r->block < 2 || r->g.n < 2) r->blocked = -1;
}

/* Iterations of a row axis: chunks, where lanes lie along it, or blocks of rows. */
static int64_t turns(const rows *r, int axis)
{
    int64_t n = kn_rows_stmt(&r->g, r->g.last)->axes[axis].extent;
    if (axis == r->blocked) return kn_ceil_div(n, r->block);
    return axis == r->chunked ? kn_ceil_div(n, r->nv * r->lanes) : n;
}

static double points_of(const kn_stmt *s)
{
    double points = 1;
    for (int i = 0; i < s->naxes; i++) points *= (double)s->axes[i].extent;
    return points;
}

/* Points of a chain, those of its last stage; where that is a sum or an extremum of few terms (of counts, from which the next ones follow), of the
 * stage that has most. Sums that a map finishes have plans of their own, in parts. */
static double most_points(const rows *r)
{
    const kn_stmt *last = kn_rows_stmt(&r->g, r->g.last);
    double most = points_of(last);
    for (int k = 0; k < r->g.n && last->red != KN_RED_NONE; k++) {
        double points = points_of(kn_rows_stmt(&r->g, r->g.stage[k]));
        most = points > most ? points : most;
    }
    return most;
}

/* Tasks: outer row axes whole, and the one that makes them enough in runs of a length that leaves the cores about 32 each. */
static void tasks(rows *r)
{
    const kn_stmt *s = kn_rows_stmt(&r->g, r->g.last);
    double points = most_points(r);
    int64_t count = 1, want = 32 * (int64_t)r->g.hw->units;
    for (int i = 0; i < s->nspatial; i++) {
        r->grain[i] = 1;
        r->task[i] = false;
        if (!(r->g.shared >> i & 1) || count >= want || points < TASKS_FROM) continue;
        int64_t n = turns(r, i), grain = n * count / want;
        r->task[i] = true;
        if (grain < 1) grain = 1;
        while ((i == r->chunked || i == r->blocked) && n % grain) grain--; /* what reaches past the end would be guarded */
        r->grain[i] = grain;
        count *= kn_ceil_div(n, grain);
    }
}

static const char *name_of(const rows *r, int k, int axis)
{
    const kn_stmt *s = kn_rows_stmt(&r->g, k);
    for (int x = 0; x < s->naxes; x++) if (r->g.of[k][x] == axis) return s->axes[x].name;
    return "";
}

/* Cuts of the row axes, the same in every stage. */
static void put_row_splits(kn_buf *b, const rows *r, int k, const char *stage)
{
    for (int i = 0; i < kn_rows_stmt(&r->g, r->g.last)->nspatial; i++) {
        if (!(r->g.shared >> i & 1) || (r->grain[i] == 1 && i != r->chunked && i != r->blocked)) continue;
        kn_putf(b, "split %s %s", stage, name_of(r, k, i));
        if (r->grain[i] > 1) kn_putf(b, " %lld", (long long)r->grain[i]);
        if (i == r->chunked) kn_putf(b, " %lld %lld", (long long)r->nv, (long long)r->lanes);
        if (i == r->blocked) kn_putf(b, " %lld", (long long)r->block);
        kn_put(b, "\n");
    }
}

/* The row loops in order: task loops first. Returns the name of the innermost one as the last stage has it. */
static const char *put_row_loops(kn_buf *b, const rows *r, int k)
{
    const char *at = "";
    for (int inner = 0; inner < 2; inner++)
        for (int i = 0; i < kn_rows_stmt(&r->g, r->g.last)->nspatial; i++) {
            bool second = inner && r->task[i];
            if (!(r->g.shared >> i & 1) || (inner ? second && r->grain[i] == 1 : !r->task[i])) continue;
            kn_putf(b, " %s.%d", name_of(r, k, i), second);
            at = kn_format(r->g.a, "%s.%d", name_of(r, r->g.last, i), second);
        }
    return at;
}

/* How the axes of a stage that are not row axes are walked: lanes along axis `along` (-1: none), `many` vectors of them at once. */
typedef struct walk { int along; int64_t many, lanes; bool sums; } walk;

/* A sum of what another stage makes by functions, in the same loops where lowering finds them alike (lower/made.c). */
static bool sums_functions(const rows *r, const kn_site *x)
{
    const kn_expr *loads[1];
    if (kn_loads(x->s->body, loads, 1) != 1) return false;
    for (int k = 0; k < r->g.n; k++) {
        const kn_stmt *made = kn_rows_stmt(&r->g, k);
        if (made->out == loads[0]->u.tensor) return made->red == KN_RED_NONE && kn_has_function(made->body);
    }
    return false;
}

static bool whole_lines(const kn_site *x)
{
    return x->s->axes[x->n].extent * kn_dtype_bytes(x->t->program->tensors[x->s->out].dtype) % KN_CPU_LINE == 0;
}

/* Results that are to be written past the caches, in rows that are no whole lines: their vectors begin with lines, the first of them before the row
 * (lower/lines.c). */
static bool begins_with_lines(const kn_site *x, int64_t lanes)
{
    const kn_program *p = x->t->program;
    const kn_tensor *out = &p->tensors[x->s->out];
    int64_t each = kn_dtype_bytes(out->dtype);
    double touched = 0;
    for (int t = 0; t < p->ntensors; t++) touched += p->tensors[t].role == KN_TEMP ? 0 : kn_cpu_bytes(&p->tensors[t]);
    if (!kn_hw_past_caches(x->hw, touched)) return false;
    return out->role == KN_OUTPUT && lanes * each == KN_CPU_LINE && !whole_lines(x) && x->store.linear && x->store.coef[x->n] == 1;
}

/* Vectors of such a row at once, those that leave least of some tiles; 0: it stays in registers as a whole. That is better for short rows, and where
 * more is read along them than what they are made of (85 to 123 elements: softmax 1.2 times as fast from lines, layer norm 0.8 to 1.1). */
static int64_t from_lines(const kn_site *x, int64_t lanes)
{
    enum { SHORT = 4 };
    int64_t n = x->s->axes[x->n].extent, vectors = kn_ceil_div(n + lanes - 1, lanes), best = 0, along = 0;
    for (int l = 0; l < x->nloads; l++) along += x->load[l].axes >> x->n & 1;
    if (n <= SHORT * lanes || (n <= CHUNK * lanes && along > 1)) return 0;
    for (int64_t nv = CHUNK; nv > 1; nv--)
        if (nv * lanes <= n && (!best || kn_round_up(vectors, nv) < kn_round_up(vectors, best))) best = nv;
    return best;
}

/* Vectors of a row of results at once: four, but where the last of those, which is moved back to end with the row, would compute a sixteenth of the
 * row and more again, as many as leave least (rows of 200 in vectors of 8 by 5: softmax takes 0.9 of the time). Rows of whole lines stay in these. */
static int64_t at_once(const kn_site *x, int64_t vectors, int64_t lanes)
{
    static const int64_t others[] = {5, 6, 7};
    enum { AGAIN = 16 };
    int64_t best = 4, bytes = kn_dtype_bytes(x->t->program->tensors[x->s->out].dtype);
    bool lines = whole_lines(x);
    if ((kn_round_up(vectors, best) - vectors) * AGAIN < vectors || x->t->program->tensors[x->s->out].role != KN_OUTPUT) return best;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        bool cut = lines && others[i] * lanes * bytes % KN_CPU_LINE;
        if (!cut && kn_round_up(vectors, others[i]) < kn_round_up(vectors, best)) best = others[i];
    }
    return best;
}

static walk walk_of(const rows *r, int k, const kn_site *x)
{
    bool reduces = x->s->red != KN_RED_NONE;
    int64_t full = r->g.hw->vector_bytes / (reduces ? kn_cpu_acc_bytes(x) : kn_cpu_computed_bytes(x));
    walk w = {.along = -1, .many = 1, .lanes = 1};
    if (r->chunked >= 0) return w;
    if (reduces && x->r >= 0 && x->s->red != KN_RED_ALL && x->s->red != KN_RED_ANY) w.along = x->r, w.sums = true;
    else if (x->n >= 0 && (r->g.of[k][x->n] < 0 || !(r->g.shared >> r->g.of[k][x->n] & 1))) w.along = x->n;
    if (w.along < 0) return w;
    int64_t n = x->s->axes[w.along].extent, vectors;
    w.lanes = kn_cpu_pow2(n, full);
    vectors = kn_ceil_div(n, w.lanes);
    int64_t lines = w.along == x->n && !reduces && begins_with_lines(x, w.lanes) ? from_lines(x, w.lanes) : 0;
    if (lines) w.many = lines;
    else if (vectors <= CHUNK || (!w.sums && vectors <= PICKED && kn_cpu_picked(x))) w.many = vectors;
    else if (w.sums) w.many = sums_functions(r, x) ? DEAR : CHAINS;
    else w.many = at_once(x, vectors, w.lanes);
    if (w.lanes < 2) w = (walk){.along = -1, .many = 1, .lanes = 1};
    return w;
}

static const char *put_stage(kn_buf *b, const rows *r, int k)
{
    kn_site x;
    kn_site_of(r->g.a, r->g.t, r->g.t->stages[k], r->g.hw, &x);
    walk w = walk_of(r, k, &x);
    const char *along = w.along >= 0 ? kn_cpu_axis(&x, w.along) : r->chunked >= 0 ? name_of(r, k, r->chunked) : NULL;
    int digit = w.along >= 0 ? 1 : r->chunked >= 0 && r->grain[r->chunked] > 1 ? 2 : 1; /* of the loop of vectors; that of lanes follows */
    put_row_splits(b, r, k, x.name);
    if (w.along >= 0) kn_putf(b, "split %s %s %lld %lld\n", x.name, along, (long long)w.many, (long long)w.lanes);
    kn_putf(b, "reorder %s", x.name);
    const char *at = put_row_loops(b, r, k);
    bool bar = r->blocked < 0; /* a tile of the row's serial loops, one of its sums */
    if (!bar) kn_putf(b, " | %s.%d", name_of(r, k, r->blocked), r->grain[r->blocked] > 1 ? 2 : 1);
    for (int i = 0; i < x.s->naxes; i++) {
        int y = r->g.of[k][i];
        if (y >= 0 && (r->g.shared >> y & 1)) continue;
        kn_putf(b, "%s %s.0", bar || i == x.s->nspatial ? " |" : "", x.s->axes[i].name);
        bar = false;
    }
    if (along) kn_putf(b, " | %s.%d %s.%d", along, digit, along, digit + 1);
    kn_put(b, "\n");
    for (int i = 0; i < x.s->nspatial && k == r->g.last; i++)
        if (r->task[i]) kn_putf(b, "parallel %s %s.0\n", x.name, x.s->axes[i].name);
    if (along) kn_putf(b, "unroll %s %s.%d\n", x.name, along, digit);
    if (w.sums && w.many > 1) kn_putf(b, "rfactor %s %s.%d\n", x.name, along, digit);
    if (along) kn_putf(b, "vectorize %s %s.%d\n", x.name, along, digit + 1);
    return at;
}

/* Some stage before the last writes elements of the row, which would go to memory and come back where rows are not taken one by one. */
static bool keeps_rows(const rows *r)
{
    for (int i = 1; i < r->g.n; i++) {
        const kn_stmt *s = kn_rows_stmt(&r->g, r->g.stage[i]);
        for (int a = 0; a < s->nspatial; a++) {
            int of = r->g.of[r->g.stage[i]][a];
            if (s->axes[a].extent > 1 && !(of >= 0 && r->g.shared >> of & 1)) return true;
        }
    }
    return false;
}

/* Bytes of L3 that a core may take for a row; none where rows leave cores idle, which the stages by themselves may not. */
static double share_of_l3(const rows *r)
{
    const kn_hw_level *l3 = kn_hw_level_named(r->g.hw, "l3");
    const kn_stmt *s = kn_rows_stmt(&r->g, r->g.last);
    double all = 1;
    for (int i = 0; i < s->nspatial; i++) all *= r->g.shared >> i & 1 ? (double)s->axes[i].extent : 1;
    return l3 && all >= (double)r->g.hw->units ? (double)l3->capacity_bytes / (double)(l3->shared_by_units > 1 ? l3->shared_by_units : 1) : 0;
}

/* The stages that go under the row loop of stage `last`; false: none does. */
static bool gather(rows *r)
{
    const kn_stmt *s = kn_rows_stmt(&r->g, r->g.last);
    const kn_hw_level *l2 = kn_hw_level_named(r->g.hw, "l2");
    kn_site x;
    kn_site_of(r->g.a, r->g.t, r->g.t->stages[r->g.last], r->g.hw, &x);
    if (!l2 || s->scatter || x.contraction || kn_rows_slides(s) || kn_site_scheduled(r->g.t, r->g.t->stages[r->g.last])) return false;
    r->g.n = 1, r->g.stage[0] = r->g.last, r->chunked = r->blocked = -1;
    r->g.shared = (1u << s->nspatial) - 1;
    for (int i = 0; i < KILN_MAX_AXES; i++) r->g.of[r->g.last][i] = i < s->nspatial ? i : -1;
    for (int i = 0; i < s->nspatial; i++) if (s->axes[i].extent < 2) r->g.shared &= ~(1u << i);
    for (int k = r->g.last - 1; k >= 0; k--) if (kn_rows_join(&r->g, k)) r->g.stage[r->g.n++] = k;
    if (!r->g.shared) return false;
    bool inside = false; /* lanes lie along the reduction of some stage */
    for (int i = 0; i < r->g.n; i++) {
        kn_site y;
        kn_site_of(r->g.a, r->g.t, r->g.t->stages[r->g.stage[i]], r->g.hw, &y);
        inside = inside || (y.s->red != KN_RED_NONE && kn_cpu_only_along_r(&y));
    }
    bool alone = kn_cpu_stands_up(&x) || kn_cpu_is_vector(&x) || kn_cpu_in_runs(&x); /* rows written out to their ends; in panels; far apart */
    if (r->g.n < 2 && (!inside || alone)) return false;
    if (inside || x.n < 0 || !(r->g.shared >> x.n & 1)) {
        /* a part of it is overwritten where it lies, and what L2 is short of comes from L3: of short vectors a row of 30522 takes half of the time */
        double room = (double)l2->capacity_bytes * (kn_cpu_short_vectors(&x) ? 0.75 : 0.5), far = keeps_rows(r) ? share_of_l3(r) : 0;
        return row_bytes(r, r->g.shared, 0) <= (far > room ? far : room);
    }
    r->chunked = x.n;
    return chunk_of(r, r->g.hw->vector_bytes / kn_cpu_computed_bytes(&x));
}

uint32_t kn_cpu_rows(kiln_arena *a, const kn_tree *t, const kn_hw *hw, int last, kn_plans *p)
{
    rows r = {.g = {.a = a, .t = t, .hw = hw, .last = last}};
    if (!gather(&r)) return 0;
    uint32_t set = 0;
    kn_buf b;
    const char *at = "";
    kn_buf_init(&b, a);
    if (r.chunked < 0) block_of(&r);
    tasks(&r);
    for (int i = 0; i < r.g.n; i++) {
        set |= 1u << r.g.stage[i];
        at = put_stage(&b, &r, r.g.stage[i]);
    }
    for (int i = 1; i < r.g.n; i++) /* readers before what they read */
        kn_putf(&b, "compute_at %s %s %s\n", kn_rows_tensor(&r.g, r.g.stage[i]), kn_rows_tensor(&r.g, last), at);
    kn_plans_try(p, &b);
    return p->n ? set : 0;
}
