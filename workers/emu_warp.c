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

double emu_from_f16(uint32_t bits)
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

double emu_from_bf16(uint32_t bits)
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

double emu_from_s8(uint32_t bits) { return (int8_t)bits; }

/* Floats of 8 bits are the upper half of an f16; those with four bits of exponent are so after a shift and a factor of 2^8. */
double emu_from_e5m2(uint32_t bits) { return emu_from_f16(bits << 8); }
double emu_from_e4m3(uint32_t bits)
{
    return (bits & 0x7f) == 0x7f ? emu_from_f16(0x7e00) : 256 * emu_from_f16((bits & 0x80) << 8 | (bits & 0x7f) << 7);
}

typedef struct form { const char *types; int bytes; bool integer; double (*value[2])(uint32_t); } form; /* of a, of b */
static const form forms[] = {
    {"m16n8k16.row.col.f32.f16.f16.f32", 2, false, {emu_from_f16, emu_from_f16}},
    {"m16n8k16.row.col.f32.bf16.bf16.f32", 2, false, {emu_from_bf16, emu_from_bf16}},
    {"m16n8k8.row.col.f32.tf32.tf32.f32", 4, false, {from_tf32, from_tf32}},
    {"m16n8k32.row.col.s32.s8.s8.s32", 1, true, {emu_from_s8, emu_from_s8}},
    {"m16n8k32.row.col.f32.e4m3.e4m3.f32", 1, false, {emu_from_e4m3, emu_from_e4m3}},
    {"m16n8k32.row.col.f32.e4m3.e5m2.f32", 1, false, {emu_from_e4m3, emu_from_e5m2}},
    {"m16n8k32.row.col.f32.e5m2.e4m3.f32", 1, false, {emu_from_e5m2, emu_from_e4m3}},
    {"m16n8k32.row.col.f32.e5m2.e5m2.f32", 1, false, {emu_from_e5m2, emu_from_e5m2}},
};

static double element(const form *f, int of, const int *registers, int r, int e)
{
    uint32_t word = (uint32_t)registers[r] >> (8 * f->bytes * e);
    return f->value[of](f->bytes == 4 ? word : word & ((1u << 8 * f->bytes) - 1));
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
                a[g + 8 * (r % 2)][k + half * (r / 2)] = element(f, 0, x[lane]->a, r, e);
                if (r < 2) {
                    b[k + half * r][g] = element(f, 1, x[lane]->b, r, e);
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
