/* Schedules with instructions, from trace to result: C text is compiled and run; CUDA text is compiled by NVRTC where there is one, and emulated. */
#include "tests/unit/workers_fixture.h"
#include "tests/arena.h"
#include "tests/unit/instructions.h"
#include "codegen/codegen.h"
#include "tests/unit/slower.h"

#define TILE4 "split out0 S0 4\nsplit out0 S1 4\nsplit out0 R0 4\nreorder out0 S0.0 S1.0 R0.0 | S0.1 S1.1 R0.1\n"
#define VNNI "split out0 S1 16\nsplit out0 R0 4\nreorder out0 S0.0 S1.0 R0.0 | S1.1 R0.1\nparallel out0 S0.0\ntensorize out0 S1.1 vpdpbusd\n"
#define PRODUCT "c[M,N] +=! a[M,K]*b[K,N]"
#define FMA(n) "split out0 S1 " n "\nreorder out0 S0.0 S1.0 R0.0 | S1.1\ntensorize out0 S1.1 "
#define WORDS(columns) "split out0 S0 6\nsplit out0 S1 " columns " 8\nsplit out0 R0 2\nreorder out0 S0.0 S1.0 R0.0 S0.1 S1.1 | S1.2 R0.1\n" \
    "parallel out0 S0.0\nunroll out0 S0.1\nunroll out0 S1.1\ntensorize out0 S1.2 "
static const struct { const char *inputs, *expr; bool gpu; const char *trace, *has; } cases[] = {
    { "a=u8:19x22&b=i8:22x67", "c[M,N] +=! cast(a[M,K],i32)*cast(b[K,N],i32)", false, "widen out0 1 w2 i16\n" WORDS("2") "words_i8", "vpmaddwd %2" },
    { "a=i8:7x23&b=u8:23x16", "c[M,N] +=! cast(a[M,K],i32)*cast(b[K,N],i32)", false, "widen out0 0 w2 i16\n" WORDS("1") "words_u8", "vpmovzxbw %1" },
    { "a=i8:19x22&b=i8:22x67:const", "c[M,N] +=! cast(a[M,K],i32)*cast(b[K,N],i32)", false,
      "widen out0 0 wide i16\n" WORDS("2") "words_i8\nprepack out0 1 S1.0 R0.0 S1.1 S1.2 R0.1", "vpmaddwd %2" },
    { "a=u8:9x22&b=i8:22x37", "c[M,N] +=! cast(a[M,K],i32)*cast(b[K,N],i32)", false, VNNI, "vpdpbusd %2" },
    { "a=u8:9x24&b=i8:24x48", "c[M,N] +=! cast(a[M,K],i32)*cast(b[K,N],i32)", false,
      VNNI "cache_read out0 0 scratch S0.0 loops S1.0 R0.0 S1.1 R0.1", "vpdpbusd %2" },
    { "a=u8:19x22&b=i8:22x67", "c[M,N] +=! cast(a[M,K],i32)*cast(b[K,N],i32)", false,
      "split out0 S0 4\nsplit out0 S1 2 16\nsplit out0 R0 4\nreorder out0 S0.0 S1.0 R0.0 S0.1 S1.1 | S1.2 R0.1\nparallel out0 S0.0\n"
      "unroll out0 S0.1\nunroll out0 S1.1\ntensorize out0 S1.2 vpdpbusd", "k_call_vpdpbusd_0v(result" },
    { "a=u8:19x44&b=i8:44x67", "c[M,N] +=! cast(a[M,K],i32)*cast(b[K,N],i32)", false, /* blocks of the sum, the last of which is ragged */
      "split out0 S0 2 4\nsplit out0 S1 2 2 16\nsplit out0 R0 4 4\nreorder out0 S0.0 S1.0 | R0.0 S1.1 S0.1 R0.1 S0.2 S1.2 | S1.3 R0.2\n"
      "parallel out0 S0.0\nunroll out0 S0.2\nunroll out0 S1.2\ntensorize out0 S1.3 vpdpbusd\n"
      "cache_read out0 0 scratch S1.1 loops R0.1 S1.2 S1.3 R0.2", "k_call_vpdpbusd_0v(result" },
    { "a=u8:9x76&b=i8:37x76", "c[M,N] +=! cast(a[M,K],i32)*cast(b[N,K],i32)", false, /* rows turned word by word, past their end */
      "split out0 S1 2 4\nsplit out0 R0 12 4\nreorder out0 S1.0 R0.0 S0.0 R0.1 S1.1 S1.2 R0.2\nparallel out0 S1.0\n"
      "cache_read out0 0 scratch R0.0 loops R0.1 S1.1 S1.2 R0.2", "(u32x4)" },
    { "x=u8:4x5x12&w=i8:21x12x3x3", "o[P,Q,F] +=! cast(pad(x,0)[P+R-1,Q+S-1,C],i32)*cast(w[F,C,R,S],i32) where P in 4, Q in 5", false,
      "split out0 S2 4\nsplit out0 R2 2 4\nreorder out0 S2.0 R2.0 S0.0 S1.0 R0.0 R1.0 R2.1 S2.1 R2.2\nparallel out0 S2.0\n" /* and taps sorted */
      "cache_read out0 1 scratch R2.0 loops R2.1 R0.0 R1.0 S2.1 R2.2", "(u32x4)" },
    { "a=bf16:9x70&b=bf16:37x70", "c[M,N] +=! cast(a[M,K],f32)*cast(b[N,K],f32)", false,
      "split out0 S1 4\nsplit out0 R0 35 2\nreorder out0 S1.0 R0.0 S0.0 R0.1 S1.1 R0.2\nparallel out0 S1.0\n"
      "cache_read out0 0 scratch R0.0 loops R0.1 S1.1 R0.2", "(u32x4)" },
    { "a=f32:17x19&b=f32:19x23", PRODUCT, false, /* as in docs/schedules.md */
      "split out0 S0 4\nsplit out0 S1 2 4\nsplit out0 R0 4\nreorder out0 S0.0 S1.0 R0.0 S1.1 | S0.1 S1.2 R0.1\ntensorize out0 S0.1 gemm4\n"
      "unroll out0 S1.1\ncache_read out0 1 scratch S1.0 loops R0.0 S1.1 R0.1 S1.2", "k_call_gemm4_0v(result" },
    { "a=f32:17x19&b=f32:19x23", PRODUCT, false, FMA("16") "fma16", "__AVX512F__" },
    { "a=f64:17x19&b=f64:19x23", PRODUCT, false, FMA("4") "fma4d", "__FMA__" },
    { "a=f32:17x19&b=f32:19x23", PRODUCT, false, TILE4 "parallel out0 S0.0\ntensorize out0 S0.1 gemm4", "k_call_gemm4_0(" },
    { "a=f32:17x19&b=f32:19x23", PRODUCT, false,
      TILE4 "tensorize out0 S0.1 gemm4\ncache_read out0 0 scratch S0.0 loops R0.0 S0.1 R0.1", "k_call_gemm4_0(" },
    { "a=f16:17x19&b=f16:19x23", "c[M,N] +=! cast(a[M,K],f32)*cast(b[K,N],f32)", false, TILE4 "tensorize out0 S0.1 half4",
      "k_call_half4_0(" },
    { "a=u8:9x22&b=i8:22x7", "c[M,N] +=! cast(a[M,K],i32)*cast(b[K,N],i32)", false,
      "split out0 S0 4\nsplit out0 R0 4\nreorder out0 S0.0 S1.0 R0.0 | S0.1 R0.1\ntensorize out0 S0.1 dot4", "k_call_dot4_0(" },
    { "a=i8:9x24&b=i8:24x48:const", "c[M,N] +=! cast(a[M,K],i32)*cast(b[K,N],i32)", false, /* sums of a constant ahead, beside its packed copy */
      "unsign out0 0 t u w\nahead u\nsplit w S1 16\nsplit w R0 4\nreorder w S0.0 S1.0 R0.0 | S1.1 R0.1\nparallel w S0.0\n"
      "tensorize w S1.1 vpdpbusd\nprepack w 1 S1.0 R0.0 S1.1 R0.1\nsplit u S1 16\nreorder u S1.0 R0.0 S1.1\nparallel u S1.0\nvectorize u S1.1",
      "for (i64 i = 0; i < 3; i++) pack_0(&k, i, 0);\n    pack_1(&k, 0, 0);" },
    { "a=f32:9x13&b=f32:67x13:const", "s[N] +=! b[K,N]; c[M,N] = a[M,N]*s[N] + b[0,N]", false, /* the constant is read as it is too */
      "ahead t0\nsplit t0 R0 4\nsplit t0 S0 4\nreorder t0 R0.0 S0.0 | R0.1 S0.1\nvectorize t0 S0.1", "k.scratch = (u8 *)packed + 0;" },
    { "a=f32:9x5&b=f32:67x5:const", "s[N] +=! b[K,N]; c[M,N] = a[M,N]*s[N]", false, /* and where not, partial sums lie behind all else */
      "ahead t0\nsplit t0 R0 4\nsplit t0 S0 4\nreorder t0 R0.0 S0.0 | R0.1 S0.1\nvectorize t0 S0.1", "k.scratch = (u8 *)packed + 64;" },
    { "x=f32:2x3x7x9&w=f32:4x3x3x3", "o[N,F,P,Q] +=! pad(x, 0.0)[N,C,P+R-1,Q+S-1]*w[F,C,R,S] where P in 7, Q in 9", false,
      "fuse out0 X S0 S2 S3\nfuse out0 K R0 R1 R2\nsplit out0 X 4\nsplit out0 S1 4\nsplit out0 K 4\nreorder out0 X.0 S1.0 K.0 | X.1 S1.1 K.1\n"
      "parallel out0 X.0\ntensorize out0 X.1 gemm4", "k_call_gemm4_0(" },
    { "a=f32:17x19&b=f32:19x23", PRODUCT, true,
      "split out0 S0 2 4\nsplit out0 S1 2 4\nsplit out0 R0 4\nreorder out0 S0.0 S1.0 | S0.1 S1.1 | R0.0 | S0.2 S1.2 R0.1\nbind out0 S0.0 grid\n"
      "bind out0 S1.0 grid\nbind out0 S0.1 thread\nbind out0 S1.1 thread\ntensorize out0 S0.2 gemm4", "k_call_gemm4_0(" },
    { "x=f32:1x2x9x7&w=f32:3x2x3x3", "o[N,F,P,Q] +=! x[N,C,P*2+R,Q*2+S]*w[F,C,R,S] where P in 4, Q in 3", false, /* a loop of one image inside */
      "split out0 S2 16\nreorder out0 R0.0 S3.0 S2.0 R1.0 R2.0 S0.0 S1.0 | S2.1\ntensorize out0 S2.1 fma16\nunroll out0 S1.0", "k_call_fma16_0" },
    { "a=f32:3x4x5&b=f32:3x5x6", "c[B,M,N] +=! a[B,M,K]*b[B,K,N]", false, /* a sum's axis of one step, of which a tile has four */
      "divide out0 R0 DO3 DI3 5\nsplit out0 S2 4\nsplit out0 S1 4\nsplit out0 DO3 4\n"
      "reorder out0 S0.0 S1.0 S2.0 DO3.0 DI3.0 | S2.1 S1.1 DO3.1\ntensorize out0 S2.1 gemmt4", "k_call_gemmt4_0(" },
    { "a=f16:17x19&b=f16:19x23", "c[M,N] +=! cast(a[M,K],f32)*cast(b[K,N],f32)", true,
      "split out0 S0 4\nsplit out0 S1 4 4\nsplit out0 R0 4\nreorder out0 S0.0 S1.0 | S1.1 | R0.0 | S0.1 S1.2 R0.1\nbind out0 S0.0 grid\n"
      "bind out0 S1.0 grid\nbind out0 S1.1 thread\ntensorize out0 S0.1 half4\n"
      "cache_read out0 1 shared R0.0 loops R0.1 S1.1 S1.2", "k_call_half4_0(" },
};

static kn_hw *device(kiln_arena *a, bool gpu)
{
    kn_hw *hw = kn_new(a, kn_hw);
    *hw = (kn_hw){ .id = "test", .name = "test", .vendor = "test", .gpu = gpu, .language = gpu ? "cuda" : "c", .arch = gpu ? "sm_80" : "x86-64",
                   .max_threads_per_block = gpu ? 1024 : 1, .max_shared_per_block = 49152, .vector_bytes = 16, .units = 1, .lanes = 1,
                   .canon = { "test", 4 } };
    add_instructions(a, hw);
    return hw;
}

static bool run(const kiln_program *p, const kiln_kernel *k, bool gpu, worker_verdict *v, worker_error *e)
{
    static const char *const flags[] = { "-O2", "-ffp-contract=fast", "-mfma", "-mavx2", "-mavx512f", "-mavx512vnni" };
    const char *const *features; /* as many of the flags as this machine can run: natively here, emulated elsewhere */
    int nfeatures = worker_host_features(&features), nflags = 1;
    for (int i = 0; i < nfeatures; i++) {
        nflags = !strcmp(features[i], "fma") && nflags < 3 ? 3 : nflags;
        nflags = !strcmp(features[i], "avx2") && nflags < 4 ? 4 : nflags;
        nflags = !strcmp(features[i], "avx512f") && nflags < 5 ? 5 : nflags;
        nflags = !strcmp(features[i], "avx512vnni") ? 6 : nflags;
    }
    worker_blob so = { 0 }, ptx = { 0 }, cubin = { 0 };
    char *log = NULL;
    if (gpu) {
        bool built = !tools.nvrtc[0] || worker_compile_cuda(&tools, k->source, "sm_80", true, false, 20000, &ptx, &cubin, &log, e);
        free(ptx.p);
        free(cubin.p);
        free(log);
        return built && worker_emulate(&tools, p, k, 2000 * SLOWER, v, e);
    }
    bool ok = worker_compile_c(&tools, k->source, flags, nflags, 20000, &so, e) && worker_verify_cpu(&tools, p, k, &so, 500 * SLOWER, v, e);
    free(so.p);
    return ok;
}

static void kernels_are_right(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){ NULL, mem, NULL });
        kiln_request *r;
        kiln_kernel *k;
        kiln_diag d = { 0 };
        worker_verdict v = { 0 };
        worker_error e = { 0 };
        kn_hw *hw = device(a, cases[i].gpu);
        if (kiln_request_text(a, fixture_text(cases[i].expr), fixture_text(cases[i].inputs), NULL, &r, &d))
            fail_msg("%zu: %s", i, d.message);
        if (kiln_generate(a, r->program, hw, fixture_text(cases[i].trace), &k, &d)) fail_msg("%zu: %s", i, d.message);
        if (!strstr(k->source.p, cases[i].has)) fail_msg("%zu: no call in\n%s", i, k->source.p);
        if (!run(r->program, k, cases[i].gpu, &v, &e)) fail_msg("%zu: %s %s\n%s", i, e.slug, e.message, k->source.p);
        if (!v.ok || !v.all_written || v.checked != v.total)
            fail_msg("%zu: %lld of %lld elements, %s\n%s", i, (long long)v.checked, (long long)v.total, v.detail, k->source.p);
        kiln_arena_close(a);
    }
}

/* Calls in the loop of the sum at `from`; -1: it begins with a question. */
static int calls_in(const char *from)
{
    const char *body = strchr(from, '\n') + 1, *end = strstr(body, "}\n");
    int n = 0;
    if (!strncmp(body + strspn(body, " "), "if", 2)) return -1;
    for (const char *c = strstr(body, " = k_call_"); c && c < end; c = strstr(c + 1, " = k_call_")) n++;
    return n;
}

/* Tiles of six rows by two vectors, whole and at the end of the rows: which they are is asked in front of the sum, not at each of its terms, and at
 * the end there are calls for the rows that are left alone. */
static void tiles_ask_in_front_of_their_sums(void **state)
{
    static const struct { const char *a; int left; } one[] = {{"a=i8:19x22", 1}, {"a=i8:23x24", 5}, {"a=i8:18x22", 0}, {"a=i8:7x44", 1}};
    static const char *const traces[] = { /* whichever of the factors comes first in the program's canonical form */
        "widen out0 0 wide i16\n" WORDS("2") "words_i8\nprepack out0 1 S1.0 R0.0 S1.1 S1.2 R0.1",
        "widen out0 1 wide i16\n" WORDS("2") "words_i8\nprepack out0 0 S1.0 R0.0 S1.1 S1.2 R0.1",
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){ NULL, mem, NULL });
        kiln_request *r;
        kiln_kernel *k = NULL;
        kiln_diag d = { 0 };
        char inputs[100];
        int calls[4] = { 0 }, loops = 0;
        snprintf(inputs, sizeof inputs, "%s&b=i8:%sx32:const", one[i].a, strchr(one[i].a, 'x') + 1);
        kn_hw *hw = device(a, false);
        if (kiln_request_text(a, fixture_text("c[M,N] +=! cast(a[M,K],i32)*cast(b[K,N],i32)"), fixture_text(inputs), NULL, &r, &d) ||
            (kiln_generate(a, r->program, hw, fixture_text(traces[0]), &k, &d) && kiln_generate(a, r->program, hw, fixture_text(traces[1]), &k, &d)))
            fail_msg("%s: %s", inputs, d.message);
        for (const char *at = strstr(k->source.p, "_R0_0_"); at && loops < 4; at = strstr(strchr(at, '\n'), "_R0_0_")) {
            const char *line = at;
            while (line[-1] != '\n') line--;
            if (!strncmp(line + strspn(line, " "), "for", 3)) calls[loops++] = calls_in(line);
        }
        bool ends = one[i].left > 0;
        if (loops != 1 + ends || calls[0] != 12 || calls[1] != 2 * one[i].left)
            fail_msg("%s: %d loops of %d and %d calls\n%s", inputs, loops, calls[0], calls[1], k->source.p);
        kiln_arena_close(a);
    }
}

/* What is packed ahead past the caches has arrived when the entry that packs returns. */
static void packing_waits_for_its_stores(void **state)
{
    (void)state;
    kiln_arena *a = kiln_arena_open(&(kiln_host){ NULL, mem, NULL });
    kiln_request *r;
    kiln_kernel *k = NULL;
    kiln_diag d = { 0 };
    worker_verdict v = { 0 };
    worker_error e = { 0 };
    kn_hw *hw = device(a, false);
    hw->streaming_store_bytes = 4096;
    hw->vector_bytes = 64;
    kiln_bytes text = fixture_text("s[N] = exp(b[N]); c[M,N] = a[M,N]*s[N] + b[N]");
    if (kiln_request_text(a, text, fixture_text("a=f32:3x1024&b=f32:1024:const"), NULL, &r, &d) ||
        kiln_generate(a, r->program, hw, fixture_text("ahead t0\nsplit t0 S0 16\nreorder t0 S0.0 S0.1\nvectorize t0 S0.1"), &k, &d))
        fail_msg("%s", d.message);
    const char *entry = strstr(k->source.p, "_prepack_"), *end = entry ? strstr(entry, "\n}\n") : NULL;
    const char *wait = entry ? strstr(entry, "KN_STREAMED();") : NULL;
    if (!strstr(k->source.p, "    k_stream_f32x16(") || !wait || !end || wait > end) fail_msg("no waiting in\n%s", k->source.p);
    if (!run(r->program, k, false, &v, &e) || !v.ok || !v.all_written) fail_msg("%s %s %s", e.slug, e.message, v.detail);
    kiln_arena_close(a);
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "child")) return child_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_are_right),
        cmocka_unit_test(tiles_ask_in_front_of_their_sums),
        cmocka_unit_test(packing_waits_for_its_stores),
    };
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
