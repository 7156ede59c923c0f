/* What a load reads that is padded, by itself or because it reads a padded copy: the index into what the padding surrounds. */
#include "te/expr.h"

const kn_stmt *kn_padded_copy(const kn_program *p, int tensor)
{
    const kn_stmt *found = NULL;
    for (int i = 0; i < p->nstmts; i++) {
        const kn_stmt *s = p->stmts[i];
        if (s->out != tensor) continue;
        if (found || s->scatter || s->red != KN_RED_NONE || s->body->op != KN_OP_LOAD || !s->body->padded) return NULL;
        found = s;
    }
    return found;
}

/* Steps as images have them: what they add up to over all axes has room in 64 bits. */
static bool moderate(const kn_affine *f)
{
    enum { STEP = 1 << 20, FROM = 1 << 30 };
    for (int a = 0; a < KILN_MAX_AXES; a++)
        if (f->coef[a] < -STEP || f->coef[a] > STEP) return false;
    return f->offset >= -FROM && f->offset <= FROM;
}

/* The copy's index, which is over its own axes, over those of the load's statement. */
static bool compose(const kn_stmt *copy, const kn_affine *inner, const kn_expr *load, kn_affine *out)
{
    *out = (kn_affine){.offset = inner->offset};
    for (int a = 0; a < copy->naxes; a++) {
        if (!inner->coef[a]) continue;
        int d = 0;
        while (d < load->nargs && !(copy->lhs[d]->op == KN_OP_AXIS && copy->lhs[d]->u.axis == a)) d++;
        kn_affine outer;
        if (d == load->nargs || !kn_affine_of(load->args[d], &outer) || !moderate(&outer)) return false;
        for (int i = 0; i < KILN_MAX_AXES; i++) out->coef[i] += inner->coef[a] * outer.coef[i];
        out->offset += inner->coef[a] * outer.offset;
    }
    return true;
}

bool kn_padded_index(const kn_expr *load, const kn_stmt *copy, int d, kn_affine *out)
{
    kn_affine inner;
    if (!copy) return kn_affine_of(load->args[d], out) && moderate(out);
    return kn_affine_of(copy->body->args[d], &inner) && moderate(&inner) && compose(copy, &inner, load, out) && moderate(out);
}
