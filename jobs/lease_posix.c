/* What workers do with jobs: claim, beat, end; and what happens when they no longer do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "jobs/private_posix.h"

enum { NEEDS_MAX = 8192, REAP_MS = 500, BACKOFF_FIRST_MS = 250, BACKOFF_LAST_MS = 10000, GIVE_WAY_MS = 200 };

int jobs_lease_ms(const jobs *j) { return j->cfg.lease_ms; }
int jobs_beat_ms(const jobs *j) { return j->cfg.beat_ms; }

/* Every word of `needs` is among `words`; none is that "!" stands before. */
static bool covers(const char *words, const char *needs)
{
    while (*needs) {
        bool not = *needs == '!';
        needs += not;
        size_t n = strcspn(needs, " ");
        bool found = n == 0;
        for (const char *w = words; *w && !found;) {
            size_t k = strcspn(w, " ");
            found = k == n && !memcmp(w, needs, n);
            w += k + (w[k] == ' ');
        }
        if (found == not) return false;
        needs += n + (needs[n] == ' ');
    }
    return true;
}

/* "|needs|needs|" of those jobs waiting whose needs the words cover; "" when there are none. */
static bool covered(jobs_tx *t, const jobs_rows *rows, const char *words, bool any, char list[NEEDS_MAX])
{
    size_t at = 0;
    *list = 0;
    for (int i = 0; i < rows->n; i++) {
        const char *needs = jobs_cell(rows, i, 0);
        if ((!any && !covers(words, needs)) || at + strlen(needs) + 3 > NEEDS_MAX) continue;
        at += (size_t)snprintf(list + at, NEEDS_MAX - at, "%s%s|", at ? "" : "|", needs);
    }
    if (!*list) return false;
    return t->ok;
}

static bool background_allowed(jobs_tx *t)
{
    jobs_rows rows;
    int64_t max = t->j->cfg.background_max;
    if (!jobs_sql(t, JOBS_SQL_BACKGROUND, &rows, "")) return false;
    if (!max) max = jobs_number(&rows, 0, 1) / 2;
    bool ok = jobs_number(&rows, 0, 0) < (max < 1 ? 1 : max);
    jobs_rows_free(&rows);
    return ok;
}

static void kinds_list(unsigned kinds, char out[64])
{
    size_t at = (size_t)snprintf(out, 64, "|");
    for (int k = 0; k < JOBS_KINDS; k++)
        if (kinds & 1u << k) at += (size_t)snprintf(out + at, 64 - at, "%d|", k);
}

/* The claims of a fleet are made one after the other (the counter is held), so that turns and caps are exact. */
static enum jobs_status pick(jobs_tx *t, const jobs_offer *o, jobs_row *row)
{
    jobs_rows rows;
    char list[NEEDS_MAX], kinds[64];
    const char *id = o->id ? o->id : "";
    if (!jobs_sql(t, JOBS_SQL_NEEDS, &rows, "s", id)) return JOBS_ERROR;
    bool any = covered(t, &rows, o->words ? o->words : "", o->any, list);
    jobs_rows_free(&rows);
    if (!any) return JOBS_NONE;
    bool held = jobs_sql(t, JOBS_SQL_HOLD, &rows, "");
    if (!held) return JOBS_ERROR;
    jobs_rows_free(&rows);
    bool background = o->background && background_allowed(t);
    kinds_list(o->kinds, kinds);
    if (!jobs_sql(t, JOBS_SQL_PICK, &rows, "sssi", kinds, list, id, (int64_t)background)) return JOBS_ERROR;
    enum jobs_status st = rows.n == 0 ? JOBS_NONE : jobs_read(&rows, 0, row) ? JOBS_OK : JOBS_ERROR;
    jobs_rows_free(&rows);
    return st;
}

static enum jobs_status take(jobs_tx *t, const jobs_offer *o, jobs_row *row)
{
    jobs_job *x = &row->job;
    char data[64];
    enum jobs_status st = jobs_step(row, JOBS_DO_CLAIM);
    if (st != JOBS_OK) return st;
    x->epoch++;
    x->attempt++;
    snprintf(x->worker, sizeof x->worker, "%s", o->worker);
    x->lease_until_ms = row->now + t->j->cfg.lease_ms;
    if (!x->started_ms) x->started_ms = row->now;
    snprintf(data, sizeof data, "{\"attempt\":%d,\"until\":%lld}", x->attempt, (long long)x->lease_until_ms);
    if (!jobs_save(t, row, NULL, data)) return JOBS_ERROR;
    return jobs_sql(t, JOBS_SQL_TURN, NULL, "sii", x->tenant, (int64_t)x->class, x->seq) ? JOBS_OK : JOBS_ERROR;
}

static void reap_at_times(jobs *j)
{
    long long now = cache_mono_ms(), last = atomic_load(&j->reaped);
    if (now - last >= REAP_MS && atomic_compare_exchange_strong(&j->reaped, &last, now)) jobs_reap(j);
}

static enum jobs_status claim_in(jobs_tx *t, const jobs_offer *o, jobs_row *row, jobs_lease *lease)
{
    if (!o->worker || !*o->worker || strlen(o->worker) >= sizeof lease->worker || strlen(o->words ? o->words : "") >= sizeof lease->words)
        return JOBS_REFUSED;
    enum jobs_status st = pick(t, o, row);
    if (st == JOBS_OK) st = take(t, o, row);
    if (st != JOBS_OK) return st;
    memset(lease, 0, sizeof *lease);
    snprintf(lease->id, sizeof lease->id, "%s", row->job.id);
    snprintf(lease->worker, sizeof lease->worker, "%s", o->worker);
    snprintf(lease->words, sizeof lease->words, "%s", o->words ? o->words : "");
    lease->epoch = row->job.epoch;
    return JOBS_OK;
}

enum jobs_status jobs_claim(jobs *j, const jobs_offer *o, jobs_lease *lease, jobs_job *out)
{
    jobs_tx t;
    jobs_row row = {0};
    reap_at_times(j);
    if (!jobs_tx_begin(j, &t)) return JOBS_ERROR;
    enum jobs_status st = claim_in(&t, o, &row, lease);
    if (!jobs_tx_end(&t, st == JOBS_OK) && st == JOBS_OK) st = JOBS_ERROR;
    if (st != JOBS_OK) {
        jobs_job_free(&row.job);
        return st;
    }
    *out = row.job;
    cache_news_tell(j->news);
    return JOBS_OK;
}

enum jobs_status jobs_lead(jobs *j, const jobs_ask *a, const jobs_offer *o, jobs_lease *lease, jobs_job *out, bool *fresh)
{
    jobs_tx t;
    jobs_row row = {0}, claimed = {0};
    reap_at_times(j);
    if (!jobs_tx_begin(j, &t)) return JOBS_ERROR;
    enum jobs_status st = jobs_submit_in(&t, a, &row, fresh);
    jobs_offer own = *o;
    own.id = row.job.id;
    if (st == JOBS_OK) st = claim_in(&t, &own, &claimed, lease);
    bool stays = st == JOBS_OK || st == JOBS_NONE;
    jobs_job_free(&claimed.job);
    if (!jobs_tx_end(&t, stays) && stays) st = JOBS_ERROR;
    stays = st == JOBS_OK || st == JOBS_NONE;
    if (stays && (*fresh || st == JOBS_OK)) cache_news_tell(j->news);
    if (stays) *out = row.job;
    else jobs_job_free(&row.job);
    return st;
}

static bool holds(const jobs_lease *l, const jobs_row *row)
{
    return row->job.epoch == l->epoch && !strcmp(row->job.worker, l->worker) && jobs_state_leased(row->job.state);
}

/* An interactive job that this worker could do has waited longer than one that is about to be claimed would. */
static bool wanted_elsewhere(jobs_tx *t, const jobs_lease *l)
{
    jobs_rows rows;
    char list[NEEDS_MAX];
    if (!jobs_sql(t, JOBS_SQL_NEEDS_NOW, &rows, "i", (int64_t)GIVE_WAY_MS)) return false;
    bool any = covered(t, &rows, l->words, false, list);
    jobs_rows_free(&rows);
    return any;
}

static enum jobs_todo todo_of(jobs_tx *t, const jobs_lease *l, const jobs_row *row)
{
    const jobs_job *x = &row->job;
    if (!strcmp(x->want, "cancel")) return JOBS_STOP_CANCEL;
    if (!strcmp(x->want, "pause")) return JOBS_STOP_PAUSE;
    if ((x->budget_ms && x->spent_ms >= x->budget_ms) || (x->budget_trials && x->trials >= x->budget_trials)) return JOBS_SPENT;
    if (x->class == JOBS_BACKGROUND && wanted_elsewhere(t, l)) return JOBS_GIVE_WAY;
    return JOBS_GO_ON;
}

/* What a beat brings. *news: something that a client sees. */
static bool apply(jobs_row *row, const jobs_beat *b, bool *news)
{
    jobs_job *x = &row->job;
    *news = false;
    if (!b) return true;
    x->spent_ms += b->spent_ms > 0 ? b->spent_ms : 0;
    x->trials += b->trials > 0 ? b->trials : 0;
    if (b->progress && strcmp(b->progress, x->progress)) {
        *news = true;
        if (!jobs_text_ok(b->progress, JOBS_TEXT_MAX) || !jobs_set(&x->progress, b->progress)) return false;
    }
    return !b->checkpoint || (jobs_text_ok(b->checkpoint, JOBS_TEXT_MAX) && jobs_set(&x->checkpoint, b->checkpoint));
}

enum jobs_status jobs_heartbeat(jobs *j, const jobs_lease *l, const jobs_beat *b, enum jobs_todo *todo)
{
    jobs_tx t;
    jobs_row row = {0};
    bool news = false;
    *todo = JOBS_GO_ON;
    if (!jobs_tx_begin(j, &t)) return JOBS_ERROR;
    enum jobs_status st = jobs_load(&t, l->id, &row);
    if (st == JOBS_NONE || (st == JOBS_OK && !holds(l, &row))) st = JOBS_LOST;
    if (st == JOBS_OK && !apply(&row, b, &news)) st = JOBS_REFUSED;
    if (st == JOBS_OK) {
        bool begins = row.job.state == JOBS_LEASED;
        row.job.lease_until_ms = row.now + j->cfg.lease_ms;
        *todo = todo_of(&t, l, &row);
        st = jobs_step(&row, JOBS_DO_BEGIN);
        bool ok = begins ? jobs_save(&t, &row, NULL, "") : news ? jobs_save(&t, &row, "progress", row.job.progress) : jobs_save_quietly(&t, &row);
        if (!ok) st = JOBS_ERROR;
        news |= begins;
    }
    if (!jobs_tx_end(&t, st == JOBS_OK) && st == JOBS_OK) st = JOBS_ERROR;
    if (st == JOBS_OK && news) cache_news_tell(j->news);
    jobs_job_free(&row.job);
    return st;
}

void jobs_end_lease(jobs *j, jobs_row *row, const char *error, int64_t wait_ms)
{
    jobs_job *x = &row->job;
    enum jobs_move move = !strcmp(x->want, "cancel") ? JOBS_DO_CANCEL : !strcmp(x->want, "pause") ? JOBS_DO_PAUSE
                          : x->attempt >= j->cfg.attempts ? JOBS_DO_GIVE_UP : JOBS_DO_RETRY;
    jobs_step(row, move);
    jobs_set(&x->error, error);
    row->not_before = row->now + wait_ms;
}

/* How a worker ends its lease. text: the result, or the error of RETRY. */
static enum jobs_status end(jobs *j, const jobs_lease *l, enum jobs_move move, const char *result, const char *error, const jobs_beat *b)
{
    jobs_tx t;
    jobs_row row = {0};
    bool news;
    if ((result && !jobs_text_ok(result, JOBS_TEXT_MAX)) || !jobs_tx_begin(j, &t)) return JOBS_ERROR;
    enum jobs_status st = jobs_load(&t, l->id, &row);
    jobs_job *x = &row.job;
    bool again = st == JOBS_OK && x->epoch == l->epoch && !strcmp(x->worker, l->worker) && !jobs_state_leased(x->state) &&
                 (x->state == jobs_after(JOBS_RUNNING, move) || (move == JOBS_DO_RETRY && x->state == JOBS_DEAD));
    if (!again && (st == JOBS_NONE || (st == JOBS_OK && !holds(l, &row)))) st = JOBS_LOST;
    if (st == JOBS_OK && !again) {
        char *data = error ? jobs_object("error", error) : NULL;
        int64_t wait = BACKOFF_FIRST_MS;
        for (int i = 1; i < x->attempt && wait < BACKOFF_LAST_MS; i++) wait *= 2;
        if (!apply(&row, b, &news)) st = JOBS_REFUSED;
        else if (move == JOBS_DO_RETRY) jobs_end_lease(j, &row, error, wait < BACKOFF_LAST_MS ? wait : BACKOFF_LAST_MS);
        else if (move == JOBS_DO_RELEASE && *x->want) jobs_end_lease(j, &row, "", 0);
        else if (move == JOBS_DO_RELEASE) {
            st = jobs_step(&row, move);
            x->attempt -= x->attempt > 0; /* it was no try */
        } else {
            st = jobs_step(&row, move);
            if (st == JOBS_OK && (!jobs_set(&x->result, result ? result : "") || !jobs_set(&x->error, error ? error : ""))) st = JOBS_ERROR;
        }
        if (st == JOBS_OK && !jobs_save(&t, &row, NULL, data ? data : "")) st = JOBS_ERROR;
        free(data);
    }
    if (!jobs_tx_end(&t, st == JOBS_OK) && st == JOBS_OK) st = JOBS_ERROR;
    if (st == JOBS_OK) cache_news_tell(j->news);
    jobs_job_free(x);
    return st;
}

enum jobs_status jobs_succeed(jobs *j, const jobs_lease *l, const char *result) { return end(j, l, JOBS_DO_SUCCEED, result, NULL, NULL); }
enum jobs_status jobs_fail(jobs *j, const jobs_lease *l, const char *result, const char *error)
{
    return end(j, l, JOBS_DO_FAIL, result, error, NULL);
}
enum jobs_status jobs_retry(jobs *j, const jobs_lease *l, const char *error) { return end(j, l, JOBS_DO_RETRY, NULL, error, NULL); }
enum jobs_status jobs_release(jobs *j, const jobs_lease *l, const jobs_beat *b) { return end(j, l, JOBS_DO_RELEASE, NULL, NULL, b); }

static int reap_some(jobs_tx *t, enum jobs_sql which, bool lapsed)
{
    jobs_rows rows;
    int n = 0;
    bool ok = lapsed ? jobs_sql(t, which, &rows, "i", (int64_t)t->j->cfg.lease_ms) : jobs_sql(t, which, &rows, "");
    for (int i = 0; ok && i < rows.n; i++) {
        jobs_row row;
        char why[160];
        if (!jobs_read(&rows, i, &row)) break;
        snprintf(why, sizeof why, lapsed ? "the lease of %s lapsed" : "the deadline passed before %s took it", lapsed ? row.job.worker : "a worker");
        if (lapsed) jobs_end_lease(t->j, &row, why, 0);
        else jobs_step(&row, JOBS_DO_EXPIRE);
        char *data = jobs_object(lapsed ? "lapsed" : "error", lapsed ? row.job.worker : why);
        if (jobs_save(t, &row, NULL, data ? data : "")) n++;
        free(data);
        jobs_job_free(&row.job);
    }
    if (ok) jobs_rows_free(&rows);
    return n;
}

int jobs_reap(jobs *j)
{
    jobs_tx t;
    if (!jobs_tx_begin(j, &t)) return -1;
    int n = reap_some(&t, JOBS_SQL_LAPSED, true) + reap_some(&t, JOBS_SQL_LATE, false);
    bool ok = t.ok;
    if (!jobs_tx_end(&t, n > 0) && (n > 0 || !ok)) return -1;
    if (n > 0) cache_news_tell(j->news);
    return n;
}
