/* LayerNormalization: (x - mean) / sqrt(variance + epsilon) * Scale + B over the axes from `axis` on. */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {{"axis", 'i', "-1", "first normalised axis"},
                                     {"epsilon", 'f', "1e-5", "added to the variance"},
                                     {"stash_type", 'i', "1", "1: computed in f32"},
                                     {NULL, 0, NULL, NULL}};

static kiln_status check(kn_op_call *c, int axis)
{
    const kn_operand *x = &c->in[0];
    for (int k = 1; k < c->ninputs; k++) {
        const kn_operand *p = &c->in[k];
        if (!p->present) continue;
        bool fits = p->rank == x->rank - axis;
        for (int i = 0; fits && i < p->rank; i++) fits = p->shape[i] == x->shape[axis + i];
        if (!fits) return kn_op_bad_shape(c, k, "must have the normalised dimensions of X, from axis %d on", axis);
    }
    return KILN_OK;
}

static kiln_status lower(kn_op_call *c)
{
    int rank = c->in[0].rank, axis;
    if (!rank) return kn_op_bad_shape(c, 0, "a scalar has no axis; rank 1 or more is right");
    if (!kn_op_axis(c, "axis", kn_attr_int(c, "axis", -1), rank, &axis)) return c->d->status;
    kiln_status s = check(c, axis);
    if (s != KILN_OK) return s;
    double count = 1;
    kn_buf tail;
    kn_buf_init(&tail, c->arena);
    for (int i = axis; i < rank; i++) {
        count *= (double)c->in[0].shape[i];
        kn_putf(&tail, "%sA%d", tail.n ? "," : "", i);
    }
    kiln_bytes t = kn_buf_take(&tail);
    const char *all = kn_op_axes(c, "A", rank), *rows = kn_op_axes(c, "A", axis), *cols = t.p ? t.p : "", *wide = kn_op_wide(c);
    kn_putf(&c->text, "s[%s] +=! ", rows);
    kn_op_load(c, 0, all);
    kn_putf(&c->text, "%s; u[%s] = s[%s] / ", wide, rows, rows);
    kn_put_double(&c->text, count);
    kn_putf(&c->text, "%s; q[%s] +=! (", wide, rows);
    kn_op_load(c, 0, all);
    kn_putf(&c->text, " - u[%s]) * (", rows);
    kn_op_load(c, 0, all);
    kn_putf(&c->text, " - u[%s])%s; r[%s] = rsqrt(q[%s] / ", rows, wide, rows, rows);
    kn_put_double(&c->text, count);
    kn_put(&c->text, " + ");
    kn_put_double(&c->text, kn_attr_float(c, "epsilon", 1e-5));
    kn_putf(&c->text, ")%s; y[%s] = (", wide, all);
    kn_op_load(c, 0, all);
    kn_putf(&c->text, " - u[%s]) * r[%s] * ", rows, rows);
    kn_op_load(c, 1, cols);
    if (c->in[2].present) {
        kn_put(&c->text, " + ");
        kn_op_load(c, 2, cols);
    }
    kn_op_end(c);
    return KILN_OK;
}

const kn_op_spec kn_op_layernormalization = {.name = "LayerNormalization", .min_inputs = 2, .max_inputs = 3,
                                             .input_names = {"X", "Scale", "B"}, .dtypes = "f",
                                             .about = "normalisation over the trailing axes (first output only)", .attrs = attrs,
                                             .lower = lower};
