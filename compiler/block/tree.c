/* Tile tree to blocks: every stage a nest, its epilogue and its attached producers blocks of their own. */
#include "block/make.h"
#include <string.h>

/* Reads of a body, rewritten to buffers: caches first, then boxes of attached producers, then the tensors. */
typedef struct reader {
    kn_mk *m;
    const kn_ms *s;
    kn_expr *axis[KILN_MAX_AXES]; /* what axes become; NULL: themselves */
    int tile;                     /* epilogue: the tensor held in a tile, its buffer and indices; -1 */
    int tile_buffer;
    kn_expr **tile_index;
} reader;

static kn_expr *read_expr(reader *r, kn_expr *e);

/* Loops of reader `s` inside those at which p is computed: s is the stage that p is attached to, or attached to it too. */
static uint64_t unshared(const kn_stage *p, const kn_ms *s)
{
    uint64_t inside = ~0ull;
    for (int i = 0; i < p->nloops; i++)
        for (int j = 0; j < s->g->nloops && p->loops[i].shared_with >= 0; j++)
            if ((s->index == p->at_stage ? j : s->g->loops[j].shared_with) == p->loops[i].shared_with) inside &= ~(1ull << j);
    return inside;
}

static bool reads(const kn_expr *e, int tensor)
{
    bool yes = e->op == KN_OP_LOAD && e->u.tensor == tensor;
    for (int i = 0; i < e->nargs && !yes; i++) yes = reads(e->args[i], tensor);
    return yes;
}

static const kn_stage *producer(const kn_mk *m, int tensor)
{
    for (int i = 0; i < m->t->nstages; i++)
        if (m->t->stages[i]->at_stage >= 0 && kn_stage_out(m->t, m->t->stages[i]) == tensor) return m->t->stages[i];
    return NULL;
}

static kn_expr *read_load(reader *r, kn_expr *e)
{
    kn_mk *m = r->m;
    kn_expr *idx[KILN_MAX_RANK] = { NULL };
    if (e->u.tensor == r->tile) return kn_load(m->a, m->b->tensors, r->tile_buffer, r->tile_index);
    for (int i = 0; i < r->s->g->ncaches && r->tile < 0; i++) {
        const kn_cache *c = &r->s->g->caches[i];
        if (r->s->loads[c->load] != e || c->scope == KN_PACKED) continue; /* a block reads a constant as it is declared */
        kn_mk_cached_index(m, r->s, c, idx);
        return kn_load(m->a, m->b->tensors, r->s->cache[c->load], idx);
    }
    const kn_stage *p = producer(m, e->u.tensor);
    bool inside = false; /* of its box in every dimension */
    for (int d = 0; d < e->nargs; d++) {
        int stmt = r->tile < 0 ? r->s->g->stmt : r->s->g->epilogue;
        bool box = p && m->boxed[e->u.tensor][d] && e->args[d]->op == KN_OP_AXIS;
        int axis = box ? kn_stage_axis_of(m->t, r->s->g, stmt, e->args[d]->u.axis) : -1;
        idx[d] = axis >= 0 ? kn_mk_part(m, r->s, axis, unshared(p, r->s)) : read_expr(r, e->args[d]);
        if (idx[d] && r->tile >= 0) idx[d] = kn_simplify(m->a, idx[d], kn_block_iter_range, r->s->proto);
        inside = (inside || !d) && box;
    }
    int b = m->buffer[e->u.tensor];
    return e->padded && !inside ? kn_load_padded(m->a, m->b->tensors, b, idx, e->pad_value) : kn_load(m->a, m->b->tensors, b, idx);
}

static kn_expr *read_expr(reader *r, kn_expr *e)
{
    if (e->op == KN_OP_AXIS && r->axis[e->u.axis]) return r->axis[e->u.axis];
    if (e->op == KN_OP_LOAD) return read_load(r, e);
    if (!e->nargs) return e;
    kn_expr *c = kn_new(r->m->a, kn_expr), **args = kn_array(r->m->a, kn_expr *, e->nargs);
    if (!c || !args) return NULL;
    *c = *e;
    c->args = args;
    for (int i = 0; i < e->nargs; i++)
        if (!(args[i] = read_expr(r, e->args[i]))) return NULL;
    return c;
}

static kn_expr *identity(kn_mk *m, enum kn_reduce red, enum kn_dtype t)
{
    bool real = kn_dtype_class(t) == 'f', sign = kn_dtype_class(t) == 'i';
    int bits = kn_dtype_bytes(t) * 8;
    int64_t most = bits == 64 ? INT64_MAX : ((int64_t)1 << (sign ? bits - 1 : bits)) - 1, least = sign ? -most - 1 : 0;
    double inf = 1e308 * 10;
    switch (red) {
    case KN_RED_MAX: return real ? kn_const_f(m->a, t, -inf) : kn_const_i(m->a, t, least);
    case KN_RED_MIN: return real ? kn_const_f(m->a, t, inf) : kn_const_i(m->a, t, most);
    case KN_RED_PROD:
    case KN_RED_ALL: return real ? kn_const_f(m->a, t, 1) : kn_const_i(m->a, t, 1);
    default: return real ? kn_const_f(m->a, t, 0) : kn_const_i(m->a, t, 0);
    }
}

/* The statement's axes as iterators, bound to the loops by their strides. */
static void bind_axes(kn_mk *m, kn_ms *s, kn_block *k, bool reduce_too)
{
    for (int x = 0; x < s->s->naxes; x++) {
        kn_expr *sum = kn_mk_int(m, 0);
        int64_t cover = 1;
        for (int i = 0; i < s->g->nloops; i++) {
            const kn_loop *l = &s->g->loops[i];
            if (l->axis != x || l->extent == 1) continue;
            cover += (l->extent - 1) * l->stride;
            if (s->val[i]) sum = kn_bin(m->a, KN_OP_ADD, sum, kn_bin(m->a, KN_OP_MUL, s->val[i], kn_mk_int(m, l->stride)));
        }
        if (s->s->axes[x].reduce && !reduce_too) continue;
        int n = kn_mk_iter(m, k, s->s->axes[x].name, s->s->axes[x].extent, s->s->axes[x].reduce, sum);
        if (n >= 0 && cover > s->s->axes[x].extent) kn_mk_where(m, k, n, s->s->axes[x].extent);
    }
}

/* A tile of finished values that an epilogue takes over: one dimension for every axis that moves inside the first reduce loop. */
typedef struct tile { int first, buffer, rank; kn_expr *idx[KILN_MAX_RANK]; bool on; } tile;

static void make_tile(kn_mk *m, kn_ms *s, tile *t)
{
    uint64_t inside = 0;
    bool registers = true;
    int64_t shape[KILN_MAX_RANK];
    const kn_tensor *x = &m->t->program->tensors[s->s->out];
    t->on = s->g->epilogue >= 0;
    for (t->first = 0; t->first < s->g->nloops && !s->s->axes[s->g->loops[t->first].axis].reduce;) t->first++;
    if (!t->on) return;
    for (int i = t->first; i < s->g->nloops; i++) {
        const kn_loop *l = &s->g->loops[i];
        if (s->s->axes[l->axis].reduce || l->kind == KN_THREAD) continue;
        inside |= 1ull << i;
        registers &= l->kind != KN_SERIAL || l->extent == 1;
    }
    for (int a = 0; a < s->s->nspatial; a++) {
        int64_t n = kn_mk_span(s, a, inside);
        if (n == 1) continue;
        if (t->rank == KILN_MAX_RANK) {
            kn_mk_fail(m, KILN_LIMIT, "its tile has more than 8 dimensions", x->name);
            return;
        }
        shape[t->rank] = n;
        t->idx[t->rank++] = kn_mk_part(m, s, a, inside);
    }
    enum kn_scope scope = kn_stage_warps(s->g) ? KN_FRAGMENTS : registers || m->hw->gpu ? KN_REGISTER : KN_SCRATCH;
    t->buffer = kn_mk_buffer(m, x->name, x->dtype, scope, t->rank, shape);
}

static void compute_block(kn_mk *m, kn_ms *s, const tile *t, kn_bnode *parent)
{
    kn_block *k = kn_new(m->a, kn_block);
    if (!k) {
        kn_mk_fail(m, KILN_MEMORY, "out of memory", "a block");
        return;
    }
    k->name = m->b->tensors->tensors[t->on ? t->buffer : m->buffer[s->s->out]].name;
    bind_axes(m, s, k, true);
    if (m->status) return;
    k->s.red = s->s->red;
    k->s.out = t->on ? t->buffer : m->buffer[s->s->out];
    uint64_t own = 0;
    for (int i = 0; i < s->g->nloops; i++)
        if (s->g->loops[i].shared_with < 0) own |= 1ull << i;
    for (int i = 0; i < m->b->tensors->tensors[k->s.out].rank; i++) {
        bool box = !t->on && m->boxed[s->s->out][i];
        k->s.lhs[i] = t->on ? t->idx[i] : box ? kn_mk_part(m, s, s->s->lhs[i]->u.axis, own) : s->s->lhs[i];
    }
    reader r = { .m = m, .s = s, .tile = -1 };
    k->s.body = read_expr(&r, s->s->body);
    if (k->s.body && k->s.red != KN_RED_NONE) k->init = identity(m, k->s.red, kn_stmt_acc(&k->s));
    kn_mk_regions(m, k);
    kn_mk_block(m, parent, k);
}

/* The loop's name, another where a loop around has it: producers are computed inside their consumers' loops. */
static const char *fresh_name(kn_mk *m, const kn_bnode *parent, const char *name)
{
    const char *s = kn_mk_loop_name(m, name);
    for (const kn_bnode *p = parent; p && s; p = p->parent) {
        if (p->kind != KN_BN_LOOP || strcmp(p->name, s)) continue;
        s = kn_format(m->a, "%s_in", s);
        p = parent;
    }
    return s;
}

/* At the store: over the loops inside the first reduce loop, from the tile to the tensor that is wanted. */
static void epilogue_block(kn_mk *m, kn_ms *s, tile *t, kn_bnode *parent)
{
    const kn_stmt *e = m->t->program->stmts[s->g->epilogue];
    kn_block *k = kn_new(m->a, kn_block);
    reader r = { .m = m, .s = s, .tile = s->s->out, .tile_buffer = t->buffer, .tile_index = t->idx };
    const kn_expr *loads[KILN_MAX_TENSORS];
    int n = kn_loads(e->body, loads, KILN_MAX_TENSORS);
    for (int i = t->first; i < s->g->nloops; i++) {
        const kn_loop *l = &s->g->loops[i];
        if (s->s->axes[l->axis].reduce) continue;
        parent = kn_blocks_loop(m->b, parent, kn_mk_loop_name(m, l->name), l->extent, l->kind);
        if (!parent) break;
        s->val[i] = kn_var_ref(m->a, parent->var);
    }
    if (!k || (!parent && s->g->nloops)) {
        kn_mk_fail(m, KILN_MEMORY, "out of memory", "an epilogue");
        return;
    }
    for (int i = 0; i < n && i < KILN_MAX_TENSORS; i++)
        for (int d = 0; loads[i]->u.tensor == s->s->out && d < loads[i]->nargs; d++) r.axis[loads[i]->args[d]->u.axis] = s->s->lhs[d];
    k->name = m->b->tensors->tensors[m->buffer[e->out]].name;
    const kn_stmt *all = s->s, *wanted = kn_stage_wanted(m->a, m->t, s->g);
    s->s = wanted ? wanted : all;
    bind_axes(m, s, k, false);
    s->s = all;
    if (!wanted) kn_mk_fail(m, KILN_MEMORY, "out of memory", "an epilogue");
    if (m->status) return;
    k->s.out = m->buffer[e->out];
    uint64_t own = 0;
    for (int i = 0; i < s->g->nloops; i++)
        if (s->g->loops[i].shared_with < 0) own |= 1ull << i;
    for (int i = 0; i < m->t->program->tensors[e->out].rank; i++) {
        bool box = m->boxed[e->out][i];
        kn_expr *x = box ? kn_mk_part(m, s, kn_stage_out_axis(m->t, s->g, i), own) : read_expr(&r, e->lhs[i]);
        k->s.lhs[i] = x ? kn_simplify(m->a, x, kn_block_iter_range, s->proto) : NULL;
    }
    k->s.body = read_expr(&r, e->body);
    kn_mk_regions(m, k);
    kn_mk_block(m, parent, k);
}

static bool stage_init(kn_mk *m, kn_ms *s, int index, const kn_ms *consumer)
{
    s->index = index;
    s->g = m->t->stages[index];
    s->s = m->t->program->stmts[s->g->stmt];
    s->consumer = consumer;
    s->proto = kn_new(m->a, kn_block);
    const char *name = m->t->program->tensors[s->s->out].name;
    if (!s->proto) kn_mk_fail(m, KILN_MEMORY, "out of memory", name);
    else s->proto->s = *s->s;
    if (s->s->scatter) {
        kn_mk_fail(m, KILN_UNSUPPORTED, "it scatters to computed indices", name);
        kn_hint(m->d, "write the output at its own axes and read the other tensors through indices");
    }
    s->nloads = kn_loads(s->s->body, s->loads, KILN_MAX_TENSORS);
    if (s->nloads > KILN_MAX_TENSORS) kn_mk_fail(m, KILN_LIMIT, "more loads than tensors of a program", name);
    for (int i = 0; i < s->g->ncaches && !m->status; i++) {
        const kn_cache *c = &s->g->caches[i];
        if (c->scope == KN_PACKED) continue;
        if (producer(m, s->loads[c->load]->u.tensor)) kn_mk_fail(m, KILN_UNSUPPORTED, "a cache of what is computed in place", name);
        if (!m->status) s->cache[c->load] = kn_mk_cache(m, s, c);
    }
    return !m->status;
}

static void stage(kn_mk *m, int index, kn_bnode *parent, const kn_ms *consumer)
{
    kn_ms *s = kn_new(m->a, kn_ms);
    tile t = { 0 };
    if (!s) kn_mk_fail(m, KILN_MEMORY, "out of memory", "a stage");
    if (!s || !stage_init(m, s, index, consumer)) return;
    make_tile(m, s, &t);
    kn_bnode *cur = parent, *store = parent;
    for (int i = 0; i < s->g->nloops && !m->status; i++) {
        const kn_loop *l = &s->g->loops[i];
        if (i == t.first) store = cur;
        if (l->shared_with >= 0) {
            s->val[i] = consumer->val[l->shared_with];
        } else {
            const char *name = l->kind == KN_THREAD ? kn_mk_loop_name(m, l->name) : fresh_name(m, cur, l->name);
            cur = name ? kn_blocks_loop(m->b, cur, name, l->extent, l->kind) : NULL;
            if (!cur) {
                kn_mk_fail(m, KILN_LIMIT, "too many loops", l->name);
                return;
            }
            cur->rfactor = l->rfactor;
            if (s->g->tensor.intrin && s->g->tensor.at == i) cur->by = s->g->tensor.intrin->name;
            s->val[i] = kn_var_ref(m->a, cur->var);
        }
        for (int k = 0; k < m->t->nstages && !m->status; k++)
            if (m->t->stages[k]->at_stage == index && m->t->stages[k]->at_loop == i) stage(m, k, cur, s);
        for (int k = 0; k < s->g->ncaches && !m->status; k++)
            if (s->g->caches[k].at == i) kn_mk_fill(m, s, &s->g->caches[k], cur);
    }
    if (m->status) return;
    if (t.first == s->g->nloops) store = cur;
    compute_block(m, s, &t, cur);
    if (t.on && !m->status) epilogue_block(m, s, &t, store);
}

/* The box of an attached producer: its own loops decide the dimensions whose outer loops are its consumer's. */
static int box_of(kn_mk *m, const kn_stage *g, const kn_tensor *x, int tensor)
{
    int64_t shape[KILN_MAX_RANK];
    for (int d = 0; d < x->rank; d++) {
        int axis = kn_stage_out_axis(m->t, g, d);
        int64_t n = 1;
        bool shared = false;
        shape[d] = x->shape[d];
        for (int i = 0; i < g->nloops && axis >= 0; i++) {
            const kn_loop *l = &g->loops[i];
            if (l->axis != axis) continue;
            if (l->shared_with >= 0) shared = !m->hw->gpu; /* threads differ in what they have of it: it goes by its whole tensor's numbers */
            else n += (l->extent - 1) * l->stride;
        }
        m->boxed[tensor][d] = shared;
        if (shared) shape[d] = n;
    }
    return kn_mk_buffer(m, x->name, x->dtype, m->hw->gpu ? KN_GLOBAL : KN_SCRATCH, x->rank, shape);
}

static void declare_tensors(kn_mk *m)
{
    const kn_program *p = m->t->program;
    for (int i = 0; i < p->ntensors && !m->status; i++) {
        const kn_stage *at = NULL;
        bool used = false, tile_only = false;
        for (int k = 0; k < m->t->nstages; k++) {
            const kn_stage *g = m->t->stages[k];
            int out = p->stmts[g->stmt]->out, last = g->epilogue >= 0 ? p->stmts[g->epilogue]->out : out;
            used |= last == i || reads(p->stmts[g->stmt]->body, i);
            if (g->epilogue >= 0) used |= reads(p->stmts[g->epilogue]->body, i);
            if (last == i && g->at_stage >= 0) at = g;
            tile_only |= out == i && g->epilogue >= 0;
        }
        m->buffer[i] = -1;
        if (!used || tile_only) continue;
        const kn_tensor *x = &p->tensors[i];
        m->buffer[i] = at ? box_of(m, at, x, i) : kn_mk_buffer(m, x->name, x->dtype, KN_GLOBAL, x->rank, x->shape);
        if (!at) m->b->tensors->tensors[m->buffer[i]].role = x->role;
    }
}

kiln_status kn_blocks_of_tree(kiln_arena *a, const kn_tree *t, const kn_hw *hw, kn_blocks **out, kiln_diag *d)
{
    kn_mk *m = kn_new(a, kn_mk);
    if (m) *m = (kn_mk){ .a = a, .t = t, .hw = hw, .d = d, .b = kn_blocks_new(a) };
    if (!m || !m->b) return kn_fail(d, KILN_MEMORY, "out of memory in block form");
    declare_tensors(m);
    for (int i = 0; i < t->nstages && !m->status; i++)
        if (t->stages[i]->at_stage < 0) stage(m, i, NULL, NULL);
    if (!m->status && kn_arena_dry(a)) return kn_fail(d, KILN_MEMORY, "out of memory in block form");
    if (!m->status) *out = m->b;
    return m->status;
}
