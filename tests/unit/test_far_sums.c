/* Sums, and windows, of what lies beyond the caches: in which runs of memory it is read, and that what is left over of them is summed as well. */
#include "tests/unit/run_lowered.c"
#include "tests/unit/statements.h"

/* The rows of a sum in parts come from end to end: the next part's are no band of an image that is asked for meanwhile. */
static void rows_of_parts_are_not_asked_for(void **state)
{
    static const char text[] = "y[J] +=! x[I,J]", inputs[] = "x=f32:2048x300";
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    kn_hw *hw = device(a, "x86-64-bf16");
    kn_program *c;
    (void)state;
    resize(hw, "l2", 1 << 16);
    resize(hw, "l3", 1 << 17);
    kiln_bytes trace = constructed(a, text, inputs, hw, 1, &c)->c[0].trace;
    kn_lprog *l = lowered(a, c, hw, trace, inputs);
    if (!strstr(trace.p, "part out0 R0 KP") || !strstr(trace.p, "| R0.1 S0.1 R0.0 |")) fail_msg("%s", trace.p);
    assert_int_equal(counted(l, of_kind, KN_LS_PREFETCH), 0);
    run_checked(a, c, hw, trace, inputs);
    kiln_arena_close(a);
}

/* The first candidate where the caches hold next to nothing says `has`, and its results are right. */
static void check_far(kiln_arena *a, const char *id, const char *text, const char *inputs, const char *has)
{
    kn_hw *hw = device(a, id);
    kn_program *c;
    resize(hw, "l1", 8192);
    resize(hw, "l2", 32768);
    resize(hw, "l3", 65536);
    hw->streaming_store_bytes = 65536;
    kiln_bytes trace = constructed(a, text, inputs, hw, 1, &c)->c[0].trace;
    if (!strstr(trace.p, has)) fail_msg("%s, %s: no '%s' in\n%s", text, inputs, has, trace.p);
    run_checked(a, c, hw, trace, inputs);
}

/* Sums from beyond the caches, whose terms, or rows, lie as far apart as they can: the results, also of terms that are left over, and in parts. */
static void far_sums_are_right(void **state)
{
    static const struct { const char *text, *inputs, *has; } one[] = {
        {"y[J] +=! x[I,J]", "x=f32:803x70", "R0.0 |"}, {"y[J] >=! x[I,J]", "x=f32:803x20", "R0.0 |"}, {"y[J] +=! x[I,J]", "x=f16:1003x70", "R0.0 |"},
        {"y[J] +=! x[I,J]", "x=f32:826x200", "| R0.1 S0.1 R0.0 |"}, {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:1x413&b=f32:413x150", "R0.0 |"},
        {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:3x416&b=f32:416x250", "S0.1 R0.0 |"}, {"y[I] +=! x[I,J]", "x=f32:408x300", "| S0.0 R0.1 R0.2"},
        {"y[I] >=! x[I,J]", "x=f32:88x1001", "| S0.0 R0.1 R0.2"},
        {"y[N,P,Q,C] >=! pad(x,-inf)[N,P+R-1,Q+S-1,C] where P in 15, Q in 13, R in 3, S in 3", "x=f32:2x15x13x75", "split out0 S3 5 1 16\n"},
        {"y[N,P,Q,C] +=! pad(x,0.0)[N,P+R-1,Q+S-1,C]*w[R,S,C] where P in 15, Q in 13", "x=f32:2x15x13x75&w=f32:3x3x75", "split out0 S3 5 1 16\n"},
        {"c[B,M,N] +=! a[B,M,K]*b[B,K,N]", "a=f32:3x12x150&b=f32:3x150x200", "| R0.0 S2.1"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        check_far(a, "x86-64-bf16", one[i].text, one[i].inputs, one[i].has);
        kiln_arena_close(a);
    }
}

/* Windows from beyond the caches: few places, bands of a depthwise image, weights that fill most of L2. */
static void far_windows_are_right(void **state)
{
#define STEPS "y[N,P,Q,F] +=! pad(x,0.0)[N,P*2+R-1,Q*2+S-1,C]*w[R,S,C,F] where P in 3, Q in 4, R in 3, S in 3"
    static const struct { const char *id, *text, *inputs, *has; } one[] = {
        {"x86-64-bf16", STEPS, "x=f32:1x6x8x20&w=f32:3x3x20x75", "S0.0 S1.0 S2.0 F0.1 | S2.1 S3.2 S3.3\n"},
        {"x86-64-avx2", STEPS, "x=f32:1x6x8x20&w=f32:3x3x20x75", "S0.0 S1.0 S2.0 F0.1 | S2.1 S3.2 S3.3\n"},
        {"x86-64-avx2", "y[N,P,Q,C] +=! pad(x,0.0)[N,P+R-3,Q+S-3,C]*w[R,S,C] where P in 40, Q in 40", "x=f32:1x40x40x27&w=f32:7x7x27",
         "split out0 S1 7\nreorder out0 S0.0 S1.0 S3.0 | "},
        {"x86-64-avx2", "y[N,P,Q,F] +=! pad(x,0.0)[N,P+R-3,Q+S-3,C]*w[R,S,C,F] where P in 28, Q in 29", "x=f32:1x28x29x1&w=f32:7x7x1x128",
         "cache_read out0 0 scratch S1.0 loops S3.0 "},
    };
#undef STEPS
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        check_far(a, one[i].id, one[i].text, one[i].inputs, one[i].has);
        kiln_arena_close(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_of_parts_are_not_asked_for), cmocka_unit_test(far_sums_are_right),
                                       cmocka_unit_test(far_windows_are_right)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
