/* The strict scan: what RFC 8259 allows passes, what cJSON would let through is refused with place and reason. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/base.h"

static void good(void **s)
{
    (void)s;
    static const char *const text[] = {
        "{}", "[]", " [1, -0, 0.5, 1e9, -1.25E-3] ", "\"x\"", "null", "{\"a\":{\"b\":[{},[],{\"a\":1}]},\"b\":true,\"c\":false}",
        "\"\\u00e9\\ud83d\\ude00 \xc3\xa9 \xf0\x9f\x98\x80 \\n\\/\"", "9007199254740991", "[[[[[[[[1]]]]]]]]",
    };
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        kiln_diag d = {0};
        if (kiln_json_check((kiln_bytes){text[i], strlen(text[i])}, &d) != KILN_OK) fail_msg("%s: %s", text[i], d.message);
    }
}

static void bad(void **s)
{
    (void)s;
    static const struct { const char *text, *why, *pointer; } rows[] = {
        {"", "unexpected end", ""},
        {"{", "expected a member name", ""},
        {"{\"a\":1,\"b\":{\"c\":[1,2,}", "expected a JSON value", "/b/c/2"},
        {"{\"a\":1,\"a\":2}", "duplicate member", "/a"},
        {"{\"a\":1,\"\\u0061\":2}", "duplicate member", "/a"},
        {"{\"x\":[{\"k\":1},{\"k\":1,\"k\":2}]}", "duplicate member", "/x/1/k"},
        {"[01]", "leading zero", "/0"},
        {"[1.]", "malformed number", "/0"},
        {"[+1]", "expected a JSON value", "/0"},
        {"[NaN]", "expected a JSON value", "/0"},
        {"[1e999]", "out of range", "/0"},
        {"{\"n\":9007199254740993}", "beyond 2^53", "/n"},
        {"{\"n\":9223372036854775808}", "beyond 2^53", "/n"},
        {"\"a\nb\"", "control character", ""},
        {"\"\xff\"", "invalid UTF-8", ""},
        {"\"\xc0\xaf\"", "invalid UTF-8", ""},
        {"\"\xed\xa0\x80\"", "invalid UTF-8", ""},
        {"\"\\u0000\"", "NUL escape", ""},
        {"\"\\ud800\"", "lone surrogate", ""},
        {"\"\\x\"", "invalid escape", ""},
        {"\"abc", "without end", ""},
        {"{} x", "text behind", ""},
        {"\xef\xbb\xbf{}", "expected a JSON value", ""},
        {"[1 2]", "expected ','", "/0"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kiln_diag d = {0};
        assert_int_not_equal(kiln_json_check((kiln_bytes){rows[i].text, strlen(rows[i].text)}, &d), KILN_OK);
        if (!strstr(d.message, rows[i].why)) fail_msg("%s: %s", rows[i].text, d.message);
        assert_string_equal(d.pointer, rows[i].pointer);
    }
}

static void limits(void **s)
{
    (void)s;
    enum { N = 1 << 20 };
    char *t = malloc(N);
    kiln_diag d = {0};
    memset(t, '[', N);
    assert_int_equal(kiln_json_check((kiln_bytes){t, N}, &d), KILN_JSON);
    assert_non_null(strstr(d.message, "deeper"));
    t[0] = '[';
    for (int i = 1; i < N; i++) t[i] = i % 2 ? '1' : ',';
    assert_int_equal(kiln_json_check((kiln_bytes){t, N}, &d), KILN_LIMIT);
    static const char doc[] = "{\"op\":\"MatMul\",\"inputs\":[{\"shape\":[1,2.5e3],\"x\":\"\\u00e9\"}]}";
    for (size_t n = 0; n + 1 < sizeof doc; n++) { /* every prefix of a document is refused, none reads past its end */
        char *cut = malloc(n ? n : 1);
        memcpy(cut, doc, n);
        assert_int_not_equal(kiln_json_check((kiln_bytes){cut, n}, &d), KILN_OK);
        free(cut);
    }
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(good), cmocka_unit_test(bad), cmocka_unit_test(limits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
