/* Runs blocks of a CUDA kernel compiled as C: one fiber a thread, switched at barriers and at operations of its warp, warp after warp, in two
 * different orders: once with asynchronous copies as late as their waits allow, once with copies at once. */
#include "workers/emu_warp.h"
#include "workers/harness.h"
#include <dlfcn.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { STACK = 128 << 10, MOST_THREADS = 1024, FIRST = 4 };

typedef struct dim3 { unsigned x, y, z; } dim3;
typedef void (*call_fn)(void **args);
/* waits: at the barrier of `line`; unseen: copies arrived that wgmma was not told of. */
typedef struct fiber {
    ucontext_t context;
    jmp_buf at;
    int line;
    bool begun, done, waits, unseen;
    emu_copies copies;
    emu_issues issues;
} fiber;

/* An operation that all threads of a warp carry out together: what each brings, and how many times there was one. */
enum warp_op { NO_OP, OP_ROWS, OP_TURNED, OP_MMA };
typedef struct warp {
    enum warp_op op;
    int n, arrived;
    unsigned done;
    const void *at[EMU_LANES];
    int *r[EMU_LANES];
    const emu_operands *x[EMU_LANES];
} warp;

/* One block at a time runs in this process, and fibers cannot be handed arguments other than ints: hence one static block. */
static struct {
    call_fn call;
    void *args[VERIFY_MAX_ARGS];
    dim3 *thread, *block;
    char *shared, *shared_end, *shared_base; /* base: a multiple of 1024, as the device's addresses count */
    int nthreads, now;
    char *stacks;
    jmp_buf home;
    bool late;
    char trouble[160];
    fiber fibers[MOST_THREADS];
    warp warps[MOST_THREADS / EMU_LANES];
    unsigned seen[MOST_THREADS]; /* operations of its warp that the thread took part in */
} emu;

/* A fiber's first entry is ucontext's; from then on jumps will do, which leave the mask of signals alone and so need no system call. */
static void leave_fiber(fiber *f)
{
    if (_setjmp(f->at) == 0) {
        _longjmp(emu.home, 1);
    }
}

static void enter_fiber(fiber *f)
{
    if (_setjmp(emu.home) != 0) {
        return;
    }
    if (f->begun) {
        _longjmp(f->at, 1);
    }
    f->begun = true;
    setcontext(&f->context);
}

static void barrier(int line)
{
    fiber *f = &emu.fibers[emu.now];
    f->line = line;
    f->waits = true;
    leave_fiber(f);
}

static void stop(const char *why)
{
    if (emu.trouble[0] == 0) {
        snprintf(emu.trouble, sizeof emu.trouble, "thread %d: %s", emu.now, why);
    }
}

static void copy(void *to, const void *from, int size, int n)
{
    fiber *f = &emu.fibers[emu.now];
    bool inside = (char *)to >= emu.shared && (char *)to + size <= emu.shared_end;
    const char *why = inside ? emu_copy_start(&f->copies, emu.late, to, from, size, n) : "an asynchronous copy outside of shared memory";
    if (why != NULL) {
        stop(why);
    }
}

static void commit(void) { emu_copy_commit(&emu.fibers[emu.now].copies); }
static void wait_groups(int groups)
{
    emu_copy_wait(&emu.fibers[emu.now].copies, groups);
    emu.fibers[emu.now].unseen = true;
}

/* Steps of groups of wgmma; a number: how many groups may still run. */
static void group(int step)
{
    fiber *f = &emu.fibers[emu.now];
    const char *why = NULL;
    if (step == EMU_GROUP_SEEN) {
        f->unseen = false;
    } else if (step == EMU_GROUP_COMMIT) {
        f->issues.groups++;
    } else if (step >= 0) {
        why = emu_wgmma_wait(&f->issues, step, emu.now, emu.shared_base, emu.shared_end - emu.shared_base);
    }
    if (why != NULL) {
        stop(why);
    }
}

static unsigned long long matrix(const void *at, unsigned lead, unsigned stride)
{
    long place = (const char *)at - emu.shared_base;
    if ((const char *)at < emu.shared || (const char *)at >= emu.shared_end || place % 16) {
        stop("a matrix that does not begin in shared memory, at a multiple of 16");
    }
    return (unsigned long long)(place >> 4 & 0x3fff) | (unsigned long long)(lead >> 4) << 16 | (unsigned long long)(stride >> 4) << 32 | 1ull << 62;
}

static void wgmma(const char *ptx, void **d, unsigned long long a, unsigned long long b, int ta, int tb)
{
    emu_issue x = {.ptx = ptx, .a = a, .b = b, .ta = ta, .tb = tb};
    int n = 0;
    fiber *f = &emu.fibers[emu.now];
    if (sscanf(ptx, "wgmma.mma_async.sync.aligned.m64n%3d", &n) == 1 && n >= 8 && n <= 256) {
        memcpy(x.d, d, sizeof *d * (size_t)(n / 2));
    }
    const char *why = f->unseen ? "wgmma reads what asynchronous copies wrote without a fence of proxies between"
                                : emu_wgmma_issue(&f->issues, emu.late, &x, emu.now, emu.shared_base, emu.shared_end - emu.shared_base);
    if (why != NULL) {
        stop(why);
    }
}

/* The last thread to come has the operation done for all; the others wait for that. */
static void together(enum warp_op op, int n, const char *ptx)
{
    warp *w = &emu.warps[emu.now / EMU_LANES];
    if (w->arrived > 0 && (w->op != op || w->n != n)) {
        stop("the threads of its warp are at different operations");
    }
    w->op = op;
    w->n = n;
    emu.seen[emu.now] = w->done + 1;
    if (++w->arrived == EMU_LANES) {
        if (op == OP_MMA && !emu_mma_run(ptx, w->x)) {
            stop("an mma.sync that the emulator does not know");
        }
        if (op != OP_MMA && emu.trouble[0] == 0) {
            emu_ldmatrix(w->r, w->at, n, op == OP_TURNED);
        }
        w->arrived = 0;
        w->done++;
        return;
    }
    leave_fiber(&emu.fibers[emu.now]);
}

static void rows(int *r, const void *at, int n, int trans)
{
    warp *w = &emu.warps[emu.now / EMU_LANES];
    int lane = emu.now % EMU_LANES;
    bool named = lane < 8 * n; /* others' addresses are not looked at */
    w->r[lane] = r;
    w->at[lane] = at;
    if (named && ((const char *)at < emu.shared || (const char *)at + 16 > emu.shared_end)) {
        stop("ldmatrix outside of shared memory");
    }
    if (named && (uintptr_t)at % 16) {
        stop("ldmatrix at an address that is no multiple of 16");
    }
    together(trans ? OP_TURNED : OP_ROWS, n, NULL);
}

static void mma(const char *ptx, void *d, const int *a, const int *b)
{
    emu_operands x = {d, a, b};
    emu.warps[emu.now / EMU_LANES].x[emu.now % EMU_LANES] = &x;
    together(OP_MMA, 0, ptx);
}

static void fiber_main(void)
{
    fiber *f = &emu.fibers[emu.now];
    emu.call(emu.args);
    f->done = true;
    _longjmp(emu.home, 1);
}

/* The text's function pointers get their functions. */
static bool hand_over(void *so)
{
    void (*barrier_fn)(int) = barrier, (*copy_fn)(void *, const void *, int, int) = copy, (*commit_fn)(void) = commit, (*wait_fn)(int) = wait_groups;
    void (*rows_fn)(int *, const void *, int, int) = rows, (*mma_fn)(const char *, void *, const int *, const int *) = mma;
    void (*group_fn)(int) = group, (*wgmma_fn)(const char *, void **, unsigned long long, unsigned long long, int, int) = wgmma;
    unsigned long long (*matrix_fn)(const void *, unsigned, unsigned) = matrix;
    const struct { const char *name; const void *fn; } all[] = {{"emu_barrier", &barrier_fn}, {"emu_copy", &copy_fn}, {"emu_commit", &commit_fn},
                                                                {"emu_wait", &wait_fn}, {"emu_group", &group_fn}, {"emu_matrix", &matrix_fn},
                                                                {"emu_wgmma", &wgmma_fn}, {"emu_rows", &rows_fn}, {"emu_mma", &mma_fn}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        void *place = dlsym(so, all[i].name);
        if (place == NULL) {
            return false;
        }
        memcpy(place, all[i].fn, sizeof(void *));
    }
    return true;
}

static bool emu_symbols(harness *h)
{
    char name[40];
    snprintf(name, sizeof name, "emu_call_%d", (int)h->job->launch);
    void *call = dlsym(h->so, name), *shared = dlsym(h->so, "emu_shared");
    dim3 *block_dim = dlsym(h->so, "emu_block_dim"), *grid_dim = dlsym(h->so, "emu_grid_dim");
    emu.thread = dlsym(h->so, "emu_thread");
    emu.block = dlsym(h->so, "emu_block");
    emu.nthreads = h->job->launch_threads;
    if (!call || !shared || !block_dim || !grid_dim || !emu.thread || !emu.block) {
        harness_say("fail the emulator's runtime is missing from the shared object");
        return false;
    }
    if (emu.nthreads < 1 || emu.nthreads > MOST_THREADS || h->job->grid < 1 || h->job->grid > INT64_C(0x7fffffff)) {
        harness_say("fail a launch of %lld blocks of %d threads", (long long)h->job->grid, emu.nthreads);
        return false;
    }
    void (*bounds)(char **, char **);
    memcpy(&emu.call, &call, sizeof call);
    memcpy(&bounds, &shared, sizeof shared);
    if (!hand_over(h->so)) {
        harness_say("fail the emulator's runtime is missing from the shared object");
        return false;
    }
    bounds(&emu.shared, &emu.shared_end);
    emu.shared_base = emu.shared - (uintptr_t)emu.shared % 1024;
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
static int shuffled(int i, int n, int order)
{
    int step = n % 7 ? 7 : n % 5 ? 5 : 1;
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
    f->done = f->waits = f->unseen = f->begun = false;
    f->issues.n = f->issues.groups = 0;
    f->copies.n = f->copies.groups = 0;
    emu.seen[i] = 0;
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = emu.stacks + (size_t)STACK * (size_t)i + VERIFY_PAGE;
    f->context.uc_stack.ss_size = STACK - VERIFY_PAGE;
    f->context.uc_link = NULL;
    makecontext(&f->context, fiber_main, 0);
}

/* Threads of a warp run until each has ended, stands at a barrier, or waits for others of its warp that will not come. */
static bool run_warp(int number, int order)
{
    int first = number * EMU_LANES, n = emu.nthreads - first < EMU_LANES ? emu.nthreads - first : EMU_LANES;
    warp *w = &emu.warps[number];
    bool moved = true, stuck = false;
    while (moved) {
        moved = false;
        for (int i = 0; i < n && emu.trouble[0] == 0; i++) {
            int at = first + shuffled(i, n, order);
            fiber *f = &emu.fibers[at];
            if (f->done || f->waits || emu.seen[at] > w->done) {
                continue;
            }
            emu.now = at;
            *emu.thread = (dim3){(unsigned)at, 0, 0};
            moved = true;
            enter_fiber(f);
        }
    }
    for (int i = first; i < first + n && emu.trouble[0] == 0; i++) {
        stuck = stuck || (!emu.fibers[i].done && !emu.fibers[i].waits);
    }
    if (stuck) {
        stop("waits for threads of its warp that do not take part in its operation");
    }
    return emu.trouble[0] == 0;
}

static bool run_block(int64_t block, int order, unsigned char poison)
{
    int nwarps = (emu.nthreads + EMU_LANES - 1) / EMU_LANES;
    *emu.block = (dim3){(unsigned)block, 0, 0};
    emu.late = order == 0;
    emu.trouble[0] = 0;
    memset(emu.warps, 0, sizeof emu.warps);
    if (emu.shared_end > emu.shared) {
        memset(emu.shared, poison, (size_t)(emu.shared_end - emu.shared));
    }
    for (int i = 0; i < emu.nthreads; i++) {
        prepare(i);
    }
    do {
        for (int i = 0; i < emu.nthreads; i++) {
            emu.fibers[i].waits = false;
        }
        for (int i = 0; i < nwarps; i++) {
            if (!run_warp(order == 0 ? i : nwarps - 1 - i, order)) {
                harness_say("fail block %lld, %s", (long long)block, emu.trouble);
                return false;
            }
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
    for (double spent = 0; n < j->grid; spent = verify_now_ms() - start) { /* a long block is enough by itself */
        if (n > 0 && spent >= (n < FIRST ? 2 * j->budget_ms : j->budget_ms / (2 * j->nkinds))) {
            break;
        }
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
