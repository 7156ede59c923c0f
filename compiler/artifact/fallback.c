/* A GPU artifact's second choice: what its kernels ask of addresses, and the schedule that asks nothing. */
#include "artifact/fallback.h"
#include <stdio.h>

static bool wide(const kn_lprog *p, int buffer, int lanes)
{
    const kn_buffer *b = &p->buffers[buffer];
    return lanes > 1 && b->scope == KN_GLOBAL && p->program->tensors[b->slot].role != KN_TEMP;
}

static bool wide_reads(const kn_lprog *p, const kn_expr *e)
{
    bool yes = e->op == KN_OP_READ && wide(p, e->u.buffer, e->lanes);
    for (int i = 0; i < e->nargs && !yes; i++) yes = wide_reads(p, e->args[i]);
    return yes;
}

static bool wide_list(const kn_lprog *p, const kn_ls *s)
{
    for (; s; s = s->next) {
        if (s->kind == KN_LS_PIPE || (s->kind == KN_LS_STORE && (s->async || wide(p, s->buffer, s->value->lanes)))) return true;
        if ((s->value && wide_reads(p, s->value)) || wide_list(p, s->body) || wide_list(p, s->other)) return true;
    }
    return false;
}

bool kn_wants_alignment(const kn_lprog *p)
{
    bool yes = false;
    for (int i = 0; i < p->nfns && !yes; i++) yes = p->fns[i].maps || wide_list(p, p->fns[i].body);
    return yes;
}

/* A block of one thread for every value of the axes that have a place of their own. */
static void put_scatter(kn_buf *b, const kn_program *p, int stmt)
{
    const kn_stmt *s = p->stmts[stmt];
    uint32_t owned = kn_scatter_owned(p, s);
    char name[80];
    int n = 0;
    for (int i = 0; i <= stmt; i++) n += p->stmts[i]->scatter && p->stmts[i]->out == s->out;
    snprintf(name, sizeof name, "%.60s.%d", p->tensors[s->out].name, n);
    if (!s->naxes) return;
    kn_putf(b, "reorder %s", name);
    for (int turn = 1; turn >= 0; turn--)
        for (int x = 0; x < s->naxes; x++)
            if ((owned >> x & 1) == (uint32_t)turn) kn_putf(b, " %s.0", s->axes[x].name);
    kn_put(b, "\n");
    for (int x = 0; x < s->naxes; x++)
        if (owned >> x & 1) kn_putf(b, "bind %s %s.0 grid\n", name, s->axes[x].name);
}

/* The axis of a long sum over one tensor that a warp's threads divide: one thread's partial sum of squares would grow beyond what it adds, and where
 * both are multiples of few bits it is rounded down each time (odd squares are 1 modulo 8). -1: none. */
static int long_sum(const kn_stmt *s)
{
    enum { LONG = 512, LOADS = 8 };
    const kn_expr *loads[LOADS];
    int n = kn_loads(s->body, loads, LOADS), over = -1, axis = -1;
    bool one = n <= LOADS;
    int64_t terms = 1;
    uint32_t reduced = 0;
    for (int i = s->nspatial; i < s->naxes; i++) {
        reduced |= 1u << i;
        terms *= s->axes[i].extent < LONG ? s->axes[i].extent : LONG;
        if (terms > LONG) terms = LONG;
        if (axis < 0 || s->axes[i].extent > s->axes[axis].extent) axis = i;
    }
    for (int i = 0; i < n && one; i++) {
        if (!(kn_axes_in(loads[i]) & reduced)) continue;
        one = over < 0 || over == loads[i]->u.tensor;
        over = loads[i]->u.tensor;
    }
    return s->red == KN_RED_SUM && kn_dtype_class(kn_dtype_acc(s->body->dtype)) == 'f' && one && terms == LONG ? axis : -1;
}

static void put_long_sum(kn_buf *b, const kn_stmt *s, const char *name, int axis)
{
    enum { WARP = 32 };
    kn_putf(b, "split %s %s %d\nreorder %s", name, s->axes[axis].name, WARP, name);
    for (int i = 0; i < s->nspatial; i++) kn_putf(b, " %s.0", s->axes[i].name);
    kn_putf(b, "%s %s.1 |", s->nspatial ? " |" : "", s->axes[axis].name);
    for (int i = s->nspatial; i < s->naxes; i++) kn_putf(b, " %s.0", s->axes[i].name);
    kn_put(b, "\n");
    for (int i = 0; i < s->nspatial; i++) kn_putf(b, "bind %s %s.0 grid\n", name, s->axes[i].name);
    kn_putf(b, "rfactor %s %s.1\nbind %s %s.1 thread\n", name, s->axes[axis].name, name, s->axes[axis].name);
}

kiln_bytes kn_fallback_trace(kiln_arena *a, const kn_program *p, bool warps)
{
    enum { THREADS = 128 };
    kn_buf b;
    kn_buf_init(&b, a);
    kn_put(&b, "# a thread a result, a warp a long sum, for any address\n");
    for (int i = 0; i < p->nstmts; i++) {
        const kn_stmt *s = p->stmts[i];
        const char *name = p->tensors[s->out].name;
        int64_t threads = 1;
        int sum = warps && !s->scatter ? long_sum(s) : -1;
        if (sum >= 0) {
            put_long_sum(&b, s, name, sum);
            continue;
        }
        for (int x = 0; x < s->nspatial; x++)
            if (x == s->nspatial - 1) while (threads < s->axes[x].extent && threads < THREADS) threads *= 2;
        if (s->scatter) put_scatter(&b, p, i);
        if (s->scatter || !s->nspatial) continue;
        kn_putf(&b, "split %s %s %lld\n", name, s->axes[s->nspatial - 1].name, (long long)threads);
        for (int x = 0; x < s->nspatial; x++) kn_putf(&b, "bind %s %s.0 grid\n", name, s->axes[x].name);
        kn_putf(&b, "bind %s %s.1 thread\n", name, s->axes[s->nspatial - 1].name);
    }
    return kn_buf_take(&b);
}
