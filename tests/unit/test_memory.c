/* The whole compiler with memory that fails at the n-th request: it says so, never crashes, and never gives a wrong answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "kiln.h"

static void *mem(void *user, void *p, size_t old_size, size_t size)
{
    int *left = user;
    (void)old_size;
    if (!size) {
        free(p);
        return NULL;
    }
    if ((*left)-- <= 0) return NULL;
    return realloc(p, size);
}

static kiln_bytes read_file(const char *path, char *buffer, size_t cap)
{
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t n = fread(buffer, 1, cap, f);
    fclose(f);
    return (kiln_bytes){buffer, n};
}

static kiln_status compile(const char *body, kiln_bytes spec, int budget)
{
    kiln_arena *a = kiln_arena_open(&(kiln_host){&budget, mem, NULL});
    kiln_request *r;
    kiln_hw *hw;
    kiln_candidates *c;
    kiln_kernel *k;
    kiln_keys keys;
    kiln_bytes text;
    kiln_diag d = {0};
    if (!a) return KILN_MEMORY;
    kiln_status s = kiln_request_json(a, (kiln_bytes){body, strlen(body)}, &r, &d);
    if (s == KILN_OK) s = kiln_hw_parse(a, spec, &hw, &d);
    if (s == KILN_OK) s = kiln_keys_of(a, r->program, hw, r->policy, &keys, &d);
    if (s == KILN_OK) s = kiln_construct_request(a, r, hw, 3, &c, &d);
    if (s == KILN_OK) s = kiln_generate(a, r->program, hw, c->c[0].trace, &k, &d);
    if (s == KILN_OK) s = kiln_explain(a, r->program, hw, c->c[0].trace, &text, &d);
    if (s != KILN_OK && s != KILN_MEMORY) print_error("budget: %s %s\n", kiln_status_slug(s), d.message);
    kiln_arena_close(a);
    return s;
}

static void fail_each(const char *body, kiln_bytes spec)
{
    int n = 0;
    kiln_status s;
    do { /* chunks grow, so there are few requests for memory: every one of them fails once */
        s = compile(body, spec, n);
        if (s != KILN_OK && s != KILN_MEMORY) fail_msg("%s with %d requests for memory: %s", body, n, kiln_status_slug(s));
    } while (s != KILN_OK && n++ < 10000);
    assert_int_equal(s, KILN_OK);
    assert_true(n > 4);
}

static void failing_memory(void **state)
{
    (void)state;
    static const char instruction[] =
        "{\"op\":\"MatMul\",\"inputs\":[{\"dtype\":\"f32\",\"shape\":[65,70]},{\"dtype\":\"f32\",\"shape\":[70,90]}],\"trace\":"
        "[\"split out0 S0 4\",\"split out0 S1 8\",\"reorder out0 S0.0 S1.0 R0.0 S0.1 | S1.1\",\"unroll out0 S0.1\",\"tensorize out0 S1.1 "
        "fma_f32\"]}";
    static const char *const bodies[] = {
        "{\"op\":\"MatMul\",\"inputs\":[{\"dtype\":\"f32\",\"shape\":[65,70]},{\"dtype\":\"f32\",\"shape\":[70,90]}]}",
        "{\"op\":\"Softmax\",\"inputs\":[{\"dtype\":\"f16\",\"shape\":[9,100]}]}",
        ("{\"op\":{\"name\":\"Conv\",\"attrs\":{\"pads\":[1,1,1,1]}},\"inputs\":[{\"dtype\":\"f32\",\"shape\":[1,8,9,9]},"
         "{\"dtype\":\"f32\",\"shape\":[8,8,3,3]},{\"dtype\":\"f32\",\"shape\":[8]}]}")};
    static const char *const specs[] = {"hwspecs/x86-64-avx2.json", "hwspecs/nvidia-v100.json"};
    static char buffer[1 << 15];
    for (int h = 0; h < 2; h++) {
        kiln_bytes spec = read_file(specs[h], buffer, sizeof buffer);
        for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) fail_each(bodies[i], spec);
        if (!h) fail_each(instruction, spec);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(failing_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
