/* Timing kernels on a core of their own, and retuning: a search over the constructor's candidates, in the order of a ranking learned from
 * those timed before, each verified before it is timed. */
#include <cjson/cJSON.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include "workers/arena.h"
#include "workers/task.h"
#include "workers/verify.h"

enum { RUNS = 9, ROUNDS = 5 };

/* One measurement at a time on the machine: a lock file a core; the thread, and with it the child, moves to that core meanwhile. */
static int lock_core(const task *t)
{
    char path[600];
    snprintf(path, sizeof path, "%.500s/kiln-measure-%d.lock", t->tools->tmp, t->measure_cpu);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd >= 0 && flock(fd, LOCK_EX) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

bool task_time(task *t, const build *b, int runs, double us[3], worker_error *e)
{
    cpu_set_t before, core;
    bool moved = false;
    int fd = lock_core(t);
    if (!strcmp(kiln_hw_kind(t->asked.hw), "gpu")) { /* the lock is the device's then */
        worker_verdict v;
        const worker_blob *image = b->blobs[2].p ? &b->blobs[2] : &b->blobs[1];
        bool timed = worker_run_gpu(t->tools, t->asked.request->program, b->kernel, image, runs, &v, us, e) && v.ok;
        if (fd >= 0) close(fd);
        return timed;
    }
    if (t->measure_cpu >= 0 && pthread_getaffinity_np(pthread_self(), sizeof before, &before) == 0) {
        CPU_ZERO(&core);
        CPU_SET(t->measure_cpu, &core);
        moved = pthread_setaffinity_np(pthread_self(), sizeof core, &core) == 0;
    }
    bool ok = worker_time_cpu(t->tools, t->asked.request->program, b->kernel, &b->blobs[0], 1, runs, &us[0], &us[1], &us[2], e);
    if (moved) pthread_setaffinity_np(pthread_self(), sizeof before, &before);
    if (fd >= 0) close(fd);
    return ok;
}

static enum task_end no_device(task *t)
{
    return task_says(t, TASK_FAILED, "this worker cannot run kernels of the target, so it cannot time them");
}

enum task_end task_measure(task *t)
{
    enum task_end end;
    build_result result;
    build b;
    double us[3];
    worker_error e = {0};
    if (!t->order.runs_here) return no_device(t);
    cache_record *r = task_record(t, &end);
    if (!r) return end;
    bool made = build_open(&b, &t->order, &result) && build_make(&b, r->trace);
    if (!made) end = task_end_of(t, &result);
    else if (b.record.verification == CACHE_FAILED) {
        cache_verdict(t->cache, r->key, r->version, CACHE_FAILED, b.record.verdict);
        end = task_says(t, TASK_FAILED, "the kernel computes wrong values and is quarantined now");
    } else if (!task_time(t, &b, RUNS, us, &e)) end = task_says(t, TASK_RETRY, "it could not be timed: %.400s", e.message);
    else {
        char verdict[400];
        snprintf(verdict, sizeof verdict, "{\"how\":\"measured\",\"ok\":true,\"median_us\":%.4g,"
                 "\"p10_us\":%.4g,\"p90_us\":%.4g,\"threads\":1,\"n\":%d}",
                 us[0], us[1], us[2], RUNS);
        if (keeper_asks(t->keeper, t->lease)) cache_verdict(t->cache, r->key, r->version, CACHE_MEASURED, verdict);
        end = task_says(t, TASK_DONE, "{\"version\":%lld,\"measured\":%s}", (long long)r->version, verdict);
    }
    build_close(&b);
    cache_release(r);
    return end;
}

/* ---- retune ---- */
typedef struct search {
    task *t;
    kiln_candidates *found;
    double us[KILN_MAX_CANDIDATES]; /* as kiln_ask wants them */
    int at;                         /* how many are done */
    uint64_t seed;
    double incumbent_us;
    int best; /* index in found, -1: the incumbent */
} search;

/* A worker that dies loses the candidate it was at, nothing before. */
static void resume(search *s)
{
    cJSON *o = cJSON_Parse(s->t->job->checkpoint);
    const cJSON *seed = cJSON_GetObjectItemCaseSensitive(o, "seed"), *us = cJSON_GetObjectItemCaseSensitive(o, "us"), *x;
    s->seed = 0;
    for (const char *p = s->t->job->id; *p; p++) s->seed = verify_mix(s->seed ^ (unsigned char)*p);
    s->seed &= (UINT64_C(1) << 52) - 1; /* a number that JSON keeps */
    s->best = -1;
    bool ours = cJSON_IsNumber(seed) && (uint64_t)seed->valuedouble == s->seed && cJSON_GetArraySize(us) == s->found->n;
    int i = 0;
    if (!ours) us = NULL;
    cJSON_ArrayForEach(x, us) {
        s->us[i] = cJSON_IsNumber(x) ? x->valuedouble : 0;
        s->at += s->us[i] != 0;
        if (s->us[i] > 0 && (s->best < 0 || s->us[i] < s->us[s->best])) s->best = i;
        i++;
    }
    cJSON_Delete(o);
}

static void report(search *s)
{
    char checkpoint[64 + 16 * KILN_MAX_CANDIDATES], progress[300];
    int n = snprintf(checkpoint, sizeof checkpoint, "{\"seed\":%llu,\"us\":[", (unsigned long long)s->seed);
    for (int i = 0; i < s->found->n; i++) n += snprintf(checkpoint + n, sizeof checkpoint - (size_t)n, "%s%.6g", i ? "," : "", s->us[i]);
    snprintf(checkpoint + n, sizeof checkpoint - (size_t)n, "]}");
    snprintf(progress, sizeof progress, "{\"tried\":%d,\"of\":%d,\"incumbent_us\":%.4g,\"best_us\":%.4g}", s->at, s->found->n, s->incumbent_us,
             s->best < 0 ? s->incumbent_us : s->us[s->best]);
    keeper_note(s->t->keeper, s->t->lease, progress, checkpoint, 1);
}

static void try_one(search *s, int index)
{
    build_result result;
    build b;
    double us[3];
    worker_error e = {0};
    s->us[index] = -1;
    s->at++;
    if (build_open(&b, &s->t->order, &result)) {
        build_name(&b, s->found->c[index].trace);
        if (!build_failed_before(&b) && build_make(&b, s->found->c[index].trace) && b.record.verification != CACHE_FAILED &&
            task_time(s->t, &b, RUNS, us, &e) && us[0] > 0) {
            s->us[index] = us[0];
            if (s->best < 0 || us[0] < s->us[s->best]) s->best = index;
        }
    }
    build_close(&b);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Both in turn, several rounds: faster beyond noise means by more than both spreads together, and by more than two in a hundred. */
static bool duel(task *t, const build *old, const build *new, double *old_us, double *new_us)
{
    double a[ROUNDS], b[ROUNDS], us[3];
    worker_error e = {0};
    for (int i = 0; i < ROUNDS; i++) {
        if (!task_time(t, old, RUNS, us, &e)) return false;
        a[i] = us[0];
        if (!task_time(t, new, RUNS, us, &e)) return false;
        b[i] = us[0];
    }
    qsort(a, ROUNDS, sizeof *a, ascending);
    qsort(b, ROUNDS, sizeof *b, ascending);
    *old_us = a[ROUNDS / 2];
    *new_us = b[ROUNDS / 2];
    double noise = (a[ROUNDS - 2] - a[1] + b[ROUNDS - 2] - b[1]) / 2;
    return *old_us - *new_us > noise && *new_us < 0.98 * *old_us;
}

/* The best one becomes a new version when it beats the current one side by side. */
static enum task_end decide(search *s, const build *incumbent, const cache_record *r)
{
    task *t = s->t;
    build_result result;
    build b;
    double old_us = s->incumbent_us, new_us = s->best < 0 ? 0 : s->us[s->best];
    enum task_end end = TASK_DONE;
    bool better = false;
    if (s->best >= 0 && build_open(&b, &t->order, &result)) {
        build_name(&b, s->found->c[s->best].trace);
        better = strcmp(b.record.build, r->build) && build_make(&b, s->found->c[s->best].trace) && b.record.verification != CACHE_FAILED &&
                 duel(t, incumbent, &b, &old_us, &new_us);
        if (better) b.record.verification = CACHE_MEASURED;
        if (better && !build_store(&b, "tuned", s->found->c[s->best].predicted_us, new_us)) end = task_end_of(t, &result);
    }
    if (end == TASK_DONE)
        task_says(t, end, "{\"version\":%lld,\"improved\":%s,\"tried\":%d,\"incumbent_us\":%.4g,\"best_us\":%.4g,\"stopped\":\"%s\"}",
                  (long long)(better ? result.version : r->version), better ? "true" : "false", s->at, old_us, new_us,
                  s->at == s->found->n ? "all" : "budget");
    if (s->best >= 0) build_close(&b);
    return end;
}

/* The one to try next; -1: none is left. What ranks them takes memory of its own. */
static int ask(search *s)
{
    kiln_arena *a = worker_arena(NULL);
    kiln_diag d = {0};
    int next = -1;
    if (!a || kiln_ask(a, s->t->asked.request->program, s->t->asked.hw, s->found, s->us, verify_mix(s->seed + (uint64_t)s->at), &next, &d)) next = -1;
    kiln_arena_close(a);
    return next;
}

/* TASK_DONE: the candidates or the budget are at their end. */
static enum task_end walk(search *s)
{
    enum task_end end;
    for (int next = ask(s); next >= 0; next = ask(s)) {
        if (task_must_stop(s->t, &end)) return end == TASK_STOPPED && keeper_todo(s->t->lease) == JOBS_SPENT ? TASK_DONE : end;
        try_one(s, next);
        report(s);
    }
    return TASK_DONE;
}

enum task_end task_retune(task *t)
{
    enum task_end end;
    build_result result;
    build old;
    kiln_diag d = {0};
    search s = {.t = t};
    double us[3];
    worker_error e = {0};
    if (!t->order.runs_here) return no_device(t);
    cache_record *r = task_record(t, &end);
    if (!r) return end;
    bool made = build_open(&old, &t->order, &result) && build_make(&old, r->trace);
    if (!made) end = task_end_of(t, &result);
    else if (kiln_construct_request(old.arena, t->asked.request, t->asked.hw, KILN_MAX_CANDIDATES, &s.found, &d) != KILN_OK)
        end = task_says(t, TASK_FAILED, "%.500s", d.message);
    else if (!task_time(t, &old, RUNS, us, &e)) end = task_says(t, TASK_RETRY, "it could not be timed: %.400s", e.message);
    else {
        s.incumbent_us = us[0];
        resume(&s);
        end = walk(&s);
        if (end == TASK_DONE) end = decide(&s, &old, r);
    }
    build_close(&old);
    cache_release(r);
    return end;
}
