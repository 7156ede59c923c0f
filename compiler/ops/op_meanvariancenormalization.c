/* MeanVarianceNormalization: (x - mean) / sqrt(variance) over the named axes; 1e-9 is added to the deviation. */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {{"axes", 'I', "0, 2, 3", "axes to normalise over"}, {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    const kn_attr *axes = kn_attr_get(c, "axes");
    static const int64_t usual[] = {0, 2, 3};
    int rank = c->in[0].rank, n = axes ? axes->n : 3;
    uint32_t gone = 0;
    for (int i = 0; i < n; i++) {
        int at;
        if (!kn_op_axis(c, "axes", axes ? axes->list[i] : usual[i], rank, &at)) return c->d->status;
        gone |= 1u << at;
    }
    kn_reduction r = {.gone = gone};
    kn_buf b;
    kn_buf_init(&b, c->arena);
    for (int i = 0; i < rank; i++)
        if (!(gone >> i & 1)) kn_putf(&b, "%sA%d", b.n ? "," : "", i);
    kiln_bytes kept = kn_buf_take(&b);
    const char *rows = kept.p ? kept.p : "", *all = kn_op_axes(c, "A", rank), *x = kn_op_read(c, 0, all), *wide = kn_op_wide(c);
    double count = kn_op_reduce_count(c, &r);
    kn_putf(&c->text, "s[%s] +=! %s%s; u[%s] = s[%s] / ", rows, x, wide, rows, rows);
    kn_put_double(&c->text, count);
    kn_putf(&c->text, "%s; q[%s] +=! (%s - u[%s]) * (%s - u[%s])%s; y[%s] = (%s - u[%s]) / (sqrt(q[%s] / ", wide, rows, x, rows, x, rows,
            wide, all, x, rows, rows);
    kn_put_double(&c->text, count);
    kn_put(&c->text, ") + 1e-9)");
    kn_op_end(c);
    return KILN_OK;
}

const kn_op_spec kn_op_meanvariancenormalization = {.name = "MeanVarianceNormalization",
                                                    .min_inputs = 1,
                                                    .max_inputs = 1,
                                                    .input_names = {"X"},
                                                    .dtypes = "f",
                                                    .about = "mean 0 and variance 1 over the named axes",
                                                    .attrs = attrs,
                                                    .lower = lower};
