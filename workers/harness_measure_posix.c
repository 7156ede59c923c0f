/* Child mode "measure": runs the loops of measure_text.c on all units and prints what it found, a line each. argv: units. */
#include "workers/child.h"
#include "workers/harness.h"
#include "workers/measure.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 41, LINE = 64, MOST_UNITS = 256, PIECE = 8 << 20 };
static const double slice_ms = 1.5; /* short enough that some rounds pass between two interruptions */
static const int64_t most_dram = INT64_C(256) << 20;

typedef void (*turns_fn)(long turns);
typedef float (*read_fn)(const void *p, long bytes);
typedef void *(*chase_fn)(void *p, long steps);
typedef void (*copy_fn)(char *to, const char *from, long bytes);

typedef struct bench {
    void *so;
    int units;
    kiln_pool pool;
    turns_fn turns_of;                    /* what the tasks run: turns of a loop, or else reads */
    long turns, repeat, whole, bytes, at; /* of a round: repeated reads of so many bytes from there */
    read_fn read;
    copy_fn copy;                         /* instead of reads: from the first half of the unit's array to the other one */
    long to;                              /* where that begins: elsewhere in its page, since equal places collide */
    char *data[MOST_UNITS];
    double noise; /* sum over measurements of median over best but one */
    int measured;
} bench;

static void *loop(const bench *b, const char *name) { return dlsym(b->so, name); }

static void task(void *closure, int64_t i, int32_t worker)
{
    bench *b = closure;
    (void)worker;
    if (b->turns_of) {
        b->turns_of(b->turns);
        return;
    }
    if (b->copy) {
        b->copy(b->data[i] + b->to, b->data[i], b->bytes);
        b->read(b->data[i] + b->to, b->bytes); /* as what comes next does */
        return;
    }
    for (long r = 0; r < b->repeat; r++) { b->read(b->data[i] + b->at, b->bytes); }
}

static int by_value(const void *x, const void *y)
{
    return (*(const double *)x > *(const double *)y) - (*(const double *)x < *(const double *)y);
}

/* Milliseconds of a round on all units: the best but one, which is what the machine sustains when nothing else runs on it. */
static double round_ms(bench *b)
{
    double ms[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        long pieces = b->turns_of ? 1 : b->whole / b->bytes;
        b->at = b->turns_of ? 0 : i % pieces * b->bytes;
        double t = verify_now_ms();
        b->pool.parallel_for(b->pool.ctx, b->units, task, b);
        ms[i] = verify_now_ms() - t;
    }
    qsort(ms, ROUNDS, sizeof *ms, by_value);
    b->noise += ms[ROUNDS / 2] / ms[1];
    b->measured++;
    return ms[1];
}

/* Turns of a loop that fill a slice, then the turns a second of one unit. */
static double turns_a_second(bench *b, turns_fn f)
{
    b->turns_of = f;
    b->turns = 1000;
    for (double ms = 0; ms < slice_ms / 2 && b->turns < 1L << 40; b->turns *= 2) {
        double t = verify_now_ms();
        f(b->turns);
        ms = verify_now_ms() - t;
    }
    return (double)b->turns / round_ms(b) * 1e3;
}

/* GB/s of all units, each over its own array of so many bytes; long arrays in pieces, a round each, one after the other. */
static double bandwidth(bench *b, int64_t bytes)
{
    b->turns_of = NULL;
    b->whole = (long)(bytes / 4096 * 4096);
    b->bytes = b->whole < PIECE ? b->whole : PIECE;
    b->repeat = 1 + PIECE / 2 / b->bytes;
    if (b->bytes < b->whole) { b->repeat = 1; }
    return (double)b->bytes * (double)b->repeat * b->units / round_ms(b) / 1e6;
}

/* Nanoseconds from line to line of a random cycle through an array. */
static double latency(bench *b, int64_t bytes)
{
    int64_t n = bytes / LINE, steps = 20000;
    chase_fn chase;
    void *p = loop(b, "kiln_chase");
    uint32_t *order = malloc(sizeof *order * (size_t)n), seed = 1;
    memcpy(&chase, &p, sizeof p);
    if (!order) { return 0; }
    for (int64_t i = 0; i < n; i++) { order[i] = (uint32_t)i; }
    for (int64_t i = n - 1; i > 0; i--) { /* Sattolo's algorithm: one cycle through all */
        seed = seed * 1664525 + 1013904223;
        int64_t k = (int64_t)((uint64_t)seed * (uint64_t)i >> 32);
        uint32_t x = order[i];
        order[i] = order[k], order[k] = x;
    }
    for (int64_t i = 0; i < n; i++) { *(void **)(void *)(b->data[0] + i * LINE) = b->data[0] + (int64_t)order[i] * LINE; }
    free(order);
    double ns[ROUNDS];
    p = chase(b->data[0], steps);
    for (int i = 0; i < ROUNDS; i++) {
        double t = verify_now_ms();
        p = chase(p, steps);
        ns[i] = (verify_now_ms() - t) * 1e6 / (double)steps;
    }
    qsort(ns, ROUNDS, sizeof *ns, by_value);
    memset(b->data[0], 0, (size_t)bytes); /* no pointer is ever read as a number */
    return p ? ns[1] : 0;
}

static bool find(const bench *b, const char *name, turns_fn *f)
{
    void *p = loop(b, name);
    memcpy(f, &p, sizeof p);
    return p != NULL;
}

static bool find_row(const bench *b, int row, turns_fn *f)
{
    char name[32];
    snprintf(name, sizeof name, "kiln_peak_%d", row);
    return find(b, name, f);
}

static void peaks(bench *b)
{
    turns_fn f;
    for (int i = 0; i < measure_nrows; i++) {
        if (!find_row(b, i, &f)) { continue; }
        int chains = strcmp(measure_rows[i].registers, "tmm") ? MEASURE_CHAINS : MEASURE_TILE_CHAINS;
        harness_say("peak %s %.3f", measure_rows[i].dtype, turns_a_second(b, f) * chains * measure_rows[i].operations * b->units / 1e9);
    }
}

static bool find_chain(const bench *b, int row, turns_fn *f)
{
    char name[32];
    snprintf(name, sizeof name, "kiln_chain_%d", row);
    return find(b, name, f);
}

/* Cycles of a clock of so many GHz between two starts of a row's instruction, and from one to its dependent. */
static void paces(bench *b, int row, double ghz)
{
    turns_fn f;
    if (!*measure_rows[row].spelling || !find_row(b, row, &f)) { return; }
    int chains = strcmp(measure_rows[row].registers, "tmm") ? MEASURE_CHAINS : MEASURE_TILE_CHAINS;
    double interval = ghz / (turns_a_second(b, f) * chains / 1e9);
    double wait = find_chain(b, row, &f) ? ghz / (turns_a_second(b, f) * MEASURE_LINKS / 1e9) : 0;
    harness_say("step %d %.3f %.2f", row, interval, wait);
}

/* Of one unit alone: two that share a core's multipliers, which a machine may hide, would look like two of half the clock. The widest
 * multiply-add starts once or twice a cycle. Its latency is in cycles of the clock that multiplying leaves, which can be below that of
 * scalar code. */
static void clocks(bench *b)
{
    int units = b->units, row = 0;
    turns_fn f;
    b->units = 1;
    double scalar = find(b, "kiln_add", &f) ? turns_a_second(b, f) * 16 / 1e9 : 0;
    while (row < measure_nrows && (strcmp(measure_rows[row].dtype, "f32") || !find_row(b, row, &f))) { row++; }
    if (row < measure_nrows) {
        double starts = turns_a_second(b, f) * MEASURE_CHAINS / 1e9;
        int each = starts / scalar > 1.25 ? 2 : 1;
        double cycles = find_chain(b, row, &f) ? starts / each / (turns_a_second(b, f) * MEASURE_LINKS / 1e9) : 4;
        harness_say("clock %.3f %d %d", starts / each, each, cycles < 1 ? 1 : (int)(cycles + 0.5));
        for (int i = 0; i < measure_nrows; i++) { paces(b, i, starts / each); }
    } else {
        harness_say("clock %.3f 1 4", scalar);
    }
    b->units = units;
}

/* The last-level cache as far as it acts as one: while reading it is faster than halfway (as a factor) from its near end to memory. */
static int64_t shared_cache(bench *b, int64_t from, int64_t size, double dram)
{
    double near_end = bandwidth(b, from / b->units), bound = near_end * dram;
    int64_t good = from;
    for (int64_t s = from * 2; s <= size; s *= 2) {
        double here = bandwidth(b, s / b->units);
        if (here * here < bound) { break; }
        good = s;
    }
    return good;
}

/* Of a second copy of the kind, which finds the caches as the first one leaves them. */
static double copy_ms(bench *b, copy_fn f)
{
    double t = 0;
    b->copy = f;
    for (int i = 0; i < 2; i++) {
        t = verify_now_ms();
        b->pool.parallel_for(b->pool.ctx, b->units, task, b);
    }
    return verify_now_ms() - t;
}

/* How many times as long a copy of so many bytes a unit, read again, takes through the caches as past them: the median of rounds of both. */
static double gain(bench *b, const copy_fn f[2], long bytes)
{
    enum { PAIRS = 11 };
    double ratio[PAIRS];
    b->bytes = bytes;
    for (int i = 0; i < PAIRS; i++) {
        double through = copy_ms(b, f[0]);
        ratio[i] = through / copy_ms(b, f[1]);
    }
    qsort(ratio, PAIRS, sizeof *ratio, by_value);
    return ratio[PAIRS / 2];
}

/* What all units touch from which on whole lines had better be written past the caches; nothing is said where that does not pay far out. */
static void streams(bench *b, int64_t from)
{
    static const char *const name[] = {"kiln_copy", "kiln_stream"};
    static const double worth = 1.1;
    copy_fn f[2];
    int64_t all = most_dram - (1 << 20), least = 0;
    for (int i = 0; i < 2; i++) {
        void *p = loop(b, name[i]);
        if (!p) { return; }
        memcpy(&f[i], &p, sizeof p);
    }
    b->turns_of = NULL;
    b->to = (long)(most_dram / b->units / 2 / 4096 * 4096) - 1088;
    for (; all >= from && gain(b, f, (long)(all / b->units / 2 / 4096 * 4096)) >= (least ? 1 : worth); all = all * 3 / 4) { least = all; }
    b->copy = NULL;
    if (least) { harness_say("streams %lld", (long long)least); }
}

static void levels(bench *b)
{
    int64_t l1 = sysconf(_SC_LEVEL1_DCACHE_SIZE), l2 = sysconf(_SC_LEVEL2_CACHE_SIZE), l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
    int64_t memory = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE), far = l3 * 4 > most_dram || l3 <= 0 ? most_dram : l3 * 4;
    if (l1 <= 0) { l1 = 32768; } /* hidden by some hypervisors */
    if (l2 <= 0) { l2 = 1 << 20; }
    double dram = bandwidth(b, far / b->units);
    harness_say("level l1 %lld %.2f %.2f %ld", (long long)l1, bandwidth(b, l1 / 2), latency(b, l1 / 2), sysconf(_SC_LEVEL1_DCACHE_ASSOC));
    harness_say("level l2 %lld %.2f %.2f %ld", (long long)l2, bandwidth(b, l2 / 2), latency(b, l2 / 2), sysconf(_SC_LEVEL2_CACHE_ASSOC));
    if (l3 >= 2 * l2 * b->units) {
        int64_t acts = shared_cache(b, 2 * l2 * b->units, l3 < most_dram ? l3 : most_dram, dram), own = far / b->units;
        harness_say("level l3 %lld %.2f %.2f", (long long)acts, bandwidth(b, acts / b->units), latency(b, acts < own ? acts : own));
    }
    harness_say("level dram %lld %.2f %.2f", (long long)memory, dram, latency(b, far / b->units));
    streams(b, 2 * l2 * b->units);
}

int child_mode_measure(int argc, char **argv)
{
    static bench b;
    b.units = argc > 1 ? atoi(argv[1]) : 1;
    if (b.units < 1 || b.units > MOST_UNITS) { b.units = 1; }
    harness_catch();
    harness_at("measuring", -1);
    worker_permit_amx();
    if (!(b.so = dlopen("./kernel.so", RTLD_NOW | RTLD_LOCAL))) {
        harness_say("fail the loops cannot be loaded: %.300s", dlerror());
        return 0;
    }
    harness_pool *pool = harness_pool_open(b.units, false, true, &b.pool);
    for (int i = 0; i < b.units; i++) {
        size_t n = (size_t)(most_dram / b.units / 4096 + 1) * 4096;
        if (!pool || !(b.data[i] = aligned_alloc(4096, n))) {
            harness_say("fail no memory or threads");
            return 0;
        }
        memset(b.data[i], 0, n);
    }
    void *p = loop(&b, "kiln_read");
    memcpy(&b.read, &p, sizeof p);
    const int *vector = loop(&b, "kiln_vector_bytes");
    harness_say("vector %d", *vector);
    peaks(&b);
    clocks(&b);
    levels(&b);
    harness_say("noise %.3f", b.noise / b.measured);
    harness_say("done");
    fflush(NULL);
    _exit(0);
}
