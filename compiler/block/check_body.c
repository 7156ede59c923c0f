/* Body against signature: regions declared and in bounds, reductions well formed, register buffers indexed by constants. */
#include "block/check.h"

static void span(const kn_ck *c, const kn_block *k, const kn_expr *e, int64_t *lo, int64_t *hi)
{
    int64_t l, h;
    *lo = INT64_MIN;
    *hi = INT64_MAX;
    if (kn_expr_range(e, kn_block_iter_range, (void *)k, &l, &h)) {
        *lo = l;
        *hi = h;
    }
    const kn_expr *inner[1], *x = kn_loads(e, inner, 1) ? NULL : kn_block_bound(c->b, k, e);
    if (x && kn_expr_range(x, kn_block_var_range, (void *)c->b, &l, &h)) {
        *lo = l > *lo ? l : *lo;
        *hi = h < *hi ? h : *hi;
    }
}

static bool in_bounds(kn_ck *c, const kn_bnode *n, const kn_region *r)
{
    const kn_tensor *t = &c->b->tensors->tensors[r->buffer];
    for (int d = 0; d < t->rank && !r->clipped; d++) {
        int64_t lo, hi;
        span(c, n->block, r->lo[d], &lo, &hi);
        if (lo < 0 || hi > t->shape[d] - r->extent[d]) return kn_ck_fail(c, KN_FAULT_BOUNDS, n,
            "index %d of %s reaches from %lld to %lld of %lld", d, t->name, (long long)lo, (long long)(hi + r->extent[d] - 1),
            (long long)t->shape[d]);
    }
    return true;
}

/* The region holds the element at idx. */
static bool holds(const kn_ck *c, const kn_block *k, const kn_region *r, kn_expr *const *idx)
{
    const kn_tensor *t = &c->b->tensors->tensors[r->buffer];
    for (int d = 0; d < t->rank; d++) {
        int64_t lo, hi;
        if (kn_expr_equal(idx[d], r->lo[d])) continue;
        if (r->lo[d]->op == KN_OP_CONST_I && r->lo[d]->u.i == 0 && r->extent[d] == t->shape[d]) continue;
        kn_expr *off = kn_bin(c->b->a, KN_OP_SUB, idx[d], r->lo[d]);
        off = off ? kn_simplify(c->b->a, off, kn_block_iter_range, (void *)k) : NULL;
        if (!off || !kn_expr_range(off, kn_block_iter_range, (void *)k, &lo, &hi) || lo < 0 || hi >= r->extent[d]) return false;
    }
    return true;
}

typedef struct walk { kn_ck *c; const kn_bnode *n; bool used[KN_BLOCK_REGIONS]; } walk;

static bool loads(walk *w, const kn_expr *e, bool guarded)
{
    const kn_block *k = w->n->block;
    for (int i = 0; i < e->nargs; i++)
        if (!loads(w, e->args[i], guarded || (e->op == KN_OP_SELECT && i > 0))) return false;
    if (e->op != KN_OP_LOAD) return true;
    bool found = false;
    for (int i = 0; i < k->nreads; i++) {
        const kn_region *r = &k->reads[i];
        if (r->buffer != e->u.tensor || !holds(w->c, k, r, e->args)) continue;
        found = w->used[i] = true;
        if (r->clipped && !e->padded && !guarded) {
            kn_region open = *r;
            open.clipped = false;
            if (!in_bounds(w->c, w->n, &open)) return false;
        }
    }
    return found ? true : kn_ck_fail(w->c, KN_FAULT_REGION, w->n, "it reads %s where no region says so", kn_ck_buffer(w->c, e->u.tensor));
}

static bool reduction(kn_ck *c, const kn_bnode *n)
{
    const kn_block *k = n->block;
    bool reduces = false;
    for (int i = 0; i < k->s.naxes; i++) {
        if (!k->s.axes[i].reduce) continue;
        reduces = true;
        for (int w = 0; w < k->nwrites; w++)
            for (int d = 0; d < c->b->tensors->tensors[k->writes[w].buffer].rank; d++)
                if (kn_ck_uses(k->writes[w].lo[d], KN_OP_AXIS, i)) return kn_ck_fail(c, KN_FAULT_REDUCE_INDEX, n, "iterator %s",
                                                                                    k->s.axes[i].name);
    }
    bool sums = k->call ? reduces : k->s.red != KN_RED_NONE;
    if (reduces && !sums) return kn_ck_fail(c, KN_FAULT_REDUCE_BODY, n, "reduce iterators, but the statement overwrites");
    if (sums && !k->init) return kn_ck_fail(c, KN_FAULT_INIT, n, "no init");
    if (!sums && k->init) return kn_ck_fail(c, KN_FAULT_STRAY_INIT, n, "init without a reduction");
    for (int i = 0; i < k->s.naxes && k->init; i++)
        if (kn_ck_uses(k->init, KN_OP_AXIS, i) && k->s.axes[i].reduce) return kn_ck_fail(c, KN_FAULT_REDUCE_BODY, n, "init depends on %s",
                                                                                       k->s.axes[i].name);
    return true;
}

static bool constant_in_registers(kn_ck *c, const kn_bnode *n, const kn_region *r)
{
    if (c->b->scope[r->buffer] != KN_REGISTER) return true;
    for (int d = 0; d < c->b->tensors->tensors[r->buffer].rank; d++) {
        const kn_expr *e = kn_block_bound(c->b, n->block, r->lo[d]);
        for (const kn_bnode *p = n->parent; e && p; p = p->parent)
            if (p->kind == KN_BN_LOOP && p->extent > 1 && !kn_is_register(p->loop) && kn_ck_uses(e, KN_OP_VAR, p->var))
                return kn_ck_fail(c, KN_FAULT_REGISTER, n, "%s is indexed by loop %s", kn_ck_buffer(c, r->buffer), p->name);
    }
    return true;
}

bool kn_ck_body(kn_ck *c, const kn_bnode *n)
{
    const kn_block *k = n->block;
    walk w = { .c = c, .n = n };
    if (!reduction(c, n)) return false;
    for (int i = 0; i < k->nreads; i++)
        for (int o = 0; o < k->nwrites; o++)
            if (k->reads[i].buffer == k->writes[o].buffer) return kn_ck_fail(c, KN_FAULT_ALIAS, n, "%s", kn_ck_buffer(c,
                k->reads[i].buffer));
    for (int i = 0; i < k->nreads; i++)
        if (!in_bounds(c, n, &k->reads[i]) || !constant_in_registers(c, n, &k->reads[i])) return false;
    for (int i = 0; i < k->nwrites; i++) {
        kn_region strict = k->writes[i];
        strict.clipped = false;
        if (!in_bounds(c, n, &strict) || !constant_in_registers(c, n, &strict)) return false;
    }
    if (k->call) return true;
    if (k->nwrites != 1 || k->writes[0].buffer != k->s.out || !holds(c, k, &k->writes[0], k->s.lhs))
        return kn_ck_fail(c, KN_FAULT_REGION, n, "it writes %s where no region says so", kn_ck_buffer(c, k->s.out));
    if (!loads(&w, k->s.body, false)) return false;
    for (int i = 0; i < k->nreads; i++)
        if (!w.used[i]) return kn_ck_fail(c, KN_FAULT_UNUSED_REGION, n, "%s", kn_ck_buffer(c, k->reads[i].buffer));
    return true;
}
