/* The search's next question: every candidate once, the same ones every time, and the fast ones soon where the cost model is wrong about them. */
#include "tests/arena.h"
#include "tests/unit/device.h"
#include <string.h>

static kiln_candidates *found_of(kiln_arena *a, const kiln_hw *hw, const char *text, const char *inputs, kiln_request **r)
{
    kiln_candidates *c;
    kiln_diag d = {0};
    if (kiln_request_text(a, (kiln_bytes){text, strlen(text)}, (kiln_bytes){inputs, strlen(inputs)}, NULL, r, &d)) fail_msg("%s", d.message);
    if (kiln_construct(a, (*r)->program, hw, "default", KILN_MAX_CANDIDATES, &c, &d)) fail_msg("%s", d.message);
    return c;
}

/* Asks until all are tried; the number of questions until the fastest was. */
static int asked_until_best(kiln_arena *a, const kiln_program *p, const kiln_hw *hw, const kiln_candidates *c, const double *truth, int *order)
{
    double us[KILN_MAX_CANDIDATES] = {0};
    kiln_diag d = {0};
    int best = 0, when = -1, next;
    for (int i = 1; i < c->n; i++)
        if (truth[i] > 0 && truth[i] < truth[best]) best = i;
    for (int n = 0; n < c->n; n++) {
        assert_int_equal(kiln_ask(a, p, hw, c, us, (uint64_t)n * 2654435761u, &next, &d), KILN_OK);
        assert_in_range(next, 0, c->n - 1);
        assert_true(us[next] == 0);
        us[next] = truth[next];
        order[n] = next;
        if (next == best) when = n + 1;
    }
    assert_int_equal(kiln_ask(a, p, hw, c, us, 1, &next, &d), KILN_OK);
    assert_int_equal(next, -1);
    return when;
}

static void finds_what_the_model_hides(void **state)
{
    (void)state;
    static const struct { const char *hw, *text, *inputs; } cases[] = {
        {"x86-64-avx512", "c[M,N] +=! a[M,K]*b[K,N]", "a=f32:300x256&b=f32:256x300"},
        {"x86-64-vnni", "y[N,F,P,Q] +=! cast(pad(x,0)[N,C,P+R-1,Q+S-1],i32)*cast(w[F,C,R,S],i32) where P in 28, Q in 28",
         "x=u8:1x64x28x28&w=i8:64x64x3x3"},
        {"nvidia-a100", "c[M,N] +=! cast(a[M,K],f32)*cast(b[K,N],f32)", "a=f16:300x256&b=f16:256x300"},
    };
    int asked = 0, all = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){.mem = mem});
        kiln_request *r;
        double truth[KILN_MAX_CANDIDATES];
        int one[KILN_MAX_CANDIDATES], two[KILN_MAX_CANDIDATES];
        const kiln_hw *hw = device(a, cases[i].hw);
        kiln_candidates *c = found_of(a, hw, cases[i].text, cases[i].inputs, &r);
        assert_true(c->n > 4);
        for (int k = 0; k < c->n; k++) truth[k] = k == 1 ? -1 : 1e6 / c->c[k].predicted_us; /* the slower predicted, the faster; one fails */
        asked += asked_until_best(a, r->program, hw, c, truth, one);
        asked_until_best(a, r->program, hw, c, truth, two);
        assert_memory_equal(one, two, sizeof *one * (size_t)c->n);
        all += c->n;
        kiln_arena_close(a);
    }
    print_message("the fastest of %d candidates after %d questions\n", all, asked);
    assert_true(asked < all / 2); /* by chance: the half */
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(finds_what_the_model_hides) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
