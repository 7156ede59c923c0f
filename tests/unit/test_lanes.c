/* Lanes that hold numbers of axes, as C text: 32 bits where these hold them, masks rather than a choice for each lane, and running products that are
 * planned as running sums are; which maps keep their order, or their length as text, and which rows are tasks. */
#include "tests/unit/request.h"
#include "tests/unit/device.h"
#include "tests/arena.h"

static kiln_bytes trace_of(kiln_arena *a, const kiln_request *r, kiln_hw *hw)
{
    kiln_candidates *list = NULL;
    kiln_diag d = {0};
    if (kiln_construct_request(a, r, hw, 1, &list, &d)) fail_msg("%s", d.message);
    return list->c[0].trace;
}

/* What a generated task says, behind the helpers. */
static const char *task_of(kiln_arena *a, const kiln_request *r, kiln_hw *hw)
{
    kiln_kernel *k = NULL;
    kiln_diag d = {0};
    if (kiln_generate(a, r->program, hw, trace_of(a, r, hw), &k, &d)) fail_msg("%s", d.message);
    char *task = strstr(k->source.p, "void task_0("), *end = task ? strstr(task, "\n}\n") : NULL;
    assert_non_null(end);
    *end = 0;
    return task;
}

/* Numbers of an axis are compared, chosen and cast as 32-bit integers. */
static void numbers_are_narrow(void **state)
{
    static const char *const expr[] = {
        "y[A] <=! select(x[A,I] == m[A], cast(I,i32), cast(1000,i32)) : i32",
        "y[A,I] +=! select(x[A,J] > x[A,I] || x[A,J] == x[A,I] && J < I, cast(1,i32), cast(0,i32)) where I in 1000, J in 1000 : i32",
        "y[A,I] = cast(I, i32) * cast(x[A,I], i32)",
    };
    (void)state;
    for (size_t i = 0; i < sizeof expr / sizeof *expr; i++)
        for (int wide = 0; wide < 2; wide++) {
            kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
            kiln_hw *hw = device(a, wide ? "x86-64-avx512" : "x86-64-avx2");
            const char *task = task_of(a, request(a, expr[i], i ? "x=f32:100x1000" : "x=f32:100x1000&m=f32:100"), hw);
            if (strstr(task, "i64x")) fail_msg("%s: lanes of 64 bits\n%s", expr[i], task);
            kiln_arena_close(a);
        }
}

/* What a condition has read in every lane that it refuses may be read in all lanes; else each lane evaluates its side alone. */
static void conditions_read_beforehand(void **state)
{
    static const struct { const char *condition; bool blends; } one[] = {
        {"x[A,I] < m[A]", true},
        {"x[A,I] < m[A] || x[A,I] == m[A] && cast(I,i32) > k[A]", true},
        {"!(x[A,I] >= m[A] && cast(I,i32) > k[A])", true},
        {"x[A,I]*2.0 - 1.0 < m[A]", true},
        {"cast(I,i32) > k[A]", false},
        {"cast(I,i32) > k[A] && x[A,I] < m[A]", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        char expr[256];
        snprintf(expr, sizeof expr, "y[A] >=! select(%s, x[A,I], -inf)", one[i].condition);
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        const char *task = task_of(a, request(a, expr, "x=f32:100x1000&m=f32:100&k=i32:100"), device(a, "x86-64-avx2"));
        if ((strstr(task, "max_f32x8(acc") != NULL && strstr(task, " ? ") == NULL) != one[i].blends) fail_msg("%s:\n%s", expr, task);
        kiln_arena_close(a);
    }
}

/* Halves that a number chooses for all lanes, or a mask, are moved as they lie; elements at known places are read beforehand. */
static void choices_move_bits(void **state)
{
    static const struct { const char *expr, *inputs, *none; } one[] = {
        {"y[A,I] = select(c[A], x[A,I], z[A,I])", "c=bool:100&x=f16:100x1000&z=f16:100x1000", "widen"},
        {"y[A,I] = select(k[A] < 3, x[A,I], z[A,I])", "k=i32:100&x=f16:100x1000&z=f16:100x1000", "widen"},
        {"y[A,I] = select(c[A,I], x[A,I], z[0])", "c=bool:100x1000&x=f16:100x1000&z=f16:1", "widen"},
        {"y[A,I] = select(c[A,I], x[A,I], z[A,I])", "c=bool:1000x1000&x=f32:1000x1000&z=f32:1000x1000", " ? "}, /* two axes are made one */
        {"y[A,I] = select(x[A,I] < 0.0, x[A,I]*0.01, x[A,I])", "x=f32:1000x1000", " ? "},
        {"y[A,I] = select(cast(I,i32) == k[A], v[1], v[0]) where I in 1000", "k=i32:100&v=f32:2", " ? "},
        {"y[A,I] = select(I == k[A], v[1], v[0]) where I in 1000", "k=i64:100&v=f16:2", "widen"},
        {"y[A,I] = select(I < 1111, x[A,I], z[A,I-1111]) where I in 3314", "x=f16:64x1111&z=f16:64x2203", "widen"},
        {"y[A,I] = x[A,1002-I] where I in 1003", "x=f32:200x1003", "(f32x8){"},
        {"y[A,I] = x[A,I] == z[I]", "x=i64:100x1000&z=i64:1000", "convertvector"}, /* of four lanes, it is taken apart */
        {"y[A,I] = x[A,I] < z[I]", "x=f64:100x1000&z=f64:1000", "convertvector"},
        {"y[A,I] = x[A,1002-I] where I in 1003", "x=u8:200x1003", "(u8x32){"},
        {"y[A,I] = shr(select(x[A,I] < 0, bitxor(bits(x[A,I]),2147483647), bits(x[A,I])), 3)", "x=f32:200x1000", "k_bits"}, /* in all lanes at once */
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        const char *task = task_of(a, request(a, one[i].expr, one[i].inputs), device(a, "x86-64-avx2"));
        if (strstr(task, one[i].none)) fail_msg("%s:\n%s", one[i].expr, task);
        kiln_arena_close(a);
    }
}

/* Rows of bytes that are read from three ranges (mirrored at their ends) go in vectors, whatever the number of another axis comes from. */
static void ranges_go_in_vectors(void **state)
{
    static const char *const expr[] = {
        "y[A,I] = select(I < 3, x[A,3-I], select(I < 227, x[A,I-3], x[A,449-I])) where I in 230",
        "y[A,I] = select(I < 3, x[min(A%446,446-A%446,223),3-I], select(I < 227, x[min(A%446,446-A%446,223),I-3], "
        "x[min(A%446,446-A%446,223),449-I])) where A in 440, I in 230",
    };
    (void)state;
    for (size_t i = 0; i < sizeof expr / sizeof *expr; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kiln_bytes trace = trace_of(a, request(a, expr[i], "x=u8:224x224"), device(a, "x86-64-avx2"));
        if (!strstr(trace.p, "vectorize")) fail_msg("%s:\n%s", expr[i], trace.p);
        kiln_arena_close(a);
    }
}

/* Bytes that are computed with floats have as many lanes as these, also where rows go through several stages. */
static void bytes_have_lanes_of_floats(void **state)
{
    static const char expr[] = "w[Q] = cast((Q*448+524)%600,f32)/600.0 where Q in 300; y[C,P,Q] = cast(round(x[C,P,min((Q*448+524)//600,223)]*w[Q] + "
                               "x[C,P,max((Q*448+524)//600-1,0)]*(1.0-w[Q])), u8)";
    static const struct { const char *device, *lanes; } one[] = {{"x86-64-avx2", " 8\n"}, {"x86-64-avx512", " 16\n"}};
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        const char *line, *trace = trace_of(a, request(a, expr, "x=f32:3x300x224"), device(a, one[i].device)).p;
        if (!(line = strstr(trace, "split out0 S2"))) fail_msg("%s", trace);
        size_t n = strcspn(line, "\n") + 1, width = strlen(one[i].lanes);
        if (strncmp(line + n - width, one[i].lanes, width)) fail_msg("%s:\n%s", one[i].device, trace);
        kiln_arena_close(a);
    }
}

/* A product up to each place of a block goes as the sum does. */
static void products_run_on(void **state)
{
    static const char *const at[] = {"x[I,B]", "x[B,I]"}, *const to[] = {"y[S,B]", "y[B,S]"};
    (void)state;
    for (int last = 0; last < 2; last++) {
        kiln_bytes trace[2];
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        for (int product = 0; product < 2; product++) {
            char expr[128];
            snprintf(expr, sizeof expr, "%s %s select(I <= S, %s, %d.0) where S in 16", to[last], product ? "*=!" : "+=!", at[last], product);
            trace[product] = trace_of(a, request(a, expr, last ? "x=f32:512x16" : "x=f32:16x512"), device(a, "x86-64-avx2"));
        }
        assert_string_equal(trace[0].p, trace[1].p);
        kiln_arena_close(a);
    }
}

/* Blocks of eight places are lanes where vectors have more of them, too: of half a vector then, rather than each place on its own. */
static void blocks_are_short_vectors(void **state)
{
    static const char expr[] = "y[B,S] +=! select(I <= S%8, pad(x,0.0)[B,S//8*8 + I], 0.0) where S in 1001, I in 8";
    (void)state;
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    for (int wide = 0; wide < 2; wide++) {
        const char *task = task_of(a, request(a, expr, "x=f32:256x1001"), device(a, wide ? "x86-64-avx512" : "x86-64-avx2"));
        if (strstr(task, "f32x16 acc") || !strstr(task, "f32x8 acc")) fail_msg("%s", task);
    }
    kiln_arena_close(a);
}

/* Rows that lie together are gathered as vectors, of a copy that is turned so and into one that is turned back; not where rows are shorter than
 * vectors, where few of them are read, or on a GPU, whose threads fetch elements one by one anyway. */
static void rows_are_gathered(void **state)
{
    static const char expr[] = "t[H,C] = x[C,H]; z[P,C] = t[k[P],C]*w[P] + t[l[P],C]; y[C,P] = z[P,C]";
    static const struct { const char *id, *inputs; int stages; } one[] = {
        {"x86-64-avx2", "x=f32:32x400&k=i32:900&w=f32:900&l=i32:900", 3}, {"x86-64-avx512", "x=f32:32x400&k=i32:900&w=f32:900&l=i32:900", 3},
        {"x86-64-avx2", "x=f32:3x400&k=i32:900&w=f32:900&l=i32:900", 1},  {"x86-64-avx512", "x=f32:8x400&k=i32:900&w=f32:900&l=i32:900", 1},
        {"x86-64-avx2", "x=f32:32x4000&k=i32:900&w=f32:900&l=i32:900", 1}, {"nvidia-h200", "x=f32:32x400&k=i32:900&w=f32:900&l=i32:900", 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kiln_hw *hw = device(a, one[i].id);
        kiln_bytes trace = trace_of(a, request(a, expr, one[i].inputs), hw);
        int inlined = 0;
        for (const char *p = trace.p; (p = strstr(p, "inline ")); p++) inlined++;
        if (3 - inlined != one[i].stages) fail_msg("%s on %s:\n%s", one[i].inputs, one[i].id, trace.p);
        kiln_arena_close(a);
    }
}

/* Rows of a chain are tasks where any of its stages has much to do, not the last one alone. */
static void chains_have_tasks(void **state)
{
    static const struct { const char *inputs; bool tasks; } one[] = {{"x=f32:16x8192&t=f32:15", true}, {"x=f32:16x32&t=f32:15", false}};
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        const char *expr = "n[A,T] +=! select(x[A,I] >= t[T], 1.0, 0.0); y[A] >=! select(n[A,T] >= 9.0, t[T], 0.0)";
        kiln_bytes trace = trace_of(a, request(a, expr, one[i].inputs), device(a, "x86-64-avx2"));
        if ((strstr(trace.p, "parallel out0") != NULL) != one[i].tasks) fail_msg("%s:\n%s", one[i].inputs, trace.p);
        kiln_arena_close(a);
    }
}

/* A map with much to compute is a loop over part of its row; one with little is written out for all of it. */
static void long_maps_are_loops(void **state)
{
    static const char *const shorter = "y[A,I] = x[A,I]*2.0 + 1.0",
                            *const longer = "y[A,I] = select(floor(x[A,I]) >= 0.0 && floor(x[A,I]) <= 63.0 && floor(z[A,I]) + 1.0 >= 0.0 && "
                                            "floor(z[A,I]) + 1.0 <= 63.0, (1.0 - (x[A,I] - floor(x[A,I]))) * (z[A,I] - floor(z[A,I])), 0.0)";
    (void)state;
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    kiln_hw *hw = device(a, "x86-64-avx2");
    for (int i = 0; i < 2; i++) {
        const char *task = task_of(a, request(a, i ? longer : shorter, i ? "x=f32:64x64&z=f32:64x64" : "x=f32:64x64"), hw);
        int stores = 0;
        for (const char *p = task; (p = strstr(p, "*(f32x8u *)(out")); p++) stores++;
        if (i ? stores > 8 : stores < 16) fail_msg("%d stores\n%s", stores, task);
    }
    kiln_arena_close(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(numbers_are_narrow), cmocka_unit_test(conditions_read_beforehand),
                                       cmocka_unit_test(choices_move_bits), cmocka_unit_test(rows_are_gathered),
                                       cmocka_unit_test(long_maps_are_loops), cmocka_unit_test(chains_have_tasks),
                                       cmocka_unit_test(blocks_are_short_vectors),
                                       cmocka_unit_test(ranges_go_in_vectors), 
                                       cmocka_unit_test(bytes_have_lanes_of_floats), cmocka_unit_test(products_run_on)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
