/* DepthToSpace: blocks of channels become blocks of pixels. */
#include "ops/ops.h"
#include <string.h>

static const kn_attr_spec attrs[] = {{"blocksize", 'i', "mandatory", "edge of a block of pixels"},
                                     {"mode", 's', "DCR", "DCR: depth, column, row; CRD: column, row, depth"},
                                     {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    const kn_operand *x = &c->in[0];
    int64_t b = kn_attr_int(c, "blocksize", 0), area, rows, cols;
    const char *mode = kn_attr_str(c, "mode", "DCR");
    bool crd = !strcmp(mode, "CRD");
    if (!crd && strcmp(mode, "DCR")) return kn_op_bad_attr(c, "mode", "\"%s\" is neither DCR nor CRD", mode);
    if (x->rank != 4) return kn_op_bad_shape(c, 0, "rank %d; [N, C, H, W] is right", x->rank);
    if (b < 1 || !kn_mul_fits(b, b, &area) || x->shape[1] % area)
        return kn_op_bad_attr(c, "blocksize", "the square of %lld does not divide %lld channels", (long long)b, (long long)x->shape[1]);
    if (!kn_mul_fits(b, x->shape[2], &rows) || !kn_mul_fits(b, x->shape[3], &cols))
        return kn_op_bad_attr(c, "blocksize", "the output is too large");
    long long n = (long long)b, depth = (long long)(x->shape[1] / area);
    if (b == 1) return kn_op_unary(c, "%s");
    kn_put(&c->text, "y[N,C,H,W] = x0[N,");
    if (crd) kn_putf(&c->text, "C*%lld + H%%%lld*%lld + W%%%lld", n * n, n, n, n);
    else kn_putf(&c->text, "(H%%%lld*%lld + W%%%lld)*%lld + C", n, n, n, depth);
    kn_putf(&c->text, ",H//%lld,W//%lld] where C in %lld, H in %lld, W in %lld", n, n, depth, (long long)rows, (long long)cols);
    return KILN_OK;
}

const kn_op_spec kn_op_depthtospace = {.name = "DepthToSpace", .min_inputs = 1, .max_inputs = 1, .input_names = {"input"}, .dtypes = "fiub",
                                       .about = "blocks of channels become blocks of pixels", .attrs = attrs, .lower = lower};
