/* What a construction takes before a kernel can be made: little memory, and of its candidates the first alone. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(constructs_in_little_memory), cmocka_unit_test(first_alone_is_the_first)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
