/* Kernels that warps compute together: their text runs in the emulator and gives the reference's values, assembles without spills where there is an
 * assembler, and pipelines with a defect planted in them are caught. KILN_FULL=1: the whole grid and all defects (make emu-grid, emu-mutants). */
#include "tests/arena.h"
#include "tests/unit/device.h"
#include "workers/child.h"
#include "workers/emu.h"
#include "workers/emu_warp.h"
#include <dlfcn.h>
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/unit/request.h"

static worker_tools tools;
static bool full;

typedef struct program { const char *instruction, *target, *expr, *inputs; bool often; } program;
static const program programs[] = {
#define X(instruction, target, expr, inputs) {instruction, target, expr, inputs, false},
#define S(instruction, target, expr, inputs) {instruction, target, expr, inputs, true},
#define G(instruction, expr, large, inputs)
#include "tests/unit/warps.def"
};

static kiln_kernel *kernel(kiln_arena *a, const kiln_request *r, const kiln_hw *hw, kiln_bytes trace)
{
    kiln_kernel *k = NULL;
    kiln_diag d = {0};
    if (kiln_generate(a, r->program, hw, trace, &k, &d)) fail_msg("%s\n%s", d.message, trace.p);
    return k;
}

/* No local memory: accumulators and fragments are all in registers. */
static void assembles(const kiln_kernel *k, const char *arch, const char *what)
{
    worker_blob ptx = {0}, cubin = {0};
    worker_error e = {0};
    char *log = NULL;
    if (!tools.nvrtc[0]) return;
    if (!worker_compile_cuda(&tools, k->source, arch, true, true, 60000, &ptx, &cubin, &log, &e)) fail_msg("%s: %s", what, e.message);
    if (strstr(log, "(C75")) fail_msg("%s: %s", what, log);
    if (!strstr(log, "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads")) fail_msg("%s: %s", what, log);
    free(log);
    free(ptx.p);
    free(cubin.p);
}

static void run_one(const program *p, int rank)
{
    kiln_arena *a = kiln_arena_open(&(kiln_host){.mem = mem});
    kiln_hw *hw = device(a, p->target);
    kiln_request *r = request(a, p->expr, p->inputs);
    kiln_candidates *list = NULL;
    kiln_diag d = {0};
    worker_verdict v;
    worker_error e;
    char what[300], step[80];
    if (kiln_construct(a, r->program, hw, "default", rank + 1, &list, &d)) fail_msg("%s: %s", p->expr, d.message);
    const kiln_candidate *c = &list->c[list->n - 1];
    snprintf(what, sizeof what, "%s (%s), candidate %d", p->expr, p->inputs, list->n - 1);
    snprintf(step, sizeof step, " %s ", p->instruction);
    if (rank ? !strstr(c->trace.p, "mma_") : !strstr(c->trace.p, step)) fail_msg("%s is not computed by %s:\n%s", what, p->instruction, c->trace.p);
    kiln_kernel *k = kernel(a, r, hw, c->trace);
    if (!worker_emulate(&tools, r->program, k, full ? 4000 : 300, &v, &e)) fail_msg("%s: %s", what, e.message);
    if (!v.ok || strcmp(v.how, "emulated")) fail_msg("%s: %s\n%s", what, v.detail, c->trace.p);
    if (rank == 0 && (full || p == programs)) assembles(k, strcmp(p->target, "nvidia-a100") ? "sm_90a" : "sm_80", what);
    kiln_arena_close(a);
}

static void grid(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        for (int rank = 0; rank < (full ? 16 : 1); rank += 5)
            if (full || programs[i].often) run_one(&programs[i], rank);
}

typedef struct transfer { const char *instruction, *expr, *large, *inputs; } transfer;
static const transfer transfers[] = {
#define X(instruction, target, expr, inputs)
#define S(instruction, target, expr, inputs)
#define G(instruction, expr, large, inputs) {instruction, expr, large, inputs},
#include "tests/unit/warps.def"
};

/* The trace with the two loads named the other way round: which one is the first in canonical order depends on their shapes. */
static kiln_bytes other_way_round(char *text, size_t size, kiln_bytes trace)
{
    assert_true(trace.n < size);
    memcpy(text, trace.p, trace.n);
    text[trace.n] = 0;
    for (char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (strncmp(line, "cache_read", 10) && strncmp(line, "double_buffer", 13) && strncmp(line, "swizzle", 7)) continue;
        char *number = strchr(strchr(line, ' ') + 1, ' ') + 1;
        *number = *number == '0' ? '1' : '0';
    }
    return (kiln_bytes){text, trace.n};
}

/* A schedule of a large shape, found by its instruction, on a small one with tails. */
static void groups(void **state)
{
    (void)state;
    for (size_t i = 0; i < (full ? sizeof transfers / sizeof *transfers : 2); i++) {
        const transfer *t = &transfers[i];
        kiln_arena *a = kiln_arena_open(&(kiln_host){.mem = mem});
        kiln_hw *hw = device(a, "nvidia-h200");
        kiln_request *large = request(a, t->expr, t->large), *r = request(a, t->expr, t->inputs);
        kiln_candidates *list = NULL;
        kiln_diag d = {0};
        worker_verdict v;
        worker_error e;
        char step[80], turned[4096];
        int at = 0;
        snprintf(step, sizeof step, " %s ", t->instruction);
        if (kiln_construct(a, large->program, hw, "default", 16, &list, &d)) fail_msg("%s: %s", t->expr, d.message);
        kiln_kernel *k = NULL;
        for (; at < list->n; at++) { /* the first that the small shape allows too */
            kiln_bytes trace = list->c[at].trace;
            if (strstr(trace.p, step) && (!kiln_generate(a, r->program, hw, trace, &k, &d) ||
                !kiln_generate(a, r->program, hw, other_way_round(turned, sizeof turned, trace), &k, &d))) break;
        }
        if (at == list->n) fail_msg("%s (%s): no candidate with %s: %s", t->expr, t->large, t->instruction, d.message);
        if (!worker_emulate(&tools, r->program, k, full ? 4000 : 300, &v, &e)) fail_msg("%s: %s", t->expr, e.message);
        if (!v.ok || strcmp(v.how, "emulated")) fail_msg("%s (%s): %s\n%s", t->expr, t->inputs, v.detail, list->c[at].trace.p);
        if (full) assembles(kernel(a, large, hw, list->c[at].trace), "sm_90a", t->expr);
        kiln_arena_close(a);
    }
}

static const char pipeline[] =
    "split out0 S0 2 2 16\nsplit out0 S1 2 4 8\nsplit out0 R0 2 16\n"
    "reorder out0 S0.0 S1.0 | S0.1 S1.1 | R0.0 | R0.1 S0.2 S1.2 | S0.3 S1.3 R0.2\n"
    "bind out0 S0.0 grid\nbind out0 S1.0 grid\nbind out0 S0.1 warp\nbind out0 S1.1 warp\nunroll out0 R0.1\nunroll out0 S0.2\nunroll out0 S1.2\n"
    "cache_read out0 0 shared R0.0 loops S0.1 S0.2 S0.3 R0.1 R0.2\ncache_read out0 1 shared R0.0 loops R0.1 R0.2 S1.1 S1.2 S1.3\n"
    "double_buffer out0 0 3 async\ndouble_buffer out0 1 3 async\nswizzle out0 0\nswizzle out0 1\n"
    "tensorize out0 S0.3 mma_bf16 I=S0.3 J=S1.3 R=R0.2\n";

/* A defect: occurrence number `nth` (from the end where negative) of `find` becomes `put`. */
typedef struct mutant { const char *what, *find, *put; int nth; bool often; } mutant;
static const mutant mutants[] = {
    {"waits for one group too few", "KN_WAIT(1);", "KN_WAIT(2);", -1, true},
    {"does not wait for its copies", "KN_WAIT(1);", "", -1, false},
    {"no barrier between filling and reading", "KN_WAIT(1);\n        __syncthreads();", "KN_WAIT(1);", 1, true},
    {"the barrier stands before the wait", "KN_WAIT(1);\n        __syncthreads();", "__syncthreads();\n        KN_WAIT(1);", 1, true},
    {"an iteration without a group of its own", "KN_COMMIT();", "", -1, false},
    {"fills the stage that is read now", "_next_v55 % 3) * 2048", "_next_v55 + 1) % 3 * 2048", 1, true},
    {"reads the stage of the iteration before", "_R0_0_v54 % 3) * 2048", "_R0_0_v54 + 2) % 3 * 2048", 1, false},
    {"two stages where there are three", "_R0_0_v54 % 3) * 2048", "_R0_0_v54 % 2) * 2048", 1, false},
    {"another swizzle where it is written", "% 8) * 8)), in6", "% 4) * 8)), in6", 1, false},
    {"no swizzle where it is read", " ^ ((v4_lane_v4 % 8) * 8)", "", 1, true},
    {"rows that are not transposed", "        k_turned_4(", "        k_rows_4(", 1, false},
    {"another fragment's registers", "a3_b3_0.v[1], a3_b3_0.v[2]", "a3_b3_0.v[2], a3_b3_0.v[1]", 1, false},
    {"the last run of the sum is lost", " < 136", " < 128", 1, false},
    {"a row too many is stored", " < 100", " <= 100", -16, false},
    {"the first stage is filled with the second", "v18_fill_v18 * 4352", "v18_fill_v18 * 4352 + 32", 1, false},
    {"half of a tile is not filled", "for (int v62_fill_v62 = 0; v62_fill_v62 < 2", "for (int v62_fill_v62 = 0; v62_fill_v62 < 1", 1, false},
};

static char *planted(const kiln_kernel *k, const mutant *m)
{
    char *at[64], *text = calloc(1, k->source.n + 256), *out = calloc(1, k->source.n + 512);
    int n = 0;
    memcpy(text, k->source.p, k->source.n);
    for (char *s = strstr(text, m->find); s && n < 64; s = strstr(s + 1, m->find)) at[n++] = s;
    int i = m->nth > 0 ? m->nth - 1 : n + m->nth;
    if (i < 0 || i >= n) fail_msg("%s: the text has %d of \"%s\"", m->what, n, m->find);
    sprintf(out, "%.*s%s%s", (int)(at[i] - text), text, m->put, at[i] + strlen(m->find));
    free(text);
    return out;
}

static void planted_defects_are_caught(void **state)
{
    (void)state;
    kiln_arena *a = kiln_arena_open(&(kiln_host){.mem = mem});
    kiln_hw *hw = device(a, "nvidia-a100");
    kiln_request *r = request(a, "c[M,N] +=! a[M,K]*b[K,N]", "a=bf16:100x136&b=bf16:136x72");
    kiln_kernel *k = kernel(a, r, hw, (kiln_bytes){pipeline, sizeof pipeline - 1});
    int tried = 0, caught = 0;
    for (size_t i = 0; i < sizeof mutants / sizeof *mutants; i++) {
        worker_verdict v;
        worker_error e;
        if (!full && !mutants[i].often) continue;
        kiln_kernel bad = *k;
        char *text = planted(k, &mutants[i]);
        bad.source = (kiln_bytes){text, strlen(text)};
        if (!worker_emulate(&tools, r->program, &bad, full ? 2000 : 300, &v, &e)) fail_msg("%s: %s", mutants[i].what, e.message);
        bool named = !v.ok && !strcmp(v.how, "emulated");
        if (!named || full) print_message("%s: %s (%.100s)\n", mutants[i].what, named ? "caught" : "missed", v.detail);
        tried++;
        caught += named;
        free(text);
    }
    print_message("%d of %d planted defects caught\n", caught, tried);
    assert_int_equal(caught, tried);
    kiln_arena_close(a);
}

/* Traces that name a warp but cannot be a warp's, with what is said of them. */
static void refusals(void **state)
{
    static const struct { const char *find, *put, *says; } bad[] = {
        {"tensorize out0 S0.3 mma_bf16 I=S0.3 J=S1.3 R=R0.2\n", "", "no instruction is computed by its warps"},
        {"mma_bf16", "mma_f16", "bf16"},
        {"unroll out0 S0.2\n", "", "serial inside the reduction"},
        {"bind out0 S1.1 warp", "bind out0 S1.1 thread", "is bound to threads, others to warps"},
        {"double_buffer out0 1 3 async", "double_buffer out0 1 4 async", "have the same number"},
        {"3 async", "3 later", "'later' is not async"},
        {"S1.1 S1.2 S1.3\n", "S1.1 S1.2 S1.3 pad 8\n", "only whole rows can be swizzled"},
    };
    (void)state;
    kiln_arena *a = kiln_arena_open(&(kiln_host){.mem = mem});
    kiln_hw *hw = device(a, "nvidia-a100");
    kiln_request *r = request(a, "c[M,N] +=! a[M,K]*b[K,N]", "a=bf16:100x136&b=bf16:136x72");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[2048];
        kiln_kernel *k;
        kiln_diag d = {0};
        const char *at = strstr(pipeline, bad[i].find);
        assert_non_null(at);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - pipeline), pipeline, bad[i].put, at + strlen(bad[i].find));
        assert_int_not_equal(kiln_generate(a, r->program, hw, (kiln_bytes){text, strlen(text)}, &k, &d), KILN_OK);
        if (!strstr(d.message, bad[i].says)) fail_msg("\"%s\" -> \"%s\": %s", bad[i].find, bad[i].put, d.message);
    }
    kiln_arena_close(a);
}

/* The operation of a warp, its threads one after another: they run again for each mma.sync, those that all have done answered from what came out. */
static struct { int lane, at, known; float d[4][EMU_LANES][4]; int a[EMU_LANES][4], b[EMU_LANES][2]; } replay;

static void replayed_mma(const char *ptx, void *d, const int *a, const int *b)
{
    int n = replay.at++, lane = replay.lane;
    assert_true(n < 4);
    if (n < replay.known) {
        memcpy(d, replay.d[n][lane], sizeof replay.d[n][lane]);
    } else if (n == replay.known) {
        static emu_operands x[EMU_LANES];
        static const emu_operands *of[EMU_LANES];
        memcpy(replay.d[n][lane], d, sizeof replay.d[n][lane]);
        memcpy(replay.a[lane], a, sizeof replay.a[lane]);
        memcpy(replay.b[lane], b, sizeof replay.b[lane]);
        x[lane] = (emu_operands){replay.d[n][lane], replay.a[lane], replay.b[lane]};
        of[lane] = &x[lane];
        if (lane + 1 == EMU_LANES) assert_true(emu_mma_run(ptx, of));
    }
}

/* Returns whether a factor has to be taken apart in full. */
typedef int (*product_fn)(float *d, const int *a, const int *b);

/* A kernel's text with functions that run its instruction over factors in all parts and in halves, loaded. */
static void *loaded(const kiln_kernel *k, product_fn *product, product_fn *halves)
{
    worker_blob so = {0};
    worker_error e;
    size_t n = 0;
    char *text = emu_text(k, false, &n), *whole = calloc(1, n + 1024), dir[CHILD_DIR_BYTES], path[CHILD_DIR_BYTES + 16], why[200];
    int m = snprintf(whole, n + 1024, "%.*s\nint product(float *d, const int *a, const int *b)\n{\n"
                     "    int x[16], y[8];\n    for (int r = 0; r < 4; r++) { x[r] = a[r]; k_split(x + r, 4); }\n"
                     "    for (int r = 0; r < 2; r++) { y[r] = b[r]; k_split(y + r, 2); }\n"
                     "    k_call_mma_3xtf32_0(d, d + 1, d + 2, d + 3, x, y);\n    return 0;\n}\n"
                     "int halves(float *d, const int *a, const int *b)\n{\n    int x[16], y[8];\n    float odd = 0;\n"
                     "    for (int r = 0; r < 4; r++) { x[r] = a[r]; odd += k_halve(x + r, 4); }\n"
                     "    for (int r = 0; r < 2; r++) { y[r] = b[r]; odd += k_halve(y + r, 2); }\n"
                     "    k_call_mma_3xtf32_1(d, d + 1, d + 2, d + 3, x, y);\n    return !(odd - odd == 0);\n}\n", (int)n, text);
    if (!worker_compile_c(&tools, (kiln_bytes){whole, (size_t)m}, NULL, 0, 60000, &so, &e)) fail_msg("%s", e.message);
    if (!child_dir_make(&tools, dir, why, sizeof why)) fail_msg("%s", why);
    assert_true(child_dir_put(dir, "product.so", so.p, so.n));
    snprintf(path, sizeof path, "%s/product.so", dir);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL), *f, *hook;
    if (!library) fail_msg("%s", dlerror());
    child_dir_remove(dir);
    assert_non_null(f = dlsym(library, "product"));
    assert_non_null(hook = dlsym(library, "emu_mma"));
    memcpy(product, &f, sizeof f);
    assert_non_null(f = dlsym(library, "halves"));
    memcpy(halves, &f, sizeof f);
    void (*fn)(const char *, void *, const int *, const int *) = replayed_mma;
    memcpy(hook, &fn, sizeof fn);
    free(so.p);
    free(text);
    free(whole);
    return library;
}

/* d = a b by the instruction, its fragments as the PTX ISA lays them out. */
static bool multiply(product_fn product, const float a[16][8], const float b[8][8], float d[16][8])
{
    bool odd = false;
    replay.known = 0;
    do {
        for (int lane = 0; lane < EMU_LANES; lane++) {
            int g = lane / 4, q = lane % 4, ra[4], rb[2];
            float sum[4] = {0};
            for (int r = 0; r < 4; r++) memcpy(&ra[r], &a[g + 8 * (r % 2)][q + 4 * (r / 2)], sizeof ra[r]);
            for (int r = 0; r < 2; r++) memcpy(&rb[r], &b[q + 4 * r][g], sizeof rb[r]);
            replay.lane = lane;
            replay.at = 0;
            odd |= product(sum, ra, rb) != 0;
            for (int r = 0; r < 4; r++) d[g + 8 * (r / 2)][2 * q + r % 2] = sum[r];
        }
    } while (++replay.known <= replay.at);
    return odd;
}

static float of_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* All products of c by the instruction against the sums in double. What a factor has below 2^-136 is not kept. Returns whether a factor has to be
 * taken apart in full; then there is nothing to say of them. */
static bool right_product(product_fn product, const float a[16][8], const float b[8][8], const char *what)
{
    float d[16][8];
    if (multiply(product, a, b, d)) return true;
    for (int i = 0; i < 16; i++) {
        for (int j = 0; j < 8; j++) {
            double ref = 0, bound = 0;
            for (int k = 0; k < 8; k++) {
                ref += (double)a[i][k] * b[k][j];
                bound += 0x1p-21 * fabs((double)a[i][k] * b[k][j]) + 0x1p-136 * (fabs((double)a[i][k]) + fabs((double)b[k][j]));
            }
            bool close = fabs(d[i][j] - ref) <= bound, most = fabs(ref) > (1 - 0x1p-21) * FLT_MAX; /* there rounding decides */
            bool right = isnan(ref) ? isnan(d[i][j]) : (isfinite(ref) && close) || (most && d[i][j] == copysign(INFINITY, ref));
            if (!right) fail_msg("%s: c[%d,%d] is %g, not %g", what, i, j, d[i][j], ref);
        }
    }
    return false;
}

/* What is not finite comes out of split factors as out of whole ones; any two of these meet each other and ordinary values. */
static void split_factors_keep_infinities(void **state)
{
    (void)state;
    const float special[] = {INFINITY, -INFINITY, NAN, of_bits(0x7f800001), of_bits(0xffffffff), 0, -0.0f, 1, -1.1f, FLT_MAX, of_bits(0x807fffff),
                             of_bits(1), of_bits(0x80000fff)};
    enum { SPECIAL = sizeof special / sizeof *special };
    kiln_arena *arena = kiln_arena_open(&(kiln_host){.mem = mem});
    kiln_request *r = request(arena, "c[M,N] +=! a[M,K]*b[N,K]", "a=f32:64x64&b=f32:64x64");
    kiln_candidates *list = NULL;
    kiln_diag diag = {0};
    kiln_hw *hw = device(arena, "nvidia-a100");
    if (kiln_construct(arena, r->program, hw, "default", 1, &list, &diag)) fail_msg("%s", diag.message);
    product_fn product, halves;
    void *library = loaded(kernel(arena, r, hw, list->c[0].trace), &product, &halves);
    for (int t = 0; t < SPECIAL * SPECIAL; t++) {
        float a[16][8], b[8][8];
        char what[80];
        for (int x = 0; x < 16 * 8; x++) a[x / 8][x % 8] = (float)((x / 8 * 5 + x % 8 * 3) % 7 - 3) / 3 + 0.01f;
        for (int x = 0; x < 8 * 8; x++) b[x / 8][x % 8] = (float)((x / 8 * 5 + x % 8 * 2) % 11 - 5) / 7 + 0.01f;
        a[t % 16][t % 8] = special[t % SPECIAL];
        b[t % 8][t / 8 % 8] = special[t / SPECIAL];
        snprintf(what, sizeof what, "%g by %g", special[t % SPECIAL], special[t / SPECIAL]);
        assert_false(right_product(product, a, b, what));
        bool odd = !(special[t % SPECIAL] <= 0x1.ffdp127) || special[t % SPECIAL] < -FLT_MAX || !(special[t / SPECIAL] <= 0x1.ffdp127) ||
                   special[t / SPECIAL] < -FLT_MAX; /* not finite, or not once it is rounded */
        if (right_product(halves, a, b, what) != odd) fail_msg("%s is %staken apart in full", what, odd ? "not " : "");
    }
    dlclose(library);
    kiln_arena_close(arena);
}

/* The way on which a warp's factors are taken apart in full is there and right: taken by all of them, it gives the same. */
static void split_factors_in_full(void **state)
{
    static const mutant always = {"every warp takes its factors apart in full", "return (int)odd;", "return 1;", 1, true};
    (void)state;
    kiln_arena *a = kiln_arena_open(&(kiln_host){.mem = mem});
    kiln_hw *hw = device(a, "nvidia-a100");
    for (int turned = 0; turned < 2; turned++) {
        kiln_request *r = request(a, turned ? "c[M,N] +=! a[K,M]*b[N,K]" : "c[M,N] +=! a[M,K]*b[K,N]",
                                  turned ? "a=f32:83x100&b=f32:72x83" : "a=f32:100x84&b=f32:84x72");
        kiln_candidates *list = NULL;
        kiln_diag d = {0};
        worker_verdict v;
        worker_error e;
        if (kiln_construct(a, r->program, hw, "default", 1, &list, &d)) fail_msg("%s", d.message);
        kiln_kernel *k = kernel(a, r, hw, list->c[0].trace), full_way = *k;
        char *text = planted(k, &always);
        full_way.source = (kiln_bytes){text, strlen(text)};
        if (!worker_emulate(&tools, r->program, &full_way, 300, &v, &e)) fail_msg("%s", e.message);
        if (!v.ok || strcmp(v.how, "emulated")) fail_msg("%s\n%s", v.detail, list->c[0].trace.p);
        free(text);
    }
    kiln_arena_close(a);
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "child")) return child_main(argc, argv);
    full = getenv("KILN_FULL") != NULL;
    workers_find_tools("build", &tools);
    snprintf(tools.worker, sizeof tools.worker, "%s", argv[0]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals),
        cmocka_unit_test(planted_defects_are_caught),
        cmocka_unit_test(split_factors_keep_infinities),
        cmocka_unit_test(split_factors_in_full),
        cmocka_unit_test(grid),
        cmocka_unit_test(groups),
    };
    const struct CMUnitTest one[] = {cmocka_unit_test(planted_defects_are_caught)};
    if (argc > 1 && !strcmp(argv[1], "mutants")) return cmocka_run_group_tests(one, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
