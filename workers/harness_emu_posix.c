/* Runs blocks of a CUDA kernel compiled as C on the emulated GPU, in two different orders: once with copies as late as their waits allow, once with
 * copies at once. */
#include "workers/emu_machine.h"
#include "workers/emu_traffic.h"
#include "workers/harness.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { FIRST = 4 };

static void *find(void *so, const char *name) { return dlsym(so, name); }

static bool emu_symbols(harness *h)
{
    char name[40];
    snprintf(name, sizeof name, "emu_call_%d", (int)h->job->launch);
    void *call = dlsym(h->so, name), *shared = dlsym(h->so, "emu_shared");
    emu_dim3 *block_dim = dlsym(h->so, "emu_block_dim"), *grid_dim = dlsym(h->so, "emu_grid_dim");
    int threads = h->job->launch_threads, blocks = h->job->cluster > 1 ? h->job->cluster : 1;
    emu.thread = dlsym(h->so, "emu_thread");
    emu.block = dlsym(h->so, "emu_block");
    if (!call || !shared || !block_dim || !grid_dim || !emu.thread || !emu.block || !emu_hand_over(find, h->so)) {
        harness_say("fail the emulator's runtime is missing from the shared object");
        return false;
    }
    if (threads < 1 || threads > EMU_THREADS || blocks > EMU_BLOCKS || h->job->grid < 1 || h->job->grid > INT64_C(0x7fffffff) ||
        h->job->grid % blocks) {
        harness_say("fail a launch of %lld blocks of %d threads in clusters of %d", (long long)h->job->grid, threads, blocks);
        return false;
    }
    void (*bounds)(char **, char **);
    memcpy(&emu.call, &call, sizeof call);
    memcpy(&bounds, &shared, sizeof shared);
    bounds(&emu.shared, &emu.shared_end);
    emu.shared_base = emu.shared - (uintptr_t)emu.shared % 1024;
    *block_dim = (emu_dim3){(unsigned)threads, 1, 1};
    *grid_dim = (emu_dim3){(unsigned)h->job->grid, 1, 1};
    if (!emu_machine_open(threads, blocks)) {
        harness_say("fail no memory for stacks");
        return false;
    }
    return true;
}

static bool run_blocks(int64_t cluster, int order, unsigned char poison)
{
    if (emu_run_cluster(cluster * emu.nblocks, order, poison)) {
        return true;
    }
    harness_say("fail %s", emu.trouble);
    return false;
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
    if (h->job->again >= 0) {
        memcpy(outputs[h->job->again].data, h->in[h->job->nin - 1].data, outputs[h->job->again].bytes);
    }
    for (int i = 0; i < h->job->nin + h->job->nout; i++) {
        int a = h->job->order[i];
        const harness_region *r = a < h->job->nin ? &h->in[a] : &outputs[a - h->job->nin];
        emu.args[i] = r->data;
        emu_counted.arrays[i] = (emu_array){r->data, r->bytes};
        emu_counted.narrays = i + 1;
    }
}

static bool one_kind(harness *h, int kind)
{
    const verify_job *j = h->job;
    int input_kind = j->source[kind].kind;
    int64_t n = 0, clusters = j->grid / emu.nblocks;
    if (!harness_open(h, kind)) {
        return false;
    }
    set_args(h, h->a);
    emu_counted.on = j->traffic && kind == 0;
    harness_at("emulated, threads in order", input_kind);
    double start = verify_work_ms();
    for (double spent = 0; n < clusters; spent = verify_work_ms() - start) { /* a long block is enough by itself */
        if (j->again < 0 && n > 0 && spent >= (n < FIRST ? 2 * j->budget_ms : j->budget_ms / (2 * j->nkinds))) {
            break;
        }
        if (!run_blocks(block_at(n++, clusters), 0, VERIFY_POISON_A)) {
            return false;
        }
    }
    emu_counted.on = false;
    if (!harness_second(h)) {
        return false;
    }
    harness_move(h);
    set_args(h, h->b);
    harness_at("emulated, threads scrambled", input_kind);
    for (int64_t i = 0; i < n; i++) {
        if (!run_blocks(block_at(i, clusters), 1, VERIFY_POISON_B)) {
            return false;
        }
    }
    if (!harness_compare(h, "depends on the order of threads (a race or uninitialised memory)", n < clusters)) {
        return false;
    }
    harness_close(h);
    n *= emu.nblocks;
    h->blocks_run = kind == 0 || n < h->blocks_run ? n : h->blocks_run;
    harness_say("kind %d", kind);
    return true;
}

bool harness_blocks(harness *h)
{
    if (!emu_symbols(h)) {
        return false;
    }
    double start = verify_work_ms();
    for (int i = 0; i < h->job->nkinds; i++) {
        double used = verify_work_ms() - start;
        if (i > 0 && used + used / i > 2 * h->job->budget_ms) {
            break;
        }
        if (!one_kind(h, i)) {
            return false;
        }
    }
    if (h->job->traffic) {
        const worker_traffic *t = &emu_counted.traffic;
        harness_say("traffic %lld %lld %lld %lld %lld %lld", (long long)t->load_sectors, (long long)t->load_least, (long long)t->store_sectors,
                    (long long)t->store_least, (long long)t->shared_turns, (long long)t->shared_least);
    }
    harness_say("blocks %lld %lld", (long long)h->blocks_run, (long long)h->job->grid);
    return true;
}
