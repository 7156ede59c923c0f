/* FusedConv: act((Conv(X, W) + B) * S + T): a convolution with what follows it in inference, a folded normalisation and an activation. */
#include "ops/ops.h"
#include <string.h>

static const kn_attr_spec attrs[] = {KN_WINDOW_ATTRS,
                                     {"group", 'i', "1", "groups of channels"},
                                     {"activation", 's', "Relu", "Relu or Identity"},
                                     {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    static const char *const before[] = {" + ", " * ", " + "};
    const char *act = kn_attr_str(c, "activation", "Relu");
    bool relu = !strcmp(act, "Relu");
    if (!relu && strcmp(act, "Identity")) return kn_op_bad_attr(c, "activation", "\"%s\" is neither Relu nor Identity", act);
    kn_window win = {0};
    kiln_status s = kn_op_convolve(c, "t", &win);
    for (int i = 2; i < 5 && s == KILN_OK; i++) s = kn_op_per_channel(c, i, c->in[1].shape[0]);
    if (s != KILN_OK) return s;
    const char *out = kn_op_axes(c, "P", win.n);
    kn_putf(&c->text, "%s; y[N,F,%s] = %s", kn_op_wide(c), out, relu ? "max(" : "");
    if (c->in[3].present && c->in[2].present) kn_put(&c->text, "(");
    kn_putf(&c->text, "t[N,F,%s]", out);
    for (int i = 2; i < 5; i++) {
        if (!c->in[i].present) continue;
        kn_put(&c->text, before[i - 2]);
        kn_op_load(c, i, "F");
        if (i == 2 && c->in[3].present) kn_put(&c->text, ")");
    }
    if (relu) kn_put(&c->text, ", 0.0)");
    kn_op_end(c);
    return KILN_OK;
}

const kn_op_spec kn_op_fusedconv = {.name = "FusedConv", .min_inputs = 2, .max_inputs = 5, .input_names = {"X", "W", "B", "S", "T"},
                                    .dtypes = "f", .about = "convolution, bias, scale and offset a channel, activation", .attrs = attrs,
                                    .lower = lower};
