/* kiln-gpu-run DIR: measures a bundle. Each group in a child of its own, which is killed when a step takes too long; the rest of the
 * group goes on in another without the kernel that hung or crashed. Results are JSON lines, each flushed as it is known. */
#include "workers/gpu/gpu.h"
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct runner {
    gpu_bundle bundle;
    FILE *out;
    int rounds, failed, no_device;
    double batch_ms, step_s, budget_s, start;
    bool headed;
} runner;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int kernel_of(const gpu_group *g, const char *id)
{
    for (int i = 0; i < g->nkernels; i++)
        if (!strcmp(g->kernels[i].id, id)) return i;
    return -1;
}

static void put_lost(runner *r, const gpu_group *g, int k, const char *status)
{
    const gpu_kernel *x = &g->kernels[k];
    fprintf(r->out, "{\"kernel\":\"%s\",\"group\":\"%s\",\"key\":\"%s\",\"target\":\"%s\",\"rank\":%d,\"status\":\"%s\"}\n", x->id, g->id,
            g->key, g->target, x->rank, status);
    fflush(r->out);
    r->failed++;
}

/* The kernel that a result line is about is done with: it will not be tried again. */
static void settle(const gpu_group *g, const char *line, bool *skip)
{
    const char *p = strstr(line, "\"kernel\":\"");
    char id[64];
    size_t n = p ? strcspn(p + 10, "\"") : 0;
    if (!p || n >= sizeof id) return;
    memcpy(id, p + 10, n);
    id[n] = 0;
    int k = kernel_of(g, id);
    if (k >= 0) skip[k] = true;
}

typedef struct child {
    pid_t pid;
    int fd;
    char *line;
    size_t n, cap;
    int kernel;
    bool done, none;
} child;

static void hear(runner *r, const gpu_group *g, child *c, char *line, bool *skip)
{
    char id[64], phase[16];
    if (!strncmp(line, "line ", 5)) {
        bool head = !strncmp(line + 5, "{\"runner\"", 9);
        if (!head || !r->headed) fprintf(r->out, "%s\n", line + 5);
        r->headed |= head;
        fflush(r->out);
        if (!strstr(line, "\"status\":\"ok\"") && !head) r->failed++;
        settle(g, line, skip);
    } else if (sscanf(line, "at %63s %15s", id, phase) == 2) {
        c->kernel = kernel_of(g, id);
    } else if (!strncmp(line, "no-device ", 10)) {
        fprintf(stderr, "kiln-gpu-run: %s\n", line + 10);
        c->none = true;
    } else if (!strcmp(line, "done")) {
        c->done = true;
    }
}

/* Reads what the child says until it ends or says nothing for too long. False: killed. */
static bool follow(runner *r, const gpu_group *g, child *c, bool *skip)
{
    for (;;) {
        struct pollfd p = {c->fd, POLLIN, 0};
        double left = r->start + r->budget_s - now(), wait = r->step_s < left ? r->step_s : left;
        int n = poll(&p, 1, wait > 0 ? (int)(wait * 1e3) : 0);
        if (n == 0) return false;
        if (c->cap - c->n < 4096) {
            c->line = realloc(c->line, c->cap = c->cap * 2 + 8192);
            if (!c->line) exit(71);
        }
        ssize_t got = read(c->fd, c->line + c->n, c->cap - c->n - 1);
        if (got <= 0) return true;
        c->n += (size_t)got;
        c->line[c->n] = 0;
        char *from = c->line, *end;
        while ((end = strchr(from, '\n'))) {
            *end = 0;
            hear(r, g, c, from, skip);
            from = end + 1;
        }
        c->n = strlen(from);
        memmove(c->line, from, c->n + 1);
    }
}

static bool begin(runner *r, gpu_group *g, const bool *skip, child *c)
{
    int fds[2];
    *c = (child){.kernel = -1};
    if (pipe(fds)) return false;
    fflush(NULL);
    c->pid = fork();
    if (c->pid == 0) {
        close(fds[0]);
        gpu_options o = {r->rounds, r->batch_ms, skip, fdopen(fds[1], "w"), !r->headed};
        exit(o.say ? gpu_run_group(&r->bundle, g, &o) : 71);
    }
    close(fds[1]);
    c->fd = fds[0];
    if (c->pid < 0) close(c->fd);
    return c->pid > 0;
}

/* True: go on with the next group. */
static bool run_group(runner *r, gpu_group *g)
{
    bool *skip = calloc((size_t)g->nkernels + 1, sizeof *skip), more = true, on = true;
    for (int tries = 0; skip && more && tries <= g->nkernels; tries++) {
        child c;
        int status = 0;
        if (now() - r->start > r->budget_s) break;
        if (!begin(r, g, skip, &c)) return false;
        bool alive = follow(r, g, &c, skip);
        if (!alive) kill(c.pid, SIGKILL);
        waitpid(c.pid, &status, 0);
        close(c.fd);
        free(c.line);
        more = !c.done && !c.none;
        if (c.none) r->no_device = 1, on = false;
        bool crashed = WIFSIGNALED(status);
        if (more && c.kernel < 0)
            more = false;
        else if (more && !skip[c.kernel]) {
            put_lost(r, g, c.kernel, !alive ? "timeout" : crashed ? "crashed" : "launch-failed");
            skip[c.kernel] = true;
        }
    }
    for (int i = 0; skip && on && i < g->nkernels; i++)
        if (!skip[i]) put_lost(r, g, i, "not-run");
    free(skip);
    return on;
}

static int usage(void)
{
    fputs("usage: kiln-gpu-run DIR [-o FILE] [--rounds N] [--batch-ms MS] [--step-timeout S] [--budget S] [--list]   or   kiln-gpu-run --device\n"
          "measures the kernels of the bundle in DIR; status 0: all right, 1: some are not, 2: a bad bundle, 3: no device, 64: bad usage\n",
          stderr);
    return 64;
}

static int list_bundle(const gpu_bundle *b)
{
    int kernels = 0, points = 0;
    for (int i = 0; i < b->ngroups; i++) {
        kernels += b->groups[i].nkernels;
        for (int k = 0; k < b->groups[i].nchecks; k++) points += b->groups[i].checks[k].npoints;
    }
    printf("%d modules, %d groups, %d kernels, %d points\n", b->nmodules, b->ngroups, kernels, points);
    return 0;
}

/* "sm_90 NVIDIA H200": what a worker asks before it offers itself. */
static int show_device(void)
{
    gpu_device d;
    char why[300];
    if (!gpu_device_open(&d, why, sizeof why)) {
        fprintf(stderr, "kiln-gpu-run: %s\n", why);
        return 3;
    }
    printf("sm_%d%d %s\n", d.major, d.minor, d.name);
    gpu_device_close(&d);
    return 0;
}

int main(int argc, char **argv)
{
    runner r = {.out = stdout, .rounds = 7, .batch_ms = 10, .step_s = 20, .budget_s = 540, .start = now()};
    const char *dir = NULL, *out = NULL;
    char why[400];
    bool list = false;
    if (argc == 2 && !strcmp(argv[1], "--device")) return show_device();
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *v = i + 1 < argc ? argv[i + 1] : NULL;
        double x = v ? atof(v) : 0;
        if (!strcmp(a, "--list"))
            list = true;
        else if (*a != '-' && !dir)
            dir = a;
        else if (!v)
            return usage();
        else if (!strcmp(a, "-o"))
            out = v, i++;
        else if (!strcmp(a, "--rounds") && x >= 1 && x <= 32)
            r.rounds = (int)x, i++;
        else if (!strcmp(a, "--batch-ms") && x > 0)
            r.batch_ms = x, i++;
        else if (!strcmp(a, "--step-timeout") && x > 0)
            r.step_s = x, i++;
        else if (!strcmp(a, "--budget") && x > 0)
            r.budget_s = x, i++;
        else
            return usage();
    }
    if (!dir) return usage();
    if (!gpu_bundle_open(&r.bundle, dir, why, sizeof why)) {
        fprintf(stderr, "kiln-gpu-run: %s\n", why);
        return 2;
    }
    if (list) return list_bundle(&r.bundle);
    if (out && !(r.out = fopen(out, "w"))) {
        fprintf(stderr, "kiln-gpu-run: %s cannot be written\n", out);
        return 73;
    }
    for (int i = 0; i < r.bundle.ngroups; i++)
        if (!run_group(&r, &r.bundle.groups[i])) break;
    if (r.out != stdout) fclose(r.out);
    return r.no_device ? 3 : r.failed ? 1 : 0;
}
