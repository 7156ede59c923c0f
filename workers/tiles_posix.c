/* Refused instructions of tiles.h in a signal handler: registers and vectors come from the interrupted context and go back there. */
#include "workers/tiles.h"
#include <stddef.h>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <ucontext.h>

static _Thread_local tiles here;
static atomic_long stepped;

static int64_t register_of(const ucontext_t *u, int r)
{
    static const int order[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    return r < 0 ? 0 : u->uc_mcontext.gregs[order[r]];
}

/* Where the 64 bytes of a vector register are in the saved state: 16, 16 and 32, or all 64 of those above 15 (Intel's manual, volume 1, 13.4). The
 * parts that were in their initial state are made to count. False: they were not saved. */
static bool vector_at(const ucontext_t *u, int r, uint8_t *part[3])
{
    enum { YMM = 2, ZMM = 6, HIGH = 7 };
    unsigned size, at[3], x, y;
    static const int which[] = {YMM, ZMM, HIGH};
    uint8_t *area = (uint8_t *)u->uc_mcontext.fpregs;
    uint32_t magic;
    uint64_t saved, bits = 1u << YMM | 1u << ZMM | 1u << HIGH | 3;
    memcpy(&magic, area + 464, sizeof magic); /* of the kernel's words in the area: what follows is there */
    if (magic != 0x46505853u) return false;
    for (int i = 0; i < 3; i++)
        if (!__get_cpuid_count(13, (unsigned)which[i], &size, &at[i], &x, &y) || !size) return false;
    memcpy(&saved, area + 512, sizeof saved);
    for (int i = 0; i < 3; i++)
        if (!(saved >> which[i] & 1)) memset(area + at[i], 0, i == 0 ? 256 : i == 1 ? 512 : 1024);
    if (!(saved & 2)) memset(area + 160, 0, 256);
    saved |= bits & ~UINT64_C(1);
    memcpy(area + 512, &saved, sizeof saved);
    part[0] = r < 16 ? area + 160 + 16 * r : area + at[2] + 64 * (r - 16);
    part[1] = r < 16 ? area + at[0] + 16 * r : part[0] + 16;
    part[2] = r < 16 ? area + at[1] + 32 * r : part[0] + 32;
    return true;
}

static const int widths[] = {16, 16, 32};

static bool pairs(const ucontext_t *u, const tiles_step *s)
{
    uint8_t v[3][64], *part[3];
    const int r[] = {s->d, s->a, s->b};
    for (int i = 0; i < 3; i++) {
        if (!vector_at(u, r[i], part)) return false;
        for (int k = 0, n = 0; k < 3; n += widths[k++]) memcpy(v[i] + n, part[k], (size_t)widths[k]);
    }
    float d[16];
    uint16_t a[32], b[32];
    memcpy(d, v[0], 64), memcpy(a, v[1], 64), memcpy(b, v[2], 64);
    tiles_pairs(d, a, b);
    if (!vector_at(u, s->d, part)) return false;
    for (int k = 0, n = 0; k < 3; n += widths[k++]) memcpy(part[k], (const uint8_t *)d + n, (size_t)widths[k]);
    return true;
}

bool tiles_step_over(void *context, const char **why)
{
    ucontext_t *u = context;
    tiles_step s = tiles_decode((const uint8_t *)u->uc_mcontext.gregs[REG_RIP], 15);
    *why = NULL;
    if (s.op == TILES_NONE) return false;
    int64_t row = register_of(u, s.index) * s.scale;
    int64_t base = s.base == TILES_NEXT ? u->uc_mcontext.gregs[REG_RIP] + s.length : register_of(u, s.base);
    uint8_t *at = (uint8_t *)(base + s.offset + (s.op == TILES_LOAD || s.op == TILES_STORE ? 0 : row));
    if (s.op == TILES_PAIRS && !pairs(u, &s)) return false;
    if (s.op != TILES_PAIRS && (*why = tiles_do(&here, &s, at, row))) return false;
    u->uc_mcontext.gregs[REG_RIP] += s.length;
    atomic_fetch_add(&stepped, 1);
    return true;
}

long tiles_stepped(void) { return atomic_load(&stepped); }
#else
bool tiles_step_over(void *context, const char **why)
{
    (void)context;
    return *why = NULL, false;
}

long tiles_stepped(void) { return 0; }
#endif
