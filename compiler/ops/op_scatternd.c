/* ScatterND: data with updates put at computed places; the last axis of indices holds the place. */
#include "ops/ops.h"

/* Update number `number` of all, row-major; NULL: that of the loops. */
static const char *update(kn_op_call *c, const void *state, const char *number)
{
    const kn_operand *x = &c->in[0], *at = &c->in[1];
    int depth = *(const int *)state, lead = at->rank - 1;
    int64_t step = 1;
    kn_buf b;
    kn_buf_init(&b, c->arena);
    for (int i = 0; i < lead; i++) step *= at->shape[i];
    for (int i = 0; i < lead; i++) {
        step /= at->shape[i];
        if (number) kn_putf(&b, "%s%s//%lld%%%lld", i ? "," : "", number, (long long)step, (long long)at->shape[i]);
        else kn_putf(&b, "%sI%d", i ? "," : "", i);
    }
    for (int i = depth; i < x->rank; i++) kn_putf(&b, "%sA%d", lead || i > depth ? "," : "", i);
    kiln_bytes t = kn_buf_take(&b);
    return kn_op_read(c, 2, t.p ? t.p : "");
}

/* Whether the indices at I0, I1 ... are those of the element, and the number of that update. */
static void loops(kn_op_call *c, int depth, kn_scatter *s)
{
    const kn_operand *x = &c->in[0], *at = &c->in[1];
    int lead = at->rank - 1;
    const char *places = kn_op_axes(c, "I", lead);
    kn_buf match, number, extents;
    kn_buf_init(&match, c->arena);
    kn_buf_init(&number, c->arena);
    kn_buf_init(&extents, c->arena);
    for (int i = 0; i < depth; i++) {
        const char *v = kn_format(c->arena, "x1[%s%s%d]", places, lead ? "," : "", i);
        kn_putf(&match, "%s(%s == A%d || %s + %lld == A%d)", i ? " && " : "", v ? v : "", i, v ? v : "", (long long)x->shape[i], i);
    }
    int64_t step = (int64_t)s->updates;
    for (int i = 0; i < lead; i++) {
        step /= at->shape[i];
        kn_putf(&number, "%sI%d*%lld", i ? " + " : "", i, (long long)step);
        kn_putf(&extents, "%sI%d in %lld", i ? ", " : "", i, (long long)at->shape[i]);
    }
    s->match = kn_buf_take(&match).p;
    s->number = lead ? kn_buf_take(&number).p : "0";
    s->extents = lead ? kn_buf_take(&extents).p : "";
}

static kiln_status lower(kn_op_call *c)
{
    const kn_operand *x = &c->in[0], *at = &c->in[1], *u = &c->in[2];
    if (!x->rank || !at->rank) return kn_op_bad_shape(c, at->rank ? 0 : 1, "a rank from 1 on is right");
    int64_t most = at->shape[at->rank - 1];
    if (most < 1 || most > x->rank) return kn_op_bad_shape(c, 1, "its last dimension names %lld axes; data has %d", (long long)most, x->rank);
    int depth = (int)most, lead = at->rank - 1, rank = lead + x->rank - depth;
    if (u->rank != rank) return kn_op_bad_shape(c, 2, "rank %d; %d is right", u->rank, rank);
    kn_scatter s = {.updates = 1, .reduces = lead > 0, .update = update, .state = &depth};
    for (int i = 0; i < rank; i++) {
        int64_t want = i < lead ? at->shape[i] : x->shape[depth + i - lead];
        if (u->shape[i] != want) return kn_op_bad_shape(c, 2, "dimension %d must be %lld", i, (long long)want);
        if (i < lead) s.updates *= (double)at->shape[i];
    }
    loops(c, depth, &s);
    return s.match && s.number && s.extents ? kn_op_scatter(c, &s) : KILN_MEMORY;
}

const kn_op_spec kn_op_scatternd = {.name = "ScatterND", .min_inputs = 3, .max_inputs = 3, .input_names = {"data", "indices", "updates"},
                                    .dtypes = "fiub", .input_dtypes = {NULL, "i", NULL}, .about = "data with updates put at computed places",
                                    .attrs = kn_scatter_attrs + 1, .lower = lower};
