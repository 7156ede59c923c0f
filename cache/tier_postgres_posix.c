/* The PostgreSQL tier: the truth of a fleet. Append-only tables; the database assigns the versions; a put is one transaction with its artifacts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cache/postgres_posix.h"

/* The database's own clock: those of services may be wrong, and eviction, the log and documents are compared with it. */
#define NOW "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)"
/* The current verdict of a version is the last one, but a failure stays. */
#define COLUMNS "SELECT r.version, r.body, v.state, v.json FROM kiln_record r LEFT JOIN LATERAL (SELECT state, json FROM kiln_verdict" \
    " WHERE key = r.key AND version = r.version ORDER BY (state = 4) DESC, id DESC LIMIT 1) v ON true"
/* No put of ours writes the same bytes twice: whoever did would bring a version back that failed, or that was replaced. */
#define ONCE " AND NOT EXISTS (SELECT 1 FROM kiln_record o WHERE o.key = r.key AND o.version < r.version AND o.body = r.body)"
#define LATEST COLUMNS " WHERE r.key = $1 AND r.version < $2::bigint AND COALESCE(v.state, 0) <> 4" ONCE " ORDER BY r.version DESC LIMIT 1"
#define VERSION COLUMNS " WHERE r.key = $1 AND r.version = $2::bigint" ONCE
/* One row a verdict, oldest first; one without any when there is none. */
#define HISTORY "SELECT h.version, h.body, v.state, v.json FROM kiln_record h LEFT JOIN kiln_verdict v ON v.key = h.key AND v.version = h.version" \
    " WHERE h.key = $1 AND h.version = (SELECT MAX(r.version) FROM kiln_record r WHERE r.key = $1 AND r.version < $2::bigint" ONCE ") ORDER BY v.id"
#define NEWEST "SELECT r.version, v.state FROM kiln_record r LEFT JOIN LATERAL (SELECT state FROM kiln_verdict WHERE key = r.key AND" \
    " version = r.version ORDER BY (state = 4) DESC, id DESC LIMIT 1) v ON true WHERE r.key = $1 AND COALESCE(v.state, 0) <> 4" ONCE \
    " ORDER BY r.version DESC LIMIT 1"
#define FAILURES "SELECT 1 FROM kiln_verdict WHERE key = $1 AND state = 4 LIMIT 1"
#define LIST COLUMNS " WHERE r.id < $1::bigint AND ($2::text = '' OR r.target = $2) AND r.version = (SELECT MAX(x.version) FROM kiln_record x" \
    " WHERE x.key = r.key AND NOT EXISTS (SELECT 1 FROM kiln_verdict f WHERE f.key = x.key AND f.version = x.version AND f.state = 4))" \
    " ORDER BY r.id DESC LIMIT $3::bigint"
#define PLACE "SELECT MAX(id) FROM kiln_record WHERE key = $1 AND ($2::bigint = 0 OR version = $2)"
/* No row: another service took the number; ask again. The same bytes again (an answer was lost, a replay was cut short) are the same version. */
#define PUT "WITH old AS (SELECT version FROM kiln_record WHERE key = $1 AND body = $8), new AS (INSERT INTO kiln_record(key, version, workload," \
    " build, target, origin, created_ms, body) SELECT $1, CASE WHEN $2::bigint > 0 THEN $2 ELSE COALESCE((SELECT MAX(version) FROM kiln_record" \
    " WHERE key = $1), 0) + 1 END, $3, $4, $5, $6, $7::bigint, $8 WHERE NOT EXISTS (SELECT 1 FROM old) ON CONFLICT DO NOTHING RETURNING version)" \
    " SELECT version, false FROM old UNION ALL SELECT version, true FROM new LIMIT 1"
#define VERDICT "INSERT INTO kiln_verdict(key, version, state, json, created_ms) SELECT $1, $2::bigint, $3::bigint, $4, " NOW \
    " WHERE EXISTS (SELECT 1 FROM kiln_record WHERE key = $1 AND version = $2)"
#define PUT_BLOB "INSERT INTO kiln_blob(digest, bytes, created_ms) VALUES($1, $2, " NOW ") ON CONFLICT(digest) DO UPDATE SET bytes = excluded.bytes" \
    " WHERE kiln_blob.bytes <> excluded.bytes"
#define PUT_IMPOSSIBLE "INSERT INTO kiln_impossible(key, fingerprint, canon, json, created_ms) VALUES($1, $2, $3, $4, " NOW ")" \
    " ON CONFLICT(key, fingerprint) DO UPDATE SET json = excluded.json, canon = excluded.canon, created_ms = excluded.created_ms"
#define PUT_TARGET "INSERT INTO kiln_target(id, json, created_ms) VALUES($1, $2, " NOW ")" \
    " ON CONFLICT(id) DO UPDATE SET json = excluded.json, created_ms = excluded.created_ms"
/* The log that jobs/ reads too: other processes learn from it what they should no longer have in memory. Last in a transaction, since the
 * counter is held until its end. */
#define EVENT "WITH c AS (UPDATE kiln_counter SET n = n + 1 WHERE id = 1 RETURNING n) INSERT INTO kiln_event(seq, at_ms, job, kind, key, version," \
    " epoch, worker, data) SELECT n, " NOW ", '', $1, $2, $3::bigint, 0, $5, $4 FROM c"
/* What a key takes, and who needs an artifact: eviction goes by it (jobs/room_posix.c). */
#define USE "INSERT INTO kiln_use(key, tenant, bytes, hits, cost_ms, used_ms) VALUES($1, '', $2, 0, 0, " NOW ") ON CONFLICT(key) DO UPDATE" \
    " SET bytes = kiln_use.bytes + excluded.bytes, used_ms = excluded.used_ms"
#define REF "INSERT INTO kiln_ref(digest, key) VALUES($1, $2) ON CONFLICT DO NOTHING"
enum { TRIES = 8 };

static postgres_tier *of(cache_tier *t) { return (postgres_tier *)t; }

static enum cache_status pg_open(const cache_config *cfg, cache_tier **out, cache_error *e)
{
    if (!cfg->postgres_url || !*cfg->postgres_url) return CACHE_MISS;
    postgres_tier *t = cache_postgres_open(cfg->postgres_url, e);
    if (!t) return CACHE_ERROR;
    snprintf(t->process, sizeof t->process, "%s", cfg->process ? cfg->process : "");
    *out = &t->base;
    return CACHE_OK;
}

static void pg_close(cache_tier *t) { cache_postgres_close(of(t)); }

/* Ends a call of one statement: the result is cleared, the connection given back. CACHE_MISS: it changed or found nothing. */
static enum cache_status end(postgres_tier *t, postgres_conn *c, PGresult *r)
{
    enum cache_status st = CACHE_ERROR;
    if (r) st = (PQresultStatus(r) == PGRES_TUPLES_OK ? PQntuples(r) : atoi(PQcmdTuples(r))) > 0 ? CACHE_OK : CACHE_MISS;
    cache_postgres_done(t, c, r != NULL);
    PQclear(r);
    return st;
}

static kiln_bytes field(const PGresult *r, int row, int column)
{
    return (kiln_bytes){PQgetvalue(r, row, column), (size_t)PQgetlength(r, row, column)};
}

/* The record of a row of COLUMNS; NULL (and counted) when its bytes are damaged. */
static cache_record *row_record(postgres_tier *t, const PGresult *r, int row)
{
    kiln_bytes body = field(r, row, 1);
    bool judged = !PQgetisnull(r, row, 2);
    char verdict[CACHE_VERDICT_BYTES] = "";
    if (judged) snprintf(verdict, sizeof verdict, "%.*s", PQgetlength(r, row, 3), PQgetvalue(r, row, 3));
    enum cache_verification v = judged ? (enum cache_verification)cache_postgres_int(r, row, 2) : CACHE_PENDING;
    cache_record *out = cache_record_decode(body.p, body.n, cache_postgres_int(r, row, 0), v, judged ? verdict : NULL);
    if (!out) atomic_fetch_add(&t->base.bad_record, 1);
    return out;
}

static enum cache_status pg_get(cache_tier *t, const char *key, int64_t version, cache_record **out)
{
    postgres_conn *c = cache_postgres_take(of(t));
    if (!c) return CACHE_ERROR;
    enum cache_status st = CACHE_MISS;
    int64_t below = INT64_MAX;
    bool more = true, ok = true;
    while (more && ok) { /* again only when a record was damaged: the one before serves */
        PGresult *r = version ? cache_postgres_ask(c, VERSION, "si", key, version) : cache_postgres_ask(c, LATEST, "si", key, below);
        ok = r != NULL;
        more = ok && PQntuples(r) > 0;
        if (more) {
            cache_record *got = row_record(of(t), r, 0);
            below = cache_postgres_int(r, 0, 0);
            if (got) {
                *out = got;
                st = got->verification == CACHE_FAILED ? CACHE_QUARANTINED : CACHE_OK;
            }
            more = !got && !version;
        }
        PQclear(r);
    }
    if (ok && st == CACHE_MISS && !version) {
        PGresult *r = cache_postgres_ask(c, FAILURES, "s", key);
        ok = r != NULL;
        if (ok && PQntuples(r) > 0) st = CACHE_QUARANTINED;
        PQclear(r);
    }
    cache_postgres_done(of(t), c, ok);
    return ok ? st : CACHE_ERROR;
}

static enum cache_status pg_history(cache_tier *t, const char *key, int64_t below, cache_record **out, cache_said **said, int *n)
{
    enum cache_status st = CACHE_MISS;
    postgres_conn *c = cache_postgres_take(of(t));
    if (!c) return CACHE_ERROR;
    PGresult *r = cache_postgres_ask(c, HISTORY, "si", key, below);
    bool ok = r != NULL;
    for (int rows; ok && st == CACHE_MISS && (rows = PQntuples(r)) > 0;) { /* again only when a record was damaged: the one before is told */
        *out = row_record(of(t), r, 0);
        *said = *out ? calloc((size_t)rows, sizeof **said) : NULL;
        st = !*out ? CACHE_MISS : *said ? CACHE_OK : CACHE_ERROR;
        for (*n = 0; st == CACHE_OK && *n < rows && !PQgetisnull(r, *n, 2); ++*n) {
            cache_said *s = &(*said)[*n];
            s->state = (enum cache_verification)cache_postgres_int(r, *n, 2);
            snprintf(s->text, sizeof s->text, "%.*s", PQgetlength(r, *n, 3), PQgetvalue(r, *n, 3));
        }
        below = cache_postgres_int(r, 0, 0);
        if (st != CACHE_MISS) break;
        PQclear(r);
        r = cache_postgres_ask(c, HISTORY, "si", key, below);
        ok = r != NULL;
    }
    PQclear(r);
    cache_postgres_done(of(t), c, ok);
    if (st == CACHE_ERROR) {
        cache_release(*out);
        *out = NULL;
    }
    return ok ? st : CACHE_ERROR;
}

static enum cache_status pg_newest(cache_tier *t, const char *key, int64_t *version, enum cache_verification *v)
{
    postgres_conn *c = cache_postgres_take(of(t));
    if (!c) return CACHE_ERROR;
    PGresult *r = cache_postgres_ask(c, NEWEST, "s", key);
    if (r && PQntuples(r) > 0) {
        *version = cache_postgres_int(r, 0, 0);
        *v = PQgetisnull(r, 0, 1) ? CACHE_PENDING : (enum cache_verification)cache_postgres_int(r, 0, 1);
    }
    return end(of(t), c, r);
}

static bool done(PGresult *r)
{
    PQclear(r);
    return r != NULL;
}

static bool account(postgres_conn *c, const cache_record *r, size_t body)
{
    if (!done(cache_postgres_ask(c, USE, "si", r->key, cache_record_room(r, body)))) return false;
    for (int i = 0; i < r->nartifacts; i++)
        if (!done(cache_postgres_ask(c, REF, "ss", r->artifacts[i].digest, r->key))) return false;
    return true;
}

static bool insert_all(postgres_tier *t, postgres_conn *c, cache_record *r, const cache_blob *blobs, int nblobs, const kiln_bytes *body)
{
    int64_t version = 0;
    bool fresh = false;
    /* Eviction takes the same lock alone: it never sees half of a put. */
    if (!done(cache_postgres_ask(c, "SELECT pg_advisory_xact_lock_shared($1)", "i", (int64_t)CACHE_EVICT_LOCK))) return false;
    /* Services that put the same key take turns; the unique constraint is what the promise rests on. */
    if (!r->version && !done(cache_postgres_ask(c, "SELECT pg_advisory_xact_lock($1)", "i", (int64_t)cache_hash(r->key)))) return false;
    for (int i = 0; i < TRIES && !version; i++) {
        PGresult *got = cache_postgres_ask(c, PUT, "sissssib", r->key, r->version, r->workload, r->build, r->target, r->origin, r->created_ms, body);
        if (!got) return false;
        if (PQntuples(got) > 0) {
            version = cache_postgres_int(got, 0, 0);
            fresh = *PQgetvalue(got, 0, 1) != 0;
        } else if (r->version)
            version = r->version; /* a given one is there already: it stays */
        PQclear(got);
    }
    if (!version) return false;
    r->version = version;
    if (fresh && (r->verification != CACHE_PENDING || r->verdict[0])) {
        kiln_bytes json = {r->verdict, strlen(r->verdict)};
        if (!done(cache_postgres_ask(c, VERDICT, "siib", r->key, version, (int64_t)r->verification, &json))) return false;
    }
    for (int i = 0; i < nblobs; i++)
        if (!done(cache_postgres_ask(c, PUT_BLOB, "sb", blobs[i].digest, &blobs[i].bytes))) return false;
    char data[CACHE_EVENT_BYTES];
    cache_event_put(r, data);
    if (fresh && !account(c, r, body->n)) return false;
    return !fresh || done(cache_postgres_ask(c, EVENT, "ssiss", "kernel", r->key, version, data, t->process));
}

static enum cache_status pg_put(cache_tier *t, cache_record *r, const cache_blob *blobs, int nblobs)
{
    kiln_bytes body;
    int64_t version = r->version;
    char *bytes = cache_record_encode(r, &body.n);
    postgres_conn *c = bytes ? cache_postgres_take(of(t)) : NULL;
    body.p = bytes;
    bool ok = c && cache_postgres_run(c, "BEGIN") && insert_all(of(t), c, r, blobs, nblobs, &body) && cache_postgres_run(c, "COMMIT");
    if (c) cache_postgres_done(of(t), c, ok);
    free(bytes);
    if (!ok) r->version = version;
    return ok ? CACHE_OK : CACHE_ERROR;
}

static enum cache_status pg_verdict(cache_tier *t, const char *key, int64_t version, enum cache_verification v, const char *json)
{
    kiln_bytes text = {json ? json : "", json ? strlen(json) : 0};
    char data[CACHE_EVENT_BYTES];
    postgres_conn *c = cache_postgres_take(of(t));
    if (!c) return CACHE_ERROR;
    PGresult *r = cache_postgres_run(c, "BEGIN") ? cache_postgres_ask(c, VERDICT, "siib", key, version, (int64_t)v, &text) : NULL;
    bool ok = r != NULL, known = ok && atoi(PQcmdTuples(r)) > 0;
    PQclear(r);
    const char *kind = cache_event_verdict(v, data);
    if (known) ok = done(cache_postgres_ask(c, EVENT, "ssiss", kind, key, version, data, of(t)->process));
    ok = ok && cache_postgres_run(c, "COMMIT");
    cache_postgres_done(of(t), c, ok);
    return !ok ? CACHE_ERROR : known ? CACHE_OK : CACHE_MISS;
}

/* The first column of the first row, as malloc'd bytes with a NUL behind. */
static enum cache_status one_value(postgres_tier *t, postgres_conn *c, PGresult *r, char **out, size_t *n)
{
    char *copy = NULL;
    if (r && PQntuples(r) > 0) {
        kiln_bytes b = field(r, 0, 0);
        copy = malloc(b.n + 1);
        if (copy) {
            if (b.n) memcpy(copy, b.p, b.n);
            copy[b.n] = 0;
            *out = copy;
            if (n) *n = b.n;
        }
    }
    enum cache_status st = end(t, c, r);
    return st == CACHE_OK && !copy ? CACHE_ERROR : st;
}

static enum cache_status pg_get_blob(cache_tier *t, const char *digest, char **bytes, size_t *n)
{
    postgres_conn *c = cache_postgres_take(of(t));
    return c ? one_value(of(t), c, cache_postgres_ask(c, "SELECT bytes FROM kiln_blob WHERE digest = $1", "s", digest), bytes, n) : CACHE_ERROR;
}

static enum cache_status pg_put_blob(cache_tier *t, const cache_blob *b)
{
    postgres_conn *c = cache_postgres_take(of(t));
    if (!c) return CACHE_ERROR;
    enum cache_status st = end(of(t), c, cache_postgres_ask(c, PUT_BLOB, "sb", b->digest, &b->bytes));
    return st == CACHE_MISS ? CACHE_OK : st; /* the same bytes were there */
}

static void pg_drop_blob(cache_tier *t, const char *digest)
{
    postgres_conn *c = cache_postgres_take(of(t));
    if (c) end(of(t), c, cache_postgres_ask(c, "DELETE FROM kiln_blob WHERE digest = $1", "s", digest));
}

static enum cache_status pg_get_impossible(cache_tier *t, const char *key, const char *fingerprint, char **json)
{
    static const char sql[] = "SELECT json FROM kiln_impossible WHERE key = $1 AND fingerprint = $2";
    postgres_conn *c = cache_postgres_take(of(t));
    return c ? one_value(of(t), c, cache_postgres_ask(c, sql, "ss", key, fingerprint), json, NULL) : CACHE_ERROR;
}

static enum cache_status pg_put_impossible(cache_tier *t, const char *key, kiln_bytes canon, const char *fingerprint, const char *json)
{
    kiln_bytes text = {json, strlen(json)};
    postgres_conn *c = cache_postgres_take(of(t));
    return c ? end(of(t), c, cache_postgres_ask(c, PUT_IMPOSSIBLE, "ssbb", key, fingerprint, &canon, &text)) : CACHE_ERROR;
}

/* A cursor is "KEY" or "KEY:VERSION": the place of the record last seen. An unknown one ends the list. False: could not be asked. */
static bool place_of(postgres_conn *c, const char *cursor, int64_t *place)
{
    char key[72];
    const char *colon = strchr(cursor, ':');
    size_t n = colon ? (size_t)(colon - cursor) : strlen(cursor);
    *place = *cursor ? 0 : INT64_MAX;
    if (!*cursor || n >= sizeof key) return true;
    memcpy(key, cursor, n);
    key[n] = 0;
    PGresult *r = cache_postgres_ask(c, PLACE, "si", key, colon ? (int64_t)strtoll(colon + 1, NULL, 10) : (int64_t)0);
    if (r && PQntuples(r) > 0) *place = cache_postgres_int(r, 0, 0);
    return done(r);
}

static int pg_list(cache_tier *t, const char *target, const char *cursor, int limit, cache_record **out)
{
    int64_t place;
    int n = 0;
    postgres_conn *c = cache_postgres_take(of(t));
    if (!c) return -1;
    PGresult *r = place_of(c, cursor, &place) ? cache_postgres_ask(c, LIST, "isi", place, target, (int64_t)limit) : NULL;
    for (int i = 0; r && i < PQntuples(r) && n < limit; i++)
        if ((out[n] = row_record(of(t), r, i))) n++;
    bool ok = r != NULL;
    end(of(t), c, r);
    return ok ? n : -1;
}

static enum cache_status pg_put_target(cache_tier *t, const char *id, kiln_bytes json)
{
    postgres_conn *c = cache_postgres_take(of(t));
    return c ? end(of(t), c, cache_postgres_ask(c, PUT_TARGET, "sb", id, &json)) : CACHE_ERROR;
}

static int pg_list_targets(cache_tier *t, char ***ids, char ***jsons)
{
    postgres_conn *c = cache_postgres_take(of(t));
    if (!c) return -1;
    PGresult *r = cache_postgres_ask(c, "SELECT id, json FROM kiln_target ORDER BY id", "");
    int n = r ? PQntuples(r) : -1;
    if (r) {
        *ids = calloc((size_t)n + 1, sizeof **ids);
        *jsons = calloc((size_t)n + 1, sizeof **jsons);
        if (!*ids || !*jsons) n = -1;
    }
    for (int i = 0; i < n; i++) {
        kiln_bytes json = field(r, i, 1);
        (*ids)[i] = strdup(PQgetvalue(r, i, 0));
        (*jsons)[i] = strndup(json.p, json.n);
    }
    end(of(t), c, r);
    return n;
}

static enum cache_status pg_put_doc(cache_tier *t, const char *kind, const char *id, kiln_bytes json)
{
    static const char put[] = "INSERT INTO kiln_doc(kind, id, json, at_ms) VALUES($1, $2, $3, " NOW ")"
                              " ON CONFLICT(kind, id) DO UPDATE SET json = excluded.json, at_ms = excluded.at_ms";
    postgres_conn *c = cache_postgres_take(of(t));
    if (!c) return atomic_load(&of(t)->full) ? CACHE_FULL : CACHE_ERROR;
    PGresult *r = json.p ? cache_postgres_ask(c, put, "ssb", kind, id, &json)
                         : cache_postgres_ask(c, "DELETE FROM kiln_doc WHERE kind = $1 AND id = $2", "ss", kind, id);
    bool full = !r && c->full;
    return end(of(t), c, r) != CACHE_ERROR ? CACHE_OK : full ? CACHE_FULL : CACHE_ERROR;
}

static enum cache_status pg_get_doc(cache_tier *t, const char *kind, const char *id, char **json)
{
    postgres_conn *c = cache_postgres_take(of(t));
    if (!c) return CACHE_ERROR;
    return one_value(of(t), c, cache_postgres_ask(c, "SELECT json FROM kiln_doc WHERE kind = $1 AND id = $2", "ss", kind, id), json, NULL);
}

static int64_t forget(cache_tier *t, const char *sql, const char *name, int64_t older_ms)
{
    postgres_conn *c = cache_postgres_take(of(t));
    if (!c) return -1;
    PGresult *r = cache_postgres_ask(c, sql, "si", name, older_ms);
    int64_t n = r ? atoll(PQcmdTuples(r)) : -1;
    end(of(t), c, r);
    return n;
}

static int64_t pg_forget_docs(cache_tier *t, const char *kind, int64_t older_ms)
{
    return forget(t, "DELETE FROM kiln_doc WHERE kind = $1 AND at_ms < " NOW " - CAST($2 AS bigint)", kind, older_ms);
}

static int64_t pg_forget_impossible(cache_tier *t, const char *fingerprint, int64_t older_ms)
{
    return forget(t, "DELETE FROM kiln_impossible WHERE fingerprint <> $1 AND created_ms < " NOW " - CAST($2 AS bigint)", fingerprint, older_ms);
}

static int pg_list_docs(cache_tier *t, const char *kind, const char *after, int limit, cache_doc *out)
{
    static const char sql[] = "SELECT id, json, at_ms FROM kiln_doc WHERE kind = $1 AND id > $2 ORDER BY id LIMIT $3";
    postgres_conn *c = cache_postgres_take(of(t));
    if (!c) return -1;
    PGresult *r = cache_postgres_ask(c, sql, "ssi", kind, after, (int64_t)limit);
    int n = r ? 0 : -1;
    for (int i = 0; r && i < PQntuples(r) && n < limit; i++) {
        kiln_bytes json = field(r, i, 1);
        snprintf(out[n].id, sizeof out[n].id, "%s", PQgetvalue(r, i, 0));
        out[n].at_ms = cache_postgres_int(r, i, 2);
        out[n].json = strndup(json.p, json.n);
        n += out[n].json != NULL;
    }
    end(of(t), c, r);
    return n;
}

static int64_t pg_now(cache_tier *t)
{
    postgres_conn *c = cache_postgres_take(of(t));
    if (!c) return 0;
    PGresult *r = cache_postgres_ask(c, "SELECT " NOW, "");
    int64_t now = r && PQntuples(r) > 0 ? cache_postgres_int(r, 0, 0) : 0;
    end(of(t), c, r);
    return now;
}

static bool pg_resting(cache_tier *t) { return cache_breaker_open(&of(t)->breaker); }

const tier_ops cache_tier_postgres = {
    .name = "postgres", .kind = TIER_STORE, .answer_ms = 1900, .shared = true, .trusted = false,
    .open = pg_open, .resting = pg_resting, .close = pg_close,
    .get = pg_get, .history = pg_history, .newest = pg_newest,
    .put = pg_put, .verdict = pg_verdict, .get_blob = pg_get_blob, .put_blob = pg_put_blob, .drop_blob = pg_drop_blob,
    .get_impossible = pg_get_impossible, .put_impossible = pg_put_impossible, .list = pg_list, .put_target = pg_put_target,
    .list_targets = pg_list_targets,
    .put_doc = pg_put_doc, .get_doc = pg_get_doc, .now = pg_now, .list_docs = pg_list_docs,
    .forget_docs = pg_forget_docs, .forget_impossible = pg_forget_impossible,
};
