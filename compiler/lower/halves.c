/* Half a vector where that is enough: of the last one along an axis of a sum the first lanes are stored by others as well, as it was moved back to
 * end with the axis, or the last ones are past the end. Where these are half of it, or more, it is halved on machines that start two halves while
 * they start a whole one (`halves_vectors`; on a Zen 4: 240x64x24 0.75 of the time, x40 0.89, 61x71x67 0.9). */
#include "lower/lower.h"
#include "te/expr.h"

/* The register that is halved, and its half, of the lanes from `from` on. */
typedef struct half { kn_lw *w; int buffer, by, lanes, from; int64_t at; } half;

static bool reads_it(const half *h, const kn_expr *e)
{
    return e->op == KN_OP_READ && e->u.buffer == h->buffer && (e->args[0]->op != KN_OP_CONST_I || e->args[0]->u.i == h->at);
}

static bool mentions(const half *h, const kn_expr *e)
{
    if (!e) return false;
    if (reads_it(h, e)) return true;
    for (int i = 0; i < e->nargs; i++)
        if (mentions(h, e->args[i])) return true;
    return false;
}

static bool lane_by_lane(const kn_expr *e)
{
    switch (e->op) {
    case KN_OP_ADD: case KN_OP_SUB: case KN_OP_MUL: case KN_OP_DIV: case KN_OP_MIN: case KN_OP_MAX: return true;
    case KN_OP_SELECT: case KN_OP_LT: case KN_OP_LE: case KN_OP_CAST: return true;
    default: return false;
    }
}

/* Every lane of the vector is made of the same lane of what lies in memory, of the register, or of what all lanes share. */
static bool can_be_halved(const half *h, const kn_expr *e)
{
    if (e->op == KN_OP_SPLAT || e->lanes <= 1) return e->lanes > 1 && !mentions(h, e);
    if (e->op == KN_OP_READ)
        return reads_it(h, e) ? e->args[0]->op == KN_OP_CONST_I : h->w->p->buffers[e->u.buffer].scope != KN_REGISTER;
    if (!lane_by_lane(e)) return false;
    for (int i = 0; i < e->nargs; i++)
        if (!can_be_halved(h, e->args[i])) return false;
    return true;
}

/* The vector goes to memory, and nobody wants more of it than the half. */
static bool leaves(const half *h, const kn_ls *s)
{
    bool out = s->kind == KN_LS_STORE && h->w->p->buffers[s->buffer].scope != KN_REGISTER && s->value->lanes == 2 * h->lanes && !s->streams;
    return out && (h->from ? s->idle >= h->lanes : s->idle <= -h->lanes);
}

static bool is_own(const half *h, const kn_ls *s)
{
    bool known = s->index && s->index->op == KN_OP_CONST_I;
    return s->kind == KN_LS_STORE && s->buffer == h->buffer && (!known || s->index->u.i == h->at);
}

static bool plain(const kn_ls *s)
{
    return s->kind == KN_LS_STORE || s->kind == KN_LS_LET || s->kind == KN_LS_PREFETCH || s->kind == KN_LS_IF || s->kind == KN_LS_FOR;
}

/* The statements set the register, add to it, and store what is wanted of it. */
static bool all_can(const half *h, const kn_ls *s)
{
    for (; s; s = s->next) {
        bool own = is_own(h, s), reads = mentions(h, s->value);
        if (!plain(s) || mentions(h, s->index) || mentions(h, s->lo) || mentions(h, s->hi)) return false;
        if (own && s->index->op != KN_OP_CONST_I) return false;
        if ((own || reads) && (!(own || leaves(h, s)) || !can_be_halved(h, s->value))) return false;
        if (!all_can(h, s->body) || !all_can(h, s->other)) return false;
    }
    return true;
}

/* Where the half begins of a vector that begins there. */
static kn_expr *begin(const half *h, kn_expr *at) { return kn_lw_simp(h->w, kn_bin(h->w->a, KN_OP_ADD, at, kn_lw_int(h->w, h->from))); }

static kn_expr *halved(const half *h, const kn_expr *e)
{
    int lanes = h->lanes;
    if (e->op == KN_OP_SPLAT) return kn_lw_splat(h->w, e->args[0], lanes);
    if (e->op == KN_OP_READ && reads_it(h, e)) return kn_lw_read(h->w, h->by, kn_lw_int(h->w, 0), lanes);
    if (e->op == KN_OP_READ) return kn_lw_read(h->w, e->u.buffer, begin(h, e->args[0]), lanes);
    kn_expr *args[3] = {NULL};
    for (int i = 0; i < e->nargs; i++) args[i] = halved(h, e->args[i]);
    return kn_lw_node(h->w, e->op, e->dtype, lanes, args[0], args[1], args[2]);
}

static void halve_all(const half *h, kn_ls *s)
{
    for (; s && !h->w->status; s = s->next) {
        bool own = is_own(h, s);
        if (own || mentions(h, s->value)) {
            s->value = halved(h, s->value);
            s->idle = 0;
            if (own) s->buffer = h->by, s->index = kn_lw_int(h->w, 0);
            else s->index = begin(h, s->index);
        }
        halve_all(h, s->body);
        halve_all(h, s->other);
    }
}

/* A register that the value reads; false: there is none whose place is known. */
static bool some_register(const kn_lw *w, const kn_expr *e, half *h)
{
    if (e->op == KN_OP_READ && w->p->buffers[e->u.buffer].scope == KN_REGISTER && e->args[0]->op == KN_OP_CONST_I) {
        h->buffer = e->u.buffer, h->at = e->args[0]->u.i;
        return true;
    }
    for (int i = 0; i < e->nargs; i++)
        if (some_register(w, e->args[i], h)) return true;
    return false;
}

bool kn_lw_takes_halves(const kn_lw *w, enum kn_dtype t, int64_t lanes)
{
    return w->hw->halves_vectors && lanes * kn_dtype_bytes(t) == w->hw->vector_bytes;
}

static void halves_in(kn_lw *w, kn_ls *all, kn_ls *s)
{
    for (; s && !w->status; s = s->next) {
        half h = {.w = w};
        if (s->kind == KN_LS_STORE && s->idle && kn_lw_takes_halves(w, s->value->dtype, s->value->lanes)) {
            h.lanes = s->value->lanes / 2;
            h.from = s->idle > 0 ? h.lanes : 0;
        }
        if (h.lanes && leaves(&h, s) && some_register(w, s->value, &h) && all_can(&h, all)) {
            h.by = kn_lw_buffer(w, "half", w->p->buffers[h.buffer].dtype, h.lanes, 1, KN_REGISTER);
            halve_all(&h, all);
        }
        halves_in(w, all, s->body);
        halves_in(w, all, s->other);
    }
}

void kn_lw_halves(kn_lw *w, kn_ls **list)
{
    halves_in(w, *list, *list);
}
