/* Mappings of the operators of AMOS's evaluation as schedules, run: the results are the reference's, bit for bit. The instructions come from a file,
 * tests/data/units.json. With KILN_ALL=1 every mapping (tests/integration/amos_run.sh), else some of every operator. */
#include "tests/arena.h"
#include "intrin/map.h"
#include "te/ref.h"
#include "tests/unit/lprog_eval.c"
#include "block/block.h"
#include "lower/lower.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>
#include "tests/unit/integers.h"

static const struct { const char *op, *text; } operators[] = {
#define X(op, text) {#op, text},
#include "tests/golden/amos_operators.def"
};
enum { OPERATORS = sizeof operators / sizeof *operators };

typedef struct bench {
    kiln_arena *a;
    kn_hw *hw;
    kn_program *p;
    double *want[KILN_MAX_TENSORS];
    const kn_maps *m;
} bench;

static void open_bench(bench *b, const char *text, const char *unit)
{
    char json[16384];
    kiln_diag d = {0};
    kn_maps *m;
    FILE *f = fopen("tests/data/units.json", "rb");
    assert_non_null(f);
    size_t n = fread(json, 1, sizeof json, f);
    fclose(f);
    *b = (bench){.a = kiln_arena_open(&(kiln_host){.mem = mem})};
    if (kiln_hw_parse(b->a, (kiln_bytes){json, n}, &b->hw, &d)) fail_msg("%s: %s", d.pointer, d.message);
    if (kn_parse(b->a, (kiln_bytes){text, strlen(text)}, (kiln_bytes){0}, &b->p, &d)) fail_msg("%s: %s", text, d.message);
    arrays(b->a, b->p, b->want);
    assert_int_equal(kn_ref_all(b->a, b->p, b->want, &d), KILN_OK);
    if (kn_maps_of(b->a, b->p, 0, kn_intrin_find(b->a, b->hw, unit), &m, &d)) fail_msg("%s: %s", text, d.message);
    b->m = m;
}

/* Runs the schedule; whether results left it in squares turned in registers. */
static bool compute(const bench *b, const char *trace)
{
    kiln_arena *a = kiln_arena_open(&(kiln_host){.mem = mem});
    kiln_diag d = {0};
    kn_tree *t;
    kn_lprog *l = NULL;
    kn_blocks *k;
    double *got[KILN_MAX_TENSORS];
    if (kn_trace_apply(a, b->p, b->hw, (kiln_bytes){trace, strlen(trace)}, &t, &d) || kn_blocks_of_tree(a, t, b->hw, &k, &d) ||
        kn_blocks_check(k, b->hw, &d) || kn_lower(a, t, b->hw, &l, &d) || kn_lprog_check(l, &d))
        fail_msg("%s\n%s", d.message, trace);
    assert_true(l->ncalls == 1);
    arrays(a, t->program, got);
    const char *bad = lprog_eval(l, got);
    if (bad) fail_msg("%s\n%s", bad, trace);
    int y = b->p->ninputs;
    if (memcmp(got[y], b->want[y], sizeof(double) * (size_t)elems(&b->p->tensors[y]))) fail_msg("another result\n%s", trace);
    bool turned = false;
    for (int i = 0; i < l->nbuffers; i++) turned |= !strncmp(l->buffers[i].name, "square", 6);
    kiln_arena_close(a);
    return turned;
}

/* Runs the mappings that can be computed, or every so many of them, in every order of the operands; returns how many can in the first. */
static int run_all(const char *text, const char *unit)
{
    enum { SOME = 2 };
    bench b;
    int n = 0;
    kiln_diag d = {0};
    open_bench(&b, text, unit);
    for (const kn_maps *m = b.m; m; m = m->turned)
        for (int i = 0; i < m->nmaps; i++) {
            int step = getenv("KILN_ALL") ? 1 : m->nmaps / SOME + 1;
            if (kn_map_check(m, &m->maps[i], &d)) continue;
            n += m == b.m;
            if (i % step != m->nmaps % step) continue;
            compute(&b, kn_format(b.a, "map y %s %s", unit, kn_map_word(b.a, m, &m->maps[i])));
            if (step > 1) compute(&b, kn_map_trace(b.a, m, &m->maps[i], b.hw, KN_MAP_GATHERED).p); /* as a GPU gets it */
        }
    kiln_arena_close(b.a);
    return n;
}

static void every_mapping_computes(void **state)
{
    (void)state;
    int n = 0;
    for (int i = 0; i < OPERATORS; i++) n += run_all(operators[i].text, "mma_4x2x2");
    assert_int_equal(n, 431);
}

/* The invented units on a 3-D convolution; the union of all 30 atoms of CONV takes loops twice and cannot be computed. */
static void units_compute(void **state)
{
    (void)state;
    for (int i = 0; i < OPERATORS; i++) {
        if (strcmp(operators[i].op, "C3D")) continue;
        assert_int_equal(run_all(operators[i].text, "axpy"), 15);
        assert_int_equal(run_all(operators[i].text, "gemv"), 180);
        assert_int_equal(run_all(operators[i].text, "conv"), 30);
        assert_true(run_all(operators[i].text, "outer") > 0);
    }
    assert_true(run_all("in x: u8[3,3,5,7], w: i8[5,3,3,3]; y[N,F,P,Q] +=! cast(x[N,C,P+R,Q+S],i32) * cast(w[F,C,R,S],i32)", "dot") > 0);
}

/* One result a call: nothing but the sum's loop is left of the tile. */
static void single_results(void **state)
{
    (void)state;
    assert_int_equal(run_all("in a: f16[13,7], b: f16[7,11]; y[M,N] +=! cast(a[M,K],f32) * cast(b[K,N],f32)", "dot5"), 1);
    assert_true(run_all("in x: f16[1,3,5,7], w: f16[5,3,3,3]; y[N,F,P,Q] +=! cast(x[N,C,P+R,Q+S],f32) * cast(w[F,C,R,S],f32)", "dot5") > 0);
}

/* Filters are the instruction's lanes, and the columns of an image follow each other in memory: 9, 8 and 6 of them, in rows with and without an end
 * inside a tile. */
static void results_leave_turned(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "in x: u8[1,4,5,11], w: i8[8,4,3,3]; y[N,F,P,Q] +=! cast(x[N,C,P+R,Q+S],i32) * cast(w[F,C,R,S],i32)",
        "in x: u8[2,5,4,10], w: i8[7,5,3,3]; y[N,F,P,Q] +=! cast(x[N,C,P+R,Q+S],i32) * cast(w[F,C,R,S],i32)",
        "in x: u8[1,3,3,6], w: i8[4,3,1,1], b: i32[4]; t[N,F,P,Q] +=! cast(x[N,C,P,Q],i32) * cast(w[F,C,0,0],i32); y[N,F,P,Q] = t[N,F,P,Q]*2 + b[F]"};
    for (int k = 0; k < 3; k++) {
        bench b;
        int turned = 0;
        kiln_diag d = {0};
        open_bench(&b, texts[k], "dot");
        for (int i = 0; i < b.m->nmaps; i++) {
            if (kn_map_check(b.m, &b.m->maps[i], &d)) continue;
            kiln_bytes trace = kn_map_trace(b.a, b.m, &b.m->maps[i], b.hw, KN_MAP_PACKED);
            turned += compute(&b, k == 2 ? kn_format(b.a, "%sepilogue t\n", trace.p) : trace.p);
        }
        assert_true(turned > 0);
        kiln_arena_close(b.a);
    }
}

/* Smaller than the instruction, and of sizes that it does not divide. */
static void sizes_are_padded(void **state)
{
    (void)state;
    static const int sizes[][3] = {{2, 2, 2}, {4, 4, 4}, {8, 8, 8}, {17, 19, 23}, {1, 1, 1}, {16, 32, 48}};
    static const char *const names[] = {"mma_16x16x16", "mma_8x32x16"};
    for (int i = 0; i < 12; i++) {
        char text[200];
        const int *s = sizes[i / 2];
        snprintf(text, sizeof text, "in a: f16[%d,%d], b: f16[%d,%d]; y[M,N] +=! cast(a[M,K],f32) * cast(b[K,N],f32)", s[0], s[2], s[2], s[1]);
        assert_int_equal(run_all(text, names[i % 2]), 1);
    }
}

/* Columns of a padded image feed an axis of the instruction by themselves, or with its rows as one loop: the copy is the image, padded, in groups
 * of two channels, and no window of it a second time. Rows end inside a tile. */
static void windows_share_one_copy(void **state)
{
    (void)state;
    static const struct { const char *trace; int64_t elems; } cases[] = {
        {"map y gemv I=Q;R=C", 4 * 7 * 22},     /* 17 columns grow to 20, a window of 3 sees 22 */
        {"map y gemv I=P,Q;R=C", 4 * 8 * 19}};  /* 93 places in rows of 19 grow to 96: one row more */
    bench b;
    kiln_diag d = {0};
    kn_tree *t;
    open_bench(&b,
               "in x: f16[1,4,5,18], w: f16[3,4,3,3]; "
               "y[N,F,P,Q] +=! cast(pad(x, 0.0)[N,C,P+R-1,Q+S-1],f32) * cast(w[F,C,R,S],f32) where P in 5, Q in 17",
               "gemv");
    for (int k = 0; k < 2; k++) {
        compute(&b, cases[k].trace);
        assert_int_equal(kn_trace_apply(b.a, b.p, b.hw, (kiln_bytes){cases[k].trace, strlen(cases[k].trace)}, &t, &d), KILN_OK);
        int copies = 0;
        for (int i = 0; i < t->program->ntensors; i++) {
            const kn_tensor *x = &t->program->tensors[i];
            if (x->role != KN_TEMP || x->dtype != KN_F16 || x->shape[x->rank - 1] != 2 || elems(x) < 4 * 5 * 18) continue;
            assert_int_equal(elems(x), cases[k].elems);
            copies++;
        }
        assert_int_equal(copies, 1);
    }
    kiln_arena_close(b.a);
}

/* The mapping is a decision of the trace: listed, replaced by every other one, and each of these programs computes the same. */
static void a_search_may_decide(void **state)
{
    (void)state;
    bench b;
    kiln_diag d = {0};
    kiln_bytes full;
    kn_decision list[4];
    open_bench(&b, "in x: f16[3,3,5,5], w: f16[3,3,3,3]; y[N,F,P,Q] +=! cast(x[N,C,P+R,Q+S],f32) * cast(w[F,C,R,S],f32)", "mma_4x2x2");
    const char *text = "sample_mapping how y mma_4x2x2\nmap y mma_4x2x2 $how\n";
    assert_int_equal(kn_trace_complete(b.a, b.p, b.hw, (kiln_bytes){text, strlen(text)}, &full, &d), KILN_OK);
    assert_int_equal(kn_trace_decisions(b.a, full, list, 4), 1);
    assert_string_equal(list[0].name, "how");
    for (int i = 0; i < b.m->nmaps; i += 6) {
        kiln_bytes other = kn_trace_decide(b.a, full, list[0].line, kn_map_word(b.a, b.m, &b.m->maps[i]));
        assert_non_null(other.p);
        compute(&b, other.p);
    }
    full = kn_trace_decide(b.a, full, list[0].line, "I=N;J=N;R=C");
    kn_tree *t;
    assert_int_equal(kn_trace_apply(b.a, b.p, b.hw, full, &t, &d), KILN_TRACE);
    if (!strstr(d.message, "N cannot feed J: index 0 of x")) fail_msg("%s", d.message);
    kiln_arena_close(b.a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mapping_computes),
        cmocka_unit_test(units_compute),
        cmocka_unit_test(single_results),
        cmocka_unit_test(results_leave_turned),
        cmocka_unit_test(sizes_are_padded),
        cmocka_unit_test(windows_share_one_copy),
        cmocka_unit_test(a_search_may_decide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
