/* The text of one block: its iterators, its condition, its regions, and its statement. */
#include "block/parse.h"
#include <string.h>

/* Iterators: NAME: spatial|reduce EXTENT = BINDING, ... */
static bool iterators(kn_bp *p, const kn_bnode *parent, kn_block *k)
{
    if (!kn_bp_want(p, "(")) return false;
    if (kn_bp_mark(p, ")")) return true;
    do {
        int n = k->s.naxes;
        if (n == KILN_MAX_AXES) return kn_bp_fail(p, "more than %d iterators", KILN_MAX_AXES);
        kn_axis *x = &k->s.axes[n];
        if (!(x->name = kn_bp_name(p, false, "an iterator"))) return false;
        if (x->name[0] < 'A' || x->name[0] > 'Z' || strlen(x->name) >= KILN_MAX_NAME_BYTES)
            return kn_bp_fail(p, "iterators start in upper case and have less than %d letters", KILN_MAX_NAME_BYTES);
        if (!kn_bp_want(p, ":")) return false;
        x->reduce = kn_bp_word(p, "reduce");
        if (!x->reduce && !kn_bp_want(p, "spatial")) return false;
        k->s.nspatial += !x->reduce;
        if (!kn_bp_int(p, &x->extent) || !kn_bp_want(p, "=") || !(k->bind[n] = kn_bp_binding(p, parent))) return false;
        k->s.naxes++;
    } while (kn_bp_mark(p, ","));
    return kn_bp_want(p, ")");
}

static bool buffer(kn_bp *p, int *out)
{
    const char *start = p->at, *name = kn_bp_name(p, false, "a buffer");
    if (!name) return false;
    for (*out = 0; *out < p->b->tensors->ntensors; ++*out)
        if (!strcmp(p->b->tensors->tensors[*out].name, name)) return true;
    p->at = start;
    kn_bp_fail(p, "%s: no buffer '%s'", kn_fault_word(KN_FAULT_NAME), name);
    p->d->status = KILN_TRACE;
    return false;
}

static bool index_expr(kn_bp *p, const kn_block *k, const char *stops, kn_expr **out)
{
    if (!(*out = kn_bp_expr(p, &k->s, stops))) return false;
    if (kn_dtype_class((*out)->dtype) == 'f' || (*out)->dtype == KN_BOOL) return kn_bp_fail(p, "an index that is no whole number");
    *out = kn_cast(p->a, KN_I64, *out);
    return *out != NULL;
}

static bool region(kn_bp *p, const kn_block *k, kn_region *r)
{
    r->line = p->line;
    r->col = (int)(p->at - p->line_start) + 1;
    if (!buffer(p, &r->buffer) || !kn_bp_want(p, "[")) return false;
    const kn_tensor *t = &p->b->tensors->tensors[r->buffer];
    for (int i = 0; i < t->rank; i++) {
        kn_expr *hi, *n;
        if (i && !kn_bp_want(p, ",")) return false;
        if (!index_expr(p, k, ",:]", &r->lo[i])) return false;
        r->extent[i] = 1;
        if (!kn_bp_mark(p, ":")) continue;
        if (!index_expr(p, k, ",]", &hi)) return false;
        n = kn_bin(p->a, KN_OP_SUB, hi, r->lo[i]);
        n = n ? kn_simplify(p->a, n, kn_block_iter_range, (void *)k) : NULL;
        if (!n || n->op != KN_OP_CONST_I || n->u.i < 1 || n->u.i > KILN_MAX_EXTENT) return kn_bp_fail(p,
            "a range must have a fixed, positive length");
        r->extent[i] = n->u.i;
    }
    if (!kn_bp_want(p, "]")) return false;
    r->clipped = kn_bp_word(p, "clipped");
    return true;
}

static bool regions(kn_bp *p, const kn_block *k, kn_region *r, int cap, int *n)
{
    do {
        if (*n == cap) return kn_bp_fail(p, "more than %d regions", cap);
        if (!region(p, k, &r[(*n)++])) return false;
    } while (kn_bp_mark(p, ","));
    return kn_bp_end(p);
}

/* T[...] op body */
static bool statement(kn_bp *p, kn_block *k)
{
    static const struct { const char *mark; enum kn_reduce red; } ops[] = {
        { "+=", KN_RED_SUM }, { "*=", KN_RED_PROD }, { "max=", KN_RED_MAX }, { "min=", KN_RED_MIN },
        { "&=", KN_RED_ALL }, { "|=", KN_RED_ANY }, { "=", KN_RED_NONE },
    };
    kn_region w = { 0 };
    size_t i = 0;
    if (!region(p, k, &w)) return false;
    for (int d = 0; d < KILN_MAX_RANK; d++) {
        if (w.extent[d] > 1 || w.clipped) return kn_bp_fail(p, "a statement writes one element");
        k->s.lhs[d] = w.lo[d];
    }
    k->s.out = w.buffer;
    while (i < sizeof ops / sizeof *ops && !kn_bp_mark(p, ops[i].mark)) i++;
    if (i == sizeof ops / sizeof *ops) return kn_bp_fail(p, "expected =, +=, *=, max=, min=, &= or |=");
    k->s.red = ops[i].red;
    return (k->s.body = kn_bp_expr(p, &k->s, "")) != NULL;
}

static bool body(kn_bp *p, kn_block *k)
{
    if (!kn_bp_word(p, "call")) return statement(p, k);
    return (k->call = kn_bp_name(p, false, "an instruction")) && kn_bp_end(p);
}

/* The lines of a block, each at most once and in their order; the body is the last one. */
static bool lines(kn_bp *p, kn_block *k, int depth)
{
    static const char *const order[] = { "where", "reads", "writes", "init" };
    for (int next = 0;;) {
        const char *nl = memchr(p->line_end, '\n', (size_t)(p->end - p->line_end));
        if (!kn_bp_line(p, nl ? nl + 1 : p->end)) return false;
        if (p->done || p->depth != depth + 1) return kn_bp_fail(p, "block '%s' has no statement", k->name);
        int i = next;
        while (i < 4 && !kn_bp_word(p, order[i])) i++;
        next = i + 1;
        bool ok = true;
        if (i == 0) ok = (k->where = kn_bp_expr(p, &k->s, "")) && (k->where->dtype == KN_BOOL || kn_bp_fail(p, "where wants a condition"));
        else if (i == 1) ok = regions(p, k, k->reads, KN_BLOCK_REGIONS, &k->nreads);
        else if (i == 2) ok = regions(p, k, k->writes, 4, &k->nwrites);
        else if (i == 3) ok = (k->init = kn_bp_expr(p, &k->s, "")) != NULL;
        else return body(p, k);
        if (!ok) return false;
    }
}

bool kn_bp_block(kn_bp *p, kn_bnode *parent, int depth)
{
    kn_block *k = kn_new(p->a, kn_block);
    kn_bnode *n = k ? kn_blocks_node(p->b, parent, KN_BN_BLOCK) : NULL;
    if (!n) return kn_fail(p->d, KILN_MEMORY, "out of memory"), false;
    n->block = k;
    n->line = p->line;
    n->col = depth * 2 + 1;
    if (!(k->name = kn_bp_name(p, false, "a block")) || !iterators(p, parent, k)) return false;
    k->warp = kn_bp_word(p, "warp");
    return kn_bp_end(p) && lines(p, k, depth);
}
