/* Two loops of a sum, one in the other, that everything in them goes along as if they were one (the columns and the channels of a window over a copy
 * that has its padding) become one loop: its end, which is guessed wrong now and then, comes less often, and more of its steps can be written out. In
 * the schedule they are two, since what is copied has to ask for each of the axes where it is. */
#include "lower/lower.h"

typedef struct pair { kn_lw *w; int outer, inner, var; int64_t steps; /* of the inner loop */ } pair;

/* Every number made of the variables of the loops is one of outer * steps + inner. */
static bool alike(const pair *p, const kn_expr *e)
{
    int64_t outer, inner;
    if (!e || (!kn_lw_uses(e, p->outer) && !kn_lw_uses(e, p->inner))) return true;
    if (e->dtype == KN_I64 && e->lanes <= 1 && e->op != KN_OP_READ)
        return kn_lw_coefficient(e, p->outer, &outer) && kn_lw_coefficient(e, p->inner, &inner) && outer == inner * p->steps;
    for (int i = 0; i < e->nargs; i++)
        if (!alike(p, e->args[i])) return false;
    return true;
}

/* What is asked for ahead may come from somewhat further on than it did: its shares of the loops are rounded up from loop to loop. */
static bool near(const pair *p, const kn_expr *e)
{
    int64_t outer, inner;
    if (!kn_lw_coefficient(e, p->outer, &outer) || !kn_lw_coefficient(e, p->inner, &inner)) return false;
    return outer <= inner * p->steps && inner * p->steps <= 2 * outer;
}

/* Steps of a sum: they store to registers alone. */
static bool all_alike(const pair *p, const kn_ls *s)
{
    for (; s; s = s->next) {
        bool plain = s->kind == KN_LS_LET || s->kind == KN_LS_PREFETCH || s->kind == KN_LS_IF || s->kind == KN_LS_FOR;
        if (!plain && !(s->kind == KN_LS_STORE && p->w->p->buffers[s->buffer].scope == KN_REGISTER)) return false;
        if (!alike(p, s->value) || !alike(p, s->lo) || !alike(p, s->hi)) return false;
        if (s->kind == KN_LS_PREFETCH ? !near(p, s->index) : !alike(p, s->index)) return false;
        if (!all_alike(p, s->body) || !all_alike(p, s->other)) return false;
    }
    return true;
}

static kn_expr *renamed(void *user, kiln_arena *a, kn_expr *e)
{
    const pair *p = user;
    (void)a;
    if (e->op == KN_OP_VAR && e->u.var == p->outer) return kn_lw_int(p->w, 0);
    if (e->op == KN_OP_VAR && e->u.var == p->inner) return kn_lw_ref(p->w, p->var);
    return e->op == KN_OP_READ ? kn_lw_read(p->w, e->u.buffer, kn_lw_simp(p->w, e->args[0]), e->lanes) : e;
}

static void rename_in(pair *p, kn_expr **e)
{
    if (!*e || (!kn_lw_uses(*e, p->outer) && !kn_lw_uses(*e, p->inner))) return;
    kn_expr *x = kn_rewrite(p->w->a, *e, renamed, p);
    if (!x) kn_lw_fail(p->w, KILN_MEMORY, "out of memory in lowering");
    else *e = x->dtype == KN_I64 && x->lanes <= 1 ? kn_lw_simp(p->w, x) : x;
}

static void rename_all(pair *p, kn_ls *s)
{
    for (; s && !p->w->status; s = s->next) {
        rename_in(p, &s->value);
        rename_in(p, &s->index);
        rename_in(p, &s->lo);
        rename_in(p, &s->hi);
        rename_all(p, s->body);
        rename_all(p, s->other);
    }
}

/* Single elements are read, which meet vectors. */
static bool reads_elements(const kn_expr *e)
{
    bool some = e->op == KN_OP_READ && e->lanes <= 1;
    for (int i = 0; i < e->nargs; i++) some = some || reads_elements(e->args[i]);
    return some;
}

/* Steps of a loop over sums in vectors that the toolchain writes out. */
static int written_out(const kn_lw *w, const kn_ls *loop)
{
    int64_t sums = 0;
    bool some = false;
    for (const kn_ls *s = loop->body; s; s = s->next) {
        if (s->kind == KN_LS_LET || s->kind == KN_LS_PREFETCH) continue;
        if (s->kind != KN_LS_STORE || w->p->buffers[s->buffer].scope != KN_REGISTER || w->p->buffers[s->buffer].lanes <= 1) return 0;
        some = some || reads_elements(s->value);
        sums++;
    }
    return some ? kn_lw_written_out(w, loop->hi->u.i, sums) : 0;
}

/* As many iterations as it says. A loop whose end changes only gets slower where steps of it are written out (a 3x3 window: 0.5 times as fast). */
static bool counts_from_0(const kn_ls *s)
{
    return s && s->kind == KN_LS_FOR && s->lo->op == KN_OP_CONST_I && !s->lo->u.i && s->hi->op == KN_OP_CONST_I && s->hi->u.i > 0;
}

static void collapse(kn_lw *w, kn_ls *outer)
{
    kn_ls *inner = outer->body;
    if (!counts_from_0(outer) || !counts_from_0(inner) || inner->next || outer->unroll) return;
    pair p = {.w = w, .outer = outer->var, .inner = inner->var, .steps = inner->hi->u.i};
    int64_t steps = outer->hi->u.i * p.steps;
    if (!all_alike(&p, inner->body)) return;
    p.var = kn_lw_var(w, "term", 0, steps - 1);
    rename_all(&p, inner->body);
    outer->var = p.var;
    outer->hi = kn_lw_int(w, steps);
    outer->body = inner->body;
    outer->unroll = inner->unroll;
}

void kn_lw_collapse(kn_lw *w, kn_ls **list)
{
    for (kn_ls *s = *list; s && !w->status; s = s->next) {
        kn_lw_collapse(w, &s->body);
        kn_lw_collapse(w, &s->other);
        if (s->kind == KN_LS_FOR) collapse(w, s);
        if (counts_from_0(s) && !s->unroll) s->unroll = written_out(w, s);
    }
}
