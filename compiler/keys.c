/* The keys of design section 4: SHA-256 over a domain prefix and canonical bytes; names, paths, times and tenants never enter. */
#include "hw/hw.h"
#include "fingerprint.h"
#include <string.h>

const char *kiln_fingerprint(void) { return KILN_FINGERPRINT; }

static void hash_key(const char *prefix, kiln_bytes canon, char out[72])
{
    uint8_t digest[32];
    kn_sha256 s;
    kn_sha256_init(&s);
    kn_sha256_add(&s, prefix, strlen(prefix) + 1);
    kn_sha256_add(&s, canon.p, canon.n);
    kn_sha256_end(&s, digest);
    memcpy(out, prefix, 4);
    kiln_hex(digest, 32, out + 4);
}

const char *kiln_request_policy(kiln_arena *a, const kiln_request *r)
{
    uint8_t digest[32];
    char hex[72];
    if (!r->trace.n) return r->policy;
    kiln_sha256(r->trace.p, r->trace.n, digest);
    kiln_hex(digest, 32, hex);
    return kn_format(a, "trace:%s", hex);
}

kiln_status kiln_keys_of(kiln_arena *a, const kiln_program *p, const kiln_hw *hw, const char *policy, kiln_keys *out, kiln_diag *d)
{
    kiln_bytes program;
    kiln_status s = kn_canon_bytes(a, p, &program);
    if (s != KILN_OK) return kn_fail(d, s, "the program has no canonical form");
    kn_buf w, k;
    kn_buf_init(&w, a);
    kn_buf_init(&k, a);
    static const char numerics[] = "numerics=reassoc;layout=row_major;"; /* the one contract so far: named, so that another is another key */
    kn_putn(&w, numerics, sizeof numerics - 1);
    kn_putn(&w, program.p, program.n);
    kn_putf(&k, "workload:%zu;", w.n);
    kn_putn(&k, w.p ? w.p : "", w.n);
    kn_putf(&k, "target:%zu;", hw->canon.n);
    kn_putn(&k, hw->canon.p, hw->canon.n);
    if (strcmp(policy, "default")) kn_putf(&k, "policy:%s;", policy);
    kiln_keys keys = {.workload_canon = kn_buf_take(&w), .kernel_canon = kn_buf_take(&k)};
    if (!keys.workload_canon.p || !keys.kernel_canon.p) return kn_fail(d, KILN_MEMORY, "out of memory");
    hash_key("kw1-kiln.workload", keys.workload_canon, keys.workload);
    hash_key("kk1-kiln.kernel", keys.kernel_canon, keys.kernel);
    *out = keys;
    return KILN_OK;
}
