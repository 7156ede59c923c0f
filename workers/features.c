/* CPU features of this host by CPUID and XCR0, never by the model's name (hypervisors make names up). */
#include "workers/features.h"
#include <stdint.h>

#if defined(__x86_64__)
#include <cpuid.h>

enum { STATE_AVX = 0x6, STATE_AVX512 = 0xe6, STATE_AMX = 0x60000 }; /* XCR0: SSE+AVX; + opmask, ZMM; tile configuration and data */
enum { A, B, C, D };

static const struct {
    const char *name;
    unsigned leaf, sub;
    int reg, bit;
    unsigned state;
} rows[] = {
#define X(name, leaf, sub, reg, bit, state) {name, leaf, sub, reg, bit, state},
#include "workers/features.def"
#undef X
};

static uint64_t xcr0(void)
{
    unsigned r[4], lo, hi;
    if (!__get_cpuid(1, &r[A], &r[B], &r[C], &r[D]) || !(r[C] >> 27 & 1)) { return 0; /* no OSXSAVE: xgetbv would fault */ }
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

int features_scan(const char **names, bool amx_granted)
{
    uint64_t state = xcr0();
    int n = 0;
    for (unsigned i = 0; i < sizeof rows / sizeof *rows && n < FEATURES_MAX; i++) {
        unsigned r[4];
        bool has = __get_cpuid_count(rows[i].leaf, rows[i].sub, &r[A], &r[B], &r[C], &r[D]) && (r[rows[i].reg] >> rows[i].bit & 1);
        if (has && (state & rows[i].state) == rows[i].state && (rows[i].state != STATE_AMX || amx_granted)) { names[n++] = rows[i].name; }
    }
    return n;
}
#else
int features_scan(const char **names, bool amx_granted)
{
    (void)names, (void)amx_granted;
    return 0;
}
#endif
