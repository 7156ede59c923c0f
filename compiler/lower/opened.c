/* Sums over a loop begin with its first terms, which are written out in front of it, instead of with zeros: a register that is set to zero takes as
 * much of what a core looks ahead as a term does, just where one tile's sums end and the next one's begin. Measured with 24 sums in vectors of 512
 * bits on a Zen 4: 26 cycles a tile, whatever it sums (8 terms 0.88 of the time, 16 0.94, 64 0.98). */
#include "lower/lower.h"

enum {
    LEAST = 8,        /* sums: fewer leave room to look ahead */
    MOST_TERMS = 128  /* of more the beginning is no part */
};

static bool is_zero(const kn_expr *e)
{
    while (e->op == KN_OP_SPLAT) e = e->args[0];
    return (e->op == KN_OP_CONST_F && e->u.f == 0) || (e->op == KN_OP_CONST_I && e->u.i == 0);
}

static bool known_register(const kn_lw *w, const kn_ls *s)
{
    return s->kind == KN_LS_STORE && w->p->buffers[s->buffer].scope == KN_REGISTER && s->index->op == KN_OP_CONST_I;
}

/* Of a statement that adds a term in a vector to the register it stores to, the term; NULL: it is none. */
static kn_expr *term_of(const kn_lw *w, const kn_ls *s)
{
    if (!known_register(w, s) || s->value->op != KN_OP_ADD || s->value->lanes <= 1) return NULL;
    const kn_expr *sum = s->value->args[0];
    bool own = sum->op == KN_OP_READ && sum->u.buffer == s->buffer && sum->lanes == s->value->lanes;
    if (!own || !kn_expr_equal(sum->args[0], s->index) || kn_lw_reads(s->value->args[1], s->buffer)) return NULL;
    return s->value->args[1];
}

static bool same_register(const kn_ls *a, const kn_ls *b) { return a->buffer == b->buffer && a->index->u.i == b->index->u.i; }

/* Between `from` and `at` the last that is stored to the register is zero, and nothing has read it since. */
static bool begins_with_zero(const kn_lw *w, const kn_ls *from, const kn_ls *at, const kn_ls *sum)
{
    bool zero = false;
    for (; from != at; from = from->next) {
        if (from->kind == KN_LS_STORE && known_register(w, from) && same_register(from, sum)) zero = is_zero(from->value);
        else if (from->value && kn_lw_reads(from->value, sum->buffer)) return false;
    }
    return zero;
}

/* Of loops of one turn around it, the loop. */
static kn_ls *inside(kn_ls *s)
{
    while (s->kind == KN_LS_FOR && s->lo->op == KN_OP_CONST_I && s->hi->op == KN_OP_CONST_I && s->hi->u.i - s->lo->u.i == 1 && s->body &&
           !s->body->next && s->body->kind == KN_LS_FOR)
        s = s->body;
    return s;
}

/* The loop does nothing but to add terms to many registers that are zero in front of `at`, where it stands. */
static bool sums_from_zero(const kn_lw *w, const kn_ls *from, const kn_ls *at, const kn_ls *loop)
{
    int sums = 0;
    if (loop->kind != KN_LS_FOR || loop->unroll || loop->lo->op != KN_OP_CONST_I || loop->lo->u.i || loop->hi->op != KN_OP_CONST_I) return false;
    if (loop->hi->u.i < 2 || loop->hi->u.i > MOST_TERMS) return false;
    for (const kn_ls *s = loop->body; s; s = s->next) {
        if (s->kind == KN_LS_PREFETCH) continue;
        if (!term_of(w, s) || !begins_with_zero(w, from, at, s)) return false;
        sums++;
    }
    return sums >= LEAST;
}

/* Some statement in front of `end` adds to the same register. */
static bool added_before(const kn_ls *list, const kn_ls *end)
{
    for (; list != end; list = list->next)
        if (list->kind == KN_LS_STORE && same_register(list, end)) return true;
    return false;
}

/* A copy of the loop's first turn, in which a register's first term is what it is set to; the loop follows it. */
static kn_ls *first_turn(kn_lw *w, kn_ls *loop)
{
    kn_expr *zero = kn_lw_int(w, 0);
    kn_ls *list = loop, **tail = &list;
    for (const kn_ls *s = loop->body; s && !w->status; s = s->next) {
        kn_ls *copy = kn_new(w->a, kn_ls);
        if (!copy) return kn_lw_fail(w, KILN_MEMORY, "out of memory in lowering"), loop;
        *copy = *s;
        if (s->kind == KN_LS_STORE && !added_before(loop->body, s)) copy->value = term_of(w, s);
        if (copy->value) copy->value = kn_lw_at_lane(w, copy->value, loop->var, zero);
        copy->index = kn_lw_at_lane(w, copy->index, loop->var, zero);
        copy->next = loop;
        *tail = copy;
        tail = &copy->next;
    }
    return list;
}

/* Without the zeros that the loop's sums would have begun with, from *link to `at`; the link to that. */
static kn_ls **drop_zeros(const kn_lw *w, kn_ls **link, const kn_ls *at, const kn_ls *loop)
{
    while (*link != at) {
        const kn_ls *s = *link;
        bool zero = known_register(w, s) && is_zero(s->value);
        const kn_ls *sum = loop->body;
        while (zero && sum && !(sum->kind == KN_LS_STORE && same_register(s, sum))) sum = sum->next;
        if (zero && sum) *link = s->next;
        else link = &(*link)->next;
    }
    return link;
}

void kn_lw_opened(kn_lw *w, kn_ls **list)
{
    kn_ls **from = list; /* since when nothing but what is known has been done */
    for (kn_ls **link = list; *link && !w->status; link = &(*link)->next) {
        kn_ls *s = *link, *loop = inside(s);
        kn_lw_opened(w, &s->body);
        kn_lw_opened(w, &s->other);
        if (sums_from_zero(w, *from, s, loop)) {
            link = drop_zeros(w, from, s, loop);
            loop->next = s->next;
            *link = first_turn(w, loop);
            while (*link != loop) link = &(*link)->next;
            loop->lo = kn_lw_int(w, 1);
            w->var_lo[loop->var] = 1;
            s = loop;
        }
        if (s->kind != KN_LS_LET && s->kind != KN_LS_PREFETCH && !known_register(w, s)) from = &s->next;
    }
}
