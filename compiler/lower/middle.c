/* Sums, and extrema, of vectors whose quarters in the middle are exchanged the same way each time (places of a row that step by two, which two
 * vectors have every other lane of: edge.c): exchanged once, where the sum is read, instead of in every term. Everything else that goes into it has
 * the same in all lanes (3x3 by 2 depthwise, channels first: 0.77 to 0.92 of the time; 3x3x3 maxima by 2: 0.78). */
#include "lower/lower.h"

enum { LANES = KN_LS_MIDDLE_LANES };

bool kn_lw_halves_apart(const kn_lw *w, enum kn_dtype t, int lanes)
{
    return lanes == LANES && kn_dtype_bytes(t) * LANES == 32 && w->hw->vector_bytes == 32;
}

kn_expr *kn_lw_exchange(kn_lw *w, kn_expr *e)
{
    int from[LANES];
    for (int l = 0; l < LANES; l++) from[l] = kn_ls_middle(l);
    return kn_lw_pick(w, LANES, 1, &e, from);
}

bool kn_ls_exchanges_middle(const kn_expr *e)
{
    if (e->u.i != 1 || e->lanes != LANES || e->args[0]->lanes != LANES) return false;
    for (int l = 0; l < LANES; l++)
        if (e->args[1 + l]->u.i != kn_ls_middle(l)) return false;
    return true;
}

static bool is_exchange(const kn_expr *e) { return e->op == KN_OP_PICK && kn_ls_exchanges_middle(e); }

static bool lane_by_lane(const kn_expr *e)
{
    return e->op == KN_OP_ADD || e->op == KN_OP_SUB || e->op == KN_OP_MUL || e->op == KN_OP_MAX || e->op == KN_OP_MIN;
}

/* The value is made, lane by lane, of the buffer's own vectors, of what all lanes have, and of exchanged vectors, which are counted. */
static bool made_of(const kn_expr *e, int buffer, int *exchanged)
{
    if (e->lanes <= 1 || e->op == KN_OP_SPLAT) return !kn_lw_reads(e, buffer);
    if (is_exchange(e)) return ++*exchanged, !kn_lw_reads(e, buffer);
    if (e->op == KN_OP_READ) return e->u.buffer == buffer && e->lanes == LANES;
    for (int i = 0; i < e->nargs && lane_by_lane(e); i++)
        if (!made_of(e->args[i], buffer, exchanged)) return false;
    return lane_by_lane(e);
}

static bool whole_reads(const kn_expr *e, int buffer, int *n)
{
    if (e->op == KN_OP_READ && e->u.buffer == buffer) return ++*n, e->lanes == LANES;
    for (int i = 0; i < e->nargs; i++)
        if (!whole_reads(e->args[i], buffer, n)) return false;
    return true;
}

/* All that is stored in the buffer is made so; elsewhere whole vectors of it are read. Counts both. */
static bool all_made_of(const kn_ls *s, int buffer, int *exchanged, int *n)
{
    for (; s; s = s->next) {
        bool plain = s->kind == KN_LS_STORE || s->kind == KN_LS_FOR || s->kind == KN_LS_IF || s->kind == KN_LS_LET || s->kind == KN_LS_PREFETCH;
        bool own = s->kind == KN_LS_STORE && s->buffer == buffer;
        if (!plain || (own ? !made_of(s->value, buffer, exchanged) : s->value && !whole_reads(s->value, buffer, n))) return false;
        if (!all_made_of(s->body, buffer, exchanged, n) || !all_made_of(s->other, buffer, exchanged, n)) return false;
    }
    return true;
}

/* As it is with nothing exchanged. */
static kn_expr *as_they_come(kn_lw *w, kn_expr *e)
{
    if (is_exchange(e)) return e->args[0];
    if (!lane_by_lane(e)) return e;
    kn_expr *x = kn_new(w->a, kn_expr), **args = kn_array(w->a, kn_expr *, e->nargs);
    if (!x || !args) {
        kn_lw_fail(w, KILN_MEMORY, "out of memory in lowering");
        return e;
    }
    *x = *e;
    for (int i = 0; i < e->nargs; i++) args[i] = as_they_come(w, e->args[i]);
    x->args = args;
    return x;
}

typedef struct reader { kn_lw *w; int buffer; } reader;

static kn_expr *exchanged_read(void *user, kiln_arena *a, kn_expr *e)
{
    const reader *r = user;
    (void)a;
    return e->op == KN_OP_READ && e->u.buffer == r->buffer ? kn_lw_exchange(r->w, e) : e;
}

static void exchange_all(kn_lw *w, kn_ls *s, int buffer)
{
    for (; s && !w->status; s = s->next) {
        if (s->kind == KN_LS_STORE && s->buffer == buffer) {
            s->value = as_they_come(w, s->value);
        } else if (s->value && kn_lw_reads(s->value, buffer)) {
            kn_expr *e = kn_rewrite(w->a, s->value, exchanged_read, &(reader){w, buffer});
            if (!e) kn_lw_fail(w, KILN_MEMORY, "out of memory in lowering");
            else s->value = e;
        }
        exchange_all(w, s->body, buffer);
        exchange_all(w, s->other, buffer);
    }
}

static bool has_exchange(const kn_expr *e)
{
    if (is_exchange(e)) return true;
    for (int i = 0; i < e->nargs && lane_by_lane(e); i++)
        if (has_exchange(e->args[i])) return true;
    return false;
}

/* A register buffer behind number `from` that something exchanged is added to; -1: there is none. */
static int next_sum(const kn_lw *w, const kn_ls *s, int from)
{
    int least = -1;
    for (; s; s = s->next) {
        const kn_buffer *b = s->kind == KN_LS_STORE && s->buffer > from ? &w->p->buffers[s->buffer] : NULL;
        int found[3] = {b && b->scope == KN_REGISTER && b->lanes == LANES && has_exchange(s->value) ? s->buffer : -1, next_sum(w, s->body, from),
                        next_sum(w, s->other, from)};
        for (int i = 0; i < 3; i++)
            if (found[i] >= 0 && (least < 0 || found[i] < least)) least = found[i];
    }
    return least;
}

void kn_lw_middle(kn_lw *w, kn_ls **list)
{
    for (int b = next_sum(w, *list, -1); b >= 0 && !w->status; b = next_sum(w, *list, b)) {
        int exchanged = 0, n = 0;
        if (all_made_of(*list, b, &exchanged, &n) && n < exchanged) exchange_all(w, *list, b);
    }
}
