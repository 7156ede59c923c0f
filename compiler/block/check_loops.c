/* Loops by themselves, and what threads, lanes and reductions ask of the loops around a block. */
#include "block/check.h"
#include <string.h>

static bool wrong_kind(const kn_ck *c, enum kn_loop_kind k)
{
    return c->hw->gpu ? k == KN_PARALLEL : k == KN_GRID || k == KN_THREAD || k == KN_VTHREAD;
}

static bool only_blocks(const kn_bnode *n)
{
    for (; n; n = n->next)
        if (n->kind != KN_BN_BLOCK) return false;
    return true;
}

/* The one block under a chain of loops; NULL: there is none, or something else as well. */
static const kn_bnode *sole_block(const kn_bnode *n)
{
    while (n && n->kind == KN_BN_LOOP) n = n->child && !n->child->next ? n->child : NULL;
    return n && n->kind == KN_BN_BLOCK ? n : NULL;
}

/* Every loop from n inward is one of the instruction's, of its kind and extent; loops of the instruction may be left over. */
static bool tile(kn_ck *c, const kn_bnode *n)
{
    int64_t extent[KN_INTRIN_LOOPS];
    const kn_intrin *it = kn_intrin_named(c->hw, n->by, extent);
    const kn_bnode *block = sole_block(n);
    uint32_t taken = 0;
    if (!it) return kn_ck_fail(c, KN_FAULT_INSTRUCTION, n, "'%s'", n->by);
    if (!block) return kn_ck_fail(c, KN_FAULT_TILE, n, "'%s' computes one block", n->by);
    if (block->block->s.red != KN_RED_NONE && block->block->s.red != it->red)
        return kn_ck_fail(c, KN_FAULT_TILE, n, "'%s' does not reduce as block %s does", n->by, block->block->name);
    for (; n != block; n = n->child) {
        bool reduces = kn_ck_bound_by(block->block, n->var, true);
        int l = 0;
        while (l < it->nloops && (taken >> l & 1 || extent[l] != n->extent || it->s->axes[l].reduce != reduces)) l++;
        if (n->loop != KN_SERIAL || n->rfactor) return kn_ck_fail(c, KN_FAULT_TILE, n, "it is not serial");
        if (n->extent > 1 && l == it->nloops)
            return kn_ck_fail(c, KN_FAULT_TILE, n, "%s, %lld iterations: no loop of '%s'", reduces ? "reduce" : "spatial",
                              (long long)n->extent, it->name);
        if (n->extent > 1) taken |= 1u << l;
    }
    return true;
}

bool kn_ck_loops(kn_ck *c, const kn_bnode *n)
{
    if (n->by && !tile(c, n)) return false;
    int64_t threads = 1, written = 1;
    if (n->extent < 1 || n->extent > KILN_MAX_EXTENT) return kn_ck_fail(c, KN_FAULT_EXTENT, n, "extent %lld", (long long)n->extent);
    if (wrong_kind(c, n->loop)) return kn_ck_fail(c, KN_FAULT_KIND, n, "not on a %s", c->hw->gpu ? "GPU" : "CPU");
    if (n->loop == KN_THREAD && n->extent != c->b->vars[n->var]->extent)
        return kn_ck_fail(c, KN_FAULT_THREAD_EXTENT, n, "%lld here, %lld before", (long long)n->extent,
                          (long long)c->b->vars[n->var]->extent);
    bool outer = n->loop == KN_PARALLEL || n->loop == KN_GRID;
    for (const kn_bnode *p = n; p; p = p->parent) {
        if (p->kind != KN_BN_LOOP) continue;
        if (p != n && !strcmp(p->name, n->name)) return kn_ck_fail(c, KN_FAULT_DUPLICATE, n, "it stands inside a loop of that name");
        if (p != n && outer && p->loop != n->loop) return kn_ck_fail(c, KN_FAULT_NESTING, n, "it stands inside %s", p->name);
        if (p->loop == KN_THREAD && (!kn_mul_fits(threads, p->extent, &threads) || threads > c->hw->max_threads_per_block))
            return kn_ck_fail(c, KN_FAULT_THREADS, n, "a block has at most %d", c->hw->max_threads_per_block);
        if (kn_is_register(p->loop) && (!kn_mul_fits(written, p->extent, &written) || written > 4096))
            return kn_ck_fail(c, KN_FAULT_LIMIT, n, "more than 4096 iterations would be written out");
    }
    if (n->loop != KN_VECTOR) return true;
    if (n->extent < 2 || n->extent > 64 || n->extent & (n->extent - 1))
        return kn_ck_fail(c, KN_FAULT_VECTOR, n, "%lld lanes; 2, 4, ... 64", (long long)n->extent);
    return only_blocks(n->child) ? true : kn_ck_fail(c, KN_FAULT_VECTOR, n, "it is not innermost");
}

/* A warp-wide block wants a thread loop of a whole warp that it leaves to the lanes. */
static bool warp(kn_ck *c, const kn_bnode *n)
{
    for (const kn_bnode *p = n->parent; p; p = p->parent) {
        if (p->kind != KN_BN_LOOP || p->loop != KN_THREAD) continue;
        bool free = !kn_ck_bound_by(n->block, p->var, false) && !kn_ck_bound_by(n->block, p->var, true);
        if (c->hw->gpu && free && p->extent == c->hw->lanes) return true;
        break;
    }
    return kn_ck_fail(c, KN_FAULT_WARP, n, "its innermost thread loop is no free warp of %d lanes", c->hw->lanes);
}

static bool reduced_below(const kn_ck *c, const kn_bnode *p)
{
    for (int i = 0; i < c->nblocks; i++)
        for (const kn_bnode *q = c->blocks[i]->parent; q; q = q->parent)
            if (q == p && kn_ck_bound_by(c->blocks[i]->block, p->var, true)) return true;
    return false;
}

static bool reduce_loop(kn_ck *c, const kn_bnode *n, const kn_bnode *p)
{
    bool reduces = kn_ck_bound_by(n->block, p->var, true);
    if (p->rfactor && p->extent > 1 && !reduces && !reduced_below(c, p))
        return kn_ck_fail(c, KN_FAULT_RFACTOR, n, "loop %s reduces nothing", p->name);
    if (p->rfactor && p->loop != KN_THREAD && !kn_is_register(p->loop))
        return kn_ck_fail(c, KN_FAULT_RFACTOR, n, "loop %s is neither unrolled, a vector nor threads", p->name);
    if (reduces && (p->loop == KN_PARALLEL || p->loop == KN_GRID || p->loop == KN_VTHREAD ||
                    ((p->loop == KN_THREAD || p->loop == KN_VECTOR) && !p->rfactor)))
        return kn_ck_fail(c, KN_FAULT_REDUCE_LOOP, n, "loop %s", p->name);
    return true;
}

/* A parallel loop that no iterator uses: every task writes the same elements, unless each has a buffer of its own. */
static bool race(kn_ck *c, const kn_bnode *n, const kn_bnode *p)
{
    const kn_block *k = n->block;
    bool tasks = p->loop == KN_PARALLEL || p->loop == KN_GRID, bound = kn_ck_bound_by(k, p->var, false) || kn_ck_bound_by(k, p->var, true);
    if ((!tasks && p->loop != KN_THREAD) || bound || p->extent == 1 || k->warp) return true;
    for (int i = 0; i < k->nwrites; i++) {
        enum kn_scope s = c->b->scope[k->writes[i].buffer];
        if (s == KN_GLOBAL || (s == KN_SHARED && !tasks)) return kn_ck_fail(c, KN_FAULT_RACE, n, "loop %s does not decide what is written",
                                                                           p->name);
    }
    return true;
}

static bool varies(const kn_ck *c, const kn_expr *e)
{
    bool yes = e->op == KN_OP_VAR && c->b->vars[e->u.var]->loop == KN_THREAD;
    for (int i = 0; i < e->nargs && !yes; i++) yes = varies(c, e->args[i]);
    return yes;
}

bool kn_ck_threads(kn_ck *c, const kn_bnode *n)
{
    const kn_block *k = n->block;
    bool fills = false;
    if (k->warp && !warp(c, n)) return false;
    for (int i = 0; i < k->nwrites; i++) fills |= c->b->scope[k->writes[i].buffer] == KN_SHARED;
    for (const kn_bnode *p = n->parent; p; p = p->parent) {
        if (p->kind == KN_BN_IF && (fills || k->warp) && (varies(c, p->lhs) || varies(c, p->rhs)))
            return kn_ck_fail(c, k->warp ? KN_FAULT_WARP : KN_FAULT_DIVERGENT, n, "it stands under a condition on threads");
        if (p->kind == KN_BN_LOOP && (!reduce_loop(c, n, p) || !race(c, n, p))) return false;
    }
    return true;
}
