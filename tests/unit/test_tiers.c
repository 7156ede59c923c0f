/* The tiers behind a network: what they do when their server is away, silent, forgetful or full of wrong bytes. Servers come from KILN_TEST_REDIS. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <arpa/inet.h>
#include <hiredis/hiredis.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>
#include "cache/remote.h"

static char dir[64];
static kiln_bytes text(const char *s) { return (kiln_bytes){s, strlen(s)}; }

static int fresh_dir(void **s)
{
    (void)s;
    strcpy(dir, "/tmp/kiln-tiers-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int drop_dir(void **s)
{
    (void)s;
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    return system(cmd);
}

static cache *open_cache(const char *sub, const char *redis, const char *postgres)
{
    char data[96];
    cache_error e;
    snprintf(data, sizeof data, "%s/%s", dir, sub);
    cache *c = cache_open(&(cache_config){.data_dir = data, .redis_url = redis, .postgres_url = postgres}, &e);
    if (!c) print_error("%s\n", e.message);
    assert_non_null(c);
    return c;
}

static cache_record sample(const char *key)
{
    cache_record r;
    memset(&r, 0, sizeof r);
    snprintf(r.key, sizeof r.key, "%s", key);
    strcpy(r.origin, "constructed");
    strcpy(r.target, "x86-64-avx2");
    r.name = "c[M,N] +=! a[M,K]*b[K,N]";
    r.canon = text("canon");
    r.nartifacts = 1;
    strcpy(r.artifacts[0].kind, "source");
    return r;
}

static int64_t put(cache *c, const char *key, const char *source)
{
    cache_record r = sample(key);
    cache_blob blob = {"", text(source)};
    bool stored;
    assert_int_equal(cache_put(c, &r, &blob, 1, &stored), CACHE_OK);
    assert_true(stored);
    return r.version;
}

/* The tier that answered, or the status as text. */
static const char *get(cache *c, const char *key, int64_t *version)
{
    cache_record *r;
    const char *tier = NULL;
    enum cache_status st = cache_get(c, key, text("canon"), &r, &tier);
    if (st != CACHE_OK) return st == CACHE_MISS ? "miss" : st == CACHE_QUARANTINED ? "quarantined" : "error";
    if (version) *version = r->version;
    cache_release(r);
    return tier;
}

static int64_t wanted;
static const char *wanted_name, *wanted_tier, *wanted_label;
static void pick(void *user, const char *name, const char *tier, const char *result, int64_t value)
{
    (void)user;
    if (!strcmp(name, wanted_name) && !strcmp(tier, wanted_tier) && !strcmp(result, wanted_label)) wanted += value;
}

static int64_t counter(cache *c, const char *name, const char *tier, const char *label)
{
    wanted = 0;
    wanted_name = name;
    wanted_tier = tier;
    wanted_label = label;
    cache_counters(c, pick, NULL);
    return wanted;
}

/* A listening socket nobody reads from (answers = false), or a port that refuses. */
static int dead_server(char url[64], const char *scheme, bool listening)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, n), 0);
    if (listening) assert_int_equal(listen(fd, 64), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    snprintf(url, 64, "%s127.0.0.1:%d", scheme, ntohs(a.sin_port));
    return fd;
}

static const char *redis_url(void)
{
    const char *url = getenv("KILN_TEST_REDIS");
    if (!url) {
        print_message("# skipped: KILN_TEST_REDIS names no server\n");
        skip();
    }
    return url;
}

/* One command to the test server, behind the tier's back. */
static void redis(const char *format, const char *a, const char *b)
{
    const char *p = redis_url() + strlen("redis://");
    char host[64] = "";
    size_t n = strcspn(p, ":");
    memcpy(host, p, n);
    redisContext *x = redisConnect(host, atoi(p + n + 1));
    redisReply *reply = redisCommand(x, format, a, b);
    assert_non_null(reply);
    assert_int_not_equal(reply->type, REDIS_REPLY_ERROR);
    freeReplyObject(reply);
    redisFree(x);
}

static void silent_redis_costs_little(void **s)
{
    (void)s;
    char url[64];
    int fd = dead_server(url, "redis://", true);
    cache *c = open_cache("a", NULL, NULL);
    put(c, "k", "int x;");
    cache_close(c);
    c = open_cache("a", url, NULL);
    int64_t start = cache_mono_ms(), worst = 0;
    assert_string_equal(get(c, "k", NULL), "sqlite");
    assert_in_range(cache_mono_ms() - start, 15, 100);
    for (int i = 0; i < 20; i++) {
        char key[16];
        snprintf(key, sizeof key, "other%d", i);
        start = cache_mono_ms();
        assert_string_equal(get(c, key, NULL), "miss");
        if (i >= 4 && cache_mono_ms() - start > worst) worst = cache_mono_ms() - start;
    }
    assert_in_range(worst, 0, 15); /* the breaker is open: nothing is waited for */
    assert_true(counter(c, "kiln_cache_lookups_total", "redis", "error") >= 3);
    assert_int_equal(counter(c, "kiln_cache_lookups_total", "redis", "miss"), 0);
    assert_true(counter(c, "kiln_cache_skipped_total", "redis", "") > 10);
    assert_int_equal(put(c, "k", "int y;"), 2);
    cache_close(c);
    close(fd);
}

static void absent_redis_is_no_reason_not_to_start(void **s)
{
    (void)s;
    char url[64];
    cache_error e;
    int fd = dead_server(url, "redis://", false);
    cache *c = open_cache("a", url, NULL);
    assert_string_equal(get(c, "k", NULL), "miss"); /* not an error: Redis is never the only place */
    assert_int_equal(put(c, "k", "int x;"), 1);
    assert_string_equal(get(c, "k", NULL), "sqlite");
    cache_close(c);
    close(fd);
    assert_null(cache_open(&(cache_config){.data_dir = dir, .redis_url = "http://nowhere"}, &e));
    assert_non_null(strstr(e.message, "redis://HOST:PORT"));
}

static void breaker_opens_and_doubles(void **s)
{
    (void)s;
    cache_breaker b;
    memset(&b, 0, sizeof b);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(cache_breaker_ask(&b), LEAVE_GIVEN);
        cache_breaker_bad(&b, LEAVE_GIVEN);
    }
    assert_int_equal(cache_breaker_ask(&b), LEAVE_REFUSED);
    assert_int_equal(atomic_load(&b.pause), 1000);
    cache_breaker_bad(&b, LEAVE_GIVEN); /* was under way before */
    assert_int_equal(atomic_load(&b.pause), 1000);
    for (int i = 1; i <= 6; i++) {
        atomic_store(&b.until, cache_mono_ms() - 1);
        assert_int_equal(cache_breaker_ask(&b), LEAVE_TO_TRY);
        assert_int_equal(cache_breaker_ask(&b), LEAVE_REFUSED); /* one at a time */
        cache_breaker_bad(&b, LEAVE_TO_TRY);
        assert_int_equal(atomic_load(&b.pause), i < 5 ? 1000 << i : 30000);
    }
    cache_breaker_good(&b);
    assert_int_equal(cache_breaker_ask(&b), LEAVE_GIVEN);
    cache_breaker_bad(&b, LEAVE_GIVEN);
    cache_breaker_good(&b);
    cache_breaker_bad(&b, LEAVE_GIVEN);
    cache_breaker_bad(&b, LEAVE_GIVEN);
    assert_int_equal(cache_breaker_ask(&b), LEAVE_GIVEN); /* only errors in a row count */
}

static void redis_serves_a_restarted_service(void **s)
{
    (void)s;
    char key[72], name[112], big[20000], hex[65], *p;
    size_t n;
    int64_t v = 0;
    const char *url = redis_url();
    snprintf(key, sizeof key, "k-%s", dir + 5);
    snprintf(name, sizeof name, "kiln:r:%s", key);
    memset(big, 'z', sizeof big);
    snprintf(big, 64, "%063d", getpid());
    big[63] = 'z';
    big[sizeof big - 1] = 0;
    cache *c = open_cache("a", url, NULL);
    assert_int_equal(put(c, key, big), 1);
    redis("DEL %s", name, NULL); /* the tombstone: its time is over */
    assert_string_equal(get(c, key, NULL), "sqlite");
    cache_close(c);
    c = open_cache("b", url, NULL); /* an empty store: Redis alone knows */
    assert_string_equal(get(c, key, &v), "redis");
    assert_int_equal(v, 1);
    assert_string_equal(get(c, key, NULL), "memory");
    cache_digest(big, strlen(big), hex);
    assert_int_equal(cache_get_blob(c, hex, &p, &n), CACHE_OK);
    assert_string_equal(p, big);
    free(p);
    cache_close(c);
    snprintf(name, sizeof name, "kiln:b:%s", hex);
    redis("SET %s %s", name, "rwrong");
    c = open_cache("b", url, NULL);
    assert_int_equal(cache_get_blob(c, hex, &p, &n), CACHE_QUARANTINED);
    assert_int_equal(cache_get_blob(c, hex, &p, &n), CACHE_MISS);
    snprintf(name, sizeof name, "kiln:r:%s", key);
    redis("SETRANGE %s 90 %s", name, "???");
    assert_string_equal(get(c, key, NULL), "miss");
    assert_int_equal(counter(c, "kiln_cache_bad_records_total", "redis", ""), 1);
    cache_close(c);
}

/* A failure that could not be told to Redis is never served from there, not even after a restart. */
static void a_debt_is_paid_first(void **s)
{
    (void)s;
    char key[72], name[112], url[64];
    snprintf(key, sizeof key, "k-%s", dir + 5);
    snprintf(name, sizeof name, "kiln:r:%s", key);
    cache *c = open_cache("a", redis_url(), NULL);
    put(c, key, "int x;");
    redis("DEL %s", name, NULL);
    assert_string_equal(get(c, key, NULL), "sqlite");
    cache_close(c);
    int fd = dead_server(url, "redis://", false);
    c = open_cache("a", url, NULL);
    assert_int_equal(cache_verdict(c, key, 1, CACHE_FAILED, "{}"), CACHE_OK);
    cache_close(c);
    close(fd);
    c = open_cache("a", redis_url(), NULL);
    assert_string_equal(get(c, key, NULL), "quarantined");
    cache_close(c);
    c = open_cache("b", redis_url(), NULL);
    assert_string_equal(get(c, key, NULL), "miss");
    cache_close(c);
}

/* A read of the store that began before a write must not bring the old version back. */
static void late_fills_are_void(void **s)
{
    (void)s;
    cache_tier *t;
    cache_error e;
    cache_record *got, old;
    char key[72];
    snprintf(key, sizeof key, "k-%s", dir + 5);
    old = sample(key);
    old.version = 1;
    assert_int_equal(cache_tier_redis.open(&(cache_config){.data_dir = dir, .redis_url = redis_url()}, &t, &e), CACHE_OK);
    assert_int_equal(cache_tier_redis.get(t, key, 0, &got), CACHE_MISS);
    cache_tier_redis.forget(t, key);
    assert_int_equal(cache_tier_redis.put(t, &old, NULL, 0), CACHE_MISS);
    assert_int_equal(cache_tier_redis.get(t, key, 0, &got), CACHE_MISS);
    cache_tier_redis.close(t);
}

static void *hammer(void *arg)
{
    char key[72];
    for (int i = 0; i < 60; i++) {
        snprintf(key, sizeof key, "h%d-%s", i % 7, dir + 5);
        if (i % 10 == 0) put(arg, key, "int x;");
        const char *tier = get(arg, key, NULL);
        if (!strcmp(tier, "error")) return arg;
        if (i % 20 == 7) cache_verdict(arg, key, 1, CACHE_RUN, "{}");
    }
    return NULL;
}

static void many_threads_share_redis(void **s)
{
    (void)s;
    pthread_t threads[8];
    void *failed;
    cache *c = open_cache("a", redis_url(), NULL);
    for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, hammer, c);
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    cache_close(c);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, fresh_dir, drop_dir)
    const struct CMUnitTest tests[] = {
        T(silent_redis_costs_little), T(absent_redis_is_no_reason_not_to_start), T(breaker_opens_and_doubles), T(redis_serves_a_restarted_service),
        T(a_debt_is_paid_first), T(late_fills_are_void), T(many_threads_share_redis),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
