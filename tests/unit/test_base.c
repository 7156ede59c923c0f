/* The ground: arena under failing memory, text, numbers as text, SHA-256 against the standard's vectors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/base.h"

static void *mem(void *user, void *p, size_t old_size, size_t size)
{
    int *left = user;
    (void)old_size;
    if (size == 0) {
        free(p);
        return NULL;
    }
    if (left && (*left)-- <= 0) return NULL;
    return realloc(p, size);
}

static void arena_runs_dry(void **s)
{
    (void)s;
    for (int n = 0; n < 6; n++) {
        int left = n;
        kiln_arena *a = kiln_arena_open(&(kiln_host){&left, mem, NULL});
        assert_int_equal(a == NULL, n == 0);
        if (!a) continue;
        for (int i = 0; i < 400; i++) kn_alloc(a, 100000);
        assert_true(kn_arena_dry(a));
        assert_null(kn_alloc(a, 1));
        kn_buf b;
        kn_buf_init(&b, a);
        kn_put(&b, "x");
        assert_null(kn_buf_take(&b).p);
        kiln_arena_close(a);
    }
}

static void text_and_numbers(void **s)
{
    (void)s;
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    kn_buf b;
    kn_buf_init(&b, a);
    const double x[] = {0, -0.0, 1, 0.1, 1e300, 5e-324, 1.0 / 3, -2.5, 123456789012345680.0};
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) {
        b.n = 0;
        kn_put_double(&b, x[i]);
        double back = strtod(kn_buf_take(&b).p, NULL);
        assert_memory_equal(&back, &x[i], sizeof back);
    }
    b.n = 0;
    kn_put_json_string(&b, "a\"\\\n\x01");
    assert_string_equal(kn_buf_take(&b).p, "\"a\\\"\\\\\\n\\u0001\"");
    for (int i = 0; i < 5000; i++) kn_putf(&b, "%d,", i);
    assert_int_equal(kn_buf_take(&b).n, strlen(kn_buf_take(&b).p));
    int64_t r;
    assert_false(kn_mul_fits(INT64_MAX, 2, &r));
    assert_int_equal(kn_lcm(12, 18), 36);
    kiln_arena_close(a);
}

static void hex_of(const void *p, size_t n, char hex[65])
{
    uint8_t d[32];
    kiln_sha256(p, n, d);
    kiln_hex(d, 32, hex);
}

static void sha256_vectors(void **s)
{
    (void)s;
    uint8_t d[32];
    char hex[65], piece[997];
    hex_of("", 0, hex);
    assert_string_equal(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    hex_of("abc", 3, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    kn_sha256 h; /* a million 'a' in uneven pieces */
    kn_sha256_init(&h);
    memset(piece, 'a', sizeof piece);
    for (size_t left = 1000000, n; left; left -= n) {
        n = left < sizeof piece ? left : sizeof piece;
        kn_sha256_add(&h, piece, n);
    }
    kn_sha256_end(&h, d);
    kiln_hex(d, 32, hex);
    assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* Many blocks at once may go by instructions of the processor, few do not: pieces in different sizes give one digest. */
static void sha256_pieces(void **s)
{
    (void)s;
    enum { N = 70001 };
    static uint8_t text[N];
    uint8_t d[32], e[32];
    for (size_t i = 0; i < N; i++) text[i] = (uint8_t)(i * 2654435761u >> 13);
    kiln_sha256(text, N, d);
    for (size_t piece = 61; piece < N; piece = 3 * piece + 5) {
        kn_sha256 h;
        kn_sha256_init(&h);
        for (size_t at = 0; at < N; at += piece) kn_sha256_add(&h, text + at, N - at < piece ? N - at : piece);
        kn_sha256_end(&h, e);
        assert_memory_equal(d, e, 32);
    }
}

static void status_table(void **s)
{
    (void)s;
    for (int i = 0; i < KILN_STATUS_COUNT; i++) {
        assert_non_null(kiln_status_slug((kiln_status)i));
        assert_in_range(kiln_status_http((kiln_status)i), 200, 599);
    }
    assert_string_equal(kiln_status_slug((kiln_status)999), "internal");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(arena_runs_dry), cmocka_unit_test(text_and_numbers),
                                       cmocka_unit_test(sha256_vectors), cmocka_unit_test(sha256_pieces), cmocka_unit_test(status_table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
