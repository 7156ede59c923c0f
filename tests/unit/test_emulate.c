/* The CUDA emulator: right kernels pass, and every planted defect is caught with a sensible reason. */
#include "tests/arena.h"
#include "workers/child.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static worker_tools tools;
static const char *self;

typedef struct sample { const char *file, *expr, *inputs; int nargs, threads; int64_t grid; } sample;
static const sample samples[] = {
    {"sub", "c[I] = a[I] - b[I]", "a=f32:1000&b=f32:1000", 3, 256, 4},
    {"matmul", "c[M,N] +=! a[M,K] * b[K,N]", "a=f32:40x36&b=f32:36x48", 3, 256, 9},
    {"row_sum", "c[M] +=! a[M,K]", "a=f32:9x300", 2, 128, 9},
};
enum { SUB, MATMUL, ROW_SUM };

typedef struct mutant { int sample; const char *find, *put, *says; } mutant;
static const mutant mutants[] = {
    {SUB, "if (i < 1000)", "if (i <= 1000)", "past the end"},
    {SUB, "if (i < 1000)", "if (i < 999)", "never written"},
    {SUB, "in0[i] -", "in0[i] * 1.001f -", "the reference says"},
    {SUB, "in1[i]", "in1[i ^ 1]", "the reference says"},
    {SUB, "out0[i] =", "((float *)in0)[i] =", "read-only"},
    {SUB, "in0[i] -", "in0[i - 1] -", "before the start of input 0"},
    {MATMUL, "__syncthreads(); /* filled */", "", ""},
    {MATMUL, "__syncthreads(); /* read */", "", ""},
    {MATMUL, "k + tx < 36", "k + tx < 37", ""},
    {MATMUL, "k + ty < 36", "k + ty < 35", "the reference says"},
    {MATMUL, "if (m < 40)", "if (m <= 40)", "past the end of output 0"},
    {MATMUL, "k < 36; k += 16", "k < 32; k += 16", "the reference says"},
    {MATMUL, "n = blockIdx.x % 3", "n = blockIdx.x % 2", "never written"},
    {MATMUL, "float sum = 0.0f;", "float sum = 0.0f; if (m >= 40) return;", "divergent barrier"},
    {MATMUL, "__syncthreads(); /* filled */", "if (ty) __syncthreads(); else\n__syncthreads();", "divergent barrier"},
    {ROW_SUM, "part[threadIdx.x] = sum;\n    __syncthreads();", "part[threadIdx.x] = sum;", ""},
    {ROW_SUM, "__syncthreads(); /* level */", "", ""},
    {ROW_SUM, "i += 128", "i += 127", "the reference says"},
    {ROW_SUM, "part[threadIdx.x] += part[threadIdx.x + half];\n        }\n        __syncthreads();",
     "part[threadIdx.x] += part[threadIdx.x + half];\n        __syncthreads(); }", "divergent barrier"},
    {ROW_SUM, "if (threadIdx.x < half)", "if (threadIdx.x <= half && threadIdx.x + half < 128)", ""},
    {ROW_SUM, "if (threadIdx.x == 0)", "if (threadIdx.x == 0 && blockIdx.x)", "element 0 is never written"},
    {ROW_SUM, "sum += in0[blockIdx.x * 300 + i];", "sum += in0[blockIdx.x * 300 + i]; for (;;) ;", "did not end"},
};

static char *read_text(const char *file)
{
    char path[100];
    snprintf(path, sizeof path, "tests/emu/%s.cu", file);
    FILE *f = fopen(path, "rb");
    char *s = calloc(1, 1 << 16);
    assert_non_null(f);
    assert_non_null(s);
    assert_true(fread(s, 1, (1 << 16) - 1, f) > 0);
    fclose(f);
    return s;
}

static bool traffic;

static void emulate(const sample *s, const char *text, int budget_ms, worker_verdict *v)
{
    kiln_host host = {.mem = mem};
    kiln_arena *a = kiln_arena_open(&host);
    kiln_request *r = NULL;
    kiln_diag d = {0};
    worker_error e;
    kiln_bytes expr = {s->expr, strlen(s->expr)}, inputs = {s->inputs, strlen(s->inputs)};
    assert_int_equal(kiln_request_text(a, expr, inputs, NULL, &r, &d), KILN_OK);
    kiln_launch launch = {.entry = "kiln_test_0", .grid = s->grid, .threads = s->threads, .nargs = s->nargs, .args = {0, 1, 2}, .again = -1,
                          .program = r->program};
    kiln_kernel k = {.language = "cuda", .entry = "kiln_test", .source = {text, strlen(text)}, .nlaunches = 1, .launches = &launch};
    bool ran = (traffic ? worker_emulate_traffic : worker_emulate)(&tools, r->program, &k, budget_ms, v, &e);
    if (!ran) {
        print_error("%s\n", e.message);
    }
    assert_true(ran);
    kiln_arena_close(a);
}

static void right_ones_pass(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        worker_verdict v;
        char *text = read_text(samples[i].file);
        emulate(&samples[i], text, 1000, &v);
        if (!v.ok) {
            print_error("%s: %s\n", samples[i].file, v.detail);
        }
        assert_true(v.ok);
        assert_string_equal(v.how, "emulated");
        assert_true(v.all_written);
        assert_int_equal(v.checked, v.total);
        assert_true(v.max_error <= 1);
        free(text);
    }
}

static void mutants_are_caught(void **state)
{
    int missed = 0;
    (void)state;
    for (size_t i = 0; i < sizeof mutants / sizeof *mutants; i++) {
        const mutant *m = &mutants[i];
        worker_verdict v;
        char *text = read_text(samples[m->sample].file), *bad = calloc(1, 1 << 17), *at = strstr(text, m->find);
        assert_non_null(at);
        sprintf(bad, "%.*s%s%s", (int)(at - text), text, m->put, at + strlen(m->find));
        emulate(&samples[m->sample], bad, strcmp(m->says, "did not end") ? 1000 : 10, &v); /* 10: a short deadline */
        if (v.ok || strcmp(v.how, "emulated") != 0 || !strstr(v.detail, m->says)) {
            print_error("%s, \"%s\" -> \"%s\": %s \"%s\"\n", samples[m->sample].file, m->find, m->put, v.ok ? "passed" : "says", v.detail);
            missed++;
        }
        free(bad);
        free(text);
    }
    assert_int_equal(missed, 0);
}

/* Sectors and turns, in hundredths of the least, against what one counts by hand. */
static void traffic_is_counted(void **state)
{
#ifdef __SANITIZE_ADDRESS__
    skip(); /* its own functions are called instead of those that count */
#endif
    static const struct { int sample; const char *find, *put; int loads, stores, shared; } cases[] = {
        {SUB, "in1[i]", "in1[i]", 100, 100, 0},
        {SUB, "in0[i] - in1[i]", "in0[i] - in1[i] + in0[i % 125 * 8]", 333, 100, 0}, /* a sector a thread: 250 + 1000 of 250 + 125 */
        {SUB, "in1[i]", "in1[i - i % 8]", 159, 100, 0},                              /* 4 bytes of a sector: 4 in 16 bytes of a warp's */
        {SUB, "out0[i]", "out0[(i * 9) % 1000]", 100, 800, 0},
        {MATMUL, "r * 16 + tx", "r * 16 + tx", 0, 100, 100},
        {MATMUL, "b[r * 16 + tx]", "b[tx * 16 + r]", 0, 100, 429},                 /* 16 threads at 2 banks: 8 turns at every other access */
    };
    (void)state;
    traffic = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        worker_verdict v;
        char *text = read_text(samples[cases[i].sample].file), *other = calloc(1, 1 << 17), *at = strstr(text, cases[i].find);
        assert_non_null(at);
        sprintf(other, "%.*s%s%s", (int)(at - text), text, cases[i].put, at + strlen(cases[i].find));
        emulate(&samples[cases[i].sample], other, 1000, &v);
        const worker_traffic *t = &v.traffic;
        int64_t loads = 100 * t->load_sectors / t->load_least, stores = 100 * t->store_sectors / t->store_least;
        int64_t shared = t->shared_least ? 100 * t->shared_turns / t->shared_least : 0;
        if (!cases[i].loads) loads = 0; /* of which blocks they are depends on the time */
        if (loads != cases[i].loads || stores != cases[i].stores || shared != cases[i].shared)
            print_error("%s: loads %d, stores %d, shared %d\n", cases[i].put, (int)loads, (int)stores, (int)shared);
        assert_true(loads == cases[i].loads && stores == cases[i].stores && shared == cases[i].shared);
        free(other);
        free(text);
    }
    traffic = false;
}

static void text_that_does_not_compile_is_no_verdict(void **state)
{
    worker_verdict v;
    (void)state;
    emulate(&samples[0], "__global__ void kiln_test_0(float *p) { warp_magic(p) }", 50, &v);
    assert_false(v.ok);
    assert_string_equal(v.how, "");
    assert_non_null(strstr(v.detail, "does not compile"));
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "child") == 0) {
        return child_main(argc, argv);
    }
    self = argv[0];
    workers_find_tools("build", &tools);
    snprintf(tools.worker, sizeof tools.worker, "%s", self);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_ones_pass),
        cmocka_unit_test(mutants_are_caught),
        cmocka_unit_test(traffic_is_counted),
        cmocka_unit_test(text_that_does_not_compile_is_no_verdict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
