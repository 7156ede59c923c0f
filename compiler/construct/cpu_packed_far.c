/* Sums of products with a packed factor that the caches hold in blocks alone: blocks of the sum that L1 holds, tasks that L2 holds, and rows that go
 * along panels of long sums. */
#include "construct/packed.h"

/* Blocks of the reduction, near a divisor of the axis: of the constant what leaves half of L1 to the rows; or (strips) so long that the tile's rows
 * take three eighths of L1, past which the constant streams from L2. Longer blocks begin tiles, and move partial sums, less often. With few
 * registers all are of one length, if that takes no more than half as many again: compilers write out steps of loops whose ends they know. */
int64_t kn_packed_block(const packed *k, bool strips)
{
    if (k->turns) return kn_cpu_squares_block(k->x, k->w, k->blocked, k->nv * k->lanes * kn_packed_bytes(k), k->lanes, k->terms);
    const kn_hw_level *l1 = kn_hw_level_named(k->x->hw, "l1");
    int64_t line = strips ? k->mr * k->x->load[k->v].bytes : k->nv * k->lanes * kn_packed_bytes(k), all = extent(k, k->blocked);
    if (k->taps >= 0) line *= extent(k, k->taps);
    int64_t room = l1 ? l1->capacity_bytes / 8 * (strips ? 3 : 4) / line : 0;
    bool few = kn_hw_few_registers(k->x->hw);
    if (room < 8 || 2 * all < (strips ? 3 : 4) * room) return 0;
    int64_t block = kn_ceil_div(all, kn_ceil_div(all, room));
    for (int64_t n = block; !strips && few && 3 * n >= 2 * block; n--)
        if (all % n == 0 && n % k->terms == 0) return n;
    return kn_round_up(block, k->terms);
}

/* Of a large constant: tasks are what L2 is to hold, of few rows a core's share of the columns, else a block of rows that meets all panels. Each goes
 * through the reduction block by block: the rows of a tile stay in L1 while a panel's block streams past them, partial sums wait near. Many rows only
 * where they lie so far apart that they fall into few sets of the caches, and their segments are copied beside each other for several panels: others
 * stream (2048x4096 by 64 columns 1.25 times as fast as from copies, by 512 1.0). */
static bool try_blocks(packed *k, kn_plans *plans)
{
    enum { FEW_TILES = 24, SET = 1024 };
    const kn_site *x = k->x;
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    const kn_site_access *a = &x->load[k->v];
    int64_t tiles = kn_ceil_div(extent(k, k->q), k->mr), panels = kn_ceil_div(extent(k, x->n), k->nv * k->lanes);
    k->kb = k->beside ? 0 : kn_packed_block(k, true);
    if (!l2 || k->p >= 0 || k->padded || !a->linear || !k->kb || kn_packed_all(k) <= l2->capacity_bytes / 2) return false;
    int64_t most = l2->capacity_bytes / 4 / (k->mr * k->kb * a->bytes), blocks = kn_ceil_div(tiles, most < 1 ? 1 : most);
    int64_t step = a->coef[k->q] * a->bytes;
    int few = tiles <= FEW_TILES, cut = !few; /* n is cut into tasks, or the rows are */
    int64_t serves = kn_cpu_short_vectors(x) ? 4 : 8; /* panels for which rows are worth copying */
    if (cut && (step <= KN_CPU_APART || step % SET || panels < serves)) return false;
    int64_t per = few ? kn_ceil_div(panels, x->hw->units) : kn_ceil_div(tiles, kn_round_up(blocks, x->hw->units));
    bool streams = kn_packed_in_streams(k);
    kn_nest w;
    kn_nest_begin(&w, x, plans->a);
    k->panels = true;
    kn_nest_split(&w, x->n, (int64_t[KN_NEST_CUTS]){few ? per : 0, k->nv, k->lanes});
    kn_nest_split(&w, k->q, (int64_t[KN_NEST_CUTS]){cut ? per : 0, k->mr});
    kn_nest_split(&w, k->blocked, (int64_t[KN_NEST_CUTS]){k->kb});
    kn_packed_put_tasks(&w, k);
    kn_nest_task(&w, few ? x->n : k->q);
    kn_nest_bar(&w);
    kn_packed_put_reduction(&w.order, k, true);
    kn_nest_loop(&w, x->n, few);
    kn_nest_loop(&w, k->q, cut);
    kn_packed_put_reduction(&w.order, k, false);
    kn_packed_put_tile(&w, k, cut, few);
    kn_buf *b = &w.copies;
    kn_putf(b, "prepack %s %d", x->name, k->w);
    kn_packed_put_followed(b, k);
    if (few) kn_putf(b, " %s.0", name(k, x->n));
    kn_packed_put_reduction(b, k, true);
    kn_putf(b, " %s.%d", name(k, x->n), few);
    if (streams) kn_putf(b, " %s.%d", name(k, x->n), few + 1);
    kn_packed_put_reduction(b, k, false);
    if (!streams) kn_putf(b, " %s.%d", name(k, x->n), few + 1);
    kn_putf(b, " %s.%d\n", name(k, x->n), few + 2);
    int64_t line = x->hw->levels[x->hw->nlevels - 1].transaction_bytes;
    if (cut) kn_putf(b, "cache_read %s %d scratch %s.0 region pad %lld\n", x->name, k->v, name(k, k->blocked), (long long)(line / a->bytes));
    kn_nest_try(&w, plans);
    return plans->n > 0;
}

/* Rows that go along panels of long sums, which stay in L2 meanwhile; fewer rows leave no time to bring the next panels, which had better stream.
 * Blocks only where the sums are longer than L2 allows, or panels are few. */
static bool try_deep(packed *k, kn_plans *plans)
{
    enum { ROWS = 512 };
    const kn_site *x = k->x;
    kn_cpu_tile t = {.lanes = k->lanes, .blocked = k->blocked};
    if (k->beside || k->p >= 0 || k->padded || k->q != x->m || !x->load[k->v].linear) return false;
    bool few = kn_hw_few_registers(x->hw) && kn_cpu_blocks_along(x, &t); /* with more, panels that lie ready come soon enough from L2 */
    if (!few && extent(k, k->q) < ROWS) return false;
    if (!few) t = (kn_cpu_tile){.lanes = k->lanes};
    bool blocks = !few && kn_cpu_in_one_set(x) && kn_cpu_blocks_of(x, &t); /* a panel's block meets all rows of a task, which are copied */
    if (!few && !blocks) t = (kn_cpu_tile){.lanes = k->lanes};
    if (!few && !blocks && !kn_cpu_deep(x, &t)) return false;
    if (t.kb > 1 && t.blocked != k->blocked) return false;
    int n = x->n, q = k->q;
    kn_nest w;
    kn_nest_begin(&w, x, plans->a);
    k->panels = true;
    k->kb = t.kb > 1 ? t.kb : 0;
    kn_nest_split(&w, n, (int64_t[KN_NEST_CUTS]){t.nc, t.nv, t.lanes});
    kn_nest_split(&w, q, (int64_t[KN_NEST_CUTS]){t.mc, t.mr});
    kn_nest_split(&w, k->blocked, (int64_t[KN_NEST_CUTS]){k->kb});
    kn_packed_put_tasks(&w, k);
    kn_nest_task(&w, q);
    kn_nest_task(&w, n);
    kn_nest_bar(&w);
    if (k->kb) kn_packed_put_reduction(&w.order, k, true);
    kn_nest_loop(&w, blocks ? n : q, 1);
    kn_nest_loop(&w, blocks ? q : n, 1);
    kn_packed_put_reduction(&w.order, k, false);
    kn_nest_bar(&w);
    kn_nest_loop(&w, q, 2);
    kn_nest_loop(&w, n, 2);
    kn_nest_loop(&w, n, 3);
    kn_nest_kind(&w, "unroll", q, 2);
    kn_nest_kind(&w, "unroll", n, 2);
    kn_nest_kind(&w, "vectorize", n, 3);
    kn_buf *b = &w.copies;
    kn_putf(b, "prepack %s %d", x->name, k->w);
    kn_packed_put_followed(b, k);
    kn_putf(b, " %s.0", name(k, n));
    if (k->kb) kn_packed_put_reduction(b, k, true);
    kn_putf(b, " %s.1", name(k, n));
    kn_packed_put_reduction(b, k, false);
    kn_putf(b, " %s.2 %s.3\n", name(k, n), name(k, n));
    if (blocks) kn_cpu_put_row_caches(b, x, &t);
    kn_nest_try(&w, plans);
    return plans->n > 0;
}

bool kn_packed_far(packed *k, kn_plans *plans) { return try_deep(k, plans) || try_blocks(k, plans); }
