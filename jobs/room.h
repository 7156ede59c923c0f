/* Room in the store: what each key takes and is worth, and which go when there is too little. The truth's only; copies have bounds of their own. */
#ifndef JOBS_ROOM_H
#define JOBS_ROOM_H
#include "jobs/jobs.h"

/* 0: no bound. idle_ms: unasked for so long before it may go. */
typedef struct room_limits { int64_t bytes, tenant_bytes; int idle_ms; } room_limits;
/* Makes room for `need` bytes of a tenant: evicts by value, least first: (milliseconds saved + 1) x (hits + 1) / bytes. What was asked for
 * lately or has a live job stays. gone is told of each key. JOBS_FULL: not enough could go; nothing more is to be stored. */
enum jobs_status room_make(jobs *j, const char *tenant, const room_limits *limits, int64_t need,
                           void (*gone)(void *user, const char *key), void *user);
/* The key was asked for `hits` times; building it took cost_ms (0: unknown) and its first asker was tenant. */
enum jobs_status room_used(jobs *j, const char *key, int64_t hits, int64_t cost_ms, const char *tenant);
enum jobs_status room_total(jobs *j, int64_t *bytes, int64_t *keys);
#endif
