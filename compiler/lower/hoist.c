/* Scalars that a loop reads from memory in every iteration, or in several statements, though neither their place nor what is there changes, are
 * read once in front of it. A C compiler sees that itself only where it can tell that no store of the loop goes there; behind a scalar goes what is
 * made of it alone, such as the reciprocal of a divisor. */
#include "lower/lower.h"

enum { HOISTED_MOST = 4 }; /* of one loop; more would be spilled, and a broadcast from L1 costs no more */

typedef struct hoist {
    kn_lw *w;
    bool *moves;       /* variables that the loop or something in it defines */
    bool *stored;      /* buffers that it stores to */
    bool counting;
    int n;
    kn_expr *read[HOISTED_MOST + 1];
    int times[HOISTED_MOST + 1]; /* that it stands in the loop */
    int reg[HOISTED_MOST];
} hoist;

static void note(hoist *h, const kn_ls *s)
{
    for (; s; s = s->next) {
        if (s->kind == KN_LS_FOR || s->kind == KN_LS_LET) h->moves[s->var] = true;
        if (s->kind == KN_LS_STORE) h->stored[s->buffer] = true;
        if (s->kind == KN_LS_UNIT && s->unit->what == KN_UNIT_STORE) h->stored[s->unit->buffer] = true;
        if (s->kind == KN_LS_CALL) h->stored[s->call->buffer[0]] = true;
        note(h, s->body);
        note(h, s->other);
    }
}

/* The loop has so many iterations at least. */
static bool runs(kn_lw *w, const kn_ls *loop, int64_t times)
{
    int64_t lo, hi, most, least;
    kn_lw_range(w, loop->lo, &lo, &most);
    kn_lw_range(w, loop->hi, &least, &hi);
    return least >= most + times;
}

/* The index holds no variable that moves, and nothing that is read. */
static bool fixed(const hoist *h, const kn_expr *e)
{
    if (e->op == KN_OP_READ || (e->op == KN_OP_VAR && h->moves[e->u.var])) return false;
    for (int i = 0; i < e->nargs; i++)
        if (!fixed(h, e->args[i])) return false;
    return true;
}

static bool wanted(const hoist *h, const kn_expr *e)
{
    const kn_buffer *b = &h->w->p->buffers[e->u.buffer];
    return e->op == KN_OP_READ && e->lanes <= 1 && b->scope != KN_REGISTER && kn_dtype_class(b->dtype) == 'f' && !h->stored[e->u.buffer] &&
           fixed(h, e->args[0]);
}

static kn_expr *held(hoist *h, kn_expr *e)
{
    for (int i = 0; i < h->n; i++) {
        if (!kn_expr_equal(h->read[i], e)) continue;
        h->times[i]++;
        return h->counting ? e : kn_lw_read(h->w, h->reg[i], kn_lw_int(h->w, 0), 1);
    }
    if (h->counting && h->n <= HOISTED_MOST) h->times[h->n] = 1, h->read[h->n++] = e;
    return e;
}

/* What is evaluated only under a condition, or once a lane, stays where it is: moved, it could read where it must not. */
static kn_expr *visit(hoist *h, kn_expr *e)
{
    bool conditional = e->op == KN_OP_SELECT || e->op == KN_OP_LANES || e->op == KN_OP_AND || e->op == KN_OP_OR;
    if (conditional || e->nargs > 3) return e;
    if (e->op == KN_OP_READ) return wanted(h, e) ? held(h, e) : e;
    kn_expr *args[3] = {NULL};
    bool changed = false;
    for (int i = 0; i < e->nargs && i < 3; i++) {
        args[i] = visit(h, e->args[i]);
        changed = changed || args[i] != e->args[i];
    }
    if (!changed) return e;
    kn_expr *x = kn_new(h->w->a, kn_expr), **list = kn_array(h->w->a, kn_expr *, e->nargs);
    if (!x || !list) return e;
    *x = *e;
    for (int i = 0; i < e->nargs; i++) list[i] = args[i];
    x->args = list;
    return x;
}

/* Values of statements that every iteration comes to. */
static void visit_all(hoist *h, kn_ls *s)
{
    for (; s; s = s->next) {
        if (s->kind == KN_LS_STORE) {
            kn_expr *value = visit(h, s->value);
            if (!h->counting) s->value = value;
        }
        if (s->kind == KN_LS_FOR && runs(h->w, s, 1)) visit_all(h, s->body);
    }
}

/* Of a loop that may have a single iteration, what stands in it once is left where it is. */
static void leave_single(hoist *h)
{
    int n = 0;
    for (int i = 0; i < h->n; i++)
        if (h->times[i] > 1) h->read[n++] = h->read[i];
    h->n = n;
}

static kn_ls **before(kn_lw *w, kn_ls **at, const hoist *h)
{
    for (int i = 0; i < h->n; i++) {
        kn_ls *x = kn_new(w->a, kn_ls);
        if (!x) return at;
        *x = (kn_ls){.kind = KN_LS_STORE, .buffer = h->reg[i], .index = kn_lw_int(w, 0), .value = h->read[i], .next = *at};
        *at = x;
        at = &x->next;
    }
    return at;
}

void kn_lw_hoist(kn_lw *w, kn_ls **list)
{
    for (kn_ls **at = list; *at && !w->status; at = &(*at)->next) {
        kn_ls *s = *at;
        if (s->kind == KN_LS_FOR && runs(w, s, 1) && w->p->nbuffers + HOISTED_MOST < KN_LW_BUFFERS - 16) {
            hoist h = {.w = w, .counting = true, .moves = kn_array(w->a, bool, w->p->nvars + 1), .stored = kn_array(w->a, bool, KN_LW_BUFFERS)};
            if (!h.moves || !h.stored) return;
            h.moves[s->var] = true;
            note(&h, s->body);
            visit_all(&h, s->body);
            if (h.n > HOISTED_MOST) h.n = 0;
            if (!runs(w, s, 2)) leave_single(&h);
            for (int i = 0; i < h.n; i++) h.reg[i] = kn_lw_buffer(w, "held", h.read[i]->dtype, 1, 1, KN_REGISTER);
            h.counting = false;
            if (h.n) visit_all(&h, s->body);
            at = before(w, at, &h);
        }
        kn_lw_hoist(w, &s->body);
        kn_lw_hoist(w, &s->other);
    }
}
