/* What the toolchains share: refusing open source text, and how a child's end becomes a worker_error. */
#include "workers/toolchain.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN_LINES = 12 };

bool toolchain_fail(worker_error *e, kiln_status s, const char *slug, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    e->status = s;
    snprintf(e->slug, sizeof e->slug, "%s", slug);
    vsnprintf(e->message, sizeof e->message, fmt, ap);
    va_end(ap);
    return false;
}

bool toolchain_open(const worker_tools *t, kiln_bytes source, const char *name, char dir[CHILD_DIR_BYTES], worker_error *e)
{
    int line = 0;
    char why[256];
    dir[0] = 0;
    if (!workers_source_is_closed(source.p, source.n, &line)) {
        return toolchain_fail(e, KILN_INTERNAL, "compile-failed",
                              "%s:%d: source text may not name files (#include and its kin are refused)", name, line);
    }
    if (!child_dir_make(t, dir, why, sizeof why)) { return toolchain_fail(e, KILN_MEMORY, "compile-failed", "%s", why); }
    if (!child_dir_put(dir, name, source.p, source.n)) {
        child_dir_remove(dir);
        dir[0] = 0;
        return toolchain_fail(e, KILN_MEMORY, "compile-failed", "cannot write the source to a private directory: is the disk full?");
    }
    return true;
}

/* Length of the first lines that fit into a message. */
static int head(const char *log, int room)
{
    int n = 0, lines = 0;
    while (log[n] && n < room && lines < SHOWN_LINES) { lines += log[n++] == '\n'; }
    while (n > 0 && (log[n - 1] == '\n' || ((unsigned char)log[n] & 0xc0) == 0x80)) {
        n--; /* neither an empty last line nor half a character */
    }
    return n;
}

bool toolchain_judge(const child_result *r, const char *what, const char *log, int deadline_ms, worker_error *e)
{
    if (r->timed_out) { return toolchain_fail(e, KILN_STOPPED, "compile-timeout", "%s was stopped after %d ms", what, deadline_ms); }
    if (r->over[0]) { return toolchain_fail(e, KILN_INTERNAL, "sandbox", "%s was killed: %s", what, r->over); }
    if (r->exit_code == CHILD_SANDBOX_EXIT) {
        return toolchain_fail(e, KILN_MEMORY, "compile-failed", "%.1500s", r->err_n ? r->err : "the child did not start");
    }
    if (r->signal) {
        return toolchain_fail(e, KILN_INTERNAL, "compile-failed", "%s was killed by signal %d (limits of memory or file size?)", what,
                              r->signal);
    }
    if (r->exit_code != 0) {
        return toolchain_fail(e, KILN_INTERNAL, "compile-failed", "%.*s", head(log, (int)sizeof e->message - 1), log);
    }
    return true;
}
