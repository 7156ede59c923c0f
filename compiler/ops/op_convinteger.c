/* ConvInteger: convolution of 8-bit tensors in 32-bit integers, each less its zero point; padding counts as the zero point. */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {KN_WINDOW_ATTRS,
                                     {"group", 'i', "1", "groups of channels"},
                                     {"pad_value", 'i', "0", "what padding counts as where there is no zero point of x"},
                                     {NULL, 0, NULL, NULL}};

static kiln_status zero_point(kn_op_call *c, int input, int64_t channels, const char **index)
{
    const kn_operand *z = &c->in[input], *x = &c->in[input - 2];
    bool one = !z->rank || (z->rank == 1 && z->shape[0] == 1);
    if (z->dtype != x->dtype)
        return kn_fail_at(c->d, KILN_DTYPE, input == 2 ? "/inputs/2/dtype" : "/inputs/3/dtype", "the zero point is %s but its tensor %s",
                          kn_dtype_text(z->dtype), kn_dtype_text(x->dtype));
    if (!one && (!channels || z->rank != 1 || z->shape[0] != channels))
        return kn_op_bad_shape(c, input, channels ? "one number or one an output channel is right" : "one number is right");
    *index = !z->rank ? "" : one ? "0" : "F";
    return KILN_OK;
}

static kiln_status lower(kn_op_call *c)
{
    kn_window win = {.from = "x0", .as = "i32"};
    kiln_status s = KILN_OK;
    const char *index = "";
    win.outside = c->in[2].present ? 0 : kn_attr_int(c, "pad_value", 0);
    if (c->in[0].dtype == KN_U8 ? win.outside < 0 || win.outside > 255 : win.outside < -128 || win.outside > 127)
        return kn_op_bad_attr(c, "pad_value", "%lld is no %s", (long long)win.outside, kn_dtype_text(c->in[0].dtype));
    for (int i = 0; i < 2; i++)
        if (kn_dtype_bytes(c->in[i].dtype) != 1)
            return kn_fail_at(c->d, KILN_DTYPE, i ? "/inputs/1/dtype" : "/inputs/0/dtype", "ConvInteger takes i8 and u8");
    if (c->in[2].present) {
        if ((s = zero_point(c, 2, 0, &index)) != KILN_OK) return s;
        const char *all = kn_op_axes(c, "A", c->in[0].rank);
        kn_putf(&c->text, "u[%s] = cast(x0[%s],i32) - cast(x2[%s],i32); ", all, all, index);
        win.from = "u";
    }
    if (c->in[3].present) {
        if ((s = zero_point(c, 3, c->in[1].rank ? c->in[1].shape[0] : 1, &index)) != KILN_OK) return s;
        win.less = kn_format(c->arena, "cast(x3[%s],i32)", index);
    }
    return kn_op_convolve(c, "y", &win);
}

const kn_op_spec kn_op_convinteger = {.name = "ConvInteger", .min_inputs = 2, .max_inputs = 4,
                                      .input_names = {"x", "w", "x_zero_point", "w_zero_point"}, .dtypes = "iu",
                                      .input_dtypes = {NULL, "iu", "iu", "iu"},
                                      .about = "convolution of i8 and u8 in i32, less zero points", .attrs = attrs,
                                      .lower = lower};
