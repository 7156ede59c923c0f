/* ahead S: a statement that reads one constant input alone is computed once, before the first call, and not in every call. */
#include "schedule/sched.h"

int kn_stage_constant(const kn_tree *t, const kn_stage *g)
{
    const kn_expr *loads[KILN_MAX_TENSORS];
    int n = kn_loads(kn_stage_stmt(t, g)->body, loads, KILN_MAX_TENSORS);
    if (n < 1 || n > KILN_MAX_TENSORS) return -1;
    const kn_tensor *x = &t->program->tensors[loads[0]->u.tensor];
    for (int i = 1; i < n; i++)
        if (loads[i]->u.tensor != loads[0]->u.tensor) return -1;
    return x->role == KN_INPUT && x->constant ? loads[0]->u.tensor : -1;
}

int kn_loads_in_calls(const kn_tree *t, int tensor)
{
    const kn_expr *loads[KILN_MAX_TENSORS];
    uint32_t ahead = 0;
    int found = 0;
    for (int i = 0; i < t->nstages; i++)
        if (t->stages[i]->ahead) ahead |= 1u << t->stages[i]->stmt;
    for (int i = 0; i < t->program->nstmts; i++) {
        int n = ahead >> i & 1 ? 0 : kn_loads(t->program->stmts[i]->body, loads, KILN_MAX_TENSORS);
        if (n > KILN_MAX_TENSORS) return n;
        for (int k = 0; k < n; k++) found += loads[k]->u.tensor == tensor;
    }
    return found;
}

kiln_status kn_prim_ahead(kn_step *s)
{
    kn_stage *g = kn_step_stage(s, s->args[0]);
    if (!g) return KILN_TRACE;
    if (s->hw->gpu) return kn_step_refuse(s, "ahead is for CPU targets");
    const kn_tensor *x = &s->t->program->tensors[kn_stage_stmt(s->t, g)->out];
    if (x->role != KN_TEMP) return kn_step_refuse(s, "'%s' is not a temporary: its value is asked for", x->name);
    if (g->epilogue >= 0) return kn_step_refuse(s, "'%s' has an epilogue", x->name);
    if (kn_stage_constant(s->t, g) < 0) return kn_step_refuse(s, "'%s' does not read one constant input and nothing else", x->name);
    if (g->at_stage >= 0) return kn_step_refuse(s, "'%s' is computed in '%s'", x->name, kn_stage_name(s->t, s->t->stages[g->at_stage]));
    for (int i = 0; i < s->t->nstages; i++)
        if (s->t->stages[i]->at_stage == kn_stage_find(s->t, g)) return kn_step_refuse(s, "something is computed in '%s'", x->name);
    if (g->ncaches || g->tensor.intrin || g->init_at >= 0)
        return kn_step_refuse(s, "'%s' has caches, an instruction or an initialisation of its own", x->name);
    g->ahead = true;
    return KILN_OK;
}
