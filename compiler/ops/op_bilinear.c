/* Bilinear: y[.., m] = sum over k, l of X1[.., k] * W[m, k, l] * X2[.., l], and a bias. Not in ONNX.
 * In two steps: W by X2 is a matrix product that leaves one multiplication an element of W for each sample. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c)
{
    const kn_operand *a = &c->in[0], *b = &c->in[1], *w = &c->in[2];
    if (!a->rank || a->rank + 1 > KILN_MAX_RANK) return kn_op_bad_shape(c, 0, "rank %d; from 1 to %d is right", a->rank, KILN_MAX_RANK - 1);
    bool same = b->rank == a->rank;
    for (int i = 0; same && i < a->rank - 1; i++) same = a->shape[i] == b->shape[i];
    if (!same) return kn_op_bad_shape(c, 1, "X1 and X2 must have the same dimensions but for the last");
    int64_t k = a->shape[a->rank - 1], l = b->shape[b->rank - 1];
    if (w->rank != 3 || w->shape[1] != k || w->shape[2] != l)
        return kn_op_bad_shape(c, 2, "must be [M, %lld, %lld], with the last dimensions of X1 and X2", (long long)k, (long long)l);
    kiln_status s = kn_op_per_channel(c, 3, w->shape[0]);
    if (s != KILN_OK) return s;
    const char *wide = kn_op_wide(c), *rows = kn_op_axes(c, "A", a->rank - 1), *comma = a->rank > 1 ? "," : "";
    bool bias = c->in[3].present;
    kn_putf(&c->text, "t[%s%sM,K] +=! ", rows, comma);
    kn_op_load(c, 2, "M,K,L");
    kn_put(&c->text, " * ");
    kn_op_load(c, 1, kn_format(c->arena, "%s%sL", rows, comma));
    kn_putf(&c->text, "%s; %s[%s%sM] +=! t[%s%sM,K] * ", wide, bias ? "u" : "y", rows, comma, rows, comma);
    kn_op_load(c, 0, kn_format(c->arena, "%s%sK", rows, comma));
    if (bias) {
        kn_putf(&c->text, "%s; y[%s%sM] = u[%s%sM] + ", wide, rows, comma, rows, comma);
        kn_op_load(c, 3, "M");
    }
    kn_op_end(c);
    return KILN_OK;
}

const kn_op_spec kn_op_bilinear = {.name = "Bilinear", .min_inputs = 3, .max_inputs = 4, .input_names = {"X1", "X2", "W", "B"}, .dtypes = "f",
                                   .about = "bilinear form of two inputs, one matrix an output", .lower = lower};
