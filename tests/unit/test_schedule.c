/* Schedules: golden cases (tests/golden) and the property that a refused trace leaves the program as it was. */
#include "tests/arena.h"
#include "tests/unit/instructions.h"
#include "schedule/schedule.h"
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static kn_hw cpu = { .id = "cpu", .max_threads_per_block = 1 };
static kn_hw gpu = { .id = "gpu", .gpu = true, .max_threads_per_block = 1024, .max_shared_per_block = 49152 };

static kiln_bytes bytes(const char *s) { return (kiln_bytes){ s, strlen(s) }; }

/* The text after "key:" up to the next key or, for the last one, to the end; cuts the file text in place. */
static char *section(char *text, const char *key)
{
    char *p = strstr(text, key);
    if (!p) fail_msg("no '%s' in a golden file", key);
    return p;
}

/* What a case gives: the tree's text, or "refused: MESSAGE\n". */
static char *outcome(kiln_arena *a, const char *inputs, const char *text, const char *target, const char *trace)
{
    kn_program *p;
    kn_tree *t = NULL;
    kiln_diag d = { 0 };
    kn_buf b, before, after;
    if (kn_parse(a, bytes(text), bytes(inputs), &p, &d)) fail_msg("%s", d.message);
    kn_buf_init(&b, a);
    kn_buf_init(&before, a);
    kn_buf_init(&after, a);
    kn_print_program(&before, p);
    kiln_status st = kn_trace_apply(a, p, strcmp(target, "gpu") ? &cpu : &gpu, bytes(trace), &t, &d);
    kn_print_program(&after, p);
    assert_string_equal(kn_buf_take(&before).p, kn_buf_take(&after).p);
    if (st) {
        assert_null(t);
        kn_putf(&b, "refused: %s\n", d.message);
    } else {
        kn_tree_print(&b, t);
    }
    return (char *)kn_buf_take(&b).p;
}

static bool golden(const char *path)
{
    static char text[16384];
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("cannot open %s", path);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    char *inputs = section(text, "inputs:"), *expr = section(inputs, "\ntext:"), *target = section(expr, "\ntarget:");
    char *trace = section(target, "\ntrace:\n"), *want = section(trace, "\ntree:\n");
    *expr = *target = *trace = *want = 0;
    kiln_arena *a = kiln_arena_open(&(kiln_host){ NULL, mem, NULL });
    char *got = outcome(a, inputs + 7, expr + 6, target + 8, trace + 8);
    bool same = !strcmp(got, want + 7);
    if (!same) print_error("%s: got\n%s", path, got);
    kiln_arena_close(a);
    return same;
}

static void test_golden(void **state)
{
    (void)state;
    DIR *dir = opendir("tests/golden");
    assert_non_null(dir);
    int n = 0, bad = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        size_t len = strlen(e->d_name);
        if (len < 9 || strcmp(e->d_name + len - 9, ".schedule")) continue;
        char path[300];
        snprintf(path, sizeof path, "tests/golden/%s", e->d_name);
        bad += !golden(path);
        n++;
    }
    closedir(dir);
    assert_int_equal(bad, 0);
    assert_true(n >= 8);
}

#define MM "c[M,N] +=! a[M,K]*b[K,N]"
static const struct { const char *target, *trace, *want; } refusals[] = {
    { "cpu", "tile c M 4", "step 1 (tile c): no such primitive" },
    { "cpu", "split z M 4", "no statement writes a tensor named 'z'" },
    { "cpu", "split c Z 4", "statement 'c' has no axis 'Z'" },
    { "cpu", "split c M 0", "'0' is not a number" },
    { "cpu", "split c M x", "'x' is not a number" },
    { "cpu", "split c M 99999999999", "is not a number" },
    { "cpu", "split c M 4\nsplit c M 2", "step 2 (split c): axis 'M' is already split" },
    { "cpu", "split c M 65536 65536", "multiply to more than" },
    { "cpu", "reorder c M.0 N.0", "loop 'K.0' is missing" },
    { "cpu", "reorder c M.0 N.0 M.0 K.0", "loop 'M.0' is named twice" },
    { "cpu", "parallel c K.0", "loop 'K.0' reduces" },
    { "cpu", "parallel c N.0", "parallel and grid loops must come first" },
    { "cpu", "parallel c M.0\nparallel c M.0", "loop 'M.0' is already parallel" },
    { "cpu", "vectorize c M.0", "loop 'M.0' is not the innermost" },
    { "cpu", "reorder c M.0 K.0 N.0\nvectorize c N.0", "a vector has 2, 4, ... 64 lanes" },
    { "cpu", "unroll c M.0", "at most 64 iterations" },
    { "cpu", "rfactor c M.0", "loop 'M.0' does not reduce" },
    { "cpu", "rfactor c K.0", "must be unrolled, vectorised or bound" },
    { "cpu", "bind c M.0 grid", "bind is for GPU targets" },
    { "cpu", "inline c", "'c' is not a temporary" },
    { "cpu", "epilogue c", "'c' is not a temporary" },
    { "cpu", "fuse c F M K", "spatial and reduce axes cannot be fused" },
    { "cpu", "fuse c F M M", "axis 'M' is named twice" },
    { "cpu", "fuse c K M N", "there is an axis 'K' already" },
    { "cpu", "split c M 4\nfuse c F M N", "fuse must come before other steps" },
    { "cpu", "cache_read c 2 scratch K.0 loops", "has no load 2" },
    { "cpu", "cache_read c 0 shared K.0 loops", "CPU targets have scratch" },
    { "cpu", "cache_read c 0 scratch M.0 loops", "depends on loop 'K.0' inside 'M.0'" },
    { "cpu", "cache_read c 0 scratch M.0 loops N.0 K.0", "does not depend on loop 'N.0'" },
    { "cpu", "cache_read c 0 scratch K.0 loops M.0", "loop 'M.0' is not inside 'K.0'" },
    { "cpu", "prepack c 1 K.0 N.0", "'b' is no constant input" },
    { "cpu", "prepack c 0 K.0", "depends on loop 'M.0' inside 'c'; name it" },
    { "cpu", "prepack c 0 M.0 K.0\nsplit c M 4", "split must come before" },
    { "cpu", "prepack c 0 M.0 K.0 K.0", "loop 'K.0' is named twice" },
    { "cpu", "prepack c 0 M.0 K.0 N.0", "does not depend on loop 'N.0'" },
    { "cpu", "compute_at c c M.0", "'c' is not a temporary" },
    { "gpu", "prepack c 0 M.0 K.0", "prepack is for CPU targets" },
    { "cpu", "ahead c", "'c' is not a temporary" },
    { "cpu", "ahead b", "no statement writes a tensor named 'b'" },
    { "cpu", "ahead", "wrong number of arguments" },
    { "gpu", "cache_write c t\nahead t", "ahead is for CPU targets" },
    { "gpu", "parallel c M.0", "parallel is for CPU targets" },
    { "gpu", "bind c K.0 grid", "can only be bound to threads" },
    { "gpu", "reorder c M.0 N.0 K.0\nbind c M.0 thread\nbind c N.0 thread", "more threads than a block may have" },
    { "gpu", "cache_read c 1 shared M.0 loops K.0 N.0", "shared memory" },
};

static void test_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){ NULL, mem, NULL });
        char *got = outcome(a, "a=f32:100x200:const&b=f32:200x300", MM, refusals[i].target, refusals[i].trace);
        if (strncmp(got, "refused: ", 9) || !strstr(got, refusals[i].want))
            fail_msg("trace\n%s\nwants '%s', got\n%s", refusals[i].trace, refusals[i].want, got);
        kiln_arena_close(a);
    }
}

static const struct { const char *fault, *inputs, *text, *target, *trace, *want; } illegal[] = {
#define X(fault, inputs, text, target, trace, want) { fault, inputs, text, target, trace, want },
#include "tests/unit/illegal_schedules.def"
#undef X
};

static void test_illegal(void **state)
{
    (void)state;
    int bad = 0, n = (int)(sizeof illegal / sizeof *illegal);
    for (int i = 0; i < n; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){ NULL, mem, NULL });
        char *got = outcome(a, illegal[i].inputs, illegal[i].text, illegal[i].target, illegal[i].trace);
        if (strncmp(got, "refused: ", 9) || !strstr(got, illegal[i].want)) {
            print_error("%s:\n%s\nwants '%s', got\n%s\n", illegal[i].fault, illegal[i].trace, illegal[i].want, got);
            bad++;
        }
        kiln_arena_close(a);
    }
    assert_int_equal(bad, 0);
    assert_true(n >= 60);
}

/* Decisions are written out, listed and changed; the trace then says something else, or is refused. */
static void test_decisions(void **state)
{
    (void)state;
    kiln_arena *a = kiln_arena_open(&(kiln_host){ NULL, mem, NULL });
    static const char text[] = "sample_perfect_tile t c M 3 4\nsplit c M $t.1 $t.2\n# note\nsample_categorical u 2 4 8 : 1\nsplit c N $u\n";
    kiln_diag d = { 0 };
    kn_program *p;
    kn_tree *x, *y;
    kiln_bytes full, other;
    kn_decision list[4];
    assert_int_equal(kn_parse(a, bytes(MM), bytes("a=f32:12x20&b=f32:20x16"), &p, &d), KILN_OK);
    assert_int_equal(kn_trace_complete(a, p, &cpu, bytes(text), &full, &d), KILN_OK);
    assert_non_null(strstr(full.p, "sample_perfect_tile t c M 3 4 : 3 1 4\n"));
    assert_int_equal(kn_trace_apply(a, p, &cpu, bytes(text), &x, &d), KILN_OK);
    assert_int_equal(kn_trace_apply(a, p, &cpu, full, &y, &d), KILN_OK);
    assert_int_equal(x->stages[0]->loops[2].extent, y->stages[0]->loops[2].extent);
    assert_int_equal(kn_trace_decisions(a, full, list, 4), 2);
    assert_string_equal(list[0].decision, "3 1 4");
    assert_string_equal(list[1].name, "u");
    other = kn_trace_decide(a, full, list[0].line, "2 3 2");
    assert_int_equal(kn_trace_apply(a, p, &cpu, other, &y, &d), KILN_OK);
    assert_int_equal(y->stages[0]->loops[2].extent, 2);
    other = kn_trace_decide(a, full, list[1].line, "3");
    assert_int_equal(kn_trace_apply(a, p, &cpu, other, &y, &d), KILN_TRACE);
    assert_null(kn_trace_decide(a, full, 2, "1").p);
    kiln_arena_close(a);
}

int main(void)
{
    kiln_arena *a = kiln_arena_open(&(kiln_host){ NULL, mem, NULL });
    add_instructions(a, &cpu);
    add_instructions(a, &gpu);
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_golden), cmocka_unit_test(test_refusals), cmocka_unit_test(test_illegal),
                                        cmocka_unit_test(test_decisions) };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kiln_arena_close(a);
    return failed;
}
