/* Rules of com.microsoft's quantised operators, which onnxruntime's quantiser leaves in models: bytes to numbers, the operator, bytes again. */
#include "graph/settle.h"
#include <string.h>

/* A scale or zero point of one element as a scalar, whatever rank it was given. */
static int one(kn_settle *s, int v)
{
    if (v < 0) return -1;
    const kn_value *x = &s->g->values[v];
    return x->rank && kn_value_elems(x) == 1 ? kn_emit_reshape(s, v, 0, NULL) : v;
}

/* Inputs i, i + 1, i + 2 (bytes, scale, zero point or none) as numbers. -1: refused. */
static int numbers(kn_raw *r, int i)
{
    if (!kn_raw_in(r, i) || !kn_raw_in(r, i + 1)) {
        kn_raw_bad(r, KILN_REQUEST, "inputs %d and %d are mandatory", i, i + 1);
        return -1;
    }
    int in[3] = {r->in[i], one(r->s, r->in[i + 1]), kn_raw_in(r, i + 2) ? one(r->s, r->in[i + 2]) : -1};
    return in[1] < 0 ? -1 : kn_emit(r->s, "DequantizeLinear", in[2] < 0 ? 2 : 3, in, 0, NULL);
}

/* y as bytes like those of input `like`, by the scale in input i and the zero point behind it, or zero. */
static int bytes(kn_raw *r, int y, int i, int like)
{
    if (y < 0) return -1;
    if (!kn_raw_in(r, i)) {
        kn_raw_bad(r, KILN_REQUEST, "input %d is mandatory", i);
        return -1;
    }
    int in[3] = {y, one(r->s, r->in[i]), -1};
    in[2] = kn_raw_in(r, i + 1) ? one(r->s, r->in[i + 1]) : kn_emit_fill(r->s, kn_raw_in(r, like)->dtype, 0, NULL, 0);
    return in[1] < 0 || in[2] < 0 ? -1 : kn_emit(r->s, "QuantizeLinear", 3, in, 0, NULL);
}

static kiln_status pair(kn_raw *r, const char *op)
{
    int a = numbers(r, 0), b = a < 0 ? -1 : numbers(r, 3);
    return kn_raw_out(r, 0, b < 0 ? -1 : bytes(r, kn_emit2(r->s, op, a, b), 6, 0));
}

kiln_status kn_rule_ms_qlinearadd(kn_raw *r) { return pair(r, "Add"); }

kiln_status kn_rule_ms_qlinearmul(kn_raw *r) { return pair(r, "Mul"); }

/* The operator of the same name without "QLinear", with these attributes. */
static kiln_status alone(kn_raw *r, int nattrs, const kn_gattr *attrs)
{
    int x = numbers(r, 0), y = x < 0 ? -1 : kn_emit(r->s, r->n->op + strlen("QLinear"), 1, &x, nattrs, attrs);
    return kn_raw_out(r, 0, bytes(r, y, 3, 0));
}

kiln_status kn_rule_ms_qlinearsigmoid(kn_raw *r) { return alone(r, 0, NULL); }

kiln_status kn_rule_ms_qlinearleakyrelu(kn_raw *r)
{
    kn_gattr alpha = kn_gattr_float("alpha", kn_raw_float(r, "alpha", 0.01));
    return alone(r, 1, &alpha);
}

kiln_status kn_rule_ms_qlinearsoftmax(kn_raw *r)
{
    kn_gattr axis = kn_gattr_int("axis", kn_raw_int(r, "axis", -1));
    if (kn_raw_int(r, "opset", 13) < 13) return kn_raw_bad(r, KILN_UNSUPPORTED, "the form of opset 13 and later is right");
    return alone(r, 1, &axis);
}

/* Pools; with channels last the spatial axes stand before them. */
static kiln_status pooled(kn_raw *r, int nattrs, const kn_gattr *attrs)
{
    int to[KILN_MAX_RANK], back[KILN_MAX_RANK], x = numbers(r, 0);
    if (x < 0) return r->s->d->status;
    int rank = kn_raw_in(r, 0)->rank;
    bool last = kn_raw_int(r, "channels_last", 0) != 0;
    if (rank < 3) return kn_raw_bad(r, KILN_SHAPE, "rank 3 or more is right");
    for (int i = 0; i < rank; i++) {
        to[i] = i == 0 ? 0 : i == 1 ? rank - 1 : i - 1;
        back[i] = i == 0 ? 0 : i == rank - 1 ? 1 : i + 1;
    }
    if (last) x = kn_emit_transpose(r->s, x, to);
    int y = x < 0 ? -1 : kn_emit(r->s, r->n->op + strlen("QLinear"), 1, &x, nattrs, attrs);
    if (last && y >= 0) y = kn_emit_transpose(r->s, y, back);
    return kn_raw_out(r, 0, bytes(r, y, 3, 0));
}

kiln_status kn_rule_ms_qlinearglobalaveragepool(kn_raw *r) { return pooled(r, 0, NULL); }

kiln_status kn_rule_ms_qlinearaveragepool(kn_raw *r)
{
    kn_gattr *attrs = kn_array(r->s->a, kn_gattr, r->n->nattrs + 1);
    int n = 0;
    for (int i = 0; attrs && i < r->n->nattrs; i++)
        if (strcmp(r->n->attrs[i].name, "channels_last")) attrs[n++] = r->n->attrs[i];
    return attrs ? pooled(r, n, attrs) : kn_fail(r->s->d, KILN_MEMORY, "out of memory");
}

/* Y's scale and zero point first, then three inputs a part. */
kiln_status kn_rule_ms_qlinearconcat(kn_raw *r)
{
    int n = (r->nin - 2) / 3, axis, *parts = kn_array(r->s->a, int, n > 0 ? n : 1);
    if (n < 1 || r->nin != 3 * n + 2 || !kn_raw_in(r, 2)) return kn_raw_bad(r, KILN_REQUEST, "two inputs and three a part are right");
    if (!parts) return kn_fail(r->s->d, KILN_MEMORY, "out of memory");
    kiln_status s = kn_raw_axis(r, kn_raw_int(r, "axis", 0), kn_raw_in(r, 2)->rank, &axis);
    for (int i = 0; i < n && s == KILN_OK; i++)
        if ((parts[i] = numbers(r, 2 + 3 * i)) < 0) s = r->s->d->status;
    return s == KILN_OK ? kn_raw_out(r, 0, bytes(r, kn_emit_concat(r->s, n, parts, axis), 0, 2)) : s;
}

/* The sum of products of bytes in 32 bits, its zero points at inputs az and bz. */
static int product(kn_raw *r, int a, int b, int az, int bz)
{
    int in[4] = {a, b, az < 0 ? -1 : one(r->s, az), bz < 0 ? -1 : one(r->s, bz)};
    return a < 0 || b < 0 ? -1 : kn_emit_integer_product(r->s, "MatMulInteger", in, 0, NULL);
}

static int given(const kn_raw *r, int i) { return kn_raw_in(r, i) ? r->in[i] : -1; }

static int scales(kn_raw *r, int a, int b) { return kn_emit2(r->s, "Mul", one(r->s, a), one(r->s, b)); }

static int turned(kn_raw *r, int i, const char *attr)
{
    static const int swap[2] = {1, 0};
    return kn_raw_int(r, attr, 0) ? kn_emit_transpose(r->s, r->in[i], swap) : r->in[i];
}

/* alpha * a_scale * b_scale * (A' B' + C), as bytes where there is a scale of Y. */
kiln_status kn_rule_ms_qgemm(kn_raw *r)
{
    for (int i = 0; i < 5; i++)
        if (i != 2 && !kn_raw_in(r, i)) return kn_raw_bad(r, KILN_REQUEST, "input %d is mandatory", i);
    if (kn_raw_in(r, 0)->rank != 2 || kn_raw_in(r, 3)->rank != 2) return kn_raw_bad(r, KILN_SHAPE, "two matrices are right");
    int sum = product(r, turned(r, 0, "transA"), turned(r, 3, "transB"), given(r, 2), given(r, 5));
    if (kn_raw_in(r, 6)) sum = kn_emit2(r->s, "Add", sum, r->in[6]);
    int scale = scales(r, r->in[1], r->in[4]);
    double alpha = kn_raw_float(r, "alpha", 1);
    if (alpha != 1 && scale >= 0) scale = kn_emit2(r->s, "Mul", scale, kn_emit_scalar_like(r->s, scale, alpha));
    int y = sum < 0 ? -1 : kn_emit2(r->s, "Mul", kn_emit_cast(r->s, sum, KN_F32), scale);
    return kn_raw_out(r, 0, kn_raw_in(r, 7) ? bytes(r, y, 7, 0) : y);
}

/* scale * (A B) + bias in 32-bit floats. */
static kiln_status to_float(kn_raw *r, int sum, int scale, int bias)
{
    int y = sum < 0 || scale < 0 ? -1 : kn_emit2(r->s, "Mul", kn_emit_cast(r->s, sum, KN_F32), scale);
    return kn_raw_out(r, 0, y >= 0 && kn_raw_in(r, bias) ? kn_emit2(r->s, "Add", y, r->in[bias]) : y);
}

kiln_status kn_rule_ms_matmulintegertofloat(kn_raw *r)
{
    for (int i = 0; i < 4; i++)
        if (!kn_raw_in(r, i)) return kn_raw_bad(r, KILN_REQUEST, "input %d is mandatory", i);
    return to_float(r, product(r, r->in[0], r->in[1], given(r, 4), given(r, 5)), scales(r, r->in[2], r->in[3]), 6);
}

/* A's scale and zero point come from its values, as DynamicQuantizeLinear's do. */
kiln_status kn_rule_ms_dynamicquantizematmul(kn_raw *r)
{
    for (int i = 0; i < 3; i++)
        if (!kn_raw_in(r, i)) return kn_raw_bad(r, KILN_REQUEST, "input %d is mandatory", i);
    int out[3];
    if (!kn_emit_quantized(r->s, r->in[0], out)) return r->s->d->status;
    return to_float(r, product(r, out[0], r->in[1], out[2], given(r, 3)), scales(r, out[1], r->in[2]), 4);
}
