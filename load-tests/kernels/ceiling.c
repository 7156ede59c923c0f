/* The ceilings: multiply-adds from registers, and a pass over as many bytes as a case must move. Compiled for the machine it runs on. */
#include "load-tests/kernels/ceiling.h"
#include <immintrin.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef __AVX512F__
enum { VECTOR = 64 };
#else
enum { VECTOR = 32 };
#endif
enum { CHAINS = 12, TURNS = 20000, BLOCK = 4096 };
typedef float vf __attribute__((vector_size(VECTOR)));
typedef float line __attribute__((vector_size(VECTOR), aligned(VECTOR), may_alias));

double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Independent chains, more than latency times throughput, so that nothing but the multipliers is waited for. */
static double floats(void)
{
    vf a[CHAINS], x = {0}, y = {0};
    x += 0.999f, y += 0.001f;
    __asm__ volatile("" : "+x"(x), "+x"(y));
    for (int i = 0; i < CHAINS; i++) { a[i] = y * (float)i; }
    for (int t = 0; t < TURNS; t++) {
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++) { a[i] = a[i] * x + y; }
    }
    for (int i = 0; i < CHAINS; i++) { __asm__ volatile("" : : "x"(a[i])); }
    return 2.0 * VECTOR / 4 * CHAINS * TURNS;
}

static double bytes(void)
{
#if defined __AVX512VNNI__
    __m512i a[CHAINS], x = _mm512_set1_epi32(0x01020304), y = x;
    __asm__ volatile("" : "+x"(x), "+x"(y));
    for (int i = 0; i < CHAINS; i++) { a[i] = x; }
    for (int t = 0; t < TURNS; t++) {
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++) { a[i] = _mm512_dpbusd_epi32(a[i], x, y); }
    }
#else
    __m256i a[CHAINS], x = _mm256_set1_epi32(0x01020304), y = x;
    __asm__ volatile("" : "+x"(x), "+x"(y));
    for (int i = 0; i < CHAINS; i++) { a[i] = x; }
    for (int t = 0; t < TURNS; t++) {
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++) { a[i] = _mm256_add_epi32(a[i], _mm256_madd_epi16(_mm256_maddubs_epi16(x, a[i]), y)); }
    }
#endif
    for (int i = 0; i < CHAINS; i++) { __asm__ volatile("" : : "x"(a[i])); }
    return 2.0 * sizeof x * CHAINS * TURNS;
}

const char *ceiling_isa(const char *dtype)
{
    bool wide = VECTOR == 64;
    if (strcmp(dtype, "i8")) { return wide ? "AVX-512 FMA" : "AVX2 FMA"; }
#ifdef __AVX512VNNI__
    return "AVX-512 VNNI";
#else
    return "AVX2 maddubs";
#endif
}

typedef struct work {
    double (*run)(void);
    double done;
    ceiling *c;
    int parts;
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
    work w = {.run = strcmp(dtype, "i8") ? floats : bytes};
    double t = now_us();
    over(pool, compute_task, &w);
    return w.done * w.parts / (now_us() - t) / 1e3;
}

void ceiling_open(ceiling *c, int64_t read, int64_t written, struct kiln_pool *pool)
{
    int64_t step = BLOCK * (pool ? pool->nthreads : 1);
    *c = (ceiling){.read = read, .written = written, .pool = pool};
    c->from = aligned_alloc(BLOCK, (size_t)((read + step) / step * step));
    c->to = aligned_alloc(BLOCK, (size_t)((written + step) / step * step));
    memset(c->from, 0, (size_t)read);
    memset(c->to, 0, (size_t)written);
}

void ceiling_close(ceiling *c)
{
    free(c->from);
    free(c->to);
}

static void get(const char *p, int64_t n, vf *sum)
{
    const line *v = (const void *)p;
    vf a = sum[0], b = sum[1], c = sum[2], d = sum[3];
    for (int64_t i = 0; i + 3 < n / VECTOR; i += 4) { a += v[i], b += v[i + 1], c += v[i + 2], d += v[i + 3]; }
    sum[0] = a, sum[1] = b, sum[2] = c, sum[3] = d;
}

static void put(char *p, int64_t n, vf value, bool streaming)
{
    line *v = (void *)p;
    if (!streaming) {
        for (int64_t i = 0; i < n / VECTOR; i++) {
            v[i] = value;
            __asm__ volatile("" : : : "memory"); /* keeps it a loop of stores, not memset */
        }
        return;
    }
    for (int64_t i = 0; i < n / VECTOR; i++) {
#ifdef __AVX512F__
        _mm512_stream_ps((float *)(v + i), (__m512)value);
#else
        _mm256_stream_ps((float *)(v + i), (__m256)value);
#endif
    }
}

/* A slice of both arrays, in steps of a page of the longer one, so that reads and writes overlap as in a kernel. */
static void memory_task(void *closure, int64_t index, int32_t worker)
{
    work *w = closure;
    ceiling *c = w->c;
    int64_t nr = c->read / w->parts, nw = c->written / w->parts, longer = nr > nw ? nr : nw, steps = (longer + BLOCK - 1) / BLOCK;
    const char *from = c->from + nr * index / VECTOR * VECTOR;
    char *to = c->to + nw * index / VECTOR * VECTOR;
    vf sum[4] = {{0}};
    (void)worker;
    for (int64_t s = 0; s < steps; s++) {
        int64_t r0 = nr * s / steps / VECTOR * VECTOR, r1 = nr * (s + 1) / steps / VECTOR * VECTOR;
        int64_t w0 = nw * s / steps / VECTOR * VECTOR, w1 = nw * (s + 1) / steps / VECTOR * VECTOR;
        get(from + r0, r1 - r0, sum);
        put(to + w0, w1 - w0, sum[0], w->streaming);
    }
    if (w->streaming) { _mm_sfence(); }
    __asm__ volatile("" : : "x"(sum[0] + sum[1] + sum[2] + sum[3]) : "memory");
}

double ceiling_memory_us(ceiling *c)
{
    double best = 1e30;
    for (int streaming = 0; streaming < 2; streaming++) {
        work w = {.c = c, .streaming = streaming};
        int turns = (int)(500000 / (c->read + c->written + 1)) + 1;
        over(c->pool, memory_task, &w);
        double t = now_us();
        for (int i = 0; i < turns; i++) { over(c->pool, memory_task, &w); }
        t = (now_us() - t) / turns;
        if (t < best) { best = t; }
    }
    return best;
}
