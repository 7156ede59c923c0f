/* The scatters, written as what every element of the result reads: of all updates those whose index is its own, which are put (the last one), added,
 * or compared with what was there. No two of them write one place, so any schedule will do, on any device; each element looks at every update that
 * could be its own. */
#include "ops/ops.h"
#include <string.h>

const kn_attr_spec kn_scatter_attrs[] = {{"axis", 'i', "0", "axis of data that indices name; of ScatterElements"},
                                         {"reduction", 's', "none", "none (of updates of one place the last), add, max or min"},
                                         {NULL, 0, NULL, NULL}};

static const double MOST = 0x1p36; /* comparisons in all */

kiln_status kn_op_scatter(kn_op_call *c, const kn_scatter *s)
{
    const kn_operand *x = &c->in[0];
    const char *how = kn_attr_str(c, "reduction", "none"), *a = kn_op_axes(c, "A", x->rank), *wide = kn_op_wide(c), *old = kn_op_read(c, 0, a);
    double work = s->updates;
    for (int i = 0; i < x->rank; i++) work *= (double)x->shape[i];
    if (work > MOST) {
        kn_op_bad_shape(c, 1, "every element of data is compared with %.0f indices, which is too much", s->updates);
        return c->d->status;
    }
    bool put = !strcmp(how, "none"), add = !strcmp(how, "add"), least = !strcmp(how, "min");
    if (!put && !add && !least && strcmp(how, "max")) return kn_op_bad_attr(c, "reduction", "\"%.40s\" is none of none, add, max, min", how);
    const char *update = put ? kn_format(c->arena, "%s + 1", s->number) : s->update(c, s->state, NULL), *bare = s->reduces ? "!" : "";
    const char *zero = put ? "0" : !add ? old : kn_dtype_class(x->dtype) == 'f' ? "0.0" : "0";
    const char *assign = !s->reduces ? "=" : add ? "+=" : least ? "<=" : ">=";
    kn_putf(&c->text, "p[%s] %s%s select(%s, %s, %s)", a, assign, bare, s->match, update ? update : "", zero);
    kn_op_extents(c, "A", x->rank, x->shape);
    kn_putf(&c->text, "%s%s%s; y[%s] = ", s->reduces ? ", " : "", s->extents, put ? "" : wide, a);
    if (put) kn_putf(&c->text, "select(p[%s] > 0, %s, %s)", a, s->update(c, s->state, kn_format(c->arena, "(p[%s] - 1)", a)), old);
    else if (add) kn_putf(&c->text, "%s + p[%s]", old, a);
    else kn_putf(&c->text, "%s(%s, p[%s])", least ? "min" : "max", old, a);
    kn_op_extents(c, "A", x->rank, x->shape);
    kn_op_end(c);
    return KILN_OK;
}
