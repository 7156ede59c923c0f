/* Counts over the statements of a loop program, and over what they store. Included by tests. */
#ifndef KN_TESTS_STATEMENTS_H
#define KN_TESTS_STATEMENTS_H
#include "lower/loop.h"

/* What one statement counts, without those in it; `with` is the counter's own. */
typedef int64_t (*of_statement)(const kn_lprog *l, const kn_ls *s, int64_t with);
typedef int64_t (*of_expression)(const kn_lprog *l, const kn_expr *e, int64_t with);

static inline int64_t counted_in(const kn_lprog *l, const kn_ls *s, of_statement of, int64_t with)
{
    int64_t n = 0;
    for (; s; s = s->next) n += of(l, s, with) + counted_in(l, s->body, of, with) + counted_in(l, s->other, of, with);
    return n;
}

/* Of all functions. */
static inline int64_t counted(const kn_lprog *l, of_statement of, int64_t with)
{
    int64_t n = 0;
    for (int f = 0; f < l->nfns; f++) n += counted_in(l, l->fns[f].body, of, with);
    return n;
}

static inline int64_t counted_of(const kn_lprog *l, const kn_expr *e, of_expression of, int64_t with)
{
    int64_t n = e ? of(l, e, with) : 0;
    for (int i = 0; e && i < e->nargs; i++) n += counted_of(l, e->args[i], of, with);
    return n;
}

/* ---- counters that several tests have ---- */

static inline int64_t of_kind(const kn_lprog *l, const kn_ls *s, int64_t kind)
{
    (void)l;
    return (int)s->kind == kind;
}

static inline int64_t past_the_caches(const kn_lprog *l, const kn_ls *s, int64_t with)
{
    (void)l, (void)with;
    return s->streams;
}

/* Stores of so many lanes: to any buffer; to a tensor, or to whatever else lies in the scope. */
static inline int64_t stores_of(const kn_lprog *l, const kn_ls *s, int64_t lanes)
{
    (void)l;
    return s->kind == KN_LS_STORE && s->value->lanes == lanes;
}

static inline int64_t stores_in_tensors(const kn_lprog *l, const kn_ls *s, int64_t lanes)
{
    return stores_of(l, s, lanes) && l->buffers[s->buffer].scope == KN_GLOBAL;
}

static inline int64_t stores_in_registers(const kn_lprog *l, const kn_ls *s, int64_t with)
{
    (void)with;
    return s->kind == KN_LS_STORE && l->buffers[s->buffer].scope == KN_REGISTER;
}

/* Of an expression: selects. */
static inline int64_t is_choice(const kn_lprog *l, const kn_expr *e, int64_t with)
{
    (void)l, (void)with;
    return e->op == KN_OP_SELECT;
}

static inline int64_t choices_stored(const kn_lprog *l, const kn_ls *s, int64_t with)
{
    return s->kind == KN_LS_STORE ? counted_of(l, s->value, is_choice, with) : 0;
}

static inline int64_t is_pick(const kn_lprog *l, const kn_expr *e, int64_t with)
{
    (void)l, (void)with;
    return e->op == KN_OP_PICK;
}

/* Reads of registers that pick lanes. */
static inline int64_t picks_of(const kn_lprog *l, const kn_ls *s, int64_t with) { return counted_of(l, s->value, is_pick, with); }
#endif
