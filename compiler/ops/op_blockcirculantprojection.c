/* BlockCirculantProjection: the nearest matrix of circulant blocks: every block's wrapped diagonals become their means, what fills no
 * whole block becomes zero (FlexTensor's BCM). Not in ONNX. */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {{"block", 'i', "mandatory", "rows and columns of a block"}, {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    const kn_operand *x = &c->in[0];
    int64_t b = kn_attr_int(c, "block", 0);
    if (x->rank != 2) return kn_op_bad_shape(c, 0, "rank %d; a matrix is right", x->rank);
    if (b < 1 || b > x->shape[0] || b > x->shape[1])
        return kn_op_bad_attr(c, "block", "%lld; from 1 to the matrix's %lld rows and %lld columns is right", (long long)b, (long long)x->shape[0],
                              (long long)x->shape[1]);
    long long n = (long long)b, rows = (long long)(x->shape[0] / b), cols = (long long)(x->shape[1] / b);
    bool whole = x->shape[0] % b == 0 && x->shape[1] % b == 0;
    kn_put(&c->text, "t[P,Q,D] +=! ");
    kn_op_load(c, 0, kn_format(c->arena, "P*%lld + K,Q*%lld + (D + K)%%%lld", n, n, n));
    kn_putf(&c->text, " where P in %lld, Q in %lld, D in %lld, K in %lld%s; y[I,J] = %s[I//%lld,J//%lld,(J - I)%%%lld] / %lld.0", rows, cols, n, n,
            kn_op_wide(c), whole ? "t" : "pad(t,0)", n, n, n, n);
    kn_putf(&c->text, " where I in %lld, J in %lld", (long long)x->shape[0], (long long)x->shape[1]);
    kn_op_end(c);
    return KILN_OK;
}

const kn_op_spec kn_op_blockcirculantprojection = {.name = "BlockCirculantProjection", .min_inputs = 1, .max_inputs = 1, .input_names = {"X"},
                                                   .dtypes = "f", .about = "nearest matrix of circulant blocks", .attrs = attrs,
                                                   .lower = lower};
