/* Making block programs, and the ranges of their variables. */
#include "block/block.h"
#include <string.h>

static const char *const words[] = {
#define X(name, word, meaning) word,
#include "block/faults.def"
#undef X
};
const char *kn_fault_word(enum kn_fault f) { return words[f]; }

kn_blocks *kn_blocks_new(kiln_arena *a)
{
    kn_blocks *b = kn_new(a, kn_blocks);
    if (!b || !(b->tensors = kn_program_new(a))) return NULL;
    b->a = a;
    return b;
}

int kn_blocks_buffer(kn_blocks *b, const char *name, enum kn_dtype t, enum kn_role role, enum kn_scope scope, int rank, const int64_t *shape)
{
    int i = kn_add_tensor(b->tensors, name, t, role, rank, shape);
    if (i >= 0) b->scope[i] = scope;
    return i;
}

kn_bnode *kn_blocks_node(kn_blocks *b, kn_bnode *parent, enum kn_bnode_kind kind)
{
    kn_bnode *n = kn_new(b->a, kn_bnode), **at = parent ? &parent->child : &b->nests;
    if (!n) return NULL;
    n->kind = kind;
    n->parent = parent;
    n->var = -1;
    while (*at) at = &(*at)->next;
    return *at = n;
}

static const kn_bnode *launch_of(const kn_bnode *n)
{
    while (n->parent) n = n->parent;
    return n;
}

kn_bnode *kn_blocks_loop(kn_blocks *b, kn_bnode *parent, const char *name, int64_t extent, enum kn_loop_kind kind)
{
    kn_bnode *n = kn_blocks_node(b, parent, KN_BN_LOOP);
    if (!n) return NULL;
    n->name = name;
    n->extent = extent;
    n->loop = kind;
    for (int i = 0; i < b->nvars && kind == KN_THREAD; i++) {
        const kn_bnode *o = b->vars[i];
        if (o->loop != KN_THREAD || strcmp(o->name, name) || launch_of(o) != launch_of(n)) continue;
        n->var = i;
        return n;
    }
    if (b->nvars == KN_BLOCK_VARS) return NULL;
    n->var = b->nvars;
    b->vars[b->nvars++] = n;
    return n;
}

kn_expr *kn_var_ref(kiln_arena *a, int var)
{
    kn_expr *e = kn_axis_ref(a, 0);
    kn_expr *v = e ? kn_new(a, kn_expr) : NULL;
    if (!v) return NULL;
    *v = *e;
    v->op = KN_OP_VAR;
    v->u.var = var;
    return v;
}

void kn_block_iter_range(void *user, const kn_expr *leaf, int64_t *lo, int64_t *hi)
{
    const kn_block *k = user;
    *lo = 0;
    *hi = leaf->op == KN_OP_AXIS && leaf->u.axis < k->s.naxes ? k->s.axes[leaf->u.axis].extent - 1 : INT32_MAX;
}

void kn_block_var_range(void *user, const kn_expr *leaf, int64_t *lo, int64_t *hi)
{
    const kn_blocks *b = user;
    *lo = 0;
    *hi = leaf->op == KN_OP_VAR && leaf->u.var < b->nvars ? b->vars[leaf->u.var]->extent - 1 : INT32_MAX;
}

static kn_expr *bind_axis(void *user, kiln_arena *a, kn_expr *e)
{
    const kn_block *k = user;
    (void)a;
    return e->op == KN_OP_AXIS ? k->bind[e->u.axis] : e;
}

kn_expr *kn_block_bound_raw(const kn_blocks *b, const kn_block *k, const kn_expr *e)
{
    return kn_rewrite(b->a, (kn_expr *)e, bind_axis, (void *)k);
}

kn_expr *kn_block_bound(const kn_blocks *b, const kn_block *k, const kn_expr *e)
{
    kn_expr *x = kn_block_bound_raw(b, k, e);
    return x ? kn_simplify(b->a, x, kn_block_var_range, (void *)b) : NULL;
}
