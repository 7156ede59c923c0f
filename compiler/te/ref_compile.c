/* The reference interpreter's compiler: expressions to flat register code; affine indices become slots that move with the axes. */
#include "te/ref_code.h"
#include <string.h>

typedef struct compiler { kiln_arena *a; const kn_program *p; kn_code *c; bool failed; } compiler;

/* Doubles an array of n elements when it is full. */
static void *grow(compiler *x, void *old, int n, int *cap, size_t size)
{
    if (n < *cap) return old;
    int more = *cap ? 2 * *cap : 16;
    void *p = kn_alloc(x->a, (size_t)more * size);
    if (!p) {
        x->failed = true;
        return NULL;
    }
    if (n) memcpy(p, old, (size_t)n * size);
    *cap = more;
    return p;
}

static kn_instr *emit(compiler *x, int op, int dst)
{
    static const kn_instr empty;
    kn_code *c = x->c;
    kn_instr *code = grow(x, c->code, c->n, &c->cap, sizeof *code);
    if (!code) return NULL;
    c->code = code;
    if (dst >= c->nregs) c->nregs = dst + 1;
    code[c->n] = empty;
    code[c->n].op = op;
    code[c->n].dst = dst;
    return &code[c->n++];
}

static int add_slot(compiler *x, const kn_slot *s)
{
    kn_code *c = x->c;
    for (int i = 0; i < c->nslots; i++)
        if (!memcmp(&c->slots[i], s, sizeof *s)) return i;
    kn_slot *slots = grow(x, c->slots, c->nslots, &c->slot_cap, sizeof *slots);
    if (!slots) return 0;
    c->slots = slots;
    slots[c->nslots] = *s;
    return c->nslots++;
}

static bool slot_of(compiler *x, const kn_expr *e, int *out)
{
    kn_affine f;
    kn_slot s;
    if (e->dtype != KN_I64 || !kn_affine_of(e, &f)) return false;
    memcpy(s.coef, f.coef, sizeof s.coef);
    s.offset = f.offset;
    *out = add_slot(x, &s);
    return true;
}

/* The row-major address of a plain read with affine indices, as one slot. */
static bool linear(compiler *x, const kn_expr *e, int *out)
{
    const kn_tensor *t = &x->p->tensors[e->u.tensor];
    kn_slot s = {{0}, 0};
    kn_affine f;
    if (e->padded) return false;
    for (int i = 0; i < e->nargs; i++) {
        int64_t term;
        if (!kn_affine_of(e->args[i], &f)) return false;
        for (int k = 0; k < KILN_MAX_AXES; k++)
            if (__builtin_mul_overflow(s.coef[k], t->shape[i], &term) || __builtin_add_overflow(term, f.coef[k], &s.coef[k])) return false;
        if (__builtin_mul_overflow(s.offset, t->shape[i], &term) || __builtin_add_overflow(term, f.offset, &s.offset)) return false;
    }
    *out = add_slot(x, &s);
    return true;
}

static void compile(compiler *x, const kn_expr *e, int r);

static void compile_load(compiler *x, const kn_expr *e, int r)
{
    kn_code *c = x->c;
    int slot, dims[KILN_MAX_RANK];
    bool flat = linear(x, e, &slot);
    if (!flat) {
        for (int i = 0; i < e->nargs; i++) {
            if (slot_of(x, e->args[i], &dims[i])) continue;
            compile(x, e->args[i], r + i);
            dims[i] = -1 - (r + i);
        }
        slot = c->ndims;
        for (int i = 0; i < e->nargs; i++) {
            int *list = grow(x, c->dims, c->ndims, &c->dim_cap, sizeof *list);
            if (!list) return;
            c->dims = list;
            list[c->ndims++] = dims[i];
        }
    }
    kn_instr *in = emit(x, !flat ? (int)KN_OP_LOAD : e->u.tensor < x->p->ninputs ? (int)KN_R_INPUT : (int)KN_R_LINEAR, r);
    if (!in) return;
    in->a = slot;
    in->b = e->u.tensor;
    in->e = e;
}

static void compile_select(compiler *x, const kn_expr *e, int r)
{
    compile(x, e->args[0], r);
    int test = x->c->n;
    emit(x, KN_R_JUMP_FALSE, r);
    compile(x, e->args[1], r);
    int over = x->c->n;
    emit(x, KN_R_JUMP, r);
    if (x->failed) return;
    x->c->code[test].a = x->c->n;
    compile(x, e->args[2], r);
    if (!x->failed) x->c->code[over].a = x->c->n;
}

static void compile(compiler *x, const kn_expr *e, int r)
{
    int slot;
    kn_instr *in;
    if (x->failed) return;
    if (kn_is_const(e)) {
        if ((in = emit(x, KN_OP_CONST_F, r))) in->k = e->op == KN_OP_CONST_F ? e->u.f : (double)e->u.i;
        return;
    }
    if (slot_of(x, e, &slot)) {
        if ((in = emit(x, KN_R_SLOT, r))) in->a = slot;
        return;
    }
    if (e->op == KN_OP_LOAD) {
        compile_load(x, e, r);
        return;
    }
    if (e->op == KN_OP_SELECT) {
        compile_select(x, e, r);
        return;
    }
    for (int i = 0; i < e->nargs; i++) compile(x, e->args[i], r + i);
    if (r + e->nargs > x->c->nregs) x->c->nregs = r + e->nargs;
    if (!(in = emit(x, e->op, r))) return;
    in->a = (int)e->dtype;
    in->b = e->args[0]->op != KN_OP_LOAD || e->args[0]->u.tensor >= x->p->ninputs; /* computed, not given */
    in->integer = !kn_is_float(e->args[0]->dtype);
}

bool kn_ref_compile(kiln_arena *a, const kn_program *p, const kn_stmt *s, kn_code *c)
{
    compiler x = {a, p, c, false};
    *c = (kn_code){.s = s};
    for (int i = 0; i < p->tensors[s->out].rank && s->scatter; i++) {
        compile(&x, s->lhs[i], 0);
        c->lhs_end[i] = c->n;
    }
    c->body = c->n;
    compile(&x, s->body, 0);
    c->at = kn_array(a, int64_t, c->nslots + 1);
    c->value = kn_array(a, double, c->nregs + 1);
    c->scale = kn_array(a, double, c->nregs + 1);
    return !x.failed && c->at && c->value && c->scale;
}
