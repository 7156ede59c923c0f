/* CumProd: products of all elements up to each, along one axis: a product under a condition, n multiplications an element. */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {{"axis", 'i', "mandatory", "axis to multiply along; negative counts from the end"},
                                     {"exclusive", 'i', "0", "1: without the element itself"},
                                     {"reverse", 'i', "0", "1: from the end"},
                                     {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    int rank = c->in[0].rank, axis;
    if (!rank) return kn_op_bad_shape(c, 0, "a scalar has no axis; rank 1 or more is right");
    if (!kn_attr_get(c, "axis")) return kn_op_bad_attr(c, "axis", "\"axis\" is mandatory");
    if (!kn_op_axis(c, "axis", kn_attr_int(c, "axis", 0), rank, &axis)) return c->d->status;
    bool exclusive = kn_attr_int(c, "exclusive", 0) != 0, reverse = kn_attr_int(c, "reverse", 0) != 0;
    kn_buf at;
    kn_buf_init(&at, c->arena);
    for (int i = 0; i < rank; i++) kn_putf(&at, i == axis ? "%sI" : "%sA%d", i ? "," : "", i);
    kiln_bytes t = kn_buf_take(&at);
    const char *one = kn_dtype_class(c->in[0].dtype) == 'f' ? "1.0" : "1", *compare = reverse     ? exclusive ? ">" : ">="
                                                                                      : exclusive ? "<"
                                                                                                  : "<=";
    kn_putf(&c->text, "y[%s] *=! select(I %s A%d, %s, %s)", kn_op_axes(c, "A", rank), compare, axis, kn_op_read(c, 0, t.p ? t.p : ""), one);
    kn_op_extents(c, "A", rank, c->in[0].shape);
    kn_op_end(c);
    return KILN_OK;
}

const kn_op_spec kn_op_cumprod = {.name = "CumProd",
                                  .min_inputs = 1,
                                  .max_inputs = 1,
                                  .input_names = {"x"},
                                  .dtypes = "fi",
                                  .about = "prefix products along one axis",
                                  .attrs = attrs,
                                  .lower = lower};
