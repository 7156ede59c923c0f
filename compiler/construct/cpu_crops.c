/* A sum of products over few inputs whose results a map takes from a temporary (a window over whole rows, of which the columns between rows are left
 * out): the rows of results of one register tile are computed and taken while L2 holds them, one group of them a task, instead of going out to memory
 * and coming back. The operand that slides is read again for each group, so it has to be small beside the results. */
#include "construct/cpu.h"
#include "construct/rows.h"

typedef struct crop {
    kn_site y, x;               /* the map, and the sum whose temporary it reads */
    int of[KILN_MAX_AXES];      /* the map's axis that walks axis i of the sum alone, -1: none */
    int64_t mr, nv, lanes;
} crop;

/* Every axis of the sum but that of its lanes is walked by an axis of the map. */
static bool matches(crop *c, const kn_expr *read)
{
    const kn_stmt *s = c->x.s;
    for (int i = 0; i < KILN_MAX_AXES; i++) c->of[i] = -1;
    for (int d = 0; d < read->nargs; d++)
        if (read->args[d]->op == KN_OP_AXIS && s->lhs[d]->op == KN_OP_AXIS) c->of[s->lhs[d]->u.axis] = read->args[d]->u.axis;
    for (int i = 0; i < s->nspatial; i++)
        if ((i == c->x.n) != (c->of[i] < 0) || (i != c->x.n && kn_cpu_extent(&c->y, c->of[i]) != kn_cpu_extent(&c->x, i))) return false;
    return c->y.n >= 0 && c->of[c->x.m] != c->y.n;
}

static bool slides(const kn_site *x)
{
    bool yes = x->store.linear;
    for (int l = 0; l < x->nloads; l++) yes = yes && x->load[l].linear && !x->load[l].padded;
    for (int l = 0; l < x->nloads; l++)
        if ((x->load[l].axes >> x->n & 1) && ((x->load[l].axes >> x->m & 1) || x->load[l].coef[x->n] != 1)) yes = false;
    return yes && kn_rows_slides(x->s);
}

/* The results do not fit L2, and moving them out (which reads their lines first) and back costs more than reading the other operand for every group
 * of mr rows. */
static bool pays(const crop *c, int64_t mr)
{
    const kn_site *x = &c->x;
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    const kn_expr *loads[KN_SITE_LOADS];
    int n = kn_loads(x->s->body, loads, KN_SITE_LOADS);
    double results = kn_cpu_acc_bytes(x), reads = 0, tasks = 1;
    for (int i = 0; i < x->s->nspatial; i++) {
        results *= (double)kn_cpu_extent(x, i);
        if (i != x->n) tasks *= (double)kn_cpu_extent(x, i);
    }
    for (int l = 0; l < n; l++) {
        const kn_tensor *t = &x->t->program->tensors[loads[l]->u.tensor];
        double bytes = x->load[l].bytes;
        for (int d = 0; d < t->rank; d++) bytes *= (double)t->shape[d];
        if (x->load[l].axes >> x->n & 1) reads += bytes * (double)(kn_cpu_extent(x, x->m) / mr);
    }
    return results > (double)l2->capacity_bytes && reads < 3 * results && tasks / (double)mr >= 2 * x->hw->units;
}

/* The register tile whose loads take least beside its multiply-adds, of rows that divide the axis; its results along the whole axis stay in L2. */
static bool choose(crop *c)
{
    const kn_site *x = &c->x;
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    int64_t n = kn_cpu_extent(x, x->n), m = kn_cpu_extent(x, x->m), need = x->hw->fma_latency * x->hw->fma_per_cycle;
    double least = 0;
    c->lanes = x->hw->vector_bytes / kn_cpu_acc_bytes(x);
    for (int64_t nv = 2; nv <= 6 && l2; nv++) {
        for (int64_t mr = 2; mr * nv + nv + 2 < x->hw->vector_registers; mr++) {
            double time = (double)(mr + nv) / (double)(mr * nv);
            bool near = mr * n * kn_cpu_acc_bytes(x) <= l2->capacity_bytes / 4 * 3;
            if (m % mr || mr * nv < need || !near || !pays(c, mr) || (least > 0 && time >= least)) continue;
            least = time;
            c->mr = mr;
            c->nv = nv;
        }
    }
    return least > 0 && n >= 8 * c->nv * c->lanes;
}

static void put_map(kn_buf *b, const crop *c)
{
    const kn_site *y = &c->y;
    int64_t n = kn_cpu_extent(y, y->n), lanes = y->hw->vector_bytes / kn_cpu_acc_bytes(y);
    if (n % lanes && lanes * kn_cpu_acc_bytes(y) > KN_CPU_NARROW) lanes = KN_CPU_NARROW / kn_cpu_acc_bytes(y);
    lanes = kn_cpu_pow2(n, lanes);
    kn_putf(b, "split %s %s %lld %lld\n", y->name, kn_cpu_axis(y, y->n), (long long)kn_cpu_written_out(kn_ceil_div(n, lanes)), (long long)lanes);
    kn_putf(b, "split %s %s %lld\nreorder %s", y->name, kn_cpu_axis(y, c->of[c->x.m]), (long long)c->mr, y->name);
    uint32_t led = 0;
    for (int i = 0; i < c->x.s->nspatial; i++) {
        if (i == c->x.n) continue;
        kn_putf(b, " %s.0", kn_cpu_axis(y, c->of[i]));
        led |= 1u << c->of[i];
    }
    kn_putf(b, " | %s.1", kn_cpu_axis(y, c->of[c->x.m]));
    for (int i = 0; i < y->s->nspatial; i++)
        if (!(led >> i & 1)) kn_putf(b, " %s.0", kn_cpu_axis(y, i));
    kn_putf(b, " | %s.1 %s.2\n", kn_cpu_axis(y, y->n), kn_cpu_axis(y, y->n));
    for (int i = 0; i < c->x.s->nspatial; i++)
        if (i != c->x.n) kn_putf(b, "parallel %s %s.0\n", y->name, kn_cpu_axis(y, c->of[i]));
    kn_putf(b, "unroll %s %s.1\nvectorize %s %s.2\n", y->name, kn_cpu_axis(y, y->n), y->name, kn_cpu_axis(y, y->n));
}

static void put_sum(kn_buf *b, const crop *c)
{
    const kn_site *x = &c->x;
    const char *n = kn_cpu_axis(x, x->n), *m = kn_cpu_axis(x, x->m), *at = "";
    int last = x->s->naxes - 1;
    kn_putf(b, "split %s %s %lld %lld\nsplit %s %s %lld\nreorder %s", x->name, n, (long long)c->nv, (long long)c->lanes, x->name, m, (long long)c->mr,
            x->name);
    for (int i = 0; i < x->s->nspatial; i++) {
        if (i == x->n) continue;
        kn_putf(b, " %s.0", kn_cpu_axis(x, i));
        at = kn_cpu_axis(&c->y, c->of[i]);
    }
    kn_putf(b, " | %s.0", n);
    for (int i = x->s->nspatial; i < x->s->naxes; i++) kn_putf(b, " %s.0", kn_cpu_axis(x, i));
    kn_putf(b, " | %s.1 %s.1 %s.2\nunroll %s %s.1\n", m, n, n, x->name, m);
    if (kn_cpu_extent(x, last) * c->mr * c->nv <= 2 * KN_CPU_UNROLLED) kn_cpu_put_unrolled(b, x, last);
    kn_putf(b, "unroll %s %s.1\nvectorize %s %s.2\ncompute_at %s %s %s.0\n", x->name, n, x->name, n, x->name, c->y.name, at);
}

uint32_t kn_cpu_crop(kiln_arena *a, const kn_tree *t, const kn_hw *hw, int y, kn_plans *p)
{
    crop c = {.mr = 0};
    kn_site_of(a, t, t->stages[y], hw, &c.y);
    if (c.y.s->red != KN_RED_NONE || c.y.s->scatter || t->stages[y]->epilogue >= 0 || kn_site_scheduled(t, t->stages[y])) return 0;
    for (int k = 0; k < y; k++) {
        const kn_expr *read = kn_site_only_read(t->program, t->stages[y]->stmt, t->program->stmts[t->stages[k]->stmt]->out);
        if (!read) continue;
        kn_site_of(a, t, t->stages[k], hw, &c.x);
        bool sum = c.x.contraction && !c.x.s->scatter && c.x.n >= 0 && t->stages[k]->epilogue < 0 && !kn_site_scheduled(t, t->stages[k]);
        if (!sum || !slides(&c.x) || !matches(&c, read) || !choose(&c)) continue;
        kn_buf b;
        kn_buf_init(&b, a);
        put_map(&b, &c);
        put_sum(&b, &c);
        kn_plans_try(p, &b);
        return p->n ? 1u << k | 1u << y : 0;
    }
    return 0;
}
