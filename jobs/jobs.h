/* Jobs of a fleet: who may do what, when, and what came of it. In PostgreSQL when there is one, else in the embedded database; the same code.
 *
 * A job is submitted once per (kind, key) while it lives, claimed under a lease with an epoch that only grows, kept by heartbeats, and ended exactly
 * once. Every write of a worker names its epoch and is refused when it is not the current one. Times that decide are the database's clock.
 * What happens is written to one log of events with sequence numbers without gaps (jobs_events): the base of SSE with Last-Event-ID, and of telling
 * other processes that a kernel changed. Waiting (jobs_wait) is woken by NOTIFY, coalesced; polling is the net.
 * Thread-safe. JOBS_ERROR: the database could not be asked; nothing is known then. */
#ifndef KILN_JOBS_H
#define KILN_JOBS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum jobs_state {
#define X(NAME, text, live, leased, claimable) JOBS_##NAME,
#include "jobs/states.def"
#undef X
    JOBS_STATES
};
enum jobs_kind {
#define X(NAME, text, background, meaning) JOBS_##NAME,
#include "jobs/kinds.def"
#undef X
    JOBS_KINDS
};
enum jobs_class { JOBS_INTERACTIVE, JOBS_BACKGROUND };
const char *jobs_state_text(enum jobs_state s);
bool jobs_state_live(enum jobs_state s);
bool jobs_state_leased(enum jobs_state s);
const char *jobs_kind_text(enum jobs_kind k);
bool jobs_kind_find(const char *text, enum jobs_kind *out);

enum jobs_status { JOBS_OK, JOBS_NONE, JOBS_REFUSED, JOBS_LOST, JOBS_FULL, JOBS_ERROR };
typedef struct jobs jobs;
typedef struct jobs_config {
    const char *data_dir;     /* of the embedded database; used when postgres_url is empty */
    const char *postgres_url; /* NULL or "": none */
    int lease_ms, beat_ms;    /* 0: 20 s and 5 s */
    int attempts;             /* 0: 5 */
    int background_max;       /* leases of background jobs at a time in the fleet; 0: half the workers' slots, at least 1 */
    int tenant_max;           /* live jobs of one tenant; 0: 10000 */
} jobs_config;
/* NULL with a text in why: it cannot be used at all. A PostgreSQL that is away is no reason: calls answer JOBS_ERROR until it is back. */
jobs *jobs_open(const jobs_config *cfg, char *why, size_t size);
void jobs_close(jobs *j);

/* ---- what clients do ---- */
/* What is asked for. Strings may be NULL where not said otherwise. */
typedef struct jobs_ask {
    const char *id;      /* proposed, else made */
    enum jobs_kind kind;
    const char *key;     /* kernel key; one live job of a kind a key */
    const char *tenant;  /* "" is the tenant of those without one */
    int class;           /* jobs_class; -1: the kind's */
    int priority;        /* -100 ... 100, higher first */
    const char *needs;   /* words that a worker must all offer, as "cc avx512f" (jobs_offer); "!word": must not */
    const char *payload; /* JSON for the worker, not NULL */
    int64_t deadline_ms; /* from now until it expires unclaimed; 0: never */
    int64_t budget_ms, budget_trials; /* of work; 0: the kind's own */
    int64_t start_after_ms;
    int live_max;        /* live jobs of the tenant; 0: jobs_config.tenant_max */
} jobs_ask;

typedef struct jobs_job {
    char id[40], key[72], tenant[64], worker[64], needs[128];
    enum jobs_kind kind;
    enum jobs_class class;
    int priority;
    enum jobs_state state;
    char want[8];        /* "", "cancel" or "pause": asked for, its worker has yet to stop */
    int attempt;
    int64_t epoch;       /* of the last lease; 0: never claimed */
    int64_t created_ms, started_ms, finished_ms, lease_until_ms; /* unix, 0: not yet */
    int64_t budget_ms, spent_ms, budget_trials, trials;
    int64_t seq;         /* of its last event: an ETag of the job */
    char *payload, *progress, *checkpoint, *result, *error; /* JSON but error; "" when there is none */
} jobs_job;
void jobs_job_free(jobs_job *job); /* its strings */

/* *fresh: made now; else the live job of that kind and key, untouched. JOBS_FULL: the tenant has too many. out may be NULL. */
enum jobs_status jobs_submit(jobs *j, const jobs_ask *ask, jobs_job *out, bool *fresh);
enum jobs_status jobs_get(jobs *j, const char *id, jobs_job *out); /* JOBS_NONE */
/* False: the job is known, and was of another key or never had a lease of that epoch. True of jobs that are forgotten, or cannot be asked. */
bool jobs_had_lease(jobs *j, const char *id, int64_t epoch, const char *key);
/* Newest first. Members NULL, "" or -1: any. before: the id of the last one seen. Returns the count, -1: could not be asked. */
typedef struct jobs_filter { int state, kind; const char *tenant, *key, *before; bool live; int limit; } jobs_filter;
int jobs_list(jobs *j, const jobs_filter *f, jobs_job *out);
/* JOBS_REFUSED: its state has no such move. Of a leased job, cancel and pause are wishes that its worker obeys. tenant NULL: whoever's. */
enum jobs_status jobs_cancel(jobs *j, const char *id);
enum jobs_status jobs_pause(jobs *j, const char *id);
enum jobs_status jobs_resume(jobs *j, const char *id);
enum jobs_status jobs_change(jobs *j, const char *id, const int *priority, const int64_t *budget_ms, const int64_t *budget_trials);

/* ---- the log ---- */
typedef struct jobs_event {
    int64_t seq, at_ms, epoch, version;
    char job[40]; /* "" when of no job */
    char kind[16]; /* a state's text; "progress", "wish"; "kernel": a key has a new version; "quarantine": a version failed */
    char key[72], worker[64];
    char *data; /* JSON */
} jobs_event;
void jobs_event_free(jobs_event *e);
/* Those after `since`, in order, of one job or of all (job NULL). Returns the count, -1: could not be asked. */
int jobs_events(jobs *j, const char *job, int64_t since, int limit, jobs_event *out);
int64_t jobs_last(jobs *j); /* sequence number of the last event, -1: could not be asked */
/* Sleeps until the log may have grown since `turn` was got, or ms have passed. Returns the new turn; 0 is the turn to begin with. */
uint64_t jobs_wait(jobs *j, uint64_t turn, int ms);
uint64_t jobs_turn(jobs *j);
void jobs_tell(jobs *j); /* somebody wrote to the log by another way: wakes all */
bool jobs_make_id(char id[40]);

/* ---- what tenants spend ---- */
/* Takes n of `what` in the window of window_ms under way by the database's clock, over all processes of the fleet. *spent: with these.
 * JOBS_FULL: more than `most` (0: no bound) would be spent, and nothing was taken. */
enum jobs_status jobs_spend(jobs *j, const char *tenant, const char *what, int64_t window_ms, int64_t n, int64_t most, int64_t *spent);

/* ---- what workers do ---- */
typedef struct jobs_lease { char id[40], worker[64], words[512]; int64_t epoch; } jobs_lease;
typedef struct jobs_offer {
    const char *worker;  /* name, unique in the fleet */
    const char *words;   /* what it can do, separated by blanks: "cc avx2 avx512f nvrtc sm_90" */
    unsigned kinds;      /* 1 << jobs_kind, of those it takes */
    bool background;     /* takes background jobs now */
    const char *id;      /* this job or none; NULL: any */
    bool any;            /* whatever it needs */
} jobs_offer;
/* Takes the next job: class, priority, the tenant whose turn it is, age. JOBS_NONE: nothing to do. Looks after lapsed leases first. */
enum jobs_status jobs_claim(jobs *j, const jobs_offer *o, jobs_lease *lease, jobs_job *out);
/* Submits and claims the same job in one transaction, so that who leads what it was asked for waits for the disk once. JOBS_NONE: it is submitted
 * (*out), and another has it or may have it; any other status but JOBS_OK: nothing was done. out: as submitted. */
enum jobs_status jobs_lead(jobs *j, const jobs_ask *ask, const jobs_offer *o, jobs_lease *lease, jobs_job *out, bool *fresh);
/* The epoch is checked in all of these; JOBS_LOST: the lease is another's or over, and nothing was written. */
enum jobs_todo { JOBS_GO_ON, JOBS_STOP_CANCEL, JOBS_STOP_PAUSE, JOBS_GIVE_WAY, JOBS_SPENT }; /* spent: the budget is; end with what there is */
typedef struct jobs_beat {
    const char *progress, *checkpoint; /* NULL: as they were */
    int64_t spent_ms, trials;          /* added */
} jobs_beat;
enum jobs_status jobs_heartbeat(jobs *j, const jobs_lease *l, const jobs_beat *b, enum jobs_todo *todo);
enum jobs_status jobs_succeed(jobs *j, const jobs_lease *l, const char *result);
enum jobs_status jobs_fail(jobs *j, const jobs_lease *l, const char *result, const char *error); /* for good */
enum jobs_status jobs_retry(jobs *j, const jobs_lease *l, const char *error);                    /* another try, or dead */
enum jobs_status jobs_release(jobs *j, const jobs_lease *l, const jobs_beat *b); /* obeys the wish, else back to the queue; no try is counted */
int jobs_reap(jobs *j); /* lapsed leases and passed deadlines; returns how many, -1: could not be asked */
int jobs_sweep(jobs *j, int64_t keep_ms); /* forgets what ended longer ago, and its events */

/* ---- workers ---- */
typedef struct jobs_worker {
    char name[64], host[64], words[512], state[12]; /* "working", "draining", "braked" */
    char device[600];    /* JSON: fingerprint */
    int slots;
    int64_t started_ms, seen_ms, done, failed;
} jobs_worker;
enum jobs_status jobs_worker_put(jobs *j, const jobs_worker *w); /* seen now */
enum jobs_status jobs_worker_drop(jobs *j, const char *name);
int jobs_workers(jobs *j, jobs_worker *out, int limit); /* those seen within a minute */
/* Numbers of jobs, for metrics: how many rows, those of tenants that come first by name; -1: the database cannot be asked. */
typedef struct jobs_tally { int state, background; char tenant[64]; int64_t n; } jobs_tally;
int jobs_counts(jobs *j, jobs_tally *out, int limit);
int jobs_lease_ms(const jobs *j);
int jobs_beat_ms(const jobs *j);
#endif
