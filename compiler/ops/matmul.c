/* The statement of a matrix product with NumPy's rules for vectors and batches. */
#include "ops/ops.h"

/* Index text of one operand: broadcast batch axes, then its two matrix axes (either may be missing for a vector). */
static const char *index_of(kn_op_call *c, int input, int batch, const char *rows, const char *cols)
{
    const kn_operand *x = &c->in[input];
    kn_buf b;
    kn_buf_init(&b, c->arena);
    for (int i = 0; i + 2 < x->rank; i++) {
        if (x->shape[i] == 1) kn_put(&b, "0,");
        else kn_putf(&b, "B%d,", batch - (x->rank - 2) + i);
    }
    if (x->rank == 1) kn_put(&b, input ? rows : cols);
    else kn_putf(&b, "%s,%s", rows, cols);
    kiln_bytes t = kn_buf_take(&b);
    return t.p ? t.p : "";
}

kiln_status kn_op_matmul_product(kn_op_call *c, const char *const before[2], const char *const after[2])
{
    const kn_operand *a = &c->in[0], *b = &c->in[1];
    if (!a->rank) return kn_op_bad_shape(c, 0, "a scalar has no matrix product; rank 1 or more is right");
    if (!b->rank) return kn_op_bad_shape(c, 1, "a scalar has no matrix product; rank 1 or more is right");
    int64_t ka = a->shape[a->rank - 1], kb = b->shape[b->rank > 1 ? b->rank - 2 : 0];
    if (ka != kb)
        return kn_op_bad_shape(c, 1, "A has %lld columns (K) but B has %lld rows", (long long)ka, (long long)kb);
    int na = a->rank > 2 ? a->rank - 2 : 0, nb = b->rank > 2 ? b->rank - 2 : 0, batch = na > nb ? na : nb;
    int64_t extent[KILN_MAX_RANK];
    for (int i = 0; i < batch; i++) {
        int64_t x = i < batch - na ? 1 : a->shape[i - (batch - na)], y = i < batch - nb ? 1 : b->shape[i - (batch - nb)];
        if (x != y && x != 1 && y != 1)
            return kn_op_bad_shape(c, 1, "batch dimensions %lld and %lld do not broadcast", (long long)x, (long long)y);
        extent[i] = x == 1 ? y : x;
    }
    kn_buf left;
    kn_buf_init(&left, c->arena);
    for (int i = 0; i < batch; i++) kn_putf(&left, "%sB%d", left.n ? "," : "", i);
    if (a->rank > 1) kn_putf(&left, "%sM", left.n ? "," : "");
    if (b->rank > 1) kn_putf(&left, "%sN", left.n ? "," : "");
    kiln_bytes axes = kn_buf_take(&left);
    kn_putf(&c->text, "y[%s] +=! ", axes.p ? axes.p : "");
    for (int i = 0; i < 2; i++) {
        kn_putf(&c->text, "%s%s", i ? " * " : "", before[i]);
        kn_op_load(c, i, index_of(c, i, batch, i ? "K" : "M", i ? "N" : "K"));
        kn_put(&c->text, after[i]);
    }
    const char *word = " where ";
    for (int i = 0; i < batch; i++) {
        if (extent[i] != 1) continue;
        kn_putf(&c->text, "%sB%d in 1", word, i);
        word = ", ";
    }
    return KILN_OK;
}
