/* BlockCirculantMatMul: product by a matrix of circulant blocks, each given by its first column (CirCNN, MICRO'17). Not in ONNX. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c)
{
    const kn_operand *x = &c->in[0], *w = &c->in[1];
    if (!x->rank) return kn_op_bad_shape(c, 0, "a scalar has no matrix product; rank 1 or more is right");
    if (w->rank != 3) return kn_op_bad_shape(c, 1, "rank %d; [P, Q, B], P by Q blocks of B by B, is right", w->rank);
    int64_t k = x->shape[x->rank - 1], b = w->shape[2], out;
    if (w->shape[1] != kn_ceil_div(k, b))
        return kn_op_bad_shape(c, 1, "%lld blocks in a row; X has %lld columns, which are %lld blocks of %lld", (long long)w->shape[1], (long long)k,
                               (long long)kn_ceil_div(k, b), (long long)b);
    if (!kn_mul_fits(w->shape[0], b, &out)) return kn_op_bad_shape(c, 1, "the output is too large");
    const char *rows = kn_op_axes(c, "A", x->rank - 1), *comma = x->rank > 1 ? "," : "", *wide = kn_op_wide(c);
    kn_putf(&c->text, "y[%s%sI] +=! %s%s[%s%sQ*%lld + C]%s * ", rows, comma, *wide ? "cast(" : "", k % b ? "pad(x0,0)" : "x0", rows, comma,
            (long long)b, *wide ? ",f32)" : "");
    kn_op_load(c, 1, kn_format(c->arena, "I//%lld,Q,(I - C)%%%lld", (long long)b, (long long)b));
    kn_putf(&c->text, " where I in %lld, C in %lld", (long long)out, (long long)b);
    kn_op_end(c);
    return KILN_OK;
}

const kn_op_spec kn_op_blockcirculantmatmul = {.name = "BlockCirculantMatMul", .min_inputs = 2, .max_inputs = 2, .input_names = {"X", "W"},
                                               .dtypes = "f", .about = "product of X by the transpose of a matrix of circulant blocks",
                                               .lower = lower};
