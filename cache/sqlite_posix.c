/* Opens, checks, migrates and, when it is corrupt, sets aside the embedded database; lends its connections. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cache/sqlite_posix.h"

enum { CHECK_WHOLE_BYTES = 64 << 20, BUSY_MS = 5000 };

static const struct { int version; const char *sql; } migrations[] = {
#define X(version, sql) {version, sql},
#include "cache/migrations/sqlite.def"
#undef X
};

static bool exec(sqlite3 *db, const char *sql)
{
    return sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK;
}

static int64_t number(sqlite3 *db, const char *sql, int64_t otherwise)
{
    sqlite3_stmt *st;
    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK) return otherwise;
    int64_t x = sqlite3_step(st) == SQLITE_ROW ? sqlite3_column_int64(st, 0) : otherwise;
    sqlite3_finalize(st);
    return x;
}

/* FULL: the log is synced at every commit, so a put survives power loss too, for about a fifth more time than NORMAL (README.md). */
static bool connect(sqlite_conn *c, const char *path)
{
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    if (sqlite3_open_v2(path, &c->db, flags, NULL) != SQLITE_OK) return false;
    sqlite3_busy_timeout(c->db, BUSY_MS);
    return exec(c->db, "PRAGMA journal_mode=WAL") && exec(c->db, "PRAGMA synchronous=FULL");
}

static void disconnect(sqlite_conn *c)
{
    for (int i = 0; i < SQL_COUNT; i++) {
        sqlite3_finalize(c->st[i]);
        c->st[i] = NULL;
    }
    sqlite3_close(c->db);
    c->db = NULL;
}

static bool quick_check(sqlite3 *db)
{
    sqlite3_stmt *st;
    if (sqlite3_prepare_v2(db, "PRAGMA quick_check(1)", -1, &st, NULL) != SQLITE_OK) return false;
    const char *text = sqlite3_step(st) == SQLITE_ROW ? (const char *)sqlite3_column_text(st, 0) : NULL;
    bool ok = text && !strcmp(text, "ok");
    sqlite3_finalize(st);
    return ok;
}

static bool migrate(sqlite3 *db, cache_error *e)
{
    if (!exec(db, "BEGIN IMMEDIATE")) return false;
    bool ok = exec(db, "CREATE TABLE IF NOT EXISTS migration(version INTEGER PRIMARY KEY, applied_ms INTEGER NOT NULL)");
    int64_t have = number(db, "SELECT COALESCE(MAX(version), 0) FROM migration", 0);
    int count = (int)(sizeof migrations / sizeof *migrations);
    if (ok && have > migrations[count - 1].version) {
        snprintf(e->message, sizeof e->message, "the database is of version %lld, this program knows %d; a newer program wrote it",
                 (long long)have, migrations[count - 1].version);
        ok = false;
    }
    for (int i = 0; ok && i < count; i++) {
        if (migrations[i].version <= have) continue;
        char note[128];
        snprintf(note, sizeof note, "INSERT INTO migration VALUES(%d, %lld)", migrations[i].version, (long long)cache_unix_ms());
        ok = exec(db, migrations[i].sql) && exec(db, note);
    }
    if (ok && exec(db, "COMMIT")) return true;
    int code = sqlite3_errcode(db);
    if (!e->message[0]) snprintf(e->message, sizeof e->message, "%s (%d)", sqlite3_errmsg(db), code);
    exec(db, "ROLLBACK");
    return false;
}

sqlite3 *cache_sqlite_connect(const char *path, cache_error *e)
{
    sqlite_conn c = {.db = NULL};
    e->message[0] = 0;
    if (connect(&c, path) && migrate(c.db, e)) return c.db;
    if (!e->message[0]) snprintf(e->message, sizeof e->message, "%.180s: %s", path, c.db ? sqlite3_errmsg(c.db) : "out of memory");
    sqlite3_close(c.db);
    return NULL;
}

/* SQLite's code, SQLITE_OK when the store is usable. */
static int try_open(sqlite_tier *t, const char *path, cache_error *e)
{
    struct stat s;
    bool small = stat(path, &s) == 0 && s.st_size <= CHECK_WHOLE_BYTES;
    e->message[0] = 0;
    bool ok = connect(&t->writer, path);
    int code = t->writer.db ? sqlite3_errcode(t->writer.db) : SQLITE_NOMEM;
    if (ok && small && !quick_check(t->writer.db)) {
        ok = false;
        code = SQLITE_CORRUPT;
    }
    if (ok && !migrate(t->writer.db, e)) {
        ok = false;
        code = sqlite3_errcode(t->writer.db) & 0xff;
        if (code == SQLITE_OK) code = SQLITE_ERROR;
    }
    for (int i = 0; ok && i < SQLITE_READERS; i++) {
        ok = connect(&t->readers[i], path) && exec(t->readers[i].db, "PRAGMA query_only=1");
        code = ok ? SQLITE_OK : SQLITE_CANTOPEN;
    }
    if (ok) return SQLITE_OK;
    if (!e->message[0]) snprintf(e->message, sizeof e->message, "%.180s: %s", path, sqlite3_errstr(code));
    disconnect(&t->writer);
    for (int i = 0; i < SQLITE_READERS; i++) disconnect(&t->readers[i]);
    return code ? code : SQLITE_ERROR;
}

static bool move_aside(const char *path, char *aside, size_t size)
{
    static const char *const parts[] = {"", "-wal", "-shm"};
    int n = 1;
    do snprintf(aside, size, "%s.corrupt-%d", path, n); while (access(aside, F_OK) == 0 && ++n < 10000);
    for (int i = 0; i < 3; i++) {
        char from[1024], to[1024];
        snprintf(from, sizeof from, "%s%s", path, parts[i]);
        snprintf(to, sizeof to, "%s%s", aside, parts[i]);
        if (rename(from, to) != 0 && errno != ENOENT) return false;
    }
    return true;
}

enum cache_status cache_sqlite_open(sqlite_tier *t, const char *dir, cache_error *e)
{
    char path[768], aside[800];
    if (strlen(dir) > 700) {
        snprintf(e->message, sizeof e->message, "the data directory's path is longer than 700 bytes");
        return CACHE_ERROR;
    }
    if (mkdir(dir, 0700) != 0 && errno != EEXIST) {
        snprintf(e->message, sizeof e->message, "cannot make %.160s: %s", dir, strerror(errno));
        return CACHE_ERROR;
    }
    pthread_mutex_init(&t->writer.lock, NULL);
    for (int i = 0; i < SQLITE_READERS; i++) pthread_mutex_init(&t->readers[i].lock, NULL);
    snprintf(path, sizeof path, "%s/kiln.db", dir);
    int code = try_open(t, path, e);
    if ((code == SQLITE_CORRUPT || code == SQLITE_NOTADB) && move_aside(path, aside, sizeof aside)) {
        fprintf(stderr, "kiln: the cache database is corrupt; kept as %s, starting with an empty one\n", aside);
        atomic_fetch_add(&t->base.corrupt_database, 1);
        code = try_open(t, path, e);
    }
    return code == SQLITE_OK ? CACHE_OK : CACHE_ERROR;
}

void cache_sqlite_close(sqlite_tier *t)
{
    for (int i = 0; i < SQLITE_READERS; i++) {
        disconnect(&t->readers[i]);
        pthread_mutex_destroy(&t->readers[i].lock);
    }
    disconnect(&t->writer);
    pthread_mutex_destroy(&t->writer.lock);
}

sqlite_conn *cache_sqlite_reader(sqlite_tier *t)
{
    unsigned first = atomic_fetch_add(&t->turn, 1);
    for (unsigned i = 0; i < SQLITE_READERS; i++) {
        sqlite_conn *c = &t->readers[(first + i) % SQLITE_READERS];
        if (pthread_mutex_trylock(&c->lock) == 0) return c;
    }
    sqlite_conn *c = &t->readers[first % SQLITE_READERS];
    pthread_mutex_lock(&c->lock);
    return c;
}

sqlite_conn *cache_sqlite_writer(sqlite_tier *t)
{
    pthread_mutex_lock(&t->writer.lock);
    return &t->writer;
}

void cache_sqlite_done(sqlite_conn *c)
{
    pthread_mutex_unlock(&c->lock);
}

sqlite3_stmt *cache_sqlite_bind(sqlite_conn *c, enum statement which, const char *format, ...)
{
    static const char *const sql[] = {
#define X(name, text) text,
        STATEMENTS(X)
#undef X
    };
    sqlite3_stmt **st = &c->st[which];
    if (!*st && sqlite3_prepare_v3(c->db, sql[which], -1, SQLITE_PREPARE_PERSISTENT, st, NULL) != SQLITE_OK) return NULL;
    va_list ap;
    va_start(ap, format);
    for (int i = 1; *format; format++, i++) {
        if (*format == 's') sqlite3_bind_text(*st, i, va_arg(ap, const char *), -1, SQLITE_STATIC);
        else if (*format == 'i') sqlite3_bind_int64(*st, i, va_arg(ap, int64_t));
        else {
            const kiln_bytes *b = va_arg(ap, const kiln_bytes *);
            sqlite3_bind_blob64(*st, i, b->n ? b->p : "", b->n, SQLITE_STATIC);
        }
    }
    va_end(ap);
    return *st;
}

bool cache_sqlite_run(sqlite3_stmt *st)
{
    if (!st) return false;
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) continue;
    sqlite3_reset(st);
    return rc == SQLITE_DONE;
}
