/* Killed at every write boundary of the store: before each write, sync and truncation, and in the middle of each write. What was acknowledged
 * is there and whole, what was not is there whole or not at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/unit/fresh_dir.h"
#include "cache/cache.h"
#include "jobs/jobs.h"

/* ---- the boundary: these stand before the C library's, for SQLite as well ---- */
static atomic_int left = -1; /* boundaries until death; negative: none */
static bool torn;            /* dies in the middle of the write */

static bool dies(void) { return atomic_load(&left) >= 0 && atomic_fetch_sub(&left, 1) == 0; }
static void die(void) { syscall(SYS_kill, getpid(), SIGKILL); }

static ssize_t put_at(int fd, const void *p, size_t n, off_t at)
{
    if (dies()) {
        if (torn) syscall(SYS_pwrite64, fd, p, n / 2, at);
        die();
    }
    return (ssize_t)syscall(SYS_pwrite64, fd, p, n, at);
}
ssize_t pwrite64(int fd, const void *p, size_t n, off64_t at) { return put_at(fd, p, n, at); }
#define BOUNDARY(call, signature, ...) int call signature { if (dies()) die(); return (int)syscall(SYS_##call, __VA_ARGS__); }
BOUNDARY(fsync, (int fd), fd)
BOUNDARY(fdatasync, (int fd), fd)
int ftruncate64(int fd, off64_t n)
{
    if (dies()) die();
    return (int)syscall(SYS_ftruncate, fd, n);
}

enum { KERNELS = 3, POINTS_MAX = 400 };

static void name_of(char out[72], int point, bool half, int i) { snprintf(out, 72, "kk1-%d-%d-%d", point, half, i); }

static void bytes_of(char out[3000], const char *key, int which)
{
    size_t n = 0;
    while (n < 2500) n += (size_t)snprintf(out + n, 3000 - n, "%s/%d/%zu;", key, which, n);
}

static int put(cache *c, const char *key)
{
    char a[3000], b[3000];
    bool stored = false;
    bytes_of(a, key, 0);
    bytes_of(b, key, 1);
    cache_record r = {.canon = {"canon", 5}, .nartifacts = 2, .name = "p", .target = "t", .origin = "constructed"};
    cache_blob blobs[2] = {{"", {a, strlen(a)}}, {"", {b, strlen(b)}}};
    snprintf(r.key, sizeof r.key, "%s", key);
    strcpy(r.artifacts[0].kind, "source");
    strcpy(r.artifacts[1].kind, "so");
    return cache_put(c, &r, blobs, 2, &stored) == CACHE_OK && stored;
}

/* Says over the pipe what was acknowledged: "p0" a put, "f0" a failed verdict, "s" a submission, "c" a claim, "d" its end. */
static void ack(int fd, char what, int i)
{
    char text[2] = {what, (char)('0' + i)};
    syscall(SYS_write, fd, text, 2);
}

static void live(int fd, int point, bool half)
{
    char key[72], why[300], id[40];
    cache_error e;
    bool fresh;
    jobs_lease l;
    jobs_job x;
    cache *c = cache_open(&(cache_config){.data_dir = dir}, &e);
    jobs *j = c ? jobs_open(&(jobs_config){.data_dir = dir}, why, sizeof why) : NULL;
    if (!j) _exit(9);
    torn = half;
    atomic_store(&left, point);
    for (int i = 0; i < KERNELS; i++) {
        name_of(key, point, half, i);
        if (put(c, key)) ack(fd, 'p', i);
        if (i == 1 && cache_verdict(c, key, 1, CACHE_FAILED, "{}") == CACHE_OK) ack(fd, 'f', i);
    }
    name_of(key, point, half, 0);
    snprintf(id, sizeof id, "j%d-%d", point, half);
    jobs_ask a = {.id = id, .kind = JOBS_COMPILE, .key = key, .class = -1, .payload = "{}"};
    if (jobs_submit(j, &a, NULL, &fresh) == JOBS_OK) ack(fd, 's', 0);
    jobs_offer o = {.worker = "w", .kinds = 1, .any = true, .id = id};
    if (jobs_claim(j, &o, &l, &x) == JOBS_OK) ack(fd, 'c', 0);
    if (jobs_succeed(j, &l, "{\"done\":1}") == JOBS_OK) ack(fd, 'd', 0);
    atomic_store(&left, -1);
    _exit(0);
}

static void check_kernel(cache *c, const char *key, bool acked, bool failed)
{
    cache_record *r = NULL;
    enum cache_status st = cache_get_version(c, key, 1, &r);
    assert_true(st == CACHE_OK || st == CACHE_QUARANTINED || (st == CACHE_MISS && !acked));
    assert_true(!failed || st == CACHE_QUARANTINED);
    for (int i = 0; r && i < r->nartifacts; i++) {
        char want[3000], *bytes;
        size_t n;
        bytes_of(want, key, i);
        assert_int_equal(cache_get_blob(c, r->artifacts[i].digest, &bytes, &n), CACHE_OK);
        assert_int_equal(n, strlen(want));
        assert_memory_equal(bytes, want, n);
        free(bytes);
    }
    cache_release(r);
}

static void check_job(jobs *j, int point, bool half, const char *acks)
{
    char id[40];
    jobs_job x = {0};
    snprintf(id, sizeof id, "j%d-%d", point, half);
    enum jobs_status st = jobs_get(j, id, &x);
    assert_true(st == JOBS_OK || (st == JOBS_NONE && !strchr(acks, 's')));
    if (st != JOBS_OK) return;
    assert_true(!strchr(acks, 'd') || x.state == JOBS_SUCCEEDED);
    assert_true(!strchr(acks, 'c') || x.epoch == 1);
    assert_true(x.state == JOBS_SUCCEEDED ? !strcmp(x.result, "{\"done\":1}") : !*x.result);
    jobs_event e[8];
    int n = jobs_events(j, id, 0, 8, e); /* the log says what the row says */
    assert_true(n >= 1 && !strcmp(e[n - 1].kind, jobs_state_text(x.state)) && e[n - 1].seq == x.seq);
    for (int i = 0; i < n; i++) jobs_event_free(&e[i]);
    jobs_job_free(&x);
}

/* False: it came to its end before the boundary. */
static bool one_point(int point, bool half)
{
    int fd[2], status;
    char acks[64] = "", key[72], why[300];
    assert_int_equal(pipe(fd), 0);
    pid_t pid = fork();
    if (pid == 0) live(fd[1], point, half);
    close(fd[1]);
    for (size_t n = 0; n < sizeof acks - 1;) {
        ssize_t k = read(fd[0], acks + n, sizeof acks - 1 - n);
        if (k <= 0) break;
        n += (size_t)k;
    }
    close(fd[0]);
    waitpid(pid, &status, 0);
    assert_true(WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
    cache_error e;
    cache *c = cache_open(&(cache_config){.data_dir = dir}, &e);
    assert_non_null(c);
    jobs *j = jobs_open(&(jobs_config){.data_dir = dir}, why, sizeof why);
    assert_non_null(j);
    for (int i = 0; i < KERNELS; i++) {
        char put_ack[3] = {'p', (char)('0' + i), 0}, fail_ack[3] = {'f', (char)('0' + i), 0};
        name_of(key, point, half, i);
        check_kernel(c, key, strstr(acks, put_ack) != NULL, strstr(acks, fail_ack) != NULL);
    }
    check_job(j, point, half, acks);
    jobs_close(j);
    cache_close(c);
    return WIFSIGNALED(status);
}

static void killed_at_every_boundary(void **s)
{
    (void)s;
    const char *every = getenv("KILN_CRASH_STEP"); /* 1: all of them, as `make crash-sweep` does */
    int points = 0, step = every ? atoi(every) : 13;
    char cmd[160];
    assert_true(step >= 1);
    for (int half = 0; half < 2; half++)
        for (int i = half; i < POINTS_MAX && one_point(i, half); i += step) points++;
    print_message("# %d points\n", points);
    assert_true(points * step >= 100); /* the boundary is where the store writes */
    snprintf(cmd, sizeof cmd, "! ls '%s' | grep -q corrupt", dir);
    assert_int_equal(system(cmd), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(killed_at_every_boundary, fresh_dir, drop_dir)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
