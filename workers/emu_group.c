/* wgmma emulated for all threads of a group at once, when the first of them may no longer run ahead of it. */
#include "workers/emu_group.h"
#include "workers/emu_warp.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_N = 256, MOST_K = 32 };

typedef struct kind { const char *tail; int bytes, k; bool integer; double (*value[2])(uint32_t); } kind; /* of a, of b */
static const kind kinds[] = {
    {"k16.f32.f16.f16", 2, 16, false, {emu_from_f16, emu_from_f16}},
    {"k16.f32.bf16.bf16", 2, 16, false, {emu_from_bf16, emu_from_bf16}},
    {"k32.s32.s8.s8", 1, 32, true, {emu_from_s8, emu_from_s8}},
    {"k32.f32.e4m3.e4m3", 1, 32, false, {emu_from_e4m3, emu_from_e4m3}},
    {"k32.f32.e4m3.e5m2", 1, 32, false, {emu_from_e4m3, emu_from_e5m2}},
    {"k32.f32.e5m2.e4m3", 1, 32, false, {emu_from_e5m2, emu_from_e4m3}},
    {"k32.f32.e5m2.e5m2", 1, 32, false, {emu_from_e5m2, emu_from_e5m2}},
};

static const kind *kind_of(const char *ptx, int *n)
{
    int used = 0;
    if (sscanf(ptx, "wgmma.mma_async.sync.aligned.m64n%3d%n", n, &used) < 1 || *n < 8 || *n > MOST_N || *n % 8) {
        return NULL;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(ptx + used, kinds[i].tail) == 0) {
            return &kinds[i];
        }
    }
    return NULL;
}

void emu_group_open(emu_group *g)
{
    memset(g->issued, 0, sizeof g->issued);
    memset(g->commits, 0, sizeof g->commits);
    g->done = g->n = 0;
}

const char *emu_group_issue(emu_group *g, int thread, const char *ptx, void **d, unsigned long long a, unsigned long long b, int ta, int tb)
{
    int number = g->issued[thread]++, at = number - g->done, n = 0;
    const kind *k = kind_of(ptx, &n);
    if (k == NULL || (k->bytes != 2 && (ta || tb)) || strlen(ptx) >= sizeof g->list[0]->ptx) {
        return "a wgmma that the emulator does not know";
    }
    if (at < 0 || at >= EMU_ISSUED) {
        return "more wgmma in flight than a kernel waits for";
    }
    if (g->list[at] == NULL && (g->list[at] = calloc(1, sizeof *g->list[at])) == NULL) {
        return "out of memory";
    }
    emu_issue *x = g->list[at];
    if (at == g->n) {
        g->n++;
        snprintf(x->ptx, sizeof x->ptx, "%s", ptx);
        x->a = a;
        x->b = b;
        x->ta = ta;
        x->tb = tb;
        x->commit = g->commits[thread];
    } else if (strcmp(x->ptx, ptx) != 0 || x->a != a || x->b != b || x->ta != ta || x->tb != tb || x->commit != g->commits[thread]) {
        return "the threads of its group issue different wgmma";
    }
    memcpy(x->d[thread], d, sizeof *d * (size_t)(n / 2));
    return NULL;
}

/* Element (i, k) of a matrix: rows of 128 bytes along k, eight of them `stride` apart; or, turned, panels of 128 bytes along i that are `lead` apart,
 * with rows of k in them. The address's bits 4 to 6 are those of the place plus, without carry, bits 7 to 9. */
static bool element(unsigned long long desc, bool turned, const kind *t, int of, int i, int k, const char *base, long size, double *out)
{
    long start = (long)(desc & 0x3fff) << 4, lead = (long)(desc >> 16 & 0x3fff) << 4, stride = (long)(desc >> 32 & 0x3fff) << 4, at;
    uint32_t bits = 0;
    if (turned) {
        at = start + i / 64 * lead + k / 8 * stride + k % 8 * 128 + i % 64 * t->bytes;
    } else {
        at = start + i / 8 * stride + i % 8 * 128 + k * t->bytes;
    }
    at ^= (at >> 7 & 7) << 4;
    if (at < 0 || at + t->bytes > size || desc >> 62 != 1) {
        return false;
    }
    memcpy(&bits, base + at, (size_t)t->bytes);
    *out = t->value[of](bits);
    return true;
}

/* Hopper's sums of products of 8 bits: addends are aligned to the largest one and cut off below its 14th bit, as the sum is (DeepSeek-V3, arXiv
 * 2412.19437, section 3.3.2). Others are taken to be exact. */
static double short_sum(float old, const double *a, const double *b, int n)
{
    double most = fabs((double)old), sum = 0;
    int e;
    for (int k = 0; k < n; k++) {
        most = fabs(a[k] * b[k]) > most ? fabs(a[k] * b[k]) : most;
    }
    if (!(most > 0) || isinf(most)) {
        sum = (double)old;
        for (int k = 0; k < n; k++) {
            sum += a[k] * b[k];
        }
        return sum;
    }
    frexp(most, &e);
    double unit = ldexp(1, e - 14);
    sum = floor((double)old / unit);
    for (int k = 0; k < n; k++) {
        sum += floor(a[k] * b[k] / unit);
    }
    frexp(sum * unit, &e);
    double last = ldexp(1, e - 14);
    return last > unit ? floor(sum * unit / last) * last : sum * unit;
}

static void add(const kind *t, void *d, double sum)
{
    if (t->integer) {
        *(int *)d = (int)((uint32_t)*(int *)d + (uint32_t)(int64_t)sum);
    } else {
        *(float *)d = (float)(*(float *)d + sum);
    }
}

/* Thread (w, g, q) holds in register 4 * j + 2 * h + e row 16 * w + g + 8 * h, column 8 * j + 2 * q + e. */
static const char *run(const emu_issue *x, const char *base, long size)
{
    static double a[64][MOST_K], b[MOST_N][MOST_K]; /* one block at a time runs in this process */
    int n = 0;
    const kind *t = kind_of(x->ptx, &n);
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < t->k; k++) {
            if (i < 64 && !element(x->a, x->ta, t, 0, i, k, base, size, &a[i][k])) {
                return "a wgmma whose first matrix is not in shared memory, or not swizzled by 128 bytes";
            }
            if (!element(x->b, x->tb, t, 1, i, k, base, size, &b[i][k])) {
                return "a wgmma whose second matrix is not in shared memory, or not swizzled by 128 bytes";
            }
        }
    }
    for (int i = n; i < 64; i++) {
        for (int k = 0; k < t->k; k++) {
            if (!element(x->a, x->ta, t, 0, i, k, base, size, &a[i][k])) {
                return "a wgmma whose first matrix is not in shared memory, or not swizzled by 128 bytes";
            }
        }
    }
    for (int row = 0; row < 64; row++) {
        for (int column = 0; column < n; column++) {
            double sum = 0;
            bool brief = t->bytes == 1 && !t->integer;
            for (int k = 0; k < t->k && !brief; k++) {
                sum += a[row][k] * b[column][k];
            }
            int thread = row / 16 * 32 + row % 8 * 4 + column % 8 / 2, r = column / 8 * 4 + row % 16 / 8 * 2 + column % 2;
            if (brief) {
                *(float *)x->d[thread][r] = (float)short_sum(*(float *)x->d[thread][r], a[row], b[column], t->k);
            } else {
                add(t, x->d[thread][r], sum);
            }
        }
    }
    return NULL;
}

bool emu_group_ready(const emu_group *g, int thread, int running)
{
    int want = g->commits[thread] - running;
    for (int i = 0; i < EMU_GROUP; i++) {
        if (g->commits[i] < want) {
            return false;
        }
    }
    return true;
}

const char *emu_group_wait(emu_group *g, int thread, int running, const char *base, long bytes)
{
    const char *why = NULL;
    while (why == NULL && g->n > 0 && g->list[0]->commit < g->commits[thread] - running) {
        emu_issue *first = g->list[0];
        why = run(first, base, bytes);
        memmove(g->list, g->list + 1, sizeof *g->list * (size_t)(g->n - 1));
        g->list[--g->n] = first;
        g->done++;
    }
    return why;
}
