/* How long the unit of tile registers (AMX) takes to wake: the first product after so many nanoseconds without any, and the first store of a tile
 * after so many nanoseconds of products alone, medians in nanoseconds. The second one is kept awake by stores no further apart than a hwspec's
 * `tile_idle_cycles` (compiler/lower/awake.c), and by any arithmetic of floats, so that there is none between the products here. Prints one line
 * where this machine has no such unit. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>

enum { ROUNDS = 301, ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 };
static const uint8_t shapes[64] __attribute__((aligned(64))) = {1, [16] = 64, 0, 64, 0, 64, 0, [48] = 16, 16, 16};
static uint8_t tiles[3][1024] __attribute__((aligned(4096)));

static uint64_t now(void)
{
    uint32_t lo, hi;
    __asm__ volatile("lfence\n\trdtsc\n\tlfence" : "=a"(lo), "=d"(hi)::"memory");
    return (uint64_t)hi << 32 | lo;
}

static void load(void)
{
    __asm__ volatile("tileloadd (%0,%2,1), %%tmm1\n\ttileloadd (%1,%2,1), %%tmm2" ::"r"(tiles[0]), "r"(tiles[1]), "r"((int64_t)64) : "memory");
}
static void multiply(void) { __asm__ volatile("tdpbf16ps %%tmm2, %%tmm1, %%tmm0" ::); }
static void store(void) { __asm__ volatile("tilestored %%tmm0, (%0,%1,1)" ::"r"(tiles[2]), "r"((int64_t)64) : "memory"); }
static double ticks_a_nanosecond(void)
{
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    uint64_t from = now();
    do clock_gettime(CLOCK_MONOTONIC, &b);
    while ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec) < 2e7);
    return (double)(now() - from) / ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec));
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static double median(uint64_t *took, double rate)
{
    qsort(took, ROUNDS, sizeof *took, by_size);
    return (double)took[ROUNDS / 2] / rate;
}

static void measure(double ns, double rate)
{
    static uint64_t product[ROUNDS], stored[ROUNDS];
    const uint64_t ticks = (uint64_t)(ns * rate);
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < 8; i++) multiply(), store();
        for (uint64_t from = now(); now() - from < ticks;) {}
        uint64_t from = now();
        multiply();
        product[r] = now() - from;
        for (int i = 0; i < 8; i++) multiply(), store();
        for (from = now(); now() - from < ticks;)
            for (int i = 0; i < 4; i++) multiply();
        from = now();
        store();
        stored[r] = now() - from;
    }
    printf("%8.0f %18.0f %28.0f\n", ns, median(product, rate), median(stored, rate));
}

int main(void)
{
    unsigned a, b, c, d = 0;
    __get_cpuid_count(7, 0, &a, &b, &c, &d);
    bool has = (d >> 22 & 1) && (d >> 24 & 1) && !syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA);
    if (!has) return puts("idle: this machine has no tile registers, or the system does not give them"), 0;
    double rate = ticks_a_nanosecond();
    __asm__ volatile("ldtilecfg %0" ::"m"(shapes));
    load();
    printf("      ns  product after idle  store after products alone\n");
    for (double ns = 100; ns < 2e5; ns *= ns < 2000 ? 1.25 : 4) measure(ns, rate);
    __asm__ volatile("tilerelease");
    return 0;
}
#else
int main(void) { return puts("idle: tile registers are x86's"), 0; }
#endif
