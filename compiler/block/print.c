/* Blocks as text. Expressions over iterators are te's own; bindings are printed here, because loops have names that te has not. */
#include "block/block.h"

static void indent(kn_buf *o, int n)
{
    while (n-- > 0) kn_put(o, "  ");
}

static int power(const kn_expr *e)
{
    switch (e->op) {
    case KN_OP_ADD:
    case KN_OP_SUB: return 4;
    case KN_OP_MUL:
    case KN_OP_FLOORDIV:
    case KN_OP_MOD: return 5;
    default: return e->op == KN_OP_CONST_I && e->u.i < 0 ? 4 : 8;
    }
}

static const char *spelling(enum kn_op op)
{
    switch (op) {
    case KN_OP_ADD: return " + ";
    case KN_OP_SUB: return " - ";
    case KN_OP_MUL: return "*";
    case KN_OP_FLOORDIV: return "//";
    default: return "%";
    }
}

/* Over the loops: sums, products, quotients, remainders, numbers. */
static void binding(kn_buf *o, const kn_blocks *b, const kn_expr *e, int least)
{
    int p = power(e);
    if (p < least) kn_put(o, "(");
    if (e->op == KN_OP_CONST_I) kn_putf(o, "%lld", (long long)e->u.i);
    else if (e->op == KN_OP_VAR) kn_put(o, b->vars[e->u.var]->name);
    else {
        binding(o, b, e->args[0], p);
        kn_put(o, spelling(e->op));
        binding(o, b, e->args[1], p + 1);
    }
    if (p < least) kn_put(o, ")");
}

static void region(kn_buf *o, const kn_blocks *b, const kn_block *k, const kn_region *r)
{
    kn_put(o, b->tensors->tensors[r->buffer].name);
    kn_put(o, "[");
    for (int i = 0; i < b->tensors->tensors[r->buffer].rank; i++) {
        if (i) kn_put(o, ", ");
        kn_print_expr(o, b->tensors, &k->s, r->lo[i]);
        if (r->extent[i] == 1) continue;
        kn_put(o, " : ");
        kn_print_expr(o, b->tensors, &k->s, kn_bin(b->a, KN_OP_ADD, r->lo[i], kn_const_i(b->a, KN_I64, r->extent[i])));
    }
    kn_put(o, r->clipped ? "] clipped" : "]");
}

static void regions(kn_buf *o, const kn_blocks *b, const kn_block *k, const char *word, const kn_region *r, int n, int depth)
{
    if (!n) return;
    indent(o, depth);
    kn_put(o, word);
    for (int i = 0; i < n; i++) {
        kn_put(o, i ? ", " : " ");
        region(o, b, k, &r[i]);
    }
    kn_put(o, "\n");
}

static void statement(kn_buf *o, const kn_blocks *b, const kn_block *k)
{
    static const char *const assign[] = { [KN_RED_NONE] = "=", [KN_RED_SUM] = "+=", [KN_RED_PROD] = "*=", [KN_RED_MAX] = "max=",
                                          [KN_RED_MIN] = "min=", [KN_RED_ALL] = "&=", [KN_RED_ANY] = "|=" };
    if (k->call) {
        kn_putf(o, "call %s\n", k->call);
        return;
    }
    kn_region w = { .buffer = k->s.out };
    for (int i = 0; i < KILN_MAX_RANK; i++) {
        w.lo[i] = k->s.lhs[i];
        w.extent[i] = 1;
    }
    region(o, b, k, &w);
    kn_putf(o, " %s ", assign[k->s.red]);
    kn_print_expr(o, b->tensors, &k->s, k->s.body);
    kn_put(o, "\n");
}

static void block(kn_buf *o, const kn_blocks *b, const kn_block *k, int depth)
{
    kn_putf(o, "block %s(", k->name);
    for (int i = 0; i < k->s.naxes; i++) {
        const kn_axis *x = &k->s.axes[i];
        kn_putf(o, "%s%s: %s %lld = ", i ? ", " : "", x->name, x->reduce ? "reduce" : "spatial", (long long)x->extent);
        binding(o, b, k->bind[i], 0);
    }
    kn_put(o, k->warp ? ") warp\n" : ")\n");
    if (k->where) {
        indent(o, depth + 1);
        kn_put(o, "where ");
        kn_print_expr(o, b->tensors, &k->s, k->where);
        kn_put(o, "\n");
    }
    regions(o, b, k, "reads", k->reads, k->nreads, depth + 1);
    regions(o, b, k, "writes", k->writes, k->nwrites, depth + 1);
    if (k->init) {
        indent(o, depth + 1);
        kn_put(o, "init ");
        kn_print_expr(o, b->tensors, &k->s, k->init);
        kn_put(o, "\n");
    }
    indent(o, depth + 1);
    statement(o, b, k);
}

static void nodes(kn_buf *o, const kn_blocks *b, const kn_bnode *n, int depth)
{
    static const char *const kinds[] = { "", " parallel", " grid", " thread", " vthread", " unroll", " vector" };
    for (; n; n = n->next) {
        indent(o, depth);
        if (n->kind == KN_BN_BLOCK) {
            block(o, b, n->block, depth);
            continue;
        }
        if (n->kind == KN_BN_LOOP) {
            kn_putf(o, "for %s in %lld%s%s", n->name, (long long)n->extent, kinds[n->loop], n->rfactor ? " rfactor" : "");
            kn_putf(o, n->by ? " by %s\n" : "\n", n->by);
        } else {
            kn_put(o, "if ");
            binding(o, b, n->lhs, 0);
            kn_put(o, " < ");
            binding(o, b, n->rhs, 0);
            kn_put(o, "\n");
        }
        nodes(o, b, n->child, depth + 1);
    }
}

void kn_blocks_print(kn_buf *o, const kn_blocks *b)
{
    static const char *const scopes[] = { "global", "scratch", "shared", "register", "fragments" };
    for (int i = 0; i < b->tensors->ntensors; i++) {
        const kn_tensor *t = &b->tensors->tensors[i];
        kn_putf(o, "buffer %s: %s[", t->name, kn_dtype_text(t->dtype));
        for (int d = 0; d < t->rank; d++) kn_putf(o, "%s%lld", d ? "," : "", (long long)t->shape[d]);
        kn_putf(o, "] %s%s", scopes[b->scope[i]], t->role == KN_INPUT ? " input" : t->role == KN_OUTPUT ? " output" : "");
        if (b->pad[i]) kn_putf(o, " pad %lld", (long long)b->pad[i]);
        if (b->align[i]) kn_putf(o, " align %lld", (long long)b->align[i]);
        kn_put(o, "\n");
    }
    nodes(o, b, b->nests, 0);
}
