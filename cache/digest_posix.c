/* SHA-256 of what is stored, sent and compared: OpenSSL's, which uses what the processor has for it (SHA instructions, AVX2), where the library's
 * own, in plain C, takes half as long again or, beside SHA instructions, several times as long. Short texts do not pay for its detours. */
#include <openssl/evp.h>
#include <pthread.h>
#include "cache/tier.h"

enum { LONG = 512 };
static EVP_MD *sha256; /* never freed: it is looked up by name once, which is dear */
static void find(void) { sha256 = EVP_MD_fetch(NULL, "SHA256", NULL); }

static pthread_once_t once = PTHREAD_ONCE_INIT;

void cache_digest_open(void) { pthread_once(&once, find); }

void cache_sha256(const void *p, size_t n, uint8_t out[32])
{
    if (n < LONG || pthread_once(&once, find) || !sha256 || EVP_Digest(p, n, out, NULL, sha256, NULL) != 1) kiln_sha256(p, n, out);
}

void cache_digest(const void *p, size_t n, char out[65])
{
    uint8_t sum[32];
    cache_sha256(p, n, sum);
    kiln_hex(sum, sizeof sum, out);
}
