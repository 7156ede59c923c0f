/* Text to blocks: buffers, loops and conditions by their depth. */
#include "block/parse.h"
#include <string.h>

static bool shape(kn_bp *p, int *rank, int64_t *dims)
{
    *rank = 0;
    if (!kn_bp_want(p, "[")) return false;
    if (kn_bp_mark(p, "]")) return true;
    do {
        if (*rank == KILN_MAX_RANK) return kn_bp_fail(p, "more than %d dimensions", KILN_MAX_RANK);
        if (!kn_bp_int(p, &dims[*rank])) return false;
        if (dims[*rank] < 1 || dims[*rank] > KILN_MAX_EXTENT) return kn_bp_fail(p, "a dimension is from 1 to 2^31-1");
        ++*rank;
    } while (kn_bp_mark(p, ","));
    return kn_bp_want(p, "]");
}

static bool buffer(kn_bp *p)
{
    static const char *const scopes[] = { "global", "scratch", "shared", "register", "fragments" };
    enum kn_dtype t;
    int rank, s = 0, i;
    int64_t dims[KILN_MAX_RANK], elems = 1, pad = 0, align = 0;
    const char *name = kn_bp_name(p, false, "a buffer");
    if (!name || !kn_bp_want(p, ":")) return false;
    if (name[0] < 'a' || name[0] > 'z' || strlen(name) >= KILN_MAX_NAME_BYTES) return kn_bp_fail(p, "buffers start in lower case");
    const char *type = kn_bp_name(p, false, "a dtype");
    if (!type || !kn_dtype_find(type, strlen(type), &t)) return p->d->status ? false : kn_bp_fail(p, "no dtype '%s'", type ? type : "");
    if (!shape(p, &rank, dims)) return false;
    for (int d = 0; d < rank; d++)
        if (!kn_mul_fits(elems, dims[d], &elems) || elems > KILN_MAX_ELEMENTS) return kn_bp_fail(p, "more than 2^40 elements");
    while (s < 5 && !kn_bp_word(p, scopes[s])) s++;
    if (s == 5) return kn_bp_fail(p, "expected global, scratch, shared, register or fragments");
    enum kn_role role = kn_bp_word(p, "input") ? KN_INPUT : kn_bp_word(p, "output") ? KN_OUTPUT : KN_TEMP;
    if (kn_bp_word(p, "pad") && (!kn_bp_int(p, &pad) || pad > 4096)) return p->d->status ? false : kn_bp_fail(p, "pad is at most 4096");
    if (kn_bp_word(p, "align") && (!kn_bp_int(p, &align) || align > 4096)) return p->d->status ? false : kn_bp_fail(p,
        "align is at most 4096");
    if (!kn_bp_end(p)) return false;
    i = kn_blocks_buffer(p->b, name, t, role, (enum kn_scope)s, rank, dims);
    if (i < 0) return kn_bp_fail(p, "more than %d buffers", KILN_MAX_TENSORS);
    p->b->pad[i] = pad;
    p->b->align[i] = align;
    p->b->line[i] = p->line;
    return true;
}

/* "by NAME": names of instructions are a hwspec's, which may hold '-' too. */
static bool instruction(kn_bp *p, const char **name)
{
    if (!kn_bp_word(p, "by")) return true;
    while (p->at < p->line_end && *p->at == ' ') p->at++;
    const char *from = p->at;
    while (p->at < p->line_end && *p->at > ' ' && *p->at < 0x7f) p->at++;
    if (p->at == from || p->at - from >= KILN_MAX_NAME_BYTES) return kn_bp_fail(p, "expected the name of an instruction");
    *name = kn_strndup(p->a, from, (size_t)(p->at - from));
    return *name || kn_fail(p->d, KILN_MEMORY, "out of memory") == KILN_OK;
}

static kn_bnode *loop(kn_bp *p, kn_bnode *parent, int depth)
{
    static const struct { const char *word; enum kn_loop_kind kind; } kinds[] = {
        { "parallel", KN_PARALLEL }, { "grid", KN_GRID }, { "thread", KN_THREAD }, { "vthread", KN_VTHREAD },
        { "unroll", KN_UNROLL }, { "vector", KN_VECTOR },
    };
    int64_t extent;
    enum kn_loop_kind kind = KN_SERIAL;
    const char *name = kn_bp_name(p, true, "a loop");
    if (!name || !kn_bp_want(p, "in") || !kn_bp_int(p, &extent)) return NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kn_bp_word(p, kinds[i].word)) {
            kind = kinds[i].kind;
            break;
        }
    bool rfactor = kn_bp_word(p, "rfactor");
    const char *by = NULL;
    if (!instruction(p, &by) || !kn_bp_end(p)) return NULL;
    kn_bnode *n = kn_blocks_loop(p->b, parent, name, extent, kind);
    if (!n) {
        kn_bp_fail(p, "more than %d loops", KN_BLOCK_VARS);
        return NULL;
    }
    n->rfactor = rfactor;
    n->by = by;
    n->line = p->line;
    n->col = depth * 2 + 1;
    return n;
}

static kn_bnode *condition(kn_bp *p, kn_bnode *parent, int depth)
{
    kn_bnode *n = kn_blocks_node(p->b, parent, KN_BN_IF);
    if (!n) {
        kn_fail(p->d, KILN_MEMORY, "out of memory");
        return NULL;
    }
    n->line = p->line;
    n->col = depth * 2 + 1;
    if (!(n->lhs = kn_bp_binding(p, parent)) || !kn_bp_want(p, "<") || !(n->rhs = kn_bp_binding(p, parent)) || !kn_bp_end(p)) return NULL;
    return n;
}

static bool program(kn_bp *p, const char *text)
{
    kn_bnode *open[KN_BLOCK_DEPTH + 2] = { NULL }; /* the node whose children stand at this depth */
    int deepest = 0;
    bool body = false;
    for (const char *from = text;;) {
        if (!kn_bp_line(p, from)) return false;
        if (p->done) return body ? true : kn_bp_fail(p, "no block");
        int depth = p->depth;
        if (depth > deepest) return kn_bp_fail(p, "indented deeper than what it stands in");
        kn_bnode *n = NULL;
        if (kn_bp_word(p, "buffer")) {
            if (depth || body) return kn_bp_fail(p, "buffers come first");
            if (!buffer(p)) return false;
            deepest = 0;
        } else if (kn_bp_word(p, "block")) {
            if (!kn_bp_block(p, open[depth], depth)) return false;
            deepest = depth;
            body = true;
        } else {
            if (kn_bp_word(p, "for")) n = loop(p, open[depth], depth);
            else if (kn_bp_word(p, "if")) n = condition(p, open[depth], depth);
            else return kn_bp_fail(p, "expected buffer, for, if or block");
            if (!n) return false;
            body = true;
            open[depth + 1] = n;
            deepest = depth + 1;
        }
        const char *nl = memchr(p->line_end, '\n', (size_t)(p->end - p->line_end));
        from = nl ? nl + 1 : p->end;
    }
}

kiln_status kn_blocks_parse(kiln_arena *a, kiln_bytes text, kn_blocks **out, kiln_diag *d)
{
    *d = (kiln_diag){ 0 };
    if (text.n > 16 * (size_t)KILN_MAX_TEXT_BYTES) return kn_fail(d, KILN_LIMIT, "a text of more than %d bytes", 16 * KILN_MAX_TEXT_BYTES);
    kn_bp *p = kn_new(a, kn_bp);
    kn_blocks *b = kn_blocks_new(a);
    if (!p || !b) return kn_fail(d, KILN_MEMORY, "out of memory");
    p->a = a;
    p->b = b;
    p->d = d;
    p->end = text.p + text.n;
    if (!program(p, text.p) || d->status) return d->status ? d->status : kn_fail(d, KILN_MEMORY, "out of memory");
    if (kn_arena_dry(a)) return kn_fail(d, KILN_MEMORY, "out of memory");
    *out = b;
    return KILN_OK;
}
