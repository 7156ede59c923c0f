/* What tenants spend, counted for the whole fleet: one row a tenant, thing and window. */
#include "jobs/private_posix.h"

enum jobs_status jobs_spend(jobs *j, const char *tenant, const char *what, int64_t window_ms, int64_t n, int64_t most, int64_t *spent)
{
    jobs_tx t;
    jobs_rows rows;
    enum jobs_status st = JOBS_ERROR;
    if (window_ms < 1 || n < 0 || (most && n > most)) return JOBS_REFUSED;
    if (!jobs_tx_begin(j, &t)) return JOBS_ERROR;
    if (jobs_sql(&t, JOBS_SQL_SPEND, &rows, "ssiii", tenant, what, window_ms, n, most)) {
        st = rows.n ? JOBS_OK : JOBS_FULL;
        *spent = rows.n ? jobs_number(&rows, 0, 0) : most;
        jobs_rows_free(&rows);
    }
    return jobs_tx_end(&t, st == JOBS_OK) || st == JOBS_FULL ? st : JOBS_ERROR;
}
