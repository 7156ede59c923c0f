/* Whether a program treats the rows of its batch apart: row r of what it writes is made of row r of what it reads, and r itself is no operand. Read
 * off the tensor expression, so that no operator has to say it. */
#include "graph/plan.h"

static bool reads(const kn_expr *e, const bool *rows)
{
    if (e->op == KN_OP_LOAD && rows[e->u.tensor]) return true;
    for (int i = 0; i < e->nargs; i++)
        if (reads(e->args[i], rows)) return true;
    return false;
}

/* Whether `axis` occurs in e as the first index of loads of rows, which all have it there, and nowhere else. */
static bool apart(const kn_program *p, const kn_expr *e, const bool *rows, int axis, int64_t extent)
{
    if (e->op == KN_OP_AXIS) return e->u.axis != axis;
    bool load = e->op == KN_OP_LOAD && rows[e->u.tensor];
    if (load && (e->args[0]->op != KN_OP_AXIS || e->args[0]->u.axis != axis || p->tensors[e->u.tensor].shape[0] != extent)) return false;
    for (int i = load; i < e->nargs; i++)
        if (!apart(p, e->args[i], rows, axis, extent)) return false;
    return true;
}

bool kn_rows_apart(const kn_program *p, bool *rows)
{
    for (int i = 0; i < p->nstmts; i++) {
        const kn_stmt *s = p->stmts[i];
        if (s->scatter) return false;
        if (!reads(s->body, rows)) continue;
        int rank = p->tensors[s->out].rank;
        if (!rank || s->lhs[0]->op != KN_OP_AXIS) return false;
        int axis = s->lhs[0]->u.axis;
        for (int k = 1; k < rank; k++)
            if (kn_axes_in(s->lhs[k]) >> axis & 1) return false;
        if (axis >= s->nspatial || !apart(p, s->body, rows, axis, s->axes[axis].extent)) return false;
        rows[s->out] = true;
    }
    return rows[p->ninputs];
}
