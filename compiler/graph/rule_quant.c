/* Rules of quantised operators: products of bytes to 32 bits, then the scales, then bytes again. */
#include "graph/settle.h"
#include <string.h>

kiln_status kn_rule_quantizelinear(kn_raw *r)
{
    kn_gattr attrs[3];
    int n = 0;
    enum kn_dtype t;
    int64_t to = kn_raw_int(r, "output_dtype", 0);
    if (kn_node_attr(r->n, "axis")) attrs[n++] = kn_gattr_int("axis", kn_raw_int(r, "axis", 1));
    if (kn_raw_int(r, "block_size", 0)) attrs[n++] = kn_gattr_int("block_size", kn_raw_int(r, "block_size", 0));
    bool down = !strcmp(r->n->op, "QuantizeLinear");
    if (to && !kn_onnx_dtype(to, &t)) return kn_raw_bad(r, KILN_DTYPE, "there is no %s here", kn_onnx_dtype_name(to));
    if (to) attrs[n++] = kn_gattr_str("output_dtype", kn_dtype_text(t));
    int y = kn_emit(r->s, r->n->op, r->nin, r->in, n, attrs);
    if (y >= 0 && !down && !to && !kn_raw_int(r, "block_size", 0) && !kn_remember_bytes(r, y, kn_raw_int(r, "axis", 1)))
        return kn_fail(r->s->d, KILN_MEMORY, "out of memory");
    return kn_raw_out(r, 0, y);
}

bool kn_emit_quantized(kn_settle *s, int x, int out[3])
{
    kn_gattr flat = kn_gattr_int("keepdims", 0), bounds[] = {kn_gattr_float("min", 0), kn_gattr_float("max", 255)};
    int zero = kn_emit_scalar_like(s, x, 0), top = kn_emit(s, "ReduceMax", 1, &x, 1, &flat), low = kn_emit(s, "ReduceMin", 1, &x, 1, &flat);
    top = kn_emit2(s, "Max", top, zero);
    low = kn_emit2(s, "Min", low, zero);
    int scale = kn_emit2(s, "Div", kn_emit2(s, "Sub", top, low), kn_emit_scalar_like(s, x, 255));
    int point = kn_emit1(s, "Round", kn_emit2(s, "Div", kn_emit1(s, "Neg", low), scale));
    point = point < 0 ? -1 : kn_emit_cast(s, kn_emit(s, "Clip", 1, &point, 2, bounds), KN_U8);
    int in[3] = {x, scale, point};
    out[1] = scale, out[2] = point;
    out[0] = scale < 0 || point < 0 ? -1 : kn_emit(s, "QuantizeLinear", 3, in, 0, NULL);
    return out[0] >= 0;
}

kiln_status kn_rule_dynamicquantizelinear(kn_raw *r)
{
    int out[3];
    if (!kn_raw_in(r, 0)) return kn_raw_bad(r, KILN_REQUEST, "input 0 is mandatory");
    if (!kn_emit_quantized(r->s, r->in[0], out)) return r->s->d->status;
    for (int i = 2; i > 0; i--) {
        kiln_status s = kn_raw_out(r, i, out[i]);
        if (s != KILN_OK) return s;
    }
    return kn_raw_out(r, 0, out[0]);
}

/* x (i32) times scales, to bytes. */
static kiln_status requantised(kn_raw *r, int x, int scale, int to_scale, int to_point)
{
    kn_settle *s = r->s;
    int y = kn_emit2(s, "Mul", kn_emit_cast(s, x, KN_F32), scale), in[3] = {y, kn_emit_cast(s, to_scale, KN_F32), to_point};
    return y < 0 || in[1] < 0 ? s->d->status : kn_raw_out(r, 0, kn_emit(s, "QuantizeLinear", 3, in, 0, NULL));
}

/* ---- products of bytes ----
 *
 * sum (x - p) (w - q) with weights that are known is sum x w' - p sum w' with w' = w - q, where w' still is a byte: the sums of the weights are
 * constants, and bytes times bytes are what dot-product instructions multiply. Padding counts as p. */

static const kn_value *value(const kn_settle *s, int v) { return v < 0 ? NULL : &s->g->values[v]; }

/* Weights less their zero point q, as bytes; -1: they are not known to be, and nothing is emitted. */
static int centred(kn_settle *s, int w, int q)
{
    int64_t point = 0;
    if (!value(s, w)->data || (q >= 0 && !kn_value_alike(value(s, q), &point))) return -1;
    if (!point) return w;
    if (value(s, w)->dtype != KN_U8 || point != 128) return -1;
    int wide = kn_emit_cast(s, w, KN_I32);
    return wide < 0 ? -1 : kn_emit_cast(s, kn_emit2(s, "Sub", wide, kn_emit_fill(s, KN_I32, 0, NULL, 128)), KN_I8);
}

/* What each column (of a matrix) or filter of weights sums to, in the place of its axis of the result. */
static int weight_sums(kn_settle *s, int w, bool filters)
{
    int64_t axes[KILN_MAX_RANK], shape[KILN_MAX_RANK];
    int rank = value(s, w)->rank, n = 0;
    for (int i = filters ? 1 : rank - 2; i < (filters ? rank : rank - 1); i++) axes[n++] = i;
    kn_gattr over[] = {kn_gattr_ints(s->a, "axes", n, axes), kn_gattr_int("keepdims", !filters)};
    int wide = kn_emit_cast(s, w, KN_I32), y = wide < 0 ? -1 : kn_emit(s, "ReduceSum", 1, &wide, 2, over);
    if (y < 0 || !filters) return y;
    for (int i = 0; i < rank; i++) shape[i] = i == 1 ? value(s, y)->shape[0] : 1;
    return kn_emit_reshape(s, y, rank, shape);
}

int kn_emit_integer_product(kn_settle *s, const char *op, const int in[4], int nattrs, const kn_gattr *attrs)
{
    bool filters = !strcmp(op, "ConvInteger");
    int64_t point = 0;
    const kn_value *p = value(s, in[2]);
    bool plain = value(s, in[1])->rank >= 2 && (!p || (kn_value_elems(p) == 1 && (!filters || kn_value_alike(p, &point))));
    int w = plain ? centred(s, in[1], in[3]) : -1;
    kn_gattr *all = kn_array(s->a, kn_gattr, nattrs + 1);
    if (!all) return kn_fail(s->d, KILN_MEMORY, "out of memory"), -1;
    if (w < 0 && s->d->status != KILN_OK) return -1;
    if (w < 0) return kn_emit(s, op, in[3] >= 0 ? 4 : in[2] >= 0 ? 3 : 2, in, nattrs, attrs);
    for (int i = 0; i < nattrs; i++) all[i] = attrs[i];
    all[nattrs] = kn_gattr_int("pad_value", point);
    int y = kn_emit(s, op, 2, (int[]){in[0], w}, nattrs + filters, all);
    if (!p || (kn_value_alike(p, &point) && !point)) return y;
    int scalar = kn_emit_reshape(s, kn_emit_cast(s, in[2], KN_I32), 0, NULL), sums = y < 0 ? -1 : weight_sums(s, w, filters);
    return sums < 0 || scalar < 0 ? -1 : kn_emit2(s, "Sub", y, kn_emit2(s, "Mul", sums, scalar));
}

static int given(const kn_raw *r, int i) { return kn_raw_in(r, i) ? r->in[i] : -1; }

static kiln_status integer_product(kn_raw *r)
{
    if (!kn_raw_in(r, 0) || !kn_raw_in(r, 1)) return kn_raw_bad(r, KILN_REQUEST, "two inputs are right");
    const int in[4] = {r->in[0], r->in[1], given(r, 2), given(r, 3)};
    return kn_raw_out(r, 0, kn_emit_integer_product(r->s, r->n->op, in, r->n->nattrs, r->n->attrs));
}

kiln_status kn_rule_matmulinteger(kn_raw *r) { return integer_product(r); }

kiln_status kn_rule_convinteger(kn_raw *r) { return integer_product(r); }

static kiln_status all_there(kn_raw *r)
{
    for (int i = 0; i < 8; i++)
        if (!kn_raw_in(r, i)) return kn_raw_bad(r, KILN_REQUEST, "input %d is mandatory", i);
    return KILN_OK;
}

kiln_status kn_rule_qlinearmatmul(kn_raw *r)
{
    kiln_status status = all_there(r);
    if (status != KILN_OK) return status;
    const kn_value *rows = kn_raw_in(r, 1);
    int64_t column[2] = {rows->rank == 1 ? rows->shape[0] : 1, 1};
    int in[4] = {r->in[0], r->in[3], r->in[2], r->in[5]}, a = kn_emit_cast(r->s, r->in[1], KN_F32);
    if (column[0] > 1) a = kn_emit_reshape(r->s, a, 2, column); /* a scale for every row */
    int product = kn_emit_integer_product(r->s, "MatMulInteger", in, 0, NULL), scale = kn_emit2(r->s, "Mul", a, kn_emit_cast(r->s, r->in[4], KN_F32));
    return product < 0 || scale < 0 ? r->s->d->status : requantised(r, product, scale, r->in[6], r->in[7]);
}

kiln_status kn_rule_qlinearconv(kn_raw *r)
{
    kiln_status status = all_there(r);
    if (status != KILN_OK) return status;
    kn_settle *s = r->s;
    int in[4] = {r->in[0], r->in[3], r->in[2], r->in[5]}, rank = kn_raw_in(r, 0)->rank;
    int y = kn_emit_integer_product(s, "ConvInteger", in, r->n->nattrs, r->n->attrs), scale = kn_emit_cast(s, r->in[4], KN_F32);
    int64_t channel[KILN_MAX_RANK];
    for (int i = 0; i < rank; i++) channel[i] = 1;
    if (y >= 0 && kn_raw_in(r, 8)) {
        channel[1] = kn_value_elems(kn_raw_in(r, 8));
        y = kn_emit2(s, "Add", y, kn_emit_reshape(s, r->in[8], rank, channel));
    }
    if (scale >= 0 && kn_value_elems(&s->g->values[scale]) > 1) {
        channel[1] = kn_value_elems(&s->g->values[scale]);
        scale = kn_emit_reshape(s, scale, rank, channel);
    }
    scale = kn_emit2(s, "Mul", kn_emit_cast(s, r->in[1], KN_F32), scale);
    return y < 0 || scale < 0 ? s->d->status : requantised(r, y, scale, r->in[6], r->in[7]);
}
