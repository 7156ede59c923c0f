/* The parent's side of running a kernel in a child: describes the job, shares memory for the outputs, reads the answer, compares. */
#include "workers/arena.h"
#include "workers/verify.h"
#include "workers/child.h"
#include "workers/room_posix.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

static bool trouble(worker_error *e, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    e->status = KILN_INTERNAL;
    snprintf(e->slug, sizeof e->slug, "verify-failed");
    vsnprintf(e->message, sizeof e->message, fmt, args);
    va_end(args);
    return false;
}

/* Into JSON and logs as it is. */
static void make_safe(char *s)
{
    for (; *s; s++) {
        if (*s == '"') {
            *s = '\'';
        } else if (*s == '\\') {
            *s = '/';
        } else if ((unsigned char)*s < 0x20 || (unsigned char)*s >= 0x7f) {
            *s = ' ';
        }
    }
}

bool verify_refused(worker_verdict *v, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(v->detail, sizeof v->detail, fmt, args);
    va_end(args);
    make_safe(v->detail);
    v->ok = false;
    v->how = "";
    return true;
}

/* The program as text in malloc'ed memory; NULL when out of memory. */
static char *text_of(const kiln_program *p)
{
    kiln_arena *a = worker_arena(NULL);
    kiln_bytes b;
    char *s = a && kiln_program_text(a, p, &b) == KILN_OK ? strndup(b.p, b.n) : NULL;
    kiln_arena_close(a);
    return s;
}

static void choose_inputs(const kiln_program *p, verify_job *j)
{
    char *text = text_of(p);
    bool divides = text == NULL || strchr(text, '/') || strchr(text, '%'), floats = true;
    for (int i = 0; i < j->nin + j->nout; i++) {
        floats = floats && verify_dtype_is_float((verify_dtype)j->args[i].dtype);
    }
    for (int k = 0; k < VERIFY_KINDS; k++) {
        j->source[k] = (verify_source){.seed = 0x6b696c6e, .kind = k, .nonzero = divides};
        j->source[k].nonfinite = floats && text && verify_text_is_elementwise(text);
    }
    free(text);
}

enum verify_fit verify_job_of(const kiln_program *p, verify_job *j, char *why, size_t why_n)
{
    int64_t in = 0, out = 0;
    kiln_arg a;
    *j = (verify_job){.magic = VERIFY_MAGIC, .size = sizeof *j, .nin = kiln_program_inputs(p),
                       .nout = kiln_program_outputs(p), .nkinds = VERIFY_KINDS, .threads = 1, .again = -1};
    for (int i = 0; i < j->nin + j->nout; i++) {
        verify_dtype t;
        bool output = i >= j->nin;
        (output ? kiln_program_output : kiln_program_input)(p, output ? i - j->nin : i, &a);
        if (!verify_dtype_find(a.dtype, &t)) {
            snprintf(why, why_n, "the verifier does not know dtype %s", a.dtype);
            return VERIFY_NO_DTYPE;
        }
        j->args[i] = (verify_array){.dtype = t, .elems = a.elems, .bytes = a.bytes, .offset = output ? j->slot_bytes : 0};
        if (output) {
            j->slot_bytes += verify_pages(a.bytes);
            out += verify_pages(a.bytes);
        } else {
            in += verify_pages(a.bytes);
        }
        if ((in + 2 * out) >> 20 > VERIFY_ROOM) {
            snprintf(why, why_n, "too large to be run here: its arrays need more than %d MiB", (int)VERIFY_ROOM);
            return VERIFY_TOO_LARGE;
        }
    }
    while (j->nkinds > 1 && (in + (j->nkinds + 1) * out) >> 20 > VERIFY_ROOM) {
        j->nkinds--;
    }
    choose_inputs(p, j);
    return VERIFY_FITS;
}

/* Memory both sides see; its size is sealed, so that the child cannot take it from under us. */
static int shared_memory(int64_t bytes)
{
    int fd = memfd_create("kiln-outputs", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && (ftruncate(fd, (off_t)bytes) != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Milliseconds of CPU time: enough for a slow machine to do it all several times over. */
static int allowance_of(const kiln_program *p, const verify_job *j, int budget_ms)
{
    double flops = 0, bytes = 0, all = 0;
    kiln_work(p, &flops, &bytes);
    for (int i = 0; i < j->nin + j->nout; i++) {
        all += (double)j->args[i].bytes;
    }
    /* Whole kernels at 0.2 GFLOP/s; in emulation a few blocks, some twenty times, at 0.1. */
    double ms = 1000 + 20.0 * budget_ms + all / 1e5 + (j->mode == VERIFY_BLOCKS ? flops / (double)j->grid / 4e3 : flops / 2e5);
    return ms > 600000 ? 600000 : (int)ms;
}

enum { MOST_MS = 600000 }; /* that a child runs, or a check waits for its memory */

/* Bytes that a check takes while it runs: inputs and outputs of a run, and the shared file. */
static int64_t room_of(const verify_job *j)
{
    int64_t bytes = (j->nkinds + 1) * j->slot_bytes;
    for (int i = 0; i < j->nin; i++) {
        bytes += verify_pages(j->args[i].bytes);
    }
    return bytes;
}

static bool room_for(const worker_tools *t, const verify_job *j, int patience_ms, worker_error *e)
{
    if (worker_room_take(worker_room_here(), room_of(j), patience_ms, t->stop, t->stop_user)) {
        return true;
    }
    *e = (worker_error){.status = KILN_STOPPED, .slug = "deadline-exceeded", .message = "stopped while it waited for memory to verify in"};
    return false;
}

/* A machine that is busy with others is not the kernel's fault: CPU time is what is counted, and the clock only ends what sleeps. */
static child_limits limits_of(const verify_job *j, int allowance_ms, int fd, int go)
{
    enum { PATIENCE = 8 };
    int threads = j->threads > 3 ? j->threads : 3;
    return (child_limits){.deadline_ms = allowance_ms > MOST_MS / PATIENCE ? MOST_MS : allowance_ms * PATIENCE,
                          .cpu_seconds = (allowance_ms * threads + 999) / 1000,
                          .address_bytes = ((int64_t)VERIFY_ROOM << 21) + (INT64_C(4) << 30), .nfds = go < 0 ? 1 : 2, .fds = {fd, go}};
}

/* False: e, and r is released. */
static bool has_run(child_result *r, worker_error *e)
{
    if (r->exit_code != CHILD_SANDBOX_EXIT && !r->stopped) {
        return true;
    }
    trouble(e, "the child could not start: %.500s", r->err);
    if (r->stopped) { *e = (worker_error){.status = KILN_STOPPED, .slug = "deadline-exceeded", .message = "stopped while verifying"}; }
    child_result_free(r);
    return false;
}

static bool run_child(const worker_tools *t, const verify_job *j, const worker_blob *so, int fd, int allowance_ms, child_result *r,
                      worker_error *e)
{
    char dir[CHILD_DIR_BYTES], why[256] = "cannot write to the private directory";
    child_limits limits = limits_of(j, allowance_ms, fd, -1);
    if (!child_dir_make(t, dir, why, sizeof why)) {
        return trouble(e, "%s", why);
    }
    bool ok = child_dir_put(dir, "kernel.so", so->p, so->n) && child_dir_put(dir, "job.bin", j, sizeof *j);
    if (!ok) {
        trouble(e, "%s", why);
    } else if (!child_run(t, dir, (const char *const[]){"run", NULL}, &limits, r)) {
        ok = trouble(e, "%s", r->why);
        child_result_free(r);
    } else {
        ok = has_run(r, e);
    }
    child_dir_remove(dir);
    return ok;
}

typedef struct answer {
    bool done, failed, unwritten;
    bool carried; /* instructions that the CPU has not, see tiles.h */
    int kinds;
    int64_t blocks, grid;
    worker_traffic traffic;
    char fail[400], phase[100];
    double us[3];
} answer;

static void copy_line(char *to, size_t n, const char *from) { snprintf(to, n, "%.*s", (int)strcspn(from, "\n"), from); }

static void read_traffic(const char *line, worker_traffic *t)
{
    long long x[6] = {0};
    sscanf(line, "%lld %lld %lld %lld %lld %lld", &x[0], &x[1], &x[2], &x[3], &x[4], &x[5]);
    *t = (worker_traffic){x[0], x[1], x[2], x[3], x[4], x[5]};
}

static void add_traffic(worker_traffic *sum, const worker_traffic *t)
{
    sum->load_sectors += t->load_sectors;
    sum->load_least += t->load_least;
    sum->store_sectors += t->store_sectors;
    sum->store_least += t->store_least;
    sum->shared_turns += t->shared_turns;
    sum->shared_least += t->shared_least;
}

static void read_answer(const char *out, answer *a)
{
    *a = (answer){.phase = "starting"};
    for (const char *line = out; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        long long x, y;
        if (strncmp(line, "at ", 3) == 0) {
            copy_line(a->phase, sizeof a->phase, line + 3);
        } else if (strncmp(line, "fail ", 5) == 0 && !a->failed) {
            a->failed = true;
            copy_line(a->fail, sizeof a->fail, line + 5);
        } else if (strncmp(line, "carried ", 8) == 0) {
            a->carried = true;
        } else if (strncmp(line, "unwritten", 9) == 0) {
            a->unwritten = true;
        } else if (strncmp(line, "kind ", 5) == 0) {
            a->kinds++;
        } else if (sscanf(line, "blocks %lld %lld", &x, &y) == 2) {
            a->blocks = x;
            a->grid = y;
        } else if (strncmp(line, "traffic ", 8) == 0) {
            read_traffic(line + 8, &a->traffic);
        } else if (strncmp(line, "time ", 5) == 0) {
            sscanf(line, "time %lf %lf %lf", &a->us[0], &a->us[1], &a->us[2]);
        } else if (strncmp(line, "done", 4) == 0) {
            a->done = true;
        }
    }
}

/* Why the child's end is the kernel's fault; false when it is not at fault. */
static bool blame(const child_result *r, const answer *a, int allowance_ms, char *detail, size_t n)
{
    if (a->failed) {
        snprintf(detail, n, "%s", a->fail);
    } else if (r->timed_out) {
        snprintf(detail, n, "did not end within %d ms of CPU time (%s)", allowance_ms, a->phase);
    } else if (r->signal) {
        snprintf(detail, n, "killed by signal %d (%s)", r->signal, a->phase);
    } else if (!a->done) {
        snprintf(detail, n, "the kernel ended the process, exit code %d (%s)", r->exit_code, a->phase);
    } else {
        return false;
    }
    make_safe(detail);
    return true;
}

/* known: one a kind, or NULL. */
static bool compare_kinds(const kiln_program *p, const verify_job *j, const answer *a, int fd, int budget_ms, const verify_expectations *known,
                          worker_verdict *v, worker_error *e)
{
    char *text = text_of(p), *outputs[VERIFY_MAX_ARGS];
    int64_t bytes = j->slot_bytes * j->nkinds;
    char *map = text ? mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    bool broken = false;
    if (map == MAP_FAILED) {
        free(text);
        return trouble(e, "no memory to compare results");
    }
    int64_t before = v->checked, most = 0; /* elements, however many kinds of input each was compared with */
    for (int k = 0; k < a->kinds && v->ok; k++) {
        v->checked = 0;
        for (int o = 0; o < j->nout; o++) {
            const verify_array *x = &j->args[j->nin + o];
            outputs[o] = map + k * j->slot_bytes + x->offset + verify_pages(x->bytes) - x->bytes;
        }
        verify_check c = {.program = p, .text = text, .job = j, .kind = k, .sparse = a->blocks < a->grid, .outputs = outputs,
                          .budget_ms = (double)budget_ms / a->kinds, .known = known != NULL ? &known[k] : NULL};
        v->ok = verify_compare(&c, v, &broken);
        madvise(map + k * j->slot_bytes, (size_t)j->slot_bytes, MADV_DONTNEED); /* one kind's outputs at a time count as this process's memory */
        most = v->checked > most ? v->checked : most;
    }
    v->checked = before + most;
    make_safe(v->detail);
    if (broken) {
        v->how = "";
    }
    munmap(map, (size_t)bytes);
    free(text);
    return true;
}

/* What the child left, judged; releases r. */
static bool judge(const kiln_program *p, const verify_job *j, child_result *r, int allowance, int fd, int budget_ms,
                  const verify_expectations *known, worker_verdict *v, worker_error *e)
{
    answer a;
    bool ok = true;
    read_answer(r->out, &a);
    if (blame(r, &a, allowance, v->detail, sizeof v->detail)) {
        v->ok = false;
        v->all_written = v->all_written && !a.unwritten;
    } else {
        v->how = a.carried ? "emulated" : v->how;
        v->all_written = v->all_written && a.blocks == a.grid;
        add_traffic(&v->traffic, &a.traffic);
        ok = compare_kinds(p, j, &a, fd, budget_ms, known, v, e);
    }
    child_result_free(r);
    return ok;
}

static bool no_outputs(const verify_job *j, worker_error *e)
{
    return trouble(e, "no shared memory for %lld bytes of outputs: %s", (long long)(j->slot_bytes * j->nkinds), strerror(errno));
}

bool verify_execute(const worker_tools *t, const kiln_program *p, verify_job *j, const worker_blob *so, int budget_ms,
                    worker_verdict *v, worker_error *e)
{
    child_result r;
    int allowance = allowance_of(p, j, budget_ms);
    if (!room_for(t, j, MOST_MS, e)) {
        return false;
    }
    int fd = shared_memory(j->slot_bytes * j->nkinds);
    bool ok = fd < 0 ? no_outputs(j, e) : run_child(t, j, so, fd, allowance, &r, e) && judge(p, j, &r, allowance, fd, budget_ms, NULL, v, e);
    if (fd >= 0) { close(fd); }
    worker_room_give(worker_room_here(), room_of(j));
    return ok;
}

struct worker_check {
    const worker_tools *tools;
    const kiln_program *program;
    int budget_ms, allowance, outputs, go; /* descriptors: the shared file, an event that lets the child go on */
    bool fits, roomy, tried, runs;         /* why: why it does not fit; roomy: it has its memory; tried: to start a child; e: why none runs */
    verify_job job;
    child_limits limits;
    child_running child;
    char dir[CHILD_DIR_BYTES], why[300];
    worker_error e;
    verify_expectations known[VERIFY_KINDS];
};

static bool try_start(worker_check *c)
{
    char why[256] = "cannot write to the private directory";
    verify_job *j = &c->job;
    if ((c->outputs = shared_memory(j->slot_bytes * j->nkinds)) < 0 || (c->go = eventfd(0, EFD_CLOEXEC)) < 0) {
        return no_outputs(j, &c->e);
    }
    c->limits = limits_of(j, c->allowance, c->outputs, c->go);
    if (!child_dir_make(c->tools, c->dir, why, sizeof why) || !child_dir_put(c->dir, "job.bin", j, sizeof *j) ||
        !child_start(c->tools, c->dir, (const char *const[]){"run", NULL}, &c->limits, &c->child, why)) {
        return trouble(&c->e, "%s", why);
    }
    return true;
}

static void start(worker_check *c)
{
    if (c->roomy && !c->tried) {
        c->tried = true;
        c->runs = try_start(c);
    }
}

static worker_check *begin(const worker_tools *t, const kiln_program *p, const kiln_kernel *k, int budget_ms, int patience_ms)
{
    worker_check *c = calloc(1, sizeof *c);
    char why[600];
    if (c == NULL) {
        return NULL;
    }
    c->tools = t;
    c->program = p;
    c->budget_ms = budget_ms;
    c->outputs = c->go = -1;
    c->fits = verify_job_of(p, &c->job, why, sizeof why) == VERIFY_FITS;
    snprintf(c->why, sizeof c->why, "%.299s", c->fits ? "" : why);
    if (c->fits) {
        snprintf(c->job.entry, sizeof c->job.entry, "%s", k->entry);
        c->job.wait = 1;
        c->job.budget_ms = budget_ms > 200 ? budget_ms : 200;
        c->allowance = allowance_of(p, &c->job, budget_ms);
        c->roomy = room_for(t, &c->job, patience_ms, &c->e);
    }
    return c;
}

/* One after the other: the reference and the child at once would keep the compiler waiting where there are two cores. */
void worker_check_meanwhile(void *check)
{
    worker_check *c = check;
    char *text = c->roomy ? text_of(c->program) : NULL;
    for (int k = 0; text != NULL && k < c->job.nkinds; k++) {
        if (c->known[k].x == NULL) {
            verify_expect(&(verify_check){.program = c->program, .text = text, .job = &c->job, .kind = k,
                                          .budget_ms = (double)c->budget_ms / c->job.nkinds}, &c->known[k]);
        }
    }
    free(text);
    start(c);
}

/* The binary is put where the child, which waits for the event, will look for it. */
static bool finish(worker_check *c, const worker_blob *so, worker_verdict *v, worker_error *e)
{
    child_result r;
    if (!child_dir_put(c->dir, "kernel.so", so->p, so->n) || eventfd_write(c->go, 1) != 0) {
        return trouble(e, "cannot write to the private directory");
    }
    c->runs = false;
    if (!child_wait(c->tools, &c->child, &c->limits, &r)) {
        return trouble(e, "%s", r.why);
    }
    return has_run(&r, e) && judge(c->program, &c->job, &r, c->allowance, c->outputs, c->budget_ms, c->known, v, e);
}

static void drop(worker_check *c)
{
    if (c == NULL) {
        return;
    }
    child_result r;
    c->limits.deadline_ms = 0;
    if (c->runs && child_wait(c->tools, &c->child, &c->limits, &r)) {
        child_result_free(&r);
    }
    child_dir_remove(c->dir);
    if (c->outputs >= 0) { close(c->outputs); }
    if (c->go >= 0) { close(c->go); }
    for (int k = 0; k < VERIFY_KINDS; k++) { free(c->known[k].x); }
    if (c->roomy) { worker_room_give(worker_room_here(), room_of(&c->job)); }
    free(c);
}

worker_check *worker_check_begin(const worker_tools *t, const kiln_program *p, const kiln_kernel *k, int budget_ms)
{
    worker_check *c = begin(t, p, k, budget_ms, 0);
    bool waits = c != NULL && c->fits && !c->roomy;
    if (waits) {
        drop(c);
    }
    return waits ? NULL : c;
}

bool worker_check_end(worker_check *c, const worker_blob *so, worker_verdict *v, worker_error *e)
{
    double began = verify_now_ms();
    bool ok = true;
    if (so != NULL) {
        *v = (worker_verdict){.ok = true, .how = "run", .all_written = true};
        start(c);
        *e = c->e;
        for (int i = c->job.nin; c->fits && i < c->job.nin + c->job.nout; i++) {
            v->total += c->job.args[i].elems;
        }
        ok = !c->fits ? verify_refused(v, "%s", c->why) : c->runs && finish(c, so, v, e);
        v->seconds = (verify_now_ms() - began) / 1e3;
    }
    drop(c);
    return ok;
}

bool worker_verify_cpu(const worker_tools *t, const kiln_program *p, const kiln_kernel *k, const worker_blob *so, int budget_ms,
                    worker_verdict *v, worker_error *e)
{
    double began = verify_now_ms();
    worker_check *c = begin(t, p, k, budget_ms, MOST_MS);
    *v = (worker_verdict){0};
    bool ok = c != NULL ? worker_check_end(c, so, v, e) : trouble(e, "no memory for a check");
    v->seconds = (verify_now_ms() - began) / 1e3;
    return ok;
}

bool worker_time_cpu(const worker_tools *t, const kiln_program *p, const kiln_kernel *k, const worker_blob *so, int threads, int runs,
                     double *median_us, double *p10_us, double *p90_us, worker_error *e)
{
    verify_job j;
    child_result r;
    answer a;
    char why[600];
    *e = (worker_error){0};
    if (verify_job_of(p, &j, why, sizeof why) != VERIFY_FITS) {
        return trouble(e, "%s", why);
    }
    j.mode = VERIFY_TIME;
    j.nkinds = 1;
    j.threads = threads < 1 ? 1 : threads > 256 ? 256 : threads;
    j.runs = runs;
    j.budget_ms = 10000;
    snprintf(j.entry, sizeof j.entry, "%s", k->entry);
    int allowance = allowance_of(p, &j, 600) + (int)j.budget_ms, fd = shared_memory(j.slot_bytes);
    if (fd < 0) {
        return trouble(e, "no shared memory for %lld bytes of outputs", (long long)j.slot_bytes);
    }
    bool ok = run_child(t, &j, so, fd, allowance, &r, e);
    if (ok) {
        read_answer(r.out, &a);
        ok = !blame(&r, &a, allowance, why, sizeof why) || trouble(e, "%s", why);
        child_result_free(&r);
    }
    close(fd);
    if (ok) {
        *median_us = a.us[0];
        *p10_us = a.us[1];
        *p90_us = a.us[2];
    }
    return ok;
}
