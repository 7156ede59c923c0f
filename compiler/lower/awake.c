/* An instruction's own unit (AMX) has its way to memory put to sleep when for long no tile has been stored and no floats were computed, and the next
 * store waits until it is awake: 0.3 microseconds on a Xeon (`make bench-idle`), a quarter of all time where sums are some tens of products long. One
 * store of a tile of results, to where it goes in the end anyway, costs nothing between the products; it stands wherever the hwspec's
 * `tile_idle_cycles` are over. Where results or copies in integers leave the unit asleep between two sums, one float as a sum begins wakes it while
 * the products run (KN_UNIT_CLEAR in codegen/unit.c: 160 filters 2x3 of 16x14x13 in halves 1.7 times as fast; the mean of 120 texts 1.02). */
#include "lower/lower.h"

enum { LOAD = 12 }; /* cycles that a tile needs from L1 or L2, in the mean */
typedef struct awake {
    kn_lw *w;
    const kn_unit_step *store; /* of the results behind the sum */
} awake;

/* Cycles of the products of a list, as if every loop ran once. */
static double cycles_of(const awake *x, const kn_ls *list)
{
    double products = 0, loads = 0;
    for (const kn_ls *s = list; s; s = s->next) {
        if (s->kind == KN_LS_UNIT && s->unit->what == KN_UNIT_LOAD) loads += LOAD;
        if (s->kind == KN_LS_CALL && x->w->p->calls[s->call->fn].unit) products += x->w->p->calls[s->call->fn].intrin->spec->interval;
    }
    return products > loads ? products : loads;
}

static kn_ls *stored(const awake *x)
{
    kn_ls *s = kn_new(x->w->a, kn_ls);
    if (s) *s = (kn_ls){.kind = KN_LS_UNIT, .unit = x->store};
    else kn_lw_fail(x->w, KILN_MEMORY, "out of memory in lowering");
    return s;
}

static void append(const awake *x, kn_ls **list)
{
    while (*list) list = &(*list)->next;
    *list = stored(x);
}

/* The loop goes `each` iterations at a time, with a store behind them. */
static void cut(const awake *x, kn_ls *loop, int64_t n, int64_t each)
{
    kn_lw *w = x->w;
    kn_ls *part = kn_new(w->a, kn_ls);
    if (!part) {
        kn_lw_fail(w, KILN_MEMORY, "out of memory in lowering");
        return;
    }
    int64_t parts = kn_ceil_div(n, each);
    each = kn_ceil_div(n, parts);
    int block = kn_lw_var(w, "part", 0, parts - 1);
    *part = *loop;
    kn_expr *lo = kn_bin(w->a, KN_OP_MUL, kn_lw_ref(w, block), kn_lw_int(w, each)), *hi = kn_bin(w->a, KN_OP_ADD, lo, kn_lw_int(w, each));
    part->lo = kn_lw_simp(w, lo);
    part->hi = kn_lw_simp(w, n % each ? kn_bin(w->a, KN_OP_MIN, kn_lw_int(w, n), hi) : hi);
    part->next = NULL;
    *loop = (kn_ls){.kind = KN_LS_FOR, .var = block, .lo = kn_lw_int(w, 0), .hi = kn_lw_int(w, parts), .body = part, .next = loop->next};
    append(x, &loop->body);
}

/* Stores in a sum, no further apart than the unit stays awake; gives the cycles since the last one. */
static double keep(const awake *x, kn_ls *list)
{
    double since = cycles_of(x, list), most = x->w->hw->tile_idle_cycles;
    for (kn_ls *s = list; s && !x->w->status; s = s->next) {
        if (s->kind == KN_LS_IF) since += keep(x, s->body);
        if (s->kind != KN_LS_FOR) continue;
        double each = keep(x, s->body);
        bool known = s->lo->op == KN_OP_CONST_I && !s->lo->u.i && s->hi->op == KN_OP_CONST_I;
        int64_t n = kn_lw_iterations(x->w, s);
        double all = each * (double)n;
        if (all > most && known && 2 * each <= most) cut(x, s, n, (int64_t)(most / each));
        else if (all > most) append(x, &s->body);
        since += all > most ? 0 : all;
    }
    return since;
}

/* Where results go in any case: of those that are not all in range to memory of their own. */
static const kn_unit_step *store_behind(const kn_ls *s)
{
    const kn_unit_step *found = NULL;
    for (; s && !found; s = s->next) {
        if (s->kind == KN_LS_UNIT && s->unit->what == KN_UNIT_STORE) found = s->unit;
        if (s->kind == KN_LS_IF) found = store_behind(s->other);
    }
    return found;
}

/* Sums stand in one list with the stores of their results. */
void kn_lw_awake(kn_lw *w, kn_ls **list)
{
    if (!w->hw->tile_idle_cycles) return;
    for (kn_ls *s = *list; s && !w->status; s = s->next) {
        awake x = {w, s->kind == KN_LS_FOR ? store_behind(s->next) : NULL};
        if (x.store) {
            kn_ls *behind = s->next;
            s->next = NULL;
            keep(&x, s);
            s->next = behind;
            continue;
        }
        kn_lw_awake(w, &s->body);
        kn_lw_awake(w, &s->other);
    }
}
