/* The 8-bit floats of the OCP specification (OFP8, 2023): f8e4m3 has 4 bits of exponent, no infinity and one NaN a sign; f8e5m2 is the upper half of
 * an f16. Conversions to them round half to even and saturate: what is too large, infinities too, becomes the largest value; NaN stays NaN. */
#include "te/te.h"
#include <math.h>

typedef struct format { int significand, bias, least; double max; uint8_t max_bits; } format; /* least: exponent of the smallest value */

static format format_of(enum kn_dtype t)
{
    return t == KN_F8E4M3 ? (format){4, 7, -9, 448, 0x7e} : (format){3, 15, -16, 57344, 0x7b};
}

bool kn_is_f8(enum kn_dtype t) { return t == KN_F8E4M3 || t == KN_F8E5M2; }

double kn_f8_value(enum kn_dtype t, uint8_t bits)
{
    format f = format_of(t);
    int fraction = f.significand - 1, m = bits & ((1 << fraction) - 1), e = (bits & 0x7f) >> fraction;
    double x = e ? ldexp((1 << fraction) + m, e - f.bias - fraction) : ldexp(m, f.least);
    if ((bits & 0x7f) > f.max_bits) x = t == KN_F8E5M2 && m == 0 ? INFINITY : NAN;
    return bits & 0x80 ? -x : x;
}

double kn_f8_round(enum kn_dtype t, double x)
{
    format f = format_of(t);
    int e;
    if (isnan(x) || x == 0) return x;
    if (fabs(x) >= f.max) return copysign(f.max, x);
    frexp(x, &e);
    int unit = e - f.significand < f.least ? f.least : e - f.significand;
    return ldexp(nearbyint(ldexp(x, -unit)), unit);
}

uint8_t kn_f8_bits(enum kn_dtype t, double x)
{
    format f = format_of(t);
    uint8_t sign = signbit(x) ? 0x80 : 0;
    int e, fraction = f.significand - 1;
    if (isnan(x)) return sign | 0x7f;
    x = fabs(kn_f8_round(t, x));
    if (x < ldexp(1, 1 - f.bias)) return sign | (uint8_t)ldexp(x, -f.least);
    double m = frexp(x, &e); /* in [0.5, 1) */
    return (uint8_t)(sign | (e - 1 + f.bias) << fraction | ((int)ldexp(m, f.significand) & ((1 << fraction) - 1)));
}
