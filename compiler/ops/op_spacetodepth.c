/* SpaceToDepth: blocks of pixels become blocks of channels, the inverse of DepthToSpace in mode DCR. */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {{"blocksize", 'i', "mandatory", "edge of a block of pixels"}, {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    const kn_operand *x = &c->in[0];
    int64_t b = kn_attr_int(c, "blocksize", 0), area, depth;
    if (x->rank != 4) return kn_op_bad_shape(c, 0, "rank %d; [N, C, H, W] is right", x->rank);
    if (b < 1 || x->shape[2] % b || x->shape[3] % b)
        return kn_op_bad_attr(c, "blocksize", "%lld does not divide an image of %lld by %lld", (long long)b, (long long)x->shape[2],
                              (long long)x->shape[3]);
    if (!kn_mul_fits(b, b, &area) || !kn_mul_fits(area, x->shape[1], &depth))
        return kn_op_bad_attr(c, "blocksize", "the output is too large");
    if (b == 1) return kn_op_unary(c, "%s");
    long long n = (long long)b, ch = (long long)x->shape[1];
    kn_putf(&c->text, "y[N,F,H,W] = x0[N,F%%%lld,H*%lld + F//%lld,W*%lld + F//%lld%%%lld] where F in %lld, H in %lld, W in %lld", ch, n, ch * n,
            n, ch, n, (long long)depth, (long long)(x->shape[2] / b), (long long)(x->shape[3] / b));
    return KILN_OK;
}

const kn_op_spec kn_op_spacetodepth = {.name = "SpaceToDepth", .min_inputs = 1, .max_inputs = 1, .input_names = {"input"}, .dtypes = "fiub",
                                       .about = "blocks of pixels become blocks of channels", .attrs = attrs, .lower = lower};
