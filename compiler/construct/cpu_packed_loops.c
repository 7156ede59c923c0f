/* The loops of a sum of products with a packed factor, of which each core has tasks (cpu_packed_tasks.c), and the factor's copy in their order. */
#include "construct/packed.h"

static void put_others(kn_nest *w, const packed *k, bool beside, void (*put)(kn_nest *w, int axis))
{
    for (int i = 0; i < k->x->s->nspatial; i++)
        if (kn_packed_is_other(k, i, beside)) put(w, i);
}

static void put_outermost(kn_nest *w, int axis) { kn_nest_loop(w, axis, 0); }

void kn_packed_put_tasks(kn_nest *w, const packed *k) { put_others(w, k, false, kn_nest_task); }

/* The reduce axis is walked around blocks of the blocked one: all others but one that is written out; none where blocks are turned, or are layers. */
static bool around(const packed *k, int axis)
{
    return k->kb > 0 && !k->turns && !k->layer && axis != k->taps;
}

void kn_packed_put_reduction(kn_buf *b, const packed *k, bool outer)
{
    for (int r = 0; r < k->x->s->naxes - k->x->s->nspatial; r++) {
        int i = k->order[r];
        bool cut = k->kb && i == k->blocked;
        if (outer == around(k, i) && !cut) kn_putf(b, " %s.0", name(k, i));
        if (cut) kn_putf(b, " %s.%d", name(k, i), !outer);
    }
}

void kn_packed_put_followed(kn_buf *b, const packed *k)
{
    for (int i = 0; i < k->x->s->nspatial; i++)
        if (has(k, k->w, i) && i != k->x->n) kn_putf(b, " %s.0", name(k, i));
}

/* The rows' own axis is cut into bands. */
static bool banded(const packed *k) { return k->p < 0 && k->band > 1; }

/* The instruction's terms are a part of the blocked axis. */
static bool dots_blocked(const packed *k) { return k->kb && k->blocked == k->dot.run; }

static void put_splits(kn_nest *w, const packed *k)
{
    bool terms = k->dots && dots_blocked(k);
    kn_nest_split(w, k->x->n, (int64_t[KN_NEST_CUTS]){k->group > 1 ? k->group : 0, k->nv, k->lanes});
    kn_nest_split(w, k->q, (int64_t[KN_NEST_CUTS]){banded(k) ? k->band : 0, k->mr});
    if (k->mp > 1) kn_nest_split(w, k->p, (int64_t[KN_NEST_CUTS]){k->band / k->mp, k->mp});
    else if (k->p >= 0) kn_nest_split(w, k->p, (int64_t[KN_NEST_CUTS]){k->band});
    kn_nest_split(w, k->blocked, (int64_t[KN_NEST_CUTS]){terms ? kn_ceil_div(k->kb, k->terms) : k->kb, terms ? k->terms : 0});
    if (k->dots && !terms) kn_nest_split(w, k->dot.run, (int64_t[KN_NEST_CUTS]){k->terms});
}

/* The loop of the terms that an instruction sums. */
static void put_terms(kn_buf *b, const packed *k)
{
    if (k->dots) kn_putf(b, " %s.%d", name(k, k->dot.run), dots_blocked(k) ? 2 : 1);
}

/* Loops of a few iterations are written out, from the innermost one on; but not around a tile that fills the registers, where what is loaded for
 * the next terms would drive sums out of them. */
static void put_unrolled(kn_nest *w, const packed *k)
{
    enum { MOST = KN_CPU_UNROLLED };
    int64_t body = k->mr * k->nv;
    if (k->taps >= 0) kn_nest_kind(w, "unroll", k->taps, 0);
    if (k->taps >= 0 || k->dots || (!k->beside && 2 * body > k->x->hw->vector_registers)) return;
    for (int r = k->x->s->naxes - k->x->s->nspatial - 1; r >= 0; r--) {
        int i = k->order[r];
        if (extent(k, i) < 2) continue;
        if (k->uneven >> i & 1 || k->kb || !kn_mul_fits(body, extent(k, i), &body) || body > MOST) return;
        kn_nest_kind(w, "unroll", i, 0);
    }
}

/* The constant's copy before the first call, or one that a task makes: `blocks`: of one panel, each packed when its turn comes. */
static void put_packed(kn_buf *b, const packed *k, bool blocks, int rows)
{
    const kn_site *x = k->x;
    int at = blocks ? k->order[x->s->naxes - x->s->nspatial - 1] : rows;
    bool own = k->copied && k->panels; /* a task has one panel of one group */
    int in = k->group > 1; /* which part of n is that of panels in a group, if there are groups; then a panel's vectors */
    if (blocks && k->turns) at = k->blocked;
    if (k->copied) kn_putf(b, "cache_read %s %d scratch %s.0 loops", x->name, k->w, name(k, at));
    else kn_putf(b, "prepack %s %d", x->name, k->w);
    for (int i = 0; i < x->s->nspatial; i++)
        if (has(k, k->w, i) && i != x->n && (!k->copied || kn_packed_is_other(k, i, true))) kn_putf(b, " %s.0", name(k, i));
    if (!own) kn_putf(b, " %s.0", name(k, x->n));
    if (in) kn_putf(b, " %s.1", name(k, x->n));
    if (k->streams) kn_putf(b, " %s.1", name(k, x->n));
    if (k->kb && !blocks) kn_packed_put_reduction(b, k, true);
    if (k->turns) kn_cpu_put_run(b, x, k->w, k->blocked, k->kb > 0);
    else kn_packed_put_reduction(b, k, false);
    if (!k->streams) kn_putf(b, " %s.%d", name(k, x->n), in + 1);
    kn_putf(b, " %s.%d", name(k, x->n), in + 2);
    put_terms(b, k);
    kn_put(b, "\n");
}

void kn_packed_put_tile(kn_nest *w, const packed *k, int cut, int in)
{
    bool vectors = kn_packed_by_vectors(k);
    kn_nest_bar(w);
    if (vectors) kn_nest_loop(w, k->x->n, in + 1);
    if (k->mp > 1) kn_nest_loop(w, k->p, 2);
    kn_nest_loop(w, k->q, cut + 1);
    if (!vectors) kn_nest_loop(w, k->x->n, in + 1);
    kn_nest_loop(w, k->x->n, in + 2);
    put_terms(&w->order, k);
    if (k->mp > 1) kn_nest_kind(w, "unroll", k->p, 2);
    kn_nest_kind(w, "unroll", k->q, cut + 1);
    kn_nest_kind(w, "unroll", k->x->n, in + 1);
    if (k->dots) kn_putf(&w->kinds, "tensorize %s %s.2 %s\n", k->x->name, name(k, k->x->n), k->dot.it->name);
    else kn_nest_kind(w, "vectorize", k->x->n, in + 2);
}

void kn_packed_try(packed *k, kn_plans *plans)
{
    const kn_site *x = k->x;
    k->streams = kn_packed_in_streams(k);
    bool panels = k->panels = kn_packed_in_panels(k), shares = k->shares = panels && !k->turns && kn_packed_in_shares(k);
    k->band = kn_packed_band(k);
    k->group = kn_packed_group(k);
    int in = k->group > 1, rows = k->p >= 0 ? k->p : k->q;
    bool cut = banded(k), bands = k->p >= 0 || cut, blocks = k->copied && panels && !kn_packed_at_once(k);
    if (k->copied && !bands && !(k->turns && panels)) return;
    kn_nest w;
    kn_nest_begin(&w, x, plans->a);
    if (k->layer) kn_packed_put_layers(&w.first, k);
    put_splits(&w, k);
    kn_packed_put_tasks(&w, k);
    if (panels && !shares) kn_nest_task(&w, x->n);
    if (bands) kn_nest_task(&w, rows);
    kn_nest_bar(&w);
    if (shares) kn_nest_loop(&w, x->n, 0);
    if (k->kb) kn_packed_put_reduction(&w.order, k, true);
    if (in) kn_nest_loop(&w, x->n, 1);
    for (int i = 0; i < x->s->nspatial; i++)
        if (kn_packed_meets_block(k, i)) kn_nest_loop(&w, i, 0);
    if (k->p >= 0) kn_nest_loop(&w, k->p, 1);
    kn_nest_loop(&w, k->q, cut);
    put_others(&w, k, true, put_outermost);
    if (!panels) kn_nest_loop(&w, x->n, 0); /* results are written from end to end; the constant stays in L2 */
    kn_packed_put_reduction(&w.order, k, false);
    put_unrolled(&w, k);
    kn_packed_put_tile(&w, k, cut, in);
    if (!k->lies) put_packed(&w.copies, k, blocks, rows);
    int boxes = k->p < 0 && panels ? x->n : rows;
    if (k->boxed) kn_putf(&w.copies, "cache_read %s %d scratch %s.0 region\n", x->name, k->v, name(k, boxes));
    kn_nest_try(&w, plans);
}
