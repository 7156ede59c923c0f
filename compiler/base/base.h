/* The private ground of libkiln: arena, string builder, diagnostics. Nothing here knows about tensors. */
#ifndef KN_BASE_H
#define KN_BASE_H
#include "kiln.h"
#include <stdarg.h>

/* Zeroed, 16-byte aligned memory that lives as long as the arena; NULL when out of memory (the arena then stays "dry": every
 * later call returns NULL too, so a pass may build first and check kn_arena_dry() once at its end, before any dereference). */
void *kn_alloc(kiln_arena *a, size_t size);
#define kn_new(a, type) ((type *)kn_alloc((a), sizeof(type)))
void *kn_copy(kiln_arena *a, const void *from, size_t size); /* the same with these bytes in it */
#define kn_array(a, type, n) ((type *)kn_alloc((a), sizeof(type) * (size_t)(n)))
/* What was allocated since the mark is given back: for trials whose results are not kept. */
typedef struct kn_mark { void *chunk; size_t used; } kn_mark;
kn_mark kn_mark_of(const kiln_arena *a);
void kn_release(kiln_arena *a, kn_mark m);
char *kn_strndup(kiln_arena *a, const char *s, size_t n);
char *kn_strdup(kiln_arena *a, const char *s);
char *kn_format(kiln_arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* no floats: use kn_buf_double */
bool kn_arena_dry(const kiln_arena *a);
bool kn_stopped(const kiln_arena *a); /* polls host.stop */

/* Growing text. Sticky: after a failed allocation every call is a no-op and kn_buf_take reports it. */
typedef struct kn_buf { kiln_arena *a; char *p; size_t n, cap; bool failed; } kn_buf;
void kn_buf_init(kn_buf *b, kiln_arena *a);
void kn_put(kn_buf *b, const char *s);
void kn_putn(kn_buf *b, const char *s, size_t n);
void kn_putf(kn_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* integers and strings only */
void kn_put_double(kn_buf *b, double x);      /* shortest text that reads back to the same double; "inf", "-inf", "nan"; never locale */
void kn_put_json_string(kn_buf *b, const char *s); /* with quotes and escapes */
kiln_bytes kn_buf_take(kn_buf *b);            /* NUL-terminated (not counted); p == NULL when failed */

kiln_status kn_json_check(kiln_bytes text, int most, kiln_diag *d); /* kiln_json_check with a bound of its own on members and elements */

/* Fills *d and returns status. The pointer form also sets d->pointer. */
kiln_status kn_fail(kiln_diag *d, kiln_status s, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
kiln_status kn_fail_at(kiln_diag *d, kiln_status s, const char *pointer, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void kn_hint(kiln_diag *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static inline int64_t kn_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; } /* a >= 0, b > 0 */
static inline int64_t kn_round_up(int64_t a, int64_t b) { return kn_ceil_div(a, b) * b; }
int64_t kn_gcd(int64_t a, int64_t b);
int64_t kn_lcm(int64_t a, int64_t b);
bool kn_mul_fits(int64_t a, int64_t b, int64_t *out); /* checked multiply of non-negative numbers */

/* SHA-256 in pieces. */
typedef struct kn_sha256 { uint32_t h[8]; uint64_t len; uint8_t block[64]; size_t used; } kn_sha256;
void kn_sha256_init(kn_sha256 *s);
void kn_sha256_add(kn_sha256 *s, const void *p, size_t n);
void kn_sha256_end(kn_sha256 *s, uint8_t out[32]);
#endif
