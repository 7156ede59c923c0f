/* The store that jobs share with the cache: what goes when room is short, and databases of earlier versions. On the embedded database and on
 * PostgreSQL (KILN_TEST_PG names a server). */
#include <sqlite3.h>
#include "cache/cache.h"
#include "jobs/room.h"
#include "tests/unit/jobs_fixture.h"

/* ---- room in the store ---- */
static char evicted[200];
static void note_gone(void *user, const char *key)
{
    cache_forget(user, key);
    snprintf(evicted + strlen(evicted), sizeof evicted - strlen(evicted), "%s ", key);
}

static void put_kernel(cache *c, const char *key, const char *own, const char *common)
{
    cache_record r = {.canon = {"canon", 5}, .nartifacts = 2, .name = "p", .target = "t", .origin = "constructed"};
    cache_blob blobs[2] = {{"", {own, strlen(own)}}, {"", {common, strlen(common)}}};
    bool stored;
    snprintf(r.key, sizeof r.key, "%s", key);
    strcpy(r.artifacts[0].kind, "source");
    strcpy(r.artifacts[1].kind, "header");
    assert_int_equal(cache_put(c, &r, blobs, 2, &stored), CACHE_OK);
    assert_true(stored);
}

static bool has(cache *c, const char *key)
{
    cache_record *r = NULL;
    const char *tier;
    bool found = cache_get(c, key, (kiln_bytes){"canon", 5}, &r, &tier) == CACHE_OK;
    char *bytes = NULL;
    size_t n;
    for (int i = 0; found && i < r->nartifacts; i++) { /* what stays is whole */
        assert_int_equal(cache_get_blob(c, r->artifacts[i].digest, &bytes, &n), CACHE_OK);
        free(bytes);
    }
    cache_release(r);
    return found;
}

static void the_least_worth_goes(void **s)
{
    (void)s;
    jobs *j = open_jobs();
    cache_error e;
    cache *c = cache_open(&(cache_config){.data_dir = dir, .postgres_url = server, .memory_bytes = 1}, &e);
    assert_non_null(c);
    char second[96];
    snprintf(second, sizeof second, "%s/second", dir); /* another service: the first keeps what it wrote itself beside PostgreSQL */
    cache *other = server ? cache_open(&(cache_config){.data_dir = second, .postgres_url = server, .memory_bytes = 1}, &e) : c;
    assert_non_null(other);
    int64_t bytes, keys;
    put_kernel(c, "dear", "dear source", "common header");
    put_kernel(c, "cheap", "cheap source", "common header");
    put_kernel(c, "busy", "busy source", "common header");
    assert_int_equal(room_total(j, &bytes, &keys), JOBS_OK);
    assert_int_equal(keys, 3);
    int64_t each = bytes / 3;
    assert_int_equal(room_used(j, "dear", 1, 9000, "A"), JOBS_OK);
    assert_int_equal(room_used(j, "cheap", 1, 10, "A"), JOBS_OK);
    assert_int_equal(room_used(j, "busy", 0, 1, "B"), JOBS_OK);
    submit(j, "busy", NULL); /* a live job: it is at work */
    room_limits l = {.bytes = bytes, .idle_ms = 60000};
    *evicted = 0;
    assert_int_equal(room_make(j, "", &l, 1, note_gone, c), JOBS_FULL); /* all were asked for lately */
    assert_string_equal(evicted, "");
    l.idle_ms = -1000;
    assert_int_equal(room_make(j, "", &l, 0, note_gone, c), JOBS_OK);
    assert_string_equal(evicted, "");
    assert_int_equal(room_make(j, "", &l, 1, note_gone, c), JOBS_OK);
    assert_string_equal(evicted, "cheap ");
    assert_false(has(other, "cheap"));
    assert_true(has(other, "dear") && has(other, "busy")); /* the shared header is still there */
    l = (room_limits){.tenant_bytes = each / 2, .idle_ms = -1000};
    assert_int_equal(room_make(j, "B", &l, each, note_gone, c), JOBS_FULL); /* its one kernel is at work */
    assert_int_equal(room_make(j, "A", &l, 1, note_gone, c), JOBS_OK);
    assert_string_equal(evicted, "cheap dear ");
    put_kernel(c, "cheap", "cheap source", "common header"); /* it can come back */
    assert_true(has(other, "cheap"));
    if (other != c) cache_close(other);
    cache_close(c);
    jobs_close(j);
}

/* A database of each earlier version is brought to today's and is of use. */
static void every_version_moves_forward(void **s)
{
    (void)s;
    static const struct { int version; const char *sql; } rows[] = {
#define X(version, sql) {version, sql},
#include "cache/migrations/sqlite.def"
#undef X
    };
    for (size_t upto = 1; upto < sizeof rows / sizeof *rows; upto++) {
        char path[128], cmd[160], note[100];
        sqlite3 *db;
        snprintf(path, sizeof path, "%s/kiln.db", dir);
        assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
        assert_int_equal(sqlite3_exec(db, "CREATE TABLE migration(version INTEGER PRIMARY KEY, applied_ms INTEGER NOT NULL)", NULL, NULL, NULL), 0);
        for (size_t i = 0; i < upto; i++) {
            snprintf(note, sizeof note, "INSERT INTO migration VALUES(%d, 1)", rows[i].version);
            assert_int_equal(sqlite3_exec(db, rows[i].sql, NULL, NULL, NULL), SQLITE_OK);
            assert_int_equal(sqlite3_exec(db, note, NULL, NULL, NULL), SQLITE_OK);
        }
        sqlite3_close(db);
        cache_error e;
        cache *c = cache_open(&(cache_config){.data_dir = dir}, &e);
        assert_non_null(c);
        put_kernel(c, "k", "source", "header");
        assert_true(has(c, "k"));
        jobs *j = open_jobs();
        submit(j, "k", NULL);
        jobs_close(j);
        cache_close(c);
        snprintf(cmd, sizeof cmd, "rm -f '%s'*", path);
        assert_int_equal(system(cmd), 0);
    }
}

static void every_version_moves_forward_postgres(void **s)
{
    (void)s;
    static const struct { int version; const char *sql; } rows[] = {
#define X(version, sql) {version, sql},
#include "cache/migrations/postgres.def"
#undef X
    };
    jobs_close(open_jobs()); /* skips without a server */
    for (size_t upto = 6; upto < sizeof rows / sizeof *rows; upto += 4) {
        char note[100];
        done(s);
        assert_int_equal(postgres(s), 0);
        PGconn *db = PQconnectdb(server);
        PQclear(PQexec(db, "CREATE TABLE kiln_migration(version bigint PRIMARY KEY, applied_ms bigint NOT NULL)"));
        for (size_t i = 0; i < upto; i++) {
            snprintf(note, sizeof note, "INSERT INTO kiln_migration VALUES(%d, 1)", rows[i].version);
            PGresult *r = PQexec(db, rows[i].sql);
            assert_int_equal(PQresultStatus(r), PGRES_COMMAND_OK);
            PQclear(r);
            PQclear(PQexec(db, note));
        }
        PQfinish(db);
        jobs *j = open_jobs();
        submit(j, "k", NULL);
        jobs_close(j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(the_least_worth_goes),
        ON(every_version_moves_forward, embedded),
        ON(every_version_moves_forward_postgres, postgres),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
