/* The moves of a job: what may happen in which state, by moves.def. */
#ifndef JOBS_STATE_H
#define JOBS_STATE_H
#include "jobs/jobs.h"

enum jobs_move {
    JOBS_DO_CLAIM, JOBS_DO_BEGIN, JOBS_DO_SUCCEED, JOBS_DO_FAIL, JOBS_DO_RETRY, JOBS_DO_GIVE_UP, JOBS_DO_RELEASE, JOBS_DO_PAUSE, JOBS_DO_RESUME,
    JOBS_DO_CANCEL, JOBS_DO_EXPIRE, JOBS_MOVES
};
/* The state after it; JOBS_STATES: refused. */
enum jobs_state jobs_after(enum jobs_state from, enum jobs_move move);
bool jobs_kind_background(enum jobs_kind k);
#endif
