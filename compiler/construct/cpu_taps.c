/* Windows over planes each of which has taps of its own: products whose one factor slides along rows and columns of a plane, while the other one has
 * no places at all. Nothing but the window itself brings a plane's elements twice, so each plane is computed for itself, its places as lanes.
 *
 * Where lanes step by one, a tile is a column of vectors: for each column of taps the rows that its results have in common are read once and stay in
 * registers (lower/held.c), wherefore the taps of one column are the innermost terms. Padding is filled in by a copy of the plane (cpu_planes.c).
 * Where they step by more, a tile is as long as the row of results, so that all columns are known: rows are read as they lie, with their padding,
 * and taken apart in registers (lower/edge.c). Rows of results shorter than a vector, or that fill vectors badly, are left to cpu_lanes.c. */
#include "construct/cpu.h"

typedef struct taps {
    const kn_site *x;
    int load, p;                    /* what the window slides over; the axis of its rows */
    int r, s;                       /* reduce axes of rows and columns of taps, of one of them -1: a single one */
    int64_t step, width, height;    /* columns from lane to lane; of the plane */
    int64_t lanes, nv, mr;
} taps;

enum { NV = 16, STEP = 4 };

/* The axis, or reduce axis, that walks the index; -1: none, -2: several. */
static int walker(const kn_site *x, const kn_expr *index, bool reduce)
{
    int found = -1;
    uint32_t in = kn_axes_in(index);
    for (int i = 0; i < x->s->naxes; i++) {
        if (!(in >> i & 1) || x->s->axes[i].reduce != reduce) continue;
        if (found >= 0) return -2;
        found = i;
    }
    return found;
}

static bool slides(taps *k, const kn_expr *load)
{
    const kn_site *x = k->x;
    const kn_tensor *t = &x->t->program->tensors[load->u.tensor];
    int last = load->nargs - 1;
    kn_affine f;
    if (last < 1 || t->rank != load->nargs || !kn_affine_of(load->args[last], &f)) return false;
    k->p = walker(x, load->args[last - 1], false);
    k->r = walker(x, load->args[last - 1], true);
    k->s = walker(x, load->args[last], true);
    if (walker(x, load->args[last], false) != x->n || k->p < 0 || k->p == x->n || k->r < -1 || k->s < -1) return false;
    uint32_t window = (k->r < 0 ? 0 : 1u << k->r) | (k->s < 0 ? 0 : 1u << k->s), places = 1u << k->p | 1u << x->n;
    if (k->r == k->s || x->s->naxes - x->s->nspatial != (k->r >= 0) + (k->s >= 0)) return false;
    for (int d = 0; d < last - 1; d++)
        if (kn_axes_in(load->args[d]) & (window | places)) return false;
    k->step = f.coef[x->n];
    k->width = t->shape[last];
    k->height = t->shape[last - 1];
    return (k->s < 0 || f.coef[k->s] > 0) && k->step > 0 && k->step <= STEP;
}

/* Rows of a tile that is as long as they are: sums enough to be added to while others are, and few rows computed twice. */
static int64_t whole_rows(const taps *k)
{
    enum { SUMS = 4 };
    int64_t p = kn_cpu_extent(k->x, k->p), best = 1;
    if (k->nv == 3) return p > 1 ? 2 : 1;
    for (int64_t mr = 2; mr * k->nv <= SUMS && mr <= p; mr++)
        if (kn_round_up(p, mr) <= kn_round_up(p, best) + p / 3) best = mr;
    return best;
}

/* Rows of a tile: as few computed twice as may be, as many as share what they read. */
static int64_t rows_of(const taps *k)
{
    enum { MOST = 14, TILE = 8 };
    int64_t p = kn_cpu_extent(k->x, k->p), r = kn_cpu_extent(k->x, k->r), s = kn_cpu_extent(k->x, k->s), best = 1;
    int64_t most = (k->x->hw->vector_registers - 4) / 2;
    double least = 0;
    for (int64_t mr = 1; mr <= most && mr <= MOST && mr <= p; mr++) {
        double products = (double)(mr * r * s) / 2, reads = (double)((mr + r - 1) * s);
        double time = (double)kn_ceil_div(p, mr) * ((products > reads ? products : reads) + TILE);
        if (least > 0 && time >= least) continue;
        least = time;
        best = mr;
    }
    return best;
}

/* A sum of products of two loads of floats as they are. */
static bool multiplies(const kn_site *x)
{
    const kn_expr *e = x->s->body;
    if (x->s->red != KN_RED_SUM || x->s->scatter || e->op != KN_OP_MUL || x->nloads != 2) return false;
    for (int i = 0; i < 2; i++)
        if (e->args[i]->op != KN_OP_LOAD || x->t->program->tensors[e->args[i]->u.tensor].dtype != KN_F32) return false;
    return true;
}

/* Which load slides, and that the other one has no places, while this one has all that there are. */
static bool slides_one(const kn_site *x, taps *k)
{
    const kn_expr *loads[2];
    kn_loads(x->s->body, loads, 2);
    *k = (taps){.x = x, .load = -1};
    for (int i = 0; i < 2; i++)
        if (slides(k, loads[i])) k->load = i;
    if (k->load < 0 || !slides(k, loads[k->load]) || x->load[1 - k->load].padded) return false;
    if (x->load[1 - k->load].axes & (1u << x->n | 1u << k->p)) return false;
    for (int i = 0; i < x->s->nspatial; i++)
        if (kn_cpu_extent(x, i) > 1 && !(x->load[k->load].axes >> i & 1)) return false; /* several results have it in common: another product */
    return true;
}

/* Lanes of two vectors are picked by one instruction; shorter vectors take several, but their squares are turned faster. */
static bool picks_two(const taps *k) { return k->x->hw->vector_bytes >= 64; }

static bool find(const kn_site *x, taps *k)
{
    if (x->hw->gpu || x->n < 0 || x->store.coef[x->n] != 1 || !multiplies(x) || !slides_one(x, k)) return false;
    int64_t q = kn_cpu_extent(x, x->n);
    k->lanes = x->hw->vector_bytes / kn_dtype_bytes(KN_F32);
    k->nv = k->step > 1 ? kn_ceil_div(q, k->lanes) : 1;
    k->mr = k->step == 1 ? rows_of(k) : whole_rows(k);
    if (k->step > 2 && !picks_two(k)) return false;
    if (k->step == 1 && (k->r < 0 || k->s < 0 || q < k->lanes)) return false; /* rows have nothing in common, or are one with their columns */
    return q > 1 && k->width >= k->lanes && k->nv <= NV && kn_cpu_extent(x, k->s) * k->nv * k->mr <= KN_CPU_UNROLLED;
}

/* Cycles for a plane, as measured on a core with two multiply-adds a cycle: those of whole vectors, taken apart for each column of taps where lanes
 * lie apart, or of rows shorter than one, which are stored in pieces; the copy with padding. */
static double time_of(const taps *k)
{
    const kn_site *x = k->x;
    const double product = 0.575, apart = picks_two(k) ? 0.6 : 0.85, store = 1, copied = 1.5, pieces = 8;
    int64_t p = kn_cpu_extent(x, k->p), vectors = kn_ceil_div(kn_cpu_extent(x, x->n), k->lanes) * kn_round_up(p, k->mr);
    double terms = (double)x->reduce_extent;
    if (k->step > 1) return (double)vectors * (terms * apart * (double)k->step + (kn_cpu_extent(x, x->n) < k->lanes ? pieces : 0));
    double copy = x->load[k->load].padded ? (double)(k->height * kn_ceil_div(k->width, k->lanes)) * copied : 0;
    return (double)vectors * (terms * product + store) + copy;
}

/* The same where the planes are the lanes: full vectors, but what goes in and comes out is turned. */
static double time_turned(const taps *k, int64_t planes)
{
    const kn_site *x = k->x;
    const double turned = picks_two(k) ? 5 : 2.5;
    double lanes = (double)k->lanes, places = (double)(kn_cpu_extent(x, k->p) * kn_cpu_extent(x, x->n));
    double time = places * (double)x->reduce_extent / 2 / lanes + (places + (double)(k->width * k->height)) / lanes * turned;
    return time * (double)kn_round_up(planes, k->lanes) / (double)planes;
}

bool kn_cpu_is_taps(const kn_site *x)
{
    taps k;
    if (!find(x, &k)) return false;
    int64_t planes = 1; /* the axis that would be the lanes stands before the places */
    for (int i = 0; i < x->s->nspatial; i++)
        if (i != k.p && i != x->n && kn_cpu_extent(x, i) > 1) planes = kn_cpu_extent(x, i);
    return planes < k.lanes || time_of(&k) <= time_turned(&k, planes);
}

int kn_cpu_taps_pads(const kn_site *x)
{
    taps k;
    return kn_cpu_is_taps(x) && find(x, &k) && k.step == 1 && x->load[k.load].padded ? k.load : -1;
}

bool kn_cpu_taps_apart(const kn_site *x)
{
    taps k;
    return kn_cpu_is_taps(x) && find(x, &k) && k.step > 1;
}

static void put_order(kn_buf *b, const taps *k)
{
    const kn_site *x = k->x;
    const char *p = kn_cpu_axis(x, k->p), *q = kn_cpu_axis(x, x->n);
    int cut = k->mr > 1, inside = cut && k->step == 1;
    kn_putf(b, "split %s %s %lld %lld\n", x->name, q, (long long)k->nv, (long long)k->lanes);
    if (cut) kn_putf(b, "split %s %s %s%lld\n", x->name, p, inside ? "1 " : "", (long long)k->mr);
    kn_putf(b, "reorder %s", x->name);
    for (int i = 0; i < x->s->nspatial; i++)
        if (i != k->p && i != x->n) kn_putf(b, " %s.0", kn_cpu_axis(x, i));
    kn_putf(b, " | %s.0 %s.0", p, q);
    if (inside) kn_putf(b, " %s.1", p);
    int terms[2] = {k->step == 1 ? k->s : k->r, k->step == 1 ? k->r : k->s};
    for (int i = 0; i < 2; i++) if (terms[i] >= 0) kn_putf(b, " %s.0", kn_cpu_axis(x, terms[i]));
    kn_put(b, " |");
    if (cut) kn_putf(b, " %s.%d", p, 1 + inside);
    kn_putf(b, " %s.1 %s.2\n", q, q);
    if (cut) kn_putf(b, "unroll %s %s.%d\n", x->name, p, 1 + inside);
}

static void try_rows(const taps *k, kn_plans *p)
{
    const kn_site *x = k->x;
    kn_buf b;
    double points = (double)x->reduce_extent;
    kn_buf_init(&b, p->a);
    put_order(&b, k);
    for (int i = 0; i < x->s->nspatial; i++) points *= (double)kn_cpu_extent(x, i);
    for (int i = 0; i < x->s->nspatial && points >= KN_CPU_FORKED; i++)
        if (i != k->p && i != x->n) kn_putf(&b, "parallel %s %s.0\n", x->name, kn_cpu_axis(x, i));
    bool all = x->reduce_extent * k->mr <= KN_CPU_UNROLLED;
    bool column = k->r >= 0 && k->step == 1 && kn_cpu_extent(x, k->r) * k->mr <= KN_CPU_UNROLLED;
    if (column) kn_cpu_put_unrolled(&b, x, k->r);
    if (k->s >= 0 && (k->step > 1 || all)) kn_cpu_put_unrolled(&b, x, k->s);
    kn_putf(&b, "unroll %s %s.1\nvectorize %s %s.2\n", x->name, kn_cpu_axis(x, x->n), x->name, kn_cpu_axis(x, x->n));
    kn_plans_try(p, &b);
}

bool kn_cpu_taps_plan(const kn_site *x, kn_plans *p)
{
    enum { MOST = 16 };
    taps k;
    int before = p->n;
    if (!kn_cpu_is_taps(x) || !find(x, &k) || (k.step == 1 && x->load[k.load].padded)) return false;
    try_rows(&k, p);
    /* others for a search; how whole rows that are taken apart compare is not modelled */
    for (int64_t mr = 2; k.step == 1 && mr <= MOST && mr <= kn_cpu_extent(x, k.p); mr++) {
        taps other = k;
        other.mr = mr;
        if (mr != k.mr && mr <= x->hw->vector_registers / 2 && kn_cpu_extent(x, k.s) * mr <= KN_CPU_UNROLLED) try_rows(&other, p);
    }
    return p->n > before;
}
