/* The parent's side of a child: start, capture, wait with a deadline, kill the whole group, reap. */
#include "workers/child.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NO_PIDFD_TICK_MS = 5, STOP_TICK_MS = 100, LOOK_TICK_MS = 500, STOOD_MS = 1000, WATCH_MS = 250, DRAIN_MS = 100, MAX_ARGS = 96 };

/* One captured stream of the child. */
typedef struct stream {
    int fd;
    char *p;
    size_t n;
} stream;

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void close_fd(int *fd)
{
    if (*fd >= 0) { close(*fd); }
    *fd = -1;
}

static void parent_of(const char *path, int up, char *out, size_t n)
{
    char real[4096];
    out[0] = 0;
    if (path[0] == 0 || realpath(path, real) == NULL) { return; }
    while (up-- > 0) {
        char *slash = strrchr(real, '/');
        if (slash == NULL || slash == real) { return; /* never the root: everything would be readable */ }
        *slash = 0;
    }
    size_t len = strlen(real);
    if (len < n) { memcpy(out, real, len + 1); }
}

/* Folders of the tools, which may lie outside the system's own. A compiler reads beside its bin/ too. */
static void readable_paths(const worker_tools *t, char *out, size_t n)
{
    char cc[1024], bin[1024], nvrtc[1024], worker[1024];
    parent_of(t->cc, 2, cc, sizeof cc);
    parent_of(t->cc, 1, bin, sizeof bin);
    parent_of(t->nvrtc, 1, nvrtc, sizeof nvrtc);
    parent_of(t->worker, 1, worker, sizeof worker);
    snprintf(out, n, "%s:%s:%s:%s", cc, bin, nvrtc, worker);
}

/* Sets up descriptors: nothing to read, both outputs to us, and the caller's files at 3, 4, ... These are first copied out of the
 * way (copies[]), as a target number may be another's source. */
static bool spawn_files(posix_spawn_file_actions_t *fa, const child_limits *l, int out, int err, int *copies)
{
    bool ok = posix_spawn_file_actions_addopen(fa, 0, "/dev/null", O_RDONLY, 0) == 0 && posix_spawn_file_actions_adddup2(fa, out, 1) == 0 &&
              posix_spawn_file_actions_adddup2(fa, err, 2) == 0;
    for (int i = 0; i < l->nfds && ok; i++) {
        copies[i] = fcntl(l->fds[i], F_DUPFD_CLOEXEC, 3 + CHILD_MAX_FDS);
        ok = copies[i] >= 0 && posix_spawn_file_actions_adddup2(fa, copies[i], 3 + i) == 0;
    }
    return ok;
}

/* 0, or an errno. A session of its own makes a group of its own before the program starts: the kill below can never miss. */
static int spawn(const worker_tools *t, const char *dir, char *const *argv, const child_limits *l, int out, int err, pid_t *pid)
{
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;
    sigset_t none, all;
    int copies[CHILD_MAX_FDS], rc = EMFILE;
    char path[1200], tmp[700], bin[1024];
    parent_of(t->cc, 1, bin, sizeof bin);
    snprintf(path, sizeof path, "PATH=%s%s/usr/local/bin:/usr/bin:/bin", bin, bin[0] ? ":" : "");
    snprintf(tmp, sizeof tmp, "TMPDIR=%s", dir);
    char *env[] = {path, (char[]){"LANG=C"}, (char[]){"LC_ALL=C"}, tmp, NULL};
    for (int i = 0; i < CHILD_MAX_FDS; i++) { copies[i] = -1; }
    sigemptyset(&none);
    sigfillset(&all);
    if (posix_spawn_file_actions_init(&fa) != 0) { return ENOMEM; }
    if (posix_spawnattr_init(&attr) != 0) {
        posix_spawn_file_actions_destroy(&fa);
        return ENOMEM;
    }
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    if (spawn_files(&fa, l, out, err, copies)) { rc = posix_spawn(pid, argv[0], &fa, &attr, argv, env); }
    for (int i = 0; i < CHILD_MAX_FDS; i++) { close_fd(&copies[i]); }
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&fa);
    return rc;
}

static void take(stream *s)
{
    char drop[4096];
    bool keep = s->n < CHILD_CAPTURE_BYTES;
    ssize_t r = read(s->fd, keep ? s->p + s->n : drop, keep ? CHILD_CAPTURE_BYTES - s->n : sizeof drop);
    if (r > 0 && keep) {
        s->n += (size_t)r;
    } else if (r == 0 || (r < 0 && errno != EINTR && errno != EAGAIN)) {
        close_fd(&s->fd);
    }
}

/* Gone but not yet reaped, so that its number (and its group's) cannot be given to another process before we have killed the group. */
static bool has_ended(pid_t pid)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == pid;
}

/* How much later than asked this process went on: it was stopped, or its machine stood still (suspended, moved, starved). Nobody's time. */
static double stood(double since, int wait)
{
    double late = now_ms() - since - wait;
    return late > STOOD_MS ? late : 0;
}

/* Reads both streams until the child ends, the deadline passes or it shall stop; false: to be killed. */
static bool attend(const worker_tools *t, pid_t pid, stream s[2], const child_limits *l, double start, child_result *r)
{
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    bool ended = false;
    double deadline = start + l->deadline_ms, look = l->processes > 0 ? start + WATCH_MS : deadline;
    for (double left = deadline - now_ms(); !ended && left > 0; left = deadline - now_ms()) {
        if ((r->stopped = t->stop != NULL && t->stop(t->stop_user))) { break; }
        if (now_ms() >= look && !child_watch(pid, l, r->over, sizeof r->over)) { break; }
        if (now_ms() >= look) { look = now_ms() + WATCH_MS; }
        if (look - now_ms() < left) { left = look - now_ms() > 0 ? look - now_ms() : 0; }
        struct pollfd p[3] = {{s[0].fd, POLLIN, 0}, {s[1].fd, POLLIN, 0}, {pidfd, POLLIN, 0}};
        int tick = pidfd < 0 ? NO_PIDFD_TICK_MS : t->stop != NULL ? STOP_TICK_MS : LOOK_TICK_MS, wait = left > tick ? tick : (int)left + 1;
        double since = now_ms();
        if (poll(p, 3, wait) < 0 && errno != EINTR) { break; }
        deadline += stood(since, wait);
        for (int i = 0; i < 2; i++) {
            if (s[i].fd >= 0 && p[i].revents) { take(&s[i]); }
        }
        ended = (pidfd < 0 || p[2].revents) && has_ended(pid);
    }
    close_fd(&pidfd);
    return ended;
}

/* What is still in the pipes after the group is dead. Bounded: a copy of the pipe's end may have been handed elsewhere. */
static void drain(stream s[2])
{
    double until = now_ms() + DRAIN_MS;
    while ((s[0].fd >= 0 || s[1].fd >= 0) && now_ms() < until) {
        struct pollfd p[2] = {{s[0].fd, POLLIN, 0}, {s[1].fd, POLLIN, 0}};
        if (poll(p, 2, DRAIN_MS) <= 0) { break; }
        for (int i = 0; i < 2; i++) {
            if (s[i].fd >= 0 && p[i].revents) { take(&s[i]); }
        }
    }
}

/* Removes "DIR/" and makes other NULs harmless: messages then name "kernel.c" and nothing of this machine. */
static void clean(stream *s, const char *dir)
{
    size_t dn = strlen(dir), w = 0;
    for (size_t i = 0; i < s->n;) {
        if (s->n - i > dn && memcmp(s->p + i, dir, dn) == 0 && s->p[i + dn] == '/') {
            i += dn + 1;
        } else {
            s->p[w++] = s->p[i] ? s->p[i] : '?';
            i++;
        }
    }
    s->p[w] = 0;
    s->n = w;
}

/* Everything can be read as before, since Landlock judges that; only dir can be written, /dev and /proc are the child's own. Inside, the first
 * process is bubblewrap's, and the parent of the child. */
static int wrap(const worker_tools *t, const char *dir, char *args[MAX_ARGS])
{
    static const char *const options[] = {"--die-with-parent", "--unshare-net", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
                                          "--unshare-cgroup-try", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind"};
    int n = 0;
    args[n++] = (char *)t->bwrap;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) { args[n++] = (char *)options[i]; }
    args[n++] = (char *)dir;
    args[n++] = (char *)dir;
    args[n++] = (char *)"--";
    return n;
}

/* Returns the seconds of CPU time that the child, and who it waited for, took. */
static double finish(pid_t pid, const char *dir, stream s[2], child_result *r)
{
    int status = 0;
    struct rusage used = {0};
    kill(-pid, SIGKILL);
    while (wait4(pid, &status, 0, &used) < 0) {
        if (errno != EINTR) {
            status = 0xff00;
            break;
        }
    }
    drain(s);
    for (int i = 0; i < 2; i++) {
        close_fd(&s[i].fd);
        clean(&s[i], dir);
    }
    r->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    r->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    r->out = s[0].p, r->out_n = s[0].n;
    r->err = s[1].p, r->err_n = s[1].n;
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static int cpu_seconds(const child_limits *l) { return l->cpu_seconds > 0 ? l->cpu_seconds : l->deadline_ms / 1000 + 2; }

static void limits_text(const worker_tools *t, const child_limits *l, char *text, size_t n)
{
    snprintf(text, n, "as=%lld,file=%lld,cpu=%d,procs=%d,fds=%d,parent=%d",
             (long long)(l->address_bytes > 0 ? l->address_bytes : INT64_C(4) << 30),
             (long long)(l->file_bytes > 0 ? l->file_bytes : 64 << 20), cpu_seconds(l),
             l->processes, l->nfds, t->bwrap[0] ? 1 : (int)getpid());
}

bool child_start(const worker_tools *t, const char *dir, const char *const *argv, const child_limits *l, child_running *c, char why[256])
{
    char limits[200], readable[4200], child[] = "child";
    char *args[MAX_ARGS] = {NULL};
    int n = t->bwrap[0] ? wrap(t, dir, args) : 0, out[2] = {-1, -1}, err[2] = {-1, -1}, rc = E2BIG;
    pid_t pid = -1;
    *c = (child_running){.pid = -1};
    snprintf(c->dir, sizeof c->dir, "%s", dir);
    limits_text(t, l, limits, sizeof limits);
    readable_paths(t, readable, sizeof readable);
    char *const head[] = {(char *)t->worker, child, (char *)dir, limits, readable};
    for (size_t i = 0; i < sizeof head / sizeof *head; i++) { args[n++] = head[i]; }
    for (int i = 0; argv[i] != NULL && n < MAX_ARGS; i++) { args[n++] = (char *)argv[i]; }
    if (n < MAX_ARGS && l->nfds >= 0 && l->nfds <= CHILD_MAX_FDS) {
        rc = pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0 ? errno : spawn(t, dir, args, l, out[1], err[1], &pid);
    }
    close_fd(&out[1]);
    close_fd(&err[1]);
    c->pid = (int)pid;
    c->out = out[0];
    c->err = err[0];
    if (rc != 0) {
        snprintf(why, 256, "cannot start %.160s: %.60s", t->worker[0] ? t->worker : "kiln-child (not found beside this program)", strerror(rc));
        close_fd(&c->out);
        close_fd(&c->err);
    }
    return rc == 0;
}

bool child_wait(const worker_tools *t, const child_running *c, const child_limits *l, child_result *r)
{
    double start = now_ms();
    *r = (child_result){.exit_code = -1};
    stream s[2] = {{c->out, malloc(CHILD_CAPTURE_BYTES + 1), 0}, {c->err, malloc(CHILD_CAPTURE_BYTES + 1), 0}};
    bool room = s[0].p != NULL && s[1].p != NULL, ended = room && attend(t, c->pid, s, l, start, r);
    if (!room) {
        close_fd(&s[0].fd);
        close_fd(&s[1].fd);
        kill(-c->pid, SIGKILL);
        while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR) {}
        free(s[0].p);
        free(s[1].p);
        snprintf(r->why, sizeof r->why, "no memory for what a child says");
        return false;
    }
    double used = finish(c->pid, c->dir, s, r);
    if (t->bwrap[0] && r->exit_code > 128 && r->exit_code <= 128 + SIGRTMAX) { /* how bubblewrap says that it was killed */
        r->signal = r->exit_code - 128;
        r->exit_code = -1;
    }
    bool spent = r->signal == SIGXCPU || (r->signal == SIGKILL && used >= cpu_seconds(l)); /* what does not heed the first is killed by the limit */
    r->timed_out = (!ended || spent) && !r->over[0];
    r->seconds = (now_ms() - start) / 1e3;
    return true;
}

bool child_run(const worker_tools *t, const char *dir, const char *const *argv, const child_limits *l, child_result *r)
{
    child_running c;
    double start = now_ms();
    *r = (child_result){.exit_code = -1};
    if (!child_start(t, dir, argv, l, &c, r->why)) { return false; }
    if (t->meanwhile != NULL) { t->meanwhile(t->meanwhile_user); }
    bool ok = child_wait(t, &c, l, r);
    r->seconds = (now_ms() - start) / 1e3;
    return ok;
}

void child_result_free(child_result *r)
{
    free(r->out);
    free(r->err);
    r->out = r->err = NULL;
    r->out_n = r->err_n = 0;
}

void workers_find_namespaces(worker_tools *t)
{
    static const char path[] = "/usr/bin/bwrap";
    static const char *const nothing[] = {"exec", "/bin/true", NULL};
    child_limits l = {.deadline_ms = 5000, .processes = 1};
    child_result r;
    char dir[CHILD_DIR_BYTES], why[200];
    if (access(path, X_OK) != 0 || !child_dir_make(t, dir, why, sizeof why)) { return; }
    memcpy(t->bwrap, path, sizeof path);
    bool ok = child_run(t, dir, nothing, &l, &r) && r.exit_code == 0;
    child_result_free(&r);
    if (!ok) { t->bwrap[0] = 0; }
    child_dir_remove(dir);
}
