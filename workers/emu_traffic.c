/* Sectors of 32 bytes that a warp's accesses of global memory touch, and turns that those of shared memory take where banks collide. */
#include "workers/emu_traffic.h"
#include "workers/emu_machine.h"
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 20, SITES = 1 << 12, LANES = 32, SECTOR = 32, BANKS = 32, WORD = 4 };

const char emu_traffic_text[] =
    "void (*emu_on_access)(const void *site, unsigned long at, long size, int write);\n"
    "#define EMU_UNSEEN __attribute__((no_sanitize_address, noinline))\n"
    "#define EMU_HOOK(n) \\\n"
    "    EMU_UNSEEN void __asan_load##n##_noabort(unsigned long at) { emu_on_access(__builtin_return_address(0), at, n, 0); } \\\n"
    "    EMU_UNSEEN void __asan_store##n##_noabort(unsigned long at) { emu_on_access(__builtin_return_address(0), at, n, 1); }\n"
    "EMU_HOOK(1) EMU_HOOK(2) EMU_HOOK(4) EMU_HOOK(8) EMU_HOOK(16)\n"
    "EMU_UNSEEN void __asan_loadN_noabort(unsigned long at, long n) { emu_on_access(__builtin_return_address(0), at, n, 0); }\n"
    "EMU_UNSEEN void __asan_storeN_noabort(unsigned long at, long n) { emu_on_access(__builtin_return_address(0), at, n, 1); }\n"
    "EMU_UNSEEN void __asan_handle_no_return(void) {}\n";

emu_counter emu_counted;

static uintptr_t placed(uintptr_t at)
{
    for (int i = 0; i < emu_counted.narrays; i++) {
        const emu_array *x = &emu_counted.arrays[i];
        if (at - (uintptr_t)x->at < (uintptr_t)x->bytes) {
            return ((uintptr_t)(i + 1) << 48) + at - (uintptr_t)x->at;
        }
    }
    return 0;
}

void emu_touch(const void *site, unsigned long at, long size, int write)
{
    bool shared = at >= (uintptr_t)emu.shared && at < (uintptr_t)emu.shared_end;
    emu_access a = {.site = (uintptr_t)site, .size = (int32_t)size, .write = write != 0, .shared = shared, .lane = (uint16_t)(emu.now % LANES)};
    if (!emu_counted.on || size <= 0) {
        return;
    }
    a.at = shared ? at : placed(at);
    if (a.at) {
        emu_traffic_add(&emu_counted.log, &a);
    }
}

void emu_traffic_add(emu_warp_log *log, const emu_access *a)
{
    if (log->n == log->cap) {
        int cap = log->cap ? log->cap * 2 : 1024;
        emu_access *list = cap > MOST ? NULL : realloc(log->list, sizeof *list * (size_t)cap);
        if (list == NULL) {
            return;
        }
        log->list = list;
        log->cap = cap;
    }
    log->list[log->n++] = *a;
}

static int by_turn(const void *x, const void *y)
{
    const emu_access *a = x, *b = y;
    if (a->site != b->site) {
        return a->site < b->site ? -1 : 1;
    }
    if (a->turn != b->turn) {
        return a->turn < b->turn ? -1 : 1;
    }
    return (int)a->lane - (int)b->lane;
}

static int by_place(const void *x, const void *y)
{
    uintptr_t a = *(const uintptr_t *)x, b = *(const uintptr_t *)y;
    return (a > b) - (a < b);
}

static int distinct(uintptr_t *v, int n)
{
    int m = 0;
    qsort(v, (size_t)n, sizeof *v, by_place);
    for (int i = 0; i < n; i++) {
        if (i == 0 || v[i] != v[i - 1]) {
            v[m++] = v[i];
        }
    }
    return m;
}

/* One access of a warp to global memory: the sectors it touches, and those that its bytes would fill. */
static void sectors(const emu_access *a, int n, int64_t *touched, int64_t *full)
{
    uintptr_t sector[LANES * 3], word[LANES * 5];
    int ns = 0, nw = 0, unit = a->size < WORD ? a->size : WORD;
    for (int i = 0; i < n; i++) {
        for (uintptr_t s = a[i].at / SECTOR; s <= (a[i].at + (uintptr_t)a[i].size - 1) / SECTOR && ns < LANES * 3; s++) {
            sector[ns++] = s;
        }
        for (int b = 0; b < a[i].size && nw < LANES * 5; b += unit) {
            word[nw++] = (a[i].at + (uintptr_t)b) / (unsigned)unit;
        }
    }
    *touched += distinct(sector, ns);
    *full += ((int64_t)distinct(word, nw) * unit + SECTOR - 1) / SECTOR;
}

/* One access of a warp to shared memory: accesses of 16 bytes go a quarter of the warp at a time, of 8 a half; of a bank one word at a time. */
static void turns(const emu_access *a, int n, int64_t *taken, int64_t *least)
{
    int together = a->size >= 16 ? LANES / 4 : a->size == 8 ? LANES / 2 : LANES;
    for (int i = 0; i < n;) {
        uintptr_t word[LANES * 4];
        int nw = 0, first = i, load[BANKS] = {0}, most = 0;
        for (; i < n && a[i].lane / together == a[first].lane / together; i++) {
            for (int b = 0; b < (a[i].size < WORD ? WORD : a[i].size) && nw < LANES * 4; b += WORD) {
                word[nw++] = a[i].at / WORD + (uintptr_t)b / WORD;
            }
        }
        nw = distinct(word, nw);
        for (int k = 0; k < nw; k++) {
            int m = ++load[word[k] % BANKS];
            most = m > most ? m : most;
        }
        *taken += most;
        *least += 1;
    }
}

/* Numbers each thread's accesses at each site. The table of sites is small: what does not find a place in it is passed over. */
static int number(emu_warp_log *log)
{
    static struct { uintptr_t site; uint32_t turns[LANES]; } seen[SITES];
    int kept = 0;
    memset(seen, 0, sizeof seen);
    for (int i = 0; i < log->n; i++) {
        emu_access a = log->list[i];
        size_t at = (size_t)(a.site * 0x9e3779b97f4a7c15u >> 40) % SITES, tried = 0;
        while (seen[at].site && seen[at].site != a.site && tried++ < SITES) {
            at = (at + 1) % SITES;
        }
        if (tried > SITES) {
            continue;
        }
        seen[at].site = a.site;
        a.turn = seen[at].turns[a.lane]++;
        log->list[kept++] = a;
    }
    return kept;
}

void emu_traffic_count(emu_warp_log *log, worker_traffic *t)
{
    int n = number(log);
    if (n > 0) { qsort(log->list, (size_t)n, sizeof *log->list, by_turn); }
    for (int i = 0; i < n;) {
        int first = i;
        const emu_access *a = &log->list[first];
        while (i < n && log->list[i].site == a->site && log->list[i].turn == a->turn) {
            i++;
        }
        if (a->shared) {
            turns(a, i - first, &t->shared_turns, &t->shared_least);
        } else if (a->write) {
            sectors(a, i - first, &t->store_sectors, &t->store_least);
        } else {
            sectors(a, i - first, &t->load_sectors, &t->load_least);
        }
    }
    log->n = 0;
}
