/* ScatterElements: data with updates put along one axis at the places that indices name. */
#include "ops/ops.h"

typedef struct places { int axis; bool smaller; } places;

/* Axes of data, along the axis at `at`. */
static const char *index_of(kn_op_call *c, const places *p, const char *at)
{
    kn_buf b;
    kn_buf_init(&b, c->arena);
    for (int i = 0; i < c->in[0].rank; i++) {
        if (i == p->axis) kn_putf(&b, "%s%s", i ? "," : "", at);
        else kn_putf(&b, "%sA%d", i ? "," : "", i);
    }
    kiln_bytes t = kn_buf_take(&b);
    return t.p ? t.p : "";
}

/* Update number `number` along the axis; NULL: that of the loop. Outside of the updates there is none that matches. */
static const char *update(kn_op_call *c, const void *state, const char *number)
{
    const places *p = state;
    const char *index = index_of(c, p, number ? number : "I"), *half = *kn_op_wide(c) ? "cast(" : "";
    const char *t = p->smaller ? kn_format(c->arena, "%spad(x2, 0)[%s]%s", half, index, *half ? ", f32)" : "") : kn_op_read(c, 2, index);
    return t ? t : "";
}

static kiln_status lower(kn_op_call *c)
{
    const kn_operand *x = &c->in[0], *at = &c->in[1], *u = &c->in[2];
    places p = {0, false};
    if (!x->rank || at->rank != x->rank) return kn_op_bad_shape(c, 1, "rank %d; that of data, %d, is right", at->rank, x->rank);
    if (u->rank != at->rank) return kn_op_bad_shape(c, 2, "rank %d; that of indices, %d, is right", u->rank, at->rank);
    if (!kn_op_axis(c, "axis", kn_attr_int(c, "axis", 0), x->rank, &p.axis)) return c->d->status;
    for (int i = 0; i < x->rank; i++) {
        if (u->shape[i] != at->shape[i]) return kn_op_bad_shape(c, 2, "dimension %d must be that of indices, %lld", i, (long long)at->shape[i]);
        if (i != p.axis && at->shape[i] > x->shape[i])
            return kn_op_bad_shape(c, 1, "dimension %d is %lld but data has %lld", i, (long long)at->shape[i], (long long)x->shape[i]);
        p.smaller |= i != p.axis && at->shape[i] < x->shape[i];
    }
    long long n = x->shape[p.axis], m = at->shape[p.axis];
    const char *index = index_of(c, &p, "I");
    const char *v = p.smaller ? kn_format(c->arena, "pad(x1, %lld)[%s]", n, index) : kn_format(c->arena, "x1[%s]", index);
    kn_scatter s = {.updates = (double)m, .reduces = true, .update = update, .state = &p, .number = "I"};
    s.extents = kn_format(c->arena, "I in %lld", m);
    s.match = kn_format(c->arena, "%s == A%d || %s + %lld == A%d", v, p.axis, v, n, p.axis);
    return s.match && s.extents ? kn_op_scatter(c, &s) : KILN_MEMORY;
}

const kn_op_spec kn_op_scatterelements = {.name = "ScatterElements", .min_inputs = 3, .max_inputs = 3,
                                          .input_names = {"data", "indices", "updates"}, .dtypes = "fiub", .input_dtypes = {NULL, "i", NULL},
                                          .about = "data with updates put along one axis at the places that indices name",
                                          .attrs = kn_scatter_attrs, .lower = lower};
