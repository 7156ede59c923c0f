/* The workers of a fleet: who they are, what they can do, when they were last seen. */
#include <stdio.h>
#include <string.h>
#include "jobs/private_posix.h"

enum jobs_status jobs_worker_put(jobs *j, const jobs_worker *w)
{
    jobs_tx t;
    if (!jobs_tx_begin(j, &t)) return JOBS_ERROR;
    jobs_sql(&t, JOBS_SQL_WORKER_PUT, NULL, "sssssiiii", w->name, w->host, w->words, w->state, w->device, (int64_t)w->slots, w->started_ms, w->done,
             w->failed);
    return jobs_tx_end(&t, true) ? JOBS_OK : JOBS_ERROR;
}

enum jobs_status jobs_worker_drop(jobs *j, const char *name)
{
    jobs_tx t;
    if (!jobs_tx_begin(j, &t)) return JOBS_ERROR;
    jobs_sql(&t, JOBS_SQL_WORKER_DROP, NULL, "s", name);
    return jobs_tx_end(&t, true) ? JOBS_OK : JOBS_ERROR;
}

#define COPY(to, column) snprintf(to, sizeof(to), "%s", jobs_cell(&rows, i, column))

int jobs_workers(jobs *j, jobs_worker *out, int limit)
{
    jobs_tx t;
    jobs_rows rows;
    int n = 0;
    if (!jobs_tx_begin(j, &t)) return -1;
    bool ok = jobs_sql(&t, JOBS_SQL_WORKERS, &rows, "i", (int64_t)limit);
    for (int i = 0; ok && i < rows.n && n < limit; i++, n++) {
        jobs_worker *w = &out[n];
        memset(w, 0, sizeof *w);
        COPY(w->name, 0);
        COPY(w->host, 1);
        COPY(w->words, 2);
        COPY(w->state, 3);
        COPY(w->device, 4);
        w->slots = (int)jobs_number(&rows, i, 5);
        w->started_ms = jobs_number(&rows, i, 6);
        w->seen_ms = jobs_number(&rows, i, 7);
        w->done = jobs_number(&rows, i, 8);
        w->failed = jobs_number(&rows, i, 9);
    }
    if (ok) jobs_rows_free(&rows);
    jobs_tx_end(&t, false);
    return ok ? n : -1;
}
