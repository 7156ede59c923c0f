/* News between the processes that share a database: that something was written, never what. PostgreSQL: NOTIFY, at most one every 50 ms,
 * over a session of its own. SQLite: the version number that every writer raises. Losing news costs a reader its polling interval, nothing else. */
#include <poll.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include "cache/news.h"
#include "cache/postgres_posix.h"

enum { TELL_MS = 50, LOOK_MS = 50, REDIAL_MS = 1000, ALIVE_MS = 5000, ANSWER_MS = 2500 };

struct cache_news {
    char *url, *path;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t turn;
    int event;
    atomic_bool stop, untold;
};

static void bump(cache_news *n)
{
    pthread_mutex_lock(&n->lock);
    n->turn++;
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
}

/* Sleeps until something can be read from fd (or -1), the process has something to tell, or ms passed. */
static void doze(cache_news *n, int fd, int ms)
{
    struct pollfd p[2] = {{.fd = n->event, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
    uint64_t count;
    if (poll(p, 2, ms) > 0 && p[0].revents && read(n->event, &count, sizeof count) != (ssize_t)sizeof count) return;
}

static PGconn *dial(const char *url)
{
    PGconn *db = cache_postgres_connect(url, "kiln-news", ANSWER_MS);
    if (db && PQsetnonblocking(db, 1) == 0 && PQsendQuery(db, "LISTEN kiln_news")) return db;
    PQfinish(db);
    return NULL;
}

/* One statement at a time is under way; this also takes its answer. False: the connection is of no use any more. */
static bool attend(cache_news *n, PGconn *db, bool *asked, int64_t since)
{
    if (!PQconsumeInput(db) || PQflush(db) < 0) return false;
    while (*asked && !PQisBusy(db)) {
        PGresult *r = PQgetResult(db);
        *asked = r != NULL;
        bool bad = r && PQresultStatus(r) == PGRES_FATAL_ERROR;
        PQclear(r);
        if (bad) return false;
    }
    int got = 0;
    for (PGnotify *x; (x = PQnotifies(db)); got++) PQfreemem(x);
    if (got) bump(n);
    return PQstatus(db) == CONNECTION_OK && !(*asked && cache_mono_ms() - since > ANSWER_MS);
}

static void listen_postgres(cache_news *n)
{
    PGconn *db = NULL;
    bool asked = false;
    int64_t since = 0;
    while (!atomic_load(&n->stop)) {
        int64_t now = cache_mono_ms();
        if (!db) {
            db = dial(n->url);
            asked = true;
            since = cache_mono_ms();
            bump(n); /* what was told meanwhile is unknown */
            if (!db) doze(n, -1, REDIAL_MS);
            continue;
        }
        if (!attend(n, db, &asked, since)) {
            PQfinish(db);
            db = NULL;
            continue;
        }
        bool tell = atomic_load(&n->untold);
        if (!asked && ((tell && now - since >= TELL_MS) || now - since >= ALIVE_MS)) {
            if (tell) atomic_store(&n->untold, false);
            asked = PQsendQuery(db, tell ? "NOTIFY kiln_news" : "SELECT 1") && PQflush(db) >= 0;
            since = now;
        }
        doze(n, PQsocket(db), tell || asked ? TELL_MS : REDIAL_MS);
    }
    PQfinish(db);
}

static int64_t version_of(sqlite3_stmt *st)
{
    int64_t v = st && sqlite3_step(st) == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
    if (st) sqlite3_reset(st);
    return v;
}

static void watch_sqlite(cache_news *n)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *st = NULL;
    if (sqlite3_open_v2(n->path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) == SQLITE_OK)
        sqlite3_prepare_v2(db, "PRAGMA data_version", -1, &st, NULL);
    for (int64_t last = version_of(st); !atomic_load(&n->stop);) {
        doze(n, -1, LOOK_MS);
        int64_t now = version_of(st);
        if (now != last) bump(n);
        last = now;
    }
    sqlite3_finalize(st);
    sqlite3_close(db);
}

static void *work(void *arg)
{
    cache_news *n = arg;
    if (n->url) listen_postgres(n);
    else watch_sqlite(n);
    return NULL;
}

cache_news *cache_news_open(const char *url, const char *path)
{
    cache_news *n = calloc(1, sizeof *n);
    if (!n) return NULL;
    pthread_mutex_init(&n->lock, NULL);
    pthread_cond_init(&n->changed, NULL);
    n->turn = 1;
    n->url = url && *url ? strdup(url) : NULL;
    n->path = path ? strdup(path) : NULL;
    n->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (n->event >= 0 && (n->url || n->path) && pthread_create(&n->thread, NULL, work, n) == 0) return n;
    if (n->event >= 0) close(n->event);
    free(n->url);
    free(n->path);
    free(n);
    return NULL;
}

static void nudge(cache_news *n)
{
    const uint64_t one = 1;
    if (write(n->event, &one, sizeof one) < 0) return; /* full: it will wake all the same */
}

void cache_news_close(cache_news *n)
{
    if (!n) return;
    atomic_store(&n->stop, true);
    nudge(n);
    bump(n);
    pthread_join(n->thread, NULL);
    close(n->event);
    pthread_mutex_destroy(&n->lock);
    pthread_cond_destroy(&n->changed);
    free(n->url);
    free(n->path);
    free(n);
}

void cache_news_tell(cache_news *n)
{
    bump(n);
    if (!n->url || atomic_exchange(&n->untold, true)) return;
    nudge(n);
}

uint64_t cache_news_turn(cache_news *n)
{
    pthread_mutex_lock(&n->lock);
    uint64_t turn = n->turn;
    pthread_mutex_unlock(&n->lock);
    return turn;
}

uint64_t cache_news_wait(cache_news *n, uint64_t turn, int ms)
{
    struct timespec at = cache_after(ms);
    pthread_mutex_lock(&n->lock);
    int rc = 0;
    while (n->turn == turn && rc == 0 && !atomic_load(&n->stop)) rc = cache_cond_until(&n->changed, &n->lock, &at);
    turn = n->turn;
    pthread_mutex_unlock(&n->lock);
    return turn;
}
