/* What the truth in front of the embedded store has not taken yet: kept durably, in order, until it has. */
#include <stdio.h>
#include <string.h>
#include "cache/sqlite_posix.h"

static sqlite_tier *of(cache_tier *t) { return (sqlite_tier *)t; }

static int64_t number_of(sqlite_conn *c, const char *key, int64_t version)
{
    sqlite3_stmt *st = cache_sqlite_bind(c, SQL_NUMBER, "si", key, version);
    if (st && sqlite3_step(st) == SQLITE_ROW) version = sqlite3_column_int64(st, 0);
    if (st) sqlite3_reset(st);
    return version;
}

int64_t cache_sqlite_number(cache_tier *t, const char *key, int64_t version)
{
    sqlite_conn *c = cache_sqlite_reader(of(t));
    version = number_of(c, key, version);
    cache_sqlite_done(c);
    return version;
}

static enum cache_status commit(sqlite_conn *c, bool ok)
{
    ok = ok && cache_sqlite_run(cache_sqlite_bind(c, SQL_COMMIT, ""));
    if (!ok) cache_sqlite_run(cache_sqlite_bind(c, SQL_ROLLBACK, ""));
    cache_sqlite_done(c);
    return ok ? CACHE_OK : CACHE_ERROR;
}

enum cache_status cache_sqlite_owe(cache_tier *t, const cache_owed *o)
{
    const char kind[2] = {o->kind, 0};
    sqlite_conn *c = cache_sqlite_writer(of(t));
    bool ok = cache_sqlite_run(cache_sqlite_bind(c, SQL_BEGIN, ""));
    int64_t version = o->kind == 'v' ? number_of(c, o->key, o->version) : o->version, state = o->state;
    ok = ok && cache_sqlite_run(cache_sqlite_bind(c, SQL_OWE, "ssiis", kind, o->key, version, state, o->json));
    if (ok && o->kind == 'v') ok = cache_sqlite_run(cache_sqlite_bind(c, SQL_VERDICT, "siisi", o->key, version, state, o->json, cache_unix_ms()));
    return commit(c, ok);
}

enum cache_status cache_sqlite_owed_next(cache_tier *t, int64_t after, cache_owed *o)
{
    sqlite_conn *c = cache_sqlite_reader(of(t));
    sqlite3_stmt *st = cache_sqlite_bind(c, SQL_OWED_NEXT, "i", after);
    int rc = st ? sqlite3_step(st) : SQLITE_ERROR;
    if (rc == SQLITE_ROW) {
        o->id = sqlite3_column_int64(st, 0);
        o->kind = *(const char *)sqlite3_column_text(st, 1);
        snprintf(o->key, sizeof o->key, "%s", (const char *)sqlite3_column_text(st, 2));
        o->version = sqlite3_column_int64(st, 3);
        o->state = (enum cache_verification)sqlite3_column_int(st, 4);
        snprintf(o->json, sizeof o->json, "%s", (const char *)sqlite3_column_text(st, 5));
    }
    if (st) sqlite3_reset(st);
    cache_sqlite_done(c);
    return rc == SQLITE_ROW ? CACHE_OK : rc == SQLITE_DONE ? CACHE_MISS : CACHE_ERROR;
}

enum cache_status cache_sqlite_owed_paid(cache_tier *t, const cache_owed *o, int64_t version)
{
    sqlite_conn *c = cache_sqlite_writer(of(t));
    bool ok = cache_sqlite_run(cache_sqlite_bind(c, SQL_BEGIN, ""));
    ok = ok && cache_sqlite_run(cache_sqlite_bind(c, SQL_PAID, "i", o->id));
    if (ok && o->kind == 'r' && version != o->version) {
        static const enum statement steps[] = {SQL_RENUMBER_RECORD, SQL_RENUMBER_REST, SQL_RENUMBER_VERDICTS, SQL_RENUMBER_UNSENT, SQL_RENUMBERED};
        ok = cache_sqlite_run(cache_sqlite_bind(c, SQL_RENUMBER_CLEAR, "sii", o->key, o->version, version));
        if (ok && sqlite3_changes(c->db) > 0) ok = cache_sqlite_run(cache_sqlite_bind(c, SQL_SUPERSEDE_VERDICTS, "si", o->key, version));
        for (size_t i = 0; ok && i < sizeof steps / sizeof *steps; i++)
            ok = cache_sqlite_run(steps[i] == SQL_RENUMBER_REST ? cache_sqlite_bind(c, steps[i], "si", o->key, o->version)
                                                                : cache_sqlite_bind(c, steps[i], "sii", o->key, o->version, version));
    }
    return commit(c, ok);
}
