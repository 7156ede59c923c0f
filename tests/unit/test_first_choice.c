/* What is constructed first for a request, where that hangs on what the choice is thought to take: mappings onto a unit, orders of loops, vectors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/unit/choice.h"

/* Lanes of a unit that are columns with steps between them are picked one by one, which takes longer than places of a copy that has these beside
 * each other. Rows of its tiles that lie beside each other come sooner from far away than those that have others between them. */
static void lanes_and_rows_lie_beside_each_other(void **state)
{
#define WINDOW(x, w) "{\"op\":{\"name\":\"ConvInteger\",\"attrs\":{\"strides\":[2,2]}},\"inputs\":[{\"dtype\":\"u8\",\"shape\":[" x "]}," \
                     "{\"dtype\":\"i8\",\"shape\":[" w ",1,1]}]}"
#define PLACES(x, w) "{\"expr\":\"y[N,P,Q,F] +=! x[N,P,Q,C]*w[C,F]\",\"inputs\":[{\"name\":\"x\",\"dtype\":\"bf16\",\"shape\":[" x "]}," \
                     "{\"name\":\"w\",\"dtype\":\"bf16\",\"shape\":[" w "]}]}"
#define ONE_BY_ONE(x, w) "{\"expr\":\"y[N,P,Q,F] +=! x[N,P+R,Q+S,C]*w[R,S,C,F] where P in 14, Q in 14\",\"inputs\":[{\"name\":\"x\"," \
                         "\"dtype\":\"bf16\",\"shape\":[" x "]},{\"name\":\"w\",\"dtype\":\"bf16\",\"shape\":[1,1," w "]}]}"
    static const choice one[] = {
        {WINDOW("8,256,14,14", "512,256"), "plane", "J=S3;", " amx_"}, {WINDOW("8,64,56,56", "128,64"), "plane", "J=S3;", " amx_"},
        {WINDOW("1,512,28,28", "1024,512"), "plane", "J=S3;", " amx_"}, {PLACES("8,14,14,1024", "1024,256"), "S1,S2;", "I=S0,S1;", " amx_"},
        {PLACES("8,56,56,64", "64,256"), "S1,S2;", "I=S0,S1;", " amx_"}, {ONE_BY_ONE("8,14,14,1024", "1024,256"), "S1,S2;", "I=S0,S1;", " amx_"},
        {"{\"op\":\"MatMul\",\"inputs\":[{\"dtype\":\"bf16\",\"shape\":[2048,2048]},{\"dtype\":\"bf16\",\"shape\":[2048,2048]}]}",
         "I=S0;J=S1;", "I=S1;", " amx_"},
    };
    (void)state;
    CHOOSE("x86-64-amx", false, one);
#undef WINDOW
#undef PLACES
#undef ONE_BY_ONE
}

/* Tiles of a unit are as large as divides what they hold, where that saves much: terms, and places where results do not lie along them. Not where
 * tiles of lines of the cache, padded, are about as fast. */
static void tiles_are_whole(void **state)
{
#define POINTS(x, w) "{\"expr\":\"y[N,P,Q,F] +=! cast(x[N,P,Q,C],i32)*cast(w[C,F],i32)\",\"inputs\":[{\"name\":\"x\",\"dtype\":\"i8\"," \
                     "\"shape\":[" x "]},{\"name\":\"w\",\"dtype\":\"i8\",\"shape\":[" w "]}]}"
#define LAST(x, w) "{\"expr\":\"y[N,P,Q,F] +=! pad(x,0.0)[N,P+R-1,Q+S-1,C]*w[R,S,C,F] where P in 56, Q in 56, R in 3, S in 3\",\"inputs\":[" \
                   "{\"name\":\"x\",\"dtype\":\"bf16\",\"shape\":[" x "]},{\"name\":\"w\",\"dtype\":\"bf16\",\"shape\":[" w "]}]}"
#define FIRST(x, w) "{\"op\":{\"name\":\"ConvInteger\",\"attrs\":{\"pads\":[1,1,1,1]}},\"inputs\":[" INPUT("i8", x) "," INPUT("i8", w) "]}"
#define BYTES(a, b) "{\"op\":{\"name\":\"MatMulInteger\"},\"inputs\":[" INPUT("i8", a) "," INPUT("i8", b) "]}"
    static const choice one[] = {
        {POINTS("1,56,56,24", "24,144"), "_R24 ", NULL, NULL},      {LAST("1,56,56,8", "3,3,8,16"), "_I14_R8 ", NULL, NULL},
        {FIRST("1,16,56,56", "16,16,3,3"), "_R16 ", "_I", NULL},    {BYTES("8,100,40", "8,40,100"), "_I10_R40 ", NULL, NULL},
        {POINTS("1,14,14,112", "112,672"), "amx_int8 ", "_R", NULL}, {PRODUCT("bf16", "197,512", "512,512"), "amx_bf16 ", "_I", NULL},
        {PRODUCT("bf16", "8,512", "512,4096"), "amx_bf16 ", "_I", NULL},
    };
    (void)state;
    CHOOSE("x86-64-amx", false, one);
#undef POINTS
#undef LAST
#undef FIRST
#undef BYTES
}

/* Planes of a task are read one after the other, each from end to end, but for a few of them. */
static void planes_are_read_in_order(void **state)
{
#define POOL(x) "{\"op\":{\"name\":\"AveragePool\",\"attrs\":{\"kernel_shape\":[1,1],\"strides\":[2,2]}}," \
                "\"inputs\":[{\"dtype\":\"f32\",\"shape\":[" x "]}]}"
    static const choice one[] = {
        {POOL("14,168,83,83"), "reorder t0 J0.0 J0.1 S2.0 ", NULL, NULL}, {POOL("1,168,83,83"), "reorder t0 S0.0 S1.0 S2.0 S3.0 | S1.1 ", NULL, NULL},
    };
#undef POOL
    (void)state;
    CHOOSE("x86-64-avx512", false, one);
}

/* Neighbouring threads of a GPU read within 16 bytes of each other, so that vectors of results have as many as their steps leave. */
static void vectors_of_windows_read_side_by_side(void **state)
{
#define POOL(step) "{\"op\":{\"name\":\"MaxPool\",\"attrs\":{\"kernel_shape\":[3,3],\"strides\":[" step "],\"pads\":[1,1,1,1]}}," \
                   "\"inputs\":[{\"dtype\":\"f32\",\"shape\":[128,64,112,112]}]}"
    static const choice one[] = {{POOL("2,2"), " 2\nreorder out0", NULL, NULL}, {POOL("1,1"), " 4\nreorder out0", NULL, NULL}};
#undef POOL
    (void)state;
    CHOOSE("nvidia-h200", false, one);
}

/* Blocks that are copied as they are met are smaller where few rows pass by them, unless that leaves runs of few lines, or they are copied ahead. */
static void blocks_for_few_rows(void **state)
{
#define HELD(a, constant, b) "{\"op\":{\"name\":\"MatMul\"},\"inputs\":[{\"dtype\":\"bf16\",\"shape\":[" a "]}," \
                                "{\"dtype\":\"bf16\",\"constant\":" constant ",\"shape\":[" b "]}]}"
    static const choice one[] = {
        {HELD("16,1024", "false", "1024,4096"), "k_run(task_0, 16, ", NULL, NULL},
        {HELD("1024,1024", "false", "1024,4096"), "k_run(task_0, 8, ", NULL, NULL},
        {HELD("32,4096", "false", "4096,4096"), "k_run(task_0, 4, ", NULL, NULL},
        {HELD("16,1024", "true", "1024,4096"), "k_run(task_0, 8, ", NULL, NULL},
    };
#undef HELD
    (void)state;
    CHOOSE("x86-64-amx", true, one);
}

/* Sums so long that a block of all terms would be a few columns go in slices, results in and out; rows are the unit's rows there, too, as they
 * lie. */
static void long_sums_go_in_slices(void **state)
{
    static const choice one[] = {
        {PRODUCT("bf16", "4096,8192", "8192,4096"), "k_run(task_0, 4, ", NULL, NULL},
        {PRODUCT("bf16", "2048,2048", "2048,2048"), "k_run(task_0, 8, ", NULL, NULL},
        {PRODUCT("bf16", "1024,3072", "3072,1024"), "k_run(task_0, 2, ", NULL, NULL},
        {PRODUCT("bf16", "40000,8192", "8192,512"), "k_run(task_0, 5, ", NULL, NULL},
    };
    static const choice mapped[] = {{PRODUCT("bf16", "8192,8192", "8192,8192"), "I=S0;J=S1;", "I=S1;", NULL},
                                    {PRODUCT("bf16", "3000,5000", "5000,7000"), "I=S0;J=S1;", "I=S1;", NULL}};
    (void)state;
    CHOOSE("x86-64-amx", true, one);
    CHOOSE("x86-64-amx", false, mapped);
}

/* Elements that are copied one by one from where they lie apart are not counted one by one; those that are multiplied are left to the toolchain. */
static void picked_elements_are_written_out(void **state)
{
#define WINDOW(x, w) "{\"op\":{\"name\":\"Conv\",\"attrs\":{\"pads\":[1,1,1,1]}},\"inputs\":[{\"dtype\":\"bf16\",\"shape\":[" x "]}," \
                     "{\"dtype\":\"bf16\",\"shape\":[" w ",3,3]}]}"
#define OUT "#pragma GCC unroll 16\n"
    static const choice picked[] = {{WINDOW("1,40,9,9", "24,40"), OUT, NULL, NULL}};
    static const choice summed[] = {{"{\"expr\":\"c[M,N] +=! a[M,K]*b[K,N]\",\"inputs\":[{\"name\":\"a\",\"dtype\":\"f32\",\"shape\":[64,64]},"
                                     "{\"name\":\"b\",\"dtype\":\"f32\",\"shape\":[64,64]}]}", NULL, OUT, NULL}};
#undef WINDOW
#undef OUT
    (void)state;
    CHOOSE("x86-64-amx", true, picked);
    CHOOSE("x86-64-avx512", true, summed);
}

/* Columns that go on along memory are copied row by row, unless that leaves too few tasks. */
static void weights_are_read_in_order(void **state)
{
#define WINDOW(w, r) "{\"expr\":\"y[N,P,Q,F] +=! pad(x,0.0)[N,P+R,Q+S,C]*w[R,S,C,F] where P in 14, Q in 14, R in " r ", S in " r "\",\"inputs\":[" \
                     "{\"name\":\"x\",\"dtype\":\"bf16\",\"shape\":[1,14,14,64]},{\"name\":\"w\",\"dtype\":\"bf16\",\"shape\":[" w "]}]}"
    static const struct { const char *body, *outer, *inner; } one[] = {
        {WINDOW("3,3,64,96", "3"), "_R2_1_", "_S3_0_"}, {WINDOW("2,2,64,96", "2"), "_S3_0_", "_R2_1_"},
    };
#undef WINDOW
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        const char *text = first(a, one[i].body, "x86-64-amx", true), *outer = strstr(text, one[i].outer), *inner = strstr(text, one[i].inner);
        if (!outer || !inner || outer > inner) fail_msg("%s\n%s", one[i].body, strstr(text, "KN_TASK void"));
        kiln_arena_close(a);
    }
}

/* Cores share what they wrote themselves: channels where the weights' copies are more than the rows', which each task then makes for itself; else
 * rows, and the weights are laid out before. */
static void cores_read_their_own_copies(void **state)
{
#define FIRST(x, w) "{\"op\":{\"name\":\"Conv\",\"attrs\":{\"pads\":[1,1,1,1]}},\"inputs\":[{\"dtype\":\"bf16\",\"shape\":[" x "]}," \
                    "{\"dtype\":\"bf16\",\"shape\":[" w ",3,3]}]}"
#define LAST(p, t, w) "{\"expr\":\"y[N,P,Q,F] +=! cast(pad(x,0)[N,P+R-1,Q+S-1,C],i32)*cast(w[R,S,C,F],i32) where P in " p ", Q in " p ", " \
                      "R in 3, S in 3\",\"inputs\":[{\"name\":\"x\",\"dtype\":\"i8\",\"shape\":[1," p "," p "," t "]}," \
                      "{\"name\":\"w\",\"dtype\":\"i8\",\"shape\":[3,3," w "]}]}"
    static const choice one[] = {
        {FIRST("1,256,14,14", "256,256"), "k_run(task_2, 8, ", "k_run(task_3, ", NULL},
        {FIRST("1,128,56,56", "64,128"), "k_run(task_2, 56, ", NULL, NULL},
        {LAST("14", "256", "256,256"), "k_run(task_1, 8, ", "k_run(task_2, ", NULL}, {LAST("28", "128", "128,128"), "k_run(task_2, 28, ", NULL, NULL},
    };
#undef FIRST
#undef LAST
    (void)state;
    CHOOSE("x86-64-amx", true, one);
}

/* A sum that a unit multiplies is cut into parts where these are long: of a few hundred terms it takes twice as long so. */
static void units_have_long_parts(void **state)
{
    static const choice one[] = {{"{\"expr\":\"y[N,P,Q,F] +=! cast(pad(x,0)[N,P*2+R-1,Q*2+S-1,C],i32)*cast(w[R,S,C,F],i32) where P in 14, Q in 10\","
                                  "\"inputs\":[{\"name\":\"x\",\"dtype\":\"u8\",\"shape\":[1,28,17,96]},"
                                  "{\"name\":\"w\",\"dtype\":\"i8\",\"shape\":[3,1,96,24],\"constant\":true}]}", " amx_", "part out0", NULL}};
    (void)state;
    CHOOSE("x86-64-amx", false, one);
}

/* Channels of a place are laid out by one core, one line of the cache or several: cores share rows, as they do of the results. */
static void cores_write_whole_lines(void **state)
{
#define FIRST(x, w) "{\"op\":{\"name\":\"Conv\",\"attrs\":{\"pads\":[1,1,1,1],\"strides\":[2,2]}},\"inputs\":[" \
                    INPUT("bf16", x) "," INPUT("bf16", w) "]}"
    static const choice one[] = {{FIRST("1,32,128,128", "64,32,3,3"), "k_run(task_1, 129, ", NULL, NULL},
                                 {FIRST("1,64,56,56", "128,64,3,3"), "k_run(task_2, 57, ", NULL, NULL}};
#undef FIRST
    (void)state;
    CHOOSE("x86-64-amx", true, one);
}

/* Rows that are interleaved for a unit are read in whole vectors, which are those of two tiles beside each other, but for a few columns that end
 * inside of them. */
static void rows_of_two_tiles_are_interleaved(void **state)
{
#define BYTES(a, b) "{\"op\":{\"name\":\"MatMulInteger\"},\"inputs\":[" INPUT("i8", a) "," INPUT("i8", b) "]}"
    static const choice one[] = {{PRODUCT("bf16", "64,512", "512,1024"), "u16x32 run", "u16x16 run", NULL},
                                 {PRODUCT("bf16", "32,512", "512,1000"), "u16x32 run", "u16x16 run", NULL},
                                 {BYTES("64,512", "512,1024"), "i8x32 run", "i8x16 run", NULL},
                                 {BYTES("60,60", "60,60"), "i8x16 run", "i8x32 run", NULL}};
#undef BYTES
    (void)state;
    CHOOSE("x86-64-amx", true, one);
}

/* Where weights are more than the image, each core has filters of its own: it reads their weights alone, and no other core writes into its planes. */
static void cores_have_their_own_filters(void **state)
{
#define FIRST(x, w) "{\"op\":{\"name\":\"ConvInteger\",\"attrs\":{\"pads\":[1,1,1,1]}},\"inputs\":[{\"name\":\"x\",\"dtype\":\"u8\",\"shape\":[" x \
                    "]},{\"name\":\"w\",\"dtype\":\"i8\",\"constant\":true,\"shape\":[" w "]}]}"
    static const choice one[] = {{FIRST("1,256,14,14", "256,256,3,3"), "k_run(task_1, 14, ", NULL, NULL},
                                 {FIRST("1,320,14,14", "320,320,3,3"), "k_run(task_1, 14, ", NULL, NULL},
                                 {FIRST("1,128,28,28", "128,128,3,3"), "k_run(task_1, 28, ", NULL, NULL},
                                 {FIRST("1,64,30,30", "64,64,3,3"), "k_run(task_1, 30, ", NULL, NULL}};
#undef FIRST
    (void)state;
    CHOOSE("x86-64-amx", true, one);
}

/* What goes past the caches is waited for at the end of a task, which has more than a row of some thousand bytes; but every core has some. */
static void tasks_that_write_are_long(void **state)
{
    static const choice one[] = {{PRODUCT("f32", "16384,2", "2,1024"), "split out0 S0 16 1\n", NULL, NULL},
                                 {PRODUCT("f32", "5000,2", "2,2000"), "split out0 S0 9 1\n", NULL, NULL},
                                 {PRODUCT("f32", "24,2", "2,1000000"), "split out0 S0 1 1\n", NULL, NULL}};
    (void)state;
    CHOOSE("x86-64-amx", false, one);
}

/* Rows that L2 does not hold go along all of a few panels in blocks of a long sum, so that they are read once. */
static void long_rows_are_read_once(void **state)
{
    static const choice one[] = {
        {PRODUCT("f32", "100,10000", "10000,100"), "| R0.0 S0.1 S1.1 R0.1 |", NULL, NULL},
        {PRODUCT("f32", "1000,4000", "4000,100"), "| R0.0 S0.1 S1.1 R0.1 |", NULL, NULL},
        {PRODUCT("f32", "100,1000", "1000,100"), NULL, "| R0.0 S0.1 S1.1 R0.1 |", NULL},
    };
    (void)state;
    CHOOSE("x86-64-amx", false, one);
}

/* What L2 does not hold is turned in strips of squares: past the caches so that rows are read from end to end, or, where what is written has no whole
 * lines, whole rows of 16; else two by two, or, where L1 has no sets for them, one by two. */
static void far_squares_lie_beside_each_other(void **state)
{
#define TURN(perm, x) "{\"op\":{\"name\":\"Transpose\",\"attrs\":{\"perm\":[" perm "]}},\"inputs\":[{\"dtype\":\"f32\",\"shape\":[" x "]}]}"
    static const choice one[] = {
        {TURN("1,0", "3008,2000"), "S1.0 S0.0 | S0.1 S1.1 | S0.2 S1.2", NULL, NULL},
        {TURN("1,0", "3000,2000"), "split out0 S0 32 16\n", NULL, "S0.0 S1.0 | S1.1 S0.1 | S0.2 S1.2"},
        {TURN("1,0", "30000,150"), "S1.0 S0.0 | S0.1 S1.1 | S0.2 S1.2", NULL, NULL},
        {TURN("1,0", "1000,1000"), "| S1.1 S1.2 S0.1 | S0.2 S1.3", NULL, NULL},
        {TURN("0,2,1", "8,512,896"), " | S1.1 S2.1 | ", NULL, NULL}, {TURN("1,0", "256,256"), NULL, "S0.1 S1.1 | S0.2", "| S0.1 | S0.2 S1.1"},
        {TURN("1,0", "3,500000"), NULL, "S0.1 S1.1", NULL},
        {TURN("1,0", "704,10025"), "| S1.1 S0.1 | S0.2 S1.2", NULL, "split out0 S0 8 16\n"}, /* rows that lines do not begin */
    };
    static const choice parts[] = { /* of lines; rows 12 bytes more than a way of L1 are one by one */
        {TURN("1,0", "1027,900"), "split out0 S0 1 8\n", NULL, NULL}, {TURN("1,0", "1024,900"), "split out0 S0 2 8\n", NULL, NULL},
        {TURN("1,0", "901,900"), "split out0 S0 2 8\n", NULL, NULL},
    };
#undef TURN
    (void)state;
    CHOOSE("x86-64-amx", false, one);
    CHOOSE("x86-64-avx2", false, parts);
}

/* Few places of an image, channels last, by weights that are no constant, of one tap: what a product of as many rows is planned as. */
static void windows_of_one_tap_are_products(void **state)
{
    static const choice one[] = {
        {"{\"expr\":\"y[N,P,Q,F] +=! x[N,P,Q,C]*w[R,S,C,F] where R in 1, S in 1\","
         "\"inputs\":{\"x\":\"f32[1,7,7,1024]\",\"w\":\"f32[1,1,1024,2048]\"}}",
         "fuse out0 F0 S1 S2\nsplit out0 S3 22 3 16\nsplit out0 F0 7 7\nsplit out0 R0 128\n", "cache_read", NULL},
        {PRODUCT("f32", "49,1024", "1024,2048"), "split out0 S1 22 3 16\nsplit out0 S0 7 7\nsplit out0 R0 128\n", "cache_read", NULL},
    };
    (void)state;
    CHOOSE("x86-64-bf16", false, one);
}

/* Windows that slide beside channels which fall into few sets of L1: whole lines of them are copied, or, where an image comes from beyond the caches,
 * runs of some lines come as they lie, by squares of places that go along the row with them. */
static void crowded_windows_come_in_runs(void **state)
{
#define GREATEST(x) "{\"expr\":\"y[N,P,Q,C] >=! pad(x,-inf)[N,P+R-1,Q+T-1,C] where P in " x ", Q in " x ", R in 3, T in 3\"," \
                    "\"inputs\":{\"x\":\"f32[1," x "," x ",1024]\"}}"
    static const choice one[] = {
        {GREATEST("56"), "split out0 S3 32 1 16\nsplit out0 S2 4\n", "cache_read", "| S1.2 S2.1 S3.2"},
        {GREATEST("28"), "cache_read out0 0 scratch S", "split out0 S1 2", NULL},
    };
#undef GREATEST
    (void)state;
    CHOOSE("x86-64-avx512", false, one);
}

/* Rows that are to be written past the caches from lines on come in tiles that leave least of a row and what begins before it; short ones, of which
 * more is read than they are made of, stay in registers. */
static void rows_come_from_lines(void **state)
{
#define ROWS(op, x, more) "{\"op\":\"" op "\",\"inputs\":[" INPUT("f32", x) more "]}"
    static const choice one[] = {
        {ROWS("Softmax", "40000,152", ""), "split out0 S1 6 16\n", NULL, NULL},
        {ROWS("Softmax", "4000,152", ""), "split out0 S1 5 16\n", NULL, NULL},
        {ROWS("Softmax", "60000,85", ""), "split out0 S1 4 16\n", NULL, NULL},
        {ROWS("Softmax", "40000,160", ""), "split out0 S1 5 16\n", NULL, NULL},
        {ROWS("LayerNormalization", "60000,85", "," INPUT("f32", "85")), "split out0 S1 6 16\n", NULL, NULL},
        {ROWS("LayerNormalization", "40000,149", "," INPUT("f32", "149")), "split out0 S1 6 16\n", NULL, NULL},
    };
#undef ROWS
    (void)state;
    CHOOSE("x86-64-bf16", false, one);
}

/* Few results of a group, channels last, are lanes although some are idle: lanes along the groups would gather what these have of their own. */
static void groups_are_no_lanes(void **state)
{
#define GROUPS(g, f) "{\"expr\":\"y[N,P,Q,G,F] +=! pad(x,0.0)[N,P+R-1,Q+S-1,G,C]*w[R,S,C,G,F] where P in 28, Q in 28, R in 3, S in 3\",\"inputs\":[" \
                     "{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[1,28,28," g "]},{\"name\":\"w\",\"dtype\":\"f32\",\"shape\":[3,3," f "]}]}"
    static const choice one[] = {{GROUPS("32,8", "8,32,8"), "vectorize out0 S4", "turned", NULL},
                                 {GROUPS("64,4", "4,64,4"), "vectorize out0 S4", "turned", NULL},
                                 {GROUPS("1,64", "64,1,5"), "turned", NULL, NULL}};
#undef GROUPS
    (void)state;
    CHOOSE("x86-64-amx", false, one);
}

/* Small products go to a unit where its tiles are whole, or what is interleaved for it is used often, and to other cores where these would not start
 * too late. */
static void small_products_of_whole_tiles(void **state)
{
    static const choice mapped[] = {{PRODUCT("bf16", "32,32", "32,32"), " amx_", NULL, NULL},
                                    {PRODUCT("bf16", "16,64", "64,64"), " amx_", NULL, NULL},
                                    {PRODUCT("bf16", "31,37", "37,29"), " amx_", NULL, NULL},
                                    {PRODUCT("bf16", "50,50", "50,50"), " amx_", NULL, NULL},
                                    {PRODUCT("bf16", "8,200", "200,100"), NULL, " amx_", NULL},
                                    {PRODUCT("bf16", "15,35", "35,29"), NULL, " amx_", NULL}};
    static const choice alone[] = {{PRODUCT("bf16", "64,64", "64,64"), NULL, "parallel_for(pool", NULL},
                                   {PRODUCT("bf16", "256,256", "256,256"), "parallel_for(pool", NULL, NULL}};
    (void)state;
    CHOOSE("x86-64-amx", false, mapped);
    CHOOSE("x86-64-amx", true, alone);
}

/* A loop that is too long to be written out stays one, whatever else is written out. */
static void loops_too_long_to_write_out(void **state)
{
#define SUM(x) "{\"op\":{\"name\":\"ReduceSum\",\"attrs\":{\"axes\":[0],\"keepdims\":0}},\"inputs\":[{\"dtype\":\"f32\",\"shape\":[" x "]}]}"
#define TALL(x, w) "{\"op\":{\"name\":\"Conv\",\"attrs\":{\"group\":16}},\"inputs\":[{\"dtype\":\"f32\",\"shape\":[" x "]}," \
                   "{\"dtype\":\"f32\",\"shape\":[" w "]}]}"
    static const choice one[] = {
        {SUM("100000,16"), "vectorize", "as written", "unroll"}, {SUM("100,16"), "vectorize", "as written", NULL},
        {SUM("70,16"), "vectorize", "as written", NULL},         {SUM("5000,8"), "vectorize", "as written", NULL},
        {TALL("1,16,180,40", "16,1,70,1"), "vectorize", "as written", NULL},
    };
#undef SUM
#undef TALL
    (void)state;
    CHOOSE("x86-64-amx", false, one);
    CHOOSE("x86-64-avx2", false, one);
}

/* Many rows of bytes by an operand that L2 does not hold: where registers are few tiles have rows, not lines of it, and tasks several panels; of
 * fewer rows, and of an operand that is near, what there was. */
static void bytes_by_parts_of_lines(void **state)
{
#define BYTES(a, b) "{\"op\":{\"name\":\"MatMulInteger\"},\"inputs\":[" INPUT("i8", a) "," INPUT("i8", b) "]}"
    static const choice one[] = {
        {BYTES("1500,2000", "2000,1600"), "split out0 S1 8 2 8\nsplit out0 S0 250 6\n", NULL, NULL},
        {BYTES("900,1000", "1000,600"), "split out0 S1 4 2 8\nsplit out0 S0 150 6\n", NULL, NULL},
        {BYTES("198,2000", "2000,1600"), "split out0 S1 8 2 8\nsplit out0 S0 33 6\n", NULL, NULL},
        {BYTES("90,2000", "2000,1600"), NULL, "split out0 S1 8 2 8", NULL},
        {BYTES("1500,400", "400,1000"), NULL, "split out0 S1 8 2 8", NULL},
    };
    static const choice many[] = {{BYTES("1500,2000", "2000,1600"), NULL, "split out0 S1 8", NULL}};
    static const choice steps[] = { /* that are written out at a time, without a rest */
        {BYTES("966,512", "512,1024"), "for (i64 k_at = 0; k_at < 256; k_at += 4)\n", NULL, NULL},
        {BYTES("966,510", "510,1024"), "for (i64 k_at = 0; k_at < 255; k_at += 5)\n", NULL, NULL},
        {BYTES("966,514", "514,1024"), NULL, "#pragma GCC unroll 4", NULL},
        {PRODUCT("f32", "966,512", "512,1024"), NULL, "k_at", NULL},
    };
#undef BYTES
    (void)state;
    CHOOSE("x86-64-avx2", false, one);
    CHOOSE("x86-64-vnni", false, many);
    CHOOSE("x86-64-avx2", true, steps);
}

/* A few rows by a large operand: cores share its rows, each of which they read from end to end, not its columns. */
static void few_rows_go_in_parts(void **state)
{
#define PARTS "part out0 R0 KP 2 parts\n"
    static const choice one[] = {
        {PRODUCT("f32", "3,2048", "2048,1000"), PARTS, NULL, NULL}, {PRODUCT("f32", "10,1024", "1024,4096"), PARTS, NULL, NULL},
        {PRODUCT("f32", "16,1024", "1024,4096"), NULL, "part ", NULL},
        {PRODUCT("f32", "3,256", "256,1000"), NULL, "part ", NULL}, /* L2 has it */
    };
    static const choice fewer[] = { /* 8 of them, where the device says nothing else */
        {PRODUCT("f32", "2,4096", "4096,11008"), PARTS, NULL, "split parts R0 8\n"},
        {PRODUCT("f32", "4,1024", "1024,4096"), PARTS, NULL, "split parts R0 8\n"},
    };
    static const choice wide[] = { /* whole rows, 16 of them to a turn over sums that L1 has not */
        {PRODUCT("f32", "2,4096", "4096,11008"), PARTS, NULL, "split parts R0 16\n"},
        {PRODUCT("f32", "6,2048", "2048,11008"), NULL, "part ", NULL},
    };
#undef PARTS
    (void)state;
    CHOOSE("x86-64-amx", false, wide);
    CHOOSE("x86-64-bf16", false, fewer);
    CHOOSE("x86-64-amx", false, one);
    CHOOSE("x86-64-avx512", false, one);
}

/* Many products of few rows, each by an operand of its own that memory brings: block after block of it, unless its rows are short, or its sums. */
static void operands_of_many_come_from_end_to_end(void **state)
{
#define BLOCK "split out0 R0 16\n"
    static const choice one[] = {
        {PRODUCT("f32", "59,12,429", "59,429,424"), "| R0.0 S2.1 S1.1 R0.1 |", NULL, BLOCK},
        {PRODUCT("f32", "26,64,429", "26,429,1001"), "| R0.0 S2.1 S1.1 R0.1 |", NULL, NULL},
        {PRODUCT("f32", "39,32,4000", "39,4000,64"), NULL, "split out0 R0", NULL},
        {PRODUCT("f32", "111,24,101", "111,101,1001"), NULL, "split out0 R0", NULL},
        {PRODUCT("f32", "4,12,429", "4,429,424"), NULL, "split out0 R0", NULL}, /* L3 has them */
        {PRODUCT("f32", "306,29,59", "306,59,216"), "reorder out0 S0.0 S0.1 S1.0 S2.0 | S1.1 R0.0 |", NULL, NULL}, /* one product after the other */
    };
#undef BLOCK
    (void)state;
    CHOOSE("x86-64-bf16", false, one);
}

/* Places that a step takes of several images are copied plane by plane, as they lie; of one image row by row, as cores read them. */
static void planes_are_copied_in_order(void **state)
{
#define EVERY_OTHER(x, w) "{\"op\":{\"name\":\"Conv\",\"attrs\":{\"strides\":[2,2]}},\"inputs\":[" INPUT("f32", x) ",{\"dtype\":\"f32\"," \
                          "\"constant\":true,\"shape\":[" w ",1,1]}]}"
    static const choice one[] = {
        {EVERY_OTHER("4,449,73,73", "28,449"), "reorder plane0 S0.0 R0.0 R0.1 S2.0 ", NULL, NULL},
        {EVERY_OTHER("1,240,40,40", "17,240"), "reorder plane0 S0.0 S2.0 R0.0 ", NULL, NULL},
    };
#undef EVERY_OTHER
    (void)state;
    CHOOSE("x86-64-bf16", false, one);
}

/* Sums along rows from beyond the caches take four of them far apart at a time, of short vectors from L3 as well; from
 * nearer, or of rows that four does not divide, one. */
static void far_rows_are_four_runs(void **state)
{
#define SUM(op, x) "{\"op\":{\"name\":\"" op "\",\"attrs\":{\"axes\":[1],\"keepdims\":0}},\"inputs\":[" INPUT("f32", x) "]}"
#define RUNS "reorder out0 S0.1 | S0.2 R0.0 | S0.0 R0.1 R0.2\n"
    static const choice one[] = {
        {SUM("ReduceSum", "65536,200"), RUNS, NULL, "parallel out0 S0.1\n"}, {SUM("ReduceMax", "8,1000000"), RUNS, NULL, NULL},
        {SUM("ReduceSum", "2048,1024"), NULL, "S0.2", NULL}, {SUM("ReduceSum", "65537,200"), NULL, "S0.2", NULL},
        {PRODUCT("f32", "65536,200", "200,1"), NULL, RUNS, NULL},
    };
    static const choice near[] = {{SUM("ReduceSum", "4096,1024"), RUNS, NULL, NULL}, {SUM("ReduceSum", "1024,512"), NULL, "S0.2", NULL}};
#undef RUNS
#undef SUM
    (void)state;
    CHOOSE("x86-64-avx2", false, near);
    CHOOSE("x86-64-bf16", false, one);
}

/* Sums of short rows read as many runs of memory as they add rows at a time; long rows follow each other, and so do those that some rows meet from
 * near. */
static void short_rows_are_read_in_runs(void **state)
{
#define SUM(x) "{\"op\":{\"name\":\"ReduceSum\",\"attrs\":{\"axes\":[0],\"keepdims\":0}},\"inputs\":[" INPUT("f32", x) "]}"
    static const choice one[] = {
        {SUM("33333,300"), "R0.1 S0.1 R0.0 |", NULL, NULL}, {SUM("4224,40"), "| R0.1 R0.0 |", NULL, NULL},
        {SUM("3000,5000"), "R0.0 S0.1 R0.1 |", NULL, NULL}, {SUM("600,1500"), "R0.0 S0.1 R0.1 |", NULL, NULL},
        {PRODUCT("f32", "1,14285", "14285,700"), "R0.1 S1.1 R0.0 |", NULL, NULL},
        {PRODUCT("f32", "2,10000", "10000,1000"), "R0.1 S1.1 S0.1 R0.0 |", NULL, NULL},
        {PRODUCT("f32", "2,1000", "1000,1000"), "R0.0 S1.1 S0.1 R0.1 |", NULL, NULL},
        {PRODUCT("f32", "6,10000", "10000,1000"), "R0.0 S1.1 S0.1 R0.1 |", NULL, NULL},
    };
#undef SUM
    (void)state;
    CHOOSE("x86-64-bf16", false, one);
}

/* Products whose tiles are short go along several in a task, and so do sums of a few terms. */
static void short_tiles_share_a_task(void **state)
{
#define SUMS(axis, x) "{\"op\":{\"name\":\"ReduceSum\",\"attrs\":{\"axes\":[" axis "],\"keepdims\":0}},\"inputs\":[" INPUT("f32", x) "]}"
#define ALONE(x, w) "{\"op\":{\"name\":\"Conv\"},\"inputs\":[{\"dtype\":\"f32\",\"shape\":[" x "]},{\"dtype\":\"f32\",\"shape\":[" w ",1,1]}]}"
    static const choice one[] = {{ALONE("1,24,57,57", "144,24"), "split out0 F0 17 2 16\n", NULL, " | F0.1 S1.1 R0.0 | "},
                                 {ALONE("1,16,113,113", "96,16"), "split out0 F0 ", NULL, " | F0.1 S1.1 R0.0 | "},
                                 {ALONE("1,64,55,55", "64,64"), "| S1.1 R0.0 |", "F0.3", NULL}};
    static const choice sums[] = {{SUMS("1", "200000,4"), "reorder out0 S0.0 | S0.1 R0.0 | S0.2 S0.3\n", NULL, NULL},
                                  {SUMS("0", "30,20000"), "reorder out0 S0.0 | R0.0 ", "S0.3", NULL}};
#undef ALONE
#undef SUMS
    (void)state;
    CHOOSE("x86-64-amx", false, one);
    CHOOSE("x86-64-avx512", false, sums);
}

/* Channels first and packed ahead: the channels of the results are lanes where places in rows of their own leave more of these idle than it takes to
 * turn what goes in and out; else places stay lanes. */
static void constants_compete_with_lanes_along_channels(void **state)
{
#define AHEAD(x, w) "{\"op\":{\"name\":\"Conv\"},\"inputs\":[{\"dtype\":\"f32\",\"shape\":[" x "]},{\"dtype\":\"f32\",\"constant\":true," \
                    "\"shape\":[" w "]}]}"
    static const choice one[] = {{AHEAD("8,8,63,9", "192,8,1,5"), "cache_write out0 lanes_last", "flatten_window", "prepack"},
                                 {AHEAD("1,8,63,63", "64,8,3,3"), "vectorize out0 S3.2", "lanes_last", NULL}};
#undef AHEAD
    (void)state;
    CHOOSE("x86-64-avx512", false, one);
}

/* Sums of a few terms go to a dot instruction, too, a pair of halves at least; not those of bytes whose results floats write past the caches, nor
 * small ones of so few bytes that making them unsigned at each call takes longer. Lanes may be idle: a few columns are no mapping's. */
static void short_sums_are_dots(void **state)
{
#define BYTES(x, a, b) "{\"op\":\"MatMulInteger\",\"inputs\":[" INPUT(x, a) "," INPUT("i8", b) "]}"
    static const choice one[] = {
        {PRODUCT("bf16", "1760,8", "8,112"), "vdpbf16ps", NULL, NULL},  {PRODUCT("bf16", "1000,3", "3,100"), "vdpbf16ps", NULL, NULL},
        {PRODUCT("bf16", "64,14", "14,64"), "vdpbf16ps", NULL, NULL},   {PRODUCT("bf16", "8,4", "4,32"), NULL, "tensorize", NULL},
        {BYTES("i8", "640,8", "8,72"), "vpdpbusd", NULL, NULL},         {BYTES("u8", "4096,4", "4,4096"), NULL, "tensorize", NULL},
        {BYTES("i8", "162,5", "5,57"), NULL, "tensorize", NULL},        {BYTES("i8", "200,10", "10,24"), "vpdpbusd", NULL, NULL},
        {BYTES("i8", "62,804", "804,5"), "tensorize", " map ", NULL},   {PRODUCT("bf16", "499,72", "72,5"), "tensorize", " map ", NULL},
    };
#undef BYTES
    (void)state;
    CHOOSE("x86-64-bf16", false, one);
}

/* Places that would be gathered are no lanes of a dot instruction where they are few; bytes become unsigned as they are turned for one. */
static void dots_read_what_lies_well(void **state)
{
    static const choice one[] = {
        {"{\"op\":\"Conv\",\"inputs\":[" INPUT("bf16", "1,16,9,9") "," INPUT("bf16", "68,16,7,7") "]}", "map ", "tensorize", NULL},
        {"{\"op\":{\"name\":\"ConvInteger\"},\"inputs\":[{\"dtype\":\"i8\",\"shape\":[4,288,56,56]},{\"dtype\":\"i8\",\"constant\":true,"
         "\"shape\":[16,288,2,2]}]}", "inline plane0\n", "vectorize plane0", "unsign "},
        {"{\"op\":\"ConvInteger\",\"inputs\":[" INPUT("i8", "1,17,15,15") "," INPUT("i8", "57,17,5,5") "]}", "vpdpbusd\n", NULL,
         "copy out0 1 weights"},
    };
    (void)state;
    CHOOSE("x86-64-bf16", false, one);
}

/* Rows at the same place of their pages are at most what a set of L1 holds, of a constant's panel as of others, and few panels copy none; a
 * constant's other factor is not turned. */
static void rows_of_one_set(void **state)
{
#define ROWS(t, k) \
    "{\"op\":\"MatMul\",\"inputs\":[" INPUT(t, "2048," k) ",{\"dtype\":\"" t "\",\"constant\":true,\"shape\":[" k ",32]}]}"
    static const choice one[] = {{ROWS("f32", "1024"), " 8\n", "lanes_last", "prepack out0"},
                                 {ROWS("f32", "1000"), "prepack out0", " 8\n", NULL},
                                 {ROWS("f32", "4096"), " 8\n", "region pad ", "prepack out0"},
                                 {ROWS("bf16", "4096"), " 8\n", NULL, "vdpbf16ps"}};
#undef ROWS
    (void)state;
    CHOOSE("x86-64-bf16", false, one);
}

/* An image that a window steps over is read as it lies for its channels' results as lanes, where few results meet each of its elements. */
static void images_lie_under_lanes(void **state)
{
#define STEPS(x, w) \
    "{\"op\":{\"name\":\"Conv\",\"attrs\":{\"strides\":[2,2]}},\"inputs\":[{\"dtype\":\"f32\",\"shape\":[" x "]},{\"dtype\":\"f32\"," \
    "\"constant\":true,\"shape\":[" w "]}]}"
    static const choice one[] = {{STEPS("1,128,150,150", "16,128,2,2"), "cache_write out0 lanes_last", "terms_last", "prepack lanes_last"},
                                 {STEPS("2,256,112,112", "128,256,1,1"), "cache_write out0 lanes_last", "terms_last", "prepack lanes_last"},
                                 {STEPS("1,128,112,112", "16,128,9,9"), NULL, "cache_write out0 lanes_last\ntransform_layout lanes_last", NULL},
                                 {STEPS("1,128,112,112", "10,128,2,2"), NULL, "cache_write out0 lanes_last\ntransform_layout lanes_last", NULL}};
#undef STEPS
    (void)state;
    CHOOSE("x86-64-bf16", false, one);
}

/* Whole vectors of which half are results, channels last, are packed and read a band of the image as others are; halves of vectors need three
 * quarters. */
static void few_results_are_packed(void **state)
{
#define RESULTS(f, c) \
    "{\"expr\":\"y[N,P,Q,F] +=! pad(x,0.0)[N,P*2+R,Q*2+S,C]*w[R,S,C,F] where P in 54, Q in 54, R in 3, S in 3\",\"inputs\":[" \
    "{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[2,108,108,66]},{\"name\":\"w\",\"dtype\":\"f32\"" c ",\"shape\":[3,3,66," f "]}]}"
    static const choice one[] = {{RESULTS("10", ",\"constant\":true"), "prepack out0 ", "flatten_window", "region\n"},
                                 {RESULTS("9", ",\"constant\":true"), "prepack out0 ", "flatten_window", "region\n"},
                                 {RESULTS("5", ",\"constant\":true"), "S2", "prepack out0 ", NULL}};
#undef RESULTS
    (void)state;
    CHOOSE("x86-64-avx512", false, one);
}

/* Of a window of one tap only what it meets becomes unsigned, where that is runs of bytes. */
static void what_is_skipped_stays_signed(void **state)
{
#define TAPS(x, index, w, taps) \
    "{\"expr\":\"y[N,P,Q,F] +=! cast(x[" index "],i32)*cast(w[R,S,C,F],i32) where P in 20, Q in 20, " taps "\",\"inputs\":[{\"name\":\"x\"," \
    "\"dtype\":\"i8\",\"shape\":[" x "]},{\"name\":\"w\",\"dtype\":\"i8\",\"constant\":true,\"shape\":[" w "]}]}"
    static const choice one[] = {
        {TAPS("2,40,40,64", "N,P*2+R,Q*2+S,C", "1,1,64,32", "R in 1, S in 1"), "reindex out0 ", NULL, "inline plane0\n"},
        {TAPS("2,42,42,64", "N,P*2+R,Q*2+S,C", "3,3,64,32", "R in 3, S in 3"), "unsign out0 ", "reindex ", NULL},
        {TAPS("2,20,20,64", "N,P+R,Q+S,C", "1,1,64,32", "R in 1, S in 1"), "unsign out0 ", "reindex ", NULL},
        {TAPS("2,64,40,40", "N,C,P*2+R,Q*2+S", "1,1,64,32", "R in 1, S in 1"), NULL, "reindex ", NULL},
    };
#undef TAPS
    (void)state;
    CHOOSE("x86-64-vnni", false, one);
}

/* Terms of an odd number are whole pairs with their padding, of which no block is left over for one; results that lie pages apart are no vector's
 * lanes. */
static void odd_terms_are_one_block(void **state)
{
    static const choice one[] = {
        {"{\"op\":{\"name\":\"Conv\",\"attrs\":{\"dilations\":[2,2],\"pads\":[2,2,2,2]}},\"inputs\":[" INPUT("bf16", "1,431,10,10") ","
         INPUT("bf16", "311,431,3,3") "]}", "split turned0 R0 216 2\n", "split turned0 R0 215", "cache_read turned0 0"},
        {"{\"op\":{\"name\":\"Conv\",\"attrs\":{\"pads\":[0,1,1,1]}},\"inputs\":[" INPUT("bf16", "1,3,123,123") "," INPUT("bf16", "464,3,2,3")
         "]}", NULL, "I=S1;", NULL},
    };
    (void)state;
    CHOOSE("x86-64-bf16", false, one);
}

/* Each product of a batch packs panels of its own, however many of them a task has. */
static void batches_are_packed(void **state)
{
#define BATCH(a, b, x, w) "{\"expr\":\"y[B,M,N] +=! a[" a "]*b[" b "]\",\"inputs\":[" NAMED("a", "f32", x) "," NAMED("b", "f32", w) "]}"
    static const char packed[] = " scratch S2.0 loops R0.0 S2.1 S2.2", along[] = "vectorize out0 R0";
    static const choice one[] = {{BATCH("B,M,K", "B,N,K", "192,50,32", "192,50,32"), packed, along, "reorder out0 S0.0 S0.1"},
                                 {BATCH("B,M,K", "B,N,K", "207,19,48", "207,295,48"), packed, along, NULL},
                                 {BATCH("B,K,M", "B,N,K", "177,40,50", "177,77,40"), packed, along, NULL}};
#undef BATCH
    (void)state;
    CHOOSE("x86-64-avx512", false, one);
}

/* Where both factors lie across the terms of a dot the one that is broadcast is turned, its terms filled up before; the other one, with the results,
 * where that is less; where each lies as the other one should nothing but the results is. */
static void terms_are_turned_for_dots(void **state)
{
#define TURN(b, x, w) "{\"expr\":\"y[M,N] +=! a[K,M]*b[" b "]\",\"inputs\":[" NAMED("a", "bf16", x) "," NAMED("b", "bf16", w) "]}"
    static const char rows[] = "\ntransform_layout more0 1 0", dot[] = " vdpbf16ps";
    static const char results[] = "cache_write out0 turned0\ntransform_layout turned0 1 0";
    static const choice one[] = {{TURN("K,N", "48,155", "48,540"), rows, "map out0", dot},
                                 {TURN("K,N", "144,5", "144,1809"), rows, "map out0", dot},
                                 {TURN("K,N", "181,48", "181,1148"), "pad_einsum out0 R0 2\ncopy out0 0 more", "inline in0_pad", dot},
                                 {TURN("K,N", "264,1072", "264,19"), results, NULL, "copy turned0 1 more"},
                                 {TURN("N,K", "1010,112", "106,1010"), results, "copy ", dot},
                                 {TURN("N,K", "32,35", "447,32"), rows, "cache_write out0", dot}};
#undef TURN
    (void)state;
    CHOOSE("x86-64-bf16", false, one);
}

/* Depthwise windows over planes with the channels as lanes: not where rows nearly fill vectors and few taps meet them one by one. */
static void short_rows_want_lanes(void **state)
{
#define DEPTHWISE(x, w, steps) \
    "{\"op\":{\"name\":\"Conv\",\"attrs\":{\"group\":64,\"pads\":[1,1,1,1]" steps "}},\"inputs\":[" INPUT("f32", x) "," INPUT("f32", w) "]}"
    static const choice one[] = {{DEPTHWISE("1,64,14,14", "64,1,3,3", ""), NULL, "region last", NULL},
                                 {DEPTHWISE("1,64,11,11", "64,1,3,3", ""), "region last", NULL, NULL},
                                 {DEPTHWISE("1,64,14,14", "64,1,5,5", ""), "region last", NULL, NULL},
                                 {DEPTHWISE("1,64,14,14", "64,1,3,3", ",\"strides\":[2,2]"), "region last", NULL, NULL}};
#undef DEPTHWISE
    (void)state;
    CHOOSE("x86-64-avx512", false, one);
}

/* Patches of an image, which share no taps, lie beside each other place by place where rows of them alone would leave lanes idle. */
static void patches_are_one_axis(void **state)
{
#define PATCHES(by, x, w) "{\"op\":{\"name\":\"Conv\",\"attrs\":{\"strides\":[" by "," by "]}},\"inputs\":[" INPUT("f32", x) "," INPUT("f32", w) "]}"
    static const choice one[] = {{PATCHES("2", "1,3,44,44", "359,3,2,2"), "transform_layout plane0 0 3 4 5 1 2\n", "unstride", "fuse out0 F0 S2 S3"},
                                 {PATCHES("4", "1,3,224,224", "96,3,4,4"), "transform_layout plane0 0 3 4 5 1 2\n", "unstride", NULL},
                                 {PATCHES("2", "4,3,186,32", "359,3,2,2"), NULL, "transform_layout plane0 0 3", NULL},
                                 {PATCHES("2", "1,3,44,44", "359,3,3,3"), NULL, "transform_layout plane0 0 3", NULL}};
#undef PATCHES
    (void)state;
    CHOOSE("x86-64-avx512", false, one);
}

/* A machine with a fast L3, as measured: blocks have more rows where caches may hold the whole operand, not a part of its sum; rows that one
 * register tile holds need no copy; and turning an image takes a core longer than reading it from that L3. */
static void fast_caches_change_no_tiles(void **state)
{
#define LAST(by, n, x, w, k) "{\"expr\":\"y[N,P,Q,F] +=! x[N,P*" by "+R,Q*" by "+S,C]*w[R,S,C,F] where P in " n ", Q in " n ", R in " k \
                             ", S in " k "\",\"inputs\":[" NAMED("x", "f32", x) "," NAMED("w", "f32", w) "]}"
    static const choice one[] = {{PRODUCT("f32", "6,3232", "3232,3248"), "split parts R0 8\n", NULL, "split parts S0 1 6\n"},
                                 {PRODUCT("f32", "4,3536", "3536,152"), "split out0 S0 1 4\n", "cache_read", NULL},
                                 {LAST("1", "147", "1,147,147,992", "1,1,992,9", "1"), NULL, "transform_layout", NULL},
                                 {LAST("2", "33", "1,68,68,229", "3,3,229,40", "3"), NULL, "transform_layout", NULL}};
#undef LAST
    (void)state;
    CHOOSE("../tests/data/cpu_rank_zen4", false, one);
}

/* Few channels of narrow elements become the innermost ones in whole vectors, interleaved as they are stored; taps of one channel that are no whole
 * number of an instruction's terms are read from rows that go on. */
static void few_channels_are_interleaved(void **state)
{
#define LAST(type, shape) "{\"op\":{\"name\":\"Transpose\",\"attrs\":{\"perm\":[0,2,3,1]}},\"inputs\":[" INPUT(type, shape) "]}"
#define STEM(type, x, w) "{\"op\":{\"name\":\"Conv\",\"attrs\":{\"strides\":[2,2]}},\"inputs\":[" INPUT(type, x) "," INPUT(type, w) "]}"
#define ALONE(k) "{\"expr\":\"y[N,P,Q,F] +=! pad(x,0.0)[N,P+R,Q+S,C]*w[R,S,C,F] where P in 64, Q in 64\",\"inputs\":[" \
                 NAMED("x", "bf16", "1,64,64,1") "," NAMED("w", "bf16", k "," k ",1,32") "]}"
    static const choice turned[] = {{LAST("u8", "1,3,128,128"), "__builtin_shufflevector", NULL, "u8x16u"},
                                    {LAST("f16", "2,3,64,64"), "__builtin_shufflevector", "restrict line", "u16x32u"},
                                    {LAST("u8", "1,4,96,96"), "__builtin_shufflevector", "restrict line", "u8x64u"},
                                    {STEM("bf16", "1,3,64,64", "32,3,3,3"), "rows", "restrict line", "__builtin_shufflevector"}};
    static const choice taps[] = {{ALONE("5"), " region\n", "flatten_window", NULL}, {ALONE("7"), " region\n", "flatten_window", NULL}};
#undef LAST
#undef STEM
#undef ALONE
    (void)state;
    CHOOSE("x86-64-bf16", true, turned);
    CHOOSE("x86-64-bf16", false, taps);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lanes_and_rows_lie_beside_each_other), cmocka_unit_test(tiles_are_whole),
                                       cmocka_unit_test(planes_are_read_in_order),
                                       cmocka_unit_test(vectors_of_windows_read_side_by_side), cmocka_unit_test(blocks_for_few_rows),
                                       cmocka_unit_test(long_sums_go_in_slices),
                                       cmocka_unit_test(picked_elements_are_written_out), cmocka_unit_test(weights_are_read_in_order),
                                       cmocka_unit_test(cores_read_their_own_copies), cmocka_unit_test(units_have_long_parts),
                                       cmocka_unit_test(cores_write_whole_lines),
                                       cmocka_unit_test(cores_have_their_own_filters), cmocka_unit_test(rows_of_two_tiles_are_interleaved),
                                       cmocka_unit_test(tasks_that_write_are_long),
                                       cmocka_unit_test(short_tiles_share_a_task), cmocka_unit_test(few_rows_go_in_parts),
                                       cmocka_unit_test(bytes_by_parts_of_lines),
                                       cmocka_unit_test(operands_of_many_come_from_end_to_end),
                                       cmocka_unit_test(short_rows_are_read_in_runs), cmocka_unit_test(far_rows_are_four_runs),
                                       cmocka_unit_test(planes_are_copied_in_order),
                                       cmocka_unit_test(few_channels_are_interleaved),
                                       cmocka_unit_test(long_rows_are_read_once), cmocka_unit_test(loops_too_long_to_write_out),
                                       cmocka_unit_test(far_squares_lie_beside_each_other), cmocka_unit_test(crowded_windows_come_in_runs),
                                       cmocka_unit_test(windows_of_one_tap_are_products), cmocka_unit_test(rows_come_from_lines),
                                       cmocka_unit_test(fast_caches_change_no_tiles),
                                       cmocka_unit_test(groups_are_no_lanes),
                                       cmocka_unit_test(constants_compete_with_lanes_along_channels),
                                       cmocka_unit_test(short_sums_are_dots), cmocka_unit_test(dots_read_what_lies_well),
                                       cmocka_unit_test(what_is_skipped_stays_signed), cmocka_unit_test(few_results_are_packed),
                                       cmocka_unit_test(images_lie_under_lanes), cmocka_unit_test(rows_of_one_set),
                                       cmocka_unit_test(odd_terms_are_one_block), cmocka_unit_test(patches_are_one_axis),
                                       cmocka_unit_test(batches_are_packed), cmocka_unit_test(terms_are_turned_for_dots),
                                       cmocka_unit_test(short_rows_want_lanes),
                                       cmocka_unit_test(small_products_of_whole_tiles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
