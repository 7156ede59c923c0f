/* Products on a dot instruction whose operand with the lanes is no constant and lies along the results (of one row also a constant): the terms of
 * the instruction are interleaved as it is packed (lower/zipped.c), whole lines of its rows at a time. Few rows meet a block of the reduction panel
 * by panel, which stays in L1 while they go by and the next one is on its way (lower/next.c): the operand is read once, as fast as memory gives it;
 * partial sums stay in L2. One that is nearer is packed step by step, where one tile has all of the rows. Many rows meet panels of all terms in half
 * of L2, so that what packing takes is shared by all of them. */
#include "construct/cpu.h"
#include "intrin/intrin.h"
#include "te/expr.h"

enum {
    FEW_ROWS = 96,
    LEAST_TERMS = 32, /* of the instruction: shorter sums write results for the most part */
    WIDEST = 8        /* vectors of a tile */
};

typedef struct zipped {
    const kn_site *x;
    const kn_cpu_dot *d;
    int64_t lanes, terms, nv, mr; /* of the instruction; of the register tile */
    int64_t line;                 /* vectors of results that read a line of the operand's own rows, of a row that is shorter all of it */
    int64_t mc, nc, kb;           /* groups of rows and panels of a task; the instruction's terms in a block, 0: all */
    bool deep;                    /* rows go along the task's panels */
    bool each;                    /* the operand's terms are interleaved for each step of the tile, as they are wanted */
    bool ahead;                   /* the operand is constant and packed before the first call */
} zipped;

static int64_t extent(const zipped *z, int axis) { return kn_cpu_extent(z->x, axis); }
static int64_t panel_lanes(const zipped *z) { return z->nv * z->lanes; }
static int64_t panels_of(const zipped *z) { return kn_ceil_div(extent(z, z->x->n), panel_lanes(z)); }
static int64_t steps_of(const zipped *z) { return kn_ceil_div(z->x->reduce_extent, z->terms); }
static int64_t vectors_of_line(const zipped *z) { return z->x->hw->vector_bytes / (z->lanes * z->x->load[z->d->b].bytes); }
static int64_t step_bytes(const zipped *z) { return panel_lanes(z) * z->terms * z->x->load[z->d->b].bytes; }

bool kn_cpu_zips(const kn_site *x, int load, int run)
{
    const kn_site_access *b = &x->load[load];
    if (!b->linear || b->bent || b->coef[x->n] != 1 || b->coef[run] < kn_cpu_extent(x, x->n)) return false;
    for (int i = 0; i < x->s->nspatial; i++)
        if (i != x->m && !(b->axes >> i & 1) && x->s->axes[i].extent > 1) return false;
    return true;
}

/* Few rows meet an operand that L2 does not hold, whose own rows lie a part of L1's ways apart: single lines of them, asked for ahead, drive each
 * other out of L1; of two, which are brought together, half as many are asked for. */
static bool crowds(const zipped *z)
{
    enum { PART = 4 };
    const kn_site_access *b = &z->x->load[z->d->b];
    const kn_hw_level *l2 = kn_hw_level_named(z->x->hw, "l2");
    int64_t rows = z->x->reduce_extent * extent(z, z->x->n);
    bool apart = kn_hw_in_one_set(kn_hw_level_named(z->x->hw, "l1"), PART * b->coef[z->d->run] * b->bytes);
    return extent(z, z->x->m) <= FEW_ROWS && l2 && rows * b->bytes > l2->capacity_bytes && apart;
}

static bool near(const zipped *z)
{
    const kn_hw_level *l2 = kn_hw_level_named(z->x->hw, "l2");
    return l2 && z->x->reduce_extent * extent(z, z->x->n) * z->x->load[z->d->b].bytes <= l2->capacity_bytes;
}

/* Of many rows panels may be parts of lines where registers are few, so that tiles have rows for their loads and for the bytes that they widen
 * (2048x2048x2048 bytes with AVX2: tiles of 6x2 take 0.85 of the time of 2x4). */
static bool parts_of_lines(const zipped *z, int64_t nv)
{
    return kn_hw_few_registers(z->x->hw) && extent(z, z->x->m) > FEW_ROWS && nv < z->line && z->line % nv == 0 && !near(z);
}

/* The register tile that wastes least of what it computes past the ends and of loads beside the products. Panels are whole lines of an operand that
 * L2 does not hold; of one that it holds others too, where less is wasted so (1496x40x82 bf16: 3 vectors take 0.76 of the time of 4, 46x96x327 bytes
 * 0.78). */
static bool tile(zipped *z)
{
    const kn_site *x = z->x;
    const double alone = crowds(z) ? 0.25 : 0, part = 0.03;
    int64_t line = vectors_of_line(z), most = kn_cpu_in_one_set(x) ? 6 : 14;
    bool any = near(z);
    double best = 0, need = (double)(x->hw->fma_latency * x->hw->fma_per_cycle);
    if (line * z->lanes > extent(z, x->n)) line = kn_ceil_div(extent(z, x->n), z->lanes);
    z->line = line;
    for (int64_t nv = 1; nv <= WIDEST && (nv <= line || (nv - (any ? 1 : line)) * z->lanes < extent(z, x->n)); nv++) {
        if (!any && nv % line && !parts_of_lines(z, nv)) continue;
        double beside = nv % line ? part : nv == line ? alone : 0;
        for (int64_t mr = 1; mr <= most && mr <= extent(z, x->m) && kn_cpu_dot_fits(x, z->d, mr, nv); mr++) {
            double done = (double)(kn_round_up(extent(z, x->m), mr) * kn_round_up(extent(z, x->n), nv * z->lanes)), all = (double)(mr * nv);
            double cost = done * (1 + 0.5 * (double)(mr + nv) / all + beside) / (all < need ? all / need : 1);
            if (best > 0 && cost >= best) continue;
            best = cost, z->mr = mr, z->nv = nv;
        }
    }
    return best > 0;
}

/* So few rows that one tile has all of them, and an operand that is near: each step interleaves what it reads, whole lines of it, while the products
 * of the steps before are still summed. Blocks that are interleaved first wait for their lines and are stored and read for nothing. Further out
 * nothing asks for the lines of a step in time, nor do single ones stay that fall into few sets. */
static bool near_operand(zipped *z, const kn_hw_level *l2)
{
    const kn_site *x = z->x;
    const kn_hw_level *l3 = kn_hw_level_named(x->hw, "l3");
    int64_t line = vectors_of_line(z), rows = extent(z, x->m), units = x->hw->units;
    int64_t bytes = x->reduce_extent * extent(z, x->n) * x->load[z->d->b].bytes;
    double best = 0, need = (double)(x->hw->fma_latency * x->hw->fma_per_cycle);
    if (z->ahead || x->reduce_extent != extent(z, z->d->run) || bytes > (l3 ? l3 : l2)->capacity_bytes || crowds(z)) return false;
    for (int64_t nv = line; nv <= WIDEST && kn_cpu_dot_fits(x, z->d, rows, nv); nv += line) {
        double all = (double)(rows * nv), cost = (double)kn_round_up(extent(z, x->n), nv * z->lanes) * (1 + 0.5 * (double)(rows + nv) / all);
        if (all < need) cost *= need / all;
        if (best > 0 && cost >= best) continue;
        best = cost, z->mr = rows, z->nv = nv;
    }
    if (best <= 0) return false;
    z->each = true;
    z->mc = 1;
    z->nc = kn_ceil_div(panels_of(z), 4 * units);
    return true;
}

/* Blocks whose panel fills half of L1, near a divisor; tasks of columns, whose partial sums fill half of L2. */
static bool few(zipped *z, const kn_hw_level *l1, const kn_hw_level *l2)
{
    int64_t all = steps_of(z), most = l1->capacity_bytes / 2 / step_bytes(z), panels = panels_of(z), units = z->x->hw->units;
    bool whole = z->x->reduce_extent != extent(z, z->d->run); /* several axes, of which none is cut */
    if (most < 8 || (whole && step_bytes(z) * all > l2->capacity_bytes / 2)) return false;
    z->kb = z->ahead || whole || all <= 2 * most ? 0 : kn_ceil_div(all, kn_ceil_div(all, most));
    int64_t room = l2->capacity_bytes / 2 / (panel_lanes(z) * kn_cpu_acc_bytes(z->x)) / z->mr, groups = kn_ceil_div(extent(z, z->x->m), z->mr);
    z->mc = kn_ceil_div(groups, kn_ceil_div(groups, room < 1 ? 1 : room));
    int64_t beside = room / z->mc;
    int64_t columns = kn_round_up(kn_ceil_div(panels, beside < 1 ? 1 : beside), units);
    z->nc = kn_ceil_div(panels, columns);
    return true;
}

/* Two panels where half of L2 holds them, of parts of a line four lines, so that the rows pass less often; and tasks for all cores. */
static bool many(zipped *z, const kn_hw_level *l2)
{
    int64_t units = z->x->hw->units, panels = panels_of(z), groups = kn_ceil_div(extent(z, z->x->m), z->mr), rows = 1;
    int64_t beside = l2->capacity_bytes / 2 / (step_bytes(z) * steps_of(z)), others = kn_cpu_extent(z->x, kn_cpu_other(z->x));
    if (beside < 1) return false;
    z->deep = true;
    int64_t lines = parts_of_lines(z, z->nv) ? z->line / z->nv : 1, most = lines > 1 ? 4 * lines : 2;
    for (z->nc = 1; 2 * z->nc <= beside && z->nc < most && (z->nc < lines || panels * others >= 4 * units * z->nc * lines);) z->nc *= 2;
    while (kn_ceil_div(panels, z->nc) * others * rows < 2 * units && groups * z->mr >= 2 * rows * FEW_ROWS) rows *= 2;
    z->mc = kn_ceil_div(groups, rows);
    return true;
}

static void put_others(kn_buf *b, const zipped *z, const char *format)
{
    const kn_site *x = z->x;
    for (int i = 0; i < x->s->nspatial; i++)
        if (i != x->n && i != x->m) kn_putf(b, format, kn_cpu_axis(x, i));
}

/* Reduce loops around the tile, that of the run last. */
static void put_terms(kn_buf *b, const zipped *z, int run)
{
    const kn_site *x = z->x;
    for (int i = x->s->nspatial; i < x->s->naxes; i++)
        if (i != z->d->run) kn_putf(b, " %s.0", kn_cpu_axis(x, i));
    kn_putf(b, " %s.%d", kn_cpu_axis(x, z->d->run), run);
}

static bool put(const zipped *z, kn_plans *p)
{
    kn_buf b;
    const kn_site *x = z->x;
    const char *s = x->name, *n = kn_cpu_axis(x, x->n), *m = x->m < 0 ? NULL : kn_cpu_axis(x, x->m), *r = kn_cpu_axis(x, z->d->run);
    int t = z->kb ? 2 : 1, before = p->n; /* the loop of the terms */
    kn_buf_init(&b, p->a);
    kn_putn(&b, x->before.p ? x->before.p : "", x->before.n);
    kn_putf(&b, "split %s %s %lld %lld %lld\n", s, n, (long long)z->nc, (long long)z->nv, (long long)z->lanes);
    if (m) kn_putf(&b, "split %s %s %lld %lld\n", s, m, (long long)z->mc, (long long)z->mr);
    kn_putf(&b, "split %s %s", s, r);
    if (z->kb) kn_putf(&b, " %lld", (long long)z->kb);
    kn_putf(&b, " %lld\nreorder %s", (long long)z->terms, s);
    put_others(&b, z, " %s.0");
    kn_putf(&b, m ? " %s.0 %s.0 |" : " %s.0 |", m ? m : n, n);
    if (z->kb) kn_putf(&b, " %s.0", r);
    if (m && z->deep) kn_putf(&b, " %s.1", m);
    kn_putf(&b, " %s.1", n);
    if (m && !z->deep) kn_putf(&b, " %s.1", m);
    put_terms(&b, z, t - 1);
    if (m) kn_putf(&b, " %s.2", m);
    kn_putf(&b, " %s.2 | %s.3 %s.%d\n", n, n, r, t);
    for (int i = 0; i < x->s->nspatial; i++)
        if (i != x->n && i != x->m) kn_putf(&b, "parallel %s %s.0\n", s, kn_cpu_axis(x, i));
    if (m) kn_putf(&b, "parallel %s %s.0\nunroll %s %s.2\n", s, m, s, m);
    kn_putf(&b, "parallel %s %s.0\nunroll %s %s.2\ntensorize %s %s.3 %s\n", s, n, s, n, s, n, z->d->it->name);
    if (z->ahead) kn_putf(&b, "prepack %s %d", s, z->d->b);
    else if (z->each) kn_putf(&b, "cache_read %s %d scratch %s.0 loops", s, z->d->b, r);
    else kn_putf(&b, "cache_read %s %d scratch %s.%d loops", s, z->d->b, n, !z->deep);
    for (int i = 0; i < x->s->nspatial && z->ahead; i++)
        if (i != x->n && (x->load[z->d->b].axes >> i & 1)) kn_putf(&b, " %s.0", kn_cpu_axis(x, i));
    if (z->ahead) kn_putf(&b, " %s.0", n);
    if (z->ahead || z->deep) kn_putf(&b, " %s.1", n);
    if (!z->each) put_terms(&b, z, t - 1);
    kn_putf(&b, " %s.2 %s.3 %s.%d\n", n, n, r, t);
    kn_plans_try(p, &b);
    return p->n > before;
}

bool kn_cpu_zipped(const kn_site *x, kn_plans *p, const kn_cpu_dot *d)
{
    const kn_expr *loads[KN_SITE_LOADS];
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1"), *l2 = kn_hw_level_named(x->hw, "l2");
    kn_loads(x->s->body, loads, KN_SITE_LOADS);
    zipped z = {.x = x, .d = d, .lanes = d->it->s->axes[0].extent, .terms = d->it->s->axes[1].extent};
    z.ahead = x->t->program->tensors[loads[d->b]->u.tensor].constant;
    if (!l1 || !l2 || d->recast || (z.ahead && x->m >= 0) || !kn_cpu_zips(x, d->b, d->run) || steps_of(&z) < LEAST_TERMS) return false;
    if (near_operand(&z, l2) && put(&z, p)) return true;
    z.each = false;
    if (!tile(&z)) return false;
    bool fits = extent(&z, x->m) > FEW_ROWS ? many(&z, l2) || few(&z, l1, l2) : few(&z, l1, l2);
    return fits && put(&z, p);
}
