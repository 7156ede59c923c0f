/* A vector by a constant matrix: every element of that is read once, so that the order in which memory hands it over is all that counts. It is packed
 * in panels of a few vectors of columns, each of which goes by from end to end; read as it lies, a panel's lines are a row apart, which no prefetcher
 * follows, and share sets of the caches. */
#include "construct/cpu.h"
#include "te/expr.h"

enum { WIDEST = 8, NARROWEST = 4 }; /* vectors of a panel: chains that hide a multiply-add's latency, and whole lines */

/* The load that is the matrix; -1: the sum is no such product, or not one that is known to gain (measured where vectors are parts of lines: 1.15 to
 * 1.3 times as fast from L2, 1.2 to 1.6 from L3, 1.0 to 1.3 from memory). */
static int matrix_of(const kn_site *x)
{
    const kn_expr *loads[2];
    int w = -1;
    if (x->hw->gpu || !kn_cpu_short_vectors(x) || x->s->red != KN_RED_SUM || x->s->scatter || x->nloads != 2 || x->n < 0) return -1;
    if (kn_bare(x->s->body)->op != KN_OP_MUL || kn_loads(x->s->body, loads, 2) != 2 || !x->store.linear || x->store.coef[x->n] != 1) return -1;
    for (int l = 0; l < 2; l++) {
        if (!x->load[l].linear || x->load[l].padded || x->load[l].bent || x->load[l].bytes < kn_cpu_acc_bytes(x)) return -1;
        if (x->load[l].axes >> x->n & 1) w = w < 0 ? l : 2;
    }
    if (w < 0 || w > 1) return -1;
    const kn_tensor *t = &x->t->program->tensors[loads[w]->u.tensor];
    if (t->role != KN_INPUT || !t->constant || kn_loads_in_calls(x->t, loads[w]->u.tensor) != 1) return -1;
    for (int i = 0; i < x->s->naxes; i++) {
        if (i != x->n && i < x->s->nspatial && kn_cpu_extent(x, i) > 1) return -1;
        if (i >= x->s->nspatial && kn_cpu_extent(x, i) > 1 && !(x->load[w].axes >> i & x->load[1 - w].axes >> i & 1)) return -1;
    }
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1");
    int64_t lanes = x->hw->vector_bytes / kn_cpu_acc_bytes(x), n = kn_cpu_extent(x, x->n);
    return n >= NARROWEST * lanes && n * x->reduce_extent * kn_cpu_acc_bytes(x) > l1->capacity_bytes ? w : -1;
}

bool kn_cpu_is_vector(const kn_site *x) { return matrix_of(x) >= 0; }

/* Vectors of a panel: few of the last one's idle, one panel for each core at least. */
static int64_t width(int64_t vectors, int64_t units)
{
    int64_t best = NARROWEST, least = INT64_MAX;
    for (int64_t nv = WIDEST; nv >= NARROWEST; nv--) {
        int64_t panels = kn_ceil_div(vectors, nv), idle = panels * nv - vectors;
        if ((panels < units && nv > NARROWEST) || idle >= least) continue;
        least = idle;
        best = nv;
    }
    return best < vectors ? best : vectors;
}

/* The sum's axes, as the vector is walked through from end to end. */
static void put_terms(kn_buf *b, const kn_site *x, int v)
{
    const int64_t *step = x->load[v].coef;
    uint32_t left = 0;
    for (int i = x->s->nspatial; i < x->s->naxes; i++) left |= 1u << i;
    while (left) {
        int next = -1;
        for (int i = x->s->nspatial; i < x->s->naxes; i++) next = left >> i & 1 && (next < 0 || step[i] > step[next]) ? i : next;
        kn_putf(b, " %s.0", kn_cpu_axis(x, next));
        left &= ~(1u << next);
    }
}

/* What L2 does not hold comes faster as a run for each of a panel's vectors, in pages of its own (a single one: 0.6 to 1.3 of that). */
bool kn_cpu_vector(const kn_site *x, kn_plans *p)
{
    int w = matrix_of(x);
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    if (w < 0 || !l2) return false;
    int64_t lanes = x->hw->vector_bytes / kn_cpu_acc_bytes(x), n = kn_cpu_extent(x, x->n);
    bool streams = n * x->reduce_extent * kn_cpu_acc_bytes(x) > l2->capacity_bytes;
    const char *c = kn_cpu_axis(x, x->n);
    kn_buf b;
    kn_buf_init(&b, p->a);
    kn_putn(&b, x->before.p ? x->before.p : "", x->before.n);
    kn_putf(&b, "split %s %s %lld %lld\nreorder %s", x->name, c, (long long)width(kn_ceil_div(n, lanes), x->hw->units), (long long)lanes, x->name);
    for (int i = 0; i < x->s->nspatial; i++)
        if (i != x->n) kn_putf(&b, " %s.0", kn_cpu_axis(x, i));
    kn_putf(&b, " %s.0 |", c);
    put_terms(&b, x, 1 - w);
    kn_putf(&b, " | %s.1 %s.2\n", c, c);
    for (int i = 0; i < x->s->nspatial; i++)
        if (i != x->n) kn_putf(&b, "parallel %s %s.0\n", x->name, kn_cpu_axis(x, i));
    kn_putf(&b, "parallel %s %s.0\nunroll %s %s.1\nvectorize %s %s.2\nprepack %s %d %s.0", x->name, c, x->name, c, x->name, c, x->name, w, c);
    if (streams) kn_putf(&b, " %s.1", c);
    put_terms(&b, x, 1 - w);
    if (!streams) kn_putf(&b, " %s.1", c);
    kn_putf(&b, " %s.2\n", c);
    kn_plans_try(p, &b);
    return p->n > 0;
}
