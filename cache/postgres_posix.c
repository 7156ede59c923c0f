/* Connections to PostgreSQL: dialled when needed, migrated once, asked with a deadline that holds even when the server falls silent. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "cache/postgres_posix.h"

/* The server ends a statement first; our own deadline is for a server that does not answer at all. */
#define STATEMENT_TIMEOUT "SET statement_timeout = 2000"
#define DISK_FULL "53100" /* SQLSTATE */
enum { DEADLINE_MS = 2500, WAIT_MS = 2000, CONNECT_MS = 2000, DEAR_MS = 1000, MIGRATION_LOCK = 0x6b696c6e, MAX_PARAMS = 24 };

static const struct { int version; const char *sql; } migrations[] = {
#define X(version, sql) {version, sql},
#include "cache/migrations/postgres.def"
#undef X
};

postgres_tier *cache_postgres_open(const char *url, cache_error *e)
{
    char *why = NULL;
    PQconninfoOption *options = PQconninfoParse(url, &why);
    if (!options) {
        snprintf(e->message, sizeof e->message, "the address of PostgreSQL cannot be read: %.180s", why ? why : "out of memory");
        PQfreemem(why);
        return NULL;
    }
    PQconninfoFree(options);
    postgres_tier *t = calloc(1, sizeof *t);
    if (!t || !(t->url = strdup(url))) {
        snprintf(e->message, sizeof e->message, "out of memory");
        free(t);
        return NULL;
    }
    cache_lender_open(&t->lender, POSTGRES_CONNS);
    return t;
}

void cache_postgres_close(postgres_tier *t)
{
    if (!t) return;
    for (int i = 0; i < POSTGRES_CONNS; i++) PQfinish(t->conns[i].db);
    cache_lender_close(&t->lender);
    free(t->url);
    free(t);
}

static void quiet(void *arg, const char *message)
{
    (void)arg;
    (void)message;
}

/* Waits for the socket until the deadline; also writes what is left to send. */
static bool wait_io(PGconn *db, int64_t deadline)
{
    int unsent = PQflush(db);
    int64_t left = deadline - cache_mono_ms();
    if (unsent < 0 || left <= 0) return false;
    struct pollfd p = {.fd = PQsocket(db), .events = (short)(unsent ? POLLIN | POLLOUT : POLLIN)};
    if (poll(&p, 1, (int)left) <= 0) return false;
    return !(p.revents & ~POLLOUT) || PQconsumeInput(db);
}

static int64_t within(const postgres_conn *c, int ms)
{
    int64_t until = cache_mono_ms() + ms;
    return c->until && c->until < until ? c->until : until;
}

static PGresult *result_of(postgres_conn *c)
{
    PGconn *db = c->db;
    int64_t deadline = within(c, DEADLINE_MS);
    PGresult *last = NULL;
    for (;;) {
        while (PQflush(db) > 0 || PQisBusy(db))
            if (!wait_io(db, deadline)) {
                PQclear(last);
                return NULL;
            }
        PGresult *r = PQgetResult(db);
        if (!r) break;
        PQclear(last);
        last = r;
    }
    ExecStatusType st = PQresultStatus(last);
    if (st == PGRES_TUPLES_OK || st == PGRES_COMMAND_OK) return last;
    const char *code = last ? PQresultErrorField(last, PG_DIAG_SQLSTATE) : NULL;
    c->full = code && !strcmp(code, DISK_FULL);
    PQclear(last);
    return NULL;
}

PGresult *cache_postgres_vask(postgres_conn *c, const char *sql, const char *format, va_list ap)
{
    const char *values[MAX_PARAMS];
    char numbers[MAX_PARAMS][24];
    int lengths[MAX_PARAMS], formats[MAX_PARAMS], n = 0;
    for (; format[n] && n < MAX_PARAMS; n++) {
        lengths[n] = formats[n] = 0;
        if (format[n] == 's') values[n] = va_arg(ap, const char *);
        else if (format[n] == 'i') {
            snprintf(numbers[n], sizeof numbers[n], "%lld", (long long)va_arg(ap, int64_t));
            values[n] = numbers[n];
        } else {
            const kiln_bytes *b = va_arg(ap, const kiln_bytes *);
            if (b->n > 512u << 20) return NULL;
            values[n] = b->n ? b->p : "";
            lengths[n] = (int)b->n;
            formats[n] = 1;
        }
    }
    return PQsendQueryParams(c->db, sql, n, NULL, values, lengths, formats, 1) ? result_of(c) : NULL;
}

PGresult *cache_postgres_ask(postgres_conn *c, const char *sql, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    PGresult *r = cache_postgres_vask(c, sql, format, ap);
    va_end(ap);
    return r;
}

bool cache_postgres_run(postgres_conn *c, const char *sql)
{
    PGresult *r = cache_postgres_ask(c, sql, "");
    PQclear(r);
    return r != NULL;
}

int64_t cache_postgres_int(const PGresult *r, int row, int column)
{
    const unsigned char *p = (const unsigned char *)PQgetvalue(r, row, column);
    uint64_t x = 0;
    for (int i = 0; i < PQgetlength(r, row, column); i++) x = x << 8 | p[i];
    return (int64_t)x;
}

/* Under an advisory lock: services that start together migrate one after the other. */
static bool migrate(postgres_tier *t, postgres_conn *c)
{
    const int count = (int)(sizeof migrations / sizeof *migrations);
    if (atomic_load(&t->migrated)) return true;
    bool ok = cache_postgres_run(c, "BEGIN");
    PGresult *r = ok ? cache_postgres_ask(c, "SELECT pg_advisory_xact_lock($1)", "i", (int64_t)MIGRATION_LOCK) : NULL;
    ok = r && cache_postgres_run(c, "CREATE TABLE IF NOT EXISTS kiln_migration(version bigint PRIMARY KEY, applied_ms bigint NOT NULL)");
    PQclear(r);
    r = ok ? cache_postgres_ask(c, "SELECT COALESCE(MAX(version), 0)::bigint FROM kiln_migration", "") : NULL;
    ok = r != NULL;
    int64_t have = ok ? cache_postgres_int(r, 0, 0) : 0;
    PQclear(r);
    if (have > migrations[count - 1].version) {
        fprintf(stderr, "kiln: the PostgreSQL schema is of version %lld, this program knows %d; a newer program wrote it. It is not used.\n",
                (long long)have, migrations[count - 1].version);
        ok = false;
    }
    for (int i = 0; ok && i < count; i++) {
        if (migrations[i].version <= have) continue;
        r = cache_postgres_run(c, migrations[i].sql)
                ? cache_postgres_ask(c, "INSERT INTO kiln_migration VALUES($1, $2)", "ii", (int64_t)migrations[i].version, cache_unix_ms())
                : NULL;
        ok = r != NULL;
        PQclear(r);
    }
    ok = ok && cache_postgres_run(c, "COMMIT");
    if (ok) atomic_store(&t->migrated, true);
    return ok;
}

static void hang_up(postgres_conn *c)
{
    PQfinish(c->db);
    c->db = NULL;
}

static bool several_hosts(const char *url)
{
    PQconninfoOption *options = PQconninfoParse(url, NULL);
    bool several = false;
    for (PQconninfoOption *o = options; o && o->keyword; o++) several |= !strncmp(o->keyword, "host", 4) && o->val && strchr(o->val, ',');
    PQconninfoFree(options);
    return several;
}

/* Of why a connection was refused. A server without room refuses a new one when the file of what its catalogue holds is to be written again;
 * its older versions give that no code of its own, but words that are never translated. The code as libpq writes it: a port may have that number. */
static bool for_want_of_room(PGconn *db)
{
    return db && (strstr(PQerrorMessage(db), ":  " DISK_FULL ": ") || strstr(PQerrorMessage(db), "could not write init file"));
}

static PGconn *connect_to(const char *url, const char *application, int ms, bool *full)
{
    const char *names[] = {"dbname", "client_encoding", "application_name", "tcp_user_timeout", "connect_timeout", NULL};
    const char *values[] = {url, "UTF8", application, "5000", "2", NULL};
    if (several_hosts(url)) { /* only libpq's own loop goes on to the next host when one is silent */
        PGconn *c = PQconnectdbParams(names, values, 1);
        if (PQstatus(c) == CONNECTION_OK) return c;
        *full = for_want_of_room(c);
        PQfinish(c);
        return NULL;
    }
    int64_t deadline = cache_mono_ms() + ms, left;
    PGconn *db = PQconnectStartParams(names, values, 1);
    if (db) PQsetErrorVerbosity(db, PQERRORS_VERBOSE); /* with the code */
    for (PostgresPollingStatusType wants = PGRES_POLLING_WRITING; db && PQstatus(db) != CONNECTION_BAD; wants = PQconnectPoll(db)) {
        struct pollfd p = {.fd = PQsocket(db), .events = wants == PGRES_POLLING_READING ? POLLIN : POLLOUT};
        if (wants == PGRES_POLLING_OK) return db;
        if (wants == PGRES_POLLING_FAILED || (left = deadline - cache_mono_ms()) <= 0 || poll(&p, 1, (int)left) <= 0) break;
    }
    *full = for_want_of_room(db);
    PQfinish(db);
    return NULL;
}

PGconn *cache_postgres_connect(const char *url, const char *application, int ms)
{
    bool full;
    return connect_to(url, application, ms, &full);
}

static bool dial(postgres_tier *t, postgres_conn *c)
{
    if (c->db) { /* a server that went away while this was idle is noticed here, before anything is sent */
        struct pollfd p = {.fd = PQsocket(c->db), .events = POLLIN};
        if (poll(&p, 1, 0) == 0) return true; /* nobody asked for anything: what comes now is a goodbye */
        hang_up(c);
    }
    c->db = connect_to(t->url, "kiln", (int)(within(c, CONNECT_MS) - cache_mono_ms()), &c->full);
    if (c->db && PQsetnonblocking(c->db, 1) == 0) {
        PQsetNoticeProcessor(c->db, quiet, NULL);
        if (cache_postgres_run(c, STATEMENT_TIMEOUT) && migrate(t, c)) return true;
    }
    hang_up(c);
    return false;
}

static _Thread_local int patience;

void cache_patience(int ms) { patience = ms; }

/* One that opened while this waited refuses too. */
static bool opened(const postgres_tier *t, enum cache_leave leave, enum cache_leave hasty)
{
    return (leave == LEAVE_GIVEN && cache_breaker_open(&t->breaker)) || (patience && hasty == LEAVE_GIVEN && cache_breaker_open(&t->haste));
}

postgres_conn *cache_postgres_take(postgres_tier *t)
{
    int64_t began = cache_mono_ms();
    enum cache_leave hasty = patience ? cache_breaker_ask(&t->haste) : LEAVE_GIVEN;
    enum cache_leave leave = hasty == LEAVE_REFUSED ? LEAVE_REFUSED : cache_breaker_ask(&t->breaker);
    int place = leave == LEAVE_REFUSED ? -1 : cache_lender_take(&t->lender, patience && patience < WAIT_MS ? patience : WAIT_MS);
    if (place < 0 || opened(t, leave, hasty)) {
        if (place >= 0) cache_lender_give(&t->lender, place);
        if (leave == LEAVE_TO_TRY) cache_breaker_bad(&t->breaker, leave, false);
        if (hasty == LEAVE_TO_TRY) cache_breaker_bad(&t->haste, hasty, false);
        atomic_fetch_add(&t->base.skipped, 1);
        return NULL;
    }
    postgres_conn *c = &t->conns[place];
    c->leave = leave;
    c->hasty = hasty;
    c->taken_ms = began;
    c->full = false;
    c->until = patience ? began + patience : 0;
    if (dial(t, c)) return c;
    cache_postgres_done(t, c, false);
    return NULL;
}

/* Whether the connection of a statement that found no room serves on: what is there is still to be read, and a new one may be refused. */
static bool serves_on(postgres_conn *c)
{
    return c->full && c->db && PQstatus(c->db) == CONNECTION_OK && (PQtransactionStatus(c->db) == PQTRANS_IDLE || cache_postgres_run(c, "ROLLBACK"));
}

void cache_postgres_done(postgres_tier *t, postgres_conn *c, bool ok)
{
    int64_t now = cache_mono_ms();
    bool hasty = !ok && c->until && now >= c->until; /* says nothing of the server */
    if (hasty) cache_breaker_bad(&t->haste, c->hasty, true);
    else if (c->until) cache_breaker_good(&t->haste);
    atomic_store(&t->full, !ok && c->full);
    if (ok || serves_on(c)) cache_breaker_good(&t->breaker);
    else {
        if (!hasty || c->leave == LEAVE_TO_TRY) cache_breaker_bad(&t->breaker, c->leave, !hasty && now - c->taken_ms >= DEAR_MS);
        hang_up(c);
    }
    cache_lender_give(&t->lender, (int)(c - t->conns));
}
