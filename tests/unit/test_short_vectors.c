/* Plans where vectors are parts of lines and registers are few (AVX2), beside those where they are not. */
#include "tests/unit/run_lowered.c"
#include "tests/unit/statements.h"

/* Few rows read a large operand where it lies, unless its rows fall into the same sets and vectors are narrow. */
static void crowded_rows_are_copied(void **state)
{
    static const struct { const char *id, *inputs; bool copied; } one[] = {{"x86-64-avx2", "a=f32:40x1600&b=f32:1600x1000", false},
                                                                           {"x86-64-avx2", "a=f32:40x1600&b=f32:1600x1024", true},
                                                                           {"x86-64-avx2", "a=f32:40x1600&b=f32:1600x1536", true},
                                                                           {"x86-64-avx2", "a=f32:40x400&b=f32:400x1003", true},
                                                                           {"x86-64-avx2", "a=f32:40x1600&b=f32:1600x1003", false},
                                                                           {"x86-64-avx2", "a=f32:40x1600&b=f32:1600x1021", true}, /* nearly */
                                                                           {"x86-64-avx2", "a=f32:40x700&b=f32:700x4093", true},
                                                                           {"x86-64-avx2", "a=f32:40x1600&b=f32:1600x1365", true}, /* every third */
                                                                           {"x86-64-avx2", "a=f32:64x256&b=f32:256x256", true},
                                                                           {"x86-64-avx2", "a=f32:42x300&b=f32:300x66", false},
                                                                           {"x86-64-avx2", "a=f32:80x300&b=f32:300x66", true},
                                                                           {"x86-64-avx2", "a=f32:64x256&b=f32:256x200", false},
                                                                           {"x86-64-avx512", "a=f32:40x1600&b=f32:1600x1003", false},
                                                                           {"x86-64-avx512", "a=f32:40x1600&b=f32:1600x1024", false},
                                                                           {"x86-64-avx512", "a=f32:40x1600&b=f32:1600x1021", false},
                                                                           {"x86-64-avx2", "a=f32:8x1600&b=f32:1600x1024", false}};
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_program *c;
        kiln_candidates *list = constructed(a, "c[M,N] +=! a[M,K]*b[K,N]", one[i].inputs, device(a, one[i].id), 1, &c);
        if ((strstr(list->c[0].trace.p, "cache_read") != NULL) != one[i].copied)
            fail_msg("%s on %s:\n%s", one[i].inputs, one[i].id, list->c[0].trace.p);
        kiln_arena_close(a);
    }
}

/* The toolchain is asked to write out four iterations of some loop. */
static int64_t written_out(const kn_lprog *l, const kn_ls *s, int64_t with)
{
    (void)l, (void)with;
    return s->kind == KN_LS_FOR && s->unroll == 4;
}

/* Where vectors are parts of lines, rows go along all panels of an operand that is near, so that results' lines are written whole, and large operands
 * stream by a line of each row; where registers are few, the last loop of the sum is written out in part, however long it is. */
static void short_vectors_fill_lines(void **state)
{
    static const struct { const char *id, *inputs, *taken; bool asked, small; } one[] = {
        {"x86-64-avx2", "a=f32:64x64&b=f32:64x64", "| S0.1 S1.1 R0.0 |", true, true},
        {"x86-64-avx2", "a=f32:40x96&b=f32:96x264", "| S0.1 S1.1 R0.0 |", true, true},
        {"x86-64-avx512", "a=f32:64x64&b=f32:64x64", "| S0.1 R0.0 |", false, true},
        {"x86-64-avx512", "a=f32:40x96&b=f32:96x264", "| S0.1 R0.0 |", false, true},
        {"x86-64-avx2", "a=f32:1x4096&b=f32:4096x4096", "unroll out0 R0.0\n", false, false},
        {"x86-64-avx2", "a=f32:1x4096&b=f32:4096x1024", "split out0 S1 16 8 8\n", true, false}, /* L3 holds a part */
        {"x86-64-avx2", "a=f32:128x500&b=f32:500x1001", "split out0 S0 32 4\n", true, false}, /* all registers */
        {"x86-64-avx2", "a=f32:1024x384&b=f32:384x1024", "split out0 S1 10 2 8\n", true, false}, /* more than a few panels in L2 */
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, one[i].id);
        kn_program *c;
        hw->units = 1;
        kiln_candidates *list = constructed(a, "c[M,N] +=! a[M,K]*b[K,N]", one[i].inputs, hw, 1, &c);
        kn_lprog *l = lowered(a, c, hw, list->c[0].trace, one[i].inputs);
        if (!strstr(list->c[0].trace.p, one[i].taken)) fail_msg("%s on %s:\n%s", one[i].inputs, one[i].id, list->c[0].trace.p);
        if ((counted_in(l, l->fns[0].body, written_out, 0) > 0) != one[i].asked) fail_msg("%s on %s", one[i].inputs, one[i].id);
        if (one[i].small) run_checked(a, c, hw, list->c[0].trace, one[i].inputs);
        kiln_arena_close(a);
    }
}

/* Many rows that meet a large operand: blocks whose panel L1 holds meet all rows of a task, rows far apart are copied beside each other, panels are
 * packed in groups, and sums are written out in part however long they are. Where registers are many, it is done otherwise. */
static void rows_meet_blocks(void **state)
{
    static const char product[] = "c[M,N] +=! a[M,K]*b[K,N]", many[] = "c[B,M,N] +=! a[B,M,K]*b[B,K,N]";
    static const char across[] = "c[M,N] +=! a[K,M]*b[K,N]", turned[] = "c[M,N] +=! a[M,K]*b[N,K]";
    static const char places[] = "y[P,Q,F] +=! x[2*P,2*Q,C]*w[C,F] where P in 9, Q in 11";
    static const char two[] = "c[M,N] +=! a[M,J,K]*b[J,K,N]", single[] = "c[B,M,N] +=! a[B,M,K]*b[K,N]";
    static const struct { const char *text, *id, *inputs, *has, *never; int64_t l1, l2; bool asked; } one[] = {
        {product, "x86-64-avx2", "a=f32:128x1000&b=f32:1000x1024", "| R0.0 S1.1 S1.2 S0.1 R0.1 |", "S0.1 S1.1", 0, 0, true},
        {product, "x86-64-avx2", "a=f32:128x1000&b=f32:1000x1024", "scratch R0.0 region pad ", "prepack ", 0, 0, true},
        {product, "x86-64-avx2", "a=f32:128x1000&b=f32:1000x1024", " 3 8\nsplit out0 S0 32 4\n", "prepack ", 0, 0, true}, /* all registers */
        {product, "x86-64-avx2", "a=f32:96x900&b=f32:900x800", " 2 8\nsplit out0 S0 ", "prepack ", 0, 0, true},
        {product, "x86-64-avx2", "a=f32:64x50000&b=f32:50000x1024", " loops S1.2 R0.1 S1.3 S1.4\n", "prepack ", 0, 0, true}, /* a block fits */
        {product, "x86-64-avx2", "a=f32:900x530&b=f32:530x1024", "scratch S1.1 loops S1.2 R0.1 S1.3 S1.4\n", "prepack ", 0, 0, true},
        {product, "x86-64-avx2", "a=f32:600x1024&b=f32:1024x1024:const", "| R0.0 S1.1 S0.1 R0.1 |", "S0.1 S1.1", 0, 0, true}, /* one set of L1 */
        {product, "x86-64-avx2", "a=f32:600x1000&b=f32:1000x1024:const", "prepack ", "region", 0, 0, false},
        {product, "x86-64-avx512", "a=f32:128x1000&b=f32:1000x1024", "reorder ", " S1.2 S0.1", 0, 0, false},
        {product, "x86-64-avx2", "a=f32:101x211&b=f32:211x511", "| R0.0 S1.1 S1.2 S0.1 R0.1 |", "prepack ", 4096, 32768, true},
        {many, "x86-64-avx2", "a=f32:3x101x211&b=f32:3x211x511", "| R0.0 S2.1 S2.2 S1.1 R0.1 |", "prepack ", 4096, 32768, true},
        {places, "x86-64-avx2", "x=f32:17x21x515&w=f32:515x391", " loops F0.1 F0.2 R0.1\n", "prepack ", 8192, 65536, true}, /* no box */
        {product, "x86-64-avx2", "a=f32:107x129&b=f32:129x445", "| R0.0 S1.1 S1.2 S0.1 R0.1 |", "prepack ", 4096, 32768, true},
        {product, "x86-64-avx2", "a=f32:99x1024&b=f32:1024x389", "region pad ", "prepack ", 8192, 65536, true},
        {across, "x86-64-avx2", "a=f32:211x137&b=f32:211x511", "scratch R0.0 loops S0.1 R0.1 S0.2\n", "region", 4096, 32768, true},
        {across, "x86-64-avx2", "a=f32:211x101&b=f32:211x511", "scratch R0.0 loops S0.1 R0.1 S0.2\n", "region", 4096, 32768, true},
        {across, "x86-64-avx2", "a=f32:130x61&b=f32:130x101", "scratch R0.0 loops S0.1 R0.1 S0.2\n", "region", 4096, 65536, true}, /* near */
        {across, "x86-64-avx2", "a=f32:130x61&b=f32:130x67", "reorder ", "scratch R0.0", 4096, 65536, false}, /* few columns */
        {across, "x86-64-avx2", "a=f32:1100x1000&b=f32:1100x44", "scratch R0.0 loops S0.1 R0.1 S0.2\n", "region", 0, 0, true}, /* from memory */
        {across, "x86-64-avx2", "a=f32:1000x500&b=f32:1000x44", "reorder ", "scratch R0.0", 0, 0, false},
        {across, "x86-64-avx2", "a=f32:130x31&b=f32:130x101", "reorder ", "scratch R0.0", 4096, 65536, false}, /* few rows */
        {across, "x86-64-avx2", "a=f32:61x49&b=f32:61x300", "scratch S1.0 loops S0.1 R0.0 S0.2\n", "region", 8192, 131072, true}, /* as it lies */
        {across, "x86-64-avx2", "a=f32:64x49&b=f32:64x320", "scratch S1.0 loops S0.1 R0.0 S0.2\n", "region", 8192, 131072, true},
        {across, "x86-64-avx2", "a=f32:61x33&b=f32:61x400", "scratch R0.0 loops S0.1 R0.1 S0.2\n", "region", 8192, 65536, false}, /* short sums */
        {product, "x86-64-avx2", "a=f32:38x1024&b=f32:1024x1024", "| R0.0 S1.1 S1.2 S0.1 R0.1 |", " 2\nsplit out0 R0 ", 0, 0, true}, /* 3 rows */
        {across, "x86-64-avx2", "a=f32:61x49&b=f32:61x200", "reorder ", "loops S0.1 R0.0", 8192, 131072, false},
        {across, "x86-64-avx512", "a=f32:213x49&b=f32:213x436", "reorder ", "loops S0.1 R0.0", 0, 0, false},
        {across, "x86-64-avx512", "a=f32:512x128&b=f32:512x256", "reorder ", "scratch R0.0", 0, 0, false},
        {turned, "x86-64-avx2", "a=f32:101x600&b=f32:131x600", "| R0.0 S1.1 S0.1 R0.1 |", "S0.0 R0.1", 8192, 65536, false},
        {turned, "x86-64-avx2", "a=f32:101x600&b=f32:131x600", "region pad ", "prepack ", 8192, 65536, false},
        {turned, "x86-64-avx2", "a=f32:101x600&b=f32:131x600:const", "prepack ", "cache_read out0 1 ", 8192, 65536, false},
        {product, "x86-64-avx2", "a=f32:128x2048&b=f32:2048x1000:const", "prepack ", "transform_layout", 0, 0, false},
        {turned, "x86-64-avx2", "a=f32:19x600&b=f32:131x600", "reorder ", "region pad", 8192, 65536, false}, /* few rows, which stay near */
        {turned, "x86-64-avx512", "a=f32:600x600&b=f32:600x600", "reorder ", "region pad", 0, 0, false},
        {product, "x86-64-avx2", "a=f32:77x4097&b=f32:4097x49", "region pad ", "part ", 0, 0, true}, /* a few panels across lines */
        {product, "x86-64-avx2", "a=f32:77x4096&b=f32:4096x49", "\nfuse out0 F0 S0 S1\nsplit parts S1 1 4 2 8\n", "region", 0, 0, true},
        {product, "x86-64-avx2", "a=f32:67x1024&b=f32:1024x45", "| R0.0 S1.1 S1.2 S0.1 R0.1 |", "region", 8192, 65536, true}, /* parts, too */
        {product, "x86-64-avx2", "a=f32:151x520&b=f32:520x101", "region pad ", "part ", 8192, 65536, true}, /* whose results are too many */
        {product, "x86-64-avx2", "a=f32:35x521&b=f32:521x61", "scratch S1.1 loops S1.2 R0.1 S1.3 S1.4\n", "region", 8192, 65536, true},
        {product, "x86-64-avx2", "a=f32:67x521&b=f32:521x45", "region pad ", "prepack ", 8192, 65536, true},
        {product, "x86-64-avx2", "a=f32:116x641&b=f32:641x45", "| S0.1 S1.1 R0.0 |", "region", 0, 0, true}, /* all of them near */
        {product, "x86-64-avx2", "a=f32:35x521&b=f32:521x45", "reorder ", "cache_read", 8192, 65536, false}, /* most of a group */
        {product, "x86-64-avx2", "a=f32:72x521&b=f32:521x30", "scratch S1.1 loops S1.2 R0.1 S1.3 S1.4\n", "prepack ", 8192, 65536, true},
        {product, "x86-64-avx2", "a=f32:77x4096&b=f32:4096x48", "reorder ", "region", 0, 0, false}, /* their rows begin with vectors */
        {product, "x86-64-avx2", "a=f32:205x1024&b=f32:1024x131:const", "region pad ", "S0.1 S1.1", 8192, 65536, true},
        {two, "x86-64-avx2", "a=f32:60x12x48&b=f32:12x48x64", "scratch F0.0 loops S0.1 S0.2 F0.1\n", "region", 8192, 65536, true}, /* no box */
        /* a few panels of a long sum lie side by side in blocks, and rows that L2 has no room for are read once; not few rows, nor a panel alone */
        {product, "x86-64-avx2", "a=f32:70x520&b=f32:520x40", "| R0.0 S0.1 S1.1 R0.1 |", "region", 8192, 65536, false},
        {product, "x86-64-avx2", "a=f32:131x2048&b=f32:2048x40", "scratch R0.0 loops S1.1 R0.1 S1.2 S1.3\n", "region", 0, 0, false},
        {product, "x86-64-avx2", "a=f32:70x520&b=f32:520x40:const", " S1.0 R0.0 S1.1 R0.1 S1.2 S1.3\n", "cache_read", 8192, 65536, false},
        {product, "x86-64-avx2", "a=f32:70x523&b=f32:523x48", " 2 8\nsplit out0 S0 ", " 3 8\n", 8192, 65536, true}, /* a block ends early */
        {product, "x86-64-avx2", "a=f32:40x520&b=f32:520x40", "reorder ", "R0.0 S0.1 S1.1 R0.1", 8192, 65536, false},
        {product, "x86-64-avx2", "a=f32:70x520&b=f32:520x24", "reorder ", "S1.1 R0.1 |", 8192, 65536, false},
        {single, "x86-64-avx2", "a=f32:32x1x64&b=f32:64x64", "reorder ", "reindex", 8192, 65536, false}, /* nor a window */
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, one[i].id);
        kn_program *c;
        for (int l = 0; l < hw->nlevels && one[i].l1; l++) {
            if (!strcmp(hw->levels[l].name, "l1")) hw->levels[l].capacity_bytes = one[i].l1;
            if (!strcmp(hw->levels[l].name, "l2")) hw->levels[l].capacity_bytes = one[i].l2;
        }
        kiln_bytes trace = constructed(a, one[i].text, one[i].inputs, hw, 1, &c)->c[0].trace;
        if (!strstr(trace.p, one[i].has) || strstr(trace.p, one[i].never)) fail_msg("%s on %s:\n%s", one[i].inputs, one[i].id, trace.p);
        kn_lprog *l = lowered(a, c, hw, trace, one[i].inputs);
        bool some = counted(l, written_out, 0) > 0;
        if (one[i].asked && !some) fail_msg("%s on %s:\n%s", one[i].inputs, one[i].id, trace.p);
        if (one[i].l1) run_checked(a, c, hw, trace, one[i].inputs);
        kiln_arena_close(a);
    }
}

/* Short sums of an operand that runs along them, whose results go past L3 in long rows: rows go along panels that are turned beside each other. Not
 * of long sums, unless rows lie across them; nor where several rows of results share a page, L3 holds them, or vectors are lines. */
static void results_go_past_caches(void **state)
{
    static const char turned[] = "c[M,N] +=! a[M,K]*b[N,K]", both[] = "c[M,N] +=! a[K,M]*b[N,K]";
    static const struct { const char *text, *id, *inputs; bool along; } one[] = {
        {turned, "x86-64-avx2", "a=f32:61x9&b=f32:781x9", true},
        {turned, "x86-64-avx2", "a=f32:61x3&b=f32:781x3", true},
        {both, "x86-64-avx2", "a=f32:9x61&b=f32:781x9", true},
        {both, "x86-64-avx2", "a=f32:37x61&b=f32:781x37", true},
        {turned, "x86-64-avx2", "a=f32:61x37&b=f32:781x37", false},
        {turned, "x86-64-avx2", "a=f32:61x9&b=f32:381x9", false},
        {turned, "x86-64-avx2", "a=f32:11x9&b=f32:781x9", false},
        {turned, "x86-64-avx2", "a=f32:61x9&b=f32:781x9:const", false},
        {turned, "x86-64-avx512", "a=f32:61x9&b=f32:781x9", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, one[i].id);
        kn_program *c;
        for (int l = 0; l < hw->nlevels; l++) {
            if (!strcmp(hw->levels[l].name, "l2")) hw->levels[l].capacity_bytes = 65536;
            if (!strcmp(hw->levels[l].name, "l3")) hw->levels[l].capacity_bytes = 131072;
        }
        kiln_bytes trace = constructed(a, one[i].text, one[i].inputs, hw, 1, &c)->c[0].trace;
        bool along = strstr(trace.p, "| S0.1 S1.1 R0.0 |") && strstr(trace.p, " scratch S1.0 loops S1.1 R0.0 S1.2 S1.3\n");
        if (along != one[i].along) fail_msg("%s on %s:\n%s", one[i].inputs, one[i].id, trace.p);
        run_checked(a, c, hw, trace, one[i].inputs);
        kiln_arena_close(a);
    }
}

/* Few rows that run along the sum, as the other operand does, which is too near or met too seldom to be turned: where registers are few, 3 rows by 4
 * columns or 4 by 3, the fewer of them in the inner loop. */
static void few_rows_go_along_sums(void **state)
{
    static const struct { const char *id, *inputs, *has; bool tails; } one[] = {
        {"x86-64-avx2", "a=f32:8x473&b=f32:366x473", "| S0.2 S1.1 R0.1 R0.2\n", false},
        {"x86-64-avx2", "a=f32:8x473&b=f32:366x473", "split out0 S1 3\nsplit out0 S0 2 4\n", false},
        {"x86-64-avx2", "a=f32:5x500&b=f32:1000x500", "| S1.1 S0.2 R0.1 R0.2\n", false},
        {"x86-64-avx2", "a=f32:5x500&b=f32:1000x500", "split out0 S1 4\nsplit out0 S0 2 3\n", false},
        {"x86-64-avx2", "a=f32:6x213&b=f32:31x213", "split out0 S1 4\nsplit out0 S0 ", true},
        {"x86-64-avx2", "a=f32:8x213&b=f32:31x213", "split out0 S1 3\nsplit out0 S0 ", true},
        {"x86-64-avx2", "a=f32:21x153&b=f32:509x153", " scratch S1.0 loops R0.0 S1.1 S1.2\n", false}, /* worth turning */
        {"x86-64-avx2", "a=f32:131x213&b=f32:9x213", "split out0 S1 3\nsplit out0 S0 ", true}, /* few columns */
        {"x86-64-avx2", "a=f32:131x213&b=f32:9x213", "| S0.2 S1.1 R0.1 R0.2\n", true},
        {"x86-64-avx2", "a=f32:131x213&b=f32:19x213", " loops R0.1 S1.1 S1.2\n", true},
        {"x86-64-avx2", "a=f32:531x213&b=f32:9x213", "vectorize out0 S1.2\n", false}, /* rows are tasks, of two vectors each */
        {"x86-64-avx512", "a=f32:8x473&b=f32:366x473", "split out0 S1 4\n", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        opened o = first_of(one[i].id, "c[M,N] +=! a[M,K]*b[N,K]", one[i].inputs);
        if (!strstr(o.trace.p, one[i].has)) fail_msg("%s on %s:\n%s", one[i].inputs, one[i].id, o.trace.p);
        if (one[i].tails) run_checked(o.a, o.p, o.hw, o.trace, one[i].inputs);
        kiln_arena_close(o.a);
    }
}

/* Columns that are one panel which ends inside of a vector: half of L2 holds a copy of all of them, and the sum has no blocks. Not of rows that lie
 * across the sum, of columns that fill vectors, nor of sums longer than that. */
static void few_columns_are_copied_whole(void **state)
{
    static const char product[] = "c[M,N] +=! a[M,K]*b[K,N]", across[] = "c[M,N] +=! a[K,M]*b[K,N]";
    static const struct { const char *text, *inputs; bool whole; } one[] = {
        {product, "a=f32:178x413&b=f32:413x13", true},
        {product, "a=f32:200x301&b=f32:301x20", true},
        {product, "a=f32:178x413&b=f32:413x16", false},
        {product, "a=f32:178x813&b=f32:813x13", false},
        {across, "a=f32:413x178&b=f32:413x13", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, "x86-64-avx2");
        kn_program *c;
        for (int l = 0; l < hw->nlevels; l++) {
            if (!strcmp(hw->levels[l].name, "l1")) hw->levels[l].capacity_bytes = 8192;
            if (!strcmp(hw->levels[l].name, "l2")) hw->levels[l].capacity_bytes = 65536;
        }
        kiln_bytes trace = constructed(a, one[i].text, one[i].inputs, hw, 1, &c)->c[0].trace;
        if (!strstr(trace.p, " scratch S1.0 loops R0.0 S1.1 S1.2\n") != !one[i].whole) fail_msg("%s:\n%s", one[i].inputs, trace.p);
        run_checked(a, c, hw, trace, one[i].inputs);
        kiln_arena_close(a);
    }
}

/* What a register tile reads of a few rows that lie beside each other, fewer than a vector has lanes, is copied in two shorter vectors. */
static void short_runs_are_vectors(void **state)
{
    static const struct { const char *trace; int vectors; } one[] = {
        {"split out0 S0 5\nreorder out0 S0.0 | R0.0 | S0.1 S1.0\ncache_read out0 1 scratch S0.0 loops R0.0 S0.1\n", 2},
        {"split out0 S0 6\nreorder out0 S0.0 | R0.0 | S0.1 S1.0\ncache_read out0 1 scratch S0.0 loops R0.0 S0.1\n", 2},
        {"split out0 S0 3\nreorder out0 S0.0 | R0.0 | S0.1 S1.0\ncache_read out0 1 scratch S0.0 loops R0.0 S0.1\n", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        static const char inputs[] = "a=f32:7x30&b=f32:7x9";
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, "x86-64-avx2");
        kn_program *c;
        kiln_bytes trace = {one[i].trace, strlen(one[i].trace)};
        constructed(a, "c[M,N] +=! a[K,M]*b[K,N]", inputs, hw, 1, &c);
        kn_lprog *l = lowered(a, c, hw, trace, inputs);
        if (counted_in(l, l->fns[0].body, stores_of, 4) != one[i].vectors) fail_msg("%s", one[i].trace);
        run_checked(a, c, hw, trace, inputs);
        kiln_arena_close(a);
    }
}

/* Lines that are asked for beside a loop that computes in registers. */
static int64_t asks_beside(const kn_lprog *l, const kn_ls *s, int64_t with)
{
    const kn_ls *b = s->kind == KN_LS_FOR ? s->body : NULL;
    (void)l, (void)with;
    return b && b->kind == KN_LS_FOR && b->body->kind == KN_LS_PREFETCH && b->next && b->next->kind == KN_LS_FOR && !b->next->next;
}

/* With few registers many lines of the next block, which a tile is to ask for, are asked for while its sum runs. */
static void lines_are_spread(void **state)
{
    static const struct { const char *id, *inputs; bool spread; } one[] = {
        {"x86-64-avx2", "a=f32:30x240&b=f32:240x256", true},
        {"x86-64-avx512", "a=f32:30x240&b=f32:240x256", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, one[i].id);
        kn_program *c;
        hw->units = 1;
        for (int l = 0; l < hw->nlevels; l++) {
            if (!strcmp(hw->levels[l].name, "l1")) hw->levels[l].capacity_bytes = 16384;
            if (!strcmp(hw->levels[l].name, "l2")) hw->levels[l].capacity_bytes = 65536;
        }
        kiln_bytes trace = constructed(a, "c[M,N] +=! a[M,K]*b[K,N]", one[i].inputs, hw, 1, &c)->c[0].trace;
        kn_lprog *l = lowered(a, c, hw, trace, one[i].inputs);
        bool spread = counted_in(l, l->fns[l->nfns - 1].body, asks_beside, 0) > 0;
        if (spread != one[i].spread) fail_msg("%s on %s:\n%s", one[i].inputs, one[i].id, trace.p);
        if (one[i].spread) run_checked(a, c, hw, trace, one[i].inputs);
        kiln_arena_close(a);
    }
}

/* Halves that become floats for rows which go along all columns do so a group of rows at a time; what is ragged would go element by element there. */
static void rows_are_widened_in_turn(void **state)
{
    static const struct { const char *inputs; bool in_turn; } one[] = {
        {"a=bf16:300x128&b=bf16:128x64", true},
        {"a=f16:300x128&b=f16:128x64", true},
        {"a=bf16:300x128&b=bf16:128x60", false}, /* columns */
        {"a=bf16:306x124&b=bf16:124x64", false}, /* the map's rows */
        {"a=bf16:303x128&b=bf16:128x64", false}, /* rows */
        {"a=bf16:102x128&b=bf16:128x64", false}, /* L2 holds them all */
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, "x86-64-avx2");
        kn_program *c;
        resize(hw, "l2", 131072);
        kiln_bytes trace = constructed(a, "c[M,N] +=! cast(a[M,K],f32)*cast(b[K,N],f32)", one[i].inputs, hw, 1, &c)->c[0].trace;
        bool in_turn = strstr(trace.p, "\ncompute_at wide") && strstr(trace.p, " out0 S0.1\n");
        if (in_turn != one[i].in_turn) fail_msg("%s:\n%s", one[i].inputs, trace.p);
        if (in_turn) run_checked(a, c, hw, trace, one[i].inputs);
        kiln_arena_close(a);
    }
}

/* Columns whose rows the cores would cut into a few pages are summed in parts of whole rows, and so are their products with one row. */
static void columns_go_in_parts(void **state)
{
    static const char sum[] = "y[J] +=! x[I,J]", product[] = "c[M,N] +=! a[M,K]*b[K,N]";
    static const struct { const char *text, *id, *inputs, *has; bool small; } one[] = {
        {sum, "x86-64-avx2", "x=f32:4096x1024", "split parts S0 16 8 8\nsplit parts R0 256\n", false}, /* rows far apart */
        {sum, "x86-64-avx2", "x=f32:6000x1000", "split parts S0 16 8 8\n", false},
        {sum, "x86-64-avx2", "x=f32:2048x2048", "split parts S0 32 8 8\n", false},
        {sum, "x86-64-avx2", "x=f32:1241x674", "split parts S0 11 8 8\nsplit parts R0 10\n", true}, /* 17 of 73 rows */
        {sum, "x86-64-avx2", "x=f32:1419x935", "split parts S0 15 8 8\nsplit parts R0 17\n", false}, /* 11, not 3, for two cores */
        {sum, "x86-64-avx2", "x=f32:1237x674", "split parts S0 11 8 8\n", false}, /* a prime */
        {sum, "x86-64-avx2", "x=f32:4099x13", "split parts S0 2 8\n", true},
        {sum, "x86-64-avx2", "x=f32:512x8192", "split out0 S0 64 8 8\n", false},
        {sum, "x86-64-avx2", "x=f32:200x1024", "split out0 S0", false},
        {sum, "x86-64-avx512", "x=f32:4096x1024", "split parts S0 8 8 16\n", false},
        {sum, "x86-64-avx512", "x=f32:1237x674", "split parts S0 6 8 16\n", true},
        {"y[J] >=! x[I,J]", "x86-64-avx512", "x=f32:3000x1500", "split parts S0 12 8 16\n", false},
        {sum, "x86-64-avx512", "x=f32:512x8192", "split out0 S0", false},
        {product, "x86-64-avx2", "a=f32:1x300&b=f32:300x1001", "split parts S1 32 4 8\nsplit parts R0 4\n", true}, /* of 150 terms */
        {product, "x86-64-avx2", "a=f32:1x304&b=f32:304x1001", " | R0.1 S1.1 R0.0 | ", true},
        {product, "x86-64-avx2", "a=f32:1x2048&b=f32:2048x2048", "split parts S1 32 8 8\nsplit parts R0 8\n", false}, /* L3 holds a part */
        {product, "x86-64-avx2", "a=f32:1x4096&b=f32:4096x4096", "split parts S1 256 2 8\nsplit parts R0 256\n", false},
        {product, "x86-64-avx2", "a=f32:1x1024&b=f32:1024x8192", "split out0 S1", false},
        {product, "x86-64-avx512", "a=f32:1x300&b=f32:300x1001", "split out0 S1", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        opened o = first_of(one[i].id, one[i].text, one[i].inputs);
        const char *trace = o.trace.p;
        bool parts = strstr(trace, "part out0"), wanted = !strstr(one[i].has, "out0");
        if (parts != wanted || !strstr(trace, one[i].has)) fail_msg("%s of %s: no '%s' in\n%s", one[i].inputs, one[i].id, one[i].has, trace);
        if (one[i].small) run_checked(o.a, o.p, o.hw, o.trace, one[i].inputs);
        kiln_arena_close(o.a);
    }
}

#define SCAN(places, blocks, all) "p[I,S,C] +=! select(R <= S%16, pad(x,0.0)[I,S//16*16+R,C], 0.0) where S in " places ", R in 16; " \
    "b[I,B,C] +=! pad(x,0.0)[I,B*16+R,C] where B in " blocks ", R in 16; q[I,B,C] +=! select(R < B, b[I,R,C], 0.0) where B in " blocks ", R in " \
    blocks "; y[I,S,C] = p[I,S,C] + q[I,S//16,C] where S in " all

/* All stages of prefix sums in blocks go under the loops of the last one over a few columns where they hand each other as much as they read, if half
 * of L2 holds that and there are tasks enough; not where blocks leave no places over, and the last stage is one with the sums inside of blocks. */
static void prefix_sums_go_by_columns(void **state)
{
    static const struct { const char *text, *inputs, *has, *id; bool small; } one[] = {
        {SCAN("64", "4", "59"), "x=f32:3x59x40", "split out0 S2 5 8\n", "x86-64-avx2", true},
        {SCAN("64", "4", "59"), "x=f32:2x59x43", "split out0 S2 6 8\n", "x86-64-avx2", true},
        {SCAN("64", "4", "59"), "x=f32:8x59x200", "split out0 S2 7 16\n", "x86-64-avx512", false},
        {SCAN("64", "4", "59"), "x=f32:1x59x8", NULL, "x86-64-avx2", false}, /* one task */
        {SCAN("64", "4", "64"), "x=f32:3x64x40", NULL, "x86-64-avx2", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        opened o = first_of(one[i].id, one[i].text, one[i].inputs);
        const char *trace = o.trace.p;
        bool together = strstr(trace, "compute_at t0 out0 ") && strstr(trace, "compute_at t1 out0 ") && strstr(trace, "compute_at t2 out0 ");
        if (together != (one[i].has != NULL)) fail_msg("%s: stages are%s together\n%s", one[i].inputs, together ? "" : " not", trace);
        if (together && !strstr(trace, one[i].has)) fail_msg("%s: no '%s' in\n%s", one[i].inputs, one[i].has, trace);
        if (one[i].small) run_checked(o.a, o.p, o.hw, o.trace, one[i].inputs);
        kiln_arena_close(o.a);
    }
}

/* Results of short rows go by as many vectors as leave least for the last ones, which are moved back. */
static void rows_go_by_what_leaves_least(void **state)
{
    static const char text[] = "m[I] >=! x[I,J]; e[I,J] = exp(x[I,J]-m[I]); s[I] +=! e[I,J]; y[I,J] = e[I,J]/s[I]";
    static const struct { const char *inputs, *has; } one[] = {
        {"x=f32:300x200", "split out0 S1 5 8\n"}, {"x=f32:300x197", "split out0 S1 5 8\n"}, {"x=f32:300x256", "split out0 S1 4 8\n"},
        {"x=f32:300x137", "split out0 S1 6 8\n"}, {"x=f32:300x208", "split out0 S1 4 8\n"}, /* whole lines */
        {"x=f32:300x1021", "split out0 S1 4 8\n"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        opened o = first_of("x86-64-avx2", text, one[i].inputs);
        if (!strstr(o.trace.p, one[i].has)) fail_msg("%s: no '%s' in\n%s", one[i].inputs, one[i].has, o.trace.p);
        if (!i) run_checked(o.a, o.p, o.hw, o.trace, one[i].inputs);
        kiln_arena_close(o.a);
    }
}

/* Some dozen rows are worth a packed operand, and panels of a constant have all terms where L2 holds them. */
static void some_rows_are_worth_packing(void **state)
{
    static const struct { const char *text, *inputs, *has, *never; } one[] = {
        {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:160x300&b=f32:300x1000", "cache_read ", "prepack "},
        {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:48x300&b=f32:300x1000", "reorder ", "cache_read "},
        {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:196x1024&b=f32:1024x256:const", "prepack ", "split out0 R0 "},
        {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:512x77&b=f32:77x77", "split out0 S1 2 8\n", "split out0 S1 1 8\n"}, /* as many loads as multiply-adds */
        {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:256x5&b=f32:5x1536", "split out0 S1 2 8\n", "split out0 S1 1 8\n"},
        {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:512x1500&b=f32:1500x24", "split out0 S1 3 8\n", "cache_read "}, /* all columns in one tile */
        {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:512x1500&b=f32:1500x21", "split out0 S1 3 8\n", "prepack "},
        {"c[B,M,N] +=! a[B,M,K]*b[B,K,N]", "a=f32:96x49x32&b=f32:96x32x49", "split out0 S2 2 8\n", "split out0 S2 1 8\n"},
        {"y[N,F,P,Q] +=! x[N,C,P*2+R,Q*2+S]*w[F,C,R,S] where P in 49, Q in 49", "x=f32:1x3x99x99&w=f32:96x3x3x3",
         "split out0 S3 2 8\nsplit out0 S1 6\n", "flatten_window "}, /* written out, with a register left */
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_program *c;
        const char *trace = constructed(a, one[i].text, one[i].inputs, device(a, "x86-64-avx2"), 1, &c)->c[0].trace.p;
        if (!strstr(trace, one[i].has) || strstr(trace, one[i].never)) fail_msg("%s %s\n%s", one[i].text, one[i].inputs, trace);
        kiln_arena_close(a);
    }
}

/* Registers that one statement adds element by element. */
static int64_t by_elements(const kn_lprog *l, const kn_ls *s, int64_t with)
{
    return stores_in_registers(l, s, with) && s->value->lanes <= 1;
}

/* Which elements of windows are their extremum, and what these get of each: whole rows that registers hold with their padding are compared as they
 * lie, padded copies of several tensors go under the window's own loops; all in vectors, as is what compares a box with something that is none. */
static void extrema_are_found_in_vectors(void **state)
{
    static const char ties[] = "t[N,P,Q] +=! select(pad(x,-1.0)[N,P*2+R-1,Q*2+S-1] == m[N,P,Q], 1.0, 0.0) where R in 3, S in 3";
    static const struct { const char *text, *inputs, *trace, *has, *never; } one[] = {
        {ties, "x=f32:3x28x28&m=f32:3x14x14", NULL, "unroll out0 R1.0\n", "cache_read"},
        {ties, "x=f32:3x37x37&m=f32:3x19x19", NULL, "unroll out0 R1.0\n", "cache_read"},
        {ties, "x=f32:3x28x28&m=f32:3x14x14",
         "split out0 S2 2 8\nreorder out0 S0.0 S1.0 S2.0 | R0.0 R1.0 | S2.1 S2.2\nunroll out0 S2.1\nvectorize out0 S2.2\n"
         "cache_read out0 0 scratch S2.0 region", "region", "decompose"},
        {"d[N,P,Q] +=! select(x[N,P,Q] == pad(m,0.0)[N,P-R+1,Q-S+1], pad(g,0.0)[N,P-R+1,Q-S+1], 0.0) where R in 3, S in 3",
         "x=f32:3x20x21&m=f32:3x20x21&g=f32:3x20x21", NULL, "compute_at plane1 out0 S0.0", "cache_read"},
        {"d[B,C,P,Q] +=! select(x[B,C,P,Q] == pad(m,0.0)[B,C,P-R+1,Q-S+1], pad(g,0.0)[B,C,P-R+1,Q-S+1], 0.0) where R in 3, S in 3",
         "x=f32:2x3x20x21&m=f32:2x3x20x21&g=f32:2x3x20x21", NULL, "compute_at plane0 out0 S1.0", "fuse"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        opened o = first_of("x86-64-avx2", one[i].text, one[i].inputs);
        if (one[i].trace) o.trace = text_of(one[i].trace);
        if (!strstr(o.trace.p, one[i].has) || strstr(o.trace.p, one[i].never)) fail_msg("%s %s\n%s", one[i].text, one[i].inputs, o.trace.p);
        kn_lprog *l = lowered(o.a, o.p, o.hw, o.trace, one[i].inputs);
        if (counted(l, by_elements, 0)) fail_msg("%s %s: elements\n%s", one[i].text, one[i].inputs, o.trace.p);
        run_checked(o.a, o.p, o.hw, o.trace, one[i].inputs);
        kiln_arena_close(o.a);
    }
}

/* Rows whose elements come from places with quotients of their numbers are written out whole, where these are known, and picked from vectors. */
static void places_of_whole_rows_are_picked(void **state)
{
    static const struct { const char *text, *inputs, *has; } one[] = {
        {"y[S,C] = x[S,(C*55)//111] where C in 112", "x=f32:9x56", "split out0 S1 14 8\n"},
        {"y[S,C] = x[S,min((C*24)//49+1,24)]*w[C] + x[S,(C*24)//49] where C in 50", "x=f32:9x25&w=f32:50", "split out0 S1 7 8\n"},
        {"t[S,C] = x[(S*9)//19,C]*2.0 + x[min((S*9)//19+1,9),C] where S in 20; y[S,C] = t[S,(C*37)//75] + t[S,min((C*37)//75+1,37)] where C in 76",
         "x=f32:10x38", "split out0 S1 10 8\n"},
        {"y[S,C] = x[S,(C+97)%100] where C in 106", "x=f32:7x100", "split out0 S1 14 8\n"},
        {"y[S,C] = x[S,(C*55)//111] where C in 1112", "x=f32:9x556", "split out0 S1 "}, /* too long */
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        opened o = first_of("x86-64-avx2", one[i].text, one[i].inputs);
        kiln_bytes source, header;
        kiln_diag d = {0};
        if (!strstr(o.trace.p, one[i].has)) fail_msg("%s\n%s", one[i].text, o.trace.p);
        kn_lprog *l = lowered(o.a, o.p, o.hw, o.trace, one[i].text);
        assert_int_equal(kn_language_find("c")->print(o.a, l, "kiln_test", &source, &header, &d), KILN_OK);
        bool each = strstr(source.p, "(f32x8){x") || strstr(source.p, "(f32x8){in") || strstr(source.p, "(f32x8){region");
        if (each && i != 4) fail_msg("%s\n%s", one[i].text, o.trace.p);
        run_checked(o.a, o.p, o.hw, o.trace, one[i].text);
        kiln_arena_close(o.a);
    }
}

static int64_t asked_for(const kn_lprog *l, const kn_ls *s, int64_t role)
{
    const kn_buffer *b = s->kind == KN_LS_PREFETCH ? &l->buffers[s->buffer] : NULL;
    return b && b->scope == KN_GLOBAL && (int)l->program->tensors[b->slot].role == role;
}

/* What is added to a tile's sums is asked for before they are summed, line by line, and the lines that they go to; those alone are not. */
static void added_rows_are_asked_for(void **state)
{
    static const struct { const char *text, *inputs; bool asked; } one[] = {
        {"t[M,N] +=! a[M,K]*b[K,N]; c[M,N] = max(t[M,N]*s[N] + r[M,N], 0.0)", "a=f32:1000x64&b=f32:64x256&s=f32:256&r=f32:1000x256", true},
        {"t[M,N] +=! a[M,K]*b[K,N]; c[M,N] = max(t[M,N]*s[N], 0.0)", "a=f32:1000x64&b=f32:64x256&s=f32:256", false},
        {"t[M,N] +=! a[M,K]*b[K,N]; c[M,N] = max(t[M,N]*s[N] + r[M,N], 0.0)", "a=f32:100x64&b=f32:64x256&s=f32:256&r=f32:100x256", false}};
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        opened o = first_of("x86-64-avx2", one[i].text, one[i].inputs);
        kn_lprog *l = lowered(o.a, o.p, o.hw, o.trace, one[i].inputs);
        int64_t in = counted(l, asked_for, KN_INPUT), out = counted(l, asked_for, KN_OUTPUT);
        if ((in > 0) != one[i].asked || (out > 0) != one[i].asked) fail_msg("%zu: %lld and %lld lines asked for", i, (long long)in, (long long)out);
        if (one[i].asked) run_checked(o.a, o.p, o.hw, o.trace, one[i].inputs);
        kiln_arena_close(o.a);
    }
}

/* Where results of short sums go is asked for some tiles before, if that is as far away as memory, and no set of L1 would have all of it. One line
 * may be asked for by what is stored in one run. */
static void far_results_are_asked_for(void **state)
{
    static const char last[] = "y[P,Q,F] +=! x[P+R,Q+S,C]*w[R,S,C,F] where P in 20, Q in 20";
    static const struct { const char *id, *text, *inputs; int64_t l3; bool asked; } one[] = {
        {"x86-64-avx2", last, "x=f32:21x21x3&w=f32:2x2x3x64", 65536, true},
        {"x86-64-avx2", last, "x=f32:21x21x3&w=f32:2x2x3x64", 262144, false},
        {"x86-64-avx2", last, "x=f32:21x21x200&w=f32:2x2x200x64", 65536, false},
        {"x86-64-avx512", last, "x=f32:21x21x3&w=f32:2x2x3x64", 65536, false},
        {"x86-64-avx2", "y[F,P,Q] +=! x[C,P+R,Q+S]*w[F,C,R,S] where P in 30, Q in 31", "x=f32:3x32x33&w=f32:24x3x3x3", 65536, true},
        {"x86-64-avx2", "y[F,P,Q] +=! x[C,P+R,Q+S]*w[F,C,R,S] where P in 32, Q in 32", "x=f32:3x34x34&w=f32:24x3x3x3", 65536, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, one[i].id);
        kn_program *c;
        for (int l = 0; l < hw->nlevels; l++) {
            if (!strcmp(hw->levels[l].name, "l3")) hw->levels[l].capacity_bytes = one[i].l3;
            if (!strcmp(hw->levels[l].name, "l2")) hw->levels[l].capacity_bytes = 65536;
        }
        kiln_bytes trace = constructed(a, one[i].text, one[i].inputs, hw, 1, &c)->c[0].trace;
        kn_lprog *l = lowered(a, c, hw, trace, one[i].inputs);
        int64_t out = counted(l, asked_for, KN_OUTPUT);
        if ((out > 1) != one[i].asked) fail_msg("%zu: %lld lines asked for\n%s", i, (long long)out, trace.p);
        if (one[i].asked) run_checked(a, c, hw, trace, one[i].inputs);
        kiln_arena_close(a);
    }
}

/* Weights that are no constant, whose rows are pages apart: a task packs several panels of short vectors at a time, in runs of whole lines. */
static void panels_are_packed_together(void **state)
{
    static const char text[] = "y[N,P,Q,F] +=! pad(x,0.0)[N,P+R-1,Q+S-1,C]*w[R,S,C,F] where P in 7, Q in 7";
    static const struct { const char *id, *inputs; bool grouped; } one[] = {
        {"x86-64-avx2", "x=f32:1x7x7x24&w=f32:3x3x24x260", true},
        {"x86-64-avx2", "x=f32:1x7x7x24&w=f32:3x3x24x200", false}, /* rows of less than a quarter of a page */
        {"x86-64-avx512", "x=f32:1x7x7x24&w=f32:3x3x24x260", false}};
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, one[i].id);
        kn_program *c;
        hw->units = 2;
        resize(hw, "l2", 128 << 10);
        kiln_bytes trace = constructed(a, text, one[i].inputs, hw, 1, &c)->c[0].trace;
        const char *split = strstr(trace.p, "split out0 S3 ");
        int parts = 0;
        for (const char *p = split ? split + 13 : ""; *p && *p != '\n'; p++) parts += *p == ' ';
        if ((parts == 3) != one[i].grouped) fail_msg("%s on %s:\n%s", one[i].inputs, one[i].id, trace.p);
        run_checked(a, c, hw, trace, one[i].inputs);
        kiln_arena_close(a);
    }
}

/* Weights of a window that are no constant are packed block by block, with few registers in blocks of one length. */
static void blocks_have_one_length(void **state)
{
    static const struct { int channels, image, taps; int64_t block; } one[] = {{512, 7, 3, 128}, {360, 10, 3, 216}, {400, 7, 3, 150}};
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        int c = one[i].channels, n = one[i].image, r = one[i].taps;
        kn_program *p;
        const char *text = kn_format(a, "y[P,Q,F] +=! pad(x,0.0)[P+R-%d,Q+S-%d,C]*w[R,S,C,F] where P in %d, Q in %d", r / 2, r / 2, n, n);
        const char *inputs = kn_format(a, "x=f32:%dx%dx%d&w=f32:%dx%dx%dx192", n, n, c, r, r, c);
        kiln_candidates *list = constructed(a, text, inputs, device(a, "x86-64-avx2"), 1, &p);
        const char *at = strstr(list->c[0].trace.p, "split out0 F0 ");
        if (!at || atoll(at + strlen("split out0 F0 ")) != one[i].block) fail_msg("%zu: %s", i, list->c[0].trace.p);
        kiln_arena_close(a);
    }
}

/* Weights of a window that are no constant and that L2 does not hold: every block that is packed meets all images whose partial sums stay near, and
 * where the results have a single panel, bands of rows pack it, each for itself. */
static void packed_blocks_meet_all_images(void **state)
{
    static const struct { const char *id; int images, side, channels, results; bool packed, together; } one[] = {
        {"x86-64-avx2", 4, 5, 24, 64, true, true}, {"x86-64-avx512", 2, 5, 24, 96, true, true},
        {"x86-64-avx2", 8, 7, 24, 64, true, false}, {"x86-64-avx2", 1, 16, 64, 20, true, false}, {"x86-64-avx2", 1, 12, 64, 20, false, false}};
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        int n = one[i].images, s = one[i].side, c = one[i].channels, f = one[i].results;
        kn_hw *hw = device(a, one[i].id);
        kn_program *p;
        resize(hw, "l2", 65536);
        const char *text = kn_format(a, "y[N,P,Q,F] +=! pad(x,0.0)[N,P+R-1,Q+S-1,C]*w[R,S,C,F] where P in %d, Q in %d", s, s);
        const char *inputs = kn_format(a, "x=f32:%dx%dx%dx%d&w=f32:3x3x%dx%d", n, s, s, c, c, f);
        kiln_candidates *list = constructed(a, text, inputs, hw, 1, &p);
        const char *trace = list->c[0].trace.p;
        bool packed = strstr(trace, "cache_read out0 0 scratch") && !strstr(trace, "flatten"), images = strstr(trace, "parallel out0 S0.0");
        if (packed != one[i].packed || (n > 1 && images == one[i].together)) fail_msg("%zu:\n%s", i, trace);
        if (one[i].together || n == 1) run_checked(a, p, hw, list->c[0].trace, inputs);
        kiln_arena_close(a);
    }
}

/* Rows that write temporaries as long as themselves are taken one by one from L3, too, unless there are fewer of them than cores; those that write a
 * number each only as long as L2 holds them, and what L3 does not hold goes stage by stage. */
static void rows_that_are_written_stay_near(void **state)
{
    static const char kept[] = "m[A] >=! x[A,I]; e[A,I] = exp(x[A,I] - m[A]); s[A] +=! e[A,I]; y[A,I] = e[A,I] / s[A]",
                      summed[] = "s[A] +=! x[A,I]; q[A] +=! (x[A,I] - s[A]) * (x[A,I] - s[A]); y[A,I] = (x[A,I] - s[A]) / q[A]";
    static const struct { const char *expr, *inputs; bool together; } one[] = {
        {kept, "x=f32:20x20000", true},    {kept, "x=f32:20x50257", true},    {kept, "x=f32:2x50257", true},
        {kept, "x=f32:1x50257", false},    {kept, "x=f32:4x1000000", false},  {summed, "x=f32:20x20000", true},
        {summed, "x=f32:20x90257", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, "x86-64-avx2");
        kn_program *c;
        hw->units = 2;
        kiln_bytes trace = constructed(a, one[i].expr, one[i].inputs, hw, 1, &c)->c[0].trace;
        if ((strstr(trace.p, "compute_at") != NULL) != one[i].together) fail_msg("%s of %s:\n%s", one[i].expr, one[i].inputs, trace.p);
        kiln_arena_close(a);
    }
}

/* What a map makes for a product is made once before, where all columns share it or more than a few rows do; a GPU makes it where it is read. A copy
 * with other lanes is not made through a map. */
static void factors_are_made_before(void **state)
{
    static const char rows[] = "t[M,K] = max(a[M,K],0.0); c[M,N] +=! t[M,K]*b[K,N]";
    static const char divided[] = "t[M,K] = a[M,K]/(b[M]*b[M]+1.0); c[M,N] +=! t[M,K]*w[K,N]";
    static const char columns[] = "t[K,N] = cast(b[K,N],f32)*s[N]; c[M,N] +=! a[M,K]*t[K,N]";
    static const char far[] = "t[K,N] = max(b[K,N],0.0); c[M,N] +=! a[M,K]*t[K,N]";
    static const char softmax[] = "m[M] >=! a[M,K]; e[M,K] = exp(a[M,K]-m[M]); s[M] +=! e[M,K]; p[M,K] = e[M,K]/s[M]; c[M,N] +=! p[M,K]*b[K,N]";
    static const char spread[] = "t[M,J,K] = a[M,J]*b[M,K]; c[M,N] +=! t[M,J,K]*w[J,K,N]";
    static const char moved[] = "t[M,K] = a[M,K+1]; c[M,N] +=! t[M,K]*b[K,N] where K in 64";
    static const struct { const char *id, *expr, *inputs; bool inlined; } one[] = {
        {"x86-64-avx2", rows, "a=f32:40x64&b=f32:64x72", false},
        {"x86-64-avx512", rows, "a=f32:40x64&b=f32:64x72", false},
        {"nvidia-h200", rows, "a=f32:40x64&b=f32:64x72", true},
        {"x86-64-avx2", divided, "a=f32:40x64&b=f32:40&w=f32:64x72", false},
        {"x86-64-avx2", columns, "a=f32:9x64&b=i8:64x72&s=f32:72", true},
        {"x86-64-avx2", columns, "a=f32:40x64&b=i8:64x72&s=f32:72", false},
        {"x86-64-avx2", far, "a=f32:16x512&b=f32:512x2048", true},
        {"x86-64-avx2", softmax, "a=f32:40x64&b=f32:64x72", false},
        {"x86-64-avx2", spread, "a=f32:20x17&b=f32:20x24&w=f32:17x24x40", true},
        {"x86-64-avx2", moved, "a=f32:40x65&b=f32:64x72", true}, /* nothing is computed */
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        opened o = first_of(one[i].id, one[i].expr, one[i].inputs);
        bool inlined = strstr(o.trace.p, "inline ") != NULL;
        if (inlined != one[i].inlined || strstr(o.trace.p, "terms_last")) fail_msg("%s of %s:\n%s", one[i].expr, one[i].inputs, o.trace.p);
        if (!o.hw->gpu && one[i].expr != far) run_checked(o.a, o.p, o.hw, o.trace, one[i].inputs);
        kiln_arena_close(o.a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crowded_rows_are_copied),
        cmocka_unit_test(short_vectors_fill_lines),
        cmocka_unit_test(rows_meet_blocks), cmocka_unit_test(results_go_past_caches), cmocka_unit_test(few_rows_go_along_sums),
        cmocka_unit_test(few_columns_are_copied_whole),
        cmocka_unit_test(short_runs_are_vectors),
        cmocka_unit_test(columns_go_in_parts),
        cmocka_unit_test(lines_are_spread),
        cmocka_unit_test(rows_are_widened_in_turn),
        cmocka_unit_test(some_rows_are_worth_packing),
        cmocka_unit_test(extrema_are_found_in_vectors),
        cmocka_unit_test(places_of_whole_rows_are_picked),
        cmocka_unit_test(added_rows_are_asked_for),
        cmocka_unit_test(rows_go_by_what_leaves_least),
        cmocka_unit_test(prefix_sums_go_by_columns),
        cmocka_unit_test(far_results_are_asked_for),
        cmocka_unit_test(panels_are_packed_together),
        cmocka_unit_test(blocks_have_one_length),
        cmocka_unit_test(packed_blocks_meet_all_images),
        cmocka_unit_test(rows_that_are_written_stay_near),
        cmocka_unit_test(factors_are_made_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
