/* What gcc must not make of generated C: its assembly, read. */
#include "codegen/codegen.h"
#include "tests/unit/run_lowered.c"
#include <unistd.h>

/* The assembly that gcc makes of a trace's kernel for AVX2, with the service's kind of flags. */
static const char *assembly(kiln_arena *a, const kn_program *c, const kn_hw *hw, kiln_bytes trace, const char *inputs)
{
    static char text[1 << 20];
    char path[] = "/tmp/kiln-compiled-XXXXXX", command[256];
    kiln_bytes source, header;
    kiln_diag d = {0};
    assert_int_equal(kn_language_find("c")->print(a, lowered(a, c, hw, trace, inputs), "k", &source, &header, &d), KILN_OK);
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(source.p, 1, source.n, f), source.n);
    fclose(f);
    snprintf(command, sizeof command, "gcc -std=gnu11 -O2 -fPIC -ffp-contract=fast -mavx2 -mfma -w -S -x c %s -o -", path);
    FILE *out = popen(command, "r");
    assert_non_null(out);
    size_t n = fread(text, 1, sizeof text - 1, out);
    text[n] = 0;
    assert_int_equal(pclose(out), 0);
    unlink(path);
    return text;
}

/* Broadcasts in an assembly; from_register: those that a move or a shuffle has to be made for. */
static int broadcasts(const char *text, bool from_register)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, "vbroadcastss")); p++) n += !from_register || !strncmp(p + strcspn(p, "%(\n"), "%xmm", 4);
    return n;
}

/* A broadcast stays a load, which ports beside the multiply-adds do, though a window's next tap reads the same element again. */
static void taps_are_broadcast_from_memory(void **state)
{
    static const char inputs[] = "a=f32:1x3x32x32&b=f32:64x3x7x7";
    (void)state;
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    kn_hw *hw = device(a, "x86-64-avx2");
    kn_program *c;
    kiln_candidates *list = constructed(a, "y[N,P,Q,F] +=! pad(a,0.0)[N,C,P*2+R-3,Q*2+S-3]*b[F,C,R,S] where P in 16, Q in 16", inputs, hw, 1, &c);
    const char *text = assembly(a, c, hw, list->c[0].trace, inputs);
    assert_true(broadcasts(text, false) >= 4);
    assert_int_equal(broadcasts(text, true), 0);
    run_checked(a, c, hw, list->c[0].trace, inputs);
    kiln_arena_close(a);
}

static int times(const char *text, const char *what)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, what)); p++) n++;
    return n;
}

/* Every other element is taken by shuffles inside of halves and one of quarters, none of single lanes from anywhere. */
static void every_other_lane_is_near(void **state)
{
    static const struct { const char *text, *inputs; } one[] = {
        {"y[N,C,P,Q] >=! x[N,C,P*2+R,Q*2+S] where P in 9, Q in 24, R in 2, S in 2", "x=f32:1x6x18x48"},
        {"y[N,C] = x[N,C*2+1]", "x=f32:9x80"},
        {"y[N,C] = x[N,C*2]", "x=i32:9x79"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, "x86-64-avx2");
        kn_program *c;
        kiln_candidates *list = constructed(a, one[i].text, one[i].inputs, hw, 1, &c);
        const char *text = assembly(a, c, hw, list->c[0].trace, one[i].inputs);
        if (!times(text, "vpermpd") || times(text, "vpermd") || times(text, "vpermps")) fail_msg("%s: lanes come from anywhere", one[i].text);
        run_checked(a, c, hw, list->c[0].trace, one[i].inputs);
        kiln_arena_close(a);
    }
}

/* Places two columns apart are summed as the shuffles leave them: what all terms have in common is done once, where the sum is read; at the ends of
 * rows of any length, with padding on either side. */
static void sums_of_every_other_lane(void **state)
{
    static const struct { int width, places, taps, before; } one[] = {
        {48, 24, 3, 1}, {33, 17, 3, 1}, {9, 5, 3, 1}, {16, 9, 2, 1}, {17, 9, 5, 2},
        {31, 16, 3, 0}, {47, 22, 5, 0}, {15, 8, 7, 3}, {8, 7, 3, 3}, {81, 41, 3, 2},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, "x86-64-avx2");
        kn_program *c;
        char text[160], inputs[80];
        snprintf(text, sizeof text, "y[N,C,P,Q] +=! pad(x,0.0)[N,C,P*2+R-1,Q*2+S-%d]*w[C,R,S] where P in 6, Q in %d", one[i].before, one[i].places);
        snprintf(inputs, sizeof inputs, "x=f32:1x2x12x%d&w=f32:2x3x%d", one[i].width, one[i].taps);
        kiln_candidates *list = constructed(a, text, inputs, hw, 1, &c);
        run_checked(a, c, hw, list->c[0].trace, inputs);
        if (i == 0) {
            const char *made = assembly(a, c, hw, list->c[0].trace, inputs);
            int terms = times(made, "vshufps"), exchanged = times(made, "vpermpd");
            if (!exchanged || terms < 2 * exchanged) fail_msg("%d of %d terms are exchanged", exchanged, terms);
        }
        kiln_arena_close(a);
    }
}

/* The elements of a tile's rows have their distances in the instructions that read them: no address of theirs waits in memory. */
static void addresses_are_not_spilled(void **state)
{
    static const char inputs[] = "a=f32:64x16&b=f32:16x768";
    static const char trace[] = "split c N 1 8\nsplit c M 1 8\nreorder c M.0 N.0 | M.1 K.0 | M.2 N.1 N.2\nparallel c M.0\nunroll c M.2\n"
                                "unroll c K.0\nunroll c N.1\nvectorize c N.2\n";
    (void)state;
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    kn_hw *hw = device(a, "x86-64-avx2");
    const char *text = assembly(a, parsed(a, "c[M,N] +=! a[M,K]*b[K,N]", inputs), hw, text_of(trace), inputs);
    int read = broadcasts(text, false), spilled = times(text, "(%rsp)");
    if (read < 128 || 4 * spilled > read) fail_msg("%d broadcasts, %d times something is on the stack", read, spilled);
    kiln_arena_close(a);
}

/* Every task is called where there is no pool: none is thought to have no effect. */
static void every_task_is_called(void **state)
{
    static const char statements[] = "t[N,P,Q,F] +=! pad(a,0.0)[N,P+R-1,Q+S-1,C]*b[R,S,C,F] where P in 14, Q in 14; "
                                     "y[N,P,Q,F] = max(t[N,P,Q,F]*s[F], 0.0)";
    static const char inputs[] = "a=f32:1x14x14x256&b=f32:3x3x256x256&s=f32:256";
    int tasks = 0;
    (void)state;
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    kn_hw *hw = device(a, "x86-64-avx2");
    kn_program *c;
    kiln_candidates *list = constructed(a, statements, inputs, hw, 10, &c);
    for (int i = 0; i < list->n; i++) {
        const char *text = assembly(a, c, hw, list->c[i].trace, inputs);
        for (int n = 0;; n++) {
            char label[32], call[32], tail[32];
            snprintf(label, sizeof label, "\ntask_%d:", n);
            snprintf(call, sizeof call, "call\ttask_%d\n", n);
            snprintf(tail, sizeof tail, "jmp\ttask_%d\n", n);
            if (!strstr(text, label)) break;
            if (!strstr(text, call) && !strstr(text, tail)) fail_msg("candidate %d: task %d is never called\n%s", i, n, list->c[i].trace.p);
            tasks++;
        }
    }
    assert_true(tasks > list->n);
    kiln_arena_close(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(taps_are_broadcast_from_memory), cmocka_unit_test(addresses_are_not_spilled),
                                       cmocka_unit_test(every_task_is_called), cmocka_unit_test(every_other_lane_is_near),
                                       cmocka_unit_test(sums_of_every_other_lane)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
