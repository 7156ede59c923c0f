/* The conformance suite of jobs: every assertion holds on the embedded database and on PostgreSQL (KILN_TEST_PG names a server). */
#include <pthread.h>
#include <stdatomic.h>
#include "tests/unit/jobs_fixture.h"

static enum jobs_status claim(jobs *j, const char *worker, jobs_lease *l, char key[72])
{
    jobs_job out;
    jobs_offer o = {.worker = worker, .words = "cc avx2 sm_90", .kinds = ~0u, .background = true};
    enum jobs_status st = jobs_claim(j, &o, l, &out);
    if (st != JOBS_OK) return st;
    assert_int_equal(out.state, JOBS_LEASED);
    assert_int_equal(out.epoch, l->epoch);
    if (key) strcpy(key, out.key);
    jobs_job_free(&out);
    return st;
}

static enum jobs_state state_of(jobs *j, const char *id)
{
    jobs_job x;
    assert_int_equal(jobs_get(j, id, &x), JOBS_OK);
    enum jobs_state s = x.state;
    assert_true(jobs_state_live(s) == (x.finished_ms == 0));
    assert_true(jobs_state_leased(s) == (x.lease_until_ms > 0));
    jobs_job_free(&x);
    return s;
}

static enum jobs_todo beat(jobs *j, const jobs_lease *l)
{
    enum jobs_todo todo;
    assert_int_equal(jobs_heartbeat(j, l, NULL, &todo), JOBS_OK);
    return todo;
}

/* ---- the tables alone ---- */
static void moves_keep_invariants(void **s)
{
    (void)s;
    for (int from = 0; from < JOBS_STATES; from++)
        for (int move = 0; move < JOBS_MOVES; move++) {
            enum jobs_state to = jobs_after((enum jobs_state)from, (enum jobs_move)move);
            if (to == JOBS_STATES) continue;
            assert_true(jobs_state_live((enum jobs_state)from)); /* what has ended stays */
            assert_true(move != JOBS_DO_CLAIM || (!jobs_state_leased((enum jobs_state)from) && jobs_state_leased(to)));
            assert_true(!jobs_state_leased(to) || move == JOBS_DO_CLAIM || jobs_state_leased((enum jobs_state)from));
        }
    assert_int_equal(JOBS_QUEUED, 0); /* numbers that sql.def names */
    assert_int_equal(JOBS_RETRY, 1);
    assert_int_equal(JOBS_PAUSED, 2);
    assert_int_equal(JOBS_LEASED, 3);
    assert_int_equal(JOBS_RUNNING, 4);
    for (int i = 0; i < JOBS_STATES; i++) assert_int_equal(jobs_state_live((enum jobs_state)i), i < 5);
    for (int i = 0; i < JOBS_SUCCEEDED; i++) { /* from every live state an end can be reached, cancelled or not */
        enum jobs_state c = jobs_after((enum jobs_state)i, JOBS_DO_CANCEL);
        assert_int_equal(c, JOBS_CANCELLED);
    }
}

/* ---- on both databases ---- */
static void one_live_job_a_key(void **s)
{
    (void)s;
    jobs *j = open_jobs();
    char id[40];
    bool fresh;
    jobs_job out;
    submit(j, "kk1-a", id);
    jobs_ask a = {.kind = JOBS_COMPILE, .key = "kk1-a", .class = -1, .payload = "{}"};
    assert_int_equal(jobs_submit(j, &a, &out, &fresh), JOBS_OK);
    assert_false(fresh);
    assert_string_equal(out.id, id);
    jobs_job_free(&out);
    a.kind = JOBS_VERIFY;
    a.id = "jmine";
    assert_int_equal(jobs_submit(j, &a, &out, &fresh), JOBS_OK);
    assert_true(fresh);
    jobs_job_free(&out);
    assert_int_equal(jobs_submit(j, &a, &out, &fresh), JOBS_OK); /* the answer was lost: the same call again */
    assert_true(fresh);
    assert_string_equal(out.id, "jmine");
    jobs_job_free(&out);
    const jobs_ask wrong[] = {{.kind = JOBS_COMPILE, .key = "", .payload = "{}"}, {.kind = JOBS_COMPILE, .key = "k", .payload = NULL},
                              {.kind = JOBS_COMPILE, .key = "k", .payload = "\xff"}, {.kind = JOBS_KINDS, .key = "k", .payload = "{}"},
                              {.kind = JOBS_COMPILE, .key = "k", .payload = "{}", .needs = "a'|b"},
                              {.kind = JOBS_COMPILE, .key = "k", .payload = "{}", .priority = 101}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) assert_int_equal(jobs_submit(j, &wrong[i], &out, &fresh), JOBS_REFUSED);
    jobs_close(j);
}

static void a_life(void **s)
{
    (void)s;
    jobs *j = open_jobs();
    char id[40];
    jobs_lease l;
    jobs_job x;
    enum jobs_todo todo;
    submit(j, "kk1-a", id);
    assert_int_equal(claim(j, "w1", &l, NULL), JOBS_OK);
    assert_int_equal(l.epoch, 1);
    assert_int_equal(claim(j, "w2", &(jobs_lease){0}, NULL), JOBS_NONE);
    jobs_beat b = {.progress = "{\"best\":1}", .checkpoint = "{\"seed\":7}", .spent_ms = 5, .trials = 2};
    assert_int_equal(jobs_heartbeat(j, &l, &b, &todo), JOBS_OK);
    assert_int_equal(todo, JOBS_GO_ON);
    assert_int_equal(state_of(j, id), JOBS_RUNNING);
    assert_int_equal(jobs_succeed(j, &l, "{\"version\":1}"), JOBS_OK);
    assert_int_equal(jobs_succeed(j, &l, "{\"version\":1}"), JOBS_OK); /* the answer was lost: once more is the same */
    assert_int_equal(jobs_fail(j, &l, "{}", "no"), JOBS_LOST);
    assert_int_equal(jobs_heartbeat(j, &l, NULL, &todo), JOBS_LOST);
    assert_int_equal(jobs_get(j, id, &x), JOBS_OK);
    assert_int_equal(x.state, JOBS_SUCCEEDED);
    assert_string_equal(x.result, "{\"version\":1}");
    assert_string_equal(x.checkpoint, "{\"seed\":7}");
    assert_int_equal(x.trials, 2);
    assert_int_equal(x.spent_ms, 5);
    jobs_job_free(&x);
    static const char *const kinds[] = {"queued", "leased", "running", "succeeded"};
    jobs_event e[16];
    int n = jobs_events(j, id, 0, 16, e);
    assert_int_equal(n, 4);
    for (int i = 0; i < n; i++) {
        assert_string_equal(e[i].kind, kinds[i]);
        assert_true(i == 0 || e[i].seq > e[i - 1].seq);
        jobs_event_free(&e[i]);
    }
    assert_int_equal(jobs_events(j, id, e[1].seq, 16, e), 2); /* resumes behind what was seen */
    jobs_event_free(&e[0]);
    jobs_event_free(&e[1]);
    assert_int_equal(jobs_get(j, "jnone", &x), JOBS_NONE);
    jobs_close(j);
}

static int64_t ms_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000) + t.tv_nsec / 1000000;
}

/* A job whose lease is prolonged is nobody else's. False: this machine was busy and let the lease lapse first, so that nothing can be said. */
static bool beats_in_time(jobs *j, jobs *other, jobs_lease *dead)
{
    char id[40];
    jobs_lease live;
    enum jobs_todo todo;
    submit(j, "kk1-a", id);
    assert_int_equal(claim(j, "w1", dead, NULL), JOBS_OK);
    rest(LEASE / 2);
    int64_t beaten = ms_now();
    if (jobs_heartbeat(j, dead, NULL, &todo) == JOBS_OK) {
        rest(LEASE * 2 / 3);
        jobs_reap(other);
        if (claim(other, "w2", &live, NULL) == JOBS_NONE) return true;
        assert_true(ms_now() - beaten >= LEASE);
    } else {
        jobs_reap(other);
        if (claim(other, "w2", &live, NULL) != JOBS_OK) return false;
    }
    assert_int_equal(jobs_succeed(other, &live, "{}"), JOBS_OK);
    return false;
}

static void lapsed_leases_are_fenced(void **s)
{
    (void)s;
    jobs *j = open_jobs(), *other = open_jobs();
    jobs_lease dead, live;
    enum jobs_todo todo;
    while (!beats_in_time(j, other, &dead)) {}
    rest(LEASE * 2 / 3);
    jobs_reap(other);
    assert_int_equal(claim(other, "w2", &live, NULL), JOBS_OK);
    assert_int_equal(live.epoch, dead.epoch + 1);
    assert_int_equal(jobs_heartbeat(j, &dead, NULL, &todo), JOBS_LOST);
    assert_int_equal(jobs_succeed(j, &dead, "{\"forged\":1}"), JOBS_LOST);
    assert_int_equal(jobs_retry(j, &dead, "x"), JOBS_LOST);
    assert_int_equal(jobs_release(j, &dead, NULL), JOBS_LOST);
    jobs_lease forged = live;
    strcpy(forged.worker, "w3");
    assert_int_equal(jobs_succeed(j, &forged, "{}"), JOBS_LOST);
    assert_int_equal(jobs_succeed(other, &live, "{}"), JOBS_OK);
    jobs_close(j);
    jobs_close(other);
}

static void tries_are_counted(void **s)
{
    (void)s;
    lease_ms = SHORT;
    jobs *j = open_jobs();
    char id[40];
    jobs_lease l;
    jobs_job x;
    submit(j, "kk1-a", id);
    assert_int_equal(claim(j, "w", &l, NULL), JOBS_OK);
    assert_int_equal(jobs_release(j, &l, NULL), JOBS_OK); /* no try */
    for (int i = 1; i <= 5; i++) {
        assert_int_equal(claim(j, "w", &l, NULL), JOBS_OK);
        if (i == 1) assert_int_equal(jobs_retry(j, &l, "cc\nwent away"), JOBS_OK);
        if (i == 1) rest(300);
        else {
            rest(SHORT + 20); /* killed without a word */
            assert_int_equal(jobs_reap(j), 1);
        }
        assert_int_equal(state_of(j, id), i < 5 ? JOBS_RETRY : JOBS_DEAD);
    }
    assert_int_equal(claim(j, "w", &l, NULL), JOBS_NONE);
    assert_int_equal(jobs_get(j, id, &x), JOBS_OK);
    assert_int_equal(x.attempt, 5);
    assert_string_equal(x.error, "the lease of w lapsed");
    jobs_job_free(&x);
    submit(j, "kk1-a", NULL); /* its place is free */
    jobs_close(j);
}

static void turns_are_fair(void **s)
{
    (void)s;
    jobs *j = open_jobs();
    char key[72];
    jobs_lease l;
    for (int i = 0; i < 20; i++) {
        snprintf(key, sizeof key, "a%d", i);
        submit_as(j, key, "A", JOBS_COMPILE, 0, NULL);
    }
    assert_int_equal(claim(j, "w", &l, key), JOBS_OK);
    submit_as(j, "b", "B", JOBS_COMPILE, 0, NULL);
    submit_as(j, "c", "C", JOBS_COMPILE, 5, NULL);
    submit_as(j, "t", "A", JOBS_RETUNE, 99, NULL); /* background: behind all others */
    static const char *const want[] = {"c", "b", "a1", "a2"};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(claim(j, "w", &l, key), JOBS_OK);
        assert_string_equal(key, want[i]);
    }
    jobs_close(j);
}

static void background_is_capped_and_gives_way(void **s)
{
    (void)s;
    jobs *j = open_with(1, 0);
    char id[40], key[72];
    jobs_lease one, two;
    submit_as(j, "t1", "", JOBS_RETUNE, 0, id);
    submit_as(j, "t2", "", JOBS_RETUNE, 0, NULL);
    assert_int_equal(claim(j, "w1", &one, NULL), JOBS_OK);
    assert_int_equal(claim(j, "w2", &two, NULL), JOBS_NONE);
    assert_int_equal(beat(j, &one), JOBS_GO_ON);
    submit(j, "k", NULL);
    rest(250); /* nobody takes it */
    assert_int_equal(beat(j, &one), JOBS_GIVE_WAY);
    assert_int_equal(jobs_release(j, &one, &(jobs_beat){.checkpoint = "{\"at\":3}"}), JOBS_OK);
    assert_int_equal(claim(j, "w1", &two, key), JOBS_OK);
    assert_string_equal(key, "k");
    assert_int_equal(claim(j, "w1", &one, key), JOBS_OK);
    jobs_job x;
    assert_int_equal(jobs_get(j, id, &x), JOBS_OK);
    assert_string_equal(x.checkpoint, "{\"at\":3}");
    jobs_job_free(&x);
    jobs_close(j);
}

static void needs_are_met(void **s)
{
    (void)s;
    jobs *j = open_jobs();
    bool fresh;
    jobs_lease l;
    char key[72];
    jobs_ask a = {.kind = JOBS_COMPILE, .key = "far", .class = -1, .payload = "{}", .needs = "cc avx512f"};
    assert_int_equal(jobs_submit(j, &a, NULL, &fresh), JOBS_OK);
    assert_int_equal(claim(j, "w", &l, key), JOBS_NONE);
    a.key = "near", a.needs = "avx2 cc";
    assert_int_equal(jobs_submit(j, &a, NULL, &fresh), JOBS_OK);
    assert_int_equal(claim(j, "w", &l, key), JOBS_OK);
    assert_string_equal(key, "near");
    jobs_job out;
    jobs_offer o = {.worker = "v", .words = "avx512f cc", .kinds = 1u << JOBS_VERIFY};
    assert_int_equal(jobs_claim(j, &o, &l, &out), JOBS_NONE);
    o.kinds = 1u << JOBS_COMPILE;
    assert_int_equal(jobs_claim(j, &o, &l, &out), JOBS_OK);
    assert_string_equal(out.key, "far");
    jobs_job_free(&out);
    jobs_close(j);
}

static void wishes_are_obeyed(void **s)
{
    (void)s;
    jobs *j = open_jobs();
    char id[40];
    jobs_lease l;
    submit(j, "a", id);
    assert_int_equal(jobs_pause(j, id), JOBS_OK);
    assert_int_equal(claim(j, "w", &l, NULL), JOBS_NONE);
    assert_int_equal(jobs_resume(j, id), JOBS_OK);
    assert_int_equal(jobs_resume(j, id), JOBS_REFUSED);
    assert_int_equal(claim(j, "w", &l, NULL), JOBS_OK);
    assert_int_equal(jobs_pause(j, id), JOBS_OK);
    assert_int_equal(beat(j, &l), JOBS_STOP_PAUSE);
    assert_int_equal(jobs_release(j, &l, NULL), JOBS_OK);
    assert_int_equal(state_of(j, id), JOBS_PAUSED);
    assert_int_equal(jobs_resume(j, id), JOBS_OK);
    assert_int_equal(claim(j, "w", &l, NULL), JOBS_OK);
    assert_int_equal(jobs_cancel(j, id), JOBS_OK);
    assert_int_equal(jobs_cancel(j, id), JOBS_OK);
    assert_int_equal(beat(j, &l), JOBS_STOP_CANCEL);
    rest(LEASE + 20); /* it dies before it obeys */
    assert_int_equal(jobs_reap(j), 1);
    assert_int_equal(state_of(j, id), JOBS_CANCELLED);
    assert_int_equal(jobs_cancel(j, id), JOBS_REFUSED);
    submit(j, "b", id);
    assert_int_equal(jobs_cancel(j, id), JOBS_OK);
    assert_int_equal(state_of(j, id), JOBS_CANCELLED);
    jobs_close(j);
}

static void budgets_and_deadlines(void **s)
{
    (void)s;
    jobs *j = open_with(0, 3);
    bool fresh;
    jobs_job out;
    jobs_lease l;
    enum jobs_todo todo;
    jobs_ask a = {.kind = JOBS_COMPILE, .key = "late", .class = -1, .payload = "{}", .deadline_ms = 30};
    assert_int_equal(jobs_submit(j, &a, &out, &fresh), JOBS_OK);
    rest(60);
    assert_int_equal(claim(j, "w", &l, NULL), JOBS_NONE);
    jobs_reap(j);
    assert_int_equal(state_of(j, out.id), JOBS_EXPIRED);
    jobs_job_free(&out);
    a = (jobs_ask){.kind = JOBS_RETUNE, .key = "t", .class = -1, .payload = "{}", .budget_trials = 10, .budget_ms = 1000};
    assert_int_equal(jobs_submit(j, &a, &out, &fresh), JOBS_OK);
    assert_int_equal(claim(j, "w", &l, NULL), JOBS_OK);
    assert_int_equal(jobs_heartbeat(j, &l, &(jobs_beat){.trials = 10}, &todo), JOBS_OK);
    assert_int_equal(todo, JOBS_SPENT);
    int64_t more = 20;
    int priority = 7;
    assert_int_equal(jobs_change(j, out.id, &priority, NULL, &more), JOBS_OK);
    assert_int_equal(beat(j, &l), JOBS_GO_ON);
    jobs_job_free(&out);
    submit(j, "x", NULL);
    submit(j, "y", NULL);
    a = (jobs_ask){.kind = JOBS_COMPILE, .key = "z", .class = -1, .payload = "{}"};
    assert_int_equal(jobs_submit(j, &a, NULL, &fresh), JOBS_FULL);
    jobs_close(j);
}

static void lists_pages_and_counts(void **s)
{
    (void)s;
    jobs *j = open_jobs();
    jobs_job out[4];
    jobs_lease l;
    char key[16];
    for (int i = 0; i < 5; i++) {
        snprintf(key, sizeof key, "k%d", i);
        submit_as(j, key, i % 2 ? "T" : "", i == 4 ? JOBS_MEASURE : JOBS_COMPILE, 0, NULL);
    }
    jobs_filter f = {.state = -1, .kind = -1, .limit = 3};
    assert_int_equal(jobs_list(j, &f, out), 3);
    assert_string_equal(out[0].key, "k4");
    f.before = out[2].id;
    jobs_job more[4];
    assert_int_equal(jobs_list(j, &f, more), 2);
    assert_string_equal(more[1].key, "k0");
    for (int i = 0; i < 3; i++) jobs_job_free(&out[i]);
    for (int i = 0; i < 2; i++) jobs_job_free(&more[i]);
    f = (jobs_filter){.state = JOBS_QUEUED, .kind = JOBS_COMPILE, .tenant = "T", .live = true, .limit = 4};
    assert_int_equal(jobs_list(j, &f, out), 2);
    for (int i = 0; i < 2; i++) jobs_job_free(&out[i]);
    assert_int_equal(claim(j, "w", &l, NULL), JOBS_OK);
    assert_int_equal(jobs_succeed(j, &l, "{}"), JOBS_OK);
    int64_t counts[JOBS_STATES][2] = {{0}}, of_t = 0;
    jobs_tally tallies[32];
    int ntallies = jobs_counts(j, tallies, 32);
    assert_true(ntallies > 0);
    for (int i = 0; i < ntallies; i++) {
        counts[tallies[i].state][tallies[i].background] += tallies[i].n;
        of_t += strcmp(tallies[i].tenant, "T") ? 0 : tallies[i].n;
    }
    assert_int_equal(counts[JOBS_QUEUED][0], 3);
    assert_int_equal(counts[JOBS_QUEUED][1], 1);
    assert_int_equal(counts[JOBS_SUCCEEDED][0], 1);
    assert_true(of_t >= 2);
    assert_int_equal(jobs_counts(j, tallies, 1), 1);
    rest(5);
    assert_int_equal(jobs_sweep(j, 1), 1);
    jobs_worker w = {.name = "w1", .host = "h", .words = "cc", .state = "working", .device = "{}", .slots = 2, .started_ms = 5}, seen[4];
    assert_int_equal(jobs_worker_put(j, &w), JOBS_OK);
    assert_int_equal(jobs_worker_put(j, &w), JOBS_OK);
    assert_int_equal(jobs_workers(j, seen, 4), 1);
    assert_string_equal(seen[0].words, "cc");
    assert_int_equal(seen[0].slots, 2);
    assert_int_equal(jobs_worker_drop(j, "w1"), JOBS_OK);
    assert_int_equal(jobs_workers(j, seen, 4), 0);
    jobs_close(j);
}

/* ---- many at once: every job once, no two leases at a time, epochs that grow ---- */
enum { RACERS = 4, RACE_JOBS = 40 };
static pthread_barrier_t all_submitted;
static atomic_int held[RACE_JOBS], finished[RACE_JOBS], overlaps, started;

static void *race(void *arg)
{
    jobs *j = open_jobs();
    char worker[16], key[72];
    snprintf(worker, sizeof worker, "w%d", (int)(intptr_t)arg);
    for (int i = 0; i < RACE_JOBS; i++) { /* all submit all of them */
        bool fresh;
        snprintf(key, sizeof key, "%d", i);
        jobs_ask a = {.kind = JOBS_COMPILE, .key = key, .class = -1, .payload = "{}"};
        if (jobs_submit(j, &a, NULL, &fresh) == JOBS_OK && fresh) atomic_fetch_add(&started, 1);
    }
    pthread_barrier_wait(&all_submitted);
    for (int idle = 0; idle < 30;) {
        jobs_lease l;
        if (claim(j, worker, &l, key) != JOBS_OK) {
            idle++;
            rest(10);
            continue;
        }
        idle = 0;
        int k = atoi(key);
        if (atomic_fetch_add(&held[k], 1)) atomic_fetch_add(&overlaps, 1);
        rest(1);
        atomic_fetch_sub(&held[k], 1);
        if (jobs_succeed(j, &l, "{}") == JOBS_OK) atomic_fetch_add(&finished[k], 1);
    }
    jobs_close(j);
    return NULL;
}

static void races_end_each_job_once(void **s)
{
    (void)s;
    pthread_t t[RACERS];
    lease_ms = 20000; /* however slow the machine, none lapses */
    jobs_close(open_jobs());
    for (int i = 0; i < RACE_JOBS; i++) atomic_store(&finished[i], 0);
    atomic_store(&overlaps, 0);
    atomic_store(&started, 0);
    pthread_barrier_init(&all_submitted, NULL, RACERS);
    for (int i = 0; i < RACERS; i++) pthread_create(&t[i], NULL, race, (void *)(intptr_t)i);
    for (int i = 0; i < RACERS; i++) pthread_join(t[i], NULL);
    pthread_barrier_destroy(&all_submitted);
    assert_int_equal(atomic_load(&started), RACE_JOBS);
    for (int i = 0; i < RACE_JOBS; i++) assert_int_equal(atomic_load(&finished[i]), 1);
    assert_int_equal(atomic_load(&overlaps), 0);
    jobs *j = open_jobs();
    jobs_event e[256];
    int n = jobs_events(j, NULL, 0, 256, e);
    assert_int_equal(n, RACE_JOBS * 3); /* queued, leased, succeeded */
    for (int i = 0; i < n; i++) {
        assert_int_equal(e[i].seq, i + 1); /* no gaps: a reader that has seen n has seen all before it */
        jobs_event_free(&e[i]);
    }
    jobs_close(j);
}

static void *submit_late(void *arg)
{
    rest(100);
    submit(arg, "woken", NULL);
    return NULL;
}

static void news_wakes_other_processes(void **s)
{
    (void)s;
    jobs *here = open_jobs(), *there = open_jobs();
    pthread_t t;
    struct timespec a, b;
    rest(300); /* both listen */
    uint64_t turn = jobs_turn(here);
    clock_gettime(CLOCK_MONOTONIC, &a);
    pthread_create(&t, NULL, submit_late, there);
    while (jobs_last(here) == 0) turn = jobs_wait(here, turn, 5000);
    clock_gettime(CLOCK_MONOTONIC, &b);
    assert_true((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000 < 2000); /* long before the wait itself would have ended */
    pthread_join(t, NULL);
    jobs_close(here);
    jobs_close(there);
}

static void spending_is_counted_together(void **s)
{
    (void)s;
    jobs *one = open_jobs(), *two = open_jobs();
    const int64_t day = 86400000;
    int64_t n = 0;
    assert_int_equal(jobs_spend(one, "a", "compiles", day, 1, 3, &n), JOBS_OK);
    assert_int_equal(jobs_spend(two, "a", "compiles", day, 1, 3, &n), JOBS_OK);
    assert_int_equal(n, 2);
    assert_int_equal(jobs_spend(one, "a", "compiles", day, 2, 3, &n), JOBS_FULL);
    assert_int_equal(jobs_spend(one, "a", "compiles", day, 1, 3, &n), JOBS_OK); /* the refused ones were not taken */
    assert_int_equal(n, 3);
    assert_int_equal(jobs_spend(two, "a", "compiles", day, 1, 3, &n), JOBS_FULL);
    assert_int_equal(jobs_spend(two, "b", "compiles", day, 1, 3, &n), JOBS_OK);
    assert_int_equal(jobs_spend(two, "a", "calls", day, 70, 0, &n), JOBS_OK);
    assert_int_equal(n, 70);
    assert_int_equal(jobs_spend(two, "a", "calls", 0, 1, 0, &n), JOBS_REFUSED);
    assert_int_equal(jobs_spend(one, "c", "calls", 1, 1, 1, &n), JOBS_OK); /* a window of a millisecond is over at once */
    rest(20);
    assert_int_equal(jobs_spend(one, "c", "calls", 1, 1, 1, &n), JOBS_OK);
    jobs_close(one);
    jobs_close(two);
}

static void who_leads_claims_what_it_submits(void **s)
{
    (void)s;
    jobs *j = open_jobs();
    jobs_job out, again;
    bool fresh = false, met = true;
    jobs_lease l;
    jobs_ask a = {.kind = JOBS_COMPILE, .key = "k", .class = -1, .payload = "{}", .needs = "sm_90"}, b = {.key = "n", .payload = "{}"};
    jobs_offer o = {.worker = "w1", .kinds = 1u << JOBS_COMPILE, .any = true}, nobody = {.worker = ""};
    assert_true(jobs_lead(j, &a, &o, &l, &out, &fresh) == JOBS_OK && fresh && state_of(j, out.id) == JOBS_LEASED && !strcmp(l.id, out.id));
    assert_true(jobs_lead(j, &a, &o, &l, &again, &met) == JOBS_NONE && !met && !strcmp(again.id, out.id));
    assert_true(jobs_lead(j, &b, &nobody, &l, NULL, &met) == JOBS_REFUSED && jobs_last(j) == 2);
    jobs_job_free(&out), jobs_job_free(&again), jobs_close(j);
}

static void away_is_an_error(void **s)
{
    (void)s;
    char why[200];
    jobs *j = jobs_open(&(jobs_config){.postgres_url = "postgresql://kiln@127.0.0.1:1/none"}, why, sizeof why);
    assert_non_null(j);
    jobs_job x;
    assert_int_equal(jobs_get(j, "j", &x), JOBS_ERROR);
    assert_int_equal(jobs_last(j), -1);
    jobs_close(j);
    assert_null(jobs_open(&(jobs_config){.postgres_url = "postgresql://%%%"}, why, sizeof why));
    assert_null(jobs_open(&(jobs_config){.data_dir = "/nonexistent/kiln"}, why, sizeof why));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moves_keep_invariants),
        cmocka_unit_test(away_is_an_error),
        BOTH(one_live_job_a_key),
        BOTH(a_life),
        BOTH(who_leads_claims_what_it_submits),
        BOTH(lapsed_leases_are_fenced),
        BOTH(tries_are_counted),
        BOTH(turns_are_fair),
        BOTH(background_is_capped_and_gives_way),
        BOTH(needs_are_met),
        BOTH(wishes_are_obeyed),
        BOTH(budgets_and_deadlines),
        BOTH(lists_pages_and_counts),
        BOTH(spending_is_counted_together),
        BOTH(races_end_each_job_once),
        BOTH(news_wakes_other_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
