/* A GPU artifact's second choice: what its kernels ask of addresses, and the schedule that asks nothing. */
#include "fallback.h"

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

kiln_bytes kn_fallback_trace(kiln_arena *a, const kn_program *p)
{
    enum { THREADS = 128 };
    kn_buf b;
    kn_buf_init(&b, a);
    kn_put(&b, "# a thread a result, for any address\n");
    for (int i = 0; i < p->nstmts; i++) {
        const kn_stmt *s = p->stmts[i];
        const char *name = p->tensors[s->out].name;
        int64_t threads = 1;
        for (int x = 0; x < s->nspatial; x++)
            if (x == s->nspatial - 1) while (threads < s->axes[x].extent && threads < THREADS) threads *= 2;
        if (!s->nspatial) continue;
        kn_putf(&b, "split %s %s %lld\n", name, s->axes[s->nspatial - 1].name, (long long)threads);
        for (int x = 0; x < s->nspatial; x++) kn_putf(&b, "bind %s %s.0 grid\n", name, s->axes[x].name);
        kn_putf(&b, "bind %s %s.1 thread\n", name, s->axes[s->nspatial - 1].name);
    }
    return kn_buf_take(&b);
}
