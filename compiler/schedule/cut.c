/* Cuts axes where indices take them apart (A//c, A%c), so that what is left of them stands alone in every index: a grouped convolution's output
 * channels become groups and channels of a group. */
#include "schedule/sched.h"
#include "te/expr.h"
#include <string.h>

/* First axis of e that stands under // or % of a number that divides its extent; -1: none. */
static int taken_apart(const kn_stmt *s, const kn_expr *e, int64_t *by)
{
    bool apart = (e->op == KN_OP_FLOORDIV || e->op == KN_OP_MOD) && e->args[0]->op == KN_OP_AXIS && kn_is_int_const(e->args[1]);
    if (apart) {
        int64_t extent = s->axes[e->args[0]->u.axis].extent;
        *by = e->args[1]->u.i;
        if (*by > 1 && *by < extent && extent % *by == 0) return e->args[0]->u.axis;
    }
    for (int i = 0; i < e->nargs; i++) {
        int axis = taken_apart(s, e->args[i], by);
        if (axis >= 0) return axis;
    }
    return -1;
}

kiln_status kn_trace_cut_axes(kiln_arena *a, const kn_hw *hw, int stmt, kn_tree **tree, kn_buf *lines, kiln_diag *d)
{
    for (int n = 0; n < KILN_MAX_AXES; n++) {
        const kn_stmt *s = (*tree)->program->stmts[stmt];
        int64_t by = 0;
        int axis = taken_apart(s, s->body, &by);
        if (axis < 0) return KILN_OK;
        const char *name = s->axes[axis].name;
        const char *line = kn_format(a, "divide %s %s %so %si %lld\n", (*tree)->program->tensors[s->out].name, name, name, name, (long long)by);
        if (!line) return kn_fail(d, KILN_MEMORY, "out of memory");
        kiln_status bad = kn_trace_step(a, *tree, hw, (kiln_bytes){ line, strlen(line) }, tree, d);
        if (bad == KILN_TRACE) return KILN_OK; /* stays as it is: another step's names or limits are in the way */
        if (bad) return bad;
        kn_put(lines, line);
    }
    return KILN_OK;
}
