/* Mode "probe": tries what the sandbox should forbid and prints what happened, so that doctor and tests report facts, not intentions. */
#include "workers/child.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void tell(const char *what, bool denied) { printf("%s: %s\n", what, denied ? "denied" : "POSSIBLE"); }

/* Closes what should not have opened. */
static bool refused(int fd)
{
    if (fd >= 0) { close(fd); }
    return fd < 0;
}

static bool no_process(void)
{
    pid_t p = fork();
    if (p == 0) { _exit(0); }
    if (p > 0) { waitpid(p, NULL, 0); }
    return p < 0;
}

/* Variables beyond the four of child_posix.c, as names of them: values may be secrets. */
static bool no_foreign_environment(void)
{
    extern char **environ;
    static const char *const own[] = {"PATH=", "LANG=", "LC_ALL=", "TMPDIR="};
    for (char **e = environ; *e != NULL; e++) {
        size_t i = 0;
        while (i < 4 && strncmp(*e, own[i], strlen(own[i])) != 0) { i++; }
        if (i == 4) { return false; }
    }
    return true;
}

int child_mode_probe(int argc, char **argv)
{
    char *p;
    size_t n;
    (void)argc, (void)argv;
    tell("network", refused(socket(AF_INET, SOCK_STREAM, 0)) && refused(socket(AF_UNIX, SOCK_STREAM, 0)));
    tell("io_uring", refused((int)syscall(SYS_io_uring_setup, 1, NULL)) && errno == EPERM);
    tell("signals to others", kill(getppid(), 0) != 0);
    tell("leaving the process group", setsid() < 0 && setpgid(0, 0) < 0);
    tell("new processes", no_process());
    tell("environment of the service", no_foreign_environment());
    tell("reading /etc/passwd", refused(open("/etc/passwd", O_RDONLY | O_CLOEXEC)));
    tell("writing outside", refused(open("../kiln-probe", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)) || unlink("../kiln-probe") != 0);
    bool own = child_dir_put(".", "probe", "x", 1) && child_dir_get(".", "probe", 1, &p, &n);
    if (own) { free(p); }
    printf("own directory: %s\n", own ? "usable" : "NOT USABLE");
    return 0;
}

void workers_sandbox_text(const worker_tools *t, char *text, size_t n)
{
    char dir[CHILD_DIR_BYTES], why[256];
    child_result r;
    if (!child_dir_make(t, dir, why, sizeof why)) {
        snprintf(text, n, "%s\n", why);
        return;
    }
    if (!child_run(t, dir, (const char *const[]){"probe", NULL}, &(child_limits){.deadline_ms = 5000}, &r)) {
        snprintf(text, n, "%s\n", r.why);
    } else {
        snprintf(text, n, "%s%s", r.out, r.err);
    }
    child_result_free(&r);
    child_dir_remove(dir);
}
