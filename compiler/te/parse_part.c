/* One expression by itself, over axes and tensors that exist already: what the text of blocks is made of. */
#include "te/ast.h"
#include <string.h>

static bool known(kn_parser *p, const kn_stmt *s, const kn_ast *e)
{
    kn_token at = {.line = e->line, .col = e->col};
    bool found = e->kind != KN_A_AXIS && e->kind != KN_A_EXTENT;
    for (int i = 0; i < s->naxes && !found; i++) found = !strcmp(s->axes[i].name, e->name);
    if (!found) return kn_refuse(p, KILN_SHAPE, &at, "no iterator named %s", e->name);
    if (e->kind == KN_A_LOAD) {
        int t = kn_find_tensor(p->p, e->name);
        if (t < 0) return kn_refuse(p, KILN_SHAPE, &at, "no buffer named %s", e->name);
        int rank = p->p->tensors[t].rank;
        if (rank != e->nargs) return kn_refuse(p, KILN_SYNTAX, &at, "%s has %d dimensions, not %d", e->name, rank, e->nargs);
    }
    for (int i = 0; i < e->nargs; i++)
        if (!known(p, s, e->args[i])) return false;
    return true;
}

kiln_status kn_parse_part(kiln_arena *a, kiln_bytes text, int line, int col, const kn_program *tensors, const kn_stmt *axes, kn_expr **out,
                          kiln_diag *d)
{
    *d = (kiln_diag){0};
    if (text.n > KILN_MAX_TEXT_BYTES) return kn_fail(d, KILN_LIMIT, "an expression of more than %d bytes", KILN_MAX_TEXT_BYTES);
    kn_parser *p = kn_new(a, kn_parser);
    if (!p) return kn_fail(d, KILN_MEMORY, "out of memory");
    p->a = a;
    p->d = d;
    p->p = (kn_program *)tensors;
    kn_lex_start(p, text);
    p->line = line;
    p->line_start = text.p - (col - 1);
    if (!kn_next(p)) return d->status;
    kn_ast_stmt src = {.name = "", .body = kn_parse_expr(p)};
    if (!src.body) return d->status;
    if (p->t.kind != KN_T_END) {
        int n = p->t.n > 40 ? 40 : (int)p->t.n;
        kn_refuse(p, KILN_SYNTAX, &p->t, "'%.*s' after the end of the expression", n, p->t.p);
        return d->status;
    }
    if (!known(p, axes, src.body)) return d->status;
    kn_stmt s = *axes;
    s.red = KN_RED_NONE;
    kn_expr *e = kn_elaborate_body(p, &src, &s);
    if (!e) return d->status ? d->status : kn_fail(d, KILN_MEMORY, "out of memory");
    *out = e;
    return KILN_OK;
}
