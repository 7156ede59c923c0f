/* The picture for people: what bounds the kernel, the levels with their traffic, and a roofline, in text. */
#include "cost/cost.h"
#include <stdio.h>

static void put_fixed(kn_buf *b, double x, const char *unit)
{
    static const char *const scale[] = {"", "K", "M", "G", "T", "P"};
    int s = 0;
    for (; x >= 1000 && s < 5; s++) x /= 1000;
    int64_t tenths = (int64_t)(x * 10 + 0.5);
    char text[48];
    snprintf(text, sizeof text, "%lld.%lld %s%s", (long long)(tenths / 10), (long long)(tenths % 10), scale[s], unit);
    kn_putf(b, "%11s", text);
}

static void bar(kn_buf *b, double share)
{
    int n = share <= 0 ? 0 : share >= 1 ? 24 : (int)(share * 24 + 0.5);
    kn_put(b, " |");
    for (int i = 0; i < 24; i++) kn_put(b, i < n ? "#" : " ");
    kn_put(b, "|");
}

/* Attainable GFLOP/s at intensities 1/4 .. 1024 flop a DRAM byte; '*' marks the kernel's own. */
static void roofline(kn_buf *b, const kn_hw *hw, const kn_cost *c)
{
    double dram = c->levels[0].bytes, own = dram > 0 ? c->flops / dram : 1024, peak = kn_hw_peak_gflops(hw, KN_F32);
    kn_put(b, "\nroofline (flop per DRAM byte, attainable FLOP/s; * this kernel)\n");
    for (double x = 0.25; x <= 1024; x *= 4) {
        double reach = x * hw->levels[0].bandwidth_gbs;
        if (reach > peak) reach = peak;
        bool here = (own >= x || x <= 0.25) && (own < 4 * x || x * 4 > 1024);
        kn_put(b, here ? " *" : "  ");
        put_fixed(b, x, "");
        put_fixed(b, reach * 1e9, "");
        bar(b, reach / peak);
        kn_put(b, "\n");
    }
    kn_put(b, "  this kernel");
    put_fixed(b, c->us > 0 ? c->flops / c->us * 1e6 : 0, "FLOP/s");
    kn_put(b, " at");
    put_fixed(b, own, "flop/B");
    kn_put(b, "\n");
}

void kn_cost_print(kn_buf *b, const kn_tree *t, const kn_hw *hw, const kn_cost *c)
{
    kn_tree_print(b, t);
    kn_putf(b, "\non %s: predicted", hw->name);
    put_fixed(b, c->us, "us");
    kn_putf(b, ", bound by %s\n", c->bottleneck);
    kn_putf(b, "%s %lld, %s %d, %s %d", hw->gpu ? "blocks" : "tasks", (long long)c->grid, hw->gpu ? "threads a block" : "cores",
            hw->gpu ? c->threads : hw->units, hw->gpu ? "registers a thread" : "vector registers", c->registers);
    if (hw->gpu) kn_putf(b, ", shared bytes %lld", (long long)c->shared_bytes);
    kn_putf(b, ", waves %lld, occupancy %d%%\n\n", (long long)c->waves, (int)(c->occupancy * 100 + 0.5));
    kn_put(b, "level          tile      traffic         time  share of the total\n");
    for (int i = 0; i < c->nlevels; i++) {
        kn_putf(b, "%-8s", c->levels[i].name);
        put_fixed(b, (double)c->levels[i].tile_bytes, "B");
        kn_put(b, "  ");
        put_fixed(b, c->levels[i].bytes, "B");
        kn_put(b, "  ");
        put_fixed(b, c->levels[i].us, "us");
        bar(b, c->us > 0 ? c->levels[i].us / c->us : 0);
        kn_put(b, "\n");
    }
    kn_put(b, "compute                ");
    put_fixed(b, c->flops, "flop");
    kn_put(b, " ");
    put_fixed(b, c->compute_us, "us");
    bar(b, c->us > 0 ? c->compute_us / c->us : 0);
    kn_put(b, "\n");
    roofline(b, hw, c);
}
