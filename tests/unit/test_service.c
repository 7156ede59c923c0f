/* Tests of the service's parts that need no server: routes, queries, negotiation, addresses, settings, bundle, build ids. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <cmocka.h>
#include "service/service.h"
#include "workers/build.h"

static void routes_answer_404_405_and_the_parameter(void **state)
{
    char param[256];
    service_reply *p = NULL;
    (void)state;
    const service_route *r = service_route_find("HEAD", "/v1/kernels/kk1-ab", param, sizeof param, &p);
    assert_non_null(r);
    assert_string_equal(r->metric, "kernel");
    assert_string_equal(param, "kk1-ab");
    assert_null(service_route_find("GET", "/v1/kernels/", param, sizeof param, &p));
    assert_int_equal(p->status, 404);
    service_reply_drop(p);
    assert_null(service_route_find("POST", "/v1/targets/x", param, sizeof param, &p));
    assert_int_equal(p->status, 405);
    bool allow = false;
    for (int i = 0; i < p->nheaders; i++) allow |= !strcmp(p->headers[i].name, "Allow") && !strcmp(p->headers[i].value, "GET, HEAD, PUT");
    assert_true(allow);
    service_reply_drop(p);
}

static void every_route_is_in_openapi(void **state)
{
    (void)state;
    char *text = service_openapi();
    cJSON *o = cJSON_Parse(text), *paths = cJSON_GetObjectItemCaseSensitive(o, "paths");
    for (int i = 0; i < service_nroutes; i++) assert_non_null(cJSON_GetObjectItemCaseSensitive(paths, service_routes[i].path));
    cJSON_Delete(o);
    free(text);
}

static void queries_decode_strictly(void **state)
{
    char out[16];
    (void)state;
    assert_int_equal(service_query("a=1&target=h%6fst", "target", out, sizeof out), 1);
    assert_string_equal(out, "host");
    assert_int_equal(service_query("a=1", "target", out, sizeof out), 0);
    assert_int_equal(service_query("t=1&t=2", "t", out, sizeof out), -1);
    assert_int_equal(service_query("t=%4", "t", out, sizeof out), -1);
    assert_int_equal(service_query("t=%00", "t", out, sizeof out), -1);
    assert_int_equal(service_query("t=aaaaaaaaaaaaaaaaaaaaa", "t", out, sizeof out), -1);
}

static void accept_is_judged_by_quality_then_order(void **state)
{
    unsigned cpu = 1u << SERVICE_JSON | 1u << SERVICE_C | 1u << SERVICE_SO | 1u << SERVICE_ZIP,
             gpu = 1u << SERVICE_JSON | 1u << SERVICE_CUDA;
    (void)state;
    assert_int_equal(service_negotiate("", cpu), SERVICE_JSON);
    assert_int_equal(service_negotiate("*/*", cpu), SERVICE_JSON);
    assert_int_equal(service_negotiate("text/plain", cpu), SERVICE_C);
    assert_int_equal(service_negotiate("text/plain", gpu), SERVICE_CUDA);
    assert_int_equal(service_negotiate("text/*", gpu), SERVICE_CUDA);
    assert_int_equal(service_negotiate("application/json;q=0.2, application/zip;q=0.9", cpu), SERVICE_ZIP);
    assert_int_equal(service_negotiate("application/vnd.kiln.so", cpu), SERVICE_SO);
    assert_int_equal(service_negotiate("text/x-c;q=0", cpu), -1);
    assert_int_equal(service_negotiate("image/png, , ;;", cpu), -1);
    assert_true(service_media_is("Application/JSON; charset=utf-8", "application/json"));
    assert_false(service_media_is("application/jsonx", "application/json"));
}

static void only_loopback_without_leave(void **state)
{
    struct sockaddr_storage a;
    size_t n;
    char why[200];
    (void)state;
    assert_true(service_http_address("127.0.0.1:8787", false, &a, &n, why, sizeof why));
    assert_true(service_http_address("[::1]:0", false, &a, &n, why, sizeof why));
    assert_false(service_http_address("0.0.0.0:8787", false, &a, &n, why, sizeof why));
    assert_non_null(strstr(why, "--allow-public"));
    assert_true(service_http_address("0.0.0.0:8787", true, &a, &n, why, sizeof why));
    static const char *const wrong[] = {"8787", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:1x", "nowhere:1", ":1", "[::1:1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) assert_false(service_http_address(wrong[i], true, &a, &n, why, sizeof why));
}

static void settings_come_from_flags_then_variables(void **state)
{
    service_config c;
    char why[300], *good[] = {"kilnd", "--queue=7", "--http-threads", "2", "--allow-public"}, *bad[] = {"kilnd", "--queue", "0"},
                   *none[] = {"kilnd", "--nope"};
    (void)state;
    setenv("KILN_QUEUE", "9", 1);
    setenv("KILN_WAIT_MS", "11", 1);
    assert_true(service_config_load(&c, 5, good, why, sizeof why));
    assert_int_equal(c.queue, 7);
    assert_int_equal(c.http_threads, 2);
    assert_int_equal(c.wait_ms, 11);
    assert_int_equal(c.allow_public, 1);
    assert_string_equal(c.listen, "127.0.0.1:8787");
    service_config_free(&c);
    assert_false(service_config_load(&c, 3, bad, why, sizeof why));
    assert_non_null(strstr(why, "1 to 100000"));
    service_config_free(&c);
    assert_false(service_config_load(&c, 2, none, why, sizeof why));
    service_config_free(&c);
    unsetenv("KILN_QUEUE");
    unsetenv("KILN_WAIT_MS");
}

static void bundles_and_builds_are_deterministic(void **state)
{
    service_file f[2] = {{"manifest.json", "{}", 2}, {"kernel.c", "int x;", 6}};
    char *a, *b, x[72], y[72];
    size_t na, nb;
    (void)state;
    assert_true(service_bundle(f, 2, &a, &na));
    assert_true(service_bundle(f, 2, &b, &nb));
    assert_int_equal(na, nb);
    assert_memory_equal(a, b, na);
    assert_memory_equal(a, "PK\3\4", 4);
    free(a);
    free(b);
    kiln_bytes one[] = {{"ab", 2}, {"c", 1}}, two[] = {{"a", 1}, {"bc", 2}};
    build_id(one, 2, x);
    build_id(two, 2, y);
    assert_int_equal(strlen(x), 68);
    assert_string_not_equal(x, y);
}

static void prepared_answers_are_compared_in_full(void **state)
{
    service_memo *m = service_memo_open(1 << 16);
    service_call c = {.method = "POST", .uri = "/compile", .accept = "", .content_type = "", .body = "{}", .n = 2}, other = c;
    service_reply *r = service_reply_text(200, "text/plain", "x");
    (void)state;
    other.body = "[]";
    service_memo_put(m, &c, 5, r);
    assert_ptr_equal(service_memo_get(m, &c, 5), r);
    service_reply_drop(r);
    assert_null(service_memo_get(m, &c, 6));
    assert_null(service_memo_get(m, &other, 5));
    service_reply_drop(r);
    service_memo_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(routes_answer_404_405_and_the_parameter),
        cmocka_unit_test(every_route_is_in_openapi),
        cmocka_unit_test(queries_decode_strictly),
        cmocka_unit_test(accept_is_judged_by_quality_then_order),
        cmocka_unit_test(only_loopback_without_leave),
        cmocka_unit_test(settings_come_from_flags_then_variables),
        cmocka_unit_test(bundles_and_builds_are_deterministic),
        cmocka_unit_test(prepared_answers_are_compared_in_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
