/* GroupedLinear: a fully connected layer in groups: each group of outputs sees its group of inputs only. Not in ONNX (Conv of one pixel). */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {{"group", 'i', "1", "groups of inputs and outputs"}, {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    const kn_operand *x = &c->in[0], *w = &c->in[1];
    int64_t group = kn_attr_int(c, "group", 1);
    if (x->rank != 2) return kn_op_bad_shape(c, 0, "rank %d; [N, I] is right", x->rank);
    if (w->rank != 2) return kn_op_bad_shape(c, 1, "rank %d; [O, I / group] is right", w->rank);
    if (group < 1 || x->shape[1] % group || w->shape[0] % group)
        return kn_op_bad_attr(c, "group", "%lld does not divide %lld inputs and %lld outputs", (long long)group, (long long)x->shape[1],
                              (long long)w->shape[0]);
    int64_t cg = x->shape[1] / group;
    if (w->shape[1] != cg) return kn_op_bad_shape(c, 1, "W has %lld inputs a group; %lld are right", (long long)w->shape[1], (long long)cg);
    kiln_status s = kn_op_per_channel(c, 2, w->shape[0]);
    if (s != KILN_OK) return s;
    bool bias = c->in[2].present;
    kn_buf b;
    kn_buf_init(&b, c->arena);
    kn_put(&b, "N,");
    kn_op_channel(&b, group, cg, w->shape[0] / group);
    kiln_bytes at = kn_buf_take(&b);
    kn_putf(&c->text, "%s[N,F] +=! ", bias ? "t" : "y");
    kn_op_load(c, 0, at.p ? at.p : "");
    kn_put(&c->text, " * ");
    kn_op_load(c, 1, cg == 1 && group > 1 ? "F,0" : "F,C");
    if (bias) {
        kn_putf(&c->text, "%s; y[N,F] = t[N,F] + ", kn_op_wide(c));
        kn_op_load(c, 2, "F");
    }
    kn_op_end(c);
    return KILN_OK;
}

const kn_op_spec kn_op_groupedlinear = {.name = "GroupedLinear", .min_inputs = 2, .max_inputs = 3, .input_names = {"X", "W", "B"},
                                        .dtypes = "f", .about = "fully connected layer in groups", .attrs = attrs, .lower = lower};
