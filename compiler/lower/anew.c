/* Addresses that a loop's statements share and that do not change in it: where many elements at known distances are read from one of them, a C
 * compiler computes each one's own address in front of the loop, spills these, and every read becomes two (a product of 512x16 by 16x768, tiles of 8
 * rows: 1.5 times as long). Such an address is made anew in every iteration, in the text's eyes, so that the distances stay a part of the
 * instructions. */
#include "lower/lower.h"

enum { MOST = 16 }; /* addresses that registers may hold */

typedef struct anew {
    kn_lw *w;
    bool *moves;        /* variables that change with the loop at hand */
    kn_ls *let;         /* the address that is looked at */
    int n;
    int64_t at[MOST + 1];
} anew;

static bool changes(const anew *x, const kn_expr *e)
{
    if (e->op == KN_OP_READ || (e->op == KN_OP_VAR && x->moves[e->u.var])) return true;
    for (int i = 0; i < e->nargs; i++)
        if (changes(x, e->args[i])) return true;
    return false;
}

/* The distances from the address at which the expression reads. */
static void count(anew *x, const kn_expr *e)
{
    if (e->op == KN_OP_READ) {
        const kn_expr *i = e->args[0];
        bool sum = i->op == KN_OP_ADD && i->args[1]->op == KN_OP_CONST_I;
        const kn_expr *base = sum ? i->args[0] : i;
        int64_t at = sum ? i->args[1]->u.i : 0;
        int k = 0;
        if (base->op == KN_OP_VAR && base->u.var == x->let->var) {
            while (k < x->n && x->at[k] != at) k++;
            if (k == x->n && x->n <= MOST) x->at[x->n++] = at;
        }
    }
    for (int i = 0; i < e->nargs; i++) count(x, e->args[i]);
}

/* The loop may have more than one iteration. */
static bool repeats(kn_lw *w, const kn_ls *loop)
{
    int64_t lo, hi, least, most;
    kn_lw_range(w, loop->lo, &lo, &most);
    kn_lw_range(w, loop->hi, &least, &hi);
    return hi > lo + 1;
}

/* `inside`: of the loop whose variables move. */
static void visit(anew *x, kn_ls *list, bool inside)
{
    for (kn_ls *s = list; s; s = s->next) {
        if (s->kind == KN_LS_FOR && repeats(x->w, s)) {
            anew y = {.w = x->w, .moves = kn_array(x->w->a, bool, x->w->p->nvars + 1)};
            if (!y.moves) return;
            y.moves[s->var] = true;
            visit(&y, s->body, true);
            if (inside) x->moves[s->var] = true;
            continue;
        }
        if (s->kind == KN_LS_FOR && inside) x->moves[s->var] = changes(x, s->lo);
        if (s->kind == KN_LS_LET && inside && changes(x, s->value)) {
            x->moves[s->var] = true;
        } else if (s->kind == KN_LS_LET && inside) {
            x->let = s;
            x->n = 0;
            for (const kn_ls *y = s->next; y && x->n <= MOST; y = y->next)
                if (y->kind == KN_LS_STORE && y->value) count(x, y->value);
            s->anew = x->n > MOST;
        }
        visit(x, s->body, inside);
        visit(x, s->other, inside);
    }
}

void kn_lw_anew(kn_lw *w, kn_ls **list)
{
    anew x = {.w = w};
    visit(&x, *list, false);
}
