/* kiln-worker as a process on a store of its own: every kind of job ends as it should, a killed worker's job is done by another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "jobs/jobs.h"
#include "workers/arena.h"
#include "workers/build.h"
#include "workers/child.h"

static char dir[64], binary[700];
static jobs *queue;
static cache *store;
static kiln_arena *arena;
extern char **environ;

static void rest(int ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL); }

static int open_all(void **s)
{
    (void)s;
    char why[300], here[600];
    cache_error e;
    strcpy(dir, "/tmp/kiln-fleet-XXXXXX");
    if (!mkdtemp(dir) || !workers_exe_dir(here, sizeof here)) return -1;
    snprintf(binary, sizeof binary, "%s/../kiln-worker", here);
    store = cache_open(&(cache_config){.data_dir = dir}, &e);
    queue = store ? jobs_open(&(jobs_config){.data_dir = dir, .lease_ms = 800, .beat_ms = 200}, why, sizeof why) : NULL;
    arena = worker_arena(NULL);
    return queue ? 0 : -1;
}

static int close_all(void **s)
{
    (void)s;
    char cmd[128];
    kiln_arena_close(arena);
    jobs_close(queue);
    cache_close(store);
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    return system(cmd);
}

static pid_t worker(const char *name)
{
    char *argv[] = {binary, "run", "--data", dir, "--name", (char *)(uintptr_t)name, "--lease-ms", "800", "--slots", "1", NULL};
    pid_t pid;
    posix_spawn_file_actions_t a;
    posix_spawn_file_actions_init(&a);
    posix_spawn_file_actions_addopen(&a, 2, "/dev/null", 1, 0);
    assert_int_equal(posix_spawn(&pid, binary, &a, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&a);
    return pid;
}

static int stop(pid_t pid, int sig)
{
    int status;
    kill(pid, sig);
    waitpid(pid, &status, 0);
    return status;
}

/* The hardware description of this build's simplest CPU, which every x86-64 of ours has. */
static char *hardware(void)
{
    FILE *f = fopen("hwspecs/x86-64-avx2.json", "rb");
    assert_non_null(f);
    char *p = calloc(1, 1 << 20);
    assert_true(fread(p, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    return p;
}

static const char program[] = "c[M,N] +=! a[M,K]*b[K,N]", inputs[] = "a=f32:64x32&b=f32:32x48";

static char *order_of(const char *text, int64_t version, char key[72])
{
    kiln_request *r;
    kiln_diag d = {0};
    build_asked asked;
    assert_int_equal(kiln_request_text(arena, (kiln_bytes){text, strlen(text)}, (kiln_bytes){inputs, strlen(inputs)}, NULL, &r, &d), KILN_OK);
    char *hw = hardware(), *payload = build_payload(arena, r, hw, version);
    free(hw);
    assert_non_null(payload);
    assert_int_equal(build_payload_read(arena, payload, &asked, &d), KILN_OK);
    strcpy(key, asked.keys.kernel);
    assert_int_equal(asked.version, version);
    build_asked_free(&asked);
    return payload;
}

static void submit(enum jobs_kind kind, const char *key, const char *payload, char id[40])
{
    bool fresh;
    jobs_job out;
    jobs_ask a = {.kind = kind, .key = key, .class = -1, .needs = "cc", .payload = payload, .budget_trials = kind == JOBS_RETUNE ? 3 : 0};
    assert_int_equal(jobs_submit(queue, &a, &out, &fresh), JOBS_OK);
    assert_true(fresh);
    strcpy(id, out.id);
    jobs_job_free(&out);
}

/* Waits for its end; its result goes to `result`. */
static enum jobs_state wait_for(const char *id, char result[2048])
{
    for (int i = 0; i < 600; i++) {
        jobs_job x;
        assert_int_equal(jobs_get(queue, id, &x), JOBS_OK);
        enum jobs_state s = x.state;
        snprintf(result, 2048, "%s%s", x.result, x.error);
        jobs_job_free(&x);
        if (!jobs_state_live(s)) return s;
        rest(20);
    }
    fail_msg("job %s does not end", id);
    return JOBS_STATES;
}


static void every_kind_ends(void **s)
{
    (void)s;
    char key[72], id[40], result[2048];
    char *payload = order_of(program, 0, key);
    pid_t pid = worker("w1");
    submit(JOBS_COMPILE, key, payload, id);
    assert_int_equal(wait_for(id, result), JOBS_SUCCEEDED);
    assert_non_null(strstr(result, "\"version\":1,"));
    submit(JOBS_VERIFY, key, payload, id);
    assert_int_equal(wait_for(id, result), JOBS_SUCCEEDED);
    assert_non_null(strstr(result, "\"reproduced\":true"));
    submit(JOBS_MEASURE, key, payload, id);
    assert_int_equal(wait_for(id, result), JOBS_SUCCEEDED);
    assert_non_null(strstr(result, "\"median_us\":"));
    submit(JOBS_RETUNE, key, payload, id);
    assert_int_equal(wait_for(id, result), JOBS_SUCCEEDED);
    assert_non_null(strstr(result, "\"tried\":"));
    free(payload);
    jobs_worker w[2];
    assert_int_equal(jobs_workers(queue, w, 2), 1);
    assert_non_null(strstr(w[0].device, "\"fingerprint\":"));
    int status = stop(pid, SIGTERM);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(jobs_workers(queue, w, 2), 0);
}

static void wrong_orders_fail_for_good(void **s)
{
    (void)s;
    char key[72], id[40], result[2048];
    char *payload = order_of(program, 0, key);
    pid_t pid = worker("w1");
    submit(JOBS_COMPILE, "kk1-other", payload, id);
    assert_int_equal(wait_for(id, result), JOBS_FAILED);
    assert_non_null(strstr(result, "another kernel"));
    submit(JOBS_COMPILE, key, "{\"program\":7}", id);
    assert_int_equal(wait_for(id, result), JOBS_FAILED);
    submit(JOBS_VERIFY, key, payload, id); /* nothing was built */
    assert_int_equal(wait_for(id, result), JOBS_FAILED);
    free(payload);
    stop(pid, SIGTERM);
}

static void another_takes_over(void **s)
{
    (void)s;
    char key[72], id[40], result[2048];
    char *payload = order_of(program, 0, key);
    pid_t first = worker("w1");
    jobs_job x;
    submit(JOBS_RETUNE, key, payload, id); /* waits for nothing: fails without a kernel */
    assert_int_equal(wait_for(id, result), JOBS_FAILED);
    submit(JOBS_COMPILE, key, payload, id);
    for (int i = 0; i < 400; i++) {
        assert_int_equal(jobs_get(queue, id, &x), JOBS_OK);
        bool leased = jobs_state_leased(x.state);
        jobs_job_free(&x);
        if (leased) break;
        rest(2);
    }
    stop(first, SIGKILL);
    pid_t second = worker("w2");
    assert_int_equal(wait_for(id, result), JOBS_SUCCEEDED);
    assert_int_equal(jobs_get(queue, id, &x), JOBS_OK);
    assert_true(x.epoch == 1 || !strcmp(x.worker, "w2")); /* more than 2 where the machine stood still for longer than a lease */
    jobs_job_free(&x);
    free(payload);
    stop(second, SIGTERM);
}

/* A compiler that hangs: cancelled, the job ends within a second or two, not at the compiler's deadline. */
static void cancel_ends_the_child(void **s)
{
    (void)s;
    char key[72], id[40], result[2048], tool[128], path[160];
    snprintf(tool, sizeof tool, "%s/bin", dir);
    snprintf(path, sizeof path, "mkdir -p '%s'", tool);
    assert_int_equal(system(path), 0);
    snprintf(path, sizeof path, "%s/cc", tool);
    FILE *f = fopen(path, "w");
    fputs("#!/bin/sh\ncase \"$*\" in *--version*) echo cc 1 ;; *) sleep 30 ;; esac\n", f);
    fclose(f);
    assert_int_equal(chmod(path, 0755), 0);
    setenv("KILN_CC", path, 1);
    char *payload = order_of(program, 0, key);
    pid_t pid = worker("w1");
    jobs_job x;
    enum jobs_state state = JOBS_QUEUED;
    submit(JOBS_COMPILE, key, payload, id);
    for (int i = 0; i < 400 && state != JOBS_RUNNING; i++) {
        rest(10);
        assert_int_equal(jobs_get(queue, id, &x), JOBS_OK);
        state = x.state;
        jobs_job_free(&x);
    }
    assert_int_equal(state, JOBS_RUNNING);
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    assert_int_equal(jobs_cancel(queue, id), JOBS_OK);
    assert_int_equal(wait_for(id, result), JOBS_CANCELLED);
    clock_gettime(CLOCK_MONOTONIC, &b);
    assert_true(b.tv_sec - a.tv_sec < 6);
    unsetenv("KILN_CC");
    free(payload);
    stop(pid, SIGTERM);
}

/* Children with namespaces of their own end at their deadline like others, and with them whatever they started. */
static void namespaces_end_at_the_deadline(void **s)
{
    (void)s;
    char here[600], place[CHILD_DIR_BYTES], why[200];
    worker_tools t;
    child_result r;
    struct timespec a, b;
    assert_true(workers_exe_dir(here, sizeof here));
    workers_find_tools(here, &t);
    workers_find_namespaces(&t);
    if (!*t.bwrap) {
        print_message("# skipped: bubblewrap does not work here\n");
        skip();
    }
    assert_true(child_dir_make(&t, place, why, sizeof why));
    const char *const argv[] = {"exec", "/bin/sh", "-c", "echo begun; sleep 30 & sleep 30", NULL};
    clock_gettime(CLOCK_MONOTONIC, &a);
    assert_true(child_run(&t, place, argv, &(child_limits){.deadline_ms = 500, .processes = 8}, &r));
    clock_gettime(CLOCK_MONOTONIC, &b);
    assert_true(r.timed_out);
    assert_string_equal(r.out, "begun\n");
    assert_true(b.tv_sec - a.tv_sec < 5);
    child_result_free(&r);
    const char *const writes[] = {"exec", "/bin/sh", "-c", "echo x > here && ! echo x > ../there", NULL};
    assert_true(child_run(&t, place, writes, &(child_limits){.deadline_ms = 5000, .processes = 8}, &r));
    assert_int_equal(r.exit_code, 0);
    child_result_free(&r);
    child_dir_remove(place);
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "child")) return child_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_kind_ends, open_all, close_all),
        cmocka_unit_test_setup_teardown(wrong_orders_fail_for_good, open_all, close_all),
        cmocka_unit_test_setup_teardown(another_takes_over, open_all, close_all),
        cmocka_unit_test_setup_teardown(cancel_ends_the_child, open_all, close_all),
        cmocka_unit_test(namespaces_end_at_the_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
