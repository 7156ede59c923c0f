/* What one fork and join of the default pool costs: microseconds of a call whose tasks do nothing, and of one in which every thread takes a task and
 * waits for all the others to have theirs. Usage: fork THREADS. See README.md. */
#include "api/cli/pool.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 101, CALLS = 50 };

static _Atomic int arrived;
static int wanted;

static void nothing(void *closure, int64_t index, int32_t worker) { (void)closure, (void)index, (void)worker; }

static void meet(void *closure, int64_t index, int32_t worker)
{
    nothing(closure, index, worker);
    atomic_fetch_add(&arrived, 1);
    while (atomic_load(&arrived) < wanted) {}
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void measure(struct kiln_pool *p, const char *what, void (*task)(void *, int64_t, int32_t))
{
    double us[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        double t = now_us();
        for (int i = 0; i < CALLS; i++) {
            atomic_store(&arrived, 0);
            p->parallel_for(p->ctx, p->nthreads, task, NULL);
        }
        us[r] = (now_us() - t) / CALLS;
    }
    qsort(us, ROUNDS, sizeof *us, by_size);
    printf("fork and join of %d threads, %s: best %.2f us, median %.2f, p90 %.2f\n", (int)p->nthreads, what, us[0], us[ROUNDS / 2],
           us[ROUNDS * 9 / 10]);
}

int main(int argc, char **argv)
{
    struct kiln_pool *p = pool_open(argc > 1 ? atoi(argv[1]) : 2);
    if (!p) return 1;
    wanted = p->nthreads;
    measure(p, "tasks that do nothing", nothing);
    measure(p, "every thread takes a task", meet);
    pool_close(p);
    return 0;
}
