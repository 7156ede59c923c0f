/* Windows over planes with the channels as lanes: where places of a window are what is contiguous, rows are short, begin anywhere and step by the
 * stride, while an axis outside of them (channels) is followed by everything alone. A task takes a vector's worth of these planes: they are turned
 * in registers as they are copied beside each other (cache_read region last), the window is computed with the channels as lanes, and the results
 * are turned back as they are finished. Which statements these are follows from their indices. Where each plane has one window that is not all of
 * it, results lie along the planes as they are, and nothing is turned back. Narrow factors of products are widened before. All of it competes with
 * the window as it lies. */
#include "construct/cpu.h"
#include "construct/rows.h"
#include <string.h>

static int64_t vector_of(const kn_site *x) { return x->hw->vector_bytes / kn_cpu_acc_bytes(x); }

int kn_cpu_walked(const kn_expr *load, int axis)
{
    int found = -1;
    for (int d = 0; d < load->nargs; d++) {
        if (!(kn_axes_in(load->args[d]) >> axis & 1)) continue;
        if (found >= 0 || load->args[d]->op != KN_OP_AXIS) return -1;
        found = d;
    }
    return found;
}

/* Every load has the axis as a dimension of its own, outside of its rows. */
static bool outside_of_all(const kn_site *x, int axis)
{
    const kn_expr *loads[KN_SITE_LOADS];
    int n = kn_loads(x->s->body, loads, KN_SITE_LOADS);
    for (int i = 0; i < n && n <= KN_SITE_LOADS; i++) {
        const kn_tensor *t = &x->t->program->tensors[loads[i]->u.tensor];
        int d = kn_cpu_walked(loads[i], axis), row = t->rank - 1;
        while (row > 0 && t->shape[row] == 1) row--;
        if (d < 0 || row <= d || kn_dtype_bytes(t->dtype) < 4) return false;
    }
    return n > 0 && n <= KN_SITE_LOADS;
}

/* Reduce axes are those of a window: each stands beside a place in some index. */
static bool is_window(const kn_site *x)
{
    const kn_expr *loads[KN_SITE_LOADS];
    int n = kn_loads(x->s->body, loads, KN_SITE_LOADS);
    uint32_t places = (1u << x->s->nspatial) - 1, beside = 0;
    for (int i = 0; i < n && i < KN_SITE_LOADS; i++)
        for (int d = 0; d < loads[i]->nargs; d++)
            if (kn_axes_in(loads[i]->args[d]) & places) beside |= kn_axes_in(loads[i]->args[d]);
    for (int r = x->s->nspatial; r < x->s->naxes; r++)
        if (x->s->axes[r].extent > 1 && !(beside >> r & 1)) return false;
    return x->s->naxes > x->s->nspatial && x->reduce_extent > 1;
}

/* One run of memory after the other, each a vector or more: sums of blocks of a row. */
static bool are_runs(const kn_site *x)
{
    int r = x->s->nspatial;
    bool runs = x->s->naxes == r + 1 && x->n >= 0 && x->nloads == 1 && x->load[0].linear;
    if (!runs || kn_cpu_extent(x, r) * kn_cpu_acc_bytes(x) < x->hw->vector_bytes) return false;
    return x->load[0].coef[r] == 1 && x->load[0].coef[x->n] == kn_cpu_extent(x, r);
}

/* Results share factors along more than phases of few weights each (digits.c), which a depthwise transposed convolution has. */
static bool is_product(const kn_site *x)
{
    enum { PHASES = 4 };
    const kn_expr *loads[KN_SITE_LOADS];
    int n = kn_loads(x->s->body, loads, KN_SITE_LOADS);
    if (!x->contraction || kn_cpu_extent(x, x->m) > PHASES) return x->contraction;
    for (int i = 0; i < n && i < KN_SITE_LOADS; i++)
        for (int d = 0; d < loads[i]->nargs; d++) {
            kn_affine f;
            if (kn_affine_of(loads[i]->args[d], &f) && f.coef[x->m] && kn_cpu_is_digit(x, &f, x->m)) return false;
        }
    return true;
}

/* The axis of a window's statement that becomes the lanes: the one next to the places; -1. */
static int channels_of(kiln_arena *a, const kn_site *x)
{
    const kn_stmt *s = x->s;
    const kn_tensor *out = &x->t->program->tensors[s->out];
    if (s->red == KN_RED_NONE || s->scatter || out->rank != s->nspatial || s->nspatial > KILN_MAX_RANK || is_product(x) || x->n < 0) return -1;
    for (int d = 0; d < out->rank; d++)
        if (s->lhs[d]->op != KN_OP_AXIS || s->lhs[d]->u.axis != d) return -1;
    if (kn_cpu_is_taps(x) || kn_cpu_is_running(x, a)) return -1;
    for (int i = x->n - 1; i >= 0 && is_window(x) && !are_runs(x); i--)
        if (kn_cpu_extent(x, i) >= vector_of(x) && outside_of_all(x, i)) return i;
    return -1;
}

static int reads_of(const kn_stmt *s, int tensor, const kn_expr **one)
{
    const kn_expr *loads[KN_SITE_LOADS];
    int n = kn_loads(s->body, loads, KN_SITE_LOADS), found = 0;
    for (int i = 0; i < n && i < KN_SITE_LOADS; i++)
        if (loads[i]->u.tensor == tensor) *one = loads[i], found++;
    return n > KN_SITE_LOADS ? 2 : found;
}

/* The map that alone reads the temporary, at its own axes in their order, and reads nothing else (an average's division by counts); NULL. */
static const kn_stmt *finisher(const kn_program *p, int tensor)
{
    const kn_stmt *found = NULL;
    for (int i = 0; i < p->nstmts; i++) {
        const kn_stmt *s = p->stmts[i];
        const kn_expr *one = NULL, *loads[2];
        if (!reads_of(s, tensor, &one)) continue;
        if (found || kn_loads(s->body, loads, 2) != 1 || s->red != KN_RED_NONE || s->scatter || one->padded || one->nargs != s->nspatial) return NULL;
        for (int d = 0; d < one->nargs; d++)
            if (one->args[d]->op != KN_OP_AXIS || one->args[d]->u.axis != d || s->lhs[d]->op != KN_OP_AXIS || s->lhs[d]->u.axis != d) return NULL;
        found = s;
    }
    return found;
}

/* Elements of a vector's worth of planes that the terms of one place span, where this is not all that there is of them; else 0. */
static double spanned(const kn_site *x, const kn_expr *load, int channels)
{
    const kn_tensor *t = &x->t->program->tensors[load->u.tensor];
    double n = (double)vector_of(x);
    bool whole = true;
    for (int d = 0; d < load->nargs; d++) {
        kn_affine f;
        double span = 1;
        if (!kn_affine_of(load->args[d], &f)) return 0;
        for (int i = x->s->nspatial; i < x->s->naxes; i++)
            span += (double)(f.coef[i] < 0 ? -f.coef[i] : f.coef[i]) * (double)(kn_cpu_extent(x, i) - 1);
        n *= span;
        whole = whole && (d <= kn_cpu_walked(load, channels) || span >= (double)t->shape[d]);
    }
    return whole ? 0 : n;
}

bool kn_cpu_is_alone(const kn_site *x)
{
    const kn_expr *loads[1];
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1");
    const kn_stmt *s = x->s;
    if (!l1 || s->red == KN_RED_NONE || s->scatter || x->contraction || x->n < 0 || kn_loads(s->body, loads, 1) != 1) return false;
    if (!outside_of_all(x, x->n) || kn_cpu_extent(x, x->n) < vector_of(x) || x->reduce_extent > KN_CPU_UNROLLED) return false;
    double box = spanned(x, loads[0], x->n) * kn_dtype_bytes(loads[0]->dtype);
    return box > 0 && box <= (double)l1->capacity_bytes / 2;
}

bool kn_cpu_lanes_alone(const kn_site *x, kn_plans *p)
{
    const kn_expr *loads[1];
    const kn_stmt *s = x->s;
    if (!kn_cpu_is_alone(x) || kn_loads(s->body, loads, 1) != 1) return false;
    const char *c = kn_cpu_axis(x, x->n);
    double points = (double)x->reduce_extent;
    kn_buf b;
    kn_buf_init(&b, p->a);
    kn_putf(&b, "split %s %s %lld\nreorder %s", x->name, c, (long long)vector_of(x), x->name);
    for (int i = 0; i < s->nspatial; i++) {
        points *= (double)kn_cpu_extent(x, i);
        if (i != x->n) kn_putf(&b, " %s.0", kn_cpu_axis(x, i));
    }
    kn_putf(&b, " %s.0 |", c);
    for (int i = s->nspatial; i < s->naxes; i++) kn_putf(&b, " %s.0", kn_cpu_axis(x, i));
    kn_putf(&b, " | %s.1\n", c);
    for (int i = 0; i < s->nspatial && points >= KN_CPU_FORKED; i++)
        if (i != x->n) kn_putf(&b, "parallel %s %s.0\n", x->name, kn_cpu_axis(x, i));
    if (points >= KN_CPU_FORKED) kn_putf(&b, "parallel %s %s.0\n", x->name, c);
    for (int i = s->nspatial; i < s->naxes; i++) kn_cpu_put_unrolled(&b, x, i);
    kn_putf(&b, "vectorize %s %s.1\ncache_read %s 0 scratch %s.0 region last %d\n", x->name, c, x->name, c, kn_cpu_walked(loads[0], x->n));
    kn_plans_try(p, &b);
    return p->n > 0; /* the other plans copy the same planes element by element */
}

/* Results that several statements go on with would be turned back in each of them (the maxima of a window, in their gradient). */
static bool read_often(const kn_program *p, int tensor)
{
    const kn_expr *one;
    int readers = 0;
    for (int i = 0; i < p->nstmts; i++) readers += reads_of(p->stmts[i], tensor, &one) > 0;
    return p->tensors[tensor].role == KN_TEMP && readers > 1;
}

/* The first stage that has channels for lanes, its site; -1: none has. */
static int find_channels(kiln_arena *a, const kn_tree *t, const kn_hw *hw, kn_site *x)
{
    int c = -1;
    for (int i = 0; i < t->nstages && c < 0; i++) {
        kn_site_of(a, t, t->stages[i], hw, x);
        c = channels_of(a, x);
    }
    return c;
}

/* Lanes along places would have the window's elements widened anew for each tap, and gathered where they step: so few taps of so many places are
 * not worth another way (bytes, 3x3: 96x56x56 0.8 times as fast by that; 5x5, 384x14x14: 15 times; 3x3 by 2, 64x112x112: 4). */
static bool is_short(const kn_site *x)
{
    enum { VECTORS = 2, TAPS = 16 };
    for (int l = 0; l < x->nloads; l++)
        if ((x->load[l].axes >> x->n & 1) && x->load[l].coef[x->n] > 1) return true;
    return x->reduce_extent >= TAPS || kn_cpu_extent(x, x->n) < VECTORS * vector_of(x);
}

/* A few taps with weights of their own, place by place, along rows that nearly fill vectors: turning what goes in and what comes out takes longer
 * than these leave idle (3x3, 256x14x14: 1.3 times as long as along the rows, 32x96x21x21 in short vectors 1.26, 256x11x11 0.8 to 1.0). */
static bool fills_rows(const kn_site *x)
{
    enum { TAPS = 9, ROW = 12, FILLED = 8 }; /* idle lanes: one of so many */
    int64_t n = kn_cpu_extent(x, x->n), lanes = vector_of(x);
    for (int l = 0; l < x->nloads; l++)
        if ((x->load[l].axes >> x->n & 1) && x->load[l].coef[x->n] != 1) return false;
    bool few = x->nloads > 1 && x->s->naxes == x->s->nspatial + 2 && x->reduce_extent <= TAPS && x->load[0].bytes >= 4;
    return few && n >= ROW && FILLED * (kn_round_up(n, lanes) - n) <= kn_round_up(n, lanes);
}

/* Steps that widen the narrow factors of a sum of products none of which is met by several results; "": there is none. */
static const char *widened(kiln_arena *a, const kn_tree *t, const kn_hw *hw)
{
    const kn_expr *loads[2];
    kn_site x;
    kn_buf b;
    kn_buf_init(&b, a);
    for (int i = 0; i < t->nstages && !b.n; i++) {
        kn_site_of(a, t, t->stages[i], hw, &x);
        if (x.s->red != KN_RED_SUM || x.contraction || x.nloads != 2 || kn_loads(x.s->body, loads, 2) != 2 || x.n < 0) continue;
        if (kn_bare(x.s->body)->op != KN_OP_MUL || !is_window(&x) || !is_short(&x)) continue;
        for (int l = 0; l < 2; l++)
            if (kn_dtype_bytes(loads[l]->dtype) <= 2) kn_putf(&b, "widen %s %d " KN_CPU_WIDE_LANES "%d\n", x.name, l, l);
    }
    return b.n ? kn_buf_take(&b).p : "";
}

bool kn_cpu_lanes_steps(kiln_arena *a, const kn_program *p, const kn_hw *hw, kiln_bytes *start)
{
    kn_tree *t;
    kiln_diag d;
    kn_site x;
    if (hw->gpu || kn_trace_apply(a, p, hw, (kiln_bytes){"", 0}, &t, &d)) return false;
    int c = find_channels(a, t, hw, &x);
    const char *head = c < 0 ? widened(a, t, hw) : "";
    if (!head || (*head && kn_trace_apply(a, p, hw, (kiln_bytes){head, strlen(head)}, &t, &d))) return false;
    if (*head) c = find_channels(a, t, hw, &x);
    p = t->program;
    if (c < 0 || read_often(p, x.s->out) || fills_rows(&x)) return false;
    const kn_stmt *end = p->tensors[x.s->out].role == KN_TEMP ? finisher(p, x.s->out) : NULL;
    kn_buf b;
    kn_buf_init(&b, a);
    kn_putf(&b, "%sreindex %s out " KN_CPU_LANES "\ntransform_layout " KN_CPU_LANES, head, end ? p->tensors[end->out].name : x.name);
    for (int i = 0; i < c; i++) kn_putf(&b, " %d", i);
    kn_putf(&b, c + 2 < x.s->nspatial ? " %d:%d %d\n" : " %d", c + 1, x.s->nspatial - 1, c);
    if (c + 2 == x.s->nspatial) kn_putf(&b, " %d\n", c);
    *start = kn_buf_take(&b);
    return start->p != NULL;
}

/* The map y takes what x has written with the channels last. */
typedef struct planes {
    kn_site y, x;
    const kn_expr *read;            /* y's */
    int stage;                      /* x's, in the tree */
    int channels, outer;            /* dimensions of the temporary before its places; x's axis of channels */
    int p, q;                       /* x's places: of a register tile, and the one around it; -1: none */
    int64_t lanes, mr, band, turn;  /* vectors of channels, places of a tile, rows of places at once; columns of a square of results */
} planes;

static bool find(kiln_arena *a, const kn_tree *t, const kn_hw *hw, int y, planes *k)
{
    kn_site_of(a, t, t->stages[y], hw, &k->y);
    if (k->y.s->red != KN_RED_NONE || k->y.s->scatter || t->stages[y]->epilogue >= 0 || k->y.n < 0) return false;
    for (int i = 0; i < y; i++) {
        int out = kn_stage_out(t, t->stages[i]), readers = 0;
        const kn_expr *one;
        if (strcmp(t->program->tensors[out].name, KN_CPU_LANES) || kn_site_scheduled(t, t->stages[i])) continue;
        for (int j = 0; j < t->program->nstmts; j++) readers += reads_of(t->program->stmts[j], out, &one);
        kn_site_of(a, t, t->stages[i], hw, &k->x);
        k->stage = i;
        if (readers != 1 || reads_of(k->y.s, out, &k->read) != 1 || k->x.s->red == KN_RED_NONE) return false;
        return true;
    }
    return false;
}

/* What they share: dimensions before the places, and the channels. */
static bool match(planes *k)
{
    const kn_tree *t = k->x.t;
    int rank = k->read->nargs;
    k->outer = rank - 2;
    k->channels = kn_stage_out_axis(t, k->x.g, rank - 1);
    if (rank < 2 || k->channels < 0 || k->read->args[rank - 1]->op != KN_OP_AXIS || k->read->args[rank - 1]->u.axis == k->y.n) return false;
    uint32_t used = 1u << k->channels;
    for (int d = 0; d < k->outer; d++) {
        int axis = kn_stage_out_axis(t, k->x.g, d);
        if (axis < 0 || k->read->args[d]->op != KN_OP_AXIS) return false;
        used |= 1u << axis;
    }
    k->p = k->q = -1;
    for (int i = 0; i < k->x.s->nspatial; i++)
        if (!(used >> i & 1) && kn_cpu_extent(&k->x, i) > 1) k->p = k->q, k->q = i;
    return k->q >= 0 && outside_of_all(&k->x, k->channels);
}

/* Elements of its own dimension that the load's index takes while the axes have so many values; those of `band` for axis p. */
static int64_t span(const planes *k, const kn_expr *index, int64_t band)
{
    kn_affine f;
    int64_t n = 1;
    if (!kn_affine_of(index, &f)) return INT32_MAX;
    for (int i = 0; i < k->x.s->naxes; i++) {
        int64_t e = kn_cpu_extent(&k->x, i);
        e = i == k->channels ? k->lanes : i == k->p ? band : i == k->q ? kn_round_up(e, k->mr) : e;
        bool outer = false;
        for (int d = 0; d < k->outer; d++) outer |= kn_stage_out_axis(k->x.t, k->x.g, d) == i;
        if (!outer) n += (f.coef[i] < 0 ? -f.coef[i] : f.coef[i]) * (e - 1);
    }
    return n;
}

static double copied_bytes(const planes *k, int64_t band)
{
    const kn_expr *loads[KN_SITE_LOADS];
    int n = kn_loads(k->x.s->body, loads, KN_SITE_LOADS);
    double sum = 0;
    for (int i = 0; i < n && i < KN_SITE_LOADS; i++) {
        double bytes = k->x.load[i].bytes;
        for (int d = 0; d < loads[i]->nargs; d++) bytes *= (double)span(k, loads[i]->args[d], band);
        sum += bytes;
    }
    return sum;
}

/* As few bands of rows as leave their copies within so many bytes; 0: there are none. */
static int64_t band_within(const planes *k, double bytes)
{
    int64_t p = kn_cpu_extent(&k->x, k->p), bands = 1;
    while (bands < p && copied_bytes(k, kn_ceil_div(p, bands)) > bytes) bands++;
    return copied_bytes(k, kn_ceil_div(p, bands)) <= bytes ? kn_ceil_div(p, bands) : 0;
}

/* Bands of rows whose copies take half of L1, where what they have in common and each copies for itself is little, else a quarter of L2. */
static int64_t band_of(const planes *k)
{
    const kn_hw_level *l1 = kn_hw_level_named(k->x.hw, "l1"), *l2 = kn_hw_level_named(k->x.hw, "l2");
    int64_t far = band_within(k, (double)l2->capacity_bytes / 4), near = l1 ? band_within(k, (double)l1->capacity_bytes / 2) : 0;
    double again = near ? copied_bytes(k, near) / (double)near * (double)far / copied_bytes(k, far) : 2;
    return again <= 1.2 ? near : far;
}

/* Neighbouring places read neighbouring elements. */
static bool steps_by_one(const planes *k)
{
    const kn_expr *loads[KN_SITE_LOADS];
    int n = kn_loads(k->x.s->body, loads, KN_SITE_LOADS);
    for (int i = 0; i < n && i < KN_SITE_LOADS; i++)
        for (int d = 0; d < loads[i]->nargs; d++) {
            kn_affine f;
            if ((kn_axes_in(loads[i]->args[d]) >> k->q & 1) && (!kn_affine_of(loads[i]->args[d], &f) || f.coef[k->q] != 1)) return false;
        }
    return true;
}

/* Places of a tile: as many as there are sums, which read memory as they multiply. Of rows of several tiles few registers had better hold what these
 * read beside half as many sums (64x28x28, 7x7: 73 us, 85). */
static int64_t places_of(const planes *k)
{
    enum { ROWS = 14 };
    int64_t q = kn_cpu_extent(&k->x, k->q), most = kn_ceil_div(q, kn_ceil_div(q, ROWS)), few = kn_ceil_div(q, kn_ceil_div(q, ROWS / 2));
    bool held = q > ROWS && kn_hw_few_registers(k->x.hw) && k->x.s->body->op == KN_OP_MUL && steps_by_one(k);
    return held && kn_round_up(q, few) <= kn_round_up(q, most) ? few : most;
}

/* Bands of rows, beside the results of all of the planes in the half of L2. */
static bool choose(planes *k)
{
    const kn_hw_level *l2 = kn_hw_level_named(k->x.hw, "l2");
    const kn_tensor *out = &k->x.t->program->tensors[k->read->u.tensor];
    k->lanes = vector_of(&k->x);
    k->mr = places_of(k);
    k->turn = kn_cpu_pow2(kn_cpu_extent(&k->y, k->y.n), k->lanes);
    if (!l2 || k->turn < 4 || kn_cpu_extent(&k->x, k->channels) < k->lanes || k->lanes > 16) return false;
    double results = (double)(k->lanes * kn_dtype_bytes(out->dtype));
    for (int d = k->outer; d < k->read->nargs - 1; d++) results *= (double)out->shape[d];
    if (results > (double)l2->capacity_bytes / 2) return false;
    k->band = band_of(k);
    return k->band > 0;
}

static void put_map(kn_buf *b, const planes *k)
{
    const kn_site *y = &k->y;
    int channels = k->read->args[k->read->nargs - 1]->u.axis, parts = k->turn < k->lanes;
    double points = (double)k->x.reduce_extent;
    for (int i = 0; i < k->x.s->nspatial; i++) points *= (double)kn_cpu_extent(&k->x, i);
    kn_putf(b, "split %s %s", y->name, kn_cpu_axis(y, channels));
    if (parts) kn_putf(b, " %lld", (long long)(k->lanes / k->turn));
    kn_putf(b, " %lld\nsplit %s %s %lld\nreorder %s", (long long)k->turn, y->name, kn_cpu_axis(y, y->n), (long long)k->turn, y->name);
    uint32_t led = 1u << channels | 1u << y->n;
    for (int d = 0; d < k->outer; d++) {
        kn_putf(b, " %s.0", kn_cpu_axis(y, k->read->args[d]->u.axis));
        led |= 1u << k->read->args[d]->u.axis;
    }
    kn_putf(b, " %s.0 |", kn_cpu_axis(y, channels));
    for (int i = 0; i < y->s->nspatial; i++)
        if (!(led >> i & 1)) kn_putf(b, " %s.0", kn_cpu_axis(y, i));
    if (parts) kn_putf(b, " %s.1", kn_cpu_axis(y, channels));
    kn_putf(b, " %s.0 | %s.%d %s.1\n", kn_cpu_axis(y, y->n), kn_cpu_axis(y, channels), 1 + parts, kn_cpu_axis(y, y->n));
    for (int d = 0; d < k->outer && points >= KN_CPU_FORKED; d++) kn_putf(b, "parallel %s %s.0\n", y->name, kn_cpu_axis(y, k->read->args[d]->u.axis));
    if (points >= KN_CPU_FORKED) kn_putf(b, "parallel %s %s.0\n", y->name, kn_cpu_axis(y, channels));
    kn_putf(b, "unroll %s %s.%d\nvectorize %s %s.1\n", y->name, kn_cpu_axis(y, channels), 1 + parts, y->name, kn_cpu_axis(y, y->n));
}

/* Loads are copied a band at a time; constants are packed ahead. */
static void put_copies(kn_buf *b, const planes *k)
{
    const kn_site *x = &k->x;
    const kn_expr *loads[KN_SITE_LOADS];
    int n = kn_loads(x->s->body, loads, KN_SITE_LOADS);
    for (int i = 0; i < n && i < KN_SITE_LOADS; i++) {
        int d = kn_cpu_walked(loads[i], k->channels);
        uint32_t places = x->load[i].axes & ((1u << x->s->nspatial) - 1) & ~(1u << k->channels);
        if (!places && x->t->program->tensors[loads[i]->u.tensor].constant) {
            kn_putf(b, "prepack %s %d %s.0", x->name, i, kn_cpu_axis(x, k->channels));
            for (int r = x->s->nspatial; r < x->s->naxes; r++)
                if (x->load[i].axes >> r & 1) kn_putf(b, " %s.0", kn_cpu_axis(x, r));
            kn_putf(b, " %s.1\n", kn_cpu_axis(x, k->channels));
            continue;
        }
        kn_putf(b, "cache_read %s %d scratch %s.0 region last %d\n", x->name, i, kn_cpu_axis(x, places && k->p >= 0 ? k->p : k->channels), d);
    }
}

static void put_window(kn_buf *b, const planes *k)
{
    const kn_site *x = &k->x;
    const char *c = kn_cpu_axis(x, k->channels), *q = kn_cpu_axis(x, k->q);
    int cut = k->p >= 0 && k->band > 1;
    int64_t body = k->mr;
    kn_putf(b, "split %s %s %lld\nsplit %s %s %lld\n", x->name, c, (long long)k->lanes, x->name, q, (long long)k->mr);
    if (cut) kn_putf(b, "split %s %s %lld\n", x->name, kn_cpu_axis(x, k->p), (long long)k->band);
    kn_putf(b, "reorder %s", x->name);
    uint32_t led = 1u << k->channels | 1u << k->q;
    for (int d = 0; d < k->outer; d++) {
        int axis = kn_stage_out_axis(x->t, x->g, d);
        kn_putf(b, " %s.0", kn_cpu_axis(x, axis));
        led |= 1u << axis;
    }
    kn_putf(b, " %s.0 |", c);
    if (k->p >= 0) kn_putf(b, " %s.0", kn_cpu_axis(x, k->p)), led |= 1u << k->p;
    for (int i = 0; i < x->s->nspatial; i++)
        if (!(led >> i & 1)) kn_putf(b, " %s.0", kn_cpu_axis(x, i));
    if (cut) kn_putf(b, " %s.1", kn_cpu_axis(x, k->p));
    kn_putf(b, " %s.0", q);
    for (int r = x->s->nspatial; r < x->s->naxes; r++) kn_putf(b, " %s.0", kn_cpu_axis(x, r));
    kn_putf(b, " | %s.1 %s.1\n", q, c);
    for (int r = x->s->naxes - 1; r >= x->s->nspatial && kn_mul_fits(body, kn_cpu_extent(x, r), &body) && body <= KN_CPU_UNROLLED; r--)
        kn_cpu_put_unrolled(b, x, r);
    kn_putf(b, "unroll %s %s.1\nvectorize %s %s.1\n", x->name, q, x->name, c);
    put_copies(b, k);
}

uint32_t kn_cpu_lanes(kiln_arena *a, const kn_tree *t, const kn_hw *hw, int y, kn_plans *p)
{
    planes *k = kn_new(a, planes);
    if (!k || !find(a, t, hw, y, k) || !match(k) || !choose(k)) return 0;
    kn_buf b;
    kn_buf_init(&b, a);
    put_map(&b, k);
    put_window(&b, k);
    kn_putf(&b, "compute_at %s %s %s.0\n", k->x.name, k->y.name, kn_cpu_axis(&k->y, k->read->args[k->read->nargs - 1]->u.axis));
    kn_plans_try(p, &b);
    return p->n ? 1u << y | 1u << k->stage : 0;
}
