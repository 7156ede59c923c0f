/* A scratch region that is written once in whole vectors and read at places that are known, all in one run of statements, is no memory: the vectors
 * stay in registers, and what is read of them at other places, or in other steps, is picked from their lanes. So a row of a window's first step never
 * leaves the core; in memory each of its loads would wait for two stores. */
#include "lower/lower.h"

enum { HELD_MOST = 32, SOURCES = 6, REGIONS = 8, LANES = 64 };

typedef struct held {
    kn_lw *w;
    int region, reg;            /* the buffer, and the registers that take its place */
    int lanes, n;               /* of a vector; vectors */
    int64_t at[HELD_MOST];      /* where each was stored; a later one counts where two overlap */
    bool row;                   /* all of it is one row: what two vectors have, they have alike, as the last one of a row is moved back */
    bool making, bad;           /* reads are replaced, not judged; something stands in the way */
    int64_t reads;              /* that the run has */
} held;

/* Where an element comes from: vector, lane; vector -1: it is the constant. */
typedef struct element { int vector, lane; kn_expr *constant; } element;

static int64_t mentions(const kn_expr *e, int buffer)
{
    int64_t n = e && e->op == KN_OP_READ && e->u.buffer == buffer;
    for (int i = 0; e && i < e->nargs; i++) n += mentions(e->args[i], buffer);
    return n;
}

/* Stores to and reads of the buffer in the list, and in all that hangs on it; steps of other kinds may touch anything. */
static int64_t uses(const kn_ls *s, int buffer)
{
    enum { UNKNOWN = 1 << 20 };
    int64_t n = 0;
    for (; s; s = s->next) {
        n += mentions(s->value, buffer) + mentions(s->index, buffer) + mentions(s->lo, buffer) + mentions(s->hi, buffer);
        bool known = s->kind == KN_LS_FOR || s->kind == KN_LS_IF || s->kind == KN_LS_LET || s->kind == KN_LS_STORE || s->kind == KN_LS_PREFETCH;
        n += known ? (s->kind == KN_LS_STORE || s->kind == KN_LS_PREFETCH) && s->buffer == buffer : UNKNOWN;
        n += uses(s->body, buffer) + uses(s->other, buffer);
    }
    return n;
}

static bool once(const kn_ls *s)
{
    return s->kind == KN_LS_FOR && s->lo->op == KN_OP_CONST_I && s->hi->op == KN_OP_CONST_I && s->hi->u.i - s->lo->u.i == 1;
}

/* The value of a condition or an index that holds nothing but constants. */
static bool known(const kn_expr *e, int64_t *v)
{
    int64_t x = 0, y = 0;
    if (e->op == KN_OP_CONST_I) return *v = e->u.i, true;
    if (e->nargs < 1 || e->nargs > 2 || !known(e->args[0], &x) || (e->nargs > 1 && !known(e->args[1], &y))) return false;
    switch (e->op) {
    case KN_OP_ADD: return *v = x + y, true;
    case KN_OP_SUB: return *v = x - y, true;
    case KN_OP_MUL: return *v = x * y, true;
    case KN_OP_LT: return *v = x < y, true;
    case KN_OP_LE: return *v = x <= y, true;
    case KN_OP_AND: return *v = x && y, true;
    case KN_OP_OR: return *v = x || y, true;
    case KN_OP_NOT: return *v = !x, true;
    default: return false;
    }
}

/* The last variable in e that names an expression; -1. */
static int last_named(const held *h, const kn_expr *e)
{
    int last = e->op == KN_OP_VAR && h->w->var_value[e->u.var] ? e->u.var : -1;
    for (int i = 0; i < e->nargs; i++) {
        int var = last_named(h, e->args[i]);
        if (var > last) last = var;
    }
    return last;
}

/* An element of the region: what is named in the index, as where the region begins, is looked into, the last name first. */
static bool place(const held *h, kn_expr *index, int64_t *v)
{
    enum { NAMES = 4 };
    for (int i = 0, var; i < NAMES && index && !known(index, v) && (var = last_named(h, index)) >= 0; i++)
        index = kn_lw_at_lane(h->w, index, var, (kn_expr *)(uintptr_t)h->w->var_value[var]);
    return index && known(index, v);
}

static bool stored_at(const held *h, int64_t index, element *x)
{
    for (int k = h->n - 1; k >= 0; k--) {
        if (index < h->at[k] || index >= h->at[k] + h->lanes) continue;
        *x = (element){k, (int)(index - h->at[k]), NULL};
        return true;
    }
    return false;
}

/* One lane of what is read; e holds its lane as a constant. */
static bool element_of(const held *h, kn_expr *e, element *x)
{
    int64_t v;
    if (e->op == KN_OP_SELECT) return known(e->args[0], &v) && element_of(h, e->args[v ? 1 : 2], x);
    if (e->op == KN_OP_READ) return e->u.buffer == h->region && place(h, e->args[0], &v) && stored_at(h, v, x);
    *x = (element){-1, 0, e};
    return e->op == KN_OP_CONST_F || e->op == KN_OP_CONST_I;
}

/* The vectors that hold these elements, and a number among their lanes for each: false when they are too many. Constants have to be one. */
static bool sources_of(const held *h, const element *x, int lanes, int *vector, kn_expr **constant, int *n, int *number)
{
    *n = 0;
    *constant = NULL;
    for (int l = 0; l < lanes; l++) {
        int k = 0;
        if (x[l].constant && *constant && !kn_expr_equal(*constant, x[l].constant)) return false;
        if (x[l].constant) *constant = x[l].constant;
        while (k < *n && vector[k] != x[l].vector) k++;
        if (k == SOURCES) return false;
        if (k == *n) vector[(*n)++] = x[l].vector;
        number[l] = k * h->lanes + (x[l].vector < 0 ? l % h->lanes : x[l].lane);
    }
    return true;
}

static kn_expr *source(held *h, int vector, kn_expr *constant)
{
    return vector < 0 ? kn_lw_splat(h->w, constant, h->lanes) : kn_lw_read(h->w, h->reg, kn_lw_int(h->w, vector), h->lanes);
}

/* Of vectors that have an element too, the one with most of those wanted: two vectors that lanes are picked from take 2 or 3 instructions, each other
 * one 2 more. */
static void gather(const held *h, element *x, int lanes)
{
    bool settled[LANES] = {false};
    for (int round = 0; round < SOURCES; round++) {
        int best = -1, most = 0;
        for (int k = 0; k < h->n; k++) {
            int count = 0;
            for (int l = 0; l < lanes; l++) {
                int64_t at = x[l].vector < 0 ? -1 : h->at[x[l].vector] + x[l].lane - h->at[k];
                count += !settled[l] && at >= 0 && at < h->lanes;
            }
            if (count > most) most = count, best = k;
        }
        for (int l = 0; l < lanes && best >= 0; l++) {
            int64_t at = x[l].vector < 0 ? -1 : h->at[x[l].vector] + x[l].lane - h->at[best];
            if (settled[l] || at < 0 || at >= h->lanes) continue;
            settled[l] = true;
            x[l].vector = best;
            x[l].lane = (int)at;
        }
    }
}

static kn_expr *pick(held *h, element *x, int lanes, kn_expr *e)
{
    int vector[SOURCES], number[LANES], n;
    kn_expr *constant;
    if (h->row && h->making) gather(h, x, lanes);
    if (!sources_of(h, x, lanes, vector, &constant, &n, number)) {
        h->bad = true;
        return e;
    }
    if (!h->making) return e;
    bool whole = n == 1 && lanes == h->lanes;
    for (int l = 0; l < lanes && whole; l++) whole = number[l] == l;
    if (whole) return source(h, vector[0], constant);
    kn_expr *from[SOURCES];
    for (int k = 0; k < n; k++) from[k] = source(h, vector[k], constant);
    return kn_lw_pick(h->w, lanes, n, from, number);
}

/* A vector read of the region: consecutive elements, or a lane at a time. */
static kn_expr *read_of(held *h, kn_expr *e)
{
    element x[LANES];
    int64_t at;
    bool run = e->op == KN_OP_READ && place(h, e->args[0], &at);
    h->reads += !h->making;
    h->bad |= e->lanes < 2 || e->lanes > h->lanes || (e->op == KN_OP_READ && !run);
    for (int l = 0; l < e->lanes && !h->bad; l++) {
        if (run) h->bad |= !stored_at(h, at + l, &x[l]);
        else h->bad |= !element_of(h, kn_lw_at_lane(h->w, e->args[0], e->u.var, kn_lw_int(h->w, l)), &x[l]);
    }
    return h->bad ? e : pick(h, x, e->lanes, e);
}

static kn_expr *visit(held *h, kn_expr *e)
{
    if (h->bad || h->w->status || !mentions(e, h->region)) return e;
    if (e->op == KN_OP_READ || e->op == KN_OP_LANES) return read_of(h, e);
    kn_expr *x = kn_new(h->w->a, kn_expr), **args = kn_array(h->w->a, kn_expr *, e->nargs);
    if (!x || !args) return e;
    *x = *e;
    for (int i = 0; i < e->nargs; i++) args[i] = visit(h, e->args[i]);
    x->args = args;
    return h->making ? x : e;
}

/* A store of the region: noted, or made to go to its register. */
static void stored(held *h, kn_ls *s)
{
    int64_t at;
    if (h->making) {
        s->buffer = h->reg;
        s->index = kn_lw_int(h->w, h->n++);
        s->unaligned = s->streams = false;
        s->lo = NULL;
        return;
    }
    int lanes = s->value->lanes;
    h->bad |= h->n == HELD_MOST || h->reads || lanes < 2 || lanes > LANES || (h->n && lanes != h->lanes) || !place(h, s->index, &at);
    if (h->bad) return;
    h->lanes = lanes;
    h->at[h->n++] = at;
}

/* Statements that follow each other, also those of loops of one iteration. */
static void walk(held *h, kn_ls *s)
{
    for (; s && !h->bad; s = s->next) {
        if (once(s)) walk(h, s->body);
        if (s->kind != KN_LS_STORE && s->kind != KN_LS_LET) continue;
        kn_expr *value = visit(h, s->value);
        if (h->making) s->value = value;
        if (s->kind == KN_LS_STORE && s->buffer == h->region) stored(h, s);
    }
}

/* Regions that the run writes first. */
static int regions_in(const kn_lw *w, const kn_ls *s, int *region, int n)
{
    for (; s; s = s->next) {
        if (once(s)) n = regions_in(w, s->body, region, n);
        bool vector = s->kind == KN_LS_STORE && s->value->lanes > 1;
        const kn_buffer *b = vector ? &w->p->buffers[s->buffer] : NULL;
        if (!b || b->scope != KN_SCRATCH || b->dtype == KN_BOOL || kn_dtype_bytes(b->dtype) < 4 || n == REGIONS) continue;
        bool there = false;
        for (int i = 0; i < n; i++) there |= region[i] == s->buffer;
        if (!there) region[n++] = s->buffer;
    }
    return n;
}

/* The buffer is the region of a stage of whose results it has one row. */
static bool one_row(const kn_lw *w, int region)
{
    for (int t = 0; t < w->p->program->ntensors; t++) {
        if (!w->box[t].on || w->tensor_buffer[t] != region) continue;
        for (int d = 0; d + 1 < w->p->program->tensors[t].rank; d++)
            if (w->box[t].size[d] > 1) return false;
        return w->hw->vector_registers < KN_LW_MANY;
    }
    return false;
}

/* The list holds every use of the region, in an order that lets registers take its place. */
static void forward(kn_lw *w, const kn_ls *all, kn_ls *list, int region)
{
    held *h = kn_new(w->a, held);
    if (!h) return;
    *h = (held){.w = w, .region = region, .row = one_row(w, region)};
    walk(h, list);
    if (h->bad || !h->n || !h->reads || uses(all, region) != h->reads + h->n) return;
    for (int k = 0; k < h->n; k++)
        for (int i = 0; i < k; i++) h->row &= h->at[i] != h->at[k]; /* written twice, the first time not to be kept */
    if (w->p->nbuffers > KN_LW_BUFFERS - 8) return;
    h->reg = kn_lw_buffer(w, "row", w->p->buffers[region].dtype, h->lanes, h->n, KN_REGISTER);
    h->making = true;
    h->n = 0;
    walk(h, list);
}

static void lists(kn_lw *w, const kn_ls *all, kn_ls *list)
{
    int region[REGIONS], n = regions_in(w, list, region, 0);
    for (int i = 0; i < n && !w->status; i++) forward(w, all, list, region[i]);
    for (kn_ls *s = list; s && !w->status; s = s->next) {
        lists(w, all, s->body);
        lists(w, all, s->other);
    }
}

void kn_lw_forward(kn_lw *w, kn_ls **list) { lists(w, *list, *list); }
