/* Room in the store: sums, and eviction by value in transactions that no put runs beside. */
#include "jobs/room.h"
#include <stdio.h>
#include <string.h>
#include "jobs/private_posix.h"

static bool sums(jobs_tx *t, const char *tenant, int64_t out[3])
{
    jobs_rows rows;
    if (!jobs_sql(t, JOBS_SQL_ROOM, &rows, "s", tenant)) return false;
    for (int i = 0; i < 3; i++) out[i] = jobs_number(&rows, 0, i);
    jobs_rows_free(&rows);
    return true;
}

static bool evict(jobs_tx *t, const char *key)
{
    static const enum jobs_sql steps[] = {JOBS_SQL_EVICT_RECORD, JOBS_SQL_EVICT_VERDICT, JOBS_SQL_EVICT_BLOB, JOBS_SQL_EVICT_REF, JOBS_SQL_EVICT_USE};
    jobs_event e = {.kind = "evicted"};
    snprintf(e.key, sizeof e.key, "%s", key);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (!jobs_sql(t, steps[i], NULL, "s", key)) return false;
    return jobs_note(t, &e) > 0;
}

static int64_t missing(const room_limits *l, const int64_t have[3], int64_t need, bool of_tenant)
{
    int64_t over = of_tenant ? (l->tenant_bytes ? have[1] + need - l->tenant_bytes : 0) : l->bytes ? have[0] + need - l->bytes : 0;
    return over > 0 ? over : 0;
}

/* Frees at least `want` bytes of what is least worth, of one tenant or of all; false: less could go, or the database failed (t->ok). */
static bool free_some(jobs_tx *t, const char *tenant, int64_t want, int idle_ms, jobs_rows *victims, int *n)
{
    *n = 0;
    if (!jobs_sql(t, JOBS_SQL_VICTIMS, victims, "is", (int64_t)idle_ms, tenant)) return false;
    for (; *n < victims->n && want > 0; (*n)++) {
        if (!evict(t, jobs_cell(victims, *n, 0))) return false;
        want -= jobs_number(victims, *n, 1);
    }
    return want <= 0;
}

enum jobs_status room_make(jobs *j, const char *tenant, const room_limits *l, int64_t need, void (*gone)(void *user, const char *key), void *user)
{
    for (int round = 0; round < 64; round++) { /* 64 keys at a time, so that puts wait little */
        jobs_tx t;
        jobs_rows victims = {0};
        int64_t have[3];
        int n = 0;
        bool some = true;
        if (!jobs_tx_begin(j, &t)) return JOBS_ERROR;
        bool ok = jobs_sql(&t, JOBS_SQL_ALONE, NULL, "") && sums(&t, tenant, have);
        int64_t all = ok ? missing(l, have, need, false) : 0, own = ok ? missing(l, have, need, true) : 0;
        if (all || own) some = free_some(&t, own ? tenant : "", own ? own : all, l->idle_ms, &victims, &n);
        ok = ok && t.ok;
        bool done = jobs_tx_end(&t, n > 0);
        for (int i = 0; i < n && done; i++) gone(user, jobs_cell(&victims, i, 0));
        if (victims.cell) jobs_rows_free(&victims);
        if (n > 0 && done) cache_news_tell(j->news);
        if (!ok || (n > 0 && !done)) return JOBS_ERROR;
        if (!all && !own) return JOBS_OK;
        if (!some && n < 64) return JOBS_FULL;
    }
    return JOBS_FULL;
}

enum jobs_status room_used(jobs *j, const char *key, int64_t hits, int64_t cost_ms, const char *tenant)
{
    jobs_tx t;
    if (!jobs_tx_begin(j, &t)) return JOBS_ERROR;
    jobs_sql(&t, JOBS_SQL_USED, NULL, "siis", key, hits, cost_ms, tenant ? tenant : "");
    return jobs_tx_end(&t, true) ? JOBS_OK : JOBS_ERROR;
}

enum jobs_status room_total(jobs *j, int64_t *bytes, int64_t *keys)
{
    jobs_tx t;
    int64_t have[3] = {0};
    if (!jobs_tx_begin(j, &t)) return JOBS_ERROR;
    bool ok = sums(&t, "", have);
    jobs_tx_end(&t, false);
    *bytes = have[0];
    *keys = have[2];
    return ok ? JOBS_OK : JOBS_ERROR;
}
