/* Cast: another dtype. Floats to integers truncate; to bool: whether it is not zero. */
#include "ops/ops.h"
#include <string.h>

static const kn_attr_spec attrs[] = {{"to", 's', "mandatory", "dtype of the result"}, {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    enum kn_dtype t;
    const char *to = kn_attr_str(c, "to", ""), *all = kn_op_axes(c, "A", c->in[0].rank);
    if (!kn_dtype_find(to, strlen(to), &t)) {
        kn_op_bad_attr(c, "to", "no dtype \"%.40s\"", to);
        kn_hint(c->d, "f32, f64, f16, bf16, f8e4m3, f8e5m2, i64, i32, i16, i8, u8, bool");
        return c->d->status;
    }
    const char *zero = kn_dtype_class(c->in[0].dtype) == 'f' ? "0.0" : "0";
    if (t == c->in[0].dtype)
        kn_putf(&c->text, "y[%s] = x0[%s]", all, all);
    else if (t == KN_BOOL)
        kn_putf(&c->text, "y[%s] = x0[%s] != %s", all, all, zero);
    else
        kn_putf(&c->text, "y[%s] = cast(x0[%s], %s)", all, all, kn_dtype_text(t));
    return KILN_OK;
}

const kn_op_spec kn_op_cast = {.name = "Cast",
                               .min_inputs = 1,
                               .max_inputs = 1,
                               .input_names = {"input"},
                               .dtypes = "fiub",
                               .about = "another dtype",
                               .attrs = attrs,
                               .lower = lower};
