/* Input values as a function of (seed, tensor, index), and elements of every dtype as doubles. */
#include "workers/verify.h"
#include <math.h>
#include <string.h>

/* bits: integers up to 2^bits times 2^-bits are exact. */
static const struct { const char *text; int bytes, bits; bool real; double max, tiny; } dtypes[VERIFY_DTYPES] = {
    [VERIFY_F32] = {"f32", 4, 23, true, 3.4028234663852886e38, 1.1754943508222875e-38},
    [VERIFY_F64] = {"f64", 8, 52, true, 1.7976931348623157e308, 2.2250738585072014e-308},
    [VERIFY_F16] = {"f16", 2, 10, true, 65504, 5.9604644775390625e-8},
    [VERIFY_BF16] = {"bf16", 2, 7, true, 3.3895313892515355e38, 1.1754943508222875e-38},
    [VERIFY_I64] = {"i64", 8, 53, false, 9007199254740992.0, 0},
    [VERIFY_I32] = {"i32", 4, 31, false, 2147483647.0, 0},
    [VERIFY_I16] = {"i16", 2, 15, false, 32767, 0},
    [VERIFY_I8] = {"i8", 1, 7, false, 127, 0},
    [VERIFY_U8] = {"u8", 1, 8, false, 255, 0},
    [VERIFY_BOOL] = {"bool", 1, 1, false, 1, 0},
    [VERIFY_F8E4M3] = {"f8e4m3", 1, 3, true, 448, 0.001953125},
    [VERIFY_F8E5M2] = {"f8e5m2", 1, 2, true, 57344, 1.52587890625e-5},
};

bool verify_dtype_find(const char *text, verify_dtype *out)
{
    for (int i = 0; i < VERIFY_DTYPES; i++) {
        if (strcmp(dtypes[i].text, text) == 0) {
            *out = (verify_dtype)i;
            return true;
        }
    }
    return false;
}

int verify_dtype_bytes(verify_dtype t) { return dtypes[t].bytes; }
bool verify_dtype_is_float(verify_dtype t) { return dtypes[t].real; }
double verify_dtype_max(verify_dtype t) { return dtypes[t].max; }
double verify_dtype_tiny(verify_dtype t) { return dtypes[t].tiny; }
double verify_dtype_exact(verify_dtype t) { return ldexp(1, t == VERIFY_F64 ? 53 : dtypes[t].real ? dtypes[t].bits + 1 : dtypes[t].bits); }
int64_t verify_pages(int64_t bytes) { return bytes <= VERIFY_PAGE ? VERIFY_PAGE : (bytes + VERIFY_PAGE - 1) / VERIFY_PAGE * VERIFY_PAGE; }

/* splitmix64's finaliser: every bit of the result depends on every bit of x. */
static inline uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

uint64_t verify_mix(uint64_t x) { return mix(x); } /* in this file mix(): what others may replace is not inlined */

static bool is_f8(verify_dtype t) { return t == VERIFY_F8E4M3 || t == VERIFY_F8E5M2; }

static double edge(verify_dtype t, uint64_t h, bool nonfinite, int *flags)
{
    static const double plain[] = {0.0, -0.0, 1, -1, 0.5, -2, 8, -8};
    uint64_t pick = h % 64;
    double sign = h >> 32 & 1 ? -1 : 1;
    if (pick < 56) {
        return plain[pick % 8];
    }
    if (pick < 59) {
        *flags |= VERIFY_BIG;
        return sign * 96;
    }
    if (pick < 61 && nonfinite) {
        *flags |= VERIFY_NONFINITE;
        return t == VERIFY_F8E4M3 ? NAN : sign * INFINITY;
    }
    if (pick == 61 && nonfinite) {
        *flags |= VERIFY_NONFINITE;
        return NAN;
    }
    if (!nonfinite && h >> 40 & 255) { /* reductions meet each value often, and arithmetic on denormals is a hundred times slower */
        return plain[pick % 8];
    }
    *flags |= VERIFY_EXTREME;
    if (pick == 62 && nonfinite) {
        return sign * (t == VERIFY_F16 || is_f8(t) ? dtypes[t].max : ldexp(1, 100));
    }
    return sign * (t == VERIFY_F16    ? ldexp(3, -24)
                   : is_f8(t)         ? dtypes[t].tiny
                   : t == VERIFY_BF16 ? ldexp(1, -130) : t == VERIFY_F64 ? ldexp(1, -1060) : ldexp(5, -149));
}

static inline double value(const verify_source *s, verify_dtype t, uint64_t h, int *flags)
{
    if (t == VERIFY_BOOL) {
        return (double)(h >> 40 & 1);
    }
    if (!dtypes[t].real) {
        int64_t span = s->kind == VERIFY_INTEGER ? 2 : 7, low = t == VERIFY_U8 ? 0 : -span;
        int64_t x = low + (int64_t)((h >> 33) % (uint64_t)(span - low + 1));
        return (double)(x == 0 && s->nonzero ? 1 : x);
    }
    if (s->kind == VERIFY_EDGE) {
        return edge(t, h, s->nonfinite, flags);
    }
    if (s->kind == VERIFY_INTEGER) {
        return (double)((int64_t)((h >> 33) % 5) - 2);
    }
    int bits = dtypes[t].bits > 30 ? 30 : dtypes[t].bits;
    int64_t one = INT64_C(1) << bits, x = (int64_t)(h >> (63 - bits)); /* 0 .. 2*one - 1 */
    return (double)(x - one + (x >= one)) / (double)one;               /* [-1, 1] without 0, which the other kinds have */
}

static inline uint64_t stream(const verify_source *s, int input)
{
    return mix(s->seed + ((uint64_t)input << 56) + (uint64_t)s->kind);
}

double verify_input(const verify_source *s, verify_dtype t, int input, int64_t index, int *flags)
{
    int none = 0;
    return value(s, t, mix(stream(s, input) + (uint64_t)index), flags ? flags : &none);
}

static uint16_t to_half(double x)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    double m = fabs(x);
    int e;
    if (isnan(x)) {
        return 0x7e00;
    }
    if (m > 65504) {
        return sign | 0x7c00;
    }
    if (m < ldexp(1, -14)) {
        return (uint16_t)(sign | (unsigned)lrint(ldexp(m, 24)));
    }
    m = frexp(m, &e); /* m in [0.5, 1) */
    return (uint16_t)(sign + ((unsigned)(e + 13) << 10) + (unsigned)lrint(ldexp(m, 11)));
}

static double from_half(uint16_t h)
{
    int e = h >> 10 & 31, m = h & 1023;
    double x = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return h & 0x8000 ? -x : x;
}

/* Floats of 8 bits are upper halves of an f16; those with four bits of exponent are so after a shift and a factor of 2^8. */
static uint8_t to_f8(verify_dtype t, double x)
{
    if (isnan(x)) {
        return 0x7f;
    }
    if (t == VERIFY_F8E5M2) {
        return (uint8_t)(to_half(x) >> 8);
    }
    uint16_t h = to_half(ldexp(x, -8));
    return (uint8_t)(h >> 8 & 0x80) | (uint8_t)(h >> 7 & 0x7f);
}

static double from_f8(verify_dtype t, uint8_t b)
{
    if (t == VERIFY_F8E5M2) {
        return from_half((uint16_t)(b << 8));
    }
    return (b & 0x7f) == 0x7f ? NAN : ldexp(from_half((uint16_t)((b & 0x80) << 8 | (b & 0x7f) << 7)), 8);
}

double verify_load(verify_dtype t, const void *array, int64_t i)
{
    union { uint32_t u; float f; } b;
    switch (t) {
    case VERIFY_F32: return (double)((const float *)array)[i];
    case VERIFY_F64: return ((const double *)array)[i];
    case VERIFY_F16: return from_half(((const uint16_t *)array)[i]);
    case VERIFY_BF16: b.u = (uint32_t)((const uint16_t *)array)[i] << 16; return (double)b.f;
    case VERIFY_I64: return (double)((const int64_t *)array)[i];
    case VERIFY_I32: return ((const int32_t *)array)[i];
    case VERIFY_I16: return ((const int16_t *)array)[i];
    case VERIFY_I8: return ((const int8_t *)array)[i];
    case VERIFY_F8E4M3:
    case VERIFY_F8E5M2: return from_f8(t, ((const uint8_t *)array)[i]);
    default: return ((const uint8_t *)array)[i];
    }
}

void verify_store(verify_dtype t, void *array, int64_t i, double x)
{
    union { uint32_t u; float f; } b;
    switch (t) {
    case VERIFY_F32: ((float *)array)[i] = (float)x; break;
    case VERIFY_F64: ((double *)array)[i] = x; break;
    case VERIFY_F16: ((uint16_t *)array)[i] = to_half(x); break;
    case VERIFY_BF16: b.f = (float)x; ((uint16_t *)array)[i] = (uint16_t)(b.u >> 16 | (isnan(x) ? 0x40 : 0)); break;
    case VERIFY_I64: ((int64_t *)array)[i] = (int64_t)x; break;
    case VERIFY_I32: ((int32_t *)array)[i] = (int32_t)x; break;
    case VERIFY_I16: ((int16_t *)array)[i] = (int16_t)x; break;
    case VERIFY_I8: ((int8_t *)array)[i] = (int8_t)x; break;
    case VERIFY_F8E4M3:
    case VERIFY_F8E5M2: ((uint8_t *)array)[i] = to_f8(t, x); break;
    default: ((uint8_t *)array)[i] = (uint8_t)x; break;
    }
}

/* edge() as a table by its lowest bits and its sign; what one in 256 elements may be beyond that, by edge() itself. */
static void fill_edges(uint64_t base, int64_t elems, float *x)
{
    float common[2][64];
    int flags = 0;
    for (unsigned i = 0; i < 128; i++) {
        common[i / 64][i % 64] = (float)edge(VERIFY_F32, i % 64 | (uint64_t)(i / 64) << 32 | UINT64_C(1) << 40, false, &flags);
    }
    for (int64_t i = 0; i < elems; i++) {
        uint64_t h = mix(base + (uint64_t)i);
        x[i] = common[h >> 32 & 1][h % 64];
        if (!(h >> 40 & 255)) {
            x[i] = (float)edge(VERIFY_F32, h, false, &flags);
        }
    }
}

/* By far the most data: a loop a kind, each the same as value() and without its branches. */
static void fill_f32(const verify_source *s, uint64_t base, int64_t elems, float *x)
{
    int flags = 0;
    if (s->kind == VERIFY_EDGE && !s->nonfinite) {
        fill_edges(base, elems, x);
    } else if (s->kind == VERIFY_EDGE) {
        for (int64_t i = 0; i < elems; i++) {
            x[i] = (float)edge(VERIFY_F32, mix(base + (uint64_t)i), true, &flags);
        }
    } else if (s->kind == VERIFY_INTEGER) {
        for (int64_t i = 0; i < elems; i++) {
            x[i] = (float)((int)((uint32_t)(mix(base + (uint64_t)i) >> 33) % 5) - 2);
        }
    } else {
        for (int64_t i = 0; i < elems; i++) {
            int v = (int)(mix(base + (uint64_t)i) >> 40) - (1 << 23);
            x[i] = (float)(v + (v >= 0)) * 0x1p-23f;
        }
    }
}

void verify_fill(const verify_source *s, verify_dtype t, int input, int64_t elems, void *array)
{
    uint64_t base = stream(s, input);
    int flags = 0;
    if (t == VERIFY_F32) {
        fill_f32(s, base, elems, array);
        return;
    }
    for (int64_t i = 0; i < elems; i++) {
        verify_store(t, array, i, value(s, t, mix(base + (uint64_t)i), &flags));
    }
}
