/* What a construction takes before a kernel can be made: little memory, and of its candidates the first alone. What it thinks that mappings take. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/unit/device.h"

static void *counted(void *user, void *p, size_t old_size, size_t size)
{
    size_t *total = user;
    (void)old_size;
    *total += size;
    if (size) return realloc(p, size);
    free(p);
    return NULL;
}

/* Pages that nobody had before cost more than the work done on them: what ten candidates of a window over channels take is bounded. */
static void constructs_in_little_memory(void **state)
{
    enum { MOST = 4 << 20 };
    (void)state;
    static const char body[] = "{\"op\":{\"name\":\"Conv\",\"attrs\":{\"pads\":[1,1,1,1]}},\"inputs\":[{\"dtype\":\"f32\",\"shape\":[1,64,28,28]},"
                               "{\"dtype\":\"f32\",\"shape\":[64,64,3,3]}]}";
    static const char *const specs[] = {"x86-64-avx2", "x86-64-avx512", "x86-64-amx"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        size_t total = 0, before;
        kiln_arena *a = kiln_arena_open(&(kiln_host){&total, counted, NULL});
        kiln_request *r;
        kiln_hw *hw = device(a, specs[i]);
        kiln_candidates *c;
        kiln_diag d = {0};
        assert_int_equal(kiln_request_json(a, (kiln_bytes){body, strlen(body)}, &r, &d), KILN_OK);
        before = total;
        assert_int_equal(kiln_construct_request(a, r, hw, 10, &c, &d), KILN_OK);
        if (total - before > MOST) fail_msg("%s: construction took %zu bytes", specs[i], total - before);
        kiln_arena_close(a);
    }
}

/* Most builds construct one candidate and the others only when it fails: it is the first of them. */
static void first_alone_is_the_first(void **state)
{
    static const char *const bodies[] = {
        "{\"op\":\"MatMul\",\"inputs\":[{\"dtype\":\"f32\",\"shape\":[127,300]},{\"dtype\":\"f32\",\"shape\":[300,513]}]}",
        "{\"op\":\"Softmax\",\"inputs\":[{\"dtype\":\"f32\",\"shape\":[100,700]}]}",
        "{\"op\":{\"name\":\"Conv\",\"attrs\":{\"pads\":[1,1,1,1]}},\"inputs\":[{\"dtype\":\"f32\",\"shape\":[1,64,28,28]},"
        "{\"dtype\":\"f32\",\"shape\":[64,64,3,3]}]}",
        "{\"op\":{\"name\":\"ReduceSum\",\"attrs\":{\"axes\":[0]}},\"inputs\":[{\"dtype\":\"f32\",\"shape\":[3000,100]}]}",
        "{\"op\":{\"name\":\"MaxPool\",\"attrs\":{\"kernel_shape\":[3,3],\"strides\":[2,2]}},\"inputs\":[{\"dtype\":\"f32\","
        "\"shape\":[1,32,57,57]}]}"};
    static const char *const specs[] = {"x86-64-avx2", "x86-64-amx", "nvidia-h200",
                                        "nvidia-v100"};
    (void)state;
    for (size_t i = 0; i < sizeof specs / sizeof *specs * (sizeof bodies / sizeof *bodies); i++) {
        const char *body = bodies[i % (sizeof bodies / sizeof *bodies)], *spec = specs[i / (sizeof bodies / sizeof *bodies)];
        size_t total = 0;
        kiln_arena *a = kiln_arena_open(&(kiln_host){&total, counted, NULL});
        kiln_request *r;
        kiln_hw *hw = device(a, spec);
        kiln_candidates *one, *ten;
        kiln_diag d = {0};
        assert_int_equal(kiln_request_json(a, (kiln_bytes){body, strlen(body)}, &r, &d), KILN_OK);
        assert_int_equal(kiln_construct_request(a, r, hw, 1, &one, &d), KILN_OK);
        assert_int_equal(kiln_construct_request(a, r, hw, 10, &ten, &d), KILN_OK);
        assert_string_equal(one->c[0].trace.p, ten->c[0].trace.p);
        kiln_arena_close(a);
    }
}

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
    static const struct { const char *body, *has, *never; } one[] = {
        {WINDOW("8,256,14,14", "512,256"), "plane", "J=S3;"}, {WINDOW("8,64,56,56", "128,64"), "plane", "J=S3;"},
        {WINDOW("1,512,28,28", "1024,512"), "plane", "J=S3;"}, {PLACES("8,14,14,1024", "1024,256"), "S1,S2;", "I=S0,S1;"},
        {PLACES("8,56,56,64", "64,256"), "S1,S2;", "I=S0,S1;"}, {ONE_BY_ONE("8,14,14,1024", "1024,256"), "S1,S2;", "I=S0,S1;"},
        {"{\"op\":\"MatMul\",\"inputs\":[{\"dtype\":\"bf16\",\"shape\":[2048,2048]},{\"dtype\":\"bf16\",\"shape\":[2048,2048]}]}",
         "I=S0;J=S1;", "I=S1;"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        size_t total = 0;
        kiln_arena *a = kiln_arena_open(&(kiln_host){&total, counted, NULL});
        kiln_request *r;
        kiln_candidates *list;
        kiln_diag d = {0};
        assert_int_equal(kiln_request_json(a, (kiln_bytes){one[i].body, strlen(one[i].body)}, &r, &d), KILN_OK);
        assert_int_equal(kiln_construct_request(a, r, device(a, "x86-64-amx"), 1, &list, &d), KILN_OK);
        const char *trace = list->c[0].trace.p;
        if (!strstr(trace, " amx_") || strstr(trace, one[i].never) || !strstr(trace, one[i].has)) fail_msg("%s\n%s", one[i].body, trace);
        kiln_arena_close(a);
    }
#undef WINDOW
#undef PLACES
#undef ONE_BY_ONE
}

/* Planes of a task are read one after the other, each from end to end, but for a few of them. */
static void planes_are_read_in_order(void **state)
{
#define POOL(x) "{\"op\":{\"name\":\"AveragePool\",\"attrs\":{\"kernel_shape\":[1,1],\"strides\":[2,2]}}," \
                "\"inputs\":[{\"dtype\":\"f32\",\"shape\":[" x "]}]}"
    static const struct { const char *body, *order; } one[] = {
        {POOL("14,168,83,83"), "reorder t0 J0.0 J0.1 S2.0 "}, {POOL("1,168,83,83"), "reorder t0 S0.0 S1.0 S2.0 S3.0 | S1.1 "},
    };
#undef POOL
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        size_t total = 0;
        kiln_arena *a = kiln_arena_open(&(kiln_host){&total, counted, NULL});
        kiln_request *r;
        kiln_candidates *list;
        kiln_diag d = {0};
        assert_int_equal(kiln_request_json(a, (kiln_bytes){one[i].body, strlen(one[i].body)}, &r, &d), KILN_OK);
        assert_int_equal(kiln_construct_request(a, r, device(a, "x86-64-avx512"), 1, &list, &d), KILN_OK);
        if (!strstr(list->c[0].trace.p, one[i].order)) fail_msg("%s\n%s", one[i].body, list->c[0].trace.p);
        kiln_arena_close(a);
    }
}

/* Neighbouring threads of a GPU read within 16 bytes of each other, so that vectors of results have as many as their steps leave. */
static void vectors_of_windows_read_side_by_side(void **state)
{
#define POOL(step) "{\"op\":{\"name\":\"MaxPool\",\"attrs\":{\"kernel_shape\":[3,3],\"strides\":[" step "],\"pads\":[1,1,1,1]}}," \
                   "\"inputs\":[{\"dtype\":\"f32\",\"shape\":[128,64,112,112]}]}"
    static const struct { const char *body, *vectors; } one[] = {{POOL("2,2"), " 2\nreorder out0"}, {POOL("1,1"), " 4\nreorder out0"}};
#undef POOL
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        size_t total = 0;
        kiln_arena *a = kiln_arena_open(&(kiln_host){&total, counted, NULL});
        kiln_request *r;
        kiln_candidates *list;
        kiln_diag d = {0};
        assert_int_equal(kiln_request_json(a, (kiln_bytes){one[i].body, strlen(one[i].body)}, &r, &d), KILN_OK);
        assert_int_equal(kiln_construct_request(a, r, device(a, "nvidia-h200"), 1, &list, &d), KILN_OK);
        if (!strstr(list->c[0].trace.p, one[i].vectors)) fail_msg("%s\n%s", one[i].body, list->c[0].trace.p);
        kiln_arena_close(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(constructs_in_little_memory), cmocka_unit_test(first_alone_is_the_first),
                                       cmocka_unit_test(lanes_and_rows_lie_beside_each_other), cmocka_unit_test(planes_are_read_in_order),
                                       cmocka_unit_test(vectors_of_windows_read_side_by_side)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
