/* The cache: one conformance list over every tier, poison, versions, quarantine, flights, bounds, corrupt files, and SIGKILL in the middle
 * of puts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/unit/counter.h"
#include "tests/unit/fresh_dir.h"
#include "cache/tier.h"

static kiln_bytes text(const char *s) { return (kiln_bytes){s, strlen(s)}; }

static cache *open_cache(int64_t memory)
{
    cache_error e;
    cache *c = cache_open(&(cache_config){.data_dir = dir, .memory_bytes = memory}, &e);
    if (!c) print_error("%s\n", e.message);
    assert_non_null(c);
    return c;
}

static void sql(const char *statement)
{
    char path[96];
    sqlite3 *db;
    snprintf(path, sizeof path, "%s/kiln.db", dir);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 2000);
    assert_int_equal(sqlite3_exec(db, statement, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static cache_record sample(const char *key)
{
    cache_record r;
    memset(&r, 0, sizeof r);
    snprintf(r.key, sizeof r.key, "%s", key);
    strcpy(r.workload, "kw1-w");
    strcpy(r.build, "kb1-b");
    strcpy(r.origin, "constructed");
    strcpy(r.target, "x86-64-avx2");
    r.name = "c[M,N] +=! a[M,K]*b[K,N]";
    r.canon = (kiln_bytes){"can\0on", 6};
    r.trace = text("split m 4");
    r.manifest = text("{}");
    r.predicted_us = 1.5;
    r.nartifacts = 2;
    strcpy(r.artifacts[0].kind, "source");
    strcpy(r.artifacts[1].kind, "so");
    return r;
}

static int64_t put(cache *c, const char *key, const char *a, const char *b)
{
    cache_record r = sample(key);
    cache_blob blobs[2] = {{"", text(a)}, {"", text(b)}};
    bool stored;
    assert_int_equal(cache_put(c, &r, blobs, 2, &stored), CACHE_OK);
    assert_true(stored);
    assert_true(r.created_ms > 0);
    return r.version;
}

static enum cache_status get(cache *c, const char *key, int64_t *version, const char **tier)
{
    cache_record *r;
    enum cache_status st = cache_get(c, key, (kiln_bytes){"can\0on", 6}, &r, tier);
    if (st == CACHE_OK) {
        *version = r->version;
        cache_release(r);
    }
    return st;
}

/* What every tier must do, copy or store; a store also assigns and lists. Names are new in every run: servers remember. */
static void documents(const tier_ops *ops, cache_tier *t);
static void conforms(const tier_ops *ops)
{
    cache_tier *t;
    cache_error e;
    cache_config cfg = {.data_dir = dir, .redis_url = getenv("KILN_TEST_REDIS"), .postgres_url = getenv("KILN_TEST_PG")};
    if (!strcmp(ops->name, "sqlite")) cfg.postgres_url = NULL;
    if (ops->open(&cfg, &t, &e) == CACHE_MISS) {
        print_message("# %s: skipped, no test server (KILN_TEST_REDIS, KILN_TEST_PG)\n", ops->name);
        return;
    }
    t->ops = ops;
    char *p, hex[65], key[72], key_i[72], source[96];
    snprintf(key, sizeof key, "kk1-a-%s", dir + 5);
    snprintf(key_i, sizeof key_i, "kk1-i-%s", dir + 5);
    snprintf(source, sizeof source, "int x; // %s", dir + 5);
    cache_record r = sample(key), *got = NULL;
    cache_blob b = {"", text(source)};
    size_t n;
    cache_digest(source, strlen(source), hex);
    strcpy(b.digest, hex);
    assert_int_equal(ops->get(t, key, 0, &got), CACHE_MISS);
    assert_int_equal(ops->get_blob(t, hex, &p, &n), CACHE_MISS);
    r.version = ops->kind == TIER_STORE ? 0 : 1;
    r.nartifacts = 1;
    strcpy(r.artifacts[0].digest, hex);
    assert_int_equal(ops->put(t, &r, &b, 1), CACHE_OK);
    assert_int_equal(r.version, 1);
    assert_int_equal(ops->get(t, key, 0, &got), CACHE_OK);
    assert_string_equal(got->name, r.name);
    assert_string_equal(got->artifacts[0].digest, hex);
    assert_int_equal(got->canon.n, 6);
    assert_memory_equal(got->canon.p, "can\0on", 6);
    assert_memory_equal(&got->predicted_us, &r.predicted_us, sizeof(double));
    assert_int_equal(got->verification, CACHE_PENDING);
    cache_release(got);
    assert_int_equal(ops->get_blob(t, hex, &p, &n), CACHE_OK);
    assert_int_equal(n, strlen(source));
    assert_string_equal(p, source);
    free(p);
    assert_int_equal(ops->verdict(t, key, 1, CACHE_RUN, "{\"e\":0}"), CACHE_OK);
    assert_int_equal(ops->verdict(t, key, 9, CACHE_RUN, ""), CACHE_MISS);
    assert_int_equal(ops->get(t, key, 1, &got), CACHE_OK);
    assert_int_equal(got->verification, CACHE_RUN);
    assert_string_equal(got->verdict, "{\"e\":0}");
    cache_release(got);
    assert_int_equal(ops->get(t, key, 2, &got), CACHE_MISS);
    assert_int_equal(ops->verdict(t, key, 1, CACHE_FAILED, "{}"), CACHE_OK);
    assert_int_equal(ops->get(t, key, 0, &got), ops->kind == TIER_STORE ? CACHE_QUARANTINED : CACHE_MISS);
    ops->drop_blob(t, hex);
    assert_int_equal(ops->get_blob(t, hex, &p, &n), CACHE_MISS);
    assert_int_equal(ops->put_impossible(t, key_i, text("c"), "fp", "{\"why\":1}"), CACHE_OK);
    assert_int_equal(ops->get_impossible(t, key_i, "fp", &p), CACHE_OK);
    assert_string_equal(p, "{\"why\":1}");
    free(p);
    assert_int_equal(ops->get_impossible(t, key_i, "other", &p), CACHE_MISS);
    if (ops->kind == TIER_STORE) documents(ops, t);
    ops->close(t);
}

/* Documents: put, replaced, removed, listed in order; of the stores alone. */
static void documents(const tier_ops *ops, cache_tier *t)
{
    char kind[64], *p;
    cache_doc list[4];
    snprintf(kind, sizeof kind, "test-%s", dir + 5);
    assert_int_equal(ops->get_doc(t, kind, "b", &p), CACHE_MISS);
    assert_int_equal(ops->put_doc(t, kind, "b", text("{\"x\":1}")), CACHE_OK);
    assert_int_equal(ops->put_doc(t, kind, "b", text("{\"x\":2}")), CACHE_OK);
    assert_int_equal(ops->put_doc(t, kind, "a/c", text("{}")), CACHE_OK);
    assert_int_equal(ops->get_doc(t, kind, "b", &p), CACHE_OK);
    assert_string_equal(p, "{\"x\":2}");
    free(p);
    assert_int_equal(ops->list_docs(t, kind, "", 4, list), 2);
    assert_string_equal(list[0].id, "a/c");
    assert_string_equal(list[1].json, "{\"x\":2}");
    for (int i = 0; i < 2; i++) free(list[i].json);
    assert_int_equal(ops->list_docs(t, kind, "a/c", 1, list), 1);
    assert_string_equal(list[0].id, "b");
    free(list[0].json);
    assert_int_equal(ops->forget_docs(t, kind, 3600000), 0);
    assert_int_equal(ops->forget_docs(t, "nothing", -3600000), 0);
    assert_int_not_equal(ops->put_doc(t, kind, "b", (kiln_bytes){NULL, 0}), CACHE_ERROR);
    assert_int_equal(ops->get_doc(t, kind, "b", &p), CACHE_MISS);
    assert_int_equal(ops->forget_docs(t, kind, -3600000), 1);
    assert_int_equal(ops->list_docs(t, kind, "", 4, list), 0);
}

static void every_tier_conforms(void **s)
{
    (void)s;
#define X(name, ops) conforms(&ops);
#include "cache/tiers.def"
#undef X
}

static void versions_quarantine_and_generation(void **s)
{
    (void)s;
    cache *c = open_cache(0);
    const char *tier;
    int64_t v = 0;
    assert_int_equal(get(c, "k", &v, &tier), CACHE_MISS);
    uint64_t g = cache_generation(c);
    assert_int_equal(put(c, "k", "one", "two"), 1);
    assert_int_equal(put(c, "k", "three", "two"), 2);
    assert_true(cache_generation(c) > g);
    assert_int_equal(get(c, "k", &v, &tier), CACHE_OK);
    assert_int_equal(v, 2);
    assert_string_equal(tier, "sqlite");
    g = cache_generation(c);
    assert_int_equal(get(c, "k", &v, &tier), CACHE_OK);
    assert_string_equal(tier, "memory");
    assert_int_equal(cache_generation(c), g);
    cache_record *r;
    assert_int_equal(cache_get(c, "k", text("other"), &r, &tier), CACHE_MISS);
    assert_int_equal(counter(c, "kiln_cache_canon_mismatch_total", "sqlite", ""), 1);
    assert_int_equal(cache_verdict(c, "k", 2, CACHE_FAILED, "{}"), CACHE_OK);
    assert_int_equal(cache_verdict(c, "k", 2, CACHE_RUN, "{}"), CACHE_OK); /* a failure stays */
    assert_true(cache_generation(c) > g);
    assert_int_equal(get(c, "k", &v, &tier), CACHE_OK);
    assert_int_equal(v, 1);
    assert_int_equal(cache_get_version(c, "k", 2, &r), CACHE_QUARANTINED);
    assert_int_equal(cache_verdict(c, "k", 1, CACHE_FAILED, "{}"), CACHE_OK);
    assert_int_equal(get(c, "k", &v, &tier), CACHE_QUARANTINED);
    assert_int_equal(put(c, "k", "four", "two"), 3);
    cache_close(c);
    c = open_cache(0);
    assert_int_equal(get(c, "k", &v, &tier), CACHE_OK);
    assert_int_equal(v, 3);
    cache_close(c);
}

static void poison_is_found(void **s)
{
    (void)s;
    cache *c = open_cache(0);
    put(c, "k", "good bytes", "more bytes");
    cache_close(c);
    sql("UPDATE blob SET bytes = CAST('bad! bytes' AS BLOB) WHERE bytes = CAST('good bytes' AS BLOB)");
    c = open_cache(0);
    char hex[65], *p;
    size_t n;
    cache_digest("good bytes", 10, hex);
    assert_int_equal(cache_get_blob(c, hex, &p, &n), CACHE_QUARANTINED);
    assert_int_equal(counter(c, "kiln_cache_blob_reads_total", "sqlite", "mismatch"), 1);
    assert_int_equal(cache_get_blob(c, hex, &p, &n), CACHE_MISS);
    put(c, "k", "good bytes", "more bytes");
    assert_int_equal(cache_get_blob(c, hex, &p, &n), CACHE_OK);
    assert_string_equal(p, "good bytes");
    free(p);
    cache_close(c);
    sql("UPDATE record SET body = zeroblob(200) WHERE version = 2"); /* a damaged record: the one before serves */
    c = open_cache(0);
    int64_t v = 0;
    assert_int_equal(get(c, "k", &v, NULL), CACHE_OK);
    assert_int_equal(v, 1);
    assert_int_equal(counter(c, "kiln_cache_bad_records_total", "sqlite", ""), 1);
    cache_close(c);
}

static void corrupt_database_is_set_aside(void **s)
{
    (void)s;
    char path[96], aside[128];
    snprintf(path, sizeof path, "%s/kiln.db", dir);
    FILE *f = fopen(path, "w");
    for (int i = 0; i < 4096; i++) fputs("not a database ", f);
    fclose(f);
    cache *c = open_cache(0);
    assert_int_equal(counter(c, "kiln_cache_corrupt_databases_total", "sqlite", ""), 1);
    assert_int_equal(put(c, "k", "a", "b"), 1);
    cache_close(c);
    snprintf(aside, sizeof aside, "%s.corrupt-1", path);
    assert_int_equal(access(aside, F_OK), 0);
    sql("INSERT INTO migration VALUES(1000, 0)"); /* written by a newer program: refused, not set aside */
    cache_error e;
    assert_null(cache_open(&(cache_config){.data_dir = dir}, &e));
    assert_non_null(strstr(e.message, "1000"));
}

static void lists_page_and_targets_stay(void **s)
{
    (void)s;
    cache *c = open_cache(0);
    char key[16], cursor[96] = "", **ids, **jsons;
    for (int i = 0; i < 7; i++) {
        snprintf(key, sizeof key, "k%d", i);
        put(c, key, "a", "b");
    }
    put(c, "k2", "a", "c");
    static const char *const order[] = {"k2", "k6", "k5", "k4", "k3", "k1", "k0"};
    int seen = 0, n;
    cache_record *page[3];
    while ((n = cache_list(c, "", cursor, 3, page)) > 0)
        for (int i = 0; i < n; i++) {
            assert_string_equal(page[i]->key, order[seen++]);
            snprintf(cursor, sizeof cursor, "%s:%d", page[i]->key, (int)page[i]->version);
            cache_release(page[i]);
        }
    assert_int_equal(seen, 7);
    assert_int_equal(cache_list(c, "nobody", "", 3, page), 0);
    assert_int_equal(cache_put_target(c, "t1", text("{1}")), CACHE_OK);
    assert_int_equal(cache_put_target(c, "t1", text("{2}")), CACHE_OK);
    cache_close(c);
    c = open_cache(0);
    assert_int_equal(cache_list_targets(c, &ids, &jsons), 1);
    assert_string_equal(jsons[0], "{2}");
    free(ids[0]);
    free(jsons[0]);
    free(ids);
    free(jsons);
    char *p;
    assert_int_equal(cache_put_impossible(c, "k", text("c"), "fp", "{}"), CACHE_OK);
    assert_int_equal(cache_get_impossible(c, "k", "fp", &p), CACHE_IMPOSSIBLE);
    free(p);
    assert_int_equal(cache_get_impossible(c, "k", "newer", &p), CACHE_MISS);
    cache_close(c);
}

static void memory_is_bounded(void **s)
{
    (void)s;
    cache *c = open_cache(64 << 10);
    char *big = malloc(5001), key[16];
    for (int i = 0; i < 60; i++) {
        memset(big, 'a' + i % 26, 5000);
        big[5000] = 0;
        snprintf(key, sizeof key, "%d", i);
        big[0] = (char)('0' + i / 26);
        put(c, key, big, "x");
        assert_true(counter(c, "kiln_store_bytes", "memory", "") <= 64 << 10);
    }
    free(big);
    assert_true(counter(c, "kiln_cache_evictions_total", "memory", "") > 30);
    cache_close(c);
}

static atomic_int led, finished;
static void *ask(void *arg)
{
    cache *c = arg;
    bool collapsed, late;
    int64_t v = 0;
    if (get(c, "hot", &v, NULL) != CACHE_OK && cache_flight_begin(c, "hot", 5000, &collapsed, &late)) {
        if (get(c, "hot", &v, NULL) != CACHE_OK) { /* somebody may have led and ended before this one began */
            atomic_fetch_add(&led, 1);
            nanosleep(&(struct timespec){0, 20000000}, NULL);
            put(c, "hot", "a", "b");
        }
        cache_flight_end(c, "hot");
    }
    if (get(c, "hot", &v, NULL) == CACHE_OK && v == 1) atomic_fetch_add(&finished, 1);
    return NULL;
}

static void *lead_without_storing(void *arg)
{
    bool collapsed, late;
    if (cache_flight_begin(arg, "bad", 5000, &collapsed, &late)) {
        atomic_fetch_add(&led, 1);
        cache_flight_end(arg, "bad");
    }
    return NULL;
}

static void flights(void **s)
{
    (void)s;
    cache *c = open_cache(0);
    pthread_t threads[100];
    atomic_store(&led, 0);
    for (int i = 0; i < 100; i++) pthread_create(&threads[i], NULL, ask, c);
    for (int i = 0; i < 100; i++) pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&led), 1);
    assert_int_equal(atomic_load(&finished), 100);
    atomic_store(&led, 0);
    bool collapsed, late;
    assert_true(cache_flight_begin(c, "bad", 0, &collapsed, &late));
    assert_false(collapsed);
    for (int i = 0; i < 10; i++) pthread_create(&threads[i], NULL, lead_without_storing, c);
    assert_false(cache_flight_begin(c, "bad", 5, &collapsed, &late));
    assert_true(collapsed && late);
    cache_flight_end(c, "bad");
    for (int i = 0; i < 10; i++) pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&led), 10); /* each took over in turn */
    cache_close(c);
}

/* A child puts until it is killed; what is listed afterwards must be whole. */
static void killed_in_the_middle(void **s)
{
    (void)s;
    cache_close(open_cache(0));
    unsigned seed = 7;
    int total = 0;
    for (int round = 0; round < 20; round++) {
        int ready[2];
        char one;
        assert_int_equal(pipe(ready), 0);
        pid_t pid = fork();
        if (pid == 0) {
            cache_error e;
            cache *c = cache_open(&(cache_config){.data_dir = dir}, &e);
            for (int i = 0; c && i < 100000; i++) {
                char key[32], a[3000], b[9000];
                snprintf(key, sizeof key, "r%d-%d", round, i);
                memset(a, 'a' + i % 20, sizeof a);
                memset(b, 'b' + round, sizeof b);
                memcpy(a, key, strlen(key));
                memcpy(b, key, strlen(key));
                cache_record r = sample(key);
                cache_blob blobs[2] = {{"", {a, sizeof a}}, {"", {b, sizeof b}}};
                bool stored;
                cache_put(c, &r, blobs, 2, &stored);
                if (!i && write(ready[1], "r", 1) != 1) _exit(1);
            }
            _exit(1);
        }
        assert_int_equal(read(ready[0], &one, 1), 1); /* it has put one: how long that takes on a busy machine says nothing */
        close(ready[0]);
        close(ready[1]);
        nanosleep(&(struct timespec){0, 2000000 + rand_r(&seed) % 20000000}, NULL);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        cache *c = open_cache(0);
        cache_record *page[16];
        int n = cache_list(c, "", "", 16, page);
        total += n;
        for (int i = 0; i < n; i++) {
            assert_int_equal(page[i]->nartifacts, 2);
            for (int k = 0; k < 2; k++) {
                char *p;
                size_t size;
                assert_int_equal(cache_get_blob(c, page[i]->artifacts[k].digest, &p, &size), CACHE_OK);
                assert_int_equal(size, page[i]->artifacts[k].bytes);
                free(p);
            }
            cache_release(page[i]);
        }
        assert_int_equal(counter(c, "kiln_cache_bad_records_total", "sqlite", ""), 0);
        assert_int_equal(counter(c, "kiln_cache_corrupt_databases_total", "sqlite", ""), 0);
        cache_close(c);
    }
    assert_true(total > 0);
}

/* Whoever computes a digest: the standard's own vectors are tests of kiln_sha256. */
static void digests_agree(void **state)
{
    (void)state;
    static char bytes[70001];
    uint8_t one[32], other[32];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)(i * 2654435761u >> 13);
    for (size_t n = 0; n < sizeof bytes; n += n < 1100 ? 1 : 9973) {
        kiln_sha256(bytes, n, one);
        cache_sha256(bytes, n, other);
        assert_memory_equal(one, other, 32);
    }
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, fresh_dir, drop_dir)
    const struct CMUnitTest tests[] = {
        T(every_tier_conforms), T(versions_quarantine_and_generation), T(poison_is_found), T(corrupt_database_is_set_aside),
        T(lists_page_and_targets_stay), T(memory_is_bounded), T(flights), T(killed_in_the_middle),
        cmocka_unit_test(digests_agree),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
