/* epilogue T: the one map statement that reads T, once or several times, is evaluated when T's finished value is stored (reverse_compute_inline).
 * Of results that an instruction computes on a CPU, which have grown to its whole tiles, it may want a part, from their beginning on. */
#include "schedule/sched.h"
#include "te/expr.h"

/* Statement e reads T at e's own axes, each of them once. */
static bool identity_read(const kn_stmt *e, const kn_expr *load)
{
    uint32_t seen = 0;
    for (int i = 0; i < load->nargs; i++) {
        if (load->args[i]->op != KN_OP_AXIS || seen >> load->args[i]->u.axis & 1) return false;
        seen |= 1u << load->args[i]->u.axis;
    }
    return !load->padded && seen == (e->naxes ? (1u << e->naxes) - 1 : 0);
}

typedef struct namer { const kn_step *s; const kn_stmt *e; int tensor; } namer;

/* A dimension of one element may be read at 0 (a broadcast): that is an axis of one iteration of e, which it then is read at. */
static kn_expr *name_units(void *user, kiln_arena *a, kn_expr *load)
{
    const namer *n = user;
    kn_expr *idx[KILN_MAX_RANK];
    bool any = false;
    if (load->op != KN_OP_LOAD || load->u.tensor != n->tensor || load->padded) return load;
    uint32_t used = kn_axes_in(load);
    for (int i = 0; i < load->nargs; i++) {
        idx[i] = load->args[i];
        bool unit = idx[i]->op == KN_OP_CONST_I && !idx[i]->u.i && n->s->t->program->tensors[load->u.tensor].shape[i] == 1;
        for (int x = 0; unit && x < n->e->naxes; x++) {
            if (n->e->axes[x].extent > 1 || used >> x & 1) continue;
            idx[i] = kn_axis_ref(a, x);
            used |= 1u << x;
            unit = false;
            any = true;
        }
    }
    return any ? kn_load(a, n->s->t->program, load->u.tensor, idx) : load;
}

/* Every read of T is at the same element, e's own. */
static kiln_status check_reads(kn_step *s, const kn_stmt *e, int tensor, bool part)
{
    const kn_program *p = s->t->program;
    const kn_expr *loads[KILN_MAX_TENSORS], *first = NULL;
    const char *name = p->tensors[e->out].name;
    int n = kn_loads(e->body, loads, KILN_MAX_TENSORS);
    if (n > KILN_MAX_TENSORS) return kn_step_refuse(s, "'%s' reads too much", name);
    for (int k = 0; k < n; k++) {
        if (loads[k]->u.tensor != tensor) continue;
        if (!identity_read(e, loads[k])) return kn_step_refuse(s, "'%s' does not read '%s' at its own axes", name, s->args[0]);
        if (first && !kn_expr_equal(first, loads[k])) return kn_step_refuse(s, "'%s' reads '%s' at several elements", name, s->args[0]);
        first = loads[k];
        for (int i = 0; i < first->nargs; i++)
            if (!part && p->tensors[tensor].shape[i] != e->axes[first->args[i]->u.axis].extent)
                return kn_step_refuse(s, "'%s' reads only a part of '%s'", name, s->args[0]);
    }
    return KILN_OK;
}

static kiln_status find_reader(kn_step *s, int tensor, bool part, int *reader)
{
    kn_program *p = s->t->program;
    const kn_expr *one = NULL;
    *reader = -1;
    for (int i = 0; i < p->nstmts; i++) {
        if (!kn_reads_of(p->stmts[i]->body, tensor, &one)) continue;
        if (*reader >= 0) return kn_step_refuse(s, "'%s' is read by more than one statement", s->args[0]);
        *reader = i;
    }
    if (*reader < 0) return kn_step_refuse(s, "nothing reads '%s'", s->args[0]);
    kn_stmt *e = p->stmts[*reader];
    const char *name = p->tensors[e->out].name;
    if (kn_scattered(p, e->out)) return kn_step_refuse(s, "'%s' is scattered into behind it", name);
    if (e->red != KN_RED_NONE || e->scatter) return kn_step_refuse(s, "'%s', which reads '%s', is not a map statement", name, s->args[0]);
    namer n = {s, e, tensor};
    e->body = kn_rewrite(s->a, e->body, name_units, &n);
    return check_reads(s, e, tensor, part);
}

kiln_status kn_prim_epilogue(kn_step *s)
{
    kn_tree *t = s->t;
    kn_stage *g = kn_step_stage(s, s->args[0]);
    if (!g) return KILN_TRACE;
    const kn_stmt *st = kn_stage_stmt(t, g);
    if (t->program->tensors[st->out].role != KN_TEMP) return kn_step_refuse(s, "'%s' is not a temporary: its value is asked for",
        s->args[0]);
    if (st->scatter || g->epilogue >= 0) return kn_step_refuse(s, "'%s' scatters or has an epilogue already", s->args[0]);
    if (g->at_stage >= 0) return kn_step_refuse(s, "'%s' is attached to another stage already", s->args[0]);
    int reader;
    kiln_status bad = find_reader(s, st->out, g->tensor.intrin && !s->hw->gpu, &reader);
    if (bad) return bad;
    for (int i = 0; i < t->nstages; i++) {
        kn_stage *e = t->stages[i];
        if (e->stmt != reader) continue;
        if (!kn_stage_untouched(e) || e->epilogue >= 0) return kn_step_refuse(s, "its reader has schedule steps already");
        int from = kn_stage_find(t, g);
        g->epilogue = reader;
        /* T moves to its reader's place, where everything else the reader wants is ready; nothing in between reads T. */
        for (int k = from; k < i; k++) t->stages[k] = t->stages[k + 1];
        t->stages[i] = g;
        for (int k = 0; k < t->nstages; k++) { /* what is attached goes with its stage */
            int *at = &t->stages[k]->at_stage;
            if (*at >= from && *at <= i) *at = *at == from ? i : *at - 1;
        }
        kn_tree_drop_stage(t, i - 1);
        return KILN_OK;
    }
    return kn_step_refuse(s, "its reader is already an epilogue");
}
