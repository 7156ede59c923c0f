/* Tile: a tensor repeated along its axes. */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {{"repeats", 'I', "mandatory", "how often, one an axis"}, {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    const kn_operand *x = &c->in[0];
    const kn_attr *times = kn_attr_get(c, "repeats");
    int64_t shape[KILN_MAX_RANK];
    if (!times || times->n != x->rank) return kn_op_bad_attr(c, "repeats", "%d numbers are right, one an axis", x->rank);
    kn_putf(&c->text, "y[%s] = x0[", kn_op_axes(c, "A", x->rank));
    for (int i = 0; i < x->rank; i++) {
        if (times->list[i] < 1 || !kn_mul_fits(x->shape[i], times->list[i], &shape[i]) || shape[i] > KILN_MAX_EXTENT)
            return kn_op_bad_attr(c, "repeats", "%lld times %lld elements", (long long)times->list[i], (long long)x->shape[i]);
        if (i) kn_put(&c->text, ",");
        if (x->shape[i] == 1)
            kn_put(&c->text, "0");
        else if (times->list[i] == 1)
            kn_putf(&c->text, "A%d", i);
        else
            kn_putf(&c->text, "A%d %% %lld", i, (long long)x->shape[i]);
    }
    kn_put(&c->text, "]");
    kn_op_extents(c, "A", x->rank, shape);
    return KILN_OK;
}

const kn_op_spec kn_op_tile = {.name = "Tile",
                               .min_inputs = 1,
                               .max_inputs = 1,
                               .input_names = {"input"},
                               .dtypes = "fiub",
                               .about = "a tensor repeated along its axes",
                               .attrs = attrs,
                               .lower = lower};
