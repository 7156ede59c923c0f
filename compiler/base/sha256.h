/* What sha256.c asks of the processor's own instructions. Private to compiler/base. */
#ifndef KN_SHA256_H
#define KN_SHA256_H
#include "base/base.h"

/* Takes n blocks of 64 bytes into the state s, with the constants k of the rounds; false: not done, the caller computes them in plain C. */
bool kn_sha256_blocks(uint32_t s[8], const uint8_t *p, size_t n, const uint32_t k[64]);
#endif
