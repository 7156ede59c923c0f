/* SHA-256 (FIPS 180-4): keys and artifact digests. Own code because libkiln may call nothing; checked against the standard's vectors. */
#include "base/sha256.h"
#include <string.h>

static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t ror(uint32_t x, int n) { return x >> n | x << (32 - n); }

/* One round; the letters move on by their names from call to call instead of through memory. */
#define ROUND(a, b, c, d, e, f, g, h, i) \
    do { \
        uint32_t t = h + (ror(e, 6) ^ ror(e, 11) ^ ror(e, 25)) + (g ^ (e & (f ^ g))) + K[i] + w[i]; \
        d += t; \
        h = t + (ror(a, 2) ^ ror(a, 13) ^ ror(a, 22)) + ((a & b) | (c & (a | b))); \
    } while (0)

static void compress(uint32_t s[8], const uint8_t *p)
{
    uint32_t w[64], a = s[0], b = s[1], c = s[2], d = s[3], e = s[4], f = s[5], g = s[6], h = s[7];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t x = w[i - 15], y = w[i - 2];
        w[i] = w[i - 16] + (ror(x, 7) ^ ror(x, 18) ^ x >> 3) + w[i - 7] + (ror(y, 17) ^ ror(y, 19) ^ y >> 10);
    }
    for (int i = 0; i < 64; i += 8) {
        ROUND(a, b, c, d, e, f, g, h, i);
        ROUND(h, a, b, c, d, e, f, g, i + 1);
        ROUND(g, h, a, b, c, d, e, f, i + 2);
        ROUND(f, g, h, a, b, c, d, e, i + 3);
        ROUND(e, f, g, h, a, b, c, d, i + 4);
        ROUND(d, e, f, g, h, a, b, c, i + 5);
        ROUND(c, d, e, f, g, h, a, b, i + 6);
        ROUND(b, c, d, e, f, g, h, a, i + 7);
    }
    const uint32_t v[8] = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; i++) s[i] += v[i];
}
#undef ROUND

void kn_sha256_init(kn_sha256 *s)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    *s = (kn_sha256){0};
    memcpy(s->h, start, sizeof start);
}

void kn_sha256_add(kn_sha256 *s, const void *p, size_t n)
{
    const uint8_t *b = p;
    s->len += n;
    if (s->used) {
        size_t take = 64 - s->used < n ? 64 - s->used : n;
        memcpy(s->block + s->used, b, take);
        s->used += take;
        b += take;
        n -= take;
        if (s->used < 64) return;
        compress(s->h, s->block);
        s->used = 0;
    }
    size_t whole = n / 64 * 64;
    if (!kn_sha256_blocks(s->h, b, n / 64, K))
        for (size_t i = 0; i < whole; i += 64) compress(s->h, b + i);
    b += whole;
    n -= whole;
    if (n) memcpy(s->block, b, n);
    s->used = n;
}

void kn_sha256_end(kn_sha256 *s, uint8_t out[32])
{
    uint64_t bits = s->len * 8;
    uint8_t tail[72] = {0x80};
    size_t pad = (s->used < 56 ? 56 : 120) - s->used;
    for (int i = 0; i < 8; i++) tail[pad + (size_t)i] = (uint8_t)(bits >> (56 - 8 * i));
    kn_sha256_add(s, tail, pad + 8);
    for (int i = 0; i < 32; i++) out[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

void kiln_sha256(const void *p, size_t n, uint8_t out[32])
{
    kn_sha256 s;
    kn_sha256_init(&s);
    kn_sha256_add(&s, p, n);
    kn_sha256_end(&s, out);
}

void kiln_hex(const uint8_t *p, size_t n, char *out)
{
    static const char digit[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digit[p[i] >> 4];
        out[2 * i + 1] = digit[p[i] & 15];
    }
    out[2 * n] = 0;
}
