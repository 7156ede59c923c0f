/* The default policy on a table of programs and every shipped hwspec: traces apply, fit the device, are the same bytes each time, come quickly. */
#include "tests/arena.h"
#include "tests/unit/device.h"
#include "block/block.h"
#include "construct/construct.h"
#include <stdarg.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char *const ids[] = {"x86-64-avx2", "x86-64-avx512", "x86-64-bf16", "x86-64-amx", "nvidia-v100", "nvidia-a100",
                                  "nvidia-h100", "nvidia-h200", "nvidia-k80", "amd-mi50", "x86-64-vnni", "arm-neoverse-n1",
                                  "arm-mali-g76", "huawei-ascend910", "amos-units"};
enum { NIDS = sizeof ids / sizeof ids[0] };

static const struct { const char *text, *inputs; } programs[] = {
    {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:512x512&b=f32:512x512"},
    {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:127x131&b=f32:131x113"},
    {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:1x1&b=f32:1x1"},
    {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:1x4096&b=f32:4096x1000"},
    {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:65536x1024&b=f32:1024x2"},
    {"c[M,N] +=! a[M,K]*b[N,K]", "a=f32:128x2048&b=f32:1000x2048"},
    {"c[M,N] +=! a[K,M]*b[K,N]", "a=f32:333x77&b=f32:333x95"},
    {"c[M,N] +=! a[M,K]*b[K,N]", "a=f16:256x256&b=f16:256x256"},
    {"c[M,N] +=! cast(a[M,K],i32)*cast(b[K,N],i32)", "a=i8:64x64&b=i8:64x64"},
    {"c[B,M,N] +=! a[B,M,K]*b[B,K,N]", "a=f32:12x128x64&b=f32:12x64x128"},
    {"t[M,N] +=! a[M,K]*b[K,N]; y[M,N] = max(t[M,N]+v[N], 0.0)", "a=f32:64x96&b=f32:96x80&v=f32:80"},
    {"y[N,F,P,Q] +=! pad(x,0.0)[N,C,P+R-1,Q+S-1]*w[F,C,R,S] where P in 56, Q in 56", "x=f32:1x64x56x56&w=f32:64x64x3x3"},
    {"y[N,F,P,Q] +=! pad(x,0.0)[N,C,P*2+R-3,Q*2+S-3]*w[F,C,R,S] where P in 112, Q in 112", "x=f32:1x3x224x224&w=f32:64x3x7x7"},
    {"y[N,F,P,Q] +=! x[N,C,P+R*2,Q+S*2]*w[F,C,R,S]", "x=f32:2x5x13x17&w=f32:7x5x3x3"},
    {"y[N,F,P,Q] +=! x[N,C,P,Q]*w[F,C]", "x=f32:2x32x14x14&w=f32:64x32"},
    {"y[N,G,F,P,Q] +=! x[N,G,C,P+R,Q+S]*w[G,F,C,R,S]", "x=f32:1x4x8x16x16&w=f32:4x8x8x3x3"},
    {"y[N,C,P,Q] +=! pad(x,0.0)[N,C,P+R-1,Q+S-1]*w[C,R,S] where P in 28, Q in 28", "x=f32:1x96x28x28&w=f32:96x3x3"},
    {"y[N,C,P,Q] >=! x[N,C,P*2+R,Q*2+S] where P in 28, Q in 28, R in 2, S in 2", "x=f32:1x64x56x56"},
    {"t[N,C,P,Q] +=! pad(x,0.0)[N,C,P+R-1,Q+S-1] where P in 17, Q in 17, R in 3, S in 3; y[N,C,P,Q] = t[N,C,P,Q]/9.0", "x=f32:2x7x17x17"},
    {"y[I] +=! x[I,J]", "x=f32:1024x1000"},
    {"y[J] +=! x[I,J]", "x=f32:1021x1013"},
    {"y[] +=! x[I,J]", "x=f32:333x777"},
    {"y[I] >=! x[I,J]", "x=f32:3x5"},
    {"m[I] >=! x[I,J]; e[I,J] = exp(x[I,J]-m[I]); s[I] +=! e[I,J]; y[I,J] = e[I,J]/s[I]", "x=f32:256x1000"},
    {"u[N] +=! x[N,C]; t[N] +=! (x[N,C]-u[N]/extent(C))*(x[N,C]-u[N]/extent(C)); "
     "y[N,C] = (x[N,C]-u[N]/extent(C))*rsqrt(t[N]/extent(C)+1e-5)*g[C]+b[C]", "x=f32:128x768&g=f32:768&b=f32:768"},
    {"y[J,I] = x[I,J]", "x=f32:1000x777"},
    {"y[I] = max(x[I], 0.0)", "x=f32:1048577"},
    {"y[I,J] = x[I,J] + v[J]", "x=f32:31x37&v=f32:37"},
    {"y[I,J,K] = x[I,J,K] * v[I,K]", "x=f32:17x11x3&v=f32:17x3"},
    {"in x: f32[]; y[] = x[] * 2.0", ""},
    {"y[I] = x[I]", "x=f32:2147483647"},
};
enum { NPROGRAMS = sizeof programs / sizeof programs[0] };

static kiln_arena *arena(void) { return kiln_arena_open(&(kiln_host){NULL, mem, NULL}); }

static kn_program *program(kiln_arena *a, int i)
{
    kn_program *p = NULL, *canonical = NULL;
    int in[KILN_MAX_TENSORS], out[KILN_MAX_TENSORS];
    kiln_diag d = {0};
    kiln_bytes text = {programs[i].text, strlen(programs[i].text)}, inputs = {programs[i].inputs, strlen(programs[i].inputs)};
    if (kn_parse(a, text, inputs, &p, &d) || kn_canon(a, p, &canonical, in, out, &d)) fail_msg("program %d: %s", i, d.message);
    return canonical;
}

/* The program of a text with its inputs in it, in canonical form. */
static kn_program *parsed(kiln_arena *a, const char *text)
{
    kn_program *p = NULL, *canonical = NULL;
    int in[KILN_MAX_TENSORS], out[KILN_MAX_TENSORS];
    kiln_diag d = {0};
    if (kn_parse(a, (kiln_bytes){text, strlen(text)}, (kiln_bytes){"", 0}, &p, &d)) fail_msg("%s: %s", text, d.message);
    assert_int_equal(kn_canon(a, p, &canonical, in, out, &d), KILN_OK);
    return canonical;
}

static kiln_candidates *candidates(kiln_arena *a, const kn_program *p, const kn_hw *hw, int k, int i)
{
    kiln_candidates *c = NULL;
    kiln_diag d = {0};
    kiln_status s = kn_policy_find("default")->construct(a, p, hw, k, &c, &d);
    if (s) fail_msg("program %d on %s: %s", i, hw->id, d.message);
    return c;
}

static void check_fits(const kn_tree *t, const kn_hw *hw, const kiln_candidate *c)
{
    for (int k = 0; k < t->nstages; k++) {
        const kn_stage *g = t->stages[k];
        int64_t bytes = 0, threads = 1;
        for (int i = 0; i < g->ncaches; i++) bytes += kn_cache_bytes(t, g, &g->caches[i]);
        for (int i = 0; i < g->nloops; i++) if (g->loops[i].kind == KN_THREAD) threads *= g->loops[i].extent;
        if (hw->gpu) assert_true(bytes <= hw->max_shared_per_block && threads <= hw->max_threads_per_block);
        else assert_true(bytes <= 64 << 20);
    }
    assert_true(c->predicted_us > 0);
    assert_non_null(c->bottleneck);
    assert_int_equal(c->summary.p[0], '{');
}

/* The tree's block form passes the validator. */
static void check_blocks(kiln_arena *a, const kn_tree *t, const kn_hw *hw, int i, kiln_bytes trace)
{
    kn_blocks *b;
    kiln_diag d = {0};
    if (!kn_blocks_of_tree(a, t, hw, &b, &d) && !kn_blocks_check(b, hw, &d)) return;
    fail_msg("program %d on %s: %s\n%.*s", i, hw->id, d.message, (int)trace.n, trace.p);
}

static void traces_apply(void **state)
{
    (void)state;
    for (int i = 0; i < NPROGRAMS; i++) {
        for (int h = 0; h < NIDS; h++) {
            kiln_arena *a = arena();
            kn_hw *hw = device(a, ids[h]);
            kn_program *p = program(a, i);
            kiln_candidates *c = candidates(a, p, hw, 10, i);
            assert_in_range(c->n, 1, 10);
            for (int r = 0; r < c->n; r++) {
                kn_tree *t;
                kiln_diag d = {0};
                if (kn_trace_apply(a, p, hw, c->c[r].trace, &t, &d)) fail_msg("program %d on %s: %s", i, ids[h], d.message);
                check_fits(t, hw, &c->c[r]);
                if (r < 3) check_blocks(a, t, hw, i, c->c[r].trace);
                assert_int_equal(c->c[r].rank, r);
                if (r && t->nstages == 1) assert_true(c->c[r].predicted_us >= c->c[r - 1].predicted_us);
            }
            kiln_arena_close(a);
        }
    }
}

static void same_bytes_twice(void **state)
{
    (void)state;
    for (int i = 0; i < NPROGRAMS; i += 3) {
        for (int h = 1; h < NIDS; h += 3) {
            kiln_arena *a = arena(), *b = arena();
            kiln_candidates *x = candidates(a, program(a, i), device(a, ids[h]), 5, i);
            kiln_candidates *y = candidates(b, program(b, i), device(b, ids[h]), 5, i);
            assert_int_equal(x->n, y->n);
            for (int r = 0; r < x->n; r++) {
                assert_int_equal(x->c[r].trace.n, y->c[r].trace.n);
                assert_memory_equal(x->c[r].trace.p, y->c[r].trace.p, x->c[r].trace.n);
                assert_memory_equal(x->c[r].summary.p, y->c[r].summary.p, x->c[r].summary.n);
            }
            kiln_arena_close(a);
            kiln_arena_close(b);
        }
    }
}

static bool says(const kiln_candidate *c, const char *word) { return strstr(c->trace.p, word) != NULL; }

/* What a large contraction must have: registers, lanes and packing on a core; threads, shared memory and a reduce step on a GPU. */
static void contraction_tiles(void **state)
{
    (void)state;
    kiln_arena *a = arena();
    kn_program *p = program(a, 0);
    kiln_candidates *cpu = candidates(a, p, device(a, "x86-64-avx512"), 10, 0), *gpu = candidates(a, p, device(a, "nvidia-v100"), 10, 0);
    kiln_candidates *tensor = candidates(a, p, device(a, "nvidia-h200"), 10, 0);
    assert_true(says(&cpu->c[0], "vectorize") && says(&cpu->c[0], "unroll") && says(&cpu->c[0], "parallel"));
    assert_true(says(&gpu->c[0], "vthread") && says(&gpu->c[0], "shared"));
    assert_true(says(&tensor->c[0], "warp") && says(&tensor->c[0], "async") && says(&tensor->c[0], "tensorize"));
    assert_true(cpu->n >= 5 && gpu->n >= 5);
    kiln_arena_close(a);
}

static void shaping(void **state)
{
    (void)state;
    kiln_arena *a = arena();
    kn_hw *hw = device(a, "x86-64-avx512");
    assert_true(says(&candidates(a, program(a, 10), hw, 1, 10)->c[0], "epilogue"));  /* bias and relu on a matmul */
    assert_true(says(&candidates(a, program(a, 19), hw, 1, 19)->c[0], "rfactor") ||
                says(&candidates(a, program(a, 19), hw, 1, 19)->c[0], "vectorize"));
    static const char leaky[] = "in a: f32[64,64]; in b: f32[64,64]; in v: f32[64]; t[M,N] +=! a[M,K]*b[K,N]; u[M,N] = t[M,N]+v[N]; "
                                "y[M,N] = select(u[M,N]<0.0, u[M,N]*0.1, u[M,N])"; /* finishes the sum that it reads three times */
    assert_true(says(&candidates(a, parsed(a, leaky), hw, 1, 0)->c[0], "inline t1\nepilogue t0\n"));
    static const char places[] = "in x: f32[32,64]; in u: f32[1000]; c[Q] = cast(floor(u[Q]), i32) : i32; y[N,Q] = x[N,c[Q]]";
    assert_false(says(&candidates(a, parsed(a, places), hw, 1, 0)->c[0], "inline")); /* each row would compute them again, lane by lane */
    assert_true(says(&candidates(a, program(a, 14), hw, 1, 14)->c[0], "fuse")); /* a 1x1 convolution's image is one axis */
    kiln_arena_close(a);
}

static bool tasks_along(kiln_arena *a, const kn_hw *hw, const char *text, char axis)
{
    char line[40];
    const kn_program *canonical = parsed(a, text);
    snprintf(line, sizeof line, "parallel out0 S%c.0\n", axis);
    return says(&candidates(a, canonical, hw, 1, 0)->c[0], line);
}

/* Products with weights on few cores: these share the rows where what each then reads of the weights is less than what it would read of the others'
 * rows, and where there are fewer panels than cores; else the panels of the weights. A window's bands are as many as leave none waiting. */
static void cores_share(void **state)
{
    (void)state;
    kiln_arena *a = arena();
    kn_hw *hw = device(a, "x86-64-amx");
    assert_int_equal(hw->units, 2);
    assert_true(tasks_along(a, hw, "in x: f32[196,96]; in w: f32[576,96] const; y[P,N] +=! x[P,K]*w[N,K]", '0'));
    assert_true(tasks_along(a, hw, "in x: f32[196,384]; in w: f32[64,384] const; y[P,N] +=! x[P,K]*w[N,K]", '0'));
    assert_true(tasks_along(a, hw, "in x: f32[49,512]; in w: f32[2048,512] const; y[P,N] +=! x[P,K]*w[N,K]", '1'));
    static const char window[] = "in x: f32[28,28,128]; in w: f32[128,128,3,3] const; y[P,Q,F] +=! pad(x,0.0)[P+R-1,Q+S-1,C]*w[F,C,R,S] "
                                 "where P in 28, Q in 28";
    const kn_program *canonical = parsed(a, window);
    assert_true(says(&candidates(a, canonical, hw, 1, 0)->c[0], "split out0 S0 7\n")); /* 4 bands, not 7 */
    kiln_arena_close(a);
}

/* Products of halves on a core with an instruction for them: it is what is tried first, and a constant factor is packed ahead. */
static void halves_go_to_their_instruction(void **state)
{
    (void)state;
    kiln_arena *a = arena();
    kn_hw *hw = device(a, "x86-64-bf16");
    for (int constant = 0; constant < 2; constant++) {
        const char *text = kn_format(a, "in a: bf16[128,256]; in b: bf16[256,96]%s; c[M,N] +=! cast(a[M,K],f32)*cast(b[K,N],f32)",
                                     constant ? " const" : "");
        const kn_program *canonical = parsed(a, text);
        const kiln_candidate *first = &candidates(a, canonical, hw, 1, 0)->c[0];
        assert_true(says(first, constant ? "tensorize out0 S1.2 vdpbf16ps" : "tensorize out0 S1.3 vdpbf16ps"));
        assert_true(says(first, "prepack out0 ") == constant);
    }
    /* Panels of an operand that is near are as wide as leaves no vector empty, of one that is far whole lines. */
    assert_true(says(&candidates(a, parsed(a, "in a: bf16[600,82]; in b: bf16[82,40]; c[M,N] +=! cast(a[M,K],f32)*cast(b[K,N],f32)"), hw, 1, 0)->c[0],
                     "split out0 S1 1 3 16\n"));
    assert_true(says(&candidates(a, parsed(a, "in a: bf16[600,2000]; in b: bf16[2000,1096]; c[M,N] +=! cast(a[M,K],f32)*cast(b[K,N],f32)"), hw, 1,
                                 0)->c[0], " 4 16\n"));
    /* Results that nearly fill L2 are written row by row, smaller ones panel by panel. */
    static const char product[] = "in a: f32[4,%d,64]; in b: f32[4,64,%d]; c[B,M,N] +=! a[B,M,K]*b[B,K,N]";
    assert_true(says(&candidates(a, parsed(a, kn_format(a, product, 512, 512)), hw, 1, 0)->c[0], "| S1.1 S2.1 R0.0 |"));
    assert_true(says(&candidates(a, parsed(a, kn_format(a, product, 256, 256)), hw, 1, 0)->c[0], "| S1.1 R0.0 |"));
    kiln_arena_close(a);
}

/* What depends on a constant alone is done before the first call: sums that correct for signs, beside the packed factor, and layouts of an
 * instruction. Of what is no constant there is nothing to do. */
static void constants_go_ahead(void **state)
{
    static const struct { const char *text, *ahead, *packed; } one[] = {
        {"in a: i8[128,256]; in b: i8[256,96]%s; c[M,N] +=! cast(a[M,K],i32)*cast(b[K,N],i32)", "ahead sum0\n", "\nprepack less0 "},
        {"in a: i8[128,256]; in b: i8[96,256]%s; t[M,N] +=! cast(a[M,K],i32)*cast(b[N,K],i32); c[M,N] = cast(t[M,N],f32)*0.5", "ahead sum0\n",
         "\nprepack less0 "},
        {"in x: i8[1,64,28,28]; in w: i8[64,64,3,3]%s; y[N,F,P,Q] +=! cast(pad(x,0)[N,C,P+R-1,Q+S-1],i32)*cast(w[F,C,R,S],i32) "
         "where P in 28, Q in 28", "ahead sum2\n", "\nprepack less2 "},
        {"in x: u8[1,64,28,28]; in w: i8[7,64,3,3]%s; y[N,F,P,Q] +=! cast(pad(x,0)[N,C,P+R-1,Q+S-1],i32)*cast(w[F,C,R,S],i32) "
         "where P in 28, Q in 28", "ahead out0_b\n", "map out0 vpdpbusd"},
    };
    (void)state;
    for (size_t i = 0; i < 2 * sizeof one / sizeof *one; i++) {
        kiln_arena *a = arena();
        bool constant = i % 2;
        const char *text = kn_format(a, one[i / 2].text, constant ? " const" : "");
        const kn_program *canonical = parsed(a, text);
        const kiln_candidate *first = &candidates(a, canonical, device(a, "x86-64-bf16"), 1, 0)->c[0];
        if (says(first, one[i / 2].ahead) != constant || (constant && !says(first, one[i / 2].packed))) fail_msg("%s\n%s", text, first->trace.p);
        kiln_arena_close(a);
    }
}

/* Convolutions with the channels first: where lanes along their places would be idle, or an instruction wants the channels, those are turned to lie
 * last, and weights that are no constant in squares as they are packed; not where the planes are large, or results or terms no whole vectors, or
 * sums of one run of terms leave few lanes idle at an image's end. */
static void results_are_turned(void **state)
{
    static const struct { const char *dtype, *x, *w, *of; int places; bool turned; } one[] = {
        {"f32", "1,256,14,14", "256,256,3,3", " const", 14, true}, {"f32", "1,256,14,14", "256,256,3,3", "", 14, true},
        {"f32", "1,512,7,7", "512,512,3,3", "", 7, true}, {"bf16", "1,512,7,7", "512,512,3,3", "", 7, true},
        {"f32", "1,1024,7,7", "1024,1024,1,1", "", 9, false}, {"f32", "1,64,112,112", "64,64,3,3", "", 112, false},
        {"f32", "1,64,112,112", "64,64,3,3", " const", 112, false}, {"bf16", "1,64,28,28", "64,64,3,3", " const", 28, true},
        {"bf16", "1,64,28,28", "64,64,1,1", " const", 30, false}, {"f32", "1,3,14,14", "64,3,3,3", " const", 14, false},
        {"f32", "1,2048,7,7", "512,2048,1,1", " const", 9, true}, {"f32", "1,256,14,14", "18,256,3,3", " const", 14, false},
        {"f32", "1,2048,14,14", "512,2048,1,1", " const", 16, false},
        {"bf16", "1,256,58,58", "64,256,1,1", " const", 60, false}, {"bf16", "1,256,12,12", "512,256,1,1", " const", 14, true},
        {"bf16", "1,120,47,47", "370,120,1,1", " const", 49, false}, {"f32", "1,64,56,56", "64,64,3,3", "", 56, true},
        {"f32", "1,40,56,56", "64,40,3,3", "", 56, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = arena();
        const char *text = kn_format(a, "in x: %s[%s]; in w: %s[%s]%s; y[N,F,P,Q] +=! pad(x,0.0)[N,C,P+R-1,Q+S-1]*w[F,C,R,S] where P in %d, Q in %d",
                                     one[i].dtype, one[i].x, one[i].dtype, one[i].w, one[i].of, one[i].places, one[i].places);
        const kiln_candidate *first = &candidates(a, parsed(a, text), device(a, "x86-64-bf16"), 1, 0)->c[0];
        bool squares = says(first, "transform_layout lanes_last 0 2 3 1\n"), turned = squares || says(first, "transform_layout turned0 0 2 3 1\n");
        if (turned != one[i].turned || (squares && *one[i].of)) fail_msg("%s\n%s", text, first->trace.p);
        kiln_arena_close(a);
    }
}

/* A window's weights that are no constant are read as they lie where their rows are vectors near each other; constant ones are packed ahead. */
static void small_weights_lie(void **state)
{
    static const struct { const char *w, *of; bool lie; } one[] = {
        {"5,5,22,48", "", true}, {"5,5,22,40", "", true}, {"5,5,22,48", " const", false}, {"5,5,22,600", "", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = arena();
        const char *text = kn_format(a, "in x: f32[2,15,15,22]; in w: f32[%s]%s; y[N,P,Q,F] +=! x[N,P+R,Q+S,C]*w[R,S,C,F] where P in 11, Q in 11",
                                     one[i].w, one[i].of);
        const kiln_candidate *first = &candidates(a, parsed(a, text), device(a, "x86-64-bf16"), 1, 0)->c[0];
        bool lie = !says(first, "cache_read ") && !says(first, "prepack ") && !says(first, "flatten_window ");
        if (lie != one[i].lie) fail_msg("%s\n%s", text, first->trace.p);
        kiln_arena_close(a);
    }
}

/* A sum in parts whose terms' own dimension the parts share is turned like a whole one. */
static void parts_are_turned(void **state)
{
    (void)state;
    kiln_arena *a = arena();
    const char *text = "in x: f32[1,377,7,7]; in w: f32[46,377,7,7] const; "
                       "y[N,F,P,Q] +=! pad(x,0.0)[N,C,P+R-3,Q+S-3]*w[F,C,R,S] where P in 7, Q in 7";
    const kiln_candidate *first = &candidates(a, parsed(a, text), device(a, "x86-64-bf16"), 1, 0)->c[0];
    if (!says(first, "part out0 ") || !says(first, "transform_layout turned0 0 1 3 4 2\n")) fail_msg("%s", first->trace.p);
    kiln_arena_close(a);
}

/* Convolutions with the channels last and so few results that lanes along these would be idle: they get the channels first, where the window meets
 * each element often enough to pay for turning it; not with results that fill vectors, one tap, or rows as short as the window; with few registers
 * not where a third of the lanes would be idle. */
static void few_results_go_outside(void **state)
{
    static const struct { const char *x, *w; int p, q; bool planar, on_avx2; } one[] = {
        {"2,47,71,109", "7,7,109,9", 41, 65, true, true}, {"1,40,40,64", "5,5,64,10", 36, 36, true, true},
        {"1,40,40,64", "5,5,64,16", 36, 36, false, false}, {"1,58,58,64", "3,3,64,12", 56, 56, true, false},
        {"1,40,40,64", "1,1,64,10", 40, 40, false, false}, {"1,11,11,64", "9,9,64,14", 3, 3, false, false},
    };
    (void)state;
    for (size_t i = 0; i < 2 * sizeof one / sizeof *one; i++) {
        bool avx2 = i % 2, planar = avx2 ? one[i / 2].on_avx2 : one[i / 2].planar;
        kiln_arena *a = arena();
        const char *text = kn_format(a, "in x: f32[%s]; in w: f32[%s]; y[N,P,Q,F] +=! x[N,P+R,Q+S,C]*w[R,S,C,F] where P in %d, Q in %d", one[i / 2].x,
                                     one[i / 2].w, one[i / 2].p, one[i / 2].q);
        const kiln_candidate *first = &candidates(a, parsed(a, text), device(a, avx2 ? "x86-64-avx2" : "x86-64-bf16"), 1, 0)->c[0];
        if (says(first, "transform_layout turned0 0 3 1 2\n") != planar) fail_msg("%s\n%s", text, first->trace.p);
        kiln_arena_close(a);
    }
}

/* One window inside of each of many planes: a vector of them is turned as it is copied, also where several images have them; not where the window
 * is all of a plane. */
static void lone_windows_are_turned(void **state)
{
    static const struct { const char *text; bool turned; } one[] = {
        {"in x: f32[2,235,5,5]; y[N,C,P,Q] >=! x[N,C,P*4+R,Q*4+S] where P in 1, Q in 1, R in 4, S in 4", true},
        {"in x: f32[1,235,5,5]; t[N,C] +=! x[N,C,R,S+1] where R in 4, S in 4; y[N,C] = t[N,C]/16.0", true},
        {"in x: f32[2,235,4,4]; y[N,C,P,Q] >=! x[N,C,P*4+R,Q*4+S] where P in 1, Q in 1, R in 4, S in 4", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = arena();
        const kiln_candidate *first = &candidates(a, parsed(a, one[i].text), device(a, "x86-64-bf16"), 1, 0)->c[0];
        if (says(first, " region last ") != one[i].turned) fail_msg("%s\n%s", one[i].text, first->trace.p);
        kiln_arena_close(a);
    }
}

/* A small window with columns in padding, which would be asked for one by one: its rows are held, though few terms are saved. */
static void padded_rows_are_held(void **state)
{
    static const struct { const char *device; int columns; bool held; } one[] = {
        {"x86-64-bf16", 42, true}, {"x86-64-bf16", 416, false}, {"x86-64-avx2", 42, true}, {"x86-64-avx2", 104, true}, {"x86-64-avx2", 416, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = arena();
        const kn_program *canonical = parsed(a, kn_format(a, "in x: f32[2,130,54,%d]; y[N,C,P,Q] +=! pad(x,0.0)[N,C,P+R,Q+S] where P in 54, Q in %d, "
                                                             "R in 2, S in 2", one[i].columns, one[i].columns));
        const kiln_candidate *first = &candidates(a, canonical, device(a, one[i].device), 1, 0)->c[0];
        if (says(first, "separate out0 R0 rows0 inside\n") != one[i].held) fail_msg("%zu\n%s", i, first->trace.p);
        kiln_arena_close(a);
    }
}

/* A window beside the lanes (channels last) goes place by place where it has no padding. */
static void windows_beside_lanes(void **state)
{
    (void)state;
    kiln_arena *a = arena();
    kn_hw *hw = device(a, "x86-64-bf16");
    for (int padded = 0; padded < 2; padded++) {
        const char *text = kn_format(a, "in x: f32[1,28,28,128]; y[N,P,Q,C] >=! %s[N,P+R,Q+S,C] where P in 27, Q in %d, R in 2, S in 2",
                                     padded ? "pad(x,-inf)" : "x", padded ? 28 : 27);
        const kn_program *canonical = parsed(a, text);
        const kiln_candidate *first = &candidates(a, canonical, hw, 1, 0)->c[0];
        if (says(first, "unroll out0 S2.2\n") != padded) fail_msg("%s\n%s", text, first->trace.p);
    }
    kiln_arena_close(a);
}

/* Windows that overlap in both directions beside the lanes have tiles of places in both, also on rows that these do not divide; sums of few terms so
 * rather than rows first, maxima of many rows first. What a tile reads of all lanes stays in L1, else tiles go along the places. */
static void squares_beside_lanes(void **state)
{
    static const struct { const char *text, *has; bool separate; } one[] = {
        {"in x: f32[1,28,28,64]; in w: f32[3,3,64]; y[P,Q,C] +=! pad(x,0.0)[0,P+R-1,Q+S-1,C]*w[R,S,C] where P in 28, Q in 28", "S1.0 S2.0 |", false},
        {"in x: f32[1,27,28,640]; in w: f32[3,3,640]; y[P,Q,C] +=! pad(x,0.0)[0,P+R-1,Q+S-1,C]*w[R,S,C] where P in 27, Q in 28",
         "S2.0 | S1.1", false},
        {"in x: f32[1,28,28,64]; y[P,Q,C] +=! pad(x,0.0)[0,P+R-1,Q+S-1,C] where P in 28, Q in 28, R in 3, S in 3", "S1.0 S2.0 |", false},
        {"in x: f32[1,28,28,64]; y[P,Q,C] >=! pad(x,-inf)[0,P+R-2,Q+S-2,C] where P in 28, Q in 28, R in 5, S in 5", "", true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = arena();
        const kiln_candidate *first = &candidates(a, parsed(a, one[i].text), device(a, "x86-64-bf16"), 1, 0)->c[0];
        bool both = says(first, "split out0 S0 2\n") && says(first, "unroll out0 S0.1\n");
        if (both == one[i].separate || says(first, "separate out0 ") != one[i].separate || !says(first, one[i].has))
            fail_msg("%s\n%s", one[i].text, first->trace.p);
        kiln_arena_close(a);
    }
}

#define OWN_TAPS "y[P,Q,C] +=! pad(x,0.0)[0,P+R-%d,Q+S-%d,C]*w[R,S,C] where P in %d, Q in %d"

/* Larger windows write a row of taps out over as many places as registers hold with what these read, and go down the image; along rows first where L1
 * holds these. Columns that fall into so few of its sets that not even a tile's rows stay there are copied, and a line's vectors are taken together
 * where no square would; few channels leave cores rows. Small windows do so where squares hold fewer places, and L2 the image. */
static void taps_beside_lanes(void **state)
{
    static const struct { int taps, rows, columns, channels; const char *has[4]; } one[] = {
        {7, 14, 14, 100, {"split out0 S1 7\n", "| S0.0 S1.0 R0.0 R1.0 |", "unroll out0 R1.0\n", "parallel out0 S2.0\n"}},
        {7, 12, 12, 100, {"split out0 S1 6\n", "| S0.0 S1.0 R0.0 R1.0 |", "unroll out0 R1.0\n", "parallel out0 S2.0\n"}},
        {7, 56, 56, 100, {"split out0 S1 7\n", "| S1.0 S0.0 R0.0 R1.0 |", "unroll out0 R1.0\n", "parallel out0 S2.0\n"}},
        {7, 14, 14, 128, {"split out0 S2 2 8\n", "| S2.1 S1.0 S0.0 R0.0 R1.0 |", "unroll out0 R1.0\n", "scratch S2.0 region"}},
        {7, 14, 14, 512, {"split out0 S2 2 8\n", "| S0.0 S1.0 R0.0 R1.0 | S1.1 S2.1 S2.2", "unroll out0 R1.0\n", "scratch S2.0 region"}},
        {7, 60, 14, 20, {"split out0 S1 7\n", "split out0 S0 20\n", "| S0.1 S1.0 R0.0 R1.0 |", "parallel out0 S0.0\n"}},
        {5, 14, 14, 100, {"split out0 S1 7\n", "| S0.0 S1.0 R0.0 R1.0 |", "unroll out0 R1.0\n", "parallel out0 S2.0\n"}},
        {5, 84, 84, 100, {"split out0 S0 2\n", "S0.1 S1.2", "unroll out0 R0.0\n", "unroll out0 R1.0\n"}},
        {3, 14, 14, 100, {"split out0 S0 2\n", "S0.1 S1.2", "unroll out0 R0.0\n", "unroll out0 R1.0\n"}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = arena();
        char text[256];
        snprintf(text, sizeof text, "in x: f32[1,%d,%d,%d]; in w: f32[%d,%d,%d]; " OWN_TAPS, one[i].rows, one[i].columns, one[i].channels,
                 one[i].taps, one[i].taps, one[i].channels, one[i].taps / 2, one[i].taps / 2, one[i].rows, one[i].columns);
        const kiln_candidate *first = &candidates(a, parsed(a, text), device(a, "x86-64-avx2"), 1, 0)->c[0];
        for (int k = 0; k < 4; k++)
            if (!says(first, one[i].has[k])) fail_msg("%zu: no '%s' in\n%s", i, one[i].has[k], first->trace.p);
        kiln_arena_close(a);
    }
}

/* Planes that are turned to be lanes: rows of several tiles have half as many places in each where few registers are to hold what these read too. */
static void turned_planes_hold_what_they_read(void **state)
{
    static const struct { const char *device; int columns, step; const char *places; } one[] = {
        {"x86-64-avx2", 28, 1, "split lanes S3 7\n"}, {"x86-64-avx2", 14, 1, "split lanes S3 14\n"}, {"x86-64-avx2", 33, 1, "split lanes S3 11\n"},
        {"x86-64-avx2", 28, 2, "split lanes S3 14\n"}, {"x86-64-bf16", 28, 1, "split lanes S3 14\n"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = arena();
        int n = one[i].columns * one[i].step;
        const kn_program *canonical = parsed(a, kn_format(a, "in x: f32[1,64,%d,%d]; in w: f32[64,1,7,7]; y[N,C,P,Q] +=! pad(x,0.0)[N,C,P*%d+R-3,"
                                                             "Q*%d+S-3]*w[C,0,R,S] where P in %d, Q in %d",
                                                          n, n, one[i].step, one[i].step, one[i].columns, one[i].columns));
        const kiln_candidates *all = candidates(a, canonical, device(a, one[i].device), 4, 0);
        bool some = false;
        for (int c = 0; c < all->n; c++) some |= says(&all->c[c], one[i].places);
        if (!some) fail_msg("%zu\n%s", i, all->c[0].trace.p);
        kiln_arena_close(a);
    }
}

/* Maps have the lanes of what they compute with: quantization computes with floats, small floats are f32s then, comparisons have those of what they
 * compare; what converts alone, and what is chosen by what lies there, has those of its results. */
static void lanes_are_computed(void **state)
{
    static const struct { const char *text; int lanes; } one[] = {
        {"in x: f32[16,1024]; y[M,N] = cast(max(round(x[M,N]*0.25),0.0),u8)", 16},
        {"in x: f32[16,1024]; y[M,N] = cast(x[M,N],u8)", 64},
        {"in x: bf16[16,1024]; y[M,N] = x[M,N]*x[M,N]", 16},
        {"in x: f16[16,1024]; y[M,N] = cast(x[M,N],bf16)", 16},
        {"in x: f16[16,1024]; in z: f16[16,1024]; y[M,N] = x[M,N] < z[M,N]", 16},
        {"in x: i16[16,1024]; in z: i16[16,1024]; y[M,N] = x[M,N] < z[M,N]", 32},
        {"in c: bool[16,1024]; in x: u8[16,1024]; in z: u8[16,1024]; y[M,N] = select(c[M,N], x[M,N], z[M,N])", 64},
        {"in x: u8[16,1024]; in z: u8[16,1024]; y[M,N] = shl(x[M,N]*z[M,N],z[M,N])", 64},
        {"in x: i16[16,1024]; in z: i16[16,1024]; y[M,N] = abs(x[M,N])*z[M,N]", 32},
        {"in x: i16[16,1024]; in z: i16[16,1024]; y[M,N] = shl(x[M,N],z[M,N])", 16},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = arena();
        const kiln_candidate *first = &candidates(a, parsed(a, one[i].text), device(a, "x86-64-bf16"), 1, 0)->c[0];
        if (!says(first, kn_format(a, " %d\nreorder", one[i].lanes))) fail_msg("%s\n%s", one[i].text, first->trace.p);
        kiln_arena_close(a);
    }
}

/* Rows: a sum of exponentials, which are made in the same loop, has half the accumulators of one of what is only read. */
static void functions_are_few(void **state)
{
    (void)state;
    kiln_arena *a = arena();
    const char *text = "in x: f32[256,1000]; m[M] >=! x[M,N]; e[M,N] = exp(x[M,N]-m[M]); s[M] +=! e[M,N]; y[M,N] = e[M,N]/s[M]";
    const kiln_candidate *first = &candidates(a, parsed(a, text), device(a, "x86-64-bf16"), 1, 0)->c[0];
    if (!says(first, "split t2 R0 4 16\n") || !says(first, "split t0 R0 8 16\n")) fail_msg("%s", first->trace.p);
    kiln_arena_close(a);
}

/* The first candidate for an expression with its inputs on a core with a dot instruction. */
static const kiln_candidate *first_of(kiln_arena *a, const char *text, const char *inputs)
{
    kiln_request *r;
    kiln_candidates *list;
    kiln_diag d = {0};
    assert_int_equal(kiln_request_text(a, (kiln_bytes){text, strlen(text)}, (kiln_bytes){inputs, strlen(inputs)}, NULL, &r, &d), KILN_OK);
    assert_int_equal(kiln_construct(a, r->program, device(a, "x86-64-bf16"), "default", 1, &list, &d), KILN_OK);
    return &list->c[0];
}

/* Few rows of bytes: panels of an operand from far away, whose rows fall into few sets of the caches, are two lines wide, of others one. */
static void panels_are_two_lines(void **state)
{
    static const struct { int rows, columns, terms; bool two; } one[] = {
        {16, 4096, 1024, true}, {6, 3072, 2048, true}, {17, 4000, 1024, false}, {16, 1024, 512, false}, {128, 4096, 1024, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = arena();
        const char *inputs = kn_format(a, "a=i8:%dx%d&b=i8:%dx%d", one[i].rows, one[i].terms, one[i].terms, one[i].columns);
        const kiln_candidate *first = first_of(a, "c[M,N] +=! cast(a[M,K],i32)*cast(b[K,N],i32)", inputs);
        if (says(first, " 8 16\nsplit less0 S0 ") != one[i].two) fail_msg("%s\n%s", inputs, first->trace.p);
        kiln_arena_close(a);
    }
}

/* An operand of bytes or halves that is near is packed step by step for rows that one tile has all of; else, and further out, in blocks. */
static void near_operands_are_packed_by_steps(void **state)
{
    static const struct { const char *text, *inputs; bool steps; } one[] = {
        {"c[M,N] +=! cast(a[M,K],f32)*cast(b[K,N],f32)", "a=bf16:2x500&b=bf16:500x214", true},
        {"c[M,N] +=! cast(a[M,K],f32)*cast(b[K,N],f32)", "a=bf16:10x606&b=bf16:606x698", true},
        {"c[M,N] +=! cast(a[M,K],f32)*cast(b[K,N],f32)", "a=bf16:16x606&b=bf16:606x698", false},
        {"c[M,N] +=! cast(a[M,K],f32)*cast(b[K,N],f32)", "a=bf16:10x3000&b=bf16:3000x4000", false},
        {"c[M,N] +=! cast(a[M,K],i32)*cast(b[K,N],i32)", "a=u8:3x380&b=i8:380x804", true},
        {"c[M,N] +=! cast(a[M,K],i32)*cast(b[K,N],i32)", "a=u8:11x380&b=i8:380x804", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = arena();
        const kiln_candidate *first = first_of(a, one[i].text, one[i].inputs);
        if (says(first, "scratch R0.0 loops S1.2 S1.3 R0.1\n") != one[i].steps) fail_msg("%s\n%s", one[i].inputs, first->trace.p);
        kiln_arena_close(a);
    }
}

/* Places of a narrow image, of which every second one is read, fill an instruction's lanes together. */
static void narrow_images_are_flat(void **state)
{
    (void)state;
    kiln_arena *a = arena();
    const kiln_candidate *first = first_of(a, "y[N,F,P,Q] +=! x[N,C,P*2,Q*2]*w[F,C] where P in 6, Q in 6", "x=bf16:1x119x11x11&w=bf16:373x119");
    if (!says(first, "flatten_window ") || !says(first, "tensorize rows")) fail_msg("%s", first->trace.p);
    kiln_arena_close(a);
}

static int stop_now(void *user) { return ++*(int *)user > 0; }

/* A convolution of bytes: the fastest predicted mapping of all forms of the instruction first, the others behind it, each once. */
static void mappings_compete(void **state)
{
    (void)state;
    kiln_arena *a = arena();
    kiln_request *r;
    kiln_candidates *list;
    kiln_diag d = {0};
    static const char text[] = "y[N,F,P,Q] +=! cast(pad(x,0)[N,C,P+R-1,Q+S-1],i32)*cast(w[F,C,R,S],i32) where P in 28, Q in 28",
                      inputs[] = "x=u8:1x64x28x28&w=i8:7x64x3x3"; /* too few results for lanes along them */
    kn_hw *hw = device(a, "x86-64-vnni");
    assert_int_equal(kiln_request_text(a, (kiln_bytes){text, strlen(text)}, (kiln_bytes){inputs, strlen(inputs)}, NULL, &r, &d), KILN_OK);
    assert_int_equal(kiln_construct(a, r->program, hw, "default", 16, &list, &d), KILN_OK);
    int other = 0;
    assert_true(list->n > 4 && strstr(list->c[0].trace.p, "sample_mapping "));
    for (int i = 0; i < list->n; i++) {
        assert_true(list->c[i].predicted_us > 10 && list->c[i].predicted_us < 10000);
        other += strstr(list->c[i].trace.p, " vpdpbusd_bcst : ") != NULL;
        for (int k = 0; k < i; k++) assert_string_not_equal(list->c[i].summary.p, list->c[k].summary.p);
    }
    assert_true(other > 0 && other < list->n);
    kiln_arena_close(a);
}

/* What the program is generated to for a CPU with AVX-512. */
static kiln_kernel *generated(kiln_arena *a, kiln_bytes text, const char *inputs)
{
    kiln_request *r;
    kiln_candidates *list;
    kiln_kernel *k = NULL;
    kiln_diag d = {0};
    kn_hw *hw = device(a, "x86-64-avx512");
    if (kiln_request_text(a, text, (kiln_bytes){inputs, strlen(inputs)}, NULL, &r, &d) ||
        kiln_construct(a, r->program, hw, "default", 1, &list, &d) || kiln_generate(a, r->program, hw, list->c[0].trace, &k, &d))
        fail_msg("%s", d.message);
    return k;
}

/* Parts of parts (a roll over two axes, and again) are chosen for each element: code for each lane of each vector would keep the compiler busy for
 * seconds. */
static void choices_are_not_written_out(void **state)
{
    (void)state;
    kiln_arena *a = arena();
    static const char text[] = "r[I,J,C] = select(I < 2, select(J < 2, x[I+6,J+6,C], x[I+6,J-2,C]), "
                               "select(J < 2, x[I-2,J+6,C], x[I-2,J-2,C])) where I in 8, J in 8; "
                               "q[I,J,C] = select(I < 3, select(J < 3, r[I+5,J+5,C], r[I+5,J-3,C]), "
                               "select(J < 3, r[I-3,J+5,C], r[I-3,J-3,C])) where I in 8, J in 8; "
                               "y[I,J,C] = x[I,J,C] + q[I,J,C]", inputs[] = "x=f32:8x8x24";
    kiln_kernel *k = generated(a, (kiln_bytes){text, strlen(text)}, inputs);
    if (k->source.n > 50000) fail_msg("%zu bytes of source", k->source.n);
    kiln_arena_close(a);
}

/* Maps that are read once go into their readers, but not so many that a statement has more loads than one may have. */
static void inlining_ends_before_the_limit(void **state)
{
    (void)state;
    kiln_arena *a = arena();
    kn_buf b;
    kn_buf_init(&b, a);
    for (int n = 0; n < 4; n++) {
        kn_putf(&b, "%st%d[I] = 0.0", n ? "; " : "", n);
        if (n) kn_putf(&b, " + t%d[I]", n - 1);
        for (int k = 0; k < 25; k++) kn_putf(&b, " + x[I+%d]", n * 25 + k);
        kn_put(&b, " where I in 40");
    }
    assert_non_null(generated(a, kn_buf_take(&b), "x=f32:140"));
    kiln_arena_close(a);
}

/* Quotients and remainders of places by constants are operators of the language, in vectors too, which compilers need no division for. */
static void places_are_divided_by_constants(void **state)
{
    (void)state;
    kiln_arena *a = arena();
    static const char text[] = "y[I,J] = x[I,J//2]*(cast((J*56+84)%112,f32)/112.0) + cast((J*3+1)//7,f32) where J in 64", inputs[] = "x=f32:9x32";
    kiln_kernel *k = generated(a, (kiln_bytes){text, strlen(text)}, inputs);
    assert_non_null(strstr(k->source.p, "i64x16"));
    assert_null(strstr(k->source.p, "k_mod_"));
    assert_null(strstr(k->source.p, "k_div_"));
    kiln_arena_close(a);
}

/* Which of two tensors an element comes from is said once for a vector by an axis of its own, and by a mask where it changes along the lanes. */
static void choices_take_vectors(void **state)
{
    (void)state;
    static const struct { const char *text, *inputs; } one[] = {
        {"y[I,C,P,Q] = select(C<13, a[I,C,P,Q], b[I,C-13,P,Q]) where C in 21", "a=f32:3x13x9x11&b=f32:3x8x9x11"},
        {"y[I,J,K] = select(J<=K, a[I,J,K], 0.0)", "a=f32:4x70x96"},
        {"y[I,J,K] = select(K<J, -1.0, a[I,J,K])", "a=f32:4x70x96"},
    };
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = arena();
        kiln_kernel *k = generated(a, (kiln_bytes){one[i].text, strlen(one[i].text)}, one[i].inputs);
        assert_non_null(strstr(k->source.p, "u *)(in0_b"));
        if (strstr(k->source.p, "? in0_b")) fail_msg("%s: lane by lane\n%s", one[i].text, k->source.p);
        kiln_arena_close(a);
    }
}

/* A prefix of blocks: places whose remainder says which terms count have them masked, as tiles begin with blocks. */
static void remainders_are_lanes(void **state)
{
    (void)state;
    static const char text[] = "y[M,S] +=! select(I<=S%16, pad(x,0.0)[M,S//16*16+I], 0.0) where S in 320, I in 16";
    kiln_arena *a = arena();
    kiln_kernel *k = generated(a, (kiln_bytes){text, strlen(text)}, "x=f32:9x320");
    if (strstr(k->source.p, "k_mod_i64(")) fail_msg("lane by lane\n%s", k->trace.p);
    kiln_arena_close(a);
}

/* The last columns of a softmax along an outer axis are computed in vectors, as the others are. */
static void last_columns_take_vectors(void **state)
{
    (void)state;
    static const char text[] = "m[N,W] >=! x[N,C,W]; e[N,C,W] = exp(x[N,C,W]-m[N,W]); s[N,W] +=! e[N,C,W]; y[N,C,W] = e[N,C,W]/s[N,W]";
    kiln_arena *a = arena();
    kiln_kernel *k = generated(a, (kiln_bytes){text, strlen(text)}, "x=f32:3x21x201");
    assert_non_null(strstr(k->source.p, "k_exp_f32x16("));
    if (strstr(k->source.p, "expf(")) fail_msg("element by element\n%s", k->trace.p);
    kiln_arena_close(a);
}

/* Register tiles of sums whose terms are but read: places of a window that have elements in common, also where it steps by more than one of them;
 * several rows of columns written out. Sums of a few terms, by where their results go. */
static void bare_tiles(void **state)
{
    static const struct { const char *text, *inputs, *has; } one[] = {
        {"y[N,P,Q,C] +=! pad(x,0.0)[N,P*2+R-2,Q*2+S-2,C]*w[R,S,C] where P in 42, Q in 42", "x=f32:1x83x83x84&w=f32:5x5x84", "unroll out0 S2.2"},
        {"y[N,P,Q,C] +=! x[N,P*2+R,Q*2+S,C] where P in 20, Q in 29, R in 7, S in 2", "x=f32:1x45x58x133", "unroll out0 S1.2"},
        {"y[J] +=! x[I,J]", "x=f32:49x2048", "split out0 R0 7"},
        {"y[J] >=! x[I,J]", "x=f32:4096x1024", "unroll parts R0.0"},
        {"y[J] +=! cast(x[I,J],i32)", "x=i8:1000x512", "split out0 S0 4 64\n"}, /* whole lines of bytes */
        {"y[P,Q,F] +=! cast(pad(x,0)[P+R-1,Q+S-1,C],i32)*cast(w[R,S,C,F],i32) where P in 7, Q in 7", "x=u8:7x7x512&w=i8:3x3x512x512",
         "split out0 S2 4 16\n"}, /* also where they are packed for few places */
        {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:16384x2&b=f32:2x1024:const", "split out0 S0 16 1\n"}, /* results that go out to memory: row by row */
        {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:2000x4&b=f32:4x700", "split out0 S0 1 4\n"}, /* nearer ones of several rows at once */
        {"y[F,C,R,S] +=! x[C,P,Q]*pad(z,0.0)[F,R+P-1,S+Q-1] where R in 3, S in 3", "x=f32:32x32x32&z=f32:32x32x32",
         "cache_write out0 turned0"}, /* few places of a long window are not made one axis */
        {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:7x333&b=f32:333x9", "split out0 S1 1 16\n"}, /* too short for tasks: nothing is cut for them */
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = arena();
        kn_program *p, *c;
        int in[KILN_MAX_TENSORS], out[KILN_MAX_TENSORS];
        kiln_diag d = {0};
        kiln_candidates *list = NULL;
        if (kn_parse(a, (kiln_bytes){one[i].text, strlen(one[i].text)}, (kiln_bytes){one[i].inputs, strlen(one[i].inputs)}, &p, &d) ||
            kn_canon(a, p, &c, in, out, &d) || kn_policy_find("default")->construct(a, c, device(a, "x86-64-bf16"), 1, &list, &d))
            fail_msg("%s: %s", one[i].inputs, d.message);
        if (!strstr(list->c[0].trace.p, one[i].has)) fail_msg("%s: no '%s' in\n%s", one[i].text, one[i].has, list->c[0].trace.p);
        kiln_arena_close(a);
    }
}

/* Transposed convolutions: what weights are numbered by is no window, a copy has them in order; phases of as many weights are one axis with the
 * channels, those of fewer are loops of their own around the taps. Few places: the channels are the lanes, whose weights are packed. */
static void phases_are_convolutions(void **state)
{
#define EVEN(places) "in w: f32[64,32,4,4]%s; in x: f32[64," places "]; t[F,G,H,A,B] +=! pad(x,0.0)[C,A-R,B-S]*w[C,F,G+R*2,H+S*2] " \
    "where G in 2, H in 2, R in 2, S in 2, A in "
#define UNEVEN(places) "in w: f32[64,32,3,3]%s; in x: f32[64," places "]; t[F,G,H,A,B] +=! pad(x,0.0)[C,A-R+1,B-S+1]*" \
    "pad(w,0.0)[C,F,G+R*2-1,H+S*2-1] where G in 2, H in 2, R in 2, S in 2, A in "
    static const struct { const char *text, *has, *never; } one[] = {
        {EVEN("28,28") "29, B in 29", "fuse rows1 F1 F0 S2", "plane2"},
        {EVEN("4,4") "5, B in 5", "prepack turned0", "weights0"},
        {UNEVEN("28,28") "28, B in 28", "| R0.0 S0.1 R1.0 R2.0 R0.1 |", "fuse rows1"},
        {UNEVEN("4,4") "4, B in 4", "prepack turned0", "weights0"},
    };
    (void)state;
    for (size_t i = 0; i < 2 * sizeof one / sizeof *one; i++) {
        kiln_arena *a = arena();
        bool constant = i % 2;
        const char *text = kn_format(a, one[i / 2].text, constant ? " const" : "");
        const kiln_candidate *first = &candidates(a, parsed(a, text), device(a, "x86-64-bf16"), 1, 0)->c[0];
        bool copied = says(first, "reindex "), turned = says(first, "turned0");
        if (turned != (constant && strstr(one[i / 2].has, "turned0")) || copied == turned) fail_msg("%s\n%s", text, first->trace.p);
        if (constant && (!says(first, one[i / 2].has) || says(first, one[i / 2].never))) fail_msg("%s\n%s", text, first->trace.p);
        if (copied && says(first, "ahead ") != constant) fail_msg("%s\n%s", text, first->trace.p);
        kiln_arena_close(a);
    }
}

static void stops_when_told(void **state)
{
    (void)state;
    int polls = 0;
    kiln_arena *plain = arena(), *a = kiln_arena_open(&(kiln_host){&polls, mem, stop_now});
    kn_hw *hw = device(plain, "nvidia-v100");
    kn_program *p = program(plain, 11);
    kiln_candidates *c = NULL;
    kiln_diag d = {0};
    assert_int_equal(kn_policy_find("default")->construct(a, p, hw, 10, &c, &d), KILN_STOPPED);
    assert_null(c);
    kiln_arena_close(a);
    kiln_arena_close(plain);
}

static void policies(void **state)
{
    (void)state;
    assert_int_equal(kn_policies_count(), 2);
    assert_non_null(kn_policy_find("roller"));
    assert_null(kn_policy_find("Default"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(traces_apply), cmocka_unit_test(same_bytes_twice), cmocka_unit_test(contraction_tiles),
        cmocka_unit_test(shaping), cmocka_unit_test(cores_share), cmocka_unit_test(halves_go_to_their_instruction),
        cmocka_unit_test(constants_go_ahead), cmocka_unit_test(results_are_turned), cmocka_unit_test(few_results_go_outside),
        cmocka_unit_test(parts_are_turned), cmocka_unit_test(small_weights_lie), cmocka_unit_test(lone_windows_are_turned),
        cmocka_unit_test(windows_beside_lanes), cmocka_unit_test(squares_beside_lanes),
        cmocka_unit_test(taps_beside_lanes), cmocka_unit_test(turned_planes_hold_what_they_read), cmocka_unit_test(padded_rows_are_held),
        cmocka_unit_test(lanes_are_computed), cmocka_unit_test(functions_are_few),
        cmocka_unit_test(panels_are_two_lines), cmocka_unit_test(near_operands_are_packed_by_steps), cmocka_unit_test(narrow_images_are_flat),
        cmocka_unit_test(mappings_compete), cmocka_unit_test(places_are_divided_by_constants),
        cmocka_unit_test(choices_take_vectors), cmocka_unit_test(last_columns_take_vectors), cmocka_unit_test(remainders_are_lanes),
        cmocka_unit_test(choices_are_not_written_out), cmocka_unit_test(bare_tiles),
        cmocka_unit_test(phases_are_convolutions), cmocka_unit_test(inlining_ends_before_the_limit),
        cmocka_unit_test(stops_when_told), cmocka_unit_test(policies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
