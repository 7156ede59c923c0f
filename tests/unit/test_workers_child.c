/* Children: limits, sandbox, capture, deadline, and that nothing stays behind. The programs run are the system's own shell and tools. */
#include "workers_fixture.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char dir[CHILD_DIR_BYTES];
static child_result r;

static int each_open(void **state)
{
    char why[256];
    (void)state;
    return child_dir_make(&tools, dir, why, sizeof why) ? 0 : -1;
}

static int each_close(void **state)
{
    (void)state;
    child_result_free(&r);
    child_dir_remove(dir);
    return access(dir, F_OK) == 0 ? -1 : 0;
}

static void shell(const char *script, const child_limits *limits)
{
    assert_true(child_run(&tools, dir, (const char *const[]){"exec", "/bin/sh", "-c", script, NULL}, limits, &r));
}

static const child_limits usual = {.deadline_ms = 5000, .processes = 32};

static void ends_and_streams(void **state)
{
    (void)state;
    shell("echo to out; echo to err >&2; pwd >&2; exit 3", &usual);
    assert_int_equal(r.exit_code, 3);
    assert_int_equal(r.signal, 0);
    assert_false(r.timed_out);
    assert_string_equal(r.out, "to out\n");
    assert_non_null(strstr(r.err, "to err\n"));
}

static void own_path_is_removed(void **state)
{
    (void)state;
    shell("echo \"$TMPDIR/kernel.c:1: $TMPDIR/x\"; printf 'a\\000b'", &usual);
    assert_string_equal(r.out, "kernel.c:1: x\na?b");
    assert_int_equal(r.out_n, strlen(r.out));
}

static void environment_is_empty(void **state)
{
    (void)state;
    setenv("KILN_TEST_SECRET", "mark", 1);
    shell("export -p", &usual);
    assert_int_equal(r.exit_code, 0);
    assert_null(strstr(r.out, "mark"));
    assert_non_null(strstr(r.out, "TMPDIR"));
}

static void descriptors_are_closed(void **state)
{
    (void)state;
    int fds[400], n = 0;
    while (n < 400 && (fds[n] = open("/dev/null", O_RDONLY)) >= 0) { /* not close-on-exec: a library's careless file */
        n++;
    }
    shell("echo /proc/$$/fd/*", &usual);
    while (n > 0) { close(fds[--n]); }
    assert_int_equal(r.exit_code, 0);
    assert_non_null(strstr(r.out, "/fd/2"));
    assert_true(r.out_n < 100); /* 0, 1, 2 and the listing's own */
}

static void descriptors_are_handed_over(void **state)
{
    (void)state;
    assert_true(child_dir_put(dir, "a", "first", 5) && child_dir_put(dir, "b", "second", 6));
    char a[700], b[700];
    snprintf(a, sizeof a, "%s/a", dir);
    snprintf(b, sizeof b, "%s/b", dir);
    int fa = open(a, O_RDONLY | O_CLOEXEC), fb = open(b, O_RDONLY | O_CLOEXEC);
    child_limits l = usual;
    l.nfds = 2;
    l.fds[0] = fb; /* crossed: 3 is likely the number of the other */
    l.fds[1] = fa;
    shell("cat <&3; echo; cat <&4", &l);
    close(fa);
    close(fb);
    assert_string_equal(r.out, "second\nfirst");
}

static void deadline_kills_the_group(void **state)
{
    (void)state;
    double start = fixture_seconds(), asleep = 60;
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* orphans come to us, so that we can see them gone */
    shell("echo $$; sleep 60 & sleep 60 & sleep 60", &(child_limits){.deadline_ms = 200, .processes = 32});
    double took = fixture_seconds() - start;
    assert_true(r.timed_out);
    assert_int_equal(r.signal, SIGKILL);
    assert_true(took >= 0.2 && took < asleep);
    pid_t group = (pid_t)atoi(r.out);
    assert_true(group > 1);
    while (waitpid(-group, NULL, 0) > 0) {}
    assert_int_equal(kill(-group, 0), -1);
    assert_int_equal(errno, ESRCH);
}

static void leftovers_do_not_delay(void **state)
{
    (void)state;
    double start = fixture_seconds(), asleep = 60;
    shell("sleep 60 & echo done", &usual);
    assert_true(fixture_seconds() - start < asleep && !r.timed_out);
    assert_int_equal(r.exit_code, 0);
    assert_string_equal(r.out, "done\n");
}

static void flood_is_bounded(void **state)
{
    (void)state;
    shell("while :; do echo 0123456789012345678901234567890123456789012345678901234567890123456789; done",
          &(child_limits){.deadline_ms = 300, .processes = 32});
    assert_true(r.timed_out);
    assert_int_equal(r.out_n, CHILD_CAPTURE_BYTES);
}

static void cpu_time_is_limited(void **state)
{
    (void)state;
    shell("while :; do :; done", &(child_limits){.deadline_ms = 20000, .cpu_seconds = 1, .processes = 32});
    assert_true(r.timed_out);
    assert_true(r.seconds < 10);
    child_result_free(&r);
    shell("trap '' XCPU; while :; do :; done", &(child_limits){.deadline_ms = 20000, .cpu_seconds = 1, .processes = 32}); /* killed a second later */
    assert_true(r.timed_out);
    assert_int_equal(r.signal, SIGKILL);
}

static void file_size_is_limited(void **state)
{
    (void)state;
    shell("cat /dev/zero > big", &(child_limits){.deadline_ms = 5000, .file_bytes = 100000, .processes = 32});
    struct stat st;
    char big[700];
    snprintf(big, sizeof big, "%s/big", dir);
    assert_int_not_equal(r.exit_code, 0);
    assert_int_equal(stat(big, &st), 0);
    assert_int_equal(st.st_size, 100000);
}

static void memory_is_limited(void **state)
{
    (void)state;
    shell("x=0123456789012345; while :; do x=$x$x; done", &(child_limits){.deadline_ms = 5000, .address_bytes = 64 << 20, .processes = 32});
    assert_false(r.timed_out);
    assert_int_not_equal(r.exit_code, 0);
}

/* The default limit of 4 GiB against one buffer of 20 GB: dd says so and ends; nothing of this machine is touched. */
static void twenty_gigabytes(void **state)
{
    (void)state;
    shell("dd if=/dev/zero of=/dev/null bs=20G count=1", &(child_limits){.deadline_ms = 20000, .processes = 32});
    assert_false(r.timed_out);
    assert_int_not_equal(r.exit_code, 0);
    assert_non_null(strstr(r.err, "memory exhausted"));
}

/* Each within its own limit: the sum is what is looked at. They keep what they took: a shell becomes the last command of its script. */
static void memory_of_all_is_limited(void **state)
{
    (void)state;
    shell("for i in 1 2 3 4 5 6 7 8; do (x=0123456789012345; while [ ${#x} -lt 16000000 ]; do x=$x$x; done; sleep 30; : $x) & done; wait",
          &(child_limits){.deadline_ms = 20000, .group_bytes = 100 << 20, .processes = 32});
    assert_string_equal(r.over, "its processes took more than 100 MiB of memory together");
    assert_false(r.timed_out);
    assert_true(r.seconds < 15);
}

/* Also for root, whom RLIMIT_NPROC does not bind. Nothing of it is left. */
static void fork_bomb_ends(void **state)
{
    char mark[32], cmd[300];
    (void)state;
    snprintf(mark, sizeof mark, "bomb%d", (int)getpid());
    snprintf(cmd, sizeof cmd, "%s() { %s | %s & wait; }; %s", mark, mark, mark, mark);
    shell(cmd, &(child_limits){.deadline_ms = 20000, .processes = 32});
    assert_true(r.over[0] ? strstr(r.over, "more than 32 processes") != NULL : geteuid() != 0 && r.exit_code != 0);
    assert_true(r.seconds < 15);
    snprintf(cmd, sizeof cmd, "sleep 0.2; ! grep -qsz '[b]%s' /proc/[0-9]*/cmdline", mark + 1);
    assert_int_equal(system(cmd), 0);
}

/* Every line of the probe, as this kernel gives it: where Landlock is missing the lines about files say so, and only they. */
static void sandbox_denies(void **state)
{
    char text[4096];
    (void)state;
    workers_sandbox_text(&tools, text, sizeof text);
    static const char *const lines[] = {"network: denied\n",           "io_uring: denied\n",
                                        "signals to others: denied\n", "leaving the process group: denied\n",
                                        "new processes: denied\n",     "environment of the service: denied\n",
                                        "own directory: usable\n"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        if (strstr(text, lines[i]) == NULL) {
            print_message("missing \"%s\" in\n%s", lines[i], text);
            fail();
        }
    }
}

static void unknown_mode(void **state)
{
    (void)state;
    assert_true(child_run(&tools, dir, (const char *const[]){"no-such-mode", NULL}, &usual, &r));
    assert_int_equal(r.exit_code, CHILD_SANDBOX_EXIT);
    assert_non_null(strstr(r.err, "no-such-mode"));
}

static void missing_worker_and_program(void **state)
{
    (void)state;
    worker_tools none = tools;
    none.worker[0] = 0;
    assert_false(child_run(&none, dir, (const char *const[]){"probe", NULL}, &usual, &r));
    assert_non_null(strstr(r.why, "kiln-child"));
    assert_true(child_run(&tools, dir, (const char *const[]){"exec", "/no/such/program", NULL}, &usual, &r));
    assert_int_equal(r.exit_code, CHILD_SANDBOX_EXIT);
}

static void exec_needs_processes(void **state)
{
    (void)state;
    shell("echo ran", &(child_limits){.deadline_ms = 5000});
    assert_int_equal(r.exit_code, CHILD_SANDBOX_EXIT);
    assert_string_equal(r.out, "");
}

static void results_are_not_trusted(void **state)
{
    char path[700], *p = NULL;
    size_t n = 0;
    (void)state;
    snprintf(path, sizeof path, "%s/link", dir);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_false(child_dir_get(dir, "link", 1 << 20, &p, &n));
    snprintf(path, sizeof path, "%s/fifo", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_false(child_dir_get(dir, "fifo", 1 << 20, &p, &n)); /* and returns at once */
    assert_false(child_dir_get(dir, "absent", 1 << 20, &p, &n));
    assert_true(child_dir_put(dir, "long", "12345", 5));
    assert_false(child_dir_get(dir, "long", 4, &p, &n));
    assert_true(child_dir_get(dir, "long", 5, &p, &n));
    assert_string_equal(p, "12345");
    free(p);
    snprintf(path, sizeof path, "%s/locked", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_true(child_dir_put(path, "x", "1", 1));
    assert_int_equal(chmod(path, 0), 0); /* each_close removes it all the same */
}

/* The parent is stopped across the deadline, as a machine that stands still stops everything: what was left of the child's time is left to it. */
static void standing_still_is_no_lateness(void **state)
{
    (void)state;
    pid_t self = getpid(), stopper = fork();
    if (stopper == 0) {
        usleep(100000);
        kill(self, SIGSTOP);
        usleep(2000000);
        kill(self, SIGCONT);
        _exit(0);
    }
    shell("sleep 2.3; echo done", &(child_limits){.deadline_ms = 1200, .processes = 32});
    assert_int_equal(waitpid(stopper, NULL, 0), stopper);
    assert_false(r.timed_out);
    assert_string_equal(r.out, "done\n");
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "child") == 0) { return child_main(argc, argv); }
#define T(f) cmocka_unit_test_setup_teardown(f, each_open, each_close)
    const struct CMUnitTest tests[] = {T(ends_and_streams),
                                       T(own_path_is_removed),
                                       T(environment_is_empty),
                                       T(descriptors_are_closed),
                                       T(descriptors_are_handed_over),
                                       T(deadline_kills_the_group),
                                       T(leftovers_do_not_delay),
                                       T(flood_is_bounded),
                                       T(cpu_time_is_limited),
                                       T(file_size_is_limited),
                                       T(memory_is_limited),
                                       T(twenty_gigabytes),
                                       T(memory_of_all_is_limited),
                                       T(fork_bomb_ends),
                                       T(sandbox_denies),
                                       T(unknown_mode),
                                       T(missing_worker_and_program),
                                       T(exec_needs_processes),
                                       T(results_are_not_trusted),
                                       T(standing_still_is_no_lateness)};
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
