/* What clients do with jobs: submit, look, wish. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include "jobs/private_posix.h"

bool jobs_make_id(char out[40])
{
    unsigned char bytes[12];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) return false;
    out[0] = 'j';
    for (size_t i = 0; i < sizeof bytes; i++) snprintf(out + 1 + 2 * i, 3, "%02x", bytes[i]);
    return true;
}

/* Words of needs and offers: letters, digits and _.+:- between single blanks; "!" before one that must not be offered. */
static bool words_ok(const char *text, size_t max)
{
    static const char of_words[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.+:-! ";
    return strlen(text) < max && text[strspn(text, of_words)] == 0;
}

static bool name_ok(const char *text, size_t max) { return strlen(text) < max && jobs_text_ok(text, max); }

static bool acceptable(const jobs_ask *a)
{
    const jobs_job *x = NULL;
    return (unsigned)a->kind < JOBS_KINDS && a->key && *a->key && name_ok(a->key, sizeof x->key) &&
           name_ok(a->tenant ? a->tenant : "", sizeof x->tenant) &&
           words_ok(a->needs ? a->needs : "", sizeof x->needs) && (!a->id || (*a->id && words_ok(a->id, sizeof x->id))) && a->class >= -1 &&
           a->class <= JOBS_BACKGROUND && a->priority >= -100 && a->priority <= 100 && a->payload && jobs_text_ok(a->payload, JOBS_TEXT_MAX) &&
           a->deadline_ms >= 0 && a->budget_ms >= 0 && a->budget_trials >= 0 && a->start_after_ms >= 0;
}

static enum jobs_status full(jobs_tx *t, const char *tenant, int most)
{
    jobs_rows rows;
    if (!jobs_sql(t, JOBS_SQL_OF_TENANT, &rows, "s", tenant)) return JOBS_ERROR;
    bool over = jobs_number(&rows, 0, 0) >= (most ? most : t->j->cfg.tenant_max);
    jobs_rows_free(&rows);
    return over ? JOBS_FULL : JOBS_OK;
}

/* The job that has the place: the live one of that kind and key, or one of that id (the same call again, whose answer was lost). */
static enum jobs_status there(jobs_tx *t, const jobs_ask *a, const char *id, jobs_row *row)
{
    jobs_rows rows;
    if (!jobs_sql(t, JOBS_SQL_LIVE, &rows, "is", (int64_t)a->kind, a->key)) return JOBS_ERROR;
    enum jobs_status st = rows.n == 0 ? JOBS_NONE : jobs_read(&rows, 0, row) ? JOBS_OK : JOBS_ERROR;
    jobs_rows_free(&rows);
    return st == JOBS_NONE ? jobs_load(t, id, row) : st;
}

static enum jobs_status insert(jobs_tx *t, const jobs_ask *a, const char *id, bool *fresh)
{
    jobs_rows rows;
    const char *tenant = a->tenant ? a->tenant : "";
    int64_t class = a->class < 0 ? jobs_kind_background(a->kind) : a->class;
    enum jobs_status st = full(t, tenant, a->live_max);
    if (st != JOBS_OK) return st;
    jobs_event e = {0};
    snprintf(e.job, sizeof e.job, "%s", id);
    snprintf(e.kind, sizeof e.kind, "%s", jobs_state_text(JOBS_QUEUED));
    snprintf(e.key, sizeof e.key, "%s", a->key);
    if (!jobs_sql(t, JOBS_SQL_HOLD, &rows, "")) return JOBS_ERROR;
    int64_t place = jobs_number(&rows, 0, 0) + 1;
    jobs_rows_free(&rows);
    if (!jobs_sql(t, JOBS_SQL_SUBMIT, &rows, "sissiisiiiiis", id, (int64_t)a->kind, a->key, tenant, class, (int64_t)a->priority,
                  a->needs ? a->needs : "", place, a->start_after_ms, a->deadline_ms, a->budget_ms, a->budget_trials, a->payload))
        return JOBS_ERROR;
    *fresh = rows.n == 1;
    jobs_rows_free(&rows);
    if (!*fresh) return JOBS_OK;
    return jobs_note(t, &e) ? JOBS_OK : JOBS_ERROR;
}

enum jobs_status jobs_submit_in(jobs_tx *t, const jobs_ask *a, jobs_row *row, bool *fresh)
{
    char id[40];
    *fresh = false;
    if (!acceptable(a)) return JOBS_REFUSED;
    if (a->id) snprintf(id, sizeof id, "%s", a->id);
    else if (!jobs_make_id(id)) return JOBS_ERROR;
    enum jobs_status st = there(t, a, id, row);
    if (st == JOBS_OK) *fresh = !strcmp(row->job.id, id);
    else if (st == JOBS_NONE && (st = insert(t, a, id, fresh)) == JOBS_OK) st = there(t, a, id, row);
    return st == JOBS_NONE ? JOBS_ERROR : st; /* it ended between two statements: ask again */
}

enum jobs_status jobs_submit(jobs *j, const jobs_ask *a, jobs_job *out, bool *fresh)
{
    jobs_tx t;
    jobs_row row = {0};
    if (!jobs_tx_begin(j, &t)) return JOBS_ERROR;
    enum jobs_status st = jobs_submit_in(&t, a, &row, fresh);
    if (!jobs_tx_end(&t, st == JOBS_OK) && st == JOBS_OK) st = JOBS_ERROR;
    if (st == JOBS_OK && *fresh) cache_news_tell(j->news);
    if (st == JOBS_OK && out) *out = row.job;
    else jobs_job_free(&row.job);
    return st;
}

bool jobs_had_lease(jobs *j, const char *id, int64_t epoch, const char *key)
{
    jobs_job x;
    if (jobs_get(j, id, &x) != JOBS_OK) return true;
    bool had = !strcmp(x.key, key) && epoch >= 1 && epoch <= x.epoch;
    jobs_job_free(&x);
    return had;
}

enum jobs_status jobs_get(jobs *j, const char *id, jobs_job *out)
{
    jobs_tx t;
    jobs_rows rows;
    jobs_row row;
    if (!jobs_tx_begin(j, &t)) return JOBS_ERROR;
    enum jobs_status st = JOBS_ERROR;
    if (jobs_sql(&t, JOBS_SQL_GET, &rows, "s", id)) {
        st = rows.n == 0 ? JOBS_NONE : jobs_read(&rows, 0, &row) ? JOBS_OK : JOBS_ERROR;
        jobs_rows_free(&rows);
    }
    jobs_tx_end(&t, false);
    if (st == JOBS_OK) *out = row.job;
    return st;
}

int jobs_list(jobs *j, const jobs_filter *f, jobs_job *out)
{
    jobs_tx t;
    jobs_rows rows;
    jobs_row row;
    int n = 0;
    if (!jobs_tx_begin(j, &t)) return -1;
    bool ok = jobs_sql(&t, JOBS_SQL_LIST, &rows, "iisssii", (int64_t)f->state, (int64_t)f->kind, f->tenant ? f->tenant : "", f->key ? f->key : "",
                       f->before ? f->before : "", (int64_t)f->live, (int64_t)f->limit);
    for (int i = 0; ok && i < rows.n && n < f->limit; i++)
        if (jobs_read(&rows, i, &row)) out[n++] = row.job;
    if (ok) jobs_rows_free(&rows);
    jobs_tx_end(&t, false);
    return ok ? n : -1;
}

/* One change of a job by a client: a move, or of a leased job a wish. */
static enum jobs_status wish(jobs *j, const char *id, enum jobs_move move, const char *want)
{
    jobs_tx t;
    jobs_row row = {0};
    if (!jobs_tx_begin(j, &t)) return JOBS_ERROR;
    enum jobs_status st = jobs_load(&t, id, &row);
    if (st == JOBS_OK && want && jobs_state_leased(row.job.state)) {
        bool same = !strcmp(row.job.want, want);
        snprintf(row.job.want, sizeof row.job.want, "%s", want);
        char *data = jobs_object("want", want);
        if (!same && (!data || !jobs_save(&t, &row, "wish", data))) st = JOBS_ERROR;
        free(data);
    } else if (st == JOBS_OK) {
        st = jobs_step(&row, move);
        if (st == JOBS_OK && !jobs_save(&t, &row, NULL, "")) st = JOBS_ERROR;
    }
    if (!jobs_tx_end(&t, st == JOBS_OK) && st == JOBS_OK) st = JOBS_ERROR;
    if (st == JOBS_OK) cache_news_tell(j->news);
    jobs_job_free(&row.job);
    return st;
}

enum jobs_status jobs_cancel(jobs *j, const char *id) { return wish(j, id, JOBS_DO_CANCEL, "cancel"); }
enum jobs_status jobs_pause(jobs *j, const char *id) { return wish(j, id, JOBS_DO_PAUSE, "pause"); }
enum jobs_status jobs_resume(jobs *j, const char *id) { return wish(j, id, JOBS_DO_RESUME, NULL); }

enum jobs_status jobs_change(jobs *j, const char *id, const int *priority, const int64_t *budget_ms, const int64_t *budget_trials)
{
    jobs_tx t;
    jobs_row row = {0};
    if ((priority && (*priority < -100 || *priority > 100)) || (budget_ms && *budget_ms < 0) || (budget_trials && *budget_trials < 0))
        return JOBS_REFUSED;
    if (!jobs_tx_begin(j, &t)) return JOBS_ERROR;
    enum jobs_status st = jobs_load(&t, id, &row);
    if (st == JOBS_OK && !jobs_state_live(row.job.state)) st = JOBS_REFUSED;
    if (st == JOBS_OK) {
        if (priority) row.job.priority = *priority;
        if (budget_ms) row.job.budget_ms = *budget_ms;
        if (budget_trials) row.job.budget_trials = *budget_trials;
        if (!jobs_save(&t, &row, "changed", "")) st = JOBS_ERROR;
    }
    if (!jobs_tx_end(&t, st == JOBS_OK) && st == JOBS_OK) st = JOBS_ERROR;
    if (st == JOBS_OK) cache_news_tell(j->news);
    jobs_job_free(&row.job);
    return st;
}

int jobs_counts(jobs *j, jobs_tally *out, int limit)
{
    jobs_tx t;
    jobs_rows rows;
    int n = -1;
    if (!jobs_tx_begin(j, &t)) return -1;
    if (jobs_sql(&t, JOBS_SQL_COUNTS, &rows, "i", (int64_t)limit)) {
        for (n = 0; n < rows.n && n < limit; n++) {
            out[n] = (jobs_tally){.state = (int)jobs_number(&rows, n, 0), .background = (int)jobs_number(&rows, n, 1), .n = jobs_number(&rows, n, 3)};
            snprintf(out[n].tenant, sizeof out[n].tenant, "%s", jobs_cell(&rows, n, 2) ? jobs_cell(&rows, n, 2) : "");
        }
        jobs_rows_free(&rows);
    }
    jobs_tx_end(&t, false);
    return n;
}

int jobs_sweep(jobs *j, int64_t keep_ms)
{
    jobs_tx t;
    jobs_rows rows;
    int n = -1;
    if (!jobs_tx_begin(j, &t)) return -1;
    if (jobs_sql(&t, JOBS_SQL_SWEEP_JOBS, &rows, "i", keep_ms)) {
        n = rows.n;
        jobs_rows_free(&rows);
    }
    if (!jobs_sql(&t, JOBS_SQL_SWEEP_EVENTS, NULL, "i", keep_ms) || !jobs_sql(&t, JOBS_SQL_SWEEP_SPENT, NULL, "")) n = -1;
    return jobs_tx_end(&t, n >= 0) ? n : -1;
}
