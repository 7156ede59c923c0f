/* The static gate reads what ptxas -v says: numbers of the worst function, and what makes it refuse a binary. */
#include "workers/gate.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static const char good[] =
    "ptxas info    : 0 bytes gmem\n"
    "ptxas info    : Compiling entry function 'kiln_ab_1' for 'sm_80'\n"
    "ptxas info    : Function properties for kiln_ab_1\n"
    "ptxas         .     16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    "ptxas info    : Used 40 registers, used 0 barriers, 368 bytes cmem[0]\n"
    "ptxas info    : Compiling entry function 'kiln_ab_0' for 'sm_80'\n"
    "ptxas info    : Function properties for kiln_ab_0\n"
    "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    "ptxas info    : Used 130 registers, used 1 barriers, 36864 bytes smem, 376 bytes cmem[0], 8 bytes cmem[2]\n";

static gate_report judged(const char *log, int nlaunches, int64_t shared, int64_t dynamic)
{
    kiln_launch launches[] = {{.entry = "kiln_ab_0", .shared_bytes = shared, .dynamic_shared_bytes = dynamic}, {.entry = "kiln_ab_1"},
                              {.entry = "kiln_ab_10"}};
    kiln_kernel k = {.language = "cuda", .launches = launches, .nlaunches = nlaunches};
    gate_report g;
    gate_read(log, &k, &g);
    return g;
}

static void right_ones_pass(void **state)
{
    char json[400];
    (void)state;
    gate_report g = judged(good, 2, 36864, 0);
    assert_string_equal(g.why, "");
    assert_int_equal(g.functions, 2);
    assert_int_equal(g.registers, 130);
    assert_int_equal(g.static_shared_bytes, 36864);
    assert_int_equal(g.stack_bytes, 16);
    gate_text(&g, json, sizeof json);
    assert_string_equal(json, "{\"how\":\"\",\"assembler\":{\"functions\":2,\"registers\":130,\"stack_bytes\":16,\"spill_bytes\":0,"
                              "\"static_shared_bytes\":36864}}");
}

/* The kernels for any address are in the same binary, and held to the same. */
static void a_fallback_is_judged_too(void **state)
{
    kiln_launch first = {.entry = "kiln_ab_0", .shared_bytes = 36864}, second = {.entry = "kiln_ab_1"};
    kiln_kernel plain = {.language = "cuda", .launches = &second, .nlaunches = 1};
    kiln_kernel k = {.language = "cuda", .launches = &first, .nlaunches = 1, .fallback = &plain};
    gate_report g;
    char log[sizeof good + 8];
    (void)state;
    gate_read(good, &k, &g);
    assert_string_equal(g.why, "");
    assert_int_equal(g.functions, 2);
    second.entry = "kiln_ab_any_0";
    gate_read(good, &k, &g);
    assert_string_equal(g.why, "the assembler does not report on kiln_ab_any_0");
    second.entry = "kiln_ab_1";
    strcpy(log, good);
    memcpy(strstr(log, "0 bytes spill stores"), "8", 1);
    gate_read(log, &k, &g);
    assert_string_equal(g.why, "kiln_ab_1: 8 bytes of registers are spilled to memory");
}

static void wrong_ones_are_refused(void **state)
{
    static const struct { const char *find, *put; int nlaunches; int64_t shared, dynamic; const char *says; } bad[] = {
        {"0 bytes spill stores, 0 bytes spill loads\nptxas info    : Used 130",
         "32 bytes spill stores, 48 bytes spill loads\nptxas info    : Used 130", 2, 36864, 0, "kiln_ab_0: 80 bytes of registers are spilled"},
        {"gmem", "gmem", 2, 32768, 0, "kiln_ab_0: 36864 bytes of static shared memory, its launch says 32768"},
        {"gmem", "gmem", 2, 81920, 81920, "its launch says 0"},
        {"gmem", "gmem", 3, 36864, 0, "does not report on kiln_ab_10"},
        {"0 bytes gmem", "(C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized", 2, 36864, 0,
         "serialises tensor instructions: (C7510)"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char log[2000];
        const char *at = strstr(good, bad[i].find);
        assert_non_null(at);
        snprintf(log, sizeof log, "%.*s%s%s", (int)(at - good), good, bad[i].put, at + strlen(bad[i].find));
        gate_report g = judged(log, bad[i].nlaunches, bad[i].shared, bad[i].dynamic);
        if (strstr(g.why, bad[i].says) == NULL) {
            fail_msg("case %d: \"%s\"", (int)i, g.why);
        }
    }
}

/* Beside a function with a dynamic array, whose alignment is 1024, the assembler rounds every other's static part up to that. */
static void shared_memory_in_steps(void **state)
{
    kiln_launch list[] = {{.entry = "kiln_ab_0", .shared_bytes = 36864 - 512}, {.entry = "kiln_ab_1", .shared_bytes = 52224}};
    kiln_kernel k = {.nlaunches = 2, .launches = list};
    gate_report g;
    (void)state;
    gate_read(good, &k, &g);
    assert_non_null(strstr(g.why, "its launch says 36352"));
    list[1].dynamic_shared_bytes = 52224;
    gate_read(good, &k, &g);
    assert_string_equal(g.why, "");
    list[0].shared_bytes = 36864 - 1024;
    gate_read(good, &k, &g);
    assert_non_null(strstr(g.why, "its launch says 35840"));
}

/* What a launch asks of the driver is held against its rules before it is met. */
static void launches_are_held_against_rules(void **state)
{
    const kiln_tensor_map map = {.rank = 3, .dtype = "bf16", .dims = {200, 300, 4}, .strides = {400, 120000}, .box = {64, 128, 1}, .swizzle = 3};
    const kiln_launch good_one = {.entry = "kiln_ab_0", .grid = 132, .threads = 384, .cluster = 2, .nargs = 1, .asking = 24, .computing = 240};
    (void)state;
    kiln_tensor_map m = map;
    kiln_launch l = good_one;
    l.maps = &m;
    assert_null(gate_launch(&l));
#define BAD(change, undo, says) \
    { \
        change; \
        if (!gate_launch(&l) || !strstr(gate_launch(&l), says)) { \
            fail_msg("%s: %s", #change, gate_launch(&l) ? gate_launch(&l) : "passes"); \
        } \
        undo; \
    }
    BAD(m.strides[0] = 404, m = map, "16 bytes")
    BAD(m.strides[1] = INT64_C(1) << 40, m = map, "2^40")
    BAD(m.box[1] = 257, m = map, "out of range")
    BAD(m.box[0] = 128, m = map, "longer than the swizzle")
    BAD(m.box[0] = 4, m = map, "16 bytes")
    BAD(m.dims[2] = 0, m = map, "out of range")
    BAD(m.rank = 6, m = map, "5 dimensions")
    BAD(l.grid = 133, l.grid = 132, "no multiple")
    BAD(l.computing = 248, l.computing = 240, "more registers")
    BAD(l.asking = 20, l.asking = 24, "multiples of 8")
    assert_null(gate_launch(&l));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(right_ones_pass), cmocka_unit_test(wrong_ones_are_refused),
                                       cmocka_unit_test(a_fallback_is_judged_too),
                                       cmocka_unit_test(shared_memory_in_steps), cmocka_unit_test(launches_are_held_against_rules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
