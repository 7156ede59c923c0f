/* Checked and elementary integer arithmetic. */
#include "base/base.h"

int64_t kn_gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t t = a % b;
        a = b;
        b = t;
    }
    return a < 0 ? -a : a;
}

int64_t kn_lcm(int64_t a, int64_t b) { return a && b ? a / kn_gcd(a, b) * b : 0; }

bool kn_mul_fits(int64_t a, int64_t b, int64_t *out)
{
    int64_t r;
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}
