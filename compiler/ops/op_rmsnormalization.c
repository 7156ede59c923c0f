/* RMSNormalization: x / sqrt(mean(x * x) + epsilon) * scale over the axes from `axis` on. */
#include "ops/ops.h"
#include <string.h>

static const kn_attr_spec attrs[] = {{"axis", 'i', "-1", "first normalised axis"},
                                     {"epsilon", 'f', "1e-5", "added to the mean square"},
                                     {"stash_type", 'i', "1", "1: computed in f32"},
                                     {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    int rank = c->in[0].rank, axis;
    if (!rank) return kn_op_bad_shape(c, 0, "a scalar has no axis; rank 1 or more is right");
    if (!kn_op_axis(c, "axis", kn_attr_int(c, "axis", -1), rank, &axis)) return c->d->status;
    if (c->in[1].rank > rank) return kn_op_bad_shape(c, 1, "rank %d; it must broadcast to X", c->in[1].rank);
    double count = 1;
    for (int i = axis; i < rank; i++) count *= (double)c->in[0].shape[i];
    for (int i = 0; i < c->in[1].rank; i++) {
        int64_t n = c->in[1].shape[i];
        if (n != 1 && n != c->in[0].shape[rank - c->in[1].rank + i]) return kn_op_bad_shape(c, 1, "it must broadcast to X");
    }
    const char *rows = kn_op_axes(c, "A", axis), *all = kn_op_axes(c, "A", rank), *x = kn_op_read_fraction(c, 0, all), *wide = kn_op_wide(c);
    kn_putf(&c->text, "q[%s] +=! %s * %s%s; r[%s] = rsqrt(q[%s] / ", rows, x, x, wide, rows, rows);
    kn_put_double(&c->text, count);
    kn_put(&c->text, " + ");
    kn_put_double(&c->text, kn_attr_float(c, "epsilon", 1e-5));
    const char *scale = kn_op_read_fraction(c, 1, kn_op_broadcast(c, 1, "A", rank)), *as = kn_dtype_text(c->in[1].dtype);
    bool other = c->in[1].dtype != c->in[0].dtype && strcmp(as, kn_op_fraction(c)); /* the result has the dtype of the scale */
    kn_putf(&c->text, ")%s; y[%s] = %s%s * r[%s] * %s", wide, all, other ? "cast(" : "", x, rows, scale);
    if (other) kn_putf(&c->text, ", %s)", as);
    else if (c->in[1].dtype == c->in[0].dtype) kn_op_end(c);
    return KILN_OK;
}

const kn_op_spec kn_op_rmsnormalization = {.name = "RMSNormalization",
                                           .min_inputs = 2,
                                           .max_inputs = 2,
                                           .input_names = {"X", "scale"},
                                           .dtypes = "f",
                                           .input_dtypes = {NULL, "f"},
                                           .about = "division by the root of the mean square over the trailing axes",
                                           .attrs = attrs,
                                           .lower = lower};
