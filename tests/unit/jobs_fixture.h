/* What the tests of jobs share: a database of its own for each test, embedded or a schema of the PostgreSQL that KILN_TEST_PG names. */
#ifndef JOBS_FIXTURE_H
#define JOBS_FIXTURE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include <libpq-fe.h>
#include "jobs/state.h"

static char dir[64];
static const char *server; /* NULL: the embedded database */
static int lease_ms;
enum { LEASE = 300, SHORT = 60, BEAT = 50 };

static inline void rest(int ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL); }

static inline int embedded(void **s)
{
    (void)s;
    server = NULL;
    lease_ms = LEASE;
    strcpy(dir, "/tmp/kiln-jobs-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

/* A schema of its own, so that tests do not see each other's jobs. */
static inline int postgres(void **s)
{
    static char url[400];
    static int serial;
    char sql[100], name[40];
    embedded(s);
    server = "";
    const char *base = getenv("KILN_TEST_PG");
    if (!base) return 0;
    snprintf(name, sizeof name, "jobs_%d_%d", (int)getpid(), ++serial);
    snprintf(sql, sizeof sql, "CREATE SCHEMA %s", name);
    PGconn *db = PQconnectdb(base);
    PQclear(PQexec(db, sql));
    PQfinish(db);
    snprintf(url, sizeof url, "%s?options=-csearch_path%%3D%s", base, name);
    server = url;
    return 0;
}

static inline int done(void **s)
{
    (void)s;
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    return system(cmd);
}

static inline jobs *open_with(int background_max, int tenant_max)
{
    char why[300];
    if (server && !*server) {
        print_message("# skipped: KILN_TEST_PG names no server\n");
        skip();
    }
    jobs_config cfg = {.data_dir = dir, .postgres_url = server, .lease_ms = lease_ms, .beat_ms = BEAT, .background_max = background_max,
                       .tenant_max = tenant_max};
    jobs *j = jobs_open(&cfg, why, sizeof why);
    if (!j) print_error("%s\n", why);
    assert_non_null(j);
    return j;
}
static inline jobs *open_jobs(void) { return open_with(0, 0); }

static inline void submit_as(jobs *j, const char *key, const char *tenant, enum jobs_kind kind, int priority, char id[40])
{
    jobs_job out;
    bool fresh;
    jobs_ask a = {.kind = kind, .key = key, .tenant = tenant, .class = -1, .priority = priority, .payload = "{}"};
    assert_int_equal(jobs_submit(j, &a, &out, &fresh), JOBS_OK);
    assert_true(fresh);
    assert_int_equal(out.state, JOBS_QUEUED);
    if (id) strcpy(id, out.id);
    jobs_job_free(&out);
}
static inline void submit(jobs *j, const char *key, char id[40]) { submit_as(j, key, "", JOBS_COMPILE, 0, id); }

#define ON(f, where) {#f " on " #where, f, where, done, NULL}
#define BOTH(f) ON(f, embedded), ON(f, postgres)
#endif
