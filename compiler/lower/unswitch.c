/* A condition that a loop's iterations do not change and that decides over all that they do is asked once, in front of it: a loop for each answer.
 * C compilers do so only from -O3 on; a register tile's sum would ask again at every term whether all of its rows are there. */
#include "lower/lower.h"

/* The loop, or something in front of the condition in its body, defines a variable of e, or e is read from memory. */
static bool changes(const kn_ls *loop, const kn_expr *e)
{
    if (e->op == KN_OP_READ) return true;
    if (e->op == KN_OP_VAR) {
        if (e->u.var == loop->var) return true;
        for (const kn_ls *s = loop->body; s; s = s->next)
            if (s->kind == KN_LS_LET && s->var == e->u.var) return true;
    }
    for (int i = 0; i < e->nargs; i++)
        if (changes(loop, e->args[i])) return true;
    return false;
}

/* The condition behind whatever stands in front of it in the loop, lets and prefetches; NULL: the loop does other things too. */
static kn_ls *decides(const kn_ls *loop)
{
    kn_ls *s = loop->body;
    while (s && (s->kind == KN_LS_LET || s->kind == KN_LS_PREFETCH)) s = s->next;
    return s && s->kind == KN_LS_IF && !s->next && !s->last && !changes(loop, s->value) ? s : NULL;
}

/* A loop like this one, of what stands in front of the condition and of `rest`. */
static kn_ls *loop_of(kn_lw *w, const kn_ls *loop, const kn_ls *condition, kn_ls *rest)
{
    kn_ls *copy = kn_new(w->a, kn_ls), **at = copy ? &copy->body : NULL;
    if (copy) *copy = *loop, copy->next = NULL;
    for (const kn_ls *s = loop->body; s != condition && at; s = s->next) {
        kn_ls *one = kn_new(w->a, kn_ls);
        if (one) *one = *s;
        *at = one;
        at = one ? &one->next : NULL;
    }
    if (at) *at = rest;
    else kn_lw_fail(w, KILN_MEMORY, "out of memory in lowering");
    return copy;
}

void kn_lw_unswitch(kn_lw *w, kn_ls **list)
{
    for (kn_ls *s = *list; s && !w->status; s = s->next) {
        kn_lw_unswitch(w, &s->body);
        kn_lw_unswitch(w, &s->other);
        kn_ls *condition = s->kind == KN_LS_FOR ? decides(s) : NULL;
        if (!condition) continue;
        kn_ls *then = loop_of(w, s, condition, condition->body), *other = condition->other ? loop_of(w, s, condition, condition->other) : NULL;
        *s = (kn_ls){.kind = KN_LS_IF, .value = condition->value, .body = then, .other = other, .next = s->next};
    }
}
