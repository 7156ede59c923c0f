/* Mappings of loops onto instructions: what is refused and why, what may be pinned, and their text. Counts: tests/golden/amos_golden.c. */
#include "intrin/map.h"
#include "tests/arena.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define MMA "d[I,J] +=! cast(a[I,R],f32) * cast(b[R,J],f32) where I in 16, J in 16, R in 16"
#define CONV "in x: f16[2,64,30,30], w: f16[32,64,3,3]; y[N,K,P,Q] +=! x[N,C,P*2+R,Q*2+S] * w[K,C,R,S] where P in 14, Q in 14, R in 3, S in 3"

static kiln_arena *arena;
static kiln_diag diag;

static int open_arena(void **state)
{
    (void)state;
    diag = (kiln_diag){0};
    arena = kiln_arena_open(&(kiln_host){.mem = mem});
    return arena ? 0 : -1;
}

static int close_arena(void **state)
{
    (void)state;
    kiln_arena_close(arena);
    return 0;
}

static const kn_program *program(const char *text)
{
    kn_program *p = NULL;
    if (kn_parse(arena, (kiln_bytes){text, strlen(text)}, (kiln_bytes){0}, &p, &diag)) fail_msg("%s: %s", text, diag.message);
    return p;
}

static const kn_intrin *instruction(const char *compute)
{
    const kn_intrin *it = NULL;
    kn_hw_intrin *spec = kn_new(arena, kn_hw_intrin);
    *spec = (kn_hw_intrin){.name = "unit", .compute = compute, .dtypes = "d=f32 a=f16 b=f16"};
    if (kn_intrin_parse(arena, spec, "", &it, &diag)) fail_msg("%s: %s", compute, diag.message);
    return it;
}

static kn_maps *maps_of(const char *op, const char *unit)
{
    kn_maps *m = NULL;
    if (kn_maps_of(arena, program(op), 0, instruction(unit), &m, &diag)) fail_msg("%s: %s", op, diag.message);
    return m;
}

static void refused(const kn_maps *m, const char *text, const char *why)
{
    kn_mapping x;
    if (kn_map_parse(m, text, &x, &diag)) fail_msg("%s: %s", text, diag.message);
    assert_int_equal(kn_map_check(m, &x, &diag), KILN_UNSUPPORTED);
    if (!strstr(diag.message, why)) fail_msg("%s: '%s' does not say '%s'", text, diag.message, why);
}

/* Every mapping found is legal when pinned, and its text reads back to it. */
static void mappings_stand(void **state)
{
    (void)state;
    const kn_maps *m = maps_of(CONV, MMA);
    assert_int_equal(m->nmaps, 35);
    for (int i = 0; i < m->nmaps; i++) {
        kn_mapping x;
        assert_int_equal(kn_map_parse(m, kn_map_text(arena, m, &m->maps[i]), &x, &diag), KILN_OK);
        assert_memory_equal(&x, &m->maps[i], sizeof x);
        assert_int_equal(kn_map_check(m, &x, &diag), KILN_OK);
        for (int k = 0; k < i; k++) assert_memory_not_equal(&m->maps[k], &m->maps[i], sizeof x);
    }
    assert_string_equal(kn_map_text(arena, m, &m->maps[0]), "I=N J=K R=C");
    assert_int_equal(kn_map_extent(m, &m->maps[0], 0), 2);
    assert_false(kn_map_fills(m, &m->maps[0]));
}

/* Refusals name the operand, its index and the loops. */
static void refusals_name_operand_and_index(void **state)
{
    (void)state;
    const kn_maps *m = maps_of(CONV, MMA);
    refused(m, "I=N,K J=K R=C", "K cannot feed I: I moves operand a, but x has no index with K");
    refused(m, "I=N J=K,Q R=C", "Q cannot feed J: index 3 of x, Q*2 + S, moves with Q, but operand a is the same for all of J");
    refused(m, "I=C J=K R=C", "C is a reduce loop, I a spatial one");
    refused(m, "I=N J=K R=P", "P is a spatial loop, R a reduce one");
    refused(m, "I=P J=K R=R", "index 2 of x, P*2 + R, is no single index of operand a");
    refused(m, "I=N J=K", "no loop feeds R");
    for (int i = 0; i < m->nrefused; i++) {
        assert_non_null(m->refused[i].why);
        assert_true(m->refused[i].operand < m->nops);
    }
}

/* A kernel that is read from its end, as a transposed convolution does, and a diagonal. */
static void addresses_that_do_not_fit(void **state)
{
    (void)state;
    const kn_maps *m = maps_of("in x: f16[2,8,9], w: f16[8,4,3]; y[N,F,P] +=! x[N,C,P+R] * w[C,F,2-R] where P in 7, R in 3", MMA);
    assert_int_equal(m->nmaps, 3); /* n, p and both, with c */
    refused(m, "I=N J=F R=R", "index 2 of w, 2 - R, runs against R");
    m = maps_of("in x: f16[8,8,8], w: f16[8,4]; y[N,F] +=! x[N,C,C] * w[C,F]", MMA);
    refused(m, "I=N J=F R=C", "C stands in two indices of x, 1 and 2");
    assert_int_equal(m->nmaps, 1); /* nothing feeds R: one iteration of it is used */
    assert_string_equal(kn_map_text(arena, m, &m->maps[0]), "I=N J=F");
    m = maps_of("in x: f16[8], w: f16[8,4]; y[N,F] +=! x[(N*3)%8] * w[C,F] where N in 8, C in 8", MMA);
    refused(m, "I=N J=F", "index 0 of x, N*3%8, is not affine");
}

/* Operands are paired by what the body does with them; the other order of a product is tried when the first gives nothing. */
static void operands_may_be_turned(void **state)
{
    (void)state;
    const kn_maps *m = maps_of("in w: f16[8,4], x: f16[3,8,5]; y[N,F,P] +=! w[C,F] * x[N,C,P]",
                               "d[H,W,J] +=! cast(a[H,R,W],f32) * cast(b[R,J],f32) where H in 2, W in 4, J in 4, R in 4");
    assert_int_equal(m->natoms, 2); /* N and P take H and W either way round */
    assert_int_equal(m->op[1].load, 0);
    assert_string_equal(m->hard->tensors[m->op[1].hard].name, "b");
    assert_string_equal(kn_map_text(arena, m, &m->atoms[0]), "H=N W=P J=F R=C");
    refused(m, "H=N,P W=N,P J=F R=C", "only their diagonal would be computed");
}

static void other_computations(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"in a: f32[8,8], b: f32[8,8]; y[M,N] +=! a[M,K] * b[K,N]", "operand 'a' of the instruction is f16, but 'a' is f32"},
        {"in a: f16[8,8], b: f16[8,8]; y[M,N] +=! a[M,K] + b[K,N]", "'ADD' (f16) where the instruction has 'MUL' (f32)"},
        {"in a: f16[8,8], b: f16[8,8]; y[M,N] >=! a[M,K] * b[K,N]", "combines its terms in another way"},
        {"in a: f16[8,8], b: f16[8,8]; y[M,N] +=! cast(a[M,K],f64) * cast(b[K,N],f64)", "accumulates in f64, the instruction in f32"},
        {"in a: f16[8,8]; y[M,N] = a[M,N]", "combines its terms in another way"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kn_maps *m = NULL;
        assert_int_equal(kn_maps_of(arena, program(cases[i][0]), 0, instruction(MMA), &m, &diag), KILN_UNSUPPORTED);
        if (!strstr(diag.message, cases[i][1])) fail_msg("'%s' does not say '%s'", diag.message, cases[i][1]);
    }
}

/* An instruction whose operand adds two of its axes up, and one without a depth. */
static void instructions_of_other_shapes(void **state)
{
    (void)state;
    const kn_maps *m = maps_of("in x: f16[8,64], w: f16[4,8,3]; y[F,P] +=! x[C,P*2+R*2] * w[F,C,R] where P in 30, R in 3",
                               "d[I] +=! cast(a[I+R],f32) * cast(b[R],f32) where I in 16, R in 3");
    assert_int_equal(m->nmaps, 1);
    assert_string_equal(kn_map_text(arena, m, &m->maps[0]), "I=P R=R");
    refused(m, "I=P R=C", "is no single index of operand a");
    m = maps_of(CONV, "d[I] +=! cast(a[I],f32) * cast(b[],f32) where I in 16");
    assert_int_equal(m->nmaps, 7);
    kn_mapping all;
    assert_int_equal(kn_map_parse(m, "I=N,P,Q", &all, &diag), KILN_OK);
    assert_int_equal(kn_map_check(m, &all, &diag), KILN_OK);
}

/* Rounding that the statement did not ask for is no mapping. */
static void operands_that_would_be_rounded(void **state)
{
    (void)state;
    const kn_intrin *it = NULL;
    kn_maps *m = NULL;
    kn_hw_intrin tf32 = {.name = "tf32", .compute = "d[I,J] +=! a[I,R] * b[R,J] where I in 16, J in 16, R in 8", .dtypes = "d=f32 a=f32 b=f32"};
    const kn_program *p = program("in a: f32[8,8], b: f32[8,8]; y[M,N] +=! a[M,K] * b[K,N]");
    assert_int_equal(kn_intrin_parse(arena, &tf32, "", &it, &diag), KILN_OK);
    assert_int_equal(kn_maps_of(arena, p, 0, it, &m, &diag), KILN_OK);
    tf32.significand_bits = 11;
    assert_int_equal(kn_maps_of(arena, p, 0, it, &m, &diag), KILN_UNSUPPORTED);
    assert_string_equal(diag.message, "operand 'a' of the instruction keeps 11 of the 24 significant bits of 'a'");
}

/* What is shipped maps what it is for: a product of matrices in the instruction's own dtypes. */
static void shipped_instructions(void **state)
{
    (void)state;
    static const char *const ids[] = {"x86-64-avx2", "x86-64-avx512", "x86-64-vnni", "x86-64-bf16", "x86-64-amx", "nvidia-v100", "nvidia-a100",
                                      "nvidia-h100", "nvidia-h200", "arm-neoverse-n1", "arm-mali-g76", "huawei-ascend910", "amos-units"};
    int seen = 0;
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        char path[128], text[65536];
        snprintf(path, sizeof path, "hwspecs/%s.json", ids[i]);
        FILE *f = fopen(path, "rb");
        assert_non_null(f);
        size_t n = fread(text, 1, sizeof text, f);
        fclose(f);
        kn_hw *hw = NULL;
        if (kiln_hw_parse(arena, (kiln_bytes){text, n}, &hw, &diag) || kn_intrins_parse(arena, hw, &diag)) fail_msg("%s: %s", ids[i], diag.message);
        assert_true(hw->nintrins > 0);
        for (int k = 0; k < hw->nintrins; k++, seen++) {
            const kn_intrin *it = hw->intrins[k].parsed;
            if (strstr(hw->intrins[k].compute, "+128")) continue; /* no product of what it reads */
            const char *a = kn_dtype_text(it->operand[1].dtype), *b = kn_dtype_text(it->operand[2].dtype), *d = kn_dtype_text(it->operand[0].dtype);
            const char *op = kn_format(arena, "in a: %s[64,64], b: %s[64,64]; y[M,N] +=! cast(a[M,K],%s) * cast(b[K,N],%s)", a, b, d, d);
            kn_maps *m = NULL;
            hw->intrins[k].significand_bits = 0;
            if (kn_maps_of(arena, program(op), 0, it, &m, &diag)) fail_msg("%s %s: %s", ids[i], it->name, diag.message);
            bool conv = !strcmp(it->name, "conv"); /* has one loop more than the product */
            if (m->natoms != !conv) fail_msg("%s %s: %d atoms", ids[i], it->name, m->natoms);
        }
    }
    assert_true(seen >= 90);
}

/* AMOS's example: a 4 x 9 matrix on tiles of 2 x 2 stands at (f/2)*20 + (g/2)*4 behind one another, five tiles a row. */
static void sizes_and_addresses(void **state)
{
    (void)state;
    kn_map_plan p;
    kn_mapping x;
    const kn_maps *m = maps_of("in x: f16[1,1,4,4], w: f16[4,1,3,3]; y[N,K,P,Q] +=! x[N,C,P+R,Q+S] * w[K,C,R,S]",
                               "d[I,J] +=! cast(a[I,R],f32) * cast(b[R,J],f32) where I in 2, J in 2, R in 2");
    assert_int_equal(kn_map_parse(m, "I=N,P,Q J=K R=C,R,S", &x, &diag), KILN_OK);
    assert_int_equal(kn_map_plan_of(m, &x, &p, &diag), KILN_OK);
    assert_int_equal(p.calls, 2 * 2 * 5);
    const kn_map_layout *a = &p.operand[1];
    assert_false(a->direct);
    assert_int_equal(a->tile[0], 20);
    assert_int_equal(a->tile[2], 4);
    assert_int_equal(a->step[0], 2);
    assert_int_equal(a->step[2], 1);
    assert_int_equal(a->elems, 40);
    assert_true(p.padding > 1.11 && p.padding < 1.12); /* 10 of 9 */
    static const struct { int m, n, k, calls; bool direct; } sizes[] = {
        {2, 2, 2, 1, false}, {4, 4, 4, 1, false}, {8, 8, 8, 1, false}, {17, 19, 23, 8, false}, {32, 48, 16, 6, true},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const char *op = kn_format(arena, "in a: f16[%d,%d], b: f16[%d,%d]; y[M,N] +=! a[M,K] * b[K,N]", sizes[i].m, sizes[i].k, sizes[i].k,
                                   sizes[i].n);
        m = maps_of(op, MMA);
        assert_int_equal(kn_map_plan_of(m, &m->maps[0], &p, &diag), KILN_OK);
        assert_int_equal(p.calls, sizes[i].calls);
        assert_int_equal(p.operand[1].direct, sizes[i].direct);
        assert_int_equal(kn_map_fills(m, &m->maps[0]), sizes[i].m >= 16);
        if (sizes[i].direct) assert_int_equal(p.operand[2].step[2], 48);
    }
}

static kn_hw *device(const char *id)
{
    char path[128], text[65536];
    kn_hw *hw = NULL;
    snprintf(path, sizeof path, "hwspecs/%s.json", id);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    if (kiln_hw_parse(arena, (kiln_bytes){text, n}, &hw, &diag)) fail_msg("%s: %s", id, diag.message);
    return hw;
}

static kn_map_plan priced(const kn_maps *m, const kn_hw *hw, const char *text)
{
    kn_mapping x;
    kn_map_plan p;
    if (kn_map_parse(m, text, &x, &diag) || kn_map_check(m, &x, &diag) || kn_map_plan_of(m, &x, &p, &diag)) fail_msg("%s: %s", text, diag.message);
    kn_map_predict(m, &x, hw, &p);
    return p;
}

/* The price of a mapping on a CPU has its copies in it: windows that are cut out of a large image cost more than they save, those of a small image
 * less than packing many weights byte by byte. */
#define PADDED "y[N,K,P,Q] +=! cast(pad(x,0)[N,C,P+R-1,Q+S-1],i32) * cast(w[K,C,R,S],i32) where P in "
static void prices_know_copies(void **state)
{
    (void)state;
    const kn_hw *hw = device("x86-64-vnni");
    kn_maps *m = NULL;
    const kn_program *large = program("in x: u8[1,64,56,56], w: i8[64,64,3,3]; " PADDED "56, Q in 56");
    const kn_program *small = program("in x: u8[1,512,7,7], w: i8[512,512,3,3]; " PADDED "7, Q in 7");
    assert_int_equal(kn_maps_of(arena, large, 0, kn_intrin_find(arena, hw, "vpdpbusd"), &m, &diag), KILN_OK);
    kn_map_plan channels = priced(m, hw, "I=K R=C"), windows = priced(m, hw, "I=K R=C,R,S");
    assert_true(windows.pack_us > 4 * channels.pack_us);
    assert_true(channels.us < windows.us);
    assert_string_equal(windows.bound, "pack");
    assert_int_equal(kn_maps_of(arena, small, 0, kn_intrin_find(arena, hw, "vpdpbusd"), &m, &diag), KILN_OK);
    channels = priced(m, hw, "I=K R=C"), windows = priced(m, hw, "I=K R=C,R,S");
    assert_true(windows.pack_us < channels.pack_us);
}

/* The mappings of a convolution onto a product, found by trying all 128 sets of its seven atoms (published: N, P or Q with C, R or S, but not P
 * with R nor Q with S, which share an index), and those that fill the instruction, on layers that nobody recorded: equal sets, in both orders. */
static void convolutions_by_force(void **state)
{
    (void)state;
    static const char *const spatial = "NPQ", *const reduced = "CRS", *const axes = "NKPQCRS";
    static const unsigned most[] = {5, 70, 20, 20, 70, 4, 4};
    const kn_hw *hw = device("nvidia-v100");
    unsigned seed = 5;
    for (int round = 0; round < 60; round++) {
        int64_t size[7]; /* as axes */
        for (int i = 0; i < 7; i++) seed = seed * 1664525u + 1013904223u, size[i] = 1 + (seed >> 24) % most[i];
        int stride = 1 + (int)(seed >> 20) % 3;
        long long z[7], high, wide;
        for (int i = 0; i < 7; i++) z[i] = size[i];
        high = z[2] * stride + z[5], wide = z[3] * stride + z[6];
        const char *text = kn_format(arena, "in x: f16[%lld,%lld,%lld,%lld], w: f16[%lld,%lld,%lld,%lld]; "
                                     "y[N,K,P,Q] +=! cast(x[N,C,P*%d+R,Q*%d+S],f32) * cast(w[K,C,R,S],f32) where P in %lld, Q in %lld",
                                     z[0], z[4], high, wide, z[1], z[4], z[5], z[6], stride, stride, z[2], z[3]);
        const kn_program *p = program(text);
        for (int k = 0; k < hw->nintrins; k++) {
            kn_maps *list;
            assert_int_equal(kn_maps_of(arena, p, 0, hw->intrins[k].parsed, &list, &diag), KILN_OK);
            for (const kn_maps *m = list; m; m = m->turned) {
                bool want[128 * 128] = {false}, fill[128 * 128] = {false};
                int pixel = m->maps[0].loops[0] & ~2u ? 0 : 1, counted = 0, filling = 0, wanted = 0, full = 0;
                for (int set = 1; set < 128; set++) {
                    int s = 0, r = 0, atom = 0;
                    for (int i = 0; i < 9; i++) {
                        if (i == 4 || i == 8) continue; /* P with R, Q with S */
                        if (!(set >> atom++ & 1)) continue;
                        s |= 1 << (strchr(axes, spatial[i / 3]) - axes);
                        r |= 1 << (strchr(axes, reduced[i % 3]) - axes);
                    }
                    int64_t rows = 1, terms = 1;
                    for (int i = 0; i < 7; i++) rows *= s >> i & 1 ? size[i] : 1, terms *= r >> i & 1 ? size[i] : 1;
                    wanted += !want[s * 128 + r], want[s * 128 + r] = true;
                    const kn_axis *x = m->intrin->axes;
                    fill[s * 128 + r] = rows >= x[pixel].extent && size[1] >= x[1 - pixel].extent && terms >= x[2].extent;
                }
                for (int i = 0; i < 128 * 128; i++) full += fill[i];
                for (int i = 0; i < m->nmaps; i++) {
                    const kn_mapping *x = &m->maps[i];
                    uint32_t at = x->loops[pixel] * 128 + x->loops[2];
                    if (x->loops[1 - pixel] != 2 || !want[at] || fill[at] != kn_map_fills(m, x))
                        fail_msg("%s: %s", text, kn_map_text(arena, m, x));
                    counted++, filling += kn_map_fills(m, x);
                }
                assert_int_equal(counted, wanted); /* distinct ones: 35 */
                assert_int_equal(filling, full);
            }
        }
    }
}

/* What a hwspec says of costs decides: where results go out one by one for much, lanes of pixels are the best, which follow each other in memory. */
static void costs_decide(void **state)
{
    (void)state;
    kn_hw *hw = device("x86-64-vnni");
    kn_maps *m = NULL;
    const kn_program *p = program("in x: u8[1,64,16,16], w: i8[64,64,1,1]; y[N,K,P,Q] +=! cast(x[N,C,P,Q],i32) * cast(w[K,C,R,S],i32)");
    assert_int_equal(kn_maps_of(arena, p, 0, kn_intrin_find(arena, hw, "vpdpbusd"), &m, &diag), KILN_OK);
    double before = priced(m, hw, "I=K R=C").us, elements = 64 * 256, cycles_a_us = hw->clock_ghz * 1e3 * hw->units;
    hw->costs.store_element += 40;
    double more = priced(m, hw, "I=K R=C").us - before;
    assert_true(more > 0.9 * 40 * elements / cycles_a_us && more < 1.1 * 40 * elements / cycles_a_us);
    assert_int_equal(kn_maps_of(arena, p, 0, kn_intrin_find(arena, hw, "vpdpbusd_bcst"), &m, &diag), KILN_OK);
    double lanes = priced(m, hw, "I=P,Q R=C").us;
    hw->costs.store_element += 40;
    assert_true(priced(m, hw, "I=P,Q R=C").us == lanes);
    hw->costs.interleave_element *= 10;
    assert_true(priced(m, hw, "I=P,Q R=C").us > lanes);
}

static bool has(kiln_bytes trace, const char *text)
{
    assert_non_null(trace.p);
    return strstr(trace.p, text) != NULL;
}

/* Two loops around the instruction give pieces to a tile in registers, and a window whose vectors lie along memory is not copied place by place. */
static void traces_of_a_cpu(void **state)
{
    (void)state;
    const kn_hw *hw = device("x86-64-avx2");
    kn_maps *m = NULL;
    kn_mapping x;
    const kn_program *p = program("in x: f32[1,64,56,56], w: f32[64,64,3,3]; y[N,K,P,Q] +=! pad(x,0.0)[N,C,P+R-1,Q+S-1] * w[K,C,R,S]"
                                  " where P in 56, Q in 56");
    assert_int_equal(kn_maps_of(arena, p, 0, kn_intrin_find(arena, hw, "fma_f32"), &m, &diag), KILN_OK);
    for (const kn_maps *turn = m; turn; turn = turn->turned) {
        if (kn_map_parse(turn, "I=Q", &x, &diag) || kn_map_check(turn, &x, &diag)) continue;
        kiln_bytes tiled = kn_map_trace(arena, turn, &x, hw, KN_MAP_TILED);
        assert_true(has(tiled, "decompose_padding y ") && !has(tiled, "reindex") && has(tiled, "unroll y "));
        assert_false(has(kn_map_trace(arena, turn, &x, hw, KN_MAP_GATHERED), "decompose_padding"));
    }
    assert_int_equal(kn_map_find(m, "I=P,Q", (const kn_maps **)&m, &x, &diag), KILN_OK);
    assert_true(has(kn_map_trace(arena, m, &x, hw, KN_MAP_TILED), "reindex y "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(convolutions_by_force, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(costs_decide, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(prices_know_copies, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(traces_of_a_cpu, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(mappings_stand, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(refusals_name_operand_and_index, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(addresses_that_do_not_fit, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(operands_may_be_turned, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(other_computations, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(instructions_of_other_shapes, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(operands_that_would_be_rounded, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(sizes_and_addresses, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(shipped_instructions, open_arena, close_arena),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
