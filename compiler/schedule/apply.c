/* Reads a trace, a primitive a line, and applies it to a private copy of the program. */
#include "schedule/sched.h"
#include <stdio.h>
#include <string.h>

static const kn_prim prims[] = {
#define X(name, min, max, usage) { #name, min, max, usage, kn_prim_##name },
#include "schedule/prims.def"
#undef X
};

static const char all_names[] =
#define X(name, min, max, usage) ", " #name
#include "schedule/prims.def"
#undef X
    ;

kiln_status kn_step_refuse(kn_step *s, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    kn_fail(s->d, KILN_TRACE, "step %d (%s%s%s): %s", s->number, s->prim, s->nargs ? " " : "", s->nargs ? s->args[0] : "", text);
    s->d->line = s->line;
    s->d->col = 1;
    return KILN_TRACE;
}

/* What a scatter goes into is finished behind it, and what it reads its places from must be there: nothing may be moved into or out of these
 * stages, their loops alone may change. */
static bool keeps_place(const kn_step *s, const kn_stage *g)
{
    static const char *const loops[] = {"split", "reorder", "blockize", "parallel", "bind", "vectorize", "unroll", "sample_perfect_tile"},
                      *const axes[] = {"fuse", "divide", "cache_read", "annotate"};
    const kn_stmt *st = kn_stage_stmt(s->t, g);
    if (!kn_pinned(s->t->program, st->out)) return true;
    for (size_t i = 0; i < sizeof loops / sizeof *loops; i++)
        if (!strcmp(s->prim, loops[i])) return true;
    for (size_t i = 0; i < sizeof axes / sizeof *axes && !st->scatter; i++)
        if (!strcmp(s->prim, axes[i])) return true;
    return false;
}

/* What is computed before the first call is whole and by itself: its loops alone may change. */
static bool stays_ahead(const kn_step *s)
{
    static const char *const may[] = {"fuse", "divide", "split", "reorder", "blockize", "parallel", "vectorize", "unroll", "annotate", "rfactor",
                                      "sample_perfect_tile"};
    for (size_t i = 0; i < sizeof may / sizeof *may; i++)
        if (!strcmp(s->prim, may[i])) return true;
    return false;
}

kn_stage *kn_step_stage(kn_step *s, const char *name)
{
    for (int i = 0; i < s->t->nstages; i++) {
        kn_stage *g = s->t->stages[i];
        if (strcmp(kn_stage_name(s->t, g), name)) continue;
        bool scattered = !keeps_place(s, g);
        if (!scattered && (!g->ahead || stays_ahead(s))) return g;
        if (scattered) kn_step_refuse(s, "a scatter goes into '%s', or where it says: only its loops can be changed", name);
        else kn_step_refuse(s, "'%s' is computed ahead: only its loops can be changed", name);
        return NULL;
    }
    kn_step_refuse(s, "no statement writes a tensor named '%s'", name);
    return NULL;
}

int kn_step_loop(kn_step *s, const kn_stage *g, const char *name)
{
    for (int i = 0; i < g->nloops; i++)
        if (!strcmp(g->loops[i].name, name)) return i;
    kn_step_refuse(s, "statement '%s' has no loop '%s'", kn_stage_name(s->t, g), name);
    return -1;
}

int kn_step_axis(kn_step *s, const kn_stage *g, const char *name)
{
    const kn_stmt *st = kn_stage_stmt(s->t, g);
    for (int i = 0; i < st->naxes; i++)
        if (!strcmp(st->axes[i].name, name)) return i;
    kn_step_refuse(s, "statement '%s' has no axis '%s'", kn_stage_name(s->t, g), name);
    return -1;
}

bool kn_step_int(kn_step *s, const char *text, int64_t lo, int64_t hi, int64_t *out)
{
    int64_t v = 0;
    const char *p = text;
    for (; *p >= '0' && *p <= '9' && v <= hi; p++) v = v * 10 + (*p - '0');
    if (p == text || *p || v < lo || v > hi) {
        kn_step_refuse(s, "'%s' is not a number from %lld to %lld", text, (long long)lo, (long long)hi);
        return false;
    }
    *out = v;
    return true;
}

/* Splits a line into words in place; false when there are too many. */
static bool words(char *line, kn_step *s)
{
    s->nargs = 0;
    s->prim = NULL;
    for (char *p = line; *p;) {
        while (*p == ' ' || *p == '\t' || *p == '\r') p++;
        if (!*p) break;
        char *w = p;
        while (*p && *p != ' ' && *p != '\t' && *p != '\r') p++;
        if (*p) *p++ = 0;
        if (!s->prim) s->prim = w;
        else if (s->nargs == KN_STEP_ARGS) return false;
        else s->args[s->nargs++] = w;
    }
    return true;
}

static kiln_status apply_step(kn_step *s)
{
    for (size_t i = 0; i < sizeof prims / sizeof *prims; i++) {
        const kn_prim *p = &prims[i];
        if (strcmp(p->name, s->prim)) continue;
        if (!kn_step_substitute(s)) return KILN_TRACE;
        if (s->nargs >= p->min_args && (p->max_args < 0 || s->nargs <= p->max_args)) return p->apply(s);
        kn_step_refuse(s, "wrong number of arguments (%d)", s->nargs);
        kn_hint(s->d, "%s", p->usage);
        return KILN_TRACE;
    }
    kn_step_refuse(s, "no such primitive");
    kn_hint(s->d, "%s", all_names + 2);
    return KILN_TRACE;
}

static void put_complete(kn_step *s, const char *line, size_t n)
{
    kn_putn(s->complete, line, n);
    if (s->decision && !memchr(line, ':', n)) kn_putf(s->complete, " : %s", s->decision);
    kn_put(s->complete, "\n");
}

static kiln_status apply_text(kn_step *s, kiln_bytes trace)
{
    for (size_t at = 0; at < trace.n;) {
        const char *nl = memchr(trace.p + at, '\n', trace.n - at);
        size_t n = nl ? (size_t)(nl - trace.p) - at : trace.n - at;
        s->line++;
        const char *start = trace.p + at;
        char *line = kn_strndup(s->a, start, n);
        if (!line) return kn_fail(s->d, KILN_MEMORY, "out of memory while reading a trace");
        at += n + 1;
        bool fits = words(line, s);
        s->decision = NULL;
        if (!s->prim || s->prim[0] == '#') {
            if (s->complete && n) put_complete(s, start, n);
            continue;
        }
        if (++s->number > KILN_MAX_TRACE_STEPS) return kn_fail(s->d, KILN_LIMIT, "a trace has at most %d steps", KILN_MAX_TRACE_STEPS);
        if (!fits) return kn_step_refuse(s, "more than %d arguments", KN_STEP_ARGS);
        kiln_status st = apply_step(s);
        if (st) return st;
        if (s->complete) put_complete(s, start, n);
    }
    return KILN_OK;
}

kiln_status kn_step_run(kn_step *s, kiln_bytes lines)
{
    kn_step inner = { .a = s->a, .hw = s->hw, .d = s->d, .t = s->t };
    kiln_status st = apply_text(&inner, lines);
    if (st != KILN_TRACE) return st;
    const char *why = kn_strdup(s->a, s->d->message);
    return kn_step_refuse(s, "%s", why ? why : "a step of its own does not fit");
}

static kiln_status apply(kiln_arena *a, const kn_program *canonical, const kn_hw *hw, kiln_bytes trace, kn_buf *complete, kn_tree **out,
                         kiln_diag *d)
{
    kn_step s = { .a = a, .hw = hw, .d = d, .complete = complete };
    kiln_status st = kn_trace_start(a, canonical, &s.t, d);
    if (!st) st = apply_text(&s, trace);
    if (!st) st = kn_trace_end(s.t, hw, d);
    if (!st && kn_arena_dry(a)) st = kn_fail(d, KILN_MEMORY, "out of memory while applying a trace");
    if (!st) *out = s.t;
    return st;
}

kiln_status kn_trace_apply(kiln_arena *a, const kn_program *canonical, const kn_hw *hw, kiln_bytes trace, kn_tree **out, kiln_diag *d)
{
    return apply(a, canonical, hw, trace, NULL, out, d);
}

kiln_status kn_trace_complete(kiln_arena *a, const kn_program *canonical, const kn_hw *hw, kiln_bytes trace, kiln_bytes *out, kiln_diag *d)
{
    kn_buf b;
    kn_tree *t;
    kn_buf_init(&b, a);
    kiln_status st = apply(a, canonical, hw, trace, &b, &t, d);
    if (st) return st;
    *out = kn_buf_take(&b);
    return out->p ? KILN_OK : kn_fail(d, KILN_MEMORY, "out of memory while completing a trace");
}

kiln_status kn_trace_start(kiln_arena *a, const kn_program *canonical, kn_tree **out, kiln_diag *d)
{
    *out = kn_tree_new(a, canonical);
    return *out ? KILN_OK : kn_fail(d, KILN_MEMORY, "out of memory while copying the program");
}

kiln_status kn_trace_step(kiln_arena *a, const kn_tree *t, const kn_hw *hw, kiln_bytes line, kn_tree **out, kiln_diag *d)
{
    kn_step s = { .a = a, .hw = hw, .d = d, .t = kn_tree_clone(a, t) };
    if (!s.t) return kn_fail(d, KILN_MEMORY, "out of memory while copying a schedule");
    kiln_status st = apply_text(&s, line);
    if (!st && kn_arena_dry(a)) st = kn_fail(d, KILN_MEMORY, "out of memory while applying a step");
    if (!st) *out = s.t;
    return st;
}

kiln_status kn_trace_end(kn_tree *t, const kn_hw *hw, kiln_diag *d) { return kn_tree_check(t, hw, d); }
