/* The scatters: a copy of data, and a statement that puts every update at the place that the indices name, in their order. Sums and products of
 * halves are made in f32 and rounded once. */
#include "ops/ops.h"
#include <string.h>

const kn_attr_spec kn_scatter_attrs[] = {{"axis", 'i', "0", "axis of data that indices name; of ScatterElements"},
                                         {"reduction", 's', "none", "none (of updates of one place the last), add, mul, max or min"},
                                         {NULL, 0, NULL, NULL}};

const char *kn_op_scatter_index(kn_op_call *c, const char *at, int64_t extent)
{
    const char *t = kn_format(c->arena, "select(%s < 0, %s + %lld, %s)", at, at, (long long)extent, at);
    return t ? t : "0";
}

kiln_status kn_op_scatter(kn_op_call *c, const char *to, const char *from, const char *extents)
{
    static const struct { const char *name, *assign; bool wide; } how[] = {
        {"none", "=.", false}, {"add", "+=.", true}, {"mul", "*=.", true}, {"max", ">=.", false}, {"min", "<=.", false},
    };
    const kn_operand *x = &c->in[0];
    const char *name = kn_attr_str(c, "reduction", "none"), *a = kn_op_axes(c, "A", x->rank), *wide = kn_op_wide(c);
    size_t i = 0;
    while (i < sizeof how / sizeof *how && strcmp(how[i].name, name)) i++;
    if (i == sizeof how / sizeof *how) return kn_op_bad_attr(c, "reduction", "\"%.40s\" is none of none, add, mul, max, min", name);
    if (i && x->dtype == KN_BOOL) return kn_op_bad_attr(c, "reduction", "\"%s\" of bool; none is right", name);
    if (!how[i].wide || !*wide) {
        kn_putf(&c->text, "y[%s] = x0[%s]; y[%s] %s x2[%s]%s", a, a, to, how[i].assign, from, extents);
        return KILN_OK;
    }
    kn_putf(&c->text, "p[%s] = %s%s; ", a, kn_op_read(c, 0, a), wide);
    kn_putf(&c->text, "p[%s] %s %s%s; y[%s] = p[%s]", to, how[i].assign, kn_op_read(c, 2, from), extents, a, a);
    kn_op_end(c);
    return KILN_OK;
}
