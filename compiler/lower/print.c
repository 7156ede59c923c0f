/* A readable dump of loop programs. */
#include "lower/loop.h"

static const char *const op_text[] = {
#define X(name, text, arity, class) text,
#include "te/exprs.def"
#undef X
};

static void put_expr(kn_buf *b, const kn_lprog *p, const kn_expr *e)
{
    switch (e->op) {
    case KN_OP_CONST_F: kn_put_double(b, e->u.f); return;
    case KN_OP_CONST_I: kn_putf(b, "%lld", (long long)e->u.i); return;
    case KN_OP_VAR: kn_put(b, p->var_names[e->u.var]); return;
    case KN_OP_READ:
        kn_putf(b, "%s[", p->buffers[e->u.buffer].name);
        put_expr(b, p, e->args[0]);
        kn_put(b, "]");
        if (e->lanes > 1) kn_putf(b, ":%d", e->lanes);
        return;
    case KN_OP_LANES: kn_putf(b, "lanes<%s:%d>(", p->var_names[e->u.var], e->lanes); break;
    case KN_OP_SPLAT: kn_putf(b, "splat<%d>(", e->lanes); break;
    case KN_OP_PEER: kn_putf(b, "peer<%d>(", (int)e->u.i); break;
    case KN_OP_HSUM: kn_putf(b, "hsum<%d>(", (int)e->u.i); break;
    case KN_OP_ZIP:
    case KN_OP_UNZIP:
    case KN_OP_SPREAD:
        kn_putf(b, "%s<%d", e->op == KN_OP_ZIP ? "zip" : e->op == KN_OP_UNZIP ? "unzip" : "spread", (int)e->u.i);
        if (e->var) kn_putf(b, ", %d", e->var);
        kn_putf(b, e->unit ? ", %d>(" : ">(", e->unit);
        break;
    case KN_OP_PICK: kn_putf(b, "pick<%d>(", (int)e->u.i); break;
    case KN_OP_CAST: kn_putf(b, "%s(", kn_dtype_text(e->dtype)); break;
    default:
        if (e->nargs == 2 && op_text[e->op][0] != 'm' && op_text[e->op][0] != 'p') {
            kn_put(b, "(");
            put_expr(b, p, e->args[0]);
            kn_putf(b, " %s ", op_text[e->op]);
            put_expr(b, p, e->args[1]);
            kn_put(b, ")");
            return;
        }
        kn_putf(b, "%s(", op_text[e->op]);
    }
    for (int i = 0; i < e->nargs; i++) {
        if (i) kn_put(b, ", ");
        put_expr(b, p, e->args[i]);
    }
    kn_put(b, ")");
}

static void put_pipe(kn_buf *b, const kn_lprog *p, const kn_pipe *x)
{
    static const char *const steps[] = { "init", "prefetch", "open", "expect", "await", "arrive", "load", "store", "stored",
                                         "registers", "meet", "cluster" };
    const kn_expr *all[] = { x->slot, x->parity, x->peer, x->at };
    static const char *const names[] = { " slot ", " parity ", " peer ", " at " };
    kn_putf(b, "%s", steps[x->step]);
    if (x->n) kn_putf(b, " %lld", (long long)x->n);
    for (int i = 0; i < 4; i++) {
        if (!all[i]) continue;
        kn_put(b, names[i]);
        if (i == 3) kn_putf(b, "%s + ", p->buffers[x->buffer].name);
        put_expr(b, p, all[i]);
    }
    for (int i = 0; i < x->rank; i++) {
        kn_put(b, i ? ", " : " of ");
        put_expr(b, p, x->coord[i]);
    }
    for (int i = 0; i < 2 && x->offset[0]; i++) {
        kn_put(b, i ? ", " : " window ");
        put_expr(b, p, x->offset[i]);
    }
    kn_put(b, "\n");
}

static void put_list(kn_buf *b, const kn_lprog *p, const kn_ls *s, int depth)
{
    for (; s; s = s->next) {
        for (int i = 0; i < depth; i++) kn_put(b, "  ");
        switch (s->kind) {
        case KN_LS_FOR:
            kn_putf(b, "for %s in ", p->var_names[s->var]);
            put_expr(b, p, s->lo);
            kn_put(b, " .. ");
            put_expr(b, p, s->hi);
            if (s->unroll) kn_putf(b, " unroll %d", s->unroll);
            kn_put(b, "\n");
            break;
        case KN_LS_IF:
            kn_put(b, "if ");
            put_expr(b, p, s->value);
            kn_put(b, "\n");
            break;
        case KN_LS_LET:
            kn_putf(b, "%s = ", p->var_names[s->var]);
            put_expr(b, p, s->value);
            kn_put(b, s->anew ? " anew\n" : "\n");
            break;
        case KN_LS_STORE:
            kn_putf(b, "%s[", p->buffers[s->buffer].name);
            put_expr(b, p, s->index);
            kn_put(b, s->async ? "] = later " : "] = ");
            put_expr(b, p, s->value);
            if (s->streams) kn_put(b, " past the caches");
            if (s->lo) kn_put(b, ", lanes from "), put_expr(b, p, s->lo);
            kn_put(b, "\n");
            break;
        case KN_LS_PREFETCH:
            kn_putf(b, "prefetch %s[", p->buffers[s->buffer].name);
            put_expr(b, p, s->index);
            kn_put(b, s->writes ? "] to write\n" : s->to_l2 ? "] to L2\n" : "]\n");
            break;
        case KN_LS_CALL:
            kn_putf(b, "call %s(", p->calls[s->call->fn].intrin->name);
            for (int o = 0; o < p->calls[s->call->fn].intrin->noperands; o++) {
                kn_putf(b, "%s%s + ", o ? ", " : "", p->buffers[s->call->buffer[o]].name);
                put_expr(b, p, s->call->at[o]);
            }
            kn_put(b, ")\n");
            break;
        case KN_LS_FRAGMENT: {
            static const char *const forms[] = { "rows", "turned", "each", "split", "halve" };
            const kn_fragment *f = s->fragment;
            kn_putf(b, "%s[%d] = fragment:%d %s %s[", p->buffers[f->to].name, f->first, f->n,
                    forms[f->form], p->buffers[f->buffer].name);
            put_expr(b, p, f->at[0]);
            kn_put(b, "]\n");
            break;
        }
        case KN_LS_UNIT: {
            static const char *const what[] = { "clear", "load", "store" };
            const kn_unit_step *u = s->unit;
            kn_putf(b, "%s%s %s[%lld]", what[u->what], u->passes ? " passing" : "", p->buffers[u->reg].name, (long long)u->number);
            if (u->at) kn_putf(b, " at %s + ", p->buffers[u->buffer].name);
            if (u->at) put_expr(b, p, u->at);
            if (u->at) kn_putf(b, " by %lld", (long long)u->row);
            kn_put(b, "\n");
            break;
        }
        case KN_LS_PIPE: put_pipe(b, p, s->pipe); break;
        case KN_LS_GROUP: kn_putf(b, "group %d\n", s->groups); break;
        case KN_LS_COMMIT: kn_put(b, "commit\n"); break;
        case KN_LS_WAIT: kn_putf(b, "wait %d\n", s->groups); break;
        case KN_LS_BARRIER: kn_put(b, "barrier\n"); break;
        }
        put_list(b, p, s->body, depth + 1);
        if (!s->other) continue;
        for (int i = 0; i < depth; i++) kn_put(b, "  ");
        kn_put(b, "else\n");
        put_list(b, p, s->other, depth + 1);
    }
}

void kn_lprog_print(kn_buf *b, const kn_lprog *p)
{
    static const char *const scopes[] = { "global", "scratch", "shared", "register", "fragments", "operand" };
    for (int i = 0; i < p->nbuffers; i++) {
        const kn_buffer *x = &p->buffers[i];
        kn_putf(b, "%s %s: %s x %lld", scopes[x->scope], x->name, kn_dtype_text(x->dtype), (long long)x->elems);
        if (x->lanes > 1) kn_putf(b, " lanes %d", x->lanes);
        if (x->slot >= 0) kn_putf(b, " slot %d", x->slot);
        kn_put(b, "\n");
    }
    for (int i = 0; i < p->ncalls; i++) {
        kn_putf(b, "instruction %s:\n", p->calls[i].intrin->name);
        put_list(b, p, p->calls[i].body, 1);
    }
    for (int i = 0; i < p->npacks; i++) {
        kn_putf(b, "pack %d: stage %d\n", i, p->packs[i].stage);
        put_list(b, p, p->packs[i].body, 1);
    }
    for (int i = 0; i < p->nfns; i++) {
        kn_putf(b, "fn %d: stage %d grid %lld threads %d shared %lld\n", i, p->fns[i].stage, (long long)p->fns[i].grid, p->fns[i].threads,
                (long long)p->fns[i].shared_bytes);
        put_list(b, p, p->fns[i].body, 1);
    }
}
