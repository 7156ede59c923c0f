/* Clip: elements below a least value or above a greatest one become that; bounds are scalars, as inputs or as attributes. */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {{"min", 'f', "none", "least value, where input min is left out"},
                                     {"max", 'f', "none", "greatest value, where input max is left out"},
                                     {NULL, 0, NULL, NULL}};

/* Text of bound k ("min" 1, "max" 2); NULL without one. */
static const char *bound(kn_op_call *c, int k)
{
    const char *name = k == 1 ? "min" : "max";
    if (k < c->ninputs && c->in[k].present) return kn_op_read(c, k, c->in[k].rank ? "0" : "");
    if (!kn_attr_get(c, name)) return NULL;
    kn_buf b;
    kn_buf_init(&b, c->arena);
    double x = kn_attr_float(c, name, 0);
    if (kn_dtype_class(c->in[0].dtype) == 'f')
        kn_put_double(&b, x);
    else
        kn_putf(&b, "%lld", (long long)x);
    return kn_buf_take(&b).p;
}

static kiln_status lower(kn_op_call *c)
{
    for (int k = 1; k < c->ninputs; k++)
        if (c->in[k].present && (c->in[k].rank > 1 || (c->in[k].rank == 1 && c->in[k].shape[0] != 1)))
            return kn_op_bad_shape(c, k, "must be a scalar");
    const char *all = kn_op_axes(c, "A", c->in[0].rank), *t = kn_op_read(c, 0, all), *low = bound(c, 1), *high = bound(c, 2);
    if (low) t = kn_format(c->arena, "max(%s, %s)", t, low);
    if (high) t = kn_format(c->arena, "min(%s, %s)", t, high);
    if (!t) return kn_fail(c->d, KILN_MEMORY, "out of memory");
    kn_putf(&c->text, "y[%s] = %s", all, t);
    kn_op_end(c);
    return KILN_OK;
}

const kn_op_spec kn_op_clip = {.name = "Clip",
                               .min_inputs = 1,
                               .max_inputs = 3,
                               .input_names = {"input", "min", "max"},
                               .dtypes = "fiu",
                               .about = "elements brought between a least and a greatest value",
                               .attrs = attrs,
                               .lower = lower};
