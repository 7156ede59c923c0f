/* Runs blocks of a CUDA kernel compiled as C: one fiber a thread, switched at barriers, in two different orders. */
#include "workers/harness.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { STACK = 128 << 10, MOST_THREADS = 1024, FIRST = 4 };

typedef struct dim3 { unsigned x, y, z; } dim3;
typedef void (*call_fn)(void **args);
typedef struct fiber { ucontext_t context; int line; bool done; } fiber;

/* One block at a time runs in this process, and fibers cannot be handed arguments other than ints: hence one static block. */
static struct {
    call_fn call;
    void *args[VERIFY_MAX_ARGS];
    dim3 *thread, *block;
    char *shared, *shared_end;
    int nthreads, now;
    char *stacks;
    ucontext_t scheduler;
    fiber fibers[MOST_THREADS];
} emu;

static void barrier(int line)
{
    fiber *f = &emu.fibers[emu.now];
    f->line = line;
    swapcontext(&f->context, &emu.scheduler);
}

static void fiber_main(void)
{
    fiber *f = &emu.fibers[emu.now];
    emu.call(emu.args);
    f->done = true;
    swapcontext(&f->context, &emu.scheduler);
}

static bool emu_symbols(harness *h)
{
    char name[40];
    snprintf(name, sizeof name, "emu_call_%d", (int)h->job->launch);
    void *call = dlsym(h->so, name), *shared = dlsym(h->so, "emu_shared"), *sync = dlsym(h->so, "emu_barrier");
    dim3 *block_dim = dlsym(h->so, "emu_block_dim"), *grid_dim = dlsym(h->so, "emu_grid_dim");
    emu.thread = dlsym(h->so, "emu_thread");
    emu.block = dlsym(h->so, "emu_block");
    emu.nthreads = h->job->launch_threads;
    if (!call || !shared || !sync || !block_dim || !grid_dim || !emu.thread || !emu.block) {
        harness_say("fail the emulator's runtime is missing from the shared object");
        return false;
    }
    if (emu.nthreads < 1 || emu.nthreads > MOST_THREADS || h->job->grid < 1 || h->job->grid > INT64_C(0x7fffffff)) {
        harness_say("fail a launch of %lld blocks of %d threads", (long long)h->job->grid, emu.nthreads);
        return false;
    }
    void (*bounds)(char **, char **), (*barrier_fn)(int) = barrier;
    memcpy(&emu.call, &call, sizeof call);
    memcpy(&bounds, &shared, sizeof shared);
    memcpy(sync, &barrier_fn, sizeof barrier_fn);
    bounds(&emu.shared, &emu.shared_end);
    *block_dim = (dim3){(unsigned)emu.nthreads, 1, 1};
    *grid_dim = (dim3){(unsigned)h->job->grid, 1, 1};
    emu.stacks = mmap(NULL, (size_t)STACK * (size_t)emu.nthreads, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (emu.stacks == MAP_FAILED) {
        harness_say("fail no memory for stacks");
        return false;
    }
    for (int i = 0; i < emu.nthreads; i++) { /* an overflow is a crash, not a neighbour's wrong result */
        mprotect(emu.stacks + (size_t)STACK * (size_t)i, VERIFY_PAGE, PROT_NONE);
    }
    return true;
}

/* Order 0 is up, order 1 a permutation that runs down in large steps: a missing barrier reads too early in one of them. */
static int thread_at(int i, int order)
{
    int n = emu.nthreads, step = n % 7 ? 7 : n % 5 ? 5 : 1;
    return order == 0 ? i : n - 1 - (int)((int64_t)i * step % n);
}

/* All fibers stand at one barrier or all have ended; otherwise says which do not. */
static bool uniform(int64_t block)
{
    const fiber *first = &emu.fibers[0];
    for (int i = 1; i < emu.nthreads; i++) {
        const fiber *f = &emu.fibers[i];
        if (f->done != first->done || (!f->done && f->line != first->line)) {
            char at[2][48];
            for (int k = 0; k < 2; k++) {
                const fiber *x = k ? f : first;
                snprintf(at[k], sizeof at[k], x->done ? "has ended" : "waits at the barrier of line %d", x->line);
            }
            harness_say("fail divergent barrier in block %lld: thread 0 %s, thread %d %s", (long long)block, at[0], i, at[1]);
            return false;
        }
    }
    return true;
}

static void prepare(int i)
{
    fiber *f = &emu.fibers[i];
    f->done = false;
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = emu.stacks + (size_t)STACK * (size_t)i + VERIFY_PAGE;
    f->context.uc_stack.ss_size = STACK - VERIFY_PAGE;
    f->context.uc_link = NULL;
    makecontext(&f->context, fiber_main, 0);
}

static bool run_block(int64_t block, int order, unsigned char poison)
{
    *emu.block = (dim3){(unsigned)block, 0, 0};
    if (emu.shared_end > emu.shared) {
        memset(emu.shared, poison, (size_t)(emu.shared_end - emu.shared));
    }
    for (int i = 0; i < emu.nthreads; i++) {
        prepare(i);
    }
    do {
        for (int i = 0; i < emu.nthreads; i++) {
            emu.now = thread_at(i, order);
            *emu.thread = (dim3){(unsigned)emu.now, 0, 0};
            swapcontext(&emu.scheduler, &emu.fibers[emu.now].context);
        }
        if (!uniform(block)) {
            return false;
        }
    } while (!emu.fibers[0].done);
    return true;
}

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}

/* The i-th block to run: the last, the first, then the others in steps that visit each once. */
static int64_t block_at(int64_t i, int64_t grid)
{
    int64_t others = grid - 1, step = others * 5 / 8 | 1;
    if (i == 0) {
        return others;
    }
    while (gcd(step, others) != 1) {
        step++;
    }
    return (int64_t)((unsigned __int128)(i - 1) * (uint64_t)step % (uint64_t)others);
}

static void set_args(const harness *h, const harness_region *outputs)
{
    for (int i = 0; i < h->job->nin + h->job->nout; i++) {
        int a = h->job->order[i];
        emu.args[i] = a < h->job->nin ? h->in[a].data : outputs[a - h->job->nin].data;
    }
}

static bool one_kind(harness *h, int kind)
{
    const verify_job *j = h->job;
    int input_kind = j->source[kind].kind;
    int64_t n = 0;
    if (!harness_open(h, kind)) {
        return false;
    }
    set_args(h, h->a);
    harness_at("emulated, threads in order", input_kind);
    double start = verify_now_ms();
    while (n < j->grid && (n < FIRST || verify_now_ms() - start < j->budget_ms / (2 * j->nkinds))) {
        if (!run_block(block_at(n++, j->grid), 0, VERIFY_POISON_A)) {
            return false;
        }
    }
    harness_second(h);
    set_args(h, h->b);
    harness_at("emulated, threads scrambled", input_kind);
    for (int64_t i = 0; i < n; i++) {
        if (!run_block(block_at(i, j->grid), 1, VERIFY_POISON_B)) {
            return false;
        }
    }
    if (!harness_compare(h, "depends on the order of threads (a race or uninitialised memory)", n < j->grid)) {
        return false;
    }
    harness_close(h);
    h->blocks_run = kind == 0 || n < h->blocks_run ? n : h->blocks_run;
    harness_say("kind %d", kind);
    return true;
}

bool harness_blocks(harness *h)
{
    if (!emu_symbols(h)) {
        return false;
    }
    double start = verify_now_ms();
    for (int i = 0; i < h->job->nkinds; i++) {
        double used = verify_now_ms() - start;
        if (i > 0 && used + used / i > 2 * h->job->budget_ms) {
            break;
        }
        if (!one_kind(h, i)) {
            return false;
        }
    }
    harness_say("blocks %lld %lld", (long long)h->blocks_run, (long long)h->job->grid);
    return true;
}
