/* The depth-first search of the published artifact: policy RT where reuse grows with the tile, PlainRT where it does not. */
#include "construct/roller.h"
#include <string.h>

enum { THREAD = 1, BLOCK = 0, MAX_STEPS = 512, TABLE = 1 << 17, FEW_CALLS = 1 << 12, MAX_CALLS = 400000 }; /* MAX_CALLS: of one round */

/* Candidate sizes of every axis at one level, as a window into a list: first .. n-1 are still to come. */
typedef struct steps { int n[KILN_MAX_AXES], first[KILN_MAX_AXES]; int64_t size[KILN_MAX_AXES][MAX_STEPS]; } steps;
typedef struct program { int64_t t[2][KILN_MAX_AXES]; bool has_block; } program; /* t[THREAD], t[BLOCK] */
/* What a round found out of a program; the next ones meet it again. */
typedef struct node {
    int round;
    bool eligible, accepted, has_block;
    double *score; /* of enlarging along each axis, -1: not asked for yet */
    int64_t t[];   /* as the program's, for the axes that there are */
} node;

typedef struct search {
    kiln_arena *a;
    const kn_roller_view *v;
    const kn_hw *hw;
    bool plain, found;
    int k, naxes;
    double eps;
    program top[KILN_MAX_CANDIDATES], border[KILN_MAX_CANDIDATES];
    int ntop, nborder;
    int table, nnodes, nround; /* nround: programs seen in this round, at most half of the table */
    node **visited;            /* a hash table */
    int calls, left, rounds;   /* left: calls that may still be made, of all rounds */
    steps list[2];
} search;

static int64_t threads_of(const search *s, const program *p)
{
    int64_t n = 1;
    for (int i = 0; i < s->v->nspatial; i++) n *= kn_ceil_div(p->t[BLOCK][i], p->t[THREAD][i]);
    return n;
}

static bool same(const search *s, const program *x, const program *y)
{
    size_t n = sizeof x->t[0][0] * (size_t)s->naxes;
    return x->has_block == y->has_block && !memcmp(x->t[THREAD], y->t[THREAD], n) &&
           (!x->has_block || !memcmp(x->t[BLOCK], y->t[BLOCK], n));
}

static bool eligible(const search *s, const program *p, int level)
{
    double regs = kn_roller_regs(s->v, p->t[THREAD]);
    if (level == THREAD) return regs <= (double)s->hw->roller.reg_cap[1];
    int64_t threads = threads_of(s, p);
    return regs * (double)threads <= (double)s->hw->roller.reg_cap[0] &&
           kn_roller_footprint(s->v, p->t[BLOCK]) < (double)s->hw->roller.smem_cap && threads <= 512;
}

static bool aligned(const search *s, const program *p, int level)
{
    if (level == THREAD) return true;
    return threads_of(s, p) % (s->hw->roller.warp * (s->plain ? 1 : s->hw->roller.partitions)) == 0;
}

/* PlainRT: innermost extents of all data tiles are whole or a multiple of the memory transaction. */
static bool coalesced(const search *s, const int64_t *t)
{
    const kn_roller_view *v = s->v;
    int64_t unit = s->hw->roller.transaction_bytes[0] / v->out_bytes;
    int last = v->nspatial - 1;
    if (unit < 1) return true;
    if (last >= 0 && t[last] < v->full[last] && t[last] % unit) return false;
    for (int i = 0; i < v->nin; i++) {
        const kn_roller_operand *o = &v->in[i];
        if (!o->rank) continue;
        int64_t dim = kn_roller_dim(v, o, o->rank - 1, t), full = kn_roller_dim(v, o, o->rank - 1, v->full);
        if (dim < full && dim % unit) return false;
    }
    return true;
}

static bool accepted(const search *s, const program *p, int level)
{
    if (!aligned(s, p, level)) return false;
    if (s->plain) {
        int64_t n = 1;
        for (int i = 0; i < s->v->nspatial; i++) n *= p->t[THREAD][i];
        return n >= 2 && (level == THREAD || coalesced(s, p->t[BLOCK]));
    }
    return kn_roller_compute(s->v, p->t[level]) / s->hw->roller.peak_gflops >
           kn_roller_traffic(s->v, p->t[level]) / s->hw->roller.bandwidth_gbs[level];
}

static bool tolerable(const search *s, int64_t size, int64_t full)
{
    return full % size == 0 || (double)(size - full % size) / (double)full <= s->eps;
}

/* The artifact's candidate lists (GetSteps): thread tiles are powers of two, block tiles multiples of the thread tile, reduce steps grow from one
 * memory transaction. False when an axis has no size within eps. */
static bool steps_of(search *s, const program *p, int level, int64_t *first)
{
    steps *l = &s->list[level];
    const kn_roller_view *v = s->v;
    int64_t unit = s->hw->roller.transaction_bytes[0] / v->out_bytes;
    if (unit < 1) unit = 1;
    for (int i = 0; i < s->naxes; i++) {
        int n = 0;
        int64_t full = v->full[i];
        if (i >= v->nspatial && level == THREAD) {
            l->size[i][n++] = 1;
        } else if (i >= v->nspatial) {
            int64_t most = s->plain ? 128 : 32, cap = full < most ? full : most;
            for (int64_t x = s->plain ? unit * 4 : unit;; x *= s->plain ? 2 : 4) {
                l->size[i][n++] = x < cap ? x : cap;
                if (x >= cap) break;
            }
        } else {
            int64_t base = level == THREAD ? 1 : p->t[THREAD][i];
            if (level == BLOCK && i == v->nspatial - 1) base = kn_lcm(base, unit);
            int many = level == THREAD ? 6 : s->plain ? MAX_STEPS : 32;
            for (int m = 1; m <= many; m++) {
                int64_t x = level == THREAD ? (int64_t)1 << (m - 1) : base * m;
                if (tolerable(s, x, full)) l->size[i][n++] = x;
            }
        }
        if (!n) return false;
        l->n[i] = n;
        l->first[i] = 0;
        first[i] = l->size[i][0];
    }
    return true;
}

static bool is_of(const search *s, const node *x, const program *p)
{
    size_t n = sizeof p->t[0][0] * (size_t)s->naxes;
    return x->has_block == p->has_block && !memcmp(x->t, p->t[THREAD], n) && !memcmp(x->t + s->naxes, p->t[BLOCK], n);
}

static node *new_node(const search *s, const program *p, int level)
{
    size_t axes = (size_t)s->naxes;
    node *n = kn_alloc(s->a, sizeof *n + axes * (2 * sizeof n->t[0] + sizeof *n->score));
    if (!n) return NULL;
    memcpy(n->t, p->t[THREAD], axes * sizeof n->t[0]);
    memcpy(n->t + axes, p->t[BLOCK], axes * sizeof n->t[0]);
    n->has_block = p->has_block;
    n->score = (double *)(n->t + 2 * axes);
    n->eligible = eligible(s, p, level);
    n->accepted = n->eligible && accepted(s, p, level);
    for (size_t i = 0; i < axes; i++) n->score[i] = -1;
    return n;
}

/* The program's node the first time that a round sees it, else NULL. A full table ends the search, which is bounded by MAX_CALLS anyway. */
static node *visit(search *s, const program *p, int level)
{
    uint64_t h = p->has_block ? 7 : 3;
    for (int i = 0; i < s->naxes; i++)
        h = (h ^ (uint64_t)p->t[THREAD][i] * 31 ^ (p->has_block ? (uint64_t)p->t[BLOCK][i] * 1000003 : 0)) * 1099511628211u;
    size_t at = (size_t)(h >> 32) % (size_t)s->table;
    while (s->visited[at] && !is_of(s, s->visited[at], p)) at = (at + 1) % (size_t)s->table;
    node *n = s->visited[at];
    if ((n && n->round == s->rounds) || s->nround == s->table / 2 || (!n && s->nnodes == s->table - 1)) return NULL;
    s->nround++;
    if (!n) {
        if (!(n = s->visited[at] = new_node(s, p, level))) return NULL;
        s->nnodes++;
    }
    n->round = s->rounds;
    return n;
}

/* Axes that can be enlarged, in order: by the data-reuse score (RT: intensity after growing by one element), or innermost first. */
static int order_axes(const search *s, const steps *l, const int64_t *t, node *n, int *order)
{
    int m = 0;
    for (int i = 0; i < s->naxes; i++) {
        if (l->n[i] - l->first[i] <= 1) continue;
        if (n->score[i] < 0) {
            int64_t next[KILN_MAX_AXES];
            memcpy(next, t, sizeof next);
            next[i]++;
            n->score[i] = s->plain ? i : kn_roller_compute(s->v, next) / kn_roller_traffic(s->v, next);
        }
        int at = m++;
        for (; at > 0 && n->score[order[at - 1]] < n->score[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
    return m;
}

static void note_border(search *s, const program *p)
{
    for (int i = 0; i < s->nborder && !s->plain; i++)
        if (same(s, &s->border[i], p)) return;
    if (s->nborder < s->k) s->border[s->nborder++] = *p;
}

static void enlarge(search *s, const program *last, const program *p, int level);

static void down(search *s, const program *p)
{
    program q = *p;
    if (!steps_of(s, p, BLOCK, q.t[BLOCK])) return;
    q.has_block = true;
    enlarge(s, &q, &q, BLOCK);
}

static void enlarge(search *s, const program *last, const program *p, int level)
{
    if (s->ntop == s->k || s->calls++ > MAX_CALLS || s->left-- <= 0 || kn_stopped(s->a)) return;
    node *n = visit(s, p, level);
    if (!n) return;
    if (!n->eligible) {
        if (level == BLOCK && aligned(s, last, level)) note_border(s, last);
        if (level == THREAD && !s->found) down(s, last);
        return;
    }
    if (n->accepted) {
        if (level == THREAD) {
            down(s, p);
        } else {
            s->found = !s->plain;
            s->top[s->ntop++] = *p;
            if (s->ntop == s->k) return;
        }
    }
    int order[KILN_MAX_AXES];
    steps *l = &s->list[level];
    int m = order_axes(s, l, p->t[level], n, order);
    for (int i = 0; i < m; i++) {
        int d = order[i];
        program q = *p;
        q.t[level][d] = l->size[d][++l->first[d]];
        enlarge(s, p, &q, level);
        l->first[d]--;
    }
}

static int64_t grid_of(const search *s, const program *p)
{
    int64_t n = 1;
    for (int i = 0; i < s->v->nspatial; i++) n *= kn_ceil_div(s->v->full[i], p->t[BLOCK][i]);
    return n;
}

/* Too few blocks for the chip: every spatial axis is halved at both levels until there are enough (RT only). */
static void shrink(const search *s, program *p)
{
    while (grid_of(s, p) < s->hw->roller.max_cores) {
        bool any = false;
        for (int i = 0; i < s->v->nspatial; i++) {
            if (p->t[BLOCK][i] == 1) continue;
            p->t[BLOCK][i] = kn_ceil_div(p->t[BLOCK][i], 2);
            p->t[THREAD][i] = kn_ceil_div(p->t[THREAD][i], 2);
            any = true;
        }
        if (!any) return;
    }
}

static void report(const search *s, const program *p, kn_rtile *out)
{
    const kn_roller_view *v = s->v;
    *out = (kn_rtile){.nspatial = v->nspatial, .nreduce = v->nreduce};
    for (int i = 0; i < v->nspatial; i++) {
        out->block[i] = p->t[BLOCK][i];
        out->thread[i] = p->t[THREAD][i];
    }
    for (int i = 0; i < v->nreduce; i++) out->rstep[i] = p->t[BLOCK][v->nspatial + i];
    out->threads = threads_of(s, p);
    out->grid = grid_of(s, p);
    out->smem_bytes = (int64_t)kn_roller_footprint(v, p->t[BLOCK]);
    out->regs = kn_roller_regs(v, p->t[THREAD]);
}

static void add_new(const search *s, const program *from, int n, program *all, int *nall)
{
    for (int i = 0; i < n && *nall < s->k; i++) {
        bool known = false;
        for (int j = 0; j < *nall && !known; j++) known = same(s, &all[j], &from[i]);
        if (!known) all[(*nall)++] = from[i];
    }
}

/* One round at one eps: what reached the block level, else the aligned tiles at the border of the capacities. */
static void one_round(search *s)
{
    program start = {0};
    s->ntop = s->nborder = s->nround = s->calls = 0;
    s->rounds++;
    if (steps_of(s, &start, THREAD, start.t[THREAD])) enlarge(s, &start, &start, THREAD);
}

kiln_status kn_roller_tiles(kiln_arena *a, const kn_roller_view *v, const kn_hw *hw, int k, int calls, kn_rtile **tiles,
                            int *ntiles, const char **policy_used, double *last_eps, kiln_diag *d)
{
    if (!hw->roller.present) {
        kn_fail_at(d, KILN_TARGET, "/target", "target %s has no \"roller\" constants; policy roller cannot construct for it", hw->id);
        kn_hint(d, "use policy default, or a target with a roller block such as nvidia-v100");
        return d->status;
    }
    *tiles = kn_array(a, kn_rtile, k);
    kn_mark before = kn_mark_of(a);
    search *s = kn_new(a, search);
    program *all = kn_array(a, program, k);
    if (!s || !all || !*tiles) return kn_fail(d, KILN_MEMORY, "out of memory");
    *s = (search){.a = a, .v = v, .hw = hw, .k = k, .naxes = v->nspatial + v->nreduce, .plain = !kn_roller_io_dependent(v), .left = calls};
    s->table = calls <= FEW_CALLS ? 2 * FEW_CALLS : TABLE;
    s->visited = kn_array(a, node *, s->table);
    if (!s->visited) return kn_fail(d, KILN_MEMORY, "out of memory");
    int n = 0;
    double step = s->plain ? 0.1 : 0.2;
    for (s->eps = 0; s->eps <= 1.0 && n < k && s->left > 0; s->eps += step) {
        *last_eps = s->eps;
        one_round(s);
        if (kn_arena_dry(a)) return kn_fail(d, KILN_MEMORY, "out of memory");
        if (s->ntop) add_new(s, s->top, s->ntop, all, &n);
        else add_new(s, s->border, s->nborder, all, &n);
    }
    if (!n) return kn_fail(d, KILN_NO_SCHEDULE, "the published search finds no tile for this program on %s", hw->id);
    for (int i = 0; i < n; i++) {
        if (!s->plain) shrink(s, &all[i]);
        report(s, &all[i], &(*tiles)[i]);
    }
    *ntiles = n;
    *policy_used = s->plain ? "PlainRT" : "RT";
    kn_release(a, before);
    return KILN_OK;
}
