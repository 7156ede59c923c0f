/* Chains of reductions over the same rows, and the maps between and behind them, as one GPU kernel: a row, or a warp's or block's share of it, is
 * read once into registers, combined by shuffles, and written once. Softmax, normalisations and their gradients are such chains, however they are
 * written: which stages they are follows from how they read each other (rows.c), how many threads a row gets from the cost model. */
#include "construct/rows.h"
#include "te/expr.h"

enum {
    MOST = 64,     /* elements of a row in one thread's registers */
    BLOCK = 128,   /* threads of a block at least, where rows are short */
    ROUND = 4      /* vectors that a thread reads at a time of a row too long for registers */
};

/* How the chain is cut: `tr` threads along a row, `lanes` elements of it at once, `rows` rows of axis `beside` in a block; across: these threads lie
 * along that axis, which is the contiguous one, and each has a row for itself; kept: the row stays in registers. */
typedef struct cut { int64_t tr, lanes, rows; bool across, kept; } cut;
typedef struct chain {
    kn_rows r;
    int64_t extent;   /* of a row */
    int beside;       /* innermost row axis, of the last stage */
    int64_t widest;   /* lanes of 16 bytes of what lies along rows */
    bool apart;       /* rows are not contiguous, but neighbours beside each other are */
} chain;

static const char *axis_of(const chain *c, int k, int axis)
{
    const kn_stmt *s = kn_rows_stmt(&c->r, k);
    for (int x = 0; x < s->naxes; x++) if (c->r.of[k][x] == axis) return s->axes[x].name;
    return "";
}

/* The axis of stage k along the row, -1: it has one value a row, -2: there are several. */
static int inner_of(const chain *c, int k)
{
    const kn_stmt *s = kn_rows_stmt(&c->r, k);
    int inner = -1;
    for (int x = 0; x < s->naxes; x++) {
        int y = c->r.of[k][x];
        if ((y >= 0 && (c->r.shared >> y & 1)) || s->axes[x].extent == 1) continue;
        if (inner >= 0) return -2;
        inner = x;
    }
    return inner;
}

/* A factor that is small beside what the stage writes, and read at a quotient of the row's axis: element by element, whatever vectors the others
 * take. */
static bool one_by_one(const kn_site *x, int l)
{
    double elems = 1, written = 1;
    const kn_expr *loads[KN_SITE_LOADS];
    const kn_tensor *t;
    kn_loads(x->s->body, loads, KN_SITE_LOADS);
    t = &x->t->program->tensors[loads[l]->u.tensor];
    for (int d = 0; d < t->rank; d++) elems *= (double)t->shape[d];
    for (int i = 0; i < x->s->naxes; i++) written *= (double)x->s->axes[i].extent;
    return t->role == KN_INPUT && elems * 8 <= written;
}

/* Stage k walks rows of one axis, and what it reads along it says how wide vectors may be. */
static bool measure(chain *c, int k)
{
    kn_site x;
    kn_site_of(c->r.a, c->r.t, c->r.t->stages[k], c->r.hw, &x);
    int in = inner_of(c, k), beside = -1;
    bool reduces = x.s->red != KN_RED_NONE;
    enum kn_dtype acc = kn_stmt_acc(x.s);
    if (in < -1 || (in < 0 && reduces) || (reduces && (kn_dtype_bytes(acc) < 4 || kn_dtype_class(acc) == 'b'))) return false;
    if (in < 0) return true;
    if (reduces != x.s->axes[in].reduce || (c->extent && c->extent != x.s->axes[in].extent)) return false;
    c->extent = x.s->axes[in].extent;
    for (int a = 0; a < x.s->naxes; a++) if (c->r.of[k][a] == c->beside) beside = a;
    for (int l = 0; l <= x.nloads; l++) {
        const kn_site_access *a = l < x.nloads ? &x.load[l] : &x.store;
        if (l == x.nloads && reduces) break;
        if (!(a->axes >> in & 1)) continue;
        bool aside = !a->linear && !a->padded && l < x.nloads && one_by_one(&x, l);
        if (aside) continue;
        if (!a->linear || a->padded || a->bytes > 8) return c->widest = 1, true;
        c->apart |= a->coef[in] != 1 && beside >= 0 && a->coef[beside] == 1;
        int64_t v = a->coef[in] == 1 ? 16 / a->bytes : 1;
        for (int i = 0; i < x.s->naxes; i++) while (i != in && v > 1 && a->coef[i] % v) v /= 2;
        if (v < c->widest) c->widest = v;
    }
    return true;
}

static bool gather(chain *c)
{
    kn_rows *r = &c->r;
    const kn_stmt *s = kn_rows_stmt(r, r->last);
    kn_site x;
    kn_site_of(r->a, r->t, r->t->stages[r->last], r->hw, &x);
    if (s->scatter || x.contraction || kn_rows_slides(s) || kn_site_scheduled(r->t, r->t->stages[r->last]) || r->hw->lanes != 32) return false;
    r->n = 1, r->stage[0] = r->last;
    r->shared = 0;
    for (int i = 0; i < KILN_MAX_AXES; i++) r->of[r->last][i] = i < s->nspatial ? i : -1;
    for (int i = 0; i < s->nspatial; i++) if (s->axes[i].extent > 1) r->shared |= 1u << i;
    for (int k = r->last - 1; k >= 0; k--) if (kn_rows_join(r, k)) r->stage[r->n++] = k;
    if (r->n < 2 || !r->shared) return false;
    for (int i = 0; i < s->nspatial; i++) if (r->shared >> i & 1) c->beside = i;
    c->widest = 16;
    for (int i = 0; i < r->n; i++) if (!measure(c, r->stage[i])) return false;
    while (c->widest > 1 && c->extent % c->widest) c->widest /= 2;
    return c->extent > 1;
}

/* Loops along the row behind its threads: .0 of registers or, of a row too long for them, of rounds. */
static void put_inner(kn_buf *b, const cut *x, const char *stage, const char *in, bool reduces)
{
    bool serial = !x->kept && !x->across, vector = x->lanes > 1;
    int thread = serial ? 2 : 1;
    kn_putf(b, "unroll %s %s.%d\n", stage, in, serial ? 1 : 0);
    if (!x->across && reduces) kn_putf(b, "rfactor %s %s.%d\n", stage, in, thread);
    if (!x->across) kn_putf(b, "bind %s %s.%d thread\n", stage, in, thread);
    if (vector) kn_putf(b, "vectorize %s %s.%d\n", stage, in, thread + 1);
}

static const char *put_stage(kn_buf *b, const chain *c, const cut *x, int k)
{
    const kn_stmt *s = kn_rows_stmt(&c->r, k), *outer = kn_rows_stmt(&c->r, c->r.last);
    const char *name = kn_rows_tensor(&c->r, k), *beside = axis_of(c, k, c->beside), *at = "";
    int inner = inner_of(c, k);
    bool last = k == c->r.last, serial = !x->kept && !x->across;
    const char *in = inner >= 0 ? s->axes[inner].name : NULL;
    if (x->rows > 1) kn_putf(b, "split %s %s %lld\n", name, beside, (long long)x->rows);
    if (in && !x->across) {
        kn_putf(b, "split %s %s", name, in);
        if (serial) kn_putf(b, " %d", ROUND);
        kn_putf(b, " %lld", (long long)x->tr);
        if (x->lanes > 1) kn_putf(b, " %lld", (long long)x->lanes);
        kn_put(b, "\n");
    }
    kn_putf(b, "reorder %s", name);
    for (int i = 0; i < outer->nspatial; i++) {
        if (!(c->r.shared >> i & 1)) continue;
        kn_putf(b, " %s.0", axis_of(c, k, i));
        at = kn_format(c->r.a, "%s.0", axis_of(c, c->r.last, i));
    }
    if (x->rows > 1) {
        kn_putf(b, " %s.1", beside);
        at = kn_format(c->r.a, "%s.1", axis_of(c, c->r.last, c->beside));
    }
    if (in && !x->across) kn_putf(b, " %s.%d |", in, serial ? 2 : 1);
    if (in) kn_putf(b, " %s.0", in);
    if (in && serial) kn_putf(b, " %s.1", in);
    if (in && x->lanes > 1) kn_putf(b, " %s.%d", in, serial ? 3 : 2);
    kn_put(b, "\n");
    for (int i = 0; i < outer->nspatial && last; i++) if (c->r.shared >> i & 1) kn_putf(b, "bind %s %s.0 grid\n", name, axis_of(c, k, i));
    if (last && x->rows > 1) kn_putf(b, "bind %s %s.1 thread\n", name, beside);
    if (in) put_inner(b, x, name, in, s->red != KN_RED_NONE);
    return at;
}

/* Loads of the last stage that some other one makes too. */
static void put_kept(kn_buf *b, const chain *c, const char *at)
{
    const kn_stmt *s = kn_rows_stmt(&c->r, c->r.last);
    const kn_expr *loads[KN_SITE_LOADS], *other[KN_SITE_LOADS];
    int n = kn_loads(s->body, loads, KN_SITE_LOADS), in = inner_of(c, c->r.last);
    for (int l = 0; l < n && l < KN_SITE_LOADS && in >= 0; l++) {
        bool again = false;
        for (int i = 1; i < c->r.n; i++) {
            int m = kn_loads(kn_rows_stmt(&c->r, c->r.stage[i])->body, other, KN_SITE_LOADS);
            for (int k = 0; k < m && k < KN_SITE_LOADS; k++) again |= other[k]->u.tensor == loads[l]->u.tensor;
        }
        for (int i = 1; i < c->r.n; i++) again &= kn_stage_out(c->r.t, c->r.t->stages[c->r.stage[i]]) != loads[l]->u.tensor;
        for (int k = 0; k < l; k++) again &= !kn_expr_equal(loads[k], loads[l]);
        if (again && !loads[l]->padded && (kn_axes_in(loads[l]) >> in & 1))
            kn_putf(b, "keep %s %d %s\n", kn_rows_tensor(&c->r, c->r.last), l, at);
    }
}

/* By how much an index grows when `axis` does by `step`, wherever it stands; false: that depends. */
static bool growth(const kn_expr *e, int axis, int64_t step, int64_t *by)
{
    int64_t x = 0, y = 0, d = e->nargs == 2 && e->args[1]->op == KN_OP_CONST_I ? e->args[1]->u.i : 0;
    *by = e->op == KN_OP_AXIS && e->u.axis == axis ? step : 0;
    if (!e->nargs || !(kn_axes_in(e) >> axis & 1)) return true;
    if (e->nargs != 2 || !growth(e->args[0], axis, step, &x) || !growth(e->args[1], axis, step, &y)) return false;
    switch (e->op) {
    case KN_OP_ADD: *by = x + y; return true;
    case KN_OP_SUB: *by = x - y; return true;
    case KN_OP_MUL: *by = x * d; return d != 0;
    case KN_OP_FLOORDIV: *by = d ? x / d : 0; return d && x % d == 0;
    case KN_OP_MOD: return d && x % d == 0;
    default: return false;
    }
}

/* What a thread keeps lies at distances that are the same for all threads (lower/own.c wants that). */
static bool lies_evenly(const chain *c, const cut *x)
{
    bool yes = true;
    for (int i = 0; i < c->r.n; i++) {
        const kn_stmt *s = kn_rows_stmt(&c->r, c->r.stage[i]);
        const kn_expr *loads[KN_SITE_LOADS];
        int n = kn_loads(s->body, loads, KN_SITE_LOADS), in = inner_of(c, c->r.stage[i]);
        for (int l = 0; l < n && l < KN_SITE_LOADS && in >= 0; l++)
            for (int d = 0; d < loads[l]->nargs; d++) {
                int64_t by;
                bool element = c->r.t->program->tensors[loads[l]->u.tensor].rank > 1;
                if (element) yes &= growth(loads[l]->args[d], in, x->tr * x->lanes, &by);
            }
    }
    return yes;
}

static void try_cut(const chain *c, kn_plans *p, const cut *x)
{
    kn_buf b;
    const char *at = "";
    if (x->kept && x->tr * x->lanes < c->extent && !lies_evenly(c, x)) return;
    kn_buf_init(&b, c->r.a);
    for (int i = 0; i < c->r.n; i++) at = put_stage(&b, c, x, c->r.stage[i]);
    if (x->kept) put_kept(&b, c, at);
    for (int i = 1; i < c->r.n; i++) /* readers before what they read */
        kn_putf(&b, "compute_at %s %s %s\n", kn_rows_tensor(&c->r, c->r.stage[i]), kn_rows_tensor(&c->r, c->r.last), at);
    kn_plans_try(p, &b);
}

static int64_t rows_of(const chain *c, int64_t most)
{
    int64_t rows = 1;
    while (rows < most && rows * 2 <= kn_rows_stmt(&c->r, c->r.last)->axes[c->beside].extent) rows *= 2;
    return rows;
}

uint32_t kn_gpu_rows(kiln_arena *a, const kn_tree *t, const kn_hw *hw, int last, kn_plans *p)
{
    chain c = {.r = {.a = a, .t = t, .hw = hw, .last = last}, .beside = -1};
    uint32_t set = 0;
    if (!gather(&c)) return 0;
    for (int i = 0; i < c.r.n; i++) set |= 1u << c.r.stage[i];
    int64_t v = c.widest;
    for (int64_t tr = 8; tr <= 1024 && tr <= hw->max_threads_per_block && !c.apart; tr *= 2) {
        cut x = {.tr = tr, .lanes = v, .rows = rows_of(&c, tr < BLOCK ? BLOCK / tr : 1)};
        int64_t each = kn_ceil_div(c.extent, tr * v) * v;
        x.kept = each <= MOST;
        if ((tr > 8 && tr / 2 * v >= c.extent) || tr * x.rows % 32 || (!x.kept && tr < 256)) continue;
        try_cut(&c, p, &x);
    }
    for (int64_t threads = 64; threads <= 256 && c.apart && c.extent <= MOST; threads *= 2) {
        cut x = {.tr = 1, .lanes = 1, .rows = rows_of(&c, threads), .across = true, .kept = true};
        try_cut(&c, p, &x);
    }
    return p->n ? set : 0;
}
