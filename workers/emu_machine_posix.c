/* Fibers of the emulated GPU: one a thread, switched where a thread has to wait for others, warp after warp, block after block of a cluster. */
#include "workers/emu_machine.h"
#include "workers/emu_traffic.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { STACK = 128 << 10 };
emu_machine emu;

/* A fiber's first entry is ucontext's; from then on jumps will do, which leave the mask of signals alone and so need no system call. */
static void leave_fiber(emu_fiber *f)
{
    if (_setjmp(f->at) == 0) {
        _longjmp(emu.home, 1);
    }
}

static void enter_fiber(emu_fiber *f)
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

void emu_wait_here(enum emu_wait what)
{
    emu_fiber *f = emu_self();
    f->waits = what;
    leave_fiber(f);
}

void emu_stop(const char *why)
{
    if (emu.trouble[0] == 0) {
        snprintf(emu.trouble, sizeof emu.trouble, "block %lld, thread %d: %s", (long long)emu_here()->number, emu.now, why);
    }
}

char *emu_memory_of(int block) { return block == emu.here ? emu.shared_base : emu.blocks[block]->memory + (emu.shared_base - emu.shared); }

/* The block's shared memory comes to where the text has it. */
static void move_to(int block)
{
    size_t n = (size_t)(emu.shared_end - emu.shared);
    *emu.block = (emu_dim3){(unsigned)emu.blocks[block]->number, 0, 0};
    if (block == emu.here) {
        return;
    }
    memcpy(emu_here()->memory, emu.shared, n);
    memcpy(emu.shared, emu.blocks[block]->memory, n);
    emu.here = block;
}

bool emu_machine_open(int nthreads, int nblocks)
{
    size_t n = (size_t)(emu.shared_end - emu.shared) + 1, stacks = (size_t)STACK * (size_t)(nthreads * nblocks);
    emu.nthreads = nthreads;
    emu.nblocks = nblocks;
    emu.stacks = mmap(NULL, stacks, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (emu.stacks == MAP_FAILED) {
        return false;
    }
    for (int i = 0; i < nthreads * nblocks; i++) { /* an overflow is a crash, not a neighbour's wrong result */
        mprotect(emu.stacks + (size_t)STACK * (size_t)i, VERIFY_PAGE, PROT_NONE);
    }
    for (int i = 0; i < nblocks; i++) {
        emu.blocks[i] = calloc(1, sizeof *emu.blocks[i]);
        if (emu.blocks[i] == NULL || (emu.blocks[i]->memory = malloc(n)) == NULL) {
            return false;
        }
    }
    return true;
}

static void fiber_main(void)
{
    emu_fiber *f = emu_self();
    emu.call(emu.args);
    f->done = true;
    if (f->nleaving > 0) {
        emu_stop("ends before its bulk stores have been read");
    }
    _longjmp(emu.home, 1);
}

static void prepare_fiber(emu_block *b, int block, int i)
{
    emu_fiber *f = &b->fibers[i];
    f->done = f->unseen = f->begun = false;
    f->waits = EMU_RUNS;
    f->registers = f->nleaving = 0;
    f->fenced = false;
    f->copies.n = f->copies.groups = 0;
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = emu.stacks + (size_t)STACK * (size_t)(block * emu.nthreads + i) + VERIFY_PAGE;
    f->context.uc_stack.ss_size = STACK - VERIFY_PAGE;
    f->context.uc_link = NULL;
    makecontext(&f->context, fiber_main, 0);
}

static void prepare(int64_t first_block, unsigned char poison)
{
    size_t n = (size_t)(emu.shared_end - emu.shared);
    emu.trouble[0] = 0;
    emu.nloads = emu.here = 0;
    emu.cluster = (emu_meeting){0};
    for (int k = 0; k < emu.nblocks; k++) {
        emu_block *b = emu.blocks[k];
        b->number = first_block + k;
        memset(b->warps, 0, sizeof b->warps);
        memset(b->meets, 0, sizeof b->meets);
        b->bars.n = 0;
        if (n > 0) { memset(k ? b->memory : emu.shared, poison, n); }
        for (int i = 0; i < emu.nthreads; i++) {
            prepare_fiber(b, k, i);
        }
        for (int i = 0; i < (emu.nthreads + EMU_GROUP - 1) / EMU_GROUP; i++) {
            emu_group_open(&b->groups[i]);
        }
    }
}

/* Order 0 is up, order 1 a permutation that runs down in large steps: a missing barrier reads too early in one of them. */
static int shuffled(int i, int n, int order)
{
    int step = n % 7 ? 7 : n % 5 ? 5 : 1;
    return order == 0 ? i : n - 1 - (int)((int64_t)i * step % n);
}

static bool can_run(const emu_block *b, int thread)
{
    const emu_fiber *f = &b->fibers[thread];
    if (f->done) {
        return false;
    }
    switch (f->waits) {
    case EMU_RUNS: return true;
    case EMU_AT_WARP: return f->round <= b->warps[thread / EMU_LANES].done;
    case EMU_AT_GROUP: return emu_group_ready(&b->groups[thread / EMU_GROUP], thread % EMU_GROUP, f->number);
    case EMU_AT_BAR: return emu_bar_over(f->bar, f->parity);
    case EMU_AT_MEET: return f->round <= b->meets[f->number].done;
    case EMU_AT_CLUSTER: return f->round <= emu.cluster.done;
    default: return false;
    }
}

/* Threads of a warp run until each has ended or waits for what is not there yet. */
static bool run_warp(emu_block *b, int number, int order)
{
    int first = number * EMU_LANES, n = emu.nthreads - first < EMU_LANES ? emu.nthreads - first : EMU_LANES;
    bool any = false;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < n && emu.trouble[0] == 0; i++) {
            int at = first + shuffled(i, n, order);
            if (!can_run(b, at)) {
                continue;
            }
            b->fibers[at].waits = EMU_RUNS;
            emu.now = at;
            *emu.thread = (emu_dim3){(unsigned)at, 0, 0};
            moved = any = true;
            enter_fiber(&b->fibers[at]);
        }
    }
    if (emu_counted.on && any) {
        emu_traffic_count(&emu_counted.log, &emu_counted.traffic);
    }
    return any;
}

/* All fibers of a block that stand at one barrier go on. */
static bool release_barrier(emu_block *b)
{
    for (int i = 0; i < emu.nthreads; i++) {
        if (b->fibers[i].done || b->fibers[i].waits != EMU_AT_BARRIER || b->fibers[i].number != b->fibers[0].number) {
            return false;
        }
    }
    for (int i = 0; i < emu.nthreads; i++) {
        b->fibers[i].waits = EMU_RUNS;
    }
    return true;
}

static bool land_oldest(void)
{
    if (emu.nloads == 0) {
        return false;
    }
    emu_load l = emu.loads[0];
    memmove(emu.loads, emu.loads + 1, sizeof l * (size_t)--emu.nloads);
    emu_land(&l);
    return true;
}

static void describe(const emu_fiber *f, char *out, size_t size)
{
    static const char *const what[] = {[EMU_AT_WARP] = "others of its warp", [EMU_AT_GROUP] = "wgmma that not all of its group issue",
                                       [EMU_AT_BAR] = "a phase of an mbarrier", [EMU_AT_CLUSTER] = "the cluster"};
    if (f->done) {
        snprintf(out, size, "has ended");
    } else if (f->waits == EMU_AT_BARRIER || f->waits == EMU_AT_MEET) {
        snprintf(out, size, "waits at the barrier of %s %d", f->waits == EMU_AT_MEET ? "number" : "line", f->number);
    } else {
        snprintf(out, size, "waits for %s", what[f->waits]);
    }
}

/* Nobody can go on: says who waits for what, and who does not come. */
static void stuck(void)
{
    for (int k = 0; k < emu.nblocks; k++) {
        const emu_block *b = emu.blocks[k];
        int waits = -1, at = 0;
        char text[2][80];
        for (int i = 0; i < emu.nthreads; i++) {
            waits = waits < 0 && !b->fibers[i].done ? i : waits;
        }
        if (waits < 0) {
            continue;
        }
        const emu_fiber *f = &b->fibers[waits];
        while (at < emu.nthreads && b->fibers[at].done == f->done && b->fibers[at].waits == f->waits && b->fibers[at].number == f->number) {
            at++;
        }
        describe(f, text[0], sizeof text[0]);
        if (f->waits == EMU_AT_WARP) {
            snprintf(emu.trouble, sizeof emu.trouble, "block %lld, thread %d: waits for threads of its warp that do not take part in its operation",
                     (long long)b->number, waits);
        } else if (at < emu.nthreads) {
            describe(&b->fibers[at], text[1], sizeof text[1]);
            snprintf(emu.trouble, sizeof emu.trouble, "%s in block %lld: thread %d %s, thread %d %s",
                     f->waits == EMU_AT_BARRIER || b->fibers[at].waits == EMU_AT_BARRIER ? "divergent barrier" : "nobody can go on",
                     (long long)b->number, waits, text[0], at, text[1]);
        } else {
            snprintf(emu.trouble, sizeof emu.trouble, "nobody can go on in block %lld: thread %d %s", (long long)b->number, waits, text[0]);
        }
        return;
    }
}

static bool all_done(void)
{
    for (int k = 0; k < emu.nblocks; k++) {
        for (int i = 0; i < emu.nthreads; i++) {
            if (!emu.blocks[k]->fibers[i].done) {
                return false;
            }
        }
    }
    return true;
}

/* What the roles take of a unit's registers must be there for all of them at once. */
static void check_registers(const emu_block *b)
{
    long given = 65536 / emu.nthreads / 8 * 8, sum = 0;
    bool any = false;
    for (int i = 0; i < emu.nthreads; i++) {
        int n = b->fibers[i].registers;
        any = any || n;
        sum += n ? n : given;
        if (n != b->fibers[i / EMU_GROUP * EMU_GROUP].registers) {
            emu_stop("setmaxnreg that not all threads of a group execute");
        }
    }
    if (any && sum > given * emu.nthreads) {
        emu_stop("setmaxnreg gives the roles more registers together than the launch has");
    }
}

bool emu_run_cluster(int64_t first_block, int order, unsigned char poison)
{
    int nwarps = (emu.nthreads + EMU_LANES - 1) / EMU_LANES;
    emu.late = order == 0;
    prepare(first_block, poison);
    while (!all_done() && emu.trouble[0] == 0) {
        bool moved = false;
        for (int k = 0; k < emu.nblocks && emu.trouble[0] == 0; k++) {
            move_to(order == 0 ? k : emu.nblocks - 1 - k);
            for (bool again = true; again && emu.trouble[0] == 0;) { /* each block as far ahead of the others as it gets */
                again = false;
                for (int i = 0; i < nwarps && emu.trouble[0] == 0; i++) {
                    again = run_warp(emu_here(), order == 0 ? i : nwarps - 1 - i, order) || again;
                }
                moved = moved || again;
            }
        }
        for (int k = 0; k < emu.nblocks && !moved; k++) {
            moved = release_barrier(emu.blocks[k]);
        }
        if (emu.trouble[0] == 0 && !moved && !land_oldest() && !all_done()) {
            stuck();
        }
    }
    for (int k = 0; k < emu.nblocks && emu.trouble[0] == 0; k++) {
        check_registers(emu.blocks[k]);
    }
    if (emu.trouble[0] == 0 && emu.nloads > 0) {
        emu_stop("ends before its bulk copies have arrived");
    }
    return emu.trouble[0] == 0;
}
