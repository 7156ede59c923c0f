/* What is no constant and has the lanes, but whose rows run along the sum, is turned in registers as it is packed (lower/squares.c): block by block,
 * under the loop that reads it, so that no copy of all of it goes out to memory and comes back. A block is a part of one reduce axis and all of those
 * whose elements lie nearer. Convolutions with the channels first compete with their results turned, so that lanes run along such weights, or along
 * constant ones that the shaping (cpu_turned.c) did not find worth it. */
#include "construct/cpu.h"
#include <string.h>

static bool reduced(const kn_site *x, const kn_site_access *a, int i)
{
    return i >= x->s->nspatial && (a->axes >> i & 1) && kn_cpu_extent(x, i) > 1;
}

/* Elements of the rows inside of the axis. */
static int64_t inside_of(const kn_site *x, int w, int blocked)
{
    const kn_site_access *a = &x->load[w];
    int64_t run = 1;
    for (int i = x->s->nspatial; i < x->s->naxes; i++)
        if (reduced(x, a, i) && a->coef[i] < a->coef[blocked]) run *= kn_cpu_extent(x, i);
    return run;
}

/* The sum's axes are one run of memory, the blocked one outermost. */
static bool is_run(const kn_site *x, int w, int blocked)
{
    const kn_site_access *a = &x->load[w];
    for (int i = x->s->nspatial; i < x->s->naxes; i++)
        if (reduced(x, a, i) && (a->coef[i] > a->coef[blocked] || a->coef[i] != inside_of(x, w, i))) return false;
    return true;
}

bool kn_cpu_turns_squares(const kn_site *x, int w, int blocked, int64_t lanes, int64_t terms)
{
    enum { LANES = 16, TAPS = 25 }; /* which registers hold */
    const kn_site_access *a = &x->load[w];
    int64_t inside = inside_of(x, w, blocked), all = kn_cpu_extent(x, blocked);
    if (x->n < 0 || !a->linear || a->padded || a->coef[x->n] < 2 || lanes < 4 || lanes > LANES || !reduced(x, a, blocked)) return false;
    if (a->bytes < 4 && (terms * a->bytes != 4 || all % terms || inside > TAPS)) return false;
    return is_run(x, w, blocked) && all * inside >= lanes * terms;
}

int64_t kn_cpu_squares_block(const kn_site *x, int w, int blocked, int64_t line, int64_t lanes, int64_t terms)
{
    enum { STEPS = 96 }; /* of a tile, by which its sums are worth bringing and taking away */
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1");
    int64_t inside = inside_of(x, w, blocked), all = kn_cpu_extent(x, blocked);
    int64_t room = (l1 ? l1->capacity_bytes : 32768) / 2 / (line * inside), worth = kn_ceil_div(STEPS * terms, inside);
    if (room < worth) room = worth;
    int64_t block = kn_round_up(kn_ceil_div(all, kn_ceil_div(all, room)), terms), least = kn_ceil_div(lanes * terms, inside);
    while (block < all && (block < least || (all % block && all % block < least))) block += terms; /* of the last one too */
    return block < all ? block : all;
}

void kn_cpu_put_run(kn_buf *b, const kn_site *x, int w, int blocked, int part)
{
    const kn_site_access *a = &x->load[w];
    kn_putf(b, " %s.%d", kn_cpu_axis(x, blocked), part);
    for (int i = x->s->nspatial; i < x->s->naxes; i++)
        if ((a->axes >> i & 1) && i != blocked && kn_cpu_extent(x, i) < 2) kn_putf(b, " %s.0", kn_cpu_axis(x, i));
    for (int64_t below = a->coef[blocked], most = 1; most; below = most) { /* the others as they lie */
        int next = -1;
        most = 0;
        for (int i = x->s->nspatial; i < x->s->naxes; i++)
            if (reduced(x, a, i) && a->coef[i] < below && a->coef[i] > most) most = a->coef[i], next = i;
        if (next >= 0) kn_putf(b, " %s.0", kn_cpu_axis(x, next));
    }
}

/* Not an element of something else, or one of several. */
static bool computes(const kn_expr *e)
{
    e = kn_bare(e);
    if (e->op == KN_OP_SELECT) return computes(e->args[1]) || computes(e->args[2]);
    return e->op >= KN_OP_ADD;
}

/* A map computes what the stage reads: turned, it would be made from elements that lie rows apart, one by one (max before 16x2048x512: 9 times as
 * long). */
static bool reads_maps(const kn_tree *t, const kn_stmt *s)
{
    const kn_program *p = t->program;
    const kn_expr *loads[KN_SITE_LOADS];
    int n = kn_loads(s->body, loads, KN_SITE_LOADS);
    bool some = n > KN_SITE_LOADS;
    for (int i = 0; i < p->nstmts && !some; i++)
        for (int l = 0; l < n; l++)
            some = some || (p->stmts[i]->out == loads[l]->u.tensor && p->stmts[i]->red == KN_RED_NONE && computes(p->stmts[i]->body));
    return some;
}

bool kn_cpu_squares_steps(kiln_arena *a, const kn_program *p, const kn_hw *hw, kiln_bytes *start, bool *ahead)
{
    kn_tree *t, *turned;
    kiln_diag d;
    kn_site x;
    if (hw->gpu || kn_trace_apply(a, p, hw, (kiln_bytes){"", 0}, &t, &d)) return false;
    for (int i = 0; i < t->nstages; i++) {
        kn_site_of(a, t, t->stages[i], hw, &x);
        if (reads_maps(t, x.s)) continue;
        const char *lines = kn_cpu_turned(a, &x, KN_CPU_SQUARES_IN, KN_CPU_SQUARES_OUT, NULL);
        *start = (kiln_bytes){lines, lines ? strlen(lines) : 0};
        if (!lines || kn_trace_apply(a, p, hw, *start, &turned, &d)) continue;
        *ahead = kn_cpu_is_packed(&x);
        kn_site_of(a, turned, turned->stages[i + turned->nstages - t->nstages - 1], hw, &x);
        bool squares = kn_cpu_is_squares(&x);
        *ahead |= !squares;
        if (squares || kn_cpu_is_packed(&x)) return true;
    }
    return false;
}
