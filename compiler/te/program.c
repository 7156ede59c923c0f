/* Programs as lists of tensors and statements, and how they are seen from outside the library. */
#include "te/expr.h"
#include <string.h>

kn_program *kn_program_new(kiln_arena *a) { return kn_new(a, kn_program); }

int kn_add_tensor(kn_program *p, const char *name, enum kn_dtype t, enum kn_role role, int rank, const int64_t *shape)
{
    if (!p || p->ntensors >= KILN_MAX_TENSORS || rank < 0 || rank > KILN_MAX_RANK) return -1;
    kn_tensor *x = &p->tensors[p->ntensors];
    *x = (kn_tensor){.name = name, .dtype = t, .role = role, .rank = rank};
    for (int i = 0; i < rank; i++) x->shape[i] = shape[i];
    p->ninputs += role == KN_INPUT;
    p->noutputs += role == KN_OUTPUT;
    return p->ntensors++;
}

kn_program *kn_program_clone(kiln_arena *a, const kn_program *p)
{
    kn_program *c = kn_copy(a, p, sizeof *p);
    for (int i = 0; c && i < p->nstmts; i++)
        if (!(c->stmts[i] = kn_copy(a, p->stmts[i], sizeof *p->stmts[i]))) return NULL;
    return c;
}

int kn_writer(const kn_program *p, int tensor)
{
    for (int i = 0; i < p->nstmts; i++)
        if (p->stmts[i]->out == tensor && !p->stmts[i]->scatter) return i;
    return -1;
}

bool kn_scattered(const kn_program *p, int tensor)
{
    for (int i = 0; i < p->nstmts; i++)
        if (p->stmts[i]->out == tensor && p->stmts[i]->scatter) return true;
    return false;
}

bool kn_scatters(const kn_program *p)
{
    for (int i = 0; i < p->nstmts; i++)
        if (p->stmts[i]->scatter) return true;
    return false;
}

static bool loads_of(const kn_expr *e, int tensor)
{
    if (e->op == KN_OP_LOAD && e->u.tensor == tensor) return true;
    for (int i = 0; i < e->nargs; i++)
        if (loads_of(e->args[i], tensor)) return true;
    return false;
}

bool kn_pinned(const kn_program *p, int tensor)
{
    if (kn_scattered(p, tensor)) return true;
    for (int i = 0; i < p->nstmts; i++)
        for (int k = 0; p->stmts[i]->scatter && k < p->tensors[p->stmts[i]->out].rank; k++)
            if (loads_of(p->stmts[i]->lhs[k], tensor)) return true;
    return false;
}

uint32_t kn_scatter_owned(const kn_program *p, const kn_stmt *s)
{
    uint32_t owned = 0;
    for (int k = 0; k < p->tensors[s->out].rank; k++) {
        uint32_t axes = kn_axes_in(s->lhs[k]);
        kn_affine f;
        if (axes && !(axes & (axes - 1)) && kn_affine_of(s->lhs[k], &f)) owned |= axes;
    }
    return owned;
}

static kn_expr *renumber(void *user, kiln_arena *a, kn_expr *e)
{
    const int *to = user;
    if (e->op != KN_OP_LOAD || to[e->u.tensor] == e->u.tensor) return e;
    kn_expr *r = kn_rebuild(a, e, e->args);
    if (r) r->u.tensor = to[e->u.tensor];
    return r;
}

void kn_order_tensors(kiln_arena *a, kn_program *p, const int *place)
{
    kn_tensor old[KILN_MAX_TENSORS];
    int to[KILN_MAX_TENSORS], n = 0, noutputs = 0;
    memcpy(old, p->tensors, sizeof old);
    for (int i = 0; i < p->ntensors; i++) noutputs += old[i].role != KN_INPUT && place[i] >= 0;
    p->noutputs = noutputs;
    for (int i = 0; i < p->ntensors; i++)
        if (old[i].role == KN_INPUT) to[i] = n++;
    p->ninputs = n;
    for (int i = 0; i < p->ntensors; i++)
        if (old[i].role != KN_INPUT && place[i] >= 0) to[i] = n + place[i];
    n += noutputs;
    for (int i = 0; i < p->ntensors; i++)
        if (old[i].role != KN_INPUT && place[i] < 0) to[i] = n++;
    for (int i = 0; i < p->ntensors; i++) {
        p->tensors[to[i]] = old[i];
        if (old[i].role != KN_INPUT) p->tensors[to[i]].role = place[i] >= 0 ? KN_OUTPUT : KN_TEMP;
    }
    for (int i = 0; i < p->nstmts; i++) {
        kn_stmt *s = p->stmts[i];
        s->out = to[s->out];
        s->body = kn_rewrite(a, s->body, renumber, to);
        for (int k = 0; k < p->tensors[s->out].rank; k++) s->lhs[k] = kn_rewrite(a, s->lhs[k], renumber, to);
    }
}

void kn_stmt_range(void *user, const kn_expr *leaf, int64_t *lo, int64_t *hi)
{
    const kn_stmt *s = user;
    *lo = 0;
    *hi = leaf->op == KN_OP_AXIS && leaf->u.axis < s->naxes ? s->axes[leaf->u.axis].extent - 1 : INT64_MAX;
}

static void describe(const kn_tensor *t, kiln_arg *out)
{
    *out = (kiln_arg){.name = t->name, .dtype = kn_dtype_text(t->dtype), .rank = t->rank, .elems = 1};
    for (int i = 0; i < t->rank; i++) {
        out->shape[i] = t->shape[i];
        out->elems *= t->shape[i];
    }
    out->bytes = out->elems * kn_dtype_bytes(t->dtype);
}

int kiln_program_inputs(const kiln_program *p) { return p->ninputs; }
int kiln_program_outputs(const kiln_program *p) { return p->noutputs; }
void kiln_program_input(const kiln_program *p, int i, kiln_arg *out) { describe(&p->tensors[i], out); }
void kiln_program_output(const kiln_program *p, int i, kiln_arg *out) { describe(&p->tensors[p->ninputs + i], out); }

kiln_status kiln_program_text(kiln_arena *a, const kiln_program *p, kiln_bytes *out)
{
    kn_buf b;
    kn_buf_init(&b, a);
    kn_print_program(&b, p);
    kiln_bytes t = kn_buf_take(&b);
    if (!t.p) return KILN_MEMORY;
    *out = t;
    return KILN_OK;
}
