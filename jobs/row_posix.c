/* A job's row: read, moved by the table, saved with its event; the log of events. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "jobs/private_posix.h"

void jobs_job_free(jobs_job *job)
{
    free(job->payload);
    free(job->progress);
    free(job->checkpoint);
    free(job->result);
    free(job->error);
    job->payload = job->progress = job->checkpoint = job->result = job->error = NULL;
}

void jobs_event_free(jobs_event *e)
{
    free(e->data);
    e->data = NULL;
}

bool jobs_set(char **text, const char *to)
{
    char *copy = strdup(to);
    if (!copy) return false;
    free(*text);
    *text = copy;
    return true;
}

/* UTF-8 of people's texts is not looked into here: what is not plain ASCII would be refused by a database set to UTF-8, so it is replaced. */
char *jobs_object(const char *name, const char *text)
{
    char plain[600];
    size_t n = 0;
    for (; text[n] && n + 1 < sizeof plain; n++) plain[n] = text[n] >= ' ' && text[n] <= '~' ? text[n] : text[n] == '\n' ? ' ' : '?';
    plain[n] = 0;
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, name, plain);
    char *out = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    return out;
}

bool jobs_text_ok(const char *text, size_t max)
{
    size_t n = strlen(text);
    const unsigned char *p = (const unsigned char *)text;
    if (n > max) return false;
    while (*p) { /* well-formed UTF-8, so that no database refuses it */
        int more = *p < 0x80 ? 0 : *p >= 0xc2 && *p < 0xe0 ? 1 : *p >= 0xe0 && *p < 0xf0 ? 2 : *p >= 0xf0 && *p < 0xf5 ? 3 : -1;
        if (more < 0 || (*p == 0xe0 && p[1] < 0xa0) || (*p == 0xed && p[1] >= 0xa0) || (*p == 0xf0 && p[1] < 0x90) || (*p == 0xf4 && p[1] >= 0x90))
            return false;
        for (p++; more > 0; more--, p++)
            if (*p < 0x80 || *p >= 0xc0) return false;
    }
    return true;
}

#define COPY(to, column) snprintf(to, sizeof(to), "%s", jobs_cell(rows, i, column))

bool jobs_read(jobs_rows *rows, int i, jobs_row *out)
{
    jobs_job *x = &out->job;
    memset(out, 0, sizeof *out);
    COPY(x->id, 0);
    x->kind = (enum jobs_kind)jobs_number(rows, i, 1);
    COPY(x->key, 2);
    COPY(x->tenant, 3);
    x->class = (enum jobs_class)jobs_number(rows, i, 4);
    x->priority = (int)jobs_number(rows, i, 5);
    out->old = x->state = (enum jobs_state)jobs_number(rows, i, 6);
    COPY(x->want, 7);
    COPY(x->needs, 8);
    x->attempt = (int)jobs_number(rows, i, 9);
    out->old_epoch = x->epoch = jobs_number(rows, i, 10);
    COPY(x->worker, 11);
    out->place = jobs_number(rows, i, 12);
    x->seq = jobs_number(rows, i, 13);
    x->lease_until_ms = jobs_number(rows, i, 14);
    out->not_before = jobs_number(rows, i, 15);
    out->deadline = jobs_number(rows, i, 16);
    x->budget_ms = jobs_number(rows, i, 17);
    x->spent_ms = jobs_number(rows, i, 18);
    x->budget_trials = jobs_number(rows, i, 19);
    x->trials = jobs_number(rows, i, 20);
    x->created_ms = jobs_number(rows, i, 21);
    x->started_ms = jobs_number(rows, i, 22);
    x->finished_ms = jobs_number(rows, i, 23);
    out->now = jobs_number(rows, i, 29);
    if (jobs_set(&x->payload, jobs_cell(rows, i, 24)) && jobs_set(&x->progress, jobs_cell(rows, i, 25)) &&
        jobs_set(&x->checkpoint, jobs_cell(rows, i, 26)) && jobs_set(&x->result, jobs_cell(rows, i, 27)) &&
        jobs_set(&x->error, jobs_cell(rows, i, 28)))
        return true;
    jobs_job_free(x);
    return false;
}

enum jobs_status jobs_load(jobs_tx *t, const char *id, jobs_row *row)
{
    jobs_rows rows;
    if (!jobs_sql(t, JOBS_SQL_LOAD, &rows, "s", id)) return JOBS_ERROR;
    enum jobs_status st = rows.n == 0 ? JOBS_NONE : jobs_read(&rows, 0, row) ? JOBS_OK : JOBS_ERROR;
    jobs_rows_free(&rows);
    return st;
}

enum jobs_status jobs_step(jobs_row *row, enum jobs_move move)
{
    jobs_job *x = &row->job;
    enum jobs_state to = jobs_after(x->state, move);
    if (to == JOBS_STATES) return JOBS_REFUSED;
    x->state = to;
    if (!jobs_state_leased(to)) x->lease_until_ms = 0;
    if (!jobs_state_live(to)) x->finished_ms = row->now;
    if (to != JOBS_LEASED && to != JOBS_RUNNING) x->want[0] = 0;
    return JOBS_OK;
}

bool jobs_save_quietly(jobs_tx *t, jobs_row *row)
{
    const jobs_job *x = &row->job;
    jobs_rows rows;
    if (!jobs_sql(t, JOBS_SQL_SAVE, &rows, "siiiiisiisiiiiiiiiissss", x->id, row->old_epoch, (int64_t)row->old, (int64_t)x->class,
                  (int64_t)x->priority, (int64_t)x->state, x->want, (int64_t)x->attempt, x->epoch, x->worker, x->seq, x->lease_until_ms,
                  row->not_before, x->budget_ms, x->spent_ms, x->budget_trials, x->trials, x->started_ms, x->finished_ms, x->progress,
                  x->checkpoint, x->result, x->error))
        return false;
    t->ok = rows.n == 1; /* it was locked since it was read: anything else is a defect, and nothing is written */
    jobs_rows_free(&rows);
    return t->ok;
}

static int64_t next(jobs_tx *t)
{
    jobs_rows rows;
    if (!jobs_sql(t, JOBS_SQL_NEXT, &rows, "")) return 0;
    int64_t n = rows.n == 1 ? jobs_number(&rows, 0, 0) : 0;
    jobs_rows_free(&rows);
    return n;
}

int64_t jobs_note(jobs_tx *t, const jobs_event *e)
{
    int64_t n = e->seq ? e->seq : next(t);
    if (!n) t->ok = false;
    bool ok = jobs_sql(t, JOBS_SQL_EVENT, NULL, "isssiiss", n, e->job, e->kind, e->key, e->version, e->epoch, e->worker, e->data ? e->data : "");
    return ok ? n : 0;
}

bool jobs_save(jobs_tx *t, jobs_row *row, const char *kind, const char *data)
{
    jobs_job *x = &row->job;
    jobs_event e = {.epoch = x->epoch, .data = (char *)(uintptr_t)data};
    snprintf(e.job, sizeof e.job, "%s", x->id);
    snprintf(e.kind, sizeof e.kind, "%s", kind ? kind : jobs_state_text(x->state));
    snprintf(e.key, sizeof e.key, "%s", x->key);
    snprintf(e.worker, sizeof e.worker, "%s", x->worker);
    x->seq = e.seq = next(t);
    return x->seq && jobs_save_quietly(t, row) && jobs_note(t, &e);
}

static int read_events(jobs_tx *t, jobs_rows *rows, jobs_event *out, int limit)
{
    int n = 0;
    for (int i = 0; i < rows->n && n < limit; i++) {
        jobs_event *e = &out[n];
        memset(e, 0, sizeof *e);
        e->seq = jobs_number(rows, i, 0);
        e->at_ms = jobs_number(rows, i, 1);
        COPY(e->job, 2);
        COPY(e->kind, 3);
        COPY(e->key, 4);
        e->version = jobs_number(rows, i, 5);
        e->epoch = jobs_number(rows, i, 6);
        COPY(e->worker, 7);
        if (jobs_set(&e->data, jobs_cell(rows, i, 8))) n++;
        else t->ok = false;
    }
    jobs_rows_free(rows);
    return n;
}

int jobs_events(jobs *j, const char *job, int64_t since, int limit, jobs_event *out)
{
    jobs_tx t;
    jobs_rows rows;
    if (!jobs_tx_begin(j, &t)) return -1;
    bool ok = job && *job ? jobs_sql(&t, JOBS_SQL_EVENTS_OF, &rows, "sii", job, since, (int64_t)limit)
                          : jobs_sql(&t, JOBS_SQL_EVENTS, &rows, "ii", since, (int64_t)limit);
    int n = ok ? read_events(&t, &rows, out, limit) : -1;
    jobs_tx_end(&t, false);
    return n;
}

int64_t jobs_last(jobs *j)
{
    jobs_tx t;
    jobs_rows rows;
    if (!jobs_tx_begin(j, &t)) return -1;
    bool ok = jobs_sql(&t, JOBS_SQL_LAST, &rows, "");
    int64_t n = ok && rows.n == 1 ? jobs_number(&rows, 0, 0) : -1;
    if (ok) jobs_rows_free(&rows);
    jobs_tx_end(&t, false);
    return n;
}

uint64_t jobs_turn(jobs *j) { return cache_news_turn(j->news); }
uint64_t jobs_wait(jobs *j, uint64_t turn, int ms) { return cache_news_wait(j->news, turn, ms); }
void jobs_tell(jobs *j) { cache_news_tell(j->news); }
