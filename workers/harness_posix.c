/* Child mode "run": guarded arrays, inputs, poison, crash reports, and the order of work. */
#include "workers/harness.h"
#include "workers/child.h"
#include "workers/tiles.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GUARD = 1 << 20, MAX_REGIONS = 3 * VERIFY_KINDS * VERIFY_MAX_ARGS + 4 };

/* For the signal handler alone: this process runs one job. */
static harness_region *regions[MAX_REGIONS];
static char phase[96] = "starting";

static void say_raw(const char *p, size_t n)
{
    while (n > 0) {
        ssize_t w = write(1, p, n);
        if (w < 0 && errno != EINTR) {
            return;
        }
        p += w > 0 ? w : 0;
        n -= w > 0 ? (size_t)w : 0;
    }
}

void harness_say(const char *fmt, ...)
{
    char line[480];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(line, sizeof line - 1, fmt, args);
    va_end(args);
    n = n < (int)sizeof line - 1 ? n : (int)sizeof line - 2;
    line[n++] = '\n';
    say_raw(line, (size_t)n);
}

void harness_at(const char *what, int kind)
{
    static const char *const kinds[] = {"random", "integer-exact", "edge"};
    if (kind >= 0) {
        snprintf(phase, sizeof phase, "%s, %s inputs", what, kinds[kind]);
    } else {
        snprintf(phase, sizeof phase, "%s", what);
    }
    harness_say("at %s", phase);
}

static void crash_place(char *out, size_t n, const char *addr)
{
    snprintf(out, n, "at an address outside all arguments");
    for (int i = 0; i < MAX_REGIONS; i++) {
        const harness_region *r = regions[i];
        if (r == NULL || addr < r->map || addr >= r->map + r->pages + 2 * GUARD) {
            continue;
        }
        if (addr >= r->mid + r->pages) {
            snprintf(out, n, "%lld bytes past the end of %s", (long long)(addr - (r->data + r->bytes)), r->what);
        } else if (addr < r->mid) {
            snprintf(out, n, "%lld bytes before the start of %s", (long long)(r->data - addr), r->what);
        } else {
            snprintf(out, n, "written to %s, which is read-only", r->what);
        }
        return;
    }
}

static bool carries_out; /* nothing is timed: tile instructions that the CPU has not may be carried out, and memory may lie in large pages */

static void on_crash(int sig, siginfo_t *info, void *context)
{
    char place[96] = "";
    const char *why = NULL;
    if (sig == SIGILL && carries_out && tiles_step_over(context, &why)) {
        return;
    }
    if (why) {
        snprintf(place, sizeof place, "%s", why);
    }
    if (sig == SIGSEGV || sig == SIGBUS) {
        crash_place(place, sizeof place, info->si_addr);
    }
    const char *name = sig == SIGSEGV ? "out of bounds:" : sig == SIGBUS ? "bad address (SIGBUS)" : sig == SIGILL ? "illegal instruction"
                     : sig == SIGFPE  ? "arithmetic trap (SIGFPE)" : "abort";
    harness_say("fail %s %s (%s)", name, place, phase);
    _exit(0);
}

void harness_catch(void)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    static char stack[1 << 16];
    stack_t alt = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction act = {.sa_sigaction = on_crash, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaltstack(&alt, NULL);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        sigaction(signals[i], &act, NULL);
    }
}

bool harness_map(harness_region *r, int64_t bytes, int fd, int64_t offset, const char *what, int number)
{
    *r = (harness_region){.bytes = bytes, .pages = verify_pages(bytes)};
    snprintf(r->what, sizeof r->what, number >= 0 ? "%s %d" : "%s", what, number);
    char *map = mmap(NULL, (size_t)(r->pages + 2 * GUARD), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) {
        harness_say("fail no memory for %s: %s", r->what, strerror(errno));
        return false;
    }
    r->map = map;
    int flags = MAP_FIXED | MAP_POPULATE | (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
    r->mid = mmap(map + GUARD, (size_t)r->pages, PROT_READ | PROT_WRITE, flags, fd, fd < 0 ? 0 : (off_t)offset);
    if (r->mid == MAP_FAILED) {
        harness_say("fail no memory for %s: %s", r->what, strerror(errno));
        munmap(map, (size_t)(r->pages + 2 * GUARD));
        r->map = NULL;
        return false;
    }
    if (fd < 0 && carries_out) { madvise(r->mid, (size_t)r->pages, MADV_HUGEPAGE); } /* fewer faults */
    r->data = r->mid;
    for (int i = 0; i < MAX_REGIONS; i++) {
        if (regions[i] == NULL) {
            regions[i] = r;
            break;
        }
    }
    return true;
}

void harness_unmap(harness_region *r)
{
    if (r->map) {
        munmap(r->map, (size_t)(r->pages + 2 * GUARD));
    }
    for (int i = 0; i < MAX_REGIONS; i++) {
        if (regions[i] == r) {
            regions[i] = NULL;
        }
    }
    *r = (harness_region){0};
}

void harness_place(harness_region *r, int64_t start, unsigned char poison)
{
    r->data = r->mid + start;
    memset(r->mid, VERIFY_CANARY, (size_t)start);
    memset(r->data, poison, (size_t)r->bytes);
    memset(r->data + r->bytes, VERIFY_CANARY, (size_t)(r->pages - start - r->bytes));
}

static bool is_canary(const char *p, const char *end)
{
    return p >= end || ((unsigned char)*p == VERIFY_CANARY && memcmp(p, p + 1, (size_t)(end - p) - 1) == 0);
}

bool harness_canary_ok(const harness_region *r)
{
    if (is_canary(r->mid, r->data) && is_canary(r->data + r->bytes, r->mid + r->pages)) {
        return true;
    }
    for (const char *p = r->mid; p < r->mid + r->pages; p++) {
        if (p == r->data) {
            p += r->bytes;
            if (p >= r->mid + r->pages) {
                break;
            }
        }
        if ((unsigned char)*p != VERIFY_CANARY) {
            bool before = p < r->data;
            harness_say("fail wrote %lld bytes %s %s (%s)", (long long)(before ? r->data - p : p - (r->data + r->bytes)),
                        before ? "before the start of" : "past the end of", r->what, phase);
            return false;
        }
    }
    return true;
}

void harness_protect(harness_region *r, bool writable)
{
    mprotect(r->mid, (size_t)r->pages, writable ? PROT_READ | PROT_WRITE : PROT_READ);
}

bool harness_open(harness *h, int kind)
{
    const verify_job *j = h->job;
    for (int i = 0; i < j->nin; i++) {
        const verify_array *x = &j->args[i];
        harness_region *r = &h->in[i];
        if (!harness_map(r, x->bytes, -1, 0, "input", i)) {
            return false;
        }
        r->data = r->mid + r->pages - r->bytes;
        verify_fill(&j->source[kind], (verify_dtype)x->dtype, i, x->elems, r->data);
        harness_protect(r, false);
    }
    for (int i = 0; i < j->nout; i++) {
        const verify_array *x = &j->args[j->nin + i];
        if (!harness_map(&h->a[i], x->bytes, VERIFY_FD, x->offset + kind * j->slot_bytes, "output", i)) {
            return false;
        }
        harness_place(&h->a[i], h->a[i].pages - x->bytes, VERIFY_POISON_A);
    }
    return true;
}

bool harness_second(harness *h)
{
    const verify_job *j = h->job;
    for (int i = 0; i < j->nout; i++) {
        if (!harness_map(&h->b[i], j->args[j->nin + i].bytes, -1, 0, "output", i)) {
            return false;
        }
        harness_place(&h->b[i], 0, VERIFY_POISON_B);
    }
    return true;
}

void harness_move(harness *h)
{
    for (int i = 0; i < h->job->nin; i++) {
        harness_region *r = &h->in[i];
        if (r->data != r->mid) {
            harness_protect(r, true);
            memmove(r->mid, r->data, (size_t)r->bytes);
            r->data = r->mid;
            harness_protect(r, false);
        }
    }
}

static bool all_are(const char *p, int n, unsigned char byte)
{
    for (int i = 0; i < n; i++) {
        if ((unsigned char)p[i] != byte) {
            return false;
        }
    }
    return true;
}

bool harness_compare(const harness *h, const char *other, bool sparse)
{
    for (int o = 0; o < h->job->nout; o++) {
        const harness_region *a = &h->a[o], *b = &h->b[o];
        const verify_array *x = &h->job->args[h->job->nin + o];
        int size = (int)(x->bytes / x->elems);
        if (!harness_canary_ok(a) || !harness_canary_ok(b)) {
            return false;
        }
        if (memcmp(a->data, b->data, (size_t)a->bytes) == 0) {
            continue; /* unwritten elements would differ, as the poisons do */
        }
        for (int64_t i = 0; i < x->elems; i++) {
            const char *p = a->data + i * size, *q = b->data + i * size;
            if (memcmp(p, q, (size_t)size) == 0) {
                continue;
            }
            bool no_a = all_are(p, size, VERIFY_POISON_A), no_b = all_are(q, size, VERIFY_POISON_B);
            if (no_a && no_b && sparse) {
                continue;
            }
            if (no_a && no_b) {
                harness_say("fail output %d, element %lld is never written (%s)", o, (long long)i, phase);
                harness_say("unwritten");
            } else {
                harness_say("fail output %d, element %lld %s (%s)", o, (long long)i, other, phase);
            }
            return false;
        }
    }
    return true;
}

void harness_close(harness *h)
{
    for (int i = 0; i < VERIFY_MAX_ARGS; i++) {
        harness_unmap(&h->in[i]);
        harness_unmap(&h->a[i]);
        harness_unmap(&h->b[i]);
    }
}

bool harness_load(harness *h)
{
    h->so = dlopen("./kernel.so", RTLD_NOW | RTLD_LOCAL);
    if (h->so == NULL) {
        harness_say("fail the shared object cannot be loaded: %.300s", dlerror());
        return false;
    }
    int32_t *tiles = dlsym(h->so, "kiln_tiles"); /* 0: the system gives this process none */
    if (tiles && carries_out) {
        *tiles = 1;
    }
    return true;
}

static bool read_job(verify_job *j)
{
    int fd = open("job.bin", O_RDONLY | O_CLOEXEC);
    bool ok = fd >= 0 && read(fd, j, sizeof *j) == (ssize_t)sizeof *j && j->magic == VERIFY_MAGIC && j->size == sizeof *j;
    if (fd >= 0) {
        close(fd);
    }
    return ok;
}

int child_mode_run(int argc, char **argv)
{
    static verify_job job;
    static harness h;
    (void)argc;
    (void)argv;
    if (!read_job(&job)) {
        harness_say("fail the job's description cannot be read");
        return 0;
    }
    h.job = &job;
    carries_out = job.mode != VERIFY_TIME;
    harness_catch();
    harness_at("loading", -1);
    worker_permit_amx();
    if (!job.wait && !harness_load(&h)) {
        return 0;
    }
    if (job.mode == VERIFY_TIME ? harness_time(&h) : job.mode == VERIFY_BLOCKS ? harness_blocks(&h) : harness_cpu(&h)) {
        if (tiles_stepped()) {
            harness_say("carried %ld", tiles_stepped());
        }
        harness_say("done");
    }
    fflush(NULL);
    _exit(0); /* a kernel's destructors are no business of ours */
}
