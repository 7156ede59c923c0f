/* A job as the worker's functions see it: the order, the lease, and how to report. Internal to workers/. */
#ifndef WORKERS_TASK_H
#define WORKERS_TASK_H
#include "workers/build.h"
#include "workers/keeper.h"

/* STOPPED: as the lease's todo says, handed back with its checkpoint. RETRY: trouble of this machine or moment. FAILED: the same again next time. */
enum task_end { TASK_DONE, TASK_FAILED, TASK_RETRY, TASK_STOPPED, TASK_LOST };
typedef struct task {
    const worker_tools *tools;
    cache *cache;
    struct seals *seals;
    keeper *keeper;
    kept *lease;
    const jobs_job *job;
    kiln_arena *arena;
    build_asked asked;
    build_order order;
    char result[2048]; /* JSON for the client */
    char error[512];
    int measure_cpu;   /* of its own for measuring; -1: none */
    bool (*draining)(void); /* the worker ends: background work stops */
} task;
#define X(KIND, function, runs) enum task_end function(task *t);
#include "workers/tasks.def"
#undef X

/* An end of a build as the end of a task, with result or error filled. */
enum task_end task_end_of(task *t, const build_result *r);
enum task_end task_says(task *t, enum task_end end, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Whether to stop now: the lease was lost, a wish, a spent budget, a more urgent job, or the end of the worker. */
bool task_must_stop(task *t, enum task_end *end);
/* The version that is asked about, or the current one; NULL: *end says why. Release with cache_release. */
cache_record *task_record(task *t, enum task_end *end);
/* Median, p10 and p90 in microseconds of one kernel on the machine's core for measuring, which is this process's alone meanwhile. */
bool task_time(task *t, const build *b, int runs, double us[3], worker_error *e);
#endif
