/* Fuzz target: what is read back from stores: records (their checksum is put right, so that what lies behind it is reached), the values of Redis
 * (sealed anew for the same reason, and raw), its address, and documents of keys and tenants as JSON. The first byte chooses. */
#include "cache/tier_redis_posix.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static redis_tier t;
    size_t n = size ? size - 1 : 0, out = 0;
    char *p = malloc(n + DIGEST_HEX + 1);
    if (!size) goto end;
    memcpy(p, data + 1, n);
    p[n] = 0;
    if (*data % 4 == 0 && n > 32) {
        kiln_sha256(p, n - 32, (uint8_t *)p + n - 32);
        cache_record *r = cache_record_decode(p, n, 1, CACHE_RUN, "{}");
        size_t again;
        char *bytes = r ? cache_record_encode(r, &again) : NULL;
        if (r && (again != n || memcmp(bytes, p, n))) abort(); /* one record, one form */
        free(bytes);
        cache_release(r);
    } else if (*data % 4 == 1) {
        char *sealed = seal("", (kiln_bytes){p, n}, &out);
        cache_record *r = record_of(&t, sealed, out, strtoull(p, NULL, 10));
        if (r && r->verification == CACHE_FAILED) abort();
        cache_release(r);
        free(sealed);
    } else if (*data % 4 == 2) {
        cache_release(record_of(&t, p, n, 1));
        free(unpack(p, n, &out));
    } else {
        redis_tier other = {.port = 0};
        if (parse_url(&other, p) && (!*other.host || other.port < 1)) abort();
    }
end:
    free(p);
    return 0;
}
