/* Bindings: quasi-affine, independent, and reaching every value of every iterator. */
#include "block/check.h"
#include <string.h>

static bool under_if(const kn_bnode *n)
{
    for (; n; n = n->parent)
        if (n->kind == KN_BN_IF) return true;
    return false;
}

static bool cover(kn_ck *c, const kn_bnode *n, kn_im *m, kn_im_sum *sums, int i)
{
    const kn_block *k = n->block;
    const kn_axis *x = &k->s.axes[i];
    int64_t reach, full = 1;
    int how = kn_im_dense(&sums[i], &reach);
    if (how < 0) return kn_ck_fail(c, KN_FAULT_INDEPENDENT, n, "iterator %s: parts of its binding reach the same values", x->name);
    if (!how || sums[i].constant) return kn_ck_fail(c, KN_FAULT_COVER, n, "iterator %s: its binding leaves values out", x->name);
    for (int t = 0; t < sums[i].n; t++) {
        int64_t f = kn_im_full(m, sums, k->s.naxes, &sums[i].t[t]);
        full *= t == sums[i].n - 1 || f == sums[i].t[t].extent ? f : 0;
    }
    int64_t limit = kn_ck_limit(k, i);
    if (full < x->extent) return kn_ck_fail(c, KN_FAULT_COVER, n, "iterator %s: the loops reach %lld of its %lld values", x->name,
                                            (long long)full, (long long)x->extent);
    if (reach > x->extent && limit > x->extent) return kn_ck_fail(c, KN_FAULT_PREDICATE, n, "iterator %s: the loops run to %lld, past %lld",
                                                                 x->name, (long long)reach, (long long)x->extent);
    if (limit < x->extent) return kn_ck_fail(c, KN_FAULT_COVER, n, "iterator %s: the condition keeps only %lld of %lld", x->name,
                                             (long long)limit, (long long)x->extent);
    return true;
}

/* A loop that no iterator uses repeats the block: harmless around a whole reduction, wrong inside one. */
static bool repeated(kn_ck *c, const kn_bnode *n)
{
    const kn_block *k = n->block;
    const kn_bnode *unused = NULL;
    for (const kn_bnode *p = n->parent; p; p = p->parent) {
        if (p->kind != KN_BN_LOOP || p->extent == 1) continue;
        if (!unused && !kn_ck_bound_by(k, p->var, true) && !kn_ck_bound_by(k, p->var, false)) unused = p;
        if (unused && kn_ck_bound_by(k, p->var, true) && !k->warp)
            return kn_ck_fail(c, KN_FAULT_REPEATED, n, "loop %s inside %s", unused->name, p->name);
    }
    if (unused && k->s.red != KN_RED_NONE && !k->warp) {
        bool reduces = false;
        for (int i = 0; i < k->s.naxes; i++) reduces |= k->s.axes[i].reduce;
        if (!reduces) return kn_ck_fail(c, KN_FAULT_REPEATED, n, "loop %s", unused->name);
    }
    return true;
}

bool kn_ck_bindings(kn_ck *c, const kn_bnode *n)
{
    const kn_block *k = n->block;
    kn_im *m = kn_new(c->b->a, kn_im);
    kn_im_sum *sums = kn_array(c->b->a, kn_im_sum, KILN_MAX_AXES);
    if (!m || !sums) return kn_fail(c->d, KILN_MEMORY, "out of memory") == KILN_OK;
    m->b = c->b;
    for (int i = 0; i < k->s.naxes; i++) {
        const kn_axis *x = &k->s.axes[i];
        for (int o = 0; o < i; o++)
            if (!strcmp(x->name, k->s.axes[o].name)) return kn_ck_fail(c, KN_FAULT_DUPLICATE, n, "iterator %s", x->name);
        if (x->extent < 1 || x->extent > KILN_MAX_EXTENT) return kn_ck_fail(c, KN_FAULT_EXTENT, n, "iterator %s", x->name);
        if (!kn_im_sum_of(m, k->bind[i], &sums[i])) return kn_ck_fail(c, KN_FAULT_AFFINE, n, "iterator %s", x->name);
    }
    int line;
    if (!kn_im_independent(m, sums, k->s.naxes, &line)) {
        int var = m->line[line].var;
        return kn_ck_fail(c, KN_FAULT_INDEPENDENT, n, "bindings share a part of %s", var >= 0 ? c->b->vars[var]->name : "a sum of loops");
    }
    for (int i = 0; i < k->s.naxes; i++)
        if (!cover(c, n, m, sums, i)) return false;
    if (under_if(n) && k->nwrites && c->b->scope[k->writes[0].buffer] == KN_GLOBAL)
        return kn_ck_fail(c, KN_FAULT_COVER, n, "under a condition, it may leave out a part of %s", kn_ck_buffer(c, k->writes[0].buffer));
    return repeated(c, n);
}
