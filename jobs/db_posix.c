/* One way to speak to both databases: statements with the few words that differ replaced, transactions, results as text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cache/sqlite_posix.h"
#include "jobs/private_posix.h"

static const char *const statements[] = {
#define X(name, text) text,
#include "jobs/sql.def"
#undef X
};
/* {word} in PostgreSQL and in SQLite. In SQLite a writer is alone from BEGIN IMMEDIATE on: there is nothing to lock or to pass over. */
static const struct { const char *word, *postgres, *sqlite; } words[] = {
    {"{NOW}", "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)", "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"},
    {"{LOCK}", " FOR UPDATE", ""},
    {"{SKIP}", " FOR UPDATE SKIP LOCKED", ""},
    {"{SKIP_J}", " FOR UPDATE OF j SKIP LOCKED", ""},
    {"{T}", "kiln_", ""},
    {"{ALONE}", "SELECT pg_advisory_xact_lock(1802071141)", "SELECT 1"},
    {"{IMMEDIATE}", "", " IMMEDIATE"},
    {"{FIND ", "position(", "instr("},
};

/* "{FIND a IN b}" has its arguments the other way round in SQLite: instr(b, a). */
static size_t find_call(const char *from, bool postgres, char *out)
{
    const char *in = strstr(from, " IN "), *end = strchr(from, '}');
    int needle = (int)(in - from), hay = (int)(end - in - 4);
    if (postgres) sprintf(out, "position(%.*s IN %.*s)", needle, from, hay, in + 4);
    else sprintf(out, "instr(%.*s, %.*s)", hay, in + 4, needle, from);
    return (size_t)(end + 1 - from);
}

static char *translate(const char *sql, bool postgres)
{
    char *out = malloc(strlen(sql) * 2 + 800), *at = out;
    if (!out) return NULL;
    while (*sql) {
        size_t w = 0, count = sizeof words / sizeof *words;
        while (w < count && strncmp(sql, words[w].word, strlen(words[w].word))) w++;
        if (w == count) *at++ = *sql++;
        else {
            sql += strlen(words[w].word);
            if (w == count - 1) sql += find_call(sql, postgres, at);
            else strcpy(at, postgres ? words[w].postgres : words[w].sqlite);
            at += strlen(at);
            *at = 0;
            continue;
        }
    }
    *at = 0;
    return out;
}

static void forget(jobs *j)
{
    cache_news_close(j->news);
    for (int i = 0; i < JOBS_SQL_COUNT; i++) {
        sqlite3_finalize(j->st[i]);
        free(j->sql[i]);
    }
    sqlite3_close(j->lite);
    cache_postgres_close(j->pg);
    pthread_mutex_destroy(&j->lock);
    free(j);
}

jobs *jobs_open(const jobs_config *cfg, char *why, size_t size)
{
    cache_error e = {""};
    char path[800] = "";
    bool postgres = cfg->postgres_url && *cfg->postgres_url, ok = true;
    jobs *j = calloc(1, sizeof *j);
    snprintf(why, size, "out of memory");
    if (!j) return NULL;
    j->cfg = *cfg;
    if (!j->cfg.lease_ms) j->cfg.lease_ms = 20000;
    if (!j->cfg.beat_ms) j->cfg.beat_ms = 5000;
    if (!j->cfg.attempts) j->cfg.attempts = 5;
    if (!j->cfg.tenant_max) j->cfg.tenant_max = 10000;
    pthread_mutex_init(&j->lock, NULL);
    for (int i = 0; i < JOBS_SQL_COUNT; i++) ok = (j->sql[i] = translate(statements[i], postgres)) != NULL && ok;
    if (ok && postgres) ok = (j->pg = cache_postgres_open(cfg->postgres_url, &e)) != NULL;
    else if (ok) {
        snprintf(path, sizeof path, "%.700s/kiln.db", cfg->data_dir ? cfg->data_dir : ".");
        ok = (j->lite = cache_sqlite_connect(path, &e)) != NULL;
    }
    if (!ok && e.message[0]) snprintf(why, size, "%s", e.message);
    if (ok && (j->news = cache_news_open(postgres ? cfg->postgres_url : NULL, path))) return j;
    forget(j);
    return NULL;
}

void jobs_close(jobs *j)
{
    if (j) forget(j);
}

bool jobs_tx_begin(jobs *j, jobs_tx *t)
{
    *t = (jobs_tx){.j = j, .ok = true};
    if (j->pg) {
        t->pg = cache_postgres_take(j->pg);
        t->ok = t->pg != NULL;
        if (!t->ok) return false;
    } else pthread_mutex_lock(&j->lock);
    if (jobs_sql(t, JOBS_SQL_BEGIN, NULL, "")) return true;
    if (j->pg) cache_postgres_done(j->pg, t->pg, false);
    else pthread_mutex_unlock(&j->lock);
    return false;
}

bool jobs_tx_end(jobs_tx *t, bool commit)
{
    bool done = t->ok && commit && jobs_sql(t, JOBS_SQL_COMMIT, NULL, "");
    if (!done && (t->ok || !t->j->pg)) { /* a connection of PostgreSQL that failed is closed, which rolls back too */
        bool was = t->ok;
        t->ok = true;
        t->ok = jobs_sql(t, JOBS_SQL_ROLLBACK, NULL, "") && was;
    }
    if (t->j->pg) cache_postgres_done(t->j->pg, t->pg, t->ok);
    else pthread_mutex_unlock(&t->j->lock);
    return done;
}

void jobs_rows_free(jobs_rows *r)
{
    for (int i = 0; i < r->n * r->columns; i++) free(r->cell[i]);
    free(r->cell);
    *r = (jobs_rows){0};
}

const char *jobs_cell(const jobs_rows *r, int row, int column) { return r->cell[row * r->columns + column]; }
int64_t jobs_number(const jobs_rows *r, int row, int column) { return strtoll(jobs_cell(r, row, column), NULL, 10); }

static bool grow(jobs_rows *r)
{
    char **cell = realloc(r->cell, sizeof *cell * (size_t)(r->n + 1) * (size_t)r->columns);
    if (!cell) return false;
    r->cell = cell;
    memset(cell + r->n * r->columns, 0, sizeof *cell * (size_t)r->columns);
    r->n++;
    return true;
}

static char *pg_cell(const PGresult *r, int row, int column)
{
    char number[24];
    if (PQftype(r, column) == 20 /* bigint */ && !PQgetisnull(r, row, column)) {
        snprintf(number, sizeof number, "%lld", (long long)cache_postgres_int(r, row, column));
        return strdup(number);
    }
    return strndup(PQgetvalue(r, row, column), (size_t)PQgetlength(r, row, column));
}

static bool ask_postgres(jobs_tx *t, const char *sql, jobs_rows *rows, const char *format, va_list ap)
{
    PGresult *r = cache_postgres_vask(t->pg, sql, format, ap);
    bool ok = r != NULL;
    if (ok && rows) {
        rows->columns = PQnfields(r);
        for (int i = 0; ok && i < PQntuples(r); i++) {
            ok = grow(rows);
            for (int k = 0; ok && k < rows->columns; k++) ok = (rows->cell[i * rows->columns + k] = pg_cell(r, i, k)) != NULL;
        }
    }
    PQclear(r);
    return ok;
}

static bool ask_sqlite(jobs *j, enum jobs_sql which, jobs_rows *rows, const char *format, va_list ap)
{
    sqlite3_stmt **st = &j->st[which];
    int rc = SQLITE_ERROR;
    if (!*st && sqlite3_prepare_v3(j->lite, j->sql[which], -1, SQLITE_PREPARE_PERSISTENT, st, NULL) != SQLITE_OK) return false;
    for (int i = 1; *format; format++, i++) {
        char name[16];
        snprintf(name, sizeof name, "$%d", i);
        int at = sqlite3_bind_parameter_index(*st, name);
        if (*format == 's') sqlite3_bind_text(*st, at, va_arg(ap, const char *), -1, SQLITE_STATIC);
        else sqlite3_bind_int64(*st, at, va_arg(ap, int64_t));
    }
    if (rows) rows->columns = sqlite3_column_count(*st);
    bool ok = true;
    while (ok && (rc = sqlite3_step(*st)) == SQLITE_ROW) {
        if (!rows) continue;
        ok = grow(rows);
        for (int k = 0; ok && k < rows->columns; k++) {
            const char *text = (const char *)sqlite3_column_text(*st, k);
            ok = (rows->cell[(rows->n - 1) * rows->columns + k] = strdup(text ? text : "")) != NULL;
        }
    }
    sqlite3_reset(*st);
    sqlite3_clear_bindings(*st);
    return ok && rc == SQLITE_DONE;
}

bool jobs_sql(jobs_tx *t, enum jobs_sql which, jobs_rows *rows, const char *format, ...)
{
    va_list ap;
    if (rows) *rows = (jobs_rows){0};
    if (!t->ok) return false;
    va_start(ap, format);
    t->ok = t->j->pg ? ask_postgres(t, t->j->sql[which], rows, format, ap) : ask_sqlite(t->j, which, rows, format, ap);
    va_end(ap);
    if (!t->ok && rows) jobs_rows_free(rows);
    return t->ok;
}
