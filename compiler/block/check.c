/* What must hold of a program of blocks: names, buffers, and the order of the other checks. */
#include "block/check.h"
#include <stdio.h>
#include <string.h>

bool kn_ck_fail(kn_ck *c, enum kn_fault f, const kn_bnode *n, const char *fmt, ...)
{
    char text[400], where[160] = "";
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n && n->kind == KN_BN_BLOCK) snprintf(where, sizeof where, "block %.60s, ", n->block->name);
    if (n && n->kind == KN_BN_LOOP) snprintf(where, sizeof where, "loop %.60s, ", n->name);
    kn_fail(c->d, KILN_TRACE, "%s: %s%s", kn_fault_word(f), where, text);
    if (n) {
        c->d->line = n->line;
        c->d->col = n->col;
    }
    return false;
}

const char *kn_ck_buffer(const kn_ck *c, int buffer) { return c->b->tensors->tensors[buffer].name; }

bool kn_ck_uses(const kn_expr *e, enum kn_op op, int leaf)
{
    bool yes = e->op == op && (op == KN_OP_AXIS ? e->u.axis : e->u.var) == leaf;
    for (int i = 0; i < e->nargs && !yes; i++) yes = kn_ck_uses(e->args[i], op, leaf);
    return yes;
}

bool kn_ck_bound_by(const kn_block *k, int var, bool reduce)
{
    for (int i = 0; i < k->s.naxes; i++)
        if (k->s.axes[i].reduce == reduce && kn_ck_uses(k->bind[i], KN_OP_VAR, var)) return true;
    return false;
}

static int64_t limit_in(const kn_expr *e, int iter, int64_t most)
{
    if (e->op == KN_OP_AND) return limit_in(e->args[1], iter, limit_in(e->args[0], iter, most));
    bool here = (e->op == KN_OP_LT || e->op == KN_OP_LE) && e->args[0]->op == KN_OP_AXIS && e->args[0]->u.axis == iter &&
                e->args[1]->op == KN_OP_CONST_I;
    int64_t n = here ? e->args[1]->u.i + (e->op == KN_OP_LE) : most;
    return n < most ? n : most;
}

int64_t kn_ck_limit(const kn_block *k, int iter)
{
    return k->where ? limit_in(k->where, iter, INT64_MAX) : INT64_MAX;
}

const kn_bnode *kn_ck_common(const kn_bnode *x, const kn_bnode *y)
{
    for (const kn_bnode *p = x; p; p = p->parent)
        for (const kn_bnode *q = y; q; q = q->parent)
            if (p == q) return p;
    return NULL;
}

static bool buffers(kn_ck *c)
{
    const kn_program *p = c->b->tensors;
    for (int i = 0; i < p->ntensors; i++) {
        const kn_tensor *t = &p->tensors[i];
        enum kn_scope s = c->b->scope[i];
        int64_t align = c->b->align[i];
        for (int k = 0; k < i; k++)
            if (!strcmp(t->name, p->tensors[k].name)) return kn_ck_fail(c, KN_FAULT_DUPLICATE, NULL, "buffer %s", t->name);
        if ((c->hw->gpu && s == KN_SCRATCH) || (!c->hw->gpu && (s == KN_SHARED || s == KN_FRAGMENTS)))
            return kn_ck_fail(c, KN_FAULT_KIND, NULL, "buffer %s: a %s has no %s memory", t->name, c->hw->gpu ? "GPU" : "CPU",
                              c->hw->gpu ? "scratch" : s == KN_SHARED ? "shared" : "warp's");
        if (s != KN_GLOBAL && t->role != KN_TEMP) return kn_ck_fail(c, KN_FAULT_KIND, NULL, "buffer %s: an argument is global", t->name);
        if (!align) continue;
        int64_t row = (t->rank ? t->shape[t->rank - 1] : 1) + c->b->pad[i];
        if (align & (align - 1) || row * kn_dtype_bytes(t->dtype) % align)
            return kn_ck_fail(c, KN_FAULT_ALIGN, NULL, "buffer %s: rows of %lld bytes do not all start at %lld", t->name,
                              (long long)(row * kn_dtype_bytes(t->dtype)), (long long)align);
    }
    return true;
}

static bool collect(kn_ck *c, const kn_bnode *n)
{
    for (; n; n = n->next) {
        if (n->kind == KN_BN_LOOP && !kn_ck_loops(c, n)) return false;
        if (n->kind != KN_BN_BLOCK) {
            if (!collect(c, n->child)) return false;
            continue;
        }
        if (c->nblocks == (int)(sizeof c->blocks / sizeof *c->blocks)) return kn_ck_fail(c, KN_FAULT_LIMIT, n, "more than 512 blocks");
        c->blocks[c->nblocks++] = n;
        for (int i = 0; i < n->block->nwrites; i++) {
            int out = n->block->writes[i].buffer;
            if (c->b->tensors->tensors[out].role == KN_INPUT) return kn_ck_fail(c, KN_FAULT_INPUT, n, "it writes %s", kn_ck_buffer(c, out));
            if (c->writer[out]) return kn_ck_fail(c, KN_FAULT_WRITERS, n, "%s is written by block %s too", kn_ck_buffer(c, out),
                                                  c->writer[out]->block->name);
            c->writer[out] = n;
        }
    }
    return true;
}

/* Shared buffers of one launch together, with their padding. */
static bool shared_size(kn_ck *c)
{
    for (const kn_bnode *nest = c->b->nests; nest; nest = nest->next) {
        int64_t sum = 0;
        for (int i = 0; i < c->b->tensors->ntensors; i++) {
            const kn_bnode *w = c->writer[i];
            while (w && w->parent) w = w->parent;
            if (c->b->scope[i] != KN_SHARED || w != nest) continue;
            const kn_tensor *t = &c->b->tensors->tensors[i];
            int64_t n = kn_dtype_bytes(t->dtype);
            for (int d = 0; d < t->rank; d++)
                if (!kn_mul_fits(n, t->shape[d] + (d == t->rank - 1 ? c->b->pad[i] : 0), &n)) n = KILN_MAX_ELEMENTS;
            sum += n;
            if (sum > c->hw->max_shared_per_block)
                return kn_ck_fail(c, KN_FAULT_SHARED_SIZE, c->writer[i], "%lld bytes, a block has %lld", (long long)sum,
                                  (long long)c->hw->max_shared_per_block);
        }
    }
    return true;
}

static bool outputs(kn_ck *c)
{
    for (int i = 0; i < c->b->tensors->ntensors; i++)
        if (c->b->tensors->tensors[i].role == KN_OUTPUT && !c->writer[i])
            return kn_ck_fail(c, KN_FAULT_UNWRITTEN, NULL, "buffer %s", kn_ck_buffer(c, i));
    return true;
}

kiln_status kn_blocks_check(const kn_blocks *b, const kn_hw *hw, kiln_diag *d)
{
    static bool (*const each[])(kn_ck *, const kn_bnode *) = { kn_ck_bindings, kn_ck_body, kn_ck_threads, kn_ck_reads, kn_ck_writes };
    kn_ck *c = kn_new(b->a, kn_ck);
    *d = (kiln_diag){ 0 };
    if (!c) return kn_fail(d, KILN_MEMORY, "out of memory");
    c->b = b;
    c->hw = hw;
    c->d = d;
    bool ok = buffers(c) && collect(c, b->nests) && shared_size(c) && outputs(c);
    for (size_t e = 0; e < sizeof each / sizeof *each; e++)
        for (int i = 0; i < c->nblocks && ok; i++) ok = each[e](c, c->blocks[i]);
    if (kn_arena_dry(b->a)) return kn_fail(d, KILN_MEMORY, "out of memory while checking blocks");
    return ok ? KILN_OK : d->status;
}
