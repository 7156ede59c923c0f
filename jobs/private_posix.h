/* What the files of jobs/ share: rows of jobs, and one way to speak to both databases. Nothing outside jobs/ includes this. */
#ifndef JOBS_PRIVATE_POSIX_H
#define JOBS_PRIVATE_POSIX_H
#include <pthread.h>
#include <sqlite3.h>
#include <stdarg.h>
#include "cache/news.h"
#include "cache/postgres_posix.h"
#include "jobs/state.h"

enum jobs_sql {
#define X(name, text) JOBS_SQL_##name,
#include "jobs/sql.def"
#undef X
    JOBS_SQL_COUNT
};
enum { JOBS_TEXT_MAX = 1 << 20 }; /* bytes of a payload, checkpoint, result */

struct jobs {
    jobs_config cfg;
    postgres_tier *pg;  /* or: */
    sqlite3 *lite;
    sqlite3_stmt *st[JOBS_SQL_COUNT];
    char *sql[JOBS_SQL_COUNT]; /* in the words of this database */
    pthread_mutex_t lock;      /* of lite */
    cache_news *news;
    atomic_llong reaped; /* when this process last looked for lapsed leases */
};

/* A transaction. Any failure makes every later call of it fail, and its end a rollback. */
typedef struct jobs_tx { jobs *j; postgres_conn *pg; bool ok; } jobs_tx;
bool jobs_tx_begin(jobs *j, jobs_tx *t);
/* True when it was committed. false and t->ok before: unknown, or rolled back. */
bool jobs_tx_end(jobs_tx *t, bool commit);
/* Rows of a result as text; a cell is never NULL. */
typedef struct jobs_rows { int n, columns; char **cell; } jobs_rows;
void jobs_rows_free(jobs_rows *r);
const char *jobs_cell(const jobs_rows *r, int row, int column);
int64_t jobs_number(const jobs_rows *r, int row, int column);
/* format: s const char *, i int64_t. rows NULL: no interest. False: failed. */
bool jobs_sql(jobs_tx *t, enum jobs_sql which, jobs_rows *rows, const char *format, ...);

/* A job with what only the database needs; loaded under a lock, changed, saved with an event. */
typedef struct jobs_row { jobs_job job; int64_t not_before, deadline, place, now, old_epoch; enum jobs_state old; } jobs_row;
enum jobs_status jobs_load(jobs_tx *t, const char *id, jobs_row *row); /* JOBS_NONE; free row->job */
bool jobs_read(jobs_rows *rows, int row, jobs_row *out);
/* move: checked against the table; JOBS_REFUSED changes nothing. */
enum jobs_status jobs_step(jobs_row *row, enum jobs_move move);
/* kind NULL: the state's text. data: JSON or "". */
bool jobs_save(jobs_tx *t, jobs_row *row, const char *kind, const char *data);
bool jobs_save_quietly(jobs_tx *t, jobs_row *row); /* without an event */
int64_t jobs_note(jobs_tx *t, const jobs_event *e); /* its number, 0: failed */
bool jobs_set(char **text, const char *to);
/* jobs_submit within a transaction; free row->job. */
enum jobs_status jobs_submit_in(jobs_tx *t, const jobs_ask *a, jobs_row *row, bool *fresh);
/* A lease's end without its worker: obeys a wish, else another try at once, else dead. */
void jobs_end_lease(jobs *j, jobs_row *row, const char *error, int64_t wait_ms);
bool jobs_text_ok(const char *text, size_t max);
char *jobs_object(const char *name, const char *text); /* {"name":"text"}; free() */
#endif
