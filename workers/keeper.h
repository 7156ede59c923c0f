/* Leases kept while their work is done: one thread beats for all of a process. Thread-safe. */
#ifndef WORKERS_KEEPER_H
#define WORKERS_KEEPER_H
#include "jobs/jobs.h"

typedef struct keeper keeper;
typedef struct kept kept; /* one lease */
keeper *keeper_open(jobs *j);
void keeper_close(keeper *k); /* every lease has been dropped */
/* NULL: out of memory. */
kept *keeper_add(keeper *k, const jobs_lease *l);
void keeper_drop(keeper *k, kept *x); /* no beat follows */
const jobs_lease *keeper_lease(const kept *x);
/* What is sent with the next beat, which comes soon. NULL: as it was. trials are added. */
void keeper_note(keeper *k, kept *x, const char *progress, const char *checkpoint, int64_t trials);
enum jobs_todo keeper_todo(kept *x);
/* The lease is this process's for all it knows: not refused, and the last beat that went through is younger than the lease is long. */
bool keeper_holds(const keeper *k, kept *x);
bool keeper_asks(keeper *k, kept *x); /* the same after a beat now */
#endif
