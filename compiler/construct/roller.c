/* The depth-first search of the published artifact: policy RT where reuse grows with the tile, PlainRT where it does not. */
#include "construct/roller.h"
#include <string.h>

enum { THREAD = 1, BLOCK = 0, MAX_STEPS = 512, TABLE = 1 << 17, MAX_CALLS = 400000 };

/* Candidate sizes of every axis at one level, as a window into a list: first .. n-1 are still to come. */
typedef struct steps { int n[KILN_MAX_AXES], first[KILN_MAX_AXES]; int64_t size[KILN_MAX_AXES][MAX_STEPS]; } steps;
typedef struct program { int64_t t[2][KILN_MAX_AXES]; bool has_block; } program; /* t[THREAD], t[BLOCK] */

typedef struct search {
    kiln_arena *a;
    const kn_roller_view *v;
    const kn_hw *hw;
    bool plain, found;
    int k, naxes;
    double eps;
    program top[KILN_MAX_CANDIDATES], border[KILN_MAX_CANDIDATES];
    int ntop, nborder;
    program *visited[TABLE];
    program *pool[TABLE / 2]; /* programs that visited[] points at; kept from round to round */
    int nvisited, npool, calls;
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

/* True the first time a program is seen. A full table ends the search, which is bounded by MAX_CALLS anyway. */
static bool visit(search *s, const program *p)
{
    uint64_t h = p->has_block ? 7 : 3;
    for (int i = 0; i < s->naxes; i++)
        h = (h ^ (uint64_t)p->t[THREAD][i] * 31 ^ (p->has_block ? (uint64_t)p->t[BLOCK][i] * 1000003 : 0)) * 1099511628211u;
    size_t at = (size_t)(h >> 32) % TABLE;
    for (; s->visited[at]; at = (at + 1) % TABLE)
        if (same(s, s->visited[at], p)) return false;
    if (s->nvisited >= TABLE / 2) return false;
    if (s->nvisited == s->npool) {
        program *fresh = kn_new(s->a, program);
        if (!fresh) return false;
        s->pool[s->npool++] = fresh;
    }
    program *copy = s->pool[s->nvisited++];
    *copy = *p;
    s->visited[at] = copy;
    return true;
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

/* Axes in the order in which they are enlarged: by the data-reuse score (RT: intensity after growing by one element), or innermost first. */
static void order_axes(const search *s, const int64_t *t, int *order)
{
    double score[KILN_MAX_AXES];
    for (int i = 0; i < s->naxes; i++) {
        int64_t next[KILN_MAX_AXES];
        memcpy(next, t, sizeof next);
        next[i]++;
        score[i] = s->plain ? i : kn_roller_compute(s->v, next) / kn_roller_traffic(s->v, next);
        int at = i;
        for (; at > 0 && score[order[at - 1]] < score[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
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
    if (s->ntop == s->k || s->calls++ > MAX_CALLS || kn_stopped(s->a) || !visit(s, p)) return;
    if (!eligible(s, p, level)) {
        if (level == BLOCK && aligned(s, last, level)) note_border(s, last);
        if (level == THREAD && !s->found) down(s, last);
        return;
    }
    if (accepted(s, p, level)) {
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
    order_axes(s, p->t[level], order);
    for (int i = 0; i < s->naxes; i++) {
        int d = order[i];
        if (l->n[d] - l->first[d] <= 1) continue;
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
    s->ntop = s->nborder = s->nvisited = s->calls = 0;
    memset(s->visited, 0, sizeof s->visited);
    if (steps_of(s, &start, THREAD, start.t[THREAD])) enlarge(s, &start, &start, THREAD);
}

kiln_status kn_roller_tiles(kiln_arena *a, const kn_roller_view *v, const kn_hw *hw, int k, kn_rtile **tiles, int *ntiles,
                            const char **policy_used, double *last_eps, kiln_diag *d)
{
    if (!hw->roller.present) {
        kn_fail_at(d, KILN_TARGET, "/target", "target %s has no \"roller\" constants; policy roller cannot construct for it", hw->id);
        kn_hint(d, "use policy default, or a target with a roller block such as nvidia-v100");
        return d->status;
    }
    search *s = kn_new(a, search);
    program *all = kn_array(a, program, k);
    *tiles = kn_array(a, kn_rtile, k);
    if (!s || !all || !*tiles) return kn_fail(d, KILN_MEMORY, "out of memory");
    *s = (search){.a = a, .v = v, .hw = hw, .k = k, .naxes = v->nspatial + v->nreduce, .plain = !kn_roller_io_dependent(v)};
    int n = 0;
    double step = s->plain ? 0.1 : 0.2;
    for (s->eps = 0; s->eps <= 1.0 && n < k; s->eps += step) {
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
    return KILN_OK;
}
