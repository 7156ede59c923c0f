/* Sharing: in a run of unrolled stores, addresses and loads that occur again are computed once. The text gets shorter, so that the C and
 * CUDA compilers get done sooner; they would find the same, but only after having built it all. */
#include "lower/lower.h"

enum { RUN_LEAST = 3, SHARED_MOST = 192 };

/* What occurs in the run: an address base, a load or a quotient, and how often. */
typedef struct common { kn_expr *e; int count; int var, buffer, slot; bool made; } common;

typedef struct sharing {
    kn_lw *w;
    bool loads;           /* loads may be shared: the run stores to registers only */
    bool elements;        /* single elements may be, of what the run only reads */
    const kn_ls *run, *end;
    bool counting;
    bool guarded;         /* the run is of conditional stores: nothing that they read may be read in front of them */
    int n;
    common c[SHARED_MOST];
    kn_ls **before;       /* where definitions go: in front of the store at hand */
} sharing;

static bool straight(const kn_ls *s) { return s && s->kind == KN_LS_STORE; }

static common *find(sharing *s, kn_expr *e)
{
    for (int i = 0; i < s->n; i++)
        if (s->c[i].e == e || kn_expr_equal(s->c[i].e, e)) return &s->c[i];
    if (!s->counting || s->n == SHARED_MOST) return NULL;
    s->c[s->n] = (common){.e = e, .buffer = -1};
    return &s->c[s->n++];
}

static kn_ls *define(sharing *s, enum kn_ls_kind kind, int var, int buffer, kn_expr *index, kn_expr *value)
{
    kn_ls *x = kn_new(s->w->a, kn_ls);
    if (!x) return NULL;
    *x = (kn_ls){.kind = kind, .var = var, .buffer = buffer, .index = index, .value = value, .next = *s->before};
    *s->before = x;
    s->before = &x->next;
    return x;
}

/* A vector of memory that two or three operations want: gcc makes an operand of each of them. */
static bool wanted_by_few(const sharing *s, const common *c)
{
    enum { FEW = 3 };
    const kn_expr *e = c->e;
    return c->count > 1 && c->count <= FEW && e->op == KN_OP_READ && e->lanes > 1 && e->dtype == KN_F32 &&
           e->lanes * kn_dtype_bytes(e->dtype) == s->w->hw->vector_bytes;
}

/* Where such a vector straddles lines, each operation takes two accesses (a product of 61x71 by 71x67 in tiles of three rows: 6.5 us, held 3.1). Not
 * where there are many of them, as in a window, which registers had better not be filled with. */
static bool better_held(const sharing *s, const common *c)
{
    enum { MOST = 8 };
    int n = 0;
    if (s->w->hw->gpu || !wanted_by_few(s, c)) return false;
    for (int i = 0; i < s->n; i++) n += wanted_by_few(s, &s->c[i]);
    return n <= MOST;
}

/* An element of the run's register array for this dtype and width. */
static bool take_register(sharing *s, common *c)
{
    kn_lprog *p = s->w->p;
    int lanes = c->e->lanes > 1 ? c->e->lanes : 1;
    for (int i = 0; i < s->n && c->buffer < 0; i++)
        if (s->c[i].buffer >= 0 && p->buffers[s->c[i].buffer].dtype == c->e->dtype && p->buffers[s->c[i].buffer].lanes == lanes)
            c->buffer = s->c[i].buffer;
    if (c->buffer < 0 && p->nbuffers > KN_LW_BUFFERS - 8) return false;
    if (c->buffer < 0) c->buffer = kn_lw_buffer(s->w, "common", c->e->dtype, lanes, 0, KN_REGISTER);
    c->slot = (int)p->buffers[c->buffer].elems++;
    return true;
}

static kn_expr *load_of(sharing *s, kn_expr *e)
{
    common *c = find(s, e);
    if (!c) return e;
    if (s->counting) {
        c->count++;
        return e;
    }
    if (c->count < 2) return e;
    if (!c->made) {
        if (!take_register(s, c)) return e;
        kn_ls *x = define(s, KN_LS_STORE, -1, c->buffer, kn_lw_int(s->w, c->slot), e);
        if (x) x->holds = better_held(s, c);
        c->made = true;
    }
    return kn_lw_read(s->w, c->buffer, kn_lw_int(s->w, c->slot), e->lanes);
}

static bool reads(const kn_expr *e)
{
    bool yes = e->op == KN_OP_READ;
    for (int i = 0; i < e->nargs && !yes; i++) yes = reads(e->args[i]);
    return yes;
}

/* index = base + constant, the base as a variable when it is worth one. */
static kn_expr *address(sharing *s, kn_expr *index)
{
    bool sum = index->op == KN_OP_ADD && index->args[1]->op == KN_OP_CONST_I;
    kn_expr *base = sum ? index->args[0] : index;
    if (base->nargs == 0 || (s->guarded && reads(base))) return index;
    common *c = find(s, base);
    if (!c) return index;
    if (s->counting) {
        c->count++;
        return index;
    }
    if (c->count < 2) return index;
    if (!c->made) {
        int64_t lo = 0, hi = 0;
        kn_lw_range(s->w, base, &lo, &hi);
        c->var = kn_lw_var(s->w, "at", lo, hi);
        define(s, KN_LS_LET, c->var, 0, NULL, base);
        c->made = true;
    }
    kn_expr *x = kn_lw_ref(s->w, c->var);
    return sum ? kn_lw_node(s->w, KN_OP_ADD, KN_I64, 1, x, index->args[1], NULL) : x;
}

static bool reads_memory(const sharing *s, const kn_expr *e)
{
    return e->op == KN_OP_READ && s->w->p->buffers[e->u.buffer].scope != KN_REGISTER;
}

/* What is evaluated only under a condition, or once a lane, stays where it is: moved, it could read where it must not. */
static bool conditional(const kn_expr *e)
{
    return e->op == KN_OP_SELECT || e->op == KN_OP_LANES || e->op == KN_OP_AND || e->op == KN_OP_OR;
}

/* A tensor that the run does not write. The C compiler cannot tell, and would read an element of it again behind each store. */
static bool only_read(const sharing *s, const kn_buffer *b)
{
    for (const kn_ls *x = s->run; x != s->end; x = x->next)
        if (straight(x) && s->w->p->buffers[x->buffer].slot == b->slot) return false;
    return b->scope == KN_GLOBAL || b->scope == KN_PACKED;
}

static kn_expr *load(sharing *s, kn_expr *e)
{
    kn_expr *index = address(s, e->args[0]);
    if (index != e->args[0]) e = kn_lw_read(s->w, e->u.buffer, index, e->lanes);
    return s->loads || (s->elements && e->lanes <= 1 && only_read(s, &s->w->p->buffers[e->u.buffer])) ? load_of(s, e) : e;
}

/* The broadcast is shared, not only what it reads, where there are registers for vectors. */
static kn_expr *broadcast(sharing *s, kn_expr *e)
{
    bool loads = s->loads;
    s->loads = false;
    kn_expr *read = load(s, e->args[0]);
    s->loads = loads;
    if (read != e->args[0]) e = kn_lw_splat(s->w, read, e->lanes);
    return loads ? load_of(s, e) : e;
}

/* A quotient of numbers of axes: a compiler would find it again but for the assembly in it. */
static bool dear(const kn_expr *e) { return e->op == KN_OP_DIV && e->lanes > 1 && !reads(e); }

static kn_expr *visit(sharing *s, kn_expr *e)
{
    if (dear(e)) return load_of(s, e);
    bool mixed = e->op == KN_OP_ZIP || e->op == KN_OP_UNZIP || e->op == KN_OP_SPREAD || e->op == KN_OP_PICK;
    if (conditional(e) || mixed || (e->op == KN_OP_READ && !reads_memory(s, e))) return e;
    if (reads_memory(s, e)) return load(s, e);
    if (e->op == KN_OP_SPLAT && reads_memory(s, e->args[0])) return broadcast(s, e);
    kn_expr *args[3] = {NULL, NULL, NULL};
    bool changed = false;
    for (int i = 0; i < e->nargs && i < 3; i++) {
        args[i] = visit(s, e->args[i]);
        changed = changed || args[i] != e->args[i];
    }
    if (changed) {
        kn_expr *x = kn_new(s->w->a, kn_expr);
        kn_expr **list = kn_array(s->w->a, kn_expr *, e->nargs);
        if (!x || !list) return e;
        *x = *e;
        for (int i = 0; i < e->nargs; i++) list[i] = args[i];
        x->args = list;
        e = x;
    }
    return e;
}

static bool to_register(const sharing *s, const kn_ls *x) { return s->w->p->buffers[x->buffer].scope == KN_REGISTER; }

static void one_store(sharing *s, kn_ls *x)
{
    kn_expr *value = visit(s, x->value);
    kn_expr *index = to_register(s, x) ? x->index : address(s, x->index);
    if (s->counting) return;
    x->value = value;
    x->index = index;
}

/* A store, or a few, under a condition; the condition and what it guards have addresses that the next ones repeat. */
static bool guarded(const kn_ls *s)
{
    if (!s || s->kind != KN_LS_IF || !s->body) return false;
    for (int other = 0; other < 2; other++)
        for (const kn_ls *x = other ? s->other : s->body; x; x = x->next)
            if (!straight(x) && !(other && guarded(x))) return false;
    return true;
}

static kn_expr *condition(sharing *s, kn_expr *e)
{
    bool both = e->op == KN_OP_AND, below = e->op == KN_OP_LT && !reads(e);
    if (!both && !below) return e;
    kn_expr *x = both ? condition(s, e->args[0]) : address(s, e->args[0]), *y = both ? condition(s, e->args[1]) : e->args[1];
    return x == e->args[0] && y == e->args[1] ? e : kn_lw_node(s->w, e->op, e->dtype, 1, x, y, NULL);
}

static void one_guarded(sharing *s, kn_ls *x)
{
    kn_expr *cond = condition(s, x->value);
    if (!s->counting) x->value = cond;
    for (int other = 0; other < 2; other++)
        for (kn_ls *y = other ? x->other : x->body; y; y = y->next) straight(y) ? one_store(s, y) : one_guarded(s, y);
}

/* Conditional stores behind each other, as the results of a tile that may end outside: their addresses, in front of the first that has them. A
 * GPU's compiler takes a fifth longer without; a CPU's tiles keep their own order of things. */
static kn_ls **share_guarded(kn_lw *w, kn_ls **at)
{
    int n = 0;
    sharing *s = kn_new(w->a, sharing);
    kn_ls *end = *at, **out = at;
    for (; guarded(end); end = end->next) n++;
    if (s && n >= RUN_LEAST) {
        *s = (sharing){.w = w, .counting = true, .guarded = true, .run = *at, .end = end};
        for (kn_ls *x = *at; x != end; x = x->next) one_guarded(s, x);
        s->counting = false;
        kn_ls **link = at;
        for (kn_ls *x = *at; x != end; x = x->next) {
            s->before = link;
            one_guarded(s, x);
            link = &x->next;
        }
    }
    for (kn_ls *x = *at; x != end; x = x->next) {
        kn_lw_share(w, &x->body);
        kn_lw_share(w, &x->other);
    }
    while (*out != end) out = &(*out)->next;
    return out;
}

/* The run that starts at *at; returns where it ends. Addresses first, then loads, so that equal loads stay equal. */
static kn_ls **share_run(kn_lw *w, kn_ls **at)
{
    int n = 0;
    bool loads = true;
    sharing *s = kn_new(w->a, sharing);
    kn_ls *end = *at, **out = at;
    for (; straight(end); end = end->next, n++) loads = loads && (end->aside || w->p->buffers[end->buffer].scope == KN_REGISTER);
    for (int pass = 0; s && n >= RUN_LEAST && pass < 2; pass++) {
        *s = (sharing){.w = w, .counting = true, .run = *at, .end = end};
        s->loads = pass == 1 && loads;
        s->elements = pass == 1 && !loads;
        for (kn_ls *x = *at; x != end; x = x->next)
            if (straight(x)) one_store(s, x);
        s->counting = false;
        kn_ls **link = at;
        for (kn_ls *x = *at; x != end; x = x->next) {
            s->before = link;
            if (straight(x)) one_store(s, x);
            link = &x->next;
        }
    }
    while (*out != end) out = &(*out)->next;
    return out;
}

void kn_lw_share(kn_lw *w, kn_ls **list)
{
    for (kn_ls **at = list; *at && !w->status;) {
        if (straight(*at)) {
            kn_lw_held(w, at);
            at = share_run(w, at);
            continue;
        }
        if (w->hw->gpu && guarded(*at)) {
            at = share_guarded(w, at);
            continue;
        }
        kn_lw_share(w, &(*at)->body);
        kn_lw_share(w, &(*at)->other);
        at = &(*at)->next;
    }
}
