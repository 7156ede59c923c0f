/* Families of operators that broadcast, compare, choose and normalise, and what their texts are made of. */
#include "ops/ops.h"
#include <string.h>

const char *kn_op_read(kn_op_call *c, int input, const char *index)
{
    enum kn_dtype t = c->in[input].dtype;
    bool half = kn_dtype_acc(t) != t && kn_dtype_class(t) == 'f';
    const char *text = kn_format(c->arena, half ? "cast(x%d[%s],f32)" : "x%d[%s]", input, index);
    return text ? text : "";
}

const char *kn_op_fraction(const kn_op_call *c)
{
    enum kn_dtype t = c->in[0].dtype;
    if (kn_dtype_class(t) == 'f') return kn_dtype_text(kn_dtype_acc(t));
    return kn_dtype_bytes(t) < 4 ? "f32" : "f64";
}

const char *kn_op_read_fraction(kn_op_call *c, int input, const char *index)
{
    const char *as = kn_op_fraction(c), *own = kn_dtype_text(c->in[input].dtype);
    const char *text = strcmp(as, own) ? kn_format(c->arena, "cast(x%d[%s],%s)", input, index, as) : kn_format(c->arena, "x%d[%s]", input, index);
    return text ? text : "";
}

void kn_op_put_range(kn_op_call *c, enum kn_dtype t)
{
    bool negative = kn_dtype_class(t) == 'i';
    int bits = 8 * kn_dtype_bytes(t) - negative;
    unsigned long long high = bits < 63 ? (1ULL << bits) - 1 : bits == 63 ? 9223372036854774784ULL : 18446744073709549568ULL;
    kn_putf(&c->text, ", %lld.0), %llu.0)", negative ? -(long long)high - (bits < 63) : 0LL, high);
}

const char *kn_op_axes_but(kn_op_call *c, const char *prefix, int n, int but)
{
    kn_buf b;
    kn_buf_init(&b, c->arena);
    for (int i = 0; i < n; i++)
        if (i != but) kn_putf(&b, "%s%s%d", b.n ? "," : "", prefix, i);
    kiln_bytes t = kn_buf_take(&b);
    return t.p ? t.p : "";
}

const char *kn_op_others(kn_op_call *c, int from, int to, bool before)
{
    kn_buf b;
    kn_buf_init(&b, c->arena);
    for (int i = from; i < to; i++) kn_putf(&b, before ? "A%d," : ",A%d", i);
    kiln_bytes t = kn_buf_take(&b);
    return t.p ? t.p : "";
}

kiln_status kn_op_common_shape(kn_op_call *c, int from, int to, int64_t *shape, int *rank)
{
    *rank = 0;
    for (int k = from; k < to; k++) *rank = c->in[k].rank > *rank ? c->in[k].rank : *rank;
    for (int i = 0; i < *rank; i++) shape[i] = 1;
    for (int k = from; k < to; k++)
        for (int i = 0; i < c->in[k].rank; i++) {
            int at = i + *rank - c->in[k].rank;
            int64_t n = c->in[k].shape[i];
            if (n != 1 && shape[at] != 1 && n != shape[at])
                return kn_op_bad_shape(c, k, "dimensions %lld and %lld (axis %d of the result) do not broadcast", (long long)shape[at],
                                       (long long)n, at);
            if (n != 1) shape[at] = n;
        }
    return KILN_OK;
}

void kn_op_extents(kn_op_call *c, const char *prefix, int rank, const int64_t *shape)
{
    for (int i = 0; i < rank; i++) kn_putf(&c->text, "%s%s%d in %lld", i ? ", " : " where ", prefix, i, (long long)shape[i]);
}

kiln_status kn_op_compare(kn_op_call *c, const char *op)
{
    int rank;
    int64_t shape[KILN_MAX_RANK];
    kiln_status s = kn_op_common_shape(c, 0, 2, shape, &rank);
    if (s != KILN_OK) return s;
    kn_putf(&c->text, "y[%s] = x0[%s] %s ", kn_op_axes(c, "A", rank), kn_op_broadcast(c, 0, "A", rank), op);
    kn_putf(&c->text, "x1[%s]", kn_op_broadcast(c, 1, "A", rank));
    kn_op_extents(c, "A", rank, shape);
    return KILN_OK;
}

kiln_status kn_op_bits(kn_op_call *c, const char *body)
{
    int rank;
    int64_t shape[KILN_MAX_RANK];
    kiln_status s = kn_op_common_shape(c, 0, 2, shape, &rank);
    if (s != KILN_OK || !body) return s != KILN_OK ? s : KILN_MEMORY;
    const char *at[2] = {kn_op_broadcast(c, 0, "A", rank), kn_op_broadcast(c, 1, "A", rank)};
    kn_putf(&c->text, "y[%s] = ", kn_op_axes(c, "A", rank));
    for (size_t n; n = strcspn(body, "#@"), body[n]; body += n + 1) {
        kn_putn(&c->text, body, n);
        kn_putf(&c->text, body[n] == '#' ? "x0[%s]" : "x1[%s]", at[body[n] != '#']);
    }
    kn_put(&c->text, body);
    kn_op_extents(c, "A", rank, shape);
    return KILN_OK;
}

kiln_status kn_op_test(kn_op_call *c, const char *body)
{
    const char *axes = kn_op_axes(c, "A", c->in[0].rank), *hole;
    kn_putf(&c->text, "y[%s] = ", axes);
    for (; (hole = strstr(body, "%s")); body = hole + 2) {
        kn_putn(&c->text, body, (size_t)(hole - body));
        kn_op_load(c, 0, axes);
    }
    kn_put(&c->text, body);
    return KILN_OK;
}

kiln_status kn_op_variadic(kn_op_call *c, const char *fn, bool mean)
{
    int rank;
    int64_t shape[KILN_MAX_RANK];
    for (int k = 0; k < c->ninputs; k++)
        if (!c->in[k].present) return kn_fail_at(c->d, KILN_REQUEST, "/inputs", "input %d is left out", k);
    kiln_status s = kn_op_common_shape(c, 0, c->ninputs, shape, &rank);
    if (s != KILN_OK) return s;
    kn_putf(&c->text, "y[%s] = %s", kn_op_axes(c, "A", rank), mean ? "(" : "");
    for (int k = c->ninputs - 1; fn && k > 0; k--) kn_putf(&c->text, "%s(", fn);
    for (int k = 0; k < c->ninputs; k++) {
        if (k) kn_put(&c->text, fn ? ", " : " + ");
        kn_op_load(c, k, kn_op_broadcast(c, k, "A", rank));
        if (k && fn) kn_put(&c->text, ")");
    }
    if (mean) kn_putf(&c->text, ") / %d.0", c->ninputs);
    kn_op_extents(c, "A", rank, shape);
    kn_op_end(c);
    return KILN_OK;
}

const kn_attr_spec kn_arg_attrs[] = {{"axis", 'i', "0", "axis to search along"},
                                     {"keepdims", 'i', "1", "1 keeps the axis with size 1"},
                                     {"select_last_index", 'i', "0", "1: the last of equal elements"},
                                     {NULL, 0, NULL, NULL}};

kiln_status kn_op_arg(kn_op_call *c, const char *assign)
{
    int rank = c->in[0].rank, axis;
    if (!rank) return kn_op_bad_shape(c, 0, "a scalar has no axis; rank 1 or more is right");
    if (!kn_op_axis(c, "axis", kn_attr_int(c, "axis", 0), rank, &axis)) return c->d->status;
    bool last = kn_attr_int(c, "select_last_index", 0) != 0;
    kn_reduction r = {.gone = 1u << axis, .keepdims = kn_attr_int(c, "keepdims", 1) != 0};
    const char *rows = kn_op_axes_but(c, "A", rank, axis), *all = kn_op_axes(c, "A", rank), *x = kn_op_read(c, 0, all);
    kn_putf(&c->text, "m[%s] %s %s%s; ", rows, assign, x, kn_op_wide(c));
    kn_op_reduce_left(c, "y", &r, r.keepdims);
    /* 32 bits hold every index, twice as many of them in a vector */
    kn_putf(&c->text, " %s select(%s == m[%s], cast(A%d,i32), cast(%lld,i32))", last ? ">=!" : "<=!", x, rows, axis,
            last ? -1LL : (long long)c->in[0].shape[axis]);
    kn_op_reduce_where(c, &r, r.keepdims);
    kn_put(&c->text, " : i64");
    return KILN_OK;
}

kiln_status kn_op_normalised(kn_op_call *c, const char *all, const char *rows, const char *at, double count, const char *scale,
                             const char *bias)
{
    const char *wide = kn_op_wide(c);
    kn_putf(&c->text, "r[%s] = rsqrt(q[%s] / ", rows, rows);
    kn_put_double(&c->text, count);
    kn_put(&c->text, " + ");
    kn_put_double(&c->text, kn_attr_float(c, "epsilon", 1e-5));
    kn_putf(&c->text, ")%s; y[%s] = (%s - u[%s]) * r[%s] * ", wide, all, kn_op_read(c, 0, all), at, at);
    kn_op_load(c, 1, scale);
    kn_put(&c->text, " + ");
    kn_op_load(c, 2, bias);
    kn_op_end(c);
    return KILN_OK;
}

kiln_status kn_op_normalise(kn_op_call *c, const char *all, const char *rows, const char *at, double count, const char *scale,
                            const char *bias)
{
    const char *x = kn_op_read(c, 0, all), *wide = kn_op_wide(c);
    kn_putf(&c->text, "s[%s] +=! %s%s; u[%s] = s[%s] / ", rows, x, wide, rows, rows);
    kn_put_double(&c->text, count);
    kn_putf(&c->text, "%s; q[%s] +=! (%s - u[%s]) * (%s - u[%s])%s; ", wide, rows, x, rows, x, rows, wide);
    return kn_op_normalised(c, all, rows, at, count, scale, bias);
}

kiln_status kn_op_scale_index(kn_op_call *c, int x, int scale, const char **out)
{
    const kn_operand *v = &c->in[x], *s = &c->in[scale];
    int axis = 0;
    int64_t block = kn_attr_int(c, "block_size", 0);
    bool one = s->rank == 0 || (s->rank == 1 && s->shape[0] == 1);
    *out = s->rank ? "0" : "";
    if (one) return KILN_OK;
    if (!kn_op_axis(c, "axis", kn_attr_int(c, "axis", 1), v->rank, &axis)) return c->d->status;
    if (block < 0 || (!block && (s->rank != 1 || s->shape[0] != v->shape[axis])))
        return kn_op_bad_shape(c, scale, "must be a scalar, or one number for each of %lld along axis %d", (long long)v->shape[axis], axis);
    *out = kn_format(c->arena, "A%d", axis);
    if (!block) return *out ? KILN_OK : kn_fail(c->d, KILN_MEMORY, "out of memory");
    kn_buf b;
    kn_buf_init(&b, c->arena);
    for (int i = 0; i < v->rank; i++) {
        int64_t want = i == axis ? kn_ceil_div(v->shape[i], block) : v->shape[i];
        if (s->rank != v->rank || s->shape[i] != want) return kn_op_bad_shape(c, scale, "dimension %d must be %lld", i, (long long)want);
        kn_putf(&b, i == axis ? "%sA%d // %lld" : "%sA%d", i ? "," : "", i, (long long)block);
    }
    kiln_bytes t = kn_buf_take(&b);
    *out = t.p;
    return t.p ? KILN_OK : kn_fail(c->d, KILN_MEMORY, "out of memory");
}
