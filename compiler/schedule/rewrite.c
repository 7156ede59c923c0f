/* What primitives that add statements share: new temporaries, and stages placed before or behind another. */
#include "schedule/sched.h"
#include <string.h>

static bool plain_name(const char *s)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    return n && !s[n] && n < KILN_MAX_NAME_BYTES && !(s[0] >= '0' && s[0] <= '9');
}

int kn_step_temp(kn_step *s, const char *name, enum kn_dtype t, int rank, const int64_t *shape)
{
    kn_program *p = s->t->program;
    int64_t n = 1;
    if (!plain_name(name)) return kn_step_refuse(s, "'%s' is no name for a tensor: letters, digits and _", name), -1;
    for (int i = 0; i < p->ntensors; i++)
        if (!strcmp(p->tensors[i].name, name)) return kn_step_refuse(s, "there is a tensor '%s' already", name), -1;
    for (int i = 0; i < rank; i++)
        if (!kn_mul_fits(n, shape[i], &n) || n > KILN_MAX_ELEMENTS || shape[i] > KILN_MAX_EXTENT)
            return kn_step_refuse(s, "'%s' would have too many elements", name), -1;
    if (p->nstmts == KILN_MAX_STMTS) return kn_step_refuse(s, "more than %d statements", KILN_MAX_STMTS), -1;
    int id = kn_add_tensor(p, kn_strdup(s->a, name), t, KN_TEMP, rank, shape);
    if (id < 0) kn_step_refuse(s, "more than %d tensors", KILN_MAX_TENSORS);
    return id;
}

kn_stage *kn_step_insert(kn_step *s, kn_stage *at, const kn_stmt *st, bool behind)
{
    kn_tree *t = s->t;
    kn_program *p = t->program;
    kn_stage *g = kn_new(s->a, kn_stage);
    kn_stmt *copy = kn_new(s->a, kn_stmt);
    if (!g || !copy) return kn_fail(s->d, KILN_MEMORY, "out of memory while adding a statement"), NULL;
    int stmt = at->stmt + behind, stage = kn_stage_find(t, at) + behind;
    *copy = *st;
    memmove(&p->stmts[stmt + 1], &p->stmts[stmt], sizeof *p->stmts * (size_t)(p->nstmts - stmt));
    p->stmts[stmt] = copy;
    p->nstmts++;
    for (int i = 0; i < t->nstages; i++) {
        kn_stage *x = t->stages[i];
        if (x->stmt >= stmt) x->stmt++;
        if (x->epilogue >= stmt) x->epilogue++;
        if (x->at_stage >= stage) x->at_stage++;
    }
    memmove(&t->stages[stage + 1], &t->stages[stage], sizeof *t->stages * (size_t)(t->nstages - stage));
    t->stages[stage] = g;
    t->nstages++;
    g->stmt = stmt;
    g->epilogue = g->at_stage = g->at_loop = g->init_at = -1;
    kn_stage_loops_init(g, copy);
    return g;
}

kiln_status kn_step_divert(kn_step *s, kn_stage *g, const char *name, const int64_t *shape)
{
    kn_program *p = s->t->program;
    kn_stmt *st = kn_stage_stmt(s->t, g), copy = { .red = KN_RED_NONE, .out = st->out };
    const kn_tensor *x = &p->tensors[st->out];
    kn_expr *idx[KILN_MAX_RANK];
    int id = kn_step_temp(s, name, x->dtype, x->rank, shape);
    if (id < 0) return KILN_TRACE;
    copy.naxes = copy.nspatial = x->rank;
    for (int i = 0; i < x->rank; i++) {
        copy.axes[i] = (kn_axis){ kn_format(s->a, "W%d", i), x->shape[i], false };
        copy.lhs[i] = idx[i] = kn_axis_ref(s->a, i);
    }
    copy.body = kn_load(s->a, p, id, idx);
    if (!copy.body || kn_arena_dry(s->a)) return kn_fail(s->d, KILN_MEMORY, "out of memory while adding a copy");
    st->out = id;
    return kn_step_insert(s, g, &copy, true) ? KILN_OK : s->d->status;
}

kn_expr *kn_step_each(kn_step *s, const kn_expr *load, const char *name, enum kn_dtype dtype, kn_stmt *t)
{
    kn_program *p = s->t->program;
    const kn_tensor *x = &p->tensors[load->u.tensor];
    *t = (kn_stmt){ .red = KN_RED_NONE, .naxes = x->rank, .nspatial = x->rank };
    for (int i = 0; i < x->rank; i++) {
        t->axes[i] = (kn_axis){ kn_format(s->a, "X%d", i), x->shape[i], false };
        t->lhs[i] = kn_axis_ref(s->a, i);
    }
    t->out = kn_step_temp(s, name, dtype, x->rank, x->shape);
    if (t->out < 0) return NULL;
    kn_expr *read = kn_load(s->a, p, load->u.tensor, t->lhs);
    if (read && !kn_arena_dry(s->a)) return read;
    kn_fail(s->d, KILN_MEMORY, "out of memory while adding a copy");
    return NULL;
}

typedef struct replacer { const kn_expr *from; kn_expr *to; } replacer;

static kn_expr *replace(void *user, kiln_arena *a, kn_expr *e)
{
    const replacer *r = user;
    (void)a;
    return e == r->from ? r->to : e;
}

/* kn_rewrite works bottom-up and shares what does not change, so a load without changed children is met as itself. */
void kn_stmt_replace(kiln_arena *a, kn_stmt *s, const kn_expr *load, kn_expr *with)
{
    replacer r = { load, with };
    s->body = kn_rewrite(a, s->body, replace, &r);
}

bool kn_inside(const kn_program *p, const kn_stmt *s, const kn_expr *load)
{
    for (int i = 0; i < load->nargs; i++) {
        int64_t lo, hi;
        if (!kn_expr_range(load->args[i], kn_sched_range, (void *)(uintptr_t)s, &lo, &hi)) return false;
        if (lo < 0 || hi >= p->tensors[load->u.tensor].shape[i]) return false;
    }
    return true;
}

kn_stage *kn_step_fresh(kn_step *s, const char *name)
{
    kn_stage *g = kn_step_stage(s, name);
    if (!g) return NULL;
    if (!kn_stage_untouched(g)) return kn_step_refuse(s, "%s must come before other steps of '%s'", s->prim, name), NULL;
    for (int i = 0; i < s->t->nstages; i++)
        if (s->t->stages[i]->at_stage == kn_stage_find(s->t, g))
            return kn_step_refuse(s, "%s must come before compute_at in '%s'", s->prim, name), NULL;
    return g;
}

bool kn_step_nest_free(kn_step *s, const kn_stage *g)
{
    const char *name = kn_stage_name(s->t, g);
    if (g->ncaches) return kn_step_refuse(s, "%s must come before the caches of '%s'", s->prim, name), false;
    if (g->tensor.intrin) return kn_step_refuse(s, "%s must come before tensorize of '%s'", s->prim, name), false;
    if (g->at_stage >= 0) return kn_step_refuse(s, "'%s' is attached to another stage already", name), false;
    if (g->init_at >= 0) return kn_step_refuse(s, "%s must come before decompose_reduction of '%s'", s->prim, name), false;
    for (int i = 0; i < s->t->nstages; i++)
        if (s->t->stages[i]->at_stage == kn_stage_find(s->t, g))
            return kn_step_refuse(s, "%s must come before anything is computed at a loop of '%s'", s->prim, name), false;
    return true;
}

bool kn_step_own_loop(kn_step *s, const kn_stage *g, int loop)
{
    if (g->tensor.intrin && loop >= g->tensor.at)
        return kn_step_refuse(s, "loop '%s' belongs to the instruction '%s'", g->loops[loop].name, g->tensor.intrin->name), false;
    if (g->loops[loop].shared_with < 0) return true;
    kn_step_refuse(s, "loop '%s' coincides with a loop of '%s'", g->loops[loop].name, kn_stage_name(s->t, s->t->stages[g->at_stage]));
    return false;
}

const kn_expr *kn_step_load(kn_step *s, const kn_stage *g, const char *text)
{
    int64_t number;
    if (!kn_step_int(s, text, 0, KILN_MAX_TENSORS - 1, &number)) return NULL;
    const kn_expr *load = kn_stage_load(s->t, g, (int)number);
    if (!load) kn_step_refuse(s, "the body of '%s' has no load %lld", kn_stage_name(s->t, g), (long long)number);
    return load;
}
