/* Kernels that warps compute together: their text runs in the emulator and gives the reference's values, assembles without spills where there is an
 * assembler, and pipelines with a defect planted in them are caught. KILN_FULL=1: the whole grid and all defects (make emu-grid, emu-mutants). */
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
static bool full;

typedef struct program { const char *instruction, *target, *expr, *inputs; bool often; } program;
static const program programs[] = {
#define X(instruction, target, expr, inputs) {instruction, target, expr, inputs, false},
#define S(instruction, target, expr, inputs) {instruction, target, expr, inputs, true},
#define G(instruction, expr, large, inputs)
#include "tests/unit/warps.def"
};

static kiln_hw *device(kiln_arena *a, const char *id)
{
    char path[128], text[1 << 14];
    kiln_hw *hw = NULL;
    kiln_diag d = {0};
    snprintf(path, sizeof path, "hwspecs/%s.json", id);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    if (kiln_hw_parse(a, (kiln_bytes){text, n}, &hw, &d)) fail_msg("%s: %s", id, d.message);
    return hw;
}

static kiln_request *request(kiln_arena *a, const char *expr, const char *inputs)
{
    kiln_request *r = NULL;
    kiln_diag d = {0};
    kiln_bytes text = {expr, strlen(expr)}, list = {inputs, strlen(inputs)};
    if (kiln_request_text(a, text, list, NULL, &r, &d)) fail_msg("%s: %s", expr, d.message);
    return r;
}

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
        while (at < list->n && !strstr(list->c[at].trace.p, step)) at++;
        if (at == list->n) fail_msg("%s (%s): no candidate with %s", t->expr, t->large, t->instruction);
        kiln_kernel *k = NULL;
        if (kiln_generate(a, r->program, hw, list->c[at].trace, &k, &d))
            k = kernel(a, r, hw, other_way_round(turned, sizeof turned, list->c[at].trace));
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
    {"fills the stage that is read now", "_next_v63 % 3) * 2048", "_next_v63 + 1) % 3 * 2048", 1, true},
    {"reads the stage of the iteration before", "_R0_0_v62 % 3) * 2048", "_R0_0_v62 + 2) % 3 * 2048", 1, false},
    {"two stages where there are three", "_R0_0_v62 % 3) * 2048", "_R0_0_v62 % 2) * 2048", 1, false},
    {"another swizzle where it is written", "% 8) * 8)), in6", "% 4) * 8)), in6", 1, false},
    {"no swizzle where it is read", " ^ ((v4_lane_v4 % 8) * 8)", "", 1, true},
    {"rows that are not transposed", "        k_turned_4(", "        k_rows_4(", 1, false},
    {"another fragment's registers", "a3_b3_0.v[1], a3_b3_0.v[2]", "a3_b3_0.v[2], a3_b3_0.v[1]", 1, false},
    {"the last run of the sum is lost", " < 136", " < 128", 1, false},
    {"a row too many is stored", " < 100", " <= 100", -16, false},
    {"the first stage is filled with the second", "v24_k_v24 * 4352", "v24_k_v24 * 4352 + 32", 1, false},
    {"half of a tile is not filled", "for (int v70_fill_v70 = 0; v70_fill_v70 < 2", "for (int v70_fill_v70 = 0; v70_fill_v70 < 1", 1, false},
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

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "child")) return child_main(argc, argv);
    full = getenv("KILN_FULL") != NULL;
    workers_find_tools("build", &tools);
    snprintf(tools.worker, sizeof tools.worker, "%s", argv[0]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals),
        cmocka_unit_test(planted_defects_are_caught),
        cmocka_unit_test(grid),
        cmocka_unit_test(groups),
    };
    const struct CMUnitTest one[] = {cmocka_unit_test(planted_defects_are_caught)};
    if (argc > 1 && !strcmp(argv[1], "mutants")) return cmocka_run_group_tests(one, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
