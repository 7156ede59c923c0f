/* Decisions of a trace as text: listed, and replaced. Whether a decision is lawful is for applying the trace to say. */
#include "schedule/sched.h"
#include <string.h>

static const char sample[] = "sample_";

static size_t word(const char *p, size_t n)
{
    size_t i = 0;
    while (i < n && p[i] != ' ' && p[i] != '\t') i++;
    return i;
}

static size_t blanks(const char *p, size_t n)
{
    size_t i = 0;
    while (i < n && (p[i] == ' ' || p[i] == '\t' || p[i] == '\r')) i++;
    return i;
}

/* A line's sampling step; false when it holds none. */
static bool read_line(kiln_arena *a, const char *p, size_t n, kn_decision *out)
{
    size_t at = blanks(p, n), len = word(p + at, n - at);
    if (len < sizeof sample || strncmp(p + at, sample, sizeof sample - 1)) return false;
    out->prim = kn_strndup(a, p + at, len);
    at += len;
    at += blanks(p + at, n - at);
    out->name = kn_strndup(a, p + at, word(p + at, n - at));
    const char *colon = memchr(p, ':', n);
    size_t from = colon ? (size_t)(colon - p) + 1 : n;
    from += blanks(p + from, n - from);
    out->decision = kn_strndup(a, p + from, n - from);
    return out->prim && out->name && out->decision;
}

static size_t line_length(kiln_bytes t, size_t at)
{
    const char *nl = memchr(t.p + at, '\n', t.n - at);
    return nl ? (size_t)(nl - t.p) - at : t.n - at;
}

int kn_trace_decisions(kiln_arena *a, kiln_bytes trace, kn_decision *out, int cap)
{
    int n = 0, line = 1;
    kn_decision x;
    for (size_t at = 0; at < trace.n; at += line_length(trace, at) + 1, line++) {
        if (!read_line(a, trace.p + at, line_length(trace, at), &x)) continue;
        x.line = line;
        if (n < cap) out[n] = x;
        n++;
    }
    return n;
}

kiln_bytes kn_trace_decide(kiln_arena *a, kiln_bytes trace, int line, const char *decision)
{
    kn_buf b;
    kn_decision x;
    int number = 1;
    bool found = false;
    kn_buf_init(&b, a);
    for (size_t at = 0; at < trace.n; at += line_length(trace, at) + 1, number++) {
        const char *p = trace.p + at;
        size_t n = line_length(trace, at);
        if (number == line && read_line(a, p, n, &x)) {
            const char *colon = memchr(p, ':', n);
            size_t keep = colon ? (size_t)(colon - p) : n;
            while (keep && p[keep - 1] == ' ') keep--;
            kn_putn(&b, p, keep);
            kn_putf(&b, " : %s\n", decision);
            found = true;
            continue;
        }
        kn_putn(&b, p, n);
        kn_put(&b, "\n");
    }
    return found ? kn_buf_take(&b) : (kiln_bytes){ NULL, 0 };
}
