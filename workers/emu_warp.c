/* Warps emulated: asynchronous copies as late as allowed, ldmatrix, and mma.sync with the register layouts of the PTX ISA. */
#include "workers/emu_warp.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void land(const emu_pending *p)
{
    if (p->n > 0) {
        memcpy(p->to, p->from, (size_t)p->n);
    }
    memset((char *)p->to + p->n, 0, (size_t)(p->size - p->n));
}

const char *emu_copy_start(emu_copies *c, bool late, void *to, const void *from, int size, int n)
{
    emu_pending p = {to, from, size, n, c->groups};
    if ((uintptr_t)to % (unsigned)size || (n && (uintptr_t)from % (unsigned)size)) {
        return "an asynchronous copy whose addresses are no multiples of its size";
    }
    if (n < 0 || n > size) {
        return "an asynchronous copy of more bytes than its size";
    }
    if (!late) {
        land(&p);
        return NULL;
    }
    if (c->n == c->cap) {
        int cap = c->cap ? c->cap * 2 : 64;
        emu_pending *list = cap > EMU_COPIES ? NULL : realloc(c->list, sizeof *list * (size_t)cap);
        if (list == NULL) {
            return "more asynchronous copies in flight than a kernel waits for";
        }
        c->list = list;
        c->cap = cap;
    }
    c->list[c->n++] = p;
    return NULL;
}

void emu_copy_commit(emu_copies *c) { c->groups++; }

void emu_copy_wait(emu_copies *c, int groups)
{
    int done = 0;
    while (done < c->n && c->list[done].group < c->groups - groups) {
        land(&c->list[done++]);
    }
    memmove(c->list, c->list + done, sizeof *c->list * (size_t)(c->n - done));
    c->n -= done;
}

void emu_ldmatrix(int *const r[EMU_LANES], const void *const at[EMU_LANES], int n, bool trans)
{
    for (int m = 0; m < n; m++) {
        for (int lane = 0; lane < EMU_LANES; lane++) {
            uint16_t pair[2];
            for (int e = 0; e < 2; e++) {
                int row = trans ? 2 * (lane % 4) + e : lane / 4, column = trans ? lane / 4 : 2 * (lane % 4) + e;
                memcpy(&pair[e], (const char *)at[8 * m + row] + 2 * column, 2);
            }
            memcpy(&r[lane][m], pair, 4);
        }
    }
}

/* ---- mma.sync ---- */

static double from_f16(uint32_t bits)
{
    uint32_t m = (bits & 0x7fff) << 13;
    float f;
    memcpy(&f, &m, 4);
    f *= 0x1p112f;
    if ((bits & 0x7c00) == 0x7c00) {
        m = 0x7f800000u | (bits & 0x3ff) << 13;
        memcpy(&f, &m, 4);
    }
    return bits & 0x8000 ? -f : f;
}

static double from_bf16(uint32_t bits)
{
    uint32_t m = bits << 16;
    float f;
    memcpy(&f, &m, 4);
    return f;
}

static double from_tf32(uint32_t bits)
{
    uint32_t m = bits & ~0x1fffu; /* the low bits of a register are not looked at */
    float f;
    memcpy(&f, &m, 4);
    return f;
}

static double from_s8(uint32_t bits) { return (int8_t)bits; }

typedef struct form { const char *types; int bytes; bool integer; double (*value)(uint32_t); } form;
static const form forms[] = {
    {"m16n8k16.row.col.f32.f16.f16.f32", 2, false, from_f16},
    {"m16n8k16.row.col.f32.bf16.bf16.f32", 2, false, from_bf16},
    {"m16n8k8.row.col.f32.tf32.tf32.f32", 4, false, from_tf32},
    {"m16n8k32.row.col.s32.s8.s8.s32", 1, true, from_s8},
};

static double element(const form *f, const int *registers, int r, int e)
{
    uint32_t word = (uint32_t)registers[r] >> (8 * f->bytes * e);
    return f->value(f->bytes == 4 ? word : word & ((1u << 8 * f->bytes) - 1));
}

/* Thread (g, q) holds of a rows g and g + 8, of b column g, of each along k the bytes from 4q and from 16 + 4q on. */
static void operands(const form *f, const emu_operands *x[EMU_LANES], double a[16][32], double b[32][8])
{
    int per = 4 / f->bytes, half = 16 / f->bytes;
    for (int lane = 0; lane < EMU_LANES; lane++) {
        int g = lane / 4, q = lane % 4;
        for (int r = 0; r < 4; r++) {
            for (int e = 0; e < per; e++) {
                int k = q * per + e;
                a[g + 8 * (r % 2)][k + half * (r / 2)] = element(f, x[lane]->a, r, e);
                if (r < 2) {
                    b[k + half * r][g] = element(f, x[lane]->b, r, e);
                }
            }
        }
    }
}

bool emu_mma_run(const char *ptx, const emu_operands *x[EMU_LANES])
{
    static const char head[] = "mma.sync.aligned.";
    const form *f = NULL;
    double a[16][32], b[32][8];
    for (size_t i = 0; i < sizeof forms / sizeof *forms && strncmp(ptx, head, sizeof head - 1) == 0; i++) {
        f = strcmp(ptx + sizeof head - 1, forms[i].types) == 0 ? &forms[i] : f;
    }
    if (f == NULL) {
        return false;
    }
    operands(f, x, a, b);
    for (int row = 0; row < 16; row++) {
        double sum[8] = {0};
        for (int k = 0; k < 32 / f->bytes; k++) {
            for (int column = 0; column < 8; column++) {
                sum[column] += a[row][k] * b[k][column];
            }
        }
        for (int column = 0; column < 8; column++) {
            int lane = row % 8 * 4 + column / 2, r = row / 8 * 2 + column % 2;
            if (f->integer) {
                int *d = (int *)x[lane]->d + r;
                *d = (int)((uint32_t)*d + (uint32_t)(int64_t)sum[column]);
            } else {
                float *d = (float *)x[lane]->d + r;
                *d = (float)(*d + sum[column]);
            }
        }
    }
    return true;
}

/* ---- wgmma ---- */

/* Element (i, k) of a matrix: rows of 128 bytes along k, eight of them `stride` apart; or, turned, panels of 128 bytes along i that are `lead` apart,
 * with rows of k in them. The address's bits 4 to 6 are those of the place plus, without carry, bits 7 to 9. */
static const char *matrix_element(unsigned long long desc, bool turned, int bytes, int i, int k, const char *base, long size)
{
    long start = (long)(desc & 0x3fff) << 4, lead = (long)(desc >> 16 & 0x3fff) << 4, stride = (long)(desc >> 32 & 0x3fff) << 4, at;
    if (turned) {
        at = start + i / 64 * lead + k / 8 * stride + k % 8 * 128 + i % 64 * bytes;
    } else {
        at = start + i / 8 * stride + i % 8 * 128 + k * bytes;
    }
    at ^= (at >> 7 & 7) << 4;
    return at < 0 || at + bytes > size || desc >> 62 != 1 ? NULL : base + at;
}

static const char *compute(const emu_issue *x, int thread, const char *base, long size)
{
    static const struct { const char *tail; int bytes, k; bool integer; double (*value)(uint32_t); } kinds[] = {
        {"k16.f32.f16.f16", 2, 16, false, from_f16}, {"k16.f32.bf16.bf16", 2, 16, false, from_bf16}, {"k32.s32.s8.s8", 1, 32, true, from_s8}};
    int n = 0, used = 0, kind = -1, w = thread % 128 / 32, g = thread % 32 / 4, q = thread % 4;
    if (sscanf(x->ptx, "wgmma.mma_async.sync.aligned.m64n%3d%n", &n, &used) < 1 || n < 8 || n > 256 || n % 8) {
        return "a wgmma that the emulator does not know";
    }
    for (int i = 0; i < 3; i++) {
        kind = strcmp(x->ptx + used, kinds[i].tail) == 0 ? i : kind;
    }
    if (kind < 0 || (kinds[kind].bytes != 2 && (x->ta || x->tb))) {
        return "a wgmma that the emulator does not know";
    }
    int bytes = kinds[kind].bytes;
    double a[2][32];
    for (int h = 0; h < 2; h++) {
        for (int k = 0; k < kinds[kind].k; k++) {
            uint32_t bits = 0;
            const char *p = matrix_element(x->a, x->ta, bytes, 16 * w + g + 8 * h, k, base, size);
            if (p == NULL) {
                return "a wgmma whose first matrix is not in shared memory, or not swizzled by 128 bytes";
            }
            memcpy(&bits, p, (size_t)bytes);
            a[h][k] = kinds[kind].value(bits);
        }
    }
    for (int r = 0; r < n / 2; r += 4) {
        for (int e = 0; e < 2; e++) {
            double sum[2] = {0, 0};
            for (int k = 0; k < kinds[kind].k; k++) {
                uint32_t bits = 0;
                const char *p = matrix_element(x->b, x->tb, bytes, r * 2 + 2 * q + e, k, base, size);
                if (p == NULL) {
                    return "a wgmma whose second matrix is not in shared memory, or not swizzled by 128 bytes";
                }
                memcpy(&bits, p, (size_t)bytes);
                double b = kinds[kind].value(bits);
                sum[0] += a[0][k] * b;
                sum[1] += a[1][k] * b;
            }
            for (int h = 0; h < 2; h++) {
                void *d = x->d[r + 2 * h + e];
                if (kinds[kind].integer) {
                    *(int *)d = (int)((uint32_t)*(int *)d + (uint32_t)(int64_t)sum[h]);
                } else {
                    *(float *)d = (float)(*(float *)d + sum[h]);
                }
            }
        }
    }
    return NULL;
}

const char *emu_wgmma_issue(emu_issues *q, bool late, const emu_issue *x, int thread, const char *base, long bytes)
{
    if (!late) {
        return compute(x, thread, base, bytes);
    }
    if (q->n == q->cap) {
        int cap = q->cap ? q->cap * 2 : 8;
        emu_issue *list = cap > EMU_ISSUED ? NULL : realloc(q->list, sizeof *list * (size_t)cap);
        if (list == NULL) {
            return "more wgmma in flight than a kernel waits for";
        }
        q->list = list;
        q->cap = cap;
    }
    q->list[q->n] = *x;
    q->list[q->n++].group = q->groups;
    return NULL;
}

const char *emu_wgmma_wait(emu_issues *q, int groups, int thread, const char *base, long bytes)
{
    const char *why = NULL;
    int done = 0;
    while (why == NULL && done < q->n && q->list[done].group < q->groups - groups) {
        why = compute(&q->list[done++], thread, base, bytes);
    }
    memmove(q->list, q->list + done, sizeof *q->list * (size_t)(q->n - done));
    q->n -= done;
    return why;
}
