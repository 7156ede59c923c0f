/* What the emulated text calls: barriers, copies, operations of warps and groups, bulk copies. */
#include "workers/emu_machine.h"
#include "workers/emu_traffic.h"
#include <string.h>

static void barrier(int line)
{
    emu_self()->number = line;
    emu_wait_here(EMU_AT_BARRIER);
}

static void check(const char *why)
{
    if (why != NULL) {
        emu_stop(why);
    }
}

static bool is_shared(const void *at, long bytes) { return (const char *)at >= emu.shared && (const char *)at + bytes <= emu.shared_end; }

static void copy(void *to, const void *from, int size, int n)
{
    const char *site = __builtin_return_address(0);
    emu_touch(site, (uintptr_t)from, n, 0);
    emu_touch(site + 1, (uintptr_t)to, size, 1);
    check(is_shared(to, size) ? emu_copy_start(&emu_self()->copies, emu.late, to, from, size, n) : "an asynchronous copy outside of shared memory");
}

static void commit(void) { emu_copy_commit(&emu_self()->copies); }
static void wait_groups(int groups)
{
    emu_copy_wait(&emu_self()->copies, groups);
    emu_self()->unseen = true;
}

/* ---- a warp ---- */

/* The last thread to come has the operation done for all; the others wait for that. */
static void together(enum emu_warp_op op, int n, const char *ptx)
{
    emu_warp *w = &emu_here()->warps[emu.now / EMU_LANES];
    if (w->arrived > 0 && (w->op != op || w->n != n)) {
        emu_stop("the threads of its warp are at different operations");
    }
    w->op = op;
    w->n = n;
    emu_self()->round = w->done + 1;
    if (++w->arrived == EMU_LANES) {
        if (op == EMU_OP_MMA && !emu_mma_run(ptx, w->x)) {
            emu_stop("an mma.sync that the emulator does not know");
        }
        for (int lane = 0; op == EMU_OP_PEER && lane < EMU_LANES; lane++) {
            *w->answer[lane] = w->word[lane ^ n];
        }
        if ((op == EMU_OP_ROWS || op == EMU_OP_TURNED) && emu.trouble[0] == 0) {
            emu_ldmatrix(w->r, w->at, n, op == EMU_OP_TURNED);
        }
        w->arrived = 0;
        w->done++;
        return;
    }
    emu_wait_here(EMU_AT_WARP);
}

static void rows(int *r, const void *at, int n, int trans)
{
    emu_warp *w = &emu_here()->warps[emu.now / EMU_LANES];
    int lane = emu.now % EMU_LANES;
    bool named = lane < 8 * n; /* others' addresses are not looked at */
    w->r[lane] = r;
    w->at[lane] = at;
    if (named) {
        emu_touch(__builtin_return_address(0), (uintptr_t)at, 16, 0);
    }
    if (named && !is_shared(at, 16)) {
        emu_stop("ldmatrix outside of shared memory");
    }
    if (named && (uintptr_t)at % 16) {
        emu_stop("ldmatrix at an address that is no multiple of 16");
    }
    together(trans ? EMU_OP_TURNED : EMU_OP_ROWS, n, NULL);
}

/* shfl.sync.bfly: the word of the thread whose number differs in these bits. */
static unsigned peer(unsigned x, int mask)
{
    emu_warp *w = &emu_here()->warps[emu.now / EMU_LANES];
    int lane = emu.now % EMU_LANES;
    unsigned answer = x;
    if (mask < 0 || mask >= EMU_LANES || emu.nthreads % EMU_LANES) {
        emu_stop("a shuffle beyond the warp");
        return x;
    }
    w->word[lane] = x;
    w->answer[lane] = &answer;
    together(EMU_OP_PEER, mask, NULL);
    return answer;
}

static void mma(const char *ptx, void *d, const int *a, const int *b)
{
    emu_operands x = {d, a, b};
    emu_here()->warps[emu.now / EMU_LANES].x[emu.now % EMU_LANES] = &x;
    together(EMU_OP_MMA, 0, ptx);
}

/* ---- 128 threads ---- */

/* Steps of groups of wgmma; a number: how many groups may still run. */
static void group(int step)
{
    emu_fiber *f = emu_self();
    emu_group *g = &emu_here()->groups[emu.now / EMU_GROUP];
    int thread = emu.now % EMU_GROUP;
    if (step == EMU_GROUP_SEEN) {
        f->unseen = false;
        f->fenced = true;
    } else if (step == EMU_GROUP_COMMIT) {
        g->commits[thread]++;
    } else if (step >= 0) {
        f->number = step;
        if (!emu_group_ready(g, thread, step)) {
            emu_wait_here(EMU_AT_GROUP);
        }
        check(emu_group_wait(g, thread, step, emu.shared_base, emu_shared_bytes()));
    }
}

static unsigned long long matrix(const void *at, unsigned lead, unsigned stride)
{
    long place = (const char *)at - emu.shared_base;
    if (!is_shared(at, 1) || place % 16) {
        emu_stop("a matrix that does not begin in shared memory, at a multiple of 16");
    }
    return (unsigned long long)(place >> 4 & 0x3fff) | (unsigned long long)(lead >> 4) << 16 | (unsigned long long)(stride >> 4) << 32 | 1ull << 62;
}

static void wgmma(const char *ptx, void **d, unsigned long long a, unsigned long long b, int ta, int tb)
{
    emu_group *g = &emu_here()->groups[emu.now / EMU_GROUP];
    check(emu_self()->unseen ? "wgmma reads what asynchronous copies wrote without a fence of proxies between"
                             : emu_group_issue(g, emu.now % EMU_GROUP, ptx, d, a, b, ta, tb));
}

/* The last thread to come lets the others go on. */
static void meeting(emu_meeting *m, int threads, enum emu_wait what)
{
    emu_self()->round = m->done + 1;
    if (++m->arrived == threads) {
        m->arrived = 0;
        m->done++;
        return;
    }
    emu_wait_here(what);
}

static void meet(int number)
{
    if (number < 1 || number >= EMU_MEETS) {
        emu_stop("a named barrier that is none of 1 to 15");
        return;
    }
    emu_fiber *f = emu_self();
    emu_meeting *m = &emu_here()->meets[number];
    f->number = number;
    m->fenced[0] = f->fenced && (m->arrived == 0 || m->fenced[0]);
    f->fenced = false;
    if (m->arrived + 1 == EMU_GROUP) {
        m->fenced[1] = m->fenced[0];
    }
    meeting(m, EMU_GROUP, EMU_AT_MEET);
    f->met_fenced = m->fenced[1];
}

static void cluster(void) { meeting(&emu.cluster, emu.nthreads * emu.nblocks, EMU_AT_CLUSTER); }

static void registers(int more, int n)
{
    int given = 65536 / emu.nthreads / 8 * 8;
    if (n % 8 || n < 24 || n > 256 || (more ? n < given : n > given)) {
        emu_stop("setmaxnreg to a number that is no multiple of 8 from 24 to 256, or in the other direction");
    }
    emu_self()->registers = n;
}

/* ---- bulk copies ---- */

static emu_bar *bar_of(int block, const void *at)
{
    emu_bar *b = is_shared(at, 8) ? emu_bar_at(&emu.blocks[block]->bars, (long)((const char *)at - emu.shared_base)) : NULL;
    if (b == NULL) {
        emu_stop("an mbarrier that was not initialised");
    }
    return b;
}

static bool has_ended(const emu_block *b)
{
    for (int i = 0; i < emu.nthreads; i++) {
        if (!b->fibers[i].done) {
            return false;
        }
    }
    return true;
}

static void bar_init(void *bar, unsigned n)
{
    long at = (long)((const char *)bar - emu.shared_base);
    check(is_shared(bar, 8) ? emu_bar_make(&emu_here()->bars, at, n) : "an mbarrier outside of shared memory");
}

static void bar_open(void)
{
    for (int i = 0; i < emu_here()->bars.n; i++) {
        emu_here()->bars.list[i].open = true;
    }
}

static void expect(void *bar, unsigned bytes)
{
    emu_bar *b = bar_of(emu.here, bar);
    if (b != NULL) {
        check(bytes >= 1u << 20 ? "an mbarrier expects more than 2^20 - 1 bytes" : emu_bar_arrive(b, (long)bytes));
    }
}

static void arrive(void *bar, int peer)
{
    int block = peer < 0 ? emu.here : peer;
    if (block >= emu.nblocks) {
        emu_stop("arrives at a block that is not in the cluster");
        return;
    }
    emu_bar *b = bar_of(block, bar);
    if (b != NULL && peer >= 0 && !b->open) {
        emu_stop("an mbarrier of another block without a fence behind its initialisation");
    }
    if (has_ended(emu.blocks[block])) {
        emu_stop("arrives at an mbarrier of a block that has ended");
    }
    if (b != NULL) {
        check(emu_bar_arrive(b, 0));
    }
}

static void await(void *bar, unsigned parity)
{
    emu_fiber *f = emu_self();
    f->bar = bar_of(emu.here, bar);
    f->parity = parity;
    if (f->bar != NULL && parity > 1) {
        emu_stop("a parity that is not 0 or 1");
    }
    if (f->bar != NULL && !emu_bar_over(f->bar, parity)) {
        emu_wait_here(EMU_AT_BAR);
    }
}

void emu_land(const emu_load *l)
{
    for (int k = 0; k < emu.nblocks; k++) {
        emu_bar *b = l->mask >> k & 1 ? emu_bar_at(&emu.blocks[k]->bars, l->bar) : NULL;
        if (b == NULL) {
            continue;
        }
        if (has_ended(emu.blocks[k])) {
            emu_stop("a bulk copy arrives in a block that has ended");
        }
        emu_box_load(emu_memory_of(k), l->to, l->map, l->from, l->coord);
        emu_bar_arrived(b, emu_box_bytes(l->map));
    }
}

static void load(void *to, const unsigned long long *map, void *bar, const int *at, int rank, int mask)
{
    emu_load l = {.map = (const emu_map *)(uintptr_t)map[1], .from = (const char *)(uintptr_t)map[0], .mask = (unsigned)mask};
    l.to = (long)((char *)to - emu.shared_base);
    l.bar = (long)((char *)bar - emu.shared_base);
    if (mask == 1) { /* its own block, whatever its number */
        l.mask = 1u << emu.here;
    }
    emu_bar *b = bar_of(emu.here, bar);
    const int *window = l.map->window;
    bool first = !window[0] || (at[1] >= window[1] && at[1] <= (int)l.map->dims[1] - 1 + window[3] && at[2] >= window[2] &&
                                at[2] <= (int)l.map->dims[2] - 1 + window[4] && at[4] >= 0 && at[4] < 256 && at[5] >= 0 && at[5] < 256);
    const char *why = rank != (window[0] ? EMU_COORDS : l.map->rank) ? "a bulk copy whose map has another rank"
                    : !first ? "a bulk copy of a window that begins at no pixel of its map"
                    : !is_shared(to, emu_box_bytes(l.map)) || l.to % 128 ? "a bulk copy to no multiple of 128 in shared memory"
                    : (uintptr_t)l.from % 16 ? "a tensor map of an address that is no multiple of 16"
                    : l.mask >> emu.nblocks ? "a bulk copy to a block that is not in the cluster"
                    : b != NULL && !b->open ? "a bulk copy counts at an mbarrier without a fence behind its initialisation"
                    : emu.late && emu.nloads == EMU_LOADS ? "more bulk copies in flight than a kernel waits for" : NULL;
    memcpy(l.coord, at, sizeof *at * (size_t)rank);
    if (why != NULL || b == NULL) {
        check(why);
    } else if (emu.late) {
        emu.loads[emu.nloads++] = l;
    } else {
        emu_land(&l);
    }
}

/* ---- bulk stores ---- */

static void leave(const emu_leaving *l) { emu_box_store(emu.shared_base, l->from, l->map, l->to, l->coord); }

static void store(const unsigned long long *map, const void *from, const int *at, int rank)
{
    emu_fiber *f = emu_self();
    emu_leaving l = {.map = (const emu_map *)(uintptr_t)map[1], .to = (char *)(uintptr_t)map[0]};
    l.from = (long)((const char *)from - emu.shared_base);
    const char *why = rank != l.map->rank ? "a bulk store whose map has another rank"
                    : !is_shared(from, emu_box_bytes(l.map)) || l.from % 128 ? "a bulk store from no multiple of 128 in shared memory"
                    : (uintptr_t)l.to % 16 ? "a tensor map of an address that is no multiple of 16"
                    : !f->met_fenced ? "a bulk store of what threads wrote without a fence of proxies and a barrier behind it"
                    : f->nleaving == EMU_LEAVING ? "more bulk stores in flight than a kernel waits for" : NULL;
    memcpy(l.coord, at, sizeof *at * (size_t)rank);
    if (why != NULL) {
        emu_stop(why);
        return;
    }
    if (!emu.late) {
        leave(&l);
    }
    f->leaving[f->nleaving++] = l;
}

static void stored(int n)
{
    emu_fiber *f = emu_self();
    while (f->nleaving > n) {
        if (emu.late) {
            leave(&f->leaving[0]);
        }
        memmove(f->leaving, f->leaving + 1, sizeof *f->leaving * (size_t)--f->nleaving);
    }
}

#define HAND(name, type, fn) \
    { \
        type = fn; \
        void *place = find(so, name); \
        if (place == NULL) { \
            return false; \
        } \
        memcpy(place, &f, sizeof f); \
    }

bool emu_hand_over(void *(*find)(void *so, const char *name), void *so)
{
    void (*touch)(const void *, unsigned long, long, int) = emu_touch;
    void *touched = find(so, "emu_on_access"); /* where traffic is counted */
    if (touched != NULL) {
        memcpy(touched, &touch, sizeof touch);
    }
    HAND("emu_barrier", void (*f)(int), barrier)
    HAND("emu_copy", void (*f)(void *, const void *, int, int), copy)
    HAND("emu_commit", void (*f)(void), commit)
    HAND("emu_wait", void (*f)(int), wait_groups)
    HAND("emu_rows", void (*f)(int *, const void *, int, int), rows)
    HAND("emu_mma", void (*f)(const char *, void *, const int *, const int *), mma)
    HAND("emu_peer", unsigned (*f)(unsigned, int), peer)
    HAND("emu_group", void (*f)(int), group)
    HAND("emu_matrix", unsigned long long (*f)(const void *, unsigned, unsigned), matrix)
    HAND("emu_wgmma", void (*f)(const char *, void **, unsigned long long, unsigned long long, int, int), wgmma)
    HAND("emu_meet", void (*f)(int), meet)
    HAND("emu_cluster", void (*f)(void), cluster)
    HAND("emu_registers", void (*f)(int, int), registers)
    HAND("emu_bar_init", void (*f)(void *, unsigned), bar_init)
    HAND("emu_bar_open", void (*f)(void), bar_open)
    HAND("emu_expect", void (*f)(void *, unsigned), expect)
    HAND("emu_arrive", void (*f)(void *, int), arrive)
    HAND("emu_await", void (*f)(void *, unsigned), await)
    HAND("emu_store", void (*f)(const unsigned long long *, const void *, const int *, int), store)
    HAND("emu_stored", void (*f)(int), stored)
    HAND("emu_load", void (*f)(void *, const unsigned long long *, void *, const int *, int, int), load)
    return true;
}
