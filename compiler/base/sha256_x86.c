/* SHA-256's blocks by the instructions that x86 processors have for them (SHA extensions), about four times as fast as in plain C: a model's weights
 * are hashed wherever they arrive. Whether the processor has them is asked where enough blocks follow to be worth it, and remembered nowhere. */
#include "base/sha256.h"
#if defined __x86_64__ && defined __GNUC__
#include <cpuid.h>
#include <immintrin.h>

static bool has_instructions(void)
{
    unsigned a, b, c, d, extended;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSSE3) || !(c & bit_SSE4_1)) return false;
    return __get_cpuid_count(7, 0, &a, &extended, &c, &d) && (extended & bit_SHA);
}

/* Four rounds; w: their four words. */
__attribute__((target("sha,sse4.1"))) static inline void rounds(__m128i *abef, __m128i *cdgh, __m128i w, const uint32_t *k)
{
    __m128i t = _mm_add_epi32(w, _mm_loadu_si128((const __m128i *)k));
    *cdgh = _mm_sha256rnds2_epu32(*cdgh, *abef, t);
    *abef = _mm_sha256rnds2_epu32(*abef, *cdgh, _mm_shuffle_epi32(t, 0x0e));
}

__attribute__((target("sha,sse4.1"))) static void blocks(uint32_t s[8], const uint8_t *p, size_t n, const uint32_t k[64])
{
    const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i dcba = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)s), 0xb1);
    __m128i hgfe = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(s + 4)), 0x1b);
    __m128i abef = _mm_alignr_epi8(dcba, hgfe, 8), cdgh = _mm_blend_epi16(hgfe, dcba, 0xf0);
    for (; n; n--, p += 64) {
        __m128i w[4], abef0 = abef, cdgh0 = cdgh;
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(p + 16 * i)), big_endian);
            rounds(&abef, &cdgh, w[i], k + 4 * i);
        }
        for (int i = 16; i < 64; i += 16) {
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++) {
                __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(w[j], w[(j + 1) & 3]), _mm_alignr_epi8(w[(j + 3) & 3], w[(j + 2) & 3], 4));
                w[j] = _mm_sha256msg2_epu32(sum, w[(j + 3) & 3]);
                rounds(&abef, &cdgh, w[j], k + i + 4 * j);
            }
        }
        abef = _mm_add_epi32(abef, abef0);
        cdgh = _mm_add_epi32(cdgh, cdgh0);
    }
    __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)s, _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128((__m128i *)(s + 4), _mm_alignr_epi8(dchg, feba, 8));
}

bool kn_sha256_blocks(uint32_t s[8], const uint8_t *p, size_t n, const uint32_t k[64])
{
    enum { WORTH = 64 }; /* blocks; asking costs as much as some of them where a hypervisor answers */
    if (n < WORTH || !has_instructions()) return false;
    blocks(s, p, n, k);
    return true;
}
#else
bool kn_sha256_blocks(uint32_t s[8], const uint8_t *p, size_t n, const uint32_t k[64])
{
    (void)s, (void)p, (void)n, (void)k;
    return false;
}
#endif
