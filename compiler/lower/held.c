/* Vectors of a window's rows: where lanes run along what a window slides over, its taps read vectors that overlap, none of which lies on lines as a
 * whole, and which the places beside each other want again. An operand of memory each time, as a compiler makes of what two or three want, takes
 * two accesses a product. They stay in registers from the first product that wants them to the last, as far as there are some beside the sums. */
#include "lower/lower.h"

enum { READS = 160, BESIDE = 2 }; /* registers for a broadcast, and a vector that is wanted once */

typedef struct kept {
    kn_expr *read, *base;       /* as it stands; its place but for a constant */
    int64_t at;
    int first, last, count;     /* statements that want it */
    int slot;                   /* of the register array; -1: none */
} kept;

typedef struct window {
    kn_lw *w;
    int n, step;                /* distinct vectors; the statement at hand */
    bool many, picked;          /* more vectors than can be looked at; lanes are picked from some */
    int buffer;
    kn_ls **before;
    kept k[READS];
} window;

/* Stores to registers, whose values are made of whole vectors lane by lane. */
static bool sums(const kn_lw *w, const kn_ls *s)
{
    return s && s->kind == KN_LS_STORE && !s->async && w->p->buffers[s->buffer].scope == KN_REGISTER && !s->holds;
}

static int operands(const kn_expr *e)
{
    return e->op == KN_OP_ADD || e->op == KN_OP_SUB || e->op == KN_OP_MUL ? e->nargs : e->op == KN_OP_PICK ? (int)e->u.i : 0;
}

static bool is_whole(const kn_lw *w, const kn_expr *e)
{
    if (e->op == KN_OP_SELECT) return e->args[0]->lanes <= 1 && e->args[2]->op == KN_OP_SPLAT && is_whole(w, e->args[1]);
    const kn_buffer *b = e->op == KN_OP_READ ? &w->p->buffers[e->u.buffer] : NULL;
    return b && b->scope != KN_REGISTER && b->dtype == KN_F32 && e->lanes * kn_dtype_bytes(KN_F32) == w->hw->vector_bytes;
}

static kept *find(window *x, const kn_expr *e)
{
    for (int i = 0; i < x->n; i++)
        if (x->k[i].read == e || kn_expr_equal(x->k[i].read, e)) return &x->k[i];
    return NULL;
}

static void note(window *x, kn_expr *e)
{
    if (is_whole(x->w, e)) {
        kept *k = find(x, e);
        if (!k && x->n == READS) x->many = true;
        if (!k && x->n < READS) {
            kn_expr *index = e->op == KN_OP_SELECT ? e->args[1]->args[0] : e->args[0];
            bool sum = index->op == KN_OP_ADD && index->args[1]->op == KN_OP_CONST_I;
            k = &x->k[x->n++];
            *k = (kept){.read = e, .base = sum ? index->args[0] : index, .at = sum ? index->args[1]->u.i : 0, .first = x->step, .slot = -1};
        }
        if (k) k->last = x->step, k->count++;
        return;
    }
    x->picked |= e->op == KN_OP_PICK;
    for (int i = 0; i < operands(e); i++) note(x, e->args[i]);
}

/* Two of them share elements: they begin less than a vector apart. */
static bool overlap(const window *x)
{
    for (int i = 0; i < x->n; i++)
        for (int j = 0; j < i; j++) {
            int64_t apart = x->k[i].at - x->k[j].at;
            if (apart && apart < x->k[i].read->lanes && -apart < x->k[i].read->lanes && kn_expr_equal(x->k[i].base, x->k[j].base)) return true;
        }
    return false;
}

/* It moves element by element with a loop. */
static bool slides(const window *x, const kn_expr *e, const kn_expr *index)
{
    if (e->op == KN_OP_VAR) return !x->w->var_value[e->u.var] && kn_lw_unit_stride(index, e->u.var);
    for (int i = 0; i < e->nargs; i++)
        if (slides(x, e->args[i], index)) return true;
    return false;
}

/* Few of them begin where lines do, and there are as many as sums: a product's are few, and wanted by all rows at once. */
static bool straddle(const window *x, int sums)
{
    if (x->picked) return true;
    if (x->n < sums) return false;
    for (int i = 0; i < x->n; i++)
        if (slides(x, x->k[i].base, x->k[i].base)) return true;
    return overlap(x);
}

/* Vectors that are kept at statement `step`. */
static int live(const window *x, int step)
{
    int n = 0;
    for (int i = 0; i < x->n; i++) n += x->k[i].slot >= 0 && x->k[i].first <= step && step <= x->k[i].last;
    return n;
}

/* Gives registers to them in the order in which they are wanted first; how many got one. */
static int choose(window *x, int room)
{
    int slots = 0;
    for (int i = 0; i < x->n; i++) {
        bool fits = x->k[i].count > 1;
        for (int step = x->k[i].first; fits && step <= x->k[i].last; step++) fits = live(x, step) < room;
        if (fits) x->k[i].slot = slots++;
    }
    return slots;
}

static kn_expr *kept_in(window *x, kn_expr *e)
{
    kept *k = is_whole(x->w, e) ? find(x, e) : NULL;
    if (k && k->slot >= 0) return kn_lw_read(x->w, x->buffer, kn_lw_int(x->w, k->slot), e->lanes);
    if (!operands(e)) return e;
    kn_expr *r = kn_new(x->w->a, kn_expr), **args = kn_array(x->w->a, kn_expr *, e->nargs);
    if (!r || !args) return e;
    *r = *e;
    for (int i = 0; i < e->nargs; i++) args[i] = i < operands(e) ? kept_in(x, e->args[i]) : e->args[i];
    r->args = args;
    return r;
}

/* Reads in front of the statement at hand what it is the first to want. */
static void bring(window *x)
{
    for (int i = 0; i < x->n; i++) {
        kn_ls *s = x->k[i].slot >= 0 && x->k[i].first == x->step ? kn_new(x->w->a, kn_ls) : NULL;
        if (!s) continue;
        *s = (kn_ls){.kind = KN_LS_STORE, .buffer = x->buffer, .index = kn_lw_int(x->w, x->k[i].slot), .value = x->k[i].read, .holds = true,
                     .next = *x->before};
        *x->before = s;
        x->before = &s->next;
    }
}

/* Registers that the run sums in. */
static int sums_of(const kn_ls *run, const kn_ls *end)
{
    int n = 0;
    for (const kn_ls *s = run; s != end; s = s->next) {
        bool again = false;
        for (const kn_ls *r = run; r != s && !again; r = r->next) again = r->buffer == s->buffer && kn_expr_equal(r->index, s->index);
        n += !again;
    }
    return n;
}

void kn_lw_held(kn_lw *w, kn_ls **at)
{
    enum { LEAST = 12 };
    window *x = kn_new(w->a, window);
    kn_ls *end = *at;
    int n = 0;
    if (!x) return;
    x->w = w;
    for (; sums(w, end); end = end->next, x->step++, n++) note(x, end->value);
    if (n < LEAST || w->hw->gpu || x->many) return;
    int held = sums_of(*at, end), room = w->hw->vector_registers - BESIDE - held, slots = room > 0 && straddle(x, held) ? choose(x, room) : 0;
    if (!slots || w->p->nbuffers > KN_LW_BUFFERS - 8) return;
    x->buffer = kn_lw_buffer(w, "window", KN_F32, x->k[0].read->lanes, slots, KN_REGISTER);
    x->step = 0;
    for (kn_ls **link = at; *link != end; x->step++) {
        kn_ls *s = *link;
        x->before = link;
        bring(x);
        s->value = kept_in(x, s->value);
        link = &s->next;
    }
}
