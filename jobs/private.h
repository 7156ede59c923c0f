/* What the files of jobs/ share: the moves of a job, and one way to speak to both databases. Nothing outside jobs/ includes this. */
#ifndef JOBS_PRIVATE_H
#define JOBS_PRIVATE_H
#include "jobs/jobs.h"

enum jobs_move {
    JOBS_DO_CLAIM, JOBS_DO_BEGIN, JOBS_DO_SUCCEED, JOBS_DO_FAIL, JOBS_DO_RETRY, JOBS_DO_GIVE_UP, JOBS_DO_RELEASE, JOBS_DO_PAUSE, JOBS_DO_RESUME,
    JOBS_DO_CANCEL, JOBS_DO_EXPIRE, JOBS_MOVES
};
/* The state after it; JOBS_STATES: refused. */
enum jobs_state jobs_after(enum jobs_state from, enum jobs_move move);
#endif
