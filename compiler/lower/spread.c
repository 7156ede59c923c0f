/* Lines that are asked for in one go before a loop are asked for a few at a time while it runs: so many at once fill what waits for memory, and what
 * the loop reads from L2 meanwhile stands behind them (48 to 64 rows, 20 lines before 255 terms of a tile: 1.03 to 1.2 times as long). */
#include "lower/lower.h"

enum {
    TERMS = 32, /* iterations of a block; of fewer the loop's ends would cost more */
    LINES = 12  /* at least: of 6 to 10 it takes 1.02 times as long */
};

/* The lines of a loop that does nothing but ask for them; 0: it is another one. */
static int64_t lines_of(kn_lw *w, const kn_ls *s)
{
    int64_t lo, hi, least, most;
    if (s->kind != KN_LS_FOR || !s->body || s->body->kind != KN_LS_PREFETCH || s->body->next || s->body->writes) return 0;
    kn_lw_range(w, s->lo, &lo, &most);
    kn_lw_range(w, s->hi, &least, &hi);
    return lo == 0 && most == 0 && least == hi ? hi : 0;
}

/* Iterations, at most, of a loop from 0 on that computes in registers alone; 0: it is another one. */
static int64_t iterations_of(kn_lw *w, const kn_ls *s)
{
    int64_t lo, hi, least, most;
    if (!s || s->kind != KN_LS_FOR) return 0;
    for (const kn_ls *b = s->body; b; b = b->next)
        if (b->kind != KN_LS_LET && (b->kind != KN_LS_STORE || w->p->buffers[b->buffer].scope != KN_REGISTER)) return 0;
    kn_lw_range(w, s->lo, &lo, &most);
    kn_lw_range(w, s->hi, &least, &hi);
    return lo == 0 && most == 0 ? hi : 0;
}

static kn_expr *times(kn_lw *w, kn_expr *e, int64_t n) { return kn_bin(w->a, KN_OP_MUL, e, kn_lw_int(w, n)); }

/* From `block` times `each` on, as many; where the last block may have fewer, up to `end`. */
static void bounds(kn_lw *w, kn_ls *s, int block, int64_t each, kn_expr *end)
{
    kn_expr *lo = times(w, kn_lw_ref(w, block), each), *hi = kn_bin(w->a, KN_OP_ADD, lo, kn_lw_int(w, each));
    if (end && hi) hi = kn_bin(w->a, KN_OP_MIN, end, hi);
    if (!lo || !hi) return;
    s->lo = kn_lw_simp(w, lo);
    s->hi = kn_lw_simp(w, hi);
}

static void spread(kn_lw *w, kn_ls *ask, int64_t lines, kn_ls *loop, int64_t n)
{
    int64_t blocks = kn_ceil_div(n, TERMS) < lines ? kn_ceil_div(n, TERMS) : lines, each = kn_ceil_div(lines, blocks);
    blocks = kn_ceil_div(lines, each);
    int64_t terms = kn_ceil_div(kn_ceil_div(n, blocks), KN_HW_WRITTEN_STEPS) * KN_HW_WRITTEN_STEPS;
    kn_ls *first = kn_new(w->a, kn_ls), *then = kn_new(w->a, kn_ls);
    if (!first || !then) {
        kn_lw_fail(w, KILN_MEMORY, "out of memory in lowering");
        return;
    }
    int block = kn_lw_var(w, "block", 0, blocks - 1);
    *first = *ask;
    *then = *loop;
    first->next = then;
    then->next = NULL;
    first->unroll = (int)each;
    bounds(w, first, block, each, lines % each ? ask->hi : NULL);
    bounds(w, then, block, terms, loop->hi);
    *ask = (kn_ls){.kind = KN_LS_FOR, .var = block, .lo = kn_lw_int(w, 0), .hi = kn_lw_int(w, blocks), .body = first, .next = loop->next};
}

void kn_lw_spread(kn_lw *w, kn_ls **list)
{
    if (!kn_hw_few_registers(w->hw)) return;
    for (kn_ls *s = *list; s && !w->status; s = s->next) {
        int64_t lines = lines_of(w, s), n = lines >= LINES ? iterations_of(w, s->next) : 0;
        if (n >= 2 * TERMS) spread(w, s, lines, s->next, n);
        kn_lw_spread(w, &s->body);
        kn_lw_spread(w, &s->other);
    }
}
