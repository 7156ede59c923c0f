/* What the cost model's ranking is worth: the first candidates of every request are compiled, checked and measured in turns. Printed for each: the
 * first one's time over the best one's, and of how many pairs the model says rightly which is faster. See README.md. */
#include "load-tests/kernels/ceiling.h"
#include "load-tests/kernels/own.h"
#include "tests/arena.h"
#include <math.h>
#include <stdio.h>

enum { MOST = 20, SLOW = 3 };
static const double ROUND_US = 400, ALIKE = 0.03; /* times that differ by less are no pair */

typedef struct option { bench_run run; double predicted, us; bool open; } option;
typedef struct verdict { double top, right, pairs, predicted; int n, best; } verdict;

static double timed(const bench_run *r, int repeat)
{
    r->call(r->state);
    double t = now_us();
    for (int i = 0; i < repeat; i++) { r->call(r->state); }
    return (now_us() - t) / repeat;
}

/* The least time of each over the rounds, which is what a busy machine leaves of it; those far behind are not run again. */
static void measure(option *x, int n, int rounds)
{
    double least = INFINITY;
    for (int r = 0; r < rounds; r++) {
        for (int k = 0; k < n; k++) {
            option *o = &x[(k + r) % n];
            if (!o->open || (r > 1 && o->us > SLOW * least)) { continue; }
            double us = timed(&o->run, r ? (int)(ROUND_US / o->us) + 1 : 1);
            if (!r || us < o->us) { o->us = us; }
            if (o->us < least) { least = o->us; }
        }
    }
}

static verdict judge(const option *x, int n)
{
    verdict v = {0};
    int first = -1;
    for (int i = 0; i < n; i++) {
        if (!x[i].open) { continue; }
        if (first < 0) { first = v.best = i; }
        if (x[i].us < x[v.best].us) { v.best = i; }
        v.n++;
        for (int k = i + 1; k < n; k++) {
            if (!x[k].open || fabs(x[i].us - x[k].us) < ALIKE * x[i].us) { continue; }
            v.pairs++;
            v.right += (x[i].us < x[k].us) == (x[i].predicted < x[k].predicted);
        }
    }
    if (first >= 0) { v.top = x[first].us / x[v.best].us; v.predicted = x[first].predicted / x[first].us; }
    return v;
}

static int open_all(own *o, bench_case *c, kiln_hw *hw, struct kiln_pool *pool, option *x, char *why, size_t cap)
{
    kiln_candidates *found;
    kiln_diag d = {0};
    if (kiln_construct(o->a, o->r->program, hw, "default", MOST, &found, &d)) { return snprintf(why, cap, "%s", d.message), 0; }
    void *first = calloc(1, (size_t)c->out_bytes), *other = calloc(1, (size_t)c->out_bytes);
    int n = 0;
    for (int i = 0; i < found->n; i++) {
        option *p = &x[n];
        *p = (option){.predicted = found->c[i].predicted_us};
        p->open = own_traced(o, c, hw, found->c[i].trace, "", pool, &p->run, why, cap);
        if (!p->open) { continue; }
        p->run.call(p->run.state);
        p->run.fetch(p->run.state, n ? other : first);
        if (n ? own_differ(o, c, other, first) : own_judge(o, c, first)) { printf("WRONG candidate %d\n", i); }
        n++;
    }
    free(first);
    free(other);
    return n;
}

static bool one(const char *request, kiln_hw *hw, struct kiln_pool *pool, int rounds, bool all, verdict *v)
{
    own o = {0};
    bench_case c = {.threads = pool ? pool->nthreads : 1};
    char why[600] = "";
    option x[MOST];
    int n = own_open(&o, &c, request, why, sizeof why) ? open_all(&o, &c, hw, pool, x, why, sizeof why) : 0;
    measure(x, n, rounds);
    *v = judge(x, n);
    double right = v->pairs ? v->right / v->pairs : 1;
    printf("| %.110s | %d | %.3f | %d | %.2f | %.1f | %.2f |\n", request, n, v->top, v->best, right, n ? x[v->best].us : 0, v->predicted);
    for (int i = 0; all && i < n; i++) { printf("    %2d predicted %10.2f measured %10.2f\n", i, x[i].predicted, x[i].us); }
    if (!n) { printf("  %s\n", why); }
    fflush(stdout);
    for (int i = 0; i < n; i++) { x[i].run.drop(x[i].run.state); }
    own_close(&o, &c);
    return n > 1;
}

static kiln_hw *spec_of(kiln_arena *a, const char *path)
{
    static char text[1 << 16];
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof text, f) : 0;
    kiln_diag d = {0};
    kiln_hw *hw;
    if (f) { fclose(f); }
    if (kiln_hw_parse(a, (kiln_bytes){text, n}, &hw, &d)) {
        fprintf(stderr, "rank: %s: %s %s\n", path, d.pointer, d.message);
        return NULL;
    }
    return hw;
}

int main(int argc, char **argv)
{
    char line[1 << 14];
    if (argc < 5) { return fprintf(stderr, "usage: rank REQUESTS.jsonl SPEC.json ROUNDS THREADS [all]\n"), 2; }
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    kiln_hw *hw = a ? spec_of(a, argv[2]) : NULL;
    FILE *f = fopen(argv[1], "r");
    if (!hw || !f) { return 1; }
    int threads = atoi(argv[4]);
    struct kiln_pool *pool = threads > 1 ? pool_open(threads) : NULL;
    clock_for(threads);
    puts("| request | candidates | first / best | best is number | pairs right | best us | predicted / measured |");
    puts("| --- | --- | --- | --- | --- | --- | --- |");
    double top = 0, accuracy = 0;
    int n = 0;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        verdict v;
        if (!*line || !one(line, hw, pool, atoi(argv[3]), argc > 5, &v)) { continue; }
        top += log(v.top);
        accuracy += v.pairs ? v.right / v.pairs : 1;
        n++;
    }
    fclose(f);
    if (n) { printf("%d requests: first / best %.3f (geometric mean), pairs right %.3f (mean)\n", n, exp(top / n), accuracy / n); }
    pool_close(pool);
    kiln_arena_close(a);
    return n ? 0 : 1;
}
