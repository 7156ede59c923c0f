/* Connections to the embedded database: one that writes, a few that read, each with its prepared statements. */
#ifndef CACHE_SQLITE_H
#define CACHE_SQLITE_H
#include <pthread.h>
#include <sqlite3.h>
#include "cache/tier.h"

/* The current verdict of a version is the last one, but a failure stays: a bad kernel is never served again. */
#define CURRENT "LEFT JOIN verdict v ON v.id = (SELECT id FROM verdict WHERE key = r.key AND version = r.version" \
    " ORDER BY state = 4 DESC, id DESC LIMIT 1)"
#define COLUMNS "SELECT r.version, r.body, v.state, v.json FROM record r " CURRENT
#define STATEMENTS(X) \
    X(BEGIN, "BEGIN IMMEDIATE") \
    X(COMMIT, "COMMIT") \
    X(ROLLBACK, "ROLLBACK") \
    X(LATEST, COLUMNS " WHERE r.key = ?1 ORDER BY r.version DESC") \
    X(VERSION, COLUMNS " WHERE r.key = ?1 AND r.version = ?2") \
    X(NEXT_VERSION, "SELECT COALESCE(MAX(version), 0) + 1 FROM record WHERE key = ?1") \
    X(NEXT_PROVISIONAL, "SELECT max(?2, (SELECT COALESCE(MAX(version), 0) + 1 FROM record WHERE key = ?1)," \
                        " (SELECT COALESCE(MAX(local), 0) + 1 FROM renumbered WHERE key = ?1))") \
    X(SUPERSEDE, "DELETE FROM record WHERE key = ?1 AND version = ?2 AND body <> ?3") \
    X(SUPERSEDE_VERDICTS, "DELETE FROM verdict WHERE key = ?1 AND version = ?2") \
    X(OWE, "INSERT INTO unsent(kind, key, version, state, json) VALUES(?1, ?2, ?3, ?4, ?5)") \
    X(OWED_NEXT, "SELECT id, kind, key, version, state, json FROM unsent WHERE id > ?1 ORDER BY id LIMIT 1") \
    X(PAID, "DELETE FROM unsent WHERE id = ?1") \
    X(NUMBER, "SELECT COALESCE((SELECT version FROM renumbered WHERE key = ?1 AND local = ?2), ?2)") \
    X(RENUMBERED, "INSERT OR REPLACE INTO renumbered(key, local, version) VALUES(?1, ?2, ?3)") \
    X(RENUMBER_CLEAR, "DELETE FROM record WHERE key = ?1 AND version = ?3 AND body <> (SELECT body FROM record WHERE key = ?1 AND version = ?2)") \
    X(RENUMBER_RECORD, "UPDATE OR IGNORE record SET version = ?3 WHERE key = ?1 AND version = ?2") \
    X(RENUMBER_REST, "DELETE FROM record WHERE key = ?1 AND version = ?2") \
    X(RENUMBER_VERDICTS, "UPDATE verdict SET version = ?3 WHERE key = ?1 AND version = ?2") \
    X(RENUMBER_UNSENT, "UPDATE unsent SET version = ?3 WHERE key = ?1 AND version = ?2") \
    X(PUT_DOC, "INSERT OR REPLACE INTO doc(kind, id, json, at_ms) VALUES(?1, ?2, ?3, ?4)") \
    X(DROP_DOC, "DELETE FROM doc WHERE kind = ?1 AND id = ?2") \
    X(GET_DOC, "SELECT json FROM doc WHERE kind = ?1 AND id = ?2") \
    X(FORGET_DOCS, "DELETE FROM doc WHERE kind = ?1 AND at_ms < ?2") \
    X(FORGET_IMPOSSIBLE, "DELETE FROM impossible WHERE fingerprint <> ?1 AND created_ms < ?2") \
    X(LIST_DOCS, "SELECT id, json, at_ms FROM doc WHERE kind = ?1 AND id > ?2 ORDER BY id LIMIT ?3") \
    X(PUT, "INSERT OR IGNORE INTO record(key, version, workload, build, target, origin, created_ms, body) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)") \
    X(VERDICT, "INSERT INTO verdict(key, version, state, json, created_ms) SELECT ?1, ?2, ?3, ?4, ?5 WHERE EXISTS" \
               " (SELECT 1 FROM record WHERE key = ?1 AND version = ?2)") \
    X(USE, "INSERT INTO kiln_use(key, tenant, bytes, hits, cost_ms, used_ms) VALUES(?1, '', ?2, 0, 0, ?3) ON CONFLICT(key) DO UPDATE" \
           " SET bytes = bytes + excluded.bytes, used_ms = excluded.used_ms") \
    X(REF, "INSERT OR IGNORE INTO kiln_ref(digest, key) VALUES(?1, ?2)") \
    X(BUMP, "UPDATE kiln_counter SET n = n + 1 WHERE id = 1") \
    X(EVENT, "INSERT INTO kiln_event(seq, at_ms, job, kind, key, version, epoch, worker, data)" \
             " SELECT n, ?1, '', ?2, ?3, ?4, 0, ?6, ?5 FROM kiln_counter WHERE id = 1") \
    X(GET_BLOB, "SELECT bytes FROM blob WHERE digest = ?1") \
    X(PUT_BLOB, "INSERT INTO blob(digest, bytes, created_ms) VALUES(?1, ?2, ?3)" \
                " ON CONFLICT(digest) DO UPDATE SET bytes = excluded.bytes WHERE bytes <> excluded.bytes") \
    X(DROP_BLOB, "DELETE FROM blob WHERE digest = ?1") \
    X(GET_IMPOSSIBLE, "SELECT json FROM impossible WHERE key = ?1 AND fingerprint = ?2") \
    X(PUT_IMPOSSIBLE, "INSERT OR REPLACE INTO impossible(key, fingerprint, canon, json, created_ms) VALUES(?1, ?2, ?3, ?4, ?5)") \
    X(LIST, COLUMNS " WHERE r.id < ?1 AND (?2 = '' OR r.target = ?2) AND r.version = (SELECT MAX(x.version) FROM record x WHERE x.key = r.key" \
            " AND NOT EXISTS (SELECT 1 FROM verdict f WHERE f.key = x.key AND f.version = x.version AND f.state = 4)) ORDER BY r.id DESC LIMIT ?3") \
    X(ID_OF, "SELECT MAX(id) FROM record WHERE key = ?1 AND (?2 = 0 OR version = ?2)") \
    X(PUT_TARGET, "INSERT OR REPLACE INTO target(id, json, created_ms) VALUES(?1, ?2, ?3)") \
    X(TARGETS, "SELECT id, json FROM target ORDER BY id")

enum statement {
#define X(name, sql) SQL_##name,
    STATEMENTS(X)
#undef X
    SQL_COUNT
};

enum { SQLITE_READERS = 4 };
typedef struct sqlite_conn { pthread_mutex_t lock; sqlite3 *db; sqlite3_stmt *st[SQL_COUNT]; } sqlite_conn;
typedef struct sqlite_tier {
    cache_tier base;
    sqlite_conn writer, readers[SQLITE_READERS];
    atomic_uint turn;
    bool behind;
    char process[24];
} sqlite_tier;

/* Opens and migrates dir/kiln.db. One that is corrupt is moved aside and counted; a fresh one takes its place. */
enum cache_status cache_sqlite_open(sqlite_tier *t, const char *dir, cache_error *e);
void cache_sqlite_close(sqlite_tier *t);
/* One more connection to the database, migrated; the caller closes it. NULL: *e says why. */
sqlite3 *cache_sqlite_connect(const char *path, cache_error *e);
sqlite_conn *cache_sqlite_reader(sqlite_tier *t); /* locked; give back with cache_sqlite_done */
sqlite_conn *cache_sqlite_writer(sqlite_tier *t);
void cache_sqlite_done(sqlite_conn *c);
/* Reset and ready to bind; NULL when it cannot be prepared. format: s text, i int64, b const kiln_bytes *. */
sqlite3_stmt *cache_sqlite_bind(sqlite_conn *c, enum statement which, const char *format, ...);
bool cache_sqlite_run(sqlite3_stmt *st); /* runs to the end and resets */
/* What a truth in front of this store has not taken yet (sqlite_owed_posix.c); as in tier_ops. */
enum cache_status cache_sqlite_owe(cache_tier *t, const cache_owed *o);
enum cache_status cache_sqlite_owed_next(cache_tier *t, int64_t after, cache_owed *o);
enum cache_status cache_sqlite_owed_paid(cache_tier *t, const cache_owed *o, int64_t version);
int64_t cache_sqlite_number(cache_tier *t, const char *key, int64_t version);
#endif
