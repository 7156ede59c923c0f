/* Rule of RotaryEmbedding (opset 23 on): pairs of elements of every head turned by angles of their position, x1 * cos - x2 * sin and
 * x1 * sin + x2 * cos; pairs are halves of the head or neighbours, and elements behind rotary_embedding_dim stay. */
#include "graph/settle.h"

/* [..., n] as one axis more: [..., n, 1] */
static int column(kn_settle *s, int v)
{
    if (v < 0) return -1;
    const kn_value *x = &s->g->values[v];
    int64_t shape[KILN_MAX_RANK];
    int rank = x->rank;
    for (int i = 0; i < rank; i++) shape[i] = x->shape[i];
    shape[rank] = 1;
    return kn_emit_reshape(s, v, rank + 1, shape);
}

/* cos or sin as [batch or 1, steps, 1, half]. */
static int angles(kn_raw *r, int input, int64_t half, int64_t steps)
{
    int v = r->in[input];
    kn_gattr axis = kn_gattr_int("axis", 0);
    if (kn_raw_in(r, 3)) v = kn_emit(r->s, "Gather", 2, (int[]){v, kn_emit_cast(r->s, r->in[3], KN_I64)}, 1, &axis);
    if (v < 0) return -1;
    const kn_value *x = &r->s->g->values[v];
    int64_t batch = x->rank == 3 ? x->shape[0] : 1, shape[4] = {batch, steps, 1, half};
    if (kn_value_elems(x) != batch * steps * half) {
        kn_raw_bad(r, KILN_SHAPE, "input %d does not hold %lld angles for each of %lld steps", input, (long long)half, (long long)steps);
        return -1;
    }
    return kn_emit_reshape(r->s, v, 4, shape);
}

/* x: [batch, steps, heads, size]; cos, sin: [batch or 1, steps, 1, dim/2]. */
static int rotated(kn_settle *s, int x, int64_t dim, bool neighbours, int cos, int sin)
{
    int64_t size = s->g->values[x].shape[3], half = dim / 2, shape[4];
    for (int i = 0; i < 4; i++) shape[i] = i == 3 ? dim : s->g->values[x].shape[i];
    int a = neighbours ? kn_emit_slice(s, x, 3, 0, dim, 2) : kn_emit_slice(s, x, 3, 0, half, 1);
    int b = neighbours ? kn_emit_slice(s, x, 3, 1, dim, 2) : kn_emit_slice(s, x, 3, half, dim, 1);
    int parts[2] = {kn_emit2(s, "Sub", kn_emit2(s, "Mul", cos, a), kn_emit2(s, "Mul", sin, b)),
                    kn_emit2(s, "Add", kn_emit2(s, "Mul", sin, a), kn_emit2(s, "Mul", cos, b))};
    if (neighbours) parts[0] = column(s, parts[0]), parts[1] = column(s, parts[1]);
    if (parts[0] < 0 || parts[1] < 0) return -1;
    int y = kn_emit_concat(s, 2, parts, neighbours ? 4 : 3);
    if (neighbours) y = kn_emit_reshape(s, y, 4, shape);
    if (y < 0 || dim == size) return y;
    int all[2] = {y, kn_emit_slice(s, x, 3, dim, size, 1)};
    return all[1] < 0 ? -1 : kn_emit_concat(s, 2, all, 3);
}

kiln_status kn_rule_rotaryembedding(kn_raw *r)
{
    static const int swap[4] = {0, 2, 1, 3};
    const kn_value *x = kn_raw_in(r, 0);
    if (!x || !kn_raw_in(r, 1) || !kn_raw_in(r, 2) || (x->rank != 3 && x->rank != 4))
        return kn_raw_bad(r, KILN_SHAPE, "an input of rank 3 or 4 and two caches are right");
    bool flat = x->rank == 3;
    int64_t shape[3] = {x->shape[0], x->shape[1], x->shape[2]}, heads = flat ? kn_raw_int(r, "num_heads", 0) : x->shape[1];
    if (heads < 1 || (flat && x->shape[2] % heads)) return kn_raw_bad(r, KILN_REQUEST, "\"num_heads\" must divide the last dimension");
    int64_t size = flat ? x->shape[2] / heads : x->shape[3], steps = flat ? x->shape[1] : x->shape[2];
    int64_t dim = kn_raw_int(r, "rotary_embedding_dim", 0), split[4] = {x->shape[0], steps, heads, size};
    dim = dim ? dim : size;
    if (dim < 2 || dim > size || dim % 2)
        return kn_raw_bad(r, KILN_REQUEST, "%lld of %lld elements cannot be turned", (long long)dim, (long long)size);
    int v = flat ? kn_emit_reshape(r->s, r->in[0], 4, split) : kn_emit_transpose(r->s, r->in[0], swap);
    int cos = angles(r, 1, dim / 2, steps), sin = angles(r, 2, dim / 2, steps);
    if (v < 0 || cos < 0 || sin < 0) return r->s->d->status;
    int y = rotated(r->s, v, dim, kn_raw_int(r, "interleaved", 0) != 0, cos, sin);
    return kn_raw_out(r, 0, y < 0 ? -1 : flat ? kn_emit_reshape(r->s, y, 3, shape) : kn_emit_transpose(r->s, y, swap));
}

/* com.microsoft's: (input, position ids, cos, sin), where one id is the position of the first step. */
kiln_status kn_rule_ms_rotaryembedding(kn_raw *r)
{
    for (int i = 0; i < 4; i++)
        if (!kn_raw_in(r, i)) return kn_raw_bad(r, KILN_REQUEST, "input %d is mandatory", i);
    const kn_value *x = kn_raw_in(r, 0), *cos = kn_raw_in(r, 2);
    if (kn_raw_float(r, "scale", 1) != 1 || kn_raw_int(r, "is_packed_batching", 0))
        return kn_raw_bad(r, KILN_UNSUPPORTED, "\"scale\" 1 and batches that are not packed are right");
    if ((x->rank != 3 && x->rank != 4) || cos->rank != 2) return kn_raw_bad(r, KILN_SHAPE, "an input of rank 3 or 4 and caches of rank 2 are right");
    int64_t steps = x->shape[x->rank - 2], shape[2] = {x->shape[0], steps}, dim = kn_raw_int(r, "rotary_embedding_dim", 0);
    int64_t heads = kn_raw_int(r, "num_heads", 0), *places = kn_array(r->s->a, int64_t, steps + 1);
    if (x->rank == 3 && !heads && !dim && cos->shape[1]) heads = x->shape[2] / (2 * cos->shape[1]); /* a head is as long as its angles say */
    int at = kn_emit_cast(r->s, r->in[1], KN_I64);
    if (at >= 0 && kn_value_elems(kn_raw_in(r, 1)) == 1) {
        for (int64_t i = 0; places && i < steps; i++) places[i] = i;
        int row = kn_emit_constant(r->s, KN_I64, 1, &steps, places, (size_t)steps * 8, false);
        kn_gattr to = kn_gattr_ints(r->s->a, "shape", 2, shape);
        at = row < 0 ? -1 : kn_emit2(r->s, "Add", row, kn_emit_reshape(r->s, at, 0, NULL));
        at = at < 0 ? -1 : kn_emit(r->s, "Expand", 1, &at, 1, &to);
    }
    if (at < 0) return r->s->d->status;
    kn_gattr attrs[] = {kn_gattr_int("num_heads", heads), kn_gattr_int("rotary_embedding_dim", dim),
                        kn_gattr_int("interleaved", kn_raw_int(r, "interleaved", 0))};
    kn_node n = *r->n;
    kn_raw plain = *r;
    n.attrs = attrs, n.nattrs = 3;
    plain.n = &n, plain.nin = 4, plain.in = (int[]){r->in[0], r->in[2], r->in[3], at};
    return kn_rule_rotaryembedding(&plain);
}
