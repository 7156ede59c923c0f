/* Cache fills as blocks: an iterator for every loop the load depends on, or for every dimension of the copied box. */
#include "block/make.h"

static int shape_of(const kn_ms *s, const kn_cache *c, int64_t *size)
{
    const kn_expr *load = s->loads[c->load];
    uint64_t inside = kn_mk_inside(s->g, c);
    if (!c->region) {
        for (int i = 0; i < c->nloops; i++) size[i] = kn_cache_dim(s->g, c, i);
        return c->nloops;
    }
    for (int d = 0; d < load->nargs; d++) {
        kn_affine f;
        size[d] = 1;
        if (!kn_affine_of(load->args[d], &f)) continue; /* cache_read refuses it */
        for (int x = 0; x < s->s->naxes; x++) size[d] += (f.coef[x] < 0 ? -f.coef[x] : f.coef[x]) * (kn_mk_span(s, x, inside) - 1);
    }
    return load->nargs;
}

int kn_mk_cache(kn_mk *m, const kn_ms *s, const kn_cache *c)
{
    const kn_tensor *x = &m->t->program->tensors[s->loads[c->load]->u.tensor];
    int64_t size[KILN_MAX_LOOPS];
    int n = shape_of(s, c, size);
    if (n > KILN_MAX_RANK) {
        kn_mk_fail(m, KILN_LIMIT, "a cache of more than 8 dimensions", x->name);
        return 0;
    }
    int b = kn_mk_buffer(m, kn_format(m->a, "%.40s_%s", x->name, c->scope == KN_SHARED ? "shared" : "pack"), x->dtype, c->scope, n, size);
    m->b->pad[b] = n ? c->pad : 0;
    return b;
}

/* A box starts at its least index: negative coefficients count from their far end. */
static kn_expr *box_index(kn_mk *m, const kn_ms *s, const kn_affine *f, uint64_t inside)
{
    kn_expr *at = kn_mk_int(m, 0);
    int64_t shift = 0;
    for (int x = 0; x < s->s->naxes; x++) {
        if (!f->coef[x]) continue;
        if (f->coef[x] < 0) shift -= f->coef[x] * (kn_mk_span(s, x, inside) - 1);
        at = kn_bin(m->a, KN_OP_ADD, at, kn_bin(m->a, KN_OP_MUL, kn_mk_part(m, s, x, inside), kn_mk_int(m, f->coef[x])));
    }
    at = kn_bin(m->a, KN_OP_ADD, at, kn_mk_int(m, shift));
    return at ? kn_simplify(m->a, at, kn_block_iter_range, s->proto) : NULL;
}

void kn_mk_cached_index(kn_mk *m, const kn_ms *s, const kn_cache *c, kn_expr **idx)
{
    const kn_expr *load = s->loads[c->load];
    for (int i = 0; !c->region && i < c->nloops; i++) {
        idx[i] = kn_mk_digit(m, s, c->loops[i]);
        if (c->by[i]) idx[i] = kn_bin(m->a, KN_OP_FLOORDIV, idx[i], kn_mk_int(m, c->by[i]));
        if (c->count[i]) idx[i] = kn_bin(m->a, KN_OP_MOD, idx[i], kn_mk_int(m, c->count[i]));
        idx[i] = idx[i] ? kn_simplify(m->a, idx[i], kn_block_iter_range, s->proto) : NULL;
    }
    for (int d = 0; c->region && d < load->nargs; d++) {
        kn_affine f = { { 0 }, 0 };
        kn_affine_of(load->args[d], &f);
        idx[d] = box_index(m, s, &f, kn_mk_inside(s->g, c));
    }
}

typedef struct fill {
    kn_mk *m;
    kn_ms *s;
    const kn_cache *c;
    kn_block *k;
    int n;                                 /* dimensions of the cache */
    int64_t size[KILN_MAX_LOOPS];
    kn_expr *flat;                         /* shared: the flat count */
    kn_expr *at[KILN_MAX_LOOPS];           /* where in it: variables or digits of a flat count */
    int iter[KILN_MAX_LOOPS];              /* loop -> its iterator, -1 */
    kn_expr *dim[KILN_MAX_RANK];           /* the cache's indices over the iterators */
} fill;

/* Dimension i of the cache, by the name of its loop, of which it may be a part. */
static const char *dim_name(const fill *f, int i)
{
    if (f->c->region) return kn_format(f->m->a, "D%d", i);
    const char *name = kn_mk_loop_name(f->m, f->s->g->loops[f->c->loops[i]].name);
    return f->c->count[i] && name ? kn_format(f->m->a, "%s_part", name) : name;
}

/* All threads of a block copy a flat range together; `fill` counts the rounds. */
static kn_bnode *flat_loops(fill *f, kn_bnode *parent, kn_expr **flat, int64_t *reach)
{
    kn_mk *m = f->m;
    const kn_stage *g = f->s->g;
    int64_t threads = 1, total = 1;
    kn_expr *t = kn_mk_int(m, 0);
    for (int i = 0; i < f->n; i++) total *= f->size[i];
    for (int i = 0; i < g->nloops; i++)
        if (g->loops[i].kind == KN_THREAD) threads *= g->loops[i].extent;
    int64_t rounds = kn_ceil_div(total, threads), below = threads;
    if (rounds > 1 && (parent = kn_blocks_loop(m->b, parent, "fill", rounds, KN_SERIAL)))
        t = kn_bin(m->a, KN_OP_MUL, kn_var_ref(m->a, parent->var), kn_mk_int(m, threads));
    for (int i = 0; i < g->nloops; i++) {
        const kn_loop *l = &g->loops[i];
        if (l->kind != KN_THREAD) continue;
        below /= l->extent;
        kn_expr *v = f->s->val[i];
        if (!v && parent && (parent = kn_blocks_loop(m->b, parent, kn_mk_loop_name(m, l->name), l->extent, KN_THREAD)))
            v = kn_var_ref(m->a, parent->var);
        if (l->extent > 1) t = kn_bin(m->a, KN_OP_ADD, t, kn_bin(m->a, KN_OP_MUL, v, kn_mk_int(m, below)));
    }
    *flat = t;
    *reach = rounds * threads;
    return parent;
}

static kn_bnode *open_loops(fill *f, kn_bnode *parent, int64_t *reach)
{
    kn_mk *m = f->m;
    kn_expr *flat;
    if (f->c->scope != KN_SHARED) {
        *reach = 1;
        for (int i = 0; i < f->n; i++) {
            const char *name = dim_name(f, i);
            *reach *= f->size[i];
            parent = name ? kn_blocks_loop(m->b, parent, name, f->size[i], KN_SERIAL) : NULL;
            if (!parent) return NULL;
            f->at[i] = f->size[i] > 1 ? kn_var_ref(m->a, parent->var) : kn_mk_int(m, 0);
        }
        return parent;
    }
    parent = flat_loops(f, parent, &flat, reach);
    f->flat = flat;
    int64_t below = 1;
    for (int i = f->n - 1; i >= 0; i--) {
        bool outermost = true;
        for (int k = 0; k < i; k++) outermost &= f->size[k] == 1;
        f->at[i] = kn_mk_int(m, 0);
        if (f->size[i] == 1) continue;
        kn_expr *q = below > 1 ? kn_bin(m->a, KN_OP_FLOORDIV, flat, kn_mk_int(m, below)) : flat;
        f->at[i] = outermost ? q : kn_bin(m->a, KN_OP_MOD, q, kn_mk_int(m, f->size[i]));
        below *= f->size[i];
    }
    return parent;
}

/* Iterators of the copy, the condition that ends a flat count, and the cache's indices. */
static void iterators(fill *f, int64_t reach)
{
    kn_mk *m = f->m;
    const kn_stage *g = f->s->g;
    uint32_t axes = kn_axes_in(f->s->loads[f->c->load]);
    uint64_t inside = kn_mk_inside(g, f->c);
    int64_t total = 1;
    for (int i = 0; i < g->nloops; i++) {
        const kn_loop *l = &g->loops[i];
        f->iter[i] = -1;
        if (!(axes >> l->axis & 1) || inside >> i & 1 || l->extent == 1) continue;
        f->iter[i] = kn_mk_iter(m, f->k, kn_mk_loop_name(m, l->name), l->extent, false, f->s->val[i]);
    }
    for (int i = 0; i < f->n; i++) total *= f->size[i];
    bool first = true;
    for (int i = 0; i < f->n; i++) {
        f->dim[i] = kn_mk_int(m, 0);
        if (f->size[i] == 1) continue;
        int loop = f->c->region ? -1 : f->c->loops[i];
        const char *name = dim_name(f, i);
        int k = name ? kn_mk_iter(m, f->k, name, f->size[i], false, f->at[i]) : -1;
        if (k < 0) return;
        if (loop >= 0) f->iter[loop] = k;
        if (first && reach > total) kn_mk_where(m, f->k, k, f->size[i]);
        first = false;
        f->dim[i] = kn_axis_ref(m->a, k);
    }
    if (first && f->flat) { /* one element: the first thread copies it */
        int k = kn_mk_iter(m, f->k, "First", 1, false, f->flat);
        if (k >= 0 && reach > 1) kn_mk_where(m, f->k, k, 1);
    }
}

/* A loop through the iterators of the cache's dimensions that it is. */
static kn_expr *loop_value(fill *f, int loop)
{
    kn_expr *sum = NULL;
    for (int i = 0; i < f->n && !f->c->region; i++) {
        if (f->c->loops[i] != loop) continue;
        kn_expr *part = f->c->by[i] ? kn_bin(f->m->a, KN_OP_MUL, f->dim[i], kn_mk_int(f->m, f->c->by[i])) : f->dim[i];
        sum = sum ? kn_bin(f->m->a, KN_OP_ADD, sum, part) : part;
    }
    return sum ? sum : kn_axis_ref(f->m->a, f->iter[loop]);
}

/* The axis as its loops make it: copied ones through the iterators of the cache, outer ones through their own. */
static kn_expr *axis_value(fill *f, int axis, bool outer_only)
{
    kn_mk *m = f->m;
    kn_expr *sum = kn_mk_int(m, 0);
    uint64_t inside = kn_mk_inside(f->s->g, f->c);
    for (int i = 0; i < f->s->g->nloops; i++) {
        const kn_loop *l = &f->s->g->loops[i];
        if (l->axis != axis || f->iter[i] < 0 || (outer_only && inside >> i & 1)) continue;
        sum = kn_bin(m->a, KN_OP_ADD, sum, kn_bin(m->a, KN_OP_MUL, loop_value(f, i), kn_mk_int(m, l->stride)));
    }
    return sum;
}

static kn_expr *put_axes(void *user, kiln_arena *a, kn_expr *e)
{
    (void)a;
    return e->op == KN_OP_AXIS ? ((kn_expr **)user)[e->u.axis] : e;
}

static kn_expr *source(fill *f)
{
    kn_mk *m = f->m;
    const kn_expr *load = f->s->loads[f->c->load];
    const kn_tensor *x = &m->b->tensors->tensors[m->buffer[load->u.tensor]];
    kn_expr *idx[KILN_MAX_RANK], *value[KILN_MAX_AXES];
    bool strays = load->padded;
    uint64_t inside = kn_mk_inside(f->s->g, f->c);
    for (int i = 0; i < f->s->s->naxes; i++) value[i] = axis_value(f, i, f->c->region);
    for (int d = 0; d < load->nargs; d++) {
        int64_t lo, hi;
        kn_affine g;
        kn_expr *e = kn_rewrite(m->a, load->args[d], put_axes, value);
        if (f->c->region && kn_affine_of(load->args[d], &g)) {
            int64_t shift = 0;
            for (int i = 0; i < f->s->s->naxes; i++)
                if (g.coef[i] < 0) shift += g.coef[i] * (kn_mk_span(f->s, i, inside) - 1);
            e = kn_bin(m->a, KN_OP_ADD, kn_bin(m->a, KN_OP_ADD, e, f->dim[d]), kn_mk_int(m, shift));
        }
        idx[d] = e ? kn_simplify(m->a, e, kn_block_iter_range, f->k) : NULL;
        if (!idx[d]) return NULL;
        strays |= !kn_expr_range(idx[d], kn_block_iter_range, f->k, &lo, &hi) || lo < 0 || hi >= x->shape[d];
    }
    int b = m->buffer[load->u.tensor];
    return strays ? kn_load_padded(m->a, m->b->tensors, b, idx, load->padded ? load->pad_value : 0) : kn_load(m->a, m->b->tensors, b, idx);
}

void kn_mk_fill(kn_mk *m, kn_ms *s, const kn_cache *c, kn_bnode *parent)
{
    fill f = { .m = m, .s = s, .c = c, .k = kn_new(m->a, kn_block) };
    if (!f.k) {
        kn_mk_fail(m, KILN_MEMORY, "out of memory", "a cache");
        return;
    }
    int buffer = s->cache[c->load];
    int64_t reach = 1;
    f.k->name = m->b->tensors->tensors[buffer].name;
    f.n = shape_of(s, c, f.size);
    parent = open_loops(&f, parent, &reach);
    if (!parent && f.n) {
        kn_mk_fail(m, KILN_LIMIT, "too many loops", f.k->name);
        return;
    }
    iterators(&f, reach);
    if (m->status) return;
    f.k->s.out = buffer;
    for (int i = 0; i < f.n; i++) f.k->s.lhs[i] = f.dim[i];
    f.k->s.body = source(&f);
    kn_mk_regions(m, f.k);
    kn_mk_block(m, parent, f.k);
}
