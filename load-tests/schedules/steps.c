/* `make bench`: schedule primitives a second on two matrix products, applied as one trace and step by step (each step on a copy, as a
 * search does). */
#include "tests/arena.h"
#include "schedule/schedule.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static const char program[] = "c[M,N] +=! a[M,K]*b[K,N]; r[M,L] +=! c[M,N]*e[N,L]";
static const char inputs[] = "a=f32:256x192&b=f32:192x320&e=f32:320x128";
static const char *const steps[] = {
    "split c M 4 6",
    "split c N 2 16",
    "split c K 4",
    "reorder c M.0 N.0 | M.1 K.0 | K.1 | M.2 N.1 N.2",
    "parallel c M.0",
    "unroll c M.2",
    "unroll c N.1",
    "vectorize c N.2",
    "cache_read c 1 scratch N.0 loops K.0 K.1 N.1 N.2",
    "split r M 8 4",
    "split r L 4 16",
    "reorder r M.0 L.0 | M.1 N.0 | M.2 L.1 L.2",
    "parallel r M.0",
    "parallel r L.0",
    "unroll r M.2",
    "unroll r L.1",
    "vectorize r L.2",
    "cache_read r 1 scratch L.0 loops N.0 L.1 L.2",
};
enum { STEPS = sizeof steps / sizeof *steps, ROUNDS = 1000 };

static int fail(const kiln_diag *d)
{
    printf("%s\n", d->message);
    return 1;
}

int main(void)
{
    kn_hw hw = {.id = "cpu", .max_threads_per_block = 1, .vector_bytes = 64};
    char trace[4096] = "";
    for (int i = 0; i < STEPS; i++) strcat(strcat(trace, steps[i]), "\n");
    for (int way = 0; way < 2; way++) {
        double spent = 0;
        for (int r = 0; r < ROUNDS; r++) {
            kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
            kiln_diag d = {0};
            kn_program *p;
            kn_tree *t;
            if (kn_parse(a, (kiln_bytes){program, strlen(program)}, (kiln_bytes){inputs, strlen(inputs)}, &p, &d)) return fail(&d);
            double start = now();
            if (way == 0 && kn_trace_apply(a, p, &hw, (kiln_bytes){trace, strlen(trace)}, &t, &d)) return fail(&d);
            if (way == 1 && kn_trace_start(a, p, &t, &d)) return fail(&d);
            for (int i = 0; way == 1 && i < STEPS; i++)
                if (kn_trace_step(a, t, &hw, (kiln_bytes){steps[i], strlen(steps[i])}, &t, &d)) return fail(&d);
            if (way == 1 && kn_trace_end(t, &hw, &d)) return fail(&d);
            spent += now() - start;
            kiln_arena_close(a);
        }
        printf("%-28s %10.0f primitives a second\n", way ? "step by step, on copies" : "one trace", STEPS * ROUNDS / spent);
    }
    return 0;
}
