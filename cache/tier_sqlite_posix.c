/* The embedded tier: append-only records and verdicts, artifacts by digest, in one SQLite database; a put is one transaction. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cache/sqlite_posix.h"

static sqlite_tier *of(cache_tier *t) { return (sqlite_tier *)t; }

static enum cache_status db_open(const cache_config *cfg, cache_tier **out, cache_error *e)
{
    if (!cfg->data_dir) {
        snprintf(e->message, sizeof e->message, "no data directory given");
        return CACHE_ERROR;
    }
    sqlite_tier *t = calloc(1, sizeof *t);
    if (!t) {
        snprintf(e->message, sizeof e->message, "out of memory");
        return CACHE_ERROR;
    }
    if (cache_sqlite_open(t, cfg->data_dir, e) != CACHE_OK) {
        cache_sqlite_close(t);
        free(t);
        return CACHE_ERROR;
    }
    t->behind = cfg->postgres_url && *cfg->postgres_url;
    snprintf(t->process, sizeof t->process, "%s", cfg->process ? cfg->process : "");
    *out = &t->base;
    return CACHE_OK;
}

static void db_close(cache_tier *t)
{
    cache_sqlite_close(of(t));
    free(t);
}

/* The record of a row of COLUMNS; NULL (and counted) when its bytes are damaged. */
static cache_record *row_record(sqlite_tier *t, sqlite3_stmt *st)
{
    bool judged = sqlite3_column_type(st, 2) != SQLITE_NULL;
    enum cache_verification v = judged ? (enum cache_verification)sqlite3_column_int(st, 2) : CACHE_PENDING;
    const void *body = sqlite3_column_blob(st, 1);
    cache_record *r = cache_record_decode(body, (size_t)sqlite3_column_bytes(st, 1), sqlite3_column_int64(st, 0), v,
                                          judged ? (const char *)sqlite3_column_text(st, 3) : NULL);
    if (!r) atomic_fetch_add(&t->base.bad_record, 1);
    return r;
}

static enum cache_status db_get(cache_tier *t, const char *key, int64_t version, cache_record **out)
{
    sqlite_conn *c = cache_sqlite_reader(of(t));
    sqlite3_stmt *st = version ? cache_sqlite_bind(c, SQL_VERSION, "si", key, version) : cache_sqlite_bind(c, SQL_LATEST, "s", key);
    enum cache_status status = CACHE_MISS;
    int rc = SQLITE_ERROR;
    while (st && status != CACHE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        bool failed = sqlite3_column_type(st, 2) != SQLITE_NULL && sqlite3_column_int(st, 2) == CACHE_FAILED;
        if (failed) status = CACHE_QUARANTINED;
        if (failed && !version) continue;
        cache_record *r = row_record(of(t), st);
        if (!r) continue;
        if (!failed) status = CACHE_OK;
        *out = r;
    }
    if (rc != SQLITE_ROW && rc != SQLITE_DONE) status = CACHE_ERROR;
    if (st) sqlite3_reset(st);
    cache_sqlite_done(c);
    return status;
}

static enum cache_status db_newest(cache_tier *t, const char *key, int64_t *version, enum cache_verification *v)
{
    cache_record *r = NULL;
    enum cache_status st = db_get(t, key, 0, &r);
    if (st == CACHE_OK) {
        *version = r->version;
        *v = r->verification;
    }
    cache_release(r);
    return st;
}

/* Behind a truth, a version assigned here is provisional and owed; one that the truth assigned replaces what had its number here. */
static bool number(sqlite_tier *t, sqlite_conn *c, cache_record *r, const kiln_bytes *body)
{
    if (r->version) {
        if (!t->behind) return true;
        if (!cache_sqlite_run(cache_sqlite_bind(c, SQL_SUPERSEDE, "sib", r->key, r->version, body))) return false;
        return sqlite3_changes(c->db) == 0 || cache_sqlite_run(cache_sqlite_bind(c, SQL_SUPERSEDE_VERDICTS, "si", r->key, r->version));
    }
    sqlite3_stmt *st = t->behind ? cache_sqlite_bind(c, SQL_NEXT_PROVISIONAL, "si", r->key, CACHE_PROVISIONAL)
                                 : cache_sqlite_bind(c, SQL_NEXT_VERSION, "s", r->key);
    bool ok = st && sqlite3_step(st) == SQLITE_ROW;
    if (ok) r->version = sqlite3_column_int64(st, 0);
    if (st) sqlite3_reset(st);
    if (!ok || !t->behind) return ok;
    return cache_sqlite_run(cache_sqlite_bind(c, SQL_OWE, "ssiis", "r", r->key, r->version, (int64_t)0, ""));
}

/* In the log that jobs/ reads too; a store behind a truth leaves that to the truth. */
static bool note(sqlite_tier *t, sqlite_conn *c, const char *kind, const char *key, int64_t version, const char *data)
{
    if (t->behind) return true;
    return cache_sqlite_run(cache_sqlite_bind(c, SQL_BUMP, "")) &&
           cache_sqlite_run(cache_sqlite_bind(c, SQL_EVENT, "ississ", cache_unix_ms(), kind, key, version, data, t->process));
}

static bool insert_all(sqlite_tier *t, sqlite_conn *c, cache_record *r, const cache_blob *blobs, int nblobs, const kiln_bytes *body)
{
    int64_t now = cache_unix_ms();
    sqlite3_stmt *st;
    if (!number(t, c, r, body)) return false;
    st = cache_sqlite_bind(c, SQL_PUT, "sissssib", r->key, r->version, r->workload, r->build, r->target, r->origin, r->created_ms, body);
    if (!cache_sqlite_run(st)) return false;
    bool fresh = sqlite3_changes(c->db) > 0;
    if (fresh && (r->verification != CACHE_PENDING || r->verdict[0])) {
        st = cache_sqlite_bind(c, SQL_VERDICT, "siisi", r->key, r->version, (int64_t)r->verification, r->verdict, now);
        if (!cache_sqlite_run(st)) return false;
    }
    for (int i = 0; i < nblobs; i++)
        if (!cache_sqlite_run(cache_sqlite_bind(c, SQL_PUT_BLOB, "sbi", blobs[i].digest, &blobs[i].bytes, now))) return false;
    char data[CACHE_EVENT_BYTES];
    cache_event_put(r, data);
    if (fresh && !cache_sqlite_run(cache_sqlite_bind(c, SQL_USE, "sii", r->key, cache_record_room(r, body->n), now))) return false;
    for (int i = 0; fresh && i < r->nartifacts; i++)
        if (!cache_sqlite_run(cache_sqlite_bind(c, SQL_REF, "ss", r->artifacts[i].digest, r->key))) return false;
    return !fresh || note(t, c, "kernel", r->key, r->version, data);
}

/* The file of shared memory beside the log cannot grow either then: that is an error of input and output to SQLite. */
static bool no_room(sqlite3 *db)
{
    return (sqlite3_errcode(db) & 0xff) == SQLITE_FULL || ((sqlite3_errcode(db) & 0xff) == SQLITE_IOERR && sqlite3_system_errno(db) == ENOSPC);
}

static enum cache_status db_put(cache_tier *t, cache_record *r, const cache_blob *blobs, int nblobs)
{
    kiln_bytes body;
    char *bytes = cache_record_encode(r, &body.n);
    if (!bytes) return CACHE_ERROR;
    body.p = bytes;
    int64_t version = r->version;
    sqlite_conn *c = cache_sqlite_writer(of(t));
    bool ok = cache_sqlite_run(cache_sqlite_bind(c, SQL_BEGIN, "")), full = !ok && no_room(c->db);
    if (ok) {
        ok = insert_all(of(t), c, r, blobs, nblobs, &body) && cache_sqlite_run(cache_sqlite_bind(c, SQL_COMMIT, ""));
        full = !ok && no_room(c->db);
        if (!ok) cache_sqlite_run(cache_sqlite_bind(c, SQL_ROLLBACK, ""));
    }
    cache_sqlite_done(c);
    free(bytes);
    if (!ok) r->version = version;
    return ok ? CACHE_OK : full ? CACHE_FULL : CACHE_ERROR;
}

/* Ends one statement that writes and gives the connection back. CACHE_MISS: it changed nothing. CACHE_FULL: there was no room for it. */
static enum cache_status write_end(sqlite_conn *c, bool ok)
{
    enum cache_status st = !ok ? (no_room(c->db) ? CACHE_FULL : CACHE_ERROR) : sqlite3_changes(c->db) > 0 ? CACHE_OK : CACHE_MISS;
    cache_sqlite_done(c);
    return st;
}

static enum cache_status db_verdict(cache_tier *t, const char *key, int64_t version, enum cache_verification v, const char *json)
{
    char data[CACHE_EVENT_BYTES];
    sqlite_conn *c = cache_sqlite_writer(of(t));
    const char *kind = cache_event_verdict(v, data);
    bool ok = cache_sqlite_run(cache_sqlite_bind(c, SQL_BEGIN, "")), known = false;
    if (ok) {
        ok = cache_sqlite_run(cache_sqlite_bind(c, SQL_VERDICT, "siisi", key, version, (int64_t)v, json ? json : "", cache_unix_ms()));
        known = ok && sqlite3_changes(c->db) > 0;
        if (known) ok = note(of(t), c, kind, key, version, data);
        ok = ok && cache_sqlite_run(cache_sqlite_bind(c, SQL_COMMIT, ""));
        if (!ok) cache_sqlite_run(cache_sqlite_bind(c, SQL_ROLLBACK, ""));
    }
    cache_sqlite_done(c);
    return !ok ? CACHE_ERROR : known ? CACHE_OK : CACHE_MISS;
}

static enum cache_status db_put_blob(cache_tier *t, const cache_blob *b)
{
    sqlite_conn *c = cache_sqlite_writer(of(t));
    enum cache_status st = write_end(c, cache_sqlite_run(cache_sqlite_bind(c, SQL_PUT_BLOB, "sbi", b->digest, &b->bytes, cache_unix_ms())));
    return st == CACHE_MISS ? CACHE_OK : st; /* the same bytes were there */
}

static void db_drop_blob(cache_tier *t, const char *digest)
{
    sqlite_conn *c = cache_sqlite_writer(of(t));
    write_end(c, cache_sqlite_run(cache_sqlite_bind(c, SQL_DROP_BLOB, "s", digest)));
}

/* The first column of the first row, as malloc'd bytes with a NUL behind. */
static enum cache_status one_value(sqlite_conn *c, sqlite3_stmt *st, char **out, size_t *n)
{
    int rc = st ? sqlite3_step(st) : SQLITE_ERROR;
    enum cache_status status = rc == SQLITE_DONE ? CACHE_MISS : CACHE_ERROR;
    if (rc == SQLITE_ROW) {
        const void *p = sqlite3_column_blob(st, 0);
        size_t size = (size_t)sqlite3_column_bytes(st, 0);
        char *copy = malloc(size + 1);
        if (copy) {
            if (size) memcpy(copy, p, size);
            copy[size] = 0;
            *out = copy;
            if (n) *n = size;
            status = CACHE_OK;
        }
    }
    if (st) sqlite3_reset(st);
    cache_sqlite_done(c);
    return status;
}

static enum cache_status db_get_blob(cache_tier *t, const char *digest, char **bytes, size_t *n)
{
    sqlite_conn *c = cache_sqlite_reader(of(t));
    return one_value(c, cache_sqlite_bind(c, SQL_GET_BLOB, "s", digest), bytes, n);
}

static enum cache_status db_get_impossible(cache_tier *t, const char *key, const char *fingerprint, char **json)
{
    sqlite_conn *c = cache_sqlite_reader(of(t));
    return one_value(c, cache_sqlite_bind(c, SQL_GET_IMPOSSIBLE, "ss", key, fingerprint), json, NULL);
}

static enum cache_status db_put_impossible(cache_tier *t, const char *key, kiln_bytes canon, const char *fingerprint, const char *json)
{
    sqlite_conn *c = cache_sqlite_writer(of(t));
    return write_end(c, cache_sqlite_run(cache_sqlite_bind(c, SQL_PUT_IMPOSSIBLE, "ssbsi", key, fingerprint, &canon, json, cache_unix_ms())));
}

/* A cursor is "KEY" or "KEY:VERSION": the place of the record last seen. An unknown one ends the list. */
static int64_t place_of(sqlite_conn *c, const char *cursor)
{
    if (!*cursor) return INT64_MAX;
    char key[72];
    const char *colon = strchr(cursor, ':');
    size_t n = colon ? (size_t)(colon - cursor) : strlen(cursor);
    if (n >= sizeof key) return 0;
    memcpy(key, cursor, n);
    key[n] = 0;
    sqlite3_stmt *st = cache_sqlite_bind(c, SQL_ID_OF, "si", key, colon ? (int64_t)strtoll(colon + 1, NULL, 10) : (int64_t)0);
    int64_t id = st && sqlite3_step(st) == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
    if (st) sqlite3_reset(st);
    return id;
}

static int db_list(cache_tier *t, const char *target, const char *cursor, int limit, cache_record **out)
{
    sqlite_conn *c = cache_sqlite_reader(of(t));
    int64_t before = place_of(c, cursor);
    sqlite3_stmt *st = cache_sqlite_bind(c, SQL_LIST, "isi", before, target, (int64_t)limit);
    int n = 0, rc = SQLITE_ERROR;
    while (st && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        cache_record *r = row_record(of(t), st);
        if (r && n < limit) out[n++] = r;
        else cache_release(r);
    }
    if (st) sqlite3_reset(st);
    cache_sqlite_done(c);
    return rc == SQLITE_DONE ? n : n ? n : -1;
}

static enum cache_status db_put_target(cache_tier *t, const char *id, kiln_bytes json)
{
    sqlite_conn *c = cache_sqlite_writer(of(t));
    return write_end(c, cache_sqlite_run(cache_sqlite_bind(c, SQL_PUT_TARGET, "sbi", id, &json, cache_unix_ms())));
}

static int db_list_targets(cache_tier *t, char ***ids, char ***jsons)
{
    sqlite_conn *c = cache_sqlite_reader(of(t));
    sqlite3_stmt *st = cache_sqlite_bind(c, SQL_TARGETS, "");
    char **a = malloc(sizeof *a), **b = malloc(sizeof *b);
    int n = 0;
    while (st && a && b && sqlite3_step(st) == SQLITE_ROW) {
        char **more_a = realloc(a, sizeof *a * (size_t)(n + 2)), **more_b = realloc(b, sizeof *b * (size_t)(n + 2));
        if (more_a) a = more_a;
        if (more_b) b = more_b;
        if (!more_a || !more_b) break;
        a[n] = strdup((const char *)sqlite3_column_text(st, 0));
        b[n] = strndup((const char *)sqlite3_column_blob(st, 1), (size_t)sqlite3_column_bytes(st, 1));
        n++;
    }
    if (st) sqlite3_reset(st);
    cache_sqlite_done(c);
    *ids = a;
    *jsons = b;
    return st && a && b ? n : -1;
}

static enum cache_status db_put_doc(cache_tier *t, const char *kind, const char *id, kiln_bytes json)
{
    sqlite_conn *c = cache_sqlite_writer(of(t));
    if (!json.p) return write_end(c, cache_sqlite_run(cache_sqlite_bind(c, SQL_DROP_DOC, "ss", kind, id)));
    return write_end(c, cache_sqlite_run(cache_sqlite_bind(c, SQL_PUT_DOC, "ssbi", kind, id, &json, cache_unix_ms())));
}

static enum cache_status db_get_doc(cache_tier *t, const char *kind, const char *id, char **json)
{
    sqlite_conn *c = cache_sqlite_reader(of(t));
    return one_value(c, cache_sqlite_bind(c, SQL_GET_DOC, "ss", kind, id), json, NULL);
}

static int64_t forget(cache_tier *t, enum statement which, const char *name, int64_t before_ms)
{
    sqlite_conn *c = cache_sqlite_writer(of(t));
    bool ok = cache_sqlite_run(cache_sqlite_bind(c, which, "si", name, before_ms));
    int64_t n = ok ? sqlite3_changes(c->db) : -1;
    cache_sqlite_done(c);
    return n;
}

static int64_t db_forget_docs(cache_tier *t, const char *kind, int64_t older_ms)
{
    return forget(t, SQL_FORGET_DOCS, kind, cache_unix_ms() - older_ms);
}

static int64_t db_forget_impossible(cache_tier *t, const char *fingerprint, int64_t older_ms)
{
    return forget(t, SQL_FORGET_IMPOSSIBLE, fingerprint, cache_unix_ms() - older_ms);
}

static int db_list_docs(cache_tier *t, const char *kind, const char *after, int limit, cache_doc *out)
{
    sqlite_conn *c = cache_sqlite_reader(of(t));
    sqlite3_stmt *st = cache_sqlite_bind(c, SQL_LIST_DOCS, "ssi", kind, after, (int64_t)limit);
    int n = 0, rc = SQLITE_ERROR;
    while (st && n < limit && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        cache_doc *d = &out[n];
        snprintf(d->id, sizeof d->id, "%s", (const char *)sqlite3_column_text(st, 0));
        d->json = strndup((const char *)sqlite3_column_blob(st, 1), (size_t)sqlite3_column_bytes(st, 1));
        d->at_ms = sqlite3_column_int64(st, 2);
        n += d->json != NULL;
    }
    if (st) sqlite3_reset(st);
    cache_sqlite_done(c);
    return n == limit || rc == SQLITE_DONE ? n : -1;
}

static int64_t db_now(cache_tier *t)
{
    (void)t;
    return cache_unix_ms();
}

const tier_ops cache_tier_sqlite = {
    .name = "sqlite", .kind = TIER_STORE, .trusted = false, .open = db_open, .close = db_close, .get = db_get,
    .newest = db_newest, .put = db_put, .verdict = db_verdict,
    .get_blob = db_get_blob, .put_blob = db_put_blob, .drop_blob = db_drop_blob, .get_impossible = db_get_impossible,
    .put_impossible = db_put_impossible, .list = db_list, .put_target = db_put_target, .list_targets = db_list_targets,
    .put_doc = db_put_doc, .get_doc = db_get_doc, .list_docs = db_list_docs,
    .now = db_now, .forget_docs = db_forget_docs, .forget_impossible = db_forget_impossible,
    .owe = cache_sqlite_owe, .owed_next = cache_sqlite_owed_next, .owed_paid = cache_sqlite_owed_paid, .number = cache_sqlite_number,
};
