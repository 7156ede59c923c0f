/* How well the cost model puts plans of products and windows in order that were measured on one machine (tests/data/cpu_rank_zen4.txt):
 * `make bench-rank` without a clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>
#include "cost/cost.h"
#include "tests/arena.h"
#include "tests/unit/device.h"

enum { PLANS = 20 };
static const double ALIKE = 0.03; /* times that differ by less are no pair, as in `make bench-rank` */

typedef struct plan { double predicted, us; } plan;

/* Microseconds that the model says a line of the file takes: "MEASURED TRACE", whose lines end with ';'. */
static plan predicted(kiln_arena *a, const kiln_request *r, const kiln_hw *hw, char *line)
{
    char *trace;
    plan p = {.us = strtod(line, &trace)};
    kn_tree *t;
    kn_cost c;
    kiln_diag d = {0};
    for (char *s = ++trace; *s; s++)
        if (*s == ';') *s = '\n';
    trace[strlen(trace) - 1] = 0; /* the file's own end of the line */
    if (kn_trace_apply(a, r->program, hw, (kiln_bytes){trace, strlen(trace)}, &t, &d) || kn_cost_of(t, hw, &c, &d))
        fail_msg("%s\n%s", d.message, trace);
    p.predicted = c.us;
    return p;
}

/* Of all pairs whose times differ, the share of which the model says rightly which is faster. */
static double right(const plan *p, int n)
{
    double pairs = 0, good = 0;
    for (int i = 0; i < n; i++)
        for (int k = i + 1; k < n; k++) {
            if (fabs(p[i].us - p[k].us) < ALIKE * p[i].us) continue;
            pairs++;
            good += (p[i].us < p[k].us) == (p[i].predicted < p[k].predicted);
        }
    return pairs ? good / pairs : 1;
}

/* What the plan takes that is predicted to be the fastest, over what the fastest one does. */
static double first_over_best(const plan *p, int n)
{
    int first = 0, best = 0;
    for (int i = 0; i < n; i++) {
        if (p[i].predicted < p[first].predicted) first = i;
        if (p[i].us < p[best].us) best = i;
    }
    return p[first].us / p[best].us;
}

/* Of the requests so far. */
typedef struct verdict { int requests; double right, first; } verdict;

static void judge(verdict *v, const plan *p, int n)
{
    if (!n) return;
    v->requests++;
    v->right += right(p, n);
    v->first += log(first_over_best(p, n));
}

static verdict judge_all(FILE *f, const kiln_hw *hw)
{
    static char line[1 << 14];
    kiln_arena *a = NULL; /* of a request */
    kiln_request *r = NULL;
    plan p[PLANS];
    verdict v = {0};
    int n = 0;
    while (fgets(line, sizeof line, f)) {
        static const char request[] = "request ";
        const size_t skip = sizeof request - 1;
        kiln_diag d = {0};
        if (!strncmp(line, request, skip)) {
            judge(&v, p, n);
            n = 0;
            if (a) kiln_arena_close(a);
            a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
            assert_int_equal(kiln_request_json(a, (kiln_bytes){line + skip, strlen(line + skip)}, &r, &d), KILN_OK);
        } else if (*line != '#') {
            assert_true(r && n < PLANS);
            p[n++] = predicted(a, r, hw, line);
        }
    }
    judge(&v, p, n);
    if (a) kiln_arena_close(a);
    return v;
}

static void orders_what_was_measured(void **state)
{
    enum { REQUESTS = 38 };
    (void)state;
    FILE *f = fopen("tests/data/cpu_rank_zen4.txt", "rb");
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    const kiln_hw *hw = device(a, "../tests/data/cpu_rank_zen4");
    assert_non_null(f);
    verdict v = judge_all(f, hw);
    fclose(f);
    kiln_arena_close(a);
    assert_int_equal(v.requests, REQUESTS);
    double share = v.right / v.requests, first = exp(v.first / v.requests);
    print_message("pairs right %.3f (mean), first over best %.3f (geometric mean)\n", share, first);
    assert_true(share >= 0.84);
    assert_true(first <= 1.03);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(orders_what_was_measured)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
