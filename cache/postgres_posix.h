/* Connections to PostgreSQL: lent one caller at a time, every query bounded in time, the schema migrated at the first contact. */
#ifndef CACHE_POSTGRES_H
#define CACHE_POSTGRES_H
#include <libpq-fe.h>
#include <pthread.h>
#include <stdarg.h>
#include "cache/remote.h"

enum { POSTGRES_CONNS = 2 };
typedef struct postgres_conn {
    PGconn *db;
    enum cache_leave leave, hasty;
    bool full; /* the last statement that failed, or the server that refused the connection, did so for want of room */
    int64_t taken_ms, until; /* until: when the patience of the caller ends; 0: it has none of its own */
} postgres_conn;
typedef struct postgres_tier {
    cache_tier base;
    char *url, process[24];
    cache_breaker breaker, haste; /* haste: for callers with little patience, who open it without the others */
    atomic_bool migrated, full; /* full: the last call failed for want of room, and the breaker may be open for that */
    cache_lender lender;
    postgres_conn conns[POSTGRES_CONNS];
} postgres_tier;

/* Connected and locked, or NULL: refused by the breaker, none free in time, or no contact. Give back with cache_postgres_done. */
postgres_conn *cache_postgres_take(postgres_tier *t);
/* ok false: something failed; the connection is closed, which also rolls back, and the breaker is told. Where only room was wanting it is kept. */
void cache_postgres_done(postgres_tier *t, postgres_conn *c, bool ok);
/* The result of one statement, in binary; NULL when it failed or took too long. format: s text, i int64_t, b const kiln_bytes *. PQclear it. */
PGresult *cache_postgres_ask(postgres_conn *c, const char *sql, const char *format, ...);
PGresult *cache_postgres_vask(postgres_conn *c, const char *sql, const char *format, va_list ap);
/* Connections without a tier; open dials nothing. NULL with *e: the address cannot be read, or no memory. */
postgres_tier *cache_postgres_open(const char *url, cache_error *e);
void cache_postgres_close(postgres_tier *t);
/* A connection made within ms by the monotonic clock (libpq's own timeout goes by the wall clock), or NULL; not in non-blocking mode yet.
 * application: as the server's lists show it. */
PGconn *cache_postgres_connect(const char *url, const char *application, int ms);
bool cache_postgres_run(postgres_conn *c, const char *sql); /* one without parameters and without interest in the result */
int64_t cache_postgres_int(const PGresult *r, int row, int column);
#endif
