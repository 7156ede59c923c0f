/* What is constructed first for windows, where that hangs on how far away what they meet is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/unit/choice.h"

/* Windows from beyond the caches go along memory with all lanes of a square of places, not with a few of every place; nearer ones, and rows that L2
 * has no room for, do not. */
static void far_windows_take_all_lanes(void **state)
{
#define POOLED(x, p, q) "{\"expr\":\"y[N,P,Q,C] >=! pad(x,-inf)[N,P+R-1,Q+S-1,C] where P in " #p ", Q in " #q ", R in 3, S in 3\"," \
                        "\"inputs\":[{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[" x "]}]}"
    static const choice one[] = {
        {POOLED("8,41,41,1072", 41, 41), "split out0 S3 67 1 16\nsplit out0 S2 2\n", NULL, NULL},
        {POOLED("12,30,30,1000", 30, 30), "split out0 S3 63 1 16\nsplit out0 S2 2\n", NULL, NULL},
        {POOLED("1,41,41,1072", 41, 41), NULL, "split out0 S3 67", NULL},
        {POOLED("1,113,113,400", 113, 113), NULL, "split out0 S3 25", NULL},
    };
#undef POOLED
    (void)state;
    CHOOSE("x86-64-bf16", false, one);
}

/* With few registers windows that slide beside the lanes go by rows; far images in bands of rows that meet all lanes, near ones lanes by lanes. */
static void far_images_go_in_bands(void **state)
{
#define DEPTHWISE(x, k, p) \
    "{\"expr\":\"y[N,P,Q,C] +=! pad(x,0.0)[N,P+R-2,Q+S-2,C]*w[R,S,C] where P in " #p ", Q in " #p ", R in " #k ", S in " #k "\"," \
    "\"inputs\":[" NAMED("x", "f32", x) "," NAMED("w", "f32", #k "," #k ",140") "]}"
#define BAND(rows) "split out0 S1 " #rows "\nreorder out0 S0.0 S1.0 S3.0 | S2.0 S1.1 R0.0 R1.0 "
    static const choice one[] = {
        {DEPTHWISE("2,112,112,140", 7, 110), BAND(7), NULL, NULL},
        {DEPTHWISE("1,112,112,140", 5, 112), BAND(5), NULL, NULL},
        {DEPTHWISE("1,56,56,140", 5, 56), "split out0 S2 7\nreorder out0 S0.0 S3.0 | ", NULL, NULL},
    };
#undef BAND
#undef DEPTHWISE
    (void)state;
    CHOOSE("x86-64-avx2", false, one);
}

/* Large weights that are no constant go by the few places of a window as they lie, with its padding filled in; constant ones, or more places, are
 * packed, and weights that L2 holds are not so far away. */
static void large_weights_pass_few_places(void **state)
{
#define WINDOW(x, c, f, constant, p) \
    "{\"expr\":\"y[N,P,Q,F] +=! pad(x,0.0)[N,P*2+R-1,Q*2+S-1,C]*w[R,S,C,F] where P in " #p ", Q in " #p ", R in 3, S in 3\"," \
    "\"inputs\":[" NAMED("x", "f32", "1," x "," #c) ",{\"name\":\"w\",\"constant\":" constant "," \
    "\"dtype\":\"f32\",\"shape\":[3,3," #c "," #f "]}]}"
#define PASSING "S1.0 S2.0 F0.1 | S2.1 S3.2 S3.3\n"
    static const choice one[] = {
        {WINDOW("8,8", 256, 512, "false", 4), PASSING, "flatten_window", "decompose_padding"},
        {WINDOW("7,9", 300, 333, "false", 4), PASSING, "cache_read", NULL},
        {WINDOW("8,8", 256, 512, "true", 4), "prepack", NULL, NULL},
        {WINDOW("14,14", 256, 512, "false", 7), NULL, PASSING, NULL},
        {WINDOW("8,8", 16, 64, "false", 4), NULL, PASSING, NULL},
    };
#undef PASSING
#undef WINDOW
    (void)state;
    CHOOSE("x86-64-avx2", false, one);
    CHOOSE("x86-64-bf16", false, one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(far_windows_take_all_lanes),
        cmocka_unit_test(far_images_go_in_bands),
        cmocka_unit_test(large_weights_pass_few_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
