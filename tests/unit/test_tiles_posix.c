/* AMX and AVX512-BF16 kernels as the binaries that they are: built by every compiler here and run, on a CPU without these instructions through the
 * handler of workers/tiles.h, and what that handler decodes and refuses. KILN_TILES=N: all kernels by both compilers, and N random products. */
#include "tests/unit/workers_fixture.h"
#include "tests/arena.h"
#include "tests/unit/device.h"
#include "tests/unit/request.h"
#include "tests/unit/slower.h"
#include "workers/tiles.h"

/* ---- the handler ---- */

/* As `as` encodes them: the instruction is in the comment, AT&T's order. */
static const struct { uint8_t code[12]; int n; tiles_step want; } encoded[] = {
    {{0xc4, 0xe2, 0x78, 0x49, 0x07}, 5, {.op = TILES_CONFIG, .base = 7, .index = -1}},                        /* ldtilecfg (%rdi) */
    /* ldtilecfg -4(%rip) */
    {{0xc4, 0xe2, 0x78, 0x49, 0x05, 0xfc, 0xff, 0xff, 0xff}, 9, {.op = TILES_CONFIG, .base = TILES_NEXT, .index = -1, .offset = -4}},
    {{0xc4, 0xe2, 0x79, 0x49, 0x44, 0x24, 0x40}, 7, {.op = TILES_SHOW, .base = 4, .index = -1, .offset = 64}}, /* sttilecfg 64(%rsp) */
    {{0xc4, 0xe2, 0x78, 0x49, 0xc0}, 5, {.op = TILES_RELEASE}},                                               /* tilerelease */
    {{0xc4, 0xe2, 0x7b, 0x49, 0xf8}, 5, {.op = TILES_ZERO, .d = 7}},                                          /* tilezero %tmm7 */
    /* tileloadd (%r8,%rdx,1), %tmm5 */
    {{0xc4, 0xc2, 0x7b, 0x4b, 0x2c, 0x10}, 6, {.op = TILES_LOAD, .d = 5, .base = 8, .index = 2}},
    /* tileloaddt1 16(%rax,%r13,4), %tmm2 */
    {{0xc4, 0xa2, 0x79, 0x4b, 0x54, 0xa8, 0x10}, 7, {.op = TILES_LOAD, .d = 2, .base = 0, .index = 13, .offset = 16}},
    /* tilestored %tmm3, (%rsi,%rcx,1) */
    {{0xc4, 0xe2, 0x7a, 0x4b, 0x1c, 0x0e}, 6, {.op = TILES_STORE, .d = 3, .base = 6, .index = 1}},
    /* tdpbf16ps %tmm7, %tmm5, %tmm1 */
    {{0xc4, 0xe2, 0x42, 0x5c, 0xcd}, 5, {.op = TILES_PRODUCT, .kind = TILES_BF16, .d = 1, .a = 5, .b = 7}},
    /* tdpbssd %tmm7, %tmm5, %tmm1 */
    {{0xc4, 0xe2, 0x43, 0x5e, 0xcd}, 5, {.op = TILES_PRODUCT, .kind = TILES_SS, .d = 1, .a = 5, .b = 7}},
    /* tdpbsud %tmm7, %tmm5, %tmm1 */
    {{0xc4, 0xe2, 0x42, 0x5e, 0xcd}, 5, {.op = TILES_PRODUCT, .kind = TILES_SU, .d = 1, .a = 5, .b = 7}},
    /* tdpbusd %tmm7, %tmm5, %tmm1 */
    {{0xc4, 0xe2, 0x41, 0x5e, 0xcd}, 5, {.op = TILES_PRODUCT, .kind = TILES_US, .d = 1, .a = 5, .b = 7}},
    /* tdpbuud %tmm7, %tmm5, %tmm1 */
    {{0xc4, 0xe2, 0x40, 0x5e, 0xcd}, 5, {.op = TILES_PRODUCT, .kind = TILES_UU, .d = 1, .a = 5, .b = 7}},
    /* vdpbf16ps %zmm19, %zmm28, %zmm29 */
    {{0x62, 0x22, 0x1e, 0x40, 0x52, 0xeb}, 6, {.op = TILES_PAIRS, .d = 29, .a = 28, .b = 19}},
    /* vdpbf16ps %zmm3, %zmm2, %zmm1 */
    {{0x62, 0xf2, 0x6e, 0x48, 0x52, 0xcb}, 6, {.op = TILES_PAIRS, .d = 1, .a = 2, .b = 3}},
    {{0x0f, 0x0b}, 2, {.op = TILES_NONE}},                                                                    /* ud2 */
    /* vbroadcastss %xmm0, %xmm0 */
    {{0xc4, 0xe2, 0x79, 0x18, 0xc0}, 5, {.op = TILES_NONE}},
    {{0x62, 0xf2, 0x6e, 0x49, 0x52, 0xcb}, 6, {.op = TILES_NONE}},                                            /* the same under a mask */
};

static void instructions_are_decoded(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof encoded / sizeof *encoded; i++) {
        tiles_step s = tiles_decode(encoded[i].code, encoded[i].n), w = encoded[i].want;
        if (s.op != w.op) fail_msg("%zu: operation %d", i, (int)s.op);
        if (s.op == TILES_NONE) continue;
        bool memory = s.op == TILES_LOAD || s.op == TILES_STORE || s.op == TILES_CONFIG || s.op == TILES_SHOW;
        bool reg = s.op != TILES_CONFIG && s.op != TILES_SHOW && s.op != TILES_RELEASE, three = s.op == TILES_PRODUCT || s.op == TILES_PAIRS;
        if (s.length != encoded[i].n || s.kind != w.kind || (reg && s.d != w.d) || (three && (s.a != w.a || s.b != w.b)))
            fail_msg("%zu: length %d, kind %d, registers %d %d %d", i, s.length, (int)s.kind, s.d, s.a, s.b);
        if (memory && (s.base != w.base || s.index != w.index || s.offset != w.offset))
            fail_msg("%zu: %d %d %lld", i, s.base, s.index, (long long)s.offset);
        assert_int_equal(tiles_decode(encoded[i].code, encoded[i].n - 1).op, TILES_NONE); /* cut off */
    }
}

static const char *configured(tiles *t, const uint8_t *rows, const uint8_t *bytes)
{
    uint8_t c[64] = {1};
    for (int i = 0; i < TILES; i++) c[48 + i] = rows[i], c[16 + 2 * i] = bytes[i];
    return tiles_do(t, &(tiles_step){.op = TILES_CONFIG}, c, 0);
}

static void refused(tiles *t, tiles_step s, const char *with)
{
    uint8_t memory[64 * 16] = {0};
    const char *why = tiles_do(t, &s, memory, 64);
    if (!why || !strstr(why, with)) fail_msg("operation %d: %s, not %s", (int)s.op, why ? why : "done", with);
}

static void faults_are_those_of_a_processor(void **state)
{
    (void)state;
    tiles t = {0};
    uint8_t c[64] = {2};
    refused(&t, (tiles_step){.op = TILES_ZERO}, "not configured");
    refused(&t, (tiles_step){.op = TILES_LOAD}, "not configured");
    assert_non_null(tiles_do(&t, &(tiles_step){.op = TILES_CONFIG}, c, 0)); /* palette */
    memset(c, 0, sizeof c), c[0] = 1, c[5] = 1;
    assert_non_null(tiles_do(&t, &(tiles_step){.op = TILES_CONFIG}, c, 0)); /* reserved */
    assert_non_null(configured(&t, (const uint8_t[8]){17}, (const uint8_t[8]){64}));
    assert_non_null(configured(&t, (const uint8_t[8]){16}, (const uint8_t[8]){65}));
    assert_non_null(configured(&t, (const uint8_t[8]){16}, (const uint8_t[8]){0}));
    assert_null(configured(&t, (const uint8_t[8]){4, 4, 3, 5}, (const uint8_t[8]){8, 12, 8, 12}));
    refused(&t, (tiles_step){.op = TILES_LOAD, .d = 6}, "not configured");
    refused(&t, (tiles_step){.op = TILES_PRODUCT, .d = 0, .a = 1, .b = 1}, "twice");
    refused(&t, (tiles_step){.op = TILES_PRODUCT, .d = 0, .a = 3, .b = 2}, "fit");
    refused(&t, (tiles_step){.op = TILES_PRODUCT, .d = 0, .a = 2, .b = 1}, "fit");
    assert_null(tiles_do(&t, &(tiles_step){.op = TILES_PRODUCT, .kind = TILES_UU, .d = 0, .a = 1, .b = 2}, NULL, 0));
    assert_null(tiles_do(&t, &(tiles_step){.op = TILES_RELEASE}, NULL, 0));
    refused(&t, (tiles_step){.op = TILES_ZERO}, "not configured");
}

/* ---- kernels ---- */

#define MATMUL "c[M,N] +=! cast(a[M,K],f32)*cast(b[K,N],f32)"
#define BYTES "c[M,N] +=! cast(a[M,K],i32)*cast(b[K,N],i32)"
static const struct { const char *expr, *inputs, *has; } kernels[] = {
    {MATMUL, "a=bf16:64x96&b=bf16:96x64", "tdpbf16ps"},
    {MATMUL, "a=bf16:67x129&b=bf16:129x83", "tdpbf16ps"},
    {BYTES, "a=u8:32x192&b=i8:192x96", "tdpbusd"},
    {MATMUL, "a=bf16:64x1100&b=bf16:1100x192", "KN_UNIT_LOAD(0"}, /* slices of the terms: results to memory and back */
    {MATMUL, "a=bf16:70x1100&b=bf16:1100x40:const", "_prepack_1"},
    {MATMUL, "a=bf16:64x64&b=bf16:64x512", "tdpbf16ps"},
    {BYTES, "a=i8:64x128&b=i8:128x64", "tdpbssd"},
    {BYTES, "a=i8:64x128&b=u8:128x80", "tdpbsud"},
    {BYTES, "a=u8:64x192&b=u8:192x48", "tdpbuud"},
    {"c[B,M,N] +=! cast(a[B,M,K],f32)*cast(b[B,K,N],f32)", "a=bf16:3x48x64&b=bf16:3x64x32", "tdpbf16ps"},
    {"t[M,N] +=! cast(a[M,K],f32)*cast(b[N,K],f32); y[M,N] = cast(max(t[M,N]+v[N], 0.0),bf16)",
     "a=bf16:40x128&b=bf16:64x128:const&v=f32:64", "tdpbf16ps"},
    {"y[N,F,P,Q] +=! cast(pad(x,0.0)[N,C,P+R-1,Q+S-1],f32)*cast(w[F,C,R,S],f32) where P in 9, Q in 11",
     "x=bf16:1x32x9x11&w=bf16:32x32x3x3", "dpbf16ps"},
    {"y[N,P,Q,F] +=! cast(x[N,P*2+R,Q*2+S,C],i32)*cast(w[F,R,S,C],i32) where P in 12, Q in 12", "x=u8:1x25x25x64&w=i8:64x3x3x64", "dpb"},
    {"y[N,F,P,Q] +=! cast(pad(x,0.0)[N,C,P+R-1,Q+S-1],f32)*cast(w[F,C,R,S],f32) where P in 14, Q in 14",
     "x=bf16:1x64x14x14&w=bf16:64x64x3x3:const", "tdpbf16ps"},
    {"t[N,F,P,Q] +=! cast(x[N,C,P,Q],i32)*cast(w[F,C],i32); y[N,F,P,Q] = cast(max(min(t[N,F,P,Q]//256+b[F], 127), -128),i8)",
     "x=u8:1x256x28x28&w=i8:512x256&b=i32:512", "tdpb"},
    {"c[B,M,N] +=! cast(a[B,M,K],f32)*cast(b[B,N,K],f32)", "a=bf16:2x128x64&b=bf16:2x128x64", "tdpbf16ps"},
};

/* A kernel of the best candidate, built by one compiler, against the reference. */
static void check(const kiln_program *p, const kiln_hw *hw, const kiln_kernel *k, const char *cc, const char *what)
{
    const char *const *flags;
    const char *all[40] = {"-O2"};
    int n = kiln_hw_flags(hw, &flags);
    worker_blob so = {0};
    worker_error e = {0};
    worker_verdict v = {0};
    worker_tools own = tools;
    snprintf(own.cc, sizeof own.cc, "%s", cc);
    for (int i = 0; i < n; i++) all[i + 1] = flags[i];
    if (!worker_compile_c(&own, k->source, all, n + 1, 300000, &so, &e)) fail_msg("%s, %s: %s %s", what, cc, e.slug, e.message);
    if (!worker_verify_cpu(&own, p, k, &so, 2000 * SLOWER, &v, &e)) fail_msg("%s, %s: %s %s", what, cc, e.slug, e.message);
    if (!v.ok || !v.all_written || !v.checked) fail_msg("%s, %s: %s\n%s", what, cc, v.detail, k->source.p);
    free(so.p);
    printf("%-26.26s %s: %lld elements, worst %.3f of what is allowed, %s\n", what, strrchr(cc, '/') + 1, (long long)v.checked, v.max_error,
           !strcmp(v.how, "run") ? "run" : "tile instructions carried out by the handler");
}

enum { SOME = 5 };
static const char *compilers[2];

/* The vectors around the tiles are the CPU's own. */
static bool has_vectors(void)
{
    const char *const *names;
    int n = worker_host_features(&names), found = 0;
    for (int i = 0; i < n; i++) found += !strcmp(names[i], "avx512f") || !strcmp(names[i], "avx512bw") || !strcmp(names[i], "avx512vnni");
    return found == 3;
}

static void kernel_of(const char *expr, const char *inputs, const char *has, int most, bool both)
{
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    kiln_hw *hw = device(a, "x86-64-amx");
    kiln_request *r = request(a, expr, inputs);
    kiln_candidates *c;
    kiln_diag d = {0};
    if (kiln_construct(a, r->program, hw, "default", most, &c, &d)) fail_msg("%s: %s", expr, d.message);
    for (int i = 0; i < c->n && i < most; i++) {
        kiln_kernel *k;
        if (kiln_generate(a, r->program, hw, c->c[i].trace, &k, &d)) fail_msg("%s: %s\n%s", expr, d.message, c->c[i].trace.p);
        if (!i && has && !strstr(k->source.p, has)) fail_msg("%s %s: no %s in\n%s", expr, inputs, has, c->c[i].trace.p);
        for (int n = 0; n < 2; n++)
            if (compilers[n] && (!i || !n) && (both || !n)) check(r->program, hw, k, compilers[n], inputs);
    }
    kiln_arena_close(a);
}

static void kernels_are_right(void **state)
{
    (void)state;
    if (!has_vectors()) skip();
    bool all = getenv("KILN_TILES") != NULL;
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (all || i < SOME) kernel_of(kernels[i].expr, kernels[i].inputs, kernels[i].has, 1, !i || all);
}

/* Whether in a step of the reduction a load stands between the products. */
static bool load_between(const char *inputs)
{
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    kiln_hw *hw = device(a, "x86-64-amx");
    kiln_request *r = request(a, MATMUL, inputs);
    kiln_candidates *c;
    kiln_kernel *k;
    kiln_diag d = {0};
    assert_int_equal(kiln_construct(a, r->program, hw, "default", 1, &c, &d), KILN_OK);
    assert_int_equal(kiln_generate(a, r->program, hw, c->c[0].trace, &k, &d), KILN_OK);
    const char *first = strstr(k->source.p, "KN_UNIT_CALL_0(0,"), *last = first ? strstr(first, "KN_UNIT_CALL_0(3,") : NULL;
    if (!last) fail_msg("no four products in\n%s", c->c[0].trace.p);
    const char *load = strstr(first, "KN_UNIT_LOAD");
    bool between = load && load < last;
    kiln_arena_close(a);
    return between;
}

/* Rows that lie far apart are loaded before the first product, copies of rows between them. */
static void rows_in_place_are_loaded_before_products(void **state)
{
    (void)state;
    assert_false(load_between("a=bf16:64x128&b=bf16:128x64"));
    assert_false(load_between("a=bf16:64x2048&b=bf16:2048x64")); /* a page apart, too */
    assert_true(load_between("a=bf16:70x2048&b=bf16:2048x64")); /* in no whole tiles: copied */
}

static uint32_t draw(uint32_t *seed) { return (*seed = *seed * 1664525u + 1013904223u) >> 8; }

static void random_products(void **state)
{
    static const char *const types[] = {"bf16 bf16 f32", "i8 i8 i32", "u8 i8 i32", "i8 u8 i32", "u8 u8 i32"};
    static const char *const layouts[] = {"c[M,N] +=! cast(a[M,K],%s)*cast(b[K,N],%s)", "c[M,N] +=! cast(a[M,K],%s)*cast(b[N,K],%s)",
                                          "c[M,N] +=! cast(a[K,M],%s)*cast(b[K,N],%s)", "c[N,M] +=! cast(a[M,K],%s)*cast(b[N,K],%s)"};
    int n = getenv("KILN_TILES") ? atoi(getenv("KILN_TILES")) : 0;
    uint32_t seed = getenv("SEED") ? (uint32_t)atoi(getenv("SEED")) : 7;
    (void)state;
    if (!has_vectors()) skip();
    for (int i = 0; i < n; i++) {
        char expr[200], inputs[120], a[8], b[8], c[8];
        uint32_t t = draw(&seed) % 5, l = draw(&seed) % 4, m = 1 + draw(&seed) % 100, k = 16 + draw(&seed) % 200, w = 1 + draw(&seed) % 100;
        while (m * k * w < 1 << 18) m += 16, w += 9;
        sscanf(types[t], "%7s %7s %7s", a, b, c);
        snprintf(expr, sizeof expr, layouts[l], c, c);
        snprintf(inputs, sizeof inputs, "a=%s:%ux%u&b=%s:%ux%u", a, l == 2 ? k : m, l == 2 ? m : k, b, l % 2 ? w : k, l % 2 ? k : w);
        kernel_of(expr, inputs, NULL, 3, true);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "child")) return child_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(instructions_are_decoded), cmocka_unit_test(faults_are_those_of_a_processor),
        cmocka_unit_test(kernels_are_right), cmocka_unit_test(rows_in_place_are_loaded_before_products), cmocka_unit_test(random_products),
    };
    static const char *const names[] = {"/usr/bin/gcc", "/usr/bin/clang"};
    for (int i = 0; i < 2; i++) compilers[i] = access(names[i], X_OK) ? NULL : names[i];
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
