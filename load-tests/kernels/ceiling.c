/* The ceilings: multiply-adds from registers, and a pass over as many bytes as a case must move. Compiled for the machine it runs on. */
#include "load-tests/kernels/ceiling.h"
#include <immintrin.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifdef __AVX512F__
enum { VECTOR = 64, LINE = 64 };
#else
enum { VECTOR = 32, LINE = 64 };
#endif
enum { CHAINS = 12, TURNS = 20000, BLOCK = 4096, RUNS = 8, RUN = 1 << 16, SHARED = 1 << 17 };
typedef float vf __attribute__((vector_size(VECTOR)));
typedef float line __attribute__((vector_size(VECTOR), aligned(VECTOR), may_alias));

static clockid_t clock_used = CLOCK_MONOTONIC;

void clock_for(int threads) { clock_used = threads > 1 ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID; }

double us_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

double now_us(void) { return us_of(clock_used); }

/* Twelve independent chains, more than latency times throughput, so that nothing but the multipliers is waited for. As text: compilers
 * put moves between. */
#define EACH(f) f(4) f(5) f(6) f(7) f(8) f(9) f(10) f(11) f(12) f(13) f(14) f(15)
#define ZERO(i) "vpxor %%xmm" #i ", %%xmm" #i ", %%xmm" #i "\n\t"
#define CLOBBERED                                                                                                                          \
    "xmm0", "xmm1", "xmm2", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
#define LOOP(step)                                                                                                                         \
    do {                                                                                                                                   \
        int64_t turns = TURNS;                                                                                                             \
        __asm__ volatile(ZERO(0) ZERO(1) EACH(ZERO) "1:\n\t" EACH(step) "decq %0\n\tjnz 1b" : "+r"(turns) : : CLOBBERED, "cc");            \
    } while (0)

static double floats(void)
{
#ifdef __AVX512F__
#define FMA(i) "vfmadd231ps %%zmm0, %%zmm1, %%zmm" #i "\n\t"
#else
#define FMA(i) "vfmadd231ps %%ymm0, %%ymm1, %%ymm" #i "\n\t"
#endif
    LOOP(FMA);
    return 2.0 * VECTOR / 4 * CHAINS * TURNS;
}

static double bytes(void)
{
#if defined __AVX512VNNI__
#define DOT(i) "vpdpbusd %%zmm0, %%zmm1, %%zmm" #i "\n\t"
#else
#define DOT(i) "vpmaddubsw %%ymm0, %%ymm1, %%ymm2\n\tvpmaddwd %%ymm2, %%ymm1, %%ymm2\n\tvpaddd %%ymm2, %%ymm" #i ", %%ymm" #i "\n\t"
#endif
    LOOP(DOT);
    return 2.0 * VECTOR * CHAINS * TURNS;
}

/* Four accumulators of 16 rows of 64 bytes; a tile instruction multiplies 16 x 64 bytes by 16 x 64 bytes. */
#ifdef __AMX_TILE__
#define TILES(dot)                                                                                                                         \
    do {                                                                                                                                   \
        int64_t turns = TURNS;                                                                                                             \
        unsigned char shape[64] __attribute__((aligned(64))) = {1};                                                                        \
        for (int i = 0; i < 8; i++) { shape[16 + 2 * i] = 64, shape[48 + i] = 16; }                                                        \
        __asm__ volatile("ldtilecfg %1\n\ttilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3\n\t"                    \
                         "tilezero %%tmm4\n\ttilezero %%tmm6\n\t1:\n\t" dot " %%tmm6, %%tmm4, %%tmm0\n\t" dot                              \
                         " %%tmm6, %%tmm4, %%tmm1\n\t" dot " %%tmm6, %%tmm4, %%tmm2\n\t" dot                                               \
                         " %%tmm6, %%tmm4, %%tmm3\n\tdecq %0\n\tjnz 1b\n\ttilerelease"                                                     \
                         : "+r"(turns)                                                                                                     \
                         : "m"(shape)                                                                                                      \
                         : "cc");                                                                                                          \
    } while (0)

static double tile_bytes(void)
{
    TILES("tdpbssd");
    return 2.0 * 16 * 16 * 64 * 4 * TURNS;
}

static double tile_halves(void)
{
    TILES("tdpbf16ps");
    return 2.0 * 16 * 16 * 32 * 4 * TURNS;
}
#endif

typedef struct peak {
    const char *dtype, *isa;
    double (*run)(void);
} peak;
static const peak peaks[] = {
#if defined __AMX_INT8__ && defined __AMX_BF16__
    {"i8", "AMX int8", tile_bytes},
    {"bf16", "AMX bf16", tile_halves},
#endif
#ifdef __AVX512VNNI__
    {"i8", "AVX-512 VNNI", bytes},
#else
    {"i8", "AVX2 maddubs", bytes},
#endif
    {"", VECTOR == 64 ? "AVX-512 FMA" : "AVX2 FMA", floats}}; /* all others, widened if need be */

static const peak *peak_of(const char *dtype)
{
    const peak *p = peaks;
    while (*p->dtype && strcmp(p->dtype, dtype)) { p++; }
    return p;
}

void ceiling_permit(void)
{
#ifdef __AMX_TILE__
    syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* tile data */);
#endif
}

const char *ceiling_isa(const char *dtype) { return peak_of(dtype)->isa; }

typedef struct work {
    double (*run)(void);
    double done;
    ceiling *c;
    int parts, runs;
    bool streaming;
} work;

static void compute_task(void *closure, int64_t index, int32_t worker)
{
    work *w = closure;
    double done = w->run();
    (void)worker;
    if (!index) { w->done = done; }
}

static void over(struct kiln_pool *pool, void (*task)(void *, int64_t, int32_t), work *w)
{
    w->parts = pool ? pool->nthreads : 1;
    if (pool) {
        pool->parallel_for(pool->ctx, w->parts, task, w);
    } else {
        task(w, 0, 0);
    }
}

double ceiling_compute(const char *dtype, struct kiln_pool *pool)
{
    double best = 0;
    for (int i = 0; i < 3; i++) { /* of some dozen microseconds each: the best one was not interrupted */
        work w = {.run = peak_of(dtype)->run};
        double t = now_us();
        over(pool, compute_task, &w);
        double rate = w.done * w.parts / (now_us() - t) / 1e3;
        if (rate > best) { best = rate; }
    }
    return best;
}

void ceiling_open(ceiling *c, int64_t read, int64_t written, struct kiln_pool *pool)
{
    int64_t step = RUNS * RUN * (pool ? pool->nthreads : 1);
    bool shared = read + written >= SHARED; /* less is done before other threads have woken */
    *c = (ceiling){.read = read, .written = written, .pool = shared ? pool : NULL};
    c->from = aligned_alloc(BLOCK, (size_t)((read + step) / step * step));
    c->to = aligned_alloc(BLOCK, (size_t)((written + step) / step * step));
    /* Not zeros: lines of zeros alone are written twice as fast past the caches (Zen 5: 90 and 40 GB/s), as no kernel's results are. */
    memset(c->from, 1, (size_t)read);
    memset(c->to, 1, (size_t)written);
}

void ceiling_close(ceiling *c)
{
    free(c->from);
    free(c->to);
}

static void get(const char *p, int64_t n, vf *sum)
{
    const line *v = (const void *)p;
    vf a[RUNS];
    memcpy(a, sum, sizeof a);
    for (; n >= 8 * VECTOR; v += 8, n -= 8 * VECTOR) {
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) { a[i] += v[i]; }
    }
    for (; n >= VECTOR; v++, n -= VECTOR) { a[0] += *v; }
    memcpy(sum, a, sizeof a);
}

/* The same as eight runs side by side: from memory they come faster than one (Zen 3: 21 and 14 GB/s), since no prefetcher goes from page to page,
 * and the longer they are. */
static void get_runs(const char *p, int64_t n, vf *sum)
{
    int64_t run = n / RUNS / LINE * LINE;
    vf a[RUNS];
    memcpy(a, sum, sizeof a);
    for (int64_t i = 0; i < run; i += LINE) {
#pragma GCC unroll 8
        for (int r = 0; r < RUNS; r++) {
            const line *v = (const void *)(p + r * run + i);
#pragma GCC unroll 2
            for (int j = 0; j < LINE / VECTOR; j++) { a[r] += v[j]; }
        }
    }
    memcpy(sum, a, sizeof a);
    get(p + RUNS * run, n - RUNS * run, sum);
}

static inline void store(line *to, vf value, bool streaming)
{
    if (!streaming) {
        *to = value;
        __asm__ volatile("" : : : "memory"); /* keeps loops of stores from becoming memset and memcpy */
        return;
    }
#ifdef __AVX512F__
    _mm512_stream_ps((float *)to, (__m512)value);
#else
    _mm256_stream_ps((float *)to, (__m256)value);
#endif
}

static void put(char *p, int64_t n, vf value, bool streaming)
{
    for (line *v = (void *)p; n >= VECTOR; v++, n -= VECTOR) { store(v, value, streaming); }
}

static void copy(const char *from, char *to, int64_t n, bool streaming)
{
    const line *a = (const void *)from;
    line *b = (void *)to;
    for (; n >= 4 * VECTOR; a += 4, b += 4, n -= 4 * VECTOR) {
        vf x[4] = {a[0], a[1], a[2], a[3]};
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) { store(b + i, x[i], streaming); }
    }
    for (; n >= VECTOR; a++, b++, n -= VECTOR) { store(b, *a, streaming); }
}

/* A slice of both arrays, in steps of a page of the longer one, or of what all runs have, what they have in common as a copy: reads and writes
 * overlap as in a kernel. */
static void memory_task(void *closure, int64_t index, int32_t worker)
{
    work *w = closure;
    ceiling *c = w->c;
    int64_t nr = c->read / w->parts, nw = c->written / w->parts, block = w->runs > 1 ? RUNS * RUN : BLOCK, longer = nr > nw ? nr : nw;
    int64_t steps = (longer + block - 1) / block, ar = nr / steps / VECTOR * VECTOR;
    int64_t aw = nw / steps / VECTOR * VECTOR, both = ar < aw ? ar : aw;
    const char *from = c->from + nr * index / VECTOR * VECTOR;
    char *to = c->to + nw * index / VECTOR * VECTOR;
    vf sum[RUNS] = {(vf){0} + 1};
    (void)worker;
    for (int64_t s = 0; s < steps; s++) {
        copy(from + ar * s, to + aw * s, both, w->streaming);
        (w->runs > 1 ? get_runs : get)(from + ar * s + both, ar - both, sum);
        put(to + aw * s + both, aw - both, sum[0], w->streaming);
    }
    get(from + ar * steps, nr - ar * steps, sum);
    put(to + aw * steps, nw - aw * steps, sum[0], w->streaming);
    if (w->streaming) { _mm_sfence(); }
    __asm__ volatile("" : : "r"(sum) : "memory");
}

double ceiling_memory_us(ceiling *c)
{
    double best = 1e30;
    for (int way = 0; way < 4; way++) {
        work w = {.c = c, .streaming = way & 1, .runs = way & 2 ? RUNS : 1};
        int turns = (int)(10000000 / (c->read + c->written + 1)) + 1; /* half a millisecond and more: one pass more than fills the caches */
        over(c->pool, memory_task, &w);
        double t = now_us();
        for (int i = 0; i < turns; i++) { over(c->pool, memory_task, &w); }
        t = (now_us() - t) / turns;
        if (t < best) { best = t; }
    }
    return best;
}
