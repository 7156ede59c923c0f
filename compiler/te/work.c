/* How much work a program is, and how exact its kernels can be expected to be. */
#include "te/expr.h"
#include <math.h>

/* casts: units lost to floats of 8 bits on the way; bytes: such floats are read */
typedef struct tally { double ops, functions, casts; bool rounds, bytes; } tally;

/* Half a unit in the last place. */
static double unit(enum kn_dtype t)
{
    switch (t) {
    case KN_F16: return 0x1p-11;
    case KN_BF16: return 0x1p-8;
    case KN_F8E4M3: return 0x1p-4;
    case KN_F8E5M2: return 0x1p-3;
    case KN_F32: return 0x1p-24;
    case KN_F64: return 0x1p-53;
    default: return 0;
    }
}

/* Operations on data; index arithmetic is free. */
static void count(const kn_expr *e, tally *t)
{
    char class = kn_op_class(e->op);
    if (e->op == KN_OP_LOAD) {
        t->bytes |= kn_is_f8(e->dtype);
        return;
    }
    if (class == 'a' || class == 'i' || class == 'f') t->ops += 1;
    if (class == 'f' && e->op != KN_OP_DIV) t->functions += 1;
    if (e->op == KN_OP_CAST && kn_is_f8(e->dtype) && kn_is_float(e->args[0]->dtype)) t->casts += 2 * unit(e->dtype);
    t->rounds |= (class == 'a' || class == 'f') && kn_is_float(e->dtype) && e->op != KN_OP_MIN && e->op != KN_OP_MAX &&
        e->op != KN_OP_NEG &&
                 e->op != KN_OP_ABS;
    for (int i = 0; i < e->nargs; i++) count(e->args[i], t);
}

static void mark(const kn_expr *e, bool *read)
{
    if (e->op == KN_OP_LOAD) read[e->u.tensor] = true;
    for (int i = 0; i < e->nargs; i++) mark(e->args[i], read);
}

void kiln_work(const kiln_program *p, double *flops, double *bytes)
{
    bool read[KILN_MAX_TENSORS] = {false};
    *flops = *bytes = 0;
    for (int i = 0; i < p->nstmts; i++) {
        const kn_stmt *s = p->stmts[i];
        tally t = {0, 0, 0, false, false};
        double points = 1;
        count(s->body, &t);
        for (int k = 0; k < s->naxes; k++) points *= (double)s->axes[k].extent;
        *flops += points * (t.ops + (s->red != KN_RED_NONE));
        mark(s->body, read);
        for (int k = 0; k < p->tensors[s->out].rank; k++) mark(s->lhs[k], read);
    }
    for (int t = 0; t < p->ninputs + p->noutputs; t++) {
        double elems = 1;
        for (int k = 0; k < p->tensors[t].rank; k++) elems *= (double)p->tensors[t].shape[k];
        if (t >= p->ninputs || read[t]) *bytes += elems * kn_dtype_bytes(p->tensors[t].dtype);
    }
}

/* Along the chain of statements that lead to the output: storing rounds to the tensor's dtype (twice the unit, for double rounding); a sum of
 * K terms in the accumulation dtype errs by about sqrt(K) units (Higham and Mary 2019, probabilistic bounds), taken four times; every operation
 * of the body adds two units and every function eight, in the dtype it is computed in; a cast to 8 bits may fall to the other side of a tie. */
void kiln_tolerance(const kiln_program *p, int output, double *rtol, double *atol)
{
    bool needed[KILN_MAX_TENSORS] = {false};
    const kn_tensor *out = &p->tensors[p->ninputs + output];
    bool rounds = false;
    needed[p->ninputs + output] = true;
    *rtol = 0;
    for (int i = p->nstmts - 1; i >= 0; i--) {
        const kn_stmt *s = p->stmts[i];
        if (!needed[s->out]) continue;
        mark(s->body, needed);
        tally t = {0, 0, 0, false, false};
        double terms = 1;
        enum kn_dtype acc = kn_stmt_acc(s);
        count(s->body, &t);
        for (int k = s->nspatial; k < s->naxes; k++) terms *= (double)s->axes[k].extent;
        double adds = s->red == KN_RED_SUM || s->scatter ? 4 * sqrt(terms) : s->red == KN_RED_PROD ? 2 * terms : 0;
        *rtol += t.casts + 2 * unit(p->tensors[s->out].dtype) + (adds + 2 * t.ops + 8 * t.functions) * unit(acc);
        if (adds > 0 && t.bytes) *rtol += 0x1p-13; /* tensor cores keep 14 bits of such sums for a while (hwspecs: sum_bits) */
        rounds |= t.rounds || (adds > 0 && kn_is_float(acc));
    }
    if (kn_is_float(out->dtype)) {
        double wide = out->dtype == KN_F64 ? 0x1p-1022 : 0x1p-126;
        *atol = out->dtype == KN_F16 ? 0x1p-24 : kn_is_f8(out->dtype) ? kn_f8_value(out->dtype, 1) : wide; /* what flushing subnormals may lose */
        return;
    }
    *rtol = rounds ? 0x1p-24 : 0; /* a step that rounding decides has a scale of 2^24: one, times what multiplies it */
    *atol = rounds ? 1 : 0;       /* a float that a rounding moved across the next integer */
}
