/* The tiers behind a network: what they do when their server is away, silent, forgetful or full of wrong bytes. Servers come from KILN_TEST_REDIS
 * and KILN_TEST_PG. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <libpq-fe.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/unit/counter.h"
#include "tests/unit/fresh_dir.h"
#include "cache/remote.h"

static kiln_bytes text(const char *s) { return (kiln_bytes){s, strlen(s)}; }

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

/* A listening socket nobody reads from (answers = false), or a port that refuses. */
static int dead_server(char url[96], const char *scheme, bool listening)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, n), 0);
    if (listening) assert_int_equal(listen(fd, 64), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    snprintf(url, 96, "%s127.0.0.1:%d", scheme, ntohs(a.sin_port));
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
    char url[96];
    int fd = dead_server(url, "redis://", true);
    cache *c = open_cache("a", NULL, NULL);
    put(c, "k", "int x;");
    cache_close(c);
    c = open_cache("a", url, NULL);
    int64_t start = cache_mono_ms();
    assert_string_equal(get(c, "k", NULL), "sqlite");
    int64_t waited = cache_mono_ms() - start;
    int quick = 0;
    assert_true(waited > 0);
    for (int i = 0; i < 20; i++) {
        char key[16];
        snprintf(key, sizeof key, "other%d", i);
        start = cache_mono_ms();
        assert_string_equal(get(c, key, NULL), "miss");
        quick += i >= 4 && cache_mono_ms() - start <= waited / 2;
    }
    assert_in_range(quick, 10, 16); /* the breaker is open: nothing is waited for */
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
    char url[96];
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
        cache_breaker_bad(&b, LEAVE_GIVEN, false);
    }
    assert_int_equal(cache_breaker_ask(&b), LEAVE_REFUSED);
    assert_int_equal(atomic_load(&b.pause), 1000);
    cache_breaker_bad(&b, LEAVE_GIVEN, false); /* was under way before */
    assert_int_equal(atomic_load(&b.pause), 1000);
    for (int i = 1; i <= 6; i++) {
        atomic_store(&b.until, cache_mono_ms() - 1);
        assert_int_equal(cache_breaker_ask(&b), LEAVE_TO_TRY);
        assert_int_equal(cache_breaker_ask(&b), LEAVE_REFUSED); /* one at a time */
        cache_breaker_bad(&b, LEAVE_TO_TRY, false);
        assert_int_equal(atomic_load(&b.pause), i < 5 ? 1000 << i : 30000);
    }
    cache_breaker_good(&b);
    assert_int_equal(cache_breaker_ask(&b), LEAVE_GIVEN);
    cache_breaker_bad(&b, LEAVE_GIVEN, false);
    cache_breaker_good(&b);
    cache_breaker_bad(&b, LEAVE_GIVEN, false);
    cache_breaker_bad(&b, LEAVE_GIVEN, false);
    assert_int_equal(cache_breaker_ask(&b), LEAVE_GIVEN); /* only errors in a row count */
    cache_breaker_good(&b);
    cache_breaker_bad(&b, LEAVE_GIVEN, true); /* a long wait is not repeated */
    assert_int_equal(cache_breaker_ask(&b), LEAVE_REFUSED);
    assert_int_equal(atomic_load(&b.pause), 1000);
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
    char key[72], name[112], url[96];
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

static const char *postgres_url(void)
{
    const char *url = getenv("KILN_TEST_PG");
    if (!url) {
        print_message("# skipped: KILN_TEST_PG names no server\n");
        skip();
    }
    return url;
}

static void wait_replayed(cache *c, int64_t count)
{
    for (int i = 0; i < 300 && counter(c, "kiln_cache_replayed_total", "postgres", "") < count; i++) nanosleep(&(struct timespec){0, 10000000}, NULL);
    assert_int_equal(counter(c, "kiln_cache_replayed_total", "postgres", ""), count);
}

static void a_fleet_shares_postgres(void **s)
{
    (void)s;
    char key[72], hex[65], *p;
    size_t n;
    int64_t v = 0;
    const char *url = postgres_url();
    snprintf(key, sizeof key, "k-%s", dir + 5);
    cache *a = open_cache("a", NULL, url), *b = open_cache("b", NULL, url);
    assert_string_equal(get(a, key, NULL), "miss");
    assert_int_equal(put(a, key, "int one;"), 1);
    assert_string_equal(get(b, key, &v), "postgres");
    assert_int_equal(put(b, key, "int two;"), 2);
    assert_int_equal(put(b, key, "int three;"), 3);
    cache_digest("int three;", 10, hex);
    assert_int_equal(cache_get_blob(a, hex, &p, &n), CACHE_OK);
    assert_string_equal(p, "int three;");
    free(p);
    cache_record *page[2];
    assert_int_equal(cache_list(a, "", "", 1, page), 1);
    assert_string_equal(page[0]->key, key);
    assert_int_equal(page[0]->version, 3);
    cache_release(page[0]);
    assert_int_equal(cache_verdict(a, key, 3, CACHE_FAILED, "{}"), CACHE_OK); /* a never stored version 3 itself */
    assert_int_equal(cache_verdict(a, key, 2, CACHE_FAILED, "{}"), CACHE_OK);
    assert_int_equal(cache_verdict(b, key, 1, CACHE_FAILED, "{}"), CACHE_OK);
    cache_close(a);
    a = open_cache("a", NULL, url);
    assert_string_equal(get(a, key, NULL), "quarantined"); /* its own store thinks well of version 1 */
    PGconn *db = PQconnectdb(url);
    PQclear(PQexec(db, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'kiln'"));
    PQfinish(db);
    nanosleep(&(struct timespec){0, 50000000}, NULL);
    assert_int_equal(put(b, key, "int four;"), 4); /* a connection that died while idle costs nothing */
    cache_close(a);
    cache_close(b);
}

typedef struct race { cache *c; char key[72]; int64_t versions[8]; } race;
static void *race_puts(void *arg)
{
    race *r = arg;
    char source[32];
    for (int i = 0; i < 8; i++) {
        snprintf(source, sizeof source, "int x%p%d;", arg, i);
        r->versions[i] = put(r->c, r->key, source);
    }
    return NULL;
}

static void versions_never_collide(void **s)
{
    (void)s;
    race races[4];
    pthread_t threads[4];
    char seen[33] = "";
    cache *a = open_cache("a", NULL, postgres_url()), *b = open_cache("b", NULL, postgres_url());
    for (int i = 0; i < 4; i++) {
        races[i].c = i % 2 ? a : b;
        snprintf(races[i].key, sizeof races[i].key, "k-%s", dir + 5);
        pthread_create(&threads[i], NULL, race_puts, &races[i]);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 32; i++) {
        int64_t v = races[i / 8].versions[i % 8];
        assert_in_range(v, 1, 32);
        assert_int_equal(seen[v]++, 0);
    }
    cache_close(a);
    cache_close(b);
}

static void what_postgres_missed_is_sent_later(void **s)
{
    (void)s;
    char key[72], target[72], url[96], **ids, **jsons;
    int64_t v = 0;
    snprintf(key, sizeof key, "k-%s", dir + 5);
    snprintf(target, sizeof target, "t-%s", dir + 5);
    cache *b = open_cache("b", NULL, postgres_url());
    assert_int_equal(put(b, key, "int other;"), 1);
    int fd = dead_server(url, "postgresql://kiln@", false);
    strcat(url, "/postgres");
    cache *a = open_cache("a", NULL, url); /* the server is down at the start */
    assert_string_equal(get(a, key, NULL), "error"); /* it may be there */
    int64_t first = put(a, key, "int first;"), second = put(a, key, "int second;");
    assert_int_equal(first, CACHE_PROVISIONAL);
    assert_int_equal(second, CACHE_PROVISIONAL + 1);
    assert_string_equal(get(a, key, &v), "sqlite");
    assert_int_equal(v, second);
    assert_int_equal(cache_verdict(a, key, second, CACHE_RUN, "{\"e\":0}"), CACHE_OK);
    assert_int_equal(cache_verdict(a, key, 1, CACHE_FAILED, "{}"), CACHE_OK); /* of a version that is not even here */
    assert_int_equal(cache_put_target(a, target, text("{7}")), CACHE_OK);
    cache_close(a);
    close(fd);
    a = open_cache("a", NULL, postgres_url());
    wait_replayed(a, 5);
    assert_string_equal(get(a, key, &v), "postgres");
    assert_int_equal(v, 3);
    cache_record *r;
    assert_int_equal(cache_get_version(a, key, second, &r), CACHE_OK); /* the old name still finds it */
    assert_int_equal(r->version, 3);
    assert_int_equal(r->verification, CACHE_RUN);
    cache_release(r);
    assert_int_equal(cache_get_version(b, key, 1, &r), CACHE_QUARANTINED);
    assert_int_equal(cache_verdict(a, key, second, CACHE_FAILED, "{}"), CACHE_OK);
    assert_string_equal(get(b, key, &v), "postgres");
    assert_int_equal(v, 2);
    int n = cache_list_targets(b, &ids, &jsons), found = 0;
    for (int i = 0; i < n; i++) {
        found += !strcmp(ids[i], target) && !strcmp(jsons[i], "{7}");
        free(ids[i]);
        free(jsons[i]);
    }
    free(ids);
    free(jsons);
    assert_int_equal(found, 1);
    cache_close(a);
    a = open_cache("a", NULL, postgres_url()); /* nothing is sent twice */
    nanosleep(&(struct timespec){0, 50000000}, NULL);
    assert_int_equal(counter(a, "kiln_cache_replayed_total", "postgres", ""), 0);
    cache_close(a);
    cache_close(b);
}

/* Connections that were opened to FD, which does not block, since the last call. */
static int opened(int fd)
{
    int n = 0;
    for (int c; (c = accept(fd, NULL, NULL)) >= 0; n++) close(c);
    return n;
}

static void silent_postgres_is_waited_for_once(void **s)
{
    (void)s;
    char url[96];
    cache_error e;
    int fd = dead_server(url, "postgresql://kiln@", true);
    strcat(url, "/postgres");
    cache *c = open_cache("a", NULL, NULL);
    put(c, "k", "int x;");
    cache_close(c);
    c = open_cache("a", NULL, url);
    assert_return_code(fcntl(fd, F_SETFL, O_NONBLOCK), errno);
    int64_t start = cache_mono_ms();
    assert_string_equal(get(c, "k", NULL), "sqlite");
    int64_t waited = cache_mono_ms() - start;
    assert_int_equal(opened(fd), 1);
    start = cache_mono_ms();
    assert_string_equal(get(c, "other", NULL), "error");
    assert_in_range(cache_mono_ms() - start, 0, waited / 2);
    assert_int_equal(opened(fd), 0);
    assert_string_equal(get(c, "k", NULL), "memory");
    cache_close(c);
    close(fd);
    assert_null(cache_open(&(cache_config){.data_dir = dir, .postgres_url = "postgresql://["}, &e));
    assert_non_null(strstr(e.message, "PostgreSQL"));
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

static void many_threads_share_all_tiers(void **s)
{
    (void)s;
    pthread_t threads[8];
    void *failed;
    cache *c = open_cache("a", redis_url(), postgres_url());
    for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, hammer, c);
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    cache_close(c);
}

/* A copy must be the truth's last version and verdict; while that is away, not older than what is known here. */
static void an_older_copy_is_told(void **s)
{
    (void)s;
    char url[96];
    cache_error e;
    cache_tier *away = NULL, *own = NULL;
    int fd = dead_server(url, "postgresql://kiln@", false);
    assert_int_equal(cache_tier_postgres.open(&(cache_config){.data_dir = dir, .postgres_url = url}, &away, &e), CACHE_OK);
    assert_int_equal(cache_tier_sqlite.open(&(cache_config){.data_dir = dir}, &own, &e), CACHE_OK);
    away->ops = &cache_tier_postgres;
    own->ops = &cache_tier_sqlite;
    cache_record r = sample("k"), other = sample("other");
    r.nartifacts = 0;
    r.version = 5;
    assert_int_equal(own->ops->put(own, &r, NULL, 0), CACHE_OK);
    assert_false(cache_copy_is_old(own, NULL, &r, 0));
    r.verification = CACHE_RUN;
    assert_true(cache_copy_is_old(own, NULL, &r, 0)); /* the truth knows of no such verdict */
    r.verification = CACHE_PENDING;
    r.version = 4;
    assert_true(cache_copy_is_old(own, NULL, &r, 0));
    other.version = 1;
    assert_true(cache_copy_is_old(own, NULL, &other, 0)); /* nor of that key */
    assert_true(cache_copy_is_old(away, own, &r, 0));
    assert_true(cache_copy_is_old(away, NULL, &r, 5));
    assert_false(cache_copy_is_old(away, NULL, &r, 4));
    assert_false(cache_copy_is_old(away, NULL, &r, 0)); /* this cannot be known */
    r.version = 5;
    assert_false(cache_copy_is_old(away, own, &r, 5));
    own->ops->close(own);
    away->ops->close(away);
    close(fd);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, fresh_dir, drop_dir)
    const struct CMUnitTest tests[] = {
        T(silent_redis_costs_little), T(absent_redis_is_no_reason_not_to_start), T(breaker_opens_and_doubles), T(redis_serves_a_restarted_service),
        T(a_debt_is_paid_first), T(late_fills_are_void), T(a_fleet_shares_postgres), T(versions_never_collide),
        T(what_postgres_missed_is_sent_later), T(silent_postgres_is_waited_for_once), T(many_threads_share_all_tiers), T(an_older_copy_is_told),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
