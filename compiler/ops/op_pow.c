/* Pow: A to the power of B, with NumPy broadcasting; the result has A's dtype. */
#include "ops/ops.h"

static void operand(kn_op_call *c, int i, const char *in, int rank)
{
    const char *at = kn_op_broadcast(c, i, "A", rank);
    if (kn_dtype_class(c->in[i].dtype) == 'f' && *in == 'f' && kn_dtype_acc(c->in[i].dtype) == kn_dtype_acc(c->in[0].dtype))
        kn_op_load(c, i, at);
    else
        kn_putf(&c->text, "cast(x%d[%s], %s)", i, at, in);
}

static kiln_status lower(kn_op_call *c)
{
    int rank;
    int64_t shape[KILN_MAX_RANK];
    kiln_status s = kn_op_common_shape(c, 0, 2, shape, &rank);
    if (s != KILN_OK) return s;
    enum kn_dtype t = c->in[0].dtype;
    /* powers of integers are computed in f64: exact to 2^53, and kept in range; by fractions they are cut off where they are not all but whole */
    bool whole = kn_dtype_class(t) != 'f', part = whole && kn_dtype_class(c->in[1].dtype) == 'f';
    const char *in = whole ? "f64" : kn_dtype_text(kn_dtype_acc(t)), *all = kn_op_axes(c, "A", rank);
    kn_putf(&c->text, "%s[%s] = %s", part ? "p" : "y", all, whole && !part ? "cast(min(max(round(" : "");
    kn_put(&c->text, "pow(");
    operand(c, 0, in, rank);
    kn_put(&c->text, ", ");
    operand(c, 1, in, rank);
    kn_put(&c->text, ")");
    if (part) {
        kn_op_extents(c, "A", rank, shape);
        kn_putf(&c->text, " : f64; y[%s] = cast(min(max((select(abs(round(p[%s]) - p[%s]) <= abs(p[%s]) * 1e-12, round(p[%s]), p[%s])", all, all, all,
                all, all, all);
    }
    if (whole) {
        kn_put(&c->text, ")");
        kn_op_put_range(c, t);
        kn_putf(&c->text, ", %s)", kn_dtype_text(t));
    }
    kn_op_extents(c, "A", rank, shape);
    kn_op_end(c);
    return KILN_OK;
}

const kn_op_spec kn_op_pow = {.name = "Pow",
                              .min_inputs = 2,
                              .max_inputs = 2,
                              .input_names = {"X", "Y"},
                              .dtypes = "fi",
                              .input_dtypes = {NULL, "fiu"},
                              .about = "X to the power of Y, with NumPy broadcasting; the result has X's dtype",
                              .lower = lower};
